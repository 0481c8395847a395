//! Dirty pages on their way to the device.
//!
//! Invariants: a page's slot names the block it is being written to before the write starts, and the page stays in memory
//! until the write has ended, so that readers never see the block early. Nodes that name such a block are written only by
//! the holder of the inode's `wb`, after the pages, or by a checkpoint, which waits for every operation.
//! Locks: `wb`, then the operation lock, then the inode's lock, which is released during I/O.

use crate::content::Content;
use crate::content::block_writer::{BlockWriter, temperature};
use crate::content::page_plan::{Changed, Decide, GATHERED, Kept, Pending};
use crate::content::placement::{Batch, PageRef, Purpose};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState, Scope};
use crate::map::node_tree::Slot;
use crate::map::refs::Attempt;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::node::FileKind;
use medfs_format::{Block, BlockAddr, NULL_ADDR, is_block};
use medfs_store::runs;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// Pages that could be written in place of which it pays to write the inode with their deltas instead: with fewer, one that
/// does not become a delta after all would make both necessary, now and when it changes next.
const WORTH_AN_INODE: usize = 3;
/// Pages written between two looks at the inode's lock.
const BATCH: usize = 1024;

/// A page with the block it goes to.
pub(crate) struct Placed {
    pub(crate) index: u64,
    /// No block: the page is part of a cluster that other blocks hold.
    pub(crate) addr: BlockAddr,
    pub(crate) page: Arc<Block>,
    /// What is written, where that is not the page itself.
    pub(crate) content: Option<Arc<Block>>,
    pub(crate) temperature: Temperature,
    /// A compact page, and not one of the file.
    pub(crate) compact: bool,
}

impl Placed {
    pub(crate) fn new(index: u64, page: Arc<Block>) -> Placed {
        Placed { index, addr: NULL_ADDR, page, content: None, temperature: Temperature::Warm, compact: false }
    }

    /// What its block gets.
    fn content(&self) -> &Block {
        self.content.as_ref().unwrap_or(&self.page)
    }
}

/// Pages that were placed, and whether all were that should be.
pub(crate) struct Placing {
    pub(crate) pages: Vec<Placed>,
    /// Pages whose blocks other files need ([`Fs::unshare`]): they stay dirty, and the inode must not be written.
    pub(crate) blocked: Vec<u64>,
    /// Deltas that have no place yet.
    pending: Vec<Pending>,
    /// What kept pages from being placed, of those that are being placed now.
    damage: First,
    pub(crate) outcome: Result<()>,
}

/// A batch of dirty pages that was written.
struct WrittenBatch {
    /// The page behind it.
    next: u64,
    /// Pages that must wait, as in [`Placing`].
    blocked: Vec<u64>,
    outcome: Result<()>,
}

impl Placing {
    /// These pages, and nothing that waits.
    pub(crate) fn of(pages: Vec<Placed>, outcome: Result<()>) -> Placing {
        Placing { pages, blocked: Vec::new(), pending: Vec::new(), damage: First::default(), outcome }
    }

