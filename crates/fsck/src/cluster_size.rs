//! The size of the clusters of a compressed file whose inode has no checksum: with a flipped bit it cuts clusters where
//! none ends. Marks stand at the first slots of compressed clusters, and the inode counts the slots that these save:
//! one size alone explains both.
//!
//! Invariant: a size that agrees with both stays.

use crate::finding::Code;
use crate::judgement::Judgement;
use medfs_format::compress::{Cluster, LOG_CLUSTER_SIZES};
use medfs_format::node::{
    FileFlags, FileKind, Inline, RawDirectNode, RawExtraAttr, RawIndirectNode, RawInode, footer,
};
use medfs_format::{BlockAddr, Ino, NEW_ADDR, NULL_ADDR, Nid};
use std::io;

/// One more than the greatest size.
const SIZES: usize = *LOG_CLUSTER_SIZES.end() as usize + 1;

/// The slots that clusters of each size would save; `None` of a size that contradicts the marks.
struct Saved([Option<u64>; SIZES]);

impl Saved {
    fn of(&self, log: u8) -> Option<u64> {
        self.0.get(usize::from(log)).copied().flatten().filter(|_| LOG_CLUSTER_SIZES.contains(&log))
    }

    /// Adds the clusters of one node.
    fn add(&mut self, addrs: &[BlockAddr]) {
        for log in LOG_CLUSTER_SIZES {
            let (pages, sum) = (1_usize << log, &mut self.0[usize::from(log)]);
            let clusters = addrs.chunks_exact(pages);
            let is_split = clusters.remainder().iter().any(|&addr| addr != NULL_ADDR);
            let saved: Result<u64, &str> =
                clusters.map(|addrs| Cluster::of(addrs).map(|found| found.saved(pages))).sum();
            *sum = match (*sum, saved) {
                (Some(before), Ok(saved)) if !is_split => Some(before + saved),
                _ => None,
            };
        }
    }
}

/// Sets the size of a file's clusters right, with a finding, where one with a bit flipped alone agrees with its
/// addresses, and with the slots that it counts as saved.
pub(crate) fn settle(j: &mut Judgement<'_>, ino: Ino, inode: &mut RawInode, place: &str) -> io::Result<()> {
    let is_file = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Regular);
    let is_marked = inode.flags().contains(FileFlags::COMPR) && inode.extra_fits(size_of::<RawExtraAttr>());
    let is_released = inode.saved_blocks_released() || inode.inline().contains(Inline::DATA);
    if j.rules.seed.is_some() || !j.rules.has_compression() || !is_file || !is_marked || is_released {
        return Ok(());
    }
    let Some(slots) = inode.possible_slots(j.rules.flexible()) else { return Ok(()) };
    let Some((log, saved)) =
        inode.extra().map(|extra| (extra.i_log_cluster_size, extra.i_compr_blocks.get()))
    else {
        return Ok(());
    };
    let area = &inode.i_addr[slots.extra..slots.extra + slots.area()];
    let addrs: Vec<BlockAddr> = area.iter().map(|addr| addr.get()).collect();
    if LOG_CLUSTER_SIZES.contains(&log) && are_clusters(&addrs, 1 << log) {
        return Ok(());
    }
    let mut found = Saved([Some(0); SIZES]);
    found.add(&addrs);
    let mut left = j.image.checkpoint().valid_node_count.get();
    for (nid, level) in inode.i_nid.into_iter().zip([0, 0, 1, 1, 2]) {
        add_below(j, ino, (nid.get(), level), &mut found, &mut left)?;
    }
    if found.of(log) == Some(saved) {
        return Ok(());
    }
    let near = (0..u8::BITS).map(|bit| log ^ 1 << bit);
    let fitting: Vec<u8> = near.filter(|&log| found.of(log) == Some(saved)).collect();
    if let ([right], Some(extra)) = (&fitting[..], inode.extra_mut()) {
        extra.i_log_cluster_size = *right;
        let text = format!(
            "{place}: inode {ino}: i_log_cluster_size {log}, but the marks of its clusters and i_compr_blocks say {right}"
        );
        j.findings.add(Code::InodeField, text);
    }
    Ok(())
}

/// Whether addresses make clusters of so many pages, each compressed one with what is reserved for it.
fn are_clusters(addrs: &[BlockAddr], pages: usize) -> bool {
    addrs.chunks_exact(pages).all(|addrs| match Cluster::of(addrs) {
        Ok(Cluster::Plain) => !addrs.contains(&NEW_ADDR),
        Ok(Cluster::Compressed(_)) => true,
        Err(_) => false,
    })
}

/// Adds the clusters of the nodes at and below one, as far as they are the file's; `left`: nodes that there may be.
fn add_below(
    j: &mut Judgement<'_>,
    ino: Ino,
    (nid, level): (Nid, u32),
    found: &mut Saved,
    left: &mut u32,
) -> io::Result<()> {
    if *left == 0 || nid == ino || !j.image.g.is_nid(nid) {
        return Ok(());
    }
    *left -= 1;
    let addr = j.image.nat(nid)?.block_addr.get();
    if !j.image.g.in_main(addr) {
        return Ok(());
    }
    let block = j.image.cache.read(addr)?;
    if footer(&block).ino.get() != ino {
        return Ok(());
    }
    if level == 0 {
        found.add(&block.view::<RawDirectNode>().addr.map(|addr| addr.get()));
        return Ok(());
    }
    for nid in block.view::<RawIndirectNode>().nid {
        add_below(j, ino, (nid.get(), level - 1), found, left)?;
    }
    Ok(())
}
