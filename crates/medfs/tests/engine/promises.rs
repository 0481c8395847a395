//! Promises of docs/SEMANTICS.md about a running volume, through the public face alone.

use crate::common::*;
use medfs::{FileKind, Files, ManualClock, MountOptions, NewFile, RenameFlags, SetAttr, Volume, XattrMode};
use medfs_device::count::CountingDevice;
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind};
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_format::node::footer;
use medfs_format::superblock::Feature;
use std::sync::Arc;
use std::thread;

fn errno<T: std::fmt::Debug>(result: medfs::Result<T>) -> i32 {
    result.expect_err("this must fail").errno()
}

#[test]
fn a_full_volume_says_so_at_once_and_loses_nothing() {
    let device = Arc::new(blank(64, all_features()));
    let v = open(device.clone());
    let free = v.space().free;
    let mut written = Vec::new();
    let error = loop {
        let n = written.len() as u32;
        let f = match v.create(v.root(), format!("f{n}").as_bytes(), &new(FileKind::Regular)) {
            Ok(attr) => attr.ino,
            Err(e) => break e,
        };
        match v.write(f, 0, &vec![n as u8; 256 * PAGE]) {
            Ok(len) => written.push((f, len)),
            Err(e) => break e,
        }
        assert!(written.len() < 100, "64 MiB take more than 100 MiB");
    };
    assert_eq!(error.errno(), 28, "{error}");
    let pages: usize = written.iter().map(|(_, len)| len.div_ceil(PAGE)).sum();
    assert!(pages as u64 * 100 > free * 95, "only {pages} pages fit into {free} free ones");
    v.sync().expect("what was acknowledged can be written");
    v.close().expect("close");
    drop(v);

    let v = open(device);
    for (n, (_, len)) in written.iter().enumerate() {
        let f = at(&v, &format!("f{n}")).unwrap_or_else(|| panic!("f{n} is gone"));
        assert!(content(&v, f.ino)[..*len].iter().all(|b| *b == n as u8), "f{n} has other bytes");
    }
    for name in names(&v, v.root()) {
        v.unlink(v.root(), name.as_bytes()).expect("a full volume lets go of files");
    }
    v.sync().expect("sync");
    assert_eq!(v.space().free, free, "all room is back");
    let f = file(&v, v.root(), "again");
    write(&v, f, 0, &vec![1; free as usize * 9 / 10 * PAGE]);
    v.fsync(f, false).expect("fsync");
}

#[test]
fn overwriting_works_on_a_full_volume() {
    let v = open(blank(64, all_features()));
    let f = file(&v, v.root(), "f");
    let mut size = 0;
    while let Ok(len) = v.write(f, size, &vec![1; 64 * PAGE]) {
        size += len as u64;
    }
    v.fsync(f, false).expect("fsync");
    for round in 0..20u64 {
        let offset = (round * 7919) % (size / PAGE as u64) * PAGE as u64;
        write(&v, f, offset, &vec![2; PAGE]);
        v.fsync(f, true).expect("fsync of an overwrite");
        let mut back = vec![0; PAGE];
        v.read(f, offset, &mut back).expect("read");
        assert!(back.iter().all(|b| *b == 2));
    }
}

#[test]
fn after_a_write_error_the_volume_is_read_only_and_keeps_what_was_fsynced() {
    for nth in 0..6 {
        let base = blank(64, all_features());
        let faulty = Arc::new(FaultDevice::new(base, 1));
        let v = open(faulty.clone());
        let f = file(&v, v.root(), "f");
        write(&v, f, 0, &vec![1; 2 * PAGE]);
        v.fsync(f, false).expect("fsync");
        faulty.arm(Fault::on(Kind::Write, Effect::IO).after(nth));
        let failed = (0..50u8).find_map(|i| {
            let done = v.write(f, u64::from(i) * PAGE as u64, &vec![2; PAGE]).and_then(|_| v.fsync(f, false));
            done.err()
        });
        let failed = failed.expect("the device's error is reported");
        assert_eq!(failed.errno(), 5, "{failed}");
        assert!(v.is_read_only() && v.stats().read_only);
        assert_eq!(errno(v.write(f, 0, b"x")), 30);
        assert_eq!(errno(v.unlink(v.root(), b"f")), 30);
        v.getattr(f).expect("reading goes on");
        drop(v);
        faulty.heal();
        let v = open(faulty.inner().snapshot());
        let found = content(&v, at(&v, "f").expect("the fsynced file").ino);
        assert!(found.len() >= 2 * PAGE && found[..2 * PAGE].iter().all(|b| *b == 1 || *b == 2));
    }
}

