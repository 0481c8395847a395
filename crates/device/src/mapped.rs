//! A device that is spared: a block that could not be read is not read again.
//!
//! Every touch of a bad sector costs a dying card time, and perhaps its life. What is known to be bad, from a
//! map or from this run, fails at once. A map may be that of the whole disk of which the device is a part.
//!
//! Invariants: a block is called bad after it failed twice on its own; nothing of a device that is gone
//! altogether is. Nothing is written, but to a device that is to be repaired: what was written there can be read.
//! Lock: one around the map, a leaf; the I/O runs outside it.

use crate::mapfile::Mapfile;
use crate::{BlockDevice, WriteTag, is_bad_sector, read_block};
use medfs_format::{BLOCK_SIZE, Block};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Why a block counts as bad: not the device says so.
#[derive(Debug)]
enum BadByMap {
    /// It was not read.
    Unread,
    /// It was, and a part that ddrescue could not read is zeros: of an image nobody can tell these from its own.
    Zeros,
}

impl fmt::Display for BadByMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BadByMap::Unread => "the map calls this block bad, and it was not read",
            BadByMap::Zeros => "ddrescue's map calls this block bad, and zeros stand where it was not read",
        })
    }
}

impl std::error::Error for BadByMap {}

/// Whether a block was not read because the map that was given calls it bad.
pub fn is_bad_by_map(error: &io::Error) -> bool {
    why_bad(error).is_some_and(|why| matches!(why, BadByMap::Unread))
}

/// Whether a map says that a block is bad, whatever the device does.
pub(crate) fn is_in_map(error: &io::Error) -> bool {
    why_bad(error).is_some()
}

fn why_bad(error: &io::Error) -> Option<&BadByMap> {
    error.get_ref().and_then(|inner| inner.downcast_ref())
}

/// A device with a map of its bad blocks.
pub struct MappedDevice<D> {
    below: D,
    /// The byte of the map at which the device begins.
    start: u64,
    map: Mutex<Mapfile>,
    /// The map that was given.
    given: Mapfile,
    /// Whether blocks that are known to be bad are tried again, once.
    retry: bool,
    /// Whether it may be written.
    writes: bool,
    tried: Mutex<HashSet<u64>>,
    /// Of these: those that were read, and hold zeros for what the map calls bad.
    zeros: Mutex<HashSet<u64>>,
    /// What is bad has changed since the map was asked for.
    news: AtomicBool,
    /// Something has.
    changed: AtomicBool,
    read: AtomicU64,
}

/// Whether a part of a block that a map calls bad holds nothing but zeros. `at`: the bytes of the block in the map.
fn zeros_stand_for_bad(map: &Mapfile, at: Range<u64>, block: &Block) -> bool {
    let start = at.start;
    map.bad_parts(at).any(|part| {
        let part = (part.start - start) as usize..(part.end - start) as usize;
        block.0[part].iter().all(|&byte| byte == 0)
    })
}

impl<D: BlockDevice> MappedDevice<D> {
    /// Over a device; `retry`: what the map calls bad is tried once more.
    pub fn new(below: D, map: Mapfile, retry: bool) -> MappedDevice<D> {
        let (news, changed, read) = Default::default();
        let (given, map, tried, zeros) = (map.clone(), Mutex::new(map), Mutex::default(), Mutex::default());
        MappedDevice { below, start: 0, map, given, retry, writes: false, tried, zeros, news, changed, read }
    }

    /// The same over a device that is written to: a block that is bad is none any more once it was written.
    pub fn writable(below: D, map: Mapfile) -> MappedDevice<D> {
        MappedDevice { writes: true, ..MappedDevice::new(below, map, false) }
    }

    /// The same over a part of what the map is of, such as a partition of a disk: it begins at this byte of that.
    pub fn starting_at(self, start: u64) -> MappedDevice<D> {
        MappedDevice { start, ..self }
    }

    /// Where the map has blocks of the device.
    fn bytes(&self, addr: u64, count: u64) -> Range<u64> {
        let at = |addr: u64| addr.saturating_mul(BLOCK_SIZE as u64).saturating_add(self.start);
        at(addr)..at(addr.saturating_add(count))
    }

