//! `medfs fsck --repair`: one run is enough, it says what it costs, and it can be taken back.

use crate::common::*;
use medfs::Files;
use medfs_format::Block;
use medfs_format::node::{FileKind, RawInode, footer};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;

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
    assert!(text.contains("rolled 1 fsynced file forward") && text.contains("repaired"), "{text}");
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
    let costs = "a repair will put 12 files and directories back into the directory that their inode names";
    for (args, code) in [(&["fsck"][..], 4), (&["fsck", "--repair"], 1)] {
        let assert = medfs().args(args).arg(s.image()).assert().code(code);
        let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
        assert!(text.contains(costs), "{text}");
    }
    assert_eq!(output(&["ls"], &[&s.image(), Path::new("/dir")]).lines().count(), 12);
    let s = without_directory();
    let json = medfs().args(["fsck", "--json"]).arg(s.image()).assert().code(4);
    let json: serde_json::Value = serde_json::from_slice(&json.get_output().stdout).unwrap();
    assert_eq!(json["found"]["losses"]["renamed"], 12);
}

#[test]
fn a_copy_into_a_damaged_volume_is_warned_of() {
    let s = without_directory();
    fs::write(s.path("file"), "text").unwrap();
    let put = medfs().arg("put").args([&s.image(), &s.path("file"), Path::new("/")]).assert().success();
    let (text, image) = (String::from_utf8_lossy(&put.get_output().stderr).into_owned(), s.image());
    let image = image.display();
    assert!(text.starts_with(&format!("medfs put: warning: {image} has ")), "{text}");
    assert!(
        text.ends_with(&format!(": 'medfs fsck {image}' lists them; copy its files before you use it\n"))
            && text.lines().count() == 1,
        "{text}"
    );
    medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    let put = medfs().arg("put").args([&s.image(), &s.path("file"), Path::new("/again")]).assert().success();
    assert!(put.get_output().stderr.is_empty());
}

#[test]
fn without_a_root_directory_what_is_below_it_is_counted() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let dir = make(v, v.root(), "dir", FileKind::Directory);
        make(v, dir, "file", FileKind::Regular);
    });
    let inode = |b: &Block| footer(b).nid.get() == 3 && footer(b).ino.get() == 3;
    assert!(damage(&s.image(), inode, |b| b.0.fill(0)) > 0);
    let check = medfs().arg("fsck").arg(s.image()).assert().code(4);
    let text = String::from_utf8_lossy(&check.get_output().stdout).into_owned();
    assert!(text.contains(": faulty, 2 directories, 1 file, "), "{text}");
    let repair = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    let text = String::from_utf8_lossy(&repair.get_output().stdout).into_owned();
    assert!(text.contains(": repaired, 2 directories, 1 file, ") && !text.contains("clean"), "{text}");
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
    assert!(text.contains("exists: an undo file must not exist"), "{text}");
    assert!(fs::read(s.image()).unwrap() == before);
    for (file, what) in
        [(s.image(), "is not an undo file of medfs"), (s.path("none"), "there is no undo file")]
    {
        let text = error(8, medfs().args(["fsck", "--restore"]).args([&file, &s.image()]));
        assert!(text.contains(what) && text.lines().count() == 1, "{text}");
    }
    let other = Scratch::with_volume("64M");
    let text = error(8, medfs().args(["fsck", "--restore"]).args([&undo, &other.image()]));
    assert!(text.contains("undo file of another volume") && text.lines().count() == 1, "{text}");
    medfs().args(["fsck", "--undo"]).args([&undo, &s.image()]).assert().code(16);
}

#[test]
fn a_repair_of_a_volume_that_was_used_since_stays() {
    let s = without_directory();
    let undo = s.path("undo");
    let assert = medfs().args(["fsck", "--repair", "--undo"]).args([&undo, &s.image()]).assert().code(1);
    let text = String::from_utf8_lossy(&assert.get_output().stdout).into_owned();
    assert!(text.contains("takes it back until the volume is mounted for writing"), "{text}");
    with_engine(&s.image(), true, |v| {
        make(v, v.root(), "new", FileKind::Regular);
    });
    let used = fs::read(s.image()).unwrap();
    let text = error(8, medfs().args(["fsck", "--restore"]).args([&undo, &s.image()]));
    assert!(text.contains("was mounted for writing, or changed otherwise, since the repair"), "{text}");
    assert!(text.lines().count() == 1 && fs::read(s.image()).unwrap() == used, "{text}");
}

