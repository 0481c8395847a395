//! `durability=adaptive`: fsyncs return at once, and the whole volume is committed later, as it was at one
//! moment (MobiFS, sections 3 and 4.4).
//!
//! A commit is a checkpoint that is a cut: it keeps every operation out and takes the pages of all files
//! along, so that after power loss the volume is as it was after one operation, with all before it and none
//! after it. Nothing is written by the roll-forward log.
//!
//! Within the bounds the option `durability_policy` says when ([`super::chooser`]); a bound beats it.
//!
//! With `holdup=` what is dirty stays as little as the device writes in that time ([`super::holdup`]).
//!
//! Invariant: what power loss may take stays within the bounds, but for the time that the commit takes which
//! a bound began. Locks: `open` is a leaf.

use crate::commit::chooser::{Chooser, PageCounts};
use crate::commit::durability::{Durability, Fsync, Room, SyncPlan};
use crate::commit::holdup::Holdup;
use crate::commit::policy::tradeoff::End;
use crate::map::inode::Scope;
use crate::options::{CommitPolicy, LossBounds};
use medfs_sync::Mutex;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Background work is called about so often: a commit that the age makes due begins this much earlier.
const TICK: Duration = Duration::from_secs(1);

/// With `durability=adaptive`: what power loss would take now, and why it was committed so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct AdaptiveStats {
    /// Milliseconds since the first change that is not durable; `None` where there is none.
    pub oldest_millis: Option<u64>,
    /// fsyncs that have returned and are not durable.
    pub fsyncs_waiting: u64,
    /// Bytes of changed pages and nodes that are not durable.
    pub bytes_waiting: u64,
    /// fsyncs that returned before they were durable.
    pub fsyncs_deferred: u64,
    /// Commits that the age of a change made due.
    pub commits_by_age: u64,
    /// Commits that a change or an fsync waited for, as too much was not durable.
    pub commits_by_bytes: u64,
    /// Commits that a change or an fsync waited for, as more would not be written within `holdup`.
    pub commits_by_holdup: u64,
    /// Bytes of changed pages and nodes that a commit writes within `holdup`, as measured; `None` without that option.
    pub holdup_bytes: Option<u64>,
    /// Commits that an fsync waited for, as too many had been put off.
    pub commits_by_fsyncs: u64,
    /// Commits that an fsync waited for, as the volume was nearly full.
    pub commits_for_room: u64,
    /// Commits behind the peak of what overwriting saves (`durability_policy=tpl`).
    pub commits_by_tradeoff: u64,
    /// Commits that a fixed interval made due (`durability_policy=interval`).
    pub commits_by_interval: u64,
    /// Commits that a change waited for, as so many pages had been changed (`durability_policy=staleness`).
    pub commits_by_staleness: u64,
    /// Pages that were changed since the last commit, a page once for each change (the paper's s); 0 with
    /// `durability_policy=bounds`.
    pub staleness_pages: u64,
    /// Those of them that need not be written any more (the paper's o).
    pub overlap_pages: u64,
    /// The paper's e = o/s, in thousandths.
    pub efficiency_permille: u64,
}

/// Commits when a bound of what may be lost is reached.
#[derive(Debug)]
pub(crate) struct Adaptive {
    bounds: LossBounds,
    open: Mutex<Open>,
    counters: Counters,
}

/// What happened since the last commit.
#[derive(Debug)]
struct Open {
    /// When the first change was seen.
    since: Option<Duration>,
    /// fsyncs that returned.
    fsyncs: u64,
    chooser: Chooser,
    holdup: Option<Holdup>,
    /// When the commit under way began, and the bytes that were dirty then.
    committing: Option<(Duration, u64)>,
}

impl Open {
    /// Dirty bytes that a commit writes within `holdup`.
    fn held(&self) -> u64 {
        self.holdup.as_ref().map_or(u64::MAX, Holdup::bytes)
    }
}

