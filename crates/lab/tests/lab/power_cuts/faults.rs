//! What is wrong on purpose, between volume and device or in a front end: power cuts have to show each.

use medfs_device::crash::RecordingDevice;
use medfs_device::{BlockDevice, WriteTag};
use medfs_format::Block;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// A promise that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fault {
    /// None is.
    None,
    /// A flush leaves out the block that was written last.
    LateBlock,
    /// A flush does nothing: blocks are stored in any order. No barrier is promised.
    NoFlush,
    /// `sync` returns at once.
    NoBarrier,
    /// Background work is never done.
    NoTimer,
    /// A transaction is called committed as it begins.
    EarlyCommit,
}

impl Fault {
    /// What the volume is mounted on.
    pub(super) fn over(self, device: Arc<RecordingDevice>) -> Arc<dyn BlockDevice> {
        match self {
            Fault::LateBlock | Fault::NoFlush => {
                Arc::new(Faulty { inner: device, fault: self, held: Mutex::new(None) })
            }
            _ => device,
        }
    }
}

/// A device whose flush does not what it says.
struct Faulty {
    inner: Arc<RecordingDevice>,
    fault: Fault,
    /// The block that was written last, which the device below does not have.
    held: Mutex<Option<(u64, Block, WriteTag)>>,
}

impl BlockDevice for Faulty {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        let held = self.held.lock();
        self.inner.read(addr, blocks)?;
        if let Some((at, block, _)) = &*held
            && let Some(to) = at.checked_sub(addr).and_then(|n| blocks.get_mut(n as usize))
        {
            to.0 = block.0;
        }
        Ok(())
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        let mut held = self.held.lock();
        for (addr, block) in (addr..).zip(blocks) {
            if let Some((at, block, tag)) = held.take() {
                self.inner.write(at, &[&block], tag)?;
            }
            if self.fault == Fault::LateBlock && !tag.fua {
                *held = Some((addr, Block(block.0), tag));
            } else {
                self.inner.write(
                    addr,
                    &[block],
                    WriteTag { fua: self.fault != Fault::NoFlush && tag.fua, ..tag },
                )?;
            }
        }
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        if self.fault == Fault::NoFlush { Ok(()) } else { self.inner.flush() }
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.inner.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        false
    }
}
