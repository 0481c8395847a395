//! A repair that loses power at any of its writes, and is run again, ends as one that was left alone.
//!
//! The default run takes a sample of the crash states; `MEDFS_STATES` asks for more of them, `MEDFS_SEED` for others.

use medfs::{Files, ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::crash::{CrashPlan, RecordingDevice};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::node::{Advise, FileKind, RawInode};
use medfs_format::{BLOCK_SIZE, Block};
use medfs_fsck::dump::{Dump, Value};
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Options, Report, check, repair};
use medfs_testkit::images::{DELTAS, FEATURE_SETS, formatted};
use medfs_testkit::model::Model;
use medfs_testkit::observe::{compare, observe};
use std::sync::Arc;

const META: WriteTag = WriteTag::new(Cause::Meta, Temperature::Cold);
const FILES: u32 = 300;
/// What is found of a volume that is broken ([`broken`]).
const IN_BROKEN: [Code; 3] = [Code::NatUnreachable, Code::Address, Code::SuperblockCopy];

fn variable(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().map_or(default, |v| v.parse().expect("a number"))
}

fn open(dev: Arc<MemDevice>) -> Volume {
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_800_000_000, nanos: 0 }));
    Volume::open(dev, MountOptions::default(), clock).expect("it opens")
}

fn observed(dev: &MemDevice) -> Model {
    let v = open(Arc::new(dev.snapshot()));
    observe(&v).expect("everything can be read")
}

fn mend(dev: &dyn BlockDevice) -> Report {
    let repaired = repair(dev, &Options::default(), &mut |_| {}).expect("memory does not fail");
    assert_eq!((repaired.after.findings, repaired.unfinished), (vec![], None));
    repaired.before
}

fn number(value: Option<&Value>) -> u32 {
    match value {
        Some(Value::Number(n)) => *n as u32,
        other => panic!("not a number: {other:?}"),
    }
}

fn change(dev: &MemDevice, nid: u32, change: impl FnOnce(&mut Block)) {
    let addr = number(Dump::open(dev).unwrap().nat(nid).unwrap().get("block_addr")).into();
    let mut block = read_block(dev, addr).unwrap();
    change(&mut block);
    dev.write(addr, &[&block], META).unwrap();
}

