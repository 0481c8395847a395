//! Image files and raw block devices.
//!
//! I/O is direct (O_DIRECT) where the file system below allows it, so that a page is not cached twice and
//! an acknowledged write has left the process's memory; buffered otherwise, which [`FileDevice::direct`] says.
//! A flush is `fdatasync`, forced unit access is `RWF_DSYNC` where the kernel offers it and write + `fdatasync`
//! elsewhere. Discard is `fallocate(PUNCH_HOLE)`, on block devices BLKDISCARD: a device that has no way to do it
//! ignores it from then on, which [`FileDevice::discards`] says.
//!
//! Invariants: it is claimed ([`crate::claim`]) before its first byte is read, until it is dropped.
//! No locks of ours: calls go to the kernel side by side.

use crate::{BlockDevice, Claim, Share, WriteTag, check_range, refuse_read_only};
use medfs_format::{BLOCK_ALIGN, BLOCK_SIZE, Block};
use rustix::fs::{FallocateFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Most buffers in one system call (the kernel's IOV_MAX).
const MAX_BUFFERS: usize = 1024;

/// Reads until the buffer is full or the file ends; returns how many bytes.
pub fn read_full(file: &File, buf: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Options for opening a [`FileDevice`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileOptions {
    /// Whether it is written.
    pub access: Access,
    /// Try direct I/O first.
    pub direct: bool,
    /// Claim it, see [`crate::claim`]. Without it an image that is in use can be looked at, at one's own risk.
    pub exclusive: bool,
    /// Time to wait for a user that is about to let go of it.
    pub patience: Duration,
}

/// Whether a device is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Fail where it cannot be written.
    ReadWrite,
    /// Never write.
    ReadOnly,
    /// Read and write, or only read where permissions or the medium do not allow more.
    Fallback,
}

impl Default for FileOptions {
    fn default() -> Self {
        FileOptions { access: Access::ReadWrite, direct: true, exclusive: true, patience: Duration::ZERO }
    }
}

impl FileOptions {
    /// Defaults, without writing.
    pub fn read_only() -> FileOptions {
        FileOptions { access: Access::ReadOnly, ..FileOptions::default() }
    }
}

/// An image file or a block device. See the module for its properties.
#[derive(Debug)]
pub struct FileDevice {
    fd: OwnedFd,
    claim: Claim,
    path: PathBuf,
    blocks: u64,
    read_only: bool,
    direct: bool,
    block_device: bool,
    /// `RWF_DSYNC` is known to be refused.
    no_dsync: AtomicBool,
    /// Discarding is known to be refused.
    no_discard: AtomicBool,
}

fn explain(path: &Path, e: Errno) -> io::Error {
    let e = io::Error::from(e);
    io::Error::new(e.kind(), format!("{}: {e}", path.display()))
}

/// Whether a block device is set read-only: opening it for writing succeeds all the same, and only writing fails.
fn write_protected(rdev: u64) -> bool {
    let (major, minor) = (rustix::fs::major(rdev), rustix::fs::minor(rdev));
    std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/ro")).is_ok_and(|text| text.trim() == "1")
}

impl FileDevice {
    /// Opens an existing image or block device. A part of a block at the end is left unused.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> io::Result<FileDevice> {
        let path = path.as_ref();
        match options.access {
            Access::ReadOnly => Self::open_as(path, options, true),
            Access::ReadWrite => Self::open_as(path, options, false),
            Access::Fallback => match Self::open_as(path, options, false) {
                Err(e)
                    if matches!(
                        e.kind(),
                        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
                    ) =>
                {
                    Self::open_as(path, options, true)
                }
                other => other,
            },
        }
    }

    /// Makes a sparse image file of `bytes` bytes, which must not exist, and opens it.
    pub fn create(path: impl AsRef<Path>, bytes: u64, options: FileOptions) -> io::Result<FileDevice> {
        let path = path.as_ref();
        let file = File::create_new(path)
            .map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        file.set_len(bytes).map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))?;
        drop(file);
        Self::open(path, options)
    }

    fn open_as(path: &Path, options: FileOptions, read_only: bool) -> io::Result<FileDevice> {
        let stat = rustix::fs::stat(path).map_err(|e| explain(path, e))?;
        let block_device = match FileType::from_raw_mode(stat.st_mode) {
            FileType::BlockDevice => true,
            FileType::RegularFile => false,
            FileType::Directory => {
                let message =
                    format!("{} is a directory, not an image file or a block device", path.display());
                return Err(io::Error::new(io::ErrorKind::IsADirectory, message));
            }
            _ => {
                let message = format!("{} is neither an image file nor a block device", path.display());
                return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
            }
        };
        if block_device && !read_only && write_protected(stat.st_rdev) {
            return Err(explain(path, Errno::ROFS));
        }
        let flags = OFlags::CLOEXEC | if read_only { OFlags::RDONLY } else { OFlags::RDWR };
        let open = |flags| match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::TXTBSY) => {
                let message = format!("{} is in use as swap space or as a running program", path.display());
                Err(io::Error::new(io::ErrorKind::ResourceBusy, message))
            }
            other => other.map_err(|e| explain(path, e)),
        };
        let mut direct = options.direct;
        let mut fd = match open(if direct { flags | OFlags::DIRECT } else { flags }) {
            Err(e) if direct && e.kind() == io::ErrorKind::InvalidInput => {
                direct = false;
                open(flags)?
            }
            other => other?,
        };
        // What this reads is not looked at.
        if direct && !Self::direct_works(&fd) {
            direct = false;
            fd = open(flags)?;
        }
        let share = if read_only { Share::Readers } else { Share::Nobody };
        let claim = match options.exclusive {
            true => Claim::take(path, &fd, share, options.patience)?,
            false => Claim::default(),
        };
        let bytes = if block_device {
            rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0)).map_err(|e| explain(path, e))?
        } else {
            rustix::fs::fstat(&fd).map_err(|e| explain(path, e))?.st_size as u64
        };
        Ok(FileDevice {
            fd,
            claim,
            path: path.to_owned(),
            blocks: bytes / BLOCK_SIZE as u64,
            read_only,
            direct,
            block_device,
            no_dsync: AtomicBool::new(false),
            no_discard: AtomicBool::new(false),
        })
    }

    /// Some file systems accept O_DIRECT and then refuse the I/O, some devices that of memory aligned as blocks are.
    fn direct_works(fd: &OwnedFd) -> bool {
        const MORE: usize = 2 * BLOCK_ALIGN;
        let mut bytes = vec![0; BLOCK_SIZE + MORE];
        // Aligned as blocks are, and not to more.
        let start = (BLOCK_ALIGN + MORE - bytes.as_ptr().addr() % MORE) % MORE;
        retry(|| rustix::io::pread(fd, &mut bytes[start..start + BLOCK_SIZE], 0)).is_ok()
    }

    /// The path it was opened at.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether I/O goes past the kernel's page cache.
    pub fn direct(&self) -> bool {
        self.direct
    }

    /// Gives an image file another size.
    pub fn set_len(&mut self, bytes: u64) -> io::Result<()> {
        retry(|| rustix::fs::ftruncate(&self.fd, bytes))?;
        self.blocks = bytes / BLOCK_SIZE as u64;
        Ok(())
    }

    /// Its claim, for the kernel to take the device over.
    pub fn claim_mut(&mut self) -> &mut Claim {
        &mut self.claim
    }

    /// Whether this is a block device rather than an image file.
    pub fn is_block_device(&self) -> bool {
        self.block_device
    }

    /// Whether discards have an effect, as far as known.
    pub fn discards(&self) -> bool {
        !self.no_discard.load(Ordering::Relaxed)
    }

    fn check(&self, addr: u64, count: usize) -> io::Result<()> {
        check_range(self.blocks, addr, count as u64)
    }

    /// Writes everything with `flags`; how far it came is lost with an error.
    fn write_all(&self, addr: u64, blocks: &[&Block], flags: ReadWriteFlags) -> Result<(), Errno> {
        let total = blocks.len() * BLOCK_SIZE;
        let mut done = 0;
        while done < total {
            let first = done / BLOCK_SIZE;
            let mut buffers: Vec<IoSlice<'_>> =
                blocks[first..].iter().take(MAX_BUFFERS).map(|block| IoSlice::new(&block.0)).collect();
            buffers[0] = IoSlice::new(&blocks[first].0[done % BLOCK_SIZE..]);
            let offset = addr * BLOCK_SIZE as u64 + done as u64;
            let written = retry(|| {
                if flags.is_empty() {
                    rustix::io::pwritev(&self.fd, &buffers, offset)
                } else {
                    rustix::io::pwritev2(&self.fd, &buffers, offset, flags)
                }
            })?;
            if written == 0 {
                return Err(Errno::IO);
            }
            done += written;
        }
        Ok(())
    }

    /// Says of an image file that the file system below has no room, which is no fault of a device.
    fn explain_full(&self, error: Errno) -> io::Error {
        let lacks = match error {
            Errno::NOSPC => "the disk that holds it is full",
            Errno::DQUOT => "its owner's quota is used up",
            _ => return error.into(),
        };
        if self.block_device {
            return error.into();
        }
        let text = format!("the image {} cannot grow: {lacks}", self.path.display());
        io::Error::new(io::Error::from(error).kind(), text)
    }

    fn write_durable(&self, addr: u64, blocks: &[&Block]) -> Result<(), Errno> {
        if !self.no_dsync.load(Ordering::Relaxed) {
            match self.write_all(addr, blocks, ReadWriteFlags::DSYNC) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.no_dsync.store(true, Ordering::Relaxed)
                }
                other => return other,
            }
        }
        self.write_all(addr, blocks, ReadWriteFlags::empty())?;
        retry(|| rustix::fs::fdatasync(&self.fd))
    }
}

