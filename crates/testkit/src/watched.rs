//! A file system between harness and engine that notes which calls failed because of damage, and whom they were about.

use crate::subject::{Counts, FileSystem};
use medfs::{
    Attr, DirEntry, Error, FallocateMode, FileFlags, Files, Ino, NewFile, RenameFlags, Result, Seek, SetAttr,
    StatFs, XattrMode,
};
use parking_lot::Mutex;
use std::sync::Arc;

/// A call that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// Its name.
    pub call: &'static str,
    /// The inodes that it was about, directories of names among them.
    pub inos: Vec<Ino>,
    /// The names that it was about, with their directories.
    pub names: Vec<(Ino, Vec<u8>)>,
    /// The error's number.
    pub errno: i32,
}

impl Failed {
    /// Whether it failed because a block could not be read or was wrong.
    pub fn is_damage(&self) -> bool {
        [5, 117].contains(&self.errno)
    }

    /// Whether the call only looked.
    pub fn only_looks(&self) -> bool {
        const LOOKS: [&str; 7] =
            ["lookup", "getattr", "read", "readdir", "readlink", "getxattr", "listxattr"];
        LOOKS.contains(&self.call) || self.call == "seek"
    }
}

/// See the module.
pub struct Watched {
    inner: Arc<dyn FileSystem>,
    failed: Mutex<Vec<Failed>>,
}

impl Watched {
    /// Watches a file system.
    pub fn new(inner: Arc<dyn FileSystem>) -> Watched {
        Watched { inner, failed: Mutex::default() }
    }

    /// The calls that failed since this was asked last, those left out that failed for ordinary reasons.
    pub fn take(&self) -> Vec<Failed> {
        std::mem::take(&mut *self.failed.lock())
    }

    fn note<T>(
        &self,
        call: &'static str,
        inos: &[Ino],
        names: &[(Ino, &[u8])],
        result: Result<T>,
    ) -> Result<T> {
        if let Err(error) = &result
            && !matches!(error, Error::Posix(_))
        {
            self.failed.lock().push(Failed {
                call,
                inos: inos.to_vec(),
                names: names.iter().map(|(dir, name)| (*dir, name.to_vec())).collect(),
                errno: error.errno(),
            });
        }
        result
    }
}

macro_rules! watched {
    ($($call:ident($($arg:ident: $type:ty),*) -> $result:ty, about [$($ino:expr),*] [$($name:expr),*];)*) => {
        $(fn $call(&self, $($arg: $type),*) -> Result<$result> {
            self.note(stringify!($call), &[$($ino),*], &[$($name),*], self.inner.$call($($arg),*))
        })*
    };
}

impl Files for Watched {
    fn root(&self) -> Ino {
        self.inner.root()
    }
    fn release(&self, ino: Ino, count: u64) {
        self.inner.release(ino, count);
    }
    fn fsync_many(&self, files: &[Ino], datasync: bool) -> Result<()> {
        self.note("fsync_many", files, &[], self.inner.fsync_many(files, datasync))
    }
    watched! {
        hold(ino: Ino, count: u64) -> (), about [ino] [];
        lookup(parent: Ino, name: &[u8]) -> Attr, about [parent] [(parent, name)];
        getattr(ino: Ino) -> Attr, about [ino] [];
        setattr(ino: Ino, set: &SetAttr) -> Attr, about [ino] [];
        create(parent: Ino, name: &[u8], new: &NewFile) -> Attr, about [parent] [(parent, name)];
        tmpfile(parent: Ino, new: &NewFile) -> Attr, about [parent] [];
        symlink(parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Attr, about [parent] [(parent, name)];
        readlink(ino: Ino) -> Vec<u8>, about [ino] [];
        link(ino: Ino, parent: Ino, name: &[u8]) -> Attr, about [ino, parent] [(parent, name)];
        unlink(parent: Ino, name: &[u8]) -> (), about [parent] [(parent, name)];
        rmdir(parent: Ino, name: &[u8]) -> (), about [parent] [(parent, name)];
        rename(parent: Ino, name: &[u8], to: Ino, to_name: &[u8], flags: RenameFlags) -> (), about [parent, to] [(parent, name), (to, to_name)];
        readdir(ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> (), about [ino] [];
        read(ino: Ino, offset: u64, buf: &mut [u8]) -> usize, about [ino] [];
        write(ino: Ino, offset: u64, data: &[u8]) -> usize, about [ino] [];
        fallocate(ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> (), about [ino] [];
        seek(ino: Ino, offset: u64, whence: Seek) -> u64, about [ino] [];
        copy_range(from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> u64, about [from, to] [];
        fsync(ino: Ino, datasync: bool) -> (), about [ino] [];
        getxattr(ino: Ino, name: &[u8]) -> Vec<u8>, about [ino] [];
        listxattr(ino: Ino) -> Vec<Vec<u8>>, about [ino] [];
        setxattr(ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> (), about [ino] [];
        removexattr(ino: Ino, name: &[u8]) -> (), about [ino] [];
        set_flags(ino: Ino, flags: FileFlags) -> (), about [ino] [];
        atomic_start(ino: Ino) -> (), about [ino] [];
        atomic_commit(ino: Ino) -> (), about [ino] [];
        atomic_abort(ino: Ino) -> (), about [ino] [];
        sync() -> (), about [] [];
        statfs() -> StatFs, about [] [];
        background() -> (), about [] [];
    }
}

impl FileSystem for Watched {
    fn counts(&self) -> Counts {
        self.inner.counts()
    }
    watched! {
        checkpoint() -> (), about [] [];
        idle() -> (), about [] [];
        sync_app(ino: Ino) -> (), about [ino] [];
        unmount() -> (), about [] [];
    }
}
