//! Random operations on the engine against the model, with remounts and crashes.
//!
//! The long run is a command of its own:
//! `MEDFS_SEED=7 MEDFS_OPS=100000 cargo test --release -p medfs-testkit --test random -- --ignored --nocapture`

use medfs::{FileKind, MountOptions, RenameFlags};
use medfs_testkit::combine::{Combination, Coverage};
use medfs_testkit::committed;
use medfs_testkit::fuzz::variable;
use medfs_testkit::harness::{Report, Setup, guarded, run, run_seed};
use medfs_testkit::images::{
    COMPRESSED, DELTAS, Exported, FEATURE_SETS, FsckF2fs, FsckMedfs, VOLUMES, formatted, options_for,
};
use medfs_testkit::nvram::{mounter_with_nvram, with_room};
use medfs_testkit::ops::{Generator, Op, Place, Target};
use medfs_testkit::subject::Counts;
use medfs_testkit::volume::{mounter, test_clock};
use std::sync::Arc;
use std::time::Instant;

fn setup(mebibytes: u64, features: &str, options: &str) -> Setup {
    let clock = test_clock();
    let mut parsed = MountOptions::default();
    parsed.parse(options_for(features)).expect("options of the volume");
    parsed.parse(options).expect("options of the test");
    let for_mounts = clock.clone();
    Setup {
        image: formatted(mebibytes, features),
        mounter: Arc::new(move || mounter(parsed.clone(), for_mounts.clone())),
        clock: Some(clock),
        checks: vec![Arc::new(FsckMedfs), Arc::new(FsckF2fs), Arc::new(Exported)],
        check_every: 1,
        compare_every: 500,
        crowded: false,
    }
}

#[test]
fn two_thousand_operations() {
    for (seed, features) in (1..).zip(VOLUMES) {
        let report = run_seed(&setup(256, features, "rw"), seed, 2000, |_| {});
        println!("seed {seed}, features [{features}]: {report:?}");
    }
}

/// A cache of a few pages and nodes: everything is evicted and read again.
#[test]
fn three_thousand_operations_with_a_tiny_cache() {
    let report = run_seed(&setup(256, FEATURE_SETS[1], "cache=1M"), 3, 3000, |_| {});
    println!("seed 3: {report:?}");
}

/// Small updates of a few files, on a small volume so that sections are cleaned too.
#[test]
fn two_thousand_operations_on_deltas() {
    let setup = setup(64, DELTAS, "in_place=force,hot_window=2s,compact_files=all");
    let report = run_seed(&setup, 5, 2000, |generator| generator.patching = true);
    println!("seed 5: {report:?}");
    let d = report.counts;
    assert!(d.made > 300 && d.appended > 50, "hardly any deltas: {report:?}");
    assert!(
        d.repeated > 50 && d.compact_pages > 30 && d.released > 5,
        "hardly any of some kinds: {report:?}"
    );
    assert!(report.counts.restored > 20, "hardly anything restored: {report:?}");
}

/// Pages that are copied within their file, so that they are made from each other in chains.
fn on_copies(seed: u64, options: &str, ops: usize) -> Report {
    let report = run_seed(&setup(64, DELTAS, options), seed, ops, |generator| {
        (generator.patching, generator.copying) = (true, true);
    });
    println!("seed {seed}, {options}: {report:?}");
    report
}

/// Overwritten in place where that may be, with little memory for pages, and without records in inodes.
const COPIES: [&str; 3] = [
    "in_place=force,hot_window=2s,compact_files=all",
    "cache=1M,compact_files=all",
    "delta=compact,compact_files=all",
];

#[test]
fn two_thousand_operations_on_copied_pages() {
    let mut counts = Counts::default();
    for (seed, options) in (5..).zip(COPIES) {
        counts += on_copies(seed, options, 700).counts;
    }
    assert!(counts.similar > 300 && counts.released > 80, "{counts:?}");
}

