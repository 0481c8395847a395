//! `medfs fsck --repair`: one run is enough, it says what it costs, and it can be taken back.

mod common;

use common::*;
use medfs::{ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::{
    BlockDevice, Cause, FileDevice, FileOptions, MemDevice, Temperature, WriteTag, read_block,
};
use medfs_format::Block;
use medfs_format::node::{FileKind, RawInode, footer};
use medfs_format::superblock::RawSuperblock;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const META: WriteTag = WriteTag::new(Cause::Meta, Temperature::Cold);

/// Works on a volume through the engine; without a close it is a crash.
fn with_engine(image: &Path, close: bool, work: impl FnOnce(&Volume)) {
    let file = FileDevice::open(image, FileOptions::default()).unwrap();
    let dev = Arc::new(MemDevice::copy_of(&file).unwrap());
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_800_000_000, nanos: 0 }));
    let v = Volume::open(dev.clone(), MountOptions::default(), clock).unwrap();
    work(&v);
    if close {
        v.close().unwrap();
    }
    let dev = dev.snapshot();
    for addr in dev.written() {
        file.write(addr, &[&read_block(&dev, addr).unwrap()], META).unwrap();
    }
}

fn make(v: &Volume, parent: u32, name: &str, kind: FileKind) -> u32 {
    let new = NewFile { kind, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(parent, name.as_bytes(), &new).unwrap().ino;
    v.release(ino, 1);
    ino
}

/// Changes the blocks of the main area that `which` picks; tells how many.
fn damage(image: &Path, which: impl Fn(&Block) -> bool, change: impl Fn(&mut Block)) -> usize {
    let dev = FileDevice::open(image, FileOptions::default()).unwrap();
    let main = RawSuperblock::in_block(&read_block(&dev, 0).unwrap()).main_blkaddr.get();
    let mut count = 0;
    for addr in u64::from(main)..dev.block_count() {
        let mut block = read_block(&dev, addr).unwrap();
        if which(&block) {
            change(&mut block);
            dev.write(addr, &[&block], META).unwrap();
            count += 1;
        }
    }
    count
}

/// A volume of plain F2FS without checksums.
fn plain() -> Scratch {
    let s = Scratch::new();
    let options = ["mkfs", "-q", "--plain", "-O", "none", "--size", "64M"];
    medfs().args(options).arg(s.image()).assert().success();
    s
}

#[test]
fn one_run_repairs_what_a_roll_forward_brings() {
    let s = plain();
    with_engine(&s.image(), false, |v| {
        let old = make(v, v.root(), "old", FileKind::Regular);
        v.checkpoint().unwrap();
        v.write(old, 0, &[3; 20_000]).unwrap();
        v.fsync(old, false).unwrap();
    });
    // What was fsynced has a field that no such file has, which only a check after the roll-forward sees.
    let synced = |b: &Block| {
        footer(b).is_fsync() && footer(b).nid == footer(b).ino && (4..100).contains(&footer(b).nid.get())
    };
    let wrong = |b: &mut Block| {
        let inode: &mut RawInode = b.view_mut();
        inode.i_current_depth = 7.into();
    };
    assert_eq!(damage(&s.image(), synced, wrong), 1);
    let assert = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    assert!(text.contains("rolled 1 fsynced inode(s) forward") && text.contains("repaired"), "{text}");
    medfs().arg("fsck").arg(s.image()).assert().code(0);
    let out = s.path("out");
    medfs().arg("get").args([&s.image(), Path::new("/old"), &out]).assert().success();
    assert_eq!(fs::read(out).unwrap(), [3; 20_000]);
}

/// A volume with a directory of files, the inode of which is gone.
fn without_directory() -> Scratch {
    let s = plain();
    let mut dir = 0;
    with_engine(&s.image(), true, |v| {
        dir = make(v, v.root(), "dir", FileKind::Directory);
        for i in 0..12 {
            make(v, dir, &format!("file {i}"), FileKind::Regular);
        }
    });
    let inode = |b: &Block| footer(b).nid.get() == dir && footer(b).ino.get() == dir;
    assert!(damage(&s.image(), inode, |b| b.0.fill(0)) > 0);
    s
}

#[test]
fn what_a_repair_costs_is_said_before() {
    let s = without_directory();
    let costs = "a repair leaves 12 files without a name: lost+found";
    for (args, code) in [(&["fsck"][..], 4), (&["fsck", "--repair"], 1)] {
        let assert = medfs().args(args).arg(s.image()).assert().code(code);
        let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
        assert!(text.contains(costs), "{text}");
    }
    assert_eq!(output(&["ls"], &[&s.image(), Path::new("/lost+found")]).lines().count(), 12);
    let s = without_directory();
    let json = medfs().args(["fsck", "--json"]).arg(s.image()).assert().code(4);
    let json: serde_json::Value = serde_json::from_slice(&json.get_output().stdout).unwrap();
    assert_eq!(json["found"]["losses"]["nameless"], 12);
}

#[test]
fn a_repair_is_taken_back() {
    let s = without_directory();
    let before = fs::read(s.image()).unwrap();
    let undo = s.path("undo");
    let assert = medfs().args(["fsck", "--repair", "--undo"]).args([&undo, &s.image()]).assert().code(1);
    let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    assert!(text.contains("takes it back"), "{text}");
    assert!(fs::read(s.image()).unwrap() != before);
    medfs().args(["fsck", "--restore"]).args([&undo, &s.image()]).assert().code(0);
    assert!(fs::read(s.image()).unwrap() == before);
    // A file that is there is not written over, and nothing is repaired.
    let text = error(8, medfs().args(["fsck", "--repair", "--undo"]).args([&undo, &s.image()]));
    assert!(text.contains("exists: an undo file must be a new one"), "{text}");
    assert!(fs::read(s.image()).unwrap() == before);
    for (file, what) in [(s.image(), "is not an undo file of medfs"), (s.path("none"), "No such file")] {
        let text = error(8, medfs().args(["fsck", "--restore"]).args([&file, &s.image()]));
        assert!(text.contains(what) && text.lines().count() == 1, "{text}");
    }
    let other = Scratch::with_volume("64M");
    let text = error(8, medfs().args(["fsck", "--restore"]).args([&undo, &other.image()]));
    assert!(text.contains("undo file of another volume") && text.lines().count() == 1, "{text}");
    medfs().args(["fsck", "--undo"]).args([&undo, &s.image()]).assert().code(16);
}

/// The roll-forward is taken back too.
#[test]
fn a_roll_forward_is_taken_back_and_a_clean_volume_needs_no_file() {
    let s = Scratch::with_volume("64M");
    with_engine(&s.image(), false, |v| {
        let ino = make(v, v.root(), "synced", FileKind::Regular);
        v.fsync(ino, false).unwrap();
    });
    let (before, undo) = (fs::read(s.image()).unwrap(), s.path("undo"));
    medfs().args(["fsck", "--repair", "--undo"]).args([&undo, &s.image()]).assert().code(1);
    assert!(fs::read(s.image()).unwrap() != before);
    medfs().args(["fsck", "--restore"]).args([&undo, &s.image()]).assert().code(0);
    assert!(fs::read(s.image()).unwrap() == before);
    fs::remove_file(&undo).unwrap();
    medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    let assert = medfs().args(["fsck", "--repair", "--undo"]).args([&undo, &s.image()]).assert().code(0);
    assert!(String::from_utf8_lossy(&assert.get_output().stdout).contains("nothing was changed"));
    assert!(!undo.exists());
}

#[test]
fn an_undo_file_is_not_on_the_volume_that_is_repaired() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let dir = s.path("mnt");
    fs::create_dir(&dir).unwrap();
    medfs().arg("mount").args([&s.image(), &dir]).assert().success();
    let undo = dir.join("undo");
    let tried = medfs().args(["fsck", "--repair", "--undo"]).args([&undo, &s.image()]).output().unwrap();
    medfs().arg("umount").arg(&dir).assert().success();
    let text = String::from_utf8_lossy(&tried.stderr);
    assert!(tried.status.code() == Some(8) && text.contains("in use"), "{text}");
}
