//! What a trace consists of: operations on files, and the contents they carry by reference.
//!
//! Purpose: the types that recorder, importers, exporters and replay share. Their order of variants and fields is the
//! format (`docs/TRACE.md`): a new variant goes to the end, and a test holds the bytes of each of them.
//!
//! Files have numbers of the trace's own ([`FileId`]), 0 for the root directory, that are never used twice.

use medfs::{FallocateMode, FileKind, NewFile, SetAttr, Timestamp, XattrMode};
use serde::{Deserialize, Serialize};

/// Number of a file within a trace.
pub type FileId = u64;

/// The root directory of what was recorded.
pub const ROOT: FileId = 0;

/// Bytes of a page: contents are cut at its multiples within a file.
pub const PAGE: usize = 4096;

/// A name, a target or a value: any bytes.
pub type Bytes = serde_bytes::ByteBuf;

/// One operation that was asked for, and how it ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// When it began, in nanoseconds since the trace did.
    pub at: u64,
    /// Duration, in nanoseconds.
    pub took: u64,
    /// Process that asked for it; 0 where it was no process (the kernel writing its page cache back).
    pub process: u32,
    /// Thread of that process.
    pub thread: u32,
    /// 0, or the Linux error number it failed with.
    pub errno: u16,
    /// The operation.
    pub op: Op,
}

/// Bytes of a file, piece by piece; no piece crosses a page of the file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Content(pub Vec<Run>);

/// Neighbouring pieces of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Run {
    /// Pieces with neighbouring numbers, in the window of contents.
    Stored {
        /// Number of the first.
        first: u64,
        /// How many.
        count: u32,
    },
    /// So many zeros.
    Zeros {
        /// Bytes.
        len: u32,
    },
    /// Bytes that the trace's source did not tell.
    Unknown {
        /// Bytes.
        len: u32,
    },
    /// A piece of a trace without contents: it takes the next number, and has these properties.
    Sketch(Sketch),
}

/// The properties of a piece that a trace keeps instead of its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sketch {
    /// Bytes, at most [`PAGE`].
    pub len: u16,
    /// Entropy of its bytes, in 1/32 bit: 256 is 8 bits.
    pub entropy: u16,
    /// Bytes that differ from what was there before; `u16::MAX`: nothing was.
    pub changed: u16,
    /// Runs they lie in.
    pub runs: u16,
}

impl Sketch {
    /// [`Sketch::changed`] of a piece that replaces nothing.
    pub const FRESH: u16 = u16::MAX;
}

/// Attributes that an operation changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Attributes {
    pub perm: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<(i64, u32)>,
    pub mtime: Option<(i64, u32)>,
    pub ctime: Option<(i64, u32)>,
}

/// The kind and attributes of a new file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct NewNode {
    /// The kind's bits of `st_mode`.
    pub kind: u16,
    pub perm: u16,
    pub umask: u16,
    pub uid: u32,
    pub gid: u32,
    pub rdev: u64,
}

