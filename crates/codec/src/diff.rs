//! The first look at two pages: which bytes differ, as a bit map, in one pass.
//!
//! Everything else starts from it: what a delta of runs would take is counted in its bits, and runs are found
//! by scanning them instead of the pages.

use crate::{PAGE_SIZE, Page};

/// Bytes a word of the map stands for.
pub(crate) const WORD: usize = 64;
/// Bytes that are passed over at once where they are equal.
const PIECE: usize = 4 * WORD;
/// Words of the map.
const WORDS: usize = PAGE_SIZE / WORD;
/// Unchanged bytes between two changed ones that are counted as changed: to leave them out takes more.
pub(crate) const CLOSE: usize = 2;

/// Most starts and ends of runs: one changed byte, [`CLOSE`] + 1 unchanged ones.
const EDGES: usize = 2 * PAGE_SIZE.div_ceil(CLOSE + 2);

/// Which bytes of two pages differ.
#[derive(Debug, Clone)]
pub struct Diff {
    /// Bit i: `bytes[i]` is not zero.
    words: u64,
    /// A bit a byte, from the lowest.
    bytes: [u64; WORDS],
}

impl Diff {
    /// Compares two pages.
    pub fn new(base: &Page, page: &Page) -> Self {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has the one feature that the function is compiled for. The portable way is as fast
            // where pages are equal, and takes four times as long where many places differ.
            #[allow(unsafe_code)]
            return unsafe { Self::avx2(base, page) };
        }
        Self::compare(base, page, differing)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn avx2(base: &Page, page: &Page) -> Self {
        Self::compare(base, page, |a, b| differing_avx2(a, b))
    }

    /// Passes over equal pieces at the speed of memory, and maps the others with `differing`.
    #[inline(always)]
    fn compare(base: &Page, page: &Page, differing: impl Fn(&[u8; WORD], &[u8; WORD]) -> u64) -> Self {
        let mut diff = Diff { words: 0, bytes: [0; WORDS] };
        let pieces = base.as_chunks::<PIECE>().0.iter().zip(page.as_chunks::<PIECE>().0);
        for (i, (a, b)) in pieces.enumerate().filter(|(_, (a, b))| !equal(a, b)) {
            let words = a.as_chunks::<WORD>().0.iter().zip(b.as_chunks::<WORD>().0);
            for (i, (a, b)) in (i * PIECE / WORD..).zip(words) {
                diff.bytes[i] = differing(a, b);
                diff.words |= u64::from(diff.bytes[i] != 0) << i;
            }
        }
        diff
    }

    /// Whether the pages are equal.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// How many bytes differ.
    pub fn changed(&self) -> usize {
        self.changed_words().map(|i| self.bytes[i].count_ones() as usize).sum()
    }

    /// The first changed byte from `from` on; [`PAGE_SIZE`] where there is none.
    #[inline(always)]
    pub(crate) fn next_changed(&self, from: usize) -> usize {
        let word = from / WORD;
        let Some(bytes) = self.bytes.get(word).map(|bytes| bytes >> (from % WORD)) else { return PAGE_SIZE };
        if bytes != 0 {
            return from + bytes.trailing_zeros() as usize;
        }
        let later = (self.words & (u64::MAX - 1) << word).trailing_zeros() as usize;
        self.bytes.get(later).map_or(PAGE_SIZE, |bytes| later * WORD + bytes.trailing_zeros() as usize)
    }

    fn changed_words(&self) -> impl Iterator<Item = usize> {
        let mut words = self.words;
        std::iter::from_fn(move || {
            let i = (words != 0).then(|| words.trailing_zeros() as usize)?;
            words &= words - 1;
            Some(i)
        })
    }

    /// Where runs of changed bytes start and end, in order; runs at most [`CLOSE`] bytes apart are one.
    #[inline(always)]
    pub(crate) fn runs<'a>(
        &self,
        edges: &'a mut Edges,
    ) -> impl ExactSizeIterator<Item = (usize, usize)> + use<'a> {
        let count = self.edges(edges);
        let pairs = edges.0[..count].as_chunks::<2>().0;
        pairs.iter().map(|&[start, end]| (usize::from(start), usize::from(end) - CLOSE))
    }

    /// Writes start and end of each run, the end [`CLOSE`] bytes late, and returns how many numbers that are.
    #[inline(always)]
    fn edges(&self, out: &mut Edges) -> usize {
        // A run is widened by CLOSE bytes at its end, so that close ones meet. `carry` is what of that reaches into the
        // next word, `open` whether a run does.
        let (mut count, mut next, mut carry, mut open) = (0, 0, 0u64, 0u64);
        let mut put = |position: usize| {
            out.0[count] = position as u16;
            count += 1;
        };
        for i in self.changed_words() {
            if open != 0 && i != next {
                put(next * WORD + carry.trailing_ones() as usize);
                (carry, open) = (0, 0);
            }
            let map = self.bytes[i];
            let wide = map | map << 1 | map << 2 | carry;
            let mut edges = wide ^ (wide << 1 | open);
            while edges != 0 {
                put(i * WORD + edges.trailing_zeros() as usize);
                edges &= edges - 1;
            }
            (next, carry, open) = (i + 1, map >> 63 | map >> 62, wide >> 63);
        }
        if open != 0 {
            put(next * WORD + carry.trailing_ones() as usize);
        }
        count
    }
}

