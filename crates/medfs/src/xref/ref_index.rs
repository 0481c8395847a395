//! The list of files that are made from blocks of others, or of their own: kept across mounts.
//!
//! Before a source changes, its dependents have to be known, and after a mount only these themselves could
//! tell. So their numbers are the content of a hidden file, which [`crate::tree::hidden`] makes, written with
//! each checkpoint after which it differs. What was fsynced since the last checkpoint is known from the
//! roll-forward, which makes the hidden file where no checkpoint has it yet.
//!
//! Invariant: a checkpoint lists every file that has records with slices in it. The hidden file has inline
//! content, so that listing a file never needs room.
//! Locks: the state (rank `reference index`) comes before that of [`crate::map::refs`] and of nodes.

use super::Xref;
use crate::error::{Error, Posix, Result};
use crate::map::inode::Inode;
use crate::ranks;
use medfs_format::Ino;
use medfs_format::node::{FileKind, Inline, RawInode};
use medfs_store::Dirty;
use medfs_sync::{Mutex, Ranked};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Most files that are listed.
const MOST_FILES: usize = 512;
/// Listed files up to which files made from their own blocks are listed too: the rest is for files made from others.
const MOST_OF_OWN: usize = 256;

/// The list in memory.
#[derive(Debug)]
pub(crate) struct RefIndex(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The hidden file, once it is there: a checkpoint must not have to read it.
    file: Option<Arc<Inode>>,
    /// A file was to be listed before there was one.
    wanted: bool,
    /// As the hidden file has it.
    written: BTreeSet<Ino>,
}

impl Default for RefIndex {
    fn default() -> RefIndex {
        RefIndex(Mutex::default().ranked(ranks::REF_INDEX))
    }
}

impl RefIndex {
    /// The hidden file, where there is one.
    pub(crate) fn file(&self) -> Option<Ino> {
        self.0.lock().file.as_ref().map(|file| file.ino)
    }

    /// The hidden file has been made, and is empty.
    pub(crate) fn begin(&self, file: Arc<Inode>) {
        self.0.lock().file = Some(file);
    }

    /// Forgets the hidden file, which is about to go; whether there was one.
    pub(crate) fn end(&self) -> bool {
        self.0.lock().file.take().is_some()
    }

    pub(crate) fn want(&self) {
        self.0.lock().wanted = true;
    }

    /// Whether the hidden file was wanted since this was asked last.
    pub(crate) fn take_wanted(&self) -> bool {
        std::mem::take(&mut self.0.lock().wanted)
    }
}

impl Xref {
    /// Whether the next checkpoint can list a file. Until then the roll-forward would tell of it.
    pub(crate) fn can_be_listed(&self, ino: Ino) -> bool {
        self.has_room_in_list(ino, MOST_FILES)
    }

    /// The same of a file that is made from its own blocks.
    pub(crate) fn can_be_listed_for_own(&self, ino: Ino) -> bool {
        self.has_room_in_list(ino, MOST_OF_OWN)
    }

    fn has_room_in_list(&self, ino: Ino, most: usize) -> bool {
        let mut index = self.index.0.lock();
        index.wanted |= index.file.is_none();
        index.file.is_some() && self.refs.has_room(ino, most)
    }

    /// Before a checkpoint: makes the hidden file say what is listed now.
    pub(crate) fn save_index(&self) {
        let mut index = self.index.0.lock();
        let Some(inode) = index.file.clone() else { return };
        let listed: BTreeSet<Ino> = self.refs.all().into_iter().collect();
        if listed == index.written {
            return;
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
        index.written = listed;
    }

    /// At a mount: finds out what the files are made from that the hidden file lists.
    pub(crate) fn load_index(&self, file: Arc<Inode>) -> Result<()> {
        let range = self.slots(&file).inline_content_range();
        let len = file.size().min(range.len().min(MOST_FILES * 4) as u64) as usize;
        let bytes = file.node.read(|d| d.block.0[range.start..range.start + len].to_vec());
        let listed: BTreeSet<Ino> = bytes
            .chunks_exact(4)
            .map(|ino| Ino::from_le_bytes(ino.try_into().expect("four bytes")))
            .collect();
        *self.index.0.lock() = State { file: Some(file), wanted: false, written: listed.clone() };
        for ino in listed {
            match self.inode(ino) {
                Ok(inode) => self.load_dependents(&inode),
                Err(Error::Posix(Posix::Stale)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Finds the files that are made from others without the list, among all inodes.
    pub(crate) fn find_dependents(&self) {
        for ino in self.nat.inodes(&self.io, self.geo.root_ino).flatten() {
            match self.inode(ino) {
                Ok(inode) => self.load_dependents(&inode),
                Err(error) => tracing::warn!(ino, %error, "an inode cannot be read"),
            }
        }
    }

    /// Finds out what a file is made from. A file that cannot be read is left alone, and so are its sources:
    /// what changes them makes its pages no worse than they are.
    pub(crate) fn load_dependents(&self, inode: &Inode) {
        if !self.is_delta_volume() || inode.kind() != FileKind::Regular {
            return;
        }
        match self.deltas().compact().all_records(inode) {
            Ok(records) => {
                for record in records {
                    self.refs.add(inode.ino, record.index, record.sources());
                }
            }
            Err(error) => tracing::warn!(ino = inode.ino, %error, "the deltas of a file cannot be read"),
        }
    }
}

const _: () = assert!(MOST_FILES * 4 <= 2048, "inline content of any inode has so much room");
