//! What the engine's tests share: volumes in memory and short words for common steps.
#![allow(dead_code)]

use medfs::{Attr, Clock, FileKind, Files, Ino, ManualClock, MountOptions, NewFile, Timestamp, Volume};
use medfs_device::crash::{CrashPlan, RecordingDevice};
use medfs_device::{BlockDevice, MemDevice};
use medfs_format::superblock::Feature;
use medfs_mkfs::{MkfsOptions, format_volume};
use medfs_testkit::images::{FsckF2fs, FsckMedfs};
pub(crate) use medfs_testkit::images::{find, noise, occurrences};
use medfs_testkit::subject::Check;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Time at which the tests begin.
pub(crate) const START: Timestamp = Timestamp { secs: 1_700_000_000, nanos: 5 };

/// The features of a volume that keeps everything about an inode and its checksum.
pub(crate) fn all_features() -> Feature {
    Feature::EXTRA_ATTR
        | Feature::INODE_CHECKSUM
        | Feature::FLEXIBLE_INLINE_XATTR
        | Feature::INODE_CRTIME
        | Feature::SB_CHECKSUM
}

/// An empty volume in memory.
pub(crate) fn blank(mib: u64, features: Feature) -> MemDevice {
    let device = MemDevice::new(mib * 256);
    let options = MkfsOptions { features, discard: false, ..MkfsOptions::new([7; 16], START.secs) };
    format_volume(&device, &options).expect("a volume of this size can be made");
    device
}

/// An empty delta volume in memory.
pub(crate) fn blank_delta(mib: u64) -> MemDevice {
    delta_volume(mib, MkfsOptions::new([7; 16], START.secs))
}

/// An empty volume in memory that may hold deltas and compressed files.
pub(crate) fn blank_delta_and_compression(mib: u64) -> MemDevice {
    let features = all_features() | Feature::COMPRESSION;
    delta_volume(mib, MkfsOptions { features, ..MkfsOptions::new([7; 16], START.secs) })
}

fn delta_volume(mib: u64, options: MkfsOptions) -> MemDevice {
    let device = MemDevice::new(mib * 256);
    let options = MkfsOptions { deltas: true, discard: false, ..options };
    format_volume(&device, &options).expect("a volume of this size can be made");
    device
}

/// A file of so many pages of noise, durable.
pub(crate) fn noisy_file(v: &Volume, name: &str, pages: u64) -> (u32, Vec<u8>) {
    let f = file(v, v.root(), name);
    let content: Vec<u8> = (0..pages).flat_map(noise).collect();
    write(v, f, 0, &content);
    v.sync().expect("sync");
    (f, content)
}

/// Overwrites a few bytes, in the volume and in what is expected.
pub(crate) fn patch(v: &Volume, f: u32, content: &mut [u8], at: usize, bytes: &[u8]) {
    write(v, f, at as u64, bytes);
    content[at..at + bytes.len()].copy_from_slice(bytes);
}

/// Opens a volume with a clock that stands still.
pub(crate) fn open(device: impl BlockDevice + 'static) -> Volume {
    open_with(Arc::new(device), "", Arc::new(ManualClock::new(START)))
}

/// Opens a volume with options and a clock.
pub(crate) fn open_with(device: Arc<dyn BlockDevice>, options: &str, clock: Arc<dyn Clock>) -> Volume {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options are right");
    Volume::open(device, parsed, clock).expect("the volume opens")
}

/// A new file of some kind for root, mode 755 or 644.
pub(crate) fn new(kind: FileKind) -> NewFile {
    let perm = if kind == FileKind::Directory { 0o755 } else { 0o644 };
    NewFile { kind, perm, umask: 0, uid: 0, gid: 0, rdev: 0 }
}

/// Makes a regular file and keeps the hold on it.
pub(crate) fn file(v: &Volume, parent: Ino, name: &str) -> Ino {
    v.create(parent, name.as_bytes(), &new(FileKind::Regular)).unwrap_or_else(|e| panic!("{name}: {e}")).ino
}

/// Makes a directory and keeps the hold on it.
pub(crate) fn dir(v: &Volume, parent: Ino, name: &str) -> Ino {
    v.create(parent, name.as_bytes(), &new(FileKind::Directory)).unwrap_or_else(|e| panic!("{name}: {e}")).ino
}

/// The attributes of a path below the root, where it exists; holds nothing.
pub(crate) fn at(v: &Volume, path: &str) -> Option<Attr> {
    let mut found = v.getattr(v.root()).expect("the root has attributes");
    for name in path.split('/').filter(|n| !n.is_empty()) {
        match v.lookup(found.ino, name.as_bytes()) {
            Ok(next) => {
                v.release(next.ino, 1);
                found = next;
            }
            Err(e) if e.errno() == 2 => return None,
            Err(e) => panic!("{path}: {e}"),
        }
    }
    Some(found)
}

/// The whole content of a file.
pub(crate) fn content(v: &Volume, ino: Ino) -> Vec<u8> {
    let mut bytes = vec![0; v.getattr(ino).expect("attributes").size as usize];
    let mut done = 0;
    while done < bytes.len() {
        match v.read(ino, done as u64, &mut bytes[done..]).expect("the file reads") {
            0 => panic!("the file ends at {done} of {}", bytes.len()),
            n => done += n,
        }
    }
    bytes
}

