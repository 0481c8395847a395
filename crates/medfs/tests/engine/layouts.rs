//! Import of volumes without the features that deltas need: what every inode becomes, and what every crash on
//! the way leaves.

use crate::common::*;
use medfs::convert::{Import, ImportOptions, Phase, export, import};
use medfs::{
    Attr, FallocateMode, FileFlags, FileKind, Files, Ino, ManualClock, NewFile, SetAttr, Volume, XattrMode,
};
use medfs_device::crash::{CrashPlan, Event, RecordingDevice};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::node::{Advise, Inline, RawInode, footer};
use medfs_format::superblock::{DELTA_FEATURES, Feature, RawSuperblock};
use medfs_fsck::dump::{Dump, Record, Value};
use medfs_testkit::images::{FsckMedfs, formatted};
use medfs_testkit::subject::Check;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Addresses in an inode with an inline xattr area, in the old layout and in the new one; and in one without,
/// in the old one.
const ADDRS: u64 = 873;
const ALL_ADDRS: u64 = 923;
/// Addresses in a direct node, and nids in an indirect one.
const A: u64 = 1018;

/// Attributes of a path that an import leaves alone, its content or target, and its extended attributes.
type Shown = (String, Vec<u8>, BTreeMap<Vec<u8>, Vec<u8>>);
type Tree = BTreeMap<String, Shown>;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START))
}

/// The pages of a file that are not zero, each with its number.
fn pages(v: &Volume, a: &Attr) -> Vec<u8> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Ok(start) = v.seek(a.ino, at, medfs::Seek::Data) {
        at = v.seek(a.ino, start, medfs::Seek::Hole).expect("a hole");
        for offset in (start..at).step_by(PAGE) {
            let mut page = vec![0; PAGE];
            v.read(a.ino, offset, &mut page).expect("it reads");
            found.extend(offset.to_le_bytes());
            found.extend(page);
        }
    }
    found
}

fn show(v: &Volume, a: &Attr) -> Shown {
    let content = match a.kind {
        FileKind::Regular => pages(v, a),
        FileKind::Symlink => v.readlink(a.ino).expect("a target"),
        _ => Vec::new(),
    };
    let names = v.listxattr(a.ino).expect("attributes");
    let xattrs = names.into_iter().map(|name| {
        let value = v.getxattr(a.ino, &name).expect("a value");
        (name, value)
    });
    // An xattr node is a block of the file.
    (format!("{:?}", Attr { blocks: 0, ..*a }), content, xattrs.collect())
}

fn walk(v: &Volume, dir: Ino, path: &str, tree: &mut Tree) {
    for name in names(v, dir) {
        let path = format!("{path}/{name}");
        let a = at(v, &path).expect("a listed name");
        tree.insert(path.clone(), show(v, &a));
        if a.kind == FileKind::Directory {
            walk(v, a.ino, &path, tree);
        }
    }
}

fn tree_of(v: &Volume) -> Tree {
    let mut tree = Tree::from([("/".to_owned(), show(v, &at(v, "").expect("the root")))]);
    walk(v, v.root(), "", &mut tree);
    tree
}

#[track_caller]
fn assert_same(expected: &Tree, found: &Tree, when: &str) {
    let paths: Vec<&String> = expected.keys().chain(found.keys()).collect();
    let differ = paths.into_iter().filter(|path| expected.get(*path) != found.get(*path));
    let differ: Vec<&String> = differ.collect();
    assert!(differ.is_empty(), "{when}: {differ:?}");
}

/// Pages of noise at some places of a file.
fn sparse(v: &Volume, name: &str, places: &[u64]) -> Ino {
    let f = file(v, v.root(), name);
    for &page in places {
        write(v, f, page * PAGE as u64, &noise(page));
    }
    f
}

fn fill_dir(v: &Volume, name: &str, entries: u64) -> Ino {
    let d = dir(v, v.root(), name);
    for n in 0..entries {
        let f = file(v, d, &format!("entry-{n:05}"));
        v.release(f, 1);
    }
    d
}

fn symlink(v: &Volume, name: &str, len: usize) {
    v.symlink(v.root(), name.as_bytes(), &vec![b't'; len], 0, 0).expect("a link");
}

