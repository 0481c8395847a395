//! Promises of docs/SEMANTICS.md about power loss: every crash state of a workload is opened and judged.
//!
//! A workload runs on a recording device and marks what it has been acknowledged. A judge sees each state that the
//! device may hold after losing power, with the last mark made before.

use crate::common::*;
use medfs::{FallocateMode, FileKind, Files, Ino, ManualClock, RenameFlags, SetAttr, Timestamp, Volume};
use medfs_device::crash::RecordingDevice;
use std::sync::Arc;
use std::time::Duration;

#[test]
fn fsynced_pages_are_found_as_new_as_the_fsync() {
    const PAGES: u64 = 3;
    for base in bases() {
        let workload = |v: &Volume, mark: &dyn Fn(u64)| {
            let f = file(v, v.root(), "f");
            for round in 1..=4 {
                for n in 0..PAGES {
                    write(v, f, n * PAGE as u64, &page(round));
                }
                v.fsync(f, round % 2 == 0).expect("fsync");
                mark(u64::from(round));
            }
            write(v, f, 0, &page(5));
        };
        crash(&base, "", workload, |v, mark| {
            let Some(attr) = at(v, "f") else {
                assert_eq!(mark, 0, "the fsynced file is gone");
                return;
            };
            let found = content(v, attr.ino);
            assert!(mark == 0 || found.len() == PAGE * PAGES as usize, "{} bytes", found.len());
            for page in found.chunks(PAGE) {
                let version = u64::from(version(page));
                assert!((mark..=5).contains(&version), "version {version} after fsync of {mark}");
            }
        });
    }
}

#[test]
fn an_fsynced_file_is_found_under_its_name() {
    for base in bases() {
        let workload = |v: &Volume, mark: &dyn Fn(u64)| {
            let outer = dir(v, v.root(), "outer");
            let inner = dir(v, outer, "inner");
            let f = file(v, inner, "file");
            write(v, f, 0, b"here");
            v.fsync(f, false).expect("fsync");
            mark(1);
            v.link(f, v.root(), b"second").expect("link");
            v.fsync(f, false).expect("fsync");
            mark(2);
        };
        crash(&base, "", workload, |v, mark| {
            if mark >= 1 {
                let attr = at(v, "outer/inner/file").expect("the name is there");
                assert_eq!(content(v, attr.ino), b"here");
            }
            if mark >= 2 {
                assert_eq!(at(v, "second").expect("the second name is there").nlink, 2);
            }
        });
    }
}

#[test]
fn an_fsynced_directory_keeps_its_names() {
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let d = dir(v, v.root(), "d");
        for name in ["a", "b", "c"] {
            file(v, d, name);
        }
        v.fsync(d, false).expect("fsync");
        mark(1);
        v.unlink(d, b"a").expect("unlink");
        v.fsync(d, false).expect("fsync");
        mark(2);
    };
    crash(&blank(64, all_features()), "", workload, |v, mark| {
        let found = at(v, "d").map(|d| names(v, d.ino)).unwrap_or_default();
        match mark {
            0 => {}
            1 => assert!(found == ["a", "b", "c"] || found == ["b", "c"], "{found:?}"),
            _ => assert_eq!(found, ["b", "c"]),
        }
    });
}

#[test]
fn a_rename_replaces_wholly_or_not_at_all() {
    for base in bases() {
        let workload = |v: &Volume, mark: &dyn Fn(u64)| {
            let old = file(v, v.root(), "config");
            write(v, old, 0, &page(1));
            v.fsync(old, false).expect("fsync");
            v.sync().expect("sync");
            mark(1);
            let new = file(v, v.root(), "config.tmp");
            write(v, new, 0, &page(2));
            v.fsync(new, false).expect("fsync");
            v.rename(v.root(), b"config.tmp", v.root(), b"config", RenameFlags::empty()).expect("rename");
            v.fsync(new, false).expect("fsync");
            mark(2);
            v.sync().expect("sync");
            mark(3);
        };
        crash(&base, "", workload, |v, mark| {
            if mark == 0 {
                return;
            }
            let attr = at(v, "config").expect("one of the two is there");
            let found = content(v, attr.ino);
            assert_eq!(found.len(), PAGE);
            let version = u64::from(version(&found));
            assert!(
                (1..=2).contains(&version) && (mark < 2 || version == 2),
                "version {version} after mark {mark}"
            );
            assert!(mark < 3 || at(v, "config.tmp").is_none(), "the old name is still there after sync");
        });
    }
}

