//! Extended attributes: an area of entries that may lie partly inline, partly in a node.
//!
//! The logical area is the inline bytes followed by the xattr node's bytes (without its footer):
//! a header of 24 bytes, then entries `[index, name length, value length, name, value]` padded to 4
//! bytes, then four zero bytes. Where there is no inline area, the header is in the node.

use crate::{BLOCK_SIZE, FormatError, Structure};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Magic of the header.
pub const XATTR_MAGIC: u32 = 0xF2F5_2011;
/// Bytes of the header.
pub const HEADER_SIZE: usize = size_of::<RawXattrHeader>();
/// Usable bytes of an xattr node.
pub const NODE_BYTES: usize = BLOCK_SIZE - 24;

/// The header of an xattr area (24 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawXattrHeader {
    pub h_magic: U32,
    pub h_refcount: U32,
    pub h_reserved: [U32; 4],
}

/// The fixed part of an entry (4 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawXattrEntry {
    pub e_name_index: u8,
    pub e_name_len: u8,
    pub e_value_size: U16,
}

const _: () = assert!(HEADER_SIZE == 24 && size_of::<RawXattrEntry>() == 4);

/// Name spaces, as the index byte of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum NameIndex {
    User = 1,
    PosixAclAccess = 2,
    PosixAclDefault = 3,
    Trusted = 4,
    Lustre = 5,
    Security = 6,
    Advise = 7,
    Encryption = 9,
    Verity = 11,
    /// The delta zone: ours, and no part of F2FS (see [`crate::delta`]).
    Delta = 0x6d,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct XattrEntry {
    /// Name space: a [`NameIndex`] or one that is not known, kept as it is.
    pub index: u8,
    /// Name without its prefix.
    pub name: Vec<u8>,
    /// Value.
    pub value: Vec<u8>,
}

impl XattrEntry {
    /// Bytes the entry takes in the area.
    pub fn size(&self) -> usize {
        (4 + self.name.len() + self.value.len()).next_multiple_of(4)
    }
}

/// Parses an area (header included). An area without the magic is empty. `id` identifies it in errors.
pub fn parse(area: &[u8], id: u64) -> Result<Vec<XattrEntry>, FormatError> {
    match parse_prefix(area, id) {
        (entries, None) => Ok(entries),
        (_, Some(error)) => Err(error),
    }
}

/// Parses an area as far as it is sound: the entries before the first wrong one, and what is wrong with it.
pub fn parse_prefix(area: &[u8], id: u64) -> (Vec<XattrEntry>, Option<FormatError>) {
    let bad = |field, value: String| Some(FormatError::corrupt(Structure::Xattr, id, field, value));
    let mut entries = Vec::new();
    let Ok((header, mut rest)) = RawXattrHeader::ref_from_prefix(area) else { return (entries, None) };
    if header.h_magic.get() != XATTR_MAGIC {
        return (entries, None);
    }
    loop {
        let Ok((raw, tail)) = RawXattrEntry::ref_from_prefix(rest) else {
            let error =
                if rest.iter().all(|&b| b == 0) { None } else { bad("e_name_index", "no end mark".into()) };
            return (entries, error);
        };
        if raw.as_bytes() == [0; 4] {
            return (entries, None);
        }
        let (name_len, value_len) = (usize::from(raw.e_name_len), usize::from(raw.e_value_size.get()));
        let size = (4 + name_len + value_len).next_multiple_of(4);
        if size > rest.len() {
            return (
                entries,
                bad("e_value_size", format!("entry of {size} bytes in the last {}", rest.len())),
            );
        }
        entries.push(XattrEntry {
            index: raw.e_name_index,
            name: tail[..name_len].to_vec(),
            value: tail[name_len..name_len + value_len].to_vec(),
        });
        rest = &rest[size..];
    }
}

/// Writes entries into an area; `false` (area untouched) where they do not fit.
/// As the kernel does, four bytes are kept for the end mark.
pub fn write(area: &mut [u8], entries: &[XattrEntry]) -> bool {
    let total: usize = entries.iter().map(XattrEntry::size).sum();
    if HEADER_SIZE + total + 4 > area.len() {
        return false;
    }
    area.fill(0);
    let header = RawXattrHeader {
        h_magic: U32::new(XATTR_MAGIC),
        h_refcount: U32::new(1),
        h_reserved: [U32::new(0); 4],
    };
    area[..HEADER_SIZE].copy_from_slice(header.as_bytes());
    let mut at = HEADER_SIZE;
    for e in entries {
        let raw = RawXattrEntry {
            e_name_index: e.index,
            e_name_len: e.name.len() as u8,
            e_value_size: U16::new(e.value.len() as u16),
        };
        area[at..at + 4].copy_from_slice(raw.as_bytes());
        area[at + 4..at + 4 + e.name.len()].copy_from_slice(&e.name);
        area[at + 4 + e.name.len()..at + 4 + e.name.len() + e.value.len()].copy_from_slice(&e.value);
        at += e.size();
    }
    true
}
