//! Letting a source go: the pages that are made from it become whole, durably, before its block changes or is freed.
//!
//! Invariant: from [`Fs::release_sources`] until the [`Barrier`] it returns is dropped, no page of the file is a source in
//! the range asked for, nor becomes one.
//! Locks: called with no lock held, but for the variant of a checkpoint, which has the operation lock exclusively.

use crate::error::{Error, Posix, Result};
use crate::fs::Fs;
use crate::map::inode::{Inode, InodeState};
use crate::map::refs::Dependents;
use crate::stats::Counters;
use medfs_format::Ino;
use std::ops::Range;
use std::sync::Arc;

/// Keeps the pages of a file from becoming sources.
pub(crate) struct Barrier<'a> {
    dependents: &'a Dependents,
    ino: Ino,
}

impl Drop for Barrier<'_> {
    fn drop(&mut self) {
        self.dependents.unbar(self.ino);
    }
}

impl Fs {
    /// Makes whole whatever is made from these pages of a file, and durable.
    pub(crate) fn release_sources(&self, inode: &Inode, pages: &[u64]) -> Result<Barrier<'_>> {
        let barrier = self.barrier(inode.ino);
        for &page in pages {
            self.release_range(inode.ino, page..page + 1)?;
        }
        Ok(barrier)
    }

    fn barrier(&self, ino: Ino) -> Barrier<'_> {
        self.dependents.bar(ino);
        Barrier { dependents: &self.dependents, ino }
    }

    /// As [`Fs::release_sources`], for a range.
    pub(crate) fn release_all_sources(&self, inode: &Inode, pages: Range<u64>) -> Result<Barrier<'_>> {
        let barrier = self.barrier(inode.ino);
        self.release_range(inode.ino, pages)?;
        Ok(barrier)
    }

    fn release_range(&self, ino: Ino, pages: Range<u64>) -> Result<()> {
        for dependent in self.dependents.others(ino, pages.clone()) {
            match self.inode(dependent.ino) {
                Ok(inode) => {
                    // What an fsync cannot make durable the checkpoint below does.
                    let whole = self.make_pages_whole(&inode, &dependent.pages);
                    self.pass_by("a file made from blocks of another is not durable", dependent.ino, whole)?;
                }
                Err(Error::Posix(Posix::Stale)) => {}
                Err(e) if self.is_damage(&e) => self.give_up(dependent.ino, &dependent.pages, &e),
                Err(e) => return Err(e),
            }
        }
        if !self.dependents.others(ino, pages.clone()).is_empty() {
            // Of files that are gone, or whose last change no fsync has to carry.
            self.checkpoint_now()?;
        }
        debug_assert!(self.dependents.others(ino, pages).is_empty());
        Ok(())
    }

    pub(crate) fn make_pages_whole(&self, inode: &Arc<Inode>, pages: &[u64]) -> Result<()> {
        let changed = self.change_settled(inode, |state| self.make_whole_or_give_up(inode, state, pages));
        match changed {
            // Freed meanwhile.
            Err(Error::Posix(Posix::Stale)) => return Ok(()),
            changed => changed?,
        }
        Counters::add(&self.deltas.counters.released, pages.len() as u64);
        self.commit.file(self, inode)
    }

    /// The same inside a checkpoint, which makes all of it durable in one go.
    pub(crate) fn release_for_checkpoint(&self, inode: &Inode, pages: &[u64]) -> Result<()> {
        for &page in pages {
            for dependent in self.dependents.others(inode.ino, page..page + 1) {
                let Ok(inode) = self.inode(dependent.ino) else { continue };
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
    fn give_up(&self, ino: Ino, pages: &[u64], error: &Error) {
        self.note_damage("a page is lost, as a block that it is made from cannot be read", ino, error);
        pages.iter().for_each(|&page| self.dependents.drop_pages(ino, page..page + 1));
    }
}
