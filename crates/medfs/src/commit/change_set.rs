//! What is to become durable together, and the sinks that make it so.
//!
//! A [`ChangeSet`] is staged before any of its pages has an address: the sink that takes it decides whether
//! pages are placed. Every commit takes the same way, one file or many: *stage*, ask the sink whether it
//! *admits* the set, *commit*, and *conclude*, which keeps in memory what did not become durable.
//!
//! Invariants:
//! 1. While a set is staged nothing but the sink writes pages or nodes of its files, and no checkpoint
//!    begins: the set holds the locks for it.
//! 2. What a file releases is taken in the moment in which the sink takes its nodes, not before: pages that
//!    are being placed release more.
//!
//! Locks: a set holds the `wb` of its files and the operation lock, or its caller has that alone; an inode's lock is
//! taken to stage it, and again to place its pages.

use crate::content::page_plan::Placing;
use crate::content::placement::Purpose;
use crate::content::writeback::BATCH;
use crate::error::{Error, Result};
use crate::map::inode::{Inode, InodeState};
use crate::map::op::Op;
use crate::map::ops::Alone;
use crate::map::page_versions::Attributes;
use crate::tree::Tree;
use medfs_device::Cause;
use medfs_format::node::FileKind;
use medfs_format::removed::RemovedName;
use medfs_sync::MutexGuard;
use std::sync::Arc;

/// Why a sink does not take a change: it takes a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeedsCheckpoint {
    NotRegular,
    NamesChanged,
    NoRoomToRecover,
    NoRoom,
    ParentNotCheckpointed,
    DirectoryChanged,
    TreeCut,
    Compressed,
    /// Its pages are overwritten behind a checkpoint of another mount, and no node would tell of it.
    LeavesNoTrace,
}

/// What a commit does about a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The name is durable, or the file is new and its first fsync records it.
    AsItWas,
    /// The file was renamed since its last fsync, and the new name is recorded.
    Record,
    /// Another file's new name must become durable first, which only a checkpoint can do.
    Unsettled,
}

/// A file that is to become durable.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(super) inode: &'a Arc<Inode>,
    pub(super) purpose: Purpose,
    pub(super) naming: Naming,
}

/// A file as it was at one moment, before any of its pages is placed.
pub(crate) struct StagedFile<'a> {
    pub(crate) inode: &'a Arc<Inode>,
    pub(crate) purpose: Purpose,
    pub(super) naming: Naming,
    /// Whether pages of it are dirty. Which, and what they are, is settled when they are placed, and their version is
    /// closed.
    pub(super) pages_dirty: bool,
    pub(super) regular: bool,
    /// Whether anything of it is to be written, as far as is known before its pages are placed.
    pub(super) dirty: bool,
    /// Whether nodes of it are due whatever becomes of its pages.
    pub(super) nodes_due: bool,
    /// Why the sink that was asked does not take it.
    pub(super) refused: Option<NeedsCheckpoint>,
}

/// What placing the pages of a file came to.
pub(crate) struct WrittenPages {
    /// The write mark after the file's last page.
    pub(super) mark: u64,
    /// Pages that have to wait for those of other files; what could be written is.
    pub(super) blocked: Vec<u64>,
    /// How placing and writing went.
    pub(super) outcome: Result<()>,
}

