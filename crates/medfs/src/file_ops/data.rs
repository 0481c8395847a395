//! Operations on the content of files: with room made before, and files out of the way that are made from others.
//!
//! What they do to a file is in [`crate::content`].
//! Locks: called with none held; copying takes one inode at a time.

use crate::content::file::WriteTimes;
use crate::error::{Error, Posix, Result};
use crate::file_ops::FileOps;
use crate::map::refs::Attempt;
use crate::types::FallocateMode;
use medfs_format::{Block, Ino};

/// Bytes copied between two files under one lock.
const COPY_CHUNK: usize = 1 << 20;

impl FileOps {
    /// Writes to a file; `times` tells who keeps mtime and ctime.
    pub(crate) fn write(&self, ino: Ino, offset: u64, data: &[u8], times: WriteTimes) -> Result<usize> {
        let inode = self.inode(ino)?;
        self.make_room_to_write()?;
        let written = self.write_file(&inode, offset, data, times)?;
        if written.dirtied {
            self.throttle(&inode)?;
        }
        Ok(written.bytes)
    }

    pub(crate) fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let inode = self.inode(ino)?;
        // What was freed since the last checkpoint makes room for the pages that move, and whole sections.
        let mut may_free =
            mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE) || inode.is_pinned();
        self.with_unshared(|| {
            self.make_room_to_write()?;
            match self.allocate(&inode, mode, offset, len) {
                Ok(None) => Ok(Attempt::Done(())),
                Ok(Some(pages)) => Ok(Attempt::Shared(ino, pages)),
                Err(Error::NoSpace) if std::mem::take(&mut may_free) => {
                    self.checkpoint_now()?;
                    Ok(Attempt::Again)
                }
                Err(e) => Err(e),
            }
        })?;
        self.throttle(&inode)
    }

    pub(crate) fn copy_range(
        &self,
        from: Ino,
        from_offset: u64,
        to: Ino,
        to_offset: u64,
        len: u64,
    ) -> Result<u64> {
        let source = self.inode(from)?;
        source.check_alive(&source.lock.read())?;
        let len = len.min(source.size().saturating_sub(from_offset));
        let overlap =
            from_offset < to_offset.saturating_add(len) && to_offset < from_offset.saturating_add(len);
        if from == to && len > 0 && overlap {
            return Err(Posix::InvalidArgument.into());
        }
        let mut buf = vec![0; len.min(COPY_CHUNK as u64) as usize];
        let mut done = 0;
        while done < len {
            let chunk = (len - done).min(COPY_CHUNK as u64) as usize;
            let read = self.read(from, from_offset + done, &mut buf[..chunk])?;
            if read == 0 {
                break;
            }
            let written = self.write(to, to_offset + done, &buf[..read], WriteTimes::Now)?;
            done += written as u64;
            if written < read {
                break;
            }
        }
        Ok(done)
    }

    pub(crate) fn atomic_start(&self, ino: Ino) -> Result<()> {
        let inode = self.inode(ino)?;
        self.make_room_to_write()?;
        if !self.atomic_write(&inode).get_ready()? {
            return Ok(());
        }
        // What was written before belongs to the file whatever becomes of the atomic write.
        self.write_back(&inode)?;
        self.atomic_write(&inode).begin()
    }

    pub(crate) fn atomic_abort(&self, ino: Ino) -> Result<()> {
        let inode = self.inode(ino)?;
        if inode.lock.read().pages.draft().is_none() {
            return Err(Posix::InvalidArgument.into());
        }
        self.atomic_write(&inode).drop_draft(&mut inode.lock.write());
        Ok(())
    }
}

const _: () = assert!(COPY_CHUNK.is_multiple_of(size_of::<Block>()));
