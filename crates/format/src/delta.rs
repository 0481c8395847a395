//! Deltas on disk: the zone inside a file's inode block (MedFS, section 4.1.2 and Fig. 4), and compact pages
//! (section 4.2).
//!
//! The zone is the value of one extended attribute with a name space of our own, the first entry of the inline area, so
//! that it lies wholly in the inode block. It is there while the file has room for it and need not hold any delta:
//!
//! ```text
//! | version 2 | flags | used: u16 | first: u32 | record | record | ..  count: u16 | note | ..  unused | tie |
//! record: | page index: u32 | size: u16 | codec: u8 | slices: u8 | checksum: u32 | slice | .. | delta: size bytes |
//!  slice: | ino: u32 | page: u32 | from: u16 | to: u16 | length: u16 |
//!   note: | page: u32 | address: u32 | pages: u16 |
//! ```
//!
//! `used` counts the bytes of all records. They lie in the order in which their pages came in, the oldest
//! first; a page has one at most. The base of a delta without slices is the block that the page's address
//! names, or zeros where that address is `NEW_ADDR`; for a page of a compressed cluster it is what the
//! cluster holds of it. With slices it is zeros over which each slice copies `length` bytes from offset
//! `from` of the *block* that names page `page` of inode `ino`, whatever delta that page has of its own, to
//! offset `to`. The checksum is that of the page which delta and base make. A record of codec 0 has neither
//! delta nor slices and says that the page is its block.
//!
//! *Notes* are there where the flag says so. They count in a block that an fsync wrote, and there for
//! roll-forward alone: they are addresses that the fsync changed in direct nodes which it did not write.
//!
//! A compact page is a block of the file beyond any end it can have: page `n` of the subtree at the inode's last nid
//! ([`compact_start`]). It holds records for which the zone has no room:
//!
//! ```text
//! | magic: u32 | ino: u32 | sequence: u32 | used: u16 | mark: u16 | checksum: u32 | record | record | ..  zeros |
//! ```
//!
//! Of several records of a page that in the zone counts, otherwise that in the compact page of the highest
//! sequence number. Compact pages below the zone's `first` count no more.
//!
//! The *tie*, where the zone's flag says that it has one, says which compact pages the file has, and at which places
//! ([`Tie`]): a block that is a compact page of the file, but not this one, is told by it.

mod tie;

use crate::flip::{Bit, Syndromes};
use crate::node::NIDS_PER_BLOCK;
use crate::path::{Fanout, first_page};
use crate::xattr::{HEADER_SIZE, NameIndex, RawXattrEntry, RawXattrHeader, XATTR_MAGIC};
use crate::{BLOCK_SIZE, Block, FormatError, Ino, Structure, crc};
use std::ops::Range;
use std::sync::OnceLock;
pub use tie::{TIE_SIZE, Tie, ZONE_TIED, compact_id, set_tie, tie, untie};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Version of the zone's layout.
pub const ZONE_VERSION: u8 = 2;
/// Flag of a zone: the file has compact pages.
pub const ZONE_COMPACT: u8 = 1;
/// Flag of a zone: notes follow its records.
pub const ZONE_NOTES: u8 = 2;
/// Bytes of a zone's header.
pub const ZONE_HEADER_SIZE: usize = size_of::<RawZoneHeader>();
/// Bytes of a record without its slices and delta.
pub const RECORD_HEADER_SIZE: usize = size_of::<RawRecord>();
/// Bytes of an inline area in front of the zone: the area's header and the fixed part of the zone's entry.
pub const ZONE_OFFSET: usize = HEADER_SIZE + size_of::<RawXattrEntry>();
/// First bytes of a compact page.
pub const COMPACT_MAGIC: u32 = 0x5043_464d;
/// Bytes of a compact page in front of its records.
pub const COMPACT_HEADER_SIZE: usize = size_of::<RawCompactHeader>();
/// Bytes that records can have in a compact page.
pub const COMPACT_ROOM: usize = BLOCK_SIZE - COMPACT_HEADER_SIZE;
/// Most slices of a base.
pub const MAX_SLICES: usize = 16;
/// Codec of a record that only says that the page is its block.
pub const NO_DELTA: u8 = 0;

