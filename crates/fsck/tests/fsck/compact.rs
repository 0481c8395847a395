//! Faults of compact pages and of bases made of other files' blocks: each is found under its code, names file
//! and page, is an error of what it concerns until it is mended, and costs no other page.

use medfs::{Error, FileKind, Files, Ino, ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::delta::{self, RawSlice};
use medfs_format::node::{RawIndirectNode, RawInode};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{NEW_ADDR, crc};
use medfs_fsck::dump::{Dump, Record, Value};
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Finding, Options, Report, check, repair};
use medfs_testkit::delta_volume::{
    COMPACT, DATABASE, DeltaFile, DeltaVolume, JOURNAL, LOG, PLAIN, ZONE, delta_volume,
};
use std::sync::{Arc, OnceLock};
use zerocopy::IntoBytes;

const PAGE: usize = 4096;
/// The last of the file's compact pages, and the pages of which its records count: each once more in an
/// earlier one, but for the last.
const LAST: usize = 10;
const IN_LAST: [usize; 6] = [54, 55, 56, 57, 58, 59];

/// The volume, made once; tests damage copies.
fn whole() -> &'static DeltaVolume {
    static WHOLE: OnceLock<DeltaVolume> = OnceLock::new();
    WHOLE.get_or_init(|| delta_volume(""))
}

struct Bed {
    dev: MemDevice,
}

fn bed() -> Bed {
    Bed { dev: whole().dev.snapshot() }
}

fn ino(name: &str) -> Ino {
    whole().file(name).ino
}

fn look(dev: &MemDevice) -> Report {
    check(dev, &Options::default(), &mut |_| ()).expect("memory")
}

fn mend(dev: &MemDevice) {
    repair(dev, &Options::default(), &mut |_| ()).expect("repair");
    assert_eq!(look(dev).findings, []);
}

impl Bed {
    fn set(&self, target: Target<'_>, field: &str, value: u64) {
        inject::set(&self.dev, &target, field, value).expect("the field is there");
    }
    /// Sets a field of the header of the last compact page.
    fn page(&self, field: &str, value: u64) {
        self.set(Target::Compact(ino(COMPACT), LAST), field, value);
    }
    /// Sets a field of a record in the last compact page.
    fn record(&self, n: usize, field: &str, value: u64) {
        self.set(Target::CompactDelta(ino(COMPACT), LAST, n), field, value);
    }
    fn zone(&self, field: &str, value: u64) {
        self.set(Target::Zone(ino(COMPACT)), field, value);
    }
    /// Sets a field of the record in that zone, which is a mark of page 3.
    fn mark(&self, field: &str, value: u64) {
        self.set(Target::Delta(ino(COMPACT), 0), field, value);
    }
    /// Sets a field of the second slice of the log's page 1.
    fn slice(&self, field: &str, value: u64) {
        self.set(Target::Slice(ino(LOG), 1, 1), field, value);
    }
}

fn page(content: &[u8], index: usize) -> Vec<u8> {
    let mut page = content[index * PAGE..content.len().min((index + 1) * PAGE)].to_vec();
    page.resize(PAGE, 0);
    page
}

fn count(file: &DeltaFile) -> usize {
    file.now.len().div_ceil(PAGE)
}

/// A file as a mounted volume shows it, page by page; `None` where it is damaged.
fn read(dev: &MemDevice, file: &DeltaFile) -> Vec<Option<Vec<u8>>> {
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let v = Volume::open(Arc::new(dev.snapshot()), options, clock).expect("the volume opens");
    let page = |index: usize| {
        let mut page = vec![0; PAGE];
        match v.read(file.ino, (index * PAGE) as u64, &mut page) {
            Ok(_) => Some(page),
            Err(Error::Corrupt(_)) => None,
            Err(e) => panic!("{} page {index}: {e}", file.name),
        }
    };
    (0..count(file)).map(page).collect()
}

