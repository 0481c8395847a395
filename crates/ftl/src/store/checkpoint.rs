//! When the map is written down, and what waits for that.

use super::Store;
use crate::error::{FtlError, Result};
use crate::nand::Nand;
use crate::oob::Kind;
use alloc::vec;
use alloc::vec::Vec;

/// Changed chunks of the map with which an idle checkpoint does not wait for fewer.
const FEW_CHUNKS: u64 = 16;

impl<N: Nand> Store<N> {
    /// Before the first change: says on flash that the last checkpoint is not all.
    pub(crate) fn mark_in_use(&mut self) -> Result<()> {
        if !self.marked {
            let page = vec![0; self.medium.g.page_bytes as usize];
            self.region.write(&mut self.medium, Kind::Opened, 0, &page)?;
            self.medium.nand.barrier()?;
            self.marked = true;
        }
        Ok(())
    }

    /// Writes down all that changed, so that recovery begins here. `clean`: nothing will follow.
    pub(crate) fn checkpoint(&mut self, clean: bool) -> Result<()> {
        self.mark_in_use()?;
        self.settle_all()?;
        self.soil_for_space()?;
        for chunk in 0..self.map.table.len() {
            if self.map.table.is_dirty(chunk) {
                self.write_chunk(chunk)?;
            }
        }
        self.region.commit(&mut self.medium, &mut self.map.table, clean)?;
        // Only now: the trims are in the map that counts.
        self.trims.clear();
        self.marked = !clean;
        self.since_checkpoint = 0;
        self.medium.counters.checkpoints += 1;
        Ok(())
    }

    /// The same, where so many pages were programmed since the last one as call for it.
    pub(crate) fn checkpoint_if_due(&mut self) -> Result<()> {
        if self.config.checkpoint_every > 0 && self.since_checkpoint >= self.config.checkpoint_every {
            self.checkpoint(false)?;
        }
        Ok(())
    }

    fn write_chunk(&mut self, chunk: usize) -> Result<()> {
        let bytes = Vec::from(self.map.table.bytes(&mut self.medium.nand, chunk)?);
        let place = self.region.write(&mut self.medium, Kind::Chunk, chunk as u32, &bytes)?;
        self.map.table.written(chunk, place);
        Ok(())
    }

    /// While nothing is wanted: a page of the map, once half of what calls for a checkpoint was programmed,
    /// and the checkpoint when few are left, so that no request waits for all of them. Until then nothing
    /// that was written counts. `false`: it is not time.
    pub(crate) fn idle_checkpoint(&mut self) -> Result<bool> {
        let every = self.config.checkpoint_every;
        if every == 0 || self.since_checkpoint < every / 2 {
            return Ok(false);
        }
        self.mark_in_use()?;
        let dirty = u64::from(self.map.table.dirty_count());
        let has_room = self.region.has_ample_room(&self.medium.g, &self.map.table, dirty);
        match self.map.table.first_dirty() {
            Some(chunk) if has_room && dirty > FEW_CHUNKS => self.write_chunk(chunk)?,
            _ => self.checkpoint(false)?,
        }
        Ok(true)
    }

    /// Where the region would have no room for a whole checkpoint after this one, this one becomes whole.
    fn soil_for_space(&mut self) -> Result<()> {
        let (g, chunks) = (&self.medium.g, &mut self.map.table);
        if !self.region.has_room(g, chunks, u64::from(chunks.dirty_count())) {
            chunks.soil_all();
        }
        if !self.region.takes(g, chunks, u64::from(chunks.dirty_count())) {
            return Err(FtlError::WornOut);
        }
        Ok(())
    }

    /// Writes down which pages were trimmed.
    pub(crate) fn write_trims(&mut self) -> Result<()> {
        if self.trims.runs().is_empty() {
            self.trims.clear();
            return Ok(());
        }
        let pages = self.trims.pages(self.medium.g.page_bytes as usize);
        if !self.region.takes_pages(&self.medium.g, pages.len() as u64) {
            return self.checkpoint(false);
        }
        for page in pages {
            self.region.write(&mut self.medium, Kind::Trim, 0, &page)?;
        }
        self.trims.clear();
        Ok(())
    }
}
