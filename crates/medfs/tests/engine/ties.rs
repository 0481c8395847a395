//! A sound compact page in the place of another one, as a lost write leaves it, is damage: no page reads as what it was
//! before.

use crate::common::*;
use medfs::{Files, ManualClock, SetAttr, Volume};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::delta::{ZONE_COMPACT, ZONE_TIED};
use medfs_format::superblock::{DELTA_TIES, RawSuperblock};
use medfs_fsck::dump::{Dump, Record, Value};
use std::sync::Arc;

const OPTIONS: &str = "delta=compact,compact_files=all";
const PAGES: usize = 40;
const TAG: WriteTag = WriteTag::new(Cause::Data, Temperature::Hot);

/// Small updates of all pages; the earlier compact pages hold older ones, or none that count.
fn update(v: &Volume, f: u32, expected: &mut [u8], rounds: std::ops::Range<usize>) {
    for round in rounds {
        for n in 0..PAGES / 2 {
            let page = (round * 7 + n) % PAGES;
            patch(v, f, expected, page * PAGE + 300 * (round % 9), &noise((1000 * round + n) as u64)[..150]);
        }
        v.fsync(f, false).expect("fsync");
    }
}

fn filled(device: &Arc<MemDevice>) -> (u32, Vec<u8>) {
    let v = open_device(device, OPTIONS);
    let (f, mut expected) = noisy_file(&v, "f", PAGES as u64);
    update(&v, f, &mut expected, 0..9);
    v.close().expect("close");
    (f, expected)
}

/// The compact pages of a file: their blocks.
fn current(device: &MemDevice, f: u32) -> Vec<u64> {
    let Value::List(rows) = shown(device, f).get("compact_pages").expect("compact pages").clone() else {
        panic!("a list")
    };
    let block = |row: &Value| match row {
        Value::Row(row) => match row.get("block") {
            Some(Value::Number(block)) => *block,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    rows.iter().map(block).collect()
}

/// All blocks that are, or were, compact pages of a file.
fn ever(device: &MemDevice, f: u32) -> Vec<u64> {
    let is_compact = |addr: &u64| {
        let block = read_block(device, *addr).expect("memory");
        medfs_format::delta::compact_records(&block, f).is_ok()
    };
    (0..device.block_count()).filter(is_compact).collect()
}

fn shown(device: &MemDevice, f: u32) -> Record {
    Dump::open(device).expect("open").inode(f).expect("the inode")
}

fn is_tied(device: &MemDevice, f: u32) -> bool {
    let Some(Value::Text(flags)) = shown(device, f).get("delta_zone_flags").cloned() else {
        panic!("no zone")
    };
    flags.split(' ').any(|flag| flag == "tied")
}

/// How many pages are errors; no other is anything but what it is to be.
fn errors(device: &MemDevice, f: u32, expected: &[u8]) -> usize {
    let v = open_device(&Arc::new(device.snapshot()), "ro");
    let wrong = expected.chunks(PAGE).enumerate().filter(|(page, expected)| {
        let mut found = vec![0; PAGE];
        match v.read(f, (page * PAGE) as u64, &mut found) {
            Ok(_) => {
                assert!(found == *expected, "page {page} is another one");
                false
            }
            Err(error) => {
                assert_eq!(error.errno(), 117, "{error}");
                true
            }
        }
    });
    wrong.count()
}

#[test]
fn an_older_compact_page_in_the_place_of_a_later_one_is_an_error() {
    let device = Arc::new(blank_delta(64));
    let (f, expected) = filled(&device);
    judge(&device);
    let current = current(&device, f);
    let all = ever(&device, f);
    assert!(current.len() > 3 && all.len() > current.len() + 3, "{current:?} of {all:?}");
    assert!(is_tied(&device, f) && errors(&device, f, &expected) == 0);
    for &place in &current {
        for &other in all.iter().filter(|&&other| other != place) {
            let damaged = device.snapshot();
            damaged.write(place, &[&read_block(&*device, other).expect("memory")], TAG).expect("memory");
            assert!(errors(&damaged, f, &expected) > 0, "{other} in the place of {place} is not seen");
        }
    }
}

/// What is written to such a file is right, and stays so when the file is changed further.
#[test]
fn a_file_with_another_compact_page_can_be_written() {
    let device = Arc::new(blank_delta(64));
    let (f, mut expected) = filled(&device);
    let current = current(&device, f);
    let older =
        ever(&device, f).into_iter().find(|addr| !current.contains(addr)).expect("one that was freed");
    let other = read_block(&*device, older).expect("memory");
    device.write(current[0], &[&other], TAG).expect("memory");
    let v = open_device(&device, OPTIONS);
    let before = v.read(f, 0, &mut [0; 9]);
    for round in 0..3 {
        patch(&v, f, &mut expected, 3 * PAGE, &noise(4000 + round));
        v.fsync(f, false).expect("fsync");
    }
    v.close().expect("close");
    assert!(before.is_err() && errors(&device, f, &expected) == PAGES - 1);
}

/// What power loss leaves at any fsync is no fault.
#[test]
fn every_crash_leaves_the_compact_pages_of_which_the_zone_speaks() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, OPTIONS);
    let (f, mut expected) = noisy_file(&v, "f", PAGES as u64);
    for round in 0..30 {
        update(&v, f, &mut expected, round..round + 1);
        if round == 11 || round == 17 {
            let left = if round == 11 { PAGES / 2 * PAGE } else { 0 };
            v.setattr(f, &SetAttr { size: Some(left as u64), ..SetAttr::default() }).expect("cut");
            expected[left..].fill(0);
            write(&v, f, ((PAGES - 1) * PAGE) as u64, &[0; PAGE]);
            v.fsync(f, false).expect("fsync");
        }
        if round % 5 == 4 {
            v.sync().expect("sync");
        }
        let crashed = device.snapshot();
        assert_eq!(errors(&crashed, f, &expected), 0, "after round {round}");
        let report = medfs_fsck::check(&crashed, &Default::default(), &mut |_| ()).expect("memory");
        assert_eq!(report.findings, [], "after round {round}");
    }
    v.close().expect("close");
    judge(&device);
}

/// A volume of an earlier version has no ties: it is read as it is, and gets them when it is written again.
#[test]
fn volumes_without_ties_are_read_and_get_them() {
    let device = Arc::new(blank_delta(64));
    for copy in 0..2 {
        let mut block = read_block(&*device, copy).expect("memory");
        let sb = RawSuperblock::in_block_mut(&mut block);
        sb.delta.incompat = (sb.delta.incompat.get() & !DELTA_TIES).into();
        sb.seal();
        device.write(copy, &[&block], TAG).expect("memory");
    }
    let (f, mut expected) = filled(&device);
    judge(&device);
    assert!(!is_tied(&device, f) && errors(&device, f, &expected) == 0);
    let sb = RawSuperblock::in_block(&read_block(&*device, 0).expect("memory")).clone();
    assert!(sb.has_ties(), "from the next mount on");
    let v = open_with(device.clone(), OPTIONS, Arc::new(ManualClock::new(START)));
    update(&v, f, &mut expected, 9..12);
    v.close().expect("close");
    judge(&device);
    assert!(is_tied(&device, f) && errors(&device, f, &expected) == 0);
    assert_eq!(ZONE_COMPACT | ZONE_TIED, 5);
}
