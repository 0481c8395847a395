//! Contents without their bytes: what is kept of a piece, and a piece that has the same properties.
//!
//! Of a piece a trace without contents keeps its length, the entropy of its bytes, how many of them differ
//! from what was there before and in how many runs, and, by its number, whether it occurred before.
//! [`Synthesizer`] makes bytes from that: from the number alone where nothing was there, otherwise from what
//! was there. The order of bytes within a piece, and so what a matching compressor finds beyond their
//! frequencies, is not kept.

use crate::record::{PAGE, Sketch};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::HashMap;

/// Steps of [`Sketch::entropy`] in a bit.
const STEPS: f64 = 32.0;

/// The sketch of a piece that replaces `before` (empty: nothing; shorter: the rest was beyond the end).
pub fn of(piece: &[u8], before: &[u8]) -> Sketch {
    let entropy = (entropy(piece) * STEPS).round() as u16;
    if before.is_empty() {
        return Sketch { len: piece.len() as u16, entropy, changed: Sketch::FRESH, runs: 0 };
    }
    let (mut changed, mut runs, mut inside) = (0, 0, false);
    for (at, byte) in piece.iter().enumerate() {
        let differs = before.get(at).is_none_or(|old| old != byte);
        changed += u16::from(differs);
        runs += u16::from(differs && !inside);
        inside = differs;
    }
    Sketch { len: piece.len() as u16, entropy, changed, runs }
}

/// Shannon entropy of the frequencies of bytes, in bits a byte.
pub fn entropy(bytes: &[u8]) -> f64 {
    let mut counts = [0u32; 256];
    for &byte in bytes {
        counts[usize::from(byte)] += 1;
    }
    let total = bytes.len().max(1) as f64;
    let terms = counts.iter().filter(|&&count| count > 0).map(|&count| {
        let p = f64::from(count) / total;
        -p * p.log2()
    });
    terms.sum::<f64>() + 0.0
}

/// Makes pieces from their sketches.
#[derive(Debug, Default)]
pub(crate) struct Synthesizer {
    /// How often each byte occurs in a piece of a length and an entropy; few of them come up in a trace.
    frequencies: HashMap<(u16, u16), Box<[u16; 256]>>,
}

/// Most distributions that are kept.
const DISTRIBUTIONS_MAX: usize = 4096;

impl Synthesizer {
    /// The piece with this number: the same bytes whenever it is made from the same.
    pub(crate) fn piece(&mut self, number: u64, sketch: &Sketch, before: &[u8]) -> Vec<u8> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(number);
        let len = usize::from(sketch.len).min(PAGE);
        let fresh = sketch.changed == Sketch::FRESH || before.is_empty();
        if fresh {
            return self.fresh(len, sketch.entropy, &mut random);
        }
        let mut piece = before.to_vec();
        piece.resize(len, 0);
        let new = self.fresh(len, sketch.entropy, &mut random);
        for (begin, count) in places(len, sketch, &mut random) {
            for at in begin..begin + count {
                // A byte that must change, and comes from the same distribution where that has another.
                piece[at] = if new[at] == piece[at] { piece[at] ^ 0x55 } else { new[at] };
            }
        }
        piece
    }

    fn fresh(&mut self, len: usize, entropy: u16, random: &mut Xoshiro256PlusPlus) -> Vec<u8> {
        if self.frequencies.len() >= DISTRIBUTIONS_MAX {
            self.frequencies.clear();
        }
        let counts = self
            .frequencies
            .entry((len as u16, entropy))
            .or_insert_with(|| Box::new(frequencies(len, f64::from(entropy) / STEPS)));
        let mut piece = Vec::with_capacity(len);
        for (rank, &count) in counts.iter().enumerate() {
            // Neighbouring ranks are unlike bytes.
            let byte = (rank as u8).wrapping_mul(167).wrapping_add(65);
            piece.resize(piece.len() + usize::from(count), byte);
        }
        piece.truncate(len);
        for at in (1..piece.len()).rev() {
            piece.swap(at, random.random_range(0..=at));
        }
        piece
    }
}

