//! Deciding about pages that are to be written: as a delta in the zone, in a compact page, or as a whole.
//!
//! Invariants: as in [`super`]. What was decided takes effect in memory at once, in the inode and in compact
//! pages that are dirty pages; the caller writes them in one go.
//! Locks: the inode's, exclusive, and the operation lock.

use super::encode::Encoding;
use super::layer::DeltaPages;
use crate::content::page_plan::{Changed, Decide, Decision, Pending};
use crate::content::placement::Purpose;
use crate::content::record::OwnedRecord;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::map::refs::Need;
use crate::options::CompactFiles;
use crate::profile::Hotness;
use crate::stats::Counters;
use medfs_format::delta::COMPACT_ROOM;
use std::sync::Arc;

impl DeltaPages<'_> {
    /// Decides about a dirty page that is to be written: puts what changed into the zone where it can.
    pub(crate) fn keep_as_delta(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        slot: &Slot,
        changed: &Changed,
        about: &Decide<'_>,
    ) -> Result<Decision> {
        let (index, page) = (changed.index, &changed.page);
        if !self.is_delta_volume() {
            return Ok(Decision::AnyPlace);
        }
        if self.is_compact_page(inode, index) {
            return Ok(Decision::OutOfPlace);
        }
        let addr = slot.addr();
        let (old, unknown) = match self.has_delta(inode, index) {
            Err(e) if self.is_damage(&e) => (false, Some(e)),
            old => (old?, None),
        };
        let is_old_base = || self.since.old_bases.has(inode.ino, index);
        let fixed = old || unknown.is_some() || state.whole.contains(&index) || is_old_base();
        let otherwise = match self.refs.need(inode.ino, index) {
            Need::ByOthersOnDevice if about.batch.purpose == Purpose::Checkpoint => Decision::OutOfPlace,
            Need::ByOthers | Need::ByOthersOnDevice | Need::ByItsFile => Decision::Deferred,
            Need::ByItsFileOnDevice => Decision::OutOfPlace,
            Need::None if fixed => Decision::OutOfPlace,
            Need::None => Decision::AnyPlace,
        };
        let blocked = matches!(otherwise, Decision::Deferred);
        if let Some(error) = unknown {
            return if blocked {
                Ok(otherwise)
            } else {
                self.zone(inode).mask(&(index..index + 1), error).map(|()| otherwise)
            };
        }
        if !((about.deltas && (about.inode_due || fixed)) || blocked) || !self.makes_records(inode) {
            return Ok(otherwise);
        }
        if self.deltas.alone.is_some() {
            return self.keep_alone(inode, slot, index, page, about, otherwise);
        }
        match self.encode_page(inode, state, addr, changed, about)? {
            Encoding::Same => {
                if fixed {
                    self.since.old_bases.add(inode.ino, index);
                }
                self.drop_deltas(inode, state, index..index + 1)?;
                state.whole.remove(&index);
                Ok(Decision::Stored)
            }
            Encoding::Delta(record) => self.place_record(inode, state, record, otherwise),
            // Not where it cannot be read: a write may fail there too.
            Encoding::Unreadable if blocked => Ok(otherwise),
            Encoding::Unreadable => Ok(Decision::OutOfPlace),
            Encoding::None if blocked && self.may_compact(inode) => {
                // As costly as the page, but its block stays.
                let record = self.encode_alone(addr, index, page, COMPACT_ROOM);
                let record = self.pass_by("a base cannot be read", inode.ino, record)?.flatten();
                Ok(record
                    .map_or(Decision::Deferred, |record| Decision::Overflow(Pending::delta(record, true))))
            }
            Encoding::None => {
                Counters::add(&self.deltas.counters.outgrown, u64::from(old));
                Ok(otherwise)
            }
        }
    }

    pub(crate) fn place_record(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        record: OwnedRecord,
        otherwise: Decision,
    ) -> Result<Decision> {
        let must = matches!(otherwise, Decision::Deferred);
        let compactable = if must { self.may_compact(inode) } else { self.compacts(inode) };
        let inline = self.deltas.has_inline() && record.delta.len() <= self.deltas.inline_max;
        let stored = inline
            && (self.zone(inode).put(&record)?
                || (self.zone(inode).grow(record.size())? && self.zone(inode).put(&record)?));
        if !stored && compactable {
            return Ok(Decision::Overflow(Pending::delta(record, must)));
        }
        let stored = stored || (inline && self.replace_worse(inode, state, &record)?);
        if !stored {
            self.refs.disclaim(inode.ino, record.index);
            return Ok(otherwise);
        }
        self.compact().mask_compact(inode, record.index);
        self.record_kept(inode, state, &record);
        Ok(Decision::Stored)
    }

    /// Whether records of this file go into compact pages: it is written often and read seldom.
    pub(crate) fn compacts(&self, inode: &Inode) -> bool {
        self.may_compact(inode)
            && (self.opts.compact_files == CompactFiles::All
                || self.profiles.hotness(inode.ino) == Hotness::WriteHot)
    }

    /// Whether records of this file can go into compact pages.
    pub(super) fn may_compact(&self, inode: &Inode) -> bool {
        self.deltas.has_compact()
            && inode.pages() < self.compact_start(inode)
            && (self.has_compact(inode) || inode.raw(|r| r.i_nid[4].get() == 0))
    }

    /// Notes that a page's record has its place.
    pub(super) fn record_kept(&self, inode: &Inode, state: &mut InodeState, record: &OwnedRecord) {
        self.refs.keep(inode.ino, record.index);
        Counters::add(&self.deltas.counters.made, 1);
        Counters::add(&self.deltas.counters.bytes, record.delta.len() as u64);
        state.whole.remove(&u64::from(record.index));
    }

    /// Lets another record leave the zone for a new one where that pays (case 2).
    fn replace_worse(&self, inode: &Arc<Inode>, state: &mut InodeState, new: &OwnedRecord) -> Result<bool> {
        let Some(victim) = self.worse_record(inode, new)? else { return Ok(false) };
        let made = self.make_whole(inode, state, victim);
        if self.pass_by("a delta stays, as its base cannot be read", inode.ino, made)?.is_none() {
            return Ok(false);
        }
        Counters::add(&self.deltas.counters.evicted_by_delta, 1);
        self.zone(inode).put(new)
    }

    /// The record that is worth less than a new one (case 2): so much larger that the room it leaves will save more
    /// writes than writing its page costs.
    fn worse_record(&self, inode: &Inode, new: &OwnedRecord) -> Result<Option<u64>> {
        let records = self.zone(inode).records()?;
        let Some(largest) = records.iter().filter(|r| r.index != new.index).max_by_key(|r| r.delta.len())
        else {
            return Ok(None);
        };
        let mean = records.iter().map(|r| r.delta.len()).sum::<usize>() / records.len();
        let freed = largest.delta.len().saturating_sub(new.delta.len());
        let worth = self.costs.lock().worth_replacing(freed, mean.max(1), self.base_cache.missed());
        Ok(worth.then_some(u64::from(largest.index)))
    }
}
