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

use crate::harness::guarded;
use crate::images::checksummed;
use crate::model::Model;
use crate::observe::{compare, observe};
use crate::ops::{DATABASE, DOCUMENT, JOURNAL, LOG, Op, Place, TEMPORARY, Target, place};
use crate::oracle::{Contract, History};
use crate::session::{Durable, Session};
use crate::subject::{Check, Counts, FileSystem, Mounter};
use medfs::{FallocateMode, FileFlags, FileKind, RenameFlags, XattrMode};
use medfs_device::MemDevice;
use medfs_device::crash::{CrashPlan, CrashState, RecordingDevice};
use parking_lot::Mutex;
use rand::seq::SliceRandom;
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
        self.0.iter().flat_map(|step| [Some(step.op.clone()), step.made_durable()]).flatten().collect()
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

/// The tree that is durable before a workload: `/f0` (two pages and a bit, with an xattr), `/f1` (inline), `/d0/f0`
/// (many pages), `/d0/f1` (hard link of `/f1`), `/f5` (symlink), `/d1` (empty directory).
pub fn preparation() -> Vec<Op> {
    let (reg, dir) = (FileKind::Regular, FileKind::Directory);
    let file = |dir, name| Target::Path(place(dir, name));
    vec![
        Op::Create { at: place(0, 6), kind: dir, perm: 0o755 },
        Op::Create { at: place(0, 7), kind: dir, perm: 0o755 },
        Op::Create { at: place(0, 0), kind: reg, perm: 0o644 },
        Op::Create { at: place(0, 1), kind: reg, perm: 0o600 },
        Op::Create { at: place(1, 0), kind: reg, perm: 0o640 },
        Op::Link { from: place(0, 1), to: place(1, 1) },
        Op::Symlink { at: place(0, 5), len: 30 },
        Op::Write { file: file(0, 0), offset: 0, len: 9000, seed: 1 },
        Op::Write { file: file(0, 1), offset: 0, len: 100, seed: 2 },
        Op::Write { file: file(1, 0), offset: 0, len: 40_000, seed: 3 },
        Op::SetXattr { file: file(0, 0), name: 0, len: 20, mode: XattrMode::Set },
        Op::Sync,
    ]
}

