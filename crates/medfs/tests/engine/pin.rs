//! Pinned files: whole sections for ever, zeros where nothing was written, and blocks that do not move.

use crate::common::*;
use medfs::{Extent, FallocateMode, Files, SetAttr, Volume};
use medfs_device::MemDevice;
use std::sync::Arc;

const MIB: u64 = 256;
/// Pages of a section.
const SECTION: u64 = 512;

fn volumes() -> [Arc<MemDevice>; 2] {
    [Arc::new(blank(MIB, all_features())), Arc::new(blank_delta(MIB))]
}

fn extents(v: &Volume, f: u32) -> Vec<Extent> {
    Extent::of(v, f).expect("extents")
}

fn errno<T>(result: medfs::Result<T>) -> i32 {
    result.err().map_or(0, |e| e.errno())
}

fn pinned(v: &Volume, name: &str) -> u32 {
    let f = file(v, v.root(), name);
    v.set_pinned(f, true).expect("it has no blocks");
    f
}

/// Room in whole sections, for a file of so many pages.
fn allocate(v: &Volume, f: u32, pages: u64) -> medfs::Result<()> {
    v.fallocate(f, FallocateMode::empty(), 0, pages * PAGE as u64)
}

fn write_page(v: &Volume, f: u32, index: u64, seed: u64) {
    write(v, f, index * PAGE as u64, &noise(seed));
    v.fsync(f, false).expect("fsync");
}

/// Makes the volume as full as it gets.
fn fill(v: &Volume) -> u64 {
    let mut pages = 0;
    for n in 0.. {
        let f = file(v, v.root(), &format!("filler{n}"));
        for index in 0..300 {
            if v.write(f, index * PAGE as u64, &noise(index)).ok() != Some(PAGE) {
                v.sync().expect("sync");
                return pages;
            }
            pages += 1;
        }
        v.fsync(f, false).expect("what was taken is durable");
    }
    unreachable!()
}

#[test]
fn what_can_be_pinned_and_what_cannot() {
    let device = Arc::new(blank_delta_and_compression(MIB));
    let v = open_device(&device, "");
    let f = file(&v, v.root(), "f");
    write(&v, f, 0, b"in the inode");
    v.set_pinned(f, true).expect("it has no block");
    v.set_pinned(f, true).expect("it is");
    assert!(v.is_pinned(f).expect("a file") && content(&v, f) == b"in the inode");
    v.fsync(f, false).expect("fsync");
    let (large, _) = noisy_file(&v, "large", 5);
    assert_eq!(errno(v.set_pinned(large, true)), 27);
    assert!(!v.is_pinned(large).expect("a file"));
    v.set_pinned(large, false).expect("it is not");
    let d = dir(&v, v.root(), "d");
    assert_eq!(errno(v.set_pinned(d, true)), 22);
    let atomic = file(&v, v.root(), "atomic");
    v.atomic_start(atomic).expect("begun");
    assert_eq!(errno(v.set_pinned(atomic, true)), 22);
    let compressed = file(&v, v.root(), "compressed");
    v.set_flags(compressed, medfs::FileFlags::COMPR).expect("chattr +c");
    assert_eq!(errno(v.set_pinned(compressed, true)), 95);
    assert_eq!(errno(v.set_pinned(1_000_000, true)), 116);
    v.set_pinned(f, false).expect("let go");
    v.close().expect("close");
    assert_eq!(errno(v.set_pinned(f, true)), 30);
    judge(&device);
}

