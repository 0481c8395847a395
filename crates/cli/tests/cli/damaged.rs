//! Files are got off damaged volumes. A map that calls blocks bad stands for a card that does not give them.

use crate::common::*;
use medfs::{Files, Volume};
use medfs_device::{BlockDevice, read_block};
use medfs_format::node::{FileKind, RawInode, footer};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{BLOCK_SIZE, Block};
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command as System;

const PAGE: usize = BLOCK_SIZE;

/// A page of a file that no other file has.
pub(crate) fn page(file: u8, index: usize) -> Vec<u8> {
    (0..PAGE).map(|i| (i / 7) as u8 ^ file.wrapping_mul(31) ^ (index as u8).wrapping_mul(5) | 1).collect()
}

pub(crate) fn pages(file: u8, count: usize) -> Vec<u8> {
    (0..count).flat_map(|index| page(file, index)).collect()
}

/// `/dir/a` of 40 pages, `/dir/b` of one, `/c` of two.
pub(crate) fn volume() -> Scratch {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let dir = make(v, v.root(), "dir", FileKind::Directory);
        for (parent, name, file, count) in [(dir, "a", 1, 40), (dir, "b", 2, 1), (v.root(), "c", 3, 2)] {
            let ino = make(v, parent, name, FileKind::Regular);
            v.write(ino, 0, &pages(file, count)).unwrap();
        }
    });
    s
}

/// Fsyncs `/file` until the log goes on in a second segment, which lies behind all else.
pub(crate) fn fsync_often(v: &Volume) {
    let ino = make(v, v.root(), "file", FileKind::Regular);
    v.checkpoint().unwrap();
    for n in 1..600_u32 {
        v.write(ino, 0, &n.to_le_bytes()).unwrap();
        v.fsync(ino, false).unwrap();
    }
}

/// The addresses of the main area's blocks that `which` picks.
pub(crate) fn blocks(image: &Path, which: impl Fn(&Block) -> bool) -> Vec<u64> {
    let dev = open(image);
    let main = RawSuperblock::in_block(&read_block(&dev, 0).unwrap()).main_blkaddr.get();
    (main.into()..dev.block_count()).filter(|&addr| which(&read_block(&dev, addr).unwrap())).collect()
}

pub(crate) fn block_of(image: &Path, content: &[u8]) -> u64 {
    let found = blocks(image, |block| block.0[..] == *content);
    assert_eq!(found.len(), 1);
    found[0]
}

pub(crate) fn is_inode(block: &Block, name: &str) -> bool {
    let f = footer(block);
    let inode: &RawInode = block.view();
    let len = inode.i_namelen.get() as usize;
    f.nid == f.ino && f.nid.get() > 2 && inode.i_name.get(..len) == Some(name.as_bytes())
}

/// A map of medfs's that calls these blocks bad.
pub(crate) fn bad(s: &Scratch, blocks: &[u64]) -> PathBuf {
    let len = fs::metadata(s.image()).unwrap().len();
    let mut map = medfs_device::Mapfile::new(len);
    blocks.iter().for_each(|b| map.set_bad(b * PAGE as u64..(b + 1) * PAGE as u64));
    map.write(&s.path("map")).unwrap();
    s.path("map")
}

pub(crate) fn get(
    s: &Scratch,
    args: &[&str],
    map: &Path,
    from: &[&str],
    to: &str,
) -> assert_cmd::assert::Assert {
    let mut command = medfs();
    command.arg("get").args(args).arg("--map").arg(map).arg(s.image()).args(from).arg(s.path(to));
    command.assert()
}

pub(crate) fn stderr(assert: &assert_cmd::assert::Assert) -> String {
    let text = String::from_utf8(assert.get_output().stderr.clone()).unwrap();
    assert!(!text.contains("panicked"), "{text}");
    text
}

#[test]
fn readable_pages_are_brought_and_what_is_missing_is_said() {
    let s = volume();
    let lost = [
        block_of(&s.image(), &page(1, 3)),
        block_of(&s.image(), &page(1, 4)),
        block_of(&s.image(), &page(1, 30)),
    ];
    let map = bad(&s, &lost);
    let text = stderr(&get(&s, &["-r"], &map, &["/"], "out").code(1));
    let place = "/dir/a: bytes 12288-20479, 122880-126975 of 163840 cannot be read and were left as holes";
    assert!(text.contains(place) && text.contains("1 file or directory not copied or incomplete"), "{text}");
    let mut expected = pages(1, 40);
    expected[3 * PAGE..5 * PAGE].fill(0);
    expected[30 * PAGE..31 * PAGE].fill(0);
    assert_eq!(fs::read(s.path("out/dir/a")).unwrap(), expected);
    assert!(fs::metadata(s.path("out/dir/a")).unwrap().blocks() <= 37 * 8, "holes where nothing was read");
    assert_eq!(fs::read(s.path("out/dir/b")).unwrap(), page(2, 0));
    assert_eq!(fs::read(s.path("out/c")).unwrap(), pages(3, 2));

    // On standard output zeros keep everything at its place.
    let mut command = medfs();
    command.arg("get").arg("--map").arg(&map).arg(s.image()).args(["/dir/a", "-"]);
    let assert = command.assert().code(1);
    assert_eq!(assert.get_output().stdout, expected);

    let assert = get(&s, &["-r", "--json"], &map, &["/"], "json").code(1);
    let json: serde_json::Value = serde_json::from_slice(&assert.get_output().stdout).unwrap();
    assert_eq!(
        (&json["format"], &json["exit"], &json["bad_bytes"]),
        (&1.into(), &1.into(), &(3 * PAGE).into())
    );
    let failed = &json["failed"][0];
    assert_eq!((&failed["path"], &failed["lost_bytes"]), (&"/dir/a".into(), &(3 * PAGE).into()));
    assert_eq!(failed["lost"][1], serde_json::json!({"offset": 30 * PAGE, "length": PAGE}));
    assert_eq!((&json["files"], json["failed"].as_array().unwrap().len()), (&3.into(), 1));
}

