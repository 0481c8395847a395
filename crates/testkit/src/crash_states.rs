//! Bounded crash testing: short workloads, and for each every state that a crash may leave on the device.
//!
//! A workload is one or two operations out of a list, over a small tree that is already durable, each followed by a
//! way of making things durable (fsync of the file, fdatasync, fsync of its directory, sync) or by nothing; at the
//! end the volume is closed, so that the final checkpoint is among what crashes interrupt. It runs once, on a device
//! that records; then each state of the recording is mounted, read as a whole and judged by the contract
//! ([`crate::oracle`]). A sample of states is also closed, checked for structure, and mounted again; in a smaller
//! sample the recovery itself is recorded and interrupted.
//!
//! A failure names seed, workload and state; [`replay`] runs just that workload.

mod workloads;

pub use workloads::{
    on_chains, on_copies, on_databases, on_deltas, on_replacements, on_rewrites, operations, preparation,
    seq1, seq2,
};

use crate::harness::guarded;
use crate::images::checksummed;
use crate::model::Model;
use crate::observe::{compare, observe};
use crate::ops::{DATABASE, DOCUMENT, JOURNAL, LOG, Op, Place, TEMPORARY, Target, place};
use crate::oracle::{Contract, History};
use crate::session::{Durable, Session};
use crate::subject::{Check, Counts, FileSystem, Mounter};
use medfs_device::MemDevice;
use medfs_device::crash::{CrashPlan, CrashState, RecordingDevice};
use parking_lot::Mutex;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How something is made durable after an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Persist {
    Nothing,
    Fsync,
    Fdatasync,
    FsyncParent,
    Sync,
    /// A barrier for the app of the directory of the file.
    SyncApp,
    /// An fsync of the file together with others that belong to it.
    Together,
}

/// All ways for one file.
pub const PERSISTS: [Persist; 5] =
    [Persist::Nothing, Persist::Fsync, Persist::Fdatasync, Persist::FsyncParent, Persist::Sync];

/// An operation and the file it is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub op: Op,
    /// What an fsync after it is applied to.
    pub subject: Place,
    /// How it is made durable.
    pub persist: Persist,
}

/// Steps; at the end the volume is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload(pub Vec<Step>);

impl Workload {
    /// Its operations, what makes them durable among them.
    pub fn ops(&self) -> Vec<Op> {
        self.0.iter().flat_map(Step::ops).collect()
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for step in &self.0 {
            write!(f, "{:?}", step.op)?;
            if step.persist != Persist::Nothing {
                write!(f, " + {:?} of {:?}", step.persist, step.subject)?;
            }
            write!(f, "; ")?;
        }
        write!(f, "close")
    }
}

/// What a run needs.
#[derive(Clone)]
pub struct Setup {
    /// A formatted device.
    pub image: Arc<MemDevice>,
    /// What is done and made durable before every workload.
    pub preparation: Vec<Op>,
    /// How to mount.
    pub mounter: Mounter,
    /// What it promises.
    pub contract: Contract,
    /// Judges of structure that look at states as the crash left them: before recovery too a volume is sound.
    pub raw_checks: Vec<Arc<dyn Check>>,
    /// One state in this many is shown to them. 0: none.
    pub raw_every: usize,
    /// Judges of structure after recovery, for states in the sample.
    pub checks: Vec<Arc<dyn Check>>,
    /// One state in this many is closed, checked for structure and mounted again. 0: none.
    pub check_every: usize,
    /// One state in this many has its recovery interrupted. 0: none.
    pub nested_every: usize,
    /// Which states.
    pub plan: CrashPlan,
    /// Of these, one in so many, beginning with the first.
    pub one_in: usize,
    /// Stop after this many states.
    pub max_states: usize,
    /// Stop after this many failures.
    pub max_failures: usize,
    /// Threads.
    pub threads: usize,
}

impl Setup {
    /// Usual figures for an image.
    pub fn new(image: Arc<MemDevice>, mounter: Mounter) -> Setup {
        let plan =
            CrashPlan { exhaustive: 64, samples: 16, torn: Some(checksummed(&image)), torn_each: 1, seed: 0 };
        Setup {
            image,
            preparation: preparation(),
            mounter,
            contract: Contract::Posix,
            raw_checks: Vec::new(),
            raw_every: 16,
            checks: Vec::new(),
            check_every: 16,
            nested_every: 64,
            plan,
            one_in: 1,
            max_states: usize::MAX,
            max_failures: 10,
            threads: 2,
        }
    }
}

/// What a run did and found.
#[derive(Debug, Default)]
pub struct Report {
    /// Workloads run.
    pub workloads: usize,
    /// States mounted and judged.
    pub states: usize,
    /// Of these, closed, checked for structure, and mounted again.
    pub checked: usize,
    /// States of interrupted recoveries.
    pub nested: usize,
    /// What happened in the workloads.
    pub counts: Counts,
    /// States whose crash came after each of these happened, in an operation that was not durable yet.
    pub interrupted: Counts,
    /// States whose crash came in or after a record in NVRAM that follows an fsync by the roll-forward log.
    pub by_turns: usize,
    /// States whose crash came after records in NVRAM were compacted, or while they were.
    pub compacted: usize,
    /// What was wrong: workload, state, and how.
    pub failures: Vec<String>,
}

