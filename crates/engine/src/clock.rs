//! Time as an input.
//!
//! Purpose: the engine asks a [`Clock`] for the wall time it stamps files with and for the monotonic
//! time its intervals are measured in, so that a test decides both and a failure replays exactly.
//!
//! Locks: a [`ManualClock`] has one of its own, held for a copy; nothing is called under it.

use crate::types::Timestamp;
use medfs_sync::Mutex;
use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const NANOS_PER_SEC: u32 = 1_000_000_000;

/// Where the engine takes the time from.
pub trait Clock: Send + Sync {
    /// Wall time, for timestamps of files. May jump.
    fn now(&self) -> Timestamp;
    /// Time that never goes back, from an arbitrary start, for intervals.
    fn monotonic(&self) -> Duration;
}

/// The operating system's clocks. Files are stamped as the kernel stamps them, by the clock that moves with its ticks: a finer one
/// would give a new file a time later than that of the write that follows.
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

impl std::ops::Add<Duration> for Timestamp {
    type Output = Timestamp;

    /// The later time; stops at the last one that can be told.
    fn add(self, by: Duration) -> Timestamp {
        let nanos = self.nanos + by.subsec_nanos();
        let carry = i64::from(nanos / NANOS_PER_SEC);
        let secs = i64::try_from(by.as_secs()).unwrap_or(i64::MAX);
        Timestamp { secs: self.secs.saturating_add(secs).saturating_add(carry), nanos: nanos % NANOS_PER_SEC }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Timestamp {
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Timestamp::default() + after,
            Err(before) => {
                let before = before.duration();
                let secs = -i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
                match before.subsec_nanos() {
                    0 => Timestamp { secs, nanos: 0 },
                    nanos => Timestamp { secs: secs - 1, nanos: NANOS_PER_SEC - nanos },
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_count_their_nanoseconds_forward() {
        let quarter_before = UNIX_EPOCH - Duration::from_millis(1250);
        assert_eq!(Timestamp::from(quarter_before), Timestamp { secs: -2, nanos: 750_000_000 });
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_secs(3)), Timestamp { secs: -3, nanos: 0 });
        assert_eq!(Timestamp::from(UNIX_EPOCH + Duration::from_nanos(7)), Timestamp { secs: 0, nanos: 7 });
    }

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