/// What the engine makes of a fault before it is mended.
enum Engine {
    /// These pages are errors.
    Damaged(&'static [usize]),
    /// All pages are that the zone does not speak of.
    All,
    /// It cannot tell: they are what they were before.
    Unseen(&'static [usize]),
}
use Engine::{All, Damaged, Unseen};

/// A fault: the findings' codes, what the first one says, the file, how it is planted, what the engine makes
/// of it, and the pages that it costs.
struct Fault {
    codes: &'static [Code],
    says: &'static str,
    file: &'static str,
    plant: fn(&Bed),
    engine: Engine,
    lost: &'static [usize],
}

const fn of(
    file: &'static str,
    codes: &'static [Code],
    says: &'static str,
    plant: fn(&Bed),
    engine: Engine,
    lost: &'static [usize],
) -> Fault {
    Fault { codes, says, file, plant, engine, lost }
}

/// All of a compact page.
const fn broken(code: &'static [Code], says: &'static str, plant: fn(&Bed)) -> Fault {
    of(COMPACT, code, says, plant, All, &IN_LAST)
}

const BROKEN: &[Code] = &[Code::CompactPage];
const STRUCTURE: &[Code] = &[Code::DeltaZone];
const CONTENT: &[Code] = &[Code::DeltaContent];
const SOURCE: &[Code] = &[Code::SliceSource];

const FAULTS: &[Fault] = &[
    broken(BROKEN, "magic", |b| b.page("magic", 5)),
    broken(BROKEN, "ino", |b| b.page("ino", 4)),
    broken(BROKEN, "sequence", |b| b.page("sequence", u32::MAX.into())),
    broken(BROKEN, "used", |b| b.page("used", 60_000)),
    broken(BROKEN, "used", |b| b.page("used", 3)),
    broken(BROKEN, "checksum", |b| b.page("checksum", 7)),
    broken(BROKEN, "size", |b| b.record(5, "size", 60_000)),
    broken(BROKEN, "slices", |b| b.record(5, "slices", 17)),
    broken(BROKEN, "codec", |b| b.record(5, "codec", 0)),
    broken(BROKEN, "two deltas", |b| b.record(0, "index", 55)),
    broken(&[Code::CompactTwice], "sequence number 10, as block", |b| b.page("sequence", LAST as u64)),
    of(
        COMPACT,
        &[Code::DeltaCodec],
        "page 54: unknown codec tag 99",
        |b| b.record(0, "codec", 99),
        Damaged(&[54]),
        &[54],
    ),
    of(COMPACT, CONTENT, "page 54: checksum", |b| b.record(0, "checksum", 5), Damaged(&[54]), &[54]),
    of(COMPACT, CONTENT, "page 59: ", |b| b.record(5, "delta[0]", 0xff), Damaged(&[59]), &[59]),
    of(COMPACT, &[Code::DeltaBase], "page 700: ", |b| b.record(5, "index", 700), Unseen(&[59]), &[59]),
    of(
        COMPACT,
        &[Code::DeltaIndex],
        "page 4294967295: a file has",
        |b| b.record(5, "index", u32::MAX.into()),
        Unseen(&[59]),
        &[59],
    ),
    of(COMPACT, STRUCTURE, "flags", |b| b.zone("flags", 4), All, &[]),
    of(COMPACT, STRUCTURE, "first", |b| b.zone("first", u32::MAX.into()), All, &[]),
    // Without the mark the record that it hides counts.
    of(COMPACT, &[Code::DeltaZone, Code::DeltaContent], "version", |b| b.zone("version", 9), All, &[]),
    of(COMPACT, &[Code::DeltaZone, Code::DeltaContent], "size", |b| b.mark("size", 4), All, &[]),
    of(COMPACT, &[Code::DeltaZone, Code::DeltaContent], "slices", |b| b.mark("slices", 1), All, &[]),
    of(COMPACT, CONTENT, "page 3: checksum", |b| b.mark("codec", 2), Damaged(&[3]), &[]),
    of(
        LOG,
        SOURCE,
        "page 1: its base has a slice of inode 3000, which does not",
        |b| b.slice("ino", 3000),
        Damaged(&[1]),
        &[1],
    ),
    of(
        LOG,
        SOURCE,
        "inode 4294967295, which does not",
        |b| b.slice("ino", u32::MAX.into()),
        Damaged(&[1]),
        &[1],
    ),
    of(LOG, SOURCE, "inode 3, which is not a file", |b| b.slice("ino", 3), Damaged(&[1]), &[1]),
    of(
        LOG,
        SOURCE,
        "page 19 of inode",
        |b| {
            b.slice("page", 19);
            let place = address_of_page_19();
            b.set(Target::Inode(ino(DATABASE)), &place, NEW_ADDR.into());
        },
        Damaged(&[1]),
        &[1],
    ),
    of(LOG, SOURCE, "page 700 of inode", |b| b.slice("page", 700), Damaged(&[1]), &[1]),
    of(LOG, SOURCE, "cannot have that page", |b| b.slice("page", u32::MAX.into()), Damaged(&[1]), &[1]),
    of(LOG, CONTENT, "page 1: checksum", |b| b.slice("page", 8), Damaged(&[1]), &[1]),
    of(LOG, CONTENT, "page 1: checksum", |b| b.slice("ino", ino(COMPACT).into()), Damaged(&[1]), &[1]),
    of(LOG, CONTENT, "page 1: checksum", |b| b.slice("from", 1), Damaged(&[1]), &[1]),
    of(LOG, CONTENT, "page 1: checksum", |b| b.slice("to", 79), Damaged(&[1]), &[1]),
    of(LOG, CONTENT, "page 1: checksum", |b| b.slice("len", 4000), Damaged(&[1]), &[1]),
    of(LOG, STRUCTURE, "pages: 0)", |b| b.slice("from", 4000), All, &[1, 2, 3, 4, 5, 6]),
    of(LOG, STRUCTURE, "pages: 0)", |b| b.slice("to", 81), All, &[1, 2, 3, 4, 5, 6]),
    of(LOG, STRUCTURE, "pages: 0)", |b| b.slice("len", 0), All, &[1, 2, 3, 4, 5, 6]),
    of(
        JOURNAL,
        &[Code::SliceDepth],
        "page 2: its base has a slice of inode",
        |b| b.set(Target::Slice(ino(JOURNAL), 2, 0), "ino", ino(LOG).into()),
        Damaged(&[2]),
        &[2],
    ),
];

/// The slot of the database's page 19 in its inode.
fn address_of_page_19() -> String {
    let dump = Dump::open(&whole().dev).expect("open").inode(ino(DATABASE)).expect("the inode");
    let Some(Value::Number(extra)) = dump.get("i_extra_isize") else { panic!("{dump}") };
    format!("i_addr[{}]", 19 + extra / 4)
}

/// Plants a fault, expects its findings, and what engine and repair make of it.
fn plant(fault: &Fault) {
    let bed = bed();
    (fault.plant)(&bed);
    let report = look(&bed.dev);
    let mut codes: Vec<Code> = report.findings.iter().map(|f| f.code).collect();
    // What the database loses with its page 19 is not what is tested.
    codes.retain(|c| *c >= Code::DeltaZone);
    assert_eq!(codes, fault.codes, "{}: {:?}", fault.says, report.findings);
    let about: Vec<_> = report.findings.iter().filter(|f| f.code >= Code::DeltaZone).collect();
    let message = &about[0].message;
    assert!(message.contains(fault.says), "{}: {message}", fault.says);
    assert!(about.iter().all(|f| f.message.contains(&format!("({:?})", fault.file))), "{message}");
    before_repair(&bed, fault);
    mend(&bed.dev);
    for file in others(fault) {
        let lost: &[usize] = if file.name == fault.file { fault.lost } else { &[] };
        for (index, found) in read(&bed.dev, file).into_iter().enumerate() {
            let found = found.unwrap_or_else(|| panic!("{}: {} page {index}", fault.says, file.name));
            if !lost.contains(&index) {
                assert!(found == page(&file.now, index), "{}: {} page {index}", fault.says, file.name);
            } else if fault.codes[0] == Code::CompactPage || fault.codes[0] == Code::CompactTwice {
                let earlier = file.states.iter().any(|state| found == page(state, index));
                assert!(earlier, "{}: page {index} was never that", fault.says);
            } else {
                assert!(found == page(&file.old, index), "{}: page {index}", fault.says);
            }
        }
    }
}

/// All files but the database where the fault is in it.
fn others(fault: &Fault) -> impl Iterator<Item = &'static DeltaFile> {
    let spoiled = fault.says.starts_with("page 19");
    whole().files.iter().filter(move |f| !(spoiled && f.name == DATABASE))
}

fn before_repair(bed: &Bed, fault: &Fault) {
    for file in others(fault) {
        for (index, found) in read(&bed.dev, file).into_iter().enumerate() {
            let concerned = file.name == fault.file
                && match fault.engine {
                    Damaged(pages) => pages.contains(&index),
                    // But for those that the zone speaks of: these are right.
                    All => found.is_none(),
                    Unseen(pages) => {
                        if pages.contains(&index) {
                            assert!(found.is_some_and(|p| p != page(&file.now, index)));
                            continue;
                        }
                        false
                    }
                };
            let expected = (!concerned).then(|| page(&file.now, index));
            assert!(found == expected, "{}: {} page {index}", fault.says, file.name);
        }
    }
}

#[test]
fn every_fault_is_found_and_costs_no_other_page() {
    FAULTS.iter().for_each(plant);
}

/// Places and blocks of the file's compact pages.
fn compact_pages() -> Vec<(u64, u64)> {
    let Some(Value::List(rows)) = shown(&whole().dev, ino(COMPACT)).get("compact_pages").cloned() else {
        panic!("no compact pages")
    };
    let row = |row: &Value| match row {
        Value::Row(row) => (number(row, "place"), number(row, "block")),
        other => panic!("{other:?}"),
    };
    rows.iter().map(row).collect()
}

/// As a device leaves it that lost a write, or wrote to another place.
#[test]
fn a_sound_compact_page_in_the_place_of_another_is_found_and_costs_no_other_file() {
    let (file, pages) = (whole().file(COMPACT), compact_pages());
    // One that the file had before all these.
    let mark = delta::Record { index: 3, codec: 0, checksum: 0, slices: &[], delta: &[] };
    let older = Box::new(delta::compact_page(file.ino, 0, &[mark]));
    for (n, &(place, block)) in pages.iter().enumerate() {
        let next = read_block(&whole().dev, pages[(n + 1) % pages.len()].1).expect("memory");
        for other in [&next, &older] {
            let bed = bed();
            bed.dev.write(block, &[other], WriteTag::new(Cause::Data, Temperature::Hot)).expect("memory");
            let report = look(&bed.dev);
            let codes: Vec<Code> = report.findings.iter().map(|f| f.code).collect();
            let code =
                if codes.contains(&Code::CompactTwice) { Code::CompactTwice } else { Code::CompactOther };
            assert_eq!(codes, [code], "{place}: {:?}", report.findings);
            let message = &report.findings[0].message;
            let told = format!("compact page {place} (block {block}) is an older or another one");
            assert!(code == Code::CompactTwice || message.contains(&told), "{message}");
            assert!(message.contains("(\"compact\")") && report.losses.reverted == 1, "{message}");
            for (index, found) in read(&bed.dev, file).into_iter().enumerate() {
                assert!(found.is_none_or(|found| found == page(&file.now, index)), "{place}: page {index}");
            }
            unharmed(&bed.dev, &[COMPACT]);
            mend(&bed.dev);
            unharmed(&bed.dev, &[COMPACT]);
            for (index, found) in read(&bed.dev, file).into_iter().enumerate() {
                let known =
                    file.states.iter().chain([&file.old]).any(|state| found == Some(page(state, index)));
                assert!(known, "{place}: page {index} was never that");
            }
        }
    }
}

#[test]
fn a_compact_page_that_is_missing_is_found_by_the_zone_alone() {
    let file = whole().file(COMPACT);
    let Some(Value::List(nids)) = shown(&whole().dev, file.ino).get("i_nid").cloned() else { panic!("nids") };
    let nid = |place: usize| match nids[place] {
        Value::Number(nid) => nid as u32,
        _ => panic!("a number"),
    };
    // Inode, its double indirect node, an indirect one, and the direct one with the compact pages.
    let below = |nid: u32| {
        let addr =
            number(&Dump::open(&whole().dev).expect("open").nat(nid).expect("the entry"), "block_addr");
        read_block(&whole().dev, addr).expect("memory").view::<RawIndirectNode>().nid[0].get()
    };
    let direct = below(below(nid(4)));
    for (place, _) in [compact_pages()[0], compact_pages()[4]] {
        let bed = bed();
        bed.set(Target::Node(direct), &format!("addr[{place}]"), 0);
        let blocks = number(&shown(&bed.dev, file.ino), "i_blocks");
        bed.set(Target::Inode(file.ino), "i_blocks", blocks - 1);
        let report = look(&bed.dev);
        let told = format!("(\"compact\"): compact page {place}, of which its inode speaks, is missing");
        assert!(report.findings.iter().any(|f| f.message.contains(&told)), "{:?}", report.findings);
        assert_eq!(report.losses.reverted, 1);
        let errors = read(&bed.dev, file).iter().filter(|found| found.is_none()).count();
        assert_eq!(errors, count(file) - 1, "all but what the zone speaks of");
        mend(&bed.dev);
        unharmed(&bed.dev, &[COMPACT]);
    }
}

/// An earlier version made no ties.
#[test]
fn a_zone_without_a_tie_is_sound() {
    let bed = bed();
    assert!(shown(&bed.dev, ino(COMPACT)).to_string().contains("compact tied\n"));
    bed.zone("flags", u64::from(delta::ZONE_COMPACT));
    assert_eq!(look(&bed.dev).findings, []);
    unharmed(&bed.dev, &[]);
}

#[test]
fn sound_volumes_are_clean() {
    for options in ["", "delta=compact"] {
        let volume = delta_volume(options);
        assert_eq!(look(&volume.dev).findings, [], "{options}");
        for file in &volume.files {
            let found = read(&volume.dev, file);
            assert!(
                found.into_iter().enumerate().all(|(i, p)| p == Some(page(&file.now, i))),
                "{}",
                file.name
            );
        }
    }
}

#[test]
fn a_zone_that_denies_compact_pages_is_made_to_say_so() {
    let bed = bed();
    bed.zone("flags", 0);
    let report = look(&bed.dev);
    assert!(!report.findings.is_empty() && report.findings.iter().all(|f| f.code == Code::CompactFlag));
    assert!(report.findings[0].message.contains("says there are none"), "{}", report.findings[0]);
    mend(&bed.dev);
    unharmed(&bed.dev, &[]);
}

/// All files but these are as they were.
fn unharmed(dev: &MemDevice, but: &[&str]) {
    for file in whole().files.iter().filter(|f| !but.contains(&f.name)) {
        for (index, found) in read(dev, file).into_iter().enumerate() {
            assert!(found == Some(page(&file.now, index)), "{} page {index}", file.name);
        }
    }
}

#[test]
fn compact_pages_of_a_file_without_a_zone_are_freed() {
    let bed = bed();
    bed.set(Target::FirstXattr(ino(COMPACT)), "e_name_len", 4);
    let report = look(&bed.dev);
    assert!(report.has(Code::DeltaPlace) && report.has(Code::CompactFlag), "{:?}", report.findings);
    let says = |text: &str| report.findings.iter().any(|f| f.message.contains(text));
    assert!(says("last update: 54, 55, 56, 57, 58, 59"), "{:?}", report.findings);
    mend(&bed.dev);
    unharmed(&bed.dev, &[COMPACT]);
    let file = whole().file(COMPACT);
    for (index, found) in read(&bed.dev, file).into_iter().enumerate() {
        assert!(found == Some(page(&file.old, index)), "page {index}");
    }
    let blocks = |dev: &MemDevice| number(&shown(dev, ino(COMPACT)), "i_blocks");
    assert_eq!(blocks(&bed.dev), blocks(&whole().dev) - 11);
}

#[test]
fn a_file_ends_before_its_compact_pages() {
    let bed = bed();
    let start = start_of(&bed.dev, ino(COMPACT));
    bed.set(Target::Inode(ino(COMPACT)), "i_size", (start + 1) * PAGE as u64);
    let report = look(&bed.dev);
    let codes: Vec<Code> = report.findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [Code::CompactRoom], "{:?}", report.findings);
    mend(&bed.dev);
    assert_eq!(number(&shown(&bed.dev, ino(COMPACT)), "i_size"), start * PAGE as u64);
    unharmed(&bed.dev, &[]);
}

