//! What evicting a delta costs and gains (MedFS, section 4.1.3, case 2), and what requests take, as measured on the
//! device in use.

use std::time::Duration;

/// The paper's figure for writing a page. Further ones are written at 1200 MB/s, as the UFS 3.1 of its phone writes in
/// sequence.
const WRITE: f64 = 954_000.0;

/// Moving averages of latencies, in nanoseconds. They begin with the paper's figures for its phone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Costs {
    /// Writing a page (beta).
    write: f64,
    /// Writing, by requests.
    write_requests: RequestTimes,
    /// Reading: a base that is not in memory (delta), and the further blocks of larger requests.
    read: RequestTimes,
    /// Decoding, with a base in memory (lambda and epsilon).
    decode: f64,
}

impl Default for Costs {
    fn default() -> Self {
        Costs {
            write: WRITE,
            write_requests: RequestTimes { first: WRITE, next: 3_400.0 },
            // The paper's figure for a page. Its phone's UFS 3.1 reads further ones in sequence, at 1700 MB/s.
            read: RequestTimes { first: 250_000.0, next: 2_400.0 },
            decode: 16_100.0,
        }
    }
}

/// What a request takes, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RequestTimes {
    /// With one block.
    pub(crate) first: f64,
    /// For each further block.
    pub(crate) next: f64,
}

impl RequestTimes {
    /// What a request of so many blocks takes, one at least.
    pub(crate) fn of(&self, blocks: u64) -> f64 {
        self.first + self.next * blocks.saturating_sub(1) as f64
    }

    /// So many requests, one at least, had so many blocks in all.
    fn learn(&mut self, blocks: usize, requests: usize, elapsed: Duration) {
        let further = blocks - requests;
        if further == 0 {
            blend(&mut self.first, elapsed / requests as u32);
        } else if !elapsed.is_zero() {
            let rest = (elapsed.as_nanos() as f64 - self.first * requests as f64).max(0.0);
            self.next += (rest / further as f64 - self.next) * WEIGHT;
        }
    }
}

/// Weight of a new measurement.
const WEIGHT: f64 = 1.0 / 16.0;

impl Costs {
    /// So many pages, one at least, were written by so many requests.
    pub(crate) fn pages_written(&mut self, pages: usize, requests: usize, elapsed: Duration) {
        blend(&mut self.write, elapsed / pages as u32);
        self.write_requests.learn(pages, requests, elapsed);
    }

    /// A request has read `blocks` neighbouring blocks.
    pub(crate) fn blocks_read(&mut self, blocks: usize, elapsed: Duration) {
        self.read.learn(blocks.max(1), 1, elapsed);
    }

    pub(crate) fn writing(&self) -> RequestTimes {
        self.write_requests
    }

    /// What making a page of its delta takes, or a delta of a page.
    pub(crate) fn decoding(&self) -> f64 {
        self.decode
    }

    pub(crate) fn reading(&self) -> RequestTimes {
        self.read
    }

    /// Whether making room of `freed` bytes, among deltas of `mean` bytes, saves more than it costs: the
    /// paper's `RD / alpha * beta > HR * lambda + (1 - HR) * delta + epsilon + beta`. `missed`: the part of
    /// bases that were not in memory.
    pub(crate) fn worth_replacing(&self, freed: usize, mean: usize, missed: f64) -> bool {
        let benefit = freed as f64 / mean as f64 * self.write;
        benefit > missed * self.read.first + self.decode + self.write
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
        let worth = |freed| Costs::default().worth_replacing(freed, 72, 0.259);
        assert!(!worth(77));
        assert!(worth(79));
    }

    #[test]
    fn a_device_that_reads_slowly_keeps_its_deltas() {
        let mut costs = Costs::default();
        assert!(costs.worth_replacing(200, 100, 0.5));
        (0..100).for_each(|_| costs.blocks_read(1, Duration::from_millis(5)));
        assert!(!costs.worth_replacing(200, 100, 0.5));
    }

    #[test]
    fn requests_of_a_device_are_learned() {
        let mut costs = Costs::default();
        for _ in 0..200 {
            costs.blocks_read(1, Duration::from_micros(90));
            costs.blocks_read(32, Duration::from_micros(400));
            costs.blocks_read(8, Duration::ZERO);
        }
        let RequestTimes { first, next } = costs.reading();
        assert!((first - 90_000.0).abs() < 10.0 && (next - 10_000.0).abs() < 10.0, "{first} and {next}");
        assert!((costs.reading().of(32) - 400_000.0).abs() < 400.0);
        for _ in 0..200 {
            costs.pages_written(3, 3, Duration::from_micros(600));
            costs.pages_written(16, 4, Duration::from_micros(920));
        }
        let RequestTimes { first, next } = costs.writing();
        assert!((first - 200_000.0).abs() < 10.0 && (next - 10_000.0).abs() < 10.0, "{first} and {next}");
        // A device that begins slowly and then has it all.
        (0..200).for_each(|_| costs.blocks_read(32, Duration::from_micros(50)));
        assert!(costs.reading().next < 1.0);
    }
}
