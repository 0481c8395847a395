//! What of an inode needs no walk: its extended attributes, and what only its whole walk shows.

use crate::acls;
use crate::address::node_home;
use crate::attributes::{
    clear_lone_bit, drop_impossible, is_junk, judge_encryption, part_twins, turn_bit_back,
};
use crate::evidence::note_doubt;
use crate::file::FileWalk;
use crate::finding::Code;
use crate::judgement::Judgement;
use crate::sizes::judge_size;
use medfs_device::Cause;
use medfs_format::node::{FileKind, Inline, RawExtent, RawInode};
use medfs_format::path::XATTR_NODE_OFFSET;
use medfs_format::xattr;
use std::io;
use zerocopy::IntoBytes;

impl Judgement<'_> {
    pub(crate) fn xattrs(&mut self, f: &mut FileWalk, inode: &mut RawInode) -> io::Result<()> {
        let place = format!("inode {} (xattrs)", f.ino);
        let nid = node_home(self, f.ino, inode.i_xattr_nid.get(), XATTR_NODE_OFFSET, &place)?;
        inode.i_xattr_nid = nid.into();
        let mut node = None;
        if nid != 0 {
            node = self.child(f, nid, XATTR_NODE_OFFSET, &place)?;
            if node.is_none() {
                inode.i_xattr_nid = 0.into();
            }
        }
        let inline = if inode.inline().contains(Inline::XATTR) {
            inode.slots(self.rules.flexible()).inline_xattr_range()
        } else {
            0..0
        };
        let mut area = inode.as_bytes()[inline.clone()].to_vec();
        let inline_len = area.len();
        if let Some((_, block)) = &node {
            area.extend_from_slice(&block.0[..xattr::NODE_BYTES]);
        }
        let junk = is_junk(self, f.ino, inode, &area);
        let mut turned = clear_lone_bit(self, f.ino, inode, &mut area);
        turned |= !self.has_zones() && turn_bit_back(f.ino, &mut area, &mut self.findings);
        let (mut good, error) = xattr::parse_prefix(&area, u64::from(f.ino));
        if let Some(error) = &error {
            let text = format!("inode {}: {error}: the extended attributes from there on are lost", f.ino);
            self.findings.add(Code::Xattr, text);
        }
        let is_headless = error.is_none() && xattr::has_wrong_header(&area);
        if is_headless {
            let what = "xattrs have another magic than F2FS's: Linux shows none, and a repair writes it anew";
            self.findings.add(Code::Xattr, format!("inode {}: {what}", f.ino));
        }
        let ends_early = error.is_none() && xattr::has_more_behind_end(&area, &good);
        if ends_early {
            let what = "bytes behind the end of the xattrs: a part of the list is zeros, and those behind it are lost";
            self.findings.add(Code::Xattr, format!("inode {}: {what}", f.ino));
        }
        turned |= acls::turn_indices_back(f.ino, inode, &mut good, &mut self.findings);
        let acls = acls::judge(f.ino, inode, &mut good, &mut self.findings);
        let drops = !self.has_zones() && drop_impossible(f.ino, &mut good, &mut self.findings);
        let twins = part_twins(f.ino, &mut good, area.len(), &mut self.findings);
        turned |= twins.renamed;
        let is_node_lost = nid != 0 && node.is_none();
        let is_lossy = error.is_some() || ends_early || acls.lost || junk || drops || twins.dropped;
        if is_lossy || is_node_lost {
            self.losses.attributes += 1;
            self.cuts.add_attributes(f.ino);
        }
        judge_encryption(self, f.ino, inode, &good);
        let is_sound = !is_lossy && !is_headless && !turned && !acls.changed;
        if !self.place_zone(f, inode, &mut good, inline_len) && is_sound {
            return Ok(());
        }
        if !xattr::write(&mut area, &good) {
            area.fill(0);
        }
        inode.as_mut_bytes()[inline].copy_from_slice(&area[..inline_len]);
        if let Some((addr, mut block)) = node {
            block.0[..xattr::NODE_BYTES].copy_from_slice(&area[inline_len..]);
            self.write(addr, &block, Cause::Node)?;
        }
        Ok(())
    }

    /// What only the whole walk of an inode shows: counts, extent, links, sizes.
    pub(crate) fn settle(
        &mut self,
        f: &mut FileWalk,
        inode: &mut RawInode,
        kind: FileKind,
    ) -> io::Result<()> {
        let ino = f.ino;
        if inode.i_blocks.get() != f.blocks {
            self.findings.add(
                Code::InodeBlocks,
                format!("inode {ino}: i_blocks is {}, but it has {}", inode.i_blocks, f.blocks),
            );
            if inode.i_blocks.get() > f.blocks && !f.cut && f.lost == 0 {
                self.short.insert(ino);
            }
            inode.i_blocks = f.blocks.into();
        }
        self.settle_saved(f, inode);
        let stale = f.extent_hits != f.extent.len.get();
        if stale && !f.cut {
            self.findings.add(
                Code::InodeExtent,
                format!(
                    "inode {ino}: cached extent (page {}, block {}, {} blocks) is not what the addresses say",
                    f.extent.fofs, f.extent.blk, f.extent.len
                ),
            );
        }
        if stale || f.cut {
            inode.i_ext = RawExtent::default();
        }
        if kind == FileKind::Regular {
            judge_size(self, f, inode)?;
        }
        if let Some(dir) = f.dir.take() {
            self.settle_dir(&dir, f.last_page, inode, ino);
        }
        if f.doubtful {
            note_doubt(self, ino, inode);
        }
        Ok(())
    }
}
