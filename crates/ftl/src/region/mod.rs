//! The map on flash: a region of blocks of its own at the beginning of the medium, written as a log.
//!
//! A checkpoint writes changed chunks, then the tables (where each chunk is; every block's state), then a
//! commit page, which counts only if it can be read. Blocks of the region are erased after a commit has made
//! their content superfluous, never before. The region holds three times what a whole checkpoint takes, so
//! that one can always be written beside the last.

mod commit;
mod tables;

pub(crate) use commit::Commit;

use crate::blocks::State;
use crate::error::{FtlError, Result};
use crate::format::BLOCK_BYTES;
use crate::map::{NOWHERE, Paged, chunks_of};
use crate::medium::Medium;
use crate::nand::{Geometry, Nand, NandError};
use crate::oob::{Kind, Spare};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Blocks of the region for a medium.
pub(crate) fn blocks_for(g: &Geometry, logical_pages: u32) -> u32 {
    let whole = whole_pages(g, logical_pages);
    (3 * whole).div_ceil(u64::from(g.pages_per_block)) as u32 + 4
}

/// Flash pages of a checkpoint in which everything changed.
fn whole_pages(g: &Geometry, logical_pages: u32) -> u64 {
    let (map, counts) = chunks_of(g, logical_pages);
    (map + counts) as u64 + table_pages(g, map + counts) + 2
}

fn table_pages(g: &Geometry, chunks: usize) -> u64 {
    ((chunks * 4) as u64 + u64::from(g.blocks) * BLOCK_BYTES as u64).div_ceil(u64::from(g.page_bytes))
}

/// Where the map's log is.
///
/// 1. The last commit that can be read counts, and all that it names lies in the region as it was written.
/// 2. A block is free only while neither the last commit nor a chunk's place names anything in it.
/// 3. A block that failed is retired once nothing that counts lies in it.
/// 4. There is room for a whole checkpoint beside the last one.
pub(crate) struct Region {
    /// Blocks of the region.
    pub(crate) blocks: u32,
    logical_pages: u32,
    /// The block written to, and its next page.
    open: Option<(u32, u32)>,
    /// Blocks whose content is not needed.
    free: Vec<u32>,
    /// Blocks that failed; what they hold counts until the next commit.
    failed: Vec<u32>,
    /// Blocks with pages that were found behind the last commit.
    kept: Vec<u32>,
}

impl Region {
    pub(crate) fn new(g: &Geometry, logical_pages: u32) -> Region {
        let blocks = blocks_for(g, logical_pages);
        Region { blocks, logical_pages, open: None, free: Vec::new(), failed: Vec::new(), kept: Vec::new() }
    }

    /// A block of a new medium takes pages of the map.
    pub(crate) fn add_free(&mut self, block: u32) {
        self.free.push(block);
    }

    /// After opening: the log goes on at this page of the block.
    pub(crate) fn resume(&mut self, block: u32, next: u32) {
        self.open = Some((block, next));
    }

    /// After opening: these blocks hold what was written since the commit.
    pub(crate) fn keep(&mut self, blocks: Vec<u32>) {
        self.kept = blocks;
    }

    /// Pages that can be written before a block of the region must become free.
    fn pages_left(&self, g: &Geometry) -> u64 {
        let open = self.open.map_or(0, |(_, next)| g.pages_per_block - next);
        self.free.len() as u64 * u64::from(g.pages_per_block) + u64::from(open)
    }

    /// Whether so many chunks have room, and tables and commit with them, and a whole checkpoint beside.
    pub(crate) fn has_room(&self, g: &Geometry, chunks: &Paged, dirty: u64) -> bool {
        self.pages_left(g) >= self.needs(g, chunks, dirty) + whole_pages(g, self.logical_pages)
    }

    /// The same, and a page more.
    pub(crate) fn has_ample_room(&self, g: &Geometry, chunks: &Paged, dirty: u64) -> bool {
        self.pages_left(g) > self.needs(g, chunks, dirty) + whole_pages(g, self.logical_pages)
    }

    /// Whether so many chunks have room, and tables and commit with them.
    pub(crate) fn takes(&self, g: &Geometry, chunks: &Paged, dirty: u64) -> bool {
        self.pages_left(g) >= self.needs(g, chunks, dirty)
    }

