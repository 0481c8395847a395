//! Directories whose names all have one hash, as who knows the hash can make them: all their levels are full.

use crate::common::META;
use crate::medium::{addr_of, checked, node_addr, opened, repaired, superblock};
use medfs::{FileKind, Files, Ino, NewFile};
use medfs_device::{BlockDevice, MemDevice};
use medfs_format::Block;
use medfs_format::hash::dentry_hash;
use medfs_testkit::images::{FEATURE_SETS, formatted};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Names of five chunks of the hash: of each two bits can be flipped with those that make up for them.
const CHUNKS: usize = 5;
const NAMES: usize = 600;

/// A name that has the same hash for every number.
fn name(number: usize) -> Vec<u8> {
    let mut name: Vec<u8> = (0..CHUNKS * 16).map(|i| b'a' + (i % 23) as u8).collect();
    for chunk in 0..CHUNKS {
        for (bit, bytes) in [[0, 4], [8, 12]].into_iter().enumerate() {
            if number >> (2 * chunk + bit) & 1 == 1 {
                bytes.into_iter().for_each(|byte| name[chunk * 16 + byte] ^= 0x80);
            }
        }
    }
    name
}

/// A volume with such a directory; it, and its files.
fn volume() -> (MemDevice, Ino, BTreeMap<Vec<u8>, Ino>) {
    let dev = Arc::new(formatted(128, FEATURE_SETS[0]).snapshot());
    let v = opened(dev.clone());
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let dir = NewFile { kind: FileKind::Directory, perm: 0o755, ..new };
    let dir = v.create(v.root(), b"d", &dir).expect("mkdir").ino;
    let files = (0..NAMES).map(|n| (name(n), v.create(dir, &name(n), &new).expect("create").ino)).collect();
    v.close().expect("closed");
    drop(v);
    (dev.snapshot(), dir, files)
}

fn all_there(dev: &MemDevice, dir: Ino, files: &BTreeMap<Vec<u8>, Ino>, what: &str) {
    let v = opened(Arc::new(dev.snapshot()));
    for (name, ino) in files {
        let found = v.lookup(dir, name).unwrap_or_else(|e| panic!("{what}: inode {ino}: {e}"));
        assert_eq!(found.ino, *ino, "{what}");
    }
}

#[test]
fn names_of_one_hash_come_back_in_a_bounded_time() {
    assert!((0..NAMES).all(|n| dentry_hash(&name(n)) == dentry_hash(&name(0))));
    let (dev, dir, files) = volume();
    let started = Instant::now();
    assert_eq!(checked(&dev).findings, []);
    all_there(&dev, dir, &files, "sound");
    let main = superblock(&dev, "main_blkaddr");
    let blocks: Vec<u64> = (0..800)
        .map(|page| addr_of(&dev, dir, page).into())
        .filter(|&at: &u64| at >= main && at < u64::from(u32::MAX) - 1)
        .collect();
    assert!(blocks.len() > 8, "{}", blocks.len());
    let inode = node_addr(&dev, dir);
    let cases =
        [("a block", vec![blocks[3]]), ("all blocks of the inode", blocks), ("the inode", vec![inode])];
    for (what, struck) in cases {
        let dev = dev.snapshot();
        struck.iter().for_each(|at| dev.write(*at, &[&Block::ZERO], META).expect("memory"));
        let mended = repaired(&dev);
        assert!(
            !mended.before.findings.is_empty() && mended.after.is_clean(),
            "{what}: {:?}",
            mended.after.findings
        );
        let v = opened(Arc::new(dev.snapshot()));
        let dir = v.lookup(v.root(), b"d").expect("the directory").ino;
        drop(v);
        all_there(&dev, dir, &files, what);
    }
    assert!(started.elapsed() < Duration::from_secs(60), "{:?}", started.elapsed());
}
