//! The file that the records lie in, and what its head says.
//!
//! Layout: two places for the head, 512 bytes apart, written by turns; from byte 4096 on the records, one behind
//! the other, each at a multiple of 8 bytes. A record is its fields and data with a header in front, which is
//! written last and has a checksum of all. Numbers are little endian.
//! Invariants: records have consecutive numbers, and a number is never used again in a file. What is a record is
//! known by a secret, which the head has and nobody else can read, and which is another one each time the log
//! begins anew. So what is left behind the last record is not taken for one, whatever users wrote into their
//! files. The process may end between any two instructions: the head in force is then the older or the newer one,
//! and at most the last record is torn.
//! Locks: none; the caller has the file for itself, among processes by a lock of the file.

use super::record::{Encoded, Take};
use crate::types::Timestamp;
use crc32fast::Hasher;
use medfs_device::file::read_full;
use rustix::fs::{CWD, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the records begin.
pub(super) const START: u64 = 4096;
const MAGIC: &[u8; 8] = b"medfsSL2";
const HEAD: usize = 120;
const HEAD_STRIDE: u64 = 512;
const RECORD_MAGIC: u32 = 0x5256_5553;
const RECORD: usize = 40;
/// Where in its header a record has its checksum, with the mark of one that is skipped behind it.
const CHECKSUM: u64 = 8;
/// A record up to this size is written in one piece.
const SMALL: usize = 1024;
/// Bytes looked through at once.
const PIECE: usize = 1 << 20;
/// How long a process that has the log may take to end.
const PATIENCE: Duration = Duration::from_secs(1);
/// No record has more.
const MOST: usize = 1 << 30;

/// From this record on the records follow a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Mark {
    /// The checkpoint, as footers of nodes name it.
    pub(super) version: u64,
    /// Where the record is.
    pub(super) at: u64,
    /// Its number.
    pub(super) number: u64,
}

/// What nobody knows who cannot read the log.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Secret([u8; 16]);

impl Secret {
    fn new() -> Secret {
        Secret(uuid::Uuid::new_v4().into_bytes())
    }

    /// What a record begins with.
    fn magic(self) -> u32 {
        RECORD_MAGIC ^ u32::from_le_bytes(self.0[..4].try_into().expect("four bytes"))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

/// What the head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Head {
    pub(super) uuid: [u8; 16],
    /// What its records are known by.
    pub(super) secret: Secret,
    /// Grows with each head.
    pub(super) update: u64,
    /// The checkpoint that was durable when this was written.
    pub(super) base: Mark,
    /// The one that was about to be.
    pub(super) intent: Mark,
    /// Where the record is that is being done again.
    pub(super) suspect: u64,
    /// How often that was begun.
    pub(super) tries: u32,
}

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) at: u64,
    pub(super) end: u64,
    pub(super) number: u64,
    pub(super) time: Timestamp,
    /// It is not to be done again.
    pub(super) skipped: bool,
    pub(super) bytes: Vec<u8>,
}

/// Why a file is no log to go on with.
#[derive(Debug)]
pub(super) enum Unusable {
    /// Another process has it.
    Busy,
    /// It is not what this user would have made.
    Foreign(&'static str),
    Failed(io::Error),
}

impl From<io::Error> for Unusable {
    fn from(error: io::Error) -> Unusable {
        Unusable::Failed(error)
    }
}

impl Mark {
    fn of(take: &mut Take<'_>) -> Option<Mark> {
        Some(Mark { version: take.u64()?, at: take.u64()?, number: take.u64()? })
    }
}

impl Head {
    fn bytes(&self) -> [u8; HEAD] {
        let mut bytes = Vec::with_capacity(HEAD);
        bytes.extend(MAGIC);
        bytes.extend(self.uuid);
        bytes.extend(self.secret.0);
        bytes.extend(self.update.to_le_bytes());
        for mark in [self.base, self.intent] {
            [mark.version, mark.at, mark.number].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        }
        bytes.extend(self.suspect.to_le_bytes());
        bytes.extend(self.tries.to_le_bytes());
        bytes.resize(HEAD - 4, 0);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes.try_into().expect("the fields have this size")
    }

