//! Parts: of what a delta starts from that starts from no block as a whole.

use crate::{BLOCK_SIZE, BlockAddr};
use std::ops::Range;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A part of what a delta starts from (10 bytes): bytes of a block, or of a page of the same file as older
/// records have it. What no part covers is zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawPart {
    /// The block, or the page's index.
    pub at: U32,
    /// First byte in the source; with [`PART_OF_PAGE`] that is a page.
    pub from: U16,
    /// First byte in what the parts make.
    pub to: U16,
    /// Number of bytes.
    pub len: U16,
}

/// In `from` of a part: it is one of a page.
pub const PART_OF_PAGE: u16 = 0x8000;

/// The source of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PartOf {
    /// A block.
    Block(BlockAddr),
    /// A page of the same file as older records have it.
    Page(u32),
}

impl RawPart {
    /// The part of `of` that a slice is.
    pub fn new(of: PartOf, from: u16, to: u16, len: u16) -> RawPart {
        let (at, from) = match of {
            PartOf::Block(addr) => (addr, from),
            PartOf::Page(index) => (index, from | PART_OF_PAGE),
        };
        RawPart { at: at.into(), from: from.into(), to: to.into(), len: len.into() }
    }

    /// Its source.
    pub fn of(&self) -> PartOf {
        let at = self.at.get();
        if self.from.get() & PART_OF_PAGE == 0 { PartOf::Block(at) } else { PartOf::Page(at) }
    }

    /// Bytes of the block or page, and of what the delta starts from; `None` where they do not fit a block.
    pub fn ranges(&self) -> Option<(Range<usize>, Range<usize>)> {
        let from = self.from.get() & !PART_OF_PAGE;
        let [from, to, len] = [from, self.to.get(), self.len.get()].map(usize::from);
        let fits = len > 0 && from + len <= BLOCK_SIZE && to + len <= BLOCK_SIZE;
        fits.then_some((from..from + len, to..to + len))
    }

    /// Which parts make this part of a page that `parts` make: what it is, as parts of their sources.
    pub fn clipped(&self, parts: &[RawPart]) -> Vec<RawPart> {
        let Some((wanted, target)) = self.ranges() else { return Vec::new() };
        let within = |below: &RawPart| {
            let (source, there) = below.ranges()?;
            let (start, end) = (wanted.start.max(there.start), wanted.end.min(there.end));
            let from = source.start + start.checked_sub(there.start)?;
            let to = target.start + start.checked_sub(wanted.start)?;
            let len = end.checked_sub(start).filter(|&len| len > 0)?;
            Some(RawPart::new(below.of(), from as u16, to as u16, len as u16))
        };
        parts.iter().filter_map(within).collect()
    }

    /// A block as a whole.
    pub fn whole(addr: BlockAddr) -> RawPart {
        RawPart::new(PartOf::Block(addr), 0, 0, BLOCK_SIZE as u16)
    }
}
