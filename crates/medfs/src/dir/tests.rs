//! What directories promise: names are found, gone and listed, whatever form the directory has.

#![cfg(test)]

use super::*;
use crate::content::Storages;
use crate::content::alone::{content, forget_clean, options, write_back};
use crate::content::placement::Purpose;
use crate::content::plain::Plain;
use crate::map::alone::in_op;
use crate::map::alone::new_inode;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::superblock::Feature;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;

fn plain_content() -> Content {
    content(false, Feature::empty(), options(""), |_| Storages { plain: Arc::new(Plain), clusters: None })
}

/// A new directory below the root, inline or not.
fn new_dir(content: &Content, inline: bool, dir_level: u8) -> Arc<Inode> {
    let dir = new_inode(content, FileKind::Directory, b"d", None);
    content.edit(&dir, Dirty::Full, |r| {
        (r.i_links, r.i_current_depth, r.i_dir_level) = (2.into(), 1.into(), dir_level);
        r.i_inline |= if inline { Inline::DENTRY.bits() } else { 0 };
    });
    change(content, &dir, |d, state| d.make_empty(state, content.geo.root_ino)).unwrap();
    dir
}

fn change<R>(content: &Content, dir: &Arc<Inode>, f: impl FnOnce(Dir<'_>, &mut InodeState) -> R) -> R {
    let _op = content.op().unwrap();
    f(Dir::of(content, dir), &mut dir.lock.write())
}

fn add(content: &Content, dir: &Arc<Inode>, name: &[u8], ino: Ino) -> Result<()> {
    change(content, dir, |d, state| {
        let search = d.search(state, name)?;
        assert!(search.found.is_none(), "{}", name.escape_ascii());
        d.add(state, &search, name, ino, FileKind::Regular)
    })
}

fn find(content: &Content, dir: &Arc<Inode>, name: &[u8]) -> Option<Found> {
    Dir::of(content, dir).find(&dir.lock.read(), name).unwrap()
}

fn remove(content: &Content, dir: &Arc<Inode>, name: &[u8]) {
    let found = find(content, dir, name).expect("it was added");
    change(content, dir, |d, state| d.remove(state, &found)).unwrap();
}

fn list_from(content: &Content, dir: &Arc<Inode>, position: u64, most: usize) -> Vec<DirEntry> {
    let mut all = Vec::new();
    let mut emit = |entry| {
        all.push(entry);
        all.len() < most
    };
    Dir::of(content, dir).list(position, &mut emit).unwrap();
    all
}

fn listed(content: &Content, dir: &Arc<Inode>) -> BTreeMap<Vec<u8>, Ino> {
    let all = list_from(content, dir, 0, usize::MAX);
    let names: BTreeMap<Vec<u8>, Ino> = all.iter().map(|entry| (entry.name.clone(), entry.ino)).collect();
    assert_eq!(names.len(), all.len(), "no name twice");
    names
}

fn passed(content: &Content) -> u64 {
    content.counters.damage_passed.load(Ordering::Relaxed)
}

#[test]
fn names_are_what_was_added_and_not_removed() {
    for (inline, dir_level, seed) in [(true, 0, 1), (true, 2, 2), (false, 0, 3), (false, 3, 4)] {
        let content = plain_content();
        let dir = new_dir(&content, inline, dir_level);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut names = BTreeMap::from([(b".".to_vec(), dir.ino), (b"..".to_vec(), content.geo.root_ino)]);
        assert_eq!(listed(&content, &dir), names);
        for step in 0..3000u32 {
            let number = rng.random_range(0..400u32);
            let mut name = number.to_string().into_bytes();
            name.resize(1.max(number as usize % 256).max(name.len()), b'x');
            if names.contains_key(&name) && rng.random_bool(0.4) {
                remove(&content, &dir, &name);
                names.remove(&name);
            } else if let Some(ino) = names.get_mut(&name) {
                let found = find(&content, &dir, &name).unwrap();
                change(&content, &dir, |d, state| d.set_target(state, &found, step + 5, FileKind::Fifo))
                    .unwrap();
                *ino = step + 5;
            } else {
                add(&content, &dir, &name, step + 5).unwrap();
                names.insert(name.clone(), step + 5);
            }
            assert_eq!(find(&content, &dir, &name).map(|found| found.ino), names.get(&name).copied());
            if step % 300 == 0 {
                assert_eq!(listed(&content, &dir), names, "seed {seed}, step {step}");
                assert_eq!(Dir::of(&content, &dir).is_empty(&dir.lock.read()).unwrap(), names.len() == 2);
            }
        }
        assert!(!is_inline(&dir), "it did not stay small");
        for name in names.keys().filter(|name| name.len() > 2 || name[0] != b'.').cloned().collect::<Vec<_>>()
        {
            remove(&content, &dir, &name);
        }
        assert!(Dir::of(&content, &dir).is_empty(&dir.lock.read()).unwrap());
        assert_eq!(listed(&content, &dir).len(), 2);
        let parent = Dir::of(&content, &dir).parent(&dir.lock.read()).unwrap();
        assert_eq!(parent.ino, content.geo.root_ino);
    }
}

#[test]
fn positions_stay_right_as_an_inline_directory_becomes_blocks() {
    let content = plain_content();
    let dir = new_dir(&content, true, 0);
    for n in 0..40 {
        add(&content, &dir, format!("name {n}").as_bytes(), n + 5).unwrap();
    }
    remove(&content, &dir, b"name 7");
    let before = list_from(&content, &dir, 0, usize::MAX);
    change(&content, &dir, |d, state| d.to_blocks(state)).unwrap();
    assert!(!is_inline(&dir) && dir.size() == 4096 && dir.raw(|r| r.i_current_depth.get()) == 1);
    assert_eq!(list_from(&content, &dir, 0, usize::MAX), before);
    assert_eq!(list_from(&content, &dir, before[20].next, usize::MAX), before[21..]);
}

#[test]
fn a_listing_goes_on_whatever_changed_before_its_position() {
    let content = plain_content();
    let dir = new_dir(&content, true, 0);
    let name = |n: u32| format!("{n:030}").into_bytes();
    (0..600).for_each(|n| add(&content, &dir, &name(n), n + 5).unwrap());
    let (mut seen, mut position, mut rounds) = (BTreeMap::new(), 0, 0);
    loop {
        let part = list_from(&content, &dir, position, 50);
        let Some(last) = part.last() else { break };
        position = last.next;
        for entry in &part {
            assert!(seen.insert(entry.name.clone(), entry.ino).is_none(), "listed twice");
        }
        // Names that were seen go, the last one too, so that the position may be within what replaces it.
        for gone in part.iter().rev().take(3).filter(|entry| entry.name.len() == 30) {
            remove(&content, &dir, &gone.name);
        }
        add(&content, &dir, &[b'z'; 200].map(|z| z - rounds), 3).unwrap();
        rounds += 1;
    }
    (0..600).for_each(|n| assert_eq!(seen.get(&name(n)), Some(&(n + 5)), "{n}"));
}

#[test]
fn a_name_lies_in_the_bucket_of_its_hash_at_a_level_in_use() {
    for dir_level in [0, 2] {
        let content = plain_content();
        let dir = new_dir(&content, false, dir_level);
        let name = |n: u32| format!("{n}{:0200}", 0).into_bytes();
        (0..600).for_each(|n| add(&content, &dir, &name(n), n + 5).unwrap());
        let depth = dir.raw(|r| r.i_current_depth.get());
        assert!(depth > 1, "{depth}");
        let mut used = vec![0; depth as usize];
        for n in 0..600 {
            let place = find(&content, &dir, &name(n)).unwrap().place;
            let within = |&level: &u32| {
                // By the format, not by what the search does.
                let number = u64::from(dentry_hash(&name(n))) % (1 << (level + u32::from(dir_level)));
                let first = bucket_start(level, dir_level, number);
                (first..first + 2).contains(&place.page)
            };
            let level = (0..depth).find(within).expect("a bucket of its own");
            used[level as usize] += 1;
            assert!(place.page < dir.pages());
        }
        assert!(used.iter().all(|&names| names > 0), "each level is in use: {used:?}");
    }
}

#[test]
fn names_of_one_hash_are_told_apart() {
    let mut by_hash: HashMap<u32, Vec<u8>> = HashMap::new();
    let mut pairs = Vec::new();
    for n in 0..400_000u32 {
        let name = format!("n{n:06}").into_bytes();
        if let Some(other) = by_hash.insert(dentry_hash(&name), name.clone()) {
            pairs.push((other, name));
        }
    }
    assert!(pairs.len() > 3, "{}", pairs.len());
    for inline in [true, false] {
        let content = plain_content();
        let dir = new_dir(&content, inline, 0);
        for (n, (one, other)) in (0..).zip(&pairs) {
            add(&content, &dir, one, 10 * n + 5).unwrap();
            assert!(find(&content, &dir, other).is_none());
            add(&content, &dir, other, 10 * n + 6).unwrap();
            let ino = |name| find(&content, &dir, name).map(|found| found.ino);
            assert_eq!((ino(one), ino(other)), (Some(10 * n + 5), Some(10 * n + 6)));
            remove(&content, &dir, one);
            assert_eq!((ino(one), ino(other)), (None, Some(10 * n + 6)));
        }
    }
}

#[test]
fn a_page_that_loses_its_last_name_becomes_a_hole() {
    let content = plain_content();
    let dir = new_dir(&content, false, 0);
    let name = |n: u32| format!("{n:0240}").into_bytes();
    (0..14).for_each(|n| add(&content, &dir, &name(n), n + 5).unwrap());
    write_back(&content, &dir, Purpose::Background);
    let before = content.space.counts().valid_blocks;
    let of_second: Vec<u32> =
        (0..14).filter(|&n| find(&content, &dir, &name(n)).unwrap().place.page == 1).collect();
    assert!(!of_second.is_empty());
    of_second.iter().for_each(|&n| remove(&content, &dir, &name(n)));
    assert_eq!(content.space.counts().valid_blocks, before - 1);
    assert_eq!(content.find_slot(&dir, 1).unwrap().unwrap().addr(), NULL_ADDR);
    assert_eq!(listed(&content, &dir).len(), 2 + 14 - of_second.len());
    add(&content, &dir, &name(50), 77).unwrap();
    assert_eq!(find(&content, &dir, &name(50)).unwrap().ino, 77, "the hole is used again");
}

#[test]
fn a_directory_that_cannot_grow_holds_what_it_held() {
    let content = plain_content();
    let dir = new_dir(&content, true, 0);
    let mut names = 0;
    let name = |n: u32| format!("{n:0240}").into_bytes();
    while Dir::of(&content, &dir).search(&dir.lock.read(), &name(names)).unwrap().room.is_some() {
        add(&content, &dir, &name(names), names + 5).unwrap();
        names += 1;
    }
    let before = (listed(&content, &dir), dir.size());
    content.space.reserve(content.space.counts().free()).unwrap();
    assert!(matches!(add(&content, &dir, &name(names), 9), Err(Error::NoSpace)));
    assert!(is_inline(&dir) && (listed(&content, &dir), dir.size()) == before);
    content.space.release(10);
    add(&content, &dir, &name(names), 9).unwrap();
    assert!(!is_inline(&dir) && find(&content, &dir, &name(names)).is_some());
    // One of blocks, too.
    content.space.reserve(content.space.counts().free()).unwrap();
    let failed = (names + 1..).find(|&n| add(&content, &dir, &name(n), n).is_err()).unwrap();
    assert!(find(&content, &dir, &name(failed)).is_none());
    assert_eq!(listed(&content, &dir).len(), 2 + failed as usize);
}

#[test]
fn a_damaged_entry_is_left_out_and_counted() {
    for inline in [true, false] {
        let content = plain_content();
        let dir = new_dir(&content, inline, 0);
        for name in [&b"a"[..], b"b/c", b"d", b"e", b"f"] {
            add(&content, &dir, name, 9).unwrap();
        }
        assert_eq!(
            listed(&content, &dir).into_keys().collect::<Vec<_>>(),
            [&b"."[..], b"..", b"a", b"d", b"e", b"f"]
        );
        assert_eq!(passed(&content), 1);
        let found = find(&content, &dir, b"d").unwrap();
        let spoil = |bytes: &mut [u8], layout: AreaLayout| {
            // A name of no length.
            let at = layout.entry_at(found.place.slot);
            bytes[at + 8..at + 10].fill(0);
        };
        change(&content, &dir, |d, state| {
            if inline {
                let (layout, range) = d.inline_area();
                content.nodes.update(&dir.node, Dirty::Full, |b| spoil(&mut b.0[range], layout));
            } else {
                content
                    .change_page(&dir, state, 0, None, false, |b| spoil(&mut b.0[..], AreaLayout::BLOCK))
                    .unwrap();
            }
        });
        assert_eq!(
            listed(&content, &dir).into_keys().collect::<Vec<_>>(),
            [&b"."[..], b"..", b"a", b"e", b"f"]
        );
    }
}

/// A directory of two pages, the first of which was lost to zeros, and names of both.
fn with_blank_page(content: &Content) -> (Arc<Inode>, Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let dir = new_dir(content, false, 0);
    let names = (0..14u32).map(|n| format!("{n:0240}").into_bytes());
    names.clone().for_each(|name| add(content, &dir, &name, 5).unwrap());
    let (first, second) = names.partition(|name| find(content, &dir, name).unwrap().place.page == 0);
    write_back(content, &dir, Purpose::Background);
    forget_clean(content, &dir);
    let addr = content.find_slot(&dir, 0).unwrap().unwrap().addr();
    content.io.write(addr, &[&Block::ZERO], WriteTag::new(Cause::Meta, Temperature::Hot)).unwrap();
    (dir, first, second)
}

#[test]
fn a_block_that_was_lost_to_zeros_hides_its_names_and_gets_none() {
    let content = plain_content();
    let (dir, lost, kept) = with_blank_page(&content);
    assert!(lost.iter().all(|name| find(&content, &dir, name).is_none()));
    assert!(kept.iter().all(|name| find(&content, &dir, name).is_some()));
    assert!(passed(&content) > 0);
    assert_eq!(listed(&content, &dir).into_keys().collect::<Vec<_>>(), kept);
    let error = Dir::of(&content, &dir).is_empty(&dir.lock.read()).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)), "{error}");
    add(&content, &dir, b"new", 99).unwrap();
    assert_ne!(find(&content, &dir, b"new").unwrap().place.page, 0, "zeros stay the sign of the damage");
    let missing = Dir::of(&content, &dir).parent(&dir.lock.read());
    assert!(matches!(missing, Err(Error::Corrupt(_))));
}

