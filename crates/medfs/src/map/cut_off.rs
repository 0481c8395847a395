//! Blocks that a truncation took from a file, kept valid until the file is durable without them: a program that
//! truncates its file and writes it anew changes little of it, and the new pages can be made from the old blocks.
//!
//! Invariants:
//! 1. A block in here is valid in the SIT, and no slot names it. Its space counts as free.
//! 2. None is left when a checkpoint writes the SIT, when an fsync of its file has placed the file's pages, when its
//!    file is freed, and when its section is cleaned.
//! 3. Where power is lost, the file's last durable inode names the block still, or none does.
//!
//! Locks: one mutex, a leaf.

use crate::error::Result;
use crate::map::Map;
use crate::map::inode::Inode;
use crate::map::node_tree::Slot;
use medfs_format::{BlockAddr, Ino, NEW_ADDR, NULL_ADDR, is_block};
use medfs_store::FreeFor;
use medfs_sync::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Pages of a file up to which a truncation keeps their blocks: what is written anew as a whole is small.
const MOST_OF_A_FILE: u64 = 64;
/// Blocks kept of all files. They are in use though their space counts as free.
const MOST: usize = 256;
/// Free segments below which none is kept.
const LEAST_FREE: u32 = 16;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct CutOff {
    blocks: Mutex<HashMap<Ino, BTreeMap<u64, BlockAddr>>>,
    count: AtomicUsize,
}

impl CutOff {
    /// The block that a page of a file had before it was cut off.
    pub(crate) fn of(&self, ino: Ino, page: u64) -> Option<BlockAddr> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.blocks.lock().get(&ino)?.get(&page).copied()
    }

    fn take(&self, ino: Ino) -> BTreeMap<u64, BlockAddr> {
        if self.count.load(Ordering::Acquire) == 0 {
            return BTreeMap::new();
        }
        let taken = self.blocks.lock().remove(&ino).unwrap_or_default();
        self.count.fetch_sub(taken.len(), Ordering::AcqRel);
        taken
    }
}

impl Map {
    /// Before a file is cut at page `from`: takes the blocks behind it out of the inode's slots and keeps them, where
    /// they are few. What is kept of the file from before is freed.
    pub(crate) fn keep_cut_off(&self, inode: &Inode, from: u64) -> Result<()> {
        self.ops.check_within();
        self.free_cut_off(inode.ino);
        let pages = inode.pages();
        let slots = self.slots(inode);
        if pages > MOST_OF_A_FILE.min(slots.addrs() as u64) || from >= pages {
            return Ok(());
        }
        let first = self.make_slot(inode, from)?;
        let addrs = first.addrs((pages - from) as usize);
        let kept = self.may_be_kept((from..).zip(addrs))?;
        if kept.is_empty() || self.since.cut_off.count.load(Ordering::Acquire) + kept.len() > MOST {
            return Ok(());
        }
        for &page in kept.keys() {
            let slot = self.make_slot_near(inode, Some(&first), page)?;
            self.set_addr(inode, &slot, NULL_ADDR);
        }
        self.space.release(kept.len() as u64);
        self.add_blocks(inode, -(kept.len() as i64));
        self.since.cut_off.count.fetch_add(kept.len(), Ordering::AcqRel);
        self.since.cut_off.blocks.lock().insert(inode.ino, kept);
        Ok(())
    }

    /// Those of some pages' blocks that stay in use where no slot names them: they are valid, and nobody empties their
    /// segments.
    fn may_be_kept(&self, pages: impl Iterator<Item = (u64, BlockAddr)>) -> Result<BTreeMap<u64, BlockAddr>> {
        let mut kept = BTreeMap::new();
        let mut segs = self.segs.lock();
        if segs.free.segments(FreeFor::Logs) < LEAST_FREE {
            return Ok(kept);
        }
        for (page, addr) in pages.filter(|&(_, addr)| is_block(addr) && self.geo.in_main(addr)) {
            if segs.free.withheld(self.geo.segno(addr)).is_none() && segs.is_valid(&self.io, addr)? {
                kept.insert(page, addr);
            }
        }
        Ok(kept)
    }

    /// Gives a page that has no block yet the one back that it had before it was cut off.
    pub(crate) fn take_back_cut_off(&self, inode: &Inode, slot: &Slot, page: u64) {
        debug_assert_eq!(slot.addr(), NEW_ADDR, "its space is reserved");
        let mut blocks = self.since.cut_off.blocks.lock();
        let Some(addr) = blocks.get_mut(&inode.ino).and_then(|kept| kept.remove(&page)) else { return };
        self.since.cut_off.count.fetch_sub(1, Ordering::AcqRel);
        drop(blocks);
        self.set_addr(inode, slot, addr);
    }

    /// Frees what is kept of a file.
    pub(crate) fn free_cut_off(&self, ino: Ino) {
        self.free_kept(self.since.cut_off.take(ino).into_values());
    }

    /// Frees all that is kept.
    pub(crate) fn free_all_cut_off(&self) {
        let cut_off = &self.since.cut_off;
        if cut_off.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let all = std::mem::take(&mut *cut_off.blocks.lock());
        cut_off.count.fetch_sub(all.values().map(BTreeMap::len).sum(), Ordering::AcqRel);
        self.free_kept(all.into_values().flat_map(BTreeMap::into_values));
    }

    fn free_kept(&self, addrs: impl Iterator<Item = BlockAddr>) {
        for addr in addrs {
            self.ops.check_within();
            let freed = self.segs.lock().mark_invalid(&self.io, addr, self.elapsed());
            if let Err(error) = freed {
                self.note_damage("a block that was cut off stays in use", 0, &error.into());
            }
        }
    }
}
