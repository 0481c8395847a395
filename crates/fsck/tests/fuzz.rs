//! Mutated volumes: check, repair and dump neither panic, hang, nor take more than 256 MiB, and what a repair
//! leaves is clean.
//!
//! The variables of [`medfs_testkit::fuzz`], and `MEDFS_FUZZ_JUDGE`: every so many cases, fsck.f2fs must agree with
//! the repair (and memory is not limited).
#[path = "fsck/common/mod.rs"]
mod common;

use common::{Bed, load, save};
use medfs::{Error, ManualClock, MountOptions, Recover, Timestamp, Volume};
use medfs_device::MemDevice;
use medfs_format::{BLOCK_SIZE, COMPRESS_ADDR, NEW_ADDR};
use medfs_fsck::dump::Dump;
use medfs_fsck::inject::{self, Target as Field};
use medfs_fsck::{Options, RepairError, Severity, check, repair};
use medfs_testkit::delta_volume::{delta_volume, shared_volume};
use medfs_testkit::fuzz::{Target, variable};
use medfs_testkit::images::as_plain;
use medfs_testkit::mutate::{Base, nasty};
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::path::Path;
use std::sync::Arc;

/// The base with a compressed file.
const CLUSTERS: usize = 6;

/// Small volumes of every layout, saved as files in `dir`.
fn make(dir: &Path) {
    let bed = Bed::new();
    let tree = bed.path("small-tree");
    std::fs::create_dir_all(tree.join("a/b/c")).unwrap();
    std::fs::create_dir_all(tree.join("many")).unwrap();
    std::fs::write(tree.join("a/inline"), b"inline").unwrap();
    std::fs::write(tree.join("a/b/large"), vec![3u8; BLOCK_SIZE * 1100]).unwrap();
    let sparse = std::fs::File::create(tree.join("a/b/indirect")).unwrap();
    sparse.set_len(0).unwrap();
    std::fs::write(tree.join("a/b/indirect"), vec![4u8; BLOCK_SIZE * 3000]).unwrap();
    std::os::unix::fs::symlink("inline", tree.join("a/link")).unwrap();
    for i in 0..250 {
        std::fs::write(tree.join(format!("many/a file of some name {i}")), [5; 3]).unwrap();
    }
    let all = "extra_attr,inode_checksum,inode_crtime,lost_found,sb_checksum";
    let quota = "extra_attr,project_quota,flexible_inline_xattr,quota";
    for (i, options) in
        [&[][..], &["-O", all], &["-i", "-O", "extra_attr"], &["-O", quota]].into_iter().enumerate()
    {
        let image = bed.mkfs("base.img", 80, options);
        bed.sload(&image, &tree);
        std::fs::rename(image, dir.join(format!("base{i}.img"))).unwrap();
    }
    save(&delta_volume("").dev, &dir.join("base4.img"));
    save(&delta_volume("delta=compact").dev, &dir.join("base5.img"));
    save(&common::compressed_volume(1000).0, &dir.join("base6.img"));
    save(&shared_volume().dev, &dir.join("base7.img"));
}

fn load_bases(dir: &Path) -> Vec<Base> {
    (0..8).map(|i| Base::new(load(&dir.join(format!("base{i}.img"))))).collect()
}

/// Sets a field of a compressed cluster, or of the inode that has it.
fn mutate_cluster(rng: &mut Xoshiro256PlusPlus, dev: &MemDevice) {
    let ino = 5;
    let page = rng.random_range(0..250) * 4;
    let slot = format!("i_addr[{}]", 9 + rng.random_range(0..60));
    let (target, field) = match rng.random_range(0..12) {
        0 => (Field::Cluster(ino, page), "clen"),
        1 => (Field::Cluster(ino, page), "chksum"),
        2 => (Field::Cluster(ino, page), "cdata[3]"),
        3 => (Field::Inode(ino), "i_compr_blocks"),
        4 => (Field::Inode(ino), "i_compress_algorithm"),
        5 => (Field::Inode(ino), "i_log_cluster_size"),
        6 => (Field::Inode(ino), "i_compress_flag"),
        7 => (Field::Inode(ino), "i_flags"),
        8 => (Field::Inode(ino), "i_inline"),
        _ => (Field::Inode(ino), &*slot),
    };
    let value = match rng.random_range(0..3) {
        0 => *[0, 1, 2, 3, 4, 8, COMPRESS_ADDR.into(), NEW_ADDR.into()].choose(rng).expect("not empty"),
        _ => nasty(rng),
    };
    // Earlier mutations may have taken the cluster away.
    let _ = inject::set(dev, &target, field, value);
}

