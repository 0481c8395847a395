//! `durability=adaptive`: fsyncs return at once, and the whole volume is committed later, as it was at one
//! moment (MobiFS, sections 3 and 4.4).
//!
//! A commit is a checkpoint that is a cut: it keeps every operation out and takes the pages of all files
//! along, so that after power loss the volume is as it was after one operation, with all before it and none
//! after it. The roll-forward log has nothing but commits of apps.
//!
//! Within the bounds the option `durability_policy` says when ([`super::chooser`], [`super::pauses`]); a bound beats
//! it.
//!
//! Bounds and policy count for each app ([`super::account`]), but for `holdup` and room, which are the volume's. What
//! one app makes due is committed alone where the chain of fsynced nodes says all of it ([`super::app_commit`]);
//! otherwise all is, as a cut of the volume is one for each app.
//!
//! With `holdup=` what is dirty stays as little as the device writes in that time ([`super::holdup`]).
//!
//! Invariant: what power loss may take stays within the bounds, but for the time that the commit takes which
//! a bound began. Locks: `open` is a leaf.

use crate::commit::account::{Account, AppStats, CommitReason};
use crate::commit::apps::{AppId, Moved};
use crate::commit::chooser::PageCounts;
use crate::commit::durability::{Durability, Fsync, Room, SyncPlan};
use crate::commit::holdup::Holdup;
use crate::commit::pauses::Pauses;
use crate::commit::policy::tradeoff::Written;
use crate::map::inode::Scope;
use crate::options::{Apps, CommitPolicy, DurabilityPolicy, LossBounds};
use medfs_sync::Mutex;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The timer looks at least this often, and a commit that the age makes due begins this much earlier, where half of the
/// age is not less.
const TICK: Duration = Duration::from_secs(1);
/// The timer looks at most this often for a change that begins to wait.
const LEAST_TICK: Duration = Duration::from_millis(10);

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
    /// Commits of one app alone, by the chain of fsynced nodes.
    pub commits_by_chain: u64,
    /// Commits of all, by checkpoints.
    pub commits_by_checkpoint: u64,
    /// Times at which somebody told of a user's input (`medfs input`).
    pub user_events: u64,
}

/// Commits when a bound of what may be lost is reached.
#[derive(Debug)]
pub(crate) struct Adaptive {
    bounds: LossBounds,
    policy: CommitPolicy,
    /// The volume has several apps, of which each is told what changed ([`Durability::count`]).
    by_app: bool,
    open: Mutex<Open>,
    counters: Counters,
}

/// What happened since the last commit.
#[derive(Debug)]
struct Open {
    /// Of each app, by its place in the table; the rest comes first.
    accounts: Vec<Account>,
    /// An app whose changes reached a bound, or the end of a transaction, as they were counted.
    due: Option<(AppId, CommitReason)>,
    holdup: Option<Holdup>,
    /// When ended transactions are committed, and in which order.
    pauses: Pauses,
    /// When the commit under way began, and the bytes that were dirty then.
    committing: Option<(Duration, u64)>,
}

impl Open {
    /// Dirty bytes that a commit writes within `holdup`.
    fn held(&self) -> u64 {
        self.holdup.as_ref().map_or(u64::MAX, Holdup::bytes)
    }

