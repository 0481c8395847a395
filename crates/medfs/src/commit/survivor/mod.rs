//! A log in memory that outlives the process: with `durability=adaptive`, what was acknowledged and is not
//! durable is found there when the daemon was killed, and done again by the next mount.
//!
//! A commit is a checkpoint of the whole volume, between operations. So a log of the operations since the last
//! checkpoint is enough; each checkpoint empties it. It is a file in a file system in memory, and is gone when the
//! machine stops: power loss takes what the bounds of `durability=adaptive` allow, with or without it.
//!
//! Invariants:
//! 1. An operation is recorded while it holds its locks ([`crate::map::effects`]), so no checkpoint falls between
//!    its effect and its record, and it returns after its record is whole. Where the log cannot take the record,
//!    the operation returns after a checkpoint.
//! 2. Before a checkpoint can count, the head of the log says which one it is and which records it has. So a
//!    volume as of it, or as of the one before, is told from any other, and no record is done twice.
//! 3. A log that does not follow the volume's checkpoint, or is damaged, is not replayed: it gets another name.
//!
//! Locks: `state` is a leaf.

mod clock;
mod log;
mod record;
mod replay;

pub(crate) use clock::OpClock;

use crate::commit::checkpoint::CheckpointSink;
use crate::error::{Error, Result};
use crate::map::effects::{Effect, OpLog};
use crate::options::{DurabilityMode, MountOptions, Survivor as Place};
use crate::tree::Tree;
use log::{Head, Log, Mark, START, Unusable};
use medfs_format::Ino;
use medfs_sync::Mutex;
use serde::Serialize;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Room that an operation finds in a log before it begins.
const ROOM: u64 = 2 << 20;

/// What the log that outlives the daemon holds, and what it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct SurvivorStats {
    /// Its file.
    pub place: String,
    /// Bytes that it may have.
    pub limit: u64,
    /// Bytes of it that records take which no checkpoint has.
    pub used: u64,
    /// Operations recorded since the mount.
    pub records: u64,
    /// Bytes of their records.
    pub record_bytes: u64,
    /// Operations that waited for a commit, as the log was full.
    pub waited: u64,
    /// Those that waited for one after they were done, as the log did not take their record.
    pub unrecorded: u64,
    /// Operations of an earlier daemon that the mount did again.
    pub replayed: u64,
    /// Those of them that could not be done again.
    pub failed: u64,
    /// What the mount said of an earlier daemon's log.
    pub told: Vec<String>,
}

/// What the log does now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// Records are done again: those before `done` are, and the one that ends at `next` is about to be.
    Replaying {
        done: Mark,
        next: Option<Mark>,
    },
    Recording,
    /// The log failed: every operation waits for a checkpoint.
    Failed,
    /// Nothing is recorded.
    Off,
}

struct State {
    log: Log,
    mode: Mode,
    /// The number that the next inode should get.
    wanted: Option<Ino>,
    stats: SurvivorStats,
}

/// See the module.
pub(crate) struct Survivor {
    state: Mutex<State>,
    limit: u64,
    /// An operation is not in the log, and no checkpoint has it.
    behind: AtomicBool,
    /// Bytes in use, for those who ask before every operation.
    used: AtomicU64,
    /// Records to be done again.
    pending: AtomicU64,
}

/// The file of a volume's log.
pub(crate) fn path(opts: &MountOptions, uuid: [u8; 16]) -> Option<PathBuf> {
    match &opts.survivor {
        Place::In(directory) => Some(file_in(directory, uuid)),
        Place::Auto | Place::Off => None,
    }
}

fn file_in(directory: &Path, uuid: [u8; 16]) -> PathBuf {
    directory.join(format!("medfs-{}.log", uuid::Uuid::from_bytes(uuid)))
}

/// The log of a volume in a directory of `survivor=`, where it has operations that a daemon acknowledged and no
/// checkpoint has. Only a mount brings them back; what changes the volume otherwise makes them void.
pub fn waiting_operations(directory: &Path, uuid: [u8; 16]) -> Option<PathBuf> {
    let path = file_in(directory, uuid);
    let mut log = Log::open(&path).ok()??;
    let base = log.head.base;
    (log.head.uuid == uuid && log.find_end(base).ok()? != Some(0)).then_some(path)
}

