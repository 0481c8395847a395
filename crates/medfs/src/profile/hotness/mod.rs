//! Hcluster: which files are read and written often (MedFS, section 4.2.1).
//!
//! Calls of read and write are counted for each file in windows of time (the paper's T, 60 s; `hot_window=`).
//! The average of a file's windows, each weighing half of the next one, is a point on a logarithmic scale,
//! and K-means divides the points into four groups. A file is judged by the nearest centroid, in constant
//! time; the centroids move off the critical path, when the volume is idle ([`Hcluster::recluster`]).
//!
//! Counted is what reaches the engine. The kernel's page cache sits above a mount: a file that is read a thousand times
//! from there is read once here, which is what a delta costs too. Many small writes between two fsyncs are one here.
//!
//! Rules beside the centroids:
//! - A file that nothing is known of is cold.
//! - In the first window in which a file is seen, it is write-hot and read-cold once it was written more than
//!   [`FEW_WRITES`] times and never read.
//! - A file whose counts in the present window are above its average is judged by these: what gets busy is hot at once,
//!   what ceases to be cools down over the next windows.
//!
//! Beside that the habits of a file are kept ([`crate::profile::habits`]), from its first write on: one look
//! finds both.
//!
//! Nothing of this is on disk: after a mount every file is new. With a window of 60 s that costs a minute of knowledge.
//!
//! Invariants: no more than the given number of files is remembered, and noting or judging one takes bounded time,
//! whatever the others do. The same calls at the same times make the same groups.
//! Locks: each shard's mutex and `history`, which are leaves; no two are held at once.

mod files;
mod kmeans;

use crate::profile::habits::{FileProfile, Standing, Wrote};
use crate::stats::{Group, HotnessStats};
use files::Shard;
use kmeans::{Centroids, Point};
use medfs_format::Ino;
use medfs_store::Clock;
use medfs_sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Writes up to which a file that was never read before and is not read now is not write-hot by this alone.
pub const FEW_WRITES: u32 = 4;
/// Files remembered on a volume: about 7 MiB.
pub(crate) const MOST_FILES: usize = 1 << 16;
/// Parts of the files that threads use independently.
const SHARDS: usize = 16;

/// How busy a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Hotness {
    /// Seldom read and seldom written (the paper's read-cold-write-cold).
    Cold,
    /// Often read, seldom written (read-hot-write-cold).
    ReadHot,
    /// Seldom read, often written (read-cold-write-hot): what compact pages are for.
    WriteHot,
    /// Often read and often written (read-hot-write-hot).
    BothHot,
}

impl Hotness {
    /// All four, by [`Hotness::index`].
    pub const ALL: [Hotness; 4] = [Hotness::Cold, Hotness::ReadHot, Hotness::WriteHot, Hotness::BothHot];

    /// Place in [`Hotness::ALL`].
    pub fn index(self) -> usize {
        self as usize
    }

    /// Whether the file is read often.
    pub fn is_read_hot(self) -> bool {
        matches!(self, Hotness::ReadHot | Hotness::BothHot)
    }

    /// Whether the file is written often.
    pub fn is_write_hot(self) -> bool {
        matches!(self, Hotness::WriteHot | Hotness::BothHot)
    }
}

/// The files of a volume and their groups.
#[derive(Debug)]
pub struct Hcluster {
    window: Duration,
    /// Number of the present window: the clock's time, in windows.
    now: AtomicU32,
    /// The clock's time in seconds.
    seconds: AtomicU32,
    shards: [Mutex<Shard>; SHARDS],
    /// One point each. Who reads them while they change sees some old and some new ones, which does no harm.
    centroids: [AtomicU64; 4],
    history: Mutex<History>,
}

/// What became of the groups.
#[derive(Debug, Default)]
struct History {
    /// The window in which they were last made anew.
    last: Option<u32>,
    sizes: [u64; 4],
    count: u64,
    elapsed: Duration,
    longest: Duration,
}

impl Hcluster {
    /// Remembers `most_files` files at most; `window` is at least a millisecond long, and the first one begins `now`.
    pub fn new(window: Duration, most_files: usize, now: Duration) -> Hcluster {
        let per_shard = most_files.div_ceil(SHARDS);
        let hcluster = Hcluster {
            window: window.max(Duration::from_millis(1)),
            now: AtomicU32::new(0),
            seconds: AtomicU32::new(0),
            shards: std::array::from_fn(|_| Mutex::new(Shard::new(per_shard))),
            centroids: Centroids::default().0.map(|p| AtomicU64::new(packed(p))),
            history: Mutex::default(),
        };
        hcluster.tick(now);
        hcluster
    }

    /// Notes a call that reads so many pages of a file, one at least, from page `first` on.
    pub fn note_read(&self, ino: Ino, first: u64, pages: u64) {
        self.shard(ino).lock().note_read(ino, self.now.load(Ordering::Relaxed), first, pages);
    }

