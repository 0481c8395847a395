//! What becomes of a dirty page that is to be written: the answer of the layer that stores it.
//!
//! Writeback asks, and acts on the answer; the layers above decide.

use crate::content::placement::{Batch, Purpose};
use crate::content::record::OwnedRecord;
use crate::content::storage::Sources;
use crate::error::Result;
use crate::map::inode::InodeState;
use crate::map::node_tree::Slot;
use crate::map::page_versions::VersionId;
use medfs_device::Temperature;
use medfs_format::{Block, BlockAddr, NULL_ADDR};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Pages that are asked about at once: their bases are read together.
pub(crate) const GATHERED: usize = 64;

/// What the layer that stores pages may look at, beside what changed of a page.
#[derive(Clone, Copy)]
pub(crate) struct Decide<'a> {
    pub(crate) batch: Batch,
    /// Whether pages may be kept as deltas.
    pub(crate) deltas: bool,
    /// Whether the inode has to be written anyway, so that a delta in it saves a block.
    pub(crate) inode_due: bool,
    /// What other files hold.
    pub(crate) sources: &'a dyn Sources,
}

impl<'a> Decide<'a> {
    /// About pages of this batch; where they move or become blocks again they are no deltas.
    pub(crate) fn about(batch: Batch, inode_due: bool, sources: &'a dyn Sources) -> Decide<'a> {
        let deltas = !matches!(batch.purpose, Purpose::Move | Purpose::Defragment | Purpose::Restore);
        Decide { batch, deltas, inode_due, sources }
    }
}

/// What a look at a page that is to be written decided.
#[derive(Debug, Clone)]
pub(crate) enum Decision {
    /// The page is in the zone now and need not be written.
    Stored,
    /// The page has a delta for which the layer of deltas finds a place, or none.
    Overflow(Pending),
    /// It must be written, to a new block: its old one is the base of a delta.
    OutOfPlace,
    /// It must be written, anywhere.
    AnyPlace,
    /// It must be written, but not before the pages that its block is the base of.
    Deferred,
}

/// A dirty page that is to be written.
pub(crate) struct Changed {
    pub(crate) index: u64,
    pub(crate) page: Arc<Block>,
    /// What its block holds, where that was read already.
    pub(crate) base: Option<Arc<Block>>,
}

/// A delta, or compressed page, without a place.
#[derive(Debug, Clone)]
pub(crate) struct Pending {
    pub(crate) record: OwnedRecord,
    /// Where the page's address is, if its block goes when the record has a place.
    pub(crate) leaves: Option<Slot>,
    /// Other pages need the page's block, so that the page had better not be written as a whole whatever this costs.
    pub(crate) must: bool,
}

impl Pending {
    pub(crate) fn delta(record: OwnedRecord, must: bool) -> Pending {
        Pending { record, leaves: None, must }
    }

    pub(crate) fn alone(record: OwnedRecord, leaves: Slot) -> Pending {
        Pending { record, leaves: Some(leaves), must: false }
    }

    pub(crate) fn index(&self) -> u64 {
        u64::from(self.record.index)
    }
}

/// A page with the block it goes to.
pub(crate) struct Placed {
    pub(crate) index: u64,
    /// No block: the page is part of a cluster that other blocks hold.
    pub(crate) addr: BlockAddr,
    pub(crate) page: Arc<Block>,
    /// What is written, where that is not the page itself.
    pub(crate) content: Option<Arc<Block>>,
    pub(crate) temperature: Temperature,
    /// A compact page, and not one of the file.
    pub(crate) compact: bool,
    /// It had no block before.
    pub(crate) is_first: bool,
    /// It was to be overwritten where it was, and must not.
    pub(crate) barred: bool,
}

impl Placed {
    pub(crate) fn new(index: u64, page: Arc<Block>) -> Placed {
        Placed {
            index,
            addr: NULL_ADDR,
            page,
            content: None,
            temperature: Temperature::Warm,
            compact: false,
            is_first: false,
            barred: false,
        }
    }

    /// Whether it is this page, with this content. Another page may have come to a place meanwhile.
    pub(crate) fn is(&self, index: u64, page: &Arc<Block>) -> bool {
        self.index == index && Arc::ptr_eq(&self.page, page)
    }

    /// What its block gets.
    pub(super) fn content(&self) -> &Block {
        self.content.as_ref().unwrap_or(&self.page)
    }
}

/// Pages that were placed, and whether all were that should be.
pub(crate) struct Placing {
    pub(crate) pages: Vec<Placed>,
    /// The version of the file that was closed as they were placed, where there are any.
    pub(crate) version: Option<VersionId>,
    /// Pages whose blocks other files need ([`Sources`](crate::content::storage::Sources)): they stay dirty,
    /// and the inode must not be written.
    pub(crate) blocked: Vec<u64>,
    pub(crate) outcome: Result<()>,
}

impl Placing {
    /// These pages, and nothing that waits.
    pub(crate) fn of(pages: Vec<Placed>, outcome: Result<()>) -> Placing {
        Placing { pages, version: None, blocked: Vec::new(), outcome }
    }

    /// Whether each of these pages that is still dirty has its block or waits, where nothing failed: what an
    /// fsync leaves out is lost.
    pub(crate) fn leaves_out_none(&self, state: &InodeState, indices: &[u64]) -> bool {
        let placed: BTreeSet<_> = self.pages.iter().map(|p| (p.index, Arc::as_ptr(&p.page))).collect();
        let has = |index: u64, page: &Arc<Block>| placed.contains(&(index, Arc::as_ptr(page)));
        let met = |&index: &u64| match state.pages.get(index) {
            Some(page) => has(index, page) || self.blocked.contains(&index),
            None => !state.pages.is_dirty(index),
        };
        self.outcome.is_err() || indices.iter().all(met)
    }
}
