//! Builds with debug assertions refuse locks out of order; no scheduler runs here.
#![cfg(debug_assertions)]

use medfs_sync::{Condvar, Mutex, Rank, Ranked, RwLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

const OUTER: Rank = Rank::one(1, "outer");
const MANY: Rank = Rank::several(2, "many");
const INNER: Rank = Rank::one(3, "inner");

/// What the panic of a call says; empty where it does not panic.
fn said(call: impl FnOnce()) -> String {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(()) => String::new(),
        Err(panic) => panic.downcast_ref::<String>().cloned().unwrap_or_default(),
    }
}

#[test]
fn a_planted_inversion_panics_and_names_both_locks() {
    let (outer, inner) = (RwLock::new(()).ranked(OUTER), Mutex::new(()).ranked(INNER));
    let forth = || {
        let _outer = outer.read();
        let _inner = inner.lock();
    };
    let back = || {
        let _inner = inner.lock();
        let _outer = outer.read();
    };
    assert_eq!(said(forth), "");
    let text = said(back);
    assert!(
        text.starts_with("this thread takes locks out of order: shared outer (crates/sync/tests/order.rs:"),
        "{text}"
    );
    assert!(text.contains("while it holds inner (crates/sync/tests/order.rs:"), "{text}");
    assert_eq!(said(forth), "", "what the panic unwound is given back");
}

#[test]
fn a_lock_is_taken_once_and_of_a_rank_for_one_only_one() {
    let (one, other) = (Mutex::new(()).ranked(INNER), Mutex::new(()).ranked(INNER));
    let (many, more) = (Mutex::new(()).ranked(MANY), Mutex::new(()).ranked(MANY));
    let both = |a: &Mutex<()>, b: &Mutex<()>| {
        said(|| {
            let _a = a.lock();
            let _b = b.lock();
        })
    };
    assert!(both(&one, &other).contains("out of order"));
    assert_eq!(both(&many, &more), "");
    assert_eq!(both(&more, &many), "", "their order among each other is not checked");
    let lock = RwLock::new(());
    let twice = said(|| {
        let _first = lock.read();
        let _second = lock.read();
    });
    assert!(twice.contains("takes a lock twice: shared leaf"), "{twice}");
}

#[test]
fn what_is_only_tried_is_in_any_order_and_counts_as_held() {
    let (outer, inner) = (Mutex::new(()).ranked(OUTER), Mutex::new(()).ranked(INNER));
    let tried = said(|| {
        let _inner = inner.lock();
        drop(outer.try_lock().expect("it is free"));
    });
    assert_eq!(tried, "");
    let then_waited = said(|| {
        let _inner = inner.try_lock();
        let _outer = outer.lock();
    });
    assert!(then_waited.contains("out of order"), "{then_waited}");
}

#[test]
fn guards_go_in_any_order_and_each_thread_has_its_own() {
    let (outer, inner) = (Mutex::new(()).ranked(OUTER), Mutex::new(()).ranked(INNER));
    let (first, second) = (outer.lock(), inner.lock());
    drop(first);
    drop(second);
    let _inner = inner.lock();
    std::thread::scope(|scope| {
        scope.spawn(|| drop(outer.lock())).join().expect("the other thread holds nothing");
    });
}

#[test]
fn a_condition_gives_its_mutex_back_and_takes_it_in_order() {
    let (state, changed) = (Mutex::new(false).ranked(INNER), Condvar::new());
    let inside = Mutex::new(()).ranked(Rank::one(9, "inside"));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(5));
            *state.lock() = true;
            changed.notify_all();
        });
        let mut set = state.lock();
        while !*set {
            changed.wait(&mut set);
        }
    });
    let wrong = said(|| {
        let mut set = state.lock();
        let _inside = inside.lock();
        changed.wait(&mut set);
    });
    assert!(wrong.contains("takes locks out of order: inner"), "{wrong}");
}
