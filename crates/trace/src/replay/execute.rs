//! Asking for one operation of a trace, and comparing how it ends.
//!
//! A file of the trace is an inode of the target from the operation that finds or makes it to the one that
//! forgets it, and is held once meanwhile.
//!
//! Lock: `Shared::inos` is a leaf, held across no operation of the target.

use super::result::Outcome;
use super::schedule::Ticket;
use crate::record::{FileId, Op, ROOT, Record, fallocate_mode, xattr_mode};
use foldhash::HashMap;
use medfs::{Attr, Error, FileFlags, FileKind, Files, Ino, Posix, RenameFlags, Seek, SetAttr};
use parking_lot::RwLock;
use rand::{RngCore, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::ops::Range;
use std::time::Instant;

/// An operation that is ready to be asked for.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) record: Record,
    /// What it writes, or what it must read.
    pub(crate) bytes: Vec<u8>,
    /// Of these, what the trace does not tell.
    pub(crate) unknown: Vec<Range<usize>>,
    /// Its place in the trace, from 0.
    pub(crate) number: u64,
    /// The bytes read must be those.
    pub(crate) compare: bool,
    pub(crate) tickets: [Ticket; 3],
}

/// What the threads of a replay share.
pub(crate) struct Shared<'a> {
    pub(crate) target: &'a dyn Files,
    inos: RwLock<HashMap<FileId, Ino>>,
}

impl<'a> Shared<'a> {
    pub(crate) fn new(target: &'a dyn Files) -> Shared<'a> {
        Shared { target, inos: RwLock::default() }
    }

    fn ino(&self, file: FileId) -> Result<Ino, Error> {
        if file == ROOT {
            return Ok(self.target.root());
        }
        self.inos.read().get(&file).copied().ok_or_else(|| Posix::Stale.into())
    }

    /// Takes the hold of an operation that found or made a file.
    fn found(&self, file: FileId, attr: &Attr) {
        let old = match file {
            // The trace says that it failed.
            ROOT => Some(attr.ino),
            _ => self.inos.write().insert(file, attr.ino),
        };
        if let Some(old) = old {
            self.target.release(old, 1);
        }
    }

    fn forget(&self, file: FileId) -> Result<(), Error> {
        let ino = self.inos.write().remove(&file).ok_or(Posix::Stale)?;
        self.target.release(ino, 1);
        Ok(())
    }

    /// Gives back every hold.
    pub(crate) fn forget_all(&self) {
        for (_, ino) in std::mem::take(&mut *self.inos.write()) {
            self.target.release(ino, 1);
        }
    }

    /// What a file holds where it will be written.
    pub(crate) fn before(&self, file: FileId, offset: u64, len: usize) -> Vec<u8> {
        let mut before = vec![0; len];
        let read = self.ino(file).and_then(|ino| self.target.read(ino, offset, &mut before)).unwrap_or(0);
        before.truncate(read);
        before
    }
}

/// Asks for operations one after the other.
pub(crate) struct Executor<'a> {
    shared: &'a Shared<'a>,
    outcome: Outcome,
    buffer: Vec<u8>,
}

/// What an operation gave, as far as it is compared.
#[derive(Default)]
struct Got {
    read: Option<usize>,
    size: Option<u64>,
}

