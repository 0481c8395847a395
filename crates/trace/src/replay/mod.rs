//! Replaying a trace on a file system, verified.
//!
//! Every operation is asked for again and must end as it did: with the same error or none, every read with
//! the bytes that the trace has, and at the end the tree must be the one that was recorded ([`verify_tree`]).
//!
//! In the order of the trace one operation follows the other, and with a [`ManualClock`] that the trace's
//! times move the result is the same each time, to the block. With [`Order::Recorded`] as many threads as
//! recorded ones ask at once: those of one thread in its order, those on one file in the trace's
//! ([`schedule`]).
//!
//! Memory: the trace's window, one buffer for each thread, and a few words for each file that is held.

mod execute;
mod result;
mod schedule;

pub use result::{Latency, LatencyOf, Mismatches, Outcome};

use crate::error::{Error, Result};
use crate::reader::{Item, TraceReader};
use crate::record::{Op, Record, TreeEntry};
use crate::tree;
use execute::{Executor, Job, Shared};
use medfs::{Files, ManualClock};
use rustix::time::{ClockId, clock_gettime};
use std::io::Read;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};

/// In which order operations are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// One after the other, as the trace has them.
    #[default]
    Sequential,
    /// By as many threads as there were, at most this many.
    Recorded {
        /// Most threads.
        threads: usize,
    },
}

/// Options of a replay.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The order.
    pub order: Order,
    /// Wait for the time at which each operation was recorded.
    pub timed: bool,
}

/// Progress of a replay.
#[derive(Debug)]
pub enum Progress {
    /// The tree is as it was before: what is measured begins now.
    Ready,
    /// Bytes of the trace read so far.
    At(u64),
}

/// Most seconds of background work for one pause in the trace.
const TICKS_MAX: u64 = 600;
/// Operations between two reports of progress.
const REPORT_EVERY: u64 = 4096;

