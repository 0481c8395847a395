//! Why a copy failed: what was being copied, then the cause.

use std::io;

/// Errors of copies. [`std::error::Error::source`] leads from what was being done to its cause.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation on the volume failed.
    #[error(transparent)]
    Volume(#[from] medfs::Error),
    /// Reading the host's files, or the archive, failed.
    #[error(transparent)]
    Host(#[from] io::Error),
    /// What is asked for cannot be done, with the reason.
    #[error("{0}")]
    Refused(String),
    /// Something failed while this was being done.
    #[error("{what}")]
    While {
        /// A path, or what was being done.
        what: String,
        /// Why it failed.
        source: Box<Error>,
    },
}

/// Result of a copy.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn refused(what: impl Into<String>) -> Error {
        Error::Refused(what.into())
    }

    /// The error of the volume that this one comes from, where it comes from one.
    pub fn of_volume(&self) -> Option<&medfs::Error> {
        match self {
            Error::Volume(error) => Some(error),
            Error::While { source, .. } => source.of_volume(),
            Error::Host(_) | Error::Refused(_) => None,
        }
    }

    /// Whether the volume has no file of that name.
    pub fn is_not_found(&self) -> bool {
        matches!(self.of_volume(), Some(medfs::Error::Posix(medfs::Posix::NotFound)))
    }

    /// Whether the volume has no room.
    pub fn is_no_space(&self) -> bool {
        matches!(self.of_volume(), Some(medfs::Error::NoSpace))
    }
}

impl From<rustix::io::Errno> for Error {
    fn from(errno: rustix::io::Errno) -> Error {
        Error::Host(errno.into())
    }
}

impl From<walkdir::Error> for Error {
    fn from(error: walkdir::Error) -> Error {
        let path = error.path().map(|path| path.display().to_string());
        let cause = Error::Host(
            error.into_io_error().unwrap_or_else(|| io::Error::other("a loop of symbolic links")),
        );
        match path {
            Some(what) => Error::While { what, source: Box::new(cause) },
            None => cause,
        }
    }
}

/// Says what was being done when something failed.
pub(crate) trait During<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> During<T> for std::result::Result<T, E> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error::While { what: what(), source: Box::new(error.into()) })
    }
}

/// A path as a message shows it. Control characters of names that others chose do not reach a terminal.
pub(crate) fn shown(path: &[u8]) -> String {
    let text = String::from_utf8_lossy(path);
    if text.chars().any(char::is_control) { text.escape_debug().to_string() } else { text.into_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn the_cause_lies_behind_what_was_being_done() {
        let failed: Result<()> = Err(medfs::Error::NoSpace).during(|| "dir/file".into());
        let error = failed.during(|| "dir".into()).unwrap_err();
        assert_eq!(error.to_string(), "dir");
        assert_eq!(error.source().expect("a cause").to_string(), "dir/file");
        assert!(error.is_no_space() && !error.is_not_found());
        assert!(!Error::refused("not a tar archive").is_no_space());
    }

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown("zwei Wörter".as_bytes()), "zwei Wörter");
        assert_eq!(shown(b"a\x1b[2Jb"), "a\\u{1b}[2Jb");
    }
}
