//! Crash states of bounded workloads on the engine.
//!
//! The full run is a command of its own:
//! `MEDFS_SEED=7 MEDFS_STATES=100000 cargo test --release -p medfs-testkit --test crash -- --ignored --nocapture`

use medfs::{MountOptions, XattrMode};
use medfs_device::BlockDevice;
use medfs_device::crash::CrashPlan;
use medfs_testkit::combine::{Combination, until_enough};
use medfs_testkit::crash_states::{
    Report, Setup, on_chains, on_copies, on_databases, on_deltas, on_replacements, on_rewrites, preparation,
    run, seq1, seq2,
};
use medfs_testkit::fuzz::variable;
use medfs_testkit::images::{
    COMPRESSED, DELTAS, Exported, FEATURE_SETS, FsckF2fs, FsckMedfs, VOLUMES, formatted, options_for,
};
use medfs_testkit::nvram::{mounter_with_nvram, torn, with_room};
use medfs_testkit::ops::{DURABILITY, Op, Target, place};
use medfs_testkit::oracle::Contract;
use medfs_testkit::planted::{Disorder, Unordered};
use medfs_testkit::subject::{Check, Counts, Mounter};
use medfs_testkit::volume::{mounter, mounter_in_time, mounter_over, test_clock};
use medfs_testkit::workloads::{
    self, mixed, on_apps, on_both_ways, on_names, on_rewritten_pages, on_small_updates,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// With blocks overwritten in place where that is allowed: those that a page is made from are not.
const ON_DATABASES: [&str; 2] = ["compact_files=all", "compact_files=all,in_place=force"];

fn mounter_with(options: &str) -> Mounter {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options are right");
    mounter(parsed, test_clock())
}

fn setup(features: &str) -> Setup {
    let mut options = MountOptions::default();
    options.parse(options_for(features)).expect("options of the volume");
    let mounter = mounter(options, test_clock());
    let raw_checks: Vec<Arc<dyn Check>> = vec![Arc::new(FsckMedfs)];
    let checks: Vec<Arc<dyn Check>> = vec![Arc::new(FsckMedfs), Arc::new(FsckF2fs), Arc::new(Exported)];
    Setup { raw_checks, checks, ..Setup::new(formatted(64, features), mounter) }
}

fn must_be_clean(what: &str, report: &Report) {
    println!("{what}: {report}");
    assert!(report.failures.is_empty(), "{what}: {report}");
}

#[test]
fn some_states() {
    for features in VOLUMES {
        let some = Setup { max_states: 250, check_every: 50, nested_every: 100, ..setup(features) };
        let workloads: Vec<_> = seq1().into_iter().step_by(7).chain(seq2(1).into_iter().take(20)).collect();
        must_be_clean(&format!("features [{features}]"), &run(&some, &workloads));
    }
}

#[test]
fn some_states_of_deltas() {
    let some = Setup { max_states: 400, check_every: 50, nested_every: 100, ..setup(DELTAS) };
    must_be_clean("deltas", &run(&some, &on_deltas(3, 60)));
}

/// The workloads of deltas change parts of files of several clusters as well.
#[test]
fn some_states_of_clusters() {
    for features in COMPRESSED {
        let some = Setup { max_states: 350, check_every: 50, nested_every: 100, ..setup(features) };
        must_be_clean(features, &run(&some, &on_deltas(4, 40)));
    }
}

/// The volume is committed as a whole, later than its fsyncs return,
const PUT_OFF: &str = "durability=adaptive,durability_fsyncs=2";
/// of which so many may be lost.
const IN_ORDER: Contract = Contract::Order { fsyncs: 2 };

/// The same, where blocks would be overwritten in place otherwise.
fn adaptive(features: &str) -> Setup {
    let mounter = mounter_with(&format!("{},{PUT_OFF},in_place=force", options_for(features)));
    Setup { mounter, contract: IN_ORDER, ..setup(features) }
}

/// After a crash the tree is that after one operation, with all before it and none after it.
#[test]
fn some_states_of_adaptive_durability() {
    for features in VOLUMES {
        let some = Setup { max_states: 150, check_every: 50, nested_every: 100, ..adaptive(features) };
        let workloads: Vec<_> = seq1().into_iter().step_by(31).chain(seq2(2).into_iter().take(20)).collect();
        must_be_clean(&format!("adaptive, features [{features}]"), &run(&some, &workloads));
    }
    let some = Setup { max_states: 200, check_every: 50, nested_every: 100, ..adaptive(DELTAS) };
    must_be_clean("adaptive, deltas", &run(&some, &on_deltas(7, 60)));
    must_be_clean("adaptive, databases", &run(&some, &on_databases(7, 60)));
    must_be_clean("adaptive, replaced files", &run(&some, &on_replacements(7, 60)));
}

/// A folder whose files have their fsyncs at once, beside others.
fn with_posix_neighbours(adaptive: Setup) -> Setup {
    let mut preparation = preparation();
    let folder = Target::Path(place(0, 6));
    // In front of the files below it.
    preparation.insert(1, Op::SetXattr { file: folder, name: DURABILITY, len: 5, mode: XattrMode::Set });
    Setup { preparation, ..adaptive }
}

/// An fsync in such a folder makes all before it durable, so that the order holds across it.
#[test]
fn some_states_of_posix_neighbours() {
    for features in VOLUMES {
        let some = with_posix_neighbours(adaptive(features));
        let some = Setup { max_states: 150, check_every: 50, nested_every: 100, ..some };
        let workloads: Vec<_> = seq1().into_iter().step_by(23).chain(seq2(5).into_iter().take(20)).collect();
        must_be_clean(&format!("posix neighbours, features [{features}]"), &run(&some, &workloads));
    }
    let some = with_posix_neighbours(adaptive(DELTAS));
    let some = Setup { max_states: 200, check_every: 50, nested_every: 100, ..some };
    must_be_clean("posix neighbours, small updates", &run(&some, &on_small_updates(8, 60)));
    must_be_clean("posix neighbours, names", &run(&some, &on_names(8, 60)));
}

/// Each folder of the root is an app, of which so many fsyncs may be lost.
const BY_APP: &str = "durability=adaptive,durability_fsyncs=2,apps=top";

/// After a crash each app is as it was after one of its operations, whether it was committed alone or with others.
#[test]
fn some_states_of_apps() {
    let mut counts = Counts::default();
    for (features, more) in [(DELTAS, "rw"), (DELTAS, "seal=off,delta=off"), (FEATURE_SETS[1], "rw")] {
        let some = by_app(features, more);
        let some = Setup { max_states: 500, one_in: 8, check_every: 50, nested_every: 100, ..some };
        let report = run(&some, &on_apps(9, 60));
        counts += report.interrupted;
        must_be_clean(&format!("apps, features [{features}], {more}"), &report);
    }
    assert!(counts.shared > 0, "no app with several files was committed alone: {:?}", counts.named());
}

fn by_app(features: &str, more: &str) -> Setup {
    let mounter = mounter_with(&format!("{},{BY_APP},in_place=force,{more}", options_for(features)));
    let contract = Contract::Apps { fsyncs: 2 };
    Setup { mounter, contract, preparation: workloads::apps(), ..setup(features) }
}

/// Each seed runs its workloads until there are states enough.
#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_apps() {
    until_enough(|seed| {
        let more = ["rw", "seal=off", "delta=off", "compact_files=all", "cache=1M"][seed as usize % 5];
        let mut setup = by_app(DELTAS, more);
        setup.plan = CrashPlan { seed, ..setup.plan };
        (setup.raw_every, setup.check_every, setup.nested_every) = (50, 50, 100);
        let report = run(&setup, &on_apps(seed, 4));
        must_be_clean(&format!("seed {seed}, apps, {more}"), &report);
        (None, report)
    });
}

