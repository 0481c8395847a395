//! Commits: what makes changes durable together, by the chain of fsynced nodes or by a checkpoint, and what finds them again.
//!
//! One pipeline: [`change_set`] stages what changed, the sinks [`nvram`], [`roll_forward_log`] and [`checkpoint`] admit and commit it, [`fsync`] is the
//! way through them; [`durability`] says when it is gone. When the device is flushed is in [`flush`].
//!
//! Invariants: those of `docs/ARCHITECTURE.md`, "Four rules".
//! Locks: `cp`, an inode's `wb`, `chain`; see `fs/mod.rs`.

pub(crate) mod adaptive;
pub(crate) mod atomic;
pub(crate) mod change_set;
pub(crate) mod checkpoint;
pub(crate) mod durability;
pub(crate) mod flush;
pub(crate) mod fsync;
pub(crate) mod group_commit;
pub(crate) mod name_journal;
pub(crate) mod nvram;
pub(crate) mod recovery;
pub(crate) mod roll_forward_log;

use crate::error::{Error, Result};
use crate::map::Map;
use crate::options::{DurabilityMode, MountOptions};
use adaptive::Adaptive;
use change_set::CommitSink;
use checkpoint::CheckpointSink;
use durability::{Committing, Deferred, Durability, Immediate};
use flush::FlushPolicy;
use group_commit::GroupCommit;
use medfs_device::Nvram;
use nvram::NvramJournal;
use roll_forward_log::RollForwardLog;
use std::sync::Arc;

/// The ways in which changes become durable. A checkpoint takes whatever the sink refuses.
pub(crate) struct Commit {
    pub(crate) log: Arc<RollForwardLog>,
    /// Where changes become durable without a checkpoint.
    sink: Arc<dyn CommitSink>,
    /// The one of them that is a journal in NVRAM.
    pub(crate) nvram: Option<Arc<NvramJournal>>,
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

    /// By a journal in NVRAM, over the roll-forward log.
    pub(crate) fn with_nvram(opts: &MountOptions, memory: Arc<dyn Nvram>) -> Commit {
        let log = log(opts);
        let nvram = Arc::new(NvramJournal::new(log.clone(), memory, opts.nvram_threshold));
        Commit { nvram: Some(nvram.clone()), ..Commit::of(log, nvram, Box::new(Immediate)) }
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

    /// After a mount that may write has brought back what there was: begins a journal in NVRAM where there is one. Where there is none, the
    /// superblock names none.
    pub(crate) fn begin_nvram(&self, map: &Map) -> Result<()> {
        match &self.nvram {
            Some(_) if !map.is_delta_volume() => Err(Error::Invalid(
                "nvram= needs a volume with deltas, as F2FS's drivers would not ask for the NVRAM: `medfs import` makes it one".into(),
            )),
            Some(nvram) => nvram.begin(map),
            None if map.sb.nvram_in_use().is_some() => Ok(map.set_nvram(None)?),
            None => Ok(()),
        }
    }

    /// After the checkpoint of an unmount: the volume needs no NVRAM.
    pub(crate) fn end_nvram(&self, map: &Map) -> Result<()> {
        self.nvram.as_ref().map_or(Ok(()), |nvram| nvram.end(map))
    }

    fn of(log: Arc<RollForwardLog>, sink: Arc<dyn CommitSink>, durability: Box<dyn Durability>) -> Commit {
        Commit { log, sink, nvram: None, durability, committing: Committing::default() }
    }
}

fn log(opts: &MountOptions) -> Arc<RollForwardLog> {
    let flush = FlushPolicy::new(opts.fsync_mode);
    Arc::new(RollForwardLog { flush, group: GroupCommit::new(opts.shared_records) })
}
