//! How long reading takes where pages are inline deltas, against where they are not, and how long fsyncs take: the worst
//! against the median (MedFS, sections 6.2.5 and 6.4). In this process, both sides in one run: on a device in memory,
//! where what the engine does is all that counts, and on one whose reads take as long as a fast card's.
//!
//! `cargo bench -p medfs --bench latency`

use medfs::{FileKind, Ino, MountOptions, NewFile, SystemClock, Volume};
use medfs_device::{BlockDevice, MemDevice, WriteTag};
use medfs_format::Block;
use medfs_mkfs::{MkfsOptions, format_volume};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Pages of the file: 1 MiB, as in the paper.
const PAGES: usize = 256;
/// Reads that are measured, each of one page.
const READS: usize = 4000;
/// What a read of a fast card takes.
const CARD_READ: Duration = Duration::from_micros(100);
/// fsyncs that are measured.
const FSYNCS: usize = 2000;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// A device whose reads take time.
struct Card(Arc<MemDevice>);

impl BlockDevice for Card {
    fn block_count(&self) -> u64 {
        self.0.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        let started = Instant::now();
        self.0.read(addr, blocks)?;
        while started.elapsed() < CARD_READ {
            std::hint::spin_loop();
        }
        Ok(())
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.0.write(addr, blocks, tag)
    }
    fn flush(&self) -> io::Result<()> {
        self.0.flush()
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.0.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        self.0.read_only()
    }
}

fn blank() -> Arc<MemDevice> {
    let device = MemDevice::new(64 * 256);
    let options = MkfsOptions { deltas: true, discard: false, ..MkfsOptions::new([7; 16], 1_700_000_000) };
    format_volume(&device, &options).expect("a volume of 64 MiB can be made");
    Arc::new(device)
}

fn open(device: Arc<dyn BlockDevice>, options: &str) -> Volume {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options are right");
    Volume::open(device, parsed, Arc::new(SystemClock)).expect("the volume opens")
}

fn find(v: &Volume) -> Ino {
    v.lookup(v.root(), b"f").expect("the file").ino
}

fn new_file(v: &Volume) -> Ino {
    let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let f = v.create(v.root(), b"f", &new).expect("a new file").ino;
    let mut random = Random(88_172_645_463_325_252);
    let content: Vec<u8> = (0..PAGES * PAGE).map(|_| random.below(256) as u8).collect();
    v.write(f, 0, &content).expect("written");
    v.sync().expect("sync");
    f
}

/// A volume with the file, of whose pages `percent` were updated by `bytes` bytes each: by deltas, or with `delta=off`.
fn updated(delta: &str, percent: usize, bytes: usize) -> (Arc<MemDevice>, u64) {
    let device = blank();
    let v = open(device.clone(), &format!("delta={delta}"));
    let f = new_file(&v);
    for n in 0..PAGES * percent / 100 {
        let page = n * 100 / percent;
        v.write(f, (page * PAGE + n % 1000) as u64, &vec![n as u8 | 1; bytes]).expect("written");
        v.fsync(f, false).expect("fsync");
    }
    let deltas = v.stats().zones.deltas;
    v.close().expect("close");
    (device, deltas)
}

/// Mean nanoseconds to read a page that is not in memory, while its inode is: each page once, of volumes just opened.
fn cold(device: Arc<dyn BlockDevice>, rounds: usize) -> f64 {
    let mut page = vec![0; PAGE];
    let mut spent = Duration::ZERO;
    for round in 0..rounds {
        let v = open(device.clone(), "delta=off,ro,noatime");
        let f = find(&v);
        v.getattr(f).expect("attributes");
        let started = Instant::now();
        for n in 0..PAGES {
            let at = (n * 89 + round) % PAGES;
            v.read(f, (at * PAGE) as u64, &mut page).expect("read");
        }
        spent += started.elapsed();
    }
    spent.as_nanos() as f64 / (rounds * PAGES) as f64
}

