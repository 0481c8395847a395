//! What a person meets who looks a second time: names that are mistyped, and damage whose way out was not said.

use crate::common::*;
use crate::damaged::{bad, block_of, blocks, page, pages, volume};
use crate::newcomer::says;
use medfs::{FileKind, Files};
use medfs_device::read_block;
use medfs_format::checkpoint::RawCheckpoint;
use medfs_format::node::footer;
use medfs_format::superblock::{Feature, RawSuperblock};
use std::fs;
use std::os::unix::fs::FileExt;
use std::process::Command as System;

const PAGE: usize = 4096;

/// Zeros blocks of the image.
fn zero(s: &Scratch, at: u64, count: u64) {
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    image.write_all_at(&vec![0; count as usize * PAGE], at * PAGE as u64).unwrap();
}

fn superblock(s: &Scratch) -> RawSuperblock {
    RawSuperblock::in_block(&read_block(&open(&s.image()), 0).unwrap()).clone()
}

/// The first and last block of the pack in force.
fn pack(s: &Scratch) -> (u64, u64) {
    let first = u64::from(superblock(s).cp_blkaddr.get());
    let dev = open(&s.image());
    let header = |at: u64| RawCheckpoint::in_block(&read_block(&dev, at).unwrap()).clone();
    let at = [first, first + 512].into_iter().max_by_key(|at| header(*at).checkpoint_ver.get()).unwrap();
    (at, at + u64::from(header(at).cp_pack_total_block_count.get()) - 1)
}

#[test]
fn a_mistyped_map_is_no_map_without_bad_blocks() {
    let s = volume();
    for (words, code) in
        [("fsck --map no.map image", 16), ("fsck -y --map no.map image", 16), ("ls --map no.map image", 1)]
    {
        let text = says(&s, code, words);
        assert!(text.contains("there is no map no.map: name an existing one"), "{words}: {text}");
        assert!(!s.path("no.map").exists());
    }
    let begins = "no.map does not exist: a new map begins there";
    assert!(says(&s, 0, "get -r --map no.map image / out").contains(begins));
    assert!(!says(&s, 0, "get -r --map no.map image / out").contains(begins));
    says(&s, 0, "fsck --map no.map image");
}

/// A file of several nodes, and the address of one that is no inode.
pub(crate) fn with_nodes() -> (Scratch, Vec<u8>, u64) {
    let s = Scratch::with_volume("64M");
    let mut content = pages(7, 1500);
    for (index, page) in content.chunks_mut(PAGE).enumerate() {
        page[..8].copy_from_slice(&(index as u64 | 7 << 40).to_le_bytes());
    }
    fs::write(s.path("big"), &content).unwrap();
    says(&s, 0, "put image big /big");
    let is_node = |block: &medfs_format::Block| {
        let f = footer(block);
        (4..100).contains(&f.ino.get()) && (4..100).contains(&f.nid.get()) && f.ino != f.nid
    };
    let node = blocks(&s.image(), is_node);
    assert!(!node.is_empty());
    (s, content, node[0])
}

#[test]
fn holes_that_a_salvage_fills_are_told_with_the_salvage() {
    let (s, content, node) = with_nodes();
    let fills = "'medfs get --salvage image DIRECTORY' also fills holes";
    let map = bad(&s, &[node]);
    let text = says(&s, 1, &format!("get --map {} image /big unread", map.display()));
    assert!(text.contains("get --salvage --map") && text.contains("also fills holes"), "{text}");
    // A page of content is what it is.
    let map = bad(&s, &[block_of(&s.image(), &content[3 * PAGE..4 * PAGE])]);
    let text = says(&s, 1, &format!("get -r --map {} image / page", map.display()));
    assert!(text.contains("left as holes") && !text.contains("fills holes"), "{text}");
    assert!(text.contains("the map calls this block bad") && !text.contains("Input/output error"), "{text}");
    zero(&s, node, 1);
    for words in ["get -r image / out", "get image /big one"] {
        let text = says(&s, 1, words);
        assert!(text.contains("left as holes") && text.contains(fills), "{words}: {text}");
    }
    says(&s, 0, "get --salvage image all");
    assert!(fs::read(s.path("all/big")).unwrap() == content);
}

