//! Deltas instead of pages: what changed of a page is kept in the file's inode (MedFS, section 4.1).
//!
//! A page's *base* is the block that its address names; with a delta in the inode's zone the page is what delta and base
//! make together. [`zone`] keeps the zone and its size, [`crate::content::cost_model`] measures what replacing a delta is worth; [`base_prefetch`] reads bases, many at once,
//! and [`fold`] writes all that is a delta as pages again.
//!
//! Where a page has no block yet, zeros stand for it, and where another file holds nearly the same, slices of that file's
//! blocks ([`crate::xref::sqlite_wal`], [`crate::xref::predecessor`]); those count as bases too ([`crate::map::refs`], kept across mounts by [`crate::xref::ref_index`] and [`crate::xref::retained`], let go by [`crate::xref::unshare`]). [`decide`] decides about pages that are to be written,
//! [`compact`] has the records for which the zone is too small ([`lost`]: where they cannot be read), and [`fpc`] the pages that are compressed instead; [`cluster`] is about
//! pages of compressed clusters. [`addr_redo`] keeps changed addresses where deltas are.
//!
//! Invariants:
//! - A base is neither overwritten in place nor its block freed before the inode without the delta is on its way: a page
//!   with a delta, and one whose delta had to go ([`InodeState::whole`]), goes to a new block.
//! - A delta goes when its page's address changes, in the same change of the inode; so an index used again never meets
//!   an old delta.
//! - A delta that had to go before its page is written takes the page along into the next checkpoint.
//! - A page read by a delta has the checksum that is stored with it, or is an error.
//!
//! Locks: functions are called with the inode's lock held, exclusive (and the operation lock) to change; `codecs`
//! is a leaf. The blocks of another file are looked up without its lock: that it is a source keeps them.

pub(crate) mod addr_redo;
mod base_prefetch;
mod cluster;
mod compact;
mod compact_map;
mod decide;
mod fold;
mod fpc;
mod lost;
mod occupancy;
mod unshare;
pub(crate) mod zone;

use crate::content::base_cache::BaseCache;
use crate::content::page_plan::{Changed, Decide};
use crate::content::record::OwnedRecord;
use crate::error::{Error, Posix, Result};
use crate::fs::Fs;
use crate::map::inode::{Inode, InodeState};
use crate::options::{DeltaMode, MountOptions};
use crate::profile::file_class::Name;
use crate::stats::{Counters, DeltaStats};
pub use fold::Folded;
use fpc::AloneCounters;
use medfs_codec::{CodecTag, Codecs, RebuildError, page_checksum};
use medfs_format::delta::{COMPACT_ROOM, NO_DELTA, RECORD_HEADER_SIZE, RawSlice, Record};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, FormatError, NEW_ADDR, NULL_ADDR, Structure, is_block};
use medfs_sync::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Largest inline delta in bytes, unless asked otherwise.
const INLINE_DEFAULT: usize = 256;

/// Dirty pages of a file up to which bases that are not in memory are read: whoever overwrites more in one go is unlikely
/// to have changed little of each.
const READ_BASES_MAX: usize = 64;
/// The same for databases: SQLite takes over what its log has gathered in one go.
const READ_BASES_MAX_DATABASE: usize = 4096;
/// Part of the cache that bases may take on a volume that may hold deltas: one of so many.
pub(crate) const BASES_PART: usize = 8;

/// The base of a page that has no block.
static ZEROS: Block = Block::ZERO;

/// What a volume that may hold deltas needs beside its files.
pub(crate) struct Deltas {
    /// Whether new deltas are made. Old ones are read in any case.
    pub(crate) mode: DeltaMode,
    /// By what pages are compressed instead, with `mode` off.
    alone: Option<CodecTag>,
    /// Whether a page without a block has zeros for a base, and whether blocks of other files are bases.
    appends: bool,
    pub(crate) repeats: bool,
    /// Whether changed addresses are noted in the inode instead of being written with their nodes.
    notes: bool,
    /// Largest delta in bytes that goes into the zone for good, and largest record that goes into a compact page.
    inline_max: usize,
    compact_max: usize,
    codecs: Mutex<Vec<Box<Codecs>>>,
    pub(crate) counters: DeltaCounters,
    alone_counters: AloneCounters,
}

