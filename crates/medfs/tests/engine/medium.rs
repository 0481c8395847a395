//! Sectors that cannot be read while a volume is opened: of what has two copies one will do, and the engine's
//! recovery, the check and the repair agree on where what was fsynced ends.

use crate::common::*;
use medfs::{FallocateMode, Files, ManualClock, MountOptions, PastDamage, Recover, Volume};
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::checkpoint::RawCheckpoint;
use medfs_format::node::{RawInode, footer, footer_mut};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{Block, Geometry, crc};
use medfs_fsck::{Code, Options, Repair, Report};
use std::sync::Arc;

type Faulty = Arc<FaultDevice<MemDevice>>;

const META: WriteTag = WriteTag::new(Cause::Meta, Temperature::Cold);

fn faulty(device: &MemDevice) -> Faulty {
    Arc::new(FaultDevice::new(device.snapshot(), 1))
}

/// A device one of whose blocks cannot be read until it is written.
fn without(device: &MemDevice, block: u64) -> Faulty {
    let faulty = faulty(device);
    faulty.arm(Fault::on(Kind::Read, Effect::IO).within(block..block + 1).until_written());
    faulty
}

fn try_open(device: Arc<dyn BlockDevice>, options: &str) -> medfs::Result<Volume> {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options");
    Volume::open(device, parsed, Arc::new(ManualClock::new(START)))
}

fn checked(device: &dyn BlockDevice) -> Report {
    medfs_fsck::check(device, &Options::default(), &mut |_| ()).expect("a check ends")
}

fn repaired(device: &dyn BlockDevice) -> Repair {
    medfs_fsck::repair(device, &Options::default(), &mut |_| ()).expect("a repair ends")
}

fn kinds() -> Vec<MemDevice> {
    bases().into_iter().chain([blank_delta(64)]).collect()
}

fn geometry(device: &MemDevice) -> Geometry {
    let block = read_block(device, 0).expect("memory");
    RawSuperblock::in_block(&block).validate().expect("a volume")
}

/// A volume of fifty files, closed.
fn filled(base: &MemDevice) -> MemDevice {
    let device = Arc::new(base.snapshot());
    let v = open_device(&device, "");
    let d = dir(&v, v.root(), "d");
    for i in 0..50 {
        let f = file(&v, d, &format!("f{i}"));
        write(&v, f, 0, &noise(i));
    }
    v.sync().expect("sync");
    v.close().expect("close");
    drop(v);
    device.snapshot()
}

#[test]
fn a_volume_opens_with_one_readable_copy_of_superblock_and_pack() {
    for base in kinds() {
        let device = filled(&base);
        let g = geometry(&device);
        for bad in [0, 1, g.cp_pack(0).into(), g.cp_pack(1).into()] {
            for options in ["ro", "rw"] {
                let faulty = without(&device, bad);
                let v = try_open(faulty, options).unwrap_or_else(|e| panic!("block {bad}, {options}: {e}"));
                assert!(at(&v, "d").is_some(), "block {bad}, {options}");
                v.close().expect("close");
            }
            let faulty = without(&device, bad);
            let found = checked(&*faulty);
            assert!(
                found.findings.iter().any(|f| f.message.contains("cannot be read")),
                "block {bad}: {found:?}"
            );
            assert_eq!(repaired(&*faulty).after.findings, [], "block {bad}");
            assert_eq!(checked(&*faulty).findings, [], "block {bad}");
        }
    }
}

#[test]
fn a_copy_of_the_superblock_that_cannot_be_written_either_is_no_obstacle() {
    let device = filled(&blank_delta(64));
    for bad in 0..2 {
        let faulty = faulty(&device);
        faulty.arm(Fault::on(Kind::Read, Effect::IO).within(bad..bad + 1));
        faulty.arm(Fault::on(Kind::Write, Effect::IO).within(bad..bad + 1));
        let v = try_open(faulty.clone(), "").expect("the other copy will do");
        let f = file(&v, v.root(), "new");
        write(&v, f, 0, &noise(1));
        v.close().expect("everything else can be written");
        drop(v);
        let after = repaired(&*faulty).after;
        assert!(!after.is_clean(), "the sector stays bad");
        assert!(
            after.findings.iter().any(|f| f.message.contains("cannot be written")),
            "{:?}",
            after.findings
        );
    }
}

