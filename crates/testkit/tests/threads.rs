//! Many threads on one small volume, so that cleaning and checkpoints run while they work: what each thread knows of
//! its own files holds, during the run, after it, and in the states that a crash may leave.
//!
//! A thread makes files of its own, overwrites, fsyncs, renames and removes them, and writes its own page of
//! a file that all share. Every page says whose it is and which version. Moments are numbered across threads:
//! "this fsync returned", "this rename begins"; a crash state is judged by the moments before it.

use medfs::{
    Error, FallocateMode, FileKind, Files, Ino, ManualClock, MountOptions, NewFile, RenameFlags, Volume,
};
use medfs_device::crash::{CrashPlan, RecordingDevice};
use medfs_device::{BlockDevice, MemDevice, WriteTag};
use medfs_format::Block;
use medfs_testkit::images::{COMPRESSED, DELTAS, FEATURE_SETS, FsckF2fs, FsckMedfs, formatted};
use medfs_testkit::subject::Check;
use medfs_testkit::volume::test_clock;
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const PAGE: usize = 4096;
const THREADS: u64 = 5;
/// Pages of a thread's file; beyond what fits the inode's block.
const PAGES: u64 = 12;
const OPTIONS: &str = "in_place=off,cache=4M";
/// Crash states that a test judges at least.
const JUDGED: usize = 80;

/// What happened to a file, as its thread knows.
#[derive(Debug, Clone)]
enum Moment {
    /// All pages are about to get this version.
    WriteBegins(u64),
    /// An fsync returned.
    Fsynced,
    /// The name is about to be this one.
    RenameBegins(String),
    /// The last name is about to go.
    RemoveBegins,
}

/// Moments of all threads in their order, with the file that each is about.
#[derive(Default)]
struct Log {
    moments: Mutex<Vec<(String, Moment)>>,
    recorder: Option<Arc<RecordingDevice>>,
}

impl Log {
    /// Notes a moment, here and among the writes of the device.
    fn note(&self, file: &str, moment: Moment) {
        let mut moments = self.moments.lock();
        moments.push((file.to_owned(), moment));
        if let Some(recorder) = &self.recorder {
            recorder.mark(moments.len() as u64);
        }
    }
}

/// What may be found of a file.
#[derive(Debug, Clone, Default)]
struct Allowed {
    /// Names under which it may be.
    names: Vec<String>,
    /// Oldest and newest version of its pages.
    versions: (u64, u64),
    must_exist: bool,
    removed: bool,
}

/// What the moments allow of each file. Files begin under their own name in their thread's folder.
fn allowed(moments: &[(String, Moment)]) -> BTreeMap<String, Allowed> {
    let mut files = BTreeMap::<String, Allowed>::new();
    for (file, moment) in moments {
        let known = files.entry(file.clone()).or_insert_with(|| Allowed {
            names: vec![format!("t{}/{file}", &file[..1])],
            ..Allowed::default()
        });
        match moment {
            Moment::WriteBegins(version) => known.versions.1 = *version,
            Moment::RenameBegins(name) => {
                known.names.retain(|known| known != name);
                known.names.push(name.clone());
            }
            Moment::RemoveBegins => (known.must_exist, known.removed) = (false, true),
            Moment::Fsynced => {
                known.names = known.names.split_off(known.names.len() - 1);
                known.versions.0 = known.versions.1;
                known.must_exist = true;
            }
        }
    }
    files
}

fn open(device: Arc<dyn BlockDevice>) -> Volume {
    let mut options = MountOptions::default();
    // Of use where the volume has the feature.
    options.parse("compress_extension=*").expect("options");
    options.parse(OPTIONS).expect("options");
    let clock: Arc<ManualClock> = test_clock();
    Volume::open(device, options, clock).expect("the volume opens")
}

fn new(kind: FileKind) -> NewFile {
    NewFile { kind, perm: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 }
}

/// A page that says which file's it is, where it belongs, and its version.
fn stamped(file: &str, index: u64, version: u64) -> Vec<u8> {
    format!("{file:>12}{index:>8}{version:>12}").into_bytes().repeat(PAGE / 32)
}

/// The version of a page. Panics where the page is another's, or a mixture.
fn version_of(page: &[u8], file: &str, index: u64) -> u64 {
    let text = String::from_utf8_lossy(&page[20..32]);
    let version = text.trim().parse().unwrap_or_else(|_| panic!("{file} page {index}: {text:?}"));
    assert!(page == stamped(file, index, version), "{file} page {index} is not a version of its own");
    version
}

