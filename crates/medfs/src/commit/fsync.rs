//! fsync: the one way by which files become durable.
//!
//! Order of what it asks: names ([`NameJournal`]), then the file is staged, the roll-forward log admits it or the checkpoint gets it, the
//! sink commits, and what has to wait for other files or for room is tried again.
//!
//! The order in which files become durable: those that are made from blocks of another one before that, and closed versions as they were
//! closed. Invariant: a source's block changes, or is freed, after the files that are made from it are durable without it. Those are never
//! sources themselves, so the order has two ranks and no circle.
//! Locks: called with none held; see [`crate::commit::change_set`].
//! Kernel counterpart: `f2fs_do_sync_file`.

use crate::commit::Commit;
use crate::commit::adaptive::AdaptiveStats;
use crate::commit::change_set::Naming;
use crate::commit::change_set::{ChangeSet, CommitSink, NeedsCheckpoint, Outcome, Request};
use crate::commit::checkpoint::CheckpointSink;
use crate::commit::durability::{Room, SyncPlan, Version};
use crate::commit::name_journal::{DirNames, NameJournal};
use crate::content::placement::Purpose;
use crate::error::{Error, Posix, Result};
use crate::fs::{Fs, MakeDurable};
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState, Scope};
use crate::map::refs::Attempt;
use crate::stats::Counters;
use medfs_format::Ino;
use medfs_format::node::FileFlags;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// Most files of [`Commit::fsync_many`] that are made durable by one flush: their writeback waits for each other.
const MOST_TOGETHER: usize = 64;

/// This part of a volume is left to cleaning where fsyncs are put off.
const PART_FOR_CLEANING: u64 = 32;

/// What is done about a file that the roll-forward log does not take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    Checkpoint,
    Tell,
}

impl Commit {
    /// Makes a file durable when the policy says so: everything where `datasync` is not set, otherwise all but times.
    pub(crate) fn fsync(&self, fs: &Fs, ino: Ino, datasync: bool) -> Result<()> {
        match self.durability.on_fsync(Version { ino, datasync }, self.room(fs)) {
            SyncPlan::Now => self.sync(fs, ino, datasync),
            SyncPlan::Later => {
                fs.inode(ino)?;
                // What was put off before can no longer be kept.
                if fs.read_only { Ok(()) } else { fs.check_writable() }
            }
        }
    }

    /// Whether what is put off is sure to find room: three times its blocks (what was durable stays until it is, and nodes come with it),
    /// and a part of the volume for cleaning.
    fn room(&self, fs: &Fs) -> Room {
        if self.durability.scope() == Scope::File {
            return Room::Enough;
        }
        let counts = fs.space.counts();
        let wanted = 3 * fs.pages.dirty() as u64 + counts.user_blocks / PART_FOR_CLEANING;
        if counts.free() < wanted { Room::Tight } else { Room::Enough }
    }

    /// The same at once.
    pub(crate) fn sync(&self, fs: &Fs, ino: Ino, datasync: bool) -> Result<()> {
        let inode = fs.inode(ino)?;
        let least = Purpose::Fsync { datasync }.least_to_write();
        let dirty = !inode.lock.read().dirty.is_empty() || fs.nodes.dirtiness_of(ino) >= least;
        if self.sync_file(fs, &inode, datasync)? && dirty {
            Counters::add(&fs.counters.fsyncs_dirty, 1);
        }
        Ok(())
    }

