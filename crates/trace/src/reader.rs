//! Reading a trace from its beginning to its end.
//!
//! Invariants: memory is bounded by the window that the head names (at most [`WINDOW_MAX`]) and one frame. A
//! trace that was cut short gives all its whole frames and then ends; [`TraceReader::ending`] tells which it
//! was. Bytes that do not agree with the format are an error that names the byte where their frame begins.

use crate::error::{Error, Result};
use crate::format::{End, Frame, FrameReader, Head, Kind, Next, WINDOW_MAX};
use crate::record::{Content, Op, PAGE, Record, Run, TreeEntry};
use crate::sketch::Synthesizer;
use std::collections::VecDeque;
use std::io::Read;
use std::ops::Range;

/// One part of a trace, in the order in which they come.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// An operation that makes the tree as it was before.
    Setup(Record),
    /// An operation that was recorded.
    Operation(Record),
    /// A file of the tree as it was after.
    Tree(TreeEntry),
}

/// The way a trace ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// Its end was not read yet.
    Open,
    /// As its writer wanted.
    Complete(End),
    /// The file ends before: the byte up to which it is whole.
    Cut(u64),
}

/// Reads a trace. It need not be able to seek.
pub struct TraceReader<R> {
    frames: FrameReader<R>,
    head: Head,
    window: Window,
    frame: Option<Frame>,
    /// Bytes of the frame that are read.
    used: usize,
    last_at: u64,
    setup_is_over: bool,
    ending: Ending,
}

impl<R: Read> TraceReader<R> {
    /// Begins to read.
    pub fn new(input: R) -> Result<TraceReader<R>> {
        let mut frames = FrameReader::new(input)?;
        let head = match frames.next()? {
            Next::Frame(Frame { kind: Kind::Head, bytes, at }) => serde_json::from_slice::<Head>(&bytes)
                .map_err(|e| Error::Corrupt {
                    at,
                    what: format!("its head does not say where it comes from: {e}"),
                })?,
            Next::Frame(Frame { at, .. }) => {
                return Err(Error::Corrupt { at, what: "its first frame is not its head".into() });
            }
            Next::End | Next::Cut(_) => return Err(Error::Foreign("it ends before its head does".into())),
        };
        if head.window > WINDOW_MAX {
            let what = format!("its window of contents has {} bytes, more than {WINDOW_MAX}", head.window);
            return Err(Error::Corrupt { at: 0, what });
        }
        let window = Window::new(head.window);
        let (frame, ending) = (None, Ending::Open);
        Ok(TraceReader { frames, head, window, frame, used: 0, last_at: 0, setup_is_over: false, ending })
    }

    /// The origin of the trace.
    pub fn head(&self) -> &Head {
        &self.head
    }

    /// The way it ends, once [`TraceReader::next`] returned nothing.
    pub fn ending(&self) -> &Ending {
        &self.ending
    }

    /// Bytes of the file read so far.
    pub fn position(&self) -> u64 {
        self.frames.position()
    }

    /// Bytes of the piece contents refer to.
    pub fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    /// The next item; `None` at the end.
    #[allow(clippy::should_implement_trait)] // an iterator could not lend its window meanwhile
    pub fn next(&mut self) -> Result<Option<Item>> {
        loop {
            if let Some(frame) = &self.frame
                && self.used < frame.bytes.len()
            {
                return self.item().map(Some);
            }
            if let Some(frame) = self.frame.take() {
                self.frames.recycle(frame.bytes);
            }
            if self.ending != Ending::Open || !self.frame()? {
                return Ok(None);
            }
        }
    }

    /// Reads the next frame; `false` where there is none.
    fn frame(&mut self) -> Result<bool> {
        let frame = match self.frames.next()? {
            Next::End => {
                self.ending = Ending::Cut(self.frames.position());
                return Ok(false);
            }
            Next::Cut(at) => {
                self.ending = Ending::Cut(at);
                return Ok(false);
            }
            Next::Frame(frame) => frame,
        };
        let at = frame.at;
        let corrupt = |what: &str| Error::Corrupt { at, what: what.into() };
        match frame.kind {
            Kind::Head => return Err(corrupt("it has two heads")),
            Kind::Content => {
                if let Some(forgotten) = self.window.add(frame)? {
                    self.frames.recycle(forgotten);
                }
            }
            Kind::Setup if self.setup_is_over => {
                return Err(corrupt("the initial tree comes after recorded operations"));
            }
            Kind::Setup | Kind::Operations | Kind::Tree => {
                self.setup_is_over |= frame.kind != Kind::Setup;
                (self.used, self.last_at) = (0, 0);
                self.frame = Some(frame);
            }
            Kind::End => {
                let end = serde_json::from_slice(&frame.bytes)
                    .map_err(|e| corrupt(&format!("its end record is damaged: {e}")))?;
                self.ending = Ending::Complete(end);
            }
        }
        Ok(true)
    }

