//! Which clusters were compressed of a file whose inode is lost: the marks in the inode are lost with it, and how the
//! file was compressed. The content tells: the blocks behind an empty first slot make a whole cluster, under
//! one algorithm and one size. Marks in direct nodes have to agree.
//!
//! Memory: the addresses of [`SAMPLES`] clusters, and one cluster's content.

use crate::deltas::content_of;
use crate::image::Image;
use crate::remains::Remains;
use medfs_codec::compress::Compressors;
use medfs_format::compress::{
    Algorithm, Cluster, Compression, LOG_CLUSTER_SIZES, blocks_of, cluster_content, most_content,
};
use medfs_format::node::ADDRS_PER_BLOCK;
use medfs_format::path::{Fanout, NodeKind, first_page, node_kind};
use medfs_format::{BLOCK_SIZE, BlockAddr, COMPRESS_ADDR, NEW_ADDR, NULL_ADDR, is_block};
use std::io;
use std::ops::Range;

/// Clusters that are asked how a file was compressed.
const SAMPLES: usize = 16;
/// Pages of the smallest and of the largest cluster.
const LEAST: usize = 1 << *LOG_CLUSTER_SIZES.start();
const MOST: usize = 1 << *LOG_CLUSTER_SIZES.end();
/// LZO with runs begins with these.
const LZO_RUNS: [u8; 2] = [17, 1];

/// How a file was stored.
pub(crate) enum Stored {
    /// A block for each page.
    Plain,
    /// In clusters so compressed, but for these pages of the inode's, of which nothing can be told.
    Compressed(Compression, Vec<Range<u64>>),
    /// It cannot be told.
    Unknown,
}

/// A cluster that may be compressed: the slot of its first page, and the addresses from there on.
type Sample = (usize, Vec<BlockAddr>);

/// What tells how files were stored.
pub(crate) struct LostClusters<'j, 'd> {
    pub(crate) image: &'j mut Image<'d>,
    pub(crate) compressors: &'j mut Compressors,
}

impl LostClusters<'_, '_> {
    /// Finds out how a file was stored, and puts the marks into the slots of its inode.
    pub(crate) fn find(&mut self, slots: &mut [BlockAddr], remains: &Remains) -> io::Result<Stored> {
        let marked = self.marked(remains)?;
        let runs: Vec<Sample> = (0..slots.len().saturating_sub(1))
            .step_by(LEAST)
            .filter(|&slot| slots[slot] == NULL_ADDR && is_block(slots[slot + 1]))
            .map(|slot| (slot, with_mark(&slots[slot..slots.len().min(slot + MOST)])))
            .collect();
        if marked.is_empty() && runs.is_empty() {
            return Ok(Stored::Plain);
        }
        let samples = &runs[..runs.len().min(SAMPLES)];
        let mut best = (0, None);
        for algorithm in [Algorithm::Lzo, Algorithm::Lz4, Algorithm::Zstd] {
            for log_cluster_size in LOG_CLUSTER_SIZES {
                let tried = Compression { algorithm, log_cluster_size, checksum: false, level: 0 };
                let agreeing = self.agreeing(tried, &marked, samples)?;
                if agreeing > best.0 {
                    best = (agreeing, Some(tried));
                }
            }
        }
        let Some(mut found) = best.1 else {
            let mut is_unknown = !marked.is_empty();
            for (_, addrs) in &runs {
                is_unknown |= self.may_be_part(addrs)?;
            }
            return Ok(if is_unknown { Stored::Unknown } else { Stored::Plain });
        };
        let cuts = self.mark_clusters(slots, &mut found)?;
        for (_, addrs) in &marked {
            self.note_header(&mut found, addrs)?;
        }
        Ok(Stored::Compressed(found, cuts))
    }

    /// Whether the nodes of a file that has no compressed cluster have one place each. Where a file is divided into
    /// clusters, no node holds part of one: the nodes then lead to other pages. `area`: how many addresses the inode
    /// has room for.
    pub(crate) fn is_place_sure(&mut self, remains: &Remains, area: usize) -> io::Result<bool> {
        let top = remains.blocks.last().map_or(0, |(slot, _)| usize::from(*slot) + 1);
        let mut used = 0;
        for &(_, nid) in remains.nodes.iter().filter(|(offset, _)| node_kind(*offset) == NodeKind::Direct) {
            let last = self.image.addrs_of(nid)?.iter().rposition(|&addr| addr != NULL_ADDR);
            used = used.max(last.map_or(0, |last| last + 1));
        }
        let sizes = std::iter::once(1).chain(LOG_CLUSTER_SIZES.map(|log| 1 << log));
        let fanouts = sizes.map(|size: usize| Fanout {
            inode: (area / size * size) as u64,
            block: (ADDRS_PER_BLOCK / size * size) as u64,
        });
        let possible = fanouts.filter(|fanout| top as u64 <= fanout.inode && used as u64 <= fanout.block);
        let places = possible.map(|fanout| {
            remains.nodes.iter().map(|(offset, _)| first_page(*offset, fanout)).collect::<Vec<_>>()
        });
        let places: Vec<_> = places.collect();
        Ok(places.windows(2).all(|pair| pair[0] == pair[1]))
    }

