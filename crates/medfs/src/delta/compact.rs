//! Compact pages: where records go for which the zone has no room (MedFS's DCM, sections 4.2 and 5).
//!
//! A compact page is a page of its file, beyond any end the file can have; so it is written, moved, recovered and freed as
//! every page is, and its commit point is the file's own inode. It carries its own index and a
//! sequence number, in place of a meta-page; the [`CompactMap`] of a file is made from all of its compact pages when it is
//! first asked for.
//!
//! Invariants:
//! - A compact page is never changed. It is freed when no record in it counts any more.
//! - A record that must not count any more, but is in a compact page, is masked by a record of the same page in the zone or in
//!   a later compact page: a new delta, or the word that there is none.
//! - Compact pages that are not yet written are dirty pages of their file, and go with the next checkpoint.
//!
//! Locks: as for pages; the map's mutex is taken with the inode's lock held, before the leaves.

use super::compact_map::{CompactMap, Load};
use crate::content::record::{OwnedRecord, total_size};
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::map::inode::{Inode, InodeState};
use crate::ranks;
use crate::stats::Counters;
use medfs_format::delta::{self, COMPACT_ROOM};
use medfs_format::node::ADDRS_PER_BLOCK;
use medfs_format::{Block, FormatError, NEW_ADDR, NULL_ADDR, Structure, is_block};
use medfs_sync::{Mutex, Ranked};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

/// Most compact pages of a file: what one direct node addresses.
const MOST_PAGES: usize = ADDRS_PER_BLOCK;
/// From so many compact pages on those with few records that count are merged.
const MERGE_FROM: usize = 8;

/// The map of a file as its inode remembers it: `None` until it is first asked for.
struct CompactMemory(Mutex<Option<CompactMap>>);

impl Default for CompactMemory {
    fn default() -> CompactMemory {
        CompactMemory(Mutex::new(None).ranked(ranks::DELTAS))
    }
}

impl Fs {
    /// Looks at, or changes, the map of a file that has compact pages.
    fn with_map<R>(&self, inode: &Inode, f: impl FnOnce(&mut CompactMap) -> R) -> Result<R> {
        let memory = inode.memory.of::<CompactMemory>();
        let mut map = memory.0.lock();
        if map.is_none() {
            *map = Some(self.load_map(inode)?);
        }
        Ok(f(map.as_mut().expect("just made")))
    }

    /// Reads all compact pages of a file.
    fn load_map(&self, inode: &Inode) -> Result<CompactMap> {
        let mut map = CompactMap::default();
        let Some(header) = self.zone_header(inode)? else { return Ok(map) };
        map.next_sequence = header.first.get();
        let start = self.compact_start(inode);
        let mut near = None;
        for place in 0..MOST_PAGES as u32 {
            let slot = self.find_slot_near(inode, near.as_ref(), start + u64::from(place))?;
            let Some(slot) = slot else { break };
            let addr = slot.addr();
            self.check_addr(inode, start + u64::from(place), addr)?;
            if is_block(addr) {
                let block = self.io.read(addr)?;
                let (sequence, records) = delta::compact_records(&block, inode.ino)?;
                if map.has_sequence(sequence) {
                    let value = format!("{sequence} twice");
                    let corrupt = FormatError::corrupt(Structure::CompactPage, inode.ino, "sequence", value);
                    return Err(corrupt.into());
                }
                let counts = sequence >= header.first.get();
                let records: Vec<_> = records.iter().filter(|_| counts).map(OwnedRecord::from).collect();
                map.add(sequence, place, None, &records);
            }
            near = Some(slot);
        }
        self.with_records(inode, |records| records.iter().for_each(|r| map.mask(r.index)))?;
        Ok(map)
    }

    /// What compact pages say of a page that has no record in the zone.
    pub(super) fn compact_record(&self, inode: &Inode, index: u64) -> Result<Option<OwnedRecord>> {
        let Ok(index) = u32::try_from(index) else { return Ok(None) };
        let found = self.with_map(inode, |map| map.delta_of(index))?;
        let Some((place, unwritten)) = found else { return Ok(None) };
        let block = match unwritten {
            Some(block) => block,
            None => self.compact_block(inode, place)?,
        };
        let (_, records) = delta::compact_records(&block, inode.ino)?;
        Ok(records.iter().find(|r| r.index == index).map(OwnedRecord::from))
    }

