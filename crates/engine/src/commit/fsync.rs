//! fsync: what of a file has to reach the device, and in which order.
//!
//! Order in strict mode (rules 2 and 3 of docs/ARCHITECTURE.md): data, and all but the last node; FLUSH; the last node, which carries the
//! fsync mark; FLUSH. The first flush is left out where the node names nothing new. Nodes of one fsync are a snapshot
//! taken together with the pages, so that a crash shows the file as it was at one moment.
//! Invariant: when a marked node is durable, every node before it in the log's chain is too, because nodes are placed
//! and written under the `chain` lock and one flush follows.
//! Kernel counterpart: `f2fs_do_sync_file`, `f2fs_fsync_node_pages`.

use crate::commit::group_commit::LastNode;
use crate::content::placement::Purpose;
use crate::delta::addr_redo::Notes;
use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState};
use crate::map::refs::Gone;
use crate::options::FsyncMode;
use crate::stats::Counters;
use medfs_device::Cause;
use medfs_format::node::{Advise, FileKind, RawDirectNode};
use medfs_format::path::first_page;
use medfs_format::{Block, Ino, NULL_ADDR};
use medfs_store::NodeMarks;
use medfs_store::{Dirty, NodePage, node_offset};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Why an fsync cannot be served by the file's own nodes.
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
}

/// What an fsync does about a file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Names {
    /// The name is durable, or the file is new and its first fsync records it.
    AsTheyWere,
    /// The file was renamed since its last fsync, and the new name is recorded.
    Record,
    /// Another file's new name must become durable first, which only a checkpoint can do.
    Unsettled,
}

/// Longest row of files that took each other's names and are settled one by one.
const MAX_SETTLED_NAMES: usize = 8;

enum Outcome {
    Done,
    Checkpoint(NeedsCheckpoint),
    /// Pages have to wait for those of other files; what could be written is.
    Blocked(Vec<u64>),
}

type NodeSnapshot = (Arc<NodePage>, Arc<Block>);

/// Nodes of a file as an fsync writes them.
#[derive(Default)]
struct Due {
    nodes: Vec<NodeSnapshot>,
    /// What the inode among them says of those that are left out.
    left_out: Arc<Notes>,
    /// Sources that are free once they are durable.
    gone: Gone,
}

/// A file whose pages an fsync has written.
struct Prepared {
    due: Due,
    names: Names,
    /// The write mark after the file's last page.
    data_mark: u64,
    /// The inode is the only node, and nothing but its times differs from what is durable.
    times_only: bool,
    /// Why the nodes cannot be written, where they cannot.
    reason: Option<NeedsCheckpoint>,
    blocked: Vec<u64>,
    /// How placing and writing pages went.
    pages: Result<()>,
}

/// How far an fsync came before its nodes.
enum Step {
    Settled(Outcome),
    Nodes(Prepared),
}

/// Most files of [`Fs::fsync_many`] that are made durable by one flush: their writeback waits for each other.
const MOST_TOGETHER: usize = 64;

impl Fs {
    /// Makes a file durable: everything where `datasync` is not set, otherwise all but times. `false`: a directory that
    /// roll-forward brings back as it is.
    pub(crate) fn sync_file(&self, inode: &Arc<Inode>, datasync: bool) -> Result<bool> {
        Counters::add(&self.counters.fsyncs, 1);
        if self.read_only {
            return Ok(true);
        }
        self.before_sync()?;
        if inode.is_dir() {
            let recoverable = self.dir_is_recoverable(inode)?;
            if recoverable || self.record_names(inode)? {
                Counters::add(&self.counters.dir_fsyncs_saved, 1);
                return Ok(!recoverable);
            }
        }
        let settled = self.settle_names(inode, MAX_SETTLED_NAMES)?;
        let names = match settled {
            true if self.is_renamed(inode) && self.may_record(inode)? => Names::Record,
            true => Names::AsTheyWere,
            false => Names::Unsettled,
        };
        match self.sync_unblocked(inode, Purpose::Fsync { datasync }, names, |_| Ok(()))? {
            None => Ok(true),
            Some(reason) => {
                tracing::debug!(ino = inode.ino, ?reason, "fsync by checkpoint");
                Counters::add(&self.counters.fsyncs_with_checkpoint, 1);
                self.checkpoint_now()?;
                if reason == NeedsCheckpoint::NotRegular && !inode.lock.read().dirty.is_empty() {
                    // The checkpoint left something of it out: this tells why, or writes it for the next one.
                    self.write_back(inode)?;
                    self.checkpoint_now()?;
                }
                if reason == NeedsCheckpoint::NamesChanged {
                    self.find_lost_parent(inode)?;
                }
                Ok(true)
            }
        }
    }

