//! A device that can be closed while others still hold it.
//!
//! Lock: one, shared by requests and exclusive while it is closed. So nothing is under way when
//! [`Closable::close`] returns.

use crate::{BlockDevice, WriteTag};
use medfs_format::Block;
use parking_lot::RwLock;
use std::io;

/// A device until it is closed; then every request fails.
#[derive(Debug)]
pub struct Closable<D> {
    blocks: u64,
    read_only: bool,
    device: RwLock<Option<D>>,
}

impl<D: BlockDevice> Closable<D> {
    /// The device, open.
    pub fn new(device: D) -> Closable<D> {
        let (blocks, read_only) = (device.block_count(), device.read_only());
        Closable { blocks, read_only, device: RwLock::new(Some(device)) }
    }

    /// Waits for the requests under way and closes the device.
    pub fn close(&self) {
        *self.device.write() = None;
    }

    fn run<T>(&self, request: impl FnOnce(&D) -> io::Result<T>) -> io::Result<T> {
        match &*self.device.read() {
            Some(device) => request(device),
            None => Err(io::Error::new(io::ErrorKind::NotConnected, "the device is closed")),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Closable<D> {
    fn block_count(&self) -> u64 {
        self.blocks
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.run(|device| device.read(addr, blocks))
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        self.run(|device| device.write(addr, blocks, tag))
    }
    fn flush(&self) -> io::Result<()> {
        self.run(BlockDevice::flush)
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.run(|device| device.discard(addr, count))
    }
    fn read_only(&self) -> bool {
        self.read_only
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FileDevice, FileOptions, read_block};

    #[test]
    fn a_closed_device_is_free_for_others() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(8192).unwrap();
        let open = || FileDevice::open(file.path(), FileOptions::default());
        let device = Closable::new(open().unwrap());
        read_block(&device, 1).unwrap();
        open().unwrap_err();
        device.close();
        open().unwrap();
        assert_eq!(read_block(&device, 1).unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert_eq!((device.block_count(), device.read_only()), (2, false));
    }
}
