//! Content of recovered files: attributes, layout, inline data and block addresses.

use super::dentry::bad_inode;
use super::{RECOVERED_LOG, Replay};
use crate::delta::addr_redo::noted_addr;
use crate::error::{Error, Result};
use crate::map::inode::Inode;
use crate::map::node_tree::{Slot, subtree};
use medfs_format::node::{
    Advise, FileFlags, FileKind, Inline, RawDirectNode, RawExtent, RawExtraAttr, RawInode,
};
use medfs_format::node::{footer, validate_footer};
use medfs_format::path::{NodePath, first_page, max_pages};
use medfs_format::summary::Log;
use medfs_format::{
    BLOCK_SIZE, Block, BlockAddr, COMPRESS_ADDR, FormatError, Ino, NULL_ADDR, Structure, is_block,
};
use medfs_store::Dirty;
use std::mem::offset_of;
use std::sync::Arc;

/// Ends of fields inside the extra attributes.
const XATTR_SIZE_END: usize = offset_of!(RawExtraAttr, i_projid);
const PROJECT_END: usize = offset_of!(RawExtraAttr, i_inode_checksum);
const CRTIME_END: usize = offset_of!(RawExtraAttr, i_compr_blocks);
const COMPRESSION_END: usize = size_of::<RawExtraAttr>();
/// Inline flags that say something of the content rather than of the layout.
const CONTENT_FLAGS: Inline = Inline::PIN_FILE.union(Inline::DATA_EXIST).union(Inline::COMPRESS_RELEASED);

/// What a new inode takes over from its first fsynced block: what never changes later, and its layout.
pub(super) fn copy_identity(from: &RawInode, to: &mut RawInode) {
    to.i_mode = from.i_mode;
    to.i_uid = from.i_uid;
    to.i_gid = from.i_gid;
    to.i_links = 1.into();
    to.i_blocks = 1.into();
    to.i_generation = from.i_generation;
    to.i_pino = from.i_pino;
    to.i_namelen = from.i_namelen;
    to.i_name = from.i_name;
    to.i_dir_level = from.i_dir_level;
    to.i_inline = (from.inline() & (Inline::XATTR | Inline::EXTRA_ATTR)).bits();
    if let (Some(f), Some(t)) = (from.extra(), to.extra_mut()) {
        t.i_extra_isize = f.i_extra_isize;
        if from.extra_fits(XATTR_SIZE_END) {
            t.i_inline_xattr_size = f.i_inline_xattr_size;
        }
        if from.extra_fits(CRTIME_END) {
            t.i_crtime = f.i_crtime;
            t.i_crtime_nsec = f.i_crtime_nsec;
        }
    }
}

/// Takes over the attributes that an fsync makes durable. Links, names and the content's place are not among them.
fn copy_attributes(from: &RawInode, to: &mut RawInode) {
    to.i_mode = from.i_mode;
    to.i_advise = from.i_advise;
    to.i_inline = ((to.inline() - CONTENT_FLAGS) | (from.inline() & CONTENT_FLAGS)).bits();
    to.i_uid = from.i_uid;
    to.i_gid = from.i_gid;
    to.i_size = from.i_size;
    to.i_atime = from.i_atime;
    to.i_ctime = from.i_ctime;
    to.i_mtime = from.i_mtime;
    to.i_atime_nsec = from.i_atime_nsec;
    to.i_ctime_nsec = from.i_ctime_nsec;
    to.i_mtime_nsec = from.i_mtime_nsec;
    to.i_flags = from.i_flags;
    // A regular file counts failed cleanings here.
    to.i_current_depth = from.i_current_depth;
    to.i_ext = RawExtent::default();
    if let (Some(f), Some(t)) = (from.extra(), to.extra_mut())
        && from.extra_fits(PROJECT_END)
    {
        t.i_projid = f.i_projid;
    }
    copy_compression(from, to);
}

/// Takes over how the file is compressed.
fn copy_compression(from: &RawInode, to: &mut RawInode) {
    if let (Some(f), Some(t)) = (from.extra(), to.extra_mut())
        && from.extra_fits(COMPRESSION_END)
    {
        t.i_compr_blocks = f.i_compr_blocks;
        t.i_compress_algorithm = f.i_compress_algorithm;
        t.i_log_cluster_size = f.i_log_cluster_size;
        t.i_compress_flag = f.i_compress_flag;
    }
}

