//! Nodes of an earlier mount, which the chain of fsynced nodes must not lead to.
//!
//! A node belongs to the chain by the version of the checkpoint in its footer. A mount that finds nothing to
//! roll forward makes no checkpoint and keeps that version. Nodes of fsyncs that never returned may then lie
//! ahead, written before power was lost, without those that were to come before them: the first new node that
//! names such a block would take them up.
//! Invariant: until the first checkpoint of a mount, which has a version of its own, the warm node log passes
//! by every block that holds a node of the chain, or that cannot be read.
//! Cost: reading, some blocks at once, of those that the log is about to write; nothing is written.

use super::Segments;
use crate::error::Result;
use crate::io::Io;
use medfs_format::checkpoint::ChainVersion;
use medfs_format::node::footer;
use medfs_format::{BLOCKS_PER_SEG, Block, SegNo};

/// Blocks read ahead of the log at first; twice as many each time, up to the most.
const FIRST_READ: u32 = 8;
const MOST_READ: u32 = 64;

/// What is known of the blocks ahead of the warm node log.
pub(super) struct Earlier {
    chain: ChainVersion,
    segno: SegNo,
    /// Offset of the first block that was looked at.
    from: u32,
    /// Of each block from there on: whether it must be passed by.
    passed: Vec<bool>,
    /// Blocks to read next time.
    read: u32,
}

impl Earlier {
    pub(super) fn new(chain: ChainVersion) -> Earlier {
        Earlier { chain, segno: 0, from: 0, passed: Vec::new(), read: FIRST_READ }
    }

    fn get(&self, segno: SegNo, offset: u32) -> Option<bool> {
        let at = offset.checked_sub(self.from).filter(|_| segno == self.segno)?;
        self.passed.get(at as usize).copied()
    }

    fn look(&mut self, io: &Io, segno: SegNo, start: u32, offset: u32) -> bool {
        let mut blocks = vec![Block::ZERO; self.read.min(BLOCKS_PER_SEG - offset) as usize];
        let all = io.read_into(start + offset, &mut blocks.iter_mut().collect::<Vec<_>>());
        let belongs = |block: &Block| self.chain.belongs(footer(block).cp_ver.get());
        self.passed = match all {
            Ok(()) => blocks.iter().map(belongs).collect(),
            Err(_) => (start + offset..)
                .zip(&blocks)
                .map(|(at, _)| io.read(at).map_or(true, |b| belongs(&b)))
                .collect(),
        };
        (self.segno, self.from) = (segno, offset);
        self.read = (self.read * 2).min(MOST_READ);
        self.passed[0]
    }
}

impl Segments {
    /// Whether a block that the warm node log has not written since the mount holds a node of the chain all
    /// the same, or cannot be read.
    pub(super) fn holds_node_of_chain(&mut self, io: &Io, segno: SegNo, offset: u32) -> bool {
        let start = self.geo.seg_start(segno);
        let Some(earlier) = &mut self.earlier else { return false };
        earlier.get(segno, offset).unwrap_or_else(|| earlier.look(io, segno, start, offset))
    }

    /// Keeps all logs from what could be written in a segment, until the next checkpoint.
    pub(super) fn pin_writable(&mut self, io: &Io, segno: SegNo) -> Result<()> {
        let start = self.geo.seg_start(segno);
        (start..start + BLOCKS_PER_SEG).try_for_each(|addr| self.pin(io, addr))
    }
}
