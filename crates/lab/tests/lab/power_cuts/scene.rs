//! A volume that waits with what is fsynced, on a device that records, and the time that passes for both.

use super::faults::Fault;
use super::ledger::{Ledger, Note};
use medfs::{Clock, Files, MountOptions};
use medfs_device::BlockDevice;
use medfs_lab::backend::volume::VolumeTarget;
use medfs_lab::backend::{Handle, Open, Target};
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A volume mounted with these options.
pub(super) fn mounted(device: Arc<dyn BlockDevice>, options: &str) -> medfs::Result<VolumeTarget> {
    let mut parsed = MountOptions::default();
    parsed.parse(options).expect("they are options");
    VolumeTarget::mount(device, parsed, None)
}

/// Notes what returns from a volume, and calls its background work when it asks for that, as front ends do.
pub(super) struct Watched {
    volume: VolumeTarget,
    ledger: Arc<Ledger>,
    fault: Fault,
    /// When background work is due.
    timer: Mutex<Duration>,
}

impl Watched {
    pub(super) fn new(volume: VolumeTarget, ledger: Arc<Ledger>, fault: Fault) -> Watched {
        let timer = Mutex::new(volume.clock().monotonic() + volume.volume().next_background());
        Watched { volume, ledger, fault, timer }
    }

    fn noted(&self, note: Note, result: io::Result<()>) -> io::Result<()> {
        result.inspect(|()| self.ledger.note(note))
    }
}

impl Target for Watched {
    fn open(&self, path: &str, how: Open) -> io::Result<Handle> {
        self.volume.open(path, how)
    }
    fn close(&self, file: Handle) -> io::Result<()> {
        self.volume.close(file)
    }
    fn read(&self, file: Handle, offset: u64, buf: &mut [u8]) -> io::Result<usize> {
        self.volume.read(file, offset, buf)
    }
    fn write(&self, file: Handle, offset: u64, data: &[u8]) -> io::Result<()> {
        self.volume.write(file, offset, data)
    }
    fn truncate(&self, file: Handle, len: u64) -> io::Result<()> {
        self.volume.truncate(file, len)
    }
    fn size(&self, file: Handle) -> io::Result<u64> {
        self.volume.size(file)
    }
    fn fsync(&self, file: Handle, datasync: bool) -> io::Result<()> {
        self.noted(Note::Fsynced, self.volume.fsync(file, datasync))
    }
    fn fsync_dir(&self, path: &str) -> io::Result<()> {
        self.noted(Note::Fsynced, self.volume.fsync_dir(path))
    }
    fn mkdir(&self, path: &str) -> io::Result<()> {
        self.volume.mkdir(path)
    }
    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.volume.rename(from, to)
    }
    fn unlink(&self, path: &str) -> io::Result<()> {
        self.volume.unlink(path)
    }
    fn exists(&self, path: &str) -> io::Result<bool> {
        self.volume.exists(path)
    }
    fn sync(&self) -> io::Result<()> {
        match self.fault {
            Fault::NoFlush => self.volume.sync(),
            Fault::NoBarrier => self.noted(Note::Barrier, Ok(())),
            _ => self.noted(Note::Barrier, self.volume.sync()),
        }
    }
    fn pass(&self, time: Duration) -> io::Result<()> {
        let (clock, volume) = (self.volume.clock(), self.volume.volume());
        let end = clock.monotonic() + time;
        let mut due = self.timer.lock();
        while clock.monotonic() < end {
            let now = clock.monotonic();
            let next = end.min(*due).max(now);
            clock.advance(next - now);
            self.ledger.note(Note::Time(next));
            if next == *due {
                if self.fault != Fault::NoTimer {
                    volume.background().map_err(io::Error::other)?;
                }
                *due = next + volume.next_background();
            }
        }
        Ok(())
    }
}
