//! The log that outlives the daemon, against the model: a volume that is dropped at any moment, and mounted again
//! with its log, has every operation that had returned, once.
//!
//! What a killed process leaves is what it had written to the device, in order, and the log. `MEDFS_SEED` and
//! `MEDFS_CASES` say which runs the long one does.

use medfs::{
    Attr, FallocateMode, FileKind, Files, Ino, ManualClock, MountOptions, NewFile, RenameFlags, SetAttr,
    Volume, XattrMode,
};
use medfs_device::{BlockDevice, MemDevice, WriteTag};
use medfs_format::Block;
use medfs_testkit::fuzz::variable;
use medfs_testkit::images::{COMPRESSED, DELTAS, FEATURE_SETS, FsckMedfs, formatted, options_for};
use medfs_testkit::model::Model;
use medfs_testkit::observe::{compare, observe};
use medfs_testkit::ops::{Generator, Op};
use medfs_testkit::session::Session;
use medfs_testkit::subject::{Check, list};
use medfs_testkit::volume::test_clock;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use tempfile::TempDir;

const OPTIONS: &str = "durability=adaptive,durability_bytes=2M,durability_age=60s,cache=8M";

/// A volume's device, the directory of its log, and a clock.
struct Machine {
    device: Arc<MemDevice>,
    logs: TempDir,
    clock: Arc<ManualClock>,
    options: MountOptions,
}

impl Machine {
    fn new(features: &str, more: &str) -> Machine {
        let logs = tempfile::tempdir().expect("a directory");
        let mut options = MountOptions::default();
        options.parse(options_for(features)).expect("options of the volume");
        let place = format!("{OPTIONS},survivor={}{more}", logs.path().display());
        options.parse(&place).expect("options of the test");
        Machine { device: Arc::new(formatted(64, features).snapshot()), logs, clock: test_clock(), options }
    }

    fn mount_on(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<Volume>, String> {
        let volume = Volume::open(device, self.options.clone(), self.clock.clone());
        volume.map(Arc::new).map_err(|e| format!("mount: {e}"))
    }

    fn mount(&self) -> Result<Arc<Volume>, String> {
        self.mount_on(self.device.clone())
    }

    fn log(&self) -> Option<PathBuf> {
        only_file(self.logs.path())
    }
}

fn only_file(dir: &Path) -> Option<PathBuf> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(dir).expect("it is there").map(|e| e.unwrap().path()).collect();
    assert!(files.len() <= 1, "something was set aside: {files:?}");
    files.pop()
}

/// What is known of each file by its path, but when it was read, and its size, which may be that of an atomic write.
fn attributes(fs: &dyn Files) -> BTreeMap<String, Attr> {
    let mut found = BTreeMap::new();
    let mut todo = vec![(String::new(), fs.root())];
    while let Some((path, ino)) = todo.pop() {
        let attr = fs.getattr(ino).expect("attributes");
        let is_dir = attr.kind == medfs::FileKind::Directory;
        found.insert(path.clone(), Attr { atime: attr.mtime, blocks: 0, size: 0, ..attr });
        if !is_dir {
            continue;
        }
        for entry in list(fs, ino, 0, 100_000).expect("a directory lists") {
            if entry.name != b"." && entry.name != b".." {
                todo.push((format!("{path}/{}", String::from_utf8_lossy(&entry.name)), entry.ino));
            }
        }
    }
    found
}

/// Compares with what was there before, attributes to the nanosecond; returns what is there.
fn same(fs: &Volume, model: &Model, before: Option<&BTreeMap<String, Attr>>) -> Result<Model, String> {
    let found = observe(fs)?;
    compare(model, &found)?;
    let Some(before) = before else { return Ok(found) };
    for (path, now) in attributes(fs) {
        if before.get(&path) != Some(&now) {
            return Err(format!("{path}: {now:?} instead of {:?}", before.get(&path)));
        }
    }
    Ok(found)
}

/// What a run did.
#[derive(Debug, Default)]
struct Ran {
    ops: usize,
    kills: usize,
    replayed: u64,
    checkpoints: u64,
    waited: u64,
    unrecorded: u64,
}

