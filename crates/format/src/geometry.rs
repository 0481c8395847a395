//! Where the areas of a volume are, and arithmetic between segments, sections and blocks.

use crate::superblock::{MAX_EXTENSIONS, RawSuperblock};
use crate::{BLOCKS_PER_SEG, BlockAddr, FormatError, Ino, Nid, SegNo, Structure, nat, sit};
use std::ops::Range;

/// Largest number of segments F2FS allows (16 TiB).
pub const MAX_SEGMENTS: u32 = 16 * 1024 * 1024 / 2;
/// Smallest number of segments of a volume.
const MIN_SEGMENTS: u32 = 9;
/// Most blocks a checkpoint payload may have.
const MAX_CP_PAYLOAD: u32 = BLOCKS_PER_SEG - 2 - 8;

/// Validated layout of a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the whole volume, from block 0.
    pub block_count: u64,
    /// Segments in a section, the unit of cleaning.
    pub segs_per_sec: u32,
    /// Sections in a zone.
    pub secs_per_zone: u32,
    /// Sections in the main area.
    pub section_count: u32,
    /// Address of segment 0, which starts the checkpoint area.
    pub segment0_blkaddr: BlockAddr,
    /// First block of the checkpoint area.
    pub cp_blkaddr: BlockAddr,
    /// First block of the SIT.
    pub sit_blkaddr: BlockAddr,
    /// First block of the NAT.
    pub nat_blkaddr: BlockAddr,
    /// First block of the SSA.
    pub ssa_blkaddr: BlockAddr,
    /// First block of the main area.
    pub main_blkaddr: BlockAddr,
    /// Segments of the main area.
    pub segment_count_main: u32,
    /// Segments of SIT (both copies).
    pub segment_count_sit: u32,
    /// Segments of NAT (both copies).
    pub segment_count_nat: u32,
    /// Segments of SSA.
    pub segment_count_ssa: u32,
    /// Extra blocks of a checkpoint pack that hold the bitmaps that do not fit its first block.
    pub cp_payload: u32,
    /// Inode number of the root directory.
    pub root_ino: Ino,
    /// Reserved inode number of the node mapping.
    pub node_ino: Ino,
    /// Reserved inode number of the meta mapping.
    pub meta_ino: Ino,
}

/// Blocks of the largest volume: as many as there are addresses.
const MOST_BLOCKS: u64 = 1 << 32;

