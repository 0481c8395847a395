//! A sector of a node that is zeros, or older than the rest: what it named is in use, and the summaries and the nodes
//! below say where it belongs.

use crate::common::{META, compressed_volume, delta_volume, number};
use crate::medium::{addr_of, checked, node_addr, opened, repaired};
use medfs::{FallocateMode, FileKind, Files, Ino, NewFile, PastDamage, Piece, Volume, XattrMode};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::Block;
use medfs_format::checkpoint::RawCheckpoint;
use medfs_format::node::{RawDirectNode, RawIndirectNode, RawInode, footer, footer_mut};
use medfs_format::path::{NodePath, first_page};
use medfs_format::superblock::RawSuperblock;
use medfs_fsck::dump::{Dump, Value};
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Losses, Options, Repair, repair_without_names};
use medfs_testkit::images::{FEATURE_SETS, formatted};
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::Arc;

const PAGE: usize = 4096;
const SECTOR: usize = 512;
/// Pages of each file: in its inode, in two direct nodes, and below an indirect one.
pub(crate) const PAGES: usize = 3200;

fn new(kind: FileKind) -> NewFile {
    NewFile { kind, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 }
}

fn filled(v: &Volume, name: &str, seed: u64) -> (Ino, Vec<u8>) {
    let ino = v.create(v.root(), name.as_bytes(), &new(FileKind::Regular)).expect("create").ino;
    let mut content = vec![0; PAGES * PAGE];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut content);
    v.write(ino, 0, &content).expect("write");
    v.release(ino, 1);
    (ino, content)
}

/// A volume of two files, the first with a hole of ten pages in its second node.
pub(crate) fn volume(features: &str) -> (MemDevice, [(Ino, Vec<u8>); 2]) {
    let dev = Arc::new(formatted(128, features).snapshot());
    let v = opened(dev.clone());
    let mut files = [filled(&v, "one", 1), filled(&v, "two", 2)];
    v.sync().expect("sync");
    let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    v.fallocate(files[0].0, mode, (2000 * PAGE) as u64, (10 * PAGE) as u64).expect("punched");
    files[0].1[2000 * PAGE..2010 * PAGE].fill(0);
    v.close().expect("closed");
    drop(v);
    (dev.snapshot(), files)
}

/// The blocks of an inode, of its two direct nodes, its indirect one, and a direct one below that.
pub(crate) fn nodes(dev: &MemDevice, ino: Ino) -> [u64; 5] {
    let inode_at = node_addr(dev, ino);
    let block = read_block(dev, inode_at).expect("the inode");
    let nids = block.view::<RawInode>().i_nid.map(|nid| nid.get());
    let [first, second, indirect] = [0, 1, 2].map(|at| node_addr(dev, nids[at]));
    let above = read_block(dev, indirect).expect("the node");
    let child = above.view::<RawIndirectNode>().nid[0].get();
    [inode_at, first, second, indirect, node_addr(dev, child)]
}

pub(crate) fn content(dev: &MemDevice, ino: Ino, pages: usize) -> Vec<u8> {
    let (v, mut bytes) = (opened(Arc::new(dev.snapshot())), vec![0; pages * PAGE]);
    v.read(ino, 0, &mut bytes).expect("it can be read");
    bytes
}

/// A copy with a sector of a block from another one.
fn torn(dev: &MemDevice, at: u64, sector: usize, from: &Block) -> MemDevice {
    let dev = dev.snapshot();
    let mut block = read_block(&dev, at).expect("memory");
    let range = sector * SECTOR..(sector + 1) * SECTOR;
    block.0[range.clone()].copy_from_slice(&from.0[range]);
    dev.write(at, &[&block], META).expect("memory");
    dev
}

pub(crate) fn costs_nothing(mended: &Repair, what: &str) {
    let before = &mended.before;
    assert_eq!(before.losses, Default::default(), "{what}: {:?}", before.findings);
    assert_eq!(mended.after.findings, [], "{what}");
}

