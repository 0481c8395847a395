//! Does what programs say on a volume, notes it in the history, and judges every read.
//!
//! Locks: the table of who plays which part is a leaf without points.

use super::history::{Durable, History, PAGE};
use super::program::{MOST_THREADS, OWNED, Op, PARTS, Part};
use medfs::{Error, FallocateMode, FileKind, Files, Ino, ManualClock, NewFile, RenameFlags, SetAttr, Volume};
use rand::{Rng, RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Pages of the file that fills caches: more than the smallest cache has.
const BALLAST: u64 = 300;
/// Pages of it that a request reads.
const READ_AT_ONCE: usize = 50;
/// Endings that say what a file is written to replace; by thread.
const ENDINGS: [&str; MOST_THREADS] = [".tmp", ".new", ".temp", "~"];
/// Its name.
const BALLAST_NAME: &[u8] = b"ballast";

/// A volume with its cast.
pub struct Player {
    /// The volume.
    pub volume: Volume,
    /// What happened.
    pub history: History,
    clock: Arc<ManualClock>,
    ballast: Ino,
    /// The file that plays each part now.
    cast: Mutex<Vec<usize>>,
}

/// Why a step was not done.
type Fault = Error;

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes);
    bytes
}

/// Content that compresses to a half.
fn text(seed: u64, len: usize) -> Vec<u8> {
    noise(seed, len.div_ceil(2)).iter().flat_map(|b| [b'a' + (b & 15), b'a' + (b >> 4)]).take(len).collect()
}

/// What a part holds at the start.
pub fn content(part: Part) -> Vec<u8> {
    let len = part.pages() as usize * PAGE;
    let seed = part as u64 + 1;
    match part {
        Part::Log => log_head(Part::Log).into_iter().chain(text(seed, len)).take(len).collect(),
        Part::Journal => log_head(Part::Journal).into_iter().chain(text(seed, len)).take(len).collect(),
        Part::Short => noise(seed, len),
        _ => text(seed, len),
    }
}

/// The header of SQLite's log or journal of a database with pages of 4096 bytes.
fn log_head(part: Part) -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
    if part == Part::Journal {
        let mut head = words(&[0xd9d5_05f9, 0x20a1_63d7, 3, 7, 100, 512, 4096]);
        head.resize(512, 0);
        head
    } else {
        words(&[0x377f_0682, 3_007_000, 4096, 0, 1, 2, 3, 4])
    }
}

fn new_file() -> NewFile {
    NewFile { kind: FileKind::Regular, perm: 0o644, umask: 0, uid: 0, gid: 0, rdev: 0 }
}

impl Player {
    /// Makes the cast on an empty volume, durable.
    pub fn found(volume: &Volume) -> Result<(), Fault> {
        for part in PARTS {
            let ino = volume.create(volume.root(), part.name().as_bytes(), &new_file())?.ino;
            volume.write(ino, 0, &content(part))?;
            volume.fsync(ino, false)?;
            volume.release(ino, 1);
        }
        let ino = volume.create(volume.root(), BALLAST_NAME, &new_file())?.ino;
        for page in 0..BALLAST {
            volume.write(ino, page * PAGE as u64, &noise(1000 + page, PAGE))?;
        }
        volume.release(ino, 1);
        volume.sync()
    }

    /// Takes up a volume with its cast as it is.
    pub fn new(volume: Volume, history: History, clock: Arc<ManualClock>) -> Result<Player, Fault> {
        let mut cast = Vec::new();
        for part in PARTS {
            let attr = volume.lookup(volume.root(), part.name().as_bytes())?;
            let mut content = vec![0; attr.size as usize];
            volume.read(attr.ino, 0, &mut content)?;
            cast.push(history.add(attr.ino, &content, Some(part.name().into())));
        }
        let ballast = volume.lookup(volume.root(), BALLAST_NAME)?.ino;
        Ok(Player { volume, history, clock, ballast, cast: Mutex::new(cast) })
    }

    fn file(&self, part: Part) -> (usize, Ino) {
        let file = self.cast.lock().unwrap_or_else(|held| held.into_inner())[part as usize];
        (file, self.history.ino(file))
    }

