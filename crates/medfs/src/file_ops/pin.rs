//! Pinned files: pages that have blocks are always overwritten there, and cleaning moves none of them.
//!
//! Purpose: F2FS's flag, and what may become a pinned file. Where its pages go is said by
//! [`crate::content::placement`] and [`crate::content::reserve`].
//! Locks: the inode's, exclusive, its `wb` and the operation lock.
//! Kernel counterpart: `f2fs_ioc_set_pin_file`.

use crate::error::{Posix, Result};
use crate::file_ops::FileOps;
use crate::map::effects::Effect;
use medfs_format::Ino;
use medfs_format::node::{FileKind, Inline, RawInode};
use medfs_store::Dirty;

/// Blocks of a file without content: its inode, and a node of attributes.
fn blocks_without_content(r: &RawInode) -> u64 {
    1 + u64::from(r.i_xattr_nid.get() != 0)
}

fn check_can_be_pinned(r: &RawInode) -> Result<()> {
    if r.compression().is_some() {
        return Err(Posix::NotSupported.into());
    }
    if r.i_blocks.get() > blocks_without_content(r) { Err(Posix::FileTooLarge.into()) } else { Ok(()) }
}

impl FileOps {
    /// Whether a file is pinned.
    pub(crate) fn is_pinned(&self, ino: Ino) -> Result<bool> {
        Ok(self.inode(ino)?.is_pinned())
    }

    /// Pins a file, or lets it go. `FileTooLarge` where it has blocks already, `InvalidArgument` where it is
    /// no regular file or an atomic write of it is open, `NotSupported` where it is compressed.
    pub(crate) fn set_pinned(&self, ino: Ino, pin: bool) -> Result<()> {
        let inode = self.inode(ino)?;
        self.change_settled(&inode, |state| {
            if inode.kind() != FileKind::Regular || state.pages.draft().is_some() {
                return Err(Posix::InvalidArgument.into());
            }
            if inode.is_pinned() == pin {
                return Ok(());
            }
            if pin {
                inode.raw(check_can_be_pinned)?;
                self.convert_inline(&inode, state)?;
            } else {
                self.placement.release(inode.ino, &self.store);
            }
            self.edit(&inode, Dirty::Full, |r| r.i_inline ^= Inline::PIN_FILE.bits());
            self.touch_changed(&inode);
            self.effects.note(Effect::Pinned { ino, pin });
            Ok(())
        })
    }
}
