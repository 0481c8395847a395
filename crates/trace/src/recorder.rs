//! Recording what is asked of a file system.
//!
//! Purpose: [`Recorder`] stands between a front end and a file system, hands everything on, and writes down what was asked
//! for, how it ended and what it carried.
//!
//! Invariants: recording never changes how an operation ends; where the trace cannot be written the rest of it is lost, once
//! with a message, and the operations go on. Records of operations on one file, or on names of one directory, come in the
//! order in which they took effect, also those that failed; that a file is forgotten comes before it is found again. Memory
//! is that of [`TraceWriter`] and the [`Backlog`], and a few words for each file that was ever found.
//!
//! Locks, from the outside in: the stripes of the files, the file system's own, `forgetting` (exclusive from the moment that
//! a file has no number any more until this is recorded, shared from when another operation asks for numbers until it is
//! recorded), then the leaves `ids` and `processes`, and the backlog's. A directory is listed without its stripe: what is
//! listed is looked up meanwhile.

use crate::backlog::{Backlog, Carried};
use crate::error::{Error, Result};
use crate::format::{End, Head, WINDOW};
use crate::names::Names;
use crate::record::{
    Attributes, Bytes, Content, FileId, NewNode, Op, PAGE, ROOT, Record, TreeEntry, xattr_mode_number,
};
use crate::tree;
use crate::writer::{Phase, TraceWriter};
use medfs::{
    Attr, Caller, Clock, DirEntry, FallocateMode, FileFlags, FileKind, Files, Ino, NewFile, RenameFlags,
    Seek, SetAttr, StatFs, Volume, XattrMode,
};
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

/// What is to be recorded, and how.
#[derive(Debug, Clone)]
pub struct Recording {
    /// What the head calls the source: `mount` or `volume`.
    pub source: String,
    /// What is recorded, in words.
    pub about: String,
    /// Keep no contents and no names.
    pub private: bool,
    /// What of the page cache above is bypassed, as [`Head::cache`] has it.
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
    backlog: Backlog,
}

/// Numbers of files.
#[derive(Default)]
struct Ids {
    by_ino: HashMap<Ino, Known>,
    next: FileId,
}

struct Known {
    file: FileId,
    generation: u32,
    holds: u64,
}

impl Ids {
    /// The number of a file that somebody took a hold of; `new`: it was just made.
    fn found(&mut self, attr: &Attr, new: bool) -> FileId {
        match self.by_ino.get_mut(&attr.ino) {
            Some(known) if !new && known.generation == attr.generation => {
                known.holds += 1;
                known.file
            }
            _ => {
                self.next += 1;
                let known = Known { file: self.next, generation: attr.generation, holds: 1 };
                self.by_ino.insert(attr.ino, known);
                self.next
            }
        }
    }

    /// Gives holds back; the file's number where they were the last.
    fn release(&mut self, ino: Ino, count: u64) -> Option<FileId> {
        let known = self.by_ino.get_mut(&ino)?;
        let held = known.holds > 0;
        known.holds = known.holds.saturating_sub(count);
        (held && known.holds == 0).then_some(known.file)
    }
}

impl Recorder {
    /// Begins to record: what is there already becomes the trace's first part. Nobody else may use `inner` meanwhile.
    /// `key` replaces names of a trace without contents; it is told nobody.
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
            backlog: Backlog::new(TraceWriter::new(out, &head)?)?,
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
        let mut writer = self.backlog.finish()?;
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
        self.backlog.push(phase, record, carried);
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