/// The header of a zone (8 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawZoneHeader {
    /// [`ZONE_VERSION`].
    pub version: u8,
    /// [`ZONE_COMPACT`], [`ZONE_NOTES`] and [`ZONE_TIED`].
    pub flags: u8,
    /// Bytes of all records.
    pub used: U16,
    /// Sequence number of the first compact page that counts.
    pub first: U32,
}

/// The fixed part of a record (12 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawRecord {
    /// Page of the file.
    pub index: U32,
    /// Bytes of the delta.
    pub size: U16,
    /// Its encoding: a tag of the codec, or [`NO_DELTA`].
    pub codec: u8,
    /// Slices of the base; none: the page's own block is the base.
    pub slices: u8,
    /// CRC-32 of the page that the delta and its base make.
    pub checksum: U32,
}

/// A part of a base (14 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawSlice {
    /// Inode of the file whose block it is taken from.
    pub ino: U32,
    /// Page of that file.
    pub page: U32,
    /// First byte in its block.
    pub from: U16,
    /// First byte in the base.
    pub to: U16,
    /// Number of bytes.
    pub len: U16,
}

impl RawSlice {
    /// Bytes of the block, and of the base; `None` where they do not fit one.
    pub fn ranges(&self) -> Option<(Range<usize>, Range<usize>)> {
        let (from, to, len) =
            (usize::from(self.from.get()), usize::from(self.to.get()), usize::from(self.len.get()));
        let fits = len > 0 && from + len <= BLOCK_SIZE && to + len <= BLOCK_SIZE;
        fits.then_some((from..from + len, to..to + len))
    }
}

/// Addresses of pages in a row, in a direct node that the fsync which noted them did not write (10 bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawNote {
    /// The first of the pages.
    pub page: U32,
    /// Its address. That of each later page is one higher where this is a block's, else the same.
    pub addr: U32,
    /// Number of pages, at least one.
    pub len: U16,
}

/// The header of a compact page (20 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawCompactHeader {
    /// [`COMPACT_MAGIC`].
    pub magic: U32,
    /// The file's inode.
    pub ino: U32,
    /// Number of the compact page in its file: later ones have higher numbers.
    pub sequence: U32,
    /// Bytes of all records.
    pub used: U16,
    /// Tells it from other pages that had its sequence number, before a power loss; zero on volumes without ties.
    pub mark: U16,
    /// F2FS's CRC of the block with zeros in this field.
    pub checksum: U32,
}

const _: () = assert!(ZONE_HEADER_SIZE == 8 && RECORD_HEADER_SIZE == 12 && ZONE_OFFSET == 28);
const _: () = assert!(size_of::<RawSlice>() == 14 && COMPACT_HEADER_SIZE == 20);
const _: () = assert!(size_of::<RawNote>() == 10);

/// A delta in a zone or compact page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// Page of the file.
    pub index: u32,
    /// Tag of the codec, or [`NO_DELTA`].
    pub codec: u8,
    /// CRC-32 of the page that the delta and its base make.
    pub checksum: u32,
    /// The slices of the base; empty where it is the page's own block.
    pub slices: &'a [RawSlice],
    /// The delta.
    pub delta: &'a [u8],
}

impl Record<'_> {
    /// Bytes the record takes.
    pub fn size(&self) -> usize {
        RECORD_HEADER_SIZE + size_of_val(self.slices) + self.delta.len()
    }

    fn write(&self, to: &mut [u8]) {
        let raw = RawRecord {
            index: self.index.into(),
            size: (self.delta.len() as u16).into(),
            codec: self.codec,
            slices: self.slices.len() as u8,
            checksum: self.checksum.into(),
        };
        let (head, rest) = to.split_at_mut(RECORD_HEADER_SIZE);
        head.copy_from_slice(raw.as_bytes());
        let (slices, rest) = rest.split_at_mut(size_of_val(self.slices));
        slices.copy_from_slice(self.slices.as_bytes());
        rest[..self.delta.len()].copy_from_slice(self.delta);
    }
}

/// First page of the part of the index of a file with this fan-out that holds its compact pages. A file with
/// compact pages ends before it.
pub fn compact_start(fanout: Fanout) -> u64 {
    first_page(COMPACT_NODE_OFFSET, fanout).expect("the last subtree has a first page")
}

/// Node offset of the first direct node below the inode's last nid: behind the inode, two direct and two
/// indirect subtrees, the double indirect node and its first indirect node.
const COMPACT_NODE_OFFSET: u32 = 5 + 2 * NIDS_PER_BLOCK as u32 + 2;

