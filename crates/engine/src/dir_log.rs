//! What changed in a directory since the last checkpoint, so that an fsync of it can tell whether roll-forward would
//! bring all of it back: then it costs nothing (extension of MedFS's idea to metadata).
//!
//! A new file that was fsynced carries its name in its inode block, and roll-forward makes the directory entry from it, in
//! place of whatever had that name. So a directory whose only changes are such files, and names that came and went
//! without ever being durable, needs no checkpoint. Everything else does: so every change is counted, and those that
//! are understood are noted by name.
//!
//! Locks: the log's mutex is a leaf. [`Fs::dir_is_recoverable`] is called with no lock held.
//! The kernel makes a checkpoint in each of these cases.

use crate::error::Result;
use crate::fs::Fs;
use crate::inode::Inode;
use crate::node::Dirty;
use medfs_format::node::{FileKind, Inline, RawInode};
use medfs_format::{Block, Ino, is_block};
use parking_lot::Mutex;
use std::collections::BTreeMap;

/// Names noted for a directory; with more of them its next fsync makes a checkpoint.
const MOST_NAMES: usize = 64;

/// What happened to a name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct NameChange {
    /// The regular file that was made with it and has it still.
    made: Option<Ino>,
    /// Roll-forward, or the checkpoint itself, would show a file that has lost it.
    lost: bool,
}

#[derive(Debug, Default)]
struct Changes {
    /// Changes of entries, and those of them that `names` explains.
    count: u64,
    explained: u64,
    names: BTreeMap<Vec<u8>, NameChange>,
}

/// The changes of all directories since the last checkpoint.
#[derive(Debug)]
pub(crate) struct DirLog {
    /// Whether an fsync of a directory looks here first; nothing is noted otherwise.
    on: bool,
    dirs: Mutex<BTreeMap<Ino, Changes>>,
}

impl DirLog {
    pub(crate) fn new(on: bool) -> DirLog {
        DirLog { on, dirs: Mutex::default() }
    }

    /// Counts a change of an entry.
    pub(crate) fn changed(&self, dir: Ino) {
        if self.on {
            self.dirs.lock().entry(dir).or_default().count += 1;
        }
    }

    /// Explains the last change: a regular file was made.
    pub(crate) fn made(&self, dir: Ino, name: &[u8], ino: Ino) {
        self.explain(dir, name, |change| change.made = Some(ino));
    }

    /// Explains the last change: a regular file lost its name. `durable`: whether it was in the last checkpoint or fsynced
    /// since; called with no lock of the log held.
    pub(crate) fn lost(&self, dir: Ino, name: &[u8], durable: impl FnOnce() -> bool) {
        if !self.on {
            return;
        }
        let durable = durable();
        self.explain(dir, name, |change| {
            change.made = None;
            change.lost |= durable;
        });
    }

    fn explain(&self, dir: Ino, name: &[u8], note: impl FnOnce(&mut NameChange)) {
        if !self.on {
            return;
        }
        let mut dirs = self.dirs.lock();
        let changes = dirs.entry(dir).or_default();
        if changes.names.len() >= MOST_NAMES && !changes.names.contains_key(name) {
            return; // stays unexplained
        }
        changes.explained += 1;
        let change = changes.names.entry(name.to_vec()).or_default();
        note(change);
        if *change == NameChange::default() {
            changes.names.remove(name);
        }
    }

    /// The files that an fsync of a directory would have to find durable with their names; `None` where that is not all.
    fn files(&self, dir: Ino) -> Option<Vec<Ino>> {
        let dirs = self.dirs.lock();
        let Some(changes) = dirs.get(&dir) else { return Some(Vec::new()) };
        if changes.count != changes.explained {
            return None;
        }
        changes.names.values().map(|change| change.made).collect()
    }

    /// A checkpoint has made everything durable.
    pub(crate) fn committed(&self) {
        if self.on {
            self.dirs.lock().clear();
        }
    }
}

impl Fs {
    /// Whether roll-forward would bring back everything that changed in a directory since the last checkpoint.
    pub(crate) fn dir_is_recoverable(&self, dir: &Inode) -> Result<bool> {
        if !self.dir_log.on || !dir.is_dir() || !self.nat.peek(&self.io, dir.ino)?.checkpointed {
            return Ok(false);
        }
        let Some(files) = self.dir_log.files(dir.ino) else { return Ok(false) };
        for ino in files {
            if !self.is_recoverable(ino)? {
                return Ok(false);
            }
        }
        self.only_entries_changed(dir)
    }

    /// Whether a new file was fsynced, so that roll-forward finds its name.
    fn is_recoverable(&self, ino: Ino) -> Result<bool> {
        let Ok(inode) = self.inode(ino) else { return Ok(false) };
        // Waits for an fsync under way: what it has placed is not durable before it ends.
        drop(inode.wb.lock());
        let entry = self.nat.peek(&self.io, ino)?;
        Ok(inode.kind() == FileKind::Regular && entry.fsynced_inode && !entry.checkpointed)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_come_and_go() {
        let log = DirLog::new(true);
        assert_eq!(log.files(3), Some(vec![]), "nothing changed");
        let make = |name: &[u8], ino| {
            log.changed(3);
            log.made(3, name, ino);
        };
        let lose = |name: &[u8], durable| {
            log.changed(3);
            log.lost(3, name, || durable);
        };
        make(b"a", 10);
        assert_eq!(log.files(3), Some(vec![10]));
        lose(b"a", false);
        assert_eq!(log.files(3), Some(vec![]), "never durable");
        make(b"a", 11);
        lose(b"a", true);
        assert_eq!(log.files(3), None, "roll-forward would bring it back");
        make(b"a", 12);
        assert_eq!(log.files(3), Some(vec![12]), "which replaces it");
        log.changed(3);
        assert_eq!(log.files(3), None, "a change that is not explained");
        log.committed();
        assert_eq!(log.files(3), Some(vec![]));
    }

    #[test]
    fn too_many_names_are_not_explained() {
        let log = DirLog::new(true);
        for n in 0..=MOST_NAMES as u32 {
            log.changed(3);
            log.made(3, &n.to_le_bytes(), n);
        }
        assert_eq!(log.files(3), None);
    }

    #[test]
    fn nothing_is_noted_where_nobody_asks() {
        let log = DirLog::new(false);
        log.changed(3);
        log.made(3, b"a", 10);
        log.lost(3, b"b", || panic!("nobody needs to know"));
        assert!(log.dirs.lock().is_empty());
    }
}
