//! Reading what pages were, before deltas are made of them: many at once.
//!
//! Whoever changes pages that are neighbours has them compared with blocks that are, or almost. One request
//! for all of them takes hardly longer than one for each, so they are read together before the first is asked
//! for.
//! Invariant: what is gathered is a hint. A base that cannot be read is not among it.
//! Locks: the inode's, exclusive.

use super::layer::DeltaPages;
use crate::content::page_io::{read_bases, requests};
use crate::content::page_plan::Decide;
use crate::map::inode::Inode;
use crate::map::node_tree::Slot;
use medfs_format::{Block, NULL_ADDR, is_block};
use std::collections::HashMap;
use std::sync::Arc;

impl DeltaPages<'_> {
    /// The bases of those of these pages that are about to be compared with their own blocks.
    pub(crate) fn gather_bases(
        &self,
        inode: &Inode,
        indices: &[u64],
        about: &Decide<'_>,
    ) -> HashMap<u64, Arc<Block>> {
        let mut gathered = HashMap::new();
        if indices.len() < 2 || !self.compares_with_blocks(inode, about) {
            return gathered;
        }
        let (mut wanted, mut near) = (Vec::new(), None);
        for &index in indices.iter().filter(|&&index| !self.is_compact_page(inode, index)) {
            let Ok(slot) = self.find_slot_near(inode, near.as_ref(), index) else { continue };
            near = slot;
            let addr = near.as_ref().map_or(NULL_ADDR, Slot::addr);
            if self.check_addr(inode, index, addr).is_err() {
                continue;
            }
            match self.base_cache.get(addr) {
                Some(base) => drop(gathered.insert(index, base)),
                None if is_block(addr) => wanted.push((addr, index)),
                None => {}
            }
        }
        wanted.sort_unstable();
        for near in requests(&wanted) {
            read_bases(self, near, |index, base| drop(gathered.insert(index, base)));
        }
        gathered
    }

    /// Whether pages of this file will be compared with their own blocks whether these are in memory or not.
    fn compares_with_blocks(&self, inode: &Inode, about: &Decide<'_>) -> bool {
        let repeats = || self.deltas.repeats && self.class(inode).is_journal();
        about.deltas
            && about.inode_due
            && about.batch.dirty_pages <= self.most_dirty(inode)
            && self.deltas.alone.is_none()
            && self.makes_records(inode)
            && !repeats()
    }
}
