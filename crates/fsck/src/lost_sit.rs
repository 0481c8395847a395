//! What of the SIT is lost: blocks that cannot be read or hold other bytes, and entries that a sector of zeros covers.
//!
//! An entry of zeros is also that of a segment that nothing was ever written to. So zeros count as lost only where the
//! checkpoint counts more blocks than the SIT: those of a whole block, and those of a segment that its summary calls
//! one of nodes, as the SIT entry of such a segment keeps its type when all its blocks are freed.

use crate::cache::is_erased;
use crate::finding::{Code, Findings};
use crate::image::Image;
use medfs_format::sit::{self, test_bit};
use medfs_format::summary::{RawSummaryBlock, SUM_TYPE_NODE};
use medfs_format::{BlockAddr, Geometry, SegNo};
use std::io;
use std::ops::Range;

impl Image<'_> {
    /// Whether SIT calls a block of the main area in use; `true` too where SIT cannot be read.
    pub(crate) fn is_valid(&mut self, addr: BlockAddr) -> io::Result<bool> {
        let (segno, offset) = (self.g.segno(addr), self.g.offset_in_seg(addr) as usize);
        Ok(test_bit(&self.sit(segno)?.valid_map, offset) || self.sit_lost(segno))
    }

    /// Whether the SIT entry of a segment, which was asked for, cannot be read, or is lost.
    pub(crate) fn sit_lost(&self, segno: SegNo) -> bool {
        let lost = self.lost_sit.contains(&segno) && !self.sit_journal.contains_key(&segno);
        lost || self.sit_unreadable(segno)
    }

    /// Whether the SIT entry of a segment, which was asked for, cannot be read.
    pub(crate) fn sit_unreadable(&self, segno: SegNo) -> bool {
        let index = segno / sit::ENTRIES_PER_BLOCK as u32;
        let unreadable = self.cache.medium.is_unreadable(self.g.sit_block(index, self.sit_second(index)));
        unreadable && !self.sit_journal.contains_key(&segno)
    }

    /// Whether the summary of a segment, which was asked for, cannot be read, or was erased where the
    /// segment's SIT entry is lost.
    pub(crate) fn ssa_lost(&mut self, segno: SegNo) -> io::Result<bool> {
        let addr = self.g.ssa_block(segno);
        let erased = self.sit_lost(segno) && is_erased(self.cache.get(addr)?);
        Ok(erased || self.cache.medium.is_unreadable(addr))
    }

    /// Finds the entries of the SIT that are lost.
    ///
    /// Of a block with an entry that no flipped bit explains all are: were its bits believed, nodes of the
    /// fsync log would be in use already, and removed ones again.
    pub(crate) fn find_lost_sit(&mut self, findings: &mut Findings) -> io::Result<()> {
        for segno in 0..self.g.segment_count_main {
            if self.sit_journal.contains_key(&segno) || self.sit(segno)?.is_within_a_bit() {
                continue;
            }
            let index = segno / sit::ENTRIES_PER_BLOCK as u32;
            self.lost_sit.extend(entries_of_sit_block(&self.g, index));
            let text = format!(
                "SIT block {index} holds other bytes, the first impossible entry is that of segment {segno}: it is rebuilt from the blocks in use"
            );
            findings.add(Code::SitEntry, text);
        }
        let mut blocks = 0;
        for segno in 0..self.g.segment_count_main {
            blocks += u64::from(self.sit(segno)?.valid_blocks());
        }
        if blocks >= self.checkpoint().valid_block_count.get() {
            return Ok(());
        }
        for index in 0..self.g.sit_blocks() {
            let addr = self.g.sit_block(index, self.sit_second(index));
            let is_zeros = is_erased(self.cache.get(addr)?);
            if self.cache.medium.is_unreadable(addr) {
                continue;
            }
            for segno in entries_of_sit_block(&self.g, index) {
                if is_zeros || is_erased_entry_of_nodes(self, segno)? {
                    self.lost_sit.insert(segno);
                }
            }
        }
        Ok(())
    }
}

/// The segments whose entries are in a block of the SIT.
fn entries_of_sit_block(g: &Geometry, index: u32) -> Range<SegNo> {
    let first = index * sit::ENTRIES_PER_BLOCK as u32;
    first..(first + sit::ENTRIES_PER_BLOCK as u32).min(g.segment_count_main)
}

/// Whether the SIT entry of a segment says nothing, not even its type, though its summary is one of nodes.
fn is_erased_entry_of_nodes(image: &mut Image<'_>, segno: SegNo) -> io::Result<bool> {
    let entry = image.sit(segno)?;
    if (entry.vblocks.get(), entry.valid_map) != (0, [0; sit::VALID_MAP_SIZE]) {
        return Ok(false);
    }
    if let Some(log) = image.curseg_of(segno) {
        return Ok(log >= 3 && image.cursegs[log].blkoff > 0);
    }
    let sum: &RawSummaryBlock = image.cache.get(image.g.ssa_block(segno))?.view();
    Ok(sum.footer.entry_type == SUM_TYPE_NODE)
}
