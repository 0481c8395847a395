//! The time of an operation, for its record, and the time of the record when it is done again.
//!
//! Invariant: an operation that is done again stamps what it stamped. Locks: none; what is kept belongs to the thread.

use crate::types::Timestamp;
use medfs_store::Clock;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

thread_local! {
    /// The time that this thread was told last.
    static TOLD: Cell<Timestamp> = const { Cell::new(Timestamp { secs: 0, nanos: 0 }) };
    /// The time that it is to be told.
    static AGAIN: Cell<Option<Timestamp>> = const { Cell::new(None) };
}

/// A clock that remembers what it said.
pub(crate) struct OpClock(pub(crate) Arc<dyn Clock>);

impl Clock for OpClock {
    fn now(&self) -> Timestamp {
        let now = AGAIN.get().unwrap_or_else(|| self.0.now());
        TOLD.set(now);
        now
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

/// The time that the operation of this thread was told.
pub(super) fn told() -> Timestamp {
    TOLD.get()
}

/// Runs something at another time.
pub(super) fn at<R>(time: Timestamp, run: impl FnOnce() -> R) -> R {
    AGAIN.set(Some(time));
    let done = run();
    AGAIN.set(None);
    done
}
