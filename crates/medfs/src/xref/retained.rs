//! Replaced files that stay because the files in their place are made from their blocks.
//!
//! A file written to replace another one is made from that one's blocks ([`super::predecessor`]). When the rename comes, the replaced
//! file gets a name in a hidden directory in the same operation, instead of losing its last one: so it is never an orphan,
//! which a mount would free. It goes when nothing is made from it any more.
//!
//! Invariants: a file is kept only where the hidden directory is in the last checkpoint, so that roll-forward, which meets the
//! same rename, finds it; and only for the one file that takes its name. A file made from kept ones keeps no other.
//! Locks: the directory's lock comes after those of the files of a rename; `bases` is a leaf.

use super::ref_index::HIDDEN_DIR;
use crate::error::{Error, Posix, Result};
use crate::fs::Fs;
use crate::map::inode::set_name;
use crate::map::inode::{Inode, set_ctime};
use crate::types::{Attr, NewFile};
use medfs_format::node::{Advise, FileKind};
use medfs_format::{FormatError, Ino, Structure};
use medfs_store::Dirty;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most files that are kept.
const MOST_BASES: usize = 64;
/// Largest file that is kept, in pages.
pub(crate) const MOST_BASE_PAGES: u64 = 512;

/// The kept files.
#[derive(Debug, Default)]
pub(crate) struct Bases {
    /// The hidden directory, once it is there.
    dir: Option<Ino>,
    /// Somebody would have kept a file before there was one.
    wanted: bool,
    files: BTreeSet<Ino>,
}

fn name_of(ino: Ino) -> Vec<u8> {
    format!("{ino:08x}").into_bytes()
}

impl Fs {
    /// Whether a file may be made from one that it is to replace. Where there is no directory for that one yet, the next
    /// fsync makes it, and the next checkpoint settles it.
    pub(crate) fn can_keep_bases(&self) -> Result<bool> {
        let dir = {
            let mut bases = self.bases.lock();
            bases.wanted |= bases.dir.is_none();
            if bases.files.len() >= MOST_BASES { None } else { bases.dir }
        };
        dir.map_or(Ok(false), |dir| Ok(self.nat.peek(&self.io, dir)?.checkpointed))
    }

    /// Whether an inode is the hidden directory.
    pub(crate) fn is_bases_dir(&self, ino: Ino) -> bool {
        self.bases.lock().dir == Some(ino)
    }

    /// Whether a file has a name in the hidden directory alone.
    pub(crate) fn is_kept(&self, ino: Ino) -> bool {
        self.bases.lock().files.contains(&ino)
    }

    /// Attributes as POSIX sees them.
    pub(crate) fn attr(&self, inode: &Inode) -> Attr {
        let attr = self.attributes(inode);
        Attr { nlink: attr.nlink.saturating_sub(self.hidden_links(inode.ino)), ..attr }
    }

    /// Links of an inode that nobody is to see: a kept file's name, and the hidden directory's entry `..`.
    fn hidden_links(&self, ino: Ino) -> u32 {
        let bases = self.bases.lock();
        u32::from(bases.files.contains(&ino) || (ino == self.geo.root_ino && bases.dir.is_some()))
    }

    /// Whether a file that another one replaces must be kept, and can be.
    pub(crate) fn may_keep(&self, replaced: &Inode, by: &Inode) -> Result<bool> {
        let others = self.dependents.others(replaced.ino, 0..u64::MAX);
        Ok(replaced.kind() == FileKind::Regular
            && by.nlink() == 1
            && others.iter().all(|other| other.ino == by.ino)
            && replaced.pages() <= MOST_BASE_PAGES
            && self.can_keep_bases()?)
    }

    /// Gives a file, which has one name, that in the hidden directory; the caller takes the old one. The caller holds the file's
    /// lock exclusively and the operation lock. `false` (nothing changed) without room for it.
    pub(crate) fn keep_base(&self, inode: &Arc<Inode>) -> Result<bool> {
        let Some(dir) = self.bases.lock().dir else { return Ok(false) };
        let (dir, name) = (self.directory(dir)?, name_of(inode.ino));
        let mut state = dir.lock.write();
        let search = self.search(&dir, &state, &name)?;
        if let Some(found) = search.found {
            let value = format!("{} for {}", found.ino, inode.ino);
            return Err(FormatError::corrupt(Structure::Dentry, dir.ino, "ino", value).into());
        }
        match self.add_name(&dir, &mut state, &search, &name, inode.ino, FileKind::Regular) {
            Err(Error::NoSpace) => return Ok(false),
            added => added?,
        }
        let now = self.clock.now();
        // What is durable of it stays as it is, so that it is a source on: roll-forward gives it this name again.
        self.edit(inode, Dirty::Times, |r| {
            r.i_links = 1.into();
            set_name(r, dir.ino, &name);
            r.i_advise |= Advise::LOST_PINO.bits();
            set_ctime(r, now);
        });
        self.since.renamed_files.lock().insert(inode.ino);
        self.orphans.remove(inode.ino);
        self.bases.lock().files.insert(inode.ino);
        Ok(true)
    }

