//! What the map promises: from a page to its block and back, nodes that go with what they lead to, the counts.

#![cfg(test)]

use crate::error::Error;
use crate::map::Map;
use crate::map::alone::{
    START, checkpoint, device, give_block, in_op, map, map_of, new_file, new_inode, store,
};
use crate::map::damage::{Damage, First};
use crate::map::inode::{Inode, encode_dev, set_atime, set_ctime, set_mtime};
use crate::map::orphans::Orphans;
use crate::map::since::SinceCheckpoint;
use crate::map::xattr_area::XattrArea;
use crate::types::{FileFlags, Timestamp};
use medfs_device::fault::{Effect, Fault, Kind};
use medfs_device::{Cause, FaultDevice, Temperature, WriteTag};
use medfs_format::compress::{Algorithm, Compression};
use medfs_format::node::{FileKind, Inline, RawExtent};
use medfs_format::path::max_pages;
use medfs_format::superblock::Feature;
use medfs_format::xattr::{NODE_BYTES, NameIndex, XattrEntry};
use medfs_format::{Block, BlockAddr, COMPRESS_ADDR, NEW_ADDR, NULL_ADDR};
use medfs_store::{Dirty, Scatter};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Addresses in a direct node, and nids in an indirect one.
const N: u64 = 1018;

/// Pages in the inode.
fn direct(map: &Map, inode: &Inode) -> u64 {
    map.slots(inode).fanout().inode
}

/// Pages at which another part of the tree begins: the second direct node, both indirect nodes, the second
/// child of the first of these, and the double indirect node with its second child and second grandchild.
fn borders(map: &Map, inode: &Inode) -> Vec<u64> {
    let a = direct(map, inode);
    let double = a + 2 * N + 2 * N * N;
    vec![a, a + N, a + 2 * N, a + 3 * N, a + 2 * N + N * N, double, double + N, double + N * N]
}

fn address(map: &Map, inode: &Inode, page: u64) -> BlockAddr {
    map.find_slot(inode, page).expect("reads").map_or(NULL_ADDR, |slot| slot.addr())
}

fn is_valid(map: &Map, addr: BlockAddr) -> bool {
    map.segs.lock().is_valid(&map.io, addr).expect("reads")
}

fn blocks(inode: &Inode) -> u64 {
    inode.raw(|r| r.i_blocks.get())
}

/// Blocks and nodes that the volume counts.
fn counts(map: &Map) -> (u64, u32) {
    let counts = map.space.counts();
    (counts.valid_blocks, counts.valid_nodes)
}

fn errno<T>(result: crate::error::Result<T>) -> Option<i32> {
    result.err().map(|error| error.errno())
}

/// A file with a block on both sides of every border, by page.
fn full_of_borders(map: &Map) -> (Arc<Inode>, BTreeMap<u64, BlockAddr>) {
    let inode = new_file(map);
    let pages = borders(map, &inode).into_iter().flat_map(|page| [page - 1, page]);
    let pages: BTreeMap<u64, BlockAddr> = pages.map(|page| (page, give_block(map, &inode, page))).collect();
    (inode, pages)
}

#[test]
fn a_page_leads_to_its_block_in_every_part_of_the_tree() {
    let device = device(64, false, Feature::COMPRESSION);
    let (ino, pages) = {
        let map = map_of(device.clone());
        let (inode, pages) = full_of_borders(&map);
        checkpoint(&map);
        (inode.ino, pages)
    };
    let map = map_of(device);
    let inode = map.inode(ino).unwrap();
    for (&page, &addr) in &pages {
        assert_eq!(address(&map, &inode, page), addr, "page {page}");
        let slot = map.find_slot(&inode, page).unwrap().unwrap();
        assert_eq!(slot.first_page + u64::from(slot.offset), page, "the way back");
        assert_eq!(slot.is_inode(), page < direct(&map, &inode));
        assert!(is_valid(&map, addr));
    }
    // Of the file: the inode, its blocks, five direct nodes, two more below the double indirect one and one
    // before it, and the indirect nodes.
    let (a, double) = (direct(&map, &inode), direct(&map, &inode) + 2 * N + 2 * N * N);
    let leaves =
        pages.keys().filter(|&&p| p >= a).map(|p| (p - a) / N).collect::<std::collections::BTreeSet<_>>();
    let inner =
        2 + 1 + pages.keys().filter(|&&p| p >= double).map(|p| (p - double) / (N * N)).max().unwrap() + 1;
    assert_eq!(blocks(&inode), 1 + pages.len() as u64 + leaves.len() as u64 + inner);
}

