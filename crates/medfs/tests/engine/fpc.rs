//! `compress=fpc`: pages compressed alone, several to a block, in place of blocks of their own.

use crate::common::*;
use medfs::convert::{Import, ImportOptions, export};
use medfs::{FallocateMode, FileKind, Files, Hotness, ManualClock, SetAttr, Volume};
use medfs_device::MemDevice;
use std::sync::Arc;
use std::time::Duration;

const ALL: &str = "compress=fpc,compact_files=all,in_place=off";

/// A page that compresses to about a tenth.
fn text(seed: u64) -> Vec<u8> {
    let words = noise(seed);
    words[..PAGE / 64].iter().flat_map(|&b| std::iter::once(b).chain((0..63).map(|n| b'0' + n))).collect()
}

fn written(v: &Volume) -> (u64, u64) {
    let s = v.stats().written;
    (s.data, s.compact)
}

fn reopened(v: Volume, device: &Arc<MemDevice>, options: &str) -> Volume {
    v.close().expect("close");
    drop(v);
    open_device(device, options)
}

/// Overwrites these pages as a whole and makes that durable; what was written since: data blocks and shared ones.
fn update(
    v: &Volume,
    f: u32,
    expected: &mut [u8],
    pages: impl Iterator<Item = usize>,
    seed: u64,
) -> (u64, u64) {
    let before = written(v);
    for page in pages {
        patch(v, f, expected, page * PAGE, &text(seed + page as u64));
    }
    v.fsync(f, false).expect("fsync");
    (written(v).0 - before.0, written(v).1 - before.1)
}

#[test]
fn five_updated_pages_share_a_block() {
    for algorithm in ["fpc", "fpc:lz4", "fpc:zstd"] {
        let options = ALL.replace("fpc", algorithm);
        let device = Arc::new(blank_delta(64));
        let v = open_device(&device, &options);
        let (f, mut expected) = noisy_file(&v, "f", 40);
        let (before, blocks) = (v.stats().valid_blocks, v.getattr(f).expect("attributes").blocks);
        assert_eq!(update(&v, f, &mut expected, 3..13, 500), (0, 2), "{options}");
        let s = v.stats();
        assert_eq!((s.fpc.made, s.fpc.freed, s.fpc.held, s.deltas.made), (10, 10, 10, 0), "{options}");
        assert!(s.fpc.saved_bytes > 25_000, "{:?}", s.fpc);
        // The pages keep their reservations; what is shared comes on top, with three nodes that lead to it.
        assert_eq!((s.valid_blocks - before, v.getattr(f).expect("attributes").blocks - blocks), (5, 5 * 8));
        assert!(content(&v, f) == expected, "{options}");
        // Again, then two that are too few, then one that does not compress.
        assert_eq!(update(&v, f, &mut expected, 4..9, 600), (0, 1), "{options}");
        assert_eq!(update(&v, f, &mut expected, 4..6, 700), (2, 0), "{options}");
        patch(&v, f, &mut expected, 7 * PAGE, &noise(88));
        v.fsync(f, false).expect("fsync");
        assert_eq!(v.stats().fpc.too_large, 40 + 1, "{options}: those that the file began with, and one");
        assert!(content(&v, f) == expected, "{options}");
        for options in [&options[..], "", "delta=off"] {
            let v = open_device(&Arc::new(device.snapshot()), options);
            assert!(content(&v, at(&v, "f").expect("the file").ino) == expected, "read with {options}");
        }
        let v = reopened(v, &device, &options);
        assert!(content(&v, f) == expected, "{options}");
        v.close().expect("close");
        judge(&device);
    }
}

#[test]
fn only_what_is_written_often_and_read_seldom_is_compressed() {
    let device = Arc::new(blank_delta(64));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), "compress=fpc,in_place=off", clock.clone());
    let (f, mut expected) = noisy_file(&v, "f", 20);
    let (g, mut other) = noisy_file(&v, "g", 20);
    for n in 0..30 {
        for _ in 0..10 {
            v.read(g, 0, &mut [0; 10]).expect("read");
        }
        update(&v, f, &mut expected, 0..10, 1000 + 20 * n);
        clock.advance(Duration::from_secs(1));
    }
    let made = v.stats().fpc.made;
    assert_eq!(v.hotness(f), Hotness::WriteHot);
    assert!(made > 100, "{made}");
    update(&v, g, &mut other, 0..10, 3000);
    assert_eq!(v.stats().fpc.made, made, "{:?}", v.hotness(g));
    // Then it is read often, and its pages become blocks again while nothing is wanted.
    for _ in 0..10 {
        clock.advance(Duration::from_secs(61));
        v.background().expect("background");
    }
    for n in 0..400 {
        v.read(f, n % 3 * PAGE as u64, &mut [0; 100]).expect("read");
    }
    assert_eq!((v.hotness(f), v.stats().fpc.held), (Hotness::ReadHot, 10));
    for _ in 0..20 {
        clock.advance(Duration::from_secs(1));
        v.background().expect("background");
    }
    let s = v.stats();
    assert_eq!((s.fpc.held, s.restored.pages), (0, 10));
    assert!(content(&v, f) == expected && content(&v, g) == other);
    v.close().expect("close");
    judge(&device);
}

