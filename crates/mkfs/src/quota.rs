//! The content of a new quota file: a tree with one record, for id 0.
//!
//! ```text
//! 0 header and information | 1..=4 tree levels, each one reference | 5 leaf with the record
//! ```

use medfs_format::Block;
use medfs_format::quota::{QUOTA_BLOCK, RawQuotaHeader, RawQuotaRecord, build};

/// Blocks of 4 KiB a new quota file has.
pub(crate) const FILE_BLOCKS: u32 = 2;
/// Size in bytes of a new quota file.
pub(crate) const FILE_SIZE: u64 = 6 * QUOTA_BLOCK as u64;
const GRACE_SECS: u32 = 7 * 24 * 3600;

/// The file for users (0), groups (1) or projects (2), with what id 0 uses.
pub(crate) fn file(kind: usize, inodes: u64, bytes: u64) -> [Box<Block>; FILE_BLOCKS as usize] {
    let grace = GRACE_SECS.into();
    let header = RawQuotaHeader { block_grace: grace, inode_grace: grace, ..RawQuotaHeader::default() };
    let record = RawQuotaRecord { inodes: inodes.into(), space: bytes.into(), ..RawQuotaRecord::default() };
    let data = build(kind, &header, &[record]);
    let mut blocks = [Block::boxed(), Block::boxed()];
    for (block, bytes) in blocks.iter_mut().zip(data.as_flattened().chunks(medfs_format::BLOCK_SIZE)) {
        block.0[..bytes.len()].copy_from_slice(bytes);
    }
    blocks
}