/// The log of a volume that is as of its last checkpoint, before orphans are freed and fsynced files rolled
/// forward: an earlier daemon's, or a new one where `durability=adaptive` asks for it.
pub(crate) fn find(on: &Tree) -> Option<Arc<Survivor>> {
    let path = path(&on.opts, on.sb.uuid)?;
    let survivor = match found(on, &path) {
        Ok(survivor) => survivor?,
        Err(why) => {
            tracing::warn!("{}", cannot_use(&path, &why));
            return None;
        }
    };
    match survivor.hold_orphans(on) {
        Ok(()) => Some(Arc::new(survivor)),
        Err(error) => {
            tracing::warn!(%error, "the log {} cannot be read", path.display());
            None
        }
    }
}

/// The log at a path, or a new one; `None` where none is wanted.
fn found(on: &Tree, path: &Path) -> Result<Option<Survivor>, Unusable> {
    let log = Log::open(path)?;
    if on.read_only {
        let Some(mut log) = log else { return Ok(None) };
        let follows = follows(on, &log.head);
        if follows.is_some_and(|from| log.find_end(from).is_ok_and(|count| count != Some(0))) {
            tracing::warn!(
                "{} has what a daemon acknowledged before it was killed: only a mount that may write shows it",
                path.display()
            );
        }
        return Ok(None);
    }
    let mut told = Vec::new();
    let found = match log {
        Some(log) => pending(on, log, &mut told)?,
        None => None,
    };
    let (log, pending) = match found {
        Some(found) => found,
        None if on.opts.durability == DurabilityMode::Posix => return Ok(None),
        None => (Log::create(path, on.sb.uuid, on.version_in_footers())?, 0),
    };
    Ok(Some(Survivor::new(log, pending, told, on.opts.survivor_bytes)))
}

/// Says the last of what was said.
fn tell(told: &[String]) {
    if let Some(sentence) = told.last() {
        tracing::warn!("{sentence}");
    }
}

const NOTHING_REPLAYED: &str = "nothing of it was replayed";

/// Gives a log another name for this reason, and says so.
fn set_aside(log: &Log, why: &str, told: &mut Vec<String>) -> io::Result<()> {
    let name = log.set_aside()?;
    told.push(format!(
        "the log {} {why}, and it is kept as {}: no command reads that file, and it takes memory until it is removed",
        log.path().display(),
        name.display()
    ));
    tell(told);
    Ok(())
}

fn cannot_use(path: &Path, why: &Unusable) -> String {
    let path = path.display();
    let what = "a daemon that is killed loses what is not durable";
    match why {
        Unusable::Busy => {
            format!("{path} is the log of another mount of a volume with the same UUID: {what}")
        }
        Unusable::Foreign(why) => format!("{path} {why} and is not used as a log: {what}"),
        Unusable::Failed(error) => format!("{path} cannot be used as a log: {error}; {what}"),
    }
}

/// The first record that the volume lacks; `None` where the log is not of the volume as it is now.
fn follows(on: &Tree, head: &Head) -> Option<Mark> {
    let now = on.version_in_footers();
    let marks = (head.uuid == on.sb.uuid).then_some([head.base, head.intent])?;
    marks.into_iter().find(|mark| mark.version == now)
}

/// An earlier daemon's log at the first record that the volume lacks, and how many these are. `None` where it is
/// not this volume's as it is now: then it was set aside.
fn pending(on: &Tree, mut log: Log, told: &mut Vec<String>) -> io::Result<Option<(Log, u64)>> {
    let mut aside =
        |log: Log, why: &str| set_aside(&log, &format!("{why}: {NOTHING_REPLAYED}"), told).map(|()| None);
    let (head, now) = (log.head, on.version_in_footers());
    if head.uuid != on.sb.uuid {
        return aside(log, "is of another volume or damaged");
    }
    let Some(from) = follows(on, &head) else {
        let (number, base) = (now as u32, head.base.version as u32);
        let older = if base <= number { "older" } else { "newer" };
        let why = format!("is {older} than the volume (checkpoint {base}, the volume has {number})");
        return if log.find_end(head.base)? == Some(0) {
            log.remove().map(|()| None)
        } else {
            aside(log, &why)
        };
    };
    let Some(count) = log.find_end(from)? else { return aside(log, "is damaged in the middle") };
    log.head.base = from;
    Ok(Some((log, count)))
}

