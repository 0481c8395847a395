//! What a log holds is done again, through the same operations.
//!
//! Inodes get the numbers that they had where these are free; otherwise records of them are of other numbers
//! from there on. The holds that the daemon's callers had are kept until a record says that the inode went: an
//! inode without a name is there as long as records of it may come. Afterwards all holds are given back.
//!
//! Invariants: before a record is done the head names it and says how often that was begun, so an operation
//! that ends the process each time is left out the third time. A checkpoint that falls into a replay notes the
//! records that it has.
//! Locks: called with none held.

use super::log::{Mark, Record};
use super::record::{self, Pages};
use super::{Mode, Survivor, clock, tell};
use crate::content::file::WriteTimes;
use crate::error::{Error, Posix, Result};
use crate::map::effects::{Atomic, Effect, Renamed};
use crate::tree::Tree;
use medfs_format::{BLOCK_SIZE, Ino};
use std::collections::{BTreeSet, HashMap};

const PAGE: u64 = BLOCK_SIZE as u64;

/// So often a record is begun.
const TRIES: u32 = 2;
/// So many operations that could not be done again are named.
const NAMED: u64 = 5;

/// Inodes as the records know them.
struct Replay<'a> {
    on: &'a Tree,
    log: &'a Survivor,
    /// Numbers that inodes did not get again.
    numbers: HashMap<Ino, Ino>,
    /// Held by this, each once.
    held: BTreeSet<Ino>,
}

impl Survivor {
    /// Keeps inodes without a name that records are of, before a mount frees those that nobody holds.
    pub(super) fn hold_orphans(&self, on: &Tree) -> Result<()> {
        let mut at = self.state.lock().log.head.base;
        let orphans: BTreeSet<Ino> = on.orphans.list().into_iter().collect();
        let (mut held, mut new) = (BTreeSet::new(), BTreeSet::new());
        while let Some(record) = self.next(&mut at)? {
            let mut pages = Pages::new();
            let effect = record::decode(&record.bytes, &mut pages);
            held.extend(effect.iter().flat_map(inodes).filter(|ino| orphans.contains(ino)));
            new.extend(effect.as_ref().and_then(new_inode));
        }
        on.nat.keep(new);
        held.into_iter().for_each(|ino| on.inodes.hold(ino, 1));
        Ok(())
    }

    /// The next record of those that were found whole.
    fn next(&self, at: &mut Mark) -> Result<Option<Record>> {
        let state = self.state.lock();
        if at.number == state.log.number {
            return Ok(None);
        }
        let Some(record) = state.log.read(at.at, at.number)? else {
            return Err(Error::Invalid("a record of the log changed while it was replayed".into()));
        };
        (at.at, at.number) = (record.end, record.number + 1);
        Ok(Some(record))
    }

    /// Does all records again; returns how many could not be.
    pub(super) fn replay(&self, on: &Tree) -> Result<u64> {
        let mut at = self.state.lock().log.head.base;
        let held = on.orphans.list().into_iter().filter(|&ino| on.inodes.is_held(ino)).collect();
        let mut replay = Replay { on, log: self, numbers: HashMap::new(), held };
        let (mut done, mut failed) = (0, 0);
        while let Some(record) = self.next(&mut at)? {
            match self.step(&mut replay, &record, at)? {
                Ok(()) => done += 1,
                Err(why) => {
                    failed += 1;
                    if failed <= NAMED {
                        self.say(format!("not done again: {why}"));
                    }
                }
            }
        }
        // All are done: what ends the process from here on is none of them.
        {
            let log = &mut self.state.lock().log;
            (log.head.suspect, log.head.tries) = (0, 0);
            log.write_head()?;
        }
        on.nat.keep(BTreeSet::new());
        replay.held.iter().for_each(|&ino| drop(on.release(ino, 1)));
        self.say(match failed {
            0 => {
                format!("a daemon had been killed: {done} operations that it had acknowledged were replayed")
            }
            _ => format!("a daemon had been killed: {done} operations were replayed, {failed} could not be"),
        });
        let stats = &mut self.state.lock().stats;
        (stats.replayed, stats.failed) = (done, failed);
        Ok(failed)
    }

    fn say(&self, sentence: String) {
        let told = &mut self.state.lock().stats.told;
        told.push(sentence);
        tell(told);
    }

