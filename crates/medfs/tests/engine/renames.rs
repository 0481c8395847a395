//! Names on volumes with deltas: one inode block records a rename in both directories, one block the names
//! that are gone from a directory, without a checkpoint.

use crate::common::*;
use medfs::{Files, Ino, RenameFlags, Volume};
use std::cell::Cell;

/// A new file with one page of this version.
fn written(v: &Volume, dir: Ino, name: &str, version: u8) -> Ino {
    let ino = file(v, dir, name);
    write(v, ino, 0, &page(version));
    ino
}

fn fsync(v: &Volume, ino: Ino) {
    v.fsync(ino, false).expect("fsync");
}

fn rename(v: &Volume, from: (Ino, &str), to: (Ino, &str)) {
    v.rename(from.0, from.1.as_bytes(), to.0, to.1.as_bytes(), RenameFlags::empty()).expect("rename");
}

/// The version of the file at a path, where there is one.
fn found(v: &Volume, path: &str) -> Option<u8> {
    let bytes = content(v, at(v, path)?.ino);
    if bytes.is_empty() { None } else { Some(version(&bytes)) }
}

/// Runs a workload on a volume with two directories, `a` and `b`, and judges all of its crash states; the workload's
/// fsyncs need so many checkpoints.
fn check(expected: u64, workload: impl Fn(&Volume, [Ino; 2], &dyn Fn(u64)), judge: impl Fn(&Volume, u64)) {
    let base = blank_delta(64);
    let checkpoints = Cell::new(0);
    let counted = |v: &Volume, mark: &dyn Fn(u64)| {
        let dirs = ["a", "b"].map(|name| dir(v, v.root(), name));
        v.sync().expect("sync");
        workload(v, dirs, mark);
        checkpoints.set(v.stats().fsyncs_with_checkpoint);
    };
    crash(&base, "", counted, &judge);
    assert_eq!(checkpoints.get(), expected, "checkpoints that the fsyncs made");
}

/// A file of the checkpoint moves from `a/x` to `b/y`; whichever directory is synced, both changes are there.
#[test]
fn a_rename_is_there_in_both_directories_or_in_none() {
    for which in [0, 1] {
        let workload = |v: &Volume, dirs: [Ino; 2], mark: &dyn Fn(u64)| {
            written(v, dirs[0], "x", 1);
            v.sync().expect("sync");
            mark(1);
            rename(v, (dirs[0], "x"), (dirs[1], "y"));
            fsync(v, dirs[which]);
            mark(2);
            fsync(v, dirs[1 - which]);
            // Later content goes the usual way.
            let y = at(v, "b/y").expect("the file").ino;
            write(v, y, 0, &page(3));
            fsync(v, y);
            mark(3);
        };
        check(0, workload, |v, mark| {
            let there = (found(v, "a/x"), found(v, "b/y"));
            match mark {
                0 => {}
                1 => assert!([(Some(1), None), (None, Some(1))].contains(&there), "{there:?}"),
                2 => assert!([(None, Some(1)), (None, Some(3))].contains(&there), "{there:?}"),
                _ => assert_eq!(there, (None, Some(3))),
            }
        });
    }
}

/// What editors do: a new file in place of an old one, again and again, each durable with its directory.
#[test]
fn a_file_replaced_by_a_new_one_costs_no_checkpoint() {
    let workload = |v: &Volume, [a, _]: [Ino; 2], mark: &dyn Fn(u64)| {
        v.release(written(v, a, "x", 1), 1);
        v.sync().expect("sync");
        mark(1);
        for round in 2..6 {
            let new = written(v, a, "x.tmp", round);
            fsync(v, new);
            rename(v, (a, "x.tmp"), (a, "x"));
            fsync(v, a);
            v.release(new, 1);
            mark(round.into());
        }
    };
    check(0, workload, |v, mark| {
        if mark > 0 {
            let (x, new) = (found(v, "a/x").expect("one of them"), found(v, "a/x.tmp"));
            assert!([mark, mark + 1].contains(&x.into()), "{x} after round {mark}");
            assert!(new.is_none_or(|new| u64::from(new) == mark + 1), "{new:?} after round {mark}");
        }
    });
}

/// A file of the checkpoint gives its name to a new one, which is fsynced.
#[test]
fn a_former_name_is_given_to_a_new_file() {
    let workload = |v: &Volume, [a, b]: [Ino; 2], mark: &dyn Fn(u64)| {
        written(v, a, "x", 1);
        v.sync().expect("sync");
        mark(1);
        rename(v, (a, "x"), (b, "y"));
        fsync(v, written(v, a, "x", 2));
        mark(2);
        rename(v, (b, "y"), (b, "z"));
        fsync(v, b);
        mark(3);
    };
    check(0, workload, |v, mark| {
        let [x, y, z] = ["a/x", "b/y", "b/z"].map(|path| found(v, path));
        assert!(mark < 1 || [x, y, z].contains(&Some(1)), "the older file is lost: {x:?} {y:?} {z:?}");
        assert!(mark < 2 || x == Some(2), "{x:?}");
        assert!(mark < 3 || (y, z) == (None, Some(1)), "{y:?} {z:?}");
    });
}