/// Slots that were only reserved are not told by summaries: the inode may stay another than its checksum is of.
fn costs_doubt_at_most(mended: &Repair, what: &str) {
    let before = &mended.before;
    let doubted = before.losses.doubted;
    assert_eq!(before.losses, Losses { doubted, ..Losses::default() }, "{what}: {:?}", before.findings);
    assert_eq!(mended.after.findings, [], "{what}");
}

/// Says which pages differ.
pub(crate) fn same(is: &[u8], expected: &[u8], what: &str, mended: &Repair) {
    let differing: Vec<usize> = (0..is.len() / PAGE)
        .filter(|page| is[page * PAGE..][..PAGE] != expected[page * PAGE..][..PAGE])
        .collect();
    let shown = &differing[..differing.len().min(5)];
    assert!(
        differing.is_empty(),
        "{what}: {} pages, {shown:?}: {:?}",
        differing.len(),
        mended.before.findings
    );
}

#[test]
fn a_torn_sector_of_a_node_costs_nothing() {
    for features in FEATURE_SETS {
        let (dev, [(one, expected), (two, other)]) = volume(features);
        let of_other = nodes(&dev, two).map(|at| read_block(&dev, at).expect("memory"));
        for (which, at) in nodes(&dev, one).into_iter().enumerate().skip(1) {
            // What the last sector had, the footer too, is known without it.
            for sector in [0, 3, 7] {
                let ones = Box::new(Block([0xff; PAGE]));
                for (older, from) in [(false, &Block::boxed()), (true, &of_other[which]), (false, &ones)] {
                    if from.0[0] == 0xff && which >= 3 {
                        continue; // no node
                    }
                    let what = format!("{features:?}, node {which}, sector {sector}, older: {older}");
                    let dev = torn(&dev, at, sector, from);
                    let mended = repaired(&dev);
                    costs_nothing(&mended, &what);
                    let found = &mended.before;
                    let told = [Code::AddressMissing, Code::NodeRebuilt, Code::AddressBit, Code::NodeFooter];
                    // An indirect node with one child, and that with few pages.
                    let is_empty = which >= 3 && sector == 3;
                    assert!(is_empty || told.iter().any(|code| found.has(*code)), "{what}: {found:?}");
                    same(&content(&dev, one, PAGES), &expected, &what, &mended);
                    same(&content(&dev, two, PAGES), &other, &what, &mended);
                }
            }
        }
    }
}

/// The place is below an indirect node that has no such entry.
#[test]
fn a_node_that_says_it_is_where_no_file_ends_costs_no_other_file() {
    let (dev, [(one, _), (two, other)]) = volume("");
    let [_, first, second, _, child] = nodes(&dev, one);
    let flag = PAGE - 16;
    for at in [first, second, child] {
        for place in [u32::MAX >> 3, (u32::MAX >> 3) - 1, 2 * 1018 + 3 + 1019 * 1019, 1 << 20] {
            let dev = dev.snapshot();
            let mut block = read_block(&dev, at).expect("memory");
            block.0[flag..flag + 4].copy_from_slice(&(place << 3).to_le_bytes());
            dev.write(at, &[&block], META).expect("memory");
            let mended = repaired(&dev);
            assert_eq!(mended.after.findings, [], "block {at}, place {place}");
            same(&content(&dev, two, PAGES), &other, &format!("block {at}, place {place}"), &mended);
        }
    }
}

#[test]
fn addresses_of_an_inode_that_are_zeros_come_back() {
    for features in FEATURE_SETS {
        let (dev, [(one, expected), _]) = volume(features);
        let at = nodes(&dev, one)[0];
        // The last one has the nodes below the inode too, and its footer.
        for sector in [1, 4, 7] {
            let what = format!("{features:?}, sector {sector}");
            let dev = torn(&dev, at, sector, &Block::boxed());
            let mended = repaired(&dev);
            // There may have been attributes in it.
            if sector == 7 {
                costs_doubt_at_most(&mended, &what)
            } else {
                costs_nothing(&mended, &what)
            }
            assert!(mended.before.has(Code::AddressMissing), "{what}: {:?}", mended.before.findings);
            same(&content(&dev, one, PAGES), &expected, &what, &mended);
        }
    }
}

