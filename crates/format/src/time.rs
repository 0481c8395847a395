//! Times of files.

use std::ops::Add;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NANOS_PER_SEC: u32 = 1_000_000_000;

/// A point in time, as F2FS stores it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Timestamp {
    /// Seconds since 1970 (may be negative before it).
    pub secs: i64,
    /// Nanoseconds, below 1,000,000,000.
    pub nanos: u32,
}

impl Add<Duration> for Timestamp {
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
}