/// Files of every shape that the layout of an inode depends on.
fn fill(v: &Volume) {
    for (name, bytes) in [("empty", 0), ("inline", 100), ("inline-full", 3488), ("inline-largest", 3688)] {
        let f = file(v, v.root(), name);
        write(v, f, 0, &noise(9)[..bytes]);
    }
    let (mine, all) = (ADDRS, ALL_ADDRS);
    sparse(v, "addresses", &[0, 1, 7, 300]);
    sparse(v, "last-address", &[0, mine - 1]);
    sparse(v, "in-the-area", &[0, mine - 1, mine, all - 1]);
    sparse(v, "first-node", &[0, mine, all - 1, all, all + 60, mine + A - 1, mine + A, all + A, all + A + 3]);
    sparse(v, "second-full", &[mine + 2 * A - 1, all + 2 * A - 1]);
    sparse(v, "indirect", &[4, mine + 2 * A, all + 2 * A, all + 2 * A + 77, all + 5 * A - 1, all + 5 * A]);
    let double = 2 * A + 2 * A * A;
    let f =
        sparse(v, "double", &[0, mine + double - 1, all + double - 1, all + double, all + double + 3 * A]);
    v.setxattr(f, b"user.some", b"value", XattrMode::Set).expect("set");
    let f = sparse(v, "reserved", &[1, 2]);
    v.fallocate(f, FallocateMode::KEEP_SIZE, 900 << 12, 60 << 12).expect("reserved");
    for (name, most) in [("few", 20), ("tight", 165), ("over", 400), ("most", 4300)] {
        let f = sparse(v, &format!("xattr-{name}"), &[0, mine + 4]);
        let value = [noise(3), noise(4)].concat();
        let mut sizes = (20..=most).rev();
        assert!(sizes.any(|bytes| v.setxattr(f, b"user.name", &value[..bytes], XattrMode::Set).is_ok()));
    }
    let d = fill_dir(v, "small-dir", 6);
    v.setxattr(d, b"trusted.of-a-dir", &noise(4)[..165], XattrMode::Set).expect("set");
    fill_dir(v, "full-dir", 120);
    let d = fill_dir(v, "large-dir", 900);
    v.setxattr(d, b"user.large", &noise(4)[..1000], XattrMode::Set).expect("set");
    dir(v, d, "below");
    for len in [10, 3487, 3600, 4000] {
        symlink(v, &format!("link-{len}"), len);
    }
    for (name, rdev) in [("old-device", 0x0103), ("new-device", 0x0012_3456)] {
        let new = NewFile { rdev, ..new(FileKind::CharDevice) };
        v.create(v.root(), name.as_bytes(), &new).expect("a device");
    }
    let f = at(v, "first-node").expect("a file");
    v.link(f.ino, v.root(), b"second-name").expect("linked");
    v.set_flags(f.ino, FileFlags::IMMUTABLE).expect("flags");
    v.setattr(at(v, "inline").expect("a file").ino, &SetAttr { uid: Some(7), ..SetAttr::default() })
        .expect("an owner");
    v.fsync(at(v, "indirect").expect("a file").ino, false).expect("fsync");
    v.sync().expect("sync");
}

/// Mount options of those who made the files: by default, without the area, without inline content.
const MAKERS: [&str; 3] = ["", "noinline_xattr", "noinline_data,noinline_dentry,noinline_xattr"];
/// What the volumes have before.
fn kinds_of_volumes() -> [Feature; 4] {
    let extra = Feature::EXTRA_ATTR;
    [Feature::empty(), extra, extra | Feature::INODE_CHECKSUM, extra | Feature::FLEXIBLE_INLINE_XATTR]
}

fn filled(features: Feature, maker: &str) -> (Arc<MemDevice>, Tree) {
    let device = Arc::new(blank(64, features));
    let v = open_device(&device, maker);
    fill(&v);
    let tree = tree_of(&v);
    v.close().expect("close");
    (device, tree)
}

fn superblock(device: &dyn BlockDevice) -> RawSuperblock {
    RawSuperblock::in_block(&read_block(device, 0).expect("memory")).clone()
}

fn number(inode: &Record, field: &str) -> u64 {
    match inode.get(field) {
        Some(Value::Number(n)) => *n,
        other => panic!("{field}: {other:?} in {inode}"),
    }
}

