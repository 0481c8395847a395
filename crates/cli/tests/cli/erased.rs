//! The first sector of a block is erased, as where a card lost one of eight: of a directory's first block, of an inode.

use crate::common::*;
use crate::damaged::{blocks, is_inode, pages, volume};
use crate::newcomer::says;
use medfs::Files;
use medfs_format::Block;
use medfs_format::node::{FileKind, RawInode};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SECTOR: usize = 512;
const PAGE: u64 = 4096;
/// Where a directory's first block has its own number: in its first entry, behind the bitmap and the hash.
pub(crate) const INO_OF_DOT: usize = 27 + 3 + 4;
/// Where the names of a directory's block are: behind the bitmap and the entries.
pub(crate) const NAMES: usize = 27 + 3 + 214 * 11;

/// Erases sectors of a block from its first one on.
fn erase(image: &Path, addr: u64, sectors: usize) {
    let image = fs::File::options().write(true).open(image).unwrap();
    image.write_all_at(&vec![0; sectors * SECTOR], addr * PAGE).unwrap();
}

/// A directory whose first block has no entry, not even its own, has lost them: it is not taken for empty.
#[test]
fn a_directory_without_its_first_sector_is_not_shown_as_empty() {
    let s = plain();
    with_engine(&s.image(), true, |v| {
        let dir = make(v, v.root(), "dir", FileKind::Directory);
        for n in 0..60 {
            make(v, dir, &format!("a file with the number {n}"), FileKind::Regular);
        }
    });
    let is_root = |block: &Block| block.0[INO_OF_DOT..].starts_with(&[3, 0, 0, 0]);
    let first = blocks(&s.image(), |block| block.0[NAMES..].starts_with(b".\0") && !is_root(block));
    // Those that it had while it grew, too.
    first.into_iter().for_each(|block| erase(&s.image(), block, 1));
    for command in ["ls image /dir", "get -r image /dir out"] {
        let said = says(&s, 1, command);
        assert!(said.contains("/dir: the directory is damaged, and names may be missing"), "{said}");
    }
    with_engine(&s.image(), true, |v| {
        assert!(v.rmdir(v.root(), b"dir").is_err(), "its files would be lost");
    });
    says(&s, 0, "get --salvage image saved");
    assert_eq!(fs::read_dir(s.path("saved/dir")).unwrap().count(), 60);
}

/// An inode without its first sector, in a directory that is lost: its file comes back from its other blocks, as it
/// does where all of the inode is lost.
#[test]
fn a_file_without_its_first_sector_in_a_lost_directory_is_made_again() {
    for sectors in [1, 8] {
        let s = volume();
        let inode = |name: &'static str| blocks(&s.image(), move |block| is_inode(block, name))[0];
        let (a, dir) = (inode("a"), inode("dir"));
        erase(&s.image(), a, sectors);
        erase(&s.image(), dir, 8);
        says(&s, 1, "get --salvage image saved");
        let brought = fs::read_dir(s.path("saved/by-inode")).unwrap().map(|entry| entry.unwrap().path());
        let brought: Vec<Vec<u8>> = brought.map(|path| fs::read(path).unwrap()).collect();
        assert!(brought.contains(&pages(1, 40)), "{sectors} sectors");
    }
}

/// A salvage of an image that was cut short does not send to a check, which finds that first and nothing else.
#[test]
fn what_is_wrong_with_an_image_that_was_cut_short_is_not_said_to_be_listed() {
    let s = volume();
    fs::File::options().write(true).open(s.image()).unwrap().set_len(17 << 20).unwrap();
    let said = says(&s, 1, "get --salvage image saved");
    assert!(said.contains(" faults") && !said.contains("lists them"), "{said}");
    let said = says(&s, 1, "get -r image / out");
    assert!(!said.contains("fsynced"), "it was unmounted: {said}");
}

#[test]
fn the_command_that_is_meant_keeps_its_option() {
    let s = volume();
    let said = says(&s, 2, "get -r / image out");
    assert!(said.contains("'medfs get -r image / out'"), "{said}");
}

