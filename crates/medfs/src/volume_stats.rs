//! The counters of a volume, put together from those of its rooms.
//!
//! Locks: leaves, one after the other: the numbers need not be of one moment.

use crate::stats::{Stats, Written};
use crate::volume::Volume;
use medfs_device::Cause;
use medfs_format::BLOCK_SIZE;
use medfs_store::FreeFor;
use std::sync::atomic::Ordering;

impl Volume {
    /// What happened since the volume was opened.
    pub fn stats(&self) -> Stats {
        let fs = &self.commit;
        let get = |c: &std::sync::atomic::AtomicU64| c.load(Ordering::Relaxed);
        let written = |cause: Cause| get(&fs.io.counters.written[cause as usize]);
        let written = Written {
            data: written(Cause::Data),
            node: written(Cause::Node),
            compact: written(Cause::Compact),
            meta: written(Cause::Meta),
            gc: written(Cause::Gc),
        };
        let counts = fs.space.counts();
        // Given back before other locks are taken.
        let free_segments = fs.segs.lock().free.segments(FreeFor::Volume);
        let (shared_nodes, shared_inodes) = self.commit.ways.log.group.shared();
        let (inode_hits, inode_lookups) = fs.inodes.lookups();
        let mut stats = Stats {
            written,
            written_bytes: written.total() * BLOCK_SIZE as u64,
            read: get(&fs.io.counters.read),
            flushes: get(&fs.io.counters.flushes),
            discarded: get(&fs.io.counters.discarded),
            shared_nodes,
            shared_inodes,
            apps: self.commit.app_stats(),
            adaptive: self.commit.adaptive_stats(),
            low_power: self.commit.low_power.load(Ordering::Relaxed),
            survivor: self.commit.survivor_stats(),
            nvram: self.commit.ways.nvram.as_ref().map(|nvram| nvram.stats(&self.commit)),
            deltas: fs.deltas.counters.stats(&fs.base_cache),
            zones: fs.deltas().zone_stats(),
            fpc: fs.deltas().fpc_stats(),
            hotness: fs.profiles.stats(),
            restored: self.upkeep.restored(),
            compress: fs.clusters.blocks.counters.stats(),
            valid_blocks: counts.valid_blocks,
            valid_nodes: counts.valid_nodes,
            valid_inodes: counts.valid_inodes,
            free_segments,
            dirty_pages: fs.pages.dirty() as u64,
            dirty_nodes: fs.nodes.dirty_count() as u64,
            cached_pages: fs.pages.clean() as u64,
            cached_nodes: fs.nodes.cached() as u64,
            inode_lookups,
            inode_hits,
            page_hits: get(&fs.pages.hits),
            page_misses: get(&fs.pages.misses),
            open_millis: fs.open_for().as_millis() as u64,
            volume_bytes: fs.geo.block_count * BLOCK_SIZE as u64,
            kbytes_written: fs.kbytes_written(),
            options: fs.in_force.clone(),
            read_only: self.is_read_only(),
            failure: fs.io.failure().map(str::to_owned),
            ..Stats::default()
        };
        fs.counters.fill(&mut stats);
        stats
    }
}
