//! Power is lost again while a volume is being opened after a crash, or soon after; see
//! [`medfs_testkit::second_crash`].
//!
//! A long run: `MEDFS_SEED=7 MEDFS_STATES=100000 cargo test --release -p medfs-testkit --test second_crash --
//! --ignored --nocapture`. One seed alone: `MEDFS_SEED=7 MEDFS_STATES=1`.

use medfs::MountOptions;
use medfs_device::crash::CrashPlan;
use medfs_testkit::combine::{Combination, until_enough};
use medfs_testkit::crash_states::{Report, Setup};
use medfs_testkit::fuzz::variable;
use medfs_testkit::images::{
    COMPRESSED, Exported, FEATURE_SETS, FsckF2fs, FsckMedfs, formatted, options_for,
};
use medfs_testkit::second_crash::{Lives, run};
use medfs_testkit::volume::mounter_in_time;
use medfs_testkit::workloads;
use std::sync::Arc;
use std::time::Duration;

/// Plain F2FS: without features, with those that deltas need, with compressed files.
const PLAIN: [&str; 3] = [FEATURE_SETS[0], FEATURE_SETS[1], COMPRESSED[0]];
/// One seed of so many is of plain F2FS; the others meet all combinations of options of volumes with deltas.
const PLAIN_EVERY: u64 = 4;

/// One seed of so many finds a volume that has to be cleaned.
const CROWDED_EVERY: u64 = 7;

/// What a seed decides beside the lives: the kind of volume and the options.
fn lives(seed: u64, cuts: &[usize]) -> (Option<Combination>, String, Lives) {
    let (combination, features, options) = if seed.is_multiple_of(PLAIN_EVERY) {
        let features = PLAIN[(seed / PLAIN_EVERY % 3) as usize];
        let in_place = ["off", "fsync", "force"][(seed / PLAIN_EVERY / 3 % 3) as usize];
        (None, features, format!("{},in_place={in_place}", options_for(features)))
    } else {
        let number = seed - seed / PLAIN_EVERY - 1;
        let combination = Combination::of_seed(number);
        (Some(combination), combination.features(), combination.options_of(number))
    };
    let parsed = |options: &str| {
        let mut parsed = MountOptions::default();
        parsed.parse(options).expect("options are right");
        parsed
    };
    let step = Duration::from_millis([1, 10, 4][(seed % 3) as usize]);
    let mounter = mounter_in_time(parsed(&options), step);
    let mut setup = Setup::new(formatted(64, features), mounter);
    setup.plan = CrashPlan { exhaustive: 64, samples: 16, ..setup.plan };
    if seed % CROWDED_EVERY == 1 {
        setup.preparation = workloads::crowded();
    }
    setup.raw_checks = vec![Arc::new(FsckMedfs)];
    setup.checks = vec![Arc::new(FsckMedfs)];
    if seed.is_multiple_of(5) {
        setup.checks.push(Arc::new(FsckF2fs));
        setup.checks.push(Arc::new(Exported));
    }
    (setup.raw_every, setup.check_every, setup.max_failures) = (16, 16, 3);
    let read_only = mounter_in_time(parsed(&format!("{options},ro")), step);
    (combination, options, Lives { setup, read_only, cuts: cuts.to_vec() })
}

fn one(seed: u64, cuts: &[usize]) -> (Option<Combination>, Report) {
    let (combination, options, lives) = lives(seed, cuts);
    let report = run(&lives, seed);
    assert!(report.failures.is_empty(), "MEDFS_SEED={seed}, {options}: {report}");
    (combination, report)
}

/// A few seeds, other ones each day of testing where MEDFS_SEED says so.
#[test]
fn some_second_crashes() {
    let first = variable("MEDFS_SEED").unwrap_or(1);
    let mut total = Report::default();
    for seed in first..first + 12 {
        total += one(seed, &[6, 4, 2]).1;
    }
    println!("seeds from {first} on: {total}");
    assert!(total.nested > 20 && total.states > 400, "{total}");
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn many_second_crashes() {
    until_enough(|seed| one(seed, &[10, 5, 3]));
}
