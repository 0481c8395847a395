//! Want of room inside the engine: what was acknowledged stays writable, and a mount always succeeds (P10).

use crate::common::*;
use medfs::{FallocateMode, Files, ManualClock, MountOptions, SetAttr, Volume};
use medfs_device::{BlockDevice, MemDevice};
use medfs_testkit::images::FsckMedfs;
use medfs_testkit::subject::Check;
use std::sync::Arc;

fn try_open(device: Arc<dyn BlockDevice>, options: &str) -> medfs::Result<Volume> {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options");
    Volume::open(device, parsed, Arc::new(ManualClock::new(START)))
}

/// A file that takes all the room there is; its size.
fn fill(v: &Volume, name: &str, byte: u8) -> (u32, u64) {
    let f = file(v, v.root(), name);
    let mut size = 0;
    while let Ok(len) = v.write(f, size, &vec![byte; 64 * PAGE]) {
        size += len as u64;
    }
    (f, size)
}

/// Opens a copy of the device as power loss leaves it.
fn after_power_loss(dev: &MemDevice) -> Volume {
    let copy = Arc::new(dev.snapshot());
    let v = try_open(copy.clone(), "").expect("opens after power loss");
    FsckMedfs.check(copy).expect("nothing to find");
    v
}

/// Pages of a file that hold nothing but this byte.
fn pages_of(v: &Volume, name: &str, byte: u8) -> usize {
    let content = content(v, at(v, name).expect("there").ino);
    content.chunks(PAGE).filter(|page| page.iter().all(|b| *b == byte)).count()
}

#[test]
fn a_checkpoint_never_records_a_log_that_is_full() {
    let dev = Arc::new(blank(100, all_features()));
    let v = try_open(dev.clone(), "in_place=off,cache=256M").unwrap();
    let (f, size) = fill(&v, "f", 1);
    v.sync().unwrap();
    let mut written = 0;
    while written < size {
        written += v.write(f, written, &vec![2; 64 * PAGE]).unwrap() as u64;
    }
    v.fsync(f, false).unwrap();
    for n in 0..3 {
        v.setattr(f, &SetAttr { perm: Some(0o600 + n), ..SetAttr::default() }).unwrap();
        v.sync().unwrap();
        let again = after_power_loss(&dev);
        assert_eq!(at(&again, "f").unwrap().perm, 0o600 + n);
        assert_eq!(pages_of(&again, "f", 2) as u64, size / PAGE as u64);
    }
    v.close().unwrap();
}

#[test]
fn what_was_fsynced_in_the_room_of_removed_files_is_rolled_forward() {
    let dev = Arc::new(blank(64, all_features()));
    let v = open_device(&dev, "");
    let old = file(&v, v.root(), "old");
    write(&v, old, 0, &vec![3; 700 * PAGE]);
    let big = file(&v, v.root(), "big");
    let room = v.space().free - 40;
    v.fallocate(big, FallocateMode::empty(), 0, room * PAGE as u64).unwrap();
    v.sync().unwrap();
    v.release(old, 1);
    v.unlink(v.root(), b"old").unwrap();
    let new = file(&v, v.root(), "new");
    write(&v, new, 0, &vec![7; 300 * PAGE]);
    v.fsync(new, false).unwrap();
    drop(v);
    assert_eq!(pages_of(&after_power_loss(&dev), "new", 7), 300);
}

#[test]
fn an_atomic_write_without_room_is_refused_as_it_is_written_and_leaves_nothing() {
    for mib in [64, 100, 128] {
        let dev = Arc::new(blank(mib, all_features()));
        let v = open_device(&dev, "");
        let (f, size) = fill(&v, "f", 1);
        let pages = size as usize / PAGE;
        v.sync().unwrap();
        let before = (v.space().free, v.getattr(f).unwrap().blocks);
        v.atomic_start(f).unwrap();
        let refused = v.write(f, 0, &vec![2; size as usize]).unwrap_err();
        assert_eq!(refused.errno(), 28, "{refused}");
        v.atomic_abort(f).unwrap();
        assert_eq!((v.space().free, v.getattr(f).unwrap().blocks), before);
        assert_eq!(pages_of(&v, "f", 1), pages);
        // Where there is room for it, a commit succeeds.
        v.setattr(f, &SetAttr { size: Some(size / 2), ..SetAttr::default() }).unwrap();
        v.atomic_start(f).unwrap();
        write(&v, f, 0, &vec![2; size as usize / 4]);
        v.atomic_commit(f).unwrap();
        let again = after_power_loss(&dev);
        assert_eq!(pages_of(&again, "f", 2), pages / 4);
    }
}

