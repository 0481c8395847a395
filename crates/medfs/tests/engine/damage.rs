//! Damage that fuzzing found to be dangerous, one test for each: opening the volume, or what was asked of it,
//! is an error.

use crate::common::*;
use medfs::{Error, Files, ManualClock, MountOptions, PastDamage, Volume};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::Block;
use medfs_format::checkpoint::{RawCheckpoint, seal};
use medfs_format::sit::{RawSitBlock, RawSitEntry, VALID_MAP_SIZE};
use medfs_format::summary::Log;
use medfs_format::superblock::RawSuperblock;
use medfs_fsck::inject::{Target, set};
use medfs_mkfs::{MkfsOptions, format_volume};
use std::sync::Arc;

const META: WriteTag = WriteTag::new(Cause::Meta, Temperature::Cold);

/// A closed volume with a file on it.
fn closed(base: MemDevice) -> MemDevice {
    let device = Arc::new(base);
    let v = open_device(&device, "");
    let f = file(&v, v.root(), "f");
    write(&v, f, 0, &page(1));
    v.close().expect("closed");
    device.snapshot()
}

/// Opens a volume and says how that fails.
fn refusal(dev: MemDevice) -> String {
    match Volume::open(Arc::new(dev), MountOptions::default(), Arc::new(ManualClock::new(START))) {
        Ok(_) => panic!("it was opened"),
        Err(e @ (Error::Corrupt(_) | Error::Incompatible(_))) => e.to_string(),
        Err(e) => panic!("an error of another kind: {e:?}"),
    }
}

/// Changes both checkpoint packs, and seals them again.
fn change_packs(dev: &MemDevice, change: impl Fn(&mut RawCheckpoint)) {
    let superblock = read_block(dev, 0).expect("memory");
    let geometry = RawSuperblock::in_block(&superblock).validate().expect("a volume");
    for pack in 0..2 {
        let start = u64::from(geometry.cp_pack(pack));
        let mut block = read_block(dev, start).expect("memory");
        let total = RawCheckpoint::in_block(&block).cp_pack_total_block_count.get();
        change(RawCheckpoint::in_block_mut(&mut block));
        seal(&mut block);
        for addr in [start, start + u64::from(total.max(1)) - 1] {
            dev.write(addr, &[&block], META).expect("memory");
        }
    }
}

#[test]
fn compact_summaries_that_are_not_there() {
    for base in bases() {
        let dev = closed(base);
        change_packs(&dev, |cp| {
            cp.ckpt_flags = (cp.ckpt_flags.get() | 0x4).into(); // compact summaries
            cp.cp_pack_start_sum = (cp.cp_pack_total_block_count.get() - 1).into();
        });
        assert!(refusal(dev).contains("summar"), "the message names the summaries");
    }
}

#[test]
fn a_checksum_inside_the_version_bitmaps() {
    for base in bases() {
        let dev = closed(base);
        change_packs(&dev, |cp| cp.checksum_offset = 200.into());
        assert!(refusal(dev).contains("checksum_offset"));
    }
}

/// What cannot be is shown as it is; it must only not overflow.
#[test]
fn an_inode_of_more_blocks_than_can_be() {
    for base in bases() {
        let device = Arc::new(base);
        let v = open_device(&device, "");
        let d = dir(&v, v.root(), "d");
        v.close().expect("closed");
        drop(v);
        set(&device, &Target::Inode(d), "i_blocks", u64::MAX).expect("the field is there");
        let v = open_device(&device, "");
        assert_eq!(at(&v, "d").expect("the directory").blocks, u64::MAX);
    }
}

#[test]
fn a_size_beyond_the_largest_file() {
    for base in bases() {
        let device = Arc::new(closed(base));
        let f = at(&open_device(&device, "ro"), "f").expect("the file").ino;
        set(&device, &Target::Inode(f), "i_size", u64::MAX).expect("the field is there");
        let v = open_device(&device, "");
        let error = v.getattr(f).expect_err("the size is wrong");
        assert!(matches!(error, Error::Corrupt(_)), "{error}");
    }
}

