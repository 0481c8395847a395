//! The mapping: where each logical page is, and what that makes valid in each block.

mod entry;
mod paged;

pub(crate) use entry::Entry;
pub(crate) use paged::{NOWHERE, Paged, chunks_of};

use crate::error::{FtlError, Result};
use crate::medium::Medium;
use crate::nand::{Geometry, Nand};

/// The map of a medium, and the counts that follow from it.
///
/// 1. An entry names a place on flash, or one that is reserved for a slot whose bytes are in memory.
/// 2. A flash page's count is the number of entries that name it, those that end in it among them.
/// 3. A block's sums are those of its entries: occupied bytes, uncompressed pages and their ratios, pages with a count.
/// 4. The clock of records grows by one with each record that is placed or dropped. A block's `touched` is
///    the moment at which something in it was last replaced.
pub(crate) struct Map {
    pub(crate) table: Paged,
    stamp: u64,
}

impl Map {
    pub(crate) fn new(g: &Geometry, logical_pages: u32) -> Map {
        Map { table: Paged::new(g, logical_pages), stamp: 1 }
    }

    /// Where a logical page is.
    pub(crate) fn entry<N: Nand>(&mut self, medium: &mut Medium<N>, lpn: u32) -> Result<Option<Entry>> {
        self.table.entry(&mut medium.nand, lpn)
    }

    /// Maps a logical page, or makes it nowhere. The counts are the caller's.
    pub(crate) fn set<N: Nand>(
        &mut self,
        medium: &mut Medium<N>,
        lpn: u32,
        entry: Option<Entry>,
    ) -> Result<()> {
        self.table.set_entry(&mut medium.nand, lpn, entry)
    }

    /// Maps a logical page to a new place, which holds it from now on. Returns where it was, which holds it
    /// still. `known`: where the caller knows that it was.
    pub(crate) fn place<N: Nand>(
        &mut self,
        medium: &mut Medium<N>,
        lpn: u32,
        entry: Entry,
        known: Option<Entry>,
    ) -> Result<Option<Entry>> {
        self.tick();
        let old = match known {
            // The entry is not looked at: it may be far away in the memory.
            Some(_) => {
                self.set(medium, lpn, Some(entry))?;
                known
            }
            None => self.table.replace(&mut medium.nand, lpn, entry)?,
        };
        self.hold(medium, &entry)?;
        Ok(old)
    }

    /// The clock of records.
    pub(crate) fn now(&self) -> u64 {
        self.stamp
    }

    /// A record is placed or dropped.
    pub(crate) fn tick(&mut self) {
        self.stamp += 1;
    }

    /// A place holds something valid.
    pub(crate) fn hold<N: Nand>(&mut self, medium: &mut Medium<N>, entry: &Entry) -> Result<()> {
        self.account(medium, entry, true)
    }

    /// A place holds nothing valid any more.
    pub(crate) fn release<N: Nand>(&mut self, medium: &mut Medium<N>, entry: &Entry) -> Result<()> {
        let block = medium.g.block_of(entry.page);
        medium.blocks.get_mut(block).touched = self.stamp;
        self.account(medium, entry, false)
    }

    fn account<N: Nand>(&mut self, medium: &mut Medium<N>, entry: &Entry, up: bool) -> Result<()> {
        let block = medium.g.block_of(entry.page);
        let bytes = medium.policy.occupies(entry.size, entry.ratio, entry.compressed, &medium.g);
        let (plain, ratio) = if entry.compressed { (0, 0) } else { (1, u32::from(entry.ratio)) };
        let b = medium.blocks.get_mut(block);
        let changed = if up {
            Some((b.occupied + bytes, b.plain + plain, b.ratios + ratio))
        } else {
            b.occupied
                .checked_sub(bytes)
                .zip(b.plain.checked_sub(plain))
                .zip(b.ratios.checked_sub(ratio))
                .map(|((occupied, plain), ratios)| (occupied, plain, ratios))
        };
        let Some(changed) = changed else {
            return Err(FtlError::Corrupt("the valid count of a block", entry.page));
        };
        (b.occupied, b.plain, b.ratios) = changed;
        self.count_page(medium, block, entry.page, up)?;
        if entry.across {
            self.count_page(medium, block, entry.page + 1, up)?;
        }
        medium.blocks.rescore(block, &*medium.policy);
        Ok(())
    }

    /// A flash page of the block holds one record more that is valid, or one less.
    fn count_page<N: Nand>(&mut self, medium: &mut Medium<N>, block: u32, page: u32, up: bool) -> Result<()> {
        let count = self.table.change_count(&mut medium.nand, page, up)?;
        let b = medium.blocks.get_mut(block);
        match (up, count) {
            (true, 1) => b.live += 1,
            // The table of blocks may be damaged.
            (false, 0) => b.live = b.live.saturating_sub(1),
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE;
    use crate::memory::{G, Memory, plain_policy};

    fn at(page: u32, size: u16, across: bool) -> Entry {
        let compressed = usize::from(size) < PAGE;
        Entry { page, index: 0, size, ratio: 100, across, compressed }
    }

    #[test]
    fn counts_follow_entries() {
        let mut medium = Medium::new(Memory::new(G), plain_policy(), true);
        let mut map = Map::new(&G, 64);
        let (first, second) = (at(8, 4096, false), at(15, 3000, true));
        assert_eq!(map.place(&mut medium, 5, first, None).unwrap(), None);
        assert_eq!(map.now(), 2);
        let b = medium.blocks.get(1);
        assert_eq!((b.occupied, b.plain, b.ratios, b.live), (4096, 1, 100, 1));
        // Known or looked up, the old place is told and holds the page until it is released.
        assert_eq!(map.place(&mut medium, 5, second, None).unwrap(), Some(first));
        map.release(&mut medium, &first).unwrap();
        let b = medium.blocks.get(1);
        assert_eq!((b.plain, b.ratios, b.live, b.touched), (0, 0, 2, 3));
        assert_eq!(map.entry(&mut medium, 5).unwrap(), Some(second));
        map.set(&mut medium, 5, None).unwrap();
        map.release(&mut medium, &second).unwrap();
        let b = medium.blocks.get(1);
        assert_eq!((b.occupied, b.live), (0, 0));
        assert_eq!(map.table.next_live(&mut medium.nand, 0, 64).unwrap(), None);
    }

    #[test]
    fn what_was_never_held_cannot_be_released() {
        let mut medium = Medium::new(Memory::new(G), plain_policy(), true);
        let mut map = Map::new(&G, 64);
        let released = map.release(&mut medium, &at(8, 4096, false));
        assert_eq!(released, Err(FtlError::Corrupt("the valid count of a block", 8)));
    }
}
