//! How well a page compresses, told from its bytes' entropy before compressing it (LDC, section 4.2).
//!
//! A tenth of the page's bytes is counted; the entropy of what was seen, in integers with a table of logarithms, names
//! the expected compression ratio in a second table. Both are 2162 bytes in all, the paper's size.
//!
//! The sample is words of four bytes in the order of the page, one of each ten: a word is read at once, the
//! page is read as a cache reads ahead, and the four bytes are counted in tables of their own, so that the
//! same byte four times is no chain of additions. Where they are in each ten changes from one to the next, so
//! that records of every size are seen in all their places.
//!
//! A sample of 408 bytes shows less variety than 4096 have: the estimate is corrected by what that is on average
//! (Miller and Madow: the distinct values less one, over twice the sample, in nats).
//!
//! No memory is allocated and nothing of the standard library is needed: a card's firmware can carry it.
#![cfg_attr(not(test), no_std)]

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// A page.
pub type Page = [u8; PAGE_SIZE];

/// Bytes of a word, which are counted each in a table of its own.
const WORD: usize = 4;
/// Words of the page for each one that is sampled.
const EACH: usize = 10;
/// How far the place of a word is from the last one's, among its ten, in 65536ths: the golden section, so
/// that places come evenly and never in the same order again.
const TURN: u16 = 40503;
/// Words that are sampled.
const WORDS: usize = PAGE_SIZE / WORD / EACH;
/// Bytes that are sampled: a tenth of the page.
const SAMPLE: usize = WORDS * WORD;

/// Entries of the table of logarithms: probabilities in thousandths.
pub const LOG_ENTRIES: usize = 1000;
/// Entries of the table of ratios: entropies from 0 to 8 bits in tenths.
pub const RATIO_ENTRIES: usize = 81;
/// What an entry of the table of logarithms and an entropy count: 4096ths of a bit.
pub const BIT: u32 = 4096;
/// What an entry of the table of ratios and a ratio count: thousandths.
pub const WHOLE: u32 = 1000;

/// `LOG[p]`: minus the binary logarithm of `p / 1000`. The first entry is of no probability.
static LOG: [u16; LOG_ENTRIES] = {
    let mut table = [0; LOG_ENTRIES];
    let mut p = 1;
    while p < LOG_ENTRIES {
        table[p] = (log2(LOG_ENTRIES as u64) - log2(p as u64)) as u16;
        p += 1;
    }
    table
};

/// `RATIO[e]`: compressed size by LZO over the page's size, at an entropy of `e / 10` bits. Fitted by
/// `cargo bench -p medfs-codec --bench entropy` to pages of programs, libraries, texts and databases of a
/// Debian system.
static RATIO: [u16; RATIO_ENTRIES] = [
    7, 26, 41, 59, 80, 84, 97, 97, 116, 128, 142, 161, 162, 179, 205, 212, 240, 277, 303, 309, 310, 313, 318,
    324, 327, 332, 340, 341, 342, 351, 369, 392, 412, 421, 423, 425, 427, 430, 434, 437, 440, 444, 449, 455,
    462, 468, 472, 472, 484, 486, 509, 522, 523, 535, 557, 616, 663, 695, 702, 724, 747, 763, 784, 817, 821,
    828, 834, 841, 841, 841, 841, 896, 912, 913, 914, 917, 921, 925, 957, 969, 995,
];

const _: () = assert!(size_of_val(&LOG) + size_of_val(&RATIO) == 2162);

/// The binary logarithm of `x` (not 0) in units of 1 / [`BIT`], rounded down, bit by bit.
const fn log2(x: u64) -> u32 {
    let whole = x.ilog2();
    // The mantissa, from 1 to 2, in units of 2^-31; squaring it doubles its logarithm.
    let mut mantissa = (x << 31) >> whole;
    let (mut log, mut bit) = (whole * BIT, BIT / 2);
    while bit > 0 {
        mantissa = (mantissa * mantissa) >> 31;
        if mantissa >= 1 << 32 {
            mantissa >>= 1;
            log += bit;
        }
        bit /= 2;
    }
    log
}

