//! The six logs: handing out blocks, moving on to the next segment, SSR.

use super::{AllocMode, FreeFor, Segments};
use crate::error::{Error, Result};
use crate::io::Io;
use medfs_format::summary::{Log, RawSummary, RawSummaryBlock, SUM_TYPE_DATA, SUM_TYPE_NODE};
use medfs_format::{BLOCKS_PER_SEG, BlockAddr, SegNo, is_block};

/// The way a log fills its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Fill {
    /// From start to end.
    Lfs = 0,
    /// Through the holes of a partly valid segment (slack space recycling).
    Ssr = 1,
}

/// The segment a log writes to.
#[derive(Debug, Clone)]
pub struct CurSeg {
    pub(crate) segno: SegNo,
    /// Offset of the next block to hand out: a log is never full, as no mount takes a checkpoint that says so.
    pub(crate) next: u16,
    pub(crate) fill: Fill,
    pub(crate) summary: Box<RawSummaryBlock>,
}

impl CurSeg {
    /// Summary entries that a checkpoint has to keep.
    pub(crate) fn summary_len(&self) -> usize {
        match self.fill {
            Fill::Lfs => usize::from(self.next),
            Fill::Ssr => BLOCKS_PER_SEG as usize,
        }
    }
}

pub(crate) fn sum_type(log: Log) -> u8 {
    if log.is_node() { SUM_TYPE_NODE } else { SUM_TYPE_DATA }
}

/// Candidates looked at closely for SSR.
const SSR_CANDIDATES: usize = 16;
/// Offset behind the last block of a segment.
const END: usize = BLOCKS_PER_SEG as usize;

/// Free segments that are kept for others: a checkpoint must always find room, and cleaning makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spare {
    /// Ordinary writing leaves those of cleaning and of the next checkpoint.
    Keep,
    /// Cleaning leaves those of the checkpoint after it.
    Clean,
    /// A checkpoint, and the nodes of an fsync, take what there is.
    Use,
}

/// Free segments that are kept for cleaning.
const KEPT_FOR_CLEANING: u32 = 2;

/// Want of room that a test makes: a log comes to the end of its segment with its next block but `after`, and
/// finds no other, for so many attempts.
#[derive(Debug, Clone, Copy, Default)]
pub struct Refusal {
    pub(crate) log: usize,
    pub(crate) after: u64,
    pub(crate) times: u64,
    /// Whether that is so now.
    met: bool,
}

impl Refusal {
    /// Refuses blocks of a log for a test: `times` of them, once `after` were handed out.
    pub fn new(log: usize, after: u64, times: u64) -> Refusal {
        Refusal { log, after, times, met: false }
    }

    /// Whether the next block of a log is the last one.
    fn is_last(&mut self, log: Log) -> bool {
        self.met = false;
        if self.log != log as usize || self.times == 0 {
            return false;
        }
        if self.after > 0 {
            self.after -= 1;
            return false;
        }
        self.times -= 1;
        self.met = true;
        true
    }
}

/// The segment that a log enters next, with the offset of the first block that it writes there.
enum Entered {
    Free(SegNo, usize),
    /// One with holes, and its summary.
    Holes(SegNo, usize, Box<RawSummaryBlock>),
}

impl Segments {
    /// Hands out the next block of a log to `owner` and marks it valid. With the last block of a segment the
    /// log goes on to another one, which is found first: `NoSpace`, with nothing changed, where there is none
    /// that `spare` allows.
    pub fn allocate(
        &mut self,
        io: &Io,
        log: Log,
        owner: RawSummary,
        now: u64,
        spare: Spare,
    ) -> Result<BlockAddr> {
        let CurSeg { segno, next, fill, .. } = self.cursegs[log as usize];
        let offset = usize::from(next);
        let is_last = self.refusal.as_mut().is_some_and(|refusal| refusal.is_last(log));
        let behind = if is_last {
            END
        } else {
            let scatters = fill == Fill::Lfs && self.scattering.is_on() && !self.prefers_ssr();
            let hole = if scatters { self.scattering.hole(log) } else { 0 };
            let next = (offset + 1 + hole).min(END);
            self.next_offset(io, log, segno, fill, next)?
        };
        let entered = if behind < END { None } else { Some(self.find_segment(io, log, self.kept(spare))?) };
        let addr = self.geo.seg_start(segno) + u32::from(next);
        self.mark_valid(io, addr, now)?;
        self.cursegs[log as usize].summary.entries[offset] = owner;
        match entered {
            None => self.cursegs[log as usize].next = behind as u16,
            Some(segment) => self.enter(io, log, segment)?,
        }
        self.taken[log as usize] += 1;
        Ok(addr)
    }