#[test]
fn neighbours_are_stepped_to_within_a_node_and_not_beyond() {
    let map = map();
    let inode = new_file(&map);
    let a = direct(&map, &inode);
    let addrs: Vec<BlockAddr> = (a - 2..a + 3).map(|page| give_block(&map, &inode, page)).collect();
    let last = map.find_slot(&inode, a - 2).unwrap().unwrap();
    assert_eq!(last.addrs(10), addrs[..2], "the inode ends there");
    assert_eq!(last.step_to(a - 1).unwrap().addr(), addrs[1]);
    assert!(last.step_to(a).is_none());
    let first = map.find_slot_near(&inode, Some(&last), a).unwrap().unwrap();
    assert_eq!((first.addr(), first.offset), (addrs[2], 0));
    assert!(first.step_to(a - 1).is_none());
    assert_eq!(map.find_slot_near(&inode, Some(&first), a + 2).unwrap().unwrap().addr(), addrs[4]);
    assert_eq!(first.addrs(3), addrs[2..]);
    let nodes = counts(&map).1;
    assert_eq!(in_op(&map).make_slot_near(&inode, Some(&first), a + 9).unwrap().addr(), NULL_ADDR);
    assert_eq!(counts(&map).1, nodes, "that node was there");
    in_op(&map).make_slot_near(&inode, Some(&first), a + N).unwrap();
    assert_eq!(counts(&map).1, nodes + 1);
}

#[test]
fn a_cut_frees_what_lies_behind_it_and_the_nodes_that_led_there() {
    let map = map();
    let empty = counts(&map);
    let (inode, mut pages) = full_of_borders(&map);
    let mut cuts = borders(&map, &inode);
    cuts.extend(pages.keys().rev().map(|page| page + 1).collect::<Vec<_>>());
    cuts.sort_unstable_by(|a, b| b.cmp(a));
    for cut in cuts {
        in_op(&map).truncate_index(&inode, cut).unwrap();
        for (page, addr) in pages.split_off(&cut) {
            assert_eq!(address(&map, &inode, page), NULL_ADDR, "page {page}, cut at {cut}");
            assert!(!is_valid(&map, addr));
        }
        for (&page, &addr) in &pages {
            assert_eq!(address(&map, &inode, page), addr, "page {page}, cut at {cut}");
            assert!(is_valid(&map, addr));
        }
        let (all, nodes) = counts(&map);
        assert_eq!(blocks(&inode), all - empty.0, "the volume and the inode count the same");
        assert_eq!(u64::from(nodes - empty.1) + pages.len() as u64, blocks(&inode), "cut at {cut}");
    }
    in_op(&map).truncate_index(&inode, 0).unwrap();
    assert_eq!((blocks(&inode), counts(&map)), (1, (empty.0 + 1, empty.1 + 1)));
    assert_eq!(inode.raw(|r| r.i_nid.map(|nid| nid.get())), [0; 5]);
}

#[test]
fn a_cut_within_a_direct_node_leaves_what_lies_before_it() {
    let map = map();
    let inode = new_file(&map);
    let first = direct(&map, &inode) + 2 * N + 7 * N;
    let pages: Vec<BlockAddr> = (first..first + 10).map(|page| give_block(&map, &inode, page)).collect();
    in_op(&map).truncate_index(&inode, first + 4).unwrap();
    let slot = map.find_slot(&inode, first).unwrap().unwrap();
    assert_eq!(slot.addrs(10), [&pages[..4], &[NULL_ADDR; 6]].concat());
    assert_eq!(blocks(&inode), 1 + 4 + 2, "the direct node and the one above it stay");
}

#[test]
fn only_some_subtrees_are_cut_where_that_is_asked() {
    let map = map();
    let (inode, pages) = full_of_borders(&map);
    let double = direct(&map, &inode) + 2 * N + 2 * N * N;
    in_op(&map).truncate_subtrees(&inode, 0, 4).unwrap();
    for (&page, &addr) in &pages {
        let left = if page < double { NULL_ADDR } else { addr };
        assert_eq!(address(&map, &inode, page), left, "page {page}");
    }
    assert!(inode.raw(|r| r.i_nid[..4].iter().all(|nid| nid.get() == 0) && r.i_nid[4].get() != 0));
}

