//! Deltas in the inode: what they cost, and that pages read as what was written.

use crate::common::*;
use medfs::{FallocateMode, FileKind, Files, ManualClock, Volume, XattrMode};
use medfs_device::MemDevice;
use std::sync::Arc;

fn written(v: &Volume) -> (u64, u64) {
    let s = v.stats();
    (s.written.data, s.written.node)
}

fn reopened(v: Volume, device: &Arc<MemDevice>) -> Volume {
    v.close().expect("close");
    drop(v);
    open(device.clone())
}

#[test]
fn a_small_update_costs_the_inode_alone() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let (f, mut expected) = noisy_file(&v, "f", 20);
    let before = written(&v);
    for n in 0..10 {
        patch(&v, f, &mut expected, n * PAGE + 100 + n, b"small");
    }
    v.fsync(f, false).expect("fsync");
    assert_eq!((written(&v).0 - before.0, written(&v).1 - before.1), (0, 1));
    assert_eq!(content(&v, f), expected);
    let v = reopened(v, &device);
    let f = at(&v, "f").expect("the file").ino;
    assert_eq!(content(&v, f), expected);
    // Again the same pages, and one that changes altogether.
    let before = written(&v);
    patch(&v, f, &mut expected, 3 * PAGE, b"other");
    patch(&v, f, &mut expected, 4 * PAGE, &noise(99));
    v.fsync(f, false).expect("fsync");
    assert_eq!((written(&v).0 - before.0, written(&v).1 - before.1), (1, 1));
    assert_eq!(content(&reopened(v, &device), f), expected);
}

#[test]
fn the_threshold_decides_what_becomes_a_delta() {
    for (options, changed, pages) in [
        ("delta=inline,inline_threshold=64", 40, 0),
        ("delta=inline,inline_threshold=64", 100, 1),
        ("delta=inline", 200, 0),
        ("delta=inline", 300, 1),
        ("delta=inline,inline_threshold=512", 300, 0),
        ("delta=inline,inline_threshold=512", 600, 1),
    ] {
        let device = Arc::new(blank_delta(64));
        let v = open_device(&device, options);
        let (f, mut expected) = noisy_file(&v, "f", 4);
        let before = written(&v);
        patch(&v, f, &mut expected, PAGE + 1000, &noise(7)[..changed]);
        v.fsync(f, false).expect("fsync");
        assert_eq!(written(&v).0 - before.0, pages, "{options}: {changed} bytes");
        assert_eq!(content(&reopened(v, &device), f), expected, "read with the default");
    }
}

#[test]
fn a_lost_power_supply_keeps_what_was_fsynced() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let (f, mut expected) = noisy_file(&v, "f", 8);
    patch(&v, f, &mut expected, 5, b"small");
    v.fsync(f, false).expect("fsync");
    let crashed = Arc::new(device.snapshot());
    drop(v);
    let v = open(crashed);
    let f = at(&v, "f").expect("the file").ino;
    assert_eq!(content(&v, f), expected);
}

#[test]
fn a_zone_gives_way_to_addresses_and_freezes() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let (f, mut expected) = noisy_file(&v, "f.db", 8);
    for round in 0..40 {
        // Deltas of 100 bytes each, and 50 new pages a round, until direct nodes are needed.
        for n in 0..8 {
            patch(&v, f, &mut expected, n * PAGE + round, &noise(n as u64)[..100]);
        }
        let more: Vec<u8> = (0..50).flat_map(|n| noise(1000 * round as u64 + n)).collect();
        write(&v, f, expected.len() as u64, &more);
        expected.extend(&more);
        v.fsync(f, false).expect("fsync");
        assert!(content(&v, f) == expected, "round {round}");
    }
    let v = reopened(v, &device);
    assert!(content(&v, f) == expected);
    let before = written(&v);
    patch(&v, f, &mut expected, 1500 * PAGE, b"small");
    v.fsync(f, false).expect("fsync");
    assert_eq!(written(&v).0, before.0, "a page of a direct node may be a delta too");
    assert!(content(&reopened(v, &device), f) == expected);
}

/// The addresses of such a file leave an inline area larger than usual, but not one with a zone, without
/// which no compact page would be found again.
#[test]
fn a_file_without_room_for_a_zone_has_no_compact_pages() {
    for pages in [825, 835, 845, 860, 870] {
        let device = Arc::new(blank_delta(64));
        let v = open_device(&device, "compact_files=all,in_place=off");
        let (f, mut expected) = noisy_file(&v, "f", pages);
        for n in 0..10 {
            patch(&v, f, &mut expected, n * PAGE + 100, &noise(n as u64)[..300]);
        }
        v.fsync(f, false).expect("fsync");
        let crashed = Arc::new(device.snapshot());
        assert!(content(&open_device(&crashed, ""), f) == expected, "{pages} pages, recovered");
        assert!(content(&reopened(v, &device), f) == expected, "{pages} pages");
    }
}