/// Power is lost after five fsyncs of new files; the blocks of the chain, and the one behind it.
fn with_chain(base: &MemDevice) -> (MemDevice, Vec<u64>) {
    let device = Arc::new(base.snapshot());
    let v = open_device(&device, "");
    file(&v, v.root(), "old");
    v.sync().expect("sync");
    for i in 0..5 {
        let f = file(&v, v.root(), &format!("new{i}"));
        write(&v, f, 0, &vec![i as u8 + 1; 3 * PAGE]);
        v.fsync(f, false).expect("fsync");
    }
    drop(v);
    let chain = chain_of(&device);
    (device.snapshot(), chain)
}

/// The blocks of the chain, and the one behind it.
fn chain_of(device: &MemDevice) -> Vec<u64> {
    let g = geometry(device);
    let heads = [0, 1].map(|pack| {
        let block = read_block(device, g.cp_pack(pack).into()).expect("memory");
        RawCheckpoint::in_block(&block).clone()
    });
    let head = heads.into_iter().max_by_key(|head| head.checkpoint_ver.get()).expect("two");
    let (segno, offset) = head.curseg(4);
    let mut chain = vec![u64::from(g.seg_start(segno) + u32::from(offset))];
    loop {
        let block = read_block(device, *chain.last().expect("one")).expect("memory");
        if footer(&block).cp_ver.get() as u32 != head.checkpoint_ver.get() as u32 {
            return chain;
        }
        chain.push(footer(&block).next_blkaddr.get().into());
    }
}

fn shown(v: &Volume) -> usize {
    let whole =
        |i: usize| at(v, &format!("new{i}")).map(|a| content(v, a.ino) == vec![i as u8 + 1; 3 * PAGE]);
    let found: Vec<Option<bool>> = (0..5).map(whole).collect();
    assert!(found.iter().all(|f| *f != Some(false)), "{found:?}");
    found.iter().flatten().count()
}

#[test]
fn the_chain_ends_at_the_block_that_was_being_written_when_it_cannot_be_read() {
    for base in kinds() {
        let (device, chain) = with_chain(&base);
        let faulty = without(&device, *chain.last().expect("the block behind it"));
        let found = checked(&*faulty);
        assert_eq!((found.findings.len(), found.log_to_replay.inodes), (1, 5), "{found:?}");
        assert!(found.has(Code::LogEnd) && found.is_clean(), "{found:?}");
        assert_eq!(shown(&try_open(faulty.clone(), "ro").expect("ro")), 5);
        let mended = without(&device, *chain.last().expect("the block behind it"));
        assert_eq!(repaired(&*mended).after.findings, []);
        for device in [faulty, mended] {
            let v = try_open(device, "").expect("nothing is lost");
            assert_eq!(shown(&v), 5);
            v.close().expect("close");
        }
    }
}

/// Of two nodes that an fsync wrote before its flush, power loss kept the second. What is fsynced next, where the
/// first had been, must not lead into it.
#[test]
fn a_node_that_power_loss_left_behind_the_end_of_the_chain_is_never_led_into() {
    let (first, second, far) = (1100 * PAGE as u64, 2300 * PAGE as u64, 3400 * PAGE as u64);
    for (kind, base) in kinds().iter().enumerate() {
        for options in ["seal=off,in_place=off,delta=off", "in_place=off,delta=off"] {
            let device = Arc::new(base.snapshot());
            let v = open_device(&device, options);
            let (big, other) = (file(&v, v.root(), "big"), file(&v, v.root(), "other"));
            [first, second, far].into_iter().for_each(|at| write(&v, big, at, &noise(at)));
            write(&v, other, 0, &noise(7).repeat(3));
            v.close().expect("close");
            drop(v);
            let before = device.snapshot();
            let v = open_device(&device, options);
            [first, second].into_iter().for_each(|at| write(&v, big, at, &noise(at + 1)));
            v.fsync(big, true).expect("fsync");
            drop(v);
            let chain = chain_of(&device);
            assert_eq!(chain.len(), 3, "two nodes, and where the third would be: {chain:?}");
            device.write(chain[0], &[&read_block(&before, chain[0]).expect("memory")], META).expect("memory");
            let v = open_device(&device, options);
            write(&v, other, 0, &noise(8).repeat(3));
            v.fsync(other, false).expect("fsync");
            drop(v);
            let v = open_device(&device, options);
            let is = [big, other].map(|ino| content(&v, ino));
            assert!(is[1] == noise(8).repeat(3), "kind {kind}, {options}");
            for at in [first, second, far] {
                let page = &is[0][at as usize..at as usize + PAGE];
                assert!(page == noise(at), "kind {kind}, {options}: page at {at}");
            }
            v.close().expect("close");
            assert_eq!(checked(&*device).findings, [], "kind {kind}, {options}");
        }
    }
}