/// Repeats a system call that a signal interrupted.
fn retry<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    loop {
        match call() {
            Err(Errno::INTR) => continue,
            other => return other,
        }
    }
}

impl BlockDevice for FileDevice {
    fn block_count(&self) -> u64 {
        self.blocks
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.check(addr, blocks.len())?;
        let total = blocks.len() * BLOCK_SIZE;
        let mut done = 0;
        while done < total {
            let first = done / BLOCK_SIZE;
            let mut buffers: Vec<IoSliceMut<'_>> = blocks[first..]
                .iter_mut()
                .take(MAX_BUFFERS)
                .enumerate()
                .map(|(i, block)| IoSliceMut::new(&mut block.0[if i == 0 { done % BLOCK_SIZE } else { 0 }..]))
                .collect();
            let offset = addr * BLOCK_SIZE as u64 + done as u64;
            match retry(|| rustix::io::preadv(&self.fd, &mut buffers, offset))? {
                0 => {
                    let message = format!("{} became shorter while in use", self.path.display());
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
                }
                read => done += read,
            }
        }
        Ok(())
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.check(addr, blocks.len())?;
        refuse_read_only(self)?;
        let result = if tag.fua {
            self.write_durable(addr, blocks)
        } else {
            self.write_all(addr, blocks, ReadWriteFlags::empty())
        };
        result.map_err(|e| self.explain_full(e))
    }

