//! Commits: what makes changes durable together, by the chain of fsynced nodes or by a checkpoint, and what finds them again.
//!
//! One pipeline: [`change_set`] stages what changed, the sinks [`roll_forward_log`] and [`checkpoint`] admit and commit it, [`fsync`] is the
//! way through them. When the device is flushed is in [`flush`]; which file goes before another one, in `order`.
//!
//! Invariants: those of `docs/ARCHITECTURE.md`, "Four rules".
//! Locks: `cp`, an inode's `wb`, `chain`; see `fs.rs`.

pub(crate) mod atomic;
pub(crate) mod change_set;
pub(crate) mod checkpoint;
pub(crate) mod flush;
pub(crate) mod fsync;
pub(crate) mod group_commit;
pub(crate) mod name_journal;
mod order;
pub(crate) mod recovery;
pub(crate) mod roll_forward_log;

use crate::options::MountOptions;
use flush::FlushPolicy;
use group_commit::GroupCommit;
use roll_forward_log::RollForwardLog;

/// The ways in which changes become durable. A checkpoint takes whatever the log refuses.
pub(crate) struct Commit {
    pub(crate) log: RollForwardLog,
}

impl Commit {
    pub(crate) fn new(opts: &MountOptions) -> Commit {
        let flush = FlushPolicy::new(opts.fsync_mode);
        Commit { log: RollForwardLog { flush, group: GroupCommit::new(opts.shared_records) } }
    }
}
