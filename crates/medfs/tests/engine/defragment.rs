//! `F2FS_IOC_DEFRAGMENT`: pages that lie apart come together, and nothing else changes.

use crate::common::*;
use medfs::{Extent, Files, Volume};
use medfs_device::MemDevice;
use medfs_device::crash::RecordingDevice;
use std::sync::Arc;

const MIB: u64 = 256;
const PAGES: u64 = 1280;
const BYTES: u64 = PAGES * PAGE as u64;

fn volumes() -> [Arc<MemDevice>; 2] {
    [Arc::new(blank(MIB, all_features())), Arc::new(blank_delta(MIB))]
}

fn extents(v: &Volume, f: u32) -> usize {
    Extent::of(v, f).expect("extents").len()
}

fn errno<T>(result: medfs::Result<T>) -> i32 {
    result.err().map_or(0, |e| e.errno())
}

/// A file that was written a page at a time, in steps that are prime to its length.
fn apart(v: &Volume, name: &str, pages: u64) -> (u32, Vec<u8>) {
    let f = file(v, v.root(), name);
    for n in 0..pages {
        let index = n * 37 % pages;
        write(v, f, index * PAGE as u64, &noise(index));
        v.fsync(f, false).expect("fsync");
    }
    (f, (0..pages).flat_map(noise).collect())
}

#[test]
fn a_file_in_pieces_comes_together() {
    for device in volumes() {
        let v = open_device(&device, "in_place=off");
        let (f, expected) = apart(&v, "f", PAGES);
        assert!(extents(&v, f) > 1000);
        // Half of it: the rest stays.
        let half = v.defragment(f, 0, BYTES / 2).expect("whole pages");
        assert_eq!(half, BYTES / 2);
        assert!((300..800).contains(&extents(&v, f)));
        v.defragment(f, 0, BYTES).expect("whole pages");
        assert!(extents(&v, f) <= 8, "{}", extents(&v, f));
        assert!(content(&v, f) == expected);
        v.close().expect("close");
        judge(&device);
        let v = open_device(&device, "in_place=off");
        let f = at(&v, "f").expect("the file").ino;
        assert!(content(&v, f) == expected);
        let (before, written) = (Extent::of(&v, f).expect("extents"), v.stats().written.gc);
        let (page, len) = (before[0].page, before[0].len);
        let moved = v.defragment(f, page * PAGE as u64, len * PAGE as u64).expect("whole pages");
        assert_eq!((moved, v.stats().written.gc), (0, written), "what lies together stays");
    }
}

#[test]
fn a_reserved_file_comes_home() {
    for device in volumes() {
        let v = open_device(&device, "in_place=off");
        let (_, expected) = apart(&v, "f", PAGES);
        v.close().expect("close");
        let v = open_device(&device, "placement=reserve,reserve_files=all");
        let f = at(&v, "f").expect("the file").ino;
        v.defragment(f, 0, BYTES).expect("whole pages");
        // One of its sections may be one that a log filled with it.
        let found = Extent::of(&v, f).expect("extents");
        let at_home = |e: &Extent| (e.addr - v.geometry().seg_start(0)) as u64 % 512 == e.page % 512;
        assert!(found.len() <= 3 && found.iter().all(at_home), "{found:?}");
        assert!(content(&v, f) == expected);
        v.close().expect("close");
        judge(&device);
    }
}

/// Bases of deltas stay where they are, with their pages.
#[test]
fn deltas_stay_deltas() {
    let device = Arc::new(blank_delta(MIB));
    let v = open_device(&device, "in_place=off");
    let (f, mut expected) = apart(&v, "f", 40);
    v.sync().expect("sync");
    for n in 0..40 {
        patch(&v, f, &mut expected, n * PAGE + 100, b"a small change");
    }
    v.fsync(f, false).expect("fsync");
    let deltas = v.stats().zones.deltas;
    assert!(deltas > 3, "{deltas}");
    v.defragment(f, 0, 40 * PAGE as u64).expect("whole pages");
    assert_eq!(v.stats().zones.deltas, deltas);
    assert!(content(&v, f) == expected);
    v.close().expect("close");
    judge(&device);
}