#[test]
fn an_indirect_node_of_the_checkpoint_that_goes_is_noted_for_fsyncs() {
    let map = map();
    let inode = new_file(&map);
    let a = direct(&map, &inode);
    for page in [a, a + 2 * N, a + 3 * N] {
        give_block(&map, &inode, page);
    }
    let noted = || map.since.cut_trees.lock().contains(&inode.ino);
    in_op(&map).truncate_index(&inode, a + 3 * N).unwrap();
    assert!(!noted(), "no checkpoint knows the node");
    give_block(&map, &inode, a + 3 * N);
    checkpoint(&map);
    in_op(&map).truncate_index(&inode, a + 3 * N + 1).unwrap();
    assert!(!noted(), "no node went");
    in_op(&map).truncate_index(&inode, a + 3 * N).unwrap();
    assert!(noted(), "a node below an indirect one");
    checkpoint(&map);
    assert!(!noted(), "the checkpoint knows it now");
    in_op(&map).truncate_index(&inode, a + 2 * N).unwrap();
    assert!(noted(), "the indirect node itself");
    checkpoint(&map);
    in_op(&map).truncate_index(&inode, a).unwrap();
    assert!(!noted(), "direct nodes below the inode are in the chain");
}

#[test]
fn holes_cost_nothing_and_are_stepped_over() {
    let map = map();
    let inode = new_file(&map);
    let (before, a) = (counts(&map), direct(&map, &inode));
    let double = a + 2 * N + 2 * N * N;
    for page in [a, a + N + 3, a + 2 * N + 5, double + 9, max_pages(map.slots(&inode).fanout()) - 1] {
        assert!(map.find_slot(&inode, page).unwrap().is_none(), "page {page}");
    }
    assert_eq!(counts(&map), before);
    for (from, next) in [(5, 5), (a, a + N), (a + N + 3, a + 2 * N), (a + 2 * N + 5, a + 2 * N + N * N)] {
        assert_eq!(map.next_existing(&inode, from).unwrap(), next, "from {from}");
    }
    assert_eq!(map.next_existing(&inode, double).unwrap(), max_pages(map.slots(&inode).fanout()));
    // Once a node is there, only what is missing below it is a hole.
    give_block(&map, &inode, double + N * N + 2 * N);
    assert_eq!(map.next_existing(&inode, double + 3).unwrap(), double + N * N);
    assert_eq!(map.next_existing(&inode, double + N * N).unwrap(), double + N * N + N);
    assert_eq!(map.next_existing(&inode, double + N * N + 2 * N + 7).unwrap(), double + N * N + 2 * N + 7);
    assert_eq!(map.next_existing(&inode, u64::MAX).unwrap(), u64::MAX);
}

#[test]
fn punching_frees_pages_and_no_nodes() {
    let map = map();
    let (inode, pages) = full_of_borders(&map);
    let nodes = counts(&map).1;
    let (from, until) = (direct(&map, &inode), direct(&map, &inode) + 3 * N);
    let inside = pages.range(from..until).count() as u64;
    let before = blocks(&inode);
    assert_eq!(in_op(&map).punch(&inode, from, until).unwrap(), inside);
    for (&page, &addr) in &pages {
        let goes = (from..until).contains(&page);
        assert_eq!((address(&map, &inode, page) == NULL_ADDR, is_valid(&map, addr)), (goes, !goes), "{page}");
    }
    assert_eq!((counts(&map).1, blocks(&inode)), (nodes, before - inside));
    assert_eq!(in_op(&map).punch(&inode, from, until).unwrap(), 0);
    assert_eq!(in_op(&map).punch(&inode, 0, u64::MAX).unwrap(), pages.len() as u64 - inside);
}

#[test]
fn reservations_are_given_back_and_are_no_blocks() {
    let map = map();
    let inode = new_file(&map);
    let before = counts(&map).0;
    let slot = in_op(&map).make_slot(&inode, 3).unwrap();
    map.space.reserve(1).unwrap();
    in_op(&map).set_addr(&inode, &slot, NEW_ADDR);
    in_op(&map).count_block(&inode);
    assert_eq!((in_op(&map).punch(&inode, 0, 10).unwrap(), counts(&map).0, blocks(&inode)), (1, before, 1));
}

#[test]
fn a_new_address_drops_the_largest_extent() {
    let map = map();
    let inode = new_file(&map);
    let extent = RawExtent { fofs: 0.into(), blk: 9000.into(), len: 4.into() };
    let has = || inode.raw(|r| r.i_ext.len.get());
    for page in [0, direct(&map, &inode)] {
        map.edit(&inode, Dirty::Full, |r| r.i_ext = extent);
        give_block(&map, &inode, page);
        assert_eq!(has(), 0, "page {page}");
        map.edit(&inode, Dirty::Full, |r| r.i_ext = extent);
        in_op(&map).punch(&inode, page, page + 1).unwrap();
        assert_eq!(has(), 0, "page {page}");
    }
}

