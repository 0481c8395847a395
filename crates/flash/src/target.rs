//! `flash:PATH?profile=emmc&ftl=ldc&codec=lzo&sync=on`: a flash device wherever an image is named.

use crate::codecs::PageCodec;
use crate::device::{Device, DeviceOptions, Durability, policy};
use crate::device_file::header_of;
use crate::error::{FlashError, Result};
use crate::profile::Profile;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Ends with a sentence that says what would do.
macro_rules! usage {
    ($($text:tt)*) => { return Err(FlashError::Usage(format!($($text)*))) };
}

const PREFIX: &[u8] = b"flash:";

/// A flash device that was named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlashTarget {
    /// Its file.
    pub path: PathBuf,
    profile: Option<String>,
    ftl: Option<String>,
    codec: Option<String>,
    /// `on` or `off`, once it is known to be one of them.
    sync: Option<String>,
}

impl FlashTarget {
    /// The flash device that an argument names; `None` where it names something else.
    ///
    /// # Errors
    /// An option that does not exist, or without a value.
    pub fn parse(argument: &Path) -> Result<Option<FlashTarget>> {
        let Some(rest) = argument.as_os_str().as_bytes().strip_prefix(PREFIX) else { return Ok(None) };
        let mut parts = rest.splitn(2, |b| *b == b'?');
        let path = PathBuf::from(OsStr::from_bytes(parts.next().unwrap_or_default()));
        if path.as_os_str().is_empty() {
            usage!("{}: name the device's file, such as flash:card.nand", argument.display());
        }
        let options = String::from_utf8_lossy(parts.next().unwrap_or_default());
        Ok(Some(FlashTarget::of(path, &options, argument)?))
    }

    /// The device in the file `path` with options as they are written; `argument` names it in errors.
    fn of(path: PathBuf, options: &str, argument: &Path) -> Result<FlashTarget> {
        let mut target = FlashTarget { path, profile: None, ftl: None, codec: None, sync: None };
        for option in options.split('&').filter(|o| !o.is_empty()) {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            let place = match name {
                "profile" => &mut target.profile,
                "ftl" => &mut target.ftl,
                "codec" => &mut target.codec,
                "sync" => &mut target.sync,
                _ => {
                    usage!(
                        "{}: unknown option '{name}': expected profile, ftl, codec or sync",
                        argument.display()
                    )
                }
            };
            if value.is_empty() {
                usage!("{}: {name} needs a value, such as {name}=...", argument.display());
            }
            *place = Some(value.to_owned());
        }
        if let Some(sync) = target.sync.as_deref().filter(|sync| !["on", "off"].contains(sync)) {
            usage!("{}: sync={sync}: expected on or off", argument.display());
        }
        Ok(target)
    }

    /// A device whose file others choose (`flash:?ftl=ldc`, `flash:DIR?ftl=ldc`): the target with an empty
    /// path or that of the directory, its profile, method and codec known to exist. `None` where `argument`
    /// names something else.
    ///
    /// # Errors
    /// An option, profile, method or codec that does not exist.
    pub fn parse_new(argument: &str) -> Result<Option<FlashTarget>> {
        let Some(rest) = argument.strip_prefix("flash:") else { return Ok(None) };
        let (path, options) = rest.split_once('?').unwrap_or((rest, ""));
        let target = FlashTarget::of(path.into(), options, Path::new(argument))?;
        let possible = target.options(None).and_then(|options| options.check());
        possible.map_err(|wrong| FlashError::Usage(format!("{argument}: {wrong}")))?;
        Ok(Some(target))
    }

    /// Whether the device's file is there.
    pub fn exists(&self) -> bool {
        self.path.exists()
    }

    /// The same target with an absolute path, for a process that runs elsewhere.
    ///
    /// # Errors
    /// The system's.
    pub fn absolute(&self) -> Result<PathBuf> {
        let mut text = std::ffi::OsString::from("flash:");
        let path = std::path::absolute(&self.path)
            .map_err(|e| FlashError::Io(self.path.display().to_string(), e))?;
        text.push(path);
        let options =
            [("profile", &self.profile), ("ftl", &self.ftl), ("codec", &self.codec), ("sync", &self.sync)];
        for (i, (name, value)) in options.iter().filter_map(|(n, v)| Some((n, v.as_ref()?))).enumerate() {
            text.push(format!("{}{name}={value}", if i == 0 { '?' } else { '&' }));
        }
        Ok(text.into())
    }

    /// Makes the device's file, which does not exist.
    ///
    /// # Errors
    /// The file is there, or cannot be made.
    pub fn create(&self, size: Option<u64>) -> Result<()> {
        Device::<PageCodec>::create(&self.path, &self.options(size)?)?.close()
    }

    fn options(&self, size: Option<u64>) -> Result<DeviceOptions> {
        let profile = Profile::find(self.profile.as_deref().unwrap_or("emmc"))?;
        let mut options = DeviceOptions::new(profile);
        options.capacity = size;
        if let Some(ftl) = &self.ftl {
            options.ftl.clone_from(ftl);
        }
        if let Some(codec) = &self.codec {
            options.codec.clone_from(codec);
        }
        Ok(options)
    }

    /// Opens the device, which another process may use for so long. What it is made of cannot change; the method can.
    ///
    /// # Errors
    /// It is in use, damaged, or made of something else than what was named.
    pub fn open_device(&self, patience: Duration) -> Result<Device<PageCodec>> {
        let header = header_of(&self.path)?;
        let path = self.path.display();
        if let Some(name) = &self.profile {
            let asked = Profile::find(name)?;
            if asked != header.profile {
                usage!(
                    "{path} was made with the profile '{}', not '{name}': omit profile=",
                    header.profile.name
                );
            }
        }
        if let Some(codec) = self.codec.as_ref().filter(|codec| **codec != header.codec) {
            usage!("{path} was made with codec={}, not {codec}: omit codec=", header.codec);
        }
        if let Some(ftl) = &self.ftl {
            policy(ftl, &header.profile)?;
        }
        let durability = match self.sync.as_deref() {
            Some("on") => Durability::Machine,
            _ => Durability::Process,
        };
        Device::<PageCodec>::open_for(&self.path, self.ftl.as_deref(), durability, patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_told_from_paths() {
        assert_eq!(FlashTarget::parse(Path::new("card.img")).unwrap(), None);
        let target = FlashTarget::parse(Path::new("flash:/a/b?ftl=pm&profile=qlc")).unwrap().unwrap();
        assert_eq!(target.path, Path::new("/a/b"));
        assert_eq!((target.ftl.as_deref(), target.profile.as_deref()), (Some("pm"), Some("qlc")));
        assert_eq!(target.absolute().unwrap(), Path::new("flash:/a/b?profile=qlc&ftl=pm"));
        let synced = FlashTarget::parse(Path::new("flash:/a?sync=on")).unwrap().unwrap();
        assert_eq!(synced.absolute().unwrap(), Path::new("flash:/a?sync=on"));
        for (text, named) in [
            ("flash:", "name the device"),
            ("flash:a?size=1", "'size'"),
            ("flash:a?ftl", "ftl needs"),
            ("flash:a?sync=maybe", "on or off"),
        ] {
            let error = FlashTarget::parse(Path::new(text)).unwrap_err().to_string();
            assert!(error.contains(named), "{error}");
        }
    }
}
