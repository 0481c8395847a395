//! The parsers on damaged blocks: every structure is read from blocks of real volumes with some words changed, and from
//! blocks that are something else. Nothing panics; what is accepted can be used. See `medfs_testkit::fuzz`.

use medfs_device::{FileDevice, FileOptions, MemDevice, read_block};
use medfs_format::checkpoint::{self, BitmapPlaces, RawCheckpoint, RawOrphanBlock};
use medfs_format::delta;
use medfs_format::dentry::{Area, AreaLayout, slots_for};
use medfs_format::node::{Layouts, RawInode, footer, validate_footer};
use medfs_format::path::{Fanout, NodePath, first_page, max_pages, node_kind};
use medfs_format::sit::RawSitBlock;
use medfs_format::summary::{JOURNAL_SIZE, RawJournal, RawSummaryBlock};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Geometry, crc, xattr};
use medfs_testkit::crash_states::{Setup, prepared};
use medfs_testkit::delta_volume::delta_volume;
use medfs_testkit::fuzz::Target;
use medfs_testkit::images::{FEATURE_SETS, formatted, save};
use medfs_testkit::mutate::{Base, change_bytes, nasty, seal};
use medfs_testkit::volume::{mounter, test_clock};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::Path;
use zerocopy::FromBytes;

/// Blocks that a case damages: one by one, each is read as everything.
const BLOCKS: usize = 64;

fn make(dir: &Path) {
    for (i, features) in FEATURE_SETS.into_iter().enumerate() {
        let setup =
            Setup::new(formatted(64, features), mounter(medfs::MountOptions::default(), test_clock()));
        let filled = prepared(&setup).expect("a small tree");
        save(&filled, &dir.join(format!("{i}.img"))).expect("the image is saved");
    }
    let deltas = dir.join(format!("{}.img", FEATURE_SETS.len()));
    save(&delta_volume("").dev, &deltas).expect("the image is saved");
}

fn load(dir: &Path) -> Vec<Base> {
    let read = |i| {
        let file = FileDevice::open(dir.join(format!("{i}.img")), FileOptions::read_only());
        Base::new(MemDevice::copy_of(&file.expect("the image just made")).expect("readable"))
    };
    (0..=FEATURE_SETS.len()).map(read).collect()
}

fn case(seed: u64, bases: &[Base]) -> bool {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let base = bases.choose(&mut rng).expect("there are some");
    let superblock = read_block(&base.dev, 0).expect("memory");
    let geometry = RawSuperblock::in_block(&superblock).validate().expect("a volume");
    let mut accepted = 0;
    for _ in 0..BLOCKS {
        let addr = *base.blocks.choose(&mut rng).expect("not empty");
        let mut block = read_block(&base.dev, addr).expect("memory");
        if rng.random_range(0..8) == 0 {
            rng.fill(&mut block.0[..]);
        }
        change_bytes(&mut rng, addr, &mut block);
        if rng.random() {
            seal(&superblock, addr, &mut block);
        }
        accepted += as_superblock(&mut rng, &block) + as_checkpoint(&block, addr as u32, &geometry);
        accepted += as_node(&mut rng, &block, &geometry) + as_table(&block) + as_names(&block);
        accepted += as_deltas(&mut rng, &block);
    }
    accepted > 0
}

fn as_superblock(rng: &mut Xoshiro256PlusPlus, block: &Block) -> u32 {
    let raw = RawSuperblock::in_block(block);
    let _ = (raw.label(), raw.features());
    let Ok(g) = raw.validate() else { return 0 };
    // The engine calculates with a geometry that it has.
    for _ in 0..8 {
        let addr = nasty(rng) as BlockAddr;
        if g.in_main(addr) {
            let segno = g.segno(addr);
            assert_eq!(g.seg_start(segno) + g.offset_in_seg(addr), addr);
            assert!(u64::from(g.ssa_block(segno)) < g.block_count && g.section_of(segno) < g.section_count);
        }
        let index = rng.random_range(0..g.nat_blocks());
        assert!(u64::from(g.nat_block(index, true)) < g.block_count);
        let index = rng.random_range(0..g.sit_blocks());
        assert!(u64::from(g.sit_block(index, true)) < g.block_count);
    }
    assert!(u64::from(g.cp_pack(1)) < g.block_count && g.is_nid(g.root_ino));
    1
}

fn as_checkpoint(block: &Block, addr: u32, g: &Geometry) -> u32 {
    let raw = RawCheckpoint::in_block(block);
    let _ = checkpoint::verify_checksum(block, addr);
    let orphans = block.view::<RawOrphanBlock>().inodes(addr).map(Iterator::count);
    if raw.validate(addr, g).is_ok() {
        let places = BitmapPlaces::of(raw, g);
        assert!(places.sit < (1 + g.cp_payload as usize) * BLOCK_SIZE && places.nat < BLOCK_SIZE);
        (0..6).for_each(|log| assert!(raw.curseg(log).0 < g.segment_count_main));
        return 1;
    }
    u32::from(orphans.is_ok())
}

