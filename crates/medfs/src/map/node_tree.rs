//! The node tree of a file: finding, making and freeing the nodes and addresses of its pages.
//!
//! All functions are called with the inode's lock held: shared for lookups, exclusive for changes, which also hold
//! the operation lock (see [`crate::ranks`]).
//! Invariant: a node is freed after everything below it, and before the one above stops naming it, so that an
//! error in between leaves a tree that can be freed from there on.
//! Kernel counterpart: `node.c` (`get_dnode_of_data`, truncation).

use crate::error::{Error, Posix, Result};
use crate::map::Map;
use crate::map::damage::First;
use crate::map::inode::Inode;
use crate::map::places::child_of;
use crate::map::truncate::Cut;
use medfs_format::node::{NIDS_PER_BLOCK, RawDirectNode, RawExtent, RawIndirectNode, RawInode};
use medfs_format::path::{Fanout, NodePath};
use medfs_format::{
    Block, BlockAddr, COMPRESS_ADDR, FormatError, NEW_ADDR, NULL_ADDR, Nid, Structure, is_block,
};
use medfs_store::{Dirty, NodePage};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

/// Where a page's address is kept: a node, and the index in its address array.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub(crate) node: Arc<NodePage>,
    /// Index in `i_addr` (inode, extra attributes counted) or in a direct node's array.
    pub(super) array_index: usize,
    /// Index as summaries count it: without the extra attributes.
    pub(crate) offset: u16,
    /// First page the node's array covers and number of pages, to step to the neighbours without a new search.
    pub(super) first_page: u64,
    pub(super) pages: usize,
}

/// Nodes that stay in memory while this is there, so that nothing reads them again.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct HeldNodes(BTreeMap<Nid, Arc<NodePage>>);

impl Slot {
    pub(crate) fn addr(&self) -> BlockAddr {
        self.node.read(|d| read_addr(&d.block, self.is_inode(), self.array_index))
    }
    pub(crate) fn is_inode(&self) -> bool {
        self.node.nid == self.node.ino
    }
    /// The addresses of this page and those behind it, as far as the same node holds them.
    pub(crate) fn addrs(&self, count: usize) -> Vec<BlockAddr> {
        let count = count.min(self.pages - usize::from(self.offset));
        let range = self.array_index..self.array_index + count;
        self.node.read(|d| range.map(|i| read_addr(&d.block, self.is_inode(), i)).collect())
    }
    /// The slot of page `index`, where the same node holds it.
    pub(crate) fn step_to(&self, index: u64) -> Option<Slot> {
        let within = index.checked_sub(self.first_page)?;
        if within >= self.pages as u64 {
            return None;
        }
        let mut slot = self.clone();
        slot.array_index = self.array_index - usize::from(self.offset) + within as usize;
        slot.offset = within as u16;
        Some(slot)
    }
}

fn read_addr(block: &Block, inode: bool, index: usize) -> BlockAddr {
    if inode {
        block.view::<RawInode>().i_addr[index].get()
    } else {
        block.view::<RawDirectNode>().addr[index].get()
    }
}

fn write_addr(block: &mut Block, inode: bool, index: usize, addr: BlockAddr) {
    if inode {
        let raw: &mut RawInode = block.view_mut();
        raw.i_addr[index] = addr.into();
    } else {
        block.view_mut::<RawDirectNode>().addr[index] = addr.into();
    }
}

/// Pages below one nid of a node `level` (0: direct node).
pub(crate) fn span(fanout: Fanout, level: u32) -> u64 {
    fanout.block * (NIDS_PER_BLOCK as u64).pow(level)
}

/// Level, node offset and first page (after the inode's own) of the subtree at each `i_nid`.
pub(crate) fn subtree(fanout: Fanout, i: usize) -> (u32, u32, u64) {
    let n = NIDS_PER_BLOCK as u32;
    let span = |level| span(fanout, level);
    match i {
        0 => (0, 1, 0),
        1 => (0, 2, span(0)),
        2 => (1, 3, 2 * span(0)),
        3 => (1, 4 + n, 2 * span(0) + span(1)),
        _ => (2, 5 + 2 * n, 2 * span(0) + 2 * span(1)),
    }
}

/// Node offset of child `i` of the indirect node at `offset`, whose children are at `level`.
pub(super) fn child_offset(offset: u32, level: u32, i: usize) -> u32 {
    offset + 1 + i as u32 * if level == 0 { 1 } else { NIDS_PER_BLOCK as u32 + 1 }
}

impl Map {
    /// Finds the slot of page `index`; `None` where the nodes that would hold it do not exist.
    pub(crate) fn find_slot(&self, inode: &Inode, index: u64) -> Result<Option<Slot>> {
        self.walk(inode, index, false, |_| ())
    }

