//! Deciding about pages that are to be written: as a delta in the zone, in a compact page, or as a whole.
//!
//! Invariants: as in [`super`]. What was decided takes effect in memory at once, in the inode and in compact pages that are
//! dirty pages; the caller writes them in one go.
//! Locks: the inode's, exclusive, and the operation lock.

use super::Encoding;
use super::compact::pack;
use super::zone::has_nodes;
use crate::content::page_plan::{Changed, Decide, Kept, Pending};
use crate::content::placement::Purpose;
use crate::content::record::{OwnedRecord, total_size};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::map::refs::Need;
use crate::options::CompactFiles;
use crate::profile::hotness::Hotness;
use crate::stats::Counters;
use medfs_format::delta::COMPACT_ROOM;
use medfs_format::{FormatError, Ino, NULL_ADDR, Structure};
use std::ops::Range;
use std::sync::Arc;

/// Records that a compact page must take at least, for each one made, to be worth its block and that of its node.
const WORTH_A_COMPACT_PAGE: usize = 3;

impl Fs {
    /// Decides about a dirty page that is to be written: puts what changed into the zone where it can.
    pub(crate) fn keep_as_delta(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        slot: &Slot,
        changed: &Changed,
        about: &Decide,
    ) -> Result<Kept> {
        let (index, page) = (changed.index, &changed.page);
        if !self.is_delta_volume() {
            return Ok(Kept::Anywhere);
        }
        if self.is_compact_page(inode, index) {
            return Ok(Kept::NewBlock);
        }
        let addr = slot.addr();
        let (old, unknown) = match self.has_delta(inode, index) {
            Err(e) if self.is_damage(&e) => (false, Some(e)),
            old => (old?, None),
        };
        let fixed = old || unknown.is_some() || state.whole.contains(&index);
        let otherwise = match self.dependents.need(inode.ino, index) {
            Need::ByOthersOnDevice if about.batch.purpose == Purpose::Checkpoint => Kept::NewBlock,
            Need::ByOthers | Need::ByOthersOnDevice | Need::ByItsFile => Kept::Blocked,
            Need::ByItsFileOnDevice => Kept::NewBlock,
            Need::None if fixed => Kept::NewBlock,
            Need::None => Kept::Anywhere,
        };
        let blocked = matches!(otherwise, Kept::Blocked);
        if let Some(error) = unknown {
            return if blocked {
                Ok(otherwise)
            } else {
                self.mask_pages(inode, &(index..index + 1), error).map(|()| otherwise)
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
                self.drop_deltas(inode, state, index..index + 1)?;
                state.whole.remove(&index);
                Ok(Kept::Delta)
            }
            Encoding::Delta(record) => self.place_record(inode, state, record, otherwise),
            // Not where it cannot be read: a write may fail there too.
            Encoding::Unreadable if blocked => Ok(otherwise),
            Encoding::Unreadable => Ok(Kept::NewBlock),
            Encoding::None if blocked && self.may_compact(inode) => {
                // As costly as the page, but its block stays.
                let record = self.encode_alone(addr, index, page, COMPACT_ROOM);
                let record = self.pass_by("a base cannot be read", inode.ino, record)?.flatten();
                Ok(record.map_or(Kept::Blocked, |record| Kept::Pending(Pending::delta(record, true))))
            }
            Encoding::None => {
                Counters::add(&self.deltas.counters.outgrown, u64::from(old));
                Ok(otherwise)
            }
        }
    }

    pub(super) fn place_record(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        record: OwnedRecord,
        otherwise: Kept,
    ) -> Result<Kept> {
        let must = matches!(otherwise, Kept::Blocked);
        let compactable = if must { self.may_compact(inode) } else { self.compacts(inode) };
        let inline = self.deltas.has_inline() && record.delta.len() <= self.deltas.inline_max;
        let stored = inline
            && (self.put_record(inode, &record)?
                || (self.grow_zone(inode, record.size())? && self.put_record(inode, &record)?));
        if !stored && compactable {
            return Ok(Kept::Pending(Pending::delta(record, must)));
        }
        let stored = stored || (inline && self.replace_worse(inode, state, &record)?);
        if !stored {
            self.dependents.drop_pages(inode.ino, page_range(&record));
            return Ok(otherwise);
        }
        self.mask_compact(inode, record.index);
        self.record_kept(state, &record);
        Ok(Kept::Delta)
    }

    /// Whether records of this file go into compact pages: it is written often and read seldom.
    pub(super) fn compacts(&self, inode: &Inode) -> bool {
        self.may_compact(inode)
            && (self.opts.compact_files == CompactFiles::All
                || self.hotness.of(inode.ino) == Hotness::WriteHot)
    }

