//! Pages of reserved files come home in idle time (ARS): where that pays, within a budget, and without risk.

use crate::common::*;
use medfs::{Extent, Files, Ino, ManualClock, SetAttr, Volume};
use medfs_device::MemDevice;
use medfs_device::crash::{CrashPlan, RecordingDevice};
use std::sync::Arc;
use std::time::Duration;

const HOME: &str =
    "placement=reserve,reserve_files=all,in_place=off,hot_window=1s,background_gc=off,defragment_budget=16G";
const MIB: u64 = 256;
/// Pages of a file in two segments.
const PAGES: u64 = 600;
/// Longer than a file is busy after its last write.
const CALM: Duration = Duration::from_secs(60);

fn volumes() -> [Arc<MemDevice>; 2] {
    [Arc::new(blank(MIB, all_features())), Arc::new(blank_delta(MIB))]
}

fn extents(v: &Volume, f: Ino) -> usize {
    Extent::of(v, f).expect("extents").len()
}

struct Mounted {
    v: Volume,
    clock: Arc<ManualClock>,
}

impl Mounted {
    fn of(device: &Arc<MemDevice>, options: &str) -> Mounted {
        let clock = Arc::new(ManualClock::new(START));
        Mounted { v: open_with(device.clone(), options, clock.clone()), clock }
    }

    /// After a while in which files were read, steps of idle work until one does nothing: pages brought home.
    fn rest(&self, read: &[Ino]) -> u64 {
        let before = self.v.stats().brought_home;
        self.clock.advance(CALM);
        self.v.background().expect("background");
        read.iter().for_each(|&f| drop(content(&self.v, f)));
        self.clock.advance(Duration::from_secs(2));
        self.v.background().expect("background");
        while self.v.idle_work(64).expect("idle work").pages_brought_home > 0 {}
        self.v.stats().brought_home - before
    }
}

/// Truncates a file and writes it anew before the checkpoint, in no order: each page lies at another's home.
fn displaced(v: &Volume, f: Ino, pages: u64, seed: u64) -> Vec<u8> {
    v.setattr(f, &SetAttr { size: Some(0), ..SetAttr::default() }).expect("truncate");
    for n in 0..pages {
        let index = n * 7 % pages;
        write(v, f, index * PAGE as u64, &noise(index + seed));
        v.fsync(f, false).expect("fsync");
    }
    v.checkpoint().expect("checkpoint");
    (0..pages).flat_map(|index| noise(index + seed)).collect()
}

/// A file whose pages lie beside their homes.
fn off_home(v: &Volume, name: &str, pages: u64) -> (Ino, Vec<u8>) {
    let (f, _) = noisy_file(v, name, pages);
    let expected = displaced(v, f, pages, 9000);
    assert!(extents(v, f) as u64 > pages / 8, "{} extents of {name}", extents(v, f));
    (f, expected)
}

#[test]
fn what_was_written_elsewhere_comes_home() {
    for device in volumes() {
        let mounted = Mounted::of(&device, &format!("{HOME},delta=off"));
        let v = &mounted.v;
        let (f, expected) = off_home(v, "f", PAGES);
        let brought = mounted.rest(&[f]);
        assert!(brought > PAGES / 2, "{brought} pages");
        assert_eq!((extents(v, f), v.stats().brought_home), (1, brought));
        assert_eq!(mounted.rest(&[f]), 0, "what is at home stays");
        assert!(content(v, f) == expected);
        v.close().expect("close");
        judge(&device);
    }
}

#[test]
fn pages_from_before_a_file_was_judged_come_to_its_reserve() {
    let device = Arc::new(blank(MIB, all_features()));
    let mounted = Mounted::of(&device, &HOME.replace("=all", "=tree"));
    let v = &mounted.v;
    let f = file(v, v.root(), "f.db");
    let mut expected = vec![0; 300 * PAGE];
    for n in 0..300 {
        let index = n * 7 % 300;
        expected[index * PAGE..(index + 1) * PAGE].copy_from_slice(&noise(n as u64));
        write(v, f, (index * PAGE) as u64, &noise(n as u64));
        v.fsync(f, false).expect("fsync");
    }
    assert!(extents(v, f) > 20);
    // Whoever reads it: it is large, and in small pieces.
    assert!(mounted.rest(&[]) > 20);
    assert_eq!(extents(v, f), 1);
    assert!(content(v, f) == expected);
    v.close().expect("close");
    judge(&device);
}

#[test]
fn nothing_comes_home_that_nobody_wants_there() {
    for (why, options, pages, read) in [
        ("it is small, and nobody reads it in order", HOME.to_owned(), 100, false),
        ("there is no budget", HOME.replace("=16G", "=0"), PAGES, true),
        ("the budget of a day is too small for it", HOME.replace("=16G", "=256K"), 100, true),
        ("reserves are of pinned files", HOME.replace("placement=reserve", "placement=log"), PAGES, true),
    ] {
        let mounted = Mounted::of(&volumes()[0], &options);
        let v = &mounted.v;
        let (f, _) = noisy_file(v, "f", pages);
        displaced(v, f, pages, 9000);
        let before = Extent::of(v, f).expect("extents");
        mounted.clock.advance(Duration::from_secs(90_000));
        let read = if read { vec![f] } else { Vec::new() };
        assert_eq!(mounted.rest(&read), 0, "{why}");
        assert_eq!(Extent::of(v, f).expect("extents"), before, "{why}");
    }
}

