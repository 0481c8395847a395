//! What changed in a directory since the last checkpoint, so that an fsync of it can tell whether roll-forward would
//! bring all of it back: then it costs nothing (extension of MedFS's idea to metadata).
//!
//! A new file that was fsynced carries its name in its inode block, and roll-forward makes the directory
//! entry from it, in place of whatever had that name. So a directory whose only changes are such files, and
//! names that came and went without ever being durable, needs no checkpoint. Everything else does: so every
//! change is counted, and those that are understood are noted by name.
//!
//! On a volume that may hold deltas a renamed file is like a new one: an fsync of it, or of either directory,
//! writes its inode with the name that it has now, and roll-forward takes the one away that the last
//! checkpoint knows.
//! That one block is the rename. A file that came to its former name where a durable one had lost it, by a
//! rename over that one for instance, takes a checkpoint: roll-forward knows its last name alone, and would
//! show the lost file again. So does one whose former name an older file left before, until that is durable
//! by its new name.
//! Names that durable files lost, and none has now, are listed in one block ([`medfs_format::removed`]).
//!
//! Locks: the log's mutex is a leaf.
//! The kernel makes a checkpoint in each of these cases.

use crate::error::Result;
use crate::map::Map;
use crate::map::inode::Inode;
use crate::profile::file_class;
use medfs_format::Ino;
use medfs_format::node::{Advise, RawInode};
use medfs_sync::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

/// Names noted for a directory; with more of them its next fsync makes a checkpoint.
const MOST_NAMES: usize = 64;
/// Files that lost one name and are remembered one by one.
const MOST_LOSERS: usize = 8;

/// A file that lost a name. The inode, where it is in memory, tells whether an fsync of it is under way.
#[derive(Debug, Clone)]
pub(crate) struct UnlinkedFile {
    pub(crate) ino: Ino,
    pub(crate) inode: Weak<Inode>,
}

/// The files that roll-forward, or the checkpoint itself, would show by a name that they have lost.
#[derive(Debug, Clone, Default)]
struct UnlinkedFiles {
    known: Vec<UnlinkedFile>,
    /// There are more of them.
    others: bool,
}

impl UnlinkedFiles {
    fn add(&mut self, loser: UnlinkedFile) {
        if self.known.len() < MOST_LOSERS { self.known.push(loser) } else { self.others = true }
    }
    fn is_empty(&self) -> bool {
        self.known.is_empty() && !self.others
    }
}

/// What happened to a name.
#[derive(Debug, Clone, Default)]
struct NameChange {
    /// The regular file that was made with it and has it still.
    made: Option<Ino>,
    /// Those who lost it, as long as that is not recorded.
    lost: UnlinkedFiles,
    /// Roll-forward would show a file that has another name now, unless that name is recorded.
    moved: Option<Ino>,
}

impl NameChange {
    fn is_nothing(&self) -> bool {
        self.made.is_none() && self.moved.is_none() && self.lost.is_empty()
    }
}

#[derive(Debug, Default)]
struct Changes {
    /// Changes of entries, and those of them that `names` explains.
    count: u64,
    explained: u64,
    names: BTreeMap<Vec<u8>, NameChange>,
}

impl Changes {
    fn is_explained(&self) -> bool {
        self.count == self.explained
    }
}

/// The changes of all directories since the last checkpoint.
#[derive(Debug)]
pub(crate) struct NameJournal {
    /// Whether an fsync of a directory looks here first; nothing is noted otherwise.
    pub(crate) on: bool,
    dirs: Mutex<BTreeMap<Ino, Changes>>,
    /// Files renamed since the last checkpoint.
    renamed: Mutex<BTreeMap<Ino, Renamed>>,
    /// Entries that were made of all this since then.
    entries: Arc<AtomicUsize>,
}

/// What roll-forward would miss of a renamed file, had it nothing but the file's inode with its last name.
#[derive(Debug, Default)]
struct Renamed {
    /// Its inode in the last checkpoint, if it was there, says which name it lost.
    name_recorded: bool,
    /// It left a name that a durable file had lost before, or left without that being recorded, and which
    /// that one would have again; or this cannot be told.
    exposes_stale_name: bool,
    /// Names by directory that it left, durable, which its inode does not tell yet.
    left: BTreeSet<(Ino, Vec<u8>)>,
}

