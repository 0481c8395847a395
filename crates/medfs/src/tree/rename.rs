//! Renaming and exchanging names.
//!
//! Invariants: a directory is never moved below itself; its entry `..` and `i_pino` name the directory it is in. All
//! conditions are checked before the first change; where a later step fails, the earlier ones are undone.
//! Locks: `renames` while two directories are involved, so that which is above which stays as it is; then the two
//! directories, the one above first, else by number; then the inodes named, by number.
//! Kernel counterpart: `f2fs_rename2`.

use crate::dir::{Dir, directory};
use crate::dir::{Found, Search};
use crate::error::{Posix, Result};
use crate::map::effects::{Effect, Renamed};
use crate::map::inode::{Inode, InodeState, note_renamed, set_ctime};
use crate::map::refs::Attempt;
use crate::tree::Tree;
use crate::tree::name_journal::{Move, names_rightly};
use crate::tree::namei::{LINK_MAX, StateGuard, add_links, check_new_name};
use crate::types::{NewFile, RenameFlags};
use medfs_format::node::{Advise, FileKind};
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

/// The directories that are above each side, itself the first.
struct Above {
    old: Vec<Ino>,
    new: Vec<Ino>,
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

/// A rename whose directories are locked and whose inodes are known.
struct Rename<'a> {
    tree: &'a Tree,
    old: &'a Side<'a>,
    new: &'a Side<'a>,
    flags: RenameFlags,
    /// What is renamed.
    inode: &'a Arc<Inode>,
    found: Found,
    /// What has the new name.
    replaced: Option<&'a Arc<Inode>>,
    /// The new name's entry, or where it can go.
    search: &'a Search,
}

/// Checks what can be told of the request alone.
fn check_request(name: &[u8], new_name: &[u8], flags: RenameFlags) -> Result<()> {
    let exchange = flags.contains(RenameFlags::EXCHANGE);
    if !RenameFlags::all().contains(flags) || (exchange && flags != RenameFlags::EXCHANGE) {
        return Err(Posix::InvalidArgument.into());
    }
    check_new_name(name, Posix::Busy)?;
    check_new_name(new_name, if flags.contains(RenameFlags::NOREPLACE) { Posix::Exists } else { Posix::Busy })
}

/// Locks both directories: the one above first, else by number.
fn lock_dirs<'a>(old: &'a Side<'_>, new: &'a Side<'_>, above: &Above) -> Pair<'a> {
    let (from, to) = (old.dir.ino, new.dir.ino);
    if from == to {
        Pair { old: old.dir.lock.write(), new: None }
    } else if above.new.contains(&from) || (!above.old.contains(&to) && from < to) {
        let first = old.dir.lock.write();
        Pair { old: first, new: Some(new.dir.lock.write()) }
    } else {
        let first = new.dir.lock.write();
        Pair { old: old.dir.lock.write(), new: Some(first) }
    }
}

