//! Which files are compressed, and what F2FS's ioctls do with them: giving saved blocks back, taking them
//! again, choosing how a file is compressed, compressing and expanding it now.
//!
//! Kernel counterpart: `set_compress_new_inode`, `f2fs_setflags_common`, the ioctls of `file.c`.

use super::blocks::ClusterSlots;
use super::pages::ClusterPages;
use crate::error::{Error, Posix, Result};
use crate::map::effects::Effect;
use crate::map::inode::{Inode, InodeState};
use crate::profile::file_class::has_last_extension;
use crate::types::FileFlags;
use medfs_format::compress::{Algorithm, Compression, LOG_CLUSTER_SIZES};
use medfs_format::node::{FileKind, Inline, RawInode};
use medfs_format::superblock::MAX_EXTENSIONS;
use medfs_format::{COMPRESS_ADDR, Ino, NEW_ADDR, NULL_ADDR};
use medfs_store::Dirty;
use std::sync::Arc;

impl ClusterPages<'_> {
    /// Marks a new file or directory as compressed, or as not to be, as the lists of extensions and its parent want it.
    pub(crate) fn compress_new(
        &self,
        parent: FileFlags,
        kind: FileKind,
        name: Option<&[u8]>,
        r: &mut RawInode,
    ) {
        if !self.has_compression() {
            return;
        }
        if let (FileKind::Regular, Some(name)) = (kind, name) {
            let options = &self.opts.compress;
            let listed = |list: &[String]| list.iter().any(|e| has_last_extension(name, e.as_bytes()));
            if self.is_hot(name) || listed(&options.no_extensions) {
                return;
            }
            if listed(&options.extensions) {
                self.mark_compressed(r);
                return;
            }
        } else if kind != FileKind::Directory {
            return;
        }
        if parent.contains(FileFlags::NOCOMP) {
            r.i_flags = (r.flags() | FileFlags::NOCOMP).bits().into();
        } else if parent.contains(FileFlags::COMPR) {
            self.mark_compressed(r);
        }
    }

    /// Whether the superblock lists the extension as one of files that are written often.
    fn is_hot(&self, name: &[u8]) -> bool {
        let cold = (self.sb.extension_count.get() as usize).min(MAX_EXTENSIONS);
        let hot = usize::from(self.sb.hot_ext_count).min(MAX_EXTENSIONS - cold);
        self.sb.extension_list[cold..cold + hot].iter().any(|extension| {
            let len = extension.iter().position(|&b| b == 0).unwrap_or(extension.len());
            has_last_extension(name, &extension[..len])
        })
    }

    /// `false` where the inode has no room for it, and stays as it is.
    fn mark_compressed(&self, r: &mut RawInode) -> bool {
        if !self.opts.compress.for_new_files().store(r) {
            return false;
        }
        r.i_flags = (r.flags() | FileFlags::COMPR).bits().into();
        r.i_inline &= !(Inline::DATA | Inline::DATA_EXIST).bits();
        true
    }

    /// Carries out what a change of the chattr flags from `old` to `new` means for compression: a file can change sides
    /// only while it has no blocks. It may free nodes.
    pub(crate) fn change_compression(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        old: FileFlags,
        new: FileFlags,
    ) -> Result<()> {
        if new.contains(FileFlags::COMPR | FileFlags::NOCOMP) {
            return Err(Posix::InvalidArgument.into());
        }
        if !(old ^ new).contains(FileFlags::COMPR) {
            return Ok(());
        }
        match inode.kind() {
            FileKind::Directory => {}
            FileKind::Regular => {
                if inode.size() == 0 {
                    self.updates.leave(self.content, inode, state)?;
                }
                if !is_empty(inode, state) {
                    return Err(Posix::InvalidArgument.into());
                }
                self.convert_inline(inode, state)?;
                // Roll-forward of older nodes would divide them otherwise.
                self.since.cut_trees.lock().insert(inode.ino);
            }
            _ => return Err(Posix::InvalidArgument.into()),
        }
        if new.contains(FileFlags::COMPR) && !self.edit(inode, Dirty::Full, |r| self.mark_compressed(r)) {
            return Err(Posix::NotSupported.into());
        }
        Ok(())
    }

    /// The compressed file `ino`; an error says what it is not.
    pub(crate) fn compressed_file(&self, ino: Ino) -> Result<(Arc<Inode>, Compression)> {
        if !self.has_compression() {
            return Err(Posix::NotSupported.into());
        }
        let inode = self.inode(ino)?;
        let compression = self.compression(&inode).ok_or(Error::Posix(Posix::InvalidArgument))?;
        Ok((inode, compression))
    }

    /// Blocks that compression saves in a file: `i_compr_blocks`.
    pub(crate) fn saved_blocks(&self, ino: Ino) -> Result<u64> {
        let (inode, _) = self.compressed_file(ino)?;
        Ok(inode.raw(|r| r.extra().map_or(0, |e| e.i_compr_blocks.get())))
    }

    pub(crate) fn saved_blocks_released(&self, ino: Ino) -> Result<bool> {
        Ok(self.is_released(&self.compressed_file(ino)?.0))
    }

    /// Gives the blocks that compression saved back to the volume; returns how many. Until they are taken
    /// again the file can be read and cut only.
    pub(crate) fn release_saved(&self, inode: &Arc<Inode>, compression: Compression) -> Result<u64> {
        let _op = self.op()?;
        let state = inode.lock.write();
        inode.check_alive(&state)?;
        if self.is_released(inode) {
            return Err(Posix::InvalidArgument.into());
        }
        if state.pages.any_dirty()
            || state.pages.draft().is_some()
            || !self.updates.kept(self.content, inode, 0..u64::MAX)?.is_empty()
        {
            return Err(Posix::Busy.into());
        }
        let clusters = self.clusters(inode, compression)?;
        self.set_released(inode, true);
        self.touch_changed(inode);
        for cluster in &clusters {
            self.replace_addrs(inode, cluster, NEW_ADDR, NULL_ADDR);
        }
        let saved: u64 = clusters.iter().map(ClusterSlots::saved).sum();
        self.add_saved(inode, -(saved as i64));
        self.space.release(saved);
        self.add_blocks(inode, -(saved as i64));
        self.effects.note(Effect::Saved { ino: inode.ino, released: true });
        Ok(saved)
    }

    /// Takes the blocks again that a release gave back; returns how many. `NoSpace` (nothing changed) where they
    /// are not to be had.
    pub(crate) fn reserve_saved(&self, inode: &Arc<Inode>, compression: Compression) -> Result<u64> {
        let _op = self.op()?;
        let state = inode.lock.write();
        inode.check_alive(&state)?;
        if !self.is_released(inode) {
            return Err(Posix::InvalidArgument.into());
        }
        let clusters = self.clusters(inode, compression)?;
        let missing = |c: &ClusterSlots| 1 + c.addrs.iter().filter(|&&a| a == NULL_ADDR).count() as u64;
        let reserved = clusters.iter().map(missing).sum();
        self.space.reserve(reserved)?;
        self.add_blocks(inode, reserved as i64);
        for cluster in &clusters {
            self.replace_addrs(inode, cluster, NULL_ADDR, NEW_ADDR);
        }
        self.set_released(inode, false);
        self.add_saved(inode, clusters.iter().map(ClusterSlots::saved).sum::<u64>() as i64);
        self.effects.note(Effect::Saved { ino: inode.ino, released: false });
        Ok(reserved)
    }

    fn replace_addrs(&self, inode: &Inode, cluster: &ClusterSlots, from: u32, to: u32) {
        for (index, &addr) in (cluster.first..).zip(&cluster.addrs) {
            if addr == from
                && let Some(slot) = cluster.slot.step_to(index)
            {
                debug_assert_ne!(addr, COMPRESS_ADDR);
                self.set_addr(inode, &slot, to);
            }
        }
    }

    /// Algorithm and log2 of the cluster's pages. `NoAttribute` of a file that is not compressed.
    pub(crate) fn compress_option(&self, ino: Ino) -> Result<(u8, u8)> {
        match self.compressed_file(ino) {
            Ok((_, c)) => Ok((c.algorithm as u8, c.log_cluster_size)),
            Err(Error::Posix(Posix::InvalidArgument)) => Err(Posix::NoAttribute.into()),
            Err(e) => Err(e),
        }
    }

    /// Chooses algorithm and cluster size of a compressed file that has no blocks.
    pub(crate) fn set_compress_option(
        &self,
        (inode, old): (&Arc<Inode>, Compression),
        algorithm: u8,
        log_cluster_size: u8,
    ) -> Result<()> {
        let algorithm = Algorithm::from_number(algorithm).ok_or(Error::Posix(Posix::InvalidArgument))?;
        if !LOG_CLUSTER_SIZES.contains(&log_cluster_size) {
            return Err(Posix::InvalidArgument.into());
        }
        self.change_alone(inode, |state| {
            if state.pages.any_dirty() {
                return Err(Posix::Busy.into());
            }
            if inode.size() == 0 {
                self.updates.leave(self.content, inode, state)?;
            }
            if !is_empty(inode, state) {
                return Err(Posix::FileTooLarge.into());
            }
            let level = self.opts.compress.level_of(algorithm);
            let wanted = Compression { algorithm, log_cluster_size, level, ..old };
            let stored = self.edit(inode, Dirty::Full, |r| wanted.store(r));
            debug_assert!(stored, "a compressed file has room for it");
            self.since.cut_trees.lock().insert(inode.ino);
            let algorithm = algorithm as u8;
            self.effects.note(Effect::Compression { ino: inode.ino, algorithm, log_cluster_size });
            Ok(())
        })
    }

    /// Makes the pages of a cluster dirty where writing it would change it.
    pub(crate) fn touch_cluster(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        compression: Compression,
        first: u64,
        compress: bool,
    ) -> Result<()> {
        let (slot, cluster) = self.compressed_cluster(inode, compression, first, None)?;
        let plain = cluster.is_none();
        if !compress {
            return if plain { Ok(()) } else { self.open_cluster(inode, state, first) };
        }
        let pages = compression.cluster_pages();
        let full = slot.is_some_and(|s| s.addrs(pages).iter().all(|&a| a != NULL_ADDR));
        if !plain || !full || first + pages as u64 > inode.pages() {
            return Ok(());
        }
        for index in first..first + pages as u64 {
            self.change_page(inode, state, index, None, false, |_| {})?;
        }
        Ok(())
    }
}

/// Whether a file has no blocks beside its inode and extended attributes, and none to come.
fn is_empty(inode: &Inode, state: &InodeState) -> bool {
    let content = inode.raw(|r| {
        let own = 1 + u64::from(r.i_xattr_nid.get() != 0);
        let inline = r.inline().contains(Inline::DATA) && r.i_size.get() > 0;
        r.i_blocks.get() > own || inline || r.inline().contains(Inline::PIN_FILE)
    });
    !content && !state.pages.any_dirty() && state.pages.draft().is_none()
}