#[test]
fn what_a_reservation_would_take_is_what_it_takes() {
    let map = map();
    let inode = new_file(&map);
    let a = direct(&map, &inode);
    give_block(&map, &inode, a + 2 * N + 1);
    let double = a + 2 * N + 2 * N * N;
    for pages in [0..3, a - 1..a + 2 * N, a + 2 * N..a + 2 * N + 9, double - 4..double + N + 4] {
        let missing = map.missing_blocks(&inode, pages.clone(), u64::MAX).unwrap();
        let before = counts(&map).0;
        for page in pages.clone().filter(|&page| address(&map, &inode, page) == NULL_ADDR).collect::<Vec<_>>()
        {
            give_block(&map, &inode, page);
        }
        assert_eq!(counts(&map).0 - before, missing, "{pages:?}");
        assert_eq!(map.missing_blocks(&inode, pages, u64::MAX).unwrap(), 0);
    }
    assert!(map.missing_blocks(&inode, 0..1 << 30, 100).unwrap() > 100, "it need not count further");
    let beyond = max_pages(map.slots(&inode).fanout());
    assert_eq!(errno(map.missing_blocks(&inode, beyond..beyond + 1, 100)), Some(27));
}

#[test]
fn nothing_lies_beyond_the_largest_file() {
    let map = map();
    let inode = new_file(&map);
    let beyond = max_pages(map.slots(&inode).fanout());
    assert!(map.find_slot(&inode, beyond).unwrap().is_none());
    assert_eq!(errno(in_op(&map).make_slot(&inode, beyond)), Some(27));
}

#[test]
fn no_empty_node_is_made_where_room_ends() {
    let map = map();
    let inode = new_file(&map);
    let double = direct(&map, &inode) + 2 * N + 2 * N * N;
    map.space.reserve(map.space.counts().free() - 3).unwrap();
    let before = (counts(&map), blocks(&inode));
    assert!(matches!(in_op(&map).make_slot(&inode, double), Err(Error::NoSpace)), "three nodes and the page");
    assert_eq!((counts(&map), blocks(&inode)), before);
    map.space.release(1);
    assert!(in_op(&map).make_slot(&inode, double).is_ok());
}

#[test]
fn a_node_of_another_place_or_file_is_damage() {
    let map = map();
    let (inode, other) = (new_file(&map), new_inode(&map, FileKind::Regular, b"g", None));
    let a = direct(&map, &inode);
    give_block(&map, &inode, a);
    give_block(&map, &other, a);
    let of_other = other.raw(|r| r.i_nid[0]);
    for (nid, at) in [(of_other, 0), (inode.raw(|r| r.i_nid[0]), 1)] {
        map.edit(&inode, Dirty::Full, |r| r.i_nid[at] = nid);
        let error = map.find_slot(&inode, a + at as u64 * N).unwrap_err();
        assert!(matches!(error, Error::Corrupt(_)) && map.is_damage(&error), "{error}");
    }
}

#[test]
fn an_address_outside_the_main_area_is_damage() {
    let map = map();
    let inode = new_file(&map);
    let main = give_block(&map, &inode, 0);
    for addr in [NULL_ADDR, NEW_ADDR, main] {
        map.check_addr(&inode, 0, addr).unwrap();
    }
    for addr in [1, map.geo.main_blkaddr + map.geo.main_blocks(), COMPRESS_ADDR] {
        let error = map.check_addr(&inode, 7, addr).unwrap_err();
        assert!(error.to_string().contains("page 7"), "{error}");
    }
    let slot = map.find_slot(&inode, 0).unwrap().unwrap();
    in_op(&map).set_addr(&inode, &slot, 1);
    let before = counts(&map);
    assert!(in_op(&map).truncate_index(&inode, 0).is_err());
    assert_eq!((counts(&map), address(&map, &inode, 0)), (before, 1), "nothing was freed");
}

fn four_pages() -> Compression {
    Compression { algorithm: Algorithm::Lz4, log_cluster_size: 2, checksum: false, level: 0 }
}

/// A compressed file whose first cluster is marked, with one block.
fn with_cluster(map: &Map) -> Arc<Inode> {
    let inode = new_inode(map, FileKind::Regular, b"c", Some(four_pages()));
    give_block(map, &inode, 1);
    map.space.reserve(3).unwrap();
    for (page, addr) in [(0, COMPRESS_ADDR), (2, NEW_ADDR), (3, NEW_ADDR)] {
        let slot = in_op(map).make_slot(&inode, page).unwrap();
        in_op(map).set_addr(&inode, &slot, addr);
        in_op(map).count_block(&inode);
    }
    map.add_saved(&inode, 3);
    inode
}

fn saved(inode: &Inode) -> u64 {
    inode.raw(|r| r.extra().unwrap().i_compr_blocks.get())
}