/// Lets the SIT call a block in use, as with a flipped bit, and count it.
fn call_in_use(dev: &MemDevice, addr: u32) {
    let sb = read_block(dev, 0).expect("memory");
    let g = RawSuperblock::in_block(&sb).validate().expect("a superblock");
    let (segno, offset) = (g.segno(addr), g.offset_in_seg(addr) as usize);
    let entry = Dump::open(dev).expect("it opens").sit(segno).expect("a segment");
    let Some(Value::Text(map)) = entry.get("valid_map") else { panic!("{entry}") };
    let byte = u8::from_str_radix(&map[offset / 8 * 2..][..2], 16).expect("hexadecimal");
    let bit = 0x80 >> (offset % 8);
    assert_eq!(byte & bit, 0, "it is free");
    inject::set(dev, &Target::Sit(segno), &format!("valid_map[{}]", offset / 8), (byte | bit).into())
        .expect("set");
    let vblocks = number(entry.get("type")) << 10 | (number(entry.get("valid_blocks")) + 1);
    inject::set(dev, &Target::Sit(segno), "vblocks", vblocks.into()).expect("set");
}

#[test]
fn a_hole_stays_one_whatever_the_sit_says() {
    let dev = Arc::new(formatted(128, FEATURE_SETS[0]).snapshot());
    let v = opened(dev.clone());
    let (one, mut expected) = filled(&v, "one", 1);
    v.sync().expect("sync");
    let old = {
        let dev = dev.snapshot();
        let node = nodes(&dev, one)[2];
        read_block(&dev, node).expect("memory").view::<RawDirectNode>().addr[100].get()
    };
    let page = first_page_of(&dev, one, 2) + 100;
    let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    v.fallocate(one, mode, (page * PAGE) as u64, PAGE as u64).expect("punched");
    expected[page * PAGE..(page + 1) * PAGE].fill(0);
    v.close().expect("closed");
    drop(v);
    call_in_use(&dev, old);
    let mended = repaired(&*dev);
    assert!(mended.before.has(Code::SitLeaked), "{:?}", mended.before.findings);
    assert!(!mended.before.has(Code::AddressMissing), "{:?}", mended.before.findings);
    assert!(content(&dev, one, PAGES) == expected);
    // It is the count of the file's own blocks that tells.
    call_in_use(&dev, old);
    let counts = number(Dump::open(&*dev).expect("it opens").inode(one).expect("the inode").get("i_blocks"));
    inject::set(&*dev, &Target::Inode(one), "i_blocks", u64::from(counts) + 1).expect("set");
    assert!(checked(&*dev).has(Code::AddressMissing));
}

/// The first page of a node of a file, of those that [`nodes`] gives.
fn first_page_of(dev: &MemDevice, ino: Ino, which: usize) -> usize {
    let block = read_block(dev, node_addr(dev, ino)).expect("the inode");
    let inode: &RawInode = block.view();
    let slots = inode.slots(false);
    let node = read_block(dev, nodes(dev, ino)[which]).expect("memory");
    let offset = footer(&node).node_offset();
    first_page(offset, slots.fanout()).expect("a direct node") as usize
}

#[test]
fn names_in_blocks_whose_addresses_are_zeros_come_back() {
    let dev = Arc::new(formatted(128, FEATURE_SETS[0]).snapshot());
    let v = opened(dev.clone());
    let dir = v.create(v.root(), b"d", &new(FileKind::Directory)).expect("mkdir").ino;
    for n in 0..3000 {
        v.create(dir, format!("a name of some length {n}").as_bytes(), &new(FileKind::Regular))
            .expect("create");
    }
    v.close().expect("closed");
    drop(v);
    let dev = torn(&dev, node_addr(&dev, dir), 1, &Block::boxed());
    costs_nothing(&repaired(&dev), "a directory");
    let v = opened(Arc::new(dev));
    for n in 0..3000 {
        v.lookup(dir, format!("a name of some length {n}").as_bytes()).expect("it is there");
    }
}