    /// Records what is there as operations that make it.
    fn snapshot(&self) -> Result<()> {
        let mut numbers: HashMap<Ino, FileId> = HashMap::from([(self.inner.root(), ROOT)]);
        tree::walk(&*self.inner, &mut |parent, attr, path| {
            let name = path.rsplit(|&b| b == b'/').next().unwrap_or_default();
            let (parent, name) = (numbers.get(&parent).copied().unwrap_or(ROOT), self.name(name));
            if let Some(&file) = numbers.get(&attr.ino) {
                self.setup(Op::Link { file, parent, name });
                return Ok(());
            }
            let file = self.ids.lock().found(attr, false);
            self.ids.lock().release(attr.ino, 1);
            // Only these are met again.
            let again = attr.kind == FileKind::Directory || attr.nlink > 1;
            if again {
                numbers.insert(attr.ino, file);
            }
            let (uid, gid) = (attr.uid, attr.gid);
            let kind = attr.kind.mode_bits();
            let new = NewNode { kind, perm: attr.perm, umask: 0, uid, gid, rdev: attr.rdev };
            if attr.kind == FileKind::Symlink {
                let target = self.inner.readlink(attr.ino).map_err(Error::files("cannot read a link"))?;
                self.setup(Op::Symlink { parent, name, target: self.target(&target), file, uid, gid });
            } else {
                self.setup(Op::Create { parent, name, file, new });
            }
            if attr.kind == FileKind::Regular {
                self.snapshot_content(attr, file)?;
            }
            self.snapshot_attributes(attr.ino, file)?;
            if !again {
                self.setup(Op::Forget { file });
            }
            // The failure itself is told at the end.
            if self.backlog.failed() { self.backlog.finish().map(drop) } else { Ok(()) }
        })
    }

    fn setup(&self, op: Op) {
        self.write_down(Phase::Setup, Duration::ZERO, 0, op, None);
    }

    fn snapshot_content(&self, attr: &Attr, file: FileId) -> Result<()> {
        let failed = || Error::files(format!("cannot read file {}", attr.ino));
        let mut buffer = vec![0; 32 * PAGE];
        let mut offset = 0;
        while offset < attr.size {
            offset = match self.inner.seek(attr.ino, offset, Seek::Data) {
                Ok(data) => data - data % PAGE as u64,
                Err(e) if e.errno() == libc::ENXIO => break,
                // Where holes are not told they are read.
                Err(_) => offset,
            };
            let len = self.inner.read(attr.ino, offset, &mut buffer).map_err(failed())?;
            if len == 0 {
                break;
            }
            let carried = Carried { offset, bytes: &buffer[..len], before: self.nothing_before() };
            let op = Op::Write { file, offset, len: len as u32, cached: false, content: Content::default() };
            self.write_down(Phase::Setup, Duration::ZERO, 0, op, Some(carried));
            offset += len as u64;
        }
        // Its end may be a hole.
        self.setup(Op::SetAttr { file, set: Attributes { size: Some(attr.size), ..Attributes::default() } });
        Ok(())
    }

    fn snapshot_attributes(&self, ino: Ino, file: FileId) -> Result<()> {
        let names = match self.inner.listxattr(ino) {
            Err(e) if e.errno() == libc::EOPNOTSUPP => return Ok(()),
            other => other.map_err(Error::files("cannot list extended attributes"))?,
        };
        for name in
            names.iter().filter(|name| name.starts_with(b"user.") || name.starts_with(b"system.posix_acl"))
        {
            let value =
                self.inner.getxattr(ino, name).map_err(Error::files("cannot read an extended attribute"))?;
            let value = self.value(name, &value);
            self.setup(Op::SetXattr { file, name: self.attribute(name), value, mode: 0 });
        }
        Ok(())
    }
}

impl Files for Recorder {
    fn root(&self) -> Ino {
        self.inner.root()
    }

    fn volume(&self) -> Option<&Volume> {
        self.inner.volume()
    }

    fn on_behalf(&self, caller: Caller) {
        CALLER.set(caller);
        self.inner.on_behalf(caller);
    }

    fn background(&self) -> medfs::Result<()> {
        self.backlog.flush();
        self.inner.background()
    }

    fn statfs(&self) -> medfs::Result<StatFs> {
        self.inner.statfs()
    }

