//! Names: looking them up, linking and unlinking, and the rules all changes of a directory share.
//!
//! Invariants: an operation that fails leaves names, link counts and inodes as they were. Whoever gets [`Attr`] from
//! here got one hold with it, taken while the name was locked, so that the inode cannot go in between.
//! Locks: a directory's lock, then that of the inode named. An operation that removed a last name gives all locks
//! back before the inode is freed.
//! Kernel counterpart: `namei.c`. Making inodes is in [`crate::tree::create`], renaming in [`crate::tree::rename`].

use crate::dir::Found;
use crate::dir::{Dir, directory};
use crate::error::{Error, Posix, Result};
use crate::map::effects::Effect;
use crate::map::inode::{Inode, InodeState, set_ctime};
use crate::map::refs::Attempt;
use crate::tree::Tree;
use crate::types::{Attr, DirEntry};
use medfs_format::node::{Advise, FileFlags, FileKind, Inline, NAME_LEN, RawInode};
use medfs_format::{BLOCK_SIZE, FormatError, Ino, Structure};
use medfs_store::Dirty;
use medfs_sync::RwLockWriteGuard;
use std::sync::Arc;

/// Highest link count.
pub(crate) const LINK_MAX: u32 = u32::MAX;

/// Checks a name that is to be looked up.
fn check_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_LEN {
        return Err(Posix::NameTooLong.into());
    }
    if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
        return Err(Posix::InvalidArgument.into());
    }
    Ok(())
}

/// Checks a name that is to be added or removed; `dots` is the error for `.` and `..`.
pub(crate) fn check_new_name(name: &[u8], dots: Posix) -> Result<()> {
    check_name(name)?;
    if name == b"." || name == b".." { Err(dots.into()) } else { Ok(()) }
}

/// Adds to a link count.
pub(crate) fn add_links(r: &mut RawInode, delta: i32) {
    r.i_links = r.i_links.get().saturating_add_signed(delta).into();
}

impl Tree {
    /// Checks that names may be added to a directory.
    pub(crate) fn check_can_add(&self, dir: &Inode, state: &InodeState) -> Result<()> {
        dir.check_alive(state)?;
        if dir.nlink() == 0 {
            return Err(Posix::NotFound.into());
        }
        dir.check_flags(FileFlags::IMMUTABLE)
    }

    /// Checks that names may be removed from a directory.
    pub(crate) fn check_can_remove(&self, dir: &Inode, state: &InodeState) -> Result<()> {
        self.check_can_add(dir, state)?;
        dir.check_flags(FileFlags::APPEND)
    }

    /// Checks that an inode's names may change.
    pub(crate) fn check_can_relink(&self, inode: &Inode) -> Result<()> {
        inode.check_flags(FileFlags::IMMUTABLE | FileFlags::APPEND)
    }

    /// Checks that an inode may get a name in a directory that hands its project down.
    pub(crate) fn check_project(&self, dir: &Inode, inode: &Inode) -> Result<()> {
        let project = |i: &Inode| self.attr(i).project;
        if dir.has_flags(FileFlags::PROJINHERIT) && project(dir) != project(inode) {
            return Err(Posix::CrossDevice.into());
        }
        Ok(())
    }

    /// The inode that an entry names.
    pub(crate) fn named_inode(&self, dir: &Inode, found: &Found) -> Result<Arc<Inode>> {
        let wrong = |what: &str| {
            FormatError::corrupt(Structure::Dentry, dir.ino, "ino", format!("{}, {what}", found.ino)).into()
        };
        if found.ino == dir.ino {
            return Err(wrong("the directory itself"));
        }
        self.inode(found.ino).map_err(|e| match e {
            Error::Posix(Posix::Stale) => wrong("which is not an inode"),
            e => e,
        })
    }

