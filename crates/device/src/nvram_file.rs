//! A file, or a block device, on another disk as non-volatile memory: a small drive whose cache survives, or
//! a disk that is fast to flush.
//!
//! Every write goes through to the disk (O_DSYNC) in whole sectors; a fence has nothing left to do. So it
//! costs what such a write does, and what survives power loss is what the disk says is durable.
//! Invariants: it is claimed ([`crate::claim`]) until it is dropped. It is no file of a file system that
//! lives in memory. Locks: none.

use crate::nvram::range_of;
use crate::{Claim, Nvram, Share};
use rustix::fs::{FileType, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// `f_type` of file systems that forget everything with the power, and their names.
const VOLATILE: [(i64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];
/// Bytes of a sector of a file's disk.
const SECTOR: u64 = 512;

/// A part of a file or block device. See the module.
#[derive(Debug)]
pub struct FileNvram {
    file: File,
    _claim: Claim,
    path: PathBuf,
    offset: u64,
    size: u64,
    sector: u64,
}

impl FileNvram {
    /// Opens `size` bytes from `offset` on, or all behind it. `read_only`: nothing will be written.
    pub fn open(path: &Path, offset: u64, size: Option<u64>, read_only: bool) -> io::Result<FileNvram> {
        let refuse = |what: String| {
            Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", path.display())))
        };
        let explain = |e: rustix::io::Errno| {
            let e = io::Error::from(e);
            io::Error::new(e.kind(), format!("{}: {e}", path.display()))
        };
        let access = if read_only { OFlags::RDONLY } else { OFlags::RDWR | OFlags::DSYNC };
        let fd = rustix::fs::open(path, OFlags::CLOEXEC | OFlags::NONBLOCK | access, Mode::empty())
            .map_err(explain)?;
        let stat = rustix::fs::fstat(&fd).map_err(explain)?;
        let (whole, sector) = match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let kind = rustix::fs::fstatfs(&fd).map_err(explain)?.f_type as i64;
                if let Some((_, name)) = VOLATILE.iter().find(|(magic, _)| *magic == kind) {
                    return refuse(format!("files on {name} do not survive a power cut"));
                }
                (stat.st_size as u64, SECTOR)
            }
            FileType::BlockDevice => {
                let end = rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0)).map_err(explain)?;
                // What the disk writes as a whole, where it tells.
                let sector = rustix::fs::ioctl_blksszget(&fd).map_err(explain)?;
                let physical = rustix::fs::ioctl_blkpbszget(&fd).unwrap_or(sector);
                (end, u64::from(sector.max(physical).min(4096)).max(SECTOR))
            }
            _ => return refuse("neither a file nor a block device".into()),
        };
        let share = if read_only { Share::Readers } else { Share::Nobody };
        let claim = Claim::take(path, &fd, share, Duration::ZERO)?;
        if !offset.is_multiple_of(sector) {
            return refuse(format!("the offset {offset} is not a multiple of {sector} bytes"));
        }
        let Some(behind) = whole.checked_sub(offset) else {
            return refuse(format!("has {whole} bytes, and none at {offset}"));
        };
        let size = size.unwrap_or(behind);
        if size > behind {
            return refuse(format!("has {behind} bytes from {offset} on, and not {size}"));
        }
        let size = size / sector * sector;
        Ok(FileNvram { file: fd.into(), _claim: claim, path: path.to_owned(), offset, size, sector })
    }
}

impl Nvram for FileNvram {
    fn size(&self) -> u64 {
        self.size
    }
    fn unit(&self) -> u64 {
        self.sector
    }
    fn read(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        range_of(self.size, offset, bytes.len() as u64)?;
        self.file.read_exact_at(bytes, self.offset + offset)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = range_of(self.size, offset, bytes.len() as u64)?;
        let start = offset / self.sector * self.sector;
        let end = (range.end as u64).next_multiple_of(self.sector);
        if start == offset && end == range.end as u64 {
            return self.file.write_all_at(bytes, self.offset + offset);
        }
        let mut sectors = vec![0; (end - start) as usize];
        if start != offset {
            self.file.read_exact_at(&mut sectors[..self.sector as usize], self.offset + start)?;
        }
        let last = end - self.sector;
        if end != range.end as u64 && (last != start || start == offset) {
            let at = (last - start) as usize;
            self.file.read_exact_at(&mut sectors[at..], self.offset + last)?;
        }
        let at = (offset - start) as usize;
        sectors[at..at + bytes.len()].copy_from_slice(bytes);
        self.file.write_all_at(&sectors, self.offset + start)
    }
    /// What was written went through.
    fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        range_of(self.size, offset, len).map(drop)
    }
    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: u64) -> (tempfile::TempDir, PathBuf) {
        // Not in /tmp, which may be a tmpfs.
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = dir.path().join("nvram");
        File::create(&path).unwrap().set_len(bytes).unwrap();
        (dir, path)
    }

    #[test]
    fn parts_of_sectors_are_written_and_the_rest_stays() {
        let (_dir, path) = file(8192);
        let nvram = FileNvram::open(&path, 512, Some(4096), false).unwrap();
        assert_eq!((nvram.size(), nvram.unit()), (4096, 512));
        let mut expected = vec![0u8; 4096];
        for (at, len, byte) in
            [(0, 4096, 1), (10, 20, 2), (500, 30, 3), (512, 100, 4), (1000, 24, 5), (3, 2000, 6)]
        {
            nvram.write(at, &vec![byte; len]).unwrap();
            nvram.persist(at, len as u64).unwrap();
            expected[at as usize..at as usize + len].fill(byte);
            let mut read = vec![0; 4096];
            nvram.read(0, &mut read).unwrap();
            assert_eq!(read, expected);
        }
        assert!(nvram.write(4090, &[0; 7]).is_err());
        drop(nvram);
        let bytes = std::fs::read(&path).unwrap();
        assert!(bytes[..512].iter().chain(&bytes[4608..]).all(|&byte| byte == 0));
    }

    #[test]
    fn what_cannot_serve_is_refused_by_name() {
        let (dir, path) = file(8192);
        let refused =
            |path: &Path, offset, size| FileNvram::open(path, offset, size, false).unwrap_err().to_string();
        assert!(refused(&path, 100, None).contains("is not a multiple of 512"));
        assert!(refused(&path, 16_384, None).contains("none at 16384"));
        assert!(refused(&path, 4096, Some(8192)).contains("and not 8192"));
        assert!(!refused(dir.path(), 0, None).is_empty());
        let _first = FileNvram::open(&path, 0, None, false).unwrap();
        assert!(!refused(&path, 0, None).is_empty(), "in use");
        if let Ok(dir) = tempfile::tempdir_in("/dev/shm") {
            let path = dir.path().join("nvram");
            std::fs::write(&path, [0; 8192]).unwrap();
            assert!(refused(&path, 0, None).contains("tmpfs"));
        }
    }
}
