//! The area of an inode's extended attributes: the inline part in the inode block, then an xattr node, which
//! exists while the inline part is too small. Both parts change in one operation.
//!
//! Invariants: entries of name spaces that are not known are kept as they are, and come first in the area.
//! The size of the inline part is not changed here.
//! Locks: called with the inode's lock held, exclusive to change, which needs its `wb` (an fsync may be
//! writing the xattr node) and the operation lock too.
//! Kernel counterpart: `xattr.c`.

use crate::error::{Posix, Result};
use crate::map::Map;
use crate::map::inode::Inode;
use medfs_format::node::{Inline, RawInode};
use medfs_format::path::XATTR_NODE_OFFSET;
use medfs_format::xattr::{self, NODE_BYTES, NameIndex, XattrEntry};
use medfs_format::{Block, FormatError, Nid, Structure};
use medfs_store::{Dirty, NodePage, node_offset};
use std::ops::Range;
use std::sync::Arc;

/// The extended attributes of an inode, as they are stored.
#[derive(Clone, Copy)]
pub(crate) struct XattrArea<'a> {
    pub(crate) map: &'a Map,
    pub(crate) inode: &'a Inode,
}

impl XattrArea<'_> {
    /// Bytes of the inode block that hold the inline part; empty where there is none.
    pub(crate) fn inline_range(self) -> Range<usize> {
        let inode = self.inode;
        let range = self.map.slots(inode).inline_xattr_range();
        if inode.raw(|r| r.inline().contains(Inline::XATTR)) { range } else { range.end..range.end }
    }

    /// All entries of an inode, unknown ones too.
    pub(crate) fn read(self) -> Result<Vec<XattrEntry>> {
        let (inode, inline) = (self.inode, self.inline_range());
        let (mut area, nid) = inode.node.read(|d| (d.block.0[inline].to_vec(), d.inode().i_xattr_nid.get()));
        if nid != 0 {
            let node = self.node(nid)?;
            node.read(|d| area.extend_from_slice(&d.block.0[..NODE_BYTES]));
        }
        let mut entries = xattr::parse(&area, inode.ino.into())?;
        for entry in &mut entries {
            entry.index = entry.unflipped_index(inode.is_dir()).unwrap_or(entry.index);
        }
        Ok(entries)
    }

    /// Replaces all entries of an inode: in the inode block where they fit, else with an xattr node. `TooBig` where
    /// they fit neither way. Nothing has changed where it fails.
    pub(crate) fn write(self, mut entries: Vec<XattrEntry>) -> Result<()> {
        let (map, inode, inline) = (self.map, self.inode, self.inline_range());
        entries.sort_by_key(|e| is_known(e.index));
        let mut area = vec![0; inline.len()];
        if xattr::write(&mut area, &entries) || entries.is_empty() {
            self.free_node()?;
        } else {
            area.resize(inline.len() + NODE_BYTES, 0);
            if !xattr::write(&mut area, &entries) {
                return Err(Posix::TooBig.into());
            }
            let rest = &area[inline.len()..];
            let nid = inode.raw(|r| r.i_xattr_nid.get());
            if nid != 0 {
                let node = self.node(nid)?;
                map.nodes.update(&node, Dirty::Full, |b| b.0[..NODE_BYTES].copy_from_slice(rest));
            } else {
                let mut content = Block::ZERO;
                content.0[..NODE_BYTES].copy_from_slice(rest);
                let node = map.new_node(inode, XATTR_NODE_OFFSET, content)?;
                map.edit(inode, Dirty::Full, |r| r.i_xattr_nid = node.nid.into());
            }
        }
        map.nodes.update(&inode.node, Dirty::Full, |b| {
            let len = inline.len();
            b.0[inline].copy_from_slice(&area[..len]);
        });
        if inode.is_dir() {
            // What is made in the directory may depend on its attributes: an fsync of that must find them durable.
            map.since.note_changed_dir(inode.ino);
        }
        Ok(())
    }

    /// The xattr node of an inode, checked to be its own.
    fn node(self, nid: Nid) -> Result<Arc<NodePage>> {
        let (map, inode) = (self.map, self.inode);
        let node = map.nodes.get(&map.io, &map.nat, nid)?;
        if node.ino != inode.ino || node_offset(&node) != XATTR_NODE_OFFSET {
            let found = format!("{nid}, a node of inode {} at offset {:#x}", node.ino, node_offset(&node));
            return Err(FormatError::corrupt(Structure::Inode, inode.ino, "i_xattr_nid", found).into());
        }
        Ok(node)
    }

    /// Frees the xattr node, where there is one.
    pub(crate) fn free_node(self) -> Result<()> {
        let (map, inode) = (self.map, self.inode);
        let nid = inode.raw(|r| r.i_xattr_nid.get());
        if nid != 0 {
            self.node(nid)?;
            map.free_node(inode.ino, nid)?;
            map.nodes.update(&inode.node, Dirty::Full, |b| b.view_mut::<RawInode>().i_xattr_nid = 0.into());
            map.add_blocks(inode, -1);
        }
        Ok(())
    }
}

/// Whether F2FS has a name space with this index.
fn is_known(index: u8) -> bool {
    use NameIndex::*;
    [User, PosixAclAccess, PosixAclDefault, Trusted, Lustre, Security, Advise, Encryption, Verity]
        .into_iter()
        .any(|known| known as u8 == index)
}
