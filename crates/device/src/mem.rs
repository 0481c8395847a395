//! A device in memory.
//!
//! Sparse: a block that was never written costs nothing and reads as zeros, so a device of many terabytes
//! is as cheap as what is written to it. Snapshots share content and are copied on write, so thousands
//! of variants of one image (see [`crate::crash`]) cost what differs between them.
//!
//! Locks: one reader-writer lock for each shard of chunks, held for the copy of the blocks of one chunk.
//! [`MemDevice::snapshot`] takes them all, in order.

use crate::{BlockDevice, WriteTag, check_range, refuse_read_only};
use foldhash::fast::FixedState;
use medfs_format::{BLOCK_SIZE, Block};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Blocks in one chunk of the map.
const CHUNK_BLOCKS: u64 = 32;
/// Independent locks over the chunks.
const SHARDS: usize = 16;

/// Content of one block, shared between snapshots. (Not a [`Block`]: its alignment would double the allocation.)
type Content = Arc<[u8; BLOCK_SIZE]>;

#[derive(Clone, Default)]
struct Chunk([Option<Content>; CHUNK_BLOCKS as usize]);

type Shard = HashMap<u64, Arc<Chunk>, FixedState>;

/// A sparse device in memory. See the module for its properties.
pub struct MemDevice {
    blocks: u64,
    read_only: AtomicBool,
    shards: [RwLock<Shard>; SHARDS],
}

impl MemDevice {
    /// A device of `blocks` blocks of zeros.
    pub fn new(blocks: u64) -> MemDevice {
        MemDevice { blocks, read_only: AtomicBool::new(false), shards: Default::default() }
    }

    /// A device with the content of any other.
    pub fn copy_of(source: &dyn BlockDevice) -> io::Result<MemDevice> {
        let copy = MemDevice::new(source.block_count());
        let mut buffer: Vec<Block> = vec![Block::ZERO; CHUNK_BLOCKS as usize];
        let mut addr = 0;
        while addr < copy.blocks {
            let count = CHUNK_BLOCKS.min(copy.blocks - addr) as usize;
            source.read(addr, &mut buffer[..count].iter_mut().collect::<Vec<_>>())?;
            for (at, block) in (addr..).zip(&buffer[..count]) {
                if block.0 != Block::ZERO.0 {
                    copy.set(at, Arc::new(block.0));
                }
            }
            addr += count as u64;
        }
        Ok(copy)
    }

    /// The present content as a device of its own; content is shared until one of the two writes.
    /// A write that overlaps the call in time is in it or not, block by block.
    pub fn snapshot(&self) -> MemDevice {
        let guards: Vec<_> = self.shards.iter().map(|shard| shard.read()).collect();
        let copy = MemDevice::new(self.blocks);
        for (shard, guard) in copy.shards.iter().zip(&guards) {
            *shard.write() = (**guard).clone();
        }
        copy
    }

    /// Refuses writes from now on, or allows them again.
    pub fn set_read_only(&self, read_only: bool) {
        self.read_only.store(read_only, Ordering::Relaxed);
    }

    /// Addresses of the blocks that hold anything, in order.
    pub fn written(&self) -> Vec<u64> {
        let mut addrs = Vec::new();
        for shard in &self.shards {
            for (index, chunk) in shard.read().iter() {
                let present = chunk.0.iter().enumerate().filter(|(_, content)| content.is_some());
                addrs.extend(present.map(|(at, _)| index * CHUNK_BLOCKS + at as u64));
            }
        }
        addrs.sort_unstable();
        addrs
    }

    /// Replaces the content of one block, sharing it. Panics outside the device.
    pub(crate) fn set(&self, addr: u64, content: Content) {
        assert!(addr < self.blocks);
        let mut shard = self.shard(addr).write();
        *Self::slot(&mut shard, addr) = Some(content);
    }

    /// The content of one block; `None` where it was never written.
    pub(crate) fn get(&self, addr: u64) -> Option<Content> {
        let shard = self.shard(addr).read();
        shard.get(&(addr / CHUNK_BLOCKS))?.0[(addr % CHUNK_BLOCKS) as usize].clone()
    }

    fn shard(&self, addr: u64) -> &RwLock<Shard> {
        &self.shards[(addr / CHUNK_BLOCKS) as usize % SHARDS]
    }

    fn slot(shard: &mut Shard, addr: u64) -> &mut Option<Content> {
        let chunk = shard.entry(addr / CHUNK_BLOCKS).or_default();
        &mut Arc::make_mut(chunk).0[(addr % CHUNK_BLOCKS) as usize]
    }
}