/// First page of a file's index that may be a compact page.
fn start_of(dev: &MemDevice, ino: Ino) -> u64 {
    let addr = number(&shown(dev, ino), "block_addr");
    let block = read_block(dev, addr).expect("memory");
    delta::compact_start(block.view::<RawInode>().slots(true).fanout())
}

#[test]
fn a_block_behind_the_places_of_compact_pages_is_freed() {
    let bed = bed();
    let dev = Arc::new(bed.dev.snapshot());
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let options = MountOptions { zero_base_deltas: false, ..MountOptions::default() };
    let v = Volume::open(dev.clone(), options, clock).expect("the volume opens");
    // A database keeps its zone when it grows that far.
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let file = v.create(v.root(), b"far.db", &new).expect("create").ino;
    v.write(file, 0, &page(&whole().file(PLAIN).now, 0)).expect("write");
    v.sync().expect("sync");
    v.write(file, 5, &[7; 9]).expect("write");
    v.fsync(file, false).expect("fsync");
    let far = (start_of(&bed.dev, ino(ZONE)) + 1800) * PAGE as u64;
    v.write(file, far, &[7; PAGE]).expect("write");
    v.close().expect("close");
    drop(v);
    let dev = dev.snapshot();
    assert_eq!(look(&dev).findings, []);
    inject::set(&dev, &Target::Zone(file), "flags", 1).expect("set");
    inject::set(&dev, &Target::Inode(file), "i_size", PAGE as u64).expect("set");
    let before = number(&shown(&dev, file), "i_blocks");
    let report = look(&dev);
    let codes: Vec<Code> = report.findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [Code::CompactRoom], "{:?}", report.findings);
    mend(&dev);
    assert_eq!(number(&shown(&dev, file), "i_blocks"), before - 1);
    unharmed(&dev, &[]);
}