/// The operations of the bounded space, each with the file it is about.
pub fn operations() -> Vec<(Op, Place)> {
    use FallocateMode as F;
    let (reg, dir) = (FileKind::Regular, FileKind::Directory);
    let mut list = Vec::new();
    let mut add = |op: Op, subject: Place| list.push((op, subject));
    for at in [place(0, 2), place(1, 2)] {
        add(Op::Create { at, kind: reg, perm: 0o644 }, at);
    }
    for at in [place(1, 7), place(2, 6)] {
        add(Op::Create { at, kind: dir, perm: 0o755 }, at);
    }
    add(Op::Symlink { at: place(1, 2), len: 50 }, place(1, 2));
    add(Op::Create { at: place(0, 3), kind: FileKind::Fifo, perm: 0o644 }, place(0, 3));
    for at in [place(0, 0), place(0, 1), place(1, 0)] {
        let file = Target::Path(at);
        add(Op::Write { file, offset: 100, len: 50, seed: 11 }, at);
        add(Op::Write { file, offset: 0, len: 8192, seed: 12 }, at);
        add(Op::Truncate { file, size: 60 }, at);
    }
    for at in [place(0, 0), place(1, 0)] {
        let file = Target::Path(at);
        add(Op::Write { file, offset: if at.dir == 0 { 9000 } else { 40_000 }, len: 6000, seed: 13 }, at);
        add(Op::Write { file, offset: 4096, len: 4096, seed: 14 }, at);
        add(Op::Patch { file, first: 0, count: 3, len: 5, seed: 17 }, at);
        add(Op::Patch { file, first: 1, count: 9, len: 220, seed: 18 }, at);
        add(Op::Patch { file, first: 0, count: 40, len: 100, seed: 19 }, at);
        add(Op::Truncate { file, size: 100_000 }, at);
        add(Op::Fallocate { file, mode: F::empty(), offset: 4096, len: 65_536 }, at);
        add(Op::Fallocate { file, mode: F::KEEP_SIZE, offset: 40_960, len: 16_384 }, at);
        add(Op::Fallocate { file, mode: F::PUNCH_HOLE | F::KEEP_SIZE, offset: 1000, len: 7000 }, at);
        add(Op::Fallocate { file, mode: F::ZERO_RANGE, offset: 4096, len: 8192 }, at);
        add(Op::Fallocate { file, mode: F::COLLAPSE_RANGE, offset: 0, len: 4096 }, at);
        add(Op::Fallocate { file, mode: F::INSERT_RANGE, offset: 4096, len: 4096 }, at);
    }
    // Beyond the inode's own addresses: needs a direct node.
    let at = place(0, 0);
    add(Op::Write { file: Target::Path(at), offset: 930 * 4096, len: 5000, seed: 15 }, at);
    for to in [place(0, 2), place(1, 2)] {
        add(Op::Link { from: place(0, 0), to }, to);
    }
    for at in [place(0, 0), place(0, 1), place(1, 0), place(0, 5)] {
        add(Op::Unlink { at }, at);
    }
    add(Op::Rmdir { at: place(0, 7) }, place(0, 7));
    for (from, to) in [
        (place(0, 0), place(0, 2)),
        (place(0, 0), place(1, 2)),
        (place(1, 0), place(0, 0)),
        (place(0, 0), place(0, 1)),
        (place(0, 6), place(0, 2)),
        (place(0, 6), place(2, 6)),
    ] {
        add(Op::Rename { from, to, flags: RenameFlags::empty() }, to);
    }
    for (from, to) in [(place(0, 0), place(1, 0)), (place(0, 0), place(0, 7))] {
        add(Op::Rename { from, to, flags: RenameFlags::EXCHANGE }, to);
    }
    add(Op::Rename { from: place(0, 0), to: place(1, 2), flags: RenameFlags::WHITEOUT }, place(1, 2));
    for len in [10, 700] {
        add(Op::SetXattr { file: Target::Path(at), name: 1, len, mode: XattrMode::Set }, at);
    }
    add(Op::RemoveXattr { file: Target::Path(at), name: 0 }, at);
    add(Op::Chmod { file: Target::Path(at), perm: 0o400 }, at);
    for (flags, at) in
        [(FileFlags::NODUMP, at), (FileFlags::IMMUTABLE, at), (FileFlags::NOATIME, place(0, 6))]
    {
        add(Op::SetFlags { file: Target::Path(at), flags }, at);
    }
    for (at, default) in [(at, false), (place(0, 6), true)] {
        add(Op::SetAcl { file: Target::Path(at), default, kind: 3, perm: 0o4751 }, at);
    }
    for at in [place(0, 0), place(0, 1), place(1, 0)] {
        let file = Target::Path(at);
        for commit in [true, false] {
            add(Op::AtomicUpdate { file, offsets: [0, 8192], len: 5000, seed: 16, commit }, at);
        }
    }
    list
}

/// All workloads of one operation.
pub fn seq1() -> Vec<Workload> {
    let steps = operations().into_iter().flat_map(|(op, subject)| {
        PERSISTS.map(|persist| Workload(vec![Step { op: op.clone(), subject, persist }]))
    });
    steps.collect()
}

/// All workloads of two operations, in an order that the seed decides, so that any first part is a fair sample.
pub fn seq2(seed: u64) -> Vec<Workload> {
    let operations = operations();
    let mut all = Vec::new();
    for first in &operations {
        for second in &operations {
            for one in PERSISTS {
                for two in PERSISTS {
                    let step = |(op, subject): &(Op, Place), persist| Step {
                        op: op.clone(),
                        subject: *subject,
                        persist,
                    };
                    all.push(Workload(vec![step(first, one), step(second, two)]));
                }
            }
        }
    }
    all.shuffle(&mut ChaCha12Rng::seed_from_u64(seed));
    all
}