    /// Does a record again, `after` which the next one comes. The inner error says which one it was and why not.
    fn step(&self, replay: &mut Replay<'_>, record: &Record, after: Mark) -> Result<Result<(), String>> {
        let mut pages = Pages::new();
        let Some(effect) = record::decode(&record.bytes, &mut pages) else {
            return Ok(Err("an operation that this version does not know".into()));
        };
        if !self.may_begin(record)? {
            let name = record::name(&effect);
            return Ok(Err(format!("{name}, which ended the process {TRIES} times")));
        }
        let done = clock::at(record.time, || replay.again(&effect, after));
        let state = &mut *self.state.lock();
        state.wanted = None;
        if let Mode::Replaying { done, next } = &mut state.mode {
            (*done, *next) = (Mark { version: done.version, ..after }, None);
        }
        match done {
            Err(error) if replay.on.is_read_only() => Err(error),
            done => Ok(done.map_err(|error| format!("{}: {error}", record::name(&effect)))),
        }
    }

    /// Notes that a record is begun; `false` where that was done often enough.
    fn may_begin(&self, record: &Record) -> Result<bool> {
        let log = &mut self.state.lock().log;
        // Those before it were done when it ended the process.
        if record.skipped || record.at < log.head.suspect {
            return Ok(!record.skipped);
        }
        let tries = if record.at == log.head.suspect { log.head.tries } else { 0 };
        if tries >= TRIES {
            log.skip(record)?;
            return Ok(false);
        }
        (log.head.suspect, log.head.tries) = (record.at, tries + 1);
        log.write_head()?;
        Ok(true)
    }

    /// The next change that is told is all of a record, `after` which the next one comes.
    fn about_to(&self, after: Mark, wanted: Option<Ino>) {
        let state = &mut *self.state.lock();
        state.wanted = wanted;
        if let Mode::Replaying { done, next } = &mut state.mode {
            *next = Some(Mark { version: done.version, ..after });
        }
    }
}

/// Inodes that an effect is of, but for new ones.
fn inodes(effect: &Effect<'_>) -> Vec<Ino> {
    match *effect {
        Effect::Create { parent, .. } | Effect::Tmpfile { parent, .. } | Effect::Symlink { parent, .. } => {
            vec![parent]
        }
        Effect::Link { ino, parent, .. } | Effect::Remove { ino, parent, .. } => vec![ino, parent],
        Effect::Rename(Renamed { ino, replaced, from, to, .. }) => {
            [ino, from.0, to.0].into_iter().chain(replaced).collect()
        }
        Effect::Write { ino, .. }
        | Effect::SetAttr { ino, .. }
        | Effect::Fallocate { ino, .. }
        | Effect::Xattr { ino, .. }
        | Effect::Flags { ino, .. }
        | Effect::Project { ino, .. }
        | Effect::Pinned { ino, .. }
        | Effect::Saved { ino, .. }
        | Effect::Compression { ino, .. }
        | Effect::Atomic(Atomic { ino, .. }) => vec![ino],
        Effect::Freed { .. } => Vec::new(),
    }
}

/// The inode that an effect made.
fn new_inode(effect: &Effect<'_>) -> Option<Ino> {
    match *effect {
        Effect::Create { ino, .. } | Effect::Tmpfile { ino, .. } | Effect::Symlink { ino, .. } => Some(ino),
        Effect::Rename(Renamed { whiteout, .. }) => whiteout,
        _ => None,
    }
}

