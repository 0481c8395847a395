//! Shared record nodes: one block of the chain that roll-forward follows stands for the inode blocks of several files.
//!
//! Each entry says how a file's inode block differs from one that lies on the volume already, its *base*.
//! Both together are the inode block that an fsync would have written at this place of the chain. The node
//! belongs to the reserved inode of the nodes, which has no block of its own, so nothing names it: it counts
//! until the next checkpoint, as the chain does.
//!
//! ```text
//! | magic: u32 | used: u16 | 0: u16 | checksum: u32 | entry | entry | ..  zeros | node footer |
//!      entry: | ino: u32 | base: u32 | checksum: u32 | size: u16 | codec: u8 | 0: u8 | delta: size bytes |
//! ```

use crate::flip::{Bit, Syndromes};
use crate::node::{RawNodeFooter, footer};
use crate::{BLOCK_SIZE, Block, BlockAddr, FormatError, Ino, Structure, crc};
use std::sync::OnceLock;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a shared record node.
pub const SHARED_MAGIC: u32 = 0x5253_464d;
/// Bytes of an entry without its delta.
pub const ENTRY_SIZE: usize = size_of::<RawSharedEntry>();
/// Bytes that entries can have.
pub const SHARED_ROOM: usize = BLOCK_SIZE - size_of::<RawNodeFooter>() - HEADER_SIZE;

const HEADER_SIZE: usize = size_of::<RawSharedHeader>();
const CHECKSUM: std::ops::Range<usize> = 8..HEADER_SIZE;

/// The header of a shared record node, and of a node of removed names (12 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSharedHeader {
    /// [`SHARED_MAGIC`], or [`REMOVED_MAGIC`](crate::removed::REMOVED_MAGIC).
    pub magic: U32,
    /// Bytes of all entries.
    pub used: U16,
    /// Zero.
    pub reserved: U16,
    /// F2FS's CRC of the block, footer included, with zeros in this field.
    pub checksum: U32,
}

/// The fixed part of an entry (16 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSharedEntry {
    /// The file.
    pub ino: U32,
    /// Block address of the inode block that the delta is of.
    pub base: U32,
    /// CRC-32 of the inode block that base and delta make.
    pub checksum: U32,
    /// Bytes of the delta.
    pub size: U16,
    /// Its encoding: a tag of the codec.
    pub codec: u8,
    /// Zero.
    pub reserved: u8,
}

const _: () = assert!(HEADER_SIZE == 12 && ENTRY_SIZE == 16 && SHARED_ROOM == 4060);

/// The change that an fsync made to a file's inode block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedEntry<'a> {
    /// The file.
    pub ino: Ino,
    /// Block address of the inode block that the delta is of.
    pub base: BlockAddr,
    /// CRC-32 of the inode block that base and delta make.
    pub checksum: u32,
    /// Tag of the codec.
    pub codec: u8,
    /// The delta.
    pub delta: &'a [u8],
}

/// Whether a block is a shared record node that was stored as a whole. `node_ino` is the reserved inode of the nodes.
pub fn is_shared(block: &Block, node_ino: Ino) -> bool {
    is_stored(block, node_ino, SHARED_MAGIC)
}

/// Whether a block begins with this magic, belongs to `node_ino`, and was stored as a whole.
pub(crate) fn is_stored(block: &Block, node_ino: Ino, magic: u32) -> bool {
    let (header, _) = RawSharedHeader::ref_from_prefix(&block.0).expect("a block is larger than the header");
    let f = footer(block);
    f.nid.get() == node_ino
        && f.ino.get() == node_ino
        && header.magic.get() == magic
        && header.checksum.get() == checksum(block)
}

/// The entries of a shared record node, after a check of its structure. `at` is the block's address, named in errors.
pub fn entries(block: &Block, at: BlockAddr) -> Result<Vec<SharedEntry<'_>>, FormatError> {
    let bad = |field, value: String| FormatError::corrupt(Structure::SharedNode, at, field, value);
    let mut rest = used_of(block, Structure::SharedNode, at)?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let Ok((raw, tail)) = RawSharedEntry::ref_from_prefix(rest) else {
            return Err(bad("used", format!("{} bytes behind the last entry", rest.len())));
        };
        let (ino, size) = (raw.ino.get(), usize::from(raw.size.get()));
        let Some(delta) = tail.get(..size) else {
            return Err(bad("size", format!("{size} for inode {ino}, of {}", tail.len())));
        };
        let (base, checksum) = (raw.base.get(), raw.checksum.get());
        found.push(SharedEntry { ino, base, checksum, codec: raw.codec, delta });
        rest = &tail[size..];
    }
    Ok(found)
}

