//! The tree: names, directories, attributes that have names, and the end of inodes that lost their last one.
//!
//! Locks: those of the inodes concerned, a parent before its child; see `fs/mod.rs`.

pub(crate) mod attr;
pub(crate) mod create;
pub(crate) mod dir;
pub(crate) mod inode_free;
pub(crate) mod name_journal;
pub(crate) mod namei;
pub(crate) mod rename;
pub(crate) mod xattr;
