//! How good a tree is on files that it was not learned from.
//!
//! Files are divided at random, by a seed, into those that are learned from and those that are judged; the
//! mean of several such divisions counts (ARS, section IV-A: ten, with 75% to learn from). Moments of one
//! file are never on both sides.

use crate::cart::{Limits, said, train};
use crate::sample::Sample;
use medfs_format::ars::{Class, Tree};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeSet;

/// Parts of a hundred that are learned from.
const LEARNED: usize = 75;

/// Shares of 1.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Score {
    /// Of what was said to be reserved, what is to be; 0 where nothing was.
    pub precision: f64,
    /// Of what is to be reserved, what was said to be; 0 where nothing is.
    pub recall: f64,
    /// Of everything, what was said right.
    pub accuracy: f64,
    /// Of everything, what is not to be reserved: the accuracy of saying so always.
    pub always_log: f64,
}

impl Score {
    /// Of a tree on these samples.
    pub fn of(tree: &Tree, samples: &[Sample]) -> Score {
        let count = |f: &dyn Fn(Class, Class) -> bool| {
            samples.iter().filter(|s| f(said(tree, &s.features), s.class)).count() as f64
        };
        let share = |part: f64, of: f64| if of == 0.0 { 0.0 } else { part / of };
        let both = count(&|said, is| said == Class::Reserve && is == Class::Reserve);
        Score {
            precision: share(both, count(&|said, _| said == Class::Reserve)),
            recall: share(both, count(&|_, is| is == Class::Reserve)),
            accuracy: share(count(&|said, is| said == is), samples.len() as f64),
            always_log: share(count(&|_, is| is == Class::Log), samples.len() as f64),
        }
    }

    /// Adds another one's shares, so much of each.
    pub fn add(&mut self, other: Score, weight: f64) {
        self.precision += other.precision * weight;
        self.recall += other.recall * weight;
        self.accuracy += other.accuracy * weight;
        self.always_log += other.always_log * weight;
    }
}

/// The numbers of the files of samples, sorted.
pub(crate) fn files_of(samples: &[Sample]) -> Vec<usize> {
    let mut files: Vec<usize> = samples.iter().map(|s| s.file).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Samples to learn from, and samples to judge by: files are shuffled, and the first three quarters learned from.
pub(crate) fn divided(
    samples: &[Sample],
    files: &mut [usize],
    random: &mut Xoshiro256PlusPlus,
) -> (Vec<Sample>, Vec<Sample>) {
    files.shuffle(random);
    let learned: BTreeSet<usize> = files[..files.len() * LEARNED / 100].iter().copied().collect();
    samples.iter().cloned().partition(|s| learned.contains(&s.file))
}

/// The mean of so many divisions into files that are learned from and files that are judged.
pub fn cross_validated(samples: &[Sample], limits: Limits, divisions: u32, seed: u64) -> Score {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let (mut files, mut mean) = (files_of(samples), Score::default());
    for _ in 0..divisions {
        let (learned, judged) = divided(samples, &mut files, &mut random);
        mean.add(Score::of(&train(&learned, limits), &judged), 1.0 / f64::from(divisions));
    }
    mean
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_format::ars::{Feature, Values};

    fn samples(count: usize, is_reserve: impl Fn(usize) -> bool) -> Vec<Sample> {
        (0..count)
            .map(|file| {
                let mut features = Values::default();
                features[Feature::Writes as usize] = file as u32;
                Sample { features, class: if is_reserve(file) { Class::Reserve } else { Class::Log }, file }
            })
            .collect()
    }

    #[test]
    fn shares_are_of_what_they_say() {
        let tree = train(&samples(100, |n| n >= 50), Limits::default());
        let score = Score::of(&tree, &samples(100, |n| n >= 75));
        assert_eq!((score.precision, score.recall, score.accuracy, score.always_log), (0.5, 1.0, 0.75, 0.75));
        let score = Score::of(&tree, &samples(40, |n| n >= 30));
        assert_eq!((score.precision, score.recall, score.accuracy), (0.0, 0.0, 0.75));
    }

    #[test]
    fn what_can_be_learned_is_and_noise_is_not() {
        let learned = cross_validated(&samples(200, |n| n >= 120), Limits::default(), 10, 1);
        assert!(learned.accuracy > 0.97, "{learned:?}");
        let noise = cross_validated(
            &samples(200, |n| n.wrapping_mul(2_654_435_761) >> 7 & 1 == 1),
            Limits::default(),
            10,
            1,
        );
        assert!(noise.accuracy < 0.7, "{noise:?}");
        assert_eq!(learned, cross_validated(&samples(200, |n| n >= 120), Limits::default(), 10, 1));
    }
}
