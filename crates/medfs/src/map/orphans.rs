//! Unlinked inodes that are still held: what every checkpoint lists.
//!
//! Invariant: there are never more than a checkpoint pack has room for.
//! Locks: the list is a leaf.

use crate::error::{Error, Result};
use medfs_format::checkpoint::max_orphans;
use medfs_format::{Geometry, Ino};
use medfs_sync::Mutex;
use std::collections::BTreeSet;

/// Inodes without a name that must be freed when nobody holds them.
pub(crate) struct Orphans {
    inos: Mutex<BTreeSet<Ino>>,
    most: usize,
}

impl Orphans {
    pub(crate) fn new(geo: &Geometry) -> Orphans {
        Orphans { inos: Mutex::default(), most: max_orphans(geo) }
    }

    /// Adds one; `NoSpace` where a checkpoint could not list it.
    pub(crate) fn add(&self, ino: Ino) -> Result<()> {
        let mut inos = self.inos.lock();
        if inos.len() >= self.most && !inos.contains(&ino) {
            return Err(Error::NoSpace);
        }
        inos.insert(ino);
        Ok(())
    }

    /// Adds one that mounting frees before it makes a checkpoint.
    pub(crate) fn add_at_mount(&self, ino: Ino) {
        self.inos.lock().insert(ino);
    }

    pub(crate) fn remove(&self, ino: Ino) {
        self.inos.lock().remove(&ino);
    }

    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.inos.lock().contains(&ino)
    }

    /// All of them, by number.
    pub(crate) fn list(&self) -> Vec<Ino> {
        self.inos.lock().iter().copied().collect()
    }
}
