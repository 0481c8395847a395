//! Import and export: what they make, and what every crash of them leaves.

use crate::common::*;
use medfs::convert::{export, import};
use medfs::{Error, Files, ManualClock, MountOptions, Volume, XattrMode};
use medfs_device::crash::{CrashPlan, Event, RecordingDevice};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::superblock::RawSuperblock;
use medfs_format::xattr::NameIndex;
use medfs_fsck::dump::{Dump, Value};
use std::sync::Arc;

/// What the files of a volume hold, by name.
type Tree = Vec<(String, Vec<u8>)>;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START))
}

/// Whether each superblock copy is of a volume with deltas.
fn kinds(device: &dyn BlockDevice) -> [bool; 2] {
    [0, 1].map(|addr| RawSuperblock::in_block(&read_block(device, addr).expect("memory")).is_delta_volume())
}

fn change_superblock(device: &dyn BlockDevice, copy: u64, change: impl Fn(&mut RawSuperblock)) {
    let mut block = read_block(device, copy).expect("memory");
    let sb = RawSuperblock::in_block_mut(&mut block);
    change(sb);
    sb.seal();
    device.write(copy, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold)).expect("memory");
}

/// Files of every shape that matters: in the inode, with direct nodes, with attributes; each small update fsynced.
/// Nine pages of them are deltas where the volume takes any.
fn fill(v: &Volume) -> Tree {
    let mut tree = Tree::new();
    for (name, more) in [("small", 0), ("large.db", 1100), ("attributes", 0)] {
        let (f, mut expected) = noisy_file(v, name, 8);
        if name == "attributes" {
            v.setxattr(f, b"user.large", &vec![3; 1500], XattrMode::Set).expect("set");
        }
        for page in [0, 3] {
            patch(v, f, &mut expected, page * PAGE + 17, b"small");
        }
        v.fsync(f, false).expect("fsync");
        let rest: Vec<u8> = (0..more).flat_map(|n| noise(100 + n)).collect();
        write(v, f, expected.len() as u64, &rest);
        expected.extend(rest);
        v.fsync(f, false).expect("fsync");
        let last = expected.len() - PAGE;
        patch(v, f, &mut expected, last, b"small");
        v.fsync(f, false).expect("fsync");
        tree.push((name.into(), expected));
    }
    tree
}

fn has_all(v: &Volume, tree: &Tree) -> bool {
    let right = |(name, expected): &(String, Vec<u8>)| {
        at(v, name).is_some_and(|found| content(v, found.ino) == *expected)
    };
    tree.iter().all(right)
}

fn assert_clean(device: &dyn BlockDevice) {
    let report = medfs_fsck::check(device, &Default::default(), &mut |_| ()).expect("memory");
    assert!(report.is_clean(), "{:?}", report.findings);
}

/// A volume whose last changes are in the log of fsynced files only.
fn crashed(base: MemDevice) -> (MemDevice, Tree) {
    let device = Arc::new(base);
    let v = open(device.clone());
    let tree = fill(&v);
    let crashed = device.snapshot();
    (crashed, tree)
}

/// Each superblock copy is durable before anything else is written.
fn assert_flushed_one_by_one(log: &[Event]) {
    let is_copy = |event: &Event| matches!(event, Event::Write { addr: 0 | 1, .. });
    let mut copies = log.windows(2).filter(|pair| is_copy(&pair[0]));
    assert!(copies.clone().count() >= 2 && copies.all(|pair| matches!(pair[1], Event::Flush { .. })));
}

/// Runs a conversion on a recorder and opens every crash state; returns how many were found plain, and with
/// deltas. Of the versions of the tree one is found that is at least as new as the last mark.
fn crash_states(
    base: &MemDevice,
    versions: &[Tree],
    convert: impl FnOnce(Arc<RecordingDevice>),
) -> (usize, usize) {
    let recorder = Arc::new(RecordingDevice::new(base));
    convert(recorder.clone());
    assert_flushed_one_by_one(recorder.recording().log());
    let torn = Arc::new(|addr: u64, _: Cause, _: &[u8; PAGE]| addr < 2);
    let plan = CrashPlan { exhaustive: 64, samples: 60, torn: Some(torn), torn_each: 16, seed: 5 };
    let (mut plain, mut delta) = (0, 0);
    for state in recorder.recording().states(&plan) {
        let device = Arc::new(state.device());
        let v = open(device.clone());
        let oldest = state.last_mark().unwrap_or(0) as usize;
        assert!(versions[oldest..].iter().any(|tree| has_all(&v, tree)), "{state:?}");
        v.close().expect("close");
        let found = kinds(&*device);
        assert_eq!(found[0], found[1], "{state:?}: the switch was not finished");
        assert_eq!(found[0], v.superblock().is_delta_volume(), "{state:?}");
        if !found[0] {
            assert_eq!(v.stats().deltas.rebuilt, 0, "{state:?}");
        }
        assert_clean(&*device);
        *(if found[0] { &mut delta } else { &mut plain }) += 1;
    }
    (plain, delta)
}

