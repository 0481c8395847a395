//! When to commit what waits: MobiFS's policies (ATC'15, section 5), as types that know no volume.
//!
//! [`tradeoff`] says where a transaction ends, [`interval`] how long nobody will want anything. Each is behind a
//! trait, and the baselines that the paper compares with are beside it. [`schedule`] says which app's transaction is
//! next. Time is passed in; numbers are integers, as in the paper's kernel.
//!
//! Invariant: the same calls give the same answers. There are no locks: whoever shares a policy guards it.

pub mod interval;
pub mod schedule;
pub mod tradeoff;

use std::collections::VecDeque;
use std::time::Duration;

/// The last few lengths of quiet times.
#[derive(Debug, Clone)]
struct History {
    kept: usize,
    lengths: VecDeque<Duration>,
}

impl History {
    /// Keeps so many, at least one.
    fn of(kept: usize) -> History {
        History { kept: kept.max(1), lengths: VecDeque::new() }
    }

    fn record(&mut self, length: Duration) {
        self.lengths.push_back(length);
        if self.lengths.len() > self.kept {
            self.lengths.pop_front();
        }
    }

    fn shortest(&self) -> Option<Duration> {
        self.lengths.iter().min().copied()
    }

    fn mean(&self) -> Option<Duration> {
        let count = u32::try_from(self.lengths.len()).unwrap_or(u32::MAX);
        (count > 0).then(|| self.lengths.iter().sum::<Duration>() / count)
    }
}
