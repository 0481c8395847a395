//! The roll-forward log: the chain of fsynced nodes as a sink of commits.
//!
//! Order in strict mode (rules 2 and 3 of docs/ARCHITECTURE.md): data, and all but the last node; FLUSH; the
//! last node, which carries the fsync mark; FLUSH. The first flush is left out where the node names nothing
//! new, and where its seal tells what was stored ([`Before`]). The last node and both flushes are those of
//! [`GroupCommit::write`]. Nodes of one fsync are taken in the moment in which the version of its pages is
//! closed, so that a crash shows the file as it was then.
//! Invariant: when a marked node is durable, every node before it in the log's chain is too, because nodes are placed
//! and written under the `chain` lock and one flush follows.
//! Locks: the set's; the inode's while pages are placed and nodes taken; `chain`.
//! Kernel counterpart: `f2fs_fsync_node_pages`.

use crate::commit::change_set::{
    ChangeSet, CommitSink, Naming, NeedsCheckpoint, Outcome, StagedFile, WrittenPages,
};
use crate::commit::flush::FlushPolicy;
use crate::commit::group_commit::{Before, GroupCommit, LastNode};
use crate::delta::addr_redo::Notes;
use crate::error::{Error, Result};
use crate::map::inode::Inode;
use crate::map::page_versions::Attributes;
use crate::map::refs::ReleasedRefs;
use crate::tree::Tree;
use crate::tree::name_journal::recorded_name;
use medfs_format::node::{Advise, Inline, RawDirectNode, RawInode};
use medfs_format::path::first_page;
use medfs_format::removed::RemovedName;
use medfs_format::{Block, NULL_ADDR};
use medfs_store::{Dirty, NodeMarks, NodePage, node_offset};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Direct nodes of a file that wait for a checkpoint so that fsyncs need one flush: those of 256 MiB.
const MOST_NOTED_FOR_SEALS: usize = 64;

type NodeSnapshot = (Arc<NodePage>, Arc<Block>);

/// Nodes of a file as an fsync writes them.
#[derive(Default)]
pub(super) struct Due {
    pub(super) nodes: Vec<NodeSnapshot>,
    /// What the inode among them says of those that are left out.
    pub(super) left_out: Arc<Notes>,
    /// Sources that are free once they are durable.
    pub(super) gone: ReleasedRefs,
}

impl Due {
    /// The inode block among the nodes.
    fn inode(&self, inode: &Inode) -> Option<&RawInode> {
        let at = self.nodes.iter().find(|(page, _)| page.nid == inode.ino);
        at.map(|(_, block)| block.view())
    }
}

/// What is taken of a file in the moment in which its pages are placed.
#[derive(Default)]
struct Taken {
    due: Due,
    /// The inode is the only node, and nothing but its times differs from what is durable.
    times_only: bool,
    /// Why the nodes cannot be written, where they cannot.
    reason: Option<NeedsCheckpoint>,
}

/// A file whose pages are written, and whose nodes are not yet.
struct OnItsWay<'s, 'a> {
    file: &'s StagedFile<'a>,
    pages: WrittenPages,
    taken: Taken,
}

/// The chain of fsynced nodes.
pub(crate) struct RollForwardLog {
    flush: FlushPolicy,
    pub(crate) group: GroupCommit,
    /// The write mark behind the last nodes of sets that were [left to a later flush](ChangeSet::flushed_later).
    left_to_flush: AtomicU64,
}

impl CommitSink for RollForwardLog {
    fn admits(&self, tree: &Tree, file: &StagedFile<'_>) -> Result<(), NeedsCheckpoint> {
        let reason = match file.regular {
            false => file.dirty.then_some(NeedsCheckpoint::NotRegular),
            true if leaves_no_trace(tree, file) => Some(NeedsCheckpoint::LeavesNoTrace),
            // Placing its pages may change no node, and then nothing is in the way.
            true if !file.nodes_due => None,
            true => in_the_way(tree, file),
        };
        reason.map_or(Ok(()), Err)
    }