/// The device had ended a flush of each of these nodes, and has what was there before.
#[test]
fn a_node_that_the_device_lost_after_a_flush_is_told_where_seals_tell_it() {
    for base in kinds() {
        let (device, chain) = with_chain(&base);
        let sealed = RawSuperblock::in_block(&read_block(&device, 0).expect("memory")).has_seals();
        let nodes = &chain[..chain.len() - 1];
        for (nth, &lost) in nodes.iter().enumerate() {
            let device = Arc::new(device.snapshot());
            device.write(lost, &[&read_block(&base, lost).expect("memory")], META).expect("memory");
            // Of the last one nobody knows whether its flush had ended.
            let told = sealed && nth + 1 < nodes.len();
            assert_eq!(checked(&*device).has(Code::LogUnkept), told, "node {nth} of {}", nodes.len());
            for options in ["ro", ""] {
                let v = try_open(device.clone(), options).expect("what is left is sound");
                assert_eq!(v.stats().unkept_nodes > 0, told, "node {nth}, {options}");
                assert!(shown(&v) <= nth);
            }
            assert_eq!(checked(&*device).findings, [], "node {nth}: the mount left it behind");
        }
    }
}

/// Without seals, the second fsync of a file tells that the first one had returned.
#[test]
fn a_node_that_the_device_lost_without_seals_is_told_where_a_file_was_fsynced_again() {
    for base in bases() {
        let device = Arc::new(base.snapshot());
        let v = open_device(&device, "");
        let f = file(&v, v.root(), "f");
        v.sync().expect("sync");
        for i in 0..5_u8 {
            write(&v, f, u64::from(i) * PAGE as u64, &[i + 1; PAGE]);
            v.fsync(f, false).expect("fsync");
        }
        drop(v);
        let chain = chain_of(&device);
        assert_eq!(chain.len(), 6, "five nodes, and where the next would be");
        for (nth, &lost) in chain.iter().enumerate().take(5) {
            let device = Arc::new(device.snapshot());
            device.write(lost, &[&read_block(&base, lost).expect("memory")], META).expect("memory");
            let told = nth + 2 < 5;
            assert_eq!(checked(&*device).has(Code::LogUnkept), told, "node {nth}");
            let repaired = repaired(&device.snapshot());
            assert_eq!((repaired.before.has(Code::LogUnkept), repaired.after.findings), (told, vec![]));
            for options in ["ro", ""] {
                let v = try_open(device.clone(), options).expect("what is left is sound");
                assert_eq!(
                    v.stats().unkept_nodes,
                    if told { 4 - nth as u64 } else { 0 },
                    "node {nth}, {options}"
                );
                let past = PastDamage::of(&v).unrecovered().len();
                assert_eq!(past > 0, told, "node {nth}, {options}");
            }
            assert_eq!(checked(&*device).findings, [], "node {nth}: the mount left it behind");
        }
    }
}

/// The node leads back, to another segment, or nowhere.
#[test]
fn a_flipped_bit_in_the_address_of_the_next_node_is_turned_back() {
    for base in kinds() {
        let (device, chain) = with_chain(&base);
        let nth = if chain[2] % 2 == 1 { 1 } else { 2 };
        for bit in [0, 9, 31] {
            let device = Arc::new(device.snapshot());
            let mut block = read_block(&device, chain[nth]).expect("memory");
            footer_mut(&mut block).next_blkaddr = (chain[nth + 1] as u32 ^ 1 << bit).into();
            device.write(chain[nth], &[&block], META).expect("memory");
            let found = checked(&*device);
            assert!(found.has(Code::LogAddress) || found.has(Code::InodeChecksum), "bit {bit}: {found:?}");
            assert_eq!(found.log_to_replay.inodes, 5, "bit {bit}");
            assert_eq!(repaired(&device.snapshot()).after.findings, [], "bit {bit}");
            for options in ["ro", ""] {
                assert_eq!(shown(&try_open(device.clone(), options).expect("it opens")), 5, "bit {bit}");
            }
            assert_eq!(checked(&*device).findings, [], "bit {bit}: the mount left it behind");
        }
    }
}