impl Replay<'_> {
    fn number(&self, ino: Ino) -> Ino {
        self.numbers.get(&ino).copied().unwrap_or(ino)
    }

    /// Keeps an inode that a record is of; its number now.
    fn hold(&mut self, ino: Ino) -> Result<Ino> {
        let ino = self.number(ino);
        if !self.held.contains(&ino) {
            self.on.inode(ino)?;
            self.on.inodes.hold(ino, 1);
            self.held.insert(ino);
        }
        Ok(ino)
    }

    /// An inode was made, with a hold.
    fn made(&mut self, ino: Ino, now: Ino) {
        if ino == now {
            self.numbers.remove(&ino)
        } else {
            self.numbers.insert(ino, now)
        };
        self.held.insert(now);
    }

    fn again(&mut self, effect: &Effect<'_>, after: Mark) -> Result<()> {
        let on = self.on;
        for ino in inodes(effect) {
            self.hold(ino)?;
        }
        if !matches!(effect, Effect::Atomic(_)) {
            self.log.about_to(after, new_inode(effect));
        }
        match *effect {
            Effect::Create { ino, parent, name, new } => {
                let attr = on.create(self.number(parent), name, &new)?;
                self.made(ino, attr.ino);
            }
            Effect::Tmpfile { ino, parent, new } => {
                let attr = on.tmpfile(self.number(parent), &new)?;
                self.made(ino, attr.ino);
            }
            Effect::Symlink { ino, parent, name, target, uid, gid } => {
                let attr = on.symlink(self.number(parent), name, target, uid, gid)?;
                self.made(ino, attr.ino);
            }
            Effect::Link { ino, parent, name } => {
                let ino = on.link(self.number(ino), self.number(parent), name)?.ino;
                on.release(ino, 1)?;
            }
            Effect::Remove { parent, name, directory: true, .. } => on.rmdir(self.number(parent), name)?,
            Effect::Remove { parent, name, .. } => on.unlink(self.number(parent), name)?,
            Effect::Rename(renamed) => self.rename(&renamed)?,
            Effect::Freed { ino } => {
                let now = self.numbers.remove(&ino).unwrap_or(ino);
                if self.held.remove(&now) {
                    on.release(now, 1)?;
                }
            }
            Effect::Atomic(atomic) => self.atomic(&atomic, after)?,
            _ => self.content(effect)?,
        }
        Ok(())
    }

    fn rename(&mut self, renamed: &Renamed<'_>) -> Result<()> {
        let (on, (parent, name)) = (self.on, renamed.from);
        let parent = self.number(parent);
        on.rename(parent, name, self.number(renamed.to.0), renamed.to.1, renamed.flags)?;
        if let Some(whiteout) = renamed.whiteout {
            let now = on.lookup(parent, name)?.ino;
            self.made(whiteout, now);
        }
        Ok(())
    }

    /// What changes one inode.
    fn content(&self, effect: &Effect<'_>) -> Result<()> {
        let (on, number) = (self.on, |ino| self.number(ino));
        match *effect {
            Effect::Write { ino, offset, data, cached } => {
                let times = if cached { WriteTimes::Kept } else { WriteTimes::Now };
                all_of(data, on.write(number(ino), offset, data, times)?)
            }
            Effect::SetAttr { ino, set } => on.setattr(number(ino), &set).map(drop),
            Effect::Fallocate { ino, mode, offset, len } => on.fallocate(number(ino), mode, offset, len),
            Effect::Xattr { ino, name, value: Some(value), mode } => {
                on.setxattr(number(ino), name, value, mode)
            }
            Effect::Xattr { ino, name, .. } => on.removexattr(number(ino), name),
            Effect::Flags { ino, flags } => on.set_flags(number(ino), flags),
            Effect::Project { ino, project } => on.set_project(number(ino), project),
            Effect::Pinned { ino, pin } => on.set_pinned(number(ino), pin),
            Effect::Saved { ino, released: true } => {
                on.write_back_compressed(number(ino))?;
                on.release_saved(number(ino)).map(drop)
            }
            Effect::Saved { ino, .. } => on.reserve_saved(number(ino)).map(drop),
            Effect::Compression { ino, algorithm, log_cluster_size } => {
                on.set_compress_option(number(ino), algorithm, log_cluster_size)
            }
            _ => Err(Posix::InvalidArgument.into()),
        }
    }

    /// Gives a file what an atomic write made of it.
    fn atomic(&self, atomic: &Atomic<'_>, after: Mark) -> Result<()> {
        let (on, ino) = (self.on, self.number(atomic.ino));
        let inode = on.inode(ino)?;
        on.atomic_start(ino)?;
        let _frozen = match atomic.kept < inode.size() {
            true => Some(on.unshare(ino, atomic.kept.div_ceil(PAGE)..u64::MAX)?),
            false => None,
        };
        let draft = on.atomic_write(&inode);
        let done = on.change_settled(&inode, |state| {
            if atomic.kept < inode.size() {
                draft.resize(state, atomic.kept)?;
            }
            for (index, page) in atomic.pages {
                let len = atomic.size.saturating_sub(index * PAGE).min(PAGE) as usize;
                draft.write(state, index * PAGE, &page.0[..len])?;
            }
            draft.resize(state, atomic.size)?;
            drop(draft.apply(state)?);
            self.log.about_to(after, None);
            on.effects.note(Effect::Atomic(*atomic));
            Ok(())
        });
        if done.is_err() {
            on.atomic_abort(ino)?;
        }
        done
    }
}

/// `NoSpace` where less was written.
fn all_of(data: &[u8], written: usize) -> Result<()> {
    if written == data.len() { Ok(()) } else { Err(Error::NoSpace) }
}
