//! A file system and a model side by side: applies operations to both and compares at once.

use crate::acl::{ACCESS, Acl, DEFAULT};
use crate::model::{Id, Inode, Model, PAGE, ROOT, USER_FLAGS};
use crate::observe::{compare, compare_attributes, failed, observe, read_page};
use crate::ops::{
    DATABASE, JOURNAL, LOG, MANY, Op, Place, SLOTS, Target, dir_path, pattern, place, xattr_name,
};
use crate::subject::FileSystem;
use medfs::{
    Attr, Error, FallocateMode, FileFlags, FileKind, Ino, NewFile, Posix, Result as FsResult, Seek, SetAttr,
    Timestamp, XattrMode,
};
use std::collections::BTreeSet;
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
    /// Several files or directories, each as by itself.
    Several {
        /// Which.
        ids: [Option<Id>; MANY],
        /// Only what is needed to read content and entries.
        datasync: bool,
    },
    /// A file as after an fsync, by the commit of an atomic write.
    Atomic {
        /// Which.
        id: Id,
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
    /// Whether the volume may be full. Then an operation that needs room may fail for want of it, without effect.
    pub crowded: bool,
    /// Operations that failed for want of room.
    pub refused: usize,
    slots: [Option<Id>; SLOTS as usize],
}

/// How an operation went wrong.
enum Fault {
    /// The file system says that it is full.
    Full,
    /// The two differ.
    Differs(String),
}

impl From<String> for Fault {
    fn from(message: String) -> Fault {
        Fault::Differs(message)
    }
}

/// As [`failed`], but tells a full volume apart.
fn refused(what: &str) -> impl FnOnce(Error) -> Fault {
    move |e| match e {
        Error::NoSpace => Fault::Full,
        e => failed(what)(e).into(),
    }
}

/// Whether an operation may need room. What removes, reads, or makes durable what was accepted may not be refused.
fn needs_room(op: &Op) -> bool {
    match op {
        Op::Create { .. } | Op::Symlink { .. } | Op::Link { .. } | Op::Rename { .. } => true,
        Op::Write { .. }
        | Op::Patch { .. }
        | Op::Frames { .. }
        | Op::Truncate { .. }
        | Op::Fallocate { .. }
        | Op::Copy { .. } => true,
        Op::SetXattr { .. } | Op::SetAcl { .. } | Op::Chmod { .. } => true,
        Op::Tmpfile { .. } | Op::LinkSlot { .. } => true,
        Op::AtomicStart { .. } | Op::AtomicUpdate { .. } => true,
        Op::Unlink { .. } | Op::Rmdir { .. } | Op::Fill { .. } | Op::Read { .. } => false,
        Op::RemoveXattr { .. } | Op::Chown { .. } | Op::Utimes { .. } | Op::SetFlags { .. } => false,
        Op::AtomicEnd { .. } | Op::Open { .. } | Op::Close { .. } => false,
        Op::Fsync { .. } | Op::FsyncDir { .. } | Op::FsyncMany { .. } | Op::Sync | Op::Checkpoint => false,
        Op::Background | Op::Idle { .. } => false,
        Op::Remount | Op::Crash => false,
    }
}

/// How SQLite lays out a log or journal of a database with pages of 4096 bytes: the header, where the first record is, the
/// bytes before a page, and those of a record.
fn layout_of_log(journal: bool) -> (Vec<u8>, u64, u64, u64) {
    let words = |words: &[u32]| words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>();
    if journal {
        // Magic and number of records are written later.
        (words(&[0, 0, 0, 7, 100, 512, 4096]), 512, 4, 4096 + 8)
    } else {
        (words(&[0x377f_0682, 3_007_000, 4096, 0, 1, 2, 3, 4]), 32, 24, 4096 + 24)
    }
}

/// Reads of a file that is to be read-hot.
const READS_BEFORE_IDLE: u64 = 200;

/// Same success or same error number.
fn same<T, M>(actual: FsResult<T>, expected: Result<M, Posix>) -> Result<Option<(T, M)>, Fault> {
    let message = match (actual, expected) {
        (Ok(actual), Ok(expected)) => return Ok(Some((actual, expected))),
        (Err(Error::NoSpace), Ok(_)) => return Err(Fault::Full),
        (Err(actual), Err(expected)) if actual.errno() == Error::Posix(expected).errno() => return Ok(None),
        (Err(actual), Err(expected)) => format!("failed with \"{actual}\" instead of \"{expected}\""),
        (Err(actual), Ok(_)) => format!("failed with \"{actual}\" ({actual:?})"),
        (Ok(_), Err(expected)) => format!("succeeded instead of failing with \"{expected}\""),
    };
    Err(message.into())
}

