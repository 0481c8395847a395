//! What single planted faults do not show: volumes that cannot be mended, orphans, the log of fsynced files,
//! and a repair that is interrupted.

use crate::common::{Bed, META, load, number, tool};
use medfs::{FileKind, Files, MountOptions, NewFile, SetAttr, Volume};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::checkpoint::RawCheckpoint;
use medfs_format::node::{RawInode, footer, footer_mut};
use medfs_format::superblock::RawSuperblock;
use medfs_format::{BLOCK_SIZE, Block};
use medfs_fsck::dump::{Dump, Record, Value};
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Options, Report, Severity, check, repair};
use medfs_testkit::images::{FEATURE_SETS, formatted};
use medfs_testkit::power_cut::PowerCut;
use medfs_testkit::volume::test_clock;
use std::sync::Arc;

fn ino(dev: &MemDevice, path: &str) -> u32 {
    number(Dump::open(dev).unwrap().path(path).unwrap().get("ino"))
}

fn checked(dev: &dyn BlockDevice) -> Report {
    check(dev, &Options::default(), &mut |_| {}).unwrap()
}

fn set(dev: &MemDevice, target: Target<'_>, field: &str, value: u64) {
    inject::set(dev, &target, field, value).unwrap();
}

#[test]
fn ruined_volumes_are_named_and_left_alone() {
    let bed = Bed::new();
    let whole = load(&bed.mkfs("ruined.img", 64, &[]));
    let zeros = |dev: &MemDevice, addr: u64| dev.write(addr, &[&Block::ZERO], META).unwrap();
    let packs = [0, 1].into_iter().chain(512..1536);
    for (code, blocks) in [(Code::NoSuperblock, packs)] {
        let dev = whole.snapshot();
        blocks.for_each(|addr| zeros(&dev, addr));
        let before = dev.snapshot();
        let repair = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(repair.before.has(code), "{code}: {:?}", repair.before.findings);
        assert!(!repair.changed && !repair.after.is_clean());
        for addr in before.written() {
            assert_eq!(
                read_block(&dev, addr).unwrap().0,
                read_block(&before, addr).unwrap().0,
                "block {addr}"
            );
        }
    }
    let short = MemDevice::new(whole.block_count() / 2);
    for addr in whole.written().into_iter().filter(|&a| a < short.block_count()) {
        short.write(addr, &[&read_block(&whole, addr).unwrap()], META).unwrap();
    }
    assert!(checked(&short).has(Code::Truncated));
    assert!(checked(&MemDevice::new(1)).has(Code::NoSuperblock));
}

/// Found by fuzzing: the pack that the repair wrote was not valid itself, so that the older one came back.
#[test]
fn a_count_of_user_blocks_below_what_is_in_use_is_mended() {
    let bed = Bed::new();
    let dev = load(&bed.filled("user.img", &[]));
    for (field, value) in [("valid_inode_count", 1), ("valid_node_count", 1), ("valid_block_count", 2)] {
        set(&dev, Target::Checkpoint, field, value);
    }
    set(&dev, Target::Checkpoint, "user_block_count", 5);
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(repaired.before.has(Code::ValidBlockCount) && repaired.changed);
    assert_eq!(repaired.after.findings, []);
    bed.judge(&dev).unwrap();
}

/// Found by fuzzing: names could not be hashed in a root directory that was called encrypted, so that there
/// was no lost+found, and the volume was called full.
#[test]
fn a_root_called_encrypted_on_a_volume_without_that_takes_names() {
    let bed = Bed::new();
    let dev = load(&bed.filled("encrypted.img", &[]));
    set(&dev, Target::Inode(3), "i_advise", 0xff);
    set(&dev, Target::Dentry(3, b"direct"), "used", 0);
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert_eq!((repaired.after.findings, repaired.unfinished), (vec![], None));
    assert!(ino(&dev, "direct") > 3);
    bed.judge(&dev).unwrap();
}

