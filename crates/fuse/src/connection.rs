//! A connection seen from outside its requests: where it is mounted, whether it has ended, and how to end it.

use crate::error::{Error, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Where fusectl is mounted, if it is.
const FUSECTL: &str = "/sys/fs/fuse/connections";

/// Whether the kernel has given the connection up: unmounted, or aborted.
pub(crate) fn has_ended(device: &File) -> bool {
    let mut polled = [PollFd::new(device, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

/// A medfs volume in this process's list of mounts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountEntry {
    /// The image or device.
    pub source: PathBuf,
    /// The kernel's number of the connection, under which fusectl shows it.
    pub connection: u32,
}

/// The medfs volume mounted on a directory (an absolute path without symbolic links); asks no file system.
pub fn find_mount(dir: &Path) -> Result<Option<MountEntry>> {
    let mounts =
        std::fs::read_to_string("/proc/self/mountinfo").map_err(Error::io("reading the list of mounts"))?;
    // A later mount hides an earlier one.
    Ok(mounts.lines().rev().find_map(|line| {
        let (on, entry) = parse_mount(line)?;
        (on == dir).then_some(entry)
    }))
}

/// The mount point and entry of a line of mountinfo, where it is one of ours.
fn parse_mount(line: &str) -> Option<(PathBuf, MountEntry)> {
    let (place, what) = line.split_once(" - ")?;
    let mut place = place.split(' ').skip(2);
    let (device, on) = (place.next()?, place.nth(1)?);
    let mut what = what.split(' ');
    let (kind, source) = (what.next()?, what.next()?);
    let (major, minor) = device.split_once(':')?;
    // The kernel's own encoding of device numbers.
    let connection = major.parse::<u32>().ok()?.checked_shl(20)? | minor.parse::<u32>().ok()?;
    let entry = MountEntry { source: unescape(source).into(), connection };
    kind.ends_with(".medfs").then(|| (unescape(on).into(), entry))
}

/// Undoes the octal escapes of the list of mounts.
fn unescape(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(field.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

/// A file that ends the connection when anything is written to it: every request under way fails, and from then on the
/// mount is not connected. Once the connection is gone, writing does nothing.
pub fn abort_file(connection: u32) -> Result<File> {
    let name = format!("{connection}/abort");
    let open = File::options().write(true).open(Path::new(FUSECTL).join(&name));
    let opened = match open {
        Err(error) if error.kind() == io::ErrorKind::NotFound => own_fusectl(&name).map_err(io::Error::from),
        other => other,
    };
    opened.map_err(Error::io("opening the connection's abort file (fusectl)"))
}

/// A file of a fusectl that is mounted nowhere but here, for where the system has not mounted it. Needs root.
fn own_fusectl(name: &str) -> rustix::io::Result<File> {
    let context = rustix::mount::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    rustix::mount::fsconfig_create(&context)?;
    let root = rustix::mount::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    rustix::fs::openat(root, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map(File::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_mountinfo() {
        let line =
            "45 28 0:61 / /mnt/with\\040space rw,relatime shared:1 - fuse.medfs /a\\134b.img rw,user_id=0";
        let entry = MountEntry { source: "/a\\b.img".into(), connection: 61 };
        assert_eq!(parse_mount(line), Some(("/mnt/with space".into(), entry)));
        let line = "45 28 7:2 / /mnt rw - fuseblk.medfs /dev/loop2 rw";
        assert_eq!(parse_mount(line).unwrap().1.connection, (7 << 20) | 2);
        assert_eq!(parse_mount("45 28 7:2 / /mnt rw - ext4 /dev/loop2 rw"), None);
        assert_eq!(parse_mount("cut short"), None);
    }
}
