//! What was fsynced behind a checkpoint: where nothing is left of the newest checkpoint but the nodes behind it, and
//! where a bit of a node of the log flipped that no checksum covers.

use crate::common::META;
use crate::medium::{checked, opened, repaired};
use medfs::{FileKind, Files, ManualClock, MountOptions, NewFile, PastDamage, Timestamp, Volume};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::checkpoint::RawCheckpoint;
use medfs_format::footer::CP_VER_AT;
use medfs_format::superblock::RawSuperblock;
use medfs_format::{Block, Geometry};
use medfs_fsck::{Code, Options, repair_without_names};
use medfs_testkit::images::{DELTAS, formatted};
use std::sync::Arc;

fn geometry(dev: &MemDevice) -> Geometry {
    RawSuperblock::in_block(&read_block(dev, 0).expect("memory")).validate().expect("a volume")
}

/// New files in the root directory, each fsynced.
fn fsync_new(v: &Volume, names: &[&str]) {
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    for name in names {
        let ino = v.create(v.root(), name.as_bytes(), &new).expect("create").ino;
        v.write(ino, 0, &content(name)).expect("write");
        v.fsync(ino, false).expect("fsync");
        v.release(ino, 1);
    }
}

fn content(name: &str) -> Vec<u8> {
    name.as_bytes().repeat(9000)
}

fn has_files(v: &Volume, names: &[&str]) -> Result<(), String> {
    for name in names {
        let ino = v.lookup(v.root(), name.as_bytes()).map_err(|e| format!("{name}: {e}"))?.ino;
        let mut read = vec![0; content(name).len()];
        v.read(ino, 0, &mut read).map_err(|e| format!("{name}: {e}"))?;
        if read != content(name) {
            return Err(format!("{name} has other content"));
        }
    }
    Ok(())
}

fn read_only(dev: &MemDevice) -> Volume {
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let clock = ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 });
    Volume::open(Arc::new(dev.snapshot()), options, Arc::new(clock)).expect("it opens to be read")
}

/// The blocks of the newest pack's two headers.
pub(crate) fn headers_of_newest(dev: &MemDevice) -> [u64; 2] {
    let g = geometry(dev);
    let head = |pack: usize| {
        let block = read_block(dev, g.cp_pack(pack).into()).expect("memory");
        let header = RawCheckpoint::in_block(&block);
        (header.checkpoint_ver.get(), u64::from(header.cp_pack_total_block_count.get()))
    };
    let pack = usize::from(head(1).0 > head(0).0);
    let start = u64::from(g.cp_pack(pack));
    [start, start + head(pack).1 - 1]
}

/// A copy with this in the place of the newest pack's headers.
pub(crate) fn without_newest(dev: &MemDevice, damage: &Block) -> MemDevice {
    let copy = dev.snapshot();
    for header in headers_of_newest(dev) {
        copy.write(header, &[damage], META).expect("memory");
    }
    copy
}