impl<'a> Executor<'a> {
    pub(crate) fn new(shared: &'a Shared<'a>) -> Executor<'a> {
        Executor { shared, outcome: Outcome::default(), buffer: Vec::new() }
    }

    pub(crate) fn finish(self) -> Outcome {
        self.outcome
    }

    pub(crate) fn execute(&mut self, job: &mut Job) {
        fill_unknown(job);
        if let Op::Read { len, .. } = job.record.op
            && self.buffer.len() < len as usize
        {
            self.buffer.resize(len as usize, 0);
        }
        let began = Instant::now();
        let result = self.ask(job);
        let took = began.elapsed().as_nanos() as u64;
        let kind = job.record.op.kind();
        self.outcome.counts[kind] += 1;
        self.outcome.engine_ns += took;
        self.outcome.latency.note(kind, took);
        self.compare(job, result);
    }

    fn compare(&mut self, job: &Job, result: Result<Got, Error>) {
        let outcome = &mut self.outcome;
        let wanted = i32::from(job.record.errno);
        let errno = result.as_ref().err().map_or(0, Error::errno);
        if errno != wanted {
            if may_differ(&job.record.op) {
                outcome.tolerated += 1;
                return;
            }
            let ended = result.as_ref().err().map_or_else(|| "it succeeded".to_owned(), Error::to_string);
            let recorded = if wanted == 0 { "success".to_owned() } else { format!("error {wanted}") };
            outcome.mismatches.note(|| format!("{}: {ended}, recorded was {recorded}", describe(job)));
            return;
        }
        let Ok(got) = result else { return };
        match (&job.record.op, got) {
            (Op::Read { .. }, Got { read: Some(read), .. }) => {
                outcome.bytes_read += read as u64;
                let wrong = difference(job, &self.buffer[..read]);
                outcome.unverified_reads += u64::from(!job.compare || !job.unknown.is_empty());
                if let Some(wrong) = wrong {
                    outcome.mismatches.note(|| format!("{}: {wrong}", describe(job)));
                }
            }
            (Op::Write { len, .. }, _) => outcome.bytes_written += u64::from(*len),
            (Op::GetAttr { size, .. }, Got { size: Some(got), .. }) if got != *size => {
                outcome.mismatches.note(|| format!("{}: size {got}, recorded was {size}", describe(job)));
            }
            _ => {}
        }
    }

    fn ask(&mut self, job: &Job) -> Result<Got, Error> {
        let (shared, target) = (self.shared, self.shared.target);
        let ino = |file| shared.ino(file);
        match &job.record.op {
            Op::Read { file, offset, len, .. } => {
                let read = target.read(ino(*file)?, *offset, &mut self.buffer[..*len as usize])?;
                return Ok(Got { read: Some(read), size: None });
            }
            Op::Write { file, offset, cached, .. } => {
                write(target, ino(*file)?, *offset, *cached, &job.bytes)?
            }
            Op::GetAttr { file, .. } => {
                let attr = target.getattr(ino(*file)?)?;
                let size = (attr.kind == FileKind::Regular).then_some(attr.size);
                return Ok(Got { read: None, size });
            }
            Op::SetAttr { file, set } => target.setattr(ino(*file)?, &SetAttr::from(set)).map(drop)?,
            Op::Fsync { file, datasync } => target.fsync(ino(*file)?, *datasync)?,
            Op::Sync => target.sync()?,
            Op::Forget { file } => shared.forget(*file)?,
            Op::Open { file, flags } => target.open(ino(*file)?, *flags).map(drop)?,
            Op::Close { file } => target.close(ino(*file)?),
            Op::Readlink { file } => target.readlink(ino(*file)?).map(drop)?,
            Op::Readdir { file, position } => list(target, ino(*file)?, *position)?,
            other => return self.ask_names(other),
        }
        Ok(Got::default())
    }

    /// Operations on names, extended attributes and the seldom ones.
    fn ask_names(&self, op: &Op) -> Result<Got, Error> {
        let (shared, target) = (self.shared, self.shared.target);
        let ino = |file| shared.ino(file);
        match op {
            Op::Lookup { parent, name, file } => {
                let attr = target.lookup(ino(*parent)?, name)?;
                shared.found(*file, &attr);
            }
            Op::Create { parent, name, file, new } => {
                let new = new.to_new_file().ok_or(Posix::InvalidArgument)?;
                shared.found(*file, &target.create(ino(*parent)?, name, &new)?);
            }
            Op::Tmpfile { parent, file, new } => {
                let new = new.to_new_file().ok_or(Posix::InvalidArgument)?;
                shared.found(*file, &target.tmpfile(ino(*parent)?, &new)?);
            }
            Op::Symlink { parent, name, target: to, file, uid, gid } => {
                shared.found(*file, &target.symlink(ino(*parent)?, name, to, *uid, *gid)?);
            }
            Op::Link { file, parent, name } => {
                let attr = target.link(ino(*file)?, ino(*parent)?, name)?;
                shared.found(*file, &attr);
            }
            Op::Unlink { parent, name } => target.unlink(ino(*parent)?, name)?,
            Op::Rmdir { parent, name } => target.rmdir(ino(*parent)?, name)?,
            Op::Rename { parent, name, to, to_name, flags } => {
                let flags = RenameFlags::from_bits(*flags).ok_or(Posix::InvalidArgument)?;
                target.rename(ino(*parent)?, name, ino(*to)?, to_name, flags)?;
            }
            Op::Fallocate { file, mode, offset, len } => {
                let mode = fallocate_mode(*mode).ok_or(Posix::NotSupported)?;
                target.fallocate(ino(*file)?, mode, *offset, *len)?;
            }
            Op::CopyRange { from, from_offset, to, to_offset, copied, .. } => {
                copy(target, (ino(*from)?, *from_offset), (ino(*to)?, *to_offset), *copied)?;
            }
            Op::Seek { file, offset, hole } => {
                target.seek(ino(*file)?, *offset, if *hole { Seek::Hole } else { Seek::Data })?;
            }
            Op::SetXattr { file, name, value, mode } => {
                target.setxattr(ino(*file)?, name, value, xattr_mode(*mode))?;
            }
            Op::GetXattr { file, name } => drop(target.getxattr(ino(*file)?, name)?),
            Op::ListXattr { file } => drop(target.listxattr(ino(*file)?)?),
            Op::RemoveXattr { file, name } => target.removexattr(ino(*file)?, name)?,
            Op::SetFlags { file, flags } => {
                target.set_flags(ino(*file)?, FileFlags::from_bits_retain(*flags))?;
            }
            Op::AtomicStart { file } => target.atomic_start(ino(*file)?)?,
            Op::AtomicCommit { file } => target.atomic_commit(ino(*file)?)?,
            Op::AtomicAbort { file } => target.atomic_abort(ino(*file)?)?,
            _ => unreachable!("the others are asked for above"),
        }
        Ok(Got::default())
    }
}

