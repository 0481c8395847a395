//! Content of files.

use super::{Done, FileSystem};
use crate::abi::{
    CopyFileRangeIn, CopyFileRangeOut, FOPEN_DIRECT_IO, FOPEN_KEEP_CACHE, FSYNC_FDATASYNC, FallocateIn,
    FsyncIn, LseekIn, LseekOut, OpenIn, OpenOut, ReadIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut,
};
use crate::crew::Crew;
use crate::request::{Errno, Reply, Request};
use medfs::{Attr, FallocateMode, FileFlags, Ino, Seek};

/// Bytes of one COPY_FILE_RANGE, whose reply counts in 32 bits.
const COPY_MAX: u64 = 1 << 31;

impl FileSystem {
    /// How a file is opened. One that is written synchronously is not kept in the page cache, which would take the writes.
    pub(super) fn opened(&self, attr: &Attr) -> OpenOut {
        let direct = self.direct || attr.flags.contains(FileFlags::SYNC);
        OpenOut { open_flags: if direct { FOPEN_DIRECT_IO } else { FOPEN_KEEP_CACHE }, ..OpenOut::default() }
    }

    fn saved_blocks_released(&self, ino: Ino) -> Result<bool, Errno> {
        self.files.volume().map_or(Ok(false), |volume| Ok(volume.saved_blocks_released(ino)?))
    }

    /// Opens a file: what the kernel does not know of are the flags that forbid it.
    pub(super) fn open(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let arg: OpenIn = request.arg()?;
        let flags = arg.flags as i32;
        let attr = self.files.open(self.subject(request)?, flags)?;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let appends = flags & libc::O_APPEND != 0;
        let fixed =
            attr.flags.contains(FileFlags::IMMUTABLE) || (attr.flags.contains(FileFlags::APPEND) && !appends);
        if writes && fixed {
            return Err(Errno::PERM);
        }
        let mut out = self.opened(&attr);
        if writes && attr.flags.contains(FileFlags::COMPR) && self.saved_blocks_released(attr.ino)? {
            // Writing fails, which no cache may hide.
            out.open_flags = FOPEN_DIRECT_IO;
        }
        reply.push(&out)
    }

    pub(super) fn read(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let arg: ReadIn = request.arg()?;
        let read = self.files.read(self.subject(request)?, arg.offset, reply.spare(arg.size as usize)?)?;
        reply.advance(read);
        Ok(())
    }

    pub(super) fn write(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let ino = self.subject(request)?;
        let (arg, rest) = request.arg_and_rest::<WriteIn>()?;
        let data = rest.get(..arg.size as usize).ok_or(Errno::IO)?;
        if arg.write_flags & WRITE_KILL_SUIDGID != 0 {
            self.kill_privileges(ino)?;
        }
        let cached = arg.write_flags & WRITE_CACHE != 0;
        // Under writeback the kernel keeps the times of what it caches, and sends them by themselves.
        let written = if cached && self.writeback {
            self.files.write_cached(ino, arg.offset, data)
        } else {
            self.files.write(ino, arg.offset, data)
        };
        let written = written.inspect_err(|_| self.atomic.write_failed(ino))?;
        if cached {
            self.written.lock().insert(request.nodeid());
        }
        reply.push(&WriteOut { size: written as u32, padding: 0 })
    }

    pub(super) fn fallocate(&self, request: &Request<'_>) -> Done {
        let arg: FallocateIn = request.arg()?;
        let mode = FallocateMode::from_bits(arg.mode).ok_or(Errno::OPNOTSUPP)?;
        let ino = self.subject(request)?;
        Ok(self.files.fallocate(ino, mode, arg.offset, arg.length)?)
    }

    /// SEEK_DATA and SEEK_HOLE. The kernel asks without having written its pages back, which would make fresh data a hole.
    pub(super) fn lseek(&self, crew: &Crew, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let arg: LseekIn = request.arg()?;
        let whence = match arg.whence as i32 {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        if self.writeback {
            let offset = i64::try_from(arg.offset).map_err(|_| Errno::INVAL)?;
            crew.nested(request.nodeid(), || self.notifier.flush_pages(request.nodeid(), offset))??;
        }
        let offset = self.files.seek(self.subject(request)?, arg.offset, whence)?;
        reply.push(&LseekOut { offset })
    }

    fn copied(&self, request: &Request<'_>, len_max: u64) -> Result<u64, Errno> {
        let arg: CopyFileRangeIn = request.arg()?;
        let (from, to) = (self.subject(request)?, self.ino(arg.nodeid_out)?);
        Ok(self.files.copy_range(from, arg.off_in, to, arg.off_out, arg.len.min(len_max))?)
    }

    pub(super) fn copy_file_range(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let copied = self.copied(request, COPY_MAX)?;
        reply.push(&WriteOut { size: copied as u32, padding: 0 })
    }

    pub(super) fn copy_file_range_64(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let bytes_copied = self.copied(request, u64::MAX)?;
        reply.push(&CopyFileRangeOut { bytes_copied })
    }

    pub(super) fn fsync(&self, request: &Request<'_>) -> Done {
        let arg: FsyncIn = request.arg()?;
        Ok(self.files.fsync(self.subject(request)?, arg.fsync_flags & FSYNC_FDATASYNC != 0)?)
    }

    pub(super) fn sync(&self) -> Done {
        Ok(self.files.sync()?)
    }
}
