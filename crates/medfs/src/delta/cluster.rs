//! Deltas of pages in compressed clusters: data that is appended is compressed conventionally, what is updated becomes
//! deltas, in one file (the combination that MedFS names in section 6.1 and leaves open).
//!
//! The base of such a page is what its compressed cluster holds of it. So a small update leaves the cluster
//! closed: page and delta are in the inode's zone or a compact page, and the cluster's blocks stay. Where one
//! page of a cluster finds no room for its delta, the cluster is opened and written anew with all that was
//! changed of it.
//!
//! Invariants:
//! - A page of a compressed file has a record only while its cluster is compressed: opening a cluster takes
//!   what its pages are now, and their records go in the same change of the inode.
//! - Cleaning moves a cluster's blocks as they are: what they hold, and with it every base, stays the same.
//! - What is dirty in a closed cluster is on the device as it was: a checkpoint need not write it.
//!
//! Locks: as in [`super`].

use super::encode::Encoding;
use super::layer::DeltaPages;
use crate::content::page_plan::Decision;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::options::DeltaMode;
use crate::stats::Counters;
use medfs_format::Block;
use medfs_format::node::RawInode;
use std::sync::Arc;

impl DeltaPages<'_> {
    /// Whether pages of the file's compressed clusters may be updated while these stay closed.
    pub(crate) fn updates_in_clusters(&self, inode: &Inode) -> bool {
        self.deltas.mode != DeltaMode::Off
            && self.opts.compress_deltas
            && self.makes_records(inode)
            && !inode.raw(RawInode::saved_blocks_released)
    }

    /// What a page of a compressed cluster is, of which that holds `base`.
    pub(crate) fn page_over(&self, inode: &Inode, index: u64, base: Arc<Block>) -> Result<Arc<Block>> {
        match self.delta_of(inode, index)? {
            Some(record) => self.rebuild_over(inode, &record, base),
            None => Ok(base),
        }
    }

    /// Keeps what changed of a dirty page in a compressed cluster, which holds `base` of it, in the zone, or
    /// finds that a compact page may take it. Other pages may have lost theirs ([`InodeState::whole`]).
    pub(crate) fn keep_over(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        index: u64,
        page: &Arc<Block>,
        base: &Block,
    ) -> Result<Decision> {
        match self.encode_over(index, page, base) {
            Encoding::Same => {
                self.drop_deltas(inode, state, index..index + 1)?;
                state.whole.remove(&index);
                Ok(Decision::Stored)
            }
            Encoding::Delta(record) => self.place_record(inode, state, record, Decision::OutOfPlace),
            Encoding::None | Encoding::Unreadable => {
                Counters::add(&self.deltas.counters.outgrown, u64::from(self.has_delta(inode, index)?));
                Ok(Decision::OutOfPlace)
            }
        }
    }
}