    /// The map as it is now.
    pub fn map(&self) -> Mapfile {
        self.map.lock().clone()
    }

    /// The map, where it has changed in what is bad since it was asked for last.
    pub fn new_map(&self) -> Option<Mapfile> {
        self.news.swap(false, Ordering::AcqRel).then(|| self.map())
    }

    /// The map, where it has changed at all, in what was read too.
    pub fn changed_map(&self) -> Option<Mapfile> {
        let news = self.news.swap(false, Ordering::AcqRel);
        (self.changed.swap(false, Ordering::AcqRel) || news).then(|| self.map())
    }

    /// Notes which volume the device has.
    pub fn set_volume(&self, volume: &str) {
        self.map.lock().set_volume(volume);
    }

    /// Notes that blocks were read, of which none was known to be bad.
    fn note_read(&self, addr: u64, count: u64) {
        let mut map = self.map.lock();
        if !map.is_foreign() {
            map.set_read(self.bytes(addr, count));
            self.changed.store(true, Ordering::Release);
        }
    }

    /// Bytes read from the device so far.
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes of the device that could not be read.
    pub fn bad_bytes(&self) -> u64 {
        self.map.lock().bad_bytes_in(self.bytes(0, self.below.block_count()))
    }

    /// Why blocks of which one is known to be bad are not read.
    fn spared(&self, mut blocks: Range<u64>) -> io::Error {
        // With a retry it was asked once more, in this run.
        match self.given.is_bad(self.bytes(blocks.start, blocks.end - blocks.start)) {
            true if !self.retry => io::Error::other(BadByMap::Unread),
            true if blocks.any(|addr| self.zeros.lock().contains(&addr)) => io::Error::other(BadByMap::Zeros),
            _ => io::Error::from_raw_os_error(libc::EIO),
        }
    }

    /// Whether a block is to be left alone.
    fn is_spared(&self, addr: u64) -> bool {
        let bad = self.map.lock().is_bad(self.bytes(addr, 1));
        bad && !(self.retry && self.tried.lock().insert(addr))
    }

    fn read_one(&self, addr: u64, block: &mut Block) -> io::Result<()> {
        if self.is_spared(addr) {
            return Err(self.spared(addr..addr + 1));
        }
        let tried =
            self.below.read(addr, &mut [&mut *block]).or_else(|_| self.below.read(addr, &mut [&mut *block]));
        let mut map = self.map.lock();
        let known = map.is_bad(self.bytes(addr, 1));
        match &tried {
            Ok(()) if known && map.is_foreign() && zeros_stand_for_bad(&map, self.bytes(addr, 1), block) => {
                self.zeros.lock().insert(addr);
                return Err(io::Error::other(BadByMap::Zeros));
            }
            Ok(()) if known => map.set_read(self.bytes(addr, 1)),
            Ok(()) => {
                drop(map);
                self.note_read(addr, 1);
                return tried;
            }
            Err(error) if !known && is_bad_sector(error) => {
                drop(map);
                if !self.is_there(addr) {
                    return tried;
                }
                self.map.lock().set_bad(self.bytes(addr, 1));
            }
            _ => return tried,
        }
        self.news.store(true, Ordering::Release);
        tried
    }

    /// Whether another block can be read, so that the device is not gone.
    fn is_there(&self, addr: u64) -> bool {
        let end = self.below.block_count();
        let others = [0, 1, addr.wrapping_sub(1), addr + 1, addr ^ 512, end / 2, end.wrapping_sub(1)];
        others.into_iter().any(|other| other != addr && other < end && read_block(&self.below, other).is_ok())
    }
}