#[test]
fn a_node_of_the_chain_that_cannot_be_read_is_found_and_ends_it() {
    for base in kinds() {
        let (device, chain) = with_chain(&base);
        for (nth, &bad) in chain.iter().enumerate().take(chain.len() - 2) {
            let faulty = without(&device, bad);
            try_open(faulty.clone(), "").expect_err("what was fsynced would be lost without a word");
            assert!(!checked(&*faulty).is_clean(), "node {nth}");
            assert_eq!(repaired(&*faulty).after.findings, [], "node {nth}");
            let v = try_open(faulty.clone(), "").unwrap_or_else(|e| panic!("node {nth}: {e}"));
            assert_eq!(shown(&v), nth, "those before it");
            v.close().expect("close");
            drop(v);
            assert_eq!(checked(&*faulty).findings, [], "node {nth}");
        }
    }
}

/// The log goes on in another segment.
#[test]
fn the_last_node_of_a_segment_is_not_taken_for_the_end_of_the_chain() {
    for base in kinds() {
        let device = Arc::new(base.snapshot());
        let v = open_device(&device, "");
        let f = file(&v, v.root(), "file");
        v.sync().expect("sync");
        for i in 0..600 {
            write(&v, f, i * 3000, &[i as u8; 3000]);
            v.fsync(f, false).expect("fsync");
        }
        drop(v);
        let chain = chain_of(&device);
        assert!(chain.len() > 520, "it goes on in a second segment");
        let g = geometry(&device);
        let last = chain.iter().copied().find(|&addr| g.offset_in_seg(addr as u32) == 511).expect("one");
        let faulty = without(&device, last);
        try_open(faulty.clone(), "").expect_err("what was fsynced would be lost without a word");
        assert!(checked(&*faulty).has(Code::LogNode));
        assert_eq!(repaired(&*faulty).after.findings, []);
        try_open(faulty, "").expect("it is repaired").close().expect("close");
        // The device lost it, or many in a row.
        for lost in [&[last][..], &chain[100..170]] {
            let device = Arc::new(device.snapshot());
            lost.iter().for_each(|&addr| device.write(addr, &[&Block::ZERO], META).expect("memory"));
            assert!(checked(&*device).has(Code::LogUnkept), "{} nodes", lost.len());
            let v = try_open(device.clone(), "ro").expect("what is left is sound");
            assert!(v.stats().unkept_nodes > 0, "{} nodes", lost.len());
            assert_eq!(repaired(&*device).after.findings, [], "{} nodes", lost.len());
        }
    }
}

#[test]
fn a_node_of_the_chain_with_a_wrong_inode_number_is_mended() {
    for base in kinds() {
        let (device, chain) = with_chain(&base);
        let nth = chain[2];
        let mut block = read_block(&device, nth).expect("memory");
        let f = footer_mut(&mut block);
        f.ino = (f.ino.get() | 0x8000_0000).into();
        device.write(nth, &[&block], META).expect("memory");
        let device = Arc::new(device);
        // A checksum tells that bit.
        let copy = Arc::new(device.snapshot());
        assert_eq!(try_open(copy, "").map_or(5, |v| shown(&v)), 5, "it is refused, or turned back");
        assert!(!checked(&*device).is_clean());
        assert_eq!(repaired(&*device).after.findings, []);
        let v = try_open(device.clone(), "").expect("it is mended");
        assert_eq!(shown(&v), 5);
        v.close().expect("close");
        drop(v);
        judge(&device);
    }
}

