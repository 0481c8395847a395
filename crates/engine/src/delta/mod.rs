//! Deltas instead of pages: what changed of a page is kept in the file's inode (MedFS, section 4.1).
//!
//! A page's *base* is the block that its address names; with a delta in the inode's zone the page is what delta and base
//! make together. [`zone`] keeps the zone and its size, [`costs`] measures what replacing a delta is worth.
//!
//! Invariants (rules 1 to 5 and 7 of the design):
//! - A base is neither overwritten in place nor its block freed before the inode without the delta is on its way: a page
//!   with a delta, and one whose delta had to go ([`InodeState::whole`]), goes to a new block.
//! - A delta goes when its page's address changes, in the same change of the inode; so an index used again never meets
//!   an old delta.
//! - A delta that had to go before its page is written takes the page along into the next checkpoint.
//! - A page read by a delta has the checksum that is stored with it, or is an error.
//!
//! Locks: functions are called with the inode's lock held, exclusive (and the operation lock) to change; `codecs` and
//! `costs` are leaves.

pub(crate) mod costs;
mod fold;
mod occupancy;
mod zone;

use crate::error::Result;
use crate::fs::Fs;
use crate::index::Slot;
use crate::inode::{Inode, InodeState};
use crate::options::DeltaMode;
use crate::placement::Page;
use crate::stats::{Counters, DeltaStats};
use costs::Costs;
pub use fold::Folded;
use medfs_codec::{Codecs, RebuildError, page_checksum};
use medfs_format::delta::{RECORD_HEADER_SIZE, Record};
use medfs_format::{Block, BlockAddr, FormatError, Structure, is_block};
use parking_lot::Mutex;
use quick_cache::sync::Cache;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
pub(crate) use zone::OwnedRecord;

/// Largest inline delta in bytes that may be asked for (`inline_threshold=`; MedFS, section 6.3).
pub(crate) const INLINE_MAX: usize = 512;

/// Dirty pages of a file up to which bases that are not in memory are read: whoever overwrites more in one go is unlikely
/// to have changed little of each.
const READ_BASES_MAX: usize = 64;
/// Part of the cache that bases may take on a volume that may hold deltas: one of so many.
pub(crate) const BASES_PART: usize = 8;

/// What a volume that may hold deltas needs beside its files.
pub(crate) struct Deltas {
    /// Whether new deltas are made. Old ones are read in any case.
    pub(crate) mode: DeltaMode,
    /// Bases of pages that are dirty or have deltas, by their address.
    bases: Cache<BlockAddr, Arc<Block>>,
    codecs: Mutex<Vec<Box<Codecs>>>,
    costs: Mutex<Costs>,
    pub(crate) counters: DeltaCounters,
}

/// What became of deltas since the volume was opened.
#[derive(Debug, Default)]
pub(crate) struct DeltaCounters {
    /// Pages kept as deltas instead of being written, and the bytes of these deltas.
    pub(crate) made: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Pages rebuilt from base and delta.
    pub(crate) rebuilt: AtomicU64,
    /// Bases looked for, and those that were not in memory.
    pub(crate) bases: AtomicU64,
    pub(crate) bases_read: AtomicU64,
    /// Deltas that gave way to addresses (case 1), to other deltas (case 2), or outgrew their budget (case 3).
    pub(crate) evicted_by_growth: AtomicU64,
    pub(crate) evicted_by_delta: AtomicU64,
    pub(crate) outgrown: AtomicU64,
}

impl DeltaCounters {
    pub(crate) fn stats(&self) -> DeltaStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeltaStats {
            made: get(&self.made),
            bytes: get(&self.bytes),
            rebuilt: get(&self.rebuilt),
            bases: get(&self.bases),
            bases_read: get(&self.bases_read),
            evicted_by_growth: get(&self.evicted_by_growth),
            evicted_by_delta: get(&self.evicted_by_delta),
            outgrown: get(&self.outgrown),
        }
    }
}

impl Deltas {
    pub(crate) fn new(mode: DeltaMode, bases: usize) -> Deltas {
        Deltas {
            mode,
            bases: Cache::new(bases.max(64)),
            codecs: Mutex::default(),
            costs: Mutex::default(),
            counters: DeltaCounters::default(),
        }
    }