impl<D: BlockDevice> BlockDevice for MappedDevice<D> {
    fn block_count(&self) -> u64 {
        self.below.block_count()
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.read.fetch_add((blocks.len() * BLOCK_SIZE) as u64, Ordering::Relaxed);
        if let [block] = blocks {
            return self.read_one(addr, block);
        }
        // A caller that asked for many blocks asks for each by itself when this fails.
        let count = blocks.len() as u64;
        if self.map.lock().is_bad(self.bytes(addr, count)) {
            return Err(self.spared(addr..addr + count));
        }
        self.below.read(addr, blocks)?;
        self.note_read(addr, blocks.len() as u64);
        Ok(())
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        if !self.writes {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        self.below.write(addr, blocks, tag)?;
        let written = self.bytes(addr, blocks.len() as u64);
        let mut map = self.map.lock();
        if map.is_bad(written.clone()) {
            self.news.store(true, Ordering::Release);
        }
        map.set_read(written);
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        if self.writes { self.below.flush() } else { Ok(()) }
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        if self.writes { self.below.discard(addr, count) } else { Ok(()) }
    }

    fn read_only(&self) -> bool {
        !self.writes || self.below.read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::{Effect, Fault, FaultDevice, Kind};
    use crate::{Cause, CountingDevice, MemDevice, Temperature};

    const OF_DDRESCUE: &str = "# Mapfile. Created by GNU ddrescue version 1.27\n0x0 ? 1\n0x0 0x64000 +\n";

    fn failing(range: Range<u64>) -> FaultDevice<MemDevice> {
        let dev = FaultDevice::new(MemDevice::new(100), 1);
        dev.arm(Fault::on(Kind::Read, Effect::IO).within(range));
        dev
    }

    fn reads(dev: &MappedDevice<CountingDevice<FaultDevice<MemDevice>>>) -> u64 {
        dev.below.counts().reads
    }

    #[test]
    fn a_bad_block_is_touched_in_one_run_and_never_again() {
        let map = Mapfile::new(100 * 4096);
        let dev = MappedDevice::new(CountingDevice::new(failing(7..9)), map, false);
        let mut many = vec![Block::ZERO; 4];
        assert!(dev.read(6, &mut many.iter_mut().collect::<Vec<_>>()).is_err());
        assert!(read_block(&dev, 7).is_err() && read_block(&dev, 8).is_err() && read_block(&dev, 9).is_ok());
        let map = dev.new_map().unwrap();
        assert_eq!((map.bad_bytes(), dev.new_map()), (2 * 4096, None));
        let before = reads(&dev);
        assert!(
            read_block(&dev, 7).is_err() && dev.read(6, &mut many.iter_mut().collect::<Vec<_>>()).is_err()
        );
        assert_eq!(reads(&dev), before);

        let again = MappedDevice::new(CountingDevice::new(failing(7..8)), map.clone(), false);
        assert!(read_block(&again, 8).is_err());
        let error = read_block(&again, 7).unwrap_err();
        assert!(is_bad_by_map(&error) && is_bad_sector(&error), "{error}");
        assert!(dev.read(7, &mut [&mut Block([0; 4096])]).is_err_and(|error| !is_bad_by_map(&error)));
        assert_eq!(reads(&again), 0);
        let retried = MappedDevice::new(CountingDevice::new(failing(7..8)), map, true);
        assert!(read_block(&retried, 7).is_err() && read_block(&retried, 8).is_ok());
        assert_eq!(retried.map().bad_bytes(), 4096);
        // Block 8, beside 9, which the first run read.
        assert!(retried.map().text().contains("0x00008000  0x00002000  +"), "{}", retried.map().text());
        let before = reads(&retried);
        let error = read_block(&retried, 7).unwrap_err();
        assert!(
            reads(&retried) == before && !is_bad_by_map(&error),
            "once is enough, and it was asked: {error}"
        );
    }

    #[test]
    fn what_was_written_is_bad_no_more() {
        for text in [Mapfile::new(100 * 4096).text(), OF_DDRESCUE.to_owned()] {
            let mut map = Mapfile::parse(&text).unwrap().extended(100 * 4096);
            map.set_bad(7 * 4096..9 * 4096);
            let dev = MappedDevice::writable(MemDevice::new(100), map);
            assert!(read_block(&dev, 7).is_err() && read_block(&dev, 8).is_err());
            dev.write(7, &[&Block([3; 4096])], WriteTag::new(Cause::Meta, Temperature::Cold)).unwrap();
            assert_eq!(read_block(&dev, 7).unwrap().0[0], 3);
            assert!(read_block(&dev, 8).is_err());
            // So it is for the next one who reads the map.
            let again = Mapfile::parse(&dev.new_map().unwrap().text()).unwrap();
            assert!(
                !again.is_bad(7 * 4096..8 * 4096) && again.is_bad(8 * 4096..9 * 4096),
                "{}",
                again.text()
            );
        }
    }

    #[test]
    fn zeros_in_an_image_of_ddrescues_are_what_it_could_not_read() {
        let image = MemDevice::new(100);
        image.write(8, &[&Block([3; 4096])], WriteTag::new(Cause::Meta, Temperature::Cold)).unwrap();
        for (text, is_content) in [(OF_DDRESCUE.to_owned(), false), (Mapfile::new(100 * 4096).text(), true)] {
            let mut map = Mapfile::parse(&text).unwrap().extended(100 * 4096);
            map.set_bad(7 * 4096..9 * 4096);
            let dev = MappedDevice::new(image.snapshot(), map, true);
            assert_eq!(read_block(&dev, 8).unwrap().0[0], 3);
            match read_block(&dev, 7) {
                Ok(_) => assert!(is_content && dev.bad_bytes() == 0),
                Err(error) => {
                    assert!(!is_content && dev.bad_bytes() == 4096 && is_bad_sector(&error), "{error}")
                }
            }
        }
    }

    /// The device is blocks 30 to 99 of the disk.
    #[test]
    fn a_part_of_a_disk_has_the_disks_map() {
        let start = 30 * 4096;
        for text in [Mapfile::new(100 * 4096).text(), OF_DDRESCUE.to_owned()] {
            let mut map = Mapfile::parse(&text).unwrap().extended(100 * 4096);
            [7..9, 37..38].into_iter().for_each(|bad| map.set_bad(bad.start * 4096..bad.end * 4096));
            let part = || CountingDevice::new(failing(20..21));
            let dev = MappedDevice::new(part(), map.clone(), false).starting_at(start);
            assert!(is_bad_by_map(&read_block(&dev, 7).unwrap_err()) && reads(&dev) == 0);
            assert!(read_block(&dev, 8).is_ok() && read_block(&dev, 20).is_err());
            assert_eq!(dev.bad_bytes(), 2 * 4096, "what is bad elsewhere on the disk is not of the device");
            let learned = Mapfile::parse(&dev.new_map().unwrap().text()).unwrap();
            assert_eq!(learned.end(), 100 * 4096);
            assert!(learned.is_bad(50 * 4096..51 * 4096) && !learned.is_bad(20 * 4096..21 * 4096));
            assert_eq!(learned.bad_bytes(), 4 * 4096);

            let dev = MappedDevice::writable(MemDevice::new(70), map).starting_at(start);
            dev.write(7, &[&Block([3; 4096])], WriteTag::new(Cause::Meta, Temperature::Cold)).unwrap();
            let written = dev.map();
            assert!(!written.is_bad(37 * 4096..38 * 4096) && written.is_bad(7 * 4096..8 * 4096));
            assert_eq!((dev.bad_bytes(), written.end()), (0, 100 * 4096));
        }
    }

    #[test]
    fn zeros_in_a_sector_that_ddrescue_could_not_read_are_no_content() {
        let mut content = [3; 4096];
        content[512..1024].fill(0);
        let image = MemDevice::new(100);
        image.write(7, &[&Block(content)], WriteTag::new(Cause::Meta, Temperature::Cold)).unwrap();
        for (sector, is_content) in [(1, false), (2, true)] {
            let mut map = Mapfile::parse(OF_DDRESCUE).unwrap().extended(100 * 4096);
            let start = 7 * 4096 + sector * 512;
            map.set_bad(start..start + 512);
            let dev = MappedDevice::new(image.snapshot(), map, true);
            for turn in 0..2 {
                match read_block(&dev, 7) {
                    Ok(_) => assert!(is_content, "turn {turn}"),
                    Err(error) => {
                        let why = error.to_string();
                        assert!(!is_content && is_bad_sector(&error) && why.contains("zeros"), "{why}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_device_that_is_gone_has_no_bad_blocks() {
        let dev = MappedDevice::new(failing(0..100), Mapfile::new(100 * 4096), false);
        assert!(read_block(&dev, 50).is_err());
        assert_eq!(dev.bad_bytes(), 0);
    }
}
