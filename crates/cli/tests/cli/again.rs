//! Files are got a second time, over copies that are there: what is there gives way to a whole copy, and
//! stays where the new one has less.

use crate::common::*;
use crate::damaged::{bad, block_of, get, page, pages, stderr, volume};
use crate::mounts::Rng;
use medfs::Files;
use medfs_format::BLOCK_SIZE;
use medfs_format::node::FileKind;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

const PAGE: usize = BLOCK_SIZE;

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

const TAKEN_OVER: &str = "; the pages of an earlier copy fill them";

/// The file `a` of [`volume`] without some of its pages.
fn holes(lost: &[usize]) -> Vec<u8> {
    let mut content = pages(1, 40);
    lost.iter().for_each(|index| content[index * PAGE..(index + 1) * PAGE].fill(0));
    content
}

#[test]
fn a_whole_copy_stays_where_the_next_one_has_holes() {
    let s = volume();
    get(&s, &["-r"], &s.path("whole.map"), &["/"], "out").code(0);
    fs::create_dir(s.path("again")).unwrap();
    let [first, second] = [3, 4].map(|index| block_of(&s.image(), &page(1, index)));
    let again = |lost: &[u64], code| {
        let map = bad(&s, lost);
        stderr(&get(&s, &["-r"], &map, &["/dir"], "out").code(code))
    };
    let text = again(&[first], 0);
    let told = "/dir/a: bytes 12288-16383 of 163840 cannot be read and were left as holes";
    assert!(!text.contains(told), "{text}");
    assert_eq!(fs::read(s.path("out/dir/a")).unwrap(), pages(1, 40));
    // What somebody has changed is no copy of this file.
    let mut changed = pages(1, 40);
    changed[0] ^= 1;
    fs::write(s.path("out/dir/a"), &changed).unwrap();
    let text = again(&[first], 1);
    let kept = "the existing file has more and stays, and the copy is named a.partial";
    assert!(text.contains(told) && text.contains(kept) && !text.contains(TAKEN_OVER), "{text}");
    assert_eq!(fs::read(s.path("out/dir/a")).unwrap(), changed);
    assert_eq!(fs::read(s.path("out/dir/a.partial")).unwrap(), holes(&[3]));
    // One that reads more takes the place of the one that has less.
    fs::write(s.path("out/dir/a"), holes(&[3, 4])).unwrap();
    assert!(!again(&[first], 1).contains("is called"));
    assert_eq!(fs::read(s.path("out/dir/a")).unwrap(), holes(&[3]));
    // A whole one always, even of a longer file.
    fs::write(s.path("out/dir/a"), vec![1; 41 * PAGE]).unwrap();
    assert!(again(&[second], 1).contains("the copy is named a.partial"), "a longer one stays");
    again(&[], 0);
    assert_eq!(fs::read(s.path("out/dir/a")).unwrap(), pages(1, 40));
    assert_eq!(names(&s.path("out/dir")), ["a", "a.partial", "b"]);
}

