//! The store's locks in the order in which they are taken, from the outside in. Those of the layers above
//! have other numbers.
//!
//! A thread that holds a lock takes none of a smaller number. A build with debug assertions checks it at
//! every lock that is waited for, and panics. Locks without a rank are leaves, and taken last.

use medfs_sync::Rank;

/// The checkpoint in force; its holder writes the next one.
pub(crate) const CP: Rank = Rank::one(2, "cp");
/// The order of fsynced nodes in their log.
pub(crate) const CHAIN: Rank = Rank::one(7, "chain");
/// The list of dirty nodes.
pub(crate) const DIRTY_NODES: Rank = Rank::one(10, "dirty nodes");
/// A node's content.
pub(crate) const NODE: Rank = Rank::several(11, "node");
pub(crate) const SEGS: Rank = Rank::one(12, "segs");
pub(crate) const NAT: Rank = Rank::one(13, "nat");
