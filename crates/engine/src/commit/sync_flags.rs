//! Changes that are durable when their call returns: the flags SYNC and DIRSYNC (`chattr +S`, `+D`), and the mount options
//! `sync` and `dirsync`.
//!
//! Locks: none is held; this comes after the operation.
//! Kernel counterpart: `generic_write_sync`, and the `IS_DIRSYNC` checks of `namei.c`.

use crate::error::Result;
use crate::fs::Fs;
use medfs_format::Ino;
use medfs_format::node::FileFlags;

impl Fs {
    /// Makes a file durable that was just written to, where it is to be written synchronously.
    pub(crate) fn sync_written(&self, ino: Ino) -> Result<()> {
        if self.opts.sync || self.is_flagged(ino, FileFlags::SYNC)? { self.fsync(ino, false) } else { Ok(()) }
    }

    /// Makes the names in directories durable that were just changed, where those are to change synchronously.
    pub(crate) fn sync_names(&self, dirs: &[Ino]) -> Result<()> {
        let all = self.opts.sync || self.opts.dirsync;
        for &dir in dirs {
            if all || self.is_flagged(dir, FileFlags::SYNC | FileFlags::DIRSYNC)? {
                self.fsync(dir, false)?;
            }
        }
        Ok(())
    }

    fn is_flagged(&self, ino: Ino, flags: FileFlags) -> Result<bool> {
        Ok(self.inode(ino)?.has_flags(flags))
    }
}
