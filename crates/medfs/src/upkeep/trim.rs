//! FITRIM: telling the device which blocks are free.

use crate::error::{Posix, Result};
use crate::file_ops::FileOps;
use medfs_format::{BLOCK_SIZE, BLOCKS_PER_SEG};

/// Discards free runs of a byte range; see [`crate::Volume::trim`]. A checkpoint comes first, so that what was freed
/// is included; each segment is discarded under the segments' lock, so that no log moves in meanwhile.
pub(crate) fn trim(fs: &FileOps, start: u64, len: u64, min_len: u64) -> Result<u64> {
    let block = BLOCK_SIZE as u64;
    if start >= fs.geo.block_count * block || len < block {
        return Err(Posix::InvalidArgument.into());
    }
    fs.check_writable()?;
    fs.checkpoint_now()?;
    let first = (start / block).max(u64::from(fs.geo.main_blkaddr));
    let end = (start.saturating_add(len) / block)
        .min(u64::from(fs.geo.main_blkaddr) + u64::from(fs.geo.main_blocks()));
    if first >= end {
        return Ok(0);
    }
    let min = (min_len.div_ceil(block)).clamp(1, u64::from(BLOCKS_PER_SEG)) as u32;
    let mut blocks = 0;
    for segno in fs.geo.segno(first as u32)..=fs.geo.segno(end as u32 - 1) {
        let mut segs = fs.segs.lock();
        for (addr, count) in segs.free_runs(&fs.io, segno, min)? {
            let from = u64::from(addr).max(first);
            let to = (u64::from(addr) + u64::from(count)).min(end);
            if from < to {
                fs.io.discard(from as u32, (to - from) as u32)?;
                blocks += to - from;
            }
        }
    }
    Ok(blocks * block)
}
