//! Faults of delta zones: each is found under its code, names file and page, is mended, and costs no other page.

use crate::common::delta_volume;
use medfs::{Files, Ino, ManualClock, MountOptions, Timestamp, Volume};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::node::RawInode;
use medfs_format::superblock::RawSuperblock;
use medfs_format::xattr::{self, XattrEntry};
use medfs_format::{crc, delta};
use medfs_fsck::dump::{Dump, Value};
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Options, Report, check, repair};
use std::sync::Arc;
use zerocopy::IntoBytes;

const PAGE: usize = 4096;
/// Pages of the file.
const PAGES: usize = 8;
/// The pages that have deltas, in the order of the zone.
const DELTAS: [usize; 3] = [1, 4, 6];

/// A volume, the number of its file with deltas, and the file's content with all deltas and with none.
struct Bed {
    dev: MemDevice,
    ino: Ino,
    new: Vec<u8>,
    old: Vec<u8>,
}

fn bed() -> Bed {
    let (dev, ino, old, new) = delta_volume(PAGES, &DELTAS);
    Bed { dev, ino, new, old }
}

fn look(dev: &MemDevice) -> Report {
    check(dev, &Options::default(), &mut |_| ()).expect("memory")
}

/// The file as a mounted volume shows it, page by page; `None` where reading fails.
fn read(dev: &MemDevice, ino: Ino) -> Vec<Option<Vec<u8>>> {
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let v = Volume::open(Arc::new(dev.snapshot()), options, clock).expect("the volume opens");
    let page = |index: usize| {
        let mut page = vec![0; PAGE];
        v.read(ino, (index * PAGE) as u64, &mut page).is_ok().then_some(page)
    };
    (0..PAGES).map(page).collect()
}

/// The page of that number.
fn page(content: &[u8], index: usize) -> Option<Vec<u8>> {
    Some(content[index * PAGE..][..PAGE].to_vec())
}

impl Bed {
    fn set(&self, target: Target<'_>, field: &str, value: u64) {
        inject::set(&self.dev, &target, field, value).expect("the field is there");
    }
    /// Sets a field of a delta, by its place in the zone.
    fn delta(&self, n: usize, field: &str, value: u64) {
        self.set(Target::Delta(self.ino, n), field, value);
    }
    fn zone(&self, field: &str, value: u64) {
        self.set(Target::Zone(self.ino), field, value);
    }
    fn entry(&self, field: &str, value: u64) {
        self.set(Target::FirstXattr(self.ino), field, value);
    }
}

/// A fault: its code, what else the finding says, how it is planted, and the pages that it costs: they are
/// then what they were before their updates.
type Fault = (Code, &'static str, fn(&Bed), &'static [usize]);

const FAULTS: &[Fault] = &[
    (Code::DeltaCodec, "page 4: unknown codec tag 99", |b| b.delta(1, "codec", 99), &[4]),
    (Code::DeltaContent, "page 4: checksum 0x00000005, but", |b| b.delta(1, "checksum", 5), &[4]),
    (Code::DeltaContent, "page 4: ", |b| b.delta(1, "delta[0]", 0xff), &[4]),
    (Code::DeltaBase, "page 700: the page has no block", |b| b.delta(2, "index", 700), &[6]),
    (Code::DeltaIndex, "page 4294967295: a file has", |b| b.delta(2, "index", u32::MAX.into()), &[6]),
    (Code::DeltaTwice, "page 4: there is a newer one", |b| b.delta(0, "index", 4), &[1]),
    (Code::DeltaZone, "pages: none", |b| b.zone("version", 9), &DELTAS),
    (Code::DeltaZone, "pages: none", |b| b.zone("used", 60_000), &DELTAS),
    (Code::DeltaZone, "pages: 1, 4)", |b| b.delta(2, "size", 60_000), &[6]),
    (
        Code::DeltaZone,
        "pages: 1, 4, 6)",
        |b| inject::change(&b.dev, &Target::Zone(b.ino), "used", |used| used + 3).expect("set"),
        &[],
    ),
    (Code::DeltaPlace, "says that it has no attributes", |b| b.entry("h_magic", 0), &[]),
    (
        Code::DeltaPlace,
        "says that it has no attributes",
        |b| inject::change(&b.dev, &Target::Inode(b.ino), "i_inline", |flags| flags & !1).expect("set"),
        &[],
    ),
    (Code::DeltaPlace, "before: 1, 4, 6", |b| b.entry("e_name_len", 4), &DELTAS),
];

/// Plants a fault, expects this one finding, and that a repair costs no other page.
fn plant((code, says, plant, lost): &Fault) {
    let bed = bed();
    plant(&bed);
    let report = look(&bed.dev);
    let codes: Vec<Code> = report.findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [*code], "{says}: {:?}", report.findings);
    let message = &report.findings[0].message;
    assert!(message.contains(says) && message.contains("(\"file\")"), "{message}");
    repair(&bed.dev, &Options::default(), &mut |_| ()).expect("repair");
    assert_eq!(look(&bed.dev).findings, [], "{says}");
    for (index, found) in read(&bed.dev, bed.ino).into_iter().enumerate() {
        let content = if lost.contains(&index) { &bed.old } else { &bed.new };
        assert!(found == page(content, index), "{code:?}, {says}: page {index}");
    }
}

#[test]
fn every_fault_is_found_and_costs_no_other_page() {
    FAULTS.iter().for_each(plant);
}

#[test]
fn a_sound_volume_with_deltas_is_clean() {
    let bed = bed();
    assert_eq!(look(&bed.dev).findings, []);
    for (index, found) in read(&bed.dev, bed.ino).into_iter().enumerate() {
        assert!(found == page(&bed.new, index));
        assert_eq!(DELTAS.contains(&index), found != page(&bed.old, index));
    }
}

