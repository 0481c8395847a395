//! What happened since the last checkpoint: what an fsync asks before it relies on roll-forward.
//!
//! Locks: each set has one of its own, a leaf.

use medfs_format::Ino;
use medfs_sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};

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