/// fsyncs of little go to an NVRAM beside the volume.
fn with_nvram(options: &str) -> Setup {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options are right");
    let image = Arc::new(with_room(&formatted(64, DELTAS)));
    let mounter = mounter_with_nvram(parsed, test_clock());
    let mut setup = Setup { image: image.clone(), mounter, raw_checks: Vec::new(), ..setup(DELTAS) };
    setup.plan.torn = setup.plan.torn.map(|volume| torn(image.block_count(), volume));
    setup
}

/// Little and large changes by turns, blocks overwritten in place where they may be, and pages that leave memory early.
/// Where a tenth of the memory is the threshold, records are compacted soon.
const ON_NVRAM: [&str; 6] = [
    "in_place=force",
    "delta=off,in_place=force,nvram_threshold=10",
    "cache=1M,compact_files=all,nvram_threshold=10",
    "nvram_mode=ordered,in_place=force,nvram_threshold=10",
    "nvram_mode=ordered,delta=off",
    "nvram_admit=population,in_place=force",
];

#[test]
fn some_states_of_nvram() {
    let (mut counts, mut by_turns, mut compacted) = (Counts::default(), 0, 0);
    for options in ON_NVRAM {
        let some =
            Setup { max_states: 20, one_in: 12, check_every: 40, nested_every: 100, ..with_nvram(options) };
        let short: Vec<_> = seq1().into_iter().step_by(121).chain(seq2(3).into_iter().take(3)).collect();
        for (what, workloads) in [
            ("short", short),
            ("little updates", on_small_updates(5, 40)),
            ("rewritten pages", on_rewritten_pages(5, 20)),
            ("databases", on_databases(5, 20)),
            ("replaced files", on_replacements(5, 12)),
            ("files written anew", on_rewrites(5, 12)),
            ("both ways", on_both_ways(5, 24)),
        ] {
            let max_states = if what == "both ways" { 120 } else { some.max_states };
            let report = run(&Setup { max_states, ..some.clone() }, &workloads);
            counts += report.counts;
            must_be_clean(&format!("NVRAM, {options}, {what}"), &report);
            println!("{} states by turns, {} compacted", report.by_turns, report.compacted);
            (by_turns, compacted) = (by_turns + report.by_turns, compacted + report.compacted);
        }
    }
    let Counts { journaled, from_parts, revoked, rested, placed, .. } = counts;
    assert!([journaled, from_parts, revoked, rested, placed].iter().all(|&n| n > 0), "{:?}", counts.named());
    assert!(by_turns > 30 && compacted > 50, "{by_turns} states by turns, {compacted} compacted");
}

