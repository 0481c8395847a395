//! The engine as a subject of the harnesses.

use crate::subject::{Counts, FileSystem, Mounter};
use medfs::{Clock, Files, Ino, ManualClock, MountOptions, Result, Timestamp, Volume};
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
    fn checkpoint(&self) -> Result<()> {
        self.checkpoint()
    }
    fn sync_app(&self, ino: Ino) -> Result<()> {
        Volume::sync_app(self, ino)
    }
    fn idle(&self) -> Result<()> {
        // Its look at the clock ends what was wanted before.
        self.background()?;
        self.idle_work(IDLE_PAGES).map(drop)
    }
    fn unmount(&self) -> Result<()> {
        Volume::close(self)
    }
    fn counts(&self) -> Counts {
        let stats = self.stats();
        let d = stats.deltas;
        Counts {
            made: d.made,
            appended: d.appended,
            repeated: d.repeated,
            similar: d.similar,
            taken_back: d.taken_back,
            compact_pages: d.compact_pages,
            released: d.released,
            compressed: stats.fpc.made,
            evicted: d.evicted_by_growth,
            replaced: d.evicted_by_delta,
            outgrown: d.outgrown,
            brought_home: stats.brought_home,
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
            placed: stats.nvram.as_ref().map_or(0, |nvram| nvram.placed),
            unsynced: stats.nvram.as_ref().map_or(0, |nvram| nvram.unsynced),
            left: stats.nvram.as_ref().map_or(0, |nvram| nvram.left_for_kind + nvram.left_for_size),
            compacted: stats.nvram.as_ref().map_or(0, |nvram| nvram.compactions),
        }
    }
}
