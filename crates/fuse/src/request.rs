//! One request of the kernel, and the reply to it.
//!
//! A request is a header, the operation's structure and a rest (names, values, data). Over `/dev/fuse` structure and
//! rest lie behind one another; over io_uring they come apart. [`Request`] hides the difference. Whatever is too short
//! or malformed is `EIO`: the kernel is trusted to mean well, not to be right.

use crate::abi::InHeader;
use medfs::Ino;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

thread_local! {
    /// The inode that this thread's request is about: of a name its directory.
    static SUBJECT: Cell<Option<Ino>> = const { Cell::new(None) };
}

/// Notes what the request is about that this thread serves: an error that it meets is told of that.
pub(crate) fn is_about(ino: Option<Ino>) {
    SUBJECT.set(ino);
}

/// Errors of the device or of damage that requests of this process ended with.
static DAMAGE_MET: AtomicU64 = AtomicU64::new(0);

/// How often a request met an error of the device or of damage.
pub(crate) fn damage_met() -> u64 {
    DAMAGE_MET.load(Ordering::Relaxed)
}

/// A Linux error number (positive).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) i32);

impl Errno {
    pub(crate) const PERM: Errno = Errno(libc::EPERM);
    pub(crate) const NOENT: Errno = Errno(libc::ENOENT);
    pub(crate) const IO: Errno = Errno(libc::EIO);
    pub(crate) const NXIO: Errno = Errno(libc::ENXIO);
    pub(crate) const BADF: Errno = Errno(libc::EBADF);
    pub(crate) const ACCES: Errno = Errno(libc::EACCES);
    pub(crate) const AGAIN: Errno = Errno(libc::EAGAIN);
    pub(crate) const INVAL: Errno = Errno(libc::EINVAL);
    pub(crate) const NOTTY: Errno = Errno(libc::ENOTTY);
    pub(crate) const NOSPC: Errno = Errno(libc::ENOSPC);
    pub(crate) const RANGE: Errno = Errno(libc::ERANGE);
    pub(crate) const NOSYS: Errno = Errno(libc::ENOSYS);
    pub(crate) const OPNOTSUPP: Errno = Errno(libc::EOPNOTSUPP);
    pub(crate) const STALE: Errno = Errno(libc::ESTALE);
}

impl From<medfs::Error> for Errno {
    fn from(error: medfs::Error) -> Errno {
        use medfs::Error::{Corrupt, Io};
        use std::io::ErrorKind::{QuotaExceeded, StorageFull};
        if matches!(&error, Io(e) if matches!(e.kind(), StorageFull | QuotaExceeded)) {
            tracing::error!(ino = SUBJECT.get(), %error, "an operation on a file failed");
        } else if matches!(error, Io(_) | Corrupt(_)) {
            DAMAGE_MET.fetch_add(1, Ordering::Relaxed);
            let subject = SUBJECT.get();
            tracing::error!(
                ino = subject,
                %error,
                "an operation on a file failed; 'medfs help damaged' says what to do"
            );
        }
        Errno(error.errno())
    }
}

/// How an operation ended.
pub(crate) enum Answer {
    /// With the bytes in the [`Reply`].
    Reply,
    /// With an error.
    Error(Errno),
    /// The kernel expects nothing.
    Silent,
}

/// A request, borrowed from the transport's buffers.
pub(crate) struct Request<'a> {
    pub(crate) header: InHeader,
    head: &'a [u8],
    rest: Option<&'a [u8]>,
}

impl<'a> Request<'a> {
    /// From the bytes read from `/dev/fuse`.
    pub(crate) fn contiguous(bytes: &'a [u8]) -> Option<Request<'a>> {
        let (header, head) = InHeader::read_from_prefix(bytes).ok()?;
        Some(Request { header, head, rest: None })
    }

    /// From its parts as io_uring delivers them.
    pub(crate) fn split(header: InHeader, head: &'a [u8], rest: &'a [u8]) -> Request<'a> {
        Request { header, head, rest: Some(rest) }
    }

    /// The operation's structure.
    pub(crate) fn arg<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.head).map(|(value, _)| value).map_err(|_| Errno::IO)
    }

    /// The operation's structure, and what follows it.
    pub(crate) fn arg_and_rest<T: FromBytes + KnownLayout + Immutable>(
        &self,
    ) -> Result<(T, &'a [u8]), Errno> {
        let (value, behind) = T::read_from_prefix(self.head).map_err(|_| Errno::IO)?;
        Ok((value, self.rest.unwrap_or(behind)))
    }

    /// What follows where the operation has no structure.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest.unwrap_or(self.head)
    }

    /// The inode the request is about.
    pub(crate) fn nodeid(&self) -> u64 {
        self.header.nodeid
    }
}