#[test]
fn a_flush_error_is_never_forgotten() {
    let faulty = Arc::new(FaultDevice::new(blank(64, all_features()), 1));
    let v = open(faulty.clone());
    let f = file(&v, v.root(), "f");
    write(&v, f, 0, &vec![1; PAGE]);
    faulty.arm(Fault::on(Kind::Flush, Effect::IO).times(1));
    assert_eq!(errno(v.fsync(f, false)), 5);
    assert!(v.fsync(f, false).is_err(), "a second fsync cannot make up for it");
    assert!(v.is_read_only());
}

#[test]
fn damage_is_an_error_that_names_its_place() {
    let device = Arc::new(blank(64, all_features()));
    let v = open(device.clone());
    let f = file(&v, v.root(), "f");
    write(&v, f, 0, &vec![1; 10 * PAGE]);
    v.close().expect("close");
    drop(v);
    for addr in device.written() {
        let mut block = medfs_device::read_block(&device, addr).expect("reads");
        let foot = *footer(&block);
        if foot.nid.get() == f && foot.ino.get() == f {
            block.0[16] ^= 0x40; // i_size
            device.write(addr, &[&block], WriteTag::new(Cause::Node, Temperature::Cold)).expect("written");
        }
    }
    let v = open(device);
    let error = v.lookup(v.root(), b"f").expect_err("a checksum is wrong");
    assert_eq!(error.errno(), 117);
    assert!(
        error.to_string().contains(&f.to_string()) && error.to_string().contains("i_inode_checksum"),
        "{error}"
    );
}

#[test]
fn a_read_only_volume_is_not_written() {
    let device = Arc::new(blank(64, all_features()));
    let v = open(device.clone());
    let f = file(&v, v.root(), "f");
    write(&v, f, 0, b"text");
    v.sync().expect("sync");
    write(&v, f, PAGE as u64, b"more");
    v.fsync(f, false).expect("fsync");
    let gone = file(&v, v.root(), "gone");
    v.unlink(v.root(), b"gone").expect("unlink");
    assert_ne!(gone, f);
    drop(v); // power is lost: there is something to roll forward
    let counting = Arc::new(CountingDevice::new(device.clone()));
    let v = open_with(counting.clone(), "ro", Arc::new(ManualClock::new(START)));
    let found = at(&v, "f").expect("the file");
    let mut text = b"text".to_vec();
    text.resize(PAGE, 0);
    text.extend(b"more");
    assert_eq!(content(&v, found.ino), text, "what was fsynced is shown");
    assert!(at(&v, "gone").is_none());
    assert_eq!(errno(v.create(v.root(), b"x", &new(FileKind::Regular))), 30);
    assert_eq!(errno(v.setattr(found.ino, &SetAttr { perm: Some(0o600), ..Default::default() })), 30);
    v.sync().expect("there is nothing to write");
    v.close().expect("close");
    drop(v);
    let counts = counting.counts();
    assert!(!counting.read_only(), "the device would have taken writes");
    assert_eq!((counts.blocks_written(), counts.discards), (0, 0));
}

#[test]
fn every_block_written_is_counted_once_under_its_cause() {
    let counting = Arc::new(CountingDevice::new(blank(64, all_features())));
    let v = open(counting.clone());
    let before = counting.counts();
    for round in 0..4 {
        let d = dir(&v, v.root(), &format!("d{round}"));
        for n in 0..40u64 {
            let f = file(&v, d, &format!("f{n}"));
            write(&v, f, n * PAGE as u64, &vec![1; 3 * PAGE]);
            if n % 8 == 0 {
                v.fsync(f, false).expect("fsync");
            }
            v.release(f, 1);
        }
        v.sync().expect("sync");
    }
    let (stats, counts) = (v.stats(), counting.counts());
    let delta = |cause| counts.cause(cause).blocks - before.cause(cause).blocks;
    let written = stats.written;
    assert_eq!(
        [written.data, written.node, written.compact, written.meta, written.gc],
        [Cause::Data, Cause::Node, Cause::Compact, Cause::Meta, Cause::Gc].map(delta)
    );
    assert!(written.data >= 4 * 40 * 3 && written.node >= 160 && written.meta > 0);
    assert_eq!(stats.written_bytes, written.total() * PAGE as u64);
}