    fn flush(&self) -> io::Result<()> {
        if self.read_only {
            return Ok(());
        }
        retry(|| rustix::fs::fdatasync(&self.fd)).map_err(|e| self.explain_full(e))
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        check_range(self.blocks, addr, count)?;
        refuse_read_only(self)?;
        if count == 0 || !self.discards() {
            return Ok(());
        }
        let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let (offset, len) = (addr * BLOCK_SIZE as u64, count * BLOCK_SIZE as u64);
        let result = retry(|| match self.block_device {
            true => crate::discard::block_device(&self.fd, offset, len),
            false => rustix::fs::fallocate(&self.fd, mode, offset, len),
        });
        match result {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                self.no_discard.store(true, Ordering::Relaxed);
                Ok(())
            }
            other => Ok(other?),
        }
    }

    fn read_only(&self) -> bool {
        self.read_only
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, Temperature, read_block};
    use std::os::unix::fs::MetadataExt;

    const TAG: WriteTag = WriteTag::new(Cause::Data, Temperature::Hot);

    fn image(bytes: u64) -> (tempfile::TempDir, PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        File::create_new(&path).unwrap().set_len(bytes).unwrap();
        (dir, path)
    }

    #[test]
    fn persists_direct_and_buffered() {
        for direct in [true, false] {
            let (_dir, path) = image(5 * 4096 + 100);
            let dev = FileDevice::open(&path, FileOptions { direct, ..Default::default() }).unwrap();
            assert_eq!(dev.block_count(), 5);
            assert!(direct || !dev.direct());
            dev.write(3, &[&Block([5; 4096]), &Block([6; 4096])], TAG).unwrap();
            dev.write(0, &[&Block([1; 4096])], TAG.with_fua()).unwrap();
            dev.flush().unwrap();
            drop(dev);
            let dev = FileDevice::open(&path, FileOptions::read_only()).unwrap();
            for (addr, byte) in [(0, 1), (1, 0), (3, 5), (4, 6)] {
                assert_eq!(read_block(&dev, addr).unwrap().0, [byte; 4096]);
            }
            assert_eq!(
                dev.read(4, &mut [&mut Block::ZERO.clone(), &mut Block::ZERO.clone()]).unwrap_err().kind(),
                io::ErrorKind::InvalidInput
            );
        }
    }

    #[test]
    fn more_buffers_than_one_call_takes() {
        let (_dir, path) = image(2500 * 4096);
        let dev = FileDevice::open(&path, FileOptions::default()).unwrap();
        let blocks: Vec<Block> = (0..2500).map(|i| Block([(i % 251) as u8; 4096])).collect();
        dev.write(0, &blocks.iter().collect::<Vec<_>>(), TAG).unwrap();
        let mut back = vec![Block::ZERO; 2500];
        dev.read(0, &mut back.iter_mut().collect::<Vec<_>>()).unwrap();
        assert!(blocks.iter().zip(&back).all(|(a, b)| a.0 == b.0));
    }

    #[test]
    fn one_writer_or_many_readers() {
        let (_dir, path) = image(4096);
        let writer = FileDevice::open(&path, FileOptions::default()).unwrap();
        for options in [FileOptions::default(), FileOptions::read_only()] {
            let e = FileDevice::open(&path, options).unwrap_err();
            assert_eq!(e.kind(), io::ErrorKind::ResourceBusy);
            assert!(e.to_string().contains("in use"), "{e}");
        }
        FileDevice::open(&path, FileOptions { exclusive: false, ..FileOptions::read_only() }).unwrap();
        drop(writer);
        let _reader = FileDevice::open(&path, FileOptions::read_only()).unwrap();
        FileDevice::open(&path, FileOptions::read_only()).unwrap();
        FileDevice::open(&path, FileOptions::default()).unwrap_err();
    }

    #[test]
    fn refuses_what_is_no_device() {
        let dir = tempfile::tempdir().unwrap();
        assert!(FileDevice::open(dir.path(), FileOptions::default()).is_err());
        let e = FileDevice::open(dir.path().join("none"), FileOptions::default()).unwrap_err();
        assert_eq!(e.kind(), io::ErrorKind::NotFound);
        assert!(e.to_string().contains("none"));
        assert!(FileDevice::open("/dev/null", FileOptions::default()).is_err());
        let (_dir, path) = image(4096);
        assert_eq!(
            FileDevice::create(&path, 1, FileOptions::default()).unwrap_err().kind(),
            io::ErrorKind::AlreadyExists
        );
    }

    #[test]
    fn read_only_refuses_and_reports_a_shrunk_image() {
        let (_dir, path) = image(8 * 4096);
        let dev = FileDevice::open(&path, FileOptions::read_only()).unwrap();
        assert!(dev.read_only());
        assert_eq!(dev.write(0, &[&Block::ZERO], TAG).unwrap_err().kind(), io::ErrorKind::ReadOnlyFilesystem);
        File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert_eq!(read_block(&dev, 5).unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn sparse_creation_and_discard() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("big");
        let dev = FileDevice::create(&path, 1 << 40, FileOptions::default()).unwrap();
        assert_eq!(dev.block_count(), 1 << 28);
        let blocks = vec![Block([3; 4096]); 256];
        dev.write(1 << 27, &blocks.iter().collect::<Vec<_>>(), TAG).unwrap();
        dev.flush().unwrap();
        let used = std::fs::metadata(&path).unwrap().blocks();
        assert!((2048..1 << 20).contains(&used), "{used} sectors used");
        dev.discard(1 << 27, 256).unwrap();
        if dev.discards() {
            assert_eq!(read_block(&dev, 1 << 27).unwrap().0, [0; 4096]);
            assert!(std::fs::metadata(&path).unwrap().blocks() < used);
        }
    }
}
