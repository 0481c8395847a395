//! BGRes: pages of files that are read often, not written, and stored as deltas or compressed alone become blocks again
//! (MedFS, section 4.2.1).
//!
//! A round begins when the groups of hotness were made anew: it lists the files that have such pages. Each step of idle
//! work goes on in the list and judges each file when its turn comes.
//!
//! Invariants: a page goes to a new block, and its base stays until a checkpoint has made the inode without the delta
//! durable, as [`Fs::make_whole`] arranges: a crash shows the same content either way. A file that cannot be restored
//! (damage, want of space) stays as it is and hinders no other.
//! Locks: `pending` is a leaf; files are written back as in [`crate::writeback`].

use crate::error::{Error, Result};
use crate::fs::Fs;
use crate::hotness::Hotness;
use crate::idle::Did;
use crate::inode::{Inode, InodeState};
use crate::placement::Purpose;
use crate::stats::{Counters, RestoreStats};
use medfs_device::Cause;
use medfs_format::Ino;
use medfs_format::node::FileKind;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What restoring remembers.
#[derive(Debug, Default)]
pub(crate) struct Restorer {
    /// Files of this round that are yet to be judged.
    pending: Mutex<VecDeque<Ino>>,
    rounds: AtomicU64,
    files: AtomicU64,
    pages: AtomicU64,
}

impl Restorer {
    pub(crate) fn stats(&self) -> RestoreStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RestoreStats { rounds: get(&self.rounds), files: get(&self.files), pages: get(&self.pages) }
    }
}

impl Fs {
    fn restores(&self) -> bool {
        self.opts.restore && self.deltas.makes_records()
    }

    /// Begins a round; what is left of the last one is listed again.
    pub(crate) fn begin_restoring(&self) {
        if self.restores() {
            let files = self.files_with_compact_pages();
            *self.restorer.pending.lock() = files.into();
            Counters::add(&self.restorer.rounds, 1);
        }
    }

    /// Judges files and restores about `budget` pages, until the round ends or something is wanted of the volume.
    pub(crate) fn restore_some(&self, budget: u64, did: &mut Did) -> Result<()> {
        while self.restores() && did.pages_restored < budget && !self.activity.is_noted() {
            let Some(ino) = self.restorer.pending.lock().pop_front() else { break };
            did.files_judged += 1;
            if self.hotness.of(ino) != Hotness::ReadHot {
                continue;
            }
            let pages = match self.restore_file(ino) {
                Ok(pages) => pages,
                Err(e @ (Error::Corrupt(_) | Error::NoSpace | Error::Posix(_))) => {
                    tracing::warn!(ino, error = %e, "a file keeps its deltas, as it cannot be restored");
                    continue;
                }
                Err(e) => return Err(e),
            };
            did.files_restored += u64::from(pages > 0);
            did.pages_restored += pages;
            Counters::add(&self.restorer.files, u64::from(pages > 0));
            Counters::add(&self.restorer.pages, pages);
        }
        Ok(())
    }

    /// Files that have pages to restore: those in memory, where every file is that was read lately.
    fn files_with_compact_pages(&self) -> Vec<Ino> {
        let mut files: Vec<Ino> = self
            .inodes
            .loaded()
            .iter()
            .filter(|inode| inode.kind() == FileKind::Regular && self.has_deltas(inode))
            .map(|inode| inode.ino)
            .collect();
        files.sort_unstable();
        files
    }

    /// Writes each page of a file that is a delta to a block of its own, or its cluster anew; returns how many blocks that took.
    pub(crate) fn restore_file(&self, ino: Ino) -> Result<u64> {
        let inode = self.inode(ino)?;
        self.check_writable()?;
        self.make_room()?;
        let _wb = inode.wb.lock();
        let _op = self.op()?;
        let mut state = inode.lock.write();
        inode.check_alive(&state)?;
        if self.is_released(&inode) {
            return Ok(0);
        }
        let mut pages = self.delta_pages(&inode, 0..u64::MAX)?;
        // What others are made from would take them along.
        pages.retain(|&page| !self.dependents.is_source(ino, page));
        let whole = pages.iter().try_for_each(|&page| self.make_whole(&inode, &mut state, page));
        let left = self.leave_emptied(&inode, &mut state);
        let placing = self.place_pages(&inode, &mut state, &pages, Purpose::Restore);
        let restored = placing.pages.len() as u64;
        drop(state);
        let written = self.write_placing(&inode, placing, Cause::Data);
        written.and(whole).and(left)?;
        Ok(restored)
    }

    /// Frees the compact pages of a file that has no deltas any more: who reads it would have to read them.
    fn leave_emptied(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        match self.delta_pages(inode, 0..u64::MAX)?.is_empty() {
            true => self.leave_compact(inode, state),
            false => Ok(()),
        }
    }
}