#[test]
fn a_newest_checkpoint_without_headers_is_told_by_the_nodes_behind_it() {
    for features in ["", DELTAS] {
        // An unmount's pack is longer than the next one in its place, and leaves a header behind that one.
        let dev = Arc::new(formatted(128, features).snapshot());
        for names in [["a1", "a2"], ["b1", "b2"]] {
            let v = opened(dev.clone());
            fsync_new(&v, &names);
            v.close().expect("closed");
        }
        let v = opened(dev.clone());
        fsync_new(&v, &["c1", "c2"]);
        v.sync().expect("a checkpoint");
        fsync_new(&v, &["d1", "d2"]);
        let crashed = dev.snapshot();
        drop(v);
        for damage in [Block([0x5A; 4096]), Block::ZERO] {
            let dev = without_newest(&crashed, &damage);
            let found = checked(&dev);
            assert!(found.has(Code::CheckpointOlder) && found.asks_for_repair(), "{:?}", found.findings);
            let v = Volume::open(
                Arc::new(dev.snapshot()),
                MountOptions::default(),
                Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 })),
            );
            assert!(v.is_err_and(|e| e.to_string().contains("destroyed")), "nothing is made final");
            has_files(&read_only(&dev), &["a1", "a2", "b1", "b2", "c1", "c2"]).expect("as of the one before");
            let before = dev.snapshot();
            // A salvage finds the inodes of those that have no name yet.
            let bared = repair_without_names(&dev, &Options::default(), &mut |_| {}).expect("memory");
            assert!(bared.reckoned);
            let v = read_only(&dev);
            let unnamed = PastDamage::of(&v)
                .inodes(v.root())
                .filter_map(|ino| v.getattr(ino.ok()?).ok())
                .filter(|attr| attr.size == 18_000);
            assert_eq!(unnamed.count(), 8, "{:?}", bared.before.findings);
            // And a repair puts them back, at once or behind that.
            let all = ["a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2"];
            for dev in [dev, before] {
                repaired(&dev);
                has_files(&opened(Arc::new(dev)), &all).expect("all");
            }
        }
    }
}

#[test]
fn a_flipped_bit_in_the_footer_of_a_node_of_a_log_without_checksums_costs_no_new_file() {
    let dev = Arc::new(formatted(128, "").snapshot());
    let v = opened(dev.clone());
    fsync_new(&v, &["before"]);
    v.sync().expect("a checkpoint");
    let names = ["before", "first", "second", "third"];
    fsync_new(&v, &names[1..]);
    let crashed = dev.snapshot();
    drop(v);
    let v = read_only(&crashed);
    let second = v.lookup(v.root(), b"second").expect("there").ino;
    let at = (0..crashed.block_count())
        .find(|&block| {
            let block = read_block(&crashed, block).expect("memory");
            let f = medfs_format::node::footer(&block);
            (f.nid.get(), f.ino.get()) == (second, second) && f.is_fsync() && f.is_dentry()
        })
        .expect("the node");
    // The marks of fsync and name, and the version of the checkpoint.
    let bits = [CP_VER_AT * 8 - 31, CP_VER_AT * 8 - 30].into_iter().chain(CP_VER_AT * 8..CP_VER_AT * 8 + 64);
    for bit in bits {
        let dev = crashed.snapshot();
        let mut block = read_block(&dev, at).expect("memory");
        block.0[bit / 8] ^= 1 << (bit % 8);
        dev.write(at, &[&block], META).expect("memory");
        has_files(&read_only(&dev), &names).unwrap_or_else(|e| panic!("bit {bit}: {e}"));
        repaired(&dev);
        let dev = Arc::new(dev);
        let v = opened(dev.clone());
        has_files(&v, &names).unwrap_or_else(|e| panic!("bit {bit}, repaired: {e}"));
        v.close().expect("closed");
        drop(v);
        assert_eq!(checked(&*dev).findings, [], "bit {bit}");
    }
}

/// A volume that lost power behind several checkpoints, and what it was before the last ones.
fn crashed_behind_older(features: &str) -> (MemDevice, MemDevice) {
    let dev = Arc::new(formatted(128, features).snapshot());
    let v = opened(dev.clone());
    fsync_new(&v, &["a"]);
    v.close().expect("closed");
    let v = opened(dev.clone());
    fsync_new(&v, &["b"]);
    v.sync().expect("a checkpoint");
    let older = dev.snapshot();
    for name in ["c", "d"] {
        fsync_new(&v, &[name]);
        v.sync().expect("a checkpoint");
    }
    fsync_new(&v, &["e", "f"]);
    (older, dev.snapshot())
}

const ALL: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn take_from(older: &MemDevice, dev: &MemDevice, blocks: std::ops::Range<u64>) {
    for block in blocks {
        dev.write(block, &[&read_block(older, block).expect("memory")], META).expect("memory");
    }
}

