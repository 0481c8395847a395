//! From requests to the volume: each operation's structure is decoded, the engine is called, the result is encoded.
//!
//! Reference counts: each reply that introduces an inode to the kernel (an entry) carries the hold that the engine took
//! for it; FORGET releases as many. No lock of this module is held while the engine is called.

mod attr;
mod context;
mod data;
mod ioctl;
mod names;
mod privileges;
mod statistics;
mod xattr;

use crate::abi::{BatchForgetIn, ForgetIn, ForgetOne, ROOT_ID, op};
use crate::agreed::Agreed;
use crate::notify::Notifier;
use crate::remounts::{Now, Remounts};
use crate::request::{self, Answer, Errno, Reply, Request};
use crate::room::RoomKeeper;
use crate::transport::{Handler, panic_message};
use crate::worker_pool::WorkerPool;
use crate::writers::Writers;
use attr::Attributes;
use context::{Context, Done};
use data::Content;
use ioctl::Ioctls;
use medfs::{Caller, Files};
use names::Names;
use parking_lot::Mutex;
use statistics::Statistics;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use xattr::Xattrs;
use zerocopy::FromBytes;

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
    context: Context,
    /// Whether the mount is read-only. A leaf.
    remounts: Mutex<Remounts>,
    statistics: Statistics,
    /// Held by background work and by what ends it.
    life: Mutex<Life>,
}

impl FileSystem {
    pub(crate) fn new(
        files: Arc<dyn Files>,
        notifier: Notifier,
        agreed: &Agreed,
        room: Option<RoomKeeper>,
        writers: Arc<Writers>,
        remounts: Remounts,
        close: Option<Close>,
    ) -> FileSystem {
        FileSystem {
            context: Context::new(files, notifier, agreed, room, writers),
            remounts: Mutex::new(remounts),
            statistics: Statistics::new(agreed.options.clone(), agreed.image.clone()),
            life: Mutex::new(Life::Serving(close)),
        }
    }

    /// What is to be done about every second; returns when it is wanted again.
    pub(crate) fn tick(&self) -> Duration {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            let message = panic_message(&*panic);
            tracing::error!(message, "background work panicked");
            self.panicked(message);
        }
        self.context.files.next_background()
    }

    fn work(&self) {
        let life = self.life.lock();
        if matches!(*life, Life::Ended) {
            return;
        }
        let mount = self.remounts.lock().now();
        // What was written before a remount is durable soon after it, however it was done; then nothing is written.
        let done = match mount {
            Now::Writable => self.context.files.background(),
            Now::BecameReadOnly => self.context.files.sync(),
            Now::ReadOnly => Ok(()),
        };
        if let Err(error) = done {
            tracing::error!(%error, "background work failed");
        }
        if let Some(room) = self.context.room.as_ref().filter(|_| mount == Now::Writable) {
            room.tick();
        }
        for nodeid in std::mem::take(&mut *self.context.written.lock()) {
            let _ = self.context.notifier.inval_attr(nodeid);
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
            Life::Serving(None) => Content(&self.context).sync(),
            Life::Ended => Ok(()),
        }
    }

    fn ioctls(&self) -> Ioctls<'_> {
        Ioctls { context: &self.context, statistics: &self.statistics }
    }

    fn forget(&self, nodeid: u64, count: u64) {
        // The root is not counted: the volume holds it.
        if nodeid != ROOT_ID
            && let Ok(ino) = self.context.ino(nodeid)
        {
            self.context.files.release(ino, count);
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
        if let Some(volume) = self.context.files.volume() {
            volume.stop_writing(&format!("panicked: {message}"));
        }
    }

    fn handle(&self, pool: &WorkerPool, request: &Request<'_>, reply: &mut Reply<'_>) -> Answer {
        tracing::trace!(opcode = request.header.opcode, nodeid = request.nodeid(), pid = request.header.pid);
        self.context.files.on_behalf(Caller { thread: request.header.pid });
        let context = &self.context;
        request::is_about(context.subject(request).ok());
        let (names, attributes, content, xattrs) =
            (Names(context), Attributes(context), Content(context), Xattrs(context));
        let result = match request.header.opcode {
            op::LOOKUP => names.lookup(request, reply),
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
            op::GETATTR => attributes.getattr(request, reply),
            op::STATX => attributes.statx(request, reply),
            op::SETATTR => attributes.setattr(request, reply),
            op::READLINK => names.readlink(request, reply),
            op::SYMLINK => names.symlink(request, reply),
            op::MKNOD => names.mknod(request, reply),
            op::MKDIR => names.mkdir(request, reply),
            op::CREATE => names.create(request, reply),
            op::TMPFILE => names.tmpfile(request, reply),
            op::LINK => names.link(request, reply),
            op::UNLINK => names.unlink(request),
            op::RMDIR => names.rmdir(request),
            op::RENAME => names.rename(request),
            op::RENAME2 => names.rename2(request),
            op::READDIR => names.readdir(request, reply),
            op::READDIRPLUS => names.readdirplus(request, reply),
            op::OPEN => content.open(request, reply),
            op::READ => content.read(request, reply),
            op::WRITE => content.write(pool, request, reply),
            op::FALLOCATE => content.fallocate(pool, request),
            op::LSEEK => content.lseek(pool, request, reply),
            op::COPY_FILE_RANGE => content.copy_file_range(pool, request, reply),
            op::COPY_FILE_RANGE_64 => content.copy_file_range_64(pool, request, reply),
            op::FSYNC | op::FSYNCDIR => content.fsync(request),
            op::SYNCFS => content.sync(),
            op::DESTROY => self.destroy(),
            op::STATFS => attributes.statfs(reply),
            op::SETXATTR => xattrs.setxattr(request),
            op::GETXATTR => xattrs.getxattr(request, reply),
            op::LISTXATTR => xattrs.listxattr(request, reply),
            op::REMOVEXATTR => xattrs.removexattr(request),
            op::IOCTL => self.ioctls().call(pool, request, reply),
            op::RELEASE => content.release(request),
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
