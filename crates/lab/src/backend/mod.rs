//! Where a workload does its file operations: the engine in this process ([`volume`]), any directory ([`dir`]),
//! or plain memory ([`memory`]).
//!
//! A [`Target`] has the operations that applications use, by path and handle, and `pass`, which lets time go
//! by: the engine's clock moves, a directory ignores it. Workloads know nothing else, so that they run on
//! every mount point and in process alike, and [`crate::meter`] can stand between the two.
//!
//! Paths are relative, with `/`; directories are made by [`Target::mkdir`]. Errors are those of the system, or of the
//! engine as such.

pub mod dir;
pub mod memory;
pub mod volume;

use std::io;
use std::time::Duration;

/// An open file of a target. A handle that was closed is an error, not another file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Handle(pub u64);

/// The way a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// It must exist.
    Existing,
    /// It is made where it does not exist.
    Create,
    /// It is made, or cut to nothing.
    Truncate,
}

/// File operations of an application. All may be called from any thread; order is the caller's.
pub trait Target: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &str, how: Open) -> io::Result<Handle>;
    /// Closes it. Writes nothing by itself.
    fn close(&self, file: Handle) -> io::Result<()>;
    /// Reads at `offset` bytes; fewer bytes than asked for only at the end of the file.
    fn read(&self, file: Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `data` at `offset` bytes.
    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> io::Result<()>;
    /// Cuts or extends the file to `len` bytes.
    fn truncate(&self, file: Handle, len: u64) -> io::Result<()>;
    /// Size in bytes.
    fn size(&self, file: Handle) -> io::Result<u64>;
    /// Makes the file durable; with `datasync`, what is needed to read it.
    fn fsync(&self, file: Handle, datasync: bool) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn fsync_dir(&self, path: &str) -> io::Result<()>;
    /// Makes a directory; one that exists is left alone.
    fn mkdir(&self, path: &str) -> io::Result<()>;
    /// Renames a file, over another where there is one.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn unlink(&self, path: &str) -> io::Result<()>;
    /// Whether there is a file or directory of this name.
    fn exists(&self, path: &str) -> io::Result<bool>;
    /// Makes everything durable.
    fn sync(&self) -> io::Result<()>;
    /// Time passes in which the application does nothing.
    fn pass(&self, time: Duration) -> io::Result<()>;
}

/// Reads exactly `len` bytes at `offset`, or what there is of them.
pub fn read_at(target: &dyn Target, file: Handle, offset: u64, len: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    let read = target.read(file, offset, &mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Writes a whole file, and makes it durable where asked for.
pub fn write_file(target: &dyn Target, path: &str, content: &[u8], durable: bool) -> io::Result<()> {
    let file = target.open(path, Open::Truncate)?;
    target.write(file, 0, content)?;
    if durable {
        target.fsync(file, false)?;
    }
    target.close(file)
}

/// Reads a whole file.
pub fn read_file(target: &dyn Target, path: &str) -> io::Result<Vec<u8>> {
    let file = target.open(path, Open::Existing)?;
    let size = target.size(file)?;
    let content = read_at(target, file, 0, size as usize);
    target.close(file)?;
    content
}

/// The folder and the last name of a path.
pub(crate) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}
