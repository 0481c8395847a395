//! Checkpoints of the whole volume, as a sink of commits that takes every change: what is written before the
//! pack, and what is forgotten after it.
//!
//! Steps of [`CheckpointSink::now`], with every operation kept out by the operation lock:
//! (1) pages of directories and symbolic links, and of files whose inodes would be wrong without them, (2) every dirty
//! node, (3) the pack ([`medfs_store::Store::write_checkpoint`]). Kernel counterpart: `checkpoint.c`.

use crate::commit::change_set::{ChangeSet, CommitSink, NeedsCheckpoint, Outcome, StagedFile, WrittenPages};
use crate::error::{Error, Result};
use crate::stats::Counters;
use crate::tree::Tree;
use medfs_format::checkpoint::CpFlags;
use medfs_format::removed::RemovedName;
use medfs_store::{Checkpoint, NodeMarks};
use std::sync::atomic::Ordering;

/// The checkpoint: it makes everything durable, and whatever is staged with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CheckpointSink;

impl CommitSink for CheckpointSink {
    fn admits(&self, _: &Tree, _: &StagedFile<'_>) -> Result<(), NeedsCheckpoint> {
        Ok(())
    }

    fn admits_names(&self, _: &Tree, _: &[RemovedName<'_>]) -> Result<(), NeedsCheckpoint> {
        Ok(())
    }

    /// Writes the pages of the set, gives its locks back, and makes a checkpoint; none where pages have to
    /// wait or were not written.
    fn commit(&self, tree: &Tree, set: ChangeSet<'_>) -> Result<Vec<Result<Outcome>>> {
        let written: Vec<Result<Outcome>> = set.files.iter().map(|file| write_pages(tree, file)).collect();
        drop(set);
        if written.iter().all(|file| matches!(file, Ok(Outcome::Durable))) {
            self.now(tree)?;
        }
        Ok(written)
    }

    /// It keeps nothing beside the pack.
    fn checkpointed(&self, _: &Tree) {}
}

/// Writes the pages of a file that a checkpoint leaves out otherwise.
fn write_pages(tree: &Tree, file: &StagedFile<'_>) -> Result<Outcome> {
    if !file.regular {
        return Ok(Outcome::Durable);
    }
    let (WrittenPages { blocked, outcome, .. }, ()) = file.write_pages(tree, |_, _| ());
    outcome?;
    Ok(if blocked.is_empty() { Outcome::Durable } else { Outcome::Blocked(blocked) })
}

impl CheckpointSink {
    /// Writes everything back and makes a checkpoint. Where some file cannot be written, everything else is.
    pub(crate) fn sync(self, tree: &Tree) -> Result<()> {
        let written = tree.write_back_all();
        let committed = self.now(tree);
        written.and(committed)
    }

    /// Makes everything but the dirty pages of regular files durable. Takes `cp` and the operation lock.
    /// Calls that wait for a running checkpoint are served by one that starts after they came.
    pub(crate) fn now(self, tree: &Tree) -> Result<()> {
        checkpoint(tree, false)
    }

    /// Writes everything back and makes the checkpoint of an unmount: afterwards there is nothing to recover,
    /// and nothing is written any more.
    pub(crate) fn for_unmount(self, tree: &Tree) -> Result<()> {
        let written = tree.write_back_all();
        let committed = checkpoint(tree, true);
        if committed.is_ok() {
            tree.closed.store(true, Ordering::Release);
        }
        written.and(committed)
    }

    /// One where nothing changed: its version tells that the volume was mounted.
    pub(crate) fn though_unchanged(self, tree: &Tree) -> Result<()> {
        again(tree, false)
    }

