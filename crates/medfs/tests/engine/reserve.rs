//! Reserved sections (ARS): first writes in any order make one extent, later ones overwrite, and a crash
//! shows what the log would show.

use crate::common::*;
use medfs::{Extent, FallocateMode, Files, SetAttr, Volume};
use medfs_device::MemDevice;
use std::sync::Arc;

const RESERVE: &str = "placement=reserve,reserve_files=all";
/// Pages of a file: two segments and a half.
const PAGES: u64 = 1280;
const MIB: u64 = 256;

fn volumes() -> [Arc<MemDevice>; 2] {
    [Arc::new(blank(MIB, all_features())), Arc::new(blank_delta(MIB))]
}

fn extents(v: &Volume, f: u32) -> Vec<Extent> {
    Extent::of(v, f).expect("extents")
}

/// The pages of a file in an order without order.
fn shuffled(pages: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..pages).collect();
    let mut random = Random(77);
    for n in (1..order.len()).rev() {
        order.swap(n, random.below(n as u64 + 1) as usize);
    }
    order
}

fn write_page(v: &Volume, f: u32, index: u64, seed: u64) {
    write(v, f, index * PAGE as u64, &noise(seed));
    v.fsync(f, false).expect("fsync");
}

/// Random synced writes of one file by eight threads.
fn written_by_threads(device: &Arc<MemDevice>, options: &str, pages: u64) -> usize {
    let v = open_device(device, options);
    let f = file(&v, v.root(), "f");
    let order = shuffled(pages);
    std::thread::scope(|scope| {
        for part in order.chunks(order.len().div_ceil(8)) {
            let v = &v;
            scope.spawn(move || part.iter().for_each(|&index| write_page(v, f, index, index)));
        }
    });
    let expected: Vec<u8> = (0..pages).flat_map(noise).collect();
    assert!(content(&v, f) == expected);
    let found = extents(&v, f).len();
    v.close().expect("close");
    judge(device);
    found
}

#[test]
fn random_synced_writes_of_threads_make_one_extent() {
    for device in volumes() {
        assert_eq!(written_by_threads(&device, RESERVE, PAGES), 1);
    }
    let [plain, _] = volumes();
    assert!(written_by_threads(&plain, "placement=log", PAGES) > 100);
}

#[test]
fn what_is_at_home_is_overwritten_there() {
    for device in volumes() {
        let v = open_device(&device, &format!("{RESERVE},in_place=off,delta=off"));
        let (f, _) = noisy_file(&v, "f", PAGES);
        let before = extents(&v, f);
        assert_eq!(before.len(), 1);
        let nodes = v.stats().written.node;
        for index in [3, 700, 3, 1279] {
            write(&v, f, index * PAGE as u64, &noise(index + 5000));
            v.fsync(f, true).expect("fdatasync");
        }
        assert_eq!(extents(&v, f), before);
        assert_eq!(v.stats().written.node, nodes, "addresses are what they were");
        v.close().expect("close");
        judge(&device);
    }
}

/// Flushes of each of some fsyncs, with what is written before each.
fn flushes(v: &Volume, writes: impl Iterator<Item = u64>, f: u32) -> Vec<u64> {
    let each = |n: u64| {
        let before = v.stats().flushes;
        write_page(v, f, n, n + 9000);
        v.stats().flushes - before
    };
    writes.map(each).collect()
}

/// As in a log: what is new is in the seal of its fsync. Later it is overwritten, and an fsync that writes no
/// more than times needs no order.
#[test]
fn fsyncs_of_what_is_at_home_take_no_more_flushes_than_a_logs() {
    let order = shuffled(PAGES);
    let [log, reserved] = ["placement=log", RESERVE].map(|options| {
        let device = Arc::new(blank_delta(MIB));
        let v = open_device(&device, &format!("{options},in_place=off,delta=off"));
        let f = file(&v, v.root(), "f");
        truncate(&v, f, PAGES * PAGE as u64);
        v.sync().expect("sync");
        let [first, again] =
            [300, 200].map(|n| flushes(&v, order[..n].iter().copied(), f).iter().sum::<u64>());
        let extents = extents(&v, f);
        v.close().expect("close");
        judge(&device);
        (first, again, extents)
    });
    let (first, again, extents) = reserved;
    assert_eq!(first, log.0);
    assert_eq!(again, 200);
    let home = extents[0].addr - extents[0].page as u32;
    assert!(extents.iter().all(|e| e.addr == home + e.page as u32), "all are at home: {extents:?}");
}

