//! Compressed files whose pages are updated by deltas: appended data in clusters, updates in the inode.

use crate::common::*;
use medfs::{
    DeltaMode, FallocateMode, FileFlags, Files, Hotness, Ino, ManualClock, SetAttr, Volume, convert::export,
};
use medfs_device::MemDevice;
use std::sync::Arc;
use std::time::Duration;

/// A page that can be compressed to about a quarter, and not like its neighbours.
fn text(seed: u64) -> Vec<u8> {
    noise(seed)[..PAGE / 8].iter().flat_map(|&b| [b, 7, b'a', b'b', b'c', b'd', b'e', b'f']).collect()
}

/// A compressed file of so many pages, durable.
fn compressed(v: &Volume, name: &str, pages: u64) -> (Ino, Vec<u8>) {
    let f = file(v, v.root(), name);
    v.set_flags(f, FileFlags::COMPR).expect("chattr +c");
    let content: Vec<u8> = (0..pages).flat_map(text).collect();
    write(v, f, 0, &content);
    v.sync().expect("sync");
    (f, content)
}

/// Data blocks and nodes that an fsync writes.
fn fsync(v: &Volume, f: Ino) -> (u64, u64) {
    let before = v.stats().written;
    v.fsync(f, false).expect("fsync");
    let after = v.stats().written;
    (after.data - before.data, after.node - before.node)
}

fn reopened(v: Volume, device: &Arc<MemDevice>) -> Volume {
    v.close().expect("close");
    drop(v);
    judge(device);
    open_device(device, "")
}

#[test]
fn a_small_update_leaves_the_cluster_closed() {
    let device = Arc::new(blank_delta_and_compression(64));
    let v = open_device(&device, "");
    let (f, mut expected) = compressed(&v, "f", 40);
    let (clusters, saved) = (v.stats().compress.clusters, v.saved_blocks(f).expect("compressed"));
    assert!(clusters == 10 && saved >= 20, "{clusters} clusters, {saved} saved");
    for n in 0..10 {
        patch(&v, f, &mut expected, n * 3 * PAGE + 100 + n, b"small");
    }
    assert_eq!(v.stats().compress.clusters, clusters);
    assert!(content(&v, f) == expected, "dirty pages and those beside them");
    assert_eq!(fsync(&v, f), (0, 1));
    assert_eq!((v.stats().deltas.made, v.saved_blocks(f).expect("compressed")), (10, saved));
    assert!(content(&v, f) == expected);
    // Recovered, and read by who makes no deltas.
    for options in ["", "delta=off", "compress=off"] {
        let crashed = Arc::new(device.snapshot());
        let v = open_device(&crashed, options);
        let f = at(&v, "f").expect("the file").ino;
        assert!(content(&v, f) == expected, "{options}");
        let mut page = vec![0; PAGE];
        (0..40).rev().for_each(|n| {
            assert_eq!(v.read(f, n * PAGE as u64, &mut page).expect("read"), PAGE);
            assert!(page == expected[n as usize * PAGE..][..PAGE], "page {n}, {options}");
        });
        v.close().expect("close");
        judge(&crashed);
    }
    // The same page again, back to what it was, and one that changes altogether: its cluster is written anew.
    patch(&v, f, &mut expected, 100, b"other");
    let old = text(3);
    patch(&v, f, &mut expected, 3 * PAGE, &old);
    assert_eq!(fsync(&v, f), (0, 1));
    patch(&v, f, &mut expected, PAGE, &text(999));
    assert_eq!(fsync(&v, f), (2, 1));
    assert_eq!((v.saved_blocks(f).expect("compressed"), v.stats().compress.clusters), (saved, clusters + 1));
    let v = reopened(v, &device);
    assert!(content(&v, f) == expected);
}

#[test]
fn where_the_zone_is_full_deltas_share_pages_or_clusters_are_written_anew() {
    for (options, anew) in [("", false), ("delta=compact,compact_files=all", false), ("delta=inline", true)] {
        let device = Arc::new(blank_delta_and_compression(64));
        let v = open_device(&device, options);
        let (f, mut expected) = compressed(&v, "x.db", 800);
        for round in 0..30u64 {
            for n in 0..12u64 {
                let page = (round * 37 + n * 61) % 800;
                patch(&v, f, &mut expected, page as usize * PAGE + 50, &noise(round * 12 + n)[..200]);
            }
            v.fsync(f, false).expect("fsync");
            if round % 5 == 0 {
                assert!(content(&v, f) == expected, "{options}, round {round}");
            }
        }
        let s = v.stats();
        let (made, again) = (s.deltas.made, s.compress.clusters - 200);
        assert!(if anew { made < 50 && again > 250 } else { made == 360 && again == 0 }, "{options}: {s:?}");
        let v = reopened(v, &device);
        assert!(content(&v, f) == expected, "{options}");
        v.setattr(f, &SetAttr { size: Some(0), ..Default::default() }).expect("empty");
        v.set_compress_option(f, 0, 4).expect("an empty file can be compressed otherwise");
        drop(reopened(v, &device));
    }
}

