//! What is on the medium, byte by byte, as `docs/ONDISK.md` has it. All numbers are little-endian.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the layout: the byte behind the commit's magic.
pub const VERSION: u8 = 3;
/// First bytes of a commit page.
pub const COMMIT_MAGIC: [u8; 7] = *b"MEDFTL\x00";
/// First bytes of the image of the write buffer.
pub const IMAGE_MAGIC: [u8; 4] = *b"WBUF";
/// Out-of-band bytes before the records.
pub const SPARE_HEADER: usize = size_of::<RawSpareHeader>();
/// Out-of-band bytes of a record.
pub const SPARE_RECORD: usize = size_of::<RawSpareRecord>();
/// Bytes of an entry of the mapping.
pub const ENTRY_BYTES: usize = 8;
/// Bytes of a block in a checkpoint's tables.
pub const BLOCK_BYTES: usize = size_of::<RawBlockRow>();
/// Bit of a record's size: it is compressed.
pub const RECORD_COMPRESSED: u16 = 1 << 15;
/// Bit of a block's state: it is erased, and nothing happened since.
pub const BLOCK_CLEAN: u8 = 1 << 3;
/// A flash page of data.
pub const DATA: u8 = 1;
/// A chunk of the mapping or of the counts.
pub const CHUNK: u8 = 2;
/// A part of a checkpoint's tables.
pub const TABLE: u8 = 3;
/// The end of a checkpoint.
pub const COMMIT: u8 = 4;
/// Ranges that were trimmed.
pub const TRIM: u8 = 5;
/// The medium was opened.
pub const OPENED: u8 = 6;

/// The first out-of-band bytes of a flash page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSpareHeader {
    /// The use of the page: [`DATA`] to [`OPENED`].
    pub kind: u8,
    /// The log that wrote it.
    pub log: u8,
    /// Number of [`RawSpareRecord`]s that follow.
    pub records: u8,
    /// 1: a page of data has a checksum.
    pub flags: u8,
    /// Bytes at the page's beginning that end the last record of the page before.
    pub tail: U16,
    /// Zero.
    pub zero: U16,
    /// Sequence number.
    pub seq: U64,
    /// Erases of the block.
    pub erases: U32,
    /// CRC-32 of all other out-of-band bytes that are used.
    pub crc: U32,
}

/// A logical page in a flash page, and in the image of the write buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSpareRecord {
    /// Its number; all ones: the record was replaced.
    pub lpn: U32,
    /// Bytes, 1 to 4096, and [`RECORD_COMPRESSED`].
    pub size: U16,
    /// Predicted ratio in two-hundredths.
    pub ratio: u8,
}

/// The bytes behind the header of a page of the map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawMapSpare {
    /// Number of the chunk, or of the part of the tables.
    pub index: U32,
    /// CRC-32 of the page's bytes.
    pub content: U32,
}

/// A block in a checkpoint's tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawBlockRow {
    /// Times it was erased.
    pub erases: U32,
    /// Bytes of flash pages that moving what is valid takes.
    pub occupied: U32,
    /// Sum of the predicted ratios of its valid uncompressed pages.
    pub ratios: [u8; 3],
    /// State in 3 bits, [`BLOCK_CLEAN`], log in 4 bits.
    pub state: u8,
    /// Pages written.
    pub written: U16,
    /// Valid uncompressed pages.
    pub plain: U16,
    /// Pages that hold anything valid.
    pub live: U16,
}

/// The beginning of a commit page; [`RawRun`]s of flash pages that hold the tables follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawMapCommit {
    /// [`COMMIT_MAGIC`].
    pub magic: [u8; 7],
    /// [`VERSION`].
    pub version: u8,
    /// Logical pages.
    pub logical_pages: U32,
    /// Bytes of a flash page.
    pub page_bytes: U32,
    /// Out-of-band bytes of a flash page.
    pub spare_bytes: U32,
    /// Flash pages of a block.
    pub pages_per_block: U32,
    /// Blocks.
    pub blocks: U32,
    /// CRC-32 of the method's name.
    pub policy: U32,
    /// Sequence number.
    pub seq: U64,
    /// 1: nothing follows.
    pub clean: U32,
    /// Number of runs that follow.
    pub runs: U32,
}

/// Neighbouring pages: flash pages in a commit, logical pages in a page of trims and in the image of the write buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawRun {
    /// The first.
    pub from: U32,
    /// Number of pages.
    pub count: U32,
}

/// The beginning of a page of trims; [`RawRun`]s follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawTrims {
    /// Number of runs that follow.
    pub runs: U32,
    /// Zero.
    pub zero: U32,
}

/// The beginning of the image of the write buffer. Pages follow, each a [`RawSpareRecord`] and its bytes;
/// then [`RawRun`]s that were trimmed, and the CRC-32 of all before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawImage {
    /// [`IMAGE_MAGIC`].
    pub magic: [u8; 4],
    /// Sequence number at which it was made.
    pub seq: U64,
    /// Number of pages that follow.
    pub pages: U32,
}

impl RawRun {
    /// The run of these pages.
    pub fn new((from, count): (u32, u32)) -> RawRun {
        RawRun { from: from.into(), count: count.into() }
    }

    /// Its first page, and how many.
    pub fn parts(&self) -> (u32, u32) {
        (self.from.get(), self.count.get())
    }

    /// The whole runs in these bytes.
    pub fn all(bytes: &[u8]) -> impl Iterator<Item = (u32, u32)> {
        bytes
            .chunks_exact(size_of::<RawRun>())
            .filter_map(|b| RawRun::read_from_bytes(b).ok().map(|r| r.parts()))
    }
}
