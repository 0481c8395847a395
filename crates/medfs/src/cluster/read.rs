//! Reading compressed clusters.

use super::{ClusterSlots, bad_cluster};
use crate::content::page_io::copy_out;
use crate::error::Result;
use crate::fs::Fs;
use crate::map::inode::{Inode, InodeState};
use crate::stats::Counters;
use medfs_format::compress::{Compression, cluster_content};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, crc};
use std::ops::Range;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Blocks of several clusters that are read together.
const BATCH: usize = 256;
/// Longest read, in pages, that brings whole clusters into the cache; longer ones leave there only what they did not
/// take of a cluster: as those who read so much have a cache of their own.
const MAX_CACHED: usize = 8;

impl Fs {
    /// A page of a compressed cluster; `None` where it has an address of its own, or none.
    pub(crate) fn page_of_cluster(
        &self,
        inode: &Inode,
        state: &InodeState,
        index: u64,
    ) -> Result<Option<Arc<Block>>> {
        let Some(compression) = self.compression(inode) else { return Ok(None) };
        let Some(cluster) = self.cluster_of(inode, compression, index)? else { return Ok(None) };
        let content = self.pages_of_cluster(inode, compression, &cluster)?;
        for (at, page) in (cluster.first..).zip(&content) {
            if !state.dirty.contains_key(&at) {
                self.pages.insert(inode.ino, at, page.clone());
            }
        }
        Ok(content.into_iter().nth((index - cluster.first) as usize))
    }

    /// The compressed cluster of a page.
    fn cluster_of(
        &self,
        inode: &Inode,
        compression: Compression,
        index: u64,
    ) -> Result<Option<ClusterSlots>> {
        let pages = compression.cluster_pages() as u64;
        Ok(self.compressed_cluster(inode, compression, index / pages * pages, None)?.1)
    }

    /// What the compressed cluster of a page holds of it, whatever delta the page has; `None` where it is in none.
    pub(crate) fn base_in_cluster(&self, inode: &Inode, index: u64) -> Result<Option<Arc<Block>>> {
        let Some(compression) = self.compression(inode) else { return Ok(None) };
        let Some(cluster) = self.cluster_of(inode, compression, index)? else { return Ok(None) };
        let content = self.expand_cluster(inode, compression, &cluster)?;
        Ok(content.into_iter().nth((index - cluster.first) as usize))
    }

