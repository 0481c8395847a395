//! Segments: which blocks are valid (SIT), who owns them (SSA), and where the next block goes (the six logs).
//!
//! Invariants:
//! - `cur` holds the blocks valid now; `pinned` those valid in the last checkpoint or allocated since (rule 1 of
//!   docs/ARCHITECTURE.md): a block is handed out only if it is in neither. After a checkpoint `pinned` becomes `cur`.
//! - A segment is free when nothing is valid in it, no log writes to it, and it is not *prefree*, that is emptied since
//!   the last checkpoint.
//! - Where a SIT block cannot be read, its segments count as full, and blocks freed in them stay valid on the
//!   volume: `medfs fsck` finds them. No log enters a segment whose SIT or SSA block cannot be read.
//! - No log that fsyncs write to goes on at a block that holds a node of the chain already ([`earlier`]).
//! - `sit` pages that differ from disk stay in memory until a checkpoint; others may be dropped.
//!
//! Locks: the engine keeps [`Segments`] in one mutex, a leaf but for the device; only rare reads of SIT and SSA
//! blocks happen under it.
//! Kernel counterpart: `segment.c`.

mod alloc;
pub(crate) mod counted;
mod earlier;
mod recover;
mod reserve;
mod scatter;
mod sit;
mod withheld;

pub(crate) use alloc::sum_type;
pub use alloc::{CurSeg, Fill, Refusal, Spare};
pub use scatter::Scatter;
pub use sit::{Freed, SegEntry};
pub use withheld::{FreeFor, FreeSegments, Withheld};

use crate::cache::HashMap;
use crate::error::Result;
use crate::io::Io;
use earlier::Earlier;
use medfs_format::checkpoint::ChainVersion;
use medfs_format::sit::RawSitEntry;
use medfs_format::summary::{LOG_COUNT, Log, RawJournal, RawSummaryBlock};
use medfs_format::{BLOCKS_PER_SEG, Block, BlockAddr, FormatError, Geometry, SegNo, Structure};
use scatter::Scattering;
use std::collections::{BTreeMap, BTreeSet};
use zerocopy::FromZeros;

/// What a summary word of an unread segment holds; see [`Segments::known`].
const UNKNOWN: u16 = 0;
/// What it holds where the SIT cannot be read: nothing is free there.
const LOST: u16 = 0x8000 | BLOCKS_PER_SEG as u16;

/// The way new blocks are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AllocMode {
    /// Free segments first.
    Default,
    /// The start of the volume first.
    Reuse,
}

/// The segments of the main area; see the head of this file.
pub struct Segments {
    geo: Geometry,
    /// SIT blocks in memory, by index.
    sit: HashMap<u32, Box<[SegEntry]>>,
    sit_bitmap: Vec<u8>,
    /// Entries that live in the journal of the cold data log's summary rather than in their SIT block.
    sit_journal: BTreeMap<SegNo, RawSitEntry>,
    dirty: BTreeSet<SegNo>,
    /// One word a segment, for searching: bit 15 known, bits 10..13 type, bits 0..10 valid blocks.
    known: Vec<u16>,
    all_known: bool,
    prefree: BTreeSet<SegNo>,
    /// The free segments, and those that are withheld from the logs.
    pub free: FreeSegments,
    cursegs: [CurSeg; LOG_COUNT],
    /// Summary blocks of filled segments, to be written with the next checkpoint.
    pending_ssa: BTreeMap<SegNo, Box<Block>>,
    alloc_mode: AllocMode,
    scattering: Scattering,
    /// Segments without a summary that can be read: no log goes through their holes.
    without_summary: BTreeSet<SegNo>,
    reserved_segments: u32,
    /// Free segments that the next checkpoint may need: see [`Spare`].
    pub kept_for_checkpoint: u32,
    /// The refusals that tests ask for.
    pub refusal: Option<Refusal>,
    /// Blocks handed out from each log since the volume was opened.
    pub taken: [u64; LOG_COUNT],
    /// What `taken` said of the warm node log at the last checkpoint.
    chain_from: u64,
    /// Dirty nodes and pages when those segments were counted.
    pub dirty_when_counted: u64,
    /// Until the first checkpoint: nodes that the chain must not lead to.
    earlier: Option<Earlier>,
}

/// State of the segments as the checkpoint pack holds it.
pub(crate) struct SegmentsAtMount {
    pub(crate) sit_bitmap: Vec<u8>,
    pub(crate) sit_journal: RawJournal,
    pub(crate) cursegs: [CurSeg; LOG_COUNT],
    pub(crate) free_segments: u32,
    pub(crate) reserved_segments: u32,
    pub(crate) chain: ChainVersion,
    /// Nothing will be written: what cannot be read of the SIT is an error of the operation that needs it.
    pub(crate) read_only: bool,
}

/// The entries of a journal.
pub(crate) fn journal_entries(geo: &Geometry, journal: &RawJournal) -> Result<BTreeMap<SegNo, RawSitEntry>> {
    let mut entries = BTreeMap::new();
    for e in journal.sit_entries()? {
        let segno = e.segno.get();
        if segno >= geo.segment_count_main {
            return Err(FormatError::corrupt(Structure::Journal, segno, "segno", "out of range").into());
        }
        e.entry.validate(segno)?;
        entries.insert(segno, e.entry);
    }
    Ok(entries)
}

