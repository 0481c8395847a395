//! Dirty pages on their way to the device.
//!
//! Invariants: a page's slot names the block it is being written to before the write starts, and the page stays in memory
//! until the write has ended, so that readers never see the block early. Nodes that name such a block are written only by
//! the holder of the inode's `wb`, after the pages, or by a checkpoint, which waits for every operation.
//! Locks: `wb`, then the operation lock, then the inode's lock, which is released during I/O.

use crate::delta::Kept;
use crate::error::Result;
use crate::fs::Fs;
use crate::index::Slot;
use crate::inode::{Inode, InodeState};
use crate::placement::{Page, Purpose};
use crate::stats::Counters;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::node::Inline;
use medfs_format::summary::{Log, RawSummary};
use medfs_format::{Block, BlockAddr, NULL_ADDR, is_block};
use std::sync::Arc;

/// Pages that could be written in place of which it pays to write the inode with their deltas instead: with fewer, one that
/// does not become a delta after all would make both necessary, now and when it changes next.
const WORTH_AN_INODE: usize = 3;
/// Pages written between two looks at the inode's lock.
const BATCH: usize = 1024;

/// A page with the block it goes to.
pub(crate) struct Placed {
    index: u64,
    addr: BlockAddr,
    page: Arc<Block>,
    temperature: Temperature,
}

impl Placed {
    fn new(index: u64, page: Arc<Block>) -> Placed {
        Placed { index, addr: NULL_ADDR, page, temperature: Temperature::Warm }
    }
}

/// Pages that were placed, and whether all were that should be.
pub(crate) struct Placing {
    pub(crate) pages: Vec<Placed>,
    pub(crate) outcome: Result<()>,
}

impl Fs {
    /// Gives dirty pages their blocks. The inode's lock is held exclusively, and `wb` and the operation lock.
    /// What was placed before a failure must be written all the same, as slots name those blocks already.
    pub(crate) fn place_pages(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        indices: &[u64],
        purpose: Purpose,
    ) -> Placing {
        let about = inode.raw(|r| Page {
            purpose,
            is_dir: inode.is_dir(),
            advise: r.advise(),
            pinned: r.inline().contains(Inline::PIN_FILE),
            dirty_pages: state.dirty.len(),
            deltas: !matches!(purpose, Purpose::Move | Purpose::Restore),
            inode_due: false,
        });
        let inode_due = !self.placement.in_place(&about)
            || indices.len() >= WORTH_AN_INODE
            || self.nodes.dirtiness_of(inode.ino) >= purpose.least_to_write();
        let about = Page { inode_due, ..about };
        let mut pages = Vec::with_capacity(indices.len());
        let mut near = None;
        let mut place_all = |indices: &[u64], state: &mut InodeState, about: &Page| {
            for &index in indices {
                let Some(page) = state.dirty.get(&index).cloned() else { continue };
                let slot = self.make_slot_near(inode, near.as_ref(), index)?;
                let kept = self.keep_as_delta(inode, state, &slot, index, &page, about)?;
                if kept == Kept::Delta {
                    self.page_is_clean(inode, state, index, page);
                } else {
                    let page = Placed::new(index, page);
                    self.place_page(inode, &slot, about, kept == Kept::NewBlock, page, &mut pages)?;
                    self.drop_deltas(inode, index..index + 1)?;
                    state.whole.remove(&index);
                }
                near = Some(slot);
            }
            Ok(())
        };
        let mut outcome = place_all(indices, state, &about);
        // Pages whose deltas gave way must be durable together with the inode that says so.
        let gave_way: Vec<u64> = state.whole.iter().copied().collect();
        if outcome.is_ok() && !gave_way.is_empty() {
            outcome = place_all(&gave_way, state, &Page { deltas: false, ..about });
        }
        self.space.wrote(pages.len() as u64);
        Placing { pages, outcome }
    }

