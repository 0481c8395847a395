//! Bounds: every list, table and pack that a user can make grow, grown to its end and one further on a small volume.
//!
//! The operation beyond an end is refused with the errno that `docs/LIMITS.md` names. Memory stays bounded,
//! the checkpoint is readable, power loss after a sync shows all that was acknowledged, and both checkers
//! find nothing.
//! `MEDFS_SEED=7 MEDFS_ROUNDS=20 cargo test --release -p medfs --test engine -- --ignored --nocapture
//! bounds::` takes all sizes as they are.

use crate::common::*;
use medfs::{FallocateMode, FileKind, Files, Ino, RenameFlags, Seek, SetAttr, Volume, XattrMode};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::hash::dentry_hash;
use medfs_format::node::{RawInode, footer};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{Block, crc};
use medfs_testkit::images::FsckMedfs;
use medfs_testkit::subject::Check;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Memory that a list may take, in MiB: the cache is 16 MiB, a snapshot of the volume and its tree take some too.
const MOST_MEMORY: u64 = 160;

/// How far to go.
struct Case<'a> {
    v: &'a Volume,
    random: Random,
    /// All the way; otherwise a sample.
    whole: bool,
}

impl Case<'_> {
    fn amount(&self, whole: u64, sample: u64) -> u64 {
        if self.whole { whole } else { sample }
    }
    fn root(&self) -> Ino {
        self.v.root()
    }
    fn file(&self, name: &str) -> Ino {
        file(self.v, self.root(), name)
    }
}

#[track_caller]
fn refused<T: std::fmt::Debug>(result: medfs::Result<T>, errno: i32) {
    assert_eq!(result.expect_err("beyond the end").errno(), errno);
}

fn names_and_targets(case: &mut Case<'_>) {
    let (v, root) = (case.v, case.root());
    for first in [b'a', 0xff] {
        let longest = [first; 255];
        v.create(root, &longest, &new(FileKind::Regular)).expect("255 bytes");
        refused(v.create(root, &[first; 256], &new(FileKind::Regular)), 36);
        refused(v.lookup(root, &[first; 256]), 36);
    }
    v.symlink(root, b"long", &[b't'; 4095], 0, 0).expect("4095 bytes");
    refused(v.symlink(root, b"longer", &[b't'; 4096], 0, 0), 36);
    assert_eq!(v.readlink(at(v, "long").expect("it").ino).expect("target").len(), 4095);
}

fn attributes(case: &mut Case<'_>) {
    let v = case.v;
    for (n, value) in [(0, 1), (1, 30), (2, 1000), (3, 255)] {
        let f = case.file(&format!("attributes{n}"));
        let mut set = 0;
        let error = loop {
            let name = format!("user.{set:0width$}", width = if n == 3 { 250 } else { 4 });
            match v.setxattr(f, name.as_bytes(), &vec![set as u8; value], XattrMode::Set) {
                Ok(()) => set += 1,
                Err(e) => break e,
            }
            assert!(set < 5000, "an xattr node is one block");
        };
        assert!([7, 28].contains(&error.errno()), "{error}");
        assert_eq!(v.listxattr(f).expect("list").len(), set, "nothing changed");
        refused(v.setxattr(f, b"user.large", &vec![1; 5000], XattrMode::Set), 7);
        refused(v.setxattr(f, &[b"user.", &[b'x'; 251][..]].concat(), b"", XattrMode::Set), 34);
        write(v, f, 0, &noise(3));
        v.fsync(f, false).expect("fsync");
    }
}

