//! What a run leaves on its device: blocks by cause, flushes, and a checksum of every request in order.
//!
//! Purpose: the proof that a change of the engine's structure moved nothing on the device. The table of many seeds is
//! kept beside its test; a change that moves something has to say so by writing it anew.
//! Invariant: a footprint covers every mount of a run, recoveries included, and depends on the run's seed alone.

use medfs_device::{BlockDevice, CAUSES, Cause, WriteTag};
use medfs_format::Block;
use parking_lot::Mutex;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Counts and checksum of the requests that changed a device.
#[derive(Debug, Clone, Default)]
pub struct Footprint {
    blocks: [u64; CAUSES],
    flushes: u64,
    discarded: u64,
    /// Of addresses, causes and contents, in the order of the requests.
    order: crc32fast::Hasher,
}

impl Footprint {
    fn wrote(&mut self, addr: u64, blocks: &[&Block], tag: WriteTag) {
        for (cause, count) in tag.causes(blocks.len()) {
            self.blocks[cause as usize] += count as u64;
        }
        for (addr, block) in (addr..).zip(blocks) {
            self.order.update(&addr.to_le_bytes());
            self.order.update(&[tag.cause as u8]);
            self.order.update(&block.0);
        }
    }

    fn flushed(&mut self) {
        self.flushes += 1;
        self.order.update(b"flush");
    }

    fn discarded(&mut self, addr: u64, count: u64) {
        self.discarded += count;
        self.order.update(&addr.to_le_bytes());
        self.order.update(&count.to_le_bytes());
    }

    /// The names of what [`Footprint`] prints, in its order.
    pub fn header() -> String {
        let causes: Vec<&str> = Cause::ALL.iter().map(|cause| cause.name()).collect();
        format!("{}\tflushes\tdiscarded\torder", causes.join("\t"))
    }
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for blocks in self.blocks {
            write!(f, "{blocks}\t")?;
        }
        write!(f, "{}\t{}\t{:08x}", self.flushes, self.discarded, self.order.clone().finalize())
    }
}

/// Where the devices of a run's mounts leave their footprint.
#[derive(Debug, Clone, Default)]
pub struct Trail(Arc<Mutex<Footprint>>);

impl Trail {
    /// A device whose requests are noted, once it has carried them out.
    pub fn over(&self, inner: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        Arc::new(Noted { inner, trail: self.clone() })
    }

    /// What was left so far.
    pub fn footprint(&self) -> Footprint {
        self.0.lock().clone()
    }
}

struct Noted {
    inner: Arc<dyn BlockDevice>,
    trail: Trail,
}

impl BlockDevice for Noted {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.inner.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.inner.write(addr, blocks, tag)?;
        self.trail.0.lock().wrote(addr, blocks, tag);
        Ok(())
    }
    fn flush(&self) -> io::Result<()> {
        self.inner.flush()?;
        self.trail.0.lock().flushed();
        Ok(())
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.inner.discard(addr, count)?;
        self.trail.0.lock().discarded(addr, count);
        Ok(())
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
}
