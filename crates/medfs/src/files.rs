//! The operations on files: [`Files`].
//!
//! Purpose: the FUSE mount, the recorder of traces, their replay, the lab and the tests speak to [`Files`], so that
//! each of them serves a [`Volume`] and anything else that behaves like one (a directory of the machine, a wrapper that
//! watches, the tests' model).
//!
//! Invariants: what returns the attributes of a named inode has taken one hold for the caller. An inode number names
//! one file from its first hold to its last release; [`Attr::generation`] tells apart those that have had the same
//! number.
//!
//! Locks: none here.

use crate::error::{Posix, Result};
use crate::types::*;
use crate::volume::Volume;
use std::time::Duration;

/// On whose behalf the next operations of this thread are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Caller {
    /// Thread, as the kernel numbers it; 0 where nobody in particular is (the page cache writing back).
    pub thread: u32,
}

/// The operations of a file system, by inode number. [`Volume`] is one; so are a directory of the machine, what records
/// a trace, and the tests' model.
///
/// Errors of a volume are those that [`Volume`] states.
pub trait Files: Send + Sync {
    /// The volume that serves this in the end, where one does: for what only a volume can.
    fn volume(&self) -> Option<&Volume> {
        None
    }

    /// What this thread does from now on is on behalf of `caller`. Front ends that know it say so.
    fn on_behalf(&self, _caller: Caller) {}

    /// Inode number of the root directory.
    fn root(&self) -> Ino;

    /// Keeps an inode alive, were it unlinked, until it is released as often.
    fn hold(&self, ino: Ino, count: u64) -> Result<()>;

    /// Gives holds back; the last one of an unlinked inode frees it.
    fn release(&self, ino: Ino, count: u64);

    /// Finds a name. The inode returned is held once.
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;

    /// Attributes of an inode.
    fn getattr(&self, ino: Ino) -> Result<Attr>;

    /// Changes attributes.
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr>;

    /// A file is opened with the flags of `open(2)`; its attributes. Nothing is kept for it.
    fn open(&self, ino: Ino, _flags: i32) -> Result<Attr> {
        self.getattr(ino)
    }

    /// One of those who had opened a file has closed it.
    fn close(&self, _ino: Ino) {}

    /// Makes a file, directory, device, FIFO or socket. The inode returned is held once.
    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr>;

    /// Makes a file without a name. It is held once and freed with the last release, unless linked before.
    fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr>;

    /// Makes a symbolic link. The inode returned is held once.
    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr>;

    /// Target of a symbolic link.
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;

    /// Gives an inode another name. The inode returned is held once.
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr>;

    /// Removes a name of a file that is no directory.
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Removes an empty directory.
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;

    /// Moves a name, in one step that is atomic over a crash.
    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()>;

    /// Lists a directory from a position on (0: the start) until `emit` returns `false`, which means that the entry was
    /// not taken.
    fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;

    /// Reads bytes; fewer than asked for only at the end of the file.
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;

    /// Writes bytes; fewer than given only where space ran out in the middle.
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize>;

    /// Like [`Files::write`] for a page cache above that keeps the file's times itself: mtime and ctime stay as they
    /// are until it sets them. Without this, pages written back long after they were modified would make a new mtime
    /// each time, and each fsync an inode block that nobody needs.
    fn write_cached(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.write(ino, offset, data)
    }

    /// `fallocate(2)`.
    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()>;

    /// Finds data or a hole; `NoSuchAddress` where there is none, or beyond the end.
    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64>;

    /// Copies bytes between files; returns how many.
    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64>;

    /// Makes a file durable: content and attributes, or, with `datasync`, all but times. With
    /// `durability=adaptive` it returns at once, and the volume is committed as a whole within the bounds of
    /// [`crate::LossBounds`]; after a failed commit it is an error.
    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()>;

    /// As `fsync`, and never put off: for files opened with `O_SYNC`.
    fn fsync_now(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.fsync(ino, datasync)
    }

    /// As [`Files::fsync`] of each of these files, in fewer blocks where little of each is to be written.
    /// After power loss each file is as some fsync left it or as it is now; all are as now once this returns.
    fn fsync_many(&self, files: &[Ino], datasync: bool) -> Result<()> {
        files.iter().try_for_each(|ino| self.fsync(*ino, datasync))
    }

    /// Value of an extended attribute, by its full name (`user.x`).
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;

    /// Full names of the extended attributes.
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;

    /// Sets an extended attribute.
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;

    /// Removes an extended attribute.
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;

    /// Sets the chattr flags; `NotSupported` where one cannot be changed. `SYNC` and `DIRSYNC` make later
    /// changes durable before their calls return.
    fn set_flags(&self, _ino: Ino, _flags: FileFlags) -> Result<()> {
        Err(Posix::NotSupported.into())
    }

    /// Starts an atomic write: writes are kept aside until the commit.
    fn atomic_start(&self, _ino: Ino) -> Result<()> {
        Err(Posix::NotSupported.into())
    }

    /// Makes everything written since the start durable, all of it or, after a crash, nothing.
    fn atomic_commit(&self, _ino: Ino) -> Result<()> {
        Err(Posix::NotSupported.into())
    }

    /// Drops everything written since the start.
    fn atomic_abort(&self, _ino: Ino) -> Result<()> {
        Err(Posix::NotSupported.into())
    }

    /// Space of the volume.
    fn statfs(&self) -> Result<StatFs>;

    /// Makes everything durable: dirty pages of all files, then a checkpoint. Where some file cannot be written
    /// as blocks of it cannot be read, all else is durable, and the first such error is returned.
    fn sync(&self) -> Result<()>;

    /// One step of background work: a checkpoint where the commit interval has passed, one section cleaned
    /// where that is worthwhile, and idle work where nothing was wanted for a while. Front ends call it about
    /// every second.
    fn background(&self) -> Result<()> {
        Ok(())
    }

    /// When [`Files::background`] is wanted again: in a second, or earlier where an NVRAM fills up before that.
    fn next_background(&self) -> Duration {
        Duration::from_secs(1)
    }
}
