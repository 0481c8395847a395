//! The checkpoint pack: its first and last block, the version bitmaps, and orphan blocks.

use crate::flip::{Bit, Covered, Syndromes};
use crate::summary::LOG_COUNT;
use crate::{BLOCK_SIZE, BLOCKS_PER_SEG, Block, FormatError, Geometry, Ino, Structure, crc};
use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Default offset of the checksum in the checkpoint block.
pub const CHECKSUM_OFFSET: usize = 4092;
/// Bytes of the checkpoint before the version bitmaps.
pub const HEADER_SIZE: usize = size_of::<RawCheckpoint>();
/// Inode numbers in an orphan block.
pub const ORPHANS_PER_BLOCK: usize = 1020;

bitflags! {
    /// State flags of a checkpoint.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct CpFlags: u32 {
        /// Written at unmount: the pack holds the node summaries too and there is nothing to recover.
        const UMOUNT = 0x1;
        /// Orphan blocks are present.
        const ORPHAN_PRESENT = 0x2;
        /// Data summaries are in the compact form.
        const COMPACT_SUM = 0x4;
        /// An error was seen.
        const ERROR = 0x8;
        /// fsck should run.
        const FSCK = 0x10;
        /// The pack holds the node summaries though it is no unmount.
        const FASTBOOT = 0x20;
        /// Node footers carry the checkpoint's CRC in the upper half of `cp_ver`.
        const CRC_RECOVERY = 0x40;
        /// NAT bits follow the pack.
        const NAT_BITS = 0x80;
        /// All free space has been discarded.
        const TRIMMED = 0x100;
        /// Recovery without CRC in the node footers.
        const NOCRC_RECOVERY = 0x200;
        /// NAT bitmap is larger and the checksum sits before it.
        const LARGE_NAT_BITMAP = 0x400;
        /// Quota files are out of date.
        const QUOTA_NEED_FSCK = 0x800;
        /// Checkpointing was disabled.
        const DISABLED = 0x1000;
        /// Checkpointing was disabled quickly.
        const DISABLED_QUICK = 0x2000;
        /// A resize was in progress.
        const RESIZEFS = 0x4000;
        /// Unknown bits are kept.
        const _ = !0;
    }
}

/// The checkpoint block's fixed part (192 bytes); the bitmaps follow.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawCheckpoint {
    pub checkpoint_ver: U64,
    pub user_block_count: U64,
    pub valid_block_count: U64,
    pub rsvd_segment_count: U32,
    pub overprov_segment_count: U32,
    pub free_segment_count: U32,
    pub cur_node_segno: [U32; 8],
    pub cur_node_blkoff: [U16; 8],
    pub cur_data_segno: [U32; 8],
    pub cur_data_blkoff: [U16; 8],
    pub ckpt_flags: U32,
    pub cp_pack_total_block_count: U32,
    pub cp_pack_start_sum: U32,
    pub valid_node_count: U32,
    pub valid_inode_count: U32,
    pub next_free_nid: U32,
    pub sit_ver_bitmap_bytesize: U32,
    pub nat_ver_bitmap_bytesize: U32,
    pub checksum_offset: U32,
    pub elapsed_time: U64,
    pub alloc_type: [u8; 16],
}

const _: () = assert!(HEADER_SIZE == 192);

/// By what the nodes that were written after a checkpoint are told from all others: the version in their footers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainVersion {
    version: u64,
    /// A repair renewed the checkpoint's checksum: only the version itself counts.
    without_checksum: bool,
}

impl ChainVersion {
    /// Of the nodes that follow a checkpoint, whose block has this checksum.
    pub fn of(header: &RawCheckpoint, checksum: u32) -> ChainVersion {
        let flags = header.flags();
        let checksum = if flags.contains(CpFlags::CRC_RECOVERY) { u64::from(checksum) << 32 } else { 0 };
        ChainVersion {
            version: header.checkpoint_ver.get() | checksum,
            without_checksum: flags.contains(CpFlags::NOCRC_RECOVERY),
        }
    }

    /// The value in the footers of new nodes.
    pub fn in_footers(self) -> u64 {
        self.version
    }

    /// Whether the checkpoint's checksum is part of it: no other node than one written since then has it.
    pub fn has_checksum(self) -> bool {
        self.version >> 32 != 0 && !self.without_checksum
    }

