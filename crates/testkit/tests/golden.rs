//! Volumes that the kernel's f2fs wrote, and what the kernel itself shows of them: medfs shows the same.
//!
//! `tests/golden` holds pairs: an image as `mkfs.f2fs` and the kernel left it, and a manifest, one JSON object for each
//! path. Images named `crash-*` are as a crash left them; their manifests are what the kernel shows after its own
//! recovery. `tools/golden` makes them, `tools/manifest.py` tells the fields.

mod common;

use common::{golden, load_image, unpacked, volumes};
use medfs::convert::{export, import};
use medfs::{Attr, FileKind, Files, Ino, ManualClock, MountOptions, Posix, Seek, Timestamp, Volume};
use medfs_device::MemDevice;
use medfs_format::BLOCK_SIZE;
use medfs_testkit::images::{FsckF2fs, FsckMedfs};
use medfs_testkit::subject::Check;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

/// The chattr flags that a user sets.
const USER_FLAGS: u32 = COMPR | 0x400 | 0x8 | 0x10 | 0x20 | 0x40 | 0x80 | 0x1_0000 | 0x2000_0000;

/// That of a compressed file. Of such the kernel's (6.1) SEEK_DATA leaves out the first page of a cluster.
const COMPR: u32 = 0x4;

type Manifest = BTreeMap<String, Map<String, Value>>;

fn load_manifest(path: &Path) -> Manifest {
    let mut text = String::new();
    unpacked(path).read_to_string(&mut text).expect("the manifest is text");
    let lines = text.lines().map(|line| match serde_json::from_str(line) {
        Ok(Value::Object(mut entry)) => {
            if entry.get("flags").and_then(Value::as_u64).is_some_and(|flags| flags & u64::from(COMPR) != 0) {
                entry.remove("data");
            }
            (entry["path"].as_str().expect("a path").to_owned(), entry)
        }
        other => panic!("{line}: {other:?}"),
    });
    lines.collect()
}

fn escape(bytes: &[u8]) -> String {
    let one = |&b: &u8| {
        if (32..127).contains(&b) && b != b'%' { char::from(b).to_string() } else { format!("%{b:02X}") }
    };
    bytes.iter().map(one).collect()
}

fn time(t: Timestamp) -> Value {
    json!(format!("{}.{:09}", t.secs, t.nanos))
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Regular => "file",
        FileKind::Directory => "dir",
        FileKind::CharDevice => "char",
        FileKind::BlockDevice => "block",
        FileKind::Fifo => "fifo",
        FileKind::Socket => "socket",
        FileKind::Symlink => "symlink",
    }
}

/// Extents of data, as SEEK_DATA and SEEK_HOLE tell them.
fn extents(v: &Volume, ino: Ino, size: u64) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match v.seek(ino, at, Seek::Data) {
            Ok(start) => start,
            Err(medfs::Error::Posix(Posix::NoSuchAddress)) => break,
            Err(e) => panic!("inode {ino}: {e}"),
        };
        at = v.seek(ino, start, Seek::Hole).expect("a hole follows, at the end at the latest");
        assert!(at > start, "inode {ino}: no progress at {start}");
        found.push((start, at.min(size) - start));
    }
    found
}

/// SHA-256 over number and content of every page that is not zero.
fn digest(v: &Volume, ino: Ino, size: u64) -> String {
    const READ_ALL: u64 = 64 << 20;
    let ranges = if size <= READ_ALL { vec![(0, size)] } else { extents(v, ino, size) };
    let mut hash = Sha256::new();
    for (start, len) in ranges {
        let page_size = BLOCK_SIZE as u64;
        for index in start / page_size..(start + len).div_ceil(page_size) {
            let mut page = [0; BLOCK_SIZE];
            v.read(ino, index * page_size, &mut page).expect("the file reads");
            if page != [0; BLOCK_SIZE] {
                hash.update(index.to_le_bytes());
                hash.update(page);
            }
        }
    }
    hash.finalize().iter().map(|b| format!("{b:02x}")).collect()
}

