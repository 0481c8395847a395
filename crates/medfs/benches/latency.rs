//! How long reading takes where files have deltas, against where they have none, and how long fsyncs take:
//! the worst against the median (MedFS, sections 6.2.5 and 6.4). In this process, on devices in memory: the
//! engine's time is that of the processor, and what is asked of the device is counted and priced as a card's.
//! Both sides take turns, round by round, and the ratios are medians of the rounds', so that what else the
//! machine does cancels out.
//!
//! `cargo bench -p medfs --bench latency`; `-- nvram` compares fsyncs beside an NVRAM alone.

use medfs::{
    FileKind, Files, Ino, ManualClock, MountOptions, NewFile, Stats, Timestamp, Volume, XattrMode,
    open_with_nvram,
};
use medfs_device::count::{CountingDevice, IoCounts};
use medfs_device::{MemDevice, MemNvram};
use medfs_mkfs::{MkfsOptions, format_volume};
use rustix::time::{ClockId, clock_gettime};
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 4096;
/// Pages of the file: 1 MiB, as in the paper.
const PAGES: usize = 256;
/// Rounds in which both sides are measured.
const ROUNDS: usize = 21;
/// Updated pages to an fsync: enough for a compact page.
const TOGETHER: usize = 8;
/// fsyncs that are measured.
const FSYNCS: usize = 2000;
/// Bytes of a small change.
const SMALL: usize = 100;
/// What a card takes for a request, and for each block of it, in microseconds.
const CARD: (f64, f64) = (80.0, 10.0);
/// Bytes of a request of one who reads a whole file.
const REQUEST: usize = 128 << 10;

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
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

fn blank() -> Arc<MemDevice> {
    let device = MemDevice::new(64 * 256);
    let options = MkfsOptions { deltas: true, discard: false, ..MkfsOptions::new([7; 16], 1_700_000_000) };
    format_volume(&device, &options).expect("a volume of 64 MiB can be made");
    Arc::new(device)
}

/// A volume with a clock of its own, whose every write comes so much later than the last that it sets other times.
struct Mounted {
    v: Volume,
    clock: Arc<ManualClock>,
    counts: Arc<CountingDevice<Arc<MemDevice>>>,
}

fn open(device: &Arc<MemDevice>, options: &str) -> Mounted {
    open_beside(device, options, None)
}

/// The same beside an NVRAM of so many bytes.
fn open_beside(device: &Arc<MemDevice>, options: &str, nvram: Option<u64>) -> Mounted {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("options are right");
    let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
    let counts = Arc::new(CountingDevice::new(device.clone()));
    let v = match nvram {
        Some(bytes) => open_with_nvram(counts.clone(), Arc::new(MemNvram::new(bytes)), parsed, clock.clone()),
        None => Volume::open(counts.clone(), parsed, clock.clone()),
    };
    Mounted { v: v.expect("the volume opens"), clock, counts }
}

impl Mounted {
    fn create(&self, name: &[u8]) -> Ino {
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        self.v.create(self.v.root(), name, &new).expect("a new file").ino
    }

    fn find(&self) -> Ino {
        self.v.lookup(self.v.root(), b"f").expect("the file").ino
    }

    fn new_file(&self) -> Ino {
        let f = self.create(b"f");
        let content = Random(88_172_645_463_325_252).bytes(PAGES * PAGE);
        self.v.write(f, 0, &content).expect("written");
        self.v.sync().expect("sync");
        f
    }

    fn write(&self, f: Ino, at: usize, bytes: &[u8]) {
        self.clock.advance(Duration::from_millis(20));
        self.v.write(f, at as u64, bytes).expect("written");
    }

    fn idle(&self) {
        for _ in 0..30 {
            self.clock.advance(Duration::from_secs(1));
            self.v.background().expect("background");
        }
    }
}

/// What becomes of a file after its pages were updated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Nothing,
    /// It is read often, and then nothing is wanted for a while: BGRes has its time.
    ReadAndIdle,
}