    /// The same, in both packs: where either is damaged afterwards, the other says the same.
    pub(crate) fn for_unmount_in_both_packs(self, tree: &Tree) -> Result<()> {
        let written = tree.write_back_all();
        let committed = checkpoint(tree, true).and_then(|()| again(tree, true));
        if committed.is_ok() {
            tree.closed.store(true, Ordering::Release);
        }
        written.and(committed)
    }
}

/// Writes a checkpoint of what is durable, into the other pack.
fn again(tree: &Tree, unmount: bool) -> Result<()> {
    let mut cp = tree.cp.lock();
    let _ops = tree.ops.alone();
    tree.check_writable()?;
    let result = write_pack(tree, &mut cp, unmount);
    if let Err(error) = &result {
        tree.io.stop_writing(&format!("a checkpoint failed: {error}"));
    }
    result
}

fn checkpoint(tree: &Tree, unmount: bool) -> Result<()> {
    let before = tree.counters.checkpoints.load(Ordering::Acquire);
    let mut cp = tree.cp.lock();
    // Two checkpoints ended while this call waited: the later one started after it came.
    if !unmount && tree.counters.checkpoints.load(Ordering::Acquire) >= before + 2 {
        return Ok(());
    }
    let _ops = tree.ops.alone();
    tree.check_writable()?;
    let done_already = !unmount || cp.header.flags().contains(CpFlags::UMOUNT);
    if done_already && !tree.has_changes() {
        // Pages that were overwritten in place leave nothing else to write, but for a mark that says so to a log which
        // may follow the checkpoint in force.
        match !tree.io.is_durable(tree.io.write_mark()) {
            true if tree.since.of_killed.load(Ordering::Relaxed) => write_pack(tree, &mut cp, unmount)?,
            true => tree.io.flush()?,
            false => {}
        }
        nothing_left(tree);
        return Ok(());
    }
    if let Err(error) = tree.place_aways() {
        if !tree.is_damage(&error) && !matches!(error, Error::NoSpace) {
            tree.io.stop_writing(&format!("a checkpoint failed: {error}"));
        }
        return Err(error);
    }
    tree.above.checkpointing();
    let result = write_content(tree).and_then(|()| write_pack(tree, &mut cp, unmount));
    match &result {
        // Pages and nodes that had a place are where they are said to be, and the last checkpoint counts as before.
        Ok(()) | Err(Error::NoSpace) => {}
        // Half a checkpoint must not be followed by writes that build on it.
        Err(error) => tree.io.stop_writing(&format!("a checkpoint failed: {error}")),
    }
    result
}

/// Tells who keeps what operations did that all of it is durable.
fn nothing_left(tree: &Tree) {
    if let Some(log) = tree.effects.log() {
        log.checkpointed(tree.version_in_footers());
    }
}

/// Writes what the pack will name: pages of what is no regular file, and every dirty node.
fn write_content(tree: &Tree) -> Result<()> {
    tree.write_back_for_checkpoint()?;
    tree.save_index();
    tree.since.cut_off.free_all(tree);
    let nodes = tree.nodes.take_all_dirty();
    let written = tree.write_in_order(&nodes, NodeMarks::default());
    if written.is_err() {
        // Those that had a place too: without the mark of an fsync nothing but a checkpoint makes them count.
        nodes.iter().for_each(|(page, _)| tree.nodes.mark(page));
    }
    Ok(written?)
}

fn write_pack(tree: &Tree, cp: &mut Checkpoint, unmount: bool) -> Result<()> {
    let log = tree.effects.log();
    let noted = |version| log.into_iter().for_each(|log| log.checkpointing(version));
    let freed = tree.store.write_checkpoint(cp, &tree.orphans.list(), unmount, noted)?;
    tree.since.committed();
    tree.name_journal.committed();
    tree.refs.committed();
    tree.above.checkpointed();
    nothing_left(tree);
    *tree.last_checkpoint_at.lock() = tree.clock.monotonic();
    Counters::add(&tree.counters.checkpoints, 1);
    if tree.opts.discard {
        tree.store.discard(freed)?;
    }
    Ok(())
}
