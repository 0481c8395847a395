//! Fuzzing in a process of its own: a panic, a hang, or memory beyond the limit ends that process alone, and the case
//! that did it is known.
//!
//! A [`Target`] is run by one test function. The test starts itself again as a child, which runs cases until
//! its time is over, one seed after the other.
//!
//! - `MEDFS_FUZZ_SECONDS`: how long.
//! - `MEDFS_FUZZ_SEED`, or `MEDFS_SEED`: the first seed; printed at the start.
//! - `MEDFS_FUZZ_CASE`: runs one case, in the test's own process and without limits, to replay a failure.
//! - `MEDFS_FUZZ_BASES`: a folder that a failure left, with the volumes that its cases started from.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Address space that the cases may take on top of what the target's bases take, in bytes.
pub const MEMORY: u64 = 256 << 20;
/// No case may take longer, on a loaded machine with a debug build.
pub const LONGEST: Duration = Duration::from_secs(30);
/// Names the folder of the bases, for the child.
const CHILD: &str = "MEDFS_FUZZ_DIR";

/// Something that is fuzzed.
pub struct Target<B> {
    /// Name of the test function that runs it.
    pub test: &'static str,
    /// Seconds, where the environment does not say.
    pub seconds: u64,
    /// Whether memory is limited.
    pub limited: bool,
    /// Makes in a folder what cases start from.
    pub make: fn(&Path),
    /// Reads that.
    pub load: fn(&Path) -> Vec<B>,
    /// Runs a case; panics where something is wrong. Tells whether the case got past the first check.
    pub case: fn(u64, &[B]) -> bool,
}

/// What a run did.
#[derive(Debug, Clone, Copy)]
pub struct Done {
    /// Cases run.
    pub cases: u64,
    /// Of these, those that got past the first check.
    pub deep: u64,
    /// Most resident memory on top of the bases, in bytes.
    pub memory: u64,
}

/// The first seed of a sample: `MEDFS_SEED`, or 1. Samples without it are always the same, so that a commit that passed
/// passes again; the runs of the night search with the day for a seed.
pub fn sample_seed() -> u64 {
    let seed = variable("MEDFS_SEED").unwrap_or(1);
    println!("MEDFS_SEED={seed}");
    seed
}

/// A number from the environment.
pub fn variable(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|v| v.parse().unwrap_or_else(|_| panic!("{name}={v} is not a number")))
}

impl<B> Target<B> {
    /// Runs the target; `None` where this is the child or a single case. Panics with the case that went wrong.
    pub fn run(&self) -> Option<Done> {
        if let Ok(dir) = std::env::var(CHILD) {
            self.child(Path::new(&dir));
            return None;
        }
        if let Some(seed) = variable("MEDFS_FUZZ_CASE") {
            let kept = std::env::var("MEDFS_FUZZ_BASES").map(PathBuf::from);
            let dir = tempfile::tempdir().expect("a temporary folder");
            if kept.is_err() {
                (self.make)(dir.path());
            }
            (self.case)(seed, &(self.load)(kept.as_deref().unwrap_or(dir.path())));
            return None;
        }
        let mut dir = tempfile::tempdir().expect("a temporary folder");
        (self.make)(dir.path());
        // Tools that make volumes do not make the same one twice.
        dir.disable_cleanup(true);
        let done = self.parent(dir.path());
        dir.disable_cleanup(false);
        Some(done)
    }

    fn parent(&self, dir: &Path) -> Done {
        let seconds = variable("MEDFS_FUZZ_SECONDS").unwrap_or(self.seconds);
        let seed = variable("MEDFS_FUZZ_SEED").unwrap_or_else(sample_seed);
        println!("{}: MEDFS_FUZZ_SEED={seed}", self.test);
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", self.test, "--nocapture", "--include-ignored", "--test-threads", "1"])
            .env(CHILD, dir)
            .env("MEDFS_FUZZ_SECONDS", seconds.to_string())
            .env("MEDFS_FUZZ_SEED", seed.to_string())
            // Arenas reserve address space that is never used.
            .env("MALLOC_ARENA_MAX", "1")
            .env("RUST_BACKTRACE", "0")
            .stderr(fs::File::create(dir.join("stderr")).expect("a temporary file"))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program starts again");
        let status = watch(&mut child, dir);
        let at = fs::read_to_string(dir.join("seed")).unwrap_or_default();
        let said = last_words(&dir.join("stderr"));
        let test = self.test;
        let again = format!("MEDFS_FUZZ_CASE={at} MEDFS_FUZZ_BASES={}", dir.display());
        match status {
            None => panic!("{test} hangs: {again}\n{said}"),
            Some(status) if !status.success() => panic!("{test}, {status}: {again}\n{said}"),
            Some(_) => {}
        }
        let counts = fs::read_to_string(dir.join("counts")).expect("the child counts its cases");
        let mut counts = counts.split(' ').map(|n| n.parse::<u64>().expect("numbers"));
        let mut next = || counts.next().expect("three numbers");
        let done = Done { cases: next(), deep: next(), memory: next() };
        println!(
            "{test}: {} cases, {} past the first check, at most {:.1} MiB above the bases, in {seconds} s",
            done.cases,
            done.deep,
            done.memory as f64 / f64::from(1 << 20)
        );
        done
    }

    fn child(&self, dir: &Path) {
        let bases = (self.load)(dir);
        let resident = memory("VmRSS:");
        if self.limited {
            let most = Some(memory("VmSize:") + MEMORY);
            let limit = rustix::process::Rlimit { current: most, maximum: most };
            rustix::process::setrlimit(rustix::process::Resource::As, limit).expect("memory can be limited");
        }
        // From here on the high-water mark is that of the cases.
        let _ = fs::write("/proc/self/clear_refs", "5");
        let wanted = |name| variable(name).expect("the parent says it");
        let end = Instant::now() + Duration::from_secs(wanted("MEDFS_FUZZ_SECONDS"));
        let first = wanted("MEDFS_FUZZ_SEED");
        let (mut cases, mut deep) = (0, 0);
        while Instant::now() < end {
            let seed = first + cases;
            fs::write(dir.join("seed"), seed.to_string()).expect("the folder is writable");
            let start = Instant::now();
            deep += u64::from((self.case)(seed, &bases));
            assert!(start.elapsed() < LONGEST, "case {seed} took {:?}", start.elapsed());
            cases += 1;
        }
        let peak = memory("VmHWM:").saturating_sub(resident);
        fs::write(dir.join("counts"), format!("{cases} {deep} {peak}")).expect("the folder is writable");
    }
}

/// Waits for the child; ends it, and gives `None`, where one case takes far too long.
fn watch(child: &mut Child, dir: &Path) -> Option<ExitStatus> {
    let (mut at, mut since) = (String::new(), Instant::now());
    loop {
        if let Some(status) = child.try_wait().expect("the child can be asked") {
            return Some(status);
        }
        let now = fs::read_to_string(dir.join("seed")).unwrap_or_default();
        if now != at {
            (at, since) = (now, Instant::now());
        } else if since.elapsed() > 2 * LONGEST {
            child.kill().expect("the child can be ended");
            child.wait().expect("the child ends");
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn last_words(path: &PathBuf) -> String {
    let mut bytes = Vec::new();
    if let Ok(mut file) = fs::File::open(path) {
        let _ = file.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(3000)..]).into_owned()
}

/// A figure of this process that the kernel gives in kilobytes, in bytes.
fn memory(field: &str) -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(field)).expect("a known field");
    let number = line[field.len()..].trim().trim_end_matches("kB").trim();
    number.parse::<u64>().expect("a number") << 10
}
