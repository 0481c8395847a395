//! What cannot be as an inode says: content in the place of addresses, and junk in that of attributes.

use super::PastDamage;
use crate::error::Result;
use crate::types::FileKind;
use medfs_format::node::{ADDR_OFFSET, Inline};
use medfs_format::{Ino, is_block, xattr};

impl PastDamage<'_> {
    /// Whether a file without blocks has something else than addresses in their place: its content may be in the inode,
    /// which denies it, and zeros are read.
    pub fn has_strange_slots(&self, ino: Ino) -> Result<bool> {
        let inode = self.tree.inode(ino)?;
        if inode.is_inline() || inode.kind() != FileKind::Regular || inode.size() == 0 {
            return Ok(false);
        }
        let slots = self.tree.slots(&inode);
        let is_strange = |addr: u32| is_block(addr) && !self.tree.geo.in_main(addr);
        Ok(inode.raw(|r| {
            let is_alone = r.i_blocks.get() <= 1 + u64::from(r.i_xattr_nid.get() != 0);
            let addrs = &r.i_addr[slots.extra..slots.extra + slots.area()];
            is_alone && addrs.iter().any(|addr| is_strange(addr.get()))
        }))
    }

    /// Whether junk lies in the inode where its extended attributes were: none are read.
    pub fn has_junk_for_attributes(&self, ino: Ino) -> Result<bool> {
        let inode = self.tree.inode(ino)?;
        let inline = inode.raw(|r| r.inline());
        if !inline.contains(Inline::XATTR) || self.tree.is_delta_volume() {
            return Ok(false);
        }
        let range = self.tree.slots(&inode).inline_xattr_range();
        Ok(inode.node.read(|d| {
            // The end of a link's target, as `sload.f2fs` leaves it.
            let goes_on = inline.contains(Inline::DATA) && d.block.0[range.start.max(ADDR_OFFSET) - 1] != 0;
            !goes_on && xattr::is_junk(&d.block.0[range], |addr| self.tree.geo.in_main(addr))
        }))
    }
}
