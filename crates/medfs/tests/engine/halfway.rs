//! Operations that meet a read error in the middle: done again they do what they were asked, and the volume
//! is sound at any time.

use crate::common::*;
use medfs::{
    FallocateMode, FileFlags, FileKind, Files, ManualClock, RenameFlags, SetAttr, Volume, XattrMode,
};
use medfs_device::MemDevice;
use medfs_device::fault::{Effect, Fault, FaultDevice, Kind as FaultKind};
use medfs_device::trace::{Operation as Request, TracingDevice};
use medfs_testkit::harness::guarded;
use medfs_testkit::images::{COMPRESSED, DELTAS, FEATURE_SETS, FsckMedfs, formatted, options_for};
use medfs_testkit::model::Model;
use medfs_testkit::observe::{compare, observe};
use medfs_testkit::subject::Check;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(crate) type Result<T> = medfs::Result<T>;

pub(crate) fn ino(v: &Volume, path: &str) -> u32 {
    find(v, path).unwrap_or_else(|e| panic!("{path}: {e}"))
}

pub(crate) fn find(v: &Volume, path: &str) -> Result<u32> {
    let mut found = v.root();
    for name in path.split('/') {
        found = v.lookup(found, name.as_bytes())?.ino;
        v.release(found, 1);
    }
    Ok(found)
}

/// Pages of files that lie below nodes of every level.
pub(crate) const FAR: [u64; 7] =
    [0, 3, 925, 923 + 1018 + 7, 923 + 2 * 1018 + 3, 923 + 3 * 1018 + 3, 923 + 2 * 1018 + 1018 * 1018 + 9];

fn prepare(v: &Volume, compressed: bool) {
    let root = v.root();
    for name in ["big", "big2", "other"] {
        let f = file(v, root, name);
        for (n, page) in FAR.iter().enumerate() {
            write(v, f, page * PAGE as u64 + 10, &noise(n as u64 + 1));
        }
        write(v, f, 8 * PAGE as u64, &(0..12).flat_map(noise).collect::<Vec<u8>>());
        v.release(f, 1);
    }
    if compressed {
        let f = file(v, root, "clusters");
        v.set_flags(f, FileFlags::COMPR).expect("flags");
        write(v, f, 0, &vec![7; 16 * 4 * PAGE]);
        v.release(f, 1);
    }
    let d = dir(v, root, "dir");
    let e = dir(v, root, "else");
    dir(v, d, "sub");
    for n in 0..300 {
        v.release(file(v, d, &format!("a file with a name that takes some room {n:03}")), 1);
        if n < 100 {
            v.release(file(v, e, &format!("a file with a name that takes some room {n:03}")), 1);
        }
    }
    let x = file(v, root, "attributes");
    v.setxattr(x, b"user.large", &[5; 900], XattrMode::Set).expect("attribute");
    v.link(x, d, b"linked").expect("link");
    v.sync().expect("sync");
    // Deltas, where there are any.
    for name in ["big", "big2", "other"] {
        let f = ino(v, name);
        for page in (8..20).chain(FAR) {
            write(v, f, page * PAGE as u64 + 77, b"changed");
        }
        v.fsync(f, false).expect("fsync");
    }
    if compressed {
        let f = ino(v, "clusters");
        for page in 0..10 {
            write(v, f, page * 3 * PAGE as u64 + 77, b"changed");
        }
        v.fsync(f, false).expect("fsync");
    }
    v.close().expect("close");
}

pub(crate) fn size(v: &Volume, path: &str, size: u64) -> Result<()> {
    v.setattr(find(v, path)?, &SetAttr { size: Some(size), ..SetAttr::default() }).map(drop)
}

/// An atomic write that also cuts off what lies below nodes of its own.
fn write_and_cut_atomically(v: &Volume) -> Result<()> {
    let f = find(v, "big")?;
    let _ = v.atomic_abort(f);
    v.atomic_start(f)?;
    v.write(f, 5, b"abc")?;
    size(v, "big", 9 * P + 100)?;
    v.atomic_commit(f)
}

