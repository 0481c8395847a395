//! Selective packing: which pages are compressed, for the host and in collection, and the log that each goes
//! to (LDC, sections 5.2 and 5.3).

use crate::error::{FtlError, Result};
use crate::map::Entry;
use crate::medium::Medium;
use crate::nand::{Codec, Nand, Work};
use crate::policy::{Collect, Hint};
use crate::streams::{PACKED, PACKED_MOVED, PLAIN, Packing, Pending};
use crate::{PAGE, WHOLE};
use alloc::vec::Vec;

/// The compressor, with the memory for a page that is compressed.
///
/// 1. What it packs takes 1 to 4095 bytes; a page that does not become smaller stays as it is, with the ratio
///    of such a page.
/// 2. Each prediction, compression and expansion takes the controller's time, but those of a policy that is free.
pub(crate) struct Packer<C> {
    pub(crate) codec: C,
    packed: Vec<u8>,
}

impl<C: Codec> Packer<C> {
    /// `packed`: memory for a logical page, none where pages have no content.
    pub(crate) fn new(codec: C, packed: Vec<u8>) -> Packer<C> {
        Packer { codec, packed }
    }

    /// A page that the host writes: compressed where the ratio that is predicted for it is at most `threshold`.
    pub(crate) fn for_host<'a, N: Nand>(
        &'a mut self,
        medium: &mut Medium<N>,
        (lpn, page): (u32, &'a [u8]),
        threshold: Option<u8>,
        hint: Hint,
    ) -> Packing<'a> {
        let mut ratio = WHOLE;
        if medium.policy.predicts() {
            ratio = self.codec.predict(lpn, page).min(WHOLE);
            spend(medium, Work::Predict);
        }
        if threshold.is_some_and(|most| ratio <= most) {
            medium.counters.compressed_host += 1;
            if let Some(size) = self.compress(medium, lpn, page) {
                medium.counters.compressed_bytes += u64::from(size);
                return self.packing(PACKED, (lpn, size, ratio), false);
            }
            medium.counters.compressed_vain += 1;
            ratio = WHOLE;
        }
        let log = PLAIN + usize::from(medium.policy.group(ratio, hint, false));
        plain(log, lpn, ratio, page)
    }

    /// A page that collection moves, with its bytes as they are stored. `squeeze`: compressed pages are
    /// packed without a gap, whether or not the policy likes it.
    pub(crate) fn for_collection<'a, N: Nand>(
        &'a mut self,
        medium: &mut Medium<N>,
        (lpn, entry): (u32, &Entry),
        stored: &'a [u8],
        squeeze: bool,
    ) -> Packing<'a> {
        let Entry { size, mut ratio, compressed, .. } = *entry;
        let action = medium.policy.collect(ratio, compressed);
        let across = squeeze || action == Collect::PackAcross;
        if compressed {
            let bytes = stored.get(..usize::from(size)).unwrap_or_default();
            let page = Pending { lpn, size, ratio, compressed, damaged: false };
            return Packing { log: PACKED_MOVED, page, bytes, across };
        }
        if action != Collect::Keep {
            medium.counters.compressed_collected += 1;
            if let Some(size) = self.compress(medium, lpn, stored) {
                return self.packing(PACKED_MOVED, (lpn, size, ratio), across);
            }
            // It is not tried again.
            ratio = WHOLE;
        }
        plain(moved_log(medium, ratio, false), lpn, ratio, stored)
    }

    /// Compresses a page, on the controller's time. Returns the size; `None` where it does not become smaller.
    fn compress<N: Nand>(&mut self, medium: &mut Medium<N>, lpn: u32, page: &[u8]) -> Option<u16> {
        spend(medium, Work::Compress);
        let size = self.codec.compress(lpn, page, &mut self.packed)?;
        (1..PAGE).contains(&size).then_some(size as u16)
    }

    fn packing(&self, log: usize, (lpn, size, ratio): (u32, u16, u8), across: bool) -> Packing<'_> {
        let bytes = self.packed.get(..usize::from(size)).unwrap_or_default();
        Packing { log, page: Pending { lpn, size, ratio, compressed: true, damaged: false }, bytes, across }
    }

    /// Memory for the stored bytes of a compressed page, which [`Packer::expand`] reads.
    pub(crate) fn stored(&mut self, entry: &Entry) -> &mut [u8] {
        let size = usize::from(entry.size).min(self.packed.len());
        &mut self.packed[..size]
    }

    /// Expands what is in [`Packer::stored`], on the controller's time.
    pub(crate) fn expand<N: Nand>(
        &mut self,
        medium: &mut Medium<N>,
        entry: &Entry,
        out: &mut [u8],
    ) -> Result<()> {
        spend(medium, Work::Expand);
        let size = usize::from(entry.size).min(self.packed.len());
        if C::CONTENT && self.codec.expand(&self.packed[..size], out).is_err() {
            return Err(FtlError::Corrupt("a compressed page", entry.page));
        }
        Ok(())
    }

    /// Memory in use, in bytes.
    pub(crate) fn ram_bytes(&self) -> usize {
        self.packed.len()
    }
}