    /// Does what an operation says. Panics where what it returns is wrong.
    pub fn play(&self, op: &Op) {
        let played = match *op {
            Op::Patch { part, first, count, seed } => self.patch(part, first, count, seed, 0),
            Op::Pages { part, first, count, seed } => self.pages(part, first, count, seed),
            Op::Rewrite { part, first, count, seed } => {
                let bytes = text(seed, count as usize * PAGE);
                self.write(self.file(part), first * PAGE as u64, &bytes, 0)
            }
            Op::Append { part, bytes, seed } => {
                let at = self.history.size(self.file(part).0);
                self.write(self.file(part), at, &text(seed, bytes), 0)
            }
            Op::Truncate { part, size } => self.truncate(part, size),
            Op::Punch { part, first, count } => self.punch(part, first, count),
            Op::Atomic { part, first, count, seed } => self.atomic(part, first, count, seed),
            Op::Frames { part, first, count, seed } => self.frames(part, first, count, seed),
            Op::Replace { part, fsync, seed } => self.replace(part, fsync, seed),
            Op::Draft { part, draft, seed } => self.draft(part, draft, seed),
            Op::Rename { part } => self.rename(part),
            Op::Unlink { part } => self.unlink(part),
            Op::Heat { part } => self.heat(part),
            ref other => self.attend(other),
        };
        match played {
            Ok(()) => {}
            Err(Error::NoSpace) => {
                // What a change that was refused left is another test's subject.
                OWNED.iter().for_each(|&part| {
                    if format!("{op:?}").contains(&format!("{part:?}")) {
                        self.history.forget(self.file(part).0);
                    }
                });
            }
            Err(e) => panic!("{op:?}: {e} ({e:?})"),
        }
    }