/// The number of `direct` in its entry becomes that of another file of the directory.
#[test]
fn an_entry_with_the_number_of_another_file_is_set_right() {
    let bed = Bed::new();
    for options in [&[][..], &["-O", "extra_attr,inode_checksum"]] {
        let dev = load(&bed.filled("mistaken.img", options));
        let (direct, page) = (ino(&dev, "direct"), ino(&dev, "page"));
        set(&dev, Target::Dentry(3, b"direct"), "ino", page.into());
        assert!(checked(&dev).has(Code::DentryForeign));
        let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert_eq!(repaired.after.findings, []);
        assert_eq!((ino(&dev, "direct"), ino(&dev, "page")), (direct, page));
        bed.judge(&dev).unwrap();
    }
}

/// Found among 100,000 groups of faults: the first entry that named a directory kept it, and its own was removed.
#[test]
fn an_entry_with_the_number_of_a_directory_does_not_move_it() {
    let bed = Bed::new();
    let dev = load(&bed.filled("moved.img", &[]));
    let (direct, deeper) = (ino(&dev, "direct"), ino(&dev, "deep/er"));
    set(&dev, Target::Dentry(3, b"direct"), "ino", deeper.into());
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(repaired.before.has(Code::DirectoryTwice) && repaired.after.findings.is_empty());
    assert_eq!((ino(&dev, "direct"), ino(&dev, "deep/er")), (direct, deeper));
    bed.judge(&dev).unwrap();
}

/// Found among 100,000 groups of faults: no file can be so large, and no mount opened it. Only inodes with a
/// checksum got their bit back.
#[test]
fn a_size_that_no_file_has_is_mended() {
    let bed = Bed::new();
    let dev = load(&bed.filled("size.img", &[]));
    let direct = ino(&dev, "direct");
    let size = number(Dump::open(&dev).unwrap().inode(direct).unwrap().get("i_size"));
    set(&dev, Target::Inode(direct), "i_size", u64::from(size) | 1 << 53);
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(repaired.before.has(Code::InodeField) && repaired.after.findings.is_empty());
    assert_eq!(number(Dump::open(&dev).unwrap().inode(direct).unwrap().get("i_size")), size);
    bed.judge(&dev).unwrap();
}

#[test]
fn a_root_that_ignores_case_has_a_lost_and_found() {
    let bed = Bed::new();
    let dev = load(&bed.filled("casefold.img", &["-C", "utf8", "-O", "casefold"]));
    let direct = ino(&dev, "direct");
    set(&dev, Target::Inode(3), "i_flags", 0x4000_0000);
    set(&dev, Target::Dentry(3, b"direct"), "used", 0);
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert_eq!((repaired.after.findings, repaired.unfinished), (vec![], None));
    assert_eq!(ino(&dev, &format!("lost+found/{direct}")), direct);
    bed.judge(&dev).unwrap();
}

#[test]
fn a_file_without_a_name_under_an_encrypted_root_is_kept() {
    let bed = Bed::new();
    let dev = load(&bed.filled("sealed.img", &["-O", "encrypt"]));
    set(&dev, Target::Inode(3), "i_advise", 4);
    set(&dev, Target::Dentry(3, b"direct"), "used", 0);
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    let why = repaired.unfinished.expect("it has no name");
    assert!(why.contains("encrypted") && why.contains("without a name: 1;"), "{why}");
    assert!(repaired.after.has(Code::NatUnreachable));
    // The volume says so to who mounts it, and is otherwise as it was left.
    let again = checked(&dev);
    assert!(again.has(Code::CheckpointFlagged), "{:?}", again.findings);
    let others: Vec<_> = again.findings.into_iter().filter(|f| f.code != Code::CheckpointFlagged).collect();
    assert_eq!(others, repaired.after.findings);
}

/// Found by fuzzing: a checksum in the middle of the version bitmaps changes them whenever it is written.
#[test]
fn a_checksum_inside_the_bitmaps_is_refused() {
    let bed = Bed::new();
    let dev = load(&bed.filled("checksum.img", &[]));
    set(&dev, Target::Checkpoint, "checksum_offset", 200);
    let report = checked(&dev);
    assert!(report.has(Code::CheckpointPack), "{:?}", report.findings);
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    let worst = repaired.after.worst();
    assert!(worst.is_none() || worst == Some(Severity::Fatal), "{:?}", repaired.after.findings);
}

