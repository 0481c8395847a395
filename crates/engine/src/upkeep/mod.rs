//! Upkeep: what the engine does of its own accord: cleaning, restoring, measuring, discarding.
//!
//! Invariant: nothing here is needed for a promise; an error of reading ends the step, not the volume.
//! Locks: `gc`; see `fs.rs`.

pub(crate) mod gc;
pub(crate) mod idle;
pub(crate) mod restore;
pub(crate) mod rewrite_window;
pub(crate) mod trim;
