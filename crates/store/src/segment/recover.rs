//! What roll-forward asks of the segments: keeping its blocks from being overwritten.

use super::Segments;
use super::alloc::Fill;
use crate::error::Result;
use crate::io::Io;
use medfs_format::sit::{set_bit, test_bit};
use medfs_format::summary::Log;
use medfs_format::{BLOCKS_PER_SEG, BlockAddr};

impl Segments {
    /// Keeps a block that is not valid from being written or discarded before the next checkpoint is durable.
    pub fn pin(&mut self, io: &Io, addr: BlockAddr) -> Result<()> {
        let (segno, offset) = (self.geo.segno(addr), self.geo.offset_in_seg(addr) as usize);
        if self.is_free(io, segno) {
            // Not free before the checkpoint.
            self.free.set_used(segno, true);
            self.prefree.insert(segno);
        }
        let e = self.entry(io, segno)?;
        if !test_bit(&e.pinned, offset) {
            set_bit(&mut e.pinned, offset);
            self.touch(segno);
        }
        Ok(())
    }

    /// Makes every log go around blocks that must not be written: a log that was to fill its segment from end to end
    /// fills the holes that are left instead.
    pub fn step_over_pinned(&mut self, io: &Io) -> Result<()> {
        const END: usize = BLOCKS_PER_SEG as usize;
        for log in Log::ALL {
            let c = self.curseg(log);
            let (segno, from) = (c.segno, usize::from(c.next));
            let e = self.entry(io, segno)?;
            if (from..END).all(|o| e.writable(o)) {
                continue;
            }
            let next = self.next_offset(io, log, segno, Fill::Ssr, from)?;
            let c = &mut self.cursegs[log as usize];
            c.fill = Fill::Ssr;
            c.next = next as u16;
            if next == END {
                self.open_segment(io, log)?;
            }
        }
        Ok(())
    }
}
