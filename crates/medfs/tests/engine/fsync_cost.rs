//! A file whose names are those of the last checkpoint is fsynced by its nodes, whatever happened to it before.

use crate::common::*;
use medfs::{FileKind, Files, Ino, RenameFlags, Volume};
use medfs_device::MemDevice;
use medfs_format::node::{RawInode, footer};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{Block, BlockAddr, crc};
use std::sync::Arc;

fn blanks() -> [(bool, MemDevice); 2] {
    [(false, blank(64, all_features())), (true, blank_delta(64))]
}

fn rename(v: &Volume, from: &str, to: &str) {
    v.rename(v.root(), from.as_bytes(), v.root(), to.as_bytes(), RenameFlags::empty()).expect("rename");
}

fn release(v: &Volume, ino: Ino) {
    v.release(ino, 1);
}

/// Checkpoints that fsyncs ask for while a file is changed and fsynced so often.
fn asked(v: &Volume, f: Ino, fsyncs: u64) -> u64 {
    let before = v.stats().fsyncs_with_checkpoint;
    for n in 0..fsyncs {
        write(v, f, 100, &[n as u8 + 1; 20]);
        v.fsync(f, false).expect("fsync");
    }
    v.stats().fsyncs_with_checkpoint - before
}

/// What may have happened to the file `a` before a checkpoint; each leaves it as `a`, beside other names perhaps.
type History = (&'static str, fn(&Volume, Ino), &'static [&'static str]);
const HISTORIES: [History; 5] = [
    (
        "linked, and the link removed",
        |v, f| {
            release(v, v.link(f, v.root(), b"b").expect("link").ino);
            v.unlink(v.root(), b"b").expect("unlink");
        },
        &["a"],
    ),
    (
        "linked, and the first name removed",
        |v, f| {
            release(v, v.link(f, v.root(), b"b").expect("link").ino);
            v.unlink(v.root(), b"a").expect("unlink");
            rename(v, "b", "a");
        },
        &["a"],
    ),
    ("two names", |v, f| release(v, v.link(f, v.root(), b"b").expect("link").ino), &["a", "b"]),
    (
        "renamed there and back",
        |v, _| {
            rename(v, "a", "b");
            rename(v, "b", "a");
        },
        &["a"],
    ),
    (
        "linked into a directory that is gone",
        |v, f| {
            let d = dir(v, v.root(), "d");
            release(v, v.link(f, d, b"b").expect("link").ino);
            v.sync().expect("sync");
            v.unlink(d, b"b").expect("unlink");
            release(v, d);
            v.rmdir(v.root(), b"d").expect("rmdir");
        },
        &["a"],
    ),
];

#[test]
fn a_file_whose_names_stay_is_fsynced_without_a_checkpoint() {
    for (delta, base) in blanks() {
        for (what, history, kept) in HISTORIES {
            let device = Arc::new(base.snapshot());
            let v = open_device(&device, "");
            let f = file(&v, v.root(), "a");
            write(&v, f, 0, &[1; 4 * PAGE]);
            v.fsync(f, false).expect("fsync");
            history(&v, f);
            v.sync().expect("sync");
            assert_eq!(asked(&v, f, 3), 0, "{what}, delta {delta}: after the checkpoint");
            drop(v); // power is lost
            let v = open_device(&device, "");
            let attr = at(&v, "a").expect("the file");
            assert_eq!(attr.nlink as usize, kept.len(), "{what}, delta {delta}");
            assert_eq!(content(&v, attr.ino)[100..120], [3; 20], "{what}, delta {delta}");
            assert_eq!(asked(&v, attr.ino, 3), 0, "{what}, delta {delta}: after a mount");
            drop(v);
            let v = open_device(&device, "");
            let shown: Vec<String> = names(&v, v.root()).into_iter().filter(|n| n != "lost+found").collect();
            assert_eq!(shown, kept, "{what}, delta {delta}");
            v.close().expect("close");
            drop(v);
            judge(&device);
        }
    }
}

#[test]
fn a_file_without_a_name_is_fsynced_without_a_checkpoint_once_one_lists_it() {
    for (delta, base) in blanks() {
        let device = Arc::new(base);
        let v = open_device(&device, "");
        let gone = file(&v, v.root(), "gone");
        v.sync().expect("sync");
        v.unlink(v.root(), b"gone").expect("unlink");
        let nameless = v.tmpfile(v.root(), &new(FileKind::Regular)).expect("tmpfile").ino;
        for f in [gone, nameless] {
            assert!(asked(&v, f, 4) <= 1, "delta {delta}");
        }
        drop(v); // power is lost
        let v = open_device(&device, "");
        assert!(at(&v, "gone").is_none());
        v.close().expect("close");
        drop(v);
        judge(&device);
    }
}

#[test]
fn a_file_linked_after_its_checkpoint_keeps_both_names_through_an_fsync() {
    for (_, base) in blanks() {
        crash(
            &base,
            "",
            |v, mark| {
                let f = file(v, v.root(), "a");
                write(v, f, 0, &page(1));
                v.sync().expect("sync");
                v.link(f, v.root(), b"b").expect("link");
                write(v, f, 0, &page(2));
                v.fsync(f, false).expect("fsync");
                mark(1);
                write(v, f, 0, &page(3));
                v.fsync(f, false).expect("fsync");
                mark(2);
                v.unlink(v.root(), b"a").expect("unlink");
                write(v, f, 0, &page(4));
                v.fsync(f, false).expect("fsync");
                mark(3);
            },
            |v, mark| {
                let shown: Vec<_> = ["a", "b"].iter().filter_map(|name| at(v, name)).collect();
                if mark == 0 {
                    return;
                }
                assert!(at(v, "b").is_some(), "mark {mark}");
                assert!(mark == 3 || shown.len() == 2 || mark == 2, "mark {mark}");
                assert_eq!(shown[0].nlink as usize, shown.len(), "mark {mark}");
                assert!(u64::from(version(&content(v, shown[0].ino))) > mark, "mark {mark}");
            },
        );
    }
}

type Leave = fn(&Volume, Ino);
/// What may happen to the directory `y` with the file `z`, before a file takes its name.
const LEAVES: [(&str, Leave); 3] = [
    ("emptied and removed", |v, y| {
        v.unlink(y, b"z").expect("unlink");
        v.rmdir(v.root(), b"y").expect("rmdir");
    }),
    ("emptied by a rename and removed", |v, y| {
        v.rename(y, b"z", v.root(), b"z", RenameFlags::empty()).expect("rename");
        v.rmdir(v.root(), b"y").expect("rmdir");
    }),
    ("renamed", |v, _| rename(v, "y", "w")),
];

#[test]
fn a_file_in_place_of_a_directory_takes_nothing_of_it_along() {
    for (delta, base) in blanks() {
        for mode in ["fsync_mode=strict", "fsync_mode=posix"] {
            for (what, leave) in LEAVES {
                let device = Arc::new(base.snapshot());
                let v = open_device(&device, mode);
                let y = dir(&v, v.root(), "y");
                let z = file(&v, y, "z");
                write(&v, z, 0, &[5; 9 * PAGE]);
                v.sync().expect("sync");
                release(&v, z);
                release(&v, y);
                leave(&v, y);
                let f = file(&v, v.root(), "y");
                write(&v, f, 0, b"now a file");
                v.fsync(f, false).expect("fsync");
                drop(v); // power is lost
                let v = open_device(&device, mode);
                let now = at(&v, "y").expect("the file");
                assert_eq!(content(&v, now.ino), b"now a file", "{what}, delta {delta}, {mode}");
                let z = at(&v, if what == "renamed" { "w/z" } else { "z" });
                assert_eq!(z.is_some(), what != "emptied and removed", "{what}, delta {delta}, {mode}");
                v.close().expect("close");
                drop(v);
                judge(&device);
            }
        }
    }
}

/// The inode block of the chain that has this name.
fn chain_inode(device: &MemDevice, ino: Ino) -> (BlockAddr, Box<Block>) {
    use medfs_device::BlockDevice;
    let sb = medfs_device::read_block(device, 0).expect("read");
    let main = u64::from(RawSuperblock::in_block(&sb).main_blkaddr.get());
    let found = (main..device.block_count()).rev().find_map(|addr| {
        let block = medfs_device::read_block(device, addr).expect("read");
        let f = footer(&block);
        (f.nid.get() == ino && f.ino.get() == ino && f.is_fsync()).then_some((addr as BlockAddr, block))
    });
    found.expect("the inode was fsynced")
}

#[test]
fn a_directory_that_another_driver_let_a_file_replace_keeps_its_files() {
    use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
    let device = Arc::new(blank(64, all_features()));
    let v = open_device(&device, "");
    let y = dir(&v, v.root(), "y");
    let z = file(&v, y, "z");
    write(&v, z, 0, &[5; 9 * PAGE]);
    dir(&v, v.root(), "x");
    v.sync().expect("sync");
    let files: Vec<Ino> = ["1", "2"].iter().map(|name| file(&v, v.root(), name)).collect();
    files.iter().for_each(|&f| {
        write(&v, f, 0, b"now a file");
        v.fsync(f, false).expect("fsync");
    });
    drop(v); // power is lost
    let sb = medfs_device::read_block(&*device, 0).expect("read");
    let seed = crc::chain(!0, &RawSuperblock::in_block(&sb).uuid);
    for (f, name) in files.iter().zip(*b"yx") {
        let (addr, mut block) = chain_inode(&device, *f);
        let raw: &mut RawInode = block.view_mut();
        raw.i_name[0] = name;
        raw.seal(seed);
        let tag = WriteTag::new(Cause::Node, Temperature::Warm);
        device.write(addr.into(), &[&block], tag).expect("written");
    }
    let v = open_device(&device, "");
    for name in ["x", "y"] {
        assert_eq!(content(&v, at(&v, name).expect("the file").ino), b"now a file");
    }
    let kept = format!("y.{y}");
    assert_eq!(names(&v, v.root()), ["x", "y", kept.as_str()], "the empty one is gone");
    assert_eq!(content(&v, at(&v, &format!("{kept}/z")).expect("its file").ino), [5; 9 * PAGE]);
    v.close().expect("close");
    drop(v);
    judge(&device);
}
