//! Schemes: a name for a kind of volume and its mount options (`experiments/schemes.toml`).

use crate::error::{Error, Result};
use medfs::MountOptions;
use medfs_mkfs::MkfsOptions;
use serde::Deserialize;
use std::sync::LazyLock;

const FILE: &str = "experiments/schemes.toml";

/// The kind of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeKind {
    /// Plain F2FS.
    Plain,
    /// One that may hold deltas.
    Deltas,
}

/// A design that is compared with others.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scheme {
    /// Its name in tables.
    pub name: String,
    /// A description.
    pub about: String,
    /// The kind of its volumes.
    pub volume: VolumeKind,
    /// Whether the volume may hold compressed files.
    #[serde(default)]
    pub compression: bool,
    /// Mount options.
    pub options: String,
}

impl Scheme {
    /// The same with more options.
    pub fn with(&self, options: &str) -> Scheme {
        let joined = [self.options.as_str(), options];
        let joined = joined.into_iter().filter(|o| !o.is_empty()).collect::<Vec<_>>().join(",");
        Scheme { options: joined, ..self.clone() }
    }

    /// The mount options, or one sentence on why this version does not have them.
    pub fn mount_options(&self) -> std::result::Result<MountOptions, String> {
        let mut options = MountOptions::default();
        match options.parse(&self.options) {
            Ok(()) => Ok(options),
            Err(e) => {
                Err(format!("{} is not available in this version: {}", self.name, short(&e.to_string())))
            }
        }
    }

    /// The options of its volumes: always the same for a seed.
    pub fn mkfs_options(&self, seed: u64) -> MkfsOptions {
        let mut uuid = [0x4c; 16];
        uuid[..8].copy_from_slice(&seed.to_le_bytes());
        let mut options = MkfsOptions::new(uuid, crate::backend::volume::start_of_time().secs);
        options.deltas = self.volume == VolumeKind::Deltas;
        options.zeroed = true;
        options.discard = false;
        if self.compression {
            options.features |= medfs_format::superblock::Feature::COMPRESSION;
        }
        options
    }
}

/// What an option's error says, without the list of all that is accepted.
fn short(message: &str) -> &str {
    message.split("; accepted").next().unwrap_or(message)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Schemes {
    scheme: Vec<Scheme>,
}

static SCHEMES: LazyLock<std::result::Result<Vec<Scheme>, String>> = LazyLock::new(|| {
    let text = include_str!("../experiments/schemes.toml");
    toml::from_str::<Schemes>(text).map(|s| s.scheme).map_err(|e| e.to_string())
});

/// All schemes, in the order of their file.
///
/// # Errors
/// The file is wrong.
pub fn all() -> Result<&'static [Scheme]> {
    match &*SCHEMES {
        Ok(all) => Ok(all),
        Err(message) => Err(Error::Spec { file: FILE.into(), message: message.clone() }),
    }
}

/// The scheme of this name.
pub fn find(name: &str) -> Result<&'static Scheme> {
    let all = all()?;
    all.iter().find(|s| s.name == name).ok_or_else(|| {
        let names: Vec<&str> = all.iter().map(|s| s.name.as_str()).collect();
        Error::Unknown(format!("no scheme is named '{name}'; there are: {}", names.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_that_is_not_there_is_one_sentence() {
        let unknown = find("NODC").unwrap().with("compress=snappy");
        let message = unknown.mount_options().unwrap_err();
        assert!(
            message.starts_with("NODC is not available in this version: invalid value 'snappy' for compress")
        );
        assert!(!message.contains('\n') && message.len() < 200, "{message}");
        for name in ["NODC", "DC", "DCI", "DCM", "MedFS", "medfs"] {
            find(name).unwrap().mount_options().unwrap();
        }
        assert!(find("XYZ").unwrap_err().to_string().contains("NODC"));
    }
}
