//! The segment information table: which blocks of a segment are valid, and of what type it is.

use crate::{BLOCK_SIZE, BLOCKS_PER_SEG, FormatError, SegNo, Structure};
use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a segment's validity bitmap.
pub const VALID_MAP_SIZE: usize = 64;
/// SIT entries in a block.
pub const ENTRIES_PER_BLOCK: usize = BLOCK_SIZE / size_of::<RawSitEntry>();
const VBLOCKS_SHIFT: u16 = 10;
const VBLOCKS_MASK: u16 = (1 << VBLOCKS_SHIFT) - 1;

/// One SIT entry (74 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSitEntry {
    /// Segment type in the top 6 bits, number of valid blocks in the low 10.
    pub vblocks: U16,
    /// One bit a block, most significant bit of each byte first.
    pub valid_map: [u8; VALID_MAP_SIZE],
    /// Mean modification time of the segment's blocks, seconds of the volume's elapsed time.
    pub mtime: U64,
}

impl RawSitEntry {
    /// An entry from its parts.
    pub fn new(seg_type: u8, valid_blocks: u16, valid_map: [u8; VALID_MAP_SIZE], mtime: u64) -> Self {
        RawSitEntry {
            vblocks: U16::new((u16::from(seg_type) << VBLOCKS_SHIFT) | (valid_blocks & VBLOCKS_MASK)),
            valid_map,
            mtime: U64::new(mtime),
        }
    }

    /// Number of valid blocks claimed.
    pub fn valid_blocks(&self) -> u16 {
        self.vblocks.get() & VBLOCKS_MASK
    }

    /// Segment type (0..=5 for the six logs).
    pub fn seg_type(&self) -> u8 {
        (self.vblocks.get() >> VBLOCKS_SHIFT) as u8
    }

    /// Checks that type and counts make sense and that the count equals the bits set.
    pub fn validate(&self, segno: SegNo) -> Result<(), FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::SitEntry, segno, field, value));
        let bits: u32 = self.valid_map.iter().map(|b| b.count_ones()).sum();
        if u32::from(self.valid_blocks()) > BLOCKS_PER_SEG {
            return bad("vblocks", self.valid_blocks().to_string());
        }
        if bits != u32::from(self.valid_blocks()) {
            return bad("vblocks", format!("{} but {bits} bits set in valid_map", self.valid_blocks()));
        }
        if self.seg_type() >= crate::summary::LOG_COUNT as u8 {
            return bad("type", self.seg_type().to_string());
        }
        Ok(())
    }

    /// Whether it is valid, or one flipped bit explains why it is not.
    pub fn is_within_a_bit(&self) -> bool {
        let bits: u32 = self.valid_map.iter().map(|b| b.count_ones()).sum();
        let count = u32::from(self.valid_blocks());
        let near = bits.abs_diff(count) == 1 || (bits ^ count).is_power_of_two();
        let known_type = |seg_type: u8| seg_type < crate::summary::LOG_COUNT as u8;
        match known_type(self.seg_type()) {
            true => bits == count || near,
            false => bits == count && (0..6).any(|bit| known_type(self.seg_type() ^ (1 << bit))),
        }
    }
}

/// A SIT block: 55 entries and 26 unused bytes.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSitBlock {
    /// Entries for `segno / 55`'s block.
    pub entries: [RawSitEntry; ENTRIES_PER_BLOCK],
    _pad: [u8; BLOCK_SIZE - ENTRIES_PER_BLOCK * 74],
}

const _: () = assert!(
    size_of::<RawSitEntry>() == 74 && ENTRIES_PER_BLOCK == 55 && size_of::<RawSitBlock>() == BLOCK_SIZE
);

/// Whether bit `index` of an F2FS on-disk bitmap (most significant bit first) is set.
pub fn test_bit(map: &[u8], index: usize) -> bool {
    map[index / 8] & (0x80 >> (index % 8)) != 0
}

/// Sets bit `index` of a bitmap kept most significant bit first; returns what it was.
pub fn set_bit(map: &mut [u8], index: usize) -> bool {
    let was = test_bit(map, index);
    map[index / 8] |= 0x80 >> (index % 8);
    was
}

/// Inverts bit `index` of a bitmap kept most significant bit first.
pub fn flip_bit(map: &mut [u8], index: usize) {
    map[index / 8] ^= 0x80 >> (index % 8);
}
