//! Making compact pages, merging them, and letting go of what they say.
//!
//! Invariants and locks: those of [`super::compact`].

use super::compact::indices;
use super::compact_map::Load;
use super::layer::CompactPages;
use crate::content::record::{OwnedRecord, total_size};
use crate::error::{Error, Result};
use crate::map::inode::{Inode, InodeState};
use crate::stats::Counters;
use medfs_format::delta::{self, COMPACT_ROOM};
use medfs_format::{NEW_ADDR, NULL_ADDR};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// From so many compact pages on those with few records that count are merged.
const MERGE_FROM: usize = 8;

/// Compact pages that are looked at beside those with the least in them, where these cannot give their places.
const SPARE_VICTIMS: usize = 16;

/// What a new compact page may do where every place of the file has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Yield {
    /// It takes the place of one of which fewer records count than it brings deltas.
    IfItPays,
    /// It takes the place of the one with the fewest that count.
    Always,
}

impl CompactPages<'_> {
    /// Takes away what compact pages say of a range of pages whose records are gone from the zone.
    pub(crate) fn drop_compact(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: &Range<u64>,
    ) -> Result<()> {
        let (showing, others) = self.with_map(inode, |map| {
            let showing = map.showing_in(indices(pages));
            let others = !showing.is_empty() && map.has_deltas_outside(indices(pages));
            (showing, others)
        })?;
        if showing.is_empty() {
            return Ok(());
        }
        if !others {
            return self.forget_compact(inode);
        }
        let mut records = self.zone(inode).records()?;
        records.extend(showing.iter().map(|&index| OwnedRecord::tombstone(index)));
        if self.zone(inode).store(&records) {
            showing.iter().for_each(|&index| self.mask_compact(inode, index));
            return Ok(());
        }
        self.empty_zone_with(inode, state, records, pages)
    }

    /// Writes the zone's records, and the words about pages without a delta that it has no room for, into
    /// compact pages.
    fn empty_zone_with(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        records: Vec<OwnedRecord>,
        without: &Range<u64>,
    ) -> Result<()> {
        let packed = pack(records, self.deltas.most_sharing());
        match self.write_compact(inode, state, packed, Yield::Always) {
            Ok(()) => {
                self.zone(inode).store(&[]);
                Ok(())
            }
            Err(Error::NoSpace) => self.rewrite_compact(inode, state, without),
            Err(e) => Err(e),
        }
    }

    /// Lets no compact page count any more; their blocks are freed when the next compact page is made.
    fn forget_compact(&self, inode: &Inode) -> Result<()> {
        let first = self.with_map(inode, |map| {
            map.clear();
            map.next_sequence
        })?;
        self.zone(inode).set_compact(true, first);
        let mut records = self.zone(inode).records()?;
        records.retain(OwnedRecord::is_delta);
        self.zone(inode).store(&records);
        Ok(())
    }

    /// Writes all records in compact pages that count, but those of a range of pages, into new compact pages.
    fn rewrite_compact(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        without: &Range<u64>,
    ) -> Result<()> {
        let mut records = self.counting_records(inode, None)?;
        records.retain(|r| r.is_delta() && !without.contains(&u64::from(r.index)));
        let packed = pack(records, self.deltas.most_sharing());
        match self.prepare_places(inode, packed.len()) {
            Ok(places) => {
                self.forget_compact(inode)?;
                for (place, records) in places.into_iter().zip(packed) {
                    self.add_compact_page(inode, state, place, &records)?;
                }
                self.free_dead(inode, state)
            }
            Err(Error::NoSpace) => {
                for record in packed.iter().flatten() {
                    self.load_whole(inode, state, record)?;
                }
                self.forget_compact(inode)
            }
            Err(e) => Err(e),
        }
    }

    /// Most compact pages that a file has: one with clusters uses fewer addresses of its nodes.
    fn most_places(&self, inode: &Inode) -> usize {
        self.slots(inode).addrs_per_block().min(self.deltas.most_places())
    }

    /// Places for new compact pages, each with a slot and a reserved block. Where too few are free, compact pages with
    /// little in them give theirs. `NoSpace` (nothing that counts has changed) where that does not pay, or there is no
    /// room.
    fn places_for(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: &mut [Vec<OwnedRecord>],
        how: Yield,
    ) -> Result<Vec<u32>> {
        let (most, count) = (self.most_places(inode), pages.len());
        let free = || self.with_map(inode, |map| map.free_places(most).take(count).count());
        if free()? < count {
            self.free_dead(inode, state)?;
            let free = free()?;
            // Before anything is given up: these may find no room.
            self.prepare_places(inode, free)?;
            self.yield_places(inode, state, pages, free, how)?;
        }
        self.prepare_places(inode, count)
    }

    /// Has compact pages give their places to those of `pages` behind the first `free`: what counts of them becomes
    /// whole pages, and the new ones get their words that a page has no delta.
    fn yield_places(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: &mut [Vec<OwnedRecord>],
        free: usize,
        how: Yield,
    ) -> Result<()> {
        let (most, needed) = (self.most_places(inode), pages.len() - free);
        let taken: BTreeSet<u32> = pages.iter().flatten().map(|r| r.index).collect();
        let (mut leaving, mut whole) = (BTreeSet::new(), Vec::new());
        for sequence in self.with_map(inode, |map| map.least(most, needed + SPARE_VICTIMS))? {
            if leaving.len() == needed {
                break;
            }
            let mut counting = self.counting_records(inode, Some(sequence))?;
            counting.retain(|r| !taken.contains(&r.index));
            let brings = pages[free + leaving.len()].iter().filter(|r| r.is_delta()).count();
            leaving.insert(sequence);
            self.without_idle_marks(inode, &mut counting, &leaving)?;
            let (deltas, marks): (Vec<_>, Vec<_>) = counting.into_iter().partition(OwnedRecord::is_delta);
            let pays = how == Yield::Always || deltas.len() < brings;
            if pays && add_where_room_is(pages, marks) {
                whole.extend(deltas);
            } else {
                leaving.remove(&sequence);
            }
        }
        if leaving.len() < needed {
            return Err(Error::NoSpace);
        }
        whole.iter().try_for_each(|record| self.load_whole(inode, state, record))?;
        // Behind this nothing fails for want of room: nobody else takes the blocks of the places.
        self.space.reserve(needed as u64)?;
        for sequence in leaving {
            if let Some(place) = self.free_compact(inode, state, sequence)? {
                let slot = self.make_slot(inode, self.compact_start(inode) + u64::from(place))?;
                self.set_addr(inode, &slot, NEW_ADDR);
                self.count_block(inode);
            }
        }
        Ok(())
    }

    /// Sees to it that so many places for new compact pages have a slot and a reserved block.
    fn prepare_places(&self, inode: &Inode, count: usize) -> Result<Vec<u32>> {
        let most = self.most_places(inode);
        let places: Vec<u32> = self.with_map(inode, |map| map.free_places(most).take(count).collect())?;
        if places.len() < count {
            return Err(Error::NoSpace);
        }
        let start = self.compact_start(inode);
        for &place in &places {
            let slot = self.make_slot(inode, start + u64::from(place))?;
            if slot.addr() == NULL_ADDR {
                self.space.reserve(1)?;
                self.set_addr(inode, &slot, NEW_ADDR);
                self.count_block(inode);
            }
        }
        Ok(places)
    }

    /// Makes a compact page at a place that is prepared.
    fn add_compact_page(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        place: u32,
        records: &[OwnedRecord],
    ) -> Result<()> {
        let borrowed: Vec<_> = records.iter().map(OwnedRecord::borrow).collect();
        let block = self.with_map(inode, |map| {
            let block = Arc::new(delta::compact_page(inode.ino, map.next_sequence, &borrowed));
            map.add(map.next_sequence, (place, delta::compact_id(&block)), Some(block.clone()), records);
            block
        })?;
        self.tie_zone(inode)?;
        self.add_dirty_page(inode, state, self.compact_start(inode) + u64::from(place), block);
        state.with_checkpoint = true;
        Counters::add(&self.deltas.counters.compact_pages, 1);
        Ok(())
    }

    /// Frees compact pages of which nothing counts.
    fn free_dead(&self, inode: &Inode, state: &mut InodeState) -> Result<()> {
        let dead = self.with_map(inode, |map| map.dead())?;
        dead.into_iter().try_for_each(|sequence| self.free_compact(inode, state, sequence).map(drop))
    }

    /// Frees a compact page, of which nothing is needed any more; returns its place.
    fn free_compact(&self, inode: &Inode, state: &mut InodeState, sequence: u32) -> Result<Option<u32>> {
        let Some((place, id)) = self.with_map(inode, |map| map.remove(sequence))? else { return Ok(None) };
        let index = self.compact_start(inode) + u64::from(place);
        self.forget_pages(inode, state, index, index + 1);
        let freed = self.punch(inode, index, index + 1);
        if self.pass_by("a compact page is not freed", inode.ino, freed)?.is_some() {
            self.with_map(inode, |map| map.tie.take(place, id))?;
            self.tie_zone(inode)?;
        }
        Ok(Some(place))
    }

    /// Has the zone say which compact pages there are, where it may.
    fn tie_zone(&self, inode: &Inode) -> Result<()> {
        let tie = self.with_map(inode, |map| map.tie)?;
        self.zone(inode).set_tie(tie);
        Ok(())
    }

    /// Records from compact pages with little in them that counts, to be written anew: as many as fit the
    /// `room` of one, and those of a page all or none. Where most of the pages is waste, a page's worth.
    fn records_to_merge(&self, inode: &Inode, room: Load, pages: usize) -> Result<Vec<OwnedRecord>> {
        let (sharing, most) = (self.deltas.most_sharing(), self.most_places(inode));
        let victims = self.with_map(inode, |map| {
            // A page of their own needs a place, too.
            let has_place = map.free_places(most).nth(pages).is_some();
            map.victims(room, sharing, if has_place { MERGE_FROM } else { usize::MAX })
        })?;
        let (mut records, mut leaving) = (Vec::new(), BTreeSet::new());
        for &sequence in &victims {
            let counting = self.counting_records(inode, Some(sequence));
            if let Some(counting) = self.pass_by("a compact page is not merged", inode.ino, counting)? {
                records.extend(counting);
                leaving.insert(sequence);
            }
        }
        self.without_idle_marks(inode, &mut records, &leaving)?;
        Ok(records)
    }

    /// Leaves out records that say that there is no delta where no compact page but `leaving` has one of their page.
    fn without_idle_marks(
        &self,
        inode: &Inode,
        records: &mut Vec<OwnedRecord>,
        leaving: &BTreeSet<u32>,
    ) -> Result<()> {
        self.with_map(inode, |map| {
            records.retain(|r| r.is_delta() || map.is_elsewhere(r.index, leaving));
        })
    }

    /// Writes records into new compact pages, together with what is left of pages with little in them, and frees those.
    /// `NoSpace` (nothing changed) where there is no room for the pages.
    pub(crate) fn write_compact(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        mut pages: Vec<Vec<OwnedRecord>>,
        how: Yield,
    ) -> Result<()> {
        let full = Load { bytes: COMPACT_ROOM, records: self.deltas.most_sharing() };
        let room = pages.last().map_or(Load::default(), |last| full.without(last.iter().map(Load::of).sum()));
        let mut last = pages.pop().unwrap_or_default();
        let taken: BTreeSet<u32> = pages.iter().flatten().chain(&last).map(|r| r.index).collect();
        let mut merged = self.records_to_merge(inode, room, pages.len() + 1)?;
        merged.retain(|r| !taken.contains(&r.index));
        merged.append(&mut last);
        pages.append(&mut pack(merged, self.deltas.most_sharing()));
        let places = self.places_for(inode, state, &mut pages, how)?;
        for (place, records) in places.into_iter().zip(pages) {
            self.add_compact_page(inode, state, place, &records)?;
        }
        self.free_dead(inode, state)
    }

    /// Makes the file one without compact pages: what they hold becomes dirty pages.
    pub(crate) fn leave_compact(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        if !self.is_delta_volume() || !self.has_compact(inode) {
            return Ok(());
        }
        for record in self.counting_records(inode, None)?.iter().filter(|r| r.is_delta()) {
            self.load_whole(inode, state, record)?;
        }
        let start = self.compact_start(inode);
        self.forget_pages(inode, state, start, u64::MAX);
        self.truncate_index(inode, start)?;
        self.forget_compact(inode)?;
        self.forget_compact_map(inode);
        self.zone(inode).set_compact(false, 0);
        Ok(())
    }

    /// Before everything is freed that an inode without a name has: no delta is to be left whose base is
    /// gone, whatever keeps the rest from being freed.
    pub(crate) fn forget_deltas(&self, inode: &Inode) -> Result<()> {
        if !self.is_delta_volume() || !matches!(self.zone_header(inode), Ok(Some(_))) {
            return Ok(());
        }
        if self.has_compact(inode) {
            self.truncate_index(inode, self.compact_start(inode))?;
            self.forget_compact_map(inode);
            self.zone(inode).set_compact(false, 0);
        }
        self.zone(inode).store(&[]);
        Ok(())
    }
}