#[test]
fn after_sync_everything_is_there() {
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let d = dir(v, v.root(), "d");
        let f = file(v, d, "f");
        write(v, f, 0, &vec![3; 5 * PAGE + 17]);
        let link = v.symlink(d, b"l", b"f", 0, 0).expect("symlink");
        v.setxattr(f, b"user.colour", b"blue", medfs::XattrMode::Set).expect("xattr");
        v.create(d, b"pipe", &new(FileKind::Fifo)).expect("fifo");
        v.release(link.ino, 1);
        v.sync().expect("sync");
        mark(1);
        write(v, f, 0, &page(9));
    };
    crash(&blank(64, all_features()), "", workload, |v, mark| {
        if mark == 0 {
            return;
        }
        let d = at(v, "d").expect("the directory");
        assert_eq!(names(v, d.ino), ["f", "l", "pipe"]);
        let f = at(v, "d/f").expect("the file");
        assert_eq!(f.size, 5 * PAGE as u64 + 17);
        assert_eq!(v.getxattr(f.ino, b"user.colour").expect("xattr"), b"blue");
        assert_eq!(v.readlink(at(v, "d/l").expect("the link").ino).expect("readlink"), b"f");
        assert_eq!(at(v, "d/pipe").expect("the fifo").kind, FileKind::Fifo);
    });
}

/// A checkpoint between write and sync takes the file's times along: then the page is all that the sync has to write.
#[test]
fn what_is_overwritten_in_place_is_there_after_sync() {
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let f = file(v, v.root(), "f");
        write(v, f, 0, &page(3));
        v.sync().expect("sync");
        mark(1);
        write(v, f, 0, &page(4));
        v.checkpoint().expect("checkpoint");
        v.sync().expect("sync");
        assert_eq!(v.stats().in_place_blocks, 1);
        mark(2);
    };
    for options in ["in_place=force", "in_place=force,fsync_mode=posix"] {
        crash(&blank(64, all_features()), options, workload, |v, mark| {
            if mark == 0 {
                return;
            }
            let shown = content(v, at(v, "f").expect("the file").ino);
            assert!(shown == page(4) || (mark == 1 && shown == page(3)), "after {mark}");
        });
    }
}

#[test]
fn truncation_never_brings_old_bytes_back() {
    let base = blank(64, all_features());
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let f = file(v, v.root(), "f");
        write(v, f, 0, &vec![7; 3 * PAGE]);
        v.fsync(f, false).expect("fsync");
        let set = |size| medfs::SetAttr { size: Some(size), ..Default::default() };
        v.setattr(f, &set(100)).expect("truncate");
        v.setattr(f, &set(2 * PAGE as u64)).expect("extend");
        v.fsync(f, false).expect("fsync");
        mark(1);
    };
    crash(&base, "", workload, |v, mark| {
        if mark == 1 {
            let found = content(v, at(v, "f").expect("the file").ino);
            assert_eq!(found.len(), 2 * PAGE);
            assert!(found[..100].iter().all(|b| *b == 7) && found[100..].iter().all(|b| *b == 0));
        }
    });
}

#[test]
fn an_atomic_write_is_there_wholly_or_not_at_all() {
    let base = blank(64, all_features());
    let workload = |v: &Volume, mark: &dyn Fn(u64)| {
        let f = file(v, v.root(), "db");
        write(v, f, 0, &vec![1; 4 * PAGE]);
        v.sync().expect("sync");
        mark(1);
        v.atomic_start(f).expect("start");
        write(v, f, 0, &page(2));
        write(v, f, 2 * PAGE as u64, &page(2));
        v.atomic_commit(f).expect("commit");
        mark(2);
    };
    crash(&base, "", workload, |v, mark| {
        if mark == 0 {
            return;
        }
        let found = content(v, at(v, "db").expect("the file").ino);
        let versions: Vec<u8> = found.chunks(PAGE).map(version).collect();
        assert!(
            versions == [2, 1, 2, 1] || (mark < 2 && versions == [1, 1, 1, 1]),
            "{versions:?} after mark {mark}"
        );
    });
}

