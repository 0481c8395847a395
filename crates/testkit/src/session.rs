//! A file system and a model side by side: applies operations to both and compares at once.

mod apply;
mod attributes;
mod compare;
mod content;
mod durable;
mod names;

use crate::model::{Id, Model, PAGE, ROOT};
use crate::observe::{compare, failed, observe, read_page};
use crate::ops::{MANY, Op, Place, SLOTS, Target, dir_path};
use crate::subject::FileSystem;
use medfs::{DURABILITY_ATTRIBUTE, DurabilityMode, Error, FileKind, Ino, Posix, Result as FsResult};
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
    /// A directory: its entries, present and absent, (without `datasync`) its attributes, and what is needed
    /// to reach it.
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
    /// All of the app that a file or directory is in.
    App {
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
    /// The model after each single write, where that is asked for: an operation may be several.
    pub steps: Option<Vec<Model>>,
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

/// What became of an operation; `None`: it does not apply to the present tree.
type Applied = Result<Option<Durable>, Fault>;

/// It was done, and makes nothing durable.
const NOTHING: Applied = Ok(Some(Durable::Nothing));

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
        | Op::CopyChanged { .. }
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
        Op::Fsync { .. } | Op::FsyncDir { .. } | Op::FsyncMany { .. } => false,
        Op::Sync | Op::SyncApp { .. } | Op::Checkpoint => false,
        Op::Background | Op::Idle { .. } => false,
        Op::Remount | Op::Crash => false,
    }
}

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
        Ok(Session { fs, model, crowded: false, refused: 0, steps: None, slots: [None; SLOTS as usize] })
    }

    /// Goes on with another mount of the same device, whose content the model already is.
    pub fn remounted(fs: Arc<dyn FileSystem>, mut model: Model) -> Session {
        model.release_all();
        Session { fs, model, crowded: false, refused: 0, steps: None, slots: [None; SLOTS as usize] }
    }

    /// What an operation made durable where commits are of the whole volume and put off: all, by an fsync of a file
    /// that says that its own are not.
    pub fn with_own_durability(&self, durable: Durable) -> Durable {
        let own = |id: Id| {
            let value = self.model.get(id).and_then(|inode| inode.xattrs.get(DURABILITY_ATTRIBUTE));
            value.is_some_and(|value| DurabilityMode::of_attribute(value) == Some(DurabilityMode::Posix))
        };
        let at_once = match durable {
            Durable::File { id, .. } | Durable::Directory { id, .. } => own(id),
            Durable::Several { ids, .. } => ids.into_iter().flatten().any(own),
            _ => false,
        };
        if at_once { Durable::All } else { durable }
    }

    /// A write is done.
    fn note_step(&mut self) {
        let model = &self.model;
        self.steps.iter_mut().for_each(|steps| steps.push(model.clone()));
    }

    /// Compares the whole tree, and the files that are only held. Does nothing while an atomic write is open,
    /// as the file then shows two sizes.
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
}
