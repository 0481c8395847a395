//! Windows of files that BGRes restores: which of them are written again as a whole, so that one request reads them.
//!
//! A restored page goes to a new block, as its old one is a base until the inode without the delta is
//! durable. So a window, the pages that one request asks for, lies in two places or more, and takes as many
//! requests, which read along what lies between. [`RewriteBudget`] decides for each window, by what reading
//! it takes as it would lie and as it could, and by what writing it again costs.
//!
//! Invariants: what is decided depends on addresses, those that the log will give among them, and times
//! alone. A window is written again for no more than [`MOST_NEIGHBOURS`] pages for each one that lies
//! elsewhere, and all windows together for no more than as many for each page that was restored since the
//! volume was opened: this bounds what BGRes writes.
//! Locks: none.

use crate::content::cost_model::RequestTimes;
use crate::content::page_io::is_read_along;
use medfs_format::BlockAddr;

/// Pages of a window: 128 KiB, the largest request of the kernel's readahead. Windows are aligned.
pub(crate) const WINDOW_PAGES: u64 = 32;

/// How much longer a window may take to read than if it were written again: somewhat less than 1.3, the goal
/// for files that were restored.
const MOST_TIME: f64 = 1.25;
/// Pages written along for each page that lies elsewhere, and for each that was restored, at most.
pub(crate) const MOST_NEIGHBOURS: u64 = 6;

/// How a page of a window with restored pages lies. Holes and reserved pages have no part in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockState {
    /// It gets a new block in any case.
    Moving,
    /// It stays there, or gets a new block together with those.
    Movable(BlockAddr),
    /// It stays there, as other pages are made from its block.
    Pinned(BlockAddr),
}

/// The pages of a window, by index.
#[derive(Debug, Clone, Default)]
pub(crate) struct Window {
    pub(crate) pages: Vec<(u64, BlockState)>,
}

impl Window {
    /// Pages that are restored.
    pub(crate) fn restored(&self) -> u64 {
        self.pages.iter().filter(|(_, block)| *block == BlockState::Moving).count() as u64
    }

    /// Pages that are written again with these, if the window is.
    pub(crate) fn neighbours(&self) -> impl Iterator<Item = u64> {
        self.pages
            .iter()
            .filter(|(_, block)| matches!(block, BlockState::Movable(_)))
            .map(|&(index, _)| index)
    }

    /// The requests that read the window, as it lies where neighbours stay or where they move; `new` are the
    /// addresses that pages get which are written. `None` where these are too few.
    fn requests(&self, neighbours_move: bool, new: &[BlockAddr]) -> Option<Vec<Request>> {
        let mut new = new.iter().map(|&addr| u64::from(addr));
        let mut addrs: Vec<u64> = self
            .pages
            .iter()
            .map(|(_, block)| match block {
                BlockState::Movable(addr) if !neighbours_move => Some(u64::from(*addr)),
                BlockState::Pinned(addr) => Some(u64::from(*addr)),
                BlockState::Movable(_) | BlockState::Moving => new.next(),
            })
            .collect::<Option<_>>()?;
        addrs.sort_unstable();
        let runs = addrs.chunk_by(|&a, &b| is_read_along(a, b));
        let request =
            |run: &[u64]| Request { pages: run.len() as u64, blocks: run[run.len() - 1] - run[0] + 1 };
        Some(runs.map(request).collect())
    }
}

/// A request of the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Request {
    /// Pages it is for.
    pages: u64,
    /// Blocks it reads, with those between.
    blocks: u64,
}

/// Decides which windows are written again as a whole, and pays for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RewriteBudget {
    times: RequestTimes,
    /// Pages that may be written along yet.
    credit: u64,
}

impl RewriteBudget {
    /// For a device with these times, on a volume where so many pages were restored and written along already.
    pub(crate) fn new(times: RequestTimes, restored: u64, moved: u64) -> RewriteBudget {
        RewriteBudget { times, credit: restored.saturating_mul(MOST_NEIGHBOURS).saturating_sub(moved) }
    }

    /// Decides about a window whose restored pages are written now in any case, to the blocks `ahead` as far
    /// as these can be told.
    pub(crate) fn take(&mut self, window: &Window, ahead: &[BlockAddr]) -> bool {
        self.credit += window.restored() * MOST_NEIGHBOURS;
        let (Some(stays), Some(whole)) = (window.requests(false, ahead), window.requests(true, ahead)) else {
            return false;
        };
        let largest = stays.iter().map(|request| request.pages).max().unwrap_or(0);
        let elsewhere = stays.iter().map(|request| request.pages).sum::<u64>() - largest;
        let price = window.neighbours().count() as u64;
        let taken = price > 0
            && price <= self.credit.min(elsewhere * MOST_NEIGHBOURS)
            && self.time(&stays) > MOST_TIME * self.time(&whole);
        self.credit -= if taken { price } else { 0 };
        taken
    }

