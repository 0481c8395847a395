//! The out-of-band bytes of a flash page: whose data it holds, and since when.
//!
//! A [`RawSpareHeader`], then for pages of data a [`RawSpareRecord`] for each logical page and, where pages
//! have content, its CRC-32; for pages of the map a [`RawMapSpare`].

use crate::PAGE;
use crate::format::{self, RECORD_COMPRESSED, RawMapSpare, RawSpareHeader, RawSpareRecord};
use alloc::vec::Vec;
use core::mem::offset_of;
use zerocopy::{FromBytes, IntoBytes};

const HEADER: usize = format::SPARE_HEADER;
const RECORD: usize = format::SPARE_RECORD;

/// Bytes of the checksum of the content.
const CONTENT: usize = 4;
/// Logical page of a record that was replaced.
pub(crate) const NOBODY: u32 = u32::MAX;

/// Out-of-band bytes that hold so many records.
pub const fn spare_bytes_for(records: usize) -> usize {
    HEADER + records * RECORD + CONTENT
}

/// Records that fit, at most 255.
pub(crate) fn records_max(spare_bytes: u32) -> usize {
    ((spare_bytes as usize).saturating_sub(HEADER + CONTENT) / RECORD).min(255)
}

/// What a flash page is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// Logical pages.
    Data = format::DATA,
    /// A chunk of the mapping or of the counts.
    Chunk = format::CHUNK,
    /// A part of a checkpoint's tables.
    Table = format::TABLE,
    /// The end of a checkpoint: it counts from here on.
    Commit = format::COMMIT,
    /// Ranges that were trimmed.
    Trim = format::TRIM,
    /// The medium was opened: the checkpoint before is not all.
    Opened = format::OPENED,
}

impl Kind {
    fn from(byte: u8) -> Option<Kind> {
        [Kind::Data, Kind::Chunk, Kind::Table, Kind::Commit, Kind::Trim, Kind::Opened]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// One logical page in a flash page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) lpn: u32,
    pub(crate) size: u16,
    pub(crate) compressed: bool,
    pub(crate) ratio: u8,
}

/// The out-of-band bytes, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spare {
    pub(crate) kind: Kind,
    pub(crate) log: u8,
    pub(crate) tail: u16,
    pub(crate) seq: u64,
    pub(crate) erases: u32,
    /// Of pages of the map.
    pub(crate) index: u32,
    /// The checksum of the content: of pages of the map, and of pages of data whose content is kept.
    pub(crate) content: Option<u32>,
    /// Of pages of data.
    pub(crate) records: Vec<Record>,
}

impl Spare {
    pub(crate) fn new(kind: Kind, seq: u64, erases: u32) -> Spare {
        Spare { kind, log: 0, tail: 0, seq, erases, index: 0, content: None, records: Vec::new() }
    }

    /// Writes the bytes to the front of `out`, and zeros behind them.
    pub(crate) fn write(&self, out: &mut [u8]) {
        write(
            out,
            (self.kind, self.log, self.tail, self.seq, self.erases),
            self.records.iter().copied(),
            (self.index, self.content),
        );
    }

    /// Reads the bytes; `None` where they are no such thing.
    pub(crate) fn read(bytes: &[u8]) -> Option<Spare> {
        let mut spare = Spare::new(Kind::Data, 0, 0);
        spare.read_into(bytes)?;
        Some(spare)
    }

    /// The same, into this one, whose memory is used again.
    pub(crate) fn read_into(&mut self, bytes: &[u8]) -> Option<()> {
        let (header, rest) = RawSpareHeader::ref_from_prefix(bytes).ok()?;
        self.kind = Kind::from(header.kind)?;
        (self.log, self.tail) = (header.log, header.tail.get());
        (self.seq, self.erases) = (header.seq.get(), header.erases.get());
        let is_data = self.kind == Kind::Data;
        let records = if is_data { usize::from(header.records) * RECORD } else { 0 };
        let has_content = is_data && header.flags != 0;
        let behind = if has_content { CONTENT } else { 0 };
        let rest = rest.get(..if is_data { records + behind } else { size_of::<RawMapSpare>() })?;
        if checksum(header.as_bytes(), rest) != header.crc.get() {
            return None;
        }
        self.records.clear();
        if !is_data {
            let of_map = RawMapSpare::read_from_bytes(rest).ok()?;
            (self.index, self.content) = (of_map.index.get(), Some(of_map.content.get()));
            return Some(());
        }
        (self.index, self.content) = (0, has_content.then(|| u32_at(rest, records)));
        self.records.extend(rest[..records].chunks_exact(RECORD).filter_map(Record::read));
        self.records.iter().all(|r| (1..=PAGE as u16).contains(&r.size)).then_some(())
    }

    /// Whether the bytes of the page are those that were programmed, as far as anything says so.
    pub(crate) fn fits(&self, page: &[u8]) -> bool {
        self.content.is_none_or(|content| content == crc32fast::hash(page))
    }

    /// The byte of the page at which a record begins.
    pub(crate) fn offset(&self, index: usize) -> usize {
        usize::from(self.tail) + self.records[..index].iter().map(|r| usize::from(r.size)).sum::<usize>()
    }
}

