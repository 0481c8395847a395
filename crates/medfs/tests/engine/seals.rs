//! Sealed fsyncs: what is written with one flush is found after a crash as after two.
//!
//! [`Script::of_seed`] makes a few files and changes them: deltas, whole pages, pages behind the end, several
//! files at once, pages that go to the device before anybody asks. Each crash state is judged by what the
//! files held at their fsyncs; some of the states are taken up again, changed, and lose power a second time.
//!
//! A long run: `MEDFS_SEED=1 MEDFS_STATES=100000 cargo test --release -p medfs --test engine -- --ignored
//! --nocapture seals::all`.

use crate::common::*;
use medfs::{Files, ManualClock, RenameFlags, Volume};
use medfs_device::crash::{CrashPlan, CrashState, Event, RecordingDevice, TornFilter};
use medfs_device::{BlockDevice, Cause, MemDevice, read_block};
use medfs_format::Block;
use medfs_format::node::footer;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use std::collections::BTreeMap;
use std::sync::Arc;

const FILES: usize = 3;
/// A page whose address is in a direct node.
const FAR: usize = 1100;
/// Small volumes are overwritten in place by default.
const IN_PLACE: [&str; 4] = ["in_place=off", "", "in_place=force", RESERVE];
/// Nothing is reserved on a volume as small as the others.
const RESERVE: &str = "placement=reserve,reserve_files=all,in_place=off";
const DELTAS: [&str; 4] =
    ["", "delta=off", "compact_files=all,inline_threshold=128", "delta=inline,addr_redo=off"];

/// What a script does with one file or several.
#[derive(Debug, Clone)]
enum Step {
    Write {
        file: usize,
        at: usize,
        bytes: Vec<u8>,
    },
    Fsync {
        file: usize,
        datasync: bool,
    },
    /// Several files by one call.
    Together(Vec<usize>),
    /// Its dirty pages go to the device, and nothing waits for them.
    Writeback(usize),
}

/// Seeded steps on some files.
#[derive(Debug)]
struct Script {
    options: String,
    steps: Vec<Step>,
}

impl Script {
    fn of_seed(seed: u64) -> Script {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let options = format!("{},{}", IN_PLACE[seed as usize % 4], DELTAS[seed as usize / 4 % 4]);
        let options = options.trim_matches(',').to_owned();
        // With noted addresses a direct node that was written once is noted from then on.
        let far = options.contains("addr_redo=off") || seed / 16 % 2 == 1;
        let steps = (0..rng.random_range(12..30)).map(|_| Script::step(&mut rng, far)).collect();
        Script { options, steps }
    }

    fn step(rng: &mut ChaCha12Rng, far: bool) -> Step {
        let file = rng.random_range(0..FILES);
        // Addresses in the inode, or in a direct node.
        let page = rng.random_range(0..12usize) + if far && rng.random_ratio(1, 3) { FAR } else { 0 };
        let whole = |rng: &mut ChaCha12Rng, pages: usize| -> Vec<u8> {
            (0..pages).flat_map(|_| noise(rng.random())).collect()
        };
        match rng.random_range(0..10) {
            0..4 => {
                let len = rng.random_range(1..300);
                Step::Write { file, at: page * PAGE + 40, bytes: noise(rng.random())[..len].to_vec() }
            }
            4 | 5 => {
                let pages = rng.random_range(1..4);
                Step::Write { file, at: page * PAGE, bytes: whole(rng, pages) }
            }
            6 => Step::Writeback(file),
            7 => Step::Together(vec![0, 1, 2]),
            _ => Step::Fsync { file, datasync: rng.random() },
        }
    }
}

/// What the files held.
#[derive(Debug, Clone, Default)]
struct History {
    /// Of each file: its content now, and after each change, with the mark that was the last before.
    now: Vec<Vec<u8>>,
    versions: Vec<Vec<Vec<u8>>>,
    /// Of each mark: the version of each file that is durable from it on.
    durable: BTreeMap<u64, Vec<usize>>,
}

impl History {
    fn of(contents: Vec<Vec<u8>>) -> History {
        let versions = contents.iter().map(|content| vec![content.clone()]).collect();
        History { durable: BTreeMap::from([(0, vec![0; contents.len()])]), now: contents, versions }
    }

