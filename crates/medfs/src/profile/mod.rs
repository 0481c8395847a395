//! What is known of a file that decides how it is stored: what its name says, how busy it is, how it is
//! written, and what became of its like.
//!
//! Purpose: one place that the layers of deltas, of clusters and of upkeep ask.
//! Invariant: nothing here is needed to read a volume; after a mount it is learned anew.
//! Locks: leaves.

pub(crate) mod file_class;
pub mod habits;
pub mod hotness;
pub(crate) mod kin;
