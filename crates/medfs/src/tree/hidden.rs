//! Hidden files: the list of files that are made from blocks of others, and the directory of replaced files
//! that such files need.
//!
//! [`crate::xref`] says that it wants them; they are made here, in operations of their own, before an fsync
//! or after a mount. Users see no trace of them ([`super::hiding`]), and not the times at which the root
//! directory changed.
//!
//! Invariants: the list has inline content, so that a checkpoint can write it without room. A replaced file
//! has its name in the hidden directory and no other.
//! Locks: called with no lock held, but for [`HiddenFiles::retain`] and its undoing: the directory's lock
//! comes after those of the files of a rename.

use crate::dir::{Dir, directory};
use crate::error::{Error, Posix, Result};
use crate::map::inode::{Inode, set_ctime, set_mtime};
use crate::tree::Tree;
use crate::tree::hiding::{DIR, LIST};
use crate::types::{Attr, NewFile};
use medfs_format::node::{Advise, FileKind, Inline};
use medfs_format::{FormatError, Ino, Structure};
use medfs_store::Dirty;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The hidden files of a volume.
#[derive(Clone, Copy)]
pub(crate) struct HiddenFiles<'a> {
    tree: &'a Tree,
}

fn name_of(ino: Ino) -> Vec<u8> {
    format!("{ino:08x}").into_bytes()
}

impl Tree {
    pub(crate) fn hidden(&self) -> HiddenFiles<'_> {
        HiddenFiles { tree: self }
    }
}