/// The node that names the compact pages is missing: an error of the pages that may be in them, a finding,
/// and nothing else.
#[test]
fn compact_pages_that_cannot_be_found_are_errors_of_their_file_alone() {
    let file = whole().file(COMPACT);
    let Some(Value::List(nids)) = shown(&whole().dev, file.ino).get("i_nid").cloned() else { panic!("nids") };
    let place = nids.iter().rposition(|nid| *nid != Value::Number(0)).expect("a node beyond the inode");
    let Value::Number(nid) = nids[place] else { panic!("a number") };
    let field = format!("i_nid[{place}]");
    let faults: [(Target<'_>, &str, u64); 2] = [
        (Target::Nat(nid as u32), "block_addr", 0),
        (Target::Inode(file.ino), &field, u64::from(u32::MAX - 7)),
    ];
    for (target, field, value) in faults {
        let bed = bed();
        bed.set(target, field, value);
        let report = look(&bed.dev);
        assert!(!report.is_clean(), "{field} = {value}");
        let pages = read(&bed.dev, file);
        for (index, found) in pages.iter().enumerate() {
            let right = found.as_ref().is_none_or(|found| *found == page(&file.now, index));
            assert!(right, "{field} = {value}: page {index} is something else");
        }
        assert!(pages.iter().any(Option::is_none), "{field} = {value}: nothing is wrong");
        unharmed(&bed.dev, &[COMPACT]);
        mend(&bed.dev);
        unharmed(&bed.dev, &[COMPACT]);
        for (index, found) in read(&bed.dev, file).into_iter().enumerate() {
            let known = file.states.iter().chain([&file.old]).any(|state| found == Some(page(state, index)));
            assert!(known, "{field} = {value}: page {index} was never that");
        }
    }
}

/// Gives a record in a file's zone a base of slices; with a checksum, it says that the page is that base.
fn rewrite(dev: &MemDevice, ino: Ino, n: usize, slices: &[RawSlice], checksum: Option<u32>) {
    let addr = number(&shown(dev, ino), "block_addr");
    let mut block = read_block(dev, addr).expect("memory");
    let raw: &mut RawInode = block.view_mut();
    let area = raw.slots(true).inline_xattr_range();
    let zone = delta::zone_range(&raw.as_bytes()[area.clone()]).expect("a zone");
    let range = area.start + zone.start..area.start + zone.end;
    let before = raw.as_bytes()[range.clone()].to_vec();
    let mut records = delta::records(&before, ino).expect("they are sound");
    records[n].slices = slices;
    if let Some(checksum) = checksum {
        records[n] = delta::Record { codec: 2, checksum, delta: &[], ..records[n] };
    }
    assert!(delta::fill_zone(&mut raw.as_mut_bytes()[range], &records));
    let superblock = read_block(dev, 0).expect("memory");
    raw.seal(crc::chain(!0, &RawSuperblock::in_block(&superblock).uuid));
    dev.write(addr, &[&block], WriteTag::new(Cause::Node, Temperature::Hot)).expect("memory");
}

fn slice_of(ino: Ino, page: u32) -> RawSlice {
    RawSlice { ino: ino.into(), page: page.into(), from: 0.into(), to: 0.into(), len: 4096.into() }
}

/// What is found but that the list lacks files whose records were given slices.
fn but_the_list(dev: &MemDevice) -> Vec<Finding> {
    look(dev).findings.into_iter().filter(|found| found.code != Code::SliceList).collect()
}

#[test]
fn a_list_that_lacks_a_file_with_slices_is_completed() {
    let bed = bed();
    assert_eq!(look(&bed.dev).findings, []);
    rewrite(&bed.dev, ino(ZONE), 0, &[slice_of(ino(ZONE), 1)], None);
    let report = look(&bed.dev);
    let codes: Vec<Code> = report.findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [Code::SliceList], "{:?}", report.findings);
    let listed = |dev: &MemDevice| number(&Dump::open(dev).unwrap().path(".medfs").unwrap(), "i_size");
    let before = listed(&bed.dev);
    mend(&bed.dev);
    assert_eq!(listed(&bed.dev), before + 4);
    unharmed(&bed.dev, &[]);
}

