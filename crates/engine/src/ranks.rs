//! The order in which locks are taken, from the outside in; the head of `fs.rs` says what each is for.
//!
//! A thread that holds a lock takes none of a smaller number. The feature `schedule` of medfs-sync checks it at every lock that is
//! waited for. Locks without a rank are leaves, and taken last.

use medfs_sync::Rank;

pub(crate) const GC: Rank = Rank::one(1, "gc");
pub(crate) const CP: Rank = Rank::one(2, "cp");
/// An inode's writeback; an fsync of several files holds several.
pub(crate) const WB: Rank = Rank::several(3, "wb");
pub(crate) const OPS: Rank = Rank::one(4, "ops");
pub(crate) const RENAMES: Rank = Rank::one(5, "renames");
/// A parent before its child, otherwise by inode number.
pub(crate) const INODE: Rank = Rank::several(6, "inode");
pub(crate) const CHAIN: Rank = Rank::one(7, "chain");
/// The list of files that are made from others.
pub(crate) const REGISTRY: Rank = Rank::one(8, "registry");
/// What a file's compact pages hold, and what is known of a log.
pub(crate) const DELTAS: Rank = Rank::several(9, "compact map");
/// The list of dirty nodes.
pub(crate) const DIRTY_NODES: Rank = Rank::one(10, "dirty nodes");
/// A node's content.
pub(crate) const NODE: Rank = Rank::several(11, "node");
pub(crate) const SEGS: Rank = Rank::one(12, "segs");
pub(crate) const NAT: Rank = Rank::one(13, "nat");
