//! medfs: F2FS in user space, as a library.
//!
//! [`Volume`] is a mounted volume. See `docs/ARCHITECTURE.md` for the layers and `fs.rs` for the lock order.
#![forbid(unsafe_code)]

mod bgres;
mod checkpoint;
mod compress;
mod create;
mod data;
mod delta;
mod dir;
mod dir_log;
mod durable;
mod evict;
mod fallocate;
mod file;
mod fs;
mod fsync;
mod gc;
mod idle;
mod index;
mod inode;
mod io;
mod mount;
mod namei;
mod nat;
mod node;
mod pages;
mod placement;
mod readahead;
mod recovery;
mod rename;
mod segment;
mod shared;
mod space;
mod trim;
mod volume;
mod windows;
mod writeback;
mod xattr;

pub mod acl;
pub mod clock;
pub mod convert;
pub mod error;
pub mod files;
pub mod hotness;
pub mod options;
pub mod stats;
pub mod types;
pub mod xattr_names;

pub use clock::{Clock, ManualClock, SystemClock};
pub use compress::options::{CompressMode, CompressOptions};
pub use delta::Folded;
pub use error::{Error, Posix, Result};
pub use files::{Caller, Files};
pub use hotness::{Hotness, HotnessStats};
pub use idle::Did;
pub use medfs_format::compress::Algorithm;
pub use options::{
    AllocMode, Atime, CompactFiles, DeltaMode, FsyncMode, InPlace, MountOptions, VictimPolicy,
};
pub use stats::{CompressStats, DeltaStats, FpcStats, RestoreStats, Stats, Written, ZoneStats};
pub use types::*;
pub use volume::Volume;