#[test]
fn a_file_whose_inode_is_lost_keeps_no_other_from_being_brought_or_listed() {
    let s = volume();
    let map = bad(&s, &blocks(&s.image(), |b| is_inode(b, "a")));
    let text = stderr(&get(&s, &["-r"], &map, &["/"], "out").code(1));
    assert!(text.contains("medfs get: /dir/a: its inode cannot be read: "), "{text}");
    assert_eq!(fs::read(s.path("out/dir/b")).unwrap(), page(2, 0));
    assert!(!s.path("out/dir/a").exists());

    assert!(damage(&s.image(), |b| is_inode(b, "a"), |b| b.0.fill(0)) > 0);
    let assert = medfs().args(["ls", "-R"]).arg(s.image()).assert().code(1);
    let listed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(listed.contains("/dir:\na\nb\n"), "{listed}");
    let text = stderr(&assert);
    assert!(text.starts_with("medfs ls: /dir/a: it is damaged and cannot be read (node"), "{text}");
    assert_eq!(
        text.lines().skip(2).collect::<Vec<_>>(),
        ["medfs ls: 'medfs help damaged' says what to do about a damaged volume"],
    );
    assert!(text.lines().nth(1).is_some_and(|line| line.contains("medfs get --salvage")), "{text}");
    let assert = medfs().args(["ls", "-R", "--json"]).arg(s.image()).assert().code(1);
    let listed = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    let unread = listed.lines().find(|line| line.contains("/dir/a")).unwrap();
    assert!(serde_json::from_str::<serde_json::Value>(unread).unwrap()["kind"].is_null(), "{unread}");
    assert!(listed.contains("/dir/b"));
}

#[test]
fn what_no_directory_names_is_salvaged_where_its_inode_says() {
    let s = volume();
    let dir = blocks(&s.image(), |b| is_inode(b, "dir"));
    assert_eq!(dir.len(), 1);
    let map = bad(&s, &dir);
    // Not without it, and the volume stays as it is.
    let before = fs::read(s.image()).unwrap();
    stderr(&get(&s, &["-r"], &map, &["/"], "plain").code(1));
    assert!(!s.path("plain/dir").exists());
    let assert = get(&s, &["--salvage"], &map, &[], "out");
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(
        text.contains(
            "2 files and directories had no directory entry: 2 are where the inodes say, 0 in by-inode"
        ),
        "{text}"
    );
    assert_eq!(fs::read(s.path("out/dir/a")).unwrap(), pages(1, 40));
    assert_eq!(fs::read(s.path("out/dir/b")).unwrap(), page(2, 0));
    assert_eq!(fs::read(s.path("out/c")).unwrap(), pages(3, 2));
    assert!(!s.path("out/by-inode").exists());
    assert!(fs::read(s.image()).unwrap() == before, "nothing is written to the volume");
}

