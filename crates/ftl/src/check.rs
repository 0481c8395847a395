//! Checks that map, counts and medium agree: for tests, and for `medfs flash check`.

use crate::blocks::State;
use crate::error::{FtlError, Result};
use crate::nand::Nand;
use crate::reader::{Reader, Reason};
use crate::store::Store;
use alloc::collections::BTreeMap;

/// The counts of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Checked {
    /// Logical pages that are somewhere.
    pub mapped: u64,
    /// Of these, compressed.
    pub compressed: u64,
    /// Of these, across two flash pages.
    pub across: u64,
    /// Flash pages in use whose bytes do not fit their checksum.
    pub damaged: u64,
    /// The first of them.
    pub first_damaged: Option<u32>,
}

/// A comparison of everything with everything.
pub(crate) struct Check<'a, N> {
    pub(crate) store: &'a mut Store<N>,
    pub(crate) reader: &'a mut Reader,
}

/// What the entries of a block add up to: occupied bytes, uncompressed pages, their ratios.
type Sums = (u32, u16, u32);

impl<N: Nand> Check<'_, N> {
    /// Compares map, counts and medium; see [`Ftl::check`](crate::Ftl::check).
    pub(crate) fn run(mut self) -> Result<Checked> {
        let mut checked = Checked::default();
        let mut pages: BTreeMap<u32, u8> = BTreeMap::new();
        let mut blocks: BTreeMap<u32, Sums> = BTreeMap::new();
        for lpn in 0..self.store.config.logical_pages {
            let Some(e) = self.store.entry(lpn)? else { continue };
            checked.mapped += 1;
            checked.compressed += u64::from(e.compressed);
            checked.across += u64::from(e.across);
            self.check_place(lpn, e.page, e.index)?;
            *pages.entry(e.page).or_default() += 1;
            if e.across {
                *pages.entry(e.page + 1).or_default() += 1;
            }
            let medium = &self.store.medium;
            let sums = blocks.entry(medium.g.block_of(e.page)).or_default();
            sums.0 += medium.policy.occupies(e.size, e.ratio, e.compressed, &medium.g);
            if !e.compressed {
                sums.1 += 1;
                sums.2 += u32::from(e.ratio);
            }
        }
        for block in 0..self.store.medium.g.blocks {
            self.check_block(block, blocks.get(&block).copied().unwrap_or_default(), &pages)?;
        }
        if self.store.medium.content {
            self.check_content(&pages, &mut checked)?;
        }
        Ok(checked)
    }

    fn check_content(&mut self, pages: &BTreeMap<u32, u8>, checked: &mut Checked) -> Result<()> {
        for page in pages.keys().copied() {
            let waits = self.store.streams.filling(page).is_some();
            if !waits && !self.reader.load_next(&mut self.store.medium, page, Reason::Collection)? {
                checked.damaged += 1;
                checked.first_damaged.get_or_insert(page);
            }
        }
        Ok(())
    }

    fn check_place(&mut self, lpn: u32, page: u32, index: u8) -> Result<()> {
        let index = usize::from(index);
        let named = match self.store.streams.filling(page) {
            Some(log) => log.slot.records.get(index).map(|r| r.lpn),
            None => {
                let spare = self.store.medium.spare_in_use(page)?;
                spare.and_then(|spare| spare.records.get(index).map(|r| r.lpn))
            }
        };
        if named != Some(lpn) {
            return Err(FtlError::Corrupt("a map entry that names a page of other data", page));
        }
        Ok(())
    }

    fn check_block(&mut self, block: u32, sums: Sums, pages: &BTreeMap<u32, u8>) -> Result<()> {
        let Store { medium, map, .. } = &mut *self.store;
        let b = medium.blocks.get(block);
        let first = medium.g.first_page(block);
        if b.state != State::Map && (b.occupied, b.plain, b.ratios) != sums {
            return Err(FtlError::Corrupt("the valid count of a block", first));
        }
        if b.state == State::Free && sums.0 > 0 {
            return Err(FtlError::Corrupt("a free block that holds data", first));
        }
        let live = b.live;
        let mut counted = 0;
        for page in medium.pages(block) {
            let count = map.table.count(&mut medium.nand, page)?;
            counted += u16::from(count > 0);
            if count != pages.get(&page).copied().unwrap_or(0) {
                return Err(FtlError::Corrupt("a count of valid records", page));
            }
        }
        if counted != live {
            return Err(FtlError::Corrupt("the number of valid pages of a block", first));
        }
        Ok(())
    }
}