    fn write(&mut self, file: usize, at: usize, bytes: &[u8]) {
        let content = &mut self.now[file];
        content.resize(content.len().max(at + bytes.len()), 0);
        content[at..at + bytes.len()].copy_from_slice(bytes);
        self.versions[file].push(content.clone());
    }

    /// Files are durable as they are now; the mark that says so.
    fn durable(&mut self, files: &[usize]) -> u64 {
        let (&last, at) = self.durable.last_key_value().expect("the first");
        let mut at = at.clone();
        files.iter().for_each(|&file| at[file] = self.versions[file].len() - 1);
        self.durable.insert(last + 1, at);
        last + 1
    }

    /// Whether a file may hold this after a crash behind the mark: each page as it was in some version not
    /// older than the one that was durable, and a size that goes with one. Where nothing is overwritten in
    /// place: one of the versions, whole.
    fn allows(&self, file: usize, mark: u64, found: &[u8], in_place: bool) -> bool {
        let versions = &self.versions[file][self.durable[&mark][file]..];
        if !in_place {
            return versions.iter().any(|version| version == found);
        }
        let page = |content: &[u8], at: usize| {
            let mut page = content.get(at..(at + PAGE).min(content.len())).unwrap_or_default().to_vec();
            page.resize(PAGE, 0);
            page
        };
        versions.iter().any(|version| version.len() == found.len())
            && (0..found.len()).step_by(PAGE).all(|at| {
                let end = found.len() - at;
                let is = |version: &Vec<u8>| {
                    let mut page = page(version, at);
                    page[end.min(PAGE)..].fill(0);
                    page == self::page_of(found, at)
                };
                versions.iter().any(is)
            })
    }
}

fn page_of(content: &[u8], at: usize) -> Vec<u8> {
    let mut page = content[at..(at + PAGE).min(content.len())].to_vec();
    page.resize(PAGE, 0);
    page
}

fn name(file: usize) -> String {
    format!("file{file}")
}

/// The files, durable.
fn prepared(options: &str) -> (MemDevice, History) {
    let device = Arc::new(blank_delta(if options.contains(RESERVE) { 128 } else { 64 }));
    let v = open_with(device.clone(), options, Arc::new(ManualClock::new(START)));
    let contents: Vec<Vec<u8>> =
        (0..FILES).map(|n| (0..8).flat_map(|p| noise(n as u64 * 100 + p)).collect()).collect();
    for (n, content) in contents.iter().enumerate() {
        let f = file(&v, v.root(), &name(n));
        write(&v, f, 0, content);
    }
    v.sync().expect("sync");
    v.close().expect("close");
    (device.snapshot(), History::of(contents))
}

fn run(v: &Volume, recorder: &RecordingDevice, script: &Script, history: &mut History) {
    let inos: Vec<u32> =
        (0..FILES).map(|n| v.lookup(v.root(), name(n).as_bytes()).expect("it is there").ino).collect();
    for step in &script.steps {
        match step {
            Step::Write { file, at, bytes } => {
                write(v, inos[*file], *at as u64, bytes);
                history.write(*file, *at, bytes);
            }
            Step::Writeback(file) => {
                // The beginning of an atomic write writes back what was written before.
                v.atomic_start(inos[*file]).expect("begun");
                v.atomic_abort(inos[*file]).expect("ended");
            }
            Step::Fsync { file, datasync } => {
                v.fsync(inos[*file], *datasync).expect("fsync");
                recorder.mark(history.durable(&[*file]));
            }
            Step::Together(files) => {
                let inos: Vec<u32> = files.iter().map(|&file| inos[file]).collect();
                v.fsync_many(&inos, false).expect("fsync");
                recorder.mark(history.durable(files));
            }
        }
    }
}

fn contents(v: &Volume) -> Vec<Vec<u8>> {
    (0..FILES).map(|n| content(v, at(v, &name(n)).expect("it is there").ino)).collect()
}

/// Whether pages are overwritten in place.
fn overwrites(options: &str) -> bool {
    !options.contains("in_place=off") || options.contains(RESERVE)
}

fn judge(what: &str, script: &Script, history: &History, state: &CrashState, found: &[Vec<u8>]) {
    let (mark, in_place) = (state.last_mark().unwrap_or(0), overwrites(&script.options));
    for (file, found) in found.iter().enumerate() {
        assert!(
            history.allows(file, mark, found, in_place),
            "{what}, {state:?}: file {file} after mark {mark}\n{script:#?}"
        );
    }
}

