//! A device that is changed nowhere but here: what is written goes to a file beside it.
//!
//! For a repair that must not touch the device, as on a card that is dying.
//!
//! Invariant: the device below is only read. Memory: an entry for each block that was written.
//! Lock: one around the index, a leaf; the I/O runs outside it.

use crate::{BlockDevice, WriteTag, check_range};
use medfs_format::{BLOCK_SIZE, Block};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A device below a file of changes.
pub struct Overlay<D> {
    below: D,
    changes: File,
    /// Where in the file the blocks are that were written.
    places: Mutex<HashMap<u64, u64>>,
}

impl<D: BlockDevice> Overlay<D> {
    /// Over a device. `changes` is an empty file, which only this uses.
    pub fn new(below: D, changes: File) -> Overlay<D> {
        Overlay { below, changes, places: Mutex::default() }
    }

    /// The device below.
    pub fn below(&self) -> &D {
        &self.below
    }

    /// Number of blocks that were written.
    pub fn changed(&self) -> u64 {
        self.places.lock().len() as u64
    }

    fn place(&self, addr: u64) -> Option<u64> {
        self.places.lock().get(&addr).copied()
    }
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    fn block_count(&self) -> u64 {
        self.below.block_count()
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        check_range(self.block_count(), addr, blocks.len() as u64)?;
        let mut at = 0;
        while at < blocks.len() {
            let here = addr + at as u64;
            if let Some(place) = self.place(here) {
                self.changes.read_exact_at(&mut blocks[at].0, place)?;
                at += 1;
                continue;
            }
            let run =
                (at + 1..blocks.len()).take_while(|&i| self.place(addr + i as u64).is_none()).count() + 1;
            self.below.read(here, &mut blocks[at..at + run])?;
            at += run;
        }
        Ok(())
    }

    fn write(&self, addr: u64, blocks: &[&Block], _tag: WriteTag) -> io::Result<()> {
        check_range(self.block_count(), addr, blocks.len() as u64)?;
        for (addr, block) in (addr..).zip(blocks) {
            let place = {
                let mut places = self.places.lock();
                let next = places.len() as u64 * BLOCK_SIZE as u64;
                *places.entry(addr).or_insert(next)
            };
            self.changes.write_all_at(&block.0, place)?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, _addr: u64, _count: u64) -> io::Result<()> {
        Ok(())
    }

    fn read_only(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lengthened::is_behind_end;
    use crate::{Cause, Lengthened, MemDevice, Temperature, read_block};

    const TAG: WriteTag = WriteTag::new(Cause::Data, Temperature::Hot);

    #[test]
    fn what_is_written_is_read_back_and_the_device_below_stays() {
        let below = MemDevice::new(10);
        let fill = |byte| Block([byte; BLOCK_SIZE]);
        below.write(0, &[&fill(1), &fill(2), &fill(3), &fill(4)], TAG).unwrap();
        let over = Overlay::new(below.snapshot(), tempfile::tempfile().unwrap());
        over.write(1, &[&fill(20), &fill(30)], TAG).unwrap();
        over.write(2, &[&fill(31)], TAG).unwrap();
        let mut read = vec![Block::ZERO; 4];
        over.read(0, &mut read.iter_mut().collect::<Vec<_>>()).unwrap();
        assert_eq!(read.iter().map(|block| block.0[7]).collect::<Vec<_>>(), [1, 20, 31, 4]);
        assert_eq!((over.changed(), read_block(over.below(), 1).unwrap().0[0]), (2, 2));
        assert!(over.write(10, &[&fill(1)], TAG).is_err());
    }

    #[test]
    fn what_an_image_lacks_cannot_be_read_until_it_is_written() {
        let over = Overlay::new(Lengthened::new(MemDevice::new(10), 20), tempfile::tempfile().unwrap());
        assert_eq!(over.block_count(), 20);
        let error = read_block(&over, 12).unwrap_err();
        assert!(is_behind_end(&error), "{error}");
        over.write(12, &[&Block([5; BLOCK_SIZE])], TAG).unwrap();
        assert_eq!(read_block(&over, 12).unwrap().0[0], 5);
        let mut two = [Block::ZERO, Block::ZERO];
        assert!(over.read(9, &mut two.iter_mut().collect::<Vec<_>>()).is_err());
    }
}
