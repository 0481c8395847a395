//! The order in which locks are taken, from the outside in; the head of `fs.rs` says what each is for. The store has its own: `cp` (2),
//! `chain` (7), and from 10 on.
//!
//! A thread that holds a lock takes none of a smaller number. The feature `schedule` of medfs-sync checks it at every lock that is
//! waited for. Locks without a rank are leaves, and taken last.

use medfs_sync::Rank;

pub(crate) const GC: Rank = Rank::one(1, "gc");
/// An inode's writeback; an fsync of several files holds several.
pub(crate) const WB: Rank = Rank::several(3, "wb");
pub(crate) const OPS: Rank = Rank::one(4, "ops");
pub(crate) const RENAMES: Rank = Rank::one(5, "renames");
/// A parent before its child, otherwise by inode number.
pub(crate) const INODE: Rank = Rank::several(6, "inode");
/// The list of files that are made from others.
pub(crate) const REGISTRY: Rank = Rank::one(8, "registry");
/// What a file's compact pages hold, and what is known of a log.
pub(crate) const DELTAS: Rank = Rank::several(9, "compact map");
