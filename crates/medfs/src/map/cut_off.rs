//! Blocks that a truncation took from a file, kept valid until the file is durable without them: a program that
//! truncates its file and writes it anew changes little of it, and the new pages can be made from the old blocks.
//! [`super::cutting`] keeps and frees them.
//!
//! Invariants:
//! 1. A block in here is valid in the SIT, and no slot names it. Its space counts as free.
//! 2. None is left when a checkpoint writes the SIT, when an fsync of its file has placed the file's pages, when its
//!    file is freed, and when its section is cleaned.
//! 3. Where power is lost, the file's last durable inode names the block still, or none does.
//!
//! Locks: one mutex, a leaf.

use medfs_format::{BlockAddr, Ino};
use medfs_sync::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct CutOff {
    blocks: Mutex<HashMap<Ino, BTreeMap<u64, BlockAddr>>>,
    count: AtomicUsize,
}

impl CutOff {
    /// How many blocks are kept.
    pub(super) fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// The block that a page of a file had before it was cut off.
    pub(crate) fn of(&self, ino: Ino, page: u64) -> Option<BlockAddr> {
        if self.count() == 0 {
            return None;
        }
        self.blocks.lock().get(&ino)?.get(&page).copied()
    }

    /// Keeps blocks of a file of which none are kept.
    pub(super) fn put(&self, ino: Ino, kept: BTreeMap<u64, BlockAddr>) {
        self.count.fetch_add(kept.len(), Ordering::AcqRel);
        self.blocks.lock().insert(ino, kept);
    }

    /// Takes out the block of one page.
    pub(super) fn take_page(&self, ino: Ino, page: u64) -> Option<BlockAddr> {
        let addr = self.blocks.lock().get_mut(&ino)?.remove(&page)?;
        self.count.fetch_sub(1, Ordering::AcqRel);
        Some(addr)
    }

    /// Takes out all blocks of a file.
    pub(super) fn take(&self, ino: Ino) -> BTreeMap<u64, BlockAddr> {
        if self.count() == 0 {
            return BTreeMap::new();
        }
        let taken = self.blocks.lock().remove(&ino).unwrap_or_default();
        self.count.fetch_sub(taken.len(), Ordering::AcqRel);
        taken
    }

    /// Takes out all blocks.
    pub(super) fn take_all(&self) -> Vec<BlockAddr> {
        if self.count() == 0 {
            return Vec::new();
        }
        let all = std::mem::take(&mut *self.blocks.lock());
        let all: Vec<BlockAddr> = all.into_values().flat_map(BTreeMap::into_values).collect();
        self.count.fetch_sub(all.len(), Ordering::AcqRel);
        all
    }
}
