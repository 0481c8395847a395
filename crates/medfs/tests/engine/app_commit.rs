//! Commits of one app alone, by the chain of fsynced nodes.

use crate::adaptive::opened;
use crate::common::*;
use medfs::{Files, Ino, RenameFlags, SetAttr, Volume};
use std::time::Duration;

const OPTIONS: &str = ",apps=top,durability_fsyncs=2,durability_age=10s";

/// Two folders with two files each, of ones; all is durable.
fn two_apps(v: &Volume) -> [Ino; 4] {
    let files = ["a", "b"]
        .map(|name| dir(v, v.root(), name))
        .map(|folder| ["x", "y"].map(|name| file(v, folder, name)));
    let [[ax, ay], [bx, by]] = files;
    let files = [ax, ay, bx, by];
    files.iter().for_each(|&f| write(v, f, 0, &[1; 2 * PAGE]));
    v.sync().unwrap();
    files
}

/// Makes a commit of the app of a file due, and has it.
fn reach_the_bound(v: &Volume, f: Ino) {
    (0..3).for_each(|_| v.fsync(f, false).unwrap());
}

/// Commits by the chain, and by checkpoints.
fn commits(v: &Volume) -> (u64, u64) {
    let stats = v.stats();
    let adaptive = stats.adaptive.unwrap();
    assert_eq!(
        stats.apps.unwrap().iter().map(|app| app.commits_by_chain).sum::<u64>(),
        adaptive.commits_by_chain
    );
    (adaptive.commits_by_chain, adaptive.commits_by_checkpoint)
}

#[test]
fn an_app_is_committed_without_the_others() {
    for device in [blank_delta(64), blank(64, all_features())] {
        let is_delta = open(device.snapshot()).delta_mode() != medfs::DeltaMode::Off;
        let (v, device, _) = opened(device, OPTIONS);
        let files = two_apps(&v);
        let [ax, ay, bx, by] = files;
        let before = commits(&v);
        for (f, value) in [(ax, 2), (bx, 3), (ay, 4), (by, 5)] {
            write(&v, f, 0, &[value; PAGE]);
        }
        reach_the_bound(&v, ax);
        let after = commits(&v);
        if is_delta {
            assert_eq!(found(&device, files), [2, 4, 1, 1], "both files of one app, and none of the other");
            assert_eq!(after, (before.0 + 1, before.1));
            assert_eq!(v.stats().apps.unwrap()[1].fsyncs_waiting, 0);
        } else {
            assert_eq!(found(&device, files), [2, 4, 3, 5], "no node is shared there");
            assert_eq!(after, (before.0, before.1 + 1));
        }
        write(&v, by, 0, &[6; PAGE]);
        v.sync().unwrap();
        write(&v, by, 0, &[7; PAGE]);
        reach_the_bound(&v, by);
        assert_eq!(found(&device, files), [2, 4, 3, 7]);
        assert_eq!(commits(&v).0, after.0 + 1, "one file needs no shared node");
        v.close().unwrap();
        judge(&device);
    }
}

#[test]
fn the_age_and_the_bytes_of_an_app_commit_it_alone() {
    let (v, device, clock) = opened(blank_delta(64), &format!("{OPTIONS},durability_bytes=64K"));
    let files = two_apps(&v);
    let [ax, _, bx, by] = files;
    let before = commits(&v);
    write(&v, ax, 0, &[2; PAGE]);
    clock.advance(Duration::from_secs(5));
    write(&v, bx, 0, &[3; PAGE]);
    clock.advance(Duration::from_secs(4));
    v.background().unwrap();
    assert_eq!(found(&device, files), [2, 1, 1, 1]);
    for page in 0..16 {
        write(&v, by, page * PAGE as u64, &[4; PAGE]);
    }
    write(&v, ax, 0, &[5; PAGE]);
    assert_eq!(found(&device, files), [2, 1, 3, 4]);
    assert_eq!(commits(&v), (before.0 + 2, before.1));
    clock.advance(Duration::from_secs(9));
    v.background().unwrap();
    assert_eq!(found(&device, files), [5, 1, 3, 4], "its age counts from its own commit");
}