/// Unlinks `small` but leaves it on the orphan list, as a crash does while it is open.
fn with_orphan(bed: &Bed) -> MemDevice {
    let dev = load(&bed.filled("orphan.img", &["-O", "extra_attr,inode_checksum"]));
    let small = ino(&dev, "direct");
    set(&dev, Target::Dentry(3, b"direct"), "used", 0);
    set(&dev, Target::Inode(small), "i_links", 0);
    inject::set_orphans(&dev, &[small]).unwrap();
    dev
}

#[test]
fn orphans_are_no_fault_and_a_repair_frees_them() {
    let bed = Bed::new();
    let dev = with_orphan(&bed);
    bed.judge(&dev).unwrap();
    let report = checked(&dev);
    let blocks = report.counted.expect("the root is reached").blocks;
    assert_eq!((report.findings, report.orphans), (vec![], 1));
    set(&dev, Target::Checkpoint, "valid_inode_count", 3);
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    let left = repaired.after.counted.expect("the root is reached").blocks;
    assert_eq!((repaired.after.findings, repaired.after.orphans), (vec![], 0));
    assert!(left < blocks - 1500, "{blocks} {left}");
    bed.judge(&dev).unwrap();
}

/// Writes a fsync-marked copy of the inode of `small` where the warm node log would put it.
/// With `looped` it names itself as the next one, which nobody may follow for ever.
fn fsync(dev: &MemDevice, looped: bool) {
    let flags = |n: u64| n & !0x1 | 0x20 | 0x40; // no UMOUNT, but FASTBOOT and CRC_RECOVERY
    inject::change(dev, &Target::Checkpoint, "ckpt_flags", flags).unwrap();
    let mut dump = Dump::open(dev).unwrap();
    let sb = dump.superblock();
    let cp = dump.checkpoint().unwrap();
    let Some(Value::List(logs)) = cp.get("logs") else { panic!("no logs") };
    let Value::Record(warm) = &logs[4] else { panic!("no log") };
    let main = number(sb.get("main_blkaddr"));
    let at = main + number(warm.get("segno")) * 512 + number(warm.get("next_blkoff"));
    let pack = number(sb.get("cp_blkaddr")) + 512 * (number(cp.get("pack")) - 1);
    let head = read_block(dev, pack.into()).unwrap();
    let raw = RawCheckpoint::in_block(&head);
    let offset = raw.checksum_offset.get() as usize;
    let crc = u32::from_le_bytes(head.0[offset..offset + 4].try_into().unwrap());
    let small = ino(dev, "small");
    let addr = number(dump.nat(small).unwrap().get("block_addr"));
    let mut block = read_block(dev, addr.into()).unwrap();
    block.view_mut::<RawInode>().i_mtime = 77.into();
    let footer = footer_mut(&mut block);
    footer.set_fsync(true);
    footer.cp_ver = (raw.checkpoint_ver.get() | u64::from(crc) << 32).into();
    footer.next_blkaddr = (at + u32::from(!looped)).into();
    dev.write(at.into(), &[&block], META).unwrap();
}

#[test]
fn the_log_of_fsynced_files_is_counted_and_survives_a_repair() {
    let bed = Bed::new();
    let dev = load(&bed.filled("log.img", &[]));
    fsync(&dev, true);
    let report = checked(&dev);
    // No log leads to its own nodes: the address is damaged, and the log went on.
    assert!(report.has(Code::LogUnkept) && report.findings.len() == 1, "{report:?}");
    assert_eq!((report.log_to_replay.inodes, report.log_to_replay.nodes), (1, 1));
    set(&dev, Target::Dentry(3, b"page"), "used", 0);
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(repaired.before.has(Code::NatUnreachable) && repaired.changed);
    assert_eq!(repaired.after.findings, []);
    assert_eq!((repaired.after.log_to_replay.inodes, repaired.after.log_to_replay.nodes), (1, 1));
}

