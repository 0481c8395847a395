//! medfs: F2FS in user space, as a library.
//!
//! See `docs/ARCHITECTURE.md` for the layers and the lock order.
#![forbid(unsafe_code)]

pub mod acl;
pub mod clock;
pub mod error;
pub mod options;
pub mod types;
pub mod xattr_names;

pub use clock::{Clock, ManualClock, SystemClock};
pub use error::{Error, Posix, Result};
pub use options::{AllocMode, Atime, FsyncMode, InPlace, MountOptions, VictimPolicy};
pub use types::*;
