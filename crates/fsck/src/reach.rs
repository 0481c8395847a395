//! How inodes are come to, and what becomes of those that are named.

use crate::finding::{Altered, Reverted};
use crate::inode_layout::{KnownLayout, OldInodes};
use foldhash::{HashMap, HashSet};
use medfs_format::node::FileKind;
use medfs_format::{BlockAddr, Ino};
use std::collections::{BTreeMap, BTreeSet};

/// An entry: the directory that it is in, and its name there, which may be empty.
pub(crate) type Entry<'n> = (Ino, &'n [u8]);

/// How an inode was come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Via {
    /// The root, or a quota file: named by the superblock.
    Superblock,
    /// A directory entry, with the kind that it says.
    Dentry(Option<FileKind>),
    /// The orphan list.
    Orphan,
}

impl Via {
    /// The kind that a directory entry says.
    pub(crate) fn named(self) -> Option<FileKind> {
        if let Via::Dentry(kind) = self { kind } else { None }
    }
}

/// What became of an inode that was named.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Accepted(FileKind),
    Rejected,
}

/// How many names an inode has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Links {
    /// Entries that lead to it.
    pub(crate) found: u32,
    /// What its inode says.
    pub(crate) claimed: u32,
}

/// A directory that was accepted and not yet walked.
pub(crate) struct Pending {
    pub(crate) ino: Ino,
    pub(crate) parent: Ino,
}

/// What a file without a name says of itself.
pub(crate) struct Claim {
    pub(crate) kind: FileKind,
    pub(crate) parent: Ino,
    /// Its name; empty where it cannot be one.
    pub(crate) name: Vec<u8>,
    /// Whether parent and name can be believed.
    pub(crate) sure: bool,
    pub(crate) links: u32,
}

/// Which directories and files are made anew.
#[derive(Default)]
pub(crate) struct Anew {
    /// The directories in which the fsync log has names, each with the inode blocks that say so.
    pub(crate) homes: BTreeMap<Ino, Vec<BlockAddr>>,
    /// The numbers that inodes give for their directory, once they were wanted.
    pub(crate) parents: Option<HashSet<Ino>>,
    /// Those that a check leaves to the repair.
    pub(crate) planned: HashSet<Ino>,
    /// Files that are made anew of their nodes and blocks.
    pub(crate) files: BTreeSet<Ino>,
    /// Those among them of whose content nothing is left.
    pub(crate) emptied: BTreeSet<Ino>,
    /// Directories that are created again.
    pub(crate) remade: BTreeSet<Ino>,
    /// Where those are that have an entry, of both; and other damaged files, and directories that do not know it.
    pub(crate) places: HashMap<Ino, (Ino, Vec<u8>)>,
    /// How the inodes of the volume's files are divided, those of most files first, once that was wanted.
    pub(crate) layouts: Option<Vec<KnownLayout>>,
    /// Older copies of inodes, once they were wanted.
    pub(crate) old: Option<OldInodes>,
    /// Inodes to which the NAT does not lead, by the time of their last change, once they were wanted.
    pub(crate) unled: Option<HashMap<(u64, u32), Vec<BlockAddr>>>,
    /// Whether some of these files are compressed, as far as was asked.
    pub(crate) compresses: bool,
}

impl Anew {
    /// What of a volume is not as it was.
    pub(crate) fn altered(
        self,
        reverted: BTreeMap<Ino, Reverted>,
        short: BTreeSet<Ino>,
        doubted: BTreeSet<Ino>,
    ) -> Altered {
        let (rebuilt, emptied, remade) = (self.files, self.emptied, self.remade);
        Altered { rebuilt, emptied, remade, reverted, short, doubted, unkept: BTreeSet::new() }
    }
}