/// `MEDFS_SEED=7 MEDFS_OPS=100000`: so many operations in all, 1500 of a seed.
#[test]
#[ignore = "minutes; see the head of this file"]
fn long_run_on_copied_pages() {
    let (first, ops) = (variable("MEDFS_SEED").unwrap_or(1), variable("MEDFS_OPS").unwrap_or(30_000));
    for seed in (first..).take((ops / 1500) as usize) {
        on_copies(seed, COPIES[seed as usize % COPIES.len()], 1500);
    }
}

/// fsyncs go to a memory behind the volume.
fn with_nvram(options: &str) -> Setup {
    let of_volume = setup(64, DELTAS, options);
    let clock = test_clock();
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options of the test");
    let for_mounts = clock.clone();
    Setup {
        image: Arc::new(with_room(&of_volume.image)),
        mounter: Arc::new(move || mounter_with_nvram(parsed.clone(), for_mounts.clone())),
        clock: Some(clock),
        checks: vec![Arc::new(FsckMedfs)],
        ..of_volume
    }
}

/// With little memory for pages and much, and overwritten in place where that may be.
const ON_NVRAM: [&str; 6] = [
    "in_place=force,hot_window=2s,compact_files=all",
    "cache=1M,compact_files=all,hot_window=1s",
    "delta=off,in_place=force",
    "nvram_mode=ordered,in_place=force,hot_window=2s,compact_files=all",
    "nvram_mode=ordered,delta=off,cache=1M",
    "nvram_admit=population,nvram_commit=10ms,compact_files=all",
];

fn on_nvram(seed: u64, ops: usize) -> Report {
    let options = ON_NVRAM[seed as usize % ON_NVRAM.len()];
    let report = run_seed(&with_nvram(options), seed, ops, |generator| generator.patching = true);
    println!("seed {seed}, {options}: {report:?}");
    report
}

#[test]
fn a_thousand_operations_with_nvram() {
    let mut counts = Counts::default();
    (3..9).for_each(|seed| counts += on_nvram(seed, 700).counts);
    let Counts { journaled, from_parts, placed, unsynced, .. } = counts;
    assert!(journaled > 100 && from_parts > 10, "{journaled} records, {from_parts} pages from parts");
    assert!(
        placed > 100 && unsynced > 10,
        "{placed} pages got blocks, {unsynced} records of what nobody synced"
    );
}

/// `MEDFS_SEED=7 MEDFS_OPS=100000`: so many operations in all, a thousand or so of a seed.
#[test]
#[ignore = "minutes; see the head of this file"]
fn long_run_on_nvram() {
    let (first, ops) = (variable("MEDFS_SEED").unwrap_or(1), variable("MEDFS_OPS").unwrap_or(30_000));
    for seed in (first..).take((ops / 1500) as usize) {
        on_nvram(seed, 1500);
    }
}

/// Three files take one name after the other, and the second is kept as a base of the third. Its hidden name,
/// recorded by an fsync of what took the name that it had first, would give the first its name back.
#[test]
fn a_kept_base_does_not_give_a_name_back() {
    let at = |dir, name| Place { dir, name };
    let (tmp, name, other) = (at(0, 254), at(0, 253), at(1, 254));
    let make = |at| Op::Create { at, kind: FileKind::Regular, perm: 0o644 };
    let write = |at, len| Op::Write { file: Target::Path(at), offset: 0, len, seed: 3 };
    let sync = |at| Op::Fsync { file: Target::Path(at), datasync: false };
    let rename = |from, to| Op::Rename { from, to, flags: RenameFlags::empty() };
    let ops = [
        Op::Create { at: at(0, 6), kind: FileKind::Directory, perm: 0o755 },
        make(tmp),
        write(tmp, 50000),
        sync(tmp),
        rename(tmp, name),
        sync(name),
        make(tmp),
        Op::Patch { file: Target::Path(tmp), first: 3, count: 40, len: 300, seed: 193 },
        sync(tmp),
        make(other),
        write(other, 47000),
        rename(other, name),
        Op::FsyncDir { dir: 0 },
        write(tmp, 50000),
        sync(tmp),
        rename(tmp, name),
        make(other),
        sync(other),
        Op::Crash,
    ];
    let setup = Setup { compare_every: 1, ..setup(64, DELTAS, ON_NVRAM[0]) };
    assert_eq!(run(&setup, &ops).unwrap_or_else(|failure| panic!("{failure}")).crashes, 1);
}

