//! Pages on their way to flash, and what has to be there before a block is erased.
//!
//! Placing a page may take a block; a block is freed once what replaced its content is on flash; that may
//! take a checkpoint, which programs all that waits. These three call each other (`place`, `drained`,
//! `checkpoint`); what is below them knows none of it.

mod checkpoint;
mod drained;
mod place;
#[cfg(test)]
mod tests;

use crate::config::Config;
use crate::error::{FtlError, Result};
use crate::map::{Entry, Map};
use crate::medium::Medium;
use crate::nand::Nand;
use crate::oob::NOBODY;
use crate::policy::Policy;
use crate::region::Region;
use crate::streams::Streams;
use crate::trims::Trims;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A medium with its map, and what waits for it.
///
/// 1. A block is erased only when everything that replaced its content is on flash, so power loss at any
///    operation finds the newest version that was acknowledged as durable, or a newer one.
/// 2. A drained block holds nothing valid; it waits for what replaced its content, as `touched` says.
/// 3. Before the first change after a commit that says that nothing follows, the medium is marked.
/// 4. A failed program loses nothing: what its slot held waits in the next one, and its block is retired once
///    it is empty.
pub(crate) struct Store<N> {
    pub(crate) medium: Medium<N>,
    pub(crate) map: Map,
    pub(crate) streams: Streams,
    pub(crate) region: Region,
    pub(crate) trims: Trims,
    pub(crate) config: Config,
    /// Collected blocks that are not erased yet.
    drained: Vec<u32>,
    /// Blocks that failed; what they hold must go elsewhere.
    pub(crate) retiring: Vec<u32>,
    /// A block is being collected: pages programmed count as collection's.
    pub(crate) collecting: bool,
    since_checkpoint: u64,
    /// The medium says that it is in use.
    pub(crate) marked: bool,
}

impl<N: Nand> Store<N> {
    pub(crate) fn new(nand: N, policy: Box<dyn Policy>, config: Config, content: bool) -> Store<N> {
        let medium = Medium::new(nand, policy, content);
        let g = medium.g;
        Store {
            map: Map::new(&g, config.logical_pages),
            streams: Streams::new(&g, &*medium.policy, content),
            region: Region::new(&g, config.logical_pages),
            trims: Trims::new(&g),
            config,
            drained: Vec::new(),
            retiring: Vec::new(),
            collecting: false,
            since_checkpoint: 0,
            marked: false,
            medium,
        }
    }

    /// Where a logical page is.
    pub(crate) fn entry(&mut self, lpn: u32) -> Result<Option<Entry>> {
        self.map.entry(&mut self.medium, lpn)
    }

    /// Refuses what goes beyond the last logical page.
    pub(crate) fn check_range(&self, lpn: u32, count: u64) -> Result<()> {
        let end = u64::from(lpn) + count;
        if end > u64::from(self.config.logical_pages) || end > u64::from(NOBODY) {
            return Err(FtlError::OutOfRange);
        }
        Ok(())
    }

    /// Forgets neighbouring logical pages.
    pub(crate) fn trim(&mut self, lpn: u32, count: u32) -> Result<()> {
        self.check_range(lpn, u64::from(count))?;
        self.mark_in_use()?;
        let (mut at, end) = (lpn, lpn + count);
        while at < end {
            if let Some(pages) = self.map.table.empty_from(at) {
                at = at.saturating_add(pages).min(end);
                continue;
            }
            if let Some(entry) = self.entry(at)? {
                self.trim_page(at, &entry)?;
            }
            at += 1;
        }
        Ok(())
    }

    fn trim_page(&mut self, lpn: u32, entry: &Entry) -> Result<()> {
        self.medium.counters.trimmed += 1;
        self.trims.add(lpn, self.map.now());
        self.map.tick();
        self.map.set(&mut self.medium, lpn, None)?;
        let waits = self.release(entry)?;
        self.trims.inherit(waits);
        if self.trims.are_many() {
            self.write_trims()?;
        }
        Ok(())
    }

    /// Memory in use, in bytes.
    pub(crate) fn ram_bytes(&self) -> usize {
        self.map.table.ram_bytes()
            + self.medium.ram_bytes()
            + self.streams.ram_bytes()
            + self.trims.ram_bytes()
    }
}
