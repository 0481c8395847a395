//! Pages of a file: reading them, and making them dirty.
//!
//! Invariants: a page is either dirty (with its inode), or clean (in [`crate::pages`] or on disk). A dirty page has
//! its space reserved: its slot holds `NEW_ADDR` or the block it replaces.
//! Locks: the inode's, shared to read, exclusive (with the operation lock) to change.

use crate::delta::OwnedRecord;
use crate::error::Result;
use crate::fs::Fs;
use crate::index::Slot;
use crate::inode::{Inode, InodeState};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, FormatError, NEW_ADDR, NULL_ADDR, Structure, is_block};
use std::collections::BTreeMap;
use std::sync::Arc;
use zerocopy::FromBytes;

/// Longest run of blocks that a read brings into the cache; longer ones pass by it, as those who read so much have a
/// cache of their own.
const MAX_CACHED_RUN: usize = 8;
/// Longest run of blocks read in one go.
const MAX_READ_RUN: usize = 256;

/// Neighbouring pages whose blocks are neighbours too.
#[derive(Debug, Clone, Copy)]
struct Run {
    index: u64,
    addr: BlockAddr,
    blocks: usize,
}

/// Pages that have deltas, and the records that are in the zone.
type Deltas = BTreeMap<u64, Option<OwnedRecord>>;

impl Fs {
    /// A page of a file as it is now: zeros for a hole. Not for inline content.
    pub(crate) fn read_page(&self, inode: &Inode, state: &InodeState, index: u64) -> Result<Arc<Block>> {
        if let Some(page) = self.page_in_memory(inode, state, index) {
            return Ok(page);
        }
        if let Some(page) = self.page_of_cluster(inode, state, index)? {
            return Ok(page);
        }
        match self.find_slot(inode, index)? {
            Some(slot) => self.load(inode, index, slot.addr()),
            None => Ok(Arc::new(Block::ZERO)),
        }
    }

    pub(crate) fn page_in_memory(&self, inode: &Inode, state: &InodeState, index: u64) -> Option<Arc<Block>> {
        state.dirty.get(&index).cloned().or_else(|| self.pages.get(inode.ino, index))
    }

    fn load(&self, inode: &Inode, index: u64, addr: BlockAddr) -> Result<Arc<Block>> {
        self.check_addr(inode, index, addr)?;
        let page = self.page_at(inode, index, addr)?;
        if is_block(addr) || page.0 != Block::ZERO.0 {
            self.pages.insert(inode.ino, index, page.clone());
        }
        Ok(page)
    }

    /// Changes one page, reserving its space; `replace` says that `f` overwrites all of it, so nothing is read.
    /// Returns the slot, to step to the next page from.
    pub(crate) fn change_page(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        index: u64,
        near: Option<&Slot>,
        replace: bool,
        f: impl FnOnce(&mut Block),
    ) -> Result<Slot> {
        let moved = self.make_address_room(inode, state, index)?;
        let closed = self.open_for_change(inode, state, index)?;
        let slot = self.make_slot_near(inode, near.filter(|_| !moved), index)?;
        let addr = slot.addr();
        self.check_addr(inode, index, addr)?;
        if let Some(page) = state.dirty.get_mut(&index) {
            f(Arc::make_mut(page));
            if addr == NULL_ADDR {
                return Err(FormatError::corrupt(
                    Structure::Inode,
                    inode.ino,
                    "i_addr",
                    "dirty page without space",
                )
                .into());
            }
            return Ok(slot);
        }
        // A cluster that is damaged must be found out before anything of it is dirty.
        let old = if replace && !closed { None } else { Some(self.read_page(inode, state, index)?) };
        if addr == NULL_ADDR {
            self.space.reserve(1)?;
            self.set_addr(inode, &slot, NEW_ADDR);
            self.count_block(inode);
            self.reserve_ahead(inode, &slot, index);
        }
        if let Some(clean) = self.pages.remove(inode.ino, index)
            && !closed
        {
            self.note_base(inode, index, addr, &clean);
        }
        let mut page = old.unwrap_or_else(|| Arc::new(Block::ZERO));
        f(Arc::make_mut(&mut page));
        self.add_dirty_page(inode, state, index, page);
        Ok(slot)
    }

    /// Puts a page among the dirty ones. Its space must be reserved.
    pub(crate) fn add_dirty_page(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        index: u64,
        page: Arc<Block>,
    ) {
        let first = state.dirty.is_empty();
        if state.dirty.insert(index, page).is_none() {
            self.pages.add_dirty(1);
        }
        if first {
            self.inodes.set_dirty(inode);
        }
    }