#[test]
fn every_crash_of_an_export_leaves_the_old_or_the_new_kind() {
    let (base, tree) = crashed(blank_delta(64));
    let (plain, delta) = crash_states(&base, &[tree], |device| {
        let done = export(device, clock(), &mut |_, _, _| ()).expect("export");
        assert!(done.switched && done.recovered_inodes > 0);
        assert_eq!((done.folded.files, done.folded.pages), (3, 9));
    });
    assert!(plain > 20 && delta > 100, "{plain} plain, {delta} with deltas");
}

#[test]
fn every_crash_of_an_import_leaves_the_old_or_the_new_kind() {
    let (base, tree) = crashed(blank(64, all_features()));
    let mut changed = tree.clone();
    changed[0].1[17..22].copy_from_slice(b"delta");
    let (plain, delta) = crash_states(&base, &[tree, changed], |device| {
        let done = import(device.clone(), clock()).expect("import");
        assert!(done.switched && done.recovered_inodes > 0);
        // The first delta comes after the switch.
        let v = open(device.clone());
        let f = at(&v, "small").expect("the file").ino;
        write(&v, f, 17, b"delta");
        v.fsync(f, false).expect("fsync");
        device.mark(1);
        assert_eq!(v.stats().deltas.made, 1);
        v.close().expect("close");
    });
    assert!(plain > 20 && delta > 8, "{plain} plain, {delta} with deltas");
}

#[test]
fn there_and_back() {
    let device = Arc::new(blank(64, all_features()));
    assert!(import(device.clone(), clock()).expect("import").switched);
    assert!(!import(device.clone(), clock()).expect("again").switched);
    let v = open(device.clone());
    let mut tree = fill(&v);
    assert!(v.stats().deltas.made > 0);
    v.close().expect("close");
    drop(v);
    let mut steps = Vec::new();
    let done =
        export(device.clone(), clock(), &mut |_, done, total| steps.push((done, total))).expect("export");
    assert_eq!((done.folded.pages, steps.last()), (9, Some(&(done.folded.inodes, done.folded.inodes))));
    assert!(!export(device.clone(), clock(), &mut |_, _, _| ()).expect("again").switched);
    assert_eq!(kinds(&*device), [false; 2]);
    assert_clean(&*device);
    let v = open(device.clone());
    assert!(has_all(&v, &tree));
    for (name, _) in &tree {
        let inode = Dump::open(&*device).expect("open").path(name).expect("the inode");
        let Some(Value::List(xattrs)) = inode.get("xattrs") else { panic!("{inode}") };
        let delta = Value::from(NameIndex::Delta as u8);
        let is_zone = |x: &Value| matches!(x, Value::Record(x) if x.get("index") == Some(&delta));
        assert!(!xattrs.iter().any(is_zone), "{name} still has a zone: {inode}");
        let default = inode.get("i_inline_xattr_size") == Some(&Value::Number(50));
        assert_eq!(default, name != "large.db", "{inode}");
    }
    let f = at(&v, "small").expect("the file").ino;
    patch(&v, f, &mut tree[0].1, 5, b"whole");
    v.close().expect("close");
    assert_eq!(v.stats().deltas.made, 0);
    assert!(has_all(&open(device), &tree));
}

#[test]
fn a_full_volume_is_exported() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let mut tree = fill(&v);
    for n in 0..30 {
        let name = format!("many{n}");
        let (f, mut expected) = noisy_file(&v, &name, 10);
        (0..10).for_each(|page| patch(&v, f, &mut expected, page * PAGE + 9, b"small"));
        v.fsync(f, false).expect("fsync");
        tree.push((name, expected));
    }
    let f = file(&v, v.root(), "rest");
    let mut rest = 0;
    while v.write(f, rest * PAGE as u64, &noise(rest)).is_ok() {
        rest += 1;
    }
    assert!(rest > 1000 && v.space().available < 4, "{rest} pages, {:?}", v.space());
    v.close().expect("close");
    drop(v);
    let done = export(device.clone(), clock(), &mut |_, _, _| ()).expect("export");
    assert_eq!(done.folded.pages, 309);
    assert_clean(&*device);
    assert!(has_all(&open(device), &tree));
}

#[test]
fn deltas_are_folded_where_none_are_made() {
    let v = open(blank_delta(64));
    fill(&v);
    let error = v.fold_deltas(&mut |_, _| ()).expect_err("deltas are made").to_string();
    assert!(error.contains("delta=off"), "{error}");
}