#[test]
fn slices_of_a_files_own_blocks_are_fine() {
    let bed = bed();
    let own = [slice_of(ino(ZONE), 1)];
    rewrite(&bed.dev, ino(ZONE), 0, &own, None);
    assert_eq!(but_the_list(&bed.dev), []);
    unharmed(&bed.dev, &[]);
    // It may be a source as before: what it needs is its own.
    let from_it = [slice_of(ino(ZONE), 1)];
    rewrite(&bed.dev, ino(LOG), 1, &from_it, None);
    let codes: Vec<Code> = but_the_list(&bed.dev).iter().map(|f| f.code).collect();
    assert_eq!(codes, [Code::DeltaContent]);
}

#[test]
fn a_file_made_of_its_own_blocks_may_be_a_source_of_one_judged_before_it() {
    let bed = bed();
    let slices = [slice_of(ino(COMPACT), 3)];
    let content = page(&whole().file(COMPACT).old, 3);
    let checksum = medfs_codec::page_checksum(content[..].try_into().expect("a page"));
    rewrite(&bed.dev, ino(COMPACT), 0, &slices, Some(checksum));
    rewrite(&bed.dev, ino(ZONE), 0, &slices, Some(checksum));
    assert_eq!(but_the_list(&bed.dev), []);
    unharmed(&bed.dev, &[ZONE]);
}

