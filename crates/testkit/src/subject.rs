//! What the harnesses drive: the operations on files, and some of a mount.
//!
//! The engine's `Volume` is one; [`crate::planted::ModelFs`], a file system with bugs on purpose, is another,
//! by which the harnesses prove that they would notice. Operations mean what the engine's documentation says;
//! in particular `lookup`, `create`, `tmpfile`, `symlink` and `link` return with a hold taken.

use medfs::{DirEntry, Files, Ino, Result};
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
    /// Those that are made from other blocks of their file which look like them.
    similar
    /// Pages of files that were cut off and written anew, made from the blocks that they had.
    taken_back
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
    /// Pages of reserved files that idle work brought home.
    brought_home
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
    /// Pages that got blocks for such records.
    placed
    /// Such records of what nobody synced.
    unsynced
    /// fsyncs that went to the volume although there was an NVRAM.
    left
    /// Records in NVRAM that took the place of all others.
    compacted
}

/// A mounted file system: the operations on files, and what else the harnesses ask of one.
pub trait FileSystem: Files {
    /// Makes everything but the dirty pages of regular files durable.
    fn checkpoint(&self) -> Result<()>;
    /// Makes all durable of the app that a file is in, and others as it may be.
    fn sync_app(&self, _: Ino) -> Result<()> {
        self.sync()
    }
    /// Ends cleanly. Dropping without it is a crash.
    fn unmount(&self) -> Result<()>;
    /// Background work, and idle work whether or not the volume was idle.
    fn idle(&self) -> Result<()> {
        self.background()
    }
    /// What happened since the mount.
    fn counts(&self) -> Counts {
        Counts::default()
    }
}

/// At most `limit` entries of a directory from `position` on.
pub fn list(fs: &dyn Files, ino: Ino, position: u64, limit: usize) -> Result<Vec<DirEntry>> {
    let mut entries = Vec::new();
    fs.readdir(ino, position, &mut |entry| {
        let room = entries.len() < limit;
        if room {
            entries.push(entry);
        }
        room
    })?;
    Ok(entries)
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
