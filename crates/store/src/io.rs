//! The engine's way to the device: block I/O, merged flushes, and the read-only state after a failure.
//!
//! Invariants: every block leaves through [`Io::write`]; after the first failed write or flush no further write
//! is attempted, so that nothing reaches the device in an order that was not meant.
//! Locks: the flush state's mutex is a leaf and is not held during I/O.

use crate::error::{Error, Result, is_full};
use crate::seals::Seals;
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag};
use medfs_format::{Block, BlockAddr};
use medfs_sync::{Condvar, Mutex};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Most blocks handed to the device in one call.
const MAX_RUN: usize = 256;

#[derive(Default)]
struct FlushState {
    /// Number of the newest flush that was started.
    started: u64,
    /// Number of the newest flush that succeeded.
    completed: u64,
    running: bool,
}

/// Blocks and operations that went to the device since the volume was opened.
#[derive(Debug, Default)]
pub struct IoCounters {
    /// Blocks written, by cause.
    pub written: [AtomicU64; medfs_device::CAUSES],
    /// Blocks read.
    pub read: AtomicU64,
    /// Flushes.
    pub flushes: AtomicU64,
    /// Blocks discarded.
    pub discarded: AtomicU64,
}

/// The way to the device; see the head of this file.
pub struct Io {
    dev: Arc<dyn BlockDevice>,
    failed: AtomicBool,
    /// What the device said when it failed.
    failure: OnceLock<String>,
    flush: Mutex<FlushState>,
    flushed: Condvar,
    /// Counts writes, to tell whether a flush came after one.
    writes: AtomicU64,
    /// Value of `writes` before the newest completed flush was started.
    durable_writes: AtomicU64,
    /// What is to know of data blocks that are written, on a volume whose log may be sealed.
    seals: Option<Arc<Seals>>,
    /// What went to the device.
    pub counters: IoCounters,
}

/// Splits what goes to blocks into what one call each writes: neighbours, not too many.
pub fn runs<T>(blocks: &[T], addr: impl Fn(&T) -> BlockAddr) -> impl Iterator<Item = &[T]> {
    blocks.chunk_by(move |a, b| addr(a) + 1 == addr(b)).flat_map(|run| run.chunks(MAX_RUN))
}

impl Io {
    /// Over a device that nothing has failed on yet.
    pub fn new(dev: Arc<dyn BlockDevice>) -> Io {
        Io {
            dev,
            failed: AtomicBool::new(false),
            failure: OnceLock::new(),
            flush: Mutex::default(),
            flushed: Condvar::new(),
            writes: AtomicU64::new(0),
            durable_writes: AtomicU64::new(0),
            seals: None,
            counters: IoCounters::default(),
        }
    }

    /// Lets these seals know of data blocks that are written from now on.
    pub(crate) fn tell(&mut self, seals: Arc<Seals>) {
        self.seals = Some(seals);
    }

    pub(crate) fn block_count(&self) -> u64 {
        self.dev.block_count()
    }

    /// Whether the device refuses writes.
    pub fn device_read_only(&self) -> bool {
        self.dev.read_only()
    }

    /// Why the first write or flush that failed did, once one has.
    pub fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Whether a write or flush has failed.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// Refuses all further writes.
    pub(crate) fn set_failed(&self) {
        self.failed.store(true, Ordering::Release);
    }

    /// Reads a block. `Io` where the device cannot.
    pub fn read(&self, addr: BlockAddr) -> Result<Box<Block>> {
        let mut block = Block::boxed();
        self.read_into(addr, &mut [&mut *block])?;
        Ok(block)
    }

    /// Reads neighbouring blocks. A device may fail for a moment, so a read of one block that fails is tried
    /// once more: what is in larger requests is wanted again block by block, or can do without.
    pub fn read_into(&self, addr: BlockAddr, blocks: &mut [&mut Block]) -> Result<()> {
        self.counters.read.fetch_add(blocks.len() as u64, Ordering::Relaxed);
        let mut read = self.dev.read(u64::from(addr), blocks);
        if read.is_err() && blocks.len() == 1 {
            read = self.dev.read(u64::from(addr), blocks);
        }
        Ok(read?)
    }

    /// Reads blocks at any addresses, neighbours together; `None` for each that cannot be read.
    pub(crate) fn read_scattered(&self, addrs: &[BlockAddr]) -> Vec<Option<Box<Block>>> {
        let mut all = Vec::with_capacity(addrs.len());
        for run in runs(addrs, |&addr| addr) {
            let mut blocks: Vec<Box<Block>> = run.iter().map(|_| Block::boxed()).collect();
            let mut places: Vec<&mut Block> = blocks.iter_mut().map(|block| &mut **block).collect();
            match self.read_into(run[0], &mut places) {
                Ok(()) => all.extend(blocks.into_iter().map(Some)),
                Err(_) => all.extend(run.iter().map(|&addr| self.read(addr).ok())),
            }
        }
        all
    }