#[test]
fn slices_that_go_round_in_a_circle_are_cut() {
    let bed = bed();
    // Both are right in themselves: the blocks are there, and make the pages.
    let (there, back) = ([slice_of(ino(COMPACT), 3)], [slice_of(ino(ZONE), 4)]);
    let content = |name: &str, index: usize| page(&whole().file(name).old, index);
    let sum = |page: &[u8]| medfs_codec::page_checksum(page.try_into().expect("a page"));
    rewrite(&bed.dev, ino(ZONE), 0, &there, Some(sum(&content(COMPACT, 3))));
    assert_eq!(but_the_list(&bed.dev), [], "one way it is allowed");
    rewrite(&bed.dev, ino(COMPACT), 0, &back, Some(sum(&content(ZONE, 4))));
    let findings = but_the_list(&bed.dev);
    let codes: Vec<Code> = findings.iter().map(|f| f.code).collect();
    assert_eq!(codes, [Code::SliceDepth], "{findings:?}");
    assert!(findings[0].message.contains("(\"zone\"): delta of page 1"), "{}", findings[0]);
    mend(&bed.dev);
    unharmed(&bed.dev, &[ZONE, COMPACT]);
}

#[test]
fn records_and_pages_that_do_not_count_are_not_judged() {
    let bed = bed();
    // Page 20 has a later record.
    bed.set(Target::CompactDelta(ino(COMPACT), 1, 3), "codec", 99);
    assert_eq!(look(&bed.dev).findings, []);
    unharmed(&bed.dev, &[]);
    // What is forgotten need not be right.
    bed.record(0, "checksum", 5);
    assert!(look(&bed.dev).has(Code::DeltaContent));
    bed.zone("first", LAST as u64 + 2);
    assert_eq!(look(&bed.dev).findings, []);
    unharmed(&bed.dev, &[COMPACT]);
}