/// The range of the zone in an inline xattr area, if there is one.
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

/// The header of a zone, after a check.
pub fn zone_header(zone: &[u8], ino: Ino) -> Result<RawZoneHeader, FormatError> {
    let bad = |field, value: String| FormatError::corrupt(Structure::DeltaZone, ino, field, value);
    let Ok((header, _)) = RawZoneHeader::read_from_prefix(zone) else {
        return Err(bad("size", format!("{} bytes", zone.len())));
    };
    if header.version != ZONE_VERSION {
        return Err(bad("version", header.version.to_string()));
    }
    let tied = header.flags & ZONE_TIED != 0;
    let may_be_tied = header.flags & ZONE_COMPACT != 0 && zone.len() >= ZONE_HEADER_SIZE + TIE_SIZE;
    if header.flags & !(ZONE_COMPACT | ZONE_NOTES | ZONE_TIED) != 0 || (tied && !may_be_tied) {
        return Err(bad("flags", format!("{:#x}", header.flags)));
    }
    if header.first.get() == u32::MAX {
        return Err(bad("first", "the last sequence number there is".into()));
    }
    Ok(header)
}

/// Bytes of a zone that are neither its header nor its tie.
fn area(zone: &[u8]) -> Range<usize> {
    let tie = if zone[1] & ZONE_TIED != 0 { TIE_SIZE } else { 0 };
    ZONE_HEADER_SIZE..zone.len().saturating_sub(tie).max(ZONE_HEADER_SIZE)
}

/// Bytes that records can have in a zone.
pub fn zone_room(zone: &[u8]) -> usize {
    if zone.len() < ZONE_HEADER_SIZE { 0 } else { area(zone).len() }
}

/// The records of a zone, oldest first, after a check of its structure. `ino` is named in errors.
pub fn records(zone: &[u8], ino: Ino) -> Result<Vec<Record<'_>>, FormatError> {
    let (found, error) = parse_prefix(zone, ino);
    match error {
        Some(error) => Err(error),
        None => unique(found, Structure::DeltaZone, ino),
    }
}

fn unique(found: Vec<Record<'_>>, structure: Structure, ino: Ino) -> Result<Vec<Record<'_>>, FormatError> {
    let mut pages: Vec<u32> = found.iter().map(|r| r.index).collect();
    pages.sort_unstable();
    match pages.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => {
            Err(FormatError::corrupt(structure, ino, "index", format!("{} has two deltas", pair[0])))
        }
        None => Ok(found),
    }
}

/// The records of a zone as far as its structure is sound, and what is wrong with it from there on. A page
/// may have several.
pub fn parse_prefix(zone: &[u8], ino: Ino) -> (Vec<Record<'_>>, Option<FormatError>) {
    match zone_header(zone, ino) {
        Err(error) => (Vec::new(), Some(error)),
        Ok(header) => parse(&zone[area(zone)], usize::from(header.used.get()), Structure::DeltaZone, ino),
    }
}

/// Records as far as they are sound: `used` bytes of `area`.
fn parse(area: &[u8], used: usize, structure: Structure, ino: Ino) -> (Vec<Record<'_>>, Option<FormatError>) {
    let bad = |field, value: String| Some(FormatError::corrupt(structure, ino, field, value));
    let mut found: Vec<Record<'_>> = Vec::new();
    let Some(mut rest) = area.get(..used) else {
        return (found, bad("used", format!("{used} of {}", area.len())));
    };
    while !rest.is_empty() {
        let Ok((raw, tail)) = RawRecord::ref_from_prefix(rest) else {
            return (found, bad("used", format!("{} bytes behind the last record", rest.len())));
        };
        let (index, size, count) = (raw.index.get(), usize::from(raw.size.get()), usize::from(raw.slices));
        let slices = <[RawSlice]>::ref_from_prefix_with_elems(tail, count);
        let Some((slices, tail)) = slices.ok().filter(|_| count <= MAX_SLICES) else {
            return (found, bad("slices", format!("{count} for page {index}")));
        };
        if slices.iter().any(|s| s.ranges().is_none()) {
            return (found, bad("slices", format!("one reaches beyond its block, for page {index}")));
        }
        let Some(delta) = tail.get(..size) else {
            return (found, bad("size", format!("{size} for page {index}, of {}", tail.len())));
        };
        if raw.codec == NO_DELTA && (count > 0 || size > 0) {
            return (found, bad("codec", format!("none, for {size} bytes of page {index}")));
        }
        found.push(Record { index, codec: raw.codec, checksum: raw.checksum.get(), slices, delta });
        rest = &tail[size..];
    }
    (found, None)
}