/// A volume with a crash behind it, fsynced files to be rolled forward, and much that is wrong.
fn broken(features: &str) -> MemDevice {
    let dev = Arc::new(formatted(64, features).snapshot());
    let v = open(dev.clone());
    let make = |parent, name: &str, kind| {
        let new = NewFile { kind, perm: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let ino = v.create(parent, name.as_bytes(), &new).expect("create").ino;
        v.release(ino, 1);
        ino
    };
    let dir = make(v.root(), "dir", FileKind::Directory);
    let inner = make(dir, "inner", FileKind::Directory);
    for i in 0..FILES {
        let file = make(inner, &format!("a file of some name, number {i}"), FileKind::Regular);
        v.write(file, 0, format!("content {i}").as_bytes()).expect("write");
    }
    let lost = make(v.root(), "lost", FileKind::Regular);
    let large = make(v.root(), "large", FileKind::Regular);
    v.write(large, 0, &vec![7; BLOCK_SIZE * 1000]).expect("write");
    v.checkpoint().expect("checkpoint");
    let synced = make(v.root(), "synced", FileKind::Regular);
    v.write(synced, 0, b"since the checkpoint").expect("write");
    v.fsync(synced, false).expect("fsync");
    let dev = dev.snapshot(); // the power goes
    drop(v);
    // A directory's block is lost, and its level wrong.
    let inode =
        read_block(&dev, number(Dump::open(&dev).unwrap().nat(inner).unwrap().get("block_addr")).into());
    let inode = inode.unwrap();
    let inode: &RawInode = inode.view();
    let slots = inode.slots(!features.is_empty());
    dev.write(inode.i_addr[slots.extra + 2].get().into(), &[&Block::ZERO], META).unwrap();
    inject::set(&dev, &Target::Inode(inner), "i_dir_level", 1).unwrap();
    // The directory above it has no name, and a file that does not say where it was.
    inject::set(&dev, &Target::Dentry(3, b"dir"), "used", 0).unwrap();
    inject::change(&dev, &Target::Inode(lost), "i_advise", |a| a | u64::from(Advise::LOST_PINO.bits()))
        .unwrap();
    inject::set(&dev, &Target::Dentry(3, b"lost"), "used", 0).unwrap();
    // An address leads nowhere, a bit of an inode is flipped, a copy of the superblock is lost.
    let slot = format!("i_addr[{}]", slots.extra + 5);
    inject::set(&dev, &Target::Inode(large), &slot, 7).unwrap();
    change(&dev, lost, |block| block.0[17] ^= 1);
    dev.write(1, &[&Block::ZERO], META).unwrap();
    dev
}

/// A volume whose newest checkpoint is lost, with a file that was fsynced behind it.
fn without_newest(features: &str) -> MemDevice {
    let dev = Arc::new(formatted(64, features).snapshot());
    let write = |v: &Volume, name: &str, content: &[u8]| {
        let new = NewFile { kind: FileKind::Regular, perm: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let ino = v.create(v.root(), name.as_bytes(), &new).expect("create").ino;
        v.write(ino, 0, content).expect("write");
        v.release(ino, 1);
        ino
    };
    for turn in 0..3 {
        let v = open(dev.clone());
        for i in 0..FILES / 6 {
            write(&v, &format!("{i} of turn {turn}"), &vec![turn; BLOCK_SIZE * 3]);
            if turn > 0 {
                v.unlink(v.root(), format!("{i} of turn {}", turn - 1).as_bytes()).expect("unlink");
            }
        }
        v.close().expect("closed");
    }
    let v = open(dev.clone());
    write(&v, "last", &[9; BLOCK_SIZE]);
    v.checkpoint().expect("checkpoint");
    let synced = write(&v, "synced", b"since the checkpoint");
    v.fsync(synced, false).expect("fsync");
    let dev = dev.snapshot(); // the power goes
    crate::behind::without_newest(&dev, &Block::ZERO)
}

/// `least`: fewer crash states would not be all.
fn any_crash_ends_alike(broken: &MemDevice, codes: &[Code], least: usize) {
    let seed = variable("MEDFS_SEED", 1);
    let states = variable("MEDFS_STATES", 60) as usize;
    println!("MEDFS_SEED={seed} MEDFS_STATES={states}");
    let recorder = RecordingDevice::new(broken);
    let before = mend(&recorder);
    for &code in codes {
        assert!(before.has(code), "{code:?}: {:?}", before.findings);
    }
    assert_eq!(before.log_to_replay.inodes, 1);
    let whole = observed(&recorder.snapshot());
    let recording = recorder.recording();
    let plan = CrashPlan { exhaustive: 8, samples: 2, seed, ..CrashPlan::default() };
    let count = recording.states(&plan).count();
    assert!(count > least, "only {count} crash states");
    let each = count.div_ceil(states).max(1);
    for state in recording.states(&plan).skip(seed as usize % each).step_by(each) {
        let dev = state.device();
        assert!(check(&dev, &Options::default(), &mut |_| {}).is_ok());
        let log = mend(&dev).log_to_replay.inodes;
        assert_eq!(log, 1, "seed {seed}, {state:?}");
        compare(&whole, &observed(&dev)).unwrap_or_else(|e| panic!("seed {seed}, {state:?}: {e}"));
    }
}

#[test]
fn on_a_plain_volume() {
    any_crash_ends_alike(&broken(FEATURE_SETS[0]), &IN_BROKEN, 100);
}

#[test]
fn on_a_volume_with_checksums_and_deltas() {
    any_crash_ends_alike(&broken(DELTAS), &IN_BROKEN, 100);
}

#[test]
fn on_volumes_whose_newest_checkpoint_is_lost() {
    for features in ["", DELTAS] {
        any_crash_ends_alike(&without_newest(features), &[Code::CheckpointOlder], 30);
    }
}