/// A volume with the file, of whose pages `percent` were updated by `bytes` bytes each, its inline deltas at
/// the end, the compact pages that were written, the pages that were restored and those moved with them; and
/// the blocks that all of this wrote.
fn updated(options: &str, percent: usize, bytes: usize, then: Then) -> (Arc<MemDevice>, String) {
    let device = blank();
    let m = open(&device, options);
    let f = m.new_file();
    let written = m.counts.counts().blocks_written();
    let mut random = Random(3);
    for n in 0..PAGES * percent / 100 {
        let page = n * 100 / percent;
        m.write(f, page * PAGE + n % 1000, &random.bytes(bytes));
        if n % TOGETHER == TOGETHER - 1 {
            m.v.fsync(f, false).expect("fsync");
        }
    }
    m.v.fsync(f, false).expect("fsync");
    if then == Then::ReadAndIdle {
        m.clock.advance(Duration::from_secs(600));
        m.v.background().expect("background");
        // What one file is, is told by what others are.
        let other = m.create(b"written");
        for n in 0..400 {
            m.v.write(other, (n % 64 * PAGE) as u64, &[n as u8; PAGE]).expect("written");
            m.v.read(f, (n % PAGES * PAGE) as u64, &mut [0; PAGE]).expect("read");
        }
        m.idle();
        m.idle();
        m.v.unlink(m.v.root(), b"written").expect("unlink");
    }
    let Stats { zones, deltas, restored, .. } = m.v.stats();
    m.v.close().expect("close");
    let written = m.counts.counts().blocks_written() - written;
    let pages = format!("{}/{}/{}/{}", zones.deltas, deltas.compact_pages, restored.pages, restored.moved);
    (device, format!("{pages:>12} {written:>6}"))
}

/// How the file is read.
#[derive(Debug, Clone, Copy)]
enum Reading {
    /// Whole, in order, in large requests, after the volume was opened: nothing is in memory.
    File,
    /// Page by page out of order, after the volume was opened.
    Pages,
    /// Page by page out of order, all of it in memory.
    Warm,
}

