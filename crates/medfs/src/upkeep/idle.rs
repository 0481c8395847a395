//! What is done when nobody wants anything: groups of hotness made anew, pages restored
//! ([`crate::upkeep::restore`]), and pages of reserved files brought home ([`crate::upkeep::homecoming`]).
//!
//! Whether the volume is idle is an input: operations leave a mark, the front end's timer looks at it and at the clock
//! (`idle=`, 5 s as the kernel's `idle_interval`). What the idle work does itself leaves no mark.
//! Locks: `last` is a leaf. Idle work takes locks as any operation does, file by file.
//! Kernel counterpart: `is_idle`, `f2fs_update_time`.

use crate::error::Result;
use crate::file_ops::FileOps;
use crate::upkeep::homecoming::Homecoming;
use crate::upkeep::restore::Restorer;
use medfs_sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Pages that one step of idle work writes, about: it does not stop in the middle of a part of a file.
pub(crate) const STEP_PAGES: u64 = 64;

/// When something was last wanted of a volume, as precisely as the timer that looks.
#[derive(Debug)]
pub(crate) struct Activity {
    busy: AtomicBool,
    last: Mutex<Duration>,
}

impl Activity {
    /// Something was wanted `now`.
    pub(crate) fn new(now: Duration) -> Activity {
        Activity { busy: AtomicBool::new(false), last: Mutex::new(now) }
    }

    /// Something is wanted. Writes only where nothing was: threads do not fight over it.
    pub(crate) fn note(&self) {
        if !self.is_busy() {
            self.busy.store(true, Ordering::Relaxed);
        }
    }

    /// Whether something was wanted since the timer last looked.
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed)
    }

    /// The timer looks: how long nothing has been wanted.
    pub(crate) fn idle_for(&self, now: Duration) -> Duration {
        let mut last = self.last.lock();
        if self.busy.swap(false, Ordering::Relaxed) {
            *last = now;
        }
        now.saturating_sub(*last)
    }
}

/// What a step of idle work did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IdleReport {
    /// The groups of hotness were made anew.
    pub reclustered: bool,
    /// Files that were asked whether they are to be restored.
    pub files_judged: u64,
    /// Files that were restored.
    pub files_restored: u64,
    /// Pages of these.
    pub pages_restored: u64,
    /// Their neighbours that were written again with them.
    pub pages_moved: u64,
    /// Pages of reserved files that were brought home.
    pub pages_brought_home: u64,
}

impl IdleReport {
    /// Pages that were written.
    pub(crate) fn pages_written(&self) -> u64 {
        self.pages_restored + self.pages_moved + self.pages_brought_home
    }
}

/// What idle work remembers.
#[derive(Debug)]
pub(crate) struct IdleWork {
    pub(crate) activity: Activity,
    pub(crate) restorer: Restorer,
    homecoming: Homecoming,
}

impl IdleWork {
    /// Of a volume that is opened `now`.
    pub(crate) fn new(now: Duration) -> IdleWork {
        IdleWork {
            activity: Activity::new(now),
            restorer: Restorer::default(),
            homecoming: Homecoming::new(now),
        }
    }

    /// One step: regroups files once in a window, then writes about `budget` pages to restore some and to
    /// bring some home. Stops where something is wanted.
    pub(crate) fn step(&self, fs: &FileOps, budget: u64) -> Result<IdleReport> {
        let mut did = IdleReport::default();
        if fs.is_read_only() {
            return Ok(did);
        }
        did.reclustered = fs.profiles.recluster(&*fs.clock);
        if did.reclustered {
            self.restorer.begin(fs);
            self.homecoming.begin(fs);
        }
        self.restorer.restore_some(fs, &self.activity, budget, &mut did)?;
        self.homecoming.bring_some(fs, &self.activity, budget, &mut did)?;
        Ok(did)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idleness_begins_when_the_timer_saw_the_last_operation() {
        let second = Duration::from_secs(1);
        let activity = Activity::new(10 * second);
        assert_eq!(activity.idle_for(12 * second), 2 * second);
        activity.note();
        assert!(activity.is_busy());
        assert_eq!(activity.idle_for(13 * second), Duration::ZERO);
        assert!(!activity.is_busy());
        assert_eq!(activity.idle_for(18 * second), 5 * second);
    }
}