fn resize(v: &Volume, ino: Ino, size: u64) {
    let set = SetAttr { size: Some(size), ..SetAttr::default() };
    assert_eq!(v.setattr(ino, &set).expect("resized").size, size);
}

/// A table that becomes shorter while some of its pages change, and longer again.
#[test]
fn what_is_cut_off_in_an_atomic_write_is_there_until_it_commits() {
    for base in bases() {
        let workload = |v: &Volume, mark: &dyn Fn(u64)| {
            let f = file(v, v.root(), "db");
            write(v, f, 0, &vec![1; 8 * PAGE]);
            v.sync().expect("sync");
            mark(1);
            v.atomic_start(f).expect("start");
            write(v, f, 0, &page(2));
            resize(v, f, 2 * PAGE as u64 + 100);
            write(v, f, 4 * PAGE as u64, &page(2));
            assert_eq!(v.getattr(f).expect("getattr").size, 5 * PAGE as u64, "who reads sees the new size");
            v.sync().expect("sync");
            mark(2);
            v.atomic_commit(f).expect("commit");
            mark(3);
        };
        let new = [vec![2; PAGE], vec![1; PAGE + 100], vec![0; 2 * PAGE - 100], vec![2; PAGE]].concat();
        crash(&base, "", workload, |v, mark| {
            if mark == 0 {
                return;
            }
            let found = content(v, at(v, "db").expect("the file").ino);
            let old = found == vec![1; 8 * PAGE];
            assert!(found == new || (mark < 3 && old), "{} bytes after mark {mark}", found.len());
        });
    }
}

#[test]
fn an_aborted_atomic_write_leaves_the_size_as_it_was() {
    let device = Arc::new(blank(64, all_features()));
    let v = open(device.snapshot());
    let f = file(&v, v.root(), "db");
    write(&v, f, 0, &vec![1; 8 * PAGE]);
    v.sync().expect("sync");
    let before = (v.getattr(f).expect("getattr"), v.statfs().expect("statfs").free);
    for size in [0, 100, 3 * PAGE as u64, 9 * PAGE as u64 + 1] {
        v.atomic_start(f).expect("start");
        write(&v, f, 12 * PAGE as u64, &page(2));
        resize(&v, f, size);
        let mut seen = vec![1; 8 * PAGE];
        seen.resize(size as usize, 0);
        assert!(content(&v, f) == seen, "who reads sees what is cut off to {size}");
        v.atomic_abort(f).expect("abort");
        assert_eq!((v.getattr(f).expect("getattr"), v.statfs().expect("statfs").free), before);
        assert!(content(&v, f) == vec![1; 8 * PAGE]);
    }
}

#[test]
fn files_without_a_name_leave_no_trace() {
    let base = blank(64, all_features());
    let empty = open(base.snapshot());
    let free = empty.space().free;
    drop(empty);
    let recorder = Arc::new(RecordingDevice::new(&base));
    let v = open_with(recorder.clone(), "", Arc::new(ManualClock::new(START)));
    let gone = file(&v, v.root(), "gone");
    write(&v, gone, 0, &vec![1; 20 * PAGE]);
    let nameless = v.tmpfile(v.root(), &new(FileKind::Regular)).expect("tmpfile").ino;
    write(&v, nameless, 0, &page(1));
    v.unlink(v.root(), b"gone").expect("unlink");
    assert_eq!(content(&v, gone).len(), 20 * PAGE, "it reads while it is held");
    v.sync().expect("sync");
    drop(v); // power is lost while both are open
    let v = open(recorder.snapshot());
    assert_eq!(v.stats().orphans_freed, 2);
    assert_eq!(v.space().free, free);
    assert!(v.getattr(gone).is_err() && v.getattr(nameless).is_err());
}

