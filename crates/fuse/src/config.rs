//! How a volume is to be mounted.

use crate::error::{Error, Result};
use rustix::mount::MountFlags;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// How requests travel between the kernel and the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// io_uring where the kernel offers it, `/dev/fuse` otherwise.
    #[default]
    Auto,
    /// Reading and writing `/dev/fuse`.
    Dev,
    /// FUSE over io_uring (Linux 6.14, `enable_uring` of the fuse module); mounting fails without it.
    Uring,
}

impl FromStr for Transport {
    type Err = Error;
    fn from_str(s: &str) -> Result<Transport> {
        match s {
            "auto" => Ok(Transport::Auto),
            "dev" => Ok(Transport::Dev),
            "uring" => Ok(Transport::Uring),
            _ => Err(Error::Option(format!("transport={s}: expected auto, dev or uring"))),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Transport::Auto => "auto",
            Transport::Dev => "dev",
            Transport::Uring => "uring",
        })
    }
}

/// Generic mount options: their names, the flag of `mount(2)`, whether the option sets or clears it,
/// and whether the engine has an opinion on it too.
const GENERIC: &[(&str, MountFlags, bool, bool)] = &[
    ("ro", MountFlags::RDONLY, true, true),
    ("rw", MountFlags::RDONLY, false, true),
    ("nosuid", MountFlags::NOSUID, true, false),
    ("suid", MountFlags::NOSUID, false, false),
    ("nodev", MountFlags::NODEV, true, false),
    ("dev", MountFlags::NODEV, false, false),
    ("noexec", MountFlags::NOEXEC, true, false),
    ("exec", MountFlags::NOEXEC, false, false),
    ("sync", MountFlags::SYNCHRONOUS, true, true),
    ("async", MountFlags::SYNCHRONOUS, false, true),
    ("dirsync", MountFlags::DIRSYNC, true, true),
    ("noatime", MountFlags::NOATIME, true, true),
    ("atime", MountFlags::NOATIME, false, false),
    ("nodiratime", MountFlags::NODIRATIME, true, false),
    ("relatime", MountFlags::RELATIME, true, true),
    ("strictatime", MountFlags::STRICTATIME, true, true),
];

/// How a volume is to be mounted.
#[derive(Debug, Clone)]
pub struct MountConfig {
    /// Directory to mount on.
    pub mountpoint: PathBuf,
    /// What `/proc/mounts` shows as the source: the image or device.
    pub source: String,
    /// Transport.
    pub transport: Transport,
    /// Worker threads that read `/dev/fuse` (or, over io_uring, that serve each CPU's queue); 0: chosen.
    pub threads: usize,
    /// Other users may enter.
    pub allow_other: bool,
    /// The kernel checks permissions by mode and ACL.
    pub default_permissions: bool,
    /// The kernel keeps written pages until an fsync or its own time.
    pub writeback: bool,
    /// Files are read and written past the kernel's page cache: every call of an application is a request.
    pub direct: bool,
    /// Idle processors wait awake while requests keep coming: each one takes less time, and more power. Needs root.
    pub alert: bool,
    /// How long the kernel may keep names and attributes. The daemon is the only writer, so long is right.
    pub timeout: Duration,
    /// Flags of `mount(2)`.
    pub flags: MountFlags,
}

impl MountConfig {
    /// The defaults for mounting `source` on `mountpoint`.
    pub fn new(mountpoint: impl Into<PathBuf>, source: impl Into<String>) -> MountConfig {
        MountConfig {
            mountpoint: mountpoint.into(),
            source: source.into(),
            transport: Transport::Auto,
            threads: 0,
            allow_other: false,
            default_permissions: true,
            writeback: true,
            direct: false,
            alert: false,
            timeout: Duration::from_secs(24 * 3600),
            flags: MountFlags::empty(),
        }
    }

    /// Whether the mount is read-only.
    pub fn read_only(&self) -> bool {
        self.flags.contains(MountFlags::RDONLY)
    }

    /// Takes one `-o` option. `Ok(false)`: the option is (also) for the engine, hand it on.
    pub fn set_option(&mut self, option: &str) -> Result<bool> {
        if let Some(&(_, flag, set, shared)) = GENERIC.iter().find(|(name, ..)| *name == option) {
            self.flags.set(flag, set);
            return Ok(!shared);
        }
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (option, None),
        };
        match name {
            "allow_other" => self.allow_other = switch(option, value)?,
            "default_permissions" => self.default_permissions = switch(option, value)?,
            "writeback" => self.writeback = switch(option, value)?,
            "alert" => self.alert = switch(option, value)?,
            "nowriteback" if value.is_none() => self.writeback = false,
            "transport" => self.transport = value.unwrap_or_default().parse()?,
            "threads" => {
                self.threads =
                    value.and_then(|v| v.parse().ok()).filter(|n| (1..=256).contains(n)).ok_or_else(
                        || Error::Option(format!("{option}: expected threads=N with N from 1 to 256")),
                    )?;
            }
            "timeout" => {
                self.timeout = value
                    .and_then(|v| v.parse().ok())
                    .map(Duration::from_secs)
                    .ok_or_else(|| Error::Option(format!("{option}: expected timeout=N with N seconds")))?;
            }
            // What mount(8) and fstab add for themselves.
            "defaults" | "auto" | "noauto" | "user" | "nouser" | "nofail" | "_netdev" => {}
            _ if name.starts_with("x-") => {}
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The generic options in words, for fusermount3. It does not know the ones about access times, which are the engine's.
    pub(crate) fn flag_words(&self) -> impl Iterator<Item = &'static str> {
        let flags =
            self.flags.difference(MountFlags::RELATIME | MountFlags::STRICTATIME | MountFlags::NODIRATIME);
        GENERIC.iter().filter(move |(_, flag, set, _)| *set && flags.contains(*flag)).map(|(name, ..)| *name)
    }
}

/// An option that is on by its bare name, or `=on`, `=off`.
fn switch(option: &str, value: Option<&str>) -> Result<bool> {
    match value {
        None | Some("on" | "1" | "yes") => Ok(true),
        Some("off" | "0" | "no") => Ok(false),
        Some(_) => Err(Error::Option(format!("{option}: expected on or off"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> MountConfig {
        MountConfig::new("/mnt", "image")
    }

    #[test]
    fn takes_its_options_and_hands_on_the_engines() {
        let mut c = config();
        for option in
            ["allow_other", "transport=dev", "threads=3", "nosuid", "writeback=off", "timeout=5", "alert"]
        {
            assert!(c.set_option(option).unwrap(), "{option}");
        }
        assert!(c.allow_other && c.alert && !c.writeback && c.threads == 3 && c.transport == Transport::Dev);
        assert_eq!(c.timeout, Duration::from_secs(5));
        assert!(c.flags.contains(MountFlags::NOSUID));
        assert!(!c.set_option("ro").unwrap(), "the engine has to know too");
        assert!(c.read_only());
        assert!(!c.set_option("fsync_mode=posix").unwrap());
        assert!(!c.set_option("strictatime").unwrap());
        assert_eq!(c.flag_words().collect::<Vec<_>>(), ["ro", "nosuid"], "what fusermount3 knows");
    }

    #[test]
    fn names_the_wrong_option() {
        let mut c = config();
        for option in
            ["transport=tcp", "threads=0", "threads=many", "allow_other=maybe", "timeout=", "transport"]
        {
            let message = c.set_option(option).unwrap_err().to_string();
            assert!(message.contains(option) && message.contains("expected"), "{message}");
        }
    }
}
