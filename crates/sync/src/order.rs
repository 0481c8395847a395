//! The order in which a thread takes locks: what it holds, and whether it may take another.
//!
//! Purpose: every lock that is waited for is compared with those that its
//! thread holds. One out of order is a deadlock that waits for another thread; here it panics at once,
//! whatever the other threads do.
//!
//! Invariants: a thread's list has a claim for each guard that it has, in the order in which they were taken;
//! guards stay with their thread. A thread that unwinds takes what it wants.
//! Locks: none.

use crate::rank::Rank;
use std::cell::RefCell;
use std::panic::Location;

/// How a lock is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    Shared,
    Exclusive,
}

/// A lock that a thread wants or holds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claim {
    pub(crate) key: usize,
    pub(crate) rank: Rank,
    pub(crate) want: Want,
    pub(crate) at: &'static Location<'static>,
}

impl Claim {
    /// The lock's name, and where it is taken.
    pub(crate) fn shown(&self) -> String {
        let how = if self.want == Want::Shared { "shared " } else { "" };
        format!("{how}{} ({})", self.rank.name, self.at)
    }

    /// What is wrong with taking it while those are held; `None` where nothing is.
    pub(crate) fn against(&self, held: &[Claim]) -> Option<String> {
        let against = held.iter().find(|h| {
            let same_rank = h.rank.order == self.rank.order && !self.rank.several;
            h.key == self.key || h.rank.order > self.rank.order || same_rank
        })?;
        let how = if against.key == self.key { "a lock twice" } else { "locks out of order" };
        Some(format!("takes {how}: {} while it holds {}", self.shown(), against.shown()))
    }
}

thread_local! {
    static HELD: RefCell<Vec<Claim>> = const { RefCell::new(Vec::new()) };
}

/// Panics where the calling thread may not wait for this lock.
#[track_caller]
pub(crate) fn check(claim: &Claim) {
    // The list is gone where the thread's last values are dropped.
    let wrong = HELD.try_with(|held| claim.against(&held.borrow())).ok().flatten();
    if let Some(wrong) = wrong
        && !std::thread::panicking()
    {
        panic!("this thread {wrong}");
    }
}

/// The calling thread has this lock.
pub(crate) fn took(claim: Claim) {
    let _ = HELD.try_with(|held| held.borrow_mut().push(claim));
}

/// The calling thread has given it back.
pub(crate) fn gave_back(key: usize) {
    let _ = HELD.try_with(|held| {
        let mut held = held.borrow_mut();
        if held.last().is_some_and(|claim| claim.key == key) {
            held.pop();
        } else if let Some(at) = held.iter().rposition(|claim| claim.key == key) {
            held.remove(at);
        }
    });
}