impl Tree {
    /// Renames; see [`crate::Files::rename`].
    pub(crate) fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        flags: RenameFlags,
    ) -> Result<()> {
        check_request(name, new_name, flags)?;
        self.with_unshared(|| self.try_rename((parent, name), (new_parent, new_name), flags))
    }

    /// Renames. [`Attempt::Shared`] (nothing changed) of an inode that would lose its last name where other
    /// files must be made whole first, so that none is made from a file that a mount would free.
    fn try_rename(
        &self,
        (parent, name): (Ino, &[u8]),
        (new_parent, new_name): (Ino, &[u8]),
        flags: RenameFlags,
    ) -> Result<Attempt<()>> {
        let op = self.begin()?;
        let renames = (parent != new_parent).then(|| self.renames.lock());
        let old = Side { dir: directory(self, parent)?, name };
        let new = Side { dir: directory(self, new_parent)?, name: new_name };
        let above = self.above_both(&old, &new)?;
        let mut dirs = lock_dirs(&old, &new, &above);
        self.check_can_remove(&old.dir, dirs.source())?;
        self.check_can_add(&new.dir, dirs.target())?;
        let found = Dir::of(self, &old.dir).find(dirs.source(), name)?.ok_or(Posix::NotFound)?;
        let search = Dir::of(self, &new.dir).search(dirs.target(), new_name)?;
        if search.found.is_some_and(|there| there.ino == found.ino) && !flags.contains(RenameFlags::NOREPLACE)
        {
            return Ok(Attempt::Done(()));
        }
        above.check_entries(&found, search.found, flags)?;
        let inode = self.named_inode(&old.dir, &found)?;
        let replaced = search.found.map(|f| self.named_inode(&new.dir, &f)).transpose()?;
        let mut named = lock_named(&inode, replaced.as_deref());
        let rename = Rename {
            tree: self,
            old: &old,
            new: &new,
            flags,
            inode: &inode,
            found,
            replaced: replaced.as_ref(),
            search: &search,
        };
        rename.check(&mut dirs)?;
        if flags.contains(RenameFlags::EXCHANGE) {
            rename.exchange(&mut dirs, &mut named)?;
            rename.tell(dirs.source());
            return Ok(Attempt::Done(()));
        }
        rename.check_kinds(&named)?;
        if let Some(needed) = rename.needed_by_others()? {
            return Ok(Attempt::Shared(needed, 0..u64::MAX));
        }
        rename.apply(&mut dirs, &mut named)?;
        rename.tell(dirs.source());
        drop((named, dirs, renames, op));
        if let Some(replaced) = &replaced {
            self.free_if_unused(replaced);
        }
        Ok(Attempt::Done(()))
    }

    fn above_both(&self, old: &Side<'_>, new: &Side<'_>) -> Result<Above> {
        if old.dir.ino == new.dir.ino {
            return Ok(Above { old: vec![old.dir.ino], new: vec![new.dir.ino] });
        }
        Ok(Above { old: self.ancestors(&old.dir)?, new: self.ancestors(&new.dir)? })
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
                Dir::of(self, &dir).parent(&state)?
            };
            if chain.len() > most as usize {
                return Err(
                    FormatError::corrupt(Structure::Dentry, dir.ino, "ino", ".. leads in a circle").into()
                );
            }
            chain.push(parent.ino);
            dir = directory(self, parent.ino)?;
        }
        Ok(chain)
    }
}

impl Above {
    /// Checks what the entries lead to: these inodes are locked already, as directories of the rename, or
    /// must not be, as they are above them.
    fn check_entries(&self, found: &Found, there: Option<Found>, flags: RenameFlags) -> Result<()> {
        let exchange = flags.contains(RenameFlags::EXCHANGE);
        match there {
            Some(_) if flags.contains(RenameFlags::NOREPLACE) => return Err(Posix::Exists.into()),
            None if exchange => return Err(Posix::NotFound.into()),
            _ => {}
        }
        if self.new.contains(&found.ino) {
            return Err(Posix::InvalidArgument.into());
        }
        if there.is_some_and(|there| self.old.contains(&there.ino)) {
            return Err(if exchange { Posix::InvalidArgument } else { Posix::NotEmpty }.into());
        }
        Ok(())
    }
}