#[test]
fn threads_share_a_volume() {
    let device = Arc::new(blank(128, all_features()));
    let v = Arc::new(open(device.clone()));
    thread::scope(|scope| {
        for t in 0..4u64 {
            let v = &v;
            scope.spawn(move || {
                for n in 0..60u64 {
                    let f = file(v, v.root(), &format!("t{t}n{n}"));
                    write(v, f, 0, &vec![(t * 60 + n) as u8; (n as usize % 7 + 1) * PAGE]);
                    match n % 5 {
                        0 => v.fsync(f, false).expect("fsync"),
                        1 => v.unlink(v.root(), format!("t{t}n{n}").as_bytes()).expect("unlink"),
                        2 => v.sync().expect("sync"),
                        _ => {}
                    }
                    v.release(f, 1);
                }
            });
        }
    });
    let check = |v: &Volume| {
        assert_eq!(names(v, v.root()).iter().filter(|n| n.starts_with('t')).count(), 4 * 48);
        for (t, n) in (0..4u64).flat_map(|t| (0..60u64).map(move |n| (t, n))).filter(|(_, n)| n % 5 != 1) {
            let found = content(v, at(v, &format!("t{t}n{n}")).expect("the file").ino);
            assert_eq!(found.len(), (n as usize % 7 + 1) * PAGE);
            assert!(found.iter().all(|b| *b == (t * 60 + n) as u8));
        }
    };
    check(&v);
    v.close().expect("close");
    drop(v);
    check(&open(device));
}

#[test]
fn renames_of_two_threads_end_in_one_tree() {
    let v = Arc::new(open(blank(64, all_features())));
    let (a, b) = (dir(&v, v.root(), "a"), dir(&v, v.root(), "b"));
    dir(&v, a, "x");
    thread::scope(|scope| {
        for (from, to) in [(a, b), (b, a)] {
            let v = &v;
            scope.spawn(move || {
                for _ in 0..500 {
                    match v.rename(from, b"x", to, b"x", RenameFlags::empty()) {
                        Ok(()) => {}
                        Err(e) => assert_eq!(e.errno(), 2, "{e}"),
                    }
                }
            });
        }
    });
    let places = [names(&v, a), names(&v, b)].concat();
    assert_eq!(places, ["x"]);
    assert_eq!(v.getattr(a).expect("a").nlink + v.getattr(b).expect("b").nlink, 5);
    let outer = dir(&v, v.root(), "outer");
    let inner = dir(&v, outer, "inner");
    assert_eq!(errno(v.rename(v.root(), b"outer", inner, b"loop", RenameFlags::empty())), 22);
}

#[test]
fn a_closed_volume_refuses_changes() {
    let counting = Arc::new(CountingDevice::new(blank(64, all_features())));
    let v = open(counting.clone());
    let f = file(&v, v.root(), "f");
    write(&v, f, 0, b"text");
    v.close().expect("close");
    let closed = counting.counts();
    assert_eq!(errno(v.write(f, 0, b"x")), 30);
    assert_eq!(errno(v.unlink(v.root(), b"f")), 30);
    v.close().expect("closing again does nothing");
    drop(v);
    assert_eq!(counting.counts().blocks_written(), closed.blocks_written());
    let v = open(counting.inner().snapshot());
    assert_eq!(v.stats().recovered_inodes, 0, "there was nothing to recover");
    assert_eq!(content(&v, at(&v, "f").expect("the file").ino), b"text");
}

