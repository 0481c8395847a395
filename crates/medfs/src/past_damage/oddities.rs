//! What cannot be as an inode says: content in the place of addresses, junk in that of attributes, and blocks behind
//! the end of a file.

use super::PastDamage;
use crate::error::Result;
use crate::types::FileKind;
use medfs_format::node::{FileFlags, Inline, MANY_BEHIND_END};
use medfs_format::path::max_pages;
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

    /// Whether a file without a checksum has many written pages behind its end, and no mark that says why.
    pub fn has_pages_behind_end(&self, ino: Ino) -> Result<bool> {
        let inode = self.tree.inode(ino)?;
        let has_checksums = self.tree.nodes.rules.checksum_seed().is_some();
        // Of a file that was cut to nothing, power may have been lost before its blocks went.
        let is_excused = inode.raw(|r| {
            r.may_reach_behind_end()
                || r.flags().contains(FileFlags::COMPR)
                || r.i_size.get() == 0
                || (has_checksums && r.extra_fits(12))
        });
        if is_excused || inode.is_inline() || inode.kind() != FileKind::Regular {
            return Ok(false);
        }
        let most = max_pages(self.tree.slots(&inode).fanout());
        let (mut index, mut count, mut last) = (inode.pages(), 0, None);
        while index < most {
            let Some(slot) = self.tree.find_slot(&inode, index)? else {
                index = self.tree.next_existing(&inode, index)?.max(index + 1);
                continue;
            };
            let addrs = slot.addrs(usize::MAX);
            count += addrs.iter().filter(|&&addr| is_block(addr)).count() as u64;
            last = addrs.iter().rev().copied().find(|&addr| is_block(addr)).or(last);
            index += addrs.len().max(1) as u64;
        }
        let was_pinned = last.is_some_and(|addr| self.tree.geo.ends_segment(addr));
        Ok(count >= MANY_BEHIND_END && !was_pinned)
    }

    /// Whether junk lies in the inode where its extended attributes were: none are read.
    pub fn has_junk_for_attributes(&self, ino: Ino) -> Result<bool> {
        let inode = self.tree.inode(ino)?;
        let has_area = inode.raw(|r| r.inline().contains(Inline::XATTR));
        if !has_area || self.tree.is_delta_volume() {
            return Ok(false);
        }
        let slots = self.tree.slots(&inode);
        Ok(inode.node.read(|d| {
            let area = &d.block.0[slots.inline_xattr_range()];
            let goes_on = d.inode().content_meets_attributes(slots);
            !goes_on && xattr::is_junk(area, |addr| self.tree.geo.in_main(addr))
        }))
    }
}
