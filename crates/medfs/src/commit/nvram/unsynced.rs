//! Records of what nobody synced: every `nvram_commit`, where records can hold it without a block being written. What
//! they cannot hold waits for the next checkpoint, as without NVRAM. Where they hold all, the option `commit` needs
//! none.
//!
//! Locks: called with none held.

use super::NvramJournal;
use crate::commit::Commit;
use crate::commit::change_set::{ChangeSet, Naming, Request};
use crate::commit::recoverable_names::NameJudge;
use crate::content::placement::Purpose;
use crate::error::Result;
use crate::map::inode::Inode;
use medfs_format::Ino;
use medfs_format::node::FileKind;
use medfs_store::Dirty;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Most files of a record.
const MOST_TOGETHER: usize = 16;

impl Commit {
    /// Whether changes that nobody synced are to be recorded.
    pub(crate) fn records_are_due(&self, now: Duration) -> bool {
        let Some(nvram) = &self.ways.nvram else { return false };
        nvram.unsynced_are_due(now, self.opts.nvram_commit)
    }

    /// Records changes of regular files that nobody synced.
    pub(crate) fn record_unsynced(&self) -> Result<()> {
        let Some(nvram) = &self.ways.nvram else { return Ok(()) };
        nvram.unsynced_recorded(self.clock.monotonic());
        self.record_due(nvram, Dirty::Full).map(drop)
    }

    /// Where the commit interval has passed: records what a checkpoint would make durable, and tells whether records
    /// then hold all of what waited. What comes meanwhile waits for the next interval. What changed of a directory
    /// they do not hold.
    pub(crate) fn records_hold_all(&self) -> Result<bool> {
        let now = self.clock.monotonic();
        let Some(nvram) = self.ways.nvram.as_ref().filter(|_| self.since.in_nvram.any()) else {
            return Ok(false);
        };
        if !nvram.unsynced_are_due(now, Duration::ZERO) || !self.since.moved_names.lock().is_empty() {
            return Ok(false);
        }
        let with_pages = self.inodes.dirty().into_iter().map(|inode| inode.ino);
        let waiting: Vec<Ino> = self.nodes.inodes_to_commit().into_iter().chain(with_pages).collect();
        let held = self.record_due(nvram, Dirty::Tick)?;
        let all = waiting.iter().all(|ino| held.contains(ino));
        if all {
            nvram.ring.all_is_held(now);
        }
        Ok(all)
    }

    /// Records changes of regular files whose inodes are due with at least this mark, or whose pages are dirty. Returns
    /// those that records hold.
    fn record_due(&self, nvram: &NvramJournal, least: Dirty) -> Result<BTreeSet<Ino>> {
        let due =
            self.nodes.inodes_due(least).into_iter().chain(self.inodes.dirty().into_iter().map(|i| i.ino));
        let due: BTreeSet<Ino> = due.collect();
        // The list of what files need of each other is no user's file, and is made anew where it is missing.
        let wanted =
            |file: &Arc<Inode>| file.kind() == FileKind::Regular && !self.hiding().contains(file.ino);
        // What is gone meanwhile, or cannot be read, is left out.
        let files: Vec<_> = due.into_iter().filter_map(|ino| self.inode(ino).ok()).filter(wanted).collect();
        let mut held = BTreeSet::new();
        for some in files.chunks(MOST_TOGETHER) {
            self.check_writable()?;
            if !self.record_together(nvram, some, &mut held)? && some.len() > 1 {
                // One that does not fit keeps no other from it.
                for file in some {
                    self.record_together(nvram, std::slice::from_ref(file), &mut held)?;
                }
            }
        }
        Ok(held)
    }

    /// Records some files, sorted by number, whose names are in nothing's way, and adds them to those that are `held`.
    /// `false`: no record holds them.
    fn record_together(
        &self,
        nvram: &NvramJournal,
        files: &[Arc<Inode>],
        held: &mut BTreeSet<Ino>,
    ) -> Result<bool> {
        // A name that another file had would have to be settled first, which may take blocks.
        let judge = NameJudge { commit: self };
        let plain = |inode: &&Arc<Inode>| self.since.moved_names.lock().is_empty() && judge.is_plain(inode);
        let purpose = Purpose::Fsync { datasync: false };
        let requests: Vec<Request<'_>> = files
            .iter()
            .filter(plain)
            .map(|inode| Request { inode, purpose, naming: Naming::AsItWas })
            .collect();
        let (mut set, _) = ChangeSet::of_files(self, &requests)?;
        set.ask(self, &*self.ways.sink);
        set.files.retain(|file| file.refused.is_none());
        let all: Vec<Ino> = set.files.iter().map(|file| file.inode.ino).collect();
        set.files.retain(|file| file.dirty);
        let before = nvram.records();
        let recorded = set.files.is_empty() || nvram.record(self, &set, false)?.is_ok();
        if nvram.records() > before {
            nvram.note_unsynced();
        }
        if recorded {
            held.extend(all);
        }
        Ok(recorded)
    }
}