#[derive(Debug, Default)]
struct Counters {
    deferred: AtomicU64,
    by_age: AtomicU64,
    by_bytes: AtomicU64,
    by_holdup: AtomicU64,
    by_fsyncs: AtomicU64,
    for_room: AtomicU64,
    by_tradeoff: AtomicU64,
    by_interval: AtomicU64,
    by_staleness: AtomicU64,
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Adaptive {
    pub(crate) fn new(bounds: LossBounds, policy: &CommitPolicy) -> Adaptive {
        let holdup = bounds.holdup.map(Holdup::new);
        let open = Open { since: None, fsyncs: 0, chooser: Chooser::new(policy), holdup, committing: None };
        Adaptive { bounds, open: Mutex::new(open), counters: Counters::default() }
    }

    fn count_end(&self, end: End) {
        count(match end {
            End::Tradeoff => &self.counters.by_tradeoff,
            End::Interval => &self.counters.by_interval,
            End::Staleness => &self.counters.by_staleness,
        });
    }

    /// The bound that so many dirty bytes reach, of which `held` can be written within `holdup`.
    fn beyond(&self, dirty_bytes: u64, held: u64) -> Option<&AtomicU64> {
        match dirty_bytes {
            0 => None,
            _ if dirty_bytes >= self.bounds.bytes => Some(&self.counters.by_bytes),
            _ if dirty_bytes >= held => Some(&self.counters.by_holdup),
            _ => None,
        }
    }

    /// How old the oldest change may become before a commit begins.
    fn patience(&self) -> Duration {
        self.bounds.age.saturating_sub(TICK)
    }
}

impl Durability for Adaptive {
    fn scope(&self) -> Scope {
        Scope::Volume
    }

    fn on_fsync(&self, _: Fsync, room: Room, dirty_bytes: u64) -> SyncPlan {
        let mut open = self.open.lock();
        let held = open.held();
        let cause = match room {
            Room::Tight => &self.counters.for_room,
            Room::Enough if held == 0 => &self.counters.by_holdup,
            Room::Enough if self.bounds.fsyncs.is_some_and(|most| open.fsyncs >= most) => {
                &self.counters.by_fsyncs
            }
            Room::Enough => match self.beyond(dirty_bytes, held) {
                Some(cause) => cause,
                None => {
                    open.fsyncs += 1;
                    count(&self.counters.deferred);
                    return SyncPlan::Later;
                }
            },
        };
        count(cause);
        SyncPlan::Now
    }

    fn on_change(&self, now: Duration, pages: PageCounts) -> bool {
        let (chosen, held) = {
            let mut open = self.open.lock();
            open.since.get_or_insert(now);
            (open.chooser.on_change(now, pages), open.held())
        };
        if let Some(cause) = self.beyond(pages.dirty_bytes(), held) {
            count(cause);
            return true;
        }
        if chosen {
            self.count_end(End::Staleness);
        }
        chosen
    }

    fn is_due(&self, now: Duration) -> bool {
        // A change that noted itself before a commit, and happened after it, is noted here.
        let mut open = self.open.lock();
        let since = *open.since.get_or_insert(now);
        let due = now.saturating_sub(since) >= self.patience();
        if due {
            count(&self.counters.by_age);
            return true;
        }
        let end = open.chooser.due(now);
        end.inspect(|&end| self.count_end(end)).is_some()
    }

    fn checkpointing(&self, now: Duration, dirty_bytes: u64) {
        self.open.lock().committing = Some((now, dirty_bytes));
    }

    fn checkpointed(&self, now: Duration) {
        let mut open = self.open.lock();
        if let Some((began, bytes)) = open.committing.take()
            && let Some(holdup) = &mut open.holdup
        {
            holdup.note(bytes, now.saturating_sub(began));
        }
        (open.since, open.fsyncs) = (None, 0);
        open.chooser.committed();
    }

