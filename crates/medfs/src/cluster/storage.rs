//! Compressed files as content sees them.

use super::pages::Clusters;
use crate::content::Content;
use crate::content::page_plan::Placing;
use crate::content::storage::{Change, PageStorage, Ready, Write};
use crate::error::{Error, Result};
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use medfs_format::{Block, BlockAddr, is_block};
use std::ops::Range;
use std::sync::Arc;

impl PageStorage for Clusters {
    fn read(
        &self,
        content: &Content,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        match content.compression(inode) {
            Some(compression) => self.over(content).read_clusters(inode, state, compression, offset, buf),
            None => self.updates.read(content, inode, state, offset, buf),
        }
    }

    fn load(&self, content: &Content, inode: &Inode, state: &InodeState, index: u64) -> Result<Arc<Block>> {
        match self.over(content).page_of_cluster(inode, state, index)? {
            Some(page) => Ok(page),
            None => self.updates.load(content, inode, state, index),
        }
    }

    fn kept(&self, content: &Content, inode: &Inode, pages: Range<u64>) -> Result<Vec<u64>> {
        self.updates.kept(content, inode, pages)
    }

    fn before(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        change: Change,
    ) -> Result<Ready> {
        let pages = self.over(content);
        if let Change::Leave(range) = &change {
            pages.open_clusters_around(inode, state, range.clone())?;
        }
        let mut ready = self.updates.before(content, inode, state, change.clone())?;
        match change {
            Change::Page(index) => ready.closed = pages.open_for_change(inode, state, index)?,
            Change::Growth(_) => pages.open_last_cluster(inode, state)?,
            Change::Address(_) | Change::Leave(_) => {}
        }
        Ok(ready)
    }

    fn page_changes(
        &self,
        content: &Content,
        inode: &Inode,
        page: (u64, &Slot),
        old: BlockAddr,
        clean: Option<&Arc<Block>>,
    ) {
        self.updates.page_changes(content, inode, page, old, clean);
    }

    fn dropped(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: Range<u64>,
    ) -> Result<()> {
        self.updates.dropped(content, inode, state, pages)
    }

    fn place(&self, content: &Content, write: Write<'_>) -> Placing {
        match content.compression(write.inode) {
            Some(compression) => self.over(content).place_clusters(compression, write),
            None => self.updates.place(content, write),
        }
    }

    /// Blocks of compressed clusters.
    fn relocate(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        indices: &[u64],
    ) -> Result<Vec<u64>> {
        let (mut blocks, mut others) = (Vec::new(), Vec::with_capacity(indices.len()));
        for &index in indices {
            let Some(slot) = content.find_slot(inode, index)? else { continue };
            if content.end_of_cluster(inode, &slot, index).is_none() {
                others.push(index);
            } else if is_block(slot.addr()) {
                blocks.push((index, slot));
            }
        }
        let read = |addr| content.io.read(addr).map(|block| Arc::new(*block)).map_err(Error::from);
        content.move_blocks(inode, state, blocks, read)?;
        self.updates.relocate(content, inode, state, &others)
    }

    fn own_page_written(&self, content: &Content, inode: &Inode, index: u64) {
        self.updates.own_page_written(content, inode, index);
    }
}
