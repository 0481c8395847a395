//! What lies above and is asked from below: who makes changes durable, and who makes room.
//!
//! A volume that is being opened has neither: until orphans are freed and fsynced files rolled forward, a
//! checkpoint would lose what it has not yet seen. So none can be made, and what needs one finds no room.
//! Locks: asked with no lock of the engine held.

use crate::error::{Error, Result};
use crate::file_ops::FileOps;
use crate::map::inode::{Inode, Scope};
use medfs_format::Ino;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// What keeps room on the volume.
pub(crate) trait Reclaim: Send + Sync {
    /// Before an operation that changes the volume: keeps what the next checkpoint has to write, and the free
    /// sections, within bounds. Where nothing can be gained it returns all the same; reservations then refuse
    /// what does not fit.
    fn make_room(&self, files: &FileOps) -> Result<()>;

    /// Makes room in the logs for so many pages; `NoSpace` where it cannot.
    fn make_room_for(&self, files: &FileOps, blocks: u64) -> Result<()>;
}

/// What makes changes durable.
pub(crate) trait MakeDurable: Send + Sync {
    /// Makes everything but the dirty pages of regular files durable. Calls that wait for a running
    /// checkpoint are served by one that starts after they came.
    fn checkpoint(&self) -> Result<()>;

    /// A checkpoint begins, with no operation under way.
    fn checkpointing(&self);

    /// A checkpoint is durable.
    fn checkpointed(&self);

    /// Commits what fsyncs closed and left for later, as it is about to change.
    fn settle(&self) -> Result<()>;

    /// Makes pages of a file whole that are made from blocks of others, and durable.
    fn whole(&self, inode: &Arc<Inode>, pages: &[u64]) -> Result<()>;

    /// Makes whole, and durable, what other files make of these pages of a file.
    fn unshare(&self, ino: Ino, pages: Range<u64>) -> Result<()>;
}

/// The layers above, once the volume is open.
pub(crate) struct Above {
    /// What one commit makes durable.
    pub(crate) scope: Scope,
    layers: OnceLock<Layers>,
}

struct Layers {
    durable: Box<dyn MakeDurable>,
    reclaim: Arc<dyn Reclaim>,
}

impl Above {
    /// Nothing yet.
    pub(crate) fn new(scope: Scope) -> Above {
        Above { scope, layers: OnceLock::new() }
    }

    /// The volume is open.
    pub(crate) fn begin(&self, durable: Box<dyn MakeDurable>, reclaim: Arc<dyn Reclaim>) {
        let first = self.layers.set(Layers { durable, reclaim });
        debug_assert!(first.is_ok(), "a volume is opened once");
    }

    fn durable(&self) -> Result<&dyn MakeDurable> {
        self.layers.get().map(|layers| &*layers.durable).ok_or(Error::NoSpace)
    }

    pub(crate) fn make_room(&self, files: &FileOps) -> Result<()> {
        let Some(layers) = self.layers.get() else { return Ok(()) };
        layers.durable.settle()?;
        layers.reclaim.make_room(files)
    }

    pub(crate) fn make_room_for(&self, files: &FileOps, blocks: u64) -> Result<()> {
        match self.layers.get() {
            Some(layers) => layers.reclaim.make_room_for(files, blocks),
            None if files.has_room_for(blocks) => Ok(()),
            None => Err(Error::NoSpace),
        }
    }

    pub(crate) fn checkpoint(&self) -> Result<()> {
        self.durable()?.checkpoint()
    }

    pub(crate) fn checkpointing(&self) {
        if let Ok(durable) = self.durable() {
            durable.checkpointing();
        }
    }

    pub(crate) fn checkpointed(&self) {
        if let Ok(durable) = self.durable() {
            durable.checkpointed();
        }
    }

    pub(crate) fn whole(&self, inode: &Arc<Inode>, pages: &[u64]) -> Result<()> {
        self.durable()?.whole(inode, pages)
    }

    pub(crate) fn unshare(&self, ino: Ino, pages: Range<u64>) -> Result<()> {
        self.durable()?.unshare(ino, pages)
    }
}