#[test]
fn an_orphan_that_others_need_gets_a_name() {
    let bed = bed();
    bed.set(Target::Dentry(3, DATABASE.as_bytes()), "used", 0);
    bed.set(Target::Inode(ino(DATABASE)), "i_links", 0);
    inject::set_orphans(&bed.dev, &[ino(DATABASE)]).expect("there is room");
    assert_eq!(look(&bed.dev).findings, [], "as an orphan it is there");
    // Something to mend.
    bed.set(Target::Inode(ino(PLAIN)), "i_links", 3);
    mend(&bed.dev);
    let name = format!("lost+found/{}", ino(DATABASE));
    let found = Dump::open(&bed.dev).expect("open").path(&name).expect("it has a name");
    assert_eq!(number(&found, "ino"), u64::from(ino(DATABASE)));
    unharmed(&bed.dev, &[]);
}

#[test]
fn a_file_that_is_replayed_need_not_fit_what_its_sources_have_become() {
    let dev = Arc::new(whole().dev.snapshot());
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let v = Volume::open(dev.clone(), MountOptions::default(), clock).expect("the volume opens");
    // Log and journal become others, durably; then the database may be overwritten in its place.
    let other = &whole().file(COMPACT).now;
    for dependent in [ino(LOG), ino(JOURNAL)] {
        v.write(dependent, 0, &other[..7 * PAGE]).expect("write");
        v.fsync(dependent, false).expect("fsync");
    }
    for page in [4, 9, 2, 17, 11, 5] {
        v.write(ino(DATABASE), page * PAGE as u64, &other[30 * PAGE..31 * PAGE]).expect("write");
    }
    v.fsync(ino(DATABASE), false).expect("fsync");
    let crashed = dev.snapshot();
    let report = look(&crashed);
    assert!(report.log_to_replay.inodes > 0);
    assert_eq!(report.findings, []);
}