    fn with_codecs<R>(&self, f: impl FnOnce(&mut Codecs) -> R) -> R {
        let mut codecs = self.codecs.lock().pop().unwrap_or_default();
        let result = f(&mut codecs);
        self.codecs.lock().push(codecs);
        result
    }
}

/// What [`Fs::keep_as_delta`] decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The page is in the zone now and need not be written.
    Delta,
    /// It must be written, to a new block: its old one is the base of a delta.
    NewBlock,
    /// It must be written, anywhere.
    Anywhere,
}

impl Fs {
    /// Whether this file's pages may become deltas.
    fn makes_deltas(&self, inode: &Inode) -> bool {
        self.deltas.mode == DeltaMode::Inline && zone::may_have_one(inode)
    }

    /// Remembers a clean page as the base that its block is, while the page changes.
    pub(crate) fn note_base(&self, inode: &Inode, index: u64, addr: BlockAddr, page: &Arc<Block>) {
        if is_block(addr) && self.makes_deltas(inode) && !self.has_delta(inode, index) {
            self.deltas.bases.insert(addr, page.clone());
        }
    }

    /// Forgets what a block held: it is about to be overwritten.
    pub(crate) fn forget_base(&self, addr: BlockAddr) {
        self.deltas.bases.remove(&addr);
    }

    /// The content of a block that is a base.
    pub(crate) fn base(&self, addr: BlockAddr) -> Result<Arc<Block>> {
        let counters = &self.deltas.counters;
        Counters::add(&counters.bases, 1);
        if let Some(base) = self.deltas.bases.get(&addr) {
            return Ok(base);
        }
        Counters::add(&counters.bases_read, 1);
        let started = self.clock.monotonic();
        let base = Arc::new(*self.io.read(addr)?);
        self.deltas.costs.lock().base_read(self.clock.monotonic().saturating_sub(started));
        self.deltas.bases.insert(addr, base.clone());
        Ok(base)
    }

    /// A page whose address names `addr`: the block there, or what a delta makes of it. `Corrupt` where that is not the
    /// page whose checksum the delta carries.
    pub(crate) fn page_at(&self, inode: &Inode, index: u64, addr: BlockAddr) -> Result<Arc<Block>> {
        match self.delta_of(inode, index)? {
            None => Ok(Arc::new(*self.io.read(addr)?)),
            Some(record) => self.rebuild(inode, &record, addr),
        }
    }

    fn rebuild(&self, inode: &Inode, record: &OwnedRecord, addr: BlockAddr) -> Result<Arc<Block>> {
        let bad = |field, value: String| {
            let value = format!("{value} for page {}", record.index);
            FormatError::corrupt(Structure::DeltaZone, inode.ino, field, value)
        };
        if !is_block(addr) {
            return Err(bad("index", format!("a delta without a base, at {addr:#x},")).into());
        }
        let mut page = Arc::new((*self.base(addr)?).clone());
        let content = &mut Arc::make_mut(&mut page).0;
        self.deltas
            .with_codecs(|codecs| codecs.rebuild(record.codec, &record.delta, record.checksum, content))
            .map_err(|e| match e {
                RebuildError::Codec(e) => bad("codec", e.to_string()),
                RebuildError::Delta(e) => bad("delta", e.to_string()),
                RebuildError::Checksum { stored, computed } => {
                    bad("checksum", format!("{stored:#010x}, computed {computed:#010x}"))
                }
            })?;
        Counters::add(&self.deltas.counters.rebuilt, 1);
        Ok(page)
    }