/// Random operations; at each crash among them the volume is dropped as it is, and mounted again.
fn run(seed: u64, features: &str, more: &str, count: usize, every: usize) -> Result<Ran, String> {
    let machine = Machine::new(features, more);
    let mut ran = Ran::default();
    let mut volume = machine.mount()?;
    let mut session = Session::new(volume.clone())?;
    for (number, op) in Generator::new(seed).ops(count).into_iter().enumerate() {
        let op = match op {
            _ if number % every == every - 1 => Op::Crash,
            Op::Crash | Op::Sync | Op::Checkpoint if every > KILL_EVERY => continue,
            op => op,
        };
        machine.clock.advance(Duration::from_millis(700));
        ran.ops += 1;
        let kill = match op {
            Op::Crash => true,
            Op::Remount => false,
            op => {
                session.apply(&op).map_err(|e| format!("operation {} ({op:?}): {e}", ran.ops))?;
                continue;
            }
        };
        let mut model = session.model.clone();
        model.release_all();
        let before = attributes(&*volume);
        let stats = volume.stats();
        ran.checkpoints += stats.checkpoints;
        let log = stats.survivor.expect("there is a log");
        (ran.waited, ran.unrecorded) = (ran.waited + log.waited, ran.unrecorded + log.unrecorded);
        if !kill {
            volume.close().map_err(|e| format!("close: {e}"))?;
            assert!(machine.log().is_none(), "an unmount leaves no log");
        }
        drop((session, volume));
        volume = machine.mount()?;
        let log = volume.stats().survivor.expect("there is a log");
        let found = same(&volume, &model, Some(&before))
            .map_err(|e| format!("operation {}: {e}, {:?}", ran.ops, log.told))?;
        if log.failed > 0 {
            return Err(format!("operation {}: {:?}", ran.ops, log.told));
        }
        if kill {
            (ran.kills, ran.replayed) = (ran.kills + 1, ran.replayed + log.replayed);
        }
        let mut now = found;
        now.number_after(&model);
        session = Session::remounted(volume.clone(), now);
    }
    volume.close().map_err(|e| format!("close: {e}"))?;
    drop((session, volume));
    FsckMedfs.check(machine.device.clone())?;
    Ok(ran)
}

/// Operations between two kills.
const KILL_EVERY: usize = 37;

const VOLUMES: [&str; 3] = [DELTAS, COMPRESSED[0], FEATURE_SETS[1]];

#[test]
fn dropped_at_random_moments() {
    for (seed, features) in (1..).zip(VOLUMES) {
        let ran = run(seed, features, "", 1500, KILL_EVERY).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        println!("seed {seed}, features [{features}]: {ran:?}");
        assert!(ran.kills > 5 && ran.replayed > 100, "{ran:?}");
    }
}

/// A log that is full all the time: operations wait for commits before they begin, and after they are done.
#[test]
fn dropped_with_a_log_that_is_full() {
    let ran =
        run(4, DELTAS, ",survivor_size=64K,durability_bytes=64M,durability_age=60m,commit=60m", 2000, 400)
            .unwrap_or_else(|e| panic!("{e}"));
    println!("{ran:?}");
    assert!(ran.kills > 3 && ran.waited > 0 && ran.unrecorded > 0, "{ran:?}");
}

#[test]
#[ignore = "minutes; MEDFS_SEED, MEDFS_CASES"]
fn dropped_many_times() {
    let first = variable("MEDFS_SEED").unwrap_or(100);
    for seed in first..first + variable("MEDFS_CASES").unwrap_or(60) {
        let more = ["", ",survivor_size=64K", ",cache=1M", ",delta=off"][seed as usize % 4];
        let features = VOLUMES[seed as usize / 4 % VOLUMES.len()];
        let ran = run(seed, features, more, 2000, KILL_EVERY).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        println!("seed {seed}, features [{features}], {more}: {ran:?}");
    }
}

/// What a process leaves that is killed at a request to the device.
struct Left {
    device: MemDevice,
    log: Vec<u8>,
    /// Operations that had returned.
    done: usize,
}

/// A device that keeps what would be left before each request.
struct Watching {
    inner: Arc<MemDevice>,
    logs: PathBuf,
    on: AtomicBool,
    done: AtomicU64,
    left: Mutex<Vec<Left>>,
}

impl Watching {
    fn keep(&self) {
        if !self.on.load(Ordering::Relaxed) {
            return;
        }
        let log = only_file(&self.logs).map_or(Vec::new(), |path| fs::read(path).expect("the log"));
        let done = self.done.load(Ordering::Relaxed) as usize;
        self.left.lock().push(Left { device: self.inner.snapshot(), log, done });
    }
}

impl BlockDevice for Watching {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.inner.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.keep();
        self.inner.write(addr, blocks, tag)?;
        self.keep();
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        self.keep();
        self.inner.flush()
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.inner.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        false
    }
}