impl Session {
    /// Starts from what the file system holds.
    pub fn new(fs: Arc<dyn FileSystem>) -> Result<Session, String> {
        let model = observe(&*fs)?;
        Ok(Session { fs, model, crowded: false, refused: 0, slots: [None; SLOTS as usize] })
    }

    /// Goes on with another mount of the same device, whose content the model already is.
    pub fn remounted(fs: Arc<dyn FileSystem>, mut model: Model) -> Session {
        model.release_all();
        Session { fs, model, crowded: false, refused: 0, slots: [None; SLOTS as usize] }
    }

    /// Compares the whole tree, and the files that are only held. Does nothing while an atomic write is open, as the file
    /// then shows two sizes.
    pub fn compare_all(&self) -> Result<(), String> {
        if self.model.inodes().any(|(_, inode)| inode.staged.is_some()) {
            return Ok(());
        }
        compare(&self.model, &observe(&*self.fs)?)?;
        for id in self.slots.iter().flatten() {
            self.compare_attr(*id)?;
            self.compare_content(*id)?;
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

    /// A regular file in which no atomic write is open.
    fn settled(&self, target: Target) -> Option<Id> {
        self.regular(target).filter(|id| self.model.inode(*id).staged.is_none())
    }

    /// Applies one operation to both. `Err` says how they differ. [`Op::Remount`] and [`Op::Crash`] are the caller's.
    /// What does not apply to the present tree is left out.
    pub fn apply(&mut self, op: &Op) -> Result<Durable, String> {
        let before = self.crowded.then(|| self.model.clone());
        match (self.apply_some(op), before) {
            (Ok(durable), _) => Ok(durable.unwrap_or(Durable::Nothing)),
            (Err(Fault::Differs(message)), _) => Err(message),
            (Err(Fault::Full), Some(before)) if needs_room(op) => {
                self.refused += 1;
                let wanted = std::mem::replace(&mut self.model, before);
                self.after_refusal(op, &wanted)?;
                Ok(Durable::Nothing)
            }
            (Err(Fault::Full), _) => Err(format!("failed with \"{}\"", Error::NoSpace)),
        }
    }

    /// What was refused has changed nothing, with two exceptions: an atomic write that is open is given up, and changes
    /// of a range may have been made in part, each page of it as before or as `wanted`.
    fn after_refusal(&mut self, op: &Op, wanted: &Model) -> Result<(), String> {
        match *op {
            Op::AtomicUpdate { file, .. } | Op::Write { file, .. } => {
                let Some(id) = self.regular(file) else { return Ok(()) };
                if wanted.inode(id).staged.is_some() {
                    self.fs.atomic_abort(self.ino(id)).map_err(failed("abort"))?;
                    self.model.atomic_end(id, false);
                }
                self.compare_content(id)
            }
            Op::Fallocate { file, .. } => match self.regular(file) {
                Some(id) => self.learn_range(id, wanted),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// Takes over what a range change that was refused has left.
    fn learn_range(&mut self, id: Id, wanted: &Model) -> Result<(), String> {
        let (old, new) = (self.model.inode(id).content.clone(), &wanted.inode(id).content);
        let size = self.fs.getattr(self.ino(id)).map_err(failed("getattr"))?.size;
        if size < old.size().min(new.size()) || size > old.size().max(new.size()) {
            return Err(format!("size {size} after a refusal, {} before", old.size()));
        }
        let content = self.model.content_mut(id);
        content.truncate(size);
        let pages: BTreeSet<u64> = old.pages().chain(new.pages()).map(|(index, _)| index).collect();
        for index in pages.into_iter().filter(|index| index * PAGE < size) {
            let page = read_page(&*self.fs, self.ino(id), index, size)?;
            if page != *old.page(index) && page != *new.page(index) {
                return Err(format!("page {index} is neither the old one nor the new one after a refusal"));
            }
            self.model.content_mut(id).put_page(index, page);
        }
        self.compare_attr(id)
    }

    /// All of a file's content.
    fn compare_content(&self, id: Id) -> Result<(), String> {
        let pages: Vec<u64> = self.model.inode(id).visible().pages().map(|(index, _)| index).collect();
        self.compare_pages(id, pages.into_iter())?;
        self.compare_attr(id)
    }

    fn apply_some(&mut self, op: &Op) -> Result<Option<Durable>, Fault> {
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
                            self.fs.lookup(ino, &from.name()).map_err(refused("lookup of the whiteout"))?;
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
                    self.apply(&op).map_err(|e| format!("filler {name}: {e}"))?;
                }
            }
            Op::Write { file, offset, len, seed } => {
                let id = need!(self.regular(file));
                self.write(id, offset, &pattern(seed, offset, len as usize))?;
            }
            Op::Patch { file, first, count, len, seed } => {
                need!(self.regular(file));
                for page in u64::from(first)..u64::from(first) + u64::from(count) {
                    let offset = page * PAGE + (page * 331 + u64::from(seed) * 13) % (PAGE - u64::from(len));
                    self.apply(&Op::Write { file, offset, len: u32::from(len), seed })?;
                }
            }
            Op::Frames { dir, journal, first, count, seed } => {
                let at = |name| Target::Path(Place { dir, name });
                let database = need!(self.settled(at(DATABASE)));
                let id = need!(self.settled(at(if journal { JOURNAL } else { LOG })));
                match self.write_frames(database, id, journal, u64::from(first), u64::from(count), seed) {
                    Err(Fault::Full) => {}
                    written => written?,
                }
            }
            Op::Read { file, offset, len } => {
                let id = need!(self.regular(file));
                let mut buffer = vec![0xa5; len as usize];
                let read = self.fs.read(self.ino(id), offset, &mut buffer).map_err(refused("read"))?;
                let expected = self.model.inode(id).visible().read(offset, u64::from(len));
                if buffer[..read] != expected[..] {
                    let at = buffer[..read].iter().zip(&expected).position(|(a, b)| a != b);
                    return Err(format!(
                        "read {read} bytes, expected {}; first difference {at:?}",
                        expected.len()
                    )
                    .into());
                }
                if self.model.inode(id).staged.is_none() {
                    self.compare_seek(id, offset)?;
                }
            }
            Op::Truncate { file, size } => {
                let id = need!(self.settled(file));
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                let actual = self.fs.setattr(self.ino(id), &set);
                same(actual, self.model.truncate(id, size))?;
                self.compare_range(id, size.saturating_sub(2 * PAGE), 4 * PAGE)?;
            }
            Op::Fallocate { file, mode, offset, len } => {
                let id = need!(self.settled(file));
                // Reserving much would fill the volume: that is another test's subject.
                if len > 1 << 20 {
                    return Ok(None);
                }
                let actual = self.fs.fallocate(self.ino(id), mode, offset, len);
                same(actual, self.model.fallocate(id, mode, offset, len))?;
                self.compare_range(id, offset, len + PAGE)?;
                if mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE) {
                    self.compare_content(id)?;
                }
            }
            Op::Copy { from, from_offset, to, to_offset, len } => {
                let (source, target) = (need!(self.settled(from)), need!(self.settled(to)));
                if source == target || len > 1 << 20 {
                    return Ok(None);
                }
                let data = self.model.inode(source).content.read(from_offset, len);
                let allowed = if data.is_empty() { Ok(()) } else { self.model.may_write(target) };
                let (ino, to_ino) = (self.ino(source), self.ino(target));
                let actual = self.fs.copy_range(ino, from_offset, to_ino, to_offset, len);
                let Some((copied, ())) = same(actual, allowed)? else { return done };
                // A copy may stop early, but not at once.
                if copied > data.len() as u64 || copied == 0 && !data.is_empty() {
                    return Err(format!("copied {copied} of {} bytes", data.len()).into());
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
            Op::SetFlags { file, flags } => {
                let id = need!(self.target(file));
                // Whether a file is compressed is not the model's matter.
                let own = self.fs.getattr(self.ino(id)).map_err(refused("stat"))?.flags & FileFlags::COMPR;
                self.fs.set_flags(self.ino(id), flags | own).map_err(refused("chattr"))?;
                self.model.set_flags(id, flags);
                self.compare_attr(id)?;
            }
            Op::SetAcl { file, default, kind, perm } => {
                let id = need!(self.target(file));
                let acl = (kind > 0).then(|| Acl::of(kind, perm));
                let name = if default { DEFAULT } else { ACCESS };
                let actual = match &acl {
                    Some(acl) => self.fs.setxattr(self.ino(id), name, &acl.value(), XattrMode::Set),
                    None => self.fs.removexattr(self.ino(id), name),
                };
                same(actual, self.model.set_acl(id, default, acl.as_ref()))?;
                self.compare_attr(id)?;
                if self.takes_xattrs(id) {
                    self.compare_xattrs(id)?;
                }
            }
            Op::AtomicStart { file } => {
                let id = need!(self.regular(file));
                self.fs.atomic_start(self.ino(id)).map_err(refused("atomic start"))?;
                self.model.atomic_start(id);
            }
            Op::AtomicEnd { file, commit } => {
                let id = need!(self.regular(file).filter(|id| self.model.inode(*id).staged.is_some()));
                return self.atomic_end(id, commit).map(Some);
            }
            Op::AtomicUpdate { file, offsets, len, seed, commit } => {
                let id = need!(self.settled(file));
                self.fs.atomic_start(self.ino(id)).map_err(refused("atomic start"))?;
                self.model.atomic_start(id);
                for offset in offsets {
                    self.write(id, offset, &pattern(seed, offset, len as usize))?;
                }
                return self.atomic_end(id, commit).map(Some);
            }
            Op::Chmod { file, perm } => {
                let id =
                    need!(self.target(file).filter(|id| self.model.inode(*id).kind != FileKind::Symlink));
                let set = SetAttr { perm: Some(perm), ..SetAttr::default() };
                let actual = self.fs.setattr(self.ino(id), &set);
                same(actual, self.model.set_owner(id, Some(perm), None))?;
                self.compare_attr(id)?;
            }
            Op::Chown { file, uid, gid } => {
                let id = need!(self.target(file));
                let set = SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() };
                let actual = self.fs.setattr(self.ino(id), &set);
                same(actual, self.model.set_owner(id, None, Some((uid, gid))))?;
                self.compare_attr(id)?;
            }
            Op::Utimes { file, secs } => {
                let id = need!(self.target(file));
                let time = Timestamp { secs, nanos: 123_456_789 };
                let set = SetAttr { atime: Some(time), mtime: Some(time), ..SetAttr::default() };
                self.fs.setattr(self.ino(id), &set).map_err(refused("utimes"))?;
                self.model.inode_mut(id).mtime = Some(time);
                self.compare_attr(id)?;
            }
            Op::Open { at, slot } => {
                // Not devices: where one has lost its name, fsck.f2fs takes its number for the address of a block.
                let device = |kind| matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
                let id = need!(self.at(at).filter(|id| !device(self.model.inode(*id).kind)));
                self.fs.hold(self.ino(id)).map_err(refused("hold"))?;
                self.model.hold(id);
                self.occupy(slot, id);
            }
            Op::Tmpfile { slot } => {
                let new = NewFile { kind: FileKind::Regular, perm: 0o640, umask: 0, uid: 5, gid: 6, rdev: 0 };
                let actual = self.fs.tmpfile(self.fs.root(), &new);
                let expected = self.model.tmpfile(ROOT, &new);
                let Some((attr, id)) = same(actual, expected)? else { return done };
                self.model.inode_mut(id).ino = attr.ino;
                self.occupy(slot, id);
                self.compare_attr(id)?;
            }
            Op::LinkSlot { slot, to } => {
                let id = need!(self.slots[slot as usize % self.slots.len()]);
                let dir = need!(self.dir(to.dir));
                // What had names and lost them all cannot be linked again (the kernel refuses); a tmpfile can.
                if self.model.inode(id).nlink == 0 && !self.model.inode(id).nameless {
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
                self.fs.fsync(self.ino(id), datasync).map_err(refused("fsync"))?;
                return Ok(Some(match self.model.inode(id).is_dir() {
                    true => Durable::Directory { id, datasync },
                    false => Durable::File { id, datasync },
                }));
            }
            Op::FsyncDir { dir } => {
                let id = need!(self.dir(dir));
                self.fs.fsync(self.ino(id), false).map_err(refused("fsync of a directory"))?;
                return Ok(Some(Durable::Directory { id, datasync: false }));
            }
            Op::FsyncMany { files, datasync, threads } => {
                let ids = files.map(|file| self.target(file));
                let inos: Vec<Ino> = ids.iter().flatten().map(|id| self.ino(*id)).collect();
                match threads {
                    true => self.fsync_at_once(&inos, datasync),
                    false => self.fs.fsync_many(&inos, datasync),
                }
                .map_err(refused("fsync of several files"))?;
                return Ok(Some(Durable::Several { ids, datasync }));
            }
            Op::Sync => {
                self.fs.sync().map_err(refused("sync"))?;
                return Ok(Some(Durable::All));
            }
            Op::Checkpoint => {
                self.fs.checkpoint().map_err(refused("checkpoint"))?;
                return Ok(Some(Durable::Metadata));
            }
            Op::Background => self.fs.background().map_err(refused("background work"))?,
            Op::Idle { file } => {
                let id = need!(self.regular(file));
                for page in 0..READS_BEFORE_IDLE {
                    let offset = page % 8 * PAGE;
                    self.fs.read(self.ino(id), offset, &mut [0; 100]).map_err(refused("read"))?;
                }
                self.fs.idle().map_err(refused("idle work"))?;
            }
            Op::Remount | Op::Crash => return Err(format!("{op:?} is not for a session").into()),
        }
        done
    }

    /// fsyncs files, each by a thread of its own. The first error.
    fn fsync_at_once(&self, inos: &[Ino], datasync: bool) -> FsResult<()> {
        std::thread::scope(|scope| {
            let fsync = |ino: Ino| scope.spawn(move || self.fs.fsync(ino, datasync));
            let threads: Vec<_> = inos.iter().map(|ino| fsync(*ino)).collect();
            let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            ended.into_iter().try_for_each(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    /// Writes bytes to both; a full volume may take only some.
    fn write(&mut self, id: Id, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let actual = self.fs.write(self.ino(id), offset, data);
        let Some((written, ())) = same(actual, self.model.may_write(id))? else { return Ok(()) };
        if written > data.len() || written < data.len() && !self.crowded {
            return Err(format!("wrote {written} of {} bytes", data.len()).into());
        }
        self.model.write(id, offset, &data[..written]);
        Ok(self.compare_range(id, offset, written as u64)?)
    }

    /// Writes pages of a database into a log or journal, each changed in a few places.
    fn write_frames(
        &mut self,
        database: Id,
        id: Id,
        journal: bool,
        first: u64,
        count: u64,
        seed: u8,
    ) -> Result<(), Fault> {
        let pages = self.model.inode(database).content.size() / PAGE;
        if pages == 0 {
            return Ok(());
        }
        let (header, start, before, stride) = layout_of_log(journal);
        self.write(id, 0, &header)?;
        // In one go, as a page lies over two records: no state between two of them is one that the model knows.
        let mut records = Vec::new();
        for n in first..first + count {
            let number = (n * 7 + u64::from(seed)) % pages;
            let mut page = self.model.inode(database).content.read(number * PAGE, PAGE);
            for change in 0..u64::from(seed % 40) {
                let at = (change * 97 + n * 31 + u64::from(seed) * 11) % PAGE;
                page[at as usize] = page[at as usize].wrapping_add(seed | 1);
            }
            let mut record = vec![seed; before as usize];
            record[..4].copy_from_slice(&(number as u32 + 1).to_be_bytes());
            record.extend(page);
            record.resize(stride as usize, n as u8);
            records.extend(record);
        }
        self.write(id, start + first * stride, &records)
    }

    fn atomic_end(&mut self, id: Id, commit: bool) -> Result<Durable, Fault> {
        let ino = self.ino(id);
        match commit {
            true => self.fs.atomic_commit(ino).map_err(|e| failed("commit")(e))?,
            false => self.fs.atomic_abort(ino).map_err(|e| failed("abort")(e))?,
        }
        self.model.atomic_end(id, commit);
        self.compare_content(id)?;
        Ok(if commit { Durable::Atomic { id } } else { Durable::Nothing })
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
    ) -> Result<(), Fault> {
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
        Ok(self.compare_entry(at)?)
    }

    /// A name leads where it should, or nowhere.
    fn compare_entry(&self, at: Place) -> Result<(), String> {
        let Some(dir) = self.dir(at.dir) else { return Ok(()) };
        let actual = self.fs.lookup(self.ino(dir), &at.name());
        if let Ok(attr) = &actual {
            self.fs.release(attr.ino);
        }
        let shown = || format!("{}/{}", self.model.path_of(dir), String::from_utf8_lossy(&at.name()));
        let checked = same(actual, self.model.lookup(dir, &at.name())).map_err(|fault| match fault {
            Fault::Full => format!("lookup of {}: {}", shown(), Error::NoSpace),
            Fault::Differs(e) => format!("lookup of {}: {e}", shown()),
        })?;
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
        let content = inode.visible();
        let size = content.size();
        for index in pages.take_while(|index| index * PAGE < size) {
            let actual = read_page(&*self.fs, inode.ino, index, size)
                .map_err(|e| format!("{}: {e}", self.model.path_of(id)))?;
            let expected = content.page(index);
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
        flags: attr.flags & USER_FLAGS,
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
