//! Names, inodes and extended attributes on volumes that `mkfs.f2fs` made and `fsck.f2fs` judges.
//!
//! Each test runs on two layouts: plain, and with extra attributes, flexible inline xattrs, checksums and
//! creation times.

use medfs::{
    Attr, Clock, DirEntry, Error, FileKind, Files, FsyncMode, Ino, ManualClock, MountOptions, NewFile, Posix,
    RenameFlags, SetAttr, Timestamp, Volume, XattrMode,
};
use medfs_device::file::{FileDevice, FileOptions};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

const LAYOUTS: [&str; 2] = ["", "extra_attr,flexible_inline_xattr,inode_checksum,inode_crtime"];

struct Image {
    dir: tempfile::TempDir,
    clock: Arc<ManualClock>,
    opts: MountOptions,
}

impl Image {
    fn new(features: &str, megabytes: u64) -> Image {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::File::create(&path).unwrap().set_len(megabytes << 20).unwrap();
        let mut mkfs = Command::new("mkfs.f2fs");
        mkfs.arg("-q").arg("-f");
        if !features.is_empty() {
            mkfs.arg("-O").arg(features);
        }
        assert!(mkfs.arg(&path).output().expect("mkfs.f2fs is needed").status.success());
        let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
        Image { dir, clock, opts: MountOptions::default() }
    }

    fn path(&self) -> std::path::PathBuf {
        self.dir.path().join("image")
    }

    fn open(&self) -> Volume {
        let dev = FileDevice::open(self.path(), FileOptions::default()).unwrap();
        Volume::open(Arc::new(dev), self.opts.clone(), self.clock.clone()).unwrap()
    }

    /// Closes the volume, has the image checked, opens it again.
    fn reopen(&self, volume: Volume) -> Volume {
        volume.close().unwrap();
        drop(volume);
        check(&self.path());
        self.open()
    }

    fn close(&self, volume: Volume) {
        drop(self.reopen(volume));
    }
}

/// Fails with what `fsck.f2fs` says where it is not content.
fn check(image: &Path) {
    let out = Command::new("fsck.f2fs")
        .arg("--dry-run")
        .arg("-f")
        .arg(image)
        .output()
        .expect("fsck.f2fs is needed");
    let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    let bad = ["[FAIL]", "[ASSERT]", "[FIX]", "Fail", "Wrong", "Mismatch"];
    let clean = out.status.success() && text.contains("Done") && !bad.iter().any(|b| text.contains(b));
    assert!(clean, "fsck.f2fs:\n{text}");
}

fn on_layouts(test: impl Fn(&Image)) {
    for features in LAYOUTS {
        eprintln!("layout {features:?}");
        test(&Image::new(features, 128));
    }
}

fn new(kind: FileKind, perm: u16) -> NewFile {
    NewFile { kind, perm, umask: 0, uid: 1000, gid: 100, rdev: 0 }
}

/// Makes something and gives the hold back.
fn make(v: &Volume, parent: Ino, name: &str, kind: FileKind) -> Attr {
    let perm = if kind == FileKind::Directory { 0o755 } else { 0o644 };
    let attr = v.create(parent, name.as_bytes(), &new(kind, perm)).unwrap();
    v.release(attr.ino, 1);
    attr
}

fn find(v: &Volume, parent: Ino, name: &str) -> Option<Attr> {
    match v.lookup(parent, name.as_bytes()) {
        Ok(attr) => {
            v.release(attr.ino, 1);
            Some(attr)
        }
        Err(Error::Posix(Posix::NotFound)) => None,
        Err(e) => panic!("{name}: {e}"),
    }
}

fn list(v: &Volume, dir: Ino) -> BTreeMap<String, DirEntry> {
    let mut all = BTreeMap::new();
    v.readdir(dir, 0, &mut |e| {
        assert!(all.insert(String::from_utf8(e.name.clone()).unwrap(), e).is_none(), "listed twice");
        true
    })
    .unwrap();
    all
}

fn names(v: &Volume, dir: Ino) -> Vec<String> {
    list(v, dir).into_keys().filter(|n| n != "." && n != "..").collect()
}

fn errno<T: std::fmt::Debug>(result: medfs::Result<T>) -> i32 {
    result.expect_err("should fail").errno()
}