    fn compact_block(&self, inode: &Inode, place: u32) -> Result<Arc<Block>> {
        let index = self.compact_start(inode) + u64::from(place);
        if let Some(block) = self.pages.get(inode.ino, index) {
            return Ok(block);
        }
        let addr = self.find_slot(inode, index)?.map_or(NULL_ADDR, |slot| slot.addr());
        if !is_block(addr) {
            let value = format!("{addr:#x} for compact page {place}");
            return Err(FormatError::corrupt(Structure::CompactPage, inode.ino, "i_addr", value).into());
        }
        let block = Arc::new(*self.io.read(addr)?);
        self.pages.insert(inode.ino, index, block.clone());
        Ok(block)
    }

    /// The pages of a range that have deltas in compact pages.
    pub(super) fn compact_pages_in(&self, inode: &Inode, pages: &Range<u64>) -> Result<Vec<u64>> {
        self.with_map(inode, |map| map.deltas_in(indices(pages)).map(u64::from).collect())
    }

    /// Forgets the map of a file: it is read again when it is next asked for.
    pub(crate) fn forget_compact_map(&self, inode: &Inode) {
        *inode.memory.of::<CompactMemory>().0.lock() = None;
    }

    /// The pages of a file whose compact pages are known that may be compressed alone, with the bytes of their records.
    pub(super) fn maybe_alone(&self, inode: &Inode) -> Vec<(u32, usize)> {
        inode.memory.of::<CompactMemory>().0.lock().as_ref().map(CompactMap::maybe_alone).unwrap_or_default()
    }

    /// Notes that the zone has a record of a page now.
    pub(super) fn mask_compact(&self, inode: &Inode, index: u32) {
        if let Some(map) = inode.memory.of::<CompactMemory>().0.lock().as_mut() {
            map.mask(index);
        }
    }

    /// Notes that a compact page has been written.
    pub(crate) fn compact_written(&self, inode: &Inode, index: u64) {
        let place = index.saturating_sub(self.compact_start(inode)) as u32;
        if let Some(map) = inode.memory.of::<CompactMemory>().0.lock().as_mut() {
            map.written(place);
        }
    }

    /// Takes away what compact pages say of a range of pages whose records are gone from the zone.
    pub(super) fn drop_compact(
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
        let mut records = self.records(inode)?;
        records.extend(showing.iter().map(|&index| OwnedRecord::none(index)));
        if self.store_records(inode, &records) {
            showing.iter().for_each(|&index| self.mask_compact(inode, index));
            return Ok(());
        }
        self.empty_zone_with(inode, state, records, pages)
    }