impl HiddenFiles<'_> {
    /// Makes list and directory where they were wanted; without room for the list, nothing is listed.
    pub(crate) fn make(self) -> Result<()> {
        self.make_dir()?;
        if !self.tree.index.take_wanted() || !self.tree.opts.inline_data {
            return Ok(());
        }
        let new = NewFile { kind: FileKind::Regular, perm: 0, umask: 0, uid: 0, gid: 0, rdev: 0 };
        if let Some(ino) = self.create(LIST, &new)?
            && let inode = self.tree.inode(ino)?
            && inode.raw(|r| r.inline().contains(Inline::DATA))
        {
            self.tree.index.begin(inode);
        }
        Ok(())
    }

    fn make_dir(self) -> Result<()> {
        if !self.tree.retained.take_wanted() {
            return Ok(());
        }
        let new = NewFile { kind: FileKind::Directory, perm: 0, umask: 0, uid: 0, gid: 0, rdev: 0 };
        if let Some(ino) = self.create(DIR, &new)? {
            self.tree.retained.begin(ino, BTreeSet::new());
        }
        Ok(())
    }

    /// Makes something with a hidden name in the root directory; `None` where that is not possible.
    fn create(self, name: &[u8], new: &NewFile) -> Result<Option<Ino>> {
        let tree = self.tree;
        let root = tree.inode(tree.geo.root_ino)?;
        let before = tree.attr(&root);
        match tree.create(root.ino, name, new) {
            Ok(attr) => {
                tree.inodes.release(attr.ino, 1);
                self.take_back_times(&root, &before)?;
                Ok(Some(attr.ino))
            }
            Err(Error::NoSpace | Error::Posix(_)) => Ok(None),
            Err(e) => tree.pass_by("no hidden file is made", root.ino, Err(e)),
        }
    }

    /// After roll-forward: files may be made from others although the crash came before a checkpoint with the
    /// list. It is made now; where that is not possible, these files are made whole.
    pub(crate) fn list_recovered(self) -> Result<()> {
        let tree = self.tree;
        let dependents = tree.refs.all();
        if dependents.is_empty() || tree.index.file().is_some() {
            return Ok(());
        }
        tree.index.want();
        self.make()?;
        if tree.index.file().is_none() {
            for ino in dependents {
                tree.above.whole(&tree.inode(ino)?, &tree.refs.pages(ino))?;
            }
        }
        Ok(())
    }

    /// Removes list and directory: nothing is made from other files any more.
    pub(crate) fn remove(self) -> Result<()> {
        let tree = self.tree;
        let root = tree.inode(tree.geo.root_ino)?;
        let before = tree.attr(&root);
        self.remove_dir()?;
        if tree.index.end() {
            tree.unlink(root.ino, LIST)?;
        }
        self.take_back_times(&root, &before)
    }

    /// Lets all retained files go, and the directory: what is made from them is made whole.
    fn remove_dir(self) -> Result<()> {
        let files = self.tree.retained.files();
        let Some(dir) = self.tree.retained.end() else { return Ok(()) };
        for ino in files {
            self.release_one(dir, ino)?;
        }
        self.tree.rmdir(self.tree.geo.root_ino, DIR)
    }

    /// Gives the root directory the times that it had: what happened in it is not to be seen.
    fn take_back_times(self, root: &Inode, before: &Attr) -> Result<()> {
        let _op = self.tree.op()?;
        let _state = root.lock.write();
        self.tree.edit(root, Dirty::Times, |r| {
            set_mtime(r, before.mtime);
            set_ctime(r, before.ctime);
        });
        Ok(())
    }

    /// Lets the retained files go from which nothing is made any more.
    pub(crate) fn release(self) -> Result<()> {
        let tree = self.tree;
        let Some(dir) = tree.retained.dir() else { return Ok(()) };
        for ino in tree.retained.files() {
            if !tree.refs.others_need_any(ino) {
                let released = self.release_one(dir, ino);
                tree.pass_by("a replaced file is kept until the next mount", ino, released)?;
            }
        }
        Ok(())
    }

    fn release_one(self, dir: Ino, ino: Ino) -> Result<()> {
        if !self.tree.retained.remove(ino) {
            return Ok(()); // by another thread
        }
        match self.tree.unlink(dir, &name_of(ino)) {
            Err(Error::Posix(Posix::NotFound)) => Ok(()),
            released => released,
        }
    }

    /// Gives a file, which has one name, that in the hidden directory; the caller takes the old one. The
    /// caller holds the file's lock exclusively and the operation lock. `false` (nothing changed) without
    /// room for it.
    pub(crate) fn retain(self, inode: &Arc<Inode>) -> Result<bool> {
        let tree = self.tree;
        let Some(dir) = tree.retained.dir() else { return Ok(false) };
        let (dir, name) = (directory(tree, dir)?, name_of(inode.ino));
        let mut state = dir.lock.write();
        let search = Dir::of(tree, &dir).search(&state, &name)?;
        if let Some(found) = search.found {
            let value = format!("{} for {}", found.ino, inode.ino);
            return Err(FormatError::corrupt(Structure::Dentry, dir.ino, "ino", value).into());
        }
        match tree.changing(&dir).add(&mut state, &search, &name, inode.ino, FileKind::Regular) {
            Err(Error::NoSpace) => return Ok(false),
            added => added?,
        }
        let now = tree.clock.now();
        // What is durable of it stays as it is, so that it is a source on: roll-forward gives it this name again.
        tree.edit(inode, Dirty::Times, |r| {
            r.i_links = 1.into();
            tree.set_name(inode.ino, r, dir.ino, &name);
            r.i_advise |= Advise::LOST_PINO.bits();
            set_ctime(r, now);
        });
        tree.since.renamed_files.lock().insert(inode.ino);
        tree.orphans.remove(inode.ino);
        tree.retained.add(inode.ino);
        Ok(true)
    }

    /// Takes back what [`HiddenFiles::retain`] did, where the rename failed.
    pub(crate) fn take_back(self, inode: &Inode, parent: Ino, name: &[u8]) -> Result<()> {
        let tree = self.tree;
        tree.retained.remove(inode.ino);
        let Some(dir) = tree.retained.dir() else { return Ok(()) };
        let dir = directory(tree, dir)?;
        let mut state = dir.lock.write();
        if let Some(found) = Dir::of(tree, &dir).find(&state, &name_of(inode.ino))? {
            tree.changing(&dir).remove(&mut state, &found)?;
        }
        tree.edit(inode, Dirty::Full, |r| tree.set_name(inode.ino, r, parent, name));
        Ok(())
    }

    /// At a mount: finds list and directory, and what they tell.
    pub(crate) fn load(self) -> Result<()> {
        let tree = self.tree;
        if !tree.is_delta_volume() {
            return Ok(());
        }
        self.load_dir()?;
        let Some(list) = self.find(LIST)? else {
            if tree.retained.dir().is_some() {
                // They are made and removed together: its entry is damaged.
                tracing::warn!(
                    "the list of files that need blocks of others is missing: all files are asked"
                );
                tree.find_dependents();
            }
            return Ok(());
        };
        let inode = tree.inode(list)?;
        if inode.kind() != FileKind::Regular || !inode.raw(|r| r.inline().contains(Inline::DATA)) {
            return Err(Error::Incompatible(
                "the root directory has an entry '.medfs' that is not medfs's own; run 'medfs fsck'".into(),
            ));
        }
        tree.load_index(inode)
    }

    /// At a read-only mount: finds what is not shown. Where that is damaged the rest can be read all the same.
    pub(crate) fn load_to_hide(self) {
        if self.tree.is_delta_volume()
            && let Err(error) = self.load_dir()
        {
            tracing::info!(%error, "the directory of replaced files that deltas need cannot be read");
        }
    }

    fn load_dir(self) -> Result<()> {
        let tree = self.tree;
        let Some(found) = self.find(DIR)? else { return Ok(()) };
        let dir = directory(tree, found).map_err(|_| {
            Error::Incompatible(
                "the root directory has an entry '.medfs.d' that is not medfs's own; run 'medfs fsck'".into(),
            )
        })?;
        let mut files = BTreeSet::new();
        Dir::of(tree, &dir).list(0, &mut |entry| {
            if entry.name == name_of(entry.ino) {
                files.insert(entry.ino);
            }
            true
        })?;
        tree.retained.begin(dir.ino, files);
        Ok(())
    }

    /// What the hidden names of the root directory lead to, whatever that is.
    pub(crate) fn by_name(self) -> [Option<Ino>; 2] {
        let leads = |name| self.find(name).ok().flatten().filter(|_| self.tree.is_delta_volume());
        [LIST, DIR].map(leads)
    }

    /// What the root directory has by a hidden name.
    fn find(self, name: &[u8]) -> Result<Option<Ino>> {
        let root = directory(self.tree, self.tree.geo.root_ino)?;
        let found = Dir::of(self.tree, &root).find(&root.lock.read(), name)?;
        Ok(found.map(|found| found.ino))
    }
}
