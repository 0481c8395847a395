//! fsync: the one way by which files become durable.
//!
//! Order of what it asks: names ([`NameJudge`]), then the file is staged, the roll-forward log admits it or
//! the checkpoint gets it, the sink commits, and what has to wait for other files or for room is tried again.
//!
//! The order in which files become durable: those that are made from blocks of another one before that, and
//! closed versions as they were closed. Invariant: a source's block changes, or is freed, after the files
//! that are made from it are durable without it. Those are never sources themselves, so the order has two
//! ranks and no circle.
//! Locks: called with none held; see [`crate::commit::change_set`].
//! Kernel counterpart: `f2fs_do_sync_file`.

use crate::commit::Commit;
use crate::commit::adaptive::AdaptiveStats;
use crate::commit::change_set::Naming;
use crate::commit::change_set::{ChangeSet, CommitSink, NeedsCheckpoint, Outcome, Request};
use crate::commit::checkpoint::CheckpointSink;
use crate::commit::chooser::PageCounts;
use crate::commit::durability::{Fsync, Room, SyncPlan};
use crate::commit::recoverable_names::{DirNames, NameJudge};
use crate::commit::survivor::SurvivorStats;
use crate::content::placement::Purpose;
use crate::error::{Error, Posix, Result};
use crate::file_ops::above::MakeDurable;
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState, Scope};
use crate::map::refs::Attempt;
use crate::options::DurabilityMode;
use crate::stats::Counters;
use crate::tree::Tree;
use crate::tree::durability::OwnDurability;
use medfs_format::Ino;
use medfs_format::node::FileFlags;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Most files of [`Commit::fsync_many`] that are made durable by one flush: their writeback waits for each other.
const MOST_TOGETHER: usize = 64;