/// Blocks that recovery compares with something: data, inodes, and nodes in front of the last one of an fsync.
fn may_be_torn(_: u64, cause: Cause, content: &[u8; PAGE]) -> bool {
    let mut block = Block::boxed();
    block.0.copy_from_slice(content);
    let f = footer(&block);
    match cause {
        Cause::Data | Cause::Compact => true,
        Cause::Node => f.nid == f.ino || !f.is_fsync(),
        Cause::Meta | Cause::Gc => false,
    }
}

/// Shows the judge every state of a script, and every `again`th once more with a second power loss; returns
/// how many there were.
fn states_of(seed: u64, again: usize) -> usize {
    let script = Script::of_seed(seed);
    let (base, mut history) = prepared(&script.options);
    let recorder = Arc::new(RecordingDevice::new(&base));
    let v = open_with(recorder.clone(), &script.options, Arc::new(ManualClock::new(START)));
    run(&v, &recorder, &script, &mut history);
    drop(v);
    // What is overwritten in place is torn as on any file system.
    let torn = (!overwrites(&script.options)).then(|| Arc::new(may_be_torn) as TornFilter);
    let plan = CrashPlan { exhaustive: 1024, samples: 40, torn, torn_each: 1, seed };
    let mut count = 0;
    for (n, state) in recorder.recording().states(&plan).enumerate() {
        let v = open_with(Arc::new(state.device()), &script.options, Arc::new(ManualClock::new(START)));
        let found = contents(&v);
        judge(&format!("seed {seed}"), &script, &history, &state, &found);
        assert_eq!(v.stats().unkept_nodes, 0, "seed {seed}, {state:?}: this device keeps what it flushed");
        drop(v);
        count += 1;
        if n % again == seed as usize % again {
            count += second_life(seed, &script, &state, found);
        }
    }
    count
}

/// A state is taken up, a file is changed, and power is lost again, at first while the volume is being opened.
fn second_life(seed: u64, script: &Script, state: &CrashState, found: Vec<Vec<u8>>) -> usize {
    let mut history = History::of(found);
    let recorder = Arc::new(RecordingDevice::new(&state.device()));
    let v = open_with(recorder.clone(), &script.options, Arc::new(ManualClock::new(START)));
    let steps = vec![
        Step::Write { file: 0, at: PAGE, bytes: noise(seed + 5) },
        Step::Fsync { file: 0, datasync: false },
        Step::Write { file: 1, at: 2 * PAGE + 7, bytes: b"another life".to_vec() },
        Step::Fsync { file: 1, datasync: true },
    ];
    let script = Script { options: script.options.clone(), steps };
    run(&v, &recorder, &script, &mut history);
    drop(v);
    let plan = CrashPlan { exhaustive: 8, samples: 2, seed, ..CrashPlan::default() };
    let mut count = 0;
    for second in recorder.recording().states(&plan) {
        let v = open_with(Arc::new(second.device()), &script.options, Arc::new(ManualClock::new(START)));
        judge(&format!("seed {seed}, second life of {state:?}"), &script, &history, &second, &contents(&v));
        count += 1;
    }
    count
}

/// Where the log ends before its first node, nothing is recovered; what is fsynced next must not lead into it
/// all the same.
#[test]
fn a_log_that_is_cut_short_is_left_behind() {
    let (base, mut history) = prepared("in_place=off");
    let recorder = Arc::new(RecordingDevice::new(&base));
    let script = Script {
        options: "in_place=off".to_owned(),
        steps: vec![
            Step::Write { file: 0, at: PAGE, bytes: noise(77) },
            Step::Fsync { file: 0, datasync: false },
        ],
    };
    run(
        &open_with(recorder.clone(), &script.options, Arc::new(ManualClock::new(START))),
        &recorder,
        &script,
        &mut history,
    );
    let plan = CrashPlan { exhaustive: 1024, ..CrashPlan::default() };
    let mut cut = 0;
    for state in recorder.recording().states(&plan) {
        let device = Arc::new(state.device());
        let is_new = |addr: u64| {
            let stored = read_block(&*device, addr).expect("a block");
            let f = footer(&stored);
            f.is_fsync() && f.nid == f.ino && stored.0 != read_block(&base, addr).expect("a block").0
        };
        let logged = (0..device.block_count()).any(is_new);
        let v = open_with(device.clone(), &script.options, Arc::new(ManualClock::new(START)));
        if logged && contents(&v)[0] == history.versions[0][0] {
            cut += 1;
            assert_eq!(v.stats().checkpoints, 1, "{state:?}");
        }
    }
    assert!(cut > 0, "no state in which the node alone was stored");
}