/// Mounts what was left; the tree is that after one of the operations from `done` on that `models` has.
fn judge(machine: &Machine, left: &Left, models: &[Vec<Model>]) -> Result<u64, String> {
    let logs = tempfile::tempdir().expect("a directory");
    if let Some(name) = machine.log().filter(|_| !left.log.is_empty()) {
        let log = logs.path().join(name.file_name().expect("it has a name"));
        fs::write(&log, &left.log).expect("the log");
        fs::set_permissions(&log, std::os::unix::fs::PermissionsExt::from_mode(0o600)).expect("permissions");
    }
    let mut options = machine.options.clone();
    options.parse(&format!("survivor={}", logs.path().display())).expect("options");
    let volume = Volume::open(Arc::new(left.device.snapshot()), options, machine.clock.clone());
    let volume = volume.map_err(|e| format!("mount: {e}"))?;
    let log = volume.stats().survivor.expect("there is a log");
    if log.failed > 0 || log.told.len() > 1 {
        return Err(format!("{:?}", log.told));
    }
    only_file(logs.path());
    let mut why = String::new();
    for model in &models[left.done] {
        match same(&volume, model, None) {
            Ok(_) => return Ok(log.replayed),
            Err(error) => why = error,
        }
    }
    Err(why)
}

/// Kills at every request to the device, those of checkpoints above all.
fn killed_at_every_write(
    seed: u64,
    features: &str,
    count: usize,
    every: usize,
) -> Result<(usize, u64), String> {
    let machine = Machine::new(features, "");
    let watching = Arc::new(Watching {
        inner: machine.device.clone(),
        logs: machine.logs.path().to_owned(),
        on: AtomicBool::new(false),
        done: AtomicU64::new(0),
        left: Mutex::default(),
    });
    let volume = machine.mount_on(watching.clone())?;
    let mut session = Session::new(volume.clone())?;
    let mut generator = Generator::new(seed);
    generator.crashes = false;
    // Of each number of operations the trees that there may be, the last one while the next is done.
    let mut models: Vec<Vec<Model>> = vec![vec![session.model.clone()]];
    let several =
        |op: &Op| matches!(op, Op::Fill { .. } | Op::Remount | Op::Frames { .. } | Op::CopyChanged { .. });
    watching.on.store(true, Ordering::Relaxed);
    let ops: Vec<Op> = generator.ops(count).into_iter().filter(|op| !several(op)).collect();
    for op in &ops {
        machine.clock.advance(Duration::from_millis(700));
        session.steps = Some(Vec::new());
        session.apply(op)?;
        let after = session.model.clone();
        let during = session.steps.take().unwrap_or_default();
        let last = models.last_mut().expect("there is one");
        last.extend(during.into_iter().chain([after.clone()]));
        last.iter_mut().for_each(Model::release_all);
        models.push(vec![after]);
        watching.done.fetch_add(1, Ordering::Relaxed);
    }
    models.iter_mut().flatten().for_each(Model::release_all);
    watching.on.store(false, Ordering::Relaxed);
    let left = std::mem::take(&mut *watching.left.lock());
    let (mut judged, mut replayed) = (0, 0);
    for left in left.iter().step_by(every) {
        replayed += judge(&machine, left, &models).map_err(|e| {
            format!(
                "killed at a request after operation {}: {e}\n{}",
                left.done,
                ops[..=left.done].iter().map(|op| format!("{op:?}\n")).collect::<String>()
            )
        })?;
        judged += 1;
    }
    Ok((judged, replayed))
}

#[test]
fn killed_at_requests_to_the_device() {
    for (seed, features) in (11..).zip(VOLUMES) {
        let (judged, replayed) =
            killed_at_every_write(seed, features, 600, 3).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        println!("seed {seed}, features [{features}]: {judged} states, {replayed} operations replayed");
        assert!(judged > 10 && replayed > 30, "{judged} {replayed}");
    }
}

#[test]
#[ignore = "minutes; MEDFS_SEED, MEDFS_CASES"]
fn killed_at_all_requests_to_the_device() {
    let first = variable("MEDFS_SEED").unwrap_or(200);
    for seed in first..first + variable("MEDFS_CASES").unwrap_or(12) {
        let features = VOLUMES[seed as usize % VOLUMES.len()];
        let (judged, replayed) =
            killed_at_every_write(seed, features, 600, 1).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        println!("seed {seed}, features [{features}]: {judged} states, {replayed} operations replayed");
    }
}

