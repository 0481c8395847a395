//! Interleavings of the engine's threads: small concurrent programs under the scheduler of `medfs_sync`, and
//! what they leave.
//!
//! A seed decides a [`Case`]: the volume and its options, the program of each thread ([`program`]), how the
//! scheduler chooses, and when power is cut. A run checks every read ([`history`]), all content at the end,
//! and after a power cut at the end and one at a random call of the device ([`device`]) that the volume
//! opens, shows what was made durable, and satisfies the checker. Deadlocks, locks out of order and panics
//! are failures too. A failure is run again with fewer and fewer switches, until each of those left is
//! needed.

pub mod device;
pub mod history;
pub mod player;
pub mod program;

use crate::combine::Combination;
use crate::images::{FEATURE_SETS, FsckMedfs, formatted, options_for};
use crate::subject::Check;
use crate::volume::test_clock;
use device::ScheduledDevice;
use history::History;
use medfs::{Files, ManualClock, MountOptions, Volume};
use medfs_device::{BlockDevice, MemDevice};
use medfs_sync::schedule::{Outcome, Policy, Switch, run};
use player::{Player, warm_up};
use program::{Programs, programs};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Size of the volumes, in MiB.
const MEBIBYTES: u64 = 64;
/// Runs that shrinking takes at most.
const MOST_RUNS: usize = 100;

/// All that a seed decides.
#[derive(Debug, Clone)]
pub struct Case {
    /// The seed.
    pub seed: u64,
    /// The volume, as [`formatted`] names it.
    pub features: &'static str,
    /// Mount options.
    pub options: String,
    /// Whether the volume has so little room that it is cleaned.
    pub crowded: bool,
    /// What each thread does.
    pub programs: Programs,
    /// How the scheduler chooses.
    pub policy: Policy,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}: volume \"{}\" ({})", self.seed, self.features, self.options)?;
        for (thread, program) in self.programs.iter().enumerate() {
            writeln!(f, "  thread {thread}:")?;
            program.iter().try_for_each(|op| writeln!(f, "    {op:?}"))?;
        }
        Ok(())
    }
}

impl Case {
    /// The one of a seed.
    pub fn of_seed(seed: u64) -> Case {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let combination = Combination::of_seed(random.random_range(0..1 << 32));
        let (features, options) = if random.random_range(0..8) == 0 {
            let in_place = ["off", "fsync", "force"][random.random_range(0..3)];
            (FEATURE_SETS[1], format!("{},in_place={in_place},cache=1M", options_for(FEATURE_SETS[1])))
        } else {
            let mut options =
                combination.options_of(random.random_range(0..1 << 32)).replace("cache=64M", "cache=1M");
            if random.random() {
                // As the size of the volume has it.
                options =
                    options.split(',').filter(|o| !o.starts_with("in_place=")).collect::<Vec<_>>().join(",");
            }
            (combination.features(), options)
        };
        let crowded = random.random_range(0..6) == 0;
        let programs = programs(&mut random);
        let policy = if random.random() {
            Policy::Walk { seed: random.random(), one_in: 1 << random.random_range(1..8) }
        } else {
            let length = 1 << random.random_range(6..13);
            Policy::Pct { seed: random.random(), depth: random.random_range(1..=3), length }
        };
        Case { seed, features, options, crowded, programs, policy }
    }

