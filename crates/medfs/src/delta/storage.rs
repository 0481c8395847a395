//! The delta layer as content, and the storage of compressed files, see it.

use super::state::Deltas;
use crate::content::Content;
use crate::content::page_plan::{Kept, Pending, Placing};
use crate::content::record::OwnedRecord;
use crate::content::storage::{Change, PageStorage, Ready, Records, Updates, Write};
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use medfs_format::{Block, BlockAddr, NULL_ADDR, is_block};
use std::ops::Range;
use std::sync::Arc;

impl PageStorage for Deltas {
    fn read(
        &self,
        content: &Content,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        content.read_plain(inode, state, offset, buf, self)
    }

    fn load(&self, content: &Content, inode: &Inode, _: &InodeState, index: u64) -> Result<Arc<Block>> {
        content.load_plain(inode, index, self)
    }

    fn kept(&self, content: &Content, inode: &Inode, pages: Range<u64>) -> Result<Vec<u64>> {
        self.over(content).delta_pages(inode, pages)
    }

    fn before(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        change: Change,
    ) -> Result<Ready> {
        let pages = self.over(content);
        let mut ready = Ready::default();
        match change {
            Change::Address(index) | Change::Page(index) => {
                ready.slots_moved = pages.make_address_room(inode, state, index)?;
            }
            Change::Growth(end) if end > pages.compact_start(inode) => {
                pages.compact().leave_compact(inode, state)?;
            }
            Change::Growth(_) => {}
            Change::Leave(range) => pages.free_own_users(inode, state, &range)?,
        }
        Ok(ready)
    }

    fn page_changes(
        &self,
        content: &Content,
        inode: &Inode,
        (index, slot): (u64, &Slot),
        old: BlockAddr,
        clean: Option<&Arc<Block>>,
    ) {
        let pages = self.over(content);
        if old == NULL_ADDR {
            pages.reserve_ahead(inode, slot, index);
        }
        if let Some(clean) = clean.filter(|_| is_block(old)) {
            pages.note_base(inode, index, old, clean);
        }
    }

    fn dropped(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: Range<u64>,
    ) -> Result<()> {
        self.over(content).drop_deltas(inode, state, pages)
    }

    fn place(&self, content: &Content, write: Write<'_>) -> Placing {
        self.over(content).place(write)
    }

    /// Bases of pages that are deltas, which stay, or of other files' pages, and compact pages.
    fn relocate(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        indices: &[u64],
    ) -> Result<Vec<u64>> {
        let pages = self.over(content);
        let mut others = Vec::with_capacity(indices.len());
        for &index in indices {
            let stays = pages.has_delta(inode, index)?
                || content.dependents.is_source(inode.ino, index)
                || (!state.dirty.contains_key(&index) && content.is_compact_page(inode, index));
            if !stays {
                others.push(index);
                continue;
            }
            let Some(slot) = content.find_slot(inode, index)? else { continue };
            if is_block(slot.addr()) {
                content.move_blocks(inode, state, [(index, slot)], |addr| content.base(addr))?;
            }
        }
        Ok(others)
    }

    fn own_page_written(&self, content: &Content, inode: &Inode, index: u64) {
        self.over(content).compact().compact_written(inode, index);
    }
}

impl Updates for Deltas {
    fn keeps(&self, content: &Content, inode: &Inode) -> bool {
        self.over(content).updates_in_clusters(inode)
    }

    fn records(&self, content: &Content, inode: &Inode, pages: Range<u64>) -> Result<Records> {
        self.over(content).delta_records(inode, pages)
    }

    fn make_page(
        &self,
        content: &Content,
        inode: &Inode,
        (index, record): (u64, Option<OwnedRecord>),
        addr: BlockAddr,
        block: &mut Block,
    ) -> Result<()> {
        self.over(content).make_page(inode, index, record, addr, block)
    }

    fn page_at(&self, content: &Content, inode: &Inode, index: u64, addr: BlockAddr) -> Result<Arc<Block>> {
        self.over(content).page_at(inode, index, addr)
    }

    fn page_over(
        &self,
        content: &Content,
        inode: &Inode,
        index: u64,
        base: Arc<Block>,
    ) -> Result<Arc<Block>> {
        self.over(content).page_over(inode, index, base)
    }

    fn keep_over(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        (index, page): (u64, &Arc<Block>),
        base: &Block,
    ) -> Result<Kept> {
        self.over(content).keep_over(inode, state, index, page, base)
    }

    fn settle(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pending: Vec<Pending>,
    ) -> Result<Vec<u64>> {
        self.over(content).settle_pending(inode, state, pending)
    }

    fn leave(&self, content: &Content, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        self.over(content).leave_deltas(inode, state)
    }
}
