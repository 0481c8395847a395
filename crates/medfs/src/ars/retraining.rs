//! Training the decision tree of reserved files anew, of what became of files on the volume (ARS, section IV-A:
//! each ten days, at night).
//!
//! Purpose: who opens the volume brings a [`Trainer`], as the engine knows no way to make trees. It is asked after
//! ten days, in the hour of the day in which least is wanted of the volume, while nothing is. Its tree becomes the
//! volume's only where it says that it is better than the one in force.
//! Invariants: the timer trains nothing without the option `reserve_retrain`, and nobody does where no tree chooses the
//! files. A day's hours are those of the clock that was passed in. Which of them is the quietest is counted, so no time
//! zone counts.
//! Locks: `state` is a leaf, held for a look.

use crate::ars::kept_tree;
use crate::commit::Commit;
use crate::error::{Error, Posix, Result};
use crate::profile::FileSample;
use medfs_format::ars::Tree;
use medfs_sync::Mutex;
use serde::Serialize;
use std::sync::OnceLock;
use std::time::Duration;

/// Time from the opening to the first training, and from one to the next.
const EVERY: Duration = Duration::from_secs(10 * 86_400);
const HOURS: usize = 24;

/// Makes trees of files that a volume judged.
pub trait Trainer: Send + Sync {
    /// A tree of samples, where it is better than the one in force.
    fn train(&self, samples: &[FileSample], in_force: &Tree) -> Trained;
}

/// Shares of what was held back of which trees were right.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Accuracies {
    /// The tree in force.
    pub in_force: f64,
    /// The new one.
    pub new: f64,
}

/// What came of a training.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// Files that there were samples of.
    pub files: u64,
    /// Fewer are too few.
    pub least_files: u64,
    /// How good the trees are; none where there were too few files.
    pub accuracies: Option<Accuracies>,
    /// The new tree, where it is better.
    pub better: Option<Tree>,
}

/// What came of a training, for `medfs ars retrain`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrainedStats {
    /// See [`Trained`].
    pub files: u64,
    /// See [`Trained`].
    pub least_files: u64,
    /// See [`Trained`].
    pub accuracies: Option<Accuracies>,
    /// Whether the new tree is the volume's now.
    pub adopted: bool,
}

impl From<Trained> for TrainedStats {
    fn from(trained: Trained) -> TrainedStats {
        let Trained { files, least_files, accuracies, better } = trained;
        TrainedStats { files, least_files, accuracies, adopted: better.is_some() }
    }
}

/// How often the timer looked in an hour of the day, and saw that something was wanted.
#[derive(Debug, Clone, Copy, Default)]
struct Hour {
    seen: u32,
    busy: u32,
}

impl Hour {
    /// Whether less of the looks found something wanted than in another hour, or as little.
    fn is_as_quiet_as(self, other: Hour) -> bool {
        u64::from(self.busy) * u64::from(other.seen) <= u64::from(other.busy) * u64::from(self.seen)
    }
}

/// The hours of the day.
#[derive(Debug, Default)]
struct Hours([Hour; HOURS]);

impl Hours {
    fn note(&mut self, hour: usize, is_busy: bool) {
        let hour = &mut self.0[hour];
        hour.seen = hour.seen.saturating_add(1);
        hour.busy = hour.busy.saturating_add(is_busy.into());
    }

    /// Whether an hour is the quietest of those in which the timer looked.
    fn is_quietest(&self, hour: usize) -> bool {
        self.0.iter().all(|other| self.0[hour].is_as_quiet_as(*other))
    }
}

#[derive(Debug)]
struct State {
    hours: Hours,
    /// When the volume was opened, or the last training was.
    last: Duration,
}

/// What the task remembers.
pub(crate) struct Retraining {
    trainer: OnceLock<Box<dyn Trainer>>,
    state: Mutex<State>,
}

impl Retraining {
    /// Of a volume that is opened `now`.
    pub(crate) fn new(now: Duration) -> Retraining {
        let state = State { hours: Hours::default(), last: now };
        Retraining { trainer: OnceLock::new(), state: Mutex::new(state) }
    }

    /// Who makes trees; the first one stays.
    pub(crate) fn train_with(&self, trainer: Box<dyn Trainer>) {
        // A second one would be the caller's mistake, and do no harm.
        let _ = self.trainer.set(trainer);
    }

    /// The timer looks at a volume of which something was wanted since it last did, or not: trains where ten days
    /// have passed and this is the hour. A full volume keeps its tree.
    pub(crate) fn background(&self, on: &Commit, is_busy: bool) -> Result<()> {
        let is_due = {
            let (mut state, hour) = (self.state.lock(), hour(on));
            state.hours.note(hour, is_busy);
            let is_time = on.clock.monotonic().saturating_sub(state.last) >= EVERY;
            is_time && !is_busy && state.hours.is_quietest(hour)
        };
        if !is_due || !on.opts.reserve_retrain || !kept_tree::is_asked(on) || self.trainer.get().is_none() {
            return Ok(());
        }
        match self.retrain(on) {
            Ok(trained) => tracing::info!(?trained, "the decision tree was trained anew"),
            Err(error @ (Error::NoSpace | Error::Posix(_))) => {
                tracing::warn!(%error, "a better decision tree could not be kept");
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Trains a tree, which becomes the volume's where it is better. `NotSupported` where no tree chooses files,
    /// or nobody makes trees.
    pub(crate) fn retrain(&self, on: &Commit) -> Result<Trained> {
        let trainer = self.trainer.get().filter(|_| kept_tree::is_asked(on)).ok_or(Posix::NotSupported)?;
        on.check_writable()?;
        self.state.lock().last = on.clock.monotonic();
        let trained = trainer.train(&on.placement.samples(), &kept_tree::of(on));
        if let Some(tree) = &trained.better {
            kept_tree::keep(on, tree)?;
        }
        Ok(trained)
    }
}

fn hour(on: &Commit) -> usize {
    (on.clock.now().secs / 3600).rem_euclid(HOURS as i64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quietest_hour_is_one_that_was_seen() {
        let mut hours = Hours::default();
        assert!(hours.is_quietest(3), "nothing is known");
        for (hour, busy) in [(8, 9), (9, 3), (22, 5)] {
            (0..10).for_each(|look| hours.note(hour, look < busy));
        }
        assert!(hours.is_quietest(9) && !hours.is_quietest(8) && !hours.is_quietest(22));
        // Looked at for longer, it is busier.
        (0..90).for_each(|_| hours.note(9, true));
        assert!(hours.is_quietest(22) && !hours.is_quietest(9));
        hours.note(4, false);
        assert!(hours.is_quietest(4) && !hours.is_quietest(22));
    }
}
