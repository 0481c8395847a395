//! Addresses noted in the inode instead of direct nodes: what an fsync costs, and that a crash shows what was fsynced.

use crate::common::*;
use medfs::{FallocateMode, Files, Ino, SetAttr, Timestamp, Volume};
use medfs_device::MemDevice;
use std::sync::Arc;

/// Pages of a log that has no database, most of which its inode has no address of.
const PAGES: u64 = 300;
/// Pages that are written go to new blocks.
const OPTIONS: &str = "in_place=off";
/// The first page of the last quarter.
const FAR: u64 = 200;

/// A log of noise, durable.
fn log(v: &Volume) -> (Ino, Vec<u8>) {
    noisy_file(v, "x.db-wal", PAGES)
}

/// Overwrites whole pages, in the volume and in what is expected.
fn replace(v: &Volume, f: Ino, expected: &mut [u8], pages: std::ops::Range<u64>, seed: u64) {
    for page in pages {
        patch(v, f, expected, page as usize * PAGE, &noise(seed * 1000 + page));
    }
}

fn nodes_of_fsync(v: &Volume, f: Ino) -> u64 {
    let before = v.stats().written.node;
    v.fsync(f, false).expect("fsync");
    v.stats().written.node - before
}

fn shown(v: &Volume) -> Vec<u8> {
    content(v, at(v, "x.db-wal").expect("the log").ino)
}

#[test]
fn an_fsync_writes_the_inode_and_no_direct_node() {
    for (options, nodes) in [("in_place=off", 1), ("in_place=off,addr_redo=off", 2)] {
        let device = Arc::new(blank_delta(64));
        let v = open_device(&device, options);
        let (f, mut expected) = log(&v);
        patch(&v, f, &mut expected, 0, b"a first delta, for which there is a zone");
        v.fsync(f, false).expect("fsync");
        for round in 1..30 {
            let first = FAR + round * 3;
            replace(&v, f, &mut expected, first..first + 3, round);
            patch(&v, f, &mut expected, 50, &round.to_le_bytes());
            assert_eq!(nodes_of_fsync(&v, f), nodes, "round {round}, {options:?}");
            assert_eq!(nodes_of_fsync(&v, f), 0, "nothing is left to be done");
            assert!(shown(&crashed(&device, options)) == expected, "round {round}, after a crash");
        }
        v.sync().expect("sync");
        assert!(shown(&crashed(&device, options)) == expected, "after a checkpoint");
        v.close().expect("close");
        drop(v);
        judge_deltas(&device);
    }
}

/// A direct node has no room for a seal, its inode has: once the node was written, fsyncs that need it alone write the
/// inode in its place, and flush once.
#[test]
fn a_direct_node_that_changes_again_and_again_costs_one_flush_each_time() {
    const FIRST: u64 = 1100;
    const ROUNDS: u64 = 40;
    for (options, flushes) in
        [(OPTIONS, ROUNDS..ROUNDS + 2), ("in_place=off,addr_redo=off", ROUNDS + 20..2 * ROUNDS + 1)]
    {
        let device = Arc::new(blank_delta(64));
        let v = open_device(&device, options);
        let f = file(&v, v.root(), "x.db-wal");
        // Behind what its inode has addresses of.
        let mut expected = vec![0; (FIRST + ROUNDS) as usize * PAGE];
        replace(&v, f, &mut expected, FIRST..FIRST + ROUNDS, 0);
        v.sync().expect("sync");
        let before = v.stats();
        for round in 0..ROUNDS {
            replace(&v, f, &mut expected, FIRST + round..FIRST + round + 1, round + 1);
            v.fsync(f, true).expect("fdatasync");
            assert!(shown(&crashed(&device, options)) == expected, "round {round}, after a crash");
        }
        let now = v.stats();
        let cost = now.flushes - before.flushes;
        assert!(flushes.contains(&cost), "{options}: {cost} flushes");
        if options == OPTIONS {
            assert_eq!(now.written.node - before.written.node, ROUNDS, "one node for each");
        }
        v.sync().expect("sync");
        assert!(shown(&crashed(&device, options)) == expected, "after a checkpoint");
        v.close().expect("close");
        drop(v);
        judge_deltas(&device);
    }
}

fn crashed(device: &MemDevice, options: &str) -> Volume {
    open_device(&Arc::new(device.snapshot()), options)
}

/// Both checkers; the one of F2FS sees an exported copy.
fn judge_deltas(device: &Arc<MemDevice>) {
    use medfs_testkit::subject::Check;
    medfs_testkit::images::FsckMedfs.check(device.clone()).unwrap_or_else(|e| panic!("fsck.medfs: {e}"));
    medfs_testkit::images::FsckF2fs.check(device.clone()).unwrap_or_else(|e| panic!("fsck.f2fs: {e}"));
}

