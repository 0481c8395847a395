//! What waits in memory for flash: a log for each group of pages, each with a slot, and what a failed program
//! left without a place.

mod slot;

pub(crate) use slot::{Log, NEVER, Packing, Pending, Slot, Whole};

use crate::error::{FtlError, Result};
use crate::map::Entry;
use crate::nand::Geometry;
use crate::oob::{NOBODY, records_max};
use crate::policy::Policy;
use alloc::vec::Vec;

/// The log of pages compressed for the host.
pub(crate) const PACKED: usize = 0;
/// The log of compressed pages that collection moves.
pub(crate) const PACKED_MOVED: usize = 1;
/// The first log of uncompressed pages.
pub(crate) const PLAIN: usize = 2;

/// Blocks that are free before a write begins: every log may need one for each unit, and collection some.
pub(crate) fn reserve(g: &Geometry, policy: &dyn Policy) -> u32 {
    let logs = u32::from(policy.groups()) + PLAIN as u32;
    logs * ways(g) + 3
}

/// Units that a log writes in turn: few on a small device.
fn ways(g: &Geometry) -> u32 {
    g.units.min(g.blocks / 64).max(1)
}

/// The logs.
///
/// 1. A slot has a flash page exactly while something waits in it; no other slot has the same.
/// 2. The records of a slot follow each other from its tail on; together with it they fill `used` bytes, at
///    most a flash page.
/// 3. A record whose logical page was replaced before its slot was programmed is [`NOBODY`]'s.
/// 4. A slot is no older than `born` says: nothing that it replaced may be erased before it is on flash.
/// 5. What lies across two flash pages is kept whole until its end is on flash.
pub(crate) struct Streams {
    logs: Vec<Log>,
    /// What a failed program left without a place.
    pub(crate) salvage: Vec<Whole>,
    /// Since when any of it waits.
    pub(crate) salvage_born: u64,
    records_max: usize,
    page_bytes: u32,
    pages_per_block: u32,
}

/// What a log can take of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fit {
    /// No flash page is reserved for its slot.
    NoPage,
    /// All of it.
    Whole,
    /// Its beginning; the rest fits the next flash page.
    Beginning,
    /// Nothing: the slot is full.
    Full,
}

impl Streams {
    pub(crate) fn new(g: &Geometry, policy: &dyn Policy, content: bool) -> Streams {
        // Collected pages may lie across two flash pages: of one block, as only one is open for them.
        let ways = |log| if log == PACKED_MOVED { 1 } else { ways(g) as usize };
        let logs = PLAIN + usize::from(policy.groups());
        Streams {
            logs: (0..logs).map(|log| Log::new(ways(log), content, g)).collect(),
            salvage: Vec::new(),
            salvage_born: NEVER,
            records_max: records_max(g.spare_bytes),
            page_bytes: g.page_bytes,
            pages_per_block: g.pages_per_block,
        }
    }

    /// How many logs there are.
    pub(crate) fn len(&self) -> usize {
        self.logs.len()
    }

    pub(crate) fn log(&self, log: usize) -> &Log {
        &self.logs[log]
    }

    pub(crate) fn log_mut(&mut self, log: usize) -> &mut Log {
        &mut self.logs[log]
    }

    pub(crate) fn slot_mut(&mut self, log: usize) -> &mut Slot {
        &mut self.logs[log].slot
    }

    /// What a log takes of a page of so many bytes.
    pub(crate) fn fit(&self, log: usize, size: u16) -> Fit {
        let slot = &self.logs[log].slot;
        let Some(at) = slot.page else { return Fit::NoPage };
        let left = self.page_bytes - slot.used;
        let has_record = slot.records.len() < self.records_max;
        if u32::from(size) <= left && has_record {
            return Fit::Whole;
        }
        let goes_on = left > 0 && has_record && !(at + 1).is_multiple_of(self.pages_per_block);
        if goes_on { Fit::Beginning } else { Fit::Full }
    }

    /// Whether a log's slot takes nothing more.
    pub(crate) fn is_full(&self, log: usize) -> bool {
        let slot = &self.logs[log].slot;
        slot.used == self.page_bytes || slot.records.len() == self.records_max
    }

    /// Adds a record to a slot, with as much of its bytes as has room, on the clock of records. Returns where
    /// it will be.
    pub(crate) fn put(&mut self, packing: &Packing<'_>, stamp: u64) -> Result<Entry> {
        let Packing { log, page, bytes, across } = *packing;
        let slot = &mut self.logs[log].slot;
        let entry = Entry {
            page: slot.page.ok_or(FtlError::WornOut)?,
            index: slot.records.len() as u8,
            size: page.size,
            ratio: page.ratio,
            across,
            compressed: page.compressed,
        };
        let from = slot.used as usize;
        let here = u32::from(page.size).min(self.page_bytes - slot.used);
        if !slot.data.is_empty() {
            let part = bytes.get(..here as usize).ok_or(FtlError::OutOfRange)?;
            slot.data[from..from + here as usize].copy_from_slice(part);
        }
        slot.records.push(page);
        slot.used += here;
        slot.born = slot.born.min(stamp).min(self.salvage_born);
        Ok(entry)
    }

    /// Says that a record was replaced. Returns since when its slot waits; [`NEVER`] where it waits in none.
    pub(crate) fn forget(&mut self, entry: &Entry) -> u64 {
        self.logs.iter_mut().map(|log| log.forget(entry)).min().unwrap_or(NEVER)
    }

