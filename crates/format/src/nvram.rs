//! The journal in NVRAM (Delta Journaling, TCE'14, section III): what fsyncs leave in a small memory beside the volume.
//!
//! ```text
//! | metadata | .. 4096 | metadata | .. 8192 | record | 0.. | record | 0.. | ..                      ring up to `size`
//! record: | JD: magic: u32, sequence: u64 | tag | tag | .. | 0.. | body | body | .. | 0.. | JC |
//! tag:    | ino: u32 | page or nid: u32 | offset: u32 | length: u16 | flags: u8 | codec: u8 |
//! body:   | base: u32 | checksum: u32 | delta: length bytes |      or, of a delta that starts from parts of blocks,
//!         | count of parts: u32 | checksum: u32 | part | part | .. | delta: length bytes |
//! part:   | block or page: u32 | from: u16 | to: u16 | len: u16 |
//!         The body of a name that a file lost is the name.
//! ```
//!
//! A record is what one commit made durable. It begins at a multiple of the memory's unit, at which power
//! loss does not mix two records. Where it does not fit before the ring's end it begins at the ring's start.
//! The checksum of its JC covers all of it, its sequence and its generation among that, so that bytes of an
//! earlier turn never pass. Records persist in order, one at a time: at most the last one can be torn. So
//! what does not read as a record ends the journal, unless a later one of the same generation lies anywhere:
//! then it is damage.
//!
//! Bytes may be anything. Reading them is bounded in time and memory.

mod part;
mod record;
mod scan;

pub use part::{PART_OF_PAGE, PartOf, RawPart};
pub use record::{
    Base, Body, Home, MAX_PARTS, MAX_RECORD, MAX_TAGS, RawCommit, RawTag, Record, RecordBuilder, Stamp, Tag,
};
pub use scan::{Scanned, next_start, scan, scan_to_damage};

use crate::{BLOCK_SIZE, FormatError, Structure, crc};
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of the journal's metadata.
pub const META_MAGIC: u32 = 0x4d4a_444d;
/// Version of the layout.
pub const NVRAM_VERSION: u32 = 1;
/// First bytes of a record.
pub const JD_MAGIC: u32 = 0x444a_444d;
/// First bytes of the end of a record.
pub const JC_MAGIC: u32 = 0x434a_444d;
/// Bytes between the two copies of the metadata.
pub const META_STRIDE: u64 = BLOCK_SIZE as u64;
/// Start of the ring of records.
pub const RING_START: u64 = 2 * META_STRIDE;
/// Fewest bytes of a journal.
pub const MIN_SIZE: u64 = 64 << 10;
/// Most bytes of a memory that are used.
pub const MAX_SIZE: u64 = 64 << 20;
/// Largest unit of a memory.
pub const MAX_UNIT: u32 = BLOCK_SIZE as u32;
/// In a tag's flags: a delta of a page or node.
pub const TYPE_DELTA: u8 = 1;
/// In a tag's flags: a file lost a name.
pub const TYPE_REMOVED: u8 = 2;
/// In a tag's flags: older records say nothing of these pages any more.
pub const TYPE_REVOKE: u8 = 3;
/// The bits of a tag's flags that are its type.
pub const TYPE_MASK: u8 = 3;
/// In a tag's flags: the home is a node.
pub const TAG_NODE: u8 = 4;
/// In a tag's flags: the delta starts from parts of blocks.
pub const TAG_PARTS: u8 = 8;
/// In a tag's flags: the home is the inode of a file whose name is new.
pub const TAG_NAMED: u8 = 0x10;
/// In a tag's flags: the last one of the record.
pub const TAG_LAST: u8 = 0x80;

/// The journal's metadata (96 bytes), in two copies. The one with the higher `update` that is whole counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawMeta {
    /// [`META_MAGIC`].
    pub magic: U32,
    /// [`NVRAM_VERSION`].
    pub version: U32,
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Number of the journal: each mount begins one, and its number is like no other's.
    pub generation: U64,
    /// Counts the changes of the metadata: an odd one is in the second copy.
    pub update: U64,
    /// Start of the first live record, from the start of the memory.
    pub first: U64,
    /// Its sequence.
    pub sequence: U64,
    /// Bytes of the memory that are used.
    pub size: U64,
    /// Bytes at multiples of which records begin.
    pub unit: U32,
    /// The generation that the mount found before, whose records it brought back: zero without one.
    pub previous: U64,
    /// Version of the checkpoint that made the records before `first` void, or that was in force when the generation
    /// began, as node footers carry it.
    pub checkpoint: U64,
    /// Zero.
    pub reserved: [u8; 8],
    /// CRC of what is before.
    pub checksum: U32,
}