#[test]
fn what_is_in_no_directory_that_is_known_is_salvaged_under_its_number() {
    let s = volume();
    let mut map: Vec<u64> = blocks(&s.image(), |b| is_inode(b, "dir"));
    // With its name nothing tells where the directory was.
    let sb = RawSuperblock::in_block(&read_block(&open(&s.image()), 0).unwrap()).clone();
    map.extend(blocks(&s.image(), |b| footer(b).nid == sb.root_ino && footer(b).ino == sb.root_ino));
    let map = bad(&s, &map);
    let assert = get(&s, &["--salvage"], &map, &[], "out");
    let text = String::from_utf8(assert.get_output().stdout.clone()).unwrap();
    assert!(
        text.contains(
            "3 files and directories had no directory entry: 1 is where the inodes say, 2 in by-inode"
        ),
        "{text}"
    );
    let names: Vec<String> = fs::read_dir(s.path("out/by-inode"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let found = |name: &str| names.iter().find(|n| n.ends_with(name)).unwrap_or_else(|| panic!("{names:?}"));
    assert_eq!(fs::read(s.path("out/by-inode").join(found(".a"))).unwrap(), pages(1, 40));
    assert_eq!(fs::read(s.path("out/by-inode").join(found(".b"))).unwrap(), page(2, 0));
    assert_eq!(fs::read(s.path("out/c")).unwrap(), pages(3, 2));
}

#[test]
fn root_pack_and_nat_may_be_lost_and_the_image_cut_short() {
    let s = volume();
    let dev = open(&s.image());
    let sb = RawSuperblock::in_block(&read_block(&dev, 0).unwrap()).clone();
    drop(dev);
    let root = blocks(&s.image(), |b| footer(b).nid == sb.root_ino && footer(b).ino == sb.root_ino);
    let (cp, nat) = (u64::from(sb.cp_blkaddr.get()), u64::from(sb.nat_blkaddr.get()));
    let mut lost = root;
    lost.extend([1, cp, nat, nat + 512]);
    let map = bad(&s, &lost);
    let text = stderr(&get(&s, &["-r"], &map, &["/"], "plain").code(1));
    assert!(text.contains("'medfs get --salvage"), "{text}");
    let file = fs::File::options().write(true).open(s.image()).unwrap();
    file.set_len(file.metadata().unwrap().len() - (4 << 20)).unwrap();
    let text = stderr(&get(&s, &["--salvage"], &map, &[], "out").code(1));
    assert!(text.contains("/: its inode is lost"), "{text}");
    assert!(text.contains("was cut short: the last 4 MiB of its volume are missing"), "{text}");
    // The directory's own entries are read, and it and the file that was in the root are in the new one.
    assert_eq!(fs::read(s.path("out/dir/a")).unwrap(), pages(1, 40));
    assert_eq!(fs::read(s.path("out/dir/b")).unwrap(), page(2, 0));
    assert_eq!(fs::read(s.path("out/c")).unwrap(), pages(3, 2));
}

/// A directory that no other one names is in a directory that none names either, and both are as they were.
#[test]
fn directories_are_salvaged_one_in_the_other_with_their_modes() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let mut dir = v.root();
        for name in ["one", "two", "three"] {
            dir = make(v, dir, name, FileKind::Directory);
        }
        let file = make(v, dir, "file", FileKind::Regular);
        v.write(file, 0, &pages(9, 2)).unwrap();
        let read_only = medfs::SetAttr { perm: Some(0o555), ..medfs::SetAttr::default() };
        v.setattr(dir, &read_only).unwrap();
    });
    let one = blocks(&s.image(), |b| is_inode(b, "one"));
    let two = blocks(&s.image(), |b| is_inode(b, "two"));
    // The one loses its entry, and the other is lost with its name known.
    assert!(
        damage(
            &s.image(),
            |b| is_inode(b, "one"),
            |b| {
                let at = b.0.windows(3).rposition(|bytes| bytes == b"two").expect("the entry");
                b.0[at] = 0;
            }
        ) > 0
    );
    let map = bad(&s, &two);
    assert_eq!((one.len(), two.len()), (1, 1));
    let text = stderr(&get(&s, &["--salvage"], &map, &[], "out").code(1));
    let found = walk_to(&s.path("out"), "file").unwrap_or_else(|| panic!("{text}"));
    assert_eq!(fs::read(&found).unwrap(), pages(9, 2));
    let three = found.parent().unwrap();
    assert!(three.ends_with("three") || three.to_string_lossy().ends_with(".three"), "{three:?}");
    assert_eq!(fs::metadata(three).unwrap().mode() & 0o777, 0o555);
}

/// The first file of this name below a directory.
fn walk_to(dir: &Path, name: &str) -> Option<PathBuf> {
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).find_map(|path| match path.is_dir() {
        true => walk_to(&path, name),
        false => path.ends_with(name).then_some(path),
    })
}

/// A copy that was interrupted: what is there is brought, and what is missing is said.
#[test]
fn an_image_that_was_cut_short_gives_what_it_has() {
    let s = volume();
    let file = fs::File::options().write(true).open(s.image()).unwrap();
    let len = file.metadata().unwrap().len();
    file.set_len(len - (4 << 20)).unwrap();
    let cut = "was cut short: the last 4 MiB of its volume are missing";
    let assert = medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("out")).assert().code(0);
    let text = stderr(&assert);
    assert!(text.contains(cut) && text.lines().count() == 1, "{text}");
    assert_eq!(fs::read(s.path("out/dir/a")).unwrap(), pages(1, 40));
    assert_eq!(fs::read(s.path("out/c")).unwrap(), pages(3, 2));
    let assert = medfs().args(["ls", "-R"]).arg(s.image()).assert().code(0);
    assert!(String::from_utf8_lossy(&assert.get_output().stdout).contains("/dir:\na\nb\n"));
    assert!(stderr(&assert).contains(cut));
    let json =
        medfs().args(["get", "-r", "--json"]).arg(s.image()).arg("/").arg(s.path("json")).assert().code(0);
    let json: serde_json::Value = serde_json::from_slice(&json.get_output().stdout).unwrap();
    assert_eq!((&json["missing_bytes"], &json["not_whole"]), (&(4 << 20).into(), &0.into()));
    let assert = medfs().args(["get", "--salvage"]).arg(s.image()).arg(s.path("all")).assert().code(0);
    assert!(stderr(&assert).contains(cut) && !stderr(&assert).contains("not copied"), "{}", stderr(&assert));
    assert_eq!(fs::read(s.path("all/dir/a")).unwrap(), pages(1, 40));
    // Within the blocks in use: at the last page of a file.
    let last = block_of(&s.image(), &page(1, 39));
    file.set_len(last * PAGE as u64).unwrap();
    let here = len - last * PAGE as u64;
    let assert = medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("used")).assert().code(1);
    let text = stderr(&assert);
    assert!(
        text.contains("/dir/a: bytes ") && text.contains("163839 of 163840 cannot be read"),
        "{text} {here}"
    );
    assert!(!text.contains("; 0 files"), "{text}");
    assert!(text.contains("the image ends before this block") && !text.contains("I/O error"), "{text}");
    let found = fs::read(s.path("used/dir/a")).unwrap();
    assert_eq!((found.len(), &found[..39 * PAGE]), (40 * PAGE, &pages(1, 40)[..39 * PAGE]));
}

