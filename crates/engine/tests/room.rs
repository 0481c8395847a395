//! Want of room inside the engine: what was acknowledged stays writable, and a mount always succeeds (P10).

mod common;

use common::*;
use medfs::{FallocateMode, ManualClock, MountOptions, SetAttr, Volume};
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
    let _ = v.fsync(f, false);
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
    let room = v.statfs().free - 40;
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
