//! Hcluster: which files are read and written often (MedFS, section 4.2.1).
//!
//! Calls of read and write are counted for each file in windows of time (the paper's T, 60 s; `hot_window=`).
//! The average of a file's windows, each weighing half of the next one, is a point on a logarithmic scale,
//! and K-means divides the points into four groups. A file is judged by the nearest centroid, in constant
//! time; the centroids move off the critical path, when the volume is idle ([`Hcluster::update`]).
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
//! Nothing of this is on disk: after a mount every file is new. With a window of 60 s that costs a minute of knowledge.
//!
//! Invariant: judging a file takes constant time. Locks: `history`, which is a leaf.

mod kmeans;

use super::file_profile::Busyness;
use crate::stats::{Group, HotnessStats};
use kmeans::Centroids;
pub(super) use kmeans::Point;
use medfs_store::Clock;
use medfs_sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Writes up to which a file that was never read before and is not read now is not write-hot by this alone.
pub const FEW_WRITES: u32 = 4;

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

/// The groups that files are divided into.
#[derive(Debug)]
pub(super) struct Hcluster {
    /// One point each. Who reads them while they change sees some old and some new ones, which does no harm.
    centroids: [AtomicU64; 4],
    history: Mutex<History>,
}

impl Default for Hcluster {
    fn default() -> Hcluster {
        Hcluster {
            centroids: Centroids::default().0.map(|p| AtomicU64::new(packed(p))),
            history: Mutex::default(),
        }
    }
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
    /// How busy a file is of which so much is known.
    pub(super) fn judge(&self, busyness: Option<Busyness>) -> Hotness {
        match busyness {
            Some(Busyness { new_and_unread: Some(writes), .. }) if writes > FEW_WRITES => Hotness::WriteHot,
            Some(busyness) => self.centroids().nearest(busyness.point),
            None => Hotness::Cold,
        }
    }

    /// Moves the centroids to where the files are in a window, whose points are collected; `false` where it
    /// did so in this window already.
    pub(super) fn update(
        &self,
        window: u32,
        clock: &dyn Clock,
        collect: impl FnOnce(&mut Vec<Point>),
    ) -> bool {
        let started = clock.monotonic();
        if self.history.lock().last.replace(window) == Some(window) {
            return false;
        }
        let mut points = Vec::new();
        collect(&mut points);
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

    /// The groups, without what is known of the files.
    pub(super) fn stats(&self) -> HotnessStats {
        let centroids = self.centroids();
        let history = self.history.lock();
        let group = |hotness: Hotness| {
            let [reads, writes] = centroids.0[hotness.index()].times();
            Group { files: history.sizes[hotness.index()], reads, writes }
        };
        HotnessStats {
            cold: group(Hotness::Cold),
            read_hot: group(Hotness::ReadHot),
            write_hot: group(Hotness::WriteHot),
            both_hot: group(Hotness::BothHot),
            reclusterings: history.count,
            recluster_us: history.elapsed.as_micros() as u64,
            recluster_us_max: history.longest.as_micros() as u64,
            ..HotnessStats::default()
        }
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