    /// Writes neighbouring blocks. A failure makes the volume read-only.
    pub fn write(&self, addr: BlockAddr, blocks: &[&Block], tag: WriteTag) -> Result<()> {
        if self.failed() {
            return Err(Error::ReadOnly);
        }
        let written = self.dev.write(u64::from(addr), blocks, tag);
        let mark = self.writes.fetch_add(1, Ordering::AcqRel) + 1;
        self.fail_on_error(written)?;
        if let Some(seals) = self.seals.as_ref().filter(|_| !matches!(tag.cause, Cause::Node | Cause::Meta)) {
            seals.wrote(addr, blocks, mark, self.durable_writes());
        }
        for (cause, blocks) in tag.causes(blocks.len()) {
            self.counters.written[cause as usize].fetch_add(blocks as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Writes a block that the volume can do without. A failure is the caller's business, and of no other write.
    pub(crate) fn write_if_possible(&self, addr: BlockAddr, block: &Block) -> Result<()> {
        if self.failed() {
            return Err(Error::ReadOnly);
        }
        let tag = WriteTag::new(Cause::Meta, Temperature::Cold);
        self.dev.write(u64::from(addr), &[block], tag)?;
        self.writes.fetch_add(1, Ordering::AcqRel);
        self.counters.written[Cause::Meta as usize].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Writes blocks at any addresses, neighbours together.
    pub fn write_scattered(&self, blocks: &[(BlockAddr, &Block)], tag: WriteTag) -> Result<()> {
        for run in runs(blocks, |&(addr, _)| addr) {
            let refs: Vec<&Block> = run.iter().map(|&(_, block)| block).collect();
            self.write(run[0].0, &refs, tag)?;
        }
        Ok(())
    }

    /// Mark to compare with [`Io::is_durable`]: writes acknowledged so far.
    pub fn write_mark(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    /// Whether a flush completed that started after `mark` was taken.
    pub fn is_durable(&self, mark: u64) -> bool {
        self.durable_writes() >= mark
    }

    /// The mark up to which writes are durable.
    pub fn durable_writes(&self) -> u64 {
        self.durable_writes.load(Ordering::Acquire)
    }

    /// Makes every acknowledged write durable. Calls that wait at the same time share one flush.
    pub fn flush(&self) -> Result<()> {
        let mut state = self.flush.lock();
        let needed = state.started + 1;
        loop {
            if self.failed() {
                return Err(Error::ReadOnly);
            }
            if state.completed >= needed {
                return Ok(());
            }
            if state.running {
                self.flushed.wait(&mut state);
                continue;
            }
            state.running = true;
            state.started += 1;
            let number = state.started;
            let mark = self.write_mark();
            drop(state);
            self.counters.flushes.fetch_add(1, Ordering::Relaxed);
            let result = self.dev.flush();
            state = self.flush.lock();
            state.running = false;
            if result.is_ok() {
                state.completed = number;
                self.durable_writes.fetch_max(mark, Ordering::AcqRel);
            }
            let result = self.fail_on_error(result);
            self.flushed.notify_all();
            result?;
        }
    }

    /// Tells the device that blocks are no longer needed. A device that cannot discard loses nothing by it.
    pub fn discard(&self, addr: BlockAddr, count: u32) -> Result<()> {
        if self.failed() {
            return Ok(());
        }
        match self.dev.discard(u64::from(addr), u64::from(count)) {
            Ok(()) => {
                self.counters.discarded.fetch_add(u64::from(count), Ordering::Relaxed);
                Ok(())
            }
            // A device that cannot discard loses nothing by it.
            Err(e) => {
                tracing::debug!(addr, count, error = %e, "a discard failed");
                Ok(())
            }
        }
    }

    /// Refuses all further writes, for a reason that is not the device's.
    pub fn stop_writing(&self, why: &str) {
        self.set_failed();
        if self.failure.set(why.to_owned()).is_ok() {
            tracing::error!(why, "the volume is read-only from now on");
        }
    }

    fn fail_on_error<T>(&self, result: std::io::Result<T>) -> Result<T> {
        result.map_err(|e| {
            if !self.failed.swap(true, Ordering::AcqRel) {
                let _ = self.failure.set(e.to_string());
                // What stands between, as an undo file, says itself that it is full.
                let what = match (is_full(&e), e.raw_os_error()) {
                    (true, Some(_)) => "the disk that holds the volume is full",
                    (true, None) => "nothing more can be written",
                    (false, _) => "the device failed",
                };
                tracing::error!(error = %e, "{what}: the volume is read-only from now on");
            }
            Error::Io(e)
        })
    }
}