#[test]
fn one_bad_block_in_a_node_log_does_not_keep_a_volume_from_opening() {
    for base in kinds() {
        let (device, chain) = with_chain(&base);
        let g = geometry(&device);
        // Behind the chain, in its segment.
        let bad = u64::from(g.seg_start(g.segno(chain[0] as u32))) + 500;
        let v = try_open(without(&device, bad), "").expect("nobody needs that block");
        assert_eq!(shown(&v), 5);
    }
}

#[test]
fn a_device_that_is_gone_is_an_error_and_no_damage() {
    let device = filled(&blank_delta(64));
    let faulty = faulty(&device);
    faulty.arm(Fault::on(Kind::Read, Effect::IO));
    try_open(faulty.clone(), "").expect_err("nothing can be read");
    medfs_fsck::check(&*faulty, &Options::default(), &mut |_| ()).expect_err("nothing can be read");
    medfs_fsck::repair(&*faulty, &Options::default(), &mut |_| ()).expect_err("nothing can be read");
    assert_eq!(read_block(faulty.inner(), 0).expect("memory").0, read_block(&device, 0).expect("memory").0);
}

/// With a checksum it is no torn inode, which would end the chain: what is behind it was durable.
#[test]
fn a_flipped_bit_of_a_sealed_inode_in_the_chain_is_turned_back() {
    let mut turned = 0;
    for base in kinds() {
        let (device, chain) = with_chain(&base);
        let features = RawSuperblock::in_block(&read_block(&device, 0).expect("memory")).features();
        if !features.contains(Feature::INODE_CHECKSUM) {
            continue;
        }
        // A field, a name, an address, and of the footer: numbers, place, version, and the next block.
        for byte in [41, 96, 400, 4072, 4077, 4080, 4085, 4093] {
            let device = Arc::new(device.snapshot());
            let mut block = read_block(&device, chain[1]).expect("memory");
            block.0[byte] ^= 0x20;
            device.write(chain[1], &[&block], META).expect("memory");
            assert_eq!(shown(&try_open(device.clone(), "ro").expect("to read")), 5, "byte {byte}");
            let found = checked(&*device);
            assert!(found.has(Code::InodeChecksum) && !found.has(Code::LogUnkept), "byte {byte}: {found:?}");
            assert_eq!(found.log_to_replay.inodes, 5, "byte {byte}");
            let mended = Arc::new(device.snapshot());
            assert_eq!(repaired(&*mended).after.findings, [], "byte {byte}");
            for device in [device, mended] {
                let v = try_open(device.clone(), "").expect("to write");
                assert_eq!(shown(&v), 5, "byte {byte}");
                v.close().expect("close");
                drop(v);
                assert_eq!(checked(&*device).findings, [], "byte {byte}");
            }
            turned += 1;
        }
    }
    assert!(turned > 10, "{turned}");
}

/// Its number twice: without a checksum a flipped bit makes it a node of a file in an inode's place.
#[test]
fn an_inode_of_the_chain_with_two_numbers_is_mended_by_what_else_is_known() {
    for base in kinds() {
        let (device, chain) = with_chain(&base);
        for is_nid in [false, true] {
            let device = Arc::new(device.snapshot());
            let mut block = read_block(&device, chain[1]).expect("memory");
            let f = footer_mut(&mut block);
            let number = if is_nid { &mut f.nid } else { &mut f.ino };
            *number = (number.get() ^ 0x400).into();
            device.write(chain[1], &[&block], META).expect("memory");
            let v = try_open(device.clone(), "ro").expect("to read");
            assert_eq!(shown(&v) + PastDamage::of(&v).unrecovered().len(), 5, "the one is named");
            drop(v);
            assert!(!checked(&*device).is_clean());
            assert_eq!(repaired(&*device).after.findings, []);
            let v = try_open(device.clone(), "").expect("it is mended");
            assert_eq!(shown(&v), 5);
            v.close().expect("close");
            drop(v);
            judge(&device);
        }
    }
}