/// A file takes the name of a durable one and moves on: the older one must not come back.
#[test]
fn a_file_that_was_replaced_stays_away_when_its_successor_moves_on() {
    for elsewhere in [false, true] {
        let workload = |v: &Volume, [a, b]: [Ino; 2], mark: &dyn Fn(u64)| {
            fsync(v, written(v, a, "x", 1));
            fsync(v, a);
            mark(1);
            let new = written(v, a, "x.tmp", 2);
            rename(v, (a, "x.tmp"), (a, "x"));
            fsync(v, a);
            mark(2);
            let to = if elsewhere { b } else { a };
            rename(v, (a, "x"), (to, "y"));
            fsync(v, if elsewhere { b } else { new });
            mark(3);
        };
        check(1, workload, |v, mark| {
            let to = if elsewhere { "b/y" } else { "a/y" };
            let (x, y) = (found(v, "a/x"), found(v, to));
            assert!(mark < 1 || [x, y].iter().any(Option::is_some), "both are lost");
            assert!(mark != 2 || (x == Some(2)) != (y == Some(2)), "{x:?} {y:?}");
            assert!(mark < 3 || (x, y) == (None, Some(2)), "{x:?} {y:?}");
        });
    }
}

/// A file of the checkpoint leaves a name, and so does the next that had it; only the second is fsynced.
#[test]
fn a_name_that_two_left_shows_neither() {
    let workload = |v: &Volume, [a, _]: [Ino; 2], mark: &dyn Fn(u64)| {
        written(v, a, "x", 1);
        written(v, a, "x.tmp", 2);
        v.sync().expect("sync");
        rename(v, (a, "x.tmp"), (a, "x"));
        let third = written(v, a, "x.tmp", 3);
        rename(v, (a, "x.tmp"), (a, "x"));
        fsync(v, third);
        mark(1);
    };
    check(1, workload, |v, mark| {
        let (x, new) = (found(v, "a/x"), found(v, "a/x.tmp"));
        assert!(mark < 1 || (x, new) == (Some(3), None), "{x:?} {new:?}");
    });
}

/// Files that the checkpoint knows, and new ones, lose their names; the directory's fsync makes that durable.
#[test]
fn files_that_were_removed_stay_away() {
    for held in [false, true] {
        let workload = |v: &Volume, [a, _]: [Ino; 2], mark: &dyn Fn(u64)| {
            let old = written(v, a, "old", 1);
            let link = v.symlink(a, b"link", b"old", 0, 0).expect("symlink");
            v.release(link.ino, 1);
            v.sync().expect("sync");
            mark(1);
            let new = written(v, a, "new", 2);
            fsync(v, new);
            mark(2);
            for name in ["old", "link", "new"] {
                v.unlink(a, name.as_bytes()).expect("unlink");
            }
            if !held {
                v.release(old, 1);
                v.release(new, 1);
            }
            fsync(v, a);
            mark(3);
            fsync(v, written(v, a, "new", 4));
            mark(4);
            v.unlink(a, b"new").expect("unlink");
            fsync(v, a);
            mark(5);
        };
        check(0, workload, |v, mark| {
            let (old, new, link) = (found(v, "a/old"), found(v, "a/new"), at(v, "a/link"));
            assert!(!(1..=2).contains(&mark) || old == Some(1) || mark == 2, "{old:?} at {mark}");
            assert!(mark < 3 || (old.is_none() && link.is_none()), "{old:?} {link:?} at {mark}");
            match mark {
                2 => assert!(new.is_none_or(|new| new == 2), "{new:?}"),
                3 => assert!(new.is_none_or(|new| new == 4), "{new:?}"),
                4 => assert!(new.is_none_or(|new| new == 4), "{new:?}"),
                5 => assert_eq!(new, None),
                _ => {}
            }
        });
    }
}

/// A file replaces a durable one, and its name goes; neither comes back.
#[test]
fn a_name_that_several_had_is_gone_for_all() {
    let workload = |v: &Volume, [a, _]: [Ino; 2], mark: &dyn Fn(u64)| {
        v.release(written(v, a, "x", 1), 1);
        v.sync().expect("sync");
        mark(1);
        let new = written(v, a, "x.tmp", 2);
        rename(v, (a, "x.tmp"), (a, "x"));
        fsync(v, new);
        v.release(new, 1);
        v.unlink(a, b"x").expect("unlink");
        fsync(v, a);
        mark(2);
        fsync(v, written(v, a, "y", 3));
        mark(3);
    };
    check(0, workload, |v, mark| {
        let (x, y) = (found(v, "a/x"), found(v, "a/y"));
        assert!(mark < 2 || x.is_none(), "{x:?} at {mark}");
        assert!(mark < 3 || y == Some(3), "{y:?} at {mark}");
    });
}