    /// Whether a file has pages or nodes that an fsync has to make durable.
    pub(crate) fn is_dirty_for_sync(&self, inode: &Inode, datasync: bool) -> bool {
        let least = Purpose::Fsync { datasync }.least_to_write();
        !inode.lock.read().dirty.is_empty() || self.nodes.dirtiness_of(inode.ino) >= least
    }

    fn before_sync(&self) -> Result<()> {
        self.check_writable()?;
        self.make_room()?;
        self.make_hidden_files()?;
        self.release_bases()
    }

    /// Makes files durable, those together that need neither another name nor a checkpoint.
    pub(crate) fn fsync_many(&self, files: &[Ino], datasync: bool) -> Result<()> {
        let files: BTreeSet<Ino> = files.iter().copied().collect();
        let inodes = files.into_iter().map(|ino| self.inode(ino)).collect::<Result<Vec<_>>>()?;
        let mut first = First::default();
        for some in inodes.chunks(MOST_TOGETHER) {
            for inode in self.sync_some(some, Purpose::Fsync { datasync })? {
                first.note(self.sync_file(&inode, datasync).map(drop));
            }
        }
        first.result()
    }

    /// Makes those of some files durable, sorted by number, for which nodes suffice; returns the others.
    fn sync_some(&self, inodes: &[Arc<Inode>], purpose: Purpose) -> Result<Vec<Arc<Inode>>> {
        if self.read_only {
            return Ok(Vec::new());
        }
        self.before_sync()?;
        let (mut able, mut others) = (Vec::new(), Vec::new());
        for inode in inodes {
            // Whatever is in the way shows again when the file is synced by itself.
            let settled = !inode.is_dir() && self.settle_names(inode, MAX_SETTLED_NAMES).unwrap_or(false);
            let able_to = settled && !self.is_renamed(inode);
            if able_to { able.push(inode) } else { others.push(inode.clone()) }
        }
        let _wbs: Vec<_> = able.iter().map(|inode| inode.wb.lock()).collect();
        let _op = self.op()?;
        let (mut prepared, mut last_nodes) = (Vec::new(), Vec::new());
        for inode in able {
            match self.prepare(inode, purpose, Names::AsTheyWere, |_| Ok(())) {
                Ok(Step::Nodes(mut file)) => {
                    match self.lead_up(inode, &file) {
                        Ok(last) => last_nodes.extend(last),
                        Err(e) => file.pages = Err(e),
                    }
                    prepared.push((inode, file));
                }
                Ok(Step::Settled(Outcome::Done)) => {}
                Ok(Step::Settled(_)) | Err(_) => others.push(inode.clone()),
            }
        }
        let written = self.write_together(&last_nodes.iter().collect::<Vec<_>>());
        let failed = written.is_err();
        for (inode, file) in prepared {
            let outcome = self.conclude(file, if failed { Err(Error::ReadOnly) } else { Ok(()) });
            if matches!(outcome, Ok(Outcome::Done)) {
                Counters::add(&self.counters.fsyncs, 1);
            } else {
                others.push(inode.clone());
            }
        }
        written.map(|()| others)
    }

