//! What changed of each inode since it was asked last, for who counts what waits by groups of files.
//!
//! Pages and nodes are noted where they become dirty or clean, whoever makes them so. Who asks takes all of it.
//! Invariants: nothing is kept before [`Changes::begin`]; what is kept is of inodes that changed since it was taken
//! last, at most one entry for each. Locks: a leaf.

use crate::cache::HashMap;
use medfs_format::Ino;
use medfs_sync::Mutex;
use std::ops::AddAssign;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// What changed of one inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Change {
    /// Something of it has changed that no commit has taken along.
    pub waits: bool,
    /// Dirty pages more, or fewer.
    pub pages: i64,
    /// Dirty nodes more, or fewer.
    pub nodes: i64,
    /// Pages that operations changed since the last commit, a page once for each change.
    pub changed: u64,
    /// Dirty pages that became clean since the last commit, as they were written.
    pub placed: u64,
}

impl Change {
    /// What has changed is durable.
    fn settle(&mut self) {
        *self = Change { pages: self.pages, nodes: self.nodes, ..Change::default() };
    }
}

impl AddAssign for Change {
    fn add_assign(&mut self, more: Change) {
        self.waits |= more.waits;
        self.pages += more.pages;
        self.nodes += more.nodes;
        self.changed += more.changed;
        self.placed += more.placed;
    }
}

/// Changes by inode, where somebody asks for them.
#[derive(Debug, Default)]
pub struct Changes {
    by_ino: OnceLock<Mutex<HashMap<Ino, Change>>>,
    dirs_moved: AtomicU64,
}

impl Changes {
    /// Keeps what changes from now on.
    pub fn begin(&self) {
        self.by_ino.get_or_init(Mutex::default);
    }

    fn note(&self, ino: Ino, note: impl FnOnce(&mut Change)) {
        if let Some(by_ino) = self.by_ino.get() {
            note(by_ino.lock().entry(ino).or_default());
        }
    }

    /// An inode has so many dirty pages more, or fewer.
    pub fn pages(&self, ino: Ino, more: i64) {
        if more != 0 {
            self.note(ino, |change| {
                change.pages += more;
                change.waits |= more > 0;
            });
        }
    }

    /// An inode has so many dirty nodes more, or fewer.
    pub fn nodes(&self, ino: Ino, more: i64) {
        self.note(ino, |change| {
            change.nodes += more;
            change.waits |= more > 0;
        });
    }

    /// An operation changes a page of an inode.
    pub fn page_changed(&self, ino: Ino) {
        self.note(ino, |change| {
            change.changed += 1;
            change.waits = true;
        });
    }

    /// A dirty page of an inode has been written.
    pub fn page_placed(&self, ino: Ino) {
        self.note(ino, |change| change.placed += 1);
    }

    /// Whoever asks is to look at an inode again: it may belong to others now.
    pub fn look_again(&self, ino: Ino) {
        self.note(ino, |_| {});
    }

    /// A directory has another name or parent: what is known of paths is void.
    pub fn note_moved_dir(&self) {
        self.dirs_moved.fetch_add(1, Ordering::Release);
    }

    /// How often one had.
    pub fn dirs_moved(&self) -> u64 {
        self.dirs_moved.load(Ordering::Acquire)
    }

    /// All that changed until now is durable. No operation runs meanwhile.
    pub fn committed(&self) {
        if let Some(by_ino) = self.by_ino.get() {
            by_ino.lock().values_mut().for_each(Change::settle);
        }
    }

    /// All that changed of these inodes until now is durable. No operation runs meanwhile.
    pub fn committed_of(&self, inodes: &[Ino]) {
        if let Some(by_ino) = self.by_ino.get() {
            let mut by_ino = by_ino.lock();
            for ino in inodes {
                by_ino.get_mut(ino).into_iter().for_each(Change::settle);
            }
        }
    }

    /// What changed since it was taken last, by inode.
    pub fn take(&self) -> Vec<(Ino, Change)> {
        let Some(by_ino) = self.by_ino.get() else { return Vec::new() };
        let mut taken: Vec<(Ino, Change)> = std::mem::take(&mut *by_ino.lock()).into_iter().collect();
        taken.sort_unstable_by_key(|(ino, _)| *ino);
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_committed_does_not_wait_and_is_still_counted() {
        let changes = Changes::default();
        changes.pages(4, 1);
        assert_eq!(changes.take(), [], "nobody asked for it");
        changes.begin();
        changes.page_changed(4);
        changes.pages(4, 2);
        changes.nodes(5, 1);
        changes.pages(4, -2);
        changes.committed();
        changes.nodes(9, 1);
        let waits = Change { waits: true, nodes: 1, ..Change::default() };
        let durable = Change { nodes: 1, ..Change::default() };
        assert_eq!(changes.take(), [(4, Change::default()), (5, durable), (9, waits)]);
        assert_eq!(changes.take(), []);
    }
}
