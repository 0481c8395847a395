//! The map: from an inode and a page to the block that holds it.
//!
//! Purpose: inodes in memory and the tree of nodes under each. It knows addresses, not what lies at them.
//! Locks: an inode's lock is held by callers; see `fs.rs`.

pub(crate) mod inode;
pub(crate) mod node_tree;