    fn time(&self, requests: &[Request]) -> f64 {
        requests.iter().map(|request| self.times.of(request.blocks)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A card: 80 us for a request and 10 us for each block of it.
    const CARD: RequestTimes = RequestTimes { first: 90.0, next: 10.0 };

    /// A window in one piece of which these pages are restored.
    fn window(restored: impl Fn(u64) -> bool) -> Window {
        let block = |index| {
            if restored(index) { BlockState::Moving } else { BlockState::Movable(1000 + index as u32) }
        };
        Window { pages: (0..WINDOW_PAGES).map(|index| (index, block(index))).collect() }
    }

    /// The blocks of a log that lies elsewhere.
    fn ahead() -> Vec<BlockAddr> {
        (1 << 20..).take(100).collect()
    }

    fn takes(times: RequestTimes, window: &Window) -> bool {
        RewriteBudget::new(times, 0, 0).take(window, &ahead())
    }

    #[test]
    fn requests_are_those_of_reading() {
        let apart = Window {
            pages: vec![
                (0, BlockState::Movable(10)),
                (1, BlockState::Movable(16)),
                (2, BlockState::Movable(30)),
            ],
        };
        let request = |pages, blocks| Request { pages, blocks };
        assert_eq!(apart.requests(false, &[]), Some(vec![request(2, 7), request(1, 1)]));
        assert_eq!(apart.requests(true, &ahead()), Some(vec![request(3, 3)]));
        let some = window(|index| index % 8 == 1);
        assert_eq!(some.requests(false, &ahead()), Some(vec![request(28, 32), request(4, 4)]));
        assert_eq!(some.requests(true, &ahead()), Some(vec![request(32, 32)]));
        assert_eq!(some.requests(true, &ahead()[..31]), None);
        // What is written next lies right behind, or in holes.
        assert_eq!(some.requests(false, &[1035, 1036, 1037, 1038]), Some(vec![request(32, 39)]));
        assert_eq!(apart.requests(true, &[5, 50, 70]), Some(vec![request(1, 1); 3]));
    }

    #[test]
    fn few_restored_pages_stay_apart_and_many_take_their_neighbours_along() {
        for (restored, whole) in [(1, false), (4, false), (5, true), (16, true), (28, true), (32, false)] {
            let w = window(|index| index * restored / WINDOW_PAGES != (index + 1) * restored / WINDOW_PAGES);
            assert_eq!(w.restored(), restored);
            assert_eq!(takes(CARD, &w), whole, "{restored} of a window");
            // However much a request costs, a page takes no more than so many along.
            assert_eq!(takes(RequestTimes { first: 1e6, next: 1.0 }, &w), whole, "{restored}, slow to begin");
        }
    }

    #[test]
    fn a_device_that_begins_at_once_gains_nothing() {
        let few = window(|index| index % 6 == 0);
        assert!(takes(CARD, &few));
        assert!(!takes(RequestTimes { first: 10.0, next: 10.0 }, &few));
    }

    #[test]
    fn nothing_moves_to_where_there_is_no_room_together() {
        let w = window(|index| index % 4 == 0);
        assert!(takes(CARD, &w));
        let mut windows = RewriteBudget::new(CARD, 0, 0);
        let holes: Vec<BlockAddr> = (0..100).map(|n| 5000 + n * 8).collect();
        assert!(!windows.take(&w, &holes) && !windows.take(&w, &ahead()[..31]) && !windows.take(&w, &[]));
        assert_eq!(windows.credit, 3 * 8 * MOST_NEIGHBOURS);
    }

    #[test]
    fn pages_that_stay_count_in_both_ways() {
        // With every other page fixed the window lies in two places either way.
        let mut held = window(|index| index % 4 == 0);
        assert!(takes(CARD, &held));
        for (index, block) in &mut held.pages {
            if let BlockState::Movable(addr) = *block
                && *index % 2 == 1
            {
                *block = BlockState::Pinned(addr);
            }
        }
        assert!(!takes(CARD, &held));
    }

    #[test]
    fn all_windows_together_keep_to_what_was_restored() {
        let scattered = |n: u64| Window {
            pages: (0..WINDOW_PAGES)
                .map(|i| (i, if i < n { BlockState::Moving } else { BlockState::Movable(100 * i as u32) }))
                .collect(),
        };
        let mut windows = RewriteBudget::new(CARD, 0, 0);
        let ahead = &ahead();
        assert!(!windows.take(&scattered(1), ahead), "one page pays for six");
        assert!(!windows.take(&scattered(3), ahead));
        assert!(windows.take(&scattered(4), ahead), "eight pay for 28");
        assert_eq!(windows.credit, 8 * MOST_NEIGHBOURS - 28);
        assert!(!RewriteBudget::new(CARD, 5, 30).take(&scattered(1), ahead));
        assert!(RewriteBudget::new(CARD, 5, 5).take(&scattered(1), ahead));
    }
}