impl Geometry {
    /// Validates the layout fields of a superblock.
    pub fn from_superblock(sb: &RawSuperblock) -> Result<Geometry, FormatError> {
        let g = Geometry::fields(sb);
        g.check_main(sb)?;
        g.check_areas(sb)?;
        g.check_tables()?;
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Superblock, 0u32, field, value));
        if g.cp_payload >= MAX_CP_PAYLOAD {
            return bad("cp_payload", g.cp_payload.to_string());
        }
        let extensions = sb.extension_count.get().saturating_add(u32::from(sb.hot_ext_count));
        if extensions as usize > MAX_EXTENSIONS {
            return bad("extension_count", extensions.to_string());
        }
        if (g.node_ino, g.meta_ino, g.root_ino) != (1, 2, 3) {
            return bad("root_ino", format!("{} (node {}, meta {})", g.root_ino, g.node_ino, g.meta_ino));
        }
        Ok(g)
    }

    /// The fields as they are.
    fn fields(sb: &RawSuperblock) -> Geometry {
        Geometry {
            block_count: sb.block_count.get(),
            segs_per_sec: sb.segs_per_sec.get(),
            secs_per_zone: sb.secs_per_zone.get(),
            section_count: sb.section_count.get(),
            segment0_blkaddr: sb.segment0_blkaddr.get(),
            cp_blkaddr: sb.cp_blkaddr.get(),
            sit_blkaddr: sb.sit_blkaddr.get(),
            nat_blkaddr: sb.nat_blkaddr.get(),
            ssa_blkaddr: sb.ssa_blkaddr.get(),
            main_blkaddr: sb.main_blkaddr.get(),
            segment_count_main: sb.segment_count_main.get(),
            segment_count_sit: sb.segment_count_sit.get(),
            segment_count_nat: sb.segment_count_nat.get(),
            segment_count_ssa: sb.segment_count_ssa.get(),
            cp_payload: sb.cp_payload.get(),
            root_ino: sb.root_ino.get(),
            node_ino: sb.node_ino.get(),
            meta_ino: sb.meta_ino.get(),
        }
    }

    /// Segments, sections and zones divide the volume.
    fn check_main(&self, sb: &RawSuperblock) -> Result<(), FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Superblock, 0u32, field, value));
        let segment_count = sb.segment_count.get();
        if !(MIN_SEGMENTS..=MAX_SEGMENTS).contains(&segment_count) {
            return bad("segment_count", segment_count.to_string());
        }
        if self.segs_per_sec == 0 || self.segs_per_sec > segment_count {
            return bad("segs_per_sec", self.segs_per_sec.to_string());
        }
        if self.secs_per_zone == 0 || self.secs_per_zone > self.section_count.max(1) {
            return bad("secs_per_zone", self.secs_per_zone.to_string());
        }
        if self.section_count == 0
            || u64::from(self.section_count) * u64::from(self.segs_per_sec)
                != u64::from(self.segment_count_main)
        {
            return bad("section_count", format!("{} of {} segments", self.section_count, self.segs_per_sec));
        }
        if self.segment_count_main > segment_count || self.segment_count_main == 0 {
            return bad("segment_count_main", self.segment_count_main.to_string());
        }
        if u64::from(segment_count) > (self.block_count >> crate::LOG_BLOCKS_PER_SEG) {
            return bad("block_count", format!("{} for {segment_count} segments", self.block_count));
        }
        if self.block_count > MOST_BLOCKS {
            return bad("block_count", format!("{}, more than have addresses", self.block_count));
        }
        Ok(())
    }

    /// Each area begins where the one before it ends, and the volume holds the last.
    fn check_areas(&self, sb: &RawSuperblock) -> Result<(), FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Superblock, 0u32, field, value));
        let segment_count = sb.segment_count.get();
        let mut at = u64::from(self.segment0_blkaddr);
        let ckpt = sb.segment_count_ckpt.get();
        if ckpt != 2 {
            return bad("segment_count_ckpt", ckpt.to_string());
        }
        for (field, start, segments) in [
            ("cp_blkaddr", self.cp_blkaddr, ckpt),
            ("sit_blkaddr", self.sit_blkaddr, self.segment_count_sit),
            ("nat_blkaddr", self.nat_blkaddr, self.segment_count_nat),
            ("ssa_blkaddr", self.ssa_blkaddr, self.segment_count_ssa),
            ("main_blkaddr", self.main_blkaddr, self.segment_count_main),
        ] {
            if u64::from(start) != at {
                return bad(field, format!("{start}, expected {at}"));
            }
            at += u64::from(segments) * u64::from(BLOCKS_PER_SEG);
        }
        if at > u64::from(u32::MAX) {
            return bad("main_blkaddr", format!("the main area ends at block {at}, beyond 32-bit addresses"));
        }
        if at > self.block_count
            || at > u64::from(self.segment0_blkaddr) + (u64::from(segment_count) << crate::LOG_BLOCKS_PER_SEG)
        {
            return bad(
                "segment_count",
                format!("the main area ends at block {at}, the volume at {}", self.block_count),
            );
        }
        Ok(())
    }

    /// SIT, NAT and SSA have room for the main area.
    fn check_tables(&self) -> Result<(), FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Superblock, 0u32, field, value));
        if !self.segment_count_sit.is_multiple_of(2)
            || u64::from(self.segment_count_sit / 2)
                * u64::from(BLOCKS_PER_SEG)
                * (sit::ENTRIES_PER_BLOCK as u64)
                < u64::from(self.segment_count_main)
        {
            return bad("segment_count_sit", self.segment_count_sit.to_string());
        }
        let nids = u64::from(self.segment_count_nat / 2)
            * u64::from(BLOCKS_PER_SEG)
            * (nat::ENTRIES_PER_BLOCK as u64);
        if !self.segment_count_nat.is_multiple_of(2)
            || self.segment_count_nat == 0
            || nids > u64::from(u32::MAX)
        {
            return bad("segment_count_nat", self.segment_count_nat.to_string());
        }
        if u64::from(self.segment_count_ssa) * u64::from(BLOCKS_PER_SEG) < u64::from(self.segment_count_main)
        {
            return bad("segment_count_ssa", self.segment_count_ssa.to_string());
        }
        Ok(())
    }

    /// Blocks of the main area.
    pub fn main_blocks(&self) -> u32 {
        self.segment_count_main * BLOCKS_PER_SEG
    }

    /// Whether `addr` is in the main area.
    #[inline]
    pub fn in_main(&self, addr: BlockAddr) -> bool {
        addr >= self.main_blkaddr && addr - self.main_blkaddr < self.main_blocks()
    }

    /// Segment of a main-area block.
    pub fn segno(&self, addr: BlockAddr) -> SegNo {
        debug_assert!(self.in_main(addr));
        (addr - self.main_blkaddr) / BLOCKS_PER_SEG
    }

    /// Index of a main-area block inside its segment.
    pub fn offset_in_seg(&self, addr: BlockAddr) -> u32 {
        debug_assert!(self.in_main(addr));
        (addr - self.main_blkaddr) % BLOCKS_PER_SEG
    }

    /// First block of a segment.
    pub fn seg_start(&self, segno: SegNo) -> BlockAddr {
        self.main_blkaddr + segno * BLOCKS_PER_SEG
    }

    /// What follows a block in its segment; nothing where the block is not of the main area.
    pub fn rest_of_segment(&self, addr: BlockAddr) -> Range<BlockAddr> {
        if !self.in_main(addr) {
            return 0..0;
        }
        addr + 1..self.seg_start(self.segno(addr)) + BLOCKS_PER_SEG
    }

    /// Whether a block of the main area is the last of its segment. What is allocated for a pinned file ends with such
    /// a block, also when the file is pinned no more.
    pub fn ends_segment(&self, addr: BlockAddr) -> bool {
        self.in_main(addr) && self.rest_of_segment(addr).is_empty()
    }

    /// Blocks of a section.
    pub fn blocks_per_section(&self) -> u32 {
        self.segs_per_sec * BLOCKS_PER_SEG
    }

    /// Segments of a section.
    pub fn segments_of(&self, section: u32) -> std::ops::Range<SegNo> {
        section * self.segs_per_sec..(section + 1) * self.segs_per_sec
    }

    /// Section of a segment.
    pub fn section_of(&self, segno: SegNo) -> u32 {
        segno / self.segs_per_sec
    }

    /// SSA block of a segment.
    pub fn ssa_block(&self, segno: SegNo) -> BlockAddr {
        self.ssa_blkaddr + segno
    }

    /// First block of checkpoint pack 0 or 1.
    pub fn cp_pack(&self, pack: usize) -> BlockAddr {
        self.cp_blkaddr + pack as u32 * BLOCKS_PER_SEG
    }

    /// SIT blocks that the main area needs (one copy).
    pub fn sit_blocks(&self) -> u32 {
        self.segment_count_main.div_ceil(sit::ENTRIES_PER_BLOCK as u32)
    }

    /// Address of SIT block `index`, of the first or the second copy.
    pub fn sit_block(&self, index: u32, second: bool) -> BlockAddr {
        let copy = if second { self.segment_count_sit / 2 * BLOCKS_PER_SEG } else { 0 };
        self.sit_blkaddr + copy + index
    }

    /// NAT blocks of one copy.
    #[inline]
    pub fn nat_blocks(&self) -> u32 {
        self.segment_count_nat / 2 * BLOCKS_PER_SEG
    }

    /// Address of NAT block `index`: the copies alternate segment by segment.
    pub fn nat_block(&self, index: u32, second: bool) -> BlockAddr {
        let seg = index / BLOCKS_PER_SEG;
        let copy = if second { BLOCKS_PER_SEG } else { 0 };
        self.nat_blkaddr + seg * 2 * BLOCKS_PER_SEG + index % BLOCKS_PER_SEG + copy
    }

    /// The other copy of a SIT or NAT block; `None` for blocks of other areas.
    pub fn other_copy(&self, addr: BlockAddr) -> Option<BlockAddr> {
        if (self.sit_blkaddr..self.nat_blkaddr).contains(&addr) {
            let half = self.segment_count_sit / 2 * BLOCKS_PER_SEG;
            let at = addr - self.sit_blkaddr;
            return Some(if at < half { addr + half } else { addr - half });
        }
        (self.nat_blkaddr..self.ssa_blkaddr).contains(&addr).then(|| {
            let at = addr - self.nat_blkaddr;
            if (at / BLOCKS_PER_SEG).is_multiple_of(2) {
                addr + BLOCKS_PER_SEG
            } else {
                addr - BLOCKS_PER_SEG
            }
        })
    }

    /// The purpose of a block, in words.
    pub fn purpose(&self, addr: BlockAddr) -> &'static str {
        match addr {
            0 | 1 => "superblock",
            a if a < self.sit_blkaddr => "checkpoint",
            a if a < self.nat_blkaddr => "segment information table",
            a if a < self.ssa_blkaddr => "node address table",
            a if a < self.main_blkaddr => "segment summary",
            _ => "main area",
        }
    }

    /// One more than the largest node id.
    #[inline]
    pub fn max_nid(&self) -> Nid {
        self.nat_blocks() * nat::ENTRIES_PER_BLOCK as u32
    }

    /// The block behind the main area: the device needs as many. `block_count` may say more.
    pub fn end(&self) -> u64 {
        u64::from(self.main_blkaddr) + u64::from(self.segment_count_main) * u64::from(BLOCKS_PER_SEG)
    }

    /// Whether `nid` can name a node of this volume (reserved numbers do not).
    #[inline]
    pub fn is_nid(&self, nid: Nid) -> bool {
        nid >= self.root_ino && nid < self.max_nid()
    }
}
