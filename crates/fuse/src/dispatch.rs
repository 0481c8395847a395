//! From requests to the volume: each operation's structure is decoded, the engine is called, the result is encoded.
//!
//! Reference counts: each reply that introduces an inode to the kernel (an entry) carries the hold that the engine took
//! for it; FORGET releases as many. No lock of this module is held while the engine is called.

mod attr;
mod data;
mod ioctl;
mod names;
mod privileges;
mod xattr;

use crate::abi::{AttrData, AttrOut, BatchForgetIn, EntryOut, ForgetIn, ForgetOne, Init, ROOT_ID, op};
use crate::atomic::AtomicWrites;
use crate::crew::Crew;
use crate::notify::Notifier;
use crate::remounts::{Now, Remounts};
use crate::request::{Answer, Errno, Reply, Request, to_ino, to_nodeid};
use crate::room::RoomKeeper;
use crate::session::Agreed;
use crate::transport::{Handler, panic_message};
use medfs::{Attr, Caller, Files, Ino, Volume};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use zerocopy::FromBytes;

type Done = Result<(), Errno>;

/// Finishes the volume and lets go of its device, before the kernel is told that the mount has ended.
pub(crate) type Close = Box<dyn FnOnce() + Send>;

/// How far a mount has come.
enum Life {
    /// Requests come; at the end this is to be done.
    Serving(Option<Close>),
    /// The kernel said that it was the last request.
    Ended,
}

/// A file system as the kernel's FUSE driver sees it.
pub(crate) struct FileSystem {
    files: Arc<dyn Files>,
    root: Ino,
    notifier: Notifier,
    /// Seconds the kernel may keep names and attributes.
    valid: u64,
    writeback: bool,
    /// Files are read and written past the page cache.
    direct: bool,
    /// Under the writeback cache: room for what the kernel holds.
    room: Option<RoomKeeper>,
    /// SETXATTR has its long form.
    setxattr_ext: bool,
    /// Files whose page cache was written back since the last tick: their block count has changed.
    written: Mutex<HashSet<u64>>,
    atomic: AtomicWrites,
    /// Whether the mount is read-only. A leaf.
    remounts: Mutex<Remounts>,
    stats: Mutex<ioctl::StatsSnapshot>,
    /// The options of the mount in force, which statistics tell beside the volume's.
    options: Vec<String>,
    /// Held by background work and by what ends it.
    life: Mutex<Life>,
}

impl FileSystem {
    pub(crate) fn new(
        files: Arc<dyn Files>,
        notifier: Notifier,
        agreed: &Agreed,
        room: Option<RoomKeeper>,
        remounts: Remounts,
        close: Option<Close>,
    ) -> FileSystem {
        FileSystem {
            root: files.root(),
            valid: agreed.timeout.as_secs(),
            writeback: agreed.accepted.contains(Init::WRITEBACK_CACHE),
            direct: agreed.direct,
            room,
            setxattr_ext: agreed.accepted.contains(Init::SETXATTR_EXT),
            written: Mutex::new(HashSet::new()),
            atomic: AtomicWrites::new(files.clone(), notifier.clone()),
            remounts: Mutex::new(remounts),
            stats: Mutex::new(ioctl::StatsSnapshot::default()),
            options: agreed.options.clone(),
            life: Mutex::new(Life::Serving(close)),
            files,
            notifier,
        }
    }

