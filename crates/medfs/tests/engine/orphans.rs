//! Unlinked files that are still held: a checkpoint lists them, and has room for so many.

use crate::common::*;
use medfs::{FileKind, Files, RenameFlags, Volume, XattrMode};
use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag, read_block};
use medfs_format::checkpoint::{CpFlags, ORPHANS_PER_BLOCK, RawCheckpoint, seal};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{BLOCKS_PER_SEG, Block};
use medfs_testkit::images::FsckMedfs;
use medfs_testkit::subject::Check;
use std::sync::Arc;

/// Blocks of the payload with which a pack keeps room for three blocks of orphans, and no more.
const PAYLOAD: u32 = BLOCKS_PER_SEG - 2 - 6 - 3;
const MOST: usize = 3 * ORPHANS_PER_BLOCK;

/// A fresh volume whose checkpoint packs have a payload, as those of very large volumes.
fn volume_with_payload(delta: bool) -> MemDevice {
    let device = if delta { blank_delta(64) } else { blank(64, all_features()) };
    let meta = WriteTag::new(Cause::Meta, Temperature::Hot);
    let write = |addr: u32, block: &Block| device.write(u64::from(addr), &[block], meta).expect("written");
    let read = |addr: u32| read_block(&device, u64::from(addr)).expect("read");
    let start = RawSuperblock::in_block(&read(0)).cp_blkaddr.get();
    let mut pack: Vec<Block> = (start..start + 6).map(|addr| *read(addr)).collect();
    for copy in 0..2 {
        let mut block = read(copy);
        let sb = RawSuperblock::in_block_mut(&mut block);
        sb.cp_payload = PAYLOAD.into();
        sb.seal();
        write(copy, &block);
    }
    for header in [0, 5] {
        let raw = RawCheckpoint::in_block_mut(&mut pack[header]);
        raw.cp_pack_start_sum = (raw.cp_pack_start_sum.get() + PAYLOAD).into();
        raw.cp_pack_total_block_count = (raw.cp_pack_total_block_count.get() + PAYLOAD).into();
        raw.ckpt_flags = (raw.flags() - CpFlags::NAT_BITS).bits().into();
        seal(&mut pack[header]);
    }
    write(start, &pack[0]);
    (1..=PAYLOAD).for_each(|n| write(start + n, &Block::ZERO));
    (1..6).for_each(|n| write(start + PAYLOAD + n, &pack[n as usize]));
    device
}

/// The names in the root directory that the test gave.
fn given(v: &Volume) -> Vec<String> {
    names(v, v.root()).into_iter().filter(|name| name != "lost+found").collect()
}

/// Makes files without a name until one is refused, and tells how many there are.
fn fill(v: &Volume) -> usize {
    for made in 0..=MOST {
        match v.tmpfile(v.root(), &new(FileKind::Regular)) {
            Ok(_) => {}
            Err(e) => {
                assert_eq!(e.errno(), 28, "{e}");
                return made;
            }
        }
    }
    panic!("more than {MOST} orphans");
}

#[test]
fn a_checkpoint_lists_every_orphan_and_one_more_is_refused() {
    for delta in [false, true] {
        let device = Arc::new(volume_with_payload(delta));
        let v = open_device(&device, "");
        let free = v.space().free;
        let (kept, other) = (file(&v, v.root(), "kept"), file(&v, v.root(), "other"));
        write(&v, kept, 0, b"kept");
        let empty = dir(&v, v.root(), "empty");
        v.release(empty, 1);
        assert_eq!(fill(&v), MOST);
        let full = |result: medfs::Result<()>| assert_eq!(result.expect_err("no room").errno(), 28);
        full(v.unlink(v.root(), b"kept"));
        full(v.rmdir(v.root(), b"empty"));
        full(v.rename(v.root(), b"other", v.root(), b"kept", RenameFlags::empty()));
        assert_eq!(given(&v), ["empty", "kept", "other"], "nothing changed");
        assert_eq!(content(&v, kept), b"kept");
        // A name that is not the last one makes no orphan.
        v.link(kept, v.root(), b"second").expect("link");
        v.unlink(v.root(), b"second").expect("unlink");
        v.sync().expect("the checkpoint lists all of them");

        // One that goes makes room for another.
        let first =
            (0..).find(|&ino| ino != kept && ino != other && v.getattr(ino).is_ok_and(|a| a.nlink == 0));
        v.release(first.expect("an orphan"), 1);
        v.unlink(v.root(), b"kept").expect("unlink");
        v.sync().expect("sync");
        drop(v); // power is lost
        let v = open_device(&device, "");
        assert_eq!(v.stats().orphans_freed, MOST as u64);
        assert_eq!(given(&v), ["empty", "other"]);
        for name in ["empty", "other"] {
            let gone =
                if name == "empty" { v.rmdir(v.root(), b"empty") } else { v.unlink(v.root(), b"other") };
            gone.expect("there is room");
        }
        v.sync().expect("sync");
        assert_eq!(v.space().free, free, "all room is back");
        v.close().expect("close");
        drop(v);
        // Of f2fs-tools no checker reads a payload as large as this.
        FsckMedfs.check(device.clone()).unwrap_or_else(|e| panic!("fsck.medfs: {e}"));
    }
}

