//! Ranges of logical pages that were trimmed and that flash does not know of yet.

use crate::format::{RawRun, RawTrims};
use crate::nand::Geometry;
use crate::streams::NEVER;
use alloc::vec::Vec;
use zerocopy::{FromBytes, IntoBytes};

/// Most ranges that wait.
const WAITING_MAX: usize = 500;

/// Ranges that wait for flash.
///
/// 1. A logical page is in one range at most, and in none once it is written again.
/// 2. Nothing that was mapped when it was trimmed, or since, may be erased before `born` is on flash.
pub(crate) struct Trims {
    runs: Vec<(u32, u32)>,
    /// Since when any of them waits, on the clock of records.
    born: u64,
    /// Ranges of a page, and most that wait.
    most: usize,
}

impl Trims {
    pub(crate) fn new(g: &Geometry) -> Trims {
        Trims { runs: Vec::new(), born: NEVER, most: WAITING_MAX.min(g.page_bytes as usize / 8 - 1) }
    }

    /// A logical page was trimmed.
    pub(crate) fn add(&mut self, lpn: u32, stamp: u64) {
        if self.born == NEVER {
            self.born = stamp;
        }
        match self.runs.last_mut() {
            Some((from, count)) if *from + *count == lpn => *count += 1,
            _ => self.runs.push((lpn, 1)),
        }
    }

    /// What was trimmed waited since then itself.
    pub(crate) fn inherit(&mut self, born: u64) {
        self.born = self.born.min(born);
    }

    /// A page that was trimmed is written again: flash need not know of the trim. `false`: it does.
    pub(crate) fn remove(&mut self, lpn: u32) -> bool {
        let Some(at) = self.runs.iter().position(|(from, count)| (*from..*from + *count).contains(&lpn))
        else {
            return false;
        };
        let (from, count) = self.runs.swap_remove(at);
        let halves = [(from, lpn - from), (lpn + 1, from + count - lpn - 1)];
        self.runs.extend(halves.into_iter().filter(|(_, count)| *count > 0));
        true
    }

    /// Since when the oldest waits; [`NEVER`] where none does.
    pub(crate) fn born(&self) -> u64 {
        self.born
    }

    /// Whether they must be written before there are more.
    pub(crate) fn are_many(&self) -> bool {
        self.runs.len() >= self.most
    }

    /// All ranges, each its first page and their number.
    pub(crate) fn runs(&self) -> &[(u32, u32)] {
        &self.runs
    }

    /// Flash knows of all.
    pub(crate) fn clear(&mut self) {
        self.runs.clear();
        self.born = NEVER;
    }

    /// The flash pages that say so.
    pub(crate) fn pages(&self, page_bytes: usize) -> Vec<Vec<u8>> {
        self.runs.chunks(self.most).map(|part| write(part, page_bytes)).collect()
    }

    /// Memory in use, in bytes.
    pub(crate) fn ram_bytes(&self) -> usize {
        self.runs.capacity() * size_of::<(u32, u32)>()
    }
}

fn write(part: &[(u32, u32)], page_bytes: usize) -> Vec<u8> {
    let head = RawTrims { runs: (part.len() as u32).into(), zero: 0.into() };
    let mut page = Vec::from(head.as_bytes());
    part.iter().for_each(|run| page.extend(RawRun::new(*run).as_bytes()));
    page.resize(page_bytes, 0);
    page
}

/// The ranges of a page of trims that lie within the logical pages; of bytes that are no page none.
pub(crate) fn read(page: &[u8], logical_pages: u32) -> Vec<(u32, u32)> {
    let Ok((head, runs)) = RawTrims::ref_from_prefix(page) else { return Vec::new() };
    let ranges = RawRun::all(runs).take(head.runs.get() as usize);
    let logical_pages = u64::from(logical_pages);
    ranges.filter(|(from, count)| u64::from(*from) + u64::from(*count) <= logical_pages).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::G;

    #[test]
    fn neighbours_join_and_a_page_that_is_written_leaves() {
        let mut trims = Trims::new(&G);
        [7, 8, 9, 20].into_iter().zip(5..).for_each(|(lpn, stamp)| trims.add(lpn, stamp));
        assert_eq!((trims.runs(), trims.born()), (&[(7, 3), (20, 1)][..], 5));
        trims.inherit(3);
        trims.inherit(NEVER);
        assert_eq!(trims.born(), 3);
        assert!(trims.remove(8) && !trims.remove(8) && trims.remove(20));
        let mut left = Vec::from(trims.runs());
        left.sort_unstable();
        assert_eq!(left, [(7, 1), (9, 1)]);
        trims.clear();
        assert_eq!((trims.runs().len(), trims.born()), (0, NEVER));
    }

    #[test]
    fn pages_read_back_and_ranges_beyond_the_end_do_not() {
        let mut trims = Trims::new(&G);
        (0..500).for_each(|n| trims.add(2 * n, 1));
        assert!(trims.are_many());
        let pages = trims.pages(4096);
        assert_eq!(pages.len(), 1);
        assert_eq!(read(&pages[0], 2000), trims.runs());
        assert_eq!(read(&pages[0], 10), [(0, 1), (2, 1), (4, 1), (6, 1), (8, 1)]);
        let mut wrong = pages[0].clone();
        wrong[..4].fill(0xff);
        assert!(read(&wrong, 2000).len() <= 4096 / 8, "a count that is wrong allocates nothing");
    }
}
