//! Operations on names, and on files that are held without one.

use super::compare::compare_attr;
use super::{Applied, Fault, NOTHING, Session, refused, same};
use crate::model::{Id, Model, ROOT};
use crate::ops::{Op, Place, place};
use medfs::{Attr, FileKind, NewFile, Posix, RenameFlags, Result as FsResult};

/// Operations on names.
pub(super) struct Names<'s>(pub(super) &'s mut Session);

impl Names<'_> {
    pub(super) fn create(&mut self, at: Place, kind: FileKind, perm: u16) -> Applied {
        let rdev = if matches!(kind, FileKind::CharDevice | FileKind::BlockDevice) { 0x1_0305 } else { 0 };
        let new = NewFile { kind, perm, umask: 0, uid: 1000, gid: 100, rdev };
        let Some(dir) = self.0.dir(at.dir) else { return Ok(None) };
        let actual = self.0.fs.create(self.0.ino(dir), &at.name(), &new);
        self.created(at, actual, |model, dir, name| model.create(dir, name, &new))?;
        NOTHING
    }

    pub(super) fn symlink(&mut self, at: Place, len: u16) -> Applied {
        let target: Vec<u8> = (0..len.max(1)).map(|i| b'a' + (i % 26) as u8).collect();
        let Some(dir) = self.0.dir(at.dir) else { return Ok(None) };
        let actual = self.0.fs.symlink(self.0.ino(dir), &at.name(), &target, 0, 0);
        self.created(at, actual, |model, dir, name| model.symlink(dir, name, &target))?;
        NOTHING
    }

    pub(super) fn link(&mut self, from: Place, to: Place) -> Applied {
        let Some(id) = self.0.at(from) else { return Ok(None) };
        let Some(dir) = self.0.dir(to.dir) else { return Ok(None) };
        let actual = self.0.fs.link(self.0.ino(id), self.0.ino(dir), &to.name());
        self.created(to, actual, |model, dir, name| model.link(id, dir, name).map(|()| id))?;
        NOTHING
    }

    pub(super) fn unlink(&mut self, at: Place) -> Applied {
        let Some(dir) = self.0.dir(at.dir) else { return Ok(None) };
        let actual = self.0.fs.unlink(self.0.ino(dir), &at.name());
        same(actual, self.0.model.unlink(dir, &at.name()))?;
        self.0.compare_entry(at)?;
        NOTHING
    }

    pub(super) fn rmdir(&mut self, at: Place) -> Applied {
        let Some(dir) = self.0.dir(at.dir) else { return Ok(None) };
        let actual = self.0.fs.rmdir(self.0.ino(dir), &at.name());
        same(actual, self.0.model.rmdir(dir, &at.name()))?;
        self.0.compare_entry(at)?;
        NOTHING
    }

    pub(super) fn rename(&mut self, from: Place, to: Place, flags: RenameFlags) -> Applied {
        let (Some(dir), Some(to_dir)) = (self.0.dir(from.dir), self.0.dir(to.dir)) else { return Ok(None) };
        // The kernel refuses to move a directory below itself before a file system sees it.
        let below = |id: Option<Id>, dir| {
            id.is_some_and(|id| self.0.model.inode(id).is_dir() && self.0.model.is_below(dir, id))
        };
        if below(self.0.at(from), to_dir) || below(self.0.at(to), dir) {
            return Ok(None);
        }
        let (ino, to_ino) = (self.0.ino(dir), self.0.ino(to_dir));
        let actual = self.0.fs.rename(ino, &from.name(), to_ino, &to.name(), flags);
        let expected = self.0.model.rename(dir, &from.name(), to_dir, &to.name(), flags);
        if same(actual, expected)?.is_some() {
            // A whiteout is new: learn its number.
            if let Some(id) = self.0.at(from).filter(|id| self.0.model.inode(*id).ino == 0) {
                let attr = self.0.fs.lookup(ino, &from.name()).map_err(refused("lookup of the whiteout"))?;
                self.0.fs.release(attr.ino, 1);
                self.0.model.inode_mut(id).ino = attr.ino;
            }
        }
        self.0.compare_entry(from)?;
        self.0.compare_entry(to)?;
        NOTHING
    }

    pub(super) fn fill(&mut self, dir: u8, first: u8, count: u8, remove: bool) -> Applied {
        if self.0.dir(dir).is_none() {
            return Ok(None);
        }
        for name in first..first.saturating_add(count) {
            let at = place(dir, name);
            let op = match remove {
                true => Op::Unlink { at },
                false => Op::Create { at, kind: FileKind::Regular, perm: 0o600 },
            };
            self.0.apply(&op).map_err(|e| format!("filler {name}: {e}"))?;
        }
        NOTHING
    }

    pub(super) fn open(&mut self, at: Place, slot: u8) -> Applied {
        // Not devices: where one has lost its name, fsck.f2fs takes its number for the address of a block.
        let device = |kind| matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
        let Some(id) = self.0.at(at).filter(|id| !device(self.0.model.inode(*id).kind)) else {
            return Ok(None);
        };
        self.0.fs.hold(self.0.ino(id), 1).map_err(refused("hold"))?;
        self.0.model.hold(id);
        self.occupy(slot, id);
        NOTHING
    }

    pub(super) fn tmpfile(&mut self, slot: u8) -> Applied {
        let new = NewFile { kind: FileKind::Regular, perm: 0o640, umask: 0, uid: 5, gid: 6, rdev: 0 };
        let actual = self.0.fs.tmpfile(self.0.fs.root(), &new);
        let expected = self.0.model.tmpfile(ROOT, &new);
        let Some((attr, id)) = same(actual, expected)? else { return NOTHING };
        self.0.model.inode_mut(id).ino = attr.ino;
        self.occupy(slot, id);
        self.0.compare_attr(id)?;
        NOTHING
    }

    pub(super) fn link_slot(&mut self, slot: u8, to: Place) -> Applied {
        let Some(id) = self.0.slots[slot as usize % self.0.slots.len()] else { return Ok(None) };
        let Some(dir) = self.0.dir(to.dir) else { return Ok(None) };
        // What had names and lost them all cannot be linked again (the kernel refuses); a tmpfile can.
        if self.0.model.inode(id).nlink == 0 && !self.0.model.inode(id).nameless {
            return Ok(None);
        }
        let actual = self.0.fs.link(self.0.ino(id), self.0.ino(dir), &to.name());
        self.created(to, actual, |model, dir, name| model.link(id, dir, name).map(|()| id))?;
        NOTHING
    }

    pub(super) fn close(&mut self, slot: u8) -> Applied {
        if let Some(id) = self.0.slots[slot as usize % self.0.slots.len()].take() {
            self.0.fs.release(self.0.ino(id), 1);
            self.0.model.release(id);
        }
        NOTHING
    }

    fn occupy(&mut self, slot: u8, id: Id) {
        let slot = slot as usize % self.0.slots.len();
        if let Some(before) = self.0.slots[slot].replace(id) {
            self.0.fs.release(self.0.ino(before), 1);
            self.0.model.release(before);
        }
    }

    /// Finishes an operation that made an entry.
    fn created(
        &mut self,
        at: Place,
        actual: FsResult<Attr>,
        expected: impl FnOnce(&mut Model, Id, &[u8]) -> Result<Id, Posix>,
    ) -> Result<(), Fault> {
        let dir = self.0.dir(at.dir).expect("resolved by the caller");
        let expected = expected(&mut self.0.model, dir, &at.name());
        if let Some((attr, id)) = same(actual, expected)? {
            self.0.fs.release(attr.ino, 1);
            let inode = self.0.model.inode_mut(id);
            if inode.ino == 0 {
                inode.ino = attr.ino;
            }
            compare_attr(self.0.model.inode(id), &attr)?;
            self.0.compare_attr(dir)?;
        }
        Ok(self.0.compare_entry(at)?)
    }
}
