//! The content of a new quota file: the kernel's version-1 quota tree of 1 KiB blocks with one record, for id 0.
//!
//! ```text
//! 0 header and information | 1..=4 tree levels, each one reference | 5 leaf with the record
//! ```

use medfs_format::Block;

/// Blocks of 4 KiB a new quota file has.
pub(crate) const FILE_BLOCKS: u32 = 2;
/// Size in bytes of a new quota file.
pub(crate) const FILE_SIZE: u64 = 6 * QUOTA_BLOCK as u64;
const QUOTA_BLOCK: usize = 1024;
const VERSION: u32 = 1;
const GRACE_SECS: u32 = 7 * 24 * 3600;
/// Magic numbers of user, group and project files.
const MAGICS: [u32; 3] = [0xD9C0_1F11, 0xD9C0_1927, 0xD9C0_3F14];
const LEAF: usize = 5;
const LEAF_HEADER: usize = 16;

/// The file for users (0), groups (1) or projects (2), with what id 0 uses.
pub(crate) fn file(kind: usize, inodes: u64, bytes: u64) -> [Box<Block>; FILE_BLOCKS as usize] {
    let mut data = [0u8; FILE_BLOCKS as usize * medfs_format::BLOCK_SIZE];
    let mut put = |at: usize, value: u32| data[at..at + 4].copy_from_slice(&value.to_le_bytes());
    // Magic, version; grace times for blocks and inodes, flags, blocks of the file, free block list, block with free entries.
    for (i, value) in
        [MAGICS[kind], VERSION, GRACE_SECS, GRACE_SECS, 0, 6, 0, LEAF as u32].into_iter().enumerate()
    {
        put(i * 4, value);
    }
    for level in 1..LEAF {
        put(level * QUOTA_BLOCK, level as u32 + 1);
    }
    let leaf = LEAF * QUOTA_BLOCK;
    put(leaf + 8, 1);
    // Record: id, padding, inode hard and soft limit, inodes used, block hard and soft limit, bytes used, ...
    let record = leaf + LEAF_HEADER;
    put(record + 24, inodes as u32);
    put(record + 48, bytes as u32);
    let mut blocks = [Block::boxed(), Block::boxed()];
    for (block, bytes) in blocks.iter_mut().zip(data.chunks_exact(medfs_format::BLOCK_SIZE)) {
        block.0.copy_from_slice(bytes);
    }
    blocks
}