/// Where a sketch's changed bytes lie: runs that neither touch nor overlap, spread over the piece.
fn places(len: usize, sketch: &Sketch, random: &mut Xoshiro256PlusPlus) -> Vec<(usize, usize)> {
    let changed = usize::from(sketch.changed).min(len);
    let unchanged = len - changed;
    let runs = usize::from(sketch.runs).clamp(1, changed.max(1)).min(unchanged + 1);
    if changed == 0 {
        return Vec::new();
    }
    let lens = parts(changed - runs, runs, random);
    // The gaps between runs hold a byte at least, those before the first and behind the last any number.
    let gaps = parts(unchanged - (runs - 1), runs + 1, random);
    let mut at = 0;
    let mut places = Vec::with_capacity(runs);
    for (i, len) in lens.iter().enumerate() {
        at += gaps[i] + usize::from(i > 0);
        places.push((at, len + 1));
        at += len + 1;
    }
    places
}

/// `total` in `count` random parts.
fn parts(total: usize, count: usize, random: &mut Xoshiro256PlusPlus) -> Vec<usize> {
    let mut cuts: Vec<usize> = (1..count).map(|_| random.random_range(0..=total)).collect();
    cuts.sort_unstable();
    cuts.push(total);
    let mut last = 0;
    cuts.iter().map(|&cut| cut - std::mem::replace(&mut last, cut)).collect()
}

/// How often each of 256 ranks occurs among `len` bytes so that their entropy is `bits`: the ratio between neighbouring
/// ranks is found by bisection.
fn frequencies(len: usize, bits: f64) -> [u16; 256] {
    let (mut low, mut high) = (0.0f64, 1.0f64);
    let mut best = [0u16; 256];
    best[0] = len as u16;
    for _ in 0..40 {
        let ratio = f64::midpoint(low, high);
        best = geometric(len, ratio);
        let entropy = entropy_of_counts(&best, len);
        if (entropy - bits).abs() < 0.01 {
            break;
        }
        if entropy < bits { low = ratio } else { high = ratio }
    }
    best
}

/// Counts in a geometric ratio that add up to `len`; the largest remainders are rounded up.
fn geometric(len: usize, ratio: f64) -> [u16; 256] {
    let weights: Vec<f64> = std::iter::successors(Some(1.0), |w| Some(w * ratio)).take(256).collect();
    let total: f64 = weights.iter().sum();
    let mut counts = [0u16; 256];
    let mut remainders: Vec<(f64, usize)> = Vec::with_capacity(256);
    let mut given = 0;
    for (rank, weight) in weights.iter().enumerate() {
        let exact = weight / total * len as f64;
        counts[rank] = exact as u16;
        given += usize::from(counts[rank]);
        remainders.push((exact.fract(), rank));
    }
    remainders.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    for (_, rank) in remainders.into_iter().cycle().take(len.saturating_sub(given)) {
        counts[rank] += 1;
    }
    counts
}

fn entropy_of_counts(counts: &[u16; 256], len: usize) -> f64 {
    let total = len.max(1) as f64;
    let terms = counts.iter().filter(|&&count| count > 0).map(|&count| {
        let p = f64::from(count) / total;
        -p * p.log2()
    });
    terms.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fresh_piece_has_the_entropy_of_its_sketch() {
        let text: Vec<u8> =
            b"the quick brown fox jumps over the lazy dog. ".iter().copied().cycle().take(4096).collect();
        let noise: Vec<u8> = (0..4096u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
        for original in [&text[..], &noise, &[7; 4096], &text[..100], &[1, 2, 3]] {
            let sketch = of(original, &[]);
            let made = Synthesizer::default().piece(9, &sketch, &[]);
            assert_eq!(made.len(), original.len());
            let (want, got) = (entropy(original), entropy(&made));
            assert!((want - got).abs() < 0.15, "{want} bits became {got}");
            assert_eq!(
                made,
                Synthesizer::default().piece(9, &sketch, &[]),
                "the same number, the same bytes"
            );
        }
    }

    #[test]
    fn an_update_differs_where_and_as_much_as_its_sketch_says() {
        let before: Vec<u8> = (0..4096u32).map(|i| (i / 7) as u8).collect();
        for (changed, runs) in [(1, 1), (100, 3), (4095, 1), (2000, 2000), (4096, 1), (0, 0)] {
            let mut after = before.clone();
            let stride = 4096usize.checked_div(runs).unwrap_or(1);
            for run in 0..runs {
                for i in 0..changed / runs {
                    after[(run * stride + i).min(4095)] ^= 0xff;
                }
            }
            let sketch = of(&after, &before);
            let made = Synthesizer::default().piece(1, &sketch, &before);
            let again = of(&made, &before);
            assert_eq!((again.changed, again.runs), (sketch.changed, sketch.runs), "{changed} in {runs}");
        }
    }
}