#[test]
fn a_delta_that_is_wrong_is_an_error_of_its_page_until_it_is_repaired() {
    for (field, value) in [("codec", 99), ("checksum", 5), ("delta[0]", 0xff)] {
        let bed = bed();
        bed.delta(1, field, value);
        for (index, found) in read(&bed.dev, bed.ino).into_iter().enumerate() {
            let expected = if index == 4 { None } else { page(&bed.new, index) };
            assert!(found == expected, "{field}: page {index}");
        }
    }
    for (target, field) in [(Target::Delta(bed().ino, 0), "index"), (Target::Zone(bed().ino), "version")] {
        let bed = bed();
        bed.set(target, field, 4);
        assert!(read(&bed.dev, bed.ino).iter().all(Option::is_none), "the zone cannot be trusted");
    }
}

/// Changes the attributes of the file, all of them inline.
fn rewrite_attributes(bed: &Bed, change: impl Fn(&mut Vec<XattrEntry>)) {
    let inode = Dump::open(&bed.dev).expect("open").inode(bed.ino).expect("the inode");
    let Some(Value::Number(addr)) = inode.get("block_addr") else { panic!("{inode}") };
    let mut block = read_block(&bed.dev, *addr).expect("memory");
    let raw: &mut RawInode = block.view_mut();
    let area = raw.slots(true).inline_xattr_range();
    let bytes = &mut raw.as_mut_bytes()[area];
    let mut entries = xattr::parse(bytes, 0).expect("they are sound");
    change(&mut entries);
    assert!(xattr::write(bytes, &entries));
    raw.seal(crc::chain(!0, &[9; 16]));
    bed.dev.write(*addr, &[&block], WriteTag::new(Cause::Node, Temperature::Hot)).expect("memory");
}

#[test]
fn a_zone_behind_others_is_put_in_its_place() {
    let bed = bed();
    rewrite_attributes(&bed, |entries| {
        entries.insert(0, XattrEntry { index: 1, name: b"a".to_vec(), value: b"b".to_vec() });
    });
    let report = look(&bed.dev);
    assert!(report.has(Code::DeltaPlace) && report.findings.len() == 1, "{:?}", report.findings);
    assert!(report.findings[0].message.contains("before: none"), "{}", report.findings[0]);
    repair(&bed.dev, &Options::default(), &mut |_| ()).expect("repair");
    assert_eq!(look(&bed.dev).findings, []);
    for (index, found) in read(&bed.dev, bed.ino).into_iter().enumerate() {
        assert!(found == page(&bed.new, index), "page {index}");
    }
}

#[test]
fn of_two_zones_one_stays() {
    let bed = bed();
    rewrite_attributes(&bed, |entries| {
        let mut small = entries[0].clone();
        small.value = delta::empty_zone(40);
        let other = delta::Record { index: 7, codec: 2, checksum: 1, slices: &[], delta: b"" };
        assert!(delta::fill_zone(&mut small.value, &[other]));
        let room = entries[0].value.len() - 200;
        entries[0].value.truncate(room);
        entries.push(small);
    });
    let report = look(&bed.dev);
    assert!(report.has(Code::DeltaPlace), "{:?}", report.findings);
    assert!(report.findings[0].message.contains("2 delta zone(s)"), "{}", report.findings[0]);
    assert!(report.findings[0].message.ends_with("before: 7"), "{}", report.findings[0]);
    repair(&bed.dev, &Options::default(), &mut |_| ()).expect("repair");
    assert_eq!(look(&bed.dev).findings, []);
    assert!(read(&bed.dev, bed.ino).into_iter().enumerate().all(|(i, found)| found == page(&bed.new, i)));
}

#[test]
fn of_copies_of_different_kinds_the_plain_one_counts() {
    for copy in [0, 1] {
        let bed = bed();
        let mut block = read_block(&bed.dev, 1 - copy).expect("memory");
        RawSuperblock::in_block_mut(&mut block).become_plain();
        bed.dev.write(1 - copy, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold)).expect("memory");
        assert!(look(&bed.dev).has(Code::SuperblockKinds));
        repair(&bed.dev, &Options::default(), &mut |_| ()).expect("repair");
        for addr in 0..2 {
            let block = read_block(&bed.dev, addr).expect("memory");
            assert!(!RawSuperblock::in_block(&block).is_delta_volume(), "copy {addr}");
        }
        assert_eq!(look(&bed.dev).findings, []);
    }
}

#[test]
fn every_code_of_deltas_has_a_fault() {
    for code in Code::ALL.iter().filter(|c| crate::common::is_of_deltas(**c)) {
        // `compact.rs` has the faults from there on.
        let elsewhere = *code == Code::SuperblockKinds || *code >= Code::CompactPage;
        let planted = elsewhere || FAULTS.iter().any(|(c, ..)| c == code);
        assert!(planted, "no fault is planted for {code} ({code:?})");
    }
}

#[test]
fn a_dump_shows_the_deltas() {
    let bed = bed();
    bed.delta(1, "checksum", 5);
    let inode = Dump::open(&bed.dev).expect("open").inode(bed.ino).expect("the inode");
    let Some(Value::List(deltas)) = inode.get("deltas") else { panic!("no deltas: {inode}") };
    let shown: Vec<String> = deltas.iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 3);
    assert!(shown[0].contains("xor-sparse") && shown[0].contains("ok"), "{}", shown[0]);
    assert!(shown[1].contains("but computed"), "{}", shown[1]);
    assert!(inode.get("delta_zone_size").is_some());
}