impl<'a> StagedFile<'a> {
    /// Takes a file as it is, after `change` changed it in the same moment. Its `wb` and the operation lock are held.
    fn stage(
        tree: &Tree,
        request: Request<'a>,
        change: impl FnOnce(&mut InodeState) -> Result<()>,
    ) -> Result<StagedFile<'a>> {
        let Request { inode, purpose, naming } = request;
        tree.xref.find_companion(inode);
        let mut state = inode.lock.write();
        inode.check_alive(&state)?;
        change(&mut state)?;
        let regular = inode.kind() == FileKind::Regular;
        let nodes_due = tree.nodes.dirtiness_of(inode.ino) >= purpose.least_to_write();
        let pages_dirty = state.pages.any_dirty();
        let dirty = nodes_due || pages_dirty;
        Ok(StagedFile { inode, purpose, naming, pages_dirty, regular, dirty, nodes_due, refused: None })
    }

    /// Its dirty pages. None of what is no regular file: a checkpoint alone writes these.
    pub(crate) fn dirty_pages(&self, state: &InodeState) -> Vec<u64> {
        match self.regular {
            true => state.pages.dirty(..).collect(),
            false => Vec::new(),
        }
    }

    /// Where many pages are away from memory, writes some at a time until few are left. What fails stays dirty, and is
    /// met again with those.
    fn write_most_that_are_away(&self, tree: &Tree) {
        let mut from = 0;
        loop {
            let mut state = self.inode.lock.write();
            if !self.regular || state.pages.away_len() <= BATCH {
                return;
            }
            let some: Vec<u64> = state.pages.dirty(from..).take(BATCH).collect();
            let Some(last) = some.last() else { return };
            from = last + 1;
            let placing = self.place_pages(tree, &mut state, &some);
            drop(state);
            self.write_placed(tree, placing);
        }
    }

    /// Gives its dirty pages their blocks and writes them. `take` runs in the moment in which they are placed
    /// and their version is closed: it is told whether all of them are, and the version's attributes.
    pub(crate) fn write_pages<T>(
        &self,
        tree: &Tree,
        take: impl FnOnce(bool, Option<&Attributes>) -> T,
    ) -> (WrittenPages, T) {
        self.write_most_that_are_away(tree);
        let mut state = self.inode.lock.write();
        let pages = self.dirty_pages(&state);
        let placing = self.place_pages(tree, &mut state, &pages);
        let closed = placing.version.and_then(|version| state.pages.attributes(version));
        let taken = take(placing.outcome.is_ok() && placing.blocked.is_empty(), closed);
        drop(state);
        (self.write_placed(tree, placing), taken)
    }

    /// Gives some of its dirty pages their blocks, and closes their version: [`StagedFile::write_placed`] writes them.
    pub(super) fn place_pages(&self, tree: &Tree, state: &mut InodeState, pages: &[u64]) -> Placing {
        let placing = tree.place_pages(self.inode, state, pages, self.purpose, &tree.xref);
        // Pages of an atomic write that are placed must not become durable without the others.
        let no_room = matches!(placing.outcome, Err(Error::NoSpace));
        let failed = placing.outcome.is_err() && (self.purpose == Purpose::Atomic || !no_room);
        state.with_checkpoint |= !placing.blocked.is_empty() || failed;
        placing
    }

    /// Writes pages that were placed. The inode's lock is not held.
    pub(super) fn write_placed(&self, tree: &Tree, placing: Placing) -> WrittenPages {
        let inode = self.inode;
        let Placing { pages: placed, version, outcome, blocked, .. } = placing;
        let written = tree.write_pages(&placed, Cause::Data);
        let mark = {
            let mut state = inode.lock.write();
            tree.pages_written(inode, &mut state, version, placed, &written);
            state.data_mark
        };
        WrittenPages { mark, blocked, outcome: written.and(outcome) }
    }
}

/// Changes that become durable together, staged.
pub(crate) struct ChangeSet<'a> {
    pub(crate) files: Vec<StagedFile<'a>>,
    /// Names that files lost.
    pub(crate) names: Vec<RemovedName<'a>>,
    /// Whether whoever commits it flushes before it says that anything is durable: a flush for several sets.
    pub(super) flushed_later: bool,
    _writeback: Vec<MutexGuard<'a, ()>>,
    /// None where no other operation goes on.
    _op: Option<Op<'a>>,
}

