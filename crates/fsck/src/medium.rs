//! The device as a check sees it: a sector that cannot be read is one of zeros, and is remembered.
//!
//! Zeros are no valid superblock, pack, node, dentry block or table, so every judge takes them for damaged,
//! and asks here whether the device said so. A read or write that fails is tried once more. Where it fails
//! again, another sector is read: if no sector can be read, the device is gone, and the error ends the run.
//!
//! Invariant: a medium fails only where the whole device does. One that was made strict, for those who show
//! what is there, fails at the first sector.

use crate::ahead::Ahead;
use medfs_device::{BlockDevice, WriteTag, is_bad_sector, read_block};
use medfs_format::{Block, BlockAddr};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;

/// A device, and which of its sectors failed.
pub(crate) struct Medium<'d> {
    dev: &'d dyn BlockDevice,
    ahead: RefCell<Ahead>,
    lenient: bool,
    /// Whether a volume is shown as of its last checkpoint though fsyncs lie in an NVRAM.
    shows_last_checkpoint: bool,
    /// See [`Medium::of_usual_layout`].
    guesses_layout: bool,
    /// See [`Medium::past_unfinished`].
    passes_unfinished: bool,
    /// A block that could be read.
    good: Cell<Option<u64>>,
    unreadable: RefCell<BTreeSet<BlockAddr>>,
    /// Unreadable blocks of which no finding has told yet.
    untold: RefCell<BTreeSet<BlockAddr>>,
    unwritable: RefCell<BTreeSet<BlockAddr>>,
}

impl<'d> Medium<'d> {
    /// One that takes sectors that cannot be read for zeros.
    pub(crate) fn lenient(dev: &'d dyn BlockDevice) -> Medium<'d> {
        Medium {
            dev,
            ahead: RefCell::default(),
            lenient: true,
            shows_last_checkpoint: false,
            guesses_layout: false,
            passes_unfinished: false,
            good: Cell::new(None),
            unreadable: RefCell::default(),
            untold: RefCell::default(),
            unwritable: RefCell::default(),
        }
    }

    /// The same device, for a look at blocks that nobody may need: what cannot be read is told by whoever does.
    pub(crate) fn again(&self) -> Medium<'d> {
        let again = Medium::lenient(self.dev);
        again.good.set(self.good.get());
        again
    }

    /// From now on every sector that cannot be read is an error.
    pub(crate) fn be_strict(&mut self) {
        self.lenient = false;
        self.unreadable.get_mut().clear();
    }

