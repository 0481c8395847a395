//! Idle work: when it is done, and that restoring changes nothing but where content lies.

use crate::common::*;
use medfs::{Files, Hotness, IdleReport, ManualClock, Volume};
use medfs_device::MemDevice;
use medfs_device::crash::RecordingDevice;
use medfs_testkit::images::FsckMedfs;
use medfs_testkit::subject::Check;
use std::sync::Arc;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A file with a delta in each of `pages` pages, and its content.
fn with_deltas(v: &Volume, name: &str, pages: usize) -> (u32, Vec<u8>) {
    let (f, mut expected) = noisy_file(v, name, pages as u64);
    for n in 0..pages {
        patch(v, f, &mut expected, n * PAGE + 7 * n, b"small");
    }
    v.fsync(f, false).expect("fsync");
    (f, expected)
}

fn read_often(v: &Volume, f: u32) {
    for n in 0..40 {
        v.read(f, n % 3 * PAGE as u64, &mut [0; 100]).expect("read");
    }
}

fn deltas(v: &Volume) -> u64 {
    v.stats().zones.deltas
}

fn reopened(v: Volume, device: &Arc<MemDevice>) -> Volume {
    v.close().expect("close");
    drop(v);
    open(device.clone())
}

#[test]
fn what_is_read_often_and_not_written_is_restored() {
    let device = Arc::new(blank_delta(64));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), "", clock.clone());
    let (f, expected) = with_deltas(&v, "read", 10);
    let (g, written) = with_deltas(&v, "written", 10);
    // In the window in which they were written both are still somewhat write-hot; then one is read.
    clock.advance(120 * SECOND);
    v.background().expect("background");
    read_often(&v, f);
    assert_eq!((v.hotness(f), deltas(&v)), (Hotness::ReadHot, 20));
    let before = v.stats();
    assert_eq!(v.idle_work(1000).expect("idle work").pages_restored, 0, "something was wanted just now");
    // Not idle yet, then idle.
    for (seconds, left) in [(1, 20), (3, 20), (3, 10), (1, 10)] {
        clock.advance(seconds * SECOND);
        v.background().expect("background");
        assert_eq!(deltas(&v), left, "after {seconds} more seconds");
    }
    let after = v.stats();
    assert_eq!((after.restored.files, after.restored.pages), (1, 10));
    assert_eq!(after.written.data - before.written.data, 10);
    assert_eq!(after.in_place_blocks, before.in_place_blocks, "a base is not overwritten");
    assert_eq!((content(&v, f), content(&v, g)), (expected.clone(), written.clone()));
    v.sync().expect("sync");
    let v = reopened(v, &device);
    let (f, g) = (at(&v, "read").expect("f").ino, at(&v, "written").expect("g").ino);
    assert_eq!((content(&v, f), content(&v, g)), (expected, written));
    v.close().expect("close");
    FsckMedfs.check(device).unwrap_or_else(|e| panic!("fsck.medfs: {e}"));
}

#[test]
fn what_is_also_written_stays() {
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(Arc::new(blank_delta(64)), "", clock.clone());
    let (f, mut expected) = with_deltas(&v, "f", 10);
    read_often(&v, f);
    for n in 0..40 {
        patch(&v, f, &mut expected, n, b"x");
    }
    v.fsync(f, false).expect("fsync");
    assert_eq!(v.hotness(f), Hotness::BothHot);
    clock.advance(SECOND);
    v.background().expect("background");
    let did = v.idle_work(1000).expect("idle work");
    assert_eq!((did.pages_restored, deltas(&v)), (0, 10));
}

#[test]
fn options_and_plain_volumes_restore_nothing() {
    for options in ["restore=off", "delta=off", "ro"] {
        let device = Arc::new(blank_delta(64));
        let v = open(device.clone());
        let (_, expected) = with_deltas(&v, "f", 10);
        v.close().expect("close");
        let clock = Arc::new(ManualClock::new(START));
        let v = open_with(device, options, clock.clone());
        let f = at(&v, "f").expect("the file").ino;
        read_often(&v, f);
        for _ in 0..20 {
            clock.advance(SECOND);
            v.background().expect("background");
        }
        assert_eq!((v.hotness(f), deltas(&v)), (Hotness::ReadHot, 10), "{options}");
        assert_eq!(content(&v, f), expected);
    }
}