#[test]
fn unwritten_pages_are_zeros_and_written_ones_lie_in_one_piece() {
    for device in volumes() {
        for options in ["", "placement=reserve", "placement=reserve,reserve_files=all"] {
            let v = open_device(&device, options);
            let f = pinned(&v, "f");
            allocate(&v, f, 700).expect("room");
            let blocks = v.getattr(f).expect("attributes").blocks / 8;
            assert!((2 * SECTION..2 * SECTION + 3).contains(&blocks), "{blocks}: whole sections");
            assert!(content(&v, f).iter().all(|&byte| byte == 0));
            for index in [3, 699, 0, 512, 100] {
                write_page(&v, f, index, index);
            }
            let found = extents(&v, f);
            let start = found[0].addr;
            assert!(
                start.wrapping_sub(v.geometry().seg_start(0)).is_multiple_of(SECTION as u32),
                "{found:?}"
            );
            assert!(found.iter().all(|e| e.addr == start + e.page as u32), "{found:?}");
            let bytes = content(&v, f);
            for index in [1, 2, 4, 511, 513, 698] {
                assert!(bytes[index * PAGE..(index + 1) * PAGE].iter().all(|&byte| byte == 0), "{index}");
            }
            assert!(bytes[699 * PAGE..] == noise(699));
            v.unlink(v.root(), b"f").expect("unlink");
            v.release(f, 1);
            v.close().expect("close");
            judge(&device);
        }
    }
}

/// Neither updates, deltas, nor cleaning move a page, and no remount.
#[test]
fn blocks_stay_where_they_are() {
    for device in volumes() {
        let v = open_device(&device, "in_place=off");
        let f = pinned(&v, "f");
        allocate(&v, f, SECTION).expect("room");
        let mut expected: Vec<u8> = (0..40).flat_map(noise).collect();
        write(&v, f, 0, &expected);
        v.fsync(f, false).expect("fsync");
        let before = extents(&v, f);
        // So many at once pay for an inode with deltas.
        for n in 0..10 {
            for page in 0..5 {
                patch(&v, f, &mut expected, (page * 7 + n) * PAGE + 100, b"a small change");
            }
            v.fsync(f, n % 2 == 0).expect("fsync");
        }
        assert_eq!((v.stats().zones.deltas, v.stats().deltas.made), (0, 0));
        v.close().expect("close");
        judge(&device);
        let v = open_device(&device, "in_place=off,background_gc=sync");
        let f = at(&v, "f").expect("the file").ino;
        // It gets a section that it has no need of.
        allocate(&v, f, SECTION).expect("room");
        patch(&v, f, &mut expected, 5, b"after a remount");
        v.fsync(f, false).expect("fsync");
        fill(&v);
        assert_eq!(extents(&v, f), before);
        expected.resize(SECTION as usize * PAGE, 0);
        assert!(content(&v, f) == expected);
        v.close().expect("close");
        judge(&device);
    }
}

/// A full volume takes nothing of it, and it nothing of what others were promised.
#[test]
fn what_was_allocated_is_kept_on_a_full_volume() {
    let reserve = "placement=reserve,reserve_files=all";
    for (device, options) in
        [(blank(160, all_features()), ""), (blank_delta(160), ""), (blank(160, all_features()), reserve)]
    {
        let device = Arc::new(device);
        let v = open_device(&device, options);
        let f = pinned(&v, "f");
        let free = v.space().free;
        allocate(&v, f, 2 * SECTION).expect("room");
        let taken = free - v.space().free;
        assert!((2 * SECTION..2 * SECTION + 8).contains(&taken), "{taken}");
        fill(&v);
        assert_eq!(v.space().free, 0);
        for index in (0..2 * SECTION).rev().step_by(7) {
            write_page(&v, f, index, index);
        }
        let found = extents(&v, f);
        let start = found[0].addr - found[0].page as u32;
        assert!(found.iter().all(|e| e.addr == start + e.page as u32), "{found:?}");
        v.close().expect("close");
        judge(&device);
    }
}

#[test]
fn what_has_no_room_changes_nothing() {
    let device = Arc::new(blank(160, all_features()));
    let v = open_device(&device, "");
    let f = pinned(&v, "f");
    let free = v.space().free;
    assert_eq!(errno(allocate(&v, f, free + 1)), 28);
    // More sections than logs can do without.
    assert_eq!(errno(allocate(&v, f, free - 600)), 28);
    assert_eq!(v.space().free, free);
    allocate(&v, f, SECTION).expect("room");
    v.close().expect("close");
    judge(&device);
}

