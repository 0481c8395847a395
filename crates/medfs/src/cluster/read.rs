//! Reading compressed files.

use super::blocks::ClusterSlots;
use super::pages::ClusterPages;
use crate::content::page_io::copy_out;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use medfs_format::compress::Compression;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr};
use std::ops::Range;
use std::sync::Arc;

/// Blocks of several clusters that are read together.
const BATCH: usize = 256;
/// Longest read, in pages, that brings whole clusters into the cache; longer ones leave there only what they did not
/// take of a cluster: as those who read so much have a cache of their own.
const MAX_CACHED: usize = 8;

impl ClusterPages<'_> {
    /// A page of a compressed cluster; `None` where it has an address of its own, or none.
    pub(super) fn page_of_cluster(
        &self,
        inode: &Inode,
        state: &InodeState,
        index: u64,
    ) -> Result<Option<Arc<Block>>> {
        let Some(compression) = self.compression(inode) else { return Ok(None) };
        let Some(cluster) = self.cluster_of(inode, compression, index)? else { return Ok(None) };
        let content = self.pages_of_cluster(inode, compression, &cluster)?;
        for (at, page) in (cluster.first..).zip(&content) {
            if !state.pages.is_dirty(at) {
                self.pages.insert(inode.ino, at, page.clone());
            }
        }
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
        for index in self.updates.kept(self.content, inode, first..first + content.len() as u64)? {
            let page = &mut content[(index - first) as usize];
            *page = self.updates.page_over(self.content, inode, index, page.clone())?;
        }
        Ok(content)
    }

    /// Reads `buf.len()` bytes of a compressed file from `offset` on; the caller has clamped the range to the file.
    pub(super) fn read_clusters(
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
            let in_memory: Result<Option<Vec<_>>> =
                here.clone().map(|index| self.page_in_memory(inode, state, index)).collect();
            match in_memory? {
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
        let part = &mut buf[(from - offset) as usize..(to - offset) as usize];
        self.read_plain(inode, state, from, part, self.updates)
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
            let deltas =
                self.updates.kept(self.content, inode, cluster.first..cluster.first + pages.len() as u64)?;
            for (index, page) in (cluster.first..).zip(&pages) {
                if let Some(newer) = state.pages.get(index) {
                    copy_out(buf, offset, index, newer);
                    continue;
                }
                let at = index * BLOCK_SIZE as u64;
                let taken = at >= offset && at + BLOCK_SIZE as u64 <= offset + buf.len() as u64;
                if !deltas.contains(&index) && !few && taken {
                    copy_out(buf, offset, index, page);
                    continue;
                }
                let page = self.updates.page_over(self.content, inode, index, Arc::new(page.clone()))?;
                copy_out(buf, offset, index, &page);
                self.pages.insert(inode.ino, index, page);
            }
        }
        Ok(())
    }
}