/// The random operations that found it.
#[test]
fn names_that_several_files_took() {
    run_seed(&setup(64, DELTAS, ON_NVRAM[0]), 1017, 1500, |generator| generator.patching = true);
}

/// How pages are compressed alone: each algorithm.
const PAGES: [&str; 3] = [
    "compress=fpc,in_place=off,compact_files=all,hot_window=2s",
    "compress=fpc:lz4,compact_files=all,cache=1M",
    "compress=fpc:zstd,in_place=force,hot_window=1s,compact_files=all",
];

/// Pages compressed alone, on a small volume so that sections are cleaned too.
#[test]
fn a_thousand_operations_on_compressed_pages() {
    for (seed, options) in (7..).zip(PAGES) {
        let report = run_seed(&setup(64, DELTAS, options), seed, 1000, |generator| generator.patching = true);
        println!("seed {seed}, {options}: {report:?}");
        assert!(report.counts.compressed >= 100, "hardly any compressed: {report:?}");
        assert_eq!(report.counts.made, 0, "{report:?}");
    }
}

/// How clusters are made: each algorithm, several sizes of clusters and caches.
const CLUSTERS: [&str; 4] = [
    "compress=lzo",
    "compress=lz4,compress_log_size=3",
    "compress=zstd,cache=1M",
    "compress=lzo-rle,in_place=off",
];

/// Compressed files, on a small volume so that sections are cleaned too.
#[test]
fn a_thousand_operations_on_clusters() {
    for (seed, (options, features)) in (5..).zip(CLUSTERS.into_iter().zip(COMPRESSED.into_iter().cycle())) {
        let setup = setup(64, features, options);
        // More than a thousand, as what an open atomic write refuses makes no cluster.
        let report = run_seed(&setup, seed, 1250, |generator| generator.clustering = true);
        println!("seed {seed}, {options}: {report:?}");
        assert!(report.counts.clusters > 150, "hardly any clusters: {report:?}");
    }
}

/// Operations of one seed in [`long_run_on_combinations`].
const OPS_OF_A_SEED: usize = 1000;

/// Operations of every kind under the combination of options that the seed decides.
fn combined(seed: u64, ops: usize, check_every: usize) -> (Combination, Report) {
    let combination = Combination::of_seed(seed);
    let setup = Setup {
        image: combination.image_of(seed),
        check_every,
        ..setup(Combination::mebibytes_of(seed), combination.features(), &combination.options_of(seed))
    };
    let report = run_seed(&setup, seed, ops, |generator| {
        generator.patching = true;
        generator.clustering = true;
    });
    (combination, report)
}

/// The random operations that found it: an export frees files that were kept as bases, some before it comes to them.
#[test]
fn an_export_passes_by_bases_that_it_freed() {
    combined(16693, OPS_OF_A_SEED, 4);
}

#[test]
fn three_hundred_operations_on_some_combinations() {
    for seed in [1, 64, 90, 133, 209, 260, 272 + 5, 3 * 272 + 80] {
        println!("seed {seed}, {}", Combination::of_seed(seed));
        let (_, report) = combined(seed, 300, 4);
        println!("{report:?}");
    }
}

