//! How full the delta zones are.
//!
//! Locks: none is held from one file to the next; each inode block is looked at by itself.

use super::layer::DeltaPages;
use crate::stats::ZoneStats;
use medfs_format::delta::{Record, ZONE_HEADER_SIZE};

impl DeltaPages<'_> {
    /// The zones of the files in memory. Damaged ones are left out.
    pub(crate) fn zone_stats(&self) -> ZoneStats {
        let mut stats = ZoneStats::default();
        if !self.is_delta_volume() {
            return stats;
        }
        for inode in self.inodes.loaded() {
            let Some(zone) = inode.node.read(|d| self.zone_range(&d.block)) else { continue };
            let used = |records: &[Record<'_>]| records.iter().map(Record::size).sum::<usize>();
            let Ok((count, used)) = self.zone(&inode).with_records(|r| (r.len(), used(r))) else { continue };
            stats.files += 1;
            stats.deltas += count as u64;
            stats.bytes += zone.len() as u64;
            stats.used += (ZONE_HEADER_SIZE + used) as u64;
        }
        stats
    }
}
