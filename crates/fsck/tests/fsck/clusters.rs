//! Faults of compressed clusters: each is found under its code, names file and page, is mended, and costs no
//! other cluster.

use crate::medium::node_addr;
use medfs::{Files, Ino, ManualClock, MountOptions, Timestamp, Volume};
use medfs_device::{BlockDevice, MemDevice, read_block};
use medfs_format::COMPRESS_ADDR;
use medfs_format::node::RawInode;
use medfs_fsck::dump::Dump;
use medfs_fsck::inject::{self, Target};
use medfs_fsck::{Code, Options, Report, check, repair};
use std::sync::Arc;

const PAGE: usize = 4096;
/// Pages of a cluster, and of the file: clusters in the inode and in direct nodes.
const CLUSTER: usize = 4;
const PAGES: usize = 1000;
/// Address slots before those of the pages.
const EXTRA: usize = 9;

/// A volume, the number of its compressed file, and what the file holds.
struct Bed {
    dev: MemDevice,
    ino: Ino,
    content: Vec<u8>,
}

fn open(dev: &Arc<MemDevice>, read_only: bool) -> Volume {
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let options = MountOptions { read_only, ..MountOptions::default() };
    Volume::open(dev.clone(), options, clock).expect("the volume opens")
}

fn bed() -> Bed {
    let (dev, ino, content) = crate::common::compressed_volume(PAGES);
    Bed { dev, ino, content }
}

impl Bed {
    fn set(&self, target: Target<'_>, field: &str, value: u64) {
        inject::set(&self.dev, &target, field, value).expect("the field is there");
    }
    /// Sets a field of the header of the cluster at this page.
    fn cluster(&self, page: u64, field: &str, value: u64) {
        self.set(Target::Cluster(self.ino, page), field, value);
    }
    /// Sets the address of a page of the inode.
    fn addr(&self, page: usize, value: u32) {
        self.set(Target::Inode(self.ino), &format!("i_addr[{}]", EXTRA + page), value.into());
    }
    /// The block of a page of the inode.
    fn block(&self, page: usize) -> u32 {
        let block = read_block(&self.dev, node_addr(&self.dev, self.ino)).expect("memory");
        block.view::<RawInode>().i_addr[EXTRA + page].get()
    }
    /// Flips a bit of the compressed bytes of the cluster at this page.
    fn flip(&self, page: usize) {
        let at = u64::from(self.block(page + 1));
        let mut block = read_block(&self.dev, at).expect("memory");
        block.0[30] ^= 4;
        self.dev.write(at, &[&block], crate::common::META).expect("memory");
    }
    fn extra(&self, field: &str, value: u64) {
        self.set(Target::Inode(self.ino), field, value);
    }
}

fn look(dev: &MemDevice) -> Report {
    check(dev, &Options::default(), &mut |_| ()).expect("memory")
}

/// The clusters of the file that do not read as what was written: zeros for `Ok`.
fn lost(bed: &Bed) -> Vec<(usize, Result<(), ()>)> {
    let v = open(&Arc::new(bed.dev.snapshot()), true);
    let mut lost = Vec::new();
    for first in (0..PAGES).step_by(CLUSTER) {
        let mut found = vec![0; CLUSTER * PAGE];
        let at = first * PAGE;
        match v.read(bed.ino, at as u64, &mut found) {
            Ok(_) if found == bed.content[at..at + CLUSTER * PAGE] => {}
            Ok(_) => {
                assert!(
                    found.iter().all(|&b| b == 0),
                    "the cluster at page {first} is neither there nor gone"
                );
                lost.push((first, Ok(())));
            }
            Err(e) => {
                assert_eq!(e.errno(), 117, "{e}");
                lost.push((first, Err(())));
            }
        }
    }
    lost
}

/// A fault: its code, what else the finding says, how it is planted, and the clusters that it costs.
type Fault = (Code, &'static str, fn(&Bed), &'static [usize]);

