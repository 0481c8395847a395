//! A NAND in memory, for the tests of the rooms: it refuses what NAND cannot do, fails where it is told to, and counts.

use crate::nand::{Codec, CodecFailed, Geometry, Nand, NandError};
use crate::policy::{Policy, Uncompressed};
use crate::{Config, PAGE, WHOLE};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// A small device.
pub(crate) const G: Geometry =
    Geometry { page_bytes: 4096, spare_bytes: 128, pages_per_block: 8, blocks: 40, units: 1 };

/// How it is used.
pub(crate) const CONFIG: Config =
    Config { logical_pages: 64, checkpoint_every: 0, level_spread: 0, capacitor: false, idle_blocks: 2 };

/// A flash page: its bytes and its out-of-band bytes.
type Page = (Vec<u8>, Vec<u8>);

/// The device.
pub(crate) struct Memory {
    g: Geometry,
    blocks: Vec<Vec<Page>>,
    bad: BTreeSet<u32>,
    /// Programs of these pages fail.
    pub(crate) failing_pages: BTreeSet<u32>,
    /// Erases of these blocks fail.
    pub(crate) failing_erases: BTreeSet<u32>,
    pub(crate) programs: u32,
    pub(crate) erases: u32,
    pub(crate) reads: u32,
    /// Programs and erases that are left before power is lost.
    pub(crate) power: Option<u32>,
    pub(crate) retained: Vec<u8>,
}

impl Memory {
    pub(crate) fn new(g: Geometry) -> Memory {
        Memory {
            g,
            blocks: vec![Vec::new(); g.blocks as usize],
            bad: BTreeSet::new(),
            failing_pages: BTreeSet::new(),
            failing_erases: BTreeSet::new(),
            programs: 0,
            erases: 0,
            reads: 0,
            power: None,
            retained: Vec::new(),
        }
    }

    /// The bytes of a page change without a program.
    pub(crate) fn damage(&mut self, page: u32) {
        let (block, at) = (self.g.block_of(page), page % self.g.pages_per_block);
        self.blocks[block as usize][at as usize].0[0] ^= 1;
    }

    fn page(&self, page: u32) -> Result<&Page, NandError> {
        if self.bad.contains(&self.g.block_of(page)) {
            return Err(NandError::Illegal("bad block", page));
        }
        let of = &self.blocks[self.g.block_of(page) as usize];
        of.get((page % self.g.pages_per_block) as usize).ok_or(NandError::Illegal("unwritten page", page))
    }

    fn use_power(&mut self) -> Result<(), NandError> {
        match &mut self.power {
            Some(0) => Err(NandError::PowerLost),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Nand for Memory {
    fn geometry(&self) -> Geometry {
        self.g
    }
    fn program(&mut self, page: u32, data: &[u8], spare: &[u8]) -> Result<(), NandError> {
        self.use_power()?;
        let block = self.g.block_of(page);
        let of = &mut self.blocks[block as usize];
        if self.bad.contains(&block) || of.len() as u32 != page % self.g.pages_per_block {
            return Err(NandError::Illegal("wrong order", page));
        }
        self.programs += 1;
        if self.failing_pages.remove(&page) {
            return Err(NandError::Failed(block));
        }
        of.push((data.to_vec(), spare.to_vec()));
        Ok(())
    }
    fn read(&mut self, page: u32, data: &mut [u8], spare: &mut [u8]) -> Result<(), NandError> {
        self.reads += 1;
        let (bytes, oob) = self.page(page)?;
        data.copy_from_slice(&bytes[..data.len()]);
        spare.copy_from_slice(oob);
        Ok(())
    }
    fn read_spare(&mut self, page: u32, spare: &mut [u8]) -> Result<(), NandError> {
        spare.copy_from_slice(&self.page(page)?.1);
        Ok(())
    }
    fn erase(&mut self, block: u32) -> Result<(), NandError> {
        self.use_power()?;
        if self.bad.contains(&block) {
            return Err(NandError::Illegal("bad block", block));
        }
        if self.failing_erases.contains(&block) {
            return Err(NandError::Failed(block));
        }
        self.erases += 1;
        self.blocks[block as usize].clear();
        Ok(())
    }
    fn is_blank(&mut self, page: u32) -> Result<bool, NandError> {
        Ok(self.blocks[self.g.block_of(page) as usize].len() as u32 <= page % self.g.pages_per_block)
    }
    fn is_bad(&self, block: u32) -> bool {
        self.bad.contains(&block)
    }
    fn mark_bad(&mut self, block: u32) {
        self.bad.insert(block);
    }
    fn retain(&mut self, image: &[u8]) {
        self.retained = image.to_vec();
    }
}

/// A policy that compresses nothing.
pub(crate) fn plain_policy() -> Box<dyn Policy> {
    Box::new(Uncompressed)
}

/// A codec that keeps of a page the bytes before its zeros.
pub(crate) struct Trailing;

impl Trailing {
    fn size(page: &[u8]) -> usize {
        page.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1)
    }
}

impl Codec for Trailing {
    const CONTENT: bool = true;
    fn predict(&mut self, _lpn: u32, page: &[u8]) -> u8 {
        (Trailing::size(page) * usize::from(WHOLE) / PAGE) as u8
    }
    fn compress(&mut self, _lpn: u32, page: &[u8], out: &mut [u8]) -> Option<usize> {
        let size = Trailing::size(page);
        out[..size].copy_from_slice(&page[..size]);
        (size < PAGE).then_some(size)
    }
    fn expand(&mut self, packed: &[u8], out: &mut [u8]) -> Result<(), CodecFailed> {
        out.fill(0);
        out.get_mut(..packed.len()).ok_or(CodecFailed)?.copy_from_slice(packed);
        Ok(())
    }
}

/// A page whose first bytes are this one, and zeros behind.
pub(crate) fn page(byte: u8, bytes: usize) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    page[..bytes].fill(byte);
    page
}
