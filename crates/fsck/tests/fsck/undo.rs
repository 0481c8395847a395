//! A repair is taken back bit for bit, whether it ended or was interrupted; a file that is not whole, or not
//! of the volume, takes nothing back.

use crate::common::{Bed, META, load};
use medfs::{FileKind, Files, ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::Block;
use medfs_format::superblock::RawSuperblock;
use medfs_format::undo::{HEADERS, RawUndoHeader};
use medfs_fsck::inject::{self, Target};
use medfs_fsck::undo::{UndoDevice, UndoError, check_resume, restore};
use medfs_fsck::{Options, check, repair};
use medfs_testkit::power_cut::PowerCut;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use zerocopy::IntoBytes;

fn broken(bed: &Bed) -> MemDevice {
    let dev = load(&bed.filled("undo.img", &["-O", "extra_attr,inode_checksum"]));
    let set = |target: Target<'_>, field: &str, value| inject::set(&dev, &target, field, value).unwrap();
    set(Target::Superblock(1), "magic", 0);
    set(Target::Dentry(3, b"deep"), "used", 0);
    set(Target::Checkpoint, "valid_node_count", 5);
    set(Target::Sit(3), "valid_map[3]", 0xff);
    dev
}

fn same(a: &MemDevice, b: &MemDevice) -> bool {
    (0..a.block_count()).all(|addr| read_block(a, addr).unwrap().0 == read_block(b, addr).unwrap().0)
}

/// A repaired volume with its undo file, and the volume as it was.
fn repaired(bed: &Bed) -> (MemDevice, PathBuf, MemDevice) {
    let (before, file) = (broken(bed), bed.path("undo"));
    let dev = before.snapshot();
    let undo = UndoDevice::create(&file, PowerCut::never(&dev)).unwrap();
    let repaired = repair(&undo, &Options::default(), &mut |_| {}).unwrap();
    assert_eq!(repaired.after.findings, []);
    assert!(undo.finish().unwrap() > 10);
    drop(undo);
    assert!(check(&dev, &Options::default(), &mut |_| {}).unwrap().findings.is_empty());
    assert!(!same(&dev, &before));
    (dev, file, before)
}

#[test]
fn a_repair_is_taken_back_bit_for_bit() {
    let bed = Bed::new();
    let (dev, file, before) = repaired(&bed);
    let blocks = restore(&file, &dev).unwrap();
    assert!(blocks > 10 && same(&dev, &before));
    // Once more, or on a copy that was not repaired, there is nothing to restore.
    for dev in [&dev, &before] {
        refused(&file, dev, "as before the repair", |e| matches!(e, UndoError::Restored(..)));
    }
}

#[test]
fn a_repair_that_is_interrupted_at_any_write_is_taken_back() {
    let bed = Bed::new();
    let before = broken(&bed);
    let mut writes = 0;
    loop {
        let (dev, file) = (before.snapshot(), bed.path(&format!("undo{writes}")));
        let undo = UndoDevice::create(&file, PowerCut::after(writes, &dev)).unwrap();
        let ended = repair(&undo, &Options::default(), &mut |_| {}).is_ok();
        drop(undo);
        // The volume of a repair that is interrupted can be repaired again, too.
        if writes % 5 == 0 {
            let again = repair(&dev.snapshot(), &Options::default(), &mut |_| {}).unwrap();
            assert_eq!(again.after.findings, [], "after {writes} writes");
        }
        if !ended {
            // A record that is not whole was not synced, so no block was changed for it.
            let mut bytes = fs::read(&file).unwrap();
            bytes.extend_from_slice(&[0xaa; 5000]);
            fs::write(&file, bytes).unwrap();
        }
        restore(&file, &dev).unwrap_or_else(|e| panic!("after {writes} writes: {e}"));
        assert!(same(&dev, &before), "after {writes} writes");
        if ended {
            break;
        }
        writes += 1;
    }
    assert!(writes > 10, "only {writes} writes");
}

/// Repairs a device with the power lost behind so many writes, with an undo file that is there or a new one;
/// whether the repair ended.
fn repair_until(dev: &MemDevice, file: &Path, writes: u64) -> bool {
    let cut = PowerCut::after(writes, dev);
    let undo = match file.exists() {
        true => UndoDevice::resume(file, cut).unwrap(),
        false => UndoDevice::create(file, cut).unwrap(),
    };
    repair(&undo, &Options::default(), &mut |_| {}).is_ok_and(|_| undo.finish().is_ok())
}

#[test]
fn a_repair_that_was_interrupted_goes_on_with_its_undo_file() {
    let bed = Bed::new();
    let before = broken(&bed);
    let mut went_on = 0;
    for writes in 0.. {
        let (dev, file) = (before.snapshot(), bed.path(&format!("undo{writes}")));
        if repair_until(&dev, &file, writes) {
            break;
        }
        // A record that is not whole is written over.
        if file.exists() {
            let mut bytes = fs::read(&file).unwrap();
            bytes.extend_from_slice(&[0xaa; 5000]);
            fs::write(&file, bytes).unwrap();
            went_on += 1;
        }
        // Once more, and then to its end.
        let ended = repair_until(&dev, &file, 2);
        let twice = dev.snapshot();
        if file.exists() && !ended {
            restore(&file, &twice).unwrap_or_else(|e| panic!("after {writes} writes and 2: {e}"));
            assert!(same(&twice, &before), "after {writes} writes and 2");
        }
        assert!(ended || repair_until(&dev, &file, u64::MAX), "after {writes} writes");
        assert!(check(&dev, &Options::default(), &mut |_| {}).unwrap().findings.is_empty());
        restore(&file, &dev).unwrap_or_else(|e| panic!("after {writes} writes: {e}"));
        assert!(same(&dev, &before), "after {writes} writes");
    }
    assert!(went_on > 10, "only {went_on} went on");
}

/// A second repair without the file ends it, or the volume is used: what the file has is no part of that.
#[test]
fn a_volume_used_since_an_interrupted_repair_is_not_restored() {
    let bed = Bed::new();
    let before = broken(&bed);
    let mut tried = 0;
    for writes in (0..).step_by(3) {
        let (dev, file) = (before.snapshot(), bed.path(&format!("undo{writes}")));
        if repair_until(&dev, &file, writes) {
            break;
        }
        // Power is lost behind the first write at the earliest.
        if !file.exists() || same(&dev, &before) {
            continue;
        }
        assert_eq!(repair(&dev, &Options::default(), &mut |_| {}).unwrap().after.findings, []);
        let used = dev.snapshot();
        refused(&file, &dev, "was changed since", |e| matches!(e, UndoError::Changed(..)));
        let resumed = UndoDevice::resume(&file, PowerCut::never(&dev));
        assert!(matches!(resumed.err(), Some(UndoError::Changed(..))), "after {writes} writes");
        assert!(same(&dev, &used), "after {writes} writes");
        tried += 1;
    }
    assert!(tried > 3, "only {tried} tried");
}

#[test]
fn a_repair_goes_on_with_no_other_file() {
    let bed = Bed::new();
    let (dev, file, _) = repaired(&bed);
    let refused = |file: &Path, dev: &MemDevice| {
        let bytes = fs::read(file).unwrap();
        let checked = check_resume(file, dev).expect_err("it is none to go on with");
        let error = UndoDevice::resume(file, PowerCut::never(dev)).err().expect("it is none to go on with");
        assert_eq!(checked.to_string(), error.to_string());
        assert!(fs::read(file).unwrap() == bytes, "the file is left as it is");
        error
    };
    assert!(matches!(refused(&file, &dev), UndoError::Ended(_)));
    let mine = bed.path("mine");
    fs::write(&mine, "mine").unwrap();
    assert!(matches!(refused(&mine, &dev), UndoError::Foreign(_)));
    let (dev, file) = (broken(&bed), bed.path("interrupted"));
    assert!(!repair_until(&dev, &file, 5));
    assert!(check_resume(&file, &dev).is_ok());
    let elsewhere = load(&bed.filled("other.img", &["-O", "extra_attr,inode_checksum"]));
    assert!(matches!(refused(&file, &elsewhere), UndoError::Other(..)));
}

/// The process ends before anything is kept: the file has no records, or not a byte.
#[test]
fn an_undo_file_without_records_takes_nothing_back_and_is_gone_on_with() {
    let bed = Bed::new();
    let before = broken(&bed);
    let without_records = bed.path("without records");
    let undo = UndoDevice::create(&without_records, PowerCut::never(&before)).unwrap();
    let headers = fs::read(&without_records).unwrap();
    drop(undo);
    for (name, bytes) in [("headers", &headers[..]), ("empty", b"")] {
        let (dev, file) = (before.snapshot(), bed.path(name));
        fs::write(&file, bytes).unwrap();
        assert_eq!(restore(&file, &dev).unwrap(), 0, "{name}");
        assert!(same(&dev, &before));
        assert!(repair_until(&dev, &file, u64::MAX), "{name}");
        assert!(!same(&dev, &before) && restore(&file, &dev).unwrap() > 10, "{name}");
        assert!(same(&dev, &before), "{name}");
    }
}

/// Restoring fails with this error and leaves the device alone.
fn refused(file: &Path, dev: &MemDevice, what: &str, right: fn(&UndoError) -> bool) {
    let before = dev.snapshot();
    let error = restore(file, dev).expect_err(what);
    assert!(right(&error), "{what}: {error}");
    assert_eq!(error.to_string().lines().count(), 1);
    assert!(same(dev, &before), "{what}: nothing is written");
}

#[test]
fn a_file_that_is_not_whole_takes_nothing_back() {
    let bed = Bed::new();
    let (dev, file, before) = repaired(&bed);
    let bytes = fs::read(&file).unwrap();
    let damaged = |e: &UndoError| matches!(e, UndoError::Damaged(..));
    let part = bed.path("part");
    for len in [8192, 9000, bytes.len() / 2, bytes.len() - 4128, bytes.len() - 16, bytes.len() - 1] {
        fs::write(&part, &bytes[..len]).unwrap();
        refused(&part, &dev, &format!("{len} bytes"), damaged);
    }
    for at in [30, 4096 + 30, 8192, 8192 + 4, 8192 + 16, 12000, bytes.len() / 2, bytes.len() - 20] {
        let mut bytes = bytes.clone();
        bytes[at] ^= 0x20;
        fs::write(&part, &bytes).unwrap();
        match restore(&part, &dev.snapshot()) {
            // The older header may be the one that is damaged, and is not needed.
            Ok(_) => {
                let dev = dev.snapshot();
                restore(&part, &dev).unwrap();
                assert!(same(&dev, &before), "byte {at}");
            }
            Err(_) => refused(&part, &dev, &format!("byte {at}"), damaged),
        }
    }
    let foreign = |e: &UndoError| matches!(e, UndoError::Foreign(..));
    for other in [&b"short"[..], &[0; 20000]] {
        fs::write(&part, other).unwrap();
        refused(&part, &dev, "something else", foreign);
    }
    let newer = |e: &UndoError| matches!(e, UndoError::Version(_, 9));
    for headers in [&HEADERS[..1], &HEADERS[1..], &HEADERS[..]] {
        let mut bytes = bytes.clone();
        for at in headers.iter().map(|&at| at as usize) {
            let mut header = RawUndoHeader::parse(&bytes[at..]).unwrap();
            header.version = 9.into();
            header.seal();
            bytes[at..at + header.as_bytes().len()].copy_from_slice(header.as_bytes());
        }
        fs::write(&part, &bytes).unwrap();
        refused(&part, &dev, "a newer version", newer);
    }
    // A later layout may have its checksum elsewhere.
    let mut bytes = bytes;
    HEADERS.into_iter().for_each(|at| bytes[at as usize + 8] = 9);
    fs::write(&part, &bytes).unwrap();
    refused(&part, &dev, "a newer layout", newer);
}

/// The last header of a repair that ended tells all: a bit of the one before it, its version too, is not needed.
#[test]
fn a_flipped_bit_in_the_older_header_is_not_in_the_way() {
    let bed = Bed::new();
    let (repaired, file, before) = repaired(&bed);
    let bytes = fs::read(&file).unwrap();
    let is_older = |at: &u64| RawUndoHeader::parse(&bytes[*at as usize..]).unwrap().ended.get() == 0;
    let older = HEADERS.into_iter().find(is_older).unwrap() as usize;
    for at in [8, 12, 30, 60] {
        let mut bytes = bytes.clone();
        bytes[older + at] ^= 1;
        fs::write(&file, &bytes).unwrap();
        let dev = repaired.snapshot();
        assert!(restore(&file, &dev).unwrap() > 10, "byte {at}");
        assert!(same(&dev, &before), "byte {at}");
    }
}

#[test]
fn a_file_of_another_volume_takes_nothing_back() {
    let bed = Bed::new();
    let (dev, file, _) = repaired(&bed);
    let other = |e: &UndoError| matches!(e, UndoError::Other(..));
    let elsewhere = load(&bed.filled("other.img", &["-O", "extra_attr,inode_checksum"]));
    refused(&file, &elsewhere, "another UUID", other);
    refused(&file, &load(&bed.mkfs("small.img", 64, &[])), "another size", other);
    // A volume that was used since would be a mixture.
    let changed = dev.snapshot();
    let sb = read_block(&dev, 0).unwrap();
    let pack = u64::from(RawSuperblock::in_block(&sb).cp_blkaddr.get());
    for addr in [pack, pack + 512] {
        let mut block = read_block(&changed, addr).unwrap();
        block.0[5] ^= 1;
        changed.write(addr, &[&block], META).unwrap();
    }
    refused(&file, &changed, "used since", |e| matches!(e, UndoError::Changed(..)));
}

#[test]
fn a_volume_that_was_written_since_takes_nothing_back() {
    let bed = Bed::new();
    let (dev, file, _) = repaired(&bed);
    let dev = Arc::new(dev);
    for uses in 1..=3 {
        let clock = ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 });
        let v = Volume::open(dev.clone(), MountOptions::default(), Arc::new(clock)).unwrap();
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        v.create(v.root(), format!("new {uses}").as_bytes(), &new).unwrap();
        v.close().unwrap();
        refused(&file, &dev, &format!("used {uses} times"), |e| matches!(e, UndoError::Changed(..)));
    }
}

