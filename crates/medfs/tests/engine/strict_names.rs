//! Strict fsync and names that change hands: a file with another file's former name.
//!
//! Recovery makes the directory entry that an fsynced inode asks for, and takes the name from whoever has it
//! in the last checkpoint or from an earlier fsync. So before a file is fsynced under a name that another
//! file gave up, that one's new name must be durable; otherwise it would lose its last link. There is one
//! test for each way in which that is settled, with every crash state of it, and with the number of
//! checkpoints that it costs.

use crate::common::*;
use medfs::{Files, Ino, RenameFlags, Volume};
use std::cell::Cell;

/// A new file with one page of this version.
fn written(v: &Volume, name: &str, version: u8) -> Ino {
    let ino = file(v, v.root(), name);
    write(v, ino, 0, &page(version));
    ino
}

fn fsync(v: &Volume, ino: Ino) {
    v.fsync(ino, false).expect("fsync");
}

fn rename(v: &Volume, from: &str, to: &str) {
    v.rename(v.root(), from.as_bytes(), v.root(), to.as_bytes(), RenameFlags::empty()).expect("rename");
}

/// The version of the file of a name, where there is one.
fn found(v: &Volume, name: &str) -> Option<u8> {
    let attr = at(v, name)?;
    match content(v, attr.ino) {
        bytes if bytes.is_empty() => None,
        bytes => Some(version(&bytes)),
    }
}

/// Runs a workload, which tells how often it fsynced by a checkpoint, and judges all of its crash states.
fn check(expected: u64, workload: impl Fn(&Volume, &dyn Fn(u64)), judge: impl Fn(&Volume, u64)) {
    for base in bases() {
        let checkpoints = Cell::new(0);
        let counted = |v: &Volume, mark: &dyn Fn(u64)| {
            workload(v, mark);
            checkpoints.set(v.stats().fsyncs_with_checkpoint);
        };
        crash(&base, "", counted, &judge);
        assert_eq!(checkpoints.get(), expected, "checkpoints that the fsyncs made");
    }
}

/// First version 1 is durable as `x`, then also version 2, as `x` in its place, with 1 as `y`.
fn both_are_there(v: &Volume, mark: u64) {
    let (x, y) = (found(v, "x"), found(v, "y"));
    assert!(mark < 1 || [x, y].contains(&Some(1)), "mark {mark}: the older file is lost: {x:?} {y:?}");
    assert!(mark < 2 || (x, y) == (Some(2), Some(1)), "mark {mark}: {x:?} {y:?}");
}

#[test]
fn the_new_name_of_an_fsynced_file_is_recorded_first() {
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let old = written(v, "x", 1);
        fsync(v, old);
        mark(1);
        rename(v, "x", "y");
        fsync(v, written(v, "x", 2));
        mark(2);
    };
    check(0, workload, both_are_there);
}

#[test]
fn a_file_of_the_checkpoint_that_gave_up_the_name_needs_a_checkpoint() {
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        written(v, "x", 1);
        v.sync().expect("sync");
        mark(1);
        rename(v, "x", "y");
        fsync(v, written(v, "x", 2));
        mark(2);
    };
    check(1, workload, both_are_there);
}

#[test]
fn a_file_that_was_never_durable_is_left_alone() {
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        written(v, "x", 1);
        rename(v, "x", "y");
        fsync(v, written(v, "x", 2));
        mark(2);
        v.sync().expect("sync");
    };
    check(0, workload, |v, mark| {
        assert!(mark < 2 || found(v, "x") == Some(2), "{:?}", found(v, "x"));
    });
}

#[test]
fn a_file_that_is_gone_needs_nothing() {
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let old = written(v, "x", 1);
        fsync(v, old);
        rename(v, "x", "y");
        v.unlink(v.root(), b"y").expect("unlink");
        v.release(old, 1);
        fsync(v, written(v, "x", 2));
        mark(2);
        v.sync().expect("sync");
    };
    check(0, workload, |v, mark| {
        assert!(mark < 2 || found(v, "x") == Some(2), "{:?}", found(v, "x"));
        assert!(mark < 2 || at(v, "y").is_none(), "an unlinked file is back");
    });
}

#[test]
fn a_file_with_several_names_needs_a_checkpoint() {
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let old = written(v, "x", 1);
        fsync(v, old);
        mark(1);
        for name in ["y", "z"] {
            v.link(old, v.root(), name.as_bytes()).expect("link");
        }
        v.unlink(v.root(), b"x").expect("unlink");
        fsync(v, written(v, "x", 2));
        mark(2);
    };
    check(1, workload, |v, mark| {
        both_are_there(v, mark);
        assert!(mark < 2 || found(v, "z") == Some(1), "a name is lost");
    });
}

/// Its block records the name that it lost last, not the one that it has.
#[test]
fn a_file_that_does_not_record_its_name_needs_a_checkpoint() {
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let old = written(v, "y", 1);
        fsync(v, old);
        mark(1);
        v.link(old, v.root(), b"x").expect("link");
        v.unlink(v.root(), b"x").expect("unlink");
        fsync(v, written(v, "x", 2));
        mark(2);
    };
    check(1, workload, both_are_there);
}

#[test]
fn a_renamed_file_of_the_checkpoint_is_fsynced_by_one() {
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let old = written(v, "x", 1);
        v.sync().expect("sync");
        rename(v, "x", "y");
        write(v, old, 0, &page(2));
        fsync(v, old);
        mark(2);
        // From here on it is recovered by itself again.
        write(v, old, 0, &page(3));
        fsync(v, old);
        mark(3);
    };
    check(1, workload, |v, mark| {
        assert!(mark < 2 || at(v, "x").is_none(), "the old name is back");
        assert!(mark < 2 || found(v, "y").is_some_and(|version| u64::from(version) >= mark));
    });
}

/// `count` files, each with the name that the next one gave up, and a new one with the first name.
fn row(count: u8) -> impl Fn(&Volume, &dyn Fn(u64)) {
    move |v, mark| {
        for n in 0..count {
            fsync(v, written(v, &format!("n{n}"), n + 1));
        }
        mark(1);
        for n in (0..count).rev() {
            rename(v, &format!("n{n}"), &format!("n{}", n + 1));
        }
        fsync(v, written(v, "n0", 100));
        mark(2);
    }
}

fn none_of_the_row_is_lost(count: u8) -> impl Fn(&Volume, u64) {
    move |v, mark| {
        let versions: Vec<u8> = (0..=count).filter_map(|n| found(v, &format!("n{n}"))).collect();
        let there = |n: u8| versions.contains(&n);
        assert!(mark < 1 || (1..=count).all(there), "mark {mark}: {versions:?}");
        let settled: Vec<u8> = std::iter::once(100).chain(1..=count).collect();
        assert!(mark < 2 || versions == settled, "mark {mark}: {versions:?}");
    }
}

#[test]
fn a_short_row_of_files_is_settled_one_by_one() {
    check(0, row(5), none_of_the_row_is_lost(5));
}

#[test]
fn a_long_row_of_files_is_settled_by_a_checkpoint() {
    check(1, row(12), none_of_the_row_is_lost(12));
}