/// A seal compares what it covers, so such a page goes beside its home once, and stays there.
#[test]
fn a_page_that_is_written_again_at_once_leaves_its_home_for_a_while() {
    let device = Arc::new(blank_delta(MIB));
    let v = open_device(&device, &format!("{RESERVE},in_place=off,delta=off"));
    let f = file(&v, v.root(), "f");
    truncate(&v, f, PAGES * PAGE as u64);
    v.sync().expect("sync");
    assert_eq!(flushes(&v, [7; 6].into_iter(), f), [1, 2, 1, 1, 1, 1]);
    let beside = extents(&v, f)[0].addr;
    v.checkpoint().expect("checkpoint");
    assert_eq!(flushes(&v, [7; 4].into_iter(), f), [2, 1, 1, 1], "what comes home stays");
    let home = extents(&v, f)[0].addr;
    assert!(home != beside && home / 512 == beside / 512, "{home} {beside}: in its section");
    v.close().expect("close");
    judge(&device);
}

/// A file that grows by less than a page overwrites its last one each time: that one stays at home.
#[test]
fn what_is_appended_in_small_pieces_stays_in_one_piece() {
    for device in volumes() {
        let v = open_device(&device, &format!("{RESERVE},in_place=off,delta=off"));
        let f = file(&v, v.root(), "f");
        let content = noise(1)[..3000].repeat(100);
        for (n, piece) in content.chunks(1500).enumerate() {
            write(&v, f, n as u64 * 1500, piece);
            v.fsync(f, false).expect("fsync");
        }
        assert_eq!(extents(&v, f).len(), 1);
        assert!(self::content(&v, f) == content);
        v.close().expect("close");
        judge(&device);
    }
}

#[test]
fn other_files_are_where_a_log_puts_them() {
    let device = Arc::new(blank(MIB, all_features()));
    let v = open_device(&device, "placement=reserve,reserve_files=pinned");
    let f = file(&v, v.root(), "f");
    for index in shuffled(64) {
        write_page(&v, f, index, index);
    }
    assert!(extents(&v, f).len() > 20);
}

/// Makes a file shorter, or longer.
fn truncate(v: &Volume, f: u32, size: u64) {
    v.setattr(f, &SetAttr { size: Some(size), ..SetAttr::default() }).expect("truncate");
}

#[test]
fn a_freed_home_waits_for_the_checkpoint() {
    for device in volumes() {
        let v = open_device(&device, &format!("{RESERVE},delta=off"));
        let (f, _) = noisy_file(&v, "f", 20);
        let homes = extents(&v, f);
        truncate(&v, f, 0);
        let new: Vec<u8> = (100..120).flat_map(noise).collect();
        write(&v, f, 0, &new);
        v.fsync(f, false).expect("fsync");
        let elsewhere = extents(&v, f);
        let touches = |e: &Extent| e.addr < homes[0].addr + 20 && homes[0].addr < e.addr + e.len as u32;
        assert!(!elsewhere.iter().any(touches), "{homes:?} {elsewhere:?}");
        v.checkpoint().expect("checkpoint");
        write(&v, f, 0, &new);
        v.fsync(f, false).expect("fsync");
        assert_eq!(extents(&v, f), elsewhere, "what lies together stays");
        truncate(&v, f, 0);
        write(&v, f, 0, &new);
        v.fsync(f, false).expect("fsync");
        assert_eq!(extents(&v, f), homes, "they came home");
        assert!(content(&v, f) == new);
        v.close().expect("close");
        judge(&device);
    }
}