/// What was fsynced last may be in the part that the image lacks, where the fsync log goes on there.
#[test]
fn an_image_that_was_cut_short_where_its_log_goes_on_may_lack_fsyncs() {
    let s = plain();
    with_engine(&s.image(), false, fsync_often);
    let last = *blocks(&s.image(), |b| is_inode(b, "file")).last().unwrap();
    let file = fs::File::options().write(true).open(s.image()).unwrap();
    for (node, code) in [(last + 2, 0), (last + 1, 1)] {
        file.set_len(node * PAGE as u64).unwrap();
        for (flags, to) in [(&["-r"][..], "out"), (&["--salvage"], "all")] {
            let mut command = medfs();
            command.arg("get").args(flags).arg(s.image());
            if to == "out" {
                command.arg("/");
            }
            let to = s.path(&format!("{to}{code}"));
            let text = stderr(&command.arg(&to).assert().code(code));
            let tells = |line: &str| line.starts_with("medfs get: /: ") && line.contains("fsync");
            assert_eq!(text.lines().filter(|line| tells(line)).count(), code as usize, "{text}");
            assert!(text.contains("was cut short: the last "), "{text}");
            assert_eq!(fs::read(to.join("file")).unwrap(), 599_u32.to_le_bytes());
        }
    }
}

/// A file that is not whole is one that was not copied whole, and no other.
#[test]
fn a_damaged_file_is_counted_once() {
    let s = volume();
    let map = bad(&s, &[block_of(&s.image(), &page(1, 3)), block_of(&s.image(), &page(1, 30))]);
    let text = stderr(&get(&s, &["-r"], &map, &["/"], "out").code(1));
    // With the root there are two directories and three files.
    assert!(
        text.contains("1 file or directory not copied or incomplete; 4 files and directories copied whole"),
        "{text}"
    );
}

/// Before hours of reading: where the copies and the undo file are to be.
#[test]
fn where_nothing_can_be_written_is_said_first() {
    let s = volume();
    fs::write(s.path("zeros"), vec![0; 1 << 20]).unwrap();
    let nowhere = s.path("no/where");
    for args in [&["get", "--salvage"][..], &["get", "-r"]] {
        let mut command = medfs();
        command.args(args).arg(s.path("zeros")).args((args[1] == "-r").then_some("/")).arg(&nowhere);
        let text = error(1, &mut command);
        assert!(text.contains("cannot copy to") && text.contains("no"), "{text}");
    }
    assert!(damage(&s.image(), |b| is_inode(b, "a"), |b| b.0[12] ^= 0x40) > 0);
    let assert = medfs().args(["fsck", "--repair", "--undo"]).arg(&nowhere).arg(s.image()).assert().code(8);
    assert!(assert.get_output().stdout.is_empty());
    assert!(stderr(&assert).contains("cannot create"));
    medfs().arg("fsck").arg(s.image()).assert().code(4);
}

#[test]
fn a_map_is_kept_and_tried_again_only_when_asked() {
    let s = volume();
    let map = s.path("new.map");
    get(&s, &["-r"], &map, &["/"], "first").code(0);
    assert!(fs::read_to_string(&map).unwrap().starts_with("# Mapfile. Created by medfs"));
    // A block that was bad and is not any more.
    let map = bad(&s, &[block_of(&s.image(), &page(2, 0))]);
    get(&s, &["-r"], &map, &["/"], "spared").code(1);
    assert_eq!(fs::read(s.path("spared/dir/b")).unwrap(), [0; PAGE]);
    get(&s, &["-r", "--retry"], &map, &["/"], "retried").code(0);
    assert_eq!(fs::read(s.path("retried/dir/b")).unwrap(), page(2, 0));
    assert!(!fs::read_to_string(&map).unwrap().contains("  -\n"));
    get(&s, &["-r"], &map, &["/"], "after").code(0);

    let text = error(2, medfs().args(["get", "--salvage"]).arg(s.image()).arg("/").arg(s.path("x")));
    assert!(text.contains("no paths of the volume: 'medfs get --salvage "), "{text}");
    error(2, medfs().arg("get").arg(s.image()).arg("/"));
}

