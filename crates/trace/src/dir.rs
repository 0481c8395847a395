//! A directory of the machine as a file system.
//!
//! Purpose: what is recorded lies in a directory, and what a trace is replayed on may be one (a mount of another file
//! system). [`Directory`] reaches it through a descriptor, so that it stays the same when a mount covers its path.
//!
//! Invariants: an inode that is held has one `O_PATH` descriptor; its number is the table's own, never used twice,
//! and stays with the file when it is found again. A file's content goes through one more descriptor, opened when it is
//! first wanted and closed with the last hold, so that a file without a name stays readable. Of names nothing is kept.
//!
//! Locks: `table` is a leaf, held across no system call.

use medfs::{
    Attr, DirEntry, Error, FallocateMode, FileFlags, FileKind, Files, Ino, NewFile, Posix, RenameFlags,
    Result, Seek, SetAttr, StatFs, Timestamp, XattrMode,
};
use parking_lot::Mutex;
use rustix::fs::{self, AtFlags, Mode, OFlags, SeekFrom, Stat, Timespec, Timestamps, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// Number of the root directory.
const ROOT: Ino = 1;

/// A directory of the machine as a file system.
pub struct Directory {
    table: Mutex<Table>,
    root: Arc<Node>,
    /// User and group that this process makes files as. Only root can give them to others.
    own: (u32, u32),
}

struct Table {
    held: HashMap<Ino, (Arc<Node>, u64)>,
    /// Numbers of files that were found, by device and inode number.
    known: HashMap<(u64, u64), Ino>,
    next: Ino,
}

struct Node {
    handle: OwnedFd,
    /// For reading and writing; opened for reading alone where writing is not allowed.
    data: OnceLock<OwnedFd>,
}

fn system(error: Errno) -> Error {
    match error {
        Errno::NOENT => Posix::NotFound.into(),
        Errno::NODATA => Posix::NoAttribute.into(),
        Errno::OPNOTSUPP => Posix::NotSupported.into(),
        Errno::NOSPC | Errno::DQUOT => Error::NoSpace,
        Errno::ROFS => Error::ReadOnly,
        error => Error::System(io::Error::from(error)),
    }
}

fn text(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|_| Posix::InvalidArgument.into())
}

/// The path by which a descriptor's file is reached again.
fn through(handle: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", handle.as_raw_fd())
}

/// Whether a file has an attribute.
fn has_xattr(handle: &OwnedFd, name: &[u8]) -> Result<bool> {
    match fs::getxattr(through(handle), text(name)?, &mut [0; 0]) {
        Ok(_) => Ok(true),
        Err(Errno::NODATA) => Ok(false),
        Err(error) => Err(system(error)),
    }
}

impl Node {
    fn new(handle: OwnedFd) -> Node {
        Node { handle, data: OnceLock::new() }
    }

    /// The descriptor of its content.
    fn data(&self) -> Result<&OwnedFd> {
        if let Some(data) = self.data.get() {
            return Ok(data);
        }
        let open = |access| {
            fs::open(through(&self.handle), access | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())
        };
        let opened = match open(OFlags::RDWR) {
            Err(Errno::ACCESS | Errno::PERM | Errno::ROFS | Errno::ISDIR | Errno::TXTBSY) => {
                open(OFlags::RDONLY)
            }
            other => other,
        };
        let opened = opened.map_err(system)?;
        Ok(self.data.get_or_init(|| opened))
    }

    fn stat(&self) -> Result<Stat> {
        fs::statat(&self.handle, c"", AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW).map_err(system)
    }
}

#[allow(clippy::unnecessary_cast)] // widths differ between architectures
fn attr(ino: Ino, stat: &Stat) -> Result<Attr> {
    let time = |secs: i64, nanos: u64| Timestamp { secs, nanos: nanos as u32 };
    Ok(Attr {
        ino,
        generation: 0,
        kind: FileKind::from_mode((stat.st_mode & 0o170000) as u16).ok_or(Posix::NotSupported)?,
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u64,
        size: stat.st_size as u64,
        blocks: stat.st_blocks as u64,
        atime: time(stat.st_atime as i64, stat.st_atime_nsec as u64),
        mtime: time(stat.st_mtime as i64, stat.st_mtime_nsec as u64),
        ctime: time(stat.st_ctime as i64, stat.st_ctime_nsec as u64),
        crtime: None,
        flags: FileFlags::empty(),
        project: 0,
    })
}

