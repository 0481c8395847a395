//! A workload on a device with trouble in reading: which errors are excused, and what must be as it should be.

use super::hit::Hit;
use crate::harness::guarded;
use crate::model::{Id, Inode, Model, PAGE, ROOT};
use crate::observe::{self, compare_inode, read_page};
use crate::ops::{DATABASE, JOURNAL, LOG, Op, Place, Target, dir_path, place};
use crate::session::Session;
use crate::subject::FileSystem;
use crate::watched::{Failed, Watched};
use medfs::{FileKind, Ino, NewFile};
use std::sync::Arc;

/// Name of the file that is made after the error.
pub(super) const WITNESS: &[u8] = b"made since";

/// How a run went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Went {
    /// Calls that failed, as they may.
    pub failed: usize,
    /// Whether the fault was met.
    pub met: bool,
    /// Whether `sync` or `close` told of an error.
    pub told: bool,
}

/// A run that met trouble in reading.
pub(super) struct Struck {
    pub(super) hit: Hit,
    /// A repair has dropped what cannot be made: such a page is what it was before.
    pub(super) repaired: bool,
    /// The block is the place of a page alone: nothing that is to be written needs it.
    pub(super) plain: bool,
    pub(super) flipped: bool,
    pub(super) went: Went,
    pub(super) watched: Arc<Watched>,
}

impl Struck {
    /// One operation. Calls about what is hit may fail; what they leave behind of it is not known.
    pub(super) fn step(&mut self, session: &mut Session, op: &Op) -> Result<(), String> {
        let before = session.model.clone();
        self.watched.take();
        let Err(message) = guarded(|| session.apply(op).map(drop)) else { return Ok(()) };
        let failed = self.watched.take();
        if message.starts_with("panicked") {
            return Err(message);
        }
        let about_hit = self.touches_hit(&before, op);
        if failed.is_empty() && !about_hit {
            return Err(message);
        }
        for call in &failed {
            let excused = (call.is_damage() || self.hit.all) && self.excuses(call, &before);
            if !excused {
                return Err(format!("a bystander's error, {call:?}: {message}"));
            }
        }
        self.went.failed += 1;
        // What only looked has changed nothing; the model has what was done before.
        if failed.is_empty() || !failed.iter().all(Failed::only_looks) {
            session.model = before;
            let inos = failed.iter().flat_map(|call| call.inos.iter().copied());
            self.hit.inos.extend(inos);
            self.forget_subjects(session, op);
        }
        let open: Vec<(Id, Ino)> =
            session.model.inodes().filter(|(_, i)| i.staged.is_some()).map(|(id, i)| (id, i.ino)).collect();
        for (id, ino) in open {
            let _ = session.fs.atomic_abort(ino);
            session.model.atomic_end(id, false);
            self.hit.inos.insert(ino);
        }
        Ok(())
    }

    /// Whether an operation is about something of which not all is known.
    fn touches_hit(&self, model: &Model, op: &Op) -> bool {
        self.hit.all
            || places(op).into_iter().any(|at| self.resolve(model, at).iter().any(|ino| self.hit.has(*ino)))
    }

    fn forget_subjects(&mut self, session: &Session, op: &Op) {
        for at in places(op) {
            self.hit.inos.extend(self.resolve(&session.model, at));
        }
    }

    /// The directory of a place and what is there.
    fn resolve(&self, model: &Model, at: Place) -> Vec<Ino> {
        let path = dir_path(at.dir);
        let Some(dir) = path.iter().try_fold(ROOT, |id, name| model.lookup(id, name).ok()) else {
            return Vec::new();
        };
        let child = model.get(dir).and_then(|d| d.entries.get(&at.name()[..]).copied());
        [Some(dir), child].into_iter().flatten().map(|id| model.inode(id).ino).collect()
    }

    fn excuses(&self, call: &Failed, model: &Model) -> bool {
        let child = |(dir, name): &(Ino, Vec<u8>)| {
            let dir = model.inodes().find(|(_, inode)| inode.ino == *dir)?.1;
            Some(model.inode(*dir.entries.get(name)?).ino)
        };
        const COMMITS: [&str; 4] = ["sync", "fsync", "fsync_many", "atomic_commit"];
        if self.plain && COMMITS.contains(&call.call) {
            return false;
        }
        let ends = call.call == "sync" && !self.hit.is_empty();
        ends || call.inos.iter().any(|ino| self.hit.has(*ino))
            || call.names.iter().filter_map(child).any(|ino| self.hit.has(ino))
    }

    /// `sync` and `close` may tell of an error where something is hit that is more than the place of a page.
    pub(super) fn may_fail(&self, what: &str, ended: medfs::Result<()>) -> Result<(), String> {
        match ended {
            Err(e) if self.hit.is_empty() || self.plain => Err(format!("{what}: {e}, {:?}", self.hit)),
            _ => Ok(()),
        }
    }

