//! Where the areas of a new volume are: the arithmetic of `mkfs.f2fs`.
//!
//! ```text
//! block 0,1      segment0 (zone aligned)                                        (zone aligned)
//! superblocks |  checkpoint 2 | SIT (2 copies) | NAT (2 copies) | SSA + padding | main: sections in zones
//! ```

use crate::error::{Error, Result};
use crate::options::MkfsOptions;
use medfs_format::summary::LOG_COUNT;
use medfs_format::{BLOCK_SIZE, BLOCKS_PER_SEG, BlockAddr, checkpoint, nat, overprovision, sit};

/// Segments of the checkpoint area: one a pack.
pub const CP_SEGMENTS: u32 = 2;
const SEG_BYTES: u64 = BLOCKS_PER_SEG as u64 * BLOCK_SIZE as u64;
/// Bytes of the checkpoint block that the two bitmaps share.
const BITMAP_ROOM: u32 = (checkpoint::CHECKSUM_OFFSET - checkpoint::HEADER_SIZE + 1) as u32;
/// Largest SIT bitmap that stays in the checkpoint block; a larger one moves to payload blocks.
const MAX_SIT_BITMAP_IN_CP: u32 = BITMAP_ROOM - 64;
/// Highest block that may be addressed: the three numbers above mean other things.
const MAX_BLOCKS: u64 = u32::MAX as u64 - 2;
const LARGEST_DEVICE_BLOCKS: u64 = 1 << 32;

/// The layout of a volume to be made.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Layout {
    pub block_count: u64,
    pub segs_per_sec: u32,
    pub secs_per_zone: u32,
    pub segment_count: u32,
    pub segment_count_sit: u32,
    pub segment_count_nat: u32,
    pub segment_count_ssa: u32,
    pub segment_count_main: u32,
    pub section_count: u32,
    pub segment0_blkaddr: BlockAddr,
    pub sit_blkaddr: BlockAddr,
    pub nat_blkaddr: BlockAddr,
    pub ssa_blkaddr: BlockAddr,
    pub main_blkaddr: BlockAddr,
    pub cp_payload: u32,
    /// Over-provisioning in per cent.
    pub overprovision: f64,
    pub reserved_segments: u32,
    pub overprov_segments: u32,
    /// First segment of each log, in the order of [`medfs_format::summary::Log`].
    pub cursegs: [u32; LOG_COUNT],
}

impl Layout {
    /// The layout for a device of `blocks` blocks; the error names what is possible.
    pub fn compute(blocks: u64, options: &MkfsOptions) -> Result<Layout> {
        options.validate()?;
        if blocks > LARGEST_DEVICE_BLOCKS {
            return Err(Error::TooLarge { have_gib: (blocks * BLOCK_SIZE as u64) >> 30 });
        }
        try_layout(blocks, options).ok_or_else(|| Error::TooSmall {
            have_mib: (blocks * BLOCK_SIZE as u64) >> 20,
            need_mib: (smallest(options) * BLOCK_SIZE as u64) >> 20,
            segs_per_sec: options.segs_per_sec,
            secs_per_zone: options.secs_per_zone,
        })
    }

    /// Blocks users can fill.
    pub fn user_blocks(&self) -> u64 {
        u64::from(self.segment_count_main - self.overprov_segments) * u64::from(BLOCKS_PER_SEG)
    }
}

/// Fewest blocks, in whole zones, that make a volume with these options; 0 where none does.
fn smallest(options: &MkfsOptions) -> u64 {
    let zone = u64::from(options.segs_per_sec * options.secs_per_zone * BLOCKS_PER_SEG);
    let mut blocks = zone;
    while blocks <= LARGEST_DEVICE_BLOCKS {
        if try_layout(blocks, options).is_some() {
            return blocks;
        }
        blocks += zone;
    }
    0
}