/// Replays a trace on `target`, whose clock is `clock` where the trace's times move it. What comes after the
/// operations, the tree, is left in `reader` but for its first file, which is returned.
pub fn replay<R: Read>(
    reader: &mut TraceReader<R>,
    target: &dyn Files,
    clock: Option<&ManualClock>,
    options: &Options,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<(Outcome, Option<TreeEntry>)> {
    if reader.head().private && options.order != Order::Sequential {
        // Its contents are made of what the file holds just before.
        return Err(Error::Invalid("a trace without contents is replayed in its own order only".into()));
    }
    let shared = Shared::new(target);
    let mut next = setup(reader, &shared, progress)?;
    shared.forget_all();
    progress(Progress::Ready)?;
    let (began, cpu) = (Instant::now(), cpu_time());
    let mut pace = Pace { clock, timed: options.timed, began, now: 0, ticks: 0 };
    let mut outcome = match options.order {
        Order::Sequential => sequential(reader, &shared, &mut pace, progress, &mut next)?,
        Order::Recorded { threads } => concurrent(reader, &shared, &mut pace, progress, &mut next, threads)?,
    };
    outcome.wall_ns = began.elapsed().as_nanos() as u64;
    outcome.cpu_ns = cpu_time().saturating_sub(cpu).as_nanos() as u64;
    shared.forget_all();
    let first = match next {
        Some(Item::Tree(entry)) => Some(entry),
        _ => None,
    };
    Ok((outcome, first))
}

/// Processor time that this process has used.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Makes the tree as it was before; returns the first item that is no part of that.
fn setup<R: Read>(
    reader: &mut TraceReader<R>,
    shared: &Shared<'_>,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
) -> Result<Option<Item>> {
    let mut executor = Executor::new(shared);
    let (mut count, mut bytes) = (0u64, Vec::new());
    loop {
        let record = match reader.next()? {
            Some(Item::Setup(record)) => record,
            other => break finish_setup(executor, other),
        };
        let mut job = prepare(reader, shared, record, count, bytes);
        executor.execute(&mut job);
        bytes = job.bytes;
        count += 1;
        if count.is_multiple_of(REPORT_EVERY) {
            progress(Progress::At(reader.position()))?;
        }
    }
}

fn finish_setup(executor: Executor<'_>, next: Option<Item>) -> Result<Option<Item>> {
    match executor.finish().mismatches.first.into_iter().next() {
        Some(wrong) => Err(Error::Invalid(format!("cannot create the initial tree: {wrong}"))),
        None => Ok(next),
    }
}

/// A record with the bytes it carries, in the memory that is given.
fn prepare<R: Read>(
    reader: &mut TraceReader<R>,
    shared: &Shared<'_>,
    record: Record,
    number: u64,
    mut bytes: Vec<u8>,
) -> Job {
    let private = reader.head().private;
    let mut unknown = Vec::new();
    bytes.clear();
    if let Some(content) = record.op.content() {
        let before = match record.op {
            Op::Write { file, offset, len, .. } if private => shared.before(file, offset, len as usize),
            _ => Vec::new(),
        };
        unknown = reader.window().resolve(content, &before, &mut bytes);
    }
    let compare = !private;
    Job { record, bytes, unknown, number, compare, tickets: [None; 3] }
}

fn sequential<R: Read>(
    reader: &mut TraceReader<R>,
    shared: &Shared<'_>,
    pace: &mut Pace<'_>,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
    next: &mut Option<Item>,
) -> Result<Outcome> {
    let mut executor = Executor::new(shared);
    let (mut number, mut bytes) = (0, Vec::new());
    while let Some(Item::Operation(record)) = next.take_if(|item| matches!(item, Item::Operation(_))) {
        pace.reach(record.at, shared.target)?;
        let mut job = prepare(reader, shared, record, number, bytes);
        executor.execute(&mut job);
        bytes = job.bytes;
        number += 1;
        if number.is_multiple_of(REPORT_EVERY) {
            progress(Progress::At(reader.position()))?;
        }
        *next = reader.next()?;
    }
    Ok(executor.finish())
}

fn concurrent<R: Read>(
    reader: &mut TraceReader<R>,
    shared: &Shared<'_>,
    pace: &mut Pace<'_>,
    progress: &mut dyn FnMut(Progress) -> Result<()>,
    next: &mut Option<Item>,
    threads: usize,
) -> Result<Outcome> {
    let order = schedule::Turns::default();
    std::thread::scope(|scope| {
        let mut lanes = schedule::Lanes::new(threads);
        let mut queues: Vec<SyncSender<Job>> = Vec::new();
        let mut workers = Vec::new();
        let mut number = 0;
        let dispatched = (|| {
            while let Some(Item::Operation(record)) = next.take_if(|item| matches!(item, Item::Operation(_)))
            {
                pace.reach(record.at, shared.target)?;
                let lane = lanes.of(record.thread);
                while queues.len() <= lane {
                    let (queue, jobs) = sync_channel(schedule::QUEUE);
                    queues.push(queue);
                    let order = &order;
                    workers.push(scope.spawn(move || work(shared, order, &jobs)));
                }
                let mut job = prepare(reader, shared, record, number, Vec::new());
                job.tickets = lanes.tickets(&job.record.op);
                if queues[lane].send(job).is_err() {
                    return Err(Error::Invalid("a thread of the replay has ended".into()));
                }
                number += 1;
                if number.is_multiple_of(REPORT_EVERY) {
                    progress(Progress::At(reader.position()))?;
                }
                *next = reader.next()?;
            }
            Ok(())
        })();
        drop(queues);
        let mut outcome = Outcome::default();
        for worker in workers {
            outcome.add(worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        }
        dispatched.map(|()| outcome)
    })
}

fn work(shared: &Shared<'_>, order: &schedule::Turns, jobs: &Receiver<Job>) -> Outcome {
    let mut executor = Executor::new(shared);
    for mut job in jobs {
        let tickets = job.tickets;
        order.wait(&tickets);
        executor.execute(&mut job);
        order.done(&tickets);
    }
    executor.finish()
}

/// Time as the trace has it.
struct Pace<'a> {
    clock: Option<&'a ManualClock>,
    timed: bool,
    began: Instant,
    /// The trace's time, in nanoseconds.
    now: u64,
    ticks: u64,
}

impl Pace<'_> {
    /// Lets the trace's time pass up to `at`, with the background work of the seconds in between.
    fn reach(&mut self, at: u64, target: &dyn Files) -> Result<()> {
        const SECOND: u64 = 1_000_000_000;
        if self.timed {
            let due = self.began + Duration::from_nanos(at);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        let background =
            |target: &dyn Files| target.background().map_err(Error::files("background work failed"));
        let seconds = at / SECOND;
        if seconds > self.ticks {
            // A pause of hours brings nothing new after its first minutes.
            let skipped = (seconds - self.ticks).saturating_sub(TICKS_MAX);
            self.ticks += skipped;
            while self.ticks < seconds {
                self.ticks += 1;
                self.move_clock(self.ticks * SECOND);
                background(target)?;
            }
        }
        self.move_clock(at);
        Ok(())
    }

    fn move_clock(&mut self, to: u64) {
        if to > self.now {
            if let Some(clock) = self.clock {
                clock.advance(Duration::from_nanos(to - self.now));
            }
            self.now = to;
        }
    }
}

/// Compares the tree of `files` with that at the end of a trace, of which `first` was read already. What
/// differs comes back in words; `None` where the trace does not have its end.
pub fn verify_tree<R: Read>(
    reader: &mut TraceReader<R>,
    first: Option<TreeEntry>,
    files: &dyn Files,
) -> Result<Option<Mismatches>> {
    let private = reader.head().private;
    let mut wanted: Vec<TreeEntry> = first.into_iter().collect();
    while let Some(item) = reader.next()? {
        match item {
            Item::Tree(entry) => wanted.push(entry),
            _ => return Err(Error::Invalid("operations come after the tree".into())),
        }
    }
    let expected = match reader.ending() {
        crate::reader::Ending::Complete(end) => end.tree,
        _ => None,
    };
    if expected != Some(wanted.len() as u64) {
        return Ok(None);
    }
    wanted.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let mut found = Vec::with_capacity(wanted.len());
    tree::list(files, &mut |entry| {
        found.push(entry);
        Ok(())
    })?;
    found.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    let mut mismatches = Mismatches::default();
    let (mut want, mut have) = (wanted.iter().peekable(), found.iter().peekable());
    loop {
        match (want.peek(), have.peek()) {
            (None, None) => return Ok(Some(mismatches)),
            (Some(w), Some(h)) if w.path == h.path => {
                if let Some(text) = tree::difference(w, h, private) {
                    mismatches.note(|| text);
                }
                want.next();
                have.next();
            }
            (Some(w), h) if h.is_none_or(|h| w.path < h.path) => {
                mismatches.note(|| format!("{} is missing", String::from_utf8_lossy(&w.path)));
                want.next();
            }
            (_, Some(h)) => {
                mismatches.note(|| format!("{} should not be there", String::from_utf8_lossy(&h.path)));
                have.next();
            }
            (Some(_), None) => unreachable!("handled above"),
        }
    }
}