impl Survivor {
    fn new(log: Log, pending: u64, told: Vec<String>, limit: u64) -> Survivor {
        let done = log.head.base;
        let mode = if pending > 0 { Mode::Replaying { done, next: None } } else { Mode::Recording };
        let place = log.path().display().to_string();
        let stats = SurvivorStats { place, limit, told, ..SurvivorStats::default() };
        let (behind, used) = (AtomicBool::new(false), AtomicU64::new(0));
        let state = Mutex::new(State { log, mode, wanted: None, stats });
        Survivor { state, limit, behind, used, pending: pending.into() }
    }

    /// Whether there are records to be done again: until they are, no checkpoint may be made that has none of them.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) > 0
    }

    /// After roll-forward: what the log says follows the checkpoint, and not the fsyncs of another mount, which
    /// would not have been made had its daemon not been killed.
    pub(crate) fn after_roll_forward(&self, on: &Tree) -> Result<()> {
        if !self.is_pending() || on.counters.recovered_inodes.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        self.pending.store(0, Ordering::Relaxed);
        on.orphans.list().into_iter().filter(|&ino| on.inodes.is_held(ino)).for_each(|ino| {
            on.inodes.release(ino, 1);
        });
        let why = "is older than fsyncs of another mount of the volume";
        self.begin_another(on, &format!("{why}: {NOTHING_REPLAYED}"))
    }

    /// Does again what there is, makes it durable, and begins to record where that is asked for.
    pub(crate) fn begin(self: Arc<Survivor>, on: &Tree) -> Result<()> {
        if on.is_read_only() {
            // What the records follow is not durable.
            return Ok(());
        }
        on.effects.begin(self.clone());
        if self.is_pending() {
            let failed = self.replay(on)?;
            match CheckpointSink.sync(on) {
                Err(Error::NoSpace) => {
                    on.io.stop_writing("there is no room to write what was replayed");
                    self.state.lock().mode = Mode::Off;
                    return Ok(());
                }
                done => done?,
            }
            if failed > 0 {
                return self.begin_another(on, "could not be replayed as a whole");
            }
        }
        let state = &mut *self.state.lock();
        if state.mode == Mode::Off {
            return Ok(());
        }
        if on.opts.durability == DurabilityMode::Posix {
            state.mode = Mode::Off;
            return Ok(state.log.remove()?);
        }
        state.log.empty(on.version_in_footers())?;
        state.mode = Mode::Recording;
        Ok(())
    }

    /// Keeps the log for this reason, and begins to record in another file.
    fn begin_another(&self, on: &Tree, why: &str) -> Result<()> {
        let state = &mut *self.state.lock();
        set_aside(&state.log, why, &mut state.stats.told)?;
        state.mode = Mode::Off;
        if on.opts.durability == DurabilityMode::Posix {
            return Ok(());
        }
        let path = state.log.path().to_owned();
        match Log::create(&path, on.sb.uuid, on.version_in_footers()) {
            Ok(log) => (state.log, state.mode) = (log, Mode::Recording),
            Err(why) => tracing::warn!("{}", cannot_use(&path, &why)),
        }
        Ok(())
    }

    /// After the checkpoint of an unmount: nobody needs the log.
    pub(crate) fn end(&self) -> Result<()> {
        let state = &mut *self.state.lock();
        if std::mem::replace(&mut state.mode, Mode::Off) == Mode::Off {
            Ok(())
        } else {
            Ok(state.log.remove()?)
        }
    }

    /// Whether a commit comes before the next operation, as the log is nearly full; counted.
    pub(crate) fn is_full(&self) -> bool {
        let full = self.used.load(Ordering::Relaxed) + ROOM.min(self.limit / 4) > self.limit;
        if full {
            self.state.lock().stats.waited += 1;
        }
        full
    }

    /// Whether an operation that is done has to wait for a checkpoint.
    pub(crate) fn is_behind(&self) -> bool {
        self.behind.load(Ordering::Acquire)
    }

    pub(crate) fn stats(&self) -> SurvivorStats {
        let used = self.used.load(Ordering::Relaxed);
        SurvivorStats { used, ..self.state.lock().stats.clone() }
    }

    /// Begins anew behind a checkpoint; in another file, where somebody removed this one.
    fn go_on(&self, state: &mut State, version: u64) -> io::Result<()> {
        if state.log.is_in_its_place()? {
            let is_empty = state.log.end == START && state.log.head.base.version == version;
            return if is_empty { Ok(()) } else { state.log.empty(version) };
        }
        let path = state.log.path().to_owned();
        state.log = match Log::create(&path, state.log.head.uuid, version) {
            Ok(log) => log,
            Err(Unusable::Failed(error)) => return Err(error),
            Err(why) => return Err(io::Error::other(cannot_use(&path, &why))),
        };
        state.stats.told.push(format!("the log {} was removed: another one was begun", path.display()));
        tell(&state.stats.told);
        Ok(())
    }

    fn fail(&self, state: &mut State, error: &io::Error) {
        tracing::error!(%error, "the log {} failed: operations wait for commits", state.log.path().display());
        state.mode = Mode::Failed;
        self.behind.store(true, Ordering::Release);
    }
}