fn look(dev: &MemDevice, rng: &mut Xoshiro256PlusPlus) {
    let Ok(mut dump) = Dump::open(dev) else { return };
    let _ = dump.superblock().to_string();
    let _ = dump.checkpoint().map(|r| r.to_string());
    for n in (0..14).chain([nasty(rng) as u32]) {
        let _ = (dump.nat(n), dump.sit(n), dump.inode(n).map(|r| r.to_string()));
    }
    for path in ["/", "a/b/large", "many/a file of some name 17", "x"] {
        let _ = dump.path(path);
    }
}

const NOW: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 0 };

/// Rolls forward what was fsynced, or gives it up, as `medfs fsck --repair` does after the repair. Nothing
/// where the volume asks for what is not supported.
fn tied_up(dev: &MemDevice) -> Option<Arc<MemDevice>> {
    let image = Arc::new(dev.snapshot());
    let open = |recover| {
        let options = MountOptions { recover, ..MountOptions::default() };
        Volume::open(image.clone(), options, Arc::new(ManualClock::new(NOW)))
    };
    match open(Recover::WhatFits).or_else(|_| open(Recover::Nothing)) {
        Ok(volume) => volume.close().expect("memory does not fail"),
        Err(Error::Incompatible(_)) => return None,
        Err(e) => panic!("a repaired volume does not open: {e}"),
    }
    Some(image)
}

/// Whether a volume has neither blocks nor segments left for an entry in lost+found and what leads to it.
fn is_full(dev: &MemDevice) -> bool {
    let cp = Dump::open(dev).unwrap().checkpoint().unwrap();
    let cp = |field| u64::from(common::number(cp.get(field)));
    cp("valid_block_count") + 8 > cp("user_block_count") || cp("free_segment_count") < 2
}

/// One case; panics where something is wrong. Tells whether there was something to mend.
fn case(seed: u64, bases: &[Base]) -> bool {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let which = rng.random_range(0..bases.len());
    let dev = bases[which].damaged(&mut rng);
    // What quota files say of the usage is not repaired, but fsck.f2fs judges it.
    if which == CLUSTERS {
        (0..rng.random_range(0..4)).for_each(|_| mutate_cluster(&mut rng, &dev));
    }
    let judged = which != 3 && variable("MEDFS_FUZZ_JUDGE").is_some_and(|every| seed.is_multiple_of(every));
    look(&dev, &mut rng);
    let options = Options { max_findings: 200, ..medfs_fsck::Options::default() };
    let before = check(&dev, &options, &mut |_| {}).expect("memory does not fail");
    match repair(&dev, &options, &mut |_| {}) {
        Ok(repaired) => {
            assert_eq!(repaired.before, before);
            let worst = repaired.after.worst();
            let hopeless = worst == Some(Severity::Fatal);
            // A volume without room for the names of what was found keeps it without, and the repair says so.
            let held = repaired.unfinished.is_some() && is_full(&dev);
            assert!(
                !repaired.after.asks_for_repair() || hopeless || held,
                "left after the repair ({:?}): {:#?}",
                repaired.unfinished,
                repaired.after.findings
            );
            if judged
                && !hopeless
                && !held
                && let Some(dev) = tied_up(&dev)
            {
                Bed::new().judge(&as_plain(&*dev).unwrap()).unwrap();
            }
            repaired.changed
        }
        Err(RepairError::Unsupported(_)) => false,
        Err(RepairError::Io(e)) => panic!("memory does not fail: {e}"),
    }
}

#[test]
fn mutated_volumes() {
    let limited = variable("MEDFS_FUZZ_JUDGE").is_none();
    let target = Target { test: "mutated_volumes", seconds: 8, limited, make, load: load_bases, case };
    if let Some(done) = target.run() {
        assert!(done.cases > 10 && done.deep > done.cases / 5, "{done:?}: too few volumes were mended");
    }
}
