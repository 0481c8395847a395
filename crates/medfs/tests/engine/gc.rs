//! Cleaning: a volume that is full, overwritten at random and half emptied keeps what was written, and keeps going.

use crate::common::*;
use medfs::Files as _;
use medfs::{Ino, ManualClock, Volume};
use medfs_device::MemDevice;
use medfs_format::superblock::Feature;
use medfs_mkfs::{MkfsOptions, format_volume};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

const FILE_PAGES: u64 = 512;
const ENOSPC: i32 = 28;

/// A page that says where it belongs and which version it is.
fn stamped(ino: Ino, index: u64, version: u64) -> Vec<u8> {
    let words =
        [u64::from(ino), index, version, u64::from(ino) ^ index.rotate_left(20) ^ version.rotate_left(40)];
    words.map(u64::to_le_bytes).concat().repeat(PAGE / size_of_val(&words))
}

/// What was written: file name to its inode and the version of each page.
type Files = BTreeMap<String, (Ino, BTreeMap<u64, u64>)>;

fn verify(v: &Volume, files: &Files) {
    for (name, (_, pages)) in files {
        let ino = at(v, name).unwrap_or_else(|| panic!("{name} is missing")).ino;
        let mut buf = vec![0; PAGE];
        for (&index, &version) in pages {
            assert_eq!(v.read(ino, index * PAGE as u64, &mut buf).unwrap(), PAGE, "{name} page {index}");
            assert!(buf == stamped(ino, index, version), "{name} page {index} is not version {version}");
        }
    }
}

fn volume_of(mib: u64, features: Feature, segs_per_sec: u32) -> Arc<MemDevice> {
    let device = MemDevice::new(mib * 256);
    let options =
        MkfsOptions { features, segs_per_sec, discard: false, ..MkfsOptions::new([9; 16], START.secs) };
    format_volume(&device, &options).expect("a volume of this size can be made");
    Arc::new(device)
}

/// Writes files until nothing fits any more.
fn fill(v: &Volume, files: &mut Files, from: u64) {
    for n in from.. {
        let name = format!("file{n}");
        let ino = match v.create(v.root(), name.as_bytes(), &new(medfs::FileKind::Regular)) {
            Ok(attr) => attr.ino,
            Err(e) if e.errno() == ENOSPC => return,
            Err(e) => panic!("{name}: {e}"),
        };
        let (_, pages) = files.entry(name).or_insert((ino, BTreeMap::new()));
        for index in 0..FILE_PAGES {
            match v.write(ino, index * PAGE as u64, &stamped(ino, index, 0)) {
                Ok(PAGE) => pages.insert(index, 0),
                Err(e) if e.errno() == ENOSPC => return,
                other => panic!("file{n} page {index}: {other:?}"),
            };
        }
    }
}

/// Overwrites pages at random; every so often a file is fsynced.
fn overwrite(v: &Volume, files: &mut Files, random: &mut Random, count: u64) {
    let names: Vec<String> = files.iter().filter(|(_, f)| !f.1.is_empty()).map(|(n, _)| n.clone()).collect();
    for version in 1..=count {
        let (ino, pages) = files.get_mut(&names[random.below(names.len() as u64) as usize]).unwrap();
        let index = random.below(pages.len() as u64);
        write(v, *ino, index * PAGE as u64, &stamped(*ino, index, version));
        pages.insert(index, version);
        if version % 16 == 0 {
            v.fsync(*ino, false).unwrap();
        }
    }
}

/// Opens the volume anew: everything is there, and both checkers are content.
fn still_there(device: &Arc<MemDevice>, options: &str, files: &Files) {
    let v = open_device(device, options);
    verify(&v, files);
    v.close().unwrap();
    judge(device);
}

fn life(device: Arc<MemDevice>, options: &str, seed: u64) {
    eprintln!("seed {seed}, {options:?}");
    let mut random = Random(seed);
    let v = open_device(&device, options);
    let mut files = Files::new();
    fill(&v, &mut files, 0);
    v.sync().expect("what was accepted is written");
    verify(&v, &files);
    overwrite(&v, &mut files, &mut random, 4000);
    let names: Vec<String> = files.keys().cloned().collect();
    for name in names.iter().step_by(2) {
        v.unlink(v.root(), name.as_bytes()).unwrap();
        v.release(files.remove(name).unwrap().0, 1);
    }
    overwrite(&v, &mut files, &mut random, 20_000);
    fill(&v, &mut files, 1000);
    overwrite(&v, &mut files, &mut random, 2000);
    verify(&v, &files);
    // What is not synced may be lost in a crash; what is may not.
    v.sync().unwrap();
    let stats = v.stats();
    eprintln!(
        "cleaned {} sections ({} for space), {} checkpoints, written {:?}",
        stats.gc_sections, stats.gc_foreground, stats.checkpoints, stats.written
    );
    drop(v);
    still_there(&device, options, &files);
}