    fn admits_names(&self, tree: &Tree, _: &[RemovedName<'_>]) -> Result<(), NeedsCheckpoint> {
        if tree.space.room_for_roll_forward(0) { Ok(()) } else { Err(NeedsCheckpoint::NoRoomToRecover) }
    }

    fn commit(&self, tree: &Tree, set: ChangeSet<'_>) -> Result<Vec<Result<Outcome>>> {
        let mut files = Vec::with_capacity(set.files.len());
        let mut last_nodes = Vec::with_capacity(set.files.len());
        for file in &set.files {
            if !file.regular {
                files.push(Err(file.refused));
                continue;
            }
            if !file.dirty && file.naming == Naming::AsItWas {
                files.push(Ok(OnItsWay {
                    file,
                    pages: self.flush_pages(tree, file),
                    taken: Taken::default(),
                }));
                continue;
            }
            let (pages, taken) = file.write_pages(tree, |all, closed| self.take(tree, file, all, closed));
            let mut file = OnItsWay { file, pages, taken };
            match self.lead_up(tree, &file) {
                Ok(last) => last_nodes.extend(last),
                Err(error) => file.pages.outcome = Err(error),
            }
            files.push(Ok(file));
        }
        let later = set.flushed_later && files.iter().flatten().all(|file| gives_nothing_up(tree, file));
        let written = self.write(tree, last_nodes, &set.names, later);
        let failed = written.is_err();
        let conclude = |file: Result<OnItsWay<'_, '_>, Option<NeedsCheckpoint>>| match file {
            Ok(file) => conclude(tree, file, if failed { Err(Error::ReadOnly) } else { Ok(()) }),
            Err(refused) => Ok(refused.map_or(Outcome::Durable, Outcome::Refused)),
        };
        let outcomes = files.into_iter().map(conclude).collect();
        written.map(|()| outcomes)
    }

    /// The chain begins anew with the next node, as footers name the checkpoint.
    fn checkpointed(&self, _: &Tree) {}
}

impl RollForwardLog {
    pub(crate) fn new(flush: FlushPolicy, group: GroupCommit) -> RollForwardLog {
        RollForwardLog { flush, group, left_to_flush: AtomicU64::new(0) }
    }

    /// Makes the files of a set durable by one last node or a node that they share: all of them or none. `false` where
    /// it takes a checkpoint, which has to follow.
    pub(super) fn commit_at_once(&self, tree: &Tree, set: &ChangeSet<'_>) -> Result<bool> {
        let mut files = Vec::with_capacity(set.files.len());
        for file in &set.files {
            let (pages, taken) = file.write_pages(tree, |all, closed| self.take(tree, file, all, closed));
            files.push(OnItsWay { file, pages, taken });
        }
        let is_whole = |file: &OnItsWay<'_, '_>| {
            file.pages.outcome.is_ok() && file.pages.blocked.is_empty() && file.taken.reason.is_none()
        };
        let written = if files.iter().all(is_whole) { self.write_at_once(tree, &files) } else { Ok(false) };
        let kept = || if matches!(written, Ok(true)) { Ok(()) } else { Err(Error::ReadOnly) };
        for file in files {
            // What a file that was placed meets shows in the checkpoint.
            let _ = conclude(tree, file, kept());
        }
        written
    }

    fn write_at_once(&self, tree: &Tree, files: &[OnItsWay<'_, '_>]) -> Result<bool> {
        let last: Vec<Option<LastNode>> =
            files.iter().map(|file| self.lead_up(tree, file)).collect::<Result<_>>()?;
        self.group.write_at_once(tree, &tree.deltas, self.flush, &last.iter().flatten().collect::<Vec<_>>())
    }

    /// Of a file of which nothing is to be written: what was written of it before may not be durable yet.
    fn flush_pages(&self, tree: &Tree, file: &StagedFile<'_>) -> WrittenPages {
        let mark = file.inode.lock.read().data_mark;
        WrittenPages { mark, blocked: Vec::new(), outcome: self.flush.after_pages(&tree.io, mark) }
    }