#[test]
fn every_shape_of_file_is_imported_and_exported() {
    for features in kinds_of_volumes() {
        for maker in MAKERS {
            let when = format!("{features:?}, {maker}");
            let (device, tree) = filled(features, maker);
            judge(&device);
            let mut phases = Vec::new();
            let plan = Import::plan(device.clone(), clock(), ImportOptions::default(), &mut |phase, _, _| {
                phases.push(phase)
            })
            .expect("a plan");
            let (planned, before) = (*plan.of(), device.snapshot());
            assert!(
                phases.iter().all(|&phase| phase == Phase::Survey) && phases.len() as u64 == planned.inodes
            );
            assert!(planned.switches && planned.needed_blocks < planned.free_blocks, "{when}: {planned:?}");
            let done =
                plan.run(&mut |phase, _, _| phases.push(phase)).unwrap_or_else(|e| panic!("{when}: {e}"));
            assert_eq!(done.layouts, planned.layouts, "{when}");
            assert!(done.layouts.inodes > 0 || features.contains(Feature::EXTRA_ATTR), "{when}: {done:?}");
            assert_eq!(phases.contains(&Phase::Complete), features.contains(Feature::EXTRA_ATTR), "{when}");
            let sb = superblock(&*device);
            assert!(sb.is_delta_volume() && !sb.has_old_layouts() && sb.features().contains(DELTA_FEATURES));
            judge(&device);
            let v = open_device(&device, "");
            assert_same(&tree, &tree_of(&v), &format!("{when}, imported"));
            drop(v);
            assert!(!import(device.clone(), clock()).expect("again").switched);
            let free = open_device(&before.into(), "").space().free;
            let used = free.saturating_sub(open_device(&device, "").space().free);
            assert!(used <= planned.layouts.new_blocks, "{when}: {used} blocks more, {planned:?}");

            export(device.clone(), clock(), &mut |_, _, _| ()).expect("export");
            judge(&device);
            assert_same(&tree, &tree_of(&open_device(&device, "")), &format!("{when}, exported"));
        }
    }
}

#[test]
fn pages_keep_their_places_where_there_was_an_area() {
    let (device, _) = filled(Feature::empty(), "");
    let shape = |device: &MemDevice, path: &str| {
        let inode = Dump::open(device).expect("open").path(path).expect("the inode");
        (inode.get("i_nid").cloned(), number(&inode, "i_size"))
    };
    let files = ["first-node", "indirect", "double"];
    let before = files.map(|path| shape(&device, path));
    let done = import(device.clone(), clock()).expect("import");
    // One file has so many attributes that its area cannot give anything away.
    assert_eq!(done.layouts.moved_files, 1);
    assert_eq!(files.map(|path| shape(&device, path)), before);
    let inode = Dump::open(&*device).expect("open").path("double").expect("the inode");
    let fields = ["i_extra_isize", "i_inline_xattr_size"].map(|field| number(&inode, field));
    assert_eq!(fields, [12, 47]);
}

#[test]
fn files_take_deltas_after_the_import() {
    let device = Arc::new(blank(64, Feature::empty()));
    let v = open_device(&device, "");
    let mut files = ["a.db", "b"].map(|name| (name, noisy_file(&v, name, 20)));
    v.close().expect("close");
    import(device.clone(), clock()).expect("import");
    let v = open_device(&device, "");
    for (name, (f, content)) in &mut files {
        *f = at(&v, name).expect("the file").ino;
        patch(&v, *f, content, 5 * PAGE + 9, b"small");
        v.fsync(*f, false).expect("fsync");
    }
    assert_eq!(v.stats().deltas.made, 2);
    drop(v);
    let v = open_device(&device, "");
    assert!(files.iter().all(|(_, (f, expected))| content(&v, *f) == *expected));
}

