//! Letting a source go: the pages that are made from it become whole, durably, before its block changes or is freed.
//!
//! An operation that meets a source gives its locks back and says so ([`Attempt::Shared`]). What makes changes durable then orders the files
//! ([`MakeDurable::unshare`](crate::fs::MakeDurable::unshare)): nothing here fsyncs.
//! Invariant: while a [`Barrier`] is held no page of its file becomes a source.
//! Locks: called with no lock held, but for the variant of a checkpoint, which has the operation lock exclusively.

use crate::error::{Error, Posix, Result};
use crate::fs::Fs;
use crate::map::inode::{Inode, InodeState};
use crate::map::refs::{Attempt, Barrier};
use crate::stats::Counters;
use medfs_format::Ino;
use std::ops::Range;
use std::sync::Arc;

impl Fs {
    /// Runs an operation until no other file is in its way. Pages that were, once made whole, do not become sources again before it ends.
    pub(crate) fn with_unshared<R>(&self, mut attempt: impl FnMut() -> Result<Attempt<R>>) -> Result<R> {
        let mut barrier = None;
        loop {
            match attempt()? {
                Attempt::Done(result) => return Ok(result),
                Attempt::Shared(ino, pages) => drop(barrier.replace(self.unshare(ino, pages)?)),
                Attempt::Blocked(ino, pages) => drop(barrier.replace(self.unshare_each(ino, &pages)?)),
                Attempt::Again => {}
            }
        }
    }

    /// Makes whole, durably, what other files make of these pages, which do not become sources again while the barrier is held.
    pub(crate) fn unshare(&self, ino: Ino, pages: Range<u64>) -> Result<Barrier<'_>> {
        let barrier = self.dependents.barrier(ino);
        self.commit.unshare(self, ino, pages.clone())?;
        debug_assert!(!self.dependents.others_need(ino, pages));
        Ok(barrier)
    }

    fn unshare_each(&self, ino: Ino, pages: &[u64]) -> Result<Barrier<'_>> {
        let barrier = self.dependents.barrier(ino);
        pages.iter().try_for_each(|&page| self.unshare(ino, page..page + 1).map(drop))?;
        Ok(barrier)
    }

    /// Makes pages whole, in memory, whose sources are to go.
    pub(crate) fn make_pages_whole(&self, inode: &Arc<Inode>, pages: &[u64]) -> Result<()> {
        self.change_settled(inode, |state| self.make_whole_or_give_up(inode, state, pages))?;
        Counters::add(&self.deltas.counters.released, pages.len() as u64);
        Ok(())
    }

    /// The same inside a checkpoint, which makes all of it durable in one go.
    pub(crate) fn release_for_checkpoint(&self, inode: &Inode, pages: &[u64]) -> Result<()> {
        for &page in pages {
            for dependent in self.dependents.others(inode.ino, page..page + 1) {
                let inode = match self.inode(dependent.ino) {
                    Err(e) if self.is_damage(&e) => {
                        self.give_up(dependent.ino, &dependent.pages, &e);
                        continue;
                    }
                    Err(Error::Posix(Posix::Stale)) => continue,
                    inode => inode?,
                };
                self.make_whole_or_give_up(&inode, &mut inode.lock.write(), &dependent.pages)?;
                let (_, outcome) = self.write_all_for_checkpoint(&inode)?;
                self.pass_by("a file made from blocks of another is not written", inode.ino, outcome)?;
            }
        }
        Ok(())
    }

    /// Makes pages whole whose sources are to go. A page that cannot be read is lost already: its record stays, and makes it an error.
    pub(crate) fn make_whole_or_give_up(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: &[u64],
    ) -> Result<()> {
        for &page in pages {
            match self.make_whole(inode, state, page) {
                Err(e) if self.is_damage(&e) => self.give_up(inode.ino, &[page], &e),
                made => made?,
            }
        }
        Ok(())
    }

    /// Pages that cannot be read hold back none of the blocks that they were made from.
    pub(crate) fn give_up(&self, ino: Ino, pages: &[u64], error: &Error) {
        self.note_damage("a page is lost, as a block that it is made from cannot be read", ino, error);
        pages.iter().for_each(|&page| self.dependents.drop_pages(ino, page..page + 1));
    }
}
