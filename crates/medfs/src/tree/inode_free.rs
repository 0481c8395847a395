//! The end of an inode: freeing what no name and no holder needs any more.
//!
//! An inode whose last name goes becomes an orphan in the same operation, and every checkpoint lists the orphans; so
//! whatever happens between that and freeing, the next mount finishes it.
//! Invariant: there are never more orphans than a checkpoint pack has room for. The operation that would make
//! one more is refused with `NoSpace` before it changes anything.
//! Locks: freeing is an operation of its own; it takes the inode's `wb`, as nodes that an fsync is writing must not go,
//! and its lock.
//! Kernel counterpart: `f2fs_evict_inode`, `f2fs_acquire_orphan_inode`, `recover_orphan_inode`.

use crate::error::{Error, Posix, Result};
use crate::map::effects::Effect;
use crate::map::inode::{Inode, InodeState};
use crate::map::xattr_area::XattrArea;
use crate::stats::Counters;
use crate::tree::Tree;
use medfs_format::Ino;
use medfs_format::node::{FileKind, Inline};
use std::sync::Arc;

impl Tree {
    /// Runs the step of an operation that takes a name from an inode. Where that is its last one, the inode
    /// is an orphan from before the step on; not where the step fails. `NoSpace` (nothing changed) where
    /// there are too many orphans. The caller holds the inode's lock and the operation lock.
    pub(crate) fn take_name(&self, inode: &Inode, step: impl FnOnce() -> Result<()>) -> Result<()> {
        let last = inode.is_dir() || inode.nlink() == 1;
        if last {
            self.orphans.add(inode.ino)?;
        }
        let taken = step();
        if last && taken.is_err() {
            self.orphans.remove(inode.ino);
        }
        taken
    }

    /// Frees an inode if it is an orphan that nobody holds.
    pub(crate) fn free_inode(&self, inode: &Arc<Inode>) -> Result<()> {
        let _freed = match self.refs.others_need_any(inode.ino) {
            // Without a name it does not become a source again.
            true if inode.nlink() == 0 => Some(self.unshare(inode.ino, 0..u64::MAX)?),
            _ => None,
        };
        self.check_writable()?;
        self.make_room()?;
        let _wb = inode.wb.lock();
        let _op = self.op()?;
        let mut state = inode.lock.write();
        if state.dead || inode.nlink() != 0 || self.inodes.is_held(inode.ino) {
            return Ok(());
        }
        self.destroy(inode, &mut state)?;
        self.orphans.remove(inode.ino);
        self.effects.note(Effect::Freed { ino: inode.ino });
        Ok(())
    }

    /// Frees an inode that has just lost its last name, if nobody holds it. A failure leaves it to the next mount.
    pub(crate) fn free_if_unused(&self, inode: &Arc<Inode>) {
        if inode.nlink() == 0
            && !self.inodes.is_held(inode.ino)
            && !self.is_read_only()
            && let Err(error) = self.free_inode(inode)
        {
            tracing::warn!(ino = inode.ino, %error, "an unlinked inode is left to be freed by the next mount");
        }
    }

    /// Gives holds on an inode back, and frees it where that was what kept it.
    pub(crate) fn release(&self, ino: Ino, count: u64) -> Result<()> {
        if !self.inodes.release(ino, count) || !self.orphans.contains(ino) || self.is_read_only() {
            return Ok(());
        }
        self.free_inode(&self.inode(ino)?)
    }

    /// Frees the orphans that the last checkpoint lists. Some may be gone already. Those that cannot be read
    /// stay orphans, for a mount that can.
    pub(crate) fn free_orphans_at_mount(&self) -> Result<()> {
        for ino in self.orphans.list() {
            if is_of_superblock(self, ino) {
                keep_in_use(self, ino);
            }
        }
        for ino in self.orphans.list().into_iter().filter(|&ino| !self.inodes.is_held(ino)) {
            let freed = match self.free_orphan_at_mount(ino) {
                // What it is made from would have to be written first: the next mount may have the room.
                Err(Error::NoSpace) => Ok(()),
                freed => freed,
            };
            self.pass_by("a file without a name cannot be freed, as it cannot be read", ino, freed)?;
        }
        Ok(())
    }

    fn free_orphan_at_mount(&self, ino: Ino) -> Result<()> {
        match self.inode(ino) {
            // A flipped bit may name another file, and this one need not be under the name that it records.
            Ok(inode) if inode.nlink() != 0 => {
                keep_in_use(self, ino);
                self.inodes.release(ino, 1);
            }
            Ok(inode) => {
                self.free_inode(&inode)?;
                Counters::add(&self.counters.orphans_freed, 1);
            }
            Err(Error::Posix(Posix::Stale)) => self.orphans.remove(ino),
            Err(e) => return Err(e),
        }
        Ok(())
    }

    /// Frees everything an inode has, and the inode. The caller holds its lock and the operation lock.
    pub(crate) fn destroy(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        self.atomic_write(inode).drop_draft(state);
        self.forget_pages(inode, state, 0, u64::MAX);
        if has_blocks(inode) {
            self.deltas().compact().forget_deltas(inode)?;
            self.truncate_index(inode, 0)?;
        }
        self.refs.drop_pages(inode.ino, 0..u64::MAX);
        XattrArea { map: self, inode }.free_node()?;
        self.free_node(inode.ino, inode.ino)?;
        state.dead = true;
        self.since.renamed_files.lock().remove(&inode.ino);
        self.since.in_nvram.gone(inode.ino);
        self.since.cut_off.free(self, inode.ino);
        self.inodes.forget(inode.ino);
        // Which asks what is known of the file.
        self.placement.forget(inode, &self.store);
        self.profiles.forget(inode.ino);
        Ok(())
    }
}

/// Whether the address slots of an inode hold addresses, and not inline content or a device number.
fn has_blocks(inode: &Inode) -> bool {
    matches!(inode.kind(), FileKind::Regular | FileKind::Directory | FileKind::Symlink)
        && !inode.raw(|r| r.inline().intersects(Inline::DATA | Inline::DENTRY))
}

/// Whether the superblock alone leads to an inode, the root's or a quota file's.
fn is_of_superblock(tree: &Tree, ino: Ino) -> bool {
    ino == tree.geo.root_ino || tree.sb.qf_ino.iter().any(|file| file.get() == ino)
}

/// Takes a file from the list of those to be freed that is none.
fn keep_in_use(tree: &Tree, ino: Ino) {
    tracing::warn!(ino, "the list of files to be freed has one with a name, which stays: run fsck --repair");
    tree.orphans.remove(ino);
}
