//! Operations that change the volume: the lock they share, and whether they may.
//!
//! Invariants: a checkpoint is made between operations, never within one. An operation that panics ends
//! writing before its lock is free. What changes the node tree of a file is within an operation of its thread,
//! or within the checkpoint: a build with debug assertions panics where it is not
//! ([`Ops::check_within`](crate::map::ops::Ops::check_within)).

use crate::error::{Error, Result};
use crate::map::Map;
use crate::map::effects::OpLog;
use crate::map::ops::Shared;
use medfs_store::Io;
use std::sync::atomic::Ordering;

/// Proof that a changing operation holds the operation lock.
pub(crate) struct Op<'a> {
    _shared: Shared<'a>,
    io: &'a Io,
    log: Option<&'a dyn OpLog>,
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        // Before the lock is free: no checkpoint makes durable what the operation left half done.
        if std::thread::panicking() {
            self.io.stop_writing("an operation panicked");
        }
        if let Some(log) = self.log {
            log.ends();
        }
    }
}

impl Map {
    /// Takes the operation lock alone, for callers that made room before taking their first lock.
    pub(crate) fn op(&self) -> Result<Op<'_>> {
        let op = Op { _shared: self.ops.shared(), io: &self.io, log: self.effects.log() };
        if let Some(log) = op.log {
            log.begins();
        }
        self.check_writable()?;
        Ok(op)
    }

    /// `ReadOnly` where the volume is, from the start or since a failure.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only || self.io.failed() || self.closed.load(Ordering::Acquire)
    }

    /// Whether a checkpoint would write anything.
    pub(crate) fn has_changes(&self) -> bool {
        self.nodes.any_dirty() || self.has_more_than_nodes()
    }

    /// Whether a checkpoint would write anything that must be durable when the commit interval has passed.
    pub(crate) fn has_changes_to_commit(&self) -> bool {
        self.nodes.any_to_commit() || self.has_more_than_nodes()
    }

    fn has_more_than_nodes(&self) -> bool {
        self.nat.dirty_count() > 0
            || self.segs.lock().dirty_sit_count() > 0
            || self.inodes.any_dirty()
            || self.since.in_nvram.any()
    }
}
