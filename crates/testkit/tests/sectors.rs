//! Bad sectors under workloads on the engine.
//!
//! Everything is a command of its own:
//! `MEDFS_SEED=7 cargo test --release -p medfs-testkit --test sectors -- --ignored --nocapture every`

use medfs_testkit::bad_sectors::{Base, Scene, Trouble, scenes};
use medfs_testkit::fuzz::{sample_seed, variable};
use parking_lot::Mutex;
use rand::SeedableRng;
use rand::seq::{IndexedRandom, SliceRandom};
use rand_chacha::ChaCha12Rng;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What runs did and found.
#[derive(Debug, Default)]
struct Report {
    scenes: usize,
    runs: usize,
    met: usize,
    failed: usize,
    told: usize,
    failures: Vec<String>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { scenes, runs, met, failed, told, failures } = self;
        write!(
            f,
            "{scenes} scenes, {runs} runs: the fault was met in {met}, {failed} operations failed as they may, sync or close told \
             of it in {told}; {} failures",
            failures.len()
        )?;
        failures.iter().try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

/// Strikes blocks of a scene: all, or some.
fn strike_some(seed: u64, number: usize, scene: &Scene, most: Option<usize>, report: &Mutex<Report>) {
    let base = match Base::new(scene) {
        Ok(base) => base,
        Err(e) => return report.lock().failures.push(format!("scene {number}, {scene}: {e}")),
    };
    let reads = base.reads.iter().flat_map(|&block| Trouble::READS.map(|trouble| (block, trouble)));
    let writes = base.writes.iter().flat_map(|&block| Trouble::WRITES.map(|trouble| (block, trouble)));
    let (mut reads, mut writes): (Vec<_>, Vec<_>) = (reads.collect(), writes.collect());
    let mut random = ChaCha12Rng::seed_from_u64(seed ^ number as u64);
    if let Some(most) = most {
        // Two of three in what is read, as that is where most differs.
        reads.shuffle(&mut random);
        reads.truncate(most - most / 3);
        writes.shuffle(&mut random);
        writes.truncate(most / 3);
    }
    report.lock().scenes += 1;
    let mut failed = 0;
    for (block, trouble) in reads.into_iter().chain(writes) {
        let went = base.strike(block, trouble);
        let bad = went.is_err();
        let mut report = report.lock();
        report.runs += 1;
        match went {
            Ok(went) => {
                report.met += usize::from(went.met);
                report.failed += went.failed;
                report.told += usize::from(went.told);
            }
            Err(e) => report.failures.push(format!(
                "MEDFS_SEED={seed} MEDFS_SCENE={number} MEDFS_BLOCK={block} {trouble:?}, {scene}: {e}"
            )),
        }
        // Of one scene this tells enough.
        failed += usize::from(bad);
        if failed >= 10 {
            return;
        }
    }
}

fn must_be_clean(report: Report) {
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
}

/// A fair sample: some blocks of some scenes.
#[test]
fn some_blocks() {
    let seed = sample_seed();
    let all: Vec<(usize, Scene)> = scenes(seed).into_iter().enumerate().collect();
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let some: Vec<&(usize, Scene)> = all.choose_multiple(&mut random, 8).collect();
    let report = Mutex::default();
    let started = Instant::now();
    for (number, scene) in some {
        if started.elapsed() < Duration::from_secs(12) {
            strike_some(seed, *number, scene, Some(24), &report);
        }
    }
    must_be_clean(report.into_inner());
}

/// Every block of every scene; `MEDFS_SCENE` takes one of them, `MEDFS_BLOCK` one block of it, `MEDFS_BLOCKS`
/// that many of each.
#[test]
#[ignore = "takes minutes"]
fn every_block() {
    let seed = sample_seed();
    let scenes = scenes(seed);
    let most = variable("MEDFS_BLOCKS").map(|most| most as usize);
    let report = Mutex::new(Report::default());
    let next = AtomicUsize::new(0);
    let one = variable("MEDFS_SCENE").map(|number| number as usize);
    if let (Some(number), Some(block)) = (one, variable("MEDFS_BLOCK")) {
        let base = Base::new(&scenes[number]).expect("the scene runs");
        for trouble in Trouble::READS.into_iter().chain(Trouble::WRITES) {
            println!("{trouble:?}: {:?}", base.strike(block, trouble));
        }
        return;
    }
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let Some(scene) = scenes.get(number) else { break };
                    if one.is_none_or(|one| one == number) {
                        let before = report.lock().runs;
                        strike_some(seed, number, scene, most, &report);
                        println!("scene {number}: {} runs", report.lock().runs - before);
                    }
                }
            });
        }
    });
    must_be_clean(report.into_inner());
}