impl Replay<'_> {
    /// An inode block of the chain, with everything checked that is trusted later.
    pub(super) fn checked<'b>(&self, ino: Ino, block: &'b Block) -> Result<&'b RawInode> {
        validate_footer(block, ino, ino)?;
        let raw: &RawInode = block.view();
        self.tree.nodes.rules.validate(ino, raw)?;
        if FileKind::from_mode(raw.i_mode.get()) != Some(FileKind::Regular) {
            return Err(bad_inode(
                ino,
                "i_mode",
                format!("{:#o}, but only regular files are fsynced", raw.i_mode),
            ));
        }
        Ok(raw)
    }

    /// Divides the address slots as the fsynced inode block does. Such a change is made only while the file has no
    /// direct nodes, so whatever is addressed beyond the slots that both divisions share is gone in the fsynced state.
    pub(super) fn adopt_layout(&self, inode: &Inode, block: &Block) -> Result<()> {
        let tree = self.tree;
        let raw = self.checked(inode.ino, block)?;
        if inode.kind() != FileKind::Regular {
            return Err(bad_inode(
                inode.ino,
                "i_mode",
                format!("a regular file was fsynced, this is a {:?}", inode.kind()),
            ));
        }
        let (now, then) = (tree.slots(inode), raw.slots(tree.flexible_inline_xattr()));
        if now.extra != then.extra {
            return Err(bad_inode(
                inode.ino,
                "i_extra_isize",
                format!("{}, before {}", then.extra * 4, now.extra * 4),
            ));
        }
        if now == then {
            return Ok(());
        }
        // With other clusters the nodes hold other pages altogether.
        let shared = if now.cluster == then.cluster { now.addrs().min(then.addrs()) } else { 0 };
        if !inode.raw(|r| r.inline().contains(Inline::DATA)) {
            tree.truncate_index(inode, shared as u64)?;
        }
        tree.edit(inode, Dirty::Full, |r| {
            r.i_inline = ((r.inline() - Inline::XATTR) | (raw.inline() & Inline::XATTR)).bits();
            if let (Some(f), Some(t)) = (raw.extra(), r.extra_mut())
                && tree.flexible_inline_xattr()
            {
                t.i_inline_xattr_size = f.i_inline_xattr_size;
            }
            r.i_flags = ((r.flags() - FileFlags::COMPR) | (raw.flags() & FileFlags::COMPR)).bits().into();
            copy_compression(raw, r);
            r.i_addr[now.extra + shared..now.extra + now.area().max(then.area())].fill(0.into());
        });
        Ok(())
    }

    pub(super) fn attributes(&mut self, inode: &Inode, block: &Block) {
        let raw: &RawInode = block.view();
        self.tree.edit(inode, Dirty::Full, |r| copy_attributes(raw, r));
        self.sized.insert(inode.ino);
    }

    /// Takes over inline content, in place of blocks where the file had some; the other way round makes room for
    /// addresses. Tells whether the content is inline.
    pub(super) fn inline_data(&self, inode: &Inode, block: &Block) -> Result<bool> {
        let tree = self.tree;
        let raw: &RawInode = block.view();
        if !raw.inline().contains(Inline::DATA) {
            self.leave_inline(inode);
            return Ok(false);
        }
        if !inode.raw(|r| r.inline().contains(Inline::DATA)) {
            tree.truncate_index(inode, 0)?;
        }
        let range = tree.slots(inode).inline_content_range();
        tree.nodes.update(&inode.node, Dirty::Full, |b| {
            b.0[range.clone()].copy_from_slice(&block.0[range]);
            b.view_mut::<RawInode>().i_inline |= Inline::DATA.bits();
        });
        Ok(true)
    }

    /// Makes an inode with inline content one with addresses, all of them holes.
    pub(super) fn leave_inline(&self, inode: &Inode) {
        if inode.raw(|r| r.inline().contains(Inline::DATA)) {
            let slots = self.tree.slots(inode);
            self.tree.edit(inode, Dirty::Full, |r| {
                r.i_inline &= !(Inline::DATA | Inline::DATA_EXIST).bits();
                r.i_addr[slots.extra..slots.extra + slots.area()].fill(0.into());
            });
        }
    }

    /// Frees the parts of the node tree that the fsynced inode no longer names.
    pub(super) fn drop_missing_subtrees(&self, inode: &Inode, block: &Block) -> Result<()> {
        let tree = self.tree;
        let raw: &RawInode = block.view();
        let fanout = tree.slots(inode).fanout();
        let start = |i: usize| fanout.inode + subtree(fanout, i).2;
        let end = (0..5).rev().find(|&i| raw.i_nid[i].get() != 0).map_or(0, |i| i + 1);
        let missing = |i: &usize| raw.i_nid[*i].get() == 0 && inode.raw(|r| r.i_nid[*i].get()) != 0;
        if (end..5).any(|i| missing(&i)) {
            tree.truncate_index(inode, start(end))?;
        }
        for i in (0..end).filter(missing) {
            tree.punch(inode, start(i), start(i + 1))?;
        }
        Ok(())
    }

    /// Takes over the addresses of an inode or direct node.
    pub(super) fn addresses(&mut self, inode: &Arc<Inode>, offset: u32, block: &Block) -> Result<()> {
        let tree = self.tree;
        let slots = tree.slots(inode);
        let in_inode = slots.addrs();
        let first = first_page(offset, slots.fanout())
            .filter(|&page| {
                NodePath::of(page, slots.fanout())
                    .is_some_and(|p| p.depth == 0 || p.node_offset(p.depth) == offset)
            })
            .ok_or_else(|| bad_node_of(inode.ino, format!("node offset {offset}")))?;
        let addrs: Vec<BlockAddr> = if offset == 0 {
            block.view::<RawInode>().i_addr[slots.extra..slots.extra + in_inode]
                .iter()
                .map(|a| a.get())
                .collect()
        } else {
            let addrs = &block.view::<RawDirectNode>().addr[..slots.addrs_per_block()];
            addrs.iter().map(|a| a.get()).collect()
        };
        if offset != 0 && addrs.iter().all(|&a| a == NULL_ADDR) && tree.find_slot(inode, first)?.is_none() {
            return Ok(());
        }
        let mut near = None;
        for (i, &addr) in addrs.iter().enumerate() {
            let index = first + i as u64;
            let slot = tree.make_slot_near(inode, near.as_ref(), index)?;
            let taken = self.address(inode, &slot, index, addr);
            self.pass_by(inode.ino, taken)?;
            near = Some(slot);
        }
        let compact = tree.is_delta_volume() && first >= tree.compact_start(inode);
        if offset != 0 && !compact && !inode.raw(|r| r.advise().contains(Advise::KEEP_SIZE)) {
            // An inode block that follows knows the size better.
            let used = addrs.iter().rposition(|&a| a != NULL_ADDR).map_or(0, |last| first + last as u64 + 1);
            if used > inode.pages() {
                tree.set_size(inode, used * BLOCK_SIZE as u64);
            }
        }
        Ok(())
    }

    /// Takes over the addresses that an inode block notes.
    pub(super) fn noted_addresses(&mut self, inode: &Arc<Inode>, block: &Block) -> Result<()> {
        let tree = self.tree;
        let Some(zone) = tree.zone_range(block) else { return Ok(()) };
        let most = max_pages(tree.slots(inode).fanout());
        let mut near: Option<Slot> = None;
        for note in medfs_format::delta::notes(&block.0[zone], inode.ino)? {
            let first = u64::from(note.page.get());
            if first + u64::from(note.len.get()) > most {
                let value = format!("{} pages from {first} on", note.len);
                return Err(FormatError::corrupt(Structure::DeltaZone, inode.ino, "notes", value).into());
            }
            for n in 0..note.len.get() {
                let index = first + u64::from(n);
                let slot = tree.make_slot_near(inode, near.as_ref(), index)?;
                self.address(inode, &slot, index, noted_addr(note, n))?;
                near = Some(slot);
            }
        }
        Ok(())
    }

    /// Makes a page's slot hold what the chain says, with all that follows for the blocks.
    fn address(&mut self, inode: &Arc<Inode>, slot: &Slot, index: u64, addr: BlockAddr) -> Result<()> {
        let tree = self.tree;
        let old = slot.addr();
        tree.check_addr(inode, index, old)?;
        tree.check_addr(inode, index, addr)?;
        if old == addr {
            return Ok(());
        }
        if addr == NULL_ADDR {
            return self.free(inode, slot, index);
        }
        if is_block(addr) {
            self.check_data_block(inode, index, addr)?;
            if self.is_valid(addr)? {
                self.take_from_owner(inode, addr)?;
            }
        }
        if old == NULL_ADDR {
            tree.space.reserve(1)?;
            tree.add_blocks(inode, 1);
        }
        tree.block_writer().replay(slot, addr, RECOVERED_LOG)?;
        self.recovered.data_blocks += u64::from(is_block(addr));
        tree.set_addr(inode, slot, addr);
        tree.pages.remove(inode.ino, index);
        Ok(())
    }

    fn free(&self, inode: &Inode, slot: &Slot, index: u64) -> Result<()> {
        let tree = self.tree;
        let old = slot.addr();
        if is_block(old) {
            tree.segs.lock().mark_invalid(&tree.io, old, tree.elapsed())?;
        }
        tree.set_addr(inode, slot, NULL_ADDR);
        if old == COMPRESS_ADDR && inode.raw(RawInode::saved_blocks_released) {
            return Ok(()); // not counted
        }
        tree.space.release(1);
        tree.add_blocks(inode, -1);
        tree.pages.remove(inode.ino, index);
        Ok(())
    }

    /// Whether a block has an owner before its place in the chain. Where a volume that is only read has lost that, it
    /// has none, as of nearly all blocks of the chain.
    fn is_valid(&self, addr: BlockAddr) -> Result<bool> {
        let mut segs = self.tree.segs.lock();
        Ok(!self.tree.has_lost_use_of(&mut segs, addr) && segs.is_valid(&self.tree.io, addr)?)
    }

    /// A data block can neither be a node of the chain nor lie among nodes.
    fn check_data_block(&self, inode: &Inode, index: u64, addr: BlockAddr) -> Result<()> {
        let tree = self.tree;
        let segno = tree.geo.segno(addr);
        let mut segs = tree.segs.lock();
        let in_use = segs.valid_blocks(&tree.io, segno) > 0 || segs.is_curseg(segno);
        let among_nodes = in_use && segs.known_type(segno) >= Log::HotNode as u8;
        if among_nodes || self.chain.contains(addr) {
            return Err(bad_inode(inode.ino, "i_addr", format!("{addr} for page {index} is a node's block")));
        }
        Ok(())
    }

    /// Removes the reference to a valid block that the chain gives to another page: blocks move between pages and files
    /// without being written (collapsed ranges, for one).
    fn take_from_owner(&self, inode: &Arc<Inode>, addr: BlockAddr) -> Result<()> {
        let tree = self.tree;
        let segno = tree.geo.segno(addr);
        let summary =
            tree.segs.lock().summary(&tree.io, segno)?.entries[tree.geo.offset_in_seg(addr) as usize];
        let wrong = || bad_inode(inode.ino, "i_addr", format!("{addr} belongs to node {}", summary.nid));
        let node = tree.nodes.get(&tree.io, &tree.nat, summary.nid.get())?;
        let owner = if node.ino == inode.ino { inode.clone() } else { tree.inode(node.ino)? };
        if owner.kind() != FileKind::Regular || owner.raw(|r| r.inline().contains(Inline::DATA)) {
            return Err(wrong());
        }
        let offset = node.read(|d| footer(&d.block).node_offset());
        let first = first_page(offset, tree.slots(&owner).fanout()).ok_or_else(wrong)?;
        let index = first + u64::from(summary.ofs_in_node.get());
        match tree.find_slot(&owner, index)? {
            Some(slot) if slot.addr() == addr => self.free(&owner, &slot, index),
            _ => Err(wrong()),
        }
    }

    /// Frees what lies beyond the end of a file whose size the chain gave, unless it is meant to be there.
    pub(super) fn trim(&self, inode: &Inode) -> Result<()> {
        let keep = inode.raw(|r| {
            r.i_links.get() == 0
                || r.inline().contains(Inline::DATA)
                || r.advise().intersects(Advise::KEEP_SIZE | Advise::VERITY)
                || r.flags().contains(FileFlags::COMPR)
        });
        if keep || !self.sized.contains(&inode.ino) {
            return Ok(());
        }
        self.tree.truncate_pages(inode, inode.pages())
    }
}

fn bad_node_of(ino: Ino, value: String) -> Error {
    FormatError::corrupt(Structure::NodeFooter, ino, "flag", value).into()
}
