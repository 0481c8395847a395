//! `apps=`: which app a file belongs to, and what waits of each.

use crate::adaptive::opened;
use crate::common::*;
use medfs::stats::{AppStats, CommitReason};
use medfs::{FileKind, Files, ManualClock, NewFile, RenameFlags, SetAttr, Volume};
use medfs_device::MemDevice;
use medfs_format::Ino;
use std::sync::Arc;
use std::time::Duration;

const OTHERS: &str = "others";

fn apps(v: &Volume) -> Vec<AppStats> {
    v.stats().apps.expect("the volume has several")
}

fn app(v: &Volume, name: &str) -> AppStats {
    let all = apps(v);
    all.iter().find(|app| app.name == name).unwrap_or_else(|| panic!("{name}: {all:?}")).clone()
}

/// Pages and nodes that are dirty, of those apps that have any.
fn waiting(v: &Volume) -> Vec<(String, u64)> {
    let all = apps(v).into_iter().filter(|app| app.bytes_waiting > 0);
    all.map(|app| (app.name, app.bytes_waiting / PAGE as u64)).collect()
}

fn of(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(name, blocks)| ((*name).to_owned(), *blocks)).collect()
}

/// A folder of the root for each name with a file in it that has a page; all is durable.
fn folders<const N: usize>(v: &Volume, names: [&str; N]) -> [Ino; N] {
    let files = names.map(|name| file(v, dir(v, v.root(), name), "f"));
    files.iter().for_each(|&f| write(v, f, 0, &[1; PAGE]));
    v.sync().unwrap();
    files
}

#[test]
fn the_bytes_that_wait_are_bounded_for_each_app() {
    let (v, device, _) = opened(blank_delta(64), ",apps=top,durability_bytes=64K");
    let [a, b] = folders(&v, ["a", "b"]);
    for page in 0..12 {
        write(&v, a, page * PAGE as u64, &[2; PAGE]);
        write(&v, b, page * PAGE as u64, &[3; PAGE]);
    }
    assert_eq!(waiting(&v), of(&[("/a", 13), ("/b", 13)]), "an inode is a block more");
    assert_eq!(found(&device, [a, b]), [1, 1]);
    for page in 12..16 {
        write(&v, b, page * PAGE as u64, &[3; PAGE]);
    }
    assert_eq!(found(&device, [a, b]), [1, 3]);
    let told = |name: &str| app(&v, name);
    assert_eq!((told("/b").commits_caused, told("/b").last_commit), (1, Some(CommitReason::Bytes)));
    let before = told("/a").commits;
    v.sync().unwrap();
    assert_eq!((told("/a").commits - before, told("/a").commits_caused), (1, 0));
    assert_eq!(told("/a").last_commit, Some(CommitReason::Others));
    assert_eq!(v.stats().adaptive.unwrap().commits_by_bytes, 1);
}

#[test]
fn an_fsync_of_what_is_durable_is_not_put_off() {
    for options in [",apps=top,durability_fsyncs=2", ",durability_fsyncs=2"] {
        let (v, _, _) = opened(blank_delta(64), options);
        let [a, _] = folders(&v, ["a", "b"]);
        let told = || (v.stats().apps, v.stats().adaptive);
        let before = told();
        (0..9).for_each(|_| v.fsync(a, false).unwrap());
        assert_eq!(told(), before, "{options}");
        write(&v, a, 0, &[2; PAGE]);
        v.fsync(a, false).unwrap();
        assert_eq!(v.stats().adaptive.unwrap().fsyncs_waiting, 1, "{options}");
    }
}

#[test]
fn fsyncs_that_wait_are_bounded_for_each_app() {
    let (v, device, _) = opened(blank_delta(64), ",apps=top,durability_fsyncs=2");
    let [a, b] = folders(&v, ["a", "b"]);
    for n in 2..4 {
        for f in [a, b] {
            write(&v, f, 0, &[n; PAGE]);
            v.fsync(f, false).unwrap();
        }
    }
    assert_eq!(found(&device, [a, b]), [1, 1]);
    assert_eq!((app(&v, "/a").fsyncs_waiting, v.stats().adaptive.unwrap().fsyncs_waiting), (2, 4));
    v.fsync(b, false).unwrap();
    assert_eq!(found(&device, [a, b]), [1, 3]);
    assert_eq!(app(&v, "/b").last_commit, Some(CommitReason::Fsyncs));
}

