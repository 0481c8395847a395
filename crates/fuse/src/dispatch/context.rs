//! What the operations on a mounted file system share: the files, what was agreed with the kernel, and how
//! replies name inodes.

use crate::abi::{AttrData, AttrOut, EntryOut, FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, Init, OpenOut};
use crate::agreed::Agreed;
use crate::atomic::AtomicWrites;
use crate::notify::Notifier;
use crate::request::{Errno, Reply, Request, to_ino, to_nodeid};
use crate::room::RoomKeeper;
use crate::worker_pool::WorkerPool;
use crate::writers::Writers;
use medfs::{Attr, FileFlags, Files, Ino, Volume};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::sync::Arc;

pub(super) type Done = Result<(), Errno>;

/// What a file's handle says of how it was opened, by which ioctls are judged too: the access mode,
pub(super) const ACCESS_MODE: u64 = libc::O_ACCMODE as u64;
/// that it may be written through the page cache,
pub(super) const CACHED_WRITER: u64 = 1 << 2;
/// or past it, while others may have it in the page cache.
pub(super) const PAST_CACHE: u64 = 1 << 3;
/// It is open to be written, and the kernel may hold writes back, also without the writeback cache: those of mappings.
pub(super) const BUFFERED_WRITER: u64 = 1 << 5;
/// With `O_SYNC` or `O_DSYNC`: an fsync of it is a write's, and not put off.
pub(super) const SYNCHRONOUS: u64 = 1 << 4;

/// See the module.
pub(super) struct Context {
    pub(super) files: Arc<dyn Files>,
    root: Ino,
    pub(super) notifier: Notifier,
    /// Seconds the kernel may keep names and attributes.
    pub(super) valid: u64,
    pub(super) writeback: bool,
    /// Files are read and written past the page cache.
    pub(super) direct: bool,
    /// Under the writeback cache: room for what the kernel holds.
    pub(super) room: Option<RoomKeeper>,
    /// Files whose pages the kernel may hold back.
    pub(super) writers: Arc<Writers>,
    /// SETXATTR has its long form.
    pub(super) setxattr_ext: bool,
    /// Files whose page cache was written back since the last tick: their block count has changed.
    pub(super) written: Mutex<HashSet<u64>>,
    pub(super) atomic: AtomicWrites,
}

impl Context {
    pub(super) fn new(
        files: Arc<dyn Files>,
        notifier: Notifier,
        agreed: &Agreed,
        room: Option<RoomKeeper>,
        writers: Arc<Writers>,
    ) -> Context {
        Context {
            root: files.root(),
            valid: agreed.timeout.as_secs(),
            writeback: agreed.accepted.contains(Init::WRITEBACK_CACHE),
            direct: agreed.direct,
            room,
            writers,
            setxattr_ext: agreed.accepted.contains(Init::SETXATTR_EXT),
            written: Mutex::new(HashSet::new()),
            atomic: AtomicWrites::new(files.clone(), notifier.clone()),
            files,
            notifier,
        }
    }

    /// The volume, for what only a volume can.
    pub(super) fn volume(&self) -> Result<&Volume, Errno> {
        self.files.volume().ok_or(Errno::NOTTY)
    }

    pub(super) fn ino(&self, nodeid: u64) -> Result<Ino, Errno> {
        to_ino(nodeid, self.root)
    }

    /// The inode a request is about.
    pub(super) fn subject(&self, request: &Request<'_>) -> Result<Ino, Errno> {
        self.ino(request.nodeid())
    }

    /// An entry for an inode whose hold passes to the kernel.
    fn entry(&self, attr: &Attr) -> EntryOut {
        EntryOut {
            nodeid: to_nodeid(attr.ino, self.root),
            // The kernel has the root's as 0, from the mount on.
            generation: if attr.ino == self.root { 0 } else { u64::from(attr.generation) },
            entry_valid: self.valid,
            attr_valid: self.valid,
            attr: attr_data(attr),
            ..EntryOut::default()
        }
    }

    pub(super) fn push_entry(&self, reply: &mut Reply<'_>, attr: &Attr) -> Done {
        reply.push(&self.entry(attr)).inspect_err(|_| self.files.release(attr.ino, 1))
    }

    pub(super) fn push_attr(&self, reply: &mut Reply<'_>, attr: &Attr) -> Done {
        reply.push(&AttrOut { attr_valid: self.valid, attr: attr_data(attr), ..AttrOut::default() })
    }

    /// How a file is opened, with the flags of `open(2)`. One that is written synchronously is not kept in
    /// the page cache, which would take the writes, nor one that is only written where room is short.
    /// `past_cache`: nor is this one.
    pub(super) fn opened(&self, attr: &Attr, flags: u32, past_cache: bool) -> OpenOut {
        let mode = flags as i32 & libc::O_ACCMODE;
        let mut fh = u64::from(flags) & ACCESS_MODE;
        if flags as i32 & libc::O_DSYNC != 0 {
            fh |= SYNCHRONOUS;
        }
        let short = || mode == libc::O_WRONLY && self.room.as_ref().is_some_and(|room| room.is_short());
        if self.direct {
            return OpenOut { fh, open_flags: FOPEN_DIRECT_IO, ..OpenOut::default() };
        }
        if past_cache || attr.flags.contains(FileFlags::SYNC) || short() {
            fh |= PAST_CACHE;
            return OpenOut { fh, open_flags: FOPEN_DIRECT_IO, ..OpenOut::default() };
        }
        if mode != libc::O_RDONLY {
            self.writers.enter(attr.ino);
            fh |= BUFFERED_WRITER;
        }
        if mode != libc::O_RDONLY
            && let Some(room) = &self.room
        {
            room.enter();
            fh |= CACHED_WRITER;
        }
        OpenOut { fh, open_flags: FOPEN_KEEP_CACHE, ..OpenOut::default() }
    }

    /// Has the kernel send what it holds back of all files, and waits until it is there. A file that fails keeps no
    /// other one from it: the first error is told at the end. One that cannot be opened (this process may not, or
    /// someone has a lease on it) leaves the cache instead.
    pub(super) fn write_back(&self, pool: &WorkerPool) -> Done {
        let Some(volume) = self.files.volume() else { return Ok(()) };
        self.writers.each(|ino| {
            let nodeid = to_nodeid(ino, self.root);
            let written = pool.with_spare_worker(nodeid, || {
                self.writers.write_back(volume, ino).or_else(|_| self.notifier.flush_pages(nodeid, 0))
            });
            written?
        })
    }

    /// Before a request takes room: what the page cache holds must not need it.
    pub(super) fn take_room(&self, pool: &WorkerPool, request: &Request<'_>, bytes: u64) -> Done {
        self.room.as_ref().map_or(Ok(()), |room| room.take(pool, request.nodeid(), bytes))
    }
}

/// Attributes as the kernel wants them.
fn attr_data(attr: &Attr) -> AttrData {
    AttrData {
        ino: u64::from(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: attr.atime.secs,
        mtime: attr.mtime.secs,
        ctime: attr.ctime.secs,
        atimensec: attr.atime.nanos,
        mtimensec: attr.mtime.nanos,
        ctimensec: attr.ctime.nanos,
        mode: u32::from(attr.kind.mode_bits() | attr.perm),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev as u32,
        blksize: medfs_format::BLOCK_SIZE as u32,
        flags: 0,
    }
}
