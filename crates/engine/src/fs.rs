//! The mounted file system: who owns what, and the order of locks.
//!
//! ```text
//! Fs ── store     device, space, NAT, node blocks, segments, checkpoint packs (crate medfs-store)
//!    ── inodes    inodes and their dirty pages── pages   clean pages
//!    ── orphans   unlinked inodes that are still held
//!    ── hotness   how busy each file is       ── restorer, activity: what is done while nobody wants anything
//! ```
//!
//! Lock order, outermost first:
//!  1. `gc` (one cleaning at a time), `cp` (one checkpoint at a time)
//!  2. an inode's `wb`
//!  3. `ops`: shared by every operation that changes the volume, exclusive for a checkpoint. Never taken twice by a thread.
//!  4. `renames` (one rename between two directories at a time)
//!  5. inode locks: a parent before its child; otherwise by inode number
//!  6. `chain` (order of fsynced nodes in their log)
//!  7. leaves: `orphans`, `trans_dirs`, `moved_names`, `renamed_files`, `left_by_dirs`, `cut_trees`, `dir_log`, `dependents`, `registry`, `bases`, `sharing`, `nodes`, `nat`, `segs`, `space`, `inodes`, `pages`,
//!     `hotness`, `restorer`, `activity`, `damage`, `io`; `nodes` before `segs` before `nat`.
//!
//! A checkpoint that an fsync needs is made after the fsync has given back its locks.

use crate::cluster::Compress;
use crate::commit::group_commit::Sharing;
use crate::commit::name_journal::DirLog;
use crate::content::page_cache::Pages;
use crate::content::placement::Placement;
use crate::damage::Damage;
use crate::delta::Deltas;
use crate::error::{Error, Result};
use crate::map::inode::Inodes;
use crate::options::MountOptions;
use crate::stats::Counters;
use crate::tree::inode_free::Orphans;
use crate::upkeep::hotness::Hcluster;
use crate::upkeep::idle::Activity;
use crate::upkeep::restore::Restorer;
use crate::xref::ref_index::Registry;
use crate::xref::refs::Dependents;
use crate::xref::retained::Bases;
use medfs_format::Ino;
use medfs_store::{Io, Store};
use medfs_sync::{Mutex, RwLock, RwLockReadGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};

pub(crate) struct Fs {
    pub(crate) store: Store,
    /// The options in force, as text.
    pub(crate) in_force: Vec<String>,
    pub(crate) opts: MountOptions,
    pub(crate) placement: Box<dyn Placement>,
    /// Whether the volume's magic is medfs's own: only such a volume may hold deltas.
    pub(crate) delta_volume: bool,
    pub(crate) deltas: Deltas,
    pub(crate) compress: Compress,
    /// Which blocks other files need, and the list of those files.
    pub(crate) dependents: Dependents,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) bases: Mutex<Bases>,
    pub(crate) inodes: Inodes,
    pub(crate) pages: Pages,
    pub(crate) orphans: Orphans,
    pub(crate) since: SinceCheckpoint,
    /// What changed in directories since the last checkpoint, and whether an fsync of one looks there first.
    pub(crate) dir_log: DirLog,
    pub(crate) ops: RwLock<()>,
    pub(crate) renames: Mutex<()>,
    /// fsyncs whose last nodes wait to be written together.
    pub(crate) sharing: Sharing,
    pub(crate) gc: Mutex<crate::upkeep::gc::Cleaner>,
    pub(crate) read_only: bool,
    /// Until orphans are freed and fsynced files rolled forward, nothing may make a checkpoint of its own accord.
    pub(crate) mounting: AtomicBool,
    pub(crate) closed: AtomicBool,
    /// The clock when the volume was opened.
    pub(crate) mounted_at: std::time::Duration,
    pub(crate) last_checkpoint_at: Mutex<std::time::Duration>,
    pub(crate) counters: Counters,
    pub(crate) damage: Damage,
    pub(crate) hotness: Hcluster,
    pub(crate) activity: Activity,
    pub(crate) restorer: Restorer,
}

/// What happened since the last checkpoint that decides whether roll-forward could bring a file back, as an fsync asks. Each set has a lock
/// of its own, a leaf.
#[derive(Default)]
pub(crate) struct SinceCheckpoint {
    /// Directories that were moved, or whose attributes changed, since the last checkpoint (strict fsync mode).
    pub(crate) trans_dirs: Mutex<BTreeSet<Ino>>,
    /// Names taken from inodes that live on, since the last checkpoint, and those inodes (strict fsync mode). A new file of
    /// such a name must not be recovered before the other inode's new name is durable.
    pub(crate) moved_names: Mutex<BTreeMap<(Ino, Vec<u8>), Ino>>,
    /// Files whose names are not those of the last checkpoint, unless an fsync has recorded them since. Of any other file
    /// roll-forward leaves the names and links alone, however many it has.
    pub(crate) renamed_files: Mutex<BTreeSet<Ino>>,
    /// Names that directories lost since the last checkpoint. Roll-forward must not give one to a file: the directory would go
    /// then, with all that was in it.
    pub(crate) left_by_dirs: Mutex<BTreeSet<(Ino, Vec<u8>)>>,
    /// Files that lost nodes at or below an indirect node since the last checkpoint: indirect nodes are not part of the
    /// chain of fsynced nodes, so roll-forward could not tell.
    pub(crate) cut_trees: Mutex<BTreeSet<Ino>>,
}

impl SinceCheckpoint {
    /// After a checkpoint nothing happened since.
    pub(crate) fn committed(&self) {
        let SinceCheckpoint { trans_dirs, moved_names, renamed_files, left_by_dirs, cut_trees } = self;
        trans_dirs.lock().clear();
        moved_names.lock().clear();
        renamed_files.lock().clear();
        left_by_dirs.lock().clear();
        cut_trees.lock().clear();
    }
}

impl Deref for Fs {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

/// Proof that a changing operation holds the operation lock.
pub(crate) struct Op<'a> {
    _guard: RwLockReadGuard<'a, ()>,
    io: &'a Io,
}

impl Drop for Op<'_> {
    fn drop(&mut self) {
        // Before the lock is free: no checkpoint makes durable what the operation left half done.
        if std::thread::panicking() {
            self.io.stop_writing("an operation panicked");
        }
    }
}

impl Fs {
    /// Starts an operation that changes the volume: makes room first, then takes the operation lock.
    /// `ReadOnly` where the volume is. Call it with no other lock of the engine held.
    pub(crate) fn begin(&self) -> Result<Op<'_>> {
        self.check_writable()?;
        self.make_room()?;
        self.op()
    }

    /// Takes the operation lock alone, for callers that made room before taking their first lock.
    pub(crate) fn op(&self) -> Result<Op<'_>> {
        let op = Op { _guard: self.ops.read(), io: &self.io };
        self.check_writable()?;
        Ok(op)
    }

    /// `ReadOnly` where the volume is, from the start or since a failure.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.is_read_only() { Err(Error::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.read_only || self.io.failed() || self.closed.load(Ordering::Acquire)
    }

    /// Whether a checkpoint would write anything.
    pub(crate) fn has_changes(&self) -> bool {
        self.nodes.any_dirty() || self.has_more_than_nodes()
    }

    /// Whether a checkpoint would write anything that must be durable when the commit interval has passed.
    pub(crate) fn has_changes_to_commit(&self) -> bool {
        self.nodes.any_to_commit() || self.has_more_than_nodes()
    }

    fn has_more_than_nodes(&self) -> bool {
        self.nat.dirty_count() > 0 || self.segs.lock().dirty_sit_count() > 0 || self.inodes.any_dirty()
    }
}