/// What an interrupted run left goes where the copy has all of it; anything else under such a name stays.
#[test]
fn a_whole_copy_clears_what_an_interrupted_one_left() {
    let s = volume();
    let dir = s.path("out/dir");
    fs::create_dir_all(&dir).unwrap();
    let leave = |name: &str, content: &[u8], mode: u32| {
        fs::write(dir.join(name), content).unwrap();
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    let begun = &pages(1, 40)[..7 * PAGE + 100];
    let mut other = begun.to_vec();
    other[5000] ^= 1;
    leave("a.partial", begun, 0o600);
    leave("a.partial.1", &other, 0o600);
    leave("a.partial.2", begun, 0o644);
    leave("a.partial.3", &holes(&[3]), 0o600);
    get(&s, &["-r"], &s.path("map"), &["/dir"], "out").code(0);
    assert_eq!(fs::read(dir.join("a")).unwrap(), pages(1, 40));
    // The first ends the search where it is the only one, and the others are still looked at.
    assert_eq!(names(&dir), ["a", "a.partial.1", "a.partial.2", "b"]);
    // A copy that lacks content of what is left leaves it alone.
    leave("a.partial", &pages(1, 40), 0o600);
    fs::remove_file(dir.join("a")).unwrap();
    let block = block_of(&s.image(), &page(1, 3));
    get(&s, &["-r"], &bad(&s, &[block]), &["/dir"], "out").code(1);
    assert!(names(&dir).contains(&"a.partial".to_owned()));
}

/// What several runs have read, each other parts, comes together in one copy.
#[test]
fn copies_of_several_runs_are_merged() {
    let s = volume();
    fs::create_dir(s.path("out")).unwrap();
    let blocks = [3, 4, 39].map(|index| block_of(&s.image(), &page(1, index)));
    let again_to = |lost: &[u64], code| {
        let map = bad(&s, lost);
        stderr(&get(&s, &["-r"], &map, &["/dir"], "out").code(code))
    };
    let again = |lost: &[u64]| again_to(lost, 1);
    let copy = || fs::read(s.path("out/dir/a")).unwrap();
    assert!(!again(&blocks).contains(TAKEN_OVER));
    assert_eq!(copy(), holes(&[3, 4, 39]));
    again(&blocks[..2]);
    assert_eq!(copy(), holes(&[3, 4]));
    let text = again(&blocks[1..]);
    assert!(text.contains(TAKEN_OVER), "{text}");
    assert_eq!(copy(), holes(&[4]));
    let changed_at = fs::metadata(s.path("out/dir/a")).unwrap().mtime();
    let text = again_to(&[blocks[0], blocks[2]], 0);
    assert_eq!((copy(), text.contains("/dir/a")), (pages(1, 40), false));
    assert_eq!(fs::metadata(s.path("out/dir/a")).unwrap().mtime(), changed_at);
    // Beside a file of the user's too.
    fs::write(s.path("out/dir/a"), vec![1; 41 * PAGE]).unwrap();
    again(&blocks[..1]);
    assert!(again(&blocks[1..]).contains("the copy is named a.partial"));
    assert_eq!(fs::read(s.path("out/dir/a.partial")).unwrap(), pages(1, 40));
    assert_eq!(names(&s.path("out/dir")), ["a", "a.partial", "b"]);
    // Where a page is another one, both stay.
    let other = fs::File::options().write(true).open(s.path("out/dir/a.partial")).unwrap();
    other.write_all_at(b"other", 0).unwrap();
    let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(changed_at as u64);
    other.set_modified(modified).unwrap();
    assert!(again(&blocks[..1]).contains("the copy is named a.partial.1"));
    assert_eq!(fs::read(s.path("out/dir/a.partial.1")).unwrap(), holes(&[3]));
}

#[test]
fn a_single_file_keeps_what_is_there_and_a_directory_in_its_place_is_told() {
    let s = volume();
    fs::write(s.path("copy"), pages(1, 40)).unwrap();
    let map = bad(&s, &[block_of(&s.image(), &page(1, 0))]);
    let text = stderr(&get(&s, &[], &map, &["/dir/a"], "copy").code(1));
    assert!(text.contains("the copy is named copy.partial"), "{text}");
    assert_eq!(fs::read(s.path("copy")).unwrap(), pages(1, 40));
    fs::create_dir_all(s.path("out/dir/a")).unwrap();
    let text = stderr(&get(&s, &["-r"], &s.path("whole.map"), &["/dir"], "out").code(1));
    assert!(text.contains("out/dir/a is a directory: a file cannot take its place"), "{text}");
    assert_eq!(names(&s.path("out/dir")), ["a", "b"]);
}

/// A file of several names is told of under each, and each is what it was.
#[test]
fn every_name_of_an_incomplete_file_is_told() {
    let s = volume();
    with_engine(&s.image(), true, |v| {
        let dir = v.lookup(v.root(), b"dir").unwrap().ino;
        let a = v.lookup(dir, b"a").unwrap().ino;
        v.link(a, v.root(), b"second").unwrap();
        v.link(a, v.root(), b"third").unwrap();
    });
    let map = bad(&s, &[block_of(&s.image(), &page(1, 0))]);
    fs::create_dir(s.path("out")).unwrap();
    fs::write(s.path("out/third"), "what was there").unwrap();
    let text = stderr(&get(&s, &["-r"], &map, &["/"], "out").code(1));
    for name in ["/dir/a", "/second", "/third"] {
        assert!(text.contains(&format!("{name}: bytes 0-4095 of 163840 cannot be read")), "{text}");
    }
    assert!(text.contains("3 files and directories not copied or incomplete"), "{text}");
    assert!(text.contains("the copy is named third.partial"), "{text}");
    assert_eq!(fs::read_to_string(s.path("out/third")).unwrap(), "what was there");
    let inode = |name: &str| fs::metadata(s.path(&format!("out/{name}"))).unwrap().ino();
    assert_eq!(inode("dir/a"), inode("second"));
    assert_eq!(inode("dir/a"), inode("third.partial"));
}

/// A volume of files of some pages, one of them with two names, got again and again while other blocks are
/// bad: a page that was brought once is never lost, what is told is true, and what is not told is whole.
#[test]
fn no_run_loses_what_another_has_brought() {
    const FILES: [(&str, usize); 4] = [("a", 1), ("b", 3), ("c", 9), ("d", 2)];
    let s = plain();
    with_engine(&s.image(), true, |v| {
        for (file, (name, count)) in (1..).zip(FILES) {
            let ino = make(v, v.root(), name, FileKind::Regular);
            v.write(ino, 0, &pages(file, count)).unwrap();
        }
        let b = v.lookup(v.root(), b"b").unwrap().ino;
        v.link(b, v.root(), b"other_b").unwrap();
    });
    let image = fs::read(s.image()).unwrap();
    let place = |content: &[u8]| image.chunks(PAGE).position(|block| block == content).unwrap() as u64;
    let blocks: Vec<(u8, usize, u64)> = (1..)
        .zip(FILES)
        .flat_map(|(file, (_, count))| (0..count).map(move |index| (file, index)))
        .map(|(file, index)| (file, index, place(&page(file, index))))
        .collect();
    let given = std::env::var("MEDFS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or(7);
    let mut rng = Rng::new(seed);
    let all = FILES.iter().map(|(name, _)| *name).chain(["other_b"]);
    let all: Vec<(u8, &str)> =
        (1..).zip(all).map(|(file, name)| (if file == 5 { 2 } else { file }, name)).collect();
    let read = |name: &str| fs::read(s.path(&format!("out/{name}"))).unwrap_or_default();
    let has = |content: &[u8], file, index: usize| {
        content.get(index * PAGE..(index + 1) * PAGE) == Some(&page(file, index)[..])
    };
    fs::create_dir(s.path("out")).unwrap();
    for round in 0..12 {
        let share = rng.below(4) * 10;
        let lost: Vec<_> = blocks.iter().filter(|_| rng.below(100) < share).collect();
        let before: Vec<_> = all.iter().map(|(_, name)| read(name)).collect();
        let map = bad(&s, &lost.iter().map(|(.., block)| *block).collect::<Vec<_>>());
        let assert = get(&s, &["-r"], &map, &["/"], "out");
        let text = stderr(&assert);
        assert.code(i32::from(text.contains(": bytes ")));
        for ((file, name), before) in all.iter().zip(before) {
            let context = format!("seed {seed}, round {round}, {name}: {text}");
            let after = read(name);
            let pages = blocks.iter().filter(|(of, ..)| of == file).map(|(_, index, _)| *index);
            assert!(
                pages.clone().all(|index| has(&after, *file, index) || !has(&before, *file, index)),
                "{context}"
            );
            let is_hit = lost.iter().any(|(of, ..)| of == file);
            let is_told = text.contains(&format!("medfs get: /{name}: bytes "));
            assert!(is_hit || !is_told, "{context}");
            assert!(is_told || pages.clone().all(|index| has(&after, *file, index)), "{context}");
            // What this run has read is there too.
            let wanted = pages.filter(|index| !lost.iter().any(|(of, hit, _)| of == file && hit == index));
            let copies: Vec<_> =
                names(&s.path("out")).into_iter().filter(|other| other.starts_with(name)).collect();
            let brings = |copy: &String| wanted.clone().all(|index| has(&read(copy), *file, index));
            assert!(copies.iter().any(brings), "{context}");
        }
    }
}

/// An ACL that names user 1000 with all rights, as `system.posix_acl_default` has it: version 2, five entries.
const ACL: [u8; 44] = {
    let entries: [(u8, u8); 5] = [(1, 7), (2, 7), (4, 5), (16, 7), (32, 5)];
    let mut acl = [0xff; 44];
    (acl[0], acl[1], acl[2], acl[3]) = (2, 0, 0, 0);
    let mut at = 0;
    while at < entries.len() {
        let start = 4 + 8 * at;
        (acl[start], acl[start + 1], acl[start + 2], acl[start + 3]) = (entries[at].0, 0, entries[at].1, 0);
        at += 1;
    }
    (acl[16], acl[17], acl[18], acl[19]) = (0xe8, 3, 0, 0);
    acl
};

#[test]
fn a_file_that_is_copied_again_has_no_acl_of_its_directory() {
    let s = Scratch::with_volume("64M");
    fs::create_dir_all(s.path("src/a")).unwrap();
    fs::write(s.path("src/a/f"), "secret").unwrap();
    fs::set_permissions(s.path("src/a/f"), Permissions::from_mode(0o640)).unwrap();
    let default = "system.posix_acl_default";
    let given = rustix::fs::setxattr(s.path("src/a"), default, &ACL, rustix::fs::XattrFlags::empty());
    if given.is_err() {
        eprintln!("SKIPPED: the temporary directory has no ACLs");
        return;
    }
    let has_acl =
        |path: &str| rustix::fs::getxattr(s.path(path), "system.posix_acl_access", &mut [0; 200][..]).is_ok();
    let run = |args: &str| medfs().args(args.split(' ')).current_dir(s.path("")).assert().code(0);
    run("put -r image src/. /");
    for _ in 0..2 {
        run("get -r image / out");
        run("get --salvage image saved");
        assert!(!has_acl("out/a/f") && !has_acl("saved/a/f"));
    }
    run("put -r image src/. /");
    run("get -r image / anew");
    assert!(!has_acl("anew/a/f"));
    assert_eq!(fs::metadata(s.path("anew/a/f")).unwrap().permissions().mode() & 0o777, 0o640);
}