/// A rename of a regular file over nothing, or over a regular file that is gone with it.
#[derive(Debug, Clone)]
pub(crate) struct Move<'a> {
    pub(crate) ino: Ino,
    pub(crate) from: (Ino, &'a [u8]),
    pub(crate) to: (Ino, &'a [u8]),
    /// Whether the file's old name is in the last checkpoint or was fsynced since.
    pub(crate) durable: bool,
    /// Whether its inode in the last checkpoint, if it was there, says that name.
    pub(crate) name_recorded: bool,
    /// The file that had the new name, where it was durable.
    pub(crate) over_durable: Option<UnlinkedFile>,
}

/// What an fsync of a directory has to make durable without a checkpoint.
#[derive(Debug, Default)]
pub(crate) struct RequiredNames {
    pub(crate) files: Vec<RequiredFile>,
    /// Names that nobody has any more, with those who lost them.
    pub(crate) gone: Vec<(Vec<u8>, UnlinkedFile)>,
}

/// A file that an fsync of a directory has to find durable with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequiredFile {
    pub(crate) ino: Ino,
    /// Not if it is gone: another one has its former name.
    pub(crate) if_alive: bool,
}

impl NameJournal {
    /// Counts in `entries` what it holds at most.
    pub(crate) fn new(on: bool, entries: Arc<AtomicUsize>) -> NameJournal {
        NameJournal { on, dirs: Mutex::default(), renamed: Mutex::default(), entries }
    }

    /// Counts a change of an entry.
    pub(crate) fn changed(&self, dir: Ino) {
        if self.on {
            let mut dirs = self.dirs.lock();
            if !dirs.contains_key(&dir) {
                self.entries.fetch_add(1, Ordering::Relaxed);
            }
            dirs.entry(dir).or_default().count += 1;
        }
    }

    /// Explains the last change: a regular file was made.
    pub(crate) fn made(&self, dir: Ino, name: &[u8], ino: Ino) {
        self.account(dir, name, |change| change.made = Some(ino));
    }

    /// Explains the last change: a file that is no directory lost its name, the only one. `durable`: that
    /// file, where it was in the last checkpoint or fsynced since; called with no lock of the log held.
    pub(crate) fn lost(&self, dir: Ino, name: &[u8], durable: impl FnOnce() -> Option<UnlinkedFile>) {
        if !self.on {
            return;
        }
        let durable = durable();
        self.account(dir, name, |change| {
            change.made = None;
            durable.into_iter().for_each(|loser| change.lost.add(loser));
        });
    }

    /// A file is durable with the name that it has now: nothing would show it by one that it left. The caller
    /// holds its lock.
    pub(crate) fn settled(&self, ino: Ino) {
        let left = self.renamed.lock().get_mut(&ino).map(|renamed| std::mem::take(&mut renamed.left));
        let mut dirs = self.dirs.lock();
        for (dir, name) in left.unwrap_or_default() {
            let Some(changes) = dirs.get_mut(&dir) else { continue };
            let Some(change) = changes.names.get_mut(&name).filter(|c| c.moved == Some(ino)) else {
                continue;
            };
            change.moved = None;
            if change.is_nothing() {
                changes.names.remove(&name);
            }
        }
    }

    /// That names are gone is recorded.
    pub(crate) fn recorded(&self, dir: Ino, gone: &[(Vec<u8>, UnlinkedFile)]) {
        let mut dirs = self.dirs.lock();
        let Some(changes) = dirs.get_mut(&dir) else { return };
        for (name, loser) in gone {
            if let Some(change) = changes.names.get_mut(name) {
                change.lost.known.retain(|known| known.ino != loser.ino);
            }
        }
        changes.names.retain(|_, change| !change.is_nothing());
    }

    /// Explains the last change of the old directory and that of the new one.
    pub(crate) fn moved(&self, rename: &Move<'_>) {
        if !self.on {
            return;
        }
        let ino = rename.ino;
        let mut left = false;
        let mut exposes_stale_name = false;
        self.account(rename.from.0, rename.from.1, |change| {
            exposes_stale_name = !change.lost.is_empty() || change.moved.is_some_and(|other| other != ino);
            change.made = None;
            left = rename.durable;
            change.moved = if left { Some(ino) } else { change.moved };
        });
        self.account(rename.to.0, rename.to.1, |change| {
            change.made = Some(ino);
            rename.over_durable.iter().for_each(|loser| change.lost.add(loser.clone()));
        });
        exposes_stale_name |= !self.dirs.lock().get(&rename.from.0).is_some_and(Changes::is_explained);
        self.entries.fetch_add(1, Ordering::Relaxed);
        let mut renamed = self.renamed.lock();
        let known = renamed
            .entry(ino)
            .or_insert(Renamed { name_recorded: rename.name_recorded, ..Renamed::default() });
        known.exposes_stale_name |= exposes_stale_name;
        if left {
            known.left.insert((rename.from.0, rename.from.1.to_vec()));
        }
    }

    /// Whether a file was renamed since the last checkpoint so that its inode with its last name tells
    /// roll-forward all about it.
    pub(crate) fn recoverable_by_inode(&self, ino: Ino) -> bool {
        self.renamed.lock().get(&ino).is_some_and(|r| r.name_recorded && !r.exposes_stale_name)
    }

