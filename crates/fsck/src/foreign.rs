//! Entries with another file's number: the end of the walk shows to which file they led.

use foldhash::HashSet;
use medfs_format::Ino;
use medfs_format::node::FileKind;
use std::collections::BTreeMap;

/// Entries with another file's number that are taken up in one pass.
const MOST_FOREIGN: usize = 1 << 16;

/// Entries that lead to a file whose one name is elsewhere: they led to other files.
#[derive(Default)]
pub(crate) struct Foreign {
    /// By directory and name: where they lead, and the kind of file that they say.
    pub(crate) entries: BTreeMap<(Ino, Vec<u8>), (Ino, Option<FileKind>)>,
    /// Files without a name that a repair will let entries lead to.
    pub(crate) led: HashSet<Ino>,
}

impl Foreign {
    pub(crate) fn add(&mut self, dir: Ino, name: &[u8], target: Ino, kind: Option<FileKind>) {
        if self.entries.len() < MOST_FOREIGN {
            self.entries.insert((dir, name.to_vec()), (target, kind));
        }
    }

    pub(crate) fn has(&self, dir: Ino, name: &[u8]) -> bool {
        self.entries.contains_key(&(dir, name.to_vec()))
    }
}
