//! Pages of a file: reading them, and making them dirty.
//!
//! Invariants: a page is either dirty (with its inode), or clean (in [`crate::content::page_cache`] or on
//! disk). A dirty page has its space reserved: its slot holds `NEW_ADDR` or the block it replaces.
//! Locks: the inode's, shared to read, exclusive (with the operation lock) to change.

use crate::content::Content;
use crate::content::away::AwayPages;
use crate::content::storage::{Change, Ready, Records, Updates};
use crate::error::Result;
use crate::map::away::Kept;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::map::page_versions::PageVersions;
use crate::stats::Counters;
use medfs_format::node::{ADDRS_PER_BLOCK, FileKind};
use medfs_format::{
    BLOCK_SIZE, Block, BlockAddr, FormatError, Ino, NEW_ADDR, NULL_ADDR, Structure, is_block,
};
use std::sync::Arc;
use zerocopy::FromBytes;

/// Longest run of blocks that a read brings into the cache; longer ones pass by it, as those who read so much have a
/// cache of their own.
const MAX_CACHED_RUN: usize = 8;
/// Longest run of blocks read in one go.
const MAX_READ_RUN: usize = 256;
/// Distance of blocks up to which those between them are read along: that takes less time than another request.
const MAX_GAP: u64 = 6;

/// Whether a block is read by the request that reads one before it, with those between.
pub(crate) fn is_read_along(before: u64, addr: u64) -> bool {
    addr - before <= MAX_GAP
}

/// Splits blocks and their pages, in the order of the blocks, into what one request each reads.
pub(crate) fn requests(wanted: &[(BlockAddr, u64)]) -> impl Iterator<Item = &[(BlockAddr, u64)]> {
    let near = wanted.chunk_by(|a, b| is_read_along(a.0.into(), b.0.into()));
    near.flat_map(|near| near.chunks(MAX_READ_RUN))
}

/// A page that was changed.
pub(crate) struct ChangedPage {
    /// Its slot, to step to the next page from.
    pub(crate) slot: Slot,
    /// The file had nothing there.
    pub(crate) fills: bool,
}

/// Whether a clean page whose slot has this address holds nothing yet, as far as the address tells. With deltas or
/// clusters a page without a block may have content all the same.
fn is_unwritten(content: &Content, inode: &Inode, addr: BlockAddr) -> bool {
    let needs_a_block = || !content.is_delta_volume() && inode.raw(|r| r.compression().is_none());
    addr == NULL_ADDR || (addr == NEW_ADDR && needs_a_block())
}

impl Content {
    /// A page of a file as it is now: zeros for a hole. Not for inline content.
    pub(crate) fn read_page(&self, inode: &Inode, state: &InodeState, index: u64) -> Result<Arc<Block>> {
        if let Some(page) = self.page_in_memory(inode, state, index)? {
            return Ok(page);
        }
        self.storage(inode).load(self, inode, state, index)
    }

    /// A page with an address of its own, which is not in memory.
    pub(crate) fn load_plain(&self, inode: &Inode, index: u64, updates: &dyn Updates) -> Result<Arc<Block>> {
        match self.find_slot(inode, index)? {
            Some(slot) => self.load(inode, index, slot.addr(), updates),
            None => Ok(Arc::new(Block::ZERO)),
        }
    }

    fn load(&self, inode: &Inode, index: u64, addr: BlockAddr, updates: &dyn Updates) -> Result<Arc<Block>> {
        self.check_addr(inode, index, addr)?;
        let page = updates.page_at(self, inode, index, addr)?;
        if is_block(addr) || page.0 != Block::ZERO.0 {
            self.pages.insert(inode.ino, index, page.clone());
        }
        Ok(page)
    }

