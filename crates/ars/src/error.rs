//! Why there is no tree, or no samples.

use thiserror::Error as ThisError;

/// Result of the crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no tree, or no samples.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The traces write to no file.
    #[error("no file is written in {0}: there is nothing to learn")]
    NoWrites(String),
    /// The volume.
    #[error(transparent)]
    Engine(#[from] medfs::Error),
    /// Making a volume.
    #[error(transparent)]
    Mkfs(#[from] medfs_mkfs::Error),
    /// The trace.
    #[error(transparent)]
    Trace(#[from] medfs_trace::Error),
}