fn find(v: &Volume, path: &str) -> Option<Ino> {
    let step = |at: Ino, name: &str| match v.lookup(at, name.as_bytes()) {
        Ok(attr) => {
            v.release(attr.ino, 1);
            Some(attr.ino)
        }
        Err(e) if e.errno() == 2 => None,
        Err(e) => panic!("{path}: {e}"),
    };
    path.split('/').try_fold(v.root(), step)
}

/// Checks every file against what is allowed.
fn judge(v: &Volume, moments: &[(String, Moment)]) {
    for (file, known) in allowed(moments) {
        let found: Vec<(&String, Ino)> =
            known.names.iter().filter_map(|name| Some((name, find(v, name)?))).collect();
        assert!(found.len() <= 1, "{file} has two names: {found:?}");
        let Some((name, ino)) = found.first() else {
            assert!(!known.must_exist, "{file} is lost, {known:?}");
            continue;
        };
        if !known.must_exist {
            continue;
        }
        let size = v.getattr(*ino).expect("attributes").size;
        assert_eq!(size, PAGES * PAGE as u64, "{file} as {name}");
        for index in 0..PAGES {
            let mut page = vec![0; PAGE];
            assert_eq!(v.read(*ino, index * PAGE as u64, &mut page).expect("the page reads"), PAGE);
            let version = version_of(&page, &file, index);
            let (oldest, newest) = known.versions;
            assert!((oldest..=newest).contains(&version), "{file} page {index}: {version}, {known:?}");
        }
    }
}

/// Leaves little room, and that in holes: half of the pages of every segment are valid.
fn crowd(v: &Volume) {
    let make = |name: &[u8]| v.create(v.root(), name, &new(FileKind::Regular)).expect("made").ino;
    let (stays, goes) = (make(b"stays"), make(b"goes"));
    let pages = v.space().free * 9 / 20;
    for index in 0..pages {
        for ino in [stays, goes] {
            v.write(ino, index * PAGE as u64, &stamped("ballast", index, 1)).expect("there is room");
        }
        if index % 256 == 0 {
            v.sync().expect("sync");
        }
    }
    v.sync().expect("sync");
    let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
    v.fallocate(goes, mode, 0, pages * PAGE as u64).expect("punched");
    v.sync().expect("sync");
}

/// One of a thread's files.
struct Own {
    file: String,
    dir: Ino,
    name: String,
    ino: Ino,
    version: u64,
}

struct Worker<'a> {
    v: &'a Volume,
    log: &'a Log,
    thread: u64,
    home: Ino,
    shared: Ino,
    random: Xoshiro256PlusPlus,
    files: Vec<Own>,
    made: u64,
}