pub(crate) type Operation = (&'static str, fn(&Volume) -> Result<()>);

const P: u64 = PAGE as u64;

pub(crate) fn operations(compressed: bool) -> Vec<Operation> {
    let mut all: Vec<Operation> = vec![
        ("truncate to nothing", |v| size(v, "big", 0)),
        ("truncate to a part", |v| size(v, "big", 9 * P + 100)),
        ("truncate far", |v| size(v, "big", 930 * P + 100)),
        ("cut and grow", |v| size(v, "big", 100).and_then(|()| size(v, "big", (FAR[6] + 1) * P))),
        ("grow", |v| size(v, "big", (FAR[6] + 4000) * P)),
        ("unlink", |v| v.unlink(v.root(), b"big")),
        ("replace", |v| v.rename(v.root(), b"other", v.root(), b"big", RenameFlags::empty())),
        ("punch", |v| {
            v.fallocate(
                find(v, "big")?,
                FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
                5000,
                FAR[5] * P,
            )
        }),
        ("zero", |v| v.fallocate(find(v, "big")?, FallocateMode::ZERO_RANGE, 5000, 200 * P)),
        ("collapse", |v| v.fallocate(find(v, "big")?, FallocateMode::COLLAPSE_RANGE, 2 * P, 1000 * P)),
        ("insert", |v| v.fallocate(find(v, "big")?, FallocateMode::INSERT_RANGE, 2 * P, 1000 * P)),
        ("reserve", |v| v.fallocate(find(v, "big")?, FallocateMode::empty(), 20 * P, 2000 * P)),
        ("write", |v| {
            let data: Vec<u8> = (50..70).flat_map(noise).collect();
            [5 * P + 9, 920 * P, FAR[4] * P + 100, (FAR[6] + 3) * P]
                .into_iter()
                .try_for_each(|at| v.write(find(v, "big")?, at, &data).map(|n| assert_eq!(n, data.len())))
        }),
        ("write and fsync", |v| {
            for page in [0, 9, 925, FAR[5]] {
                v.write(find(v, "big")?, page * P + 5, b"abc")?;
            }
            v.fsync(find(v, "big")?, false)
        }),
        ("atomic write", |v| {
            let f = find(v, "big")?;
            let _ = v.atomic_abort(f);
            v.atomic_start(f)?;
            for page in [0, 9, 925, 926, FAR[5]] {
                v.write(f, page * P + 5, b"abc")?;
            }
            v.atomic_commit(f)
        }),
        ("atomic write and cut", write_and_cut_atomically),
        ("attribute", |v| v.setxattr(find(v, "attributes")?, b"user.more", &[6; 1200], XattrMode::Set)),
        ("no attribute", |v| match v.removexattr(find(v, "attributes")?, b"user.large") {
            Err(e) if e.errno() == 61 => Ok(()),
            other => other,
        }),
        ("create", |v| {
            (0..40).try_for_each(|n| make(v, "dir", &format!("another new name, long as well {n:03}")))
        }),
        ("unlink many", |v| {
            (0..200).try_for_each(|n| {
                match v.unlink(
                    find(v, "dir")?,
                    format!("a file with a name that takes some room {n:03}").as_bytes(),
                ) {
                    Err(e) if e.errno() == 2 => Ok(()),
                    other => other,
                }
            })
        }),
        ("rename many", |v| {
            (100..200).try_for_each(|n| {
                let name = format!("a file with a name that takes some room {n:03}");
                match v.rename(
                    find(v, "dir")?,
                    name.as_bytes(),
                    find(v, "else")?,
                    name.as_bytes(),
                    RenameFlags::empty(),
                ) {
                    Err(e) if e.errno() == 2 => Ok(()),
                    other => other,
                }
            })
        }),
        ("move a directory", |v| {
            match v.rename(find(v, "dir")?, b"sub", find(v, "else")?, b"moved", RenameFlags::empty()) {
                Err(e) if e.errno() == 2 => Ok(()),
                other => other,
            }
        }),
        ("whiteout", |v| {
            match v.rename(v.root(), b"big", find(v, "dir")?, b"moved", RenameFlags::WHITEOUT) {
                Err(e) if e.errno() == 17 => Ok(()),
                other => other,
            }
        }),
        ("link", |v| match v.link(find(v, "attributes")?, find(v, "else")?, b"third") {
            Ok(attr) => {
                v.release(attr.ino, 1);
                Ok(())
            }
            Err(e) if e.errno() == 17 => Ok(()),
            Err(e) => Err(e),
        }),
        ("copy", |v| v.copy_range(find(v, "big")?, 0, find(v, "big2")?, 40 * P, 3000 * P).map(drop)),
    ];
    if compressed {
        all.extend([
            (
                "write into clusters",
                (|v| {
                    (0..16).try_for_each(|n| {
                        v.write(find(v, "clusters")?, n * 4 * P + 9, &noise(n)).map(drop)
                    })?;
                    v.fsync(find(v, "clusters")?, false)
                }) as fn(&Volume) -> Result<()>,
            ),
            ("cut clusters", |v| size(v, "clusters", 10 * P + 5)),
            ("punch clusters", |v| {
                v.fallocate(
                    find(v, "clusters")?,
                    FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE,
                    5 * P,
                    17 * P,
                )
            }),
            ("collapse clusters", |v| {
                v.fallocate(find(v, "clusters")?, FallocateMode::COLLAPSE_RANGE, 5 * P, 17 * P)
            }),
            ("release saved", |v| match v.release_saved_blocks(find(v, "clusters")?) {
                Err(e) if e.errno() == 22 => Ok(()),
                other => other.map(drop),
            }),
            ("release and reserve saved", |v| {
                match v.release_saved_blocks(find(v, "clusters")?) {
                    Err(e) if e.errno() == 22 => {}
                    other => drop(other?),
                }
                v.reserve_saved_blocks(find(v, "clusters")?).map(drop)
            }),
        ]);
    }
    all
}

fn make(v: &Volume, at: &str, name: &str) -> Result<()> {
    match v.create(find(v, at)?, name.as_bytes(), &new(FileKind::Regular)) {
        Ok(attr) => {
            v.release(attr.ino, 1);
            Ok(())
        }
        Err(e) if e.errno() == 17 => Ok(()),
        Err(e) => Err(e),
    }
}

/// A kind of volume, with what [`prepare`] made.
pub(crate) struct Kind {
    pub(crate) features: &'static str,
    pub(crate) device: Arc<MemDevice>,
    pub(crate) options: String,
    pub(crate) compressed: bool,
    /// Its operations are others.
    pub(crate) wide: bool,
}

pub(crate) fn kinds() -> Vec<Kind> {
    let list = [
        (FEATURE_SETS[1], "rw"),
        (DELTAS, "delta=full,compact_files=all"),
        (DELTAS, "delta=off"),
        (COMPRESSED[1], "delta=full,compact_files=all"),
        (COMPRESSED[0], "rw"),
    ];
    let base = |(features, options): (&'static str, &str)| {
        let device = Arc::new(formatted(64, features).snapshot());
        let options = format!("{},{options}", options_for(features));
        let compressed = COMPRESSED.contains(&features);
        prepare(&open_device(&device, &options), compressed);
        Kind { features, device, options, compressed, wide: false }
    };
    list.into_iter().map(base).collect()
}

/// An operation with a block that cannot be read while it runs; `again`: what failed is done once more, when
/// the block can be read.
struct Run<'a> {
    kind: &'a Kind,
    operation: &'a Operation,
    block: u64,
    again: bool,
}

