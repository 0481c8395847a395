//! Whether roll-forward would bring the names of a file or a directory back: then an fsync needs no
//! checkpoint for them.
//!
//! What changed is in [`crate::tree::name_journal`].
//! Invariant: every question that a commit has about names is answered here, once for each file or directory.
//! Locks: called with no lock held, as other files may have to be made durable first.
//! The kernel makes a checkpoint in each of these cases.

use crate::commit::Commit;
use crate::commit::change_set::{ChangeSet, Naming, Request};
use crate::content::placement::Purpose;
use crate::dir::Dir;
use crate::error::Result;
use crate::map::inode::Inode;
use crate::tree::name_journal::{RequiredFile, RequiredNames, UnlinkedFile, recorded_name};
use medfs_format::node::{Advise, FileKind, Inline, RawInode};
use medfs_format::removed::{self, RemovedName};
use medfs_format::{Block, Ino, NULL_ADDR, is_block};
use medfs_store::Dirty;
use std::sync::Arc;

/// Files that an fsync of a directory makes durable one by one, and pages that are written for each; with
/// more of them a checkpoint costs less.
const MOST_RECORDS: usize = 4;
const MOST_PAGES: usize = 16;
/// Longest row of files that took each other's names and are settled one by one.
const MAX_SETTLED_NAMES: usize = 8;

/// What an fsync of a directory needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DirNames {
    /// Nothing: roll-forward brings it back as it is.
    Recoverable,
    /// Nothing more: what changed was made durable in the files' own inodes.
    Recorded,
    NeedsCheckpoint,
}

/// The judge of names at a commit.
#[derive(Clone, Copy)]
pub(crate) struct NameJudge<'a> {
    pub(super) commit: &'a Commit,
}

