//! Whether our mount is read-only at the moment: a remount is between `mount(8)` and the kernel, which does
//! not tell the daemon.
//!
//! Invariant: the list of mounts is read where it has changed, which the kernel says of the open file, and
//! not otherwise.

use crate::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// How the mount is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Now {
    Writable,
    /// Since this was asked for the first time.
    BecameReadOnly,
    ReadOnly,
}

/// Watches the list of mounts.
pub(crate) struct Remounts {
    list: File,
    mountpoint: PathBuf,
    read: bool,
    read_only: bool,
}

impl Remounts {
    /// Must be made before the mount: the way to its directory leads through it afterwards.
    pub(crate) fn new(mountpoint: &Path, read_only: bool) -> Result<Remounts> {
        let list = File::open("/proc/self/mountinfo").map_err(Error::io("opening the list of mounts"))?;
        let mountpoint = mountpoint.canonicalize().unwrap_or_else(|_| mountpoint.to_owned());
        Ok(Remounts { list, mountpoint, read: false, read_only })
    }

    /// How the mount is now.
    pub(crate) fn now(&mut self) -> Now {
        let before = self.read_only;
        match (self.is_read_only(), before) {
            (false, _) => Now::Writable,
            (true, false) => Now::BecameReadOnly,
            (true, true) => Now::ReadOnly,
        }
    }

    /// Whether the mount is read-only, as it was last where that cannot be told.
    fn is_read_only(&mut self) -> bool {
        let mut changed = [PollFd::new(&self.list, PollFlags::PRI)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        if self.read && !poll(&mut changed, Some(&at_once)).is_ok_and(|ready| ready > 0) {
            return self.read_only;
        }
        let mut text = Vec::new();
        if self.list.rewind().and_then(|()| self.list.read_to_end(&mut text)).is_ok() {
            self.read = true;
            self.read_only =
                is_read_only(&text, self.mountpoint.as_os_str().as_bytes()).unwrap_or(self.read_only);
        }
        self.read_only
    }
}

/// What a list of mounts says of the file system that is uppermost on a directory.
fn is_read_only(list: &[u8], mountpoint: &[u8]) -> Option<bool> {
    let lines = list.split(|&b| b == b'\n').rev();
    let words = lines.map(|line| line.split(|&b| b == b' ').collect::<Vec<_>>());
    let mut ours = words.filter(|words| words.get(4).is_some_and(|path| unescaped(path) == mountpoint));
    let options = *ours.next()?.last()?;
    Some(options.split(|&b| b == b',').any(|option| option == b"ro"))
}

/// A path without the octal numbers that stand for white space and backslashes.
fn unescaped(path: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, behind @ ..] = rest {
        let digits = behind.get(..3).filter(|_| *first == b'\\').and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                plain.push(byte);
                rest = &behind[3..];
            }
            None => {
                plain.push(*first);
                rest = behind;
            }
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_uppermost_mount_of_a_directory_counts() {
        let list = b"20 1 0:20 / /mnt rw,relatime - ext4 /dev/a ro,seclabel\n\
            21 20 0:21 / /mnt\\040b\\134 ro,relatime shared:1 - fuse.medfs image rw,user_id=0\n\
            22 20 0:22 / /mnt rw,relatime - fuse.medfs image rw,user_id=0\n";
        assert_eq!(is_read_only(list, b"/mnt"), Some(false));
        assert_eq!(is_read_only(list, b"/mnt b\\"), Some(false), "a mount of it that is read-only");
        assert_eq!(is_read_only(&list[..70], b"/mnt"), Some(true));
        assert_eq!(is_read_only(list, b"/none"), None);
    }
}
