//! What the delta layer remembers of a volume: its options, its codecs, what it counts.
//!
//! Locks: `codecs` is a leaf.

use super::fpc_records::{FpcCounters, MOST_SHARING, codec_of};
use crate::content::base_cache::BaseCache;
use crate::content::codec_pool::CodecPool;
use crate::content::record::OwnedRecord;
use crate::content::storage::Below;
use crate::error::Result;
use crate::map::inode::Inode;
use crate::options::{DeltaMode, MountOptions};
use crate::stats::{Counters, DeltaStats};
use medfs_codec::{CodecTag, Codecs, RebuildError, page_checksum};
use medfs_format::delta::{COMPACT_ROOM, RECORD_HEADER_SIZE, RawSlice};
use medfs_format::{BLOCK_SIZE, Block, FormatError, Structure};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

/// Largest inline delta in bytes, unless asked otherwise.
const INLINE_DEFAULT: usize = 256;

/// Part of the cache that bases may take on a volume that may hold deltas: one of so many.
pub(crate) const BASES_PART: usize = 8;

/// The base of a page that has no block.
pub(super) static ZEROS: LazyLock<Arc<Block>> = LazyLock::new(|| Arc::new(Block::ZERO));

/// What a volume that may hold deltas needs beside its files.
pub(crate) struct Deltas {
    /// Whether new deltas are made. Old ones are read in any case.
    pub(crate) mode: DeltaMode,
    /// By what pages are compressed instead, with `mode` off.
    pub(super) alone: Option<CodecTag>,
    /// Whether a page without a block has zeros for a base, and whether blocks of other files are bases.
    pub(super) appends: bool,
    pub(crate) repeats: bool,
    /// Whether blocks of the same file that look like a page are its bases.
    pub(crate) likeness: bool,
    /// Whether changed addresses are noted in the inode instead of being written with their nodes.
    pub(super) notes: bool,
    /// Largest delta in bytes that goes into the zone for good, and largest record that goes into a compact page.
    pub(super) inline_max: usize,
    pub(super) compact_max: usize,
    most_places: usize,
    codecs: CodecPool,
    pub(crate) counters: DeltaCounters,
    /// What is stored of pages of compressed files, where the volume has any.
    pub(super) below: Option<Arc<dyn Below>>,
    pub(super) alone_counters: FpcCounters,
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
    /// Pages kept as deltas of other blocks of their file that look like them.
    pub(crate) similar: AtomicU64,
    pub(crate) taken_back: AtomicU64,
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
            similar: get(&self.similar),
            taken_back: get(&self.taken_back),
            released: get(&self.released),
        }
    }
}

impl Deltas {
    /// For a volume that may hold deltas.
    pub(crate) fn new(opts: &MountOptions, below: Option<Arc<dyn Below>>) -> Deltas {
        let mode = opts.delta_mode();
        let alone = opts.compress.fpc.map(codec_of);
        Deltas { alone, below, ..Deltas::of(mode, opts) }
    }

    /// For one that may not: nothing is made.
    pub(crate) fn none(opts: &MountOptions) -> Deltas {
        Deltas::of(DeltaMode::Off, opts)
    }

    fn of(mode: DeltaMode, opts: &MountOptions) -> Deltas {
        Deltas {
            mode,
            alone: None,
            below: None,
            appends: opts.zero_base_deltas,
            repeats: opts.cross_file_deltas.unwrap_or(matches!(mode, DeltaMode::Compact | DeltaMode::Full))
                && mode != DeltaMode::Off,
            likeness: opts.similar_deltas && matches!(mode, DeltaMode::Compact | DeltaMode::Full),
            notes: mode != DeltaMode::Off && opts.addr_redo,
            inline_max: opts.inline_threshold.unwrap_or(if mode == DeltaMode::Full {
                BLOCK_SIZE / opts.compact_threshold
            } else {
                INLINE_DEFAULT
            }),
            most_places: opts.compact_pages,
            compact_max: COMPACT_ROOM / opts.compact_threshold,
            codecs: CodecPool::default(),
            counters: DeltaCounters::default(),
            alone_counters: FpcCounters::default(),
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
    pub(super) fn has_inline(&self) -> bool {
        matches!(self.mode, DeltaMode::Inline | DeltaMode::Full)
    }

    /// Whether they go into compact pages.
    pub(crate) fn has_compact(&self) -> bool {
        matches!(self.mode, DeltaMode::Compact | DeltaMode::Full) || self.alone.is_some()
    }

    /// Most compact pages of a file.
    pub(super) fn most_places(&self) -> usize {
        self.most_places
    }

    /// Most records that share a compact page.
    pub(super) fn most_sharing(&self) -> usize {
        if self.alone.is_some() { MOST_SHARING } else { COMPACT_ROOM }
    }

    pub(crate) fn with_codecs<R>(&self, f: impl FnOnce(&mut Codecs) -> R) -> R {
        self.codecs.with(f)
    }

    /// Bytes that a record may have to be kept.
    pub(crate) fn record_max(&self) -> usize {
        match self.mode {
            DeltaMode::Inline => self.inline_max + RECORD_HEADER_SIZE,
            _ => self.compact_max,
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
        let (tag, delta) = self.with_codecs(|codecs| {
            codecs.delta(&base.0, &page.0, most).map(|delta| (delta.tag, delta.bytes.to_vec()))
        })?;
        let checksum = page_checksum(&page.0);
        Some(OwnedRecord { index, codec: tag as u8, checksum, slices: slices.to_vec(), delta })
    }

    /// Makes the page of a record of its base, which `page` holds; `base` is the base again where it is elsewhere too.
    pub(super) fn apply(
        &self,
        inode: &Inode,
        record: &OwnedRecord,
        base: Option<&Block>,
        page: &mut Block,
    ) -> Result<()> {
        let bad = |field, value| bad_record(inode, record, field, value);
        let OwnedRecord { codec, checksum, delta, .. } = record;
        self.with_codecs(|codecs| match base {
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
        Counters::add(&self.counters.rebuilt, 1);
        Ok(())
    }
}

/// Reports the record of a page.
pub(super) fn bad_record(
    inode: &Inode,
    record: &OwnedRecord,
    field: &'static str,
    value: String,
) -> FormatError {
    let value = format!("{value} for page {}", record.index);
    FormatError::corrupt(Structure::DeltaZone, inode.ino, field, value)
}
