//! The roll-forward log: nodes that fsync wrote after the checkpoint, in the warm node log's chain.
//!
//! Counted, never changed. The walk is bounded: no block is visited twice.

use crate::image::Image;
use foldhash::{HashSet, HashSetExt};
use medfs_codec::Codecs;
use medfs_format::checkpoint::CpFlags;
use medfs_format::node::{RawDirectNode, RawInode, footer};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::removed::{is_removed_names, removed_names};
use medfs_format::shared::{entries, is_shared};
use medfs_format::summary::Log;
use medfs_format::{Block, BlockAddr, Ino, Nid, SegNo};
use serde::Serialize;
use std::io;

/// What an engine would replay when it opens the volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FsyncLog {
    /// Inodes with fsynced changes.
    pub inodes: u64,
    /// Node blocks in the chain.
    pub nodes: u64,
    /// Those of them that several files share.
    pub shared: u64,
    /// Names that files lost.
    pub removed: u64,
}

/// The log, with what a repair must leave alone.
#[derive(Default)]
pub(crate) struct LogWalk {
    pub(crate) summary: FsyncLog,
    /// Segments that hold its nodes or data.
    pub(crate) segments: HashSet<SegNo>,
    /// Node ids it uses.
    pub(crate) nids: HashSet<Nid>,
}

/// Follows the chain from the warm node log's next block.
pub(crate) fn walk(image: &mut Image<'_>) -> io::Result<LogWalk> {
    let mut log = LogWalk::default();
    let cp = image.checkpoint();
    let flags = cp.flags();
    let at = (cp.checksum_offset.get() as usize).min(medfs_format::checkpoint::CHECKSUM_OFFSET);
    let crc = u32::from_le_bytes(image.cp[at..at + 4].try_into().expect("four bytes"));
    let version = cp.checkpoint_ver.get();
    let belongs = |cp_ver: u64| {
        if flags.contains(CpFlags::NOCRC_RECOVERY) {
            cp_ver as u32 == version as u32
        } else if flags.contains(CpFlags::CRC_RECOVERY) {
            cp_ver == version | (u64::from(crc) << 32)
        } else {
            cp_ver == version
        }
    };
    let mut inodes: HashSet<Ino> = HashSet::new();
    let mut seen: HashSet<BlockAddr> = HashSet::new();
    let warm = &image.cursegs[Log::WarmNode as usize];
    let mut addr = image.g.seg_start(warm.segno) + warm.blkoff;
    while image.g.in_main(addr) && seen.insert(addr) {
        let block = medfs_device::read_block(image.cache.dev, u64::from(addr))?;
        let f = footer(&block);
        if !belongs(f.cp_ver.get()) {
            break;
        }
        log.summary.nodes += 1;
        log.segments.insert(image.g.segno(addr));
        if is_shared(&block, image.g.node_ino) {
            log.summary.shared += 1;
            keep_entries(image, addr, &block, &mut log, &mut inodes)?;
            addr = f.next_blkaddr.get();
            continue;
        }
        if is_removed_names(&block, image.g.node_ino) {
            log.summary.removed += removed_names(&block, addr).map_or(0, |names| names.len() as u64);
            addr = f.next_blkaddr.get();
            continue;
        }
        log.nids.insert(f.nid.get());
        if f.is_fsync() {
            inodes.insert(f.ino.get());
        }
        keep_data(image, &block, &mut log);
        addr = f.next_blkaddr.get();
    }
    log.summary.inodes = inodes.len() as u64;
    Ok(log)
}

/// Keeps what the inode blocks name that the entries of a shared record node stand for. Of what does not come out, an engine
/// will say so.
fn keep_entries(
    image: &mut Image<'_>,
    addr: BlockAddr,
    block: &Block,
    log: &mut LogWalk,
    inodes: &mut HashSet<Ino>,
) -> io::Result<()> {
    let mut codecs = Codecs::default();
    for entry in entries(block, addr).unwrap_or_default() {
        inodes.insert(entry.ino);
        log.nids.insert(entry.ino);
        if !image.g.in_main(entry.base) {
            continue;
        }
        log.segments.insert(image.g.segno(entry.base));
        let mut inode = medfs_device::read_block(image.cache.dev, u64::from(entry.base))?;
        if codecs.rebuild(entry.codec, entry.delta, entry.checksum, &mut inode.0).is_ok() {
            keep_data(image, &inode, log);
        }
    }
    Ok(())
}

fn keep_data(image: &Image<'_>, block: &Block, log: &mut LogWalk) {
    let addrs: &[_] = match node_kind(footer(block).node_offset()) {
        NodeKind::Inode => &block.view::<RawInode>().i_addr,
        NodeKind::Direct => &block.view::<RawDirectNode>().addr,
        NodeKind::Indirect | NodeKind::Xattr => &[],
    };
    for addr in addrs {
        if image.g.in_main(addr.get()) {
            log.segments.insert(image.g.segno(addr.get()));
        }
    }
}