#[test]
fn half_a_reserve_is_a_volume_like_any_and_is_taken_up_again() {
    for device in volumes() {
        let order = shuffled(PAGES);
        let half =
            |v: &Volume, f: u32, part: &[u64]| part.iter().for_each(|&index| write_page(v, f, index, index));
        let v = open_device(&device, RESERVE);
        let f = file(&v, v.root(), "f");
        truncate(&v, f, PAGES * PAGE as u64);
        half(&v, f, &order[..PAGES as usize / 2]);
        v.close().expect("close");
        judge(&device);
        let v = open_device(&device, RESERVE);
        let f = at(&v, "f").expect("the file").ino;
        half(&v, f, &order[PAGES as usize / 2..]);
        assert_eq!(extents(&v, f).len(), 1);
        assert!(content(&v, f) == (0..PAGES).flat_map(noise).collect::<Vec<u8>>());
        v.close().expect("close");
        judge(&device);
    }
}

#[test]
fn what_is_reserved_is_in_no_users_count() {
    let free = |options: &str| {
        let device = Arc::new(blank(MIB, all_features()));
        let v = open_device(&device, options);
        for n in 0..8 {
            let (f, _) = noisy_file(&v, &format!("f{n}"), 3);
            if n % 2 == 0 {
                truncate(&v, f, 0);
            }
        }
        // What was freed is free after it.
        v.checkpoint().expect("checkpoint");
        let (free, segments) = (v.space(), v.stats().free_segments);
        v.close().expect("close");
        judge(&device);
        (free, segments)
    };
    let (log, reserved) = (free("placement=log"), free(RESERVE));
    assert_eq!(reserved.0, log.0);
    assert!(reserved.1 + 4 >= log.1, "{} of {}: empty reserves are free", reserved.1, log.1);
}

#[test]
fn a_full_volume_takes_as_much_as_with_a_log() {
    let full = |options: &str| {
        let device = Arc::new(blank(160, all_features()));
        let v = open_device(&device, options);
        let mut pages = 0;
        'full: for n in 0.. {
            let f = file(&v, v.root(), &format!("f{n}"));
            for index in shuffled(300) {
                if v.write(f, index * PAGE as u64, &noise(index)).ok() != Some(PAGE) {
                    break 'full;
                }
                pages += 1;
            }
            v.fsync(f, false).expect("what was taken is durable");
        }
        v.sync().expect("sync");
        let f = at(&v, "f1").expect("a file").ino;
        for index in shuffled(300) {
            write_page(&v, f, index, index);
        }
        v.close().expect("close");
        judge(&device);
        pages
    };
    let (log, reserved) = (full("placement=log"), full(RESERVE));
    assert!(reserved * 100 >= log * 99, "{reserved} of {log} pages");
}

/// What the pages of the workload are told apart by, beside their version.
fn slot(index: u64) -> u8 {
    index.min(4) as u8 + 1
}

/// Overwrites, truncation, deltas, a checkpoint and a file that grows, each fsynced: what the marks say.
fn workload(v: &Volume, mark: &dyn Fn(u64)) {
    let f = at(v, "f").expect("the file").ino;
    let step = |n: u8, pages: &[u64]| {
        for &index in pages {
            write(v, f, index * PAGE as u64, &page(n + 16 * slot(index)));
        }
        v.fsync(f, n.is_multiple_of(2)).expect("fsync");
        mark(n.into());
    };
    step(1, &[0, 1, 2, 3]);
    step(2, &[2]);
    step(3, &[600, 0]);
    v.checkpoint().expect("checkpoint");
    step(4, &[1, 600]);
    truncate(v, f, 0);
    step(5, &[0, 1, 2, 3, 600]);
    step(6, &[0, 600]);
    v.checkpoint().expect("checkpoint");
    step(7, &[0, 1, 2, 3, 600]);
    step(8, &[3]);
}

