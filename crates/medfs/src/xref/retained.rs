//! Replaced files that stay because the files in their place are made from their blocks.
//!
//! A file written to replace another one is made from that one's blocks ([`super::predecessor`]). When the
//! rename comes, the replaced file gets a name in a hidden directory in the same operation, instead of losing
//! its last one: so it is never an orphan, which a mount would free. It goes when nothing is made from it any
//! more. Here is which files those are; [`crate::tree::hidden`] has the directory.
//!
//! Invariants: a file is retained only where the hidden directory is in the last checkpoint, so that
//! roll-forward, which meets the same rename, finds it; and only for the one file that takes its name. A file
//! made from retained ones retains no other. Locks: the state is a leaf.

use super::Xref;
use crate::error::Result;
use crate::map::inode::Inode;
use medfs_format::Ino;
use medfs_format::node::FileKind;
use medfs_sync::Mutex;
use std::collections::BTreeSet;

/// Most files that are retained.
const MOST_FILES: usize = 64;
/// Largest file that is retained, in pages.
pub(crate) const MOST_PAGES: u64 = 512;

/// The retained files.
#[derive(Debug, Default)]
pub(crate) struct RetainedFiles(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The hidden directory, once it is there.
    dir: Option<Ino>,
    /// A file would have been retained before there was one.
    wanted: bool,
    files: BTreeSet<Ino>,
}

impl RetainedFiles {
    /// Whether a file has a name in the hidden directory alone.
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.0.lock().files.contains(&ino)
    }

    /// The hidden directory, where there is one.
    pub(crate) fn dir(&self) -> Option<Ino> {
        self.0.lock().dir
    }

    /// The directory that has been found or made, and the files in it.
    pub(crate) fn begin(&self, dir: Ino, files: BTreeSet<Ino>) {
        *self.0.lock() = State { dir: Some(dir), wanted: false, files };
    }

    /// Forgets the directory, which is about to go; returns it.
    pub(crate) fn end(&self) -> Option<Ino> {
        self.0.lock().dir.take()
    }

    /// Whether the directory was wanted since this was asked last.
    pub(crate) fn take_wanted(&self) -> bool {
        std::mem::take(&mut self.0.lock().wanted)
    }

    pub(crate) fn add(&self, ino: Ino) {
        self.0.lock().files.insert(ino);
    }

    /// `false` where the file was not retained.
    pub(crate) fn remove(&self, ino: Ino) -> bool {
        self.0.lock().files.remove(&ino)
    }

    pub(crate) fn files(&self) -> BTreeSet<Ino> {
        self.0.lock().files.clone()
    }
}

impl Xref {
    /// Whether a file may be made from one that it is to replace. Where there is no directory for that one
    /// yet, the next fsync makes it, and the next checkpoint settles it.
    pub(crate) fn can_retain(&self) -> Result<bool> {
        let dir = {
            let mut state = self.retained.0.lock();
            state.wanted |= state.dir.is_none();
            if state.files.len() >= MOST_FILES { None } else { state.dir }
        };
        dir.map_or(Ok(false), |dir| Ok(self.nat.peek(&self.io, dir)?.checkpointed))
    }

    /// Whether a file that another one replaces must be retained, and can be.
    pub(crate) fn may_retain(&self, replaced: &Inode, by: &Inode) -> Result<bool> {
        let others = self.refs.others(replaced.ino, 0..u64::MAX);
        Ok(replaced.kind() == FileKind::Regular
            && by.nlink() == 1
            && others.iter().all(|other| other.ino == by.ino)
            && replaced.pages() <= MOST_PAGES
            && self.can_retain()?)
    }
}
