//! A file, a block device, or a memory device of bytes on a bus as non-volatile memory: a small drive whose cache
//! survives, a disk that is fast to flush, FRAM.
//!
//! Every write goes through to it (O_DSYNC) in whole sectors; a fence has nothing left to do. So it
//! costs what such a write does, and what survives power loss is what the device says is durable.
//! Invariants: it is claimed ([`crate::claim`]) until it is dropped. Locks: none.

use super::open::Opened;
use super::{Nvram, range_of};
use std::io;
use std::os::unix::fs::FileExt;

/// A part of a file or device that is written through. See the module.
#[derive(Debug)]
pub(super) struct FileNvram {
    opened: Opened,
    offset: u64,
    size: u64,
    sector: u64,
}

impl FileNvram {
    /// `size` bytes from `offset` on of what is open, both of whole sectors.
    pub(super) fn of(opened: Opened, (offset, size): (u64, u64), sector: u64) -> FileNvram {
        FileNvram { opened, offset, size, sector }
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
        self.opened.file().read_exact_at(bytes, self.offset + offset)
    }
    fn write(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let range = range_of(self.size, offset, bytes.len() as u64)?;
        let start = offset / self.sector * self.sector;
        let end = (range.end as u64).next_multiple_of(self.sector);
        if start == offset && end == range.end as u64 {
            return self.opened.file().write_all_at(bytes, self.offset + offset);
        }
        let mut sectors = vec![0; (end - start) as usize];
        if start != offset {
            self.opened.file().read_exact_at(&mut sectors[..self.sector as usize], self.offset + start)?;
        }
        let last = end - self.sector;
        if end != range.end as u64 && (last != start || start == offset) {
            let at = (last - start) as usize;
            self.opened.file().read_exact_at(&mut sectors[at..], self.offset + last)?;
        }
        let at = (offset - start) as usize;
        sectors[at..at + bytes.len()].copy_from_slice(bytes);
        self.opened.file().write_all_at(&sectors, self.offset + start)
    }
    /// What was written went through.
    fn persist(&self, offset: u64, len: u64) -> io::Result<()> {
        range_of(self.size, offset, len).map(drop)
    }
    fn name(&self) -> String {
        self.opened.name()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{NvramAccess, open_nvram};
    use std::fs::File;
    use std::path::{Path, PathBuf};

    const WRITES: NvramAccess = NvramAccess { read_only: false, volatile: false };

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
        let nvram = open_nvram(&path, 512, Some(4096), WRITES).unwrap();
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
            |path: &Path, offset, size| open_nvram(path, offset, size, WRITES).err().unwrap().to_string();
        assert!(refused(&path, 100, None).contains("is not a multiple of 512"));
        assert!(refused(&path, 16_384, None).contains("none at 16384"));
        assert!(refused(&path, 4096, Some(8192)).contains("and not 8192"));
        assert!(!refused(dir.path(), 0, None).is_empty());
        let _first = open_nvram(&path, 0, None, WRITES).unwrap();
        assert!(!refused(&path, 0, None).is_empty(), "in use");
    }
}