/// After power loss every page is one version, whole, no older than the last fsync that had returned, and
/// page 0 is at the newest of them.
fn shows(v: &Volume, mark: u64) {
    const LAST: [(u64, [u8; 8]); 5] = [
        (0, [1, 1, 3, 3, 5, 6, 7, 7]),
        (1, [1, 1, 1, 4, 5, 5, 7, 7]),
        (2, [1, 2, 2, 2, 5, 5, 7, 7]),
        (3, [1, 1, 1, 1, 5, 5, 7, 8]),
        (600, [0, 0, 3, 4, 5, 6, 7, 7]),
    ];
    let f = at(v, "f").expect("the file").ino;
    let bytes = content(v, f);
    for (index, versions) in LAST {
        let Some(found) = bytes.get(index as usize * PAGE..(index as usize + 1) * PAGE) else {
            // A truncation that no fsync followed may be seen.
            continue;
        };
        let (found, at) = (version(found), mark as usize);
        assert!(found == 0 || found / 16 == slot(index), "page {index} is another's: {found:#x}");
        let found = found % 16;
        let least = at.checked_sub(1).map_or(0, |n| versions[n]);
        assert!(found >= least || (mark == 4 && found == 0), "page {index}: {found} after fsync {mark}");
    }
    if mark >= 1 && mark != 4 {
        assert!(bytes.len() >= 4 * PAGE, "{} bytes after fsync {mark}", bytes.len());
    }
}

#[test]
fn every_crash_shows_what_was_fsynced() {
    for device in [blank(MIB, all_features()), blank_delta(MIB)] {
        let device = Arc::new(device);
        let v = open_device(&device, RESERVE);
        file(&v, v.root(), "f");
        v.close().expect("close");
        for options in ["in_place=off", "in_place=force", "delta=off,in_place=fsync"] {
            crash(&device, &format!("{RESERVE},{options}"), workload, shows);
        }
    }
}

/// The same, while the volume fills up and sections are given back: what was at home is overwritten there.
#[test]
fn every_crash_shows_what_was_fsynced_while_reserves_are_given_back() {
    let device = Arc::new(blank(MIB, all_features()));
    let v = open_device(&device, RESERVE);
    file(&v, v.root(), "f");
    file(&v, v.root(), "large");
    v.close().expect("close");
    let filling = |v: &Volume, mark: &dyn Fn(u64)| {
        let large = at(v, "large").expect("the file").ino;
        workload(v, &|n| {
            mark(n);
            let homes = (n == 7).then(|| extents(v, at(v, "f").expect("the file").ino));
            if n == 2 || n == 7 {
                let free = v.space().free * PAGE as u64;
                let (percent, at) = if n == 2 { (60, 0) } else { (95, 1 << 30) };
                v.fallocate(large, FallocateMode::empty(), at, free * percent / 100).expect("room");
            }
            if let Some(homes) = homes {
                let f = self::at(v, "f").expect("the file").ino;
                write(v, f, 0, &page(7 + 16 * slot(0)));
                v.fsync(f, true).expect("fdatasync");
                assert_eq!(extents(v, f), homes, "no section is reserved any more");
            }
        });
    };
    crash(&device, &format!("{RESERVE},in_place=off"), filling, shows);
}

#[test]
fn after_a_crash_the_volume_is_sound_and_owners_are_known() {
    use medfs_device::crash::{CrashPlan, RecordingDevice};
    use medfs_testkit::images::FsckMedfs;
    use medfs_testkit::subject::Check;
    let device = Arc::new(blank(MIB, all_features()));
    let v = open_device(&device, RESERVE);
    file(&v, v.root(), "f");
    v.close().expect("close");
    let recorder = Arc::new(RecordingDevice::new(&device));
    let v = open_with(recorder.clone(), RESERVE, Arc::new(medfs::ManualClock::new(START)));
    workload(&v, &|mark| recorder.mark(mark));
    drop(v);
    let plan = CrashPlan { exhaustive: 8, samples: 4, seed: 3, ..CrashPlan::default() };
    for state in recorder.recording().states(&plan) {
        let device = Arc::new(state.device());
        let v = open_device(&device, RESERVE);
        let f = at(&v, "f").expect("the file").ino;
        write_page(&v, f, 2, 9);
        v.close().expect("close");
        FsckMedfs.check(device).unwrap_or_else(|e| panic!("{state:?}: {e}"));
    }
}