#[test]
fn an_older_pack_in_the_place_of_the_newest_is_told_by_the_nodes_behind_it() {
    for features in ["", DELTAS] {
        let (older, dev) = crashed_behind_older(features);
        assert!(!checked(&dev).has(Code::CheckpointOlder));
        let start = headers_of_newest(&dev)[0];
        take_from(&older, &dev, start..start + 16);
        let found = checked(&dev);
        assert!(found.has(Code::CheckpointOlder) && found.asks_for_repair(), "{:?}", found.findings);
        let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
        let v = Volume::open(Arc::new(dev.snapshot()), MountOptions::default(), clock);
        assert!(
            v.is_err_and(|e| e.to_string().contains("the newer one is destroyed")),
            "nothing is made final"
        );
        let mended = dev.snapshot();
        assert!(repaired(&mended).after.is_clean());
        has_files(&opened(Arc::new(mended)), &ALL).expect("all, by the nodes");
        let bared = repair_without_names(&dev, &Options::default(), &mut |_| {}).expect("memory");
        assert!(bared.reckoned);
        repaired(&dev);
        has_files(&opened(Arc::new(dev)), &ALL).expect("all");
    }
}

#[test]
fn of_two_packs_with_older_first_headers_the_newest_last_one_counts() {
    for features in ["", DELTAS] {
        let (older, dev) = crashed_behind_older(features);
        let g = geometry(&dev);
        for pack in [0, 1].map(|pack| u64::from(g.cp_pack(pack))) {
            take_from(&older, &dev, pack..pack + 1);
        }
        has_files(&read_only(&dev), &ALL).expect("as a mount shows them");
        assert!(checked(&dev).has(Code::CheckpointHeader));
        repaired(&dev);
        has_files(&opened(Arc::new(dev)), &ALL).expect("all");
    }
}

#[test]
fn a_newest_pack_with_one_header_counts_beside_an_older_one_with_a_flipped_bit() {
    for features in ["", DELTAS] {
        let (_, dev) = crashed_behind_older(features);
        let newest = headers_of_newest(&dev)[0];
        dev.write(newest, &[&Block::ZERO], META).expect("memory");
        let g = geometry(&dev);
        let other = [0, 1].map(|pack| u64::from(g.cp_pack(pack))).into_iter().find(|pack| *pack != newest);
        let other = other.expect("two packs");
        let mut header = read_block(&dev, other).expect("memory");
        header.0[300] ^= 4;
        dev.write(other, &[&header], META).expect("memory");
        has_files(&read_only(&dev), &ALL).expect("as a mount shows them");
        repaired(&dev);
        has_files(&opened(Arc::new(dev)), &ALL).expect("all");
    }
}

#[test]
fn junk_for_a_header_counts_no_blocks() {
    let (_, dev) = crashed_behind_older("");
    let g = geometry(&dev);
    for pack in [0, 1].map(|pack| u64::from(g.cp_pack(pack))) {
        let dev = dev.snapshot();
        dev.write(pack, &[&Block([0xff; 4096])], META).expect("memory");
        repair_without_names(&dev, &Options::default(), &mut |_| {}).expect("memory");
    }
}

/// A few bytes in the middle of a file, fsynced.
fn fsync_change(v: &Volume, name: &str, change: &[u8]) {
    let ino = v.lookup(v.root(), name.as_bytes()).expect("there").ino;
    v.write(ino, 5000, change).expect("write");
    v.fsync(ino, false).expect("fsync");
    v.release(ino, 1);
}

