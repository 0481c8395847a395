//! A checkpoint pack of which one of its two headers is damaged, though the checkpoint was complete: the
//! other header says all.
//!
//! ```text
//! header | payload .. | orphans .. | summaries .. | header again
//! ```
//!
//! The second header is written when everything that the checkpoint names is durable. So where it is there,
//! and the first is damaged or an older one, the checkpoint was complete. The same holds where a part of it is
//! there, as power loss tears a block by sectors, and where nodes were written after the checkpoint. Where the
//! first is there and nothing of the second, its block still holds what was there before, if power was lost on
//! the way; nothing tells then how much of the checkpoint is durable. What no pack has at that place shows that
//! it was being written.

use crate::checkpoint::{ChainVersion, RawCheckpoint, flipped_bit, verify_checksum};
use crate::footer::footer;
use crate::summary::{Log, SUM_TYPE_DATA, SUM_TYPE_NODE};
use crate::{BLOCK_SIZE, BLOCKS_PER_SEG, Block, BlockAddr, Geometry};
use std::collections::HashSet;

/// What power loss leaves whole or as it was.
const SECTOR: usize = 512;

/// Where a summary block has its type. Orphan blocks and free ones have a zero there, and headers a part of
/// their checksum's block.
const TYPE_AT: usize = BLOCK_SIZE - 5;

/// How far a pack's version may be ahead of the other one's; beyond it is no version of the same volume.
pub const MOST_VERSIONS_AHEAD: u64 = 1 << 10;

/// What a version is raised by where a repair has accepted that newer checkpoints are lost: their nodes are then older
/// ones. An even number keeps a pack's versions odd or even.
pub const BEYOND_LOST: u64 = MOST_VERSIONS_AHEAD / 2;

/// The header that is left of a pack.
#[derive(Debug, Clone)]
pub struct HeaderLeft {
    /// It.
    pub block: Box<Block>,
    /// Address of the damaged one.
    pub lost: BlockAddr,
    /// Whether power loss leaves the damaged one so.
    pub torn: bool,
}

impl HeaderLeft {
    /// The header that counts of pack `index`, where one is damaged and the checkpoint was complete, and newer than the
    /// version `than` of the other pack; of the first pack also one of the same version, as `sload.f2fs` leaves both.
    /// `read` gives `None` for a block that cannot be read.
    pub fn of<E>(
        g: &Geometry,
        index: usize,
        than: u64,
        read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
    ) -> Result<Option<HeaderLeft>, E> {
        let (start, least) = (g.cp_pack(index), u64::from(index > 0));
        let Some(block) = read(start)?.filter(|block| last_block(block, start, start, g).is_some()) else {
            return Self::last(start, start + BLOCKS_PER_SEG, (least, MOST_VERSIONS_AHEAD), than, g, read);
        };
        let last = start + RawCheckpoint::in_block(&block).cp_pack_total_block_count.get() - 1;
        let other = read(last)?;
        if !(least..MOST_VERSIONS_AHEAD).contains(&version(&block).wrapping_sub(than)) {
            // It is of the checkpoint before the other pack's, unless the write of a newer one was lost. The
            // blocks of a whole pack are all of its time; behind them may be headers of an earlier volume.
            let whole = other.is_some_and(|other| {
                verify_checksum(&other, last).is_ok() && version(&other) == version(&block)
            });
            let end = if whole { last } else { start + BLOCKS_PER_SEG };
            return Self::last(start, end, (1, 2), than, g, read);
        }
        let torn = match other.map_or(Place::Damaged, |found| Place::of(&found, &block)) {
            Place::Damaged => false,
            Place::Torn => true,
            // Nodes name a checkpoint only when it is complete.
            Place::Older if was_followed(g, RawCheckpoint::in_block(&block), crc(&block), read)? => false,
            Place::Older => return Ok(None),
        };
        Ok(Some(HeaderLeft { block, lost: last, torn }))
    }

    /// The header at the end of a pack that lies within an older one, at least as long, whose first header is in the
    /// place of its own: that write was lost. All other blocks of a pack are of its time.
    pub fn inside<E>(
        g: &Geometry,
        index: usize,
        read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
    ) -> Result<Option<HeaderLeft>, E> {
        let start = g.cp_pack(index);
        let first = read(start)?;
        let Some((block, last)) =
            first.and_then(|block| last_block(&block, start, start, g).map(|last| (block, last)))
        else {
            return Ok(None);
        };
        Self::last(start, last + 1, (1, MOST_VERSIONS_AHEAD), version(&block), g, read)
    }

