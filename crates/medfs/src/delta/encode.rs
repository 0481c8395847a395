//! How little says what a page is: against what other blocks hold, or against its own one.
//!
//! Locks: the inode's, exclusive.

use super::layer::DeltaPages;
use super::state::ZEROS;
use crate::content::page_plan::{Changed, Decide};
use crate::content::record::{GOOD_ENOUGH, OwnedRecord};
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::profile::file_class::FileClass;
use crate::stats::Counters;
use medfs_format::{Block, BlockAddr, NEW_ADDR, is_block};
use std::sync::Arc;

/// Dirty pages of a file up to which bases that are not in memory are read: whoever overwrites more in one go
/// is unlikely to have changed little of each.
const READ_BASES_MAX: usize = 64;
/// The same for databases: SQLite takes over what its log has gathered in one go.
const READ_BASES_MAX_DATABASE: usize = 4096;

/// What can be said of a page by what it was before.
pub(super) enum Encoding {
    /// It is its block, or as empty as it would be without one.
    Same,
    Delta(OwnedRecord),
    /// No delta is small enough.
    None,
    /// What it was cannot be read.
    Unreadable,
}

impl DeltaPages<'_> {
    /// Finds out how little says what a page is: against what other blocks hold, or against its own one.
    pub(super) fn encode_page(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        addr: BlockAddr,
        changed: &Changed,
        about: &Decide<'_>,
    ) -> Result<Encoding> {
        let Ok(index) = u32::try_from(changed.index) else { return Ok(Encoding::None) };
        let page = &changed.page;
        let counters = &self.deltas.counters;
        const LOST: &str = "a page is not compared with a block that cannot be read";
        let repeat = about.sources.record_of(inode, state, index, page, addr == NEW_ADDR)?;
        if let Some((record, after)) = repeat {
            Counters::add(&counters.repeated, 1);
            // What it is made from must be durable before it.
            state.data_mark = state.data_mark.max(after);
            return Ok(Encoding::Delta(record));
        }
        let base = self.base_of_own(inode, addr, changed, about);
        let Some(base) = self.pass_by(LOST, inode.ino, base)? else { return Ok(Encoding::Unreadable) };
        if base.as_ref().is_some_and(|base| base.0 == page.0) {
            return Ok(Encoding::Same);
        }
        let most = self.deltas.record_max();
        let own = base.and_then(|base| self.deltas.encode(index, &base, page, &[], most));
        let most = own.as_ref().map_or(most, |own| own.size() - 1);
        // Later some pages that are still dirty have blocks that are not written yet.
        if about.deltas
            && most > GOOD_ENOUGH
            && let Some(record) = about.sources.record_like(inode, state, index, page, most)?
        {
            Counters::add(&counters.similar, 1);
            return Ok(Encoding::Delta(record));
        }
        Counters::add(&counters.appended, u64::from(own.is_some() && addr == NEW_ADDR));
        Ok(own.map_or(Encoding::None, Encoding::Delta))
    }

    /// What a page's own block holds, where the page is to be compared with that: zeros where it has none.
    fn base_of_own(
        &self,
        inode: &Inode,
        addr: BlockAddr,
        changed: &Changed,
        about: &Decide<'_>,
    ) -> Result<Option<Arc<Block>>> {
        let many = about.batch.dirty_pages > self.most_dirty(inode);
        if addr == NEW_ADDR {
            return Ok((self.deltas.appends && !many).then(|| ZEROS.clone()));
        }
        if !is_block(addr) {
            return Ok(None);
        }
        if let Some(base) = &changed.base {
            Counters::add(&self.base_cache.wanted, 1);
            return Ok(Some(base.clone()));
        }
        if many && self.base_cache.get(addr).is_none() {
            return Ok(None);
        }
        self.base(addr).map(Some)
    }

    /// The record of a page that other files are not to be asked about, if it is at most so large.
    pub(super) fn encode_alone(
        &self,
        addr: BlockAddr,
        index: u64,
        page: &Arc<Block>,
        most: usize,
    ) -> Result<Option<OwnedRecord>> {
        let Ok(index) = u32::try_from(index) else { return Ok(None) };
        if is_block(addr) {
            return Ok(self.deltas.encode(index, &*self.base(addr)?, page, &[], most));
        }
        Ok(self.deltas.encode(index, &ZEROS, page, &[], most))
    }

    pub(super) fn encode_over(&self, index: u64, page: &Block, base: &Block) -> Encoding {
        if page.0 == base.0 {
            return Encoding::Same;
        }
        let Ok(index) = u32::try_from(index) else { return Encoding::None };
        self.deltas
            .encode(index, base, page, &[], self.deltas.record_max())
            .map_or(Encoding::None, Encoding::Delta)
    }

    /// Dirty pages of a file up to which it is taken for one that changes little.
    pub(super) fn most_dirty(&self, inode: &Inode) -> usize {
        if self.class(inode) == FileClass::Database { READ_BASES_MAX_DATABASE } else { READ_BASES_MAX }
    }
}