#[test]
fn a_full_volume_lives_on() {
    life(volume_of(64, Feature::empty(), 1), "in_place=off,cache=8M", 1);
    life(volume_of(64, all_features(), 1), "cache=16M", 2);
}

#[test]
fn a_full_volume_of_large_sections_lives_on() {
    life(volume_of(256, all_features(), 4), "in_place=off,cache=16M", 3);
}

#[test]
fn background_cleaning_gathers_free_space() {
    for options in ["in_place=off,victim=greedy", "in_place=off,victim=cost-benefit"] {
        let device = volume_of(128, all_features(), 1);
        let clock = Arc::new(ManualClock::new(START));
        let v = open_with(device.clone(), options, clock.clone());
        let mut files = Files::new();
        for n in 0..24 {
            let name = format!("file{n}");
            let ino = file(&v, v.root(), &name);
            let pages = (0..FILE_PAGES).map(|i| (i, 0)).collect();
            (0..FILE_PAGES).for_each(|i| write(&v, ino, i * PAGE as u64, &stamped(ino, i, 0)));
            files.insert(name, (ino, pages));
        }
        v.sync().unwrap();
        clock.advance(Duration::from_secs(100));
        // Three of four pages of every file go.
        for (ino, pages) in files.values_mut() {
            for index in (0..FILE_PAGES).filter(|i| i % 4 != 0) {
                let mode = medfs::FallocateMode::PUNCH_HOLE | medfs::FallocateMode::KEEP_SIZE;
                v.fallocate(*ino, mode, index * PAGE as u64, PAGE as u64).unwrap();
                pages.remove(&index);
            }
        }
        v.sync().unwrap();
        let before = v.stats();
        for _ in 0..200 {
            clock.advance(Duration::from_secs(1));
            v.background().unwrap();
        }
        v.sync().unwrap();
        let after = v.stats();
        eprintln!("{options}: {} free segments, then {}", before.free_segments, after.free_segments);
        assert!(after.free_segments > before.free_segments + 5, "{options}");
        assert!(after.written.gc > before.written.gc && after.gc_foreground == 0);
        verify(&v, &files);
        drop(v);
        still_there(&device, options, &files);
    }
}

/// Cleaning, cut by a crash anywhere, loses nothing that was synced.
#[test]
fn a_crash_while_cleaning_loses_nothing() {
    use medfs_device::crash::{CrashPlan, RecordingDevice};
    let device = volume_of(64, all_features(), 1);
    let v = open_device(&device, "in_place=off");
    let mut files = Files::new();
    fill(&v, &mut files, 0);
    let names: Vec<String> = files.keys().cloned().collect();
    v.unlink(v.root(), names[0].as_bytes()).unwrap();
    v.release(files.remove(&names[0]).unwrap().0, 1);
    v.sync().unwrap();
    drop(v);
    let recorder = Arc::new(RecordingDevice::new(&device));
    let v = open_with(recorder.clone(), "in_place=off", Arc::new(ManualClock::new(START)));
    // New files and their cleaning do not touch what is there.
    for n in 0..600u64 {
        let ino = file(&v, v.root(), &format!("n{n}"));
        write(&v, ino, 0, &stamped(ino, 0, n));
        v.fsync(ino, false).unwrap();
        v.unlink(v.root(), format!("n{n}").as_bytes()).unwrap();
        v.release(ino, 1);
    }
    assert!(v.stats().gc_sections > 0, "nothing was cleaned");
    drop(v);
    let plan = CrashPlan { exhaustive: 4, samples: 1, seed: 3, ..CrashPlan::default() };
    for (i, state) in recorder.recording().states(&plan).enumerate().filter(|(i, _)| i % 61 == 0) {
        let again = Arc::new(state.device());
        let v = open_device(&again, "in_place=off");
        let looked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| verify(&v, &files)));
        if let Err(e) = looked {
            eprintln!("state {i}: {state:?}");
            std::panic::resume_unwind(e);
        }
    }
}
