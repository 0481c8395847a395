//! Pinned files and room: what they keep is counted, so what other files were promised can be stored.

use crate::common::*;
use medfs::{FallocateMode, Files, SetAttr, Volume};
use medfs_device::MemDevice;
use std::sync::Arc;

/// Pages of a section.
const SECTION: u64 = 512;
/// Sections that fall into the balance: far more than a volume of [`MIB`] has to spare.
const SECTIONS: u64 = 75;
const MIB: u64 = 512;

fn device() -> Arc<MemDevice> {
    Arc::new(blank(MIB, all_features()))
}

fn pinned(v: &Volume, name: &str) -> u32 {
    let f = file(v, v.root(), name);
    v.set_pinned(f, true).expect("it has no blocks");
    f
}

fn allocate(v: &Volume, f: u32, pages: u64) -> medfs::Result<()> {
    v.fallocate(f, FallocateMode::empty(), 0, pages * PAGE as u64)
}

fn write_pages(v: &Volume, f: u32, pages: u64) {
    for index in 0..pages {
        write(v, f, index * PAGE as u64, &noise(index));
    }
    v.fsync(f, false).expect("fsync");
}

fn cut(v: &Volume, f: u32, pages: u64) {
    let size = Some(pages * PAGE as u64);
    v.setattr(f, &SetAttr { size, ..SetAttr::default() }).expect("truncate");
}

/// Fills a volume until it takes no more: what it took is durable, and it took what it showed as free.
fn all_that_is_free_can_be_stored(v: &Volume) {
    let (free, mut pages) = (v.space().free, 0);
    'full: for n in 0.. {
        let f = file(v, v.root(), &format!("filler{n}"));
        for index in 0..300 {
            if v.write(f, index * PAGE as u64, &noise(index)).ok() != Some(PAGE) {
                break 'full;
            }
            pages += 1;
        }
        v.fsync(f, false).unwrap_or_else(|e| panic!("{pages} pages of {free} were taken: {e:?}"));
    }
    v.sync().expect("what was taken is durable");
    assert!(pages * 100 > free * 95, "{pages} of {free}");
    v.close().expect("close");
}

#[test]
fn a_fallocate_that_is_repeated_in_another_mount_takes_nothing() {
    let device = device();
    let v = open_device(&device, "");
    let f = pinned(&v, "f");
    allocate(&v, f, SECTIONS * SECTION).expect("room");
    write_pages(&v, f, SECTIONS * SECTION);
    v.close().expect("close");
    let v = open_device(&device, "");
    let (f, free) = (at(&v, "f").expect("the file").ino, v.space().free);
    allocate(&v, f, SECTIONS * SECTION).expect("it has all of it");
    assert_eq!(v.space().free, free);
    all_that_is_free_can_be_stored(&v);
    judge(&device);
}

#[test]
fn a_fallocate_that_finds_no_room_keeps_nothing() {
    let device = device();
    let v = open_device(&device, "");
    let f = pinned(&v, "f");
    for window in 0..SECTIONS {
        write(&v, f, window * SECTION * PAGE as u64, &noise(window));
        v.fsync(f, false).expect("fsync");
    }
    let free = v.space().free;
    allocate(&v, f, free - 600).expect_err("more sections than logs can do without");
    assert_eq!(v.space().free, free);
    all_that_is_free_can_be_stored(&v);
    judge(&device);
}

#[test]
fn files_that_are_cut_and_allocated_again_keep_what_is_counted() {
    let device = device();
    let v = open_device(&device, "");
    for n in 0..60 {
        let f = pinned(&v, &format!("f{n}"));
        allocate(&v, f, SECTION).expect("room");
        write_pages(&v, f, SECTION);
        cut(&v, f, 0);
        allocate(&v, f, SECTION).expect("room");
        write_pages(&v, f, SECTION);
    }
    v.checkpoint().expect("checkpoint");
    all_that_is_free_can_be_stored(&v);
    judge(&device);
}
