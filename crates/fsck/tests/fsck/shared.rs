//! Shared record nodes: what is wrong with them is found, costs nothing but what it says, and is repaired.

use medfs::{Error, Files, ManualClock, MountOptions, Timestamp, Volume};
use medfs_device::MemDevice;
use medfs_fsck::dump::{Dump, Record, Value};
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Options, Report, check, repair};
use medfs_testkit::delta_volume::{DeltaVolume, SHARED_FILES, SHARED_ROUNDS, shared_volume};
use std::sync::{Arc, LazyLock};

static WHOLE: LazyLock<DeltaVolume> = LazyLock::new(shared_volume);
/// The shared node of the last fsyncs.
const LAST: usize = SHARED_ROUNDS - 1;
/// `EUCLEAN`.
const UNCLEAN: i32 = 117;

fn look(dev: &MemDevice) -> Report {
    check(dev, &Options::default(), &mut |_| {}).expect("memory does not fail")
}

fn open(dev: &MemDevice, options: &str) -> Result<Volume, Error> {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options are right");
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_800_000_000, nanos: 0 }));
    Volume::open(Arc::new(dev.snapshot()), parsed, clock)
}

fn content(v: &Volume, name: &str) -> Vec<u8> {
    let attr = v.lookup(v.root(), name.as_bytes()).expect("the file is there");
    let mut bytes = vec![0; attr.size as usize];
    assert_eq!(v.read(attr.ino, 0, &mut bytes).expect("it reads"), bytes.len());
    v.release(attr.ino, 1);
    bytes
}

/// Each file is as after this fsync of it; 0: as the checkpoint has it.
fn must_show(v: &Volume, states: [usize; SHARED_FILES.len()], when: &str) {
    for (name, state) in SHARED_FILES.iter().zip(states) {
        assert!(content(v, name) == WHOLE.file(name).states[state], "{name} is not as after {state}, {when}");
    }
}

/// A field that is wrong, in the last node: what a check says of it, and which files lose their last fsync.
struct Fault {
    target: Target<'static>,
    field: &'static str,
    value: u64,
    says: &'static str,
    lost: Lost,
}

#[derive(Clone, Copy)]
enum Lost {
    /// The file of the entry.
    Second,
    All,
}

const fn fault(target: Target<'static>, field: &'static str, value: u64, says: &'static str) -> Fault {
    Fault { target, field, value, says, lost: Lost::Second }
}

/// The files' states where the last fsync of some is lost.
fn states(lost: Lost) -> [usize; SHARED_FILES.len()] {
    let json = serde_json::to_value(shown(&WHOLE.dev)).expect("JSON");
    let second = json["shared_nodes"][LAST]["entries"][1]["ino"].as_u64().expect("a number");
    SHARED_FILES.map(|name| match lost {
        Lost::Second if u64::from(WHOLE.file(name).ino) != second => SHARED_ROUNDS,
        _ => SHARED_ROUNDS - 1,
    })
}

const SECOND: Target<'static> = Target::SharedEntry(LAST, 1);
const NODE: Target<'static> = Target::SharedNode(LAST);

const FAULTS: [Fault; 10] = [
    fault(SECOND, "ino", 0, "entry of inode 0: there is no such file"),
    fault(SECOND, "ino", 3, "entry of inode 3: there is no such file"),
    fault(SECOND, "ino", 0xffff_fff0, "there is no such file"),
    fault(SECOND, "base", 0, "its base, block 0, is outside the main area"),
    fault(SECOND, "base", 0xffff_ffff, "is outside the main area"),
    fault(SECOND, "codec", 99, "99"),
    fault(SECOND, "checksum", 7, "checksum"),
    fault(SECOND, "delta[0]", 0xee, "entry of inode"),
    Fault { lost: Lost::All, ..fault(SECOND, "size", 5000, "size") },
    Fault { lost: Lost::All, ..fault(NODE, "used", 4061, "used") },
];

#[test]
fn a_sound_node_is_no_finding() {
    assert_eq!(look(&WHOLE.dev).findings, []);
    assert_eq!(look(&WHOLE.dev).log_to_replay.shared, SHARED_ROUNDS as u64);
    must_show(&open(&WHOLE.dev, "").expect("it opens"), [SHARED_ROUNDS; 4], "untouched");
}