/// Time between looks of the timer, where nothing is due earlier.
const BACKGROUND: Duration = Duration::from_secs(1);

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
    pub(crate) fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        match self.plan(ino, datasync, self.room()) {
            SyncPlan::Now => self.sync(ino, datasync),
            SyncPlan::WithApp(app) => {
                Counters::add(&self.counters.fsyncs, 1);
                self.inode(ino)?;
                before_sync(self)?;
                if self.commit_app(app)? { Ok(()) } else { self.sync(ino, datasync) }
            }
            SyncPlan::Later => {
                self.inode(ino)?;
                // What was put off before can no longer be kept.
                if self.read_only { Ok(()) } else { self.check_writable() }
            }
        }
    }

    fn plan(&self, ino: Ino, datasync: bool, room: Room) -> SyncPlan {
        if self.opts.sync || self.low_power.load(Ordering::Acquire) || self.is_never_put_off(ino) {
            return SyncPlan::Now;
        }
        self.count_changes();
        let fsync = Fsync { ino, datasync, app: self.app_of(ino) };
        self.ways.durability.on_fsync(fsync, room, self.page_counts().dirty_bytes())
    }

    /// When an fsync of a file makes it durable, and whether the file itself says so. On a mount that puts nothing off
    /// no file does.
    pub(crate) fn durability_of(&self, ino: Ino) -> Result<(DurabilityMode, bool)> {
        let inode = self.inode(ino)?;
        if self.ways.scope() == Scope::File {
            return Ok((DurabilityMode::Posix, false));
        }
        let _state = inode.lock.read();
        let own = OwnDurability { map: self, inode: &inode }.says()?;
        Ok((own.unwrap_or(DurabilityMode::Adaptive), own.is_some()))
    }

    /// Whether the fsyncs of a file are not put off, or it cannot be asked. Such an fsync commits the whole volume: a
    /// file that is durable alone would be ahead of what others did before.
    fn is_never_put_off(&self, ino: Ino) -> bool {
        let by_file = || self.durability_of(ino).map_or(DurabilityMode::Posix, |(mode, _)| mode);
        self.ways.scope() == Scope::Volume && by_file() == DurabilityMode::Posix
    }

    /// Whether what is put off is sure to find room: three times its blocks (what was durable stays until it
    /// is, and nodes come with it), and a part of the volume for cleaning.
    fn room(&self) -> Room {
        if self.ways.durability.scope() == Scope::File {
            return Room::Enough;
        }
        let counts = self.space.counts();
        let wanted = 3 * self.pages.dirty() as u64 + counts.user_blocks / PART_FOR_CLEANING;
        if counts.free() < wanted { Room::Tight } else { Room::Enough }
    }

    /// The same at once.
    pub(crate) fn sync(&self, ino: Ino, datasync: bool) -> Result<()> {
        let inode = self.inode(ino)?;
        let least = Purpose::Fsync { datasync }.least_to_write();
        let dirty = inode.lock.read().pages.any_dirty() || self.nodes.dirtiness_of(ino) >= least;
        if self.sync_file(&inode, datasync)? && dirty {
            Counters::add(&self.counters.fsyncs_dirty, 1);
        }
        Ok(())
    }

    /// The same of a file in memory. `false`: a directory that roll-forward brings back as it is.
    pub(crate) fn sync_file(&self, inode: &Arc<Inode>, datasync: bool) -> Result<bool> {
        Counters::add(&self.counters.fsyncs, 1);
        if self.read_only {
            return Ok(true);
        }
        before_sync(self)?;
        if self.ways.durability.scope() == Scope::Volume {
            Counters::add(&self.counters.fsyncs_with_checkpoint, 1);
            return CheckpointSink.now(self).map(|()| true);
        }
        let made = self.sync_with_names(inode, datasync);
        // Whatever came of it: what was left to a flush behind it counts as durable.
        self.flush_left()?;
        made
    }

    /// The same; what it says of other files' names is durable after [`Commit::flush_left`].
    fn sync_with_names(&self, inode: &Arc<Inode>, datasync: bool) -> Result<bool> {
        let names = NameJudge { commit: self };
        if inode.is_dir() {
            let found = names.of_dir(inode)?;
            if found != DirNames::NeedsCheckpoint {
                Counters::add(&self.counters.dir_fsyncs_saved, 1);
                return Ok(found == DirNames::Recorded);
            }
        }
        let request = Request { inode, purpose: Purpose::Fsync { datasync }, naming: names.of_file(inode)? };
        let Some(reason) = self.one(request, |_| Ok(()))? else { return Ok(true) };
        tracing::debug!(ino = inode.ino, ?reason, "fsync by checkpoint");
        Counters::add(&self.counters.fsyncs_with_checkpoint, 1);
        if reason == NeedsCheckpoint::NotRegular && inode.lock.read().pages.any_dirty() {
            // The checkpoint left something of it out: this tells why, or writes it for the next one.
            self.write_back(inode)?;
            self.checkpoint_now()?;
        }
        if reason == NeedsCheckpoint::NamesChanged {
            names.find_lost_parent(inode)?;
        }
        Ok(true)
    }

    /// Makes files durable, those together that need neither another name nor a checkpoint.
    pub(crate) fn fsync_many(&self, files: &[Ino], datasync: bool) -> Result<()> {
        let files: BTreeSet<Ino> = files.iter().copied().collect();
        let mut inodes = files.into_iter().map(|ino| self.inode(ino)).collect::<Result<Vec<_>>>()?;
        let room = self.room();
        let all = inodes.len();
        inodes.retain(|inode| self.plan(inode.ino, datasync, room) != SyncPlan::Later);
        if inodes.len() < all && !self.read_only {
            // What was put off cannot be kept after a failure, which no later call would tell.
            self.check_writable()?;
        }
        if self.ways.durability.scope() == Scope::Volume {
            return inodes.first().map_or(Ok(()), |inode| self.sync_file(inode, datasync).map(drop));
        }
        let mut first = First::default();
        for some in inodes.chunks(MOST_TOGETHER) {
            for inode in self.together(some, Purpose::Fsync { datasync }, &mut first)? {
                first.note(self.sync_file(&inode, datasync).map(drop));
            }
        }
        first.note(self.flush_left());
        first.result()
    }

    /// Makes those of some files durable, sorted by number, that the log takes in one set as they are;
    /// returns the others. Errors of single files are noted.
    fn together(
        &self,
        inodes: &[Arc<Inode>],
        purpose: Purpose,
        first: &mut First,
    ) -> Result<Vec<Arc<Inode>>> {
        if self.read_only {
            return Ok(Vec::new());
        }
        before_sync(self)?;
        let names = NameJudge { commit: self };
        let (plain, others): (Vec<_>, Vec<_>) = inodes.iter().partition(|inode| names.is_plain(inode));
        let mut others: Vec<Arc<Inode>> = others.into_iter().cloned().collect();
        let request = |inode| Request { inode, purpose, naming: Naming::AsItWas };
        let requests: Vec<Request<'_>> = plain.into_iter().map(request).collect();
        let (mut set, failed) = ChangeSet::of_files(self, &requests)?;
        failed.into_iter().for_each(|error| first.note(Err(error)));
        set.ask(self, &*self.ways.sink);
        let committed: Vec<&Arc<Inode>> = set.files.iter().map(|file| file.inode).collect();
        for (inode, outcome) in committed.into_iter().zip(self.ways.sink.commit(self, set)?) {
            match outcome {
                Ok(Outcome::Durable) => Counters::add(&self.counters.fsyncs, 1),
                Ok(Outcome::Refused(_) | Outcome::Blocked(_)) | Err(Error::NoSpace) => {
                    others.push(inode.clone());
                }
                Err(error) => first.note(Err(error)),
            }
        }
        Ok(others)
    }

    /// Makes a file durable, by a checkpoint where the log does not take it: then the reason is returned.
    /// `change` changes the file first, in the moment in which it is staged; where that fails nothing was
    /// done.
    pub(crate) fn one(
        &self,
        request: Request<'_>,
        change: impl FnOnce(&mut InodeState) -> Result<()>,
    ) -> Result<Option<NeedsCheckpoint>> {
        self.commit(request, change, Refused::Checkpoint)
    }

    /// Waits for the flush of nodes that were written for a later one, by this thread or another.
    fn flush_left(&self) -> Result<()> {
        self.ways.log.flush_left(&self.io)
    }

    /// Writes a file to the log, in front of what is fsynced: [`Commit::flush_left`] makes it durable. The reason
    /// where the log does not take it.
    pub(crate) fn by_log(&self, request: Request<'_>) -> Result<Option<NeedsCheckpoint>> {
        self.commit(request, |_| Ok(()), Refused::Tell)
    }

    /// The pipeline: stage, admit, commit; again after other files were made durable that need its blocks as
    /// they are, or room was made.
    fn commit(
        &self,
        request: Request<'_>,
        change: impl FnOnce(&mut InodeState) -> Result<()>,
        refused: Refused,
    ) -> Result<Option<NeedsCheckpoint>> {
        let inode = request.inode;
        let (mut change, mut left) = (Some(change), None);
        self.with_unshared(|| {
            let change = |state: &mut InodeState| change.take().map_or(Ok(()), |change| change(state));
            let mut set = ChangeSet::of_file(self, request, change)?;
            set.flushed_later = refused == Refused::Tell;
            set.ask(self, &*self.ways.sink);
            let reason = set.files.iter().find_map(|file| file.refused);
            let outcome = match (reason, refused) {
                (None, _) => only(self.ways.sink.commit(self, set)),
                (Some(reason), Refused::Tell) => return Ok(Attempt::Done(Some(reason))),
                (Some(_), Refused::Checkpoint) => only(CheckpointSink.commit(self, set)),
            };
            match outcome {
                Ok(Outcome::Durable) => Ok(Attempt::Done(reason)),
                Ok(Outcome::Refused(reason)) => {
                    if refused == Refused::Checkpoint {
                        self.checkpoint_now()?;
                    }
                    Ok(Attempt::Done(Some(reason)))
                }
                Ok(Outcome::Blocked(pages)) => Ok(Attempt::Blocked(inode.ino, pages)),
                // A checkpoint writes what is left of it in one go.
                Err(Error::NoSpace) if request.purpose == Purpose::Atomic => {
                    self.checkpoint_now()?;
                    Ok(Attempt::Done(Some(NeedsCheckpoint::NoRoom)))
                }
                Err(Error::NoSpace) => {
                    self.make_room_again(inode, &mut left)?;
                    self.write_back_for(inode, request.purpose)?;
                    Ok(Attempt::Again)
                }
                Err(e) => Err(e),
            }
        })
    }

    /// Makes a file durable that was just written to, where it is to be written synchronously: the flag SYNC
    /// (`chattr +S`) and the mount option `sync`. The kernel's counterpart is `generic_write_sync`.
    pub(crate) fn sync_written(&self, ino: Ino) -> Result<()> {
        if self.opts.sync || self.inode(ino)?.has_flags(FileFlags::SYNC) {
            self.sync(ino, false)
        } else {
            Ok(())
        }
    }

    /// Makes the names in directories durable that were just changed, where those are to change
    /// synchronously: the flags SYNC and DIRSYNC (`chattr +D`), and the mount options `sync` and `dirsync`.
    /// The kernel's counterpart are the `IS_DIRSYNC` checks of `namei.c`.
    pub(crate) fn sync_names(&self, dirs: &[Ino]) -> Result<()> {
        let all = self.opts.sync || self.opts.dirsync;
        for &dir in dirs {
            if all || self.inode(dir)?.has_flags(FileFlags::SYNC | FileFlags::DIRSYNC) {
                self.sync(dir, false)?;
            }
        }
        Ok(())
    }
}

