//! Content of files.

use super::context::{BUFFERED_WRITER, CACHED_WRITER, Context, Done, PAST_CACHE, SYNCHRONOUS};
use crate::abi::{
    CopyFileRangeIn, CopyFileRangeOut, FSYNC_FDATASYNC, FallocateIn, FsyncIn, LseekIn, LseekOut, OpenIn,
    ReadIn, ReleaseIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut,
};
use crate::request::{Errno, Reply, Request};
use crate::worker_pool::WorkerPool;
use medfs::{FallocateMode, FileFlags, Ino, Seek};
use medfs_format::BLOCK_SIZE;

/// Bytes of one COPY_FILE_RANGE, whose reply counts in 32 bits.
const COPY_MAX: u64 = 1 << 31;

/// Operations on the content of files.
pub(super) struct Content<'c>(pub(super) &'c Context);

impl Content<'_> {
    pub(super) fn release(&self, request: &Request<'_>) -> Done {
        let arg: ReleaseIn = request.arg()?;
        if let Some(room) = &self.0.room
            && arg.fh & CACHED_WRITER != 0
        {
            room.leave();
        }
        if arg.fh & BUFFERED_WRITER != 0 {
            self.0.writers.leave(self.0.subject(request)?);
        }
        self.0.files.close(self.0.subject(request)?);
        Ok(())
    }

    fn saved_blocks_released(&self, ino: Ino) -> Result<bool, Errno> {
        self.0.files.volume().map_or(Ok(false), |volume| Ok(volume.saved_blocks_released(ino)?))
    }

    /// Opens a file: what the kernel does not know of are the flags that forbid it.
    pub(super) fn open(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let arg: OpenIn = request.arg()?;
        let flags = arg.flags as i32;
        let attr = self.0.files.open(self.0.subject(request)?, flags)?;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let appends = flags & libc::O_APPEND != 0;
        let fixed =
            attr.flags.contains(FileFlags::IMMUTABLE) || (attr.flags.contains(FileFlags::APPEND) && !appends);
        if writes && fixed {
            return Err(Errno::PERM);
        }
        // Where writing fails no cache may hide it.
        let fails =
            writes && attr.flags.contains(FileFlags::COMPR) && self.saved_blocks_released(attr.ino)?;
        reply.push(&self.0.opened(&attr, arg.flags, fails))
    }

    pub(super) fn read(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let arg: ReadIn = request.arg()?;
        let read =
            self.0.files.read(self.0.subject(request)?, arg.offset, reply.spare(arg.size as usize)?)?;
        reply.advance(read);
        Ok(())
    }

    pub(super) fn write(&self, pool: &WorkerPool, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let ino = self.0.subject(request)?;
        let (arg, rest) = request.arg_and_rest::<WriteIn>()?;
        let data = rest.get(..arg.size as usize).ok_or(Errno::IO)?;
        let cached = arg.write_flags & WRITE_CACHE != 0;
        // Of what comes from its cache the kernel saw to that as it was written.
        if !cached {
            self.0.remove_privileges_of_writing(request, ino, arg.write_flags & WRITE_KILL_SUIDGID != 0)?;
        }
        let written = if cached {
            self.0.written.lock().insert(request.nodeid());
            self.write_cached(request.nodeid(), ino, arg.offset, data).map(|()| data.len())
        } else {
            self.0.take_room(pool, request, arg.size.into())?;
            self.0.files.write(ino, arg.offset, data).map_err(Errno::from)
        };
        let written = written.inspect_err(|_| self.0.atomic.write_failed(ino))?;
        // Of a write with O_DIRECT that ended short the kernel would make EIO.
        if written < data.len() && arg.flags as i32 & libc::O_DIRECT != 0 {
            return Err(Errno::NOSPC);
        }
        if (self.0.direct || arg.fh & PAST_CACHE != 0) && arg.flags as i32 & libc::O_DSYNC != 0 {
            // For O_SYNC and O_DSYNC the kernel asks for an fsync only of what went through its cache.
            self.0.files.fsync_now(ino, arg.flags as i32 & libc::O_SYNC != libc::O_SYNC)?;
        }
        if arg.fh & PAST_CACHE != 0 && !cached {
            // Others may have read the pages into their cache since the kernel dropped them for this write. What comes
            // from the cache waits for this reply there: to drop it would never end.
            let drop_pages =
                || self.0.notifier.inval_range(request.nodeid(), arg.offset, written.max(1) as u64);
            pool.with_spare_worker(request.nodeid(), drop_pages)??;
        }
        reply.push(&WriteOut { size: written as u32, padding: 0 })
    }

    /// Writes what the page cache sends, and has the kernel hold less where room becomes short.
    fn write_cached(&self, nodeid: u64, ino: Ino, offset: u64, data: &[u8]) -> Done {
        let written = self.write_whole(ino, offset, data);
        if let Some(room) = &self.0.room {
            room.look();
            if written == Err(Errno::NOSPC) && room.refused(nodeid) {
                let _ = self.0.notifier.inval_attr(nodeid);
            }
        }
        written
    }

    /// Writes what the page cache sends, all of it or with an error: the kernel does not look at how much was
    /// taken, and lets go of its pages. Pages that have a block are written also where others found no room.
    fn write_whole(&self, ino: Ino, offset: u64, data: &[u8]) -> Done {
        let (mut done, mut refused) = (0, Ok(()));
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            let at = offset + done as u64;
            // Under writeback the kernel keeps the times of what it caches, and sends them by themselves.
            let written = if self.0.writeback {
                self.0.files.write_cached(ino, at, rest)
            } else {
                self.0.files.write(ino, at, rest)
            };
            done += match written {
                Ok(written) => written,
                Err(error) => {
                    let full = matches!(error, medfs::Error::NoSpace);
                    refused = Err(error.into());
                    if !full || at >= self.0.files.getattr(ino)?.size {
                        break;
                    }
                    BLOCK_SIZE - (at % BLOCK_SIZE as u64) as usize
                }
            };
        }
        refused
    }

    pub(super) fn fallocate(&self, pool: &WorkerPool, request: &Request<'_>) -> Done {
        let arg: FallocateIn = request.arg()?;
        let mode = FallocateMode::from_bits(arg.mode).ok_or(Errno::OPNOTSUPP)?;
        let ino = self.0.subject(request)?;
        self.0.remove_privileges(request, request.nodeid(), ino)?;
        if !mode.contains(FallocateMode::PUNCH_HOLE) {
            self.0.take_room(pool, request, arg.length)?;
        }
        Ok(self.0.files.fallocate(ino, mode, arg.offset, arg.length)?)
    }

    /// SEEK_DATA and SEEK_HOLE. The kernel asks without having written its pages back, which would make fresh
    /// data a hole.
    pub(super) fn lseek(&self, pool: &WorkerPool, request: &Request<'_>, reply: &mut Reply<'_>) -> Done {
        let arg: LseekIn = request.arg()?;
        let whence = match arg.whence as i32 {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::INVAL),
        };
        // A negative one included.
        let offset = i64::try_from(arg.offset).map_err(|_| Errno::NXIO)?;
        if self.0.writeback {
            pool.with_spare_worker(request.nodeid(), || {
                self.0.notifier.flush_pages(request.nodeid(), offset)
            })??;
        }
        let offset = self.0.files.seek(self.0.subject(request)?, arg.offset, whence)?;
        reply.push(&LseekOut { offset })
    }

    fn copied(&self, pool: &WorkerPool, request: &Request<'_>, len_max: u64) -> Result<u64, Errno> {
        let arg: CopyFileRangeIn = request.arg()?;
        let (from, to) = (self.0.subject(request)?, self.0.ino(arg.nodeid_out)?);
        self.0.remove_privileges(request, arg.nodeid_out, to)?;
        let len = arg.len.min(len_max);
        let content = self.0.files.getattr(from)?.size.saturating_sub(arg.off_in);
        self.0.take_room(pool, request, len.min(content))?;
        Ok(self.0.files.copy_range(from, arg.off_in, to, arg.off_out, len)?)
    }

    pub(super) fn copy_file_range(
        &self,
        pool: &WorkerPool,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Done {
        let copied = self.copied(pool, request, COPY_MAX)?;
        reply.push(&WriteOut { size: copied as u32, padding: 0 })
    }

    pub(super) fn copy_file_range_64(
        &self,
        pool: &WorkerPool,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Done {
        let bytes_copied = self.copied(pool, request, u64::MAX)?;
        reply.push(&CopyFileRangeOut { bytes_copied })
    }

    pub(super) fn fsync(&self, request: &Request<'_>) -> Done {
        let arg: FsyncIn = request.arg()?;
        let (ino, datasync) = (self.0.subject(request)?, arg.fsync_flags & FSYNC_FDATASYNC != 0);
        // The kernel asks for it behind each write of such a file.
        let synchronous = arg.fh & SYNCHRONOUS != 0;
        Ok(if synchronous {
            self.0.files.fsync_now(ino, datasync)
        } else {
            self.0.files.fsync(ino, datasync)
        }?)
    }

    pub(super) fn sync(&self) -> Done {
        Ok(self.0.files.sync()?)
    }
}