/// A volume on which an import was interrupted in the middle: so many inodes make more than one checkpoint.
fn half_imported(maker: &str) -> (Arc<MemDevice>, Tree) {
    let base = Arc::new(blank(128, Feature::empty()));
    let v = open_device(&base, maker);
    fill(&v);
    fill_dir(&v, "many", 2600);
    // Files with pages that the import has not reached.
    for name in ["late.db", "late"] {
        noisy_file(&v, name, 30);
    }
    sparse(&v, "late-large", &[0, 5, ADDRS, ALL_ADDRS + 3]);
    let tree = tree_of(&v);
    v.close().expect("close");
    let recorder = Arc::new(RecordingDevice::new(&base));
    let all = import(recorder.clone(), clock()).expect("import").layouts.inodes;
    let device = Arc::new(base.snapshot());
    for event in recorder.recording().log() {
        if let Event::Write { addr, content, cause, .. } = event {
            let block = medfs_format::Block(**content);
            device.write(*addr, &[&block], WriteTag::new(*cause, Temperature::Cold)).expect("memory");
        } else if matches!(event, Event::Flush { .. }) && superblock(&*device).has_old_layouts() {
            let plan = Import::plan(device.clone(), clock(), ImportOptions::default(), &mut |_, _, _| ())
                .expect("a plan");
            if (100..all - 100).contains(&plan.of().layouts.inodes) {
                return (device, tree);
            }
        }
    }
    panic!("no state in the middle was found");
}

#[test]
fn half_an_import_is_a_volume_that_everything_understands() {
    for maker in MAKERS {
        let (device, tree) = half_imported(maker);
        let sb = superblock(&*device);
        assert!(sb.has_old_layouts() && sb.is_delta_volume());
        FsckMedfs.check(device.clone()).expect("medfs fsck");
        let v = open_device(&device, "");
        assert_same(&tree, &tree_of(&v), maker);
        // Files of either layout are changed, fsynced and found after a crash.
        let mut expected = Tree::new();
        let chosen = |n: usize, path: &str| n.is_multiple_of(3) || path.starts_with("/late");
        for (n, path) in tree.keys().enumerate().filter(|(n, path)| chosen(*n, path)) {
            let a = at(&v, path).expect("a path");
            if a.kind == FileKind::Regular && a.flags.is_empty() {
                write(&v, a.ino, a.size / 2, format!("change {n}").as_bytes());
                v.setxattr(a.ino, b"user.change", b"after", XattrMode::Set).ok();
                v.fsync(a.ino, false).expect("fsync");
                expected.insert(path.clone(), show(&v, &v.getattr(a.ino).expect("attributes")));
            }
        }
        assert!(expected.len() > 100 && expected.contains_key("/late.db"), "{}", expected.len());
        let late = Dump::open(&*device).expect("open").path("late.db").expect("the inode");
        assert_eq!(late.get("i_extra_isize"), None, "{late}");
        let crashed = Arc::new(device.snapshot());
        drop(v);
        let v = open_device(&crashed, "");
        let changed = tree_of(&v);
        for (path, shown) in &expected {
            assert_eq!(changed[path].1, shown.1, "{maker}: {path}");
            assert_eq!(changed[path].2, shown.2, "{maker}: {path}");
        }
        v.close().expect("close");
        FsckMedfs.check(crashed.clone()).expect("medfs fsck");
        // An export ends the import first.
        let exported = Arc::new(crashed.snapshot());
        assert!(export(exported.clone(), clock(), &mut |_, _, _| ()).expect("export").switched);
        judge(&exported);
        assert_same(&changed, &tree_of(&open_device(&exported, "")), maker);
        assert!(!import(crashed.clone(), clock()).expect("import").switched);
        assert!(!superblock(&*crashed).has_old_layouts());
        judge(&crashed);
        assert_same(&changed, &tree_of(&open_device(&crashed, "")), maker);
    }
}

#[test]
fn some_crashes_of_an_import_are_resumed() {
    crashes_of_an_import(&[(Feature::empty(), MAKERS[0]), (Feature::EXTRA_ATTR, MAKERS[1])], 2);
}

#[test]
#[ignore = "takes minutes"]
fn every_crash_of_an_import_is_resumed() {
    let all = Feature::EXTRA_ATTR | Feature::SB_CHECKSUM;
    let makers =
        [Feature::empty(), Feature::EXTRA_ATTR, all].map(|features| MAKERS.map(|maker| (features, maker)));
    crashes_of_an_import(&makers.concat(), 16);
}