impl Commit {
    /// Makes pages of a file whole that are made from blocks of others, and durable.
    fn whole(&self, inode: &Arc<Inode>, pages: &[u64]) -> Result<()> {
        match self.make_whole_in_parts(inode, pages).and_then(|()| self.sync_file(inode, false)) {
            // Freed meanwhile.
            Err(Error::Posix(Posix::Stale)) => Ok(()),
            made => made.map(drop),
        }
    }

    /// Makes whole, and durable, what other files make of these pages of a file, and whole of what its other pages
    /// are made from them what is too much for one hold of its lock.
    fn make_dependents_whole(&self, ino: Ino, pages: Range<u64>) -> Result<()> {
        if self.refs.many_own(ino, &pages) {
            self.free_own_in_parts(&self.inode(ino)?, &pages)?;
        }
        for dependent in self.refs.others(ino, pages.clone()) {
            match self.inode(dependent.ino) {
                Ok(inode) => {
                    // What an fsync cannot make durable the checkpoint below does.
                    let whole = self.whole(&inode, &dependent.pages);
                    self.pass_by("a file made from blocks of another is not durable", dependent.ino, whole)?;
                }
                Err(Error::Posix(Posix::Stale)) => {}
                Err(e) if self.is_damage(&e) => self.give_up(dependent.ino, &dependent.pages, &e),
                Err(e) => return Err(e),
            }
        }
        if self.refs.others_need(ino, pages) {
            // Of files that are gone, or whose last change no fsync has to carry.
            CheckpointSink.now(self)?;
        }
        Ok(())
    }

