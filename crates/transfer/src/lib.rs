//! Copies trees of files into a volume that is not mounted and out of one, and finds paths in it.
//!
//! - [`copy_in::Filler`] puts files of the host into a volume, with their holes, owners, modes, times,
//!   attributes and hard links;
//! - [`copy_out::HostDir`] is where files of a volume are brought to, under names that nothing can lead elsewhere;
//! - [`tarball`] fills a volume from a tar archive;
//! - [`paths`] finds, holds and lists what a path in a volume names;
//! - [`Metadata`] is what a file has besides its name and content, on either side.
//!
//! What is copied out of a volume, damaged or not, is walked by medfs-rescue.
#![forbid(unsafe_code)]

pub mod copy_in;
pub mod copy_out;
mod error;
mod metadata;
pub mod paths;
pub mod tarball;

pub use copy_in::{Filled, Filler};
pub use copy_out::HostDir;
pub use error::{Error, Result};
pub use metadata::Metadata;
pub use paths::Held;
