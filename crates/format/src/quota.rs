//! Quota files: the kernel's version-1 quota tree, in blocks of 1 KiB.
//!
//! ```text
//! 0 header, information | 1 root of the tree | ... blocks of the tree, leaves, free blocks
//! ```
//!
//! A block of the tree has 256 references. On each of four levels one byte of an id, from the highest, says
//! which reference leads on; the last one leads to a leaf. A leaf has [`LEAF_RECORDS`] records behind its
//! header, those of several ids, in any order.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of a block of a quota file.
pub const QUOTA_BLOCK: usize = 1024;
/// First number of the files of users, groups and projects.
pub const MAGICS: [u32; 3] = [0xD9C0_1F11, 0xD9C0_1927, 0xD9C0_3F14];
/// The version of files with records of 72 bytes.
pub const VERSION: u32 = 1;
/// The block with the root of the tree.
pub const TREE_ROOT: u32 = 1;
/// Levels of the tree.
pub const TREE_DEPTH: u32 = 4;
/// References of a block of the tree.
pub const REFERENCES: usize = QUOTA_BLOCK / 4;
/// Records of a leaf.
pub const LEAF_RECORDS: usize = (QUOTA_BLOCK - size_of::<RawQuotaLeaf>()) / size_of::<RawQuotaRecord>();

/// The beginning of a quota file (32 bytes).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawQuotaHeader {
    pub magic: U32,
    pub version: U32,
    /// Seconds.
    pub block_grace: U32,
    /// Seconds.
    pub inode_grace: U32,
    pub flags: U32,
    /// Blocks of the file.
    pub blocks: U32,
    /// First of the free blocks, or 0.
    pub free_block: U32,
    /// First leaf with a free record, or 0.
    pub free_record: U32,
}

/// The beginning of a leaf (16 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawQuotaLeaf {
    pub next_free: U32,
    pub previous_free: U32,
    pub records: U16,
    pub pad: [U16; 3],
}

/// Usage and limits of an id (72 bytes).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawQuotaRecord {
    pub id: U32,
    pub pad: U32,
    pub inode_hard: U64,
    pub inode_soft: U64,
    pub inodes: U64,
    /// In blocks of 1 KiB.
    pub block_hard: U64,
    /// In blocks of 1 KiB.
    pub block_soft: U64,
    /// In bytes.
    pub space: U64,
    /// Seconds since 1970.
    pub block_time: U64,
    /// Seconds since 1970.
    pub inode_time: U64,
}

const _: () = assert!(size_of::<RawQuotaHeader>() == 32 && size_of::<RawQuotaLeaf>() == 16);
const _: () = assert!(size_of::<RawQuotaRecord>() == 72 && LEAF_RECORDS == 14);

impl RawQuotaHeader {
    /// The reason why a file of this size in bytes is no quota file of this type (0 to 2), if there is one.
    pub fn fault(&self, kind: usize, size: u64) -> Option<String> {
        let blocks = self.blocks.get();
        if (self.magic.get(), self.version.get()) != (MAGICS[kind], VERSION) {
            return Some(format!("magic {:#010x}, version {}", self.magic, self.version));
        }
        if blocks <= TREE_ROOT || u64::from(blocks) * QUOTA_BLOCK as u64 > size {
            return Some(format!("{blocks} blocks in {size} bytes"));
        }
        let free = [self.free_block.get(), self.free_record.get()];
        free.into_iter().find(|&free| free >= blocks).map(|free| format!("free block {free} of {blocks}"))
    }
}

/// The blocks of a file of this type (0 to 2) with these records, in the order of their ids. Grace times and
/// flags are those of `header`.
pub fn build(kind: usize, header: &RawQuotaHeader, records: &[RawQuotaRecord]) -> Vec<[u8; QUOTA_BLOCK]> {
    let mut blocks = vec![[0; QUOTA_BLOCK]; 2];
    let mut leaf: Option<(usize, usize)> = None;
    for record in records {
        let mut block = TREE_ROOT as usize;
        for level in 0..TREE_DEPTH {
            let at = (record.id.get() >> (8 * (TREE_DEPTH - 1 - level)) & 0xff) as usize;
            if level + 1 == TREE_DEPTH {
                let (place, filled) =
                    leaf.filter(|(_, filled)| *filled < LEAF_RECORDS).unwrap_or_else(|| {
                        blocks.push([0; QUOTA_BLOCK]);
                        (blocks.len() - 1, 0)
                    });
                put(&mut blocks[block], at * 4, place as u32);
                put_record(&mut blocks[place], filled, record);
                leaf = Some((place, filled + 1));
                continue;
            }
            let next = references(&blocks[block])[at].get() as usize;
            if next == 0 {
                blocks.push([0; QUOTA_BLOCK]);
                let new = blocks.len() - 1;
                put(&mut blocks[block], at * 4, new as u32);
                block = new;
            } else {
                block = next;
            }
        }
    }
    let (magic, version, count) = (MAGICS[kind].into(), VERSION.into(), (blocks.len() as u32).into());
    let free = leaf.filter(|(_, filled)| *filled < LEAF_RECORDS).map_or(0, |(place, _)| place as u32);
    let free = (U32::new(0), U32::new(free));
    let first =
        RawQuotaHeader { magic, version, blocks: count, free_block: free.0, free_record: free.1, ..*header };
    blocks[0][..size_of::<RawQuotaHeader>()].copy_from_slice(first.as_bytes());
    blocks
}