    /// Decides about a dirty page that is to be written: puts what changed into the zone where it can.
    pub(crate) fn keep_as_delta(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        slot: &Slot,
        index: u64,
        page: &Arc<Block>,
        about: &Page,
    ) -> Result<Kept> {
        let addr = slot.addr();
        let old = self.delta_of(inode, index)?;
        let fixed = old.is_some() || state.whole.contains(&index);
        let otherwise = if fixed { Kept::NewBlock } else { Kept::Anywhere };
        let wanted = about.deltas && (about.inode_due || fixed);
        let index = match u32::try_from(index) {
            Ok(index) if is_block(addr) && wanted && self.makes_deltas(inode) => index,
            _ => return Ok(otherwise),
        };
        if about.dirty_pages > READ_BASES_MAX && self.deltas.bases.get(&addr).is_none() {
            return Ok(otherwise);
        }
        let base = self.base(addr)?;
        if base.0 == page.0 {
            // Back to what the block holds, or never different.
            self.drop_deltas(inode, u64::from(index)..u64::from(index) + 1)?;
            state.whole.remove(&u64::from(index));
            return Ok(Kept::Delta);
        }
        let mut room = [0; INLINE_MAX];
        let room = &mut room[..self.opts.inline_threshold.min(INLINE_MAX)];
        let encoded = self.deltas.with_codecs(|codecs| codecs.encode(&base.0, &page.0, room));
        let Some(encoded) = encoded else {
            Counters::add(&self.deltas.counters.outgrown, u64::from(old.is_some()));
            return Ok(otherwise);
        };
        let checksum = page_checksum(&page.0);
        let new = Record { index, codec: encoded.tag as u8, checksum, delta: &room[..encoded.len] };
        if !self.store_delta(inode, state, &new)? {
            return Ok(otherwise);
        }
        Counters::add(&self.deltas.counters.made, 1);
        Counters::add(&self.deltas.counters.bytes, encoded.len as u64);
        state.whole.remove(&u64::from(index));
        Ok(Kept::Delta)
    }

    /// Puts a record into the zone, making it larger or another record leave where that pays.
    fn store_delta(&self, inode: &Arc<Inode>, state: &mut InodeState, new: &Record<'_>) -> Result<bool> {
        if self.put_record(inode, new)? {
            return Ok(true);
        }
        if self.grow_zone(inode, new.size())? && self.put_record(inode, new)? {
            return Ok(true);
        }
        let Some(victim) = self.worse_record(inode, new)? else { return Ok(false) };
        self.make_whole(inode, state, victim)?;
        Counters::add(&self.deltas.counters.evicted_by_delta, 1);
        self.put_record(inode, new)
    }

    /// The record that is worth less than a new one (case 2): so much larger that the room it leaves will save more
    /// writes than writing its page costs.
    fn worse_record(&self, inode: &Inode, new: &Record<'_>) -> Result<Option<u64>> {
        let records = self.records(inode)?;
        let Some(largest) = records.iter().filter(|r| r.index != new.index).max_by_key(|r| r.delta.len())
        else {
            return Ok(None);
        };
        let mean = records.iter().map(|r| r.delta.len()).sum::<usize>() / records.len();
        let freed = largest.delta.len().saturating_sub(new.delta.len());
        let worth = self.deltas.costs.lock().worth_replacing(freed, mean.max(1), &self.deltas.counters);
        Ok(worth.then_some(u64::from(largest.index)))
    }

    /// Takes a page's delta away and makes the page dirty, to be written as a whole before its inode is without the delta.
    pub(crate) fn make_whole(&self, inode: &Arc<Inode>, state: &mut InodeState, index: u64) -> Result<()> {
        let Some(record) = self.delta_of(inode, index)? else { return Ok(()) };
        if !state.dirty.contains_key(&index) {
            let slot = self.find_slot(inode, index)?;
            let page = match self.pages.get(inode.ino, index) {
                Some(page) => page,
                None => self.rebuild(inode, &record, slot.map_or(medfs_format::NULL_ADDR, |s| s.addr()))?,
            };
            self.pages.remove(inode.ino, index);
            self.add_dirty_page(inode, state, index, page);
        }
        state.whole.insert(index);
        state.with_checkpoint = true;
        self.remove_records(inode, index..index + 1)
    }

    /// Forgets the deltas of pages that go, or get other blocks.
    pub(crate) fn drop_deltas(&self, inode: &Inode, pages: Range<u64>) -> Result<()> {
        self.remove_records(inode, pages)
    }

    /// Notes how long writing took: `blocks` in `elapsed`.
    pub(crate) fn note_write_cost(&self, blocks: usize, elapsed: std::time::Duration) {
        if blocks > 0 && self.deltas.mode != DeltaMode::Off {
            self.deltas.costs.lock().page_written(elapsed / blocks as u32);
        }
    }
}

const _: () = assert!(RECORD_HEADER_SIZE + INLINE_MAX < 1 << 16);
