//! F2FS's own compression: files whose content is divided into clusters, each compressed where that saves a block.
//!
//! [`read`] expands clusters, [`write`] makes them and takes them apart, [`files`] decides which files are compressed and
//! gives saved blocks back, [`options`] is what a mount says of it. What clusters are on disk is in
//! [`medfs_format::compress`].
//!
//! Invariants:
//! - Whoever changes a page of a cluster that is compressed on disk *opens* it: all of its pages become dirty, its blocks are
//!   freed, its slots hold what is reserved. So nothing but reading, opening, freeing and moving knows of compressed clusters.
//! - Where pages may be deltas of what a cluster holds (`delta/cluster.rs`), that is put off until its dirty pages are
//!   written: some of them may be dirty while it is closed. Otherwise it has no dirty page, or all of them while they are on
//!   their way to the device. What is dirty in a file then may have to be opened in one go, which bounds it.
//! - An opened cluster is written by the next checkpoint: the nodes no longer name what it was.
//! - A cluster is compressed only as a whole and before the end of the file; what is behind the end is zeros.
//! - `i_compr_blocks` counts the slots of compressed clusters that name no block. Those are reserved, and counted as
//!   blocks, until they are released; then such a file cannot be written.
//!
//! Locks: functions are called with the inode's lock held, exclusive (and the operation lock) to change; the compressors
//! are a leaf.
//! Kernel counterpart: `compress.c`.

pub(crate) mod files;
mod read;
mod write;

use crate::error::Result;
use crate::fs::Fs;
use crate::map::inode::Inode;
use crate::map::node_tree::Slot;
use crate::stats::CompressStats;
use medfs_codec::CodecError;
use medfs_codec::compress::{Compressor, Compressors};
use medfs_format::compress::{Algorithm, Cluster, Compression};
use medfs_format::node::RawInode;
use medfs_format::{BlockAddr, COMPRESS_ADDR, FormatError, Structure};
use medfs_sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a volume with compressed files needs beside them.
#[derive(Default)]
pub(crate) struct Compress {
    /// Compressors that nobody uses at the moment.
    spare: Mutex<Vec<Box<Compressors>>>,
    pub(crate) counters: CompressCounters,
}

/// What became of clusters since the volume was opened.
#[derive(Debug, Default)]
pub(crate) struct CompressCounters {
    /// Clusters written compressed, and the blocks that saved.
    pub(crate) made: AtomicU64,
    pub(crate) saved: AtomicU64,
    /// Whole clusters that did not become smaller.
    pub(crate) kept_plain: AtomicU64,
    /// Clusters expanded.
    pub(crate) expanded: AtomicU64,
}

impl CompressCounters {
    pub(crate) fn stats(&self) -> CompressStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        CompressStats {
            clusters: get(&self.made),
            saved: get(&self.saved),
            kept_plain: get(&self.kept_plain),
            expanded: get(&self.expanded),
        }
    }
}

fn compressor(all: &mut Compressors, compression: Compression) -> &mut dyn Compressor {
    match compression.algorithm {
        // What LZO makes is LZO-RLE too.
        Algorithm::Lzo | Algorithm::LzoRle => &mut all.lzo,
        Algorithm::Lz4 => &mut all.lz4,
        Algorithm::Zstd => {
            all.zstd.set_level(compression.level);
            &mut all.zstd
        }
    }
}

impl Compress {
    fn with<R>(&self, compression: Compression, f: impl FnOnce(&mut dyn Compressor) -> R) -> R {
        let mut compressors = self.spare.lock().pop().unwrap_or_default();
        let result = f(compressor(&mut compressors, compression));
        self.spare.lock().push(compressors);
        result
    }

    fn compress(&self, compression: Compression, pages: &[u8], out: &mut [u8]) -> Option<usize> {
        self.with(compression, |c| c.compress(pages, out))
    }

    fn expand(&self, compression: Compression, bytes: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
        self.with(compression, |c| c.expand(bytes, out))
    }
}

impl Fs {
    /// The slot and addresses of the cluster that starts at page `first`, where it is a compressed one, and the number of
    /// its blocks. `Corrupt` where no cluster can be like this.
    fn compressed_cluster(
        &self,
        inode: &Inode,
        compression: Compression,
        first: u64,
        near: Option<&Slot>,
    ) -> Result<(Option<Slot>, Option<ClusterSlots>)> {
        let Some(slot) = self.find_slot_near(inode, near, first)? else { return Ok((None, None)) };
        let addrs = slot.addrs(compression.cluster_pages());
        let cluster = Cluster::of(&addrs).map_err(|wrong| bad_cluster(inode, first, "i_addr", wrong))?;
        let Cluster::Compressed(blocks) = cluster else { return Ok((Some(slot), None)) };
        for &addr in &addrs[1..=blocks] {
            self.check_addr(inode, first, addr)?;
        }
        Ok((Some(slot.clone()), Some(ClusterSlots { first, slot, addrs, blocks })))
    }

    /// The page behind a compressed cluster that page `index` belongs to, whose slot is `slot`.
    pub(crate) fn end_of_cluster(&self, inode: &Inode, slot: &Slot, index: u64) -> Option<u64> {
        let pages = self.compression(inode)?.cluster_pages() as u64;
        let first = index / pages * pages;
        let marked = slot.step_to(first).is_some_and(|s| s.addr() == COMPRESS_ADDR);
        marked.then_some(first + pages)
    }

    /// Counts `i_compr_blocks` anew: after roll-forward, which takes addresses from nodes of several moments.
    pub(crate) fn recount_saved(&self, inode: &Inode) -> Result<()> {
        let Some(compression) = self.compression(inode) else { return Ok(()) };
        if inode.raw(RawInode::saved_blocks_released) {
            return Ok(());
        }
        let (pages, end) = (compression.cluster_pages() as u64, inode.pages());
        let (mut index, mut saved, mut near) = (0, 0, None);
        while index < end {
            let (slot, cluster) = self.compressed_cluster(inode, compression, index, near.as_ref())?;
            index = match slot {
                Some(_) => index + pages,
                None => self.next_existing(inode, index)?.div_ceil(pages) * pages,
            };
            saved += cluster.map_or(0, |c| c.saved());
            near = slot;
        }
        let counted = inode.raw(|r| r.extra().map_or(0, |e| e.i_compr_blocks.get()));
        if saved != counted {
            self.add_saved(inode, saved as i64 - counted as i64);
        }
        Ok(())
    }
}

/// A compressed cluster as its node has it.
struct ClusterSlots {
    /// Its first page.
    first: u64,
    slot: Slot,
    /// All of its addresses: the mark, `blocks` blocks, and the rest.
    addrs: Vec<BlockAddr>,
    blocks: usize,
}

impl ClusterSlots {
    /// The blocks with the compressed bytes.
    fn blocks(&self) -> &[BlockAddr] {
        &self.addrs[1..=self.blocks]
    }

    /// What `i_compr_blocks` counts of it.
    fn saved(&self) -> u64 {
        Cluster::Compressed(self.blocks).saved(self.addrs.len())
    }
}

/// Reports a compressed cluster.
fn bad_cluster(
    inode: &Inode,
    first: u64,
    field: &'static str,
    wrong: impl std::fmt::Display,
) -> crate::error::Error {
    FormatError::corrupt(Structure::Cluster, inode.ino, field, format!("{wrong}, at page {first}")).into()
}
