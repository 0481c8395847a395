//! What reading a restored file takes of the device, and what making its windows whole writes.

use crate::common::*;
use medfs::{Files, Hotness, ManualClock, RestoreStats, Volume};
use medfs_device::MemDevice;
use medfs_device::count::CountingDevice;
use medfs_device::crash::RecordingDevice;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// Bytes of a request of one who reads a whole file, and pages of it.
const REQUEST: usize = 128 << 10;
const WINDOW: usize = REQUEST / PAGE;
/// Every delta can go into a compact page, whatever is known of its file.
const OPTIONS: &str = "compact_files=all";

/// A file with deltas in these of its pages, and its content.
fn with_deltas(v: &Volume, name: &str, pages: usize, updated: impl Fn(usize) -> bool) -> (u32, Vec<u8>) {
    let (f, mut expected) = noisy_file(v, name, pages as u64);
    for n in (0..pages).filter(|&n| updated(n)) {
        patch(v, f, &mut expected, n * PAGE + n % 4000, b"small");
        if n % WINDOW >= WINDOW - 4 {
            v.fsync(f, false).expect("fsync");
        }
    }
    v.fsync(f, false).expect("fsync");
    // What is written next lies elsewhere.
    noisy_file(v, &format!("behind {name}"), WINDOW as u64);
    (f, expected)
}

/// Time passes until the file is not busy with its updates any more.
fn cool_down(v: &Volume, clock: &ManualClock) {
    for _ in 0..8 {
        clock.advance(60 * SECOND);
        v.background().expect("background");
    }
}

fn read_in_order(v: &Volume, f: u32, pages: usize) {
    for n in 0..400 {
        v.read(f, (n % pages * PAGE) as u64, &mut [0; PAGE]).expect("read");
    }
    assert_eq!(v.hotness(f), Hotness::ReadHot);
}

/// Nothing is wanted for more than a window of hotness: what is left to restore is restored. Returns what was
/// restored in all.
fn idle(v: &Volume, clock: &ManualClock) -> RestoreStats {
    for _ in 0..90 {
        clock.advance(SECOND);
        v.background().expect("background");
    }
    v.stats().restored
}

/// A volume with such a file after it was read, by `read`, and restored; the file's content, and what was restored.
fn restored(
    pages: usize,
    updated: impl Fn(usize) -> bool,
    read: impl Fn(&Volume, u32),
) -> (Arc<MemDevice>, Vec<u8>, RestoreStats) {
    let device = Arc::new(blank_delta(256));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), OPTIONS, clock.clone());
    let (f, expected) = with_deltas(&v, "f", pages, updated);
    cool_down(&v, &clock);
    read(&v, f);
    let before = v.stats();
    let did = idle(&v, &clock);
    let after = v.stats();
    assert_eq!(after.zones.deltas, 0);
    assert_eq!(
        after.written.data - before.written.data,
        did.pages + did.moved,
        "and nothing else is written"
    );
    assert!(content(&v, f) == expected);
    v.close().expect("close");
    judge(&device);
    (device, expected, did)
}

/// Requests and blocks of reading the file once, in order, on a volume just opened.
fn cost_of_reading(device: &Arc<MemDevice>, expected: &[u8]) -> (u64, u64) {
    let counts = Arc::new(CountingDevice::new(device.clone()));
    let v = open_with(counts.clone(), "ro,noatime", Arc::new(ManualClock::new(START)));
    let f = at(&v, "f").expect("the file").ino;
    v.getattr(f).expect("attributes");
    let before = counts.counts();
    let mut request = vec![0; REQUEST];
    for (n, expected) in expected.chunks(REQUEST).enumerate() {
        let len = v.read(f, (n * REQUEST) as u64, &mut request).expect("read");
        assert!(request[..len] == *expected, "request {n}");
    }
    let io = counts.counts() - before;
    (io.reads, io.blocks_read)
}

#[test]
fn a_restored_file_takes_the_requests_of_one_that_was_never_updated() {
    const PAGES: usize = 4 * WINDOW;
    for percent in [20, 40, 60, 80, 100] {
        let updated = |n: usize| n * percent / 100 != (n + 1) * percent / 100;
        let count = (0..PAGES).filter(|&n| updated(n)).count() as u64;
        let (device, expected, did) = restored(PAGES, updated, |v, f| read_in_order(v, f, PAGES));
        assert_eq!((did.pages, did.moved), (count, PAGES as u64 - count), "{percent}%");
        assert_eq!(cost_of_reading(&device, &expected), (4, PAGES as u64), "{percent}%");
    }
}

#[test]
fn where_few_pages_were_restored_their_neighbours_stay() {
    let (device, expected, did) =
        restored(4 * WINDOW, |n| n % 8 == 3, |v, f| read_in_order(v, f, 4 * WINDOW));
    assert_eq!((did.pages, did.moved), (16, 0));
    assert_eq!(cost_of_reading(&device, &expected), (8, 4 * (32 + 4)));
    // Window by window: only the last one has many.
    let last = 3 * WINDOW;
    let (device, expected, did) = restored(
        4 * WINDOW,
        |n| n % 16 == 3 || n >= last && n % 4 == 0,
        |v, f| read_in_order(v, f, 4 * WINDOW),
    );
    assert_eq!((did.pages, did.moved), (3 * 2 + 10, WINDOW as u64 - 10));
    assert_eq!(cost_of_reading(&device, &expected).0, 3 * 2 + 1);
}

