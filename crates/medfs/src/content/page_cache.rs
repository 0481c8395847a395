//! Clean pages of all files in one bounded cache. Dirty pages live with their inode.
//!
//! Invariant: a cached page equals what the file's address (or hole) holds; whoever changes an address or content
//! holds the inode's lock and removes or replaces the page here.

use crate::map::page_versions::Held;
use medfs_format::{Block, Ino};
use medfs_store::{Cache, cache};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

pub(crate) struct Pages {
    clean: Cache<(Ino, u64), Arc<Block>>,
    capacity: usize,
    dirty: AtomicUsize,
    in_memory: AtomicUsize,
    away: AtomicUsize,
    changed: AtomicU64,
    placed: AtomicU64,
    pub(crate) hits: AtomicU64,
    pub(crate) misses: AtomicU64,
}

impl Pages {
    pub(crate) fn new(capacity: usize) -> Pages {
        let capacity = capacity.max(64);
        Pages {
            clean: cache(capacity),
            capacity,
            dirty: AtomicUsize::new(0),
            in_memory: AtomicUsize::new(0),
            away: AtomicUsize::new(0),
            changed: AtomicU64::new(0),
            placed: AtomicU64::new(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
        }
    }

    pub(crate) fn get(&self, ino: Ino, index: u64) -> Option<Arc<Block>> {
        let page = self.clean.get(&(ino, index));
        let counter = if page.is_some() { &self.hits } else { &self.misses };
        counter.fetch_add(1, Ordering::Relaxed);
        page
    }

    pub(crate) fn insert(&self, ino: Ino, index: u64, page: Arc<Block>) {
        self.clean.insert((ino, index), page);
    }

    /// Forgets a page, and gives it back.
    pub(crate) fn remove(&self, ino: Ino, index: u64) -> Option<Arc<Block>> {
        self.clean.remove(&(ino, index)).map(|(_, page)| page)
    }

    /// Forgets the pages of a range (`end` exclusive).
    fn remove_range(&self, ino: Ino, start: u64, end: u64) {
        if end.saturating_sub(start) <= self.clean.len() as u64 {
            (start..end).for_each(|i| drop(self.remove(ino, i)));
        } else {
            self.clean.retain(|&(i, index), _| i != ino || index < start || index >= end);
        }
    }

    /// Forgets the pages of a range, of a file that has none outside `has`: so a range without an end takes
    /// no walk through the pages of all files.
    pub(crate) fn remove_within(&self, ino: Ino, range: Range<u64>, has: [Range<u64>; 2]) {
        for pages in has {
            self.remove_range(ino, range.start.max(pages.start), range.end.min(pages.end));
        }
        // A large cache is not walked: that would cost more than all else, even in a build with assertions.
        debug_assert!(
            self.clean.len() > 1024
                || !self.clean.iter().any(|((i, index), _)| i == ino && range.contains(&index)),
            "a page of file {ino} in {range:?} lies where it has none"
        );
    }

    /// A file had such pages dirty, and has these now.
    pub(crate) fn recount(&self, before: Held, now: Held) {
        recount(&self.dirty, before.pages, now.pages);
        recount(&self.in_memory, before.in_memory, now.in_memory);
        recount(&self.away, before.away, now.away);
    }

    /// An operation changes a page.
    pub(crate) fn note_changed(&self) {
        self.changed.fetch_add(1, Ordering::Relaxed);
    }

    /// A dirty page has been written.
    pub(crate) fn note_placed(&self) {
        self.placed.fetch_add(1, Ordering::Relaxed);
    }

    /// Pages changed and placed so far.
    pub(crate) fn changed_and_placed(&self) -> (u64, u64) {
        (self.changed.load(Ordering::Relaxed), self.placed.load(Ordering::Relaxed))
    }

    pub(crate) fn dirty(&self) -> usize {
        self.dirty.load(Ordering::Relaxed)
    }

    /// Pages whose memory the dirty ones take.
    pub(crate) fn in_memory(&self) -> usize {
        self.in_memory.load(Ordering::Relaxed)
    }

    /// Dirty pages that are away.
    pub(crate) fn away(&self) -> usize {
        self.away.load(Ordering::Relaxed)
    }

    pub(crate) fn clean(&self) -> usize {
        self.clean.len()
    }

    /// Pages the cache may hold.
    pub(crate) fn capacity(&self) -> usize {
        self.capacity
    }
}

fn recount(count: &AtomicUsize, before: usize, now: usize) {
    match now >= before {
        true => count.fetch_add(now - before, Ordering::Relaxed),
        false => count.fetch_sub(before - now, Ordering::Relaxed),
    };
}