/// The log that a page goes to when collection moves it as it is.
pub(crate) fn moved_log<N>(medium: &Medium<N>, ratio: u8, compressed: bool) -> usize {
    if compressed { PACKED_MOVED } else { PLAIN + usize::from(medium.policy.group(ratio, Hint::Warm, true)) }
}

fn plain(log: usize, lpn: u32, ratio: u8, bytes: &[u8]) -> Packing<'_> {
    let page = Pending { lpn, size: PAGE as u16, ratio, compressed: false, damaged: false };
    Packing { log, page, bytes, across: false }
}

fn spend<N: Nand>(medium: &mut Medium<N>, work: Work) {
    if !medium.policy.is_free() {
        medium.nand.spend(work);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{G, Memory, Trailing, page};
    use crate::policy::{Costs, Lightweight};
    use alloc::boxed::Box;
    use alloc::vec;

    fn packer() -> (Medium<Memory>, Packer<Trailing>) {
        let policy = Box::new(Lightweight(Costs { write: 300, compress: 136 }));
        (Medium::new(Memory::new(G), policy, true), Packer::new(Trailing, vec![0; PAGE]))
    }

    #[test]
    fn the_host_s_pages_are_compressed_below_the_threshold() {
        let (mut medium, mut packer) = packer();
        let small = page(1, 1000);
        let packed = packer.for_host(&mut medium, (5, &small), Some(100), Hint::Warm);
        assert_eq!((packed.log, packed.page.size, packed.bytes), (PACKED, 1000, &small[..1000]));
        let packed = packer.for_host(&mut medium, (5, &small), Some(40), Hint::Warm);
        assert!(!packed.page.compressed && packed.bytes == small && packed.log == PLAIN);
        let full = page(1, PAGE);
        let packed = packer.for_host(&mut medium, (5, &full), Some(WHOLE), Hint::Warm);
        assert_eq!((packed.page.ratio, packed.page.compressed), (WHOLE, false), "it did not become smaller");
        assert_eq!((medium.counters.compressed_host, medium.counters.compressed_vain), (2, 1));
    }

    #[test]
    fn collection_packs_what_the_host_did_not() {
        let (mut medium, mut packer) = packer();
        let stored = page(2, 3000);
        let entry =
            Entry { page: 9, index: 0, size: PAGE as u16, ratio: 147, across: false, compressed: false };
        let packed = packer.for_collection(&mut medium, (7, &entry), &stored, false);
        assert_eq!((packed.log, packed.page.size, packed.across), (PACKED_MOVED, 3000, true));
        let dense = Entry { ratio: 195, ..entry };
        let kept = packer.for_collection(&mut medium, (7, &dense), &stored, false);
        assert!(!kept.page.compressed && kept.log == PLAIN + 4);
        let small = Entry { size: 500, ratio: 20, compressed: true, ..entry };
        let moved = packer.for_collection(&mut medium, (7, &small), &stored, false);
        assert_eq!((moved.bytes.len(), moved.across), (500, false));
        assert!(packer.for_collection(&mut medium, (7, &small), &stored, true).across, "squeezed");
        assert_eq!(medium.counters.compressed_collected, 1);
    }
}