#[test]
fn what_compression_saved_goes_with_its_clusters() {
    let map = map();
    let inode = with_cluster(&map);
    assert!(map.is_compressed(&inode) && map.compression(&inode) == Some(four_pages()));
    assert!(map.check_addr(&inode, 0, COMPRESS_ADDR).is_ok());
    let slot = map.find_slot(&inode, 2).unwrap().unwrap();
    assert_eq!((map.end_of_cluster(&inode, &slot, 2), map.end_of_cluster(&inode, &slot, 5)), (Some(4), None));
    assert_eq!((in_op(&map).punch(&inode, 0, 4).unwrap(), saved(&inode), blocks(&inode)), (4, 0, 1));
}

#[test]
fn a_released_file_is_not_written_and_its_marks_count_no_more() {
    let map = map();
    let inode = with_cluster(&map);
    // Releasing gives back what the slots without a block count.
    for page in [2, 3] {
        let slot = map.find_slot(&inode, page).unwrap().unwrap();
        in_op(&map).set_addr(&inode, &slot, NULL_ADDR);
    }
    map.space.release(3);
    in_op(&map).add_blocks(&inode, -3);
    map.add_saved(&inode, -3);
    map.set_released(&inode, true);
    assert!(map.since.cut_trees.lock().contains(&inode.ino), "no fsync relies on roll-forward");
    assert_eq!(errno(map.check_not_released(&inode)), Some(1));
    assert_eq!(errno(map.check_resize_of_released(&inode, 4096)), Some(22));
    assert!(map.check_resize_of_released(&inode, 4 * 4096).is_ok());
    let before = counts(&map).0;
    assert_eq!((in_op(&map).punch(&inode, 0, 4).unwrap(), blocks(&inode)), (1, 1), "only its block");
    assert_eq!(counts(&map).0, before - 1);
    map.forget_release(&inode);
    assert!(!map.is_released(&inode) && map.check_not_released(&inode).is_ok());
}

#[test]
fn without_the_feature_no_file_is_compressed() {
    let map = map_of(device(64, false, Feature::empty()));
    let inode = new_inode(&map, FileKind::Regular, b"c", Some(four_pages()));
    assert!(!map.has_compression() && !map.is_compressed(&inode) && map.compression(&inode).is_none());
    assert!(map.check_addr(&inode, 0, COMPRESS_ADDR).is_err());
    assert_eq!(map.leave_clusters(&inode, vec![COMPRESS_ADDR]), [COMPRESS_ADDR]);
}

#[test]
fn there_is_one_inode_for_a_number() {
    let map = map();
    let inode = new_file(&map);
    let again = map.inode(inode.ino).unwrap();
    assert!(Arc::ptr_eq(&inode, &again));
    assert!(Arc::ptr_eq(&inode, &map.adopt_inode(inode.node.clone())));
    assert_eq!(map.inodes.lookups(), (1, 1));
    give_block(&map, &inode, direct(&map, &inode));
    let node = inode.raw(|r| r.i_nid[0].get());
    for number in [node, 0, map.geo.max_nid(), map.geo.max_nid() - 1] {
        assert_eq!(errno(map.inode(number)), Some(116), "{number}");
    }
    let inodes: Vec<u32> = map.nat.inodes(&map.io, map.geo.root_ino).map(Result::unwrap).collect();
    assert!(inodes.contains(&inode.ino) && !inodes.contains(&node), "{inodes:?}");
    map.inodes.forget(inode.ino);
    in_op(&map).free_node(inode.ino, inode.ino).unwrap();
    assert_eq!(errno(map.inode(inode.ino)), Some(116));
    inode.lock.write().dead = true;
    assert_eq!(errno(inode.check_alive(&inode.lock.read())), Some(116));
}

#[test]
fn an_inode_without_a_name_is_an_orphan_or_damage() {
    let device = device(64, false, Feature::empty());
    let ino = {
        let map = map_of(device.clone());
        let inode = new_file(&map);
        map.edit(&inode, Dirty::Full, |r| r.i_links = 0.into());
        map.orphans.add(inode.ino).unwrap();
        checkpoint(&map);
        inode.ino
    };
    let map = map_of(device);
    assert!(matches!(map.inode(ino), Err(Error::Corrupt(_))));
    assert_eq!(map.orphans().unwrap(), [ino], "the checkpoint lists it");
    map.orphans.add_at_mount(ino);
    assert_eq!(map.inode(ino).unwrap().nlink(), 0);
}

#[test]
fn orphans_are_never_more_than_a_checkpoint_lists() {
    let map = map();
    let orphans = Orphans::new(&map.geo);
    let most = medfs_format::checkpoint::max_orphans(&map.geo) as u32;
    (1..=most).for_each(|ino| orphans.add(ino).unwrap());
    assert!(matches!(orphans.add(most + 1), Err(Error::NoSpace)));
    assert!(orphans.add(most).is_ok() && !orphans.contains(most + 1), "one of them adds nothing");
    orphans.remove(7);
    assert!(orphans.add(most + 1).is_ok() && !orphans.contains(7));
    assert_eq!((orphans.list().len(), orphans.list()[6]), (most as usize, 8), "by number");
}