/// Splits a zero-terminated string off the front.
pub(crate) fn split_name(bytes: &[u8]) -> Result<(&[u8], &[u8]), Errno> {
    let end = bytes.iter().position(|&b| b == 0).ok_or(Errno::IO)?;
    Ok((&bytes[..end], &bytes[end + 1..]))
}

/// A zero-terminated string.
pub(crate) fn name(bytes: &[u8]) -> Result<&[u8], Errno> {
    split_name(bytes).map(|(name, _)| name)
}

/// A node id as an inode number. The kernel calls the root 1, F2FS has its own number for it.
pub(crate) fn to_ino(nodeid: u64, root: Ino) -> Result<Ino, Errno> {
    if nodeid == crate::abi::ROOT_ID { Ok(root) } else { Ino::try_from(nodeid).map_err(|_| Errno::STALE) }
}

/// An inode number as a node id.
pub(crate) fn to_nodeid(ino: Ino, root: Ino) -> u64 {
    if ino == root { crate::abi::ROOT_ID } else { u64::from(ino) }
}

/// The bytes of a reply behind its header, written straight into the transport's buffer.
pub(crate) struct Reply<'a> {
    buffer: &'a mut [u8],
    len: usize,
}

impl<'a> Reply<'a> {
    pub(crate) fn new(buffer: &'a mut [u8]) -> Reply<'a> {
        Reply { buffer, len: 0 }
    }

    /// Bytes so far.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Appends bytes; `EIO` where the buffer is full, which no correct reply meets.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        self.spare(bytes.len())?.copy_from_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Appends a structure.
    pub(crate) fn push<T: IntoBytes + Immutable>(&mut self, value: &T) -> Result<(), Errno> {
        self.bytes(value.as_bytes())
    }

    /// The next `len` bytes, to be filled and then taken with [`Reply::advance`].
    pub(crate) fn spare(&mut self, len: usize) -> Result<&mut [u8], Errno> {
        self.buffer[self.len..].get_mut(..len).ok_or(Errno::IO)
    }

    /// Takes bytes that were written to [`Reply::spare`].
    pub(crate) fn advance(&mut self, len: usize) {
        self.len = (self.len + len).min(self.buffer.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::{MkdirIn, op};

    fn header(opcode: u32) -> InHeader {
        InHeader { opcode, nodeid: 7, unique: 9, ..InHeader::default() }
    }

    #[test]
    fn both_layouts_decode_alike() {
        let arg = MkdirIn { mode: 0o755, umask: 0o22 };
        let mut bytes = header(op::MKDIR).as_bytes().to_vec();
        bytes.extend_from_slice(arg.as_bytes());
        bytes.extend_from_slice(b"name\0");
        let joined = Request::contiguous(&bytes).unwrap();
        let mut op_in = [0; 128];
        op_in[..8].copy_from_slice(arg.as_bytes());
        let apart = Request::split(header(op::MKDIR), &op_in, b"name\0");
        for request in [joined, apart] {
            let (decoded, rest) = request.arg_and_rest::<MkdirIn>().unwrap();
            assert_eq!((decoded.mode, decoded.umask, name(rest).unwrap()), (0o755, 0o22, &b"name"[..]));
        }
    }

    #[test]
    fn whatever_is_cut_short_is_an_error() {
        assert!(Request::contiguous(&[0; 39]).is_none());
        let mut bytes = header(op::MKDIR).as_bytes().to_vec();
        bytes.extend_from_slice(&[0; 7]);
        let request = Request::contiguous(&bytes).unwrap();
        assert_eq!(request.arg::<MkdirIn>().unwrap_err(), Errno::IO);
        assert_eq!(name(b"no end").unwrap_err(), Errno::IO);
        assert_eq!(split_name(b"a\0bc").unwrap(), (&b"a"[..], &b"bc"[..]));
        assert_eq!(to_ino(1 << 40, 3).unwrap_err(), Errno::STALE);
        assert_eq!((to_ino(1, 3).unwrap(), to_nodeid(3, 3), to_nodeid(4, 3)), (3, 1, 4));
    }

    #[test]
    fn a_reply_does_not_outgrow_its_buffer() {
        let mut buffer = [0; 10];
        let mut reply = Reply::new(&mut buffer);
        reply.push(&1u64).unwrap();
        assert_eq!(reply.push(&1u64).unwrap_err(), Errno::IO);
        reply.bytes(b"xy").unwrap();
        assert_eq!(reply.len(), 10);
    }
}