/// Findings name inodes and blocks, an owner looks for a path: the check lists it, and so does the repair.
#[test]
fn a_check_and_a_repair_name_the_files_that_are_kept_as_they_read() {
    let s = Scratch::with_volume("64M");
    with_engine(&s.image(), true, |v| {
        let dir = make(v, v.root(), "dir", FileKind::Directory);
        make(v, dir, "a", FileKind::Regular);
    });
    // Its time: the checksum tells that something is wrong, and not what.
    let at_any_time =
        |block: &mut Block| block.view_mut::<RawInode>().i_ctime = u64::from_le_bytes(*b"any time").into();
    assert!(damage(&s.image(), |block| is_inode(block, "a"), at_any_time) > 0);
    let path = "/dir/a (inode ";
    let what = ": kept as read, as a part of its inode is lost or wrong";
    let said = says(&s, 4, "fsck image");
    let line = said.lines().find(|line| line.contains(path)).unwrap_or_else(|| panic!("{said}"));
    assert!(
        line.starts_with("  /dir/a") && line.contains(what) && said.contains("damaged, and kept:\n"),
        "{said}"
    );
    let said = says(&s, 4, "fsck --json image");
    let found: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    let damaged = &found["found"]["damaged"][0];
    assert_eq!(damaged["path"], "/dir/a");
    assert!(damaged["damage"].as_array().unwrap().contains(&"doubted".into()), "{damaged}");
    let said = says(&s, 1, "fsck --repair image");
    assert!(said.contains("\ndamaged: /dir/a (inode "), "{said}");
}

#[test]
fn without_a_root_directory_files_that_are_made_again_are_named() {
    let s = volume();
    let a = blocks(&s.image(), |block| is_inode(block, "a"))[0];
    let root = blocks(&s.image(), |block| {
        let f = medfs_format::node::footer(block);
        (f.nid.get(), f.ino.get()) == (3, 3)
    });
    root.into_iter().for_each(|block| erase(&s.image(), block, 8));
    erase(&s.image(), a, 8);
    let said = says(&s, 4, "fsck image");
    assert!(said.contains("\n  /dir/a (inode ") && said.contains("rebuilt from its other blocks"), "{said}");
    let said = says(&s, 1, "fsck --repair image");
    assert!(said.contains("\ndamaged: /dir/a (inode "), "{said}");
}

/// What a salvage makes of a file without its inode may be wrong: it replaces no earlier copy.
#[test]
fn a_good_copy_is_not_replaced_by_one_that_may_be_wrong() {
    let s = volume();
    says(&s, 0, "get -r image / files");
    let good = fs::read(s.path("files/dir/b")).unwrap();
    // A smaller size, which is not seen: its number of blocks says that it lacks some.
    let shorten = |block: &mut Block| {
        block.view_mut::<RawInode>().i_blocks = 9.into();
        block.view_mut::<RawInode>().i_size = 100.into();
    };
    assert!(damage(&s.image(), |block| is_inode(block, "b"), shorten) > 0);
    let said = says(&s, 1, "get --salvage image files");
    assert!(said.contains("/dir/b") && said.contains("differs and stays"), "{said}");
    assert!(fs::read(s.path("files/dir/b")).unwrap() == good);
    assert_eq!(fs::read(s.path("files/dir/b.partial")).unwrap().len(), 100);
}

/// Junk over the head of an inode leads nowhere: the file is made again from its blocks, as where its inode is lost.
#[test]
fn a_file_with_junk_for_its_head_is_made_again() {
    let s = volume();
    let a = blocks(&s.image(), |block| is_inode(block, "a"))[0];
    let image = fs::File::options().write(true).open(s.image()).unwrap();
    let junk: Vec<u8> =
        (0..SECTOR as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 23) as u8 | 0x81).collect();
    image.write_all_at(&junk, a * PAGE).unwrap();
    let said = says(&s, 4, "fsck image");
    assert!(said.contains("\n  /dir/a (inode ") && said.contains("rebuilt from its other blocks"), "{said}");
    says(&s, 1, "get --salvage image saved");
    assert!(fs::read(s.path("saved/dir/a")).unwrap() == pages(1, 40));
    says(&s, 1, "fsck --repair image");
    says(&s, 0, "get -r image / repaired");
    assert!(fs::read(s.path("repaired/dir/a")).unwrap() == pages(1, 40));
}

/// A second run that reads zeros where the first one read something, of a file that was not changed since: the first
/// copy stays.
#[test]
fn a_good_copy_is_not_replaced_by_one_with_other_content() {
    let s = volume();
    says(&s, 0, "get -r image / files");
    says(&s, 0, "get -r image / files");
    let content = blocks(&s.image(), |block| block.0[..] == pages(2, 1)[..]);
    content.into_iter().for_each(|block| erase(&s.image(), block, 8));
    let said = says(&s, 1, "get -r image / files");
    let why = "/dir/b: an earlier copy, of equal size and time, has other content; the existing file differs and stays";
    assert!(said.contains(why) && said.contains("b.partial"), "{said}");
    assert!(fs::read(s.path("files/dir/b")).unwrap() == pages(2, 1));
}
