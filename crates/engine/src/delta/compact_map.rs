//! What the compact pages of a file hold: its map in memory.
//!
//! Invariant: of the records of a page the newest counts, unless the zone masks it; a compact page of which nothing counts may go.
//! Pure: it knows no device.

use super::fpc::may_be_alone;
use crate::content::record::OwnedRecord;
use medfs_format::Block;
use medfs_format::delta::{COMPACT_ROOM, RECORD_HEADER_SIZE};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The compact pages of a file in memory.
#[derive(Debug, Default)]
pub(super) struct CompactMap {
    /// By sequence number.
    pub(super) pages: BTreeMap<u32, CompactPage>,
    /// The latest record of each page that any compact page has one of.
    pub(super) newest: BTreeMap<u32, Newest>,
    pub(super) next_sequence: u32,
}

#[derive(Debug)]
pub(super) struct CompactPage {
    /// Which of the places for compact pages it has.
    pub(super) place: u32,
    /// The pages it has records of.
    pub(super) indices: BTreeSet<u32>,
    /// Its content until that is written.
    pub(super) unwritten: Option<Arc<Block>>,
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
        loads.fold(Load::default(), |a, b| Load { bytes: a.bytes + b.bytes, records: a.records + b.records })
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Newest {
    pub(super) sequence: u32,
    pub(super) size: usize,
    /// Perhaps a page that is compressed alone.
    pub(super) alone: bool,
    /// Nothing in the zone masks it.
    pub(super) counts: bool,
    /// A delta, and not the word that there is none.
    pub(super) delta: bool,
}

impl CompactMap {
    pub(super) fn add(
        &mut self,
        sequence: u32,
        place: u32,
        unwritten: Option<Arc<Block>>,
        records: &[OwnedRecord],
    ) {
        for r in records {
            let (size, alone) = (r.size(), may_be_alone(r));
            let new = Newest { sequence, size, alone, counts: true, delta: r.is_delta() };
            let entry = self.newest.entry(r.index).or_insert(new);
            if entry.sequence <= sequence {
                *entry = new;
            }
        }
        let indices = records.iter().map(|r| r.index).collect();
        self.pages.insert(sequence, CompactPage { place, indices, unwritten });
        self.next_sequence = self.next_sequence.max(sequence.wrapping_add(1));
    }

    /// Notes that a record in the zone masks what compact pages say of a page.
    pub(super) fn mask(&mut self, index: u32) {
        if let Some(newest) = self.newest.get_mut(&index) {
            newest.counts = false;
        }
    }

    /// Whether a page whose record in the zone goes would be taken for what a compact page says of it.
    pub(super) fn would_show(&self, index: u32) -> bool {
        self.newest.get(&index).is_some_and(|n| !n.counts || n.delta)
    }

    /// The records of a compact page that count.
    pub(super) fn counting(&self, sequence: u32) -> Load {
        let Some(page) = self.pages.get(&sequence) else { return Load::default() };
        let newest = page.indices.iter().filter_map(|i| self.newest.get(i));
        let counting = newest.filter(|n| n.sequence == sequence && n.counts);
        counting.map(|n| Load { bytes: n.size, records: usize::from(n.delta) }).sum()
    }

    /// Pages that may be compressed alone, with the bytes of their records.
    pub(super) fn maybe_alone(&self) -> Vec<(u32, usize)> {
        let alone = self.newest.iter().filter(|(_, n)| n.counts && n.alone);
        alone.map(|(&index, n)| (index, n.size)).collect()
    }

    /// Forgets a compact page of which nothing counts; returns its place.
    pub(super) fn remove(&mut self, sequence: u32) -> Option<u32> {
        let page = self.pages.remove(&sequence)?;
        for index in page.indices {
            if self.newest.get(&index).is_none_or(|n| n.sequence != sequence) {
                continue;
            }
            // An older one may still have the page, masked as this one was.
            let older = self.pages.iter().rev().find(|(_, p)| p.indices.contains(&index));
            match older {
                Some((&sequence, _)) => {
                    let size = RECORD_HEADER_SIZE;
                    let masked = Newest { sequence, size, alone: false, counts: false, delta: true };
                    self.newest.insert(index, masked);
                }
                None => drop(self.newest.remove(&index)),
            }
        }
        Some(page.place)
    }

    pub(super) fn free_places(&self, most: usize) -> impl Iterator<Item = u32> {
        let used: BTreeSet<u32> = self.pages.values().map(|p| p.place).collect();
        (0..most as u32).filter(move |place| !used.contains(place))
    }

    /// Sequence numbers of compact pages of which nothing counts.
    pub(super) fn dead(&self) -> Vec<u32> {
        self.pages.keys().copied().filter(|&s| self.counting(s) == Load::default()).collect()
    }

    /// Notes that a compact page has reached its block.
    pub(super) fn written(&mut self, place: u32) {
        if let Some(page) = self.pages.values_mut().find(|p| p.place == place) {
            page.unwritten = None;
        }
    }
}