    fn item(&mut self) -> Result<Item> {
        let Some(frame) = &self.frame else { unreachable!("asked for with a frame only") };
        let rest = &frame.bytes[self.used..];
        let at = frame.at;
        let corrupt = |what: String| Error::Corrupt { at, what };
        let malformed = |e: postcard::Error| corrupt(format!("a record is malformed: {e}"));
        if frame.kind == Kind::Tree {
            let (entry, behind) = postcard::take_from_bytes::<TreeEntry>(rest).map_err(malformed)?;
            self.used = frame.bytes.len() - behind.len();
            return Ok(Item::Tree(entry));
        }
        type Fields = (i64, u64, u32, u32, u16, Op);
        let ((since, took, process, thread, errno, op), behind) =
            postcard::take_from_bytes::<Fields>(rest).map_err(malformed)?;
        self.used = frame.bytes.len() - behind.len();
        self.last_at = self.last_at.wrapping_add(since as u64);
        let record = Record { at: self.last_at, took, process, thread, errno, op };
        let setup = frame.kind == Kind::Setup;
        check(&record.op, &self.window).map_err(corrupt)?;
        if let Some(content) = record.op.content() {
            self.window.introduce(content);
        }
        Ok(if setup { Item::Setup(record) } else { Item::Operation(record) })
    }
}

/// What is wrong with a record, as far as it can be told without a file system.
fn check(op: &Op, window: &Window) -> Result<(), String> {
    let (len, exact, content) = match op {
        Op::Read { len, content, .. } => (*len, false, content),
        Op::Write { len, content, .. } => (*len, true, content),
        _ => return Ok(()),
    };
    const LEN_MAX: u32 = 64 << 20;
    if len > LEN_MAX {
        return Err(format!("a record is of {len} bytes at once"));
    }
    let total = window.len_of(content)?;
    if total > u64::from(len) || (exact && total != u64::from(len)) {
        return Err(format!("a record of {len} bytes has {total} bytes of content"));
    }
    Ok(())
}

/// The contents that records may refer to.
pub struct Window {
    keep: u64,
    frames: VecDeque<Pieces>,
    bytes: u64,
    next: u64,
    /// Number of the first sketch of the record that was read last.
    introduced: u64,
    synthesizer: Synthesizer,
}

/// Pieces with neighbouring numbers.
struct Pieces {
    first: u64,
    /// Where each ends in `bytes`.
    ends: Vec<u32>,
    /// Where they begin.
    start: usize,
    bytes: Vec<u8>,
}

/// Most sketched pieces in one frame of the window.
const SKETCHES: usize = 256;

impl Window {
    fn new(keep: u64) -> Window {
        let (frames, synthesizer) = (VecDeque::new(), Synthesizer::default());
        Window { keep, frames, bytes: 0, next: 0, introduced: 0, synthesizer }
    }

    /// Takes a frame of contents; gives the memory of one that is out of the window.
    fn add(&mut self, frame: Frame) -> Result<Option<Vec<u8>>> {
        let Frame { bytes, at, .. } = frame;
        let corrupt = |what: &str| Error::Corrupt { at, what: what.into() };
        let cut = || corrupt("a frame of contents is shorter than it says");
        let first = bytes.first_chunk::<8>().map(|b| u64::from_le_bytes(*b)).ok_or_else(cut)?;
        let count = bytes.get(8..12).and_then(|b| b.first_chunk::<4>()).map(|b| u32::from_le_bytes(*b));
        let count = count.ok_or_else(cut)? as usize;
        let start = count.checked_mul(2).and_then(|lens| lens.checked_add(12)).ok_or_else(cut)?;
        let lens = bytes.get(12..start).ok_or_else(cut)?;
        let mut end = 0;
        let ends: Vec<u32> = lens
            .chunks_exact(2)
            .map(|len| {
                end += u32::from(u16::from_le_bytes([len[0], len[1]]));
                end
            })
            .collect();
        if start + end as usize != bytes.len() {
            return Err(cut());
        }
        if first != self.next {
            return Err(corrupt("contents are missing"));
        }
        self.next = first + count as u64;
        Ok(self.keep(Pieces { first, ends, start, bytes }))
    }

    /// Keeps pieces, and gives the memory of those that are forgotten for them.
    fn keep(&mut self, pieces: Pieces) -> Option<Vec<u8>> {
        let mut forgotten = None;
        self.bytes += (pieces.bytes.len() - pieces.start) as u64;
        self.frames.push_back(pieces);
        while self.bytes > self.keep && self.frames.len() > 1 {
            let Some(old) = self.frames.pop_front() else { break };
            self.bytes -= (old.bytes.len() - old.start) as u64;
            forgotten = Some(old.bytes);
        }
        forgotten
    }

