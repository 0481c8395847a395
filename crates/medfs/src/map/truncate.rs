//! Freeing what lies below a node of a file, from a page on.
//!
//! Invariant: a node is freed after everything below it, and before the one above stops naming it.
//! Locks: the inode's, exclusive, and the operation lock.

use crate::error::Result;
use crate::map::Map;
use crate::map::inode::Inode;
use crate::map::node_tree::{Slot, child_offset, read_nid, span};
use medfs_format::node::{NIDS_PER_BLOCK, RawIndirectNode};
use medfs_format::{Block, Nid};
use medfs_store::{Dirty, NodePage, node_offset};
use std::ops::Deref;
use std::sync::Arc;

/// A file that loses nodes.
#[derive(Clone, Copy)]
pub(super) struct Cut<'a> {
    pub(super) map: &'a Map,
    pub(super) inode: &'a Inode,
}

impl Deref for Cut<'_> {
    type Target = Map;

    fn deref(&self) -> &Map {
        self.map
    }
}

impl Cut<'_> {
    /// Frees what lies from page `from` on (counted inside the subtree) below an indirect or direct node.
    pub(super) fn truncate_subtree(&self, page: &Arc<NodePage>, level: u32, from: u64) -> Result<()> {
        let slots = self.slots(self.inode);
        if level == 0 {
            return self.free_addresses(page, from as usize);
        }
        let below = span(slots.fanout(), level - 1);
        let offset = node_offset(page);
        for i in (from / below) as usize..NIDS_PER_BLOCK {
            let nid = read_nid(page, i);
            if nid == 0 {
                continue;
            }
            let child = self.child(self.inode, nid, child_offset(offset, level - 1, i))?;
            let start = i as u64 * below;
            if from <= start {
                self.note_cut(nid)?;
                self.free_subtree(&child, level - 1)?;
                self.nodes.update(page, Dirty::Full, |b| b.view_mut::<RawIndirectNode>().nid[i] = 0.into());
            } else {
                self.truncate_subtree(&child, level - 1, from - start)?;
            }
        }
        Ok(())
    }

    /// Frees what a direct node addresses from its page `from` on.
    pub(super) fn free_addresses(&self, page: &Arc<NodePage>, from: usize) -> Result<()> {
        let pages = self.slots(self.inode).addrs_per_block();
        let slot = Slot { node: page.clone(), array_index: from, offset: from as u16, first_page: 0, pages };
        self.free_slots(self.inode, &slot, pages - from).map(drop)
    }

    /// Frees a node and everything below it; the caller then takes it out of the one above. An error leaves
    /// it there with what is not freed yet. The recursion is at most three deep.
    pub(super) fn free_subtree(&self, page: &Arc<NodePage>, level: u32) -> Result<()> {
        if level == 0 {
            self.free_addresses(page, 0)?;
        } else {
            let offset = node_offset(page);
            for i in 0..NIDS_PER_BLOCK {
                let nid = read_nid(page, i);
                if nid != 0 {
                    let child = self.child(self.inode, nid, child_offset(offset, level - 1, i))?;
                    self.free_subtree(&child, level - 1)?;
                    let taken = |b: &mut Block| b.view_mut::<RawIndirectNode>().nid[i] = 0.into();
                    self.nodes.update(page, Dirty::Full, taken);
                }
            }
        }
        self.free_node(self.inode.ino, page.nid)?;
        self.add_blocks(self.inode, -1);
        Ok(())
    }

    /// Notes that a subtree which the last checkpoint knows goes: see
    /// [`SinceCheckpoint`](crate::map::since::SinceCheckpoint).
    pub(super) fn note_cut(&self, nid: Nid) -> Result<()> {
        if self.nat.get(&self.io, nid)?.checkpointed {
            self.since.cut_trees.lock().insert(self.inode.ino);
        }
        Ok(())
    }
}
