//! The order in which files become durable: those that are made from blocks of another one before that, and closed versions as they were
//! closed.
//!
//! Invariant: a source's block changes, or is freed, after the files that are made from it are durable without it. Those are never sources
//! themselves, so the order has two ranks and no circle.
//! Locks: called with none held.

use crate::commit::Commit;
use crate::commit::adaptive::AdaptiveStats;
use crate::commit::checkpoint::CheckpointSink;
use crate::commit::durability::Version;
use crate::error::{Error, Posix, Result};
use crate::fs::{Fs, MakeDurable};
use crate::map::inode::{Inode, Scope};
use medfs_format::Ino;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

impl MakeDurable for Commit {
    fn checkpoint(&self, fs: &Fs) -> Result<()> {
        CheckpointSink.now(fs)
    }

    fn checkpointed(&self) {
        self.sink.checkpointed();
        self.durability.checkpointed();
    }

    fn scope(&self) -> Scope {
        self.durability.scope()
    }

    fn is_due(&self, now: Duration) -> bool {
        self.durability.is_due(now)
    }

    fn settle(&self, fs: &Fs) -> Result<()> {
        let due = self.scope() == Scope::Volume
            && self.durability.on_change(fs.clock.monotonic(), fs.pages.dirty_bytes());
        if due { CheckpointSink.now(fs) } else { self.commit_closed(fs) }
    }

    fn whole(&self, fs: &Fs, inode: &Arc<Inode>, pages: &[u64]) -> Result<()> {
        match fs.make_pages_whole(inode, pages) {
            // Freed meanwhile.
            Err(Error::Posix(Posix::Stale)) => Ok(()),
            made => made.and_then(|()| self.sync_file(fs, inode, false).map(drop)),
        }
    }

    fn unshare(&self, fs: &Fs, ino: Ino, pages: Range<u64>) -> Result<()> {
        for dependent in fs.dependents.others(ino, pages.clone()) {
            match fs.inode(dependent.ino) {
                Ok(inode) => {
                    // What an fsync cannot make durable the checkpoint below does.
                    let whole = self.whole(fs, &inode, &dependent.pages);
                    fs.pass_by("a file made from blocks of another is not durable", dependent.ino, whole)?;
                }
                Err(Error::Posix(Posix::Stale)) => {}
                Err(e) if fs.is_damage(&e) => fs.give_up(dependent.ino, &dependent.pages, &e),
                Err(e) => return Err(e),
            }
        }
        if fs.dependents.others_need(ino, pages) {
            // Of files that are gone, or whose last change no fsync has to carry.
            CheckpointSink.now(fs)?;
        }
        Ok(())
    }
}

impl Commit {
    /// What waits to be durable; `None` where nothing is put off.
    pub(crate) fn adaptive_stats(&self, fs: &Fs) -> Option<AdaptiveStats> {
        self.durability.stats(fs.clock.monotonic(), fs.pages.dirty_bytes())
    }

    /// Commits the versions that fsyncs closed. What failed to be committed, and what was closed after it, is kept.
    pub(crate) fn commit_closed(&self, fs: &Fs) -> Result<()> {
        if self.durability.oldest().is_none() {
            return Ok(());
        }
        self.committing.in_turn(|| {
            while let Some(Version { ino, datasync }) = self.durability.oldest() {
                match fs.inode(ino) {
                    Ok(inode) => drop(self.sync_file(fs, &inode, datasync)?),
                    Err(Error::Posix(Posix::Stale)) => {}
                    Err(error) => return Err(error),
                }
                self.durability.committed();
            }
            Ok(())
        })
    }
}
