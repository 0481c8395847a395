//! medfs: F2FS in user space, as a library.
//!
//! See `docs/ARCHITECTURE.md` for the layers and the lock order.
#![forbid(unsafe_code)]

pub mod error;
pub mod types;

pub use error::{Error, Posix, Result};
pub use types::*;
