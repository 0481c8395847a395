//! Notifications to the kernel.

use crate::abi::{NOTIFY_INVAL_INODE, NotifyInvalInodeOut, OutHeader};
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
    /// served those writes, so this must run inside [`crate::crew::Crew::nested`].
    pub(crate) fn flush_pages(&self, nodeid: u64, offset: i64) -> Result<(), Errno> {
        self.inval(nodeid, offset, 0)
    }

    fn inval(&self, ino: u64, off: i64, len: i64) -> Result<(), Errno> {
        let body = NotifyInvalInodeOut { ino, off, len };
        let header = OutHeader {
            len: (size_of::<OutHeader>() + size_of::<NotifyInvalInodeOut>()) as u32,
            error: NOTIFY_INVAL_INODE,
            unique: 0,
        };
        // A notification is one message: it is taken whole or refused.
        let message = [header.as_bytes(), body.as_bytes()].concat();
        match (&*self.device).write_all(&message) {
            Ok(()) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // The kernel does not know the inode (any more): nothing is cached.
                Some(libc::ENOENT) => Ok(()),
                errno => Err(Errno(errno.unwrap_or(libc::EIO))),
            },
        }
    }
}
