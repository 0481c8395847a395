//! What becomes of a dirty page that is to be written: the answer of the layer that stores it.
//!
//! Writeback asks, and acts on the answer; the layers above decide.

use crate::content::placement::{Batch, Purpose};
use crate::content::record::OwnedRecord;
use crate::map::node_tree::Slot;
use medfs_format::Block;
use std::sync::Arc;

/// Pages that are asked about at once: their bases are read together.
pub(crate) const GATHERED: usize = 64;

/// What the layer that stores pages may look at, beside what changed of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Decide {
    pub(crate) batch: Batch,
    /// Whether pages may be kept as deltas.
    pub(crate) deltas: bool,
    /// Whether the inode has to be written anyway, so that a delta in it saves a block.
    pub(crate) inode_due: bool,
}

impl Decide {
    /// About pages of this batch; where they move or become blocks again they are no deltas.
    pub(crate) fn about(batch: Batch, inode_due: bool) -> Decide {
        Decide { batch, deltas: !matches!(batch.purpose, Purpose::Move | Purpose::Restore), inode_due }
    }
}

/// What a look at a page that is to be written decided.
#[derive(Debug, Clone)]
pub(crate) enum Kept {
    /// The page is in the zone now and need not be written.
    Delta,
    /// The page has a delta for which the layer of deltas finds a place, or none.
    Pending(Pending),
    /// It must be written, to a new block: its old one is the base of a delta.
    NewBlock,
    /// It must be written, anywhere.
    Anywhere,
    /// It must be written, but not before the pages that its block is the base of.
    Blocked,
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
