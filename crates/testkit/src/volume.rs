//! The engine as a subject of the harnesses.

use crate::subject::{Counts, FileSystem, Mounter};
use medfs::{
    Attr, Clock, DirEntry, FallocateMode, FileFlags, Ino, ManualClock, MountOptions, NewFile, RenameFlags,
    Result, Seek, SetAttr, Timestamp, Volume, XattrMode,
};
use medfs_device::BlockDevice;
use std::sync::Arc;
use std::time::Duration;

/// Pages that a step of idle work may restore: fewer than some files have.
const IDLE_PAGES: u64 = 8;

/// A mounter of volumes with these options and this clock.
pub fn mounter(options: MountOptions, clock: Arc<ManualClock>) -> Mounter {
    mounter_over(options, clock, |device| device)
}

/// The same with something between volume and device.
pub fn mounter_over(
    options: MountOptions,
    clock: Arc<ManualClock>,
    between: impl Fn(Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> + Send + Sync + 'static,
) -> Mounter {
    Arc::new(move |device| {
        let clock: Arc<dyn Clock> = clock.clone();
        Ok(Arc::new(Volume::open(between(device), options.clone(), clock)?))
    })
}

/// A mounter whose volumes each have a clock of their own, which goes on by `step` whenever it is looked at:
/// time passes, and the same operations see the same times.
pub fn mounter_in_time(options: MountOptions, step: Duration) -> Mounter {
    Arc::new(move |device| {
        let clock = Arc::new(SteppingClock { time: ManualClock::new(START), step });
        Ok(Arc::new(Volume::open(device, options.clone(), clock)?))
    })
}

struct SteppingClock {
    time: ManualClock,
    step: Duration,
}

impl Clock for SteppingClock {
    fn now(&self) -> Timestamp {
        self.time.now()
    }
    fn monotonic(&self) -> Duration {
        self.time.advance(self.step);
        self.time.monotonic()
    }
}

const START: Timestamp = Timestamp { secs: 1_720_000_000, nanos: 0 };

/// A clock for tests: stands at some moment of 2024 until it is moved.
pub fn test_clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(START))
}

impl FileSystem for Volume {
    fn root(&self) -> Ino {
        self.root()
    }
    fn hold(&self, ino: Ino) -> Result<()> {
        self.hold(ino, 1)
    }
    fn release(&self, ino: Ino) {
        self.release(ino, 1);
    }
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.lookup(parent, name)
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.getattr(ino)
    }
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        self.setattr(ino, set)
    }
    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr> {
        self.create(parent, name, new)
    }
    fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr> {
        self.tmpfile(parent, new)
    }
    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8]) -> Result<Attr> {
        self.symlink(parent, name, target, 0, 0)
    }
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.readlink(ino)
    }
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.link(ino, parent, name)
    }
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.unlink(parent, name)
    }
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.rmdir(parent, name)
    }
    fn rename(&self, parent: Ino, name: &[u8], to: Ino, to_name: &[u8], flags: RenameFlags) -> Result<()> {
        self.rename(parent, name, to, to_name, flags)
    }
    fn readdir(&self, ino: Ino, position: u64, limit: usize) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        self.readdir(ino, position, &mut |entry| {
            let room = entries.len() < limit;
            if room {
                entries.push(entry);
            }
            room
        })?;
        Ok(entries)
    }
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        self.read(ino, offset, buf)
    }
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        self.write(ino, offset, data)
    }
    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.fallocate(ino, mode, offset, len)
    }
    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        self.seek(ino, offset, whence)
    }
    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        self.copy_range(from, from_offset, to, to_offset, len)
    }
    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        self.fsync(ino, datasync)
    }
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        self.getxattr(ino, name)
    }
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        self.listxattr(ino)
    }
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        self.setxattr(ino, name, value, mode)
    }
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        self.removexattr(ino, name)
    }
    fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()> {
        self.set_flags(ino, flags)
    }
    fn atomic_start(&self, ino: Ino) -> Result<()> {
        self.atomic_start(ino)
    }
    fn atomic_commit(&self, ino: Ino) -> Result<()> {
        self.atomic_commit(ino)
    }
    fn atomic_abort(&self, ino: Ino) -> Result<()> {
        self.atomic_abort(ino)
    }
    fn sync(&self) -> Result<()> {
        self.sync()
    }
    fn checkpoint(&self) -> Result<()> {
        self.checkpoint()
    }
    fn background(&self) -> Result<()> {
        self.background()
    }
    fn idle(&self) -> Result<()> {
        // Its look at the clock ends what was wanted before.
        self.background()?;
        self.idle_work(IDLE_PAGES).map(drop)
    }
    fn close(&self) -> Result<()> {
        self.close()
    }
    fn fsync_many(&self, files: &[Ino], datasync: bool) -> Result<()> {
        self.fsync_many(files, datasync)
    }
    fn counts(&self) -> Counts {
        let stats = self.stats();
        let d = stats.deltas;
        Counts {
            made: d.made,
            appended: d.appended,
            repeated: d.repeated,
            compact_pages: d.compact_pages,
            released: d.released,
            compressed: stats.fpc.made,
            evicted: d.evicted_by_growth,
            replaced: d.evicted_by_delta,
            outgrown: d.outgrown,
            restored: stats.restored.pages,
            moved: stats.restored.moved,
            cleaned: stats.gc_sections,
            cleaned_for_space: stats.gc_foreground,
            shared: stats.shared_inodes,
            clusters: stats.compress.clusters,
            journaled: stats.nvram.as_ref().map_or(0, |nvram| nvram.records),
            from_parts: stats.nvram.as_ref().map_or(0, |nvram| nvram.from_parts),
            revoked: stats.nvram.as_ref().map_or(0, |nvram| nvram.revoked),
            rested: stats.nvram.as_ref().map_or(0, |nvram| nvram.flushed_first),
            left: stats.nvram.as_ref().map_or(0, |nvram| nvram.left_for_kind + nvram.left_for_size),
        }
    }
}