#[test]
fn what_is_written_often_comes_home_without_help() {
    let device = volumes()[0].clone();
    let mounted = Mounted::of(&device, &HOME.replace("hot_window=1s", "hot_window=100s"));
    let (f, _) = off_home(&mounted.v, "f", PAGES);
    assert!(mounted.v.hotness(f).is_write_hot());
    assert_eq!(mounted.rest(&[f]), 0);
}

#[test]
fn a_day_writes_no_more_than_its_budget() {
    let device = volumes()[0].clone();
    // 150 blocks: one of the files, and half of another.
    let mounted = Mounted::of(&device, &HOME.replace("=16G", "=600K"));
    let v = &mounted.v;
    let files: Vec<Ino> = (0..3).map(|n| off_home(v, &format!("f{n}"), 100).0).collect();
    let mut brought = 0;
    for days in 0..5 {
        let before = v.stats().written;
        let now = mounted.rest(&files);
        let after = v.stats().written;
        assert_eq!(after.gc - before.gc, now);
        brought += now;
        assert!(brought <= days * 150, "{brought} pages after {days} days");
        mounted.clock.advance(Duration::from_secs(86_400) - CALM);
    }
    assert!(brought > 250, "{brought} pages");
    assert!(files.iter().all(|&f| extents(v, f) == 1));
}

#[test]
fn a_window_that_was_begun_is_finished_in_the_next_idle_time() {
    let device = volumes()[0].clone();
    let mounted = Mounted::of(&device, HOME);
    let v = &mounted.v;
    let (f, expected) = off_home(v, "f", 100);
    mounted.clock.advance(CALM);
    v.background().expect("background");
    drop(content(v, f));
    mounted.clock.advance(Duration::from_secs(2));
    v.background().expect("background");
    assert_eq!(v.idle_work(8).expect("idle work").pages_brought_home, 8);
    // One of the rest gets its place on its own, and another is to be written.
    write(v, f, 50 * PAGE as u64, &noise(1));
    v.fsync(f, false).expect("fsync");
    write(v, f, 90 * PAGE as u64, &noise(2));
    assert_eq!(v.idle_work(64).expect("idle work").pages_brought_home, 0, "something is wanted");
    mounted.rest(&[]);
    let mut expected = expected;
    expected[50 * PAGE..51 * PAGE].copy_from_slice(&noise(1));
    expected[90 * PAGE..91 * PAGE].copy_from_slice(&noise(2));
    assert_eq!(extents(v, f), 1);
    assert!(content(v, f) == expected);
    v.close().expect("close");
    judge(&device);
}

#[test]
fn deltas_their_bases_and_open_atomic_writes_stay() {
    let device = volumes()[1].clone();
    let mounted = Mounted::of(&device, HOME);
    let v = &mounted.v;
    let (f, mut expected) = off_home(v, "f", 60);
    for n in 0..60 {
        patch(v, f, &mut expected, n * PAGE + 100, b"a small change");
    }
    v.sync().expect("sync");
    let (g, atomic) = off_home(v, "g", 60);
    v.atomic_start(g).expect("begun");
    let (deltas, before) = (v.stats().zones.deltas, [f, g].map(|f| Extent::of(v, f).expect("extents")));
    assert!(deltas > 3, "{deltas}");
    let lying = |f: Ino, page: u64| {
        let all = Extent::of(v, f).expect("extents");
        all.iter().find(|e| (e.page..e.page + e.len).contains(&page)).map(|e| e.addr + (page - e.page) as u32)
    };
    mounted.rest(&[f, g]);
    assert_eq!(v.stats().zones.deltas, deltas);
    assert_eq!(Extent::of(v, g).expect("extents"), before[1]);
    assert!(lying(f, 0).is_some() && content(v, f) == expected && content(v, g) == atomic);
    v.atomic_abort(g).expect("ended");
    v.close().expect("close");
    judge(&device);
}

/// Pages lie at homes of others, so some come home only after the checkpoint behind the first moves.
#[test]
fn every_crash_shows_the_same_content() {
    for device in volumes() {
        let recorder = Arc::new(RecordingDevice::new(&device));
        let clock = Arc::new(ManualClock::new(START));
        let v = open_with(recorder.clone(), &format!("{HOME},delta=off"), clock.clone());
        let mounted = Mounted { v, clock };
        let v = &mounted.v;
        let (f, _) = noisy_file(v, "f", 40);
        v.setattr(f, &SetAttr { size: Some(0), ..SetAttr::default() }).expect("truncate");
        let order = (0..80).map(|n| n / 40 * 40 + n * 7 % 40);
        for index in order {
            write(v, f, index * PAGE as u64, &noise(index + 9000));
            v.fsync(f, false).expect("fsync");
        }
        v.sync().expect("sync");
        let expected: Vec<u8> = (0..80).flat_map(|index| noise(index + 9000)).collect();
        recorder.mark(1);
        for least in [30, 30] {
            let brought = mounted.rest(&[f]);
            assert!((least..60).contains(&brought), "{brought} pages");
            // Its nodes reach the device without a checkpoint, and then with one.
            v.fsync(f, false).expect("fsync");
            noisy_file(v, &format!("g{}", v.stats().brought_home), 3);
        }
        assert_eq!(extents(v, f), 1);
        drop(mounted);
        let plan = CrashPlan { exhaustive: 64, samples: 24, seed: 5, ..CrashPlan::default() };
        let states = recorder.recording().states(&plan).filter(|state| state.last_mark() == Some(1));
        let mut count = 0;
        for state in states {
            let v = open(state.device());
            let f = at(&v, "f").expect("the file").ino;
            assert!(content(&v, f) == expected, "seed {}: {state:?}", plan.seed);
            count += 1;
        }
        assert!(count > 20, "only {count} states");
    }
}