/// The timer looks once a second: what is due then does not wait for the next time.
#[test]
fn all_apps_that_are_due_are_committed() {
    let (v, device, clock) = opened(blank_delta(64), OPTIONS);
    let files = two_apps(&v);
    let [ax, _, bx, _] = files;
    let before = commits(&v);
    write(&v, ax, 0, &[2; PAGE]);
    write(&v, bx, 0, &[3; PAGE]);
    clock.advance(Duration::from_secs(9));
    v.background().unwrap();
    assert_eq!((commits(&v), found(&device, files)), ((before.0 + 2, before.1), [2, 1, 3, 1]));
}

/// What the chain does not say of all that an app did takes a checkpoint, until there was one.
#[test]
fn an_app_whose_names_changed_is_committed_with_the_others() {
    type Change = fn(&Volume, [Ino; 4]);
    let changes: [(&str, Change); 6] = [
        ("a new file", |v, _| {
            file(v, at(v, "a").unwrap().ino, "new");
        }),
        ("a file that is gone", |v, _| v.unlink(at(v, "a").unwrap().ino, b"y").unwrap()),
        ("another name", |v, _| {
            let a = at(v, "a").unwrap().ino;
            v.rename(a, b"y", a, b"z", RenameFlags::empty()).unwrap();
        }),
        ("a link in the other app", |v, [ax, ..]| {
            v.link(ax, at(v, "b").unwrap().ino, b"link").unwrap();
        }),
        ("a directory that moved elsewhere", |v, _| {
            let root = v.root();
            v.rename(root, b"b", root, b"c", RenameFlags::empty()).unwrap();
        }),
        ("attributes of the folder", |v, _| {
            let set = SetAttr { perm: Some(0o700), ..SetAttr::default() };
            v.setattr(at(v, "a").unwrap().ino, &set).unwrap();
        }),
    ];
    for (what, change) in changes {
        let (v, device, _) = opened(blank_delta(64), OPTIONS);
        let files = two_apps(&v);
        let [ax, _, bx, _] = files;
        change(&v, files);
        write(&v, ax, 0, &[2; PAGE]);
        write(&v, bx, 0, &[3; PAGE]);
        let before = commits(&v);
        reach_the_bound(&v, ax);
        assert_eq!((commits(&v).0, found(&device, [ax, bx])), (before.0, [2, 3]), "{what}");
        if what.contains("link") {
            continue;
        }
        write(&v, ax, 0, &[4; PAGE]);
        write(&v, bx, 0, &[5; PAGE]);
        reach_the_bound(&v, ax);
        assert_eq!((commits(&v).0, found(&device, [ax, bx])), (before.0 + 1, [4, 3]), "{what}, durable now");
    }
}

/// A file with several links is in no app for sure: while it waits, none is committed alone.
#[test]
fn a_file_with_links_in_two_apps_keeps_both_together() {
    let (v, device, _) = opened(blank_delta(64), OPTIONS);
    let files = two_apps(&v);
    let [ax, ay, bx, _] = files;
    v.link(ax, at(&v, "b").unwrap().ino, b"link").unwrap();
    v.sync().unwrap();
    write(&v, ax, 0, &[2; PAGE]);
    write(&v, bx, 0, &[3; PAGE]);
    write(&v, ay, 0, &[4; PAGE]);
    let before = commits(&v);
    reach_the_bound(&v, ay);
    assert_eq!((commits(&v).0, found(&device, files)), (before.0, [2, 4, 3, 1]));
}

/// More files than a node tells of are committed with all.
#[test]
fn many_files_of_an_app_take_a_checkpoint() {
    let (v, device, _) = opened(blank_delta(64), OPTIONS);
    let folder = dir(&v, v.root(), "a");
    let many: Vec<Ino> = (0..200).map(|n| file(&v, folder, &n.to_string())).collect();
    let other = file(&v, dir(&v, v.root(), "b"), "f");
    v.sync().unwrap();
    write(&v, other, 0, &[1; PAGE]);
    many.iter().for_each(|&f| write(&v, f, 0, &noise(f.into())));
    let before = commits(&v);
    reach_the_bound(&v, many[0]);
    assert_eq!((commits(&v).0, found(&device, [other])), (before.0, [1]));
    let again = open_device(&std::sync::Arc::new(device.snapshot()), "");
    assert!(many.iter().all(|&f| content(&again, f) == noise(f.into())));
}