/// A link less, directories, and more names than fit a block.
#[test]
fn what_one_list_of_names_cannot_tell_takes_a_checkpoint() {
    let linked = |v: &Volume, [a, b]: [Ino; 2], mark: &dyn Fn(u64)| {
        let ino = written(v, a, "x", 1);
        v.link(ino, b, b"y").expect("link");
        dir(v, a, "d");
        v.sync().expect("sync");
        v.unlink(a, b"x").expect("unlink");
        fsync(v, a);
        mark(1);
        v.rmdir(a, b"d").expect("rmdir");
        fsync(v, a);
        mark(2);
    };
    check(2, linked, |v, mark| {
        assert!(mark < 1 || (found(v, "a/x"), found(v, "b/y")) == (None, Some(1)));
        assert!(mark < 2 || at(v, "a/d").is_none());
    });
    let name = |n: usize| format!("{n:0200}");
    let many = |v: &Volume, [a, _]: [Ino; 2], mark: &dyn Fn(u64)| {
        (0..20).for_each(|n| v.release(written(v, a, &name(n), 1), 1));
        v.sync().expect("sync");
        (0..20).for_each(|n| v.unlink(a, name(n).as_bytes()).expect("unlink"));
        fsync(v, a);
        mark(1);
    };
    check(1, many, |v, mark| {
        assert!(mark < 1 || (0..20).all(|n| at(v, &format!("a/{}", name(n))).is_none()))
    });
}

/// Two files exchange their names by way of a third.
#[test]
fn names_that_go_round_are_settled_by_a_checkpoint() {
    let workload = |v: &Volume, [a, _]: [Ino; 2], mark: &dyn Fn(u64)| {
        written(v, a, "x", 1);
        written(v, a, "y", 2);
        v.sync().expect("sync");
        mark(1);
        for (from, to) in [("x", "t"), ("y", "x"), ("t", "y")] {
            rename(v, (a, from), (a, to));
        }
        fsync(v, a);
        mark(2);
    };
    check(1, workload, |v, mark| {
        let there = ["a/x", "a/y", "a/t"].map(|path| found(v, path));
        assert!(mark < 1 || (there.contains(&Some(1)) && there.contains(&Some(2))), "{there:?}");
        assert!(mark < 2 || there == [Some(2), Some(1), None], "{there:?}");
    });
}

/// What the last checkpoint's inode does not tell takes a checkpoint: several links, and a name that it does not say.
#[test]
fn what_one_inode_cannot_tell_takes_a_checkpoint() {
    let linked = |v: &Volume, [a, b]: [Ino; 2], mark: &dyn Fn(u64)| {
        let x = written(v, a, "x", 1);
        v.link(x, b, b"second").expect("link");
        v.unlink(b, b"second").expect("unlink");
        v.sync().expect("sync");
        mark(1);
        rename(v, (a, "x"), (b, "y"));
        fsync(v, b);
        mark(2);
    };
    let several = |v: &Volume, [a, b]: [Ino; 2], mark: &dyn Fn(u64)| {
        let x = written(v, a, "x", 1);
        v.link(x, b, b"second").expect("link");
        v.sync().expect("sync");
        mark(1);
        rename(v, (a, "x"), (b, "y"));
        fsync(v, a);
        mark(2);
    };
    let judge = |v: &Volume, mark: u64| {
        let there = (found(v, "a/x"), found(v, "b/y"));
        assert!(mark < 1 || [(Some(1), None), (None, Some(1))].contains(&there), "{there:?}");
        assert!(mark < 2 || there == (None, Some(1)), "{there:?}");
    };
    check(1, linked, judge);
    check(1, several, judge);
}

/// A new file need not be fsynced before its directory is.
#[test]
fn a_few_new_files_are_made_durable_with_their_directory() {
    let workload = |v: &Volume, [a, _]: [Ino; 2], mark: &dyn Fn(u64)| {
        for name in ["x", "y"] {
            written(v, a, name, 1);
        }
        fsync(v, a);
        mark(1);
    };
    check(0, workload, |v, mark| {
        assert!(mark < 1 || (at(v, "a/x").is_some() && at(v, "a/y").is_some()));
    });
}

#[test]
fn an_fsync_with_nothing_dirty_writes_nothing() {
    let v = open(blank_delta(64));
    let d = dir(&v, v.root(), "d");
    v.sync().expect("sync");
    let cost = |ino: Ino| {
        let numbers = || (v.stats().written.total(), v.stats().flushes);
        let before = numbers();
        v.fsync(ino, false).expect("fsync");
        (numbers().0 - before.0, numbers().1 - before.1)
    };
    assert_eq!(cost(d), (0, 0), "a directory of the checkpoint");
    let f = written(&v, d, "f", 1);
    assert!(cost(f).0 > 0);
    assert_eq!((cost(f), cost(d)), ((0, 0), (0, 0)), "a new file that is durable");
    rename(&v, (d, "f"), (d, "g"));
    assert_eq!(cost(d).0, 1, "the inode with its new name");
    assert_eq!((cost(d), cost(f)), ((0, 0), (0, 0)));
    write(&v, f, 0, b"a small change");
    assert_eq!(cost(f).0, 1, "the inode with a delta");
    assert_eq!((cost(f), cost(d), cost(v.root())), ((0, 0), (0, 0), (0, 0)));
}