#[test]
fn an_index_used_again_never_meets_an_old_delta() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let (f, mut expected) = noisy_file(&v, "f", 8);
    for n in 0..8 {
        patch(&v, f, &mut expected, n * PAGE + 9, b"small");
    }
    v.fsync(f, false).expect("fsync");
    v.setattr(f, &medfs::SetAttr { size: Some(2 * PAGE as u64), ..Default::default() }).expect("truncate");
    v.fallocate(f, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 0, PAGE as u64).expect("punch");
    v.setattr(f, &medfs::SetAttr { size: Some(8 * PAGE as u64), ..Default::default() }).expect("grow");
    expected[..PAGE].fill(0);
    expected[2 * PAGE..].fill(0);
    assert_eq!(content(&v, f), expected);
    patch(&v, f, &mut expected, 5 * PAGE, &noise(55));
    let v = reopened(v, &device);
    assert_eq!(content(&v, f), expected);
    v.fallocate(f, FallocateMode::COLLAPSE_RANGE, 0, PAGE as u64).expect("collapse");
    expected.drain(..PAGE);
    assert_eq!(content(&v, f), expected);
    assert_eq!(content(&reopened(v, &device), f), expected);
}

#[test]
fn attributes_and_deltas_live_together() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let (f, mut expected) = noisy_file(&v, "f", 8);
    let set = |v: &Volume, name: &str, len: usize| {
        v.setxattr(f, name.as_bytes(), &vec![7; len], XattrMode::Set).expect("set");
    };
    set(&v, "user.small", 20);
    for n in 0..8 {
        patch(&v, f, &mut expected, n * PAGE + 9, b"small");
    }
    v.fsync(f, false).expect("fsync");
    set(&v, "user.large", 2000);
    set(&v, "user.other", 50);
    assert_eq!(v.listxattr(f).expect("list").len(), 3, "the zone is not shown");
    let v = reopened(v, &device);
    assert_eq!(v.getxattr(f, b"user.small").expect("get"), vec![7; 20]);
    assert_eq!(v.getxattr(f, b"user.large").expect("get"), vec![7; 2000]);
    assert_eq!(content(&v, f), expected);
    v.removexattr(f, b"user.large").expect("remove");
    let more: Vec<u8> = (0..700).flat_map(noise).collect();
    write(&v, f, expected.len() as u64, &more);
    expected.extend(more);
    let v = reopened(v, &device);
    assert_eq!(v.getxattr(f, b"user.other").expect("get"), vec![7; 50]);
    assert!(content(&v, f) == expected);
}

#[test]
fn a_volume_of_f2fs_gets_no_delta() {
    let device = Arc::new(blank(64, all_features()));
    let v = open(device.clone());
    let (f, _) = noisy_file(&v, "f", 8);
    let before = written(&v);
    write(&v, f, 5, b"small");
    v.fsync(f, false).expect("fsync");
    assert_eq!(written(&v).0 - before.0, 1);
    assert_eq!(v.getattr(f).expect("attributes").kind, FileKind::Regular);
}

#[test]
fn without_new_deltas_old_ones_are_read() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let (f, mut expected) = noisy_file(&v, "f", 8);
    patch(&v, f, &mut expected, 5, b"small");
    v.close().expect("close");
    drop(v);
    let v = open_with(device.clone(), "delta=off", Arc::new(ManualClock::new(START)));
    assert_eq!(content(&v, f), expected);
    let before = written(&v);
    patch(&v, f, &mut expected, 900, b"small");
    v.fsync(f, false).expect("fsync");
    assert_eq!(written(&v).0 - before.0, 1);
    assert_eq!(content(&reopened(v, &device), f), expected);
}

#[test]
fn a_delta_that_gave_way_is_not_lost_by_a_checkpoint() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let (f, mut expected) = noisy_file(&v, "f", 10);
    for n in 0..10 {
        patch(&v, f, &mut expected, n * PAGE, &noise(500 + n as u64)[..300]);
    }
    v.fsync(f, false).expect("fsync");
    // So many pages that the zone has to go, none of them written yet.
    let more: Vec<u8> = (0..800).flat_map(noise).collect();
    write(&v, f, expected.len() as u64, &more);
    assert!(v.stats().deltas.evicted_by_growth > 0, "{:?}", v.stats().deltas);
    v.checkpoint().expect("checkpoint");
    let crashed = Arc::new(device.snapshot());
    drop(v);
    let v = open(crashed);
    let f = at(&v, "f").expect("the file").ino;
    assert_eq!(content(&v, f)[..expected.len()], expected);
}

