//! Collapsed and inserted ranges: all of it or nothing, in bounded memory.

use crate::common::*;
use medfs::{FallocateMode, Files, ManualClock, Volume};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, MemDevice, read_block};
use std::sync::Arc;

const COLLAPSE: FallocateMode = FallocateMode::COLLAPSE_RANGE;
const INSERT: FallocateMode = FallocateMode::INSERT_RANGE;

fn block_with(device: &MemDevice, content: &[u8]) -> u64 {
    (0..device.block_count())
        .find(|&addr| read_block(device, addr).expect("read").0[..] == *content)
        .expect("a block with this content")
}

/// What the content is afterwards.
fn shifted(content: &[u8], mode: FallocateMode, at: usize, pages: usize) -> Vec<u8> {
    let (start, len) = (at * PAGE, pages * PAGE);
    match mode {
        COLLAPSE => [&content[..start], &content[start + len..]].concat(),
        _ => [&content[..start], &vec![0; len], &content[start..]].concat(),
    }
}

fn shift(v: &Volume, f: u32, mode: FallocateMode, at: usize, pages: usize) -> medfs::Result<()> {
    v.fallocate(f, mode, (at * PAGE) as u64, (pages * PAGE) as u64)
}

#[test]
fn a_page_that_cannot_be_read_leaves_the_file_as_it_was() {
    for (delta, mode) in [(false, COLLAPSE), (false, INSERT), (true, COLLAPSE), (true, INSERT)] {
        let base = if delta { blank_delta(64) } else { blank(64, all_features()) };
        let device = Arc::new(base);
        let v = open_device(&device, "");
        let (f, expected) = noisy_file(&v, "f", 40);
        v.release(f, 1);
        v.close().expect("close");
        drop(v);
        let bad = block_with(&device, &noise(20));
        let faulty = Arc::new(FaultDevice::new(device.snapshot(), 1));
        let v = open(faulty.clone());
        let f = at(&v, "f").expect("the file").ino;
        faulty.arm(Fault::on(Kind::Read, Effect::IO).within(bad..bad + 1));
        let before = v.getattr(f).expect("attributes");
        assert_eq!(shift(&v, f, mode, 2, 4).expect_err("one page cannot be read").errno(), 5);
        v.sync().expect("the volume goes on");
        let after = v.getattr(f).expect("attributes");
        assert_eq!((after.size, after.blocks), (before.size, before.blocks), "{mode:?}");
        faulty.heal();
        assert!(content(&v, f) == expected, "{mode:?}, delta {delta}");
        shift(&v, f, mode, 2, 4).expect("all pages can be read");
        assert!(content(&v, f) == shifted(&expected, mode, 2, 4), "{mode:?}, delta {delta}");
        v.close().expect("close");
    }
}

#[test]
fn more_pages_than_are_free_are_refused_and_nothing_changes() {
    for mode in [COLLAPSE, INSERT] {
        let device = Arc::new(blank(64, all_features()));
        let v = open_device(&device, "");
        let pages = v.space().free * 7 / 10;
        let (f, expected) = noisy_file(&v, "f", pages);
        let free = v.space().free;
        assert_eq!(shift(&v, f, mode, 1, 1).expect_err("no room for the copies").errno(), 28);
        assert!(content(&v, f) == expected, "{mode:?}");
        assert!(v.space().free + 2 >= free, "{mode:?}");
        // Few pages move on the same volume.
        let tail = pages as usize - 9;
        shift(&v, f, mode, tail, 3).expect("room for nine pages");
        assert!(content(&v, f) == shifted(&expected, mode, tail, 3));
        v.close().expect("close");
        drop(v);
        judge(&device);
    }
}

/// A file with holes, reserved pages, deltas and pages that are not written yet, and what it holds.
fn mixed_file(v: &Volume) -> (u32, Vec<u8>) {
    let f = file(v, v.root(), "f");
    let mut text = vec![0; 1060 * PAGE];
    for page in (0..60).chain(940..945).chain(1045..1060) {
        text[page * PAGE..(page + 1) * PAGE].copy_from_slice(&noise(page as u64));
        write(v, f, (page * PAGE) as u64, &noise(page as u64));
    }
    v.sync().expect("sync");
    v.fallocate(f, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 30 * PAGE as u64, 20 * PAGE as u64)
        .expect("punch");
    text[30 * PAGE..50 * PAGE].fill(0);
    v.fallocate(f, FallocateMode::KEEP_SIZE, 40 * PAGE as u64, 5 * PAGE as u64).expect("reserve");
    for page in [3, 8, 59, 941, 1046, 1059] {
        patch(v, f, &mut text, page * PAGE + 100, b"a delta");
    }
    v.fsync(f, false).expect("fsync");
    for page in [5, 8, 55, 1047] {
        patch(v, f, &mut text, page * PAGE + 9, b"not written yet");
    }
    (f, text)
}

