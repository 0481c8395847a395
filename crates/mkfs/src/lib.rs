//! Makes an empty volume on a block device: of plain F2FS, or of medfs's own kind, which may hold deltas.
//!
//! Purpose: what `mkfs.f2fs` does, as a library. The layout arithmetic ([`layout`]) is that of
//! `mkfs.f2fs`, so that a volume has the same geometry whichever tool made it.
//!
//! Invariants: the result depends on the options and the device's size alone (no clock, no
//! randomness). The superblocks are cleared first and written last, each side of a flush: a volume whose
//! making was interrupted is no volume. Blocks that are zero already are not written again, which spares
//! flash the zeroing of NAT and SIT.
#![forbid(unsafe_code)]

mod checkpoint;
pub mod error;
mod extensions;
pub mod layout;
pub mod options;
pub mod probe;
mod quota;
mod tree;

pub use error::{Error, Result};
pub use layout::Layout;
pub use options::{MkfsOptions, default_features, feature_names, parse_features};

use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_format::summary::Log;
use medfs_format::superblock::{MAGIC, RawSuperblock};
use medfs_format::{Block, BlockAddr, Geometry};
use serde::Serialize;
use zerocopy::little_endian::{U16, U32, U64};

/// Blocks read at a time while an area is cleared.
const CLEAR_CHUNK: usize = 256;

/// What was made.
#[derive(Debug, Clone, Serialize)]
pub struct Summary {
    /// Blocks of 4 KiB of the whole volume.
    pub block_count: u64,
    /// Segments of the main area.
    pub main_segments: u32,
    /// Segments in a section.
    pub segs_per_section: u32,
    /// Sections in a zone.
    pub secs_per_zone: u32,
    /// Over-provisioned space in per cent of the main area outside the reserve.
    pub overprovision_percent: f64,
    /// Segments kept from users, the reserve included.
    pub overprovision_segments: u32,
    /// Segments reserved for cleaning.
    pub reserved_segments: u32,
    /// Blocks users can fill.
    pub user_blocks: u64,
    /// Inodes that exist: root, quota files, lost+found.
    pub inodes: u32,
    /// Whether the whole device was discarded.
    pub discarded: bool,
    /// Whether the volume may hold deltas.
    pub deltas: bool,
    /// Names of the volume's features.
    pub features: Vec<String>,
    /// The volume's UUID.
    #[serde(serialize_with = "as_text")]
    pub uuid: [u8; 16],
}

/// A UUID as people write it.
fn as_text<S: serde::Serializer>(uuid: &[u8; 16], to: S) -> std::result::Result<S::Ok, S::Error> {
    to.collect_str(&uuid::Uuid::from_bytes(*uuid))
}

/// A block to be written.
struct Out {
    addr: BlockAddr,
    block: Box<Block>,
    cause: Cause,
}

/// Makes a volume on `dev`, whatever it holds: see [`probe::find`] for what a caller should ask about first.
pub fn format_volume(dev: &dyn BlockDevice, options: &MkfsOptions) -> Result<Summary> {
    let blocks = dev.block_count();
    let layout = Layout::compute(blocks, options)?;
    if dev.read_only() {
        return Err(Error::ReadOnly);
    }
    let superblock = superblock(&layout, options)?;
    let geometry = superblock.validate().map_err(Error::Format)?;
    let discarded = options.discard && dev.discard(0, blocks).is_ok();

    if !options.zeroed {
        clear_old(dev, &geometry, &layout)?;
    }
    let tree = tree::build(&geometry, &layout, options);
    let inodes = tree.inos.len() as u32;
    let mut out = checkpoint::build(&geometry, &layout, options, &tree, discarded);
    out.extend(tree.blocks);
    for o in &out {
        dev.write(u64::from(o.addr), &[&o.block], WriteTag::new(o.cause, Temperature::Hot))?;
    }
    dev.flush()?;

    let mut block = Block::boxed();
    *RawSuperblock::in_block_mut(&mut block) = superblock;
    dev.write(0, &[&block, &block], meta())?;
    dev.flush()?;
    Ok(summary(&layout, options, inodes, discarded))
}

/// Makes sure that nothing old is taken for this volume's: superblocks, checkpoint packs, SIT and NAT in force,
/// the fsync log.
fn clear_old(dev: &dyn BlockDevice, g: &Geometry, layout: &Layout) -> Result<()> {
    let none = Block::ZERO;
    dev.write(0, &[&none, &none], meta())?;
    dev.flush()?;
    // What a pack will be written over tells whether power was lost before its end.
    clear(dev, g.cp_pack(0), 2 * medfs_format::BLOCKS_PER_SEG)?;
    clear(dev, g.sit_block(0, false), g.segment_count_sit / 2 * medfs_format::BLOCKS_PER_SEG)?;
    for segment in 0..g.nat_blocks() / medfs_format::BLOCKS_PER_SEG {
        let index = segment * medfs_format::BLOCKS_PER_SEG;
        clear(dev, g.nat_block(index, false), medfs_format::BLOCKS_PER_SEG)?;
    }
    // Roll-forward recovery starts where the warm node log continues: nothing stale may stand there.
    clear(dev, g.seg_start(layout.cursegs[Log::WarmNode as usize]), 1)?;
    Ok(())
}