const FAULTS: &[Fault] = &[
    (
        Code::ClusterDamaged,
        "page 8: its header announces 60000 bytes",
        |b| b.cluster(8, "clen", 60_000),
        &[8],
    ),
    (Code::ClusterDamaged, "page 8: its checksum is", |b| b.cluster(8, "clen", 20), &[8]),
    (Code::ClusterDamaged, "page 12: its checksum is 0x00000005", |b| b.cluster(12, "chksum", 5), &[12]),
    (Code::ClusterDamaged, "page 900: its checksum is", |b| b.cluster(900, "cdata[9]", 0xEE), &[900]),
    (
        Code::ClusterDamaged,
        "page 16: its lz4 content",
        |b| {
            b.extra("i_compress_flag", 0);
            b.cluster(16, "clen", 20);
        },
        &[16],
    ),
    (Code::ClusterBit, "page 44: its checksum is right with bit 2", |b| b.flip(44), &[]),
    (
        Code::ClusterContent,
        "page 40: its",
        |b| {
            // No summary says any more which block it was.
            b.set(Target::Nat(b.ino), "version", 9);
            b.addr(41, node_addr(&b.dev, b.ino) as u32);
        },
        &[40],
    ),
    (
        Code::ClusterPlace,
        "page 20: a compressed cluster without blocks",
        |b| {
            b.set(Target::Nat(b.ino), "version", 9);
            b.addr(21, 0);
        },
        &[20],
    ),
    (Code::ClusterPlace, "page 24: a compressed cluster with gaps", |b| b.addr(27, 0xffff_fff0), &[24]),
    (Code::ClusterPlace, "page 32: a slot that is not reserved", |b| b.addr(35, 0), &[]),
    (Code::SavedBlocks, "i_compr_blocks is 7", |b| b.extra("i_compr_blocks", 7), &[]),
];

#[test]
fn every_fault_is_found_and_costs_no_other_cluster() {
    for (code, says, plant, cost) in FAULTS {
        let bed = bed();
        plant(&bed);
        let report = look(&bed.dev);
        let found = report.findings.iter().find(|f| f.code == *code);
        let found = found.unwrap_or_else(|| panic!("{says}: {:?}", report.findings));
        assert!(
            found.message.contains(says)
                && (found.message.contains("(\"file\")") || *code == Code::SavedBlocks),
            "{}",
            found.message
        );
        if *code != Code::SavedBlocks {
            let errors: Vec<usize> = lost(&bed).into_iter().map(|(at, _)| at).collect();
            assert_eq!(errors, *cost, "{says}: before the repair");
            assert!(lost(&bed).iter().all(|(_, how)| how.is_err()), "{says}: never zeros before the repair");
        }
        repair(&bed.dev, &Options::default(), &mut |_| ()).expect("repair");
        // What is damaged stays, as an error: zeros in its place would hide it.
        let stays = *code == Code::ClusterDamaged;
        let left: Vec<Code> = look(&bed.dev).findings.iter().map(|f| f.code).collect();
        assert_eq!(left, if stays { vec![Code::ClusterDamaged] } else { vec![] }, "{says}");
        let gone: Vec<_> = cost.iter().map(|&at| (at, if stays { Err(()) } else { Ok(()) })).collect();
        assert_eq!(lost(&bed), gone, "{says}: after the repair");
    }
}

/// A mark is no block, and one bit away from what it reads as.
#[test]
fn a_flipped_bit_in_a_mark_of_a_cluster_is_turned_back() {
    for (slot, bits) in [(8, [0, 1, 22]), (11, [0, 9, 30])] {
        for bit in bits {
            let bed = bed();
            let was = bed.block(slot);
            assert!(!medfs_format::is_block(was), "slot {slot} is a mark");
            bed.addr(slot, was ^ 1 << bit);
            let report = look(&bed.dev);
            assert!(report.has(Code::AddressBit), "slot {slot}, bit {bit}: {:?}", report.findings);
            assert_eq!(report.losses, Default::default(), "slot {slot}, bit {bit}: {:?}", report.findings);
            repair(&bed.dev, &Options::default(), &mut |_| ()).expect("repair");
            assert_eq!(look(&bed.dev).findings, [], "slot {slot}, bit {bit}");
            assert_eq!(lost(&bed), [], "slot {slot}, bit {bit}");
        }
    }
}