/// Bytes that the trace does not tell are noise, the same each time.
fn fill_unknown(job: &mut Job) {
    if matches!(job.record.op, Op::Write { .. }) {
        for range in &job.unknown {
            Xoshiro256PlusPlus::seed_from_u64(job.number).fill_bytes(&mut job.bytes[range.clone()]);
        }
    }
}

/// Whether file systems may answer an operation differently without one being wrong.
fn may_differ(op: &Op) -> bool {
    matches!(
        op,
        Op::GetXattr { .. }
            | Op::ListXattr { .. }
            | Op::RemoveXattr { .. }
            | Op::Seek { .. }
            | Op::Fallocate { .. }
            | Op::SetFlags { .. }
            | Op::AtomicStart { .. }
            | Op::AtomicCommit { .. }
            | Op::AtomicAbort { .. }
    )
}

/// What is wrong with the bytes that a read returned.
fn difference(job: &Job, got: &[u8]) -> Option<String> {
    if got.len() != job.bytes.len() {
        return Some(format!("{} bytes came, recorded were {}", got.len(), job.bytes.len()));
    }
    if !job.compare || (job.unknown.is_empty() && *got == *job.bytes) {
        return None;
    }
    let known = |at: usize| !job.unknown.iter().any(|range| range.contains(&at));
    let mut wrong = (0..got.len()).filter(|&at| got[at] != job.bytes[at] && known(at));
    wrong.next().map(|at| format!("byte {at} is {:#04x}, recorded was {:#04x}", got[at], job.bytes[at]))
}

fn describe(job: &Job) -> String {
    let (name, number) = (job.record.op.name(), job.number);
    match &job.record.op {
        Op::Read { file, offset, len, .. } | Op::Write { file, offset, len, .. } => {
            format!("operation {number}, {name} of {len} bytes at {offset} of file {file}")
        }
        Op::Lookup { name: entry, .. }
        | Op::Create { name: entry, .. }
        | Op::Symlink { name: entry, .. }
        | Op::Link { name: entry, .. }
        | Op::Unlink { name: entry, .. }
        | Op::Rmdir { name: entry, .. }
        | Op::Rename { name: entry, .. } => {
            format!("operation {number}, {name} of '{}'", String::from_utf8_lossy(entry))
        }
        op => match op.files() {
            [Some(file), ..] => format!("operation {number}, {name} of file {file}"),
            _ => format!("operation {number}, {name}"),
        },
    }
}

fn write(target: &dyn Files, ino: Ino, mut offset: u64, cached: bool, mut bytes: &[u8]) -> Result<(), Error> {
    loop {
        let written = match cached {
            true => target.write_cached(ino, offset, bytes)?,
            false => target.write(ino, offset, bytes)?,
        };
        offset += written as u64;
        bytes = &bytes[written..];
        if bytes.is_empty() {
            return Ok(());
        }
        if written == 0 {
            return Err(Error::NoSpace);
        }
    }
}

fn copy(target: &dyn Files, mut from: (Ino, u64), mut to: (Ino, u64), mut left: u64) -> Result<(), Error> {
    loop {
        let copied = target.copy_range(from.0, from.1, to.0, to.1, left)?;
        (from.1, to.1, left) = (from.1 + copied, to.1 + copied, left.saturating_sub(copied));
        if left == 0 {
            return Ok(());
        }
        if copied == 0 {
            return Err(Posix::InvalidArgument.into());
        }
    }
}

/// Lists a directory as a whole, where the trace begins to: positions are each file system's own.
fn list(target: &dyn Files, ino: Ino, position: u64) -> Result<(), Error> {
    if position != 0 {
        return Ok(());
    }
    let mut from = 0;
    loop {
        let begin = from;
        target.readdir(ino, begin, &mut |entry| {
            from = entry.next;
            true
        })?;
        if from == begin {
            return Ok(());
        }
    }
}