/// Which checkpoint is in force: its pack and version.
fn checkpoint_in_force(dev: &MemDevice) -> [Option<Value>; 2] {
    let checkpoint = Dump::open(dev).unwrap().checkpoint().unwrap();
    ["pack", "checkpoint_ver"].map(|field| checkpoint.get(field).cloned())
}

/// The NAT and SIT entries in force.
fn tables_in_force(dev: &MemDevice) -> Vec<Record> {
    const NIDS: u32 = 1500;
    let mut dump = Dump::open(dev).unwrap();
    let mut entries: Vec<Record> = (0..NIDS).map(|nid| dump.nat(nid).unwrap()).collect();
    entries.extend((0..).map_while(|segno| dump.sit(segno).ok()));
    entries
}

#[test]
fn a_repair_that_is_interrupted_after_every_other_write_can_be_repeated() {
    let bed = Bed::new();
    for log in [false, true] {
        let broken = load(&bed.filled("crash.img", &[]));
        let direct = ino(&broken, "direct");
        set(&broken, Target::Superblock(1), "magic", 0);
        set(&broken, Target::Dentry(3, b"deep"), "used", 0);
        // Another one does not know where it was.
        let empty = ino(&broken, "empty");
        set(&broken, Target::Inode(empty), "i_advise", 2);
        set(&broken, Target::Dentry(3, b"empty"), "used", 0);
        set(&broken, Target::Inode(direct), "i_nid[0]", 9_999);
        set(&broken, Target::Dentry(3, b"page"), "hash_code", 0);
        set(&broken, Target::Checkpoint, "valid_node_count", 5);
        if log {
            fsync(&broken, false);
        }
        let (old, tables) = (checkpoint_in_force(&broken), tables_in_force(&broken));
        let (mut writes, mut under_the_old) = (0, 0);
        loop {
            let dev = broken.snapshot();
            let prefix = PowerCut::after(writes, &dev);
            let whole = repair(&prefix, &Options::default(), &mut |_| {}).is_ok();
            assert_ne!(checked(&dev).worst(), Some(Severity::Fatal), "power off after {writes} writes");
            Dump::open(&dev).unwrap().path("indirect").expect("readable at every moment");
            // What the old checkpoint stands on stays as it was until another is in force: nothing of it is
            // written in place.
            if checkpoint_in_force(&dev) == old {
                assert!(tables_in_force(&dev) == tables, "log {log}: a table changed within {writes} writes");
                under_the_old += 1;
            }
            let again = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
            assert_eq!(again.after.findings, [], "power off after {writes} writes");
            // What the first finding cut off, and the fsynced file, are the same whenever the power went.
            assert_eq!(again.after.log_to_replay.inodes, u64::from(log), "power off after {writes} writes");
            Dump::open(&dev).unwrap().path("deep/er/still/x").expect("put back");
            Dump::open(&dev).unwrap().path(&format!("lost+found/{empty}")).expect("rescued");
            if writes % 8 == 0 || whole {
                bed.judge(&dev).unwrap_or_else(|e| panic!("log {log}, power off after {writes} writes: {e}"));
            }
            if whole {
                break;
            }
            writes += 2;
        }
        assert!(writes > 20, "{writes} writes are suspiciously few");
        assert!(under_the_old > 5, "only {under_the_old} of {writes} states had the old checkpoint");
    }
}