fn sizes(case: &mut Case<'_>) {
    let v = case.v;
    let f = case.file("sparse");
    write(v, f, 0, b"start");
    let size = |size| v.setattr(f, &SetAttr { size: Some(size), ..SetAttr::default() });
    let (mut most, mut beyond) = (0, u64::MAX);
    while most + 1 < beyond {
        let middle = most + (beyond - most) / 2;
        match size(middle) {
            Ok(_) => most = middle,
            Err(e) => {
                assert_eq!(e.errno(), 27);
                beyond = middle;
            }
        }
    }
    let page = PAGE as u64;
    size(most).expect("the largest file");
    refused(v.write(f, most, b"x"), 27);
    refused(v.write(f, u64::MAX, b"xx"), 27);
    assert_eq!(v.write(f, most - 1, b"x").expect("its last byte"), 1);
    let fallocate = |mode, at, len| v.fallocate(f, mode, at, len);
    refused(fallocate(FallocateMode::KEEP_SIZE, most, page), 27);
    refused(fallocate(FallocateMode::empty(), u64::MAX, page), 27);
    refused(fallocate(FallocateMode::INSERT_RANGE, page, page), 27);
    fallocate(FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, page, most).expect("punch");
    assert_eq!(v.seek(f, page, Seek::Data).expect_err("no data").errno(), 6);
    write(v, f, most - page, &noise(1));
    assert_eq!(v.seek(f, page, Seek::Data).expect("data"), most - page);
    fallocate(FallocateMode::COLLAPSE_RANGE, 0, most - 2 * page).expect("collapse");
    let mut last = vec![0; PAGE];
    v.read(f, page, &mut last).expect("read");
    assert!(last == noise(1) && v.getattr(f).expect("attributes").size == 2 * page);
    fallocate(FallocateMode::INSERT_RANGE, page, most - 2 * page).expect("insert");
    v.fsync(f, false).expect("fsync");
    size(0).expect("truncate");
}

fn depth(case: &mut Case<'_>) {
    let v = case.v;
    let mut above = case.root();
    let deep = case.amount(20_000, 700);
    for n in 0..deep {
        let next = dir(v, above, "d");
        if n > 0 {
            v.release(above, 1);
        }
        above = next;
    }
    let f = file(v, above, "at the end");
    v.rename(above, b"at the end", case.root(), b"moved", RenameFlags::empty()).expect("rename");
    refused(v.rename(case.root(), b"d", above, b"below itself", RenameFlags::empty()), 22);
    v.release(f, 1);
    v.release(above, 1);
}

/// Names whose hashes have the same low bits, and so the same bucket in as many levels.
fn colliding_names(random: &mut Random, count: usize, bits: u32) -> Vec<Vec<u8>> {
    let mut names = Vec::new();
    let mut name = vec![b'n'; 255];
    let wanted = dentry_hash(&name) & ((1 << bits) - 1);
    while names.len() < count {
        for byte in &mut name[239..] {
            *byte = b'a' + random.below(26) as u8;
        }
        if dentry_hash(&name) & ((1 << bits) - 1) == wanted {
            names.push(name.clone());
        }
    }
    names
}

fn buckets(case: &mut Case<'_>) {
    let v = case.v;
    let d = dir(v, case.root(), "buckets");
    let (count, bits) = if case.whole { (160, 12) } else { (70, 6) };
    let names = colliding_names(&mut case.random, count, bits);
    for name in &names {
        v.create(d, name, &new(FileKind::Regular)).map(|a| v.release(a.ino, 1)).expect("a deeper level");
    }
    for name in names.iter().step_by(3) {
        v.unlink(d, name).expect("unlink");
    }
    assert_eq!(crate::common::names(v, d).len(), names.len() - names.len().div_ceil(3));
    for position in [1 << 20, 1 << 40, u64::MAX / 2, u64::MAX - 1, u64::MAX] {
        v.readdir(d, position, &mut |_| true).expect("a position behind the end");
        v.readdir(case.root(), position, &mut |_| true).expect("a position behind the end");
    }
    v.release(d, 1);
}

fn renames(case: &mut Case<'_>) {
    let v = case.v;
    let (d, files) = (dir(v, case.root(), "renames"), 50);
    let name = |n: u64| format!("{n:0250}").into_bytes();
    for n in 0..files {
        v.create(d, &name(n), &new(FileKind::Regular)).expect("create");
    }
    v.sync().expect("sync");
    let before = v.stats().checkpoints;
    let many = case.amount(150_000, 1500);
    for n in 0..many {
        v.rename(d, &name(n), d, &name(n + files), RenameFlags::empty()).expect("rename");
    }
    let made = v.stats().checkpoints - before;
    assert!(made >= many / 70_000, "what is noted of names goes with a checkpoint: {made}");
    let f = at(v, &format!("renames/{}", String::from_utf8_lossy(&name(many)))).expect("renamed").ino;
    write(v, f, 0, b"content");
    v.fsync(f, false).expect("fsync");
    v.fsync(d, false).expect("fsync");
}