    /// The log whose slot becomes this flash page.
    pub(crate) fn filling(&self, page: u32) -> Option<&Log> {
        self.logs.iter().find(|log| log.slot.page == Some(page))
    }

    /// The stored bytes of a logical page that waits; `None` where it does not.
    pub(crate) fn waiting(&self, lpn: u32, entry: &Entry) -> Option<&[u8]> {
        self.logs.iter().find_map(|log| {
            if let Some(whole) = log.ending.as_ref().filter(|w| w.page.lpn == lpn && entry.across) {
                return Some(&whole.bytes[..]);
            }
            (log.slot.page == Some(entry.page)).then(|| log.slot.bytes(usize::from(entry.index)))
        })
    }

    /// Since when the oldest of it waits.
    pub(crate) fn oldest(&self) -> u64 {
        let slots = self.logs.iter().map(|log| log.slot.born).min().unwrap_or(NEVER);
        slots.min(self.salvage_born)
    }

    /// Whether a log writes to this block.
    pub(crate) fn writes(&self, block: u32) -> bool {
        self.logs.iter().any(|log| log.open.contains(&Some(block)))
    }

    /// A log writes to this block again, where it has a place for it.
    pub(crate) fn resume(&mut self, log: usize, block: u32) -> bool {
        let ways = self.logs.get_mut(log).into_iter().flat_map(|log| log.open.iter_mut());
        let Some(way) = { ways }.find(|way| way.is_none()) else { return false };
        *way = Some(block);
        true
    }

    /// What waits for the host: pages and their stored bytes.
    pub(crate) fn of_host(&self) -> impl Iterator<Item = (Pending, &[u8])> {
        let logs = self.logs.iter().enumerate().filter(|(log, _)| *log != PACKED_MOVED);
        let slots = logs.flat_map(|(_, log)| {
            log.slot.records.iter().enumerate().map(|(index, page)| (*page, log.slot.bytes(index)))
        });
        // What a failed program left without a place is newer than what may still be in a slot.
        let all = slots.chain(self.salvage.iter().map(|whole| (whole.page, &whole.bytes[..])));
        // What is damaged is still where it was moved from.
        all.filter(|(page, _)| page.lpn != NOBODY && !page.damaged)
    }

    /// Memory in use, in bytes.
    pub(crate) fn ram_bytes(&self) -> usize {
        self.logs.iter().map(Log::ram_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
    use crate::memory::{G, page};
    use crate::policy::Uncompressed;

    fn packing(bytes: &[u8], lpn: u32, log: usize) -> Packing<'_> {
        let page = Pending {
            lpn,
            size: bytes.len() as u16,
            ratio: 90,
            compressed: bytes.len() < PAGE,
            damaged: false,
        };
        Packing { log, page, bytes, across: false }
    }

    #[test]
    fn records_follow_each_other_and_are_found_where_they_wait() {
        let mut streams = Streams::new(&G, &Uncompressed, true);
        let (a, b) = (page(1, PAGE), page(2, PAGE));
        assert_eq!(streams.fit(PACKED, 100), Fit::NoPage);
        assert_eq!(streams.put(&packing(&a[..100], 7, PACKED), 3), Err(FtlError::WornOut), "no page");
        streams.slot_mut(PACKED).page = Some(10);
        let first = streams.put(&packing(&a[..3000], 7, PACKED), 3).unwrap();
        let second = streams.put(&packing(&b[..1000], 8, PACKED), 4).unwrap();
        assert_eq!((first.page, first.index, second.index), (10, 0, 1));
        assert_eq!(streams.waiting(8, &second).unwrap(), &b[..1000]);
        assert_eq!((streams.oldest(), streams.fit(PACKED, 96)), (3, Fit::Whole));
        assert_eq!(streams.fit(PACKED, 97), Fit::Beginning);
        // The last page of a block: nothing goes on behind it.
        streams.slot_mut(PACKED).page = Some(15);
        assert_eq!(streams.fit(PACKED, 97), Fit::Full);
        streams.slot_mut(PACKED).page = Some(10);
        assert_eq!(streams.forget(&first), 3);
        assert_eq!(streams.forget(&Entry { page: 11, ..first }), NEVER);
        let waiting: Vec<u32> = streams.of_host().map(|(page, _)| page.lpn).collect();
        assert_eq!(waiting, [8]);
    }

    #[test]
    fn what_collection_moves_is_no_part_of_the_image() {
        let mut streams = Streams::new(&G, &Uncompressed, true);
        let bytes = page(3, PAGE);
        for (log, at) in [(PACKED_MOVED, 16), (PLAIN, 24)] {
            streams.slot_mut(log).page = Some(at);
            streams.put(&packing(&bytes, at, log), 1).unwrap();
            assert!(streams.is_full(log));
        }
        assert_eq!(streams.of_host().map(|(page, _)| page.lpn).collect::<Vec<_>>(), [24]);
        assert!(streams.filling(16).is_some() && streams.filling(17).is_none());
    }

    #[test]
    fn a_log_takes_up_no_more_blocks_than_it_has_units() {
        let mut streams = Streams::new(&G, &Uncompressed, true);
        assert!(streams.resume(PLAIN, 9) && !streams.resume(PLAIN, 10) && !streams.resume(99, 11));
        assert!(streams.writes(9) && !streams.writes(10));
        assert_eq!(streams.log_mut(PLAIN).next_way(), (0, Some(9)));
        streams.log_mut(PLAIN).close(9);
        assert!(!streams.writes(9));
    }
}