#[test]
fn files_that_grow_are_cut_and_punched() {
    let device = Arc::new(blank_delta_and_compression(64));
    let v = open_device(&device, "");
    let (f, mut expected) = compressed(&v, "f", 40);
    let page = PAGE as u64;
    let update = |expected: &mut Vec<u8>, seed: usize| {
        for n in 0..expected.len() / PAGE {
            patch(&v, f, expected, n * PAGE + 5 * seed, b"update");
        }
        v.fsync(f, false).expect("fsync");
        assert!(content(&v, f) == *expected, "{seed}");
    };
    update(&mut expected, 1);
    v.setattr(f, &SetAttr { size: Some(30 * page + 100), ..Default::default() }).expect("truncate");
    v.setattr(f, &SetAttr { size: Some(40 * page), ..Default::default() }).expect("grow");
    expected[30 * PAGE + 100..].fill(0);
    assert!(content(&v, f) == expected);
    update(&mut expected, 20);
    v.fallocate(f, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, 2 * page, 7 * page).expect("punch");
    expected[2 * PAGE..9 * PAGE].fill(0);
    update(&mut expected, 40);
    v.fallocate(f, FallocateMode::COLLAPSE_RANGE, page, 2 * page).expect("collapse");
    expected.drain(PAGE..3 * PAGE);
    update(&mut expected, 60);
    // So many pages that the zone has to go, and direct nodes come.
    let more: Vec<u8> = (0..1000).flat_map(text).collect();
    write(&v, f, expected.len() as u64, &more);
    expected.extend(more);
    v.fsync(f, false).expect("fsync");
    assert!(content(&v, f) == expected);
    v.setattr(f, &SetAttr { size: Some(5 * page + 7), ..Default::default() }).expect("truncate");
    expected.truncate(5 * PAGE + 7);
    let v = reopened(v, &device);
    assert!(content(&v, f) == expected);
    v.setattr(f, &SetAttr { size: Some(0), ..Default::default() }).expect("empty");
    v.set_flags(f, FileFlags::empty()).expect("chattr -c");
    drop(reopened(v, &device));
}

#[test]
fn saved_blocks_are_released_without_deltas() {
    let device = Arc::new(blank_delta_and_compression(64));
    let v = open_device(&device, "");
    let (f, mut expected) = compressed(&v, "f", 40);
    (0..8).for_each(|n| patch(&v, f, &mut expected, n * 5 * PAGE, b"small"));
    assert_eq!(fsync(&v, f), (0, 1));
    let saved = v.release_saved_blocks(f).expect("released");
    assert!(saved > 0 && v.stats().zones.deltas == 0);
    assert!(content(&v, f) == expected);
    let v = reopened(v, &device);
    assert!(content(&v, f) == expected);
    assert!(v.reserve_saved_blocks(f).expect("reserved") >= saved);
    patch(&v, f, &mut expected, 99, b"small");
    assert_eq!(fsync(&v, f), (0, 1));
    assert!(content(&reopened(v, &device), f) == expected);
}

#[test]
fn what_is_read_often_is_compressed_again() {
    let device = Arc::new(blank_delta_and_compression(64));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), "", clock.clone());
    let (f, mut expected) = compressed(&v, "f", 40);
    (0..8).for_each(|n| patch(&v, f, &mut expected, n * 5 * PAGE, b"small"));
    assert_eq!(fsync(&v, f), (0, 1));
    let (g, mut other) = noisy_file(&v, "g", 4);
    (0..40).for_each(|n| patch(&v, g, &mut other, n, b"x"));
    clock.advance(Duration::from_secs(120));
    v.background().expect("background");
    for n in 0..40 {
        v.read(f, (n % 3 * PAGE) as u64, &mut [0; 100]).expect("read");
    }
    assert_eq!((v.hotness(f), v.stats().zones.deltas), (Hotness::ReadHot, 8 + 1));
    for _ in 0..20 {
        clock.advance(Duration::from_secs(1));
        v.background().expect("background");
    }
    assert_eq!((v.delta_mode(), v.stats().zones.deltas, v.stats().restored.files), (DeltaMode::Full, 1, 1));
    assert!(content(&reopened(v, &device), f) == expected);
}