fn directories(case: &mut Case<'_>) {
    let v = case.v;
    // What is noted of each: entries, attributes, moves.
    for n in 0..case.amount(3000, 300) {
        let d = dir(v, case.root(), &format!("dir{n}"));
        for name in ["a", "b"] {
            v.release(file(v, d, name), 1);
        }
        v.setxattr(d, b"user.x", b"y", XattrMode::Set).expect("setxattr");
        let (from, to) = (format!("dir{n}"), format!("moved{n}"));
        v.rename(case.root(), from.as_bytes(), case.root(), to.as_bytes(), RenameFlags::empty())
            .expect("rename");
        v.unlink(d, b"a").expect("unlink");
        v.release(d, 1);
    }
}

fn deltas(case: &mut Case<'_>) {
    let v = case.v;
    // More than the zone of the inode holds, and more than all compact pages of a file.
    let pages = case.amount(5600, 300);
    let f = case.file("deltas");
    let mut text: Vec<u8> = (0..pages).flat_map(noise).collect();
    write(v, f, 0, &text);
    v.sync().expect("sync");
    for round in 0..2u8 {
        for page in 0..pages as usize {
            patch(v, f, &mut text, page * PAGE + 100, &[round + 1; 24]);
            if page % 64 == 63 {
                v.fsync(f, true).expect("fsync");
            }
        }
    }
    v.fsync(f, false).expect("fsync");
    assert!(content(v, f) == text);
}

fn sources(case: &mut Case<'_>) {
    let v = case.v;
    // Logs that repeat databases, and files that replace others: each is listed with what it is made from.
    for n in 0..case.amount(600, 90) {
        let page = noise(n);
        let (db, wal) = (case.file(&format!("{n}.db")), format!("{n}.db-wal"));
        write(v, db, 0, &[&page[..], &noise(n + 1)].concat());
        v.fsync(db, false).expect("fsync");
        let log = case.file(&wal);
        write(v, log, 0, &[&[7; 56][..], &page].concat());
        v.fsync(log, false).expect("fsync");
        let old = case.file(&format!("{n}.xml"));
        write(v, old, 0, &[&page[..], &page].concat());
        v.fsync(old, false).expect("fsync");
        let fresh = case.file(&format!("{n}.xml.tmp"));
        write(v, fresh, 0, &[&page[..], b"changed", &page[7..]].concat());
        v.fsync(fresh, false).expect("fsync");
        let (from, to) = (format!("{n}.xml.tmp"), format!("{n}.xml"));
        v.rename(case.root(), from.as_bytes(), case.root(), to.as_bytes(), RenameFlags::empty())
            .expect("rename");
        [db, log, old, fresh].iter().for_each(|&ino| v.release(ino, 1));
    }
}

fn atomic_writes(case: &mut Case<'_>) {
    let v = case.v;
    let f = case.file("atomic");
    write(v, f, 0, &noise(1));
    v.fsync(f, false).expect("fsync");
    v.atomic_start(f).expect("start");
    let chunk: Vec<u8> = (0..64).flat_map(noise).collect();
    let mut at = 0;
    let error = loop {
        match v.write(f, at, &chunk) {
            Ok(len) => at += len as u64,
            Err(e) => break e,
        }
        assert!(at < 40 << 20, "more than the cache holds");
    };
    assert_eq!(error.errno(), 28, "{error}");
    v.atomic_abort(f).expect("abort");
    assert_eq!(content(v, f), noise(1));
    v.atomic_start(f).expect("start");
    write(v, f, 0, &chunk);
    v.atomic_commit(f).expect("commit");
    assert!(content(v, f) == chunk);
}

