//! What is no fault is not called one, and what other drivers refuse is found.

use crate::common::{Bed, META, load};
use crate::medium::opened;
use medfs::{Files, ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::{BlockDevice, FileDevice, FileOptions, MemDevice, read_block};
use medfs_format::node::FileKind;
use medfs_format::sit::{ENTRIES_PER_BLOCK, RawSitBlock};
use medfs_format::superblock::RawSuperblock;
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Options, Report, check, repair};
use medfs_testkit::images::{DELTAS, formatted};
use std::sync::Arc;

fn look(dev: &dyn BlockDevice) -> Report {
    check(dev, &Options::default(), &mut |_| {}).expect("the device does not fail")
}

#[test]
fn fresh_volumes_with_sections_and_zones_of_any_size_are_clean() {
    let bed = Bed::new();
    let shapes: [(&str, u64); 10] = [
        ("-s 3 -z 3", 1024),
        ("-s 7 -z 2", 1024),
        ("-s 5 -z 5", 777),
        ("-s 3", 200),
        ("-s 3", 777),
        ("-s 7", 777),
        ("-z 3", 200),
        ("-z 3", 778),
        ("-s 5", 781),
        ("-s 2", 200),
    ];
    for (options, mib) in shapes {
        let options: Vec<&str> = options.split(' ').collect();
        let path = bed.mkfs("fresh.img", mib, &options);
        let dev = FileDevice::open(&path, FileOptions::read_only()).unwrap();
        assert_eq!(look(&dev).findings, [], "{options:?} {mib} MiB");
    }
}

#[test]
fn a_wrong_count_of_free_segments_is_found_whatever_the_sections() {
    let bed = Bed::new();
    for by in [2, 2u64.wrapping_neg()] {
        let dev = load(&bed.mkfs("count.img", 200, &["-s", "3"]));
        inject::change(&dev, &Target::Checkpoint, "free_segment_count", |n| n.wrapping_add(by)).unwrap();
        assert!(look(&dev).has(Code::FreeSegmentCount), "{by}");
        let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert_eq!(repaired.after.findings, []);
    }
}

/// `mkfs.f2fs` counts free segments behind the last whole zone.
#[test]
fn free_segments_are_counted_anew_where_zones_are_larger_than_a_segment() {
    let bed = Bed::new();
    for (zone, mib) in [("3", 256), ("5", 256), ("4", 300)] {
        let dev = Arc::new(load(&bed.mkfs("zone.img", mib, &["-z", zone])));
        let v = opened(dev.clone());
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let ino = v.create(v.root(), b"file", &new).expect("create").ino;
        v.release(ino, 1);
        v.close().expect("closed");
        drop(v);
        bed.judge(&dev).unwrap_or_else(|e| panic!("-z {zone}, {mib} MiB: {e}"));
    }
}

/// The entry of a segment in the table itself, whatever a journal says; changed by `change`.
fn in_table<T>(
    dev: &MemDevice,
    segno: u32,
    change: impl FnOnce(&mut medfs_format::sit::RawSitEntry) -> T,
) -> T {
    let sb = read_block(dev, 0).unwrap();
    let (block, at) = (segno / ENTRIES_PER_BLOCK as u32, segno as usize % ENTRIES_PER_BLOCK);
    let addr = u64::from(RawSuperblock::in_block(&sb).sit_blkaddr.get() + block);
    let mut sit = read_block(dev, addr).unwrap();
    let result = change(&mut sit.view_mut::<RawSitBlock>().entries[at]);
    dev.write(addr, &[&sit], META).unwrap();
    result
}

/// Who mounts the volume judges the table's entries before it takes those of the journal in their place.
#[test]
fn a_broken_entry_of_the_segment_table_below_one_in_the_journal_is_found_and_repaired() {
    let bed = Bed::new();
    // In a fresh volume the journal has the entries of the segments that the logs write to: segment 0 is one.
    for vblocks in [63 << 10, 513, 3] {
        let dev = load(&bed.mkfs("journal.img", 64, &[]));
        in_table(&dev, 0, |entry| entry.vblocks = vblocks.into());
        let report = look(&dev);
        assert!(report.has(Code::SitEntry), "{vblocks}: {:?}", report.findings);
        let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert_eq!(repaired.after.findings, []);
        bed.judge(&dev).unwrap();
    }
}

/// A volume after a crash, with a removed directory on it that was open. It had as many entries once.
fn with_removed_directory(entries: usize) -> (MemDevice, u32) {
    let dev = Arc::new(formatted(64, DELTAS).snapshot());
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_800_000_000, nanos: 0 }));
    let v = Volume::open(dev.clone(), MountOptions::default(), clock).expect("it opens");
    let new = |kind| NewFile { kind, perm: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let dir = v.create(v.root(), b"removed", &new(FileKind::Directory)).expect("mkdir").ino;
    let name = |i: usize| format!("a name that is rather long, number {i:05}").into_bytes();
    for i in 0..entries {
        let ino = v.create(dir, &name(i), &new(FileKind::Regular)).expect("create").ino;
        v.release(ino, 1);
    }
    v.checkpoint().expect("checkpoint");
    (0..entries).for_each(|i| v.unlink(dir, &name(i)).expect("unlink"));
    v.rmdir(v.root(), b"removed").expect("rmdir");
    v.checkpoint().expect("checkpoint");
    (dev.snapshot(), dir)
}

#[test]
fn a_removed_directory_that_is_open_at_a_crash_is_no_fault() {
    for entries in [0, 300] {
        let (dev, dir) = with_removed_directory(entries);
        let report = look(&dev);
        assert_eq!((report.findings, report.orphans), (vec![], 1), "{entries} entries");
        // As the kernel leaves it: of no size, whatever blocks it still has.
        inject::set(&dev, &Target::Inode(dir), "i_size", 0).unwrap();
        assert_eq!(look(&dev).findings, [], "{entries} entries");
        // With something to mend beside it, it goes.
        inject::change(&dev, &Target::Checkpoint, "valid_node_count", |n| n + 1).unwrap();
        let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert_eq!((repaired.after.findings, repaired.after.orphans), (vec![], 0), "{entries} entries");
    }
}
