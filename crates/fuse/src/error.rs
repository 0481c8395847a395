//! What can go wrong with a mount: one clear sentence each.

use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why a volume could not be mounted, unmounted or reached.
#[derive(Debug, Error)]
pub enum Error {
    /// A wrong option; the message names it and what would be accepted.
    #[error("{0}")]
    Option(String),
    /// The mount point is not usable.
    #[error("cannot mount on {path}: {source}")]
    Mountpoint {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// /dev/fuse cannot be opened.
    #[error("cannot open /dev/fuse: {0} (is the kernel's fuse module loaded, and the device present?)")]
    Device(io::Error),
    /// `mount(2)` failed.
    #[error("cannot mount {source_name} on {path}: {source}")]
    Mount {
        /// What was to be mounted.
        source_name: String,
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A directory of a mounted volume could not be opened.
    #[error("cannot open {path}, which must be a directory of a mounted volume: {source}")]
    Open {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `umount2(2)` failed.
    #[error("cannot unmount {path}: {source}")]
    Unmount {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `mount(2)` could not change a mount.
    #[error("cannot remount {path}: {source}")]
    Remount {
        /// The mount point.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// `fusermount3` failed or is missing.
    #[error("fusermount3 could not {what} {path}: {message}")]
    Fusermount {
        /// What it was to do.
        what: &'static str,
        /// The mount point.
        path: PathBuf,
        /// What it said.
        message: String,
    },
    /// There is no `fusermount3`, which mounts for all but root.
    #[error("fusermount3 is not installed (package fuse3): without it only root can mount")]
    NoFusermount,
    /// The kernel speaks a protocol this crate does not.
    #[error(
        "the kernel's FUSE protocol {major}.{minor} is not supported: Linux 5.4 (7.31) or newer is needed"
    )]
    Protocol {
        /// Its major version.
        major: u32,
        /// Its minor version.
        minor: u32,
    },
    /// The io_uring transport was asked for and cannot be had.
    #[error("transport=uring is not available: {0}")]
    Uring(String),
    /// The mount is in use.
    #[error("{0} is in use: close its files and leave its directories first")]
    Busy(PathBuf),
    /// The block device is mounted, or claimed by a program.
    #[error("{0} is in use by another program")]
    InUse(PathBuf),
    /// The path is not on a mounted medfs volume.
    #[error("{0} is not on a mounted medfs volume")]
    NotMedfs(PathBuf),
    /// Anything else the system reported.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

/// Result of this crate's public operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Wraps a system error with what was being done.
    pub(crate) fn io(what: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::Io { what, source }
    }
}