    /// Whether what waits to be committed has waited long enough. Asked while there is something.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.count_changes();
        self.ways.durability.is_due(now) || self.ways.nvram.as_ref().is_some_and(|nvram| nvram.is_due(now))
    }

    /// When the volume's timer has to look at what waits again.
    pub(crate) fn next_background(&self) -> Duration {
        let now = self.clock.monotonic();
        let of_memory = self.ways.nvram.as_ref().map(|nvram| nvram.next_look(now));
        let next = of_memory.into_iter().chain(self.ways.durability.next_look(now)).min();
        next.map_or(BACKGROUND, |next| next.min(BACKGROUND))
    }

    fn page_counts(&self) -> PageCounts {
        let (changed, placed) = self.pages.changed_and_placed();
        PageCounts {
            changed,
            placed,
            dirty: self.pages.dirty() as u64,
            nodes: self.nodes.dirty_count() as u64,
        }
    }

    /// Commits what fsyncs closed and left for later, as it is about to change.
    fn settle(&self) -> Result<()> {
        self.count_changes();
        let full = self.survivor.get().is_some_and(|survivor| survivor.is_full());
        let due = self.ways.scope() == Scope::Volume
            && self.ways.durability.on_change(self.clock.monotonic(), self.page_counts());
        match due || full {
            true if !full && self.commit_due_app()? => Ok(()),
            true => CheckpointSink.now(self),
            false => self.commit_closed(),
        }
    }
}

