//! medfs: F2FS in user space, as a library.
//!
//! [`Volume`] is a mounted volume. See `docs/ARCHITECTURE.md` for the layers and `ranks.rs` for the lock order.
//!
//! ```
//! use medfs::{FileKind, Files, MountOptions, NewFile, SystemClock, Volume};
//! use medfs_device::MemDevice;
//! use medfs_mkfs::{MkfsOptions, format_volume};
//! use std::sync::Arc;
//!
//! // 64 MiB in memory; FileDevice is an image file or a block device.
//! let dev = Arc::new(MemDevice::new(64 << 8));
//! format_volume(&*dev, &MkfsOptions::new([7; 16], 0))?;
//!
//! let volume = Volume::open(dev.clone(), MountOptions::default(), Arc::new(SystemClock))?;
//! let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
//! let file = volume.create(volume.root(), b"notes", &new)?.ino;
//! volume.write(file, 0, b"hello")?;
//! volume.fsync(file, false)?;             // survives a power cut from here on
//! volume.release(file, 1);                // the hold that create took
//! volume.close()?;
//!
//! let volume = Volume::open(dev, MountOptions::default(), Arc::new(SystemClock))?;
//! let found = volume.lookup(volume.root(), b"notes")?;
//! let mut content = [0; 5];
//! assert_eq!((volume.read(found.ino, 0, &mut content)?, found.size), (5, 5));
//! assert_eq!(&content, b"hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod alone;
mod cluster;
mod commit;
mod content;
mod delta;
mod dir;
mod extents;
mod file_ops;
mod layout;
mod map;
mod mount;
mod past_damage;
mod ranks;
mod tree;
mod upkeep;
mod volume;
mod volume_stats;
mod xref;

pub mod ars;
pub mod convert;
pub mod error;
pub mod files;
pub mod options;
pub mod profile;
pub mod stats;
#[doc(hidden)]
pub mod testing;
pub mod types;
pub mod xattr_names;

pub use commit::nvram::{NvramContent, nvram_content, nvram_journal};
pub use commit::policy;
pub use commit::survivor::waiting_operations;
pub use error::{Error, Posix, Result};
pub use extents::{Extent, free_runs};
pub use file_ops::Folded;
pub use files::{Caller, Files};
pub use layout::LayoutWork;
pub use map::damage::LEFT_OUT;
pub use medfs_format::acl;
pub use medfs_format::compress::Algorithm;
pub use medfs_store::{AllocMode, Clock, ManualClock, SystemClock};
pub use mount::can_be_written;
pub use options::{
    Apps, Atime, CommitPolicy, CompactFiles, CompressMode, CompressOptions, DeltaMode, DurabilityMode,
    DurabilityPolicy, FsyncMode, Goal, InPlace, LossBounds, Mode, MountOptions, NvramOption, NvramPlace,
    PlacementPolicy, Recover, ReserveFiles, Survivor, VictimPolicy,
};
pub use past_damage::{Listed, PastDamage, Piece, Unreadable};
pub use profile::Hotness;
pub use stats::{
    AdaptiveStats, AppStats, CommitReason, CompressStats, DeltaStats, FpcStats, Group, HotnessStats,
    NvramStats, RestoreStats, Stats, SurvivorStats, Written, ZoneStats,
};
pub use tree::durability::ATTRIBUTE as DURABILITY_ATTRIBUTE;
pub use types::*;
pub use upkeep::idle::IdleReport;
pub use volume::{Volume, open_with_nvram, repair_with_nvram};