/// What is cut off, and what is let go, is free for others again.
#[test]
fn what_is_cut_off_or_let_go_is_kept_no_more() {
    let device = Arc::new(blank(MIB, all_features()));
    let v = open_device(&device, "");
    let free = v.space().free;
    let f = pinned(&v, "f");
    let g = pinned(&v, "g");
    for (f, sections) in [(f, 45), (g, 4)] {
        allocate(&v, f, sections * SECTION).expect("room");
        write_page(&v, f, 0, 7);
    }
    v.setattr(f, &SetAttr { size: Some(PAGE as u64), ..SetAttr::default() }).expect("truncate");
    assert_eq!(at(&v, "f").expect("the file").blocks, 8, "what lies behind the end too");
    v.unlink(v.root(), b"g").expect("unlink");
    v.release(g, 1);
    v.checkpoint().expect("checkpoint");
    let taken = free - v.space().free;
    assert!(taken < 10, "{taken}");
    let pages = fill(&v);
    assert!(pages * 100 > free * 98, "{pages} of {free}");
    v.set_pinned(f, false).expect("let go");
    assert!(content(&v, f) == noise(7));
    v.close().expect("close");
    judge(&device);
}

/// After power loss it is pinned, and pages are zeros or what was written.
#[test]
fn every_crash_shows_zeros_or_what_was_written() {
    for device in volumes() {
        let workload = |v: &Volume, mark: &dyn Fn(u64)| {
            let f = pinned(v, "f");
            allocate(v, f, 20).expect("room");
            v.fsync(f, false).expect("fsync");
            mark(1);
            for (n, index) in [(2, 5), (3, 0), (4, 5)] {
                write(v, f, index * PAGE as u64, &page(n));
                v.fsync(f, true).expect("fsync");
                mark(n.into());
            }
        };
        crash(&device, "in_place=off", workload, |v, mark| {
            let Some(f) = at(v, "f").map(|attr| attr.ino) else {
                assert_eq!(mark, 0);
                return;
            };
            assert!(mark == 0 || v.is_pinned(f).expect("a file"));
            let bytes = content(v, f);
            let shown = |index: usize| bytes.chunks(PAGE).nth(index).map_or(0, version);
            assert!(bytes.len() == 20 * PAGE || mark == 0);
            assert!([&[0, 2, 4][..], &[0, 2, 4], &[2, 4], &[2, 4], &[4]][mark as usize].contains(&shown(5)));
            assert!([&[0, 3][..], &[0, 3], &[0, 3], &[3], &[3]][mark as usize].contains(&shown(0)));
            assert_eq!((shown(1), shown(19)), (0, 0), "never written");
        });
    }
}

/// As in the kernel: each would move pages, or free blocks that are the file's.
#[test]
fn what_would_move_a_page_is_refused() {
    for device in volumes() {
        let v = open_device(&device, "");
        let f = pinned(&v, "f");
        allocate(&v, f, SECTION).expect("room");
        for index in 0..20 {
            write_page(&v, f, index, index);
        }
        let (before, bytes) = (extents(&v, f), content(&v, f));
        assert_eq!(errno(v.atomic_start(f)), 22);
        let keeps = FallocateMode::KEEP_SIZE;
        for mode in [
            FallocateMode::COLLAPSE_RANGE,
            FallocateMode::INSERT_RANGE,
            FallocateMode::PUNCH_HOLE | keeps,
            FallocateMode::ZERO_RANGE,
            FallocateMode::ZERO_RANGE | keeps,
        ] {
            assert_eq!(errno(v.fallocate(f, mode, 0, PAGE as u64)), 95, "{mode:?}");
        }
        v.fallocate(f, keeps, 0, PAGE as u64).expect("it has that");
        write_page(&v, f, 1, 77);
        assert_eq!(extents(&v, f), before);
        assert!(content(&v, f)[2 * PAGE..] == bytes[2 * PAGE..]);
        v.close().expect("close");
        judge(&device);
    }
}
