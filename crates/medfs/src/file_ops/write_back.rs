//! Writing files back: with room made before each batch, and with files out of the way that are made from others.
//!
//! Content writes a batch and says what waits. What makes room and what makes changes durable are above it,
//! so going on is decided here. An operation that meets a source, a page whose block other pages need, gives
//! its locks back and says so ([`Attempt::Shared`]). What makes changes durable then orders the files
//! ([`MakeDurable::unshare`](crate::file_ops::above::MakeDurable::unshare)): nothing here fsyncs. Invariant:
//! while a [`Freeze`] of a file is held no page of it becomes a source.
//! Locks: called with no lock held, but for the variants of a checkpoint, which has the operation lock exclusively.

use crate::content::away::AwayPages;
use crate::content::placement::Purpose;
use crate::content::writeback::{BATCH, Which, WrittenBatch};
use crate::error::{Error, Posix, Result};
use crate::file_ops::FileOps;
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState, Scope};
use crate::map::refs::{Attempt, Freeze, MOST_MADE_WHOLE};
use crate::stats::Counters;
use medfs_format::Ino;
use std::ops::Range;
use std::sync::Arc;

impl FileOps {
    /// Changes a file while none of its nodes is on its way to the device, as some may be freed: makes room, then takes
    /// `wb`, the operation lock and the inode's lock. `Stale` where the inode is gone. No lock is held before.
    pub(crate) fn change_settled<R>(
        &self,
        inode: &Inode,
        change: impl FnOnce(&mut InodeState) -> Result<R>,
    ) -> Result<R> {
        self.make_room_to_write()?;
        self.change_alone(inode, change)
    }

    /// Writes all dirty pages of an inode, in batches; those that damage keeps from it stay dirty, and the
    /// first error of it is returned.
    pub(crate) fn write_back(&self, inode: &Arc<Inode>) -> Result<()> {
        self.write_back_for(inode, Purpose::Background)
    }

    /// The same, for a purpose.
    pub(crate) fn write_back_for(&self, inode: &Arc<Inode>, purpose: Purpose) -> Result<()> {
        self.write_back_of(inode, purpose, Which::All)
    }

    /// Writes dirty pages of an inode. Where a log has no room left, room is made and the rest written.
    fn write_back_of(&self, inode: &Arc<Inode>, purpose: Purpose, which: Which) -> Result<()> {
        let (mut from, mut first, mut left) = (0, First::default(), None);
        self.with_unshared(|| {
            self.make_room_to_write()?;
            let Some(WrittenBatch { next, blocked, outcome }) =
                self.write_batch(inode, from, purpose, which, &self.xref)?
            else {
                return Ok(Attempt::Done(()));
            };
            match outcome {
                Err(Error::NoSpace) => {
                    self.make_room_again(inode, &mut left)?;
                    return Ok(Attempt::Again);
                }
                Err(e) if !self.is_damage(&e) => return Err(e),
                outcome => first.note(outcome),
            }
            from = blocked.first().copied().unwrap_or(next);
            Ok(if blocked.is_empty() { Attempt::Again } else { Attempt::Blocked(inode.ino, blocked) })
        })?;
        first.result()
    }

    /// After a log had no room for pages of a file: makes some. `left` is how many were dirty when that was
    /// done last; `NoSpace` where it did not help. No lock is held.
    pub(crate) fn make_room_again(&self, inode: &Inode, left: &mut Option<usize>) -> Result<()> {
        let now = inode.lock.read().pages.dirty_len();
        if left.replace(now).is_some_and(|before| before <= now) {
            return Err(Error::NoSpace);
        }
        self.make_room_for(now.min(BATCH) as u64 / 16)
    }

    /// Writes the dirty pages of all files. A file that cannot be written keeps no other from it; the first
    /// error is returned.
    pub(crate) fn write_back_all(&self) -> Result<()> {
        let mut first = First::default();
        for inode in self.inodes.dirty() {
            first.note(self.write_back(&inode));
            if !self.goes_on() {
                break;
            }
        }
        first.result()
    }

