//! How inodes are come to, and what becomes of those that are named.

use medfs_format::Ino;
use medfs_format::node::FileKind;

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