fn meta() -> WriteTag {
    WriteTag::new(Cause::Meta, Temperature::Hot)
}

/// Makes `count` blocks from `start` on read as zeros, writing only those that do not yet.
fn clear(dev: &dyn BlockDevice, start: BlockAddr, count: u32) -> Result<()> {
    let mut buffers = vec![Block::ZERO; CLEAR_CHUNK.min(count as usize)];
    let (mut at, end) = (u64::from(start), u64::from(start) + u64::from(count));
    while at < end {
        let n = (end - at).min(CLEAR_CHUNK as u64) as usize;
        let mut refs: Vec<&mut Block> = buffers[..n].iter_mut().collect();
        dev.read(at, &mut refs)?;
        for run in buffers[..n].chunk_by_mut(|a, b| is_zero(a) == is_zero(b)) {
            if !is_zero(&run[0]) {
                run.fill(Block::ZERO);
                let refs: Vec<&Block> = run.iter().collect();
                dev.write(at, &refs, meta())?;
            }
            at += run.len() as u64;
        }
    }
    Ok(())
}

fn is_zero(block: &Block) -> bool {
    // Without alignment between u128 chunks this still compiles to wide comparisons.
    block.0.chunks_exact(16).all(|c| u128::from_ne_bytes(c.try_into().expect("sixteen bytes")) == 0)
}

fn superblock(layout: &Layout, options: &MkfsOptions) -> Result<RawSuperblock> {
    let mut block = Block::ZERO;
    let sb = RawSuperblock::in_block_mut(&mut block);
    sb.magic = U32::new(MAGIC);
    sb.major_ver = U16::new(1);
    sb.minor_ver = U16::new(15);
    sb.log_sectorsize = U32::new(9);
    sb.log_sectors_per_block = U32::new(3);
    sb.log_blocksize = U32::new(12);
    sb.log_blocks_per_seg = U32::new(medfs_format::LOG_BLOCKS_PER_SEG);
    sb.segs_per_sec = U32::new(layout.segs_per_sec);
    sb.secs_per_zone = U32::new(layout.secs_per_zone);
    sb.block_count = U64::new(layout.block_count);
    sb.section_count = U32::new(layout.section_count);
    sb.segment_count = U32::new(layout.segment_count);
    sb.segment_count_ckpt = U32::new(layout::CP_SEGMENTS);
    sb.segment_count_sit = U32::new(layout.segment_count_sit);
    sb.segment_count_nat = U32::new(layout.segment_count_nat);
    sb.segment_count_ssa = U32::new(layout.segment_count_ssa);
    sb.segment_count_main = U32::new(layout.segment_count_main);
    sb.segment0_blkaddr = U32::new(layout.segment0_blkaddr);
    sb.cp_blkaddr = U32::new(layout.segment0_blkaddr);
    sb.sit_blkaddr = U32::new(layout.sit_blkaddr);
    sb.nat_blkaddr = U32::new(layout.nat_blkaddr);
    sb.ssa_blkaddr = U32::new(layout.ssa_blkaddr);
    sb.main_blkaddr = U32::new(layout.main_blkaddr);
    sb.root_ino = U32::new(tree::ROOT_INO);
    sb.node_ino = U32::new(tree::NODE_INO);
    sb.meta_ino = U32::new(tree::META_INO);
    sb.uuid = options.uuid;
    sb.cp_payload = U32::new(layout.cp_payload);
    sb.feature = U32::new(options.features.bits());
    if !sb.set_label(&options.label) {
        return Err(Error::LabelTooLong { units: options.label.encode_utf16().count() });
    }
    extensions::fill(sb);
    for version in [&mut sb.version, &mut sb.init_version] {
        let text = options.version.as_bytes();
        let len = text.len().min(version.len() - 1);
        version[..len].copy_from_slice(&text[..len]);
    }
    for (slot, ino) in sb.qf_ino.iter_mut().zip(tree::quota_inos(options.features)) {
        *slot = U32::new(ino.unwrap_or(0));
    }
    if options.deltas {
        sb.become_delta_volume();
    }
    sb.seal();
    Ok(sb.clone())
}

fn summary(layout: &Layout, options: &MkfsOptions, inodes: u32, discarded: bool) -> Summary {
    Summary {
        block_count: layout.block_count,
        main_segments: layout.segment_count_main,
        segs_per_section: layout.segs_per_sec,
        secs_per_zone: layout.secs_per_zone,
        overprovision_percent: layout.overprovision,
        overprovision_segments: layout.overprov_segments,
        reserved_segments: layout.reserved_segments,
        user_blocks: layout.user_blocks(),
        inodes,
        discarded,
        deltas: options.deltas,
        features: options::feature_names(options.features),
        uuid: options.uuid,
    }
}
