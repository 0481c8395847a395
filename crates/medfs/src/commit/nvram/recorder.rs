//! What a record of the journal is made with, and why a set of changes gets none.

use super::admission::Admission;
use crate::error::Result;
use crate::tree::Tree;
use medfs_format::Block;
use medfs_store::Cache;
use medfs_sync::Mutex;
use std::sync::Arc;

/// Why a set of changes goes to the roll-forward log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Atomic writes, compressed files, pages without a place.
    Kind,
    /// Many pages, or much of one.
    Large,
    /// The ring has no room, or as many pages stay dirty as may: a checkpoint makes room.
    Full,
    /// The volume has no room to write again what records hold.
    NoRoom,
    /// A base cannot be read.
    Unreadable,
    /// The memory failed.
    Failed,
}

/// What a record is made with.
pub(super) struct Recorder<'a> {
    pub(super) tree: &'a Tree,
    pub(super) node_bases: &'a Cache<u32, Arc<Block>>,
    /// Memory for a node as recovery is to make it, where nobody has it just now.
    pub(super) image: &'a Mutex<Option<Box<Block>>>,
    /// Bytes that the pages of one file may take in it.
    pub(super) most: usize,
    /// Which pages it holds,
    pub(super) admission: Admission,
    /// as deltas of at most so many bytes.
    pub(super) most_of_a_page: usize,
    /// Whether pages that it does not hold may be written to the volume for it.
    pub(super) places: bool,
}

impl Recorder<'_> {
    /// The block of a node on the volume.
    pub(super) fn node_base(&self, addr: u32) -> Result<Arc<Block>> {
        if let Some(base) = self.node_bases.get(&addr) {
            return Ok(base);
        }
        let base: Arc<Block> = self.tree.io.read(addr)?.into();
        self.node_bases.insert(addr, base.clone());
        Ok(base)
    }
}
