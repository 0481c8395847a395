//! The names of recovered files.

use super::Replay;
use super::chain::{LostName, Removal};
use crate::dir::{Dir, directory};
use crate::error::{Error, Posix, Result};
use crate::map::inode::Inode;
use medfs_format::node::{NAME_LEN, RawInode};
use medfs_format::{Block, FormatError, Ino, NEW_ADDR, Structure};
use medfs_store::Dirty;
use std::sync::Arc;

impl Replay<'_> {
    /// Makes the entry that an inode block of the chain asks for. A file that has the name loses it.
    pub(super) fn dentry(&mut self, inode: &Arc<Inode>, block: &Block) -> Result<()> {
        let tree = self.tree;
        let raw: &RawInode = block.view();
        let name = raw.i_name.get(..raw.i_namelen.get() as usize).unwrap_or_default();
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
            return Err(bad_inode(inode.ino, "i_name", "not a file name"));
        }
        let parent = raw.i_pino.get();
        let dir = tree.inode(parent).map_err(|e| match e {
            Error::Posix(Posix::Stale) => bad_inode(inode.ino, "i_pino", format!("{parent} does not exist")),
            e => e,
        })?;
        if !dir.is_dir() {
            return Err(bad_inode(inode.ino, "i_pino", format!("{parent} is not a directory")));
        }
        let mut state = dir.lock.write();
        let mut search = Dir::of(tree, &dir).search(&state, name)?;
        tree.edit(inode, Dirty::Full, |r| tree.set_name(inode.ino, r, parent, name));
        if let Some(found) = search.found {
            if found.ino == inode.ino {
                return Ok(());
            }
            self.drop_name(&dir, found.ino, name)?;
            tree.changing(&dir).remove(&mut state, &found)?;
            search = Dir::of(tree, &dir).search(&state, name)?;
        }
        tree.changing(&dir).add(&mut state, &search, name, inode.ino, inode.kind())?;
        tree.touch_modified(&dir);
        Ok(())
    }

    /// Takes the name from a renamed file that it had in the checkpoint: a file of the checkpoint carries the
    /// dentry mark for that reason alone.
    pub(super) fn leave_old_name(&mut self, inode: &Inode) -> Result<()> {
        let tree = self.tree;
        let Some((parent, name)) = self.old_names.remove(&inode.ino) else { return Ok(()) };
        let Ok(dir) = directory(tree, parent) else { return Ok(()) };
        let mut state = dir.lock.write();
        if let Some(found) = Dir::of(tree, &dir).find(&state, &name)?.filter(|found| found.ino == inode.ino) {
            tree.changing(&dir).remove(&mut state, &found)?;
            tree.touch_modified(&dir);
        }
        Ok(())
    }

    /// Takes names away from the files that still have them.
    pub(super) fn remove_names(&mut self, removal: &Removal) -> Result<()> {
        let tree = self.tree;
        for &LostName { ino, dir, ref name } in &removal.names {
            let dir = directory(tree, dir).map_err(|e| match e {
                Error::Posix(_) => {
                    let (structure, at) = removal.listed;
                    FormatError::corrupt(structure, at, "dir", format!("{dir} is not a directory")).into()
                }
                e => e,
            })?;
            let mut state = dir.lock.write();
            if let Some(found) = Dir::of(tree, &dir).find(&state, name)?.filter(|found| found.ino == ino) {
                self.drop_name(&dir, ino, name)?;
                tree.changing(&dir).remove(&mut state, &found)?;
                tree.touch_modified(&dir);
            }
        }
        self.recovered.nodes += 1;
        Ok(())
    }

    /// Takes a link from the inode whose name is replaced or removed; without any left it becomes an orphan.
    fn drop_name(&mut self, dir: &Arc<Inode>, ino: Ino, name: &[u8]) -> Result<()> {
        let tree = self.tree;
        if ino == dir.ino || ino == tree.geo.root_ino {
            return Err(bad_inode(dir.ino, "dentry", format!("a name of inode {ino} is to be replaced")));
        }
        let old = tree.inode(ino)?;
        if old.is_dir() {
            self.replaced_dirs.push((dir.clone(), old, name.to_vec()));
            return Ok(());
        }
        tree.edit(&old, Dirty::Full, |r| r.i_links = r.i_links.get().saturating_sub(1).into());
        if old.nlink() == 0 {
            tree.orphans.add_at_mount(ino);
            self.nameless.insert(ino, old);
        }
        Ok(())
    }

    /// Frees the directories whose names files have now. One that is not empty was emptied or moved by
    /// changes that no fsync recorded (medfs makes a checkpoint instead; other drivers may not): it stays,
    /// under a name beside its own.
    pub(super) fn settle_replaced_dirs(&mut self) -> Result<()> {
        let tree = self.tree;
        for (parent, dir, name) in std::mem::take(&mut self.replaced_dirs) {
            let empty = Dir::of(tree, &dir).is_empty(&dir.lock.read())?;
            if empty {
                tree.edit(&parent, Dirty::Full, |r| {
                    r.i_links = r.i_links.get().saturating_sub(1).max(2).into()
                });
                tree.edit(&dir, Dirty::Full, |r| r.i_links = 0.into());
                tree.orphans.add_at_mount(dir.ino);
                self.nameless.insert(dir.ino, dir);
                continue;
            }
            let suffix = format!(".{}", dir.ino).into_bytes();
            let mut kept = name;
            kept.truncate(NAME_LEN - suffix.len());
            kept.extend(suffix);
            let mut state = parent.lock.write();
            let search = Dir::of(tree, &parent).search(&state, &kept)?;
            if search.found.is_some() {
                return Err(bad_inode(
                    dir.ino,
                    "i_name",
                    "a file has its name, and another the name beside it",
                ));
            }
            tree.changing(&parent).add(&mut state, &search, &kept, dir.ino, dir.kind())?;
            tree.edit(&dir, Dirty::Full, |r| tree.set_name(dir.ino, r, parent.ino, &kept));
            let name = String::from_utf8_lossy(&kept).into_owned();
            tracing::warn!(ino = dir.ino, name, "a file has taken the name of a directory that is not empty");
        }
        Ok(())
    }

    /// An inode that the checkpoint does not know, as its first fsync described it, without content.
    pub(super) fn make_inode(&self, ino: Ino, block: &Block) -> Result<Arc<Inode>> {
        let tree = self.tree;
        let raw = self.checked(ino, block)?;
        // The caller has looked the number up, so its entry, which is free, is in memory with its version.
        tree.space.reserve_node(true)?;
        tree.nat.claim(ino);
        tree.nat.set(ino, ino, NEW_ADDR, false);
        let mut content = Block::ZERO;
        let new: &mut RawInode = content.view_mut();
        super::file::copy_identity(raw, new);
        Ok(tree.adopt_inode(tree.nodes.create(ino, ino, 0, true, content)))
    }
}

pub(super) fn bad_inode(ino: Ino, field: &'static str, value: impl ToString) -> Error {
    FormatError::corrupt(Structure::Inode, ino, field, value).into()
}
