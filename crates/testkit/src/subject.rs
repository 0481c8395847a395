//! What the harnesses drive: the operations of a volume as a trait.
//!
//! The engine's `Volume` is one; [`crate::planted::ModelFs`], a file system with bugs on purpose, is another, by which the
//! harnesses prove that they would notice. Operations mean what the engine's documentation says; in particular
//! `lookup`, `create`, `tmpfile`, `symlink` and `link` return with a hold taken.

use medfs::{
    Attr, DirEntry, FallocateMode, FileFlags, Ino, NewFile, RenameFlags, Result, Seek, SetAttr, XattrMode,
};
use medfs_device::BlockDevice;
use std::sync::Arc;

/// What became of deltas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DeltaCounts {
    /// Pages kept as deltas.
    pub made: u64,
    /// Those of them that had no block.
    pub appended: u64,
    /// Those that repeat a database.
    pub repeated: u64,
    /// Compact pages.
    pub compact_pages: u64,
    /// Pages written as a whole because another file's block had to go.
    pub released: u64,
    /// Pages compressed alone.
    pub compressed: u64,
}

impl std::ops::AddAssign for DeltaCounts {
    fn add_assign(&mut self, other: DeltaCounts) {
        self.made += other.made;
        self.appended += other.appended;
        self.repeated += other.repeated;
        self.compact_pages += other.compact_pages;
        self.released += other.released;
        self.compressed += other.compressed;
    }
}

/// A mounted file system. See the module.
#[allow(missing_docs)]
pub trait FileSystem: Send + Sync {
    fn root(&self) -> Ino;
    fn hold(&self, ino: Ino) -> Result<()>;
    fn release(&self, ino: Ino);
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr>;
    fn getattr(&self, ino: Ino) -> Result<Attr>;
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr>;
    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr>;
    fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr>;
    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8]) -> Result<Attr>;
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>>;
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr>;
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()>;
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()>;
    fn rename(&self, parent: Ino, name: &[u8], to: Ino, to_name: &[u8], flags: RenameFlags) -> Result<()>;
    /// At most `limit` entries from `position` on.
    fn readdir(&self, ino: Ino, position: u64, limit: usize) -> Result<Vec<DirEntry>>;
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize>;
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize>;
    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()>;
    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64>;
    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64>;
    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()>;
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>>;
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>>;
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()>;
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()>;
    fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()>;
    fn atomic_start(&self, ino: Ino) -> Result<()>;
    fn atomic_commit(&self, ino: Ino) -> Result<()>;
    fn atomic_abort(&self, ino: Ino) -> Result<()>;
    fn sync(&self) -> Result<()>;
    fn checkpoint(&self) -> Result<()>;
    fn background(&self) -> Result<()>;
    /// Ends cleanly. Dropping without it is a crash.
    fn close(&self) -> Result<()>;
    /// Background work, and idle work whether or not the volume was idle.
    fn idle(&self) -> Result<()> {
        self.background()
    }
    /// Pages that were deltas and that idle work wrote as blocks since the mount.
    fn pages_restored(&self) -> u64 {
        0
    }
    /// Clusters compressed since the mount.
    fn clusters_made(&self) -> u64 {
        0
    }
    /// What deltas came to since the mount.
    fn deltas(&self) -> DeltaCounts {
        DeltaCounts::default()
    }
    /// Sections cleaned since the mount because space was short.
    fn cleaned_for_space(&self) -> u64 {
        0
    }
}

/// Mounts a device: runs recovery.
pub type Mounter = Arc<dyn Fn(Arc<dyn BlockDevice>) -> Result<Arc<dyn FileSystem>> + Send + Sync>;

/// Judges a device that was cleanly closed, e.g. a structural check. `Err` says what is wrong.
pub trait Check: Send + Sync {
    /// Name in reports.
    fn name(&self) -> &str;
    /// Judges.
    fn check(&self, device: Arc<dyn BlockDevice>) -> Result<(), String>;
}