/// Writes all of it.
pub(crate) fn write(v: &Volume, ino: Ino, offset: u64, data: &[u8]) {
    assert_eq!(v.write(ino, offset, data).expect("written"), data.len());
}

/// The names in a directory, without `.` and `..`, sorted.
pub(crate) fn names(v: &Volume, ino: Ino) -> Vec<String> {
    let mut names = Vec::new();
    v.readdir(ino, 0, &mut |entry| {
        names.push(String::from_utf8_lossy(&entry.name).into_owned());
        true
    })
    .expect("the directory reads");
    names.retain(|n| n != "." && n != "..");
    names.sort();
    names
}

/// A clock on which some milliseconds pass from one look to the next: fsyncs find times a tick later, or less.
struct TickingClock(ManualClock);

impl Clock for TickingClock {
    fn now(&self) -> Timestamp {
        self.0.advance(Duration::from_millis(3));
        self.0.now()
    }
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }
}

/// Runs a workload and shows the judge every crash state; returns how many there were. With `options` of `mount`.
pub(crate) fn crash(
    base: &MemDevice,
    options: &str,
    workload: impl FnOnce(&Volume, &dyn Fn(u64)),
    judge: impl Fn(&Volume, u64),
) -> usize {
    let recorder = Arc::new(RecordingDevice::new(base));
    let volume = open_with(recorder.clone(), options, Arc::new(TickingClock(ManualClock::new(START))));
    workload(&volume, &|mark| recorder.mark(mark));
    drop(volume);
    let plan = CrashPlan { exhaustive: 32, samples: 12, seed: 11, ..CrashPlan::default() };
    let mut states = 0;
    for state in recorder.recording().states(&plan) {
        let name = format!("{state:?}");
        let shown = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let volume = open_with(Arc::new(state.device()), options, Arc::new(ManualClock::new(START)));
            judge(&volume, state.last_mark().unwrap_or(0));
            volume.close().expect("a recovered volume closes");
        }));
        if let Err(panic) = shown {
            eprintln!("seed {}: {name}", plan.seed);
            std::panic::resume_unwind(panic);
        }
        states += 1;
    }
    assert!(states > 10, "only {states} crash states: the workload wrote nothing");
    states
}

/// A page that says which version it is.
pub(crate) fn page(version: u8) -> Vec<u8> {
    vec![version; PAGE]
}

/// The one value all bytes of a page have; a mixture fails.
pub(crate) fn version(page: &[u8]) -> u8 {
    assert!(page.iter().all(|b| *b == page[0]), "a page is a mixture");
    page[0]
}

/// Volumes without any feature and with all of them.
pub(crate) fn bases() -> [MemDevice; 2] {
    [blank(64, Feature::empty()), blank(64, all_features())]
}

/// Opens a volume that stays in memory.
pub(crate) fn open_device(device: &Arc<MemDevice>, options: &str) -> Volume {
    open_with(device.clone(), options, Arc::new(ManualClock::new(START)))
}

/// Both checkers find nothing.
#[track_caller]
pub(crate) fn judge(device: &Arc<MemDevice>) {
    FsckMedfs.check(device.clone()).unwrap_or_else(|e| panic!("fsck.medfs: {e}"));
    FsckF2fs.check(device.clone()).unwrap_or_else(|e| panic!("fsck.f2fs: {e}"));
}

/// xorshift: small, and the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// File `f` has moved: blocks that it left are free for others after a checkpoint alone, so that every crash
/// shows it with its content.
pub(crate) fn crashes_show_what_moved(v: Volume, recorder: &RecordingDevice, f: Ino, expected: &[u8]) {
    let mut other = noisy_file(&v, "g", 3);
    v.fsync(f, false).expect("fsync");
    patch(&v, other.0, &mut other.1, 5, b"more");
    v.fsync(other.0, false).expect("fsync");
    v.sync().expect("sync");
    drop(v);
    let plan = CrashPlan { exhaustive: 64, samples: 24, seed: 5, ..CrashPlan::default() };
    let mut states = 0;
    for state in recorder.recording().states(&plan) {
        let v = open(state.device());
        let f = at(&v, "f").expect("the file").ino;
        assert!(content(&v, f) == expected, "seed {}: {state:?}", plan.seed);
        states += 1;
    }
    assert!(states > 20, "only {states} states");
}

/// What is found after a crash now: the first byte of each of these files.
pub(crate) fn found<const N: usize>(device: &MemDevice, files: [Ino; N]) -> [u8; N] {
    let v = open_device(&Arc::new(device.snapshot()), "");
    files.map(|f| content(&v, f)[0])
}

/// Two files of ones, durable.
pub(crate) fn two_files(v: &Volume) -> [Ino; 2] {
    let files = ["a", "b"].map(|name| file(v, v.root(), name));
    files.iter().for_each(|&f| write(v, f, 0, &[1; PAGE]));
    v.sync().unwrap();
    files
}