    /// Waits for the flush of nodes that were written for a later one.
    pub(super) fn flush_left(&self, io: &medfs_store::Io) -> Result<()> {
        self.flush.after_pages(io, self.left_to_flush.load(Ordering::Acquire))
    }

    /// Takes the nodes that go with the pages of a file, of which all are placed or not. `closed`: the attributes
    /// of the version that was closed with them. The inode's lock is held.
    fn take(&self, tree: &Tree, file: &StagedFile<'_>, all: bool, closed: Option<&Attributes>) -> Taken {
        let (inode, least) = (file.inode, file.purpose.least_to_write());
        let dirtiness = tree.nodes.dirtiness_of(inode.ino);
        let write_nodes = all && dirtiness >= least;
        // Asked again: pages that were placed may have cut the tree of nodes, or made nodes due.
        let reason = match write_nodes {
            true => file.refused.or_else(|| in_the_way(tree, file)),
            false => None,
        };
        let write_nodes = write_nodes && reason.is_none();
        if write_nodes && file.naming == Naming::Record {
            name_is_as_recorded(tree, inode);
        }
        let due = if write_nodes { take_due(tree, inode, least) } else { Due::default() };
        debug_assert!(
            closed.is_none_or(|closed| due.inode(inode).is_none_or(|r| Attributes::of(r) == *closed)),
            "nodes are of the version that their pages are of"
        );
        Taken { due, times_only: dirtiness == Dirty::Times, reason }
    }

    /// Writes all nodes of a file but the last, which it returns with what its mode asks for; without one the pages
    /// become durable. An inode of which only times differ names no block that it did not name before: its pages were
    /// written in place, and whichever is durable first, the file is one that was written. So one flush serves both.
    fn lead_up(&self, tree: &Tree, on_its_way: &OnItsWay<'_, '_>) -> Result<Option<LastNode>> {
        let OnItsWay { file, pages, taken: Taken { due, times_only, reason } } = on_its_way;
        if pages.outcome.is_err() || reason.is_some() || !pages.blocked.is_empty() {
            return Ok(None);
        }
        let inode = file.inode;
        let Some(last) = position_of_last(inode, &due.nodes) else {
            self.flush.after_pages(&tree.io, pages.mark)?;
            return Ok(None);
        };
        let data_durable = tree.io.is_durable(pages.mark);
        let (page, block) = due.nodes[last].clone();
        let alone = due.nodes.len() == 1;
        if !alone {
            let mut others = due.nodes.clone();
            others.remove(last);
            let _chain = tree.chain.lock();
            tree.write_in_order(&others, NodeMarks::default())?;
            tree.space.wrote_in_chain(others.len(), 0);
        }
        let in_order = *times_only || (alone && data_durable);
        let before = match self.flush.before_last_node(|| tree.deltas().has_deltas(inode)) && !in_order {
            false => Before::Together,
            true if may_seal(tree, inode) => Before::Sealed,
            true => Before::Flushed,
        };
        let is_inode = page.nid == page.ino;
        let dentry = is_inode && (file.naming == Naming::Record || tree.needs_dentry_mark(inode)?);
        Ok(Some(LastNode { page, block, notes: due.left_out.clone(), dentry, before }))
    }

