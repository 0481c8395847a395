//! Addresses of compressed clusters: which files have them, and what the inode counts of them.
//!
//! The first slot of a compressed cluster holds a mark in place of an address. What lies in the blocks is not the map's business.
//! Invariant: `i_compr_blocks` counts the slots of compressed clusters that name no block, until those are released.
//! Kernel counterpart: `f2fs_i_compr_blocks_update`, `f2fs_truncate_data_blocks_range`.

use crate::map::Map;
use crate::map::inode::Inode;
use medfs_format::compress::{Cluster, Compression};
use medfs_format::node::{FileFlags, RawInode};
use medfs_format::superblock::Feature;
use medfs_format::{BlockAddr, COMPRESS_ADDR};
use medfs_store::Dirty;

impl Map {
    /// Whether files of the volume may be compressed.
    pub(crate) fn has_compression(&self) -> bool {
        self.features.contains(Feature::COMPRESSION)
    }

    /// How the file's content is compressed; `None` where it is not.
    pub(crate) fn compression(&self, inode: &Inode) -> Option<Compression> {
        if !self.has_compression() {
            return None;
        }
        inode.raw(RawInode::compression)
    }

    pub(crate) fn is_compressed(&self, inode: &Inode) -> bool {
        self.has_compression()
            && inode.has_flags(FileFlags::COMPR)
            && inode.raw(RawInode::compression).is_some()
    }

    /// Notes in the inode that addresses go which may be those of compressed clusters; returns those that count as blocks.
    pub(crate) fn leave_clusters(&self, inode: &Inode, mut addrs: Vec<BlockAddr>) -> Vec<BlockAddr> {
        let Some(compression) = self.compression(inode) else { return addrs };
        let saved = saved_in(&addrs, compression);
        if saved == 0 {
            return addrs;
        }
        if inode.raw(RawInode::saved_blocks_released) {
            addrs.retain(|&addr| addr != COMPRESS_ADDR);
        } else {
            self.add_saved(inode, -(saved as i64));
        }
        addrs
    }

    /// Adds to `i_compr_blocks`.
    pub(crate) fn add_saved(&self, inode: &Inode, delta: i64) {
        self.edit(inode, Dirty::Full, |r| {
            if let Some(extra) = r.extra_mut() {
                extra.i_compr_blocks = extra.i_compr_blocks.get().saturating_add_signed(delta).into();
            }
        });
    }
}

/// What `i_compr_blocks` counts of clusters among these addresses.
fn saved_in(addrs: &[BlockAddr], compression: Compression) -> u64 {
    let pages = compression.cluster_pages();
    let marks = addrs.iter().enumerate().filter(|(_, addr)| **addr == COMPRESS_ADDR).map(|(at, _)| at);
    let cluster = |at: usize| Cluster::of(&addrs[at..addrs.len().min(at + pages)]).unwrap_or(Cluster::Plain);
    marks.map(|at| cluster(at).saved(pages)).sum()
}