    /// The one flipped bit for which a version in a footer is not this one: the checkpoint's checksum in it tells it
    /// from that of any other checkpoint.
    pub fn flipped_bit(self, in_footer: u64) -> Option<u32> {
        let wrong = in_footer ^ self.version;
        (self.has_checksum() && wrong.is_power_of_two()).then(|| wrong.trailing_zeros())
    }

    /// Whether a repair wrote the checkpoint to be rolled forward, and has accepted what is lost behind it.
    pub fn is_of_repair(self) -> bool {
        self.without_checksum
    }

    /// The number of the checkpoint, as far as footers have it.
    pub(crate) fn number(self) -> u32 {
        self.version as u32
    }

    /// Whether a node with this in its footer was written after the checkpoint.
    pub fn belongs(self, in_footer: u64) -> bool {
        if self.without_checksum {
            in_footer as u32 == self.version as u32
        } else {
            in_footer == self.version
        }
    }
}

impl RawCheckpoint {
    /// The fixed part of a checkpoint block.
    pub fn in_block(block: &Block) -> &RawCheckpoint {
        RawCheckpoint::ref_from_bytes(&block.0[..HEADER_SIZE]).expect("size asserted")
    }

    /// The fixed part of a checkpoint block, to change.
    pub fn in_block_mut(block: &mut Block) -> &mut RawCheckpoint {
        RawCheckpoint::mut_from_bytes(&mut block.0[..HEADER_SIZE]).expect("size asserted")
    }

    /// State flags.
    pub fn flags(&self) -> CpFlags {
        CpFlags::from_bits_retain(self.ckpt_flags.get())
    }

    /// Segment and next free block offset of a log.
    pub fn curseg(&self, log: usize) -> (u32, u16) {
        if log < 3 {
            (self.cur_data_segno[log].get(), self.cur_data_blkoff[log].get())
        } else {
            (self.cur_node_segno[log - 3].get(), self.cur_node_blkoff[log - 3].get())
        }
    }

    /// Sets segment and next free block offset of a log.
    pub fn set_curseg(&mut self, log: usize, segno: u32, blkoff: u16) {
        if log < 3 {
            self.cur_data_segno[log] = U32::new(segno);
            self.cur_data_blkoff[log] = U16::new(blkoff);
        } else {
            self.cur_node_segno[log - 3] = U32::new(segno);
            self.cur_node_blkoff[log - 3] = U16::new(blkoff);
        }
    }