#[test]
fn every_kind_of_file_is_made_and_found_again() {
    on_layouts(|image| {
        let mut v = image.open();
        let kinds = [
            ("file", FileKind::Regular, 0),
            ("dir", FileKind::Directory, 0),
            ("char", FileKind::CharDevice, 0x0103),
            ("block", FileKind::BlockDevice, 0x8_1234),
            ("wide", FileKind::CharDevice, 0x1234_5678),
            ("fifo", FileKind::Fifo, 0),
            ("socket", FileKind::Socket, 0),
        ];
        let root = v.root();
        let before = v.getattr(root).unwrap();
        for (name, kind, rdev) in kinds {
            let attr = v.create(root, name.as_bytes(), &NewFile { rdev, ..new(kind, 0o640) }).unwrap();
            assert_eq!((attr.kind, attr.perm, attr.uid, attr.gid, attr.rdev), (kind, 0o640, 1000, 100, rdev));
            assert_eq!(attr.nlink, if kind == FileKind::Directory { 2 } else { 1 });
            assert_eq!((attr.mtime, attr.ctime), (image.clock.now(), image.clock.now()));
            v.release(attr.ino, 1);
            assert_eq!(errno(v.create(root, name.as_bytes(), &new(kind, 0))), 17);
        }
        for target in ["t".to_string(), "x".repeat(3000), "y".repeat(4095)] {
            let name = format!("link{}", target.len());
            let attr = v.symlink(root, name.as_bytes(), target.as_bytes(), 7, 8).unwrap();
            assert_eq!((attr.size, attr.perm, attr.uid, attr.gid), (target.len() as u64, 0o777, 7, 8));
            v.release(attr.ino, 1);
        }
        assert_eq!(errno(v.symlink(root, b"long", &[b'x'; 4096], 0, 0)), 36);
        assert_eq!(v.getattr(root).unwrap().nlink, before.nlink + 1);
        v = image.reopen(v);
        for (name, kind, rdev) in kinds {
            let attr = find(&v, root, name).unwrap();
            assert_eq!((attr.kind, attr.rdev), (kind, rdev), "{name}");
            assert_eq!(list(&v, root)[name].kind, Some(kind));
            assert_eq!(list(&v, root)[name].ino, attr.ino);
        }
        for len in [1, 3000, 4095] {
            let attr = find(&v, root, &format!("link{len}")).unwrap();
            assert_eq!(v.readlink(attr.ino).unwrap().len(), len);
        }
        assert_eq!(errno(v.readlink(root)), 22);
        for name in names(&v, root) {
            if name == "dir" { v.rmdir(root, name.as_bytes()) } else { v.unlink(root, name.as_bytes()) }
                .unwrap();
        }
        assert_eq!(v.getattr(root).unwrap().nlink, before.nlink);
        image.close(v);
    });
}

#[test]
fn names_that_cannot_be_are_refused() {
    let image = Image::new(LAYOUTS[1], 128);
    let v = image.open();
    let root = v.root();
    let file = make(&v, root, "file", FileKind::Regular);
    let dir = make(&v, root, "dir", FileKind::Directory);
    make(&v, dir.ino, "inside", FileKind::Regular);
    let regular = new(FileKind::Regular, 0o600);
    assert_eq!(errno(v.create(root, &[b'n'; 256], &regular)), 36);
    assert_eq!(errno(v.lookup(root, &[b'n'; 256])), 36);
    assert_eq!(errno(v.create(root, b"", &regular)), 22);
    assert_eq!(errno(v.create(root, b"a/b", &regular)), 22);
    assert_eq!(errno(v.create(root, b"..", &regular)), 17);
    assert_eq!(errno(v.create(file.ino, b"a", &regular)), 20);
    assert_eq!(errno(v.create(999_999, b"a", &regular)), 116);
    assert_eq!(errno(v.unlink(root, b"dir")), 21);
    assert_eq!(errno(v.rmdir(root, b"file")), 20);
    assert_eq!(errno(v.rmdir(root, b"dir")), 39);
    assert_eq!(errno(v.unlink(root, b"none")), 2);
    assert_eq!(errno(v.rmdir(dir.ino, b".")), 22);
    assert_eq!(errno(v.rmdir(dir.ino, b"..")), 39);
    assert_eq!(errno(v.link(dir.ino, root, b"hard")), 1);
    assert_eq!(errno(v.link(file.ino, root, b"dir")), 17);
    make(&v, root, &"n".repeat(255), FileKind::Regular);
    assert_eq!(v.lookup(dir.ino, b"..").unwrap().ino, root);
    assert_eq!(v.lookup(dir.ino, b".").unwrap().ino, dir.ino);
    assert_eq!(v.lookup(root, b"..").unwrap().ino, root);
    image.close(v);
}