#[test]
fn what_was_fsynced_behind_a_lost_checkpoint_is_rolled_forward() {
    let (old, new) = (["a1", "a2", "a3", "a4"], ["d1", "d2"]);
    for features in ["", DELTAS] {
        let dev = Arc::new(formatted(128, features).snapshot());
        let v = opened(dev.clone());
        fsync_new(&v, &old);
        v.sync().expect("a checkpoint");
        fsync_new(&v, &["b1"]);
        v.sync().expect("a checkpoint");
        for change in [b"once", b"then"] {
            old.iter().for_each(|name| fsync_change(&v, name, change));
        }
        fsync_new(&v, &new);
        let crashed = dev.snapshot();
        drop(v);
        let is_there = |v: &Volume| {
            has_files(v, &["b1", "d1", "d2"]).expect("new files");
            for name in old {
                let ino = v.lookup(v.root(), name.as_bytes()).expect("a name").ino;
                let mut read = vec![0; 18_000];
                v.read(ino, 0, &mut read).expect("read");
                let mut wanted = content(name);
                wanted[5000..5004].copy_from_slice(b"then");
                assert!(read == wanted, "{name} with {features:?}");
            }
        };
        is_there(&read_only(&crashed));
        let salvaged = zeroed(&crashed, headers_of_newest(&crashed));
        let bared = repair_without_names(&salvaged, &Options::default(), &mut |_| {}).expect("memory");
        assert!(bared.reckoned);
        is_there(&read_only(&salvaged));
        // A repair keeps the log for the next mount.
        for lost in [packs(&crashed).collect(), headers_of_newest(&crashed).to_vec()] {
            let repaired_one = Arc::new(zeroed(&crashed, lost));
            repaired(&*repaired_one);
            is_there(&read_only(&repaired_one));
            let v = opened(repaired_one.clone());
            is_there(&v);
            v.close().expect("closed");
            drop(v);
            assert_eq!(checked(&repaired_one).findings, []);
        }
    }
}

#[test]
fn a_newest_pack_without_its_second_header_is_taken_with_the_log_behind_it() {
    for features in ["", DELTAS] {
        let (_, crashed) = crashed_behind_older(features);
        let [_, last] = headers_of_newest(&crashed);
        for damage in [Block([0x5A; 4096]), Block::ZERO] {
            let dev = crashed.snapshot();
            dev.write(last, &[&damage], META).expect("memory");
            let found = checked(&dev);
            let codes: Vec<Code> = found.findings.iter().map(|finding| finding.code).collect();
            assert_eq!(codes, [Code::CheckpointHeader], "{:?}", found.findings);
            assert!(found.tells_of_no_file(), "{found:?}");
        }
    }
}

fn zeroed(dev: &MemDevice, blocks: impl IntoIterator<Item = u64>) -> MemDevice {
    let zeroed = dev.snapshot();
    blocks.into_iter().for_each(|block| zeroed.write(block, &[&Block::ZERO], META).expect("memory"));
    zeroed
}

/// All blocks of both packs.
fn packs(dev: &MemDevice) -> std::ops::Range<u64> {
    let start = u64::from(geometry(dev).cp_pack(0));
    start..start + 1024
}

/// What a salvage shows of a volume, and what a repair and the mount behind it do.
fn salvaged_and_repaired(dev: &MemDevice, shows: impl Fn(&Volume, &str)) {
    let copy = dev.snapshot();
    repair_without_names(&copy, &Options::default(), &mut |_| {}).expect("memory");
    shows(&read_only(&copy), "a salvage");
    let copy = Arc::new(dev.snapshot());
    repaired(&*copy);
    shows(&opened(copy), "a repair");
}

#[test]
fn a_lost_log_goes_past_nodes_that_files_share() {
    for features in ["", DELTAS] {
        let dev = Arc::new(formatted(128, features).snapshot());
        let v = opened(dev.clone());
        let names = ["a1", "a2", "a3", "a4"];
        fsync_new(&v, &names);
        v.sync().expect("a checkpoint");
        fsync_change(&v, "a1", b"then");
        v.unlink(v.root(), b"a2").expect("unlink");
        v.fsync(v.root(), false).expect("fsync");
        ["a3", "a4"].iter().for_each(|name| fsync_change(&v, name, b"then"));
        let crashed = dev.snapshot();
        drop(v);
        let lost = zeroed(&crashed, packs(&crashed));
        salvaged_and_repaired(&lost, |v, who| {
            for name in ["a1", "a3", "a4"] {
                let ino = v.lookup(v.root(), name.as_bytes()).expect("a name").ino;
                let mut read = vec![0; 4];
                v.read(ino, 5000, &mut read).expect("read");
                assert_eq!(read, b"then", "{who}: {name} with {features:?}");
            }
            assert!(features.is_empty() || v.lookup(v.root(), b"a2").is_err(), "{who}: it was removed");
        });
    }
}