    /// The same of a file in memory. `false`: a directory that roll-forward brings back as it is.
    pub(crate) fn sync_file(&self, fs: &Fs, inode: &Arc<Inode>, datasync: bool) -> Result<bool> {
        Counters::add(&fs.counters.fsyncs, 1);
        if fs.read_only {
            return Ok(true);
        }
        before_sync(fs)?;
        if self.durability.scope() == Scope::Volume {
            Counters::add(&fs.counters.fsyncs_with_checkpoint, 1);
            return CheckpointSink.now(fs).map(|()| true);
        }
        let names = NameJournal { fs, commit: self };
        if inode.is_dir() {
            let found = names.of_dir(inode)?;
            if found != DirNames::NeedsCheckpoint {
                Counters::add(&fs.counters.dir_fsyncs_saved, 1);
                return Ok(found == DirNames::Recorded);
            }
        }
        let request = Request { inode, purpose: Purpose::Fsync { datasync }, naming: names.of_file(inode)? };
        let Some(reason) = self.one(fs, request, |_| Ok(()))? else { return Ok(true) };
        tracing::debug!(ino = inode.ino, ?reason, "fsync by checkpoint");
        Counters::add(&fs.counters.fsyncs_with_checkpoint, 1);
        if reason == NeedsCheckpoint::NotRegular && !inode.lock.read().dirty.is_empty() {
            // The checkpoint left something of it out: this tells why, or writes it for the next one.
            fs.write_back(inode)?;
            fs.checkpoint_now()?;
        }
        if reason == NeedsCheckpoint::NamesChanged {
            names.find_lost_parent(inode)?;
        }
        Ok(true)
    }

    /// Makes files durable, those together that need neither another name nor a checkpoint.
    pub(crate) fn fsync_many(&self, fs: &Fs, files: &[Ino], datasync: bool) -> Result<()> {
        let files: BTreeSet<Ino> = files.iter().copied().collect();
        let mut inodes = files.into_iter().map(|ino| fs.inode(ino)).collect::<Result<Vec<_>>>()?;
        let room = self.room(fs);
        let version = |inode: &Arc<Inode>| Version { ino: inode.ino, datasync };
        inodes.retain(|inode| self.durability.on_fsync(version(inode), room) == SyncPlan::Now);
        if self.durability.scope() == Scope::Volume {
            return inodes.first().map_or(Ok(()), |inode| self.sync_file(fs, inode, datasync).map(drop));
        }
        let mut first = First::default();
        for some in inodes.chunks(MOST_TOGETHER) {
            for inode in self.together(fs, some, Purpose::Fsync { datasync }, &mut first)? {
                first.note(self.sync_file(fs, &inode, datasync).map(drop));
            }
        }
        first.result()
    }

    /// Makes those of some files durable, sorted by number, that the log takes in one set as they are; returns the others. Errors of
    /// single files are noted.
    fn together(
        &self,
        fs: &Fs,
        inodes: &[Arc<Inode>],
        purpose: Purpose,
        first: &mut First,
    ) -> Result<Vec<Arc<Inode>>> {
        if fs.read_only {
            return Ok(Vec::new());
        }
        before_sync(fs)?;
        let names = NameJournal { fs, commit: self };
        let (plain, others): (Vec<_>, Vec<_>) = inodes.iter().partition(|inode| names.is_plain(inode));
        let mut others: Vec<Arc<Inode>> = others.into_iter().cloned().collect();
        let request = |inode| Request { inode, purpose, naming: Naming::AsItWas };
        let requests: Vec<Request<'_>> = plain.into_iter().map(request).collect();
        let (mut set, failed) = ChangeSet::of_files(fs, &requests)?;
        failed.into_iter().for_each(|error| first.note(Err(error)));
        set.ask(fs, &*self.sink);
        let committed: Vec<&Arc<Inode>> = set.files.iter().map(|file| file.inode).collect();
        for (inode, outcome) in committed.into_iter().zip(self.sink.commit(fs, set)?) {
            match outcome {
                Ok(Outcome::Durable) => Counters::add(&fs.counters.fsyncs, 1),
                Ok(Outcome::Refused(_) | Outcome::Blocked(_)) | Err(Error::NoSpace) => {
                    others.push(inode.clone());
                }
                Err(error) => first.note(Err(error)),
            }
        }
        Ok(others)
    }

    /// Makes a file durable, by a checkpoint where the log does not take it: then the reason is returned. `change` changes the file first,
    /// in the moment in which it is staged; where that fails nothing was done.
    pub(crate) fn one(
        &self,
        fs: &Fs,
        request: Request<'_>,
        change: impl FnOnce(&mut InodeState) -> Result<()>,
    ) -> Result<Option<NeedsCheckpoint>> {
        self.commit(fs, request, change, Refused::Checkpoint)
    }

    /// Makes a file durable by the log; the reason where that does not take it.
    pub(crate) fn by_log(&self, fs: &Fs, request: Request<'_>) -> Result<Option<NeedsCheckpoint>> {
        self.commit(fs, request, |_| Ok(()), Refused::Tell)
    }

