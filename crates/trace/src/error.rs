//! What can go wrong with a trace: one clear sentence each.

use std::io;
use thiserror::Error;

/// Why a trace could not be written, read, imported or replayed.
#[derive(Debug, Error)]
pub enum Error {
    /// The system refused.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The file is something else.
    #[error("not a trace of medfs: {0}")]
    Foreign(String),
    /// The trace was written by a newer medfs.
    #[error("the trace has version {0} of the format, this medfs reads version {expected}", expected = crate::format::VERSION)]
    Version(u32),
    /// Bytes that do not agree with the format.
    #[error("the trace is damaged at byte {at}: {what}")]
    Corrupt {
        /// Where the frame begins.
        at: u64,
        /// What is wrong with it.
        what: String,
    },
    /// A line that does not follow its format.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong with it.
        what: String,
    },
    /// An argument; the message names it and what would be accepted.
    #[error("{0}")]
    Invalid(String),
    /// The file system failed beneath the trace.
    #[error("{what}: {source}")]
    Files {
        /// What was being done.
        what: String,
        /// What it said.
        source: medfs::Error,
    },
}

/// Result of this crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps a system error with what was being done.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }

    /// Wraps a file system's error with what was being done.
    pub(crate) fn files(what: impl Into<String>) -> impl FnOnce(medfs::Error) -> Error {
        move |source| Error::Files { what: what.into(), source }
    }
}
