//! What the harnesses drive: the operations of a volume as a trait.
//!
//! The engine's `Volume` is one; [`crate::planted::ModelFs`], a file system with bugs on purpose, is another,
//! by which the harnesses prove that they would notice. Operations mean what the engine's documentation says;
//! in particular `lookup`, `create`, `tmpfile`, `symlink` and `link` return with a hold taken.

use medfs::{
    Attr, DirEntry, FallocateMode, FileFlags, Ino, NewFile, RenameFlags, Result, Seek, SetAttr, XattrMode,
};
use medfs_device::BlockDevice;
use std::sync::Arc;

macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident)*) => {
        /// What happened since a mount.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// What happened since `before`.
            pub fn since(&self, before: &Counts) -> Counts {
                Counts { $($name: self.$name - before.$name,)* }
            }
            /// One for each kind that happened at all.
            pub fn kinds(&self) -> Counts {
                Counts { $($name: self.$name.min(1),)* }
            }
            /// All of them with their names.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        impl std::ops::AddAssign for Counts {
            fn add_assign(&mut self, other: Counts) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counts! {
    /// Pages kept as deltas.
    made
    /// Those of them that had no block.
    appended
    /// Those that repeat another file.
    repeated
    /// Compact pages.
    compact_pages
    /// Pages written as a whole because another file's block had to go.
    released
    /// Pages compressed alone.
    compressed
    /// Deltas that gave way to addresses of a growing file.
    evicted
    /// Deltas that gave way to others.
    replaced
    /// Deltas that were no longer worth being one.
    outgrown
    /// Pages that were deltas and that idle work wrote as blocks.
    restored
    /// Their neighbours that were written with them.
    moved
    /// Sections cleaned.
    cleaned
    /// Those of them that were cleaned because space was short.
    cleaned_for_space
    /// Inodes in node blocks that several share.
    shared
    /// Clusters compressed.
    clusters
    /// fsyncs that became records in NVRAM.
    journaled
    /// Pages in such records that start from what others repeat or made.
    from_parts
    /// Pages that such records revoked.
    revoked
    /// Such records that a flush came before.
    rested
    /// fsyncs that went to the volume although there was an NVRAM.
    left
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
    /// What happened since the mount.
    fn counts(&self) -> Counts {
        Counts::default()
    }
    /// Makes each of these files durable.
    fn fsync_many(&self, files: &[Ino], datasync: bool) -> Result<()> {
        files.iter().try_for_each(|ino| self.fsync(*ino, datasync))
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