/// An operation. Where it failed, numbers of files that it would have found are [`ROOT`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Op {
    Lookup {
        parent: FileId,
        name: Bytes,
        file: FileId,
    },
    /// No process holds the file any more: where it has no name it is gone, otherwise it must be looked up again.
    Forget {
        file: FileId,
    },
    GetAttr {
        file: FileId,
        size: u64,
    },
    SetAttr {
        file: FileId,
        set: Attributes,
    },
    Create {
        parent: FileId,
        name: Bytes,
        file: FileId,
        new: NewNode,
    },
    Tmpfile {
        parent: FileId,
        file: FileId,
        new: NewNode,
    },
    Symlink {
        parent: FileId,
        name: Bytes,
        target: Bytes,
        file: FileId,
        uid: u32,
        gid: u32,
    },
    Readlink {
        file: FileId,
    },
    Link {
        file: FileId,
        parent: FileId,
        name: Bytes,
    },
    Unlink {
        parent: FileId,
        name: Bytes,
    },
    Rmdir {
        parent: FileId,
        name: Bytes,
    },
    Rename {
        parent: FileId,
        name: Bytes,
        to: FileId,
        to_name: Bytes,
        flags: u32,
    },
    /// A part of a directory was listed, from a position on (0: its start).
    Readdir {
        file: FileId,
        position: u64,
    },
    /// With the flags of `open(2)`.
    Open {
        file: FileId,
        flags: i32,
    },
    Close {
        file: FileId,
    },
    /// `len` bytes were asked for, `content` is what came.
    Read {
        file: FileId,
        offset: u64,
        len: u32,
        content: Content,
    },
    /// `cached`: by the page cache above, which keeps the file's times.
    Write {
        file: FileId,
        offset: u64,
        len: u32,
        cached: bool,
        content: Content,
    },
    Fallocate {
        file: FileId,
        mode: u32,
        offset: u64,
        len: u64,
    },
    CopyRange {
        from: FileId,
        from_offset: u64,
        to: FileId,
        to_offset: u64,
        len: u64,
        copied: u64,
    },
    Seek {
        file: FileId,
        offset: u64,
        hole: bool,
    },
    Fsync {
        file: FileId,
        datasync: bool,
    },
    Sync,
    SetXattr {
        file: FileId,
        name: Bytes,
        value: Bytes,
        mode: u8,
    },
    GetXattr {
        file: FileId,
        name: Bytes,
    },
    ListXattr {
        file: FileId,
    },
    RemoveXattr {
        file: FileId,
        name: Bytes,
    },
    /// chattr flags.
    SetFlags {
        file: FileId,
        flags: u32,
    },
    AtomicStart {
        file: FileId,
    },
    AtomicCommit {
        file: FileId,
    },
    AtomicAbort {
        file: FileId,
    },
}

/// Names of the operations, in the order of [`Op`].
pub const NAMES: [&str; 31] = [
    "lookup",
    "forget",
    "getattr",
    "setattr",
    "create",
    "tmpfile",
    "symlink",
    "readlink",
    "link",
    "unlink",
    "rmdir",
    "rename",
    "readdir",
    "open",
    "close",
    "read",
    "write",
    "fallocate",
    "copy_range",
    "seek",
    "fsync",
    "sync",
    "setxattr",
    "getxattr",
    "listxattr",
    "removexattr",
    "set_flags",
    "atomic_start",
    "atomic_commit",
    "atomic_abort",
    "fdatasync",
];

