//! The frames of a trace file: see `docs/TRACE.md`, which describes them.
//!
//! Invariants: a file is a fixed opening and then frames, each with its lengths and a checksum, so that a
//! file that was cut short is whole up to the last complete frame. Nothing read from a file is trusted before
//! its checksum agrees, and no length makes this allocate more than [`RAW_MAX`].

use crate::error::{Error, Result};
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// First bytes of a trace.
pub const MAGIC: [u8; 8] = *b"medfstrc";
/// Version of the format.
pub const VERSION: u32 = 1;
/// Bytes of the opening: magic, version, four zeros.
pub const OPENING: usize = 16;
/// Bytes of a frame's head.
pub const FRAME_HEAD: usize = 24;
/// Most bytes of a frame, before compression.
pub const RAW_MAX: usize = 4 << 20;
/// Bytes of a frame's content at which it is written.
pub const FRAME_FULL: usize = 1 << 20;
/// Most bytes of contents that a reader keeps for records to refer to.
pub const WINDOW_MAX: u64 = 256 << 20;
/// Bytes of contents that readers of our own traces keep.
pub const WINDOW: u64 = 128 << 20;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// The origin of the trace: JSON of [`Head`]. The first frame.
    Head = 1,
    /// Pieces of contents.
    Content = 2,
    /// Operations that make the tree as it was before.
    Setup = 3,
    /// Recorded operations.
    Operations = 4,
    /// Files of the tree as it was after.
    Tree = 5,
    /// A summary of the recording: JSON of [`End`]. The last frame.
    End = 6,
}

impl Kind {
    fn from_number(number: u32) -> Option<Kind> {
        const ALL: [Kind; 6] =
            [Kind::Head, Kind::Content, Kind::Setup, Kind::Operations, Kind::Tree, Kind::End];
        ALL.into_iter().find(|kind| *kind as u32 == number)
    }
}

/// The origin of a trace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// Number that no other trace has, as hexadecimal digits.
    pub id: String,
    /// Its recorder: `mount`, `volume`, `strace`, `blkparse`, `fio` or `mobibench`.
    pub source: String,
    /// Program and version that wrote it.
    pub writer: String,
    /// When it began, in nanoseconds since 1970.
    pub began: i64,
    /// A description of the recorded command or log; empty in a trace without contents.
    pub about: String,
    /// Contents are left out: pieces are sketches, names are replaced.
    pub private: bool,
    /// How much of what the application did reached the recorder: `none`, `through` or `writeback`; empty
    /// where that is no question.
    pub cache: String,
    /// Bytes of contents that a reader must keep.
    pub window: u64,
}

/// A summary of the recording.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct End {
    /// Recorded operations.
    pub operations: u64,
    /// Files of the tree that follows the operations; `None` where it was not looked at.
    pub tree: Option<u64>,
    /// Records that were lost, with the reason; empty in a whole trace.
    pub lost: String,
    /// Lines that an importer did not understand: kind and count.
    pub skipped: Vec<(String, u64)>,
}

/// A frame that was read.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    /// Where it begins in the file.
    pub(crate) at: u64,
    pub(crate) bytes: Vec<u8>,
}

/// The opening of a trace.
pub(crate) fn opening() -> [u8; OPENING] {
    let mut bytes = [0; OPENING];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// Checks the opening of a trace.
pub(crate) fn check_opening(bytes: &[u8]) -> Result<()> {
    if bytes.len() < OPENING {
        return Err(Error::Foreign(format!("it has {} bytes, and the opening of one takes 16", bytes.len())));
    }
    if bytes[..8] != MAGIC {
        return Err(Error::Foreign("its magic number is wrong".into()));
    }
    let version = u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    if version != VERSION { Err(Error::Version(version)) } else { Ok(()) }
}

fn checksum(head: &[u8], payload: &[u8]) -> [u8; 8] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(head).update(payload);
    let mut sum = [0; 8];
    sum.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    sum
}

/// Writes frames, compressed.
pub(crate) struct FrameWriter<W> {
    out: W,
    context: zstd_safe::CCtx<'static>,
    buffer: Vec<u8>,
}

/// zstd's level: the fastest that is worth it beside an application.
const LEVEL: i32 = 1;

impl<W: Write> FrameWriter<W> {
    pub(crate) fn new(out: W) -> FrameWriter<W> {
        FrameWriter { out, context: zstd_safe::CCtx::create(), buffer: Vec::new() }
    }

