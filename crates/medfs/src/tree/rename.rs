//! Renaming and exchanging names.
//!
//! Invariants: a directory is never moved below itself; its entry `..` and `i_pino` name the directory it is in. All
//! conditions are checked before the first change; where a later step fails, the earlier ones are undone.
//! Locks: `renames` while two directories are involved, so that which is above which stays as it is; then the two
//! directories, the one above first, else by number; then the inodes named, by number.
//! Kernel counterpart: `f2fs_rename2`.

use crate::error::{Posix, Result};
use crate::fs::Fs;
use crate::map::inode::{Inode, InodeState, set_ctime, set_name};
use crate::map::refs::Attempt;
use crate::profile::file_class;
use crate::tree::dir::{Found, Search};
use crate::tree::name_journal::Move;
use crate::tree::namei::{LINK_MAX, StateGuard, add_links, check_new_name};
use crate::types::{NewFile, RenameFlags};
use medfs_format::node::{Advise, FileKind, RawInode};
use medfs_format::{FormatError, Ino, Structure};
use medfs_store::Dirty;
use std::sync::Arc;

/// A directory with the name in it, on one side of a rename.
struct Side<'a> {
    dir: Arc<Inode>,
    name: &'a [u8],
}

/// The two directories, locked.
struct Pair<'a> {
    old: StateGuard<'a>,
    /// `None` where it is the same directory.
    new: Option<StateGuard<'a>>,
}

impl Pair<'_> {
    fn source(&mut self) -> &mut InodeState {
        &mut self.old
    }
    fn target(&mut self) -> &mut InodeState {
        self.new.as_deref_mut().unwrap_or(&mut self.old)
    }
}

/// Whether an inode, with one link, says that this is its name, and has said so since before the last checkpoint.
fn names_rightly(r: &RawInode, parent: Ino, name: &[u8]) -> bool {
    r.i_pino.get() == parent && file_class::is_named(r, name) && !r.advise().contains(Advise::LOST_PINO)
}

/// Locks of the inodes named: the one renamed, and the one that has the new name.
struct Named<'a> {
    old: StateGuard<'a>,
    new: Option<StateGuard<'a>>,
}

fn lock_named<'a>(old: &'a Inode, new: Option<&'a Inode>) -> Named<'a> {
    match new {
        Some(new) if new.ino < old.ino => {
            let new = new.lock.write();
            Named { old: old.lock.write(), new: Some(new) }
        }
        _ => Named { old: old.lock.write(), new: new.map(|i| i.lock.write()) },
    }
}

