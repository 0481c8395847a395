//! Segments of which SIT and SSA say what they are not.

use crate::common::META;
use crate::medium::{checked, node_addr, opened, repaired, superblock};
use medfs::{FileKind, Files, Ino, NewFile, Volume};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::Block;
use medfs_format::sit::{ENTRIES_PER_BLOCK, RawSitEntry};
use medfs_format::summary::{RawSummaryBlock, SUM_TYPE_DATA, SUM_TYPE_NODE};
use medfs_fsck::{Options, repair_without_names};
use medfs_testkit::images::{DELTAS, formatted};
use std::collections::BTreeSet;
use std::sync::Arc;

/// More than a segment has blocks.
const FILES: usize = 700;
/// So many that more segments change than the SIT journal has room for.
const PAGES: usize = 8;
const PAGE: usize = 4096;

fn made(v: &Volume, number: usize) -> Ino {
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let ino = v.create(v.root(), format!("file {number}").as_bytes(), &new).expect("create").ino;
    v.write(ino, 0, &vec![number as u8 | 1; PAGES * PAGE]).expect("write");
    v.release(ino, 1);
    ino
}

/// A closed volume of files, and their numbers.
fn volume() -> (Arc<MemDevice>, Vec<Ino>) {
    let dev = Arc::new(formatted(128, DELTAS).snapshot());
    let v = opened(dev.clone());
    let files = (0..FILES).map(|number| made(&v, number)).collect();
    v.close().expect("closed");
    (dev, files)
}

fn names(dev: &MemDevice) -> BTreeSet<Vec<u8>> {
    let v = opened(Arc::new(dev.snapshot()));
    let mut names = BTreeSet::new();
    v.readdir(v.root(), 0, &mut |entry| {
        names.insert(entry.name.to_vec());
        true
    })
    .expect("readdir");
    names
}

/// The segment of a block, in the main area.
fn segment(dev: &MemDevice, block: u64) -> u64 {
    (block - superblock(dev, "main_blkaddr")) / 512
}

fn zero_sit(dev: &MemDevice) {
    for block in superblock(dev, "sit_blkaddr")..superblock(dev, "nat_blkaddr") {
        dev.write(block, &[&Block::ZERO], META).unwrap();
    }
}

/// Lets SSA say of a segment that it is of the other kind.
fn turn(dev: &MemDevice, segno: u64) {
    let block = superblock(dev, "ssa_blkaddr") + segno;
    let mut summary = read_block(dev, block).unwrap();
    let footer = &mut summary.view_mut::<RawSummaryBlock>().footer;
    let is_node = footer.entry_type == SUM_TYPE_NODE;
    footer.entry_type = if is_node { SUM_TYPE_DATA } else { SUM_TYPE_NODE };
    dev.write(block, &[&summary], META).unwrap();
}

/// Lets SIT say of a segment that its blocks are hot data, in both copies.
fn call_hot_data(dev: &MemDevice, segno: u64) {
    let (sit, nat) = (superblock(dev, "sit_blkaddr"), superblock(dev, "nat_blkaddr"));
    let (index, entry) = (segno / ENTRIES_PER_BLOCK as u64, segno as usize % ENTRIES_PER_BLOCK);
    for copy in [sit, sit + (nat - sit) / 2] {
        let mut block = read_block(dev, copy + index).unwrap();
        // The type is above the ten bits of the count.
        block.0[entry * size_of::<RawSitEntry>() + 1] &= 3;
        dev.write(copy + index, &[&block], META).unwrap();
    }
}

#[test]
fn a_segment_is_what_its_blocks_are_where_sit_and_ssa_are_wrong() {
    let (dev, files) = volume();
    let all = checked(&*dev);
    assert!(all.is_clean());
    let struck = segment(&dev, node_addr(&dev, files[0]));
    let sit: [fn(&MemDevice, u64); 3] = [|_, _| (), |dev, _| zero_sit(dev), call_hot_data];
    for (case, damage) in sit.into_iter().enumerate() {
        let damaged = dev.snapshot();
        turn(&damaged, struck);
        damage(&damaged, struck);
        let bared = repair_without_names(&damaged.snapshot(), &Options::default(), &mut |_| {}).unwrap();
        assert!(bared.inodes.is_none_or(|(before, left)| before == left), "case {case}: {:?}", bared.inodes);
        let after = repaired(&damaged).after;
        assert_eq!((after.findings.len(), after.files()), (0, all.files()), "case {case}");
        assert_eq!(names(&damaged), names(&dev));
    }
}
