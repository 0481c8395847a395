//! A file system and a model side by side: applies operations to both and compares at once.

use crate::model::{Id, Inode, Model, PAGE, ROOT};
use crate::observe::{compare, compare_attributes, failed, observe, read_page};
use crate::ops::{Op, Place, SLOTS, Target, dir_path, pattern, place, xattr_name};
use crate::subject::FileSystem;
use medfs::{
    Attr, Error, FallocateMode, FileKind, Ino, NewFile, Posix, Result as FsResult, Seek, SetAttr, Timestamp,
};
use std::sync::Arc;

/// What an operation made durable, where it succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durable {
    /// Nothing.
    Nothing,
    /// One file: content, and (without `datasync`) attributes, and what is needed to reach it.
    File {
        /// Which.
        id: Id,
        /// Only what is needed to read the content.
        datasync: bool,
    },
    /// A directory: its entries, present and absent, (without `datasync`) its attributes, and what is needed to reach it.
    Directory {
        /// Which.
        id: Id,
        /// Only what is needed to read the entries.
        datasync: bool,
    },
    /// Everything but the content of regular files.
    Metadata,
    /// Everything.
    All,
}

/// A file system under test and the model of what it should be.
pub struct Session {
    /// Under test.
    pub fs: Arc<dyn FileSystem>,
    /// What it should be.
    pub model: Model,
    slots: [Option<Id>; SLOTS as usize],
}

/// `Ok(None)`: the operation does not apply to the present tree and was left out.
type Applied = Result<Durable, String>;

/// Same success or same error number.
fn same<T, M>(actual: FsResult<T>, expected: Result<M, Posix>) -> Result<Option<(T, M)>, String> {
    match (actual, expected) {
        (Ok(actual), Ok(expected)) => Ok(Some((actual, expected))),
        (Err(actual), Err(expected)) if actual.errno() == Error::Posix(expected).errno() => Ok(None),
        (Err(actual), Err(expected)) => Err(format!("failed with \"{actual}\" instead of \"{expected}\"")),
        (Err(actual), Ok(_)) => Err(format!("failed with \"{actual}\" ({actual:?})")),
        (Ok(_), Err(expected)) => Err(format!("succeeded instead of failing with \"{expected}\"")),
    }
}

impl Session {
    /// Starts from what the file system holds.
    pub fn new(fs: Arc<dyn FileSystem>) -> Result<Session, String> {
        let model = observe(&*fs)?;
        Ok(Session { fs, model, slots: [None; SLOTS as usize] })
    }

    /// Goes on with another mount of the same device, whose content the model already is.
    pub fn remounted(fs: Arc<dyn FileSystem>, mut model: Model) -> Session {
        model.release_all();
        Session { fs, model, slots: [None; SLOTS as usize] }
    }

    /// Compares the whole tree, and the files that are only held.
    pub fn compare_all(&self) -> Result<(), String> {
        compare(&self.model, &observe(&*self.fs)?)?;
        for id in self.slots.iter().flatten() {
            self.compare_attr(*id)?;
            let pages: Vec<u64> = self.model.inode(*id).content.pages().map(|(index, _)| index).collect();
            self.compare_pages(*id, pages.into_iter())?;
        }
        Ok(())
    }

    fn dir(&self, dir: u8) -> Option<Id> {
        let step = |at: Id, name: &&[u8]| self.model.lookup(at, name).ok();
        let id = dir_path(dir).iter().try_fold(ROOT, step)?;
        self.model.inode(id).is_dir().then_some(id)
    }

    fn at(&self, at: Place) -> Option<Id> {
        self.model.lookup(self.dir(at.dir)?, &at.name()).ok()
    }

    fn target(&self, target: Target) -> Option<Id> {
        match target {
            Target::Path(at) => self.at(at),
            Target::Slot(slot) => self.slots[slot as usize % self.slots.len()],
        }
    }

    fn regular(&self, target: Target) -> Option<Id> {
        self.target(target).filter(|id| self.model.inode(*id).kind == FileKind::Regular)
    }

    fn ino(&self, id: Id) -> Ino {
        self.model.inode(id).ino
    }

    /// Applies one operation to both. `Err` says how they differ. [`Op::Remount`] and [`Op::Crash`] are the caller's.
    pub fn apply(&mut self, op: &Op) -> Applied {
        self.apply_some(op).map(|durable| durable.unwrap_or(Durable::Nothing))
    }

