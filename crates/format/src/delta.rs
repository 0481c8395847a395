//! The delta zone: deltas of a file's pages inside its inode block (MedFS, section 4.1.2 and Fig. 4).
//!
//! The zone is the value of one extended attribute with a name space of our own, the first entry of the inline area, so
//! that it lies wholly in the inode block. It is there while the file has room for it and need not hold any delta:
//!
//! ```text
//! | version 1 | 0 | used: u16 | record | record | ..        unused |
//!                  record: | page index: u32 | size: u16 | codec: u8 | 0 | checksum: u32 | delta: size bytes |
//! ```
//!
//! `used` counts the bytes of all records. They lie in the order in which their pages came in, the oldest first; a page has
//! one at most. The base of a delta is the block that the page's address names; the checksum is that of the page which
//! delta and base make together.

use crate::xattr::{HEADER_SIZE, NameIndex, RawXattrEntry, RawXattrHeader, XATTR_MAGIC};
use crate::{FormatError, Ino, Structure};
use std::ops::Range;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the zone's layout.
pub const ZONE_VERSION: u8 = 1;
/// Bytes of a zone's header.
pub const ZONE_HEADER_SIZE: usize = size_of::<RawZoneHeader>();
/// Bytes of a record without its delta.
pub const RECORD_HEADER_SIZE: usize = size_of::<RawRecord>();
/// Bytes of an inline area in front of the zone: the area's header and the fixed part of the zone's entry.
pub const ZONE_OFFSET: usize = HEADER_SIZE + size_of::<RawXattrEntry>();

/// The header of a zone (4 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawZoneHeader {
    /// [`ZONE_VERSION`].
    pub version: u8,
    /// Zero.
    pub reserved: u8,
    /// Bytes of all records.
    pub used: U16,
}

/// The fixed part of a record (12 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawRecord {
    /// Page of the file.
    pub index: U32,
    /// Bytes of the delta.
    pub size: U16,
    /// How it is encoded: a tag of the codec, never zero.
    pub codec: u8,
    /// Zero.
    pub reserved: u8,
    /// CRC-32 of the page that the delta and its base make.
    pub checksum: U32,
}

const _: () = assert!(ZONE_HEADER_SIZE == 4 && RECORD_HEADER_SIZE == 12 && ZONE_OFFSET == 28);

/// A delta in a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Page of the file.
    pub index: u32,
    /// Tag of the codec.
    pub codec: u8,
    /// CRC-32 of the page that the delta and its base make.
    pub checksum: u32,
    /// The delta.
    pub delta: &'a [u8],
}

impl Record<'_> {
    /// Bytes the record takes in a zone.
    pub fn size(&self) -> usize {
        RECORD_HEADER_SIZE + self.delta.len()
    }
}

/// Where in an inline xattr area the zone is, if it has one.
pub fn zone_range(area: &[u8]) -> Option<Range<usize>> {
    let (header, rest) = RawXattrHeader::ref_from_prefix(area).ok()?;
    let (entry, value) = RawXattrEntry::ref_from_prefix(rest).ok()?;
    let len = usize::from(entry.e_value_size.get());
    let is_zone = header.h_magic.get() == XATTR_MAGIC
        && entry.e_name_index == NameIndex::Delta as u8
        && entry.e_name_len == 0
        && (ZONE_HEADER_SIZE..=value.len()).contains(&len);
    is_zone.then_some(ZONE_OFFSET..ZONE_OFFSET + len)
}

/// The value of an empty zone of `len` bytes, at least [`ZONE_HEADER_SIZE`].
pub fn empty_zone(len: usize) -> Vec<u8> {
    let mut zone = vec![0; len.max(ZONE_HEADER_SIZE)];
    zone[0] = ZONE_VERSION;
    zone
}

/// The records of a zone, oldest first, after a check of its structure. `ino` is named in errors.
pub fn records(zone: &[u8], ino: Ino) -> Result<Vec<Record<'_>>, FormatError> {
    let (found, error) = parse_prefix(zone, ino);
    if let Some(error) = error {
        return Err(error);
    }
    for (at, record) in found.iter().enumerate() {
        if found[..at].iter().any(|r| r.index == record.index) {
            let value = format!("{} has two deltas", record.index);
            return Err(FormatError::corrupt(Structure::DeltaZone, ino, "index", value));
        }
    }
    Ok(found)
}

