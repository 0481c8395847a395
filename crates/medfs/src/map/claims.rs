//! What new records of pages are made from, for which a place is looked for.
//!
//! Locks: none; [`super::refs`] has its own.

use medfs_format::Ino;
use std::collections::{BTreeMap, HashMap};

/// Sources, by the page of which the record is, by file.
#[derive(Debug, Default)]
pub(super) struct Claims(HashMap<Ino, BTreeMap<u32, Vec<(Ino, u32)>>>);

impl Claims {
    /// Notes what the new record of a page names, where it names anything.
    pub(super) fn note(&mut self, ino: Ino, index: u32, sources: Vec<(Ino, u32)>) {
        if !sources.is_empty() {
            self.0.entry(ino).or_default().insert(index, sources);
        }
    }

    /// Takes what the new record of a page names.
    pub(super) fn take(&mut self, ino: Ino, index: u32) -> Option<Vec<(Ino, u32)>> {
        let pages = self.0.get_mut(&ino)?;
        let sources = pages.remove(&index);
        if pages.is_empty() {
            self.0.remove(&ino);
        }
        sources
    }

    /// Whether the new record of a page names a source.
    pub(super) fn names(&self, ino: Ino, index: u32, source: (Ino, u32)) -> bool {
        self.0.get(&ino).and_then(|pages| pages.get(&index)).is_some_and(|sources| sources.contains(&source))
    }

    /// The pages of a file that have one.
    pub(super) fn pages(&self, ino: Ino) -> Vec<u32> {
        self.0.get(&ino).map_or(Vec::new(), |pages| pages.keys().copied().collect())
    }

    /// The files that have such pages.
    pub(super) fn files(&self) -> impl Iterator<Item = Ino> {
        self.0.keys().copied()
    }
}
