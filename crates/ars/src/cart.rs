//! CART: the tree of questions about one feature each that divides samples best, by Gini's impurity, in integers.
//!
//! Purpose: what `linfa-trees` 0.8.1 cannot do. Of samples with equal values it sees a division only where
//! the last of them, in the order given, is in the part that is divided: 400 samples that a tree of four
//! questions tells apart made a single answer in another order. Thresholds here are values that occur, and
//! impurities are compared as fractions, so a tree does not depend on the order of samples.
//!
//! Invariant: of two equally good questions the one about the earlier feature with the smaller value is
//! asked; of two equally frequent classes the answer is [`Class::Log`], which costs nothing where it is
//! wrong.

use crate::sample::Sample;
use medfs_format::ars::{Class, Feature, Tree, TreeNode, Values};

/// Limits of the division of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most questions one after the other; 7 at most, which are 255 nodes.
    pub depth: u32,
    /// Fewest samples of an answer.
    pub least: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { depth: 5, least: 3 }
    }
}

const MOST_DEPTH: u32 = 7;

/// A node that is being made.
enum Grown {
    Leaf { class: Class, confidence: u8 },
    Split { feature: Feature, threshold: u32, children: Box<[Grown; 2]> },
}

/// Samples of each class.
#[derive(Debug, Clone, Copy, Default)]
struct Counts([u64; 2]);

impl Counts {
    fn of(samples: &[&Sample]) -> Counts {
        let mut counts = Counts::default();
        samples.iter().for_each(|sample| counts.add(sample.class));
        counts
    }

    fn add(&mut self, class: Class) {
        self.0[class as usize] += 1;
    }

    fn total(self) -> u64 {
        self.0[0] + self.0[1]
    }

    fn without(self, other: Counts) -> Counts {
        Counts([self.0[0] - other.0[0], self.0[1] - other.0[1]])
    }

    fn answer(self) -> Grown {
        let class = if self.0[1] > self.0[0] { Class::Reserve } else { Class::Log };
        let confidence = (self.0[class as usize] * 100).checked_div(self.total()).unwrap_or(0) as u8;
        Grown::Leaf { class, confidence }
    }
}

/// How mixed two parts are, each by its weight: the sum of n times Gini's impurity, which is 2ab / (a + b),
/// halved. A fraction.
fn mixed(left: Counts, right: Counts) -> (u128, u128) {
    let of = |c: Counts| (u128::from(c.0[0]) * u128::from(c.0[1]), u128::from(c.total()).max(1));
    let ((a, b), (c, d)) = (of(left), of(right));
    (a * d + c * b, b * d)
}

fn is_less((a, b): (u128, u128), (c, d): (u128, u128)) -> bool {
    a * d < c * b
}

/// The question that divides samples best, where one makes the parts purer.
fn question(samples: &[&Sample], least: usize) -> Option<(Feature, u32)> {
    let all = Counts::of(samples);
    let (mut best, mut least_mixed) = (None, mixed(all, Counts::default()));
    for feature in Feature::ALL {
        let mut sorted: Vec<(u32, Class)> =
            samples.iter().map(|sample| (sample.features[feature as usize], sample.class)).collect();
        sorted.sort_unstable();
        let mut left = Counts::default();
        for (at, pair) in sorted.windows(2).enumerate() {
            left.add(pair[0].1);
            let (on_left, on_right) = (at + 1, sorted.len() - at - 1);
            if pair[0].0 == pair[1].0 || on_left < least || on_right < least {
                continue;
            }
            let mixed = mixed(left, all.without(left));
            if is_less(mixed, least_mixed) {
                (best, least_mixed) = (Some((feature, pair[0].0)), mixed);
            }
        }
    }
    best
}

fn grow(samples: &[&Sample], depth: u32, least: usize) -> Grown {
    let answer = Counts::of(samples).answer();
    let Some((feature, threshold)) = (depth > 0).then(|| question(samples, least)).flatten() else {
        return answer;
    };
    let (left, right): (Vec<&Sample>, Vec<&Sample>) =
        samples.iter().partition(|sample| sample.features[feature as usize] <= threshold);
    let children = [left, right].map(|part| grow(&part, depth - 1, least));
    match &children {
        [Grown::Leaf { class: a, .. }, Grown::Leaf { class: b, .. }] if a == b => answer,
        _ => Grown::Split { feature, threshold, children: Box::new(children) },
    }
}