impl Directory {
    /// The directory that a path leads to now.
    pub fn open(path: &Path) -> io::Result<Directory> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = fs::open(path, flags, Mode::empty())?;
        let table = Table { held: HashMap::new(), known: HashMap::new(), next: ROOT + 1 };
        let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(Directory { table: Mutex::new(table), root: Arc::new(Node::new(handle)), own })
    }

    fn node(&self, ino: Ino) -> Result<Arc<Node>> {
        if ino == ROOT {
            return Ok(self.root.clone());
        }
        self.table.lock().held.get(&ino).map(|(node, _)| node.clone()).ok_or_else(|| Posix::Stale.into())
    }

    /// Finds a name and takes a hold. `new`: it was just made, and the file that had its inode number is gone.
    fn find(&self, parent: &Node, name: &[u8], new: bool) -> Result<Attr> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = fs::openat(&parent.handle, text(name)?, flags, Mode::empty()).map_err(system)?;
        self.hold(handle, new)
    }

    fn hold(&self, handle: OwnedFd, new: bool) -> Result<Attr> {
        let node = Node::new(handle);
        let stat = node.stat()?;
        #[allow(clippy::unnecessary_cast)]
        let key = (stat.st_dev as u64, stat.st_ino as u64);
        let mut table = self.table.lock();
        let known = table.known.get(&key).copied().filter(|_| !new);
        let ino = match known {
            Some(ino) => ino,
            None => {
                let ino = table.next;
                table.next = ino.checked_add(1).ok_or(Error::NoSpace)?;
                table.known.insert(key, ino);
                ino
            }
        };
        table.held.entry(ino).or_insert_with(|| (Arc::new(node), 0)).1 += 1;
        drop(table);
        attr(ino, &stat)
    }

    /// Permission bits that a new file must end up with; `None` where a default ACL of its parent decides.
    fn wanted_perm(&self, parent: &Node, new: &NewFile) -> Option<u16> {
        let acl = fs::getxattr(through(&parent.handle), "system.posix_acl_default", &mut [0u8; 0][..]);
        if acl.is_ok() { None } else { Some(new.perm & !new.umask) }
    }

    /// Gives a new file its owner, and the permissions that our own umask or that change took away.
    fn give(&self, at: &Attr, uid: u32, gid: u32, perm: Option<u16>) -> Result<Attr> {
        let node = self.node(at.ino)?;
        // A directory with the set-gid bit gives its group, and new directories the bit.
        let gid = if at.gid == self.own.1 { gid } else { at.gid };
        if self.own.0 == 0 && (at.uid, at.gid) != (uid, gid) {
            let owner = (fs::Uid::from_raw(uid), fs::Gid::from_raw(gid));
            let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
            fs::chownat(&node.handle, c"", Some(owner.0), Some(owner.1), flags).map_err(system)?;
        }
        let inherited = if at.kind == FileKind::Directory { at.perm & 0o2000 } else { 0 };
        if let Some(perm) = perm.map(|perm| perm | inherited)
            && (perm != at.perm || perm & 0o6000 != 0)
        {
            fs::chmod(through(&node.handle), Mode::from_raw_mode(u32::from(perm))).map_err(system)?;
        }
        attr(at.ino, &node.stat()?)
    }

    /// Takes a hold back where what came after it failed.
    fn or_release(&self, at: &Attr, result: Result<Attr>) -> Result<Attr> {
        result.inspect_err(|_| self.release(at.ino, 1))
    }

    fn make(&self, parent: &Node, name: &CString, new: &NewFile) -> Result<()> {
        let mode = Mode::from_raw_mode(u32::from(new.perm & 0o1777));
        let dir = &parent.handle;
        let kind = match new.kind {
            FileKind::Directory => return fs::mkdirat(dir, name, mode).map_err(system),
            FileKind::Regular => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                return fs::openat(dir, name, flags, mode).map(drop).map_err(system);
            }
            FileKind::Symlink => return Err(Posix::InvalidArgument.into()),
            FileKind::CharDevice => fs::FileType::CharacterDevice,
            FileKind::BlockDevice => fs::FileType::BlockDevice,
            FileKind::Fifo => fs::FileType::Fifo,
            FileKind::Socket => fs::FileType::Socket,
        };
        fs::mknodat(dir, name, kind, mode, new.rdev).map_err(system)
    }
}

impl Files for Directory {
    fn root(&self) -> Ino {
        ROOT
    }

    fn hold(&self, ino: Ino, count: u64) -> Result<()> {
        let mut table = self.table.lock();
        let (_, holds) = table.held.get_mut(&ino).ok_or(Posix::Stale)?;
        *holds += count;
        Ok(())
    }

    fn statfs(&self) -> Result<StatFs> {
        let stat = fs::fstatvfs(&self.root.handle).map_err(system)?;
        let blocks = |count: u64| count.saturating_mul(stat.f_frsize) / crate::record::PAGE as u64;
        Ok(StatFs {
            blocks: blocks(stat.f_blocks),
            free: blocks(stat.f_bfree),
            available: blocks(stat.f_bavail),
            files: stat.f_files,
            files_free: stat.f_ffree,
        })
    }

