//! What happened since the last checkpoint: what an fsync asks before it relies on roll-forward.
//!
//! Locks: each set has one of its own, a leaf.

use crate::map::cut_off::CutOff;
use crate::map::journaled::InNvram;
use medfs_format::Ino;
use medfs_sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Pages that lost their deltas and kept their blocks, by inode and index.
#[derive(Default)]
pub(crate) struct OldBases {
    pages: Mutex<BTreeSet<(Ino, u64)>>,
    count: AtomicUsize,
}

impl OldBases {
    pub(crate) fn add(&self, ino: Ino, page: u64) {
        let mut pages = self.pages.lock();
        pages.insert((ino, page));
        self.count.store(pages.len(), Ordering::Release);
    }

    pub(crate) fn has(&self, ino: Ino, page: u64) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.pages.lock().contains(&(ino, page))
    }

    fn clear(&self) {
        self.pages.lock().clear();
        self.count.store(0, Ordering::Release);
    }
}

/// What happened since the last checkpoint that decides whether roll-forward could bring a file back, as an
/// fsync asks. Each set has a lock of its own, a leaf.
#[derive(Default)]
pub(crate) struct SinceCheckpoint {
    /// Whether an fsync must not show a name ahead of what was changed before it, as the option `fsync_mode` asks.
    pub(crate) ordered: bool,
    /// Directories that were moved, or whose attributes changed, since the last checkpoint (where names are ordered).
    pub(crate) trans_dirs: Mutex<BTreeSet<Ino>>,
    /// Names taken from inodes that live on, since the last checkpoint, and those inodes (where names are
    /// ordered). A new file of such a name must not be recovered before the other inode's new name is
    /// durable.
    pub(crate) moved_names: Mutex<BTreeMap<(Ino, Vec<u8>), Ino>>,
    /// Files whose names are not those of the last checkpoint, unless an fsync has recorded them since. Of
    /// any other file roll-forward leaves the names and links alone, however many it has.
    pub(crate) renamed_files: Mutex<BTreeSet<Ino>>,
    /// Names that directories lost since the last checkpoint. Roll-forward must not give one to a file: the
    /// directory would go then, with all that was in it.
    pub(crate) left_by_dirs: Mutex<BTreeSet<(Ino, Vec<u8>)>>,
    /// Files that lost nodes at or below an indirect node since the last checkpoint: indirect nodes are not part of the
    /// chain of fsynced nodes, so roll-forward could not tell.
    pub(crate) cut_trees: Mutex<BTreeSet<Ino>>,
    /// How many changes of names are noted above.
    pub(crate) names: Arc<AtomicUsize>,
    /// Blocks that truncations took from files.
    pub(crate) cut_off: CutOff,
    /// Pages without a delta over whose blocks the last checkpoint may have one: these are not overwritten.
    pub(crate) old_bases: OldBases,
    /// What the journal in NVRAM holds.
    pub(crate) in_nvram: InNvram,
    /// The checkpoint in force is that of a mount which did not end, so a log elsewhere may follow it.
    pub(crate) of_killed: AtomicBool,
}

impl SinceCheckpoint {
    pub(crate) fn new(ordered: bool) -> SinceCheckpoint {
        SinceCheckpoint { ordered, ..SinceCheckpoint::default() }
    }

    /// Notes that what is fsynced in or below a directory needs a checkpoint first, where names are ordered.
    pub(crate) fn note_changed_dir(&self, ino: Ino) {
        if self.ordered {
            self.trans_dirs.lock().insert(ino);
        }
    }

    /// The inode other than `ino` that had this name at the last checkpoint or since, and lives on.
    pub(crate) fn other_of_name(&self, ino: Ino, parent: Ino, name: Vec<u8>) -> Option<Ino> {
        self.moved_names.lock().get(&(parent, name)).copied().filter(|&other| other != ino)
    }

    /// After a checkpoint nothing happened since.
    pub(crate) fn committed(&self) {
        let SinceCheckpoint {
            ordered: _,
            names,
            trans_dirs,
            moved_names,
            renamed_files,
            left_by_dirs,
            cut_trees,
            cut_off: _,
            old_bases,
            in_nvram,
            of_killed,
        } = self;
        of_killed.store(false, Ordering::Relaxed);
        names.store(0, Ordering::Relaxed);
        old_bases.clear();
        in_nvram.committed();
        trans_dirs.lock().clear();
        moved_names.lock().clear();
        renamed_files.lock().clear();
        left_by_dirs.lock().clear();
        cut_trees.lock().clear();
    }
}
