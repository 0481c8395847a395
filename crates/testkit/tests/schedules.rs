//! Schedules of the engine's threads; see `medfs_testkit::schedules`. MEDFS_SEED and MEDFS_SCHEDULES say
//! which and how many.
#![cfg(debug_assertions)]

use medfs_sync::schedule::Policy;
use medfs_testkit::images::{COMPRESSED, DELTAS};
use medfs_testkit::schedules::program::{Op, Part};
use medfs_testkit::schedules::{Case, Met};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Runs so many cases on two threads, and prints those that fail.
fn run(first: u64, count: u64, most_failures: u64) -> u64 {
    let (next, failed, steps) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let (begun, met) = (Instant::now(), Met::default());
    let work = || {
        while failed.load(Ordering::SeqCst) < most_failures {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= first + count {
                break;
            }
            let case = Case::of_seed(seed);
            let outcome = case.run_counted(case.policy.clone(), &met);
            steps.fetch_add(outcome.steps, Ordering::SeqCst);
            if outcome.failure.is_some() {
                failed.fetch_add(1, Ordering::SeqCst);
                match case.failure() {
                    Some(failure) => println!("{failure}"),
                    None => println!("{case}  failed once: {:?}", outcome.failure),
                }
            }
        }
    };
    std::thread::scope(|scope| {
        (0..number("MEDFS_JOBS", 2)).for_each(|_| drop(scope.spawn(work)));
    });
    let seconds = begun.elapsed().as_secs_f64();
    let done = next.load(Ordering::SeqCst).min(first + count) - first;
    println!(
        "{done} schedules from seed {first} in {seconds:.1} s, {:.0} each second, {} points each, {} failed",
        done as f64 / seconds,
        steps.load(Ordering::SeqCst) / done.max(1),
        failed.load(Ordering::SeqCst)
    );
    println!("{met:?}");
    failed.into_inner()
}

#[test]
fn random_schedules_keep_what_was_promised() {
    assert_eq!(run(number("MEDFS_SEED", 1), number("MEDFS_SCHEDULES", 100), 1), 0, "see above");
}

#[test]
#[ignore = "takes as long as MEDFS_SCHEDULES says"]
fn many_schedules_keep_what_was_promised() {
    assert_eq!(
        run(number("MEDFS_SEED", 1), number("MEDFS_SCHEDULES", 10_000), number("MEDFS_FAILURES", 5)),
        0,
        "see above"
    );
}

/// Random schedules of one program on a volume with deltas.
fn program(programs: Vec<Vec<Op>>, count: u64) {
    for seed in 0..count {
        let policy = match seed % 2 {
            0 => Policy::Walk { seed, one_in: 1 << (seed / 2 % 7) },
            _ => Policy::Pct { seed, depth: 2, length: 64 << (seed / 2 % 5) },
        };
        let (options, programs) = ("cache=1M".to_owned(), programs.clone());
        let case = Case { seed, features: DELTAS, options, crowded: false, programs, policy };
        if let Some(failure) = case.failure() {
            panic!("{failure}");
        }
    }
}

/// While a page is overwritten in place another thread writes a file that may be made from it.
#[test]
fn a_block_that_is_being_overwritten_is_no_base() {
    let part = Part::Document;
    let edits = vec![
        Op::Patch { part, first: 2, count: 1, seed: 1 },
        Op::Fsync { part, datasync: true },
        Op::Evict,
        Op::Pages { part, first: 1, count: 3, seed: 2 },
        Op::Fsync { part, datasync: false },
    ];
    program(vec![edits, vec![Op::Draft { part, draft: 1, seed: 3 }]], number("MEDFS_SCHEDULES", 200));
}

/// One thread after the other: a lock against the order, or taken twice by a thread, is found without any switch.
#[test]
fn no_lock_is_taken_twice_or_out_of_order() {
    for (features, part) in [(DELTAS, Part::Short), (DELTAS, Part::Log), (COMPRESSED[1], Part::Log)] {
        let changes = vec![
            Op::Patch { part, first: 0, count: 2, seed: 1 },
            Op::Fsync { part, datasync: false },
            Op::Frames { part, first: 1, count: 4, seed: 2 },
            Op::Fsync { part, datasync: true },
            Op::Replace { part, fsync: true, seed: 3 },
            Op::FsyncMany { parts: vec![part, Part::Database], datasync: false },
            Op::Atomic { part, first: 0, count: 2, seed: 4 },
            Op::Rename { part },
            Op::Append { part: Part::Long, bytes: 900, seed: 5 },
            Op::Truncate { part: Part::Long, size: 12_345 },
            Op::Unlink { part: Part::Database },
            Op::Sync,
            Op::Idle,
            Op::Background { seconds: 100 },
        ];
        let options = "compress_extension=*,cache=1M".to_owned();
        let policy = Policy::Replay(Vec::new());
        let case = Case { seed: 1, features, options, crowded: false, programs: vec![changes], policy };
        if let Some(failure) = case.failure() {
            panic!("{failure}");
        }
    }
}
