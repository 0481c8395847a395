//! A trace much larger than memory is replayed in little of it.

use crate::common::{head, volume};
use medfs::FileKind;
use medfs_trace::record::{NewNode, Op, Record};
use medfs_trace::replay::{Mismatches, Options, replay};
use medfs_trace::writer::pieces;
use medfs_trace::{Phase, TraceReader, TraceWriter};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fs::File;
use std::io::BufReader;

/// Most memory that replaying may take.
const MEMORY_MAX: u64 = 512 << 20;

/// Bytes of memory that this process has had at most.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap() << 10
}

/// Writes and reads of noise in one file of 64 MiB, until the trace has `bytes`.
fn write_large(file: File, bytes: u64) {
    const CHUNK: u64 = 128 << 10;
    let mut writer = TraceWriter::new(file, &head()).unwrap();
    let record = |at, op| Record { at, took: 0, process: 1, thread: 1, errno: 0, op };
    let new = NewNode::plain(FileKind::Regular, 0o644);
    let create = Op::Create { parent: 0, name: b"large".to_vec().into(), file: 1, new };
    writer.push(Phase::Recorded, &record(0, create)).unwrap();
    let mut noise = vec![0; CHUNK as usize];
    let mut random = Xoshiro256PlusPlus::seed_from_u64(10);
    for i in 0..bytes / CHUNK {
        random.fill_bytes(&mut noise);
        let (file, offset, len) = (1, i % 512 * CHUNK, CHUNK as u32);
        let pieces = pieces(offset, &noise, None);
        let content = writer.content(&pieces).unwrap();
        let write = Op::Write { file, offset, len, cached: false, content: content.clone() };
        writer.push(Phase::Recorded, &record(i * 1_000_000, write)).unwrap();
        writer
            .push(Phase::Recorded, &record(i * 1_000_000, Op::Read { file, offset, len, content }))
            .unwrap();
    }
    writer.finish().unwrap();
}

#[test]
#[ignore = "writes MEDFS_TRACE_GB (default 1) gigabytes to the folder for temporary files"]
fn a_large_trace_is_replayed_in_little_memory() {
    let gigabytes: u64 = std::env::var("MEDFS_TRACE_GB").map_or(1, |n| n.parse().unwrap());
    let file = tempfile::NamedTempFile::new().unwrap();
    write_large(file.reopen().unwrap(), gigabytes * 1_000_000_000);
    let size = file.as_file().metadata().unwrap().len();
    assert!(size > gigabytes * 990_000_000, "noise does not compress: {size}");
    let (volume, clock) = volume("delta=off");
    let mut reader = TraceReader::new(BufReader::new(file.reopen().unwrap())).unwrap();
    let (outcome, _) =
        replay(&mut reader, &*volume, Some(&clock), &Options::default(), &mut |_| Ok(())).unwrap();
    assert_eq!(outcome.mismatches, Mismatches::default());
    let peak = peak();
    eprintln!("{size} bytes, {} operations, {} MiB of memory at most", outcome.operations(), peak >> 20);
    assert!(peak < MEMORY_MAX, "{} MiB", peak >> 20);
}