/// What became of deltas since the volume was opened.
#[derive(Debug, Default)]
pub(crate) struct DeltaCounters {
    /// Pages kept as deltas instead of being written, and the bytes of these deltas.
    pub(crate) made: AtomicU64,
    pub(crate) bytes: AtomicU64,
    /// Pages rebuilt from base and delta.
    pub(crate) rebuilt: AtomicU64,
    /// Deltas that gave way to addresses (case 1), to other deltas (case 2), or outgrew their budget (case 3).
    pub(crate) evicted_by_growth: AtomicU64,
    pub(crate) evicted_by_delta: AtomicU64,
    pub(crate) outgrown: AtomicU64,
    /// Compact pages made.
    pub(crate) compact_pages: AtomicU64,
    /// Pages kept as deltas that had no block, and that are made from blocks of other files.
    pub(crate) appended: AtomicU64,
    pub(crate) repeated: AtomicU64,
    /// Pages written as a whole because a block they are made from had to go.
    pub(crate) released: AtomicU64,
}

impl DeltaCounters {
    pub(crate) fn stats(&self, bases: &BaseCache) -> DeltaStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        DeltaStats {
            made: get(&self.made),
            bytes: get(&self.bytes),
            rebuilt: get(&self.rebuilt),
            bases: get(&bases.wanted),
            bases_read: get(&bases.read),
            evicted_by_growth: get(&self.evicted_by_growth),
            evicted_by_delta: get(&self.evicted_by_delta),
            outgrown: get(&self.outgrown),
            compact_pages: get(&self.compact_pages),
            appended: get(&self.appended),
            repeated: get(&self.repeated),
            released: get(&self.released),
        }
    }
}

impl Deltas {
    /// For a volume that may hold deltas.
    pub(crate) fn new(opts: &MountOptions) -> Deltas {
        let mode = opts.delta_mode();
        let alone = opts.compress.fpc.map(fpc::codec_of);
        Deltas { alone, ..Deltas::of(mode, opts) }
    }

    /// For one that may not: nothing is made.
    pub(crate) fn none(opts: &MountOptions) -> Deltas {
        Deltas::of(DeltaMode::Off, opts)
    }

    fn of(mode: DeltaMode, opts: &MountOptions) -> Deltas {
        Deltas {
            mode,
            alone: None,
            appends: opts.append_deltas,
            repeats: opts.repeat_deltas.unwrap_or(matches!(mode, DeltaMode::Compact | DeltaMode::Full))
                && mode != DeltaMode::Off,
            notes: mode != DeltaMode::Off && opts.note_addresses,
            inline_max: opts.inline_threshold.unwrap_or(if mode == DeltaMode::Full {
                BLOCK_SIZE / opts.compact_threshold
            } else {
                INLINE_DEFAULT
            }),
            compact_max: COMPACT_ROOM / opts.compact_threshold,
            codecs: Mutex::default(),
            counters: DeltaCounters::default(),
            alone_counters: AloneCounters::default(),
        }
    }

    /// Whether pages may be deltas of blocks of other files.
    pub(crate) fn makes_repeats(&self) -> bool {
        self.repeats
    }

    /// Whether pages become records of any kind.
    pub(crate) fn makes_records(&self) -> bool {
        self.mode != DeltaMode::Off || self.alone.is_some()
    }

    /// Whether records go into the inode's zone.
    fn has_inline(&self) -> bool {
        matches!(self.mode, DeltaMode::Inline | DeltaMode::Full)
    }

    /// Whether they go into compact pages.
    pub(crate) fn has_compact(&self) -> bool {
        matches!(self.mode, DeltaMode::Compact | DeltaMode::Full) || self.alone.is_some()
    }

    /// Most records that share a compact page.
    fn most_sharing(&self) -> usize {
        if self.alone.is_some() { fpc::MOST_SHARING } else { COMPACT_ROOM }
    }

    pub(crate) fn with_codecs<R>(&self, f: impl FnOnce(&mut Codecs) -> R) -> R {
        let mut codecs = self.codecs.lock().pop().unwrap_or_default();
        let result = f(&mut codecs);
        self.codecs.lock().push(codecs);
        result
    }
}

/// Reports the record of a page.
fn bad_record(inode: &Inode, record: &OwnedRecord, field: &'static str, value: String) -> FormatError {
    let value = format!("{value} for page {}", record.index);
    FormatError::corrupt(Structure::DeltaZone, inode.ino, field, value)
}

/// What can be said of a page by what it was before.
enum Encoding {
    /// It is its block, or as empty as it would be without one.
    Same,
    Delta(OwnedRecord),
    /// No delta is small enough.
    None,
    /// What it was cannot be read.
    Unreadable,
}

