//! What Hcluster costs: noting and judging a call in nanoseconds, and making the groups anew as the files
//! grow; and what a decision tree of ARS costs that judges a file.
//!
//! `cargo bench -p medfs --bench hotness`. The paper (section 6.4) has 1.2 us for judging and 0.9 ms for the centroids.

use criterion::{BenchmarkId, Criterion};
use medfs::ars::{self, Class, Feature, Tree, TreeNode};
use medfs::profile::{Profiles, Wrote};
use medfs::{ManualClock, Timestamp};
use std::hint::black_box;
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);

/// As many files as said, of all groups, with a history.
fn files(count: u32) -> Profiles {
    let h = Profiles::new(WINDOW, 1 << 18, Duration::ZERO);
    for ino in 0..count {
        for _ in 0..[1, 60][ino as usize % 2] {
            h.note_read(ino, 0, 1);
        }
        for _ in 0..[1, 60][ino as usize / 2 % 2] {
            h.note_write(ino, &Wrote::of_pages(1));
        }
    }
    h
}

fn calls(c: &mut Criterion) {
    for count in [1_000u32, 50_000] {
        let h = files(count);
        let mut n = 0u32;
        let mut next = || {
            n = n.wrapping_add(7919);
            n % count
        };
        c.bench_with_input(BenchmarkId::new("note_read", count), &count, |b, _| {
            b.iter(|| h.note_read(next(), 0, 1))
        });
        c.bench_with_input(BenchmarkId::new("note_write", count), &count, |b, _| {
            b.iter(|| h.note_write(next(), &Wrote::of_pages(1)));
        });
        c.bench_with_input(BenchmarkId::new("hotness", count), &count, |b, _| {
            b.iter(|| black_box(h.hotness(next())))
        });
    }
    let h = Profiles::new(WINDOW, 1 << 16, Duration::ZERO);
    let mut ino = 0u32;
    c.bench_function("note_write of ever new files, the table full", |b| {
        b.iter(|| {
            ino = ino.wrapping_add(1);
            h.note_write(ino, &Wrote::of_pages(1));
        });
    });
}

fn recluster(c: &mut Criterion) {
    let mut group = c.benchmark_group("recluster");
    group.sample_size(20).measurement_time(Duration::from_secs(3));
    for count in [100u32, 1_000, 10_000, 100_000] {
        group.bench_with_input(BenchmarkId::from_parameter(count), &count, |b, &count| {
            b.iter_custom(|times| {
                let mut spent = Duration::ZERO;
                let clock = ManualClock::new(Timestamp::default());
                let h = files(count);
                for _ in 0..times {
                    clock.advance(WINDOW);
                    let started = Instant::now();
                    assert!(h.recluster(&clock));
                    spent += started.elapsed();
                    // Touched again: otherwise they would leave.
                    (0..count).for_each(|ino| h.note_read(ino, 0, 1));
                    assert_eq!(h.stats().files, u64::from(count));
                }
                spent
            });
        });
    }
    group.finish();
}

/// Questions about each feature in turn, one behind the other, so that every one is asked.
fn chain(questions: u8) -> Tree {
    let question = |n: u8| TreeNode::Split {
        feature: Feature::ALL[usize::from(n) % Feature::ALL.len()],
        threshold: 0,
        left: 2 * n + 1,
        right: 2 * n + 2,
    };
    let answer = TreeNode::Leaf { class: Class::Log, confidence: 50 };
    let pairs = (0..questions).flat_map(|n| [question(n), answer]);
    Tree::new(pairs.chain([answer]).collect()).expect("each answer stands behind its question")
}

fn judgement(c: &mut Criterion) {
    let values = |n: u32| std::array::from_fn(|feature| n.wrapping_mul(feature as u32 + 1) | 1);
    let trees =
        [("built in", ars::built_in()), ("of 7 questions", chain(7)), ("of 127 questions", chain(127))];
    for (name, tree) in trees {
        let mut n = 0u32;
        c.bench_function(&format!("judgement by a tree {name}"), |b| {
            b.iter(|| {
                n = n.wrapping_add(7919);
                black_box(tree.judge(black_box(&values(n))))
            });
        });
    }
    let h = files(1_000);
    let mut n = 0u32;
    c.bench_function("standing of a file, asked for each page", |b| {
        b.iter(|| {
            n = n.wrapping_add(7919);
            black_box(h.standing(n % 1_000))
        });
    });
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    calls(&mut criterion);
    recluster(&mut criterion);
    judgement(&mut criterion);
    criterion.final_summary();
}