    /// Takes back what [`Fs::keep_base`] did, where the rename failed.
    pub(crate) fn forget_base_name(&self, inode: &Inode, parent: Ino, name: &[u8]) -> Result<()> {
        self.bases.lock().files.remove(&inode.ino);
        let Some(dir) = self.bases.lock().dir else { return Ok(()) };
        let dir = self.directory(dir)?;
        let mut state = dir.lock.write();
        if let Some(found) = self.find_entry(&dir, &state, &name_of(inode.ino))? {
            self.remove_name(&dir, &mut state, &found)?;
        }
        self.edit(inode, Dirty::Full, |r| set_name(r, parent, name));
        Ok(())
    }

    /// Makes the hidden directory where one was wanted. Called with no lock held.
    pub(crate) fn make_bases_dir(&self) -> Result<()> {
        if !std::mem::take(&mut self.bases.lock().wanted) {
            return Ok(());
        }
        let new = NewFile { kind: FileKind::Directory, perm: 0, umask: 0, uid: 0, gid: 0, rdev: 0 };
        if let Some(ino) = self.create_hidden(HIDDEN_DIR, &new)? {
            self.bases.lock().dir = Some(ino);
        }
        Ok(())
    }

    /// Lets the kept files go from which nothing is made any more. Called with no lock held.
    pub(crate) fn release_bases(&self) -> Result<()> {
        let (dir, files) = {
            let bases = self.bases.lock();
            match bases.dir {
                Some(dir) if !bases.files.is_empty() => (dir, bases.files.clone()),
                _ => return Ok(()),
            }
        };
        for ino in files {
            if !self.dependents.others_need_any(ino) {
                let released = self.release_base(dir, ino);
                self.pass_by("a replaced file is kept until the next mount", ino, released)?;
            }
        }
        Ok(())
    }

    fn release_base(&self, dir: Ino, ino: Ino) -> Result<()> {
        if !self.bases.lock().files.remove(&ino) {
            return Ok(()); // by somebody else
        }
        match self.unlink(dir, &name_of(ino)) {
            Err(Error::Posix(Posix::NotFound)) => Ok(()),
            released => released,
        }
    }

    /// Lets all kept files go, and the directory: what is made from them is made whole.
    pub(crate) fn remove_bases(&self) -> Result<()> {
        let (dir, files) = {
            let mut bases = self.bases.lock();
            (bases.dir.take(), bases.files.clone())
        };
        let Some(dir) = dir else { return Ok(()) };
        for ino in files {
            self.release_base(dir, ino)?;
        }
        self.rmdir(self.geo.root_ino, HIDDEN_DIR)
    }

    /// At a read-only mount: finds what is not shown. Where that is damaged the rest can be read all the same.
    pub(crate) fn load_bases_to_hide(&self) {
        if self.is_delta_volume()
            && let Err(error) = self.load_bases()
        {
            tracing::info!(%error, "the directory of replaced files that deltas need cannot be read");
        }
    }

    /// At a mount: finds the kept files.
    pub(crate) fn load_bases(&self) -> Result<()> {
        let root = self.directory(self.geo.root_ino)?;
        let Some(found) = self.find_entry(&root, &root.lock.read(), HIDDEN_DIR)? else { return Ok(()) };
        let dir = self.directory(found.ino).map_err(|_| {
            Error::Incompatible(
                "the root directory has an entry '.medfs.d' that is not medfs's own; run `medfs fsck`".into(),
            )
        })?;
        let mut files = BTreeSet::new();
        self.readdir(dir.ino, 0, &mut |entry| {
            if entry.name == name_of(entry.ino) {
                files.insert(entry.ino);
            }
            true
        })?;
        *self.bases.lock() = Bases { dir: Some(dir.ino), wanted: false, files };
        Ok(())
    }
}
