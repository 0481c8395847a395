//! The order in which locks are taken, from the outside in; the head of `fs/mod.rs` says what each is for. The store has its own: `cp` (2),
//! `chain` (7), and from 10 on.
//!
//! A thread that holds a lock takes none of a smaller number. A build with debug assertions checks it at every lock that is waited for, and
//! panics. Locks without a rank are leaves, and taken last.

use medfs_sync::Rank;

/// Which thread commits closed versions; held for all that a commit takes.
pub(crate) const COMMITTING: Rank = Rank::one(0, "committing");
pub(crate) const GC: Rank = Rank::one(1, "gc");
/// An inode's writeback; an fsync of several files holds several.
pub(crate) const WB: Rank = Rank::several(3, "wb");
pub(crate) const OPS: Rank = Rank::one(4, "ops");
pub(crate) const RENAMES: Rank = Rank::one(5, "renames");
/// A parent before its child, otherwise by inode number.
pub(crate) const INODE: Rank = Rank::several(6, "inode");
/// The ring of the journal in NVRAM: one record after the other. Inside it the order of the chain is asked for.
pub(crate) const NVRAM: Rank = Rank::one(6, "nvram");
/// The list of files that are made from others.
pub(crate) const REGISTRY: Rank = Rank::one(8, "registry");
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
