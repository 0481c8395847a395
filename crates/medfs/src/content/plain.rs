//! Pages that are blocks, and nothing else: how a volume without deltas stores them.
//!
//! Locks: those of [`PageStorage`].

use crate::content::Content;
use crate::content::page_plan::{Kept, Pending, Placed, Placing};
use crate::content::placement::Batch;
use crate::content::storage::{Change, PageStorage, Ready, Records, Updates, Write};
use crate::error::Result;
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use medfs_format::{Block, BlockAddr, is_block};
use std::ops::Range;
use std::sync::Arc;

/// Blocks without changes beside them.
pub(crate) struct Plain;

impl Plain {
    /// Gives each page a block. Damage that keeps one of them from it keeps no other.
    fn place_each(content: &Content, write: &mut Write<'_>, placed: &mut Vec<Placed>) -> Result<()> {
        let Write { inode, ref mut state, indices, purpose, .. } = *write;
        let batch = Batch::of(inode, purpose, state.dirty.len());
        let mut damage = First::default();
        let mut near: Option<Slot> = None;
        for &index in indices {
            let Some(page) = state.dirty.get(&index).cloned() else { continue };
            let slot = content.make_slot_near(inode, near.as_ref(), index).and_then(|slot| {
                content.place_page(inode, &slot, &batch, false, Placed::new(index, page), placed)?;
                Ok(slot)
            });
            match slot {
                Ok(slot) => near = Some(slot),
                Err(e) => content.put_off(&mut damage, Err(e))?,
            }
        }
        damage.result()
    }
}

impl PageStorage for Plain {
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

    fn kept(&self, _: &Content, _: &Inode, _: Range<u64>) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    fn before(&self, _: &Content, _: &Arc<Inode>, _: &mut InodeState, _: Change) -> Result<Ready> {
        Ok(Ready::default())
    }

    fn page_changes(&self, _: &Content, _: &Inode, _: (u64, &Slot), _: BlockAddr, _: Option<&Arc<Block>>) {}

    fn dropped(&self, _: &Content, _: &Arc<Inode>, _: &mut InodeState, _: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn place(&self, content: &Content, mut write: Write<'_>) -> Placing {
        let mut pages = Vec::with_capacity(write.indices.len());
        let outcome = Plain::place_each(content, &mut write, &mut pages);
        let placing = Placing::of(pages, outcome);
        debug_assert!(
            placing.leaves_out_none(write.state, write.indices),
            "a page is neither placed, nor kept, nor waits"
        );
        placing
    }

    fn relocate(&self, _: &Content, _: &Arc<Inode>, _: &mut InodeState, indices: &[u64]) -> Result<Vec<u64>> {
        Ok(indices.to_vec())
    }

    fn own_page_written(&self, _: &Content, _: &Inode, _: u64) {}
}

impl Updates for Plain {
    fn keeps(&self, _: &Content, _: &Inode) -> bool {
        false
    }

    fn records(&self, _: &Content, _: &Inode, _: Range<u64>) -> Result<Records> {
        Ok(Records::new())
    }

    fn make_page(
        &self,
        _: &Content,
        _: &Inode,
        _: (u64, Option<crate::content::record::OwnedRecord>),
        _: BlockAddr,
        _: &mut Block,
    ) -> Result<()> {
        Ok(())
    }

    fn page_at(&self, content: &Content, _: &Inode, _: u64, addr: BlockAddr) -> Result<Arc<Block>> {
        Ok(Arc::new(if is_block(addr) { *content.io.read(addr)? } else { Block::ZERO }))
    }

    fn page_over(&self, _: &Content, _: &Inode, _: u64, base: Arc<Block>) -> Result<Arc<Block>> {
        Ok(base)
    }

    fn keep_over(
        &self,
        _: &Content,
        _: &Arc<Inode>,
        _: &mut InodeState,
        _: (u64, &Arc<Block>),
        _: &Block,
    ) -> Result<Kept> {
        Ok(Kept::NewBlock)
    }

    fn settle(
        &self,
        _: &Content,
        _: &Arc<Inode>,
        _: &mut InodeState,
        pending: Vec<Pending>,
    ) -> Result<Vec<u64>> {
        Ok(pending.iter().map(Pending::index).collect())
    }

    fn leave(&self, _: &Content, _: &Arc<Inode>, _: &mut InodeState) -> Result<()> {
        Ok(())
    }
}
