//! Errors of the flash device.

use medfs_ftl::FtlError;
use std::io;
use thiserror::Error;

/// Result of the crate.
pub type Result<T> = std::result::Result<T, FlashError>;

/// Errors of a flash device.
#[derive(Debug, Error)]
pub enum FlashError {
    /// The request makes no sense; the sentence says what would.
    #[error("{0}")]
    Usage(String),
    /// A device's file is not one, or damaged: which, and how.
    #[error("{0}: {1}")]
    Device(String, String),
    /// The translation layer.
    #[error("{0}: {1}")]
    Ftl(String, FtlError),
    /// A trace: file, line and what is wrong there.
    #[error("{0}, line {1}: {2}")]
    Trace(String, u64, String),
    /// A device that another process uses, which the sentence names.
    #[error("{0}")]
    InUse(io::Error),
    /// A file.
    #[error("{0}: {1}")]
    Io(String, io::Error),
}

impl From<FlashError> for io::Error {
    fn from(error: FlashError) -> io::Error {
        let kind = match &error {
            FlashError::Usage(_) => io::ErrorKind::InvalidInput,
            FlashError::Ftl(_, FtlError::WornOut) => io::ErrorKind::StorageFull,
            FlashError::Ftl(_, FtlError::OutOfRange) => io::ErrorKind::InvalidInput,
            FlashError::Device(..) | FlashError::Ftl(..) | FlashError::Trace(..) => {
                io::ErrorKind::InvalidData
            }
            FlashError::InUse(e) | FlashError::Io(_, e) => e.kind(),
        };
        io::Error::new(kind, error.to_string())
    }
}
