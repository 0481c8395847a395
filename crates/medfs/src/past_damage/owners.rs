//! Whose the blocks are that files name, as the summaries and the SIT say.

use crate::error::Result;
use crate::map::node_tree::Slot;
use crate::tree::Tree;
use medfs_format::node::{RawDirectNode, RawInode};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::summary::{RawSummaryBlock, SUM_TYPE_DATA};
use medfs_format::{BlockAddr, FormatError, Nid, SegNo, Structure};
use medfs_store::node_offset;

/// The summaries that say whose the blocks are: that of the segment in hand.
#[derive(Default)]
pub(super) struct Owners(Option<(SegNo, Box<RawSummaryBlock>)>);

impl Owners {
    /// `Corrupt` where the block of a slot is another one's: its summary names that, and it names the block too. One
    /// of the two addresses has a flipped bit, and it is not the one that the summary knows. So it is where the summary
    /// names another one and the block is free.
    pub(super) fn check(&mut self, tree: &Tree, slot: &Slot) -> Result<()> {
        let addr = slot.addr();
        if !tree.geo.in_main(addr) {
            return Ok(());
        }
        let (segno, at) = (tree.geo.segno(addr), tree.geo.offset_in_seg(addr) as usize);
        if self.0.as_ref().is_none_or(|(held, _)| *held != segno) {
            // Where it cannot be read, nobody contradicts.
            let Ok(summary) = tree.segs.lock().summary(&tree.io, segno) else { return Ok(()) };
            self.0 = Some((segno, summary));
        }
        let Some((_, summary)) = &self.0 else { return Ok(()) };
        let (entry, own) = (&summary.entries[at], (slot.node.nid, slot.offset));
        let (nid, offset) = (entry.nid.get(), entry.ofs_in_node.get());
        if summary.footer.entry_type != SUM_TYPE_DATA || (nid, offset) == own {
            return Ok(());
        }
        let value = if tree.geo.is_nid(nid) && names(tree, (nid, offset), addr).unwrap_or(false) {
            format!("{addr}, a block of node {nid} (entry {offset})")
        } else if is_free(tree, addr)? {
            format!("{addr}, a free block")
        } else {
            return Ok(());
        };
        Err(FormatError::corrupt(Structure::DirectNode, slot.node.nid, "address", value).into())
    }
}

/// Whether a block is known to be in no use.
fn is_free(tree: &Tree, addr: BlockAddr) -> Result<bool> {
    let mut segs = tree.segs.lock();
    Ok(!tree.has_lost_use_of(&mut segs, addr) && !segs.is_valid(&tree.io, addr)?)
}

/// Whether a slot of a node names a block. Only the node is looked at: the caller may hold its file's lock.
fn names(tree: &Tree, (nid, offset): (Nid, u16), addr: BlockAddr) -> Result<bool> {
    let node = tree.nodes.get(&tree.io, &tree.nat, nid)?;
    let kind = node_kind(node_offset(&node));
    Ok(node.read(|d| match kind {
        NodeKind::Inode => {
            let inode: &RawInode = d.block.view();
            let slots = inode.possible_slots(tree.flexible_inline_xattr());
            let slots = slots.filter(|slots| usize::from(offset) < slots.addrs());
            slots.is_some_and(|slots| inode.i_addr[slots.extra + usize::from(offset)].get() == addr)
        }
        NodeKind::Direct => {
            let node: &RawDirectNode = d.block.view();
            node.addr.get(usize::from(offset)).is_some_and(|held| held.get() == addr)
        }
        NodeKind::Indirect | NodeKind::Xattr => false,
    }))
}
