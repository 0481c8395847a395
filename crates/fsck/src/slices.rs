//! Bases made of blocks of other files: judged when the walk is through, as those files may come later than
//! the one that needs them.
//!
//! A file some of whose bases have slices of another file's blocks is that one's dependent. None is both a
//! dependent and a source for others, so that nothing goes round in a circle; slices of a file's own blocks
//! do not matter in that.
//!
//! Memory: three bits for each node id, on volumes that have slices at all.

use foldhash::HashSet;
use medfs_format::delta::RawSlice;
use medfs_format::sit::{set_bit, test_bit};
use medfs_format::{Ino, Nid};

/// A set of node ids.
#[derive(Default)]
pub(crate) struct Nids(Vec<u8>);

impl Nids {
    pub(crate) fn contains(&self, nid: Nid) -> bool {
        (nid as usize) < self.0.len() * 8 && test_bit(&self.0, nid as usize)
    }

    /// `nid` is one that the volume can have.
    pub(crate) fn insert(&mut self, nid: Nid) {
        if nid as usize >= self.0.len() * 8 {
            self.0.resize(nid as usize / 8 + 1, 0);
        }
        set_bit(&mut self.0, nid as usize);
    }

    pub(crate) fn remove(&mut self, nid: Nid) {
        if self.contains(nid) {
            self.0[nid as usize / 8] &= !(0x80 >> (nid % 8));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Nid> + '_ {
        let bytes = self.0.iter().enumerate().filter(|(_, byte)| **byte != 0);
        bytes.flat_map(|(at, _)| at as Nid * 8..at as Nid * 8 + 8).filter(|&nid| self.contains(nid))
    }
}

/// What the walk has seen of slices.
pub(crate) struct Slices {
    max_nid: Nid,
    /// Files with records that have slices.
    pub(crate) waiting: Nids,
    /// Those of them that need blocks of other files.
    pub(crate) dependents: Nids,
    /// The files whose blocks they need.
    pub(crate) sources: Nids,
    /// Nodes that are replayed.
    pub(crate) logged: HashSet<Nid>,
}

impl Slices {
    pub(crate) fn new(max_nid: Nid) -> Slices {
        Slices {
            max_nid,
            waiting: Nids::default(),
            dependents: Nids::default(),
            sources: Nids::default(),
            logged: HashSet::default(),
        }
    }

    /// Tells which nodes are replayed by whoever mounts the volume. Where a file's inode is among them, a
    /// block that its old records need may have been overwritten since: nobody will read them any more.
    pub(crate) fn expect_replay(&mut self, nids: &HashSet<Nid>) {
        self.logged.clone_from(nids);
    }

    /// Notes a record of a file.
    pub(crate) fn note(&mut self, ino: Ino, slices: &[RawSlice]) {
        self.waiting.insert(ino);
        for source in slices.iter().map(|s| s.ino.get()).filter(|&s| s != ino && s < self.max_nid) {
            self.dependents.insert(ino);
            self.sources.insert(source);
        }
    }

    /// Whether some record seen so far needs a block of a file.
    pub(crate) fn is_source(&self, ino: Ino) -> bool {
        self.sources.contains(ino)
    }
}