/// Little updates under each of these options, seed by seed.
#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_nvram() {
    until_enough(|seed| {
        let options = ON_NVRAM[seed as usize % ON_NVRAM.len()];
        let mut setup = with_nvram(options);
        setup.plan = CrashPlan { seed, ..setup.plan };
        (setup.check_every, setup.nested_every) = (50, 30);
        let mut workloads = on_small_updates(seed, 8);
        workloads.extend(on_rewritten_pages(seed, 4));
        workloads
            .extend(mixed(seed, 2).into_iter().chain(on_databases(seed, 6)).chain(on_replacements(seed, 2)));
        workloads.extend(on_rewrites(seed, 4));
        workloads.extend(on_both_ways(seed, 4));
        let report = run(&setup, &workloads);
        must_be_clean(&format!("seed {seed}, NVRAM, {options}"), &report);
        println!("{} states by turns, {} compacted", report.by_turns, report.compacted);
        (None, report)
    });
}

/// Pages compressed alone.
fn compressing_pages() -> Setup {
    let mut options = MountOptions::default();
    options.parse("compress=fpc,compact_files=all").expect("options are right");
    Setup { mounter: mounter(options, test_clock()), ..setup(DELTAS) }
}

#[test]
fn some_states_of_compressed_pages() {
    let some = Setup { max_states: 400, check_every: 50, nested_every: 100, ..compressing_pages() };
    must_be_clean("compressed pages", &run(&some, &on_deltas(6, 60)));
}

