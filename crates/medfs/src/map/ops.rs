//! The operation lock, and which threads hold it.
//!
//! Invariant: a thread is in the list of this lock as long as it has a guard of it. Builds without debug assertions
//! keep no list.
//! Locks: `ops` itself (4).

use crate::ranks;
use medfs_sync::{Ranked, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(debug_assertions)]
use std::cell::RefCell;

#[cfg(debug_assertions)]
thread_local! {
    /// The operation locks that this thread holds, by where they are.
    static HELD: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// The operation lock of a map: shared by every operation that changes the volume, exclusive for a checkpoint.
pub(crate) struct Ops(RwLock<()>);

impl Ops {
    pub(super) fn new() -> Ops {
        Ops(RwLock::new(()).ranked(ranks::OPS))
    }

    /// Lets no checkpoint begin. Of itself that is for recovery, which rolls forward in memory even where the
    /// volume is only read; operations take [`Map::op`](crate::map::Map::op).
    pub(crate) fn shared(&self) -> Shared<'_> {
        let guard = self.0.read();
        Shared { _within: Within::of(self), _guard: guard }
    }

    /// Waits for all operations to end, and keeps others from beginning.
    pub(crate) fn alone(&self) -> Alone<'_> {
        let guard = self.0.write();
        Alone { _within: Within::of(self), _guard: guard }
    }

    /// Panics, in a build with debug assertions, where this thread does not hold the lock.
    #[track_caller]
    pub(super) fn check_within(&self) {
        #[cfg(debug_assertions)]
        {
            let at = std::ptr::from_ref(self).addr();
            let within = HELD.with_borrow(|held| held.contains(&at));
            assert!(within || std::thread::panicking(), "a file's nodes are changed outside of an operation");
        }
    }
}

/// This thread holds an operation lock.
struct Within(#[cfg(debug_assertions)] usize);

impl Within {
    fn of(_ops: &Ops) -> Within {
        #[cfg(debug_assertions)]
        {
            let at = std::ptr::from_ref(_ops).addr();
            HELD.with_borrow_mut(|held| held.push(at));
            Within(at)
        }
        #[cfg(not(debug_assertions))]
        Within()
    }
}

#[cfg(debug_assertions)]
impl Drop for Within {
    fn drop(&mut self) {
        HELD.with_borrow_mut(|held| {
            if let Some(at) = held.iter().rposition(|&at| at == self.0) {
                held.remove(at);
            }
        });
    }
}

/// No checkpoint begins.
pub(crate) struct Shared<'a> {
    _within: Within,
    _guard: RwLockReadGuard<'a, ()>,
}

/// No operation goes on but that of this thread: a checkpoint.
pub(crate) struct Alone<'a> {
    _within: Within,
    _guard: RwLockWriteGuard<'a, ()>,
}
