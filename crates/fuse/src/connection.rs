//! A connection seen from outside its requests: where it is mounted, whether it has ended, and how to end it.

use crate::error::{Error, Result};
use medfs_device::mounts::{MountEntry, mounts};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags};
use std::fs::File;
use std::io;
use std::path::Path;

/// Where fusectl is mounted, if it is.
const FUSECTL: &str = "/sys/fs/fuse/connections";

/// Whether the kernel has given the connection up: unmounted, or aborted.
pub(crate) fn has_ended(device: &File) -> bool {
    let mut polled = [PollFd::new(device, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().contains(PollFlags::ERR)
}

/// The medfs volume mounted on a directory (an absolute path without symbolic links); asks no file system.
pub fn find_mount(dir: &Path) -> Result<Option<MountEntry>> {
    let mounts = mounts(None).map_err(Error::io("reading the list of mounts"))?;
    // A later mount hides an earlier one.
    Ok(mounts.into_iter().rev().find(|entry| entry.is_medfs() && entry.on == dir))
}

/// The kernel's number of a mount's connection, under which fusectl shows it.
fn number(mount: &MountEntry) -> u32 {
    // The kernel's own encoding of device numbers.
    let (major, minor) = mount.device;
    major.wrapping_shl(20) | minor
}

/// A file that ends the connection when anything is written to it: every request under way fails, and from then on the
/// mount is not connected. Once the connection is gone, writing does nothing.
pub fn abort_file(mount: &MountEntry) -> Result<File> {
    let name = format!("{}/abort", number(mount));
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
    fn numbers_of_connections() {
        let entry = |device| {
            let (on, kind, source) = ("/m".into(), "fuse.medfs".into(), "x".into());
            MountEntry { on, kind, source, device, read_only: false, owner: None }
        };
        assert_eq!(number(&entry((0, 61))), 61);
        assert_eq!(number(&entry((7, 2))), (7 << 20) | 2);
    }
}