#[test]
fn some_states_of_databases() {
    for options in ON_DATABASES {
        let mounter = mounter_with(options);
        let some = Setup { mounter, max_states: 200, check_every: 50, nested_every: 100, ..setup(DELTAS) };
        must_be_clean(&format!("databases, {options}"), &run(&some, &on_databases(4, 60)));
    }
}

#[test]
fn some_states_of_replaced_files() {
    let some = Setup { max_states: 250, check_every: 50, nested_every: 100, ..setup(DELTAS) };
    must_be_clean("replaced files", &run(&some, &on_replacements(4, 60)));
}

#[test]
fn some_states_of_copied_pages() {
    let some = Setup { max_states: 250, check_every: 50, nested_every: 100, ..setup(DELTAS) };
    let report = run(&some, &on_copies(5, 60));
    println!("interrupted: {:?}", report.interrupted.named());
    assert!(report.interrupted.similar > 0, "{:?}", report.interrupted);
    must_be_clean("copied pages", &report);
}

#[test]
fn some_states_of_files_that_are_cut_off_and_written_anew() {
    for options in ["rw", "delta=inline,in_place=force"] {
        let mounter = mounter_with(options);
        let some = Setup { max_states: 400, check_every: 50, nested_every: 100, mounter, ..setup(DELTAS) };
        let report = run(&some, &on_rewrites(5, 60));
        assert!(report.interrupted.taken_back > 0, "{:?}", report.interrupted);
        must_be_clean(&format!("files written anew, {options}"), &report);
    }
}

/// Chains of pages under the combination of options of a seed: also with fsyncs put off, as a checkpoint then takes
/// along what is overwritten.
fn chained(seed: u64, count: usize, put_off: bool) -> (Combination, Report) {
    // Without reserves, which overwrite in place.
    let combination = Combination::of_seed(seed % Combination::COUNT as u64);
    let (more, contract) = if put_off { (PUT_OFF, IN_ORDER) } else { ("rw", Contract::Posix) };
    let options =
        format!("{},similar_deltas=on,{more}", combination.options_of(seed % Combination::COUNT as u64));
    let image = combination.image_of(seed % Combination::COUNT as u64);
    let mut setup =
        Setup { image, mounter: mounter_with(&options), contract, ..setup(combination.features()) };
    setup.plan = CrashPlan { seed, exhaustive: 16, samples: 8, ..setup.plan };
    (setup.raw_every, setup.check_every, setup.nested_every) = (50, 50, 200);
    setup.one_in = 16;
    let report = run(&setup, &on_chains(seed, count));
    must_be_clean(&format!("seed {seed}, chains, {combination}, {more}"), &report);
    (combination, report)
}

#[test]
fn some_states_of_chains() {
    let mut counts = Counts::default();
    for (seed, put_off) in [(10, false), (10, true), (31, true)] {
        counts += chained(seed, 20, put_off).1.interrupted;
    }
    assert!(counts.similar > 0 && counts.released > 0, "{counts:?}");
}

/// Each seed runs the workloads of its combination, both ways, until there are states enough.
#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_chains() {
    until_enough(|seed| {
        if !Combination::of_seed(seed % Combination::COUNT as u64).finds_likeness() {
            return (None, Report::default());
        }
        let (_, mut report) = chained(seed, 20, true);
        let (combination, more) = chained(seed, 20, false);
        report += more;
        (Some(combination), report)
    });
}

/// What deltas, compression and cleaning do that a crash must have interrupted.
const TO_INTERRUPT: [&str; 9] = [
    "evicted",
    "replaced",
    "outgrown",
    "restored",
    "cleaned",
    "compact_pages",
    "repeated",
    "shared",
    "clusters",
];

/// Times that pass between two looks at the clock, in milliseconds: the ticks in which times of files are
/// kept take ten.
const STEPS: [u64; 3] = [10, 1, 4];

/// States of workloads of every kind under the combination of options and the passing of time that the seed decides: of
/// `plain` workloads, and of `crowded` ones on a volume that has to be cleaned.
fn combined(seed: u64, plain: usize, crowded: usize) -> (Combination, Report) {
    combined_with(seed, plain, crowded, "", Contract::Posix)
}

