//! Bugs on purpose: the canaries of the harnesses.
//!
//! [`mounter`] gives a file system made of the model. Without a bug it must pass every harness; with one it must be
//! caught. It keeps two models, what is seen and what is durable, and "mounting" starts from the durable one.
//!
//! [`Unordered`] stands between the engine and its device and spoils the order of writes, as an engine would
//! that flushes in the wrong place: crash states must show it.

use crate::acl::{ACCESS, Acl, DEFAULT};
use crate::model::{Id, Model, ROOT};
use crate::subject::{FileSystem, Mounter};
use medfs::{
    Attr, DirEntry, FallocateMode, FileFlags, FileKind, Files, Ino, NewFile, Posix, RenameFlags, Result,
    Seek, SetAttr, StatFs, Timestamp, XattrMode,
};
use medfs_device::{BlockDevice, Cause, WriteTag};
use medfs_format::Block;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;

/// What is wrong on purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// Nothing.
    None,
    /// Truncating down leaves the old bytes in the last page, which show when the file grows again.
    TruncateLeavesTail,
    /// A write that starts in the third page is shifted by one byte.
    MisplacedWrite,
    /// Renaming over a file loses the source's name once in a while: where the target has an even number.
    RenameLosesSource,
    /// fdatasync makes nothing durable.
    FdatasyncForgets,
    /// A crash loses the extended attributes of what was fsynced.
    XattrsNotDurable,
    /// A crash loses the chattr flags of what was fsynced.
    FlagsNotDurable,
    /// The commit of an atomic write makes nothing durable.
    CommitForgets,
    /// Aborting an atomic write keeps what was written.
    AbortCommits,
}

/// The medium: what survives.
struct Disk {
    durable: Mutex<Model>,
    bug: Bug,
}

/// See the module.
struct ModelFs {
    disk: Arc<Disk>,
    model: Mutex<Model>,
}

/// Inode numbers are the model's identities, moved past those that F2FS reserves.
fn ino(id: Id) -> Ino {
    id as Ino + 3
}

fn id(ino: Ino) -> Id {
    Id::from(ino) - 3
}

/// A mounter for an empty file system with this bug. Every mount of it is of the same (imaginary) medium.
pub fn mounter(bug: Bug) -> Mounter {
    let new = NewFile { kind: FileKind::Directory, perm: 0o755, umask: 0, uid: 0, gid: 0, rdev: 0 };
    let empty = Model::new(crate::model::Inode::new(ino(ROOT), &new));
    let disk = Arc::new(Disk { durable: Mutex::new(empty), bug });
    Arc::new(move |_| {
        let mut model = disk.durable.lock().clone();
        model.release_all();
        Ok(Arc::new(ModelFs { disk: disk.clone(), model: Mutex::new(model) }))
    })
}

impl ModelFs {
    fn attr(&self, model: &Model, id: Id) -> Result<Attr> {
        let inode = model.get(id).ok_or(Posix::Stale)?;
        let time = inode.mtime.unwrap_or_default();
        Ok(Attr {
            ino: ino(id),
            generation: 0,
            kind: inode.kind,
            perm: inode.perm,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.visible().size(),
            blocks: 0,
            atime: time,
            mtime: time,
            ctime: Timestamp::default(),
            crtime: None,
            flags: inode.flags,
            project: 0,
        })
    }

    fn held(&self, model: &mut Model, id: Id) -> Result<Attr> {
        model.hold(id);
        self.attr(model, id)
    }

    fn persist(&self, model: &Model) {
        *self.disk.durable.lock() = model.clone();
    }
}

