//! Which pages of a file's index are compact pages: those behind any end that the file can have.
//!
//! What lies in a compact page is not the business of content. It is read, written, moved and freed as every page is.
//! Locks: the inode's, shared to look and exclusive to change.

use crate::content::Content;
use crate::error::Result;
use crate::map::inode::Inode;
use medfs_format::Block;
use medfs_format::delta::{self, RawZoneHeader};
use std::ops::Range;

/// Which of the inode's nids leads to its compact pages.
const COMPACT_SUBTREE: usize = 4;

impl Content {
    /// Bytes of the inode block that are the delta zone; `None` where there is none.
    pub(crate) fn zone_range(&self, block: &Block) -> Option<Range<usize>> {
        self.nodes.rules.zone_range(block)
    }

    /// The header of a file's zone; `None` where it has none.
    pub(crate) fn zone_header(&self, inode: &Inode) -> Result<Option<RawZoneHeader>> {
        inode.node.read(|d| match self.zone_range(&d.block) {
            Some(zone) => Ok(Some(delta::zone_header(&d.block.0[zone], inode.ino)?)),
            None => Ok(None),
        })
    }

    /// First page of a file's index at which compact pages may be.
    pub(crate) fn compact_start(&self, inode: &Inode) -> u64 {
        delta::compact_start(self.slots(inode).fanout())
    }

    /// Whether a page of the index is a compact page, and not one of the file.
    pub(crate) fn is_compact_page(&self, inode: &Inode, index: u64) -> bool {
        self.is_delta_volume() && index >= self.compact_start(inode) && self.has_compact(inode)
    }

    /// Whether the file has compact pages. One whose zone is damaged has them, so that nothing is taken for
    /// something else.
    pub(crate) fn has_compact(&self, inode: &Inode) -> bool {
        match self.zone_header(inode) {
            Ok(header) => header.is_some_and(|h| h.flags & delta::ZONE_COMPACT != 0),
            Err(_) => true,
        }
    }

    /// Frees the blocks of the file's own pages from `from` on: not its compact pages.
    pub(crate) fn truncate_pages(&self, inode: &Inode, from: u64) -> Result<()> {
        if !self.is_compact_page(inode, u64::MAX) {
            return self.truncate_index(inode, from);
        }
        self.truncate_subtrees(inode, from, COMPACT_SUBTREE)
    }
}