/// The number of a sampled word in the page, by its turn: the golden section's part of ten is a product's upper half.
#[inline]
fn place(word: usize) -> usize {
    let turn = (word as u32).wrapping_mul(u32::from(TURN) << 16);
    word * EACH + ((u64::from(turn) * EACH as u64) >> 32) as usize
}

/// The entropy of a page's bytes, from 0 to 8 bits in units of 1 / [`BIT`], estimated from a tenth of them.
pub fn entropy(page: &Page) -> u32 {
    of_tables(&sample(page))
}

/// How often each byte is in the sample, counted in [`WORD`] tables by its place in its word.
#[inline]
fn sample(page: &Page) -> [[u8; 256]; WORD] {
    const { assert!(WORDS.is_multiple_of(2) && WORDS < 256) };
    let words = page.as_chunks::<WORD>().0;
    // No place is beyond the page, which is not seen from here.
    let word = |at: usize| u64::from(u32::from_le_bytes(words[place(at) % (PAGE_SIZE / WORD)]));
    let mut tables = [[0u8; 256]; WORD];
    for pair in 0..WORDS / 2 {
        let mut two = word(2 * pair) | (word(2 * pair + 1) << 32);
        for byte in 0..2 * WORD {
            tables[byte % WORD][(two & 0xff) as usize] += 1;
            two >>= 8;
        }
    }
    tables
}

/// Counts that are looked at together.
const LANES: usize = 16;
/// Counts up to this one are counted themselves, for many bytes at once: most bytes of a various page occur
/// that often at most. One less than a power of two.
const FEW: u8 = 7;

/// [`of_counts`] of a sample whose bytes are counted in four tables.
fn of_tables(tables: &[[u8; 256]; WORD]) -> u32 {
    let [a, b, c, d] = tables.each_ref().map(|table| table.as_chunks::<LANES>().0);
    let mut counts = [[0u8; LANES]; 256 / LANES];
    let mut few = [[0u8; LANES]; FEW as usize];
    for ((((sums, a), b), c), d) in counts.iter_mut().zip(a).zip(b).zip(c).zip(d) {
        for lane in 0..LANES {
            // More than eight bits count becomes the most they do.
            let sum = a[lane].saturating_add(b[lane]).saturating_add(c[lane].saturating_add(d[lane]));
            sums[lane] = sum;
            for (often, few) in (1..).zip(&mut few) {
                few[lane] += u8::from(sum == often);
            }
        }
    }
    let (mut sum, mut distinct) = (0, 0);
    for (often, lanes) in (1..).zip(few) {
        let bytes: u32 = lanes.iter().map(|lane| u32::from(*lane)).sum();
        distinct += bytes;
        sum += bytes * part_of(often, SAMPLE as u32);
    }
    for (group, eight) in counts.as_flattened().as_chunks::<8>().0.iter().enumerate() {
        let mut left = often(*eight);
        while left != 0 {
            let byte = group * 8 + (left.trailing_zeros() / 8) as usize;
            left &= left - 1;
            let count = tables.iter().map(|table| u32::from(table[byte])).sum();
            distinct += 1;
            sum += part_of(count, SAMPLE as u32);
        }
    }
    finished(sum, distinct, SAMPLE as u32)
}

/// Which of eight counts are more than [`FEW`]: the highest bits of their bytes.
#[inline]
fn often(counts: [u8; 8]) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let many = u64::from_le_bytes(counts) & u64::from_le_bytes([!FEW; 8]);
    (((many & LOW) + LOW) | many) & !LOW
}

/// The entropy of all bytes of a page, likewise: what [`entropy`] estimates.
pub fn whole_entropy(page: &Page) -> u32 {
    of_counts(&counts(page.iter().copied()), PAGE_SIZE as u32)
}