#[test]
fn inodes_in_use_or_dirty_stay_in_memory() {
    let map = map();
    let (used, dirty) = (new_file(&map), new_file(&map).ino);
    map.inodes.set_dirty(&map.inode(dirty).unwrap());
    let drafted = new_file(&map).ino;
    map.inode(drafted).unwrap().lock.write().pages.begin_draft(0);
    let idle = new_file(&map).ino;
    for _ in 0..600 {
        new_file(&map);
    }
    let loaded: Vec<u32> = map.inodes.loaded().iter().map(|inode| inode.ino).collect();
    assert!([used.ino, dirty, drafted].iter().all(|ino| loaded.contains(ino)), "{loaded:?}");
    assert!(loaded.len() < 600 && (!loaded.contains(&idle) || loaded.len() < 520));
    assert!(map.inodes.any_dirty() && map.inodes.dirty()[0].ino == dirty);
    map.inodes.set_clean(dirty);
    assert!(!map.inodes.any_dirty());
}

#[test]
fn holds_are_counted() {
    let inodes = map().inodes;
    inodes.hold(5, 3);
    inodes.hold(5, 1);
    assert!(!inodes.release(5, 3) && inodes.is_held(5));
    assert!(inodes.release(5, 1) && !inodes.is_held(5) && !inodes.release(5, 1));
    inodes.hold(6, u64::MAX);
    inodes.hold(6, 1);
    assert!(inodes.release(6, u64::MAX), "no overflow");
}

#[test]
fn attributes_are_those_of_the_inode_block() {
    let map = map();
    let inode = new_file(&map);
    let time = |secs| Timestamp { secs, nanos: secs as u32 + 1 };
    map.edit(&inode, Dirty::Full, |r| {
        set_atime(r, time(1));
        set_mtime(r, time(2));
        set_ctime(r, time(3));
        (r.i_uid, r.i_gid, r.i_generation) = (8.into(), 9.into(), 77.into());
        r.extra_mut().unwrap().i_projid = 12.into();
    });
    in_op(&map).set_size(&inode, 5000);
    in_op(&map).add_blocks(&inode, 2);
    let attr = map.attributes(&inode);
    assert_eq!((attr.atime, attr.mtime, attr.ctime), (time(1), time(2), time(3)));
    assert_eq!((attr.uid, attr.gid, attr.generation, attr.project), (8, 9, 77, 12));
    assert_eq!((attr.size, attr.blocks, attr.nlink, attr.perm, attr.rdev), (5000, 16, 1, 0o644, 0));
    assert_eq!((attr.kind, inode.pages()), (FileKind::Regular, 2));
    map.touch_changed(&inode);
    assert_eq!((map.attributes(&inode).mtime, map.attributes(&inode).ctime), (time(2), START));
    map.touch_modified(&inode);
    assert_eq!(map.attributes(&inode).mtime, START);
    in_op(&map).add_blocks(&inode, -9);
    assert_eq!(blocks(&inode), 1, "the inode itself is one");
    // Content in the inode is shown as sectors.
    map.edit(&inode, Dirty::Full, |r| r.i_inline |= Inline::DATA.bits());
    in_op(&map).set_size(&inode, 513);
    assert_eq!((map.attributes(&inode).blocks, inode.is_inline()), (2, true));
}

#[test]
fn device_numbers_are_read_as_they_were_written() {
    let map = map();
    let inode = new_inode(&map, FileKind::CharDevice, b"d", None);
    for rdev in [0x0103, 0xffff, 0x10_0000 | 0x0801, 0xffff_ffff] {
        let [old, new] = encode_dev(rdev);
        let extra = map.slots(&inode).extra;
        map.edit(&inode, Dirty::Full, |r| {
            (r.i_addr[extra], r.i_addr[extra + 1]) = (old.into(), new.into());
        });
        assert_eq!(map.attributes(&inode).rdev, rdev, "{rdev:#x}");
        assert_eq!(old != 0, rdev <= 0xffff, "small ones in the old form");
    }
}

#[test]
fn flags_and_kinds_refuse_what_they_forbid() {
    let map = map();
    let (file, dir) = (new_file(&map), new_inode(&map, FileKind::Directory, b"d", None));
    let link = new_inode(&map, FileKind::Symlink, b"l", None);
    assert!(file.check_regular().is_ok());
    assert_eq!((errno(dir.check_regular()), errno(link.check_regular())), (Some(21), Some(22)));
    map.edit(&file, Dirty::Full, |r| r.i_flags = FileFlags::IMMUTABLE.bits().into());
    assert_eq!(errno(file.check_flags(FileFlags::IMMUTABLE | FileFlags::APPEND)), Some(1));
    assert!(file.check_flags(FileFlags::APPEND).is_ok());
}