#[test]
fn entries_behind_the_size_are_not_written_over() {
    let content = plain_content();
    let dir = new_dir(&content, false, 0);
    let name = |n: u32| format!("{n:0240}").into_bytes();
    (0..14).for_each(|n| add(&content, &dir, &name(n), n + 5).unwrap());
    in_op(&content).set_size(&dir, 4096);
    let error = add(&content, &dir, &[b'y'; 240], 3).unwrap_err();
    assert!(error.to_string().contains("i_size"), "{error}");
}

#[test]
fn missing_dots_are_listed_where_a_repair_left_a_sign() {
    let content = plain_content();
    let dir = new_dir(&content, true, 0);
    remove(&content, &dir, b".");
    remove(&content, &dir, b"..");
    add(&content, &dir, b"f", 9).unwrap();
    let names = |from| {
        list_from(&content, &dir, from, usize::MAX).into_iter().map(|e| (e.name, e.ino)).collect::<Vec<_>>()
    };
    assert_eq!(names(0).len(), 1);
    content.edit(&dir, Dirty::Full, |r| r.i_inline |= Inline::DOTS.bits());
    let (dot, dots) = ((b".".to_vec(), dir.ino), (b"..".to_vec(), content.geo.root_ino));
    assert_eq!(names(0), [(b"f".to_vec(), 9), dot.clone(), dots.clone()]);
    assert_eq!(
        (names(DOTS_AT), names(DOTS_AT + 1), names(DOTS_AT + 2)),
        (vec![dot, dots.clone()], vec![dots], vec![])
    );
}

#[test]
fn what_has_no_name_lists_nothing_and_what_is_no_directory_is_refused() {
    let content = plain_content();
    let dir = new_dir(&content, true, 0);
    assert!(Arc::ptr_eq(&directory(&content, dir.ino).unwrap(), &dir));
    let file = new_inode(&content, FileKind::Regular, b"f", None);
    assert_eq!(directory(&content, file.ino).unwrap_err().errno(), 20);
    content.edit(&dir, Dirty::Full, |r| r.i_links = 0.into());
    assert_eq!(listed(&content, &dir).len(), 0);
    content.edit(&dir, Dirty::Full, |r| r.i_flags = FileFlags::CASEFOLD.bits().into());
    assert!(matches!(directory(&content, dir.ino), Err(Error::Incompatible(_))));
    dir.lock.write().dead = true;
    assert_eq!(Dir::of(&content, &dir).list(0, &mut |_| true).unwrap_err().errno(), 116);
}