    /// `None` where the bytes are no head.
    fn of(bytes: &[u8; HEAD]) -> Option<Head> {
        let (body, crc) = bytes.split_at(HEAD - 4);
        if !body.starts_with(MAGIC) || crc != crc32fast::hash(body).to_le_bytes() {
            return None;
        }
        let mut take = Take(&body[MAGIC.len()..]);
        Some(Head {
            uuid: take.array()?,
            secret: Secret(take.array()?),
            update: take.u64()?,
            base: Mark::of(&mut take)?,
            intent: Mark::of(&mut take)?,
            suspect: take.u64()?,
            tries: take.u32()?,
        })
    }
}

/// A log, which this process has for itself.
#[derive(Debug)]
pub(super) struct Log {
    file: File,
    path: PathBuf,
    pub(super) head: Head,
    /// Where the next record goes.
    pub(super) end: u64,
    /// Its number.
    pub(super) number: u64,
}

impl Log {
    /// Makes a log where there is none.
    pub(super) fn create(path: &Path, uuid: [u8; 16], version: u64) -> Result<Log, Unusable> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.custom_flags(OFlags::NOFOLLOW.bits() as i32).open(path)?;
        lock(&file)?;
        let base = Mark { version, at: START, number: 1 };
        let head = Head { uuid, secret: Secret::new(), base, ..Head::default() };
        let mut log = Log { file, path: path.to_owned(), head, end: START, number: 1 };
        if let Err(error) = log.write_head() {
            // A file system without room: the next mount may have it.
            log.remove()?;
            return Err(error.into());
        }
        Ok(log)
    }

