//! When an fsync makes a file durable: the policy that is asked at the face of the volume.
//!
//! [`Immediate`] has a file committed before its fsync returns. [`Deferred`] keeps the fsync and has the file
//! committed later, behind those whose fsyncs came before: when it is asked to, or before anything changes.
//! So what is committed is the file as it was at its fsync, and no version of it has to be kept.
//! [`Adaptive`](super::adaptive::Adaptive) has the whole volume committed. What is to be synchronous by a
//! flag or a mount option is never put off.
//!
//! Invariant: [`Deferred`] commits files in the order of their fsyncs, each as it was then.
//! Locks: the turn of [`Committing`] is held while files are committed, and taken with no other lock held;
//! `kept` is a leaf.

use crate::commit::account::AppStats;
use crate::commit::adaptive::AdaptiveStats;
use crate::commit::apps::{AppId, Moved};
use crate::commit::chooser::PageCounts;
use crate::map::inode::Scope;
use crate::ranks;
use medfs_format::Ino;
use medfs_sync::{Mutex, Ranked};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ThreadId;
use std::time::Duration;

/// An fsync: which file is to be durable as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fsync {
    pub(super) ino: Ino,
    pub(super) datasync: bool,
    pub(super) app: AppId,
}

/// Whether what is kept for later is sure to find room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Room {
    Enough,
    /// The volume is nearly full: a commit that is put off might find none.
    Tight,
}

/// What becomes of an fsync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SyncPlan {
    /// The file is committed before it returns.
    Now,
    /// So it is with all that waits of its app.
    WithApp(AppId),
    /// The policy keeps it.
    Later,
}

/// When files are committed.
pub(crate) trait Durability: Send + Sync {
    /// What one commit makes durable.
    fn scope(&self) -> Scope {
        Scope::File
    }

    /// Whether it ever answers [`SyncPlan::Later`].
    fn puts_off(&self) -> bool {
        true
    }

    /// Asked at each fsync, with the bytes that are dirty.
    fn on_fsync(&self, fsync: Fsync, room: Room, dirty_bytes: u64) -> SyncPlan;

    /// The fsync whose file is to be committed next.
    fn oldest(&self) -> Option<Fsync> {
        None
    }

    /// That file is durable, or gone.
    fn committed(&self) {}

    /// What changed of apps, not before `since`, where the volume has several. Told before all that is asked below.
    fn count(&self, _since: Duration, _moved: &[Moved]) {}

    /// Asked before each change where commits are of the whole volume, with its pages:
    /// whether it is to be committed first.
    fn on_change(&self, _now: Duration, _pages: PageCounts) -> bool {
        false
    }

    /// Asked by the timer while there is something to commit.
    fn is_due(&self, _now: Duration) -> bool {
        false
    }

    /// The app that made a commit due, as it was asked last; `None` where the volume did, or is one app.
    fn due_app(&self) -> Option<AppId> {
        None
    }

    /// All that waits of an app is durable, and of no other one; that took so long.
    fn app_committed(&self, _app: AppId, _took: Duration) {}

    /// The whole volume begins to be made durable, with so many dirty bytes.
    fn checkpointing(&self, _now: Duration, _dirty_bytes: u64) {}

    /// The whole volume is durable.
    fn checkpointed(&self, _now: Duration) {}

    /// A user did something. Whether any commit waits for pauses of one.
    fn on_user(&self, _now: Duration) -> bool {
        false
    }

    /// How long the timer may wait until it asks again; `None` where nothing is ever put off.
    fn next_look(&self, _now: Duration) -> Option<Duration> {
        None
    }

    /// What waits, and what was committed why; `None` where nothing ever waits.
    fn stats(&self, _now: Duration, _dirty_bytes: u64) -> Option<AdaptiveStats> {
        None
    }

    /// The same of apps with these names.
    fn app_stats(&self, _now: Duration, _names: Vec<String>) -> Vec<AppStats> {
        Vec::new()
    }
}

/// POSIX: an fsync returns when its file is durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Immediate;

impl Durability for Immediate {
    fn puts_off(&self) -> bool {
        false
    }

    fn on_fsync(&self, _: Fsync, _: Room, _: u64) -> SyncPlan {
        SyncPlan::Now
    }
}

/// An fsync returns at once. For tests: it bounds neither time nor bytes.
#[derive(Debug, Default)]
pub(crate) struct Deferred {
    kept: Mutex<VecDeque<Fsync>>,
    count: AtomicUsize,
}

impl Durability for Deferred {
    fn on_fsync(&self, fsync: Fsync, _: Room, _: u64) -> SyncPlan {
        let mut kept = self.kept.lock();
        // Nothing changed since the same one came.
        if kept.back() != Some(&fsync) {
            kept.push_back(fsync);
        }
        self.count.store(kept.len(), Ordering::Release);
        SyncPlan::Later
    }

    fn oldest(&self) -> Option<Fsync> {
        match self.count.load(Ordering::Acquire) {
            0 => None,
            _ => self.kept.lock().front().copied(),
        }
    }

    fn committed(&self) {
        let mut kept = self.kept.lock();
        kept.pop_front();
        self.count.store(kept.len(), Ordering::Release);
    }
}

/// The thread that commits what was put off: what it does for that changes no file.
#[derive(Debug)]
pub(crate) struct Committing {
    turn: Mutex<()>,
    thread: Mutex<Option<ThreadId>>,
}

impl Default for Committing {
    fn default() -> Committing {
        Committing { turn: Mutex::default().ranked(ranks::COMMITTING), thread: Mutex::default() }
    }
}

impl Committing {
    /// Runs `commit` after what other threads commit; not within itself.
    pub(crate) fn in_turn<E>(&self, commit: impl FnOnce() -> Result<(), E>) -> Result<(), E> {
        let this = std::thread::current().id();
        if *self.thread.lock() == Some(this) {
            return Ok(());
        }
        let _turn = self.turn.lock();
        *self.thread.lock() = Some(this);
        let committed = commit();
        *self.thread.lock() = None;
        committed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fsyncs_come_back_in_their_order() {
        let policy = Deferred::default();
        let fsync = |ino| Fsync { ino, datasync: false, app: AppId::REST };
        assert_eq!(policy.oldest(), None);
        for ino in [9, 9, 4, 9] {
            assert_eq!(policy.on_fsync(fsync(ino), Room::Enough, 0), SyncPlan::Later);
        }
        for ino in [9, 4, 9] {
            assert_eq!(policy.oldest(), Some(fsync(ino)));
            policy.committed();
        }
        assert_eq!(policy.oldest(), None);
        assert_eq!(
            (Immediate.on_fsync(fsync(9), Room::Enough, 0), Immediate.oldest()),
            (SyncPlan::Now, None)
        );
    }
}
