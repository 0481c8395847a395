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
use crate::content::page_cache::Pages;
use crate::content::placement::Placement;
use crate::delta::Deltas;
use crate::error::Result;
use crate::map::Map;
use crate::map::op::Op;
use crate::map::refs::Dependents;
use crate::options::MountOptions;
use crate::profile::hotness::Hcluster;
use crate::tree::name_journal::DirLog;
use crate::upkeep::idle::Activity;
use crate::upkeep::restore::Restorer;
use crate::xref::ref_index::Registry;
use crate::xref::retained::Bases;
use medfs_sync::Mutex;
use std::ops::Deref;
use std::sync::atomic::AtomicBool;

pub(crate) struct Fs {
    pub(crate) map: Map,
    /// The options in force, as text.
    pub(crate) in_force: Vec<String>,
    pub(crate) opts: MountOptions,
    pub(crate) placement: Box<dyn Placement>,
    pub(crate) deltas: Deltas,
    pub(crate) compress: Compress,
    /// Which blocks other files need, and the list of those files.
    pub(crate) dependents: Dependents,
    pub(crate) registry: Mutex<Registry>,
    pub(crate) bases: Mutex<Bases>,
    pub(crate) pages: Pages,
    /// What changed in directories since the last checkpoint, and whether an fsync of one looks there first.
    pub(crate) dir_log: DirLog,
    pub(crate) renames: Mutex<()>,
    /// fsyncs whose last nodes wait to be written together.
    pub(crate) sharing: Sharing,
    pub(crate) gc: Mutex<crate::upkeep::gc::Cleaner>,
    /// Until orphans are freed and fsynced files rolled forward, nothing may make a checkpoint of its own accord.
    pub(crate) mounting: AtomicBool,
    pub(crate) last_checkpoint_at: Mutex<std::time::Duration>,
    pub(crate) hotness: Hcluster,
    pub(crate) activity: Activity,
    pub(crate) restorer: Restorer,
}

impl Deref for Fs {
    type Target = Map;

    fn deref(&self) -> &Map {
        &self.map
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
}
