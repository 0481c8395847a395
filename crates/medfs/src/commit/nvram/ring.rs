//! The ring of records in a memory: where the next one goes, and which of them count.
//!
//! Invariants:
//! 1. Records persist in order, one at a time, so that at most the last can be torn.
//! 2. The metadata names the first record that counts before anything overwrites the one before it.
//! 3. The superblock says that the memory may hold fsyncs before the first record is made, and until a
//!    checkpoint is durable that has them.
//! 4. After a failure of the memory nothing is written to it any more.
//!
//! Locks: the ring's, inside which the order of the chain is asked for.

use super::capture::Recorded;
use super::compaction::{Compaction, Kept};
use super::recorder::Left;
use super::stats::NvramStats;
use crate::error::{Error, Result};
use crate::map::Map;
use crate::ranks;
use crate::tree::Tree;
use medfs_device::Nvram;
use medfs_format::nvram::{
    Found, MAX_RECORD, MAX_SIZE, MAX_UNIT, META_STRIDE, MIN_SIZE, Meta, RING_START, RawMeta, RecordBuilder,
    Stamp, next_start, scan,
};
use medfs_format::seal::SealKey;
use medfs_format::superblock::RawNvramInfo;
use medfs_sync::{Mutex, Ranked};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use zerocopy::{FromZeros, IntoBytes};

/// How old the oldest record may become before a checkpoint is due.
const OLDEST: Duration = Duration::from_secs(300);

/// The timer looks at the ring at most so often.
const SOONEST: Duration = Duration::from_millis(10);

/// A record takes at most one part of so many of the ring.
const PART_OF_A_RECORD: usize = 8;
/// Records are compacted where what they hold takes at most one part of so many of what they take.
const PART_OF_COMPACTED: u64 = 2;
/// Where they could not be, as many parts of the ring are filled before that is tried again.
const PARTS_BEFORE_ANOTHER: u64 = 16;
/// In a ring of at most so many bytes the fsync that reaches the threshold compacts records; in a larger one that takes
/// longer than an fsync may, and the timer does it.
const COMPACTED_BY_FSYNC: u64 = 1 << 20;

/// What became of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Appended {
    Durable,
    /// There is no room before a checkpoint.
    Full,
    /// There never is.
    TooLarge,
    Failed,
}

struct State {
    /// As the memory has it; `None` before a generation begins, and after a failure.
    meta: Option<Meta>,
    next: u64,
    sequence: u64,
    /// Bytes in use before which no compaction is tried.
    compact_from: u64,
    /// When the oldest record that counts was made.
    oldest: Option<Duration>,
    /// The memory failed, and the superblock still names it.
    to_leave: bool,
    /// When changes that nobody synced were last recorded.
    unsynced_at: Duration,
    /// When records came to hold all that waits, where that was asked last.
    all_held_at: Duration,
    /// When the timer last looked at the ring, and the bytes of all records then.
    looked: (Duration, u64),
    /// How often the ring began anew.
    turns: u64,
    stats: NvramStats,
}

/// Where a record goes.
struct Place {
    at: u64,
    /// Behind it, in whole units.
    end: u64,
    /// Bytes of the ring with the gap before it.
    takes: u64,
    /// Where the next one goes.
    next: u64,
}

impl State {
    /// Where a record of so many bytes goes; `None` where there is no room before a checkpoint.
    fn place(&self, meta: &Meta, size: u64) -> Option<Place> {
        let (at, gap) = next_start(meta, self.next, size);
        let end = (at + size).next_multiple_of(meta.unit.into());
        let takes = gap + end - at;
        let next = if end == meta.size { RING_START } else { end };
        (self.stats.used + takes <= self.stats.bytes).then_some(Place { at, end, takes, next })
    }

    /// A record of so many bytes is there.
    fn wrote(&mut self, map: &Map, place: &Place, size: u64) {
        self.next = place.next;
        self.turns += u64::from(place.at == RING_START);
        self.stats.note_written(place.at, size);
        self.sequence += 1;
        map.since.in_nvram.recorded(self.sequence);
    }
}

/// See the module.
pub(super) struct Ring {
    memory: Arc<dyn Nvram>,
    threshold: u64,
    state: Mutex<State>,
}

