//! The FUSE mount of a volume, or of anything else that is [`medfs::Files`]: it translates the kernel's
//! requests and nothing else.
//!
//! # Why an own protocol layer
//!
//! No library covers what the mount needs. fuser has no O_TMPFILE, SYNCFS or io_uring and mounts only as `fuse`;
//! fuse-backend-rs has no copy_file_range; the ones over io_uring are async and serve nothing else, so each would have
//! meant two dispatchers. The protocol is small: structures (`abi`), decoding (`request`), one dispatcher
//! (`dispatch`) and two transports (`transport`) behind one trait.
//!
//! # What the kernel is told
//!
//! * **Names and attributes are kept long**: the daemon is the only writer. What the engine changes behind the
//!   kernel's back, a file's block count when the page cache is written back, is invalidated once a second.
//! * **OPEN is served** only because of the flags that forbid it (immutable, append-only), of which the
//!   kernel does not know, and to keep files that are written synchronously out of the page cache. Nothing is
//!   kept for an open file; its handle says how it was opened.
//! * **OPENDIR, FLUSH and ACCESS are not** (`ENOSYS`, answered once): the kernel does without. References are
//!   counted by lookups; O_TRUNC arrives as SETATTR.
//! * **Writeback cache**: sizes and times of regular files are the kernel's. Questions about what is on disk
//!   (SEEK_DATA, SEEK_HOLE, the atomic-write ioctls) first make it write the file back, see `pool`. What it
//!   may hold, and what becomes of writes where room is short, see `room`.
//! * **Set-id bits and capabilities** (HANDLE_KILLPRIV_V2): the kernel says when a write or truncation clears them.
//! * **The umask is left to us** (DONT_MASK), because a default ACL replaces it.
//! * **COLLAPSE_RANGE and INSERT_RANGE** are refused by the kernel itself before they reach a FUSE daemon.
// What only requests over io_uring need is left unused where its library knows no such processor.
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "riscv64")),
    allow(dead_code)
)]
#![deny(unsafe_code)]

mod abi;
mod agreed;
mod atomic;
mod config;
mod connection;
pub mod control;
mod credentials;
mod dirty;
mod dispatch;
mod error;
mod mount;
mod notify;
mod pm_qos;
mod remounts;
mod request;
mod room;
mod session;
mod transport;
mod worker_pool;
mod writers;

pub use config::{MountConfig, OPTIONS, Transport};
pub use error::{Error, Result};
pub use mount::{BlockMount, remount};
pub use rustix::mount::MountFlags;
pub use session::{Session, SessionInfo, Unmounter, mount, mount_block};