    /// The pipeline: stage, admit, commit; again after other files were made durable that need its blocks as they are, or room was made.
    fn commit(
        &self,
        fs: &Fs,
        request: Request<'_>,
        change: impl FnOnce(&mut InodeState) -> Result<()>,
        refused: Refused,
    ) -> Result<Option<NeedsCheckpoint>> {
        let inode = request.inode;
        let (mut change, mut left) = (Some(change), None);
        fs.with_unshared(|| {
            let change = |state: &mut InodeState| change.take().map_or(Ok(()), |change| change(state));
            let mut set = ChangeSet::of_file(fs, request, change)?;
            set.ask(fs, &*self.sink);
            let reason = set.files.iter().find_map(|file| file.refused);
            let outcome = match (reason, refused) {
                (None, _) => only(self.sink.commit(fs, set)),
                (Some(reason), Refused::Tell) => return Ok(Attempt::Done(Some(reason))),
                (Some(_), Refused::Checkpoint) => only(CheckpointSink.commit(fs, set)),
            };
            match outcome {
                Ok(Outcome::Durable) => Ok(Attempt::Done(reason)),
                Ok(Outcome::Refused(reason)) => {
                    if refused == Refused::Checkpoint {
                        fs.checkpoint_now()?;
                    }
                    Ok(Attempt::Done(Some(reason)))
                }
                Ok(Outcome::Blocked(pages)) => Ok(Attempt::Blocked(inode.ino, pages)),
                // A checkpoint writes what is left of it in one go.
                Err(Error::NoSpace) if request.purpose == Purpose::Atomic => {
                    fs.checkpoint_now()?;
                    Ok(Attempt::Done(Some(NeedsCheckpoint::NoRoom)))
                }
                Err(Error::NoSpace) => {
                    fs.make_room_again(inode, &mut left)?;
                    fs.write_back_for(inode, request.purpose)?;
                    Ok(Attempt::Again)
                }
                Err(e) => Err(e),
            }
        })
    }

    /// Makes a file durable that was just written to, where it is to be written synchronously: the flag SYNC (`chattr +S`) and the mount
    /// option `sync`. The kernel's counterpart is `generic_write_sync`.
    pub(crate) fn sync_written(&self, fs: &Fs, ino: Ino) -> Result<()> {
        if fs.opts.sync || fs.inode(ino)?.has_flags(FileFlags::SYNC) {
            self.sync(fs, ino, false)
        } else {
            Ok(())
        }
    }

    /// Makes the names in directories durable that were just changed, where those are to change synchronously: the flags SYNC and DIRSYNC
    /// (`chattr +D`), and the mount options `sync` and `dirsync`. The kernel's counterpart are the `IS_DIRSYNC` checks of `namei.c`.
    pub(crate) fn sync_names(&self, fs: &Fs, dirs: &[Ino]) -> Result<()> {
        let all = fs.opts.sync || fs.opts.dirsync;
        for &dir in dirs {
            if all || fs.inode(dir)?.has_flags(FileFlags::SYNC | FileFlags::DIRSYNC) {
                self.sync(fs, dir, false)?;
            }
        }
        Ok(())
    }
}

impl MakeDurable for Commit {
    fn checkpoint(&self, fs: &Fs) -> Result<()> {
        CheckpointSink.now(fs)
    }

    fn checkpointed(&self, fs: &Fs) {
        self.sink.checkpointed(fs);
        self.durability.checkpointed();
    }

    fn scope(&self) -> Scope {
        self.durability.scope()
    }

    fn is_due(&self, now: Duration) -> bool {
        self.durability.is_due(now) || self.nvram.as_ref().is_some_and(|nvram| nvram.is_due(now))
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

/// What an fsync needs before its first lock.
fn before_sync(fs: &Fs) -> Result<()> {
    fs.check_writable()?;
    fs.make_room()?;
    fs.make_hidden_files()?;
    fs.release_bases()
}

/// What became of the one file of a set.
fn only(outcomes: Result<Vec<Result<Outcome>>>) -> Result<Outcome> {
    outcomes?.pop().unwrap_or(Ok(Outcome::Durable))
}