    /// Makes a file durable after the error, unless its directory is hit.
    pub(super) fn witness(&self, session: &mut Session) -> Result<bool, String> {
        let fs = session.fs.clone();
        if self.hit.has(fs.root()) {
            return Ok(false);
        }
        let new = NewFile { kind: FileKind::Regular, perm: 0o600, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let failed = |e| format!("a new file is not made durable: {e}");
        let attr = fs.create(fs.root(), WITNESS, &new).map_err(failed)?;
        fs.write(attr.ino, 0, &[7; PAGE as usize]).map_err(failed)?;
        fs.fsync(attr.ino, false).map_err(failed)?;
        fs.release(attr.ino, 1);
        Ok(true)
    }

    /// What is not hit is as it should be; what is hit is that or an error, page by page.
    pub(super) fn judge(&self, fs: &dyn FileSystem, model: &Model, medium: bool) -> Result<(), String> {
        for (id, inode) in model.inodes().filter(|(_, inode)| inode.nlink > 0) {
            if self.hit.all || self.hit.inos.contains(&inode.ino) {
                continue;
            }
            let path = model.path_of(id);
            let mut named = id == ROOT;
            for &(dir, ref name) in model.names_of(id) {
                if self.hit.has(model.inode(dir).ino) {
                    continue;
                }
                let attr =
                    fs.lookup(model.inode(dir).ino, name).map_err(|e| format!("lookup of {path}: {e}"))?;
                fs.release(attr.ino, 1);
                named = true;
                if attr.ino != inode.ino {
                    return Err(format!("{path}: inode {} instead of {}", attr.ino, inode.ino));
                }
            }
            if !named {
                continue;
            }
            match self.hit.has(inode.ino) {
                true if medium && self.went.told => {}
                true => self.judge_pages(fs, inode, &path)?,
                false => {
                    let attr = fs.getattr(inode.ino).map_err(|e| format!("getattr of {path}: {e}"))?;
                    let mut found = observe::inode(fs, &attr, &path)?;
                    if self.knows_nlink(model, id) {
                        found.nlink = attr.nlink;
                    } else {
                        found.nlink = inode.nlink;
                    }
                    if medium {
                        // A time that only memory had may be a tick older.
                        found.mtime = None;
                    }
                    compare_inode(inode, &found).map_err(|e| format!("{path}: {e}"))?;
                }
            }
        }
        Ok(())
    }

    /// Whether all directories that name an inode, or that it names, are known.
    fn knows_nlink(&self, model: &Model, id: Id) -> bool {
        let children = model.inode(id).entries.values().map(|child| model.inode(*child).ino);
        let parents = model.names_of(id).iter().map(|(dir, _)| model.inode(*dir).ino);
        children.chain(parents).all(|ino| !self.hit.has(ino))
    }

    fn judge_pages(&self, fs: &dyn FileSystem, inode: &Inode, path: &str) -> Result<(), String> {
        let size = inode.content.size();
        let found = fs.getattr(inode.ino).map_err(|e| format!("getattr of {path}: {e}"))?.size;
        if found != size {
            return Err(format!("{path}: size {found} instead of {size}"));
        }
        for index in 0..size.div_ceil(PAGE).min(4096) {
            let hit = self.hit.pages.contains(&(inode.ino, index));
            match read_page(fs, inode.ino, index, size) {
                Ok(page) if page == *inode.content.page(index) => {}
                Ok(_) if hit && (self.flipped || self.repaired) => {}
                Ok(_) => return Err(format!("{path}: page {index} has another content")),
                Err(_) if hit => {}
                Err(e) => return Err(format!("{path}: {e}")),
            }
        }
        Ok(())
    }
}

/// The names that an operation is about.
fn places(op: &Op) -> Vec<Place> {
    let of = |targets: &[Target]| {
        let named = targets.iter().filter_map(|target| match target {
            Target::Path(at) => Some(*at),
            Target::Slot(_) => None,
        });
        named.collect()
    };
    match op {
        Op::Create { at, .. } | Op::Symlink { at, .. } | Op::Unlink { at } | Op::Rmdir { at } => vec![*at],
        Op::Link { from, to } | Op::Rename { from, to, .. } => vec![*from, *to],
        Op::Open { at, .. } | Op::LinkSlot { to: at, .. } => vec![*at],
        Op::Frames { dir, .. } => [DATABASE, LOG, JOURNAL].map(|name| place(*dir, name)).to_vec(),
        Op::Fill { dir, .. } | Op::FsyncDir { dir } | Op::SyncApp { dir } => vec![place(*dir, 0)],
        Op::Copy { from, to, .. } => of(&[*from, *to]),
        Op::FsyncMany { files, .. } => of(files),
        Op::Write { file, .. }
        | Op::Patch { file, .. }
        | Op::CopyChanged { file, .. }
        | Op::Read { file, .. }
        | Op::Truncate { file, .. }
        | Op::Fallocate { file, .. }
        | Op::SetXattr { file, .. }
        | Op::RemoveXattr { file, .. }
        | Op::Chmod { file, .. }
        | Op::Chown { file, .. }
        | Op::Utimes { file, .. }
        | Op::SetFlags { file, .. }
        | Op::SetAcl { file, .. }
        | Op::AtomicStart { file }
        | Op::AtomicEnd { file, .. }
        | Op::AtomicUpdate { file, .. }
        | Op::Fsync { file, .. }
        | Op::Idle { file } => of(&[*file]),
        Op::Tmpfile { .. } | Op::Close { .. } | Op::Sync | Op::Checkpoint | Op::Background => Vec::new(),
        Op::Remount | Op::Crash => Vec::new(),
    }
}
