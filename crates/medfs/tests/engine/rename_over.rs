//! Files written to replace another one: made from that one's blocks, which stay while they are needed.

use crate::common::*;
use medfs::{Files, Ino, ManualClock, RenameFlags, Volume};
use medfs_device::MemDevice;
use medfs_testkit::images::{FsckF2fs, FsckMedfs};
use medfs_testkit::subject::Check;
use std::sync::{Arc, Mutex};

/// Bytes of the document at first.
const SIZE: usize = 60_000;

/// Settings as text, in which line `n` has a value of its own.
fn document(seed: u64) -> Vec<u8> {
    let mut text = Vec::with_capacity(SIZE + 100);
    for n in 0.. {
        if text.len() >= SIZE {
            break;
        }
        let x = (seed * 7919 + n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        text.extend(format!("<string name=\"setting {n}\">{:016x}</string>\n", x).bytes());
    }
    text
}

/// Changes a few bytes of a document, or puts some in.
fn edit(text: &mut Vec<u8>, round: usize) {
    let at = round * 7919 % (text.len() - 40);
    if round.is_multiple_of(3) {
        text.splice(at..at, format!("<new {round}/>\n").bytes());
    } else {
        text[at..at + 8].copy_from_slice(format!("{round:08}").as_bytes());
    }
}

/// Writes a file and renames it over another one, both durable.
fn replace(v: &Volume, dir: Ino, name: &str, text: &[u8]) {
    let temporary = format!("{name}.tmp");
    let new = file(v, dir, &temporary);
    write(v, new, 0, text);
    v.fsync(new, false).expect("fsync");
    v.rename(dir, temporary.as_bytes(), dir, name.as_bytes(), RenameFlags::empty()).expect("rename");
    v.fsync(dir, false).expect("fsync of the directory");
    v.release(new, 1);
}

/// A volume with a document that was replaced often enough for everything to be in place.
fn volume(options: &str) -> (Arc<MemDevice>, Volume, Ino, Vec<u8>) {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, options);
    let d = dir(&v, v.root(), "d");
    let text = document(1);
    for _ in 0..3 {
        replace(&v, d, "doc.xml", &text);
        v.sync().expect("sync");
    }
    (device, v, d, text)
}

fn shown(v: &Volume) -> Vec<u8> {
    content(v, at(v, "d/doc.xml").expect("the document").ino)
}

fn crashed(device: &MemDevice) -> Volume {
    open(Arc::new(device.snapshot()))
}

fn sound(device: &Arc<MemDevice>) {
    FsckMedfs.check(device.clone()).unwrap_or_else(|e| panic!("fsck.medfs: {e}"));
    FsckF2fs.check(device.clone()).unwrap_or_else(|e| panic!("fsck.f2fs: {e}"));
}

#[test]
fn a_replacement_costs_what_is_new_in_it() {
    let blocks = |options| {
        let (device, v, d, mut text) = volume(options);
        let before = v.stats();
        for round in 1..=40 {
            edit(&mut text, round);
            replace(&v, d, "doc.xml", &text);
            assert!(shown(&v) == text, "round {round}");
            assert!(shown(&crashed(&device)) == text, "round {round}, after a crash");
        }
        assert_eq!(v.stats().checkpoints, before.checkpoints);
        let written = v.stats().written.total() - before.written.total();
        v.close().expect("close");
        drop(v);
        sound(&device);
        assert!(shown(&open(device.clone())) == text);
        written
    };
    let (with, without) = (blocks(""), blocks("cross_file_deltas=off"));
    assert!(with * 4 < without, "{with} blocks, {without} without");
}

/// Whoever has the old file open reads on in it, and may write into it.
#[test]
fn a_replaced_file_that_is_open_stays_as_it_was() {
    let (device, v, d, mut text) = volume("");
    let old = v.lookup(d, b"doc.xml").expect("the document").ino;
    let mut before = text.clone();
    edit(&mut text, 1);
    replace(&v, d, "doc.xml", &text);
    assert_eq!(v.getattr(old).expect("attributes").nlink, 0);
    assert!(content(&v, old) == before);
    write(&v, old, 5000, &noise(3));
    before[5000..5000 + PAGE].copy_from_slice(&noise(3));
    let _ = v.fsync(old, false);
    v.sync().expect("sync");
    assert!(content(&v, old) == before && shown(&v) == text);
    assert!(shown(&crashed(&device)) == text);
    v.release(old, 1);
    v.close().expect("close");
    drop(v);
    sound(&device);
}

