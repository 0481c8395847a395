//! Extended attributes of recovered files: the area in the inode block and the xattr node.

use super::Replay;
use crate::error::Result;
use crate::map::inode::Inode;
use crate::map::xattr_area::XattrArea;
use medfs_format::Block;
use medfs_format::node::{Inline, RawInode, footer};
use medfs_format::path::XATTR_NODE_OFFSET;
use medfs_format::xattr::NODE_BYTES;
use medfs_store::Dirty;

impl Replay<'_> {
    /// Takes over the inline attributes of an inode block, and frees the xattr node where that block names none.
    /// The layouts agree already.
    pub(super) fn inline_xattr(&self, inode: &Inode, block: &Block) -> Result<()> {
        let tree = self.tree;
        let raw: &RawInode = block.view();
        let range = tree.slots(inode).inline_xattr_range();
        tree.nodes.update(&inode.node, Dirty::Full, |b| {
            b.0[range.clone()].copy_from_slice(&block.0[range]);
            let inode: &mut RawInode = b.view_mut();
            inode.i_inline = ((inode.inline() - Inline::XATTR) | (raw.inline() & Inline::XATTR)).bits();
        });
        if raw.i_xattr_nid.get() == 0 { XattrArea { map: tree, inode }.free_node() } else { Ok(()) }
    }

    /// Takes over an xattr node. Its node id is this volume's own: the one it had, or a new one.
    pub(super) fn xattr_node(&self, inode: &Inode, block: &Block) -> Result<()> {
        let tree = self.tree;
        let nid = inode.raw(|r| r.i_xattr_nid.get());
        let page = if nid != 0 {
            let page = tree.nodes.get(&tree.io, &tree.nat, nid)?;
            let offset = page.read(|d| footer(&d.block).node_offset());
            if page.ino != inode.ino || offset != XATTR_NODE_OFFSET {
                return Err(super::dentry::bad_inode(
                    inode.ino,
                    "i_xattr_nid",
                    format!("{nid} is not an xattr node of it"),
                ));
            }
            page
        } else {
            let page = tree.new_node(inode, XATTR_NODE_OFFSET, Block::ZERO)?;
            tree.edit(inode, Dirty::Full, |r| r.i_xattr_nid = page.nid.into());
            page
        };
        tree.nodes.update(&page, Dirty::Full, |b| b.0[..NODE_BYTES].copy_from_slice(&block.0[..NODE_BYTES]));
        Ok(())
    }
}