#[test]
fn what_cannot_be_brought_together_is_refused() {
    let device = Arc::new(blank_delta_and_compression(MIB));
    let v = open_device(&device, "");
    let (f, _) = noisy_file(&v, "f", 5);
    let page = PAGE as u64;
    for (start, len) in [(1, page), (0, page + 1), (page / 2, page), (u64::MAX - page + 1, 2 * page)] {
        assert_eq!(errno(v.defragment(f, start, len)), 22, "{start} {len}");
    }
    assert_eq!(v.defragment(f, 100 * page, page).expect("behind the end"), 0);
    assert_eq!(v.defragment(f, 0, 0).expect("nothing"), 0);
    let d = dir(&v, v.root(), "d");
    assert_eq!(errno(v.defragment(d, 0, page)), 22);
    let pinned = file(&v, v.root(), "pinned");
    v.set_pinned(pinned, true).expect("it has no blocks");
    assert_eq!(errno(v.defragment(pinned, 0, page)), 22);
    let compressed = file(&v, v.root(), "compressed");
    v.set_flags(compressed, medfs::FileFlags::COMPR).expect("chattr +c");
    assert_eq!(errno(v.defragment(compressed, 0, page)), 95);
    v.atomic_start(f).expect("begun");
    assert_eq!(errno(v.defragment(f, 0, page)), 22);
    v.atomic_abort(f).expect("ended");
    v.close().expect("close");
    assert_eq!(errno(v.defragment(f, 0, page)), 30);
}

/// Whatever is stored of it, power loss shows the file as it was.
#[test]
fn every_crash_shows_the_same_content() {
    for (device, options) in
        volumes().into_iter().zip(["in_place=off", "placement=reserve,reserve_files=all"])
    {
        let v = open_device(&device, "in_place=off");
        let (_, expected) = apart(&v, "f", 40);
        v.close().expect("close");
        let recorder = Arc::new(RecordingDevice::new(&device));
        let v = open_with(recorder.clone(), options, Arc::new(medfs::ManualClock::new(START)));
        let f = at(&v, "f").expect("the file").ino;
        assert!(v.defragment(f, 0, 40 * PAGE as u64).expect("whole pages") > 0);
        crashes_show_what_moved(v, &recorder, f, &expected);
    }
}

/// One page lies beside its home, which is free only after a checkpoint.
#[test]
fn pages_at_home_stay_there() {
    let device = Arc::new(blank(MIB, all_features()));
    let v = open_device(&device, "placement=reserve,reserve_files=all");
    let f = file(&v, v.root(), "f");
    for index in 0..100 {
        write(&v, f, index * PAGE as u64, &noise(index));
        v.fsync(f, false).expect("fsync");
    }
    v.checkpoint().expect("checkpoint");
    let punch = medfs::FallocateMode::PUNCH_HOLE | medfs::FallocateMode::KEEP_SIZE;
    v.fallocate(f, punch, 99 * PAGE as u64, PAGE as u64).expect("punch");
    write(&v, f, 99 * PAGE as u64, &noise(5));
    v.fsync(f, false).expect("fsync");
    let before = Extent::of(&v, f).expect("extents");
    v.defragment(f, 0, 100 * PAGE as u64).expect("whole pages");
    let after = Extent::of(&v, f).expect("extents");
    assert_eq!((after[0].addr, after[0].len), (before[0].addr, 99));
    v.checkpoint().expect("checkpoint");
    v.defragment(f, 0, 100 * PAGE as u64).expect("whole pages");
    assert_eq!(extents(&v, f), 1, "it came home");
    v.close().expect("close");
    judge(&device);
}