/// What reading the file once took: the engine's microseconds, and what the device had to do.
fn cost_of(device: &Arc<MemDevice>, reading: Reading) -> (f64, IoCounts) {
    let m = open(device, "ro,noatime");
    let f = m.find();
    let mut request = vec![0; REQUEST];
    let mut read = |at: usize, len: usize| {
        m.v.read(f, at as u64, &mut request[..len]).expect("read");
    };
    if let Reading::Warm = reading {
        (0..PAGES).for_each(|n| read(n * PAGE, PAGE));
    }
    let (started, before) = (processor(), m.counts.counts());
    match reading {
        Reading::File => (0..PAGES * PAGE).step_by(REQUEST).for_each(|at| read(at, REQUEST)),
        Reading::Pages => (0..PAGES).for_each(|n| read(n * 89 % PAGES * PAGE, PAGE)),
        Reading::Warm => (0..16 * PAGES).for_each(|n| read(n * 89 % PAGES * PAGE, PAGE)),
    }
    (processor() - started, m.counts.counts() - before)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// With deltas against without: the ratio of the engine's time, of that on a card, requests of both; all of `reading`.
fn compare(with: &Arc<MemDevice>, without: &Arc<MemDevice>, reading: Reading) -> (f64, f64, [u64; 2]) {
    let (mut engine, mut card, mut requests) = (Vec::new(), Vec::new(), [0; 2]);
    for _ in 0..ROUNDS {
        let sides = [cost_of(with, reading), cost_of(without, reading)];
        let priced = sides.map(|(us, io)| us + io.reads as f64 * CARD.0 + io.blocks_read as f64 * CARD.1);
        engine.push(sides[0].0 / sides[1].0);
        card.push(priced[0] / priced[1]);
        requests = sides.map(|(_, io)| io.reads);
    }
    (median(engine), median(card), requests)
}

const READINGS: [Reading; 3] = [Reading::File, Reading::Pages, Reading::Warm];

fn read_row(
    name: &str,
    percent: usize,
    bytes: usize,
    with: &(Arc<MemDevice>, String),
    card: &mut [Vec<f64>; 3],
) {
    let (without, _) = updated("delta=off", percent, bytes, Then::Nothing);
    print!("{name:<14} {percent:>6}% {bytes:>5} {:>19}", with.1);
    for (reading, means) in READINGS.into_iter().zip(card) {
        let (engine, priced, [a, b]) = compare(&with.0, &without, reading);
        match reading {
            Reading::Warm => print!("   {engine:>5.2}"),
            _ => print!("   {priced:>5.3} {engine:>5.2} {:>9}", format!("{a}/{b}")),
        }
        means.push(if let Reading::Warm = reading { engine } else { priced });
    }
    println!();
}

fn read_table() {
    println!(
        "Reading a file of {PAGES} pages: ratio of the time with deltas to that without, medians of {ROUNDS} rounds in turn."
    );
    println!(
        "card: with {} us for a request and {} for a block; engine: its processor time; requests to the device;\n\
         deltas: in the inode, compact pages written, pages restored, and moved with these; written: blocks, by all of it.",
        CARD.0, CARD.1
    );
    println!(
        "{:<14} {:>7} {:>5} {:>12} {:>6}   {:^21}   {:^21}   {:>5}",
        "", "updated", "bytes", "deltas", "written", "whole file, cold", "pages, cold", "warm"
    );
    println!(
        "{:<48}   {:>5} {:>5} {:>9}   {:>5} {:>5} {:>9}   {:>5}",
        "", "card", "engine", "requests", "card", "engine", "requests", "engine"
    );
    let compact = "delta=compact,compact_files=all";
    for (name, options, then) in [
        ("inline", "delta=inline", Then::Nothing),
        ("compact", compact, Then::Nothing),
        ("compact, BGRes", compact, Then::ReadAndIdle),
    ] {
        let mut means = [const { Vec::new() }; 3];
        for percent in [20, 40, 60, 80] {
            for bytes in [8, 100] {
                let with = updated(options, percent, bytes, then);
                read_row(name, percent, bytes, &with, &mut means);
            }
        }
        let [file, pages, warm] = means.map(|m| m.iter().sum::<f64>() / m.len() as f64);
        println!("{name:<14} mean: whole file {file:.3}, pages {pages:.3} on a card; warm {warm:.3}\n");
    }
}

/// What an fsync cost: the engine's microseconds, and blocks.
#[derive(Debug, Clone, Copy)]
struct Cost {
    us: f64,
    blocks: u64,
    /// With what a card takes for its requests, of which a flush is one, and blocks.
    card: f64,
}

fn fsync(m: &Mounted, f: Ino) -> Cost {
    let (started, before) = (processor(), m.counts.counts());
    m.v.fsync(f, false).expect("fsync");
    let (us, io) = (processor() - started, m.counts.counts() - before);
    let requests = io.reads + io.writes() + io.flushes;
    let moved = io.blocks_read + io.blocks_written();
    Cost { us, blocks: io.blocks_written(), card: us + requests as f64 * CARD.0 + moved as f64 * CARD.1 }
}

/// Changes four pages a little.
fn update_four(m: &Mounted, f: Ino, random: &mut Random, bytes: usize) {
    for _ in 0..4 {
        let at = random.below(PAGES) * PAGE + random.below(PAGE - bytes);
        m.write(f, at, &random.bytes(bytes));
    }
}

/// fsyncs that each follow small updates of some pages.
fn growing(options: &str, bytes: usize) -> Vec<Cost> {
    let m = open(&blank(), options);
    let f = m.new_file();
    let mut random = Random(5);
    let fsyncs = (0..FSYNCS).map(|n| {
        update_four(&m, f, &mut random, bytes);
        // Now and then the file grows, and deltas give way to addresses.
        if n % 8 == 7 {
            let end = m.v.getattr(f).expect("attributes").size;
            m.write(f, end as usize, &vec![n as u8; PAGE]);
        }
        fsync(&m, f)
    });
    fsyncs.collect()
}

/// The same, and again and again all of what is in the zone has to leave it: for an attribute that needs its room.
fn evicting(options: &str, bytes: usize) -> Vec<Cost> {
    let m = open(&blank(), options);
    let f = m.new_file();
    let mut random = Random(5);
    let fsyncs = (0..FSYNCS / 10).map(|n| {
        update_four(&m, f, &mut random, bytes);
        match n % 100 {
            49 => m.v.setxattr(f, b"user.large", &[n as u8; 3000], XattrMode::Set).expect("an attribute"),
            99 => m.v.removexattr(f, b"user.large").expect("an attribute less"),
            _ => {}
        }
        fsync(&m, f)
    });
    fsyncs.collect()
}

/// The same, and the file's last page that its inode can name gets a block, so that all deltas give way to addresses.
fn jumping(options: &str, bytes: usize) -> Vec<Cost> {
    const LAST: usize = 860;
    let fsyncs = (0..20).flat_map(|round| {
        let m = open(&blank(), options);
        let f = m.new_file();
        let mut random = Random(5 + round);
        let fsyncs = (0..80).map(|n| {
            update_four(&m, f, &mut random, bytes);
            if n == 70 {
                m.write(f, LAST * PAGE, &[1; PAGE]);
            }
            fsync(&m, f)
        });
        fsyncs.collect::<Vec<_>>()
    });
    fsyncs.collect()
}

fn fsync_row(what: &str, options: &str, bytes: usize, fsyncs: &[Cost]) {
    let sorted = |value: fn(&Cost) -> f64| {
        let mut values: Vec<f64> = fsyncs.iter().map(value).collect();
        values.sort_unstable_by(f64::total_cmp);
        let at = |part: f64| values[((values.len() - 1) as f64 * part) as usize];
        [at(0.5), at(0.99), at(1.0)]
    };
    print!("{what:<9} {options:<13} {bytes:>5}");
    for [median, most, worst] in [sorted(|c| c.blocks as f64), sorted(|c| c.us), sorted(|c| c.card)] {
        print!("   {median:>6.0} {most:>5.0} {worst:>5.0} {:>5.1}", worst / median);
    }
    println!();
}

/// fsyncs of a kind, with mount options and the bytes that each update changes.
type Fsyncs = fn(&str, usize) -> Vec<Cost>;

fn fsync_table() {
    println!(
        "fsyncs of four small updates: blocks written, the engine's time in us, and that with the card's"
    );
    println!("{:<29}   {:^24}   {:^24}   {:^24}", "", "blocks", "engine", "card");
    let columns = format!("   {:>6} {:>5} {:>5} {:>5}", "median", "99%", "worst", "ratio");
    println!("{:<9} {:<13} {:>5}{columns}{columns}{columns}", "", "", "bytes");
    let runs: [(&str, Fsyncs); 3] = [("growing", growing), ("attribute", evicting), ("jumping", jumping)];
    for (what, run) in runs {
        for options in ["delta=off", "delta=inline", "delta=full"] {
            for bytes in [8, 100, 200] {
                fsync_row(what, options, bytes, &run(options, bytes));
            }
        }
    }
}

/// fsyncs of one small change each, on volumes that take turns.
fn in_turn(sides: &[(Mounted, Ino)], rounds: usize) -> Vec<Vec<f64>> {
    let mut random = Random(9);
    let mut times = vec![Vec::new(); sides.len()];
    for _ in 0..rounds {
        for ((m, f), times) in sides.iter().zip(&mut times) {
            // The first ones of a turn find nothing of the volume in the processor's caches.
            for _ in 0..500 {
                let at = random.below(PAGES) * PAGE + random.below(PAGE - SMALL);
                m.write(*f, at, &random.bytes(SMALL));
                times.push(fsync(m, *f).us);
            }
            m.v.background().expect("background");
        }
    }
    times.iter_mut().for_each(|times| times.sort_unstable_by(f64::total_cmp));
    times
}

fn nvram_table() {
    println!("\nfsyncs of {SMALL} changed bytes, in turn, all devices in memory: the engine's time in us");
    println!(
        "{:<28} {:>7} {:>7} {:>7}   {:>9} {:>5} {:>11} {:>14}",
        "", "median", "99%", "worst", "delta=off", "99%", "checkpoints", "bytes a record"
    );
    let sides = [
        ("delta=off", "delta=off", None),
        ("nvram=, 64 MiB, delta=off", "delta=off", Some(64 << 20)),
        ("nvram=, 64 MiB", "delta=full", Some(64 << 20)),
        ("nvram=, 1 MiB", "delta=full", Some(1 << 20)),
    ];
    let mounted = sides.map(|(_, options, nvram)| {
        let m = open_beside(&blank(), options, nvram);
        let f = m.new_file();
        (m, f)
    });
    let times = in_turn(&mounted, 40);
    let at = |times: &[f64], part: f64| times[((times.len() - 1) as f64 * part) as usize];
    for (((name, ..), (m, _)), of) in sides.iter().zip(&mounted).zip(&times) {
        let [median, most, worst] = [0.5, 0.99, 1.0].map(|part| at(of, part));
        print!("{name:<28} {median:>7.1} {most:>7.1} {worst:>7.0}");
        print!("   {:>9.2} {:>5.2}", median / at(&times[0], 0.5), most / median);
        match m.v.stats().nvram {
            Some(nvram) => {
                println!(" {:>11} {:>14.0}", nvram.emptied, nvram.record_bytes as f64 / nvram.records as f64)
            }
            None => println!(),
        }
    }
}

fn main() {
    if !std::env::args().any(|arg| arg == "nvram") {
        read_table();
        fsync_table();
    }
    nvram_table();
}
