//! Whether roll-forward would bring the names of a file or a directory back: then an fsync needs no checkpoint for them.
//!
//! What changed is in [`crate::tree::name_journal`].
//! Locks: [`Fs::dir_is_recoverable`] and [`Fs::record_names`] are called with no lock held.
//! The kernel makes a checkpoint in each of these cases.

use crate::error::Result;
use crate::fs::Fs;
use crate::map::inode::Inode;
use crate::tree::name_journal::{Loser, Wanted, Wants};
use medfs_format::node::{Advise, FileKind, Inline, RawInode};
use medfs_format::removed::{self, RemovedName};
use medfs_format::{Block, Ino, is_block};
use medfs_store::Dirty;
use std::sync::Arc;

/// Files that an fsync of a directory makes durable one by one, and pages that are written for each; with more of them a
/// checkpoint costs less.
const MOST_RECORDS: usize = 4;
const MOST_PAGES: usize = 16;

impl Fs {
    /// Makes durable, in their own inodes, what changed of the names in a directory, where that is little; `false` where it takes
    /// a checkpoint.
    pub(crate) fn record_names(&self, dir: &Inode) -> Result<bool> {
        if !self.dir_log.on || !self.is_delta_volume() || !self.nat.peek(&self.io, dir.ino)?.checkpointed {
            return Ok(false);
        }
        let Some(Wants { files, gone }) = self.dir_log.wants(dir.ino) else { return Ok(false) };
        let mut due = Vec::new();
        for file in files {
            if !self.is_satisfied(file)? {
                let Ok(inode) = self.inode(file.ino) else { return Ok(false) };
                if due.iter().all(|other: &Arc<Inode>| other.ino != inode.ino) {
                    due.push(inode);
                }
            }
        }
        let small = |inode: &Inode| inode.lock.read().dirty.len() <= MOST_PAGES;
        let fits = removed::names_fit(gone.len(), gone.iter().map(|(name, _)| name.len()).sum());
        if !fits || due.len() > MOST_RECORDS || !due.iter().all(|inode| small(inode)) {
            return Ok(false);
        }
        for inode in &due {
            if !self.record_name(inode)? {
                return Ok(false);
            }
        }
        if !gone.is_empty() && !self.record_gone(dir.ino, &gone)? {
            return Ok(false);
        }
        self.dir_is_recoverable(dir)
    }

    /// Makes durable that files lost names in a directory; `false` where that takes a checkpoint.
    fn record_gone(&self, dir: Ino, gone: &[(Vec<u8>, Loser)]) -> Result<bool> {
        for (_, loser) in gone {
            // What an fsync under way still writes must lie before.
            if let Some(inode) = loser.inode.upgrade() {
                drop(inode.wb.lock());
            }
        }
        let _op = self.op()?;
        if !self.space.room_for_roll_forward(0) {
            return Ok(false);
        }
        let names: Vec<_> =
            gone.iter().map(|(name, loser)| RemovedName { ino: loser.ino, dir, name }).collect();
        self.write_removed(&names)?;
        self.dir_log.recorded(dir, gone);
        Ok(true)
    }

    /// Whether roll-forward can take the name that a file has now from its inode alone. It can where the last checkpoint does not
    /// know the file, or knows it by the name in its inode there, which is then taken away.
    pub(crate) fn may_record(&self, inode: &Inode) -> Result<bool> {
        let known = self.nat.peek(&self.io, inode.ino)?.checkpointed;
        Ok(inode.kind() == FileKind::Regular
            && self.inode_tells_names(inode.ino, known)
            && self.name_is_right(inode))
    }

    /// Whether the inode of a file, which the last checkpoint knows or not, says with its name all that roll-forward has to know of names.
    fn inode_tells_names(&self, ino: Ino, known: bool) -> bool {
        if known {
            self.is_delta_volume() && self.dir_log.renamed_plainly(ino)
        } else {
            !self.dir_log.uncovers(ino)
        }
    }

    /// Whether roll-forward would bring back everything that changed in a directory since the last checkpoint.
    pub(crate) fn dir_is_recoverable(&self, dir: &Inode) -> Result<bool> {
        if !self.dir_log.on || !dir.is_dir() || !self.nat.peek(&self.io, dir.ino)?.checkpointed {
            return Ok(false);
        }
        let Some(wants) = self.dir_log.wants(dir.ino).filter(|wants| wants.gone.is_empty()) else {
            return Ok(false);
        };
        for file in wants.files {
            if !self.is_satisfied(file)? {
                return Ok(false);
            }
        }
        self.only_entries_changed(dir)
    }

    /// Whether a file is as an fsync of its directory wants it.
    fn is_satisfied(&self, file: Wanted) -> Result<bool> {
        let alive = self.inode(file.ino).is_ok_and(|inode| inode.nlink() > 0 && !self.is_kept(file.ino));
        if alive { self.is_recorded(file.ino) } else { Ok(file.if_alive) }
    }

    /// Whether a file, new or renamed, was fsynced with its name, so that roll-forward finds that.
    pub(crate) fn is_recorded(&self, ino: Ino) -> Result<bool> {
        let Ok(inode) = self.inode(ino) else { return Ok(false) };
        // Waits for an fsync under way: what it has placed is not durable before it ends.
        drop(inode.wb.lock());
        let entry = self.nat.peek(&self.io, ino)?;
        let advise = inode.raw(RawInode::advise);
        let said = self.inode_tells_names(ino, entry.checkpointed);
        let recorded = entry.fsynced_inode && said && !advise.contains(Advise::LOST_PINO);
        Ok(inode.kind() == FileKind::Regular && recorded)
    }

    /// Whether a directory's inode says what the last checkpoint does of everything but its entries and their times.
    fn only_entries_changed(&self, dir: &Inode) -> Result<bool> {
        let addr = self.nat.peek(&self.io, dir.ino)?.addr;
        if !is_block(addr) {
            return Ok(false);
        }
        let state = dir.lock.read();
        if dir.check_alive(&state).is_err() {
            return Ok(false);
        }
        let xattrs = dir.raw(|r| r.i_xattr_nid.get());
        if xattrs != 0 && self.nodes.is_dirty(dir.ino, xattrs, Dirty::Full) {
            return Ok(false);
        }
        let flexible = self.flexible_inline_xattr();
        let now = dir.node.read(|d| identity(&d.block, flexible));
        Ok(now == identity(&*self.io.read(addr)?, flexible))
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
