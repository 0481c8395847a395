//! The journal in NVRAM as a sink of commits (Delta Journaling, TCE'14, section III): an fsync of little is a
//! record of deltas beside the volume, and writes no block.
//!
//! A record says of each changed page and node what differs from the block that its address names. Its pages
//! stay dirty, without a new block, until a checkpoint writes them; its nodes stay dirty as those of a shared
//! record node do. Names are told as the roll-forward log tells them: by the inode of a file that is new or
//! was renamed, and by lists of names that files lost. That log is asked first whether roll-forward would
//! bring back what changed, and gets the sets that are no little change.
//!
//! Invariants:
//! 1. A record rests on durable blocks alone: what its nodes name and what its deltas start from.
//! 2. What a delta starts from stays as it is until the next checkpoint: it is not overwritten in place
//!    ([`InNvram`](crate::map::journaled::InNvram)), and the segments reuse no block before that.
//! 3. A checkpoint writes every page that a record holds, so that the pack which makes all records void has
//!    their content.
//! 4. A page of a record that is not dirty any more, or was cut off, is revoked by the next record of its file.
//!
//! Locks: the set's; the inode's while its changes are taken; the ring's, which is not held together with an inode's.

mod admission;
mod capture;
mod compaction;
mod parts;
mod pending;
mod recorder;
mod ring;
mod stats;
mod tests;
mod unsynced;

pub(crate) use pending::{BesideVolume, Pending, pending};
pub use pending::{NvramContent, nvram_content};
pub use ring::nvram_journal;
pub use stats::NvramStats;

use crate::commit::change_set::{ChangeSet, CommitSink, NeedsCheckpoint, Outcome, StagedFile};
use crate::commit::checkpoint::CheckpointSink;
use crate::commit::roll_forward_log::RollForwardLog;
use crate::error::Result;
use crate::map::Map;
use crate::options::MountOptions;
use crate::tree::Tree;
use admission::Admission;
use capture::{Capture, is_eligible};
use medfs_device::Nvram;
use medfs_format::Block;
use medfs_format::nvram::RecordBuilder;
use medfs_format::removed::RemovedName;
use medfs_store::{Cache, cache};
use medfs_sync::Mutex;
use recorder::{Left, Recorder};
use ring::{Appended, Ring};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Blocks of nodes that records start from, kept in memory.
const NODE_BASES: usize = 256;

/// See the module.
pub(crate) struct NvramJournal {
    log: Arc<RollForwardLog>,
    ring: Ring,
    node_bases: Cache<u32, Arc<Block>>,
    image: Mutex<Option<Box<Block>>>,
    admission: Admission,
}

impl NvramJournal {
    /// A journal in a memory, before the volume is looked at.
    pub(crate) fn new(log: Arc<RollForwardLog>, memory: Arc<dyn Nvram>, opts: &MountOptions) -> NvramJournal {
        let ring = Ring::new(memory, opts.nvram_threshold);
        let (node_bases, image) = (cache(NODE_BASES), Mutex::default());
        NvramJournal { log, ring, node_bases, image, admission: Admission::of(opts) }
    }

    /// The memory.
    pub(crate) fn memory(&self) -> &dyn Nvram {
        self.ring.memory()
    }

    /// Begins a generation on a volume that needs nothing of an earlier one: the memory says so, then the superblock.
    pub(crate) fn begin(&self, map: &Map) -> Result<()> {
        self.ring.begin(map)
    }

    /// After the checkpoint of an unmount: the superblock says that the volume needs no memory.
    pub(crate) fn end(&self, map: &Map) -> Result<()> {
        self.ring.end(map)
    }

