//! Segments that no log enters, and the one judge of what is free, and for whom.
//!
//! Purpose: cleaning empties segments, and files have some reserved for them. Logs enter neither. A reserved
//! segment without a valid block is free on the volume all the same: checkpoints and users count it as free,
//! as nothing on the volume says that it is reserved. Invariants:
//! - A segment is withheld for one reason at a time. What is reserved is a section, as that is what cleaning frees.
//! - `reserved_empty` is the number of reserved segments that are free on the volume.
//! - `section_closed` counts what keeps logs from a section: segments in use, and reserved ones.
//!
//! Locks: those of [`super::Segments`].

use medfs_format::{Geometry, Ino, SegNo};
use std::collections::BTreeMap;
use std::ops::Range;

/// Why no log enters a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withheld {
    /// Cleaning empties it.
    Evacuating,
    /// It is kept for pages of a file.
    Reserved(Ino),
}

/// Whom free segments are counted for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreeFor {
    /// The volume: its checkpoints, its statistics and users.
    Volume,
    /// Logs that are about to enter one.
    Logs,
}

/// The number of free segments, and those that are withheld.
pub struct FreeSegments {
    /// Free segments; prefree ones are not counted.
    free: u32,
    /// Segments that no log may enter, and why.
    withheld: BTreeMap<SegNo, Withheld>,
    /// Reserved ones of them that are free on the volume.
    reserved_empty: u32,
    per_section: u32,
    /// Segments of each section that no log can enter as free ones, where sections are larger than a segment.
    section_closed: Option<Vec<u32>>,
}

impl FreeSegments {
    /// So many free segments, none of them withheld.
    pub(super) fn new(geo: &Geometry, free: u32) -> FreeSegments {
        FreeSegments {
            free,
            withheld: BTreeMap::new(),
            reserved_empty: 0,
            per_section: geo.segs_per_sec,
            section_closed: None,
        }
    }

    /// Counts segments and sections anew: `mkfs.f2fs` miscounts where sections or zones are larger than a segment.
    pub(super) fn count(&mut self, geo: &Geometry, is_free: impl Fn(SegNo) -> bool) {
        self.free = (0..geo.segment_count_main).filter(|&s| is_free(s)).count() as u32;
        if self.per_section == 1 {
            return;
        }
        let mut closed = vec![0u32; geo.section_count as usize];
        for segno in (0..geo.segment_count_main).filter(|&s| !is_free(s)) {
            if let Some(section) = closed.get_mut((segno / self.per_section) as usize) {
                *section += 1;
            }
        }
        self.section_closed = Some(closed);
    }

    /// Free segments; prefree ones are not counted.
    pub fn segments(&self, whom: FreeFor) -> u32 {
        match whom {
            FreeFor::Volume => self.free,
            FreeFor::Logs => self.free.saturating_sub(self.reserved_empty),
        }
    }

    /// Sections in which every segment is free for logs.
    pub fn sections(&self) -> u32 {
        match &self.section_closed {
            None => self.segments(FreeFor::Logs),
            Some(closed) => closed.iter().filter(|&&n| n == 0).count() as u32,
        }
    }

    /// Whether every segment of a section may be free for logs.
    pub(super) fn may_be_open(&self, section: u32) -> bool {
        self.section_closed.as_ref().is_none_or(|closed| closed[section as usize] == 0)
    }

    /// Why no log enters a segment, if that is so.
    pub fn withheld(&self, segno: SegNo) -> Option<Withheld> {
        self.withheld.get(&segno).copied()
    }

    /// Cleaning begins with a section, of which nothing is reserved: no log enters it.
    pub fn begin_evacuation(&mut self, section: u32) {
        for segno in self.segments_of(section) {
            self.withheld.insert(segno, Withheld::Evacuating);
        }
    }

    /// The sections that were being emptied are open to logs again.
    pub fn end_evacuation(&mut self) {
        self.withheld.retain(|_, why| *why != Withheld::Evacuating);
    }

    /// Counts a segment that is no longer free on the volume, or is so again.
    pub(super) fn set_used(&mut self, segno: SegNo, in_use: bool) {
        self.free = if in_use { self.free.saturating_sub(1) } else { self.free + 1 };
        match (self.withheld(segno), in_use) {
            (Some(Withheld::Reserved(_)), true) => {
                self.reserved_empty = self.reserved_empty.saturating_sub(1)
            }
            (Some(Withheld::Reserved(_)), false) => self.reserved_empty += 1,
            _ => self.close(segno, in_use),
        }
    }

    /// Withholds a segment for a file.
    pub(super) fn reserve(&mut self, segno: SegNo, ino: Ino, is_free: bool) {
        self.withheld.insert(segno, Withheld::Reserved(ino));
        if is_free {
            self.reserved_empty += 1;
            self.close(segno, true);
        }
    }

    /// Opens a segment to logs that was reserved, if it was.
    pub(super) fn release(&mut self, segno: SegNo, is_free: bool) {
        if !matches!(self.withheld(segno), Some(Withheld::Reserved(_))) {
            return;
        }
        self.withheld.remove(&segno);
        if is_free {
            self.reserved_empty = self.reserved_empty.saturating_sub(1);
            self.close(segno, false);
        }
    }

    pub(super) fn segments_of(&self, section: u32) -> Range<SegNo> {
        section * self.per_section..(section + 1) * self.per_section
    }

    fn close(&mut self, segno: SegNo, closed: bool) {
        let section = (segno / self.per_section) as usize;
        if let Some(n) = self.section_closed.as_mut().and_then(|all| all.get_mut(section)) {
            *n = if closed { *n + 1 } else { n.saturating_sub(1) };
        }
    }
}
