//! The layout of inodes: giving extra attributes to those that `mkfs.f2fs` and the kernel made without.
//!
//! Deltas need inodes with a checksum and with an inline xattr area of a size of their own: twelve bytes of
//! extra attributes, which precede the addresses. An inode of the *old layout* has none. Its 923 slots are
//! addresses (or inline content), and 50 of them an xattr area where it has one. The new layout takes the
//! three slots from the xattr area:
//!
//! ```text
//! old   | addresses or inline content: 873          | xattrs: 50 |
//! new   | 3 | addresses or inline content: 873        | xattrs: 47 |
//! ```
//!
//! So the number of addresses in the inode stays, and with it every page's place in the node tree, every
//! summary in the SSA, and the division of inline data and inline directories. Only the inode block is
//! written anew. What else may be needed:
//!
//! - attributes that do not fit 188 bytes get an xattr node;
//! - an inode without an xattr area (made with `noinline_xattr`, or by an old kernel) has 923 addresses. It
//!   gets an area, and inline data that does not fit any more gets a block. Where pages lie behind the 873rd,
//!   they move: as when a range of 50 pages is inserted there ([`crate::content::shift`]). They are written
//!   anew, as each gets another slot, and the SSA must name it;
//! - where attributes fill the xattr node too, the area keeps its 50 slots and the addresses give way.
//!
//! A file with direct nodes gets no zone for deltas, as its pages' places depend on the size of the area.
//! Where the caller asks for it, databases of that size get one: an area of 400 slots, for which pages move
//! as above.
//!
//! Invariants: which layout an inode has it says itself, so a volume whose superblock allows both is whole
//! after each inode; whoever is interrupted goes on with those that are left. An inode changes in one
//! operation, between two checkpoints. Locks: those of [`FileOps::change_settled`], inode by inode.

use crate::content::shift::Shift;
use crate::delta::zone::KEPT_SLOTS;
use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::map::inode::{Inode, InodeState};
use crate::map::xattr_area::XattrArea;
use crate::profile::file_class::FileClass;
use crate::tree::Tree;
use medfs_format::node::{
    ADDR_OFFSET, Advise, DEF_ADDRS_PER_INODE, DEFAULT_INLINE_XATTR_ADDRS, FileKind, Inline,
    MAX_INLINE_XATTR_ADDRS, RawExtraAttr, RawInode, Slots,
};
use medfs_format::path::max_pages;
use medfs_format::xattr::{self, NODE_BYTES, XattrEntry};
use medfs_format::{BLOCK_SIZE, Block, Ino, NULL_ADDR};
use medfs_store::Dirty;
use serde::Serialize;
use std::mem::offset_of;
use std::ops::{AddAssign, Deref};
use std::sync::Arc;

/// Slots of the extra attributes that an inode gets: up to the checksum.
const EXTRA: usize = offset_of!(RawExtraAttr, i_crtime) / 4;
/// Slots of an inline xattr area that has given them away.
const AREA: usize = DEFAULT_INLINE_XATTR_ADDRS - EXTRA;

/// What giving extra attributes to inodes takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct LayoutWork {
    /// Inodes that get extra attributes.
    pub inodes: u64,
    /// Blocks that the volume has to take: nodes, and content that leaves its inode.
    pub new_blocks: u64,
    /// Files whose pages behind the inode's own are written anew.
    pub moved_files: u64,
    /// Most blocks of such files, all together.
    pub moved_blocks: u64,
    /// Most blocks of the largest of them. Its old ones are free only after the next checkpoint.
    pub largest_move: u64,
}

impl LayoutWork {
    /// Free blocks that are needed.
    pub fn needed_blocks(&self) -> u64 {
        self.new_blocks + self.largest_move
    }
}

impl AddAssign for LayoutWork {
    fn add_assign(&mut self, other: LayoutWork) {
        self.inodes += other.inodes;
        self.new_blocks += other.new_blocks;
        self.moved_files += other.moved_files;
        self.moved_blocks += other.moved_blocks;
        self.largest_move = self.largest_move.max(other.largest_move);
    }
}

