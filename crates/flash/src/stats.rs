//! What a device did, in numbers that outlive the process: counters, and latencies as HDR histograms.

use crate::nand::NandCounts;
use hdrhistogram::Histogram;
use medfs_ftl::Counters;
use serde::{Deserialize, Serialize};

/// Longest latency that is told apart, in nanoseconds: 1000 s.
const LATENCY_MAX: u64 = 1_000_000_000_000;

/// A distribution of latencies in nanoseconds, three digits exact; mean and worst are exact.
#[derive(Debug, Clone)]
pub struct Latency {
    histogram: Histogram<u64>,
    sum: u128,
    worst: u64,
}

impl Default for Latency {
    fn default() -> Latency {
        let histogram = Histogram::new_with_max(LATENCY_MAX, 3).expect("bounds that the library takes");
        Latency { histogram, sum: 0, worst: 0 }
    }
}

/// A distribution in a few numbers: microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Summary {
    /// Requests.
    pub count: u64,
    /// Their mean.
    pub mean_us: f64,
    /// Half of them took no longer.
    pub p50_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1000.
    pub p999_us: f64,
    /// All of them.
    pub worst_us: f64,
}

impl Latency {
    /// One request took so many nanoseconds.
    pub fn record(&mut self, nanos: u64) {
        self.histogram.saturating_record(nanos.max(1));
        self.sum += u128::from(nanos);
        self.worst = self.worst.max(nanos);
    }

    /// Mean in nanoseconds; 0 without requests.
    pub fn mean(&self) -> f64 {
        if self.histogram.is_empty() { 0.0 } else { self.sum as f64 / self.histogram.len() as f64 }
    }

    /// The longest in nanoseconds.
    pub fn worst(&self) -> u64 {
        self.worst
    }

    /// Requests.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// All in a few numbers.
    pub fn summary(&self) -> Summary {
        // A class is told by its largest value, which may be more than any that was counted.
        let at = |part: f64| self.histogram.value_at_quantile(part).min(self.worst) as f64 / 1e3;
        Summary {
            count: self.count(),
            mean_us: self.mean() / 1e3,
            p50_us: at(0.5),
            p99_us: at(0.99),
            p999_us: at(0.999),
            worst_us: self.worst as f64 / 1e3,
        }
    }
}

/// How a [`Latency`] is written down: value and count of each class that has any, then the sum and the worst.
#[derive(Serialize, Deserialize)]
struct Written {
    classes: Vec<(u64, u64)>,
    sum: String,
    worst: u64,
}

impl Serialize for Latency {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        let classes =
            self.histogram.iter_recorded().map(|v| (v.value_iterated_to(), v.count_at_value())).collect();
        Written { classes, sum: self.sum.to_string(), worst: self.worst }.serialize(out)
    }
}

impl<'de> Deserialize<'de> for Latency {
    fn deserialize<D: serde::Deserializer<'de>>(input: D) -> Result<Latency, D::Error> {
        let written = Written::deserialize(input)?;
        let mut latency = Latency::default();
        for (value, count) in written.classes {
            latency.histogram.saturating_record_n(value.max(1), count);
        }
        latency.sum = written.sum.parse().map_err(serde::de::Error::custom)?;
        latency.worst = written.worst;
        Ok(latency)
    }
}

/// Latencies by the kind of request.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Latencies {
    /// Writes.
    pub write: Latency,
    /// Reads.
    pub read: Latency,
    /// Flushes.
    pub flush: Latency,
}

impl Latencies {
    pub(crate) fn add(&mut self, more: &Latencies) {
        for (sum, more) in
            [(&mut self.write, &more.write), (&mut self.read, &more.read), (&mut self.flush, &more.flush)]
        {
            for class in more.histogram.iter_recorded() {
                sum.histogram.saturating_record_n(class.value_iterated_to(), class.count_at_value());
            }
            sum.sum += more.sum;
            sum.worst = sum.worst.max(more.worst);
        }
    }
}

/// Statistics of a device since it was made.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Counters of the translation layer.
    pub ftl: Counters,
    /// Counters of the NAND.
    pub nand: NandCounts,
    /// Latencies of requests, from their arrival.
    pub latency: Latencies,
    /// Nanoseconds of the device's time.
    pub time_ns: u64,
    /// Times it was opened.
    pub opened: u64,
    /// Times its program was killed, so that what it did after these numbers were last written down is not in them.
    #[serde(default)]
    pub killed: u64,
    /// It is in use, or its last program was killed.
    #[serde(default)]
    pub open: bool,
}

impl Stats {
    /// Flash bytes programmed for each byte that the host wrote; 0 where it wrote none.
    pub fn write_amplification(&self, page_bytes: u32) -> f64 {
        let host = self.ftl.host_writes as f64 * medfs_ftl::PAGE as f64;
        let flash = self.ftl.programs.total() as f64 * f64::from(page_bytes);
        if host > 0.0 { flash / host } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_read_back() {
        let mut latency = Latency::default();
        (1..=1000).for_each(|us| latency.record(us * 1000));
        let text = serde_json::to_string(&latency).unwrap();
        let back: Latency = serde_json::from_str(&text).unwrap();
        assert_eq!(back.summary(), latency.summary());
        let s = back.summary();
        assert_eq!((s.count, s.mean_us, s.worst_us), (1000, 500.5, 1000.0));
        assert!(s.p999_us <= s.worst_us, "{s:?}");
        let mut one = Latency::default();
        one.record(1_234_567);
        assert_eq!((one.summary().p50_us, one.summary().p999_us), (1234.567, 1234.567));
        assert!((s.p50_us - 500.0).abs() < 1.0 && (s.p99_us - 990.0).abs() < 1.0, "{s:?}");
    }
}
