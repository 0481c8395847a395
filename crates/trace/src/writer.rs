//! Writing a trace as it comes about.
//!
//! Purpose: records are collected into frames; contents are stored once as long as they are within the
//! window; a thread of its own compresses and writes, so that who is being recorded does not wait for it.
//!
//! Invariants: memory is bounded by the window's numbers (a hash and a number for each piece), three frames
//! in the making and [`QUEUE`] on their way. A frame of records is preceded by every piece it refers to, none
//! of which is further back than the window. What [`TraceWriter::flush`] returned for survives the end of the
//! process.

use crate::error::{Error, Result};
use crate::format::{End, FRAME_FULL, FrameWriter, Head, Kind, WINDOW};
use crate::record::{Content, PAGE, Record, Run, Sketch, TreeEntry};
use crate::sketch;
use foldhash::HashMap;
use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// Frames waiting to be compressed.
const QUEUE: usize = 4;
/// The writer refers to less than readers keep, because the frame in the making counts too.
const REACH: u64 = WINDOW - 4 * FRAME_FULL as u64;

/// Whether records make the tree as it was before, or are what was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// They make the tree.
    Setup,
    /// They were recorded.
    Recorded,
}

/// A piece of content with its hash, made outside of the writer's lock.
#[derive(Debug)]
pub struct Piece<'a> {
    bytes: &'a [u8],
    /// `None`: zeros.
    hash: Option<[u8; 16]>,
    /// What it replaces, where that is known.
    sketch: Option<Sketch>,
}

/// Cuts bytes at `offset` of a file into pieces. `before` is what was there (shorter, where the file was), and given
/// where the trace keeps no contents.
pub fn pieces<'a>(offset: u64, bytes: &'a [u8], before: Option<&[u8]>) -> Vec<Piece<'a>> {
    let mut pieces = Vec::with_capacity(bytes.len() / PAGE + 2);
    let mut at = 0;
    while at < bytes.len() {
        let room = PAGE - (offset + at as u64) as usize % PAGE;
        let piece = &bytes[at..(at + room).min(bytes.len())];
        let zeros = is_zeros(piece);
        let hash = (!zeros).then(|| short_hash(piece));
        let old = before.map(|old| old.get(at..(at + piece.len()).min(old.len())).unwrap_or_default());
        let sketch = old.filter(|_| !zeros).map(|old| sketch::of(piece, old));
        pieces.push(Piece { bytes: piece, hash, sketch });
        at += piece.len();
    }
    pieces
}

pub(crate) fn is_zeros(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| b == 0)
}

/// BLAKE3, cut to 16 bytes.
pub(crate) fn short_hash(bytes: &[u8]) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(bytes).as_bytes()[..16]);
    short
}

/// Writes a trace.
pub struct TraceWriter {
    queue: Option<SyncSender<Job>>,
    thread: Option<JoinHandle<io::Result<()>>>,
    contents: Contents,
    records: Records,
    tree: Vec<u8>,
    end: End,
    private: bool,
}

enum Job {
    Frame(Kind, Vec<u8>),
    Flush(SyncSender<()>),
}

/// The frame of pieces in the making, and the pieces that records may refer to.
struct Contents {
    known: HashMap<[u8; 16], u64>,
    /// The pieces within reach, oldest first.
    order: VecDeque<([u8; 16], u32)>,
    /// Number of the oldest of them.
    oldest: u64,
    reach: u64,
    lens: Vec<u16>,
    bytes: Vec<u8>,
}

/// The frame of records in the making.
struct Records {
    phase: Phase,
    bytes: Vec<u8>,
    last_at: u64,
}