impl Segments {
    pub(crate) fn new(
        io: &Io,
        geo: &Geometry,
        at: SegmentsAtMount,
        (alloc_mode, scatter): (AllocMode, Scatter),
    ) -> Result<Segments> {
        let sit_journal = journal_entries(geo, &at.sit_journal)?;
        let mut segments = Segments {
            geo: geo.clone(),
            sit: HashMap::default(),
            sit_bitmap: at.sit_bitmap,
            sit_journal,
            dirty: BTreeSet::new(),
            known: vec![UNKNOWN; geo.segment_count_main as usize],
            all_known: false,
            prefree: BTreeSet::new(),
            free: FreeSegments::new(geo, at.free_segments),
            cursegs: at.cursegs,
            pending_ssa: BTreeMap::new(),
            scattering: Scattering::new(scatter, at.chain.in_footers()),
            alloc_mode,
            without_summary: BTreeSet::new(),
            reserved_segments: at.reserved_segments,
            kept_for_checkpoint: 0,
            refusal: None,
            taken: [0; LOG_COUNT],
            chain_from: 0,
            dirty_when_counted: u64::MAX,
            earlier: Some(Earlier::new(at.chain)),
        };
        for log in Log::ALL {
            let loaded = segments.entry(io, segments.cursegs[log as usize].segno).map(drop);
            if !at.read_only {
                loaded?;
            }
        }
        if geo.segs_per_sec > 1 || geo.secs_per_zone > 1 {
            segments.learn_all(io);
            let mut free = std::mem::replace(&mut segments.free, FreeSegments::new(geo, 0));
            free.count(geo, |segno| segments.is_free_known(segno));
            segments.free = free;
        }
        Ok(segments)
    }

    pub(crate) fn curseg(&self, log: Log) -> &CurSeg {
        &self.cursegs[log as usize]
    }

    /// Whether a log writes to the segment.
    pub fn is_curseg(&self, segno: SegNo) -> bool {
        self.cursegs.iter().any(|c| c.segno == segno)
    }

    /// Blocks that the chain of fsynced nodes has got since the last checkpoint.
    pub fn chain_blocks(&self) -> u64 {
        self.taken[Log::WarmNode as usize] - self.chain_from
    }

    /// Segments that were emptied since the last checkpoint.
    pub fn prefree_segments(&self) -> u32 {
        self.prefree.len() as u32
    }

    /// Sections kept for cleaning.
    pub fn reserved_sections(&self) -> u32 {
        self.reserved_segments / self.geo.segs_per_sec
    }

    /// The summary of a segment: of a log, not yet written, or from the SSA.
    pub fn summary(&self, io: &Io, segno: SegNo) -> Result<Box<RawSummaryBlock>> {
        if let Some(c) = self.cursegs.iter().find(|c| c.segno == segno) {
            return Ok(c.summary.clone());
        }
        let block = match self.pending_ssa.get(&segno) {
            Some(b) => b.clone(),
            None => io.read(self.geo.ssa_block(segno))?,
        };
        Ok(Box::new(block.view::<RawSummaryBlock>().clone()))
    }

    /// Records the owner of a block that no log hands out, wherever its segment is: of roll-forward, or of a
    /// reserved segment.
    pub fn set_owner(
        &mut self,
        io: &Io,
        addr: BlockAddr,
        log: Log,
        owner: medfs_format::summary::RawSummary,
    ) -> Result<()> {
        let (segno, offset) = (self.geo.segno(addr), self.geo.offset_in_seg(addr) as usize);
        if let Some(c) = self.cursegs.iter_mut().find(|c| c.segno == segno) {
            c.summary.entries[offset] = owner;
            return Ok(());
        }
        let is_empty = self.entry(io, segno)?.valid == 0;
        if is_empty || !self.pending_ssa.contains_key(&segno) {
            // What was freed since the last checkpoint is that checkpoint's still. What the SSA has of any
            // other empty segment is not needed.
            let mut summary = if is_empty && !self.prefree.contains(&segno) {
                Box::new(RawSummaryBlock::new_zeroed())
            } else {
                self.summary(io, segno)?
            };
            if is_empty {
                self.set_type(io, segno, log)?;
            }
            summary.footer.entry_type = alloc::sum_type(log);
            self.pend_summary(segno, &summary);
        }
        if let Some(block) = self.pending_ssa.get_mut(&segno) {
            block.view_mut::<RawSummaryBlock>().entries[offset] = owner;
        }
        Ok(())
    }

    fn pend_summary(&mut self, segno: SegNo, summary: &RawSummaryBlock) {
        let mut block = Block::boxed();
        *block.view_mut() = summary.clone();
        block.view_mut::<RawSummaryBlock>().journal = RawJournal::EMPTY;
        self.pending_ssa.insert(segno, block);
    }

    /// Summary blocks the checkpoint has to write to the SSA.
    pub(crate) fn take_pending_ssa(&mut self) -> Vec<(BlockAddr, Box<Block>)> {
        std::mem::take(&mut self.pending_ssa)
            .into_iter()
            .map(|(segno, b)| (self.geo.ssa_block(segno), b))
            .collect()
    }
}