#[test]
fn a_delta_of_a_page_whose_address_comes_back_is_kept() {
    let (dev, ino, _, now) = delta_volume(2000, &[1500, 3]);
    let (node, slot) = slot_of(&dev, ino, 1500);
    let dev = torn(&dev, node, slot / 128, &Block::boxed());
    let mended = repaired(&dev);
    costs_nothing(&mended, "a page with a delta");
    assert!(!mended.before.has(Code::DeltaBase), "{:?}", mended.before.findings);
    assert!(content(&dev, ino, 2000) == now);
}

/// The block of the direct node of a page that an inode names, and the slot in it.
fn slot_of(dev: &MemDevice, ino: Ino, page: u64) -> (u64, usize) {
    let block = read_block(dev, node_addr(dev, ino)).expect("the inode");
    let inode: &RawInode = block.view();
    let path = NodePath::of(page, inode.slots(true).fanout()).expect("a page");
    assert_eq!(path.depth, 1);
    (node_addr(dev, inode.i_nid[path.inode_nid()].get()), path.slot())
}

/// An indirect node is made anew, and the pages below it have their blocks: no delta of theirs is lost.
#[test]
fn a_lost_indirect_node_costs_no_delta() {
    let (dev, ino, _, now) = delta_volume(3200, &[3100]);
    let block = read_block(&dev, node_addr(&dev, ino)).expect("the inode");
    let indirect = node_addr(&dev, block.view::<RawInode>().i_nid[2].get());
    dev.write(indirect, &[&Block::ZERO], META).expect("memory");
    let mended = repaired(&dev);
    assert!(mended.before.has(Code::NodeRebuilt), "{:?}", mended.before.findings);
    costs_nothing(&mended, "an indirect node");
    assert!(content(&dev, ino, 3200) == now);
}

#[test]
fn clusters_whose_addresses_are_zeros_come_back() {
    let (dev, ino, expected) = compressed_volume(1800);
    let block = read_block(&dev, node_addr(&dev, ino)).expect("the inode");
    let node = node_addr(&dev, block.view::<RawInode>().i_nid[0].get());
    for (at, sector) in [(node, 0), (node, 4), (node_addr(&dev, ino), 2)] {
        let what = format!("block {at}, sector {sector}");
        let dev = torn(&dev, at, sector, &Block::boxed());
        let mended = repaired(&dev);
        costs_doubt_at_most(&mended, &what);
        assert!(mended.before.has(Code::AddressMissing), "{what}: {:?}", mended.before.findings);
        same(&content(&dev, ino, 1800), &expected, &what, &mended);
    }
}

/// How it was divided is lost with its head: what is left of the file tells.
#[test]
fn a_file_whose_inode_lacks_its_first_sector_keeps_its_pages() {
    for features in FEATURE_SETS {
        let (dev, [(one, expected), (two, other)]) = volume(features);
        let dev = torn(&dev, nodes(&dev, one)[0], 0, &Block::boxed());
        let mended = repaired(&dev);
        assert!(mended.before.has(Code::FileRebuilt), "{features:?}: {:?}", mended.before.findings);
        assert_eq!(mended.after.findings, [], "{features:?}");
        same(&content(&dev, one, PAGES), &expected, features, &mended);
        same(&content(&dev, two, PAGES), &other, features, &mended);
    }
}

#[test]
fn a_root_directory_whose_inode_lacks_its_first_sector_keeps_its_names() {
    for features in FEATURE_SETS {
        let dev = Arc::new(formatted(128, features).snapshot());
        let v = opened(dev.clone());
        let (root, name) = (v.root(), |n: usize| format!("a name of some length {n}").into_bytes());
        for n in 0..1000 {
            v.create(root, &name(n), &new(FileKind::Regular)).expect("create");
        }
        v.link(v.lookup(root, &name(7)).expect("there").ino, root, b"another").expect("link");
        v.close().expect("closed");
        drop(v);
        let dev = torn(&dev, node_addr(&dev, root), 0, &Block::boxed());
        let mended = repaired(&dev);
        assert_eq!(mended.after.findings, [], "{features:?}: {:?}", mended.before.findings);
        let v = opened(Arc::new(dev));
        for n in 0..1000 {
            v.lookup(root, &name(n)).expect("it is there");
        }
        v.lookup(root, b"another").expect("both names of a file");
    }
}