/// The same with fsyncs put off.
fn combined_adaptive(seed: u64, plain: usize, crowded: usize) -> (Combination, Report) {
    combined_with(seed, plain, crowded, PUT_OFF, IN_ORDER)
}

fn combined_with(
    seed: u64,
    plain: usize,
    crowded: usize,
    more: &str,
    contract: Contract,
) -> (Combination, Report) {
    let combination = Combination::of_seed(seed);
    let mut options = MountOptions::default();
    options.parse(&format!("{},{more}", combination.options_of(seed))).expect("options are right");
    let step = Duration::from_millis(STEPS[seed as usize % STEPS.len()]);
    let image = combination.image_of(seed);
    let mut setup =
        Setup { image, mounter: mounter_in_time(options, step), contract, ..setup(combination.features()) };
    setup.plan = CrashPlan { seed, exhaustive: 16, samples: 8, ..setup.plan };
    (setup.raw_every, setup.check_every, setup.nested_every) = (50, 50, 300);
    setup.one_in = 4;
    let mut report = run(&setup, &mixed(seed, plain));
    setup.preparation = workloads::crowded();
    setup.image = formatted(64, combination.features());
    // Cleaning writes much at a time.
    setup.one_in = 24;
    report += run(&setup, &mixed(!seed, crowded));
    must_be_clean(&format!("seed {seed}, {combination}"), &report);
    (combination, report)
}

#[test]
fn some_states_of_some_combinations() {
    let mut counts = Counts::default();
    for seed in [5, 140] {
        counts += combined(seed, 3, 1).1.interrupted;
    }
    println!("interrupted: {:?}", counts.named());
    assert!(counts.cleaned > 0 && counts.made > 0, "{counts:?}");
}

/// Committed as a whole, with cleaning and on volumes that are nearly full.
#[test]
fn some_states_of_some_combinations_of_adaptive_durability() {
    for seed in [5, 140, 141] {
        println!("{}", combined_adaptive(seed, 3, 1).0);
    }
}

/// Each seed runs the workloads of its combination until there are states enough; those with reserves are left out.
#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_adaptive_combinations() {
    until_enough(|seed| {
        let seed = seed % (Combination::COUNT as u64);
        let (combination, report) = combined_adaptive(seed, 8, 2);
        (Some(combination), report)
    });
}

/// Where files have sections of their own, with deltas and without.
#[test]
fn some_states_of_reserves() {
    for seed in [272 + 6, 272 + 11] {
        println!("{}", combined(seed, 3, 0).0);
    }
}

/// Each seed runs the workloads of its combination until there are states enough.
#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_combinations() {
    let total = until_enough(|seed| {
        let (combination, report) = combined(seed, 8, 2);
        (Some(combination), report)
    });
    // Fewer may not meet a combination in which such a thing can happen.
    if total.states >= 20_000 {
        let never = |name: &&str| total.interrupted.named().contains(&(name, 0));
        let missing: Vec<_> = TO_INTERRUPT.iter().filter(|name| never(name)).collect();
        assert!(missing.is_empty(), "no crash interrupted: {missing:?}");
    }
}

