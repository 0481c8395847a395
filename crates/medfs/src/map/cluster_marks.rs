//! Addresses of compressed clusters: which files have them, and what the inode counts of them.
//!
//! The first slot of a compressed cluster holds a mark in place of an address. What lies in the blocks is not
//! the map's business. Invariant: `i_compr_blocks` counts the slots of compressed clusters that name no
//! block, until those are released. Kernel counterpart: `f2fs_i_compr_blocks_update`,
//! `f2fs_truncate_data_blocks_range`.

use crate::error::{Posix, Result};
use crate::map::Map;
use crate::map::inode::Inode;
use crate::map::node_tree::Slot;
use medfs_format::compress::{Cluster, Compression};
use medfs_format::node::{FileFlags, Inline, RawInode};
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

    /// Notes in the inode that addresses go which may be those of compressed clusters; returns those that
    /// count as blocks.
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

    /// The page behind a compressed cluster that page `index` belongs to, whose slot is `slot`.
    pub(crate) fn end_of_cluster(&self, inode: &Inode, slot: &Slot, index: u64) -> Option<u64> {
        let pages = self.compression(inode)?.cluster_pages() as u64;
        let first = index / pages * pages;
        let marked = slot.step_to(first).is_some_and(|s| s.addr() == COMPRESS_ADDR);
        marked.then_some(first + pages)
    }

    /// `NotPermitted` where the blocks that compression saved were given back: there is no room to write into.
    pub(crate) fn check_not_released(&self, inode: &Inode) -> Result<()> {
        if self.is_released(inode) { Err(Posix::NotPermitted.into()) } else { Ok(()) }
    }

    /// Such a file can be cut between clusters only.
    pub(crate) fn check_resize_of_released(&self, inode: &Inode, size: u64) -> Result<()> {
        let within = self.slots(inode).cluster as u64 * medfs_format::BLOCK_SIZE as u64;
        if self.is_released(inode) && !size.is_multiple_of(within) {
            return Err(Posix::InvalidArgument.into());
        }
        Ok(())
    }

    pub(crate) fn is_released(&self, inode: &Inode) -> bool {
        self.is_compressed(inode) && inode.raw(RawInode::saved_blocks_released)
    }

    /// Called where a file has become empty: it can be written again.
    pub(crate) fn forget_release(&self, inode: &Inode) {
        if self.is_released(inode) {
            self.set_released(inode, false);
        }
    }

    pub(crate) fn set_released(&self, inode: &Inode, released: bool) {
        self.edit(inode, Dirty::Full, |r| {
            let flags = r.inline() - Inline::COMPRESS_RELEASED;
            let flag = if released { Inline::COMPRESS_RELEASED } else { Inline::empty() };
            r.i_inline = (flags | flag).bits();
        });
        // What counts as a block changes, which roll-forward could not tell.
        self.since.cut_trees.lock().insert(inode.ino);
    }
}

/// What `i_compr_blocks` counts of clusters among these addresses.
fn saved_in(addrs: &[BlockAddr], compression: Compression) -> u64 {
    let pages = compression.cluster_pages();
    let marks = addrs.iter().enumerate().filter(|(_, addr)| **addr == COMPRESS_ADDR).map(|(at, _)| at);
    let cluster = |at: usize| Cluster::of(&addrs[at..addrs.len().min(at + pages)]).unwrap_or(Cluster::Plain);
    marks.map(|at| cluster(at).saved(pages)).sum()
}