    /// Checks everything but the checksum against the volume's geometry. `id` is the block's address.
    pub fn validate(&self, id: u32, g: &Geometry) -> Result<(), FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Checkpoint, id, field, value));
        self.validate_logs(id, g)?;
        self.validate_counts(id, g)?;
        let sit_bytes = g.segment_count_sit / 2 * crate::BLOCKS_PER_SEG / 8;
        let nat_bytes = g.nat_blocks() / 8;
        if self.sit_ver_bitmap_bytesize.get() != sit_bytes || self.nat_ver_bitmap_bytesize.get() != nat_bytes
        {
            return bad(
                "sit_ver_bitmap_bytesize",
                format!("{} and {}", self.sit_ver_bitmap_bytesize, self.nat_ver_bitmap_bytesize),
            );
        }
        let places = BitmapPlaces::of(self, g);
        let end = (places.sit + sit_bytes as usize).max(places.nat + nat_bytes as usize);
        let in_first = if places.sit >= BLOCK_SIZE { places.nat + nat_bytes as usize } else { end };
        if end > BLOCK_SIZE * (1 + g.cp_payload as usize) || (g.cp_payload == 0 && in_first > CHECKSUM_OFFSET)
        {
            return bad(
                "nat_ver_bitmap_bytesize",
                format!("the version bitmaps end at byte {end} of the pack"),
            );
        }
        // The checksum's place is where nothing else is written: before the large bitmaps, after the small ones.
        let crc = self.checksum_offset.get() as usize;
        let large = self.flags().contains(CpFlags::LARGE_NAT_BITMAP);
        let free = if large { HEADER_SIZE..=HEADER_SIZE } else { in_first..=CHECKSUM_OFFSET };
        if !free.contains(&crc) {
            return bad("checksum_offset", format!("{crc}, with bitmaps up to byte {in_first}"));
        }
        let total = self.cp_pack_total_block_count.get();
        let start = self.cp_pack_start_sum.get();
        if !(2..=crate::BLOCKS_PER_SEG).contains(&total) {
            return bad("cp_pack_total_block_count", total.to_string());
        }
        if start < 1 + g.cp_payload || start > total - 1 {
            return bad("cp_pack_start_sum", start.to_string());
        }
        Ok(())
    }

    /// The logs are in the main area, each in a segment of its own.
    fn validate_logs(&self, id: u32, g: &Geometry) -> Result<(), FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Checkpoint, id, field, value));
        let main = g.segment_count_main;
        for log in 0..LOG_COUNT {
            let (segno, off) = self.curseg(log);
            if segno >= main || u32::from(off) >= crate::BLOCKS_PER_SEG {
                return bad("cur_segno", format!("log {log}: segment {segno} offset {off}"));
            }
            for other in 0..log {
                if self.curseg(other).0 == segno {
                    return bad("cur_segno", format!("logs {other} and {log} share segment {segno}"));
                }
            }
        }
        Ok(())
    }

    /// Counts of segments, blocks and nodes fit the main area and each other.
    fn validate_counts(&self, id: u32, g: &Geometry) -> Result<(), FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Checkpoint, id, field, value));
        let main = g.segment_count_main;
        let (ovp, rsvd) = (self.overprov_segment_count.get(), self.rsvd_segment_count.get());
        if ovp >= main || rsvd >= main || ovp == 0 || rsvd == 0 {
            return bad("overprov_segment_count", format!("{ovp}, reserved {rsvd}"));
        }
        // mkfs.f2fs counts segments behind the last whole zone.
        let zone = g.segs_per_sec.saturating_mul(g.secs_per_zone);
        if self.free_segment_count.get() >= main.saturating_add(zone) {
            return bad("free_segment_count", self.free_segment_count.to_string());
        }
        let user = self.user_block_count.get();
        if user == 0 || user > u64::from(g.main_blocks()) {
            return bad("user_block_count", user.to_string());
        }
        if self.valid_block_count.get() > user {
            return bad("valid_block_count", format!("{} of {user} user blocks", self.valid_block_count));
        }
        if u64::from(self.valid_node_count.get()) > self.valid_block_count.get()
            || self.valid_inode_count.get() > self.valid_node_count.get()
        {
            return bad(
                "valid_node_count",
                format!("{}, inodes {}", self.valid_node_count, self.valid_inode_count),
            );
        }
        Ok(())
    }
}

/// The starts of the two version bitmaps: in the first block's bytes after the header, or the SIT's in the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BitmapPlaces {
    /// Byte offset of the SIT bitmap, from the start of the pack.
    pub sit: usize,
    /// Byte offset of the NAT bitmap, from the start of the pack.
    pub nat: usize,
}

impl BitmapPlaces {
    /// From the checkpoint's flags and the volume's payload size.
    pub fn of(cp: &RawCheckpoint, g: &Geometry) -> BitmapPlaces {
        if cp.flags().contains(CpFlags::LARGE_NAT_BITMAP) {
            // The checksum sits at the start of the bitmap area, both bitmaps follow it, NAT first.
            let nat = HEADER_SIZE + 4;
            BitmapPlaces { nat, sit: nat + cp.nat_ver_bitmap_bytesize.get() as usize }
        } else if g.cp_payload > 0 {
            BitmapPlaces { nat: HEADER_SIZE, sit: BLOCK_SIZE }
        } else {
            BitmapPlaces { sit: HEADER_SIZE, nat: HEADER_SIZE + cp.sit_ver_bitmap_bytesize.get() as usize }
        }
    }
}

/// Verifies the checksum of a checkpoint block (first or last of a pack); returns it.
pub fn verify_checksum(block: &Block, id: u32) -> Result<u32, FormatError> {
    let bad = |field, value: String| Err(FormatError::corrupt(Structure::Checkpoint, id, field, value));
    let offset = RawCheckpoint::in_block(block).checksum_offset.get() as usize;
    if !(HEADER_SIZE..=CHECKSUM_OFFSET).contains(&offset) {
        return bad("checksum_offset", offset.to_string());
    }
    let stored = u32::from_le_bytes(block.0[offset..offset + 4].try_into().expect("four bytes"));
    let computed = checksum(block, offset);
    if stored != computed {
        return bad("checksum", format!("{stored:#010x}, computed {computed:#010x}"));
    }
    Ok(stored)
}