fn crashes_of_an_import(volumes: &[(Feature, &str)], exhaustive: usize) {
    for &(features, maker) in volumes {
        let device = Arc::new(blank(64, features));
        let v = open_device(&device, maker);
        sparse(&v, "large", &[0, ADDRS, ALL_ADDRS, ALL_ADDRS + A]);
        let f = file(&v, v.root(), "inline");
        write(&v, f, 0, &noise(9)[..3600]);
        v.setxattr(f, b"user.name", &noise(3)[..165], XattrMode::Set).expect("set");
        fill_dir(&v, "dir", 4);
        v.sync().expect("sync");
        patch(&v, f, &mut [0; 99], 9, b"fsynced");
        v.fsync(f, false).expect("fsync");
        let tree = tree_of(&v);
        let base = device.snapshot();
        drop(v);

        let recorder = Arc::new(RecordingDevice::new(&base));
        import(recorder.clone(), clock()).expect("import");
        let torn = Arc::new(|addr: u64, _: Cause, _: &[u8; PAGE]| addr < 2);
        let plan = CrashPlan { exhaustive, samples: 4, torn: Some(torn), torn_each: 12, seed: 5 };
        let (mut states, mut kinds) = (0, BTreeMap::new());
        for state in recorder.recording().states(&plan) {
            let when = format!("{features:?}, {maker}: {state:?}");
            let device = Arc::new(state.device());
            let v = open_device(&device, "");
            assert_same(&tree, &tree_of(&v), &when);
            v.close().expect("close");
            let sb = superblock(&*device);
            *kinds.entry((sb.is_delta_volume(), sb.has_old_layouts())).or_insert(0) += 1;
            let check = |device: &Arc<MemDevice>, judges: bool| match judges {
                true => judge(device),
                false => FsckMedfs.check(device.clone()).unwrap_or_else(|e| panic!("{when}: {e}")),
            };
            check(&device, !sb.is_delta_volume() && states % 8 == 0);
            import(device.clone(), clock()).unwrap_or_else(|e| panic!("{when}: {e}"));
            assert!(!superblock(&*device).has_old_layouts());
            assert_same(&tree, &tree_of(&open_device(&device, "")), &when);
            check(&device, states % 8 == 0);
            states += 1;
        }
        assert_eq!(kinds.len(), 3, "{kinds:?}");
        assert!(states > 40, "{states} states");
    }
}

/// A volume that is full but for so many blocks.
fn full(features: Feature, maker: &str, left: u64) -> (Arc<MemDevice>, Tree) {
    let (device, _) = filled(features, maker);
    let v = open_device(&device, maker);
    let f = file(&v, v.root(), "rest");
    let mut page = 0;
    while v.space().free > left && v.write(f, page * PAGE as u64, &noise(page)).is_ok() {
        page += 1;
    }
    v.sync().expect("sync");
    let tree = tree_of(&v);
    v.close().expect("close");
    (device, tree)
}

#[test]
fn a_full_volume_is_imported_or_refused_before_anything_is_written() {
    for maker in MAKERS {
        let (device, tree) = full(Feature::empty(), maker, 0);
        let before = device.snapshot();
        let needed = Import::plan(
            Arc::new(filled(Feature::empty(), maker).0.snapshot()),
            clock(),
            ImportOptions::default(),
            &mut |_, _, _| (),
        )
        .expect("a plan")
        .of()
        .needed_blocks;
        let error = import(device.clone(), clock()).expect_err("refused").to_string();
        assert!(error.contains("free blocks") && error.contains("the volume has 0"), "{error}");
        for addr in 0..device.block_count() {
            let read = |device: &MemDevice| read_block(device, addr).expect("memory").0;
            assert!(read(&device) == read(&before), "block {addr}");
        }
        assert!(needed > 0 && tree.len() > 100);
        // The file that fills the volume is one of those that move where there is no area.
        let v = open_device(&device, "");
        let rest = at(&v, "rest").expect("the file");
        v.unlink(v.root(), b"rest").expect("unlinked");
        let f = file(&v, v.root(), "rest");
        let fits = rest.size / 4;
        for page in 0..fits / PAGE as u64 {
            write(&v, f, page * PAGE as u64, &noise(page));
        }
        v.sync().expect("sync");
        let tree = tree_of(&v);
        v.close().expect("close");
        import(device.clone(), clock()).expect("import");
        judge(&device);
        assert_same(&tree, &tree_of(&open_device(&device, "")), maker);
    }
}

