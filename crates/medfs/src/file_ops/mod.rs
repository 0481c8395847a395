//! Operations on files: content with room made before it changes, and with the files out of the way that are
//! made from it.
//!
//! Purpose: what an operation asks of the layers above before it takes its first lock ([`above`]); reading
//! and writing ([`data`]), writing back ([`write_back`]), compressed files as ioctls see them
//! ([`compressed`]), pinned files ([`pin`]), pages brought together ([`defragment`]), the end of deltas
//! ([`fold`]). Invariants:
//! 1. Room is made, and a checkpoint asked for, before an operation takes a lock or after it has given back all.
//! 2. While a file is frozen no page of it becomes a source.
//!
//! Locks: all functions are called with none held, but for those of a checkpoint, which has the operation
//! lock exclusively.

pub(crate) mod above;
mod compressed;
mod data;
pub(crate) mod defragment;
mod fold;
mod pin;
mod tests;
mod write_back;

use crate::error::Result;
use crate::map::inode::Scope;
use crate::map::op::Op;
use crate::xref::Xref;
use above::Above;
pub use fold::Folded;
use medfs_sync::Mutex;
use std::ops::Deref;
use std::time::Duration;

/// Blocks that a log may be unable to take of those there is room for: the last one of each segment it leaves.
const NOT_TAKEN: u64 = 16;

/// Files that can be changed.
pub(crate) struct FileOps {
    pub(crate) xref: Xref,
    /// The options in force, as text.
    pub(crate) in_force: Vec<String>,
    pub(crate) above: Above,
    pub(crate) last_checkpoint_at: Mutex<Duration>,
}

impl Deref for FileOps {
    type Target = Xref;

    fn deref(&self) -> &Xref {
        &self.xref
    }
}

impl FileOps {
    /// Over what files make of each other's blocks. One commit makes durable what `scope` says.
    pub(crate) fn over(xref: Xref, in_force: Vec<String>, scope: Scope) -> FileOps {
        let now = xref.clock.monotonic();
        FileOps { xref, in_force, above: Above::new(scope), last_checkpoint_at: Mutex::new(now) }
    }

    /// Before a change: settles what fsyncs left for later, and makes room, where there is a cleaner: see
    /// [`above::Reclaim::make_room`].
    pub(crate) fn make_room(&self) -> Result<()> {
        self.above.make_room(self)
    }

    /// Makes room for so many pages: see [`above::Reclaim::make_room_for`].
    pub(crate) fn make_room_for(&self, blocks: u64) -> Result<()> {
        self.above.make_room_for(self, blocks)
    }

    /// Whether the logs take so many pages as they are.
    pub(crate) fn has_room_for(&self, blocks: u64) -> bool {
        let wanted = blocks + NOT_TAKEN;
        self.segs.lock().room_for_data(&self.io, wanted) >= wanted
    }

    /// Makes everything but the dirty pages of regular files durable; where commits are of the whole volume,
    /// those too. No lock is held.
    pub(crate) fn checkpoint_now(&self) -> Result<()> {
        self.above.checkpoint()
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
}