    /// Whether each of these pages that is still dirty has its block or waits, where nothing failed: what an fsync leaves out is lost.
    fn leaves_out_none(&self, state: &InodeState, indices: &[u64]) -> bool {
        let met: BTreeSet<u64> =
            self.pages.iter().map(|p| p.index).chain(self.blocked.iter().copied()).collect();
        self.outcome.is_err()
            || indices.iter().all(|index| !state.dirty.contains_key(index) || met.contains(index))
    }
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
        if let Some(compression) = self.compression(inode) {
            return self.place_clusters(inode, state, compression, indices, purpose);
        }
        let batch = Batch::of(inode, purpose, state.dirty.len());
        let inode_due = !self.placement.overwrites(&batch, &self.store)
            || indices.len() >= WORTH_AN_INODE
            || indices.iter().any(|&index| self.dependents.is_source(inode.ino, index))
            || self.nodes.dirtiness_of(inode.ino) >= purpose.least_for_deltas();
        let about = Decide::about(batch, inode_due);
        let mut placing = Placing::of(Vec::with_capacity(indices.len()), Ok(()));
        let mut first = First::default();
        first.note(self.place_all(inode, state, indices, &about, &mut placing));
        if first.is_only(|e| self.is_damage(e)) {
            first.note(self.place_what_follows(inode, state, &about, &mut placing));
        }
        placing.outcome = first.result();
        debug_assert!(
            placing.leaves_out_none(state, indices),
            "a page is neither placed, nor kept, nor waits"
        );
        placing
    }

    fn place_all(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        indices: &[u64],
        about: &Decide,
        placing: &mut Placing,
    ) -> Result<()> {
        for some in indices.chunks(GATHERED) {
            let bases = self.gather_bases(inode, some, about);
            self.place_some(inode, state, some, about, bases, placing)?;
        }
        std::mem::take(&mut placing.damage).result()
    }

    /// Gives some pages their blocks. Damage that keeps one of them from it keeps no other: it is noted.
    fn place_some(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        indices: &[u64],
        about: &Decide,
        mut bases: HashMap<u64, Arc<Block>>,
        placing: &mut Placing,
    ) -> Result<()> {
        let mut near = None;
        for &index in indices {
            let Some(page) = state.dirty.get(&index).cloned() else { continue };
            let changed = Changed { index, page, base: bases.remove(&index) };
            match self.place_one(inode, state, near.as_ref(), changed, about, placing) {
                Ok(slot) => near = Some(slot),
                Err(e) if self.is_damage(&e) => placing.damage.note(Err(e)),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn place_one(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        near: Option<&Slot>,
        changed: Changed,
        about: &Decide,
        placing: &mut Placing,
    ) -> Result<Slot> {
        let index = changed.index;
        let slot = self.make_slot_near(inode, near, index)?;
        let kept = self.keep_as_delta(inode, state, &slot, &changed, about)?;
        let page = changed.page;
        match kept {
            Kept::Delta => self.page_is_clean(inode, state, index, page),
            Kept::Pending(pending) => placing.pending.push(pending),
            Kept::Blocked => placing.blocked.push(index),
            kept => {
                let new_block = matches!(kept, Kept::NewBlock);
                let page = Placed::new(index, page);
                self.place_page(inode, &slot, &about.batch, new_block, page, &mut placing.pages)?;
                self.drop_deltas(inode, state, index..index + 1)?;
                state.whole.remove(&index);
                let noted = self.note_whole(inode, state, index);
                self.pass_by("frames of a log are not remembered", inode.ino, noted)?;
            }
        }
        Ok(slot)
    }

    /// Places what the first pages led to: deltas that found no room in the zone, pages whose deltas gave way, which must be
    /// durable together with the inode that says so, and compact pages.
    fn place_what_follows(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        about: &Decide,
        placing: &mut Placing,
    ) -> Result<()> {
        if !self.is_delta_volume() {
            return Ok(());
        }
        let about = Decide { deltas: false, ..*about };
        let pending = std::mem::take(&mut placing.pending);
        let indices: Vec<u64> = pending.iter().map(Pending::index).collect();
        let mut whole = self.settle_pending(inode, state, pending)?;
        for index in indices.into_iter().filter(|index| !whole.contains(index)) {
            if let Some(page) = state.dirty.get(&index).cloned() {
                self.page_is_clean(inode, state, index, page);
            }
        }
        let mut damage = First::default();
        loop {
            whole.extend(self.free_of_own(inode, state, &mut placing.blocked)?);
            whole.extend(state.whole.iter().copied().filter(|index| !placing.blocked.contains(index)));
            whole.sort_unstable();
            whole.dedup();
            let placed = self.place_all(inode, state, &whole, &about, placing);
            self.put_off(&mut damage, placed)?;
            // A page whose block others need, and that finds no place as a delta either, waits for them.
            whole.clear();
            let waiting = std::mem::take(&mut placing.pending);
            if waiting.is_empty() {
                break;
            }
            placing.blocked.extend(self.give_up_pending(inode.ino, waiting));
        }
        let start = self.compact_start(inode);
        let placed = |index: &u64| placing.pages.iter().any(|p| p.index == *index);
        let compact = state.dirty.range(start..).map(|(&index, _)| index);
        let compact: Vec<u64> = compact.filter(|index| !placed(index)).collect();
        let placed = self.place_all(inode, state, &compact, &about, placing);
        self.put_off(&mut damage, placed)?;
        damage.result()
    }

    /// Writes what was placed and notes it; returns the pages that must wait, and how placing went. The inode's lock is not held.
    pub(crate) fn write_placing(
        &self,
        inode: &Inode,
        placing: Placing,
        cause: Cause,
    ) -> Result<(Vec<u64>, Result<()>)> {
        self.write_pages(&placing.pages, cause)?;
        self.pages_written(inode, &mut inode.lock.write(), placing.pages);
        Ok((placing.blocked, placing.outcome))
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
    pub(crate) fn page_is_clean(&self, inode: &Inode, state: &mut InodeState, index: u64, page: Arc<Block>) {
        state.dirty.remove(&index);
        self.since.in_nvram.left(inode.ino, index);
        self.pages.sub_dirty(1);
        // Behind the end nothing reads it, and who forgets a file's pages does not look there.
        if index < inode.pages() || inode.kind() != FileKind::Regular || self.is_compact_page(inode, index) {
            self.pages.insert(inode.ino, index, page);
        }
        if self.is_compact_page(inode, index) {
            self.compact_written(inode, index);
        }
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

    /// Writes all dirty pages of an inode, in batches; those that damage keeps from it stay dirty, and the first error of it is returned.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>) -> Result<()> {
        self.write_back_for(inode, Purpose::Background)
    }

    /// The same, for a purpose. Where a log has no room left, room is made and the rest written.
    pub(crate) fn write_back_for(&self, inode: &Arc<Inode>, purpose: Purpose) -> Result<()> {
        let (mut from, mut first, mut left) = (0, First::default(), None);
        self.with_unshared(|| {
            let Some(WrittenBatch { next, blocked, outcome }) = self.write_batch(inode, from, purpose)?
            else {
                return Ok(Attempt::Done(()));
            };
            match outcome {
                Err(Error::NoSpace) => {
                    self.make_room_again(inode, &mut left)?;
                    return Ok(Attempt::Again);
                }
                Err(e) if !self.is_damage(&e) => return Err(e),
                outcome => first.note(outcome),
            }
            from = blocked.first().copied().unwrap_or(next);
            Ok(if blocked.is_empty() { Attempt::Again } else { Attempt::Blocked(inode.ino, blocked) })
        })?;
        first.result()
    }

    /// After a log had no room for pages of a file: makes some. `left` is how many were dirty when that was done last; `NoSpace`
    /// where it did not help. No lock is held.
    pub(crate) fn make_room_again(&self, inode: &Inode, left: &mut Option<usize>) -> Result<()> {
        let now = inode.lock.read().dirty.len();
        if left.replace(now).is_some_and(|before| before <= now) {
            return Err(Error::NoSpace);
        }
        self.make_room_for(now.min(BATCH) as u64 / 16)
    }

    /// Writes a batch of dirty pages from `from` on; `None` where there was nothing to write.
    fn write_batch(&self, inode: &Arc<Inode>, from: u64, purpose: Purpose) -> Result<Option<WrittenBatch>> {
        self.check_writable()?;
        self.make_room()?;
        let _wb = inode.wb.lock();
        let _op = self.op()?;
        let mut state = inode.lock.write();
        let indices: Vec<u64> = state.dirty.range(from..).take(BATCH).map(|(&i, _)| i).collect();
        let Some(&last) = indices.last() else { return Ok(None) };
        let placing = self.place_pages(inode, &mut state, &indices, purpose);
        drop(state);
        let (blocked, outcome) = self.write_placing(inode, placing, Cause::Data)?;
        Ok(Some(WrittenBatch { next: last + 1, blocked, outcome }))
    }

    /// Writes the dirty pages of all files. A file that cannot be written keeps no other from it; the first error is returned.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let mut first = First::default();
        for inode in self.inodes.dirty() {
            first.note(self.write_back(&inode));
            if !self.goes_on() {
                break;
            }
        }
        first.result()
    }

    /// Called after a write, with no lock held: keeps dirty pages below half of the cache.
    pub(crate) fn throttle(&self, inode: &Arc<Inode>) -> Result<()> {
        let limit = self.pages.capacity() / 2;
        if self.pages.dirty() <= limit {
            return Ok(());
        }
        if self.commit.scope() == Scope::Volume {
            return self.checkpoint_now();
        }
        self.write_back(inode)?;
        if self.pages.dirty() > limit {
            // Of other files: they hear of it when they are made durable.
            let written = self.write_back_all();
            self.pass_by("pages of a file stay in memory, as it cannot be written", 0, written)?;
        }
        Ok(())
    }

    /// For a checkpoint, which holds the operation lock exclusively: writes the pages of everything but regular files, and
    /// of those the ones that the checkpoint would lose (see [`InodeState::with_checkpoint`]). Pages stay dirty whose addresses or
    /// clusters cannot be read: the checkpoint makes these no worse than they are.
    pub(crate) fn write_back_for_checkpoint(&self) -> Result<()> {
        for inode in self.inodes.dirty() {
            if !inode.lock.read().goes_with_checkpoint(inode.kind(), self.commit.scope()) {
                continue;
            }
            let written = self.write_unblocked_for_checkpoint(&inode);
            self.pass_by(
                "a checkpoint leaves out pages of a file that cannot be written",
                inode.ino,
                written,
            )?;
        }
        Ok(())
    }

    /// Writes the pages of an inode, and before those that others need these others. A page that is placed may make a delta of another one give
    /// way, whose block others need in turn: so it goes on until none is left, and none becomes a source meanwhile.
    fn write_unblocked_for_checkpoint(&self, inode: &Arc<Inode>) -> Result<()> {
        let _barrier = self.dependents.barrier(inode.ino);
        let (mut blocked, mut outcome) = self.write_all_for_checkpoint(inode)?;
        while !blocked.is_empty() {
            let before = std::mem::take(&mut blocked);
            self.release_for_checkpoint(inode, &before)?;
            (blocked, outcome) = self.write_all_for_checkpoint(inode)?;
            if blocked == before {
                debug_assert!(false, "nothing else runs during a checkpoint");
                break;
            }
        }
        outcome
    }

    /// Writes the pages of an inode into a checkpoint; returns those that other files need, and how placing went.
    pub(crate) fn write_all_for_checkpoint(&self, inode: &Arc<Inode>) -> Result<(Vec<u64>, Result<()>)> {
        let mut state = inode.lock.write();
        let indices: Vec<u64> = state.dirty.keys().copied().collect();
        let placing = self.place_pages(inode, &mut state, &indices, Purpose::Checkpoint);
        self.write_pages(&placing.pages, Cause::Data)?;
        self.pages_written(inode, &mut state, placing.pages);
        Ok((placing.blocked, placing.outcome))
    }

    /// For cleaning: moves pages of a file to the cold data log. Pages with newer content in memory take that along.
    pub(crate) fn move_pages(&self, inode: &Arc<Inode>, indices: &[u64]) -> Result<()> {
        let _wb = inode.wb.lock();
        let _op = self.op()?;
        let mut state = inode.lock.write();
        if state.dead {
            return Ok(());
        }
        let indices = &self.move_clusters(inode, &mut state, indices)?;
        let mut present = Vec::with_capacity(indices.len());
        for &index in indices {
            let dirty = state.dirty.contains_key(&index);
            let base = self.has_delta(inode, index)?
                || self.dependents.is_source(inode.ino, index)
                || (!dirty && self.is_compact_page(inode, index));
            if base || !dirty {
                let Some(slot) = self.find_slot(inode, index)? else { continue };
                if !is_block(slot.addr()) {
                    continue;
                }
                if base {
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
        self.write_placing(inode, placing, Cause::Gc)?.1
    }
}

impl Fs {
    /// For cleaning: moves the base of a page that is a delta, which stays, or of other files' pages, or a compact page. Readers wait: they look for
    /// it at its address, and nowhere else.
    fn move_base(&self, inode: &Arc<Inode>, state: &mut InodeState, slot: &Slot, index: u64) -> Result<()> {
        let batch = Batch::of(inode, Purpose::Move, 0);
        let (old, base) = (slot.addr(), Placed::new(index, self.base(slot.addr())?));
        let mut placed = Vec::new();
        let outcome = self.place_page(inode, slot, &batch, true, base, &mut placed);
        if let Err(e) = self.write_pages(&placed, Cause::Gc) {
            // Nothing is written any more; who reads finds it where it is.
            self.set_addr(inode, slot, old);
            return Err(e);
        }
        state.data_mark = self.io.write_mark();
        outcome
    }
}

impl Content {
    /// What hands out data blocks.
    pub(crate) fn block_writer(&self) -> BlockWriter<'_> {
        BlockWriter { map: &self.map, placement: &*self.placement }
    }

    /// Gives one page its block and adds it to those placed.
    pub(crate) fn place_page(
        &self,
        inode: &Inode,
        slot: &Slot,
        batch: &Batch,
        new_block: bool,
        page: Placed,
        placed: &mut Vec<Placed>,
    ) -> Result<()> {
        let old = slot.addr();
        debug_assert_ne!(old, NULL_ADDR, "space is reserved when a page becomes dirty");
        let compact = self.is_compact_page(inode, page.index);
        let block = if is_block(old) && !new_block { batch.overwritable(old) } else { batch.new_block() };
        let block = PageRef { index: (!compact).then_some(page.index), ..block };
        let addr = self.block_writer().assign(slot, &block)?;
        if addr != old {
            self.set_addr(inode, slot, addr);
        }
        placed.push(Placed { addr, temperature: temperature(block.log()), compact, ..page });
        Ok(())
    }

    /// Writes placed pages, neighbours together. The inode's lock is not held.
    pub(crate) fn write_pages(&self, placed: &[Placed], cause: Cause) -> Result<()> {
        let started = self.clock.monotonic();
        let mut placed: Vec<&Placed> = placed.iter().filter(|p| is_block(p.addr)).collect();
        placed.sort_by_key(|p| p.addr);
        self.begin_writing(placed.iter().map(|p| p.addr));
        for run in runs(&placed, |p| p.addr) {
            let refs: Vec<&Block> = run.iter().map(|p| p.content()).collect();
            let compact = if cause == Cause::Data { run.iter().filter(|p| p.compact).count() } else { 0 };
            let tag = WriteTag::new(cause, run[0].temperature).with_compact(compact);
            self.io.write(run[0].addr, &refs, tag)?;
        }
        self.end_writing(placed.iter().map(|p| p.addr));
        if !placed.is_empty() && self.is_delta_volume() {
            let elapsed = self.clock.monotonic().saturating_sub(started);
            self.costs.lock().page_written(elapsed / placed.len() as u32);
        }
        Ok(())
    }
}