/// Scratch memory for the runs of a [`Diff`]: their starts and ends, of which a page has no more.
#[derive(Debug, Clone)]
pub struct Edges([u16; EDGES]);

impl Default for Edges {
    fn default() -> Self {
        Edges([0; EDGES])
    }
}

/// Whether two pieces are equal, without a branch, so that it becomes vector code.
#[inline(always)]
fn equal(a: &[u8; PIECE], b: &[u8; PIECE]) -> bool {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    words.fold(0, |or, (a, b)| or | (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b))) == 0
}

/// Bit i is set where byte i differs.
#[inline(always)]
fn differing(a: &[u8; WORD], b: &[u8; WORD]) -> u64 {
    let words = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    words.rev().fold(0, |map, (a, b)| map << 8 | differing8(u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)))
}

/// [`differing`] with two comparisons.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn differing_avx2(a: &[u8; WORD], b: &[u8; WORD]) -> u64 {
    use std::arch::x86_64::{_mm256_cmpeq_epi8, _mm256_movemask_epi8, _mm256_set_epi64x};
    let load = |bytes: &[u8; WORD], half: usize| {
        let word = |i: usize| i64::from_le_bytes(bytes.as_chunks::<8>().0[half * 4 + i]);
        _mm256_set_epi64x(word(3), word(2), word(1), word(0))
    };
    let equal =
        |half| u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(load(a, half), load(b, half))) as u32);
    !(equal(0) | equal(1) << 32)
}

/// One bit for each byte of a word that is not zero.
#[inline(always)]
fn differing8(x: u64) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let high = (((x & LOW) + LOW) | x) & !LOW;
    (high >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The runs of [`Diff::each_run`], found byte by byte.
    fn runs_one_by_one(base: &Page, page: &Page) -> Vec<(usize, usize)> {
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for i in (0..PAGE_SIZE).filter(|&i| base[i] != page[i]) {
            match runs.last_mut() {
                Some((_, end)) if i - *end <= CLOSE => *end = i + 1,
                _ => runs.push((i, i + 1)),
            }
        }
        runs
    }

    fn check(base: &Page, page: &Page) {
        let diff = Diff::new(base, page);
        assert_eq!(diff.runs(&mut Edges::default()).collect::<Vec<_>>(), runs_one_by_one(base, page));
        assert_eq!(diff.changed(), (0..PAGE_SIZE).filter(|&i| base[i] != page[i]).count());
        assert_eq!(diff.is_empty(), base == page);
        let next = |from: usize| (from..PAGE_SIZE).find(|&i| base[i] != page[i]).unwrap_or(PAGE_SIZE);
        (0..=PAGE_SIZE).step_by(7).for_each(|from| assert_eq!(diff.next_changed(from), next(from)));
    }

    #[test]
    fn runs_at_every_border_of_words_are_found() {
        for at in (0..4).chain(60..70).chain(4090..PAGE_SIZE) {
            for len in (1..6).chain(60..70) {
                for gap in 0..5 {
                    let mut page = [0; PAGE_SIZE];
                    page.iter_mut().skip(at).take(len).for_each(|b| *b = 1);
                    page.iter_mut().skip(at + len + gap).take(2).for_each(|b| *b = 1);
                    check(&[0; PAGE_SIZE], &page);
                }
            }
        }
        check(&[0; PAGE_SIZE], &[0; PAGE_SIZE]);
        check(&[0; PAGE_SIZE], &[1; PAGE_SIZE]);
    }

    proptest! {
        #[test]
        fn runs_are_those_found_one_by_one(bits in proptest::collection::vec(any::<u8>(), PAGE_SIZE), mask in any::<u8>()) {
            let page: Page = std::array::from_fn(|i| u8::from(bits[i] & mask == 0));
            check(&[0; PAGE_SIZE], &page);
        }

        #[test]
        fn every_processor_finds_the_same(bits in proptest::collection::vec(any::<u8>(), PAGE_SIZE), mask in any::<u8>()) {
            let page: Page = std::array::from_fn(|i| bits[i] & mask);
            let (best, portable) = (Diff::new(&[0; PAGE_SIZE], &page), Diff::compare(&[0; PAGE_SIZE], &page, differing));
            prop_assert_eq!((best.words, best.bytes), (portable.words, portable.bytes));
        }
    }
}
