//! Chance from a seed, and the distributions that workloads draw from.

use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// A source of chance. The same seed and the same calls give the same values.
#[derive(Debug, Clone)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// Begins from `seed`; `part` separates sources of one seed.
    pub fn new(seed: u64, part: &str) -> Random {
        // FNV-1a over the name, so that parts with other names draw other values.
        let mix = part
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3));
        Random(Xoshiro256PlusPlus::seed_from_u64(seed ^ mix))
    }

    /// A number below `n`; 0 where `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.0.random_range(0..n) }
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        self.0.random_range(low..=high.max(low))
    }

    /// Whether something of this probability happens.
    pub fn happens(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }

    /// A number from 0 to 1, without 1.
    pub fn unit(&mut self) -> f64 {
        self.0.random::<f64>()
    }

    /// Random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        self.0.fill_bytes(bytes);
    }

    /// One of several.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len() as u64) as usize]
    }

    /// A number below `n`, small ones more often: the k-th about 1/k as often as the first (Zipf).
    pub fn zipf(&mut self, n: u64) -> u64 {
        let x = (n as f64 + 1.0).powf(self.unit());
        (x as u64).clamp(1, n.max(1)) - 1
    }

    /// A number from the normal distribution with mean 0 and deviation 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        // One minus, as the logarithm of nothing is not wanted.
        let (radius, angle) = ((-2.0 * (1.0 - self.unit()).ln()).sqrt(), std::f64::consts::TAU * self.unit());
        radius * angle.cos()
    }

    /// TPC-C's non-uniform number (clause 2.1.6) from `low` to `high`, with the constant `c` for `a`.
    pub fn nurand(&mut self, a: u64, c: u64, low: u64, high: u64) -> u64 {
        ((self.between(0, a) | self.between(low, high)) + c) % (high - low + 1) + low
    }

    /// A shuffled list.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for i in (1..list.len()).rev() {
            list.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_parts_differ_and_repeat() {
        let draw = |seed, part| Random::new(seed, part).below(1 << 60);
        assert_eq!(draw(1, "a"), draw(1, "a"));
        assert_ne!(draw(1, "a"), draw(2, "a"));
        assert_ne!(draw(1, "a"), draw(1, "b"));
    }

    #[test]
    fn bounds_hold() {
        let mut r = Random::new(3, "bounds");
        assert!((0..10_000).all(|_| r.zipf(7) < 7 && r.between(3, 4) <= 4 && r.below(5) < 5));
        assert!((0..10_000).all(|_| (1..=3000).contains(&r.nurand(1023, 259, 1, 3000))));
        assert_eq!((r.zipf(0), r.below(0)), (0, 0));
        let firsts = (0..10_000).filter(|_| r.zipf(100) == 0).count();
        assert!(firsts > 1000, "{firsts} of 10,000 draws are the first of a hundred");
    }

    #[test]
    fn normal_has_its_mean_and_its_deviation() {
        let mut r = Random::new(3, "normal");
        let drawn: Vec<f64> = (0..200_000).map(|_| r.normal()).collect();
        let mean = drawn.iter().sum::<f64>() / drawn.len() as f64;
        let square = drawn.iter().map(|x| x * x).sum::<f64>() / drawn.len() as f64;
        let beyond = drawn.iter().filter(|x| x.abs() > 1.96).count() as f64 / drawn.len() as f64;
        assert!(mean.abs() < 0.01 && (square - 1.0).abs() < 0.02, "{mean} {square}");
        assert!((beyond - 0.05).abs() < 0.005, "{beyond}");
    }
}
