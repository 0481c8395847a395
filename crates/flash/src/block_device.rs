//! The device as a block device for the file system.
//!
//! Time: requests of a program that runs here arrive at the host's clock, plus all the waiting for the device
//! that the host would have done: a program that is told that a write is done goes on after the device's end
//! of it. So latencies do not depend on how fast this machine simulates, and pauses of the program are pauses
//! of the device.
//!
//! Locks: one around the device, held for a request; the device serves one at a time.

use crate::codecs::PageCodec;
use crate::device::Device;
use crate::stats::Stats;
use medfs_device::{BlockDevice, Temperature, WriteTag};
use medfs_format::Block;
use medfs_ftl::Hint;
use parking_lot::Mutex;
use std::io;

/// The host's clock.
pub trait HostTime: Send {
    /// Nanoseconds since any fixed moment.
    fn now(&self) -> u64;
}

/// The system's clock.
struct SystemTime(std::time::Instant);

impl HostTime for SystemTime {
    fn now(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

struct Inner {
    device: Device<PageCodec>,
    host: Box<dyn HostTime>,
    /// What the host would have waited so far.
    waited: u64,
}

/// A flash device with the interface of a block device.
pub struct FlashDevice {
    blocks: u64,
    inner: Mutex<Inner>,
}

impl FlashDevice {
    /// A block device on the system's clock.
    pub fn new(device: Device<PageCodec>) -> FlashDevice {
        FlashDevice::with_time(device, Box::new(SystemTime(std::time::Instant::now())))
    }

    /// A block device on a clock of the caller's.
    pub fn with_time(device: Device<PageCodec>, host: Box<dyn HostTime>) -> FlashDevice {
        let blocks = u64::from(device.logical_pages());
        FlashDevice { blocks, inner: Mutex::new(Inner { device, host, waited: 0 }) }
    }

    /// The device's statistics so far.
    pub fn stats(&self) -> Stats {
        self.inner.lock().device.stats()
    }

    /// Ends its use.
    ///
    /// # Errors
    /// The device's.
    pub fn close(self) -> io::Result<()> {
        Ok(self.inner.into_inner().device.close()?)
    }

    fn request(&self, run: impl FnOnce(&mut Device<PageCodec>, u64) -> crate::Result<u64>) -> io::Result<()> {
        let mut inner = self.inner.lock();
        let arrival = inner.host.now() + inner.waited;
        let end = run(&mut inner.device, arrival)?;
        inner.waited += end.saturating_sub(inner.host.now() + inner.waited);
        Ok(())
    }

    fn check(&self, addr: u64, count: u64) -> io::Result<u32> {
        match addr.checked_add(count) {
            Some(end) if end <= self.blocks => Ok(addr as u32),
            _ => {
                let message =
                    format!("{count} blocks from {addr} on lie outside the device of {} blocks", self.blocks);
                Err(io::Error::new(io::ErrorKind::InvalidInput, message))
            }
        }
    }
}

impl BlockDevice for FlashDevice {
    fn block_count(&self) -> u64 {
        self.blocks
    }

    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        let lpn = self.check(addr, blocks.len() as u64)?;
        let mut pages: Vec<&mut [u8]> = blocks.iter_mut().map(|b| &mut b.0[..]).collect();
        self.request(|device, at| device.read(at, lpn, &mut pages))
    }

    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        let lpn = self.check(addr, blocks.len() as u64)?;
        let pages: Vec<&[u8]> = blocks.iter().map(|b| &b.0[..]).collect();
        let hint = match tag.temperature {
            Temperature::Hot => Hint::Hot,
            Temperature::Warm => Hint::Warm,
            Temperature::Cold => Hint::Cold,
        };
        self.request(|device, at| {
            let end = device.write(at, lpn, &pages, hint)?;
            if tag.fua { device.flush(end) } else { Ok(end) }
        })
    }

    fn flush(&self) -> io::Result<()> {
        self.request(|device, at| device.flush(at))
    }

    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        let lpn = self.check(addr, count)?;
        self.request(|device, at| device.trim(at, lpn, count as u32))
    }

    fn read_only(&self) -> bool {
        false
    }
}