impl Worker<'_> {
    fn step(&mut self) {
        match self.random.random_range(0..20) {
            0..5 => self.make(),
            5..12 => self.overwrite(),
            12..15 => self.rename(),
            15..17 => self.remove(),
            17 => self.v.fsync(self.home, false).expect("fsync of a folder"),
            _ => self.write_shared(),
        }
    }

    fn make(&mut self) {
        if self.files.len() > 6 {
            return self.remove();
        }
        self.made += 1;
        let file = format!("{}n{}", self.thread, self.made);
        let ino = match self.v.create(self.home, file.as_bytes(), &new(FileKind::Regular)) {
            Ok(attr) => attr.ino,
            Err(Error::NoSpace) => return self.remove(),
            Err(e) => panic!("{file}: {e}"),
        };
        self.files.push(Own { name: file.clone(), file, dir: self.home, ino, version: 0 });
        self.write(self.files.len() - 1);
    }

    fn overwrite(&mut self) {
        if !self.files.is_empty() {
            let at = self.random.random_range(0..self.files.len());
            self.write(at);
        }
    }

    /// Writes all pages of a file; mostly an fsync follows. A full volume costs a file.
    fn write(&mut self, at: usize) {
        let own = &mut self.files[at];
        own.version += 1;
        self.log.note(&own.file, Moment::WriteBegins(own.version));
        let mut data = Vec::new();
        (0..PAGES).for_each(|index| data.extend(stamped(&own.file, index, own.version)));
        match self.v.write(own.ino, 0, &data) {
            Ok(n) if n == data.len() => {}
            Ok(_) | Err(Error::NoSpace) => return self.remove_at(at),
            Err(e) => panic!("{}: {e}", own.file),
        }
        if self.random.random_range(0..4) > 0 {
            self.v.fsync(own.ino, self.random.random()).expect("fsync");
            // An fdatasync need not make a new name durable.
            self.v.fsync(own.ino, false).expect("fsync");
            self.log.note(&own.file, Moment::Fsynced);
        }
    }

    /// Moves a file to the folder that all share, or back.
    fn rename(&mut self) {
        let Some(own) = self.files.last_mut() else { return };
        let (to, folder) = match own.dir == self.home {
            true => (self.shared, "shared".to_owned()),
            false => (self.home, format!("t{}", self.thread)),
        };
        let name = format!("{}v{}", own.file, own.version);
        self.log.note(&own.file, Moment::RenameBegins(format!("{folder}/{name}")));
        match self.v.rename(own.dir, own.name.as_bytes(), to, name.as_bytes(), RenameFlags::empty()) {
            Ok(()) => (own.dir, own.name) = (to, name),
            Err(Error::NoSpace) => {
                let back = if own.dir == self.home { format!("t{}", self.thread) } else { "shared".into() };
                self.log.note(&own.file, Moment::RenameBegins(format!("{back}/{}", own.name)));
            }
            Err(e) => panic!("{}: {e}", own.file),
        }
        self.files.rotate_right(1);
    }

    fn remove(&mut self) {
        if !self.files.is_empty() {
            let at = self.random.random_range(0..self.files.len());
            self.remove_at(at);
        }
    }

    fn remove_at(&mut self, at: usize) {
        let own = self.files.swap_remove(at);
        self.log.note(&own.file, Moment::RemoveBegins);
        self.v.unlink(own.dir, own.name.as_bytes()).expect("unlink");
        self.v.release(own.ino, 1);
    }

    /// Writes this thread's page of the file that all share, and reads the others'.
    fn write_shared(&mut self) {
        let ino = find(self.v, "shared/all").expect("it stays");
        self.made += 1;
        let data = stamped("all", self.thread, self.made);
        match self.v.write(ino, self.thread * PAGE as u64, &data) {
            Ok(PAGE) => {}
            Err(Error::NoSpace) => return,
            other => panic!("the shared file: {other:?}"),
        }
        for index in 0..THREADS {
            let mut page = vec![0; PAGE];
            self.v.read(ino, index * PAGE as u64, &mut page).expect("the page reads");
            let version = version_of(&page, "all", index);
            assert!(index != self.thread || version == self.made, "another thread changed page {index}");
        }
        self.v.fsync(ino, true).expect("fsync");
    }
}

/// Runs the threads, and one more that syncs, makes checkpoints and does background work, until they are done.
fn run(v: &Volume, log: &Log, seed: u64, steps: usize) {
    let dir = |name: &str| v.create(v.root(), name.as_bytes(), &new(FileKind::Directory)).expect(name).ino;
    let shared = dir("shared");
    let all = v.create(shared, b"all", &new(FileKind::Regular)).expect("the shared file").ino;
    for index in 0..THREADS {
        v.write(all, index * PAGE as u64, &stamped("all", index, 0)).expect("there is room");
    }
    let homes: Vec<Ino> = (0..THREADS).map(|t| dir(&format!("t{t}"))).collect();
    v.sync().expect("sync");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0u64.. {
                if done.load(Ordering::Acquire) {
                    break;
                }
                match turn % 3 {
                    0 => v.checkpoint().expect("checkpoint"),
                    1 => v.background().expect("background work"),
                    _ => v.sync().expect("sync"),
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        });
        let work = |thread: u64| {
            let random = Xoshiro256PlusPlus::seed_from_u64(seed * 100 + thread);
            let home = homes[thread as usize];
            let mut worker = Worker { v, log, thread, home, shared, random, files: Vec::new(), made: 0 };
            (0..steps).for_each(|_| worker.step());
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        done.store(true, Ordering::Release);
        ended.into_iter().for_each(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
    });
}

fn must_be_sound(device: &Arc<MemDevice>) {
    for check in [&FsckMedfs as &dyn Check, &FsckF2fs] {
        check.check(device.clone()).unwrap_or_else(|e| panic!("{}: {e}", check.name()));
    }
}

