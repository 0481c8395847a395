//! FPC: pages of files that are written often and read seldom are compressed alone, up to five to a block
//! (MedFS, sections 2 and 6.1: its baseline of conventional compression; `compress=fpc`).
//!
//! What is compressed is the whole page, not what changed of it. So nothing but the compressed bytes is
//! needed: they are a record of a compact page ([`super::compact`]) whose base is zeros, as of a page that
//! never had a block, and the page's old block is freed in the same change of the inode that has the record.
//!
//! Invariants: the page's address is `NEW_ADDR` from then on, counted and reserved, so that the page can be
//! written as a block again at any time. The freed block is like any that a page leaves: it is not reused
//! before the next checkpoint, and compact page and inode are durable together, as for deltas.
//! Locks: the inode's, exclusive, and the operation lock.

use super::fpc_records::RECORD_MAX;
use super::layer::DeltaPages;
use super::state::ZEROS;
use crate::content::page_plan::{Decide, Decision, Pending};
use crate::content::record::OwnedRecord;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::stats::{Counters, FpcStats};
use medfs_codec::{CodecTag, page_checksum};
use medfs_format::delta::RECORD_HEADER_SIZE;
use medfs_format::{BLOCK_SIZE, Block, NEW_ADDR, is_block};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

impl DeltaPages<'_> {
    /// Decides about a page that is to be written: `otherwise` where it is not to be compressed.
    pub(crate) fn keep_alone(
        &self,
        inode: &Inode,
        slot: &Slot,
        index: u64,
        page: &Block,
        about: &Decide<'_>,
        otherwise: Decision,
    ) -> Result<Decision> {
        let (Some(tag), Ok(index)) = (self.deltas.alone, u32::try_from(index)) else { return Ok(otherwise) };
        let addr = slot.addr();
        let has_place = is_block(addr) || (addr == NEW_ADDR && self.deltas.appends);
        if matches!(otherwise, Decision::Deferred) || !has_place || !self.compacts(inode) {
            return Ok(otherwise);
        }
        if about.batch.dirty_pages > self.most_dirty(inode) {
            return Ok(otherwise);
        }
        match self.compress_alone(tag, index, page) {
            Some(record) => Ok(Decision::Overflow(Pending::alone(record, slot.clone()))),
            None => {
                Counters::add(&self.deltas.alone_counters.too_large, 1);
                Ok(otherwise)
            }
        }
    }

    fn compress_alone(&self, tag: CodecTag, index: u32, page: &Block) -> Option<OwnedRecord> {
        let most = RECORD_MAX - RECORD_HEADER_SIZE;
        let delta = self.deltas.with_codecs(|codecs| {
            codecs.delta_with(tag, &ZEROS.0, &page.0, most).map(|delta| delta.bytes.to_vec())
        })?;
        Some(OwnedRecord {
            index,
            codec: tag as u8,
            checksum: page_checksum(&page.0),
            slices: Vec::new(),
            delta,
        })
    }

    /// The compressed page has its place: its old block goes.
    pub(crate) fn leave_block(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        record: &OwnedRecord,
        slot: &Slot,
    ) -> Result<()> {
        let counters = &self.deltas.alone_counters;
        Counters::add(&counters.made, 1);
        Counters::add(&counters.bytes, record.size() as u64);
        state.whole.remove(&u64::from(record.index));
        self.refs.drop_pages(inode.ino, u64::from(record.index)..u64::from(record.index) + 1);
        let old = slot.addr();
        if !is_block(old) {
            return Ok(());
        }
        self.set_addr(inode, slot, NEW_ADDR);
        Counters::add(&counters.freed, 1);
        Ok(self.segs.lock().mark_invalid(&self.io, old, self.elapsed())?)
    }

    /// What compressed pages came to, those of the files in memory among it.
    pub(crate) fn fpc_stats(&self) -> FpcStats {
        let counters = &self.deltas.alone_counters;
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut stats = FpcStats {
            made: get(&counters.made),
            bytes: get(&counters.bytes),
            freed: get(&counters.freed),
            too_large: get(&counters.too_large),
            ..FpcStats::default()
        };
        if !self.is_delta_volume() {
            return stats;
        }
        for inode in self.inodes.loaded() {
            for (index, size) in self.compact().maybe_alone(&inode) {
                let slot = self.find_slot(&inode, index.into());
                if matches!(slot, Ok(Some(slot)) if slot.addr() == NEW_ADDR) {
                    stats.held += 1;
                    stats.saved_bytes += BLOCK_SIZE.saturating_sub(size) as u64;
                }
            }
        }
        stats
    }
}
