//! Attributes of inodes and of the volume.

use super::context::{ACCESS_MODE, Context, Done};
use crate::abi::{GETATTR_FH, GetattrIn, SetattrIn, SetattrValid, StatfsOut, StatxData, StatxOut, StatxTime};
use crate::credentials::Credentials;
use crate::request::{Errno, Reply, Request};
use medfs::{Attr, FileFlags, FileKind, SetAttr, Timestamp};

/// What STATX always tells, and the time of creation.
const STATX_BASIC_STATS: u32 = 0x7ff;
const STATX_BTIME: u32 = 0x800;
/// chattr flags that statx shows have their own values there.
const STATX_FLAGS: &[(FileFlags, u64)] = &[
    (FileFlags::COMPR, 0x4),
    (FileFlags::IMMUTABLE, 0x10),
    (FileFlags::APPEND, 0x20),
    (FileFlags::NODUMP, 0x40),
];

/// Operations on attributes.
pub(super) struct Attributes<'c>(pub(super) &'c Context);

impl Attributes<'_> {
    pub(super) fn getattr(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        if let Some(room) = &self.0.room {
            let arg: GetattrIn = request.arg()?;
            let writes = arg.getattr_flags & GETATTR_FH != 0 && arg.fh & ACCESS_MODE == libc::O_WRONLY as u64;
            // The kernel asks before it takes a write; one that only writes asks for nothing else.
            if writes && room.refuses(request.nodeid()) {
                return Err(Errno::NOSPC);
            }
        }
        let attr = self.0.files.getattr(self.0.subject(request)?)?;
        self.0.push_attr(reply, &attr)
    }

    pub(super) fn statx(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let attr = self.0.files.getattr(self.0.subject(request)?)?;
        reply.push(&StatxOut { attr_valid: self.0.valid, stat: statx_data(&attr), ..StatxOut::default() })
    }

    pub(super) fn setattr(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let ino = self.0.subject(request)?;
        let arg: SetattrIn = request.arg()?;
        let valid = SetattrValid::from_bits_retain(arg.valid);
        let time = |bit, secs, nanos| valid.contains(bit).then_some(Timestamp { secs, nanos });
        let mut set = SetAttr {
            perm: valid.contains(SetattrValid::MODE).then_some((arg.mode & 0o7777) as u16),
            uid: valid.contains(SetattrValid::UID).then_some(arg.uid),
            gid: valid.contains(SetattrValid::GID).then_some(arg.gid),
            size: valid.contains(SetattrValid::SIZE).then_some(arg.size),
            atime: time(SetattrValid::ATIME, arg.atime, arg.atimensec),
            mtime: time(SetattrValid::MTIME, arg.mtime, arg.mtimensec),
            ctime: time(SetattrValid::CTIME, arg.ctime, arg.ctimensec),
        };
        if set.atime.is_some() {
            self.check_times_may_be_set(ino, valid)?;
        }
        let chown = set.uid.is_some() || set.gid.is_some();
        let kill = chown || valid.contains(SetattrValid::KILL_SUIDGID);
        if kill && set.perm.is_none() {
            let caller = Credentials::of(&request.header);
            set.perm = Context::unprivileged(&self.0.files.getattr(ino)?, &caller);
        }
        let attr = self.0.files.setattr(ino, &set)?;
        if (chown || set.size.is_some()) && attr.kind == FileKind::Regular {
            self.0.remove_capability(ino)?;
        }
        self.0.push_attr(reply, &attr)
    }

    /// Whether a user may set a file's times. (Where only mtime is set, it may be the page cache's own for an
    /// earlier write.)
    fn check_times_may_be_set(&self, ino: medfs::Ino, valid: SetattrValid) -> Done {
        let flags = self.0.files.getattr(ino)?.flags;
        let fixed = flags.contains(FileFlags::IMMUTABLE)
            || (flags.contains(FileFlags::APPEND) && !valid.contains(SetattrValid::ATIME_NOW));
        if fixed { Err(Errno::PERM) } else { Ok(()) }
    }

    pub(super) fn statfs(&self, reply: &mut Reply<'_>) -> Done {
        let stat = self.0.files.statfs()?;
        let block_size = medfs_format::BLOCK_SIZE as u32;
        reply.push(&StatfsOut {
            blocks: stat.blocks,
            bfree: stat.free,
            bavail: stat.available,
            files: stat.files,
            ffree: stat.files_free,
            bsize: block_size,
            frsize: block_size,
            namelen: 255,
            ..StatfsOut::default()
        })
    }
}

fn statx_data(attr: &Attr) -> StatxData {
    let time = |time: Timestamp| StatxTime { tv_sec: time.secs, tv_nsec: time.nanos, reserved: 0 };
    let rdev = attr.rdev;
    StatxData {
        mask: STATX_BASIC_STATS | if attr.crtime.is_some() { STATX_BTIME } else { 0 },
        blksize: medfs_format::BLOCK_SIZE as u32,
        attributes: STATX_FLAGS
            .iter()
            .filter(|(flag, _)| attr.flags.contains(*flag))
            .map(|(_, bit)| bit)
            .sum(),
        attributes_mask: STATX_FLAGS.iter().map(|(_, bit)| bit).sum(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        mode: attr.kind.mode_bits() | attr.perm,
        ino: u64::from(attr.ino),
        size: attr.size,
        blocks: attr.blocks,
        atime: time(attr.atime),
        btime: time(attr.crtime.unwrap_or_default()),
        ctime: time(attr.ctime),
        mtime: time(attr.mtime),
        rdev_major: rustix::fs::major(rdev),
        rdev_minor: rustix::fs::minor(rdev),
        ..StatxData::default()
    }
}
