//! The first sector of a block is erased, as where a card lost one of eight: of a directory's first block, of an inode.

use crate::common::*;
use crate::damaged::{blocks, is_inode, pages, volume};
use crate::newcomer::says;
use medfs::Files;
use medfs_format::Block;
use medfs_format::node::FileKind;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

const SECTOR: usize = 512;
const PAGE: u64 = 4096;
/// Where a directory's first block has its own number: in its first entry, behind the bitmap and the hash.
const INO_OF_DOT: usize = 27 + 3 + 4;
/// Where the names of a directory's block are: behind the bitmap and the entries.
const NAMES: usize = 27 + 3 + 214 * 11;

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
