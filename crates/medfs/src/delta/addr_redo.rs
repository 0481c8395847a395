//! Noted addresses: an fsync that writes a file's inode need not write its direct nodes.
//!
//! What the fsync changed of their addresses is noted in the inode block, behind the records of the delta
//! zone, and roll-forward takes it from there. The next checkpoint writes the nodes.
//!
//! Invariants:
//! - Notes exist in blocks on the device alone: a block gets those of the fsync that writes it, or none
//!   ([`medfs_store::NodeRules::write_notes`]).
//! - A node whose changes are noted differs from its block by these alone. It stays dirty, as
//!   [`Dirty::Noted`](medfs_store::Dirty), so the next checkpoint writes it; an fsync that writes it for
//!   other reasons comes later in the chain.
//! - Each note is in one block of the chain: roll-forward reads all of them, in order.
//!
//! Locks: called with the inode's lock held, exclusive, and the operation lock.

use super::zone::Zone;
use medfs_format::delta::{RawNote, ZONE_HEADER_SIZE, notes_size};
use medfs_format::node::RawDirectNode;
use medfs_format::path::first_page;
use medfs_format::{BlockAddr, is_block};
use medfs_store::{NodePage, node_offset};
use std::sync::Arc;

/// Bytes that records leave free for notes in the zone of a file with direct nodes.
pub(super) const NOTES_ROOM: usize = notes_size(4);

/// Notes for an inode block, and the nodes that need not be written because of them.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) notes: Vec<RawNote>,
    pub(crate) nodes: Vec<Arc<NodePage>>,
}

impl Zone<'_> {
    /// Notes what changed of a file's direct nodes, as far as there is room, where that is true of `fewest`
    /// nodes at least: these are not due any more. The inode block that is about to be written must get the
    /// notes.
    pub(crate) fn addr_redo(&self, fewest: usize) -> Notes {
        let mut taken = Notes::default();
        let room = match self.zone_header(self.inode) {
            Ok(Some(header)) if self.deltas.notes => self.room().saturating_sub(header.used.get().into()),
            _ => return taken,
        };
        let fanout = self.slots(self.inode).fanout();
        for (page, changed) in self.nodes.changed_addresses(self.inode.ino) {
            let Some(first) = first_page(node_offset(&page), fanout) else { continue };
            let Some(new) = page.read(|d| runs(first, &changed, d.block.view())) else { continue };
            if notes_size(taken.notes.len() + new.len()) <= room {
                taken.notes.extend(new);
                taken.nodes.push(page);
            }
        }
        if taken.nodes.len() < fewest {
            return Notes::default();
        }
        taken.nodes.iter().for_each(|page| self.nodes.mark_noted(page));
        taken
    }

    /// Bytes that a new record must leave free in a file's zone.
    pub(super) fn room_for_notes(&self, nodes: bool) -> usize {
        if nodes && self.deltas.notes { NOTES_ROOM } else { 0 }
    }
}

/// The changed addresses of a direct node as notes; `None` where the pages have no number.
fn runs(first: u64, changed: &[u16], node: &RawDirectNode) -> Option<Vec<RawNote>> {
    let mut changed = changed.to_vec();
    changed.sort_unstable();
    let mut runs: Vec<RawNote> = Vec::new();
    for slot in changed {
        let page = u32::try_from(first + u64::from(slot)).ok()?;
        let addr = node.addr[usize::from(slot)].get();
        match runs.last_mut() {
            Some(run)
                if page == run.page.get() + u32::from(run.len.get())
                    && addr == noted_addr(run, run.len.get()) =>
            {
                run.len += 1;
            }
            _ => runs.push(RawNote { page: page.into(), addr: addr.into(), len: 1.into() }),
        }
    }
    Some(runs)
}

/// The address of the `n`th page of a note.
pub(crate) fn noted_addr(note: &RawNote, n: u16) -> BlockAddr {
    let first = note.addr.get();
    if is_block(first) { first.saturating_add(n.into()) } else { first }
}

const _: () = assert!(ZONE_HEADER_SIZE + NOTES_ROOM < 128, "the smallest zone has room for notes");

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_format::{Block, NEW_ADDR, NULL_ADDR};

    #[test]
    fn neighbours_share_a_note() {
        let mut block = Block::ZERO;
        let node: &mut RawDirectNode = block.view_mut();
        for (slot, addr) in [(3, 900), (4, 901), (5, 903), (9, NEW_ADDR), (10, NEW_ADDR), (11, NULL_ADDR)] {
            node.addr[slot] = addr.into();
        }
        let runs = runs(1000, &[10, 4, 3, 9, 5, 11], node).unwrap();
        let plain: Vec<_> = runs.iter().map(|r| (r.page.get(), r.addr.get(), r.len.get())).collect();
        assert_eq!(plain, [(1003, 900, 2), (1005, 903, 1), (1009, NEW_ADDR, 2), (1011, NULL_ADDR, 1)]);
        assert_eq!((noted_addr(&runs[0], 1), noted_addr(&runs[2], 1)), (901, NEW_ADDR));
    }
}
