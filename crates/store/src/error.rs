//! Errors of the store.

use medfs_device::{is_bad_by_map, is_behind_end};
use medfs_format::FormatError;
use std::io;
use thiserror::Error;

/// Errors below files.
#[derive(Debug, Error)]
pub enum Error {
    /// The device failed.
    #[error("{}", of_device(.0))]
    Io(#[from] io::Error),
    /// The volume uses something that is not supported; the message names it and the way out.
    #[error("{0}")]
    Incompatible(String),
    /// Bytes on the volume are wrong: which structure, where, which field.
    #[error("{0}")]
    Corrupt(FormatError),
    /// No room for what was asked.
    #[error("no space left on the volume")]
    NoSpace,
    /// The volume is read-only, from the start or since an error.
    #[error("the volume is read-only")]
    ReadOnly,
}

/// Whether the device is well, but the file system that it is a file of has no room.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// An error of a device, in words.
pub fn of_device(error: &io::Error) -> String {
    if is_full(error) || is_behind_end(error) || is_bad_by_map(error) {
        error.to_string()
    } else {
        format!("I/O error on the device: {error}")
    }
}

/// Result of what the store does.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<FormatError> for Error {
    fn from(e: FormatError) -> Error {
        match e {
            FormatError::Incompatible(message) => Error::Incompatible(message),
            corrupt @ FormatError::Corrupt { .. } => Error::Corrupt(corrupt),
        }
    }
}