/// Found among 100,000 groups of faults: the roll-forward took a block of one fsynced file for a page of another one.
#[test]
fn an_address_in_the_log_with_a_flipped_bit_costs_no_other_file_a_page() {
    let dev = Arc::new(formatted(64, FEATURE_SETS[0]).snapshot());
    let v = Volume::open(dev.clone(), MountOptions::default(), test_clock()).expect("it opens");
    let make = |name: &[u8], pages: usize, seed: u8| {
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let ino = v.create(v.root(), name, &new).expect("create").ino;
        let bytes: Vec<u8> = (0..pages * BLOCK_SIZE).map(|i| (i / BLOCK_SIZE) as u8 ^ seed).collect();
        v.write(ino, 0, &bytes).expect("write");
        v.fsync(ino, false).expect("fsync");
        (ino, bytes)
    };
    let old = make(b"old", 700, 1);
    v.sync().expect("sync");
    let new = make(b"new", 600, 2);
    v.setattr(old.0, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).expect("chmod");
    v.fsync(old.0, false).expect("fsync");
    let dev = dev.snapshot(); // the power goes
    let last = |ino: u32| {
        let of = |addr: &u64| {
            let block = read_block(&dev, *addr).unwrap();
            footer(&block).is_fsync() && footer(&block).nid.get() == ino
        };
        (0..dev.block_count()).filter(of).last().expect("it was fsynced")
    };
    let (at_old, at_new) = (last(old.0), last(new.0));
    let addrs = |at: u64| {
        let block = read_block(&dev, at).unwrap();
        block.view::<RawInode>().i_addr.iter().map(|a| a.get()).filter(|&a| a != 0).collect::<Vec<_>>()
    };
    let (of_old, of_new) = (addrs(at_old), addrs(at_new));
    let pair = |&slot: &usize| of_new.iter().any(|a| (a ^ of_old[slot]).count_ones() == 1);
    let slot = (0..600).find(pair).expect("some addresses are a bit apart");
    let taken = of_new.iter().find(|a| (*a ^ of_old[slot]).count_ones() == 1).expect("found above");
    let mut block = read_block(&dev, at_old).unwrap();
    block.view_mut::<RawInode>().i_addr[slot] = (*taken).into();
    dev.write(at_old, &[&block], META).unwrap();
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(repaired.before.has(Code::LogAddress), "{:?}", repaired.before.findings);
    assert_eq!((repaired.after.findings, repaired.after.log_to_replay.inodes), (vec![], 2));
    let v = Volume::open(Arc::new(dev), MountOptions::default(), test_clock()).expect("it opens");
    for (ino, bytes) in [old, new] {
        let mut is = vec![0; bytes.len()];
        assert_eq!(v.read(ino, 0, &mut is).unwrap(), bytes.len());
        assert!(is == bytes, "inode {ino}");
    }
}

/// Once a check did not look into quota files.
#[test]
fn a_quota_file_with_a_flipped_bit_is_written_anew() {
    let bed = Bed::new();
    let whole = load(&bed.filled("quota.img", &["-O", "extra_attr,project_quota,quota"]));
    assert_eq!(checked(&whole).findings, []);
    let change = |dev: &MemDevice, kind: u32, byte: usize, change: u8| {
        let node = number(Dump::open(dev).unwrap().nat(4 + kind).unwrap().get("block_addr"));
        let inode = read_block(dev, node.into()).unwrap();
        let inode: &RawInode = inode.view();
        let addr = inode.i_addr[inode.slots(false).extra + byte / BLOCK_SIZE].get();
        let mut block = read_block(dev, addr.into()).unwrap();
        block.0[byte % BLOCK_SIZE] ^= change;
        dev.write(addr.into(), &[&block], META).unwrap();
    };
    let differ = |dev: &MemDevice| {
        let other = |addr: &u64| read_block(dev, *addr).unwrap().0 != read_block(&whole, *addr).unwrap().0;
        (512 * 5..whole.block_count()).find(other)
    };
    // A limit of the first record's inodes.
    (0..3).for_each(|kind| change(&whole, kind, 5136 + 10, 1));
    // Magic, version, blocks; a reference of the tree's root; the id of a record, its inodes and bytes.
    for (kind, byte) in [(0, 0), (1, 4), (2, 21), (1, 1025), (1, 5136), (2, 5160), (0, 5184)] {
        let dev = whole.snapshot();
        change(&dev, kind, byte, 8);
        let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
        let found = &repaired.before.findings;
        assert!(found.len() == 1 && repaired.before.has(Code::QuotaContent), "{kind}, {byte}: {found:?}");
        assert_eq!(repaired.after.findings, [], "{kind}, {byte}");
        let limit_lost = [1025, 5136].contains(&byte);
        assert!(limit_lost || differ(&dev).is_none(), "{kind}, {byte}: block {:?}", differ(&dev));
        bed.judge(&dev).unwrap_or_else(|e| panic!("{kind}, {byte}: {e}"));
    }
    // What a repair changes of the usage is in the files too.
    let dev = whole.snapshot();
    let page = ino(&dev, "page");
    set(&dev, Target::Inode(page), "i_addr[9]", 0xffff_0000);
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(repaired.before.has(Code::Address) && !repaired.before.has(Code::QuotaContent));
    assert_eq!(repaired.after.findings, []);
    bed.judge(&dev).unwrap();
    let out = tool("fsck.f2fs", &["-f", "--dry-run", bed.path("judged.img").to_str().unwrap()]);
    assert!(!String::from_utf8_lossy(&out.stdout).contains("Quota file"), "fsck.f2fs counts the same");
}

