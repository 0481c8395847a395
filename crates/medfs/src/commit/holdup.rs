//! `holdup=`: how much may be dirty so that the device writes it before a buffer of energy is empty.
//!
//! A commit takes some time whatever is in it (tables, flushes), and longer the more pages and nodes it takes along.
//! Both are measured at each commit of this mount: what small commits take is fixed. A large one that took long is not
//! forgotten for small ones behind it, and counts for less with time. Invariants: the slowest of the last commits
//! counts, and all of a large one's time where no small one was seen, so that the estimate errs to the slow side; what
//! was in time each time stays allowed; and no more is allowed than some times what has been measured, or half of what
//! took longer.

use medfs_format::BLOCK_SIZE;
use std::collections::VecDeque;
use std::time::Duration;

/// Commits that are remembered.
const REMEMBERED: usize = 16;
/// What may be dirty before a commit was measured, in bytes.
const UNMEASURED: u64 = 256 << 10;
/// Commits from this size on tell how long a byte takes.
const TELLING: u64 = 64 << 10;
/// Small commits after which a large one that took long is believed to have become faster by [`RECOVERY`].
const PATIENCE: usize = REMEMBERED;
/// Numerator and denominator.
const RECOVERY: (u32, u32) = (3, 4);
/// How many times the largest measured commit the next one may be.
const GROWTH: u64 = 4;

/// The time that there is, and how long commits took.
#[derive(Debug)]
pub(crate) struct Holdup {
    time: Duration,
    /// Bytes of dirty pages and nodes of the last small commits, and the time of the commit that took them along.
    small: VecDeque<(u64, Duration)>,
    /// The same of the last others.
    telling: VecDeque<(u64, Duration)>,
    /// Small ones since the last of the others.
    since: usize,
    /// What they allow, as every change asks.
    bytes: u64,
}

fn remember<T>(last: &mut VecDeque<T>, one: T) {
    if last.len() == REMEMBERED {
        last.pop_front();
    }
    last.push_back(one);
}

impl Holdup {
    pub(crate) fn new(time: Duration) -> Holdup {
        let (small, telling) = (VecDeque::new(), VecDeque::new());
        Holdup { time, small, telling, since: 0, bytes: UNMEASURED }
    }

    /// A commit that took so many dirty bytes along took this long.
    pub(crate) fn note(&mut self, bytes: u64, took: Duration) {
        if bytes < TELLING {
            remember(&mut self.small, (bytes, took));
            self.since += 1;
            if self.since >= PATIENCE {
                // Where no more than a small one is allowed, no other would ever tell that the device is faster now.
                self.since = 0;
                self.telling.iter_mut().for_each(|(_, took)| *took = *took * RECOVERY.0 / RECOVERY.1);
            }
        } else {
            remember(&mut self.telling, (bytes, took));
            self.since = 0;
        }
        self.bytes = self.reckoned();
    }

    /// Dirty bytes that a commit writes within the time; 0 where even one without pages takes longer.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    fn reckoned(&self) -> u64 {
        // Without small commits nothing tells what of a large one's time is fixed: all may be its pages'.
        let small = || self.small.iter().map(|commit| commit.1);
        let (fastest, slowest) = (small().min().unwrap_or_default(), small().max().unwrap_or_default());
        let Some(left) = self.time.checked_sub(slowest) else { return 0 };
        // What each of them took along is in the slowest one's time: their largest fits, whatever is reckoned from it.
        let fits = self.small.iter().map(|commit| commit.0).max().unwrap_or(0);
        let telling = || self.telling.iter();
        let largest = telling().map(|commit| commit.0).max().unwrap_or(0);
        let too_long = telling().filter(|(_, took)| *took > self.time).map(|commit| commit.0 / 2).min();
        let most = (largest * GROWTH).max(UNMEASURED).min(too_long.unwrap_or(u64::MAX));
        let per_block = |&(bytes, took): &(u64, Duration)| {
            took.saturating_sub(fastest).as_nanos() * BLOCK_SIZE as u128 / u128::from(bytes.max(1))
        };
        match telling().map(per_block).max() {
            None | Some(0) => most,
            Some(nanos) => {
                let blocks = left.as_nanos() / nanos;
                most.min(u64::try_from(blocks * BLOCK_SIZE as u128).unwrap_or(u64::MAX)).max(fits)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_slowest_commit_counts() {
        let mut holdup = Holdup::new(millis(500));
        assert_eq!(holdup.bytes(), UNMEASURED);
        holdup.note(0, millis(100));
        // 1 MiB in 200 ms beside the 100 ms that each takes, and 512 KiB in as much.
        holdup.note(1 << 20, millis(300));
        assert_eq!(holdup.bytes() >> 10, 2048, "400 ms are left");
        holdup.note(512 << 10, millis(300));
        assert_eq!(holdup.bytes() >> 10, 1024);
    }

    #[test]
    fn it_grows_step_by_step_and_ends_where_the_time_is_too_short() {
        let mut holdup = Holdup::new(millis(500));
        holdup.note(4096, millis(1));
        assert_eq!(holdup.bytes(), UNMEASURED, "a page tells nothing");
        holdup.note(UNMEASURED, millis(2));
        assert_eq!(holdup.bytes(), GROWTH * UNMEASURED, "though there is time for 128 MiB");
        (0..REMEMBERED).for_each(|_| holdup.note(UNMEASURED, millis(501)));
        assert_eq!(holdup.bytes(), UNMEASURED / 2, "it was too much");
        holdup.note(4096, millis(501));
        assert_eq!(holdup.bytes(), 0, "even a page takes longer");
    }

    #[test]
    fn small_commits_do_not_hide_a_slow_large_one() {
        let mut holdup = Holdup::new(millis(1000));
        holdup.note(UNMEASURED, millis(8000));
        let mut allowed = holdup.bytes();
        assert!(allowed < TELLING);
        for _ in 0..4 {
            (0..REMEMBERED).for_each(|_| holdup.note(allowed, millis(900)));
            assert!((allowed..=allowed * 2).contains(&holdup.bytes()), "{} after {allowed}", holdup.bytes());
            allowed = holdup.bytes();
        }
    }

    #[test]
    fn a_large_commit_alone_does_not_hide_what_its_pages_take() {
        let mut holdup = Holdup::new(millis(300));
        holdup.note(UNMEASURED, millis(100));
        assert_eq!(holdup.bytes(), 3 * UNMEASURED);
    }
}