/// Bytes of a glance of [`looks_random`], which takes one or two. Of so many random bytes 30 are different on
/// average, of twice as many 57, and fewer than 49 in one case of a thousand; of text 16 and 22.
const GLANCE: usize = 32;
/// Different bytes in one glance below which no second one is needed.
const PLAIN: u32 = 24;
/// Different bytes in two glances that are as many as random ones have.
const VARIOUS: u32 = 49;

/// Whether bytes are too various for an entropy coder to shorten them, at a glance.
pub fn looks_random(bytes: &[u8]) -> bool {
    // Odd, so that they meet all places of a record.
    let step = (bytes.len() / (2 * GLANCE)).saturating_sub(1) | 1;
    let mut seen = [0u64; 4];
    let mut glance = |from: usize| {
        let sample = bytes.iter().skip(from).step_by(2 * step).take(GLANCE);
        sample.for_each(|byte| seen[usize::from(byte >> 6)] |= 1 << (byte & 63));
        seen.iter().map(|seen| seen.count_ones()).sum::<u32>()
    };
    glance(0) >= PLAIN && glance(step) >= VARIOUS
}

/// The ratio that LZO is expected to compress a page to, in units of 1 / [`WHOLE`].
pub fn ratio(page: &Page) -> u32 {
    ratio_of(entropy(page))
}

/// The ratio at an entropy in units of 1 / [`BIT`], between two entries of the table; in units of 1 / [`WHOLE`].
pub fn ratio_of(entropy: u32) -> u32 {
    let tenths = entropy.min(8 * BIT) * 10;
    let (entry, part) = ((tenths / BIT) as usize, tenths % BIT);
    let at = |entry: usize| u32::from(RATIO[entry.min(RATIO_ENTRIES - 1)]);
    (at(entry) * (BIT - part) + at(entry + 1) * part) / BIT
}

fn counts(bytes: impl Iterator<Item = u8>) -> [u16; 256] {
    let mut counts = [0; 256];
    bytes.for_each(|byte| counts[usize::from(byte)] += 1);
    counts
}

/// The entropy of `total` bytes (not 0) by how often each occurs, in units of 1 / [`BIT`].
pub fn of_counts(counts: &[u16; 256], total: u32) -> u32 {
    let (mut sum, mut distinct) = (0, 0);
    for count in counts.iter().map(|count| u32::from(*count)).filter(|count| *count > 0) {
        sum += part_of(count, total);
        distinct += 1;
    }
    finished(sum, distinct, total)
}

/// What a byte that occurs so often among `total` adds: its count by its logarithm.
#[inline]
fn part_of(count: u32, total: u32) -> u32 {
    let p = (count * WHOLE + total / 2) / total;
    count * LOG.get(p.max(1) as usize).map_or(0, |log| u32::from(*log))
}