fn shown(dev: &MemDevice, ino: Ino) -> Record {
    Dump::open(dev).expect("open").inode(ino).expect("the inode")
}

fn number(record: &Record, field: &str) -> u64 {
    match record.get(field) {
        Some(Value::Number(n)) => *n,
        other => panic!("{field}: {other:?}"),
    }
}

#[test]
fn every_code_of_compact_pages_and_slices_has_a_fault() {
    let own = [Code::CompactFlag, Code::CompactRoom];
    for code in Code::ALL.iter().filter(|c| (Code::CompactPage..Code::SharedNode).contains(*c)) {
        let planted = own.contains(code) || FAULTS.iter().any(|f| f.codes.contains(code));
        assert!(planted, "no fault is planted for {code} ({code:?})");
    }
}

#[test]
fn a_dump_shows_compact_pages_slices_and_marks() {
    let bed = bed();
    bed.record(0, "checksum", 5);
    bed.set(Target::Compact(ino(COMPACT), 4), "magic", 5);
    bed.zone("first", 2);
    let text = shown(&bed.dev, ino(COMPACT)).to_string();
    for line in [
        "delta_zone_flags             compact tied\n",
        "  page 3  size 0  codec none  state ok\n",
        "sequence 1  counting 0  masked 7  state forgotten\n",
        "sequence 2  counting 3  masked 9  state ok\n",
        "sequence 11  counting 6  masked 0  state ok\n",
        "state compact page of inode",
        "but computed",
        "state masked\n",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let slices = shown(&bed.dev, ino(LOG));
    let text = slices.to_string();
    assert!(text.contains("codec xor-sparse") && text.contains("base slices  state ok\n"), "{text}");
    let slice = format!("      ino {}  page 9  from 0  to 80  len 4016\n", ino(DATABASE));
    assert!(text.contains(&slice), "{text}");
    for line in text.lines() {
        assert!(line.len() <= 100, "{line}");
    }
    let json = serde_json::to_value(&slices).expect("JSON");
    assert_eq!(json["deltas"][1]["slices"][1]["to"], 80);
    let json = serde_json::to_value(shown(&bed.dev, ino(COMPACT))).expect("JSON");
    assert_eq!(json["compact_pages"][LAST]["deltas"][5]["page"], 59);
    assert_eq!(json["compact_pages"][0]["state"], "forgotten");
}