/// Pages in holes, and behind the end: a checkpoint takes none of their room along.
#[test]
fn an_atomic_write_that_power_loss_ends_keeps_no_room() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, "");
    let f = file(&v, v.root(), "file");
    write(&v, f, 0, &noise(1));
    v.setattr(f, &SetAttr { size: Some(100 * PAGE as u64), ..SetAttr::default() }).expect("grows");
    v.sync().expect("sync");
    let before = v.getattr(f).expect("attributes").blocks;
    let free = v.statfs().expect("counts").free;
    v.atomic_start(f).expect("start");
    for page in [10, 11, 50, 200] {
        write(&v, f, page * PAGE as u64, &noise(page));
    }
    v.sync().expect("sync");
    let crashed = after_power_loss(&device);
    let after = crashed.getattr(at(&crashed, "file").expect("the file").ino).expect("attributes");
    assert_eq!((after.blocks, after.size), (before, 100 * PAGE as u64));
    // What is reserved meanwhile in such a hole stays when the atomic write is given up.
    v.fallocate(f, FallocateMode::KEEP_SIZE, 10 * PAGE as u64, 2 * PAGE as u64).expect("reserved");
    v.atomic_abort(f).expect("abort");
    assert_eq!(v.getattr(f).expect("attributes").blocks, before + 2 * 8);
    assert_eq!(v.statfs().expect("counts").free, free - 2);
    v.atomic_start(f).expect("start");
    [11, 12].into_iter().for_each(|page| write(&v, f, page * PAGE as u64, &noise(page)));
    v.atomic_commit(f).expect("commit");
    assert_eq!(v.getattr(f).expect("attributes").blocks, before + 3 * 8);
    assert_eq!(content(&v, f)[11 * PAGE..12 * PAGE], noise(11)[..]);
    v.close().expect("close");
    drop(v);
    judge(&device);
}

#[test]
fn a_large_atomic_write_is_committed_or_refused_as_a_whole() {
    let dev = Arc::new(blank(100, all_features()));
    let v = open_device(&dev, "cache=256M");
    let f = file(&v, v.root(), "f");
    let size = v.space().free / 2 / 64 * 64 * PAGE as u64 - 64 * PAGE as u64;
    for at in (0..size).step_by(64 * PAGE) {
        write(&v, f, at, &vec![1; 64 * PAGE]);
    }
    v.sync().unwrap();
    v.atomic_start(f).unwrap();
    for at in (0..size).step_by(64 * PAGE) {
        write(&v, f, at, &vec![2; 64 * PAGE]);
    }
    let committed = v.atomic_commit(f);
    let new = if committed.is_ok() { 2 } else { 1 };
    assert_eq!(pages_of(&after_power_loss(&dev), "f", new) as u64, size / PAGE as u64, "{committed:?}");
    v.sync().unwrap();
    v.close().unwrap();
}

#[test]
fn what_is_shown_as_available_can_be_reserved_and_more_takes_nothing() {
    for mib in [64, 256] {
        let dev = Arc::new(blank(mib, all_features()));
        let v = open_device(&dev, "");
        let f = file(&v, v.root(), "f");
        write(&v, f, 0, &vec![1; 3 * PAGE]);
        let before = (v.space(), v.getattr(f).unwrap());
        for len in [1 << 40, (before.0.free + 4) * PAGE as u64] {
            let refused = v.fallocate(f, FallocateMode::empty(), 0, len).unwrap_err();
            assert_eq!(refused.errno(), 28, "{refused}");
            let now = v.getattr(f).unwrap();
            assert_eq!((v.space(), now.size, now.blocks), (before.0, before.1.size, before.1.blocks));
        }
        let available = v.space().available;
        v.fallocate(f, FallocateMode::empty(), 3 * PAGE as u64, available * PAGE as u64).unwrap();
        v.sync().unwrap();
        assert_eq!(at(&after_power_loss(&dev), "f").unwrap().size, (available + 3) * PAGE as u64);
        v.close().unwrap();
    }
}

#[test]
fn a_write_that_is_refused_takes_no_room() {
    let dev = Arc::new(blank(64, all_features()));
    let v = open_device(&dev, "");
    let sparse = file(&v, v.root(), "sparse");
    write(&v, sparse, 5000, b"not inline");
    fill(&v, "f", 1);
    let before = (v.space().free, v.getattr(sparse).unwrap().blocks);
    for far in [2_000, 3_000_000, 600_000_000u64] {
        let refused = v.write(sparse, far * PAGE as u64, &[1; PAGE]).unwrap_err();
        assert_eq!(refused.errno(), 28, "{refused}");
        assert_eq!((v.space().free, v.getattr(sparse).unwrap().blocks), before);
    }
}

/// The placement that volumes of more than 16 GiB have: a full file is overwritten again and again, and each
/// fsync that is not refused stays.
#[test]
fn a_full_file_is_overwritten_by_the_policy_of_large_volumes() {
    for options in
        ["in_place=fsync,min_fsync_blocks=8,cache=128M", "in_place=fsync,min_fsync_blocks=8,cache=16M"]
    {
        let device = Arc::new(blank(128, all_features()));
        let v = open_device(&device, options);
        let (f, size) = fill(&v, "f", 1);
        v.sync().expect("sync");
        for round in 2..6 {
            for at in (0..size).step_by(64 * PAGE) {
                let len = (size - at).min(64 * PAGE as u64) as usize;
                assert_eq!(v.write(f, at, &vec![round; len]).expect("room was kept"), len, "{options}");
            }
            v.fsync(f, false).unwrap_or_else(|e| panic!("{options}, round {round}: {e}"));
        }
        v.sync().expect("sync");
        v.close().expect("close");
        drop(v);
        let v = open_device(&device, "");
        assert_eq!(pages_of(&v, "f", 5) as u64, size / PAGE as u64, "{options}");
    }
}
