//! Sectors that cannot be read under a running volume: what is not on them goes on, and is committed.

use crate::common::*;
use medfs::{FileFlags, Files, Hotness, ManualClock, Volume};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, MemDevice};
use medfs_format::Block;
use medfs_mkfs::{MkfsOptions, format_volume};
use std::sync::Arc;
use std::time::Duration;

type Faulty = Arc<FaultDevice<MemDevice>>;

/// Addresses of the blocks that hold this.
fn blocks_with(device: &MemDevice, content: &[u8]) -> Vec<u64> {
    let mut block = Block::boxed();
    let holds = |addr: &u64| {
        device.read(*addr, &mut [&mut *block]).expect("memory reads");
        block.0[..] == *content
    };
    (0..device.block_count()).filter(holds).collect()
}

/// From now on the only block that holds this cannot be read.
fn lose(faulty: &Faulty, content: &[u8]) {
    let found = blocks_with(faulty.inner(), content);
    assert_eq!(found.len(), 1, "{found:?}");
    faulty.arm(Fault::on(Kind::Read, Effect::IO).within(found[0]..found[0] + 1));
}

fn faulty(device: &MemDevice) -> Faulty {
    Arc::new(FaultDevice::new(device.snapshot(), 1))
}

fn opened(faulty: &Faulty, options: &str) -> Volume {
    open_with(faulty.clone(), options, Arc::new(ManualClock::new(START)))
}

/// What the medium holds, read by a volume on a device that reads everything.
fn reopened(v: Volume, faulty: &Faulty, options: &str) -> (Arc<MemDevice>, Volume) {
    drop(v);
    let device = Arc::new(faulty.inner().snapshot());
    let v = open_device(&device, options);
    (device, v)
}

fn ino(v: &Volume, name: &str) -> u32 {
    at(v, name).unwrap_or_else(|| panic!("{name} is gone")).ino
}

const DELTA_OPTIONS: [&str; 5] = [
    "delta=off",
    "delta=inline",
    "delta=compact,compact_files=all",
    "delta=full,compact_files=all",
    "compress=fpc:lz4,compact_files=all",
];

#[test]
fn a_page_whose_base_cannot_be_read_is_written_whole() {
    for options in DELTA_OPTIONS {
        let device = Arc::new(blank_delta(64));
        {
            let v = open_device(&device, options);
            noisy_file(&v, "damaged", 4);
            noisy_file(&v, "other", 2);
            v.close().expect("close");
        }
        let faulty = faulty(&device);
        let v = opened(&faulty, options);
        lose(&faulty, &{
            // Page 2 of one file only: the other has two pages.
            noise(2)
        });
        let (damaged, other) = (ino(&v, "damaged"), ino(&v, "other"));
        write(&v, damaged, 0, &[9; 4 * PAGE]);
        v.fsync(damaged, false).unwrap_or_else(|e| panic!("{options}: fsync: {e}"));
        write(&v, other, 0, &[2; 2 * PAGE]);
        let made = file(&v, v.root(), "made since");
        write(&v, made, 0, &[4; 2 * PAGE]);
        v.sync().unwrap_or_else(|e| panic!("{options}: sync: {e}"));
        v.close().unwrap_or_else(|e| panic!("{options}: close: {e}"));
        let (device, v) = reopened(v, &faulty, options);
        for (name, expected) in
            [("damaged", vec![9; 4 * PAGE]), ("other", vec![2; 2 * PAGE]), ("made since", vec![4; 2 * PAGE])]
        {
            assert!(content(&v, ino(&v, name)) == expected, "{options}: {name}");
        }
        v.close().expect("close");
        medfs_testkit::subject::Check::check(&medfs_testkit::images::FsckMedfs, device).expect("fsck");
    }
}

/// Text that compresses well, a page of it with its number.
fn lines(page: usize) -> Vec<u8> {
    format!("line of page {page:06}, which compresses; ")
        .into_bytes()
        .into_iter()
        .cycle()
        .take(PAGE)
        .collect()
}

