//! Nodes of removed names: one block of the chain that roll-forward follows says which names of a directory are gone.
//!
//! An inode block in the chain says which name its file has; nothing in it could say that a file has none any
//! more. So the fsync of a directory that lost files writes a block that belongs, like a shared record node,
//! to the reserved inode of the nodes.
//!
//! ```text
//! | header, as of a shared record node, with a magic of its own | entry | entry | ..  zeros | node footer |
//!      entry: | ino: u32 | dir: u32 | len: u16 | 0: u16 | name: len bytes |
//! ```

use crate::node::NAME_LEN;
use crate::shared::{SHARED_ROOM, is_stored, node_with, used_of};
use crate::{Block, BlockAddr, FormatError, Ino, Structure};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a node of removed names.
pub const REMOVED_MAGIC: u32 = 0x4e52_464d;

const ENTRY_SIZE: usize = size_of::<RawRemovedName>();
const _: () = assert!(ENTRY_SIZE == 12);

/// The fixed part of an entry (12 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawRemovedName {
    /// The file that had the name.
    pub ino: U32,
    /// The directory.
    pub dir: U32,
    /// Bytes of the name.
    pub len: U16,
    /// Zero.
    pub reserved: U16,
}

/// A name that a file lost, and with it a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemovedName<'a> {
    /// The file that had the name.
    pub ino: Ino,
    /// The directory.
    pub dir: Ino,
    /// The name.
    pub name: &'a [u8],
}

/// Whether names of this many bytes in all, so many of them, fit one node.
pub fn names_fit(count: usize, bytes: usize) -> bool {
    count.saturating_mul(ENTRY_SIZE).saturating_add(bytes) <= SHARED_ROOM
}

/// Whether a block is a node of removed names that was stored as a whole. `node_ino` is the reserved inode of
/// the nodes.
pub fn is_removed_names(block: &Block, node_ino: Ino) -> bool {
    is_stored(block, node_ino, REMOVED_MAGIC)
}

/// The names in a node of removed names, after a check of its structure. `at` is the block's address, named in errors.
pub fn removed_names(block: &Block, at: BlockAddr) -> Result<Vec<RemovedName<'_>>, FormatError> {
    let bad = |field, value: String| FormatError::corrupt(Structure::RemovedNames, at, field, value);
    let mut rest = used_of(block, Structure::RemovedNames, at)?;
    let mut found = Vec::new();
    while !rest.is_empty() {
        let Ok((raw, tail)) = RawRemovedName::ref_from_prefix(rest) else {
            return Err(bad("used", format!("{} bytes behind the last entry", rest.len())));
        };
        let (ino, dir, len) = (raw.ino.get(), raw.dir.get(), usize::from(raw.len.get()));
        let Some(name) = tail.get(..len).filter(|_| (1..=NAME_LEN).contains(&len)) else {
            return Err(bad("len", format!("{len} for inode {ino}, of {}", tail.len())));
        };
        found.push(RemovedName { ino, dir, name });
        rest = &tail[len..];
    }
    Ok(found)
}

/// A node with these names, which must fit ([`names_fit`]), yet without footer and checksum.
pub fn removed_names_node(names: &[RemovedName<'_>]) -> Block {
    let mut bytes = Vec::with_capacity(SHARED_ROOM);
    for name in names {
        let raw = RawRemovedName {
            ino: name.ino.into(),
            dir: name.dir.into(),
            len: (name.name.len() as u16).into(),
            reserved: 0.into(),
        };
        bytes.extend_from_slice(raw.as_bytes());
        bytes.extend_from_slice(name.name);
    }
    node_with(REMOVED_MAGIC, &bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::footer_mut;
    use crate::shared::{is_shared, seal};

    fn node(names: &[RemovedName<'_>]) -> Block {
        let mut block = removed_names_node(names);
        let f = footer_mut(&mut block);
        (f.nid, f.ino) = (1.into(), 1.into());
        seal(&mut block);
        block
    }

    fn named(name: &[u8]) -> RemovedName<'_> {
        RemovedName { ino: 9, dir: 3, name }
    }

    #[test]
    fn names_written_are_found() {
        let long = [b'n'; NAME_LEN];
        let names = [named(b"a"), named(&long)];
        let block = node(&names);
        assert!(is_removed_names(&block, 1) && !is_removed_names(&block, 2) && !is_shared(&block, 1));
        assert_eq!(removed_names(&block, 90).unwrap(), names);
        assert!(names_fit(1, 4048) && !names_fit(1, 4049) && !names_fit(2, 4048));
    }

    #[test]
    fn damage_and_wrong_structure_show() {
        let block = node(&[named(b"nine"), named(b"seven")]);
        for at in (0..48).chain([100, 4000, 4080, 4095]) {
            let mut torn = block.clone();
            torn.0[at] ^= 1;
            assert!(!is_removed_names(&torn, 1), "byte {at}");
        }
        let broken = |at: usize, byte: u8| {
            let mut block = block.clone();
            block.0[at] = byte;
            removed_names(&block, 90).unwrap_err().to_string()
        };
        assert!(broken(5, 0xff).contains("used"));
        assert!(broken(4, 17).contains("behind the last entry"));
        assert!(broken(21, 1).contains("len"));
        assert!(broken(20, 0).contains("len"));
    }
}