    /// Finds the slot of page `index`, making the nodes that lead to it.
    pub(crate) fn make_slot(&self, inode: &Inode, index: u64) -> Result<Slot> {
        self.walk(inode, index, true, |_| ())?.ok_or(Error::Posix(Posix::FileTooLarge))
    }

    /// The slot after `last`, cheaply where it is in the same node.
    pub(crate) fn find_slot_near(
        &self,
        inode: &Inode,
        last: Option<&Slot>,
        index: u64,
    ) -> Result<Option<Slot>> {
        match last.and_then(|s| s.step_to(index)) {
            Some(slot) => Ok(Some(slot)),
            None => self.find_slot(inode, index),
        }
    }

    /// As [`Map::find_slot_near`], making nodes.
    pub(crate) fn make_slot_near(&self, inode: &Inode, last: Option<&Slot>, index: u64) -> Result<Slot> {
        match last.and_then(|s| s.step_to(index)) {
            Some(slot) => Ok(slot),
            None => self.make_slot(inode, index),
        }
    }

    /// Goes down to the slot of a page, by nodes each of which `passes` is shown.
    fn walk(
        &self,
        inode: &Inode,
        index: u64,
        make: bool,
        mut passes: impl FnMut(&Arc<NodePage>),
    ) -> Result<Option<Slot>> {
        let slots = self.slots(inode);
        let addrs = slots.addrs();
        let Some(path) = NodePath::of(index, slots.fanout()) else {
            return if make { Err(Posix::FileTooLarge.into()) } else { Ok(None) };
        };
        if path.depth == 0 {
            let offset = path.slot();
            return Ok(Some(Slot {
                node: inode.node.clone(),
                array_index: slots.extra + offset,
                offset: offset as u16,
                first_page: 0,
                pages: addrs,
            }));
        }
        let mut parent = inode.node.clone();
        for level in 1..=path.depth {
            let child_index = if level == 1 { path.inode_nid() } else { path.child_index(level - 1) };
            let nid = read_nid(&parent, child_index);
            let offset = path.node_offset(level);
            parent = if nid != 0 {
                self.child(inode, nid, offset)?
            } else if make {
                // All that are missing, and the page's block: none is left behind empty.
                if !self.space.has((path.depth - level) as u64 + 2) {
                    return Err(Error::NoSpace);
                }
                self.new_child(inode, &parent, child_index, offset)?
            } else {
                return Ok(None);
            };
            passes(&parent);
        }
        let slot = path.slot();
        Ok(Some(Slot {
            node: parent,
            array_index: slot,
            offset: slot as u16,
            first_page: index - slot as u64,
            pages: slots.addrs_per_block(),
        }))
    }

    /// A node below an inode, checked to be the one its parent means.
    pub(crate) fn child(&self, inode: &Inode, nid: Nid, offset: u32) -> Result<Arc<NodePage>> {
        child_of(self, inode.ino, nid, offset)
    }

    fn new_child(
        &self,
        inode: &Inode,
        parent: &Arc<NodePage>,
        index: usize,
        offset: u32,
    ) -> Result<Arc<NodePage>> {
        let page = self.new_node(inode, offset, Block::ZERO)?;
        let nid = page.nid;
        let parent_is_inode = parent.nid == parent.ino;
        self.nodes.update(parent, Dirty::Full, |b| {
            if parent_is_inode {
                b.view_mut::<RawInode>().i_nid[index] = nid.into();
            } else {
                b.view_mut::<RawIndirectNode>().nid[index] = nid.into();
            }
        });
        Ok(page)
    }

    /// Allocates a node of an existing inode and counts it.
    pub(crate) fn new_node(&self, inode: &Inode, offset: u32, content: Block) -> Result<Arc<NodePage>> {
        self.ops.check_within();
        self.space.reserve_node(false)?;
        let nid = match self.nat.alloc(&self.io, Some(inode.ino)) {
            Ok(Some(nid)) => nid,
            other => {
                self.space.release_node(false);
                return Err(other.err().map_or(Error::NoSpace, Error::from));
            }
        };
        let page = self.nodes.create(nid, inode.ino, offset, !inode.is_dir(), content);
        self.count_block(inode);
        Ok(page)
    }

    /// Frees a node that nothing names any more.
    pub(crate) fn free_node(&self, ino: medfs_format::Ino, nid: Nid) -> Result<()> {
        self.ops.check_within();
        let addr = self.nat.get(&self.io, nid)?.addr;
        if is_block(addr) {
            self.segs.lock().mark_invalid(&self.io, addr, self.elapsed())?;
        }
        self.nat.set(nid, ino, NULL_ADDR, false);
        self.nodes.forget(nid);
        self.space.release_node(nid == ino);
        Ok(())
    }