    /// What is to be done about every second.
    pub(crate) fn tick(&self) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            let message = panic_message(&*panic);
            tracing::error!(message, "background work panicked");
            self.panicked(message);
        }
    }

    fn work(&self) {
        let life = self.life.lock();
        if matches!(*life, Life::Ended) {
            return;
        }
        let mount = self.remounts.lock().now();
        // What was written before a remount is durable soon after it, however it was done; then nothing is written.
        let done = match mount {
            Now::Writable => self.files.background(),
            Now::BecameReadOnly => self.files.sync(),
            Now::ReadOnly => Ok(()),
        };
        if let Err(error) = done {
            tracing::error!(%error, "background work failed");
        }
        if let Some(room) = self.room.as_ref().filter(|_| mount == Now::Writable) {
            room.tick();
        }
        for nodeid in std::mem::take(&mut *self.written.lock()) {
            let _ = self.notifier.inval_attr(nodeid);
        }
    }

    /// The last request of a `fuseblk` mount, which its umount(2) waits for.
    fn destroy(&self) -> Done {
        let life = std::mem::replace(&mut *self.life.lock(), Life::Ended);
        match life {
            Life::Serving(Some(close)) => {
                close();
                Ok(())
            }
            Life::Serving(None) => self.sync(),
            Life::Ended => Ok(()),
        }
    }

    /// The volume, for what only a volume can.
    fn volume(&self) -> Result<&Volume, Errno> {
        self.files.volume().ok_or(Errno::NOTTY)
    }

    fn ino(&self, nodeid: u64) -> Result<Ino, Errno> {
        to_ino(nodeid, self.root)
    }

    /// The inode a request is about.
    fn subject(&self, request: &Request<'_>) -> Result<Ino, Errno> {
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

    fn push_entry(&self, reply: &mut Reply<'_>, attr: &Attr) -> Done {
        reply.push(&self.entry(attr)).inspect_err(|_| self.files.release(attr.ino, 1))
    }

    fn push_attr(&self, reply: &mut Reply<'_>, attr: &Attr) -> Done {
        reply.push(&AttrOut { attr_valid: self.valid, attr: attr_data(attr), ..AttrOut::default() })
    }

    fn forget(&self, nodeid: u64, count: u64) {
        // The root is not counted: the volume holds it.
        if nodeid != ROOT_ID
            && let Ok(ino) = self.ino(nodeid)
        {
            self.files.release(ino, count);
        }
    }

    fn forget_many(&self, request: &Request<'_>) -> Done {
        let (head, mut rest) = request.arg_and_rest::<BatchForgetIn>()?;
        for _ in 0..head.count {
            let (one, behind) = ForgetOne::read_from_prefix(rest).map_err(|_| Errno::IO)?;
            self.forget(one.nodeid, one.nlookup);
            rest = behind;
        }
        Ok(())
    }
}

impl Handler for FileSystem {
    fn panicked(&self, message: &str) {
        if let Some(volume) = self.files.volume() {
            volume.stop_writing(&format!("panicked: {message}"));
        }
    }

    fn handle(&self, crew: &Crew, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer {
        tracing::trace!(opcode = request.header.opcode, nodeid = request.nodeid(), pid = request.header.pid);
        self.files.on_behalf(Caller { thread: request.header.pid });
        let result = match request.header.opcode {
            op::LOOKUP => self.lookup(request, reply),
            op::FORGET => {
                if let Ok(arg) = request.arg::<ForgetIn>() {
                    self.forget(request.nodeid(), arg.nlookup);
                }
                return Answer::Silent;
            }
            op::BATCH_FORGET => {
                if self.forget_many(request).is_err() {
                    tracing::error!("a list of inodes to forget is cut short");
                }
                return Answer::Silent;
            }
            // Asked for only to get a queue going, see the io_uring transport.
            op::NOTIFY_REPLY => return Answer::Silent,
            op::GETATTR => self.getattr(request, reply),
            op::STATX => self.statx(request, reply),
            op::SETATTR => self.setattr(request, reply),
            op::READLINK => self.readlink(request, reply),
            op::SYMLINK => self.symlink(request, reply),
            op::MKNOD => self.mknod(request, reply),
            op::MKDIR => self.mkdir(request, reply),
            op::CREATE => self.create(request, reply),
            op::TMPFILE => self.tmpfile(request, reply),
            op::LINK => self.link(request, reply),
            op::UNLINK => self.unlink(request),
            op::RMDIR => self.rmdir(request),
            op::RENAME => self.rename(request),
            op::RENAME2 => self.rename2(request),
            op::READDIR => self.readdir(request, reply),
            op::READDIRPLUS => self.readdirplus(request, reply),
            op::OPEN => self.open(request, reply),
            op::READ => self.read(request, reply),
            op::WRITE => self.write(crew, request, reply),
            op::FALLOCATE => self.fallocate(crew, request),
            op::LSEEK => self.lseek(crew, request, reply),
            op::COPY_FILE_RANGE => self.copy_file_range(crew, request, reply),
            op::COPY_FILE_RANGE_64 => self.copy_file_range_64(crew, request, reply),
            op::FSYNC | op::FSYNCDIR => self.fsync(request),
            op::SYNCFS => self.sync(),
            op::DESTROY => self.destroy(),
            op::STATFS => self.statfs(reply),
            op::SETXATTR => self.setxattr(request),
            op::GETXATTR => self.getxattr(request, reply),
            op::LISTXATTR => self.listxattr(request, reply),
            op::REMOVEXATTR => self.removexattr(request),
            op::IOCTL => self.ioctl(crew, request, reply),
            op::RELEASE => self.release(request),
            op::RELEASEDIR => Ok(()),
            // OPENDIR, FLUSH, ACCESS, INTERRUPT among others: the kernel does without and does not ask again.
            _ => Err(Errno::NOSYS),
        };
        match result {
            Ok(()) => Answer::Reply,
            Err(errno) => Answer::Error(errno),
        }
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
