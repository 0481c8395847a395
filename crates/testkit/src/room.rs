//! Want of room: a workload meets a full volume at the k-th block that it takes from a log, for every log and
//! every k; or it runs on a volume on which so many blocks are free.
//!
//! Whatever is refused, nothing that was acknowledged is lost: the volume as power loss leaves it at that
//! moment is mounted, checked for structure, and judged by the contract ([`crate::oracle`]); so is the one
//! after a sync that succeeds, which must show exactly what was seen before.

use crate::crash_states::Workload;
use crate::harness::guarded;
use crate::model::Model;
use crate::observe::{compare, observe};
use crate::ops::Op;
use crate::oracle::History;
use crate::session::{Durable, Session};
use crate::subject::Check;
use crate::volume::test_clock;
use medfs::{FallocateMode, FileKind, Files, MountOptions, NewFile, Volume};
use medfs_device::MemDevice;
use medfs_format::summary::LOG_COUNT;
use std::sync::Arc;

/// What every message of a full volume says.
const NO_ROOM: &str = "no space left";

/// A kind of volume.
#[derive(Clone)]
pub struct Kind {
    /// Its name in reports.
    pub name: String,
    /// What workloads find, durable.
    pub base: Arc<MemDevice>,
    /// How it is mounted.
    pub options: MountOptions,
    /// Judges of structure, after the mount that follows power loss.
    pub check: Arc<dyn Check>,
}

/// Where want of room is met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// The log.
    pub log: usize,
    /// Blocks of it that are handed out before.
    pub after: u64,
    /// Whether the log stays full, or refuses one block alone.
    pub stays: bool,
}

/// A run without want of room: the model after each operation, what each made durable, and how many blocks
/// each log gave.
pub struct Course {
    ops: Vec<Op>,
    states: Vec<(Model, Durable)>,
    taken: [u64; LOG_COUNT],
}

impl Kind {
    fn mount(&self, device: &Arc<MemDevice>) -> Result<Arc<Volume>, String> {
        let volume = Volume::open(device.clone(), self.options.clone(), test_clock());
        volume.map(Arc::new).map_err(|e| format!("mount: {e}"))
    }

    /// Runs a workload where nothing is in its way.
    pub fn course(&self, workload: &Workload) -> Result<Course, String> {
        let mut ops = workload.ops();
        // The last one makes the logs of directories part of every workload.
        ops.push(Op::Checkpoint);
        let volume = self.mount(&Arc::new(self.base.snapshot()))?;
        let mut session = Session::new(volume.clone())?;
        let mut states = Vec::new();
        for op in &ops {
            let durable = session.apply(op)?;
            states.push((session.model.clone(), durable));
        }
        Ok(Course { ops, states, taken: volume.blocks_taken() })
    }

    /// Runs it with want of room at one point. Tells whether anything failed for it.
    pub fn run(&self, course: &Course, point: Point) -> Result<bool, String> {
        let device = Arc::new(self.base.snapshot());
        let volume = self.mount(&device)?;
        let mut session = Session::new(volume.clone())?;
        let mut history = History::new(session.model.clone());
        volume.refuse_blocks(point.log, point.after, if point.stays { u64::MAX } else { 1 });
        let mut acknowledged = course.ops.len();
        for (at, op) in course.ops.iter().enumerate() {
            match guarded(|| session.apply(op)) {
                Ok(_) => {}
                Err(message) if message.contains(NO_ROOM) => acknowledged = acknowledged.min(at),
                Err(message) => return Err(format!("{op:?}: {message}")),
            }
            let (mut state, durable) = course.states[at].clone();
            // Want of room where nobody is refused for it may give a file another number than in the course.
            for (id, inode) in session.model.inodes().filter(|&(id, _)| course.states[at].0.get(id).is_some())
            {
                state.inode_mut(id).ino = inode.ino;
            }
            history.push(state, durable);
            if acknowledged <= at {
                break;
            }
        }
        let issued = history.len();
        let failed = acknowledged < issued;
        self.judge(&device, &history, acknowledged, issued, None)
            .map_err(|e| format!("at that moment: {e}"))?;
        if point.stays && volume.sync().is_ok() {
            let seen = observe(&*volume)?;
            self.judge(&device, &history, acknowledged, issued, Some(&seen))
                .map_err(|e| format!("after a sync on a full log: {e}"))?;
        }
        volume.refuse_blocks(0, 0, 0);
        volume.sync().map_err(|e| format!("sync with room again: {e}"))?;
        let seen = observe(&*volume)?;
        self.judge(&device, &history, acknowledged, issued, Some(&seen))
            .map_err(|e| format!("after a sync with room again: {e}"))?;
        Ok(failed)
    }

    /// Mounts what power loss leaves, checks it, and judges what it shows; `seen` is what it must show exactly.
    fn judge(
        &self,
        device: &Arc<MemDevice>,
        history: &History,
        acknowledged: usize,
        issued: usize,
        seen: Option<&Model>,
    ) -> Result<(), String> {
        let copy = Arc::new(device.snapshot());
        let volume = self.mount(&copy)?;
        if volume.is_read_only() {
            return Err("the volume is read-only after power loss".into());
        }
        let found = observe(&*volume)?;
        history.judge(&found, acknowledged, issued)?;
        if let Some(seen) = seen {
            compare(seen, &found)?;
        }
        volume.close().map_err(|e| format!("close: {e}"))?;
        self.check.check(copy).map_err(|e| format!("{}: {e}", self.check.name()))
    }

    /// Runs it on a volume on which no more than `free` blocks are free. Returns how many operations were refused.
    pub fn run_full(&self, workload: &Workload, free: u64) -> Result<usize, String> {
        let device = Arc::new(self.base.snapshot());
        let volume = self.mount(&device)?;
        take_all_but(&volume, free).map_err(|e| format!("filling: {e}"))?;
        let mut session = Session::new(volume.clone())?;
        session.crowded = true;
        let mut history = History::new(session.model.clone());
        for op in workload.ops() {
            let durable = guarded(|| session.apply(&op)).map_err(|e| format!("{op:?}: {e}"))?;
            history.push(session.model.clone(), durable);
        }
        let ops = history.len();
        self.judge(&device, &history, ops, ops, None).map_err(|e| format!("at the end: {e}"))?;
        volume.sync().map_err(|e| format!("sync: {e}"))?;
        let seen = observe(&*volume)?;
        self.judge(&device, &history, ops, ops, Some(&seen)).map_err(|e| format!("after a sync: {e}"))?;
        Ok(session.refused)
    }
}

/// Reserves what is free for a file, but so many blocks.
fn take_all_but(volume: &Volume, free: u64) -> medfs::Result<()> {
    let new = NewFile { kind: FileKind::Regular, perm: 0o600, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let filler = volume.create(volume.root(), b"filler", &new)?.ino;
    let mut pages = 0;
    while volume.space().free > free {
        let now = volume.space();
        let more = now.available.saturating_sub(free).max(1).min(now.free - free);
        volume.fallocate(filler, FallocateMode::KEEP_SIZE, pages * 4096, more * 4096)?;
        pages += more;
    }
    volume.release(filler, 1);
    volume.sync()
}

impl Course {
    /// Every point at which this course can meet want of room.
    pub fn points(&self) -> Vec<Point> {
        let logs = self.taken.iter().enumerate();
        let blocks = logs.flat_map(|(log, &taken)| (0..taken).map(move |after| (log, after)));
        blocks.flat_map(|(log, after)| [false, true].map(|stays| Point { log, after, stays })).collect()
    }
}