    /// Called after a write, with no lock held: keeps dirty pages below half of the cache. Those that records in NVRAM
    /// have leave first: they need not be written.
    pub(crate) fn throttle(&self, inode: &Arc<Inode>) -> Result<()> {
        let limit = self.pages.capacity() / 2;
        if self.pages.in_memory() <= limit {
            return Ok(());
        }
        if self.since.in_nvram.any() {
            self.let_pages_leave(inode, limit / 8 * 7)?;
            if self.pages.in_memory() <= limit {
                return Ok(());
            }
        }
        if self.above.scope == Scope::Volume {
            return self.checkpoint_now();
        }
        self.write_back_of(inode, Purpose::Background, Which::InMemory)?;
        if self.pages.in_memory() > limit {
            // Of other files: they hear of it when they are made durable.
            let written = self.write_back_all();
            self.pass_by("pages of a file stay in memory, as it cannot be written", 0, written)?;
        }
        Ok(())
    }

    /// Lets pages leave, of a file and then of others, until at most so many are in memory.
    fn let_pages_leave(&self, inode: &Arc<Inode>, most: usize) -> Result<()> {
        let first = std::iter::once(inode.clone());
        let others = std::iter::once_with(|| self.inodes.dirty()).flatten();
        for file in first.chain(others) {
            if self.pages.in_memory() <= most {
                break;
            }
            if self.since.in_nvram.holds(file.ino) {
                let left = AwayPages(self).let_leave(&file, &mut file.lock.write(), most);
                self.pass_by(
                    "pages of a file stay in memory, as their blocks cannot be read",
                    file.ino,
                    left,
                )?;
            }
        }
        Ok(())
    }

    /// For a checkpoint, which holds the operation lock exclusively: writes the pages of everything but
    /// regular files, and of those the ones that the checkpoint would lose (see
    /// [`InodeState::with_checkpoint`]). Pages stay dirty whose addresses or clusters cannot be read: the
    /// checkpoint makes these no worse than they are.
    pub(crate) fn write_back_for_checkpoint(&self) -> Result<()> {
        for inode in self.inodes.dirty() {
            if !inode.lock.read().goes_with_checkpoint(inode.kind(), self.above.scope) {
                continue;
            }
            self.write_into_checkpoint(&inode)?;
        }
        Ok(())
    }

    /// Writes the pages of an inode that can be written. What keeps others from it is noted.
    fn write_into_checkpoint(&self, inode: &Arc<Inode>) -> Result<()> {
        let written = self.write_unblocked_for_checkpoint(inode);
        let what = "a checkpoint leaves out pages of a file that cannot be written";
        self.pass_by(what, inode.ino, written).map(drop)
    }

    /// For a checkpoint, before anything of it is written: places pages that are away, or brings them back, as the
    /// checkpoint makes the records void that have them. Where the block of one cannot be read it fails: the next time
    /// that may be possible. After some failures in a row such a page is given up.
    pub(crate) fn place_aways(&self) -> Result<()> {
        if self.pages.away() == 0 {
            return Ok(());
        }
        for inode in self.inodes.dirty() {
            if inode.lock.read().pages.away_len() > 0 {
                self.write_into_checkpoint(&inode)?;
                self.bring_rest_back(&inode)?;
            }
        }
        Ok(())
    }

    fn bring_rest_back(&self, inode: &Arc<Inode>) -> Result<()> {
        let mut state = inode.lock.write();
        let away: Vec<u64> = state.pages.away_pages().collect();
        for index in away {
            match AwayPages(self).bring_back(inode, &mut state, index) {
                Err(error) if self.is_damage(&error) && self.since.in_nvram.is_refused_again() => {
                    self.note_damage("a page is lost, as its block cannot be read", inode.ino, &error);
                    self.forget_pages(inode, &mut state, index, index + 1);
                }
                back => drop(back?),
            }
        }
        Ok(())
    }

    /// Writes the pages of an inode, and before those that others need these others. A page that is placed
    /// may make a delta of another one give way, whose block others need in turn: so it goes on until none is
    /// left, and none becomes a source meanwhile. The checkpoint must not write the inode before that: what a page
    /// was that waits would be lost.
    fn write_unblocked_for_checkpoint(&self, inode: &Arc<Inode>) -> Result<()> {
        let _frozen = self.refs.freeze(inode.ino);
        let mut before = None;
        loop {
            let (blocked, outcome) = self.write_for_checkpoint(inode, &self.xref)?;
            let failed = outcome.as_ref().is_err_and(|e| !self.is_damage(e));
            if blocked.is_empty() || failed {
                return outcome;
            }
            let left = Some((blocked.clone(), self.refs.pages(inode.ino)));
            if before == left {
                debug_assert!(false, "nothing else runs during a checkpoint");
                return Err(Error::ReadOnly);
            }
            before = left;
            self.release_for_checkpoint(inode, &blocked)?;
        }
    }

