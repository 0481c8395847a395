//! The order in which locks are taken, from the outside in:
//!
//! - 0: `committing`, the turn of the thread that commits closed versions.
//! - 1: `gc`, one cleaning at a time. 2: `cp` of the store, one checkpoint at a time.
//! - 3: `wb` of an inode: one writeback of the file at a time.
//! - 4: `ops` of the map: shared by every operation that changes the volume, exclusive for a checkpoint. Never
//!   taken twice by a thread.
//! - 5: `renames` of the tree: one rename between two directories at a time. `counting`: what changed is counted for
//!   its app.
//! - 6: inode locks, a parent before its child, otherwise by inode number. The ring of records in NVRAM.
//! - 7: `chain` of the store: the order of fsynced nodes in their log.
//! - 8: the index of references. 9: what a file's compact pages hold.
//! - 10 and more: the store's. `nodes` before `segs` before `nat`, space, `io`.
//! - None: leaves. Of the tree: the journal of names. Of the cross references: the retained files. Of content:
//!   references to blocks, pages, costs. Of the map: inodes, orphans, what happened since the last checkpoint,
//!   damage. Of the commit layer: the queue of group commits. Of upkeep: the restorer, activity. Hotness.
//!
//! The index of references is held while references and nodes are asked. A checkpoint that an fsync needs is
//! made after the fsync has given back its locks.
//!
//! A thread that holds a lock takes none of a smaller number. A build with debug assertions checks it at
//! every lock that is waited for, and panics. Locks without a rank are leaves, and taken last.

use medfs_sync::Rank;

/// Which thread commits closed versions; held for all that a commit takes.
pub(crate) const COMMITTING: Rank = Rank::one(0, "committing");
pub(crate) const GC: Rank = Rank::one(1, "gc");
/// An inode's writeback; an fsync of several files holds several.
pub(crate) const WB: Rank = Rank::several(3, "wb");
pub(crate) const OPS: Rank = Rank::one(4, "ops");
pub(crate) const RENAMES: Rank = Rank::one(5, "renames");
/// What changed is taken, and counted for its app; inodes are looked up meanwhile.
pub(crate) const COUNTING: Rank = Rank::one(5, "counting");
/// A parent before its child, otherwise by inode number.
pub(crate) const INODE: Rank = Rank::several(6, "inode");
/// The ring of the journal in NVRAM: one record after the other. Inside it the order of the chain is asked for.
pub(crate) const NVRAM: Rank = Rank::one(6, "nvram");
/// The list of files that are made from others.
pub(crate) const REF_INDEX: Rank = Rank::one(8, "reference index");
/// What a file's compact pages hold, and what is known of a log.
pub(crate) const DELTAS: Rank = Rank::several(9, "compact map");

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_sync::{Ranked, RwLock};

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "only debug assertions check the order")]
    #[should_panic(expected = "takes locks out of order: shared ops")]
    fn an_operation_that_begins_under_an_inode_s_lock_panics() {
        let (ops, inode) = (RwLock::new(()).ranked(OPS), RwLock::new(()).ranked(INODE));
        let _inode = inode.write();
        let _ops = ops.read();
    }
}
