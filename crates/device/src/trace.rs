//! A device that tells what passes through.
//!
//! Each finished operation becomes one [`Record`], given to a callback or kept in a ring of bounded size.
//! Locks: the ring's, held to append one record. Records of operations that overlap in time may come in
//! either order; their sequence numbers are those of completion.

use crate::{BlockDevice, WriteTag};
use medfs_format::{BLOCK_SIZE, Block};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An operation on a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    Read { addr: u64, count: u64 },
    Write { addr: u64, count: u64, tag: WriteTag },
    Flush,
    Discard { addr: u64, count: u64 },
}

/// One finished operation.
#[derive(Debug, Clone)]
pub struct Record {
    /// Order of completion, from 0.
    pub sequence: u64,
    /// When it began, since the device was made.
    pub begin: Duration,
    /// Duration of the request.
    pub duration: Duration,
    /// The operation.
    pub operation: Operation,
    /// Whether it succeeded.
    pub ok: bool,
    /// The written content, where content is traced.
    pub content: Option<Arc<[[u8; BLOCK_SIZE]]>>,
}

/// Where records go.
enum Sink {
    Ring { capacity: usize, records: Mutex<VecDeque<Record>> },
    Callback(Box<dyn Fn(Record) + Send + Sync>),
}

/// Tells what passes through to the device below.
pub struct TracingDevice<D> {
    inner: D,
    start: Instant,
    sequence: AtomicU64,
    content: bool,
    sink: Sink,
}

impl<D: BlockDevice> TracingDevice<D> {
    /// Keeps the last `capacity` records for [`TracingDevice::take`].
    pub fn ring(inner: D, capacity: usize) -> TracingDevice<D> {
        Self::new(inner, Sink::Ring { capacity, records: Mutex::new(VecDeque::new()) })
    }

    /// Hands each record to `callback`, which is called from the thread that did the operation and must not
    /// use this device.
    pub fn callback(inner: D, callback: impl Fn(Record) + Send + Sync + 'static) -> TracingDevice<D> {
        Self::new(inner, Sink::Callback(Box::new(callback)))
    }

    fn new(inner: D, sink: Sink) -> TracingDevice<D> {
        TracingDevice { inner, start: Instant::now(), sequence: AtomicU64::new(0), content: false, sink }
    }

    /// Also records what is written. A ring then holds up to its capacity of write calls with their content.
    pub fn with_content(self) -> TracingDevice<D> {
        TracingDevice { content: true, ..self }
    }

    /// The device below.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Takes the records out of the ring, oldest first. The first sequence number tells how many were lost before it.
    pub fn take(&self) -> Vec<Record> {
        match &self.sink {
            Sink::Ring { records, .. } => records.lock().drain(..).collect(),
            Sink::Callback(_) => Vec::new(),
        }
    }

    fn traced(
        &self,
        operation: Operation,
        written: &[&Block],
        run: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let begin = self.start.elapsed();
        let result = run();
        let content = (self.content && matches!(operation, Operation::Write { .. }))
            .then(|| written.iter().map(|block| block.0).collect());
        let record = |sequence| Record {
            sequence,
            begin,
            duration: self.start.elapsed().saturating_sub(begin),
            operation,
            ok: result.is_ok(),
            content,
        };
        match &self.sink {
            Sink::Ring { capacity, records } => {
                let mut records = records.lock();
                // Numbered under the lock, so that the ring is in order.
                let record = record(self.sequence.fetch_add(1, Ordering::Relaxed));
                while records.len() >= (*capacity).max(1) {
                    records.pop_front();
                }
                records.push_back(record);
            }
            Sink::Callback(callback) => callback(record(self.sequence.fetch_add(1, Ordering::Relaxed))),
        }
        result
    }
}

impl<D: BlockDevice> BlockDevice for TracingDevice<D> {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        let operation = Operation::Read { addr, count: blocks.len() as u64 };
        self.traced(operation, &[], || self.inner.read(addr, blocks))
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        let operation = Operation::Write { addr, count: blocks.len() as u64, tag };
        self.traced(operation, blocks, || self.inner.write(addr, blocks, tag))
    }

    fn flush(&self) -> io::Result<()> {
        self.traced(Operation::Flush, &[], || self.inner.flush())
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.traced(Operation::Discard { addr, count }, &[], || self.inner.discard(addr, count))
    }

    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cause, MemDevice, Temperature, read_block};

    const TAG: WriteTag = WriteTag::new(Cause::Meta, Temperature::Hot);

    #[test]
    fn ring_keeps_the_last() {
        let dev = TracingDevice::ring(MemDevice::new(10), 3).with_content();
        for addr in 0..3 {
            read_block(&dev, addr).unwrap();
        }
        dev.write(4, &[&Block([8; 4096])], TAG).unwrap();
        dev.write(10, &[&Block::ZERO], TAG).unwrap_err();
        let records = dev.take();
        assert_eq!(records.iter().map(|r| r.sequence).collect::<Vec<_>>(), [2, 3, 4]);
        assert_eq!(records[0].operation, Operation::Read { addr: 2, count: 1 });
        assert_eq!(records[1].operation, Operation::Write { addr: 4, count: 1, tag: TAG });
        assert_eq!(records[1].content.as_ref().unwrap()[0], [8; 4096]);
        assert_eq!(records.iter().map(|r| r.ok).collect::<Vec<_>>(), [true, true, false]);
        assert!(dev.take().is_empty());
    }

    #[test]
    fn callback_sees_each() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let log = seen.clone();
        let dev = TracingDevice::callback(MemDevice::new(10), move |r| log.lock().push(r.operation));
        dev.flush().unwrap();
        dev.discard(1, 2).unwrap();
        assert_eq!(*seen.lock(), [Operation::Flush, Operation::Discard { addr: 1, count: 2 }]);
    }
}
