//! What one node names in each other's places: footers and summaries say where each belongs.

use crate::common::META;
use crate::medium::{checked, node_addr, opened, repaired};
use crate::torn::{PAGES, content, costs_nothing, nodes, same, volume};
use medfs::{FileKind, Files, NewFile};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::Block;
use medfs_format::node::{RawDirectNode, RawIndirectNode, RawInode};
use medfs_fsck::Code;
use medfs_testkit::images::{FEATURE_SETS, formatted};
use std::sync::Arc;

const PAGE: usize = 4096;

fn change(dev: &MemDevice, at: u64, change: impl FnOnce(&mut Block)) {
    let mut block = read_block(dev, at).expect("memory");
    change(&mut block);
    dev.write(at, &[&block], META).expect("memory");
}

/// Without checksums of inodes, where the two nodes are exchanged in the inode, or below an indirect node.
#[test]
fn nodes_that_are_exchanged_come_back_to_their_places() {
    let (dev, [(one, expected), (two, other)]) = volume(FEATURE_SETS[0]);
    let exchanged = dev.snapshot();
    change(&exchanged, nodes(&dev, one)[0], |block| block.view_mut::<RawInode>().i_nid.swap(0, 1));
    let moved = dev.snapshot();
    change(&moved, nodes(&dev, one)[3], |block| block.view_mut::<RawIndirectNode>().nid.swap(0, 5));
    for (what, dev) in [("exchanged", exchanged), ("moved", moved)] {
        let mended = repaired(&dev);
        costs_nothing(&mended, what);
        assert!(mended.before.has(Code::AddressMissing), "{what}: {:?}", mended.before.findings);
        same(&content(&dev, one, PAGES), &expected, what, &mended);
        same(&content(&dev, two, PAGES), &other, what, &mended);
    }
}

/// The first node lies behind the end of the file then, where nobody reads, and its pages would read as a hole.
#[test]
fn a_node_behind_an_empty_place_is_checked_before_its_pages_read_as_a_hole() {
    let dev = Arc::new(formatted(128, FEATURE_SETS[0]).snapshot());
    let v = opened(dev.clone());
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(v.root(), b"file", &new).expect("create").ino;
    v.write(ino, 0, &vec![7; 1200 * PAGE]).expect("write");
    v.close().expect("closed");
    change(&dev, node_addr(&dev, ino), |block| block.view_mut::<RawInode>().i_nid.swap(0, 1));
    let told = opened(Arc::new(dev.snapshot())).getattr(ino).expect_err("it is damaged").to_string();
    assert!(told.contains("offset 1, expected") && told.contains("and 2"), "{told}");
    costs_nothing(&repaired(&*dev), "behind the end");
    assert!(content(&dev, ino, 1200) == vec![7; 1200 * PAGE]);
}

/// The footer of a node says another place of the file than it is named at, where another one is named: nobody knows.
#[test]
fn a_node_in_a_place_that_it_does_not_know_is_doubted() {
    let (dev, [(one, _), _]) = volume(FEATURE_SETS[0]);
    let [_, first, ..] = nodes(&dev, one);
    change(&dev, first, |block| {
        let flag = PAGE - 16;
        block.0[flag..flag + 4].copy_from_slice(&(2u32 << 3).to_le_bytes());
    });
    let found = checked(&dev);
    assert_eq!((found.has(Code::NodeFooter), found.losses.doubted), (true, 1), "{:?}", found.findings);
}

#[test]
fn blocks_that_are_exchanged_or_shifted_come_back_to_their_slots() {
    for features in FEATURE_SETS {
        let (dev, [(one, expected), (two, other)]) = volume(features);
        let [_, first, second, ..] = nodes(&dev, one);
        let exchanged = dev.snapshot();
        change(&exchanged, first, |block| block.view_mut::<RawDirectNode>().addr.swap(3, 700));
        // The last one of them is a hole.
        let shifted = dev.snapshot();
        let hole = |block: &Block| {
            let addrs = &block.view::<RawDirectNode>().addr;
            addrs.iter().position(|addr| addr.get() == 0).expect("a hole of ten pages")
        };
        change(&shifted, second, |block| {
            let hole = hole(block);
            block.view_mut::<RawDirectNode>().addr[hole - 20..=hole].rotate_right(1);
        });
        for (what, dev) in [("exchanged", exchanged), ("shifted", shifted)] {
            let what = format!("{features:?}, {what}");
            let mended = repaired(&dev);
            costs_nothing(&mended, &what);
            same(&content(&dev, one, PAGES), &expected, &what, &mended);
            same(&content(&dev, two, PAGES), &other, &what, &mended);
        }
    }
}