    /// The volume that the run begins with; made once a process for each kind.
    fn image(&self) -> Arc<MemDevice> {
        type Made = BTreeMap<(&'static str, bool), Arc<MemDevice>>;
        static MADE: Mutex<Made> = Mutex::new(BTreeMap::new());
        let mut made = MADE.lock().unwrap_or_else(|held| held.into_inner());
        made.entry((self.features, self.crowded)).or_insert_with(|| Arc::new(self.make_image())).clone()
    }

    fn make_image(&self) -> MemDevice {
        let base = formatted(MEBIBYTES, self.features);
        let device = Arc::new(base.snapshot());
        let clock = test_clock();
        let options = format!("{},compact_files=all", options_for(self.features));
        let volume = open(device.clone(), &options, clock.clone()).expect("the volume opens");
        Player::found(&volume).expect("there is room for the cast");
        if self.crowded {
            crowd(&volume);
        }
        let player = Player::new(volume, History::default(), clock).expect("the cast is there");
        warm_up(&player, &mut Xoshiro256PlusPlus::seed_from_u64(1));
        player.volume.close().expect("the volume closes");
        drop(player);
        device.snapshot()
    }

    /// Runs it once. The failure is that of the outcome, or what was found afterwards.
    pub fn run(&self, policy: Policy) -> Outcome {
        self.run_counted(policy, &Met::default())
    }

    /// The same, and adds what happened.
    pub fn run_counted(&self, policy: Policy, met: &Met) -> Outcome {
        let image = self.image();
        let history = History::default();
        let device = Arc::new(ScheduledDevice::new(&image, history.moments.clone()));
        let clock = test_clock();
        let volume = open(device.clone(), &self.options, clock.clone()).expect("the volume opens");
        let player = Player::new(volume, history, clock).expect("the cast is there");
        let begun = player.history.now();
        let threads = self.programs.iter().enumerate().map(|(thread, program)| {
            let player = &player;
            let program: medfs_sync::schedule::Program<'_> =
                Box::new(move || program.iter().for_each(|op| player.play(op)));
            (format!("thread {thread}"), program)
        });
        let mut outcome = run(policy, threads.collect());
        met.add(&player.volume.stats());
        if outcome.failure.is_none() {
            let judged = catch_unwind(AssertUnwindSafe(|| self.judge(&player, &device, begun)));
            outcome.failure = judged.unwrap_or_else(|_| Err("a panic while it was judged".into())).err();
        }
        outcome
    }

    /// What the volume shows at the end, and after power cuts.
    fn judge(&self, player: &Player, device: &ScheduledDevice, begun: u64) -> Result<(), String> {
        if let Some(failure) = player.volume.stats().failure {
            return Err(format!("the volume is read-only: {failure}"));
        }
        let end = player.history.now();
        let mut random = Xoshiro256PlusPlus::seed_from_u64(self.seed);
        let states = [(end, device.cut(end, || true)), device.random_cut(&mut random, begun)];
        for (at, state) in states {
            let state = Arc::new(state);
            let when = format!("power cut at {at} of {begun}..{end}");
            self.judge_state(player, at, &state).map_err(|e| format!("{when}: {e}"))?;
            FsckMedfs.check(state).map_err(|e| format!("{when}: the checker: {e}"))?;
        }
        Ok(())
    }

    fn judge_state(&self, player: &Player, at: u64, state: &Arc<MemDevice>) -> Result<(), String> {
        let clock = test_clock();
        let volume =
            open(state.clone(), &self.options, clock).map_err(|e| format!("it does not open: {e}"))?;
        let mut find = |name: &str| match volume.lookup(volume.root(), name.as_bytes()) {
            Ok(attr) => {
                volume.release(attr.ino, 1);
                Ok(Some(attr.ino))
            }
            Err(e) if e.errno() == 2 => Ok(None),
            Err(e) => Err(format!("{name}: {e}")),
        };
        let mut read = |ino| {
            let size = volume.getattr(ino).map_err(|e| e.to_string())?.size;
            let mut content = vec![0; size as usize];
            let read = volume.read(ino, 0, &mut content).map_err(|e| e.to_string())?;
            content.truncate(read);
            Ok(content)
        };
        player.history.judge_cut(at, &mut find, &mut read)?;
        volume.close().map_err(|e| format!("it does not close: {e}"))
    }

    /// Runs it; `None` where all is well.
    pub fn failure(&self) -> Option<Failure> {
        let outcome = self.run(self.policy.clone());
        let message = outcome.failure.clone()?;
        let again = self.run(Policy::Replay(outcome.switches.clone()));
        let replays = again.failure.as_ref() == Some(&message);
        let switches = if replays { self.shrink(outcome.switches) } else { outcome.switches };
        Some(Failure { case: self.clone(), message, replays, switches })
    }

    /// Leaves out switches as long as the run fails.
    fn shrink(&self, mut switches: Vec<Switch>) -> Vec<Switch> {
        let mut runs = 0;
        let mut part = switches.len().div_ceil(2);
        while part > 0 && runs < MOST_RUNS {
            let mut at = 0;
            let before = switches.len();
            while at < switches.len() && runs < MOST_RUNS {
                let mut fewer = switches.clone();
                fewer.drain(at..(at + part).min(fewer.len()));
                runs += 1;
                if self.run(Policy::Replay(fewer.clone())).failure.is_some() {
                    switches = fewer
                } else {
                    at += part
                }
            }
            if part == 1 && switches.len() == before {
                break;
            }
            part = (part / 2).max(1);
        }
        switches
    }
}

/// What happened in runs, so that one that meets nothing is noticed.
#[derive(Debug, Default)]
pub struct Met {
    cleaned: AtomicU64,
    in_place: AtomicU64,
    deltas: AtomicU64,
    shared: AtomicU64,
    checkpoints: AtomicU64,
    restored: AtomicU64,
    clusters: AtomicU64,
}

impl Met {
    fn add(&self, stats: &medfs::stats::Stats) {
        let add = |counter: &AtomicU64, n: u64| {
            counter.fetch_add(n, Ordering::Relaxed);
        };
        add(&self.cleaned, stats.gc_sections);
        add(&self.in_place, stats.in_place_blocks);
        add(&self.deltas, stats.deltas.made);
        add(&self.shared, stats.shared_nodes);
        add(&self.checkpoints, stats.checkpoints);
        add(&self.restored, stats.restored.pages);
        add(&self.clusters, stats.compress.clusters);
    }
}

/// A case that failed.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Which.
    pub case: Case,
    /// How.
    pub message: String,
    /// Whether the same switches failed in the same way again.
    pub replays: bool,
    /// The switches that it needs.
    pub switches: Vec<Switch>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}  {}", self.case, self.message)?;
        if !self.replays {
            writeln!(f, "  (the same switches do not fail in the same way)")?;
        }
        for Switch { thread, step, to, at } in &self.switches {
            writeln!(f, "  at its point {step} ({at}) thread {thread} gives way to thread {to}")?;
        }
        Ok(())
    }
}

fn open(device: Arc<dyn BlockDevice>, options: &str, clock: Arc<ManualClock>) -> medfs::Result<Volume> {
    let mut parsed = MountOptions::default();
    parsed.parse(options)?;
    Volume::open(device, parsed, clock)
}

/// Leaves little room, and that in holes.
fn crowd(volume: &Volume) {
    let new =
        medfs::NewFile { kind: medfs::FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let make = |name: &[u8]| volume.create(volume.root(), name, &new).expect("made").ino;
    let (stays, goes) = (make(b"stays"), make(b"goes"));
    let pages = volume.space().free * 9 / 20;
    for index in 0..pages {
        for ino in [stays, goes] {
            volume.write(ino, index * 4096, &[index as u8 ^ 0x5a; 4096]).expect("there is room");
        }
        if index % 256 == 0 {
            volume.sync().expect("sync");
        }
    }
    volume.sync().expect("sync");
    let mode = medfs::FallocateMode::PUNCH_HOLE | medfs::FallocateMode::KEEP_SIZE;
    volume.fallocate(goes, mode, 0, pages * 4096).expect("punched");
    volume.sync().expect("sync");
}
