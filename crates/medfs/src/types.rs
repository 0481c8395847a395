//! Plain types of the engine's public face.

use bitflags::bitflags;
pub use medfs_format::node::{FileFlags, FileKind};
pub use medfs_format::{Ino, Timestamp};

/// Attributes of an inode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Generation: changes when the number is used again.
    pub generation: u32,
    /// Kind of file.
    pub kind: FileKind,
    /// Permission bits, with set-id and sticky bits (12 bits).
    pub perm: u16,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device file, as `makedev` encodes it on Linux (32 bits used).
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes; of the inode's own block only what inline content takes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Creation, where the volume keeps it.
    pub crtime: Option<Timestamp>,
    /// chattr flags.
    pub flags: FileFlags,
    /// Project id, where the volume keeps it.
    pub project: u32,
}

/// Changes to attributes: what is `None` stays. The caller has checked permissions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (12 bits).
    pub perm: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size: truncates or extends with a hole.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Timestamp>,
    /// Last change of content.
    pub mtime: Option<Timestamp>,
    /// Last change of the inode; the engine's clock where `None` and anything else changes. For page caches that keep
    /// times themselves: nobody else can set it.
    pub ctime: Option<Timestamp>,
}

impl SetAttr {
    /// Whether this is what a page cache that keeps times tells of a write: the same mtime and ctime, and
    /// nothing else. Whoever sets a file's mtime otherwise gets a ctime of that moment, which differs unless
    /// the time set is that moment.
    pub(crate) fn is_of_a_write(&self) -> bool {
        let SetAttr { perm, uid, gid, size, atime, mtime, ctime } = *self;
        mtime.is_some() && mtime == ctime && (perm, uid, gid, size, atime) == (None, None, None, None, None)
    }
}

/// What a new file is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFile {
    /// Kind of file. Symbolic links are made by [`crate::Volume::symlink`].
    pub kind: FileKind,
    /// Permission bits (12 bits), after the caller's umask (see [`NewFile::umask`]).
    pub perm: u16,
    /// Umask still to be applied where the parent has no default ACL; 0 where the caller applied it.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group of the caller (a set-gid parent's group takes precedence).
    pub gid: u32,
    /// Device number, for device files.
    pub rdev: u64,
}

bitflags! {
    /// Variants of rename, with the values of `renameat2`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct RenameFlags: u32 {
        /// Fail where the target exists.
        const NOREPLACE = 1;
        /// Exchange the two names atomically.
        const EXCHANGE = 2;
        /// Leave a whiteout at the source.
        const WHITEOUT = 4;
    }
}

bitflags! {
    /// Modes of fallocate, with the values of `fallocate(2)`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct FallocateMode: u32 {
        /// The size stays.
        const KEEP_SIZE = 0x01;
        /// Make a hole.
        const PUNCH_HOLE = 0x02;
        /// Remove a range; what follows moves down.
        const COLLAPSE_RANGE = 0x08;
        /// Make a range read as zeros, keeping space reserved.
        const ZERO_RANGE = 0x10;
        /// Insert a hole; what follows moves up.
        const INSERT_RANGE = 0x20;
    }
}

/// What `lseek` looks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seek {
    /// The next data at or after the offset.
    Data,
    /// The next hole at or after the offset.
    Hole,
}

/// How setxattr treats an existing attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    Set,
    /// Fail where it exists.
    Create,
    /// Fail where it does not exist.
    Replace,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirEntry {
    /// Inode it names.
    pub ino: Ino,
    /// Kind, where the entry says so.
    pub kind: Option<FileKind>,
    /// Name.
    pub name: Vec<u8>,
    /// Position to go on from after this entry.
    pub next: u64,
}

/// Space of a volume, in blocks of 4 KiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatFs {
    /// Blocks for data and nodes.
    pub blocks: u64,
    /// Blocks free.
    pub free: u64,
    /// Blocks available to an ordinary user.
    pub available: u64,
    /// Inodes that can exist.
    pub files: u64,
    /// Inodes that can still be made.
    pub files_free: u64,
}
