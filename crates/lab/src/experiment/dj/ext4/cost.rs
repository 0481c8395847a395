//! What the model of ext4 wrote, and what it takes a device.

use super::super::jbd2::Written;
use crate::model::Times;

/// What was written, and how often the device was asked.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(in super::super) struct Cost {
    /// Pages home by an fsync of ordered mode, and requests for them.
    pub(in super::super) pages: u64,
    pub(in super::super) page_requests: u64,
    /// Of the journal and of what goes home from it.
    pub(in super::super) journal: Written,
    /// Requests of commit blocks.
    pub(in super::super) commits: u64,
    pub(in super::super) flushes: u64,
}

impl Cost {
    pub(in super::super) fn blocks(&self) -> u64 {
        self.pages + self.journal.journal + self.journal.home
    }

    /// Requests that write. A commit block is one of its own.
    pub(in super::super) fn requests(&self) -> u64 {
        self.page_requests + self.journal.requests + self.journal.home_requests + self.commits
    }

    /// Microseconds of a device.
    pub(in super::super) fn time(&self, times: &Times) -> f64 {
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