#[test]
fn content_in_an_inode_of_a_lost_log_is_no_address() {
    for features in ["", DELTAS] {
        let dev = Arc::new(formatted(256, features).snapshot());
        let v = opened(dev.clone());
        fsync_new(&v, &["a", "b"]);
        v.sync().expect("a checkpoint");
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let ino = v.create(v.root(), b"numbers", &new).expect("create").ino;
        let numbers: Vec<u8> = (8..700u32).flat_map(|n| (n * 512).to_le_bytes()).collect();
        v.write(ino, 0, &numbers).expect("write");
        v.fsync(ino, false).expect("fsync");
        let crashed = dev.snapshot();
        drop(v);
        let lost = zeroed(&crashed, packs(&crashed));
        salvaged_and_repaired(&lost, |v, who| {
            has_files(v, &["a", "b"]).unwrap_or_else(|e| panic!("{who}: {e}"));
            assert!(v.lookup(v.root(), b"numbers").is_ok(), "{who}: with {features:?}");
        });
    }
}

#[test]
fn a_log_that_a_lost_checkpoint_took_up_counts_for_nothing() {
    for features in ["", DELTAS] {
        let dev = Arc::new(formatted(128, features).snapshot());
        let v = opened(dev.clone());
        fsync_new(&v, &["a0", "a8"]);
        v.sync().expect("a checkpoint");
        fsync_change(&v, "a0", b"then");
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let ino = v.create(v.root(), b"new", &new).expect("create").ino;
        v.write(ino, 0, &content("new")).expect("write");
        v.rename(v.root(), b"a8", v.root(), b"z8", medfs::RenameFlags::empty()).expect("rename");
        v.close().expect("closed");
        drop(v);
        for lost in [packs(&dev).collect(), headers_of_newest(&dev).to_vec()] {
            salvaged_and_repaired(&zeroed(&dev, lost.clone()), |v, who| {
                for name in ["new", "z8"] {
                    assert!(v.lookup(v.root(), name.as_bytes()).is_ok(), "{who}: {name} with {features:?}");
                }
            });
        }
    }
}

#[test]
fn superblocks_may_be_lost_with_the_newest_checkpoint() {
    for features in ["", DELTAS] {
        let (_, crashed) = crashed_behind_older(features);
        let lost = zeroed(&crashed, [0, 1].into_iter().chain(headers_of_newest(&crashed)));
        let mended = lost.snapshot();
        repaired(&mended);
        has_files(&opened(Arc::new(mended)), &ALL).expect("all, repaired");
        let bared = repair_without_names(&lost, &Options::default(), &mut |_| {}).expect("memory");
        assert!(bared.reckoned, "{:?}", bared.before.findings);
        has_files(&read_only(&lost), &ALL).expect("all");
    }
}

/// What only the nodes behind an empty checkpoint tell: which kind of volume it is.
#[test]
fn superblocks_may_be_lost_with_all_checkpoints_but_the_first() {
    for features in ["", DELTAS] {
        let dev = Arc::new(formatted(128, features).snapshot());
        let v = opened(dev.clone());
        fsync_new(&v, &["a1", "a2"]);
        fsync_change(&v, "a1", b"then");
        v.close().expect("closed");
        drop(v);
        let lost = zeroed(&dev, [0, 1].into_iter().chain(headers_of_newest(&dev)));
        salvaged_and_repaired(&lost, |v, who| {
            let ino = v.lookup(v.root(), b"a1").unwrap_or_else(|e| panic!("{who}: {e}")).ino;
            let mut read = vec![0; 4];
            v.read(ino, 5000, &mut read).expect("read");
            assert_eq!(read, b"then", "{who}: with {features:?}");
            has_files(v, &["a2"]).unwrap_or_else(|e| panic!("{who}: {e}"));
        });
    }
}

