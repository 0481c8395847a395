//! A device that ends before its volume does, at the volume's length, as an image is whose copy was interrupted.
//!
//! Invariant: blocks behind the end exist, and can be neither read nor written, like bad sectors
//! ([`is_bad_sector`]).

use crate::mapped::is_in_map;
use crate::{BlockDevice, WriteTag, check_range};
use medfs_format::Block;
use std::fmt;
use std::io;

/// A device with blocks behind its end.
pub struct Lengthened<D> {
    below: D,
    blocks: u64,
}

/// Why a block behind the end cannot be read or written.
#[derive(Debug)]
struct BehindEnd;

impl fmt::Display for BehindEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the image ends before this block, which the volume has: it was cut short")
    }
}

impl std::error::Error for BehindEnd {}

/// Whether an error is that a block is behind the end of a device that was cut short.
pub fn is_behind_end(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<BehindEnd>())
}

/// What Linux says of a sector that a device cannot read or write: eMMC and SD `EIO`, SCSI (as USB readers are) and
/// NVMe one that names the fault of the medium or of the device; a file system below an image, that its own data is
/// damaged.
const OF_SECTORS: [i32; 7] =
    [libc::EIO, libc::ENODATA, libc::EREMOTEIO, libc::EILSEQ, libc::ETIMEDOUT, libc::EBADMSG, libc::EUCLEAN];

/// Whether an error is that of a block that cannot be read or written, and says nothing of others.
pub fn is_bad_sector(error: &io::Error) -> bool {
    error.raw_os_error().is_some_and(|number| OF_SECTORS.contains(&number))
        || is_behind_end(error)
        || is_in_map(error)
}

impl<D: BlockDevice> Lengthened<D> {
    /// A device with at least so many blocks.
    pub fn new(below: D, blocks: u64) -> Lengthened<D> {
        Lengthened { blocks: blocks.max(below.block_count()), below }
    }

    /// Number of blocks that are missing behind the device's end.
    pub fn missing(&self) -> u64 {
        self.blocks - self.below.block_count()
    }

    fn is_there(&self, addr: u64, count: u64) -> io::Result<()> {
        check_range(self.blocks, addr, count)?;
        let is_there = addr + count <= self.below.block_count();
        if is_there { Ok(()) } else { Err(io::Error::other(BehindEnd)) }
    }
}

impl<D: BlockDevice> BlockDevice for Lengthened<D> {
    fn block_count(&self) -> u64 {
        self.blocks
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.is_there(addr, blocks.len() as u64)?;
        self.below.read(addr, blocks)
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.is_there(addr, blocks.len() as u64)?;
        self.below.write(addr, blocks, tag)
    }

    fn flush(&self) -> io::Result<()> {
        self.below.flush()
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.is_there(addr, count)?;
        self.below.discard(addr, count)
    }

    fn read_only(&self) -> bool {
        self.below.read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemDevice, read_block};

    #[test]
    fn what_is_behind_the_end_is_there_and_cannot_be_read() {
        let dev = Lengthened::new(MemDevice::new(10), 20);
        assert_eq!((dev.block_count(), dev.missing()), (20, 10));
        assert!(read_block(&dev, 9).is_ok());
        for addr in [10, 19] {
            let error = read_block(&dev, addr).unwrap_err();
            assert!(is_behind_end(&error) && is_bad_sector(&error), "{error}");
        }
        let says = |number| is_bad_sector(&io::Error::from_raw_os_error(number));
        // As a card in a USB reader says it; one that was pulled is no bad sector.
        assert!(says(libc::ENODATA) && says(libc::EUCLEAN) && !says(libc::ENODEV) && !says(libc::ENOSPC));
        let mut two = [Block::ZERO, Block::ZERO];
        assert!(dev.read(9, &mut two.iter_mut().collect::<Vec<_>>()).is_err());
        assert_eq!(Lengthened::new(MemDevice::new(10), 3).block_count(), 10);
    }
}