fn try_layout(blocks: u64, options: &MkfsOptions) -> Option<Layout> {
    let segs_per_sec = options.segs_per_sec;
    let segs_per_zone = segs_per_sec * options.secs_per_zone;
    let zone_bytes = u64::from(segs_per_zone) * SEG_BYTES;
    let start = options.start_sector * 512;
    // Zones are aligned on the disk, not in the partition.
    let segment0_bytes = (start + 2 * BLOCK_SIZE as u64).next_multiple_of(zone_bytes) - start;
    // The markers at the top of the address space must not be blocks: the last segment of 16 TiB stays unused.
    let usable = if blocks > MAX_BLOCKS { blocks - u64::from(BLOCKS_PER_SEG) } else { blocks };
    let zones =
        (usable * BLOCK_SIZE as u64).checked_sub(segment0_bytes)? / SEG_BYTES / u64::from(segs_per_zone);
    let segment_count = u32::try_from(zones).ok()? * segs_per_zone;
    let segment0_blkaddr = (segment0_bytes / BLOCK_SIZE as u64) as u32;

    let Tables { segment_count_sit, segment_count_nat, cp_payload, left } = Tables::of(segment_count)?;
    let ssa = blocks_to_segs(left + 1);
    let meta_segments =
        (CP_SEGMENTS + segment_count_sit + segment_count_nat + ssa).next_multiple_of(segs_per_zone);
    let segment_count_ssa = meta_segments - CP_SEGMENTS - segment_count_sit - segment_count_nat;
    let segment_count_main = segment_count.checked_sub(meta_segments)?;
    let main_zones = segment_count_main / segs_per_zone;
    if main_zones <= LOG_COUNT as u32 {
        return None;
    }

    let (overprovision, reserved_segments, overprov_segments) = spare(segment_count_main, options)?;
    let sit_blkaddr = segment0_blkaddr + CP_SEGMENTS * BLOCKS_PER_SEG;
    let nat_blkaddr = sit_blkaddr + segment_count_sit * BLOCKS_PER_SEG;
    let ssa_blkaddr = nat_blkaddr + segment_count_nat * BLOCKS_PER_SEG;
    Some(Layout {
        block_count: blocks,
        segs_per_sec,
        secs_per_zone: options.secs_per_zone,
        segment_count,
        segment_count_sit,
        segment_count_nat,
        segment_count_ssa,
        segment_count_main,
        section_count: main_zones * options.secs_per_zone,
        segment0_blkaddr,
        sit_blkaddr,
        nat_blkaddr,
        ssa_blkaddr,
        main_blkaddr: ssa_blkaddr + segment_count_ssa * BLOCKS_PER_SEG,
        cp_payload,
        overprovision,
        reserved_segments,
        overprov_segments,
        cursegs: cursegs(main_zones, segs_per_zone),
    })
}

/// The SIT and the NAT, and the checkpoints that hold their bitmaps.
struct Tables {
    segment_count_sit: u32,
    segment_count_nat: u32,
    cp_payload: u32,
    /// Segments for the SSA and the main area.
    left: u32,
}

impl Tables {
    /// Of a volume of so many segments; `None` where it has no room for them.
    fn of(segment_count: u32) -> Option<Tables> {
        let segment_count_sit = 2 * blocks_to_segs(segment_count.div_ceil(sit::ENTRIES_PER_BLOCK as u32));
        let left = segment_count.checked_sub(CP_SEGMENTS + segment_count_sit)?;
        let wanted_nat = blocks_to_segs(
            (u64::from(left) * u64::from(BLOCKS_PER_SEG)).div_ceil(nat::ENTRIES_PER_BLOCK as u64) as u32,
        );
        let sit_bitmap = segment_count_sit / 2 * BLOCKS_PER_SEG / 8;
        let (cp_payload, nat_room) = if sit_bitmap > MAX_SIT_BITMAP_IN_CP {
            (sit_bitmap.div_ceil(BLOCK_SIZE as u32), BITMAP_ROOM)
        } else {
            (0, BITMAP_ROOM - sit_bitmap)
        };
        let segment_count_nat = 2 * wanted_nat.min(nat_room * 8 / BLOCKS_PER_SEG);
        let left = left.checked_sub(segment_count_nat)?;
        Some(Tables { segment_count_sit, segment_count_nat, cp_payload, left })
    }
}

/// Over-provisioning of a main area: its ratio in per cent, segments that are reserved, and these with all
/// others that users do not get; `None` where nothing would be left.
fn spare(segment_count_main: u32, options: &MkfsOptions) -> Option<(f64, u32, u32)> {
    let segs_per_sec = options.segs_per_sec;
    let ratio =
        options.overprovision.unwrap_or_else(|| overprovision::best_ratio(segment_count_main, segs_per_sec));
    let reserved_segments = overprovision::reserved(ratio, segs_per_sec) as u32;
    let spare =
        segment_count_main.checked_sub(reserved_segments).filter(|&spare| spare >= LOG_COUNT as u32)?;
    let overprov_segments = (spare as f64 * ratio / 100.0) as u32 + reserved_segments;
    if overprov_segments >= segment_count_main {
        return None;
    }
    Some((ratio, reserved_segments, overprov_segments))
}

fn blocks_to_segs(blocks: u32) -> u32 {
    blocks.div_ceil(BLOCKS_PER_SEG)
}

/// Nodes and hot data first; cold and warm data further out, where there is room.
fn cursegs(zones: u32, segs_per_zone: u32) -> [u32; LOG_COUNT] {
    let [hot_node, warm_node, cold_node, hot_data] = [0, 1, 2, 3];
    let cold_data = (zones / 4).saturating_sub(1).max(hot_data + 1);
    let warm_data = (zones / 2).saturating_sub(1).max(cold_data + 1);
    [hot_data, warm_data, cold_data, hot_node, warm_node, cold_node].map(|zone| zone * segs_per_zone)
}
