//! Checkpoints of the whole volume: what is written before the pack, and what is forgotten after it.
//!
//! Steps of [`Fs::checkpoint_now`], with every operation kept out by the operation lock:
//! (1) pages of directories and symbolic links, (2) every dirty node, (3) the pack ([`medfs_store::Store::write_checkpoint`]).
//! Kernel counterpart: `checkpoint.c`.

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::stats::Counters;
use medfs_format::checkpoint::CpFlags;
use medfs_store::{Checkpoint, NodeMarks};
use std::sync::atomic::Ordering;

impl Fs {
    /// Writes everything back and makes a checkpoint. Where some file cannot be written, everything else is.
    pub(crate) fn sync(&self) -> Result<()> {
        let written = self.write_back_all();
        let committed = self.checkpoint_now();
        written.and(committed)
    }

    /// Makes everything but the dirty pages of regular files durable. Takes `cp` and the operation lock.
    /// Calls that wait for a running checkpoint are served by one that starts after they came.
    pub(crate) fn checkpoint_now(&self) -> Result<()> {
        self.checkpoint(false)
    }

    /// The checkpoint of an unmount: afterwards there is nothing to recover.
    pub(crate) fn checkpoint_for_unmount(&self) -> Result<()> {
        self.checkpoint(true)
    }

    fn checkpoint(&self, unmount: bool) -> Result<()> {
        let before = self.counters.checkpoints.load(Ordering::Acquire);
        let mut cp = self.cp.lock();
        // Two checkpoints ended while this call waited: the later one started after it came.
        if !unmount && self.counters.checkpoints.load(Ordering::Acquire) >= before + 2 {
            return Ok(());
        }
        let _ops = self.ops.write();
        self.check_writable()?;
        let done_already = !unmount || cp.header.flags().contains(CpFlags::UMOUNT);
        if done_already && !self.has_changes() {
            // Pages that were overwritten in place leave nothing else to write.
            return if self.io.is_durable(self.io.write_mark()) { Ok(()) } else { Ok(self.io.flush()?) };
        }
        let result = self.write_content().and_then(|()| self.commit(&mut cp, unmount));
        match &result {
            // Pages and nodes that had a place are where they are said to be, and the last checkpoint counts as before.
            Ok(()) | Err(Error::NoSpace) => {}
            // Half a checkpoint must not be followed by writes that build on it.
            Err(error) => self.io.stop_writing(&format!("a checkpoint failed: {error}")),
        }
        result
    }

    /// Writes what the pack will name: pages of what is no regular file, and every dirty node.
    fn write_content(&self) -> Result<()> {
        self.write_back_for_checkpoint()?;
        self.save_registry()?;
        let nodes = self.nodes.take_all_dirty();
        let written = self.write_in_order(&nodes, NodeMarks::default());
        if written.is_err() {
            // Those that had a place too: without the mark of an fsync nothing but a checkpoint makes them count.
            nodes.iter().for_each(|(page, _)| self.nodes.mark(page));
        }
        Ok(written?)
    }

    fn commit(&self, cp: &mut Checkpoint, unmount: bool) -> Result<()> {
        let freed = self.store.write_checkpoint(cp, &self.orphans.list(), unmount)?;
        self.since.committed();
        self.dir_log.committed();
        self.dependents.committed();
        *self.last_checkpoint_at.lock() = self.clock.monotonic();
        Counters::add(&self.counters.checkpoints, 1);
        if self.opts.discard {
            self.store.discard(freed)?;
        }
        Ok(())
    }
}
