//! The pages of an open atomic write: a version of a file beside the one that readers see.
//!
//! Invariant: every page has a reservation, in the file where it was a hole and beside the file's own blocks otherwise.
//! Locks: the inode's.

use medfs_format::Block;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What an open atomic write keeps aside.
#[derive(Debug, Default)]
pub(crate) struct Staged {
    pub(crate) pages: BTreeMap<u64, Arc<Block>>,
    /// Size the file will have.
    pub(crate) size: u64,
    /// Pages that were holes: what is reserved for them is in the file.
    pub(crate) new: BTreeSet<u64>,
}

impl Staged {
    /// Blocks reserved beside those that the file's pages have.
    pub(crate) fn reserved(&self) -> u64 {
        (self.pages.len() - self.new.len()) as u64
    }
}
