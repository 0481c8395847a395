//! What operations cost in blocks and in calls to the device: no more than they need.

use crate::common::*;
use medfs::{Files, ManualClock, SetAttr, Stats, Timestamp, Volume};
use medfs_device::count::CountingDevice;
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, Cause};
use medfs_format::Block;
use std::sync::Arc;
use std::time::Duration;

/// A page whose address lies in a direct node, not in the inode.
const IN_DIRECT_NODE: u64 = 1500 * PAGE as u64;

/// Nodes, data blocks and flushes of an fsync.
fn cost_of_fsync(v: &Volume, ino: u32) -> (u64, u64, u64) {
    let numbers = |s: &Stats| (s.written.node, s.written.data, s.flushes);
    let before = numbers(&v.stats());
    v.fsync(ino, false).expect("fsync");
    let after = numbers(&v.stats());
    (after.0 - before.0, after.1 - before.1, after.2 - before.2)
}

fn set_mtime(v: &Volume, ino: u32, nanos: u32) {
    let now = Some(Timestamp { secs: START.secs + 9, nanos });
    v.setattr(ino, &SetAttr { mtime: now, ctime: now, ..SetAttr::default() }).expect("times are set");
}

/// A volume of 64 MiB, on which pages are overwritten in place, with one large file, all of it durable.
fn volume_with_a_file() -> (Volume, u32) {
    let v = open(blank(64, all_features()));
    let f = file(&v, v.root(), "f");
    write(&v, f, 0, &[1; 4 * PAGE]);
    write(&v, f, IN_DIRECT_NODE, &[1; 4 * PAGE]);
    v.sync().expect("sync");
    (v, f)
}

#[test]
fn pages_from_a_cache_above_that_keeps_times_need_no_inode() {
    let (v, f) = volume_with_a_file();
    let before = v.getattr(f).expect("attributes").mtime;
    v.write_cached(f, 0, &[2; PAGE]).expect("written");
    assert_eq!(v.getattr(f).expect("attributes").mtime, before);
    assert_eq!(cost_of_fsync(&v, f), (0, 1, 1), "the page alone, in place");
    set_mtime(&v, f, 1);
    v.write_cached(f, 0, &[3; PAGE]).expect("written");
    assert_eq!(cost_of_fsync(&v, f), (1, 1, 1), "a node that names nothing new needs no flush before it");
    set_mtime(&v, f, 1);
    assert_eq!(cost_of_fsync(&v, f), (0, 0, 0), "the same time again is no change");
}