fn handles(case: &mut Case<'_>) {
    let v = case.v;
    let f = case.file("held");
    v.hold(f, u64::MAX).expect("hold");
    v.hold(f, u64::MAX).expect("hold");
    v.release(f, u64::MAX);
    v.release(f, u64::MAX);
    let most = case.amount(20_000, 500);
    let held: Vec<Ino> = (0..most)
        .map_while(|_| v.tmpfile(case.root(), &new(FileKind::Regular)).map(|a| a.ino).ok())
        .collect();
    v.sync().expect("the checkpoint lists them");
    held.iter().for_each(|&ino| v.release(ino, 1));
}

fn tables(case: &mut Case<'_>) {
    let v = case.v;
    // Entries beyond both journals, again and again, and between them checkpoints.
    for round in 0..case.amount(40, 5) {
        for n in 0..60 {
            let f = case.file(&format!("table{round}-{n}"));
            write(v, f, 0, &vec![n as u8; (1 + case.random.below(30) as usize) * PAGE / 7]);
            v.release(f, 1);
        }
        v.checkpoint().expect("checkpoint");
        for n in (0..60).step_by(2) {
            v.unlink(case.root(), format!("table{round}-{n}").as_bytes()).expect("unlink");
        }
        v.sync().expect("sync");
    }
}

