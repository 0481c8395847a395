//! The store alone, on a NAND in memory.

use super::Store;
use crate::PAGE;
use crate::blocks::State;
use crate::error::FtlError;
use crate::memory::{CONFIG, G, Memory, page, plain_policy};
use crate::nand::NandError;
use crate::reader::Reader;
use crate::recover::Recovery;
use crate::streams::{PACKED_MOVED, PLAIN, Packing, Pending};
use alloc::vec;
use alloc::vec::Vec;

fn store() -> Store<Memory> {
    let mut store = Store::new(Memory::new(G), plain_policy(), CONFIG, true);
    Recovery::of(&mut store).format().unwrap();
    store
}

fn packing(log: usize, lpn: u32, bytes: &[u8], across: bool) -> Packing<'_> {
    let compressed = bytes.len() < PAGE;
    let page = Pending { lpn, size: bytes.len() as u16, ratio: 90, compressed, damaged: false };
    Packing { log, page, bytes, across }
}

fn stored(store: &mut Store<Memory>, lpn: u32) -> Vec<u8> {
    let entry = store.entry(lpn).unwrap().unwrap();
    let mut out = vec![0; usize::from(entry.size)];
    let mut reader = Reader::new(store.medium.page_buffer());
    reader.fetch(&mut store.medium, &store.streams, (lpn, &entry), &mut out).unwrap();
    out
}

#[test]
fn a_page_is_found_while_it_waits_and_on_flash() {
    let mut store = store();
    let bytes = page(7, PAGE);
    store.append(&packing(PACKED_MOVED, 3, &bytes[..900], false), None).unwrap();
    assert_eq!(stored(&mut store, 3), &bytes[..900]);
    let programs = store.medium.nand.programs;
    store.settle_all().unwrap();
    assert_eq!(store.medium.nand.programs, programs + 1);
    assert_eq!(stored(&mut store, 3), &bytes[..900]);
    assert_eq!(store.medium.counters.padded, 1);
}

#[test]
fn what_lies_across_two_flash_pages_is_whole() {
    let mut store = store();
    let bytes = page(9, PAGE);
    for lpn in 0..3 {
        store.append(&packing(PACKED_MOVED, lpn, &bytes[..3000], true), None).unwrap();
        assert_eq!(stored(&mut store, lpn), &bytes[..3000], "before its end is on flash");
    }
    assert!(store.entry(1).unwrap().unwrap().across);
    store.settle_all().unwrap();
    (0..3).for_each(|lpn| assert_eq!(stored(&mut store, lpn), &bytes[..3000]));
}

#[test]
fn a_failed_program_loses_nothing_and_its_block_is_retired() {
    let mut store = store();
    let bytes = page(5, PAGE);
    store.append(&packing(PLAIN, 1, &bytes, false), None).unwrap();
    let first = store.entry(1).unwrap().unwrap().page;
    store.medium.nand.failing_pages.insert(first + 1);
    store.append(&packing(PLAIN, 2, &bytes, false), None).unwrap();
    let second = store.entry(2).unwrap().unwrap().page;
    assert_ne!(G.block_of(first), G.block_of(second));
    assert_eq!(store.retiring, [G.block_of(first)]);
    assert_eq!(store.medium.blocks.get(G.block_of(first)).state, State::Retiring);
    assert_eq!((stored(&mut store, 1), stored(&mut store, 2)), (bytes.clone(), bytes));
}

#[test]
fn a_drained_block_waits_for_what_replaced_its_content() {
    let mut store = store();
    let bytes = page(5, PAGE);
    for lpn in 0..G.pages_per_block {
        store.append(&packing(PLAIN, lpn, &bytes, false), None).unwrap();
    }
    let block = G.block_of(store.entry(0).unwrap().unwrap().page);
    for lpn in 0..G.pages_per_block {
        store.append(&packing(PACKED_MOVED, lpn, &bytes[..400], false), None).unwrap();
    }
    assert_eq!(store.medium.blocks.get(block).live, 0);
    store.drain(block);
    let erases = store.medium.nand.erases;
    assert!(!store.release_drained(false, 9).unwrap(), "the slot with the newer versions is in memory");
    assert_eq!(store.medium.nand.erases, erases);
    assert!(store.release_drained(true, 9).unwrap());
    assert_eq!(store.medium.blocks.get(block).state, State::Free);
}

#[test]
fn the_medium_is_marked_before_the_first_change_after_a_clean_end() {
    let mut store = store();
    store.checkpoint(true).unwrap();
    let map = store.medium.counters.programs.map;
    assert!(!store.marked);
    store.mark_in_use().unwrap();
    store.mark_in_use().unwrap();
    assert!(store.marked);
    assert_eq!(store.medium.counters.programs.map, map + 1);
}

#[test]
fn trims_are_written_once_and_what_is_written_again_is_not_trimmed() {
    let mut store = store();
    let bytes = page(5, PAGE);
    (0..4).for_each(|lpn| store.append(&packing(PLAIN, lpn, &bytes, false), None).unwrap());
    store.trim(1, 3).unwrap();
    assert_eq!(store.entry(2).unwrap(), None);
    store.append(&packing(PLAIN, 2, &bytes, false), None).unwrap();
    assert_eq!(store.trims.runs().len(), 2);
    let map = store.medium.counters.programs.map;
    store.write_trims().unwrap();
    store.write_trims().unwrap();
    assert_eq!(store.medium.counters.programs.map, map + 1);
    assert_eq!(store.trim(60, 5), Err(FtlError::OutOfRange));
}

#[test]
fn power_loss_leaves_a_slot_as_it_was() {
    let mut store = store();
    let bytes = page(5, PAGE);
    store.append(&packing(PACKED_MOVED, 1, &bytes[..500], false), None).unwrap();
    store.medium.nand.power = Some(0);
    assert_eq!(store.settle_all(), Err(FtlError::Nand(NandError::PowerLost)));
    store.medium.nand.power = None;
    assert_eq!(stored(&mut store, 1), &bytes[..500]);
    store.settle_all().unwrap();
    assert_eq!(stored(&mut store, 1), &bytes[..500]);
}