    /// Hands out the next block of a log in place of the one at `old`, if there is one: both change, or neither.
    pub fn replace(
        &mut self,
        io: &Io,
        log: Log,
        owner: RawSummary,
        (now, spare): (u64, Spare),
        old: BlockAddr,
    ) -> Result<BlockAddr> {
        if is_block(old) {
            self.entry_of_valid(io, old)?;
        }
        let addr = self.allocate(io, log, owner, now, spare)?;
        if is_block(old) {
            self.mark_invalid(io, old, now)?;
        }
        Ok(addr)
    }

    /// Address that the next allocation from a log will give.
    pub fn next_addr(&self, log: Log) -> BlockAddr {
        let c = &self.cursegs[log as usize];
        self.geo.seg_start(c.segno) + u32::from(c.next)
    }

    /// Free segments that an allocation leaves.
    pub(crate) fn kept(&self, spare: Spare) -> u32 {
        match spare {
            Spare::Keep => self.kept_for_checkpoint + KEPT_FOR_CLEANING * self.geo.segs_per_sec,
            Spare::Clean => self.kept_for_checkpoint,
            Spare::Use => 0,
        }
    }

    /// Offset of the block that a log writes at `from` or behind it; the segment's end where there is none.
    pub(super) fn next_offset(
        &mut self,
        io: &Io,
        log: Log,
        segno: SegNo,
        fill: Fill,
        mut from: usize,
    ) -> Result<usize> {
        loop {
            if fill == Fill::Ssr {
                from = self.next_writable(io, segno, from)?;
            }
            if from >= END || log != Log::WarmNode || !self.holds_node_of_chain(io, segno, from as u32) {
                return Ok(from);
            }
            from += 1;
        }
    }

    fn next_writable(&mut self, io: &Io, segno: SegNo, from: usize) -> Result<usize> {
        let e = self.entry(io, segno)?;
        Ok((from..END).find(|&o| e.writable(o)).unwrap_or(END))
    }

    /// Leaves the current segment of a log for another.
    pub(crate) fn open_segment(&mut self, io: &Io, log: Log) -> Result<()> {
        let segment = self.find_segment(io, log, 0)?;
        self.enter(io, log, segment)
    }

    /// The segment that a log would enter next, with `keep` free ones left. Entering it cannot fail.
    fn find_segment(&mut self, io: &Io, log: Log, keep: u32) -> Result<Entered> {
        if self.refusal.is_some_and(|refusal| refusal.met && refusal.log == log as usize) {
            return Err(Error::NoSpace);
        }
        loop {
            let found = self.find_any(io, log, keep)?;
            let (segno, first) = match found {
                Entered::Free(segno, _) => (segno, self.next_offset(io, log, segno, Fill::Lfs, 0)?),
                Entered::Holes(segno, ..) => (segno, self.next_offset(io, log, segno, Fill::Ssr, 0)?),
            };
            if first < END {
                self.entry(io, segno)?;
                return Ok(match found {
                    Entered::Free(..) => Entered::Free(segno, first),
                    Entered::Holes(_, _, summary) => Entered::Holes(segno, first, summary),
                });
            }
            // All that could be written there is nodes of the chain.
            self.pin_writable(io, segno)?;
        }
    }

    fn find_any(&mut self, io: &Io, log: Log, keep: u32) -> Result<Entered> {
        let mut holes = if self.prefers_ssr() { self.find_holes(io, log) } else { None };
        if holes.is_none()
            && self.free.segments(FreeFor::Logs) > keep
            && let Some(segno) = self.find_free(io, log)?
        {
            return Ok(Entered::Free(segno, 0));
        }
        if holes.is_none() {
            holes = self.find_holes(io, log);
        }
        holes.ok_or(Error::NoSpace)
    }

