//! Copies trees of files into a volume that is not mounted, and finds paths in it.
//!
//! - [`copy_in::Filler`] puts files of the host into a volume, with their holes, owners, modes, times,
//!   attributes and hard links;
//! - [`tarball`] fills a volume from a tar archive;
//! - [`paths`] finds, holds and lists what a path in a volume names;
//! - [`Metadata`] is what a file has besides its name and content, on either side.
//!
//! What is copied out of a volume, damaged or not, is walked by medfs-rescue.
#![forbid(unsafe_code)]

pub mod copy_in;
mod error;
mod metadata;
pub mod paths;
pub mod tarball;

pub use copy_in::{Filled, Filler};
pub use error::{Error, Result};
pub use metadata::Metadata;
pub use paths::Held;