/// The bytes of all entries.
pub(crate) fn used_of(block: &Block, of: Structure, at: BlockAddr) -> Result<&[u8], FormatError> {
    let (header, rest) =
        RawSharedHeader::ref_from_prefix(&block.0).expect("a block is larger than the header");
    let used = usize::from(header.used.get());
    let wrong = || FormatError::corrupt(of, at, "used", format!("{used} of {SHARED_ROOM}"));
    rest.get(..used).filter(|_| used <= SHARED_ROOM).ok_or_else(wrong)
}

/// A shared record node with these entries, which must fit [`SHARED_ROOM`], yet without footer and checksum.
pub fn shared_node(entries: &[SharedEntry<'_>]) -> Block {
    let mut bytes = Vec::with_capacity(SHARED_ROOM);
    for entry in entries {
        let raw = RawSharedEntry {
            ino: entry.ino.into(),
            base: entry.base.into(),
            checksum: entry.checksum.into(),
            size: (entry.delta.len() as u16).into(),
            codec: entry.codec,
            reserved: 0,
        };
        bytes.extend_from_slice(raw.as_bytes());
        bytes.extend_from_slice(entry.delta);
    }
    node_with(SHARED_MAGIC, &bytes)
}

/// A node with these bytes of entries, yet without footer and checksum.
pub(crate) fn node_with(magic: u32, entries: &[u8]) -> Block {
    let mut block = Block::ZERO;
    let header = RawSharedHeader {
        magic: magic.into(),
        used: (entries.len() as u16).into(),
        reserved: 0.into(),
        checksum: 0.into(),
    };
    block.0[..HEADER_SIZE].copy_from_slice(header.as_bytes());
    block.0[HEADER_SIZE..HEADER_SIZE + entries.len()].copy_from_slice(entries);
    block
}

/// Gives a node with this header its checksum, once its footer is filled in.
pub fn seal(block: &mut Block) {
    let sum = checksum(block);
    block.0[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
}

fn checksum(block: &Block) -> u32 {
    crc::f2fs_without(&block.0, CHECKSUM)
}

/// The bit that makes the checksum of a node with this header right, where one does.
pub fn flipped_bit(block: &Block) -> Option<Bit> {
    static SYNDROMES: OnceLock<Syndromes> = OnceLock::new();
    let syndromes = SYNDROMES.get_or_init(|| Syndromes::of_block(CHECKSUM));
    let stored = u32::from_le_bytes(block.0[CHECKSUM].try_into().expect("four bytes"));
    syndromes.find(stored, checksum(block))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::footer_mut;

    fn entry(ino: Ino, delta: &[u8]) -> SharedEntry<'_> {
        SharedEntry { ino, base: 700 + ino, checksum: 0x1234_5678 + ino, codec: 2, delta }
    }

    fn node(entries: &[SharedEntry<'_>]) -> Block {
        let mut block = shared_node(entries);
        let f = footer_mut(&mut block);
        (f.nid, f.ino) = (1.into(), 1.into());
        seal(&mut block);
        block
    }

    #[test]
    fn what_fills_a_node_is_found_in_it() {
        let three = [entry(9, b"nine"), entry(7, b""), entry(8, &[5; SHARED_ROOM - 3 * ENTRY_SIZE - 4])];
        let block = node(&three);
        assert!(is_shared(&block, 1) && !is_shared(&block, 2));
        assert_eq!(entries(&block, 90).unwrap(), three);
        assert!(!is_shared(&Block::ZERO, 0), "no magic");
    }

    #[test]
    fn damage_anywhere_shows() {
        let block = node(&[entry(9, b"nine"), entry(7, b"seven")]);
        for at in (0..64).chain([100, 4000, 4080, 4095]) {
            let mut torn = block.clone();
            torn.0[at] ^= 1;
            assert!(!is_shared(&torn, 1), "byte {at}");
        }
    }

    #[test]
    fn wrong_structure_is_named() {
        let block = node(&[entry(9, b"nine"), entry(7, b"seven")]);
        let broken = |at: usize, byte: u8| {
            let mut block = block.clone();
            block.0[at] = byte;
            entries(&block, 90).unwrap_err().to_string()
        };
        assert!(broken(5, 0xff).contains("used"));
        assert!(broken(4, 23).contains("behind the last entry"));
        assert!(broken(25, 1).contains("size"));
    }
}