    /// Some clusters that direct nodes mark as compressed.
    fn marked(&mut self, remains: &Remains) -> io::Result<Vec<Sample>> {
        let mut marked = Vec::new();
        for &(_, nid) in &remains.nodes {
            let addrs = self.image.addrs_of(nid)?;
            let slots = (0..addrs.len()).filter(|&slot| addrs[slot] == COMPRESS_ADDR);
            let samples = slots.map(|slot| (slot, addrs[slot..addrs.len().min(slot + MOST)].to_vec()));
            marked.extend(samples.take(SAMPLES - marked.len()));
        }
        Ok(marked)
    }

    /// How many samples are clusters so compressed; 0 where a mark contradicts.
    fn agreeing(&mut self, tried: Compression, marked: &[Sample], runs: &[Sample]) -> io::Result<usize> {
        let pages = tried.cluster_pages();
        let mut agreeing = 0;
        for (at, (slot, addrs)) in marked.iter().chain(runs).enumerate() {
            let cluster = addrs.get(..pages).filter(|_| slot.is_multiple_of(pages));
            let is_cluster =
                cluster.is_some_and(|addrs| matches!(Cluster::of(addrs), Ok(Cluster::Compressed(_))));
            if !is_cluster && at < marked.len() {
                return Ok(0);
            }
            if let Some(addrs) = cluster.filter(|_| is_cluster) {
                agreeing += usize::from(self.expands(tried, addrs)?);
            }
        }
        Ok(agreeing)
    }

    /// Marks the compressed clusters among the slots of an inode; the pages of which nothing can be told.
    fn mark_clusters(
        &mut self,
        slots: &mut [BlockAddr],
        compression: &mut Compression,
    ) -> io::Result<Vec<Range<u64>>> {
        let pages = compression.cluster_pages();
        let mut cuts = Vec::new();
        for (at, addrs) in slots.chunks_exact_mut(pages).enumerate() {
            if addrs[0] != NULL_ADDR || !is_block(addrs[1]) {
                continue;
            }
            let cluster = with_mark(addrs);
            if self.expands(*compression, &cluster)? {
                self.note_header(compression, &cluster)?;
                let reserved = |addr: BlockAddr| if addr == NULL_ADDR { NEW_ADDR } else { addr };
                addrs.iter_mut().zip(cluster).for_each(|(addr, now)| *addr = reserved(now));
            } else if self.may_be_part(&cluster)? || self.looks_compressed(&cluster)? {
                addrs.fill(NULL_ADDR);
                cuts.push((at * pages) as u64..((at + 1) * pages) as u64);
            }
        }
        Ok(cuts)
    }

    /// Takes up what the header of a cluster says of the file's compression.
    fn note_header(&mut self, compression: &mut Compression, addrs: &[BlockAddr]) -> io::Result<()> {
        let bytes = self.bytes_of(addrs)?;
        if let Ok((header, content)) = cluster_content(&bytes) {
            compression.checksum |= header.chksum.get() != 0;
            if compression.algorithm == Algorithm::Lzo && content.starts_with(&LZO_RUNS) {
                compression.algorithm = Algorithm::LzoRle;
            }
        }
        Ok(())
    }

    /// Whether the blocks of a cluster make it whole.
    fn expands(&mut self, compression: Compression, addrs: &[BlockAddr]) -> io::Result<bool> {
        let Ok(Cluster::Compressed(blocks)) = Cluster::of(addrs) else { return Ok(false) };
        let bytes = self.bytes_of(addrs)?;
        let is_as_long = cluster_content(&bytes).is_ok_and(|(_, content)| blocks_of(content.len()) == blocks);
        Ok(is_as_long && content_of(self.compressors, compression, &bytes, addrs.len()).is_ok())
    }

    /// Whether blocks may be a part of a compressed cluster: not all of it can be read, or not all of it is known.
    fn may_be_part(&mut self, addrs: &[BlockAddr]) -> io::Result<bool> {
        for &addr in addrs[1..].iter().take_while(|&&addr| is_block(addr)) {
            self.image.cache.get(addr)?;
            if self.image.cache.medium.is_unreadable(addr) {
                return Ok(true);
            }
        }
        Ok(!self.image.all_summaries && self.looks_compressed(addrs)?)
    }

    /// Whether blocks begin as those of a compressed cluster do.
    fn looks_compressed(&mut self, addrs: &[BlockAddr]) -> io::Result<bool> {
        let bytes = self.bytes_of(addrs)?;
        let clen = match cluster_content(&bytes) {
            Ok((header, _)) => header.clen.get(),
            Err(clen) => clen,
        };
        let is_reserved_empty = bytes.get(8..24).is_some_and(|bytes| bytes.iter().all(|&byte| byte == 0));
        Ok(is_reserved_empty && (1..=most_content(MOST)).contains(&(clen as usize)))
    }

    /// The blocks of a compressed cluster.
    fn bytes_of(&mut self, addrs: &[BlockAddr]) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for &addr in addrs[1..].iter().take_while(|&&addr| is_block(addr)) {
            if !self.image.g.in_main(addr) {
                break;
            }
            bytes.reserve(BLOCK_SIZE);
            bytes.extend_from_slice(&self.image.cache.get(addr)?.0);
        }
        Ok(bytes)
    }
}

/// Addresses with the mark of a compressed cluster in the first slot.
fn with_mark(addrs: &[BlockAddr]) -> Vec<BlockAddr> {
    let mut cluster = addrs.to_vec();
    cluster[0] = COMPRESS_ADDR;
    cluster
}