#[test]
fn a_volume_with_just_the_room_that_is_said_to_be_needed_is_imported() {
    for maker in [MAKERS[0], MAKERS[1]] {
        let mut left = 0;
        let (device, tree) = loop {
            let (device, tree) = full(Feature::empty(), maker, left);
            match Import::plan(device.clone(), clock(), ImportOptions::default(), &mut |_, _, _| ()) {
                Ok(_) => break (device, tree),
                Err(_) => left = left * 3 / 2 + 2,
            }
        };
        import(device.clone(), clock()).unwrap_or_else(|e| panic!("{maker}, {left} blocks left: {e}"));
        judge(&device);
        assert_same(&tree, &tree_of(&open_device(&device, "")), maker);
    }
}

/// Changes every block of a device that is an inode block of this file.
fn change_inode(device: &MemDevice, ino: Ino, change: impl Fn(&mut RawInode)) {
    for addr in 2..device.block_count() {
        let mut block = read_block(device, addr).expect("memory");
        let f = *footer(&block);
        if (f.nid.get(), f.ino.get(), f.node_offset()) == (ino, ino, 0) {
            change(block.view_mut());
            device.write(addr, &[&block], WriteTag::new(Cause::Node, Temperature::Warm)).expect("memory");
        }
    }
}

/// What the import of a volume with one large file says, after its inode was changed; nothing is written.
fn refused_for(maker: &str, change: impl Fn(&mut RawInode)) -> String {
    let device = Arc::new(blank(64, Feature::empty()));
    let v = open_device(&device, maker);
    let f = sparse(&v, "large", &[0, ALL_ADDRS + 9]);
    v.close().expect("close");
    change_inode(&device, f, change);
    refused(device)
}

fn refused(device: Arc<MemDevice>) -> String {
    let before = device.snapshot();
    let error = import(device.clone(), clock()).expect_err("refused").to_string();
    for addr in 0..device.block_count() {
        let read = |device: &MemDevice| read_block(device, addr).expect("memory").0;
        assert!(read(&device) == read(&before), "block {addr}");
    }
    error
}

#[test]
fn what_cannot_be_imported_is_named_and_left_alone() {
    let with = |feature: Feature| {
        let device = Arc::new(blank(64, Feature::empty()));
        for copy in 0..2 {
            let mut block = read_block(&*device, copy).expect("memory");
            RawSuperblock::in_block_mut(&mut block).feature = feature.bits().into();
            device.write(copy, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold)).expect("memory");
        }
        device
    };
    for feature in [Feature::ENCRYPT, Feature::VERITY, Feature::CASEFOLD, Feature::BLKZONED] {
        let error = refused(with(feature));
        assert!(error.contains("cannot be imported") && error.contains("the volume uses"), "{error}");
    }
    let device = Arc::new(blank(64, Feature::empty()));
    let v = open_device(&device, "");
    file(&v, v.root(), ".medfs");
    v.close().expect("close");
    let error = refused(device);
    assert!(error.contains("'.medfs'") && error.contains("rename it first"), "{error}");
    let pin = |inode: &mut RawInode| inode.i_inline |= Inline::PIN_FILE.bits();
    let error = refused_for("noinline_xattr", pin);
    assert!(error.contains("inode 4 is pinned"), "{error}");
    let encrypt = |inode: &mut RawInode| inode.i_advise |= Advise::ENCRYPT.bits();
    let error = refused_for("", encrypt);
    assert!(error.contains("inode 4 is encrypted"), "{error}");
}

#[test]
fn a_pinned_file_whose_blocks_stay_is_imported() {
    let device = Arc::new(blank(64, Feature::empty()));
    let v = open_device(&device, "");
    let f = sparse(&v, "large", &[0, ALL_ADDRS + 9]);
    v.close().expect("close");
    change_inode(&device, f, |inode| inode.i_inline |= Inline::PIN_FILE.bits());
    assert_eq!(import(device.clone(), clock()).expect("import").layouts.moved_files, 0);
    judge(&device);
}

