//! The first look at two pages: which bytes differ, as a bit map, in one pass.
//!
//! Everything else starts from it: what a delta of runs would take is counted in its bits, and runs are found
//! by scanning them instead of the pages.

use crate::{PAGE_SIZE, Page};

/// Bytes a word of the map stands for.
pub(crate) const WORD: usize = 64;
/// Bytes that are passed over at once where they are equal.
const PIECE: usize = PIECE_WORDS * WORD;
const PIECE_WORDS: usize = 4;
type Piece = [u8; PIECE];
type PieceMap = [u64; PIECE_WORDS];
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
    #[inline]
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

    /// Maps piece by piece with `differing`.
    #[inline(always)]
    fn compare(base: &Page, page: &Page, differing: impl Fn(&Piece, &Piece) -> Option<PieceMap>) -> Self {
        let mut diff = Diff { words: 0, bytes: [0; WORDS] };
        let pieces = base.as_chunks::<PIECE>().0.iter().zip(page.as_chunks::<PIECE>().0);
        let maps = diff.bytes.as_chunks_mut::<PIECE_WORDS>().0;
        for (i, ((a, b), map)) in pieces.zip(maps).enumerate() {
            if let Some(differing) = differing(a, b) {
                *map = differing;
                let changed = (0..PIECE_WORDS).fold(0, |bits, i| bits | u64::from(map[i] != 0) << i);
                diff.words |= changed << (i * PIECE_WORDS);
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

    /// Length of the run that begins at `from`, a changed byte; where it is longer than some 60 bytes, that many.
    #[inline(always)]
    pub(crate) fn run(&self, from: usize) -> usize {
        let (word, bit) = (from / WORD, from % WORD);
        let next = self.bytes.get(word + 1).copied().unwrap_or(0);
        let map = self.bytes[word] >> bit | next << 1 << (WORD - 1 - bit);
        ((map | map << 1 | map << 2).trailing_ones() as usize).saturating_sub(CLOSE)
    }

    fn changed_words(&self) -> impl Iterator<Item = usize> {
        let mut words = self.words;
        std::iter::from_fn(move || {
            let i = (words != 0).then(|| words.trailing_zeros() as usize)?;
            words &= words - 1;
            Some(i)
        })
    }

    /// Where runs of changed bytes start and end, in order; runs at most [`CLOSE`] bytes apart are one. `None` where
    /// there are clearly more than `most`.
    #[inline(always)]
    pub(crate) fn runs<'a>(
        &self,
        edges: &'a mut Edges,
        most: usize,
    ) -> Option<impl ExactSizeIterator<Item = (usize, usize)> + use<'a>> {
        let count = self.edges(edges, 2 * most)?;
        let pairs = edges.0[..count].as_chunks::<2>().0;
        Some(pairs.iter().map(|&[start, end]| (usize::from(start), usize::from(end) - CLOSE)))
    }

    /// Writes start and end of each run, the end [`CLOSE`] bytes late, and returns how many numbers that are; `None`
    /// where they are more than `most` before the last word.
    #[inline(always)]
    fn edges(&self, out: &mut Edges, most: usize) -> Option<usize> {
        // A run is widened by CLOSE bytes at its end, so that close ones meet. `carry` is what of that reaches into the
        // next word, `open` whether a run does.
        let (mut count, mut next, mut carry, mut open) = (0, 0, 0u64, 0u64);
        for i in self.changed_words() {
            if count > most {
                return None;
            }
            if open != 0 && i != next {
                put(out, &mut count, next * WORD + carry.trailing_ones() as usize);
                (carry, open) = (0, 0);
            }
            let map = self.bytes[i];
            let wide = map | map << 1 | map << 2 | carry;
            let mut edges = wide ^ (wide << 1 | open);
            // Two are the most common, and none within a long run; two are written without a branch on their number.
            if edges != 0 {
                for _ in 0..2 {
                    out.0[count] = (i * WORD) as u16 + edges.trailing_zeros() as u16;
                    count += usize::from(edges != 0);
                    edges &= edges.wrapping_sub(1);
                }
                while edges != 0 {
                    put(out, &mut count, i * WORD + edges.trailing_zeros() as usize);
                    edges &= edges - 1;
                }
            }
            (next, carry, open) = (i + 1, map >> 63 | map >> 62, wide >> 63);
        }
        if open != 0 {
            put(out, &mut count, next * WORD + carry.trailing_ones() as usize);
        }
        Some(count)
    }
}

/// Writes the next number.
#[inline(always)]
fn put(out: &mut Edges, count: &mut usize, position: usize) {
    out.0[*count] = position as u16;
    *count += 1;
}

/// Scratch memory for the runs of a [`Diff`]: their starts and ends, of which a page has no more, and room for one that
/// does not count.
#[derive(Debug, Clone)]
pub struct Edges([u16; EDGES + 1]);

impl Default for Edges {
    fn default() -> Self {
        Edges([0; EDGES + 1])
    }
}

/// Bit i of the map is set where byte i differs; equal pieces have none, and are passed over at the speed of memory.
#[inline(always)]
fn differing(a: &Piece, b: &Piece) -> Option<PieceMap> {
    let (a, b) = (a.as_chunks::<8>().0, b.as_chunks::<8>().0);
    let xor = |i: usize| u64::from_le_bytes(a[i]) ^ u64::from_le_bytes(b[i]);
    if (0..PIECE / 8).fold(0, |or, i| or | xor(i)) == 0 {
        return None;
    }
    Some(std::array::from_fn(|word| (0..8).rev().fold(0, |map, i| map << 8 | differing8(xor(word * 8 + i)))))
}

/// [`differing`] with eight comparisons.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
#[inline]
fn differing_avx2(a: &Piece, b: &Piece) -> Option<PieceMap> {
    use std::arch::x86_64::{__m256i, _mm256_and_si256, _mm256_cmpeq_epi8, _mm256_movemask_epi8};
    // A load of 32 bytes. Put together from words it is one or many, as the compiler pleases.
    let load = |piece: &Piece, i: usize| -> __m256i { zerocopy::transmute!(piece.as_chunks::<32>().0[i]) };
    let equal: [_; PIECE / 32] = std::array::from_fn(|i| _mm256_cmpeq_epi8(load(a, i), load(b, i)));
    let all = equal[1..].iter().fold(equal[0], |all, equal| _mm256_and_si256(all, *equal));
    if _mm256_movemask_epi8(all) == -1 {
        return None;
    }
    let map = |i: usize| u64::from(!_mm256_movemask_epi8(equal[i]) as u32);
    Some(std::array::from_fn(|word| map(2 * word) | map(2 * word + 1) << 32))
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
        assert_eq!(
            diff.runs(&mut Edges::default(), PAGE_SIZE).expect("no more than a page").collect::<Vec<_>>(),
            runs_one_by_one(base, page)
        );
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

    #[test]
    fn more_runs_than_wanted_are_none() {
        let page: Page = std::array::from_fn(|i| u8::from(i % 8 == 0));
        let diff = Diff::new(&[0; PAGE_SIZE], &page);
        assert!(diff.runs(&mut Edges::default(), PAGE_SIZE / 8).is_some());
        assert!(diff.runs(&mut Edges::default(), PAGE_SIZE / 8 - WORD).is_none());
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
