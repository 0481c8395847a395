//! Nodes of removed names: counted, shown, and mended where they name what cannot be.

use medfs::{Files, ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::node::{FileKind, footer, footer_mut};
use medfs_format::removed::{RemovedName, is_removed_names, removed_names_node};
use medfs_format::{Block, shared};
use medfs_fsck::dump::Dump;
use medfs_fsck::{Code, Options, Report, check, repair};
use medfs_testkit::images::{DELTAS, formatted};
use std::sync::Arc;

const NAMES: [&str; 2] = ["gone", "away"];
const NODE_INO: u32 = 1;

fn open(dev: Arc<MemDevice>) -> Result<Volume, medfs::Error> {
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_800_000_000, nanos: 0 }));
    Volume::open(dev, MountOptions::default(), clock)
}

/// A volume whose chain says that two files of the checkpoint are gone, the address of the block that says
/// so, and the files.
fn volume() -> (MemDevice, u64, [u32; 2]) {
    let dev = Arc::new(formatted(64, DELTAS).snapshot());
    let v = open(dev.clone()).expect("it opens");
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let files = NAMES.map(|name| {
        let ino = v.create(v.root(), name.as_bytes(), &new).expect("create").ino;
        v.release(ino, 1);
        ino
    });
    v.sync().expect("sync");
    for name in NAMES {
        v.unlink(v.root(), name.as_bytes()).expect("unlink");
    }
    v.fsync(v.root(), false).expect("fsync");
    let crashed = dev.snapshot();
    let block = |addr: u64| read_block(&crashed, addr).expect("memory");
    let addr = (0..crashed.block_count()).find(|&a| is_removed_names(&block(a), NODE_INO)).expect("the node");
    (crashed, addr, files)
}

/// Puts other names into the node.
fn rewrite(dev: &MemDevice, addr: u64, names: &[RemovedName<'_>]) {
    seal(dev, addr, removed_names_node(names));
}

fn seal(dev: &MemDevice, addr: u64, mut block: Block) {
    *footer_mut(&mut block) = *footer(&read_block(dev, addr).expect("memory"));
    shared::seal(&mut block);
    dev.write(addr, &[&block], WriteTag::new(Cause::Node, Temperature::Warm)).expect("memory");
}

fn look(dev: &MemDevice) -> Report {
    check(dev, &Options::default(), &mut |_| {}).expect("memory does not fail")
}

fn there(dev: &MemDevice) -> [bool; 2] {
    let v = open(Arc::new(dev.snapshot())).expect("it opens");
    NAMES.map(|name| v.lookup(v.root(), name.as_bytes()).is_ok())
}

#[test]
fn names_are_counted_shown_and_gone() {
    let (dev, ..) = volume();
    let report = look(&dev);
    assert_eq!((report.findings.len(), report.log_to_replay.removed), (0, 2));
    let shown = Dump::open(&dev).expect("open").checkpoint().expect("the checkpoint");
    let json = serde_json::to_value(&shown).expect("JSON");
    assert_eq!(json["removed_names"][0]["names"][0]["name"], "away");
    assert_eq!(json["removed_names"][0]["names"][1]["dir"], 3);
    assert_eq!(there(&dev), [false, false]);
}

#[test]
fn names_of_no_file_are_found_and_mended() {
    let (dev, addr, files) = volume();
    let right = RemovedName { ino: files[0], dir: 3, name: b"gone" };
    for wrong in [
        RemovedName { ino: 3, ..right },
        RemovedName { ino: 0, ..right },
        RemovedName { dir: 0, ..right },
        RemovedName { dir: u32::MAX, ..right },
    ] {
        let dev = dev.snapshot();
        rewrite(&dev, addr, &[wrong, right]);
        let report = look(&dev);
        assert!(report.findings.iter().any(|f| f.code == Code::SharedNode), "{wrong:?}");
        let mended = repair(&dev, &Options::default(), &mut |_| {}).expect("a repair");
        assert_eq!(mended.after.findings, [], "{wrong:?}");
        assert_eq!(there(&dev), [false, true], "what no node says any more is as in the checkpoint");
    }
}

#[test]
fn a_broken_node_is_found_and_emptied() {
    let (dev, addr, _) = volume();
    let mut block = *read_block(&dev, addr).expect("memory");
    block.0[4..6].copy_from_slice(&5000u16.to_le_bytes());
    seal(&dev, addr, block);
    let report = look(&dev);
    assert!(report.findings[0].message.contains("5000 of 4060"), "{:?}", report.findings);
    assert_eq!(open(Arc::new(dev.snapshot())).expect_err("it does not open").errno(), 117);
    let mended = repair(&dev, &Options::default(), &mut |_| {}).expect("a repair");
    assert_eq!(mended.after.findings, []);
    assert_eq!(there(&dev), [true, true]);
}