#[test]
fn one_file_that_cannot_be_written_keeps_no_other_from_sync_and_close() {
    for unmount in [false, true] {
        let options = "compress=lz4,delta=full";
        let device = Arc::new(blank_delta_and_compression(64));
        {
            let v = open_device(&device, options);
            let f = file(&v, v.root(), "compressed");
            v.set_flags(f, FileFlags::COMPR).expect("flags");
            let text: Vec<u8> = (0..4).flat_map(lines).collect();
            write(&v, f, 0, &text);
            v.close().expect("close");
        }
        let faulty = faulty(&device);
        let v = opened(&faulty, options);
        let f = ino(&v, "compressed");
        assert_eq!(content(&v, f).len(), 4 * PAGE);
        write(&v, f, 5, b"a change");
        write(&v, f, PAGE as u64 + 5, &noise(7)[..2000]);
        let a = file(&v, v.root(), "a");
        write(&v, a, 0, &noise(1));
        let z = file(&v, v.root(), "z");
        write(&v, z, 0, &noise(2));
        // Its cluster holds what is neither in memory nor to be told from what is.
        let cluster = {
            let mut block = Block::boxed();
            let holds = |addr: &u64| {
                faulty.inner().read(*addr, &mut [&mut *block]).expect("memory reads");
                find(&block.0, b"line of page").is_some()
            };
            (0..faulty.inner().block_count()).find(holds).expect("a cluster")
        };
        faulty.arm(Fault::on(Kind::Read, Effect::IO).within(cluster..cluster + 1));
        let ended = if unmount { v.close() } else { v.sync() };
        assert_eq!(ended.expect_err("the error is told").errno(), 5);
        assert_eq!(v.is_read_only(), unmount, "{:?}", v.stats().failure);
        let (device, v) = reopened(v, &faulty, options);
        assert!(content(&v, ino(&v, "a")) == noise(1) && content(&v, ino(&v, "z")) == noise(2));
        v.close().expect("close");
        medfs_testkit::subject::Check::check(&medfs_testkit::images::FsckMedfs, device).expect("fsck");
    }
}

/// A database whose log's frames are made from its blocks: page `n` of the log's frames is page `n` of the database.
fn database_and_log(v: &Volume, frames: usize) -> (u32, u32) {
    let (db, pages) = noisy_file(v, "x.db", 20);
    let log = file(v, v.root(), "x.db-wal");
    let words = [0x377f_0682u32, 3_007_000, 4096, 0, 1, 2, 3, 4];
    let mut end = 0;
    let mut append = |bytes: &[u8]| {
        write(v, log, end, bytes);
        end += bytes.len() as u64;
        v.fsync(log, true).expect("fsync");
    };
    append(&words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>());
    v.sync().expect("sync");
    for n in [0].into_iter().chain(0..frames) {
        let mut frame = vec![7; 24];
        frame[..4].copy_from_slice(&(n as u32 + 1).to_be_bytes());
        frame.extend(&pages[n * PAGE..(n + 1) * PAGE]);
        frame[124..130].copy_from_slice(b"change");
        append(&frame);
    }
    assert!(v.stats().deltas.repeated > 5, "{:?}", v.stats().deltas);
    (db, log)
}