/// The mean of what all bytes add, and what the sample is too small to show.
#[inline]
fn finished(sum: u32, distinct: u32, total: u32) -> u32 {
    // In bits: divided by the natural logarithm of 2, 0.693.
    let unseen = distinct.saturating_sub(1) * BIT * 1000 / (2 * 693 * total);
    (sum / total + unseen).min(8 * BIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition.
    fn exact(page: &Page) -> f64 {
        let mut counts = [0u32; 256];
        page.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        let p = |count: &u32| f64::from(*count) / PAGE_SIZE as f64;
        counts.iter().filter(|count| **count > 0).map(|count| -p(count) * p(count).log2()).sum()
    }

    /// Of all sampled bytes.
    fn places() -> impl Iterator<Item = usize> {
        (0..WORDS).flat_map(|word| place(word) * WORD..(place(word) + 1) * WORD)
    }

    fn bits(entropy: u32) -> f64 {
        f64::from(entropy) / f64::from(BIT)
    }

    /// A page of `values` different bytes, the first ones oftener than the last by `slope`.
    fn page(values: usize, slope: u32) -> Page {
        let mut state = 1u64;
        std::array::from_fn(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let part = (state >> 40) as f64 / f64::from(1 << 24);
            (part.powi(slope as i32) * values as f64) as u8
        })
    }

    #[test]
    fn integers_are_near_the_definition() {
        for values in [1, 2, 3, 5, 10, 30, 100, 256] {
            for slope in 1..4 {
                let page = page(values, slope);
                let (whole, sampled, exact) =
                    (bits(whole_entropy(&page)), bits(entropy(&page)), exact(&page));
                assert!((whole - exact).abs() <= 0.01 + 0.017 * exact, "{values}, {slope}: {whole}, {exact}");
                assert!(
                    (sampled - exact).abs() <= 0.1 + 0.05 * exact,
                    "{values}, {slope}: {sampled}, {exact}"
                );
            }
        }
    }

    #[test]
    fn the_ends_are_right() {
        assert_eq!(whole_entropy(&[7; PAGE_SIZE]), 0);
        assert_eq!(entropy(&[7; PAGE_SIZE]), 0);
        assert_eq!(ratio(&[7; PAGE_SIZE]), u32::from(RATIO[0]));
        let all: Page = std::array::from_fn(|i| i as u8);
        assert!(bits(whole_entropy(&all)) > 7.99);
        assert!(ratio(&page(256, 1)) > 900);
        let two: Page = std::array::from_fn(|i| (i / 3 % 2) as u8);
        assert!((bits(whole_entropy(&two)) - 1.0).abs() < 0.01);
        assert_eq!((ratio_of(0), ratio_of(8 * BIT), ratio_of(u32::MAX)), (7, 995, 995));
        assert_eq!(ratio_of(BIT / 20), (7 + 26) / 2);
    }

    #[test]
    fn a_glance_tells_noise_from_text_and_records() {
        let noise = page(256, 1);
        let alike = (0..100).filter(|i| looks_random(&noise[i * 39..i * 39 + 100 + i])).count();
        assert!(alike >= 95, "{alike} of 100 pieces of noise");
        assert!(!looks_random(&page(30, 1)));
        assert!(!looks_random(&[]));
        assert!(!looks_random(&noise[..10]), "fewer bytes than are looked at");
        let record: Page = std::array::from_fn(|i| if i % 8 < 3 { noise[i] } else { (i % 8) as u8 });
        assert!(!looks_random(&record));
    }

    #[test]
    fn more_entropy_never_compresses_better() {
        assert!(RATIO.is_sorted());
        assert!(LOG[1..].is_sorted_by(|a, b| a >= b));
    }

    #[test]
    fn the_sample_sees_each_place_once_and_records_of_every_size() {
        let places: std::collections::BTreeSet<usize> = places().collect();
        assert_eq!(places.len(), SAMPLE);
        assert!(places.last().is_some_and(|last| *last < PAGE_SIZE));
        for record in [2, 3, 4, 8, 12, 16, 24, 32, 48, 100] {
            let mut seen = vec![0; record];
            places.iter().for_each(|place| seen[place % record] += 1);
            assert!(seen.iter().all(|count| *count > 0), "{record}: {seen:?}");
        }
    }

    /// Counted in the way of the definition: all tables, all counts.
    #[test]
    fn the_quick_way_is_the_plain_way() {
        let plain = |page: &Page| {
            let bytes = places().map(|place| page[place]);
            of_counts(&counts(bytes), SAMPLE as u32)
        };
        for values in [1, 2, 3, 5, 10, 30, 100, 256] {
            for slope in 1..6 {
                let page = page(values, slope);
                assert_eq!(entropy(&page), plain(&page), "{values}, {slope}");
            }
        }
        // One byte as often as a table counts, and once more.
        for often in [7, 8, 15, 16, 254, 255, 256, 257, 300, 407] {
            let mut left = often;
            let mut page: Page = std::array::from_fn(|i| 1 + (i % 251) as u8);
            for place in places() {
                if left > 0 {
                    (page[place], left) = (0, left - 1);
                }
            }
            assert_eq!(entropy(&page), plain(&page), "{often}");
        }
    }
}