    fn sync(&self) -> Result<()> {
        let root = fs::open(through(&self.root.handle), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        fs::syncfs(root.map_err(system)?).map_err(system)
    }

    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        self.find(&*self.node(parent)?, name, false)
    }

    fn release(&self, ino: Ino, count: u64) {
        let mut table = self.table.lock();
        let Some((_, holds)) = table.held.get_mut(&ino) else { return };
        *holds = holds.saturating_sub(count);
        // Its descriptors are closed when the lock is given back.
        let gone = if *holds == 0 { table.held.remove(&ino) } else { None };
        drop(table);
        drop(gone);
    }

    fn getattr(&self, ino: Ino) -> Result<Attr> {
        attr(ino, &self.node(ino)?.stat()?)
    }

    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let node = self.node(ino)?;
        let path = through(&node.handle);
        if let Some(size) = set.size {
            fs::ftruncate(node.data()?, size).map_err(system)?;
        }
        if (set.uid.is_some() || set.gid.is_some()) && self.own.0 == 0 {
            let flags = AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW;
            let (uid, gid) = (set.uid.map(fs::Uid::from_raw), set.gid.map(fs::Gid::from_raw));
            fs::chownat(&node.handle, c"", uid, gid, flags).map_err(system)?;
        }
        if let Some(perm) = set.perm {
            fs::chmod(&path, Mode::from_raw_mode(u32::from(perm))).map_err(system)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let time = |t: Option<Timestamp>| match t {
                Some(t) => Timespec { tv_sec: t.secs, tv_nsec: i64::from(t.nanos) },
                None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
            };
            let times = Timestamps { last_access: time(set.atime), last_modification: time(set.mtime) };
            fs::utimensat(fs::CWD, &path, &times, AtFlags::empty()).map_err(system)?;
        }
        self.getattr(ino)
    }

    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr> {
        let parent = self.node(parent)?;
        let perm = self.wanted_perm(&parent, new);
        self.make(&parent, &text(name)?, new)?;
        let at = self.find(&parent, name, true)?;
        self.or_release(&at, self.give(&at, new.uid, new.gid, perm))
    }

    fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr> {
        let parent = self.node(parent)?;
        let mode = Mode::from_raw_mode(u32::from(new.perm & 0o1777));
        let perm = self.wanted_perm(&parent, new);
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let data = fs::open(through(&parent.handle), flags, mode).map_err(system)?;
        let handle =
            fs::open(through(&data), OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(system)?;
        let at = self.hold(handle, true)?;
        if let Ok(node) = self.node(at.ino) {
            let _ = node.data.set(data);
        }
        self.or_release(&at, self.give(&at, new.uid, new.gid, perm))
    }

    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], uid: u32, gid: u32) -> Result<Attr> {
        let parent = self.node(parent)?;
        fs::symlinkat(text(target)?, &parent.handle, text(name)?).map_err(system)?;
        let at = self.find(&parent, name, true)?;
        self.or_release(&at, self.give(&at, uid, gid, None))
    }

    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let node = self.node(ino)?;
        fs::readlinkat(&node.handle, c"", Vec::new()).map(CString::into_bytes).map_err(system)
    }

    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let (node, parent) = (self.node(ino)?, self.node(parent)?);
        let from = through(&node.handle);
        fs::linkat(fs::CWD, &from, &parent.handle, text(name)?, AtFlags::SYMLINK_FOLLOW).map_err(system)?;
        self.find(&parent, name, false)
    }

    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        fs::unlinkat(&self.node(parent)?.handle, text(name)?, AtFlags::empty()).map_err(system)
    }

    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        fs::unlinkat(&self.node(parent)?.handle, text(name)?, AtFlags::REMOVEDIR).map_err(system)
    }

    fn rename(&self, parent: Ino, name: &[u8], to: Ino, to_name: &[u8], flags: RenameFlags) -> Result<()> {
        let (from, to) = (self.node(parent)?, self.node(to)?);
        let flags = fs::RenameFlags::from_bits_retain(flags.bits());
        fs::renameat_with(&from.handle, text(name)?, &to.handle, text(to_name)?, flags).map_err(system)
    }

    fn readdir(&self, ino: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let node = self.node(ino)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = fs::open(through(&node.handle), flags, Mode::empty()).map_err(system)?;
        fs::seek(&directory, SeekFrom::Start(position)).map_err(system)?;
        let mut buffer = Vec::with_capacity(64 << 10);
        let mut entries = fs::RawDir::new(directory.as_fd(), buffer.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(system)?;
            let found = DirEntry {
                // The number is shown only; what it stands for is found by name. It is never 0, which means no entry.
                ino: (entry.ino() as u32).max(1),
                kind: FileKind::from_mode(entry.file_type().as_raw_mode() as u16),
                name: entry.file_name().to_bytes().to_vec(),
                next: entry.next_entry_cookie(),
            };
            if !emit(found) {
                return Ok(());
            }
        }
        Ok(())
    }

    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let node = self.node(ino)?;
        let data = node.data()?;
        let mut len = 0;
        while len < buf.len() {
            match rustix::io::pread(data, &mut buf[len..], offset + len as u64) {
                Ok(0) => break,
                Ok(more) => len += more,
                Err(Errno::INTR) => {}
                Err(e) => return Err(system(e)),
            }
        }
        Ok(len)
    }

    fn write(&self, ino: Ino, offset: u64, bytes: &[u8]) -> Result<usize> {
        let node = self.node(ino)?;
        let data = node.data()?;
        let mut len = 0;
        while len < bytes.len() {
            match rustix::io::pwrite(data, &bytes[len..], offset + len as u64) {
                Ok(more) => len += more,
                Err(Errno::INTR) => {}
                // What was written counts; the next call meets the error.
                Err(_) if len > 0 => break,
                Err(e) => return Err(system(e)),
            }
        }
        Ok(len)
    }

    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        let flags = fs::FallocateFlags::from_bits_retain(mode.bits());
        fs::fallocate(self.node(ino)?.data()?, flags, offset, len).map_err(system)
    }

    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        let from = match whence {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        fs::seek(self.node(ino)?.data()?, from).map_err(system)
    }

    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        let (from, to) = (self.node(from)?, self.node(to)?);
        let (mut from_offset, mut to_offset) = (from_offset, to_offset);
        let len = usize::try_from(len).unwrap_or(usize::MAX).min(1 << 30);
        fs::copy_file_range(from.data()?, Some(&mut from_offset), to.data()?, Some(&mut to_offset), len)
            .map(|copied| copied as u64)
            .map_err(system)
    }

    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        let node = self.node(ino)?;
        let data = node.data()?;
        if datasync { fs::fdatasync(data) } else { fs::fsync(data) }.map_err(system)
    }

    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let mut value = Vec::with_capacity(64 << 10);
        let path = through(&self.node(ino)?.handle);
        fs::getxattr(path, text(name)?, rustix::buffer::spare_capacity(&mut value)).map_err(system)?;
        Ok(value)
    }

    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        let node = self.node(ino)?;
        if fs::FileType::from_raw_mode(node.stat()?.st_mode) == fs::FileType::Symlink {
            return Ok(Vec::new());
        }
        let mut names: Vec<u8> = Vec::with_capacity(64 << 10);
        fs::listxattr(through(&node.handle), rustix::buffer::spare_capacity(&mut names)).map_err(system)?;
        Ok(names.split(|&b| b == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
    }

    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        let flags = match mode {
            XattrMode::Set => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        fs::setxattr(through(&self.node(ino)?.handle), text(name)?, value, flags).map_err(system)
    }

    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        let node = self.node(ino)?;
        match fs::removexattr(through(&node.handle), text(name)?) {
            // Who may not remove it is told so even where there is none; before each write the kernel wants it gone.
            Err(Errno::PERM) if !has_xattr(&node.handle, name)? => Err(Posix::NoAttribute.into()),
            removed => removed.map_err(system),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    /// Runs a test of this module again as a user who is not root; `false` in that run.
    fn is_run_by_a_user(name: &str) -> bool {
        if !rustix::process::geteuid().is_root() {
            return false;
        }
        // The user may not be let into the folder of the test.
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
        let test = dir.path().join("test");
        std::fs::copy(std::env::current_exe().unwrap(), &test).unwrap();
        let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
        let mut setpriv = Command::new("setpriv");
        let run = setpriv.args(user).arg(test).args(["--exact", name, "--nocapture"]).output().unwrap();
        assert!(
            run.status.success(),
            "{}{}",
            String::from_utf8_lossy(&run.stdout),
            String::from_utf8_lossy(&run.stderr)
        );
        true
    }

    /// The kernel has capabilities removed before each write; where there are none, a write must go on.
    #[test]
    fn a_user_hears_that_there_is_no_capability_to_remove() {
        if is_run_by_a_user("dir::tests::a_user_hears_that_there_is_no_capability_to_remove") {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("f"), "x").unwrap();
        let files = Directory::open(dir.path()).unwrap();
        let ino = files.lookup(files.root(), b"f").unwrap().ino;
        let removed = files.removexattr(ino, b"security.capability");
        assert!(matches!(removed, Err(Error::Posix(Posix::NoAttribute))), "{removed:?}");
    }
}
