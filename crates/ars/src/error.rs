//! Why there is no tree, or no samples.

use thiserror::Error as ThisError;

/// Result of the crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no tree, or no samples.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The traces write to no file.
    #[error("{0} writes no file: a tree cannot be trained on it")]
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