/// A device that fails every write and flush once it is dead.
struct Dying {
    inner: Arc<MemDevice>,
    /// Blocks that are still written.
    left: AtomicU64,
}

impl Dying {
    fn spend(&self) -> io::Result<()> {
        let spent = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        spent.map(drop).map_err(|_| io::Error::other("it is dead"))
    }
}

impl BlockDevice for Dying {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.inner.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        for (addr, block) in (addr..).zip(blocks) {
            self.spend()?;
            self.inner.write(addr, &[block], tag)?;
        }
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        self.spend()
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.inner.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        false
    }
}

const THREADS: u64 = 4;

fn regular() -> NewFile {
    NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 1, gid: 1, rdev: 0 }
}

/// An operation on names and files that all threads share; what it ends as does not matter.
fn meddle(v: &Volume, dirs: &[Ino], random: &mut Xoshiro256PlusPlus) -> medfs::Result<()> {
    let mut place = || (dirs[random.random_range(0..dirs.len())], [b'f', b'0' + random.random_range(0..5)]);
    let ((dir, name), (to, new_name)) = (place(), place());
    let kind = random.random_range(0..16);
    let (at, len) = (random.random_range(0..60_000), random.random_range(1..9000));
    match kind {
        0 | 1 => v.create(dir, &name, &regular()).map(|attr| v.release(attr.ino, 1)),
        2 => v.unlink(dir, &name),
        3 | 4 => v.rename(dir, &name, to, &new_name, RenameFlags::empty()),
        5 => v.rename(dir, &name, to, &new_name, RenameFlags::EXCHANGE),
        6 => v.symlink(dir, &name, b"target", 1, 1).map(|attr| v.release(attr.ino, 1)),
        _ => {
            let ino = v.lookup(dir, &name)?.ino;
            let byte: u8 = random.random();
            let hole = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
            let done = match kind {
                7 => v.link(ino, to, &new_name).map(|attr| v.release(attr.ino, 1)),
                8 => v.setattr(ino, &SetAttr { size: Some(at), ..SetAttr::default() }).map(drop),
                9 => v.setattr(ino, &SetAttr { perm: Some(byte.into()), ..SetAttr::default() }).map(drop),
                10 => v.setxattr(ino, b"user.x", &[byte; 100], XattrMode::Set),
                11 => v.fallocate(ino, hole, at, len as u64),
                12 => v.fsync(ino, false),
                _ => v.write(ino, at, &vec![byte; len]).map(drop),
            };
            v.release(ino, 1);
            done
        }
    }
}

/// Threads on the same files and names: what they left in memory is the oracle of the order in which they took effect.
fn threads_on_the_same_files(seed: u64, rounds: u64) -> Result<u64, String> {
    let machine =
        Machine::new(VOLUMES[seed as usize % VOLUMES.len()], ",durability_bytes=512K,survivor_size=1M");
    let mut replayed = 0;
    for round in 0..rounds {
        let v = machine.mount()?;
        replayed += v.stats().survivor.expect("there is a log").replayed;
        let directory = NewFile { kind: FileKind::Directory, ..regular() };
        let dirs: Vec<Ino> = [&b"a"[..], b"b"]
            .iter()
            .map(|name| {
                v.create(v.root(), name, &directory).or_else(|_| v.lookup(v.root(), name)).unwrap().ino
            })
            .collect();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let mut random = Xoshiro256PlusPlus::seed_from_u64(seed ^ round << 20 ^ thread << 40);
                let (v, dirs, clock) = (&v, &dirs, &machine.clock);
                scope.spawn(move || {
                    for _ in 0..150 {
                        clock.advance(Duration::from_millis(20));
                        let _ = meddle(v, dirs, &mut random);
                    }
                });
            }
        });
        let (model, before) = (observe(&*v)?, attributes(&*v));
        drop(v);
        let v = machine.mount()?;
        let log = v.stats().survivor.expect("there is a log");
        same(&v, &model, Some(&before)).map_err(|e| format!("round {round}: {e}, {:?}", log.told))?;
        replayed += log.replayed;
    }
    Ok(replayed)
}

#[test]
fn threads_on_the_same_files_and_names() {
    for seed in 1..4 {
        let replayed = threads_on_the_same_files(seed, 12).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        println!("seed {seed}: {replayed} operations replayed");
        assert!(replayed > 100, "{replayed}");
    }
}

/// What a thread knows of its files: what was acknowledged, and what an operation that failed may have made.
type Known = BTreeMap<Vec<u8>, Vec<Option<Vec<u8>>>>;

