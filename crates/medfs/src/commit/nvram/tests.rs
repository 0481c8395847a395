//! What records leave out, and what they must not hold.

#![cfg(test)]

use crate::alone::{self, after_power_loss, device, new};
use crate::commit::checkpoint::CheckpointSink;
use crate::commit::{Commit, Ways};
use crate::content::file::WriteTimes;
use medfs_device::{MemDevice, MemNvram};
use medfs_format::Ino;
use medfs_format::node::FileKind;
use medfs_store::ManualClock;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn open(device: &Arc<MemDevice>, memory: Vec<u8>, text: &str) -> (Arc<Commit>, Arc<MemNvram>) {
    let (options, memory) = (alone::options(text), Arc::new(MemNvram::of(memory)));
    let ways = Ways::with_nvram(&options, memory.clone());
    let clock = Arc::new(ManualClock::new(alone::START));
    let on = crate::mount::mount(device.clone(), options, clock, ways, alone::no_cleaner()).unwrap();
    on.begin_nvram().unwrap();
    (on, memory)
}

fn noise(seed: u32, len: u32) -> Vec<u8> {
    let mut x = u64::from(seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        (x >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}

fn write(on: &Commit, ino: Ino, at: u64, data: &[u8]) {
    assert_eq!(on.write(ino, at, data, WriteTimes::Now).unwrap(), data.len());
}

/// A durable file of pages that no codec makes smaller.
fn noisy_file(on: &Commit, pages: u32) -> Ino {
    let file = on.create(on.geo.root_ino, b"f", &new(FileKind::Regular)).unwrap().ino;
    (0..pages).for_each(|page| write(on, file, u64::from(page) * 4096, &noise(page + 1, 4096)));
    on.write_back_all().unwrap();
    on.checkpoint_now().unwrap();
    file
}

fn content(on: &Commit) -> Vec<u8> {
    let file = on.lookup(on.geo.root_ino, b"f").unwrap().ino;
    let mut content = vec![0; on.getattr(file).unwrap().size as usize];
    on.read(file, 0, &mut content).unwrap();
    content
}

/// A page of noise makes the file grow, so that deltas leave its zone: their pages are dirty, and get blocks with it.
/// No record may hold them then: the log overwrites these blocks in place, and leaves nothing that tells that it is
/// newer.
#[test]
fn a_page_that_gets_a_block_beside_those_that_were_to_is_in_no_record() {
    let options = "seal=off,in_place=fsync,delta=inline";
    let device = device();
    let (on, memory) = open(&device, vec![0; 64 << 10], options);
    let file = noisy_file(&on, 60);
    (0..40u32).for_each(|page| write(&on, file, u64::from(page) * 4096 + 100, &noise(100 + page, 80)));
    on.write_back_all().unwrap();
    on.checkpoint_now().unwrap();
    write(&on, file, 400 * 4096, &noise(999, 4096));
    let inode = on.inode(file).unwrap();
    let victim = *inode.lock.read().whole.iter().next().expect("a delta left the zone");
    on.fsync(file, false).unwrap();
    write(&on, file, victim * 4096 + 7, b"promised");
    // A full volume: no record, and the log has no room for nodes.
    on.space.reserve(on.space.counts().free()).unwrap();
    on.fsync(file, true).unwrap();
    let expected = content(&on);
    let (again, _) = open(&after_power_loss(&device), memory.bytes(), options);
    assert!(content(&again) == expected);
}

#[test]
fn the_list_of_what_files_need_of_each_other_is_in_no_record() {
    let device = device();
    let (on, memory) = open(&device, vec![0; 1 << 20], "seal=off");
    CheckpointSink.sync(&on).unwrap();
    on.index.want();
    on.hidden().make().unwrap();
    assert!(on.index.file().is_some());
    on.record_unsynced().unwrap();
    let (again, _) = open(&after_power_loss(&device), memory.bytes(), "seal=off");
    again.index.want();
    again.hidden().make().unwrap();
    assert!(again.index.file().is_some(), "it can be made anew");
}

/// Bases are read for a few pages, also where none of thousands is to be in a record.
#[test]
fn pages_that_no_record_is_to_hold_are_not_all_looked_at() {
    let device = device();
    let (on, _) = open(&device, vec![0; 1 << 20], "seal=off,nvram_admit=population,delta=off");
    let file = noisy_file(&on, 3000);
    let read = || on.base_cache.read.load(Ordering::Relaxed) + on.base_cache.wanted.load(Ordering::Relaxed);
    (0..3000u32).for_each(|page| write(&on, file, u64::from(page) * 4096, &noise(page + 70_001, 4096)));
    let before = read();
    on.record_unsynced().unwrap();
    assert!(read() - before < 100, "{} by the timer", read() - before);
    let before = read();
    on.fsync(file, false).unwrap();
    assert!(read() - before < 300, "{} by an fsync", read() - before);
}