/// The end of a checkpoint may be missing because power was lost, or because it is damaged: both may be.
#[test]
fn a_newer_checkpoint_that_is_not_shown_is_told_with_the_salvage() {
    let s = volume();
    with_engine(&s.image(), true, |v| {
        let new = make(v, v.root(), "new", FileKind::Regular);
        v.write(new, 0, b"content").unwrap();
    });
    let (first, last) = pack(&s);
    zero(&s, last, 1);
    for words in ["get -r image / out", "ls image"] {
        let text = says(&s, 0, words);
        let brings = "'medfs get --salvage image DIRECTORY' brings the files of checkpoint";
        assert!(text.contains(brings), "{words}: {text}");
    }
    assert!(!s.path("out/new").exists());
    says(&s, 1, "get --salvage image all");
    assert_eq!(fs::read(s.path("all/new")).unwrap(), b"content");
    // What is left of a pack that was destroyed tells of no power loss.
    zero(&s, first, 1);
    for words in ["get -r image / old", "ls image"] {
        let text = says(&s, 1, words);
        let looks = "'medfs get --salvage image DIRECTORY' also looks for what is newer";
        assert!(text.contains("is destroyed") && text.contains(looks), "{words}: {text}");
    }
    // The first checkpoint of a mount would make the loss final.
    let before = fs::read(s.image()).unwrap();
    fs::create_dir(s.path("dir")).unwrap();
    if can_mount() {
        let text = says(&s, 32, "mount image dir");
        assert!(text.contains("the newer one is destroyed") && text.contains("get --salvage"), "{text}");
    }
    assert!(fs::read(s.image()).unwrap() == before);
}

#[test]
fn where_the_node_table_is_lost_the_check_advises_the_salvage() {
    let s = volume();
    with_engine(&s.image(), true, |v| {
        for i in 0..60 {
            make(v, v.root(), &format!("more than journals take {i}"), FileKind::Regular);
        }
    });
    // The journal leads to the root directory alone.
    with_engine(&s.image(), true, |v| {
        make(v, v.root(), "last", FileKind::Regular);
    });
    let sb = superblock(&s);
    let (nat, ssa) = (u64::from(sb.nat_blkaddr.get()), u64::from(sb.ssa_blkaddr.get()));
    zero(&s, nat, ssa - nat);
    let text = says(&s, 4, "fsck image");
    assert!(text.contains("copy the files first, 'medfs get --salvage image DIRECTORY'"), "{text}");
    let text = says(&s, 1, "get -r image / out");
    let lost = "62 files and directories, of each: its inode cannot be read: no node table entry leads to it:\n  /dir\n";
    assert!(text.contains(lost), "{text}");
    assert!(s.path("out/last").exists(), "{text}");
}

#[test]
fn put_takes_a_name_with_a_slash_for_a_directory() {
    let s = Scratch::with_volume("64M");
    fs::create_dir(s.path("src")).unwrap();
    fs::write(s.path("file"), "content").unwrap();
    fs::write(s.path("other"), "other").unwrap();
    says(&s, 0, "put image file /file");
    for words in ["put image other /file/", "put image other /none/", "put -r image src /file/"] {
        let text = says(&s, 1, words);
        assert!(text.contains("/ in the volume is not a directory"), "{words}: {text}");
    }
    assert_eq!(says(&s, 0, "get image /file -"), "content");
    says(&s, 0, "put -r image src /new/");
    says(&s, 0, "put image other /new/");
    assert_eq!(says(&s, 0, "get image /new/other -"), "other");
}

#[test]
fn an_image_is_not_put_into_itself() {
    let s = Scratch::with_volume("64M");
    fs::create_dir(s.path("dir")).unwrap();
    fs::hard_link(s.image(), s.path("dir/again")).unwrap();
    let before = fs::read(s.image()).unwrap();
    for (words, told) in [
        ("put -r image image /", "image cannot be copied into itself"),
        ("put image dir/again /", "dir/again cannot be copied into itself"),
        ("put -r image dir /", "dir contains the image, dir/again: move it out"),
    ] {
        let text = says(&s, 1, words);
        assert!(text.contains(told), "{words}: {text}");
    }
    assert!(fs::read(s.image()).unwrap() == before);
}