/// Operations on a thread's own files until one fails.
fn work(v: &Volume, dir: Ino, known: &mut Known, random: &mut Xoshiro256PlusPlus) -> u64 {
    for done in 0.. {
        let name = vec![b'f', b'0' + random.random_range(0..6)];
        let old = known.get(&name).map_or(&None, |states| &states[0]).clone();
        let mut new = old.clone();
        let result = match (&mut new, random.random_range(0..8)) {
            (None, _) => {
                new = Some(Vec::new());
                v.create(dir, &name, &regular()).map(|attr| v.release(attr.ino, 1))
            }
            (Some(_), 0) => {
                new = None;
                v.unlink(dir, &name)
            }
            (Some(content), kind) => v.lookup(dir, &name).and_then(|attr| {
                let at = random.random_range(0..=content.len().min(30_000));
                let data = vec![random.random(); random.random_range(1..20_000)];
                let done = if kind == 1 {
                    content.truncate(at);
                    v.setattr(attr.ino, &SetAttr { size: Some(at as u64), ..SetAttr::default() }).map(drop)
                } else {
                    content.resize(content.len().max(at + data.len()), 0);
                    content[at..at + data.len()].copy_from_slice(&data);
                    v.write(attr.ino, at as u64, &data).map(drop)
                };
                v.release(attr.ino, 1);
                done
            }),
        };
        if result.is_err() {
            known.insert(name, vec![old, new]);
            return done;
        }
        known.insert(name, vec![new]);
    }
    unreachable!("the device dies");
}

fn content_of(v: &Volume, dir: Ino, name: &[u8]) -> Option<Vec<u8>> {
    let attr = v.lookup(dir, name).ok()?;
    let mut content = vec![0; attr.size as usize];
    assert_eq!(v.read(attr.ino, 0, &mut content).expect("the file reads"), content.len());
    v.release(attr.ino, 1);
    Some(content)
}

/// The process ends somewhere in a commit while threads go on: each finds all that it was told is done.
fn killed_with_threads(seed: u64, rounds: usize) -> u64 {
    let machine = Machine::new(VOLUMES[seed as usize % VOLUMES.len()], ",durability_bytes=128K");
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut known: Vec<Known> = (0..THREADS).map(|_| Known::new()).collect();
    let mut total = 0;
    for round in 0..rounds {
        let device = Dying { inner: machine.device.clone(), left: AtomicU64::new(u64::MAX) };
        let device = Arc::new(device);
        let v = machine.mount_on(device.clone()).unwrap();
        let log = v.stats().survivor.expect("there is a log");
        assert_eq!(log.failed, 0, "seed {seed}, round {round}: {:?}", log.told);
        let directory = NewFile { kind: FileKind::Directory, ..regular() };
        let dirs: Vec<Ino> = (0..THREADS as u8)
            .map(|n| {
                v.lookup(v.root(), &[b'd', b'0' + n])
                    .or_else(|_| v.create(v.root(), &[b'd', b'0' + n], &directory))
                    .unwrap()
                    .ino
            })
            .collect();
        for (known, &dir) in known.iter_mut().zip(&dirs) {
            for (name, states) in known {
                let found = content_of(&v, dir, name);
                assert!(
                    states.contains(&found),
                    "seed {seed}, round {round}: {name:?} in {dir}, {:?}",
                    log.told
                );
                *states = vec![found];
            }
        }
        device.left.store(random.random_range(0..300), Ordering::Relaxed);
        std::thread::scope(|scope| {
            let threads: Vec<_> = known
                .iter_mut()
                .zip(&dirs)
                .map(|(known, &dir)| {
                    let (v, mut random) = (&v, Xoshiro256PlusPlus::seed_from_u64(random.random()));
                    scope.spawn(move || work(v, dir, known, &mut random))
                })
                .collect();
            total += threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>();
        });
    }
    total
}

#[test]
fn killed_in_commits_while_threads_work() {
    for seed in 1..4 {
        println!("seed {seed}: {} operations were acknowledged", killed_with_threads(seed, 12));
    }
}

#[test]
#[ignore = "minutes; MEDFS_SEED, MEDFS_CASES"]
fn threads_many_times() {
    let first = variable("MEDFS_SEED").unwrap_or(300);
    for seed in first..first + variable("MEDFS_CASES").unwrap_or(20) {
        let replayed = threads_on_the_same_files(seed, 30).unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        println!("seed {seed}: {replayed} replayed, {} acknowledged", killed_with_threads(seed, 60));
    }
}
