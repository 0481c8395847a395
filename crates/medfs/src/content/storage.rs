//! How the pages of a file are stored: what content asks, and what kinds of storage ask of each other.
//!
//! Purpose: one trait for all that depends on it. A page may be a block
//! ([`Plain`](crate::content::plain::Plain)), a block and what changed since ([`crate::delta`]), or a part of
//! a compressed cluster ([`crate::cluster`]), with changes of its own or without. Content tells the storage
//! before something happens to a file and after it; it never asks what kind it is.
//! Invariant: a storage is given what is below it as an argument, and holds nothing of a volume but what it
//! remembers itself. Locks: the inode's, shared for what takes a [`InodeState`] to look at, exclusive for
//! what changes it, which also takes the operation lock.

use crate::content::Content;
use crate::content::page_plan::{Decision, Pending, Placing};
use crate::content::placement::Purpose;
use crate::content::record::OwnedRecord;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use medfs_format::{Block, BlockAddr};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// What is about to happen to a file.
#[derive(Debug, Clone)]
pub(crate) enum Change {
    /// A page gets an address, if it has none.
    Address(u64),
    /// The same, and its content changes.
    Page(u64),
    /// The file grows to so many pages.
    Growth(u64),
    /// The pages of a range go, or move.
    Leave(Range<u64>),
}

/// What a storage did before a change.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Ready {
    /// The inode's slots are divided anew: those found before are of no use.
    pub(crate) slots_moved: bool,
    /// The page is in a compressed cluster still: it is read before it changes, so that damage is found out
    /// before anything of it is dirty.
    pub(crate) closed: bool,
}

/// Pages that have records, with those that could be had without reading.
pub(crate) type Records = BTreeMap<u64, Option<OwnedRecord>>;

/// How the pages of one kind of file are stored.
pub(crate) trait PageStorage: Send + Sync {
    /// Reads `buf.len()` bytes of a file's pages from `offset` on; the caller has clamped the range to the file.
    fn read(
        &self,
        content: &Content,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()>;

    /// A page that is not in memory: zeros for a hole.
    fn load(&self, content: &Content, inode: &Inode, state: &InodeState, index: u64) -> Result<Arc<Block>>;

    /// The pages of a range, sorted, that hold something whatever their addresses say.
    fn kept(&self, content: &Content, inode: &Inode, pages: Range<u64>) -> Result<Vec<u64>>;

    /// Makes way for a change, before anything of it is done.
    fn before(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        change: Change,
    ) -> Result<Ready>;

    /// A page becomes dirty that was not. It had the address `old` before, and `clean` was in memory of it.
    fn page_changes(
        &self,
        content: &Content,
        inode: &Inode,
        page: (u64, &Slot),
        old: BlockAddr,
        clean: Option<&Arc<Block>>,
    );

    /// Pages of a range are dropped from memory: forgets what is kept of them, before their addresses go.
    fn dropped(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: Range<u64>,
    ) -> Result<()>;

    /// Gives dirty pages their blocks, or keeps what changed of them elsewhere. What was placed before a
    /// failure must be written all the same, as slots name those blocks already.
    fn place(&self, content: &Content, write: Write<'_>) -> Placing;

    /// Whether new pages of the file may be made from blocks that it had.
    fn is_made_from_blocks(&self, _: &Content, _: &Inode) -> bool {
        false
    }

    /// For cleaning: moves what must stay as it is of these pages, and returns those that are to be written anew.
    fn relocate(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        indices: &[u64],
    ) -> Result<Vec<u64>>;

    /// A page that belongs to the storage, and not to the file, has reached its block.
    fn own_page_written(&self, content: &Content, inode: &Inode, index: u64);
}

/// Dirty pages of a file that are to be written.
pub(crate) struct Write<'a> {
    pub(crate) inode: &'a Arc<Inode>,
    pub(crate) state: &'a mut InodeState,
    /// Which ones, in order.
    pub(crate) indices: &'a [u64],
    pub(crate) purpose: Purpose,
    /// What other files hold.
    pub(crate) sources: &'a dyn Sources,
}

/// What other blocks hold of a page that is to be written: known to those who write files back, not to a storage.
pub(crate) trait Sources {
    /// Pages of a file are about to be placed. No lock of an inode is held.
    fn staging(&self, inode: &Inode);

    /// The record of a page against blocks of other files, and the write mark that has to be durable before
    /// it. `new`: the page has no block. Those blocks are needed from then on.
    fn record_of(
        &self,
        inode: &Arc<Inode>,
        state: &InodeState,
        index: u32,
        page: &Block,
        new: bool,
    ) -> Result<Option<(OwnedRecord, u64)>>;

    /// The record of a page against a block of its own file that looks like it, where it is at most `most` bytes
    /// large. That block is needed from then on.
    fn record_like(
        &self,
        inode: &Arc<Inode>,
        state: &InodeState,
        index: u32,
        page: &Block,
        most: usize,
    ) -> Result<Option<OwnedRecord>>;

    /// A page was placed as a whole.
    fn placed_whole(&self, inode: &Inode, state: &InodeState, index: u64) -> Result<()>;
}

/// What changed of pages whose blocks another storage has: that one asks.
pub(crate) trait Updates: PageStorage {
    /// Whether pages of such a file may have any while their blocks stay.
    fn keeps(&self, content: &Content, inode: &Inode) -> bool;

    /// The pages of a range that have records.
    fn records(&self, content: &Content, inode: &Inode, pages: Range<u64>) -> Result<Records>;

    /// Makes the page with one of [`Updates::records`] of the block that was read from its address.
    fn make_page(
        &self,
        content: &Content,
        inode: &Inode,
        record: (u64, Option<OwnedRecord>),
        addr: BlockAddr,
        block: &mut Block,
    ) -> Result<()>;

    /// A page with this address: what its record makes of the block there, or that block; zeros where it names none.
    fn page_at(&self, content: &Content, inode: &Inode, index: u64, addr: BlockAddr) -> Result<Arc<Block>>;

    /// A page of which the storage below holds `base`.
    fn page_over(&self, content: &Content, inode: &Inode, index: u64, base: Arc<Block>)
    -> Result<Arc<Block>>;

    /// Keeps what changed of a dirty page of which the storage below holds `base`.
    fn keep_over(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        page: (u64, &Arc<Block>),
        base: &Block,
    ) -> Result<Decision>;

    /// Finds places for what has none yet. Returns the pages that must be written as a whole instead.
    fn settle(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pending: Vec<Pending>,
    ) -> Result<Vec<u64>>;

    /// An empty file is to become one of another kind: takes away what is kept of it.
    fn leave(&self, content: &Content, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()>;
}

/// What lies below the changes of a page, where that is not the block at its address.
pub(crate) trait Below: Send + Sync {
    /// What is stored of a page, without its changes; `None` where it has an address of its own.
    fn page_below(&self, content: &Content, inode: &Inode, index: u64) -> Result<Option<Arc<Block>>>;
}
