//! Recovery alone, on a NAND in memory.

use super::{Image, Recovery};
use crate::PAGE;
use crate::config::Config;
use crate::error::FtlError;
use crate::memory::{CONFIG, G, Memory, page, plain_policy};
use crate::store::Store;
use crate::streams::{PLAIN, Packing, Pending};
use alloc::vec::Vec;

fn empty(nand: Memory) -> Store<Memory> {
    Store::new(nand, plain_policy(), CONFIG, true)
}

fn formatted() -> Store<Memory> {
    let mut store = empty(Memory::new(G));
    Recovery::of(&mut store).format().unwrap();
    store
}

fn append(store: &mut Store<Memory>, lpn: u32, byte: u8) {
    let bytes = page(byte, PAGE);
    let page = Pending { lpn, size: PAGE as u16, ratio: 90, compressed: false, damaged: false };
    store.append(&Packing { log: PLAIN, page, bytes: &bytes, across: false }, None).unwrap();
}

fn reopened(store: Store<Memory>, image: Option<&[u8]>) -> Store<Memory> {
    let mut again = empty(store.medium.nand);
    Recovery::of(&mut again).open(image).unwrap();
    again
}

#[test]
fn pages_behind_the_commit_are_taken_up_in_their_order() {
    let mut store = formatted();
    [(3, 1), (4, 2), (3, 3)].into_iter().for_each(|(lpn, byte)| append(&mut store, lpn, byte));
    store.trim(4, 1).unwrap();
    store.write_trims().unwrap();
    let newest = store.entry(3).unwrap().unwrap();
    let mut again = reopened(store, None);
    assert_eq!(again.entry(3).unwrap(), Some(newest));
    assert_eq!(again.entry(4).unwrap(), None, "trimmed since");
    assert_eq!(again.medium.counters.checkpoints, 1, "what was found is written down");
}

#[test]
fn after_a_clean_end_logs_go_on_and_nothing_is_written() {
    let mut store = formatted();
    append(&mut store, 3, 1);
    store.checkpoint(true).unwrap();
    let (at, programs) = (store.entry(3).unwrap().unwrap(), store.medium.nand.programs);
    let mut again = reopened(store, None);
    assert_eq!(again.medium.nand.programs, programs);
    append(&mut again, 5, 2);
    assert_eq!(again.entry(5).unwrap().unwrap().page, at.page + 1);
}

#[test]
fn an_image_is_put_back_unless_flash_is_newer() {
    let mut store = formatted();
    append(&mut store, 3, 1);
    store.trim(3, 1).unwrap();
    let image = Image::write(store.medium.seq, &store.streams, &store.trims);
    let mut again = reopened(store, Some(&image));
    assert_eq!(again.entry(3).unwrap(), None);

    let mut store = formatted();
    append(&mut store, 3, 1);
    store.trim(3, 1).unwrap();
    let image = Image::write(store.medium.seq, &store.streams, &store.trims);
    append(&mut store, 3, 2);
    let mut again = reopened(store, Some(&image));
    assert!(again.entry(3).unwrap().is_some());
}

#[test]
fn an_image_that_was_damaged_or_cut_is_none() {
    let store = formatted();
    let image = Image::write(9, &store.streams, &store.trims);
    assert_eq!(Image::read(&image, true).unwrap().seq, 9);
    for at in 0..image.len() {
        let mut damaged = image.clone();
        damaged[at] ^= 1;
        assert!(Image::read(&damaged, true).is_none());
        assert!(Image::read(&image[..at], true).is_none());
    }
}

#[test]
fn a_medium_that_holds_nothing_or_something_else_is_refused() {
    let open = |nand, config| {
        let mut store = Store::new(nand, plain_policy(), config, true);
        Recovery::of(&mut store).open(None)
    };
    assert_eq!(open(Memory::new(G), CONFIG), Err(FtlError::Unformatted));
    let other = Config { logical_pages: 65, ..CONFIG };
    let opened = open(formatted().medium.nand, other);
    assert_eq!(opened, Err(FtlError::Incompatible("logical pages", 64, 65)));
    let mut worn = Memory::new(G);
    (5..G.blocks).for_each(|block| crate::Nand::mark_bad(&mut worn, block));
    assert_eq!(Recovery::of(&mut empty(worn)).format(), Err(FtlError::WornOut));
}

#[test]
fn every_cut_leaves_a_medium_that_opens_with_what_was_durable() {
    let whole: Vec<(u32, u8)> = (0..60).map(|n| (n % 7, n as u8 + 1)).collect();
    for power in 0..70 {
        let mut store = formatted();
        store.medium.nand.power = Some(power);
        let mut durable = [0; 7];
        for (lpn, byte) in &whole {
            let bytes = page(*byte, PAGE);
            let page = Pending { lpn: *lpn, size: PAGE as u16, ratio: 90, compressed: false, damaged: false };
            let packing = Packing { log: PLAIN, page, bytes: &bytes, across: false };
            if store.append(&packing, None).and_then(|()| store.settle_all()).is_err() {
                break;
            }
            durable[*lpn as usize] = *byte;
            if byte % 20 == 0 && store.checkpoint(false).is_err() {
                break;
            }
        }
        let mut nand = store.medium.nand;
        nand.power = None;
        let mut again = empty(nand);
        Recovery::of(&mut again).open(None).unwrap();
        for (lpn, byte) in (0..).zip(durable) {
            let Some(entry) = again.entry(lpn).unwrap() else {
                assert_eq!(byte, 0, "page {lpn} after {power} operations");
                continue;
            };
            let mut out = page(0, PAGE);
            again.medium.read(entry.page, &mut out).unwrap();
            assert!(out[0] >= byte, "page {lpn} after {power} operations: {} is older than {byte}", out[0]);
        }
    }
}
