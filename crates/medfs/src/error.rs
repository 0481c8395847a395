//! Errors of the engine, and the one place where they become `errno`.

use medfs_format::FormatError;
use medfs_format::acl::AclError;
use std::io;
use thiserror::Error;

/// What went wrong with an operation.
#[derive(Debug, Error)]
pub enum Error {
    /// The device failed.
    #[error("{}", medfs_store::of_device(.0))]
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
    /// A wrong mount option or argument; the message names it and what would be accepted.
    #[error("{0}")]
    Invalid(String),
    /// The operating system refused an operation on what it serves in a volume's place (see [`crate::Files`]).
    #[error("{0}")]
    System(io::Error),
    /// What POSIX reports by number and needs no words here.
    #[error("{0}")]
    Posix(Posix),
}

/// Errors that POSIX operations report for ordinary reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[allow(missing_docs)]
pub enum Posix {
    #[error("no such file or directory")]
    NotFound,
    #[error("file exists")]
    Exists,
    #[error("not a directory")]
    NotDirectory,
    #[error("is a directory")]
    IsDirectory,
    #[error("directory not empty")]
    NotEmpty,
    #[error("operation not permitted")]
    NotPermitted,
    #[error("permission denied")]
    AccessDenied,
    #[error("file name too long")]
    NameTooLong,
    #[error("file too large")]
    FileTooLarge,
    #[error("too many links")]
    TooManyLinks,
    #[error("invalid argument")]
    InvalidArgument,
    #[error("not supported")]
    NotSupported,
    #[error("no such attribute")]
    NoAttribute,
    #[error("result does not fit the buffer")]
    Range,
    #[error("argument list too long")]
    TooBig,
    #[error("no such device or address")]
    NoSuchAddress,
    #[error("no node table entry leads to it")]
    Stale,
    #[error("cross-device link")]
    CrossDevice,
    #[error("resource busy")]
    Busy,
    #[error("interrupted")]
    Interrupted,
}

/// Result of engine operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<FormatError> for Error {
    fn from(e: FormatError) -> Error {
        match e {
            FormatError::Incompatible(message) => Error::Incompatible(message),
            corrupt @ FormatError::Corrupt { .. } => Error::Corrupt(corrupt),
        }
    }
}

impl From<AclError> for Error {
    fn from(e: AclError) -> Error {
        match e {
            AclError::Version => Posix::NotSupported.into(),
            AclError::Invalid(_) => Posix::InvalidArgument.into(),
        }
    }
}

impl From<medfs_store::Error> for Error {
    fn from(e: medfs_store::Error) -> Error {
        match e {
            medfs_store::Error::Io(e) => Error::Io(e),
            medfs_store::Error::Incompatible(message) => Error::Incompatible(message),
            medfs_store::Error::Corrupt(e) => Error::Corrupt(e),
            medfs_store::Error::NoSpace => Error::NoSpace,
            medfs_store::Error::ReadOnly => Error::ReadOnly,
        }
    }
}

impl From<Posix> for Error {
    fn from(e: Posix) -> Error {
        Error::Posix(e)
    }
}

impl Error {
    /// The Linux error number (positive) that a system call would return.
    pub fn errno(&self) -> i32 {
        match self {
            Error::Io(_) => 5,
            Error::Incompatible(_) => 95,
            Error::Corrupt(_) => 117,
            Error::NoSpace => 28,
            Error::ReadOnly => 30,
            Error::Invalid(_) => 22,
            Error::System(e) => e.raw_os_error().unwrap_or(5),
            Error::Posix(p) => match p {
                Posix::NotFound => 2,
                Posix::Exists => 17,
                Posix::NotDirectory => 20,
                Posix::IsDirectory => 21,
                Posix::NotEmpty => 39,
                Posix::NotPermitted => 1,
                Posix::AccessDenied => 13,
                Posix::NameTooLong => 36,
                Posix::FileTooLarge => 27,
                Posix::TooManyLinks => 31,
                Posix::InvalidArgument => 22,
                Posix::NotSupported => 95,
                Posix::NoAttribute => 61,
                Posix::Range => 34,
                Posix::TooBig => 7,
                Posix::NoSuchAddress => 6,
                Posix::Stale => 116,
                Posix::CrossDevice => 18,
                Posix::Busy => 16,
                Posix::Interrupted => 4,
            },
        }
    }
}
