//! Writing pages of a file that may have deltas: each is kept as one, placed as a whole, or waits.
//!
//! Locks: the inode's, exclusive, its `wb` and the operation lock.

use super::layer::DeltaPages;
use crate::content::page_plan::{Changed, Decide, Decision, GATHERED, Pending, Placed, Placing};
use crate::content::placement::Batch;
use crate::content::storage::Write;
use crate::error::Result;
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::map::refs::MOST_MADE_WHOLE;
use medfs_format::Block;
use std::collections::HashMap;
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
        let placer = Placer { pages: *self, inode };
        let mut placing = Placing::of(Vec::with_capacity(indices.len()), Ok(()));
        let mut first = First::default();
        first.note(placer.place_all(state, indices, &about, &mut placing));
        if first.is_only(|e| self.is_damage(e)) {
            first.note(placer.place_what_follows(state, &about, &mut placing));
        }
        placing.outcome = first.result();
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
    fn place_all(
        &self,
        state: &mut InodeState,
        indices: &[u64],
        about: &Decide<'_>,
        placing: &mut Placing,
    ) -> Result<()> {
        for some in indices.chunks(GATHERED) {
            let bases = self.gather_bases(self.inode, some, about);
            self.place_some(state, some, about, bases, placing)?;
        }
        std::mem::take(&mut placing.damage).result()
    }

    /// Gives some pages their blocks. Damage that keeps one of them from it keeps no other: it is noted.
    fn place_some(
        &self,
        state: &mut InodeState,
        indices: &[u64],
        about: &Decide<'_>,
        mut bases: HashMap<u64, Arc<Block>>,
        placing: &mut Placing,
    ) -> Result<()> {
        let mut near = None;
        for &index in indices {
            let Some(page) = state.pages.get(index).cloned() else { continue };
            let changed = Changed { index, page, base: bases.remove(&index) };
            match self.place_one(state, near.as_ref(), changed, about, placing) {
                Ok(slot) => near = Some(slot),
                Err(e) if self.is_damage(&e) => {
                    placing.damaged.push(index);
                    placing.damage.note(Err(e));
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn place_one(
        &self,
        state: &mut InodeState,
        near: Option<&Slot>,
        changed: Changed,
        about: &Decide<'_>,
        placing: &mut Placing,
    ) -> Result<Slot> {
        let index = changed.index;
        let slot = self.make_slot_near(self.inode, near, index)?;
        let kept = self.keep_as_delta(self.inode, state, &slot, &changed, about)?;
        let page = changed.page;
        match kept {
            Decision::Stored => self.page_is_clean(self.inode, state, index, page),
            Decision::Overflow(pending) => placing.pending.push(pending),
            Decision::Deferred => placing.blocked.push(index),
            kept => {
                let new_block = matches!(kept, Decision::OutOfPlace);
                let page = Placed::new(index, page);
                self.place_page(self.inode, &slot, &about.batch, new_block, page, &mut placing.pages)?;
                self.drop_deltas(self.inode, state, index..index + 1)?;
                state.whole.remove(&index);
                let noted = about.sources.placed_whole(self.inode, state, index);
                self.pass_by("frames of a log are not remembered", self.inode.ino, noted)?;
            }
        }
        Ok(slot)
    }

    /// Places what the first pages led to: deltas that found no room in the zone, pages whose deltas gave
    /// way, which must be durable together with the inode that says so, and compact pages. A page that becomes whole
    /// may be what others of its file are made from, and so on: each time round some of these lose their records, and
    /// none gets another that is made from pages of the file.
    fn place_what_follows(
        &self,
        state: &mut InodeState,
        about: &Decide<'_>,
        placing: &mut Placing,
    ) -> Result<()> {
        let about = Decide { deltas: false, ..*about };
        let mut next = self.settle_placed(state, placing)?;
        let (mut damage, mut room) = (First::default(), MOST_MADE_WHOLE);
        loop {
            let (blocked, purpose) = (&mut placing.blocked, about.batch.purpose);
            next.extend(self.free_of_own(self.inode, state, blocked, &mut room, purpose)?);
            let waits = |index: &u64| blocked.contains(index) || placing.damaged.contains(index);
            next.extend(state.whole.iter().copied().filter(|index| !waits(index)));
            next.sort_unstable();
            next.dedup();
            if next.is_empty() {
                break;
            }
            let placed = self.place_all(state, &next, &about, placing);
            self.put_off(&mut damage, placed)?;
            next.clear();
            // A page whose block others need, and that finds no place as a delta either, waits for them.
            let waiting = std::mem::take(&mut placing.pending);
            placing.blocked.extend(self.give_up_pending(self.inode.ino, waiting));
        }
        let start = self.compact_start(self.inode);
        let new = state.pages.dirty(start..);
        let new = new.filter(|(index, page)| !placing.pages.iter().any(|p| p.is(*index, page)));
        let compact: Vec<u64> = new.map(|(index, _)| index).collect();
        let placed = self.place_all(state, &compact, &about, placing);
        self.put_off(&mut damage, placed)?;
        damage.result()
    }

    /// Finds places for deltas that found no room in the zone; returns the pages of those that have none.
    fn settle_placed(&self, state: &mut InodeState, placing: &mut Placing) -> Result<Vec<u64>> {
        let pending = std::mem::take(&mut placing.pending);
        let indices: Vec<u64> = pending.iter().map(Pending::index).collect();
        let whole = self.settle_pending(self.inode, state, pending)?;
        for index in indices.into_iter().filter(|index| !whole.contains(index)) {
            if let Some(page) = state.pages.get(index).cloned() {
                self.page_is_clean(self.inode, state, index, page);
            }
        }
        Ok(whole)
    }
}