    /// Gives one page its block and adds it to those placed.
    fn place_page(
        &self,
        inode: &Inode,
        slot: &Slot,
        about: &Page,
        new_block: bool,
        page: Placed,
        placed: &mut Vec<Placed>,
    ) -> Result<()> {
        let (log, old) = (self.placement.log(about), slot.addr());
        let temperature = temperature(log);
        if is_block(old) && !new_block && self.placement.in_place(about) {
            self.forget_base(old);
            Counters::add(&self.counters.in_place_blocks, 1);
            placed.push(Placed { addr: old, temperature, ..page });
            return Ok(());
        }
        debug_assert_ne!(old, NULL_ADDR, "space is reserved when a page becomes dirty");
        let owner = RawSummary {
            nid: slot.node.nid.into(),
            version: self.node_version(slot.node.nid)?,
            ofs_in_node: slot.offset.into(),
        };
        let now = self.elapsed();
        let mut segs = self.segs.lock();
        let addr = segs.allocate(&self.io, log, owner, now)?;
        let freed = if is_block(old) { segs.mark_invalid(&self.io, old, now) } else { Ok(()) };
        drop(segs);
        self.forget_base(addr);
        self.set_addr(inode, slot, addr);
        placed.push(Placed { addr, temperature, ..page });
        freed
    }

    /// Writes placed pages. The inode's lock is not held.
    pub(crate) fn write_pages(&self, placed: &[Placed], cause: Cause) -> Result<()> {
        let Some(first) = placed.first() else { return Ok(()) };
        let refs: Vec<(BlockAddr, &Block)> = placed.iter().map(|p| (p.addr, &*p.page)).collect();
        let started = self.clock.monotonic();
        self.io.write_scattered(&refs, WriteTag::new(cause, first.temperature))?;
        self.note_write_cost(placed.len(), self.clock.monotonic().saturating_sub(started));
        Ok(())
    }

    /// Notes that placed pages have been written; those changed meanwhile stay dirty.
    pub(crate) fn pages_written(&self, inode: &Inode, state: &mut InodeState, placed: Vec<Placed>) {
        if placed.is_empty() {
            return;
        }
        state.data_mark = self.io.write_mark();
        for p in placed {
            let unchanged = state.dirty.get(&p.index).is_some_and(|page| Arc::ptr_eq(page, &p.page));
            if unchanged {
                self.page_is_clean(inode, state, p.index, p.page);
            }
        }
    }

    /// Notes that a dirty page has reached its block, or the delta zone.
    fn page_is_clean(&self, inode: &Inode, state: &mut InodeState, index: u64, page: Arc<Block>) {
        state.dirty.remove(&index);
        self.pages.sub_dirty(1);
        self.pages.insert(inode.ino, index, page);
        if state.dirty.is_empty() {
            state.with_checkpoint = false;
            self.inodes.set_clean(inode.ino);
        }
    }

    /// Changes a file while none of its nodes is on its way to the device, as some may be freed: makes room, then takes
    /// `wb`, the operation lock and the inode's lock. `Stale` where the inode is gone. No lock is held before.
    pub(crate) fn change_settled<R>(
        &self,
        inode: &Inode,
        change: impl FnOnce(&mut InodeState) -> Result<R>,
    ) -> Result<R> {
        self.check_writable()?;
        self.make_room()?;
        let _wb = inode.wb.lock();
        let _op = self.op()?;
        let mut state = inode.lock.write();
        inode.check_alive(&state)?;
        change(&mut state)
    }

