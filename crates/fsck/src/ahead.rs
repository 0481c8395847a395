//! Reading ahead: who reads one block behind the other gets them in large requests.
//!
//! A check looks at single blocks here and there, and scans whole areas where what leads to a block is lost. A few
//! places where reading went on are remembered; each time it goes on at one of them, twice as much is read.
//!
//! Invariant: what was read ahead is what the device holds, as whoever writes says so ([`Ahead::forget`]).

use medfs_device::BlockDevice;
use medfs_format::{Block, BlockAddr};
use std::collections::VecDeque;

/// Blocks read in one request (256 KiB).
const MOST: usize = 64;
/// Places remembered: a scan looks at other blocks beside.
const PLACES: usize = 4;

/// What was read ahead of those who read.
#[derive(Default)]
pub(crate) struct Ahead {
    /// The one that was used last is the last.
    places: Vec<Place>,
}

/// Where reading may go on.
struct Place {
    /// The first block that was not asked for.
    next: BlockAddr,
    /// What was read from there on.
    blocks: VecDeque<Box<Block>>,
    /// Blocks of the next request.
    window: usize,
    /// Up to here each block is asked for alone, as the device refused a run: so a bad sector is met once more only.
    alone_until: BlockAddr,
}

impl Ahead {
    /// The block, where it was read ahead or goes on with what was read; `None` where it is to be read alone.
    pub(crate) fn read(&mut self, dev: &dyn BlockDevice, addr: BlockAddr) -> Option<Box<Block>> {
        let Some(i) = self.places.iter().position(|place| place.is_next(addr)) else {
            if self.places.len() == PLACES {
                self.places.remove(0);
            }
            let (next, blocks) = (addr.saturating_add(1), VecDeque::new());
            self.places.push(Place { next, blocks, window: 2, alone_until: 0 });
            return None;
        };
        self.places[i..].rotate_left(1);
        self.places.last_mut()?.go_on(dev, addr)
    }

    /// Forgets what was read of blocks that are written.
    pub(crate) fn forget(&mut self, addr: BlockAddr, count: usize) {
        let written = u64::from(addr)..u64::from(addr) + count as u64;
        let is_stale = |place: &&mut Place| {
            let start = u64::from(place.next);
            written.start < start + place.blocks.len() as u64 && start < written.end
        };
        self.places.iter_mut().filter(is_stale).for_each(|place| place.blocks.clear());
    }
}

impl Place {
    /// Whether a block lies in what was read ahead, or right behind it.
    fn is_next(&self, addr: BlockAddr) -> bool {
        addr.checked_sub(self.next).is_some_and(|skipped| skipped as usize <= self.blocks.len())
    }

    fn go_on(&mut self, dev: &dyn BlockDevice, addr: BlockAddr) -> Option<Box<Block>> {
        self.blocks.drain(..(addr - self.next) as usize);
        self.next = addr.saturating_add(1);
        if self.blocks.is_empty() && addr >= self.alone_until {
            self.blocks = self.run(dev, addr);
        }
        self.blocks.pop_front()
    }

    /// A run from a block on; nothing where a block of it cannot be read.
    fn run(&mut self, dev: &dyn BlockDevice, addr: BlockAddr) -> VecDeque<Box<Block>> {
        let left = dev.block_count().saturating_sub(addr.into());
        let count = left.min(self.window as u64) as usize;
        let mut blocks: VecDeque<_> = (0..count).map(|_| Block::boxed()).collect();
        let mut refs: Vec<&mut Block> = blocks.iter_mut().map(|block| &mut **block).collect();
        if dev.read(addr.into(), &mut refs).is_err() {
            self.alone_until = addr.saturating_add(count as u32);
            return VecDeque::new();
        }
        self.window = (2 * self.window).min(MOST);
        blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::medium::Medium;
    use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
    use medfs_device::{Cause, CountingDevice, IoCounts, MemDevice, Temperature, WriteTag, read_block};

    const TAG: WriteTag = WriteTag::new(Cause::Meta, Temperature::Cold);

    fn numbered_block(number: u64) -> Block {
        let mut block = Block::ZERO;
        block.0[..8].copy_from_slice(&number.to_le_bytes());
        block
    }

    /// A device whose blocks begin with their address.
    fn numbered(count: u64) -> CountingDevice<FaultDevice<MemDevice>> {
        let inner = FaultDevice::new(MemDevice::new(count), 1);
        for addr in 0..count {
            inner.inner().write(addr, &[&numbered_block(addr)], TAG).unwrap();
        }
        CountingDevice::new(inner)
    }

    fn number(medium: &Medium<'_>, addr: BlockAddr) -> u64 {
        u64::from_le_bytes(medium.read(addr).unwrap().0[..8].try_into().unwrap())
    }

    #[test]
    fn scans_side_by_side_read_in_large_requests_and_nothing_twice() {
        let dev = numbered(5000);
        let medium = Medium::lenient(&dev);
        for addr in 0..2500 {
            assert_eq!(number(&medium, addr), u64::from(addr));
            assert_eq!(number(&medium, 2500 + addr), u64::from(2500 + addr));
        }
        assert!(medium.read(5000).is_err());
        let IoCounts { reads: requests, blocks_read: blocks, .. } = dev.counts();
        assert!(requests < 5000 / 64 + 30 && blocks < 5000 + 200, "{requests} requests, {blocks} blocks");
    }

    #[test]
    fn a_single_look_reads_one_block() {
        let dev = numbered(5000);
        let medium = Medium::lenient(&dev);
        for addr in (0..5000).step_by(7) {
            assert_eq!(number(&medium, addr), u64::from(addr));
        }
        assert_eq!(dev.counts().reads, dev.counts().blocks_read);
    }

    #[test]
    fn what_was_written_meanwhile_is_read_as_it_is_now() {
        let dev = numbered(5000);
        let medium = Medium::lenient(&dev);
        (0..500).for_each(|addr| assert_eq!(number(&medium, addr), u64::from(addr)));
        for addr in 500..1000 {
            medium.write(addr, &[&numbered_block(7), &numbered_block(8)], TAG).unwrap();
            assert_eq!(number(&medium, addr), 7);
        }
        assert_eq!(number(&medium, 1000), 8);
    }

    #[test]
    fn a_bad_sector_in_a_scan_costs_that_block_alone_and_is_met_a_few_times() {
        let dev = numbered(1000);
        dev.inner().arm(Fault::on(Kind::Read, Effect::IO).within(507..508).until_written());
        let medium = Medium::lenient(&dev);
        for addr in 0..1000 {
            assert_eq!(number(&medium, addr), if addr == 507 { 0 } else { addr.into() });
        }
        assert!(medium.is_unreadable(507) && !medium.is_unreadable(506) && read_block(&dev, 507).is_err());
        let IoCounts { reads, errors, .. } = dev.counts();
        assert!(reads < 130 && errors < 5, "{reads} requests, {errors} failed");
    }
}
