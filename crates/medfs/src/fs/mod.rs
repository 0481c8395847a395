//! The mounted file system: who owns what, and the order of locks.
//!
//! ```text
//! Volume ── fs ── content  clean pages, bases, where pages go
//!        │     │  └─ map    inodes and their dirty pages, node trees, orphans, the operation lock
//!        │     │     └─ store  device, space, NAT, node blocks, segments, checkpoint packs (crate medfs-store)
//!        │     ── deltas, compress   the two ways beside the plain one to store a page
//!        │     ── reclaim  who makes room: a trait, so that nothing here knows the cleaner
//!        │     ── commit   who makes changes durable: a trait, so that nothing below fsync knows it
//!        └─ upkeep         what is done while nobody wants anything; shares the cleaner
//! ```
//!
//! Lock order, outermost first:
//!  1. `gc` (one cleaning at a time), `cp` (one checkpoint at a time)
//!  2. an inode's `wb`
//!  3. `ops`: shared by every operation that changes the volume, exclusive for a checkpoint. Never taken twice by a thread.
//!  4. `renames` (one rename between two directories at a time)
//!  5. inode locks: a parent before its child; otherwise by inode number
//!  6. the ring of records in NVRAM, then `chain` (order of fsynced nodes in their log)
//!  7. leaves: `orphans`, `trans_dirs`, `moved_names`, `renamed_files`, `left_by_dirs`, `cut_trees`, `dir_log`, `dependents`, `registry`, `bases`, the queue of group commits, `nodes`, `nat`, `segs`, `space`, `inodes`, `pages`,
//!     `hotness`, `restorer`, `activity`, `damage`, `io`; `nodes` before `segs` before `nat`.
//!
//! A checkpoint that an fsync needs is made after the fsync has given back its locks.

mod compressed_files;
mod file_ops;
pub(crate) mod fold;
mod write_back;

use crate::cluster::{ClusterPages, Clusters};
use crate::content::Content;
use crate::delta::{DeltaPages, Deltas};
use crate::error::{Error, Result};
use crate::map::inode::{Inode, Scope};
use crate::map::op::Op;
use crate::tree::name_journal::DirLog;
use crate::xref::ref_index::Registry;
use crate::xref::retained::Bases;
use medfs_format::Ino;
use medfs_sync::Mutex;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

/// Blocks that a log may be unable to take of those there is room for: the last one of each segment it leaves.
const NOT_TAKEN: u64 = 16;

pub(crate) struct Fs {
    pub(crate) content: Content,
    /// The options in force, as text.
    pub(crate) in_force: Vec<String>,
    pub(crate) deltas: Arc<Deltas>,
    pub(crate) clusters: Arc<Clusters>,
    /// The list of files whose blocks others need.
    pub(crate) registry: Mutex<Registry>,
    pub(crate) bases: Mutex<Bases>,
    /// What changed in directories since the last checkpoint, and whether an fsync of one looks there first.
    pub(crate) dir_log: DirLog,
    pub(crate) renames: Mutex<()>,
    /// What makes changes durable.
    pub(crate) commit: Arc<dyn MakeDurable>,
    /// What makes room before an operation changes the volume.
    pub(crate) reclaim: Arc<dyn Reclaim>,
    pub(crate) last_checkpoint_at: Mutex<Duration>,
}

/// What keeps room on the volume: asked with no lock of the engine held.
pub(crate) trait Reclaim: Send + Sync {
    /// Before an operation that changes the volume: keeps what the next checkpoint has to write, and the free sections, within bounds.
    /// Where nothing can be gained it returns all the same; reservations then refuse what does not fit.
    fn make_room(&self, fs: &Fs) -> Result<()>;

    /// Makes room in the logs for so many pages; `NoSpace` where it cannot.
    fn make_room_for(&self, fs: &Fs, blocks: u64) -> Result<()>;
}

/// What makes changes durable, for rooms below the one that does it: asked with no lock of the engine held.
pub(crate) trait MakeDurable: Send + Sync {
    /// Makes everything but the dirty pages of regular files durable. Calls that wait for a running checkpoint are served by one that
    /// starts after they came.
    fn checkpoint(&self, fs: &Fs) -> Result<()>;

    /// A checkpoint is durable.
    fn checkpointed(&self, fs: &Fs);

    /// What one commit makes durable.
    fn scope(&self) -> Scope;

    /// Whether what waits to be committed has waited long enough. Asked while there is something.
    fn is_due(&self, now: Duration) -> bool;

    /// Commits what fsyncs closed and left for later, as it is about to change.
    fn settle(&self, fs: &Fs) -> Result<()>;

    /// Makes pages of a file whole that are made from blocks of others, and durable.
    fn whole(&self, fs: &Fs, inode: &Arc<Inode>, pages: &[u64]) -> Result<()>;

    /// Makes whole, and durable, what other files make of these pages of a file.
    fn unshare(&self, fs: &Fs, ino: Ino, pages: Range<u64>) -> Result<()>;
}

/// While a volume is being opened: until orphans are freed and fsynced files rolled forward, a checkpoint would lose what it has
/// not yet seen, so none is made for want of room.
pub(crate) struct NoCheckpoint;

impl Reclaim for NoCheckpoint {
    fn make_room(&self, _: &Fs) -> Result<()> {
        Ok(())
    }

    fn make_room_for(&self, fs: &Fs, blocks: u64) -> Result<()> {
        if fs.has_room_for(blocks) { Ok(()) } else { Err(Error::NoSpace) }
    }
}

impl Deref for Fs {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.content
    }
}

impl Fs {
    /// Before a change: settles what fsyncs left for later, and makes room, where there is a cleaner: see [`Reclaim::make_room`].
    pub(crate) fn make_room(&self) -> Result<()> {
        self.commit.settle(self)?;
        self.reclaim.make_room(self)
    }

    /// Makes room for so many pages: see [`Reclaim::make_room_for`].
    pub(crate) fn make_room_for(&self, blocks: u64) -> Result<()> {
        self.reclaim.make_room_for(self, blocks)
    }

    /// Whether the logs take so many pages as they are.
    pub(crate) fn has_room_for(&self, blocks: u64) -> bool {
        let wanted = blocks + NOT_TAKEN;
        self.segs.lock().room_for_data(&self.io, wanted) >= wanted
    }

    /// Makes everything but the dirty pages of regular files durable; where commits are of the whole volume, those too. No lock is held.
    pub(crate) fn checkpoint_now(&self) -> Result<()> {
        self.commit.checkpoint(self)
    }

    /// Before an operation that takes the operation lock itself: makes room. `ReadOnly` where the volume is.
    pub(crate) fn make_room_to_write(&self) -> Result<()> {
        self.check_writable()?;
        self.make_room()
    }

    /// Starts an operation that changes the volume: makes room first, then takes the operation lock.
    /// `ReadOnly` where the volume is. Call it with no other lock of the engine held.
    pub(crate) fn begin(&self) -> Result<Op<'_>> {
        self.make_room_to_write()?;
        self.op()
    }

    /// Pages of files that may have deltas.
    pub(crate) fn deltas(&self) -> DeltaPages<'_> {
        self.deltas.over(&self.content)
    }

    /// Pages of compressed files.
    pub(crate) fn clusters(&self) -> ClusterPages<'_> {
        self.clusters.over(&self.content)
    }
}
