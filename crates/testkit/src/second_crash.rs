//! Crashes after crashes: power is lost while fsyncs are on their way, again while the volume is being opened
//! or soon after, and once more.
//!
//! A *life* of a volume is a mount, the operations of a workload, and a loss of power. Its writes are
//! recorded from the beginning of the mount, so that cuts come while what was fsynced is rolled forward as
//! well as later. A seed decides a tree of lives: of the crash states of the first some are chosen, each is
//! the volume of a further life, and so on down to the last cut.
//!
//! What is asked at each mount:
//! - After a cut in the operations of the life before: what the contract allows ([`crate::oracle`]) of *that*
//!   life, which began with what its own mount found. So nothing of an earlier life comes back that a mount
//!   in between did not show.
//! - After a cut while the volume was being opened: what that mount found in the end. Roll-forward that is
//!   interrupted leads to the same.
//! - Opening it read-only writes nothing.
//!
//! A failure names the seed, and the states on the way to it.

use crate::crash_states::{Persist, Report, Setup, Step, Workload, prepared};
use crate::harness::guarded;
use crate::model::Model;
use crate::observe::{compare, observe};
use crate::ops::{DATABASE, LOG, Op, Place, Target, place};
use crate::oracle::History;
use crate::session::Session;
use crate::subject::Mounter;
use crate::workloads::mixed;
use medfs::{FileKind, RenameFlags, XattrMode};
use medfs_device::MemDevice;
use medfs_device::crash::{CrashPlan, CrashState, Event, RecordingDevice};
use rand::seq::IteratorRandom;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use std::sync::Arc;

/// What a run needs beside what all crash states need.
#[derive(Clone)]
pub struct Lives {
    /// Image, options, checks of the last cut (`check_every`), and the plan of states.
    pub setup: Setup,
    /// Opens a volume read-only.
    pub read_only: Mounter,
    /// How many states of each life are followed, from the first life on: as many cuts as there are numbers.
    pub cuts: Vec<usize>,
}

/// Marks of a recording: the mount has returned, and so many operations were acknowledged since.
const OPENED: u64 = 1;

/// A mount that ended with a loss of power.
struct Life {
    recorder: Arc<RecordingDevice>,
    workload: Workload,
    history: History,
}

impl Life {
    /// What a mount after this crash may find.
    fn judge(&self, state: &CrashState, found: &Model) -> Result<(), String> {
        let Some(mark) = state.last_mark() else {
            return compare(self.history.first(), found)
                .map_err(|e| format!("not what the mount that was interrupted had found: {e}"));
        };
        let acknowledged = (mark - OPENED) as usize;
        self.history.judge(found, acknowledged, (acknowledged + 1).min(self.history.len()))
    }
}

/// A run of one seed.
struct Run<'a> {
    lives: &'a Lives,
    random: ChaCha12Rng,
    report: Report,
}

/// Runs the tree of lives that a seed decides.
pub fn run(lives: &Lives, seed: u64) -> Report {
    let mut run = Run { lives, random: ChaCha12Rng::seed_from_u64(seed), report: Report::default() };
    let ended = guarded(|| {
        let base = prepared(&lives.setup)?;
        let workload = run.workload();
        let first = run.live(base, workload, |_| Ok(()))?;
        run.follow(&first, 0, &format!("seed {seed}"))
    });
    if let Err(message) = ended {
        run.report.failures.push(format!("seed {seed}: {message}"));
    }
    run.report
}

