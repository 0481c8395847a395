//! Which changed pages a record holds, as deltas (Delta Journaling, section III.C). The others get blocks, as the
//! log gives them, before the record is made; it holds the nodes that name those.

use crate::options::{MountOptions, NvramAdmit, NvramMode};
use medfs_codec::{CodecTag, Codecs};
use medfs_format::{BLOCK_SIZE, Block};

/// What a delta may take of a page.
const PART_OF_A_PAGE: usize = 4;
/// What it may take of the ring, where that is more.
const PART_OF_THE_RING: usize = 256;
const BITS: u32 = 8 * BLOCK_SIZE as u32;

/// See the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// No page: ordered mode.
    Nodes,
    /// A page that a codec brings to a quarter, or to a small part of the ring.
    Size,
    /// One of whose bits less than a quarter, or more than three, differ from those of its base, where LZO brings the
    /// difference to a quarter of a page: the paper's.
    Population,
}

/// A delta as a codec made it.
pub(super) struct Encoded {
    pub(super) codec: CodecTag,
    pub(super) bytes: Vec<u8>,
}

impl Admission {
    pub(super) fn of(opts: &MountOptions) -> Admission {
        match (opts.nvram_mode, opts.nvram_admit) {
            (NvramMode::Ordered, _) => Admission::Nodes,
            (NvramMode::Journal, NvramAdmit::Size) => Admission::Size,
            (NvramMode::Journal, NvramAdmit::Population) => Admission::Population,
        }
    }

    /// Most bytes of a page's delta, with a ring of so many.
    pub(super) fn most(self, ring: u64) -> usize {
        let quarter = BLOCK_SIZE / PART_OF_A_PAGE;
        match self {
            Admission::Nodes => 0,
            Admission::Size => quarter.max(ring as usize / PART_OF_THE_RING).min(BLOCK_SIZE),
            Admission::Population => quarter,
        }
    }

    /// The delta of a page from a base, in at most so many bytes; `None` where it is not admitted.
    pub(super) fn encode(
        self,
        codecs: &mut Codecs,
        base: &Block,
        page: &Block,
        most: usize,
    ) -> Option<Encoded> {
        let delta = match self {
            Admission::Nodes => None,
            Admission::Size => codecs.delta(&base.0, &page.0, most),
            Admission::Population if !is_dominated(base, page) => None,
            Admission::Population => codecs.delta_with(CodecTag::XorLzo, &base.0, &page.0, most),
        }?;
        Some(Encoded { codec: delta.tag, bytes: delta.bytes.to_vec() })
    }
}

/// Whether the XOR of two pages is dominated by zeros or by ones.
fn is_dominated(base: &Block, page: &Block) -> bool {
    let ones: u32 = base.0.iter().zip(&page.0).map(|(a, b)| (a ^ b).count_ones()).sum();
    !(BITS / 4..=BITS / 4 * 3).contains(&ones)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(byte: impl Fn(usize) -> u8) -> Block {
        let mut page = Block::ZERO;
        page.0.iter_mut().enumerate().for_each(|(n, b)| *b = byte(n));
        page
    }

    fn size(admission: Admission, page: &Block) -> Option<usize> {
        let mut codecs = Codecs::default();
        admission
            .encode(&mut codecs, &Block::ZERO, page, admission.most(16 << 20))
            .map(|delta| delta.bytes.len())
    }

    #[test]
    fn population_counts_bits_and_size_counts_bytes() {
        let noise = |n: usize| {
            let x = (n as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            ((x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) as u8
        };
        let few = page(|n| if n < 100 { noise(n) } else { 0 });
        let inverted = page(|n| if n < 100 { noise(n) } else { 0xff });
        // Half of all bits, in a pattern that any codec makes small.
        let half = page(|n| if n % 2 == 0 { 0xff } else { 0 });
        // Fewer than a quarter of all bits, in each byte.
        let scattered = page(|n| 1 << (noise(n) % 8));
        for (what, page, of_size, of_population) in [
            ("few bytes", &few, true, true),
            ("all but a few inverted", &inverted, true, true),
            ("half of the bits, alike", &half, true, false),
            ("a bit of each byte", &scattered, true, false),
        ] {
            assert_eq!(size(Admission::Size, page).is_some(), of_size, "{what}");
            assert_eq!(size(Admission::Population, page).is_some(), of_population, "{what}");
            assert_eq!(size(Admission::Nodes, page), None, "{what}");
        }
    }

    #[test]
    fn a_large_ring_admits_what_takes_more_than_a_quarter_of_a_page() {
        let most = [64 << 10, 256 << 10, 512 << 10, 1 << 20, 64 << 20].map(|ring| Admission::Size.most(ring));
        assert_eq!(most, [1024, 1024, 2048, 4096, 4096]);
        assert_eq!(Admission::Population.most(64 << 20), 1024);
    }
}