#[test]
fn a_base_of_a_delta_stays_where_it_is() {
    let device = Arc::new(blank_delta(MIB));
    let v = open_device(&device, RESERVE);
    let (f, mut expected) = noisy_file(&v, "f", 40);
    let homes = extents(&v, f);
    for n in 0..40 {
        patch(&v, f, &mut expected, n * PAGE + 100, b"a small change");
    }
    v.fsync(f, false).expect("fsync");
    assert!(v.stats().zones.deltas > 3, "{:?}", v.stats().zones);
    assert_eq!(extents(&v, f), homes);
    // Pages that are deltas are written as a whole: beside their bases, and over them once these are free.
    let mut whole = Vec::new();
    for round in 0..2 {
        whole = (200 + round * 50..240 + round * 50).flat_map(noise).collect();
        write(&v, f, 0, &whole);
        v.fsync(f, false).expect("fsync");
        assert!(content(&v, f) == whole);
        v.checkpoint().expect("checkpoint");
    }
    v.close().expect("close");
    judge(&device);
    let v = open_device(&device, RESERVE);
    assert!(content(&v, at(&v, "f").expect("the file").ino) == whole);
}

/// A delta makes the zone larger while pages are placed: what is in it then is no address.
#[test]
fn what_is_in_the_zone_is_no_address() {
    let device = Arc::new(blank_delta(MIB));
    let v = open_device(&device, RESERVE);
    for n in 0..40 {
        let f = file(&v, v.root(), &format!("f{n}"));
        let mut expected = vec![0; 12 * PAGE];
        for at in 0..12 {
            expected[at * PAGE..at * PAGE + 200].copy_from_slice(&noise(n * 100 + at as u64)[..200]);
        }
        expected.extend(noise(n));
        write(&v, f, 0, &expected);
        v.fsync(f, false).expect("fsync");
        assert!(content(&v, f) == expected);
    }
    assert!(v.stats().zones.deltas > 100, "{:?}", v.stats().zones);
    v.close().expect("close");
    judge(&device);
}

/// Pages become deltas, and then are written as a whole: until that is durable, a crash shows the deltas on
/// their bases.
#[test]
fn every_crash_finds_the_bases_of_deltas() {
    const FEW: usize = 6;
    let device = Arc::new(blank_delta(MIB));
    let v = open_device(&device, RESERVE);
    let (_, old) = noisy_file(&v, "f", FEW as u64);
    v.close().expect("close");
    let patched = {
        let mut patched = old.clone();
        (0..FEW).for_each(|n| patched[n * PAGE + 99..n * PAGE + 105].copy_from_slice(b"change"));
        patched
    };
    let new: Vec<u8> = (500..500 + FEW as u64).flat_map(noise).collect();
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let f = at(v, "f").expect("the file").ino;
        for (n, bytes) in (1..).zip([&patched, &new, &old]) {
            for (n, changed) in bytes.chunks(PAGE).enumerate() {
                write(v, f, (n * PAGE) as u64, changed);
            }
            v.fsync(f, false).expect("fsync");
            assert!(n != 1 || v.stats().zones.deltas == FEW as u64);
            mark(n);
        }
    };
    crash(&device, RESERVE, workload, |v, mark| {
        let found = content(v, at(v, "f").expect("the file").ino);
        for n in 0..FEW {
            let page = |all: &[u8]| all[n * PAGE..][..PAGE].to_vec();
            let allowed = [page(&old), page(&patched), page(&new), page(&old)];
            let is = page(&found);
            assert!(allowed[mark as usize..].contains(&is), "page {n} after fsync {mark}");
        }
    });
}

/// The sequence of Fig. 3: A and B are updated, C and D are written once. Returns the extents of A, B and C, and
/// whether C has a section.
fn fig3(options: &str, chosen: bool) -> ([usize; 3], bool) {
    let device = Arc::new(blank(MIB, all_features()));
    let v = open_device(&device, &format!("{options},in_place=off"));
    let [a, b, c, d] = ["A", "B", "C", "D"].map(|name| file(&v, v.root(), name));
    if chosen {
        [a, b].into_iter().for_each(|f| v.set_pinned(f, true).expect("it has no blocks"));
    }
    let blocks = [(a, 0), (a, 1), (b, 0), (b, 1), (c, 0), (a, 1), (b, 2), (a, 2), (b, 1), (d, 0), (d, 1)];
    for (n, (f, index)) in blocks.into_iter().enumerate() {
        write_page(&v, f, index, n as u64);
    }
    let found = [a, b, c].map(|f| extents(&v, f).len());
    let judged = medfs::ars::Judgement::of(&v, c).expect("a file").expect("it was written");
    v.close().expect("close");
    judge(&device);
    (found, !judged.reserved.is_empty())
}

