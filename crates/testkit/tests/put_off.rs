//! fsyncs that are put off, counted while other threads commit: schedules of threads, each with a power cut at several
//! calls of the device. `MEDFS_SEED` and `MEDFS_SCHEDULES` say which and how many.
#![cfg(debug_assertions)]

use medfs::{FileKind, Files, Ino, MountOptions, NewFile, Volume};
use medfs_device::MemDevice;
use medfs_sync::schedule::{Policy, Program, run};
use medfs_testkit::images::{DELTAS, formatted};
use medfs_testkit::schedules::device::ScheduledDevice;
use medfs_testkit::schedules::history::Moments;
use medfs_testkit::volume::test_clock;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::{Arc, Mutex};

/// Threads that fsync, each a file of its own: more than the bound, so that those show that were never counted.
const THREADS: usize = 3;
/// Times that each does.
const ROUNDS: u8 = 6;
/// Most fsyncs that may be lost.
const BOUND: usize = 1;
/// Checkpoints that another thread makes meanwhile.
const CHECKPOINTS: usize = 6;
/// Power cuts of each schedule.
const CUTS: usize = 30;

/// What returned, and when: the file and its version.
type Acknowledged = Mutex<Vec<(u64, usize, u8)>>;

fn opened(device: Arc<dyn medfs_device::BlockDevice>, apps: &str) -> Volume {
    let mut options = MountOptions::default();
    let text = format!("durability=adaptive,survivor=off,durability_fsyncs={BOUND},cache=1M{apps}");
    options.parse(&text).expect("they are options");
    Volume::open(device, options, test_clock()).expect("the volume opens")
}

/// A folder for each thread with a file of zeros.
fn prepared() -> (MemDevice, [Ino; THREADS]) {
    let device = Arc::new(formatted(64, DELTAS).snapshot());
    let v = opened(device.clone(), "");
    let new = |kind| NewFile { kind, perm: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let files = std::array::from_fn(|n| {
        let folder = v.create(v.root(), &[b'a' + n as u8], &new(FileKind::Directory)).expect("made").ino;
        let file = v.create(folder, b"f", &new(FileKind::Regular)).expect("made").ino;
        v.write(file, 0, &[0; 4096]).expect("written");
        file
    });
    v.close().expect("the volume closes");
    drop(v);
    (device.snapshot(), files)
}

/// The version of a file that a volume shows.
fn version(v: &Volume, file: Ino) -> u8 {
    let mut byte = [0];
    v.read(file, 0, &mut byte).expect("it can be read");
    byte[0]
}

/// One schedule; the most fsyncs of one app that a power cut took.
fn lost(
    image: &MemDevice,
    files: [Ino; THREADS],
    apps: &str,
    policy: Policy,
    seed: u64,
) -> Result<usize, String> {
    let moments = Arc::new(Moments::default());
    let device = Arc::new(ScheduledDevice::new(image, moments.clone()));
    let v = opened(device.clone(), apps);
    let (begun, acknowledged) = (moments.next(), Acknowledged::default());
    let fsyncs = |n: usize| {
        for round in 1..=ROUNDS {
            v.write(files[n], 0, &[round; 4096]).expect("written");
            v.fsync(files[n], false).expect("it returns");
            acknowledged.lock().expect("no panic").push((moments.next(), n, round));
        }
    };
    let commits = || (0..CHECKPOINTS).for_each(|_| v.checkpoint().expect("a checkpoint"));
    let mut programs: Vec<(String, Program<'_>)> = Vec::new();
    for n in 0..THREADS {
        let fsyncs = &fsyncs;
        programs.push((format!("fsyncs {n}"), Box::new(move || fsyncs(n))));
    }
    programs.push(("commits".into(), Box::new(commits)));
    if let Some(failure) = run(policy, programs).failure {
        return Err(failure);
    }
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let acknowledged = acknowledged.lock().expect("no panic");
    let mut most = 0;
    for _ in 0..CUTS {
        let (at, state) = device.random_cut(&mut random, begun);
        let found = opened(Arc::new(state), apps);
        let is_lost = |n: usize| {
            let version = version(&found, files[n]);
            acknowledged
                .iter()
                .filter(|&&(when, file, round)| when <= at && file == n && round > version)
                .count()
        };
        let each: [usize; THREADS] = std::array::from_fn(is_lost);
        let of_one = || each.into_iter().max().unwrap_or(0);
        most = most.max(if apps.is_empty() { each.iter().sum() } else { of_one() });
    }
    Ok(most)
}

fn schedules(first: u64, count: u64) {
    let (image, files) = prepared();
    let mut seen = [0; BOUND + 1];
    for seed in first..first + count {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let apps = ["", ",apps=top"][random.random_range(0..2)];
        let policy = Policy::Walk { seed: random.random(), one_in: 1 << random.random_range(1..7) };
        match lost(&image, files, apps, policy, seed) {
            Ok(lost) if lost <= BOUND => seen[lost] += 1,
            Ok(lost) => panic!("seed {seed}{apps}: {lost} fsyncs are lost, at most {BOUND} may be"),
            Err(error) => panic!("seed {seed}{apps}: {error}"),
        }
    }
    println!("schedules by the fsyncs that a cut took: {seen:?}");
    assert!(seen[BOUND] > 0, "the bound was never met");
}

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |value| value.parse().expect("a number"))
}

#[test]
fn no_more_fsyncs_are_lost_than_the_bound_says() {
    schedules(number("MEDFS_SEED", 1), number("MEDFS_SCHEDULES", 5));
}
