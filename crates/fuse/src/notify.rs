//! Notifications to the kernel.

use crate::abi::{NOTIFY_INVAL_INODE, NOTIFY_RETRIEVE, NotifyInvalInodeOut, NotifyRetrieveOut, OutHeader};
use crate::request::Errno;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Tells the kernel what its caches must drop. Notifications go through `/dev/fuse` with either transport.
#[derive(Clone)]
pub(crate) struct Notifier {
    device: Arc<File>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<File>) -> Notifier {
        Notifier { device }
    }

    /// Makes the kernel forget the attributes of an inode.
    pub(crate) fn inval_attr(&self, nodeid: u64) -> Result<(), Errno> {
        self.inval(nodeid, -1, 0)
    }

    /// Makes the kernel write back and drop the page cache of an inode from `offset` on. Returns when the daemon has
    /// served those writes, so this must run inside [`crate::worker_pool::WorkerPool::with_spare_worker`].
    pub(crate) fn flush_pages(&self, nodeid: u64, offset: i64) -> Result<(), Errno> {
        self.inval(nodeid, offset, 0)
    }

    /// Makes the kernel drop what it caches of a range, after it has written back what of it is dirty; to be called as
    /// [`Notifier::flush_pages`].
    pub(crate) fn inval_range(&self, nodeid: u64, offset: u64, len: u64) -> Result<(), Errno> {
        match (i64::try_from(offset), i64::try_from(len)) {
            (Ok(offset), Ok(len)) => self.inval(nodeid, offset, len),
            _ => Err(Errno::INVAL),
        }
    }

    /// Makes the kernel send a request that means nothing to the queue of the CPU we run on. It does so only for a
    /// regular file, of which it is asked for no bytes.
    pub(crate) fn kick(&self, nodeid: u64) -> Result<(), Errno> {
        // The number of the request is chosen by us: even, as the kernel's are, and out of reach of those it counts up.
        const UNIQUE: u64 = 1 << 62;
        let body = NotifyRetrieveOut { notify_unique: UNIQUE, nodeid, ..NotifyRetrieveOut::default() };
        self.send(NOTIFY_RETRIEVE, body.as_bytes())
    }

    fn inval(&self, ino: u64, off: i64, len: i64) -> Result<(), Errno> {
        match self.send(NOTIFY_INVAL_INODE, NotifyInvalInodeOut { ino, off, len }.as_bytes()) {
            // The kernel does not know the inode (any more): nothing is cached.
            Err(Errno::NOENT) => Ok(()),
            other => other,
        }
    }

    fn send(&self, code: i32, body: &[u8]) -> Result<(), Errno> {
        let header = OutHeader { len: (size_of::<OutHeader>() + body.len()) as u32, error: code, unique: 0 };
        // A notification is one message: it is taken whole or refused.
        let message = [header.as_bytes(), body].concat();
        (&*self.device).write_all(&message).map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))
    }
}
