//! A device that ends before its volume does, at the volume's length, as an image is whose copy was interrupted.
//!
//! Invariant: blocks behind the end exist, and can be neither read nor written (`EIO`), like bad sectors.

use crate::{BlockDevice, WriteTag, check_range};
use medfs_format::Block;
use std::io;

/// A device with blocks behind its end.
pub struct Lengthened<D> {
    below: D,
    blocks: u64,
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
        if is_there { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EIO)) }
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
            assert_eq!(read_block(&dev, addr).unwrap_err().raw_os_error(), Some(libc::EIO));
        }
        let mut two = [Block::ZERO, Block::ZERO];
        assert!(dev.read(9, &mut two.iter_mut().collect::<Vec<_>>()).is_err());
        assert_eq!(Lengthened::new(MemDevice::new(10), 3).block_count(), 10);
    }
}
