//! Commits: what makes changes durable together, by the chain of fsynced nodes or by a checkpoint, and what finds them again.
//!
//! One pipeline: [`change_set`] stages what changed, the sinks [`roll_forward_log`] and [`checkpoint`] admit and commit it, [`fsync`] is the
//! way through them; [`durability`] says when it is gone. When the device is flushed is in [`flush`]; which file goes before another one, in `order`.
//!
//! Invariants: those of `docs/ARCHITECTURE.md`, "Four rules".
//! Locks: `cp`, an inode's `wb`, `chain`; see `fs.rs`.

pub(crate) mod adaptive;
pub(crate) mod atomic;
pub(crate) mod change_set;
pub(crate) mod checkpoint;
pub(crate) mod durability;
pub(crate) mod flush;
pub(crate) mod fsync;
pub(crate) mod group_commit;
pub(crate) mod name_journal;
mod order;
pub(crate) mod recovery;
pub(crate) mod roll_forward_log;

use crate::options::{DurabilityMode, MountOptions};
use adaptive::Adaptive;
use change_set::CommitSink;
use checkpoint::CheckpointSink;
use durability::{Committing, Deferred, Durability, Immediate};
use flush::FlushPolicy;
use group_commit::GroupCommit;
use roll_forward_log::RollForwardLog;
use std::sync::Arc;

/// The ways in which changes become durable. A checkpoint takes whatever the sink refuses.
pub(crate) struct Commit {
    pub(crate) log: Arc<RollForwardLog>,
    /// Where changes become durable without a checkpoint.
    sink: Arc<dyn CommitSink>,
    /// When an fsync's changes do.
    durability: Box<dyn Durability>,
    committing: Committing,
}

impl Commit {
    /// As the option `durability` says: POSIX, by the roll-forward log, or the whole volume at once, later, by checkpoints.
    pub(crate) fn new(opts: &MountOptions) -> Commit {
        let log = log(opts);
        match opts.durability {
            DurabilityMode::Posix => Commit::of(log.clone(), log, Box::new(Immediate)),
            DurabilityMode::Adaptive => {
                Commit::of(log, Arc::new(CheckpointSink), Box::new(Adaptive::new(opts.loss)))
            }
        }
    }

    /// The same, through a sink over the log.
    pub(crate) fn through<S: CommitSink + 'static>(
        opts: &MountOptions,
        over: impl FnOnce(Arc<RollForwardLog>) -> S,
    ) -> (Commit, Arc<S>) {
        let log = log(opts);
        let sink = Arc::new(over(log.clone()));
        (Commit::of(log, sink.clone(), Box::new(Immediate)), sink)
    }

    /// By the roll-forward log, later than an fsync returns.
    pub(crate) fn deferring(opts: &MountOptions) -> Commit {
        let log = log(opts);
        Commit::of(log.clone(), log, Box::<Deferred>::default())
    }

    fn of(log: Arc<RollForwardLog>, sink: Arc<dyn CommitSink>, durability: Box<dyn Durability>) -> Commit {
        Commit { log, sink, durability, committing: Committing::default() }
    }
}

fn log(opts: &MountOptions) -> Arc<RollForwardLog> {
    let flush = FlushPolicy::new(opts.fsync_mode);
    Arc::new(RollForwardLog { flush, group: GroupCommit::new(opts.shared_records) })
}
