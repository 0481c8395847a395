//! Where the areas of a volume are where neither a superblock nor a header of a checkpoint is left, as behind a
//! quick format of something else: as `mkfs` lays out a device of that size, where nodes say so.
//!
//! A node names the block behind it, which says that the volume begins where the device does. Tables and summaries that
//! name it, and a root inode at the beginning of the main area, say where these areas are. A volume with other sections
//! or zones than one segment, or smaller than its device, is not found.
//!
//! Invariant: nothing of this is written to the device of the volume, as something else may be there by right.

use crate::cache::Cache;
use crate::medium::Medium;
use medfs_device::BlockDevice;
use medfs_format::nat::{self, RawNatBlock};
use medfs_format::node::footer;
use medfs_format::summary::{RawSummaryBlock, SUM_TYPE_NODE};
use medfs_format::superblock::{MAGIC, RawSuperblock};
use medfs_format::{Block, BlockAddr, Geometry, LOG_BLOCKS_PER_SEG, Nid};
use medfs_mkfs::{Layout, MkfsOptions};
use std::io;

/// Where partitions begin to which `mkfs` aligns zones: at one of these sectors, or as far behind a zone.
const STARTS: [u64; 2] = [0, 2048];
/// Blocks from the beginning of the main area on in which nodes are looked for (64 MiB).
const LOOKED_THROUGH: u32 = 1 << 14;
/// Nodes that are asked.
const ASKED: usize = 256;
/// What speaks for a layout, at least.
const LEAST: usize = 3;

/// The superblock of a volume of which nodes are left; `None` where too few are found.
pub(crate) fn usual(medium: &Medium<'_>) -> io::Result<Option<(RawSuperblock, Geometry)>> {
    let mut best: Option<(usize, RawSuperblock, Geometry)> = None;
    for start_sector in STARTS {
        let options = MkfsOptions { start_sector, ..MkfsOptions::new([0; 16], 0) };
        let Ok(layout) = Layout::compute(medium.block_count(), &options) else { continue };
        let sb = superblock(&layout);
        let Ok(g) = sb.validate() else { continue };
        let speaks = what_speaks_for(medium, &g)?;
        if speaks >= LEAST && best.as_ref().is_none_or(|(most, ..)| speaks > *most) {
            best = Some((speaks, sb, g));
        }
    }
    Ok(best.map(|(_, sb, g)| (sb, g)))
}

/// Whether a device without superblocks and checkpoints has nodes where those of a volume of its size would be.
pub fn shows_nodes(dev: &dyn BlockDevice) -> io::Result<bool> {
    Ok(usual(&Medium::lenient(dev))?.is_some())
}

/// How much speaks for a layout: nodes that are followed by the block that they name, and those that the NAT or a
/// summary names.
fn what_speaks_for(medium: &Medium<'_>, g: &Geometry) -> io::Result<usize> {
    let mut cache = Cache::new(medium.again());
    let (mut nodes, mut speaks) = (0, 0);
    for addr in (g.main_blkaddr..g.end() as BlockAddr).take(LOOKED_THROUGH as usize) {
        let f = *footer(&*medium.read(addr)?);
        let (nid, ino, next) = (f.nid.get(), f.ino.get(), f.next_blkaddr.get());
        if !g.is_nid(nid) || !g.is_nid(ino) || f.cp_ver.get() == 0 || !g.in_main(next) {
            continue;
        }
        let is_root = addr == g.main_blkaddr && nid == g.root_ino && ino == nid;
        speaks += usize::from(next == addr + 1) + usize::from(is_root);
        speaks += usize::from(is_named(&mut cache, g, nid, addr)?);
        nodes += 1;
        if nodes == ASKED {
            break;
        }
    }
    Ok(speaks)
}

/// Whether either copy of the NAT, or the summary of its segment, names a node.
fn is_named(cache: &mut Cache<'_>, g: &Geometry, nid: Nid, addr: BlockAddr) -> io::Result<bool> {
    let (index, at) = (nid / nat::ENTRIES_PER_BLOCK as u32, nid as usize % nat::ENTRIES_PER_BLOCK);
    for second in [false, true] {
        let block: &RawNatBlock = cache.get(g.nat_block(index, second))?.view();
        if block.entries[at].block_addr.get() == addr {
            return Ok(true);
        }
    }
    let sum: &RawSummaryBlock = cache.get(g.ssa_block(g.segno(addr)))?.view();
    let offset = g.offset_in_seg(addr) as usize;
    Ok(sum.footer.entry_type == SUM_TYPE_NODE && sum.entries[offset].nid.get() == nid)
}

/// A superblock that says where the areas are, and nothing else.
fn superblock(layout: &Layout) -> RawSuperblock {
    let mut block = Block::boxed();
    let sb = RawSuperblock::in_block_mut(&mut block);
    (sb.magic, sb.major_ver, sb.minor_ver) = (MAGIC.into(), 1.into(), 15.into());
    (sb.log_sectorsize, sb.log_sectors_per_block, sb.log_blocksize) = (9.into(), 3.into(), 12.into());
    (sb.log_blocks_per_seg, sb.block_count) = (LOG_BLOCKS_PER_SEG.into(), layout.block_count.into());
    (sb.segment_count, sb.segment_count_ckpt) = (layout.segment_count.into(), 2.into());
    sb.segment_count_sit = layout.segment_count_sit.into();
    sb.segment_count_nat = layout.segment_count_nat.into();
    sb.segment_count_ssa = layout.segment_count_ssa.into();
    sb.segment_count_main = layout.segment_count_main.into();
    (sb.segment0_blkaddr, sb.cp_blkaddr) = (layout.segment0_blkaddr.into(), layout.segment0_blkaddr.into());
    (sb.sit_blkaddr, sb.nat_blkaddr) = (layout.sit_blkaddr.into(), layout.nat_blkaddr.into());
    (sb.ssa_blkaddr, sb.main_blkaddr) = (layout.ssa_blkaddr.into(), layout.main_blkaddr.into());
    (sb.node_ino, sb.meta_ino, sb.root_ino) = (1.into(), 2.into(), 3.into());
    sb.cp_payload = layout.cp_payload.into();
    (sb.segs_per_sec, sb.secs_per_zone) = (layout.segs_per_sec.into(), layout.secs_per_zone.into());
    sb.section_count = layout.section_count.into();
    sb.clone()
}
