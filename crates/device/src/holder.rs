//! Who uses a device: for the message to the program that wants it too, and to tell whether waiting is of any use.
//!
//! What is found is what /proc and /sys show this process at one moment. It decides nothing but messages and
//! waiting: that a device is in use is the kernel's word ([`crate::claim`]).

use crate::mounts::{MountEntry, mounts};
use crate::quote;
use rustix::fs::{FileType, Stat, makedev, stat};
use std::fmt;
use std::path::{Path, PathBuf};

/// A file or a device, whatever its names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Identity {
    /// A block device, by its number.
    Block(u64),
    /// A file, by file system and inode.
    File(u64, u64),
}

impl Identity {
    pub(crate) fn of(stat: &Stat) -> Identity {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => Identity::Block(stat.st_rdev),
            _ => Identity::File(stat.st_dev, stat.st_ino),
        }
    }

    pub(crate) fn at(path: &Path) -> Option<Identity> {
        stat(path).ok().map(|stat| Identity::of(&stat))
    }
}

/// The folder of a block device in /sys.
pub(crate) fn sys_block(device: u64) -> PathBuf {
    format!("/sys/dev/block/{}:{}", rustix::fs::major(device), rustix::fs::minor(device)).into()
}

/// The number in a `dev` file of /sys.
pub(crate) fn device_number(folder: &Path) -> Option<u64> {
    let text = std::fs::read_to_string(folder.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// A process that uses a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub pid: u32,
    /// Its program, of this one with the sub-command.
    pub command: String,
}

impl Process {
    /// The process of a number.
    pub fn of(pid: u32) -> Process {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|b| *b == 0).map(String::from_utf8_lossy);
        let first = words.next().unwrap_or_default();
        let mut command = first.rsplit('/').next().unwrap_or_default().to_owned();
        if command.is_empty() {
            // A process that is ending has no arguments any more.
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim_end().clone_into(&mut command);
        }
        if command == "medfs"
            && let Some(word) = words.next().filter(|word| !word.is_empty() && !word.starts_with('-'))
        {
            command = format!("medfs {word}");
        }
        Process { pid, command }
    }

    /// The process of a number, where that is the daemon of a mount.
    pub fn daemon(pid: u32) -> Option<Process> {
        Some(Process::of(pid)).filter(Process::mounts)
    }

    fn is_medfs(&self) -> bool {
        self.command.starts_with("medfs") || self.command.ends_with(".medfs")
    }

    /// Whether it is there to mount, and so holds a device that is not mounted for a moment only.
    pub fn mounts(&self) -> bool {
        ["medfs mount", "mount.medfs", "mount.fuse.medfs"].contains(&&*self.command)
    }

    /// Whether it has ended but for what is left to the kernel, or is killed.
    pub fn is_dying(&self) -> bool {
        const KILL: u64 = 1 << 8;
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).unwrap_or_default();
        let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        let killed = ["SigPnd:", "ShdPnd:"]
            .iter()
            .filter_map(|name| u64::from_str_radix(field(name)?, 16).ok())
            .any(|pending| pending & KILL != 0);
        killed || field("State:").is_none_or(|state| state.starts_with(['Z', 'X']))
    }
}

/// The users of a device, as far as this process may see.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Holder {
    /// The process that has claimed it.
    pub process: Option<Process>,
    /// The mount, if it is mounted.
    pub mount: Option<MountEntry>,
    /// The device that is made of it (device mapper, RAID).
    layer: Option<String>,
}

impl Holder {
    /// Finds the users of the file or device at `path`.
    pub fn of(path: &Path) -> Holder {
        let Ok(stat) = stat(path) else { return Holder::default() };
        let identity = Identity::of(&stat);
        let process = process(identity, &stat);
        let mount = mounted(identity, None).or_else(|| mounted_by(identity, process.as_ref()?));
        let layer = match identity {
            Identity::Block(device) => first_name(&sys_block(device).join("holders")),
            Identity::File(..) => None,
        };
        Holder { process, mount, layer }
    }

    /// Whether it will let go by itself soon: it has been unmounted, or killed, or was gone when it was
    /// looked for. One that is about to mount looks the same until it has.
    pub fn is_ending(&self) -> bool {
        match &self.process {
            Some(process) if process.pid == std::process::id() => false,
            Some(process) => process.is_dying() || (self.mount.is_none() && process.mounts()),
            None => self.mount.is_none() && self.layer.is_none(),
        }
    }
}