    /// Changes one page, reserving its space; `replace` says that `f` overwrites all of it, so nothing is read.
    pub(crate) fn change_page(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        index: u64,
        near: Option<&Slot>,
        replace: bool,
        f: impl FnOnce(&mut Block),
    ) -> Result<ChangedPage> {
        self.pages.note_changed();
        self.nodes.changes.page_changed(inode.ino);
        let storage = self.storage(inode);
        let Ready { slots_moved, closed } = storage.before(self, inode, state, Change::Page(index))?;
        let slot = self.make_slot_near(inode, near.filter(|_| !slots_moved), index)?;
        let addr = slot.addr();
        self.check_addr(inode, index, addr)?;
        if state.pages.is_dirty(index) {
            if state.pages.away_len() > 0 {
                AwayPages(self).bring_back(inode, state, index)?;
            }
            self.counted(inode.ino, state, |pages| pages.change(index).map(f));
            if addr == NULL_ADDR {
                return Err(FormatError::corrupt(
                    Structure::Inode,
                    inode.ino,
                    "i_addr",
                    "dirty page without space",
                )
                .into());
            }
            return Ok(ChangedPage { slot, fills: false });
        }
        // A cluster that is damaged must be found out before anything of it is dirty.
        let old = if replace && !closed { None } else { Some(self.read_page(inode, state, index)?) };
        if addr == NULL_ADDR {
            self.space.reserve(1)?;
            self.set_addr(inode, &slot, NEW_ADDR);
            self.count_block(inode);
        }
        let clean = self.pages.remove(inode.ino, index).filter(|_| !closed);
        storage.page_changes(self, inode, (index, &slot), addr, clean.as_ref());
        drop(clean);
        let mut page = old.unwrap_or_else(|| Arc::new(Block::ZERO));
        f(Arc::make_mut(&mut page));
        self.add_dirty_page(inode, state, index, page);
        Ok(ChangedPage { slot, fills: !closed && is_unwritten(self, inode, addr) })
    }

    /// Reads `buf.len()` bytes of a file's pages from `offset` on; the caller has clamped the range to the file.
    pub(crate) fn read_range(
        &self,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        self.storage(inode).read(self, inode, state, offset, buf)
    }