    /// Whether the last name of a file that the checkpoint does not know would bring another file's back.
    pub(crate) fn exposes_stale_name(&self, ino: Ino) -> bool {
        self.renamed.lock().get(&ino).is_some_and(|r| r.exposes_stale_name)
    }

    fn account(&self, dir: Ino, name: &[u8], note: impl FnOnce(&mut NameChange)) {
        if !self.on {
            return;
        }
        let mut dirs = self.dirs.lock();
        let changes = dirs.entry(dir).or_default();
        if changes.names.len() >= MOST_NAMES && !changes.names.contains_key(name) {
            return; // stays unexplained
        }
        changes.explained += 1;
        self.entries.fetch_add(1, Ordering::Relaxed);
        let change = changes.names.entry(name.to_vec()).or_default();
        note(change);
        if change.is_nothing() {
            changes.names.remove(name);
        }
    }

    /// What an fsync of a directory would have to find durable, or make so; `None` where that is not all.
    pub(crate) fn required(&self, dir: Ino) -> Option<RequiredNames> {
        let dirs = self.dirs.lock();
        let mut required = RequiredNames::default();
        let Some(changes) = dirs.get(&dir) else { return Some(required) };
        if !changes.is_explained() {
            return None;
        }
        for (name, change) in &changes.names {
            if change.made.is_none() {
                if change.lost.others {
                    return None;
                }
                required.gone.extend(change.lost.known.iter().map(|loser| (name.clone(), loser.clone())));
            }
            required
                .files
                .extend(change.moved.map(|ino| RequiredFile { ino, if_alive: change.made.is_some() }));
            required.files.extend(change.made.map(|ino| RequiredFile { ino, if_alive: false }));
        }
        Some(required)
    }

    /// A checkpoint has made everything durable.
    pub(crate) fn committed(&self) {
        if self.on {
            self.dirs.lock().clear();
            self.renamed.lock().clear();
            self.entries.store(0, Ordering::Relaxed);
        }
    }
}

/// Parent and name that an inode's block records.
pub(crate) fn recorded_name(inode: &Inode) -> (Ino, Vec<u8>) {
    inode.raw(|r| {
        let len = (r.i_namelen.get() as usize).min(r.i_name.len());
        (r.i_pino.get(), r.i_name[..len].to_vec())
    })
}

impl Map {
    /// A file that loses its name, where it may be found after a crash.
    pub(crate) fn durable_if_unlinked(&self, inode: &Arc<Inode>) -> Option<UnlinkedFile> {
        self.may_be_durable(inode).then(|| UnlinkedFile { ino: inode.ino, inode: Arc::downgrade(inode) })
    }

    /// Whether recovery would have to make a file's directory entry too: neither the last checkpoint nor an
    /// fsync since has it.
    pub(crate) fn needs_dentry_mark(&self, inode: &Inode) -> Result<bool> {
        let entry = self.nat.peek(&self.io, inode.ino)?;
        Ok(!entry.checkpointed && !entry.fsynced_inode)
    }

    /// Whether a file may be found after a crash: it is in the last checkpoint, or was fsynced since, or is
    /// being fsynced.
    pub(crate) fn may_be_durable(&self, inode: &Inode) -> bool {
        inode.wb.is_locked()
            || self.nat.peek(&self.io, inode.ino).map_or(true, |e| e.checkpointed || e.fsynced_inode)
    }
}