    /// Writes all dirty pages of an inode, in batches.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut from = 0;
        loop {
            self.check_writable()?;
            self.make_room()?;
            let _wb = inode.wb.lock();
            let _op = self.op()?;
            let mut state = inode.lock.write();
            let indices: Vec<u64> = state.dirty.range(from..).take(BATCH).map(|(&i, _)| i).collect();
            let Some(&last) = indices.last() else { return Ok(()) };
            let placing = self.place_pages(inode, &mut state, &indices, Purpose::Background);
            drop(state);
            self.write_pages(&placing.pages, Cause::Data)?;
            self.pages_written(inode, &mut inode.lock.write(), placing.pages);
            placing.outcome?;
            from = last + 1;
        }
    }

    /// Writes the dirty pages of all files.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        for inode in self.inodes.dirty() {
            self.write_back(&inode)?;
        }
        Ok(())
    }

    /// Called after a write, with no lock held: keeps dirty pages below half of the cache.
    pub(crate) fn throttle(&self, inode: &Arc<Inode>) -> Result<()> {
        let limit = self.pages.capacity() / 2;
        if self.pages.dirty() <= limit {
            return Ok(());
        }
        self.write_back(inode)?;
        if self.pages.dirty() > limit {
            self.write_back_all()?;
        }
        Ok(())
    }

    /// For a checkpoint, which holds the operation lock exclusively: writes the pages of everything but regular files, and
    /// of those the ones that the checkpoint would lose (see [`InodeState::with_checkpoint`]).
    pub(crate) fn write_back_for_checkpoint(&self) -> Result<()> {
        for inode in self.inodes.dirty() {
            let mut state = inode.lock.write();
            if inode.kind() == medfs_format::node::FileKind::Regular && !state.with_checkpoint {
                continue;
            }
            let indices: Vec<u64> = state.dirty.keys().copied().collect();
            let placing = self.place_pages(&inode, &mut state, &indices, Purpose::Checkpoint);
            self.write_pages(&placing.pages, Cause::Data)?;
            self.pages_written(&inode, &mut state, placing.pages);
            placing.outcome?;
        }
        Ok(())
    }

    /// For cleaning: moves pages of a file to the cold data log. Pages with newer content in memory take that along.
    pub(crate) fn move_pages(&self, inode: &Arc<Inode>, indices: &[u64]) -> Result<()> {
        let _wb = inode.wb.lock();
        let _op = self.op()?;
        let mut state = inode.lock.write();
        if state.dead {
            return Ok(());
        }
        let mut present = Vec::with_capacity(indices.len());
        for &index in indices {
            if !state.dirty.contains_key(&index) {
                let Some(slot) = self.find_slot(inode, index)? else { continue };
                if !is_block(slot.addr()) {
                    continue;
                }
                if self.delta_of(inode, index)?.is_some() {
                    self.move_base(inode, &mut state, &slot, index)?;
                    continue;
                }
                let page = self.read_page(inode, &state, index)?;
                self.pages.remove(inode.ino, index);
                self.add_dirty_page(inode, &mut state, index, page);
            }
            present.push(index);
        }
        let placing = self.place_pages(inode, &mut state, &present, Purpose::Move);
        drop(state);
        self.write_pages(&placing.pages, Cause::Gc)?;
        self.pages_written(inode, &mut inode.lock.write(), placing.pages);
        placing.outcome
    }
}

impl Fs {
    /// For cleaning: moves the base of a page that is a delta, which stays. Readers wait: nothing but the inode tells
    /// them that this block is not a page.
    fn move_base(&self, inode: &Arc<Inode>, state: &mut InodeState, slot: &Slot, index: u64) -> Result<()> {
        let about = Page {
            purpose: Purpose::Move,
            is_dir: false,
            advise: inode.raw(|r| r.advise()),
            pinned: false,
            dirty_pages: 0,
            deltas: false,
            inode_due: true,
        };
        let base = Placed::new(index, self.base(slot.addr())?);
        let mut placed = Vec::new();
        let outcome = self.place_page(inode, slot, &about, true, base, &mut placed);
        self.write_pages(&placed, Cause::Gc)?;
        state.data_mark = self.io.write_mark();
        self.space.wrote(placed.len() as u64);
        outcome
    }
}

fn temperature(log: Log) -> Temperature {
    match log {
        Log::HotData | Log::HotNode => Temperature::Hot,
        Log::WarmData | Log::WarmNode => Temperature::Warm,
        Log::ColdData | Log::ColdNode => Temperature::Cold,
    }
}