#[test]
fn copies_that_disagree_mean_no_deltas() {
    for plain in [0, 1] {
        let device = Arc::new(blank_delta(64));
        let tree = fill(&open(device.clone()));
        export(device.clone(), clock(), &mut |_, _, _| ()).expect("export");
        change_superblock(&*device, 1 - plain, RawSuperblock::become_delta_volume);
        let before = device.snapshot();
        let read_only = MountOptions { read_only: true, ..MountOptions::default() };
        let v = Volume::open(device.clone(), read_only, clock()).expect("open");
        assert!(!v.superblock().is_delta_volume() && has_all(&v, &tree));
        assert_eq!(kinds(&*device), kinds(&before), "a read-only volume is not written");
        let report = medfs_fsck::check(&*device, &Default::default(), &mut |_| ()).expect("memory");
        assert!(report.has(medfs_fsck::Code::SuperblockKinds));
        let mended = Arc::new(device.snapshot());
        medfs_fsck::repair(&*mended, &Default::default(), &mut |_| ()).expect("repair");
        let exported = Arc::new(device.snapshot());
        assert!(!export(exported.clone(), clock(), &mut |_, _, _| ()).expect("export").switched);
        drop(open(device.clone()));
        for finished in [&mended, &exported, &device] {
            assert_eq!(kinds(&**finished), [false; 2]);
            assert!(has_all(&open((*finished).clone()), &tree));
        }
    }
}

#[test]
fn additions_that_are_not_known_are_read_only_or_refused() {
    let device = Arc::new(blank_delta(64));
    let tree = fill(&open(device.clone()));
    open(device.clone()).close().expect("close");
    (0..2).for_each(|copy| change_superblock(&*device, copy, |sb| sb.delta.compat = 4.into()));
    assert!(!open(device.clone()).is_read_only());
    (0..2).for_each(|copy| change_superblock(&*device, copy, |sb| sb.delta.ro_compat = 4.into()));
    let v = open(device.clone());
    assert!(v.is_read_only() && has_all(&v, &tree));
    assert!(matches!(export(device.clone(), clock(), &mut |_, _, _| ()), Err(Error::ReadOnly)));
    (0..2).for_each(|copy| change_superblock(&*device, copy, |sb| sb.delta.incompat = 64.into()));
    let error = Volume::open(device, MountOptions::default(), clock()).expect_err("refused").to_string();
    assert!(error.contains("0x40"), "{error}");
}

/// Changes a byte of the only zone on a device that holds this text, and seals the inode again.
fn damage_delta(device: &MemDevice, text: &[u8]) {
    let seed = medfs_format::crc::chain(!0, &[7; 16]);
    let mut damaged = 0;
    for addr in 0..device.block_count() {
        let mut block = read_block(device, addr).expect("memory");
        let Some(place) = find(&block.0, text) else { continue };
        let f = *medfs_format::node::footer(&block);
        if f.nid != f.ino || f.nid.get() == 0 {
            continue;
        }
        block.0[place] ^= 1;
        block.view_mut::<medfs_format::node::RawInode>().seal(seed);
        device.write(addr, &[&block], WriteTag::new(Cause::Node, Temperature::Hot)).expect("memory");
        damaged += 1;
    }
    assert!(damaged > 0, "no delta holds {text:?}");
}

#[test]
fn a_wrong_delta_is_an_error_of_its_page_alone_and_never_the_base() {
    let device = Arc::new(blank_delta(64));
    let v = open(device.clone());
    let (f, mut expected) = noisy_file(&v, "f", 8);
    patch(&v, f, &mut expected, 2 * PAGE + 50, b"right");
    patch(&v, f, &mut expected, 5 * PAGE + 50, b"wrong");
    v.close().expect("close");
    drop(v);
    damage_delta(&device, b"wrong");
    let v = open(device.clone());
    let f = at(&v, "f").expect("the file").ino;
    let mut page = vec![0; PAGE];
    for index in 0..8 {
        let read = v.read(f, (index * PAGE) as u64, &mut page);
        if index == 5 {
            let error = read.expect_err("a wrong delta");
            assert_eq!(error.errno(), 117, "{error}");
            assert!(error.to_string().contains("for page 5"), "{error}");
        } else {
            assert_eq!(read.expect("read"), PAGE);
            assert_eq!(page, expected[index * PAGE..][..PAGE]);
        }
    }
    v.close().expect("close");
    drop(v);
    let error =
        export(device.clone(), clock(), &mut |_, _, _| ()).expect_err("it cannot be folded").to_string();
    assert!(error.contains("for page 5"), "{error}");
    assert_eq!(kinds(&*device), [true; 2], "the volume stays as it is");
    // A whole new content needs no base.
    let v = open(device.clone());
    v.write(f, 5 * PAGE as u64, &noise(50)).expect("write");
    v.close().expect("close");
    export(device, clock(), &mut |_, _, _| ()).expect("export");
}
