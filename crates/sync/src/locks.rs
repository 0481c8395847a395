//! Locks that know their rank, with the interface of `parking_lot`'s.
//!
//! Invariants: a lock that is waited for is compared with what its thread holds (`order`).
//! A thread that the scheduler runs never waits for a lock inside `parking_lot`: it tries, and tells the scheduler
//! that it is blocked where that fails. The scheduler is asked before a lock is taken and after it is given back.
//! A reader waits while a writer does, as in `parking_lot`, so that a lock that is read twice by a thread is found.
//! Locks: those that they stand for.

use crate::order::{self, Claim, Want};
use crate::rank::{Rank, Ranked};
use crate::schedule::Me;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// A mutex; see `parking_lot::Mutex`.
pub struct Mutex<T> {
    rank: Rank,
    inner: parking_lot::Mutex<T>,
}

/// Holds a [`Mutex`].
pub struct MutexGuard<'a, T> {
    lock: &'a Mutex<T>,
    /// Absent only while a condition is waited for and while the guard is dropped.
    inner: Option<parking_lot::MutexGuard<'a, T>>,
}

/// Where a lock is, which is its identity as long as a thread holds it or waits for it.
fn key<T>(lock: &T) -> usize {
    std::ptr::from_ref(lock).addr()
}

/// Takes a lock: as the scheduler says, where one runs the thread, otherwise by waiting.
fn take<G>(claim: Claim, wait: impl FnOnce() -> G, attempt: impl FnMut() -> Option<G>) -> G {
    if let Some(me) = Me::current() {
        return me.take(claim, attempt);
    }
    order::check(&claim);
    let guard = wait();
    order::took(claim);
    guard
}

/// Takes a lock where it is free, in any order: the thread does not wait for it.
fn try_take<G>(claim: Claim, attempt: impl FnOnce() -> Option<G>) -> Option<G> {
    if let Some(me) = Me::current() {
        return me.try_take(claim, attempt);
    }
    let guard = attempt()?;
    order::took(claim);
    Some(guard)
}

impl<T> Mutex<T> {
    /// A mutex around a value.
    pub const fn new(value: T) -> Mutex<T> {
        Mutex { rank: Rank::LEAF, inner: parking_lot::Mutex::new(value) }
    }

    fn claim(&self, at: &'static Location<'static>) -> Claim {
        Claim { key: key(self), rank: self.rank, want: Want::Exclusive, at }
    }

    /// Waits for the mutex.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let inner = take(self.claim(Location::caller()), || self.inner.lock(), || self.inner.try_lock());
        MutexGuard { lock: self, inner: Some(inner) }
    }

    /// The mutex, where it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = try_take(self.claim(Location::caller()), || self.inner.try_lock());
        inner.map(|inner| MutexGuard { lock: self, inner: Some(inner) })
    }

    /// Whether it is held.
    #[track_caller]
    pub fn is_locked(&self) -> bool {
        crate::point();
        self.inner.is_locked()
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// The value alone.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T> Ranked for Mutex<T> {
    fn ranked(self, rank: Rank) -> Self {
        Mutex { rank, ..self }
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the guard holds its lock")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("the guard holds its lock")
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        give_back(key(self.lock), &mut self.inner);
    }
}

fn give_back<G>(key: usize, guard: &mut Option<G>) {
    // An unwinding thread whose wait ended without its lock has none to give back.
    if guard.take().is_none() {
        return;
    }
    order::gave_back(key);
    if let Some(me) = Me::current() {
        me.gave_back(key);
    }
}

/// A lock of one writer or many readers; see `parking_lot::RwLock`.
pub struct RwLock<T> {
    rank: Rank,
    inner: parking_lot::RwLock<T>,
}

/// Holds a [`RwLock`] for reading.
pub struct RwLockReadGuard<'a, T> {
    lock: &'a RwLock<T>,
    inner: Option<parking_lot::RwLockReadGuard<'a, T>>,
}

/// Holds a [`RwLock`] for writing.
pub struct RwLockWriteGuard<'a, T> {
    lock: &'a RwLock<T>,
    inner: Option<parking_lot::RwLockWriteGuard<'a, T>>,
}

impl<T> RwLock<T> {
    /// A lock around a value.
    pub const fn new(value: T) -> RwLock<T> {
        RwLock { rank: Rank::LEAF, inner: parking_lot::RwLock::new(value) }
    }

    fn claim(&self, want: Want, at: &'static Location<'static>) -> Claim {
        Claim { key: key(self), rank: self.rank, want, at }
    }

    /// Waits to read.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let claim = self.claim(Want::Shared, Location::caller());
        let inner = take(claim, || self.inner.read(), || self.inner.try_read());
        RwLockReadGuard { lock: self, inner: Some(inner) }
    }

    /// Waits to write.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let claim = self.claim(Want::Exclusive, Location::caller());
        let inner = take(claim, || self.inner.write(), || self.inner.try_write());
        RwLockWriteGuard { lock: self, inner: Some(inner) }
    }

    /// Reads, where that needs no waiting.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let claim = self.claim(Want::Shared, Location::caller());
        let inner = try_take(claim, || self.inner.try_read());
        inner.map(|inner| RwLockReadGuard { lock: self, inner: Some(inner) })
    }

    /// Writes, where that needs no waiting.
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let claim = self.claim(Want::Exclusive, Location::caller());
        let inner = try_take(claim, || self.inner.try_write());
        inner.map(|inner| RwLockWriteGuard { lock: self, inner: Some(inner) })
    }

    /// The value, without locking.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }

    /// The value alone.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T> Ranked for RwLock<T> {
    fn ranked(self, rank: Rank) -> Self {
        RwLock { rank, ..self }
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the guard holds its lock")
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.inner.as_ref().expect("the guard holds its lock")
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.inner.as_mut().expect("the guard holds its lock")
    }
}

impl<T> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        give_back(key(self.lock), &mut self.inner);
    }
}

impl<T> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        give_back(key(self.lock), &mut self.inner);
    }
}

/// A condition that threads wait for; see `parking_lot::Condvar`.
#[derive(Default)]
pub struct Condvar {
    inner: parking_lot::Condvar,
}

impl Condvar {
    /// A condition that no thread waits for.
    pub const fn new() -> Condvar {
        Condvar { inner: parking_lot::Condvar::new() }
    }

    /// Gives the mutex back until another thread notifies this one.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(me) = Me::current() {
            let at = Location::caller();
            // From here on a notification reaches this thread, also while it gives the mutex back.
            me.begin_wait(key(self), at);
            give_back(key(guard.lock), &mut guard.inner);
            me.wait_notified();
            guard.inner = Some(me.take(guard.lock.claim(at), || guard.lock.inner.try_lock()));
            return;
        }
        let claim = guard.lock.claim(Location::caller());
        order::gave_back(claim.key);
        order::check(&claim);
        self.inner.wait(guard.inner.as_mut().expect("the guard holds its lock"));
        order::took(claim);
    }

    /// Wakes a thread that waits.
    #[track_caller]
    pub fn notify_one(&self) {
        self.inner.notify_one();
        if let Some(me) = Me::current() {
            me.notify(key(self), 1, Location::caller());
        }
    }

    /// Wakes all threads that wait.
    #[track_caller]
    pub fn notify_all(&self) {
        self.inner.notify_all();
        if let Some(me) = Me::current() {
            me.notify(key(self), usize::MAX, Location::caller());
        }
    }
}
