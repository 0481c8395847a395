//! What an operation costs as the work around it grows: compact pages of its file, files that wait to be
//! written, pages in the cache, transactions before it. Processor time of this thread, and blocks that are read
//! and written, on devices in memory. A cost that does not grow has the same numbers in each row; the last
//! column is the time against the first row's.
//!
//! `cargo bench -p medfs --bench growth`; `-- PART` runs the curves whose names have it.

use medfs::{FileKind, Files, Ino, ManualClock, MountOptions, NewFile, SetAttr, Timestamp, Volume};
use medfs_device::MemDevice;
use medfs_device::count::CountingDevice;
use medfs_mkfs::{MkfsOptions, format_volume};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 4096;

struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.below(256) as u8).collect()
    }
}

/// Processor time of this thread, in microseconds.
fn processor() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e6 + now.tv_nsec as f64 / 1e3
}

struct Mounted {
    v: Volume,
    clock: Arc<ManualClock>,
    device: Arc<CountingDevice<MemDevice>>,
}

impl Mounted {
    fn new(mib: u64, options: &str) -> Mounted {
        let device = MemDevice::new(mib * 256);
        let made = MkfsOptions { deltas: true, discard: false, ..MkfsOptions::new([7; 16], 1_700_000_000) };
        format_volume(&device, &made).expect("a volume can be made");
        let mut parsed = MountOptions::default();
        parsed.parse(options).expect("options are right");
        let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
        let device = Arc::new(CountingDevice::new(device));
        let v = Volume::open(device.clone(), parsed, clock.clone()).expect("the volume opens");
        Mounted { v, clock, device }
    }

    fn create(&self, dir: Ino, name: &str) -> Ino {
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        self.v.create(dir, name.as_bytes(), &new).expect("a new file").ino
    }

    fn dir(&self, name: &str) -> Ino {
        let new = NewFile { kind: FileKind::Directory, perm: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
        self.v.create(self.v.root(), name.as_bytes(), &new).expect("a new directory").ino
    }

    fn write(&self, f: Ino, at: u64, bytes: &[u8]) {
        self.clock.advance(Duration::from_millis(20));
        self.v.write(f, at, bytes).expect("written");
    }

    fn fsync(&self, f: Ino) {
        self.v.fsync(f, true).expect("fsync");
    }

    /// A file of pages that no codec makes smaller, all of them durable.
    fn file(&self, name: &str, pages: u64) -> Ino {
        let f = self.create(self.v.root(), name);
        let mut random = Random(88_172_645_463_325_252);
        for run in 0..pages / 64 {
            self.write(f, run * 64 * PAGE as u64, &random.bytes(64 * PAGE));
        }
        self.v.sync().expect("sync");
        f
    }

    /// What `times` calls cost: microseconds, blocks read and blocks written, for each.
    fn cost(&self, times: u64, mut call: impl FnMut(u64)) -> Cost {
        let blocks = || {
            let counts = self.device.counts();
            (counts.blocks_read, counts.blocks_written())
        };
        let (start, before) = (processor(), blocks());
        (0..times).for_each(&mut call);
        let (end, after) = (processor(), blocks());
        let each = |a: u64, b: u64| (b - a) as f64 / times as f64;
        Cost {
            us: (end - start) / times as f64,
            read: each(before.0, after.0),
            written: each(before.1, after.1),
        }
    }
}

struct Cost {
    us: f64,
    read: f64,
    written: f64,
}

/// A curve: the size of what grows, and what a call costs then.
type Curve = Vec<(u64, Cost)>;

/// fsyncs of eight changed pages in a file of 156 MiB, of which ever more are deltas in compact pages.
fn compact_pages() -> Curve {
    let on = Mounted::new(1024, "compact_files=all,cache=256M");
    let pages = 40_000;
    let f = on.file("x.db", pages);
    let mut random = Random(5);
    let round = |_| {
        for _ in 0..8 {
            on.write(f, random.below(pages) * PAGE as u64 + 100, &random.bytes(300));
        }
        on.fsync(f);
    };
    let mut round = round;
    (0..6)
        .map(|_| {
            let cost = on.cost(1000, &mut round);
            (on.v.stats().deltas.compact_pages, cost)
        })
        .collect()
}

/// Files that are made and written, while those before them wait for writeback.
fn dirty_files() -> Curve {
    let on = Mounted::new(2048, "cache=1G");
    let dirs: Vec<Ino> = (0..64).map(|n| on.dir(&format!("d{n}"))).collect();
    let page = vec![1; PAGE];
    let make = |n: u64| {
        let f = on.create(dirs[n as usize % 64], &n.to_string());
        on.write(f, 0, &page);
        on.v.release(f, 1);
    };
    (0..9).map(|step| ((step + 1) * 10_000, on.cost(10_000, |n| make(step * 10_000 + n)))).collect()
}

/// A file of 16 pages that is cut off and written again, beside ever more pages in the cache.
fn cached_pages() -> Curve {
    let on = Mounted::new(2048, "cache=1G");
    let small = on.file("small", 64);
    let large = on.create(on.v.root(), "large");
    let empty = SetAttr { size: Some(0), ..SetAttr::default() };
    let content = vec![7; 16 * PAGE];
    (0..6)
        .map(|step: u64| {
            for run in 0..if step == 0 { 16 } else { 512 } {
                on.write(large, (step * 512 + run) * 64 * PAGE as u64, &vec![step as u8 + 1; 64 * PAGE]);
            }
            on.v.sync().expect("sync");
            let cost = on.cost(2000, |_| {
                on.v.setattr(small, &empty).expect("cut off");
                on.write(small, 0, &content);
            });
            ((step * 512 + 16) * 64, cost)
        })
        .collect()
}

/// Transactions of a log that is copied into its database of 400,000 records now and then, one after another.
fn transactions() -> Curve {
    let on = Mounted::new(1024, "");
    let (pages, mut random) = (12_000, Random(11));
    let (database, log) = (on.file("a.db", pages), on.create(on.v.root(), "a.db-wal"));
    let mut transaction = |n: u64| {
        let at = (n % 250) * 4;
        for frame in 0..4 {
            let mut content = vec![0; PAGE];
            on.v.read(database, random.below(pages) * PAGE as u64, &mut content).expect("read");
            content[200..300].copy_from_slice(&random.bytes(100));
            on.write(log, (at + frame) * 4120, &content);
        }
        on.fsync(log);
        if n % 250 == 249 {
            (0..200).for_each(|_| {
                on.write(database, random.below(pages) * PAGE as u64 + 200, &random.bytes(100))
            });
            on.fsync(database);
        }
    };
    (0..10).map(|step| ((step + 1) * 1000, on.cost(1000, |n| transaction(step * 1000 + n)))).collect()
}

/// Name, what grows, and the measurement.
type Measured = (&'static str, &'static str, fn() -> Curve);
const CURVES: [Measured; 4] = [
    ("fsync of 8 pages", "compact pages written", compact_pages),
    ("create and write", "files", dirty_files),
    ("cut off and write 16 pages", "pages in the cache", cached_pages),
    ("transaction of 4 frames", "transactions", transactions),
];

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    for (name, what, measure) in CURVES.iter().filter(|(name, ..)| name.contains(&wanted)) {
        println!(
            "\n{name}\n{what:>24} {:>10} {:>12} {:>15} {:>8}",
            "us", "blocks read", "blocks written", "of first"
        );
        let curve = measure();
        let first = curve[0].1.us;
        for (size, Cost { us, read, written }) in &curve {
            println!("{size:>24} {us:>10.1} {read:>12.2} {written:>15.2} {:>8.2}", us / first);
        }
    }
}