#[test]
fn a_mark_inside_a_cluster_becomes_a_reserved_place() {
    let bed = bed();
    // The cluster at page 28 becomes a plain one, of which two pages are left.
    bed.addr(28, 0);
    bed.addr(30, COMPRESS_ADDR);
    let report = look(&bed.dev);
    assert!(report.has(Code::AddressBit), "{:?}", report.findings);
    repair(&bed.dev, &Options::default(), &mut |_| ()).expect("repair");
    assert_eq!(look(&bed.dev).findings, []);
}

#[test]
fn an_inode_that_cannot_be_true_is_found() {
    for (field, value) in [("i_compress_algorithm", 9), ("i_log_cluster_size", 12)] {
        let bed = bed();
        bed.extra(field, value);
        let report = look(&bed.dev);
        assert!(report.has(Code::InodeField), "{field}: {:?}", report.findings);
        let named = report.findings.iter().any(|f| f.message.contains(field));
        assert!(named, "{:?}", report.findings);
        repair(&bed.dev, &Options::default(), &mut |_| ()).expect("repair");
        assert_eq!(look(&bed.dev).findings, [], "{field}");
    }
}

#[test]
fn a_sound_volume_with_clusters_is_clean_with_and_without_what_they_save() {
    let bed = bed();
    assert_eq!(look(&bed.dev).findings, []);
    assert_eq!(lost(&bed), []);
    let dev = Arc::new(bed.dev.snapshot());
    let v = open(&dev, false);
    assert!(v.release_saved_blocks(bed.ino).expect("release") > 500);
    v.close().expect("close");
    assert_eq!(look(&dev).findings, []);
    let dump = Dump::open(&*dev).expect("open").inode(bed.ino).expect("the inode").to_string();
    assert!(dump.contains("lz4") && dump.contains("0:compressed"), "{dump}");
}

/// Pages of clusters that are deltas: a wrong delta costs its page's update, a damaged cluster its pages.
#[test]
fn deltas_in_clusters_are_judged_by_what_the_clusters_hold() {
    let (dev, ino, content) = crate::common::updated_clusters(40, &[0, 3, 9, 22]);
    assert_eq!(look(&dev).findings, []);
    let shown = Dump::open(&dev).expect("open").inode(ino).expect("the inode").to_string();
    assert!(shown.matches("cluster").count() >= 4, "{shown}");
    let read = |dev: &MemDevice, page: usize| {
        let mut found = vec![0; PAGE];
        let v = open(&Arc::new(dev.snapshot()), true);
        v.read(ino, (page * PAGE) as u64, &mut found).map(|_| found).map_err(|e| e.errno())
    };
    let now = |page: usize| content[page * PAGE..][..PAGE].to_vec();
    inject::set(&dev, &Target::Delta(ino, 2), "checksum", 5).expect("the field is there");
    inject::set(&dev, &Target::Cluster(ino, 20), "chksum", 5).expect("the field is there");
    let report = look(&dev);
    let count = |report: &Report, code| report.findings.iter().filter(|f| f.code == code).count();
    // The cluster, and the delta of a page in it.
    assert_eq!(
        (count(&report, Code::DeltaContent), count(&report, Code::ClusterDamaged)),
        (1, 2),
        "{:?}",
        report.findings
    );
    assert_eq!((read(&dev, 9), read(&dev, 22), read(&dev, 3)), (Err(117), Err(117), Ok(now(3))));
    repair(&dev, &Options::default(), &mut |_| ()).expect("repair");
    let left = look(&dev);
    assert_eq!((left.findings.len(), count(&left, Code::ClusterDamaged)), (2, 2), "{:?}", left.findings);
    let mut before = now(9);
    before[1000..1030]
        .copy_from_slice(&(0..30).map(|i| ((9 * PAGE + 1000 + i) / 99 + 9) as u8).collect::<Vec<_>>());
    assert_eq!((read(&dev, 9), read(&dev, 22), read(&dev, 3)), (Ok(before), Err(117), Ok(now(3))));
}

#[test]
fn every_code_of_clusters_has_a_fault() {
    for code in Code::ALL.iter().filter(|code| crate::common::is_of_clusters(**code)) {
        assert!(FAULTS.iter().any(|(c, ..)| c == code), "no fault is planted for {code} ({code:?})");
    }
}
