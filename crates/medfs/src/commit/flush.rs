//! Which flushes an fsync needs: the option `fsync_mode`, in one place.
//!
//! Invariants: rules 2 and 3 of `docs/ARCHITECTURE.md`. The flush before a last node is made in
//! [`crate::commit::group_commit`], where no seal stands for it; what a record in NVRAM rests on is flushed in
//! [`crate::commit::nvram`], in every mode. All others are made here, or by a checkpoint.
//! Locks: none; the device's own are leaves.

use crate::error::Result;
use crate::options::FsyncMode;
use medfs_store::Io;

/// The flushes of an fsync.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FlushPolicy {
    mode: FsyncMode,
}

impl FlushPolicy {
    pub(crate) fn new(mode: FsyncMode) -> FlushPolicy {
        FlushPolicy { mode }
    }

    /// Whether an fsync never shows a name or a directory ahead of what was changed before it: then these
    /// changes are noted, and some of them take a checkpoint.
    pub(crate) fn orders_names(self) -> bool {
        self.mode == FsyncMode::Strict
    }

    /// Whether everything before the last node of an fsync must be durable before that is written. `deltas`:
    /// whether the file has any, as a delta must not be durable before its base, whatever else the mode lets
    /// pass.
    pub(crate) fn before_last_node(self, deltas: impl FnOnce() -> bool) -> bool {
        match self.mode {
            FsyncMode::Strict => true,
            FsyncMode::Posix => deltas(),
            FsyncMode::Nobarrier => false,
        }
    }

    /// Whether a seal may stand for the flush before the last node: not where nothing is flushed after it either.
    pub(crate) fn seals(self) -> bool {
        self.mode != FsyncMode::Nobarrier
    }

    /// After the pages of a file of which no node is due, and after nodes that were left for a later flush; `mark` is
    /// the write mark behind them.
    pub(crate) fn after_pages(self, io: &Io, mark: u64) -> Result<()> {
        if self.mode == FsyncMode::Nobarrier || io.is_durable(mark) { Ok(()) } else { Ok(io.flush()?) }
    }

    /// After the last node.
    pub(crate) fn after_last_node(self, io: &Io) -> Result<()> {
        if self.mode == FsyncMode::Nobarrier { Ok(()) } else { Ok(io.flush()?) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_device::MemDevice;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn each_mode_has_its_flushes() {
        for (mode, plain, deltas, last) in [
            (FsyncMode::Strict, true, true, 1),
            (FsyncMode::Posix, false, true, 1),
            (FsyncMode::Nobarrier, false, false, 0),
        ] {
            let policy = FlushPolicy::new(mode);
            assert_eq!(
                (policy.before_last_node(|| false), policy.before_last_node(|| true)),
                (plain, deltas)
            );
            let io = Io::new(Arc::new(MemDevice::new(8)));
            policy.after_last_node(&io).unwrap();
            assert_eq!(io.counters.flushes.load(Ordering::Relaxed), last, "{mode:?}");
        }
    }
}
