//! The scheduler finds planted faults of every kind that it knows, replays them, and loses no wake-up of its own.
#![cfg(debug_assertions)]

use medfs_sync::schedule::{Outcome, Policy, Program, run};
use medfs_sync::{Condvar, Mutex, Rank, Ranked, RwLock, point};
use std::sync::atomic::{AtomicU64, Ordering};

fn programs<'a>(of: impl IntoIterator<Item = Program<'a>>) -> Vec<(String, Program<'a>)> {
    of.into_iter().zip('a'..).map(|(program, name)| (name.to_string(), program)).collect()
}

fn policies() -> impl Iterator<Item = Policy> {
    (0..100).flat_map(|seed| {
        [Policy::Walk { seed, one_in: 1 + seed % 4 }, Policy::Pct { seed, depth: 2, length: 40 }]
    })
}

/// The first failure among random schedules.
fn failing(mut one: impl FnMut(Policy) -> Outcome) -> Outcome {
    policies().map(&mut one).find(|outcome| outcome.failure.is_some()).expect("some schedule fails")
}

/// A counter that is read and written in two steps.
fn lost_update(policy: Policy) -> Outcome {
    let counter = AtomicU64::new(0);
    let add = || -> Program<'_> {
        Box::new(|| {
            let seen = counter.load(Ordering::SeqCst);
            point();
            counter.store(seen + 1, Ordering::SeqCst);
        })
    };
    let mut outcome = run(policy, programs([add(), add()]));
    if counter.into_inner() != 2 {
        outcome.failure = Some("an update is lost".into());
    }
    outcome
}

#[test]
fn a_lost_update_is_found_and_replays() {
    let found = failing(lost_update);
    let again = lost_update(Policy::Replay(found.switches.clone()));
    assert_eq!((again.failure, again.steps, again.switches), (found.failure, found.steps, found.switches));
    // Without a switch at a wrong moment all is well.
    assert!(lost_update(Policy::Replay(Vec::new())).failure.is_none());
}

#[test]
fn the_same_seed_chooses_the_same() {
    for policy in policies() {
        let [first, second] = [policy.clone(), policy].map(lost_update);
        assert_eq!((first.steps, first.switches), (second.steps, second.switches));
    }
}

#[test]
fn two_locks_in_both_orders_are_a_deadlock() {
    let found = failing(|policy| {
        let (one, two) = (Mutex::new(()), RwLock::new(()));
        let forth = || {
            let _one = one.lock();
            let _two = two.read();
        };
        let back = || {
            let _two = two.write();
            let _one = one.lock();
        };
        run(policy, programs([Box::new(forth) as Program<'_>, Box::new(back)]))
    });
    let said = found.failure.expect("a failure");
    assert!(
        said.starts_with("deadlock:\na waits for shared leaf") && said.contains("holds [leaf ("),
        "{said}"
    );
}

#[test]
fn a_lock_against_its_rank_is_found_in_the_first_run() {
    let inner = Mutex::new(()).ranked(Rank::one(2, "inner"));
    let outer = RwLock::new(()).ranked(Rank::one(1, "outer"));
    let wrong = || {
        let _inner = inner.lock();
        let _outer = outer.write();
    };
    let outcome = run(Policy::Replay(Vec::new()), programs([Box::new(wrong) as Program<'_>]));
    let said = outcome.failure.expect("a failure");
    assert!(said.starts_with("a takes locks out of order: outer"), "{said}");
}

#[test]
fn a_lock_that_a_thread_reads_twice_is_found_in_the_first_run() {
    let lock = RwLock::new(());
    let twice = || {
        let _first = lock.read();
        let _second = lock.read();
    };
    let outcome = run(Policy::Replay(Vec::new()), programs([Box::new(twice) as Program<'_>]));
    assert!(outcome.failure.expect("a failure").starts_with("a takes a lock twice: shared leaf"));
}

#[test]
fn a_reader_does_not_pass_a_writer_that_waits() {
    for policy in policies() {
        let (lock, order) = (RwLock::new(()), Mutex::new(Vec::new()));
        let write = || {
            let _lock = lock.write();
            order.lock().push("write");
        };
        let read = || {
            for _ in 0..50 {
                let _lock = lock.read();
                order.lock().push("read");
            }
        };
        let outcome = run(policy, programs([Box::new(read) as Program<'_>, Box::new(read), Box::new(write)]));
        assert_eq!(outcome.failure, None);
        assert_eq!(order.into_inner().len(), 101);
    }
}

#[test]
fn a_condition_wakes_who_waits_for_it() {
    for policy in policies() {
        let (queue, changed) = (Mutex::new(0u32), Condvar::new());
        let give = || {
            for _ in 0..5 {
                *queue.lock() += 1;
                changed.notify_one();
            }
        };
        let take = || {
            for _ in 0..5 {
                let mut queue = queue.lock();
                while *queue == 0 {
                    changed.wait(&mut queue);
                }
                *queue -= 1;
            }
        };
        let outcome = run(policy, programs([Box::new(give) as Program<'_>, Box::new(take)]));
        assert_eq!((outcome.failure, *queue.lock()), (None, 0));
    }
}

#[test]
fn a_wake_up_that_came_too_early_is_a_deadlock() {
    let found = failing(|policy| {
        let (lock, changed) = (Mutex::new(()), Condvar::new());
        let notify = || changed.notify_all();
        let wait = || changed.wait(&mut lock.lock());
        run(policy, programs([Box::new(notify) as Program<'_>, Box::new(wait)]))
    });
    assert!(found.failure.expect("a failure").contains("b waits for a condition"));
}

#[test]
fn a_panic_ends_the_run_and_frees_the_locks() {
    let lock = Mutex::new(0);
    let panics = || -> () {
        let _lock = lock.lock();
        panic!("said so");
    };
    let waits = || drop(lock.lock());
    let outcome =
        run(Policy::Replay(Vec::new()), programs([Box::new(panics) as Program<'_>, Box::new(waits)]));
    let said = outcome.failure.expect("a failure");
    assert!(said.starts_with("said so (") && said.contains("schedule.rs"), "{said}");
    assert!(lock.try_lock().is_some());
}

#[test]
fn a_thread_that_tries_for_ever_lets_others_run() {
    for seed in 0..50 {
        let lock = Mutex::new(());
        let holds = || {
            let _lock = lock.lock();
            (0..100).for_each(|_| point());
        };
        let tries = || while lock.try_lock().is_none() {};
        let policy = Policy::Pct { seed, depth: 3, length: 60 };
        let outcome = run(policy, programs([Box::new(holds) as Program<'_>, Box::new(tries)]));
        assert_eq!(outcome.failure, None);
    }
}

#[test]
fn outside_of_a_run_the_locks_are_locks() {
    let (lock, shared, changed) = (Mutex::new(false), RwLock::new(1), Condvar::new());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            *shared.write() += 1;
            *lock.lock() = true;
            changed.notify_all();
        });
        let mut done = lock.lock();
        while !*done {
            changed.wait(&mut done);
        }
    });
    assert_eq!(*shared.read(), 2);
}
