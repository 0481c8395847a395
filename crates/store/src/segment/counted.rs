//! Whether the SIT is that of the checkpoint, by what this counts.
//!
//! Purpose: a mount that may write must not take blocks for free that are in use, where the SIT has lost some or is
//! older. Invariant: what cannot be read of the SIT may hold any number of nodes. The kernel's mount reads all of it,
//! too.

use super::{LOST, Segments};
use crate::error::{Error, Result};
use crate::io::Io;
use crate::journals::counts_segments;
use medfs_format::checkpoint::RawCheckpoint;
use medfs_format::sit::ENTRIES_PER_BLOCK;
use medfs_format::summary::{LOG_COUNT, Log};
use medfs_format::{BLOCKS_PER_SEG, FormatError, Geometry, Structure};

/// `Corrupt` where the SIT is not that of the checkpoint, by the nodes and free segments that this counts, or an entry
/// is none.
pub(crate) fn check(segs: &mut Segments, io: &Io, header: &RawCheckpoint) -> Result<()> {
    segs.learn_all(io);
    check_entries(segs, io)?;
    let lost = segs.known.iter().filter(|&&word| word == LOST).count() as u64;
    let of_nodes = |word: u16| word != LOST && (word >> 11) as u8 & 0xf >= Log::HotNode as u8;
    let in_use = segs.known.iter().filter(|&&word| of_nodes(word)).map(|word| u64::from(word & 0x3ff));
    let (nodes, counted) = (in_use.sum::<u64>(), u64::from(header.valid_node_count.get()));
    let free = (0..segs.geo.segment_count_main).filter(|&segno| segs.is_free_known(segno)).count() as u64;
    let (counted_free, slack) = (u64::from(header.free_segment_count.get()), miscounted(&segs.geo));
    let (field, what) = if nodes > counted || nodes + lost * u64::from(BLOCKS_PER_SEG) < counted {
        ("valid_node_count", format!("{counted}, and {nodes} are in use by the SIT"))
    } else if free > counted_free + slack || free + lost + slack < counted_free {
        ("free_segment_count", format!("{counted_free}, and {free} are free by the SIT"))
    } else {
        return Ok(());
    };
    let what = format!("{what}: this is older, or has lost blocks in use, and writing would go over some");
    Err(FormatError::corrupt(Structure::Checkpoint, header.checkpoint_ver.get(), field, what).into())
}

/// The error of the first entry that is none: what it had in use is not to be guessed.
fn check_entries(segs: &mut Segments, io: &Io) -> Result<()> {
    for index in 0..segs.geo.sit_blocks() {
        let first = index as usize * ENTRIES_PER_BLOCK;
        if segs.known[first] == LOST
            && let Err(error @ Error::Corrupt(_)) = segs.load(io, index, 1)
        {
            return Err(error);
        }
    }
    Ok(())
}

/// By how many free segments `mkfs.f2fs` counts wrong where sections or zones are larger than a segment.
fn miscounted(geo: &Geometry) -> u64 {
    match counts_segments(geo) {
        true => 0,
        false => LOG_COUNT as u64 * u64::from(geo.segs_per_sec) * u64::from(geo.secs_per_zone),
    }
}