    fn apply_some(&mut self, op: &Op) -> Result<Option<Durable>, String> {
        let done = Ok(Some(Durable::Nothing));
        macro_rules! need {
            ($some:expr) => {
                match $some {
                    Some(value) => value,
                    None => return Ok(None),
                }
            };
        }
        match *op {
            Op::Create { at, kind, perm } => {
                let rdev =
                    if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) { 0x1_0305 } else { 0 };
                let new = NewFile { kind, perm, umask: 0, uid: 1000, gid: 100, rdev };
                let dir = need!(self.dir(at.dir));
                let actual = self.fs.create(self.ino(dir), &at.name(), &new);
                self.created(at, actual, |model, dir, name| model.create(dir, name, &new))?;
            }
            Op::Symlink { at, len } => {
                let target: Vec<u8> = (0..len.max(1)).map(|i| b'a' + (i % 26) as u8).collect();
                let dir = need!(self.dir(at.dir));
                let actual = self.fs.symlink(self.ino(dir), &at.name(), &target);
                self.created(at, actual, |model, dir, name| model.symlink(dir, name, &target))?;
            }
            Op::Link { from, to } => {
                let id = need!(self.at(from));
                let dir = need!(self.dir(to.dir));
                let actual = self.fs.link(self.ino(id), self.ino(dir), &to.name());
                self.created(to, actual, |model, dir, name| model.link(id, dir, name).map(|()| id))?;
            }
            Op::Unlink { at } => {
                let dir = need!(self.dir(at.dir));
                let actual = self.fs.unlink(self.ino(dir), &at.name());
                same(actual, self.model.unlink(dir, &at.name()))?;
                self.compare_entry(at)?;
            }
            Op::Rmdir { at } => {
                let dir = need!(self.dir(at.dir));
                let actual = self.fs.rmdir(self.ino(dir), &at.name());
                same(actual, self.model.rmdir(dir, &at.name()))?;
                self.compare_entry(at)?;
            }
            Op::Rename { from, to, flags } => {
                let (dir, to_dir) = (need!(self.dir(from.dir)), need!(self.dir(to.dir)));
                // The kernel refuses to move a directory below itself before a file system sees it.
                let below = |id: Option<Id>, dir| {
                    id.is_some_and(|id| self.model.inode(id).is_dir() && self.model.is_below(dir, id))
                };
                if below(self.at(from), to_dir) || below(self.at(to), dir) {
                    return Ok(None);
                }
                let (ino, to_ino) = (self.ino(dir), self.ino(to_dir));
                let actual = self.fs.rename(ino, &from.name(), to_ino, &to.name(), flags);
                let expected = self.model.rename(dir, &from.name(), to_dir, &to.name(), flags);
                if same(actual, expected)?.is_some() {
                    // A whiteout is new: learn its number.
                    if let Some(id) = self.at(from).filter(|id| self.model.inode(*id).ino == 0) {
                        let attr =
                            self.fs.lookup(ino, &from.name()).map_err(failed("lookup of the whiteout"))?;
                        self.fs.release(attr.ino);
                        self.model.inode_mut(id).ino = attr.ino;
                    }
                }
                self.compare_entry(from)?;
                self.compare_entry(to)?;
            }
            Op::Fill { dir, first, count, remove } => {
                need!(self.dir(dir));
                for name in first..first.saturating_add(count) {
                    let at = place(dir, name);
                    let op = match remove {
                        true => Op::Unlink { at },
                        false => Op::Create { at, kind: FileKind::Regular, perm: 0o600 },
                    };
                    self.apply_some(&op).map_err(|e| format!("filler {name}: {e}"))?;
                }
            }
            Op::Write { file, offset, len, seed } => {
                let id = need!(self.regular(file));
                let data = pattern(seed, offset, len as usize);
                let written = self.fs.write(self.ino(id), offset, &data).map_err(failed("write"))?;
                if written != data.len() {
                    return Err(format!("wrote {written} of {len} bytes"));
                }
                self.model.content_mut(id).write(offset, &data);
                self.compare_range(id, offset, u64::from(len))?;
            }
            Op::Read { file, offset, len } => {
                let id = need!(self.regular(file));
                let mut buffer = vec![0xa5; len as usize];
                let read = self.fs.read(self.ino(id), offset, &mut buffer).map_err(failed("read"))?;
                let expected = self.model.inode(id).content.read(offset, u64::from(len));
                if buffer[..read] != expected[..] {
                    let at = buffer[..read].iter().zip(&expected).position(|(a, b)| a != b);
                    return Err(format!(
                        "read {read} bytes, expected {}; first difference {at:?}",
                        expected.len()
                    ));
                }
                self.compare_seek(id, offset)?;
            }
            Op::Truncate { file, size } => {
                let id = need!(self.regular(file));
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                self.fs.setattr(self.ino(id), &set).map_err(failed("truncate"))?;
                self.model.content_mut(id).truncate(size);
                self.compare_range(id, size.saturating_sub(2 * PAGE), 4 * PAGE)?;
            }
            Op::Fallocate { file, mode, offset, len } => {
                let id = need!(self.regular(file));
                // Reserving much would fill the volume: that is another test's subject.
                if len > 1 << 20 {
                    return Ok(None);
                }
                let actual = self.fs.fallocate(self.ino(id), mode, offset, len);
                same(actual, self.model.fallocate(id, mode, offset, len))?;
                self.compare_range(id, offset, len + PAGE)?;
                if mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE) {
                    let pages: Vec<u64> =
                        self.model.inode(id).content.pages().map(|(index, _)| index).collect();
                    self.compare_pages(id, pages.into_iter())?;
                }
            }
            Op::Copy { from, from_offset, to, to_offset, len } => {
                let (source, target) = (need!(self.regular(from)), need!(self.regular(to)));
                if source == target || len > 1 << 20 {
                    return Ok(None);
                }
                let data = self.model.inode(source).content.read(from_offset, len);
                let (ino, to_ino) = (self.ino(source), self.ino(target));
                let copied =
                    self.fs.copy_range(ino, from_offset, to_ino, to_offset, len).map_err(failed("copy"))?;
                // A copy may stop early, but not at once.
                if copied > data.len() as u64 || copied == 0 && !data.is_empty() {
                    return Err(format!("copied {copied} of {} bytes", data.len()));
                }
                if copied > 0 {
                    self.model.content_mut(target).write(to_offset, &data[..copied as usize]);
                }
                self.compare_range(target, to_offset, copied)?;
            }
            Op::SetXattr { file, name, len, mode } => {
                let id = need!(self.target(file).filter(|id| self.takes_xattrs(*id)));
                let (name, value) = (xattr_name(name), pattern(name, u64::from(len), len as usize));
                let actual = self.fs.setxattr(self.ino(id), name, &value, mode);
                same(actual, self.model.setxattr(id, name, &value, mode))?;
                self.compare_xattrs(id)?;
            }
            Op::RemoveXattr { file, name } => {
                let id = need!(self.target(file).filter(|id| self.takes_xattrs(*id)));
                let actual = self.fs.removexattr(self.ino(id), xattr_name(name));
                same(actual, self.model.removexattr(id, xattr_name(name)))?;
                self.compare_xattrs(id)?;
            }
            Op::Chmod { file, perm } => {
                let id =
                    need!(self.target(file).filter(|id| self.model.inode(*id).kind != FileKind::Symlink));
                let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
                self.fs.setattr(self.ino(id), &set).map_err(failed("chmod"))?;
                self.model.inode_mut(id).perm = perm;
                self.compare_attr(id)?;
            }
            Op::Chown { file, uid, gid } => {
                let id = need!(self.target(file));
                let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
                self.fs.setattr(self.ino(id), &set).map_err(failed("chown"))?;
                let inode = self.model.inode_mut(id);
                (inode.uid, inode.gid) = (uid, gid);
                self.compare_attr(id)?;
            }
            Op::Utimes { file, secs } => {
                let id = need!(self.target(file));
                let time = Timestamp { secs, nanos: 123_456_789 };
                let set = SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
                self.fs.setattr(self.ino(id), &set).map_err(failed("utimes"))?;
                self.model.inode_mut(id).mtime = Some(time);
                self.compare_attr(id)?;
            }
            Op::Open { at, slot } => {
                let id = need!(self.at(at));
                self.fs.hold(self.ino(id)).map_err(failed("hold"))?;
                self.model.hold(id);
                self.occupy(slot, id);
            }
            Op::Tmpfile { slot } => {
                let new = NewFile { kind: FileKind::Regular, perm: 0o640, umask: 0, uid: 5, gid: 6, rdev: 0 };
                let attr = self.fs.tmpfile(self.fs.root(), &new).map_err(failed("tmpfile"))?;
                let id = self.model.tmpfile(&new);
                self.model.inode_mut(id).ino = attr.ino;
                self.occupy(slot, id);
                self.compare_attr(id)?;
            }
            Op::LinkSlot { slot, to } => {
                let id = need!(self.slots[slot as usize % self.slots.len()]);
                let dir = need!(self.dir(to.dir));
                // What had names and lost them all cannot be linked again (the kernel refuses); a tmpfile can.
                if self.model.inode(id).nlink == 0 && !self.is_tmpfile(id) {
                    return Ok(None);
                }
                let actual = self.fs.link(self.ino(id), self.ino(dir), &to.name());
                self.created(to, actual, |model, dir, name| model.link(id, dir, name).map(|()| id))?;
            }
            Op::Close { slot } => {
                if let Some(id) = self.slots[slot as usize % self.slots.len()].take() {
                    self.fs.release(self.ino(id));
                    self.model.release(id);
                }
            }
            Op::Fsync { file, datasync } => {
                let id = need!(self.target(file));
                self.fs.fsync(self.ino(id), datasync).map_err(failed("fsync"))?;
                return Ok(Some(match self.model.inode(id).is_dir() {
                    true => Durable::Directory { id, datasync },
                    false => Durable::File { id, datasync },
                }));
            }
            Op::FsyncDir { dir } => {
                let id = need!(self.dir(dir));
                self.fs.fsync(self.ino(id), false).map_err(failed("fsync of a directory"))?;
                return Ok(Some(Durable::Directory { id, datasync: false }));
            }
            Op::Sync => {
                self.fs.sync().map_err(failed("sync"))?;
                return Ok(Some(Durable::All));
            }
            Op::Checkpoint => {
                self.fs.checkpoint().map_err(failed("checkpoint"))?;
                return Ok(Some(Durable::Metadata));
            }
            Op::Background => self.fs.background().map_err(failed("background work"))?,
            Op::Remount | Op::Crash => return Err(format!("{op:?} is not for a session")),
        }
        done
    }

    fn is_tmpfile(&self, id: Id) -> bool {
        let inode = self.model.inode(id);
        inode.perm == 0o640 && (inode.uid, inode.gid) == (5, 6)
    }

    fn takes_xattrs(&self, id: Id) -> bool {
        matches!(self.model.inode(id).kind, FileKind::Regular | FileKind::Directory)
    }

    fn occupy(&mut self, slot: u8, id: Id) {
        let slot = slot as usize % self.slots.len();
        if let Some(before) = self.slots[slot].replace(id) {
            self.fs.release(self.ino(before));
            self.model.release(before);
        }
    }

    /// Finishes an operation that made an entry.
    fn created(
        &mut self,
        at: Place,
        actual: FsResult<Attr>,
        expected: impl FnOnce(&mut Model, Id, &[u8]) -> Result<Id, Posix>,
    ) -> Result<(), String> {
        let dir = self.dir(at.dir).expect("resolved by the caller");
        let expected = expected(&mut self.model, dir, &at.name());
        if let Some((attr, id)) = same(actual, expected)? {
            self.fs.release(attr.ino);
            let inode = self.model.inode_mut(id);
            if inode.ino == 0 {
                inode.ino = attr.ino;
            }
            compare_attr(self.model.inode(id), &attr)?;
            self.compare_attr(dir)?;
        }
        self.compare_entry(at)
    }

    /// A name leads where it should, or nowhere.
    fn compare_entry(&self, at: Place) -> Result<(), String> {
        let Some(dir) = self.dir(at.dir) else { return Ok(()) };
        let actual = self.fs.lookup(self.ino(dir), &at.name());
        if let Ok(attr) = &actual {
            self.fs.release(attr.ino);
        }
        let shown = || format!("{}/{}", self.model.path_of(dir), String::from_utf8_lossy(&at.name()));
        let checked = same(actual, self.model.lookup(dir, &at.name()))
            .map_err(|e| format!("lookup of {}: {e}", shown()))?;
        if let Some((attr, id)) = checked {
            compare_attr(self.model.inode(id), &attr).map_err(|e| format!("{}: {e}", shown()))?;
        }
        self.compare_attr(dir)
    }

    fn compare_attr(&self, id: Id) -> Result<(), String> {
        let attr = self.fs.getattr(self.ino(id)).map_err(failed("getattr"));
        let compared = attr.and_then(|attr| compare_attr(self.model.inode(id), &attr));
        compared.map_err(|e| format!("{}: {e}", self.model.path_of(id)))
    }

    fn compare_xattrs(&self, id: Id) -> Result<(), String> {
        let ino = self.ino(id);
        let expected = &self.model.inode(id).xattrs;
        let mut names = self.fs.listxattr(ino).map_err(failed("listxattr"))?;
        names.sort();
        if !names.iter().eq(expected.keys()) {
            let shown: Vec<_> = names.iter().map(|name| String::from_utf8_lossy(name)).collect();
            return Err(format!("listxattr gives {shown:?}, not the {} expected", expected.len()));
        }
        for (name, value) in expected {
            let actual = self.fs.getxattr(ino, name).map_err(failed("getxattr"))?;
            if actual != *value {
                return Err(format!("value of {} is wrong", String::from_utf8_lossy(name)));
            }
        }
        Ok(())
    }

    /// Content of a range and the pages around it, and the attributes.
    fn compare_range(&self, id: Id, offset: u64, len: u64) -> Result<(), String> {
        self.compare_attr(id)?;
        let first = (offset / PAGE).saturating_sub(1);
        let last = offset.saturating_add(len) / PAGE + 1;
        self.compare_pages(id, first..=last.min(first + 80))
    }

    fn compare_pages(&self, id: Id, pages: impl Iterator<Item = u64>) -> Result<(), String> {
        let inode = self.model.inode(id);
        let size = inode.content.size();
        for index in pages.take_while(|index| index * PAGE < size) {
            let actual = read_page(&*self.fs, inode.ino, index, size)
                .map_err(|e| format!("{}: {e}", self.model.path_of(id)))?;
            let expected = inode.content.page(index);
            if let Some(at) = expected.iter().zip(&actual).position(|(a, b)| a != b) {
                let path = self.model.path_of(id);
                return Err(format!(
                    "{path}: page {index} differs from byte {at} on: {:#x} instead of {:#x}",
                    actual[at], expected[at]
                ));
            }
        }
        Ok(())
    }

    /// Data and holes are told truthfully: no data in what is called a hole.
    fn compare_seek(&self, id: Id, offset: u64) -> Result<(), String> {
        let inode = self.model.inode(id);
        let size = inode.content.size();
        let first = inode.content.pages().find(|(index, page)| {
            (index + 1) * PAGE > offset && index * PAGE < size && page.iter().any(|byte| *byte != 0)
        });
        match self.fs.seek(inode.ino, offset, Seek::Data) {
            Ok(at) if offset < size && at >= offset && at < size => match first {
                Some((index, _)) if at > (index * PAGE).max(offset) => {
                    Err(format!("seeking data from {offset} on gave {at}, but page {index} has some"))
                }
                _ => Ok(()),
            },
            Ok(at) => Err(format!("seeking data from {offset} on gave {at}, size {size}")),
            Err(Error::Posix(Posix::NoSuchAddress)) if offset >= size || first.is_none() => Ok(()),
            Err(e) => Err(format!("seeking data from {offset} on: {e}")),
        }?;
        match self.fs.seek(inode.ino, offset, Seek::Hole) {
            Ok(at) if offset < size && at >= offset && at <= size => Ok(()),
            Ok(at) => Err(format!("seeking a hole from {offset} on gave {at}, size {size}")),
            Err(Error::Posix(Posix::NoSuchAddress)) if offset >= size => Ok(()),
            Err(e) => Err(format!("seeking a hole from {offset} on: {e}")),
        }
    }
}

/// Attributes as the file system tells them, against the model.
fn compare_attr(expected: &Inode, attr: &Attr) -> Result<(), String> {
    let actual = Inode {
        kind: attr.kind,
        perm: attr.perm,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        mtime: Some(attr.mtime),
        // Compared by others.
        ..expected.clone()
    };
    compare_attributes(expected, &actual)?;
    if attr.nlink != expected.nlink {
        return Err(format!("link count {} instead of {}", attr.nlink, expected.nlink));
    }
    if expected.kind == FileKind::Regular && attr.size != expected.content.size() {
        return Err(format!("size {} instead of {}", attr.size, expected.content.size()));
    }
    if attr.ino != expected.ino {
        return Err(format!("inode {} instead of {}", attr.ino, expected.ino));
    }
    Ok(())
}
