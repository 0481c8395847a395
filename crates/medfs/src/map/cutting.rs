//! Keeping blocks that a truncation takes from a file ([`super::cut_off`]), giving them back to the file's pages, and
//! freeing them.
//!
//! Locks: the inode's, exclusive, and the operation lock; to free all, the operation lock alone.

use crate::error::Result;
use crate::map::Map;
use crate::map::cut_off::CutOff;
use crate::map::inode::Inode;
use crate::map::node_tree::Slot;
use medfs_format::{BlockAddr, Ino, NEW_ADDR, NULL_ADDR, SegNo, is_block};
use medfs_store::FreeFor;
use std::collections::{BTreeMap, BTreeSet};

/// Pages of a file up to which a truncation keeps their blocks: what is written anew as a whole is small.
const MOST_OF_A_FILE: u64 = 64;
/// Blocks kept of all files. They are in use though their space counts as free.
const MOST: usize = 256;
/// Free segments below which none is kept.
const LEAST_FREE: u32 = 16;

impl CutOff {
    /// Before a file is cut at page `from`: takes the blocks behind it out of the inode's slots and keeps them, where
    /// they are few. What is kept of the file from before is freed.
    pub(crate) fn keep(&self, map: &Map, inode: &Inode, from: u64) -> Result<()> {
        map.ops.check_within();
        self.free(map, inode.ino);
        let pages = inode.pages();
        let slots = map.slots(inode);
        if pages > MOST_OF_A_FILE.min(slots.addrs() as u64) || from >= pages {
            return Ok(());
        }
        let first = map.make_slot(inode, from)?;
        let addrs = first.addrs((pages - from) as usize);
        let kept = may_be_kept(map, (from..).zip(addrs))?;
        if kept.is_empty() || self.count() + kept.len() > MOST {
            return Ok(());
        }
        for &page in kept.keys() {
            let slot = map.make_slot_near(inode, Some(&first), page)?;
            map.set_addr(inode, &slot, NULL_ADDR);
        }
        map.space.release(kept.len() as u64);
        map.add_blocks(inode, -(kept.len() as i64));
        let segments: BTreeSet<SegNo> = kept.values().map(|&addr| map.geo.segno(addr)).collect();
        self.put(inode.ino, kept);
        // Cleaning that has begun meanwhile may have looked before they were here.
        let is_cleaned = |segno: &SegNo| map.segs.lock().free.withheld(*segno).is_some();
        if segments.iter().any(is_cleaned) {
            self.free(map, inode.ino);
        }
        Ok(())
    }

    /// Gives a page that has no block yet the one back that it had before it was cut off.
    pub(crate) fn take_back(&self, map: &Map, inode: &Inode, slot: &Slot, page: u64) {
        debug_assert_eq!(slot.addr(), NEW_ADDR, "its space is reserved");
        if let Some(addr) = self.take_page(inode.ino, page) {
            map.set_addr(inode, slot, addr);
        }
    }

    /// Frees what is kept of a file.
    pub(crate) fn free(&self, map: &Map, ino: Ino) {
        free_kept(map, self.take(ino).into_values());
    }

    /// Frees all that is kept.
    pub(crate) fn free_all(&self, map: &Map) {
        free_kept(map, self.take_all().into_iter());
    }
}

/// Those of some pages' blocks that stay in use where no slot names them: they are valid, and nobody empties their
/// segments.
fn may_be_kept(map: &Map, pages: impl Iterator<Item = (u64, BlockAddr)>) -> Result<BTreeMap<u64, BlockAddr>> {
    let mut kept = BTreeMap::new();
    let mut segs = map.segs.lock();
    if segs.free.segments(FreeFor::Logs) < LEAST_FREE {
        return Ok(kept);
    }
    for (page, addr) in pages.filter(|&(_, addr)| is_block(addr) && map.geo.in_main(addr)) {
        if segs.free.withheld(map.geo.segno(addr)).is_none() && segs.is_valid(&map.io, addr)? {
            kept.insert(page, addr);
        }
    }
    Ok(kept)
}

fn free_kept(map: &Map, addrs: impl Iterator<Item = BlockAddr>) {
    for addr in addrs {
        map.ops.check_within();
        let freed = map.segs.lock().mark_invalid(&map.io, addr, map.elapsed());
        if let Err(error) = freed {
            map.note_damage("a block that was cut off stays in use", 0, &error.into());
        }
    }
}