impl Files for ModelFs {
    fn root(&self) -> Ino {
        ino(ROOT)
    }
    fn hold(&self, ino: Ino, count: u64) -> Result<()> {
        let mut model = self.model.lock();
        (0..count).for_each(|_| model.hold(id(ino)));
        Ok(())
    }
    fn release(&self, ino: Ino, count: u64) {
        let mut model = self.model.lock();
        (0..count).for_each(|_| model.release(id(ino)));
    }
    fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let mut model = self.model.lock();
        let id = model.lookup(id(parent), name)?;
        self.held(&mut model, id)
    }
    fn getattr(&self, ino: Ino) -> Result<Attr> {
        self.attr(&self.model.lock(), id(ino))
    }
    fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let mut model = self.model.lock();
        if let Some(size) = set.size {
            let before = model.clone();
            model.truncate(id(ino), size)?;
            let old = before.inode(id(ino)).visible();
            if self.disk.bug == Bug::TruncateLeavesTail && size < old.size() && size % 4096 != 0 {
                model.content_mut(id(ino)).put_page(size / 4096, *old.page(size / 4096));
            }
        }
        if set.perm.is_some() || set.uid.is_some() {
            model.set_owner(id(ino), set.perm, set.uid.zip(set.gid))?;
        }
        let inode = model.inode_mut(id(ino));
        inode.mtime = set.mtime.or(inode.mtime);
        self.attr(&model, id(ino))
    }
    fn create(&self, parent: Ino, name: &[u8], new: &NewFile) -> Result<Attr> {
        let mut model = self.model.lock();
        let id = model.create(id(parent), name, new)?;
        self.held(&mut model, id)
    }
    fn tmpfile(&self, parent: Ino, new: &NewFile) -> Result<Attr> {
        let mut model = self.model.lock();
        let id = model.tmpfile(id(parent), new)?;
        self.attr(&model, id)
    }
    fn symlink(&self, parent: Ino, name: &[u8], target: &[u8], _uid: u32, _gid: u32) -> Result<Attr> {
        let mut model = self.model.lock();
        let id = model.symlink(id(parent), name, target)?;
        self.held(&mut model, id)
    }
    fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        Ok(self.model.lock().inode(id(ino)).target.clone())
    }
    fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        let mut model = self.model.lock();
        model.link(id(ino), id(parent), name)?;
        self.held(&mut model, id(ino))
    }
    fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        Ok(self.model.lock().unlink(id(parent), name)?)
    }
    fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        Ok(self.model.lock().rmdir(id(parent), name)?)
    }
    fn rename(&self, parent: Ino, name: &[u8], to: Ino, to_name: &[u8], flags: RenameFlags) -> Result<()> {
        let mut model = self.model.lock();
        let over = model.lookup(id(to), to_name).ok();
        model.rename(id(parent), name, id(to), to_name, flags)?;
        if self.disk.bug == Bug::RenameLosesSource
            && flags.is_empty()
            && over.is_some_and(|over| over % 2 == 0)
        {
            let _ = model.unlink(id(to), to_name);
        }
        Ok(())
    }
    fn readdir(&self, at: Ino, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let model = self.model.lock();
        let parent = model.names_of(id(at)).first().map_or(ROOT, |(dir, _)| *dir);
        let own = [(b".".to_vec(), id(at)), (b"..".to_vec(), parent)];
        let all =
            own.into_iter().chain(model.inode(id(at)).entries.iter().map(|(name, id)| (name.clone(), *id)));
        let part = (1..).zip(all).skip(position as usize);
        let entry =
            |(next, (name, id))| DirEntry { ino: ino(id), kind: Some(model.inode(id).kind), name, next };
        let _ = part.map(entry).all(emit);
        Ok(())
    }
    fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let data = self.model.lock().inode(id(ino)).visible().read(offset, buf.len() as u64);
        buf[..data.len()].copy_from_slice(&data);
        Ok(data.len())
    }
    fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> Result<usize> {
        let wrong = self.disk.bug == Bug::MisplacedWrite && offset / 4096 == 2;
        let mut model = self.model.lock();
        model.may_write(id(ino))?;
        model.write(id(ino), offset + u64::from(wrong), data);
        Ok(data.len())
    }
    fn fallocate(&self, ino: Ino, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        Ok(self.model.lock().fallocate(id(ino), mode, offset, len)?)
    }
    fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        let model = self.model.lock();
        let content = &model.inode(id(ino)).content;
        if offset >= content.size() {
            return Err(Posix::NoSuchAddress.into());
        }
        let present = |index| content.pages().any(|(at, _)| at == index);
        match whence {
            Seek::Hole => {
                let hole = (offset / 4096..).find(|index| !present(*index)).expect("pages are few");
                Ok((hole * 4096).clamp(offset, content.size()))
            }
            Seek::Data => {
                let data = content.pages().map(|(index, _)| index).find(|index| (index + 1) * 4096 > offset);
                let data = data.map(|index| offset.max(index * 4096)).filter(|data| *data < content.size());
                Ok(data.ok_or(Posix::NoSuchAddress)?)
            }
        }
    }
    fn copy_range(&self, from: Ino, from_offset: u64, to: Ino, to_offset: u64, len: u64) -> Result<u64> {
        let mut model = self.model.lock();
        let data = model.inode(id(from)).content.read(from_offset, len);
        model.may_write(id(to))?;
        if !data.is_empty() {
            model.content_mut(id(to)).write(to_offset, &data);
        }
        Ok(data.len() as u64)
    }
    fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        let mut model = self.model.lock().clone();
        match self.disk.bug {
            Bug::FdatasyncForgets if datasync => return Ok(()),
            Bug::XattrsNotDurable => model.inode_mut(id(ino)).xattrs.clear(),
            Bug::FlagsNotDurable => model.inode_mut(id(ino)).flags = FileFlags::empty(),
            _ => {}
        }
        self.persist(&model);
        Ok(())
    }
    fn getxattr(&self, ino: Ino, name: &[u8]) -> Result<Vec<u8>> {
        let model = self.model.lock();
        Ok(model.inode(id(ino)).xattrs.get(name).cloned().ok_or(Posix::NoAttribute)?)
    }
    fn listxattr(&self, ino: Ino) -> Result<Vec<Vec<u8>>> {
        Ok(self.model.lock().inode(id(ino)).xattrs.keys().cloned().collect())
    }
    fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> Result<()> {
        if name == ACCESS || name == DEFAULT {
            let acl = Acl::from_value(value);
            return Ok(self.model.lock().set_acl(id(ino), name == DEFAULT, Some(&acl))?);
        }
        Ok(self.model.lock().setxattr(id(ino), name, value, mode)?)
    }
    fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<()> {
        if name == ACCESS || name == DEFAULT {
            return Ok(self.model.lock().set_acl(id(ino), name == DEFAULT, None)?);
        }
        Ok(self.model.lock().removexattr(id(ino), name)?)
    }
    fn set_flags(&self, ino: Ino, flags: FileFlags) -> Result<()> {
        self.model.lock().set_flags(id(ino), flags);
        Ok(())
    }
    fn atomic_start(&self, ino: Ino) -> Result<()> {
        self.model.lock().atomic_start(id(ino));
        Ok(())
    }
    fn atomic_commit(&self, ino: Ino) -> Result<()> {
        let mut model = self.model.lock();
        model.atomic_end(id(ino), true);
        if self.disk.bug != Bug::CommitForgets {
            self.persist(&model);
        }
        Ok(())
    }
    fn atomic_abort(&self, ino: Ino) -> Result<()> {
        self.model.lock().atomic_end(id(ino), self.disk.bug == Bug::AbortCommits);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.persist(&self.model.lock());
        Ok(())
    }
    fn statfs(&self) -> Result<StatFs> {
        Err(Posix::NotSupported.into())
    }
}