/// ARS, Fig. 3: a log leaves A and B in pieces; reserving for all files takes a section for C too, which is
/// written once; reserving for some does not.
#[test]
fn reserving_for_some_files_keeps_them_whole_and_takes_nothing_for_others() {
    let (log, _) = fig3("placement=log", false);
    assert!(log[0] > 1 && log[1] > 1 && log[2] == 1, "{log:?}");
    assert_eq!(fig3(RESERVE, false), ([1, 1, 1], true));
    assert_eq!(fig3("placement=reserve,reserve_files=pinned", true), ([1, 1, 1], false));
}

/// `fallocate` takes the sections of its range, beside each other, whatever is written first.
#[test]
fn room_that_is_allocated_has_its_sections() {
    for device in volumes() {
        let v = open_device(&device, &format!("{RESERVE},delta=off"));
        let [f, g] = ["f", "g"].map(|name| file(&v, v.root(), name));
        v.fallocate(f, FallocateMode::empty(), 0, PAGES * PAGE as u64).expect("room");
        for index in [1279, 600, 3] {
            write_page(&v, g, index, index);
            write_page(&v, f, index, index);
        }
        let found = extents(&v, f);
        let start = found[0].addr - found[0].page as u32;
        assert!(found.iter().all(|e| e.addr == start + e.page as u32), "{found:?}");
        v.close().expect("close");
        judge(&device);
    }
}

/// Pages of fio's file, and a volume of which it is a part as it is of a card.
const FIO_PAGES: u64 = 32_768;
const FIO_MIB: u64 = 512;

/// The extents of a file that fio's eight jobs write on a volume that is 84% full, where it was reserved before.
fn at_84_percent(device: &Arc<MemDevice>) -> usize {
    let v = open_device(device, RESERVE);
    let f = file(&v, v.root(), "f");
    v.set_pinned(f, true).expect("it has no blocks");
    v.fallocate(f, FallocateMode::empty(), 0, FIO_PAGES * PAGE as u64).expect("room");
    let filler = file(&v, v.root(), "filler");
    let used = || {
        let (free, valid) = (v.space().free, v.stats().valid_blocks);
        valid * 100 / (free + valid)
    };
    for n in 0.. {
        if used() >= 84 {
            break;
        }
        write(&v, filler, n << 20, &noise(n).repeat(256));
    }
    v.sync().expect("sync");
    let order = shuffled(FIO_PAGES);
    std::thread::scope(|scope| {
        for part in order.chunks(order.len().div_ceil(8)) {
            let v = &v;
            scope.spawn(move || part.iter().for_each(|&index| write_page(v, f, index, index)));
        }
    });
    let found = extents(&v, f).len();
    v.close().expect("close");
    judge(device);
    found
}

#[test]
#[ignore = "a measurement: cargo test -p medfs --test engine -- --ignored --nocapture reserve::fio_frag_new"]
fn fio_frag_new() {
    for deltas in [false, true] {
        let device = || Arc::new(if deltas { blank_delta(FIO_MIB) } else { blank(FIO_MIB, all_features()) });
        for options in ["placement=log", RESERVE] {
            let started = std::time::Instant::now();
            let extents = written_by_threads(&device(), options, FIO_PAGES);
            println!("deltas {deltas}, {options}: {extents} extents, {:?}", started.elapsed());
            assert!(options != RESERVE || extents == 1);
        }
        let extents = at_84_percent(&device());
        println!("deltas {deltas}, 84% full: {extents} extents");
        assert!(extents <= 3);
    }
}
