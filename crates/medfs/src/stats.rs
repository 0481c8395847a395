//! Statistics of a mounted volume.

pub use crate::commit::account::{AppStats, CommitReason};
pub use crate::commit::adaptive::AdaptiveStats;
pub use crate::commit::nvram::NvramStats;
pub use crate::commit::survivor::SurvivorStats;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($name:ident)*) => {
        /// Counters that the engine's parts keep, each under the name that it has in [`Stats`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counters {
            /// Puts what was counted into the fields of the same names.
            pub(crate) fn fill(&self, stats: &mut Stats) {
                $(stats.$name = self.$name.load(Ordering::Relaxed);)*
            }
        }
    };
}

counters! {
    checkpoints
    fsyncs
    fsyncs_dirty
    fsyncs_with_checkpoint
    dir_fsyncs_saved
    sealed
    flushed_first
    in_place_blocks
    gc_sections
    gc_foreground
    brought_home
    recovered_inodes
    unkept_nodes
    orphans_freed
    damage_passed
}

impl Counters {
    pub(crate) fn add(counter: &AtomicU64, n: u64) {
        counter.fetch_add(n, Ordering::Relaxed);
    }
}

/// Blocks of 4 KiB written to the device, each counted once under its cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct Written {
    /// File content and directory entries.
    pub data: u64,
    /// Node blocks.
    pub node: u64,
    /// Compact pages.
    pub compact: u64,
    /// Checkpoint, SIT, NAT, SSA, superblock.
    pub meta: u64,
    /// Blocks moved by cleaning.
    pub gc: u64,
}

impl Written {
    /// All causes together.
    pub fn total(&self) -> u64 {
        self.data + self.node + self.compact + self.meta + self.gc
    }
}

/// What became of small updates since the volume was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct DeltaStats {
    /// Pages kept as deltas instead of being written.
    pub made: u64,
    /// Bytes of these deltas.
    pub bytes: u64,
    /// Pages rebuilt from base and delta.
    pub rebuilt: u64,
    /// Bases that were needed.
    pub bases: u64,
    /// Those that had to be read from the device.
    pub bases_read: u64,
    /// Deltas that gave way to addresses of a growing file (MedFS, section 4.1.3, case 1).
    pub evicted_by_growth: u64,
    /// Deltas that gave way to others (case 2).
    pub evicted_by_delta: u64,
    /// Deltas that were no longer worth being one (case 3).
    pub outgrown: u64,
    /// Compact pages made (section 4.2).
    pub compact_pages: u64,
    /// Pages that became deltas before they had a block.
    pub appended: u64,
    /// Pages that became deltas against blocks of other files.
    pub repeated: u64,
    /// Pages that became deltas against other blocks of their file that look like them.
    pub similar: u64,
    /// Pages of files that were cut off and written anew, that got the block back which they had.
    pub taken_back: u64,
    /// Pages written as a whole because a block of another file that they were made from had to go.
    pub released: u64,
}

/// Delta zones of the files in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct ZoneStats {
    /// Files that have a zone.
    pub files: u64,
    /// Deltas in these zones.
    pub deltas: u64,
    /// Bytes of the zones.
    pub bytes: u64,
    /// Bytes of them that deltas and their headers take.
    pub used: u64,
}

/// Pages compressed alone (`compress=fpc`; MedFS, section 6.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct FpcStats {
    /// Pages compressed instead of being written, since the volume was opened.
    pub made: u64,
    /// Bytes these took in shared blocks.
    pub bytes: u64,
    /// Blocks that such pages had before, and left.
    pub freed: u64,
    /// Pages written as a whole because two of them would not share a block.
    pub too_large: u64,
    /// Pages of the files in memory that are compressed now.
    pub held: u64,
    /// Bytes that these pages have more than their compressed ones.
    pub saved_bytes: u64,
}

/// What background restoration (BGRes; MedFS, section 4.2.1) has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct RestoreStats {
    /// Rounds over the files that have something to restore.
    pub rounds: u64,
    /// Files that were restored, each time counted.
    pub files: u64,
    /// Pages of these that were deltas and were written as blocks.
    pub pages: u64,
    /// Their neighbours that were written again with them, so that a window lies in one piece.
    pub moved: u64,
}

/// What became of compressed clusters since the volume was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Default)]
pub struct CompressStats {
    /// Clusters written compressed.
    pub clusters: u64,
    /// Blocks that were not written because of it.
    pub saved: u64,
    /// Whole clusters written page by page, as compression would have saved no block.
    pub kept_plain: u64,
    /// Clusters expanded.
    pub expanded: u64,
}