/// A repair that was killed before it had written anything leaves such a file; so does a disk that loses one.
#[test]
fn an_undo_file_without_records_takes_nothing_back_and_is_used_again() {
    let s = without_directory();
    let (before, undo) = (fs::read(s.image()).unwrap(), s.path("undo"));
    fs::write(&undo, "").unwrap();
    let text = error(8, medfs().args(["fsck", "--restore"]).args([&undo, &s.image()]));
    assert!(text.contains("is empty, and nothing is restored") && text.lines().count() == 1, "{text}");
    assert!(fs::read(s.image()).unwrap() == before);
    medfs().args(["fsck", "--repair", "--undo"]).args([&undo, &s.image()]).assert().code(1);
    assert!(fs::read(s.image()).unwrap() != before);
    medfs().args(["fsck", "--restore"]).args([&undo, &s.image()]).assert().code(0);
    assert!(fs::read(s.image()).unwrap() == before);
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

/// A volume with a file, of which both superblocks are gone.
fn without_superblocks() -> Scratch {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let ino = make(v, v.root(), "file", FileKind::Regular);
        v.write(ino, 0, &[9; 30_000]).unwrap();
    });
    overwrite(&s.image(), 0, &[0; 8192]);
    s
}

fn overwrite(image: &Path, at: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(image).unwrap().write_all_at(bytes, at).unwrap();
}

#[test]
fn a_volume_without_superblocks_is_repaired_and_salvaged() {
    let s = without_superblocks();
    let out = s.path("salvaged");
    fs::create_dir(&out).unwrap();
    medfs().args(["get", "--salvage"]).args([&s.image(), &out]).assert().success();
    assert_eq!(fs::read(out.join("file")).unwrap(), [9; 30_000]);
    medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
    medfs().arg("fsck").arg(s.image()).assert().code(0);
    let out = s.path("out");
    medfs().arg("get").args([&s.image(), Path::new("/file"), &out]).assert().success();
    assert_eq!(fs::read(out).unwrap(), [9; 30_000]);
}

#[test]
fn what_another_file_system_was_made_of_is_not_repaired() {
    let s = without_superblocks();
    overwrite(&s.image(), 0x1_0040, b"_BHRfS_M");
    let before = fs::read(s.image()).unwrap();
    let assert = medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(8);
    let text = String::from_utf8_lossy(&assert.get_output().stderr).into_owned();
    assert!(text.contains("holds a Btrfs file system"), "{text}");
    assert!(fs::read(s.image()).unwrap() == before);
    // A salvage copies what is left, and says that it may be the other one's.
    let out = s.path("salvaged");
    let text = error(1, medfs().args(["get", "--salvage"]).args([&s.image(), &out]));
    assert!(
        text.contains("a Btrfs file system was made over this volume and overwrote parts of it"),
        "{text}"
    );
    assert_eq!(fs::read(out.join("file")).unwrap(), [9; 30_000]);
}

#[test]
fn what_mkfs_filled_outlives_the_loss_of_a_checkpoint_pack() {
    for kind in [&["--plain"][..], &[]] {
        let s = Scratch::new();
        let tree = s.path("tree");
        make_tree(&tree);
        medfs()
            .args(["mkfs", "-q", "--size", "100M", "--from"])
            .arg(&tree)
            .args(kind)
            .arg(s.image())
            .assert()
            .success();
        let pack = File::options().write(true).open(s.image()).unwrap();
        for block in 512..520 {
            pack.write_all_at(&[0xa5; 4096], block * 4096).unwrap();
        }
        for repaired in [false, true] {
            if repaired {
                medfs().args(["fsck", "--repair"]).arg(s.image()).assert().code(1);
            }
            let out = s.path(if repaired { "after" } else { "before" });
            medfs().args(["get", "-r"]).args([&s.image(), Path::new("/"), &out]).assert().success();
            assert_eq!(describe(&out), describe(&tree), "{kind:?}");
        }
    }
}

#[test]
fn one_file_is_no_files() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        make(v, v.root(), "one", FileKind::Regular);
    });
    let text = output(&["fsck"], &[&s.image()]);
    assert!(text.contains(": clean, 1 directory, 1 file, "), "{text}");
}