    /// Whether so many pages have room, and a whole checkpoint beside.
    pub(crate) fn takes_pages(&self, g: &Geometry, pages: u64) -> bool {
        self.pages_left(g) >= whole_pages(g, self.logical_pages) + pages
    }

    fn needs(&self, g: &Geometry, chunks: &Paged, dirty: u64) -> u64 {
        dirty + table_pages(g, chunks.len()) + 2
    }

    /// Reads a page of the region that must be of this kind.
    pub(crate) fn read<N: Nand>(
        &self,
        medium: &mut Medium<N>,
        page: u32,
        (kind, index): (Kind, u32),
        out: &mut [u8],
    ) -> Result<Spare> {
        medium.read(page, out)?;
        let spare =
            Spare::read(medium.oob()).ok_or(FtlError::Corrupt("out-of-band bytes of the map", page))?;
        if spare.kind != kind || spare.index != index || !spare.fits(out) {
            return Err(FtlError::Corrupt("a page of the map", page));
        }
        Ok(spare)
    }

    /// Adds a page to the log.
    pub(crate) fn write<N: Nand>(
        &mut self,
        medium: &mut Medium<N>,
        kind: Kind,
        index: u32,
        bytes: &[u8],
    ) -> Result<u32> {
        loop {
            let (block, next) = match self.open {
                Some((block, next)) if next < medium.g.pages_per_block => (block, next),
                _ => (self.open_block(medium)?, 0),
            };
            let mut spare = Spare::new(kind, medium.seq + 1, medium.blocks.get(block).erases);
            (spare.index, spare.content) = (index, Some(crc32fast::hash(bytes)));
            let page = medium.g.first_page(block) + next;
            match medium.program(page, bytes, |oob| spare.write(oob)) {
                Ok(()) => {
                    medium.counters.programs.map += 1;
                    self.open = Some((block, next + 1));
                    return Ok(page);
                }
                Err(NandError::Failed(_)) => {
                    self.open = None;
                    self.failed.push(block);
                }
                Err(e) => return Err(e.into()),
            }
        }
    }

    fn open_block<N: Nand>(&mut self, medium: &mut Medium<N>) -> Result<u32> {
        loop {
            let least = (0..self.free.len()).min_by_key(|i| medium.blocks.get(self.free[*i]).erases);
            let Some(at) = least else { return Err(FtlError::WornOut) };
            let block = self.free.swap_remove(at);
            match medium.nand.erase(block) {
                Ok(()) => {
                    medium.blocks.get_mut(block).erases += 1;
                    medium.counters.erases_map += 1;
                    self.open = Some((block, 0));
                    return Ok(block);
                }
                Err(NandError::Failed(_)) => medium.retire(block),
                Err(e) => {
                    self.free.push(block);
                    return Err(e.into());
                }
            }
        }
    }

    /// Writes the commit that ends a checkpoint, with the tables that it names, and frees what it makes superfluous.
    pub(crate) fn commit<N: Nand>(
        &mut self,
        medium: &mut Medium<N>,
        chunks: &mut Paged,
        clean: bool,
    ) -> Result<()> {
        let tables = self.write_tables(medium, chunks)?;
        let policy = policy_number(medium);
        let commit = Commit { seq: medium.seq, clean, policy, tables };
        let bytes = commit.write(&medium.g, self.logical_pages);
        // A commit without what it names would be the end of the medium.
        medium.nand.barrier()?;
        let page = self.write(medium, Kind::Commit, 0, &bytes)?;
        medium.nand.settle();
        self.kept.clear();
        self.free_unneeded(medium, chunks, &commit, page);
        Ok(())
    }