    /// Sets a page's address. The largest-extent hint is dropped with it, as the kernel trusts that field.
    pub(crate) fn set_addr(&self, inode: &Inode, slot: &Slot, addr: BlockAddr) {
        self.ops.check_within();
        if slot.is_inode() {
            self.nodes.update(&slot.node, Dirty::Full, |b| write_addr(b, true, slot.array_index, addr));
        } else {
            let write = |b: &mut Block| write_addr(b, false, slot.array_index, addr);
            self.nodes.update_addrs(&slot.node, &[slot.offset], write);
        }
        if inode.raw(|r| r.i_ext.len.get() != 0) {
            self.edit(inode, Dirty::Full, |r| r.i_ext = RawExtent::default());
        }
    }

    /// Checks an address read from a node.
    pub(crate) fn check_addr(&self, inode: &Inode, index: u64, addr: BlockAddr) -> Result<()> {
        let marks = addr == COMPRESS_ADDR && self.is_compressed(inode);
        if addr == NULL_ADDR || addr == NEW_ADDR || marks || self.geo.in_main(addr) {
            return Ok(());
        }
        Err(FormatError::corrupt(
            Structure::Inode,
            inode.ino,
            "i_addr",
            format!("{addr:#x} for page {index}"),
        )
        .into())
    }

    /// Checks the addresses of a range of pages, and holds the nodes that lead there, while there are fewer than
    /// `most`.
    pub(crate) fn check_addrs(
        &self,
        inode: &Inode,
        pages: Range<u64>,
        held: &mut HeldNodes,
        most: usize,
    ) -> Result<()> {
        let mut index = pages.start;
        while index < pages.end {
            let hold = |node: &Arc<NodePage>| {
                if held.0.len() < most {
                    held.0.insert(node.nid, node.clone());
                }
            };
            let Some(slot) = self.walk(inode, index, false, hold)? else {
                index = self.next_existing(inode, index)?;
                continue;
            };
            let until = pages.end.min(slot.first_page + slot.pages as u64);
            for (page, addr) in (index..until).zip(slot.addrs((until - index) as usize)) {
                self.check_addr(inode, page, addr)?;
            }
            index = until;
        }
        Ok(())
    }

    /// Frees the blocks of pages `start..end` without touching nodes; returns how many there were.
    pub(crate) fn punch(&self, inode: &Inode, start: u64, end: u64) -> Result<u64> {
        let mut freed = 0;
        let mut index = start;
        while index < end {
            let Some(slot) = self.find_slot(inode, index)? else {
                index = self.next_existing(inode, index)?;
                continue;
            };
            let until = end.min(slot.first_page + slot.pages as u64);
            freed += self.free_slots(inode, &slot, (until - index) as usize)?;
            index = until;
        }
        Ok(freed)
    }

    /// Blocks that reserving every page of a range would take: for pages that have none, and for the nodes
    /// that lead to them. Counted up to `most` and not much further.
    pub(crate) fn missing_blocks(&self, inode: &Inode, pages: Range<u64>, most: u64) -> Result<u64> {
        let has = inode.raw(|r| r.i_blocks.get());
        let (mut missing, mut index) = ((pages.end - pages.start).saturating_sub(has), pages.start);
        if missing > most {
            return Ok(missing);
        }
        missing = 0;
        let mut parents = BTreeSet::new();
        while index < pages.end && missing <= most {
            let slots = self.slots(inode);
            let slot = self.find_slot(inode, index)?;
            let path = NodePath::of(index, slots.fanout()).ok_or(Posix::FileTooLarge)?;
            let node_pages = if path.depth == 0 { slots.addrs() } else { slots.addrs_per_block() };
            let here = (pages.end - index).min((node_pages - path.slot()) as u64);
            match slot {
                Some(slot) => {
                    let addrs = slot.addrs(here as usize);
                    missing += addrs.iter().filter(|&&addr| addr == NULL_ADDR).count() as u64;
                }
                None => {
                    let existing = self.levels_of(inode, &path)?;
                    parents.extend((existing + 1..=path.depth).map(|level| path.node_offset(level)));
                    missing += here;
                }
            }
            index += here;
        }
        Ok(missing + parents.len() as u64)
    }

    /// How many nodes of a path exist.
    fn levels_of(&self, inode: &Inode, path: &NodePath) -> Result<usize> {
        let mut parent = inode.node.clone();
        for level in 1..=path.depth {
            let child_index = if level == 1 { path.inode_nid() } else { path.child_index(level - 1) };
            let nid = read_nid(&parent, child_index);
            if nid == 0 {
                return Ok(level - 1);
            }
            parent = self.child(inode, nid, path.node_offset(level))?;
        }
        Ok(path.depth)
    }

