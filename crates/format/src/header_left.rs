//! A checkpoint pack of which one of its two headers is damaged, though the checkpoint was complete: the
//! other header says all.
//!
//! ```text
//! header | payload .. | orphans .. | summaries .. | header again
//! ```
//!
//! The second header is written when everything that the checkpoint names is durable. So where it is there,
//! and the first is damaged, the checkpoint was complete. Where the first is there and the second is not, its
//! block still holds what was there before, if power was lost on the way; nothing tells then how much of the
//! checkpoint is durable. What no pack has at that place shows that it was being written.

use crate::checkpoint::{ChainVersion, RawCheckpoint, flipped_bit, verify_checksum};
use crate::footer::footer;
use crate::summary::{Log, SUM_TYPE_DATA, SUM_TYPE_NODE};
use crate::{BLOCK_SIZE, BLOCKS_PER_SEG, Block, BlockAddr, Geometry};

/// Where a summary block has its type. Orphan blocks and free ones have a zero there, and headers a part of
/// their checksum's block.
const TYPE_AT: usize = BLOCK_SIZE - 5;

/// How far a pack's version may be ahead of the other one's; beyond it is no version of the same volume.
pub const MOST_VERSIONS_AHEAD: u64 = 1 << 10;

/// The header that is left of a pack.
#[derive(Debug, Clone)]
pub struct HeaderLeft {
    /// It.
    pub block: Box<Block>,
    /// Address of the damaged one.
    pub lost: BlockAddr,
}

impl HeaderLeft {
    /// The header that counts of pack `index`, where one is damaged and the checkpoint was complete, and
    /// newer than the version `than` of the other pack. `read` gives `None` for a block that cannot be read.
    pub fn of<E>(
        g: &Geometry,
        index: usize,
        than: u64,
        read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
    ) -> Result<Option<HeaderLeft>, E> {
        let start = g.cp_pack(index);
        if let Some(block) = read(start)?
            && let Some(last) = last_block(&block, start, start, g)
        {
            if !is_next(version(&block), than) {
                return Ok(None);
            }
            let damaged = read(last)?.is_none_or(|found| is_no_older_block(&found, &block));
            return Ok(damaged.then_some(HeaderLeft { block, lost: last }));
        }
        for addr in start + 1..start + BLOCKS_PER_SEG {
            let Some(block) = read(addr)? else { continue };
            if last_block(&block, addr, start, g) == Some(addr) && is_next(version(&block), than) {
                return Ok(Some(HeaderLeft { block, lost: start }));
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

/// Whether nodes were written after the checkpoint of a header with this checksum: a later one may have been made.
pub fn was_followed<E>(
    g: &Geometry,
    header: &RawCheckpoint,
    crc: u32,
    read: &mut dyn FnMut(BlockAddr) -> Result<Option<Box<Block>>, E>,
) -> Result<bool, E> {
    let chain = ChainVersion::of(header, crc);
    for log in [Log::HotNode, Log::WarmNode, Log::ColdNode] {
        let (segno, next) = header.curseg(log as usize);
        let block = read(g.seg_start(segno) + u32::from(next))?;
        if block.is_some_and(|block| chain.belongs(footer(&block).cp_ver.get())) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a version follows another one: what is left of a volume that was there before this one has any.
fn is_next(version: u64, than: u64) -> bool {
    (1..MOST_VERSIONS_AHEAD).contains(&version.wrapping_sub(than))
}

fn version(block: &Block) -> u64 {
    RawCheckpoint::in_block(block).checkpoint_ver.get()
}

/// Where the pack ends of which this is a header; `None` where it is none.
fn last_block(block: &Block, addr: BlockAddr, start: BlockAddr, g: &Geometry) -> Option<BlockAddr> {
    let header = RawCheckpoint::in_block(block);
    let whole = verify_checksum(block, addr).is_ok() && header.validate(addr, g).is_ok();
    whole.then(|| start + header.cp_pack_total_block_count.get() - 1)
}

/// Whether the last block of a pack is damaged, rather than one of an older pack that was there before.
fn is_no_older_block(found: &Block, header: &Block) -> bool {
    if verify_checksum(found, 0).is_ok() {
        return false;
    }
    if let Some(bit) = flipped_bit(found) {
        let mut right = Box::new(found.clone());
        bit.flip(&mut right);
        return version(&right) == version(header);
    }
    ![SUM_TYPE_DATA, SUM_TYPE_NODE].contains(&found.0[TYPE_AT])
}
