//! What a front end asks of a file system.
//!
//! Purpose: the FUSE mount, the recorder of traces and their replay speak to [`Files`], so that each of them serves a
//! [`Volume`] and anything else that behaves like one (a directory of the machine, a wrapper that watches).
//!
//! Invariants: the methods mean what those of the same name mean in [`Volume`], holds included: what returns the
//! attributes of a named inode has taken one hold for the caller. An inode number names one file from its first hold
//! to its last release; [`Attr::generation`] tells apart those that have had the same number.
//!
//! Locks: none here.

use crate::error::{Posix, Result};
use crate::types::*;
use crate::volume::Volume;

/// On whose behalf the next operations of this thread are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Caller {
    /// Thread, as the kernel numbers it; 0 where nobody in particular is (the page cache writing back).
    pub thread: u32,
}

/// The operations of a file system, by inode number.
#[allow(missing_docs)] // each is described where [`Volume`] has it
pub trait Files: Send + Sync {
    /// Inode number of the root directory.
    fn root(&self) -> Ino;
    /// The volume that serves this in the end, where one does: for what only a volume can.
    fn volume(&self) -> Option<&Volume> {
        None
    }
    /// What this thread does from now on is on behalf of `caller`. Front ends that know it say so.
    fn on_behalf(&self, _caller: Caller) {}
    /// What is to be done about every second.
    fn background(&self) -> Result<()> {
        Ok(())
    }
    fn statfs(&self) -> Result<StatFs>;
    fn sync(&self) -> Result<()>;
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;
    fn release(&self, ino: Ino, count: u64);
    fn getattr(&self, ino: Ino) -> Result<Attr>;
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr>;
    /// A file is opened with the flags of `open(2)`; its attributes. Nothing is kept for it.
    fn open(&self, ino: Ino, _flags: i32) -> Result<Attr> {
        self.getattr(ino)
    }
    /// One of those who had opened a file has closed it.
    fn close(&self, _ino: Ino) {}
    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr>;
    fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr>;
    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr>;
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr>;
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;
    fn rename(&self, parent: Ino, name: &[u8], to: Ino, to_name: &[u8], flags: RenameFlags) -> Result<()>;
    fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()>;
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize>;
    fn write_cached(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.write(ino, offset, data)
    }
    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()>;
    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64>;
    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64>;
    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()>;
    /// As `fsync`, and never put off: for files opened with `O_SYNC`.
    fn fsync_now(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.fsync(ino, datasync)
    }
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;
    fn set_flags(&self, _ino: Ino, _flags: FileFlags) -> Result<()> {
        Err(Posix::NotSupported.into())
    }
    fn atomic_start(&self, _ino: Ino) -> Result<()> {
        Err(Posix::NotSupported.into())
    }
    fn atomic_commit(&self, _ino: Ino) -> Result<()> {
        Err(Posix::NotSupported.into())
    }
    fn atomic_abort(&self, _ino: Ino) -> Result<()> {
        Err(Posix::NotSupported.into())
    }
}

impl Files for Volume {
    fn root(&self) -> Ino {
        Volume::root(self)
    }
    fn volume(&self) -> Option<&Volume> {
        Some(self)
    }
    fn background(&self) -> Result<()> {
        Volume::background(self)
    }
    fn statfs(&self) -> Result<StatFs> {
        Ok(Volume::statfs(self))
    }
    fn sync(&self) -> Result<()> {
        Volume::sync(self)
    }
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        Volume::lookup(self, parent, name)
    }
    fn release(&self, ino: Ino, count: u64) {
        Volume::release(self, ino, count);
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        Volume::getattr(self, ino)
    }
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        Volume::setattr(self, ino, set)
    }
    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr> {
        Volume::create(self, parent, name, new)
    }
    fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr> {
        Volume::tmpfile(self, parent, new)
    }
    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr> {
        Volume::symlink(self, parent, name, target, uid, gid)
    }
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        Volume::readlink(self, ino)
    }
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        Volume::link(self, ino, parent, name)
    }
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        Volume::unlink(self, parent, name)
    }
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        Volume::rmdir(self, parent, name)
    }
    fn rename(&self, parent: Ino, name: &[u8], to: Ino, to_name: &[u8], flags: RenameFlags) -> Result<()> {
        Volume::rename(self, parent, name, to, to_name, flags)
    }
    fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        Volume::readdir(self, ino, position, emit)
    }
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        Volume::read(self, ino, offset, buf)
    }
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        Volume::write(self, ino, offset, data)
    }
    fn write_cached(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        Volume::write_cached(self, ino, offset, data)
    }
    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        Volume::fallocate(self, ino, mode, offset, len)
    }
    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        Volume::seek(self, ino, offset, whence)
    }
    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        Volume::copy_range(self, from, from_offset, to, to_offset, len)
    }
    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        Volume::fsync(self, ino, datasync)
    }
    fn fsync_now(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.upkeep.note_wanted();
        self.commit.hotness.note_fsync(ino);
        self.commit.sync(ino, datasync)
    }
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        Volume::getxattr(self, ino, name)
    }
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Volume::listxattr(self, ino)
    }
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        Volume::setxattr(self, ino, name, value, mode)
    }
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        Volume::removexattr(self, ino, name)
    }
    fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()> {
        Volume::set_flags(self, ino, flags)
    }
    fn atomic_start(&self, ino: Ino) -> Result<()> {
        Volume::atomic_start(self, ino)
    }
    fn atomic_commit(&self, ino: Ino) -> Result<()> {
        Volume::atomic_commit(self, ino)
    }
    fn atomic_abort(&self, ino: Ino) -> Result<()> {
        Volume::atomic_abort(self, ino)
    }
}
