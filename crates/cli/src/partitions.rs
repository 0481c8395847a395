//! The partitions of a disk that the kernel has made devices of, and where a device begins on its disk, as /sys shows
//! them.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Bytes of a sector in /sys, whatever the disk's are.
const SECTOR: u64 = 512;

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Partition {
    /// The byte of the disk at which it begins.
    pub(crate) start: u64,
    /// Such as `/dev/sdb2`.
    pub(crate) device: PathBuf,
}

/// The partitions of a disk, in their order on it; none of what is no disk.
pub(crate) fn of(disk: &Path) -> Vec<Partition> {
    folder_of(disk).map_or_else(Vec::new, |folder| shown(&folder))
}

/// The byte at which a device begins: a partition on its disk, a loop device in its image; 0 of all else.
pub(crate) fn start_of(device: &Path) -> u64 {
    folder_of(device).map_or(0, |folder| shown_start(&folder))
}

/// The directory of /sys that shows a device.
fn folder_of(device: &Path) -> Option<PathBuf> {
    let meta = device.metadata().ok().filter(|meta| meta.file_type().is_block_device())?;
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    Some(format!("/sys/dev/block/{major}:{minor}").into())
}

/// Where a device begins that a directory of /sys shows. A partition of a loop device begins behind what that leaves
/// out of its image.
fn shown_start(device: &Path) -> u64 {
    let number = |name: &str| std::fs::read_to_string(device.join(name)).ok()?.trim().parse::<u64>().ok();
    match device.join("partition").exists() {
        true => {
            let before = number("../loop/offset").unwrap_or(0);
            number("start").unwrap_or(0).saturating_mul(SECTOR).saturating_add(before)
        }
        false => number("loop/offset").unwrap_or(0),
    }
}

/// Those that a directory of /sys shows.
fn shown(disk: &Path) -> Vec<Partition> {
    let entries = std::fs::read_dir(disk).into_iter().flatten().flatten();
    let part = |entry: std::fs::DirEntry| {
        let start = std::fs::read_to_string(entry.path().join("start")).ok()?;
        let device =
            entry.path().join("partition").exists().then(|| Path::new("/dev").join(entry.file_name()))?;
        Some(Partition { start: start.trim().parse::<u64>().ok()?.checked_mul(SECTOR)?, device })
    };
    let mut all: Vec<Partition> = entries.filter_map(part).collect();
    all.sort_by_key(|partition| partition.start);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_named_by_where_they_begin() {
        let sys = tempfile::tempdir().unwrap();
        for (name, start) in [("sdb2", "526336\n"), ("sdb1", "8192\n"), ("queue", "1\n")] {
            let folder = sys.path().join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("start"), start).unwrap();
            if name != "queue" {
                std::fs::write(folder.join("partition"), "1\n").unwrap();
            }
        }
        let part = |start: u64, device: &str| Partition { start: start * SECTOR, device: device.into() };
        assert_eq!(shown(sys.path()), [part(8192, "/dev/sdb1"), part(526_336, "/dev/sdb2")]);
        assert!(of(sys.path()).is_empty() && shown(Path::new("/none")).is_empty());
    }

    #[test]
    fn a_device_begins_somewhere_on_its_disk() {
        let sys = tempfile::tempdir().unwrap();
        let disk = sys.path().join("loop0");
        let part = disk.join("loop0p1");
        std::fs::create_dir_all(&part).unwrap();
        std::fs::write(part.join("partition"), "1\n").unwrap();
        std::fs::write(part.join("start"), "8192\n").unwrap();
        assert_eq!((shown_start(&disk), shown_start(&part)), (0, 4 << 20));
        std::fs::create_dir(disk.join("loop")).unwrap();
        std::fs::write(disk.join("loop/offset"), "1536\n").unwrap();
        assert_eq!((shown_start(&disk), shown_start(&part)), (1536, (4 << 20) + 1536));
        assert_eq!((start_of(&disk), shown_start(Path::new("/none"))), (0, 0));
    }
}