#[test]
fn a_crash_finds_the_file_before_or_after() {
    for (delta, mode) in [(false, COLLAPSE), (true, INSERT)] {
        let base = if delta { blank_delta(64) } else { blank(64, all_features()) };
        let device = Arc::new(base);
        let v = open_device(&device, "");
        let (f, before) = mixed_file(&v);
        v.sync().expect("sync");
        v.release(f, 1);
        v.close().expect("close");
        drop(v);
        let after = shifted(&before, mode, 6, 7);
        let states = crash(
            &device,
            "",
            |v, mark| {
                let f = at(v, "f").expect("the file").ino;
                shift(v, f, mode, 6, 7).expect("shift");
                v.fsync(f, false).expect("fsync");
                mark(1);
                let g = file(v, v.root(), "g");
                write(v, g, 0, &noise(7));
                v.sync().expect("sync");
            },
            |v, mark| {
                let now = content(v, at(v, "f").expect("the file").ino);
                assert!(now == after || (mark == 0 && now == before), "mark {mark}: a mixture");
            },
        );
        println!("{mode:?}, delta {delta}: {states} states");
    }
}

#[test]
fn pages_of_every_kind_move() {
    for (delta, compressed) in [(false, false), (true, false), (true, true)] {
        let base = match (delta, compressed) {
            (_, true) => blank_delta_and_compression(64),
            (true, _) => blank_delta(64),
            _ => blank(64, all_features()),
        };
        let device = Arc::new(base);
        let v = open_device(&device, if compressed { "compress_extension=*" } else { "" });
        let (f, mut text) = mixed_file(&v);
        let mut random = Random(0x5851_f42d_4c95_7f2d);
        for _ in 0..12 {
            let mode = if random.below(2) == 0 { COLLAPSE } else { INSERT };
            let pages = 1 + random.below(9) as usize;
            let last = (text.len() / PAGE).saturating_sub(pages + 1) as u64;
            let place = random.below(last) as usize;
            shift(&v, f, mode, place, pages).expect("shift");
            text = shifted(&text, mode, place, pages);
            assert!(
                content(&v, f) == text,
                "delta {delta}, compressed {compressed}: {mode:?} {place}+{pages}"
            );
            patch(&v, f, &mut text, place * PAGE + 50, b"changed");
            if random.below(2) == 0 {
                v.fsync(f, false).expect("fsync");
            }
        }
        v.fsync(f, false).expect("fsync");
        drop(v); // power is lost
        let v = open_device(&device, "");
        let f = at(&v, "f").expect("the file").ino;
        assert!(content(&v, f) == text, "delta {delta}, compressed {compressed}");
        v.close().expect("close");
        drop(v);
        judge(&device);
    }
}

/// Resident memory, in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("status");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("a line");
    line.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number") / 1024
}

#[test]
#[ignore = "writes 1.2 GB to a file"]
fn a_large_file_moves_in_little_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = medfs_device::FileOptions::default();
    let device = Arc::new(
        medfs_device::FileDevice::create(folder.path().join("image"), 2 << 30, options).expect("an image"),
    );
    let format = medfs_mkfs::MkfsOptions {
        features: all_features(),
        discard: false,
        ..medfs_mkfs::MkfsOptions::new([7; 16], START.secs)
    };
    medfs_mkfs::format_volume(&*device, &format).expect("a volume");
    let v = open_with(device, "cache=16M", Arc::new(ManualClock::new(START)));
    let f = file(&v, v.root(), "f");
    let chunk: Vec<u8> = (0..256).flat_map(noise).collect();
    (0..600u64).for_each(|i| write(&v, f, i << 20, &chunk));
    v.sync().expect("sync");
    let before = resident();
    shift(&v, f, COLLAPSE, 0, 1).expect("shift");
    let after = resident();
    println!("600 MiB moved: resident {before} MiB before, {after} MiB after");
    assert!(after < before + 32, "{before} MiB before, {after} MiB after");
}
