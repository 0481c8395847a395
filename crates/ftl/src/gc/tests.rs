//! Collection alone, on a NAND in memory.

use super::{Collector, Hands};
use crate::PAGE;
use crate::blocks::State;
use crate::check::Check;
use crate::compress::Packer;
use crate::config::Config;
use crate::memory::{CONFIG, G, Memory, Trailing, page};
use crate::policy::{Costs, Hint, Lightweight};
use crate::reader::Reader;
use crate::recover::Recovery;
use crate::store::Store;
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

struct World {
    store: Store<Memory>,
    reader: Reader,
    packer: Packer<Trailing>,
    collector: Collector,
}

impl World {
    fn new(config: Config) -> World {
        let policy = Box::new(Lightweight(Costs { write: 300, compress: 290 }));
        let mut store = Store::new(Memory::new(G), policy, config, true);
        Recovery::of(&mut store).format().unwrap();
        World {
            reader: Reader::new(store.medium.page_buffer()),
            packer: Packer::new(Trailing, store.medium.logical_buffer()),
            collector: Collector::new(store.medium.logical_buffer()),
            store,
        }
    }

    fn hands(&mut self) -> (&mut Collector, Hands<'_, Memory, Trailing>) {
        let World { store, reader, packer, collector } = self;
        (collector, Hands { store, reader, packer })
    }

    fn write(&mut self, lpn: u32, bytes: &[u8]) {
        let (collector, mut hands) = self.hands();
        collector.make_room(&mut hands).unwrap();
        let packing = hands.packer.for_host(&mut hands.store.medium, (lpn, bytes), None, Hint::Warm);
        hands.store.append(&packing, None).unwrap();
    }

    fn read(&mut self, lpn: u32) -> Vec<u8> {
        let entry = self.store.entry(lpn).unwrap().unwrap();
        let mut out = page(0, PAGE);
        let place = if entry.compressed { self.packer.stored(&entry) } else { &mut out[..] };
        let Store { medium, streams, .. } = &mut self.store;
        self.reader.fetch(medium, streams, (lpn, &entry), place).unwrap();
        if entry.compressed {
            self.packer.expand(&mut self.store.medium, &entry, &mut out).unwrap();
        }
        out
    }

    fn check(&mut self) {
        Check { store: &mut self.store, reader: &mut self.reader }.run().unwrap();
    }
}

#[test]
fn collection_compresses_what_it_moves_and_keeps_every_page() {
    let pages = 136;
    let mut world = World::new(Config { logical_pages: pages, ..CONFIG });
    let content = |lpn: u32, version: u32| page(version as u8 | 1, 700 + 20 * lpn as usize);
    let mut versions = vec![0; pages as usize];
    let mut state = 7u32;
    for version in 1..1500 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let lpn = if version <= pages { version - 1 } else { (state >> 16) % pages };
        versions[lpn as usize] = version;
        world.write(lpn, &content(lpn, version));
        if version % 100 == 0 {
            world.check();
        }
    }
    for (lpn, version) in (0..).zip(versions) {
        assert_eq!(world.read(lpn), content(lpn, version), "page {lpn}");
    }
    let counters = world.store.medium.counters;
    assert!(counters.collections_waited > 0 && counters.compressed_collected > 0, "{counters:?}");
    assert!(!world.store.collecting);
}

#[test]
fn the_victim_is_the_cheapest_block_or_the_emptiest() {
    let mut world = World::new(CONFIG);
    let cold = page(1, PAGE);
    (0..24).for_each(|lpn| world.write(lpn, &cold));
    let block = |world: &mut World, lpn| G.block_of(world.store.entry(lpn).unwrap().unwrap().page);
    let (first, second) = (block(&mut world, 0), block(&mut world, 8));
    assert_ne!(first, second);
    (8..14).for_each(|lpn| world.write(lpn, &cold));
    for by_pages in [false, true] {
        assert!(world.collector.choose(&mut world.store, by_pages));
        assert_eq!(world.collector.victim, Some((second, 0)));
        assert!(world.store.collecting);
        world.store.medium.set_state(second, State::Full);
        world.collector.take_up(&mut world.store, None);
    }
    world.store.medium.set_state(first, State::Retiring);
    world.store.retiring.push(first);
    assert!(world.collector.choose(&mut world.store, false));
    assert_eq!(world.collector.victim, Some((first, 0)), "a block that failed goes first");
    while world.collector.victim.is_some() {
        let (collector, mut hands) = world.hands();
        collector.step(&mut hands, false).unwrap();
    }
    assert_eq!(world.store.medium.blocks.get(first).state, State::Bad);
    (0..24).for_each(|lpn| assert_eq!(world.read(lpn), cold));
    world.check();
}

#[test]
fn damaged_bytes_move_alone_and_stay_damaged() {
    let mut world = World::new(CONFIG);
    let cold = page(1, PAGE);
    (0..16).for_each(|lpn| world.write(lpn, &cold));
    let damaged = world.store.entry(2).unwrap().unwrap().page;
    world.store.medium.nand.damage(damaged);
    let (_, mut hands) = world.hands();
    hands.move_page(damaged, false, &mut page(0, PAGE)).unwrap();
    let moved = world.store.entry(2).unwrap().unwrap();
    assert_ne!(moved.page, damaged);
    let Store { medium, streams, .. } = &mut world.store;
    let read = world.reader.fetch(medium, streams, (2, &moved), &mut page(0, PAGE));
    assert!(read.is_err(), "{read:?}");
    assert_eq!(world.read(3), cold);
}

#[test]
fn cold_blocks_are_moved_when_wear_is_too_uneven() {
    let mut world = World::new(Config { level_spread: 2, ..CONFIG });
    let bytes = page(3, PAGE);
    (0..64).for_each(|lpn| world.write(lpn, &bytes));
    for _ in 0..200 {
        (56..64).for_each(|lpn| world.write(lpn, &bytes));
    }
    assert!(world.store.medium.counters.levelled > 0);
    (0..64).for_each(|lpn| assert_eq!(world.read(lpn), bytes));
    world.check();
}