impl std::ops::AddAssign for Report {
    fn add_assign(&mut self, mut other: Report) {
        self.workloads += other.workloads;
        self.states += other.states;
        self.checked += other.checked;
        self.nested += other.nested;
        self.counts += other.counts;
        self.interrupted += other.interrupted;
        self.by_turns += other.by_turns;
        self.compacted += other.compacted;
        self.failures.append(&mut other.failures);
    }
}

impl Report {
    /// A table of what happened, and in how many states it was interrupted.
    pub fn happened(&self) -> String {
        let rows = self.counts.named().into_iter().zip(self.interrupted.named());
        rows.map(|((name, count), (_, states))| {
            format!("{name:>18} {count:>8} times, interrupted in {states:>7} states\n")
        })
        .collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} workloads, {} states ({} checked for structure, {} of interrupted recoveries), {} failures",
            self.workloads,
            self.states,
            self.checked,
            self.nested,
            self.failures.len()
        )?;
        self.failures.iter().try_for_each(|failure| write!(f, "\n  {failure}"))
    }
}

/// The image with what the setup prepares, durable and cleanly closed.
pub fn prepared(setup: &Setup) -> Result<MemDevice, String> {
    let device = Arc::new(setup.image.snapshot());
    guarded(|| {
        let fs = (setup.mounter)(device.clone()).map_err(|e| format!("mount: {e}"))?;
        let mut session = Session::new(fs)?;
        // Preparation may fill a volume.
        session.crowded = true;
        for op in &setup.preparation {
            session.apply(op).map_err(|e| format!("preparation, {op:?}: {e}"))?;
        }
        session.fs.unmount().map_err(|e| format!("close: {e}"))
    })?;
    Ok(device.snapshot())
}

/// Runs workloads, on several threads.
pub fn run(setup: &Setup, workloads: &[Workload]) -> Report {
    let base = match prepared(setup) {
        Ok(base) => base,
        Err(message) => return Report { failures: vec![message], ..Report::default() },
    };
    let next = AtomicUsize::new(0);
    let total = Mutex::new(Report::default());
    std::thread::scope(|scope| {
        for _ in 0..setup.threads {
            scope.spawn(|| {
                while let Some((number, workload)) = {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    workloads.get(number).map(|workload| (number, workload))
                } {
                    {
                        let total = total.lock();
                        if total.states >= setup.max_states || total.failures.len() >= setup.max_failures {
                            break;
                        }
                    }
                    let mut report = Report { workloads: 1, ..Report::default() };
                    if let Err(message) = guarded(|| run_one(setup, &base, number, workload, &mut report)) {
                        report.failures.push(format!("[{workload}]: {message}"));
                    }
                    *total.lock() += report;
                }
            });
        }
    });
    total.into_inner()
}

/// Runs one workload on one thread.
pub fn replay(setup: &Setup, workload: Workload) -> Report {
    run(&Setup { threads: 1, ..setup.clone() }, &[workload])
}

impl Step {
    /// What it does, one after the other. A checkpoint may come in between, so that each part counts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Op> {
        self.ops().flat_map(|op| op.parts())
    }

    /// Its operation, and the one that makes it durable.
    fn ops(&self) -> impl Iterator<Item = Op> {
        [Some(self.op.clone()), self.made_durable()].into_iter().flatten()
    }

    /// The operation that makes it durable.
    fn made_durable(&self) -> Option<Op> {
        let file = Target::Path(self.subject);
        match self.persist {
            Persist::Nothing => None,
            Persist::Fsync => Some(Op::Fsync { file, datasync: false }),
            Persist::Fdatasync => Some(Op::Fsync { file, datasync: true }),
            Persist::FsyncParent => Some(Op::FsyncDir { dir: self.subject.dir }),
            Persist::Sync => Some(Op::Sync),
            Persist::SyncApp => Some(Op::SyncApp { dir: self.subject.dir }),
            Persist::Together => {
                let files = match self.subject.name {
                    DATABASE | LOG | JOURNAL => [DATABASE, LOG, JOURNAL].map(|name| place(0, name)),
                    DOCUMENT | TEMPORARY => [place(0, DOCUMENT), place(1, DOCUMENT), place(0, TEMPORARY)],
                    _ => [self.subject, place(0, 0), place(1, 0)],
                };
                Some(Op::FsyncMany { files: files.map(Target::Path), datasync: false, threads: false })
            }
        }
    }
}

/// Whether a record in NVRAM followed an fsync by the roll-forward log until `now`, and how often records were
/// compacted.
fn is_by_turns(before: &Counts, now: &Counts, until: Option<(bool, u64)>) -> (bool, u64) {
    let follows = before.left > 0 && now.journaled > before.journaled;
    (follows || until.is_some_and(|(by_turns, _)| by_turns), now.compacted)
}