/// How an inode is to be laid out.
struct Target {
    old: Slots,
    /// Slots of the extra attributes.
    extra: usize,
    /// Slots of the inline xattr area.
    inline_xattr: usize,
    entries: Vec<XattrEntry>,
    /// An xattr node is needed that is not there.
    new_node: bool,
    /// The content leaves the inode.
    leaves: bool,
    /// Pages behind those that the inode will address move.
    moves: bool,
}

impl Target {
    /// Slots of addresses or inline content.
    fn area(&self) -> usize {
        DEF_ADDRS_PER_INODE - self.extra - self.inline_xattr
    }
    /// Bytes of inline content.
    fn room(&self) -> usize {
        (self.area() - 1) * 4
    }
    /// The pages that move, as far as there can be any, and how far.
    fn shift(&self, size: u64) -> Shift {
        let by = (self.old.area() - self.area()) as u64;
        let from = self.area() as u64;
        let end = max_pages(self.old.fanout()) - by;
        Shift { from: from..end, to: from + by, size: size.saturating_add(by * BLOCK_SIZE as u64) }
    }
}

/// Gives the inodes of a volume another layout.
#[derive(Clone, Copy)]
pub(crate) struct Layouts<'a>(pub(crate) &'a Tree);

impl Deref for Layouts<'_> {
    type Target = Tree;

    fn deref(&self) -> &Tree {
        self.0
    }
}

