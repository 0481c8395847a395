//! What becomes of the records of a flash page whose block is collected.

use crate::WHOLE;
use crate::compress::{Packer, moved_log};
use crate::error::Result;
use crate::map::Entry;
use crate::nand::{Codec, Nand};
use crate::oob::{NOBODY, Record};
use crate::reader::{Reader, Reason};
use crate::store::Store;
use crate::streams::{Packing, Pending};

/// What moving a page takes: where it is, how it is read, and how it is packed.
pub(crate) struct Hands<'a, N, C> {
    pub(crate) store: &'a mut Store<N>,
    pub(crate) reader: &'a mut Reader,
    pub(crate) packer: &'a mut Packer<C>,
}

impl<N: Nand, C: Codec> Hands<'_, N, C> {
    /// Moves everything valid of a flash page. `stored`: memory for a logical page as it is stored.
    pub(super) fn move_page(&mut self, page: u32, squeeze: bool, stored: &mut [u8]) -> Result<()> {
        self.reader.forget();
        self.reader.load(&mut self.store.medium, page, Reason::Collection)?;
        let (tail, records) = self.reader.take_records();
        let moved = self.move_records((page, tail), &records, squeeze, stored);
        self.reader.give_back(records);
        self.reader.forget();
        moved
    }

    fn move_records(
        &mut self,
        (page, tail): (u32, u16),
        records: &[Record],
        squeeze: bool,
        stored: &mut [u8],
    ) -> Result<()> {
        let mut from = usize::from(tail);
        // Where as many records are valid as are there, the map need not be asked which.
        let there = records.iter().filter(|r| r.lpn != NOBODY).count();
        let Store { medium, map, config, .. } = &mut *self.store;
        let count = usize::from(map.table.count(&mut medium.nand, page)?);
        let (page_bytes, logical_pages) = (medium.g.page_bytes as usize, config.logical_pages);
        let all_valid = from == 0 && count == there;
        for (index, record) in (0..=u8::MAX).zip(records) {
            let place = from;
            from += usize::from(record.size);
            if record.lpn == NOBODY || record.lpn >= logical_pages {
                continue;
            }
            let entry = Entry {
                page,
                index,
                size: record.size,
                ratio: record.ratio.min(WHOLE),
                across: from > page_bytes,
                compressed: record.compressed,
            };
            if !all_valid || cfg!(debug_assertions) {
                let mapped = self.store.entry(record.lpn)?;
                let is_valid = mapped.is_some_and(|e| e.page == page && e.index == index);
                debug_assert!(!all_valid || mapped == Some(entry), "{mapped:?} is not {entry:?}");
                if !is_valid {
                    continue;
                }
            }
            self.store.medium.counters.moved += 1;
            if self.reader.copy(&mut self.store.medium, &entry, place, stored)? {
                self.move_record(record.lpn, &entry, stored, squeeze)?;
            } else {
                self.move_damaged(record.lpn, &entry, stored)?;
            }
        }
        Ok(())
    }

    fn move_record(&mut self, lpn: u32, entry: &Entry, stored: &[u8], squeeze: bool) -> Result<()> {
        let packing = self.packer.for_collection(&mut self.store.medium, (lpn, entry), stored, squeeze);
        self.store.append(&packing, Some(*entry))
    }

    /// Moves bytes that are not what was programmed to a flash page of their own, whose checksum does not fit
    /// either: a read of them gets an error as before, and nothing else becomes unreadable with them.
    #[cold]
    fn move_damaged(&mut self, lpn: u32, entry: &Entry, stored: &[u8]) -> Result<()> {
        let Entry { size, ratio, compressed, .. } = *entry;
        let log = moved_log(&self.store.medium, ratio, compressed);
        self.store.settle_log(log)?;
        let bytes = stored.get(..usize::from(size)).unwrap_or_default();
        let page = Pending { lpn, size, ratio, compressed, damaged: true };
        self.store.append(&Packing { log, page, bytes, across: false }, Some(*entry))?;
        self.store.settle_log(log)
    }
}