#[test]
fn what_nobody_synced_is_durable_after_the_commit_interval() {
    let device = Arc::new(blank(64, all_features()));
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(device.clone(), "commit=60s", clock.clone());
    let f = file(&v, v.root(), "f");
    write(&v, f, 0, b"typed and never saved");
    for _ in 0..61 {
        clock.advance(Duration::from_secs(1));
        v.background().expect("background work");
    }
    drop(v);
    let v = open(device.snapshot());
    let f = at(&v, "f").expect("the file is there");
    assert_eq!(content(&v, f.ino), b"typed and never saved");
}

#[test]
fn times_are_durable_after_the_commit_interval() {
    let set = Timestamp { secs: 1_000_000, nanos: 0 };
    let set_time = |v: &Volume, f| {
        v.setattr(f, &SetAttr { mtime: Some(set), ..SetAttr::default() }).expect("setattr");
        set
    };
    // What a write in place leaves, once its data is durable.
    let write_in_place = |v: &Volume, f| {
        write(v, f, 0, &page(2));
        v.fsync(f, true).expect("fdatasync");
        v.getattr(f).expect("attributes").mtime
    };
    type Change<'c> = &'c dyn Fn(&Volume, u32) -> Timestamp;
    let changes: [Change<'_>; 2] = [&set_time, &write_in_place];
    for change in changes {
        let device = Arc::new(blank(64, all_features()));
        let clock = Arc::new(ManualClock::new(START));
        let v = open_with(device.clone(), "commit=60s,relatime", clock.clone());
        let f = file(&v, v.root(), "f");
        write(&v, f, 0, &page(1));
        v.sync().expect("sync");
        let wait = || {
            for _ in 0..61 {
                clock.advance(Duration::from_secs(1));
                v.background().expect("background work");
            }
        };
        wait();
        let mtime = change(&v, f);
        wait();
        let checkpoints = v.stats().checkpoints;
        let found = open(device.snapshot());
        assert_eq!(at(&found, "f").expect("the file").mtime, mtime);
        // A read alone makes no checkpoint.
        content(&v, f);
        wait();
        assert_eq!(v.stats().checkpoints, checkpoints);
    }
}

#[test]
fn while_an_atomic_write_is_open_nothing_else_changes_the_content() {
    let device = Arc::new(blank(64, all_features()));
    let v = open(device.snapshot());
    let f = file(&v, v.root(), "db");
    write(&v, f, 0, &vec![1; 4 * PAGE]);
    v.sync().expect("sync");
    v.atomic_start(f).expect("start");
    write(&v, f, 0, &page(2));
    let (page_size, keep) = (PAGE as u64, FallocateMode::KEEP_SIZE);
    let refused = |result: medfs::Result<()>| assert_eq!(result.expect_err("not now").errno(), 16);
    for mode in [
        FallocateMode::empty(),
        FallocateMode::ZERO_RANGE,
        FallocateMode::PUNCH_HOLE | keep,
        FallocateMode::COLLAPSE_RANGE,
        FallocateMode::INSERT_RANGE,
    ] {
        refused(v.fallocate(f, mode, page_size, page_size));
    }
    v.fallocate(f, keep, 8 * page_size, page_size).expect("reserving changes nothing");
    v.atomic_abort(f).expect("abort");
    assert_eq!(content(&v, f), vec![1; 4 * PAGE]);
    v.setattr(f, &SetAttr { size: Some(100), ..SetAttr::default() }).expect("it is over");
    // What is freed with an open atomic write counts no more as dirty.
    for _ in 0..3 {
        let g = file(&v, v.root(), "g");
        v.atomic_start(g).expect("start");
        write(&v, g, 0, &vec![3; 60 * PAGE]);
        v.unlink(v.root(), b"g").expect("unlink");
        v.release(g, 1);
    }
    v.sync().expect("sync");
    assert_eq!(v.stats().dirty_pages, 0);
}

#[test]
fn a_judge_can_find_fault() {
    let base = blank(64, all_features());
    let fails = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let workload = |v: &Volume, mark: &dyn Fn(u64)| {
            let f = file(v, v.root(), "f");
            write(v, f, 0, &page(1));
            mark(1); // a lie: nothing was synced
            v.sync().expect("sync");
        };
        crash(&base, "", workload, |v, mark| assert!(mark == 0 || at(v, "f").is_some()));
    }));
    assert!(fails.is_err(), "a file that was never synced survived every crash");
}