impl Layouts<'_> {
    /// What giving all inodes extra attributes, and databases a zone if so, takes. Nothing is changed.
    /// `progress` is told how many inodes of how many are done.
    pub(crate) fn survey(&self, databases: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<LayoutWork> {
        let mut sum = LayoutWork::default();
        self.for_each_inode(progress, |inode| {
            let protected = inode.raw(|r| r.advise().intersects(Advise::ENCRYPT | Advise::VERITY));
            if protected {
                return Err(Error::Incompatible(format!(
                    "inode {} is encrypted or under fs-verity, which medfs does not write",
                    inode.ino
                )));
            }
            sum += self.layout_work(inode, databases)?;
            Ok(())
        })?;
        Ok(sum)
    }

    /// Gives all inodes extra attributes, and databases a zone if so.
    pub(crate) fn lay_out(&self, databases: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<LayoutWork> {
        let mut sum = LayoutWork::default();
        self.for_each_inode(progress, |inode| {
            sum += self.lay_out_inode(inode, databases)?;
            Ok(())
        })?;
        Ok(sum)
    }

    /// Databases that have no room for a zone and that nothing but [`Layouts::lay_out`] gives it to.
    pub(crate) fn databases_without_zone(&self) -> Result<Vec<Ino>> {
        let mut found = Vec::new();
        self.for_each_inode(&mut |_, _| (), |inode| {
            let slots = self.slots(inode);
            if inode.raw(|r| lacks_zone(r, slots)) && inode.node.read(|d| self.zone_range(&d.block)).is_none()
            {
                found.push(inode.ino);
            }
            Ok(())
        })?;
        Ok(found)
    }

    /// Makes inodes that have extra attributes the same with `flexible_inline_xattr` and `inode_checksum` as
    /// without, on a volume that lacks one of them: they say how large their inline xattr area is, and have a
    /// checksum. F2FS looks at neither before the superblock says so.
    pub(crate) fn complete_extra(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<()> {
        let seed = self.nodes.rules.seed;
        self.for_each_inode(progress, |inode| {
            let size = self.slots(inode).inline_xattr as u16;
            let complete = inode.raw(|r| {
                r.extra().is_none_or(|extra| {
                    let sealed = !r.extra_fits(EXTRA * 4) || extra.i_inode_checksum.get() == r.checksum(seed);
                    extra.i_inline_xattr_size.get() == size && sealed
                })
            });
            if complete {
                return Ok(());
            }
            self.change_settled(inode, |_| {
                self.edit(inode, Dirty::Full, |r| {
                    if let Some(extra) = r.extra_mut() {
                        extra.i_inline_xattr_size = size.into();
                    }
                });
                Ok(())
            })
        })
    }

    fn for_each_inode(
        &self,
        progress: &mut dyn FnMut(u64, u64),
        mut f: impl FnMut(&Arc<Inode>) -> Result<()>,
    ) -> Result<()> {
        let total = u64::from(self.space.counts().valid_inodes);
        let mut done = 0;
        for ino in self.nat.inodes(&self.io, self.geo.root_ino) {
            f(&self.inode(ino?)?)?;
            done += 1;
            progress(done, total);
        }
        Ok(())
    }

    fn layout_work(&self, inode: &Inode, databases: bool) -> Result<LayoutWork> {
        let Some(target) = self.target(inode, databases)? else { return Ok(LayoutWork::default()) };
        let moved = if target.moves { inode.raw(|r| r.i_blocks.get()) } else { 0 };
        // The pages that move may need one direct node more, and indirect nodes that lead to it.
        let new_blocks =
            u64::from(target.new_node) + u64::from(target.leaves) + if target.moves { 3 } else { 0 };
        Ok(LayoutWork {
            inodes: 1,
            new_blocks,
            moved_files: u64::from(target.moves),
            moved_blocks: moved,
            largest_move: moved,
        })
    }

    /// How an inode is to be laid out; `None` where it has what it needs.
    fn target(&self, inode: &Inode, databases: bool) -> Result<Option<Target>> {
        let old = self.slots(inode);
        let (has_extra, lacks_zone) = inode.raw(|r| (r.extra_fits(EXTRA * 4), lacks_zone(r, old)));
        let zone = databases && lacks_zone && inode.node.read(|d| self.zone_range(&d.block)).is_none();
        if has_extra && !zone {
            return Ok(None);
        }
        let extra = if has_extra { old.extra } else { EXTRA };
        let least = if zone { KEPT_SLOTS } else { AREA };
        let entries = XattrArea { map: self, inode }.read()?;
        let fits = |bytes: usize| entries.is_empty() || xattr::write(&mut vec![0; bytes], &entries);
        let mut inline_xattr = (DEF_ADDRS_PER_INODE - extra).saturating_sub(old.area()).max(least);
        if !fits(inline_xattr * 4 + NODE_BYTES) {
            inline_xattr = (inline_xattr + EXTRA).min(MAX_INLINE_XATTR_ADDRS);
        }
        let new_node = !fits(inline_xattr * 4) && inode.raw(|r| r.i_xattr_nid.get() == NULL_ADDR);
        let mut target = Target { old, extra, inline_xattr, entries, new_node, leaves: false, moves: false };
        (target.leaves, target.moves) = inode.raw(|r| target.content_of(r));
        if target.moves && inode.raw(|r| r.inline().contains(Inline::PIN_FILE)) {
            return Err(Error::Incompatible(format!(
                "inode {} is pinned, and its blocks would have to move: unpin it first",
                inode.ino
            )));
        }
        Ok(Some(target))
    }

    fn lay_out_inode(&self, inode: &Arc<Inode>, databases: bool) -> Result<LayoutWork> {
        let work = self.layout_work(inode, databases)?;
        if work == LayoutWork::default() {
            return Ok(work);
        }
        let mut freed = None;
        if work.needed_blocks() > 0 {
            freed = Some(self.unshare(inode.ino, 0..u64::MAX)?);
            self.make_room_for(work.needed_blocks())?;
        }
        let mut may_free = true;
        loop {
            match self.change_settled(inode, |state| self.lay_out_settled(inode, state, databases)) {
                Err(Error::NoSpace) if may_free => {
                    may_free = false;
                    self.checkpoint_now()?;
                }
                done => {
                    drop(freed);
                    return done.map(|()| work);
                }
            }
        }
    }

    fn lay_out_settled(&self, inode: &Arc<Inode>, state: &mut InodeState, databases: bool) -> Result<()> {
        let Some(mut target) = self.target(inode, databases)? else { return Ok(()) };
        if target.leaves {
            if inode.is_dir() {
                Dir::of(self, inode).to_blocks(state)?;
            } else {
                self.convert_inline(inode, state)?;
            }
            let Some(now) = self.target(inode, databases)? else { return Ok(()) };
            target = now;
        }
        if !target.moves {
            return self.change_layout(inode, target);
        }
        let size = inode.size();
        self.shift_pages(inode, state, &target.shift(size))?;
        self.set_size(inode, size);
        let done = self.change_layout(inode, target);
        if done.is_err() {
            // The pages are where only the new layout finds them.
            self.io.stop_writing("the layout of an inode could not be changed");
        }
        done
    }

    /// Writes the inode block in its new layout. Nothing has changed where it fails.
    fn change_layout(&self, inode: &Inode, target: Target) -> Result<()> {
        if target.new_node && !self.space.has(2) {
            return Err(Error::NoSpace);
        }
        let before = inode.node.read(|d| d.block.clone());
        self.nodes.update(&inode.node, Dirty::Full, |b| target.write_to(b));
        let done = XattrArea { map: self, inode }.write(target.entries);
        if done.is_err() {
            self.nodes.update(&inode.node, Dirty::Full, |b| b.0.copy_from_slice(&before.0));
        }
        done
    }
}

impl Target {
    /// Whether the content of an inode leaves it, and whether pages move.
    fn content_of(&self, inode: &RawInode) -> (bool, bool) {
        let inline = inode.inline();
        if inline.contains(Inline::DATA) {
            return (inode.i_size.get() > self.room() as u64, false);
        }
        if inline.contains(Inline::DENTRY) {
            return (self.area() != self.old.area(), false);
        }
        let has_addresses = matches!(
            FileKind::from_mode(inode.i_mode.get()),
            Some(FileKind::Regular | FileKind::Directory | FileKind::Symlink)
        );
        let addrs = &inode.i_addr[self.old.extra..self.old.extra + self.old.area()];
        let behind = addrs.get(self.area()..).unwrap_or(&[]);
        let used = behind.iter().any(|addr| addr.get() != NULL_ADDR);
        let has_nodes = inode.has_nodes();
        (false, has_addresses && self.area() != self.old.area() && (used || has_nodes))
    }

    /// Divides the slots of an inode block anew; its xattr area is empty then.
    fn write_to(&self, block: &mut Block) {
        let slots =
            |slots: std::ops::Range<usize>| ADDR_OFFSET + slots.start * 4..ADDR_OFFSET + slots.end * 4;
        let kept = self.old.area().min(self.area());
        let content = block.0[slots(self.old.extra..self.old.extra + kept)].to_vec();
        block.0[slots(self.old.extra..DEF_ADDRS_PER_INODE)].fill(0);
        if self.old.extra == 0 {
            block.0[slots(0..self.extra)].fill(0);
        }
        block.0[slots(self.extra..self.extra + kept)].copy_from_slice(&content);
        let inode: &mut RawInode = block.view_mut();
        inode.i_inline |= (Inline::EXTRA_ATTR | Inline::XATTR).bits();
        let extra = inode.extra_mut().expect("just set");
        extra.i_extra_isize = (self.extra as u16 * 4).into();
        extra.i_inline_xattr_size = (self.inline_xattr as u16).into();
    }
}

/// Whether an inode is that of a database with direct nodes and no room for a zone.
fn lacks_zone(inode: &RawInode, slots: Slots) -> bool {
    FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Regular)
        && !inode.inline().intersects(Inline::DATA | Inline::PIN_FILE)
        && FileClass::of(inode) == FileClass::Database
        && slots.cluster == 1
        && slots.inline_xattr < KEPT_SLOTS
        && inode.has_nodes()
}

const _: () = assert!(EXTRA == 3 && AREA * 4 >= xattr::HEADER_SIZE);
