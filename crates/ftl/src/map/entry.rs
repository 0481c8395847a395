//! An entry of the mapping: where a logical page is (zFTL's page, index and flag), and what collecting it will take.
//!
//! In 64 bits, from the lowest: flash page 32, index in the page 8, bytes 13, ratio 8, across 1, compressed
//! 1, mapped 1.

use crate::{PAGE, WHOLE};

/// Where a logical page is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Entry {
    /// Flash page that holds it, or its beginning.
    pub(crate) page: u32,
    /// Which of the page's records.
    pub(crate) index: u8,
    /// Bytes it takes there: 1 to 4096.
    pub(crate) size: u16,
    /// Predicted ratio in units of 1 / [`WHOLE`]; of compressed pages the one they had.
    pub(crate) ratio: u8,
    /// It ends in the next flash page.
    pub(crate) across: bool,
    /// It is compressed.
    pub(crate) compressed: bool,
}

const MAPPED: u64 = 1 << 63;
const COMPRESSED: u64 = 1 << 62;
const ACROSS: u64 = 1 << 61;

impl Entry {
    /// The entry in 64 bits; never 0, which is a page that is nowhere.
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        let flags =
            MAPPED | if self.compressed { COMPRESSED } else { 0 } | if self.across { ACROSS } else { 0 };
        flags
            | u64::from(self.page)
            | u64::from(self.index) << 32
            | u64::from(self.size & 0x1fff) << 40
            | u64::from(self.ratio) << 53
    }

    /// The entry of 64 bits; `None` where the page is nowhere.
    #[inline]
    pub(crate) fn unpack(bits: u64) -> Option<Entry> {
        (bits & MAPPED != 0).then_some(Entry {
            page: bits as u32,
            index: (bits >> 32) as u8,
            size: (bits >> 40) as u16 & 0x1fff,
            ratio: (bits >> 53) as u8,
            across: bits & ACROSS != 0,
            compressed: bits & COMPRESSED != 0,
        })
    }

    /// Whether it can be one of a medium with that many flash pages.
    #[inline]
    pub(crate) fn is_sound(&self, pages: u64) -> bool {
        u64::from(self.page) < pages
            && (1..=PAGE as u16).contains(&self.size)
            && self.ratio <= WHOLE
            && (self.compressed || self.size == PAGE as u16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back() {
        for bits in 0..32u32 {
            let entry = Entry {
                page: if bits & 1 == 0 { 7 } else { u32::MAX },
                index: if bits & 2 == 0 { 0 } else { 255 },
                size: if bits & 4 == 0 { 1 } else { 4096 },
                ratio: if bits & 8 == 0 { 0 } else { WHOLE },
                across: bits & 16 == 0,
                compressed: bits & 8 == 0,
            };
            assert_eq!(Entry::unpack(entry.pack()), Some(entry));
        }
        assert_eq!(Entry::unpack(0), None);
    }
}