impl Run<'_> {
    /// What is wrong afterwards. `after` is what the operation leads to where nothing is in its way.
    fn judge(&self, after: &Model) -> std::result::Result<(), String> {
        let Kind { device, options, .. } = self.kind;
        let operation = self.operation.1;
        let device = Arc::new(FaultDevice::new(device.snapshot(), 1));
        let v = open_with(device.clone(), options, Arc::new(ManualClock::new(START)));
        device.arm(Fault::on(FaultKind::Read, Effect::IO).within(self.block..self.block + 1));
        let told = operation(&v);
        device.heal();
        if self.again && told.is_err() {
            operation(&v).map_err(|e| format!("again: {e}"))?;
        }
        if self.again || told.is_ok() {
            compare(after, &observe(&v)?)?;
        }
        // What is open of an atomic write is nobody's after the unmount.
        let _ = find(&v, "big").map(|f| v.atomic_abort(f));
        let before = observe(&v)?;
        v.close().map_err(|e| format!("close: {e}"))?;
        drop(v);
        let medium = Arc::new(device.inner().snapshot());
        FsckMedfs.check(medium.clone()).map_err(|e| format!("{told:?}, fsck: {e}"))?;
        compare(&before, &observe(&open_device(&medium, options))?).map_err(|e| format!("on the medium: {e}"))
    }
}