    /// The same for pages that have addresses of their own. What is not in memory is read in the order of its blocks.
    pub(crate) fn read_plain(
        &self,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        buf: &mut [u8],
        updates: &dyn Updates,
    ) -> Result<()> {
        let end = offset + buf.len() as u64;
        let pages = offset / BLOCK_SIZE as u64..end.div_ceil(BLOCK_SIZE as u64);
        let mut slot: Option<Slot> = None;
        let mut records: Option<Records> = None;
        let mut wanted: Vec<(BlockAddr, u64)> = Vec::new();
        for index in pages.clone() {
            let before = wanted.last().filter(|&&(_, page)| page + 1 == index).map(|&(addr, _)| addr);
            let page = match before {
                Some(_) => AwayPages(self).page_as_is(inode, state, index)?,
                None => self.page_in_memory(inode, state, index)?,
            };
            if let Some(page) = page {
                copy_out(buf, offset, index, &page);
                continue;
            }
            let records = match &mut records {
                Some(records) => records,
                records => records.insert(updates.records(self, inode, index..pages.end)?),
            };
            slot = self.find_slot_near(inode, slot.as_ref(), index)?;
            let addr = slot.as_ref().map_or(NULL_ADDR, Slot::addr);
            self.check_addr(inode, index, addr)?;
            // A clean page is read along with its neighbours, and taken from memory where that would be
            // another request.
            if before.is_some_and(|before| before + 1 != addr)
                && let Some(page) = self.pages.get(inode.ino, index)
            {
                copy_out(buf, offset, index, &page);
            } else if is_block(addr) {
                wanted.push((addr, index));
            } else if records.contains_key(&index) {
                copy_out(buf, offset, index, &*self.load(inode, index, addr, updates)?);
            } else {
                copy_out(buf, offset, index, &Block::ZERO);
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        wanted.sort_unstable();
        let mut records = records.unwrap_or_default();
        for run in requests(&wanted) {
            let make = |addr: BlockAddr, page: u64, block: &mut Block| match records.remove(&page) {
                Some(record) => updates.make_page(self, inode, (page, record), addr, block).map(|()| true),
                None => Ok(false),
            };
            self.read_run(inode, run, make, offset, buf)?;
        }
        Ok(())
    }

    /// Reads pages whose blocks, in their order, are neighbours or almost: straight into `buf` where they are
    /// neighbours there too. `make` makes pages of those that have records, and tells whether it did.
    fn read_run(
        &self,
        inode: &Inode,
        run: &[(BlockAddr, u64)],
        mut make: impl FnMut(BlockAddr, u64, &mut Block) -> Result<bool>,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let (Some(&(first, index)), Some(&(last, _))) = (run.first(), run.last()) else { return Ok(()) };
        let mut finish = |addr: BlockAddr, page: u64, block: &mut Block| {
            if make(addr, page, block)? || run.len() <= MAX_CACHED_RUN {
                self.pages.insert(inode.ino, page, Arc::new(block.clone()));
            }
            Ok(())
        };
        let blocks = (last - first) as usize + 1;
        let in_order = run.iter().copied().eq((first..=last).zip(index..));
        if in_order && let Some(pages) = whole_pages(buf, offset, index, blocks) {
            self.read_request(first, pages)?;
            return pages
                .iter_mut()
                .zip(run)
                .try_for_each(|(block, &(addr, page))| finish(addr, page, block));
        }
        let mut read = self.read_near(run)?;
        for &(addr, page) in run {
            let block = &mut read[(addr - first) as usize];
            finish(addr, page, block)?;
            copy_out(buf, offset, page, block);
        }
        Ok(())
    }

    /// A page of which memory has all, or what it takes to make it.
    pub(crate) fn page_in_memory(
        &self,
        inode: &Inode,
        state: &InodeState,
        index: u64,
    ) -> Result<Option<Arc<Block>>> {
        let dirty = AwayPages(self).page_as_is(inode, state, index)?;
        Ok(dirty.or_else(|| self.pages.get(inode.ino, index)))
    }

    /// Changes which pages of a file are kept; the cache counts them (invariant 6 of
    /// [`crate::map::page_versions`]).
    pub(crate) fn counted<R>(
        &self,
        ino: Ino,
        state: &mut InodeState,
        change: impl FnOnce(&mut PageVersions) -> R,
    ) -> R {
        let before = state.pages.held();
        let result = change(&mut state.pages);
        let now = state.pages.held();
        self.pages.recount(before, now);
        self.nodes.changes.pages(ino, now.pages as i64 - before.pages as i64);
        result
    }

    /// Puts a page among the dirty ones. Its space must be reserved.
    pub(crate) fn add_dirty_page(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        index: u64,
        page: impl Into<Kept>,
    ) {
        let first = !state.pages.any_dirty();
        self.counted(inode.ino, state, |pages| pages.insert(index, page));
        if first {
            self.inodes.set_dirty(inode);
        }
    }

    /// Drops the pages of a range from memory, dirty ones too (`end` exclusive).
    pub(crate) fn forget_pages(&self, inode: &Inode, state: &mut InodeState, start: u64, end: u64) {
        if inode.is_pinned() {
            self.placement.cut(inode.ino, start..end, &self.store);
        }
        let dropped: Vec<u64> = state.pages.dirty(start..end).collect();
        self.counted(inode.ino, state, |pages| dropped.iter().for_each(|&index| pages.cut(index)));
        dropped.iter().for_each(|&index| self.since.in_nvram.left(inode.ino, index));
        state.whole.retain(|index| !(start..end).contains(index));
        if !state.pages.any_dirty() && !dropped.is_empty() {
            state.with_checkpoint = false;
            self.inodes.set_clean(inode.ino);
        }
        let compact = self.compact_start(inode);
        let compact = if self.is_compact_page(inode, compact) { compact } else { u64::MAX };
        // Where a damaged directory has blocks its size does not tell.
        let last = if inode.kind() == FileKind::Regular { inode.pages() } else { u64::MAX };
        let has = [0..last, compact..compact.saturating_add(ADDRS_PER_BLOCK as u64)];
        self.pages.remove_within(inode.ino, start..end, has);
    }

    /// Reads all blocks from the first of `wanted` to the last, as one of [`requests`] has them. Where one
    /// between them cannot be read, the wanted ones alone are.
    pub(crate) fn read_near(&self, wanted: &[(BlockAddr, u64)]) -> Result<Vec<Block>> {
        let (Some(&(first, _)), Some(&(last, _))) = (wanted.first(), wanted.last()) else {
            return Ok(Vec::new());
        };
        let mut read = vec![Block::ZERO; (last - first) as usize + 1];
        if let Err(error) = self.read_request(first, &mut read) {
            if read.len() == wanted.len() {
                return Err(error);
            }
            for &(addr, _) in wanted {
                self.io.read_into(addr, &mut [&mut read[(addr - first) as usize]])?;
            }
        }
        Ok(read)
    }

    /// The content of a block that is a base.
    pub(crate) fn base(&self, addr: BlockAddr) -> Result<Arc<Block>> {
        Counters::add(&self.base_cache.wanted, 1);
        if let Some(base) = self.base_cache.get(addr) {
            return Ok(base);
        }
        Counters::add(&self.base_cache.read, 1);
        let mut base = Arc::new(Block::ZERO);
        let reading = self.base_cache.begin_reading(std::iter::once(addr));
        self.read_request(addr, std::slice::from_mut(Arc::make_mut(&mut base)))?;
        reading.remember(addr, &base);
        Ok(base)
    }

    /// Reads neighbouring blocks by one request, and notes how long it took.
    pub(crate) fn read_request(&self, first: BlockAddr, blocks: &mut [Block]) -> Result<()> {
        let is_measured = self.is_delta_volume() || self.placement.counts();
        let started = is_measured.then(|| self.clock.monotonic());
        self.io.read_into(first, &mut blocks.iter_mut().collect::<Vec<_>>())?;
        if let Some(started) = started {
            self.costs.lock().blocks_read(blocks.len(), self.clock.monotonic().saturating_sub(started));
        }
        Ok(())
    }
}

/// Reads bases that one of [`requests`] has, and remembers them; `each` gets them with their pages. None where they
/// cannot be read.
pub(crate) fn read_bases(
    content: &Content,
    near: &[(BlockAddr, u64)],
    mut each: impl FnMut(u64, Arc<Block>),
) {
    let cache = &content.base_cache;
    let reading = cache.begin_reading(near.iter().map(|&(addr, _)| addr));
    let Ok(read) = content.read_near(near) else { return };
    Counters::add(&cache.read, near.len() as u64);
    for &(addr, index) in near {
        let base = Arc::new(read[(addr - near[0].0) as usize].clone());
        reading.remember(addr, &base);
        each(index, base);
    }
}

/// The part of `buf`, which starts at `offset` of the file, that is `run` whole pages from `index` on; `None`
/// where it does not hold them all, or not aligned as direct I/O wants it.
fn whole_pages(buf: &mut [u8], offset: u64, index: u64, run: usize) -> Option<&mut [Block]> {
    let from = (index * BLOCK_SIZE as u64).checked_sub(offset)? as usize;
    let bytes = buf.get_mut(from..from + run * BLOCK_SIZE)?;
    <[Block]>::mut_from_bytes(bytes).ok()
}

/// Copies the part of page `index` that the range starting at `offset` asks for.
pub(crate) fn copy_out(buf: &mut [u8], offset: u64, index: u64, page: &Block) {
    let start = index * BLOCK_SIZE as u64;
    let from = offset.max(start);
    let to = (offset + buf.len() as u64).min(start + BLOCK_SIZE as u64);
    if from < to {
        let within = (from - start) as usize..(to - start) as usize;
        buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(&page.0[within]);
    }
}
