//! Room in the logs: what the next checkpoint will take of it, and what is done where ordinary writing finds none.
//!
//! What was overwritten since the last checkpoint cannot be used again before the next one, so logs run out
//! of room long before the volume is full; then a checkpoint makes room, and cleaning where that does not
//! suffice.
//!
//! Invariant: ordinary writing leaves as many free segments as the next checkpoint may need
//! ([`Spare`](medfs_store::Spare)): what it will write is counted at the start of every operation, and
//! written before it becomes more than there is room for. Locks: none are held by callers; see
//! [`crate::upkeep::gc`].

use super::Gc;
use crate::error::{Error, Result};
use crate::file_ops::FileOps;
use medfs_format::BLOCKS_PER_SEG;
use medfs_store::FreeFor;

/// Logs that a checkpoint writes to: those of nodes, and of directories.
const LOGS_OF_A_CHECKPOINT: u32 = 4;
/// Dirty nodes and pages may be so many more before what a checkpoint needs is counted anew.
const COUNTED_EVERY: u64 = 256;
/// Most rounds of cleaning for one request for room.
const MOST_ROUNDS: u32 = 256;

/// Counts the free segments that the next checkpoint may need, and makes it where they may not be there later.
pub(super) fn keep_for_checkpoint(fs: &FileOps) -> Result<()> {
    let nodes = fs.nodes.dirty_count() as u64 + fs.space.counts().chain_nodes;
    let dirty = nodes + fs.pages.dirty() as u64;
    let segments = |blocks: u64| LOGS_OF_A_CHECKPOINT + blocks.div_ceil(BLOCKS_PER_SEG.into()) as u32;
    let free = {
        let mut segs = fs.segs.lock();
        if 2 * segments(dirty) <= segs.free.segments(FreeFor::Logs) {
            segs.kept_for_checkpoint = segments(dirty);
            return Ok(());
        }
        if segs.dirty_when_counted.abs_diff(dirty) < COUNTED_EVERY {
            return Ok(());
        }
        segs.free.segments(FreeFor::Logs)
    };
    let mut due = nodes + pages_of_checkpoint(fs);
    if due >= u64::from(BLOCKS_PER_SEG) && segments(due + u64::from(BLOCKS_PER_SEG)) > free {
        fs.checkpoint_now()?;
        due = 0;
    }
    let mut segs = fs.segs.lock();
    segs.kept_for_checkpoint = segments(due + COUNTED_EVERY);
    segs.dirty_when_counted = dirty;
    Ok(())
}

/// Dirty pages that a checkpoint writes.
fn pages_of_checkpoint(fs: &FileOps) -> u64 {
    let dirty = fs.inodes.dirty();
    let pages = dirty.iter().map(|inode| {
        let state = inode.lock.read();
        if state.goes_with_checkpoint(inode.kind(), fs.above.scope) {
            state.pages.dirty_len() as u64
        } else {
            0
        }
    });
    pages.sum()
}

impl Gc {
    /// Makes room for so many pages: by a checkpoint, which frees what was overwritten since the last one,
    /// and by cleaning. What pinned files keep goes last, one section after the other: pages that were accepted
    /// come first. `NoSpace` where that does not bring it. No lock is held.
    pub(super) fn find_room_for(&self, fs: &FileOps, blocks: u64) -> Result<()> {
        match self.gather_room_for(fs, blocks) {
            Err(Error::NoSpace) => {}
            found => return found,
        }
        while fs.placement.give_back_kept(&fs.store) {
            if fs.has_room_for(blocks) {
                return Ok(());
            }
        }
        Err(Error::NoSpace)
    }

    fn gather_room_for(&self, fs: &FileOps, blocks: u64) -> Result<()> {
        if fs.has_room_for(blocks) || (fs.placement.give_back(&fs.store) && fs.has_room_for(blocks)) {
            return Ok(());
        }
        fs.checkpoint_now()?;
        if fs.has_room_for(blocks) {
            return Ok(());
        }
        let mut cleaner = self.cleaner.lock();
        for _ in 0..MOST_ROUNDS {
            let before = fs.segs.lock().room_for_data(&fs.io, u64::MAX);
            cleaner.clean_sections(fs, super::SECTIONS_PER_CHECKPOINT)?;
            if fs.has_room_for(blocks) {
                return Ok(());
            }
            if fs.segs.lock().room_for_data(&fs.io, u64::MAX) <= before {
                break;
            }
        }
        cleaner.stuck.clear();
        Err(Error::NoSpace)
    }
}
