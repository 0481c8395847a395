//! Random operations against the model, with remounts and crashes, and the shrinking of what fails.
//!
//! A run is decided by its operations alone (and those by the seed), so a failure replays from either. When one
//! fails, [`shrink`] looks for a shorter sequence that fails with the same operation kind, and the report prints both.

use crate::model::Model;
use crate::observe::observe;
use crate::ops::{Generator, Op};
use crate::oracle::History;
use crate::session::{Durable, Session};
use crate::subject::{Check, Counts, FileSystem, Mounter};
use medfs::ManualClock;
use medfs_device::{BlockDevice, MemDevice};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time that shrinking a failure may take.
const SHRINK_BUDGET: Duration = Duration::from_secs(60);

/// What a run needs.
#[derive(Clone)]
pub struct Setup {
    /// A formatted device; each run works on a copy.
    pub image: Arc<MemDevice>,
    /// How to mount. Called anew for each run, so that a mounter may keep state.
    pub mounter: Arc<dyn Fn() -> Mounter + Send + Sync>,
    /// A clock that the mounter uses, if it is to move on with the operations.
    pub clock: Option<Arc<ManualClock>>,
    /// Judges that look at the device after clean unmounts.
    pub checks: Vec<Arc<dyn Check>>,
    /// They look after one clean unmount in this many, and after the last.
    pub check_every: usize,
    /// The whole tree is compared after this many operations, and at each mount.
    pub compare_every: usize,
    /// Whether the volume may be full: see [`Session::crowded`].
    pub crowded: bool,
}

/// How a run went wrong.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Index of the operation.
    pub index: usize,
    /// The operation.
    pub op: Option<Op>,
    /// What differed.
    pub message: String,
}

impl Failure {
    /// Whether it is likely to have the same reason: the same kind of operation, and a message that begins alike.
    fn resembles(&self, other: &Failure) -> bool {
        let kind = |failure: &Failure| failure.op.as_ref().map(std::mem::discriminant);
        let start = |failure: &Failure| {
            failure.message.chars().take(40).filter(char::is_ascii_alphabetic).collect::<String>()
        };
        kind(self) == kind(other) && start(self) == start(other)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.op {
            Some(op) => write!(f, "operation {}, {op:?}: {}", self.index, self.message),
            None => write!(f, "after operation {}: {}", self.index, self.message),
        }
    }
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default)]
pub struct Report {
    /// Operations.
    pub ops: usize,
    /// Clean remounts.
    pub remounts: usize,
    /// Crashes.
    pub crashes: usize,
    /// Judgements of the whole tree.
    pub compared: usize,
    /// Operations that a full volume refused.
    pub refused: usize,
    /// What happened in all mounts.
    pub counts: Counts,
}

struct Run<'a> {
    setup: &'a Setup,
    device: Arc<MemDevice>,
    mounter: Mounter,
    /// Absent only while a crash is in progress.
    session: Option<Session>,
    history: History,
    report: Report,
}

impl<'a> Run<'a> {
    fn start(setup: &'a Setup) -> Result<Run<'a>, String> {
        let device = Arc::new(setup.image.snapshot());
        let mounter = (setup.mounter)();
        let mut session = Session::new(mount(&mounter, &device)?)?;
        session.crowded = setup.crowded;
        let history = History::new(session.model.clone());
        Ok(Run { setup, device, mounter, session: Some(session), history, report: Report::default() })
    }

    /// Goes on with another mount.
    fn go_on(&mut self, fs: Arc<dyn FileSystem>, model: Model) {
        let mut session = Session::remounted(fs, model);
        session.crowded = self.setup.crowded;
        self.history = History::new(session.model.clone());
        self.session = Some(session);
    }

    /// Counts what a mount did before it ends.
    fn count(&mut self) {
        let session = self.session();
        let (refused, counts) = (session.refused, session.fs.counts());
        self.report.refused += refused;
        self.report.counts += counts;
    }

    fn session(&mut self) -> &mut Session {
        self.session.as_mut().expect("no operation runs during a crash")
    }

    fn step(&mut self, op: &Op) -> Result<(), String> {
        if let Some(clock) = &self.setup.clock {
            clock.advance(Duration::from_millis(700));
        }
        match op {
            Op::Remount => {
                let judged = (self.report.remounts + 1).is_multiple_of(self.setup.check_every);
                self.remount(judged)
            }
            Op::Crash => self.crash(),
            op => {
                let durable = self.session().apply(op)?;
                let state = self.session().model.clone();
                self.history.push(state, durable);
                if durable == Durable::All {
                    self.history.trim();
                }
                Ok(())
            }
        }
    }

    fn remount(&mut self, judged: bool) -> Result<(), String> {
        self.report.remounts += 1;
        self.count();
        self.session().fs.unmount().map_err(|e| format!("close: {e}"))?;
        for check in self.setup.checks.iter().filter(|_| judged) {
            let copy = Arc::new(self.device.snapshot());
            check.check(copy).map_err(|e| format!("after a clean unmount, {}: {e}", check.name()))?;
        }
        let fs = mount(&self.mounter, &self.device)?;
        let model = self.session().model.clone();
        self.go_on(fs, model);
        self.compare()
    }

    fn crash(&mut self) -> Result<(), String> {
        self.report.crashes += 1;
        self.count();
        // The mounted one goes first, so that nothing of it reaches the device during recovery.
        let last = self.session.take().map(|session| session.model).expect("no crash runs during a crash");
        let fs = mount(&self.mounter, &self.device).map_err(|e| format!("after a crash: {e}"))?;
        let found = observe(&*fs).map_err(|e| format!("after a crash: {e}"))?;
        let ops = self.history.len();
        self.history.judge(&found, ops, ops).map_err(|e| format!("after a crash: {e}"))?;
        let mut model = found;
        model.number_after(&last);
        self.go_on(fs, model);
        Ok(())
    }

    fn compare(&mut self) -> Result<(), String> {
        self.report.compared += 1;
        self.session().compare_all().map_err(|e| format!("whole tree: {e}"))
    }

    fn finish(mut self) -> Result<Report, String> {
        self.compare()?;
        self.remount(true)?;
        Ok(self.report)
    }
}

fn mount(mounter: &Mounter, device: &Arc<MemDevice>) -> Result<Arc<dyn FileSystem>, String> {
    let device: Arc<dyn BlockDevice> = device.clone();
    mounter(device).map_err(|e| format!("mount: {e}"))
}

/// Turns a panic of the file system under test into a message.
pub fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
        Err(format!("panicked: {text}"))
    })
}