/// An indirect node has a sector of the other one of its file.
#[test]
fn a_node_that_is_named_at_two_places_stays_where_it_says() {
    let dev = Arc::new(formatted(128, FEATURE_SETS[0]).snapshot());
    let v = opened(dev.clone());
    let ino = v.create(v.root(), b"sparse", &new(FileKind::Regular)).expect("create").ino;
    let pages = [3000, 1_100_000u64];
    for page in pages {
        v.write(ino, page * PAGE as u64, &[7; PAGE]).expect("write");
    }
    v.close().expect("closed");
    drop(v);
    let block = read_block(&*dev, node_addr(&dev, ino)).expect("the inode");
    let [first, second] = [2, 3].map(|at| node_addr(&dev, block.view::<RawInode>().i_nid[at].get()));
    let other = read_block(&*dev, second).expect("memory");
    let at = other.view::<RawIndirectNode>().nid.iter().position(|nid| nid.get() != 0).expect("a child");
    let mut block = read_block(&*dev, first).expect("memory");
    block.view_mut::<RawIndirectNode>().nid[at] = other.view::<RawIndirectNode>().nid[at];
    dev.write(first, &[&block], META).expect("memory");
    let mended = repaired(&*dev);
    costs_nothing(&mended, "named twice");
    assert!(mended.before.has(Code::NodeTwice), "{:?}", mended.before.findings);
    let v = opened(dev);
    for page in pages {
        let mut bytes = vec![0; PAGE];
        v.read(ino, page * PAGE as u64, &mut bytes).expect("read");
        assert!(bytes.iter().all(|&byte| byte == 7), "page {page}");
    }
}

#[test]
fn who_copies_files_learns_that_addresses_are_missing() {
    let (dev, [(one, expected), (two, _)]) = volume(FEATURE_SETS[0]);
    let dev = torn(&dev, nodes(&dev, one)[1], 2, &Block::boxed());
    let v = opened(Arc::new(dev.snapshot()));
    let past = PastDamage::of(&v);
    assert_eq!(
        (past.blocks_missing(one).expect("it reads"), past.blocks_missing(two).expect("it reads")),
        (128, 0)
    );
    assert!(addr_of(&dev, one, 3) != 0);
    drop(v);
    let bared = repair_without_names(&dev, &Options::default(), &mut |_| {}).expect("memory");
    assert!(bared.cuts.is_empty() && bared.altered.short.is_empty(), "{:?}", bared.cuts);
    let (v, mut wrong) = (opened(Arc::new(dev)), 0);
    let read = PastDamage::of(&v).read(one, &mut |piece| {
        if let Piece::Data(at, bytes) = piece {
            wrong += usize::from(expected[at as usize..][..bytes.len()] != *bytes);
        }
        true
    });
    read.expect("it can be read");
    assert_eq!((wrong, PastDamage::of(&v).blocks_missing(one).expect("it reads")), (0, 0));
}

/// The head of another file names that one's blocks, and has its owner.
#[test]
fn a_file_with_the_head_of_another_keeps_its_pages_and_takes_nothing_of_it() {
    for features in FEATURE_SETS {
        let (dev, [(one, expected), (two, other)]) = volume(features);
        let (inode_at, of_other) =
            (nodes(&dev, one)[0], read_block(&dev, nodes(&dev, two)[0]).expect("memory"));
        let dev = torn(&dev, inode_at, 0, &of_other);
        let mended = repaired(&dev);
        assert!(mended.before.has(Code::FileRebuilt), "{features:?}: {:?}", mended.before.findings);
        assert_eq!(mended.after.findings, [], "{features:?}");
        same(&content(&dev, one, PAGES), &expected, features, &mended);
        same(&content(&dev, two, PAGES), &other, features, &mended);
        let v = opened(Arc::new(dev));
        assert_eq!(v.getattr(one).expect("there").perm, 0o600, "nobody knows who might read it");
    }
}

