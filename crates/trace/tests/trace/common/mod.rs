//! What the tests of traces share.
#![allow(unreachable_pub)] // of a test program

use medfs::{Clock, FileKind, ManualClock, MountOptions, Timestamp, Volume};
use medfs_device::MemDevice;
use medfs_mkfs::{MkfsOptions, format_volume};
use medfs_trace::format::WINDOW;
use medfs_trace::record::{Attributes, Bytes, Content, NewNode, Op, Record, Run};
use medfs_trace::{Head, Phase, TraceWriter};
use parking_lot::Mutex;
use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::io::{self, Write};
use std::sync::Arc;

/// Where a trace is written to in memory.
#[derive(Clone, Default)]
pub struct Shared(pub Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Shared {
    pub fn bytes(&self) -> Vec<u8> {
        self.0.lock().clone()
    }
}

pub fn head() -> Head {
    Head {
        id: "00".repeat(16),
        source: "mount".into(),
        writer: "test".into(),
        began: 1_700_000_000_000_000_000,
        about: "a test".into(),
        private: false,
        cache: "none".into(),
        window: WINDOW,
    }
}

/// A trace of what `fill` writes.
pub fn write_trace(fill: impl FnOnce(&mut TraceWriter)) -> Vec<u8> {
    let out = Shared::default();
    let mut writer = TraceWriter::new(out.clone(), &head()).unwrap();
    fill(&mut writer);
    writer.finish().unwrap();
    out.bytes()
}

/// A trace whose second frame has this kind and these bytes, sealed as a frame must be.
pub fn with_frame(kind: u32, raw: &[u8]) -> Vec<u8> {
    let mut trace = write_trace(|_| {});
    let lens = |at: usize| u32::from_le_bytes(trace[at..at + 4].try_into().unwrap()) as usize;
    let first = 16 + 24 + lens(16 + 8);
    trace.truncate(first);
    let mut stored = vec![0; zstd_safe::compress_bound(raw.len())];
    let len = zstd_safe::compress(&mut stored[..], raw, 1).unwrap();
    let mut frame = vec![0; 16];
    frame[..4].copy_from_slice(&kind.to_le_bytes());
    frame[4..8].copy_from_slice(&(raw.len() as u32).to_le_bytes());
    frame[8..12].copy_from_slice(&(len as u32).to_le_bytes());
    let mut hasher = blake3::Hasher::new();
    hasher.update(&frame).update(&stored[..len]);
    frame.extend_from_slice(&hasher.finalize().as_bytes()[..8]);
    frame.extend_from_slice(&stored[..len]);
    [trace, frame].concat()
}

/// Records of many kinds, from a seed.
pub fn random_records(seed: u64, count: usize) -> Vec<Record> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut at = 0u64;
    let mut records = Vec::new();
    for _ in 0..count {
        // Threads end their calls out of the order in which they began them.
        at = (at + random.random_range(0..5000)).saturating_sub(random.random_range(0..1000));
        let op = random_op(&mut random);
        let errno = if random.random_bool(0.1) { random.random_range(1..130) } else { 0 };
        let (took, process, thread) = (random.random_range(0..1 << 40), random.random(), random.random());
        records.push(Record { at, took, process, thread, errno, op });
    }
    records
}

fn random_op(random: &mut Xoshiro256PlusPlus) -> Op {
    let name = |random: &mut Xoshiro256PlusPlus| {
        let len = random.random_range(0..40);
        Bytes::from((0..len).map(|_| random.random()).collect::<Vec<u8>>())
    };
    let file = random.random_range(0..1 << 40);
    match random.random_range(0..14) {
        0 => Op::Lookup { parent: file, name: name(random), file: random.random() },
        1 => Op::Create {
            parent: file,
            name: name(random),
            file: random.random(),
            new: NewNode::plain(FileKind::Fifo, 0o4755),
        },
        2 => Op::Rename {
            parent: file,
            name: name(random),
            to: 1,
            to_name: name(random),
            flags: random.random(),
        },
        3 => {
            let set =
                Attributes { size: Some(random.random()), mtime: Some((-5, 7)), ..Attributes::default() };
            Op::SetAttr { file, set }
        }
        4 => {
            let len = random.random_range(0..1 << 20);
            let content = Content(vec![Run::Zeros { len: len / 2 }, Run::Unknown { len: len - len / 2 }]);
            Op::Write { file, offset: random.random_range(0..1 << 40), len, cached: random.random(), content }
        }
        5 => Op::Read { file, offset: random.random_range(0..1 << 40), len: 9, content: Content::default() },
        6 => Op::Fsync { file, datasync: random.random() },
        7 => Op::SetXattr { file, name: name(random), value: name(random), mode: 1 },
        8 => Op::Symlink { parent: file, name: name(random), target: name(random), file: 8, uid: 1, gid: 2 },
        9 => {
            Op::CopyRange { from: file, from_offset: 1, to: 2, to_offset: 3, len: 4, copied: random.random() }
        }
        10 => Op::Open { file, flags: random.random() },
        11 => Op::Fallocate { file, mode: 3, offset: random.random(), len: random.random() },
        12 => Op::GetAttr { file, size: random.random() },
        _ => Op::Sync,
    }
}

/// A new volume in memory, with a clock that stands still.
pub fn volume(options: &str) -> (Arc<Volume>, Arc<ManualClock>) {
    let device = Arc::new(MemDevice::new(256 << 8));
    let mkfs = MkfsOptions { deltas: true, zeroed: true, ..MkfsOptions::new([7; 16], 1_700_000_000) };
    format_volume(&*device, &mkfs).unwrap();
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let mut parsed = MountOptions::default();
    parsed.parse(options).unwrap();
    let volume = Volume::open(device, parsed, clock.clone() as Arc<dyn Clock>).unwrap();
    (Arc::new(volume), clock)
}

/// Pushes operations of no process.
pub fn push(writer: &mut TraceWriter, phase: Phase, ops: impl IntoIterator<Item = Op>) {
    for op in ops {
        writer.push(phase, &Record { at: 0, took: 0, process: 0, thread: 0, errno: 0, op }).unwrap();
    }
}

/// Bytes that do not compress.
pub fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Xoshiro256PlusPlus::seed_from_u64(1).fill_bytes(&mut bytes);
    bytes
}
