//! A small bounded cache of blocks, write-through: what it holds is always what the device holds, but for
//! sectors that cannot be written ([`Medium`]).

use crate::medium::Medium;
use foldhash::{HashMap, HashMapExt};
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::{Block, Geometry};
use std::collections::VecDeque;
use std::io;

/// Blocks kept (4 MiB).
const CAPACITY: usize = 1024;

/// Blocks that a check takes for repaired (16 MiB); it judges by more of them as they are.
const MOST_REPAIRED: usize = 4096;

/// First-in-first-out cache over a medium.
pub(crate) struct Cache<'d> {
    pub(crate) medium: Medium<'d>,
    blocks: HashMap<u32, Box<Block>>,
    order: VecDeque<u32>,
    /// Of a check: blocks as a repair would write them, where what they lead to is judged by that.
    repaired: HashMap<u32, Box<Block>>,
}

impl<'d> Cache<'d> {
    pub(crate) fn new(medium: Medium<'d>) -> Cache<'d> {
        Cache { medium, blocks: HashMap::new(), order: VecDeque::new(), repaired: HashMap::new() }
    }

    /// The block, from memory or the device.
    pub(crate) fn get(&mut self, addr: u32) -> io::Result<&Block> {
        if !self.repaired.is_empty() && self.repaired.contains_key(&addr) {
            return Ok(&self.repaired[&addr]);
        }
        if !self.blocks.contains_key(&addr) {
            let block = self.medium.read(addr)?;
            self.put(addr, block);
        }
        Ok(&self.blocks[&addr])
    }

    /// A copy of the block.
    pub(crate) fn read(&mut self, addr: u32) -> io::Result<Box<Block>> {
        Ok(Box::new(self.get(addr)?.clone()))
    }

    /// Writes a block to the device and remembers it.
    pub(crate) fn write(&mut self, addr: u32, block: &Block, cause: Cause) -> io::Result<()> {
        self.medium.write(addr, &[block], WriteTag::new(cause, Temperature::Cold))?;
        self.put(addr, Box::new(block.clone()));
        Ok(())
    }

    /// Takes a block for what a repair makes of it, without writing it.
    pub(crate) fn take_for_repaired(&mut self, addr: u32, block: &Block) {
        if self.repaired.len() < MOST_REPAIRED || self.repaired.contains_key(&addr) {
            self.repaired.insert(addr, Box::new(block.clone()));
        }
    }

    /// Writes the blocks of tables anew that cannot be read: no more in force, but the next ones to be written.
    pub(crate) fn renew_copies(&self, g: &Geometry) -> io::Result<()> {
        let tag = WriteTag::new(Cause::Meta, Temperature::Cold);
        for addr in self.medium.unreadable() {
            let Some(other) = g.other_copy(addr) else { continue };
            let block = self.medium.read(other)?;
            self.medium.write(addr, &[&block], tag)?;
        }
        self.medium.flush()
    }

    fn put(&mut self, addr: u32, block: Box<Block>) {
        if self.blocks.insert(addr, block).is_none() {
            self.order.push_back(addr);
            if self.order.len() > CAPACITY
                && let Some(oldest) = self.order.pop_front()
            {
                self.blocks.remove(&oldest);
            }
        }
    }
}

/// Whether a block is zeros.
pub(crate) fn is_erased(block: &Block) -> bool {
    block.0.iter().all(|&byte| byte == 0)
}
