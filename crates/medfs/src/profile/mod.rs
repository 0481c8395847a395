//! What is known of a file that decides how it is stored: what its name says, how busy it is, how it is
//! written, and what became of its like.
//!
//! Purpose: one record of a file ([`file_profile`]), in one table ([`table`]), that placement and the layers of
//! deltas, of clusters and of upkeep ask.
//! Invariant: nothing here is needed to read a volume; after a mount it is learned anew.
//! Locks: leaves.

pub(crate) mod file_class;
pub(crate) mod file_profile;
pub(crate) mod hotness;
pub(crate) mod judging;
pub(crate) mod kin;
pub(crate) mod samples;
pub(crate) mod table;

pub(crate) use file_profile::Flushed;
pub use file_profile::{Known, Synced, Wrote};
pub use hotness::{FEW_WRITES, Hotness};
pub use judging::{Standing, is_judged_at};
pub use samples::{Fate, FileSample};
pub use table::Profiles;