/// Kept files are neither shown nor found, and go when nothing is made from them any more.
#[test]
fn kept_files_are_hidden_and_go() {
    let (device, v, d, mut text) = volume("");
    edit(&mut text, 1);
    replace(&v, d, "doc.xml", &text);
    let root = v.root();
    let kept = v.stats().valid_inodes;
    assert_eq!(names(&v, root), ["d", "lost+found"]);
    assert_eq!(v.lookup(root, b".medfs.d").expect_err("hidden").errno(), 2);
    let taken = v.create(root, b".medfs.d", &new(medfs::FileKind::Regular));
    assert_eq!(taken.expect_err("taken").errno(), 1);
    v.close().expect("close");
    drop(v);
    let report = medfs_fsck::check(&*device, &Default::default(), &mut |_| ()).expect("memory");
    assert_eq!((report.directories(), report.files()), (3, 1), "what users see is counted");
    let v = open(device.clone());
    let d = at(&v, "d").expect("the directory").ino;
    assert!(shown(&v) == text, "after a mount");
    v.unlink(d, b"doc.xml").expect("unlink");
    for _ in 0..2 {
        v.sync().expect("sync");
        v.fsync(d, false).expect("fsync");
    }
    assert_eq!(v.stats().valid_inodes, kept - 2, "the document and the one it was made from");
    v.close().expect("close");
    drop(v);
    sound(&device);
}

#[test]
fn a_read_only_mount_hides_kept_files_too() {
    let (device, v, d, mut text) = volume("");
    let links = v.getattr(v.root()).expect("attributes").nlink;
    edit(&mut text, 1);
    replace(&v, d, "doc.xml", &text);
    v.close().expect("close");
    drop(v);
    let v = open_device(&device, "ro");
    assert_eq!(v.getattr(v.root()).expect("attributes").nlink, links);
    assert_eq!(names(&v, v.root()), ["d", "lost+found"]);
    assert!(shown(&v) == text);
}

/// Where the new file keeps nothing of the old one, that one is not kept.
#[test]
fn another_content_keeps_nothing() {
    let (_, v, d, _) = volume("");
    let before = v.stats().valid_inodes;
    for round in 0..4u64 {
        let text: Vec<u8> = (0..12).flat_map(|n| noise(100 * round + n)).collect();
        replace(&v, d, "doc.xml", &text);
        v.sync().expect("sync");
        assert!(shown(&v) == text);
    }
    v.fsync(d, false).expect("fsync");
    assert!(v.stats().valid_inodes <= before);
}

#[test]
fn an_export_makes_everything_whole() {
    let (device, v, d, mut text) = volume("");
    for round in 1..4 {
        edit(&mut text, round);
        replace(&v, d, "doc.xml", &text);
    }
    v.close().expect("close");
    drop(v);
    let clock = Arc::new(ManualClock::new(START));
    medfs::convert::export(device.clone(), clock, &mut |_, _, _| {}).expect("exported");
    let v = open(device.clone());
    assert!(shown(&v) == text);
    assert_eq!(names(&v, v.root()), ["d", "lost+found"]);
    v.close().expect("close");
    drop(v);
    FsckF2fs.check(device.clone()).unwrap_or_else(|e| panic!("fsck.f2fs: {e}"));
}

/// Every crash shows the old document or the new one, wholly; what was durable stays.
#[test]
fn every_crash_shows_a_whole_document() {
    let (device, v, _, text) = volume("");
    v.close().expect("close");
    drop(v);
    let versions = Mutex::new(vec![text]);
    crash(
        &device,
        "",
        |v, mark| {
            let d = at(v, "d").expect("the directory").ino;
            for round in 1..7 {
                let mut text = versions.lock().expect("one thread").last().expect("the first").clone();
                edit(&mut text, round);
                versions.lock().expect("one thread").push(text.clone());
                replace(v, d, "doc.xml", &text);
                mark(round as u64);
                if round == 3 {
                    v.sync().expect("sync");
                }
            }
        },
        |v, mark| {
            let shown = shown(v);
            let versions = versions.lock().expect("one thread");
            let version = versions.iter().position(|text| *text == shown).expect("one of the documents");
            assert!([mark, mark + 1].contains(&(version as u64)), "{version} after round {mark}");
        },
    );
}

/// One flipped bit in the root directory takes the list of files that need others away: the next mount freed what they
/// need.
#[test]
fn without_the_list_of_files_that_need_others_all_files_are_asked() {
    let (device, v, d, mut text) = volume("");
    for round in 1..=3 {
        edit(&mut text, round);
        replace(&v, d, "doc.xml", &text);
    }
    v.close().expect("close");
    drop(v);
    let root = open(device.clone()).root();
    let bit_of_list = |device: &MemDevice| {
        let is_used = medfs_fsck::inject::Target::Dentry(root, b".medfs");
        medfs_fsck::inject::set(device, &is_used, "used", 0).expect("an entry");
    };
    bit_of_list(&device);
    let v = open(device.clone());
    assert!(shown(&v) == text);
    let root = v.root();
    for n in 0..40 {
        let new = file(&v, root, &format!("new {n}"));
        write(&v, new, 0, &noise(n));
        v.fsync(new, false).expect("fsync");
        v.release(new, 1);
    }
    v.sync().expect("sync");
    assert!(shown(&v) == text && shown(&crashed(&device)) == text);
    v.close().expect("close");
    drop(v);
    assert!(shown(&open(device.clone())) == text);
}
