//! What the compact pages of a file hold: its map in memory.
//!
//! Invariant: of the records of a page the newest counts, unless the zone masks it; a compact page of which
//! nothing counts may go. Pure: it knows no device.

use super::fpc_records::may_be_alone;
use crate::content::record::OwnedRecord;
use medfs_format::Block;
use medfs_format::delta::{COMPACT_ROOM, RECORD_HEADER_SIZE, Tie};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Bound, Range};
use std::sync::Arc;

/// The compact pages of a file in memory. What an fsync asks of it is answered without a walk over pages or records.
#[derive(Debug, Default)]
pub(super) struct CompactMap {
    /// By sequence number.
    pages: BTreeMap<u32, CompactPage>,
    /// The latest record of each page that any compact page has one of.
    newest: BTreeMap<u32, Newest>,
    pub(super) next_sequence: u32,
    /// Which compact pages the file's addresses lead to, or will where they are not written yet.
    pub(super) tie: Tie,
    /// The sequence number at each place for compact pages, up to the last that is taken.
    places: Vec<Option<u32>>,
    /// Compact pages by what of them counts, the least first.
    by_load: BTreeSet<(Load, u32)>,
    /// What counts of all compact pages.
    all: Load,
    /// Records that count and are deltas.
    deltas: usize,
}

#[derive(Debug)]
struct CompactPage {
    /// Which of the places for compact pages it has.
    place: u32,
    /// Its number in the tie.
    id: u32,
    /// The pages it has records of.
    indices: BTreeSet<u32>,
    /// What of it counts.
    load: Load,
    /// Its content until that is written.
    unwritten: Option<Arc<Block>>,
}

/// What records take of a compact page, or what is left of one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Load {
    pub(super) bytes: usize,
    /// Deltas and compressed pages among them.
    pub(super) records: usize,
}

impl Load {
    pub(super) fn of(record: &OwnedRecord) -> Load {
        Load { bytes: record.size(), records: usize::from(record.is_delta()) }
    }

    pub(super) fn fits(self, left: Load) -> bool {
        self.bytes <= left.bytes && self.records <= left.records
    }

    pub(super) fn with(self, load: Load) -> Load {
        Load { bytes: self.bytes + load.bytes, records: self.records + load.records }
    }

    pub(super) fn without(self, load: Load) -> Load {
        Load {
            bytes: self.bytes.saturating_sub(load.bytes),
            records: self.records.saturating_sub(load.records),
        }
    }

    /// Whether it is less than half of what `pages` compact pages hold.
    pub(super) fn wastes(self, pages: usize, sharing: usize) -> bool {
        self.bytes * 2 < pages * COMPACT_ROOM && self.records * 2 < pages * sharing
    }
}

impl std::iter::Sum for Load {
    fn sum<I: Iterator<Item = Load>>(loads: I) -> Load {
        loads.fold(Load::default(), Load::with)
    }
}

#[derive(Debug, Clone)]
struct Newest {
    sequence: u32,
    size: usize,
    /// Perhaps a page that is compressed alone.
    alone: bool,
    /// Nothing in the zone masks it.
    counts: bool,
    /// A delta, and not the word that there is none.
    delta: bool,
    /// Older compact pages that have a record of the page, in order.
    older: Vec<u32>,
}

impl Newest {
    /// What it takes of its compact page.
    fn load(&self) -> Load {
        match self.counts {
            true => Load { bytes: self.size, records: usize::from(self.delta) },
            false => Load::default(),
        }
    }
}

impl CompactMap {
    /// A compact page is at a place: its number in the tie, and its records that count.
    pub(super) fn add(
        &mut self,
        sequence: u32,
        (place, id): (u32, u32),
        unwritten: Option<Arc<Block>>,
        records: &[OwnedRecord],
    ) {
        let indices = records.iter().map(|r| r.index).collect();
        self.tie.add(place, id);
        self.pages.insert(sequence, CompactPage { place, id, indices, load: Load::default(), unwritten });
        self.by_load.insert((Load::default(), sequence));
        for r in records {
            self.add_record(sequence, r);
        }
        let places = self.places.len().max(place as usize + 1);
        self.places.resize(places, None);
        self.places[place as usize] = Some(sequence);
        self.next_sequence = self.next_sequence.max(sequence.wrapping_add(1));
    }

