//! How a volume is to be mounted.

use crate::error::{Error, Result};
use medfs::options::{Form, MountOption};
use medfs_device::ImageFile;
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
    ("atime", MountFlags::NOATIME, false, true),
    ("nodiratime", MountFlags::NODIRATIME, true, false),
    ("diratime", MountFlags::NODIRATIME, false, false),
    ("relatime", MountFlags::RELATIME, true, true),
    ("strictatime", MountFlags::STRICTATIME, true, true),
    ("nostrictatime", MountFlags::STRICTATIME, false, true),
];

/// The options of the mount that are no flags: the table of their parser, and of what is told about them.
pub const OPTIONS: &[MountOption<MountConfig>] = &[
    MountOption {
        name: "allow_other",
        form: Form::Switch,
        accepts: "",
        default: "off",
        help: "Let other users in, as their permissions say. As an ordinary user this needs user_allow_other in /etc/fuse.conf.",
        set: |c, value| put(&mut c.allow_other, value == "on"),
        show: |c| shown(c.allow_other),
    },
    MountOption {
        name: "default_permissions",
        form: Form::Switch,
        accepts: "",
        default: "on",
        help: "The kernel checks permissions by mode and access control list.",
        set: |c, value| put(&mut c.default_permissions, value == "on"),
        show: |c| shown(c.default_permissions),
    },
    MountOption {
        name: "writeback",
        form: Form::Switch,
        accepts: "",
        default: "on",
        help: "The kernel keeps written pages until an fsync, or its own time.",
        set: |c, value| put(&mut c.writeback, value == "on"),
        show: |c| shown(c.writeback),
    },
    MountOption {
        name: "alert",
        form: Form::Switch,
        accepts: "",
        default: "off",
        help: "Idle processors stay awake while requests keep coming: each takes less time, and more power. Needs root.",
        set: |c, value| put(&mut c.alert, value == "on"),
        show: |c| shown(c.alert),
    },
    MountOption {
        name: "transport",
        form: Form::Value("auto|dev|uring"),
        accepts: "",
        default: "auto",
        help: "How requests travel: over io_uring where the kernel offers it, always by /dev/fuse, or always over io_uring.",
        set: |c, value| value.parse().map(|transport| c.transport = transport).is_ok(),
        show: |c| vec![c.transport.to_string()],
    },
    MountOption {
        name: "threads",
        form: Form::Value("N"),
        accepts: "a number from 1 to 256",
        default: "chosen by the number of processors",
        help: "Threads that read /dev/fuse, or that serve the queue of each processor over io_uring.",
        set: |c, value| {
            number(value).filter(|n| (1..=256).contains(n)).map(|n| c.threads = n as usize).is_some()
        },
        show: |c| (c.threads > 0).then(|| c.threads.to_string()).into_iter().collect(),
    },
    MountOption {
        name: "timeout",
        form: Form::Value("N"),
        accepts: "a number of seconds",
        default: "86400",
        help: "How long the kernel may keep names and attributes.",
        set: |c, value| number(value).map(|n| c.timeout = Duration::from_secs(n)).is_some(),
        show: |c| vec![c.timeout.as_secs().to_string()],
    },
];

fn put(field: &mut bool, value: bool) -> bool {
    *field = value;
    true
}

fn shown(on: bool) -> Vec<String> {
    vec![if on { "on" } else { "off" }.into()]
}

fn number(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

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
    /// Options of whoever mounts that are in force too: they are told with the others.
    pub more_options: Vec<String>,
    /// The image file of the volume: the statistics tell where it has lost its name.
    pub image: Option<ImageFile>,
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
            more_options: Vec::new(),
            image: None,
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
        MountOption::apply(OPTIONS, self, option).map_err(Error::Option)
    }

    /// Names of the flags of `mount(2)` that can be given.
    pub fn flags_known() -> impl Iterator<Item = &'static str> {
        GENERIC.iter().map(|(name, ..)| *name)
    }

    /// The options of the mount in force, as they would be given to have them; those that the engine shows
    /// too are left out.
    pub fn in_force(&self) -> Vec<String> {
        let set = |flag: MountFlags| self.flags.contains(flag);
        let flags = GENERIC.iter().filter(|(_, flag, sets, shared)| *sets && !shared && set(*flag));
        let words = flags.map(|(name, ..)| (*name).to_owned());
        let own = MountOption::in_force(OPTIONS, self);
        words.chain(own).chain(self.more_options.iter().cloned()).collect()
    }

    /// The generic options in words, for fusermount3. It does not know the ones about access times, which are
    /// the engine's.
    pub(crate) fn flag_words(&self) -> impl Iterator<Item = &'static str> {
        let flags =
            self.flags.difference(MountFlags::RELATIME | MountFlags::STRICTATIME | MountFlags::NODIRATIME);
        GENERIC.iter().filter(move |(_, flag, set, _)| *set && flags.contains(*flag)).map(|(name, ..)| *name)
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
        let shown = c.in_force();
        for option in
            ["nosuid", "allow_other", "transport=dev", "threads=3", "nowriteback", "timeout=5", "alert"]
        {
            assert!(shown.iter().any(|s| s == option), "{option}: {shown:?}");
        }
        assert!(!c.set_option("fsync_mode=posix").unwrap());
        assert!(!c.set_option("strictatime").unwrap());
        assert_eq!(c.flag_words().collect::<Vec<_>>(), ["ro", "nosuid"], "what fusermount3 knows");
    }

    #[test]
    fn what_takes_a_flag_back_is_for_the_engine_too() {
        let mut c = config();
        for (sets, takes_back, flag) in [
            ("noatime", "atime", MountFlags::NOATIME),
            ("strictatime", "nostrictatime", MountFlags::STRICTATIME),
            ("nodiratime", "diratime", MountFlags::NODIRATIME),
        ] {
            c.set_option(sets).unwrap();
            assert!(c.flags.contains(flag), "{sets}");
            let taken = c.set_option(takes_back).unwrap();
            assert!(!c.flags.contains(flag) && taken == (flag == MountFlags::NODIRATIME), "{takes_back}");
        }
    }

    #[test]
    fn names_the_wrong_option() {
        let mut c = config();
        for option in
            ["transport=tcp", "threads=0", "threads=many", "allow_other=maybe", "timeout=", "transport"]
        {
            let message = c.set_option(option).unwrap_err().to_string();
            let name = option.split('=').next().unwrap_or(option);
            assert!(message.contains(name) && message.contains("expected"), "{message}");
        }
    }
}