#[test]
fn what_is_cut_off_punched_or_moved_takes_its_pages_along() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, ALL);
    let (f, mut expected) = noisy_file(&v, "f", 40);
    update(&v, f, &mut expected, 0..40, 500);
    assert_eq!(v.stats().fpc.held, 40);
    let page = PAGE as u64;
    v.setattr(f, &SetAttr { size: Some(30 * page + 100), ..Default::default() }).expect("truncate");
    v.setattr(f, &SetAttr { size: Some(40 * page), ..Default::default() }).expect("grow");
    v.fallocate(f, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 2 * page, 3 * page).expect("punch");
    expected[30 * PAGE + 100..].fill(0);
    expected[2 * PAGE..5 * PAGE].fill(0);
    assert!(content(&v, f) == expected);
    v.fallocate(f, FallocateMode::COLLAPSE_RANGE, 0, page).expect("collapse");
    expected.drain(..PAGE);
    let v = reopened(v, &device, ALL);
    assert!(content(&v, f) == expected);
    v.setattr(f, &SetAttr { size: Some(0), ..Default::default() }).expect("empty");
    let v = reopened(v, &device, ALL);
    assert_eq!(v.getattr(f).expect("attributes").size, 0);
    v.unlink(v.root(), b"f").expect("unlink");
    v.close().expect("close");
    judge(&device);
}

#[test]
fn a_file_with_direct_nodes_and_one_that_is_appended_to() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, ALL);
    let (f, mut expected) = noisy_file(&v, "large", 1500);
    assert_eq!(update(&v, f, &mut expected, 1200..1215, 500), (0, 3));
    let g = file(&v, v.root(), "log");
    let mut appended = Vec::new();
    for n in 0..10 {
        let more: Vec<u8> = (0..4).flat_map(|i| text(9000 + 4 * n + i)).collect();
        write(&v, g, appended.len() as u64, &more);
        appended.extend(more);
        v.fsync(g, false).expect("fsync");
    }
    let s = v.stats().fpc;
    assert_eq!((s.made, s.freed), (15 + 40, 15));
    let crashed = Arc::new(device.snapshot());
    let after = open_device(&crashed, ALL);
    assert!(content(&after, at(&after, "large").expect("large").ino) == expected, "recovered");
    assert!(content(&after, at(&after, "log").expect("log").ino) == appended, "recovered");
    after.close().expect("close");
    judge(&crashed);
    let v = reopened(v, &device, ALL);
    assert!(content(&v, f) == expected && content(&v, g) == appended);
}

#[test]
fn a_database_with_compressed_pages_keeps_its_area_when_databases_are_imported() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, ALL);
    let (f, mut expected) = noisy_file(&v, "large.db", 1500);
    assert_eq!(update(&v, f, &mut expected, 1200..1215, 500), (0, 3));
    v.close().expect("close");
    drop(v);
    let clock = Arc::new(ManualClock::new(START));
    let plan = Import::plan(device.clone(), clock, ImportOptions { databases: true }, &mut |_, _, _| ());
    let plan = plan.expect("a plan");
    assert_eq!(plan.of().layouts.inodes, 0);
    plan.run(&mut |_, _, _| ()).expect("import");
    judge(&device);
    assert!(content(&open_device(&device, ALL), f) == expected);
}

/// Pages as they are after a round: after odd ones they compress, after even ones they do not.
fn of_round(round: u64, page: u64) -> Vec<u8> {
    if round % 2 == 1 { text(100 * round + page) } else { noise(100 * round + page) }
}

#[test]
fn a_crash_shows_a_page_as_it_was_or_as_it_is() {
    let (pages, rounds) = (12, 8);
    let states = crash(
        &blank_delta(64),
        ALL,
        |v, mark| {
            let f = file(v, v.root(), "f");
            for round in 1..=rounds {
                (0..pages).for_each(|p| write(v, f, p * PAGE as u64, &of_round(round, p)));
                v.fsync(f, false).expect("fsync");
                mark(round);
                if round % 3 == 0 {
                    v.checkpoint().expect("checkpoint");
                }
            }
            let fpc = v.stats().fpc;
            assert_eq!((fpc.made, fpc.freed), (4 * pages, 3 * pages));
        },
        |v, mark| {
            let Some(f) = at(v, "f") else { return assert_eq!(mark, 0) };
            for (p, page) in (0..).zip(content(v, f.ino).chunks(PAGE)) {
                let known = (mark.max(1)..=rounds).any(|round| page == of_round(round, p));
                assert!(
                    known || (mark == 0 && page == [0; PAGE]),
                    "page {p} is not of round {mark} or later"
                );
            }
        },
    );
    assert!(states > 100, "{states}");
}

#[test]
fn an_export_writes_the_pages_and_plain_volumes_compress_none() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, ALL);
    let (f, mut expected) = noisy_file(&v, "f", 20);
    update(&v, f, &mut expected, 0..10, 500);
    v.close().expect("close");
    drop(v);
    export(device.clone(), Arc::new(ManualClock::new(START)), &mut |_, _, _| {}).expect("export");
    judge(&device);
    let v = open_device(&device, ALL);
    assert!(content(&v, f) == expected);
    assert_eq!(update(&v, f, &mut expected, 0..10, 600), (10, 0));
    assert_eq!((v.stats().fpc.made, v.getattr(f).expect("attributes").kind), (0, FileKind::Regular));
    assert!(content(&v, f) == expected);
}
