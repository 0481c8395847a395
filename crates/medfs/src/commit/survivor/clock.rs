//! The time of an operation, for its record, and the time of the record when it is done again.
//!
//! Invariant: an operation that is recorded is told one time, however often it asks, and is told the same one
//! when it is done again. Locks: none; what is kept belongs to the thread.

use crate::types::Timestamp;
use medfs_store::Clock;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, Copy)]
enum Told {
    /// No operation goes on.
    Outside,
    /// It has not asked.
    Nothing,
    At(Timestamp),
}

thread_local! {
    static TOLD: Cell<Told> = const { Cell::new(Told::Outside) };
    static AGAIN: Cell<Option<Timestamp>> = const { Cell::new(None) };
}

/// A clock that stands still during an operation.
pub(crate) struct OpClock(pub(crate) Arc<dyn Clock>);

impl Clock for OpClock {
    fn now(&self) -> Timestamp {
        let now = || AGAIN.get().unwrap_or_else(|| self.0.now());
        match TOLD.get() {
            Told::Outside => now(),
            Told::At(time) => time,
            Told::Nothing => {
                let now = now();
                TOLD.set(Told::At(now));
                now
            }
        }
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

/// This thread begins an operation.
pub(super) fn begins() {
    TOLD.set(Told::Nothing);
}

/// It ends it.
pub(super) fn ends() {
    TOLD.set(Told::Outside);
}

/// The time that the operation of this thread was told; any where it did not ask.
pub(super) fn told() -> Timestamp {
    match TOLD.get() {
        Told::At(time) => time,
        Told::Nothing | Told::Outside => Timestamp { secs: 0, nanos: 0 },
    }
}

/// Runs something at another time.
pub(super) fn at<R>(time: Timestamp, run: impl FnOnce() -> R) -> R {
    AGAIN.set(Some(time));
    let done = run();
    AGAIN.set(None);
    done
}
