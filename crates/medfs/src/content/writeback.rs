//! Dirty pages on their way to the device.
//!
//! Invariants: a page's slot names the block it is being written to before the write starts, and the page
//! stays in memory until the write has ended, so that readers never see the block early. Nodes that name such
//! a block are written only by the holder of the inode's `wb`, after the pages, or by a checkpoint, which
//! waits for every operation. Locks: `wb`, then the operation lock, then the inode's lock, which is released
//! during I/O.

use crate::content::Content;
use crate::content::away::AwayPages;
use crate::content::block_writer::{BlockWriter, temperature};
use crate::content::page_plan::{Placed, Placing};
use crate::content::placement::{Batch, PageRef, Purpose};
use crate::content::storage::{Sources, Write};
use crate::error::{Error, Result};
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::map::page_versions::{Attributes, VersionId};
use crate::options::DeltaMode;
use crate::profile::Flushed;
use medfs_device::{Cause, WriteTag};
use medfs_format::node::FileKind;
use medfs_format::{Block, BlockAddr, FormatError, Ino, NULL_ADDR, Structure, is_block};
use medfs_store::runs;
use std::sync::Arc;

/// Pages written between two looks at the inode's lock.
pub(crate) const BATCH: usize = 1024;

/// Which dirty pages of a file are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Which {
    All,
    /// Those that take memory.
    InMemory,
}

/// What an fsync of these pages, in order, writes that were placed so; `tried` as deltas where they fit.
fn flushed(indices: &[u64], placing: &Placing, tried: bool) -> Flushed {
    let blocks = placing.pages.len() + placing.blocked.len();
    let of_file = || placing.pages.iter().filter(|page| !page.compact);
    Flushed {
        pages: indices.len() as u32,
        new: of_file().filter(|page| page.is_first).count() as u32,
        barred: of_file().filter(|page| page.barred).count() as u32,
        runs: indices.chunk_by(|&one, &next| one + 1 == next).count() as u32,
        deltas: tried.then(|| indices.len().saturating_sub(blocks) as u32),
    }
}

/// A batch of dirty pages that was written.
pub(crate) struct WrittenBatch {
    /// The page behind it.
    pub(crate) next: u64,
    /// Pages that must wait, as in [`Placing`].
    pub(crate) blocked: Vec<u64>,
    pub(crate) outcome: Result<()>,
}