#[test]
fn sections_that_do_not_cover_the_main_area() {
    for base in bases() {
        let dev = closed(base);
        for copy in 0..2 {
            let mut block = read_block(&dev, copy).expect("memory");
            let superblock = RawSuperblock::in_block_mut(&mut block);
            superblock.section_count = (superblock.section_count.get() - 1).into();
            superblock.seal();
            dev.write(copy, &[&block], META).expect("memory");
        }
        assert!(refusal(dev).contains("section_count"));
    }
}

/// A volume with 300 names in a directory, of which some blocks are zeros: all that hold names, but for the
/// first where that is `spared`.
fn with_zeros_for_names(base: MemDevice, spared: bool) -> (Arc<MemDevice>, Vec<String>) {
    let device = Arc::new(base);
    let v = open_device(&device, "");
    let d = dir(&v, v.root(), "d");
    let names: Vec<String> = (0..300).map(|i| format!("a file with a longish name {i:03}")).collect();
    for name in &names {
        file(&v, d, name);
    }
    v.close().expect("closed");
    // An inode has its own name alone.
    let holds_names = |block: &[u8]| occurrences(block, b"longish na") > 1;
    let is_first = |block: &[u8]| block[0] & 3 == 3 && find(&block[30..], b"..\0").is_some();
    let blocks = (0..device.block_count()).filter(|&addr| {
        let block = read_block(&*device, addr).expect("memory");
        holds_names(&block.0) && !(spared && is_first(&block.0))
    });
    let hit: Vec<u64> = blocks.collect();
    assert!(!hit.is_empty());
    let zeroed = Arc::new(device.snapshot());
    for addr in hit {
        zeroed.write(addr, &[&Block::ZERO], META).expect("memory");
    }
    (zeroed, names)
}

/// A block of a directory that is zeros: who looks for its names hears of nothing else, but it is counted;
/// and the directory is not empty.
#[test]
fn a_block_of_zeros_in_a_directory_is_counted() {
    for base in bases() {
        let (zeroed, names) = with_zeros_for_names(base, true);
        let v = open_device(&zeroed, "");
        assert_eq!(v.stats().damage_passed, 0);
        let d = at(&v, "d").expect("there").ino;
        let mut shown = Vec::new();
        v.readdir(d, 0, &mut |entry| {
            shown.push(entry.name);
            true
        })
        .expect("it is listed");
        let listed = v.stats().damage_passed;
        assert!(shown.len() < 302 && listed > 0, "{} shown, {listed} counted", shown.len());
        assert!(names.iter().any(|name| v.lookup(d, name.as_bytes()).is_err()));
        assert!(v.stats().damage_passed > listed);
        for name in shown.iter().filter(|name| !name.starts_with(b".")) {
            v.unlink(d, name).expect("it is shown");
        }
        let refused = v.rmdir(v.root(), b"d");
        assert!(matches!(refused, Err(Error::Corrupt(_))), "it is not empty: {refused:?}");
    }
}