impl<'a> ChangeSet<'a> {
    /// Stages one file; `change` changes it first, in the same moment. No lock is held.
    pub(crate) fn of_file(
        tree: &'a Tree,
        request: Request<'a>,
        change: impl FnOnce(&mut InodeState) -> Result<()>,
    ) -> Result<ChangeSet<'a>> {
        let writeback = vec![request.inode.wb.lock()];
        let op = tree.op()?;
        let file = StagedFile::stage(tree, request, change)?;
        Ok(ChangeSet {
            files: vec![file],
            names: Vec::new(),
            flushed_later: false,
            _writeback: writeback,
            _op: Some(op),
        })
    }

    /// Stages files, sorted by number; the errors of those that cannot be are returned. No lock is held.
    pub(crate) fn of_files(tree: &'a Tree, requests: &[Request<'a>]) -> Result<(ChangeSet<'a>, Vec<Error>)> {
        let writeback = requests.iter().map(|request| request.inode.wb.lock()).collect();
        let op = Some(tree.op()?);
        Ok(ChangeSet::staged(tree, requests, (writeback, op)))
    }

    /// The same as of one moment: no operation goes on, nor does one write anything back, while the set is there.
    pub(crate) fn of_files_alone(
        tree: &'a Tree,
        requests: &[Request<'a>],
        _alone: &'a Alone<'_>,
    ) -> (ChangeSet<'a>, Vec<Error>) {
        ChangeSet::staged(tree, requests, (Vec::new(), None))
    }

    fn staged(
        tree: &'a Tree,
        requests: &[Request<'a>],
        (writeback, op): (Vec<MutexGuard<'a, ()>>, Option<Op<'a>>),
    ) -> (ChangeSet<'a>, Vec<Error>) {
        let (mut files, mut failed) = (Vec::with_capacity(requests.len()), Vec::new());
        for &request in requests {
            match StagedFile::stage(tree, request, |_| Ok(())) {
                Ok(file) => files.push(file),
                Err(error) => failed.push(error),
            }
        }
        let names = Vec::new();
        (ChangeSet { files, names, flushed_later: false, _writeback: writeback, _op: op }, failed)
    }

    /// Asks a sink which of the files it takes. One that it refuses may stay in a set of several: a
    /// checkpoint will need its pages written, and they are, with those of the others.
    pub(crate) fn ask(&mut self, tree: &Tree, sink: &dyn CommitSink) {
        for file in &mut self.files {
            file.refused = sink.admits(tree, file).err();
        }
    }

    /// Stages that files lost names.
    pub(crate) fn of_names(tree: &'a Tree, names: Vec<RemovedName<'a>>) -> Result<ChangeSet<'a>> {
        Ok(ChangeSet {
            files: Vec::new(),
            names,
            flushed_later: false,
            _writeback: Vec::new(),
            _op: Some(tree.op()?),
        })
    }
}

/// What became of a file of a set.
#[derive(Debug)]
pub(crate) enum Outcome {
    Durable,
    /// The sink cannot make it durable, which showed when its pages were placed.
    Refused(NeedsCheckpoint),
    /// Pages have to wait for those of other files; what could be written is.
    Blocked(Vec<u64>),
}

/// Where changes become durable.
pub(crate) trait CommitSink: Send + Sync {
    /// Whether the sink makes a staged file durable, as far as can be told before its pages have addresses.
    fn admits(&self, tree: &Tree, file: &StagedFile<'_>) -> Result<(), NeedsCheckpoint>;

    /// Whether it makes durable that files lost names.
    fn admits_names(&self, tree: &Tree, names: &[RemovedName<'_>]) -> Result<(), NeedsCheckpoint>;

    /// Makes a set durable, but for the files in it that it was asked about and refused; returns what became
    /// of each file, in the order of the set. Where the set as a whole failed nothing of it counts as
    /// durable, and all of it is still in memory.
    fn commit(&self, tree: &Tree, set: ChangeSet<'_>) -> Result<Vec<Result<Outcome>>>;

    /// A checkpoint has made everything durable: what the sink keeps for a mount after a crash is void.
    fn checkpointed(&self, tree: &Tree);
}
