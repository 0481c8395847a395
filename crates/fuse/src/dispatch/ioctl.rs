//! ioctls: chattr flags, project ids, trimming, F2FS's atomic writes, and our own (see [`crate::control`]).

use super::context::{ACCESS_MODE, Context, Done};
use super::statistics::{Asked, Statistics};
use crate::abi::{FsXattr, IOCTL_DIR, IoctlIn, IoctlOut, TrimRange};
use crate::control;
use crate::credentials::{Capability, Credentials};
use crate::request::{Errno, Reply, Request};
use crate::worker_pool::WorkerPool;
use medfs::ars::FileStats;
use medfs::{Attr, FileFlags, FileKind, Ino};
use rustix::ioctl::{Opcode, opcode};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Numbers as the kernel's headers define them; flags are a `long` there, so a 32-bit caller's numbers differ.
mod number {
    use super::{FsXattr, Opcode, TrimRange, opcode};
    pub(super) const GET_FLAGS: Opcode = opcode::read::<u64>(b'f', 1);
    pub(super) const SET_FLAGS: Opcode = opcode::write::<u64>(b'f', 2);
    pub(super) const GET_FLAGS_32: Opcode = opcode::read::<u32>(b'f', 1);
    pub(super) const SET_FLAGS_32: Opcode = opcode::write::<u32>(b'f', 2);
    pub(super) const GET_VERSION: Opcode = opcode::read::<u64>(b'v', 1);
    pub(super) const GET_VERSION_32: Opcode = opcode::read::<u32>(b'v', 1);
    pub(super) const FS_GET_XATTR: Opcode = opcode::read::<FsXattr>(b'X', 31);
    pub(super) const FS_SET_XATTR: Opcode = opcode::write::<FsXattr>(b'X', 32);
    pub(super) const TRIM: Opcode = opcode::read_write::<TrimRange>(b'X', 121);
    pub(super) const ATOMIC_START: Opcode = opcode::none(0xf5, 1);
    pub(super) const ATOMIC_COMMIT: Opcode = opcode::none(0xf5, 2);
    pub(super) const ATOMIC_ABORT: Opcode = opcode::none(0xf5, 5);
    pub(super) const WRITE_CHECKPOINT: Opcode = opcode::none(0xf5, 7);
    pub(super) const DEFRAGMENT: Opcode = opcode::read_write::<[u64; 2]>(0xf5, 8);
    pub(super) const GET_FEATURES: Opcode = opcode::read::<u32>(0xf5, 12);
    pub(super) const SET_PIN_FILE: Opcode = opcode::write::<u32>(0xf5, 13);
    pub(super) const GET_PIN_FILE: Opcode = opcode::read::<u32>(0xf5, 14);
    pub(super) const GET_SAVED_BLOCKS: Opcode = opcode::read::<u64>(0xf5, 17);
    pub(super) const RELEASE_SAVED_BLOCKS: Opcode = opcode::read::<u64>(0xf5, 18);
    pub(super) const RESERVE_SAVED_BLOCKS: Opcode = opcode::read::<u64>(0xf5, 19);
    pub(super) const GET_COMPRESS_OPTION: Opcode = opcode::read::<[u8; 2]>(0xf5, 21);
    pub(super) const SET_COMPRESS_OPTION: Opcode = opcode::write::<[u8; 2]>(0xf5, 22);
    pub(super) const DECOMPRESS_FILE: Opcode = opcode::none(0xf5, 23);
    pub(super) const COMPRESS_FILE: Opcode = opcode::none(0xf5, 24);
}

/// F2FS's feature bit by which SQLite knows that atomic writes work.
const FEATURE_ATOMIC_WRITE: u32 = 0x4;

/// The chattr flag (`C`) that F2FS shows of a pinned file; what sets or clears it is passed by.
const PINNED: u32 = 0x0080_0000;

/// chattr flags as FS_IOC_FSGETXATTR numbers them.
const XFLAGS: &[(FileFlags, u32)] = &[
    (FileFlags::IMMUTABLE, 0x8),
    (FileFlags::APPEND, 0x10),
    (FileFlags::SYNC, 0x20),
    (FileFlags::NOATIME, 0x40),
    (FileFlags::NODUMP, 0x80),
    (FileFlags::PROJINHERIT, 0x200),
];

