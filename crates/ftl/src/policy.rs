//! What is compressed, when, and which block is collected next: the methods of the paper, each a type.

use crate::nand::Geometry;
use crate::{PAGE, WHOLE};

/// Ratio above which nothing is compressed: 0.95, *minimal* compressibility (LDC, section 4).
const MINIMAL: u8 = 190;
/// Ratio above which data is of *low* compressibility: 0.65.
const LOW: u8 = 130;
/// Ratios that end the groups of uncompressed pages: 0.65, 0.75, 0.85, 0.95; what is above is the last group.
const GROUPS: [u8; 4] = [LOW, 150, 170, MINIMAL];

/// The time after which the host expects a page to be overwritten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hint {
    /// Soon.
    Hot,
    /// Nothing special.
    #[default]
    Warm,
    /// Late, or never.
    Cold,
}

/// Times that the threshold of Eq. 2 is made of, in any one unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Writing a flash page, transfer included (the paper's t_w).
    pub write: u64,
    /// Compressing a page (t_c).
    pub compress: u64,
}

impl Costs {
    /// The largest predicted ratio at which compressing a request of so many pages does not make it slower
    /// (Eq. 2): for one page `(tw - tc) / tw`, for n `(tw - tc) / (tw - tc + tc / n)`, as Eq. 1 yields.
    /// `None` where no ratio is small enough.
    pub fn threshold(&self, pages: u32) -> Option<u8> {
        let spared = self.write.checked_sub(self.compress)? * u64::from(pages.max(1));
        let ratio = spared * u64::from(WHOLE) / (spared + self.compress).max(1);
        (ratio > 0).then_some(ratio.min(u64::from(WHOLE)) as u8)
    }
}

/// The treatment of an uncompressed page that collection moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Collect {
    /// It stays as it is.
    Keep,
    /// It is compressed and packed within a flash page.
    Pack,
    /// It is compressed and packed without a gap, across flash pages where it comes so.
    PackAcross,
}

/// A method: the decisions of the layer.
pub trait Policy: Send {
    /// Its name.
    fn name(&self) -> &'static str;
    /// The largest predicted ratio at which the pages of a request of so many pages are compressed; `None`: never.
    fn threshold(&self, pages: u32) -> Option<u8>;
    /// Whether it needs to know the ratio of pages at all.
    fn predicts(&self) -> bool {
        true
    }
    /// Whether compression takes no time: the bound.
    fn is_free(&self) -> bool {
        false
    }
    /// How many logs uncompressed pages go to.
    fn groups(&self) -> u8 {
        1
    }
    /// The log for an uncompressed page of this ratio, hint, and whether collection moves it.
    fn group(&self, _ratio: u8, _hint: Hint, _collected: bool) -> u8 {
        0
    }
    /// What becomes of a page of this ratio that collection moves. For a compressed one: how it is packed again.
    fn collect(&self, _ratio: u8, compressed: bool) -> Collect {
        if compressed { Collect::Pack } else { Collect::Keep }
    }
    /// Bytes of a flash page that moving this page takes (S of Eq. 4). Of pages that are packed within flash
    /// pages the share of a page that they fill: of two thirds of a page only one fits, so moving it frees
    /// nothing.
    fn occupies(&self, size: u16, ratio: u8, compressed: bool, geometry: &Geometry) -> u32 {
        if !compressed || self.collect(ratio, true) == Collect::PackAcross {
            return u32::from(size);
        }
        geometry.page_bytes / (geometry.page_bytes / u32::from(size).max(1)).max(1)
    }
    /// How much collecting a block costs, in bytes: the block with the least is next. `occupied` is the sum of
    /// [`Policy::occupies`]; `plain` of its pages are uncompressed, with this sum of predicted ratios.
    fn score(&self, occupied: u32, _plain: u32, _ratios: u32) -> u32 {
        occupied
    }
}

/// `pm`: page mapping without compression.
#[derive(Debug, Clone, Copy)]
pub struct Uncompressed;

impl Policy for Uncompressed {
    fn name(&self) -> &'static str {
        "pm"
    }
    fn threshold(&self, _pages: u32) -> Option<u8> {
        None
    }
    fn predicts(&self) -> bool {
        false
    }
}

/// `zftl`: everything predicted at or below 0.95 is compressed, and, as `opt`, in no time.
#[derive(Debug, Clone, Copy)]
pub struct Unconditional {
    /// Compression takes no time.
    pub free: bool,
}

impl Policy for Unconditional {
    fn name(&self) -> &'static str {
        if self.free { "opt" } else { "zftl" }
    }
    fn threshold(&self, _pages: u32) -> Option<u8> {
        Some(MINIMAL)
    }
    fn is_free(&self) -> bool {
        self.free
    }
}

/// `sc`: compressed where Eq. 2 says that the request does not become slower (LDC, section 5.2).
#[derive(Debug, Clone, Copy)]
pub struct Selective(pub Costs);

impl Policy for Selective {
    fn name(&self) -> &'static str {
        "sc"
    }
    fn threshold(&self, pages: u32) -> Option<u8> {
        self.0.threshold(pages)
    }
}

/// `ldc`: [`Selective`] with the compression-aware garbage collector (LDC, section 5.3): uncompressed pages
/// lie in blocks with others of a similar ratio, Eq. 4 chooses the block, and what is compressible is
/// compressed as it moves.
#[derive(Debug, Clone, Copy)]
pub struct Lightweight(pub Costs);

