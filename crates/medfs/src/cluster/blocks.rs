//! Compressed clusters as their blocks hold them, whatever changed of their pages since.
//!
//! Locks: the inode's, shared; the compressors are a leaf.

use crate::content::Content;
use crate::content::storage::Below;
use crate::error::Result;
use crate::map::inode::Inode;
use crate::map::node_tree::Slot;
use crate::stats::{CompressStats, Counters};
use medfs_codec::CodecError;
use medfs_codec::compress::{Compressor, Compressors};
use medfs_format::compress::{Algorithm, Cluster, Compression, cluster_content, turn_back};
use medfs_format::node::RawInode;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, FormatError, Structure, crc};
use medfs_sync::Mutex;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::IntoBytes;

/// What expands and compresses the clusters of a volume.
#[derive(Default)]
pub(crate) struct ClusterBlocks {
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

impl ClusterBlocks {
    fn with<R>(&self, compression: Compression, f: impl FnOnce(&mut dyn Compressor) -> R) -> R {
        let mut compressors = self.spare.lock().pop().unwrap_or_default();
        let result = f(compressor(&mut compressors, compression));
        self.spare.lock().push(compressors);
        result
    }

    pub(super) fn compress(&self, compression: Compression, pages: &[u8], out: &mut [u8]) -> Option<usize> {
        self.with(compression, |c| c.compress(pages, out))
    }

    fn expand(&self, compression: Compression, bytes: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
        self.with(compression, |c| c.expand(bytes, out))
    }
}

/// The clusters of a volume's files.
#[derive(Clone, Copy)]
pub(crate) struct ClusterReader<'a> {
    pub(super) content: &'a Content,
    pub(super) blocks: &'a ClusterBlocks,
}

impl Deref for ClusterReader<'_> {
    type Target = Content;

    fn deref(&self) -> &Content {
        self.content
    }
}

impl Below for ClusterBlocks {
    fn page_below(&self, content: &Content, inode: &Inode, index: u64) -> Result<Option<Arc<Block>>> {
        ClusterReader { content, blocks: self }.base_in_cluster(inode, index)
    }
}