impl Run<'_> {
    fn pick(&mut self, n: usize) -> usize {
        self.random.random_range(0..n)
    }

    /// Opens a volume, lets `judge` see what is found, and runs a workload, all of it recorded.
    fn live(
        &mut self,
        device: MemDevice,
        workload: Workload,
        judge: impl FnOnce(&Model) -> Result<(), String>,
    ) -> Result<Life, String> {
        let recorder = Arc::new(RecordingDevice::new(&device));
        let fs = (self.lives.setup.mounter)(recorder.clone()).map_err(|e| format!("mount: {e}"))?;
        let mut session = Session::new(fs)?;
        judge(&session.model)?;
        let mut history = History::new(session.model.clone());
        recorder.mark(OPENED);
        for step in &workload.0 {
            for op in step.parts() {
                let durable = session.apply(&op).map_err(|e| format!("[{workload}], {op:?}: {e}"))?;
                history.push(session.model.clone(), durable);
                recorder.mark(OPENED + history.len() as u64);
            }
        }
        self.report.workloads += 1;
        self.report.counts += session.fs.counts();
        Ok(Life { recorder, workload, history })
    }

    /// Follows some of the crash states of a life; `path` says how it came to that.
    fn follow(&mut self, life: &Life, depth: usize, path: &str) -> Result<(), String> {
        let plan = CrashPlan { seed: self.random.random(), ..self.lives.setup.plan.clone() };
        for state in self.choose(life, &plan, self.lives.cuts[depth]) {
            if self.report.failures.len() >= self.lives.setup.max_failures {
                break;
            }
            let path = format!("{path}\n    life {depth}: [{}], {state:?}", life.workload);
            self.report.states += 1;
            self.report.nested += usize::from(state.last_mark().is_none());
            if depth + 1 < self.lives.cuts.len() {
                let workload = self.workload();
                match guarded(|| self.live(state.device(), workload, |found| life.judge(&state, found))) {
                    Ok(next) => self.follow(&next, depth + 1, &path)?,
                    Err(message) => self.report.failures.push(format!("{path}\n    {message}")),
                }
            } else if let Err(message) = guarded(|| self.end(life, &state)) {
                self.report.failures.push(format!("{path}\n    {message}"));
            }
        }
        Ok(())
    }

    /// States to follow. Half of them are such that a node was stored and an earlier one of the same moment was not.
    fn choose(&mut self, life: &Life, plan: &CrashPlan, count: usize) -> Vec<CrashState> {
        let recording = life.recorder.recording();
        let overtaken = |state: &CrashState| {
            let nodes = |events: &mut dyn Iterator<Item = usize>| -> Vec<usize> {
                let is_node = |&event: &usize| matches!(recording.log()[event], Event::Write { cause, .. } if cause == medfs_device::Cause::Node);
                events.filter(is_node).collect()
            };
            let stored = nodes(&mut state.stored.iter().map(|(_, choice)| choice.event));
            let lost = nodes(&mut state.lost_events());
            stored.iter().max() > lost.iter().min() && !lost.is_empty()
        };
        let mut chosen =
            recording.states(plan).filter(overtaken).choose_multiple(&mut self.random, count / 2);
        let rest = count - chosen.len();
        chosen.extend(recording.states(plan).choose_multiple(&mut self.random, rest));
        chosen.sort_by_key(|state| state.ordinal);
        chosen
    }

    /// The last cut: what is found, and whether the volume is sound.
    fn end(&mut self, life: &Life, state: &CrashState) -> Result<(), String> {
        let setup = &self.lives.setup;
        let device = Arc::new(state.device());
        if setup.raw_every > 0 && self.random.random_range(0..setup.raw_every) == 0 {
            for check in &setup.raw_checks {
                check.check(device.clone()).map_err(|e| format!("before recovery, {}: {e}", check.name()))?;
            }
            let recorder = Arc::new(RecordingDevice::new(&device));
            observe(&*(self.lives.read_only)(recorder.clone()).map_err(|e| format!("read-only: {e}"))?)?;
            if let Some(event) = recorder.recording().log().first() {
                return Err(format!("opened read-only, but: {event:?}"));
            }
        }
        let fs = (setup.mounter)(device.clone()).map_err(|e| format!("mount: {e}"))?;
        let found = observe(&*fs)?;
        life.judge(state, &found)?;
        if setup.check_every == 0 || self.random.random_range(0..setup.check_every) > 0 {
            return Ok(());
        }
        self.report.checked += 1;
        fs.unmount().map_err(|e| format!("close after recovery: {e}"))?;
        drop(fs);
        for check in &setup.checks {
            check.check(device.clone()).map_err(|e| format!("after recovery, {}: {e}", check.name()))?;
        }
        let fs = (setup.mounter)(device).map_err(|e| format!("next mount: {e}"))?;
        compare(&found, &observe(&*fs)?).map_err(|e| format!("the next mount differs: {e}"))
    }

    /// What is done in one life: mostly fsyncs of several files, seldom a checkpoint.
    fn workload(&mut self) -> Workload {
        if self.pick(4) == 0 {
            return mixed(self.random.random(), 5).swap_remove(self.random.random_range(0..5));
        }
        let mut steps = Vec::new();
        for _ in 0..1 + self.pick(4) {
            self.fsyncs_in_flight(&mut steps);
        }
        Workload(steps)
    }

    /// Some files change and become durable together, or some of them do.
    fn fsyncs_in_flight(&mut self, steps: &mut Vec<Step>) {
        const FILES: [Place; 9] = [
            place(0, 0),
            place(1, 0),
            place(0, 1),
            place(0, 2),
            place(1, 2),
            place(0, 3),
            place(2, 0),
            place(0, DATABASE),
            place(0, LOG),
        ];
        let step = |op, subject| Step { op, subject, persist: Persist::Nothing };
        let chosen = FILES.into_iter().choose_multiple(&mut self.random, 3);
        for &at in &chosen {
            for _ in 0..1 + self.pick(2) {
                steps.push(step(self.change(at), at));
            }
        }
        let files = [chosen[0], chosen[1], chosen[2]].map(Target::Path);
        let datasync = self.pick(4) == 0;
        let durable = match self.pick(12) {
            0 => return,
            1 => Op::Sync,
            2 => Op::FsyncDir { dir: chosen[0].dir },
            3 => Op::Fsync { file: files[0], datasync },
            _ => Op::FsyncMany { files, datasync, threads: false },
        };
        steps.push(step(durable, chosen[0]));
    }

    /// A change of one file: of content near its beginning or in a node of its own, of attributes, of its name.
    fn change(&mut self, at: Place) -> Op {
        let (file, seed) = (Target::Path(at), self.random.random());
        let page = 4096 * self.pick(12) as u64;
        match self.pick(16) {
            0..3 => Op::Create { at, kind: FileKind::Regular, perm: 0o640 },
            3..6 => Op::Write { file, offset: page, len: [60, 4096, 9000, 30_000][self.pick(4)], seed },
            6..8 => Op::Write { file, offset: 930 * 4096 + page, len: [200, 9000][self.pick(2)], seed },
            8..12 => {
                let (first, count) = (self.pick(5) as u16, 1 + self.pick(6) as u8);
                Op::Patch { file, first, count, len: [5, 40, 200][self.pick(3)], seed }
            }
            12 if at.name == LOG => Op::Frames { dir: 0, journal: false, first: 0, count: 4, seed },
            12 => Op::Truncate { file, size: page + 100 },
            13 => Op::SetXattr { file, name: 1, len: [10, 700][self.pick(2)], mode: XattrMode::Set },
            14 => Op::Chmod { file, perm: [0o600, 0o444][self.pick(2)] },
            _ if self.pick(2) == 0 => Op::Unlink { at },
            _ => Op::Rename { from: at, to: place(1, at.name % 6), flags: RenameFlags::empty() },
        }
    }
}
