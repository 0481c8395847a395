//! Pages made of their blocks and their deltas.
//!
//! Invariant: a page read by a delta has the checksum that is stored with it, or is an error.
//! Locks: the inode's, shared. The blocks of another file are looked up without its lock: that it is a source
//! keeps them.

use super::layer::DeltaPages;
use super::state::bad_record;
use super::zone::may_have_one;
use crate::content::record::OwnedRecord;
use crate::content::storage::Records;
use crate::error::{Error, Posix, Result};
use crate::map::inode::{Inode, InodeState};
use crate::options::DeltaMode;
use crate::stats::Counters;
use medfs_format::delta::{NO_DELTA, RawSlice, Record};
use medfs_format::{Block, BlockAddr, FormatError, NEW_ADDR, NULL_ADDR, Structure, is_block};
use std::ops::Range;
use std::sync::Arc;

impl DeltaPages<'_> {
    /// Whether this file's pages may become records.
    pub(super) fn makes_records(&self, inode: &Inode) -> bool {
        self.deltas.makes_records() && may_have_one(inode)
    }

    /// Remembers a clean page as the base that its block is, while the page changes.
    pub(crate) fn note_base(&self, inode: &Inode, index: u64, addr: BlockAddr, page: &Arc<Block>) {
        if is_block(addr)
            && self.deltas.mode != DeltaMode::Off
            && self.makes_records(inode)
            && matches!(self.has_delta(inode, index), Ok(false))
        {
            self.base_cache.insert(addr, page.clone());
        }
    }

    /// The delta of a page.
    pub(crate) fn delta_of(&self, inode: &Inode, index: u64) -> Result<Option<OwnedRecord>> {
        if !self.is_delta_volume() {
            return Ok(None);
        }
        match self.zone(inode).record(index)? {
            Some(record) => Ok(Some(record).filter(OwnedRecord::is_delta)),
            None if self.has_compact(inode) => self.compact().compact_record(inode, index),
            None => Ok(None),
        }
    }

    /// Whether a page has a delta.
    pub(crate) fn has_delta(&self, inode: &Inode, index: u64) -> Result<bool> {
        Ok(!self.delta_pages(inode, index..index + 1)?.is_empty())
    }

    /// Whether any page of a file may have a delta.
    pub(crate) fn has_deltas(&self, inode: &Inode) -> bool {
        let in_zone = || self.zone(inode).with_records(|records| !records.is_empty()).unwrap_or(true);
        self.is_delta_volume() && (self.has_compact(inode) || in_zone())
    }

    /// The pages of a range that have deltas, sorted.
    pub(crate) fn delta_pages(&self, inode: &Inode, pages: Range<u64>) -> Result<Vec<u64>> {
        let mut found = self.deltas_in(inode, &pages, |r| r.index.into(), |index| index)?;
        found.sort_unstable();
        Ok(found)
    }

    /// The pages of a range that have deltas, with their records where these are in the zone.
    pub(crate) fn delta_records(&self, inode: &Inode, pages: Range<u64>) -> Result<Records> {
        let in_zone = |r: &Record<'_>| (r.index.into(), Some(OwnedRecord::from(r)));
        Ok(self.deltas_in(inode, &pages, in_zone, |index| (index, None))?.into_iter().collect())
    }

    /// What is wanted of each page of a range that has a delta: of its record in the zone, or of a page whose
    /// record is in a compact page.
    pub(super) fn deltas_in<T>(
        &self,
        inode: &Inode,
        pages: &Range<u64>,
        in_zone: impl Fn(&Record<'_>) -> T,
        in_compact: impl Fn(u64) -> T,
    ) -> Result<Vec<T>> {
        if !self.is_delta_volume() {
            return Ok(Vec::new());
        }
        let mut found: Vec<T> = self.zone(inode).with_records(|records| {
            let deltas = records.iter().filter(|r| r.codec != NO_DELTA);
            deltas.filter(|r| pages.contains(&r.index.into())).map(&in_zone).collect()
        })?;
        if self.has_compact(inode) {
            match self.compact().compact_pages_in(inode, pages) {
                Err(e) if self.is_damage(&e) && self.zone(inode).knows(pages)? => {}
                others => found.extend(others?.into_iter().map(in_compact)),
            }
        }
        Ok(found)
    }

    /// Makes the page that has a delta, as its record tells, of the block that was read from its address.
    pub(crate) fn make_page(
        &self,
        inode: &Inode,
        index: u64,
        record: Option<OwnedRecord>,
        addr: BlockAddr,
        block: &mut Block,
    ) -> Result<()> {
        let Some(record) = record.map_or_else(|| self.delta_of(inode, index), |record| Ok(Some(record)))?
        else {
            return Ok(());
        };
        if !record.slices.is_empty() || self.is_compressed(inode) {
            block.0.copy_from_slice(&self.rebuild(inode, &record, addr)?.0);
            return Ok(());
        }
        Counters::add(&self.base_cache.wanted, 1);
        let base = match self.base_cache.get(addr) {
            Some(base) => base,
            None => {
                Counters::add(&self.base_cache.read, 1);
                let base = Arc::new(block.clone());
                self.base_cache.insert(addr, base.clone());
                base
            }
        };
        self.deltas.apply(inode, &record, Some(&base), block)
    }

    /// A page with this address: what a delta makes of the block there, or that block; zeros where it names
    /// none. `Corrupt` where base and delta do not make the page whose checksum the delta carries.
    pub(crate) fn page_at(&self, inode: &Inode, index: u64, addr: BlockAddr) -> Result<Arc<Block>> {
        match self.delta_of(inode, index)? {
            Some(record) => self.rebuild(inode, &record, addr),
            None if is_block(addr) => Ok(Arc::new(*self.io.read(addr)?)),
            None => Ok(Arc::new(Block::ZERO)),
        }
    }

    pub(super) fn rebuild(&self, inode: &Inode, record: &OwnedRecord, addr: BlockAddr) -> Result<Arc<Block>> {
        let bad = |field, value| bad_record(inode, record, field, value);
        let base = match &record.slices[..] {
            [] => match self.base_below(inode, record.index.into())? {
                Some(page) => page,
                None if is_block(addr) => self.base(addr)?,
                None if addr == NEW_ADDR => Arc::new(Block::ZERO),
                None => return Err(bad("index", format!("a delta without a base, at {addr:#x},")).into()),
            },
            slices => self.base_of_slices(slices).map_err(|e| match e {
                Error::Posix(Posix::Stale) => bad("slices", "a file that is not there".into()).into(),
                e => e,
            })?,
        };
        self.rebuild_over(inode, record, base)
    }

    /// The page that a record makes of its base: in the base's memory where nobody else has it, else in a copy.
    pub(super) fn rebuild_over(
        &self,
        inode: &Inode,
        record: &OwnedRecord,
        mut base: Arc<Block>,
    ) -> Result<Arc<Block>> {
        if let Some(page) = Arc::get_mut(&mut base) {
            self.deltas.apply(inode, record, None, page)?;
            return Ok(base);
        }
        let mut page = base.clone();
        self.deltas.apply(inode, record, Some(&base), Arc::make_mut(&mut page))?;
        Ok(page)
    }

    /// A base made of slices.
    fn base_of_slices(&self, slices: &[RawSlice]) -> Result<Arc<Block>> {
        let mut base = Arc::new(Block::ZERO);
        let block = Arc::make_mut(&mut base);
        for slice in slices {
            let source = self.inode(slice.ino.get())?;
            let page = u64::from(slice.page.get());
            let addr = self.find_slot(&source, page)?.map_or(NULL_ADDR, |slot| slot.addr());
            self.check_addr(&source, page, addr)?;
            let (Some((from, to)), true) = (slice.ranges(), is_block(addr)) else {
                return Err(Posix::Stale.into());
            };
            block.0[to].copy_from_slice(&self.base(addr)?.0[from]);
        }
        Ok(base)
    }

    /// Makes the page of a record dirty, to be written as a whole.
    pub(crate) fn load_whole(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        record: &OwnedRecord,
    ) -> Result<()> {
        let index = u64::from(record.index);
        if !state.pages.is_dirty(index) {
            let addr = self.find_slot(inode, index)?.map_or(NULL_ADDR, |s| s.addr());
            if addr == NULL_ADDR && !self.is_compressed(inode) {
                let what = format!("{index}, a page that has no block and no space reserved");
                return Err(FormatError::corrupt(Structure::DeltaZone, inode.ino, "index", what).into());
            }
            let page = match self.pages.get(inode.ino, index) {
                Some(page) => page,
                None => self.rebuild(inode, record, addr)?,
            };
            self.pages.remove(inode.ino, index);
            self.add_dirty_page(inode, state, index, page);
        }
        state.whole.insert(index);
        state.with_checkpoint = true;
        Ok(())
    }

    /// What the storage below holds of a page that has no block of its own.
    fn base_below(&self, inode: &Inode, index: u64) -> Result<Option<Arc<Block>>> {
        self.deltas.below.as_ref().map_or(Ok(None), |below| below.page_below(self.content, inode, index))
    }
}