impl fmt::Display for Holder {
    /// Follows "X is in use".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder { mount: Some(mount), process, .. } => {
                write!(f, ": it is mounted on {}", mount.on.display())?;
                if let Some(Process { pid, command }) = process {
                    write!(f, " by {command} (process {pid})")?;
                }
                let command = if mount.is_medfs() { "medfs umount" } else { "umount" };
                let command = quote::hint(format_args!("{command} {}", quote::path(&mount.on)));
                write!(f, ", unmount it with {command}")
            }
            Holder { process: Some(process), .. } if process.pid == std::process::id() => {
                f.write_str(" by this process")
            }
            Holder { process: Some(Process { pid, command }), .. } => {
                write!(f, " by {command} (process {pid}), which must end first")
            }
            Holder { layer: Some(layer), .. } => write!(f, ": {layer} is built on it"),
            Holder { .. } => f.write_str(" by another program"),
        }
    }
}

/// The process that has claimed a file or device, ours before others, and this one only where there is no other.
fn process(identity: Identity, stat: &Stat) -> Option<Process> {
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let mut pids = lock_holders(&locks, stat);
    if pids.is_empty() {
        pids = processes_with(identity);
    }
    let found = pids.into_iter().map(Process::of);
    found.min_by_key(|process| (process.pid == std::process::id(), !process.is_medfs()))
}

/// The processes that hold a lock (flock) on a file.
fn lock_holders(locks: &str, file: &Stat) -> Vec<u32> {
    let (major, minor) = (rustix::fs::major(file.st_dev), rustix::fs::minor(file.st_dev));
    let file = format!("{major:02x}:{minor:02x}:{}", file.st_ino);
    let of_file = locks.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let of_file = of_file.filter(|fields| fields.get(1) == Some(&"FLOCK") && fields.get(5) == Some(&&*file));
    of_file.filter_map(|fields| fields[4].parse().ok()).collect()
}

/// The processes that have a device open, or a file locked; only those into which this process may look.
fn processes_with(identity: Identity) -> Vec<u32> {
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    // To have a device open is not to have claimed it, as this process knows of itself.
    let counts = |pid: &u32| matches!(identity, Identity::File(..)) || *pid != std::process::id();
    pids.filter(|pid| counts(pid) && has_claimed(*pid, identity)).collect()
}

/// Whether a process has a device open, or a file locked. A file is asked for its identity only where it may
/// be the one: one that is on a mount whose daemon is gone would never answer.
fn has_claimed(pid: u32, identity: Identity) -> bool {
    let Ok(files) = std::fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
    let may_be = |file: &std::fs::DirEntry| match identity {
        Identity::Block(_) => std::fs::read_link(file.path()).is_ok_and(|path| path.starts_with("/dev")),
        Identity::File(_, inode) => is_locked(pid, &file.file_name(), inode),
    };
    files.flatten().any(|file| may_be(&file) && Identity::at(&file.path()) == Some(identity))
}

/// Whether a file that a process has open is locked and has an inode's number.
fn is_locked(pid: u32, fd: &std::ffi::OsStr, inode: u64) -> bool {
    let info =
        std::fs::read_to_string(Path::new(&format!("/proc/{pid}/fdinfo")).join(fd)).unwrap_or_default();
    let end = format!(":{inode}");
    let locks = info.lines().filter(|line| line.starts_with("lock:") && line.contains("FLOCK"));
    locks.flat_map(str::split_whitespace).any(|field| field.ends_with(&end))
}

/// Where a file or device is mounted, as a process sees it. A later mount hides an earlier one.
fn mounted(identity: Identity, seen_by: Option<u32>) -> Option<MountEntry> {
    let mounts = mounts(seen_by).ok()?;
    let devices = match identity {
        Identity::Block(device) => with_parts(device),
        Identity::File(..) => Vec::new(),
    };
    let is_it = |entry: &MountEntry| {
        let (major, minor) = entry.device;
        match identity {
            Identity::Block(_) if major != 0 => devices.contains(&makedev(major, minor)),
            // Such as btrfs, whose mounts have numbers of their own.
            Identity::Block(_) => {
                entry.source.starts_with("/dev")
                    && {
                        matches!(Identity::at(&entry.source), Some(Identity::Block(device)) if devices.contains(&device))
                    }
            }
            Identity::File(..) => entry.is_medfs() && Identity::at(entry.device_path()) == Some(identity),
        }
    };
    mounts.into_iter().rev().find(is_it)
}

