//! What runs of operations leave on the device is what they left before: blocks by cause, flushes, and their order.
//!
//! `footprint.tsv` has a row for each combination of options. A change that is meant to write something else
//! writes the table anew, and its difference is reviewed with the change:
//! `MEDFS_BLESS=1 cargo test --release -p medfs-testkit --test footprint -- --ignored`

use medfs::MountOptions;
use medfs_device::MemDevice;
use medfs_format::superblock::Feature;
use medfs_mkfs::{MkfsOptions, format_volume};
use medfs_testkit::combine::Combination;
use medfs_testkit::footprint::{Footprint, Trail};
use medfs_testkit::fuzz::variable;
use medfs_testkit::harness::{Setup, run};
use medfs_testkit::images::{COMPRESSED, DELTAS};
use medfs_testkit::ops::{Generator, Op};
use medfs_testkit::volume::{mounter_over, test_clock};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;

/// Operations of a row: the whole table is 100,000.
const OPS: usize = 370;
/// Rows that every run of the tests checks: one in so many. Has no divisor in common with the number of combinations.
const SAMPLE: usize = 31;
/// Blocks of a volume, 64 MiB: few enough for sections to be cleaned.
const VOLUME: u64 = 64 << 8;

/// The volume that a combination takes. mkfs.f2fs would give each run's its own UUID, and with it other bytes.
fn formatted(combination: Combination) -> Arc<MemDevice> {
    let mut options = MkfsOptions { deltas: true, ..MkfsOptions::new([3; 16], 1_720_000_000) };
    match combination.features() {
        DELTAS => {}
        features if features == COMPRESSED[1] => options.features |= Feature::COMPRESSION,
        features => panic!("no volume for {features}"),
    }
    let device = MemDevice::new(VOLUME);
    format_volume(&device, &options).expect("memory takes a volume");
    Arc::new(device)
}

/// The operations of a seed, in one thread: of several, what is written depends on which comes first.
fn operations(seed: u64) -> Vec<Op> {
    let mut generator = Generator::new(seed);
    generator.patching = true;
    generator.clustering = true;
    let mut ops = generator.ops(OPS);
    for op in &mut ops {
        if let Op::FsyncMany { threads, .. } = op {
            *threads = false;
        }
    }
    ops
}

/// The row of a seed: its combination, and what its run left.
fn row(seed: u64) -> String {
    let combination = Combination::of_seed(seed);
    let mut options = MountOptions::default();
    options.parse(&combination.options_of(seed)).expect("options of a combination");
    let (clock, trail) = (test_clock(), Trail::default());
    let (for_mounts, between) = (clock.clone(), trail.clone());
    let setup = Setup {
        image: formatted(combination),
        mounter: Arc::new(move || {
            let trail = between.clone();
            mounter_over(options.clone(), for_mounts.clone(), move |device| trail.over(device))
        }),
        clock: Some(clock),
        checks: Vec::new(),
        check_every: 1,
        compare_every: OPS,
        crowded: false,
    };
    run(&setup, &operations(seed)).unwrap_or_else(|failure| panic!("seed {seed}: {failure}"));
    format!("{seed}\t{}", trail.footprint())
}

fn table() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/footprint.tsv")
}

/// The rows of the table that is kept, without its header.
fn kept() -> Vec<String> {
    let text = std::fs::read_to_string(table()).expect("the table that is kept");
    text.lines().skip(1).map(str::to_owned).collect()
}

/// Compares runs with their rows, all of them before any difference is reported.
fn compare(seeds: impl Iterator<Item = usize>) {
    let kept = kept();
    assert_eq!(kept.len(), Combination::COUNT, "rows of the table that is kept");
    let mut differences = String::new();
    for seed in seeds {
        let now = row(seed as u64);
        if now != kept[seed] {
            let _ = write!(differences, "\n- {}\n+ {now}", kept[seed]);
        }
    }
    let header = Footprint::header();
    assert!(differences.is_empty(), "runs left something else on the device:\n  seed\t{header}{differences}");
}

#[test]
fn some_runs_leave_what_they_left_before() {
    compare((0..Combination::COUNT).step_by(SAMPLE));
}

/// All rows; with `MEDFS_BLESS=1` they are written anew instead.
#[test]
#[ignore = "a minute; see the head of this file"]
fn all_runs_leave_what_they_left_before() {
    if variable("MEDFS_BLESS").is_none() {
        return compare(0..Combination::COUNT);
    }
    let rows: Vec<String> = (0..Combination::COUNT as u64).map(row).collect();
    let text = format!("seed\t{}\n{}\n", Footprint::header(), rows.join("\n"));
    std::fs::write(table(), text).expect("writes the table");
}

/// A request more, or the same requests in another order, is another footprint.
#[test]
fn a_request_more_is_seen() {
    use medfs_device::{BlockDevice, Cause, MemDevice, Temperature, WriteTag};
    use medfs_format::Block;
    let left = |requests: &[(u64, u8, bool)]| {
        let trail = Trail::default();
        let device = trail.over(Arc::new(MemDevice::new(8)) as Arc<dyn BlockDevice>);
        for (addr, byte, flush) in requests {
            let mut block = Block::boxed();
            block.0.fill(*byte);
            device.write(*addr, &[&block], WriteTag::new(Cause::Node, Temperature::Hot)).unwrap();
            if *flush {
                device.flush().unwrap();
            }
        }
        trail.footprint().to_string()
    };
    let base = left(&[(1, 7, false), (2, 8, true)]);
    assert_eq!(base, left(&[(1, 7, false), (2, 8, true)]));
    for other in [
        &[(2, 8, false), (1, 7, true)][..],
        &[(1, 7, true), (2, 8, false)],
        &[(1, 7, false), (2, 9, true)],
        &[(1, 7, false), (2, 8, true), (1, 7, false)],
    ] {
        assert_ne!(base, left(other));
    }
}
