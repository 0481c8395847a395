//! What cleaning promises: a section is empty after the next checkpoint, or is left alone with all it holds.

#![cfg(test)]

use super::*;
use crate::alone::{self, START, device, new};
use crate::commit::{Commit, Ways};
use crate::content::file::WriteTimes;
use crate::map::alone::in_op;
use crate::mount::mount;
use crate::types::FallocateMode;
use medfs_device::{Cause, MemDevice, Temperature, WriteTag};
use medfs_format::node::{FileKind, Inline};
use medfs_format::summary::{Log, RawSummaryBlock, SUM_TYPE_NODE};
use medfs_format::{Ino, NULL_ADDR};
use medfs_store::{Dirty, ManualClock, Store};
use std::sync::Arc;

fn open(device: &Arc<MemDevice>) -> (Arc<Commit>, Arc<Gc>) {
    let options = alone::options("delta=off,in_place=off");
    let (gc, ways) = (Arc::new(Gc::default()), Ways::new(&options));
    let on = mount(device.clone(), options, Arc::new(ManualClock::new(START)), ways, gc.clone());
    (on.expect("the volume opens"), gc)
}

/// A file of pages that are written in one go.
fn file(on: &Commit, name: &str, pages: usize) -> Ino {
    let file = on.create(on.geo.root_ino, name.as_bytes(), &new(FileKind::Regular)).expect(name).ino;
    if pages > 0 {
        on.write(file, 0, &content(pages), WriteTimes::Now).expect("there is room");
        on.write_back(&on.inode(file).unwrap()).expect("there is room");
    }
    file
}

fn content(pages: usize) -> Vec<u8> {
    (0..pages * 4096).map(|at| (at / 4096) as u8 | 1).collect()
}

fn punch(on: &Commit, file: Ino, page: u64, pages: u64) {
    let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    on.fallocate(file, mode, page * 4096, pages * 4096).unwrap();
}

fn valid(store: &Store, section: u32) -> u16 {
    store.segs.lock().valid_blocks(&store.io, section)
}

/// A section of a type to which no log writes, and that is not empty.
fn section_of(store: &Store, log: Log) -> u32 {
    assert_eq!(store.geo.segs_per_sec, 1);
    let mut segs = store.segs.lock();
    segs.learn_all(&store.io);
    (0..store.geo.section_count)
        .find(|&s| {
            segs.known_type(s) == log as u8 && !segs.is_curseg(s) && segs.valid_blocks(&store.io, s) > 0
        })
        .expect("there is one")
}

/// A volume with a file of more than two segments, and the section of its first pages.
fn with_data() -> (Arc<Commit>, Ino, u32) {
    let (on, _) = open(&device());
    let file = file(&on, "f", 1200);
    on.checkpoint_now().unwrap();
    let addr = on.find_slot(&on.inode(file).unwrap(), 600).unwrap().unwrap().addr();
    let section = on.geo.section_of(on.geo.segno(addr));
    assert!(!on.segs.lock().is_curseg(section));
    (on, file, section)
}

fn read(on: &Commit, file: Ino, pages: usize) -> Vec<u8> {
    on.pages.remove_within(file, 0..u64::MAX, [0..u64::MAX, 0..0]);
    let mut buf = vec![0; pages * 4096];
    on.read(file, 0, &mut buf).unwrap();
    buf
}

#[test]
fn pages_move_at_once_and_their_section_is_free_after_the_checkpoint() {
    let (on, file, section) = with_data();
    let mut cleaner = Cleaner::default();
    punch(&on, file, 500, 100);
    cleaner.clean_section(&on, section).unwrap();
    assert_eq!(valid(&on, section), 0);
    assert!(cleaner.stuck.is_empty() && cleaner.damaged.is_empty());
    let segs = || on.segs.lock();
    assert!(segs().free.withheld(section).is_some(), "no log enters it meanwhile");
    let free = segs().free.segments(FreeFor::Volume);
    on.checkpoint_now().unwrap();
    segs().free.end_evacuation();
    assert!(segs().free.segments(FreeFor::Volume) > free && segs().free.withheld(section).is_none());
    let mut model = content(1200);
    model[500 * 4096..600 * 4096].fill(0);
    assert!(read(&on, file, 1200) == model);
}