/// Everything that can happen to deltas happens, and every combination is met where there are operations enough.
#[test]
#[ignore = "minutes; see the head of this file"]
fn long_run_on_combinations() {
    let first = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let ops = variable("MEDFS_OPS").unwrap_or(300_000) as usize;
    let check_every = variable("MEDFS_CHECK_EVERY").unwrap_or(5) as usize;
    let start = Instant::now();
    let (mut coverage, mut counts) = (Coverage::default(), Counts::default());
    let seeds = ops.div_ceil(OPS_OF_A_SEED);
    for seed in (first..).take(seeds) {
        println!("seed {seed}, {}", Combination::of_seed(seed));
        let (combination, report) = combined(seed, ops.min(OPS_OF_A_SEED), check_every);
        coverage.add(combination);
        counts += report.counts;
    }
    println!("{seeds} seeds from {first} on, in {:.1?}\n{coverage}{:?}", start.elapsed(), counts.named());
    if seeds >= Combination::COUNT {
        assert_eq!(coverage.met(), Combination::COUNT);
        // Space is never short here: that is another run's subject.
        let of_no_matter = |name| name == "cleaned_for_space";
        let missing = counts.named().into_iter().filter(|(name, n)| *n == 0 && !of_no_matter(*name));
        let missing: Vec<_> = missing.collect();
        assert!(missing.is_empty(), "never happened: {missing:?}");
    }
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn long_run_on_compressed_pages() {
    let seed = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let ops = variable("MEDFS_OPS").unwrap_or(100_000) as usize;
    for options in PAGES {
        println!("seed {seed}, {ops} operations on compressed pages, options {options}");
        let check_every = variable("MEDFS_CHECK_EVERY").unwrap_or(20) as usize;
        let setup = Setup { check_every, ..setup(64, DELTAS, options) };
        println!("{:?}", run_seed(&setup, seed, ops, |generator| generator.patching = true));
    }
}

/// How pages of clusters become deltas.
const UPDATED: [&str; 3] = [
    "compress=lz4,in_place=off,hot_window=2s,compact_files=all",
    "compress=zstd,compress_log_size=3,cache=1M,delta=inline",
    "compress=lzo,delta=compact,compact_files=all",
];

fn updated_clusters(options: &str, seed: u64, ops: usize, every: usize) -> Report {
    let setup = Setup { check_every: every, ..setup(64, COMPRESSED[1], options) };
    run_seed(&setup, seed, ops, |generator| generator.patching = true)
}

/// Small updates of compressed files.
#[test]
fn two_thousand_operations_on_updated_clusters() {
    for (seed, options) in (11..).zip(UPDATED) {
        let report = updated_clusters(options, seed, 2000, 2);
        println!("seed {seed}, {options}: {report:?}");
        assert!(report.counts.clusters > 30 && report.counts.made > 100, "hardly any: {report:?}");
    }
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn long_run_on_updated_clusters() {
    let seed = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let ops = variable("MEDFS_OPS").unwrap_or(100_000) as usize;
    for options in UPDATED {
        println!("seed {seed}, {ops} operations on updated clusters, options {options}");
        let every = variable("MEDFS_CHECK_EVERY").unwrap_or(20) as usize;
        println!("{:?}", updated_clusters(options, seed, ops, every));
    }
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn long_run_on_clusters() {
    let seed = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let ops = variable("MEDFS_OPS").unwrap_or(100_000) as usize;
    for options in CLUSTERS {
        for features in COMPRESSED {
            println!("seed {seed}, {ops} operations on clusters, options {options}, features [{features}]");
            let start = Instant::now();
            let setup = Setup {
                check_every: variable("MEDFS_CHECK_EVERY").unwrap_or(20) as usize,
                ..setup(64, features, options)
            };
            let report = run_seed(&setup, seed, ops, |generator| generator.clustering = true);
            println!("{report:?} in {:.1?}", start.elapsed());
        }
    }
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn long_run_on_deltas() {
    let seed = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let ops = variable("MEDFS_OPS").unwrap_or(100_000) as usize;
    for options in [
        "in_place=force,hot_window=2s,compact_files=all",
        "in_place=off,cache=1M,hot_window=1s,compact_files=all",
        "in_place=fsync,hot_window=5s",
        "delta=inline,cross_file_deltas=on,in_place=fsync",
        "delta=compact,compact_files=all",
        "zero_base_deltas=off,cross_file_deltas=off,compact_files=all",
        "addr_redo=off,compact_files=all",
    ] {
        println!("seed {seed}, {ops} operations on deltas, options {options}");
        let start = Instant::now();
        let setup = Setup {
            check_every: variable("MEDFS_CHECK_EVERY").unwrap_or(20) as usize,
            ..setup(64, DELTAS, options)
        };
        let report = run_seed(&setup, seed, ops, |generator| generator.patching = true);
        println!("{report:?} in {:.1?}", start.elapsed());
    }
}

/// Mebibytes filled for good, of the 16 that a volume of 64 has for users.
const BALLAST: u32 = 12;

/// A small volume that is full most of the time, so that operations are refused and sections cleaned to go on.
fn full(features: &str) -> Setup {
    Setup { crowded: true, ..setup(64, features, "in_place=off") }
}

fn must_have_been_full(report: &Report) {
    assert!(report.refused > report.ops / 100, "the volume was seldom full: {report:?}");
    assert!(report.counts.cleaned_for_space > 0, "nothing was cleaned: {report:?}");
}

#[test]
fn fifteen_hundred_operations_on_a_full_volume() {
    let report = run_seed(&full(FEATURE_SETS[1]), 4, 1500, |generator| generator.crowded = BALLAST);
    println!("seed 4: {report:?}");
    must_have_been_full(&report);
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn long_run_on_a_full_volume() {
    let seed = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let ops = variable("MEDFS_OPS").unwrap_or(100_000) as usize;
    for features in VOLUMES {
        println!("seed {seed}, {ops} operations, features [{features}], full");
        let start = Instant::now();
        let setup =
            Setup { check_every: variable("MEDFS_CHECK_EVERY").unwrap_or(20) as usize, ..full(features) };
        let report = run_seed(&setup, seed, ops, |generator| generator.crowded = BALLAST);
        println!("{report:?} in {:.1?}", start.elapsed());
        must_have_been_full(&report);
    }
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn long_run() {
    let seed = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let ops = variable("MEDFS_OPS").unwrap_or(100_000) as usize;
    let options = std::env::var("MEDFS_OPTIONS").unwrap_or_else(|_| "rw".into());
    for features in VOLUMES {
        println!("seed {seed}, {ops} operations, features [{features}], options {options}");
        let start = Instant::now();
        let setup = Setup {
            check_every: variable("MEDFS_CHECK_EVERY").unwrap_or(20) as usize,
            ..setup(512, features, &options)
        };
        let report = run_seed(&setup, seed, ops, |_| {});
        println!("{report:?} in {:.1?}", start.elapsed());
    }
}

/// Operations of a run that looks at what was committed.
const COMMITS: usize = 250;

/// A run whose commits are held in memory, as the seed's combination of options decides; `after_a_cut`
/// changes how it is opened then.
fn run_held(seed: u64, options: &str, after_a_cut: &str) -> Result<committed::Report, String> {
    let combination = Combination::of_seed(seed);
    let parsed = |more: &str| {
        let mut parsed = MountOptions::default();
        parsed.parse(&combination.options_of(seed)).expect("options of a combination");
        parsed.parse(more).expect("options of the test");
        parsed
    };
    let image = formatted(64, combination.features());
    let setup = committed::Setup {
        image: &image,
        options: parsed(options),
        after_a_cut: parsed(after_a_cut),
        clock: test_clock(),
    };
    let mut generator = Generator::new(seed);
    generator.patching = true;
    generator.clustering = true;
    let ops = generator.ops(COMMITS);
    guarded(|| committed::run(&setup, &ops))
}

/// What is held of each commit is what a cut of power at that moment brings back.
#[test]
fn what_was_committed_is_brought_back() {
    let (mut cuts, mut pages) = (0, 0);
    for seed in (0..Combination::COUNT as u64).step_by(23) {
        let report = run_held(seed, "rw", "rw").unwrap_or_else(|what| panic!("seed {seed}: {what}"));
        cuts += report.cuts;
        pages += report.pages;
    }
    println!("{cuts} cuts, {pages} pages");
    assert!(cuts > 300 && pages > 1000, "{cuts} cuts, {pages} pages");
}

/// A recovery without the log of fsyncs, and fsyncs without a flush, are both seen.
#[test]
fn a_commit_that_is_not_brought_back_is_seen() {
    for (options, after_a_cut) in [("rw", "disable_roll_forward"), ("fsync_mode=nobarrier", "rw")] {
        let seen = (0..4).filter(|&seed| run_held(seed, options, after_a_cut).is_err()).count();
        assert!(seen > 0, "{options}, then {after_a_cut}");
    }
}