fn entry(index: u8, name: &[u8], len: usize) -> XattrEntry {
    XattrEntry { index, name: name.to_vec(), value: vec![name[0]; len] }
}

#[test]
fn attributes_with_names_take_a_node_while_the_inode_is_too_small() {
    let map = map();
    let inode = new_file(&map);
    let _op = map.op().unwrap();
    let (area, before) = (XattrArea { map: &map, inode: &inode }, counts(&map));
    let small = vec![entry(NameIndex::User as u8, b"a", 10)];
    area.write(small.clone()).unwrap();
    assert_eq!((area.read().unwrap(), counts(&map)), (small.clone(), before));
    let large = vec![small[0].clone(), entry(NameIndex::Trusted as u8, b"b", 1000)];
    area.write(large.clone()).unwrap();
    assert_eq!((area.read().unwrap(), counts(&map)), (large.clone(), (before.0 + 1, before.1 + 1)));
    let larger = vec![large[1].clone(), entry(NameIndex::User as u8, b"c", 2000)];
    area.write(larger.clone()).unwrap();
    assert_eq!((area.read().unwrap(), counts(&map).1), (larger.clone(), before.1 + 1), "the node is kept");
    let too_large = vec![entry(NameIndex::User as u8, b"d", NODE_BYTES + 200)];
    assert_eq!(errno(area.write(too_large)), Some(7));
    assert_eq!(area.read().unwrap(), larger, "nothing changed");
    area.write(small.clone()).unwrap();
    assert_eq!((area.read().unwrap(), counts(&map), blocks(&inode)), (small, before, 1));
    area.write(Vec::new()).unwrap();
    assert_eq!(area.read().unwrap(), []);
}

#[test]
fn attributes_of_unknown_name_spaces_come_first_and_stay() {
    let map = map();
    let dir = new_inode(&map, FileKind::Directory, b"d", None);
    let area = XattrArea { map: &map, inode: &dir };
    area.write(vec![entry(NameIndex::User as u8, b"u", 4), entry(99, b"x", 4)]).unwrap();
    assert_eq!(area.read().unwrap().iter().map(|e| e.index).collect::<Vec<_>>(), [99, 1]);
    assert!(map.since.trans_dirs.lock().contains(&dir.ino), "what is fsynced below it needs a checkpoint");
}

#[test]
fn an_attribute_node_of_another_file_is_damage() {
    let map = map();
    let (inode, other) = (new_file(&map), new_file(&map));
    let large = vec![entry(NameIndex::User as u8, b"a", 1000)];
    let _op = map.op().unwrap();
    XattrArea { map: &map, inode: &other }.write(large).unwrap();
    map.edit(&inode, Dirty::Full, |r| r.i_xattr_nid = other.raw(|r| r.i_xattr_nid));
    let area = XattrArea { map: &map, inode: &inode };
    assert!(matches!(area.read(), Err(Error::Corrupt(_))));
    let before = counts(&map);
    assert!(area.free_node().is_err());
    assert_eq!(counts(&map), before, "it is not this file's to free");
}

#[test]
fn names_are_ordered_only_where_that_was_asked() {
    for ordered in [false, true] {
        let since = SinceCheckpoint::new(ordered);
        since.note_changed_dir(4);
        assert_eq!(since.trans_dirs.lock().contains(&4), ordered);
        since.moved_names.lock().insert((4, b"n".to_vec()), 9);
        assert_eq!(since.other_of_name(8, 4, b"n".to_vec()), Some(9));
        assert_eq!(since.other_of_name(9, 4, b"n".to_vec()), None, "it is its own name");
        since.committed();
        assert_eq!(since.other_of_name(8, 4, b"n".to_vec()), None);
        assert!(since.trans_dirs.lock().is_empty());
    }
}

#[test]
fn records_in_nvram_hold_pages_until_they_are_void() {
    let since = SinceCheckpoint::new(false);
    let records = &since.in_nvram;
    assert!(!records.any() && !records.needs(50));
    records.note([50, 51]);
    let page = Arc::new(Block::ZERO);
    records.of(3, |pages| pages.extend([(0, Some(page.clone())), (7, Some(page.clone()))]));
    records.of(4, |pages| pages.insert(1, Some(page.clone())));
    assert!(records.any() && records.needs(50) && !records.needs(52));
    records.left(3, 7);
    assert_eq!(Arc::strong_count(&page), 3, "its version need not be kept");
    assert_eq!((records.pages(), records.of(3, |pages| pages.len())), (3, 2), "the record still holds it");
    records.superseded(3);
    assert_eq!((records.pages(), records.needs(50)), (1, true));
    since.committed();
    assert_eq!((records.any(), records.needs(50), records.pages()), (false, false, 0));
}