#[test]
fn nodes_leave_with_the_next_checkpoint() {
    let (on, _) = open(&device());
    let files: Vec<Ino> = (0..1300).map(|n| file(&on, &format!("{n:040}"), 0)).collect();
    on.checkpoint_now().unwrap();
    let section = section_of(&on, Log::WarmNode);
    let before = valid(&on, section);
    assert!(before > 100, "{before}");
    let mut cleaner = Cleaner::default();
    cleaner.clean_section(&on, section).unwrap();
    assert_eq!(valid(&on, section), before, "they are marked, and stay where they are");
    assert!(on.nodes.dirty_count() >= usize::from(before));
    on.checkpoint_now().unwrap();
    assert_eq!((valid(&on, section), cleaner.stuck.len(), cleaner.damaged.len()), (0, 0, 0));
    for &ino in &files {
        assert_eq!(on.inode(ino).unwrap().nlink(), 1);
    }
}

#[test]
fn pages_of_a_pinned_file_stay_and_their_section_waits() {
    let (on, file, section) = with_data();
    let inode = on.inode(file).unwrap();
    on.edit(&inode, Dirty::Full, |r| r.i_inline |= Inline::PIN_FILE.bits());
    let (mut cleaner, before) = (Cleaner::default(), valid(&on, section));
    cleaner.clean_section(&on, section).unwrap();
    assert_eq!((valid(&on, section), cleaner.damaged.len()), (before, 0));
    assert!(cleaner.stuck.contains(&section));
}

#[test]
fn a_valid_block_without_an_owner_stays_until_the_next_mount() {
    let (on, file, section) = with_data();
    let slot = on.find_slot(&on.inode(file).unwrap(), 600).unwrap().unwrap();
    in_op(&on).set_addr(&on.inode(file).unwrap(), &slot, NULL_ADDR);
    let mut cleaner = Cleaner::default();
    cleaner.clean_section(&on, section).unwrap();
    assert!(cleaner.damaged.contains(&section) && cleaner.stuck.is_empty());
    assert_eq!(valid(&on, section), 1, "what has an owner moved");
    let found = cleaner.find_victim(&on, &victim::Greedy).unwrap();
    assert_ne!(found, Some(section), "it is left alone");
}

#[test]
fn a_section_whose_summary_is_wrong_keeps_all_it_holds() {
    let (on, file, section) = with_data();
    let addr = on.geo.ssa_block(section);
    let mut block = on.io.read(addr).unwrap();
    block.view_mut::<RawSummaryBlock>().footer.entry_type = SUM_TYPE_NODE;
    on.io.write(addr, &[&block], WriteTag::new(Cause::Meta, Temperature::Hot)).unwrap();
    let (mut cleaner, before) = (Cleaner::default(), valid(&on, section));
    let passed = || on.counters.damage_passed.load(Ordering::Relaxed);
    cleaner.clean_section(&on, section).unwrap();
    assert!(cleaner.damaged.contains(&section) && passed() == 1);
    assert_eq!(valid(&on, section), before);
    assert!(read(&on, file, 1200) == content(1200));
}

#[test]
fn pages_of_a_damaged_file_stay_and_those_of_others_leave() {
    let (on, _) = open(&device());
    let (damaged, sound) = (file(&on, "damaged", 300), file(&on, "sound", 900));
    on.checkpoint_now().unwrap();
    let inode = on.inode(damaged).unwrap();
    let addr = |page| on.find_slot(&inode, page).unwrap().unwrap().addr();
    let section = on.geo.section_of(on.geo.segno(addr(299)));
    // Its inode cannot be read any more.
    let node = on.nat.peek(&on.io, damaged).unwrap().addr;
    on.io.write(node, &[&medfs_format::Block::ZERO], WriteTag::new(Cause::Meta, Temperature::Hot)).unwrap();
    drop(inode);
    on.inodes.forget(damaged);
    on.nodes.forget(damaged);
    let mut cleaner = Cleaner::default();
    let before = valid(&on, section);
    cleaner.clean_section(&on, section).unwrap();
    let left = valid(&on, section);
    assert!(cleaner.damaged.contains(&section) && left > 0 && left < before, "{left} of {before}");
    assert!(read(&on, sound, 900) == content(900));
}