impl OpLog for Survivor {
    fn begins(&self) {
        clock::begins();
    }

    fn ends(&self) {
        clock::ends();
    }

    fn note(&self, effect: &Effect<'_>) {
        let state = &mut *self.state.lock();
        match &mut state.mode {
            Mode::Replaying { done, next } => *done = next.take().unwrap_or(*done),
            Mode::Recording if self.behind.load(Ordering::Acquire) => state.stats.unrecorded += 1,
            Mode::Recording => {
                let encoded = record::encode(effect);
                match state.log.append(clock::told(), &encoded, self.limit) {
                    Ok(true) => {
                        state.stats.records += 1;
                        state.stats.record_bytes += encoded.len() as u64;
                        self.used.store(state.log.end - START, Ordering::Relaxed);
                    }
                    // What comes after it is not recorded either: records have no gap.
                    refused => {
                        if let Err(error) = refused {
                            tracing::warn!(%error, "the log {} takes no record", state.log.path().display());
                        }
                        state.stats.unrecorded += 1;
                        self.behind.store(true, Ordering::Release);
                    }
                }
            }
            Mode::Failed => state.stats.unrecorded += 1,
            Mode::Off => {}
        }
    }

    fn checkpointing(&self, version: u64) {
        let state = &mut *self.state.lock();
        let (at, number) = match state.mode {
            Mode::Replaying { done, .. } => (done.at, done.number),
            Mode::Recording => (state.log.end, state.log.number),
            Mode::Failed | Mode::Off => return,
        };
        state.log.head.intent = Mark { version, at, number };
        if let Err(error) = state.log.write_head() {
            // Where the checkpoint counts, the log is older than the volume.
            self.fail(state, &error);
        }
    }

    fn checkpointed(&self, version: u64) {
        let state = &mut *self.state.lock();
        let written = match state.mode {
            Mode::Replaying { done, .. } => {
                state.log.head.base = Mark { version, ..done };
                state.log.write_head()
            }
            Mode::Recording => self.go_on(state, version),
            Mode::Failed | Mode::Off => return,
        };
        if let Err(error) = written {
            return self.fail(state, &error);
        }
        if state.mode == Mode::Recording {
            self.used.store(0, Ordering::Relaxed);
            self.behind.store(false, Ordering::Release);
        }
    }

    fn wanted(&self) -> Option<Ino> {
        self.state.lock().wanted.take()
    }
}