/// What an engine in the wrong order would do must be caught.
#[test]
fn disorder_is_caught() {
    for disorder in [Disorder::NoFlush, Disorder::NodesBeforeData] {
        let between = move |device| -> Arc<dyn medfs_device::BlockDevice> {
            Arc::new(Unordered::new(device, disorder))
        };
        let mounter = mounter_over(MountOptions::default(), test_clock(), between);
        let spoiled =
            Setup { mounter, check_every: 0, nested_every: 0, max_failures: 3, ..setup(FEATURE_SETS[1]) };
        let report = run(&spoiled, &seq1());
        println!("{disorder:?}: {report}");
        assert!(!report.failures.is_empty(), "{disorder:?} was not noticed in {report}");
    }
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_deltas() {
    let seed = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let states = variable("MEDFS_STATES").unwrap_or(100_000) as usize;
    let mut full = setup(DELTAS);
    (full.max_states, full.plan.seed) = (states, seed);
    let check_every = variable("MEDFS_CHECK_EVERY").unwrap_or(200) as usize;
    (full.raw_every, full.check_every, full.nested_every) = (50, check_every, 100);
    must_be_clean(&format!("seed {seed}, deltas"), &run(&full, &on_deltas(seed, states / 20)));
    must_be_clean(&format!("seed {seed}, replaced files"), &run(&full, &on_replacements(seed, states / 20)));
    for options in ON_DATABASES {
        full.mounter = mounter_with(options);
        must_be_clean(
            &format!("seed {seed}, databases, {options}"),
            &run(&full, &on_databases(seed, states / 20)),
        );
    }
}

/// Under every combination of options, in turn, but with bases by likeness in each.
#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_copied_pages() {
    until_enough(|seed| {
        let combination = Combination::of_seed(seed);
        let mut options = MountOptions::default();
        options
            .parse(&format!("{},similar_deltas=on", combination.options_of(seed)))
            .expect("options are right");
        let image = combination.image_of(seed);
        let mut setup =
            Setup { image, mounter: mounter(options, test_clock()), ..setup(combination.features()) };
        setup.plan = CrashPlan { seed, ..setup.plan };
        (setup.raw_every, setup.check_every, setup.nested_every) = (50, 50, 100);
        let report = run(&setup, &on_copies(seed, 1));
        must_be_clean(&format!("seed {seed}, copied pages, {combination}"), &report);
        (Some(combination), report)
    });
}

/// Under every combination of options, in turn; some overwrite in place, of every other seed fsyncs are put off.
#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_files_written_anew() {
    until_enough(|seed| {
        let combination = Combination::of_seed(seed);
        let (more, contract) = match seed % 4 {
            0 => ("rw", Contract::Posix),
            2 => ("in_place=force", Contract::Posix),
            _ => (PUT_OFF, IN_ORDER),
        };
        let options = format!("{},{more}", combination.options_of(seed));
        let image = combination.image_of(seed);
        let mut setup =
            Setup { image, mounter: mounter_with(&options), contract, ..setup(combination.features()) };
        setup.plan = CrashPlan { seed, ..setup.plan };
        (setup.raw_every, setup.check_every, setup.nested_every) = (50, 50, 100);
        let report = run(&setup, &on_rewrites(seed, 1));
        must_be_clean(&format!("seed {seed}, files written anew, {combination}, {more}"), &report);
        (Some(combination), report)
    });
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_compressed_pages() {
    let seed = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let states = variable("MEDFS_STATES").unwrap_or(100_000) as usize;
    let mut full = compressing_pages();
    (full.max_states, full.plan.seed) = (states, seed);
    (full.raw_every, full.check_every, full.nested_every) = (50, 200, 100);
    must_be_clean(&format!("seed {seed}, compressed pages"), &run(&full, &on_deltas(seed, states / 20)));
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_clusters() {
    let seed = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let states = variable("MEDFS_STATES").unwrap_or(100_000) as usize;
    for features in COMPRESSED {
        let mut full = setup(features);
        (full.max_states, full.plan.seed) = (states, seed);
        (full.raw_every, full.check_every, full.nested_every) = (50, 200, 100);
        must_be_clean(&format!("seed {seed}, {features}"), &run(&full, &on_deltas(seed, states / 20)));
    }
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states() {
    let seed = variable("MEDFS_SEED").unwrap_or(std::process::id().into());
    let states = variable("MEDFS_STATES").unwrap_or(100_000) as usize;
    for features in VOLUMES {
        let mut full = setup(features);
        (full.max_states, full.plan.seed) = (states, seed);
        (full.raw_every, full.check_every, full.nested_every) = (50, 200, 100);
        println!("seed {seed}, features [{features}]");
        let start = Instant::now();
        let workloads: Vec<_> = seq1().into_iter().chain(seq2(seed)).collect();
        must_be_clean(&format!("seed {seed}, features [{features}]"), &run(&full, &workloads));
        println!("in {:.1?}", start.elapsed());
    }
}