/// Limits were lost without a word where another finding, of a superblock, was there besides.
#[test]
fn limits_of_a_quota_file_without_its_tree_come_back() {
    let bed = Bed::new();
    let whole = load(&bed.filled("quota.img", &["-O", "extra_attr,project_quota,quota"]));
    let page = |dev: &MemDevice, page: usize| {
        let node = number(Dump::open(dev).unwrap().nat(4).unwrap().get("block_addr"));
        let inode = read_block(dev, node.into()).unwrap();
        let inode: &RawInode = inode.view();
        u64::from(inode.i_addr[inode.slots(false).extra + page].get())
    };
    let change = |dev: &MemDevice, at: u64, change: &dyn Fn(&mut Block)| {
        let mut block = read_block(dev, at).unwrap();
        change(&mut block);
        dev.write(at, &[&block], META).unwrap();
    };
    let limit = |dev: &MemDevice| read_block(dev, page(dev, 1)).unwrap().0[5136 - BLOCK_SIZE + 10];
    // A limit of the first record's inodes; then the root of the tree is zeros.
    change(&whole, page(&whole, 1), &|block| block.0[5136 - BLOCK_SIZE + 10] ^= 1);
    assert_eq!(limit(&whole), 1);
    change(&whole, page(&whole, 0), &|block| block.0[1024..2048].fill(0));
    for label in [false, true] {
        let dev = whole.snapshot();
        if label {
            change(&dev, 1, &|block| block.0[0x400 + 124] ^= 1);
        }
        let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert!(repaired.before.has(Code::QuotaContent), "{:?}", repaired.before.findings);
        assert_eq!((repaired.before.losses.quotas, repaired.after.findings), (0, vec![]));
        assert_eq!(limit(&dev), 1, "label: {label}");
        bed.judge(&dev).unwrap();
        // Without the leaf it is lost, and told.
        let dev = whole.snapshot();
        change(&dev, page(&dev, 1), &|block| block.0[5120 - BLOCK_SIZE..6144 - BLOCK_SIZE].fill(0));
        if label {
            change(&dev, 1, &|block| block.0[0x400 + 124] ^= 1);
        }
        let found = check(&dev, &Options::default(), &mut |_| {}).unwrap();
        assert_eq!((found.has(Code::QuotaContent), found.losses.quotas), (true, 1), "{:?}", found.findings);
    }
}

/// Found by fuzzing, case 2630 of seed 1: the repair wrote the file of the one kind over that of the other,
/// pass after pass.
#[test]
fn two_kinds_of_quota_in_one_file_are_left_to_the_kernel() {
    let bed = Bed::new();
    let dev = load(&bed.filled("quota.img", &["-O", "extra_attr,project_quota,quota"]));
    for copy in 0..2 {
        let mut block = read_block(&dev, copy).unwrap();
        let sb = RawSuperblock::in_block_mut(&mut block);
        sb.qf_ino[2] = sb.qf_ino[1];
        sb.seal();
        dev.write(copy, &[&block], META).unwrap();
    }
    let repaired = repair(&dev, &Options::default(), &mut |_| {}).unwrap();
    assert!(repaired.before.has(Code::QuotaContent), "{:?}", repaired.before.findings);
    assert_eq!((repaired.after.findings, repaired.unfinished), (vec![], None));
}