#[test]
fn what_is_no_map_of_the_image_is_refused_and_left_as_it_is() {
    let s = volume();
    let len = fs::metadata(s.image()).unwrap().len();
    let other = volume();
    let map = other.path("other.map");
    get(&other, &["-r"], &map, &["/"], "out").code(0);
    let ddrescue = "# Mapfile. Created by GNU ddrescue version 1.27\n";
    let cases = [
        (b"hello\nworld".to_vec(), "it does not begin with the header of a ddrescue or medfs map"),
        (b"one line\n".to_vec(), "it does not begin with the header of a ddrescue or medfs map"),
        (
            format!("0 ? 1\n0 {len} +\n").into_bytes(),
            "it does not begin with the header of a ddrescue or medfs map",
        ),
        (vec![0xff; 10_000], "it does not begin with the header of a ddrescue or medfs map"),
        (format!("{ddrescue}hello\n").into_bytes(), "line 2: expected POSITION STATUS PASS"),
        (format!("{ddrescue}0 ? 1\n").into_bytes(), "it has no ranges"),
        (format!("{ddrescue}0 ? 1\n0 {} +\n", len - 4096).into_bytes(), "and this one has"),
        (format!("{ddrescue}0 ? 1\n0 {} +\n", len + 4096).into_bytes(), "and this one has"),
        (fs::read(map).unwrap(), "it is of volume "),
    ];
    for (content, why) in cases {
        fs::write(s.path("no.map"), &content).unwrap();
        for args in [&["-r"][..], &["-r", "--retry"]] {
            let text = stderr(&get(&s, args, &s.path("no.map"), &["/"], "x").code(1));
            assert!(text.contains(why) && text.lines().count() == 1, "{why}: {text}");
            assert_eq!(fs::read(s.path("no.map")).unwrap(), content);
        }
    }
    let text = stderr(&get(&s, &["-r", "--retry"], &s.image(), &["/"], "x").code(1));
    assert!(text.contains("not a mapfile"), "{text}");
    fs::create_dir(s.path("dir.map")).unwrap();
    let text = stderr(&get(&s, &["-r"], &s.path("dir.map"), &["/"], "x").code(1));
    assert!(text.contains("it is not a regular file"), "{text}");
}

#[test]
fn a_retry_notes_what_it_read() {
    let s = volume();
    let len = fs::metadata(s.image()).unwrap().len();
    let block = block_of(&s.image(), &page(2, 0)) * PAGE as u64;
    // As ddrescue leaves a copy that it has not ended.
    let map = s.path("part.map");
    let rest = block + PAGE as u64;
    let ranges = format!("0 {block} +\n{block} {PAGE} ?\n{rest} {} +\n", len - rest);
    fs::write(&map, format!("# Mapfile. Created by GNU ddrescue version 1.27\n0 ? 1\n{ranges}")).unwrap();
    get(&s, &["-r"], &map, &["/"], "spared").code(1);
    get(&s, &["-r", "--retry"], &map, &["/"], "retried").code(0);
    let text = fs::read_to_string(&map).unwrap();
    assert!(text.contains(&format!("# Read by medfs: {block:#010x}  0x00001000")), "{text}");
    assert!(text.contains(&format!("{block:#010x}  0x00001000  ?")), "{text}");
    get(&s, &["-r"], &map, &["/"], "after").code(0);
    // A map of medfs's says it of the range.
    let map = bad(&s, &[block / PAGE as u64]);
    get(&s, &["-r", "--retry"], &map, &["/"], "own").code(0);
    let known = medfs_device::Mapfile::parse(&fs::read_to_string(&map).unwrap()).unwrap();
    let all: Vec<String> =
        known.text().lines().filter(|line| line.ends_with('+')).map(str::to_owned).collect();
    assert!(!all.is_empty() && known.bad_bytes() == 0, "{}", known.text());
}

#[test]
fn a_list_takes_the_map_too() {
    let s = volume();
    let ls = |map: &Path| {
        let mut command = medfs();
        command.args(["ls", "--map"]).arg(map).arg(s.image()).arg("/dir");
        command.assert()
    };
    let map = s.path("list.map");
    fs::write(&map, "").unwrap();
    let assert = ls(&map).code(0);
    assert_eq!(assert.get_output().stdout, b"a\nb\n");
    assert!(fs::read_to_string(&map).unwrap().starts_with("# Mapfile. Created by medfs"));
    // Every block is bad: none is read.
    let blocks: Vec<u64> = (0..fs::metadata(s.image()).unwrap().len() / PAGE as u64).collect();
    let text = stderr(&ls(&bad(&s, &blocks)).code(1));
    assert!(text.contains("cannot read"), "{text}");
}

