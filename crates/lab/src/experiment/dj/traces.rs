//! Updates of blocks, by how much of them changes (section IV.B): which block, and which of its bits.

use crate::random::Random;
use medfs_codec::{CodecTag, Codecs, PAGE_SIZE, Page};

/// Part of a page up to which a delta is admitted, in bytes (section III.C).
const MOST: usize = PAGE_SIZE / 4;

/// How the differences of updates are distributed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Differences {
    /// W1: most updates are very small.
    Zipf,
    /// W2: most are very small or very large; `middle` of them are neither.
    Bathtub {
        /// The part that lies between a quarter and three.
        middle: f64,
    },
    /// W3: all sizes are alike.
    Uniform,
    /// All have this part.
    Same(f64),
}

/// Which bytes of a page change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bytes {
    /// So many runs of neighbours, all inverted: the difference compresses to some bytes for each.
    Inverted {
        /// Runs.
        runs: usize,
    },
    /// Neighbours that become any others: the difference takes as much as they do.
    Random,
}

impl Differences {
    /// The part of a page's bits that an update changes.
    pub(super) fn draw(self, random: &mut Random) -> f64 {
        match self {
            Differences::Zipf => 0.24 * (random.zipf(1000) + 1) as f64 / 1001.0,
            Differences::Bathtub { middle } if random.happens(middle) => 0.25 + random.unit() / 2.0,
            Differences::Bathtub { .. } => {
                let edge = 0.25 * random.unit().powi(3);
                if random.happens(0.5) { edge } else { 1.0 - edge }
            }
            Differences::Uniform => random.unit(),
            Differences::Same(part) => part,
        }
    }
}

/// What is added, bit by bit, to a page of which this part is to change.
pub(super) fn difference(part: f64, bytes: Bytes, random: &mut Random) -> Page {
    let mut page = [0; PAGE_SIZE];
    let len = ((part * PAGE_SIZE as f64).round() as usize).clamp(1, PAGE_SIZE);
    match bytes {
        Bytes::Inverted { runs } => {
            // Each lies in a part of the page of its own.
            let (room, each) = (PAGE_SIZE / runs, len.div_ceil(runs));
            for start in (0..runs.min(len)).map(|run| run * room) {
                let at = start + random.below((room - each.min(room) + 1) as u64) as usize;
                page[at..at + each.min(room)].fill(0xff);
            }
        }
        Bytes::Random => {
            let at = random.below((PAGE_SIZE - len + 1) as u64) as usize;
            random.fill(&mut page[at..at + len]);
        }
    }
    page
}

/// What two pages differ in, bit by bit.
pub(super) fn xor(a: &Page, b: &Page) -> Page {
    std::array::from_fn(|at| a[at] ^ b[at])
}

/// Bytes of a block's delta where Delta Journaling admits it: its bits are dominated by zeros or by ones, and LZO
/// brings them to a quarter of a page.
pub(super) fn delta(codecs: &mut Codecs, difference: &Page) -> Option<u64> {
    let ones: u32 = difference.iter().map(|byte| byte.count_ones()).sum();
    let part = f64::from(ones) / (8 * PAGE_SIZE) as f64;
    if (0.25..=0.75).contains(&part) {
        return None;
    }
    codecs
        .delta_with(CodecTag::XorLzo, &[0; PAGE_SIZE], difference, MOST)
        .map(|delta| delta.bytes.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_updates_between_a_quarter_and_three_are_the_papers() {
        for (shape, least, most) in [
            (Differences::Zipf, 0.0, 0.005),
            (Differences::Bathtub { middle: 0.078 }, 0.07, 0.086),
            (Differences::Uniform, 0.48, 0.52),
        ] {
            let mut random = Random::new(1, "differences");
            let middle = (0..20_000).filter(|_| (0.25..=0.75).contains(&shape.draw(&mut random))).count();
            let part = middle as f64 / 20_000.0;
            assert!((least..=most).contains(&part), "{shape:?}: {part}");
        }
    }

    #[test]
    fn what_is_mostly_as_it_was_or_mostly_inverted_is_admitted() {
        let (mut codecs, mut random) = (Codecs::default(), Random::new(2, "admitted"));
        for (part, bytes, admitted) in [
            (0.1, Bytes::Inverted { runs: 8 }, true),
            (0.9, Bytes::Inverted { runs: 8 }, true),
            (0.5, Bytes::Inverted { runs: 8 }, false),
            (0.1, Bytes::Random, true),
            // Half of the bits of random bytes change.
            (0.9, Bytes::Random, false),
        ] {
            let difference = difference(part, bytes, &mut random);
            assert_eq!(delta(&mut codecs, &difference).is_some(), admitted, "{part} {bytes:?}");
        }
    }
}