    fn add_record(&mut self, sequence: u32, r: &OwnedRecord) {
        let (size, alone) = (r.size(), may_be_alone(r));
        let mut new = Newest { sequence, size, alone, counts: true, delta: r.is_delta(), older: Vec::new() };
        match self.newest.get_mut(&r.index) {
            Some(known) if known.sequence > sequence => {
                let at = known.older.partition_point(|&older| older < sequence);
                known.older.insert(at, sequence);
                return;
            }
            Some(known) => {
                new.older = std::mem::take(&mut known.older);
                if known.sequence < sequence {
                    new.older.push(known.sequence);
                }
            }
            None => {}
        }
        self.set_newest(r.index, Some(new));
    }

    /// Puts another record in the place of a page's latest, and accounts for both.
    fn set_newest(&mut self, index: u32, new: Option<Newest>) {
        let (came, sequence) = new.as_ref().map_or((Load::default(), 0), |n| (n.load(), n.sequence));
        let old = match new {
            Some(new) => self.newest.insert(index, new),
            None => self.newest.remove(&index),
        };
        if let Some(old) = old {
            let went = old.load();
            self.account(old.sequence, |load| load.without(went));
            self.all = self.all.without(went);
            self.deltas -= went.records;
        }
        self.account(sequence, |load| load.with(came));
        self.all = self.all.with(came);
        self.deltas += came.records;
    }

    /// Changes what counts of a compact page, where there is one.
    fn account(&mut self, sequence: u32, change: impl FnOnce(Load) -> Load) {
        let Some(page) = self.pages.get_mut(&sequence) else { return };
        let load = change(page.load);
        if load != page.load {
            self.by_load.remove(&(page.load, sequence));
            self.by_load.insert((load, sequence));
            page.load = load;
        }
    }

    /// Notes that a record in the zone masks what compact pages say of a page.
    pub(super) fn mask(&mut self, index: u32) {
        if let Some(newest) = self.newest.get(&index).filter(|n| n.counts) {
            let masked = Newest { counts: false, ..newest.clone() };
            self.set_newest(index, Some(masked));
        }
    }

    pub(super) fn has_sequence(&self, sequence: u32) -> bool {
        self.pages.contains_key(&sequence)
    }

    /// Where the delta of a page is: its compact page's place, and that page's content where it is not written yet.
    pub(super) fn delta_of(&self, index: u32) -> Option<(u32, Option<Arc<Block>>)> {
        let newest = self.newest.get(&index).filter(|n| n.counts && n.delta)?;
        let page = self.pages.get(&newest.sequence)?;
        Some((page.place, page.unwritten.clone()))
    }

    /// Pages of a range that have deltas.
    pub(super) fn deltas_in(&self, pages: Range<u32>) -> impl Iterator<Item = u32> {
        self.newest.range(pages).filter(|(_, n)| n.counts && n.delta).map(|(&index, _)| index)
    }

    /// Pages of a range whose record in the zone hides what a compact page says, or that have a delta in one.
    pub(super) fn showing_in(&self, pages: Range<u32>) -> Vec<u32> {
        let showing = self.newest.range(pages).filter(|(_, n)| !n.counts || n.delta);
        showing.map(|(&index, _)| index).collect()
    }

    /// Whether any page outside a range has a delta.
    pub(super) fn has_deltas_outside(&self, pages: Range<u32>) -> bool {
        self.deltas > self.deltas_in(pages).count()
    }

    /// Records that count, of one compact page or of all: their pages, and whether they are deltas.
    pub(super) fn counting(&self, of: Option<u32>) -> Vec<(u32, bool)> {
        match of {
            None => self.newest.iter().filter(|(_, n)| n.counts).map(|(&i, n)| (i, n.delta)).collect(),
            Some(sequence) => {
                let indices = self.pages.get(&sequence).into_iter().flat_map(|page| &page.indices);
                let newest = indices.filter_map(|i| Some((*i, self.newest.get(i)?)));
                let counting = newest.filter(|(_, n)| n.counts && n.sequence == sequence);
                counting.map(|(i, n)| (i, n.delta)).collect()
            }
        }
    }