#[test]
fn an_export_folds_them() {
    let device = Arc::new(blank_delta_and_compression(64));
    let v = open_device(&device, "");
    let (f, mut expected) = compressed(&v, "f", 40);
    (0..8).for_each(|n| patch(&v, f, &mut expected, n * 5 * PAGE, b"small"));
    assert_eq!(fsync(&v, f), (0, 1));
    v.close().expect("close");
    drop(v);
    let converted =
        export(device.clone(), Arc::new(ManualClock::new(START)), &mut |_, _, _| {}).expect("export");
    assert_eq!(converted.folded.pages, 8, "{converted:?}");
    judge(&device);
    let v = open_device(&device, "");
    assert!(content(&v, f) == expected);
    assert!(v.saved_blocks(f).expect("compressed") >= 20);
}

#[test]
fn a_crash_shows_a_page_as_it_was_or_as_it_is() {
    const PAGES: u64 = 16;
    let states = crash(
        &blank_delta_and_compression(64),
        "",
        |v, mark| {
            let (f, _) = compressed(v, "f", PAGES);
            mark(1);
            for round in 2..10u8 {
                for p in 0..PAGES {
                    // In every third round a page of each cluster changes altogether, which opens it.
                    let all = round % 3 == 0 && p % 4 == u64::from(round / 3);
                    if all {
                        write(v, f, p * PAGE as u64, &text(p)[..PAGE - 8]);
                        write(v, f, p * PAGE as u64 + 1000, &noise(u64::from(round)));
                        write(v, f, (p + 1) * PAGE as u64, &text(p + 1)[..1100]);
                    }
                }
                (0..PAGES).for_each(|p| write(v, f, p * PAGE as u64 + 1500, &[round; 20]));
                v.fsync(f, false).expect("fsync");
                mark(u64::from(round));
                if round % 4 == 0 {
                    v.checkpoint().expect("checkpoint");
                }
            }
            let s = v.stats();
            assert!(s.deltas.made > 60 && s.compress.clusters > 4, "{:?} {:?}", s.deltas, s.compress);
        },
        |v, mark| {
            let Some(f) = at(v, "f") else { return assert_eq!(mark, 0) };
            for (p, page) in (0..PAGES).zip(content(v, f.ino).chunks(PAGE)) {
                let shown = page[1500];
                assert!(page[1500..1520].iter().all(|&b| b == shown) || mark < 2, "page {p} is a mixture");
                assert!(mark < 2 || u64::from(shown) >= mark, "page {p} is of round {shown}, not {mark}");
                assert!(mark < 1 || page[..1000] == text(p)[..1000], "page {p}: its cluster is another one");
            }
        },
    );
    assert!(states > 100, "{states}");
}

/// What is written by 60 fsyncs of small updates of a file that grows, and what the file takes then.
fn cost(options: &str, compress: bool) -> (u64, u64) {
    let device = Arc::new(blank_delta_and_compression(64));
    let v = open_device(&device, options);
    let f = file(&v, v.root(), "x.db");
    if compress {
        v.set_flags(f, FileFlags::COMPR).expect("chattr +c");
    }
    let mut expected = Vec::new();
    for round in 0..60u64 {
        let more: Vec<u8> = (0..8).flat_map(|n| text(8 * round + n)).collect();
        write(&v, f, expected.len() as u64, &more);
        expected.extend(more);
        let pages = expected.len() / PAGE;
        for n in 0..4 {
            let page = (round as usize * 7 + n * 13) % pages;
            patch(&v, f, &mut expected, page * PAGE + 200, &noise(round)[..60]);
        }
        v.fsync(f, false).expect("fsync");
    }
    let saved = if compress { v.saved_blocks(f).expect("compressed") } else { 0 };
    let s = v.stats();
    assert!(content(&v, f) == expected, "{options}");
    drop(reopened(v, &device));
    (s.written.data + s.written.node + s.written.compact, expected.len() as u64 / PAGE as u64 - saved)
}

/// Compression of what is appended and deltas for what is updated write less together than either alone.
#[test]
fn both_write_less_than_either() {
    let rows = [
        ("neither", "delta=off", false),
        ("compression", "compress_deltas=off", true),
        ("deltas", "", false),
        ("both", "", true),
    ];
    let found = rows.map(|(name, options, compress)| {
        let (written, kept) = cost(options, compress);
        println!("{name:<12} {written:>6} blocks written, {kept:>4} blocks of content kept");
        written
    });
    let [neither, compression, deltas, both] = found;
    assert!(both < compression && both < deltas && compression < neither && deltas < neither, "{found:?}");
}