#[test]
fn the_victim_is_the_emptiest_that_can_be_emptied() {
    let (on, _) = open(&device());
    let file = file(&on, "f", 3000);
    on.checkpoint_now().unwrap();
    let inode = on.inode(file).unwrap();
    let section = |page: u64| {
        let addr = on.find_slot(&inode, page).unwrap().unwrap().addr();
        on.geo.section_of(on.geo.segno(addr))
    };
    let (few, fewer) = (section(700), section(1400));
    assert_ne!(few, fewer);
    let within = |of| (0..3000).filter(|&page| section(page) == of).collect::<Vec<u64>>();
    let (pages_few, pages_fewer) = (within(few), within(fewer));
    pages_few.iter().take(100).for_each(|&page| punch(&on, file, page, 1));
    pages_fewer.iter().take(200).for_each(|&page| punch(&on, file, page, 1));
    on.checkpoint_now().unwrap();
    let mut cleaner = Cleaner::default();
    // Sections of a log that was left early may be emptier.
    while let Some(found) = cleaner.find_victim(&on, &victim::Greedy).unwrap().filter(|&s| s != fewer) {
        assert!(valid(&on, found) <= valid(&on, fewer));
        cleaner.stuck.insert(found);
    }
    assert_eq!(cleaner.find_victim(&on, &victim::Greedy).unwrap(), Some(fewer));
    cleaner.stuck.insert(fewer);
    assert_eq!(cleaner.find_victim(&on, &victim::Greedy).unwrap(), Some(few));
    on.segs.lock().free.begin_evacuation(few);
    assert_eq!(cleaner.find_victim(&on, &victim::Greedy).unwrap(), None, "no other has holes");
    on.segs.lock().free.end_evacuation();
    cleaner.damaged.insert(few);
    assert_eq!(cleaner.find_victim(&on, &victim::Greedy).unwrap(), None);
    // Searches by age go on behind the last victim.
    cleaner.damaged.clear();
    assert_eq!(cleaner.find_victim(&on, &victim::CostBenefit).unwrap(), Some(few));
    assert_eq!(cleaner.next, few + 1);
}

#[test]
fn writers_go_on_where_a_volume_is_full_of_holes() {
    let (on, _) = open(&device());
    let mut files = Vec::new();
    while on.space.counts().free() > 2500 {
        files.push(file(&on, &format!("f{}", files.len()), 200));
    }
    let cleaned = || on.counters.gc_foreground.load(Ordering::Relaxed);
    let mut round = 0u8;
    while cleaned() < 2 && round < 100 {
        for (at, &file) in files.iter().enumerate() {
            let page = (at * 37 + usize::from(round) * 11) % 200;
            on.write(file, page as u64 * 4096, &[round | 128; 4096], WriteTimes::Now).unwrap();
            on.write(file, ((page + 90) % 200) as u64 * 4096, &[round | 128; 4096], WriteTimes::Now).unwrap();
        }
        on.write_back_all().unwrap();
        round += 1;
    }
    assert!(cleaned() >= 2, "{} after {round} rounds", cleaned());
    for &file in &files {
        let pages = read(&on, file, 200);
        for (at, page) in pages.chunks(4096).enumerate() {
            assert!(page.iter().all(|&byte| byte == page[0]), "page {at}");
            assert!(page[0] == at as u8 | 1 || page[0] >= 128);
        }
    }
}

#[test]
fn nothing_is_cleaned_on_a_volume_that_is_read_only_or_has_no_holes() {
    let (on, gc) = open(&device());
    file(&on, "f", 1200);
    on.checkpoint_now().unwrap();
    assert!(!gc.clean_in_background(&on).unwrap(), "little lies in holes");
    assert!(!is_nearly_full(&on, 16) && is_nearly_full(&on, 1 << 20));
    on.io.stop_writing("a test says so");
    assert!(!gc.clean_in_background(&on).unwrap() && gc.make_room(&on).is_ok());
    assert_eq!(on.counters.gc_sections.load(Ordering::Relaxed), 0);
}
