//! A tape of file operations: recorded once from a workload, played on any target, so that every scheme sees the same
//! operations in the same order. Playing checks that every read returns what it returned when it was recorded.
//!
//! A tape is in memory: as large as what is written. For traces on disk there is `medfs trace`.
//!
//! Locks: the recorder's mutex, held to append an operation and across the call of the target below, which
//! makes the order on the tape that of the target.

use crate::backend::{Handle, Open, Target};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone)]
enum Op {
    Open(String, Open, Handle),
    Close(Handle),
    Read { file: Handle, offset: u64, len: usize, sum: u32 },
    Write { file: Handle, offset: u64, at: usize, len: usize },
    Truncate(Handle, u64),
    Fsync(Handle, bool),
    FsyncDir(String),
    Mkdir(String),
    Rename(String, String),
    Unlink(String),
    Sync,
    Pass(Duration),
}

/// Recorded operations.
#[derive(Debug, Clone, Default)]
pub struct Tape {
    ops: Vec<Op>,
    data: Vec<u8>,
    /// Operations of the set-up: what comes after them is measured.
    setup: usize,
}

/// An observer of a tape that is played.
pub trait Watch {
    /// The set-up is done; measuring begins.
    fn setup_done(&mut self) -> io::Result<()>;
    /// One more operation is done; `written` bytes were passed to `write` since measuring began.
    fn played(&mut self, written: u64);
}

impl Tape {
    /// Operations after the set-up.
    pub fn len(&self) -> usize {
        self.ops.len() - self.setup
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Plays everything in order.
    pub fn play(&self, target: &dyn Target, watch: &mut dyn Watch) -> io::Result<()> {
        let mut player = Player { target, data: &self.data, handles: HashMap::new(), buffer: Vec::new() };
        let mut written = 0;
        for (n, op) in self.ops.iter().enumerate() {
            if n == self.setup {
                watch.setup_done()?;
            }
            player.play(op)?;
            if n >= self.setup {
                if let Op::Write { len, .. } = op {
                    written += *len as u64;
                }
                watch.played(written);
            }
        }
        Ok(())
    }
}

struct Player<'p> {
    target: &'p dyn Target,
    data: &'p [u8],
    handles: HashMap<Handle, Handle>,
    buffer: Vec<u8>,
}

impl Player<'_> {
    fn handle(&self, recorded: Handle) -> io::Result<Handle> {
        self.handles
            .get(&recorded)
            .copied()
            .ok_or_else(|| io::Error::other("the tape uses a file that is not open"))
    }

    fn play(&mut self, op: &Op) -> io::Result<()> {
        let target = self.target;
        match op {
            Op::Open(path, how, handle) => {
                let opened = target.open(path, *how)?;
                self.handles.insert(*handle, opened);
                Ok(())
            }
            Op::Close(handle) => {
                let file = self.handle(*handle)?;
                self.handles.remove(handle);
                target.close(file)
            }
            Op::Read { file, offset, len, sum } => self.read(*file, *offset, *len, *sum),
            Op::Write { file, offset, at, len } => {
                target.write(self.handle(*file)?, *offset, &self.data[*at..at + len])
            }
            Op::Truncate(file, len) => target.truncate(self.handle(*file)?, *len),
            Op::Fsync(file, datasync) => target.fsync(self.handle(*file)?, *datasync),
            Op::FsyncDir(path) => target.fsync_dir(path),
            Op::Mkdir(path) => target.mkdir(path),
            Op::Rename(from, to) => target.rename(from, to),
            Op::Unlink(path) => target.unlink(path),
            Op::Sync => target.sync(),
            Op::Pass(time) => target.pass(*time),
        }
    }

    fn read(&mut self, file: Handle, offset: u64, len: usize, sum: u32) -> io::Result<()> {
        self.buffer.resize(len, 0);
        let read = self.target.read(self.handle(file)?, offset, &mut self.buffer)?;
        if crc(&self.buffer[..read]) != sum {
            return Err(io::Error::other(format!(
                "{len} bytes at {offset} are not what they were when the tape was recorded"
            )));
        }
        Ok(())
    }
}

fn crc(bytes: &[u8]) -> u32 {
    // The checksum of F2FS, of the length too: a short read differs.
    medfs_format::crc::chain(medfs_format::crc::f2fs(bytes), &(bytes.len() as u64).to_le_bytes())
}

/// Records what passes to a target.
pub struct Recorder {
    inner: Arc<dyn Target>,
    tape: Mutex<Tape>,
}

impl Recorder {
    /// Records what passes to `inner`.
    pub fn new(inner: Arc<dyn Target>) -> Recorder {
        Recorder { inner, tape: Mutex::default() }
    }

    /// Marks everything recorded so far as the set-up.
    pub fn setup_done(&self) {
        let mut tape = self.tape.lock();
        tape.setup = tape.ops.len();
    }

    /// The tape; the recorder begins a new one.
    pub fn take(&self) -> Tape {
        std::mem::take(&mut *self.tape.lock())
    }

    fn note<T>(&self, run: impl FnOnce() -> io::Result<T>, op: impl FnOnce(&T) -> Op) -> io::Result<T> {
        let mut tape = self.tape.lock();
        let result = run()?;
        tape.ops.push(op(&result));
        Ok(result)
    }
}

impl Target for Recorder {
    fn open(&self, path: &str, how: Open) -> io::Result<Handle> {
        self.note(|| self.inner.open(path, how), |handle| Op::Open(path.to_owned(), how, *handle))
    }
    fn close(&self, file: Handle) -> io::Result<()> {
        self.note(|| self.inner.close(file), |()| Op::Close(file))
    }
    fn read(&self, file: Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        let len = buf.len();
        let mut tape = self.tape.lock();
        let read = self.inner.read(file, offset, buf)?;
        tape.ops.push(Op::Read { file, offset, len, sum: crc(&buf[..read]) });
        Ok(read)
    }
    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut tape = self.tape.lock();
        self.inner.write(file, offset, data)?;
        let at = tape.data.len();
        tape.data.extend_from_slice(data);
        tape.ops.push(Op::Write { file, offset, at, len: data.len() });
        Ok(())
    }
    fn truncate(&self, file: Handle, len: u64) -> io::Result<()> {
        self.note(|| self.inner.truncate(file, len), |()| Op::Truncate(file, len))
    }
    fn size(&self, file: Handle) -> io::Result<u64> {
        self.inner.size(file)
    }
    fn fsync(&self, file: Handle, datasync: bool) -> io::Result<()> {
        self.note(|| self.inner.fsync(file, datasync), |()| Op::Fsync(file, datasync))
    }
    fn fsync_dir(&self, path: &str) -> io::Result<()> {
        self.note(|| self.inner.fsync_dir(path), |()| Op::FsyncDir(path.to_owned()))
    }
    fn mkdir(&self, path: &str) -> io::Result<()> {
        self.note(|| self.inner.mkdir(path), |()| Op::Mkdir(path.to_owned()))
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.note(|| self.inner.rename(from, to), |()| Op::Rename(from.to_owned(), to.to_owned()))
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        self.note(|| self.inner.unlink(path), |()| Op::Unlink(path.to_owned()))
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        self.inner.exists(path)
    }
    fn sync(&self) -> io::Result<()> {
        self.note(|| self.inner.sync(), |()| Op::Sync)
    }
    fn pass(&self, time: Duration) -> io::Result<()> {
        self.note(|| self.inner.pass(time), |()| Op::Pass(time))
    }
}