/// It has no blocks of its own that the summaries know, as they are lost.
#[test]
fn a_file_with_the_head_of_another_takes_no_block_of_it_where_summaries_are_lost() {
    let dev = Arc::new(formatted(128, FEATURE_SETS[0]).snapshot());
    let v = opened(dev.clone());
    let files = ["one", "two"].map(|name| {
        let ino = v.create(v.root(), name.as_bytes(), &new(FileKind::Regular)).expect("create").ino;
        v.write(ino, 0, &name.as_bytes().repeat(5000)).expect("write");
        v.release(ino, 1);
        ino
    });
    v.sync().expect("sync");
    let addr = addr_of(&dev.snapshot(), files[1], 0);
    v.close().expect("closed");
    drop(v);
    let of_other = read_block(&*dev, node_addr(&dev, files[1])).expect("memory");
    let dev = torn(&dev, node_addr(&dev, files[0]), 0, &of_other);
    let sb = read_block(&dev, 0).expect("memory");
    let g = RawSuperblock::in_block(&sb).validate().expect("a superblock");
    dev.write(g.ssa_block(g.segno(addr)).into(), &[&Block::ZERO], META).expect("memory");
    for start in [0, 1].map(|pack| u64::from(g.cp_pack(pack))) {
        let head = read_block(&dev, start).expect("memory");
        let blocks = RawCheckpoint::in_block(&head).cp_pack_total_block_count.get();
        for at in 1..u64::from(blocks.max(2) - 1) {
            dev.write(start + at, &[&Block::ZERO], META).expect("memory");
        }
    }
    let mended = repaired(&dev);
    assert_eq!(mended.after.findings, []);
    let v = opened(Arc::new(dev));
    let mut bytes = vec![0; 15000];
    v.read(files[1], 0, &mut bytes).expect("read");
    assert!(bytes == b"two".repeat(5000), "{:?}", mended.before.findings);
    let one = v.lookup(v.root(), b"one").map(|attr| {
        let mut bytes = vec![0; 15000];
        v.read(attr.ino, 0, &mut bytes).map(|_| bytes)
    });
    assert!(one.is_err() || matches!(one, Ok(Ok(bytes)) if bytes != b"two".repeat(5000)));
}

#[test]
fn deltas_in_an_inode_that_lacks_its_first_sector_are_kept() {
    for (pages, deltas) in [(300, &[3, 200][..]), (2000, &[1500, 3])] {
        let (dev, ino, _, now) = delta_volume(pages, deltas);
        let dev = torn(&dev, node_addr(&dev, ino), 0, &Block::boxed());
        let mended = repaired(&dev);
        assert!(mended.before.has(Code::FileRebuilt), "{:?}", mended.before.findings);
        assert_eq!(mended.after.findings, [], "{pages} pages");
        same(&content(&dev, ino, pages), &now, &format!("{pages} pages"), &mended);
    }
}

/// Where a short link led was in the sector.
#[test]
fn a_link_that_lost_its_target_is_told_as_lost() {
    for features in FEATURE_SETS {
        let dev = Arc::new(formatted(128, features).snapshot());
        let v = opened(dev.clone());
        let long = [b'x'; 3000];
        let [short, long_link] = [&b"somewhere"[..], &long]
            .map(|to| v.symlink(v.root(), &to[..4], to, 0, 0).expect("symlink").ino);
        v.close().expect("closed");
        drop(v);
        let dev = torn(&dev, node_addr(&dev, short), 0, &Block::boxed());
        let mended = repaired(&dev);
        assert_eq!((mended.before.losses.lost, mended.after.findings.len()), (1, 0), "{features:?}");
        let v = opened(Arc::new(dev));
        assert!(v.lookup(v.root(), b"some").is_err(), "{features:?}");
        assert_eq!(v.readlink(long_link).expect("the other one"), long);
    }
}