fn to_xflags(flags: FileFlags) -> u32 {
    XFLAGS.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, bit)| bit).sum()
}

/// `old` with those flags replaced that FS_IOC_FSSETXATTR can name.
fn with_xflags(old: FileFlags, xflags: u32) -> FileFlags {
    XFLAGS.iter().fold(old, |mut flags, (flag, bit)| {
        flags.set(*flag, xflags & bit != 0);
        flags
    })
}

/// An ioctl: its subject, its input and where its output goes.
struct Call<'a, 'b> {
    ino: Ino,
    nodeid: u64,
    caller: Credentials,
    arg: IoctlIn,
    input: &'a [u8],
    reply: &'a mut Reply<'b>,
}

impl Call<'_, '_> {
    fn input<T: FromBytes + KnownLayout + Immutable>(&self) -> Result<T, Errno> {
        T::read_from_prefix(self.input).map(|(value, _)| value).map_err(|_| Errno::INVAL)
    }

    /// Ends the call with output, cut to what the caller has room for.
    fn output(&mut self, bytes: &[u8]) -> Done {
        self.reply.push(&IoctlOut::default())?;
        self.reply.bytes(bytes.get(..self.arg.out_size as usize).unwrap_or(bytes))
    }

    /// A number whose width the caller's ioctl number leaves open.
    fn input_word(&self) -> Result<u32, Errno> {
        self.input::<u32>()
    }

    /// Four bytes, also where the call's number says `long`: so do the file systems of Linux, and programs
    /// hand over an `int`.
    fn output_word(&mut self, word: u32) -> Done {
        self.output(word.as_bytes())
    }

    fn done(&mut self) -> Done {
        self.output(&[])
    }

    /// `EBADF` where the descriptor is not open for writing.
    fn require_writable(&self) -> Done {
        match (self.arg.fh & ACCESS_MODE) as i32 {
            libc::O_WRONLY | libc::O_RDWR => Ok(()),
            _ => Err(Errno::BADF),
        }
    }
}

/// The ioctls of files and of the mount.
pub(super) struct Ioctls<'c> {
    pub(super) context: &'c Context,
    pub(super) statistics: &'c Statistics,
}