/// What was copied is not removed for another of its name.
#[test]
fn two_files_of_one_name_are_both_brought() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let dir = make(v, v.root(), "dir", FileKind::Directory);
        for (name, content) in [("ab", "one"), ("cd", "two"), ("ef", "three")] {
            let ino = make(v, dir, name, FileKind::Regular);
            v.write(ino, 0, content.as_bytes()).unwrap();
            if name == "ab" {
                v.link(ino, v.root(), b"ab").unwrap();
            }
            if name == "ef" {
                v.link(ino, dir, b"eg").unwrap();
            }
        }
    });
    let all = |from: &[&str], to: &str| {
        let mut command = medfs();
        command.args(["get", "-r"]).arg(s.image()).args(from).arg(s.path(to)).assert()
    };
    fs::create_dir(s.path("named")).unwrap();
    let text = stderr(&all(&["/ab", "/dir/ab"], "named").code(1));
    assert!(text.contains("/ab and /dir/ab would both be called ab"), "{text}");
    assert_eq!(fs::read_dir(s.path("named")).unwrap().count(), 0);
    let text = error(2, medfs().args(["get", "--json"]).arg(s.image()).args(["/ab", "-"]));
    assert!(text.contains("both write to standard output"), "{text}");

    // Damage gives two files one name, and a file of two names one of them twice.
    rename(&s.image(), "dir", b"cd", b"ab");
    rename(&s.image(), "dir", b"eg", b"ef");
    let text = stderr(&all(&["/"], "all").code(1));
    let has = |name: &str, content: &str| {
        assert_eq!(fs::read_to_string(s.path(&format!("all/{name}"))).unwrap(), content, "{text}");
    };
    has("ab", "one");
    has("dir/ab", "one");
    has("dir/ef", "three");
    let names =
        fs::read_dir(s.path("all/dir")).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    let other: Vec<String> = names.filter(|name| name.starts_with("ab.")).collect();
    assert_eq!(other.len(), 1, "{text}");
    has(&format!("dir/{}", other[0]), "two");
    assert!(text.contains("another file has its name"), "{text}");
}

/// The same volume with a file whose content is in its inode.
pub(crate) fn volume_with_small_file() -> Scratch {
    let s = volume();
    with_engine(&s.image(), true, |v| {
        let dir = v.lookup(v.root(), b"dir").unwrap().ino;
        let ino = make(v, dir, "small", FileKind::Regular);
        v.write(ino, 0, b"a few words").unwrap();
    });
    s
}

pub(crate) fn junk_inode(image: &Path, name: &str) {
    assert!(damage(image, |block| is_inode(block, name), |block| block.0.fill(0xa5)) > 0);
}

#[test]
fn a_check_that_nobody_watches_loses_nothing() {
    let s = volume_with_small_file();
    let at_boot = |flag: &str| {
        let mut command = System::new(binary());
        let done = command.arg0("/sbin/fsck.medfs").arg(flag).arg(s.image()).output().unwrap();
        (done.status.code(), String::from_utf8(done.stdout).unwrap())
    };
    let write = |bytes: &[u8], at: u64| {
        fs::File::options().write(true).open(s.image()).unwrap().write_all_at(bytes, at).unwrap();
    };
    write(&[0; PAGE], 0);
    assert_eq!(at_boot("-a").0, Some(1), "a superblock has a second copy");
    junk_inode(&s.image(), "small");
    let before = fs::read(s.image()).unwrap();
    for flag in ["-a", "-p"] {
        let (code, text) = at_boot(flag);
        assert!(
            code == Some(4) && text.contains("NOT REPAIRED") && text.contains("medfs get -r"),
            "{code:?} {text}"
        );
        assert!(fs::read(s.image()).unwrap() == before, "{flag} changed it");
    }
    let (code, text) = at_boot("-y");
    assert!(code == Some(1) && text.contains("\nlost: /dir/small (inode "), "{code:?} {text}");
}

#[test]
fn an_empty_file_becomes_a_map() {
    let s = volume();
    fs::write(s.path("empty.map"), "").unwrap();
    get(&s, &["-r"], &s.path("empty.map"), &["/"], "whole").code(0);
    assert!(fs::read_to_string(s.path("empty.map")).unwrap().contains("# Volume: "));
}