/// Zeros where a link led, inside the inode or in its block: nobody can follow it, under one name or under two.
#[test]
fn links_whose_target_is_zeros_are_told_as_lost() {
    for features in FEATURE_SETS {
        let dev = Arc::new(formatted(128, features).snapshot());
        let v = opened(dev.clone());
        let long = [b'x'; 3900];
        let links = [("short", &b"somewhere"[..]), ("zeros", &long), ("away", &long), ("whole", &long)];
        let [short, zeros, away, whole] =
            links.map(|(name, to)| v.symlink(v.root(), name.as_bytes(), to, 0, 0).expect("symlink").ino);
        v.link(zeros, v.root(), b"second name").expect("link");
        v.setxattr(short, b"trusted.a", &[7; 1000], XattrMode::Set).expect("an attribute");
        v.close().expect("closed");
        drop(v);
        let mut inode = read_block(&*dev, node_addr(&dev, short)).expect("memory");
        let target = inode.0.windows(9).position(|bytes| bytes == b"somewhere").expect("it is inline");
        inode.0[target..target + 9].fill(0);
        dev.write(node_addr(&dev, short), &[&inode], META).expect("memory");
        dev.write(addr_of(&dev, zeros, 0).into(), &[&Block::ZERO], META).expect("memory");
        // The summaries know this one's block.
        let mut inode = read_block(&*dev, node_addr(&dev, away)).expect("memory");
        let named = addr_of(&dev, away, 0);
        let mut slots = inode.view_mut::<RawInode>().i_addr.iter_mut();
        *slots.find(|addr| addr.get() == named).expect("an address") = 0.into();
        dev.write(node_addr(&dev, away), &[&inode], META).expect("memory");
        let dev = dev.snapshot();
        let mended = repaired(&dev);
        assert_eq!(
            (mended.before.losses.lost, mended.after.findings.len()),
            (3, 0),
            "{features:?}: {:?}",
            mended.before.findings
        );
        let v = opened(Arc::new(dev));
        for kept in [away, whole] {
            assert_eq!(v.readlink(kept).expect("the other ones"), long);
        }
        for gone in ["short", "zeros", "second name"] {
            assert!(v.lookup(v.root(), gone.as_bytes()).is_err(), "{gone} {features:?}");
        }
    }
}

/// A mark and a block of another file's cluster, which can be expanded, in the place of a page that is not compressed.
#[test]
fn a_cluster_that_another_file_marks_as_compressed_is_what_its_summaries_say() {
    let (dev, file, expected) = compressed_volume(40);
    let dev = Arc::new(dev);
    let v = opened(dev.clone());
    let noise = v.create(v.root(), b"noise", &new(FileKind::Regular)).expect("create").ino;
    v.set_flags(noise, medfs::FileFlags::COMPR).expect("chattr +c");
    let mut bytes = vec![0; 8 * PAGE];
    Xoshiro256PlusPlus::seed_from_u64(3).fill_bytes(&mut bytes);
    v.write(noise, 0, &bytes).expect("write");
    v.close().expect("closed");
    drop(v);
    let at = node_addr(&dev, noise);
    let theirs = [0, 1, 2, 3].map(|page| addr_of(&dev, file, page));
    assert_eq!(theirs[0], medfs_format::COMPRESS_ADDR);
    for filled in [1, 4] {
        let dev = dev.snapshot();
        let mut block = read_block(&dev, at).expect("memory");
        let inode: &mut RawInode = block.view_mut();
        let extra = inode.slots(true).extra;
        for (slot, addr) in theirs.iter().enumerate().take(filled) {
            inode.i_addr[extra + slot] = (*addr).into();
        }
        dev.write(at, &[&block], META).expect("memory");
        let mended = repaired(&dev);
        costs_nothing(&mended, &format!("{filled} slots"));
        same(&content(&dev, noise, 8), &bytes, &format!("{filled} slots"), &mended);
        same(&content(&dev, file, 40), &expected, &format!("{filled} slots"), &mended);
    }
}

