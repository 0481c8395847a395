//! Writing pages of a file that may have deltas. First it is decided about all of them: each is kept as a delta, due to
//! be written as a whole, or waits. Then those that are due get their blocks, in the order of the file, each once.
//!
//! Invariants:
//! - What is decided takes effect in the zone at once, so that later pages find the room that earlier ones leave. A
//!   page that is due has no delta any more, and is among [`InodeState::whole`] until it has its block, if it had one.
//! - No block of a page that is due becomes a source: sources are pages that are clean, or not decided about yet.
//! - After the first decision only space and the device can refuse: what a block's address says is looked at before.
//!
//! Locks: the inode's, exclusive, its `wb` and the operation lock.

use super::layer::DeltaPages;
use crate::content::away::AwayPages;
use crate::content::page_plan::{Changed, Decide, Decision, GATHERED, Pending, Placed, Placing};
use crate::content::placement::Batch;
use crate::content::storage::Write;
use crate::error::Result;
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::map::refs::{MOST_MADE_WHOLE, Need};
use crate::stats::Counters;
use medfs_format::{Block, NEW_ADDR};
use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::Arc;

/// Pages that could be written in place of which it pays to write the inode with their deltas instead: with
/// fewer, one that does not become a delta after all would make both necessary, now and when it changes next.
const WORTH_AN_INODE: usize = 3;

/// A file whose pages are being written.
struct Placer<'a> {
    pages: DeltaPages<'a>,
    inode: &'a Arc<Inode>,
}

impl<'a> Deref for Placer<'a> {
    type Target = DeltaPages<'a>;

    fn deref(&self) -> &DeltaPages<'a> {
        &self.pages
    }
}

/// What was decided about pages, none of which has a block yet.
#[derive(Default)]
struct Decided {
    /// Pages that are to be written as a whole, and whether to a new block.
    due: BTreeMap<u64, bool>,
    /// Pages that stay dirty, as others need their blocks.
    blocked: Vec<u64>,
    /// Deltas that have no place yet.
    pending: Vec<Pending>,
    /// What kept pages from being decided about, of those that are being asked about now.
    damage: First,
    /// Pages of which damage keeps.
    damaged: Vec<u64>,
}

impl DeltaPages<'_> {
    /// Gives dirty pages their blocks, or keeps what changed of them.
    pub(super) fn place(&self, write: Write<'_>) -> Placing {
        let Write { inode, state, indices, purpose, sources } = write;
        let batch = Batch::of(inode, purpose, state.pages.dirty_len());
        let inode_due = !self.placement.overwrites(&batch, &self.store)
            || indices.len() >= WORTH_AN_INODE
            || indices.iter().any(|&index| self.refs.is_source(inode.ino, index))
            || self.nodes.dirtiness_of(inode.ino) >= purpose.least_for_deltas();
        let about = Decide::about(batch, inode_due, sources);
        let about = Decide { deltas: about.deltas && !self.placement.is_whole(&batch), ..about };
        let placer = Placer { pages: *self, inode };
        let mut decided = Decided::default();
        let mut first = First::default();
        first.note(placer.decide_all(state, indices, &about, &mut decided));
        if first.is_only(|e| self.is_damage(e)) {
            first.note(placer.decide_what_follows(state, &about, &mut decided));
        }
        let mut placing = Placing::of(Vec::with_capacity(decided.due.len()), Ok(()));
        first.note(placer.place_due(state, &batch, decided.due, &mut placing.pages));
        placing.blocked = decided.blocked;
        placing.outcome = first.result();
        // The inode says already that they have no deltas.
        state.with_checkpoint |= placing.outcome.is_err() && !state.whole.is_empty();
        let waited = self.refs.disclaim_all(inode.ino);
        debug_assert!(!waited || placing.outcome.is_err(), "a record has neither a place nor none");
        debug_assert!(
            placing.leaves_out_none(state, indices),
            "a page is neither placed, nor kept, nor waits"
        );
        placing
    }
}

