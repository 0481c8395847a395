//! What was recorded and is not written yet.
//!
//! Purpose: who is being recorded waits for a copy of what it read or wrote, and for nothing else. [`Backlog`] gathers
//! records and their bytes into batches; a thread of its own cuts them into pieces, finds those that the trace has
//! already, and hands everything to the [`TraceWriter`].
//!
//! Invariants: records are written in the order in which [`Backlog::push`] took them. Memory is bounded: a batch is handed
//! over when it holds [`BATCH_BYTES`] or [`BATCH_RECORDS`], at most [`QUEUE`] wait, and then who pushes waits too.
//! After a failure what comes is dropped; [`Backlog::finish`] tells the failure.
//!
//! Locks: `front` is held while a batch is handed over, which keeps the order; `spare` and `failed` are leaves.

use crate::error::{Error, Result};
use crate::record::{Op, Record};
use crate::writer::{Phase, TraceWriter, pieces};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// A batch with so many bytes is full; one operation may add as many as it carries.
const BATCH_BYTES: usize = 256 << 10;
/// So is one with so many records.
const BATCH_RECORDS: usize = 1024;
/// Batches that may wait for the thread.
const QUEUE: usize = 4;

/// Bytes that an operation carried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Carried<'a> {
    /// Where in the file they begin.
    pub(crate) offset: u64,
    pub(crate) bytes: &'a [u8],
    /// What was there before, where the trace keeps no contents.
    pub(crate) before: Option<&'a [u8]>,
}

/// Records on their way to the trace.
pub(crate) struct Backlog {
    front: Mutex<Front>,
    shared: Arc<Shared>,
}

struct Front {
    batch: Batch,
    /// `None` once it is finished or has failed.
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<Result<TraceWriter>>>,
}

#[derive(Default)]
struct Shared {
    /// Batches to be filled again: their memory is not asked for anew.
    spare: Mutex<Vec<Batch>>,
    failed: AtomicBool,
}

enum Job {
    Batch(Batch),
    Flush,
}

#[derive(Default)]
struct Batch {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

struct Entry {
    phase: Phase,
    record: Record,
    carried: Option<Stored>,
}

/// [`Carried`] within a batch.
struct Stored {
    offset: u64,
    bytes: Range<usize>,
    before: Option<Range<usize>>,
}

impl Backlog {
    /// Begins with a trace that has its head.
    pub(crate) fn new(writer: TraceWriter) -> Result<Backlog> {
        let (queue, jobs) = sync_channel(QUEUE);
        let shared = Arc::new(Shared::default());
        let also = shared.clone();
        let thread = std::thread::Builder::new()
            .name("medfs-recorder".into())
            .spawn(move || write(writer, &jobs, &also))
            .map_err(Error::io("cannot start the thread that records"))?;
        let front = Front { batch: Batch::default(), queue: Some(queue), thread: Some(thread) };
        Ok(Backlog { front: Mutex::new(front), shared })
    }

    /// Takes a record. The content of a read or a write is left empty in it, and `carried` instead.
    pub(crate) fn push(&self, phase: Phase, record: Record, carried: Option<Carried<'_>>) {
        let mut front = self.front.lock();
        if front.queue.is_none() {
            return;
        }
        front.batch.push(phase, record, carried);
        if front.batch.is_full() {
            self.hand_over(&mut front);
        }
    }

    /// Has everything so far written soon.
    pub(crate) fn flush(&self) {
        let mut front = self.front.lock();
        self.hand_over(&mut front);
        front.send(Job::Flush);
    }

    fn hand_over(&self, front: &mut Front) {
        if !front.batch.entries.is_empty() {
            let empty = self.shared.spare.lock().pop().unwrap_or_default();
            let batch = std::mem::replace(&mut front.batch, empty);
            front.send(Job::Batch(batch));
        }
    }

    /// Whether the rest of the trace is lost.
    pub(crate) fn failed(&self) -> bool {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Has everything written, and gives the trace back. Nothing is taken after this.
    pub(crate) fn finish(&self) -> Result<TraceWriter> {
        let thread = {
            let mut front = self.front.lock();
            self.hand_over(&mut front);
            front.queue = None;
            front.thread.take()
        };
        match thread.map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => {
                Err(Error::io("cannot write the trace")(io::Error::other("the thread that records panicked")))
            }
            None => Err(Error::Invalid("the trace is finished".into())),
        }
    }
}

impl Drop for Backlog {
    fn drop(&mut self) {
        // Without an end this is a trace that was cut short, as far as it came.
        let _ = self.finish();
    }
}

impl Front {
    fn send(&mut self, job: Job) {
        if self.queue.as_ref().is_some_and(|queue| queue.send(job).is_err()) {
            self.queue = None;
        }
    }
}

impl Batch {
    fn push(&mut self, phase: Phase, record: Record, carried: Option<Carried<'_>>) {
        let carried = carried.map(|Carried { offset, bytes, before }| Stored {
            offset,
            bytes: self.keep(bytes),
            before: before.map(|before| self.keep(before)),
        });
        self.entries.push(Entry { phase, record, carried });
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= BATCH_BYTES || self.entries.len() >= BATCH_RECORDS
    }

    /// Writes and empties it.
    fn write(&mut self, writer: &mut TraceWriter) -> Result<()> {
        for Entry { phase, mut record, carried } in self.entries.drain(..) {
            if let (Some(carried), Op::Read { content, .. } | Op::Write { content, .. }) =
                (carried, &mut record.op)
            {
                let before = carried.before.map(|before| &self.bytes[before]);
                *content = writer.content(&pieces(carried.offset, &self.bytes[carried.bytes], before))?;
            }
            writer.push(phase, &record)?;
        }
        self.bytes.clear();
        Ok(())
    }
}

/// Writes what comes until there is no more.
fn write(mut writer: TraceWriter, jobs: &Receiver<Job>, shared: &Shared) -> Result<TraceWriter> {
    for job in jobs {
        let written = match job {
            Job::Flush => writer.flush_frames(),
            Job::Batch(mut batch) => batch.write(&mut writer).map(|()| {
                let mut spare = shared.spare.lock();
                if spare.len() < QUEUE {
                    spare.push(batch);
                }
            }),
        };
        if let Err(error) = written {
            shared.failed.store(true, Ordering::Relaxed);
            tracing::error!(%error, "the rest of the trace is lost");
            return Err(error);
        }
    }
    Ok(writer)
}