#[test]
fn a_wrong_feature_is_a_wrong_argument() {
    let s = Scratch::new();
    let text = says(&s, 2, "mkfs -O foo --size 64M image");
    assert!(text.contains("unknown feature 'foo'") && !s.image().exists(), "{text}");
}

#[test]
fn what_a_volume_with_encrypted_files_is_read_with_is_said_to_put_too() {
    let s = Scratch::new();
    says(&s, 0, "mkfs -q --plain -O none --size 64M image");
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    for copy in 0..2 {
        let at = copy * PAGE as u64 + 1024 + std::mem::offset_of!(RawSuperblock, feature) as u64;
        image.write_all_at(&Feature::ENCRYPT.bits().to_le_bytes(), at).unwrap();
    }
    fs::write(s.path("file"), "content").unwrap();
    let text = says(&s, 1, "put image file /");
    let told = "encrypt, which this version can only read, with 'medfs get' or 'medfs mount -o ro'";
    assert!(text.contains(told), "{text}");
}

#[test]
fn a_restore_says_what_becomes_of_the_map() {
    let s = volume();
    fs::write(s.path("map"), "").unwrap();
    let text = says(&s, 16, "fsck --restore undo --map map image");
    assert!(text.contains("put back the copy of the map that was made before the repair"), "{text}");
}

#[test]
fn a_check_of_a_cut_image_names_both_ways() {
    let s = volume();
    fs::File::options().write(true).open(s.image()).unwrap().set_len(60 << 20).unwrap();
    let text = says(&s, 4, "fsck image");
    assert!(text.contains("'medfs get -r image / DIRECTORY' copies what is left of the files"), "{text}");
    assert!(text.contains("'medfs get --salvage image DIRECTORY' what it does not reach"), "{text}");
}

#[test]
fn dump_has_the_kinds_and_times_of_all_json() {
    let s = volume();
    let json = |path: &str| -> serde_json::Value {
        serde_json::from_str(&says(&s, 0, &format!("dump --json image path {path}"))).unwrap()
    };
    let (root, file) = (json("/"), json("/c"));
    assert_eq!((&root["kind"], &file["kind"]), (&"dir".into(), &"file".into()));
    assert!(
        root.to_string().contains(r#""kind":"dir""#) && !root.to_string().contains("Directory"),
        "{root}"
    );
    assert!(file["i_mtime"].is_i64() && file["i_mtime_nsec"].is_u64(), "{file}");
}

/// Boot calls `fsck -a`, also for a card whose switch is locked.
#[test]
fn a_clean_volume_that_cannot_be_written_is_clean() {
    if !can_mount() {
        return;
    }
    let s = Scratch::with_volume("64M");
    let looped =
        System::new("losetup").args(["--find", "--show", "--read-only"]).arg(s.image()).output().unwrap();
    assert!(looped.status.success(), "{looped:?}");
    let device = String::from_utf8(looped.stdout).unwrap().trim().to_owned();
    let output = medfs().args(["fsck", "-p", &device]).output().unwrap();
    System::new("losetup").args(["--detach", &device]).status().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("clean"), "{output:?}");
    // What is damaged needs the repair, which cannot be.
    let chattr = |flag: &str| System::new("chattr").arg(flag).arg(s.image()).status().unwrap().success();
    zero(&s, 0, 1);
    if !chattr("+i") {
        return;
    }
    let output = medfs().args(["fsck", "-p"]).arg(s.image()).output().unwrap();
    assert!(chattr("-i"));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(8), "{text}");
    let way =
        format!("it has the attribute 'immutable', which 'chattr -i {}' takes off", s.image().display());
    assert!(text.contains(&way), "{text}");
}

