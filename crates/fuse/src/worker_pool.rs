//! The workers of one queue of requests.
//!
//! Invariant: while a queue is served at all, at least one of its workers waits for requests or serves one
//! that ends by itself. An operation that makes the kernel send more requests before it can end (writing back
//! the page cache of a file while its ioctl is being served) is *nested*; [`WorkerPool::with_spare_worker`]
//! starts another worker first where the nested ones would be all there are. Without that the kernel's
//! requests would wait for us and we for them.

use crate::request::Errno;
use parking_lot::Mutex;
use std::io;

/// Workers a pool may start beyond its first ones.
const EXTRA_WORKERS_MAX: usize = 64;

/// Starts a worker; gets the node id of the regular file for whose sake that is needed.
type Spawn = Box<dyn Fn(u64) -> io::Result<()> + Send + Sync>;

/// The workers of one queue. Lock: `state` is a leaf, never held across anything that blocks.
pub(crate) struct WorkerPool {
    state: Mutex<State>,
    spawn: Spawn,
}

struct State {
    workers: usize,
    extra: usize,
    nested: usize,
}

impl WorkerPool {
    /// A pool of `workers` workers, which `spawn` enlarges by one. When it returns the new one must be ready to be
    /// given requests, those included that wait already.
    pub(crate) fn new(workers: usize, spawn: Spawn) -> WorkerPool {
        WorkerPool { state: Mutex::new(State { workers, extra: 0, nested: 0 }), spawn }
    }

    /// Runs what makes the kernel send requests about a regular file to this queue before it ends. `EAGAIN`
    /// where too many do so at once.
    pub(crate) fn with_spare_worker<T>(&self, nodeid: u64, f: impl FnOnce() -> T) -> Result<T, Errno> {
        let enlarge = {
            let mut state = self.state.lock();
            let enlarge = state.nested + 1 >= state.workers;
            if enlarge && state.extra == EXTRA_WORKERS_MAX {
                return Err(Errno::AGAIN);
            }
            state.nested += 1;
            if enlarge {
                state.workers += 1;
                state.extra += 1;
            }
            enlarge
        };
        if enlarge && let Err(error) = (self.spawn)(nodeid) {
            tracing::error!(%error, "cannot start another worker");
            let mut state = self.state.lock();
            state.workers -= 1;
            state.extra -= 1;
            state.nested -= 1;
            return Err(Errno::AGAIN);
        }
        let _nested = Nested(self);
        Ok(f())
    }
}

/// Counts one that is nested until it ends, be it by a panic.
struct Nested<'a>(&'a WorkerPool);

impl Drop for Nested<'_> {
    fn drop(&mut self) {
        self.0.state.lock().nested -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_worker_always_stands_by() {
        let spawned = Arc::new(AtomicUsize::new(0));
        let count = spawned.clone();
        let pool = WorkerPool::new(
            2,
            Box::new(move |_| {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }),
        );
        pool.with_spare_worker(7, || {
            assert_eq!(spawned.load(Ordering::Relaxed), 0, "the second one stands by");
            pool.with_spare_worker(7, || assert_eq!(spawned.load(Ordering::Relaxed), 1)).unwrap();
        })
        .unwrap();
        pool.with_spare_worker(7, || pool.with_spare_worker(7, || ()).unwrap()).unwrap();
        assert_eq!(spawned.load(Ordering::Relaxed), 1, "the extra one stays");
    }

    #[test]
    fn a_failed_start_is_reported_and_undone() {
        let pool = WorkerPool::new(1, Box::new(|_| Err(io::Error::other("no threads"))));
        assert_eq!(pool.with_spare_worker(7, || ()).unwrap_err(), Errno::AGAIN);
        assert_eq!(pool.with_spare_worker(7, || ()).unwrap_err(), Errno::AGAIN);
        let state = pool.state.lock();
        assert_eq!((state.workers, state.extra, state.nested), (1, 0, 0));
    }

    fn recurse(pool: &WorkerPool, depth: usize) -> usize {
        pool.with_spare_worker(7, || recurse(pool, depth + 1)).unwrap_or(depth)
    }

    #[test]
    fn the_crew_does_not_grow_without_bound() {
        let pool = WorkerPool::new(1, Box::new(|_| Ok(())));
        assert_eq!(recurse(&pool, 0), EXTRA_WORKERS_MAX);
    }
}