    fn account(&mut self, app: AppId, policy: &CommitPolicy) -> &mut Account {
        if self.accounts.len() <= app.0 {
            self.accounts.resize_with(app.0 + 1, || Account::new(policy));
        }
        &mut self.accounts[app.0]
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
    by_checkpoint: AtomicU64,
}

impl Counters {
    fn of(&self, reason: CommitReason) -> Option<&AtomicU64> {
        Some(match reason {
            CommitReason::Age => &self.by_age,
            CommitReason::Bytes => &self.by_bytes,
            CommitReason::Holdup => &self.by_holdup,
            CommitReason::Fsyncs => &self.by_fsyncs,
            CommitReason::Room => &self.for_room,
            CommitReason::Tradeoff => &self.by_tradeoff,
            CommitReason::Interval => &self.by_interval,
            CommitReason::Staleness => &self.by_staleness,
            CommitReason::Others => return None,
        })
    }
}

fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Adaptive {
    pub(crate) fn new(bounds: LossBounds, policy: &CommitPolicy, apps: &Apps) -> Adaptive {
        let holdup = bounds.holdup.map(Holdup::new);
        let (accounts, pauses) = (vec![Account::new(policy)], Pauses::new(policy));
        let open = Open { accounts, due: None, holdup, pauses, committing: None };
        let by_app = *apps != Apps::Volume;
        Adaptive { bounds, policy: *policy, by_app, open: Mutex::new(open), counters: Counters::default() }
    }

    /// A commit begins for this reason, which an app gives.
    fn commit(&self, open: &mut Open, app: AppId, reason: CommitReason) {
        self.counters.of(reason).into_iter().for_each(count);
        open.account(app, &self.policy).make_due(reason);
        let of_app = self.by_app && !matches!(reason, CommitReason::Holdup | CommitReason::Room);
        open.due = of_app.then_some((app, reason));
    }

    /// The bound that so many dirty bytes reach, of an app and of the volume. Of these `held` can be written
    /// within `holdup`.
    fn beyond(&self, of_app: u64, dirty_bytes: u64, held: u64) -> Option<CommitReason> {
        match dirty_bytes {
            0 => None,
            _ if of_app >= self.bounds.bytes => Some(CommitReason::Bytes),
            _ if dirty_bytes >= held => Some(CommitReason::Holdup),
            _ => None,
        }
    }

    /// Whether too much waits of an app. A node of which all is in the chain is dirty, and does not wait.
    fn is_over(&self, account: &Account) -> bool {
        account.since.is_some() && account.dirty_bytes() >= self.bounds.bytes
    }

    /// How much earlier than the age asks for it a commit begins: it takes time itself.
    fn margin(&self) -> Duration {
        TICK.min(self.bounds.age / 2)
    }

    /// How old the oldest change may become before a commit begins.
    fn patience(&self) -> Duration {
        self.bounds.age - self.margin()
    }

    /// How often the timer looks whether a change has begun to wait.
    fn pace(&self) -> Duration {
        let ends_by_time = self.policy.which == DurabilityPolicy::Interval;
        let interval = if ends_by_time { self.policy.interval / 2 } else { TICK };
        self.margin().min(interval).max(LEAST_TICK)
    }

    /// Whether a change has waited for as long as one may.
    fn is_old(&self, account: &Account, now: Duration) -> bool {
        account.since.is_some_and(|since| now.saturating_sub(since) >= self.patience())
    }
}

impl Durability for Adaptive {
    fn scope(&self) -> Scope {
        Scope::Volume
    }

    fn on_fsync(&self, fsync: Fsync, room: Room, dirty_bytes: u64) -> SyncPlan {
        let mut open = self.open.lock();
        let (held, by_app) = (open.held(), self.by_app);
        let account = open.account(fsync.app, &self.policy);
        let of_app = if by_app { account.dirty_bytes() } else { dirty_bytes };
        if account.since.is_none() && of_app == 0 {
            // All of it is durable.
            return SyncPlan::Later;
        }
        let reason = match room {
            Room::Tight => Some(CommitReason::Room),
            Room::Enough if held == 0 => Some(CommitReason::Holdup),
            Room::Enough if self.bounds.fsyncs.is_some_and(|most| account.fsyncs >= most) => {
                Some(CommitReason::Fsyncs)
            }
            Room::Enough => self.beyond(of_app, dirty_bytes, held),
        };
        match reason {
            Some(reason) => {
                self.commit(&mut open, fsync.app, reason);
                open.due.map_or(SyncPlan::Now, |(app, _)| SyncPlan::WithApp(app))
            }
            None => {
                account.fsyncs += 1;
                count(&self.counters.deferred);
                SyncPlan::Later
            }
        }
    }

