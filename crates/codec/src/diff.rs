//! The first look at two pages: which bytes differ, as a bit map, in one pass.
//!
//! Everything else starts from it: what a delta of runs would take is counted in its bits, and runs are found
//! by scanning them instead of the pages.

use crate::{PAGE_SIZE, Page};

/// Bytes a word of the map stands for.
pub(crate) const WORD: usize = 64;
/// Words of the map.
const WORDS: usize = PAGE_SIZE / WORD;
/// Changed words from which on their bytes are counted.
const MANY: usize = 20;
/// Unchanged bytes between two changed ones that are counted as changed: to leave them out takes more.
pub(crate) const CLOSE: usize = 2;

/// The bytes in which two pages differ.
#[derive(Debug, Clone)]
pub struct Diff {
    /// Bit i: `bytes[i]` is not zero.
    words: u64,
    /// A bit a byte, from the lowest.
    bytes: [u64; WORDS],
}

impl Default for Diff {
    /// That of equal pages.
    fn default() -> Self {
        Diff { words: 0, bytes: [0; WORDS] }
    }
}

impl Diff {
    /// Compares two pages.
    pub fn new(base: &Page, page: &Page) -> Self {
        let mut diff = Diff::default();
        diff.look(base, page);
        diff
    }

    /// Compares two other pages: nothing is copied.
    #[inline(always)]
    pub(crate) fn look(&mut self, base: &Page, page: &Page) {
        #[cfg(target_arch = "x86_64")]
        if crate::multiversion::has_avx2() {
            // SAFETY: the processor has the features that the function is compiled for. With the portable way all of
            // encoding takes 1.7 times as long where little differs, and twice where sixteen places do.
            #[allow(unsafe_code)]
            return unsafe { self.look_avx2(base, page) };
        }
        self.look_portable(base, page);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    #[inline(never)]
    fn look_avx2(&mut self, base: &Page, page: &Page) {
        use std::arch::x86_64::{__m256i, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_movemask_epi8};
        // A load of 32 bytes. Put together from words it is one or many, as the compiler pleases.
        let load = |piece: &[u8; 2 * WORD], i: usize| -> __m256i {
            zerocopy::transmute!(piece.as_chunks::<32>().0[i])
        };
        // Two words at once: with one there are more branches, with four more to do where few bytes differ.
        let mut words = 0;
        let pieces = base.as_chunks().0.iter().zip(page.as_chunks().0);
        for (i, ((a, b), maps)) in pieces.zip(self.bytes.as_chunks_mut::<2>().0).enumerate() {
            let same: [_; 4] = std::array::from_fn(|i| _mm256_cmpeq_epi8(load(a, i), load(b, i)));
            let halves = [_mm256_and_si256(same[0], same[1]), _mm256_and_si256(same[2], same[3])];
            if _mm256_movemask_epi8(_mm256_and_si256(halves[0], halves[1])) == -1 {
                *maps = [0; 2];
                continue;
            }
            let map = |i: usize| u64::from(!_mm256_movemask_epi8(same[i]) as u32);
            *maps = [map(0) | map(1) << 32, map(2) | map(3) << 32];
            words |= (u64::from(maps[0] != 0) | u64::from(maps[1] != 0) << 1) << (2 * i);
        }
        self.words = words;
    }

    #[inline(always)]
    fn look_portable(&mut self, base: &Page, page: &Page) {
        self.words = 0;
        let words = base.as_chunks::<WORD>().0.iter().zip(page.as_chunks::<WORD>().0);
        for (i, ((a, b), map)) in words.zip(&mut self.bytes).enumerate() {
            let (a, b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
            let xor: [u64; WORD / 8] =
                std::array::from_fn(|i| u64::from_le_bytes(a[i]) ^ u64::from_le_bytes(b[i]));
            *map = match xor.iter().fold(0, |or, xor| or | xor) {
                0 => 0,
                _ => xor.iter().rev().fold(0, |map, xor| map << 8 | differing8(*xor)),
            };
            self.words |= u64::from(*map != 0) << i;
        }
    }

    /// Whether the pages are equal.
    pub fn is_empty(&self) -> bool {
        self.words == 0
    }

    /// Number of bytes that differ.
    pub fn changed(&self) -> usize {
        self.bytes.iter().map(|map| map.count_ones() as usize).sum()
    }

    /// Whether more than `most` bytes differ, where that is likely by the words that do.
    #[inline(always)]
    pub(crate) fn is_above(&self, most: usize) -> bool {
        let words = self.words.count_ones() as usize;
        words >= MANY && words * WORD > most && self.changed() > most
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

    /// Length of the run that begins at `from`, a changed byte; where it is longer than some 60 bytes, that many.
    #[inline(always)]
    pub(crate) fn run(&self, from: usize) -> usize {
        let (word, bit) = (from / WORD, from % WORD);
        let next = self.bytes.get(word + 1).copied().unwrap_or(0);
        let map = self.bytes[word] >> bit | next << 1 << (WORD - 1 - bit);
        ((map | map << 1 | map << 2).trailing_ones() as usize).saturating_sub(CLOSE)
    }

    /// The runs of changed bytes, in order; those at most [`CLOSE`] bytes apart are one.
    #[inline(always)]
    pub(crate) fn runs(&self) -> Runs<'_> {
        Runs { diff: self, words: self.words, at: 0, wide: 0 }
    }
}

/// Bits of changed bytes and of the [`CLOSE`] behind each, so that close runs meet, in the word of `map` and
/// in the next.
#[inline(always)]
fn widened(map: u64) -> (u64, u64) {
    (map | map << 1 | map << 2, map >> 63 | map >> 62)
}

/// Start and end of each run.
#[derive(Debug, Clone)]
pub(crate) struct Runs<'a> {
    diff: &'a Diff,
    /// Changed words that are not looked at yet.
    words: u64,
    /// First byte of the word that is.
    at: usize,
    /// What is left of it, widened.
    wide: u64,
}

impl Iterator for Runs<'_> {
    type Item = (usize, usize);

