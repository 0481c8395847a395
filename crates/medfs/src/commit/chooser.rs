//! When a volume with `durability=adaptive` commits within its bounds: the policies of [`super::policy`], on what
//! the page cache counts.
//!
//! There is one for each app. Pauses between operations stand for a user: nobody is known to touch a screen.
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

pub(super) struct Chooser {
    /// Where transactions end; `None`: at bounds alone.
    ends: Option<Box<dyn Transactioning>>,
    /// Who waits for a quiet time before the commit.
    quiet: Option<Combined<IntervalFsm>>,
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
                quiet = Some(Combined::new(BURST, IntervalFsm::new(REMEMBERED, policy.tau)));
            }
        }
        Chooser { ends, quiet, since: None, written: Written::default(), end: None }
    }

    /// An operation is about to change something. Whether the volume is to be committed before it does.
    pub(super) fn on_change(&mut self, now: Duration, pages: PageCounts) -> bool {
        if let Some(quiet) = &mut self.quiet {
            quiet.user(now);
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

    /// Why to commit now, as the timer asks: a transaction has ended, and nothing is expected for a while.
    pub(super) fn due(&mut self, now: Duration) -> Option<End> {
        let end = self.end.or(self.ends.as_ref()?.is_over(now))?;
        match &mut self.quiet {
            Some(quiet) => quiet.quiet(now).map(|_| end),
            None => Some(end),
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
