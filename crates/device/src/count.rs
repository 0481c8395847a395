//! A device that counts what passes through, by cause.
//!
//! Invariant: a block is counted exactly once, when the device below has taken it without an error, so the
//! sums agree with what the kernel's block layer counts for the device. No locks: each counter stands alone,
//! and a snapshot taken during I/O may see one counter of an operation and not yet another.

use crate::{BlockDevice, CAUSES, Cause, WriteTag};
use medfs_format::Block;
use std::io;
use std::ops::Sub;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of one cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CauseCounts {
    /// Write calls.
    pub writes: u64,
    /// Blocks written.
    pub blocks: u64,
    /// Of the write calls, those with forced unit access.
    pub fua: u64,
}

/// Counters of a [`CountingDevice`] at some moment. Two subtract to what came between.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoCounts {
    /// By [`Cause`], in its order.
    pub causes: [CauseCounts; CAUSES],
    /// Read calls.
    pub reads: u64,
    /// Blocks read.
    pub blocks_read: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discard calls.
    pub discards: u64,
    /// Blocks discarded.
    pub blocks_discarded: u64,
    /// Calls that failed; counted nowhere else.
    pub errors: u64,
}

impl IoCounts {
    /// The counts of one cause.
    pub fn cause(&self, cause: Cause) -> CauseCounts {
        self.causes[cause as usize]
    }
    /// Blocks written, all causes.
    pub fn blocks_written(&self) -> u64 {
        self.causes.iter().map(|c| c.blocks).sum()
    }
    /// Write calls, all causes.
    pub fn writes(&self) -> u64 {
        self.causes.iter().map(|c| c.writes).sum()
    }
    /// Write calls with forced unit access, all causes.
    pub fn fua_writes(&self) -> u64 {
        self.causes.iter().map(|c| c.fua).sum()
    }
}

impl Sub for IoCounts {
    type Output = IoCounts;
    fn sub(self, before: IoCounts) -> IoCounts {
        IoCounts {
            causes: std::array::from_fn(|i| CauseCounts {
                writes: self.causes[i].writes - before.causes[i].writes,
                blocks: self.causes[i].blocks - before.causes[i].blocks,
                fua: self.causes[i].fua - before.causes[i].fua,
            }),
            reads: self.reads - before.reads,
            blocks_read: self.blocks_read - before.blocks_read,
            flushes: self.flushes - before.flushes,
            discards: self.discards - before.discards,
            blocks_discarded: self.blocks_discarded - before.blocks_discarded,
            errors: self.errors - before.errors,
        }
    }
}

#[derive(Default)]
struct CauseCounters {
    writes: AtomicU64,
    blocks: AtomicU64,
    fua: AtomicU64,
}

/// Counts what passes through to the device below.
pub struct CountingDevice<D> {
    inner: D,
    causes: [CauseCounters; CAUSES],
    reads: AtomicU64,
    blocks_read: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    blocks_discarded: AtomicU64,
    errors: AtomicU64,
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl<D: BlockDevice> CountingDevice<D> {
    /// Counts from zero.
    pub fn new(inner: D) -> CountingDevice<D> {
        CountingDevice {
            inner,
            causes: Default::default(),
            reads: AtomicU64::new(0),
            blocks_read: AtomicU64::new(0),
            flushes: AtomicU64::new(0),
            discards: AtomicU64::new(0),
            blocks_discarded: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// The counters so far.
    pub fn counts(&self) -> IoCounts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        IoCounts {
            causes: std::array::from_fn(|i| CauseCounts {
                writes: get(&self.causes[i].writes),
                blocks: get(&self.causes[i].blocks),
                fua: get(&self.causes[i].fua),
            }),
            reads: get(&self.reads),
            blocks_read: get(&self.blocks_read),
            flushes: get(&self.flushes),
            discards: get(&self.discards),
            blocks_discarded: get(&self.blocks_discarded),
            errors: get(&self.errors),
        }
    }

    fn noting_errors(&self, result: io::Result<()>) -> io::Result<()> {
        if result.is_err() {
            add(&self.errors, 1);
        }
        result
    }
}

impl<D: BlockDevice> BlockDevice for CountingDevice<D> {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.noting_errors(self.inner.read(addr, blocks))?;
        add(&self.reads, 1);
        add(&self.blocks_read, blocks.len() as u64);
        Ok(())
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.noting_errors(self.inner.write(addr, blocks, tag))?;
        let [main, compact] = tag.causes(blocks.len());
        for (cause, blocks) in [main, compact] {
            add(&self.causes[cause as usize].blocks, blocks as u64);
        }
        // A call is one of compact pages where it writes nothing else.
        let counters = &self.causes[if main.1 > 0 { main.0 } else { compact.0 } as usize];
        add(&counters.writes, 1);
        if tag.fua {
            add(&counters.fua, 1);
        }
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.noting_errors(self.inner.flush())?;
        add(&self.flushes, 1);
        Ok(())
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.noting_errors(self.inner.discard(addr, count))?;
        add(&self.discards, 1);
        add(&self.blocks_discarded, count);
        Ok(())
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemDevice, Temperature, read_block};

    #[test]
    fn counts_each_block_once() {
        let dev = CountingDevice::new(MemDevice::new(10));
        let node = WriteTag::new(Cause::Node, Temperature::Hot);
        let block = Block::ZERO;
        dev.write(0, &[&block, &block, &block], WriteTag::new(Cause::Data, Temperature::Cold)).unwrap();
        dev.write(5, &[&block], node.with_fua()).unwrap();
        let before = dev.counts();
        dev.write(10, &[&block], node).unwrap_err();
        dev.write(9, &[&block], node).unwrap();
        read_block(&dev, 3).unwrap();
        dev.flush().unwrap();
        dev.discard(2, 4).unwrap();

        let counts = dev.counts();
        assert_eq!(counts.cause(Cause::Data), CauseCounts { writes: 1, blocks: 3, fua: 0 });
        assert_eq!(counts.cause(Cause::Node), CauseCounts { writes: 2, blocks: 2, fua: 1 });
        assert_eq!((counts.writes(), counts.blocks_written(), counts.fua_writes()), (3, 5, 1));
        let since = counts - before;
        assert_eq!(since.blocks_written(), 1);
        assert_eq!((since.reads, since.blocks_read, since.flushes, since.errors), (1, 1, 1, 1));
        assert_eq!((since.discards, since.blocks_discarded), (1, 4));
    }
}