const _: () = assert!(size_of::<RawMeta>() == 96);

/// The journal's metadata, checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// The volume's UUID.
    pub uuid: [u8; 16],
    /// Number of the journal.
    pub generation: u64,
    /// The one before it, whose records were brought back: 0 without one.
    pub previous: u64,
    /// Version of the checkpoint that made what lay before the live records void, as node footers carry it.
    pub checkpoint: u64,
    /// Counts the changes of the metadata.
    pub update: u64,
    /// Start of the first live record.
    pub first: u64,
    /// Its sequence.
    pub sequence: u64,
    /// Bytes of the memory that are used.
    pub size: u64,
    /// Bytes at multiples of which records begin.
    pub unit: u32,
}

/// The state of the two copies of the metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// Neither begins as one does: the memory was never used, or was wiped.
    Blank,
    /// At least one is whole.
    Meta(Meta),
    /// There is something, and it is not whole.
    Damaged,
    /// It is of a layout that this version does not know.
    Version(u32),
}

impl Meta {
    /// The bytes of a copy.
    pub fn raw(&self) -> RawMeta {
        let mut raw = RawMeta {
            magic: META_MAGIC.into(),
            version: NVRAM_VERSION.into(),
            uuid: self.uuid,
            generation: self.generation.into(),
            update: self.update.into(),
            first: self.first.into(),
            sequence: self.sequence.into(),
            size: self.size.into(),
            unit: self.unit.into(),
            previous: self.previous.into(),
            checkpoint: self.checkpoint.into(),
            reserved: [0; 8],
            checksum: 0.into(),
        };
        raw.checksum = checksum_of(&raw).into();
        raw
    }

    /// Offset of the copy with this metadata.
    pub fn place(&self) -> u64 {
        (self.update & 1) * META_STRIDE
    }

    /// The metadata in force, of both copies as they were read.
    pub fn in_force(copies: [&RawMeta; 2]) -> Found {
        let whole = copies.map(|raw| Meta::of(raw).ok());
        let newer = |a: Meta, b: Meta| if b.update > a.update { b } else { a };
        match whole {
            [Some(a), Some(b)] => return Found::Meta(newer(a, b)),
            [Some(one), None] | [None, Some(one)] => return Found::Meta(one),
            [None, None] => {}
        }
        let later = copies.iter().find(|raw| is_sealed(raw) && raw.version.get() != NVRAM_VERSION);
        match later {
            Some(raw) => Found::Version(raw.version.get()),
            None if copies.iter().any(|raw| raw.magic.get() == META_MAGIC) => Found::Damaged,
            None => Found::Blank,
        }
    }

    /// A copy, checked.
    pub fn of(raw: &RawMeta) -> Result<Meta, FormatError> {
        let bad =
            |field, value: String| Err(FormatError::corrupt(Structure::NvramJournal, 0u32, field, value));
        if !is_sealed(raw) {
            return bad("checksum", format!("{:#010x}", raw.checksum));
        }
        let (size, unit, first) = (raw.size.get(), raw.unit.get(), raw.first.get());
        if raw.version.get() != NVRAM_VERSION {
            return bad("version", raw.version.to_string());
        }
        if !(MIN_SIZE..=MAX_SIZE).contains(&size) {
            return bad("size", size.to_string());
        }
        if !unit.is_power_of_two() || !(8..=MAX_UNIT).contains(&unit) || !size.is_multiple_of(unit.into()) {
            return bad("unit", unit.to_string());
        }
        if !(RING_START..size).contains(&first) || !first.is_multiple_of(unit.into()) {
            return bad("first", first.to_string());
        }
        Ok(Meta {
            uuid: raw.uuid,
            generation: raw.generation.get(),
            previous: raw.previous.get(),
            checkpoint: raw.checkpoint.get(),
            update: raw.update.get(),
            first,
            sequence: raw.sequence.get(),
            size,
            unit,
        })
    }
}

fn is_sealed(raw: &RawMeta) -> bool {
    raw.magic.get() == META_MAGIC && raw.checksum.get() == checksum_of(raw)
}

fn checksum_of(raw: &RawMeta) -> u32 {
    crc::f2fs(&raw.as_bytes()[..size_of::<RawMeta>() - 4])
}

/// The next multiple of a unit, which is a power of two.
pub(crate) fn round_up(at: u64, unit: u64) -> u64 {
    at.next_multiple_of(unit)
}

#[cfg(test)]
mod tests;