/// `count` workloads of five operations each on files with deltas: pages patched, written whole, cut off and punched,
/// deltas that give way to others and to addresses.
pub fn on_deltas(seed: u64, count: usize) -> Vec<Workload> {
    use FallocateMode as F;
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let mut step = || {
        let at = [place(1, 0), place(0, 0)][pick(2)];
        let (file, seed) = (Target::Path(at), pick(200) as u8);
        let page = pick(10) as u64 * 4096;
        let op = match pick(12) {
            0..=2 => Op::Patch { file, first: pick(4) as u16, count: 3, len: 5, seed },
            3 => Op::Patch { file, first: 0, count: 10, len: 240, seed },
            4..=5 => Op::Patch { file, first: 0, count: 40, len: 90, seed },
            6 => Op::Write { file, offset: page, len: 4096, seed },
            7 => Op::Write { file, offset: 0, len: 40_000, seed },
            8 => Op::Write { file, offset: 860 * 4096, len: 30 * 4096, seed },
            9 => Op::Truncate { file, size: page + 100 },
            10 => Op::Fallocate { file, mode: F::PUNCH_HOLE | F::KEEP_SIZE, offset: page, len: 8192 },
            _ => Op::AtomicUpdate { file, offsets: [page, 20_480], len: 70, seed, commit: true },
        };
        Step { op, subject: at, persist: PERSISTS[pick(PERSISTS.len())] }
    };
    (0..count).map(|_| Workload((0..5).map(|_| step()).collect())).collect()
}

/// `count` workloads of seven operations each on a database, its log and its journal: frames, the log taken over, the log
/// begun anew, files that lose what other files are made from.
pub fn on_databases(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let database = place(0, DATABASE);
    let mut step = || {
        let journal = pick(3) == 0;
        let at = place(0, if journal { JOURNAL } else { LOG });
        let (file, seed, page) = (Target::Path(at), pick(200) as u8, pick(10) as u64 * 4096);
        let (op, subject) = match pick(16) {
            0..=5 => {
                let (first, count) = ([0, 0, 3, 8][pick(4)], 1 + pick(8) as u8);
                (Op::Frames { dir: 0, journal, first, count, seed }, at)
            }
            6..=8 => {
                (Op::Patch { file: Target::Path(database), first: 0, count: 12, len: 90, seed }, database)
            }
            9..=10 => (
                Op::Write { file: Target::Path(database), offset: page, len: 8192, seed: seed | 1 },
                database,
            ),
            11 => (Op::Truncate { file, size: page }, at),
            // Where the inode has no addresses.
            12..=13 => (Op::Write { file, offset: 120 * 4096 + page, len: 8192, seed: seed | 1 }, at),
            14 => (Op::Truncate { file: Target::Path(database), size: page + 4096 }, database),
            _ => (Op::Unlink { at }, at),
        };
        Step { op, subject, persist: PERSISTS[pick(PERSISTS.len())] }
    };
    let begin = |at: Place, op: Op| Step { op, subject: at, persist: Persist::Fsync };
    let regular = FileKind::Regular;
    (0..count)
        .map(|_| {
            let mut steps = vec![
                begin(database, Op::Create { at: database, kind: regular, perm: 0o644 }),
                begin(database, Op::Write { file: Target::Path(database), offset: 0, len: 50_000, seed: 3 }),
                begin(place(0, LOG), Op::Create { at: place(0, LOG), kind: regular, perm: 0o644 }),
                begin(place(0, JOURNAL), Op::Create { at: place(0, JOURNAL), kind: regular, perm: 0o644 }),
            ];
            steps.extend((0..7).map(|_| step()));
            Workload(steps)
        })
        .collect()
}

