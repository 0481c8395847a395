//! A device model in virtual time: what an operation takes on the storage of a phone, computed, not measured.
//!
//! The device serves one request after the other, or, where a file says so, some of one operation at the same
//! time. A request takes a time for its first block and one for each
//! further block of it; the figures are in the experiments' files, with where they come from. Two threads use
//! it: one writes (writes, fsyncs and changes of names follow each other), one reads at the same time; a
//! request waits for those that came before it, which is how fewer writes make reads faster (MedFS, section
//! 6.2.3). Computing takes no time, but an operation that needs no device takes what a hit of the page cache
//! does.
//!
//! Everything is a function of the operations and the model alone: the same seed gives the same nanoseconds.
//!
//! Locks: a [`Timeline`] has one mutex, held for a few additions; the device takes it within its own calls.

use crate::cell::Latency;
use hdrhistogram::Histogram;
use medfs_device::{BlockDevice, WriteTag};
use medfs_format::Block;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Times of a device, in microseconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Times {
    /// First block of a request that reads.
    pub read_first: f64,
    /// Each further one.
    pub read_next: f64,
    /// First block of a request that writes.
    pub write_first: f64,
    /// Each further one.
    pub write_next: f64,
    /// A flush.
    pub flush: f64,
    /// An operation that needs no device: a hit of the page cache.
    pub hit: f64,
    /// Requests of one operation that are under way at the same time.
    #[serde(default = "one_by_one")]
    pub queue: f64,
}

fn one_by_one() -> f64 {
    1.0
}

/// Kinds of operations that have a latency of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Reading.
    Read,
    /// Writing into the cache; the device is needed where room must be made, or deltas give way.
    Write,
    /// fsync, sync.
    Fsync,
    /// Opening, making, renaming, removing, truncating.
    Name,
}

impl Kind {
    /// The name in result files.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Read => "read",
            Kind::Write => "write",
            Kind::Fsync => "fsync",
            Kind::Name => "name",
        }
    }
}

/// Virtual time of the threads and of the device, in nanoseconds.
#[derive(Debug)]
pub struct Timeline {
    times: Times,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When each thread goes on: the one that reads, the one that writes.
    threads: [u64; 2],
    /// When the device has done everything asked of it.
    device_free: u64,
    /// When the operation in progress began, and when its last request will be done.
    begun: u64,
    done: u64,
    /// Whether an operation is in progress, and not background work, which is of no thread.
    busy: bool,
    /// The kind of the request before, where it is of the same operation.
    before: Option<Access>,
    latencies: BTreeMap<Kind, Histogram<u64>>,
    sums: BTreeMap<Kind, u64>,
    device_time: u64,
}

/// What a request does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// Highest latency told apart, in nanoseconds: an hour.
const LATENCY_MAX: u64 = 3_600_000_000_000;

fn nanos(micros: f64) -> u64 {
    (micros * 1000.0).round() as u64
}

impl State {
    fn thread(kind: Kind) -> usize {
        usize::from(kind != Kind::Read)
    }
}

impl Timeline {
    /// A timeline at zero.
    pub fn new(times: Times) -> Timeline {
        Timeline { times, state: Mutex::default() }
    }

    /// An operation begins.
    pub(crate) fn begin(&self, kind: Kind) {
        let mut state = self.state.lock();
        state.begun = state.threads[State::thread(kind)];
        state.done = state.begun;
        state.busy = true;
        state.before = None;
    }

    /// It is done: its thread goes on when the device is, and its latency is noted.
    pub(crate) fn end(&self, kind: Kind) {
        let mut state = self.state.lock();
        let hit = nanos(self.times.hit);
        let done = state.done.max(state.begun + hit);
        let took = done - state.begun;
        state.threads[State::thread(kind)] = done;
        state.busy = false;
        let histogram = state.latencies.entry(kind).or_insert_with(|| {
            Histogram::new_with_max(LATENCY_MAX, 3)
                .expect("an hour in nanoseconds with three digits is possible")
        });
        histogram.saturating_record(took);
        *state.sums.entry(kind).or_default() += took;
    }

    /// Nothing is done for a while: both threads, and what they wait for, meet.
    pub(crate) fn pass(&self, time: Duration) {
        let mut state = self.state.lock();
        let now = state.threads[0].max(state.threads[1]) + time.as_nanos() as u64;
        state.threads = [now; 2];
    }

    /// A request of the device.
    fn serve(&self, takes: u64) {
        let mut state = self.state.lock();
        let asked = if state.busy { state.begun } else { state.threads[1] };
        let start = state.device_free.max(asked).max(if state.busy { state.done } else { 0 });
        state.device_free = start + takes;
        state.device_time += takes;
        if state.busy {
            state.done = state.device_free;
        }
    }

    /// A request for so many blocks. What it takes to begin passes while others of its operation are under way.
    fn request(&self, access: Access, blocks: usize) {
        let Some(further) = blocks.checked_sub(1) else { return };
        let (first, next) = match access {
            Access::Read => (self.times.read_first, self.times.read_next),
            Access::Write => (self.times.write_first, self.times.write_next),
        };
        let follows = {
            let mut state = self.state.lock();
            state.busy && state.before.replace(access) == Some(access)
        };
        let first = if follows { first / self.times.queue.max(1.0) } else { first };
        self.serve(nanos(first + next * further as f64));
    }

