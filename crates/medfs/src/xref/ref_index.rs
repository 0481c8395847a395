//! The list of files that are made from blocks of others, or of their own: kept across mounts.
//!
//! Who is about to change a source must know its dependents, and after a mount only these themselves could tell. So their
//! numbers are the content of a hidden file in the root directory, written with each checkpoint after which it differs. What
//! was fsynced since the last checkpoint is known from the roll-forward, which makes the hidden file where no checkpoint has it yet.
//!
//! Invariant: a checkpoint lists every file that has records with slices in it. The hidden file has inline content, so that listing a
//! file never needs room.
//! Locks: `registry` is a leaf; making the hidden file is an operation of its own.

use crate::error::{Error, Posix, Result};
use crate::fs::Fs;
use crate::map::inode::{Inode, set_ctime, set_mtime};
use crate::types::{Attr, NewFile};
use medfs_format::Ino;
use medfs_format::node::{FileKind, Inline, RawInode};
use medfs_store::Dirty;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Name of the hidden file.
pub(crate) const HIDDEN_NAME: &[u8] = b".medfs";
/// Name of the hidden directory of files that were replaced ([`super::retained`]).
pub(crate) const HIDDEN_DIR: &[u8] = b".medfs.d";
/// Most files that are listed.
const MOST_FILES: usize = 512;

/// The list in memory.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// The hidden file, once it is there: a checkpoint must not have to read it.
    file: Option<Arc<Inode>>,
    /// Somebody wanted to list a file before there was one.
    wanted: bool,
    /// As the hidden file has it.
    written: BTreeSet<Ino>,
}

impl Fs {
    /// Whether a name is that of the hidden file or directory.
    pub(crate) fn is_hidden(&self, parent: Ino, name: &[u8]) -> bool {
        self.is_delta_volume() && parent == self.geo.root_ino && [HIDDEN_NAME, HIDDEN_DIR].contains(&name)
    }

    /// Whether an inode is the hidden file or directory. (The files in the directory have no link that is seen.)
    pub(crate) fn is_hidden_file(&self, ino: Ino) -> bool {
        self.registry.lock().file.as_ref().is_some_and(|file| file.ino == ino) || self.is_bases_dir(ino)
    }

    /// Fails where a name is not for users.
    pub(crate) fn check_not_hidden(&self, parent: Ino, name: &[u8], error: Posix) -> Result<()> {
        if self.is_hidden(parent, name) { Err(error.into()) } else { Ok(()) }
    }

    /// Whether the next checkpoint can list a file. Until then the roll-forward would tell of it.
    pub(crate) fn can_be_listed(&self, ino: Ino) -> bool {
        let mut registry = self.registry.lock();
        registry.wanted |= registry.file.is_none();
        registry.file.is_some() && self.dependents.has_room(ino, MOST_FILES)
    }

    /// Makes the hidden file and directory where they were wanted. Called with no lock held; without room for the file,
    /// nothing is listed.
    pub(crate) fn make_hidden_files(&self) -> Result<()> {
        self.make_bases_dir()?;
        if !std::mem::take(&mut self.registry.lock().wanted) || !self.opts.inline_data {
            return Ok(());
        }
        let new = NewFile { kind: FileKind::Regular, perm: 0, umask: 0, uid: 0, gid: 0, rdev: 0 };
        if let Some(ino) = self.create_hidden(HIDDEN_NAME, &new)?
            && let inode = self.inode(ino)?
            && inode.raw(|r| r.inline().contains(Inline::DATA))
        {
            self.registry.lock().file = Some(inode);
        }
        Ok(())
    }

    /// After roll-forward: files may be made from others although the crash came before a checkpoint with the list. It is made now;
    /// where that is not possible, these files are made whole. Called with no lock held.
    pub(crate) fn list_recovered(&self) -> Result<()> {
        let dependents = self.dependents.all();
        if dependents.is_empty() || self.registry.lock().file.is_some() {
            return Ok(());
        }
        self.registry.lock().wanted = true;
        self.make_hidden_files()?;
        if self.registry.lock().file.is_none() {
            for ino in dependents {
                self.commit.whole(self, &self.inode(ino)?, &self.dependents.pages(ino))?;
            }
        }
        Ok(())
    }

