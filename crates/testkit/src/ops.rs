//! Operations on a small name space, and their seeded generator.
//!
//! Few names, so that operations meet each other; sizes and offsets at the edges of the format: inline data,
//! pages, the first direct node, indirect nodes, far holes. Operations are plain values that print as they
//! would be written in a test, so that a minimal failing sequence is its own reproduction.

mod generator;

use crate::model::PAGE;
pub use generator::Generator;
use medfs::{
    DURABILITY_ATTRIBUTE, DurabilityMode, FallocateMode, FileFlags, FileKind, RenameFlags, XattrMode,
};

/// A name in a directory, both by number: see [`Place::path`] and [`Place::name`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Which directory.
    pub dir: u8,
    /// Which name.
    pub name: u8,
}

/// Shorthand for [`Place`].
pub const fn place(dir: u8, name: u8) -> Place {
    Place { dir, name }
}

/// Number of directories in the name space; which exist depends on the operations.
pub const DIRS: u8 = 4;
/// Number of open files.
pub const SLOTS: u8 = 3;
/// The first of the names of files that fill a volume and that no other operation touches.
const BALLAST: u8 = 10;
/// The first of the names that only exist to fill directories.
pub const FILLERS: u8 = 20;

/// Names of the components of a directory.
pub fn dir_path(dir: u8) -> &'static [&'static [u8]] {
    match dir {
        0 => &[],
        1 => &[b"d0"],
        2 => &[b"d1"],
        _ => &[b"d0", b"d1"],
    }
}

/// Most files of [`Op::FsyncMany`].
pub const MANY: usize = 3;

/// Names that a database, its log and its journal have.
pub const DATABASE: u8 = 250;
/// See [`DATABASE`].
pub const LOG: u8 = 251;
/// See [`DATABASE`].
pub const JOURNAL: u8 = 252;
/// Names that a document has, and the file that is written to replace it.
pub const DOCUMENT: u8 = 253;
/// See [`DOCUMENT`].
pub const TEMPORARY: u8 = 254;

impl Place {
    /// The name.
    pub fn name(self) -> Vec<u8> {
        match self.name {
            0..=5 => format!("f{}", self.name).into_bytes(),
            6 => b"d0".to_vec(),
            7 => b"d1".to_vec(),
            8 => vec![b'n'; 255],
            9 => vec![b'n'; 256],
            DATABASE => b"s.db".to_vec(),
            LOG => b"s.db-wal".to_vec(),
            JOURNAL => b"s.db-journal".to_vec(),
            DOCUMENT => b"s.xml".to_vec(),
            TEMPORARY => b"s.xml.tmp".to_vec(),
            filler => format!("entry {filler:03} with a name of some length").into_bytes(),
        }
    }
}

/// A file: by name, or one that is held open (and may have no name any more).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Target {
    Path(Place),
    Slot(u8),
}