    fn attend(&self, op: &Op) -> Result<(), Fault> {
        let begin = self.history.now();
        match op {
            Op::Fsync { part, datasync } => self.fsync(&[*part], *datasync, begin)?,
            Op::FsyncMany { parts, datasync } => self.fsync(parts, *datasync, begin)?,
            Op::FsyncDir => {
                self.volume.fsync(self.volume.root(), false)?;
                self.history.durable(Durable::Names, begin);
            }
            Op::Read { part, first, count } => self.read(*part, *first, *count as usize * PAGE)?,
            Op::Sync => {
                self.volume.sync()?;
                self.history.durable(Durable::All, begin);
            }
            Op::Checkpoint => {
                self.volume.checkpoint()?;
                self.history.durable(Durable::Names, begin);
            }
            Op::Background { seconds } => {
                self.clock.advance(Duration::from_secs(*seconds));
                self.volume.background()?;
            }
            Op::Idle => {
                self.clock.advance(Duration::from_secs(2));
                self.volume.idle_work(64)?;
            }
            _ => {
                // What is read once leaves a cache before what was read twice.
                let mut bytes = vec![0; READ_AT_ONCE * PAGE];
                for page in (0..BALLAST).step_by(READ_AT_ONCE).chain((0..BALLAST).step_by(READ_AT_ONCE)) {
                    for _ in 0..2 {
                        self.volume.read(self.ballast, page * PAGE as u64, &mut bytes)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn fsync(&self, parts: &[Part], datasync: bool, begin: u64) -> Result<(), Fault> {
        let files: Vec<(usize, Ino)> = parts.iter().map(|&part| self.file(part)).collect();
        let synced = match files[..] {
            [(_, ino)] => self.volume.fsync(ino, datasync),
            _ => self.volume.fsync_many(&files.iter().map(|(_, ino)| *ino).collect::<Vec<_>>(), datasync),
        };
        // A file may go before it is looked at.
        let there = files.iter().all(|(file, _)| self.history.counts(*file));
        match synced {
            Err(Error::Posix(_)) if !there => return Ok(()),
            synced => synced?,
        }
        for (file, _) in files {
            // That a name is gone is durable with its directory.
            let content_alone = datasync || self.history.name(file).is_none();
            let what = if content_alone { Durable::Content(file) } else { Durable::File(file) };
            self.history.durable(what, begin);
        }
        Ok(())
    }

    fn read(&self, part: Part, first: u64, len: usize) -> Result<(), Fault> {
        let (file, ino) = self.file(part);
        let mut bytes = vec![0xa5; len];
        let begin = self.history.now();
        let read = match self.volume.read(ino, first * PAGE as u64, &mut bytes) {
            Err(Error::Posix(_)) if !self.history.counts(file) => return Ok(()),
            read => read?,
        };
        if let Err(wrong) = self.history.judge_read(file, first, len, &bytes[..read], begin) {
            panic!("{part:?}: {wrong}");
        }
        Ok(())
    }

    fn write(&self, (file, ino): (usize, Ino), at: u64, bytes: &[u8], group: u64) -> Result<(), Fault> {
        let begin = self.history.write(file, at, bytes, group);
        let written = self.volume.write(ino, at, bytes);
        if !matches!(written, Ok(written) if written == bytes.len()) {
            self.history.forget(file);
            return Err(written.err().unwrap_or(Error::NoSpace));
        }
        self.history.changed(file, begin);
        Ok(())
    }

    fn patch(&self, part: Part, first: u64, count: u64, seed: u64, group: u64) -> Result<(), Fault> {
        let file = self.file(part);
        for page in first..first + count {
            let at = page * PAGE as u64 + (seed * 97 + page * 31) % 4000;
            self.write(file, at, format!("{seed:>12}{page:>8}").as_bytes(), group)?;
        }
        Ok(())
    }

    fn pages(&self, part: Part, first: u64, count: u64, seed: u64) -> Result<(), Fault> {
        let file = self.file(part);
        let mut bytes = Vec::new();
        for page in first..first + count {
            let at = bytes.len() + (seed * 89 + page * 37) as usize % 4000;
            bytes.extend_from_slice(&self.history.page(file.0, page)[..]);
            bytes[at..at + 8].copy_from_slice(format!("{seed:08}").as_bytes());
        }
        self.write(file, first * PAGE as u64, &bytes, 0)
    }

    fn truncate(&self, part: Part, size: u64) -> Result<(), Fault> {
        let (file, ino) = self.file(part);
        let begin = self.history.zero(file, size.div_ceil(PAGE as u64)..u64::MAX, Some(size));
        self.volume.setattr(ino, &SetAttr { size: Some(size), ..SetAttr::default() })?;
        self.history.changed(file, begin);
        Ok(())
    }

    fn punch(&self, part: Part, first: u64, count: u64) -> Result<(), Fault> {
        let (file, ino) = self.file(part);
        let begin = self.history.zero(file, first..first + count, None);
        let mode = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        self.volume.fallocate(ino, mode, first * PAGE as u64, count * PAGE as u64)?;
        self.history.changed(file, begin);
        Ok(())
    }

    fn atomic(&self, part: Part, first: u64, count: u64, seed: u64) -> Result<(), Fault> {
        let (file, ino) = self.file(part);
        if (first + count) * PAGE as u64 > self.history.size(file) {
            return Ok(());
        }
        let group = self.history.group();
        self.volume.atomic_start(ino)?;
        self.patch(part, first, count, seed, group).map_err(|fault| self.give_up(ino, fault))?;
        self.history.commits(file, group, false);
        let begin = self.history.now();
        self.volume.atomic_commit(ino).map_err(|fault| self.give_up(ino, fault))?;
        self.history.commits(file, group, true);
        self.history.durable(Durable::Content(file), begin);
        Ok(())
    }

    /// Drops an atomic write that found no room, as a program does.
    fn give_up(&self, ino: Ino, fault: Fault) -> Fault {
        if !matches!(fault, Error::NoSpace) {
            return fault;
        }
        self.volume.atomic_abort(ino).err().unwrap_or(fault)
    }

    fn frames(&self, part: Part, first: u64, count: u64, seed: u64) -> Result<(), Fault> {
        let (journal, (database, _)) = (part == Part::Journal, self.file(Part::Database));
        let (head, before, step) = if journal { (512, 4, PAGE + 8) } else { (32, 24, PAGE + 24) };
        for frame in first..first + count {
            let page = (seed + frame) % Part::Database.pages();
            let mut bytes = vec![0; before];
            bytes[..4].copy_from_slice(&(page as u32 + 1).to_be_bytes());
            bytes.extend_from_slice(&self.history.page(database, page)[..]);
            if !journal {
                let at = before + (seed as usize * 7) % 4000;
                bytes[at..at + 8].copy_from_slice(format!("{seed:08}").as_bytes());
            }
            bytes.resize(step, seed as u8);
            self.write(self.file(part), head + frame * step as u64, &bytes, 0)?;
        }
        Ok(())
    }

    fn replace(&self, part: Part, fsync: bool, seed: u64) -> Result<(), Fault> {
        let (old, old_ino) = self.file(part);
        let Some(name) = self.history.name(old) else { return Ok(()) };
        let root = self.volume.root();
        let temporary = format!("{name}.part");
        let content = self.like(old, seed);
        let begin = self.history.now();
        let ino = self.volume.create(root, temporary.as_bytes(), &new_file())?.ino;
        let file = self.history.add(ino, &[], None);
        self.history.rename_since(file, Some(temporary.clone()), begin);
        self.history.changed(file, begin);
        self.write((file, ino), 0, &content, 0)?;
        if fsync {
            let begin = self.history.now();
            self.volume.fsync(ino, false)?;
            self.history.durable(Durable::File(file), begin);
        }
        let (left, named) = (self.history.rename(old, None), self.history.rename(file, Some(name.clone())));
        self.volume.rename(root, temporary.as_bytes(), root, name.as_bytes(), RenameFlags::empty())?;
        self.history.changed(old, left);
        self.history.changed(file, named);
        self.cast.lock().unwrap_or_else(|held| held.into_inner())[part as usize] = file;
        if seed.is_multiple_of(2) {
            self.history.release(old);
            self.volume.release(old_ino, 1);
        }
        Ok(())
    }

    fn draft(&self, part: Part, draft: usize, seed: u64) -> Result<(), Fault> {
        let (replaced, _) = self.file(part);
        let root = self.volume.root();
        let name = format!("{}{}", part.name(), ENDINGS[draft]);
        let content = self.like(replaced, seed);
        if let Some(earlier) = self.history.named(&name) {
            self.take_name(earlier, &name)?;
        }
        let begin = self.history.now();
        let ino = self.volume.create(root, name.as_bytes(), &new_file())?.ino;
        let file = self.history.add(ino, &[], None);
        self.history.rename_since(file, Some(name.clone()), begin);
        self.history.changed(file, begin);
        self.write((file, ino), 0, &content, 0)?;
        let begin = self.history.now();
        self.volume.fsync(ino, false)?;
        self.history.durable(Durable::File(file), begin);
        if seed.is_multiple_of(2) { self.take_name(file, &name) } else { Ok(()) }
    }

    fn take_name(&self, file: usize, name: &str) -> Result<(), Fault> {
        let begin = self.history.rename(file, None);
        self.volume.unlink(self.volume.root(), name.as_bytes())?;
        self.history.changed(file, begin);
        Ok(())
    }

    /// The content of a file, but for a few bytes in each page.
    fn like(&self, file: usize, seed: u64) -> Vec<u8> {
        let mut content = self.history.content(file);
        for page in 0..content.len() / PAGE {
            let at = page * PAGE + (seed as usize * 13) % 4000;
            content[at..at + 8].copy_from_slice(format!("{seed:08}").as_bytes());
        }
        content
    }

    fn rename(&self, part: Part) -> Result<(), Fault> {
        let (file, _) = self.file(part);
        let Some(name) = self.history.name(file) else { return Ok(()) };
        let other = if name == part.name() { format!("{name}2") } else { part.name().to_owned() };
        let root = self.volume.root();
        let begin = self.history.rename(file, Some(other.clone()));
        self.volume.rename(root, name.as_bytes(), root, other.as_bytes(), RenameFlags::empty())?;
        self.history.changed(file, begin);
        Ok(())
    }

    fn unlink(&self, part: Part) -> Result<(), Fault> {
        let (file, _) = self.file(part);
        let Some(name) = self.history.name(file) else { return Ok(()) };
        self.take_name(file, &name)
    }

    fn heat(&self, part: Part) -> Result<(), Fault> {
        for page in part.range().cycle().take(60) {
            self.read(part, page, PAGE)?;
        }
        Ok(())
    }
}

/// Changes that programs begin from: every part has deltas, hidden directory and list are there.
pub fn warm_up(player: &Player, random: &mut Xoshiro256PlusPlus) {
    for round in 0..6 {
        // The document's blocks are its pages.
        for part in PARTS.into_iter().filter(|part| *part != Part::Document) {
            let first = part.range().start + random.random_range(0..3);
            player.play(&Op::Patch { part, first, count: 2, seed: 40 + round });
            if matches!(part, Part::Log | Part::Journal) {
                player.play(&Op::Frames { part, first: 0, count: 3, seed: 50 + round });
            }
            if part == Part::Short {
                player.play(&Op::Replace { part, fsync: true, seed: 60 + 2 * round });
            }
            player.play(&Op::Fsync { part, datasync: false });
        }
        player.play(&Op::Sync);
    }
}
