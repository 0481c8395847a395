//! Short wake-ups while requests keep coming.
//!
//! Purpose: a request wakes a worker, an answer wakes who asked. Where that is to happen on a processor that
//! is idle, the processor has been halted, and to start it again takes longer than the request itself, in a
//! virtual machine many times as long. [`WakeLatencyHold`] asks the kernel to have idle processors wait awake
//! instead (its PM QoS, `/dev/cpu_dma_latency`), as long as requests come in close succession, and takes that
//! back soon after the last one.
//!
//! Invariants: without requests nothing is asked for and no thread runs. Whatever ends this process ends what
//! it asked for.
//!
//! Locks: `burst` is a leaf that is never waited for; `state` is held while the kernel is told.

use crate::request::{Answer, Reply, Request};
use crate::transport::Handler;
use crate::worker_pool::WorkerPool;
use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// So many requests within [`BURST_TIME`] are a succession that is worth it.
const BURST: u32 = 4;
const BURST_TIME: Duration = Duration::from_millis(2);
/// How long after the last request processors wait awake, and at most twice that.
const HOLD: Duration = Duration::from_millis(5);

/// Where the kernel is told how many microseconds waking up may take.
const LATENCY: &str = "/dev/cpu_dma_latency";
const AWAKE: i32 = 0;
const NO_WISH: i32 = -1;

/// Tells the kernel whether idle processors are to wait awake.
type Tell = Box<dyn Fn(bool) + Send + Sync>;

/// Keeps processors awake while requests come.
pub(crate) struct WakeLatencyHold {
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
}

struct Shared {
    tell: Tell,
    requests: AtomicU64,
    /// [`State::awake`], to be looked at for each request.
    awake: AtomicBool,
    burst: Mutex<Burst>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    awake: bool,
    stop: bool,
}

/// Finds successions of requests.
#[derive(Default)]
struct Burst {
    since: Duration,
    count: u32,
}

impl Burst {
    /// Counts a request; whether it completes a succession. `now` only grows.
    fn hit(&mut self, now: Duration) -> bool {
        if now.saturating_sub(self.since) > BURST_TIME {
            *self = Burst { since: now, count: 0 };
        }
        self.count += 1;
        self.count >= BURST
    }
}

impl WakeLatencyHold {
    /// For this machine; needs the right to write to the kernel's device.
    pub(crate) fn new() -> io::Result<WakeLatencyHold> {
        let device = File::options().write(true).open(LATENCY)?;
        WakeLatencyHold::telling(Box::new(move |awake| {
            let wish = if awake { AWAKE } else { NO_WISH };
            if let Err(error) = (&device).write(&wish.to_ne_bytes()) {
                tracing::warn!(%error, awake, "cannot set how fast idle processors wake up");
            }
        }))
    }

    fn telling(tell: Tell) -> io::Result<WakeLatencyHold> {
        let shared = Arc::new(Shared {
            tell,
            requests: AtomicU64::new(0),
            awake: AtomicBool::new(false),
            burst: Mutex::default(),
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        let kept = shared.clone();
        let keeper = std::thread::Builder::new().name("medfs-alert".into()).spawn(move || kept.keep())?;
        Ok(WakeLatencyHold { shared, keeper: Some(keeper) })
    }

    /// A request has come, at a time that only grows.
    fn request(&self, now: impl FnOnce() -> Duration) {
        let shared = &self.shared;
        shared.requests.fetch_add(1, Ordering::Relaxed);
        if shared.awake.load(Ordering::Relaxed) {
            return;
        }
        if let Some(mut burst) = shared.burst.try_lock()
            && burst.hit(now())
        {
            *burst = Burst::default();
            drop(burst);
            shared.wake();
        }
    }
}

impl Drop for WakeLatencyHold {
    fn drop(&mut self) {
        self.shared.state.lock().stop = true;
        self.shared.changed.notify_all();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Shared {
    fn wake(&self) {
        let mut state = self.state.lock();
        if !state.awake && !state.stop {
            self.set(&mut state, true);
            self.changed.notify_all();
        }
    }

    fn set(&self, state: &mut State, awake: bool) {
        state.awake = awake;
        // First: who is told that it is over can count anew at once.
        self.awake.store(awake, Ordering::Relaxed);
        (self.tell)(awake);
    }

    /// Takes the wish back when no requests come.
    fn keep(&self) {
        let mut state = self.state.lock();
        while !state.stop {
            if !state.awake {
                self.changed.wait(&mut state);
                continue;
            }
            let seen = self.requests.load(Ordering::Relaxed);
            self.changed.wait_for(&mut state, HOLD);
            if state.stop || self.requests.load(Ordering::Relaxed) == seen {
                self.set(&mut state, false);
            }
        }
    }
}

/// Serves requests with processors kept awake.
pub(crate) struct WakingFast {
    pub(crate) inner: Arc<dyn Handler>,
    pub(crate) alert: WakeLatencyHold,
    pub(crate) began: Instant,
}

impl Handler for WakingFast {
    fn handle(&self, pool: &WorkerPool, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer {
        self.alert.request(|| self.began.elapsed());
        self.inner.handle(pool, request, reply)
    }

    fn panicked(&self, message: &str) {
        self.inner.panicked(message);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{RecvTimeoutError, channel};

    /// Longer than anything takes on a loaded machine.
    const LONG: Duration = Duration::from_secs(30);

    #[test]
    fn only_requests_close_to_each_other_are_a_succession() {
        let mut burst = Burst::default();
        let slow = (0..100).map(Duration::from_millis);
        assert!(slow.map(|now| burst.hit(now)).all(|hit| !hit), "one each millisecond");
        let fast = (0..BURST).map(|n| Duration::from_secs(1) + Duration::from_micros(u64::from(n)));
        assert_eq!(fast.filter(|&now| burst.hit(now)).count(), 1, "the last one of them");
    }

    #[test]
    fn is_awake_while_requests_come_and_no_longer() {
        let (told, heard) = channel();
        let alert = WakeLatencyHold::telling(Box::new(move |awake| told.send(awake).unwrap())).unwrap();
        assert_eq!(heard.recv_timeout(4 * HOLD), Err(RecvTimeoutError::Timeout), "nothing was asked for");
        for round in 0..2 {
            (0..BURST).for_each(|_| alert.request(|| Duration::from_secs(round)));
            assert_eq!(heard.recv_timeout(LONG), Ok(true));
            assert_eq!(heard.recv_timeout(LONG), Ok(false), "soon after the last one");
        }
        (0..BURST).for_each(|_| alert.request(|| Duration::from_secs(9)));
        assert_eq!(heard.recv_timeout(LONG), Ok(true));
        drop(alert);
        assert_eq!(heard.recv_timeout(LONG), Ok(false), "the end takes it back");
    }
}