type Grow = fn(&mut Case<'_>);
const BOUNDS: [(&str, Grow); 13] = [
    ("names and targets", names_and_targets),
    ("attributes", attributes),
    ("sizes", sizes),
    ("depth", depth),
    ("buckets", buckets),
    ("renames", renames),
    ("directories", directories),
    ("deltas", deltas),
    ("sources", sources),
    ("atomic writes", atomic_writes),
    ("handles", handles),
    ("tables", tables),
    ("all of them", |case| {
        let some: [Grow; 5] = [attributes, renames, sources, handles, tables];
        some.iter().for_each(|grow| grow(case));
    }),
];

/// What a volume shows: of each path kind, links, size, content's hash, target, and attributes.
fn tree(v: &Volume) -> BTreeMap<Vec<u8>, String> {
    let mut shown = BTreeMap::new();
    let mut left = vec![(Vec::new(), v.root())];
    while let Some((path, dir)) = left.pop() {
        let mut entries = Vec::new();
        v.readdir(dir, 0, &mut |entry| {
            entries.push((entry.name, entry.ino));
            true
        })
        .expect("the directory reads");
        for (name, ino) in entries.into_iter().filter(|(name, _)| name != b"." && name != b"..") {
            let path = [&path[..], b"/", &name].concat();
            let attr = v.getattr(ino).expect("attributes");
            let content = match attr.kind {
                FileKind::Regular => crc::f2fs(&content(v, ino)),
                FileKind::Symlink => crc::f2fs(&v.readlink(ino).expect("target")),
                _ => 0,
            };
            let attributes = v.listxattr(ino).expect("attributes").len();
            let what = format!("{:?} {} {} {content:#x} {attributes}", attr.kind, attr.nlink, attr.size);
            shown.insert(path.clone(), what);
            if attr.kind == FileKind::Directory {
                left.push((path, ino));
            }
        }
    }
    shown
}

/// Resident memory, in MiB.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|n| n.parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}

fn grow(base: &MemDevice, bound: (&str, Grow), seed: u64, whole: bool) {
    let device = Arc::new(base.snapshot());
    let v = open_device(&device, "cache=16M");
    let before = resident();
    bound.1(&mut Case { v: &v, random: Random(seed | 1), whole });
    let more = resident().saturating_sub(before);
    assert!(more < MOST_MEMORY, "{}: {more} MiB more", bound.0);
    v.sync().expect("a checkpoint can be made");
    assert!(!v.is_read_only());
    let shown = tree(&v);
    drop(v); // power is lost
    let v = open_device(&device, "cache=16M");
    assert!(tree(&v) == shown, "{}: after power loss", bound.0);
    v.close().expect("close");
    drop(v);
    if whole && bound.0 == "depth" {
        // fsck.f2fs calls itself for each directory and runs out of stack.
        FsckMedfs.check(device).unwrap_or_else(|e| panic!("fsck.medfs: {e}"));
    } else {
        judge(&device);
    }
}

fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn grow_all(whole: bool, mib: u64, rounds: u64) {
    let first = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    for seed in first..first + rounds {
        for (kind, base) in [("plain", blank(mib, all_features())), ("deltas", blank_delta(mib))] {
            for bound in BOUNDS {
                println!("MEDFS_SEED={seed}: {}, {kind}", bound.0);
                let started = std::time::Instant::now();
                grow(&base, bound, seed, whole);
                println!("  {:?}", started.elapsed());
            }
        }
    }
}

#[test]
fn what_a_user_makes_grow_has_an_end() {
    grow_all(false, 64, 1);
}

#[test]
#[ignore = "minutes"]
fn what_a_user_makes_grow_has_an_end_at_full_size() {
    grow_all(true, 256, variable("MEDFS_ROUNDS").unwrap_or(1));
}

/// Gives an inode of a closed volume this link count.
fn set_links(device: &MemDevice, ino: Ino, links: u32) {
    let sb = read_block(device, 0).expect("read");
    let sb = RawSuperblock::in_block(&sb);
    for addr in u64::from(sb.main_blkaddr.get())..device.block_count() {
        let mut block: Box<Block> = read_block(device, addr).expect("read");
        if footer(&block).nid.get() == ino && footer(&block).ino.get() == ino {
            let raw: &mut RawInode = block.view_mut();
            raw.i_links = links.into();
            raw.seal(crc::chain(!0, &sb.uuid));
            device.write(addr, &[&block], WriteTag::new(Cause::Node, Temperature::Hot)).expect("written");
        }
    }
}

#[test]
fn links_end_at_the_formats_number() {
    let device = Arc::new(blank(64, all_features()));
    let v = open_device(&device, "");
    let (f, d, e) = (file(&v, v.root(), "f"), dir(&v, v.root(), "d"), dir(&v, v.root(), "e"));
    v.close().expect("close");
    drop(v);
    set_links(&device, f, u32::MAX - 1);
    set_links(&device, d, u32::MAX - 1);
    let v = open_device(&device, "");
    v.link(f, v.root(), b"last").expect("one more");
    refused(v.link(f, v.root(), b"beyond"), 31);
    v.create(d, b"last", &new(FileKind::Directory)).expect("one more");
    refused(v.create(d, b"beyond", &new(FileKind::Directory)), 31);
    refused(v.rename(v.root(), b"e", d, b"beyond", RenameFlags::empty()), 31);
    v.create(d, b"file", &new(FileKind::Regular)).expect("a file counts in itself");
    assert_eq!((v.getattr(f).expect("f").nlink, v.getattr(d).expect("d").nlink), (u32::MAX, u32::MAX));
    assert_eq!(v.getattr(e).expect("e").nlink, 2);
    v.close().expect("close");
}

/// Pages that a file has behind its end become durable, and no clean one of them stays in memory when the file goes.
#[test]
fn pages_behind_the_end_go_with_their_file() {
    let v = open(Arc::new(blank_delta(64)));
    for (at, len) in [(5 * PAGE as u64 + 10, 100), (3 * PAGE as u64, 2 * PAGE as u64), (10, 6 * PAGE as u64)]
    {
        let f = file(&v, v.root(), "f");
        write(&v, f, 0, b"a few");
        v.fallocate(f, FallocateMode::KEEP_SIZE, 0, 64 << 10).expect("room");
        v.fallocate(f, FallocateMode::ZERO_RANGE | FallocateMode::KEEP_SIZE, at, len).expect("zeros");
        v.fsync(f, false).expect("fsync");
        v.fallocate(f, FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE, at + 7, len).expect("hole");
        v.fsync(f, false).expect("fsync");
        v.unlink(v.root(), b"f").expect("unlinked");
        v.release(f, 1);
    }
}