/// Another inode has the footer of one that is lost: its checksum tells.
#[test]
fn a_lost_inode_is_not_another_one_with_its_footer() {
    let (dev, [(one, expected), (two, other)]) = volume(FEATURE_SETS[1]);
    let [at, theirs] = [one, two].map(|ino| nodes(&dev, ino)[0]);
    let of_one = read_block(&dev, at).expect("memory");
    let dev = torn(&dev, theirs, 7, &of_one);
    dev.write(at, &[&Block::ZERO], META).expect("memory");
    let mended = repaired(&dev);
    assert_eq!(mended.after.findings, []);
    same(&content(&dev, one, PAGES), &expected, "lost", &mended);
    same(&content(&dev, two, PAGES), &other, "without its footer", &mended);
}

/// Addresses of a file that has lost its inode are in a sector of another one's, whose checksum is wrong for it.
#[test]
fn an_inode_takes_no_block_of_one_that_is_lost() {
    let (dev, [(one, expected), (two, other)]) = volume(FEATURE_SETS[1]);
    let [at, theirs] = [one, two].map(|ino| nodes(&dev, ino)[0]);
    let dev = torn(&dev, at, 1, &read_block(&dev, theirs).expect("memory"));
    dev.write(theirs, &[&Block::ZERO], META).expect("memory");
    let mended = repaired(&dev);
    assert_eq!(mended.after.findings, []);
    same(&content(&dev, one, PAGES), &expected, "torn", &mended);
    same(&content(&dev, two, PAGES), &other, "lost", &mended);
}

/// Without checksums, and the other inode is lost: the summaries say whose blocks the head names. The inode has none.
#[test]
fn an_inode_with_the_head_of_one_that_is_lost_takes_no_block_of_it() {
    for features in FEATURE_SETS {
        let dev = Arc::new(formatted(128, features).snapshot());
        let v = opened(dev.clone());
        let [small, large] = ["small", "large"].map(|name| {
            let ino = v.create(v.root(), name.as_bytes(), &new(FileKind::Regular)).expect("create").ino;
            v.write(ino, 0, &name.as_bytes().repeat(if name == "large" { 2000 } else { 1 })).expect("write");
            v.release(ino, 1);
            ino
        });
        v.close().expect("closed");
        drop(v);
        let [at, theirs] = [small, large].map(|ino| node_addr(&dev, ino));
        let dev = torn(&dev, at, 0, &read_block(&*dev, theirs).expect("memory"));
        dev.write(theirs, &[&Block::ZERO], META).expect("memory");
        let mended = repaired(&dev);
        assert_eq!(mended.after.findings, [], "{features:?}");
        let is = content(&dev, large, 3);
        assert!(is[..10_000] == b"large".repeat(2000), "{features:?}: {:?}", mended.before.findings);
    }
}

/// An inode that names nothing or itself, and a node whose place is another one.
#[test]
fn no_place_of_a_node_makes_a_check_panic() {
    let (dev, [(ino, _), _]) = volume("");
    let [inode_at, first, _, _, child] = nodes(&dev, ino);
    for (slot, named) in [(0, 0), (2, 0), (2, ino)] {
        for (node, place) in
            [first, child].into_iter().flat_map(|node| [0, 9, 1022, 1 << 20].map(|place| (node, place)))
        {
            let dev = dev.snapshot();
            change(&dev, inode_at, |block| block.view_mut::<RawInode>().i_nid[slot] = named.into());
            change(&dev, node, |block| footer_mut(block).flag = (place << 3).into());
            let why = format!("i_nid[{slot}] is {named}, and the node in {node} at place {place}");
            let mended = repaired(&dev);
            assert!(
                mended.unfinished.is_none() && mended.after.findings.is_empty(),
                "{why}: {:?}",
                mended.after
            );
        }
    }
}

fn change(dev: &MemDevice, at: u64, how: impl FnOnce(&mut Block)) {
    let mut block = read_block(dev, at).expect("memory");
    how(&mut block);
    dev.write(at, &[&block], META).expect("memory");
}