    fn count(&self, since: Duration, moved: &[Moved]) {
        let mut open = self.open.lock();
        for Moved { app, change } in moved {
            let account = open.account(*app, &self.policy);
            let chosen = account.count(since, change);
            let reason = match self.is_over(account) {
                true => Some(CommitReason::Bytes),
                false => chosen.then_some(CommitReason::Staleness),
            };
            if let Some(reason) = reason {
                open.due.get_or_insert((*app, reason));
            }
        }
    }

    fn on_change(&self, now: Duration, pages: PageCounts) -> bool {
        let mut open = self.open.lock();
        let held = open.held();
        let (app, reason) = if self.by_app {
            let of_volume = self.beyond(0, pages.dirty_bytes(), held).map(|reason| (AppId::REST, reason));
            let Some(due) = open.due.or(of_volume) else { return false };
            due
        } else {
            let account = open.account(AppId::REST, &self.policy);
            account.since.get_or_insert(now);
            let chosen = account.chooser.on_change(now, pages);
            let beyond = self.beyond(pages.dirty_bytes(), pages.dirty_bytes(), held);
            let Some(reason) = beyond.or(chosen.then_some(CommitReason::Staleness)) else { return false };
            (AppId::REST, reason)
        };
        self.commit(&mut open, app, reason);
        true
    }

    fn is_due(&self, now: Duration) -> bool {
        let mut open = self.open.lock();
        if !self.by_app {
            // A change that noted itself before a commit, and happened after it, is noted here.
            open.account(AppId::REST, &self.policy).since.get_or_insert(now);
        }
        let old = open.accounts.iter().position(|account| self.is_old(account, now));
        let due = open.due.or(old.map(|app| (AppId(app), CommitReason::Age)));
        let due = due.or_else(|| {
            let Open { accounts, pauses, .. } = &mut *open;
            pauses.next(accounts, now).map(|(app, end)| (app, end.into()))
        });
        due.inspect(|&(app, reason)| self.commit(&mut open, app, reason)).is_some()
    }

    fn due_app(&self) -> Option<AppId> {
        self.open.lock().due.map(|(app, _)| app)
    }

    fn app_committed(&self, app: AppId, took: Duration) {
        let mut open = self.open.lock();
        let bytes = open.account(app, &self.policy).dirty_bytes();
        open.pauses.measured(bytes, took);
        open.pauses.committed(app);
        let account = open.account(app, &self.policy);
        account.by_chain += u64::from(account.committed());
        // Another one may have reached the bound meanwhile.
        let over = open.accounts.iter().position(|account| self.is_over(account));
        open.due = over.map(|app| (AppId(app), CommitReason::Bytes));
    }

    fn checkpointing(&self, now: Duration, dirty_bytes: u64) {
        let mut open = self.open.lock();
        open.committing = Some((now, dirty_bytes));
        if !self.by_app && dirty_bytes > 0 {
            // A change that noted itself before an earlier commit and happened after it waits for this one: until then
            // an fsync of it counts, though its pages are clean as soon as they are written.
            open.account(AppId::REST, &self.policy).since.get_or_insert(now);
        }
    }

    fn checkpointed(&self, now: Duration) {
        let mut open = self.open.lock();
        if let Some((began, bytes)) = open.committing.take() {
            let took = now.saturating_sub(began);
            open.holdup.iter_mut().for_each(|holdup| holdup.note(bytes, took));
            open.pauses.measured(bytes, took);
        }
        open.due = None;
        (0..open.accounts.len()).for_each(|app| open.pauses.committed(AppId(app)));
        let waited = open.accounts.iter_mut().map(Account::committed).filter(|waited| *waited).count();
        if waited > 0 {
            count(&self.counters.by_checkpoint);
        }
    }

    fn on_user(&self, now: Duration) -> bool {
        self.open.lock().pauses.user(now)
    }

