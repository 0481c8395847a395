//! When a volume with `durability=adaptive` commits within its bounds: the policies of [`super::policy`], on what
//! the page cache counts.
//!
//! There is one for each app. Where no user is known ([`super::pauses`]) pauses between operations stand for one.
//! Names, and files that lie in their inode, are not pages and are not counted.

use super::policy::interval::{Combined, IntervalFsm, Prediction};
use super::policy::tradeoff::{End, Fixed, Limits, Tpl, Transactioning, Written};
use crate::options::{CommitPolicy, DurabilityPolicy};
use medfs_format::BLOCK_SIZE;
use std::time::Duration;

/// Operations that lie no further apart are one burst.
const BURST: Duration = Duration::from_millis(50);
/// Quiet times that each state of the prediction remembers.
const REMEMBERED: usize = 8;

/// What the page cache counted since the mount, and the pages and nodes that are dirty now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PageCounts {
    /// Pages that operations changed, a page once for each change.
    pub(super) changed: u64,
    /// Dirty pages that became clean as they were written.
    pub(super) placed: u64,
    /// Dirty pages now.
    pub(super) dirty: u64,
    /// Dirty nodes now: what files hold in their inodes, attributes, addresses.
    pub(super) nodes: u64,
}

impl PageCounts {
    /// Bytes of what is dirty.
    pub(super) fn dirty_bytes(&self) -> u64 {
        (self.dirty + self.nodes) * BLOCK_SIZE as u64
    }
}

/// A time in which nothing is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pause {
    /// When what happened last did.
    pub(super) since: Duration,
    /// How long nothing is expected from now on.
    pub(super) left: Duration,
}

impl Pause {
    /// For who waits for none.
    const ALWAYS: Pause = Pause { since: Duration::ZERO, left: Duration::MAX };
}

/// Who makes pauses: a user, or an app by its operations.
#[derive(Debug)]
pub(super) struct Pauser(Combined<IntervalFsm>);

impl Pauser {
    pub(super) fn new(tau: Duration) -> Pauser {
        Pauser(Combined::new(BURST, IntervalFsm::new(REMEMBERED, tau)))
    }

    /// Something happens now.
    pub(super) fn note(&mut self, now: Duration) {
        self.0.user(now);
    }

    /// Whether nothing has happened for longer than this.
    pub(super) fn is_older(&self, now: Duration, than: Duration) -> bool {
        self.0.last().is_none_or(|last| now.saturating_sub(last) > than)
    }

    /// The pause at this time, where there is one.
    pub(super) fn pause(&mut self, now: Duration) -> Option<Pause> {
        let left = self.0.quiet(now)?;
        self.0.last().map(|since| Pause { since, left })
    }

    /// When a pause may begin, after `now`.
    pub(super) fn wakes(&self, now: Duration) -> Option<Duration> {
        let burst_ends = self.0.last().map(|last| last + BURST + Duration::from_nanos(1));
        [burst_ends, self.0.wakes()].into_iter().flatten().filter(|at| *at > now).min()
    }
}

pub(super) struct Chooser {
    /// Where transactions end; `None`: at bounds alone.
    ends: Option<Box<dyn Transactioning>>,
    /// Whose quiet time is waited for before the commit, where no user is known.
    quiet: Option<Pauser>,
    since: Option<PageCounts>,
    written: Written,
    end: Option<End>,
}

impl std::fmt::Debug for Chooser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chooser").field("written", &self.written).field("end", &self.end).finish()
    }
}

impl Chooser {
    pub(super) fn new(policy: &CommitPolicy) -> Chooser {
        let (mut ends, mut quiet): (Option<Box<dyn Transactioning>>, _) = (None, None);
        match policy.which {
            DurabilityPolicy::Bounds => {}
            DurabilityPolicy::Interval => ends = Some(Box::new(Fixed::interval(policy.interval))),
            DurabilityPolicy::Staleness => {
                ends = Some(Box::new(Fixed::staleness(policy.staleness / BLOCK_SIZE as u64)));
            }
            DurabilityPolicy::Tpl => {
                ends = Some(Box::new(Tpl::new(policy.points, Limits::default())));
                quiet = Some(Pauser::new(policy.tau));
            }
        }
        Chooser { ends, quiet, since: None, written: Written::default(), end: None }
    }

    /// An operation is about to change something. Whether the volume is to be committed before it does.
    pub(super) fn on_change(&mut self, now: Duration, pages: PageCounts) -> bool {
        if let Some(quiet) = &mut self.quiet {
            quiet.note(now);
        }
        let Some(ends) = &mut self.ends else { return false };
        ends.begins(now);
        let since = *self.since.get_or_insert(pages);
        let staleness = pages.changed.saturating_sub(since.changed);
        let kept = pages.dirty + pages.placed.saturating_sub(since.placed);
        let written = Written { staleness, overlap: staleness.saturating_sub(kept) };
        if written.staleness != self.written.staleness {
            self.written = written;
            self.end = self.end.or(ends.wrote(now, written));
        }
        self.end == Some(End::Staleness)
    }

    /// Why a transaction has ended that waits for its commit.
    pub(super) fn ended(&self, now: Duration) -> Option<End> {
        self.end.or(self.ends.as_ref()?.is_over(now))
    }

    /// The pause of the app's operations, where there is one, or none is waited for.
    pub(super) fn pause(&mut self, now: Duration) -> Option<Pause> {
        self.quiet.as_mut().map_or(Some(Pause::ALWAYS), |quiet| quiet.pause(now))
    }

    /// When a transaction ends by time, or a pause may begin for the one that has ended, after `now`. `of_user`: when
    /// one of the user may, where a user is known.
    pub(super) fn wakes(&self, now: Duration, of_user: Option<Option<Duration>>) -> Option<Duration> {
        match self.ended(now) {
            Some(_) => of_user.unwrap_or_else(|| self.quiet.as_ref()?.wakes(now)),
            None => self.ends.as_ref()?.ends_at(),
        }
    }

    /// All is durable.
    pub(super) fn committed(&mut self) {
        (self.since, self.written, self.end) = (None, Written::default(), None);
        if let Some(ends) = &mut self.ends {
            ends.ended();
        }
    }

    /// What was written since the last commit, as of the last change.
    pub(super) fn written(&self) -> Written {
        self.written
    }
}