/// Splits the range from `addr` on into parts that lie in one chunk: (address, index of the first buffer, count).
fn chunks(addr: u64, count: usize) -> impl Iterator<Item = (u64, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = addr + done as u64;
        let part = (count - done).min((CHUNK_BLOCKS - at % CHUNK_BLOCKS) as usize);
        let item = (part > 0).then_some((at, done, part));
        done += part;
        item
    })
}

impl BlockDevice for MemDevice {
    fn block_count(&self) -> u64 {
        self.blocks
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        check_range(self.blocks, addr, blocks.len() as u64)?;
        for (at, first, count) in chunks(addr, blocks.len()) {
            let shard = self.shard(at).read();
            let chunk = shard.get(&(at / CHUNK_BLOCKS));
            for (i, block) in blocks[first..first + count].iter_mut().enumerate() {
                match chunk.and_then(|chunk| chunk.0[(at % CHUNK_BLOCKS) as usize + i].as_ref()) {
                    Some(content) => block.0.copy_from_slice(&content[..]),
                    None => block.0.fill(0),
                }
            }
        }
        Ok(())
    }

    fn write(&self, addr: u64, blocks: &[&Block], _tag: WriteTag) -> io::Result<()> {
        check_range(self.blocks, addr, blocks.len() as u64)?;
        refuse_read_only(self)?;
        for (at, first, count) in chunks(addr, blocks.len()) {
            let mut shard = self.shard(at).write();
            for (i, block) in blocks[first..first + count].iter().enumerate() {
                let slot = Self::slot(&mut shard, at + i as u64);
                match slot.as_mut().and_then(Arc::get_mut) {
                    Some(content) => content.copy_from_slice(&block.0),
                    None => *slot = Some(Arc::new(block.0)),
                }
            }
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        Ok(())
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        check_range(self.blocks, addr, count)?;
        refuse_read_only(self)?;
        // Walks what exists, not the range: discarding terabytes of nothing is free.
        for (number, shard) in self.shards.iter().enumerate() {
            let mut shard = shard.write();
            shard.retain(|&index, chunk| {
                debug_assert_eq!(index as usize % SHARDS, number);
                let start = index * CHUNK_BLOCKS;
                let end = start + CHUNK_BLOCKS;
                if end <= addr || start >= addr + count {
                    return true;
                }
                if start >= addr && end <= addr + count {
                    return false;
                }
                let from = addr.max(start) - start;
                let to = (addr + count).min(end) - start;
                Arc::make_mut(chunk).0[from as usize..to as usize].fill(None);
                true
            });
        }
        Ok(())
    }

    fn read_only(&self) -> bool {
        self.read_only.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Temperature, read_block};

    const TAG: WriteTag = WriteTag::new(Cause::Data, Temperature::Hot);

    #[test]
    fn huge_and_sparse() {
        let blocks = (16u64 << 40) / 4096;
        let dev = MemDevice::new(blocks);
        assert_eq!(read_block(&dev, blocks - 1).unwrap().0, [0; 4096]);
        dev.write(blocks - 1, &[&Block([7; 4096])], TAG).unwrap();
        assert_eq!(read_block(&dev, blocks - 1).unwrap().0, [7; 4096]);
        assert_eq!(dev.written(), [blocks - 1]);
        dev.discard(0, blocks).unwrap();
        assert_eq!(read_block(&dev, blocks - 1).unwrap().0, [0; 4096]);
    }

    #[test]
    fn ranges_outside_are_refused() {
        let dev = MemDevice::new(10);
        for (addr, count) in [(10, 1), (9, 2), (u64::MAX, 1), (u64::MAX - 1, 2)] {
            let block = Block::ZERO;
            let e = dev.write(addr, &vec![&block; count], TAG).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::InvalidInput);
            assert_eq!(dev.discard(addr, count as u64).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        dev.write(10, &[], TAG).unwrap();
    }

    #[test]
    fn snapshots_are_independent() {
        let dev = MemDevice::new(100);
        dev.write(30, &[&Block([1; 4096]), &Block([2; 4096]), &Block([3; 4096])], TAG).unwrap();
        let copy = dev.snapshot();
        dev.write(31, &[&Block([9; 4096])], TAG).unwrap();
        copy.discard(32, 1).unwrap();
        assert_eq!(read_block(&copy, 31).unwrap().0[0], 2);
        assert_eq!(read_block(&copy, 32).unwrap().0[0], 0);
        assert_eq!(read_block(&dev, 31).unwrap().0[0], 9);
        assert_eq!(read_block(&dev, 32).unwrap().0[0], 3);
        assert_eq!(MemDevice::copy_of(&dev).unwrap().written(), [30, 31, 32]);
    }

    #[test]
    fn read_only_refuses() {
        let dev = MemDevice::new(4);
        dev.set_read_only(true);
        assert_eq!(dev.write(0, &[&Block::ZERO], TAG).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
    }
}