    /// Opens a log; `None` where there is no file, or an empty one: a process was killed while it made it, and this
    /// removes it. Another file without a head is an empty log of no volume.
    pub(super) fn open(path: &Path) -> Result<Option<Log>, Unusable> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).custom_flags((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits() as i32);
        let file = match options.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if error.raw_os_error() == Some(Errno::LOOP.raw_os_error()) => {
                return Err(Unusable::Foreign("is a symbolic link"));
            }
            Err(error) => return Err(error.into()),
        };
        check(&file)?;
        lock(&file)?;
        let is_empty = file.metadata()?.len() == 0;
        let head = read_head(&file)?.unwrap_or_default();
        let log = Log { file, path: path.to_owned(), head, end: START, number: 1 };
        if is_empty {
            log.remove()?;
        }
        Ok((!is_empty).then_some(log))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn write_head(&mut self) -> io::Result<()> {
        self.head.update += 1;
        self.file.write_all_at(&self.head.bytes(), self.head.update % 2 * HEAD_STRIDE)
    }

    /// Adds a record; `false` where it would end behind `limit`.
    pub(super) fn append(&mut self, time: Timestamp, effect: &Encoded<'_>, limit: u64) -> io::Result<bool> {
        let end = self.end + size_on_file(effect.len());
        if end > limit || effect.len() > MOST {
            return Ok(false);
        }
        let header = header(self.head.secret, self.number, time, [&effect.fields, effect.data]);
        let behind = self.end + RECORD as u64;
        if effect.len() <= SMALL {
            let whole = [&header[..], &effect.fields, effect.data].concat();
            self.file.write_all_at(&whole, self.end)?;
        } else {
            self.file.write_all_at(&effect.fields, behind)?;
            self.file.write_all_at(effect.data, behind + effect.fields.len() as u64)?;
            self.file.write_all_at(&header, self.end)?;
        }
        (self.end, self.number) = (end, self.number + 1);
        Ok(true)
    }

    /// The record of this number at a place; `None` where there is none that is whole.
    pub(super) fn read(&self, at: u64, number: u64) -> io::Result<Option<Record>> {
        Ok(self.any_at(at)?.filter(|record| record.number == number))
    }

    /// A whole record of any number at a place.
    fn any_at(&self, at: u64) -> io::Result<Option<Record>> {
        let mut header = [0; RECORD];
        if !fill(&self.file, &mut header, at)? {
            return Ok(None);
        }
        let secret = self.head.secret;
        let Some(Header { len, crc, skipped, number, time }) = Header::of(&header, secret) else {
            return Ok(None);
        };
        let room = self.file.metadata()?.len().saturating_sub(at + RECORD as u64);
        if len as u64 > room {
            return Ok(None);
        }
        let mut bytes = vec![0; len];
        if !fill(&self.file, &mut bytes, at + RECORD as u64)?
            || checksum(secret, number, time, skipped, &[&bytes]) != crc
        {
            return Ok(None);
        }
        let end = at + size_on_file(len);
        Ok(Some(Record { at, end, number, time, skipped, bytes }))
    }

    /// Goes to the end of the records from a mark on; returns how many there are. `None` where one in the middle
    /// is damaged.
    pub(super) fn find_end(&mut self, from: Mark) -> io::Result<Option<u64>> {
        (self.end, self.number) = (from.at, from.number);
        while let Some(record) = self.read(self.end, self.number)? {
            (self.end, self.number) = (record.end, record.number + 1);
        }
        let count = self.number - from.number;
        Ok((!self.is_later_behind()?).then_some(count))
    }

    /// Whether a record of a later number than the last one lies behind it.
    fn is_later_behind(&self) -> io::Result<bool> {
        let mut piece = vec![0; PIECE];
        let mut at = self.end;
        loop {
            let got = read_full(&self.file, &mut piece, at)?;
            for within in (0..got.saturating_sub(7)).step_by(8) {
                let looks = piece[within..within + 4] == self.head.secret.magic().to_le_bytes();
                let at = at + within as u64;
                if looks && self.any_at(at)?.is_some_and(|record| record.number >= self.number) {
                    return Ok(true);
                }
            }
            if got < piece.len() {
                return Ok(false);
            }
            at += got as u64;
        }
    }

    /// Marks a record as one that is not to be done again.
    pub(super) fn skip(&self, record: &Record) -> io::Result<()> {
        let crc = checksum(self.head.secret, record.number, record.time, true, &[&record.bytes]);
        let marked = [crc, u32::from(true)].map(u32::to_le_bytes).concat();
        self.file.write_all_at(&marked, record.at + CHECKSUM)
    }

    /// Begins anew behind a checkpoint that has all of it.
    pub(super) fn empty(&mut self, version: u64) -> io::Result<()> {
        let base = Mark { version, at: START, number: self.number };
        self.head = Head { base, secret: Secret::new(), suspect: 0, tries: 0, ..self.head };
        self.write_head()?;
        self.end = START;
        Ok(())
    }

    /// Gives the file another name, which nobody has; returns it. It has one name at any time: a file with two is no
    /// log.
    pub(super) fn set_aside(&self) -> io::Result<PathBuf> {
        for number in 1.. {
            let mut name = self.path.clone().into_os_string();
            name.push(format!(".aside{number}"));
            match renameat_with(CWD, &self.path, CWD, &name, RenameFlags::NOREPLACE) {
                Ok(()) => return Ok(name.into()),
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        unreachable!("there is always a further number")
    }

    /// Removes the file. Where it is gone, or another one is in its place, there is nothing to remove.
    pub(super) fn remove(&self) -> io::Result<()> {
        if !self.is_in_its_place()? {
            return Ok(());
        }
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Whether a mount would find it: a session that ends may take the directory along.
    pub(super) fn is_in_its_place(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match fs::symlink_metadata(&self.path) {
            Ok(found) => Ok((found.dev(), found.ino()) == (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Waits for a process that is about to end, as a killed one may be.
fn lock(file: &File) -> Result<(), Unusable> {
    let begin = Instant::now();
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) if begin.elapsed() < PATIENCE => std::thread::sleep(PATIENCE / 200),
            Err(TryLockError::WouldBlock) => return Err(Unusable::Busy),
            Err(TryLockError::Error(error)) => return Err(error.into()),
        }
    }
}

/// Whether a file is what [`Log::create`] of this user makes.
fn check(file: &File) -> Result<(), Unusable> {
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(Unusable::Foreign("is no regular file"));
    }
    if meta.uid() != rustix::process::geteuid().as_raw() {
        return Err(Unusable::Foreign("belongs to another user"));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(Unusable::Foreign("can be opened by other users"));
    }
    if meta.nlink() != 1 { Err(Unusable::Foreign("has another name")) } else { Ok(()) }
}

fn read_head(file: &File) -> io::Result<Option<Head>> {
    let mut found: Option<Head> = None;
    for at in [0, HEAD_STRIDE] {
        let mut bytes = [0; HEAD];
        if fill(file, &mut bytes, at)?
            && let Some(head) = Head::of(&bytes)
            && found.is_none_or(|other| other.update < head.update)
        {
            found = Some(head);
        }
    }
    Ok(found)
}

/// Reads all of it; `false` where the file ends before.
fn fill(file: &File, buf: &mut [u8], at: u64) -> io::Result<bool> {
    Ok(read_full(file, buf, at)? == buf.len())
}

fn size_on_file(len: usize) -> u64 {
    (RECORD + len).next_multiple_of(8) as u64
}

fn checksum(secret: Secret, number: u64, time: Timestamp, skipped: bool, parts: &[&[u8]]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&secret.0);
    hasher.update(&number.to_le_bytes());
    hasher.update(&time.secs.to_le_bytes());
    hasher.update(&time.nanos.to_le_bytes());
    hasher.update(&[skipped.into()]);
    parts.iter().for_each(|part| hasher.update(part));
    hasher.finalize()
}

/// What stands in front of a record.
struct Header {
    len: usize,
    crc: u32,
    skipped: bool,
    number: u64,
    time: Timestamp,
}

impl Header {
    /// `None` where the bytes are none.
    fn of(bytes: &[u8; RECORD], secret: Secret) -> Option<Header> {
        let mut take = Take(bytes);
        let (magic, len, crc) = (take.u32()?, take.u32()? as usize, take.u32()?);
        let (skipped, number, time) = (take.u32()? != 0, take.u64()?, take.time()?);
        (magic == secret.magic() && len <= MOST).then_some(Header { len, crc, skipped, number, time })
    }
}

fn header(secret: Secret, number: u64, time: Timestamp, parts: [&[u8]; 2]) -> [u8; RECORD] {
    let len = (parts[0].len() + parts[1].len()) as u32;
    let mut bytes = [0; RECORD];
    bytes[..4].copy_from_slice(&secret.magic().to_le_bytes());
    bytes[4..8].copy_from_slice(&len.to_le_bytes());
    bytes[8..12].copy_from_slice(&checksum(secret, number, time, false, &parts).to_le_bytes());
    bytes[16..24].copy_from_slice(&number.to_le_bytes());
    bytes[24..32].copy_from_slice(&time.secs.to_le_bytes());
    bytes[32..36].copy_from_slice(&time.nanos.to_le_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Users' data may be what a record would be, at any place and with any number: nobody knows the secret.
    #[test]
    fn what_users_wrote_is_no_record() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log");
        let mut log = Log::create(&path, [1; 16], 1).expect("made");
        let time = Timestamp { secs: 1, nanos: 0 };
        let forged = |number: u64| {
            let data = [7; 24];
            [&header(Secret::default(), number, time, [&[], &data])[..], &data].concat()
        };
        let data: Vec<u8> = (2..200).flat_map(forged).collect();
        let effect = |data| Encoded { fields: Vec::new(), data };
        assert!(log.append(time, &effect(&data), u64::MAX).expect("written"));
        log.empty(2).expect("begun anew");
        // As long as that what follows is a forged record.
        assert!(log.append(time, &effect(&[0; 64 - RECORD + 40]), u64::MAX).expect("written"));
        let (end, number) = (log.end, log.number);
        assert_eq!((end - START - RECORD as u64) % 64, 0);
        drop(log);
        let mut log = Log::open(&path).expect("it opens").expect("it is there");
        let base = log.head.base;
        assert_eq!(log.find_end(base).expect("read"), Some(1));
        assert_eq!((log.end, log.number), (end, number));
    }

    /// A log with one record, and that record.
    fn of_one_record(path: &Path) -> (Log, Record) {
        let mut log = Log::create(path, [1; 16], 1).expect("made");
        let effect = Encoded { fields: Vec::new(), data: &[7; 24] };
        assert!(log.append(Timestamp { secs: 1, nanos: 0 }, &effect, u64::MAX).expect("written"));
        let record = log.read(START, 1).expect("read").expect("it is whole");
        (log, record)
    }

    /// A record is left out where a daemon said so, and not where a bit of its header fell over.
    #[test]
    fn the_mark_of_a_skipped_record_is_under_its_checksum() {
        let dir = tempfile::tempdir().expect("a folder");
        let (log, record) = of_one_record(&dir.path().join("log"));
        for bit in 0..32 {
            let flipped = (1u32 << bit).to_le_bytes();
            log.file.write_all_at(&flipped, record.at + CHECKSUM + 4).expect("written");
            assert_eq!(log.read(START, 1).expect("read"), None, "bit {bit}");
        }
        log.skip(&record).expect("marked");
        let skipped = Record { skipped: true, ..record };
        assert_eq!(log.read(START, 1).expect("read"), Some(skipped));
    }

    /// Behind a kill while it was made there is an empty file, and behind one while it was set aside there is a
    /// file with one name: neither is in the way of the next log.
    #[test]
    fn a_killed_process_leaves_no_file_in_the_way() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("log");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600).open(&path).expect("made");
        assert!(Log::open(&path).expect("it opens").is_none());
        let (log, _) = of_one_record(&path);
        fs::write(dir.path().join("log.aside1"), "older").expect("written");
        assert_eq!(log.set_aside().expect("set aside"), dir.path().join("log.aside2"));
        assert_eq!(log.file.metadata().expect("read").nlink(), 1);
        assert_eq!(fs::read(dir.path().join("log.aside1")).expect("read"), b"older");
        assert!(Log::open(&path).expect("it opens").is_none());
    }
}
