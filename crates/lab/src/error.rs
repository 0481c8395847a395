//! What can go wrong in the lab, each in one sentence that names the thing.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// An error of a workload, an experiment or a report.
#[derive(Debug, Error)]
pub enum Error {
    /// The file system under test failed.
    #[error("{what}: {source}")]
    Engine {
        /// What was done.
        what: String,
        /// Why it failed.
        source: medfs::Error,
    },
    /// The operating system failed.
    #[error("{what}: {source}")]
    Io {
        /// What was done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// SQLite failed.
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    /// The volume could not be made.
    #[error("making the volume: {0}")]
    Mkfs(#[from] medfs_mkfs::Error),
    /// The files that a decision tree learns from could not be made.
    #[error("writing the files that are learned from: {0}")]
    Ars(Box<medfs_ars::Error>),
    /// There is nothing of the name that was asked for.
    #[error("{0}")]
    Unknown(String),
    /// A file of the lab says what it may not.
    #[error("{file}: {message}")]
    Spec {
        /// The file.
        file: String,
        /// What is wrong in it.
        message: String,
    },
    /// A result file cannot be read.
    #[error("{}: {message}", .file.display())]
    Result {
        /// The file.
        file: PathBuf,
        /// What is wrong in it.
        message: String,
    },
    /// An experiment on flash devices failed.
    #[error("{0}: {1}")]
    Flash(String, medfs_flash::FlashError),
    /// A workload found that what it stored is not what it reads.
    #[error("{0}")]
    Check(String),
}

/// A result of the lab.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of the engine, while `what` was done.
    pub fn engine(what: impl Into<String>) -> impl FnOnce(medfs::Error) -> Error {
        let what = what.into();
        move |source| Error::Engine { what, source }
    }

    /// An error of the operating system, while `what` was done.
    pub fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Error {
        let what = what.into();
        move |source| Error::Io { what, source }
    }
}
