//! Recording what is asked of a file system.
//!
//! Purpose: [`Recorder`] stands between a front end and a file system, hands everything on, and writes down
//! what was asked for, how it ended and what it carried.
//!
//! Invariants: recording never changes how an operation ends; where the trace cannot be written the rest of
//! it is lost, once with a message, and the operations go on. Records of operations on one file, or on names
//! of one directory, come in the order in which they took effect, also those that failed; that a file is
//! forgotten comes before it is found again. Memory is that of [`TraceWriter`] and the [`WriteQueue`], and a
//! few words for each file that was ever found.
//!
//! Locks, from the outside in: the stripes of the files, the file system's own, `forgetting` (exclusive from
//! the moment that a file has no number any more until this is recorded, shared from when another operation
//! asks for numbers until it is recorded), then the leaves `ids` and `processes`, and the queue's. A
//! directory is listed without its stripe: what is listed is looked up meanwhile.

mod files;
mod ids;
mod snapshot;

use crate::error::Result;
use crate::format::{End, Head, WINDOW};
use crate::names::Names;
use crate::record::{Bytes, Content, FileId, Op, ROOT, Record, TreeEntry};
use crate::tree;
use crate::write_queue::{Carried, WriteQueue};
use crate::writer::{Phase, TraceWriter};
use ids::Ids;
use medfs::{Attr, Caller, Clock, Files, Ino};
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use std::cell::Cell;
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

/// Locks that order operations on files.
const STRIPES: usize = 1024;
/// Most threads whose processes are remembered.
const THREADS_MAX: usize = 4096;

thread_local! {
    static CALLER: Cell<Caller> = const { Cell::new(Caller { thread: 0 }) };
}

/// Options of a recording.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The source's name in the head: `mount` or `volume`.
    pub source: String,
    /// A description of what is recorded.
    pub about: String,
    /// Keep no contents and no names.
    pub private: bool,
    /// The part of the page cache above that is bypassed, as [`Head::cache`] has it.
    pub cache: String,
}

/// A file system whose operations are written down.
pub struct Recorder {
    inner: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    began: Duration,
    names: Option<Names>,
    ids: Mutex<Ids>,
    processes: Mutex<HashMap<u32, u32>>,
    stripes: Box<[RwLock<()>]>,
    forgetting: RwLock<()>,
    queue: WriteQueue,
}

impl Recorder {
    /// Begins to record: what is there already becomes the trace's first part. Nothing else may use `inner` meanwhile.
    /// `key` replaces names of a trace without contents; it is stored nowhere.
    pub fn start(
        inner: Arc<dyn Files>,
        out: impl Write + Send + 'static,
        clock: Arc<dyn Clock>,
        what: &Recording,
        id: [u8; 16],
        key: [u8; 32],
    ) -> Result<Recorder> {
        let now = clock.now();
        let head = Head {
            id: id.iter().map(|b| format!("{b:02x}")).collect(),
            source: what.source.clone(),
            writer: format!("medfs {}", env!("CARGO_PKG_VERSION")),
            began: now.secs.saturating_mul(1_000_000_000).saturating_add(i64::from(now.nanos)),
            about: if what.private { String::new() } else { what.about.clone() },
            private: what.private,
            cache: what.cache.clone(),
            window: WINDOW,
        };
        let recorder = Recorder {
            began: clock.monotonic(),
            queue: WriteQueue::new(TraceWriter::new(out, &head)?)?,
            inner,
            clock,
            names: what.private.then(|| Names::new(key)),
            ids: Mutex::default(),
            processes: Mutex::default(),
            stripes: (0..STRIPES).map(|_| RwLock::new(())).collect(),
            forgetting: RwLock::new(()),
        };
        recorder.snapshot()?;
        Ok(recorder)
    }

    /// Ends the recording: the tree as it is now becomes the trace's last part. Operations after this are not recorded.
    pub fn finish(&self) -> Result<End> {
        let mut writer = self.queue.finish()?;
        writer.flush_frames()?;
        tree::list(&*self.inner, &mut |entry| writer.tree(&self.disguised(entry)))?;
        writer.tree_is_complete();
        writer.finish()
    }

    /// A file of the tree without what a trace without contents must not tell.
    fn disguised(&self, entry: TreeEntry) -> TreeEntry {
        match &self.names {
            None => entry,
            Some(names) => TreeEntry {
                path: Bytes::from(names.path(&entry.path)),
                content: [0; 16],
                attributes: [0; 16],
                ..entry
            },
        }
    }

    fn name(&self, name: &[u8]) -> Bytes {
        Bytes::from(self.names.as_ref().map_or_else(|| name.to_vec(), |names| names.name(name)))
    }

