//! The locks of the engine.
//!
//! Purpose: in every ordinary build the locks are those of `parking_lot`, re-exported, and ranks and points are nothing.
//! With the feature `schedule` they have the same interface, and a deterministic scheduler (`schedule`) decides at
//! each of them which thread goes on. A run of threads then replays from its seed.
//!
//! Invariants: the feature changes no result, only which thread runs when. A thread that no scheduler runs uses the locks as
//! they are.
//! Locks: this crate holds none of its own beyond a call in ordinary builds; the scheduler's is a leaf.
#![forbid(unsafe_code)]

#[cfg(feature = "schedule")]
mod locks;
#[cfg(feature = "schedule")]
pub mod schedule;

#[cfg(feature = "schedule")]
pub use locks::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(feature = "schedule"))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The place of a lock in the order in which locks are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rank {
    /// Its name in messages.
    pub name: &'static str,
    /// A thread that holds a lock takes none of a smaller number.
    pub order: u8,
    /// Whether a thread may hold several of them; their order among each other is then not checked.
    pub several: bool,
}

impl Rank {
    /// A lock of which a thread holds one.
    pub const fn one(order: u8, name: &'static str) -> Rank {
        Rank { name, order, several: false }
    }
    /// A lock of which a thread may hold several.
    pub const fn several(order: u8, name: &'static str) -> Rank {
        Rank { name, order, several: true }
    }
    /// Those without a rank: taken last, and in an order of their own.
    pub const LEAF: Rank = Rank::several(u8::MAX, "leaf");
}

/// Gives a lock its rank, which the scheduler checks. Nothing in ordinary builds.
pub trait Ranked {
    /// The lock, with its rank.
    fn ranked(self, rank: Rank) -> Self;
}

#[cfg(not(feature = "schedule"))]
mod unranked {
    use super::{Rank, Ranked};

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
/// Nothing in ordinary builds.
#[inline(always)]
#[track_caller]
pub fn point() {
    #[cfg(feature = "schedule")]
    schedule::point(std::panic::Location::caller());
}