    /// Drops the pages of a range from memory, dirty ones too (`end` exclusive).
    pub(crate) fn forget_pages(&self, inode: &Inode, state: &mut InodeState, start: u64, end: u64) {
        let dropped: Vec<u64> = state.dirty.range(start..end).map(|(&i, _)| i).collect();
        for index in &dropped {
            state.dirty.remove(index);
        }
        self.pages.sub_dirty(dropped.len());
        state.whole.retain(|index| !(start..end).contains(index));
        if state.dirty.is_empty() && !dropped.is_empty() {
            state.with_checkpoint = false;
            self.inodes.set_clean(inode.ino);
        }
        self.pages.remove_range(inode.ino, start, end);
    }

    /// Reads `buf.len()` bytes of a file's pages from `offset` on; the caller has clamped the range to the file.
    pub(crate) fn read_range(
        &self,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        match self.compression(inode) {
            Some(compression) => self.read_clusters(inode, state, compression, offset, buf),
            None => self.read_plain(inode, state, offset, buf),
        }
    }

    /// The same for pages that have addresses of their own.
    pub(crate) fn read_plain(
        &self,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let end = offset + buf.len() as u64;
        let last = end.div_ceil(BLOCK_SIZE as u64);
        let mut index = offset / BLOCK_SIZE as u64;
        let mut slot: Option<Slot> = None;
        let mut deltas: Option<Deltas> = None;
        while index < last {
            if let Some(page) = self.page_in_memory(inode, state, index) {
                copy_out(buf, offset, index, &page);
                index += 1;
                continue;
            }
            let deltas = match &mut deltas {
                Some(deltas) => deltas,
                deltas => deltas.insert(self.delta_records(inode, index..last)?),
            };
            slot = self.find_slot_near(inode, slot.as_ref(), index)?;
            let addr = slot.as_ref().map_or(NULL_ADDR, Slot::addr);
            self.check_addr(inode, index, addr)?;
            if !is_block(addr) {
                match deltas.contains_key(&index) {
                    true => copy_out(buf, offset, index, &*self.load(inode, index, addr)?),
                    false => copy_out(buf, offset, index, &Block::ZERO),
                }
                index += 1;
                continue;
            }
            // Gather the run of neighbouring blocks that must come from the device, bases of deltas among them.
            let mut run = 1;
            while index + (run as u64) < last && run < MAX_READ_RUN {
                let next = index + run as u64;
                if state.dirty.contains_key(&next) {
                    break;
                }
                slot = self.find_slot_near(inode, slot.as_ref(), next)?;
                if slot.as_ref().map(Slot::addr) != Some(addr + run as u32)
                    || !self.geo.in_main(addr + run as u32)
                {
                    break;
                }
                run += 1;
            }
            self.read_run(inode, Run { index, addr, blocks: run }, deltas, offset, buf)?;
            index += run as u64;
        }
        Ok(())
    }

    /// Reads the neighbouring blocks of pages from `index` on, straight into `buf` where they fit it, and makes pages of
    /// those that have deltas.
    fn read_run(
        &self,
        inode: &Inode,
        run: Run,
        deltas: &mut Deltas,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        let Run { index, addr, blocks: run } = run;
        let mut finish = |i: usize, block: &mut Block| {
            let page = index + i as u64;
            let delta = deltas.remove(&page);
            let made = delta.is_some();
            if let Some(record) = delta {
                self.make_page(inode, page, record, addr + i as u32, block)?;
            }
            if made || run <= MAX_CACHED_RUN {
                self.pages.insert(inode.ino, page, Arc::new(block.clone()));
            }
            Ok(())
        };
        if let Some(pages) = whole_pages(buf, offset, index, run) {
            self.io.read_into(addr, &mut pages.iter_mut().collect::<Vec<_>>())?;
            return pages.iter_mut().enumerate().try_for_each(|(i, block)| finish(i, block));
        }
        let mut blocks = vec![Block::ZERO; run];
        self.io.read_into(addr, &mut blocks.iter_mut().collect::<Vec<_>>())?;
        for (i, block) in blocks.iter_mut().enumerate() {
            finish(i, block)?;
            copy_out(buf, offset, index + i as u64, block);
        }
        Ok(())
    }
}

/// The part of `buf`, which starts at `offset` of the file, that is `run` whole pages from `index` on; `None` where it does
/// not hold them all, or not aligned as direct I/O wants it.
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
