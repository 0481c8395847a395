//! What was recorded and is not written yet.
//!
//! Purpose: who is being recorded waits for a copy of what it read or wrote, and for nothing else.
//! [`WriteQueue`] gathers records and their bytes into batches; a thread of its own cuts them into pieces,
//! finds those that the trace has already, and hands everything to the [`TraceWriter`].
//!
//! Invariants: records are written in the order in which [`WriteQueue::push`] took them. Memory is bounded: a
//! batch is handed over when it holds [`BATCH_BYTES`] or [`BATCH_RECORDS`], at most [`QUEUE`] wait, and then
//! who pushes waits too. After a failure what comes is dropped; [`WriteQueue::finish`] tells the failure.
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
pub(crate) struct WriteQueue {
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

impl WriteQueue {
    /// Begins with a trace that has its head.
    pub(crate) fn new(writer: TraceWriter) -> Result<WriteQueue> {
        let (queue, jobs) = sync_channel(QUEUE);
        let shared = Arc::new(Shared::default());
        let also = shared.clone();
        let thread = std::thread::Builder::new()
            .name("medfs-recorder".into())
            .spawn(move || write(writer, &jobs, &also))
            .map_err(Error::io("cannot start the thread that records"))?;
        let front = Front { batch: Batch::default(), queue: Some(queue), thread: Some(thread) };
        Ok(WriteQueue { front: Mutex::new(front), shared })
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

impl Drop for WriteQueue {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::{Head, WINDOW};
    use crate::reader::{Ending, Item, TraceReader};
    use crate::record::Content;
    use std::io::Write;

    /// Takes so many bytes, and no more.
    #[derive(Clone)]
    struct Out(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Out {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut taken = self.0.lock();
            if taken.len() + bytes.len() > self.1 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            taken.extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn begin(most: usize) -> (Out, WriteQueue) {
        let out = Out(Arc::default(), most);
        let head = Head {
            id: "1".into(),
            source: "mount".into(),
            writer: String::new(),
            began: 0,
            about: String::new(),
            private: false,
            cache: "none".into(),
            window: WINDOW,
        };
        let queue = WriteQueue::new(TraceWriter::new(out.clone(), &head).unwrap()).unwrap();
        (out, queue)
    }

    /// Bytes that do not compress, others for each number.
    fn bytes(number: u64) -> Vec<u8> {
        let mut state = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        };
        (0..1000).map(|_| next()).collect()
    }

    fn push(queue: &WriteQueue, number: u64) {
        let op = Op::Write { file: 1, offset: 0, len: 1000, cached: false, content: Content::default() };
        let record = Record { at: number, took: 1, process: 2, thread: 3, errno: 0, op };
        let carried = Carried { offset: 0, bytes: &bytes(number), before: None };
        queue.push(Phase::Recorded, record, Some(carried));
    }

    #[test]
    fn what_many_batches_hold_comes_in_its_order() {
        let (out, queue) = begin(usize::MAX);
        let count = 5 * (BATCH_BYTES / 1000) as u64 + 7;
        (0..count).for_each(|number| push(&queue, number));
        queue.finish().unwrap().finish().unwrap();
        assert!(queue.finish().is_err(), "once");
        let trace = out.0.lock();
        let mut reader = TraceReader::new(&trace[..]).unwrap();
        for number in 0..count {
            let Some(Item::Operation(record)) = reader.next().unwrap() else { panic!("{number} is missing") };
            assert_eq!(record.at, number);
            let mut content = Vec::new();
            reader.window().resolve(record.op.content().unwrap(), &[], &mut content);
            assert!(content == bytes(number), "{number}");
        }
        assert_eq!(reader.next().unwrap(), None);
        assert!(matches!(reader.ending(), Ending::Complete(_)));
    }

    #[test]
    fn a_failure_stops_nobody_and_is_told_at_the_end() {
        let (_, queue) = begin(100_000);
        (0..20_000).for_each(|number| push(&queue, number));
        queue.flush();
        let message = queue.finish().and_then(TraceWriter::finish).unwrap_err().to_string();
        assert!(message.contains("cannot write the trace"), "{message}");
        push(&queue, 1);
        assert!(queue.failed());
    }
}