/// Adds small records to pages that have room for them; `false` (some may have been added) where one finds none.
fn add_where_room_is(pages: &mut [Vec<OwnedRecord>], records: Vec<OwnedRecord>) -> bool {
    let mut room: Vec<usize> = pages.iter().map(|page| COMPACT_ROOM - total_size(page)).collect();
    records.into_iter().all(|record| {
        let size = record.size();
        let page = room.iter().position(|&room| room >= size);
        if let Some(page) = page {
            room[page] -= size;
            pages[page].push(record);
        }
        page.is_some()
    })
}

/// Records in the order given, divided among as few compact pages as that order takes, `sharing` to a page at
/// most. The word that a page has no delta is not one of these.
pub(super) fn pack(records: Vec<OwnedRecord>, sharing: usize) -> Vec<Vec<OwnedRecord>> {
    let mut pages: Vec<Vec<OwnedRecord>> = Vec::new();
    let mut left = Load::default();
    for record in records {
        let load = Load::of(&record);
        if !load.fits(left) {
            pages.push(Vec::new());
            left = Load { bytes: COMPACT_ROOM, records: sharing };
        }
        left = left.without(load);
        pages.last_mut().expect("just made").push(record);
    }
    debug_assert!(pages.iter().all(|p| total_size(p) <= COMPACT_ROOM));
    pages
}