fn describe(v: &Volume, path: &str, a: &Attr) -> Map<String, Value> {
    let mut entry = json!({
        "path": path, "type": kind(a.kind), "mode": format!("{:04o}", a.perm), "uid": a.uid, "gid": a.gid,
        "nlink": a.nlink, "size": a.size, "ino": a.ino, "blocks": a.blocks,
        "atime": time(a.atime), "mtime": time(a.mtime), "ctime": time(a.ctime),
        "flags": a.flags.bits() & USER_FLAGS, "project": a.project,
    });
    if let Some(t) = a.crtime {
        entry["btime"] = time(t);
    }
    match a.kind {
        FileKind::CharDevice | FileKind::BlockDevice => {
            let (major, minor) = ((a.rdev >> 8) & 0xfff, (a.rdev & 0xff) | ((a.rdev >> 12) & 0xfff00));
            entry["rdev"] = json!([major, minor]);
        }
        FileKind::Symlink => entry["target"] = json!(escape(&v.readlink(a.ino).expect("readlink"))),
        FileKind::Regular => {
            if a.flags.bits() & COMPR == 0 {
                entry["data"] = json!(extents(v, a.ino, a.size));
            }
            entry["sha256"] = json!(digest(v, a.ino, a.size));
        }
        _ => {}
    }
    let mut xattrs = Map::new();
    for name in v.listxattr(a.ino).expect("the attributes list") {
        let value = v.getxattr(a.ino, &name).expect("a listed attribute reads");
        let hex: String = value.iter().map(|b| format!("{b:02x}")).collect();
        xattrs.insert(String::from_utf8(name).expect("a name of the test tree"), json!(hex));
    }
    entry["xattr"] = Value::Object(xattrs);
    let Value::Object(entry) = entry else { unreachable!() };
    entry
}

fn walk(v: &Volume, dir: Ino, prefix: &str, found: &mut Manifest) {
    let mut names = Vec::new();
    v.readdir(dir, 0, &mut |e| {
        names.push(e.name);
        true
    })
    .unwrap_or_else(|e| panic!("{prefix}: {e}"));
    for name in names.into_iter().filter(|n| n != b"." && n != b"..") {
        let path = format!("{prefix}{}", escape(&name));
        let attr = v.lookup(dir, &name).unwrap_or_else(|e| panic!("{path}: {e}"));
        found.insert(path.clone(), describe(v, &path, &attr));
        if attr.kind == FileKind::Directory {
            walk(v, attr.ino, &format!("{path}/"), found);
        }
        v.release(attr.ino, 1);
    }
}

fn manifest_of(v: &Volume) -> Manifest {
    let root = v.getattr(v.root()).expect("the root");
    let mut found = Manifest::from([(".".to_owned(), describe(v, ".", &root))]);
    walk(v, v.root(), "", &mut found);
    found
}

/// Differences between what the kernel shows and what medfs shows, for each field that the kernel's manifest has.
fn differences(kernel: &Manifest, medfs: &Manifest) -> Vec<String> {
    let mut found = Vec::new();
    for path in medfs.keys().filter(|p| !kernel.contains_key(*p)) {
        found.push(format!("{path}: the kernel does not have it"));
    }
    for (path, expected) in kernel {
        let Some(got) = medfs.get(path) else {
            found.push(format!("{path}: missing"));
            continue;
        };
        for (field, value) in expected.iter().filter(|(field, value)| got.get(*field) != Some(value)) {
            found.push(format!("{path}: {field} is {}, not {value}", got.get(field).unwrap_or(&Value::Null)));
        }
        let extra =
            got["xattr"].as_object().is_some_and(|x| !x.is_empty()) && !expected.contains_key("xattr");
        if extra {
            found.push(format!("{path}: has attributes {}", got["xattr"]));
        }
    }
    found
}

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(Timestamp { secs: 1_800_000_000, nanos: 0 }))
}

fn open(device: Arc<MemDevice>, options: &str) -> Volume {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options");
    Volume::open(device, parsed, clock()).expect("the kernel's volume opens")
}

fn load(name: &str) -> (MemDevice, Manifest) {
    let path = |suffix: &str| golden().join(format!("{name}.{suffix}.zst"));
    (load_image(&path("img")), load_manifest(&path("manifest")))
}