/// Times of writes may be a tick behind after a crash, and not more; those that somebody set are exact.
#[test]
fn times_are_durable_to_a_tick_and_exactly_where_they_were_set() {
    let device = Arc::new(blank(64, all_features()));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), "", clock.clone());
    let f = file(&v, v.root(), "f");
    write(&v, f, 0, &[1; 4 * PAGE]);
    v.sync().expect("sync");
    let shown_after_a_crash = || at(&open(device.snapshot()), "f").expect("the file");
    let passed = |millis: u32| Timestamp { nanos: START.nanos + millis * 1_000_000, ..START };
    let write_after = |millis: u64| {
        clock.advance(Duration::from_millis(millis));
        write(&v, f, 0, &[millis as u8; PAGE]);
    };
    for (after, nodes, now, durable) in
        [(4, 0, 4, 0), (5, 0, 9, 0), (1, 1, 10, 10), (9, 0, 19, 10), (10, 1, 29, 29)]
    {
        write_after(after);
        assert_eq!(cost_of_fsync(&v, f), (nodes, 1, 1), "at {now} ms");
        assert_eq!(v.getattr(f).expect("attributes").mtime, passed(now));
        let shown = shown_after_a_crash();
        assert_eq!((shown.mtime, shown.ctime), (passed(durable), passed(durable)), "at {now} ms");
    }
    write_after(3);
    v.sync().expect("sync");
    assert_eq!(shown_after_a_crash().mtime, passed(32), "a checkpoint leaves nothing out");

    // Somebody sets a time, of less than a tick ago.
    let set = Timestamp { nanos: 31_000_001, ..START };
    v.setattr(f, &SetAttr { mtime: Some(set), ..SetAttr::default() }).expect("times are set");
    assert_eq!((cost_of_fsync(&v, f).0, shown_after_a_crash().mtime), (1, set));
    // The same through a cache that keeps times, which then tells ctime too.
    let set = Timestamp { nanos: 31_000_002, ..START };
    let through_a_cache = SetAttr { mtime: Some(set), ctime: Some(passed(33)), ..SetAttr::default() };
    v.setattr(f, &through_a_cache).expect("times are set");
    assert_eq!((cost_of_fsync(&v, f).0, shown_after_a_crash().mtime), (1, set));
    // A write that comes after it takes nothing away from it.
    let set = Timestamp { nanos: 31_000_003, ..START };
    v.setattr(f, &SetAttr { atime: Some(set), mtime: Some(set), ..SetAttr::default() })
        .expect("times are set");
    write_after(1);
    assert_eq!(cost_of_fsync(&v, f).0, 1);
    assert_eq!((shown_after_a_crash().atime, shown_after_a_crash().mtime), (set, passed(33)));
    // What such a cache tells of a write is a time of a write.
    let of_a_write = |v: &Volume, at| {
        v.setattr(f, &SetAttr { mtime: Some(at), ctime: Some(at), ..SetAttr::default() })
            .expect("times are set");
        cost_of_fsync(v, f)
    };
    assert_eq!(of_a_write(&v, passed(42)), (0, 0, 0));
    assert_eq!(of_a_write(&v, passed(43)), (1, 0, 1));
    // The clock may go back, too.
    clock.set(passed(35));
    write_after(0);
    assert_eq!(cost_of_fsync(&v, f).0, 0);
    clock.set(passed(33));
    write_after(0);
    assert_eq!((cost_of_fsync(&v, f).0, shown_after_a_crash().mtime), (1, passed(33)));

    // Another mount knows the times that are on the device.
    v.close().expect("close");
    let v = open_with(device.clone(), "", clock.clone());
    let f = at(&v, "f").expect("the file").ino;
    clock.advance(Duration::from_millis(9));
    write(&v, f, 0, &[9; PAGE]);
    assert_eq!(cost_of_fsync(&v, f), (0, 1, 1));
    clock.advance(Duration::from_millis(1));
    write(&v, f, 0, &[9; PAGE]);
    assert_eq!(cost_of_fsync(&v, f), (1, 1, 1));
}

#[test]
fn a_new_page_of_a_direct_node_needs_no_inode() {
    let (v, f) = volume_with_a_file();
    let blocks = v.getattr(f).expect("attributes").blocks;
    v.write_cached(f, IN_DIRECT_NODE - 8 * PAGE as u64, &[2; PAGE]).expect("written");
    assert_eq!(cost_of_fsync(&v, f), (1, 1, 2), "page, flush, direct node, flush");
    assert_eq!(v.getattr(f).expect("attributes").blocks, blocks + 8);
    v.write_cached(f, 9 * PAGE as u64, &[2; PAGE]).expect("written");
    assert_eq!(cost_of_fsync(&v, f), (1, 1, 2), "page, flush, inode, flush");
}

#[test]
fn looking_at_many_files_reads_their_inodes_in_runs() {
    const FILES: usize = 1500;
    let device = Arc::new(blank(64, all_features()));
    let v = open(device.clone());
    let d = dir(&v, v.root(), "d");
    for n in 0..FILES {
        let f = file(&v, d, &format!("f{n:04}"));
        write(&v, f, 0, format!("content of {n}").as_bytes());
        v.release(f, 1);
    }
    v.close().expect("close");
    drop(v);

    let counted = Arc::new(CountingDevice::new(device));
    let v = open_with(counted.clone(), "", Arc::new(ManualClock::new(START)));
    let before = counted.counts();
    for n in 0..FILES {
        let attr = at(&v, &format!("d/f{n:04}")).expect("the file is there");
        assert_eq!(content(&v, attr.ino), format!("content of {n}").as_bytes());
    }
    let (calls, blocks) =
        (counted.counts().reads - before.reads, counted.counts().blocks_read - before.blocks_read);
    assert!(calls < FILES as u64 / 8, "{calls} reads for {FILES} files");
    assert!(blocks < FILES as u64 * 3 / 2, "{blocks} blocks for {FILES} files");
}