/// One operation. Where the target does not exist or has the wrong kind for a data operation it does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Op {
    Create {
        at: Place,
        kind: FileKind,
        perm: u16,
    },
    Symlink {
        at: Place,
        len: u16,
    },
    Link {
        from: Place,
        to: Place,
    },
    Unlink {
        at: Place,
    },
    Rmdir {
        at: Place,
    },
    Rename {
        from: Place,
        to: Place,
        flags: RenameFlags,
    },
    /// Creates or removes filler entries in a directory.
    Fill {
        dir: u8,
        first: u8,
        count: u8,
        remove: bool,
    },
    Write {
        file: Target,
        offset: u64,
        len: u32,
        seed: u8,
    },
    /// Writes `len` bytes into each of `count` pages from page `first` on: what becomes deltas.
    Patch {
        file: Target,
        first: u16,
        count: u8,
        len: u16,
        seed: u8,
    },
    /// Writes `count` pages of a file from page `from` on, with `len` bytes of each changed, to its pages from `to` on:
    /// as trees do that never overwrite what is in use.
    CopyChanged {
        file: Target,
        from: u16,
        to: u16,
        count: u8,
        len: u16,
        seed: u8,
    },
    /// Writes pages of a directory's database, changed a little, into its log or journal from record `first`
    /// on, as SQLite lays them out.
    Frames {
        dir: u8,
        journal: bool,
        first: u8,
        count: u8,
        seed: u8,
    },
    Read {
        file: Target,
        offset: u64,
        len: u32,
    },
    Truncate {
        file: Target,
        size: u64,
    },
    Fallocate {
        file: Target,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    },
    Copy {
        from: Target,
        from_offset: u64,
        to: Target,
        to_offset: u64,
        len: u64,
    },
    SetXattr {
        file: Target,
        name: u8,
        len: u16,
        mode: XattrMode,
    },
    RemoveXattr {
        file: Target,
        name: u8,
    },
    Chmod {
        file: Target,
        perm: u16,
    },
    Chown {
        file: Target,
        uid: u32,
        gid: u32,
    },
    Utimes {
        file: Target,
        secs: i64,
    },
    /// Sets the chattr flags.
    SetFlags {
        file: Target,
        flags: FileFlags,
    },
    /// Sets the ACL that [`crate::acl::Acl::of`] makes of kind and permissions, or removes it (kind 0).
    SetAcl {
        file: Target,
        default: bool,
        kind: u8,
        perm: u16,
    },
    /// From here to [`Op::AtomicEnd`] what is written is kept aside.
    AtomicStart {
        file: Target,
    },
    AtomicEnd {
        file: Target,
        commit: bool,
    },
    /// A whole atomic write: start, the same length at two places, end.
    AtomicUpdate {
        file: Target,
        offsets: [u64; 2],
        len: u32,
        seed: u8,
        commit: bool,
    },
    /// Holds a file open.
    Open {
        at: Place,
        slot: u8,
    },
    Tmpfile {
        slot: u8,
    },
    /// Gives a file that is held open, and has no name, one.
    LinkSlot {
        slot: u8,
        to: Place,
    },
    Close {
        slot: u8,
    },
    Fsync {
        file: Target,
        datasync: bool,
    },
    FsyncDir {
        dir: u8,
    },
    /// fsyncs of several files or directories: by one call, or each by a thread of its own at the same time.
    FsyncMany {
        files: [Target; MANY],
        datasync: bool,
        threads: bool,
    },
    Sync,
    /// Makes durable what waits of the app of a directory.
    SyncApp {
        dir: u8,
    },
    Checkpoint,
    Background,
    /// Idle work, after a file was read so often that it is restored, if it is not written often too.
    Idle {
        /// The file.
        file: Target,
    },
    /// Closes cleanly and mounts again.
    Remount,
    /// Drops without closing and mounts again: what was fsynced must be there.
    Crash,
}

impl Op {
    /// The operations of which it is made, one after the other: the writes of a patch, otherwise itself.
    pub fn parts(&self) -> Vec<Op> {
        let &Op::Patch { file, first, count, len, seed } = self else { return vec![self.clone()] };
        let pages = u64::from(first)..u64::from(first) + u64::from(count);
        let write = |page: u64| {
            let offset = page * PAGE + place_of_change(page, len, seed);
            Op::Write { file, offset, len: u32::from(len), seed }
        };
        pages.map(write).collect()
    }
}

/// Where in a page a change of `len` bytes lies.
pub(crate) fn place_of_change(page: u64, len: u16, seed: u8) -> u64 {
    (page * 331 + u64::from(seed) * 13) % (PAGE - u64::from(len))
}

/// The number of the attribute that says whether fsyncs are put off; [`Generator`] makes none of it.
pub const DURABILITY: u8 = 5;

/// Names of extended attributes by number.
pub fn xattr_name(name: u8) -> &'static [u8] {
    let names =
        [&b"user.a"[..], b"user.longer-name", b"trusted.t", b"user.b", b"security.s", DURABILITY_ATTRIBUTE];
    names[name as usize % names.len()]
}

/// A value of `len` bytes for one of them; that which says whether fsyncs are put off is a word of this length.
pub fn xattr_value(name: u8, len: u16) -> Vec<u8> {
    match name {
        DURABILITY => {
            let modes = [DurabilityMode::Posix, DurabilityMode::Adaptive].map(DurabilityMode::word);
            let word = modes.into_iter().find(|word| word.len() == len.into());
            word.unwrap_or_else(|| panic!("no word has {len} letters")).into()
        }
        _ => pattern(name, u64::from(len), len.into()),
    }
}

/// The bytes an [`Op::Write`] writes: different for each seed and offset, so that misplaced content shows. Of
/// every second seed they repeat for 64 bytes each, so that they can be compressed.
pub fn pattern(seed: u8, offset: u64, len: usize) -> Vec<u8> {
    let word = |index: u64| {
        let index = if seed.is_multiple_of(2) { index / 8 } else { index };
        let mut z = index.wrapping_add(u64::from(seed) << 56).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 31)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 29)).to_le_bytes()
    };
    let mut out = Vec::with_capacity(len + 8);
    let first = offset / 8;
    let skip = (offset % 8) as usize;
    let mut index = first;
    while out.len() < len + skip {
        out.extend_from_slice(&word(index));
        index += 1;
    }
    out.drain(..skip);
    out.truncate(len);
    out
}
