//! Instructions that an operation takes, as Valgrind counts them: they repeat exactly, on any machine and beside any
//! work, so that two commits can be compared. The program runs itself twice for each cell, once with twice as many
//! operations, and the difference is theirs alone. A device and an NVRAM are in memory; their copies count too.
//!
//! `cargo bench -p medfs --bench instructions`; `-- NAME` counts the operations whose names have it. Needs `valgrind`.

use medfs::{FileKind, Files, Ino, ManualClock, MountOptions, NewFile, Timestamp, Volume, open_with_nvram};
use medfs_device::{MemDevice, MemNvram};
use medfs_mkfs::{MkfsOptions, format_volume};
use std::process::{Command, exit};
use std::sync::Arc;
use std::time::Duration;

const PAGE: usize = 4096;
/// Pages of the file: 1 MiB.
const PAGES: usize = 256;
/// Bytes of a small change.
const SMALL: usize = 100;
/// Bytes of the NVRAM: no checkpoint is due meanwhile.
const NVRAM: u64 = 64 << 20;

/// How a column's volume is made and mounted.
struct Column {
    name: &'static str,
    deltas: bool,
    nvram: bool,
    options: &'static str,
}

const COLUMNS: [Column; 7] = [
    Column { name: "plain", deltas: false, nvram: false, options: "delta=off" },
    Column { name: "plain, ARS", deltas: false, nvram: false, options: "delta=off,placement=reserve" },
    Column { name: "delta=off", deltas: true, nvram: false, options: "delta=off" },
    Column { name: "delta=inline", deltas: true, nvram: false, options: "delta=inline" },
    Column { name: "delta=full", deltas: true, nvram: false, options: "delta=full" },
    Column { name: "full, ARS", deltas: true, nvram: false, options: "delta=full,placement=reserve" },
    Column { name: "nvram=", deltas: true, nvram: true, options: "delta=full" },
];

/// An operation that is counted, and how often it is done at least.
type Operation = (&'static str, usize, fn(&mut Mounted));

const OPERATIONS: [Operation; 8] = [
    ("write 100 bytes", 4000, Mounted::write_small),
    ("write 100 bytes, fsync", 1000, |m| m.fsync_after(1, SMALL)),
    ("4 times 100 bytes, fsync", 1000, |m| m.fsync_after(4, SMALL)),
    ("append 100 bytes, fsync", 1000, Mounted::append),
    ("write a page, fsync", 1000, |m| m.fsync_after(1, PAGE)),
    ("fsync without a change", 4000, |m| m.v.fsync(m.file, false).expect("fsync")),
    ("read a page", 4000, |m| m.read(PAGE)),
    ("read 128 KiB", 1000, |m| m.read(128 << 10)),
];

struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }
}

/// A volume with a file of random bytes, all of it in memory.
struct Mounted {
    v: Volume,
    clock: Arc<ManualClock>,
    file: Ino,
    end: u64,
    random: Random,
    buffer: Vec<u8>,
}

impl Mounted {
    fn new(column: &Column) -> Mounted {
        let device = MemDevice::new(64 * 256);
        let made =
            MkfsOptions { deltas: column.deltas, discard: false, ..MkfsOptions::new([7; 16], 1_700_000_000) };
        format_volume(&device, &made).expect("a volume of 64 MiB can be made");
        let mut options = MountOptions::default();
        options.parse(column.options).expect("options are right");
        let clock = Arc::new(ManualClock::new(Timestamp { secs: 1_700_000_000, nanos: 0 }));
        let device = Arc::new(device);
        let v = match column.nvram {
            true => open_with_nvram(device, Arc::new(MemNvram::new(NVRAM)), options, clock.clone()),
            false => Volume::open(device, options, clock.clone()),
        };
        let v = v.expect("the volume opens");
        let new = NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let file = v.create(v.root(), b"f", &new).expect("a new file").ino;
        let mut random = Random(88_172_645_463_325_252);
        let content: Vec<u8> = (0..PAGES * PAGE).map(|_| random.below(256) as u8).collect();
        v.write(file, 0, &content).expect("written");
        v.sync().expect("sync");
        clock.advance(Duration::from_secs(1));
        Mounted { v, clock, file, end: content.len() as u64, random, buffer: vec![0; 128 << 10] }
    }

    fn write(&mut self, at: u64, len: usize) {
        self.clock.advance(Duration::from_millis(20));
        for byte in &mut self.buffer[..len.min(SMALL)] {
            *byte = self.random.below(256) as u8;
        }
        self.v.write(self.file, at, &self.buffer[..len]).expect("written");
    }

    fn write_small(&mut self) {
        let at = self.random.below(PAGES) * PAGE + self.random.below(PAGE - SMALL);
        self.write(at as u64, SMALL);
    }

    fn fsync_after(&mut self, writes: usize, len: usize) {
        for _ in 0..writes {
            match len == PAGE {
                true => {
                    let page = self.random.below(PAGES) * PAGE;
                    self.write(page as u64, PAGE);
                }
                false => self.write_small(),
            }
        }
        self.v.fsync(self.file, false).expect("fsync");
    }

    fn append(&mut self) {
        self.write(self.end, SMALL);
        self.end += SMALL as u64;
        self.v.fsync(self.file, false).expect("fsync");
    }

    fn read(&mut self, len: usize) {
        let at = self.random.below(PAGES * PAGE / len) * len;
        let read = self.v.read(self.file, at as u64, &mut self.buffer[..len]).expect("read");
        assert_eq!(read, len);
    }
}

/// Does an operation so often, and ends before anything is unmounted.
fn work(operation: usize, column: usize, count: usize) -> ! {
    let mut mounted = Mounted::new(&COLUMNS[column]);
    let (_, _, operate) = OPERATIONS[operation];
    (0..count).for_each(|_| operate(&mut mounted));
    exit(0);
}

/// Instructions of this program with these arguments.
fn instructions(args: [usize; 3]) -> u64 {
    let program = std::env::current_exe().expect("the program's own path");
    let valgrind = ["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"];
    let run = Command::new("valgrind")
        .args(valgrind)
        .arg(program)
        .arg("--work")
        .args(args.map(|n| n.to_string()))
        .output()
        .unwrap_or_else(|e| panic!("valgrind cannot run: {e}; Debian's package is valgrind"));
    let said = String::from_utf8_lossy(&run.stderr);
    let counted = said.lines().find_map(|line| line.split_once("refs:")).unwrap_or_else(|| panic!("{said}"));
    counted.1.trim().replace(',', "").parse().unwrap_or_else(|_| panic!("{said}"))
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    if let Some(("--work", rest)) = args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        let numbers: Vec<usize> = rest.iter().map(|n| n.parse().expect("a number")).collect();
        work(numbers[0], numbers[1], numbers[2]);
    }
    print!("{:<28}", "instructions");
    COLUMNS.iter().for_each(|column| print!(" {:>12}", column.name));
    println!();
    let wanted = |name: &str| args.is_empty() || args.iter().any(|arg| name.contains(arg.as_str()));
    for (at, &(name, count, _)) in OPERATIONS.iter().enumerate().filter(|(_, o)| wanted(o.0)) {
        print!("{name:<28}");
        for column in 0..COLUMNS.len() {
            let [once, twice] = [count, 2 * count].map(|count| instructions([at, column, count]));
            print!(" {:>12}", twice.saturating_sub(once) / count as u64);
        }
        println!();
    }
}