impl Fs {
    /// Whether this file's pages may become records.
    fn makes_records(&self, inode: &Inode) -> bool {
        self.deltas.makes_records() && zone::may_have_one(inode)
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
        match self.zone_record(inode, index)? {
            Some(record) => Ok(Some(record).filter(OwnedRecord::is_delta)),
            None if self.has_compact(inode) => self.compact_record(inode, index),
            None => Ok(None),
        }
    }

    /// Whether a page has a delta.
    pub(crate) fn has_delta(&self, inode: &Inode, index: u64) -> Result<bool> {
        Ok(!self.delta_pages(inode, index..index + 1)?.is_empty())
    }

    /// Whether any page of a file may have a delta.
    pub(crate) fn has_deltas(&self, inode: &Inode) -> bool {
        let in_zone = || self.with_records(inode, |records| !records.is_empty()).unwrap_or(true);
        self.is_delta_volume() && (self.has_compact(inode) || in_zone())
    }

    /// The pages of a range that have deltas, sorted.
    pub(crate) fn delta_pages(&self, inode: &Inode, pages: Range<u64>) -> Result<Vec<u64>> {
        let mut found = self.deltas_in(inode, &pages, |r| r.index.into(), |index| index)?;
        found.sort_unstable();
        Ok(found)
    }

    /// The pages of a range that have deltas, with their records where these are in the zone.
    pub(crate) fn delta_records(
        &self,
        inode: &Inode,
        pages: Range<u64>,
    ) -> Result<BTreeMap<u64, Option<OwnedRecord>>> {
        let in_zone = |r: &Record<'_>| (r.index.into(), Some(OwnedRecord::from(r)));
        Ok(self.deltas_in(inode, &pages, in_zone, |index| (index, None))?.into_iter().collect())
    }

    /// What is wanted of each page of a range that has a delta: of its record in the zone, or of a page whose record is in a
    /// compact page.
    fn deltas_in<T>(
        &self,
        inode: &Inode,
        pages: &Range<u64>,
        in_zone: impl Fn(&Record<'_>) -> T,
        in_compact: impl Fn(u64) -> T,
    ) -> Result<Vec<T>> {
        if !self.is_delta_volume() {
            return Ok(Vec::new());
        }
        let mut found: Vec<T> = self.with_records(inode, |records| {
            let deltas = records.iter().filter(|r| r.codec != NO_DELTA);
            deltas.filter(|r| pages.contains(&r.index.into())).map(&in_zone).collect()
        })?;
        if self.has_compact(inode) {
            match self.compact_pages_in(inode, pages) {
                Err(e) if self.is_damage(&e) && self.zone_knows(inode, pages)? => {}
                others => found.extend(others?.into_iter().map(in_compact)),
            }
        }
        Ok(found)
    }

    /// Makes the page that has a delta, as [`Fs::delta_records`] tells it, of the block that was read from its address.
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
        self.apply(inode, &record, Some(&base), block)
    }

    /// A page with this address: what a delta makes of the block there, or that block; zeros where it names none. `Corrupt`
    /// where base and delta do not make the page whose checksum the delta carries.
    pub(crate) fn page_at(&self, inode: &Inode, index: u64, addr: BlockAddr) -> Result<Arc<Block>> {
        match self.delta_of(inode, index)? {
            Some(record) => self.rebuild(inode, &record, addr),
            None if is_block(addr) => Ok(Arc::new(*self.io.read(addr)?)),
            None => Ok(Arc::new(Block::ZERO)),
        }
    }