#[test]
fn links_count_and_the_last_one_frees() {
    on_layouts(|image| {
        let v = image.open();
        let root = v.root();
        let file = make(&v, root, "a", FileKind::Regular);
        v.write(file.ino, 0, &vec![7; 3 << 20]).unwrap();
        v.sync().unwrap();
        let full = v.space().free;
        for i in 0..50 {
            let attr = v.link(file.ino, root, format!("link{i}").as_bytes()).unwrap();
            assert_eq!(attr.nlink, i + 2);
            v.release(attr.ino, 1);
        }
        v.unlink(root, b"a").unwrap();
        (0..50).for_each(|i| v.unlink(root, format!("link{i}").as_bytes()).unwrap());
        assert_eq!(errno(v.getattr(file.ino)), 116);
        assert!(v.space().free >= full + (3 << 20) / 4096, "space came back");
        image.close(v);
    });
}

#[test]
fn an_unlinked_file_lives_while_it_is_held() {
    on_layouts(|image| {
        let v = image.open();
        let root = v.root();
        let file = v.create(root, b"a", &new(FileKind::Regular, 0o600)).unwrap();
        v.write(file.ino, 0, &vec![1; 100_000]).unwrap();
        let dir = v.create(root, b"d", &new(FileKind::Directory, 0o700)).unwrap();
        v.unlink(root, b"a").unwrap();
        v.rmdir(root, b"d").unwrap();
        assert_eq!((v.getattr(file.ino).unwrap().nlink, v.getattr(dir.ino).unwrap().nlink), (0, 0));
        assert_eq!(errno(v.create(dir.ino, b"x", &new(FileKind::Regular, 0))), 2);
        assert!(list(&v, dir.ino).is_empty());
        v.write(file.ino, 200_000, b"more").unwrap();
        let mut buf = [0; 10];
        assert_eq!(v.read(file.ino, 99_995, &mut buf).unwrap(), 10);
        assert_eq!(buf, [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
        // A checkpoint with orphans, and a crash: the next mount frees them.
        v.sync().unwrap();
        drop(v);
        let v = image.open();
        assert_eq!(errno(v.getattr(file.ino)), 116);
        assert_eq!(errno(v.getattr(dir.ino)), 116);
        // A file that never had a name, lost and linked.
        let lost = v.tmpfile(root, &new(FileKind::Regular, 0o600)).unwrap();
        let linked = v.tmpfile(root, &new(FileKind::Regular, 0o600)).unwrap();
        v.write(linked.ino, 0, b"kept").unwrap();
        v.link(linked.ino, root, b"linked").unwrap();
        v.release(linked.ino, 2);
        v.release(lost.ino, 1);
        assert_eq!(errno(v.getattr(lost.ino)), 116);
        let v = image.reopen(v);
        assert_eq!(find(&v, root, "linked").unwrap().size, 4);
        assert_eq!(names(&v, root), ["linked"]);
        image.close(v);
    });
}

#[test]
fn a_directory_of_twenty_thousand_names() {
    const COUNT: usize = 20_000;
    let image = Image::new(LAYOUTS[1], 1024);
    let mut v = image.open();
    let dir = make(&v, v.root(), "big", FileKind::Directory).ino;
    let name = |i: usize| format!("{i}-{}", "n".repeat(i % 40));
    for i in 0..COUNT {
        make(&v, dir, &name(i), FileKind::Regular);
    }
    v = image.reopen(v);
    let all = list(&v, dir);
    assert_eq!(all.len(), COUNT + 2);
    for i in (0..COUNT).step_by(97) {
        assert_eq!(find(&v, dir, &name(i)).unwrap().ino, all[&name(i)].ino);
    }
    assert!(find(&v, dir, "none").is_none());
    assert_eq!(errno(v.rmdir(v.root(), b"big")), 39);
    // Listed in pieces while every other name goes and new ones come: what stays is seen exactly once.
    let (mut position, mut seen) = (0, BTreeMap::<String, u32>::new());
    loop {
        let mut batch = Vec::new();
        v.readdir(dir, position, &mut |e| {
            let room = batch.len() < 1000;
            if room {
                batch.push(e);
            }
            room
        })
        .unwrap();
        let Some(last) = batch.last() else { break };
        position = last.next;
        for e in &batch {
            *seen.entry(String::from_utf8(e.name.clone()).unwrap()).or_default() += 1;
        }
        for e in batch.iter().step_by(2).filter(|e| e.name != b"." && e.name != b"..") {
            v.unlink(dir, &e.name).unwrap();
        }
        make(&v, dir, &format!("new{position}"), FileKind::Regular);
    }
    assert!((0..COUNT).all(|i| seen.get(&name(i)) == Some(&1)));
    assert!(seen.values().all(|&n| n == 1));
    v = image.reopen(v);
    for left in names(&v, dir) {
        v.unlink(dir, left.as_bytes()).unwrap();
    }
    assert!(v.getattr(dir).unwrap().blocks < 100, "empty dentry blocks are freed");
    v.rmdir(v.root(), b"big").unwrap();
    image.close(v);
}

#[test]
fn deep_directories() {
    on_layouts(|image| {
        let v = image.open();
        let (root, mut at) = (v.root(), v.root());
        let mut chain = vec![root];
        for depth in 0..300 {
            at = make(&v, at, &format!("d{depth}"), FileKind::Directory).ino;
            chain.push(at);
        }
        // Not below itself, however deep; and not onto what is above it.
        let rename =
            |from, name: &[u8], to, new_name: &[u8], flags| v.rename(from, name, to, new_name, flags);
        assert_eq!(errno(rename(root, b"d0", at, b"x", RenameFlags::empty())), 22);
        assert_eq!(errno(rename(chain[298], b"d298", root, b"d0", RenameFlags::empty())), 39);
        assert_eq!(errno(rename(chain[298], b"d298", root, b"d0", RenameFlags::EXCHANGE)), 22);
        assert_eq!(errno(rename(chain[1], b"d1", chain[1], b"d1", RenameFlags::NOREPLACE)), 17);
        rename(chain[100], b"d100", root, b"half", RenameFlags::empty()).unwrap();
        assert_eq!(v.lookup(chain[101], b"..").unwrap().ino, root);
        let v = image.reopen(v);
        let mut at = find(&v, root, "half").unwrap().ino;
        for depth in 101..300 {
            at = find(&v, at, &format!("d{depth}")).unwrap().ino;
        }
        image.close(v);
    });
}

/// Every pair of what can be renamed onto what, in one directory and across two, with every flag.
#[test]
fn rename_matrix() {
    const KINDS: [Option<&str>; 5] = [None, Some("file"), Some("empty"), Some("full"), Some("same")];
    let flags = [RenameFlags::empty(), RenameFlags::NOREPLACE, RenameFlags::EXCHANGE, RenameFlags::WHITEOUT];
    on_layouts(|image| {
        let v = image.open();
        let root = v.root();
        let build = |parent: Ino, name: &str, kind: &str| match kind {
            "file" => make(&v, parent, name, FileKind::Regular).ino,
            "empty" => make(&v, parent, name, FileKind::Directory).ino,
            _ => {
                let dir = make(&v, parent, name, FileKind::Directory).ino;
                make(&v, dir, "inside", FileKind::Directory);
                dir
            }
        };
        let mut case = 0;
        for source in ["file", "empty", "full"] {
            for target in KINDS {
                for flag in flags {
                    for across in [false, true] {
                        case += 1;
                        if target == Some("same") && source != "file" {
                            continue;
                        }
                        let what = format!("{source} onto {target:?}, {flag:?}, across {across}");
                        let from = make(&v, root, &format!("from{case}"), FileKind::Directory).ino;
                        let to = if across {
                            make(&v, root, &format!("to{case}"), FileKind::Directory).ino
                        } else {
                            from
                        };
                        let old = build(from, "old", source);
                        let new = match target {
                            Some("same") => {
                                v.link(old, to, b"new").unwrap();
                                v.release(old, 1);
                                Some(old)
                            }
                            kind => kind.map(|kind| build(to, "new", kind)),
                        };
                        let subdirs = |d: Ino| {
                            list(&v, d).values().filter(|e| e.kind == Some(FileKind::Directory)).count()
                                as u32
                        };
                        let expected = match (source, target) {
                            (_, Some(_)) if flag == RenameFlags::NOREPLACE => Err(17),
                            (_, None) if flag == RenameFlags::EXCHANGE => Err(2),
                            (_, Some("same")) => Ok(()),
                            _ if flag == RenameFlags::EXCHANGE => Ok(()),
                            ("file", Some("empty" | "full")) => Err(21),
                            ("empty" | "full", Some("file")) => Err(20),
                            (_, Some("full")) => Err(39),
                            _ => Ok(()),
                        };
                        let got = v.rename(from, b"old", to, b"new", flag).map_err(|e| e.errno());
                        assert_eq!(got, expected, "{what}");
                        let ino = |dir, name| find(&v, dir, name).map(|a| a.ino);
                        let (at_old, at_new) = (ino(from, "old"), ino(to, "new"));
                        if expected.is_err() || target == Some("same") {
                            assert_eq!((at_old, at_new), (Some(old), new), "{what}");
                        } else if flag == RenameFlags::EXCHANGE {
                            assert_eq!((at_old, at_new), (new, Some(old)), "{what}");
                        } else {
                            assert_eq!(at_new, Some(old), "{what}");
                            let left = find(&v, from, "old").map(|a| (a.kind, a.rdev, a.nlink));
                            let whiteout =
                                (flag == RenameFlags::WHITEOUT).then_some((FileKind::CharDevice, 0, 1));
                            assert_eq!(left, whiteout, "{what}");
                            if let Some(new) = new {
                                assert_eq!(errno(v.getattr(new)), 116, "{what}: replaced and gone");
                            }
                        }
                        for dir in [from, to] {
                            assert_eq!(v.getattr(dir).unwrap().nlink, subdirs(dir), "{what}: links of {dir}");
                            for e in list(&v, dir).values().filter(|e| e.kind == Some(FileKind::Directory)) {
                                if e.name != b"." && e.name != b".." {
                                    assert_eq!(v.lookup(e.ino, b"..").unwrap().ino, dir, "{what}");
                                }
                            }
                        }
                    }
                }
            }
        }
        image.close(v);
    });
}

#[test]
fn rename_keeps_names_when_the_inline_directory_becomes_blocks() {
    on_layouts(|image| {
        let v = image.open();
        let dir = make(&v, v.root(), "d", FileKind::Directory).ino;
        let mut count = 0;
        // Grow one by one with long names, and rename back and forth at every size.
        for i in 0..60 {
            make(&v, dir, &format!("{i:0100}"), FileKind::Regular);
            count += 1;
            v.rename(
                dir,
                format!("{i:0100}").as_bytes(),
                dir,
                format!("{i:0200}").as_bytes(),
                RenameFlags::empty(),
            )
            .unwrap();
            assert_eq!(names(&v, dir).len(), count, "after {i}");
        }
        let v = image.reopen(v);
        assert_eq!(names(&v, dir).len(), count);
        image.close(v);
    });
}

#[test]
fn a_listing_goes_on_while_an_inline_directory_becomes_blocks() {
    on_layouts(|image| {
        let v = image.open();
        let dir = make(&v, v.root(), "d", FileKind::Directory).ino;
        for i in 0..20 {
            make(&v, dir, &format!("early{i}"), FileKind::Regular);
        }
        let mut first = Vec::new();
        v.readdir(dir, 0, &mut |e| {
            let room = first.len() < 10;
            if room {
                first.push(e);
            }
            room
        })
        .unwrap();
        for i in 0..500 {
            make(&v, dir, &format!("late{i}"), FileKind::Regular);
        }
        let mut seen: Vec<Vec<u8>> = first.iter().map(|e| e.name.clone()).collect();
        v.readdir(dir, first[9].next, &mut |e| {
            seen.push(e.name);
            true
        })
        .unwrap();
        let count = seen.len();
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), count, "no name twice");
        assert!((0..20).all(|i| seen.binary_search(&format!("early{i}").into_bytes()).is_ok()));
        image.close(v);
    });
}