impl TraceWriter {
    /// Begins a trace. `out` need not be buffered.
    pub fn new(out: impl Write + Send + 'static, head: &Head) -> Result<TraceWriter> {
        let (queue, jobs) = sync_channel(QUEUE);
        let mut frames = FrameWriter::new(out);
        let first = serde_json::to_vec(head).map_err(|e| Error::io("cannot write the trace")(e.into()))?;
        let begun = frames.open().and_then(|()| frames.frame(Kind::Head, &first));
        begun.map_err(Error::io("cannot write the trace"))?;
        let thread = std::thread::Builder::new()
            .name("medfs-trace".into())
            .spawn(move || write_frames(frames, &jobs))
            .map_err(Error::io("cannot start the thread that writes the trace"))?;
        Ok(TraceWriter {
            queue: Some(queue),
            thread: Some(thread),
            contents: Contents {
                known: HashMap::default(),
                order: VecDeque::new(),
                oldest: 0,
                reach: 0,
                lens: Vec::new(),
                bytes: Vec::new(),
            },
            records: Records { phase: Phase::Setup, bytes: Vec::new(), last_at: 0 },
            tree: Vec::new(),
            end: End::default(),
            private: head.private,
        })
    }

    /// Takes the pieces into the trace, as far as it does not have them, and returns what records say of them.
    pub fn content(&mut self, pieces: &[Piece<'_>]) -> Result<Content> {
        let mut runs = Vec::new();
        for piece in pieces {
            let run = match piece.hash {
                None => Run::Zeros { len: piece.bytes.len() as u32 },
                Some(hash) => self.piece(hash, piece)?,
            };
            append(&mut runs, run);
        }
        Ok(Content(runs))
    }

    fn piece(&mut self, hash: [u8; 16], piece: &Piece<'_>) -> Result<Run> {
        if let Some(&number) = self.contents.known.get(&hash) {
            return Ok(Run::Stored { first: number, count: 1 });
        }
        let len = piece.bytes.len();
        let number = self.contents.remember(hash, len as u32);
        if self.private {
            return Ok(Run::Sketch(piece.sketch.unwrap_or_else(|| sketch::of(piece.bytes, &[]))));
        }
        self.contents.lens.push(len as u16);
        self.contents.bytes.extend_from_slice(piece.bytes);
        Ok(Run::Stored { first: number, count: 1 })
    }

    /// Appends a record whose content this writer has named.
    pub fn push(&mut self, phase: Phase, record: &Record) -> Result<()> {
        if phase != self.records.phase {
            self.flush_frames()?;
            self.records.phase = phase;
        }
        let records = &mut self.records;
        if records.bytes.is_empty() {
            records.last_at = 0;
        }
        let since = record.at.wrapping_sub(records.last_at) as i64;
        records.last_at = record.at;
        let Record { took, process, thread, errno, ref op, .. } = *record;
        let bytes = std::mem::take(&mut records.bytes);
        records.bytes = postcard::to_extend(&(since, took, process, thread, errno, op), bytes)
            .map_err(|e| Error::Invalid(format!("a record cannot be written: {e}")))?;
        self.end.operations += u64::from(phase == Phase::Recorded);
        if self.records.bytes.len() >= FRAME_FULL || self.contents.bytes.len() >= FRAME_FULL {
            self.flush_frames()?;
        }
        Ok(())
    }

    /// Appends a file of the tree as it is at the end, in the order of [`crate::tree`].
    pub fn tree(&mut self, entry: &TreeEntry) -> Result<()> {
        let bytes = std::mem::take(&mut self.tree);
        self.tree = postcard::to_extend(entry, bytes)
            .map_err(|e| Error::Invalid(format!("a file of the tree cannot be written: {e}")))?;
        *self.end.tree.get_or_insert(0) += 1;
        if self.tree.len() >= FRAME_FULL {
            self.flush_tree()?;
        }
        Ok(())
    }

    /// Says that the tree was looked at, though it may be empty.
    pub fn tree_is_complete(&mut self) {
        self.end.tree.get_or_insert(0);
    }

    /// Counts what an importer did not understand.
    pub fn skipped(&mut self, skipped: Vec<(String, u64)>) {
        self.end.skipped = skipped;
    }

    /// Recorded operations so far.
    pub fn operations(&self) -> u64 {
        self.end.operations
    }

    /// Hands everything to the system: what was pushed is in the file when this returns.
    pub fn flush(&mut self) -> Result<()> {
        self.flush_frames()?;
        let (done, wait) = sync_channel(1);
        self.send(Job::Flush(done))?;
        // The thread answers, or has ended with an error that `send` tells next time.
        let _ = wait.recv();
        Ok(())
    }

    /// Hands over the frames in the making without waiting for them.
    pub fn flush_frames(&mut self) -> Result<()> {
        if !self.contents.lens.is_empty() {
            let frame = self.contents.frame();
            self.send(Job::Frame(Kind::Content, frame))?;
        }
        if !self.records.bytes.is_empty() {
            let kind = match self.records.phase {
                Phase::Setup => Kind::Setup,
                Phase::Recorded => Kind::Operations,
            };
            let frame = std::mem::take(&mut self.records.bytes);
            self.send(Job::Frame(kind, frame))?;
        }
        Ok(())
    }

    fn flush_tree(&mut self) -> Result<()> {
        let frame = std::mem::take(&mut self.tree);
        self.send(Job::Frame(Kind::Tree, frame))
    }

    fn send(&mut self, job: Job) -> Result<()> {
        match self.queue.as_ref().is_some_and(|queue| queue.send(job).is_ok()) {
            true => Ok(()),
            false => self.join(),
        }
    }

    /// Ends the thread; its error, where it has one.
    fn join(&mut self) -> Result<()> {
        self.queue = None;
        let ended = self.thread.take().map(JoinHandle::join);
        let result = match ended {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(io::Error::other("the thread that writes it panicked")),
            None => Err(io::Error::other("an earlier write failed")),
        };
        result.map_err(Error::io("cannot write the trace"))
    }

    /// Ends the trace. Without this it is one that was cut short.
    pub fn finish(mut self) -> Result<End> {
        self.flush_frames()?;
        if !self.tree.is_empty() {
            self.flush_tree()?;
        }
        let last =
            serde_json::to_vec(&self.end).map_err(|e| Error::io("cannot write the trace")(e.into()))?;
        self.send(Job::Frame(Kind::End, last))?;
        self.join()?;
        Ok(std::mem::take(&mut self.end))
    }
}

impl Drop for TraceWriter {
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn write_frames<W: Write>(mut frames: FrameWriter<W>, jobs: &Receiver<Job>) -> io::Result<()> {
    for job in jobs {
        match job {
            Job::Frame(kind, raw) => frames.frame(kind, &raw)?,
            Job::Flush(done) => {
                frames.flush()?;
                let _ = done.send(());
            }
        }
    }
    frames.flush()
}

impl Contents {
    /// Gives a piece the next number, and forgets those that are out of reach.
    fn remember(&mut self, hash: [u8; 16], len: u32) -> u64 {
        let number = self.oldest + self.order.len() as u64;
        self.known.insert(hash, number);
        self.order.push_back((hash, len));
        self.reach += u64::from(len);
        while self.reach > REACH {
            let Some((hash, len)) = self.order.pop_front() else { break };
            // A piece that was stored anew has a later number.
            if self.known.get(&hash) == Some(&self.oldest) {
                self.known.remove(&hash);
            }
            self.oldest += 1;
            self.reach -= u64::from(len);
        }
        number
    }

    /// The frame of the pieces that no frame has yet.
    fn frame(&mut self) -> Vec<u8> {
        let first = self.oldest + self.order.len() as u64 - self.lens.len() as u64;
        let mut frame = Vec::with_capacity(12 + 2 * self.lens.len() + self.bytes.len());
        frame.extend_from_slice(&first.to_le_bytes());
        frame.extend_from_slice(&(self.lens.len() as u32).to_le_bytes());
        frame.extend(self.lens.drain(..).flat_map(u16::to_le_bytes));
        frame.append(&mut self.bytes);
        frame
    }
}

/// Appends a run, as a part of the last one where it continues that.
fn append(runs: &mut Vec<Run>, run: Run) {
    match (runs.last_mut(), run) {
        (Some(Run::Stored { first, count }), Run::Stored { first: next, .. })
            if *first + u64::from(*count) == next =>
        {
            *count += 1;
        }
        (Some(Run::Zeros { len }), Run::Zeros { len: more })
        | (Some(Run::Unknown { len }), Run::Unknown { len: more }) => *len += more,
        _ => runs.push(run),
    }
}