/// The journal that a memory has, as both copies of its metadata say. `Io` where it cannot be read, `Invalid` where it
/// is too small for one.
pub fn nvram_journal(memory: &dyn Nvram) -> Result<Found> {
    check_size(memory, memory.size())?;
    let mut copies = [RawMeta::new_zeroed(), RawMeta::new_zeroed()];
    for (at, copy) in (0..).step_by(META_STRIDE as usize).zip(&mut copies) {
        memory.read(at, copy.as_mut_bytes()).map_err(|e| failed(memory, "be read", &e))?;
    }
    let [a, b] = &copies;
    Ok(Meta::in_force([a, b]))
}

/// `size`: bytes of it in whole units.
fn check_size(memory: &dyn Nvram, size: u64) -> Result<()> {
    if size >= MIN_SIZE {
        return Ok(());
    }
    let (name, bytes) = (memory.name(), memory.size());
    Err(Error::Invalid(format!("the NVRAM {name} has {bytes} bytes: at least {MIN_SIZE} are needed")))
}

pub(super) fn failed(memory: &dyn Nvram, what: &str, error: &io::Error) -> Error {
    Error::Io(io::Error::new(error.kind(), format!("the NVRAM {} cannot {what}: {error}", memory.name())))
}

impl Ring {
    pub(super) fn new(memory: Arc<dyn Nvram>, threshold: u32) -> Ring {
        let stats = NvramStats { place: memory.name(), ..NvramStats::default() };
        let state = State {
            meta: None,
            next: RING_START,
            sequence: 0,
            compact_from: 0,
            oldest: None,
            to_leave: false,
            unsynced_at: Duration::ZERO,
            all_held_at: Duration::ZERO,
            looked: (Duration::ZERO, 0),
            turns: 0,
            stats,
        };
        Ring { memory, threshold: threshold.into(), state: Mutex::new(state).ranked(ranks::NVRAM) }
    }

    pub(super) fn memory(&self) -> &dyn Nvram {
        &*self.memory
    }

    /// Whether records can be made.
    pub(super) fn is_on(&self) -> bool {
        self.state.lock().meta.is_some()
    }

    /// See [`super::NvramJournal::begin`].
    pub(super) fn begin(&self, map: &Map) -> Result<()> {
        let memory = self.memory();
        let unit = memory.unit().clamp(8, MAX_UNIT.into());
        let size = memory.size().min(MAX_SIZE) / unit * unit;
        check_size(memory, size)?;
        let update = if let Found::Meta(meta) = nvram_journal(memory)? { meta.update } else { 0 };
        let previous = map.sb.nvram_in_use().map_or(0, |info| info.generation.get());
        let checkpoint = map.cp.lock().header.checkpoint_ver.get();
        let meta = Meta {
            uuid: map.sb.uuid,
            generation: generation(map, previous, checkpoint),
            previous,
            checkpoint: map.version_in_footers(),
            update: update + 1,
            first: RING_START,
            sequence: 1,
            size,
            unit: unit as u32,
        };
        let second = Meta { update: meta.update + 1, ..meta };
        for copy in [&meta, &second] {
            write_meta(memory, copy).map_err(|e| failed(memory, "be written", &e))?;
        }
        map.set_nvram(Some(RawNvramInfo::new(meta.generation, checkpoint, &memory.name())))?;
        let mut state = self.state.lock();
        (state.next, state.sequence, state.meta) = (meta.first, meta.sequence, Some(second));
        state.stats.bytes = size - RING_START;
        Ok(())
    }

    /// See [`super::NvramJournal::end`].
    pub(super) fn end(&self, map: &Map) -> Result<()> {
        let named = {
            let state = &mut *self.state.lock();
            state.meta.take().is_some() | std::mem::take(&mut state.to_leave)
        };
        if named { Ok(map.set_nvram(None)?) } else { Ok(()) }
    }

    /// Bytes that a record should take at most: of what takes more the roll-forward log has much in one request.
    pub(super) fn most_of_a_record(&self) -> usize {
        let bytes = self.state.lock().stats.bytes as usize;
        (bytes / PART_OF_A_RECORD).min(MAX_RECORD)
    }

    /// Makes a record durable.
    pub(super) fn append(&self, map: &Map, record: &RecordBuilder) -> Appended {
        let state = &mut *self.state.lock();
        let Some(meta) = &state.meta else { return Appended::Failed };
        let size = record.size() as u64;
        if size.next_multiple_of(meta.unit.into()) > meta.size - RING_START {
            return Appended::TooLarge;
        }
        let Some(place) = state.place(meta, size) else { return Appended::Full };
        let at = place.at;
        let chain = {
            let _chain = map.chain.lock();
            map.segs.lock().chain_blocks()
        };
        let bytes = record.seal(Stamp {
            sequence: state.sequence,
            generation: meta.generation,
            checkpoint: map.version_in_footers(),
            chain,
            time: map.clock.now(),
        });
        let written = self.memory.write(at, &bytes).and_then(|()| self.memory.persist(at, size));
        if let Err(error) = written {
            self.fail(state, &error);
            return Appended::Failed;
        }
        state.wrote(map, &place, size);
        state.oldest.get_or_insert(map.clock.monotonic());
        state.stats.used += place.takes;
        state.stats.records += 1;
        state.stats.record_bytes += size;
        Appended::Durable
    }