/// The oldest change counts, whatever other apps do.
#[test]
fn the_age_of_each_app_is_bounded() {
    let (v, device, clock) = opened(blank_delta(64), ",apps=top,durability_age=10s");
    let [a, b] = folders(&v, ["a", "b"]);
    clock.advance(Duration::from_secs(50));
    write(&v, a, 0, &[2; PAGE]);
    for second in 1..9 {
        clock.advance(Duration::from_secs(1));
        write(&v, b, 0, &[3; PAGE]);
        v.background().unwrap();
        assert_eq!(app(&v, "/a").oldest_millis, Some(second * 1000));
        assert_eq!(found(&device, [a, b]), [1, 1]);
    }
    clock.advance(Duration::from_secs(1));
    v.background().unwrap();
    assert_eq!(found(&device, [a, b]), [2, 1]);
    assert_eq!(app(&v, "/a").last_commit, Some(CommitReason::Age));
    assert_eq!(app(&v, "/b").commits_caused, 0);
}

#[test]
fn the_policy_counts_for_each_app() {
    let (v, device, _) =
        opened(blank_delta(64), ",apps=top,durability_policy=staleness,durability_staleness=64K");
    let [a, b] = folders(&v, ["a", "b"]);
    for n in 0..15 {
        write(&v, a, 0, &[n; PAGE]);
        write(&v, b, 0, &[n; PAGE]);
    }
    assert_eq!(found(&device, [a, b]), [1, 1], "15 changes of each");
    write(&v, b, 0, &[15; PAGE]);
    assert_eq!(found(&device, [a, b]), [1, 1]);
    write(&v, a, 0, &[16; PAGE]);
    assert_eq!(found(&device, [a, b]), [1, 15], "16 changes of one, before the next one of any");
    assert_eq!(app(&v, "/b").last_commit, Some(CommitReason::Staleness));
}

#[test]
fn files_are_in_the_deepest_folder_that_a_pattern_names() {
    let options = ",apps=/data/data/*:/data:/none/*";
    let (v, device, _) = opened(blank_delta(64), options);
    let data = dir(&v, v.root(), "data");
    let users = dir(&v, data, "data");
    let mail = dir(&v, dir(&v, dir(&v, users, "mail"), "db"), "deeper");
    let files = [file(&v, v.root(), "f"), file(&v, data, "f"), file(&v, users, "f"), file(&v, mail, "f")];
    v.close().unwrap();
    drop(v);
    // Nothing of it is on the volume: the names tell it again.
    let (v, ..) = opened(device.snapshot(), options);
    files.iter().for_each(|&f| write(&v, f, 0, b"small"));
    assert_eq!(waiting(&v), of(&[(OTHERS, 1), ("/data", 2), ("/data/data/mail", 1)]));
}

#[test]
fn files_follow_their_owner_and_their_folder() {
    let (v, ..) = opened(blank_delta(64), ",apps=uid");
    let user = NewFile { uid: 1000, ..new(FileKind::Regular) };
    let f = v.create(v.root(), b"f", &user).unwrap().ino;
    v.sync().unwrap();
    write(&v, f, 0, &[2; 2 * PAGE]);
    assert_eq!(waiting(&v), of(&[("uid 1000", 3)]));
    v.setattr(f, &SetAttr { uid: Some(7), ..SetAttr::default() }).unwrap();
    assert_eq!(waiting(&v), of(&[("uid 7", 3)]), "with what was changed before");

    let (v, ..) = opened(blank_delta(64), ",apps=top");
    let [f, other] = folders(&v, ["a", "b"]);
    let deep = dir(&v, at(&v, "a").unwrap().ino, "deep");
    let below = file(&v, deep, "below");
    v.sync().unwrap();
    write(&v, below, 0, &[1; PAGE]);
    assert_eq!(waiting(&v), of(&[("/a", 2)]));
    let [a, b] = ["a", "b"].map(|name| at(&v, name).unwrap().ino);
    v.rename(a, b"deep", b, b"deep", RenameFlags::empty()).unwrap();
    v.sync().unwrap();
    [f, other, below].iter().for_each(|&f| write(&v, f, 0, &[9; PAGE]));
    assert_eq!(waiting(&v), of(&[("/a", 2), ("/b", 4)]));
}