    /// A segment with holes, with its summary.
    fn find_holes(&mut self, io: &Io, log: Log) -> Option<Entered> {
        loop {
            let segno = self.find_ssr(io, log)?;
            match self.summary(io, segno) {
                Ok(summary) => return Some(Entered::Holes(segno, 0, summary)),
                Err(error) => {
                    tracing::warn!(segno, %error, "a log skips a segment whose summary cannot be read");
                    self.without_summary.insert(segno);
                }
            }
        }
    }

    fn enter(&mut self, io: &Io, log: Log, segment: Entered) -> Result<()> {
        match segment {
            Entered::Free(segno, first) => self.open_free(io, log, segno, first),
            Entered::Holes(segno, first, summary) => self.open_ssr(io, log, segno, first, summary),
        }
    }

    /// Addresses that the next allocations from a log will give, `most` at most and as far as they can be
    /// told: to the end of its segment, and of the one that it would open next.
    pub fn ahead(&mut self, io: &Io, log: Log, most: usize) -> Result<Vec<BlockAddr>> {
        if self.scattering.is_on() {
            return Ok(Vec::new());
        }
        let CurSeg { segno, next, fill, .. } = self.cursegs[log as usize];
        let mut ahead = Vec::with_capacity(most);
        self.add_ahead(io, log, (segno, next.into(), fill), most, &mut ahead)?;
        if ahead.len() < most {
            match self.find_segment(io, log, 0) {
                Ok(Entered::Free(segno, first)) => {
                    self.add_ahead(io, log, (segno, first, Fill::Lfs), most, &mut ahead)?;
                }
                Ok(Entered::Holes(segno, first, _)) => {
                    self.add_ahead(io, log, (segno, first, Fill::Ssr), most, &mut ahead)?;
                }
                Err(Error::NoSpace) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(ahead)
    }

    fn add_ahead(
        &mut self,
        io: &Io,
        log: Log,
        (segno, first, fill): (SegNo, usize, Fill),
        most: usize,
        ahead: &mut Vec<BlockAddr>,
    ) -> Result<()> {
        let mut next = first;
        while ahead.len() < most && next < END {
            ahead.push(self.geo.seg_start(segno) + next as BlockAddr);
            next = self.next_offset(io, log, segno, fill, next + 1)?;
        }
        Ok(())
    }

    fn leave(&mut self, io: &Io, log: Log) -> Result<()> {
        let (segno, summary) = {
            let c = &self.cursegs[log as usize];
            (c.segno, c.summary.clone())
        };
        self.pend_summary(segno, &summary);
        if self.entry(io, segno)?.valid == 0 {
            self.prefree.insert(segno);
        }
        Ok(())
    }

    fn open_free(&mut self, io: &Io, log: Log, segno: SegNo, first: usize) -> Result<()> {
        self.set_type(io, segno, log)?;
        self.free.set_used(segno, true);
        self.leave(io, log)?;
        let mut summary = Box::new(<RawSummaryBlock as zerocopy::FromZeros>::new_zeroed());
        summary.footer.entry_type = sum_type(log);
        self.cursegs[log as usize] = CurSeg { segno, next: first as u16, fill: Fill::Lfs, summary };
        Ok(())
    }

    fn open_ssr(
        &mut self,
        io: &Io,
        log: Log,
        segno: SegNo,
        first: usize,
        mut summary: Box<RawSummaryBlock>,
    ) -> Result<()> {
        summary.footer.entry_type = sum_type(log);
        self.leave(io, log)?;
        self.set_type(io, segno, log)?;
        self.pending_ssa.remove(&segno);
        self.cursegs[log as usize] = CurSeg { segno, next: first as u16, fill: Fill::Ssr, summary };
        Ok(())
    }

    /// Whether free sections are so few that holes are filled first.
    pub fn prefers_ssr(&self) -> bool {
        self.free.sections() <= 2 * self.reserved_sections()
    }

    /// Whether a segment is free for a log to enter.
    pub(super) fn is_free_for_logs(&mut self, io: &Io, segno: SegNo) -> bool {
        self.free.withheld(segno).is_none() && self.is_free(io, segno)
    }

    /// A free segment: the next of the same section where there is one, otherwise of a free section.
    fn find_free(&mut self, io: &Io, log: Log) -> Result<Option<SegNo>> {
        let per = self.geo.segs_per_sec;
        let segments = self.geo.section_count * per;
        let current = self.cursegs[log as usize].segno;
        if per > 1 {
            for segno in self.scattering.rest_of_section(current, per) {
                if segno < segments && self.is_free_for_logs(io, segno) {
                    return Ok(Some(segno));
                }
            }
        }
        if self.free.segments(FreeFor::Logs) == 0 {
            return Ok(None);
        }
        let sections = self.geo.section_count;
        let start = match (self.scattering.start(sections), self.alloc_mode) {
            (Some(section), _) => section * per,
            (None, _) if per > 1 => (self.geo.section_of(current) + 1) * per,
            (None, AllocMode::Reuse) => 0,
            (None, AllocMode::Default) => current + 1,
        };
        for i in 0..sections {
            let section = (start / per + i) % sections;
            if !self.free.may_be_open(section) {
                continue;
            }
            let segno = section * per;
            if self.is_free_for_logs(io, segno) {
                return Ok(Some(segno));
            }
        }
        // No whole section: any free segment serves.
        for segno in 0..segments {
            if per > 1 && self.is_free_for_logs(io, segno) {
                return Ok(Some(segno));
            }
        }
        Ok(None)
    }

    /// The segment with most holes, of the log's own type where possible.
    fn find_ssr(&mut self, io: &Io, log: Log) -> Option<SegNo> {
        self.learn_all(io);
        for own_type in [true, false] {
            let mut best: Vec<(u16, SegNo)> = Vec::with_capacity(SSR_CANDIDATES + 1);
            for segno in 0..self.geo.segment_count_main {
                let Some(valid) = self.holes_for(segno, log, own_type) else { continue };
                let at = best.partition_point(|b| b.0 <= valid);
                if at < SSR_CANDIDATES {
                    best.insert(at, (valid, segno));
                    best.truncate(SSR_CANDIDATES);
                }
            }
            for &(_, segno) in &best {
                // One that was dropped from memory may not be readable any more.
                if self.entry(io, segno).is_ok_and(|e| e.any_writable()) {
                    return Some(segno);
                }
            }
            if best.len() < SSR_CANDIDATES {
                continue;
            }
            // What they lack was freed since the last checkpoint: any other serves.
            for segno in 0..self.geo.segment_count_main {
                if self.holes_for(segno, log, own_type).is_some()
                    && self.entry(io, segno).is_ok_and(|e| e.any_writable())
                {
                    return Some(segno);
                }
            }
        }
        None
    }

    /// Valid blocks of a segment whose holes a log may fill; of a type other than the log's where `own_type`
    /// is not set.
    fn holes_for(&self, segno: SegNo, log: Log, own_type: bool) -> Option<u16> {
        let valid = self.known[segno as usize] & 0x3ff;
        let t = self.known_type(segno);
        let same_class = (t >= Log::HotNode as u8) == log.is_node();
        let fits = if own_type { t == log as u8 } else { same_class && t != log as u8 };
        let used = valid != 0 && u32::from(valid) != BLOCKS_PER_SEG;
        let closed = self.is_curseg(segno)
            || self.free.withheld(segno).is_some()
            || self.without_summary.contains(&segno);
        (fits && used && !closed).then_some(valid)
    }

    /// Blocks that the data logs can take in all, as ordinary writing may: counted up to `enough`.
    pub fn room_for_data(&mut self, io: &Io, enough: u64) -> u64 {
        let free = self.free.segments(FreeFor::Logs).saturating_sub(self.kept(Spare::Keep));
        let mut room = u64::from(free) * u64::from(BLOCKS_PER_SEG);
        if room >= enough {
            return room;
        }
        self.learn_all(io);
        for segno in 0..self.geo.segment_count_main {
            let log = Log::WarmData;
            let holes = self.holes_for(segno, log, true).or(self.holes_for(segno, log, false));
            if holes.is_some() {
                room += self.entry(io, segno).map_or(0, |e| u64::from(e.writable_count()));
            }
            if room >= enough {
                break;
            }
        }
        room
    }
}