    /// Gives the sketches of a content their numbers. Their bytes are zeros until [`Window::resolve`] makes them.
    fn introduce(&mut self, content: &Content) {
        self.introduced = self.next;
        for run in &content.0 {
            let Run::Sketch(sketch) = run else { continue };
            let len = usize::from(sketch.len);
            match self.frames.back_mut() {
                Some(last) if last.start == 0 && last.ends.len() < SKETCHES => {
                    self.bytes += len as u64;
                    last.bytes.resize(last.bytes.len() + len, 0);
                    last.ends.push(last.bytes.len() as u32);
                }
                _ => {
                    let bytes = vec![0; len];
                    self.keep(Pieces { first: self.next, ends: vec![len as u32], start: 0, bytes });
                }
            }
            self.next += 1;
        }
    }

    /// The bytes of a piece, by its number.
    pub fn piece(&self, number: u64) -> Option<&[u8]> {
        let (pieces, index) = self.find(number)?;
        let begin = index.checked_sub(1).map_or(0, |before| pieces.ends[before]);
        pieces.bytes.get(pieces.start + begin as usize..pieces.start + pieces.ends[index] as usize)
    }

    fn find(&self, number: u64) -> Option<(&Pieces, usize)> {
        let behind = self.frames.partition_point(|pieces| pieces.first <= number);
        let pieces = self.frames.get(behind.checked_sub(1)?)?;
        let index = usize::try_from(number - pieces.first).ok()?;
        (index < pieces.ends.len()).then_some((pieces, index))
    }

    /// Bytes of a content; what is wrong where it refers to what is not there.
    pub fn len_of(&self, content: &Content) -> Result<u64, String> {
        let mut total = 0;
        for run in &content.0 {
            total += match *run {
                Run::Zeros { len } | Run::Unknown { len } => u64::from(len),
                Run::Sketch(sketch) if usize::from(sketch.len) > PAGE => {
                    return Err(format!("a piece has {} bytes", sketch.len));
                }
                Run::Sketch(sketch) => u64::from(sketch.len),
                Run::Stored { first, count } => self.stored_len(first, count)?,
            };
        }
        Ok(total)
    }

    fn stored_len(&self, first: u64, count: u32) -> Result<u64, String> {
        let mut len = 0;
        // As many steps as pieces that are there: the first one that is not ends it.
        for number in (0..u64::from(count)).map(|i| first.wrapping_add(i)) {
            let piece = self.piece(number);
            len += piece.ok_or_else(|| format!("piece {number} of its contents is not there"))?.len() as u64;
        }
        Ok(len)
    }

    /// Appends the bytes of the content of the record that was read last. Unknown ones are zeros, and their ranges are
    /// returned. `before` is what the file holds there, from which sketched pieces are made.
    pub fn resolve(&mut self, content: &Content, before: &[u8], into: &mut Vec<u8>) -> Vec<Range<usize>> {
        let mut unknown = Vec::new();
        let (begin, mut sketched) = (into.len(), self.introduced);
        for run in &content.0 {
            match *run {
                Run::Zeros { len } => into.resize(into.len() + len as usize, 0),
                Run::Unknown { len } => {
                    unknown.push(into.len()..into.len() + len as usize);
                    into.resize(into.len() + len as usize, 0);
                }
                Run::Stored { first, count } => {
                    for number in first..first + u64::from(count) {
                        into.extend_from_slice(self.piece(number).unwrap_or_default());
                    }
                }
                Run::Sketch(sketch) => {
                    let (at, len) = (into.len() - begin, usize::from(sketch.len));
                    let old = before.get(at..(at + len).min(before.len())).unwrap_or_default();
                    let made = self.synthesizer.piece(sketched, &sketch, old);
                    if let Some(piece) = self.piece_mut(sketched) {
                        piece.copy_from_slice(&made);
                    }
                    sketched += 1;
                    into.extend_from_slice(&made);
                }
            }
        }
        unknown
    }

    fn piece_mut(&mut self, number: u64) -> Option<&mut [u8]> {
        let behind = self.frames.partition_point(|pieces| pieces.first <= number);
        let pieces = self.frames.get_mut(behind.checked_sub(1)?)?;
        let index = usize::try_from(number - pieces.first).ok()?;
        let end = *pieces.ends.get(index)?;
        let begin = index.checked_sub(1).map_or(0, |before| pieces.ends[before]);
        pieces.bytes.get_mut(pieces.start + begin as usize..pieces.start + end as usize)
    }
}