impl Op {
    /// Its place in [`NAMES`]; an fsync of the data alone counts apart.
    pub fn kind(&self) -> usize {
        match self {
            Op::Lookup { .. } => 0,
            Op::Forget { .. } => 1,
            Op::GetAttr { .. } => 2,
            Op::SetAttr { .. } => 3,
            Op::Create { .. } => 4,
            Op::Tmpfile { .. } => 5,
            Op::Symlink { .. } => 6,
            Op::Readlink { .. } => 7,
            Op::Link { .. } => 8,
            Op::Unlink { .. } => 9,
            Op::Rmdir { .. } => 10,
            Op::Rename { .. } => 11,
            Op::Readdir { .. } => 12,
            Op::Open { .. } => 13,
            Op::Close { .. } => 14,
            Op::Read { .. } => 15,
            Op::Write { .. } => 16,
            Op::Fallocate { .. } => 17,
            Op::CopyRange { .. } => 18,
            Op::Seek { .. } => 19,
            Op::Fsync { datasync: false, .. } => 20,
            Op::Sync => 21,
            Op::SetXattr { .. } => 22,
            Op::GetXattr { .. } => 23,
            Op::ListXattr { .. } => 24,
            Op::RemoveXattr { .. } => 25,
            Op::SetFlags { .. } => 26,
            Op::AtomicStart { .. } => 27,
            Op::AtomicCommit { .. } => 28,
            Op::AtomicAbort { .. } => 29,
            Op::Fsync { datasync: true, .. } => 30,
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        NAMES[self.kind()]
    }

    /// The files it is about: those it needs to be the way earlier operations left them.
    pub fn files(&self) -> [Option<FileId>; 3] {
        match *self {
            Op::Lookup { parent, file, .. }
            | Op::Create { parent, file, .. }
            | Op::Tmpfile { parent, file, .. }
            | Op::Symlink { parent, file, .. }
            | Op::Link { file, parent, .. } => [Some(parent), Some(file), None],
            Op::Unlink { parent, .. } | Op::Rmdir { parent, .. } => [Some(parent), None, None],
            Op::Rename { parent, to, .. } => [Some(parent), Some(to), None],
            Op::CopyRange { from, to, .. } => [Some(from), Some(to), None],
            Op::Sync => [None; 3],
            Op::Forget { file }
            | Op::GetAttr { file, .. }
            | Op::SetAttr { file, .. }
            | Op::Readlink { file }
            | Op::Readdir { file, .. }
            | Op::Open { file, .. }
            | Op::Close { file }
            | Op::Read { file, .. }
            | Op::Write { file, .. }
            | Op::Fallocate { file, .. }
            | Op::Seek { file, .. }
            | Op::Fsync { file, .. }
            | Op::SetXattr { file, .. }
            | Op::GetXattr { file, .. }
            | Op::ListXattr { file }
            | Op::RemoveXattr { file, .. }
            | Op::SetFlags { file, .. }
            | Op::AtomicStart { file }
            | Op::AtomicCommit { file }
            | Op::AtomicAbort { file } => [Some(file), None, None],
        }
    }

    /// The content it carries.
    pub fn content(&self) -> Option<&Content> {
        match self {
            Op::Read { content, .. } | Op::Write { content, .. } => Some(content),
            _ => None,
        }
    }
}

impl From<&SetAttr> for Attributes {
    fn from(set: &SetAttr) -> Attributes {
        let time = |t: Option<Timestamp>| t.map(|t| (t.secs, t.nanos));
        Attributes {
            perm: set.perm,
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: time(set.atime),
            mtime: time(set.mtime),
            ctime: time(set.ctime),
        }
    }
}

impl From<&Attributes> for SetAttr {
    fn from(set: &Attributes) -> SetAttr {
        let time =
            |t: Option<(i64, u32)>| t.map(|(secs, nanos)| Timestamp { secs, nanos: nanos.min(999_999_999) });
        SetAttr {
            perm: set.perm.map(|perm| perm & 0o7777),
            uid: set.uid,
            gid: set.gid,
            size: set.size,
            atime: time(set.atime),
            mtime: time(set.mtime),
            ctime: time(set.ctime),
        }
    }
}

impl From<&NewFile> for NewNode {
    fn from(new: &NewFile) -> NewNode {
        let &NewFile { kind, perm, umask, uid, gid, rdev } = new;
        NewNode { kind: kind.mode_bits(), perm, umask, uid, gid, rdev }
    }
}

impl NewNode {
    /// As the engine wants it; `None` where the kind is none.
    pub fn to_new_file(&self) -> Option<NewFile> {
        let kind = FileKind::from_mode(self.kind)?;
        let (perm, umask) = (self.perm & 0o7777, self.umask & 0o777);
        Some(NewFile { kind, perm, umask, uid: self.uid, gid: self.gid, rdev: self.rdev })
    }

    /// A file or directory of an importer, which knows no owner.
    pub fn plain(kind: FileKind, perm: u16) -> NewNode {
        NewNode { kind: kind.mode_bits(), perm, umask: 0, uid: 0, gid: 0, rdev: 0 }
    }
}

/// The number of a way to set an extended attribute.
pub fn xattr_mode_number(mode: XattrMode) -> u8 {
    match mode {
        XattrMode::Set => 0,
        XattrMode::Create => 1,
        XattrMode::Replace => 2,
    }
}

/// The way behind a number; numbers that mean nothing set.
pub fn xattr_mode(number: u8) -> XattrMode {
    match number {
        1 => XattrMode::Create,
        2 => XattrMode::Replace,
        _ => XattrMode::Set,
    }
}

/// The modes of fallocate behind their bits; `None` where there are others.
pub fn fallocate_mode(bits: u32) -> Option<FallocateMode> {
    FallocateMode::from_bits(bits)
}

/// A file of the tree as it was when the recording ended.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TreeEntry {
    /// Its path below the root, without a slash before.
    pub path: Bytes,
    /// `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Names of the file; 0 of a directory.
    pub links: u32,
    /// Device number, of a device file.
    pub rdev: u64,
    /// Bytes; 0 of a directory.
    pub size: u64,
    /// BLAKE3 of content or target, cut to 16 bytes; zeros where it is none or not told.
    pub content: [u8; 16],
    /// BLAKE3 of the names and values of its `user.` attributes, in order; zeros where it has none or they
    /// are not told.
    pub attributes: [u8; 16],
}