    /// Whether records of this file can go into compact pages.
    fn may_compact(&self, inode: &Inode) -> bool {
        self.deltas.has_compact()
            && inode.pages() < self.compact_start(inode)
            && (self.has_compact(inode) || inode.raw(|r| r.i_nid[4].get() == 0))
    }

    /// Notes that a page's record has its place.
    fn record_kept(&self, state: &mut InodeState, record: &OwnedRecord) {
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
        self.put_record(inode, new)
    }

    /// The record that is worth less than a new one (case 2): so much larger that the room it leaves will save more
    /// writes than writing its page costs.
    fn worse_record(&self, inode: &Inode, new: &OwnedRecord) -> Result<Option<u64>> {
        let records = self.records(inode)?;
        let Some(largest) = records.iter().filter(|r| r.index != new.index).max_by_key(|r| r.delta.len())
        else {
            return Ok(None);
        };
        let mean = records.iter().map(|r| r.delta.len()).sum::<usize>() / records.len();
        let freed = largest.delta.len().saturating_sub(new.delta.len());
        let worth = self.costs.lock().worth_replacing(freed, mean.max(1), self.base_cache.missed());
        Ok(worth.then_some(u64::from(largest.index)))
    }

    /// Finds places for records that the zone had no room for: the zone's oldest records, and then these, go into compact
    /// pages until the rest fits the zone. Returns the pages that must be written as a whole instead.
    pub(crate) fn settle_pending(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        mut pending: Vec<Pending>,
    ) -> Result<Vec<u64>> {
        let mut whole = Vec::new();
        while !pending.is_empty() {
            let plan = self.plan(inode, &pending)?;
            if plan.is_worth_it() || pending.iter().all(|p| p.must) {
                match self.carry_out(inode, state, plan) {
                    Ok(()) => {
                        for p in &pending {
                            match &p.leaves {
                                Some(slot) => self.leave_block(inode, state, &p.record, slot)?,
                                None => self.record_kept(state, &p.record),
                            }
                        }
                        break;
                    }
                    Err(Error::NoSpace) => {}
                    Err(e) if self.is_damage(&e) => {
                        self.note_damage("no compact page is made", inode.ino, &e)
                    }
                    Err(e) => return Err(e),
                }
            }
            let largest = (0..pending.len()).max_by_key(|&i| (!pending[i].must, pending[i].record.size()));
            let given_up = pending.swap_remove(largest.expect("not empty"));
            whole.extend(self.give_up_pending(inode.ino, vec![given_up]));
        }
        Ok(whole)
    }

    /// The pages of records for which there is no place.
    pub(crate) fn give_up_pending(&self, ino: Ino, pending: Vec<Pending>) -> Vec<u64> {
        pending.iter().for_each(|p| self.dependents.drop_pages(ino, page_range(&p.record)));
        pending.iter().map(Pending::index).collect()
    }

    fn plan(&self, inode: &Inode, pending: &[Pending]) -> Result<Plan> {
        let mut records = self.records(inode)?;
        records.retain(|r| pending.iter().all(|p| p.record.index != r.index));
        records.extend(pending.iter().map(|p| p.record.clone()));
        let room = if self.deltas.has_inline() { self.frozen_room(inode) } else { 0 };
        if self.deltas.alone.is_some() {
            // Like with like, so that small ones fill a block.
            records.sort_by_key(OwnedRecord::size);
        }
        Ok(Plan::of(records, room, self.deltas.most_sharing()))
    }

    /// Of blocked pages, those that only other pages of the same file need: these become whole in the same change of the
    /// inode, after which the former may be written too. Returns them.
    pub(crate) fn free_of_own(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        blocked: &mut Vec<u64>,
    ) -> Result<Vec<u64>> {
        let mut freed = Vec::new();
        for index in std::mem::take(blocked) {
            if self.dependents.others_need(inode.ino, index..index + 1) {
                blocked.push(index);
                continue;
            }
            let dependents = self.dependents.own(inode.ino, index..index + 1);
            self.make_whole_or_give_up(inode, state, &dependents)?;
            freed.push(index);
        }
        Ok(freed)
    }

    fn carry_out(&self, inode: &Arc<Inode>, state: &mut InodeState, plan: Plan) -> Result<()> {
        let before = self.records(inode)?;
        let first = !has_nodes(inode) || !self.has_compact(inode);
        if self.zone_header(inode)?.is_none() && !self.grow_zone(inode, 0)? {
            return Err(Error::NoSpace);
        }
        self.store_records(inode, &plan.stay);
        plan.stay.iter().for_each(|record| self.mask_compact(inode, record.index));
        if plan.pages.is_empty() {
            return Ok(());
        }
        if first {
            self.freeze_zone(inode)?;
            self.set_zone_compact(inode, true, 0);
        }
        let written = self.write_compact(inode, state, plan.pages);
        if written.is_err() && !self.store_records(inode, &before) {
            // The zone has shrunk: what it held and holds no more is written as a whole.
            let stay = self.records(inode)?;
            for record in before.iter().filter(|r| r.is_delta() && stay.iter().all(|s| s.index != r.index)) {
                self.load_whole(inode, state, record)?;
            }
        }
        written
    }