    /// The last block of a pack between its first block and `end`, ahead of the version `than` by as many as
    /// the range says.
    fn last<E>(
        start: BlockAddr,
        end: BlockAddr,
        (least, most): (u64, u64),
        than: u64,
        g: &Geometry,
        read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
    ) -> Result<Option<HeaderLeft>, E> {
        for addr in start + 1..end {
            let Some(block) = read(addr)? else { continue };
            let ahead = version(&block).wrapping_sub(than);
            if (least..most).contains(&ahead) && last_block(&block, addr, start, g) == Some(addr) {
                return Ok(Some(HeaderLeft { block, lost: start, torn: false }));
            }
        }
        Ok(None)
    }

    /// The checkpoint's version.
    pub fn version(&self) -> u64 {
        version(&self.block)
    }
}

/// A header that is left of a damaged pack, the old one or the new: power loss leaves one.
pub fn any_header<E>(
    g: &Geometry,
    index: usize,
    read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
) -> Result<Option<Box<Block>>, E> {
    let start = g.cp_pack(index);
    for addr in start..start + BLOCKS_PER_SEG {
        if let Some(block) = read(addr)?.filter(|block| last_block(block, addr, start, g).is_some()) {
            return Ok(Some(block));
        }
    }
    Ok(None)
}

/// What is in the place of a pack's first block while a repair writes the pack: the header of no volume.
pub const BEING_WRITTEN: &[u8] = b"medfs fsck writes this checkpoint pack";

/// Whether power loss may have torn the header in a first block without a right checksum: its first sector is of
/// this volume, the old one or the new one, or a repair was interrupted. `than` is the version of the other pack.
pub fn is_torn_header(found: &Block, than: u64) -> bool {
    let apart = version(found).wrapping_sub(than) as i64;
    let is_near = version(found) != 0 && apart != 0 && apart.unsigned_abs() < MOST_VERSIONS_AHEAD;
    is_near || found.0.starts_with(BEING_WRITTEN)
}

/// Where the logs of nodes went on at the checkpoint of a header.
fn starts(g: &Geometry, header: &RawCheckpoint) -> [BlockAddr; 3] {
    [Log::HotNode, Log::WarmNode, Log::ColdNode].map(|log| {
        let (segno, offset) = header.curseg(log as usize);
        g.seg_start(segno) + u32::from(offset)
    })
}

/// What was written to a log of nodes after a checkpoint.
struct Written {
    /// The block at which it ends: of another time, one that cannot be read or was met before, or none at all.
    end: BlockAddr,
    /// It ends where the log was written to last, rather than at damage.
    is_whole: bool,
    /// Its last node, if it has one, is of an fsync.
    ends_with_fsync: bool,
}

impl Written {
    /// From a block on, as each node names the next one.
    fn from<E>(
        start: BlockAddr,
        chain: ChainVersion,
        g: &Geometry,
        read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
    ) -> Result<Written, E> {
        let mut met = HashSet::new();
        let mut written = Written { end: start, is_whole: true, ends_with_fsync: true };
        while g.in_main(written.end) {
            let block = read(written.end)?.filter(|_| met.insert(written.end));
            let Some(block) = block else {
                written.is_whole = false;
                break;
            };
            let f = footer(&block);
            if !chain.belongs(f.cp_ver.get()) && chain.flipped_bit(f.cp_ver.get()).is_none() {
                break;
            }
            written.ends_with_fsync = f.is_fsync() || f.nid.get() == g.node_ino;
            written.end = f.next_blkaddr.get();
        }
        Ok(written)
    }
}