    /// Forgets the latencies so far; time goes on.
    pub fn start_measuring(&self) {
        let mut state = self.state.lock();
        state.latencies.clear();
        state.sums.clear();
        state.device_time = 0;
    }

    /// Latencies by the name of the kind, in microseconds.
    pub fn latencies(&self) -> BTreeMap<String, Latency> {
        let state = self.state.lock();
        let summary = |(kind, h): (&Kind, &Histogram<u64>)| {
            let at = |q: f64| h.value_at_quantile(q) as f64 / 1000.0;
            let latency = Latency {
                count: h.len(),
                mean: state.sums[kind] as f64 / 1000.0 / h.len() as f64,
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                max: at(1.0),
                buckets: h
                    .iter_log(1_000, 2.0)
                    .filter(|v| v.count_since_last_iteration() > 0)
                    .map(|v| (v.value_iterated_to() as f64 / 1000.0, v.count_since_last_iteration()))
                    .collect(),
            };
            (kind.name().to_owned(), latency)
        };
        state.latencies.iter().map(summary).collect()
    }

    /// Virtual microseconds that operations have taken since measuring began.
    pub fn waited(&self) -> f64 {
        self.state.lock().sums.values().sum::<u64>() as f64 / 1000.0
    }

    /// Virtual microseconds since the start, of the thread that is furthest.
    pub fn elapsed(&self) -> f64 {
        let state = self.state.lock();
        state.threads[0].max(state.threads[1]) as f64 / 1000.0
    }

    /// Virtual microseconds in which the device was busy since measuring began.
    pub fn device_time(&self) -> f64 {
        self.state.lock().device_time as f64 / 1000.0
    }
}

/// A device whose requests take virtual time.
pub struct ModelDevice<D> {
    inner: D,
    timeline: Arc<Timeline>,
}

impl<D: BlockDevice> ModelDevice<D> {
    /// `inner`, with the times of the timeline.
    pub fn new(inner: D, timeline: Arc<Timeline>) -> ModelDevice<D> {
        ModelDevice { inner, timeline }
    }
}

impl<D: BlockDevice> BlockDevice for ModelDevice<D> {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.inner.read(addr, blocks)?;
        self.timeline.request(Access::Read, blocks.len());
        Ok(())
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.inner.write(addr, blocks, tag)?;
        self.timeline.request(Access::Write, blocks.len());
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()?;
        self.timeline.state.lock().before = None;
        self.timeline.serve(nanos(self.timeline.times.flush));
        Ok(())
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.inner.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use medfs_device::{Cause, MemDevice, Temperature, read_block};

    const TAG: WriteTag = WriteTag::new(Cause::Data, Temperature::Hot);

    fn times() -> Times {
        Times {
            read_first: 250.0,
            read_next: 2.0,
            write_first: 950.0,
            write_next: 6.0,
            flush: 0.0,
            hit: 9.0,
            queue: 1.0,
        }
    }

    #[test]
    fn requests_of_an_operation_begin_while_others_are_under_way() {
        let timeline = Arc::new(Timeline::new(Times { queue: 5.0, ..times() }));
        let dev = ModelDevice::new(MemDevice::new(100), timeline.clone());
        let reads = |addrs: &[u64]| {
            timeline.begin(Kind::Read);
            addrs.iter().for_each(|&addr| drop(read_block(&dev, addr).unwrap()));
            timeline.end(Kind::Read);
            timeline.device_time()
        };
        assert_eq!(reads(&[1]), 250.0);
        assert_eq!(reads(&[1, 5, 9]), 500.0 + 2.0 * 50.0, "two of them wait a fifth of the time");
        timeline.begin(Kind::Fsync);
        dev.write(0, &[&Block::ZERO; 2], TAG).unwrap();
        dev.flush().unwrap();
        dev.write(7, &[&Block::ZERO], TAG).unwrap();
        timeline.end(Kind::Fsync);
        assert_eq!(timeline.device_time() - 600.0, 956.0 + 950.0, "what follows a flush waits for it");
    }

    #[test]
    fn a_read_waits_for_the_writes_before_it() {
        let timeline = Arc::new(Timeline::new(times()));
        let dev = ModelDevice::new(MemDevice::new(100), timeline.clone());
        let blocks = [&Block::ZERO; 11];
        timeline.begin(Kind::Fsync);
        dev.write(0, &blocks, TAG).unwrap();
        timeline.end(Kind::Fsync);
        timeline.begin(Kind::Read);
        read_block(&dev, 0).unwrap();
        timeline.end(Kind::Read);
        timeline.begin(Kind::Read);
        timeline.end(Kind::Read);
        let l = timeline.latencies();
        assert_eq!(l["fsync"].mean, 1010.0);
        assert_eq!((l["read"].count, l["read"].mean), (2, (1260.0 + 9.0) / 2.0));
        assert_eq!(timeline.device_time(), 1260.0);
        timeline.pass(Duration::from_secs(1));
        timeline.start_measuring();
        timeline.begin(Kind::Read);
        read_block(&dev, 0).unwrap();
        timeline.end(Kind::Read);
        assert_eq!(timeline.latencies()["read"].mean, 250.0, "after a pause the device is free");
        assert!((timeline.elapsed() - 1_001_519.0).abs() < 1.0, "{}", timeline.elapsed());
    }
}
