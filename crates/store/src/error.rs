//! Errors of the store.

use medfs_format::FormatError;
use std::io;
use thiserror::Error;

/// What went wrong below files.
#[derive(Debug, Error)]
pub enum Error {
    /// The device failed.
    #[error("I/O error on the device: {0}")]
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
