//! Commits: what makes changes durable together, by the chain of fsynced nodes or by a checkpoint, and what finds them again.
//!
//! Invariants: those of `docs/ARCHITECTURE.md`, "Four rules".
//! Locks: `cp`, an inode's `wb`, `chain`; see `fs.rs`.

pub(crate) mod atomic;
pub(crate) mod checkpoint;
pub(crate) mod fsync;
pub(crate) mod group_commit;
pub(crate) mod name_journal;
pub(crate) mod recovery;
pub(crate) mod sync_flags;