/// Writes a node and what is below it behind the nodes that are there; its number.
fn put(grown: &Grown, nodes: &mut Vec<TreeNode>) -> u8 {
    let at = nodes.len();
    match grown {
        Grown::Leaf { class, confidence } => {
            nodes.push(TreeNode::Leaf { class: *class, confidence: *confidence });
        }
        Grown::Split { feature, threshold, children } => {
            nodes.push(TreeNode::Leaf { class: Class::Log, confidence: 0 });
            let [left, right] = [0, 1].map(|child| put(&children[child], nodes));
            nodes[at] = TreeNode::Split { feature: *feature, threshold: *threshold, left, right };
        }
    }
    at as u8
}

/// The tree of samples. Without any it says that all files belong in the logs.
pub fn train(samples: &[Sample], limits: Limits) -> Tree {
    let all: Vec<&Sample> = samples.iter().collect();
    let grown = grow(&all, limits.depth.min(MOST_DEPTH), limits.least.max(1));
    let mut nodes = Vec::new();
    put(&grown, &mut nodes);
    Tree::new(nodes).expect("children are written behind their parents, and seven questions make 255 nodes")
}

/// What a tree says of features, for short.
pub(crate) fn said(tree: &Tree, features: &Values) -> Class {
    tree.judge(features).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn sample(values: &[(Feature, u32)], class: Class) -> Sample {
        let mut features = Values::default();
        values.iter().for_each(|&(feature, value)| features[feature as usize] = value);
        Sample { features, class, file: 0 }
    }

    fn class(reserve: bool) -> Class {
        if reserve { Class::Reserve } else { Class::Log }
    }

    fn wrong(tree: &Tree, samples: &[Sample]) -> usize {
        samples.iter().filter(|s| said(tree, &s.features) != s.class).count()
    }

    /// Half of the samples, by size, belong in the logs; of the others it is the kind that decides.
    fn by_size_and_kind() -> Vec<Sample> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        (0..400)
            .map(|n| {
                let (large, kind) = (n % 2 == 1, random.random_range(0..4));
                let size = if large { 100 } else { 1 };
                sample(&[(Feature::Size, size), (Feature::Kind, kind)], class(large && kind % 2 == 1))
            })
            .collect()
    }

    #[test]
    fn a_tree_tells_apart_what_can_be_told_apart_in_any_order() {
        let samples = by_size_and_kind();
        let tree = train(&samples, Limits::default());
        assert_eq!(wrong(&tree, &samples), 0, "{tree:?}");
        assert!(tree.nodes().len() <= 9, "{tree:?}");
        for order in [1usize, 3, 7, 399] {
            let turned: Vec<Sample> = (0..400).map(|n| samples[n * order % 400].clone()).collect();
            assert_eq!(train(&turned, Limits::default()), tree);
        }
        let mut parts = samples;
        parts.sort_by_key(|s| std::cmp::Reverse(s.features[Feature::Size as usize]));
        assert_eq!(train(&parts, Limits::default()), tree);
    }

    #[test]
    fn answers_have_their_least_samples_and_say_how_sure_they_are() {
        let mut samples: Vec<Sample> =
            (0..20).map(|n| sample(&[(Feature::Writes, n)], class(n >= 15))).collect();
        samples[16].class = Class::Log;
        let tree = train(&samples, Limits { depth: 5, least: 5 });
        assert_eq!(
            tree.nodes(),
            [
                TreeNode::Split { feature: Feature::Writes, threshold: 14, left: 1, right: 2 },
                TreeNode::Leaf { class: Class::Log, confidence: 100 },
                TreeNode::Leaf { class: Class::Reserve, confidence: 80 },
            ]
        );
        let one = train(&samples, Limits { depth: 0, least: 1 });
        assert_eq!(one.nodes(), [TreeNode::Leaf { class: Class::Log, confidence: 80 }]);
        assert_eq!(train(&[], Limits::default()).nodes().len(), 1);
        let undecided = [sample(&[], Class::Log), sample(&[], Class::Reserve)];
        assert_eq!(
            train(&undecided, Limits::default()).nodes(),
            [TreeNode::Leaf { class: Class::Log, confidence: 50 }]
        );
    }

    #[test]
    fn noise_makes_a_tree_that_fits_its_table() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(3);
        let samples: Vec<Sample> = (0..3000)
            .map(|_| Sample {
                features: std::array::from_fn(|_| random.random()),
                class: class(random.random()),
                file: 0,
            })
            .collect();
        let tree = train(&samples, Limits { depth: 90, least: 1 });
        assert!((100..=255).contains(&tree.nodes().len()), "{}", tree.nodes().len());
        assert_eq!(Tree::parse(&tree.to_bytes()).expect("it is sound"), tree);
    }
}