/// As a repair opens it: the one file is what it was before, or lacks the page.
#[test]
fn one_node_that_cannot_be_replayed_costs_its_own_file_alone() {
    let mut met = 0;
    for base in bases() {
        let (device, chain) = with_chain(&base);
        let mut block = read_block(&device, chain[1]).expect("memory");
        let sb = read_block(&device, 0).expect("memory");
        let seed = crc::chain(!0, &RawSuperblock::in_block(&sb).uuid);
        let inode: &mut RawInode = block.view_mut();
        let extra = inode.extra().map_or(0, |extra| usize::from(extra.i_extra_isize.get()) / 4);
        inode.i_addr[extra] = u32::MAX.wrapping_sub(77).into();
        inode.seal(seed);
        device.write(chain[1], &[&block], META).expect("memory");
        let device = Arc::new(device);
        try_open(device.clone(), "").expect_err("it cannot be replayed");
        for options in [
            MountOptions { read_only: true, ..MountOptions::default() },
            MountOptions { recover: Recover::WhatFits, ..MountOptions::default() },
        ] {
            let v =
                Volume::open(device.clone(), options, Arc::new(ManualClock::new(START))).expect("it opens");
            let whole = (0..5).filter(|i| {
                let is = at(&v, &format!("new{i}")).map(|a| content(&v, a.ino));
                is == Some(vec![*i as u8 + 1; 3 * PAGE])
            });
            assert_eq!(whole.count(), 4);
            let left_out = PastDamage::of(&v).unrecovered();
            assert!(
                !left_out.is_empty() && left_out.iter().all(|(ino, _)| *ino == left_out[0].0),
                "{left_out:?}"
            );
            v.close().expect("close");
            met += 1;
        }
        judge(&device);
    }
    assert!(met >= 4, "{met}");
}

/// Pages that `fallocate` reserved behind the end go when a file is rolled forward: none of them is missing.
#[test]
fn what_was_reserved_behind_the_end_is_not_missing() {
    for base in kinds() {
        let device = Arc::new(base.snapshot());
        let v = open_device(&device, "");
        let f = file(&v, v.root(), "reserved");
        v.fallocate(f, FallocateMode::KEEP_SIZE, 0, 70_000).expect("room");
        write(&v, f, 0, &noise(1));
        v.fsync(f, false).expect("fsync");
        let crashed = Arc::new(device.snapshot());
        drop(v);
        let options = MountOptions { recover: Recover::WhatFits, ..MountOptions::default() };
        let v = Volume::open(crashed, options, Arc::new(ManualClock::new(START))).expect("it opens");
        let left_out = PastDamage::of(&v).unrecovered();
        assert!(left_out.is_empty(), "{left_out:?}");
    }
}

/// What files look like before they are fsynced, and what each fsync changes.
fn fsynced_again(v: &Volume, change: impl Fn(&Volume, medfs::Ino, usize)) {
    let files: Vec<_> = (0..3).map(|i| file(v, v.root(), &format!("f{i}"))).collect();
    for (i, &f) in files.iter().enumerate() {
        write(v, f, 0, &noise(i as u64));
    }
    v.sync().expect("sync");
    for (i, &f) in files.iter().enumerate() {
        change(v, f, i);
        v.fsync(f, false).expect("fsync");
    }
}

#[test]
fn a_lost_node_of_a_sealed_log_is_told_whatever_was_fsynced() {
    type Change = fn(&Volume, medfs::Ino, usize);
    let changes: [(&str, Change); 3] = [
        ("a few bytes", |v, f, i| write(v, f, 10, &[i as u8; 8])),
        ("twenty pages of one byte each", |v, f, i| write(v, f, 0, &vec![i as u8; 20 * PAGE])),
        ("new pages at the end", |v, f, i| write(v, f, 9 * PAGE as u64, &noise(200 + i as u64))),
    ];
    for (what, change) in changes {
        let device = Arc::new(blank_delta(64).snapshot());
        let v = open_device(&device, "");
        fsynced_again(&v, change);
        drop(v);
        let chain = chain_of(&device);
        let nodes = &chain[..chain.len() - 1];
        assert!(nodes.len() > 2, "{what}: {nodes:?}");
        for &lost in &nodes[..nodes.len() - 1] {
            for damage in [Block::ZERO, Block([0x5a; PAGE])] {
                let damaged = device.snapshot();
                damaged.write(lost, &[&damage], META).expect("memory");
                let found = checked(&damaged);
                assert!(!found.is_clean(), "{what}: node {lost} of {nodes:?}: {:?}", found.findings);
            }
        }
    }
}