/// Where a process that has a device has mounted it, be it by another name.
fn mounted_by(identity: Identity, process: &Process) -> Option<MountEntry> {
    if let Some(mount) = mounted(identity, Some(process.pid)) {
        return Some(mount);
    }
    if !process.mounts() {
        return None;
    }
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    let serves = |entry: &MountEntry| {
        let Ok(stat) = stat(entry.device_path()) else { return false };
        lock_holders(&locks, &stat).contains(&process.pid) || has_claimed(process.pid, Identity::of(&stat))
    };
    mounts(None).ok()?.into_iter().rev().find(|entry| entry.is_medfs() && serves(entry))
}

/// A process that sees a mount of ours by its device's numbers, in a mount namespace that is not this
/// process's, and what it sees.
pub fn in_other_namespace(device: (u32, u32)) -> Option<(Process, MountEntry)> {
    let namespace = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/mnt")).ok();
    let ours = namespace("self")?;
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let names = processes.filter_map(|entry| entry.file_name().into_string().ok());
    let mut seen = vec![ours];
    for (name, pid) in names.filter_map(|name| name.parse().ok().map(|pid: u32| (name, pid))) {
        let Some(theirs) = namespace(&name).filter(|theirs| !seen.contains(theirs)) else { continue };
        seen.push(theirs);
        let mut entries = mounts(Some(pid)).unwrap_or_default().into_iter();
        if let Some(entry) = entries.find(|entry| entry.is_medfs() && entry.device == device) {
            return Some((Process::of(pid), entry));
        }
    }
    None
}

/// A device with its partitions, or with the disk that it is a partition of.
fn with_parts(device: u64) -> Vec<u64> {
    let folder = sys_block(device);
    let mut devices = vec![device];
    if folder.join("partition").exists() {
        devices.extend(device_number(&folder.join("..")));
    } else if let Ok(entries) = std::fs::read_dir(&folder) {
        let parts =
            entries.flatten().map(|entry| entry.path()).filter(|path| path.join("partition").exists());
        devices.extend(parts.filter_map(|part| device_number(&part)));
    }
    devices
}

fn first_name(folder: &Path) -> Option<String> {
    let entry = std::fs::read_dir(folder).ok()?.flatten().next()?;
    Some(entry.file_name().to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FlockOperation, flock};
    use std::process::Command;
    use std::time::Duration;

    #[test]
    fn a_process_with_a_lock_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert_eq!(Holder::of(file.path()), Holder::default());
        assert!(Holder::default().is_ending(), "gone by now");
        let mut other =
            Command::new("flock").arg("-F").arg(file.path()).args(["sleep", "60"]).spawn().unwrap();
        let is_named = || Holder::of(file.path()).process.is_some_and(|process| process.command == "sleep");
        while !is_named() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let holder = Holder::of(file.path());
        assert!(!holder.is_ending());
        let text = format!("X is in use{holder}");
        assert_eq!(text, format!("X is in use by sleep (process {}), which must end first", other.id()));
        other.kill().unwrap();
        other.wait().unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        let holder = Holder::of(file.path());
        assert_eq!((holder.to_string(), holder.is_ending()), (" by this process".into(), false));
    }

    #[test]
    fn a_process_that_has_ended_is_dying() {
        assert!(!Process::of(std::process::id()).is_dying());
        let mut child = Command::new("true").spawn().unwrap();
        let process = Process::of(child.id());
        while !process.is_dying() {
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait().unwrap();
    }

    #[test]
    fn a_mount_is_named_with_the_way_to_end_it() {
        let mount = |kind: &str| Holder {
            process: Some(Process { pid: 7, command: "medfs mount".into() }),
            mount: Some(MountEntry {
                on: "/mnt".into(),
                kind: kind.into(),
                source: "/dev/loop0".into(),
                device: (7, 0),
                read_only: false,
                owner: None,
            }),
            layer: None,
        };
        let text = mount("fuseblk.medfs").to_string();
        assert_eq!(
            text,
            ": it is mounted on /mnt by medfs mount (process 7), unmount it with 'medfs umount /mnt'"
        );
        assert!(mount("ext4").to_string().ends_with("'umount /mnt'"));
    }
}