    fn stats(&self, now: Duration, dirty_bytes: u64) -> Option<AdaptiveStats> {
        let open = self.open.lock();
        let written = open.chooser.written();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Some(AdaptiveStats {
            oldest_millis: open.since.map(|since| now.saturating_sub(since).as_millis() as u64),
            fsyncs_waiting: open.fsyncs,
            bytes_waiting: dirty_bytes,
            fsyncs_deferred: get(&counters.deferred),
            commits_by_age: get(&counters.by_age),
            commits_by_bytes: get(&counters.by_bytes),
            commits_by_holdup: get(&counters.by_holdup),
            holdup_bytes: open.holdup.as_ref().map(Holdup::bytes),
            commits_by_fsyncs: get(&counters.by_fsyncs),
            commits_for_room: get(&counters.for_room),
            commits_by_tradeoff: get(&counters.by_tradeoff),
            commits_by_interval: get(&counters.by_interval),
            commits_by_staleness: get(&counters.by_staleness),
            staleness_pages: written.staleness,
            overlap_pages: written.overlap,
            efficiency_permille: written.efficiency(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fsync = Fsync { ino: 9, datasync: false };

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn within(age: u64, bytes: u64, fsyncs: Option<u64>) -> Adaptive {
        Adaptive::new(LossBounds { age: second(age), bytes, fsyncs, holdup: None }, &CommitPolicy::default())
    }

    fn dirty(pages: u64) -> PageCounts {
        PageCounts { dirty: pages, ..PageCounts::default() }
    }

    #[test]
    fn the_age_counts_from_the_first_change() {
        let policy = within(30, 1 << 20, None);
        assert!(!policy.on_change(second(100), dirty(1)) && !policy.on_change(second(120), dirty(2)));
        assert!(!policy.is_due(second(128)));
        assert!(policy.is_due(second(129)));
        policy.checkpointed(second(129));
        assert!(
            !policy.is_due(second(140)),
            "what was changed since is not seen to be older than this moment"
        );
        assert!(policy.is_due(second(169)));
    }

    #[test]
    fn so_many_fsyncs_may_be_lost_and_no_more() {
        let policy = within(30, 1 << 20, Some(2));
        let plans: Vec<SyncPlan> = (0..3).map(|_| policy.on_fsync(FILE, Room::Enough, 0)).collect();
        assert_eq!(plans, [SyncPlan::Later, SyncPlan::Later, SyncPlan::Now]);
        policy.checkpointed(second(129));
        assert_eq!(policy.on_fsync(FILE, Room::Enough, 0), SyncPlan::Later);
        let stats = policy.stats(second(1), 0).unwrap();
        assert_eq!((stats.fsyncs_waiting, stats.fsyncs_deferred, stats.commits_by_fsyncs), (1, 3, 1));
    }

    #[test]
    fn bytes_that_wait_and_a_volume_without_room_commit() {
        let policy = within(30, 1 << 20, None);
        assert!(!policy.on_change(second(1), dirty(255)));
        assert!(policy.on_change(second(1), dirty(256)));
        assert!(policy.on_change(second(1), PageCounts { nodes: 128, ..dirty(128) }), "nodes are lost too");
        // What several operations changed at once.
        assert_eq!(policy.on_fsync(FILE, Room::Enough, (1 << 20) - 1), SyncPlan::Later);
        assert_eq!(policy.on_fsync(FILE, Room::Enough, 1 << 20), SyncPlan::Now);
        assert_eq!(policy.on_fsync(FILE, Room::Tight, 0), SyncPlan::Now);
    }

    #[test]
    fn a_device_that_is_too_slow_for_the_holdup_puts_nothing_off() {
        let bounds = LossBounds { holdup: Some(second(1)), ..LossBounds::default() };
        let policy = Adaptive::new(bounds, &CommitPolicy::default());
        assert_eq!(policy.on_fsync(FILE, Room::Enough, 0), SyncPlan::Later);
        assert!(!policy.on_change(second(1), dirty(63)) && policy.on_change(second(1), dirty(64)));
        policy.checkpointing(second(1), 1 << 12);
        policy.checkpointed(second(3));
        assert_eq!(policy.on_fsync(FILE, Room::Enough, 0), SyncPlan::Now);
        assert!(policy.on_change(second(3), dirty(1)) && !policy.on_change(second(3), dirty(0)));
        let stats = policy.stats(second(3), 0).unwrap();
        assert_eq!((stats.commits_by_holdup, stats.holdup_bytes), (3, Some(0)));
    }
}