impl Content {
    /// Gives dirty pages their blocks, and closes the version of the file that they belong to. The inode's lock
    /// is held exclusively, and `wb` and the operation lock. What was placed before a failure must be written
    /// all the same, as slots name those blocks already. [`Content::pages_written`] comes next.
    pub(crate) fn place_pages(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        indices: &[u64],
        purpose: Purpose,
        sources: &dyn Sources,
    ) -> Placing {
        if state.pages.away_len() > 0 {
            AwayPages(self).bring_all_back(inode, state, indices);
        }
        let is_fsync = matches!(purpose, Purpose::Fsync { .. });
        let counted = is_fsync && !indices.is_empty() && self.placement.counts();
        let tried = counted
            && self.is_delta_volume()
            && self.opts.delta_mode() != DeltaMode::Off
            && !self.placement.is_whole(&Batch::of(inode, purpose, 0));
        let write = Write { inode, state: &mut *state, indices, purpose, sources };
        let mut placing = self.storage(inode).place(self, write);
        if is_fsync {
            // What no page was made from goes: the file becomes durable without it.
            self.since.cut_off.free(self, inode.ino);
        }
        if counted {
            self.profiles.note_flushed(inode.ino, flushed(indices, &placing, tried));
        }
        if !placing.pages.is_empty() {
            placing.version = Some(state.pages.close(inode.raw(Attributes::of)));
        }
        placing
    }

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
        if old == NULL_ADDR {
            // Space is reserved when a page becomes dirty: another file has the node, too, and took the address away.
            let what = format!("none for page {}, whose place was reserved", page.index);
            return Err(FormatError::corrupt(Structure::Inode, inode.ino, "i_addr", what).into());
        }
        self.check_addr(inode, page.index, old)?;
        let compact = self.is_compact_page(inode, page.index);
        let block = if is_block(old) && !new_block { batch.overwritable(old) } else { batch.new_block() };
        let block = PageRef { index: (!compact).then_some(page.index), ..block };
        let (addr, barred) = self.block_writer().assign(slot, &block)?;
        if addr != old {
            self.set_addr(inode, slot, addr);
        }
        placed.push(Placed {
            addr,
            temperature: temperature(block.log()),
            compact,
            is_first: !is_block(old),
            barred,
            ..page
        });
        Ok(())
    }

    /// Writes placed pages, neighbours together. The inode's lock is not held.
    pub(crate) fn write_pages(&self, placed: &[Placed], cause: Cause) -> Result<()> {
        let deltas = self.is_delta_volume();
        let started = (deltas || self.placement.counts()).then(|| self.clock.monotonic());
        let mut placed: Vec<&Placed> = placed.iter().filter(|p| is_block(p.addr)).collect();
        placed.sort_by_key(|p| p.addr);
        if deltas {
            self.base_cache.begin_writing(placed.iter().map(|p| p.addr));
        }
        let mut requests = 0;
        for run in runs(&placed, |p| p.addr) {
            requests += 1;
            let refs: Vec<&Block> = run.iter().map(|p| p.content()).collect();
            let compact = if cause == Cause::Data { run.iter().filter(|p| p.compact).count() } else { 0 };
            let tag = WriteTag::new(cause, run[0].temperature).with_compact(compact);
            self.io.write(run[0].addr, &refs, tag)?;
        }
        if deltas {
            self.base_cache.end_writing(placed.iter().map(|p| p.addr));
        }
        if let Some(started) = started.filter(|_| !placed.is_empty()) {
            let elapsed = self.clock.monotonic().saturating_sub(started);
            self.costs.lock().pages_written(placed.len(), requests, elapsed);
        }
        Ok(())
    }

    /// Writes what was placed and notes it; returns the pages that must wait, and how placing went. The
    /// inode's lock is not held.
    pub(crate) fn write_placing(
        &self,
        inode: &Inode,
        placing: Placing,
        cause: Cause,
    ) -> Result<(Vec<u64>, Result<()>)> {
        let written = self.write_pages(&placing.pages, cause);
        self.pages_written(inode, &mut inode.lock.write(), placing.version, placing.pages, &written);
        written.map(|()| (placing.blocked, placing.outcome))
    }

    /// Drops the version that placed pages were closed in: they have been written, or could not be. Those that
    /// changed since they were placed stay dirty, as do all after a failure.
    pub(crate) fn pages_written(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        version: Option<VersionId>,
        placed: Vec<Placed>,
        written: &Result<()>,
    ) {
        let Some(version) = version else { return };
        if written.is_ok() {
            state.data_mark = self.io.write_mark();
            for p in placed {
                // A page may have changed after it was placed and before the version was closed.
                let placed = state.pages.page_in(version, p.index).is_some_and(|page| p.is(p.index, page));
                if placed && state.pages.is_as_in(version, p.index) {
                    self.page_is_clean(inode, state, p.index, p.page);
                }
            }
        }
        self.counted(inode.ino, state, |pages| pages.drop_version(version));
    }

    /// Notes that a dirty page has reached its block, or the delta zone.
    pub(crate) fn page_is_clean(&self, inode: &Inode, state: &mut InodeState, index: u64, page: Arc<Block>) {
        self.counted(inode.ino, state, |pages| pages.clean(index));
        self.pages.note_placed();
        self.nodes.changes.page_placed(inode.ino);
        self.since.in_nvram.left(inode.ino, index);
        // Behind the end nothing reads it, and who forgets a file's pages does not look there.
        if index < inode.pages() || inode.kind() != FileKind::Regular || self.is_compact_page(inode, index) {
            self.pages.insert(inode.ino, index, page);
        }
        if self.is_compact_page(inode, index) {
            self.storage(inode).own_page_written(self, inode, index);
        }
        if !state.pages.any_dirty() {
            state.with_checkpoint = false;
            self.inodes.set_clean(inode.ino);
        }
    }

    /// Changes a file while none of its nodes is on its way to the device, as some may be freed: takes `wb`,
    /// the operation lock and the inode's lock. `Stale` where the inode is gone. No lock is held before.
    pub(crate) fn change_alone<R>(
        &self,
        inode: &Inode,
        change: impl FnOnce(&mut InodeState) -> Result<R>,
    ) -> Result<R> {
        let _wb = inode.wb.lock();
        let _op = self.op()?;
        let mut state = inode.lock.write();
        inode.check_alive(&state)?;
        change(&mut state)
    }

    /// Writes a batch of dirty pages from `from` on; `None` where there was nothing to write.
    pub(crate) fn write_batch(
        &self,
        inode: &Arc<Inode>,
        from: u64,
        purpose: Purpose,
        which: Which,
        sources: &dyn Sources,
    ) -> Result<Option<WrittenBatch>> {
        let _wb = inode.wb.lock();
        let _op = self.op()?;
        sources.staging(inode);
        let mut state = inode.lock.write();
        let indices: Vec<u64> = match which {
            Which::All => state.pages.dirty(from..).take(BATCH).collect(),
            Which::InMemory => state.pages.dirty_here(from..).take(BATCH).map(|(index, _)| index).collect(),
        };
        let Some(&last) = indices.last() else { return Ok(None) };
        let placing = self.place_pages(inode, &mut state, &indices, purpose, sources);
        drop(state);
        let (blocked, outcome) = self.write_placing(inode, placing, Cause::Data)?;
        Ok(Some(WrittenBatch { next: last + 1, blocked, outcome }))
    }

    /// Writes the pages of an inode into a checkpoint; returns those that other files need, and how placing went.
    pub(crate) fn write_for_checkpoint(
        &self,
        inode: &Arc<Inode>,
        sources: &dyn Sources,
    ) -> Result<(Vec<u64>, Result<()>)> {
        sources.staging(inode);
        let mut state = inode.lock.write();
        let indices: Vec<u64> = state.pages.dirty(..).collect();
        // Pages that are away come back some at a time.
        let at_once = if state.pages.away_len() > 0 { BATCH } else { indices.len().max(1) };
        let (mut blocked, mut first) = (Vec::new(), First::default());
        for some in indices.chunks(at_once) {
            let placing = self.place_pages(inode, &mut state, some, Purpose::Checkpoint, sources);
            let written = self.write_pages(&placing.pages, Cause::Data);
            self.pages_written(inode, &mut state, placing.version, placing.pages, &written);
            written?;
            blocked.extend(placing.blocked);
            let failed = placing.outcome.as_ref().is_err_and(|e| !self.is_damage(e));
            first.note(placing.outcome);
            if failed {
                break;
            }
        }
        Ok((blocked, first.result()))
    }

    /// For cleaning: moves pages of a file to the cold data log. Pages with newer content in memory take that along.
    pub(crate) fn move_pages(
        &self,
        inode: &Arc<Inode>,
        indices: &[u64],
        sources: &dyn Sources,
    ) -> Result<()> {
        self.rewrite_pages(inode, indices, Purpose::Move, sources)
    }

    /// Writes pages of a file to new blocks, for cleaning or to bring them together. What deltas and other
    /// pages are made from moves to the cold data log as it is, or stays where pages are brought together.
    pub(crate) fn rewrite_pages(
        &self,
        inode: &Arc<Inode>,
        indices: &[u64],
        purpose: Purpose,
        sources: &dyn Sources,
    ) -> Result<()> {
        let _wb = inode.wb.lock();
        let _op = self.op()?;
        sources.staging(inode);
        let mut state = inode.lock.write();
        if state.dead {
            return Ok(());
        }
        let indices = match purpose {
            Purpose::Move => self.storage(inode).relocate(self, inode, &mut state, indices)?,
            _ => self.free_to_move(inode, indices)?,
        };
        let mut present = Vec::with_capacity(indices.len());
        for index in indices {
            if !state.pages.is_dirty(index) {
                let Some(slot) = self.find_slot(inode, index)? else { continue };
                if !is_block(slot.addr()) {
                    continue;
                }
                let page = self.read_page(inode, &state, index)?;
                self.pages.remove(inode.ino, index);
                self.add_dirty_page(inode, &mut state, index, page);
            }
            present.push(index);
        }
        let placing = self.place_pages(inode, &mut state, &present, purpose, sources);
        drop(state);
        self.write_placing(inode, placing, Cause::Gc)?.1
    }

    /// Those of some pages, in order, whose blocks are all that there is of them, and of which no other is made.
    /// The caller holds the file's lock.
    pub(crate) fn free_to_move(&self, inode: &Inode, indices: &[u64]) -> Result<Vec<u64>> {
        let (Some(&first), Some(&last)) = (indices.first(), indices.last()) else { return Ok(Vec::new()) };
        let kept = self.storage(inode).kept(self, inode, first..last + 1)?;
        let is_free =
            |index: &&u64| kept.binary_search(index).is_err() && !self.refs.is_source(inode.ino, **index);
        Ok(indices.iter().filter(is_free).copied().collect())
    }

    /// Moves blocks as they are, with the pages that they are of. Readers wait: they look for them at their
    /// addresses, and nowhere else.
    pub(crate) fn move_blocks(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        blocks: impl IntoIterator<Item = (u64, Slot)>,
        read: impl Fn(BlockAddr) -> Result<Arc<Block>>,
    ) -> Result<()> {
        let batch = Batch::of(inode, Purpose::Move, 0);
        let (mut placed, mut moved) = (Vec::new(), Vec::new());
        let mut outcome = Ok(());
        for (index, slot) in blocks {
            let old = slot.addr();
            outcome = read(old).and_then(|block| {
                moved.push((slot.clone(), old));
                self.place_page(inode, &slot, &batch, true, Placed::new(index, block), &mut placed)
            });
            if outcome.is_err() {
                break;
            }
        }
        if let Err(e) = self.write_pages(&placed, Cause::Gc) {
            // Nothing is written any more; who reads finds them where they are.
            moved.iter().for_each(|(slot, old)| self.set_addr(inode, slot, *old));
            return Err(e);
        }
        if !placed.is_empty() {
            state.data_mark = self.io.write_mark();
        }
        outcome
    }

    /// Pages that cannot be read hold back none of the blocks that they were made from.
    pub(crate) fn give_up(&self, ino: Ino, pages: &[u64], error: &Error) {
        self.note_damage("a page is lost: a block that it is rebuilt from cannot be read", ino, error);
        pages.iter().for_each(|&page| self.refs.drop_pages(ino, page..page + 1));
    }
}