/// A seal covers a block of a file that was not fsynced, so that nothing in the chain names it. A recovery that loses
/// power leaves it as it is: the next one compares it again.
#[test]
fn what_a_seal_covers_stays_until_the_recovery_is_durable() {
    let device = Arc::new(blank_delta(64));
    let v = open_device(&device, "in_place=off");
    // Entries of the root fill blocks.
    for n in 0..12 {
        file(&v, v.root(), &format!("{n}{}", "x".repeat(200)));
    }
    v.close().expect("close");
    let v = open_device(&device, "in_place=off");
    // Hot data, as blocks of directories are.
    let other = file(&v, v.root(), "other.db");
    write(&v, other, 0, &noise(1));
    v.atomic_start(other).expect("its page goes to the device");
    let fsynced = file(&v, v.root(), "fsynced");
    write(&v, fsynced, 0, &noise(2));
    v.fsync(fsynced, false).expect("fsync");
    drop(v);
    let recorder = Arc::new(RecordingDevice::new(&device));
    drop(open_with(recorder.clone(), "in_place=off", Arc::new(ManualClock::new(START))));
    let recording = recorder.recording();
    let writes_data = |event: &Event| matches!(event, Event::Write { cause: Cause::Data, .. });
    assert!(recording.log().iter().any(writes_data), "recovery writes a block of the root");
    for state in recording.states(&CrashPlan { exhaustive: 1024, ..CrashPlan::default() }) {
        let v = open(state.device());
        let found = at(&v, "fsynced").unwrap_or_else(|| panic!("{state:?}: the fsynced file is lost"));
        assert!(content(&v, found.ino) == noise(2), "{state:?}");
    }
}

#[test]
fn some_states_of_sealed_fsyncs() {
    let states: usize = (0..10).map(|seed| states_of(seed, 40)).sum();
    assert!(states > 500, "{states}");
    println!("{states} states");
}

#[test]
#[ignore = "minutes; see the head of this file"]
fn all_states_of_sealed_fsyncs() {
    let first = medfs_testkit::fuzz::variable("MEDFS_SEED").unwrap_or(1);
    let most = medfs_testkit::fuzz::variable("MEDFS_STATES").unwrap_or(100_000) as usize;
    let (mut seed, mut states) = (first, 0);
    while states < most {
        states += states_of(seed, 20);
        seed += 1;
    }
    println!("seeds {first} to {}: {states} states", seed - 1);
}

/// A file that took the name of a renamed one becomes durable behind that one's new name: both by one flush.
#[test]
fn a_name_that_is_used_again_costs_no_flush() {
    let device = Arc::new(blank_delta(64));
    let v = open_with(device.clone(), "", Arc::new(ManualClock::new(START)));
    let flushes = |v: &Volume| v.stats().flushes;
    let make = |n: u64| {
        let f = file(&v, v.root(), "tmp");
        write(&v, f, 0, &noise(n));
        let before = flushes(&v);
        v.fsync(f, false).expect("fsync");
        let cost = flushes(&v) - before;
        v.rename(v.root(), b"tmp", v.root(), format!("photo{n}").as_bytes(), RenameFlags::empty())
            .expect("rename");
        cost
    };
    let costs: Vec<u64> = (0..6).map(make).collect();
    assert_eq!(costs, [1; 6]);
    // The new name of the last is not durable, those of the others are.
    let again = open_with(Arc::new(device.snapshot()), "", Arc::new(ManualClock::new(START)));
    for n in 0..5 {
        let photo = at(&again, &format!("photo{n}")).expect("it was settled").ino;
        assert!(content(&again, photo) == noise(n), "photo {n}");
    }
    assert!(content(&again, at(&again, "tmp").expect("it was fsynced").ino) == noise(5));
}
