//! What evicting a delta costs and gains, as measured on the device in use (MedFS, section 4.1.3, case 2).

use super::DeltaCounters;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Moving averages of latencies, in nanoseconds. They begin with the paper's figures for its phone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    /// Writing a page (beta).
    write: f64,
    /// Reading a base that is not in memory (delta).
    read: f64,
    /// Decoding, with a base in memory (lambda and epsilon).
    decode: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs { write: 954_000.0, read: 250_000.0, decode: 16_100.0 }
    }
}

/// Weight of a new measurement.
const WEIGHT: f64 = 1.0 / 16.0;

impl Costs {
    pub(crate) fn page_written(&mut self, elapsed: Duration) {
        blend(&mut self.write, elapsed);
    }

    pub(crate) fn base_read(&mut self, elapsed: Duration) {
        blend(&mut self.read, elapsed);
    }

    /// Whether making room of `freed` bytes, among deltas of `mean` bytes, saves more than it costs: the paper's
    /// `RD / alpha * beta > HR * lambda + (1 - HR) * delta + epsilon + beta`.
    pub(crate) fn worth_replacing(&self, freed: usize, mean: usize, counters: &DeltaCounters) -> bool {
        let (looked, read) =
            (counters.bases.load(Ordering::Relaxed), counters.bases_read.load(Ordering::Relaxed));
        let missed = if looked == 0 { 0.0 } else { read as f64 / looked as f64 };
        let benefit = freed as f64 / mean as f64 * self.write;
        benefit > missed * self.read + self.decode + self.write
    }
}

fn blend(average: &mut f64, elapsed: Duration) {
    // A clock that stands still measures nothing.
    if !elapsed.is_zero() {
        *average += (elapsed.as_nanos() as f64 - *average) * WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_figures_give_the_papers_threshold() {
        // Section 4.1.3: with a hit rate of 74.1 % and deltas of 72 bytes, from 77.9 bytes on.
        let counters = DeltaCounters::default();
        counters.bases.store(1000, Ordering::Relaxed);
        counters.bases_read.store(259, Ordering::Relaxed);
        let worth = |freed| Costs::default().worth_replacing(freed, 72, &counters);
        assert!(!worth(77));
        assert!(worth(79));
    }

    #[test]
    fn a_device_that_reads_slowly_keeps_its_deltas() {
        let counters = DeltaCounters::default();
        counters.bases.store(2, Ordering::Relaxed);
        counters.bases_read.store(1, Ordering::Relaxed);
        let mut costs = Costs::default();
        assert!(costs.worth_replacing(200, 100, &counters));
        (0..100).for_each(|_| costs.base_read(Duration::from_millis(5)));
        assert!(!costs.worth_replacing(200, 100, &counters));
    }
}