    /// Notes a call that writes to a file; what is known of the file where it is to be judged now.
    pub fn note_write(&self, ino: Ino, wrote: &Wrote) -> Option<FileProfile> {
        let (window, seconds) = (self.now.load(Ordering::Relaxed), self.seconds.load(Ordering::Relaxed));
        self.shard(ino).lock().note_write(ino, window, seconds, wrote)
    }

    /// Notes an fsync of a file that was written or read.
    pub fn note_fsync(&self, ino: Ino) {
        self.shard(ino).lock().change_habits(ino, |habits| habits.note_fsync());
    }

    /// Notes that such a file becomes shorter.
    pub fn note_truncation(&self, ino: Ino) {
        self.shard(ino).lock().change_habits(ino, |habits| habits.note_truncation());
    }

    /// What is known of a file that was written.
    pub fn profile(&self, ino: Ino) -> Option<FileProfile> {
        self.shard(ino).lock().profile(ino, self.now.load(Ordering::Relaxed))
    }

    /// What was judged of a file.
    pub fn standing(&self, ino: Ino) -> Standing {
        self.shard(ino).lock().standing(ino)
    }

    /// Keeps what was judged of a file that is remembered.
    pub fn judged(&self, ino: Ino, standing: Standing) {
        self.shard(ino).lock().change_habits(ino, |habits| habits.set_standing(standing));
    }

    /// How busy a file is.
    pub fn of(&self, ino: Ino) -> Hotness {
        let (centroids, now) = (self.centroids(), self.now.load(Ordering::Relaxed));
        self.shard(ino).lock().hotness(ino, now, &centroids)
    }

    /// Whether most pages that are read of a file follow the one that was read before, in the same call or
    /// the one before.
    pub fn is_read_in_order(&self, ino: Ino) -> bool {
        self.shard(ino).lock().is_read_in_order(ino, self.now.load(Ordering::Relaxed))
    }

    /// Forgets a file that is gone: its number may become another's.
    pub fn forget(&self, ino: Ino) {
        self.shard(ino).lock().forget(ino);
    }

    /// Says how late it is (monotonic). Called several times in a window; later windows begin then.
    pub fn tick(&self, now: Duration) {
        let window = now.as_millis() / self.window.as_millis();
        // The last number is no window.
        let window = u32::try_from(window).unwrap_or(u32::MAX).min(u32::MAX - 1);
        self.now.fetch_max(window, Ordering::Relaxed);
        self.seconds.fetch_max(now.as_secs().try_into().unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Moves the centroids to where the files are now; `false` where they did so in this window already. Takes time in
    /// proportion to the files, and holds each shard for its part of them.
    pub fn recluster(&self, clock: &dyn Clock) -> bool {
        let started = clock.monotonic();
        self.tick(started);
        let now = self.now.load(Ordering::Relaxed);
        if self.history.lock().last.replace(now) == Some(now) {
            return false;
        }
        let mut points: Vec<Point> = Vec::new();
        for shard in &self.shards {
            shard.lock().end_window(now, &mut points);
        }
        let mut centroids = self.centroids();
        centroids.update(&points);
        for (stored, new) in self.centroids.iter().zip(centroids.0) {
            stored.store(packed(new), Ordering::Relaxed);
        }
        let elapsed = clock.monotonic().saturating_sub(started);
        let mut history = self.history.lock();
        history.sizes = centroids.sizes(&points);
        history.count += 1;
        history.elapsed += elapsed;
        history.longest = history.longest.max(elapsed);
        true
    }

    /// What is known.
    pub fn stats(&self) -> HotnessStats {
        let centroids = self.centroids();
        let history = self.history.lock();
        let group = |hotness: Hotness| {
            let [reads, writes] = centroids.0[hotness.index()].times();
            Group { files: history.sizes[hotness.index()], reads, writes }
        };
        let mut stats = HotnessStats {
            window_millis: self.window.as_millis() as u64,
            cold: group(Hotness::Cold),
            read_hot: group(Hotness::ReadHot),
            write_hot: group(Hotness::WriteHot),
            both_hot: group(Hotness::BothHot),
            reclusterings: history.count,
            recluster_micros: history.elapsed.as_micros() as u64,
            recluster_micros_max: history.longest.as_micros() as u64,
            ..HotnessStats::default()
        };
        drop(history);
        for shard in &self.shards {
            let shard = shard.lock();
            stats.files += shard.len() as u64;
            stats.reads += shard.totals.reads;
            stats.writes += shard.totals.writes;
            stats.pages_read += shard.totals.pages_read;
            stats.pages_written += shard.totals.pages_written;
        }
        stats
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[(ino.wrapping_mul(0x9E37_79B1) >> 28) as usize % SHARDS]
    }

    fn centroids(&self) -> Centroids {
        let unpacked = |packed: &AtomicU64| {
            let bits = packed.load(Ordering::Relaxed);
            Point { reads: f32::from_bits((bits >> 32) as u32), writes: f32::from_bits(bits as u32) }
        };
        Centroids(std::array::from_fn(|n| unpacked(&self.centroids[n])))
    }
}

fn packed(point: Point) -> u64 {
    u64::from(point.reads.to_bits()) << 32 | u64::from(point.writes.to_bits())
}
