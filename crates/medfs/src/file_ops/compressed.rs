//! What F2FS's ioctls do with compressed files: with room made before, and their pages written back.
//!
//! What they change is in [`crate::cluster`].
//! Locks: called with none held.

use crate::error::{Posix, Result};
use crate::file_ops::FileOps;
use crate::map::inode::Inode;
use crate::options::CompressMode;
use medfs_format::Ino;
use medfs_format::compress::Compression;
use std::sync::Arc;

/// Clusters made dirty between two writebacks.
const BATCH: usize = 64;

impl FileOps {
    /// What has to be done before [`FileOps::release_saved`], and before the file's deltas become clusters.
    pub(crate) fn write_back_compressed(&self, ino: Ino) -> Result<()> {
        let (inode, _) = self.clusters().compressed_file(ino)?;
        self.write_back(&inode)
    }

    /// Gives the blocks that compression saved back to the volume; returns how many.
    pub(crate) fn release_saved(&self, ino: Ino) -> Result<u64> {
        let (inode, compression) = self.clusters().compressed_file(ino)?;
        self.make_room_to_write()?;
        self.clusters().release_saved(&inode, compression)
    }

    /// Takes them again; returns how many.
    pub(crate) fn reserve_saved(&self, ino: Ino) -> Result<u64> {
        let (inode, compression) = self.clusters().compressed_file(ino)?;
        self.make_room_to_write()?;
        self.clusters().reserve_saved(&inode, compression)
    }

    /// Chooses algorithm and cluster size of a compressed file that has no blocks.
    pub(crate) fn set_compress_option(&self, ino: Ino, algorithm: u8, log_cluster_size: u8) -> Result<()> {
        let (inode, old) = self.clusters().compressed_file(ino)?;
        self.make_room_to_write()?;
        self.clusters().set_compress_option((&inode, old), algorithm, log_cluster_size)
    }

    /// Writes a file anew, all of it compressed where that saves blocks (`compress`), or none. Only with
    /// `compress_mode=user`, as in the kernel.
    pub(crate) fn rewrite_clusters(&self, ino: Ino, compress: bool) -> Result<()> {
        if self.opts.compress.mode != CompressMode::User {
            return Err(Posix::NotSupported.into());
        }
        let (inode, compression) = self.clusters().compressed_file(ino)?;
        if self.is_released(&inode) {
            return Err(Posix::InvalidArgument.into());
        }
        self.write_back(&inode)?;
        inode.lock.write().compress = Some(compress);
        let rewritten = self.rewrite(&inode, compression, compress);
        inode.lock.write().compress = None;
        rewritten
    }

    fn rewrite(&self, inode: &Arc<Inode>, compression: Compression, compress: bool) -> Result<()> {
        let pages = compression.cluster_pages() as u64;
        let mut first = 0;
        loop {
            {
                let _op = self.begin()?;
                let mut state = inode.lock.write();
                inode.check_alive(&state)?;
                for _ in 0..BATCH {
                    if first >= inode.pages() {
                        break;
                    }
                    self.clusters().touch_cluster(inode, &mut state, compression, first, compress)?;
                    first += pages;
                }
            }
            self.write_back(inode)?;
            if first >= inode.pages() {
                return Ok(());
            }
        }
    }
}