/// Holes, and addresses that change more than once between two fsyncs, are noted as well; too many write the node.
#[test]
fn holes_and_many_changes_are_durable() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, OPTIONS);
    let (f, mut expected) = log(&v);
    patch(&v, f, &mut expected, 0, b"a first delta");
    v.fsync(f, false).expect("fsync");
    v.fallocate(f, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, FAR * PAGE as u64, 2 * PAGE as u64)
        .expect("a hole");
    expected[FAR as usize * PAGE..(FAR as usize + 2) * PAGE].fill(0);
    assert!(nodes_of_fsync(&v, f) <= 2);
    assert!(shown(&crashed(&device, OPTIONS)) == expected, "a hole");
    for page in (FAR..PAGES).step_by(2) {
        replace(&v, f, &mut expected, page..page + 1, 7);
    }
    assert!(nodes_of_fsync(&v, f) <= 2);
    assert!(shown(&crashed(&device, OPTIONS)) == expected, "every other page");
    replace(&v, f, &mut expected, FAR + 1..FAR + 2, 8);
    assert_eq!(nodes_of_fsync(&v, f), 1);
    let size = Some((FAR + 30) * PAGE as u64 + 100);
    v.setattr(f, &SetAttr { size, ..SetAttr::default() }).expect("cut off");
    expected.truncate((FAR as usize + 30) * PAGE + 100);
    v.fsync(f, false).expect("fsync");
    assert!(shown(&crashed(&device, OPTIONS)) == expected, "cut off");
}

/// Notes count in the blocks of the fsync that took them, and in no later block.
#[test]
fn notes_do_not_outlive_their_fsync() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, OPTIONS);
    let (f, mut expected) = log(&v);
    patch(&v, f, &mut expected, 0, b"a first delta");
    v.fsync(f, false).expect("fsync");
    replace(&v, f, &mut expected, FAR..FAR + 1, 3);
    assert_eq!(nodes_of_fsync(&v, f), 1);
    v.close().expect("close");
    drop(v);
    let v = open_device(&device, OPTIONS);
    let f = at(&v, "x.db-wal").expect("the log").ino;
    replace(&v, f, &mut expected, FAR..FAR + 1, 4);
    v.sync().expect("sync");
    // Blocks are used again, so that an old address would show.
    for n in 0..40 {
        let (other, _) = noisy_file(&v, &format!("other {n}"), 8);
        v.release(other, 1);
    }
    let later = Timestamp { secs: START.secs + 9, nanos: 0 };
    v.setattr(f, &SetAttr { mtime: Some(later), ..SetAttr::default() }).expect("times are set");
    assert_eq!(nodes_of_fsync(&v, f), 1);
    assert!(shown(&crashed(&device, OPTIONS)) == expected);
}

/// A direct node has pages that a log reserves ahead of need: where it is written, the inode comes along and
/// tells the size.
#[test]
fn a_node_with_pages_behind_the_end_does_not_make_a_file_longer() {
    for options in ["in_place=off", "in_place=off,addr_redo=off"] {
        for datasync in [true, false] {
            let device = Arc::new(blank_delta(64));
            let v = open_device(&device, options);
            let (f, mut expected) = log(&v);
            v.sync().expect("sync");
            replace(&v, f, &mut expected, FAR..FAR + 1, 3);
            v.fsync(f, datasync).expect("fsync");
            assert!(shown(&crashed(&device, options)) == expected, "{options}, datasync: {datasync}");
        }
    }
}

/// Every crash state of a log that grows, is overwritten and gets compact pages, with a checkpoint in between.
#[test]
fn every_crash_shows_what_was_fsynced() {
    let shared = Arc::new(blank_delta(64));
    let v = open_device(&shared, "");
    log(&v);
    v.close().expect("close");
    drop(v);
    let states = std::sync::Mutex::new(Vec::new());
    crash(
        &shared,
        "in_place=off,compact_files=all",
        |v, mark| {
            let f = at(v, "x.db-wal").expect("the log").ino;
            let mut expected = content(v, f);
            for round in 0..8u64 {
                replace(v, f, &mut expected, FAR + round * 5..FAR + round * 5 + 2, round);
                for page in 0..6 {
                    let at = (page * 20) * PAGE + 40;
                    patch(v, f, &mut expected, at, &noise(round * 100 + page as u64)[..500]);
                }
                if round == 4 {
                    v.sync().expect("sync");
                } else {
                    v.fsync(f, false).expect("fsync");
                }
                states.lock().expect("one thread").push(expected.clone());
                mark(round + 1);
            }
        },
        |v, mark| {
            let states = states.lock().expect("one thread");
            let shown = shown(v);
            let is = |n: u64| n > 0 && states.get(n as usize - 1).is_some_and(|s| *s == shown);
            assert!(mark == 0 || is(mark) || is(mark + 1), "after {mark} rounds");
        },
    );
}