#[test]
fn every_fault_is_found_and_costs_no_other_file() {
    for fault in &FAULTS {
        let Fault { target, field, value, says, lost } = fault;
        let when = format!("{field} = {value}");
        let dev = WHOLE.dev.snapshot();
        inject::set(&dev, target, field, *value).expect("there is such a field");
        let report = look(&dev);
        assert!(!report.is_clean() && report.findings.iter().all(|f| f.code == Code::SharedNode), "{when}");
        assert!(report.findings[0].message.contains(says), "{when}: {}", report.findings[0]);
        // The engine says so and shows the rest: what the checkpoint has.
        let error = open(&dev, "").err().unwrap_or_else(|| panic!("{when}: it opens"));
        assert_eq!(error.errno(), UNCLEAN, "{when}: {error}");
        assert!(error.to_string().contains("shared record node"), "{when}: {error}");
        must_show(&open(&dev, "ro,norecovery").expect("read-only"), [0; 4], &when);
        let mended = repair(&dev, &Options::default(), &mut |_| {}).expect("a repair");
        assert!(mended.changed && mended.after.findings.is_empty(), "{when}: {:?}", mended.after.findings);
        must_show(&open(&dev, "").expect("it opens again"), states(*lost), &when);
    }
}

/// A base that is another file's inode, and one that has changed since.
#[test]
fn a_base_that_is_not_the_inodes_is_found() {
    let dev = WHOLE.dev.snapshot();
    let root = block_of(&dev, "/");
    inject::set(&dev, &SECOND, "base", root).expect("set");
    let report = look(&dev);
    let says = format!("its base, block {root}, is node 3 of inode 3");
    assert!(report.findings[0].message.contains(&says), "{:?}", report.findings);
    assert_eq!(open(&dev, "").expect_err("it does not open").errno(), UNCLEAN);
    let dev = WHOLE.dev.snapshot();
    inject::set(&dev, &Target::Inode(WHOLE.file(SHARED_FILES[1]).ino), "i_uid", 77).expect("set");
    let report = look(&dev);
    assert_eq!(report.findings.len(), SHARED_ROUNDS, "each round's entry: {:?}", report.findings);
    assert_eq!(open(&dev, "").expect_err("it does not open").errno(), UNCLEAN);
    repair(&dev, &Options::default(), &mut |_| {}).expect("a repair");
    assert_eq!(look(&dev).findings, []);
    must_show(&open(&dev, "").expect("it opens"), [SHARED_ROUNDS, 0, SHARED_ROUNDS, SHARED_ROUNDS], "mended");
}

/// What was not stored as a whole ends the chain, as after any crash.
#[test]
fn a_torn_node_is_no_finding() {
    for (field, value) in [("checksum", 5), ("magic", 5)] {
        let dev = WHOLE.dev.snapshot();
        inject::set(&dev, &NODE, field, value).expect("set");
        let report = look(&dev);
        assert_eq!((report.findings.len(), report.log_to_replay.shared), (0, LAST as u64), "{field}");
        must_show(&open(&dev, "").expect("it opens"), [LAST; 4], field);
    }
}

#[test]
fn a_dump_shows_the_nodes() {
    let dev = WHOLE.dev.snapshot();
    inject::set(&dev, &SECOND, "codec", 99).expect("set");
    let shown = shown(&dev);
    let json = serde_json::to_value(&shown).expect("JSON");
    let nodes = json["shared_nodes"].as_array().expect("a list");
    assert_eq!(nodes.len(), SHARED_ROUNDS);
    assert_eq!(nodes[LAST]["entries"][0]["state"], "ok");
    assert_eq!(nodes[LAST]["entries"][1]["codec"], "unknown 99");
    let text = shown.to_string();
    assert!(text.contains("state ok\n") && text.contains("codec unknown 99"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    inject::set(&dev, &NODE, "used", 4061).expect("set");
    let text = self::shown(&dev).to_string();
    assert!(text.contains("4061 of 4060"), "{text}");
}

fn shown(dev: &MemDevice) -> Record {
    Dump::open(dev).expect("open").checkpoint().expect("the checkpoint")
}

fn block_of(dev: &MemDevice, name: &str) -> u64 {
    let inode = Dump::open(dev).expect("open").path(name).expect("the file");
    match inode.get("block_addr") {
        Some(Value::Number(n)) => *n,
        other => panic!("{other:?}"),
    }
}
