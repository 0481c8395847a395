//! A device that loses power in the middle of a request.
//!
//! Unlike crash states, which choose among what was not flushed, it keeps exactly the blocks before one, in
//! the order of their writes.

use medfs_device::{BlockDevice, WriteTag};
use medfs_format::Block;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// ENODEV: the device is gone.
pub const GONE: i32 = 19;

/// A device that fails every write after so many blocks.
pub struct PowerCut<'d, D> {
    dev: &'d D,
    left: AtomicU64,
}

impl<'d, D: BlockDevice> PowerCut<'d, D> {
    /// The next `blocks` blocks are written.
    pub fn after(blocks: u64, dev: &'d D) -> PowerCut<'d, D> {
        PowerCut { dev, left: AtomicU64::new(blocks) }
    }

    /// Power stays.
    pub fn never(dev: &'d D) -> PowerCut<'d, D> {
        PowerCut::after(u64::MAX, dev)
    }
}

impl<D: BlockDevice> BlockDevice for PowerCut<'_, D> {
    fn block_count(&self) -> u64 {
        self.dev.block_count()
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.dev.read(addr, blocks)
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        for (addr, block) in (addr..).zip(blocks) {
            let spend = |left: u64| left.checked_sub(1);
            if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spend).is_err() {
                return Err(io::Error::from_raw_os_error(GONE));
            }
            self.dev.write(addr, &[block], tag)?;
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.dev.flush()
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.dev.discard(addr, count)
    }

    fn read_only(&self) -> bool {
        false
    }
}