#[test]
fn damage_is_passed_by_and_the_end_of_writing_is_not() {
    let faulty = Arc::new(FaultDevice::new(device(64, false, Feature::empty()), 1));
    let map = map_of(faulty.clone());
    let inode = new_file(&map);
    let corrupt = || map.check_addr(&inode, 0, 1);
    assert_eq!(map.pass_by("what", 3, Ok::<_, Error>(5)).unwrap(), Some(5));
    assert_eq!(map.pass_by("what", 3, corrupt()).unwrap(), None);
    let passed = || map.counters.damage_passed.load(std::sync::atomic::Ordering::Relaxed);
    assert_eq!(passed(), 1);
    assert!(matches!(map.pass_by("what", 3, Err::<(), _>(Error::NoSpace)), Err(Error::NoSpace)));
    let mut first = First::default();
    map.put_off(&mut first, corrupt()).unwrap();
    assert!(map.put_off(&mut first, Err(Error::NoSpace)).is_err(), "at once");
    assert!(first.is_only(|error| matches!(error, Error::Corrupt(_))));
    first.note(Err(Error::NoSpace));
    assert!(matches!(first.result(), Err(Error::Corrupt(_))), "the first one");
    assert!(First::default().is_only(|_| false) && First::default().result().is_ok());

    faulty.arm(Fault::on(Kind::Write, Effect::IO));
    let error =
        map.io.write(map.geo.main_blkaddr, &[&Block::ZERO], WriteTag::new(Cause::Meta, Temperature::Hot));
    assert!(error.is_err() && map.io.failed() && !map.goes_on());
    assert!(map.pass_by("what", 3, corrupt()).is_err(), "every caller hears of it");
    assert_eq!((passed(), errno(map.op())), (1, Some(30)));
}

#[test]
fn what_was_fsynced_and_is_not_shown_is_told_once_for_each_file() {
    let damage = Damage::default();
    damage.note_unrecovered(Some(4), &Error::NoSpace);
    damage.note_unrecovered(Some(4), &Error::ReadOnly);
    damage.note_unrecovered(Some(5), &Error::NoSpace);
    damage.note_older_checkpoint("older");
    let told: Vec<_> = damage.unrecovered().into_iter().map(|(ino, _)| ino).collect();
    assert_eq!(told, [Some(4), Some(5), None]);
}

#[test]
fn nothing_is_changed_on_a_volume_that_is_read_only_or_closed() {
    let store = store(device(64, false, Feature::empty()), Scatter::No);
    let read_only = Map::over(store, true, SinceCheckpoint::new(false));
    assert!(errno(read_only.op()) == Some(30) && read_only.is_read_only());
    let map = map();
    assert!(!map.has_changes() && map.op().is_ok());
    let inode = new_file(&map);
    assert!(map.has_changes() && map.has_changes_to_commit());
    checkpoint(&map);
    assert!(!map.has_changes());
    map.touch_changed(&inode);
    assert!(map.has_changes());
    map.closed.store(true, std::sync::atomic::Ordering::Release);
    assert_eq!(errno(map.check_writable()), Some(30));
}

#[test]
fn an_operation_that_panics_ends_writing() {
    let map = map();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _op = map.op().unwrap();
        panic!("half done");
    }));
    assert!(panicked.is_err() && map.io.failed() && errno(map.op()) == Some(30));
}

/// Canaries of what every build with debug assertions asks.
#[test]
#[cfg_attr(not(debug_assertions), ignore = "only debug assertions check it")]
#[should_panic(expected = "outside of an operation")]
fn an_address_that_changes_outside_of_an_operation_panics() {
    let map = map();
    let inode = new_file(&map);
    let slot = map.find_slot(&inode, 0).unwrap().unwrap();
    map.set_addr(&inode, &slot, NEW_ADDR);
}

#[test]
#[cfg_attr(not(debug_assertions), ignore = "only debug assertions check it")]
#[should_panic(expected = "outside of an operation")]
fn an_operation_on_another_volume_does_not_count() {
    let (map, other) = (map(), super::alone::map());
    let inode = new_file(&map);
    let _op = other.op().unwrap();
    map.count_block(&inode);
}

#[test]
fn a_checkpoint_changes_files_as_an_operation_does() {
    let map = map();
    let inode = new_file(&map);
    let _alone = map.ops.alone();
    map.count_block(&inode);
    assert_eq!(blocks(&inode), 2);
}