#[test]
fn a_large_file_keeps_room_for_deltas_however_it_is_written_first() {
    const OFF: &str = "cross_file_deltas=off";
    let cases = [("a.db", "", true), ("a.db-journal", "", true), ("a.db-wal", "", true), ("a.bin", "", true)];
    for (name, options, deltas) in cases.into_iter().chain([("a.bin", OFF, true), ("a.db-wal", OFF, false)]) {
        let device = Arc::new(blank_delta(64));
        let v = open_device(&device, options);
        let (f, mut expected) = noisy_file(&v, name, 1100);
        let before = written(&v);
        for page in [3, 470, 480, 1000] {
            patch(&v, f, &mut expected, page * PAGE + 7, b"small");
        }
        v.fsync(f, false).expect("fsync");
        assert_eq!(written(&v).0 == before.0, deltas, "{name} {options}");
        assert!(content(&reopened(v, &device), f) == expected, "{name}");
    }
}

#[test]
fn a_page_in_place_that_needs_no_inode_is_not_made_a_delta() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let (f, _) = noisy_file(&v, "f", 8);
    let cost = |pages: u64| {
        let before = written(&v);
        for n in 0..pages {
            v.write_cached(f, n * PAGE as u64, b"small").expect("written");
        }
        v.fsync(f, false).expect("fsync");
        (written(&v).0 - before.0, written(&v).1 - before.1)
    };
    assert_eq!(cost(1), (1, 0), "one block in any case: the page, as the inode says the same");
    assert_eq!(cost(4), (0, 1));
}

#[test]
fn in_posix_mode_too_a_base_is_durable_before_its_delta() {
    let v = open_with(
        Arc::new(blank_delta(64)),
        "fsync_mode=posix,in_place=off,seal=off",
        Arc::new(ManualClock::new(START)),
    );
    let (f, _) = noisy_file(&v, "f", 8);
    let flushes_of_fsync = || {
        let before = v.stats().flushes;
        v.fsync(f, false).expect("fsync");
        v.stats().flushes - before
    };
    write(&v, f, 0, &noise(70));
    assert_eq!(flushes_of_fsync(), 1, "no deltas: as the kernel");
    write(&v, f, 0, &noise(71));
    write(&v, f, PAGE as u64, b"small");
    assert_eq!(flushes_of_fsync(), 2);
}

/// A place for a new compact page is that of one of which fewer deltas count, whose pages become whole ones.
#[test]
fn a_file_whose_places_for_compact_pages_are_taken_goes_on_making_them() {
    for (pages, options) in
        [(1500, "compact_pages=3"), (400, "compact_pages=1,delta=compact"), (1500, "compact_pages=40")]
    {
        let device = Arc::new(blank_delta(64));
        let v = open_device(&device, &format!("compact_files=all,in_place=off,{options}"));
        let (f, mut expected) = noisy_file(&v, "f", pages);
        let mut state = pages;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % n
        };
        let made = || v.stats().deltas.compact_pages;
        let mut last = 0;
        for round in 0..120u64 {
            // Pages that change often, and one that seldom does.
            for _ in 0..8 {
                let page = (below(24) * (pages / 24)) as usize;
                patch(&v, f, &mut expected, page * PAGE + 100, &noise(round)[..300]);
            }
            let seldom = below(pages) as usize;
            patch(&v, f, &mut expected, seldom * PAGE + 2000, &noise(round)[..200]);
            v.fsync(f, false).expect("fsync");
            if round % 10 == 9 {
                let crashed = Arc::new(device.snapshot());
                assert!(
                    content(&open_device(&crashed, ""), f) == expected,
                    "{options}: round {round}, recovered"
                );
            }
            if round == 60 {
                last = made();
            }
        }
        assert!(made() > last + 10, "{options}: {last} and then {}", made());
        let expected_size = expected.len();
        v.setattr(f, &medfs::SetAttr { size: Some(10), ..Default::default() }).expect("truncate");
        v.setattr(f, &medfs::SetAttr { size: Some(expected_size as u64), ..Default::default() })
            .expect("grow");
        expected[10..].fill(0);
        let v = reopened(v, &device);
        assert!(content(&v, f) == expected, "{options}: no old delta comes back");
        v.close().expect("close");
        drop(v);
        judge(&device);
    }
}