#[test]
fn volumes_of_mkfs_f2fs_are_imported() {
    for features in ["", "quota", "extra_attr,project_quota,quota", "lost_found,sb_checksum"] {
        let device = Arc::new(formatted(100, features).snapshot());
        let v = open_device(&device, "");
        fill(&v);
        let tree = tree_of(&v);
        v.close().expect("close");
        let done = import(device.clone(), clock()).unwrap_or_else(|e| panic!("{features}: {e}"));
        assert!(done.switched && done.layouts.inodes > 0, "{features}: {done:?}");
        judge(&device);
        assert_same(&tree, &tree_of(&open_device(&device, "")), features);
        export(device.clone(), clock(), &mut |_, _, _| ()).expect("export");
        judge(&device);
    }
}

#[test]
fn a_flipped_bit_does_not_make_an_inode_one_of_the_old_layout() {
    let (device, tree) = half_imported("");
    let changed = |device: &MemDevice, ino: Ino| {
        change_inode(device, ino, |inode| inode.i_inline &= !Inline::EXTRA_ATTR.bits());
    };
    // The root directory was reached first.
    changed(&device, 3);
    let report = medfs_fsck::check(&*device, &Default::default(), &mut |_| ()).expect("memory");
    assert!(report.has(medfs_fsck::Code::InodeChecksum), "{:?}", report.findings);
    medfs_fsck::repair(&*device, &Default::default(), &mut |_| ()).expect("repair");
    FsckMedfs.check(device.clone()).expect("medfs fsck");
    import(device.clone(), clock()).expect("import");
    assert_same(&tree, &tree_of(&open_device(&device, "")), "after the repair and the import");
}

#[test]
fn large_databases_take_deltas_where_that_is_asked_for() {
    let all = DELTA_FEATURES | Feature::SB_CHECKSUM;
    for (features, maker) in [(Feature::empty(), ""), (Feature::empty(), "noinline_xattr"), (all, "")] {
        let when = format!("{features:?}, {maker}");
        let device = Arc::new(blank(128, features));
        let v = open_device(&device, maker);
        let (f, mut expected) = noisy_file(&v, "large.db", 1900);
        v.setxattr(f, b"user.name", b"value", XattrMode::Set).expect("set");
        noisy_file(&v, "other", 1000);
        let (_, small) = noisy_file(&v, "small.db", 20);
        v.sync().expect("sync");
        let tree = tree_of(&v);
        v.close().expect("close");
        let options = ImportOptions { databases: true };
        let plan = Import::plan(device.clone(), clock(), options, &mut |_, _, _| ()).expect("a plan");
        assert_eq!(plan.of().layouts.moved_files, if maker.is_empty() { 1 } else { 2 }, "{when}");
        let recorder = Arc::new(RecordingDevice::new(&device));
        let recorded = Import::plan(recorder.clone(), clock(), options, &mut |_, _, _| ()).expect("a plan");
        recorded.run(&mut |_, _, _| ()).expect("import");
        plan.run(&mut |_, _, _| ()).expect("import");
        judge(&device);
        let v = open_device(&device, "");
        assert_same(&tree, &tree_of(&v), &when);
        let before = v.stats().deltas.made;
        for page in [0, 3, 600, 1200, 1899] {
            patch(&v, f, &mut expected, page * PAGE + 17, b"small");
            v.fsync(f, false).expect("fsync");
        }
        assert!(v.stats().deltas.made >= before + 4, "{when}: {:?}", v.stats().deltas);
        drop(v);
        let v = open_device(&device, "");
        assert!(content(&v, f) == expected && content(&v, at(&v, "small.db").expect("a file").ino) == small);
        v.close().expect("close");
        judge(&device);
        let again = Import::plan(device.clone(), clock(), options, &mut |_, _, _| ()).expect("a plan");
        assert_eq!(again.of().layouts.inodes, 0, "{when}");
        export(device.clone(), clock(), &mut |_, _, _| ()).expect("export");
        judge(&device);
        assert!(content(&open_device(&device, ""), f) == expected, "{when}");
        let plan = CrashPlan { exhaustive: 4, samples: 2, seed: 5, ..CrashPlan::default() };
        for state in recorder.recording().states(&plan).step_by(397) {
            let device = Arc::new(state.device());
            assert_same(&tree, &tree_of(&open_device(&device, "")), &format!("{when}: {state:?}"));
            FsckMedfs.check(device).unwrap_or_else(|e| panic!("{when}: {state:?}: {e}"));
        }
    }
}
