//! Schedules of the engine's threads; see `medfs_testkit::schedules`. MEDFS_SEED and MEDFS_SCHEDULES say which and how many.

use medfs_testkit::schedules::Case;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

/// Runs so many cases on two threads, and prints those that fail.
fn run(first: u64, count: u64, most_failures: u64) -> u64 {
    let (next, failed, steps) = (AtomicU64::new(first), AtomicU64::new(0), AtomicU64::new(0));
    let begun = Instant::now();
    let work = || {
        while failed.load(Ordering::SeqCst) < most_failures {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            if seed >= first + count {
                break;
            }
            let case = Case::of_seed(seed);
            let outcome = case.run(case.policy.clone());
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
    failed.into_inner()
}

#[test]
fn random_schedules_keep_what_was_promised() {
    assert_eq!(run(number("MEDFS_SEED", 1), number("MEDFS_SCHEDULES", 300), 1), 0, "see above");
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
