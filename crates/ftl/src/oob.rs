//! The out-of-band bytes of a flash page: whose data it holds, and since when.
//!
//! Little-endian: kind 1, log 1, records 1, whether the content has a checksum 1, tail 2 (bytes at the page's beginning that end the last
//! record of the page before), zero 2, sequence number 8, erase count of the block 4, checksum 4; then 7 bytes for each record: logical page 4
//! (all ones: nobody's any more), size 2 (the highest bit: compressed), ratio 1; then, if it has one, the content's checksum 4. Pages of the
//! map have 8 bytes instead: index 4, checksum of the content 4. The checksum is the CRC-32 of everything else.

use crate::PAGE;
use crate::format::{self, SPARE_HEADER as HEADER, SPARE_RECORD as RECORD};
use alloc::vec::Vec;

/// Bytes of the checksum of the content.
const CONTENT: usize = 4;
/// Flag of a record's size.
const COMPRESSED: u16 = 1 << 15;
/// Logical page of a record that is nobody's.
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
        let header = bytes.get(..HEADER)?;
        self.kind = Kind::from(header[0])?;
        self.log = header[1];
        let count = usize::from(header[2]);
        self.tail = u16::from_le_bytes([header[4], header[5]]);
        self.seq = u64::from_le_bytes(header[8..16].try_into().ok()?);
        self.erases = u32_at(header, 16);
        let records = if self.kind == Kind::Data { count * RECORD } else { 4 };
        let has_content = self.kind != Kind::Data || header[3] != 0;
        let length = records + if has_content { CONTENT } else { 0 };
        let rest = bytes.get(HEADER..HEADER + length)?;
        if checksum(header, rest) != u32_at(header, 20) {
            return None;
        }
        self.records.clear();
        self.index = 0;
        self.content = has_content.then(|| u32_at(rest, records));
        if self.kind == Kind::Data {
            self.records.extend(rest[..records].chunks_exact(RECORD).map(record));
            return self.records.iter().all(|r| (1..=PAGE as u16).contains(&r.size)).then_some(());
        }
        self.index = u32_at(rest, 0);
        Some(())
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
    let count = records.len();
    let mut end = HEADER;
    out[0] = kind as u8;
    out[1] = log;
    out[2] = count as u8;
    out[3] = u8::from(kind == Kind::Data && content.is_some());
    out[4..6].copy_from_slice(&tail.to_le_bytes());
    out[6..8].fill(0);
    out[8..16].copy_from_slice(&seq.to_le_bytes());
    out[16..20].copy_from_slice(&erases.to_le_bytes());
    if kind == Kind::Data {
        for r in records {
            let size = r.size | if r.compressed { COMPRESSED } else { 0 };
            out[end..end + 4].copy_from_slice(&r.lpn.to_le_bytes());
            out[end + 4..end + 6].copy_from_slice(&size.to_le_bytes());
            out[end + 6] = r.ratio;
            end += RECORD;
        }
    } else {
        out[end..end + 4].copy_from_slice(&index.to_le_bytes());
        end += 4;
    }
    if let Some(content) = content {
        out[end..end + CONTENT].copy_from_slice(&content.to_le_bytes());
        end += CONTENT;
    }
    let sum = checksum(&out[..HEADER], &out[HEADER..end]);
    out[20..24].copy_from_slice(&sum.to_le_bytes());
    out[end..].fill(0);
}

fn record(bytes: &[u8]) -> Record {
    let size = u16::from_le_bytes([bytes[4], bytes[5]]);
    Record {
        lpn: u32_at(bytes, 0),
        size: size & !COMPRESSED,
        compressed: size & COMPRESSED != 0,
        ratio: bytes[6],
    }
}

/// Four bytes as a number. The caller knows that they are there.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn checksum(header: &[u8], rest: &[u8]) -> u32 {
    const BEFORE: usize = 20;
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
