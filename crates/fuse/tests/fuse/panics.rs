//! A panic while a request is served: whoever made the request gets an error, and nothing is written any more.

use crate::support::{Image, fuse_available, transports};
use medfs::{Files, MountOptions, SystemClock, Volume};
use medfs_device::{BlockDevice, FileDevice, FileOptions, WriteTag};
use medfs_format::Block;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A device whose next write panics once that is wanted.
struct Panicking {
    device: FileDevice,
    armed: AtomicBool,
}

impl BlockDevice for Panicking {
    fn block_count(&self) -> u64 {
        self.device.block_count()
    }
    fn read_only(&self) -> bool {
        self.device.read_only()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.device.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        assert!(!self.armed.swap(false, Ordering::AcqRel), "a panic that was planted");
        self.device.write(addr, blocks, tag)
    }
    fn flush(&self) -> io::Result<()> {
        self.device.flush()
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.device.discard(addr, count)
    }
}

#[test]
fn a_panic_is_an_error_and_the_volume_is_not_written_any_more() {
    if !fuse_available() {
        return;
    }
    for transport in transports() {
        let image = Image::new();
        let options = FileOptions { exclusive: false, ..FileOptions::default() };
        let device = FileDevice::open(image.path(), options).unwrap();
        let device = Arc::new(Panicking { device, armed: AtomicBool::new(false) });
        let volume = Volume::open(device.clone(), MountOptions::default(), Arc::new(SystemClock)).unwrap();
        let volume = Arc::new(volume);
        let session = medfs_fuse::mount(volume.clone(), image.config(transport)).unwrap();
        let path = |name: &str| image.mountpoint().join(name);
        let write = |name: &str, content: &[u8]| -> io::Result<()> {
            let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(path(name))?;
            file.write_all(content)?;
            file.sync_all()
        };
        write("before", b"durable").unwrap();
        device.armed.store(true, Ordering::Release);
        let error = write("during", b"lost").expect_err("its fsync panicked");
        assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::IO.raw_os_error()), "{error}");
        // The worker serves on, and what is there can be read.
        for _ in 0..40 {
            assert_eq!(fs::read(path("before")).unwrap(), b"durable");
            assert!(fs::read_dir(image.mountpoint()).unwrap().count() >= 2);
        }
        assert!(volume.is_read_only());
        let written = volume.stats().written.total();
        let error = File::create(path("after")).expect_err("nothing is changed any more");
        assert_eq!(error.kind(), ErrorKind::ReadOnlyFilesystem, "{error}");
        assert!(volume.stats().failure.is_some_and(|why| why.contains("panicked")));
        session.unmount().unwrap();
        session.wait().unwrap();
        assert!(volume.close().is_err(), "what was not written is not");
        assert_eq!(volume.stats().written.total(), written);
        drop((volume, device));
        let again = image.open();
        let found = again.lookup(again.root(), b"before").unwrap();
        let mut content = [0; 7];
        again.read(found.ino, 0, &mut content).unwrap();
        assert_eq!(&content, b"durable");
        again.close().unwrap();
        drop(again);
        image.check();
    }
}
