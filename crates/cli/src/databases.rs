//! Databases that gain nothing by an import: they are named before it and after, with what helps.

use crate::target::{self, Target};
use crate::words::count;
use crate::{fsck_advice, json};
use anyhow::Result;
use medfs::{FileKind, Files, Ino, Volume, convert};
use medfs_device::quote::{self, hint};
use medfs_transfer::paths;
use serde::{Serialize, Serializer};
use std::collections::HashSet;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Paths that are named.
const SHOWN: usize = 5;

/// Databases without room for deltas.
pub(crate) struct Databases {
    /// A path of each that has one.
    paths: Vec<PathBuf>,
    all: u64,
}

impl Databases {
    /// There are none.
    pub(crate) fn none() -> Databases {
        Databases { paths: Vec::new(), all: 0 }
    }

    /// Those of a volume with deltas, or of one that an import would make such a volume.
    pub(crate) fn without_zone(dev: Target, image: &Path) -> Result<Databases> {
        let volume = target::open_volume_without_log(dev, image)?;
        let databases = convert::databases_without_zone(&volume);
        let without: HashSet<Ino> =
            databases.map_err(|error| fsck_advice::repair_first(error, image))?.into_iter().collect();
        let paths = if without.is_empty() { Vec::new() } else { named(&volume, &without) };
        Ok(Databases { paths, all: without.len() as u64 })
    }

    /// Names them.
    pub(crate) fn tell(&self, image: &str) {
        if self.all == 0 {
            return;
        }
        for path in self.paths.iter().take(SHOWN) {
            outln!("no deltas for {}: such a file of more than 3.4 MiB has no room for them", path.display());
        }
        let more = self.all.saturating_sub(SHOWN.min(self.paths.len()) as u64);
        if more > 0 {
            outln!("no deltas for {} more", count(more, "database"));
        }
        let command = hint(format_args!("medfs import --databases {}", quote::path(Path::new(image))));
        outln!("{command} makes room for their deltas");
    }
}

/// As a list of all paths.
impl Serialize for Databases {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Named {
            path: String,
            #[serde(skip_serializing_if = "Option::is_none")]
            path_hex: Option<String>,
        }
        to.collect_seq(self.paths.iter().map(|path| {
            let (path, path_hex) = json::name(path.as_os_str().as_bytes());
            Named { path, path_hex }
        }))
    }
}

/// A path of each of these inodes that has one.
fn named(volume: &Volume, of: &HashSet<Ino>) -> Vec<PathBuf> {
    let (mut left, mut found) = (of.clone(), Vec::new());
    let mut dirs = vec![(volume.root(), PathBuf::from("/"))];
    while let Some((dir, path)) = dirs.pop() {
        for entry in paths::list(volume, dir).0 {
            let path = paths::join(&path, &entry.name);
            if entry.kind == Some(FileKind::Directory) {
                dirs.push((entry.ino, path));
            } else if left.remove(&entry.ino) {
                found.push(path);
            }
        }
        if left.is_empty() {
            break;
        }
    }
    found.sort();
    found
}
