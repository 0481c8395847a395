//! The locks of the engine.
//!
//! Purpose: in a build without debug assertions the locks are those of `parking_lot`, re-exported, and ranks
//! and points are nothing. With debug assertions they have the same interface and their ranks: a thread that
//! waits for a lock out of order panics (`order`). A test may then have a deterministic scheduler (`schedule`)
//! decide at each of them which of its threads goes on. Such a run replays from its seed.
//!
//! Invariants: neither changes a result, only which thread runs when. A thread that no scheduler runs waits
//! for the locks as they are.
//! Locks: this crate holds none of its own beyond a call in builds without debug assertions; the scheduler's is a leaf.
#![forbid(unsafe_code)]

#[cfg(debug_assertions)]
mod locks;
#[cfg(debug_assertions)]
mod order;
mod rank;
#[cfg(debug_assertions)]
pub mod schedule;

pub use rank::{Rank, Ranked};

#[cfg(debug_assertions)]
pub use locks::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(debug_assertions))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(debug_assertions))]
mod unranked {
    use crate::rank::{Rank, Ranked};

    impl<T> Ranked for parking_lot::Mutex<T> {
        #[inline(always)]
        fn ranked(self, _: Rank) -> Self {
            self
        }
    }

    impl<T> Ranked for parking_lot::RwLock<T> {
        #[inline(always)]
        fn ranked(self, _: Rank) -> Self {
            self
        }
    }
}

/// A place where another thread may run, beside the locks: a call of the device, a step between two shared values.
/// Nothing in builds without debug assertions.
#[inline(always)]
#[track_caller]
pub fn point() {
    #[cfg(debug_assertions)]
    schedule::point(std::panic::Location::caller());
}