/// Whether an inode, with one link, says that this is its name, and has said so since before the last checkpoint.
pub(crate) fn names_rightly(r: &RawInode, parent: Ino, name: &[u8]) -> bool {
    r.i_pino.get() == parent && file_class::is_named(r, name) && !r.advise().contains(Advise::LOST_PINO)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loser(ino: Ino) -> UnlinkedFile {
        UnlinkedFile { ino, inode: Weak::new() }
    }

    /// What is wanted of directory 3: files, and names that are gone.
    pub(crate) fn required(log: &NameJournal) -> Option<(Vec<RequiredFile>, Vec<Ino>)> {
        let required = log.required(3)?;
        Some((required.files, required.gone.into_iter().map(|(_, loser)| loser.ino).collect()))
    }

    fn sure(ino: Ino) -> RequiredFile {
        RequiredFile { ino, if_alive: false }
    }

    #[test]
    fn names_that_come_and_go() {
        let log = NameJournal::new(true, Arc::default());
        assert_eq!(required(&log), Some((vec![], vec![])), "nothing changed");
        let make = |name: &[u8], ino| {
            log.changed(3);
            log.made(3, name, ino);
        };
        let lose = |name: &[u8], durable: Option<Ino>| {
            log.changed(3);
            log.lost(3, name, || durable.map(loser));
        };
        make(b"a", 10);
        assert_eq!(required(&log), Some((vec![sure(10)], vec![])));
        lose(b"a", None);
        assert_eq!(required(&log), Some((vec![], vec![])), "never durable");
        make(b"a", 11);
        lose(b"a", Some(11));
        assert_eq!(required(&log), Some((vec![], vec![11])), "roll-forward would bring it back");
        make(b"a", 12);
        assert_eq!(required(&log), Some((vec![sure(12)], vec![])), "which replaces it");
        lose(b"a", Some(12));
        assert_eq!(required(&log), Some((vec![], vec![11, 12])));
        log.recorded(3, &[(b"a".to_vec(), loser(11)), (b"a".to_vec(), loser(12))]);
        assert_eq!(required(&log), Some((vec![], vec![])));
        log.changed(3);
        assert!(required(&log).is_none(), "a change that is not explained");
        log.committed();
        (20..20 + MOST_LOSERS as Ino).for_each(|ino| lose(b"b", Some(ino)));
        assert_eq!(required(&log).map(|(_, gone)| gone.len()), Some(MOST_LOSERS));
        lose(b"b", Some(40));
        assert!(required(&log).is_none(), "too many of them");
    }

    #[test]
    fn a_renamed_file_is_wanted_in_both_directories() {
        let log = NameJournal::new(true, Arc::default());
        let rename = |from: (Ino, &[u8]), to: (Ino, &[u8]), durable| {
            log.changed(from.0);
            log.changed(to.0);
            log.moved(&Move { ino: 10, from, to, durable, name_recorded: true, over_durable: None });
        };
        let files = |dir| log.required(dir).map(|required| required.files);
        rename((3, b"a"), (4, b"b"), true);
        assert_eq!((files(3), files(4)), (Some(vec![sure(10)]), Some(vec![sure(10)])));
        assert_eq!((log.recoverable_by_inode(10), log.recoverable_by_inode(11)), (true, false));
        log.changed(3);
        log.made(3, b"a", 11);
        assert_eq!(files(3), Some(vec![RequiredFile { ino: 10, if_alive: true }, sure(11)]));
        log.committed();
        rename((3, b"c"), (3, b"d"), false);
        assert_eq!(files(3), Some(vec![sure(10)]), "the old name was never durable");
        log.changed(3);
        assert_eq!(files(3), None);
        log.committed();
        assert!(!log.recoverable_by_inode(10));
    }

    #[test]
    fn a_file_that_came_over_a_durable_one_and_went_on_uncovers_it() {
        let log = NameJournal::new(true, Arc::default());
        let rename = |from: (Ino, &[u8]), to: (Ino, &[u8]), over: Option<Ino>| {
            log.changed(from.0);
            log.changed(to.0);
            let over_durable = over.map(loser);
            log.moved(&Move { ino: 10, from, to, durable: true, name_recorded: true, over_durable });
        };
        rename((3, b"new"), (3, b"a"), Some(9));
        assert!(log.recoverable_by_inode(10), "it has the name");
        assert_eq!(required(&log), Some((vec![sure(10), sure(10)], vec![])));
        rename((3, b"a"), (4, b"a"), None);
        assert_eq!(required(&log).map(|(_, gone)| gone), Some(vec![9]), "roll-forward would show it again");
        assert!(!log.recoverable_by_inode(10) && log.exposes_stale_name(10));
        log.committed();
        assert!(!log.exposes_stale_name(10));
        // One that left the name, and is not durable with another yet.
        let leave = |ino| {
            (0..2).for_each(|_| log.changed(3));
            let (from, to) = ((3, &b"t"[..]), (3, &b"d"[..]));
            log.moved(&Move { ino, from, to, durable: true, name_recorded: true, over_durable: None });
        };
        leave(20);
        leave(21);
        assert!(!log.exposes_stale_name(20) && log.exposes_stale_name(21));
        log.committed();
        leave(20);
        log.settled(20);
        leave(21);
        assert!(!log.exposes_stale_name(21), "the other is durable by its new name");
    }

    #[test]
    fn too_many_names_are_not_explained() {
        let log = NameJournal::new(true, Arc::default());
        for n in 0..=MOST_NAMES as u32 {
            log.changed(3);
            log.made(3, &n.to_le_bytes(), n);
        }
        assert!(required(&log).is_none());
    }

    #[test]
    fn nothing_is_noted_where_nobody_asks() {
        let log = NameJournal::new(false, Arc::default());
        log.changed(3);
        log.made(3, b"a", 10);
        log.lost(3, b"b", || panic!("nobody needs to know"));
        assert!(log.dirs.lock().is_empty());
    }
}
