//! Companions: the file whose blocks the pages of another one are likely made of, by their names.
//!
//! A journal or log of SQLite has its database, and a file that is written to replace another one has that.
//! It is found when the file gets its name, by whoever holds the directory then. A file that came into memory
//! with its name, or whose companion came after it, has it looked for when its pages are staged. So an encoder
//! is handed a file, and looks into no directory.
//!
//! Invariant: a companion counts only while both files have the names that it was found by.
//! Locks: staging tries the directory's lock and never waits for it; what is remembered is a leaf (rank
//! `compact map`).

use super::Xref;
use crate::dir::Dir;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::profile::file_class;
use crate::ranks;
use medfs_format::Ino;
use medfs_format::node::{FileKind, Inline};
use medfs_sync::{Mutex, Ranked};
use std::sync::Arc;

/// The companion of a file, as its inode remembers it.
struct Companion(Mutex<Option<Ino>>);

impl Default for Companion {
    fn default() -> Companion {
        Companion(Mutex::default().ranked(ranks::DELTAS))
    }
}

impl Xref {
    /// The companion of a file, where one is known and both have their names still.
    pub(crate) fn companion(&self, inode: &Inode) -> Option<Arc<Inode>> {
        if !self.has_companions(inode) {
            return None;
        }
        let known = (*inode.memory.of::<Companion>().0.lock())?;
        self.inode(known).ok().filter(|companion| self.is_companion(inode, companion))
    }

    /// Finds the companion of a file that got a name in a directory, whose lock is held.
    pub(crate) fn named(&self, inode: &Inode, dir: &Arc<Inode>, state: &InodeState) {
        if !self.has_companions(inode) {
            return;
        }
        let found = self.find_in(inode, dir, state).unwrap_or_else(|error| {
            self.note_damage(
                "a file is not compared with the one it repeats, as its directory cannot be read",
                inode.ino,
                &error,
            );
            None
        });
        *inode.memory.of::<Companion>().0.lock() = found;
    }

    /// Sees to it that the companion is known of a file whose pages are about to be staged, unless its
    /// directory is just being changed. The locks of inodes are not held.
    pub(crate) fn find_companion(&self, inode: &Inode) {
        if !self.has_companions(inode) || self.companion(inode).is_some() {
            return;
        }
        let Ok(dir) = self.inode(inode.raw(|r| r.i_pino.get())) else { return };
        if let Some(state) = dir.lock.try_read()
            && dir.is_dir()
            && !state.dead
        {
            self.named(inode, &dir, &state);
        }
    }

    /// Whether a file's name says that it may have one. Records in NVRAM ask for databases on every volume.
    pub(super) fn has_companions(&self, inode: &Inode) -> bool {
        let replaces = || self.deltas.repeats && inode.raw(file_class::replaces_another);
        inode.kind() == FileKind::Regular && (self.class(inode).is_journal() || replaces())
    }

    fn find_in(&self, inode: &Inode, dir: &Arc<Inode>, state: &InodeState) -> Result<Option<Ino>> {
        for name in inode.raw(file_class::companions) {
            let Some(entry) = Dir::of(self, dir).find(state, &name)? else { continue };
            let Ok(found) = self.inode(entry.ino) else { continue };
            if found.ino != inode.ino
                && found.kind() == FileKind::Regular
                && self.is_companion(inode, &found)
                && !found.raw(|r| r.inline().contains(Inline::DATA))
            {
                return Ok(Some(found.ino));
            }
        }
        Ok(None)
    }

    fn is_companion(&self, inode: &Inode, other: &Inode) -> bool {
        let (parent, names) = inode.raw(|r| (r.i_pino.get(), file_class::companions(r)));
        other.raw(|r| r.i_pino.get() == parent && names.iter().any(|name| file_class::is_named(r, name)))
            && other.nlink() == 1
            // Compressed files let blocks go without asking who needs them.
            && !self.is_compressed(other)
    }
}