impl ClusterReader<'_> {
    /// The slot and addresses of the cluster that starts at page `first`, where it is a compressed one, and
    /// the number of its blocks. `Corrupt` where no cluster can be like this.
    pub(super) fn compressed_cluster(
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

    /// The compressed cluster of a page.
    pub(super) fn cluster_of(
        &self,
        inode: &Inode,
        compression: Compression,
        index: u64,
    ) -> Result<Option<ClusterSlots>> {
        let pages = compression.cluster_pages() as u64;
        Ok(self.compressed_cluster(inode, compression, index / pages * pages, None)?.1)
    }

    /// What the compressed cluster of a page holds of it, whatever delta the page has; `None` where it is in none.
    pub(super) fn base_in_cluster(&self, inode: &Inode, index: u64) -> Result<Option<Arc<Block>>> {
        let Some(compression) = self.compression(inode) else { return Ok(None) };
        let Some(cluster) = self.cluster_of(inode, compression, index)? else { return Ok(None) };
        let content = self.expand_cluster(inode, compression, &cluster)?;
        Ok(content.into_iter().nth((index - cluster.first) as usize))
    }

    /// The pages of a compressed cluster as its blocks hold them.
    pub(super) fn expand_cluster(
        &self,
        inode: &Inode,
        compression: Compression,
        cluster: &ClusterSlots,
    ) -> Result<Vec<Arc<Block>>> {
        let blocks = self.read_blocks(cluster.blocks())?;
        let mut pages = vec![Block::ZERO; compression.cluster_pages()];
        self.expand_blocks(inode, compression, cluster.first, &blocks, &mut pages)?;
        Ok(pages.into_iter().map(Arc::new).collect())
    }

    /// Reads blocks, neighbours together.
    pub(super) fn read_blocks(&self, addrs: &[BlockAddr]) -> Result<Vec<Block>> {
        let mut blocks = vec![Block::ZERO; addrs.len()];
        let mut at = 0;
        while at < addrs.len() {
            let run = (at..addrs.len()).take_while(|&i| addrs[i] == addrs[at] + (i - at) as u32).count();
            self.io.read_into(addrs[at], &mut blocks[at..at + run].iter_mut().collect::<Vec<_>>())?;
            at += run;
        }
        Ok(blocks)
    }

    /// Expands the blocks of a cluster into its pages; where one flipped bit explains a wrong checksum, as they were.
    pub(super) fn expand_blocks(
        &self,
        inode: &Inode,
        compression: Compression,
        first: u64,
        blocks: &[Block],
        pages: &mut [Block],
    ) -> Result<()> {
        let wrong = match self.expand_bytes(inode, compression, first, blocks.as_bytes(), pages) {
            Err(wrong) if compression.checksum => wrong,
            expanded => return expanded,
        };
        let mut mended = blocks.as_bytes().to_vec();
        let Some((byte, bit)) = turn_back(&mut mended) else { return Err(wrong) };
        if self.expand_bytes(inode, compression, first, &mended, pages).is_err() {
            return Err(wrong);
        }
        tracing::warn!(
            ino = inode.ino,
            "the compressed cluster at page {first} is valid with bit {bit} of byte {byte} flipped: fsck --repair writes it so"
        );
        Ok(())
    }

    fn expand_bytes(
        &self,
        inode: &Inode,
        compression: Compression,
        first: u64,
        blocks: &[u8],
        pages: &mut [Block],
    ) -> Result<()> {
        let (header, content) = cluster_content(blocks).map_err(|clen| {
            bad_cluster(inode, first, "clen", format!("{clen} in {} blocks", blocks.len() / BLOCK_SIZE))
        })?;
        if compression.checksum {
            let (stored, computed) = (header.chksum.get(), crc::f2fs(content));
            if stored != computed {
                let wrong = format!("{stored:#010x}, computed {computed:#010x}");
                return Err(bad_cluster(inode, first, "chksum", wrong));
            }
        }
        let out = pages.as_mut_bytes();
        let expanded = self
            .blocks
            .expand(compression, content, out)
            .map_err(|_| bad_cluster(inode, first, "cdata", "it cannot be expanded"))?;
        if expanded != out.len() {
            let wrong = format!("{expanded} bytes, expected {}", out.len());
            return Err(bad_cluster(inode, first, "cdata", wrong));
        }
        Counters::add(&self.blocks.counters.expanded, 1);
        Ok(())
    }

    /// Counts `i_compr_blocks` anew: after roll-forward, which takes addresses from nodes of several moments.
    pub(crate) fn recount_saved(&self, inode: &Inode) -> Result<()> {
        let Some(saved) = self.saved_beyond_count(inode)? else { return Ok(()) };
        self.add_saved(inode, saved);
        Ok(())
    }

    /// By how much the saved blocks of a compressed file differ from what it counts; `None` where they do not.
    pub(crate) fn saved_beyond_count(&self, inode: &Inode) -> Result<Option<i64>> {
        let Some(compression) = self.compression(inode) else { return Ok(None) };
        if inode.raw(RawInode::saved_blocks_released) {
            return Ok(None);
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
        Ok((saved != counted).then(|| saved as i64 - counted as i64))
    }

    /// The compressed clusters of a file.
    pub(super) fn clusters(&self, inode: &Inode, compression: Compression) -> Result<Vec<ClusterSlots>> {
        let pages = compression.cluster_pages() as u64;
        let (mut first, mut near, mut all) = (0, None, Vec::new());
        while first < inode.pages() {
            let (slot, cluster) = self.compressed_cluster(inode, compression, first, near.as_ref())?;
            first = match slot {
                Some(_) => first + pages,
                None => self.next_existing(inode, first)?.div_ceil(pages).saturating_mul(pages),
            };
            all.extend(cluster);
            near = slot;
        }
        Ok(all)
    }
}

/// A compressed cluster as its node has it.
pub(super) struct ClusterSlots {
    /// Its first page.
    pub(super) first: u64,
    pub(super) slot: Slot,
    /// All of its addresses: the mark, `blocks` blocks, and the rest.
    pub(super) addrs: Vec<BlockAddr>,
    pub(super) blocks: usize,
}

impl ClusterSlots {
    /// The blocks with the compressed bytes.
    pub(super) fn blocks(&self) -> &[BlockAddr] {
        &self.addrs[1..=self.blocks]
    }

    /// What `i_compr_blocks` counts of it.
    pub(super) fn saved(&self) -> u64 {
        Cluster::Compressed(self.blocks).saved(self.addrs.len())
    }
}

/// Reports a compressed cluster.
pub(super) fn bad_cluster(
    inode: &Inode,
    first: u64,
    field: &'static str,
    wrong: impl std::fmt::Display,
) -> crate::error::Error {
    FormatError::corrupt(Structure::Cluster, inode.ino, field, format!("{wrong}, at page {first}")).into()
}