    /// Makes something with a hidden name in the root directory; `None` where that is not possible.
    pub(crate) fn create_hidden(&self, name: &[u8], new: &NewFile) -> Result<Option<Ino>> {
        let root = self.inode(self.geo.root_ino)?;
        let before = self.attr(&root);
        match self.create(root.ino, name, new) {
            Ok(attr) => {
                self.inodes.release(attr.ino, 1);
                self.take_back_times(&root, &before)?;
                Ok(Some(attr.ino))
            }
            Err(Error::NoSpace | Error::Posix(_)) => Ok(None),
            Err(e) => self.pass_by("no hidden file is made", root.ino, Err(e)),
        }
    }

    /// Removes the hidden file and directory: nothing is made from other files any more.
    pub(crate) fn remove_hidden_files(&self) -> Result<()> {
        let root = self.inode(self.geo.root_ino)?;
        let before = self.attr(&root);
        self.remove_bases()?;
        let file = self.registry.lock().file.take();
        if file.is_some() {
            self.unlink(root.ino, HIDDEN_NAME)?;
        }
        self.take_back_times(&root, &before)
    }

    /// Gives the root directory the times that it had: nobody is to see that anything happened in it.
    fn take_back_times(&self, root: &Inode, before: &Attr) -> Result<()> {
        let _op = self.op()?;
        let _state = root.lock.write();
        self.edit(root, Dirty::Times, |r| {
            set_mtime(r, before.mtime);
            set_ctime(r, before.ctime);
        });
        Ok(())
    }

    /// Before a checkpoint: makes the hidden file say what is listed now.
    pub(crate) fn save_registry(&self) -> Result<()> {
        let mut registry = self.registry.lock();
        let Some(inode) = registry.file.clone() else { return Ok(()) };
        let listed: BTreeSet<Ino> = self.dependents.all().into_iter().collect();
        if listed == registry.written {
            return Ok(());
        }
        let bytes: Vec<u8> = listed.iter().flat_map(|ino| ino.to_le_bytes()).collect();
        let range = self.slots(&inode).inline_content_range();
        self.nodes.update(&inode.node, Dirty::Full, |b| {
            b.0[range.clone()].fill(0);
            b.0[range.start..range.start + bytes.len()].copy_from_slice(&bytes);
            let raw: &mut RawInode = b.view_mut();
            raw.i_inline |= Inline::DATA_EXIST.bits();
            raw.i_size = (bytes.len() as u64).into();
        });
        registry.written = listed;
        Ok(())
    }

    /// At a mount: finds out what the listed files are made from.
    pub(crate) fn load_registry(&self) -> Result<()> {
        if !self.is_delta_volume() {
            return Ok(());
        }
        self.load_bases()?;
        let root = self.directory(self.geo.root_ino)?;
        let Some(found) = self.find_entry(&root, &root.lock.read(), HIDDEN_NAME)? else { return Ok(()) };
        let inode = self.inode(found.ino)?;
        if inode.kind() != FileKind::Regular || !inode.raw(|r| r.inline().contains(Inline::DATA)) {
            return Err(Error::Incompatible(
                "the root directory has an entry '.medfs' that is not medfs's own; run `medfs fsck`".into(),
            ));
        }
        let range = self.slots(&inode).inline_content_range();
        let len = inode.size().min(range.len().min(MOST_FILES * 4) as u64) as usize;
        let bytes = inode.node.read(|d| d.block.0[range.start..range.start + len].to_vec());
        let listed: BTreeSet<Ino> = bytes
            .chunks_exact(4)
            .map(|ino| Ino::from_le_bytes(ino.try_into().expect("four bytes")))
            .collect();
        *self.registry.lock() = Registry { file: Some(inode), wanted: false, written: listed.clone() };
        for ino in listed {
            match self.inode(ino) {
                Ok(inode) => self.load_dependents(&inode),
                Err(Error::Posix(Posix::Stale)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Finds out what a file is made from. A file that cannot be read is left alone, and so are its sources: what changes
    /// them makes its pages no worse than they are.
    pub(crate) fn load_dependents(&self, inode: &Inode) {
        if !self.is_delta_volume() || inode.kind() != FileKind::Regular {
            return;
        }
        match self.deltas().compact().all_records(inode) {
            Ok(records) => {
                for record in records {
                    self.dependents.hold(inode.ino, record.index, record.sources());
                }
            }
            Err(error) => tracing::warn!(ino = inode.ino, %error, "the deltas of a file cannot be read"),
        }
    }
}

const _: () = assert!(MOST_FILES * 4 <= 2048, "inline content of any inode has so much room");