fn as_node(rng: &mut Xoshiro256PlusPlus, block: &Block, g: &Geometry) -> u32 {
    let f = footer(block);
    let _ = validate_footer(block, f.nid.get(), f.ino.get());
    let _ = (node_kind(f.node_offset()), first_page(f.node_offset(), Fanout::plain(923)));
    let raw: &RawInode = block.view();
    let mut accepted = 0;
    for layouts in [Layouts::Fixed, Layouts::Flexible, Layouts::Mixed] {
        let uuid = [0; 16];
        for seed in [None, Some(crc::chain(!0, &uuid))] {
            if raw.validate(f.nid.get(), g, layouts, seed).is_err() {
                continue;
            }
            accepted = 1;
            let slots = raw.slots(layouts.is_flexible());
            let (content, xattrs) = (slots.inline_content_range(), slots.inline_xattr_range());
            assert!(slots.extra + slots.addrs() <= raw.i_addr.len() && max_pages(slots.fanout()) > 0);
            let _ = xattr::parse(&block.0[xattrs], f.nid.get().into());
            let _ = NodePath::of(nasty(rng), slots.fanout()).map(|p| p.node_offset(p.depth));
            names_of(AreaLayout::inline(content.len()), &block.0[content]);
        }
    }
    accepted
}

fn as_table(block: &Block) -> u32 {
    let sit: &RawSitBlock = block.view();
    let summary: &RawSummaryBlock = block.view();
    let compact = RawJournal::read_from_bytes(&block.0[..JOURNAL_SIZE]).expect("sized");
    let mut accepted = sit.entries.iter().zip(0..).filter(|(e, segno)| e.validate(*segno).is_ok()).count();
    for journal in [&summary.journal, &compact] {
        accepted += journal.nat_entries().map_or(0, <[_]>::len) + journal.sit_entries().map_or(0, <[_]>::len);
    }
    let (entries, error) = xattr::parse_prefix(&block.0[..], 1);
    assert!(entries.is_empty() || error.is_some() || xattr::parse(&block.0[..], 1).is_ok());
    accepted.min(1) as u32
}

/// As a zone of any size, and as a compact page, of any inode and of the one it names.
fn as_deltas(rng: &mut Xoshiro256PlusPlus, block: &Block) -> u32 {
    let named = u32::from_le_bytes(block.0[4..8].try_into().expect("four bytes"));
    let page = [named, 5].map(|ino| delta::compact_records(block, ino)).into_iter().find_map(Result::ok);
    if let Some((sequence, records)) = &page {
        let size: usize = records.iter().map(delta::Record::size).sum();
        assert!(*sequence < u32::MAX && size <= delta::COMPACT_ROOM);
        let again = delta::compact_page(named, *sequence, records);
        assert_eq!(delta::compact_records(&again, named).expect("just made"), (*sequence, records.clone()));
    }
    let zone = &block.0[rng.random_range(0..400)..][..rng.random_range(0..3000)];
    let (records, error) = delta::parse_prefix(zone, 5);
    let both = records.iter().flat_map(|r| r.slices).map(|s| s.ranges().expect("accepted"));
    both.for_each(|(from, to)| {
        assert!(from.end <= BLOCK_SIZE && to.end <= BLOCK_SIZE && from.len() == to.len())
    });
    let mut copy = zone.to_vec();
    assert!(zone.len() < delta::ZONE_HEADER_SIZE || delta::fill_zone(&mut copy, &records));
    u32::from(page.is_some() || (error.is_none() && !records.is_empty()))
}

fn as_names(block: &Block) -> u32 {
    names_of(AreaLayout::BLOCK, &block.0[..])
}

fn names_of(layout: AreaLayout, bytes: &[u8]) -> u32 {
    let area = Area::new(layout, bytes);
    let found: Vec<_> = area.entries(0, 1).map_while(Result::ok).collect();
    for entry in &found {
        assert!(entry.slot + slots_for(entry.name.len()) <= area.slots());
    }
    if let Some(entry) = found.last() {
        let _ = area.find(entry.name, 1);
    }
    let _ = (area.is_empty(true), area.room(3), area.find(b"no such name", 1).is_ok());
    u32::from(!found.is_empty())
}

#[test]
fn the_parsers_on_damaged_blocks() {
    let target =
        Target { test: "the_parsers_on_damaged_blocks", seconds: 3, limited: true, make, load, case };
    if let Some(done) = target.run() {
        assert!(done.cases > 10 && done.deep > done.cases / 2, "{done:?}: too little was accepted");
    }
}
