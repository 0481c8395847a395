//! Pages of data off the medium: one flash page is kept as long as what is read from it follows each other.

use crate::error::{FtlError, Result};
use crate::map::Entry;
use crate::medium::Medium;
use crate::nand::Nand;
use crate::oob::{Kind, Record, Spare};
use crate::streams::Streams;
use alloc::vec::Vec;

/// For whom a flash page is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Host,
    Collection,
}

/// The flash page read last, and the one behind it.
///
/// 1. While `cached` names a flash page, `page` and `spare` are its bytes and its out-of-band bytes, and
///    `damaged` says whether they fit each other.
/// 2. Nothing is programmed or erased between the reading of a page and its last use: a caller that does so
///    calls [`Reader::forget`] before.
pub(crate) struct Reader {
    cached: Option<u32>,
    /// What is in `page` is not what was programmed.
    damaged: bool,
    page: Vec<u8>,
    next: Vec<u8>,
    spare: Spare,
}

/// The bytes of a flash page are not what was programmed.
fn damage(page: u32) -> FtlError {
    FtlError::Corrupt("a wrong checksum", page)
}

impl Reader {
    /// `page`: memory for a flash page, none where pages have no content.
    pub(crate) fn new(page: Vec<u8>) -> Reader {
        Reader { cached: None, damaged: false, next: page.clone(), page, spare: Spare::new(Kind::Data, 0, 0) }
    }

    /// Reads its flash page anew when it is asked for the next time.
    pub(crate) fn forget(&mut self) {
        self.cached = None;
    }

    /// Gets the bytes of a logical page as they are stored, from the medium or from where they wait.
    pub(crate) fn fetch<N: Nand>(
        &mut self,
        medium: &mut Medium<N>,
        streams: &Streams,
        (lpn, entry): (u32, &Entry),
        out: &mut [u8],
    ) -> Result<()> {
        if let Some(bytes) = streams.waiting(lpn, entry) {
            out.copy_from_slice(bytes.get(..out.len()).unwrap_or_default());
            return Ok(());
        }
        self.load(medium, entry.page, Reason::Host)?;
        if medium.content && self.damaged {
            return Err(damage(entry.page));
        }
        let index = usize::from(entry.index);
        if self.spare.records.get(index).is_none_or(|r| r.lpn != lpn || r.size != entry.size) {
            return Err(FtlError::Corrupt("a map entry that names a page of other data", entry.page));
        }
        let from = self.spare.offset(index);
        if !medium.content {
            if entry.across {
                self.load_next(medium, entry.page + 1, Reason::Host)?;
            }
            return Ok(());
        }
        let here = out.len().min(self.page.len().saturating_sub(from));
        out[..here].copy_from_slice(&self.page[from..from + here]);
        if here < out.len() {
            let rest = out.len() - here;
            if !self.load_next(medium, entry.page + 1, Reason::Host)? {
                return Err(damage(entry.page + 1));
            }
            out[here..].copy_from_slice(&self.next[..rest]);
        }
        Ok(())
    }

    /// Reads a flash page, unless it is there.
    pub(crate) fn load<N: Nand>(&mut self, medium: &mut Medium<N>, page: u32, why: Reason) -> Result<()> {
        if self.cached == Some(page) {
            return Ok(());
        }
        self.cached = None;
        medium.read(page, &mut self.page)?;
        let read = self.spare.read_into(medium.oob());
        if read.is_none() || self.spare.kind != Kind::Data {
            return Err(FtlError::Corrupt("out-of-band bytes of data", page));
        }
        self.damaged = medium.content && !self.spare.fits(&self.page);
        self.cached = Some(page);
        count(medium, why);
        Ok(())
    }

    /// Reads the flash page behind it. Returns whether that is what was programmed.
    pub(crate) fn load_next<N: Nand>(
        &mut self,
        medium: &mut Medium<N>,
        page: u32,
        why: Reason,
    ) -> Result<bool> {
        medium.read(page, &mut self.next)?;
        count(medium, why);
        Ok(!medium.content || Spare::read(medium.oob()).is_some_and(|spare| spare.fits(&self.next)))
    }

    /// Takes the records of the page that is loaded, to be lent while they are moved.
    pub(crate) fn take_records(&mut self) -> (u16, Vec<Record>) {
        (self.spare.tail, core::mem::take(&mut self.spare.records))
    }

    /// Gives their memory back.
    pub(crate) fn give_back(&mut self, records: Vec<Record>) {
        self.spare.records = records;
    }

    /// Copies the stored bytes of a record that begins at this byte of the page that is loaded. Returns
    /// whether they are what was programmed.
    pub(crate) fn copy<N: Nand>(
        &mut self,
        medium: &mut Medium<N>,
        entry: &Entry,
        from: usize,
        out: &mut [u8],
    ) -> Result<bool> {
        let size = usize::from(entry.size).min(out.len());
        let here = size.min(self.page.len().saturating_sub(from));
        if here > 0 {
            out[..here].copy_from_slice(&self.page[from..from + here]);
        }
        let mut intact = !self.damaged;
        if entry.across {
            intact &= self.load_next(medium, entry.page + 1, Reason::Collection)?;
            out[here..size].copy_from_slice(&self.next[..size - here]);
        }
        Ok(!medium.content || intact)
    }

    /// Memory in use, in bytes.
    pub(crate) fn ram_bytes(&self) -> usize {
        self.page.len() + self.next.len()
    }
}

fn count<N>(medium: &mut Medium<N>, why: Reason) {
    match why {
        Reason::Host => medium.counters.reads_host += 1,
        Reason::Collection => medium.counters.reads_collected += 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
    use crate::memory::{G, Memory, page, plain_policy};
    use crate::oob;
    use alloc::vec;

    fn written(lpn: u32, bytes: &[u8]) -> Medium<Memory> {
        let mut medium = Medium::new(Memory::new(G), plain_policy(), true);
        let record = Record { lpn, size: PAGE as u16, compressed: false, ratio: 90 };
        let sum = Some(crc32fast::hash(bytes));
        let header = (Kind::Data, 2, 0, 1, 0);
        let fill = |out: &mut [u8]| oob::write(out, header, vec![record].into_iter(), (0, sum));
        medium.program(0, bytes, fill).unwrap();
        medium
    }

    #[test]
    fn a_flash_page_is_read_once_while_it_is_kept() {
        let bytes = page(7, PAGE);
        let mut medium = written(5, &bytes);
        let streams = Streams::new(&G, &*plain_policy(), true);
        let mut reader = Reader::new(medium.page_buffer());
        let entry =
            Entry { page: 0, index: 0, size: PAGE as u16, ratio: 90, across: false, compressed: false };
        for reads in [1, 1] {
            let mut out = page(0, PAGE);
            reader.fetch(&mut medium, &streams, (5, &entry), &mut out).unwrap();
            assert_eq!((out, medium.nand.reads), (bytes.clone(), reads));
        }
        let mut out = page(0, PAGE);
        let other = reader.fetch(&mut medium, &streams, (6, &entry), &mut out);
        assert!(matches!(other, Err(FtlError::Corrupt("a map entry that names a page of other data", 0))));
        medium.nand.damage(0);
        reader.forget();
        let damaged = reader.fetch(&mut medium, &streams, (5, &entry), &mut out);
        assert_eq!(damaged, Err(damage(0)));
        assert_eq!((medium.counters.reads_host, medium.nand.reads), (2, 2));
    }
}