/// `mkfs.f2fs -O ro` makes volumes without summaries: nothing is said to be damaged, nor written.
#[test]
fn a_volume_of_the_read_only_layout_is_refused_by_name() {
    let s = Scratch::new();
    fs::File::create(s.image()).unwrap().set_len(128 << 20).unwrap();
    let made = System::new("mkfs.f2fs").args(["-q", "-O", "ro"]).arg(s.image()).output();
    if !made.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: mkfs.f2fs is not installed");
        return;
    }
    let before = fs::read(s.image()).unwrap();
    fs::write(s.path("file"), "content").unwrap();
    let told =
        "image has the feature ro, whose layout medfs does not support: mount it with the kernel's f2fs";
    for (words, code) in [
        ("ls image", 1),
        ("get -r image / out", 1),
        ("get --salvage image all", 1),
        ("fsck image", 8),
        ("fsck --repair image", 8),
        ("put image file /", 1),
        ("stat image", 1),
        ("dump image", 1),
    ] {
        let text = says(&s, code, words);
        assert!(text.contains(told) && text.lines().count() == 1, "{words}: {text}");
    }
    assert!(fs::read(s.image()).unwrap() == before);
}

/// `sload.f2fs` leaves two packs of one version. The first counts, as in the kernel; where nothing is left of that,
/// the inodes of the NAT tell that the other one is older.
#[test]
fn of_two_packs_of_one_version_the_first_counts() {
    let s = Scratch::new();
    fs::create_dir(s.path("tree")).unwrap();
    (0..5).for_each(|i| fs::write(s.path(&format!("tree/f{i}")), page(i, 0)).unwrap());
    fs::File::create(s.path("loaded")).unwrap().set_len(128 << 20).unwrap();
    let run = |program: &str, args: &[&str]| {
        let output = System::new(program).args(args).current_dir(s.path("")).output();
        output.is_ok_and(|output| output.status.success())
    };
    if !run("mkfs.f2fs", &["-q", "loaded"]) || !run("sload.f2fs", &["-P", "-f", "tree", "loaded"]) {
        eprintln!("skipped: f2fs-tools are not installed");
        return;
    }
    let first = RawSuperblock::in_block(&read_block(&open(&s.path("loaded")), 0).unwrap()).cp_blkaddr.get();
    let header = read_block(&open(&s.path("loaded")), first.into()).unwrap();
    let last = first + RawCheckpoint::in_block(&header).cp_pack_total_block_count.get() - 1;
    for (lost, is_told) in [(&[first][..], false), (&[last], true), (&[first, last], true)] {
        fs::copy(s.path("loaded"), s.image()).unwrap();
        lost.iter().for_each(|&block| zero(&s, block.into(), 1));
        let text = says(&s, u8::from(is_told).into(), "ls image");
        assert_eq!(text.contains("counts 1 of 6 inodes: it is an older checkpoint"), is_told, "{text}");
        let text = says(&s, 0, "get --salvage image out");
        assert!(fs::read(s.path("out/f4")).unwrap() == page(4, 0), "{text}");
        fs::remove_dir_all(s.path("out")).unwrap();
        if is_told && can_mount() {
            fs::create_dir_all(s.path("dir")).unwrap();
            let text = says(&s, 32, "mount image dir");
            assert!(text.contains("a mount with ro shows this one"), "{text}");
        }
        says(&s, 1, "fsck --repair image");
        says(&s, 0, "fsck image");
        says(&s, 0, "get -r image / all");
        assert_eq!(fs::read(s.path("all/f4")).unwrap(), page(4, 0));
        fs::remove_dir_all(s.path("all")).unwrap();
    }
}

#[test]
fn long_sentences_are_wrapped_on_a_terminal() {
    let s = volume();
    with_engine(&s.image(), true, |v| {
        make(v, v.root(), "new", FileKind::Regular);
    });
    zero(&s, pack(&s).1, 1);
    let one_line = says(&s, 0, "fsck image");
    assert!(one_line.lines().any(|line| line.chars().count() > 200), "{one_line}");
    let mut script = System::new("script");
    script.args(["--quiet", "--return", "--command"]).env_remove("RUST_LOG");
    script.arg(format!("'{}' fsck image; '{0}' get -r image / out", binary().display())).arg("/dev/null");
    let output = script.current_dir(s.path("")).output().expect("script, of Debian's bsdutils");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A bar was on the line.
    let cleared = |line| str::rsplit(line, "\x1b[2K").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(cleared).collect();
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("'medfs get --salvage image DIRECTORY'"), "{text}");
}