/// Runs a sequence of operations.
pub fn run(setup: &Setup, ops: &[Op]) -> Result<Report, Failure> {
    let at_start = |message| Failure { index: 0, op: None, message };
    let mut run = guarded(|| Run::start(setup)).map_err(at_start)?;
    for (index, op) in ops.iter().enumerate() {
        let failed = |message| Failure { index, op: Some(op.clone()), message };
        guarded(|| run.step(op)).map_err(failed)?;
        if (index + 1) % setup.compare_every == 0 {
            guarded(|| run.compare()).map_err(failed)?;
        }
        run.report.ops += 1;
    }
    let at_end = |message| Failure { index: ops.len(), op: None, message };
    guarded(|| run.finish()).map_err(at_end)
}

/// Looks for a shorter sequence that still fails, for at most `budget`: removes ever smaller parts (delta debugging).
/// The comparison of the whole tree is made after every operation where that is affordable.
pub fn shrink(setup: &Setup, ops: &[Op], failure: &Failure, budget: Duration) -> (Vec<Op>, Failure) {
    let deadline = Instant::now() + budget;
    let mut best: Vec<Op> = ops[..(failure.index + 1).min(ops.len())].to_vec();
    let mut cause = failure.clone();
    let mut part = best.len().div_ceil(2);
    while part > 0 {
        let mut removed = false;
        let mut from = 0;
        while from < best.len() {
            if Instant::now() > deadline {
                return (best, cause);
            }
            let shorter: Vec<Op> = best
                .iter()
                .enumerate()
                .filter(|(i, _)| !(from..from + part).contains(i))
                .map(|(_, op)| op.clone())
                .collect();
            match run(setup, &shorter) {
                Err(failure) if failure.resembles(&cause) => {
                    best = shorter[..(failure.index + 1).min(shorter.len())].to_vec();
                    cause = failure;
                    removed = true;
                }
                _ => from += part,
            }
        }
        part = match (part, removed) {
            (1, true) => 1,
            (1, false) => 0,
            (part, _) => part / 2,
        };
    }
    (best, cause)
}

/// Runs `count` operations of a seed; panics with the seed, the failure, and a minimal sequence.
pub fn run_seed(setup: &Setup, seed: u64, count: usize, generator: impl FnOnce(&mut Generator)) -> Report {
    let mut source = Generator::new(seed);
    generator(&mut source);
    let ops = source.ops(count);
    match run(setup, &ops) {
        Ok(report) => report,
        Err(failure) => {
            // Judges are needed only for what they have found.
            let judged = setup.checks.iter().any(|check| failure.message.contains(check.name()));
            let lean =
                Setup { checks: if judged { setup.checks.clone() } else { Vec::new() }, ..setup.clone() };
            let (mut minimal, mut cause) = shrink(&lean, &ops, &failure, SHRINK_BUDGET);
            // Comparing after each operation shows where a short sequence goes wrong first.
            let finer = Setup { compare_every: 1, ..lean };
            if let Err(first) = run(&finer, &minimal) {
                (minimal, cause) = shrink(&finer, &minimal, &first, SHRINK_BUDGET);
            }
            let shown: Vec<String> = minimal.iter().map(|op| format!("    {op:?},")).collect();
            panic!(
                "seed {seed}: {failure}\n{} operations suffice (then: {cause}):\n{}",
                minimal.len(),
                shown.join("\n")
            );
        }
    }
}