#[test]
fn what_is_read_ahead_is_never_older_than_what_was_written() {
    // The inodes lie in one row, in which those that moved away have left what they were.
    const FILES: usize = 600;
    let changed = |n: usize| n % 5 == 3;
    let device = Arc::new(blank(64, all_features()));
    let v = open(device.clone());
    for n in 0..FILES {
        let f = file(&v, v.root(), &format!("f{n:04}"));
        v.release(f, 1);
    }
    v.close().expect("close");
    drop(v);
    let v = open(device.clone());
    for n in (0..FILES).filter(|n| changed(*n)) {
        let f = at(&v, &format!("f{n:04}")).expect("the file is there").ino;
        write(&v, f, 0, b"new");
    }
    v.close().expect("close");
    drop(v);

    let v = open(device);
    for n in 0..FILES {
        let f = at(&v, &format!("f{n:04}")).expect("the file is there").ino;
        assert_eq!(content(&v, f), if changed(n) { &b"new"[..] } else { b"" }, "f{n:04}");
    }
}

#[test]
fn pages_that_lie_apart_or_have_deltas_are_read_in_few_requests() {
    const PAGES: usize = 40;
    for (options, most) in [("delta=off,in_place=off", (2, PAGES + 10)), ("delta=inline", (1, PAGES))] {
        let device = Arc::new(blank_delta(64));
        let v = open_device(&device, options);
        let (f, mut expected) = noisy_file(&v, "f", PAGES as u64);
        let stale = noise(4);
        for page in (0..PAGES).step_by(4) {
            patch(&v, f, &mut expected, page * PAGE + 9, &noise(99)[..20]);
        }
        v.fsync(f, false).expect("fsync");
        v.close().expect("close");
        drop(v);
        let read = |v: &Volume| {
            let mut found = vec![0; PAGES * PAGE];
            let read = v.read(at(v, "f").expect("the file").ino, 0, &mut found);
            assert!(read.expect("read") == PAGES * PAGE && found == expected, "{options}");
        };

        let counted = Arc::new(CountingDevice::new(device.clone()));
        let v = open_with(counted.clone(), options, Arc::new(ManualClock::new(START)));
        at(&v, "f").expect("the file");
        let before = counted.counts();
        read(&v);
        let io = counted.counts() - before;
        assert!((io.reads, io.blocks_read) <= (most.0, most.1 as u64), "{options}: {io:?}");
        read(&v);
        drop(v);

        // A block between those that are wanted cannot be read.
        if options.starts_with("delta=off") {
            let mut block = Block::ZERO;
            let holds = |&addr: &u64| {
                device.read(addr, &mut [&mut block]).expect("read");
                block.0[..] == stale[..]
            };
            let addr = (0..device.block_count()).find(holds).expect("what the page was");
            let faulty = Arc::new(FaultDevice::new(device.clone(), 1));
            faulty.arm(Fault::on(Kind::Read, Effect::IO).within(addr..addr + 1));
            let v = open_with(faulty.clone(), options, Arc::new(ManualClock::new(START)));
            read(&v);
            assert_eq!(faulty.hits(), 1, "it was met");
        }
    }
}

#[test]
fn bases_are_read_and_pages_are_written_in_one_request_each() {
    const PAGES: usize = 40;
    let device = Arc::new(blank_delta(64));
    let options = "compact_files=all";
    let v = open_device(&device, options);
    let (_, mut expected) = noisy_file(&v, "f", PAGES as u64);
    v.close().expect("close");
    drop(v);

    let counted = Arc::new(CountingDevice::new(device.clone()));
    let v = open_with(counted.clone(), options, Arc::new(ManualClock::new(START)));
    let f = at(&v, "f").expect("the file").ino;
    // More deltas than the inode holds, and a page that has to be written as a whole.
    for (page, content) in expected.chunks_mut(PAGE).enumerate() {
        content[..220].copy_from_slice(&noise(1000 + page as u64)[..220]);
    }
    expected.extend(noise(7));
    write(&v, f, 0, &expected);
    let before = counted.counts();
    v.fsync(f, false).expect("fsync");
    let io = counted.counts() - before;
    // Two more are of the log and of the map of blocks, and one of what lies ahead of the chain.
    assert!(io.reads <= 4 && io.blocks_read <= PAGES as u64 + 2 + 8, "{io:?}");
    let (data, compact) = (io.cause(Cause::Data), io.cause(Cause::Compact));
    assert_eq!((data.writes, data.blocks, compact.writes), (1, 1, 0), "{io:?}");
    assert!((1..=PAGES as u64 / 3).contains(&compact.blocks), "{io:?}");
    assert_eq!(compact.blocks, v.stats().written.compact);
    v.close().expect("close");
    drop(v);
    assert!(content(&open(device), f) == expected);
}
