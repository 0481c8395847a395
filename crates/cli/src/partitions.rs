//! The partitions of a disk that the kernel has made devices of, as /sys shows them.

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
    let Some(meta) = disk.metadata().ok().filter(|meta| meta.file_type().is_block_device()) else {
        return Vec::new();
    };
    let (major, minor) = (rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    shown(Path::new(&format!("/sys/dev/block/{major}:{minor}")))
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
}