#[test]
fn acls_follow_posix() {
    let v = open(blank(64, all_features()));
    let hex = |s: &str| -> Vec<u8> {
        (0..s.len()).step_by(2).map(|i| u8::from_str_radix(&s[i..i + 2], 16).unwrap()).collect()
    };
    // setfacl -d -m u::rwx,u:7:rwx,g::rx,m::rwx,o::rx, and what a file made with mode 666 then has on ext4.
    let default =
        hex("0200000001000700ffffffff020007000700000004000500ffffffff10000700ffffffff20000500ffffffff");
    let inherited =
        hex("0200000001000600ffffffff020007000700000004000500ffffffff10000600ffffffff20000400ffffffff");
    let after_chmod =
        hex("0200000001000700ffffffff020007000700000004000500ffffffff10000000ffffffff20000500ffffffff");
    let d = dir(&v, v.root(), "d");
    v.setxattr(d, b"system.posix_acl_default", &default, XattrMode::Set).expect("default ACL");
    let wanted = NewFile { perm: 0o666, umask: 0o077, ..new(FileKind::Regular) };
    let f = v.create(d, b"f", &wanted).expect("create");
    assert_eq!(f.perm, 0o664, "the umask does not count beside a default ACL");
    assert_eq!(v.getxattr(f.ino, b"system.posix_acl_access").expect("access ACL"), inherited);
    let sub = v.create(d, b"sub", &NewFile { perm: 0o777, ..new(FileKind::Directory) }).expect("mkdir");
    assert_eq!(v.getxattr(sub.ino, b"system.posix_acl_default").expect("default ACL"), default);
    v.setattr(f.ino, &SetAttr { perm: Some(0o705), ..Default::default() }).expect("chmod");
    assert_eq!(v.getxattr(f.ino, b"system.posix_acl_access").expect("access ACL"), after_chmod);
    let plain = hex("0200000001000600ffffffff04000400ffffffff20000000ffffffff");
    v.setxattr(f.ino, b"system.posix_acl_access", &plain, XattrMode::Set).expect("an ACL that the bits say");
    assert_eq!(v.getattr(f.ino).expect("stat").perm, 0o640);
    assert_eq!(errno(v.getxattr(f.ino, b"system.posix_acl_access")), 61);
    assert_eq!(errno(v.setxattr(f.ino, b"system.posix_acl_default", &default, XattrMode::Set)), 13);
    for (wrong, expected) in [(&default[..10], 22), (&[1, 0, 0, 0], 95)] {
        assert_eq!(errno(v.setxattr(d, b"system.posix_acl_default", wrong, XattrMode::Set)), expected);
    }
    let outside = v.create(v.root(), b"outside", &wanted).expect("create");
    assert_eq!(outside.perm, 0o600, "without a default ACL the umask counts");
}

#[test]
fn attributes_are_set_as_linux_does() {
    let v = open(blank(64, all_features()));
    let f = file(&v, v.root(), "f");
    assert_eq!(errno(v.getxattr(f, b"user.x")), 61);
    assert_eq!(errno(v.setxattr(f, b"user.x", b"1", XattrMode::Replace)), 61);
    v.setxattr(f, b"user.x", b"1", XattrMode::Create).expect("create");
    assert_eq!(errno(v.setxattr(f, b"user.x", b"2", XattrMode::Create)), 17);
    v.setxattr(f, b"user.x", &[3; 3000], XattrMode::Replace).expect("replace, beyond the inode");
    v.setxattr(f, b"security.capability", b"c", XattrMode::Set).expect("security");
    let mut listed = v.listxattr(f).expect("list");
    listed.sort();
    assert_eq!(listed, [b"security.capability".to_vec(), b"user.x".to_vec()]);
    assert_eq!(v.getxattr(f, b"user.x").expect("get"), [3; 3000]);
    assert_eq!(errno(v.setxattr(f, b"user.big", &[0; 5000], XattrMode::Set)), 7, "no file can have it");
    assert_eq!(
        errno(v.setxattr(f, b"user.more", &[0; 2000], XattrMode::Set)),
        7,
        "this file has no room for it"
    );
    assert_eq!(errno(v.setxattr(f, b"other.x", b"1", XattrMode::Set)), 95);
    v.removexattr(f, b"user.x").expect("remove");
    assert_eq!(errno(v.removexattr(f, b"user.x")), 61);
}

