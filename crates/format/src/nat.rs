//! The node address table: where the newest version of each node is.

use crate::BLOCK_SIZE;
use zerocopy::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// NAT entries in a block.
pub const ENTRIES_PER_BLOCK: usize = BLOCK_SIZE / size_of::<RawNatEntry>();

/// One entry of the NAT (9 bytes).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawNatEntry {
    /// Counts reuses of the nid, so that a stale summary can be told.
    pub version: u8,
    /// Inode the node belongs to; 0 where the nid is free.
    pub ino: U32,
    /// Block address of the node; 0 where the nid is free.
    pub block_addr: U32,
}

/// A NAT block: 455 entries and one unused byte.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawNatBlock {
    /// Entries for `nid / 455`'s block.
    pub entries: [RawNatEntry; ENTRIES_PER_BLOCK],
    _pad: [u8; BLOCK_SIZE - ENTRIES_PER_BLOCK * 9],
}

const _: () = assert!(
    size_of::<RawNatEntry>() == 9 && ENTRIES_PER_BLOCK == 455 && size_of::<RawNatBlock>() == BLOCK_SIZE
);
