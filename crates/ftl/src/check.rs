//! Checks that map, counts and medium agree: for tests, and for whoever doubts a device.

use crate::blocks::State;
use crate::error::{FtlError, Result};
use crate::ftl::Ftl;
use crate::nand::{Codec, Nand};
use alloc::collections::BTreeMap;

/// What a check has seen.
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

impl<N: Nand, C: Codec> Ftl<N, C> {
    /// Compares every entry of the map with the out-of-band bytes it names, every count with what the entries add up to, and, where pages have
    /// content, all that is in use with its checksum. Damaged content is counted and no error, as the layer itself agrees.
    ///
    /// # Errors
    /// [`FtlError::Corrupt`] with the first difference; the medium's.
    pub fn check(&mut self) -> Result<Checked> {
        let mut checked = Checked::default();
        let mut pages: BTreeMap<u32, u8> = BTreeMap::new();
        let mut blocks: BTreeMap<u32, (u32, u16, u32)> = BTreeMap::new();
        for lpn in 0..self.config.logical_pages {
            let Some(e) = self.paged.entry(&mut self.nand, lpn)? else { continue };
            checked.mapped += 1;
            checked.compressed += u64::from(e.compressed);
            checked.across += u64::from(e.across);
            self.check_place(lpn, e.page, e.index)?;
            *pages.entry(e.page).or_default() += 1;
            if e.across {
                *pages.entry(e.page + 1).or_default() += 1;
            }
            let sums = blocks.entry(self.g.block_of(e.page)).or_default();
            sums.0 += self.policy.occupies(e.size, e.ratio, e.compressed, &self.g);
            if !e.compressed {
                sums.1 += 1;
                sums.2 += u32::from(e.ratio);
            }
        }
        for block in 0..self.g.blocks {
            self.check_block(block, blocks.get(&block).copied().unwrap_or_default(), &pages)?;
        }
        if C::CONTENT {
            self.check_content(&pages, &mut checked)?;
        }
        Ok(checked)
    }

    fn check_content(&mut self, pages: &BTreeMap<u32, u8>, checked: &mut Checked) -> Result<()> {
        for page in pages.keys().copied() {
            let waits = self.logs.iter().any(|log| log.slot.page == Some(page));
            if !waits && !self.load_next(page, false)? {
                checked.damaged += 1;
                checked.first_damaged.get_or_insert(page);
            }
        }
        Ok(())
    }

    fn check_place(&mut self, lpn: u32, page: u32, index: u8) -> Result<()> {
        let pending = self.logs.iter().find(|log| log.slot.page == Some(page));
        let named = match pending {
            Some(log) => log.slot.records.get(usize::from(index)).map(|r| r.lpn),
            None => {
                self.nand.read_spare(page, &mut self.spare_buf)?;
                let read = crate::spare::Spare::read(&self.spare_buf);
                read.and_then(|spare| spare.records.get(usize::from(index)).map(|r| r.lpn))
            }
        };
        if named != Some(lpn) {
            return Err(FtlError::Corrupt("the map names a page that holds something else", page));
        }
        Ok(())
    }

    fn check_block(&mut self, block: u32, sums: (u32, u16, u32), pages: &BTreeMap<u32, u8>) -> Result<()> {
        let b = self.blocks.get(block);
        let first = self.g.first_page(block);
        if b.state != State::Map && (b.occupied, b.plain, b.ratios) != sums {
            return Err(FtlError::Corrupt("what is valid in a block", first));
        }
        if b.state == State::Free && sums.0 > 0 {
            return Err(FtlError::Corrupt("a free block holds something", first));
        }
        let live = self.blocks.get(block).live;
        let mut counted = 0;
        for page in first..first + self.g.pages_per_block {
            let count = self.paged.count(&mut self.nand, page)?;
            counted += u16::from(count > 0);
            if count != pages.get(&page).copied().unwrap_or(0) {
                return Err(FtlError::Corrupt("a count of valid records", page));
            }
        }
        if counted != live {
            return Err(FtlError::Corrupt("how many pages of a block hold anything valid", first));
        }
        Ok(())
    }
}
