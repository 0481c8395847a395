//! How SQLite lays out its write-ahead logs and rollback journals: which page of the database is where in them.
//!
//! A write-ahead log is a header of 32 bytes and frames: 24 bytes, whose first four name a page of the
//! database, and that page. A rollback journal is a header, which fills a sector, and records: four bytes
//! that name a page, the page, and a checksum; further headers may follow. (SQLite's documentation, "Database
//! File Format", sections 3 and 4.)

use medfs_format::delta::RawSlice;
use medfs_format::{BLOCK_SIZE, Ino};

const LOG_HEADER: u64 = 32;
const FRAME_HEADER: u64 = 24;
const LOG_MAGIC: u32 = 0x377f_0682;
const JOURNAL_MAGIC: [u8; 8] = [0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7];
/// Bytes of a journal's record around its page.
const RECORD_AROUND: u64 = 8;

pub(crate) const PAGE: u64 = BLOCK_SIZE as u64;

/// How a journal or log is laid out from some place on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of a page of the database.
    pub(super) page: u64,
    /// Where the first record is.
    pub(super) first: u64,
    /// Bytes of a record before its page, and in all.
    pub(super) before: u64,
    pub(super) stride: u64,
}

/// A page of the database in a journal or log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageCopy {
    /// Where it begins.
    pub(super) at: u64,
    /// Its number, from one.
    pub(super) number: u32,
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn page_size(size: u32) -> Option<u64> {
    (size.is_power_of_two() && (512..=65536).contains(&size)).then_some(u64::from(size))
}

impl Layout {
    pub(super) fn of_log(header: &[u8]) -> Option<Layout> {
        let page = page_size(be32(header, 8))?;
        let stride = FRAME_HEADER + page;
        (be32(header, 0) & !1 == LOG_MAGIC).then_some(Layout {
            page,
            first: LOG_HEADER,
            before: FRAME_HEADER,
            stride,
        })
    }

    /// The layout behind a journal's header at `start`, and the number of its records where that is known.
    /// SQLite writes magic and number only when the records are durable: before that they are zeros.
    pub(super) fn of_journal(header: &[u8], start: u64) -> Option<(Layout, Option<u64>)> {
        let started = header[..8] == JOURNAL_MAGIC || header[..8] == [0; 8];
        let (sector, page) = (page_size(be32(header, 20))?, page_size(be32(header, 24))?);
        let count = match be32(header, 8) {
            0 | u32::MAX => None,
            count => Some(u64::from(count)),
        };
        let layout = Layout { page, first: start + sector, before: 4, stride: page + RECORD_AROUND };
        started.then_some((layout, count))
    }

    /// Where a copied page is in the database.
    pub(super) fn in_database(&self, copy: PageCopy) -> u64 {
        u64::from(copy.number - 1) * self.page
    }

    /// Where the records begin whose pages overlap `at..at + PAGE`.
    pub(super) fn records_over(&self, at: u64) -> impl Iterator<Item = u64> + use<> {
        let layout = *self;
        let first = at.saturating_sub(layout.first) / layout.stride;
        (first..).map(move |n| layout.first + n * layout.stride).take_while(move |&start| start < at + PAGE)
    }

    /// The slices of page `index` of the journal or log that a copy makes, whose like is at `offset` of the
    /// file `source`.
    pub(super) fn slices(&self, copy: PageCopy, index: u32, source: Ino, offset: u64) -> Vec<RawSlice> {
        let (start, end) = (u64::from(index) * PAGE, (u64::from(index) + 1) * PAGE);
        let mut at = copy.at.max(start);
        let until = (copy.at + self.page).min(end);
        let mut slices = Vec::new();
        while at < until {
            let in_source = offset + (at - copy.at);
            let from = in_source % PAGE;
            let len = (until - at).min(PAGE - from);
            let Ok(page) = u32::try_from(in_source / PAGE) else { break };
            slices.push(RawSlice {
                ino: source.into(),
                page: page.into(),
                from: (from as u16).into(),
                to: ((at - start) as u16).into(),
                len: (len as u16).into(),
            });
            at += len;
        }
        slices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(page: u32) -> Layout {
        let mut header = [0; 32];
        header[..4].copy_from_slice(&(LOG_MAGIC | 1).to_be_bytes());
        header[8..12].copy_from_slice(&page.to_be_bytes());
        Layout::of_log(&header).unwrap()
    }

    fn parts(slices: &[RawSlice]) -> Vec<(u32, u16, u16, u16)> {
        slices.iter().map(|s| (s.page.get(), s.from.get(), s.to.get(), s.len.get())).collect()
    }

    #[test]
    fn a_page_of_a_log_lies_over_two_frames() {
        let log = log(4096);
        assert_eq!(log.records_over(0).collect::<Vec<_>>(), [32]);
        assert_eq!(log.records_over(4096).collect::<Vec<_>>(), [32, 4152]);
        let seven = PageCopy { at: 56, number: 7 };
        let tail = log.slices(seven, 1, 5, log.in_database(seven));
        assert_eq!(parts(&tail), [(6, 4040, 0, 56)]);
        let nine = PageCopy { at: 4176, number: 9 };
        let head = log.slices(nine, 1, 5, log.in_database(nine));
        assert_eq!(parts(&head), [(8, 0, 80, 4016)]);
    }

    #[test]
    fn database_pages_of_other_sizes_are_found() {
        let small = log(1024);
        assert_eq!(small.records_over(4096).count(), 5);
        let six = PageCopy { at: 4300, number: 6 };
        assert_eq!(parts(&small.slices(six, 1, 5, small.in_database(six))), [(1, 1024, 204, 1024)]);
        let large = log(16384);
        assert_eq!(large.records_over(4096 * 3).collect::<Vec<_>>(), [32]);
        assert_eq!(
            parts(&large.slices(PageCopy { at: 56, number: 2 }, 3, 5, 16384)),
            [(6, 4040, 0, 56), (7, 0, 56, 4040)]
        );
    }

    #[test]
    fn a_journal_is_known_before_its_header_is_complete() {
        let mut header = [0; 28];
        header[20..24].copy_from_slice(&512u32.to_be_bytes());
        header[24..28].copy_from_slice(&4096u32.to_be_bytes());
        let (layout, count) = Layout::of_journal(&header, 0).unwrap();
        assert_eq!((layout.first, layout.before, layout.stride, count), (512, 4, 4104, None));
        header[..8].copy_from_slice(&JOURNAL_MAGIC);
        header[8..12].copy_from_slice(&3u32.to_be_bytes());
        assert_eq!(Layout::of_journal(&header, 0).unwrap().1, Some(3));
        header[0] = 1;
        assert_eq!(Layout::of_journal(&header, 0), None);
        header[..8].fill(0);
        header[25] = 1;
        assert_eq!(Layout::of_journal(&header, 0), None, "no size of a page");
    }
}