#[test]
fn a_source_that_cannot_be_read_keeps_no_file_from_being_written() {
    for (options, by_checkpoint) in [("", false), ("delta=inline,cross_file_deltas=on", false), ("", true)] {
        let device = Arc::new(blank_delta(64));
        {
            let v = open_device(&device, options);
            database_and_log(&v, 10);
            v.close().expect("close");
        }
        let faulty = faulty(&device);
        let v = opened(&faulty, options);
        lose(&faulty, &noise(4));
        let db = ino(&v, "x.db");
        let new: Vec<u8> = (0..20).flat_map(|n| noise(1000 + n)).collect();
        write(&v, db, 0, &new);
        if !by_checkpoint {
            v.fsync(db, true).unwrap_or_else(|e| panic!("{options}: fsync: {e}"));
        }
        let other = file(&v, v.root(), "other");
        write(&v, other, 0, &noise(3000));
        v.sync().unwrap_or_else(|e| panic!("{options}: sync: {e}"));
        v.close().unwrap_or_else(|e| panic!("{options}: close: {e}"));
        let (_, v) = reopened(v, &faulty, options);
        assert!(content(&v, ino(&v, "x.db")) == new, "{options}");
        assert!(content(&v, ino(&v, "other")) == noise(3000), "{options}");
        // What was made from the block is lost, and is an error; the rest of the log is there.
        let log = ino(&v, "x.db-wal");
        let mut page = [0; PAGE];
        let read: Vec<bool> = (0..10).map(|n| v.read(log, n * PAGE as u64, &mut page).is_ok()).collect();
        assert!(read.iter().filter(|ok| !**ok).count() <= 2, "{options}: {read:?}");
        v.close().expect("close");
    }
}

#[test]
fn restoring_passes_by_a_file_that_cannot_be_read() {
    let device = Arc::new(blank_delta(64));
    let clock = Arc::new(ManualClock::new(START));
    let pages = 10;
    {
        let v = open_device(&device, "");
        for name in ["bad", "good"] {
            let f = file(&v, v.root(), name);
            let seed = if name == "bad" { 0 } else { 100 };
            let mut expected: Vec<u8> = (0..pages).flat_map(|n| noise(seed + n)).collect();
            write(&v, f, 0, &expected);
            v.sync().expect("sync");
            for n in 0..pages as usize {
                patch(&v, f, &mut expected, n * PAGE + 7 * n, b"small");
            }
            v.fsync(f, false).expect("fsync");
        }
        v.close().expect("close");
    }
    let faulty = faulty(&device);
    let v = open_with(faulty.clone(), "", clock.clone());
    lose(&faulty, &noise(5));
    let (bad, good) = (ino(&v, "bad"), ino(&v, "good"));
    for f in [bad, good] {
        for n in 0..40 {
            v.read(f, n % 3 * PAGE as u64, &mut [0; 100]).expect("read");
        }
        assert_eq!(v.hotness(f), Hotness::ReadHot);
    }
    for _ in 0..8 {
        clock.advance(Duration::from_secs(60));
        v.background().expect("a file that cannot be restored is nobody else's error");
        v.idle_work(1000).expect("a file that cannot be restored is nobody else's error");
    }
    assert_eq!(v.stats().restored.files, 1, "{:?}", v.stats().restored);
    assert!(v.read(bad, 6 * PAGE as u64, &mut [0; 100]).is_ok());
    v.close().expect("close");
}