    fn next_look(&self, now: Duration) -> Option<Duration> {
        let mut open = self.open.lock();
        let Open { accounts, pauses, .. } = &mut *open;
        let age = accounts.iter().filter_map(|account| Some(account.since? + self.patience())).min();
        let ends = accounts.iter().filter_map(|account| pauses.wakes(account, now)).min();
        // What is due already was asked for just now.
        let next = [age, ends].into_iter().flatten().filter(|at| *at > now).min();
        Some(next.map_or(self.pace(), |at| (at - now).min(self.pace())))
    }

    fn stats(&self, now: Duration, dirty_bytes: u64) -> Option<AdaptiveStats> {
        let open = self.open.lock();
        let all = || open.accounts.iter();
        let written = all().map(Account::written).fold(Written::default(), |sum, app| Written {
            staleness: sum.staleness + app.staleness,
            overlap: sum.overlap + app.overlap,
        });
        let since = all().filter_map(|account| account.since).min();
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        Some(AdaptiveStats {
            oldest_millis: since.map(|since| now.saturating_sub(since).as_millis() as u64),
            fsyncs_waiting: all().map(|account| account.fsyncs).sum(),
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
            commits_by_chain: all().map(|account| account.by_chain).sum(),
            commits_by_checkpoint: get(&counters.by_checkpoint),
            user_events: open.pauses.told,
        })
    }

    fn app_stats(&self, now: Duration, names: Vec<String>) -> Vec<AppStats> {
        let open = self.open.lock();
        let named = names.into_iter().zip(&open.accounts);
        named.filter_map(|(name, account)| account.stats(name, now)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Fsync = Fsync { ino: 9, datasync: false, app: AppId::REST };

    fn second(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn within(age: u64, bytes: u64, fsyncs: Option<u64>) -> Adaptive {
        Adaptive::new(
            LossBounds { age: second(age), bytes, fsyncs, holdup: None },
            &CommitPolicy::default(),
            &Apps::Volume,
        )
    }

    fn dirty(pages: u64) -> PageCounts {
        PageCounts { dirty: pages, ..PageCounts::default() }
    }

    /// A change may note itself before a commit and happen after it. The next commit makes its pages clean before they
    /// are durable: an fsync at that moment is one more that power loss may take.
    #[test]
    fn an_fsync_within_a_commit_counts() {
        let adaptive = within(10, 1 << 20, Some(4));
        let pages = PageCounts::default();
        assert!(!adaptive.on_change(second(1), pages));
        adaptive.checkpointed(second(2));
        adaptive.checkpointing(second(3), 8192);
        assert_eq!(adaptive.on_fsync(FILE, Room::Enough, 0), SyncPlan::Later);
        assert_eq!(adaptive.stats(second(3), 0).unwrap().fsyncs_waiting, 1);
        adaptive.checkpointed(second(4));
        assert_eq!(adaptive.stats(second(4), 0).unwrap().fsyncs_waiting, 0);
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
        let plans: Vec<SyncPlan> = (0..3).map(|_| policy.on_fsync(FILE, Room::Enough, 4096)).collect();
        assert_eq!(plans, [SyncPlan::Later, SyncPlan::Later, SyncPlan::Now]);
        policy.checkpointed(second(129));
        assert_eq!(policy.on_fsync(FILE, Room::Enough, 4096), SyncPlan::Later);
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
        let policy = Adaptive::new(bounds, &CommitPolicy::default(), &Apps::Volume);
        assert_eq!(policy.on_fsync(FILE, Room::Enough, 0), SyncPlan::Later);
        assert!(!policy.on_change(second(1), dirty(63)) && policy.on_change(second(1), dirty(64)));
        policy.checkpointing(second(1), 1 << 12);
        policy.checkpointed(second(3));
        assert_eq!(policy.on_fsync(FILE, Room::Enough, 4096), SyncPlan::Now);
        assert!(policy.on_change(second(3), dirty(1)) && !policy.on_change(second(3), dirty(0)));
        let stats = policy.stats(second(3), 0).unwrap();
        assert_eq!((stats.commits_by_holdup, stats.holdup_bytes), (3, Some(0)));
    }
}