impl Policy for Lightweight {
    fn name(&self) -> &'static str {
        "ldc"
    }
    fn threshold(&self, pages: u32) -> Option<u8> {
        self.0.threshold(pages)
    }
    fn groups(&self) -> u8 {
        GROUPS.len() as u8 + 1
    }
    fn group(&self, ratio: u8, _hint: Hint, _collected: bool) -> u8 {
        GROUPS.partition_point(|end| *end < ratio) as u8
    }
    fn collect(&self, ratio: u8, compressed: bool) -> Collect {
        match ratio {
            0..=LOW => Collect::Pack,
            131..=MINIMAL => Collect::PackAcross,
            _ if compressed => Collect::PackAcross,
            _ => Collect::Keep,
        }
    }
    fn score(&self, occupied: u32, plain: u32, ratios: u32) -> u32 {
        if plain == 0 {
            return occupied;
        }
        let whole = u64::from(plain) * u64::from(WHOLE);
        (u64::from(occupied) * u64::from(ratios) / whole) as u32
    }
}

/// `ldc-hc`: [`Lightweight`], with uncompressed pages that are minimally compressible apart by how soon they
/// die: what the host calls hot, what it does not, and what survived a collection. Hot and cold separation
/// beside ratio grouping, with two logs more.
#[derive(Debug, Clone, Copy)]
pub struct Separating(pub Lightweight);

impl Policy for Separating {
    fn name(&self) -> &'static str {
        "ldc-hc"
    }
    fn threshold(&self, pages: u32) -> Option<u8> {
        self.0.threshold(pages)
    }
    fn groups(&self) -> u8 {
        self.0.groups() + 2
    }
    fn group(&self, ratio: u8, hint: Hint, collected: bool) -> u8 {
        match (collected || hint == Hint::Cold, hint) {
            (true, _) => self.0.group(ratio, hint, collected),
            (false, Hint::Hot) => self.0.groups(),
            (false, _) => self.0.groups() + 1,
        }
    }
    fn collect(&self, ratio: u8, compressed: bool) -> Collect {
        self.0.collect(ratio, compressed)
    }
    fn score(&self, occupied: u32, plain: u32, ratios: u32) -> u32 {
        self.0.score(occupied, plain, ratios)
    }
}

const _: () = assert!(PAGE == 4096 && WHOLE == 200);

#[cfg(test)]
mod tests {
    use super::*;

    const EMMC: Costs = Costs { write: 300, compress: 136 };

    #[test]
    fn thresholds_of_equation_2() {
        // Section 3.2's example: tc is 60% of tw, one page: 0.40.
        assert_eq!(Costs { write: 100, compress: 60 }.threshold(1), Some(80));
        // 164 / 300; 164 / (164 + 68); 164 / (164 + 17).
        assert_eq!(EMMC.threshold(1), Some(109));
        assert_eq!(EMMC.threshold(2), Some(141));
        assert_eq!(EMMC.threshold(8), Some(181));
        assert_eq!(EMMC.threshold(0), EMMC.threshold(1));
        assert_eq!(Costs { write: 100, compress: 100 }.threshold(9), None);
        assert_eq!(Costs { write: 100, compress: 200 }.threshold(9), None);
    }

    /// Eq. 1: the latency of a request of n pages at a ratio, against writing it as it is.
    #[test]
    fn the_threshold_is_where_equation_1_meets_no_compression() {
        let latency = |n: f64, ratio: f64| {
            let (tw, tc) = (300.0, 136.0);
            tc * n + (tw - tc) * (n - 1.0) * ratio + tw * ratio
        };
        for n in 1..64u32 {
            let at = f64::from(EMMC.threshold(n).unwrap()) / f64::from(WHOLE);
            let n = f64::from(n);
            assert!(latency(n, at) <= 300.0 * n + 1e-9);
            assert!(latency(n, at + 0.006) > 300.0 * n);
        }
    }

    #[test]
    fn scores_of_figure_7() {
        let ldc = Lightweight(EMMC);
        // Eight valid pages of ratio 0.7: 5.6 pages.
        assert_eq!(ldc.score(8 * 4096, 8, 8 * 140), 8 * 4096 * 7 / 10);
        assert_eq!(ldc.score(6 * 4096, 0, 0), 6 * 4096);
        assert_eq!(Uncompressed.score(8 * 4096, 8, 8 * 140), 8 * 4096);
    }

    #[test]
    fn groups_and_collection_by_ratio() {
        let ldc = Lightweight(EMMC);
        assert_eq!(
            [0, 130, 131, 150, 190, 191, 200].map(|r| ldc.group(r, Hint::Warm, false)),
            [0, 0, 1, 1, 3, 4, 4]
        );
        assert_eq!(
            [100, 160, 195].map(|r| ldc.collect(r, false)),
            [Collect::Pack, Collect::PackAcross, Collect::Keep]
        );
        let g = Geometry { page_bytes: 4096, spare_bytes: 128, pages_per_block: 64, blocks: 9, units: 1 };
        let zftl = Unconditional { free: false };
        assert_eq!([3000, 2048, 1000].map(|s| zftl.occupies(s, 90, true, &g)), [4096, 2048, 1024]);
        assert_eq!(ldc.occupies(3000, 150, true, &g), 3000);
    }
}