    #[inline(always)]
    fn next(&mut self) -> Option<(usize, usize)> {
        if self.wide == 0 {
            if self.words == 0 {
                return None;
            }
            let word = self.words.trailing_zeros() as usize;
            self.words &= self.words - 1;
            self.at = word * WORD;
            self.wide = widened(self.diff.bytes[word]).0;
        }
        let start = self.at + self.wide.trailing_zeros() as usize;
        let (behind, reaches_on) = self.wide.overflowing_add(self.wide & self.wide.wrapping_neg());
        if reaches_on {
            return Some((start, self.end_of_long()));
        }
        self.wide &= behind;
        Some((start, self.at + behind.trailing_zeros() as usize - CLOSE))
    }
}

impl Runs<'_> {
    /// The end of a run that reaches beyond its word.
    #[inline(always)]
    fn end_of_long(&mut self) -> usize {
        let mut word = self.at / WORD;
        let mut carry = widened(self.diff.bytes[word]).1;
        loop {
            word += 1;
            let map = self.diff.bytes.get(word).copied().unwrap_or(0);
            let (wide, next) = widened(map);
            (self.wide, carry) = (wide | carry, next);
            if self.wide != u64::MAX {
                break;
            }
        }
        let end = word * WORD + self.wide.trailing_ones() as usize - CLOSE;
        self.at = word * WORD;
        self.wide &= self.wide + 1;
        self.words &= u64::MAX.checked_shl(word as u32 + 1).unwrap_or(0);
        end
    }
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

    /// [`Diff::runs`], found byte by byte.
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
        assert_eq!(diff.runs().collect::<Vec<_>>(), runs_one_by_one(base, page));
        assert_eq!(diff.changed(), (0..PAGE_SIZE).filter(|&i| base[i] != page[i]).count());
        assert_eq!(diff.is_empty(), base == page);
        let next = |from: usize| (from..PAGE_SIZE).find(|&i| base[i] != page[i]).unwrap_or(PAGE_SIZE);
        (0..=PAGE_SIZE).step_by(7).for_each(|from| assert_eq!(diff.next_changed(from), next(from)));
        for (start, end) in runs_one_by_one(base, page) {
            // It sees the next 60 bytes or so.
            let (run, len) = (diff.run(start), end - start);
            assert!(run == len.min(run.max(WORD - CLOSE - 2)), "{run} of {len} at {start}");
        }
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

    #[test]
    fn the_most_runs_there_can_be_have_room() {
        for first in 0..CLOSE + 2 {
            check(&[0; PAGE_SIZE], &std::array::from_fn(|i| u8::from(i % (CLOSE + 2) == first)));
        }
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
            let (best, mut portable) = (Diff::new(&[0; PAGE_SIZE], &page), Diff::default());
            portable.look_portable(&[0; PAGE_SIZE], &page);
            prop_assert_eq!((best.words, best.bytes), (portable.words, portable.bytes));
        }
    }
}