/// A node in the middle of the fsync log is lost, and the files fsynced behind it are neither lost nor passed over in
/// silence.
#[test]
fn what_was_fsynced_behind_a_lost_node_is_named_and_salvaged() {
    for s in [plain(), Scratch::with_volume("64M")] {
        with_engine(&s.image(), false, |v| {
            let old = make(v, v.root(), "old", FileKind::Regular);
            v.write(old, 0, &pages(9, 1)).unwrap();
            v.sync().unwrap();
            for n in 0..5 {
                let ino = make(v, v.root(), &format!("new{n}"), FileKind::Regular);
                v.write(ino, 0, &pages(n, 2)).unwrap();
                v.fsync(ino, false).unwrap();
            }
            v.write(old, PAGE as u64, &page(9, 1)).unwrap();
            v.fsync(old, false).unwrap();
        });
        let lost = blocks(&s.image(), |b| is_inode(b, "new2") && footer(b).is_fsync());
        let map = bad(&s, &lost);
        let assert = get(&s, &["-r"], &map, &["/"], "out").code(1);
        let text = stderr(&assert);
        for (path, name) in [("/old", " (as old)"), ("'inode ", " (as new3)"), ("'inode ", " (as new4)")] {
            let told = |line: &str| line.contains(&format!("medfs get: {path}")) && line.contains(name);
            assert_eq!(text.lines().filter(|line| told(line)).count(), 1, "{path}{name}: {text}");
        }
        assert!(text.contains("3 files and directories not copied or incomplete"), "{text}");
        let copy = |to: &str, name: &str| fs::read(s.path(to).join(name)).ok();
        assert!(copy("out", "old") == Some(pages(9, 1)), "as of the checkpoint");
        for n in 0..5 {
            let brought = (n < 2).then(|| pages(n, 2));
            assert!(copy("out", &format!("new{n}")) == brought, "new{n}: {text}");
        }
        let assert = get(&s, &["--salvage"], &map, &[], "all").code(1);
        let text = stderr(&assert);
        let sentence = format!("medfs get: /: block {} of the fsync log is lost or cannot be read", lost[0]);
        assert_eq!(text.matches(&sentence).count(), 1, "{text}");
        for name in ["old", "new3", "new4"] {
            let told = format!("medfs get: /{name}: it was fsynced (as {name}) behind");
            assert_eq!(text.matches(&told).count(), 1, "{text}");
        }
        assert!(copy("all", "old") == Some(pages(9, 2)), "as it was fsynced");
        for n in 0..5 {
            let brought = (n != 2).then(|| pages(n, 2));
            assert!(copy("all", &format!("new{n}")) == brought, "new{n}: {text}");
        }
    }
}

#[test]
fn what_is_cut_short_is_not_said_to_be_repairable() {
    let s = volume();
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    image.set_len(image.metadata().unwrap().len() / 2).unwrap();
    let out = medfs().arg("fsck").arg(s.image()).assert().code(4);
    let text = String::from_utf8_lossy(&out.get_output().stdout).into_owned();
    assert!(text.contains("get --salvage") && !text.contains("--repair"), "{text}");
    let out = medfs().args(["fsck", "--json"]).arg(s.image()).assert().code(4);
    let json: serde_json::Value = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert!(json["found"]["findings"].is_array() && json["found"].get("files").is_none(), "{json}");
    let text = error(1, medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("x")));
    assert!(text.contains("cut short") && !text.contains("--repair"), "{text}");
    assert!(s.path("x/dir/b").exists());
}

#[test]
fn a_damaged_volume_is_not_imported_and_stays_as_it_was() {
    let s = volume();
    // One flipped bit of an inode.
    let name = blocks(&s.image(), |block| is_inode(block, "c"));
    let mut image = fs::read(s.image()).unwrap();
    image[name[0] as usize * PAGE + 12] ^= 0x40;
    fs::write(s.image(), &image).unwrap();
    let text = error(1, medfs().arg("import").arg(s.image()));
    assert!(text.contains("nothing was changed; copy the files first, 'medfs get -r "), "{text}");
    assert!(fs::read(s.image()).unwrap() == image);
}

/// Replaces bytes wherever they are in directories: in the inline entries of these inodes.
fn rename(image: &Path, dir: &str, from: &[u8], to: &[u8]) {
    assert_eq!(from.len(), to.len());
    let change = |b: &mut Block| {
        let at = b.0.windows(from.len()).rposition(|bytes| bytes == from).expect("the name");
        b.0[at..at + to.len()].copy_from_slice(to);
    };
    assert!(damage(image, |b| is_inode(b, dir), change) > 0);
}

#[test]
fn nothing_is_written_outside_the_destination() {
    let s = plain();
    let mut root = 0;
    with_engine(&s.image(), true, |v| {
        root = v.root();
        let dir = make(v, v.root(), "dir", FileKind::Directory);
        for name in ["climbs01", "escapes1", "nul byte"] {
            let ino = make(v, dir, name, FileKind::Regular);
            v.write(ino, 0, b"evil").unwrap();
        }
        make(v, dir, "well", FileKind::Regular);
        // A link, and a directory that gets the link's name.
        let outside = s.path("outside");
        let link = v.symlink(dir, b"aa-door", outside.to_str().unwrap().as_bytes(), 0, 0).unwrap().ino;
        v.release(link, 1);
        let door = make(v, dir, "zz-door", FileKind::Directory);
        let inner = make(v, door, "inside", FileKind::Regular);
        v.write(inner, 0, b"evil").unwrap();
    });
    fs::create_dir(s.path("outside")).unwrap();
    for (from, to) in [
        ("climbs01", "../climb"),
        ("escapes1", "/escaped"),
        ("nul byte", "nul\0byte"),
        ("zz-door", "aa-door"),
    ] {
        rename(&s.image(), "dir", from.as_bytes(), to.as_bytes());
    }
    for args in [&["get", "-r"][..], &["get", "--salvage"]] {
        let out = s.path(args[1]);
        let mut command = medfs();
        command.args(args).arg(s.image());
        if args[1] == "-r" {
            command.arg("/");
        }
        let text = stderr(&command.arg(&out).assert().code(if args[1] == "-r" { 1 } else { 0 }));
        if args[1] == "-r" {
            let told = "it has 1 name with NUL bytes and 2 names with a slash, which no file can have";
            assert!(
                text.contains("/dir: the directory is damaged") && text.matches(told).count() == 1,
                "{text}"
            );
            assert!(text.contains("aa-door"), "{text}");
        }
        assert!(out.join("dir/well").exists());
        assert_eq!(fs::read_dir(s.path("outside")).unwrap().count(), 0);
        assert!(!out.join("climb").exists() && !s.path("climb").exists() && !Path::new("/escaped").exists());
    }
    // Nor through links that were there before, in the destination.
    fs::create_dir(s.path("prepared")).unwrap();
    symlink(s.path("outside"), s.path("prepared/dir")).unwrap();
    let text =
        stderr(&medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("prepared")).assert().code(1));
    assert!(text.contains("/dir: ") && text.contains("exists and is not a directory"), "{text}");
    assert_eq!(fs::read_dir(s.path("outside")).unwrap().count(), 0);
}

