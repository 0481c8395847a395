//! The NAND with its blocks: programs, erases and reads that the table of blocks and the counters follow.

use crate::PAGE;
use crate::blocks::{Blocks, State};
use crate::error::Result;
use crate::nand::{Geometry, Nand, NandError};
use crate::oob::Spare;
use crate::policy::Policy;
use crate::stats::Counters;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// A NAND device, what is known of its blocks, and what was done with it.
///
/// 1. The sequence number grows by one with each page that is programmed, and with nothing else: it orders all pages.
/// 2. A block's state changes by [`Medium::set_state`] alone, so the lists of victims and of free blocks agree with it.
/// 3. A block that failed is marked as bad on the NAND before its state says so.
pub(crate) struct Medium<N> {
    pub(crate) nand: N,
    pub(crate) g: Geometry,
    pub(crate) blocks: Blocks,
    pub(crate) policy: Box<dyn Policy>,
    pub(crate) counters: Counters,
    /// Whether pages have content.
    pub(crate) content: bool,
    /// Sequence number of the last page programmed.
    pub(crate) seq: u64,
    /// Out-of-band bytes of the page that was read last, or is programmed.
    oob: Vec<u8>,
}

impl<N: Nand> Medium<N> {
    pub(crate) fn new(nand: N, policy: Box<dyn Policy>, content: bool) -> Medium<N> {
        let g = nand.geometry();
        let oob = vec![0; g.spare_bytes as usize];
        let (blocks, counters) = (Blocks::new(&g), Counters::default());
        Medium { nand, g, blocks, policy, counters, content, seq: 0, oob }
    }

    /// Memory for a flash page; none where pages have no content.
    pub(crate) fn page_buffer(&self) -> Vec<u8> {
        if self.content { vec![0; self.g.page_bytes as usize] } else { Vec::new() }
    }

    /// Memory for a logical page; none where pages have no content.
    pub(crate) fn logical_buffer(&self) -> Vec<u8> {
        if self.content { vec![0; PAGE] } else { Vec::new() }
    }

    /// Changes what a block is used for.
    pub(crate) fn set_state(&mut self, block: u32, state: State) {
        self.blocks.set_state(block, state, &*self.policy);
    }

    /// Programs a page with the out-of-band bytes that `fill` writes.
    pub(crate) fn program(
        &mut self,
        page: u32,
        data: &[u8],
        fill: impl FnOnce(&mut [u8]),
    ) -> core::result::Result<(), NandError> {
        fill(&mut self.oob);
        self.nand.program(page, data, &self.oob)?;
        self.seq += 1;
        Ok(())
    }

    /// Reads a page; its out-of-band bytes are [`Medium::oob`] then.
    pub(crate) fn read(&mut self, page: u32, data: &mut [u8]) -> Result<()> {
        Ok(self.nand.read(page, data, &mut self.oob)?)
    }

    /// The out-of-band bytes of the page that was read last.
    pub(crate) fn oob(&self) -> &[u8] {
        &self.oob
    }

    /// The out-of-band bytes of a page: `None` where it cannot be read.
    pub(crate) fn spare_of(&mut self, page: u32) -> Result<Option<Spare>> {
        match self.nand.read_spare(page, &mut self.oob) {
            Ok(()) => Ok(Spare::read(&self.oob)),
            Err(NandError::Uncorrectable(_)) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The out-of-band bytes of a page that is in use and so must be readable: `None` where they are no such thing.
    pub(crate) fn spare_in_use(&mut self, page: u32) -> Result<Option<Spare>> {
        self.nand.read_spare(page, &mut self.oob)?;
        Ok(Spare::read(&self.oob))
    }

    /// The flash pages of a block.
    pub(crate) fn pages(&self, block: u32) -> core::ops::Range<u32> {
        self.g.first_page(block)..self.g.first_page(block) + self.g.pages_per_block
    }

    /// The sequence number of the first page of a block that can be read; `None` where the block is erased or bad.
    pub(crate) fn first_seq(&mut self, block: u32) -> Result<Option<u64>> {
        if self.nand.is_bad(block) {
            return Ok(None);
        }
        for page in self.pages(block) {
            if self.nand.is_blank(page)? {
                break;
            }
            if let Some(spare) = self.spare_of(page)? {
                return Ok(Some(spare.seq));
            }
        }
        Ok(None)
    }

    /// Erases a free block, which stays free; `false` where it went bad.
    pub(crate) fn erase(&mut self, block: u32) -> Result<bool> {
        self.set_state(block, State::Drained);
        let begun = self.nand.now();
        let erased = self.nand.erase(block);
        self.counters.erase_ns += self.nand.now() - begun;
        match erased {
            Ok(()) => {
                self.counters.erases += 1;
                self.blocks.erased(block);
                self.set_state(block, State::Free);
                Ok(true)
            }
            Err(NandError::Failed(_)) => {
                self.retire(block);
                Ok(false)
            }
            Err(e) => {
                self.set_state(block, State::Free);
                self.blocks.get_mut(block).clean = false;
                Err(e.into())
            }
        }
    }

    /// A block is not used again.
    pub(crate) fn retire(&mut self, block: u32) {
        self.nand.mark_bad(block);
        self.set_state(block, State::Bad);
        self.counters.grown_bad += 1;
    }

    /// Memory in use, in bytes.
    pub(crate) fn ram_bytes(&self) -> usize {
        self.blocks.ram_bytes() + self.oob.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{G, Memory, plain_policy};
    use crate::oob::Kind;

    fn medium() -> Medium<Memory> {
        let mut medium = Medium::new(Memory::new(G), plain_policy(), true);
        (0..G.blocks).for_each(|block| medium.set_state(block, State::Free));
        medium
    }

    #[test]
    fn programs_are_numbered_and_failed_ones_are_not() {
        let mut medium = medium();
        medium.nand.failing_pages.insert(1);
        let spare = |seq| {
            move |oob: &mut [u8]| {
                let spare = Spare { content: Some(0), ..Spare::new(Kind::Opened, seq, 0) };
                spare.write(oob)
            }
        };
        let data = medium.page_buffer();
        medium.program(0, &data, spare(1)).unwrap();
        assert_eq!(medium.program(1, &data, spare(2)), Err(NandError::Failed(0)));
        assert_eq!(medium.seq, 1);
        assert_eq!(medium.first_seq(0).unwrap(), Some(1));
        assert_eq!(medium.first_seq(1).unwrap(), None);
    }

    #[test]
    fn erased_blocks_stay_free_and_failed_ones_are_retired() {
        let mut medium = medium();
        medium.nand.failing_erases.insert(3);
        assert!(medium.erase(2).unwrap());
        assert!(medium.blocks.get(2).clean && medium.blocks.get(2).erases == 1);
        assert!(!medium.erase(3).unwrap());
        assert_eq!(medium.blocks.get(3).state, State::Bad);
        assert!(medium.nand.is_bad(3));
        assert_eq!(medium.blocks.free_count(), G.blocks - 1);
        assert_eq!((medium.counters.erases, medium.counters.grown_bad), (1, 1));
        medium.nand.power = Some(0);
        assert!(medium.erase(2).is_err());
        assert!(!medium.blocks.get(2).clean, "nobody knows what an erase without power left");
    }
}
