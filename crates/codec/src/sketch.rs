//! How a page looks, in a few numbers: pages that have much in common have most of them in common.
//!
//! Of the hashes of all windows of 32 bytes the smallest are kept (a bottom-k sketch). A window has the same hash
//! wherever it lies in a page, so content that was shifted is recognised too. Two pages of which a share *s* of the
//! windows is common have about a share *s* of their features in common.

use crate::Page;

/// Features of a page.
pub const FEATURES: usize = 7;

/// Bytes of a window: as many as a hash of 32 bits remembers that each byte shifts by one bit.
const WINDOW: usize = 32;

/// Spreads the hash of a window, whose lowest bits depend on its last bytes alone.
const SPREAD: u32 = 0x9E37_79B1;

/// A random number for each byte (a "gear" hash).
const GEAR: [u32; 256] = {
    let mut gear = [0; 256];
    let mut x = 0x6d65_6466_7321_u64;
    let mut i = 0;
    while i < gear.len() {
        // SplitMix64.
        x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = x;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        gear[i] = (z >> 32) as u32;
        i += 1;
    }
    gear
};

/// The smallest hashes of a page's windows, each once, in ascending order. A page of few different windows has fewer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sketch {
    features: [u32; FEATURES],
    len: usize,
}

impl Sketch {
    /// Looks at a page. Windows of one repeated byte do not count: nearly every page has some.
    pub fn of(page: &Page) -> Sketch {
        let mut sketch = Sketch { features: [u32::MAX; FEATURES], len: 0 };
        let mut largest = u32::MAX;
        let mut hash = 0u32;
        for (at, &byte) in page.iter().enumerate() {
            hash = (hash << 1).wrapping_add(GEAR[byte as usize]);
            let spread = hash.wrapping_mul(SPREAD);
            if spread < largest && at + 1 >= WINDOW && hash != GEAR[byte as usize].wrapping_neg() {
                largest = sketch.insert(spread);
            }
        }
        sketch
    }

    /// The features, in ascending order.
    pub fn features(&self) -> &[u32] {
        &self.features[..self.len]
    }

    /// Takes in a feature below the largest one that is kept; returns what the next one has to be below.
    #[cold]
    fn insert(&mut self, feature: u32) -> u32 {
        if let Err(at) = self.features[..self.len].binary_search(&feature) {
            self.len = (self.len + 1).min(FEATURES);
            self.features[at..self.len].rotate_right(1);
            self.features[at] = feature;
        }
        if self.len == FEATURES { self.features[FEATURES - 1] } else { u32::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PAGE_SIZE;
    use std::collections::BTreeSet;

    /// Lines as a log or a table has them.
    fn page(seed: u64) -> Page {
        let mut text = Vec::new();
        let mut x = seed;
        while text.len() < PAGE_SIZE {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.extend(format!("{:016x} level={} name={}\n", x, x >> 60, x >> 40).bytes());
        }
        text[..PAGE_SIZE].try_into().unwrap()
    }

    fn common(a: &Page, b: &Page) -> usize {
        let b = Sketch::of(b);
        Sketch::of(a).features().iter().filter(|f| b.features().contains(f)).count()
    }

    #[test]
    fn features_are_the_smallest_hashes_of_all_windows_each_once() {
        let page = page(1);
        let mut all = BTreeSet::new();
        for window in page.windows(WINDOW) {
            let hash = window.iter().fold(0u32, |h, &b| (h << 1).wrapping_add(GEAR[b as usize]));
            all.insert(hash.wrapping_mul(SPREAD));
        }
        let expected: Vec<u32> = all.into_iter().take(FEATURES).collect();
        assert_eq!(Sketch::of(&page).features(), expected);
    }

    #[test]
    fn pages_with_much_in_common_have_most_features_in_common() {
        for seed in 0..50 {
            let old = page(seed);
            let mut new = old;
            new[1000..1040].fill(b'x');
            assert!(common(&old, &new) >= 5, "{seed}: a change in one place");
            let mut moved = old.to_vec();
            moved.splice(500..500, [7; 20]);
            let moved: Page = moved[..PAGE_SIZE].try_into().unwrap();
            assert!(common(&old, &moved) >= 5, "{seed}: what follows lies elsewhere");
            assert!(common(&old, &page(seed + 1000)) <= 2, "{seed}: another page");
        }
    }

    #[test]
    fn a_page_of_one_byte_has_no_features() {
        assert_eq!(Sketch::of(&[0; PAGE_SIZE]).features(), []);
        assert_eq!(Sketch::of(&[b' '; PAGE_SIZE]).features(), []);
        let mut one = [0; PAGE_SIZE];
        one[2000] = 1;
        assert!((1..=FEATURES).contains(&Sketch::of(&one).features().len()));
    }
}
