//! Want of room at every block that a workload takes.
//!
//! All points of all workloads: `cargo test --release -p medfs-testkit --test room -- --ignored --nocapture`;
//! `MEDFS_SEED` chooses the workloads, `MEDFS_STATES` bounds the points of each kind of volume.

use medfs::MountOptions;
use medfs_testkit::crash_states::{
    Setup, Workload, on_databases, on_deltas, on_replacements, prepared, seq1, seq2,
};
use medfs_testkit::fuzz::{sample_seed, variable};
use medfs_testkit::images::{COMPRESSED, DELTAS, FEATURE_SETS, FsckMedfs, formatted};
use medfs_testkit::room::Kind;
use medfs_testkit::volume::{mounter, test_clock};
use medfs_testkit::workloads::{self, REFILLED, mixed, on_full_zones, on_names, on_refills};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Kinds of volumes: what they are formatted with, and how they are mounted.
const KINDS: [(&str, &str); 8] = [
    (FEATURE_SETS[1], ""),
    (FEATURE_SETS[1], "in_place=off"),
    (DELTAS, "delta=off,in_place=off"),
    (DELTAS, "delta=inline"),
    (DELTAS, "delta=compact,compact_files=all"),
    (DELTAS, "delta=full,compact_files=all"),
    (COMPRESSED[0], "compress=lz4"),
    (COMPRESSED[1], "compress=lz4,compact_files=all"),
];

fn kind((features, options): (&str, &str), crowded: bool) -> Kind {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options are right");
    let mut setup = Setup::new(formatted(64, features), mounter(parsed.clone(), test_clock()));
    if crowded {
        setup.preparation = workloads::crowded();
    }
    let base = Arc::new(prepared(&setup).expect("the volume is prepared"));
    let name = format!("{features} {options} crowded={crowded}");
    Kind { name, base, options: parsed, check: Arc::new(FsckMedfs) }
}

fn workloads_of(seed: u64, many: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut all = seq1();
    all.extend(seq2(seed).into_iter().take(many));
    all.extend(on_deltas(seed, many));
    all.extend(on_databases(seed, many));
    all.extend(on_replacements(seed, many));
    all.extend(on_names(seed, many));
    all.extend(on_full_zones(seed, many));
    all.extend(mixed(seed, many));
    all.shuffle(&mut random);
    all
}

/// What a run over points did.
#[derive(Debug, Default)]
struct Met {
    workloads: usize,
    points: usize,
    /// Points at which an operation failed; at the others room was made, or a block less was enough.
    failed: usize,
    wrong: Vec<String>,
}

/// Points of a kind of volume: of each workload `of_each`, until there were `most`, or time is up.
fn points(kind: &Kind, seed: u64, of_each: usize, most: usize, until: Instant) -> Met {
    let mut random = ChaCha12Rng::seed_from_u64(!seed);
    let mut met = Met::default();
    for workload in workloads_of(seed, 40) {
        let Ok(course) = kind.course(&workload) else { continue };
        let mut points = course.points();
        points.shuffle(&mut random);
        points.truncate(of_each);
        met.workloads += 1;
        for point in points {
            if met.points >= most || Instant::now() > until || met.wrong.len() >= 5 {
                return met;
            }
            met.points += 1;
            match kind.run(&course, point) {
                Ok(failed) => met.failed += usize::from(failed),
                Err(e) => met.wrong.push(format!("{}, {point:?} [{workload}]: {e}", kind.name)),
            }
        }
    }
    met
}

fn must_be_right(met: &Met) {
    assert!(met.wrong.is_empty(), "{}", met.wrong.join("\n"));
}

#[test]
fn some_k() {
    let seed = sample_seed();
    for (nth, of) in KINDS.into_iter().enumerate() {
        let kind = kind(of, false);
        let met = points(&kind, seed + nth as u64, 4, 60, Instant::now() + Duration::from_secs(10));
        println!(
            "{}: {} points of {} workloads, {} failed",
            kind.name, met.points, met.workloads, met.failed
        );
        must_be_right(&met);
    }
}

#[test]
#[ignore = "minutes"]
fn every_k() {
    let seed = sample_seed();
    let most = variable("MEDFS_STATES").unwrap_or(u64::MAX) as usize;
    let seconds = Duration::from_secs(variable("MEDFS_SECONDS").unwrap_or(100_000));
    let mut wrong = Vec::new();
    for crowded in [false, true] {
        for (nth, of) in KINDS.into_iter().enumerate() {
            let kind = kind(of, crowded);
            let met = points(&kind, seed + nth as u64, usize::MAX, most, Instant::now() + seconds);
            println!(
                "{}: {} points of {} workloads, {} failed, {} wrong",
                kind.name,
                met.points,
                met.workloads,
                met.failed,
                met.wrong.len()
            );
            wrong.extend(met.wrong);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Workloads on volumes with every number of free blocks up to this, and as many that refill one.
fn full(kind: &Kind, seed: u64, many: usize, most_free: u64, step: u64) -> (usize, usize) {
    let (mut runs, mut refused) = (0, 0);
    let others = workloads_of(seed, 20).into_iter().take(many).map(|workload| (workload, 0));
    let refills = on_refills(seed, many.div_ceil(2)).into_iter().map(|workload| (workload, REFILLED));
    for (workload, least) in others.chain(refills) {
        for free in (least..least + most_free).step_by(step as usize) {
            match kind.run_full(&workload, free) {
                Ok(some) => refused += some,
                Err(e) => panic!("{}, {free} free [{workload}]: {e}", kind.name),
            }
            runs += 1;
        }
    }
    (runs, refused)
}

#[test]
fn some_full_volumes() {
    let seed = sample_seed();
    for (nth, of) in KINDS.into_iter().enumerate() {
        let kind = kind(of, false);
        let (runs, refused) = full(&kind, seed + nth as u64, 6, 20, 5);
        println!("{}: {runs} runs, {refused} operations refused", kind.name);
    }
}

#[test]
#[ignore = "minutes"]
fn every_full_volume() {
    let seed = sample_seed();
    let many = variable("MEDFS_STATES").unwrap_or(100) as usize;
    for (nth, of) in KINDS.into_iter().enumerate() {
        let kind = kind(of, nth % 2 == 0);
        let (runs, refused) = full(&kind, seed + nth as u64, many, 24, 1);
        println!("{}: {runs} runs, {refused} operations refused", kind.name);
    }
}