impl Fs {
    /// Renames; see [`crate::Volume::rename`].
    pub(crate) fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        self.with_unshared(|| self.try_rename(parent, name, new_parent, new_name, flags))
    }

    /// Renames. [`Attempt::Shared`] (nothing changed) of an inode that would lose its last name where other files must be made whole first,
    /// so that none is made from a file that a mount would free.
    fn try_rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<Attempt<()>> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        if !RenameFlags::all().contains(flags) || (exchange && flags != RenameFlags::EXCHANGE) {
            return Err(Posix::InvalidArgument.into());
        }
        check_new_name(name, Posix::Busy)?;
        check_new_name(
            new_name,
            if flags.contains(RenameFlags::NOREPLACE) { Posix::Exists } else { Posix::Busy },
        )?;
        let op = self.begin()?;
        let two = parent != new_parent;
        let renames = two.then(|| self.renames.lock());
        let old = Side { dir: self.directory(parent)?, name };
        let new = Side { dir: self.directory(new_parent)?, name: new_name };
        let (above_old, above_new) = if two {
            (self.ancestors(&old.dir)?, self.ancestors(&new.dir)?)
        } else {
            (vec![parent], vec![parent])
        };
        let mut dirs = if !two {
            Pair { old: old.dir.lock.write(), new: None }
        } else if above_new.contains(&parent) || (!above_old.contains(&new_parent) && parent < new_parent) {
            let first = old.dir.lock.write();
            Pair { old: first, new: Some(new.dir.lock.write()) }
        } else {
            let first = new.dir.lock.write();
            Pair { old: old.dir.lock.write(), new: Some(first) }
        };
        self.check_can_remove(&old.dir, dirs.source())?;
        self.check_can_add(&new.dir, dirs.target())?;
        let found = self.find_entry(&old.dir, dirs.source(), name)?.ok_or(Posix::NotFound)?;
        let search = self.search(&new.dir, dirs.target(), new_name)?;
        match search.found {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Posix::Exists.into()),
            Some(replaced) if replaced.ino == found.ino => return Ok(Attempt::Done(())),
            None if exchange => return Err(Posix::NotFound.into()),
            _ => {}
        }
        // These inodes are locked already, as directories of the rename, or must not be, as they are above them.
        if above_new.contains(&found.ino) {
            return Err(Posix::InvalidArgument.into());
        }
        if search.found.is_some_and(|f| above_old.contains(&f.ino)) {
            return Err(if exchange { Posix::InvalidArgument } else { Posix::NotEmpty }.into());
        }
        let inode = self.named_inode(&old.dir, &found)?;
        let replaced = search.found.map(|f| self.named_inode(&new.dir, &f)).transpose()?;
        let mut named = lock_named(&inode, replaced.as_deref());
        self.check_linked(&old.dir, &inode)?;
        self.check_can_relink(&inode)?;
        self.check_project(&new.dir, &inode)?;
        if let Some(replaced) = &replaced {
            self.check_can_remove(&new.dir, dirs.target())?;
            self.check_linked(&new.dir, replaced)?;
            self.check_can_relink(replaced)?;
        }
        if let (true, Some(other), Some(there)) = (exchange, &replaced, search.found) {
            self.check_project(&old.dir, other)?;
            self.exchange(&old, &new, &mut dirs, [(&inode, found), (other, there)], &mut named)?;
            return Ok(Attempt::Done(()));
        }
        if let (Some(replaced), Some(state)) = (&replaced, &named.new) {
            match (inode.is_dir(), replaced.is_dir()) {
                (true, false) => return Err(Posix::NotDirectory.into()),
                (false, true) => return Err(Posix::IsDirectory.into()),
                (true, true) if !self.is_empty_dir(replaced, state)? => return Err(Posix::NotEmpty.into()),
                _ => {}
            }
        } else if inode.is_dir() && two && new.dir.nlink() == LINK_MAX {
            return Err(Posix::TooManyLinks.into());
        }
        if let Some(replaced) =
            replaced.as_ref().filter(|r| r.nlink() == 1 && self.dependents.others_need_any(r.ino))
            && !(self.may_keep(replaced, &inode)? && self.keep_base(replaced)?)
        {
            return Ok(Attempt::Shared(replaced.ino, 0..u64::MAX));
        }
        let whiteout = flags.contains(RenameFlags::WHITEOUT);
        // What the inode says of its name, before that changes.
        let rightly = inode.nlink() == 1 && inode.raw(|r| names_rightly(r, parent, name));
        let kept = replaced.as_deref().filter(|r| self.is_kept(r.ino));
        let mut step = || self.move_name(&old, &new, &mut dirs, &inode, &mut named.old, &search, whiteout);
        let moved = match replaced.as_deref().filter(|_| kept.is_none()) {
            Some(replaced) => self.take_name(replaced, step),
            None => step(),
        };
        if let (Err(_), Some(kept)) = (&moved, kept) {
            self.forget_base_name(kept, new.dir.ino, new.name)?;
        }
        moved?;
        if let Some(replaced) = replaced.as_ref().filter(|_| kept.is_none()) {
            self.drop_name(replaced);
            self.since.note_moved_name(new.dir.ino, new.name, replaced);
        }
        self.since.note_moved_name(old.dir.ino, old.name, &inode);
        let gone = |r: &Inode| r.kind() == FileKind::Regular && (r.nlink() == 0 || self.is_kept(r.ino));
        if !whiteout && inode.kind() == FileKind::Regular && replaced.as_deref().is_none_or(gone) {
            self.explain_rename(&old, &new, &inode, replaced.as_ref(), rightly);
        }
        if inode.is_dir() {
            self.since.note_changed_dir(inode.ino);
            let (gone, come) = (-1, i32::from(replaced.is_none()));
            self.edit(&old.dir, Dirty::Full, |r| add_links(r, gone));
            self.edit(&new.dir, Dirty::Full, |r| add_links(r, come));
        }
        drop((named, dirs, renames, op));
        if let Some(replaced) = &replaced {
            self.free_if_unused(replaced);
        }
        Ok(Attempt::Done(()))
    }

    /// Lets the directories know that nothing happened to them but this rename of a regular file.
    fn explain_rename(
        &self,
        old: &Side<'_>,
        new: &Side<'_>,
        inode: &Inode,
        replaced: Option<&Arc<Inode>>,
        rightly: bool,
    ) {
        // In other modes nobody makes a file durable whose former name another file takes.
        if self.is_delta_volume() && self.since.ordered {
            self.dir_log.moved(&Move {
                ino: inode.ino,
                from: (old.dir.ino, old.name),
                to: (new.dir.ino, new.name),
                durable: self.may_be_durable(inode),
                rightly,
                over_durable: replaced.and_then(|replaced| self.durable_loser(replaced)),
            });
        }
    }

    /// The directory and all above it, up to the root.
    fn ancestors(&self, dir: &Arc<Inode>) -> Result<Vec<Ino>> {
        let most = self.space.counts().valid_inodes;
        let mut chain = vec![dir.ino];
        let mut dir = dir.clone();
        while dir.ino != self.geo.root_ino {
            let parent = {
                let state = dir.lock.read();
                dir.check_alive(&state)?;
                if dir.nlink() == 0 {
                    break; // removed, but held
                }
                self.find_parent(&dir, &state)?
            };
            if chain.len() > most as usize {
                return Err(
                    FormatError::corrupt(Structure::Dentry, dir.ino, "ino", ".. leads in a circle").into()
                );
            }
            chain.push(parent.ino);
            dir = self.directory(parent.ino)?;
        }
        Ok(chain)
    }

    /// Gives an inode its new name, which may be another inode's so far, and takes the old one.
    #[allow(clippy::too_many_arguments)]
    fn move_name(
        &self,
        old: &Side<'_>,
        new: &Side<'_>,
        dirs: &mut Pair<'_>,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        search: &Search,
        whiteout: bool,
    ) -> Result<()> {
        let kind = inode.kind();
        let up = match kind {
            FileKind::Directory if dirs.new.is_some() => Some(self.find_parent(inode, state)?),
            _ => None,
        };
        let white = NewFile { kind: FileKind::CharDevice, perm: 0, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let whiteout = match whiteout {
            true => Some(self.new_inode(&old.dir, Some(old.name), &white, None)?),
            false => None,
        };
        let undo_whiteout = || {
            if let Some(whiteout) = &whiteout {
                self.discard(whiteout);
            }
        };
        let added = match &search.found {
            Some(there) => self.set_target(&new.dir, dirs.target(), there, inode.ino, kind),
            None => self.add_name(&new.dir, dirs.target(), search, new.name, inode.ino, kind),
        };
        if let Err(e) = added {
            undo_whiteout();
            return Err(e);
        }
        let moved = self.take_old_name(old, dirs.source(), whiteout.as_deref()).and_then(|()| match &up {
            Some(up) => self.set_target(inode, state, up, new.dir.ino, FileKind::Directory),
            None => Ok(()),
        });
        if let Err(e) = moved {
            self.undo_move(old, new, dirs, inode, search.found);
            undo_whiteout();
            return Err(e);
        }
        let now = self.clock.now();
        self.edit(inode, Dirty::Full, |r| {
            set_name(r, new.dir.ino, new.name);
            if kind != FileKind::Directory || whiteout.is_some() {
                r.i_advise |= Advise::LOST_PINO.bits();
            }
            set_ctime(r, now);
        });
        self.touch_modified(&old.dir);
        self.touch_modified(&new.dir);
        Ok(())
    }

    /// Removes the old name or points it to the whiteout. It is looked up again, as adding the new one may have moved it.
    fn take_old_name(&self, old: &Side<'_>, state: &mut InodeState, whiteout: Option<&Inode>) -> Result<()> {
        let found = self.find_entry(&old.dir, state, old.name)?.ok_or(Posix::NotFound)?;
        match whiteout {
            Some(whiteout) => self.set_target(&old.dir, state, &found, whiteout.ino, FileKind::CharDevice),
            None => self.remove_name(&old.dir, state, &found),
        }
    }

    /// Puts both names back as well as it goes after the device failed in the middle.
    fn undo_move(
        &self,
        old: &Side<'_>,
        new: &Side<'_>,
        dirs: &mut Pair<'_>,
        inode: &Inode,
        there: Option<Found>,
    ) {
        let kind = inode.kind();
        let undo = || -> Result<()> {
            match (self.find_entry(&new.dir, dirs.target(), new.name)?, there) {
                (Some(now), Some(before)) => {
                    let kind = self.inode(before.ino)?.kind();
                    self.set_target(&new.dir, dirs.target(), &now, before.ino, kind)?;
                }
                (Some(now), None) => self.remove_name(&new.dir, dirs.target(), &now)?,
                (None, _) => {}
            }
            let search = self.search(&old.dir, dirs.source(), old.name)?;
            match search.found {
                Some(found) => self.set_target(&old.dir, dirs.source(), &found, inode.ino, kind),
                None => self.add_name(&old.dir, dirs.source(), &search, old.name, inode.ino, kind),
            }
        };
        if let Err(error) = { undo }() {
            tracing::error!(ino = inode.ino, %error, "a rename that failed could not be undone");
        }
    }

    /// Exchanges two names.
    fn exchange(
        &self,
        old: &Side<'_>,
        new: &Side<'_>,
        dirs: &mut Pair<'_>,
        [(inode, found), (other, there)]: [(&Arc<Inode>, Found); 2],
        named: &mut Named<'_>,
    ) -> Result<()> {
        let two = dirs.new.is_some();
        let (kind, other_kind) = (inode.kind(), other.kind());
        let (moves, other_moves) = (two && inode.is_dir(), two && other.is_dir());
        let other_state = named.new.as_deref_mut().expect("an exchange has two inodes");
        let up = if moves { Some(self.find_parent(inode, &named.old)?) } else { None };
        let other_up = if other_moves { Some(self.find_parent(other, other_state)?) } else { None };
        let links = i32::from(moves) - i32::from(other_moves);
        if (links > 0 && new.dir.nlink() == LINK_MAX) || (links < 0 && old.dir.nlink() == LINK_MAX) {
            return Err(Posix::TooManyLinks.into());
        }
        // The steps in order, each with its undoing; every page involved has just been read.
        let mut forward = |ends: [Ino; 2], kinds: [FileKind; 2], parents: [Ino; 2]| -> Result<()> {
            self.set_target(&new.dir, dirs.target(), &there, ends[0], kinds[0])?;
            self.set_target(&old.dir, dirs.source(), &found, ends[1], kinds[1])?;
            if let Some(up) = &up {
                self.set_target(inode, &mut named.old, up, parents[0], FileKind::Directory)?;
            }
            if let Some(up) = &other_up {
                self.set_target(other, other_state, up, parents[1], FileKind::Directory)?;
            }
            Ok(())
        };
        if let Err(e) = forward([inode.ino, other.ino], [kind, other_kind], [new.dir.ino, old.dir.ino]) {
            if let Err(error) =
                forward([other.ino, inode.ino], [other_kind, kind], [old.dir.ino, new.dir.ino])
            {
                tracing::error!(ino = inode.ino, %error, "an exchange that failed could not be undone");
            }
            return Err(e);
        }
        let now = self.clock.now();
        for (inode, side) in [(inode, new), (other, old)] {
            self.edit(inode, Dirty::Full, |r| {
                set_name(r, side.dir.ino, side.name);
                if FileKind::from_mode(r.i_mode.get()) != Some(FileKind::Directory) {
                    r.i_advise |= Advise::LOST_PINO.bits();
                }
                set_ctime(r, now);
            });
        }
        if links != 0 {
            self.edit(&new.dir, Dirty::Full, |r| add_links(r, links));
            self.edit(&old.dir, Dirty::Full, |r| add_links(r, -links));
        }
        for (side, gone) in [(old, inode), (new, other)] {
            self.touch_modified(&side.dir);
            self.since.note_moved_name(side.dir.ino, side.name, gone);
        }
        for inode in [inode, other].into_iter().filter(|i| i.is_dir()) {
            self.since.note_changed_dir(inode.ino);
        }
        Ok(())
    }
}