/// Far more folders than there may be apps: the others are one together, and nothing of what goes is kept.
#[test]
fn many_folders_are_a_bounded_number_of_apps() {
    let (v, ..) = opened(blank_delta(64), ",apps=top,durability_age=1000s");
    let first = folders(&v, ["first"])[0];
    for n in 0..1500 {
        let name = format!("folder {n}");
        dir(&v, v.root(), &name);
        v.rmdir(v.root(), name.as_bytes()).unwrap();
    }
    let last = file(&v, dir(&v, v.root(), "last"), "f");
    v.sync().unwrap();
    write(&v, last, 0, b"small");
    write(&v, first, 0, b"small");
    let all = apps(&v);
    assert!(all.len() <= 1025, "{}", all.len());
    let shares: Vec<_> = all.iter().filter(|app| app.oldest_millis.is_some()).map(|app| &app.name).collect();
    assert_eq!(shares, [OTHERS, "/first"]);
}

/// What waits of all apps is what waits of the volume, whatever files do.
#[test]
fn every_dirty_page_and_node_is_of_one_app() {
    for (seed, rule) in (1..).zip(["top", "uid", "/0/*:/1"]) {
        let options = format!(",apps={rule},durability_bytes=1M,durability_age=10s");
        let (v, device, clock) = opened(blank_delta(64), &options);
        let mut random = Random(seed);
        let tops: Vec<Ino> = (0..3).map(|n| dir(&v, v.root(), &n.to_string())).collect();
        let folders: Vec<Ino> =
            tops.iter().copied().chain(tops.iter().map(|&top| dir(&v, top, "in"))).collect();
        for _ in 0..800 {
            change_something(&v, &folders, &mut random);
            if random.below(20) == 0 {
                clock.advance(Duration::from_secs(1));
                v.background().unwrap();
            }
            let stats = v.stats();
            let waits: u64 = stats.apps.unwrap().iter().map(|app| app.bytes_waiting).sum();
            assert_eq!(waits, stats.adaptive.unwrap().bytes_waiting, "{rule}");
        }
        assert!(v.stats().checkpoints > 5, "{rule}");
        v.close().unwrap();
        drop(v);
        judge(&device);
    }
}

fn change_something(v: &Volume, folders: &[Ino], random: &mut Random) {
    let mut folder = || folders[random.below(folders.len() as u64) as usize];
    let (from, to) = (folder(), folder());
    let name = format!("f{}", random.below(4));
    let found = v.lookup(from, name.as_bytes()).map(|attr| attr.ino);
    match (found, random.below(12)) {
        (Err(_), _) => {
            let owner = random.below(3) as u32;
            v.create(from, name.as_bytes(), &NewFile { uid: owner, ..new(FileKind::Regular) }).unwrap();
        }
        (Ok(_), 0) => v.unlink(from, name.as_bytes()).unwrap(),
        (Ok(_), 1) => {
            let _ = v.rename(from, name.as_bytes(), to, name.as_bytes(), RenameFlags::empty());
        }
        (Ok(f), 2) => {
            v.setattr(f, &SetAttr { uid: Some(random.below(3) as u32), ..SetAttr::default() }).unwrap();
        }
        (Ok(f), 3) => {
            let size = random.below(20 * PAGE as u64);
            v.setattr(f, &SetAttr { size: Some(size), ..SetAttr::default() }).unwrap();
        }
        (Ok(f), 4) => v.fsync(f, false).unwrap(),
        (Ok(f), 5) => {
            let _ = v.atomic_start(f);
            write(v, f, random.below(9) * PAGE as u64, &[3; 900]);
            if random.below(2) == 0 { v.atomic_abort(f).unwrap() } else { v.atomic_commit(f).unwrap() }
        }
        (Ok(f), _) => write(v, f, random.below(20 * PAGE as u64), &noise(random.below(100))),
    }
}

#[test]
fn a_volume_that_is_one_app_tells_of_none() {
    let (v, ..) = opened(blank_delta(64), "");
    assert_eq!(v.stats().apps, None);
    let device: MemDevice = blank_delta(64);
    let v = open_with(Arc::new(device), "apps=top", Arc::new(ManualClock::new(START)));
    assert_eq!(v.stats().apps, None, "nothing waits");
}