impl NameJudge<'_> {
    /// What a commit has to do about a file's name, after names that its own hides were made durable.
    pub(crate) fn of_file(self, inode: &Arc<Inode>) -> Result<Naming> {
        Ok(match self.settle(inode, MAX_SETTLED_NAMES)? {
            true if self.is_renamed(inode) && self.may_record(inode)? => Naming::Record,
            true => Naming::AsItWas,
            false => Naming::Unsettled,
        })
    }

    /// Whether a file's name is in nothing's way, and nothing has to be done about it. Whatever is in the way
    /// shows again in [`NameJudge::of_file`].
    pub(crate) fn is_plain(self, inode: &Arc<Inode>) -> bool {
        !inode.is_dir() && self.settle(inode, MAX_SETTLED_NAMES).unwrap_or(false) && !self.is_renamed(inode)
    }

    /// What an fsync of a directory needs; what can be recorded of it is made durable.
    pub(crate) fn of_dir(self, dir: &Inode) -> Result<DirNames> {
        if self.is_recoverable(dir)? {
            return Ok(DirNames::Recoverable);
        }
        Ok(if self.record(dir)? { DirNames::Recorded } else { DirNames::NeedsCheckpoint })
    }

    /// Makes durable, in their own inodes, what changed of the names in a directory, where that is little;
    /// `false` where it takes a checkpoint.
    fn record(self, dir: &Inode) -> Result<bool> {
        let tree = self.commit;
        if !tree.name_journal.on || !tree.is_delta_volume() || !tree.nat.peek(&tree.io, dir.ino)?.checkpointed
        {
            return Ok(false);
        }
        let Some(RequiredNames { files, gone }) = tree.name_journal.required(dir.ino) else {
            return Ok(false);
        };
        let mut due = Vec::new();
        for file in files {
            if !self.is_satisfied(file)? {
                let Ok(inode) = tree.inode(file.ino) else { return Ok(false) };
                if due.iter().all(|other: &Arc<Inode>| other.ino != inode.ino) {
                    due.push(inode);
                }
            }
        }
        let small = |inode: &Inode| inode.lock.read().pages.dirty_len() <= MOST_PAGES;
        let fits = removed::names_fit(gone.len(), gone.iter().map(|(name, _)| name.len()).sum());
        if !fits || due.len() > MOST_RECORDS || !due.iter().all(|inode| small(inode)) {
            return Ok(false);
        }
        for inode in &due {
            if !self.may_record(inode)? || !self.record_after(inode, MAX_SETTLED_NAMES)? {
                return Ok(false);
            }
        }
        if !gone.is_empty() && !self.record_gone(dir.ino, &gone)? {
            return Ok(false);
        }
        self.is_recoverable(dir)
    }

    /// Makes durable that files lost names in a directory; `false` where that takes a checkpoint.
    fn record_gone(self, dir: Ino, gone: &[(Vec<u8>, UnlinkedFile)]) -> Result<bool> {
        let tree = self.commit;
        for (_, loser) in gone {
            // What an fsync under way still writes must lie before.
            if let Some(inode) = loser.inode.upgrade() {
                drop(inode.wb.lock());
            }
        }
        let names: Vec<_> =
            gone.iter().map(|(name, loser)| RemovedName { ino: loser.ino, dir, name }).collect();
        let set = ChangeSet::of_names(tree, names)?;
        let sink = &self.commit.ways.sink;
        if sink.admits_names(tree, &set.names).is_err() {
            return Ok(false);
        }
        sink.commit(tree, set)?;
        tree.name_journal.recorded(dir, gone);
        Ok(true)
    }

    /// Makes a file durable with the name that it has now, after files that had its name are settled; `false`
    /// where that takes a checkpoint.
    fn record_after(self, inode: &Arc<Inode>, most: usize) -> Result<bool> {
        let purpose = Purpose::Fsync { datasync: false };
        let request = Request { inode, purpose, naming: Naming::Record };
        Ok(self.settle(inode, most)? && self.commit.by_log(request)?.is_none())
    }

    /// Makes durable the new names of files that had the name by which `inode` would be recovered: otherwise recovery
    /// would take that name from them, and with it their last link. `false` where only a checkpoint can do that.
    fn settle(self, inode: &Arc<Inode>, most: usize) -> Result<bool> {
        let tree = self.commit;
        if tree.since.moved_names.lock().is_empty() {
            return Ok(true);
        }
        let (parent, name) = recorded_name(inode);
        let Some(other) = tree.since.other_of_name(inode.ino, parent, name.clone()) else { return Ok(true) };
        if !tree.needs_dentry_mark(inode)? && !inode.raw(|r| r.advise().contains(Advise::LOST_PINO)) {
            return Ok(true); // recovery leaves its names alone
        }
        let entry = tree.nat.peek(&tree.io, other)?;
        // For users a base that was kept is gone; its hidden name in its inode would give what it replaced
        // its name back.
        let gone = entry.addr == NULL_ADDR || tree.retained.contains(other);
        if !gone && most == 0 {
            return Ok(false);
        }
        if !gone && !self.is_recorded(other)? && (entry.fsynced_inode || entry.checkpointed) {
            let Ok(other) = tree.inode(other) else { return Ok(false) };
            if !self.may_record(&other)? || !self.record_after(&other, most - 1)? {
                return Ok(false);
            }
        }
        tree.since.moved_names.lock().remove(&(parent, name));
        Ok(true)
    }

    /// Whether a file's name is not yet durable and could be recorded: see [`NameJudge::may_record`].
    fn is_renamed(self, inode: &Inode) -> bool {
        self.commit.is_delta_volume()
            && self.commit.since.ordered
            && inode.raw(|r| r.advise().contains(Advise::LOST_PINO))
            && self.commit.name_journal.recoverable_by_inode(inode.ino)
    }

    /// Whether roll-forward can take the name that a file has now from its inode alone. It can where the last
    /// checkpoint does not know the file, or knows it by the name in its inode there, which is then taken
    /// away. Never that of a base that was kept: without its successor's, the file that it had replaced would
    /// have its name again.
    fn may_record(self, inode: &Inode) -> Result<bool> {
        let known = self.commit.nat.peek(&self.commit.io, inode.ino)?.checkpointed;
        Ok(inode.kind() == FileKind::Regular
            && !self.commit.retained.contains(inode.ino)
            && self.inode_tells_names(inode.ino, known)
            && self.is_right(inode))
    }

    /// Whether the inode of a file, which the last checkpoint knows or not, says with its name all that
    /// roll-forward has to know of names.
    fn inode_tells_names(self, ino: Ino, known: bool) -> bool {
        if known {
            self.commit.is_delta_volume() && self.commit.name_journal.recoverable_by_inode(ino)
        } else {
            !self.commit.name_journal.exposes_stale_name(ino)
        }
    }

    /// Whether the inode's one name is the one that its block records.
    pub(super) fn is_right(self, inode: &Inode) -> bool {
        let tree = self.commit;
        let (parent, name) = recorded_name(inode);
        if inode.nlink() != 1 || name.is_empty() {
            return false;
        }
        let Ok(dir) = tree.inode(parent) else { return false };
        let state = dir.lock.read();
        dir.is_dir()
            && Dir::of(tree, &dir).find(&state, &name).is_ok_and(|e| e.is_some_and(|e| e.ino == inode.ino))
    }

    /// After a checkpoint, a file whose parent and name are recorded rightly can be recovered by itself again.
    pub(crate) fn find_lost_parent(self, inode: &Arc<Inode>) -> Result<()> {
        let _op = self.commit.op()?;
        if self.is_right(inode) {
            let _state = inode.lock.write();
            self.commit.edit(inode, Dirty::Times, |r| r.i_advise &= !Advise::LOST_PINO.bits());
        }
        Ok(())
    }

    /// Whether roll-forward would bring back everything that changed in a directory since the last checkpoint.
    fn is_recoverable(self, dir: &Inode) -> Result<bool> {
        let tree = self.commit;
        if !tree.name_journal.on || !dir.is_dir() || !tree.nat.peek(&tree.io, dir.ino)?.checkpointed {
            return Ok(false);
        }
        let Some(required) = tree.name_journal.required(dir.ino).filter(|required| required.gone.is_empty())
        else {
            return Ok(false);
        };
        for file in required.files {
            if !self.is_satisfied(file)? {
                return Ok(false);
            }
        }
        self.only_entries_changed(dir)
    }

    /// Whether a file is as an fsync of its directory requires it.
    fn is_satisfied(self, file: RequiredFile) -> Result<bool> {
        let tree = self.commit;
        let alive =
            tree.inode(file.ino).is_ok_and(|inode| inode.nlink() > 0 && !tree.retained.contains(file.ino));
        if alive { self.is_recorded(file.ino) } else { Ok(file.if_alive) }
    }

    /// Whether a file, new or renamed, was fsynced with its name, so that roll-forward finds that.
    fn is_recorded(self, ino: Ino) -> Result<bool> {
        let Ok(inode) = self.commit.inode(ino) else { return Ok(false) };
        // Waits for an fsync under way: what it has placed is not durable before it ends.
        drop(inode.wb.lock());
        let entry = self.commit.nat.peek(&self.commit.io, ino)?;
        let advise = inode.raw(RawInode::advise);
        let said = self.inode_tells_names(ino, entry.checkpointed);
        let recorded = entry.fsynced_inode && said && !advise.contains(Advise::LOST_PINO);
        Ok(inode.kind() == FileKind::Regular && recorded)
    }

    /// Whether a directory's inode says what the last checkpoint does of everything but its entries and their times.
    fn only_entries_changed(self, dir: &Inode) -> Result<bool> {
        let tree = self.commit;
        let addr = tree.nat.peek(&tree.io, dir.ino)?.addr;
        if !is_block(addr) {
            return Ok(false);
        }
        let state = dir.lock.read();
        if dir.check_alive(&state).is_err() {
            return Ok(false);
        }
        let xattrs = dir.raw(|r| r.i_xattr_nid.get());
        if xattrs != 0 && tree.nodes.is_dirty(dir.ino, xattrs, Dirty::Full) {
            return Ok(false);
        }
        let flexible = tree.flexible_inline_xattr();
        let now = dir.node.read(|d| identity(&d.block, flexible));
        Ok(now == identity(&*tree.io.read(addr)?, flexible))
    }
}

/// Everything of an inode block that is not its entries, where they are, or a time.
fn identity(block: &Block, flexible: bool) -> Vec<u8> {
    let raw: &RawInode = block.view();
    let slots = raw.slots(flexible);
    let mut bytes = Vec::with_capacity(512);
    for number in [
        u32::from(raw.i_mode.get()),
        u32::from(raw.i_advise),
        u32::from((raw.inline() - Inline::DENTRY).bits()),
        raw.i_uid.get(),
        raw.i_gid.get(),
        raw.i_links.get(),
        raw.i_flags.get(),
        raw.i_pino.get(),
        raw.i_namelen.get(),
        raw.i_generation.get(),
        raw.i_xattr_nid.get(),
        u32::from(raw.i_dir_level),
    ] {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    bytes.extend_from_slice(&raw.i_name);
    bytes.extend_from_slice(&block.0[slots.inline_xattr_range()]);
    if let Some(extra) = raw.extra() {
        bytes.extend_from_slice(&extra.i_projid.get().to_le_bytes());
        bytes.extend_from_slice(&extra.i_extra_isize.get().to_le_bytes());
        bytes.extend_from_slice(&extra.i_inline_xattr_size.get().to_le_bytes());
    }
    bytes
}