/// Fills a zone with records, in this order, without notes; `false` (zone untouched) where they do not fit.
/// `first` stays, and whether there are compact pages, and which.
pub fn fill_zone(zone: &mut [u8], records: &[Record<'_>]) -> bool {
    let used: usize = records.iter().map(Record::size).sum();
    let area = area(zone);
    if used > area.len() {
        return false;
    }
    zone[0] = ZONE_VERSION;
    zone[1] &= !ZONE_NOTES;
    zone[2..4].copy_from_slice(&(used as u16).to_le_bytes());
    write_records(&mut zone[area], records);
    true
}

fn write_records(area: &mut [u8], records: &[Record<'_>]) {
    let mut rest = area;
    for record in records {
        record.write(rest);
        rest = &mut rest[record.size()..];
    }
    rest.fill(0);
}

/// Bytes that so many notes take behind a zone's records.
pub const fn notes_size(count: usize) -> usize {
    if count == 0 { 0 } else { size_of::<U16>() + count * size_of::<RawNote>() }
}

/// The notes of a zone whose records are sound, after a check.
pub fn notes(zone: &[u8], ino: Ino) -> Result<&[RawNote], FormatError> {
    let header = zone_header(zone, ino)?;
    if header.flags & ZONE_NOTES == 0 {
        return Ok(&[]);
    }
    let bad = |value: String| FormatError::corrupt(Structure::DeltaZone, ino, "notes", value);
    let rest = zone[area(zone)].get(usize::from(header.used.get())..).unwrap_or_default();
    let Ok((count, rest)) = U16::read_from_prefix(rest) else { return Err(bad("none".into())) };
    match <[RawNote]>::ref_from_prefix_with_elems(rest, count.get().into()) {
        Ok((notes, _)) if notes.iter().all(|note| note.len.get() > 0) => Ok(notes),
        _ => Err(bad(count.to_string())),
    }
}

/// Puts notes behind the records of a sound zone in place of those it had; `false` (zone untouched) where
/// they do not fit.
pub fn set_notes(zone: &mut [u8], notes: &[RawNote]) -> bool {
    if notes.is_empty() && zone[1] & ZONE_NOTES == 0 {
        return true;
    }
    let (start, area) = (usize::from(u16::from_le_bytes([zone[2], zone[3]])), area(zone));
    let room = zone[area].get_mut(start..);
    let Some(room) = room.filter(|room| room.len() >= notes_size(notes.len())) else {
        return false;
    };
    room.fill(0);
    if notes.is_empty() {
        zone[1] &= !ZONE_NOTES;
        return true;
    }
    let (count, rest) = room.split_at_mut(size_of::<U16>());
    count.copy_from_slice(&(notes.len() as u16).to_le_bytes());
    rest[..size_of_val(notes)].copy_from_slice(notes.as_bytes());
    zone[1] |= ZONE_NOTES;
    true
}

/// Says in a zone, which loses its notes, whether the file has compact pages, and which is the first that counts. A tie
/// stays as long as there are such pages.
pub fn set_compact(zone: &mut [u8], compact: bool, first: u32) {
    if !compact && zone[1] & ZONE_TIED != 0 {
        let tie = area(zone).end;
        zone[tie..].fill(0);
    }
    zone[1] = if compact { ZONE_COMPACT | (zone[1] & ZONE_TIED) } else { 0 };
    zone[4..8].copy_from_slice(&first.to_le_bytes());
}

/// A new compact page with these records, which must fit [`COMPACT_ROOM`].
pub fn compact_page(ino: Ino, sequence: u32, records: &[Record<'_>]) -> Block {
    let mut block = filled(ino, sequence, 0, records);
    let sum = crc::f2fs(&block.0);
    let header = RawCompactHeader { mark: ((sum ^ (sum >> 16)) as u16).into(), ..compact_header(&block) };
    set_compact_header(&mut block, header);
    block
}

/// A compact page with other records, which must fit, and the same [number](compact_id).
pub fn compact_page_with(page: &Block, records: &[Record<'_>]) -> Block {
    let header = compact_header(page);
    filled(header.ino.get(), header.sequence.get(), header.mark.get(), records)
}

fn compact_header(page: &Block) -> RawCompactHeader {
    RawCompactHeader::read_from_prefix(&page.0).expect("a block is larger than the header").0
}

fn filled(ino: Ino, sequence: u32, mark: u16, records: &[Record<'_>]) -> Block {
    let used: usize = records.iter().map(Record::size).sum();
    let mut block = Block::ZERO;
    write_records(&mut block.0[COMPACT_HEADER_SIZE..], records);
    let header = RawCompactHeader {
        magic: COMPACT_MAGIC.into(),
        ino: ino.into(),
        sequence: sequence.into(),
        used: (used as u16).into(),
        mark: mark.into(),
        checksum: 0.into(),
    };
    set_compact_header(&mut block, header);
    block
}

/// Puts a header before the records of a compact page, with the checksum of both.
fn set_compact_header(block: &mut Block, mut header: RawCompactHeader) {
    header.checksum = 0.into();
    block.0[..COMPACT_HEADER_SIZE].copy_from_slice(header.as_bytes());
    header.checksum = crc::f2fs(&block.0).into();
    block.0[..COMPACT_HEADER_SIZE].copy_from_slice(header.as_bytes());
}

/// Sequence number and records of a compact page of a file, after a check of all of it.
pub fn compact_records(block: &Block, ino: Ino) -> Result<(u32, Vec<Record<'_>>), FormatError> {
    let bad = |field, value: String| Err(FormatError::corrupt(Structure::CompactPage, ino, field, value));
    let (header, area) =
        RawCompactHeader::read_from_prefix(&block.0).expect("a block is larger than the header");
    if header.magic.get() != COMPACT_MAGIC {
        return bad("magic", format!("{:#010x}", header.magic));
    }
    if header.ino.get() != ino {
        return bad("ino", header.ino.to_string());
    }
    if header.sequence.get() == u32::MAX {
        return bad("sequence", "the last there is".into());
    }
    let found = crc::f2fs_without(&block.0, COMPACT_HEADER_SIZE - 4..COMPACT_HEADER_SIZE);
    if found != header.checksum.get() {
        return bad("checksum", format!("{:#010x}, computed {found:#010x}", header.checksum));
    }
    let (records, error) = parse(area, usize::from(header.used.get()), Structure::CompactPage, ino);
    match error {
        Some(error) => Err(error),
        None => Ok((header.sequence.get(), unique(records, Structure::CompactPage, ino)?)),
    }
}

/// The bit that makes the checksum of a compact page right, where one does.
pub fn flipped_bit(block: &Block) -> Option<Bit> {
    static SYNDROMES: OnceLock<Syndromes> = OnceLock::new();
    const CHECKSUM: Range<usize> = COMPACT_HEADER_SIZE - 4..COMPACT_HEADER_SIZE;
    let syndromes = SYNDROMES.get_or_init(|| Syndromes::of_block(CHECKSUM));
    let stored = u32::from_le_bytes(block.0[CHECKSUM].try_into().expect("four bytes"));
    syndromes.find(stored, crc::f2fs_without(&block.0, CHECKSUM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xattr::{self, XattrEntry};

    fn record(index: u32, delta: &[u8]) -> Record<'_> {
        Record { index, codec: 2, checksum: 0x1234_5678 + index, slices: &[], delta }
    }

    #[test]
    fn what_fills_a_zone_is_found_in_it() {
        let mut zone = empty_zone(104);
        assert_eq!(records(&zone, 9).unwrap(), []);
        let both = [record(7, b"seven"), record(3, b"")];
        assert!(fill_zone(&mut zone, &both));
        assert_eq!(records(&zone, 9).unwrap(), both);
        let exact = [record(1, &[5; 104 - ZONE_HEADER_SIZE - RECORD_HEADER_SIZE])];
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
        assert!(broken(0, 1).contains("version"));
        assert!(broken(1, 8).contains("flags"));
        assert!(broken(1, ZONE_TIED).contains("flags"), "tied, without compact pages");
        let mut noted = zone.clone();
        (noted[1], noted[38]) = (ZONE_NOTES, 9);
        assert!(notes(&noted, 9).unwrap_err().to_string().contains("notes"), "more than there is room for");
        assert!(broken(3, 1).contains("used"));
        assert!(broken(2, 20).contains("behind the last record"));
        assert!(broken(2, 29).contains("size"));
        assert!(broken(12, 200).contains("size"));
        assert!(broken(14, 0).contains("codec"));
        assert!(broken(15, 3).contains("slices"));
        assert!(broken(23, 1).contains("two deltas"));
        assert!(records(&[2, 0], 9).is_err());
    }

    #[test]
    fn notes_lie_behind_the_records_and_go_when_these_change() {
        let note = |page: u32, len: u16| RawNote { page: page.into(), addr: 700.into(), len: len.into() };
        let mut zone = empty_zone(ZONE_HEADER_SIZE + RECORD_HEADER_SIZE + 3 + notes_size(2));
        let one = [record(1, b"one")];
        assert!(fill_zone(&mut zone, &one) && notes(&zone, 9).unwrap().is_empty());
        set_compact(&mut zone, true, 5);
        let two = [note(600, 1), note(70_000, 9)];
        assert!(set_notes(&mut zone, &two));
        assert_eq!(notes(&zone, 9).unwrap(), two);
        assert_eq!(records(&zone, 9).unwrap(), one);
        let before = zone.clone();
        assert!(!set_notes(&mut zone, &[two[0], two[1], note(1, 1)]));
        assert_eq!(zone, before);
        assert!(set_notes(&mut zone, &[note(1, 0)]) && notes(&zone, 9).is_err(), "of no page");
        assert!(set_notes(&mut zone, &two) && fill_zone(&mut zone, &one));
        assert!(notes(&zone, 9).unwrap().is_empty());
        assert_eq!(zone_header(&zone, 9).unwrap().flags, ZONE_COMPACT);
        assert!(set_notes(&mut zone, &two) && set_notes(&mut zone, &[]));
        assert!(notes(&zone, 9).unwrap().is_empty() && zone.ends_with(&[0; 22]));
    }

    #[test]
    fn a_base_of_slices_is_kept() {
        let slice = |from: u16, to: u16, len: u16| RawSlice {
            ino: 5.into(),
            page: 70_000.into(),
            from: from.into(),
            to: to.into(),
            len: len.into(),
        };
        let slices = [slice(4000, 0, 96), slice(0, 120, 3976)];
        let both = [Record { slices: &slices, ..record(1, b"one") }, record(2, b"two")];
        let mut zone = empty_zone(100);
        assert!(fill_zone(&mut zone, &both));
        assert_eq!(records(&zone, 9).unwrap(), both);
        for wrong in [slice(4000, 0, 97), slice(0, 4096, 1), slice(0, 0, 0)] {
            assert!(fill_zone(&mut zone, &[Record { slices: &[wrong], ..record(1, b"") }]));
            assert!(records(&zone, 9).unwrap_err().to_string().contains("beyond its block"));
        }
    }

    #[test]
    fn what_fills_a_compact_page_is_found_in_it_and_damage_is_named() {
        let both = [record(7, &[9; 3000]), record(3, &[8; 1000])];
        let page = compact_page(11, 5, &both);
        assert_eq!(compact_records(&page, 11).unwrap(), (5, both.to_vec()));
        let broken = |at: usize| {
            let mut page = page.clone();
            page.0[at] ^= 1;
            compact_records(&page, 11).unwrap_err().to_string()
        };
        assert!(broken(0).contains("magic"));
        assert!(broken(4).contains("ino"));
        assert!([8, 12, 14, 16, 20, 4095].iter().all(|&at| broken(at).contains("checksum")));
        let twice = compact_page(11, 5, &[record(7, b""), record(7, b"")]);
        assert!(compact_records(&twice, 11).unwrap_err().to_string().contains("two deltas"));
    }

    #[test]
    fn compact_pages_lie_in_the_last_subtree() {
        let fanout = Fanout::plain(500);
        let before = crate::path::NodePath::of(compact_start(fanout) - 1, fanout).unwrap();
        let first = crate::path::NodePath::of(compact_start(fanout), fanout).unwrap();
        assert_eq!((before.depth, before.inode_nid()), (2, 3));
        assert_eq!((first.depth, first.inode_nid(), first.slot()), (3, 4, 0));
    }
}