#[test]
fn xattrs_spill_into_a_node_and_come_back() {
    on_layouts(|image| {
        let mut v = image.open();
        let ino = make(&v, v.root(), "f", FileKind::Regular).ino;
        let set = |v: &Volume, name: &str, len: usize| {
            v.setxattr(ino, name.as_bytes(), &vec![name.as_bytes()[5]; len], XattrMode::Set)
        };
        let blocks = v.getattr(ino).unwrap().blocks;
        set(&v, "user.a", 40).unwrap();
        assert_eq!(v.getattr(ino).unwrap().blocks, blocks, "inline");
        set(&v, "user.b", 2000).unwrap();
        set(&v, "trusted.c", 1500).unwrap();
        assert_eq!(v.getattr(ino).unwrap().blocks, blocks + 8, "a node");
        assert_eq!(errno(set(&v, "user.d", 1500)), 7);
        assert_eq!(errno(set(&v, "user.d", 70_000)), 7);
        set(&v, "user.e", 0).unwrap();
        v = image.reopen(v);
        assert_eq!(v.getxattr(ino, b"user.b").unwrap(), vec![b'b'; 2000]);
        assert_eq!(v.getxattr(ino, b"trusted.c").unwrap().len(), 1500);
        assert_eq!(v.getxattr(ino, b"user.e").unwrap(), b"");
        let mut all = v.listxattr(ino).unwrap();
        all.sort();
        assert_eq!(all, [&b"trusted.c"[..], b"user.a", b"user.b", b"user.e"]);
        assert_eq!(errno(v.setxattr(ino, b"user.a", b"", XattrMode::Create)), 17);
        assert_eq!(errno(v.setxattr(ino, b"user.z", b"", XattrMode::Replace)), 61);
        assert_eq!(errno(v.getxattr(ino, b"user.z")), 61);
        assert_eq!(errno(v.removexattr(ino, b"user.z")), 61);
        v.removexattr(ino, b"user.b").unwrap();
        v.removexattr(ino, b"trusted.c").unwrap();
        assert_eq!(v.getattr(ino).unwrap().blocks, blocks, "inline again");
        image.clock.advance(Duration::from_secs(5));
        set(&v, "user.a", 10).unwrap();
        assert_eq!(v.getattr(ino).unwrap().ctime, image.clock.now());
        v = image.reopen(v);
        assert_eq!(v.getxattr(ino, b"user.a").unwrap(), vec![b'a'; 10]);
        set(&v, "user.b", 3000).unwrap();
        v.unlink(v.root(), b"f").unwrap();
        let special = make(&v, v.root(), "fifo", FileKind::Fifo).ino;
        assert_eq!(errno(v.setxattr(special, b"user.a", b"1", XattrMode::Set)), 1);
        v.setxattr(special, b"security.a", b"1", XattrMode::Set).unwrap();
        image.close(v);
    });
}

