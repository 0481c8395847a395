//! What a replay measured.

use crate::record::NAMES;
use hdrhistogram::Histogram;
use serde::Serialize;

/// Latencies up to a minute are told apart, by three digits.
const LATENCY_MAX: u64 = 60_000_000_000;

/// Mismatches that are told in words.
const TOLD: usize = 10;

/// Results that were not as recorded.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Mismatches {
    /// Their number.
    pub count: u64,
    /// The first of them, in words.
    pub first: Vec<String>,
}

impl Mismatches {
    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        self.count += 1;
        if self.first.len() < TOLD {
            self.first.push(text());
        }
    }

    pub(crate) fn add(&mut self, other: Mismatches) {
        self.count += other.count;
        self.first.extend(other.first);
        self.first.truncate(TOLD);
    }
}

/// The results of a replay.
#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Operations, by [`crate::record::Op::kind`].
    pub counts: [u64; NAMES.len()],
    /// Bytes that reads returned.
    pub bytes_read: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
    /// Nanoseconds from the first operation to the end of the last.
    pub wall_ns: u64,
    /// Nanoseconds of processor time that the process used meanwhile.
    pub cpu_ns: u64,
    /// Nanoseconds within the operations, those of all threads together.
    pub engine_ns: u64,
    /// Results that were not as recorded.
    pub mismatches: Mismatches,
    /// Reads whose bytes, or some of them, the trace does not tell.
    pub unverified_reads: u64,
    /// Results that may differ between file systems and did: extended attributes, holes, preallocation.
    pub tolerated: u64,
    /// Latencies, by kind of operation.
    pub latency: Latencies,
}

/// Histograms that are made when first needed.
#[derive(Debug, Clone, Default)]
pub struct Latencies(Vec<Option<Histogram<u64>>>);

/// A histogram's summary, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Latency {
    /// Operations.
    pub count: u64,
    /// Mean.
    pub mean_ns: f64,
    /// The fastest.
    pub min_ns: u64,
    /// Median.
    pub p50_ns: u64,
    /// 90 of 100 took no longer.
    pub p90_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// 999 of 1000 took no longer.
    pub p999_ns: u64,
    /// The slowest.
    pub max_ns: u64,
}

/// Latencies of one kind of operation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, serde::Deserialize)]
#[serde(default)]
pub struct LatencyOf {
    /// Name of the operation.
    pub operation: String,
    /// Its latencies.
    #[serde(flatten)]
    pub latency: Latency,
}

impl Latencies {
    pub(crate) fn note(&mut self, kind: usize, nanos: u64) {
        if self.0.is_empty() {
            self.0.resize(NAMES.len(), None);
        }
        let histogram = self.0[kind].get_or_insert_with(|| {
            Histogram::new_with_bounds(1, LATENCY_MAX, 3).expect("one to a minute, by three digits")
        });
        histogram.saturating_record(nanos.max(1));
    }

    fn add(&mut self, other: Latencies) {
        if self.0.is_empty() {
            *self = other;
            return;
        }
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            match (mine.as_mut(), theirs) {
                (Some(mine), Some(theirs)) => mine.add(theirs).expect("both have the same bounds"),
                (None, theirs) => *mine = theirs,
                (Some(_), None) => {}
            }
        }
    }

    /// The summaries of the operations that came up.
    pub fn summaries(&self) -> Vec<LatencyOf> {
        let of = |kind: usize, h: &Histogram<u64>| LatencyOf {
            operation: NAMES[kind].into(),
            latency: Latency {
                count: h.len(),
                mean_ns: h.mean(),
                min_ns: h.min(),
                p50_ns: h.value_at_quantile(0.5),
                p90_ns: h.value_at_quantile(0.9),
                p99_ns: h.value_at_quantile(0.99),
                p999_ns: h.value_at_quantile(0.999),
                max_ns: h.max(),
            },
        };
        self.0.iter().enumerate().filter_map(|(kind, h)| Some(of(kind, h.as_ref()?))).collect()
    }
}

impl Outcome {
    /// All operations.
    pub fn operations(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Adds what another thread did.
    pub(crate) fn add(&mut self, other: Outcome) {
        for (mine, theirs) in self.counts.iter_mut().zip(other.counts) {
            *mine += theirs;
        }
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.engine_ns += other.engine_ns;
        self.unverified_reads += other.unverified_reads;
        self.tolerated += other.tolerated;
        self.mismatches.add(other.mismatches);
        self.latency.add(other.latency);
    }
}
