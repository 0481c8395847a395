//! Training a volume's tree anew, of the files that it judged.
//!
//! Purpose: [`Retrainer`] makes a tree of three quarters of the files. It is better than the one in force where it
//! is right about more of the others; a file that was judged several times counts as one.
//! A file that is there, and was written too seldom for its label, may still come to it: it counts for nothing.
//! Invariant: the same samples, in the same order, make the same decision.

use crate::cart::{Limits, said, train};
use crate::label::{FEW_WRITES, fragments, label};
use crate::sample::Sample;
use crate::score::{divided, files_of};
use medfs::ars::{Accuracies, FileSample, Trained, Trainer};
use medfs_format::ars::Tree;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;

/// Files below which nothing is learned: of fewer than ten to judge by, one is more than a tenth.
pub const LEAST_FILES: usize = 40;
const SEED: u64 = 1;

/// Trains volumes' trees.
#[derive(Debug, Clone, Copy, Default)]
pub struct Retrainer;

/// A sample of the engine with its label.
fn labelled(sample: &FileSample) -> Sample {
    let fate = sample.fate;
    let fragmented = fragments(fate.pages.into(), fate.pieces.into());
    // The label asks for the writes of a file's whole life, and for its kind.
    let mut end = sample.features;
    end[medfs_format::ars::Feature::Writes as usize] = fate.writes;
    Sample { features: sample.features, class: label(&end, fragmented), file: sample.file as usize }
}

/// Whether what became of a file is known.
fn is_settled(sample: &FileSample) -> bool {
    !sample.is_there || sample.fate.writes > FEW_WRITES
}

/// The share of files that a tree is right about: of one that was judged several times, the share of these.
fn right_about(tree: &Tree, judged: &[Sample]) -> f64 {
    let mut files: BTreeMap<usize, (f64, f64)> = BTreeMap::new();
    for sample in judged {
        let (right, all) = files.entry(sample.file).or_default();
        *right += f64::from(said(tree, &sample.features) == sample.class);
        *all += 1.0;
    }
    let shares: f64 = files.values().map(|(right, all)| right / all).sum();
    if files.is_empty() { 0.0 } else { shares / files.len() as f64 }
}

impl Trainer for Retrainer {
    fn train(&self, samples: &[FileSample], in_force: &Tree) -> Trained {
        let samples: Vec<Sample> = samples.iter().filter(|s| is_settled(s)).map(labelled).collect();
        let mut files = files_of(&samples);
        let few = Trained {
            files: files.len() as u64,
            least_files: LEAST_FILES as u64,
            accuracies: None,
            better: None,
        };
        if files.len() < LEAST_FILES {
            return few;
        }
        let (learned, judged) = divided(&samples, &mut files, &mut Xoshiro256PlusPlus::seed_from_u64(SEED));
        let new = train(&learned, Limits::default());
        let accuracy = |tree: &Tree| right_about(tree, &judged);
        let accuracies = Accuracies { in_force: accuracy(in_force), new: accuracy(&new) };
        let better = (accuracies.new > accuracies.in_force).then_some(new);
        Trained { accuracies: Some(accuracies), better, ..few }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs::ars::Fate;
    use medfs_format::ars::{Class, Feature, TreeNode, Values};

    /// Files that end with 500 writes, of which those with many fsyncs when they are judged lie in small pieces.
    fn samples(files: u32) -> Vec<FileSample> {
        let sample = |file: u32| {
            let mut features = Values::default();
            (features[Feature::Writes as usize], features[Feature::Fsyncs as usize]) = (16, file % 16);
            let pieces = if file % 16 > 9 { 400 } else { 1 };
            FileSample { file, features, fate: Fate { writes: 500, pages: 1000, pieces }, is_there: true }
        };
        (0..files).map(sample).collect()
    }

    fn always(class: Class) -> Tree {
        Tree::new(vec![TreeNode::Leaf { class, confidence: 100 }]).expect("a tree")
    }

    #[test]
    fn a_better_tree_takes_the_place_of_another_and_stays() {
        let trained = Retrainer.train(&samples(200), &always(Class::Log));
        let better = trained.better.expect("files differ in their fsyncs");
        let accuracies = trained.accuracies.expect("there are files enough");
        assert!(accuracies.new == 1.0 && accuracies.in_force < 0.8, "{accuracies:?}");
        let again = Retrainer.train(&samples(200), &better);
        assert_eq!(again.better, None, "as good is not better");
        assert_eq!(again.accuracies, Some(Accuracies { in_force: 1.0, new: 1.0 }));
    }

    #[test]
    fn few_files_teach_nothing() {
        let few = Retrainer.train(&samples(LEAST_FILES as u32 - 1), &always(Class::Log));
        assert_eq!((few.files, few.accuracies, few.better), (LEAST_FILES as u64 - 1, None, None));
        // Many moments of few files are few files.
        let moments: Vec<FileSample> = samples(1).repeat(100);
        assert_eq!(Retrainer.train(&moments, &always(Class::Log)).accuracies, None);
        assert!(Retrainer.train(&samples(LEAST_FILES as u32), &always(Class::Log)).accuracies.is_some());
    }

    #[test]
    fn what_became_of_a_file_labels_it() {
        let of = |writes, pages, pieces, kind: u32| {
            let mut features = Values::default();
            (features[Feature::Writes as usize], features[Feature::Kind as usize]) = (16, kind);
            labelled(&FileSample { file: 1, features, fate: Fate { writes, pages, pieces }, is_there: false })
                .class
        };
        assert_eq!(
            [of(101, 100, 50, 0), of(16, 100, 50, 0), of(101, 100, 1, 0)],
            [Class::Reserve, Class::Log, Class::Log]
        );
        assert_eq!(
            [of(101, 100, 1, 1), of(101, 100, 1, 2)],
            [Class::Reserve, Class::Log],
            "its kind decides"
        );
    }

    #[test]
    fn files_that_are_there_and_seldom_written_teach_nothing() {
        let mut all = samples(200);
        all.iter_mut().for_each(|sample| sample.fate.writes = 70);
        let always_reserve = always(Class::Reserve);
        assert_eq!(Retrainer.train(&all, &always_reserve).files, 0, "more may become of them");
        all.iter_mut().for_each(|sample| sample.is_there = false);
        assert!(Retrainer.train(&all, &always_reserve).better.is_some());
    }

    #[test]
    fn a_file_counts_once_however_often_it_was_judged() {
        let mut judged: Vec<Sample> = samples(2).iter().map(labelled).collect();
        judged[0].class = Class::Reserve;
        judged.extend(vec![judged[1].clone(); 8]);
        assert_eq!(right_about(&always(Class::Log), &judged), 0.5);
    }
}