    fn fail(&self, state: &mut State, error: &io::Error) {
        tracing::error!(%error, "the NVRAM {} failed: fsyncs go to the volume", self.memory.name());
        (state.meta, state.to_leave) = (None, true);
    }

    /// A checkpoint made all records void.
    pub(super) fn checkpointed(&self, map: &Map) {
        let state = &mut *self.state.lock();
        if let Some(meta) = state.meta
            && meta.sequence != state.sequence
        {
            let checkpoint = map.version_in_footers();
            let (first, sequence, update) = (state.next, state.sequence, meta.update + 1);
            match self.put_meta(state, Meta { first, sequence, update, checkpoint, ..meta }) {
                Ok(()) => state.stats.emptied += 1,
                Err(error) => self.fail(state, &error),
            }
        }
        (state.stats.used, state.oldest, state.compact_from) = (0, None, 0);
        if state.to_leave {
            match map.set_nvram(None) {
                Ok(()) => state.to_leave = false,
                Err(error) => tracing::warn!(%error, "the superblock still names the NVRAM that failed"),
            }
        }
    }

    /// See [`super::NvramJournal::is_due`].
    pub(super) fn is_due(&self, now: Duration) -> bool {
        let state = self.state.lock();
        if state.meta.is_none() {
            return false;
        }
        let old = state.oldest.is_some_and(|oldest| now.saturating_sub(oldest) >= OLDEST);
        old || self.reaches_threshold(&state)
    }

    /// See [`super::NvramJournal::next_look`].
    pub(super) fn next_look(&self, now: Duration) -> Duration {
        let state = &mut *self.state.lock();
        let records = state.stats.record_bytes;
        let (before, then) = std::mem::replace(&mut state.looked, (now, records));
        let (passed, grown) = (now.saturating_sub(before), records - then);
        let left = (state.stats.bytes * self.threshold / 100).saturating_sub(state.stats.used);
        if grown == 0 { Duration::MAX } else { passed.mul_f64(left as f64 / grown as f64).max(SOONEST) }
    }

    fn reaches_threshold(&self, state: &State) -> bool {
        state.stats.used * 100 >= state.stats.bytes.max(1) * self.threshold
    }

    /// Whether records are to be compacted before a checkpoint makes them void.
    pub(super) fn is_to_compact(&self) -> bool {
        let state = self.state.lock();
        state.meta.is_some() && self.reaches_threshold(&state) && state.stats.used >= state.compact_from
    }

    /// Puts one record in the place of all, where that frees much.
    pub(super) fn compact(&self, tree: &Tree) {
        let state = &mut *self.state.lock();
        let Some(meta) = state.meta else { return };
        if state.stats.used < state.compact_from {
            return;
        }
        let before = state.stats.used;
        match self.compact_all(tree, state, &meta) {
            Ok(()) => {
                state.stats.compactions += 1;
                state.stats.compacted += before - state.stats.used;
            }
            Err(Kept::Much) => state.compact_from = u64::MAX,
            Err(Kept::ForNow) => state.compact_from = before + state.stats.bytes / PARTS_BEFORE_ANOTHER,
        }
    }