#[test]
fn holes_read_as_zeros_and_take_no_room() {
    let v = open(blank(64, Feature::empty()));
    let f = file(&v, v.root(), "f");
    let end = 1u64 << 40;
    write(&v, f, end, b"end");
    let attr = v.getattr(f).expect("stat");
    assert_eq!(attr.size, end + 3);
    assert!(attr.blocks <= 5 * 8, "{} sectors", attr.blocks);
    let mut middle = [1; 100];
    assert_eq!(v.read(f, end / 2, &mut middle).expect("read"), 100);
    assert_eq!(middle, [0; 100]);
    assert_eq!(v.seek(f, 0, medfs::Seek::Data).expect("seek"), end);
    assert_eq!(v.seek(f, 0, medfs::Seek::Hole).expect("seek"), 0);
}

#[test]
fn times_come_from_the_clock() {
    let clock = Arc::new(ManualClock::new(START));
    let v = open_with(Arc::new(blank(64, all_features())), "", clock.clone());
    let f = file(&v, v.root(), "f");
    let made = v.getattr(f).expect("stat");
    assert_eq!([made.atime, made.mtime, made.ctime], [START; 3]);
    assert_eq!(made.crtime, Some(START));
    clock.advance(std::time::Duration::from_secs(10));
    write(&v, f, 0, b"x");
    let written = v.getattr(f).expect("stat");
    assert_eq!(
        (written.mtime, written.ctime, written.crtime),
        (clock_now(&clock), clock_now(&clock), Some(START))
    );
    clock.advance(std::time::Duration::from_secs(10));
    v.setattr(f, &SetAttr { perm: Some(0o600), ..Default::default() }).expect("chmod");
    let changed = v.getattr(f).expect("stat");
    assert_eq!((changed.mtime, changed.ctime), (written.mtime, clock_now(&clock)));
}

fn clock_now(clock: &ManualClock) -> medfs::Timestamp {
    medfs::Clock::now(clock)
}

#[test]
fn memory_stays_within_the_cache_option() {
    let v = open_with(Arc::new(blank(256, Feature::empty())), "cache=4M", Arc::new(ManualClock::new(START)));
    let f = file(&v, v.root(), "f");
    for n in 0..100u64 {
        write(&v, f, n << 20, &vec![1; 1 << 20]);
        let stats = v.stats();
        let pages = stats.dirty_pages + stats.cached_pages + stats.dirty_nodes + stats.cached_nodes;
        assert!(pages * PAGE as u64 <= 8 << 20, "{pages} pages after {n} MiB");
    }
    let mut buffer = vec![0; 1 << 20];
    for n in 0..100u64 {
        assert_eq!(v.read(f, n << 20, &mut buffer).expect("read"), 1 << 20);
        assert!(buffer.iter().all(|b| *b == 1));
    }
    assert!(v.stats().cached_pages * PAGE as u64 <= 8 << 20);
}

#[test]
fn features_that_are_not_supported_are_named() {
    let unknown = Feature::from_bits_retain(1 << 30);
    for (feature, name, readable) in [
        (Feature::CASEFOLD, "casefold", true),
        (Feature::BLKZONED, "blkzoned", true),
        (unknown, "0x40000000", false),
    ] {
        let device = blank(64, Feature::EXTRA_ATTR);
        for addr in [0, 1] {
            let mut block = medfs_device::read_block(&device, addr).expect("reads");
            let sb = medfs_format::superblock::RawSuperblock::in_block_mut(&mut block);
            sb.feature = (sb.feature.get() | feature.bits()).into();
            sb.seal();
            device.write(addr, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold)).expect("written");
        }
        let device = Arc::new(device);
        let open =
            |options: MountOptions| Volume::open(device.clone(), options, Arc::new(ManualClock::new(START)));
        let error = open(MountOptions::default()).expect_err("it may not be written");
        assert_eq!(error.errno(), 95, "{error}");
        assert!(error.to_string().contains(name), "{error}");
        let read_only = open(MountOptions { read_only: true, ..Default::default() });
        assert_eq!(read_only.is_ok(), readable, "{name}: {read_only:?}");
    }
}
