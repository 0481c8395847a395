//! How blocks look that were written as a whole, for [`super::likeness`] to find those that look like a page.
//!
//! Invariant: the table has one size for the volume; what is new takes the place of what is old. It is a hint, from
//! which nothing is taken out when a block goes. Locks: none.

use medfs_codec::Sketch;
use medfs_codec::sketch::FEATURES;
use medfs_format::Ino;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Features that are remembered: those of some 18,000 blocks.
const TABLE: usize = 1 << 17;
/// Features that a block must have in common with a page to be found.
const LEAST_COMMON: u32 = 2;

/// How blocks look that were written as a whole: for each feature the file and page that had it last. An entry
/// has the feature with the file in its upper half, the page in the lower one.
#[derive(Default)]
pub(crate) struct LikenessIndex(OnceLock<Box<[AtomicU64]>>);

impl LikenessIndex {
    /// Where in the table a feature of a file's block is, and what an entry of it has in its upper half.
    fn place(ino: Ino, feature: u32) -> (usize, u32) {
        let tag = feature ^ ino.wrapping_mul(0x85EB_CA6B);
        // The smallest hashes are kept, so their upper bits are alike.
        let mixed = tag.wrapping_mul(0x9E37_79B1);
        ((mixed >> (u32::BITS - TABLE.trailing_zeros())) as usize, tag)
    }

    /// Remembers how a page looks that a file has a block of.
    pub(super) fn note(&self, ino: Ino, page: u32, sketch: &Sketch) {
        let table = self.0.get_or_init(|| (0..TABLE).map(|_| AtomicU64::new(0)).collect());
        for &feature in sketch.features() {
            let (at, tag) = LikenessIndex::place(ino, feature);
            table[at].store(u64::from(tag) << 32 | u64::from(page), Ordering::Relaxed);
        }
    }

    /// The pages of a file whose blocks have most in common with a page, the likeliest first.
    pub(super) fn find(&self, ino: Ino, sketch: &Sketch) -> impl Iterator<Item = u32> {
        let mut votes: [(u32, u32); FEATURES] = [(0, 0); FEATURES];
        if let Some(table) = self.0.get() {
            for &feature in sketch.features() {
                let (at, tag) = LikenessIndex::place(ino, feature);
                let entry = table[at].load(Ordering::Relaxed);
                if (entry >> 32) as u32 != tag {
                    continue;
                }
                let page = entry as u32;
                let known = votes.iter().position(|&(votes, of)| votes == 0 || of == page);
                if let Some(known) = known {
                    votes[known] = (votes[known].0 + 1, page);
                }
            }
        }
        votes.sort_by_key(|&(votes, _)| std::cmp::Reverse(votes));
        votes.into_iter().filter(|&(votes, _)| votes >= LEAST_COMMON).map(|(_, page)| page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_format::Block;

    fn page(seed: u8) -> Block {
        let mut block = Block::ZERO;
        let mut x = u32::from(seed) + 1;
        block.0.iter_mut().for_each(|byte| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = (x >> 24) as u8;
        });
        block
    }

    #[test]
    fn the_latest_block_that_is_like_a_page_is_found_in_its_file_alone() {
        let index = LikenessIndex::default();
        let sketch = |seed| Sketch::of(&page(seed).0);
        assert_eq!(index.find(7, &sketch(1)).count(), 0, "there is no table yet");
        index.note(7, 3, &sketch(1));
        index.note(7, 4, &sketch(2));
        assert_eq!(index.find(7, &sketch(1)).collect::<Vec<_>>(), [3]);
        assert_eq!(index.find(8, &sketch(1)).count(), 0);
        let mut changed = page(1);
        changed.0[100..300].fill(0);
        assert_eq!(index.find(7, &Sketch::of(&changed.0)).collect::<Vec<_>>(), [3]);
        index.note(7, 9, &sketch(1));
        assert_eq!(index.find(7, &sketch(1)).collect::<Vec<_>>(), [9], "it is the latest");
    }
}
