//! Sections that are reserved for files, and blocks handed out by their address.
//!
//! Purpose: a file's pages may have homes of their own, in sections that no log enters. Nothing on the volume
//! says so: what is not written there is free.
//! Invariants: a block is handed out only where rule 1 of docs/ARCHITECTURE.md allows it. Its owner is in the
//! summary of its segment, which goes to the SSA with the next checkpoint. What is taken leaves the logs the
//! free segments that they keep. Locks: those of [`Segments`].

use super::{FreeFor, Segments, Spare};
use crate::error::Result;
use crate::io::Io;
use medfs_format::summary::{Log, RawSummary};
use medfs_format::{BlockAddr, Ino};
use std::ops::Range;

/// The segments of a volume as reserving looks at them.
pub struct Reserving<'a> {
    segs: &'a mut Segments,
    io: &'a Io,
}

impl Segments {
    /// For reserving sections, and blocks in them.
    pub fn reserving<'a>(&'a mut self, io: &'a Io) -> Reserving<'a> {
        Reserving { segs: self, io }
    }
}

impl Reserving<'_> {
    /// Reserves a section for a file. `false` where it is not free as a whole, withheld, or would leave the
    /// logs too little.
    pub fn reserve(&mut self, section: u32, ino: Ino) -> bool {
        if !self.is_open(section) {
            return false;
        }
        let segments = self.segs.free.segments_of(section);
        let kept = 2 * self.segs.kept(Spare::Keep) + 2 * self.segs.reserved_segments + segments.len() as u32;
        if self.segs.free.segments(FreeFor::Logs) <= kept {
            return false;
        }
        segments.for_each(|segno| self.segs.free.reserve(segno, ino, true));
        true
    }

    /// Reserves a section in which a file has blocks already, so that what is free of it is that file's too.
    /// `false` where a log writes there, or it is withheld.
    pub fn adopt(&mut self, section: u32, ino: Ino) -> bool {
        let segments = self.segs.free.segments_of(section);
        let closed = |segno| self.segs.free.withheld(segno).is_some() || self.segs.is_curseg(segno);
        if section >= self.segs.geo.section_count || segments.clone().any(closed) {
            return false;
        }
        for segno in segments {
            let is_free = self.segs.is_free(self.io, segno);
            self.segs.free.reserve(segno, ino, is_free);
        }
        true
    }

    /// Opens a reserved section to the logs again; valid blocks stay where they are.
    pub fn release(&mut self, section: u32) {
        for segno in self.segs.free.segments_of(section) {
            let is_free = self.segs.is_free(self.io, segno);
            self.segs.free.release(segno, is_free);
        }
    }

    /// Where so many neighbouring sections are free: in the longest run of free ones, behind a third of what
    /// it has beyond them, so that files have room to grow beside each other and beside the logs.
    pub fn find_run(&mut self, sections: u32) -> Option<u32> {
        self.segs.learn_all(self.io);
        let (mut longest, mut run): (Range<u32>, Range<u32>) = (0..0, 0..0);
        for section in 0..self.segs.geo.section_count {
            if !self.is_open(section) {
                continue;
            }
            run = if run.end == section { run.start..section + 1 } else { section..section + 1 };
            if run.len() > longest.len() {
                longest = run.clone();
            }
        }
        let spare = (longest.len() as u32).checked_sub(sections.max(1))?;
        Some(longest.start + spare / 3)
    }

    /// Whether a block may be written: it is valid neither now nor in the last checkpoint, and its segment is no log's.
    pub fn is_writable(&mut self, addr: BlockAddr) -> Result<bool> {
        let (segno, offset) = (self.segs.geo.segno(addr), self.segs.geo.offset_in_seg(addr) as usize);
        Ok(!self.segs.is_curseg(segno) && self.segs.entry(self.io, segno)?.writable(offset))
    }

    /// The first block of a section that may be written, from `from` on and then from its start.
    pub fn any_writable(&mut self, section: u32, from: BlockAddr) -> Result<Option<BlockAddr>> {
        let segments = self.segs.free.segments_of(section);
        let (start, end) = (self.segs.geo.seg_start(segments.start), self.segs.geo.seg_start(segments.end));
        for addr in (from..end).chain(start..from) {
            if self.is_writable(addr)? {
                return Ok(Some(addr));
            }
        }
        Ok(None)
    }

    /// Hands out the block at `addr` to `owner`, in place of the one at `old`, if there is one: both change,
    /// or neither. `Corrupt` where a block is not what it should be.
    pub fn replace(
        &mut self,
        (addr, log): (BlockAddr, Log),
        owner: RawSummary,
        now: u64,
        old: BlockAddr,
    ) -> Result<()> {
        let frees = medfs_format::is_block(old);
        if frees {
            self.segs.entry_of_valid(self.io, old)?;
        }
        self.segs.set_owner(self.io, addr, log, owner)?;
        self.segs.mark_valid(self.io, addr, now)?;
        if frees { self.segs.mark_invalid(self.io, old, now) } else { Ok(()) }
    }

    /// Whether a section is free for logs as a whole.
    fn is_open(&mut self, section: u32) -> bool {
        section < self.segs.geo.section_count
            && self.segs.free.may_be_open(section)
            && self.segs.free.segments_of(section).all(|segno| self.segs.is_free_for_logs(self.io, segno))
    }
}