    /// First page at or after `index` that a missing subtree does not cover; used to step over holes.
    pub(crate) fn next_existing(&self, inode: &Inode, index: u64) -> Result<u64> {
        let fanout = self.slots(inode).fanout();
        let Some(path) = NodePath::of(index, fanout) else { return Ok(u64::MAX) };
        let mut parent = inode.node.clone();
        for level in 1..=path.depth {
            let child_index = if level == 1 { path.inode_nid() } else { path.child_index(level - 1) };
            let nid = read_nid(&parent, child_index);
            if nid == 0 {
                let below = span(fanout, (path.depth - level) as u32);
                let base = fanout.inode + subtree(fanout, path.inode_nid()).2;
                return Ok(base + (index - base) / below * below + below);
            }
            parent = self.child(inode, nid, path.node_offset(level))?;
        }
        Ok(index)
    }

    /// Frees `count` addresses from a slot on.
    pub(super) fn free_slots(&self, inode: &Inode, slot: &Slot, count: usize) -> Result<u64> {
        self.ops.check_within();
        let is_inode = slot.is_inode();
        let range = slot.array_index..slot.array_index + count;
        let old: Vec<BlockAddr> =
            slot.node.read(|d| range.clone().map(|i| read_addr(&d.block, is_inode, i)).collect());
        if old.iter().all(|&a| a == NULL_ADDR) {
            return Ok(0);
        }
        for (i, &addr) in old.iter().enumerate() {
            self.check_addr(inode, slot.first_page + u64::from(slot.offset) + i as u64, addr)?;
        }
        let clear = |b: &mut Block| range.clone().for_each(|i| write_addr(b, is_inode, i, NULL_ADDR));
        if is_inode {
            self.nodes.update(&slot.node, Dirty::Full, clear);
        } else {
            let changed = range.clone().zip(&old).filter(|&(_, &addr)| addr != NULL_ADDR);
            let changed: Vec<u16> = changed.map(|(i, _)| i as u16).collect();
            self.nodes.update_addrs(&slot.node, &changed, clear);
        }
        if inode.raw(|r| r.i_ext.len.get() != 0) {
            self.edit(inode, Dirty::Full, |r| r.i_ext = RawExtent::default());
        }
        self.free_blocks(inode, &self.leave_clusters(inode, old))
    }

    /// Frees blocks and reservations of an inode, which nothing names any more: all of them, whatever the SIT
    /// says of one.
    fn free_blocks(&self, inode: &Inode, addrs: &[BlockAddr]) -> Result<u64> {
        let now = self.elapsed();
        let (mut count, mut first) = (0, First::default());
        let mut segs = self.segs.lock();
        for &addr in addrs.iter().filter(|&&a| a != NULL_ADDR) {
            if is_block(addr) {
                first.note(segs.mark_invalid(&self.io, addr, now));
            }
            count += 1;
        }
        drop(segs);
        self.space.release(count);
        self.add_blocks(inode, -(count as i64));
        first.result().map(|()| count)
    }

    /// Frees every block from page `from` on and the nodes that become empty by it. Deltas are the caller's business.
    pub(crate) fn truncate_index(&self, inode: &Inode, from: u64) -> Result<()> {
        self.truncate_subtrees(inode, from, 5)
    }

    /// Frees what the inode and its first `nids` subtrees address from page `from` on.
    pub(crate) fn truncate_subtrees(&self, inode: &Inode, from: u64, nids: usize) -> Result<()> {
        let (fanout, cut) = (self.slots(inode).fanout(), Cut { map: self, inode });
        let addrs = fanout.inode;
        if from < addrs {
            let slot = self.make_slot(inode, from)?;
            self.free_slots(inode, &slot, (addrs - from) as usize)?;
        }
        for i in 0..nids {
            let nid = inode.raw(|r| r.i_nid[i].get());
            let (level, offset, start) = subtree(fanout, i);
            let first = addrs + start;
            if nid == 0 || from >= first + span(fanout, level) {
                continue;
            }
            let page = self.child(inode, nid, offset)?;
            if from <= first {
                if level > 0 {
                    cut.note_cut(nid)?;
                }
                cut.free_subtree(&page, level)?;
                self.edit(inode, Dirty::Full, |r| r.i_nid[i] = 0.into());
            } else {
                cut.truncate_subtree(&page, level, from - first)?;
            }
        }
        Ok(())
    }
}

pub(crate) fn read_nid(page: &NodePage, index: usize) -> Nid {
    page.read(|d| {
        if page.nid == page.ino {
            d.inode().i_nid[index].get()
        } else {
            d.block.view::<RawIndirectNode>().nid[index].get()
        }
    })
}