/// The bit that makes the checksum of a checkpoint block right, where one does.
pub fn flipped_bit(block: &Block) -> Option<Bit> {
    let mut mended = Box::new(block.clone());
    // The place of the checksum decides over what it is computed: first whether that is what is wrong.
    let place = std::mem::offset_of!(RawCheckpoint, checksum_offset);
    for at in 0..32 {
        let bit = Bit { byte: (place + at / 8) as u16, bit: (at % 8) as u8 };
        bit.flip(&mut mended);
        if verify_checksum(&mended, 0).is_ok() {
            return Some(bit);
        }
        bit.flip(&mut mended);
    }
    let offset = RawCheckpoint::in_block(block).checksum_offset.get() as usize;
    if !(HEADER_SIZE..=CHECKSUM_OFFSET).contains(&offset) {
        return None;
    }
    let mut covered = vec![Covered::Bytes(0..offset)];
    if offset < CHECKSUM_OFFSET {
        covered.push(Covered::Bytes(offset + 4..BLOCK_SIZE));
    }
    let stored = u32::from_le_bytes(block.0[offset..offset + 4].try_into().expect("four bytes"));
    let bit = Syndromes::new(&covered, offset).find(stored, checksum(block, offset))?;
    bit.flip(&mut mended);
    verify_checksum(&mended, 0).is_ok().then_some(bit)
}

/// Computes and stores the checksum of a checkpoint block; returns it.
pub fn seal(block: &mut Block) -> u32 {
    let offset = RawCheckpoint::in_block(block).checksum_offset.get() as usize;
    let crc = checksum(block, offset);
    block.0[offset..offset + 4].copy_from_slice(&crc.to_le_bytes());
    crc
}

fn checksum(block: &Block, offset: usize) -> u32 {
    let crc = crc::f2fs(&block.0[..offset]);
    if offset < CHECKSUM_OFFSET { crc::chain(crc, &block.0[offset + 4..]) } else { crc }
}

/// A block of orphan inode numbers.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawOrphanBlock {
    pub ino: [U32; ORPHANS_PER_BLOCK],
    pub reserved: U32,
    pub blk_addr: U16,
    pub blk_count: U16,
    pub entry_count: U32,
    pub check_sum: U32,
}

const _: () = assert!(size_of::<RawOrphanBlock>() == BLOCK_SIZE);

impl RawOrphanBlock {
    /// The inode numbers, or the error if the count is out of range. `id` is the block's address.
    pub fn inodes(&self, id: u32) -> Result<impl Iterator<Item = Ino> + '_, FormatError> {
        let count = self.entry_count.get() as usize;
        if count > ORPHANS_PER_BLOCK {
            return Err(FormatError::corrupt(Structure::OrphanBlock, id, "entry_count", count));
        }
        Ok(self.ino[..count].iter().map(|i| i.get()))
    }
}

/// Orphans that a pack of a volume has room for, beside header, payload, the summaries of all logs and the
/// header again.
pub fn max_orphans(g: &Geometry) -> usize {
    let others = g.cp_payload as usize + 2 + LOG_COUNT;
    (BLOCKS_PER_SEG as usize).saturating_sub(others) * ORPHANS_PER_BLOCK
}

/// Packs orphan inode numbers into blocks, numbered and sealed.
pub fn orphan_blocks(inos: &[Ino]) -> Vec<Block> {
    let chunks: Vec<&[Ino]> = inos.chunks(ORPHANS_PER_BLOCK).collect();
    let total = chunks.len() as u16;
    chunks
        .iter()
        .enumerate()
        .map(|(i, chunk)| {
            let mut block = Block::ZERO;
            let raw: &mut RawOrphanBlock = block.view_mut();
            for (slot, &ino) in raw.ino.iter_mut().zip(*chunk) {
                *slot = U32::new(ino);
            }
            raw.blk_addr = U16::new(i as u16 + 1);
            raw.blk_count = U16::new(total);
            raw.entry_count = U32::new(chunk.len() as u32);
            block
        })
        .collect()
}