/// Mean nanoseconds to read a page that is in memory.
fn warm(device: Arc<dyn BlockDevice>) -> f64 {
    let mut page = vec![0; PAGE];
    let v = open(device, "delta=off,ro,noatime");
    let f = find(&v);
    for n in 0..PAGES {
        v.read(f, (n * PAGE) as u64, &mut page).expect("read");
    }
    let mut random = Random(1);
    let started = Instant::now();
    for _ in 0..READS {
        v.read(f, (random.below(PAGES) * PAGE) as u64, &mut page).expect("read");
    }
    started.elapsed().as_nanos() as f64 / READS as f64
}

/// Cold in memory, cold on a card, warm: the better ones of three in turn, as what else the machine does hits all alike.
fn reads(device: &Arc<MemDevice>) -> [f64; 3] {
    let mut best = [f64::MAX; 3];
    for _ in 0..3 {
        let now = [cold(device.clone(), 8), cold(Arc::new(Card(device.clone())), 1), warm(device.clone())];
        best = std::array::from_fn(|n| best[n].min(now[n]));
    }
    best
}

fn read_table() {
    println!("Mean latency of reading a page of a file of {PAGES} pages, us: with deltas / without = ratio");
    println!(
        "{:>7} {:>5} {:>6}  {:^24}  {:^24}  {:^24}",
        "updated", "bytes", "deltas", "cold, memory", "cold, card of 100 us", "warm"
    );
    for percent in [20, 40, 60, 80] {
        for bytes in [8, 100] {
            let (with, deltas) = updated("inline", percent, bytes);
            let (without, _) = updated("off", percent, bytes);
            let (w, o) = (reads(&with), reads(&without));
            let cell = |n: usize| format!("{:>7.2} / {:>6.2} = {:>4.1}", w[n] / 1e3, o[n] / 1e3, w[n] / o[n]);
            println!(
                "{percent:>6}% {bytes:>5} {deltas:>6}  {:^24}  {:^24}  {:^24}",
                cell(0),
                cell(1),
                cell(2)
            );
        }
    }
}

/// Times of fsyncs that each follow small updates of some pages, sorted.
fn fsyncs(delta: &str, bytes: usize) -> Vec<Duration> {
    let v = open(blank(), &format!("delta={delta}"));
    let f = new_file(&v);
    let mut random = Random(5);
    let mut times: Vec<Duration> = (0..FSYNCS)
        .map(|n| {
            for _ in 0..4 {
                let at = random.below(PAGES) * PAGE + random.below(PAGE - bytes);
                let change: Vec<u8> = (0..bytes).map(|_| random.below(256) as u8).collect();
                v.write(f, at as u64, &change).expect("written");
            }
            // Now and then the file grows, and deltas give way to addresses.
            if n % 8 == 7 {
                let end = v.getattr(f).expect("attributes").size;
                v.write(f, end, &vec![n as u8; PAGE]).expect("written");
            }
            let started = Instant::now();
            v.fsync(f, false).expect("fsync");
            started.elapsed()
        })
        .collect();
    times.sort_unstable();
    times
}

fn fsync_table() {
    println!("\nfsyncs of four small updates and now and then a new page, us");
    println!(
        "{:>8} {:>8} {:>10} {:>10} {:>10} {:>14}",
        "delta", "bytes", "median", "99%", "worst", "worst/median"
    );
    for bytes in [8, 100, 200] {
        for delta in ["off", "inline"] {
            let times = fsyncs(delta, bytes);
            let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_nanos() as f64 / 1e3;
            let (median, worst) = (at(0.5), at(1.0));
            println!(
                "{delta:>8} {bytes:>8} {median:>10.1} {:>10.1} {worst:>10.1} {:>14.1}",
                at(0.99),
                worst / median
            );
        }
    }
}

fn main() {
    read_table();
    fsync_table();
}