    /// Pages that may be compressed alone, with the bytes of their records.
    pub(super) fn maybe_alone(&self) -> Vec<(u32, usize)> {
        let alone = self.newest.iter().filter(|(_, n)| n.counts && n.alone);
        alone.map(|(&index, n)| (index, n.size)).collect()
    }

    /// Forgets a compact page of which nothing counts; returns its place, and its number in the tie, which is to be
    /// taken out of that once the page is freed.
    pub(super) fn remove(&mut self, sequence: u32) -> Option<(u32, u32)> {
        let page = self.pages.remove(&sequence)?;
        self.by_load.remove(&(page.load, sequence));
        self.places[page.place as usize] = None;
        for index in page.indices {
            let Some(newest) = self.newest.get_mut(&index) else { continue };
            if newest.sequence != sequence {
                newest.older.retain(|&older| older != sequence);
                continue;
            }
            // An older one may still have the page, masked as this one was.
            let mut older = std::mem::take(&mut newest.older);
            let masked = older.pop().map(|sequence| {
                let size = RECORD_HEADER_SIZE;
                Newest { sequence, size, alone: false, counts: false, delta: true, older }
            });
            self.set_newest(index, masked);
        }
        Some((page.place, page.id))
    }

    /// Lets no record count any more, and forgets which pages have one.
    pub(super) fn clear(&mut self) {
        self.newest.clear();
        (self.all, self.deltas) = (Load::default(), 0);
        self.by_load = self.pages.keys().map(|&sequence| (Load::default(), sequence)).collect();
        for page in self.pages.values_mut() {
            page.indices.clear();
            page.load = Load::default();
        }
    }

    /// The first places that no compact page has.
    pub(super) fn free_places(&self, most: usize) -> impl Iterator<Item = u32> {
        let is_free = |place: usize| self.places.get(place).is_none_or(Option::is_none);
        (0..most).filter(move |&place| is_free(place)).map(|place| place as u32)
    }

    /// Sequence numbers of compact pages of which nothing counts.
    pub(super) fn dead(&self) -> Vec<u32> {
        let dead = self.by_load.iter().take_while(|(load, _)| *load == Load::default());
        dead.map(|&(_, sequence)| sequence).collect()
    }

    /// So many compact pages at the first `most` places, those of which the least counts.
    pub(super) fn least(&self, most: usize, count: usize) -> Vec<u32> {
        let at = |sequence: &u32| self.pages.get(sequence).is_some_and(|page| (page.place as usize) < most);
        let least = self.by_load.iter().map(|&(_, sequence)| sequence).filter(at);
        least.take(count).collect()
    }

    /// Compact pages with little that counts, the least first, to be merged into one with `room`: those that
    /// fit it, or a page of their own where most of `merge_from` or more pages is waste.
    pub(super) fn victims(&self, room: Load, sharing: usize, merge_from: usize) -> BTreeSet<u32> {
        let living = self.by_load.range((Bound::Excluded((Load::default(), u32::MAX)), Bound::Unbounded));
        let count = self.pages.len() - self.dead().len();
        let wasteful = count > merge_from && self.all.wastes(count, sharing);
        let mut left = if wasteful { Load { bytes: COMPACT_ROOM, records: sharing } } else { room };
        let fitting = living.take_while(|&&(load, _)| {
            let fits = load.fits(left);
            left = left.without(load);
            fits
        });
        fitting.map(|&(_, sequence)| sequence).collect()
    }

    /// Whether a compact page that is not one of these has a record of a page.
    pub(super) fn is_elsewhere(&self, index: u32, leaving: &BTreeSet<u32>) -> bool {
        let newest = self.newest.get(&index);
        newest
            .is_some_and(|n| n.older.iter().chain([&n.sequence]).any(|sequence| !leaving.contains(sequence)))
    }