/// A damaged list of orphans keeps nobody from the files that have names.
#[test]
fn a_volume_with_a_damaged_list_of_orphans_opens() {
    use medfs_fsck::inject::{Target, set, set_orphans};
    for (field, value) in
        [("entry_count", 1021), ("entry_count", u32::MAX), ("entry_count", 9), ("ino[0]", 0x8000_0005)]
    {
        let device = Arc::new(blank(64, all_features()));
        let v = open_device(&device, "");
        let kept = v.create(v.root(), b"kept", &new(FileKind::Regular)).expect("create").ino;
        v.release(kept, 1);
        v.close().expect("close");
        drop(v);
        set_orphans(&*device, &[40]).expect("a pack with room");
        set(&*device, &Target::OrphanBlock, field, value.into()).expect("the field is there");
        let v = open_device(&device, "");
        assert_eq!(v.lookup(v.root(), b"kept").expect("it is there").ino, kept, "{field}");
        v.release(kept, 1);
        v.setxattr(kept, b"user.a", b"changed", XattrMode::Set).expect("it can be written");
        v.close().expect("close");
        drop(v);
        FsckMedfs.check(device).expect("the next checkpoint has no such list");
    }
}

/// A flipped bit in the list of orphans makes it name a file that has a name: that is not removed.
#[test]
fn a_file_with_a_name_is_no_orphan_whatever_the_list_says() {
    let device = Arc::new(blank(64, all_features()));
    let v = open_device(&device, "");
    let ino = v.create(v.root(), b"kept", &new(FileKind::Regular)).expect("create").ino;
    v.write(ino, 0, &[7; 9000]).expect("write");
    v.release(ino, 1);
    v.close().expect("close");
    drop(v);
    medfs_fsck::inject::set_orphans(&*device, &[ino]).expect("a pack with room");
    let v = open_device(&device, "");
    assert_eq!(v.lookup(v.root(), b"kept").expect("it is there").ino, ino);
    let mut content = vec![0; 9000];
    assert_eq!(v.read(ino, 0, &mut content).expect("read"), 9000);
    assert!(content.iter().all(|&byte| byte == 7));
    v.setxattr(ino, b"user.a", b"changed", XattrMode::Set).expect("it can be written");
    v.release(ino, 1);
    v.close().expect("close");
    drop(v);
    FsckMedfs.check(device).expect("the next checkpoint lists none");
}

/// The root has no entry that leads to it, and is no orphan all the same.
#[test]
fn the_root_is_no_orphan_whatever_the_list_says() {
    let device = Arc::new(blank(64, all_features()));
    let v = open_device(&device, "");
    let root = v.root();
    v.create(root, b"kept", &new(FileKind::Regular)).expect("create");
    v.close().expect("close");
    drop(v);
    medfs_fsck::inject::set_orphans(&*device, &[root]).expect("a pack with room");
    let v = open_device(&device, "");
    v.lookup(root, b"kept").expect("it is there");
    v.create(root, b"more", &new(FileKind::Regular)).expect("create");
    v.close().expect("close");
    drop(v);
    FsckMedfs.check(device).expect("the next checkpoint lists none");
}
