//! Why a column could not be run.

use medfs_flash::FlashError;
use std::io;
use thiserror::Error as ThisError;

/// Result of the crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a column could not be run: each a sentence, with its cause as the source.
#[derive(Debug, ThisError)]
pub enum Error {
    /// The request is not available or makes no sense; the sentence says what would.
    #[error("{0}")]
    Refused(String),
    /// The step that failed, and why.
    #[error("{what}")]
    Within {
        /// What was being done.
        what: String,
        /// Why it failed.
        source: Box<Error>,
    },
    /// A program of the system is not installed.
    #[error("{0} is not installed")]
    NotInstalled(String),
    /// A program of the system failed.
    #[error("{program} failed: {said}")]
    Program {
        /// Its name.
        program: String,
        /// Its last words.
        said: String,
    },
    /// The system.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The volume, or a directory in its place.
    #[error(transparent)]
    Engine(#[from] medfs::Error),
    /// Making a volume.
    #[error(transparent)]
    Mkfs(#[from] medfs_mkfs::Error),
    /// The trace.
    #[error(transparent)]
    Trace(#[from] medfs_trace::Error),
    /// The flash device.
    #[error(transparent)]
    Flash(#[from] FlashError),
    /// A result.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
}

impl Error {
    pub(crate) fn refused(sentence: impl Into<String>) -> Error {
        Error::Refused(sentence.into())
    }
}

/// Says what was being done.
pub(crate) trait Context<T> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| Error::Within { what: what(), source: Box::new(source.into()) })
    }
}
