//! Inodes of the model, and the flags that they hand down.

use super::{Content, Id};
use medfs::{FileFlags, FileKind, NewFile, Timestamp};
use std::collections::BTreeMap;

/// An inode.
#[derive(Debug, Clone)]
pub struct Inode {
    /// The number by which the file system under test knows it.
    pub ino: u32,
    /// Kind.
    pub kind: FileKind,
    /// Permission bits.
    pub perm: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u64,
    /// Link count.
    pub nlink: u32,
    /// Last change of content, where known.
    pub mtime: Option<Timestamp>,
    /// Content of a regular file.
    pub content: Content,
    /// Entries of a directory, without `.` and `..`.
    pub entries: BTreeMap<Vec<u8>, Id>,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Extended attributes by full name.
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Holds that keep it alive without a name.
    pub held: u32,
    /// chattr flags, of those in [`USER_FLAGS`].
    pub flags: FileFlags,
    /// Whether it was made without a name and has not had one yet.
    pub nameless: bool,
    /// The content as an open atomic write sees it.
    pub staged: Option<Content>,
}

/// The chattr flags that a user sets.
pub const USER_FLAGS: FileFlags = FileFlags::SYNC
    .union(FileFlags::IMMUTABLE)
    .union(FileFlags::APPEND)
    .union(FileFlags::NODUMP)
    .union(FileFlags::NOATIME)
    .union(FileFlags::DIRSYNC)
    .union(FileFlags::PROJINHERIT);

/// With one of these, names and attributes stay as they are.
pub(super) const FIXED: FileFlags = FileFlags::IMMUTABLE.union(FileFlags::APPEND);

/// Those that what is made in a directory takes over.
pub(super) fn handed_down(flags: FileFlags, kind: FileKind) -> FileFlags {
    let always = FileFlags::NODUMP | FileFlags::NOATIME;
    let wanted = match kind {
        FileKind::Directory => always | FileFlags::SYNC | FileFlags::DIRSYNC | FileFlags::PROJINHERIT,
        FileKind::Regular => always | FileFlags::SYNC,
        _ => always,
    };
    flags & wanted
}

impl Inode {
    /// An inode without content and names.
    pub fn new(ino: u32, new: &NewFile) -> Inode {
        Inode {
            ino,
            kind: new.kind,
            perm: new.perm,
            uid: new.uid,
            gid: new.gid,
            rdev: new.rdev,
            nlink: if new.kind == FileKind::Directory { 2 } else { 1 },
            mtime: None,
            content: Content::default(),
            entries: BTreeMap::new(),
            target: Vec::new(),
            xattrs: BTreeMap::new(),
            held: 0,
            flags: FileFlags::empty(),
            nameless: false,
            staged: None,
        }
    }
    /// The content as a reader sees it.
    pub fn visible(&self) -> &Content {
        self.staged.as_ref().unwrap_or(&self.content)
    }
    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == FileKind::Directory
    }
}