    /// Notes that a compact page has reached its block.
    pub(super) fn written(&mut self, place: u32) {
        let sequence = self.places.get(place as usize).copied().flatten();
        if let Some(page) = sequence.and_then(|sequence| self.pages.get_mut(&sequence)) {
            page.unwritten = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::{btree_map, vec};
    use proptest::prelude::*;

    /// What changes a map.
    #[derive(Debug, Clone)]
    enum Step {
        /// A new compact page: its pages, each with a delta of so many bytes or the word that there is none.
        Add(BTreeMap<u32, Option<u8>>),
        Mask(u32),
        FreeDead,
        /// Takes away the page with the least in it, as a merge does.
        Merge,
        Clear,
    }

    fn step() -> impl Strategy<Value = Step> {
        let record = proptest::option::weighted(0.8, 1..200u8);
        prop_oneof![
            5 => btree_map(0..12u32, record, 1..5).prop_map(Step::Add),
            4 => (0..12u32).prop_map(Step::Mask),
            2 => Just(Step::FreeDead),
            2 => Just(Step::Merge),
            1 => Just(Step::Clear),
        ]
    }

    fn record(index: u32, delta: Option<u8>) -> OwnedRecord {
        let none = OwnedRecord::tombstone(index);
        delta.map_or(none.clone(), |size| OwnedRecord { codec: 1, delta: vec![0; size.into()], ..none })
    }

    fn apply(map: &mut CompactMap, step: Step) {
        match step {
            Step::Add(records) => {
                let records: Vec<_> = records.into_iter().map(|(i, delta)| record(i, delta)).collect();
                let place = map.free_places(1018).next().expect("there are fewer");
                map.add(map.next_sequence, (place, 5), None, &records);
            }
            Step::Mask(index) => map.mask(index),
            Step::FreeDead => map.dead().into_iter().for_each(|sequence| {
                map.remove(sequence);
            }),
            Step::Merge => {
                let full = Load { bytes: COMPACT_ROOM, records: 5 };
                for sequence in map.victims(full, 5, 2) {
                    let records = map.counting(Some(sequence));
                    let records: Vec<_> = records.iter().map(|&(i, d)| record(i, d.then_some(9))).collect();
                    let place = map.free_places(1018).next().expect("there are fewer");
                    map.add(map.next_sequence, (place, 5), None, &records);
                }
            }
            Step::Clear => map.clear(),
        }
    }

    /// What is kept up to date against what a walk over all pages and records finds.
    fn check(map: &CompactMap) {
        let mut all = Load::default();
        for (&sequence, page) in &map.pages {
            let newest = page.indices.iter().filter_map(|i| map.newest.get(i));
            let load: Load = newest.filter(|n| n.sequence == sequence).map(Newest::load).sum();
            assert_eq!(page.load, load, "of {sequence}");
            assert!(map.by_load.contains(&(load, sequence)));
            assert_eq!(map.places[page.place as usize], Some(sequence));
            all = all.with(load);
        }
        assert_eq!((map.all, map.by_load.len()), (all, map.pages.len()));
        assert_eq!(map.places.iter().flatten().count(), map.pages.len());
        assert_eq!(map.deltas, map.newest.values().filter(|n| n.counts && n.delta).count());
        let pages: BTreeSet<u32> = map.pages.values().flat_map(|page| page.indices.iter().copied()).collect();
        assert_eq!(pages, map.newest.keys().copied().collect());
        for (index, newest) in &map.newest {
            let holders = map.pages.iter().filter(|(_, p)| p.indices.contains(index)).map(|(&s, _)| s);
            let mut known = newest.older.clone();
            known.push(newest.sequence);
            assert_eq!(known, holders.collect::<Vec<_>>(), "of page {index}");
        }
    }

    proptest! {
        #[test]
        fn what_counts_is_known_without_a_walk(steps in vec(step(), 1..60)) {
            let mut map = CompactMap::default();
            for step in steps {
                apply(&mut map, step);
                check(&map);
            }
        }
    }

    #[test]
    fn pages_read_in_any_order_make_the_same_map() {
        let records = |delta| vec![record(3, delta), record(4, Some(7))];
        let mut map = CompactMap::default();
        for (sequence, place) in [(5, 0), (2, 1), (9, 2), (7, 3)] {
            map.add(sequence, (place, 5), None, &records(Some(sequence as u8)));
            check(&map);
        }
        assert_eq!((map.counting(Some(9)), map.next_sequence), (vec![(3, true), (4, true)], 10));
        assert_eq!(map.dead(), [2, 5, 7]);
        assert_eq!((map.remove(9), map.delta_of(3).is_none()), (Some((2, 5)), true));
        check(&map);
        assert!(map.showing_in(0..10) == [3, 4] && !map.has_deltas_outside(0..3));
    }
}