#[test]
fn what_is_restored_little_by_little_is_made_whole_at_last() {
    let device = Arc::new(blank_delta(256));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), OPTIONS, clock.clone());
    let (f, mut expected) = with_deltas(&v, "f", WINDOW, |_| false);
    let mut moved = Vec::new();
    for round in 0..4 {
        for n in 0..3 {
            patch(&v, f, &mut expected, (round * 3 + n) * 2 * PAGE + 7, b"small");
        }
        v.fsync(f, false).expect("fsync");
        cool_down(&v, &clock);
        read_in_order(&v, f, WINDOW);
        moved.push(idle(&v, &clock).moved);
        noisy_file(&v, &format!("after {round}"), 8);
    }
    // Three pages pay for 18; six that lie elsewhere, for the other 26.
    assert_eq!(moved, [0, 29, 29, 29 + 29]);
    v.close().expect("close");
    assert_eq!(cost_of_reading(&device, &expected), (1, WINDOW as u64));
}

#[test]
fn a_file_that_is_read_here_and_there_is_not_written_as_a_whole() {
    const PAGES: usize = 4 * WINDOW;
    let (_, _, did) = restored(
        PAGES,
        |n| n % 4 == 0,
        |v, f| {
            for n in 0..400 {
                v.read(f, (n * 37 % PAGES * PAGE) as u64, &mut [0; PAGE]).expect("read");
            }
        },
    );
    assert_eq!((did.pages, did.moved), (PAGES as u64 / 4, 0));
}

#[test]
fn a_window_that_is_being_written_stays() {
    let device = Arc::new(blank_delta(256));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), &format!("{OPTIONS},commit=60m"), clock.clone());
    let (f, mut expected) = with_deltas(&v, "f", 2 * WINDOW, |n| n % 4 == 0);
    cool_down(&v, &clock);
    read_in_order(&v, f, 2 * WINDOW);
    patch(&v, f, &mut expected, PAGE + 100, b"not durable yet");
    let did = idle(&v, &clock);
    assert_eq!((did.pages, did.moved, v.stats().dirty_pages), (16, 24, 1));
    v.fsync(f, false).expect("fsync");
    assert!(content(&v, f) == expected);
}

#[test]
fn a_volume_that_is_nearly_full_moves_nothing() {
    let device = Arc::new(blank_delta(256));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), OPTIONS, clock.clone());
    let (f, expected) = with_deltas(&v, "f", 2 * WINDOW, |n| n % 4 == 0);
    let filler = file(&v, v.root(), "filler");
    let free = v.space().available;
    let noise: Vec<u8> = (0..64).flat_map(noise).collect();
    for n in 0..(free - 300) / 64 {
        write(&v, filler, n * noise.len() as u64, &noise);
    }
    v.sync().expect("sync");
    cool_down(&v, &clock);
    read_in_order(&v, f, 2 * WINDOW);
    let did = idle(&v, &clock);
    assert_eq!((did.pages, did.moved), (16, 0), "{} free segments", v.stats().free_segments);
    assert!(content(&v, f) == expected);
}

#[test]
fn a_large_file_is_restored_in_parts() {
    const PAGES: usize = 24 * WINDOW;
    let device = Arc::new(blank_delta(256));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), &format!("{OPTIONS},idle=60m"), clock.clone());
    let (f, expected) = with_deltas(&v, "f", PAGES, |n| n % 4 == 0);
    cool_down(&v, &clock);
    read_in_order(&v, f, PAGES);
    clock.advance(61 * SECOND);
    v.background().expect("background");
    clock.advance(SECOND);
    v.background().expect("background");
    let steps: Vec<(u64, u64, u64)> = (0..3)
        .map(|_| v.idle_work(64).expect("idle work"))
        .map(|did| (did.files_restored, did.pages_restored, did.pages_moved))
        .collect();
    let part = |windows: u64| (windows * 8, windows * 24);
    assert_eq!(steps, [(0, part(16).0, part(16).1), (1, part(8).0, part(8).1), (0, 0, 0)]);
    assert_eq!(v.stats().zones.deltas, 0);
    assert!(content(&v, f) == expected);
    v.close().expect("close");
    judge(&device);
    let (requests, blocks) = cost_of_reading(&device, &expected);
    // The index has nodes of its own, and a window may lie on both sides of a segment's end.
    assert!(requests <= 24 + 4 && blocks <= PAGES as u64 + 4, "{requests} requests, {blocks} blocks");
}

#[test]
fn every_crash_while_windows_are_made_whole_shows_the_same_content() {
    let device = Arc::new(blank_delta(256));
    let v = open_device(&device, OPTIONS);
    let (_, expected) = with_deltas(&v, "f", 2 * WINDOW, |n| n % 5 == 0);
    v.close().expect("close");
    let recorder = Arc::new(RecordingDevice::new(&device.snapshot()));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(recorder.clone(), OPTIONS, clock.clone());
    let f = at(&v, "f").expect("the file").ino;
    read_in_order(&v, f, 2 * WINDOW);
    clock.advance(SECOND);
    v.background().expect("background");
    let did = v.idle_work(100).expect("idle work");
    assert_eq!((did.pages_restored, did.pages_moved), (13, 51));
    crashes_show_what_moved(v, &recorder, f, &expected);
}