    /// Looks a name up; takes a hold. `.` is looked up in any inode, and is that inode.
    pub(crate) fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_name(name)?;
        if name == b"." {
            return self.lookup_itself(parent);
        }
        let dir = directory(self, parent)?;
        let state = dir.lock.read();
        dir.check_alive(&state)?;
        let found = Dir::of(self, &dir).find(&state, name)?.ok_or(Posix::NotFound)?;
        if name == b".." && found.ino == dir.ino {
            return Ok(self.attr_held(&dir)); // the root
        }
        let inode = self.named_inode(&dir, &found)?;
        let attr = self.attr_held(&inode);
        if inode.kind() != FileKind::Regular {
            return Ok(attr);
        }
        // It is held: what writes to the file need not keep others out of the directory.
        drop(state);
        let seen = inode.lock.read().pages.size_seen(attr.size);
        Ok(Attr { size: seen, ..attr })
    }

    /// The inode of a number, of any kind, where it has a name that is seen: what file handles are opened by.
    /// Takes a hold.
    fn lookup_itself(&self, ino: Ino) -> Result<Attr> {
        let inode = self.inode(ino)?;
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        // While its lock is held its last name is not removed.
        if self.attr(&inode).nlink == 0 || self.hiding().contains(ino) {
            return Err(Posix::Stale.into());
        }
        self.inodes.hold(ino, 1);
        Ok(self.attr_seen(&inode, &state))
    }

    /// Lists a directory from a position on; see [`crate::Files::readdir`].
    pub(crate) fn readdir(
        &self,
        ino: Ino,
        position: u64,
        emit: &mut dyn FnMut(DirEntry) -> bool,
    ) -> Result<()> {
        let dir = self.inode(ino)?;
        if !dir.is_dir() {
            return Err(Posix::NotDirectory.into());
        }
        let hiding = self.hiding();
        Dir::of(self, &dir).list(position, &mut |entry| hiding.is_name(ino, &entry.name) || emit(entry))
    }

    /// Adds a name to a file; takes a hold.
    pub(crate) fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Attr> {
        check_new_name(name, Posix::Exists)?;
        let _op = self.begin()?;
        let (dir, inode) = (directory(self, parent)?, self.inode(ino)?);
        if inode.is_dir() {
            return Err(Posix::NotPermitted.into());
        }
        let mut dir_state = dir.lock.write();
        let state = inode.lock.write();
        inode.check_alive(&state)?;
        self.check_can_add(&dir, &dir_state)?;
        self.check_can_relink(&inode)?;
        self.check_project(&dir, &inode)?;
        let search = Dir::of(self, &dir).search(&dir_state, name)?;
        if search.found.is_some() {
            return Err(Posix::Exists.into());
        }
        let links = inode.nlink();
        if links == LINK_MAX {
            return Err(Posix::TooManyLinks.into());
        }
        self.changing(&dir).add(&mut dir_state, &search, name, ino, inode.kind())?;
        let now = self.clock.now();
        self.edit(&inode, Dirty::Full, |r| {
            add_links(r, 1);
            self.set_name(ino, r, dir.ino, name);
            r.i_advise |= Advise::LOST_PINO.bits();
            set_ctime(r, now);
        });
        self.xref.named(&inode, &dir, &dir_state);
        self.since.renamed_files.lock().insert(ino);
        if links == 0 {
            self.orphans.remove(ino);
        }
        self.touch_modified(&dir);
        self.effects.note(Effect::Link { ino, parent, name });
        self.inodes.hold(ino, 1);
        Ok(self.attr_seen(&inode, &state))
    }

    /// Removes a name of something that is no directory.
    pub(crate) fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        check_new_name(name, Posix::IsDirectory)?;
        self.remove(parent, name, false)
    }

    /// Removes an empty directory.
    pub(crate) fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        check_new_name(name, if name == b"." { Posix::InvalidArgument } else { Posix::NotEmpty })?;
        self.remove(parent, name, true)
    }

    fn remove(&self, parent: Ino, name: &[u8], is_dir: bool) -> Result<()> {
        self.with_unshared(|| self.try_remove(parent, name, is_dir))
    }

    /// Removes a name. [`Attempt::Shared`] (nothing changed) where other files must be made whole first, so
    /// that none is made from a file that a mount would free.
    fn try_remove(&self, parent: Ino, name: &[u8], is_dir: bool) -> Result<Attempt<()>> {
        let op = self.begin()?;
        let dir = directory(self, parent)?;
        let mut dir_state = dir.lock.write();
        self.check_can_remove(&dir, &dir_state)?;
        let found = Dir::of(self, &dir).find(&dir_state, name)?.ok_or(Posix::NotFound)?;
        let inode = self.named_inode(&dir, &found)?;
        let state = inode.lock.write();
        self.check_can_relink(&inode)?;
        match (is_dir, inode.is_dir()) {
            (true, false) => return Err(Posix::NotDirectory.into()),
            (false, true) => return Err(Posix::IsDirectory.into()),
            (true, true) if !Dir::of(self, &inode).is_empty(&state)? => return Err(Posix::NotEmpty.into()),
            _ => {}
        }
        self.check_linked(&dir, &inode)?;
        if inode.nlink() == 1 && self.refs.others_need_any(inode.ino) {
            return Ok(Attempt::Shared(inode.ino, 0..u64::MAX));
        }
        self.take_name(&inode, || self.changing(&dir).remove(&mut dir_state, &found))?;
        self.drop_name(&inode);
        if is_dir {
            self.edit(&dir, Dirty::Full, |r| add_links(r, -1));
        }
        self.touch_modified(&dir);
        self.note_moved_name(dir.ino, name, &inode);
        if inode.nlink() == 0 && !is_dir {
            self.name_journal.lost(dir.ino, name, || self.durable_if_unlinked(&inode));
        }
        self.effects.note(Effect::Remove { ino: inode.ino, parent, name, directory: is_dir });
        drop((state, dir_state, op));
        self.free_if_unused(&inode);
        Ok(Attempt::Done(()))
    }

    /// Notes that a name no longer leads to an inode.
    pub(crate) fn note_moved_name(&self, dir: Ino, name: &[u8], inode: &Inode) {
        let (since, directory) = (&self.since, inode.is_dir());
        if directory {
            since.left_by_dirs.lock().insert((dir, name.to_vec()));
        } else {
            since.renamed_files.lock().insert(inode.ino);
        }
        if since.ordered && (directory || inode.nlink() > 0) {
            since.moved_names.lock().insert((dir, name.to_vec()), inode.ino);
        }
    }

    /// Checks that an inode that a name leads to has a link to give away.
    pub(crate) fn check_linked(&self, dir: &Inode, inode: &Inode) -> Result<()> {
        if inode.nlink() == 0 {
            let what = format!("{}, which has no links", inode.ino);
            return Err(FormatError::corrupt(Structure::Dentry, dir.ino, "ino", what).into());
        }
        Ok(())
    }

    /// Takes away the link of a name that is gone (a directory's own `.` with it). The inode's lock and the
    /// operation lock are held; [`Tree::take_name`] has made the inode an orphan where it was the last: there
    /// is no moment at which a reader finds neither.
    pub(crate) fn drop_name(&self, inode: &Inode) {
        let directory = inode.is_dir();
        let now = self.clock.now();
        self.edit(inode, Dirty::Full, |r| {
            if directory {
                r.i_links = 0.into();
                r.i_size = 0.into();
            } else {
                add_links(r, -1);
            }
            set_ctime(r, now);
        });
    }

    /// The target of a symbolic link.
    pub(crate) fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        let inode = self.inode(ino)?;
        if inode.kind() != FileKind::Symlink {
            return Err(Posix::InvalidArgument.into());
        }
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        self.check_readable_content(&inode)?;
        let size = usize::try_from(inode.size()).unwrap_or(usize::MAX);
        if size > BLOCK_SIZE {
            return Err(FormatError::corrupt(Structure::Symlink, ino, "i_size", size).into());
        }
        let mut target = if inode.raw(|r| r.inline().contains(Inline::DATA)) {
            let range = self.slots(&inode).inline_content_range();
            inode.node.read(|d| d.block.0[range].to_vec())
        } else {
            self.read_page(&inode, &state, 0)?.0.to_vec()
        };
        target.truncate(size);
        if let Some(end) = target.iter().position(|&b| b == 0) {
            target.truncate(end);
        }
        if target.is_empty() { Err(Posix::NotFound.into()) } else { Ok(target) }
    }
}

/// An inode's exclusive lock.
pub(crate) type StateGuard<'a> = RwLockWriteGuard<'a, InodeState>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let errno = |name: &[u8]| check_new_name(name, Posix::Busy).map_err(|e| e.errno());
        assert_eq!(errno(b"a"), Ok(()));
        assert_eq!(errno(&[b'a'; 255]), Ok(()));
        assert_eq!(errno(&[b'a'; 256]), Err(36));
        for bad in [&b""[..], b"a/b", b"a\0"] {
            assert_eq!(errno(bad), Err(22), "{bad:?}");
        }
        assert_eq!((errno(b"."), errno(b".."), errno(b"...")), (Err(16), Err(16), Ok(())));
    }
}
