//! Logs and their write buffers. A log fills blocks page by page; its slot is the flash page being put together.

use crate::map::Entry;
use crate::nand::Geometry;
use crate::oob::NOBODY;
use alloc::vec;
use alloc::vec::Vec;

/// Pending for no time.
pub(crate) const NEVER: u64 = u64::MAX;

/// A logical page in a slot.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pending {
    /// [`NOBODY`] once it was replaced.
    pub(crate) lpn: u32,
    pub(crate) size: u16,
    pub(crate) ratio: u8,
    pub(crate) compressed: bool,
    /// Its bytes are not what was written once. Such a page has a flash page to itself, whose checksum does not fit.
    pub(crate) damaged: bool,
}

/// A logical page with its bytes as they go to flash.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    pub(crate) page: Pending,
    pub(crate) bytes: Vec<u8>,
}

/// A logical page on its way to a log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packing<'a> {
    pub(crate) log: usize,
    pub(crate) page: Pending,
    /// As it is stored; none where pages have no content.
    pub(crate) bytes: &'a [u8],
    /// It may end in the next flash page.
    pub(crate) across: bool,
}

/// A flash page that is being put together. Empty: no page is reserved for it.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The flash page that it becomes.
    pub(crate) page: Option<u32>,
    pub(crate) records: Vec<Pending>,
    pub(crate) data: Vec<u8>,
    pub(crate) used: u32,
    pub(crate) tail: u16,
    /// Since when something waits in it, on the clock of records.
    pub(crate) born: u64,
}

impl Slot {
    pub(crate) fn new(content: bool, g: &Geometry) -> Slot {
        let data = if content { vec![0; g.page_bytes as usize] } else { Vec::new() };
        Slot { page: None, records: Vec::new(), data, used: 0, tail: 0, born: NEVER }
    }

    pub(crate) fn clear(&mut self) {
        (self.page, self.used, self.tail, self.born) = (None, 0, 0, NEVER);
        self.records.clear();
    }

    /// The checksum of what is programmed; of damaged bytes its complement. What is not used becomes zeros.
    pub(crate) fn checksum(&mut self) -> u32 {
        self.data[self.used as usize..].fill(0);
        let sum = crc32fast::hash(&self.data);
        if self.records.iter().any(|page| page.damaged) { !sum } else { sum }
    }

    /// The bytes of a record.
    pub(crate) fn bytes(&self, index: usize) -> &[u8] {
        let before: usize = self.records[..index].iter().map(|r| usize::from(r.size)).sum();
        let from = usize::from(self.tail) + before;
        let to = (from + usize::from(self.records[index].size)).min(self.data.len());
        self.data.get(from..to).unwrap_or_default()
    }
}

/// A log.
pub(crate) struct Log {
    /// The block that each unit in turn gives a page of.
    pub(crate) open: Vec<Option<u32>>,
    turn: usize,
    pub(crate) slot: Slot,
    /// The logical page that ends in the slot and began in the flash page before: kept until its end is on flash.
    pub(crate) ending: Option<Whole>,
    /// The logical page that begins in the slot and will end in the next flash page.
    pub(crate) beginning: Option<Whole>,
}

impl Log {
    pub(crate) fn new(ways: usize, content: bool, g: &Geometry) -> Log {
        Log {
            open: vec![None; ways.max(1)],
            turn: 0,
            slot: Slot::new(content, g),
            ending: None,
            beginning: None,
        }
    }

    /// The unit whose turn it is, and the block that is open there.
    pub(crate) fn next_way(&mut self) -> (usize, Option<u32>) {
        let way = self.turn % self.open.len();
        self.turn = way + 1;
        (way, self.open[way])
    }

    /// A block takes nothing more.
    pub(crate) fn close(&mut self, block: u32) {
        self.open.iter_mut().filter(|open| **open == Some(block)).for_each(|open| *open = None);
    }

    /// Says that a record of the slot was replaced. Returns since when the slot waits; [`NEVER`] where the
    /// record is not in it.
    pub(crate) fn forget(&mut self, entry: &Entry) -> u64 {
        if self.slot.page == Some(entry.page)
            && let Some(record) = self.slot.records.get_mut(usize::from(entry.index))
        {
            record.lpn = NOBODY;
            return self.slot.born;
        }
        NEVER
    }

    /// Memory in use, in bytes.
    pub(crate) fn ram_bytes(&self) -> usize {
        self.slot.data.len() + self.slot.records.capacity() * size_of::<Pending>()
    }
}