/// Names that are made in a directory with a block of zeros leave that as it is: a check still finds it, and
/// a repair the files that were named there.
#[test]
fn new_names_leave_a_block_of_zeros_as_it_is() {
    for (base, spared) in bases().into_iter().flat_map(|base| [(base.snapshot(), true), (base, false)]) {
        let (zeroed, names) = with_zeros_for_names(base, spared);
        let check = || medfs_fsck::check(&*zeroed, &Default::default(), &mut |_| ()).expect("memory");
        let blank = |report: &medfs_fsck::Report| {
            let texts = report.findings.iter().map(ToString::to_string);
            texts.filter(|text| text.contains("is zeros")).collect::<Vec<_>>()
        };
        let before = blank(&check());
        assert!(!before.is_empty());

        let v = open_device(&zeroed, "");
        let d = at(&v, "d").expect("there").ino;
        for i in 0..300 {
            let made = file(&v, d, &format!("a new file with a name {i:03}"));
            v.fsync(made, false).expect("fsync");
        }
        v.close().expect("closed");
        assert_eq!(blank(&check()), before);

        medfs_fsck::repair(&*zeroed, &Default::default(), &mut |_| ()).expect("repair");
        assert_eq!(check().findings, []);
        let v = open_device(&zeroed, "");
        let d = at(&v, "d").expect("there").ino;
        for name in names {
            v.lookup(d, name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        for i in 0..300 {
            v.lookup(d, format!("a new file with a name {i:03}").as_bytes()).expect("it was made later");
        }
    }
}

/// Entries whose length or name cannot be are left out of a listing, and the others are shown: the kernel
/// refuses a whole directory for a name with a slash.
#[test]
fn a_bad_name_hides_no_other_one() {
    for base in bases() {
        let count = 300;
        let device = Arc::new(base);
        let v = open_device(&device, "");
        let d = dir(&v, v.root(), "d");
        let name = |i: usize| format!("longish name {i:03}");
        for i in 0..count {
            file(&v, d, &name(i));
        }
        v.close().expect("closed");
        let damaged = Arc::new(device.snapshot());
        for addr in 0..damaged.block_count() {
            let mut block = read_block(&*damaged, addr).expect("memory");
            if occurrences(&block.0, b"longish na") < 2 {
                continue;
            }
            for (i, byte) in [(3, b'/'), (5, 0)] {
                // Names lie in slots of eight bytes: this is the second of one.
                let wanted = name(i);
                if let Some(at) = find(&block.0, wanted.as_bytes()) {
                    block.0[at + 8] = byte;
                }
            }
            // A length that no name has: the fields of 214 slots, behind a bitmap, come before their names.
            if let Some(at) = find(&block.0, name(7).as_bytes()) {
                let slot = (at - (30 + 214 * 11)) / 8;
                block.0[30 + slot * 11 + 8..][..2].fill(0xFF);
            }
            damaged.write(addr, &[&block], META).expect("memory");
        }
        let v = open_device(&damaged, "");
        let mut shown = Vec::new();
        v.readdir(at(&v, "d").expect("there").ino, 0, &mut |entry| {
            shown.push(String::from_utf8(entry.name).expect("text"));
            true
        })
        .expect("it is listed");
        let missing: Vec<String> = (0..count).map(name).filter(|name| !shown.contains(name)).collect();
        assert_eq!(missing, [name(3), name(5), name(7)]);
        assert!(!shown.iter().any(|name| name.contains(['/', '\0'])), "{shown:?}");
        assert!(v.stats().damage_passed > 0);
    }
}

/// A mount that may write would make the loss of what the journals had final; one that may not shows the rest.
#[test]
fn a_volume_whose_compact_summaries_are_zeros_is_only_read() {
    for base in bases() {
        let device = Arc::new(base);
        let v = open_device(&device, "");
        let old = file(&v, v.root(), "old");
        write(&v, old, 0, &page(1));
        v.sync().expect("sync");
        drop(v);
        let superblock = read_block(&*device, 0).expect("memory");
        let geometry = RawSuperblock::in_block(&superblock).validate().expect("a volume");
        let header = |pack| {
            let block = read_block(&*device, geometry.cp_pack(pack).into()).expect("memory");
            RawCheckpoint::in_block(&block).clone()
        };
        let pack = usize::from(header(1).checkpoint_ver.get() > header(0).checkpoint_ver.get());
        let at = u64::from(geometry.cp_pack(pack) + header(pack).cp_pack_start_sum.get());
        device.write(at, &[&Block::ZERO], META).expect("memory");
        let error = refusal(device.snapshot());
        assert!(error.contains("field summaries is wrong"), "{error}");
        let written = device.written();
        let v = open_device(&device, "ro");
        assert!(names(&v, v.root()).len() < 9);
        assert_eq!(device.written(), written, "nothing is written");
    }
}

/// A closed volume with files of a segment's length, and the first block of its SIT.
fn with_full_segments(device: MemDevice) -> (MemDevice, u64) {
    let device = Arc::new(device);
    let v = open_device(&device, "");
    for n in 0..16u64 {
        let f = file(&v, v.root(), &format!("file {n}"));
        write(&v, f, 0, &vec![n as u8 + 1; 2 << 20]);
    }
    v.close().expect("closed");
    let geo = RawSuperblock::in_block(&read_block(&*device, 0).unwrap()).validate().unwrap();
    // Which copy of it is in force: the one with more in use.
    let copies = [false, true].map(|second| u64::from(geo.sit_block(0, second)));
    let in_use =
        |addr: &u64| read_block(&*device, *addr).unwrap().0.iter().map(|b| b.count_ones()).sum::<u32>();
    (device.snapshot(), copies.into_iter().max_by_key(in_use).unwrap())
}

/// Calls all blocks but those of nodes free in a block of the SIT.
fn lose_data(device: &MemDevice, sit: u64) {
    let mut block = read_block(device, sit).unwrap();
    for entry in &mut block.view_mut::<RawSitBlock>().entries {
        if entry.seg_type() < Log::HotNode as u8 {
            *entry = RawSitEntry::new(entry.seg_type(), 0, [0; VALID_MAP_SIZE], 0);
        }
    }
    device.write(sit, &[&block], META).unwrap();
}

/// An entry of the table of the NAT that leads out of the main area leads to no node: counting it was a panic.
#[test]
fn an_entry_of_the_nat_that_leads_out_of_the_main_area() {
    let device = Arc::new(blank(200, all_features()));
    let v = open_device(&device, "");
    // More than the journal has room for.
    let inos: Vec<_> = (0..200).map(|n| file(&v, v.root(), &format!("file {n}"))).collect();
    v.close().expect("closed");
    for addr in [5, device.block_count(), u64::from(u32::MAX) - 2] {
        let dev = device.snapshot();
        set(&dev, &Target::Nat(inos[9]), "block_addr", addr).expect("an entry");
        let why = refusal(dev);
        assert!(why.contains("valid_node_count"), "{why}");
    }
}

/// An older block of the NAT shows files as they were before: a mount with ro says that it may.
#[test]
fn what_an_older_block_of_the_nat_shows_is_not_shown_without_a_word() {
    let device = Arc::new(blank(200, all_features()));
    let fill = |version: u8| {
        let v = open_device(&device, "in_place=off,delta=off,nodiscard");
        for n in 0..200 {
            let name = format!("file {n}");
            let f = v.lookup(v.root(), name.as_bytes()).map_or_else(|_| file(&v, v.root(), &name), |a| a.ino);
            write(&v, f, 0, &page(version));
        }
        v.close().expect("closed");
    };
    (1..=2).for_each(fill);
    let geo = RawSuperblock::in_block(&read_block(&*device, 0).unwrap()).validate().unwrap();
    let copies = [false, true].map(|second| u64::from(geo.nat_block(0, second)));
    let mut older = 0;
    for (from, to) in [(copies[0], copies[1]), (copies[1], copies[0])] {
        let dev = Arc::new(device.snapshot());
        dev.write(to, &[&read_block(&*dev, from).unwrap()], META).unwrap();
        let v = open_device(&dev, "ro");
        let f = v.lookup(v.root(), b"file 9").expect("a file").ino;
        let is_older = content(&v, f) != page(2);
        assert_eq!(is_older, !PastDamage::of(&v).unrecovered().is_empty(), "block {from} over {to}");
        older += u32::from(is_older);
    }
    assert_eq!(older, 1, "one of the copies is in force");
}

/// Where sections are larger than a segment, free segments are counted too: a lost block of the SIT is seen although
/// no node lies in its segments.
#[test]
fn a_lost_block_of_the_sit_is_seen_with_large_sections() {
    let device = MemDevice::new(200 * 256);
    let options = MkfsOptions { segs_per_sec: 2, ..MkfsOptions::new([7; 16], 0) };
    format_volume(&device, &options).expect("a volume");
    let (device, sit) = with_full_segments(device);
    lose_data(&device, sit);
    let why = refusal(device);
    assert!(why.contains("free_segment_count"), "{why}");
}

/// An entry of the SIT that is none is not taken for any number of nodes: that would hide what another block lost.
#[test]
fn a_wrong_entry_of_the_sit_hides_no_lost_block() {
    let (device, sit) = with_full_segments(blank(200, all_features()));
    lose_data(&device, sit);
    let geo = RawSuperblock::in_block(&read_block(&device, 0).unwrap()).validate().unwrap();
    for other in [false, true].map(|second| u64::from(geo.sit_block(1, second))) {
        let mut block = read_block(&device, other).unwrap();
        block.view_mut::<RawSitBlock>().entries[30].valid_map[7] ^= 1;
        device.write(other, &[&block], META).unwrap();
    }
    let why = refusal(device);
    assert!(why.contains("SIT entry 85"), "{why}");
}