    /// The pages of a compressed cluster with their deltas, but without what is dirty of them.
    pub(super) fn pages_of_cluster(
        &self,
        inode: &Inode,
        compression: Compression,
        cluster: &ClusterSlots,
    ) -> Result<Vec<Arc<Block>>> {
        let mut content = self.expand_cluster(inode, compression, cluster)?;
        let first = cluster.first;
        for index in self.delta_pages(inode, first..first + content.len() as u64)? {
            let page = &mut content[(index - first) as usize];
            *page = self.page_over(inode, index, page.clone())?;
        }
        Ok(content)
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

    /// Reads `buf.len()` bytes of a compressed file from `offset` on; the caller has clamped the range to the file.
    pub(crate) fn read_clusters(
        &self,
        inode: &Inode,
        state: &InodeState,
        compression: Compression,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let page = BLOCK_SIZE as u64;
        let wanted = offset / page..(offset + buf.len() as u64).div_ceil(page);
        let pages = compression.cluster_pages() as u64;
        let mut near = None;
        let mut first = wanted.start / pages * pages;
        // Clusters that are compressed wait to be read together, pages with addresses of their own too.
        let (mut compressed, mut plain) = (Vec::new(), wanted.start..wanted.start);
        let mut blocks = 0;
        while first < wanted.end {
            let here = wanted.start.max(first)..wanted.end.min(first + pages);
            let (slot, cluster) = self.compressed_cluster(inode, compression, first, near.as_ref())?;
            near = slot;
            first += pages;
            let Some(cluster) = cluster else {
                plain.end = here.end;
                continue;
            };
            self.read_plain_pages(inode, state, &plain, offset, buf)?;
            plain = here.end..here.end;
            let in_memory: Option<Vec<_>> =
                here.clone().map(|index| self.page_in_memory(inode, state, index)).collect();
            match in_memory {
                Some(known) => here.zip(known).for_each(|(index, page)| copy_out(buf, offset, index, &page)),
                None => {
                    blocks += cluster.blocks;
                    compressed.push(cluster);
                }
            }
            if blocks >= BATCH {
                self.read_compressed(inode, state, compression, &compressed, offset, buf)?;
                compressed.clear();
                blocks = 0;
            }
        }
        self.read_plain_pages(inode, state, &plain, offset, buf)?;
        self.read_compressed(inode, state, compression, &compressed, offset, buf)
    }

    fn read_plain_pages(
        &self,
        inode: &Inode,
        state: &InodeState,
        pages: &Range<u64>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let end = offset + buf.len() as u64;
        let from = offset.max(pages.start * BLOCK_SIZE as u64);
        let to = end.min(pages.end * BLOCK_SIZE as u64);
        if from >= to {
            return Ok(());
        }
        self.read_plain(inode, state, from, &mut buf[(from - offset) as usize..(to - offset) as usize])
    }

    /// Reads these clusters and copies what is asked for of them.
    fn read_compressed(
        &self,
        inode: &Inode,
        state: &InodeState,
        compression: Compression,
        clusters: &[ClusterSlots],
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let addrs: Vec<BlockAddr> = clusters.iter().flat_map(|c| c.blocks().iter().copied()).collect();
        let blocks = self.read_blocks(&addrs)?;
        let mut rest = &blocks[..];
        let mut pages = vec![Block::ZERO; compression.cluster_pages()];
        let few = buf.len() <= MAX_CACHED * BLOCK_SIZE;
        for cluster in clusters {
            let (own, others) = rest.split_at(cluster.blocks);
            rest = others;
            self.expand_blocks(inode, compression, cluster.first, own, &mut pages)?;
            let deltas = self.delta_pages(inode, cluster.first..cluster.first + pages.len() as u64)?;
            for (index, page) in (cluster.first..).zip(&pages) {
                if let Some(newer) = state.dirty.get(&index) {
                    copy_out(buf, offset, index, newer);
                    continue;
                }
                let at = index * BLOCK_SIZE as u64;
                let taken = at >= offset && at + BLOCK_SIZE as u64 <= offset + buf.len() as u64;
                if !deltas.contains(&index) && !few && taken {
                    copy_out(buf, offset, index, page);
                    continue;
                }
                let page = self.page_over(inode, index, Arc::new(page.clone()))?;
                copy_out(buf, offset, index, &page);
                self.pages.insert(inode.ino, index, page);
            }
        }
        Ok(())
    }

    /// Reads blocks, neighbours together.
    fn read_blocks(&self, addrs: &[BlockAddr]) -> Result<Vec<Block>> {
        let mut blocks = vec![Block::ZERO; addrs.len()];
        let mut at = 0;
        while at < addrs.len() {
            let run = (at..addrs.len()).take_while(|&i| addrs[i] == addrs[at] + (i - at) as u32).count();
            self.io.read_into(addrs[at], &mut blocks[at..at + run].iter_mut().collect::<Vec<_>>())?;
            at += run;
        }
        Ok(blocks)
    }

    /// Expands the blocks of a cluster into its pages.
    fn expand_blocks(
        &self,
        inode: &Inode,
        compression: Compression,
        first: u64,
        blocks: &[Block],
        pages: &mut [Block],
    ) -> Result<()> {
        let (header, content) = cluster_content(blocks.as_bytes()).map_err(|clen| {
            bad_cluster(inode, first, "clen", format!("{clen} in {} blocks", blocks.len()))
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
            .compress
            .expand(compression, content, out)
            .map_err(|_| bad_cluster(inode, first, "cdata", "it cannot be expanded"))?;
        if expanded != out.len() {
            let wrong = format!("{expanded} bytes, expected {}", out.len());
            return Err(bad_cluster(inode, first, "cdata", wrong));
        }
        Counters::add(&self.compress.counters.expanded, 1);
        Ok(())
    }
}