    /// Whether a checkpoint is due to empty the ring.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        self.ring.is_due(now)
    }

    /// How long it takes until a checkpoint is due, at the pace of late.
    pub(crate) fn next_look(&self, now: Duration) -> Duration {
        self.ring.next_look(now)
    }

    /// Whether superseded records are to go, before a checkpoint empties the ring.
    pub(crate) fn is_to_compact(&self) -> bool {
        self.ring.is_to_compact()
    }

    /// See [`compaction`].
    pub(crate) fn compact(&self, tree: &Tree) {
        self.ring.compact(tree);
    }

    pub(crate) fn stats(&self, tree: &Tree) -> NvramStats {
        let (pages_held, pages_away) = (tree.since.in_nvram.pages(), tree.pages.away() as u64);
        NvramStats { pages_held, pages_away, ..self.ring.stats() }
    }

    /// Whether changes that nobody synced are to be recorded: in journal mode, which holds pages.
    fn unsynced_are_due(&self, now: Duration, interval: Duration) -> bool {
        self.admission != Admission::Nodes && self.ring.unsynced_are_due(now, interval)
    }

    fn unsynced_recorded(&self, now: Duration) {
        self.ring.unsynced_recorded(now);
    }

    /// When records held all that waits, as far as is known.
    pub(crate) fn all_held_at(&self) -> Duration {
        self.ring.all_held_at()
    }

    fn records(&self) -> u64 {
        self.ring.stats().records
    }

    fn note_unsynced(&self) {
        self.ring.note_unsynced();
    }

    /// Makes a set durable by a record; why not, where that cannot be: then everything is as it was, but for pages
    /// that have their blocks. `places`: whether pages may get some.
    fn record(
        &self,
        tree: &Tree,
        set: &ChangeSet<'_>,
        places: bool,
    ) -> Result<std::result::Result<(), Left>> {
        let on = Recorder {
            tree,
            node_bases: &self.node_bases,
            image: &self.image,
            most: self.ring.most_of_a_record(),
            admission: self.admission,
            most_of_a_page: self.admission.most(self.ring.bytes()),
            places,
        };
        if !self.ring.is_on() {
            return Ok(Err(Left::Failed));
        }
        if !set.files.iter().all(|file| is_eligible(&on, file)) {
            return Ok(Err(Left::Kind));
        }
        let mut taken = Vec::with_capacity(set.files.len());
        let made = self.make_record(&on, set, &mut taken);
        let appended = match made {
            Ok(builder) if builder.is_empty() && !places => Ok(Ok(())),
            Ok(builder) if builder.is_empty() => self.flush_before(tree, &taken).map(|()| Ok(())),
            Ok(builder) => self.flush_before(tree, &taken).map(|()| self.append(tree, &builder, &taken)),
            Err(left) => Ok(Err(left)),
        };
        match &appended {
            Ok(Ok(())) => {
                taken.into_iter().for_each(|capture| self.ring.note(capture.recorded(&on)));
                if self.ring.compacts_at_once() {
                    self.ring.compact(tree);
                }
            }
            _ => taken.into_iter().for_each(|capture| capture.give_back(&on)),
        }
        appended
    }

    fn make_record<'s>(
        &self,
        on: &Recorder<'_>,
        set: &'s ChangeSet<'_>,
        taken: &mut Vec<Capture<'s>>,
    ) -> std::result::Result<RecordBuilder, Left> {
        let mut builder = RecordBuilder::default();
        for file in &set.files {
            let (capture, complete) = Capture::take(on, file);
            taken.push(capture);
            complete?;
        }
        for capture in &*taken {
            capture.encode(on, &mut builder)?;
        }
        set.names.iter().for_each(|name| builder.removed(name));
        let pages: usize = taken.iter().map(Capture::new_pages).sum();
        if !builder.fits() {
            return Err(Left::Large);
        }
        let pages = on.tree.since.in_nvram.pages() + pages as u64;
        if !on.tree.space.room_for_rewriting(pages) {
            return Err(Left::NoRoom);
        }
        Ok(builder)
    }

    /// Makes durable what the record is going to rest on: pages and nodes that were written and not flushed.
    fn flush_before(&self, tree: &Tree, taken: &[Capture<'_>]) -> Result<()> {
        let nodes = tree.node_mark.load(Ordering::Acquire);
        if tree.io.is_durable(nodes) && taken.iter().all(|capture| tree.io.is_durable(capture.mark)) {
            return Ok(());
        }
        self.ring.flushed_first();
        Ok(tree.io.flush()?)
    }

    fn append(
        &self,
        tree: &Tree,
        builder: &RecordBuilder,
        taken: &[Capture<'_>],
    ) -> std::result::Result<(), Left> {
        // Before the record can be found: from then on its bases are needed.
        tree.since.in_nvram.note(taken.iter().flat_map(Capture::bases));
        match self.ring.append(tree, builder) {
            Appended::Durable => Ok(()),
            Appended::Full => Err(Left::Full),
            Appended::TooLarge => Err(Left::Large),
            Appended::Failed => Err(Left::Failed),
        }
    }
}

impl CommitSink for NvramJournal {
    fn admits(&self, tree: &Tree, file: &StagedFile<'_>) -> std::result::Result<(), NeedsCheckpoint> {
        self.log.admits(tree, file)
    }

    fn admits_names(
        &self,
        tree: &Tree,
        names: &[RemovedName<'_>],
    ) -> std::result::Result<(), NeedsCheckpoint> {
        self.log.admits_names(tree, names)
    }

    fn commit(&self, tree: &Tree, mut set: ChangeSet<'_>) -> Result<Vec<Result<Outcome>>> {
        // Records rest on durable blocks alone.
        set.flushed_later = false;
        let left = match self.record(tree, &set, true)? {
            Ok(()) => return Ok(set.files.iter().map(|_| Ok(Outcome::Durable)).collect()),
            Err(left) => left,
        };
        self.ring.left(left);
        // A full ring: one checkpoint for as many fsyncs as it has room for. A memory that failed: what it
        // holds must not depend on it any longer.
        let checkpoint = matches!(left, Left::Full | Left::Failed) && tree.since.in_nvram.any();
        if checkpoint { CheckpointSink.commit(tree, set) } else { self.log.commit(tree, set) }
    }

    fn checkpointed(&self, tree: &Tree) {
        self.node_bases.clear();
        self.ring.checkpointed(tree);
        self.log.checkpointed(tree);
    }
}