    fn compact_all(&self, tree: &Tree, state: &mut State, meta: &Meta) -> std::result::Result<(), Kept> {
        let mut bytes = vec![0; meta.size as usize];
        self.memory.read(0, &mut bytes).map_err(|_| Kept::ForNow)?;
        let records = scan(&bytes, meta).map_err(|_| Kept::Much)?;
        let (Some((_, first)), Some((_, last))) = (records.records.first(), records.records.last()) else {
            return Err(Kept::Much);
        };
        // A checkpoint is about to make them void.
        if (records.sequence, last.stamp.checkpoint) != (state.sequence, tree.version_in_footers()) {
            return Err(Kept::ForNow);
        }
        let is_of_one =
            (first.stamp.checkpoint, first.stamp.chain) == (last.stamp.checkpoint, last.stamp.chain);
        if !is_of_one {
            return Err(Kept::Much);
        }
        let room = (state.stats.bytes - state.stats.used).min(state.stats.used / PART_OF_COMPACTED);
        let record = Compaction::of(tree, &records.records, room as usize)?;
        let size = record.size() as u64;
        let place = state.place(meta, size).ok_or(Kept::Much)?;
        let at = place.at;
        let bytes = record.seal(Stamp { sequence: state.sequence, ..last.stamp });
        let next = Meta { first: at, sequence: state.sequence, update: meta.update + 1, ..*meta };
        let written = self.memory.write(at, &bytes).and_then(|()| self.memory.persist(at, size));
        if let Err(error) = written.and_then(|()| self.put_meta(state, next)) {
            self.fail(state, &error);
            return Err(Kept::Much);
        }
        state.wrote(tree, &place, size);
        state.stats.used = place.end - at;
        Ok(())
    }

    /// Makes the metadata say this.
    fn put_meta(&self, state: &mut State, meta: Meta) -> io::Result<()> {
        write_meta(&*self.memory, &meta)?;
        state.stats.note_written(meta.place(), size_of::<RawMeta>() as u64);
        state.meta = Some(meta);
        Ok(())
    }

    /// Counts what a record holds of a file.
    pub(super) fn note(&self, recorded: Recorded) {
        let stats = &mut self.state.lock().stats;
        stats.pages += recorded.pages;
        stats.from_parts += recorded.from_parts;
        stats.nodes += recorded.nodes;
        stats.revoked += recorded.revoked;
        stats.placed += recorded.placed;
    }

    /// Counts a flush before a record.
    pub(super) fn flushed_first(&self) {
        self.state.lock().stats.flushed_first += 1;
    }

    /// Counts a set that went to the roll-forward log.
    pub(super) fn left(&self, why: Left) {
        let stats = &mut self.state.lock().stats;
        *match why {
            Left::Kind => &mut stats.left_for_kind,
            Left::Large => &mut stats.left_for_size,
            Left::Full | Left::NoRoom => &mut stats.left_for_room,
            Left::Unreadable => &mut stats.left_unreadable,
            Left::Failed => &mut stats.left_after_failure,
        } += 1;
    }

    /// Whether so long has passed since changes that nobody synced were recorded.
    pub(super) fn unsynced_are_due(&self, now: Duration, interval: Duration) -> bool {
        let state = self.state.lock();
        state.meta.is_some() && now.saturating_sub(state.unsynced_at) >= interval
    }

    /// They are, now.
    pub(super) fn unsynced_recorded(&self, now: Duration) {
        self.state.lock().unsynced_at = now;
    }

    /// When records held all that waits, as far as is known.
    pub(super) fn all_held_at(&self) -> Duration {
        self.state.lock().all_held_at
    }

    /// They do, now.
    pub(super) fn all_is_held(&self, now: Duration) {
        self.state.lock().all_held_at = now;
    }

    /// Counts a record of them.
    pub(super) fn note_unsynced(&self) {
        self.state.lock().stats.unsynced += 1;
    }

    /// Whether the fsync that reaches the threshold compacts records.
    pub(super) fn compacts_at_once(&self) -> bool {
        self.bytes() <= COMPACTED_BY_FSYNC && self.is_to_compact()
    }

    /// Bytes of the ring.
    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().stats.bytes
    }

    pub(super) fn stats(&self) -> NvramStats {
        let state = self.state.lock();
        // A line of the ring is written once in a turn, one of the metadata each second time that this changes.
        let of_metadata = state.meta.map_or(0, |meta| meta.update.div_ceil(2));
        NvramStats { most_written_line: state.turns.max(of_metadata), ..state.stats.clone() }
    }
}

/// The number of a journal that begins now: made of the moment, so that neither a copy of the volume nor
/// another memory has one that is the same.
fn generation(map: &Map, previous: u64, checkpoint: u64) -> u64 {
    let (now, since) = (map.clock.now(), map.clock.monotonic());
    let moment = [now.secs as u64, now.nanos.into(), since.as_nanos() as u64, previous];
    SealKey::new(&map.sb.uuid, checkpoint).of_nodes(moment).max(1)
}

fn write_meta(memory: &dyn Nvram, meta: &Meta) -> io::Result<()> {
    let raw = meta.raw();
    memory.write(meta.place(), raw.as_bytes())?;
    memory.persist(meta.place(), size_of::<RawMeta>() as u64)
}