impl Ioctls<'_> {
    pub(super) fn call(&self, pool: &WorkerPool, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let (arg, rest) = request.arg_and_rest::<IoctlIn>()?;
        let input = rest.get(..arg.in_size as usize).ok_or(Errno::IO)?;
        let mut call = Call {
            ino: self.context.subject(request)?,
            nodeid: request.nodeid(),
            caller: Credentials::of(&request.header),
            arg,
            input,
            reply,
        };
        match Opcode::from(arg.cmd) {
            number::GET_FLAGS | number::GET_FLAGS_32 => {
                let flags = self.flags(call.ino)?;
                call.output_word(flags)
            }
            number::SET_FLAGS | number::SET_FLAGS_32 => {
                let flags = FileFlags::from_bits_retain(call.input_word()? & !PINNED);
                self.set_flags(pool, &call, flags)?;
                call.done()
            }
            number::GET_VERSION | number::GET_VERSION_32 => {
                call.output_word(self.context.files.getattr(call.ino)?.generation)
            }
            number::FS_GET_XATTR => {
                let Attr { flags, project: projid, .. } = self.context.files.getattr(call.ino)?;
                let out = FsXattr { xflags: to_xflags(flags), projid, ..FsXattr::default() };
                call.output(out.as_bytes())
            }
            number::FS_SET_XATTR => {
                self.set_fs_xattr(pool, &call)?;
                call.done()
            }
            number::TRIM => {
                call.caller.require(Capability::SysAdmin)?;
                let mut range: TrimRange = call.input()?;
                range.len = self.context.volume()?.trim(range.start, range.len, range.minlen)?;
                call.output(range.as_bytes())
            }
            number::WRITE_CHECKPOINT => {
                call.caller.require(Capability::SysAdmin)?;
                self.context.volume()?.checkpoint()?;
                call.done()
            }
            number::GET_FEATURES => {
                let features = self.context.volume()?.superblock().feature.get();
                call.output_word(features | FEATURE_ATOMIC_WRITE)
            }
            number::DEFRAGMENT => self.defragment(pool, &mut call),
            number::GET_PIN_FILE | number::SET_PIN_FILE => self.pin(pool, &mut call),
            number::ATOMIC_START | number::ATOMIC_COMMIT | number::ATOMIC_ABORT => {
                self.write_atomically(pool, &call, request.header.pid)?;
                call.done()
            }
            number::GET_SAVED_BLOCKS => {
                let saved = self.context.volume()?.saved_blocks(call.ino)?;
                call.output(saved.as_bytes())
            }
            number::GET_COMPRESS_OPTION => {
                let (algorithm, log_cluster_size) = self.context.volume()?.compress_option(call.ino)?;
                call.output(&[algorithm, log_cluster_size])
            }
            number::RELEASE_SAVED_BLOCKS
            | number::RESERVE_SAVED_BLOCKS
            | number::SET_COMPRESS_OPTION
            | number::DECOMPRESS_FILE
            | number::COMPRESS_FILE => self.change_compression(pool, &mut call),
            number => self.control(pool, &mut call, number),
        }
    }

    /// The chattr flags of a file.
    fn flags(&self, ino: Ino) -> Result<u32, Errno> {
        let flags = self.context.files.getattr(ino)?.flags.bits();
        let pinned = self.context.files.volume().is_some_and(|v| v.is_pinned(ino).unwrap_or(false));
        Ok(flags | if pinned { PINNED } else { 0 })
    }

    fn pin(&self, pool: &WorkerPool, call: &mut Call<'_, '_>) -> Done {
        if Opcode::from(call.arg.cmd) == number::SET_PIN_FILE {
            self.set_pinned(pool, call)?;
            return call.done();
        }
        // The kernel answers how often cleaning failed to leave the file alone: ours always does.
        self.context.volume()?.is_pinned(call.ino)?;
        call.output_word(0)
    }

    /// Pins a file, or lets it go: its owner may, as `f2fs_io` opens it to read, and who has it open for
    /// writing. What the kernel's cache holds is written before, as a file with blocks is not pinned.
    fn set_pinned(&self, pool: &WorkerPool, call: &Call<'_, '_>) -> Done {
        if !call.caller.owns(self.context.files.getattr(call.ino)?.uid) {
            call.require_writable()?;
        }
        let (pin, nodeid) = (call.input::<u32>()? != 0, call.nodeid);
        if self.context.writeback {
            pool.with_spare_worker(nodeid, || self.context.notifier.flush_pages(nodeid, 0))??;
        }
        self.context.volume()?.set_pinned(call.ino, pin)?;
        self.context.notifier.inval_attr(nodeid)
    }

    /// Brings a file's pages together. The kernel's cache is written before.
    fn defragment(&self, pool: &WorkerPool, call: &mut Call<'_, '_>) -> Done {
        call.caller.require(Capability::SysAdmin)?;
        let ([start, len], nodeid): ([u64; 2], u64) = (call.input()?, call.nodeid);
        if self.context.writeback {
            pool.with_spare_worker(nodeid, || self.context.notifier.flush_pages(nodeid, 0))??;
        }
        let written = self.context.volume()?.defragment(call.ino, start, len)?;
        call.output([start, written].as_bytes())
    }

    /// Begins or ends an atomic write of a process.
    fn write_atomically(&self, pool: &WorkerPool, call: &Call<'_, '_>, pid: u32) -> Done {
        self.check_atomic(call)?;
        let atomic = &self.context.atomic;
        match Opcode::from(call.arg.cmd) {
            number::ATOMIC_START => atomic.start(pool, call.ino, call.nodeid, pid),
            number::ATOMIC_COMMIT => atomic.commit(pool, call.ino, call.nodeid),
            _ => atomic.abort(pool, call.ino, call.nodeid),
        }
    }

    /// What F2FS asks of who writes atomically.
    fn check_atomic(&self, call: &Call<'_, '_>) -> Done {
        call.require_writable()?;
        let attr = self.context.files.getattr(call.ino)?;
        if !call.caller.owns(attr.uid) {
            return Err(Errno::ACCES);
        }
        if attr.kind == FileKind::Regular { Ok(()) } else { Err(Errno::INVAL) }
    }

    /// Who may change how a file is compressed: who has it open for writing. Giving up or taking back what
    /// compression saves F2FS grants to any descriptor; here it is the owner's, as it decides whether the
    /// file can be written at all.
    fn check_compression(&self, call: &Call<'_, '_>) -> Done {
        let attr = self.context.files.getattr(call.ino)?;
        if attr.kind != FileKind::Regular {
            return Err(Errno::INVAL);
        }
        match Opcode::from(call.arg.cmd) {
            number::RELEASE_SAVED_BLOCKS | number::RESERVE_SAVED_BLOCKS if call.caller.owns(attr.uid) => {
                Ok(())
            }
            number::RELEASE_SAVED_BLOCKS | number::RESERVE_SAVED_BLOCKS => Err(Errno::PERM),
            _ => call.require_writable(),
        }
    }

    /// The calls about compression that change a file. Its pages in the kernel's cache were written before.
    fn change_compression(&self, pool: &WorkerPool, call: &mut Call<'_, '_>) -> Done {
        self.check_compression(call)?;
        let nodeid = call.nodeid;
        if self.context.writeback {
            pool.with_spare_worker(nodeid, || self.context.notifier.flush_pages(nodeid, 0))??;
        }
        let ino = call.ino;
        let blocks = match Opcode::from(call.arg.cmd) {
            number::RELEASE_SAVED_BLOCKS => Some(self.context.volume()?.release_saved_blocks(ino)?),
            number::RESERVE_SAVED_BLOCKS => Some(self.context.volume()?.reserve_saved_blocks(ino)?),
            number::SET_COMPRESS_OPTION => {
                let [algorithm, log_cluster_size] = call.input()?;
                self.context.volume()?.set_compress_option(ino, algorithm, log_cluster_size)?;
                None
            }
            number => {
                self.context.volume()?.rewrite_compressed(ino, number == number::COMPRESS_FILE)?;
                None
            }
        };
        self.context.notifier.inval_attr(nodeid)?;
        match blocks {
            Some(blocks) => call.output(blocks.as_bytes()),
            None => call.done(),
        }
    }

    fn set_fs_xattr(&self, pool: &WorkerPool, call: &Call<'_, '_>) -> Done {
        let new: FsXattr = call.input()?;
        let attr = self.context.files.getattr(call.ino)?;
        let flags = with_xflags(attr.flags, new.xflags);
        Self::check_flags(call, &attr, flags)?;
        let known: u32 = XFLAGS.iter().map(|(_, bit)| bit).sum();
        if new.extsize != 0 || new.cowextsize != 0 || new.xflags & !known != 0 {
            return Err(Errno::OPNOTSUPP);
        }
        if new.projid != attr.project {
            // As in the kernel: a project is given out by those who share the volume's user namespace.
            if !call.caller.is_in_our_namespace() {
                return Err(Errno::INVAL);
            }
            self.context.volume()?.set_project(call.ino, new.projid)?;
            self.context.notifier.inval_attr(call.nodeid)?;
        }
        if flags != attr.flags {
            self.set_flags(pool, call, flags)?;
        }
        Ok(())
    }

    /// Whether the caller may set a file's chattr flags: the owner may, and with CAP_LINUX_IMMUTABLE those
    /// that bind root too. The kernel judges the calls it knows by number; others, and all those of older
    /// kernels, come unjudged.
    fn check_flags(call: &Call<'_, '_>, attr: &Attr, new: FileFlags) -> Done {
        if !call.caller.owns(attr.uid) {
            return Err(Errno::PERM);
        }
        if (attr.flags ^ new).intersects(FileFlags::IMMUTABLE | FileFlags::APPEND) {
            call.caller.require(Capability::LinuxImmutable)?;
        }
        Ok(())
    }

    /// Sets chattr flags. What the page cache holds was written while the old ones were in force.
    fn set_flags(&self, pool: &WorkerPool, call: &Call<'_, '_>, flags: FileFlags) -> Done {
        let (ino, nodeid) = (call.ino, call.nodeid);
        let guarded = FileFlags::IMMUTABLE | FileFlags::SYNC;
        let attr = self.context.files.getattr(ino)?;
        Self::check_flags(call, &attr, flags)?;
        let compression = (flags ^ attr.flags).contains(FileFlags::COMPR);
        if self.context.writeback
            && attr.kind == FileKind::Regular
            && (compression || flags.intersects(guarded))
        {
            pool.with_spare_worker(nodeid, || self.context.notifier.flush_pages(nodeid, 0))??;
        }
        self.context.files.set_flags(ino, flags)?;
        // The kernel does not know that the ioctl has changed ctime.
        self.context.notifier.inval_attr(nodeid)
    }

    /// Who mounted the volume may decide about it, the owner of its root directory, and root.
    fn check_who_mounted(&self, caller: &Credentials) -> Done {
        let files = &self.context.files;
        let who_mounted = rustix::process::geteuid().as_raw();
        if caller.owns(files.getattr(files.root())?.uid) || caller.owns(who_mounted) {
            return Ok(());
        }
        Err(Errno::PERM)
    }

    /// Ours: about a file asked of itself, about the volume of any directory.
    fn control(&self, pool: &WorkerPool, call: &mut Call<'_, '_>, number: Opcode) -> Done {
        let asked = Asked { what: number, ino: call.ino, uid: call.caller.uid };
        match number {
            control::IDENTIFY => call.output(control::MAGIC.as_bytes()),
            control::FILE_STATS => {
                let (volume, ino) = (self.context.volume()?, call.ino);
                let page = self.statistics.page(asked, call.input()?, || {
                    serde_json::to_vec(&FileStats::of(volume, ino)?).map_err(|_| Errno::IO)
                })?;
                call.output(page.as_bytes())
            }
            control::SYNC_APP => {
                let written = self.context.write_back(pool);
                self.context.volume()?.sync_app(call.ino)?;
                written?;
                call.done()
            }
            _ if call.arg.flags & IOCTL_DIR == 0 => Err(Errno::NOTTY),
            control::SYNC => {
                // What could not be written back keeps nothing else from being durable.
                let written = self.context.write_back(pool);
                self.context.files.sync()?;
                written?;
                call.done()
            }
            control::POWER_LOW | control::POWER_OK => {
                self.check_who_mounted(&call.caller)?;
                let low = number == control::POWER_LOW;
                let written = if low { self.context.write_back(pool) } else { Ok(()) };
                self.context.volume()?.set_low_power(low)?;
                written?;
                call.done()
            }
            control::USER => {
                self.check_who_mounted(&call.caller)?;
                if !self.context.volume()?.note_user() {
                    return Err(Errno::OPNOTSUPP);
                }
                call.done()
            }
            control::RETRAIN => {
                self.check_who_mounted(&call.caller)?;
                let volume = self.context.volume()?;
                let page = self.statistics.page(asked, call.input()?, || {
                    serde_json::to_vec(&volume.retrain()?).map_err(|_| Errno::IO)
                })?;
                call.output(page.as_bytes())
            }
            control::STATS => {
                let volume = self.context.volume()?;
                let page =
                    self.statistics.page(asked, call.input()?, || self.statistics.of_volume(volume))?;
                call.output(page.as_bytes())
            }
            _ => Err(Errno::NOTTY),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_kernels() {
        assert_eq!(number::GET_FLAGS, 0x8008_6601);
        assert_eq!(number::SET_FLAGS, 0x4008_6602);
        assert_eq!(number::FS_GET_XATTR, 0x801c_581f);
        assert_eq!(number::FS_SET_XATTR, 0x401c_5820);
        assert_eq!(number::TRIM, 0xc018_5879);
        assert_eq!(number::GET_FEATURES, 0x8004_f50c);
        assert_eq!(number::ATOMIC_START, 0xf501);
        assert_eq!(number::DEFRAGMENT, 0xc010_f508);
        assert_eq!((number::SET_PIN_FILE, number::GET_PIN_FILE), (0x4004_f50d, 0x8004_f50e));
        assert_eq!(number::RELEASE_SAVED_BLOCKS, 0x8008_f512);
        assert_eq!(number::SET_COMPRESS_OPTION, 0x4002_f516);
        assert_eq!(number::COMPRESS_FILE, 0xf518);
    }

    #[test]
    fn flags_of_both_numberings() {
        let flags = FileFlags::IMMUTABLE | FileFlags::NODUMP | FileFlags::INDEX;
        assert_eq!(to_xflags(flags), 0x88);
        assert_eq!(
            with_xflags(flags, 0x10),
            FileFlags::APPEND | FileFlags::INDEX,
            "what has no number there stays"
        );
    }
}