    /// Makes the last nodes of files durable, or with a `later` flush, and that files lost names.
    fn write(
        &self,
        tree: &Tree,
        last_nodes: Vec<LastNode>,
        names: &[RemovedName<'_>],
        later: bool,
    ) -> Result<()> {
        if later && names.is_empty() {
            let written = self.group.write_unflushed(tree, &tree.deltas, self.flush, &last_nodes);
            self.left_to_flush.fetch_max(tree.io.write_mark(), Ordering::AcqRel);
            return written;
        }
        self.group.write(tree, &tree.deltas, self.flush, last_nodes)?;
        if names.is_empty() { Ok(()) } else { self.group.write_removed(tree, self.flush, names) }
    }
}

/// Whether nothing may be overwritten that the file needed until now: otherwise a flush has to come first.
fn gives_nothing_up(tree: &Tree, file: &OnItsWay<'_, '_>) -> bool {
    let same_pages = !file.file.pages_dirty || !tree.deltas().has_deltas(file.file.inode);
    file.taken.due.gone.is_empty() && same_pages
}

/// Whether the last node of a file may be sealed. Blocks that were overwritten are in no seal: neither the
/// file's size nor a delta that is made of another file's block must be durable before them.
fn may_seal(tree: &Tree, inode: &Inode) -> bool {
    let of = (!tree.deltas().has_deltas(inode)).then_some(inode.ino);
    tree.seals.as_ref().is_some_and(|seals| !seals.overwrote(of, tree.io.durable_writes()))
}

/// Whether pages of a file are overwritten whatever the options say, and a log elsewhere may follow the checkpoint in
/// force: that log must not be replayed over them.
fn leaves_no_trace(tree: &Tree, file: &StagedFile<'_>) -> bool {
    let may_be_followed = file.pages_dirty && tree.since.of_killed.load(Ordering::Relaxed);
    let is_overwritten =
        |r: &RawInode| r.inline().contains(Inline::PIN_FILE) || r.advise().contains(Advise::COLD);
    may_be_followed && file.inode.raw(is_overwritten)
}

/// Why the nodes of a file cannot be written, where they cannot.
pub(super) fn in_the_way(tree: &Tree, file: &StagedFile<'_>) -> Option<NeedsCheckpoint> {
    let (inode, naming) = (file.inode, file.naming);
    if naming == Naming::Unsettled {
        return Some(NeedsCheckpoint::DirectoryChanged);
    }
    if naming == Naming::AsItWas && tree.since.renamed_files.lock().contains(&inode.ino) {
        return Some(NeedsCheckpoint::NamesChanged);
    }
    let named = naming == Naming::Record || tree.needs_dentry_mark(inode).unwrap_or(true);
    if !tree.space.room_for_roll_forward(named.into()) {
        return Some(NeedsCheckpoint::NoRoomToRecover);
    }
    if named {
        let reason = name_in_the_way(tree, inode);
        if reason.is_some() {
            return reason;
        }
    }
    if tree.since.cut_trees.lock().contains(&inode.ino) {
        return Some(NeedsCheckpoint::TreeCut);
    }
    // The kernel does not roll clusters forward; a volume with deltas it never mounts.
    if !tree.is_delta_volume() && tree.is_compressed(inode) {
        return Some(NeedsCheckpoint::Compressed);
    }
    None
}

/// Why roll-forward could not give a file the name that its inode records, where it could not.
fn name_in_the_way(tree: &Tree, inode: &Inode) -> Option<NeedsCheckpoint> {
    let (parent, name) = recorded_name(inode);
    if !tree.nat.peek(&tree.io, parent).is_ok_and(|e| e.checkpointed) {
        return Some(NeedsCheckpoint::ParentNotCheckpointed);
    }
    let ordered = tree.since.ordered;
    let changed = tree.since.left_by_dirs.lock().contains(&(parent, name.clone()))
        || (ordered && tree.since.trans_dirs.lock().contains(&parent))
        || (ordered && tree.since.other_of_name(inode.ino, parent, name).is_some());
    changed.then_some(NeedsCheckpoint::DirectoryChanged)
}

/// After the nodes of a file were written, or not: keeps what did not reach the device.
fn conclude(tree: &Tree, file: OnItsWay<'_, '_>, written: Result<()>) -> Result<Outcome> {
    let OnItsWay { file, pages, taken: Taken { due, reason, .. } } = file;
    if let Err(e) = pages.outcome.and(written) {
        // Keep in memory what did not reach the device.
        due.nodes.iter().map(|(page, _)| page).chain(&due.left_out.nodes).for_each(|p| tree.nodes.mark(p));
        tree.refs.give_back(due.gone);
        return Err(e);
    }
    tree.refs.settle(&due.gone);
    // Without a node in the log recovery would not know.
    if pages.blocked.is_empty() && reason.is_none() && !due.nodes.is_empty() {
        tree.since.in_nvram.superseded(file.inode.ino);
    }
    if !pages.blocked.is_empty() {
        return Ok(Outcome::Blocked(pages.blocked));
    }
    if let Some(reason) = reason {
        return Ok(Outcome::Refused(reason));
    }
    name_is_durable(tree, file);
    Ok(Outcome::Durable)
}

/// The inode of a renamed file, which is about to be taken, tells its name rightly.
pub(super) fn name_is_as_recorded(tree: &Tree, inode: &Inode) {
    tree.edit(inode, Dirty::Times, |r| r.i_advise &= !Advise::LOST_PINO.bits());
}

/// A file is durable, with the name that its inode told where a new one was to be recorded.
pub(super) fn name_is_durable(tree: &Tree, file: &StagedFile<'_>) {
    if file.naming != Naming::Record {
        return;
    }
    let _state = file.inode.lock.read();
    // Unless it was renamed again meanwhile.
    if !file.inode.raw(|r| r.advise().contains(Advise::LOST_PINO)) {
        tree.name_journal.settled(file.inode.ino);
        tree.since.renamed_files.lock().remove(&file.inode.ino);
    }
}

/// Takes the nodes that an fsync has to write: where the inode is one of them, it may speak for others.
pub(super) fn take_due(tree: &Tree, inode: &Inode, least: Dirty) -> Due {
    let inode_due = tree.nodes.is_dirty(inode.ino, inode.ino, least);
    let direct = if inode_due { Vec::new() } else { tree.nodes.due_direct(inode.ino, least) };
    let with_inode = inode_due || reaches_beyond_end(tree, inode, &direct);
    // An inode that is not due takes the place of as many nodes as it speaks for.
    let fewest = if with_inode || sealing_pays(tree, inode, &direct) { 1 } else { 2 };
    let left_out = tree.deltas().zone(inode).addr_redo(fewest);
    if with_inode || !left_out.nodes.is_empty() {
        tree.nodes.make_due(&inode.node, least);
    }
    let nodes = tree.nodes.take_dirty_of(inode.ino, least);
    Due { nodes, left_out: Arc::new(left_out), gone: tree.refs.take_released(inode.ino) }
}

/// Whether an inode is better written than the one direct node that is due: only the inode has room for a
/// seal, which saves a flush. The next checkpoint then writes the node. So each must have been written once
/// since the last one, as a node is that gets many changes, and few may wait for it.
fn sealing_pays(tree: &Tree, inode: &Inode, due: &[Arc<NodePage>]) -> bool {
    tree.seals.is_some()
        && due.iter().all(|page| tree.nat.has_changed(page.nid))
        && tree.nodes.noted_direct(inode.ino) < MOST_NOTED_FOR_SEALS
}

/// Whether a direct node that is due has pages behind the end of its file: roll-forward would take them for a
/// part of it, unless an inode follows that knows the size.
fn reaches_beyond_end(tree: &Tree, inode: &Inode, due: &[Arc<NodePage>]) -> bool {
    let (fanout, end) = (tree.slots(inode).fanout(), inode.pages());
    let keeps_size = inode.raw(|r| r.advise().contains(Advise::KEEP_SIZE));
    !keeps_size
        && due.iter().any(|page| {
            let last = page
                .read(|d| d.block.view::<RawDirectNode>().addr.iter().rposition(|a| a.get() != NULL_ADDR));
            let first =
                first_page(node_offset(page), fanout).filter(|&first| first < tree.compact_start(inode));
            first.zip(last).is_some_and(|(first, last)| first + last as u64 >= end)
        })
}

/// The node to write last: the inode where it is among them, as only a marked inode can restore its directory entry.
fn position_of_last(inode: &Inode, nodes: &[NodeSnapshot]) -> Option<usize> {
    nodes.iter().position(|(p, _)| p.nid == inode.ino).or(nodes.len().checked_sub(1))
}
