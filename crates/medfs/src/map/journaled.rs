//! What records in NVRAM say of the volume since the last checkpoint: pages of files, and the blocks that
//! they start from.
//!
//! Invariant: a page is in the table from the first record that holds it until one revokes it, the
//! roll-forward log makes its file durable, or a checkpoint makes all records void, whether its inode stays
//! in memory or not. Its version is that of the latest record, as long as it is dirty. Locks: two leaves. Who
//! changes pages of a file holds its lock.

use medfs_format::{Block, BlockAddr, Ino};
use medfs_sync::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Checkpoints in a row that fail, as a page that is away cannot be read, before such pages are given up.
const MOST_REFUSED: u32 = 3;

/// Pages of a file that records hold.
pub(crate) type Pages = BTreeMap<u64, Option<Arc<Block>>>;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct InNvram {
    /// Whether there is any record that a checkpoint has not made void.
    any: AtomicBool,
    /// Checkpoints that made records void.
    epoch: AtomicU64,
    /// Number of the next record.
    next: AtomicU64,
    /// Checkpoints in a row that were not made, as a page that is away could not be read.
    refused: AtomicU32,
    bases: Mutex<HashSet<BlockAddr>>,
    files: Mutex<Files>,
}

#[derive(Debug, Default)]
struct Files {
    pages: HashMap<Ino, Pages>,
    /// How many there are of all files.
    count: u64,
    /// Of files whose pages older records do not count for: the first record that may.
    counts_from: HashMap<Ino, u64>,
}

impl Files {
    fn change<R>(&mut self, ino: Ino, f: impl FnOnce(&mut Pages) -> R) -> R {
        let pages = self.pages.entry(ino).or_default();
        let before = pages.len() as u64;
        let result = f(pages);
        self.count = self.count + pages.len() as u64 - before;
        if pages.is_empty() {
            self.pages.remove(&ino);
        }
        result
    }
}

impl InNvram {
    /// A record is made that starts from these blocks.
    pub(crate) fn note(&self, bases: impl IntoIterator<Item = BlockAddr>) {
        self.any.store(true, Ordering::Release);
        self.bases.lock().extend(bases);
    }

    /// Whether a checkpoint would make records void.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// How many checkpoints have made records void.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Whether a record starts from a block.
    pub(crate) fn needs(&self, addr: BlockAddr) -> bool {
        self.any() && self.bases.lock().contains(&addr)
    }

    /// Looks at, or changes, what records hold of a file.
    pub(crate) fn of<R>(&self, ino: Ino, f: impl FnOnce(&mut Pages) -> R) -> R {
        self.files.lock().change(ino, f)
    }

    /// Pages that records hold.
    pub(crate) fn pages(&self) -> u64 {
        self.files.lock().count
    }

    /// A record was made, before the one of this number.
    pub(crate) fn recorded(&self, next: u64) {
        self.next.store(next, Ordering::Release);
    }

    /// The first record whose word on pages of a file counts.
    pub(crate) fn counts_from(&self, ino: Ino) -> u64 {
        self.files.lock().counts_from.get(&ino).copied().unwrap_or(0)
    }

    /// A page is not dirty any more: its version need not be kept.
    pub(crate) fn left(&self, ino: Ino, index: u64) {
        if !self.any() {
            return;
        }
        let mut files = self.files.lock();
        if let Some(version) = files.pages.get_mut(&ino).and_then(|pages| pages.get_mut(&index)) {
            *version = None;
        }
    }

    /// A page that was away is in memory again, as the last record has it.
    pub(crate) fn came_back(&self, ino: Ino, index: u64, page: &Arc<Block>) {
        if let Some(version) = self.files.lock().pages.get_mut(&ino).and_then(|pages| pages.get_mut(&index)) {
            *version = Some(page.clone());
        }
    }

    /// Whether records hold pages of a file.
    pub(crate) fn holds(&self, ino: Ino) -> bool {
        self.files.lock().pages.contains_key(&ino)
    }

    /// Pages of a file that records have and memory, too: those from `first` on before the others.
    pub(crate) fn versions_from(&self, ino: Ino, first: u64) -> Vec<(u64, Arc<Block>)> {
        let files = self.files.lock();
        let Some(pages) = files.pages.get(&ino) else { return Vec::new() };
        let in_turn = pages.range(first..).chain(pages.range(..first));
        in_turn.filter_map(|(&index, version)| Some((index, version.clone()?))).collect()
    }

    /// A file is gone, which no record says: after power loss it may be back, and records count for it.
    pub(crate) fn gone(&self, ino: Ino) {
        if self.any() {
            self.files.lock().change(ino, Pages::clear);
        }
    }

    /// The roll-forward log made all of a file durable.
    pub(crate) fn superseded(&self, ino: Ino) {
        if self.any() {
            let mut files = self.files.lock();
            files.change(ino, Pages::clear);
            files.counts_from.insert(ino, self.next.load(Ordering::Acquire));
        }
    }

    /// A checkpoint finds a page that is away and cannot be read. Whether enough did before.
    pub(crate) fn is_refused_again(&self) -> bool {
        self.refused.fetch_add(1, Ordering::AcqRel) >= MOST_REFUSED
    }

    /// A checkpoint made all records void.
    pub(super) fn committed(&self) {
        self.any.store(false, Ordering::Release);
        self.refused.store(0, Ordering::Release);
        self.epoch.fetch_add(1, Ordering::AcqRel);
        self.bases.lock().clear();
        *self.files.lock() = Files::default();
    }
}