    /// Writes the zone's records, and the words about pages without a delta that it has no room for, into compact pages.
    fn empty_zone_with(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        records: Vec<OwnedRecord>,
        without: &Range<u64>,
    ) -> Result<()> {
        match self.write_compact(inode, state, pack(records, self.deltas.most_sharing())) {
            Ok(()) => {
                self.store_records(inode, &[]);
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
        self.set_zone_compact(inode, true, first);
        let mut records = self.records(inode)?;
        records.retain(OwnedRecord::is_delta);
        self.store_records(inode, &records);
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

    /// Records in compact pages that count: of one of them, or of all.
    fn counting_records(&self, inode: &Inode, of: Option<u32>) -> Result<Vec<OwnedRecord>> {
        let indices = self.with_map(inode, |map| map.counting(of))?;
        let mut records = Vec::with_capacity(indices.len());
        for (index, delta) in indices {
            if !delta {
                records.push(OwnedRecord::none(index));
            } else if let Some(record) = self.compact_record(inode, index.into())? {
                records.push(record);
            }
        }
        Ok(records)
    }

    /// All records of a file that count: in the zone and in compact pages.
    pub(crate) fn all_records(&self, inode: &Inode) -> Result<Vec<OwnedRecord>> {
        let mut records = self.records(inode)?;
        if self.has_compact(inode) {
            records.extend(self.counting_records(inode, None)?);
        }
        records.retain(OwnedRecord::is_delta);
        Ok(records)
    }

    /// Sees to it that so many places for new compact pages have a slot and a reserved block.
    fn prepare_places(&self, inode: &Inode, count: usize) -> Result<Vec<u32>> {
        // A file with clusters uses fewer addresses of its nodes.
        let most = self.slots(inode).addrs_per_block();
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
            map.add(map.next_sequence, place, Some(block.clone()), records);
            block
        })?;
        self.add_dirty_page(inode, state, self.compact_start(inode) + u64::from(place), block);
        state.with_checkpoint = true;
        Counters::add(&self.deltas.counters.compact_pages, 1);
        Ok(())
    }

    /// Frees compact pages of which nothing counts.
    fn free_dead(&self, inode: &Inode, state: &mut InodeState) -> Result<()> {
        let places: Vec<u32> = self.with_map(inode, |map| {
            let dead = map.dead();
            dead.into_iter().filter_map(|sequence| map.remove(sequence)).collect()
        })?;
        let start = self.compact_start(inode);
        for index in places.into_iter().map(|place| start + u64::from(place)) {
            self.forget_pages(inode, state, index, index + 1);
            let freed = self.punch(inode, index, index + 1);
            self.pass_by("a compact page is not freed", inode.ino, freed)?;
        }
        Ok(())
    }

    /// Records from compact pages with little in them that counts, to be written anew: as many as fit the `room` of one, and
    /// those of a page all or none. Where most of the pages is waste, a page's worth.
    fn records_to_merge(&self, inode: &Inode, room: Load) -> Result<Vec<OwnedRecord>> {
        let sharing = self.deltas.most_sharing();
        let victims = self.with_map(inode, |map| map.victims(room, sharing, MERGE_FROM))?;
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
    pub(super) fn write_compact(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        mut pages: Vec<Vec<OwnedRecord>>,
    ) -> Result<()> {
        let full = Load { bytes: COMPACT_ROOM, records: self.deltas.most_sharing() };
        let room = pages.last().map_or(Load::default(), |last| full.without(last.iter().map(Load::of).sum()));
        let mut last = pages.pop().unwrap_or_default();
        let taken: BTreeSet<u32> = pages.iter().flatten().chain(&last).map(|r| r.index).collect();
        let mut merged = self.records_to_merge(inode, room)?;
        merged.retain(|r| !taken.contains(&r.index));
        merged.append(&mut last);
        pages.append(&mut pack(merged, self.deltas.most_sharing()));
        let places = self.prepare_places(inode, pages.len())?;
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
        *inode.memory.of::<CompactMemory>().0.lock() = None;
        self.set_zone_compact(inode, false, 0);
        Ok(())
    }

    /// Before everything is freed that an inode without a name has: no delta is to be left whose base is gone, whatever keeps the rest
    /// from being freed.
    pub(crate) fn forget_deltas(&self, inode: &Inode) -> Result<()> {
        if !self.is_delta_volume() || !matches!(self.zone_header(inode), Ok(Some(_))) {
            return Ok(());
        }
        if self.has_compact(inode) {
            self.truncate_index(inode, self.compact_start(inode))?;
            *inode.memory.of::<CompactMemory>().0.lock() = None;
            self.set_zone_compact(inode, false, 0);
        }
        self.store_records(inode, &[]);
        Ok(())
    }
}

/// A range of pages as records number them.
fn indices(pages: &Range<u64>) -> Range<u32> {
    let clamp = |page: u64| u32::try_from(page).unwrap_or(u32::MAX);
    let start = clamp(pages.start);
    start..clamp(pages.end).max(start)
}

/// Records in the order given, divided among as few compact pages as that order takes, `sharing` to a page at most. The word
/// that a page has no delta is not one of these.
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
