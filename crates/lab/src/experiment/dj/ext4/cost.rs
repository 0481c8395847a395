//! What the model of ext4 wrote, and what it takes a device.

use crate::experiment::dj::jbd2::Written;
use crate::model::Times;

/// What was written, and how often the device was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Cost {
    /// Pages home by an fsync of ordered mode, and requests for them.
    pub(crate) pages: u64,
    pub(crate) page_requests: u64,
    /// Of the journal and of what goes home from it.
    pub(crate) journal: Written,
    /// Requests of commit blocks.
    pub(crate) commits: u64,
    pub(crate) flushes: u64,
}

impl Cost {
    pub(crate) fn blocks(&self) -> u64 {
        self.pages + self.journal.journal + self.journal.home
    }

    /// Requests that write. A commit block is one of its own.
    pub(crate) fn requests(&self) -> u64 {
        self.page_requests + self.journal.requests + self.journal.home_requests + self.commits
    }

    /// Microseconds of a device.
    pub(crate) fn time(&self, times: &Times) -> f64 {
        let requests = self.requests();
        times.write_first * requests as f64
            + times.write_next * (self.blocks() - requests.min(self.blocks())) as f64
            + times.flush * self.flushes as f64
    }

    pub(super) fn since(self, before: Cost) -> Cost {
        let (now, then) = (self.journal, before.journal);
        Cost {
            pages: self.pages - before.pages,
            page_requests: self.page_requests - before.page_requests,
            journal: Written {
                journal: now.journal - then.journal,
                home: now.home - then.home,
                home_requests: now.home_requests - then.home_requests,
                checkpoints: now.checkpoints - then.checkpoints,
                deltas: now.deltas - then.deltas,
                delta_bytes: now.delta_bytes - then.delta_bytes,
                requests: now.requests - then.requests,
            },
            commits: self.commits - before.commits,
            flushes: self.flushes - before.flushes,
        }
    }
}