    fn sync(&self) -> medfs::Result<()> {
        self.observe(|| self.inner.sync(), |_| Op::Sync)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> medfs::Result<Attr> {
        let _order = self.stripe(parent).read();
        let from = self.file(parent);
        self.observe(
            || self.inner.lookup(parent, name),
            |result| Op::Lookup { parent: from, name: self.name(name), file: self.found(result, false) },
        )
    }

    fn release(&self, ino: Ino, count: u64) {
        let began = self.now();
        self.inner.release(ino, count);
        let _forgotten = self.forgetting.write();
        let gone = self.ids.lock().release(ino, count);
        if let Some(file) = gone {
            self.record(began, &Ok(()), Op::Forget { file });
        }
    }

    fn getattr(&self, ino: Ino) -> medfs::Result<Attr> {
        let _order = self.stripe(ino).read();
        self.observe(
            || self.inner.getattr(ino),
            |result| {
                let regular = result.as_ref().ok().filter(|attr| attr.kind == FileKind::Regular);
                Op::GetAttr { file: self.file(ino), size: regular.map_or(0, |attr| attr.size) }
            },
        )
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> medfs::Result<Attr> {
        let _order = self.stripe(ino).write();
        self.observe(
            || self.inner.setattr(ino, set),
            |_| Op::SetAttr { file: self.file(ino), set: Attributes::from(set) },
        )
    }

    fn open(&self, ino: Ino, flags: i32) -> medfs::Result<Attr> {
        let _order = self.stripe(ino).write();
        self.observe(|| self.inner.open(ino, flags), |_| Op::Open { file: self.file(ino), flags })
    }

    fn close(&self, ino: Ino) {
        let _order = self.stripe(ino).write();
        let began = self.now();
        self.inner.close(ino);
        self.record(began, &Ok(()), Op::Close { file: self.file(ino) });
    }

    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> medfs::Result<Attr> {
        let _order = self.stripe(parent).write();
        let from = self.file(parent);
        self.observe(
            || self.inner.create(parent, name, new),
            |result| Op::Create {
                parent: from,
                name: self.name(name),
                file: self.found(result, true),
                new: NewNode::from(new),
            },
        )
    }

    fn tmpfile(&self, parent: Ino, new: &NewFile) -> medfs::Result<Attr> {
        let _order = self.stripe(parent).write();
        let from = self.file(parent);
        self.observe(
            || self.inner.tmpfile(parent, new),
            |result| Op::Tmpfile { parent: from, file: self.found(result, true), new: NewNode::from(new) },
        )
    }

    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> medfs::Result<Attr> {
        let _order = self.stripe(parent).write();
        let from = self.file(parent);
        self.observe(
            || self.inner.symlink(parent, name, target, uid, gid),
            |result| Op::Symlink {
                parent: from,
                name: self.name(name),
                target: self.target(target),
                file: self.found(result, true),
                uid,
                gid,
            },
        )
    }

    fn readlink(&self, ino: Ino) -> medfs::Result<Vec<u8>> {
        self.observe(|| self.inner.readlink(ino), |_| Op::Readlink { file: self.file(ino) })
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> medfs::Result<Attr> {
        let _order = self.both_stripes(ino, parent);
        self.observe(
            || self.inner.link(ino, parent, name),
            |result| {
                self.found(result, false);
                Op::Link { file: self.file(ino), parent: self.file(parent), name: self.name(name) }
            },
        )
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> medfs::Result<()> {
        let _order = self.stripe(parent).write();
        let from = self.file(parent);
        self.observe(
            || self.inner.unlink(parent, name),
            |_| Op::Unlink { parent: from, name: self.name(name) },
        )
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> medfs::Result<()> {
        let _order = self.stripe(parent).write();
        let from = self.file(parent);
        self.observe(|| self.inner.rmdir(parent, name), |_| Op::Rmdir { parent: from, name: self.name(name) })
    }

    fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        to: Ino,
        to_name: &[u8],
        flags: RenameFlags,
    ) -> medfs::Result<()> {
        let _order = self.both_stripes(parent, to);
        self.observe(
            || self.inner.rename(parent, name, to, to_name, flags),
            |_| Op::Rename {
                parent: self.file(parent),
                name: self.name(name),
                to: self.file(to),
                to_name: self.name(to_name),
                flags: flags.bits(),
            },
        )
    }

    fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> medfs::Result<()> {
        self.observe(
            || self.inner.readdir(ino, position, emit),
            |_| Op::Readdir { file: self.file(ino), position },
        )
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> medfs::Result<usize> {
        let _order = self.stripe(ino).read();
        let began = self.now();
        let result = self.inner.read(ino, offset, buf);
        let read = result.as_ref().map_or(0, |&read| read.min(buf.len()));
        let errno = result.as_ref().err().map_or(0, medfs::Error::errno);
        let op =
            Op::Read { file: self.file(ino), offset, len: buf.len() as u32, content: Content::default() };
        let carried = Carried { offset, bytes: &buf[..read], before: self.nothing_before() };
        self.write_down(Phase::Recorded, began, errno, op, Some(carried));
        result
    }

    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> medfs::Result<usize> {
        self.write_with(ino, offset, data, false, || self.inner.write(ino, offset, data))
    }

    fn write_cached(&self, ino: Ino, offset: u64, data: &[u8]) -> medfs::Result<usize> {
        self.write_with(ino, offset, data, true, || self.inner.write_cached(ino, offset, data))
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(
            || self.inner.fallocate(ino, mode, offset, len),
            |_| Op::Fallocate { file: self.file(ino), mode: mode.bits(), offset, len },
        )
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> medfs::Result<u64> {
        let _order = self.stripe(ino).read();
        self.observe(
            || self.inner.seek(ino, offset, whence),
            |_| Op::Seek { file: self.file(ino), offset, hole: whence == Seek::Hole },
        )
    }

    fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> medfs::Result<u64> {
        let _order = self.both_stripes(from, to);
        self.observe(
            || self.inner.copy_range(from, from_offset, to, to_offset, len),
            |result| Op::CopyRange {
                from: self.file(from),
                from_offset,
                to: self.file(to),
                to_offset,
                len,
                copied: result.as_ref().map_or(0, |&copied| copied),
            },
        )
    }

    fn fsync(&self, ino: Ino, datasync: bool) -> medfs::Result<()> {
        let _order = self.stripe(ino).read();
        self.observe(|| self.inner.fsync(ino, datasync), |_| Op::Fsync { file: self.file(ino), datasync })
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> medfs::Result<Vec<u8>> {
        let _order = self.stripe(ino).read();
        self.observe(
            || self.inner.getxattr(ino, name),
            |_| Op::GetXattr { file: self.file(ino), name: self.attribute(name) },
        )
    }

    fn listxattr(&self, ino: Ino) -> medfs::Result<Vec<Vec<u8>>> {
        let _order = self.stripe(ino).read();
        self.observe(|| self.inner.listxattr(ino), |_| Op::ListXattr { file: self.file(ino) })
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(
            || self.inner.setxattr(ino, name, value, mode),
            |_| Op::SetXattr {
                file: self.file(ino),
                name: self.attribute(name),
                value: self.value(name, value),
                mode: xattr_mode_number(mode),
            },
        )
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(
            || self.inner.removexattr(ino, name),
            |_| Op::RemoveXattr { file: self.file(ino), name: self.attribute(name) },
        )
    }

    fn set_flags(&self, ino: Ino, flags: FileFlags) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(
            || self.inner.set_flags(ino, flags),
            |_| Op::SetFlags { file: self.file(ino), flags: flags.bits() },
        )
    }

    fn atomic_start(&self, ino: Ino) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(|| self.inner.atomic_start(ino), |_| Op::AtomicStart { file: self.file(ino) })
    }

    fn atomic_commit(&self, ino: Ino) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(|| self.inner.atomic_commit(ino), |_| Op::AtomicCommit { file: self.file(ino) })
    }

    fn atomic_abort(&self, ino: Ino) -> medfs::Result<()> {
        let _order = self.stripe(ino).write();
        self.observe(|| self.inner.atomic_abort(ino), |_| Op::AtomicAbort { file: self.file(ino) })
    }
}