fn put(block: &mut [u8; QUOTA_BLOCK], at: usize, value: u32) {
    block[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

fn put_record(leaf: &mut [u8; QUOTA_BLOCK], filled: usize, record: &RawQuotaRecord) {
    let (head, records) = leaf.split_at_mut(size_of::<RawQuotaLeaf>());
    RawQuotaLeaf::mut_from_bytes(head).expect("sized").records = (filled as u16 + 1).into();
    let at = filled * size_of::<RawQuotaRecord>();
    records[at..at + size_of::<RawQuotaRecord>()].copy_from_slice(record.as_bytes());
}

/// The references of a block of the tree.
pub fn references(block: &[u8; QUOTA_BLOCK]) -> &[U32; REFERENCES] {
    <[U32; REFERENCES]>::ref_from_bytes(block).expect("sized")
}

/// The record of an id in a leaf. One that is all zeros is free, so that of id 0 has a mark where it uses nothing.
pub fn record(leaf: &[u8; QUOTA_BLOCK], id: u32) -> Option<&RawQuotaRecord> {
    let records = leaf[size_of::<RawQuotaLeaf>()..].chunks_exact(size_of::<RawQuotaRecord>());
    let used = records.filter(|bytes| bytes.iter().any(|&b| b != 0));
    used.map(|bytes| RawQuotaRecord::ref_from_bytes(bytes).expect("sized")).find(|r| r.id.get() == id)
}

/// The records of a leaf, as far as a block says that it is one: it counts as many records as it has. One that sets
/// nothing and uses nothing takes no place.
pub fn records_of_leaf(block: &[u8; QUOTA_BLOCK]) -> Vec<RawQuotaRecord> {
    let (leaf, rest) = RawQuotaLeaf::ref_from_prefix(block).expect("a block is larger");
    let used = rest.chunks_exact(size_of::<RawQuotaRecord>()).filter(|bytes| bytes.iter().any(|&b| b != 0));
    let records: Vec<_> = used.map(|bytes| RawQuotaRecord::read_from_bytes(bytes).expect("sized")).collect();
    let is_leaf =
        usize::from(leaf.records.get()) == records.len() && records.iter().all(|r| r.pad.get() == 0);
    if is_leaf { records } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_found_by_its_id() {
        let mut leaf = [0; QUOTA_BLOCK];
        assert!(record(&leaf, 0).is_none());
        let mut second = RawQuotaRecord::ref_from_bytes(&[0; 72]).copied().unwrap();
        (second.id, second.space) = (7.into(), 4096.into());
        leaf[16 + 72..16 + 144].copy_from_slice(second.as_bytes());
        assert_eq!(record(&leaf, 7).map(|r| r.space.get()), Some(4096));
        assert!(record(&leaf, 8).is_none());
    }

    #[test]
    fn every_record_of_a_file_that_is_built_is_found() {
        let mut ids: Vec<u32> = (0..40).map(|i| i * 0x0101_0301).chain([u32::MAX]).collect();
        ids.sort_unstable();
        let records: Vec<_> = ids
            .iter()
            .map(|&id| RawQuotaRecord { id: id.into(), inodes: 3.into(), ..Default::default() })
            .collect();
        let blocks = build(2, &RawQuotaHeader::default(), &records);
        let (header, _) = RawQuotaHeader::ref_from_prefix(&blocks[0]).unwrap();
        assert_eq!(header.fault(2, blocks.len() as u64 * 1024), None);
        for id in ids {
            let leaf = id.to_be_bytes().iter().fold(TREE_ROOT as usize, |block, &byte| {
                references(&blocks[block])[usize::from(byte)].get() as usize
            });
            assert_eq!(record(&blocks[leaf], id).map(|r| r.inodes.get()), Some(3), "{id}");
        }
    }

    #[test]
    fn what_is_no_header_is_told() {
        let mut header = RawQuotaHeader::ref_from_bytes(&[0; 32]).copied().unwrap();
        (header.magic, header.version, header.blocks) = (MAGICS[1].into(), VERSION.into(), 6.into());
        assert_eq!(header.fault(1, 6 * 1024), None);
        assert!(header.fault(0, 6 * 1024).is_some() && header.fault(1, 5 * 1024).is_some());
        header.free_record = 6.into();
        assert!(header.fault(1, 6 * 1024).is_some());
    }
}