/// The commit layer as those below it see it. They belong to it, so it is there whenever one of them asks.
pub(crate) struct FromBelow {
    commit: Weak<Commit>,
    /// Whether an fsync may leave anything for later.
    puts_off: bool,
}

impl FromBelow {
    pub(crate) fn of(commit: &Arc<Commit>) -> FromBelow {
        FromBelow { commit: Arc::downgrade(commit), puts_off: commit.ways.durability.puts_off() }
    }

    fn commit(&self) -> Result<Arc<Commit>> {
        self.commit.upgrade().ok_or(Error::ReadOnly)
    }
}

impl MakeDurable for FromBelow {
    fn checkpoint(&self) -> Result<()> {
        CheckpointSink.now(&self.commit()?.tree)
    }

    fn checkpointing(&self) {
        if let Ok(commit) = self.commit() {
            commit
                .ways
                .durability
                .checkpointing(commit.clock.monotonic(), commit.page_counts().dirty_bytes());
        }
    }

    fn checkpointed(&self) {
        if let Ok(commit) = self.commit() {
            commit.ways.sink.checkpointed(&commit.tree);
            // What was taken and is not counted yet would wait for ever.
            let _counting = commit.apps.as_ref().map(|apps| apps.counting());
            commit.nodes.changes.committed();
            commit.apps.iter().for_each(|apps| apps.checkpointed(&commit.tree));
            commit.ways.durability.checkpointed(commit.clock.monotonic());
        }
    }

    /// Asked by every operation, and nearly always in vain.
    fn settle(&self) -> Result<()> {
        if self.puts_off { self.commit()?.settle() } else { Ok(()) }
    }

    fn whole(&self, inode: &Arc<Inode>, pages: &[u64]) -> Result<()> {
        self.commit()?.whole(inode, pages)
    }

    fn unshare(&self, ino: Ino, pages: Range<u64>) -> Result<()> {
        self.commit()?.make_dependents_whole(ino, pages)
    }
}

impl Commit {
    /// What waits to be durable; `None` where nothing is put off.
    pub(crate) fn adaptive_stats(&self) -> Option<AdaptiveStats> {
        self.ways.durability.stats(self.clock.monotonic(), self.page_counts().dirty_bytes())
    }

    /// What the log that outlives the process holds; `None` where there is none.
    pub(crate) fn survivor_stats(&self) -> Option<SurvivorStats> {
        self.survivor.get().map(|survivor| survivor.stats())
    }

    /// Before an operation returns: a commit, where that log does not hold what it did.
    pub(crate) fn keep_up(&self) -> Result<()> {
        match self.survivor.get() {
            Some(survivor) if survivor.is_behind() => CheckpointSink.now(self),
            _ => Ok(()),
        }
    }

    /// Commits the files whose fsyncs were put off. What failed to be committed, and what came after it, is kept.
    pub(crate) fn commit_closed(&self) -> Result<()> {
        if self.ways.durability.oldest().is_none() {
            return Ok(());
        }
        self.committing.in_turn(|| {
            while let Some(Fsync { ino, datasync, .. }) = self.ways.durability.oldest() {
                match self.inode(ino) {
                    Ok(inode) => drop(self.sync_file(&inode, datasync)?),
                    Err(Error::Posix(Posix::Stale)) => {}
                    Err(error) => return Err(error),
                }
                self.ways.durability.committed();
            }
            Ok(())
        })
    }
}

/// What an fsync needs before its first lock.
pub(super) fn before_sync(tree: &Tree) -> Result<()> {
    tree.check_writable()?;
    tree.make_room()?;
    tree.hidden().make()?;
    tree.hidden().release()
}

/// What became of the one file of a set.
fn only(outcomes: Result<Vec<Result<Outcome>>>) -> Result<Outcome> {
    outcomes?.pop().unwrap_or(Ok(Outcome::Durable))
}