#[test]
fn a_file_whose_compact_page_cannot_be_read_can_be_written() {
    let options = "delta=compact,compact_files=all";
    let device = Arc::new(blank_delta(64));
    let pages = 12;
    {
        let v = open_device(&device, options);
        let (f, mut expected) = noisy_file(&v, "f", pages);
        for n in 0..6 {
            patch(&v, f, &mut expected, n * PAGE + 7 * n, b"small");
        }
        v.fsync(f, false).expect("fsync");
        assert!(v.stats().deltas.compact_pages > 0);
        v.close().expect("close");
    }
    let faulty = faulty(&device);
    let v = opened(&faulty, options);
    let f = ino(&v, "f");
    let compact = {
        let mut block = Block::boxed();
        let is_compact = |addr: &u64| {
            device.read(*addr, &mut [&mut *block]).expect("memory reads");
            medfs_format::delta::compact_records(&block, f).is_ok_and(|(_, records)| !records.is_empty())
        };
        (0..device.block_count()).filter(is_compact).collect::<Vec<u64>>()
    };
    assert_eq!(compact.len(), 1, "{compact:?}");
    faulty.arm(Fault::on(Kind::Read, Effect::IO).within(compact[0]..compact[0] + 1));
    let new = [noise(500), noise(501)].concat();
    // One page that had a delta, and one that had none; twice, as the second time they are known.
    for _ in 0..2 {
        write(&v, f, 5 * PAGE as u64, &new);
        v.fsync(f, false).expect("fsync");
    }
    v.sync().expect("sync");
    let read = |v: &Volume, page: u64| {
        let mut found = vec![0; PAGE];
        v.read(f, page * PAGE as u64, &mut found).map(|_| found)
    };
    let judge = |v: &Volume| {
        for (page, expected) in [(5, noise(500)), (6, noise(501))] {
            assert!(read(v, page).expect("a page that was written") == expected, "page {page}");
        }
    };
    judge(&v);
    for page in [0, 11] {
        assert_eq!(read(&v, page).expect_err("what it was is not known").errno(), 5);
    }
    v.close().expect("close");
    let (device, v) = reopened(v, &faulty, options);
    judge(&v);
    // The compact page can be read again: what it says of the others counts.
    assert!(read(&v, 0).expect("page 0")[..5] == *b"small" && read(&v, 11).expect("page 11") == noise(11));
    v.close().expect("close");
    medfs_testkit::subject::Check::check(&medfs_testkit::images::FsckMedfs, device).expect("fsck");
}

/// A volume of sections of four segments, full of files of 256 pages of noise.
fn full_volume(options: &str) -> (Arc<MemDevice>, Vec<String>) {
    let device = Arc::new(MemDevice::new(256 * 256));
    let layout = MkfsOptions {
        features: all_features(),
        segs_per_sec: 4,
        discard: false,
        ..MkfsOptions::new([9; 16], START.secs)
    };
    format_volume(&device, &layout).expect("a volume");
    let v = open_device(&device, options);
    let mut names = Vec::new();
    'fill: for n in 0.. {
        let name = format!("f{n}");
        let Ok(made) = v.create(v.root(), name.as_bytes(), &new(medfs::FileKind::Regular)) else { break };
        for p in 0..256 {
            if v.write(made.ino, p * PAGE as u64, &noise(1_000_000 + n * 1000 + p)).is_err() {
                break 'fill;
            }
        }
        names.push(name);
    }
    v.sync().expect("sync");
    v.close().expect("close");
    (device, names)
}

#[test]
fn the_cleaner_leaves_a_section_that_it_cannot_read() {
    let options = "in_place=off,cache=16M";
    let (device, names) = full_volume(options);
    let damaged = names.len() / 2;
    let faulty = faulty(&device);
    let v = opened(&faulty, options);
    let inodes: Vec<u32> = names.iter().map(|name| ino(&v, name)).collect();
    lose(&faulty, &noise(1_000_000 + damaged as u64 * 1000 + 100));
    let mut random = Random(77);
    for n in 0..12_000u64 {
        let which = random.below(inodes.len() as u64) as usize;
        if which == damaged {
            continue;
        }
        let page = random.below(256);
        v.write(inodes[which], page * PAGE as u64, &noise(n)).unwrap_or_else(|e| panic!("write {n}: {e}"));
        if n % 16 == 0 {
            v.fsync(inodes[which], false).unwrap_or_else(|e| panic!("fsync at {n}: {e}"));
        }
    }
    let stats = v.stats();
    assert!(faulty.hits() > 0 && stats.gc_foreground > 10, "{} hits, {stats:?}", faulty.hits());
    assert!(faulty.hits() < 20, "a section that cannot be read is remembered: {} hits", faulty.hits());
    for name in &names {
        v.unlink(v.root(), name.as_bytes()).unwrap_or_else(|e| panic!("unlink {name}: {e}"));
    }
    v.sync().expect("sync");
    v.close().expect("close");
}