impl Placer<'_> {
    fn decide_all(
        &self,
        state: &mut InodeState,
        indices: &[u64],
        about: &Decide<'_>,
        decided: &mut Decided,
    ) -> Result<()> {
        for some in indices.chunks(GATHERED) {
            let bases = self.gather_bases(self.inode, some, about);
            self.decide_some(state, some, about, bases, decided)?;
        }
        std::mem::take(&mut decided.damage).result()
    }

    /// Decides about some pages. Damage that keeps it from one of them keeps it from no other: it is noted.
    fn decide_some(
        &self,
        state: &mut InodeState,
        indices: &[u64],
        about: &Decide<'_>,
        mut bases: HashMap<u64, Arc<Block>>,
        decided: &mut Decided,
    ) -> Result<()> {
        let mut near = None;
        for &index in indices {
            if self.is_compact_page(self.inode, index) {
                continue; // all of them are due, when it is decided about the others
            }
            let slot = AwayPages(self).bring_back(self.inode, state, index).and_then(|page| {
                let Some(page) = page else { return Ok(near.clone()) };
                let changed = Changed { index, page, base: bases.remove(&index) };
                self.decide_one(state, near.as_ref(), changed, about, decided).map(Some)
            });
            match slot {
                Ok(slot) => near = slot,
                Err(e) if self.is_damage(&e) => {
                    decided.damaged.push(index);
                    decided.damage.note(Err(e));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn decide_one(
        &self,
        state: &mut InodeState,
        near: Option<&Slot>,
        changed: Changed,
        about: &Decide<'_>,
        decided: &mut Decided,
    ) -> Result<Slot> {
        let index = changed.index;
        let slot = self.make_slot_near(self.inode, near, index)?;
        self.take_back_block(state, &slot, &changed, about)?;
        match self.keep_as_delta(self.inode, state, &slot, &changed, about)? {
            Decision::Stored => self.page_is_clean(self.inode, state, index, changed.page),
            Decision::Overflow(pending) => decided.pending.push(pending),
            Decision::Deferred => decided.blocked.push(index),
            due => {
                self.check_addr(self.inode, index, slot.addr())?;
                let new_block = matches!(due, Decision::OutOfPlace);
                if new_block {
                    state.whole.insert(index);
                }
                self.drop_deltas(self.inode, state, index..index + 1)?;
                decided.due.insert(index, new_block);
                let noted = about.sources.placed_whole(self.inode, state, index);
                self.pass_by("frames of a log are not remembered", self.inode.ino, noted)?;
            }
        }
        Ok(slot)
    }

    /// Gives a page that was cut off and written anew its old block back, where little of it changed.
    fn take_back_block(
        &self,
        state: &mut InodeState,
        slot: &Slot,
        changed: &Changed,
        about: &Decide<'_>,
    ) -> Result<()> {
        let index = changed.index;
        if slot.addr() != NEW_ADDR || !about.deltas || state.whole.contains(&index) {
            return Ok(());
        }
        let Some(addr) = self.since.cut_off.of(self.inode.ino, index) else { return Ok(()) };
        let record = self.encode_alone(addr, index, &changed.page, self.deltas.record_max());
        let record =
            self.pass_by("a block that was cut off cannot be read", self.inode.ino, record)?.flatten();
        if record.is_some() {
            self.since.cut_off.take_back(self, self.inode, slot, index);
            Counters::add(&self.deltas.counters.taken_back, 1);
            // What is durable may hold a delta over the block: it is not overwritten.
            state.whole.insert(index);
        }
        Ok(())
    }

    /// Decides about what the first decisions led to: deltas that found no room in the zone, and pages whose deltas
    /// gave way, which must be durable together with the inode that says so. A page that becomes whole may be what
    /// others of its file are made from, and so on: each time round some of these lose their records, and none gets
    /// another that is made from pages of the file.
    fn decide_what_follows(
        &self,
        state: &mut InodeState,
        about: &Decide<'_>,
        decided: &mut Decided,
    ) -> Result<()> {
        let about = Decide { deltas: false, ..*about };
        let mut next = self.settle_decided(state, decided)?;
        let (mut damage, mut room) = (First::default(), MOST_MADE_WHOLE);
        loop {
            let (blocked, purpose) = (&mut decided.blocked, about.batch.purpose);
            next.extend(self.free_of_own(self.inode, state, blocked, &mut room, purpose)?);
            let has_an_answer = |index: &u64| {
                decided.due.contains_key(index)
                    || decided.blocked.contains(index)
                    || decided.damaged.contains(index)
            };
            next.extend(state.whole.iter().copied().filter(|index| !has_an_answer(index)));
            next.sort_unstable();
            next.dedup();
            if next.is_empty() {
                break;
            }
            let done = self.decide_all(state, &next, &about, decided);
            self.put_off(&mut damage, done)?;
            next.clear();
            // A page whose block others need, and that finds no place as a delta either, waits for them.
            let waiting = std::mem::take(&mut decided.pending);
            decided.blocked.extend(self.give_up_pending(self.inode.ino, waiting));
        }
        damage.result()
    }

    /// Finds places for deltas that found no room in the zone; returns the pages of those that have none.
    fn settle_decided(&self, state: &mut InodeState, decided: &mut Decided) -> Result<Vec<u64>> {
        let pending = std::mem::take(&mut decided.pending);
        let indices: Vec<u64> = pending.iter().map(Pending::index).collect();
        let whole = self.settle_pending(self.inode, state, pending)?;
        for index in indices.into_iter().filter(|index| !whole.contains(index)) {
            if let Some(page) = state.pages.get(index).cloned() {
                self.page_is_clean(self.inode, state, index, page);
            }
        }
        Ok(whole)
    }

    /// Gives the pages that are due, and the file's new compact pages, their blocks. Damage that keeps one of them from
    /// it keeps no other.
    fn place_due(
        &self,
        state: &mut InodeState,
        batch: &Batch,
        mut due: BTreeMap<u64, bool>,
        placed: &mut Vec<Placed>,
    ) -> Result<()> {
        if self.has_compact(self.inode) {
            let start = self.compact_start(self.inode);
            due.extend(state.pages.dirty(start..).map(|index| (index, true)));
        }
        let mut damage = First::default();
        let mut near: Option<Slot> = None;
        for (index, new_block) in due {
            let Some(page) = state.pages.get(index).cloned() else { continue };
            debug_assert!(
                !self.is_source_in_memory(index),
                "a page is due, and its block has become a source"
            );
            let slot = self.make_slot_near(self.inode, near.as_ref(), index).and_then(|slot| {
                self.place_page(self.inode, &slot, batch, new_block, Placed::new(index, page), placed)?;
                Ok(slot)
            });
            match slot {
                Ok(slot) => near = Some(slot),
                Err(e) => {
                    self.put_off(&mut damage, Err(e))?;
                    continue;
                }
            }
            state.whole.remove(&index);
        }
        damage.result()
    }

    fn is_source_in_memory(&self, index: u64) -> bool {
        matches!(self.refs.need(self.inode.ino, index), Need::ByOthers | Need::ByItsFile)
    }
}