    fn rebuild(&self, inode: &Inode, record: &OwnedRecord, addr: BlockAddr) -> Result<Arc<Block>> {
        let bad = |field, value| bad_record(inode, record, field, value);
        let base = match &record.slices[..] {
            [] => match self.base_in_cluster(inode, record.index.into())? {
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
    fn rebuild_over(&self, inode: &Inode, record: &OwnedRecord, mut base: Arc<Block>) -> Result<Arc<Block>> {
        if let Some(page) = Arc::get_mut(&mut base) {
            self.apply(inode, record, None, page)?;
            return Ok(base);
        }
        let mut page = base.clone();
        self.apply(inode, record, Some(&base), Arc::make_mut(&mut page))?;
        Ok(page)
    }

    /// Makes the page of a record of its base, which `page` holds; `base` is the base again where it is elsewhere too.
    fn apply(
        &self,
        inode: &Inode,
        record: &OwnedRecord,
        base: Option<&Block>,
        page: &mut Block,
    ) -> Result<()> {
        let bad = |field, value| bad_record(inode, record, field, value);
        let OwnedRecord { codec, checksum, delta, .. } = record;
        self.deltas
            .with_codecs(|codecs| match base {
                Some(base) => codecs.rebuild_copy(*codec, &base.0, delta, *checksum, &mut page.0),
                None => codecs.rebuild(*codec, delta, *checksum, &mut page.0),
            })
            .map_err(|e| match e {
                RebuildError::Codec(e) => bad("codec", e.to_string()),
                RebuildError::Delta(e) => bad("delta", e.to_string()),
                RebuildError::Checksum { stored, computed } => {
                    bad("checksum", format!("{stored:#010x}, computed {computed:#010x}"))
                }
            })?;
        Counters::add(&self.deltas.counters.rebuilt, 1);
        Ok(())
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

    /// Finds out how little says what a page is: against what other files hold, or against its own block.
    fn encode_page(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        addr: BlockAddr,
        changed: &Changed,
        about: &Decide,
    ) -> Result<Encoding> {
        let Ok(index) = u32::try_from(changed.index) else { return Ok(Encoding::None) };
        let page = &changed.page;
        let counters = &self.deltas.counters;
        const LOST: &str = "a page is not compared with a block that cannot be read";
        let found = self.encode_repeat(inode, state, index, page);
        let mut repeat = self.pass_by(LOST, inode.ino, found)?.flatten();
        if repeat.is_none() && addr == NEW_ADDR {
            let found = self.encode_replacement(inode, state, index, page);
            repeat = self.pass_by(LOST, inode.ino, found)?.flatten();
        }
        if let Some((record, after)) = repeat {
            Counters::add(&counters.repeated, 1);
            // What it is made from must be durable before it.
            state.data_mark = state.data_mark.max(after);
            return Ok(Encoding::Delta(record));
        }
        let many = about.batch.dirty_pages > self.most_dirty(inode);
        let own;
        let base = if addr == NEW_ADDR && self.deltas.appends && !many {
            &ZEROS
        } else if is_block(addr)
            && let Some(base) = &changed.base
        {
            Counters::add(&self.base_cache.wanted, 1);
            base
        } else if is_block(addr) && !(many && self.base_cache.get(addr).is_none()) {
            let Some(base) = self.pass_by(LOST, inode.ino, self.base(addr))? else {
                return Ok(Encoding::Unreadable);
            };
            own = base;
            &*own
        } else {
            return Ok(Encoding::None);
        };
        if base.0 == page.0 {
            return Ok(Encoding::Same);
        }
        let record = self.encode(index, base, page, &[], self.record_max());
        if record.is_some() {
            // Whatever it was made from before.
            self.dependents.drop_pages(inode.ino, u64::from(index)..u64::from(index) + 1);
            Counters::add(&counters.appended, u64::from(addr == NEW_ADDR));
        }
        Ok(record.map_or(Encoding::None, Encoding::Delta))
    }

    /// The record of a page that other files are not to be asked about, if it is at most so large.
    fn encode_alone(
        &self,
        addr: BlockAddr,
        index: u64,
        page: &Arc<Block>,
        most: usize,
    ) -> Result<Option<OwnedRecord>> {
        let Ok(index) = u32::try_from(index) else { return Ok(None) };
        if is_block(addr) {
            return Ok(self.encode(index, &*self.base(addr)?, page, &[], most));
        }
        Ok(self.encode(index, &ZEROS, page, &[], most))
    }

    /// Dirty pages of a file up to which it is taken for one that changes little.
    fn most_dirty(&self, inode: &Inode) -> usize {
        if inode.raw(Name::of) == Name::Database { READ_BASES_MAX_DATABASE } else { READ_BASES_MAX }
    }

    /// Bytes that a record may have to be kept.
    pub(crate) fn record_max(&self) -> usize {
        match self.deltas.mode {
            DeltaMode::Inline => self.deltas.inline_max + RECORD_HEADER_SIZE,
            _ => self.deltas.compact_max,
        }
    }

    /// The record of a page against a base, where it is at most so large.
    pub(crate) fn encode(
        &self,
        index: u32,
        base: &Block,
        page: &Block,
        slices: &[RawSlice],
        most: usize,
    ) -> Option<OwnedRecord> {
        let most = most.checked_sub(RECORD_HEADER_SIZE + size_of_val(slices))?;
        let (tag, delta) = self.deltas.with_codecs(|codecs| {
            codecs.delta(&base.0, &page.0, most).map(|delta| (delta.tag, delta.bytes.to_vec()))
        })?;
        let checksum = page_checksum(&page.0);
        Some(OwnedRecord { index, codec: tag as u8, checksum, slices: slices.to_vec(), delta })
    }
}