/// Writes out-of-band bytes without a [`Spare`]: the way of every page of data.
pub(crate) fn write(
    out: &mut [u8],
    (kind, log, tail, seq, erases): (Kind, u8, u16, u64, u32),
    records: impl ExactSizeIterator<Item = Record>,
    (index, content): (u32, Option<u32>),
) {
    let mut header = RawSpareHeader {
        kind: kind as u8,
        log,
        records: records.len() as u8,
        flags: u8::from(kind == Kind::Data && content.is_some()),
        tail: tail.into(),
        zero: 0.into(),
        seq: seq.into(),
        erases: erases.into(),
        crc: 0.into(),
    };
    let mut end = HEADER;
    let mut put = |bytes: &[u8]| {
        out[end..end + bytes.len()].copy_from_slice(bytes);
        end += bytes.len();
    };
    if kind == Kind::Data {
        records.for_each(|record| put(record.raw().as_bytes()));
    } else {
        put(&index.to_le_bytes());
    }
    if let Some(content) = content {
        put(&content.to_le_bytes());
    }
    header.crc = checksum(header.as_bytes(), &out[HEADER..end]).into();
    out[..HEADER].copy_from_slice(header.as_bytes());
    out[end..].fill(0);
}

impl Record {
    /// As it is on flash.
    pub(crate) fn raw(&self) -> RawSpareRecord {
        let size = self.size | if self.compressed { RECORD_COMPRESSED } else { 0 };
        RawSpareRecord { lpn: self.lpn.into(), size: size.into(), ratio: self.ratio }
    }

    /// The record of these bytes; `None` where they are too few or too many.
    pub(crate) fn read(bytes: &[u8]) -> Option<Record> {
        let raw = RawSpareRecord::read_from_bytes(bytes).ok()?;
        let size = raw.size.get();
        Some(Record {
            lpn: raw.lpn.get(),
            size: size & !RECORD_COMPRESSED,
            compressed: size & RECORD_COMPRESSED != 0,
            ratio: raw.ratio,
        })
    }
}

/// Four bytes as a number. The caller knows that they are there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn checksum(header: &[u8], rest: &[u8]) -> u32 {
    const BEFORE: usize = offset_of!(RawSpareHeader, crc);
    // Few records, as nearly always: in one piece, which takes half the time.
    let mut piece = [0; 64];
    if let Some(place) = piece.get_mut(BEFORE..BEFORE + rest.len()) {
        place.copy_from_slice(rest);
        piece[..BEFORE].copy_from_slice(&header[..BEFORE]);
        return crc32fast::hash(&piece[..BEFORE + rest.len()]);
    }
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&header[..BEFORE]);
    hasher.update(rest);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn some() -> Spare {
        let record = |lpn, size, compressed| Record { lpn, size, compressed, ratio: 77 };
        Spare {
            kind: Kind::Data,
            log: 3,
            tail: 500,
            seq: 1 << 40,
            erases: 12,
            index: 0,
            content: None,
            records: vec![record(5, 1000, true), record(NOBODY, 1, true), record(9, 4096, false)],
        }
    }

    #[test]
    fn bytes_read_back_and_damage_is_seen() {
        let spare = some();
        let mut bytes = [0xaa; 64];
        spare.write(&mut bytes);
        assert_eq!(Spare::read(&bytes), Some(spare.clone()));
        assert_eq!([0, 1, 2].map(|i| spare.offset(i)), [500, 1500, 1501]);
        for at in 0..HEADER + 3 * RECORD {
            let mut damaged = bytes;
            damaged[at] ^= 0x10;
            assert!(Spare::read(&damaged).is_none(), "byte {at} of the header");
        }
        for length in 0..HEADER + 3 * RECORD {
            assert_eq!(Spare::read(&bytes[..length]), None);
        }
    }

    #[test]
    fn pages_of_the_map_have_index_and_checksum() {
        let mut spare = Spare::new(Kind::Chunk, 9, 1);
        (spare.index, spare.content) = (77, Some(0xdead_beef));
        let mut bytes = [0; 32];
        spare.write(&mut bytes);
        assert_eq!(Spare::read(&bytes), Some(spare));
    }

    #[test]
    fn content_is_told_from_what_it_was() {
        let mut spare = some();
        assert!(spare.fits(b"anything"), "nobody knows");
        spare.content = Some(crc32fast::hash(b"a page"));
        let mut bytes = [0xaa; 64];
        spare.write(&mut bytes);
        let read = Spare::read(&bytes).unwrap();
        assert_eq!(read, spare);
        assert!(read.fits(b"a page") && !read.fits(b"a pagf"));
        for at in 0..HEADER + 3 * RECORD + CONTENT {
            let mut damaged = bytes;
            damaged[at] ^= 1;
            assert!(Spare::read(&damaged).is_none(), "byte {at}");
        }
    }

    #[test]
    fn records_that_fit() {
        assert_eq!(records_max(128), 14);
        assert_eq!(records_max(spare_bytes_for(14) as u32), 14);
        assert_eq!((records_max(0), records_max(1 << 20)), (0, 255));
    }
}