#[test]
fn circles_and_depth_end() {
    let s = plain();
    let mut inner = 0;
    with_engine(&s.image(), true, |v| {
        let dir = make(v, v.root(), "dir", FileKind::Directory);
        inner = make(v, dir, "inner", FileKind::Directory);
        make(v, inner, "file", FileKind::Regular);
        make(v, inner, "again", FileKind::Directory);
        let mut deep = make(v, v.root(), "deep", FileKind::Directory);
        for _ in 0..2100 {
            deep = make(v, deep, "d", FileKind::Directory);
        }
    });
    // "again" leads to the directory that it is in.
    let (mut from, mut target) = (None, None);
    let found = blocks(&s.image(), |b| is_inode(b, "again"));
    let dev = open(&s.image());
    for addr in found {
        from = Some(footer(&read_block(&dev, addr).unwrap()).nid.get());
    }
    target.replace(inner);
    drop(dev);
    let entry = |ino: u32| [&ino.to_le_bytes()[..], &5u16.to_le_bytes(), &[2]].concat();
    rename(&s.image(), "inner", &entry(from.unwrap()), &entry(target.unwrap()));
    let text =
        stderr(&medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(s.path("out")).assert().code(1));
    assert!(text.contains("/dir/inner/again: directory") && text.contains("contains itself"), "{text}");
    assert!(text.contains("more than 2048 directories deep"), "{text}");
    assert!(s.path("out/dir/inner/file").exists());
    let assert = medfs().args(["ls", "-R"]).arg(s.image()).assert().code(1);
    assert!(stderr(&assert).contains("contains itself"));
    // Deeper than paths may be.
    assert!(std::process::Command::new("rm").arg("-rf").arg(s.path("out")).status().unwrap().success());
}

#[test]
fn a_full_destination_ends_it_with_the_reason() {
    if !can_mount() {
        return;
    }
    let s = volume();
    let dir = s.path("small");
    fs::create_dir(&dir).unwrap();
    let mounted = std::process::Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"])
        .arg(&dir)
        .status()
        .unwrap();
    if !mounted.success() {
        eprintln!("SKIPPED: tmpfs cannot be mounted");
        return;
    }
    fs::create_dir(dir.join("dir")).unwrap();
    fs::write(dir.join("dir/a"), "what was there").unwrap();
    let done = medfs().args(["get", "-r"]).arg(s.image()).arg("/").arg(&dir).output().unwrap();
    let there: Vec<_> = fs::read_dir(dir.join("dir")).unwrap().map(|e| e.unwrap().file_name()).collect();
    let left = fs::read_to_string(dir.join("dir/a")).unwrap();
    assert!(std::process::Command::new("umount").arg(&dir).status().unwrap().success());
    let text = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(text.contains("cannot write") && text.contains("dir/a: No space left on device"), "{text}");
    assert_eq!(left, "what was there");
    assert!(!there.iter().any(|name| name.to_string_lossy().contains("partial")), "{there:?}");
}

/// All of them have their names: the volume is sound, and the destination has another thing in the place of a
/// directory.
#[test]
fn what_lies_below_a_directory_that_is_not_made_is_not_said_to_lack_its_name() {
    let s = volume();
    std::fs::create_dir(s.path("out")).unwrap();
    std::fs::write(s.path("out/dir"), "a file").unwrap();
    for how in [&["get", "-r"][..], &["get", "--salvage"]] {
        let place: &[&str] = if how[1] == "-r" { &["/"] } else { &[] };
        let out = medfs().args(how).arg(s.image()).args(place).arg(s.path("out")).assert().code(1);
        let text = String::from_utf8_lossy(&out.get_output().stderr).into_owned();
        assert!(text.contains("exists and is not a directory"), "{text}");
        assert!(text.contains("below it were not copied") && !text.contains("directory entr"), "{text}");
        assert!(!s.path("out/by-inode").exists());
    }
}