/// `count` workloads on a document that is replaced three times by a file written for that, much of which is the same: made
/// durable in several ways, with other changes of both in between.
pub fn on_replacements(seed: u64, count: usize) -> Vec<Workload> {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let mut pick = |n: usize| random.random_range(0..n);
    let (document, new) = (place(0, DOCUMENT), place(0, TEMPORARY));
    let step = |op: Op, subject: Place, persist| Step { op, subject, persist };
    let mut workload = |_| {
        let mut steps = Vec::new();
        for round in 0..4 {
            let file = Target::Path(new);
            let (first, pages, seed) = (pick(8) as u16, 1 + pick(6) as u8, pick(200) as u8);
            // The first rounds see to it that there is something to be made from.
            let durable = if round < 1 { Persist::Sync } else { PERSISTS[pick(PERSISTS.len())] };
            let synced = if round < 1 || pick(4) > 0 { Persist::Fsync } else { Persist::Nothing };
            let create = Op::Create { at: new, kind: FileKind::Regular, perm: 0o644 };
            steps.push(step(create, new, Persist::Nothing));
            let write = Op::Write { file, offset: 0, len: 50_000 - 3000 * pick(3) as u32, seed: 3 };
            steps.push(step(write, new, if pick(3) == 0 { Persist::Fsync } else { Persist::Nothing }));
            let patch = Op::Patch { file, first, count: pages, len: 30, seed };
            steps.push(step(patch, new, synced));
            let to = if pick(8) == 0 { place(1, DOCUMENT) } else { document };
            let rename = Op::Rename { from: new, to, flags: medfs::RenameFlags::empty() };
            steps.push(step(rename, to, durable));
            let file = Target::Path(document);
            let other = match pick(8) {
                0 => Op::Patch { file, first, count: pages, len: 90, seed },
                1 => Op::Write { file, offset: 4096 * u64::from(first), len: 8192, seed: seed | 1 },
                2 => Op::Truncate { file, size: 20_000 },
                3 if round > 1 => Op::Unlink { at: document },
                4 => {
                    Op::Rename { from: document, to: place(1, DOCUMENT), flags: medfs::RenameFlags::empty() }
                }
                _ => continue,
            };
            steps.push(step(other, document, PERSISTS[pick(PERSISTS.len())]));
        }
        Workload(steps)
    };
    (0..count).map(&mut workload).collect()
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
        session.fs.close().map_err(|e| format!("close: {e}"))
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
    /// The operation that makes it durable.
    pub(crate) fn made_durable(&self) -> Option<Op> {
        let file = Target::Path(self.subject);
        match self.persist {
            Persist::Nothing => None,
            Persist::Fsync => Some(Op::Fsync { file, datasync: false }),
            Persist::Fdatasync => Some(Op::Fsync { file, datasync: true }),
            Persist::FsyncParent => Some(Op::FsyncDir { dir: self.subject.dir }),
            Persist::Sync => Some(Op::Sync),
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
    // What happened since something was made durable last, and this operation's part.
    let mut count = |fs: &dyn FileSystem, durable: Durable| {
        before = fs.counts();
        happened.push(before.since(&settled).kinds());
        if durable != Durable::Nothing {
            settled = before;
        }
    };
    for step in &workload.0 {
        for op in [Some(step.op.clone()), step.made_durable()].into_iter().flatten() {
            let durable = session.apply(&op).map_err(|e| format!("{op:?}: {e}"))?;
            history.push(session.model.clone(), durable);
            session.steps.iter_mut().for_each(|steps| history.note_within(std::mem::take(steps)));
            device.mark(history.len() as u64);
            count(&*session.fs, durable);
        }
    }
    session.fs.close().map_err(|e| format!("close: {e}"))?;
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
            fs.close().map_err(|e| format!("close after recovery: {e}"))?;
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