fn check(name: &str, options: &str) {
    let (device, kernel) = load(name);
    let volume = open(Arc::new(device), options);
    let differences = differences(&kernel, &manifest_of(&volume));
    assert!(differences.is_empty(), "{name} opened with {options}:\n{}", differences.join("\n"));
    volume.close().expect("it closes");
}

#[test]
fn trees_of_the_kernel_are_shown_as_the_kernel_shows_them() {
    let names = volumes("tree-");
    assert!(names.len() >= 4, "{names:?}");
    for name in names {
        check(&name, "noatime");
        check(&name, "ro");
    }
}

#[test]
fn what_the_kernel_fsynced_before_a_crash_is_recovered_as_the_kernel_does() {
    let names = volumes("crash-");
    assert!(names.len() >= 5, "{names:?}");
    for name in names {
        check(&name, "noatime");
    }
}

/// Changes some bytes in the first and last page of each file that may be changed, and fsyncs it.
fn update(v: &Volume, tree: &Manifest) {
    let free =
        |entry: &Map<String, Value>| entry["flags"].as_u64().is_some_and(|f| f & !u64::from(COMPR) == 0);
    let may = |entry: &&Map<String, Value>| entry["type"] == "file" && free(entry);
    for entry in tree.values().filter(may) {
        let number = |field: &str| entry[field].as_u64().expect("a number");
        let (ino, last) = (number("ino") as Ino, number("size").saturating_sub(1) & !0xfff);
        v.write(ino, last, b"delta").unwrap_or_else(|e| panic!("{}: {e}", entry["path"]));
        v.write(ino, 0, b"delta").expect("write");
        v.fsync(ino, false).expect("fsync");
    }
}

#[test]
fn volumes_of_the_kernel_go_there_and_back() {
    let (mut deltas, mut laid_out) = (Vec::new(), 0);
    for name in volumes("") {
        let (device, kernel) = load(&name);
        let device = Arc::new(device);
        let done = import(device.clone(), clock()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(done.switched, "{name}");
        laid_out += done.layouts.inodes;
        let volume = open(device.clone(), "noatime");
        let imported = manifest_of(&volume);
        let mut differ = differences(&kernel, &imported);
        if done.layouts.inodes > 0 {
            // Nodes with attributes, and those of pages that moved, come and go.
            differ.retain(|difference| !difference.contains(": blocks is "));
        }
        assert!(differ.is_empty(), "{name}: {differ:?}");
        update(&volume, &imported);
        volume.sync().expect("sync");
        let changed = manifest_of(&volume);
        deltas.push(volume.stats().deltas.made);
        // Compressed files have none.
        let least = if name.contains("compressed") { 1 } else { 3 };
        assert!(deltas.last() >= Some(&least), "{name}: {deltas:?}");
        volume.close().expect("close");
        FsckMedfs.check(device.clone()).unwrap_or_else(|e| panic!("{name}, with deltas: {e}"));

        let done = export(device.clone(), clock(), &mut |_, _, _| ()).expect("export");
        assert_eq!(done.folded.pages > 0, deltas.last() > Some(&0), "{name}");
        FsckMedfs.check(device.clone()).unwrap_or_else(|e| panic!("{name}, exported: {e}"));
        FsckF2fs.check(device.clone()).unwrap_or_else(|e| panic!("{name}, exported: {e}"));
        let exported = manifest_of(&open(device, "noatime"));
        assert!(
            differences(&changed, &exported).is_empty(),
            "{name}: {:?}",
            differences(&changed, &exported)
        );
    }
    assert!(deltas.len() >= 4 && laid_out > 100, "{deltas:?}, {laid_out} inodes laid out");
}

#[test]
fn a_difference_is_found() {
    let (device, kernel) = load("tree-plain");
    let volume = open(Arc::new(device), "noatime");
    let f =
        volume.lookup(volume.root(), b"acl").and_then(|d| volume.lookup(d.ino, b"file")).expect("acl/file");
    volume.write(f.ino, 1, b"?").expect("write");
    let found = differences(&kernel, &manifest_of(&volume));
    assert!(found.iter().all(|d| d.starts_with("acl/file: ")) && found.len() >= 3, "{found:?}");
    assert!(found.iter().any(|d| d.contains("sha256")), "{found:?}");
}