/// Every so many blocks that each operation reads, from one that the seed decides on.
fn sweep(every: usize, seed: u64) {
    let (mut faults, mut runs) = (Vec::new(), 0);
    for kind in kinds() {
        for operation in operations(kind.compressed) {
            let what = format!("{} {}: {}", kind.features, kind.options, operation.0);
            let after = |v: &Volume| {
                operation.1(v).unwrap_or_else(|e| panic!("{what}: {e}"));
            };
            let blocks = blocks_read(&kind.device, &kind.options, after);
            let undisturbed = open_device(&Arc::new(kind.device.snapshot()), &kind.options);
            after(&undisturbed);
            let after = observe(&undisturbed).unwrap_or_else(|e| panic!("{what}: {e}"));
            for block in blocks {
                for again in [true, false] {
                    runs += 1;
                    if !(runs + seed as usize).is_multiple_of(every) {
                        continue;
                    }
                    let run = Run { kind: &kind, operation: &operation, block, again };
                    let judged = guarded(|| run.judge(&after));
                    let fault = judged.err().map(|e| format!("{what}, block {block}, again {again}: {e}"));
                    fault.iter().for_each(|fault| eprintln!("{fault}"));
                    faults.extend(fault);
                }
            }
        }
    }
    assert!(faults.is_empty(), "seed {seed}, {} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn what_an_error_interrupts_leaves_a_sound_volume_and_can_be_done_again() {
    sweep(1000, 0);
}

#[test]
fn an_atomic_write_that_cannot_cut_off_what_it_should_leaves_the_file_as_it_was() {
    let mut failed = 0;
    for Kind { device, options, .. } in kinds() {
        let before = observe(&open_device(&Arc::new(device.snapshot()), &options)).expect("it is readable");
        let cut = |v: &Volume| write_and_cut_atomically(v).expect("nothing is in its way");
        for block in blocks_read(&device, &options, cut) {
            let faulty = Arc::new(FaultDevice::new(device.snapshot(), 1));
            let v = open_with(faulty.clone(), &options, Arc::new(ManualClock::new(START)));
            faulty.arm(Fault::on(FaultKind::Read, Effect::IO).within(block..block + 1));
            let told = write_and_cut_atomically(&v);
            faulty.heal();
            if told.is_err() {
                failed += 1;
                let _ = v.atomic_abort(ino(&v, "big"));
                let found = observe(&v).expect("it is readable");
                compare(&before, &found).unwrap_or_else(|e| panic!("{options}, block {block}: {e}"));
            }
        }
    }
    assert!(failed > 10, "{failed} runs failed");
}

/// Every block, in some minutes.
#[test]
#[ignore = "minutes"]
fn every_block_that_an_operation_reads() {
    sweep(1, 0);
}

fn opened(device: &Arc<FaultDevice<MemDevice>>, options: &str) -> Result<Volume> {
    let mut parsed = medfs::MountOptions::default();
    parsed.parse(options).expect("options");
    Volume::open(device.clone(), parsed, Arc::new(ManualClock::new(START)))
}

/// Addresses of the blocks that an operation on a volume reads.
fn blocks_read(device: &MemDevice, options: &str, operation: impl FnOnce(&Volume)) -> BTreeSet<u64> {
    let traced = Arc::new(TracingDevice::ring(device.snapshot(), 1 << 20));
    let v = open_with(traced.clone(), options, Arc::new(ManualClock::new(START)));
    traced.take();
    operation(&v);
    let reads = traced.take().into_iter().filter_map(|record| match record.operation {
        Request::Read { addr, count } => Some(addr..addr + count),
        _ => None,
    });
    reads.flatten().collect()
}

#[test]
fn what_a_truncation_that_failed_left_does_not_come_back() {
    let device = Arc::new(blank(64, all_features()));
    {
        let v = open_device(&device, "");
        let f = file(&v, v.root(), "f");
        FAR.iter().for_each(|page| write(&v, f, page * P, &noise(*page)));
        v.close().expect("close");
    }
    let cut = |v: &Volume| size(v, "f", 10);
    let mut failed = 0;
    for block in blocks_read(&device, "", |v| cut(v).expect("cut")) {
        let faulty = Arc::new(FaultDevice::new(device.snapshot(), 1));
        let v = open_with(faulty.clone(), "", Arc::new(ManualClock::new(START)));
        faulty.arm(Fault::on(FaultKind::Read, Effect::IO).within(block..block + 1));
        failed += u64::from(cut(&v).is_err());
        faulty.heal();
        cut(&v).unwrap_or_else(|e| panic!("block {block}: {e}"));
        size(&v, "f", (FAR[6] + 1) * P).expect("grown");
        let f = ino(&v, "f");
        for at in FAR.iter().skip(1).map(|page| page * P) {
            let mut page = vec![1; PAGE];
            v.read(f, at, &mut page).expect("read");
            assert!(page == [0; PAGE], "block {block}: old bytes at {at}");
        }
        v.close().expect("close");
        drop(v);
        let medium = Arc::new(faulty.inner().snapshot());
        FsckMedfs.check(medium).unwrap_or_else(|e| panic!("block {block}: {e}"));
    }
    assert!(failed >= 7, "{failed}: the inode and its nodes");
}

#[test]
fn a_block_that_cannot_be_read_beside_the_last_nodes_keeps_no_volume_from_being_opened() {
    let device = Arc::new(blank(64, all_features()));
    {
        let v = open_device(&device, "");
        let f = file(&v, v.root(), "f");
        FAR.iter().for_each(|page| write(&v, f, page * P, &noise(*page)));
        v.sync().expect("sync");
        // Power is lost.
    }
    let geometry = open_device(&Arc::new(device.snapshot()), "ro").geometry().clone();
    let main = u64::from(geometry.main_blkaddr);
    let (mut beside, mut refused) = (0, 0);
    for block in (main..main + 3 * 512).step_by(37) {
        let faulty = Arc::new(FaultDevice::new(device.snapshot(), 1));
        faulty.arm(Fault::on(FaultKind::Read, Effect::IO).within(block..block + 1));
        let Ok(v) = opened(&faulty, "") else {
            refused += 1;
            continue;
        };
        let since = file(&v, v.root(), "since");
        v.fsync(since, false).expect("fsync");
        v.sync().expect("sync");
        beside += u64::from(faulty.hits() > 0);
    }
    assert!(refused <= 1, "{refused}: that where the log goes on alone, which may hold an fsync");
    assert!(beside > 10, "{beside}");
}

#[test]
fn a_file_without_a_name_that_cannot_be_read_keeps_no_volume_from_being_opened() {
    let device = Arc::new(blank(64, all_features()));
    {
        let v = open_device(&device, "");
        let f = file(&v, v.root(), "gone");
        FAR.iter().for_each(|page| write(&v, f, page * P, &noise(*page)));
        v.close().expect("close");
    }
    let blocks = blocks_read(&device, "", |v| v.unlink(v.root(), b"gone").expect("unlinked"));
    {
        let v = open_device(&device, "");
        let f = ino(&v, "gone");
        v.hold(f, 1).expect("held");
        v.unlink(v.root(), b"gone").expect("unlinked");
        v.sync().expect("sync");
        // Power is lost while somebody holds it.
    }
    let free = |device: &Arc<MemDevice>| {
        let v = open_device(device, "");
        let free = v.space().free;
        v.close().expect("close");
        free
    };
    let expected = free(&Arc::new(device.snapshot()));
    let mut left = 0;
    for &block in &blocks {
        let faulty = Arc::new(FaultDevice::new(device.snapshot(), 1));
        faulty.arm(Fault::on(FaultKind::Read, Effect::IO).within(block..block + 1));
        if opened(&faulty, "ro").is_err() {
            continue; // one of the volume's own
        }
        let v = open_with(faulty.clone(), "", Arc::new(ManualClock::new(START)));
        let since = file(&v, v.root(), "made since");
        write(&v, since, 0, &page(3));
        v.fsync(since, false).expect("fsync");
        v.close().expect("close");
        drop(v);
        left += u64::from(faulty.hits() > 0);
        let medium = Arc::new(faulty.inner().snapshot());
        if FsckMedfs.check(medium.clone()).is_err() {
            // A node that could not be read when its log's summary was made anew has no owner there.
            let options = medfs_fsck::Options { max_findings: 12, ..medfs_fsck::Options::default() };
            let repaired = medfs_fsck::repair(&*medium, &options, &mut |_| {}).expect("repair");
            let found: Vec<_> = repaired.before.findings.iter().map(|f| f.code).collect();
            assert_eq!(found, [medfs_fsck::Code::SsaOwner], "block {block}");
            assert!(repaired.after.is_clean(), "block {block}");
        }
        let v = open_device(&medium, "");
        assert_eq!(content(&v, ino(&v, "made since")), page(3));
        v.unlink(v.root(), b"made since").expect("unlinked");
        v.close().expect("close");
        assert_eq!(free(&medium), expected, "block {block}");
    }
    assert!(left > 3, "{left}");
}