impl Rename<'_> {
    /// Checks that both inodes may change their names.
    fn check(&self, dirs: &mut Pair<'_>) -> Result<()> {
        let tree = self.tree;
        tree.check_linked(&self.old.dir, self.inode)?;
        tree.check_can_relink(self.inode)?;
        tree.check_project(&self.new.dir, self.inode)?;
        let Some(replaced) = self.replaced else { return Ok(()) };
        tree.check_can_remove(&self.new.dir, dirs.target())?;
        tree.check_linked(&self.new.dir, replaced)?;
        tree.check_can_relink(replaced)?;
        if self.flags.contains(RenameFlags::EXCHANGE) {
            tree.check_project(&self.old.dir, replaced)
        } else {
            Ok(())
        }
    }

    /// Tells of what was done.
    fn tell(&self, source: &InodeState) {
        let Rename { tree, old, new, flags, .. } = *self;
        let is_white = flags.contains(RenameFlags::WHITEOUT) && tree.effects.are_kept();
        let there = || Dir::of(tree, &old.dir).find(source, old.name).ok().flatten().map(|found| found.ino);
        let whiteout = if is_white { there() } else { None };
        let (ino, replaced) = (self.inode.ino, self.replaced.map(|replaced| replaced.ino));
        let (from, to) = ((old.dir.ino, old.name), (new.dir.ino, new.name));
        note_renamed(tree, [Some(self.inode), self.replaced]);
        tree.effects.note(Effect::Rename(Renamed { ino, replaced, whiteout, from, to, flags }));
    }

    /// Checks that the one inode may take the other one's place.
    fn check_kinds(&self, named: &Named<'_>) -> Result<()> {
        if let (Some(replaced), Some(state)) = (self.replaced, &named.new) {
            match (self.inode.is_dir(), replaced.is_dir()) {
                (true, false) => return Err(Posix::NotDirectory.into()),
                (false, true) => return Err(Posix::IsDirectory.into()),
                (true, true) if !Dir::of(self.tree, replaced).is_empty(state)? => {
                    return Err(Posix::NotEmpty.into());
                }
                _ => {}
            }
        } else if self.inode.is_dir()
            && self.old.dir.ino != self.new.dir.ino
            && self.new.dir.nlink() == LINK_MAX
        {
            return Err(Posix::TooManyLinks.into());
        }
        Ok(())
    }

    /// The replaced inode, where other files need its blocks and it cannot be retained for them.
    fn needed_by_others(&self) -> Result<Option<Ino>> {
        let tree = self.tree;
        let last = |replaced: &&&Arc<Inode>| replaced.nlink() == 1 && tree.refs.others_need_any(replaced.ino);
        let Some(replaced) = self.replaced.as_ref().filter(last) else { return Ok(None) };
        let retained = tree.may_retain(replaced, self.inode)? && tree.hidden().retain(replaced)?;
        Ok((!retained).then_some(replaced.ino))
    }

    /// Moves the name, and notes what that means for an fsync. Where it fails nothing has changed.
    fn apply(&self, dirs: &mut Pair<'_>, named: &mut Named<'_>) -> Result<()> {
        let (tree, inode) = (self.tree, self.inode);
        // What the inode says of its name, before that changes.
        let name_recorded =
            inode.nlink() == 1 && inode.raw(|r| names_rightly(r, self.old.dir.ino, self.old.name));
        let is_retained = |replaced: &&Arc<Inode>| tree.retained.contains(replaced.ino);
        let retained = self.replaced.filter(is_retained);
        let lost = self.replaced.filter(|replaced| !is_retained(replaced));
        let mut step = || self.move_name(dirs, &mut named.old);
        let moved = match lost {
            Some(replaced) => tree.take_name(replaced, step),
            None => step(),
        };
        if let (Err(_), Some(retained)) = (&moved, retained) {
            tree.hidden().take_back(retained, self.new.dir.ino, self.new.name)?;
        }
        moved?;
        if let Some(replaced) = lost {
            tree.drop_name(replaced);
            tree.note_moved_name(self.new.dir.ino, self.new.name, replaced);
        }
        tree.note_moved_name(self.old.dir.ino, self.old.name, inode);
        self.account(name_recorded);
        Ok(())
    }

    /// Notes what the rename explains, and the links of directories.
    fn account(&self, name_recorded: bool) {
        let (tree, inode) = (self.tree, self.inode);
        let gone =
            |r: &Inode| r.kind() == FileKind::Regular && (r.nlink() == 0 || tree.retained.contains(r.ino));
        if !self.flags.contains(RenameFlags::WHITEOUT)
            && inode.kind() == FileKind::Regular
            && self.replaced.is_none_or(|replaced| gone(replaced))
        {
            self.explain(name_recorded);
        }
        if inode.is_dir() {
            tree.since.note_changed_dir(inode.ino);
            let come = i32::from(self.replaced.is_none());
            tree.edit(&self.old.dir, Dirty::Full, |r| add_links(r, -1));
            tree.edit(&self.new.dir, Dirty::Full, |r| add_links(r, come));
        }
    }

    /// Lets the directories know that nothing happened to them but this rename of a regular file.
    fn explain(&self, name_recorded: bool) {
        let tree = self.tree;
        // In other modes no fsync makes a file durable whose former name another file takes.
        if tree.is_delta_volume() && tree.since.ordered {
            tree.name_journal.moved(&Move {
                ino: self.inode.ino,
                from: (self.old.dir.ino, self.old.name),
                to: (self.new.dir.ino, self.new.name),
                durable: tree.may_be_durable(self.inode),
                name_recorded,
                over_durable: self.replaced.and_then(|replaced| tree.durable_if_unlinked(replaced)),
            });
        }
    }

    /// Gives an inode its new name, which may be another inode's so far, and takes the old one.
    fn move_name(&self, dirs: &mut Pair<'_>, state: &mut InodeState) -> Result<()> {
        let Rename { tree, old, new, inode, search, .. } = *self;
        let kind = inode.kind();
        let up = match kind {
            FileKind::Directory if dirs.new.is_some() => Some(Dir::of(tree, inode).parent(state)?),
            _ => None,
        };
        let white = NewFile { kind: FileKind::CharDevice, perm: 0, umask: 0, uid: 0, gid: 0, rdev: 0 };
        let whiteout = match self.flags.contains(RenameFlags::WHITEOUT) {
            true => Some(tree.new_inode(&old.dir, Some(old.name), &white, None)?),
            false => None,
        };
        let undo_whiteout = || {
            if let Some(whiteout) = &whiteout {
                tree.discard(whiteout);
            }
        };
        let added = match &search.found {
            Some(there) => tree.changing(&new.dir).set_target(dirs.target(), there, inode.ino, kind),
            None => tree.changing(&new.dir).add(dirs.target(), search, new.name, inode.ino, kind),
        };
        if let Err(e) = added {
            undo_whiteout();
            return Err(e);
        }
        let moved = self.take_old_name(dirs.source(), whiteout.as_deref()).and_then(|()| match &up {
            Some(up) => tree.changing(inode).set_target(state, up, new.dir.ino, FileKind::Directory),
            None => Ok(()),
        });
        if let Err(e) = moved {
            self.undo_move(dirs);
            undo_whiteout();
            return Err(e);
        }
        let now = tree.clock.now();
        tree.edit(inode, Dirty::Full, |r| {
            tree.set_name(inode.ino, r, new.dir.ino, new.name);
            if kind != FileKind::Directory || whiteout.is_some() {
                r.i_advise |= Advise::LOST_PINO.bits();
            }
            set_ctime(r, now);
        });
        tree.xref.named(inode, &new.dir, dirs.target());
        tree.touch_modified(&old.dir);
        tree.touch_modified(&new.dir);
        Ok(())
    }

    /// Removes the old name or points it to the whiteout. It is looked up again, as adding the new one may
    /// have moved it.
    fn take_old_name(&self, state: &mut InodeState, whiteout: Option<&Inode>) -> Result<()> {
        let (tree, old) = (self.tree, self.old);
        let found = Dir::of(tree, &old.dir).find(state, old.name)?.ok_or(Posix::NotFound)?;
        match whiteout {
            Some(whiteout) => {
                tree.changing(&old.dir).set_target(state, &found, whiteout.ino, FileKind::CharDevice)
            }
            None => tree.changing(&old.dir).remove(state, &found),
        }
    }

    /// Puts both names back as well as it goes after the device failed in the middle.
    fn undo_move(&self, dirs: &mut Pair<'_>) {
        let Rename { tree, old, new, inode, .. } = *self;
        let there = self.search.found;
        let kind = inode.kind();
        let undo = || -> Result<()> {
            match (Dir::of(tree, &new.dir).find(dirs.target(), new.name)?, there) {
                (Some(now), Some(before)) => {
                    let kind = tree.inode(before.ino)?.kind();
                    tree.changing(&new.dir).set_target(dirs.target(), &now, before.ino, kind)?;
                }
                (Some(now), None) => tree.changing(&new.dir).remove(dirs.target(), &now)?,
                (None, _) => {}
            }
            let search = Dir::of(tree, &old.dir).search(dirs.source(), old.name)?;
            match search.found {
                Some(found) => tree.changing(&old.dir).set_target(dirs.source(), &found, inode.ino, kind),
                None => tree.changing(&old.dir).add(dirs.source(), &search, old.name, inode.ino, kind),
            }
        };
        if let Err(error) = { undo }() {
            tracing::error!(ino = inode.ino, %error, "a rename that failed could not be undone");
        }
    }

    /// Exchanges two names.
    fn exchange(&self, dirs: &mut Pair<'_>, named: &mut Named<'_>) -> Result<()> {
        let Rename { tree, old, new, inode, found, .. } = *self;
        let (Some(other), Some(there)) = (self.replaced, self.search.found) else {
            return Err(Posix::NotFound.into());
        };
        let two = dirs.new.is_some();
        let (kind, other_kind) = (inode.kind(), other.kind());
        let (moves, other_moves) = (two && inode.is_dir(), two && other.is_dir());
        let other_state = named.new.as_deref_mut().expect("an exchange has two inodes");
        let up = if moves { Some(Dir::of(tree, inode).parent(&named.old)?) } else { None };
        let other_up = if other_moves { Some(Dir::of(tree, other).parent(other_state)?) } else { None };
        let links = i32::from(moves) - i32::from(other_moves);
        if (links > 0 && new.dir.nlink() == LINK_MAX) || (links < 0 && old.dir.nlink() == LINK_MAX) {
            return Err(Posix::TooManyLinks.into());
        }
        // The steps in order, each with its undoing; every page involved has just been read.
        let mut forward = |ends: [Ino; 2], kinds: [FileKind; 2], parents: [Ino; 2]| -> Result<()> {
            tree.changing(&new.dir).set_target(dirs.target(), &there, ends[0], kinds[0])?;
            tree.changing(&old.dir).set_target(dirs.source(), &found, ends[1], kinds[1])?;
            if let Some(up) = &up {
                tree.changing(inode).set_target(&mut named.old, up, parents[0], FileKind::Directory)?;
            }
            if let Some(up) = &other_up {
                tree.changing(other).set_target(other_state, up, parents[1], FileKind::Directory)?;
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
        let now = tree.clock.now();
        for (inode, side) in [(inode, new), (other, old)] {
            tree.edit(inode, Dirty::Full, |r| {
                tree.set_name(inode.ino, r, side.dir.ino, side.name);
                if FileKind::from_mode(r.i_mode.get()) != Some(FileKind::Directory) {
                    r.i_advise |= Advise::LOST_PINO.bits();
                }
                set_ctime(r, now);
            });
        }
        for (inode, side) in [(inode, new), (other, old)] {
            let state = if side.dir.ino == new.dir.ino { dirs.target() } else { dirs.source() };
            tree.xref.named(inode, &side.dir, state);
        }
        if links != 0 {
            tree.edit(&new.dir, Dirty::Full, |r| add_links(r, links));
            tree.edit(&old.dir, Dirty::Full, |r| add_links(r, -links));
        }
        for (side, gone) in [(old, inode), (new, other)] {
            tree.touch_modified(&side.dir);
            tree.note_moved_name(side.dir.ino, side.name, gone);
        }
        for inode in [inode, other].into_iter().filter(|i| i.is_dir()) {
            tree.since.note_changed_dir(inode.ino);
        }
        Ok(())
    }
}