    /// Writes the file's pages and nodes, after those of other files that need their blocks as they are. Returns why that
    /// takes a checkpoint, where it does. `prepare` changes the file first, in the same moment of time.
    pub(crate) fn sync_unblocked(
        &self,
        inode: &Arc<Inode>,
        purpose: Purpose,
        names: Names,
        prepare: impl FnOnce(&mut InodeState) -> Result<()>,
    ) -> Result<Option<NeedsCheckpoint>> {
        let mut outcome = self.sync_by_nodes(inode, purpose, names, prepare);
        let mut left = None;
        loop {
            match outcome {
                Ok(Outcome::Done) => return Ok(None),
                Ok(Outcome::Checkpoint(reason)) => return Ok(Some(reason)),
                Ok(Outcome::Blocked(pages)) => {
                    let _freed = self.release_sources(inode, &pages)?;
                    outcome = self.sync_by_nodes(inode, purpose, names, |_| Ok(()));
                }
                // A checkpoint writes what is left of it in one go.
                Err(Error::NoSpace) if purpose == Purpose::Atomic => {
                    return Ok(Some(NeedsCheckpoint::NoRoom));
                }
                Err(Error::NoSpace) => {
                    self.make_room_again(inode, &mut left)?;
                    self.write_back_for(inode, purpose)?;
                    outcome = self.sync_by_nodes(inode, purpose, names, |_| Ok(()));
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes the file's pages and nodes. `prepare` changes the file first, in the same moment of time.
    fn sync_by_nodes(
        &self,
        inode: &Arc<Inode>,
        purpose: Purpose,
        names: Names,
        prepare: impl FnOnce(&mut InodeState) -> Result<()>,
    ) -> Result<Outcome> {
        let _wb = inode.wb.lock();
        let _op = self.op()?;
        let file = match self.prepare(inode, purpose, names, prepare)? {
            Step::Settled(outcome) => return Ok(outcome),
            Step::Nodes(file) => file,
        };
        let written =
            self.lead_up(inode, &file).and_then(|last| last.map_or(Ok(()), |last| self.write_last(last)));
        let outcome = self.conclude(file, written);
        if names == Names::Record && matches!(outcome, Ok(Outcome::Done)) {
            let _state = inode.lock.read();
            // Unless it was renamed again meanwhile.
            if !inode.raw(|r| r.advise().contains(Advise::LOST_PINO)) {
                self.dir_log.settled(inode.ino);
                self.since.renamed_files.lock().remove(&inode.ino);
            }
        }
        outcome
    }

    /// Writes the file's pages and takes its nodes. Its `wb` and the operation lock are held.
    fn prepare(
        &self,
        inode: &Arc<Inode>,
        purpose: Purpose,
        names: Names,
        prepare: impl FnOnce(&mut InodeState) -> Result<()>,
    ) -> Result<Step> {
        let mut state = inode.lock.write();
        inode.check_alive(&state)?;
        prepare(&mut state)?;
        let regular = inode.kind() == FileKind::Regular;
        let least = purpose.least_to_write();
        if !regular {
            let dirty = !state.dirty.is_empty() || self.nodes.dirtiness_of(inode.ino) >= least;
            let outcome =
                if dirty { Outcome::Checkpoint(NeedsCheckpoint::NotRegular) } else { Outcome::Done };
            return Ok(Step::Settled(outcome));
        }
        let indices: Vec<u64> = state.dirty.keys().copied().collect();
        let placing = self.place_pages(inode, &mut state, &indices, purpose);
        let (placed, outcome, blocked) = (placing.pages, placing.outcome, placing.blocked);
        // Pages of an atomic write that are placed must not become durable without the others.
        let no_room = matches!(outcome, Err(Error::NoSpace));
        state.with_checkpoint |=
            !blocked.is_empty() || (outcome.is_err() && (purpose == Purpose::Atomic || !no_room));
        let dirtiness = self.nodes.dirtiness_of(inode.ino);
        let write_nodes = outcome.is_ok() && blocked.is_empty() && dirtiness >= least;
        let reason = if write_nodes { self.needs_checkpoint(inode, names) } else { None };
        let times_only = dirtiness == Dirty::Times;
        if write_nodes && reason.is_none() && names == Names::Record {
            self.edit(inode, Dirty::Times, |r| r.i_advise &= !Advise::LOST_PINO.bits());
        }
        let due = if write_nodes && reason.is_none() { self.take_due(inode, least) } else { Due::default() };
        drop(state);

        let written = self.write_pages(&placed, Cause::Data);
        let data_mark = {
            let mut state = inode.lock.write();
            if written.is_ok() {
                self.pages_written(inode, &mut state, placed);
            }
            state.data_mark
        };
        let pages = written.and(outcome);
        Ok(Step::Nodes(Prepared { due, names, data_mark, times_only, reason, blocked, pages }))
    }

    /// After the nodes of a file were written, or not: keeps what did not reach the device.
    fn conclude(&self, file: Prepared, written: Result<()>) -> Result<Outcome> {
        let Prepared { due, reason, blocked, pages, .. } = file;
        if let Err(e) = pages.and(written) {
            // Keep in memory what did not reach the device.
            due.nodes
                .iter()
                .map(|(page, _)| page)
                .chain(&due.left_out.nodes)
                .for_each(|p| self.nodes.mark(p));
            self.dependents.give_back(due.gone);
            return Err(e);
        }
        self.dependents.settle(&due.gone);
        if !blocked.is_empty() {
            return Ok(Outcome::Blocked(blocked));
        }
        Ok(reason.map_or(Outcome::Done, Outcome::Checkpoint))
    }

    /// Takes the nodes that an fsync has to write: where the inode is one of them, it may speak for others.
    fn take_due(&self, inode: &Inode, least: Dirty) -> Due {
        let with_inode =
            self.nodes.is_dirty(inode.ino, inode.ino, least) || self.reaches_beyond_end(inode, least);
        // An inode that is not due takes the place of as many nodes as it speaks for.
        let left_out = self.note_addresses(inode, if with_inode { 1 } else { 2 });
        if with_inode || !left_out.nodes.is_empty() {
            self.nodes.make_due(&inode.node, least);
        }
        let nodes = self.nodes.take_dirty_of(inode.ino, least);
        Due { nodes, left_out: Arc::new(left_out), gone: self.dependents.take_gone(inode.ino) }
    }

    /// Whether a direct node that is due has pages behind the end of its file: roll-forward would take them for a part of it, unless
    /// an inode follows that knows the size.
    fn reaches_beyond_end(&self, inode: &Inode, least: Dirty) -> bool {
        let (fanout, end) = (self.slots(inode).fanout(), inode.pages());
        let keeps_size = inode.raw(|r| r.advise().contains(Advise::KEEP_SIZE));
        !keeps_size
            && self.nodes.due_direct(inode.ino, least).iter().any(|page| {
                let last = page.read(|d| {
                    d.block.view::<RawDirectNode>().addr.iter().rposition(|a| a.get() != NULL_ADDR)
                });
                let first =
                    first_page(node_offset(page), fanout).filter(|&first| first < self.compact_start(inode));
                first.zip(last).is_some_and(|(first, last)| first + last as u64 >= end)
            })
    }

    /// Writes all nodes of an fsync but the last, which it returns with what its mode asks for; without one the pages
    /// become durable. An inode of which only times differ names no block that it did not name before: its pages were
    /// written in place, and whichever is durable first, the file is one that was written. So one flush serves both.
    fn lead_up(&self, inode: &Inode, file: &Prepared) -> Result<Option<LastNode>> {
        if file.pages.is_err() || file.reason.is_some() || !file.blocked.is_empty() {
            return Ok(None);
        }
        let mode = self.opts.fsync_mode;
        let data_durable = self.io.is_durable(file.data_mark);
        let Some(last) = position_of_last(inode, &file.due.nodes) else {
            if mode != FsyncMode::Nobarrier && !data_durable {
                self.io.flush()?;
            }
            return Ok(None);
        };
        let mut others: Vec<NodeSnapshot> = file.due.nodes.to_vec();
        let (page, block) = others.remove(last);
        if !others.is_empty() {
            let _chain = self.chain.lock();
            self.write_in_order(&others, NodeMarks::default())?;
            self.space.wrote_in_chain(others.len(), 0);
        }
        let in_order = file.times_only || (others.is_empty() && data_durable);
        // A delta must not be durable before its base, whatever else the mode lets pass.
        let ordered = mode == FsyncMode::Strict || (mode == FsyncMode::Posix && self.has_deltas(inode));
        let is_inode = page.nid == page.ino;
        let dentry = is_inode && (file.names == Names::Record || self.needs_dentry_mark(inode)?);
        let notes = file.due.left_out.clone();
        Ok(Some(LastNode { page, block, notes, dentry, flush_first: ordered && !in_order }))
    }

    /// Whether recovery would have to make the file's directory entry too.
    fn needs_dentry_mark(&self, inode: &Inode) -> Result<bool> {
        let e = self.nat.peek(&self.io, inode.ino)?;
        Ok(!e.checkpointed && !e.fsynced_inode)
    }

    fn needs_checkpoint(&self, inode: &Inode, names: Names) -> Option<NeedsCheckpoint> {
        if names == Names::Unsettled {
            return Some(NeedsCheckpoint::DirectoryChanged);
        }
        if names == Names::AsTheyWere && self.since.renamed_files.lock().contains(&inode.ino) {
            return Some(NeedsCheckpoint::NamesChanged);
        }
        let named = names == Names::Record || self.needs_dentry_mark(inode).unwrap_or(true);
        if !self.space.room_for_roll_forward(named.into()) {
            return Some(NeedsCheckpoint::NoRoomToRecover);
        }
        if named {
            let reason = self.name_needs_checkpoint(inode);
            if reason.is_some() {
                return reason;
            }
        }
        if self.since.cut_trees.lock().contains(&inode.ino) {
            return Some(NeedsCheckpoint::TreeCut);
        }
        // The kernel does not roll clusters forward; a volume with deltas it never mounts.
        if !self.is_delta_volume() && self.is_compressed(inode) {
            return Some(NeedsCheckpoint::Compressed);
        }
        None
    }

    /// Why roll-forward could not give a file the name that its inode records, where it could not.
    fn name_needs_checkpoint(&self, inode: &Inode) -> Option<NeedsCheckpoint> {
        let (parent, name) = recorded_name(inode);
        if !self.nat.peek(&self.io, parent).is_ok_and(|e| e.checkpointed) {
            return Some(NeedsCheckpoint::ParentNotCheckpointed);
        }
        let strict = self.opts.fsync_mode == FsyncMode::Strict;
        let changed = self.since.left_by_dirs.lock().contains(&(parent, name.clone()))
            || (strict && self.since.trans_dirs.lock().contains(&parent))
            || (strict && self.other_of_name(inode.ino, parent, name).is_some());
        changed.then_some(NeedsCheckpoint::DirectoryChanged)
    }

    /// Makes durable the new names of files that had the name by which `inode` would be recovered: otherwise recovery
    /// would take that name from them, and with it their last link. `false` where only a checkpoint can do that.
    /// No lock is held.
    fn settle_names(&self, inode: &Arc<Inode>, most: usize) -> Result<bool> {
        if self.since.moved_names.lock().is_empty() {
            return Ok(true);
        }
        let (parent, name) = recorded_name(inode);
        let Some(other) = self.other_of_name(inode.ino, parent, name.clone()) else { return Ok(true) };
        if !self.needs_dentry_mark(inode)? && !inode.raw(|r| r.advise().contains(Advise::LOST_PINO)) {
            return Ok(true); // recovery leaves its names alone
        }
        let entry = self.nat.peek(&self.io, other)?;
        let gone = entry.addr == NULL_ADDR;
        if !gone && most == 0 {
            return Ok(false);
        }
        if !gone && !self.is_recorded(other)? && (entry.fsynced_inode || entry.checkpointed) {
            let Ok(other) = self.inode(other) else { return Ok(false) };
            if !self.may_record(&other)? || !self.record_after(&other, most - 1)? {
                return Ok(false);
            }
        }
        self.since.moved_names.lock().remove(&(parent, name));
        Ok(true)
    }

    /// Whether a file's name is not yet durable and could be recorded: see [`Fs::may_record`].
    fn is_renamed(&self, inode: &Inode) -> bool {
        self.is_delta_volume()
            && self.opts.fsync_mode == FsyncMode::Strict
            && inode.raw(|r| r.advise().contains(Advise::LOST_PINO))
            && self.dir_log.renamed_plainly(inode.ino)
    }

    /// Makes a file durable with the name that it has now; `false` where that takes a checkpoint. No lock is held.
    pub(crate) fn record_name(&self, inode: &Arc<Inode>) -> Result<bool> {
        Ok(self.may_record(inode)? && self.record_after(inode, MAX_SETTLED_NAMES)?)
    }

    /// The same, after files that had its name are settled.
    fn record_after(&self, inode: &Arc<Inode>, most: usize) -> Result<bool> {
        let purpose = Purpose::Fsync { datasync: false };
        Ok(self.settle_names(inode, most)?
            && self.sync_unblocked(inode, purpose, Names::Record, |_| Ok(()))?.is_none())
    }

    /// The inode other than `ino` that had this name at the last checkpoint or since, and lives on.
    fn other_of_name(&self, ino: Ino, parent: Ino, name: Vec<u8>) -> Option<Ino> {
        self.since.moved_names.lock().get(&(parent, name)).copied().filter(|&other| other != ino)
    }

    /// Whether the inode's one name is the one that its block records.
    pub(crate) fn name_is_right(&self, inode: &Inode) -> bool {
        let (parent, name) = recorded_name(inode);
        if inode.nlink() != 1 || name.is_empty() {
            return false;
        }
        let Ok(dir) = self.inode(parent) else { return false };
        let state = dir.lock.read();
        dir.is_dir()
            && self.find_entry(&dir, &state, &name).is_ok_and(|e| e.is_some_and(|e| e.ino == inode.ino))
    }

    /// After a checkpoint, a file whose parent and name are recorded rightly can be recovered by itself again.
    fn find_lost_parent(&self, inode: &Arc<Inode>) -> Result<()> {
        let _op = self.op()?;
        if self.name_is_right(inode) {
            let _state = inode.lock.write();
            self.edit(inode, Dirty::Times, |r| r.i_advise &= !Advise::LOST_PINO.bits());
        }
        Ok(())
    }
}

/// Parent and name that an inode's block records.
pub(crate) fn recorded_name(inode: &Inode) -> (Ino, Vec<u8>) {
    inode.raw(|r| {
        let len = (r.i_namelen.get() as usize).min(r.i_name.len());
        (r.i_pino.get(), r.i_name[..len].to_vec())
    })
}

/// The node to write last: the inode where it is among them, as only a marked inode can restore its directory entry.
fn position_of_last(inode: &Inode, nodes: &[NodeSnapshot]) -> Option<usize> {
    nodes.iter().position(|(p, _)| p.nid == inode.ino).or(nodes.len().checked_sub(1))
}