/// Something else was made of the device, say, whose first blocks took the place of the volume's.
#[test]
fn files_are_found_where_the_beginning_of_the_volume_is_lost() {
    for features in ["", DELTAS] {
        let (_, crashed) = crashed_behind_older(features);
        let g = geometry(&crashed);
        for end in [g.sit_blkaddr, g.nat_blkaddr, g.ssa_blkaddr, g.main_blkaddr] {
            for damage in [Block::ZERO, Block([0x5A; 4096])] {
                let lost = crashed.snapshot();
                (0..u64::from(end)).for_each(|block| lost.write(block, &[&damage], META).expect("memory"));
                let what = format!("with {features:?}, up to block {end} {}", damage.0[0]);
                assert!(
                    checked(&lost).worst() == Some(medfs_fsck::Severity::Fatal),
                    "{what}: nothing to repair"
                );
                assert!(medfs_fsck::shows_nodes(&lost).expect("memory"), "{what}");
                let bared = repair_without_names(&lost, &Options::default(), &mut |_| {}).expect("memory");
                assert!(bared.reckoned, "{what}: {:?}", bared.before.findings);
                has_files(&read_only(&lost), &ALL).unwrap_or_else(|e| panic!("{what}: {e}"));
            }
        }
        assert!(!medfs_fsck::shows_nodes(&zeroed(&crashed, 0..crashed.block_count())).expect("memory"));
    }
}

/// A longer pack was at the place of the newest one, and its last header is behind that.
#[test]
fn a_header_of_an_earlier_pack_behind_the_newest_hides_no_loss() {
    for features in ["", DELTAS] {
        let dev = Arc::new(formatted(128, features).snapshot());
        for names in [["a1", "a2"], ["b1", "b2"]] {
            let v = opened(dev.clone());
            fsync_new(&v, &names);
            v.close().expect("closed");
        }
        let v = opened(dev.clone());
        let all = ["a1", "a2", "b1", "b2", "c1", "d1"];
        for name in &all[4..] {
            fsync_new(&v, &[name]);
            v.sync().expect("a checkpoint");
        }
        let crashed = dev.snapshot();
        drop(v);
        for damage in [Block([0x5A; 4096]), Block::ZERO] {
            let dev = without_newest(&crashed, &damage);
            assert!(checked(&dev).has(Code::CheckpointOlder), "with {features:?}");
            salvaged_and_repaired(&dev, |v, who| {
                has_files(v, &all).unwrap_or_else(|e| panic!("{who}: {e}"));
            });
        }
    }
}

/// A database would replay a journal that was removed.
#[test]
fn a_removed_file_does_not_come_back_under_its_own_name() {
    for features in ["", DELTAS] {
        let dev = Arc::new(formatted(128, features).snapshot());
        let v = opened(dev.clone());
        fsync_new(&v, &["db", "db-journal"]);
        v.close().expect("closed");
        let v = opened(dev.clone());
        fsync_change(&v, "db", b"then");
        v.unlink(v.root(), b"db-journal").expect("unlink");
        v.close().expect("closed");
        drop(v);
        let [first, last] = headers_of_newest(&dev);
        for lost in [vec![first, last], vec![first + 1], packs(&dev).collect()] {
            salvaged_and_repaired(&zeroed(&dev, lost.clone()), |v, who| {
                let what = format!("{who}: {} blocks lost, with {features:?}", lost.len());
                let ino = v.lookup(v.root(), b"db").unwrap_or_else(|e| panic!("{what}: {e}")).ino;
                let mut read = vec![0; 4];
                v.read(ino, 5000, &mut read).expect("read");
                assert_eq!(read, b"then", "{what}");
                assert!(v.lookup(v.root(), b"db-journal").is_err(), "{what}");
            });
        }
    }
}
