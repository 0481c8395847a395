//! How a volume does the operations on files.
//!
//! Purpose: what all of them share: the volume is not idle while one is done, names of medfs's own files are hidden,
//! and what a synchronous directory or file wants durable is made so before the operation returns.
//!
//! Locks: none here.

use crate::ars::kept_tree;
use crate::commit::checkpoint::CheckpointSink;
use crate::content::file::WriteTimes;
use crate::error::{Error, Posix, Result};
use crate::files::Files;
use crate::tree::name_journal::recorded_name;
use crate::types::*;
use crate::volume::Volume;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// No path has more names.
const DEEPEST: usize = 1 << 16;

impl Volume {
    /// Power may fail (`low`): makes everything durable, and until it is called without, each fsync before it
    /// returns, whatever `durability=` says.
    pub fn set_low_power(&self, low: bool) -> Result<()> {
        self.commit.low_power.store(low, Ordering::Release);
        if low { self.sync() } else { Ok(()) }
    }

    /// Makes all durable that waits of the app that a file or directory belongs to (`apps=`). Of other apps it makes
    /// durable what cannot be told apart from that: all of them, where the app has new names or many changed files.
    /// On a volume that is one app, or that puts nothing off, it is [`Files::sync`].
    pub fn sync_app(&self, ino: Ino) -> Result<()> {
        self.commit.sync_app(ino)
    }

    /// A user did something: with `durability_policy=tpl` what waits is committed in pauses of the user from now on,
    /// and no longer in those between operations, until no user was heard of for ten minutes. `false` where no commit
    /// waits for pauses.
    pub fn note_user(&self) -> bool {
        self.commit.note_user()
    }

    /// The names from the root directory to an inode, by the directory and the name that it and each above it record.
    /// `None` where one of them no longer has that name, as a file with several links may.
    pub fn path_of(&self, ino: Ino) -> Result<Option<Vec<Vec<u8>>>> {
        let mut names = Vec::new();
        let mut at = ino;
        // Directories in a circle, on a damaged volume, have no end.
        while at != self.root() && names.len() < DEEPEST {
            let (parent, name) = recorded_name(&*self.commit.inode(at)?);
            let found = match self.lookup(parent, &name) {
                Ok(attr) => attr.ino,
                Err(Error::Posix(_)) => return Ok(None),
                Err(error) => return Err(error),
            };
            self.release(found, 1);
            if found != at {
                return Ok(None);
            }
            names.push(name);
            at = parent;
        }
        names.reverse();
        Ok((at == self.root()).then_some(names))
    }

    /// Ends an operation that gave an inode a name and took a hold.
    fn named(&self, attr: Attr, parent: Ino) -> Result<Attr> {
        match self.commit.sync_names(&[parent]).and_then(|()| self.keep(())) {
            Ok(()) => Ok(attr),
            Err(error) => {
                self.release(attr.ino, 1);
                Err(error)
            }
        }
    }
}

impl Files for Volume {
    fn volume(&self) -> Option<&Volume> {
        Some(self)
    }

    fn root(&self) -> Ino {
        self.commit.geo.root_ino
    }

    fn hold(&self, ino: Ino, count: u64) -> Result<()> {
        self.commit.inode(ino)?;
        self.commit.inodes.hold(ino, count);
        Ok(())
    }

    fn release(&self, ino: Ino, count: u64) {
        if let Err(e) = self.commit.release(ino, count) {
            tracing::warn!(ino, error = %e, "an unlinked inode could not be freed; the next mount frees it");
        }
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.commit.hiding().refuse(parent, name, Posix::NotFound)?;
        self.wanted().lookup(parent, name)
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.wanted().getattr(ino)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let attr = self.wanted().setattr(ino, set)?;
        self.keep(attr)
    }

    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr> {
        self.commit.hiding().refuse(parent, name, Posix::NotPermitted)?;
        let attr = self.wanted().create(parent, name, new)?;
        self.named(attr, parent)
    }

    fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr> {
        let attr = self.wanted().tmpfile(parent, new)?;
        self.keep(attr)
    }

    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr> {
        self.commit.hiding().refuse(parent, name, Posix::NotPermitted)?;
        let attr = self.wanted().symlink(parent, name, target, uid, gid)?;
        self.named(attr, parent)
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.wanted().readlink(ino)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.commit.hiding().refuse(parent, name, Posix::NotPermitted)?;
        let attr = self.wanted().link(ino, parent, name)?;
        self.named(attr, parent)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.commit.hiding().refuse(parent, name, Posix::NotFound)?;
        self.wanted().unlink(parent, name)?;
        self.commit.sync_names(&[parent])?;
        self.keep(())
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.commit.hiding().refuse(parent, name, Posix::NotFound)?;
        self.wanted().rmdir(parent, name)?;
        self.commit.sync_names(&[parent])?;
        self.keep(())
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.commit.hiding().refuse(parent, name, Posix::NotFound)?;
        self.commit.hiding().refuse(new_parent, new_name, Posix::NotPermitted)?;
        self.wanted().rename(parent, name, new_parent, new_name, flags)?;
        self.commit.sync_names(&[parent, new_parent])?;
        self.keep(())
    }

    fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        self.wanted().readdir(ino, position, emit)
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.wanted().read(ino, offset, buf)
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let written = self.wanted().write(ino, offset, data, WriteTimes::Now)?;
        self.commit.sync_written(ino)?;
        self.keep(written)
    }

    fn write_cached(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let written = self.wanted().write(ino, offset, data, WriteTimes::Kept)?;
        self.keep(written)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.wanted().fallocate(ino, mode, offset, len)?;
        self.keep(())
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.wanted().seek(ino, offset, whence)
    }

    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        let copied = self.wanted().copy_range(from, from_offset, to, to_offset, len)?;
        self.commit.sync_written(to)?;
        self.keep(copied)
    }

    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.commit.profiles.note_fsync(ino);
        self.wanted().fsync(ino, datasync)
    }

    fn fsync_now(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.commit.profiles.note_fsync(ino);
        self.wanted().sync(ino, datasync)
    }

    fn fsync_many(&self, files: &[Ino], datasync: bool) -> Result<()> {
        files.iter().for_each(|&ino| self.commit.profiles.note_fsync(ino));
        self.wanted().fsync_many(files, datasync)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.wanted().getxattr(ino, name)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.wanted().listxattr(ino)
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let is_tree = kept_tree::is_tree(&self.commit, ino, name);
        if is_tree {
            kept_tree::check(value)?;
        }
        self.wanted().setxattr(ino, name, value, mode)?;
        if is_tree {
            kept_tree::learn(&self.commit);
        }
        self.keep(())
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.wanted().removexattr(ino, name)?;
        if kept_tree::is_tree(&self.commit, ino, name) {
            kept_tree::learn(&self.commit);
        }
        self.keep(())
    }

    fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()> {
        self.wanted().set_flags(ino, flags)?;
        self.keep(())
    }

    fn atomic_start(&self, ino: Ino) -> Result<()> {
        self.wanted().atomic_start(ino)
    }

    fn atomic_commit(&self, ino: Ino) -> Result<()> {
        self.wanted().atomic(ino)
    }

    fn atomic_abort(&self, ino: Ino) -> Result<()> {
        self.wanted().atomic_abort(ino)
    }

    fn statfs(&self) -> Result<StatFs> {
        Ok(self.space())
    }

    fn sync(&self) -> Result<()> {
        if self.commit.read_only { Ok(()) } else { CheckpointSink.sync(&self.commit) }
    }

    fn background(&self) -> Result<()> {
        self.commit.profiles.tick(self.commit.clock.monotonic());
        if self.commit.is_read_only() {
            return Ok(());
        }
        let was_wanted = self.upkeep.was_wanted();
        self.upkeep.background(&self.commit)?;
        self.retraining.background(&self.commit, was_wanted)
    }

    fn next_background(&self) -> Duration {
        self.commit.next_background()
    }
}