    /// Takes a page's delta away and makes the page dirty, to be written as a whole before its inode is without the delta.
    pub(crate) fn make_whole(&self, inode: &Arc<Inode>, state: &mut InodeState, index: u64) -> Result<()> {
        let Some(record) = self.delta_of(inode, index)? else { return Ok(()) };
        self.load_whole(inode, state, &record)?;
        self.drop_deltas(inode, state, index..index + 1)
    }

    /// Makes the page of a record dirty, to be written as a whole.
    pub(super) fn load_whole(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        record: &OwnedRecord,
    ) -> Result<()> {
        let index = u64::from(record.index);
        if !state.dirty.contains_key(&index) {
            let addr = self.find_slot(inode, index)?.map_or(NULL_ADDR, |s| s.addr());
            if addr == NULL_ADDR && !self.is_compressed(inode) {
                let what = format!("{index}, a page that has no block and no space reserved");
                return Err(FormatError::corrupt(Structure::DeltaZone, inode.ino, "index", what).into());
            }
            let page = match self.pages.get(inode.ino, index) {
                Some(page) => page,
                None => self.rebuild(inode, record, addr)?,
            };
            self.pages.remove(inode.ino, index);
            self.add_dirty_page(inode, state, index, page);
        }
        state.whole.insert(index);
        state.with_checkpoint = true;
        Ok(())
    }

    /// Forgets the deltas of pages that go, or get other blocks.
    pub(crate) fn drop_deltas(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: Range<u64>,
    ) -> Result<()> {
        if !self.is_delta_volume() {
            return Ok(());
        }
        self.free_own_users(inode, state, &pages)?;
        if self.has_compact(inode)
            && let Err(e) = self.compact_pages_in(inode, &pages)
        {
            self.dependents.drop_pages(inode.ino, pages.clone());
            return if self.is_damage(&e) { self.mask_pages(inode, &pages, e) } else { Err(e) };
        }
        self.remove_records(inode, &pages)?;
        self.dependents.drop_pages(inode.ino, pages.clone());
        if self.has_compact(inode) { self.drop_compact(inode, state, &pages) } else { Ok(()) }
    }
}

impl Fs {
    /// Before the blocks of a range of pages go: makes those other pages of the file whole that are made from them.
    pub(crate) fn free_own_users(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: &Range<u64>,
    ) -> Result<()> {
        for dependent in self.dependents.own(inode.ino, pages.clone()) {
            if pages.contains(&dependent) {
                continue;
            }
            let record = self.delta_of(inode, dependent);
            let record = self.pass_by("a page is lost, as its delta cannot be read", inode.ino, record)?;
            if let Some(record) = record.flatten() {
                let loaded = self.load_whole(inode, state, &record);
                self.pass_by(
                    "a page is lost, as a block that it is made from cannot be read",
                    inode.ino,
                    loaded,
                )?;
                self.dependents.drop_pages(inode.ino, dependent..dependent + 1);
            }
        }
        Ok(())
    }
}

/// The page of a record, as a range.
fn page_range(record: &OwnedRecord) -> Range<u64> {
    u64::from(record.index)..u64::from(record.index) + 1
}

/// Where the records of a zone and those it has no room for are to go.
struct Plan {
    /// Into compact pages.
    pages: Vec<Vec<OwnedRecord>>,
    /// Into the zone.
    stay: Vec<OwnedRecord>,
}

impl Plan {
    /// Fills compact pages with the oldest records until the rest fits `room` bytes.
    fn of(records: Vec<OwnedRecord>, room: usize, sharing: usize) -> Plan {
        let mut left = total_size(&records);
        let mut pages = pack(records, sharing);
        let fits_from = pages.iter().position(|page| {
            let fits = left <= room;
            left -= total_size(page);
            fits
        });
        let stay = pages.split_off(fits_from.unwrap_or(pages.len()));
        Plan { pages, stay: stay.into_iter().flatten().collect() }
    }

    /// Whether it saves more blocks than it writes.
    fn is_worth_it(&self) -> bool {
        let moved: usize = self.pages.iter().map(|page| page.iter().filter(|r| r.is_delta()).count()).sum();
        moved >= WORTH_A_COMPACT_PAGE * self.pages.len()
    }
}