/// The records of a zone as far as its structure is sound, and what is wrong with it from there on. A page may have several.
pub fn parse_prefix(zone: &[u8], ino: Ino) -> (Vec<Record<'_>>, Option<FormatError>) {
    let bad = |field, value: String| Some(FormatError::corrupt(Structure::DeltaZone, ino, field, value));
    let mut found: Vec<Record<'_>> = Vec::new();
    let Ok((header, rest)) = RawZoneHeader::ref_from_prefix(zone) else {
        return (found, bad("size", format!("{} bytes", zone.len())));
    };
    if header.version != ZONE_VERSION {
        return (found, bad("version", header.version.to_string()));
    }
    let used = usize::from(header.used.get());
    let Some(mut rest) = rest.get(..used) else {
        return (found, bad("used", format!("{used} of {}", rest.len())));
    };
    while !rest.is_empty() {
        let Ok((raw, tail)) = RawRecord::ref_from_prefix(rest) else {
            return (found, bad("used", format!("{} bytes behind the last record", rest.len())));
        };
        let (index, size) = (raw.index.get(), usize::from(raw.size.get()));
        let Some(delta) = tail.get(..size) else {
            return (found, bad("size", format!("{size} for page {index}, of {}", tail.len())));
        };
        found.push(Record { index, codec: raw.codec, checksum: raw.checksum.get(), delta });
        rest = &tail[size..];
    }
    (found, None)
}

/// Fills a zone with records, in this order; `false` (zone untouched) where they do not fit.
pub fn fill_zone(zone: &mut [u8], records: &[Record<'_>]) -> bool {
    let used: usize = records.iter().map(Record::size).sum();
    if ZONE_HEADER_SIZE + used > zone.len() {
        return false;
    }
    let mut bytes = empty_zone(zone.len());
    bytes[2..4].copy_from_slice(&(used as u16).to_le_bytes());
    let mut at = ZONE_HEADER_SIZE;
    for record in records {
        let raw = RawRecord {
            index: record.index.into(),
            size: (record.delta.len() as u16).into(),
            codec: record.codec,
            reserved: 0,
            checksum: record.checksum.into(),
        };
        bytes[at..at + RECORD_HEADER_SIZE].copy_from_slice(raw.as_bytes());
        bytes[at + RECORD_HEADER_SIZE..at + record.size()].copy_from_slice(record.delta);
        at += record.size();
    }
    zone.copy_from_slice(&bytes);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xattr::{self, XattrEntry};

    fn record(index: u32, delta: &[u8]) -> Record<'_> {
        Record { index, codec: 2, checksum: 0x1234_5678 + index, delta }
    }

    #[test]
    fn what_fills_a_zone_is_found_in_it() {
        let mut zone = empty_zone(100);
        assert_eq!(records(&zone, 9).unwrap(), []);
        let both = [record(7, b"seven"), record(3, b"")];
        assert!(fill_zone(&mut zone, &both));
        assert_eq!(records(&zone, 9).unwrap(), both);
        let exact = [record(1, &[5; 100 - ZONE_HEADER_SIZE - RECORD_HEADER_SIZE])];
        assert!(fill_zone(&mut zone, &exact));
        let before = zone.clone();
        assert!(!fill_zone(&mut zone, &[exact[0], record(2, b"")]));
        assert_eq!(zone, before);
    }

    #[test]
    fn a_zone_is_found_as_the_first_entry_only() {
        let zone = XattrEntry { index: NameIndex::Delta as u8, name: vec![], value: empty_zone(40) };
        let user = XattrEntry { index: NameIndex::User as u8, name: b"a".to_vec(), value: b"b".to_vec() };
        let mut area = [0; 200];
        assert_eq!(zone_range(&area), None);
        assert!(xattr::write(&mut area, &[zone.clone(), user.clone()]));
        assert_eq!(zone_range(&area), Some(28..68));
        assert_eq!(zone_range(&area[..60]), None, "not wholly inline");
        assert!(xattr::write(&mut area, &[user, zone]));
        assert_eq!(zone_range(&area), None);
    }

    #[test]
    fn damage_is_named() {
        let mut zone = empty_zone(60);
        assert!(fill_zone(&mut zone, &[record(1, b"one"), record(2, b"two")]));
        let broken = |at: usize, byte: u8| {
            let mut zone = zone.clone();
            zone[at] = byte;
            records(&zone, 9).unwrap_err().to_string()
        };
        assert!(broken(0, 2).contains("version"));
        assert!(broken(3, 1).contains("used"));
        assert!(broken(2, 20).contains("behind the last record"));
        assert!(broken(2, 29).contains("size"));
        assert!(broken(8, 200).contains("size"));
        assert!(broken(19, 1).contains("two deltas"));
        assert!(records(&[1, 0], 9).is_err());
    }
}