    /// The same; a volume whose fsyncs lie in an NVRAM is that of its last checkpoint.
    pub(crate) fn of_last_checkpoint(self) -> Medium<'d> {
        Medium { shows_last_checkpoint: true, ..self }
    }

    /// The same; a volume without superblocks and checkpoints is looked for where `mkfs` would have laid it out.
    pub(crate) fn of_usual_layout(self) -> Medium<'d> {
        Medium { guesses_layout: true, ..self }
    }

    /// The same; where the newest checkpoint is not finished, the newest nodes count.
    pub(crate) fn past_unfinished(self) -> Medium<'d> {
        Medium { passes_unfinished: true, ..self }
    }

    /// See [`Medium::past_unfinished`].
    pub(crate) fn passes_unfinished(&self) -> bool {
        self.passes_unfinished
    }

    /// See [`Medium::of_usual_layout`].
    pub(crate) fn guesses_layout(&self) -> bool {
        self.guesses_layout
    }

    /// See [`Medium::of_last_checkpoint`].
    pub(crate) fn shows_last_checkpoint(&self) -> bool {
        self.shows_last_checkpoint
    }

    pub(crate) fn block_count(&self) -> u64 {
        self.dev.block_count()
    }

    /// A block, or zeros where it cannot be read.
    pub(crate) fn read(&self, addr: BlockAddr) -> io::Result<Box<Block>> {
        if self.is_unreadable(addr) {
            return Ok(Block::boxed());
        }
        if let Some(block) = self.ahead.borrow_mut().read(self.dev, addr) {
            self.good.set(Some(u64::from(addr)));
            return Ok(block);
        }
        match read_block(self.dev, u64::from(addr)).or_else(|_| read_block(self.dev, u64::from(addr))) {
            Ok(block) => {
                self.good.set(Some(u64::from(addr)));
                Ok(block)
            }
            Err(e) if self.lenient && self.is_one_sector(u64::from(addr), &e) => {
                self.unreadable.borrow_mut().insert(addr);
                self.untold.borrow_mut().insert(addr);
                Ok(Block::boxed())
            }
            Err(e) => Err(e),
        }
    }

    /// Writes neighbouring blocks. Sectors that cannot be written are remembered, and the others are written.
    pub(crate) fn write(&self, addr: BlockAddr, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.ahead.borrow_mut().forget(addr, blocks.len());
        if self.dev.write(u64::from(addr), blocks, tag).is_ok() {
            (addr..).zip(blocks).for_each(|(addr, _)| self.written(addr));
            return Ok(());
        }
        for (addr, block) in (addr..).zip(blocks) {
            match self.dev.write(u64::from(addr), &[block], tag) {
                Ok(()) => self.written(addr),
                Err(e) if self.lenient && self.is_one_sector(u64::from(addr), &e) => {
                    self.unwritable.borrow_mut().insert(addr);
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.dev.flush()
    }

    fn written(&self, addr: BlockAddr) {
        self.unreadable.borrow_mut().remove(&addr);
        self.unwritable.borrow_mut().remove(&addr);
    }

    /// Whether a block that was asked for cannot be read.
    pub(crate) fn is_unreadable(&self, addr: BlockAddr) -> bool {
        self.unreadable.borrow().contains(&addr)
    }

    /// The same, for the one who makes a finding of it.
    pub(crate) fn tell_unreadable(&self, addr: BlockAddr) -> bool {
        self.untold.borrow_mut().remove(&addr);
        self.is_unreadable(addr)
    }

    /// The unreadable blocks that no finding was made of.
    pub(crate) fn take_untold(&self) -> BTreeSet<BlockAddr> {
        std::mem::take(&mut self.untold.borrow_mut())
    }

    /// The blocks that cannot be read, and were not written since.
    pub(crate) fn unreadable(&self) -> BTreeSet<BlockAddr> {
        self.unreadable.borrow().clone()
    }

    /// The blocks that could not be written.
    pub(crate) fn unwritable(&self) -> BTreeSet<BlockAddr> {
        self.unwritable.borrow().clone()
    }

    /// Whether an error is of one sector: the device is there, as another one can be read.
    fn is_one_sector(&self, addr: u64, error: &io::Error) -> bool {
        let end = self.dev.block_count();
        let others = [0, 1, addr.wrapping_sub(1), addr + 1, addr ^ 512, end / 2, end.wrapping_sub(1)];
        let mut others = self.good.get().into_iter().chain(others).filter(|&other| other != addr);
        is_bad_sector(error) && others.any(|other| other < end && read_block(self.dev, other).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
    use medfs_device::{Cause, MemDevice, Temperature};

    const TAG: WriteTag = WriteTag::new(Cause::Meta, Temperature::Cold);

    #[test]
    fn one_bad_sector_is_zeros_until_it_is_written() {
        let dev = FaultDevice::new(MemDevice::new(100), 1);
        dev.inner().write(7, &[&Block([3; 4096])], TAG).unwrap();
        dev.arm(Fault::on(Kind::Read, Effect::IO).within(7..8).until_written());
        let mut strict = Medium::lenient(&dev);
        strict.be_strict();
        assert!(strict.read(7).is_err());
        let medium = Medium::lenient(&dev);
        assert_eq!(medium.read(7).unwrap().0, [0; 4096]);
        assert!(medium.tell_unreadable(7) && medium.take_untold().is_empty());
        medium.write(6, &[&Block([1; 4096]), &Block([2; 4096])], TAG).unwrap();
        assert_eq!((medium.read(7).unwrap().0[0], medium.is_unreadable(7)), (2, false));
    }

    #[test]
    fn a_failure_that_passes_is_none() {
        let dev = FaultDevice::new(MemDevice::new(100), 1);
        dev.arm(Fault::on(Kind::Read, Effect::IO).within(7..8).times(1));
        let medium = Medium::lenient(&dev);
        medium.read(7).unwrap();
        assert!(!medium.is_unreadable(7));
    }

    #[test]
    fn a_device_that_is_gone_ends_the_run() {
        let dev = FaultDevice::new(MemDevice::new(100), 1);
        let medium = Medium::lenient(&dev);
        medium.read(3).unwrap();
        dev.arm(Fault::on(Kind::Read, Effect::IO));
        dev.arm(Fault::on(Kind::Write, Effect::IO));
        assert!(medium.read(7).is_err());
        assert!(medium.write(7, &[&Block::ZERO], TAG).is_err());
    }

    #[test]
    fn beside_a_sector_that_cannot_be_written_the_others_are() {
        let dev = FaultDevice::new(MemDevice::new(100), 1);
        dev.arm(Fault::on(Kind::Write, Effect::IO).within(7..8));
        let medium = Medium::lenient(&dev);
        medium.write(6, &[&Block([1; 4096]), &Block([2; 4096]), &Block([3; 4096])], TAG).unwrap();
        assert_eq!(medium.unwritable(), BTreeSet::from([7]));
        assert_eq!([6, 7, 8].map(|a| medium.read(a).unwrap().0[0]), [1, 0, 3]);
    }
}
