//! Random operations on the engine against the model, with remounts and crashes.
//!
//! The long run is a command of its own:
//! `MEDFS_SEED=7 MEDFS_OPS=100000 cargo test --release -p medfs-testkit --test random -- --ignored --nocapture`

use medfs::MountOptions;
use medfs_testkit::harness::{Setup, run_seed};
use medfs_testkit::images::{FEATURE_SETS, FsckF2fs, FsckMedfs, VOLUMES, formatted};
use medfs_testkit::volume::{mounter, test_clock};
use std::sync::Arc;
use std::time::Instant;

fn setup(mebibytes: u64, features: &str, options: &str) -> Setup {
    let clock = test_clock();
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options of the test");
    let for_mounts = clock.clone();
    Setup {
        image: formatted(mebibytes, features),
        mounter: Arc::new(move || mounter(parsed.clone(), for_mounts.clone())),
        clock: Some(clock),
        checks: vec![Arc::new(FsckMedfs), Arc::new(FsckF2fs)],
        check_every: 1,
        compare_every: 500,
    }
}

/// A number from the environment.
fn number(name: &str, otherwise: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => otherwise,
    }
}

#[test]
fn three_thousand_operations() {
    for (seed, features) in (1..).zip(VOLUMES) {
        let report = run_seed(&setup(256, features, "rw"), seed, 3000, |_| {});
        println!("seed {seed}, features [{features}]: {report:?}");
    }
}

/// A cache of a few pages and nodes: everything is evicted and read again.
#[test]
fn three_thousand_operations_with_a_tiny_cache() {
    let report = run_seed(&setup(256, FEATURE_SETS[1], "cache=1M"), 3, 3000, |_| {});
    println!("seed 3: {report:?}");
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn long_run() {
    let seed = number("MEDFS_SEED", std::process::id().into());
    let ops = number("MEDFS_OPS", 100_000) as usize;
    let options = std::env::var("MEDFS_OPTIONS").unwrap_or_else(|_| "rw".into());
    for features in VOLUMES {
        println!("seed {seed}, {ops} operations, features [{features}], options {options}");
        let start = Instant::now();
        let setup =
            Setup { check_every: number("MEDFS_CHECK_EVERY", 20) as usize, ..setup(512, features, &options) };
        let report = run_seed(&setup, seed, ops, |_| {});
        println!("{report:?} in {:.1?}", start.elapsed());
    }
}