/// What SQLite does in its DELETE mode: a journal that comes and goes, and a directory that is fsynced after it came.
#[test]
fn a_directory_fsynced_without_a_checkpoint_keeps_the_journal() {
    for base in bases() {
        let saved = std::cell::Cell::new(0);
        let workload = |v: &Volume, mark: &dyn Fn(u64)| {
            let db = file(v, v.root(), "db");
            write(v, db, 0, &page(0));
            v.sync().expect("sync");
            for round in 1..=4 {
                let journal = file(v, v.root(), "db-journal");
                write(v, journal, 0, &page(round));
                v.fsync(journal, false).expect("fsync");
                v.fsync(v.root(), false).expect("fsync of the directory");
                mark(2 * u64::from(round) - 1);
                write(v, db, 0, &page(round));
                v.fsync(db, false).expect("fsync");
                mark(2 * u64::from(round));
                v.unlink(v.root(), b"db-journal").expect("unlink");
                v.release(journal, 1);
            }
            saved.set(v.stats().dir_fsyncs_saved);
        };
        let judge = |v: &Volume, mark: u64| {
            if mark == 0 {
                return;
            }
            let round = mark.div_ceil(2) as u8;
            let read = |name| at(v, name).map(|attr| version(&content(v, attr.ino)));
            let db = read("db").expect("the database");
            if mark.is_multiple_of(2) {
                assert_eq!(db, round);
            } else {
                assert!(
                    db == round || (db == round - 1 && read("db-journal") == Some(round)),
                    "{db} of {round}"
                );
            }
        };
        crash(&base, "dir_fsync=recover", workload, judge);
        assert_eq!(saved.get(), 4, "no checkpoint was needed");
    }
}

/// Changes that roll-forward would not bring back still make a checkpoint.
#[test]
fn a_directory_with_other_changes_is_fsynced_by_a_checkpoint() {
    type Change = fn(&Volume);
    let changes: [(&str, Change); 8] = [
        ("a file that is not durable", |v| assert!(file(v, v.root(), "new") > 0)),
        ("a durable file is gone", |v| v.unlink(v.root(), b"old").expect("unlink")),
        ("a directory", |v| assert!(dir(v, v.root(), "new") > 0)),
        ("a link", |v| {
            let old = at(v, "old").expect("a file").ino;
            v.link(old, v.root(), b"new").expect("link");
        }),
        ("a rename", |v| {
            v.rename(v.root(), b"old", v.root(), b"new", RenameFlags::empty()).expect("rename");
        }),
        ("an attribute", |v| {
            v.setxattr(v.root(), b"user.a", b"b", medfs::XattrMode::Set).expect("setxattr");
        }),
        ("a mode", |v| {
            let set = medfs::SetAttr { perm: Some(0o700), ..Default::default() };
            v.setattr(v.root(), &set).expect("chmod");
        }),
        ("a time that somebody set", |v| {
            let set = medfs::SetAttr { mtime: Some(START), ..Default::default() };
            v.setattr(v.root(), &set).expect("utimes");
        }),
    ];
    for base in bases() {
        for (what, change) in changes {
            let device = Arc::new(base.snapshot());
            let v = open_with(device, "dir_fsync=recover", Arc::new(ManualClock::new(START)));
            file(&v, v.root(), "old");
            v.sync().expect("sync");
            let before = v.stats().checkpoints;
            change(&v);
            v.fsync(v.root(), false).expect("fsync");
            assert_eq!(v.stats().checkpoints, before + 1, "{what}");
        }
    }
}