impl FileSystem for ModelFs {
    fn checkpoint(&self) -> Result<()> {
        self.sync()
    }
    fn unmount(&self) -> Result<()> {
        self.model.lock().release_all();
        self.sync()
    }
}

/// How the order of writes is spoiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disorder {
    /// No flush reaches the device, and nothing is forced.
    NoFlush,
    /// A flush that stands between data and the nodes which name it comes after the nodes instead.
    NodesBeforeData,
}

/// A device that spoils the order of writes. See the module.
pub struct Unordered {
    inner: Arc<dyn BlockDevice>,
    disorder: Disorder,
    /// Data was written since the last flush.
    data: Mutex<bool>,
}

impl Unordered {
    /// On top of another device.
    pub fn new(inner: Arc<dyn BlockDevice>, disorder: Disorder) -> Unordered {
        Unordered { inner, disorder, data: Mutex::new(false) }
    }
}

impl BlockDevice for Unordered {
    fn block_count(&self) -> u64 {
        self.inner.block_count()
    }
    fn read(&self, addr: u64, blocks: &mut [&mut Block]) -> io::Result<()> {
        self.inner.read(addr, blocks)
    }
    fn write(&self, addr: u64, blocks: &[&Block], tag: WriteTag) -> io::Result<()> {
        if tag.cause == Cause::Data {
            *self.data.lock() = true;
        }
        self.inner.write(addr, blocks, WriteTag { fua: false, ..tag })?;
        if tag.fua { self.flush() } else { Ok(()) }
    }
    fn flush(&self) -> io::Result<()> {
        let after_data = std::mem::take(&mut *self.data.lock());
        match self.disorder {
            Disorder::NoFlush => Ok(()),
            // The one after the nodes, or after what has no data, stays in its place.
            Disorder::NodesBeforeData if after_data => Ok(()),
            Disorder::NodesBeforeData => self.inner.flush(),
        }
    }
    fn discard(&self, addr: u64, count: u64) -> io::Result<()> {
        self.inner.discard(addr, count)
    }
    fn read_only(&self) -> bool {
        self.inner.read_only()
    }
}
