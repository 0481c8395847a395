//! Time as an input.
//!
//! Purpose: the engine asks a [`Clock`] for the wall time it stamps files with and for the monotonic
//! time its intervals are measured in, so that a test decides both and a failure replays exactly.
//!
//! Locks: a [`ManualClock`] has one of its own, held for a copy; nothing is called under it.

use medfs_format::Timestamp;
use medfs_sync::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// The engine's source of time.
pub trait Clock: Send + Sync {
    /// Wall time, for timestamps of files. May jump.
    fn now(&self) -> Timestamp;
    /// Time that never goes back, from an arbitrary start, for intervals.
    fn monotonic(&self) -> Duration;
}

/// The operating system's clocks. Files are stamped as the kernel stamps them, by the clock that moves with
/// its ticks: a finer one would give a new file a time later than that of the write that follows.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        let now = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp { secs: now.tv_sec, nanos: now.tv_nsec as u32 }
    }

    fn monotonic(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed()
    }
}

/// A clock that stands still until it is moved: for tests and for replay.
#[derive(Debug, Default)]
pub struct ManualClock(Mutex<Times>);

#[derive(Debug, Default, Clone, Copy)]
struct Times {
    wall: Timestamp,
    monotonic: Duration,
}

impl ManualClock {
    /// A clock that shows `wall`; its monotonic time is zero.
    pub fn new(wall: Timestamp) -> ManualClock {
        ManualClock(Mutex::new(Times { wall, monotonic: Duration::ZERO }))
    }

    /// Lets time pass on both clocks.
    pub fn advance(&self, by: Duration) {
        let mut times = self.0.lock();
        times.wall = times.wall + by;
        times.monotonic = times.monotonic.saturating_add(by);
    }

    /// Sets the wall clock, backwards too; the monotonic time stays.
    pub fn set(&self, wall: Timestamp) {
        self.0.lock().wall = wall;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        self.0.lock().wall
    }

    fn monotonic(&self) -> Duration {
        self.0.lock().monotonic
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manual_clock_moves_only_when_told() {
        let clock = ManualClock::new(Timestamp { secs: 10, nanos: 900_000_000 });
        assert_eq!(clock.now(), clock.now());
        clock.advance(Duration::from_millis(200));
        assert_eq!(clock.now(), Timestamp { secs: 11, nanos: 100_000_000 });
        clock.set(Timestamp { secs: 5, nanos: 0 });
        assert_eq!((clock.now().secs, clock.monotonic()), (5, Duration::from_millis(200)));
    }

    #[test]
    fn system_clock_is_monotonic_and_after_2020() {
        let first = SystemClock.monotonic();
        assert!(SystemClock.monotonic() >= first);
        assert!(SystemClock.now().secs > 1_577_836_800);
    }
}
