//! The F2FS on-disk format as plain types.
//!
//! Purpose: one definition of every structure, with its size asserted at compile time, and checked
//! parsing into validated domain types. Nothing here performs I/O.
//!
//! Invariants: a `parse` function returns a value only when every field that later code trusts has
//! been validated; it names the field that was wrong otherwise ([`FormatError`]). Structures are
//! little-endian and unaligned, so any byte buffer may hold them.
//!
//! The facts come from the kernel's `Documentation/filesystems/f2fs.rst` and from volumes made by
//! `mkfs.f2fs`. Sizes are in blocks of 4096 bytes unless a name says otherwise.
#![forbid(unsafe_code)]

pub mod acl;
pub mod ars;
pub mod block;
pub mod checkpoint;
pub mod compress;
pub mod crc;
pub mod delta;
pub mod dentry;
pub mod error;
pub mod file_kind;
pub mod flip;
pub mod footer;
pub mod geometry;
pub mod hash;
pub mod header_left;
pub mod limits;
pub mod log_gap;
pub mod nat;
pub mod node;
pub mod nvram;
pub mod overprovision;
pub mod path;
pub mod quota;
pub mod removed;
pub mod seal;
pub mod shared;
pub mod sit;
pub mod slots;
pub mod summary;
pub mod superblock;
pub mod time;
pub mod undo;
pub mod weigh;
pub mod xattr;

pub use block::{BLOCK_ALIGN, BLOCK_SIZE, Block};
pub use error::{FormatError, Structure};
pub use geometry::Geometry;
pub use time::Timestamp;

/// Block address on the volume, in units of 4 KiB.
pub type BlockAddr = u32;
/// Node id: index into the NAT.
pub type Nid = u32;
/// Inode number: the node id of the inode block.
pub type Ino = u32;
/// Segment number inside the main area.
pub type SegNo = u32;

/// Address of a hole: no block, nothing reserved.
pub const NULL_ADDR: BlockAddr = 0;
/// Address of a page that is reserved but not yet written.
pub const NEW_ADDR: BlockAddr = u32::MAX;
/// Address that marks the head of a compressed cluster.
pub const COMPRESS_ADDR: BlockAddr = u32::MAX - 1;
/// Blocks in a segment (2 MiB).
pub const BLOCKS_PER_SEG: u32 = 512;
/// log2 of [`BLOCKS_PER_SEG`].
pub const LOG_BLOCKS_PER_SEG: u32 = 9;

/// Whether `addr` names a block on disk, as opposed to one of the reserved markers.
pub fn is_block(addr: BlockAddr) -> bool {
    addr != NULL_ADDR && addr < COMPRESS_ADDR
}