#[test]
fn without_inline_xattrs_and_inline_anything() {
    for features in LAYOUTS {
        let mut image = Image::new(features, 128);
        image.opts.inline_xattr = false;
        image.opts.inline_dentry = false;
        image.opts.inline_data = false;
        let v = image.open();
        let dir = make(&v, v.root(), "d", FileKind::Directory).ino;
        for i in 0..300 {
            let ino = make(&v, dir, &format!("file{i}"), FileKind::Regular).ino;
            v.setxattr(ino, b"user.x", format!("{i}").as_bytes(), XattrMode::Create).unwrap();
        }
        let link = v.symlink(dir, b"link", b"target", 0, 0).unwrap();
        v.release(link.ino, 1);
        let v = image.reopen(v);
        for i in 0..300 {
            let ino = find(&v, dir, &format!("file{i}")).unwrap().ino;
            assert_eq!(v.getxattr(ino, b"user.x").unwrap(), format!("{i}").as_bytes());
            if i % 2 == 0 {
                v.removexattr(ino, b"user.x").unwrap();
            } else {
                v.unlink(dir, format!("file{i}").as_bytes()).unwrap();
            }
        }
        assert_eq!(v.readlink(link.ino).unwrap(), b"target");
        image.close(v);
    }
}

/// The Linux value of an ACL: tag, permissions, id.
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(perm.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";
const NONE: u32 = u32::MAX;

#[test]
fn acls_and_the_mode_follow_each_other() {
    on_layouts(|image| {
        let v = image.open();
        let root = v.root();
        let file = make(&v, root, "f", FileKind::Regular).ino;
        let named = acl(&[(1, 6, NONE), (2, 6, 5), (4, 4, NONE), (0x10, 6, NONE), (0x20, 0, NONE)]);
        v.setxattr(file, ACCESS, &named, XattrMode::Set).unwrap();
        assert_eq!(v.getattr(file).unwrap().perm, 0o660);
        assert_eq!(v.getxattr(file, ACCESS).unwrap(), named);
        assert_eq!(v.listxattr(file).unwrap(), [ACCESS]);
        v.setattr(file, &SetAttr { perm: Some(0o704), ..SetAttr::default() }).unwrap();
        let after = acl(&[(1, 7, NONE), (2, 6, 5), (4, 4, NONE), (0x10, 0, NONE), (0x20, 4, NONE)]);
        assert_eq!(v.getxattr(file, ACCESS).unwrap(), after);
        // What the bits can say is not stored.
        v.setxattr(file, ACCESS, &acl(&[(1, 6, NONE), (4, 4, NONE), (0x20, 4, NONE)]), XattrMode::Set)
            .unwrap();
        assert_eq!(errno(v.getxattr(file, ACCESS)), 61);
        assert_eq!(v.getattr(file).unwrap().perm, 0o644);
        assert_eq!(errno(v.setxattr(file, DEFAULT, &named, XattrMode::Set)), 13);
        // A directory hands its default ACL down; the umask counts only without one.
        let masked = NewFile { umask: 0o022, ..new(FileKind::Directory, 0o777) };
        let dir = v.create(root, b"d", &masked).unwrap();
        assert_eq!(dir.perm, 0o755);
        v.setxattr(dir.ino, DEFAULT, &named, XattrMode::Set).unwrap();
        let inner = v.create(dir.ino, b"inner", &masked).unwrap();
        assert_eq!(inner.perm, 0o660);
        assert_eq!(v.getxattr(inner.ino, DEFAULT).unwrap(), named);
        assert_eq!(v.getxattr(inner.ino, ACCESS).unwrap(), named);
        let leaf =
            v.create(inner.ino, b"leaf", &NewFile { umask: 0o077, ..new(FileKind::Regular, 0o640) }).unwrap();
        assert_eq!(leaf.perm, 0o640);
        assert!(v.listxattr(leaf.ino).unwrap() == [ACCESS]);
        v.removexattr(dir.ino, DEFAULT).unwrap();
        assert_eq!(v.create(dir.ino, b"plain", &masked).unwrap().perm, 0o755);
        let v = image.reopen(v);
        assert_eq!(v.getxattr(inner.ino, DEFAULT).unwrap(), named);
        image.close(v);
    });
}

#[test]
fn hints_by_extension_and_by_attribute() {
    let image = Image::new("", 128);
    let v = image.open();
    let advise = |name: &str| {
        v.getxattr(make(&v, v.root(), name, FileKind::Regular).ino, b"system.advise").unwrap()[0]
    };
    assert_eq!(advise("film.mp4"), 0x01, "cold");
    assert_eq!(advise("data.db"), 0x20, "hot");
    assert_eq!(advise("text"), 0);
    let ino = find(&v, v.root(), "text").unwrap().ino;
    v.setxattr(ino, b"system.advise", &[0x20], XattrMode::Set).unwrap();
    assert_eq!(v.getxattr(ino, b"system.advise").unwrap(), [0x20]);
    assert_eq!(errno(v.setxattr(ino, b"system.advise", &[0x40], XattrMode::Set)), 22);
    assert!(v.listxattr(ino).unwrap().is_empty());
    image.close(v);
}

#[test]
fn set_gid_directories_hand_their_group_down() {
    let image = Image::new("", 128);
    let v = image.open();
    let dir = v.create(v.root(), b"d", &NewFile { gid: 42, ..new(FileKind::Directory, 0o2755) }).unwrap();
    let (sub, file) =
        (make(&v, dir.ino, "sub", FileKind::Directory), make(&v, dir.ino, "f", FileKind::Regular));
    assert_eq!((sub.gid, sub.perm), (42, 0o2755));
    assert_eq!((file.gid, file.perm), (42, 0o644));
    image.close(v);
}

#[test]
fn a_full_volume_refuses_and_stays_sound() {
    on_layouts(|image| {
        let v = image.open();
        let dir = make(&v, v.root(), "d", FileKind::Directory).ino;
        let mut made = 0u32;
        let failed = loop {
            match v.create(dir, format!("{made:050}").as_bytes(), &new(FileKind::Regular, 0o600)) {
                Ok(attr) => v.release(attr.ino, 1),
                Err(e) => break e,
            }
            made += 1;
        };
        assert_eq!(failed.errno(), 28, "{failed}");
        assert_eq!(names(&v, dir).len(), made as usize);
        assert!(find(&v, dir, &format!("{made:050}")).is_none());
        let v = image.reopen(v);
        (0..made).for_each(|i| v.unlink(dir, format!("{i:050}").as_bytes()).unwrap());
        make(&v, dir, "again", FileKind::Regular);
        image.close(v);
    });
}

#[test]
fn chattr_flags_hold_changes_back() {
    use medfs::{FallocateMode, FileFlags, SetAttr};
    on_layouts(|image| {
        let v = image.open();
        let f = make(&v, v.root(), "f", FileKind::Regular).ino;
        v.write(f, 0, &[1; 20_000]).unwrap();
        let shorter = SetAttr { size: Some(10), ..SetAttr::default() };
        let hole = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        for (flags, adding) in [(FileFlags::IMMUTABLE, 1), (FileFlags::APPEND, 0)] {
            v.set_flags(f, flags).unwrap();
            assert_eq!(errno(v.setattr(f, &shorter)), 1, "{flags:?}");
            assert_eq!(errno(v.fallocate(f, hole, 0, 4096)), 1, "{flags:?}");
            assert_eq!(errno(v.unlink(v.root(), b"f")), 1, "{flags:?}");
            let added = v.fallocate(f, FallocateMode::KEEP_SIZE, 20_480, 4096);
            assert_eq!(added.map_or_else(|e| e.errno(), |()| 0), adding, "{flags:?}");
        }
        v.set_flags(f, FileFlags::empty()).unwrap();
        v.setattr(f, &shorter).unwrap();
        image.close(v);
    });
}

/// What a new inode holds besides its block may not fit: then the inode is taken apart again.
#[test]
fn a_link_whose_target_does_not_fit_is_refused() {
    on_layouts(|image| {
        let v = image.open();
        let fill = make(&v, v.root(), "fill", FileKind::Regular).ino;
        let mut at = 0;
        while v.space().free > 1 {
            at += v.write(fill, at, &[1; 4096]).unwrap() as u64;
        }
        assert_eq!(errno(v.symlink(v.root(), b"long", &[b'x'; 3900], 0, 0)), 28);
        assert!(find(&v, v.root(), "long").is_none());
        let link = v.symlink(v.root(), b"short", b"x", 0, 0).unwrap();
        v.release(link.ino, 1);
        image.close(v);
    });
}

#[test]
fn threads_rename_and_unlink_in_one_tree() {
    let mut image = Image::new(LAYOUTS[1], 256);
    image.opts.fsync_mode = FsyncMode::Posix;
    let v = image.open();
    let dirs: Vec<Ino> =
        (0..4).map(|i| make(&v, v.root(), &format!("d{i}"), FileKind::Directory).ino).collect();
    std::thread::scope(|scope| {
        for t in 0..4usize {
            let (v, dirs) = (&v, &dirs);
            scope.spawn(move || {
                for i in 0..500usize {
                    let (a, b) = (dirs[(t + i) % 4], dirs[(t + i * 3 + 1) % 4]);
                    let (name, other) = (format!("{}", i % 7), format!("{}", (i + 3) % 7));
                    let kind = if i % 2 == 0 { FileKind::Regular } else { FileKind::Directory };
                    if let Ok(attr) = v.create(a, name.as_bytes(), &new(kind, 0o700)) {
                        v.release(attr.ino, 1);
                    }
                    let flags = if i % 5 == 0 { RenameFlags::EXCHANGE } else { RenameFlags::empty() };
                    let _ = v.rename(a, name.as_bytes(), b, other.as_bytes(), flags);
                    if i % 3 == 0 {
                        let _ = v.unlink(b, other.as_bytes());
                        let _ = v.rmdir(a, other.as_bytes());
                    }
                    if i % 100 == 0 {
                        v.sync().unwrap();
                    }
                }
            });
        }
    });
    image.close(v);
}
