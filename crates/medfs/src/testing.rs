//! What tests need of the inside of a volume: other sinks of commits, and another time for fsyncs.
//!
//! Not part of the library's interface.
//! Invariant: of what is committed, only what the log made durable is held, until a checkpoint makes all of it void.
//! Locks: `held` is a leaf.

use crate::commit::Ways;
use crate::commit::change_set::{ChangeSet, CommitSink, NeedsCheckpoint, Outcome, StagedFile};
use crate::commit::roll_forward_log::RollForwardLog;
use crate::content::placement::Purpose;
use crate::error::Result;
use crate::map::page_versions::Attributes;
use crate::options::MountOptions;
use crate::tree::Tree;
use crate::volume::{Volume, open_with};
use medfs_device::BlockDevice;
use medfs_format::removed::RemovedName;
use medfs_format::{Block, Ino};
use medfs_store::Clock;
use medfs_sync::Mutex;
use std::sync::Arc;

/// What a volume committed.
pub struct Held(Arc<InMemory>);

impl std::fmt::Debug for Held {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Held").field(&self.all()).finish()
    }
}

impl Held {
    /// What was committed since the last checkpoint, in order.
    pub fn all(&self) -> Vec<Committed> {
        self.0.held.lock().clone()
    }
}

/// Opens a volume whose commits are held in memory as well.
pub fn open_holding(
    dev: Arc<dyn BlockDevice>,
    opts: MountOptions,
    clock: Arc<dyn Clock>,
) -> Result<(Volume, Held)> {
    let (ways, held) = Ways::through(&opts, |below| InMemory { below, held: Mutex::default() });
    Ok((open_with(dev, opts, clock, ways)?, Held(held)))
}

/// Opens a volume whose fsyncs return at once, and are committed by [`commit_closed`] or before the next change.
pub fn open_deferring(
    dev: Arc<dyn BlockDevice>,
    opts: MountOptions,
    clock: Arc<dyn Clock>,
) -> Result<Volume> {
    let ways = Ways::deferring(&opts);
    open_with(dev, opts, clock, ways)
}

/// Commits what the fsyncs of a volume closed.
pub fn commit_closed(volume: &Volume) -> Result<()> {
    volume.commit.commit_closed()
}

/// A file as it was committed.
#[derive(Debug, Clone)]
pub struct CommittedFile {
    /// The file.
    pub ino: Ino,
    /// Whether the time of its last change was committed too: fdatasync leaves it out.
    pub times: bool,
    /// Kind and permissions, as `st_mode`.
    pub mode: u16,
    /// User and group.
    pub owner: (u32, u32),
    /// Size in bytes.
    pub size: u64,
    /// Time of the last change: seconds and nanoseconds.
    pub mtime: (i64, u32),
    /// Pages that had changed, by index.
    pub pages: Vec<(u64, Arc<Block>)>,
}

/// What was made durable at once.
#[derive(Debug, Clone)]
pub enum Committed {
    /// Files, those of one set.
    Files(Vec<CommittedFile>),
    /// These files lost a name.
    Names(Vec<Ino>),
}

/// A sink that holds in memory what was committed since the last checkpoint, and hands every set on to the
/// roll-forward log. It takes a set before any page of it has an address, as a journal in other memory does.
struct InMemory {
    below: Arc<RollForwardLog>,
    held: Mutex<Vec<Committed>>,
}

impl CommitSink for InMemory {
    fn admits(&self, tree: &Tree, file: &StagedFile<'_>) -> Result<(), NeedsCheckpoint> {
        self.below.admits(tree, file)
    }

    fn admits_names(&self, tree: &Tree, names: &[RemovedName<'_>]) -> Result<(), NeedsCheckpoint> {
        self.below.admits_names(tree, names)
    }

    fn commit(&self, tree: &Tree, set: ChangeSet<'_>) -> Result<Vec<Result<Outcome>>> {
        let files: Vec<CommittedFile> = set.files.iter().map(committed).collect();
        let names: Vec<Ino> = set.names.iter().map(|name| name.ino).collect();
        let outcomes = self.below.commit(tree, set)?;
        let durable = |outcome: &Result<Outcome>| matches!(outcome, Ok(Outcome::Durable));
        let files: Vec<_> = files.into_iter().zip(&outcomes).filter(|(_, o)| durable(o)).collect();
        let files: Vec<CommittedFile> = files.into_iter().map(|(file, _)| file).collect();
        let mut held = self.held.lock();
        held.extend((!files.is_empty()).then_some(Committed::Files(files)));
        held.extend((!names.is_empty()).then_some(Committed::Names(names)));
        Ok(outcomes)
    }

    fn checkpointed(&self, tree: &Tree) {
        self.held.lock().clear();
        self.below.checkpointed(tree);
    }
}

fn committed(file: &StagedFile<'_>) -> CommittedFile {
    let inode = file.inode;
    let state = inode.lock.read();
    let page = |index| Some((index, state.pages.get(index)?.clone()));
    let pages = file.dirty_pages(&state);
    let Attributes { size, mode, owner, mtime, .. } = inode.raw(Attributes::of);
    CommittedFile {
        ino: inode.ino,
        times: file.purpose != Purpose::Fsync { datasync: true },
        mode,
        owner,
        size,
        mtime: (mtime.secs, mtime.nanos),
        pages: pages.into_iter().filter(|&index| index < inode.pages()).filter_map(page).collect(),
    }
}