    fn target(&self, path: &[u8]) -> Bytes {
        Bytes::from(self.names.as_ref().map_or_else(|| path.to_vec(), |names| names.path(path)))
    }

    fn attribute(&self, name: &[u8]) -> Bytes {
        Bytes::from(self.names.as_ref().map_or_else(|| name.to_vec(), |names| names.attribute(name)))
    }

    fn value(&self, name: &[u8], value: &[u8]) -> Bytes {
        match &self.names {
            // ACLs have a form, and tell no content.
            Some(names) if !name.starts_with(b"system.") => Bytes::from(names.value(value)),
            _ => Bytes::from(value.to_vec()),
        }
    }

    fn file(&self, ino: Ino) -> FileId {
        if ino == self.inner.root() {
            return ROOT;
        }
        self.ids.lock().by_ino.get(&ino).map_or(ROOT, |known| known.file)
    }

    fn found(&self, result: &medfs::Result<Attr>, new: bool) -> FileId {
        result.as_ref().map_or(ROOT, |attr| {
            if attr.ino == self.inner.root() { ROOT } else { self.ids.lock().found(attr, new) }
        })
    }

    fn stripe(&self, ino: Ino) -> &RwLock<()> {
        &self.stripes[ino as usize % STRIPES]
    }

    /// The stripes of two files, for operations that change both.
    fn both_stripes(&self, a: Ino, b: Ino) -> (RwLockWriteGuard<'_, ()>, Option<RwLockWriteGuard<'_, ()>>) {
        let [a, b] = [a, b].map(|ino| ino as usize % STRIPES);
        let first = self.stripes[a.min(b)].write();
        (first, (a != b).then(|| self.stripes[a.max(b)].write()))
    }

    fn now(&self) -> Duration {
        self.clock.monotonic().saturating_sub(self.began)
    }

    /// The process of a thread; 0 where there is none (any more).
    fn process(&self, thread: u32) -> u32 {
        if thread == 0 {
            return 0;
        }
        if let Some(&process) = self.processes.lock().get(&thread) {
            return process;
        }
        let status = std::fs::read_to_string(format!("/proc/{thread}/status")).unwrap_or_default();
        let process =
            status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok()).unwrap_or(0);
        let mut processes = self.processes.lock();
        if processes.len() >= THREADS_MAX {
            processes.clear();
        }
        processes.insert(thread, process);
        process
    }

    /// Writes a record, and what the operation carried.
    fn write_down(&self, phase: Phase, began: Duration, errno: i32, op: Op, carried: Option<Carried<'_>>) {
        let took = self.now().saturating_sub(began);
        let thread = CALLER.get().thread;
        let process = self.process(thread);
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let record = Record { at: nanos(began), took: nanos(took), process, thread, errno: errno as u16, op };
        self.queue.push(phase, record, carried);
    }

    fn record<T>(&self, began: Duration, result: &medfs::Result<T>, op: Op) {
        let errno = result.as_ref().err().map_or(0, medfs::Error::errno);
        self.write_down(Phase::Recorded, began, errno, op, None);
    }

    /// Does an operation and records it.
    fn observe<T>(
        &self,
        call: impl FnOnce() -> medfs::Result<T>,
        op: impl FnOnce(&medfs::Result<T>) -> Op,
    ) -> medfs::Result<T> {
        let began = self.now();
        let result = call();
        let _known = self.forgetting.read();
        let op = op(&result);
        self.record(began, &result, op);
        result
    }

    fn write_with(
        &self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        cached: bool,
        call: impl FnOnce() -> medfs::Result<usize>,
    ) -> medfs::Result<usize> {
        let _order = self.stripe(ino).write();
        let before = self.names.is_some().then(|| self.before(ino, offset, data.len()));
        let began = self.now();
        let result = call();
        let written = result.as_ref().map_or(data.len(), |&written| written.min(data.len()));
        let errno = result.as_ref().err().map_or(0, medfs::Error::errno);
        let (file, content) = (self.file(ino), Content::default());
        let op = Op::Write { file, offset, len: written as u32, cached, content };
        let carried = Carried { offset, bytes: &data[..written], before: before.as_deref() };
        self.write_down(Phase::Recorded, began, errno, op, Some(carried));
        result
    }

    /// What a file holds where it will be written.
    fn before(&self, ino: Ino, offset: u64, len: usize) -> Vec<u8> {
        let mut before = vec![0; len];
        let read = self.inner.read(ino, offset, &mut before).unwrap_or(0);
        before.truncate(read);
        before
    }

    /// What a sketch of bytes that replace nothing is made against; a trace with contents needs none.
    fn nothing_before(&self) -> Option<&'static [u8]> {
        self.names.is_some().then_some(&[])
    }
}