#[test]
fn an_undo_file_is_a_new_one_and_goes_where_nothing_was_changed() {
    let bed = Bed::new();
    let dev = load(&bed.mkfs("clean.img", 64, &[]));
    let file = bed.path("undo");
    fs::write(&file, "mine").unwrap();
    assert_eq!(
        UndoDevice::create(&file, PowerCut::never(&dev)).err().unwrap().kind(),
        io::ErrorKind::AlreadyExists
    );
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    fs::remove_file(&file).unwrap();
    let undo = UndoDevice::create(&file, PowerCut::never(&dev)).unwrap();
    assert!(!repair(&undo, &Options::default(), &mut |_| {}).unwrap().changed);
    assert_eq!(undo.finish().unwrap(), 0);
    assert!(!file.exists());
}

/// What ends before anything was kept, as on a full disk, leaves no file.
#[test]
fn an_undo_file_without_records_goes_with_what_failed() {
    let bed = Bed::new();
    let (dev, file) = (MemDevice::new(1 << 14), bed.path("undo"));
    drop(UndoDevice::create(&file, PowerCut::never(&dev)).unwrap());
    assert!(!file.exists());
    let undo = UndoDevice::create(&file, PowerCut::never(&dev)).unwrap();
    undo.write(7, &[&Block([1; 4096])], META).unwrap();
    undo.flush().unwrap();
    drop(undo);
    assert!(file.exists(), "it takes the block back");
}

/// What is named may be a device of the machine: it is neither written nor removed.
#[test]
fn a_pipe_is_no_undo_file_and_stays() {
    let bed = Bed::new();
    let (dev, file, _) = repaired(&bed);
    let pipe = file.with_file_name("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().expect("mkfifo runs").success());
    let foreign = |e: &UndoError| matches!(e, UndoError::Foreign(..));
    refused(&pipe, &dev, "a pipe", foreign);
    assert!(UndoDevice::resume(&pipe, dev.snapshot()).is_err_and(|e| foreign(&e)));
    assert!(check_resume(&pipe, &dev).is_err_and(|e| foreign(&e)));
    assert!(pipe.symlink_metadata().is_ok(), "it was removed");
}