#[test]
fn a_step_keeps_to_its_budget_and_the_next_one_goes_on() {
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(Arc::new(blank_delta(64)), "idle=1s", clock.clone());
    let files: Vec<(u32, Vec<u8>)> = (0..6).map(|n| with_deltas(&v, &format!("f{n}"), 5)).collect();
    clock.advance(120 * SECOND);
    v.background().expect("background");
    files.iter().for_each(|(f, _)| read_often(&v, *f));
    clock.advance(60 * SECOND);
    // The commit comes first, then the tick that sees nobody.
    v.background().expect("background");
    clock.advance(SECOND / 2);
    v.background().expect("background");
    let steps: Vec<IdleReport> = (0..4).map(|_| v.idle_work(8).expect("idle work")).collect();
    let pages: Vec<u64> = steps.iter().map(|did| did.pages_restored).collect();
    assert_eq!(pages, [10, 10, 10, 0]);
    assert!(steps[0].reclustered && !steps[1].reclustered);
    for (f, expected) in &files {
        assert_eq!(&content(&v, *f), expected);
    }
}

#[test]
fn every_crash_while_restoring_shows_the_same_content() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let (_, expected) = with_deltas(&v, "f", 6);
    v.close().expect("close");
    let base = device.snapshot();
    let recorder = Arc::new(RecordingDevice::new(&base));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(recorder.clone(), "", clock.clone());
    let f = at(&v, "f").expect("the file").ino;
    read_often(&v, f);
    clock.advance(SECOND);
    v.background().expect("background");
    assert_eq!(v.idle_work(100).expect("idle work").pages_restored, 6);
    crashes_show_what_moved(v, &recorder, f, &expected);
}

#[test]
fn threads_go_on_while_files_are_restored() {
    use std::sync::atomic::{AtomicBool, Ordering};
    const ROUNDS: usize = 3000;
    let device = Arc::new(blank_delta(64));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), "hot_window=100ms", clock.clone());
    let files: Vec<(u32, Vec<u8>)> = (0..3).map(|n| with_deltas(&v, &format!("f{n}"), 8)).collect();
    let done = AtomicBool::new(false);
    let written: Vec<(u32, Vec<u8>)> = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                clock.advance(Duration::from_millis(100));
                v.background().expect("background");
                v.idle_work(4).expect("idle work");
            }
        });
        let workers: Vec<_> = files
            .into_iter()
            .map(|(f, mut expected)| {
                let v = &v;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let page = round % 8;
                        if round % 50 == 0 {
                            patch(v, f, &mut expected, page * PAGE + round, &round.to_le_bytes());
                            v.fsync(f, false).expect("fsync");
                        }
                        let mut found = [0; PAGE];
                        v.read(f, (page * PAGE) as u64, &mut found).expect("read");
                        assert!(found[..] == expected[page * PAGE..][..PAGE], "round {round}, page {page}");
                        if round % 100 == 99 {
                            std::thread::sleep(Duration::from_millis(2));
                        }
                    }
                    (f, expected)
                })
            })
            .collect();
        let ended = workers.into_iter().map(|w| w.join()).collect::<Vec<_>>();
        done.store(true, Ordering::Release);
        ended.into_iter().map(|w| w.expect("a worker ends well")).collect()
    });
    assert!(v.stats().restored.pages > 0, "{:?}", v.stats().hotness);
    v.close().expect("close");
    drop(v);
    let v = open(device);
    for (n, (_, expected)) in written.iter().enumerate() {
        let f = at(&v, &format!("f{n}")).expect("the file").ino;
        assert!(&content(&v, f) == expected, "f{n}");
    }
}
