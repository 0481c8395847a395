//! Upkeep: what the engine does of its own accord: cleaning, restoring, measuring, discarding.
//!
//! Invariant: nothing here is needed for a promise; an error of reading ends the step, not the volume.
//! Locks: `gc`; see `fs/mod.rs`.

pub(crate) mod gc;
pub(crate) mod idle;
pub(crate) mod restore;
pub(crate) mod rewrite_window;
pub(crate) mod trim;

use crate::commit::checkpoint::CheckpointSink;
use crate::error::Result;
use crate::fs::Fs;
use crate::stats::RestoreStats;
use gc::Gc;
use idle::{Activity, Did, STEP_PAGES, idle_work};
use restore::Restorer;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// Work that nobody asks for. The front end's timer goes through the list; each task says whether it is due.
pub(crate) trait UpkeepTask: Send + Sync {
    /// Whether there is something to do, by the monotonic clock of the volume.
    fn is_due(&self, fs: &Fs, now: Duration) -> bool;

    /// Does a part of it. `Break`: that was enough for this time.
    fn step(&self, fs: &Fs) -> Result<ControlFlow<()>>;
}

/// The upkeep of a volume.
pub(crate) struct Upkeep {
    /// The most urgent first.
    tasks: Vec<Box<dyn UpkeepTask>>,
    idle: Arc<IdleWork>,
}

impl Upkeep {
    pub(crate) fn new(gc: Arc<Gc>, now: Duration) -> Upkeep {
        let idle = Arc::new(IdleWork { activity: Activity::new(now), restorer: Restorer::default() });
        let tasks: Vec<Box<dyn UpkeepTask>> =
            vec![Box::new(CommitTimer), Box::new(BackgroundCleaning(gc)), Box::new(WhenIdle(idle.clone()))];
        Upkeep { tasks, idle }
    }

    /// One round of what is due.
    pub(crate) fn background(&self, fs: &Fs) -> Result<()> {
        let now = fs.clock.monotonic();
        for task in &self.tasks {
            if task.is_due(fs, now) && task.step(fs)?.is_break() {
                break;
            }
        }
        Ok(())
    }

    /// Something is wanted of the volume: it is not idle.
    pub(crate) fn note_wanted(&self) {
        self.idle.activity.note();
    }

    /// One step of idle work, of about `budget` pages.
    pub(crate) fn idle_work(&self, fs: &Fs, budget: u64) -> Result<Did> {
        idle_work(fs, &self.idle.activity, &self.idle.restorer, budget)
    }

    pub(crate) fn restored(&self) -> RestoreStats {
        self.idle.restorer.stats()
    }
}

/// What idle work remembers.
struct IdleWork {
    activity: Activity,
    restorer: Restorer,
}

/// Commits what has waited for as long as the option `commit` allows, or the durability.
struct CommitTimer;

impl UpkeepTask for CommitTimer {
    fn is_due(&self, fs: &Fs, now: Duration) -> bool {
        let since = now.saturating_sub(*fs.last_checkpoint_at.lock());
        fs.has_changes_to_commit() && (since >= fs.opts.commit_interval || fs.commit.is_due(now))
    }

    fn step(&self, fs: &Fs) -> Result<ControlFlow<()>> {
        CheckpointSink.sync(fs)?;
        Ok(ControlFlow::Break(()))
    }
}

/// Cleans a section where much of the unused space lies in holes.
struct BackgroundCleaning(Arc<Gc>);

impl UpkeepTask for BackgroundCleaning {
    fn is_due(&self, fs: &Fs, _: Duration) -> bool {
        fs.opts.background_gc
    }

    fn step(&self, fs: &Fs) -> Result<ControlFlow<()>> {
        self.0.clean_in_background(fs)?;
        Ok(ControlFlow::Continue(()))
    }
}

/// Regroups and restores files, where nothing was wanted for as long as the option `idle` says.
struct WhenIdle(Arc<IdleWork>);

impl UpkeepTask for WhenIdle {
    fn is_due(&self, fs: &Fs, now: Duration) -> bool {
        self.0.activity.idle_for(now) >= fs.opts.idle_after
    }

    fn step(&self, fs: &Fs) -> Result<ControlFlow<()>> {
        idle_work(fs, &self.0.activity, &self.0.restorer, STEP_PAGES)?;
        Ok(ControlFlow::Continue(()))
    }
}