fn run_one(
    setup: &Setup,
    base: &MemDevice,
    number: usize,
    workload: &Workload,
    report: &mut Report,
) -> Result<(), String> {
    let device = Arc::new(RecordingDevice::new(base));
    let fs = (setup.mounter)(device.clone()).map_err(|e| format!("mount: {e}"))?;
    let mut session = Session::new(fs)?;
    let mut history = History::new(session.model.clone());
    session.steps = (setup.contract != Contract::Posix).then(Vec::new);
    let (mut before, mut settled) = (Counts::default(), Counts::default());
    let mut happened = Vec::new();
    let mut in_nvram = Vec::new();
    // What happened since something was made durable last, and this operation's part.
    let mut count = |fs: &dyn FileSystem, durable: Durable| {
        let now = fs.counts();
        in_nvram.push(is_by_turns(&before, &now, in_nvram.last().copied()));
        before = now;
        happened.push(before.since(&settled).kinds());
        if durable != Durable::Nothing {
            settled = before;
        }
    };
    for step in &workload.0 {
        for op in step.parts() {
            let mut durable = session.apply(&op).map_err(|e| format!("{op:?}: {e}"))?;
            if setup.contract != Contract::Posix {
                durable = session.with_own_durability(durable);
            }
            history.push(session.model.clone(), durable);
            session.steps.iter_mut().for_each(|steps| history.note_within(std::mem::take(steps)));
            device.mark(history.len() as u64);
            count(&*session.fs, durable);
        }
    }
    session.fs.unmount().map_err(|e| format!("close: {e}"))?;
    history.push(session.model.clone(), Durable::All);
    device.mark(history.len() as u64);
    count(&*session.fs, Durable::All);
    report.counts += before;
    drop(session);

    let plan = CrashPlan { seed: setup.plan.seed ^ number as u64, ..setup.plan.clone() };
    let mut random = ChaCha12Rng::seed_from_u64(plan.seed);
    let mut sampled = |every: usize| every > 0 && random.random_range(0..every) == 0;
    for state in device.recording().states(&plan).step_by(setup.one_in) {
        report.states += 1;
        let acknowledged = state.last_mark().unwrap_or(0) as usize;
        report.interrupted += happened.get(acknowledged).copied().unwrap_or_default();
        let (by_turns, compacted) = in_nvram.get(acknowledged).copied().unwrap_or_default();
        report.by_turns += usize::from(by_turns);
        report.compacted += usize::from(compacted > 0);
        let judged = Judged { setup, history: &history, acknowledged };
        let sample = Sample {
            raw: sampled(setup.raw_every),
            check: sampled(setup.check_every),
            nested: sampled(setup.nested_every),
        };
        let result = guarded(|| judged.state(&state, sample, report));
        if let Err(message) = result {
            report.failures.push(format!("[{workload}] in {state:?} (plan seed {}): {message}", plan.seed));
            // One failure of a workload tells enough.
            break;
        }
    }
    Ok(())
}

/// What else is done with a state.
#[derive(Clone, Copy)]
struct Sample {
    raw: bool,
    check: bool,
    nested: bool,
}

/// The contract for states at one moment.
struct Judged<'a> {
    setup: &'a Setup,
    history: &'a History,
    acknowledged: usize,
}

impl Judged<'_> {
    fn state(&self, state: &CrashState, sample: Sample, report: &mut Report) -> Result<(), String> {
        let device = Arc::new(state.device());
        let setup = self.setup;
        for check in setup.raw_checks.iter().filter(|_| sample.raw) {
            check.check(device.clone()).map_err(|e| format!("before recovery, {}: {e}", check.name()))?;
        }
        if sample.nested {
            let recording = Arc::new(RecordingDevice::new(&device));
            self.recovered(&*(setup.mounter)(recording.clone()).map_err(|e| format!("mount: {e}"))?)?;
            let plan = CrashPlan { exhaustive: 16, samples: 4, torn_each: 0, ..setup.plan.clone() };
            for inner in recording.recording().states(&plan) {
                report.nested += 1;
                let device = Arc::new(inner.device());
                let fs = (setup.mounter)(device);
                let fs = fs.map_err(|e| format!("mount after an interrupted recovery, {inner:?}: {e}"))?;
                self.recovered(&*fs).map_err(|e| format!("after an interrupted recovery, {inner:?}: {e}"))?;
            }
        }
        let fs = (setup.mounter)(device.clone()).map_err(|e| format!("mount: {e}"))?;
        let found = self.recovered(&*fs)?;
        if sample.check {
            report.checked += 1;
            fs.unmount().map_err(|e| format!("close after recovery: {e}"))?;
            drop(fs);
            for check in &setup.checks {
                check.check(device.clone()).map_err(|e| format!("after recovery, {}: {e}", check.name()))?;
            }
            let fs = (setup.mounter)(device).map_err(|e| format!("second mount: {e}"))?;
            compare(&found, &observe(&*fs)?).map_err(|e| format!("the second mount differs: {e}"))?;
        }
        Ok(())
    }

    fn recovered(&self, fs: &dyn FileSystem) -> Result<Model, String> {
        let found = observe(fs)?;
        let issued = (self.acknowledged + 1).min(self.history.len());
        self.history.judge_by(self.setup.contract, &found, self.acknowledged, issued)?;
        Ok(found)
    }
}