    pub(crate) fn open(&mut self) -> io::Result<()> {
        self.out.write_all(&opening())
    }

    pub(crate) fn frame(&mut self, kind: Kind, raw: &[u8]) -> io::Result<()> {
        self.buffer.resize(zstd_safe::compress_bound(raw.len()), 0);
        let len = self
            .context
            .compress(&mut self.buffer[..], raw, LEVEL)
            .map_err(|code| io::Error::other(zstd_safe::get_error_name(code)))?;
        self.buffer.truncate(len);
        let mut head = [0; FRAME_HEAD];
        head[..4].copy_from_slice(&(kind as u32).to_le_bytes());
        head[4..8].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        head[8..12].copy_from_slice(&(self.buffer.len() as u32).to_le_bytes());
        let sum = checksum(&head[..16], &self.buffer);
        head[16..].copy_from_slice(&sum);
        self.out.write_all(&head)?;
        self.out.write_all(&self.buffer)
    }

    pub(crate) fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// What came where a frame was expected.
pub(crate) enum Next {
    Frame(Frame),
    /// The file ends between two frames.
    End,
    /// The file ends within a frame that begins here.
    Cut(u64),
}

/// Reads frames.
pub(crate) struct FrameReader<R> {
    input: R,
    at: u64,
    context: zstd_safe::DCtx<'static>,
    stored: Vec<u8>,
    /// Memory of a frame that was read, for the next one.
    spare: Vec<u8>,
}

impl<R: Read> FrameReader<R> {
    /// Begins with the opening.
    pub(crate) fn new(mut input: R) -> Result<FrameReader<R>> {
        let mut opening = [0; OPENING];
        let len = read_full(&mut input, &mut opening)?;
        check_opening(&opening[..len])?;
        let context = zstd_safe::DCtx::create();
        Ok(FrameReader { input, at: OPENING as u64, context, stored: Vec::new(), spare: Vec::new() })
    }

    /// Bytes read so far.
    pub(crate) fn position(&self) -> u64 {
        self.at
    }

    /// Gives back the memory of a frame that is no longer needed.
    pub(crate) fn recycle(&mut self, bytes: Vec<u8>) {
        if bytes.capacity() > self.spare.capacity() {
            self.spare = bytes;
        }
    }

    pub(crate) fn next(&mut self) -> Result<Next> {
        let at = self.at;
        let corrupt = |what: String| Error::Corrupt { at, what };
        let mut head = [0; FRAME_HEAD];
        match read_full(&mut self.input, &mut head)? {
            0 => return Ok(Next::End),
            FRAME_HEAD => {}
            _ => return Ok(Next::Cut(at)),
        }
        let number = |i: usize| u32::from_le_bytes([head[i], head[i + 1], head[i + 2], head[i + 3]]);
        let (raw_len, stored_len) = (number(4) as usize, number(8) as usize);
        if raw_len > RAW_MAX || stored_len > zstd_safe::compress_bound(RAW_MAX) {
            return Err(corrupt(format!("a frame of {raw_len} bytes, {stored_len} of them in the file")));
        }
        self.stored.resize(stored_len, 0);
        if read_full(&mut self.input, &mut self.stored)? < stored_len {
            return Ok(Next::Cut(at));
        }
        if checksum(&head[..16], &self.stored) != head[16..] {
            return Err(corrupt("the checksum of a frame is wrong".into()));
        }
        let kind = Kind::from_number(number(0))
            .ok_or_else(|| corrupt(format!("a frame of the unknown kind {}", number(0))))?;
        let mut bytes = std::mem::take(&mut self.spare);
        bytes.resize(raw_len, 0);
        let len = self.context.decompress(&mut bytes[..], &self.stored).map_err(|code| {
            corrupt(format!("a frame does not expand: {}", zstd_safe::get_error_name(code)))
        })?;
        if len != raw_len {
            return Err(corrupt(format!("a frame expands to {len} bytes instead of {raw_len}")));
        }
        self.at += (FRAME_HEAD + stored_len) as u64;
        Ok(Next::Frame(Frame { kind, at, bytes }))
    }
}

/// Reads until the buffer is full or the input ends; how much came.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut len = 0;
    while len < buffer.len() {
        match input.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Error::io("cannot read the trace")(e)),
        }
    }
    Ok(len)
}
