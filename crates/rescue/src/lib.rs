//! Brings files off damaged volumes.
//!
//! - [`Walk`] goes through directories past damage and hands what it finds to a [`Sink`]; what could not be
//!   brought is in its [`Outcome`].
//! - [`salvage::open`] makes a volume readable whose root, tables or directories are damaged, in a file beside it, and
//!   [`Walk::unnamed`] brings what no directory names any more.
//!
//! Invariants: the volume's device is only read. No walk follows what it was in before, so that it ends.
//! Names that would lead out of a directory go to no sink. Memory: a bit for each inode number, an entry for
//! each file of several names, for each directory that waits, or in a salvage for each directory, and for
//! each of the first [`MOST_FAILURES`] failures.
#![forbid(unsafe_code)]

pub mod doubt;
mod homes;
mod names;
mod outcome;
mod place;
pub mod salvage;
mod seen;
mod sink;
mod told;
mod unnamed;
mod walk;

pub use outcome::{Failure, Lost, MOST_FAILURES, MOST_RANGES, Outcome};
pub use place::{MOST_LEVELS, Place};
pub use sink::{Meta, Settled, Sink};
pub use told::{SHORT, why_no_target};
pub use unnamed::missing_inodes;
pub use walk::Walk;
