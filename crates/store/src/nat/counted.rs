//! Whether the NAT is that of the checkpoint, by the nodes that this counts.
//!
//! Purpose: a mount that may write must not give new files the numbers of nodes in use, where the NAT has lost some or
//! is older. Invariant: an entry counts where it leads to a block that the SIT calls a node in use, and no other entry
//! leads there. What cannot be read is given to nobody, so that it counts as in use.

use super::Nat;
use crate::error::Result;
use crate::io::Io;
use crate::segment::Segments;
use medfs_format::checkpoint::RawCheckpoint;
use medfs_format::nat::{ENTRIES_PER_BLOCK, RawNatBlock, RawNatEntry};
use medfs_format::sit::{VALID_MAP_SIZE, set_bit, test_bit};
use medfs_format::summary::Log;
use medfs_format::{Block, BlockAddr, FormatError, Geometry, Nid, SegNo, Structure};
use std::collections::BTreeMap;
use std::ops::Range;

/// Blocks of the table that a mount counts at most: 32 MiB, for 3.7 million numbers.
const MOST_COUNTED: u32 = 8192;
/// NAT blocks read in one go where they are counted.
const READ_AHEAD: u32 = 64;

/// Blocks that entries were found to lead to, by their segments.
#[derive(Default)]
struct Met(BTreeMap<SegNo, [u8; VALID_MAP_SIZE]>);

impl Met {
    /// Whether a block is in use in a segment of nodes, as far as the SIT can be read, and no other entry leads to it.
    fn is_new_node(&mut self, io: &Io, (geo, segs): (&Geometry, &mut Segments), addr: BlockAddr) -> bool {
        let (segno, at) = (geo.segno(addr), geo.offset_in_seg(addr) as usize);
        let is_node = |segs: &mut Segments| match segs.entry(io, segno) {
            Ok(entry) => entry.seg_type >= Log::HotNode as u8 && test_bit(&entry.cur, at),
            Err(_) => true,
        };
        let met = self.0.entry(segno).or_insert([0; VALID_MAP_SIZE]);
        let is_new = !test_bit(met, at) && is_node(segs);
        set_bit(met, at);
        is_new
    }
}

impl Nat {
    /// `Corrupt` where entries lead to fewer nodes in use than the checkpoint counts: new files would get the numbers
    /// of the others. The table is read from its start until all are found. What cannot be read of it is given to
    /// nobody, so that it counts as in use; so does what lies behind the first [`MOST_COUNTED`] blocks.
    pub(crate) fn check_count(&self, io: &Io, header: &RawCheckpoint, segs: &mut Segments) -> Result<()> {
        let (blocks, counted) = (self.geo.nat_blocks(), u64::from(header.valid_node_count.get()));
        let (mut found, mut met) = (0, Met::default());
        for first in (0..blocks.min(MOST_COUNTED)).step_by(READ_AHEAD as usize) {
            for addrs in self.addresses(io, first..(first + READ_AHEAD).min(blocks)) {
                found += match addrs {
                    Some(addrs) => {
                        addrs.into_iter().filter(|&addr| met.is_new_node(io, (&self.geo, segs), addr)).count()
                    }
                    None => ENTRIES_PER_BLOCK,
                } as u64;
                segs.shrink();
            }
            if found >= counted {
                return Ok(());
            }
        }
        if blocks > MOST_COUNTED {
            return Ok(());
        }
        let what = format!(
            "{counted}, and the NAT leads to {found}: it is older or has lost some, and new files would get their numbers"
        );
        Err(FormatError::corrupt(
            Structure::Checkpoint,
            header.checkpoint_ver.get(),
            "valid_node_count",
            what,
        )
        .into())
    }

    /// Where the entries of each of these blocks lead; `None` where a block cannot be read.
    fn addresses(&self, io: &Io, blocks: Range<u32>) -> Vec<Option<Vec<BlockAddr>>> {
        let state = self.state.lock();
        let places: Vec<BlockAddr> = blocks.clone().map(|index| self.block_addr(&state, index)).collect();
        drop(state);
        let read = io.read_scattered(&places);
        let state = self.state.lock();
        let addr_of = |(nid, raw): (Nid, &RawNatEntry)| {
            let addr = state.cache.get(&nid).map_or(raw.block_addr.get(), |known| known.addr);
            (nid >= self.geo.root_ino && self.geo.in_main(addr)).then_some(addr)
        };
        let of_block = |(index, block): (u32, &Option<Box<Block>>)| {
            let entries = &block.as_ref()?.view::<RawNatBlock>().entries;
            Some((index * ENTRIES_PER_BLOCK as u32..).zip(entries).filter_map(addr_of).collect())
        };
        blocks.zip(&read).map(of_block).collect()
    }
}
