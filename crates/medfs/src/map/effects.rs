//! What operations did, told to whoever keeps it until it is durable.
//!
//! Purpose: a log that outlives the process (`commit/survivor`) has to know every change in the order in which
//! changes took effect. Each operation tells of its own, once it can no longer fail.
//! Invariant: an effect is told while the operation holds the operation lock and the locks of the inodes that it
//! changed. So no checkpoint falls between an effect and its record, and of two effects that do not commute the
//! earlier one is told first. What failed, and what changes nothing that is seen, is not told.
//! Locks: asked with all locks of an operation held; what listens takes leaves only.

use crate::types::{FallocateMode, FileFlags, NewFile, RenameFlags, SetAttr, XattrMode};
use medfs_format::{Block, Ino};
use std::sync::{Arc, OnceLock};

/// A change, as it can be done again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Effect<'a> {
    /// Bytes were written; `cached`: by a page cache, which keeps the times.
    Write { ino: Ino, offset: u64, data: &'a [u8], cached: bool },
    /// Attributes were set.
    SetAttr { ino: Ino, set: SetAttr },
    /// A file was made, under a name.
    Create { ino: Ino, parent: Ino, name: &'a [u8], new: NewFile },
    /// A file was made, without a name.
    Tmpfile { ino: Ino, parent: Ino, new: NewFile },
    /// A symbolic link was made.
    Symlink { ino: Ino, parent: Ino, name: &'a [u8], target: &'a [u8], uid: u32, gid: u32 },
    /// A file got a further name.
    Link { ino: Ino, parent: Ino, name: &'a [u8] },
    /// A file, or a directory, lost a name.
    Remove { ino: Ino, parent: Ino, name: &'a [u8], directory: bool },
    /// A name moved.
    Rename(Renamed<'a>),
    /// `fallocate(2)`.
    Fallocate { ino: Ino, mode: FallocateMode, offset: u64, len: u64 },
    /// An extended attribute was set, or removed.
    Xattr { ino: Ino, name: &'a [u8], value: Option<&'a [u8]>, mode: XattrMode },
    /// The chattr flags were set.
    Flags { ino: Ino, flags: FileFlags },
    /// The project was set.
    Project { ino: Ino, project: u32 },
    /// The file was pinned, or let go.
    Pinned { ino: Ino, pin: bool },
    /// Blocks that compression saved were given back (`released`), or taken again.
    Saved { ino: Ino, released: bool },
    /// How a file is compressed was chosen.
    Compression { ino: Ino, algorithm: u8, log_cluster_size: u8 },
    /// An atomic write became the file.
    Atomic(Atomic<'a>),
    /// An inode without a name is gone, as nobody holds it.
    Freed { ino: Ino },
}

/// A name that moved.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Renamed<'a> {
    pub(crate) ino: Ino,
    /// Who had the new name.
    pub(crate) replaced: Option<Ino>,
    /// What is under the old name now, with [`RenameFlags::WHITEOUT`].
    pub(crate) whiteout: Option<Ino>,
    pub(crate) from: (Ino, &'a [u8]),
    pub(crate) to: (Ino, &'a [u8]),
    pub(crate) flags: RenameFlags,
}

/// What an atomic write made of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Atomic<'a> {
    pub(crate) ino: Ino,
    /// Bytes of the file that stayed where no page covers them; behind them are holes.
    pub(crate) kept: u64,
    pub(crate) size: u64,
    pub(crate) pages: &'a [(u64, Arc<Block>)],
}

/// Keeps what operations did.
pub(crate) trait OpLog: Send + Sync {
    /// This thread begins an operation: until it ends, it is told one time.
    fn begins(&self);

    /// It ends.
    fn ends(&self);

    /// An operation did this. It cannot fail any more, so this does not either.
    fn note(&self, effect: &Effect<'_>);

    /// A checkpoint is about to become durable, and will be known by `version`. No operation goes on.
    fn checkpointing(&self, version: u64);

    /// Everything that was told is durable with the checkpoint `version`. No operation goes on.
    fn checkpointed(&self, version: u64);

    /// Number that the next inode should get.
    fn wanted(&self) -> Option<Ino>;
}

/// Who listens, if anybody.
#[derive(Default)]
pub(crate) struct Effects(OnceLock<Arc<dyn OpLog>>);

impl Effects {
    /// From now on `log` is told.
    pub(crate) fn begin(&self, log: Arc<dyn OpLog>) {
        let first = self.0.set(log);
        debug_assert!(first.is_ok(), "a volume is opened once");
    }

    pub(crate) fn log(&self) -> Option<&dyn OpLog> {
        self.0.get().map(|log| &**log)
    }

    /// Tells what the operation did whose locks are held.
    pub(crate) fn note(&self, effect: Effect<'_>) {
        if let Some(log) = self.log() {
            log.note(&effect);
        }
    }

    /// Whether anybody is told.
    pub(crate) fn are_kept(&self) -> bool {
        self.log().is_some()
    }
}
