//! What waits of one app, and why it was committed: with `durability=adaptive`.
//!
//! Where the whole volume is one app there is one account, and what is dirty is known of the volume. Where there are
//! several, each is told what changed of its files ([`Account::count`]).
//! Locks: none here; an account is part of what [`super::adaptive`] guards.

use super::chooser::{Chooser, PageCounts};
use super::policy::tradeoff::{End, Written};
use crate::options::CommitPolicy;
use medfs_store::Change;
use serde::Serialize;
use std::time::Duration;

/// Why a commit began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CommitReason {
    /// The age of a change.
    Age,
    /// So many bytes of changed pages and nodes.
    Bytes,
    /// More would not be written within `holdup`.
    Holdup,
    /// So many fsyncs that had been put off.
    Fsyncs,
    /// The volume was nearly full.
    Room,
    /// The peak of what overwriting saves.
    Tradeoff,
    /// A fixed interval.
    Interval,
    /// So many pages changed.
    Staleness,
    /// Somebody asked for it, another app reached a bound, or the volume needed a checkpoint.
    Others,
}

impl From<End> for CommitReason {
    fn from(end: End) -> CommitReason {
        match end {
            End::Tradeoff => CommitReason::Tradeoff,
            End::Interval => CommitReason::Interval,
            End::Staleness => CommitReason::Staleness,
        }
    }
}

/// What power loss would take of an app now, and what was committed of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppStats {
    /// Its folder, owner or project.
    pub name: String,
    /// Milliseconds since its first change that is not durable; `None` where there is none.
    pub oldest_millis: Option<u64>,
    /// Bytes of changed pages and nodes that are not durable.
    pub bytes_waiting: u64,
    /// fsyncs that have returned and are not durable.
    pub fsyncs_waiting: u64,
    /// Commits that took something of it along.
    pub commits: u64,
    /// Of these, those that it made due.
    pub commits_caused: u64,
    /// Of these, those of it alone, by the chain of fsynced nodes.
    pub commits_by_chain: u64,
    /// Why the last of them began.
    pub last_commit: Option<CommitReason>,
}

/// What waits of an app.
#[derive(Debug)]
pub(super) struct Account {
    /// When the first change was seen.
    pub(super) since: Option<Duration>,
    /// fsyncs that returned.
    pub(super) fsyncs: u64,
    pub(super) chooser: Chooser,
    /// Pages changed and placed since the last commit, and what is dirty. What threads tell of one file may come in
    /// another order than it happened, so that less than nothing may be dirty for a moment.
    change: Change,
    /// Why a commit is due, or has begun.
    due: Option<CommitReason>,
    commits: u64,
    caused: u64,
    pub(super) by_chain: u64,
    last: Option<CommitReason>,
}

impl Account {
    pub(super) fn new(policy: &CommitPolicy) -> Account {
        let (since, due, last) = (None, None, None);
        let chooser = Chooser::new(policy);
        let change = Change::default();
        Account { since, fsyncs: 0, chooser, change, due, commits: 0, caused: 0, by_chain: 0, last }
    }

    /// What changed of the app's files, not before `since`. Whether its policy ends a transaction.
    pub(super) fn count(&mut self, since: Duration, change: &Change) -> bool {
        if change.waits && self.since.is_none() {
            // The policy counts from here.
            self.chooser.on_change(since, self.counts());
        }
        self.change += *change;
        if !change.waits {
            return false;
        }
        self.since = Some(self.since.map_or(since, |first| first.min(since)));
        self.chooser.on_change(since, self.counts())
    }

    fn counts(&self) -> PageCounts {
        let Change { changed, placed, pages, nodes, .. } = self.change;
        let (dirty, nodes) = (u64::try_from(pages).unwrap_or(0), u64::try_from(nodes).unwrap_or(0));
        PageCounts { changed, placed, dirty, nodes }
    }

    /// Bytes of what is dirty.
    pub(super) fn dirty_bytes(&self) -> u64 {
        self.counts().dirty_bytes()
    }

    /// A commit is due for this reason, unless there is another one already.
    pub(super) fn make_due(&mut self, reason: CommitReason) {
        self.due.get_or_insert(reason);
    }

    /// All of it is durable. Whether anything waited.
    pub(super) fn committed(&mut self) -> bool {
        let waited = self.since.is_some() || self.fsyncs > 0;
        if waited {
            self.commits += 1;
            self.caused += u64::from(self.due.is_some());
            self.last = Some(self.due.unwrap_or(CommitReason::Others));
        }
        (self.since, self.fsyncs, self.due) = (None, 0, None);
        (self.change.changed, self.change.placed) = (0, 0);
        self.chooser.committed();
        waited
    }

    /// What was written since the last commit.
    pub(super) fn written(&self) -> Written {
        self.chooser.written()
    }

    /// `None` where nothing was ever changed.
    pub(super) fn stats(&self, name: String, now: Duration) -> Option<AppStats> {
        if self.since.is_none() && self.fsyncs == 0 && self.commits == 0 {
            return None;
        }
        Some(AppStats {
            name,
            oldest_millis: self.since.map(|since| now.saturating_sub(since).as_millis() as u64),
            bytes_waiting: self.dirty_bytes(),
            fsyncs_waiting: self.fsyncs,
            commits: self.commits,
            commits_caused: self.caused,
            commits_by_chain: self.by_chain,
            last_commit: self.last,
        })
    }
}