    /// Runs an operation until no other file is in its way. Pages that were, once made whole, do not become
    /// sources again before it ends.
    pub(crate) fn with_unshared<R>(&self, mut attempt: impl FnMut() -> Result<Attempt<R>>) -> Result<R> {
        let mut frozen = None;
        loop {
            match attempt()? {
                Attempt::Done(result) => return Ok(result),
                Attempt::Shared(ino, pages) => drop(frozen.replace(self.unshare(ino, pages)?)),
                Attempt::Blocked(ino, pages) => drop(frozen.replace(self.unshare_each(ino, &pages)?)),
                Attempt::Again => {}
            }
        }
    }

    /// Makes whole, durably, what other files make of these pages, which do not become sources again while
    /// the file is frozen.
    pub(crate) fn unshare(&self, ino: Ino, pages: Range<u64>) -> Result<Freeze<'_>> {
        let frozen = self.refs.freeze(ino);
        self.above.unshare(ino, pages.clone())?;
        debug_assert!(!self.refs.others_need(ino, pages));
        Ok(frozen)
    }

    fn unshare_each(&self, ino: Ino, pages: &[u64]) -> Result<Freeze<'_>> {
        let frozen = self.refs.freeze(ino);
        pages.iter().try_for_each(|&page| self.unshare(ino, page..page + 1).map(drop))?;
        Ok(frozen)
    }

    /// Makes pages of a file whole, some at a time, that are made from those of a range, until the others can become
    /// whole in one hold of its lock. They are written as soon as they are whole. No page of the file becomes a source
    /// meanwhile.
    pub(crate) fn free_own_in_parts(&self, inode: &Arc<Inode>, pages: &Range<u64>) -> Result<()> {
        while self.refs.many_own(inode.ino, pages) {
            let mut some = self.refs.own_outside(inode.ino, pages);
            some.truncate(MOST_MADE_WHOLE);
            self.make_pages_whole(inode, &some)?;
            if let Some(written) =
                self.write_batch(inode, some[0], Purpose::Background, Which::All, &self.xref)?
            {
                self.pass_by("pages of a file stay in memory", inode.ino, written.outcome)?;
            }
        }
        Ok(())
    }

    /// Makes pages whole whose sources are to go, some at a time: all but the last of these are written.
    pub(crate) fn make_whole_in_parts(&self, inode: &Arc<Inode>, pages: &[u64]) -> Result<()> {
        let mut parts = pages.chunks(MOST_MADE_WHOLE).peekable();
        while let Some(some) = parts.next() {
            self.make_pages_whole(inode, some)?;
            if parts.peek().is_some() {
                self.write_back(inode)?;
            }
        }
        Ok(())
    }

    /// Makes pages whole, in memory, whose sources are to go.
    pub(crate) fn make_pages_whole(&self, inode: &Arc<Inode>, pages: &[u64]) -> Result<()> {
        self.change_settled(inode, |state| self.deltas().make_whole_or_give_up(inode, state, pages))?;
        Counters::add(&self.deltas.counters.released, pages.len() as u64);
        Ok(())
    }

    /// The same inside a checkpoint, which makes all of it durable in one go.
    pub(crate) fn release_for_checkpoint(&self, inode: &Inode, pages: &[u64]) -> Result<()> {
        for &page in pages {
            for dependent in self.refs.others(inode.ino, page..page + 1) {
                let inode = match self.inode(dependent.ino) {
                    Err(e) if self.is_damage(&e) => {
                        self.give_up(dependent.ino, &dependent.pages, &e);
                        continue;
                    }
                    Err(Error::Posix(Posix::Stale)) => continue,
                    inode => inode?,
                };
                for some in dependent.pages.chunks(MOST_MADE_WHOLE) {
                    self.deltas().make_whole_or_give_up(&inode, &mut inode.lock.write(), some)?;
                    let written = self.write_unblocked_for_checkpoint(&inode);
                    self.pass_by("a file made from blocks of another is not written", inode.ino, written)?;
                }
            }
        }
        Ok(())
    }
}