    /// Finds the blocks that this commit does not need. After opening, what was written since it is needed
    /// until the next one.
    pub(crate) fn free_unneeded<N: Nand>(
        &mut self,
        medium: &mut Medium<N>,
        chunks: &mut Paged,
        commit: &Commit,
        commit_page: u32,
    ) {
        for block in core::mem::take(&mut self.failed) {
            // What it held was written elsewhere, or will be: chunks in it are dirty from here on.
            chunks.soil_in(block, &medium.g);
            let holds = |place: u32| place != NOWHERE && medium.g.block_of(place) == block;
            let mut tables = commit.table_pages();
            if holds(commit_page) || tables.any(holds) || chunks.places.iter().any(|place| holds(*place)) {
                self.failed.push(block);
            } else {
                medium.retire(block);
            }
        }
        let g = medium.g;
        let mut needed = BTreeSet::from([g.block_of(commit_page)]);
        needed.extend(commit.table_pages().map(|page| g.block_of(page)));
        needed.extend(chunks.places.iter().filter(|p| **p != NOWHERE).map(|p| g.block_of(*p)));
        needed.extend(self.open.map(|(block, _)| block));
        needed.extend(&self.failed);
        needed.extend(&self.kept);
        let unneeded = (0..self.blocks).filter(|block| !needed.contains(block));
        self.free = unneeded.filter(|block| medium.blocks.get(*block).state != State::Bad).collect();
    }
}

/// The policy's number in a commit.
pub(crate) fn policy_number<N>(medium: &Medium<N>) -> u32 {
    crc32fast::hash(medium.policy.name().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::{G, Memory, plain_policy};
    use alloc::vec;

    fn region() -> (Medium<Memory>, Paged, Region) {
        let mut medium = Medium::new(Memory::new(G), plain_policy(), true);
        let mut region = Region::new(&G, 64);
        (0..region.blocks).for_each(|block| region.add_free(block));
        (region.blocks..G.blocks).for_each(|block| medium.set_state(block, State::Free));
        (medium, Paged::new(&G, 64), region)
    }

    #[test]
    fn a_commit_names_tables_that_read_back() {
        let (mut medium, mut chunks, mut region) = region();
        medium.blocks.get_mut(9).erases = 77;
        chunks.places[0] = 3;
        region.commit(&mut medium, &mut chunks, true).unwrap();
        let page = medium.nand.programs - 1;
        let mut bytes = vec![0; 4096];
        region.read(&mut medium, page, (Kind::Commit, 0), &mut bytes).unwrap();
        let commit = Commit::read(&bytes, &G, 64, page).unwrap();
        assert!(commit.clean && commit.policy == policy_number(&medium));
        let mut read = Paged::new(&G, 64);
        let (mut other, ..) = self::region();
        core::mem::swap(&mut other.nand, &mut medium.nand);
        region.read_tables(&mut other, &mut read, &commit).unwrap();
        assert_eq!((read.places, other.blocks.get(9).erases), (chunks.places, 77));
        assert_eq!(Commit::read(&bytes, &G, 65, page), Err(FtlError::Incompatible("logical pages", 64, 65)));
    }

    #[test]
    fn a_block_is_freed_by_a_commit_that_does_not_need_it() {
        let (mut medium, mut chunks, mut region) = region();
        let page = vec![0; 4096];
        // The first block is full of what a commit makes superfluous; the commit lies in the second.
        for _ in 0..G.pages_per_block {
            region.write(&mut medium, Kind::Opened, 0, &page).unwrap();
        }
        let (full, free) = (region.open.unwrap().0, region.free.len());
        region.commit(&mut medium, &mut chunks, false).unwrap();
        assert!(region.free.contains(&full) && region.free.len() == free);
    }

    #[test]
    fn a_page_that_fails_is_written_elsewhere_and_its_block_retired() {
        let (mut medium, mut chunks, mut region) = region();
        let page = vec![0; 4096];
        let first = region.write(&mut medium, Kind::Opened, 0, &page).unwrap();
        medium.nand.failing_pages.insert(first + 1);
        let second = region.write(&mut medium, Kind::Opened, 0, &page).unwrap();
        assert_ne!(G.block_of(first), G.block_of(second));
        region.commit(&mut medium, &mut chunks, false).unwrap();
        assert_eq!(medium.blocks.get(G.block_of(first)).state, State::Bad);
        let left = region.blocks as usize - 1;
        assert_eq!(region.free.len() + 1, left, "all others but the open one are free");
    }

    #[test]
    fn a_region_without_good_blocks_is_worn_out() {
        let (mut medium, _, mut region) = region();
        medium.nand.failing_erases.extend(0..region.blocks);
        let written = region.write(&mut medium, Kind::Opened, 0, &[0; 4096]);
        assert_eq!(written, Err(FtlError::WornOut));
    }
}