#[test]
fn threads_on_a_crowded_volume() {
    for (seed, features) in (1..).zip(FEATURE_SETS.into_iter().chain(COMPRESSED)) {
        let device = Arc::new(formatted(64, features).snapshot());
        let v = open(device.clone());
        crowd(&v);
        let log = Log::default();
        run(&v, &log, seed, 400);
        let stats = v.stats();
        println!(
            "seed {seed}: {} sections cleaned for space, {} checkpoints",
            stats.gc_foreground, stats.checkpoints
        );
        // Each fsync of a compressed file on plain F2FS is a checkpoint, after which there are free sections.
        let plain = FEATURE_SETS.contains(&features);
        assert!(stats.gc_foreground > 0 || !plain, "nothing was cleaned");
        assert!(plain || stats.compress.clusters > 100, "hardly any clusters: {:?}", stats.compress);
        let moments = log.moments.into_inner();
        judge(&v, &moments);
        v.close().expect("closed");
        drop(v);
        must_be_sound(&device);
        judge(&open(device), &moments);
    }
}

#[test]
fn crash_states_of_threads() {
    let base = Arc::new(formatted(64, FEATURE_SETS[1]).snapshot());
    let v = open(base.clone());
    crowd(&v);
    v.close().expect("closed");
    drop(v);
    let recorder = Arc::new(RecordingDevice::new(&base));
    let v = open(recorder.clone());
    let log = Log { recorder: Some(recorder.clone()), ..Log::default() };
    run(&v, &log, 7, 60);
    assert!(v.stats().gc_foreground > 0, "nothing was cleaned");
    drop(v);
    judge_states(&recorder, log);
}

/// A device whose flushes take so long that fsyncs of other threads come meanwhile.
struct SlowFlush(Arc<RecordingDevice>);

impl BlockDevice for SlowFlush {
    fn block_count(&self) -> u64 {
        self.0.block_count()
    }
    fn read_only(&self) -> bool {
        self.0.read_only()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> std::io::Result<()> {
        self.0.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> std::io::Result<()> {
        self.0.write(addr, blocks, tag)
    }
    fn flush(&self) -> std::io::Result<()> {
        std::thread::sleep(Duration::from_millis(1));
        self.0.flush()
    }
    fn discard(&self, addr: u64, count: u64) -> std::io::Result<()> {
        self.0.discard(addr, count)
    }
}

/// Threads whose fsyncs share node blocks.
#[test]
fn crash_states_of_threads_on_deltas() {
    let base = formatted(64, DELTAS);
    let recorder = Arc::new(RecordingDevice::new(&base));
    let v = open(Arc::new(SlowFlush(recorder.clone())));
    let log = Log { recorder: Some(recorder.clone()), ..Log::default() };
    run(&v, &log, 7, 60);
    println!("{} inodes shared {} node blocks", v.stats().shared_inodes, v.stats().shared_nodes);
    assert!(v.stats().shared_inodes > 0, "no fsyncs met");
    drop(v);
    judge_states(&recorder, log);
}

/// Judges [`JUDGED`] crash states of what threads did, spread evenly: how many there are depends on the threads' pace.
fn judge_states(recorder: &RecordingDevice, log: Log) {
    let moments = log.moments.into_inner();
    let plan = CrashPlan { exhaustive: 4, samples: 1, seed: 5, ..CrashPlan::default() };
    let one_of = (recorder.recording().states(&plan).count() / JUDGED).max(1);
    let (mut judged, mut fsynced) = (0, 0);
    for state in recorder.recording().states(&plan).step_by(one_of) {
        let before = &moments[..state.last_mark().unwrap_or(0) as usize];
        let device = Arc::new(state.device());
        let look = || {
            let v = open(device.clone());
            judge(&v, before);
            v.close().expect("a recovered volume closes");
        };
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look)) {
            eprintln!("{state:?}");
            std::panic::resume_unwind(panic);
        }
        if judged % 16 == 0 {
            must_be_sound(&device);
        }
        judged += 1;
        fsynced += allowed(before).values().filter(|known| known.must_exist).count();
    }
    println!("{judged} states, {fsynced} fsynced files found in them");
    assert!(judged >= JUDGED && fsynced > judged, "{judged} states, {fsynced} fsynced files: too few");
}

/// Canary: a judge that is told of an fsync that never was finds fault.
#[test]
fn a_judge_of_threads_can_find_fault() {
    let device = Arc::new(formatted(64, FEATURE_SETS[1]).snapshot());
    let v = open(device);
    let log = Log::default();
    run(&v, &log, 3, 30);
    let mut moments = log.moments.into_inner();
    judge(&v, &moments);
    let known = allowed(&moments);
    let (file, _) = known.iter().find(|(_, known)| known.must_exist).expect("some file is there");
    moments.push((file.clone(), Moment::WriteBegins(9999)));
    moments.push((file.clone(), Moment::Fsynced));
    let judged = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| judge(&v, &moments)));
    assert!(judged.is_err(), "an older version passed for the fsynced one");
}
