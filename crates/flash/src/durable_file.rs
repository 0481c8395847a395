//! The file behind a device: bytes at places, and when they are safe from the machine's end.
//!
//! [`Disk`] is a file, or, in tests, one that loses what was not synced. [`Slots`] keep one thing in two
//! places in turn, so that the last whole version is found whenever writing is cut short.

use std::fs::File;
use std::io;

/// A file.
pub(crate) trait Disk: Send {
    /// Writes all of `bytes` at `at`.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Fills `bytes` from `at`.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;
    /// Returns when everything written survives the end of the machine.
    fn sync(&self) -> io::Result<()>;
}

impl Disk for File {
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(self, bytes, at)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Bytes before the content of a slot: generation 8, length 4, CRC-32 of these twelve and of the content 4.
pub const HEAD: usize = 16;

/// Two slots of an area, written in turn. Generation 0 was never written.
#[derive(Debug)]
pub(crate) struct Slots {
    at: u64,
    bytes: u64,
    /// Generation of the last whole version, once it is known.
    last: Option<u64>,
}

/// What an area holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It was never written.
    Nothing,
    /// The last whole version.
    Whole(Vec<u8>),
    /// Something, and no slot of it is whole.
    Damaged,
}

impl Slots {
    pub(crate) fn new(at: u64, bytes: u64) -> Slots {
        Slots { at, bytes: bytes / 2, last: None }
    }

    /// The last whole version.
    pub(crate) fn read(&mut self, disk: &impl Disk) -> io::Result<Kept> {
        let slots = [self.slot(disk, 0)?, self.slot(disk, 1)?];
        let blank = slots.iter().all(|slot| matches!(slot, Ok((0, _))));
        let whole = slots.into_iter().filter_map(Result::ok).filter(|(generation, _)| *generation > 0);
        let newest = whole.max_by_key(|(generation, _)| *generation);
        self.last = Some(newest.as_ref().map_or(0, |(generation, _)| *generation));
        Ok(match newest {
            Some((_, bytes)) => Kept::Whole(bytes),
            None if blank => Kept::Nothing,
            None => Kept::Damaged,
        })
    }

    /// Keeps `content` in place of the version before the last.
    pub(crate) fn write(&mut self, disk: &impl Disk, content: &[u8]) -> io::Result<()> {
        if (content.len() + HEAD) as u64 > self.bytes {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if self.last.is_none() {
            self.read(disk)?;
        }
        let generation = self.last.unwrap_or(0) + 1;
        let mut bytes = generation.to_le_bytes().to_vec();
        bytes.extend((content.len() as u32).to_le_bytes());
        bytes.extend(checksum(&bytes, content).to_le_bytes());
        bytes.extend_from_slice(content);
        disk.write_at(&bytes, self.at + (generation & 1) * self.bytes)?;
        self.last = Some(generation);
        Ok(())
    }

    /// Generation and content of a slot; `Err(())` where it is damaged.
    fn slot(&self, disk: &impl Disk, slot: u64) -> io::Result<Result<(u64, Vec<u8>), ()>> {
        let at = self.at + slot * self.bytes;
        let mut head = [0; HEAD];
        disk.read_at(&mut head, at)?;
        if head == [0; HEAD] {
            return Ok(Ok((0, Vec::new())));
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let generation = u64::from(number(0)) | u64::from(number(4)) << 32;
        if u64::from(number(8)) > self.bytes - HEAD as u64 {
            return Ok(Err(()));
        }
        let mut content = vec![0; number(8) as usize];
        disk.read_at(&mut content, at + HEAD as u64)?;
        let whole = checksum(&head[..12], &content) == number(12);
        Ok(if whole { Ok((generation, content)) } else { Err(()) })
    }
}

fn checksum(head: &[u8], content: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(content);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_version_is_found_wherever_writing_is_cut_short() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(4096).unwrap();
        let slots = || Slots::new(1024, 512);
        assert_eq!(slots().read(&file).unwrap(), Kept::Nothing);
        slots().write(&file, b"one").unwrap();
        slots().write(&file, b"two two").unwrap();
        assert_eq!(slots().read(&file).unwrap(), Kept::Whole(b"two two".to_vec()));
        let mut before = [0; 512];
        file.read_at(&mut before, 1024).unwrap();
        slots().write(&file, b"three").unwrap();
        let mut after = [0; 512];
        file.read_at(&mut after, 1024).unwrap();
        let (first, last) =
            (0..512).filter(|i| before[*i] != after[*i]).fold((512, 0), |(a, b), i| (a.min(i), b.max(i)));
        for cut in first..last {
            file.write_at(&before, 1024).unwrap();
            file.write_at(&after[..cut], 1024).unwrap();
            assert_eq!(slots().read(&file).unwrap(), Kept::Whole(b"two two".to_vec()), "cut at {cut}");
        }
        file.write_at(&after, 1024).unwrap();
        assert_eq!(slots().read(&file).unwrap(), Kept::Whole(b"three".to_vec()));
        file.write_at(&[7; 512], 1024).unwrap();
        assert_eq!(slots().read(&file).unwrap(), Kept::Damaged);
        assert!(slots().write(&file, &[0; 256]).is_err(), "too long");
    }
}