/// Content that lies in inodes is in the node that they share: what is more than it has room for takes a checkpoint.
#[test]
fn more_than_one_node_tells_takes_a_checkpoint() {
    for (bytes, alone) in [(900, 1), (1500, 0)] {
        let (v, device, _) = opened(blank_delta(64), OPTIONS);
        let folder = dir(&v, v.root(), "a");
        let files = ["x", "y", "z"].map(|name| file(&v, folder, name));
        let other = file(&v, dir(&v, v.root(), "b"), "f");
        [files[0], files[1], files[2], other].iter().for_each(|&f| write(&v, f, 0, &[1; 1500]));
        v.sync().unwrap();
        write(&v, other, 0, &[2; 1500]);
        files.iter().for_each(|&f| write(&v, f, 0, &noise(f.into())[..bytes]));
        let before = commits(&v);
        reach_the_bound(&v, files[2]);
        assert_eq!(commits(&v).0 - before.0, alone, "{bytes}");
        assert_eq!(found(&device, [other]), [if alone == 1 { 1 } else { 2 }]);
        let again = open_device(&std::sync::Arc::new(device.snapshot()), "");
        assert!(files.iter().all(|&f| content(&again, f)[..bytes] == noise(f.into())[..bytes]));
    }
}

/// What the app did before is durable, and what another one did may wait. One that did nothing asks nothing of the
/// device.
#[test]
fn a_barrier_makes_one_app_durable() {
    let (v, device, _) = opened(blank_delta(64), OPTIONS);
    let files = two_apps(&v);
    let [ax, ay, bx, _] = files;
    let (a, b) = (at(&v, "a").unwrap().ino, at(&v, "b").unwrap().ino);
    let before = commits(&v);
    for (f, value) in [(ax, 2), (bx, 3), (ay, 4)] {
        write(&v, f, 0, &[value; PAGE]);
    }
    // An fsync that was put off is within it.
    v.fsync(ax, false).unwrap();
    v.sync_app(ay).unwrap();
    assert_eq!(found(&device, files), [2, 4, 1, 1]);
    assert_eq!(commits(&v), (before.0 + 1, before.1));
    assert_eq!(v.stats().apps.unwrap()[1].fsyncs_waiting, 0);
    let written = (v.stats().written, v.stats().flushes);
    v.sync_app(a).unwrap();
    assert_eq!((v.stats().written, v.stats().flushes), written, "nothing of it waits");
    v.sync_app(b).unwrap();
    assert_eq!(found(&device, files), [2, 4, 3, 1], "a folder is a way to name its app");
    write(&v, ax, 0, &[5; PAGE]);
    write(&v, bx, 0, &[6; PAGE]);
    v.sync_app(v.root()).unwrap();
    let others = found(&device, files);
    assert_eq!((others[0], others[2]), (2, 3), "what is in no folder is an app of its own");
    let new = file(&v, a, "new");
    v.sync_app(new).unwrap();
    assert_eq!(found(&device, files), [5, 4, 6, 1], "a new name takes a checkpoint");
    assert!(at(&open_device(&std::sync::Arc::new(device.snapshot()), ""), "a/new").is_some());
    v.close().unwrap();
    judge(&device);
}

/// Where nothing tells apps apart the barrier is one for all, also where a log or `posix` keeps files by themselves.
#[test]
fn a_barrier_for_an_app_is_one_for_all_where_there_are_no_apps() {
    for (device, options) in [
        (blank_delta(64), "durability=adaptive"),
        (blank(64, all_features()), "durability=adaptive,apps=top"),
        (blank_delta(64), "durability=posix"),
    ] {
        let device = std::sync::Arc::new(device);
        let v = open_device(&device, options);
        let files = two_apps(&v);
        let [ax, ay, bx, _] = files;
        for (f, value) in [(ax, 2), (bx, 3), (ay, 4)] {
            write(&v, f, 0, &[value; PAGE]);
        }
        v.sync_app(ay).unwrap();
        assert_eq!(found(&device, files), [2, 4, 3, 1], "{options}");
        v.close().unwrap();
    }
}