/// State and history of a volume since it was opened. Counts are blocks of 4 KiB unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize, Default)]
pub struct Stats {
    /// Blocks written, by cause.
    pub written: Written,
    /// Bytes written in all.
    pub written_bytes: u64,
    /// Blocks read.
    pub read: u64,
    /// Flushes sent to the device.
    pub flushes: u64,
    /// Blocks discarded.
    pub discarded: u64,
    /// Checkpoints written.
    pub checkpoints: u64,
    /// Fsyncs that were not put off: calls of front ends, and those that the engine makes itself.
    pub fsyncs: u64,
    /// Of those of front ends and of synchronous writes, the ones that found something to make durable: at a block
    /// each, the least that could be written. Fsyncs of several files at once are not among them.
    pub fsyncs_dirty: u64,
    /// Fsyncs that needed a checkpoint.
    pub fsyncs_with_checkpoint: u64,
    /// fsync calls of changed directories that took no checkpoint, as roll-forward brings the changes back.
    pub dir_fsyncs_saved: u64,
    /// Writes of fsyncs' last nodes whose seal saved a flush before them.
    pub sealed: u64,
    /// Those that a flush came before.
    pub flushed_first: u64,
    /// Node blocks that fsyncs of several files share.
    pub shared_nodes: u64,
    /// Inodes in these blocks.
    pub shared_inodes: u64,
    /// Data blocks overwritten in place.
    pub in_place_blocks: u64,
    /// What waits to be durable, with `durability=adaptive`.
    pub adaptive: Option<AdaptiveStats>,
    /// The same of each app, with `apps=`.
    pub apps: Option<Vec<AppStats>>,
    /// Whether power may fail, so that nothing is put off.
    pub low_power: bool,
    /// What the log that outlives the daemon holds, with `durability=adaptive`.
    pub survivor: Option<SurvivorStats>,
    /// What the NVRAM holds and took, with `nvram=`.
    pub nvram: Option<NvramStats>,
    /// Deltas.
    pub deltas: DeltaStats,
    /// Zones of the files in memory.
    pub zones: ZoneStats,
    /// Pages compressed alone.
    pub fpc: FpcStats,
    /// Hotness of files.
    pub hotness: HotnessStats,
    /// Restored files.
    pub restored: RestoreStats,
    /// Compressed clusters.
    pub compress: CompressStats,
    /// Sections cleaned.
    pub gc_sections: u64,
    /// Of them, for want of space.
    pub gc_foreground: u64,
    /// Pages of reserved files that idle work brought home.
    pub brought_home: u64,
    /// Inodes that roll-forward restored at mount.
    pub recovered_inodes: u64,
    /// Nodes of the roll-forward log that the device lost or changed after it had ended a flush of them, as found by
    /// their seals at the mount: the device does not keep what a flush promises, or is damaged.
    pub unkept_nodes: u64,
    /// Orphan inodes freed at mount.
    pub orphans_freed: u64,
    /// Times that work which no caller waits for met blocks that cannot be read or are wrong, and went on without them.
    pub damage_passed: u64,
    /// Valid blocks (reserved ones included).
    pub valid_blocks: u64,
    /// Valid nodes.
    pub valid_nodes: u32,
    /// Valid inodes.
    pub valid_inodes: u32,
    /// Free segments.
    pub free_segments: u32,
    /// Pages waiting to be written.
    pub dirty_pages: u64,
    /// Nodes waiting to be written.
    pub dirty_nodes: u64,
    /// Clean pages in the cache.
    pub cached_pages: u64,
    /// Nodes in the cache.
    pub cached_nodes: u64,
    /// Inode lookups.
    pub inode_lookups: u64,
    /// Those answered from memory.
    pub inode_hits: u64,
    /// Page lookups answered from memory.
    pub page_hits: u64,
    /// Page lookups that were not.
    pub page_misses: u64,
    /// Milliseconds since the volume was opened.
    pub open_millis: u64,
    /// Bytes of the volume.
    pub volume_bytes: u64,
    /// KiB written to the volume in its life, as F2FS counts them: up to the last unmount, and since the
    /// volume was opened.
    pub kbytes_written: u64,
    /// The mount options in force, as they would be given to have them.
    pub options: Vec<String>,
    /// Whether the volume takes no more writes.
    pub read_only: bool,
    /// The error of the device that turned the volume read-only, where one did.
    pub failure: Option<String>,
}

/// A group of files when the centroids last moved.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct Group {
    /// Files in it.
    pub files: u64,
    /// Reads of its centroid in a window.
    pub reads: f32,
    /// Writes of its centroid in a window.
    pub writes: f32,
}

/// What is known of the files of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Default)]
pub struct HotnessStats {
    /// Length of a window in milliseconds.
    pub window_millis: u64,
    /// Files remembered now.
    pub files: u64,
    /// Seldom read, seldom written.
    pub cold: Group,
    /// Often read, seldom written.
    pub read_hot: Group,
    /// Seldom read, often written.
    pub write_hot: Group,
    /// Often read, often written.
    pub both_hot: Group,
    /// Times the groups were made anew.
    pub reclusterings: u64,
    /// Microseconds that all of them took.
    pub recluster_us: u64,
    /// Microseconds that the longest took.
    pub recluster_us_max: u64,
    /// Calls that read.
    pub reads: u64,
    /// Pages they asked for.
    pub pages_read: u64,
    /// Calls that wrote.
    pub writes: u64,
    /// Pages they changed.
    pub pages_written: u64,
}