/// Whether nodes were written after the checkpoint of a header with this checksum: a later one may have been made.
pub fn was_followed<E>(
    g: &Geometry,
    header: &RawCheckpoint,
    crc: u32,
    read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
) -> Result<bool, E> {
    let chain = ChainVersion::of(header, crc);
    for start in starts(g, header) {
        if read(start)?.is_some_and(|block| chain.belongs(footer(&block).cp_ver.get())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a later checkpoint was begun after that of a header with this checksum, or may have been: what lies behind
/// it in a log of nodes ends with one that no fsync wrote. An fsync marks the last of its nodes, and a checkpoint
/// writes all others that changed; where there are none, the log alone tells what came after.
pub fn was_begun_after<E>(
    g: &Geometry,
    header: &RawCheckpoint,
    crc: u32,
    read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
) -> Result<bool, E> {
    Ok(begun_after(g, header, crc, read)? != Some(false))
}

/// The same, where none of that is lost: a later checkpoint was begun.
pub fn was_surely_begun_after<E>(
    g: &Geometry,
    header: &RawCheckpoint,
    crc: u32,
    read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
) -> Result<bool, E> {
    Ok(begun_after(g, header, crc, read)? == Some(true))
}

/// Whether a later checkpoint was begun; `None` where what tells it is lost.
fn begun_after<E>(
    g: &Geometry,
    header: &RawCheckpoint,
    crc: u32,
    read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
) -> Result<Option<bool>, E> {
    let (chain, mut begun) = (ChainVersion::of(header, crc), Some(false));
    for start in starts(g, header) {
        let written = Written::from(start, chain, g, read)?;
        if !written.is_whole {
            begun = None;
        } else if !written.ends_with_fsync {
            return Ok(Some(true));
        }
    }
    Ok(begun)
}

/// Whether a checkpoint behind that of a header with this checksum was complete: in a log of nodes, behind those that
/// were written after this one, is a node that was written after a newer one. A header that a repair has written to be
/// rolled forward has accepted what is lost behind it.
pub fn was_succeeded<E>(
    g: &Geometry,
    header: &RawCheckpoint,
    crc: u32,
    read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
) -> Result<bool, E> {
    let chain = ChainVersion::of(header, crc);
    if chain.is_of_repair() {
        return Ok(false);
    }
    for start in starts(g, header) {
        let end = Written::from(start, chain, g, read)?.end;
        if !g.in_main(end) {
            continue;
        }
        // In the rest of that segment.
        for addr in end..g.seg_start(g.segno(end)) + BLOCKS_PER_SEG {
            if read(addr)?.is_some_and(|block| chain.is_succeeded_by(&block, g)) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

impl ChainVersion {
    /// Whether a block is a node that was written after a newer checkpoint. Nodes name a checkpoint only when it is
    /// complete, and the versions of a volume begin anywhere: none of an earlier volume is one of the next.
    pub fn is_succeeded_by(self, block: &Block, g: &Geometry) -> bool {
        let f = footer(block);
        let is_node = f.nid.get() < g.max_nid() && g.is_nid(f.ino.get()) && g.in_main(f.next_blkaddr.get());
        let ahead = (f.cp_ver.get() as u32).wrapping_sub(self.number());
        let is_node = is_node && self.flipped_bit(f.cp_ver.get()).is_none();
        is_node && (1..MOST_VERSIONS_AHEAD).contains(&ahead.into())
    }
}

fn version(block: &Block) -> u64 {
    RawCheckpoint::in_block(block).checkpoint_ver.get()
}

/// Where a whole header has its checksum.
fn checksum_at(block: &Block) -> usize {
    (RawCheckpoint::in_block(block).checksum_offset.get() as usize).min(BLOCK_SIZE - 4)
}

fn crc(block: &Block) -> u32 {
    let at = checksum_at(block);
    u32::from_le_bytes(block.0[at..at + 4].try_into().expect("four bytes"))
}

/// Where the pack ends of which this is a header; `None` where it is none.
fn last_block(block: &Block, addr: BlockAddr, start: BlockAddr, g: &Geometry) -> Option<BlockAddr> {
    let header = RawCheckpoint::in_block(block);
    let whole = verify_checksum(block, addr).is_ok() && header.validate(addr, g).is_ok();
    whole.then(|| start + header.cp_pack_total_block_count.get() - 1)
}

/// What is in the place of a pack's last block.
enum Place {
    /// What was there before the checkpoint was made.
    Older,
    /// A part of the last block: power loss may have torn it.
    Torn,
    /// Neither.
    Damaged,
}

impl Place {
    /// What a block is in the place where the pack with this header ends.
    fn of(found: &Block, header: &Block) -> Place {
        if verify_checksum(found, 0).is_ok() {
            return Place::Older;
        }
        if let Some(bit) = flipped_bit(found) {
            let mut right = Box::new(found.clone());
            bit.flip(&mut right);
            return if version(&right) == version(header) { Place::Damaged } else { Place::Older };
        }
        // No older block has either. The version alone may be that of an earlier attempt: Linux uses it again.
        let at = checksum_at(header);
        let same = |range: std::ops::Range<usize>| found.0[range.clone()] == header.0[range];
        if same(0..SECTOR) || same(at..at + 4) {
            return Place::Torn;
        }
        match [SUM_TYPE_DATA, SUM_TYPE_NODE].contains(&found.0[TYPE_AT]) {
            true => Place::Older,
            false => Place::Damaged,
        }
    }
}
