//! Folding: every page that is a delta is written as a whole, and the zones go.
//!
//! Invariants: a page is written to a new block, and its inode without the delta becomes durable with it, by
//! a checkpoint (see `make_whole` of [`crate::delta`]); until then base and delta are what the last
//! checkpoint names. A delta that does not rebuild its page ends the work with an error: it never becomes its
//! base.
//! Locks: those of a writeback, file by file.

use crate::error::{Error, Posix, Result};
use crate::file_ops::FileOps;
use crate::map::inode::Inode;
use medfs_format::Ino;
use medfs_format::node::FileKind;
use serde::Serialize;
use std::sync::Arc;

/// What was folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Folded {
    /// Inodes of the volume.
    pub inodes: u64,
    /// Files that had deltas.
    pub files: u64,
    /// Pages written as a whole.
    pub pages: u64,
}

impl FileOps {
    /// Folds the deltas of all files; what is hidden stays. `progress` is told how many inodes of how many are done.
    pub(crate) fn fold_deltas(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<Folded> {
        if self.deltas.makes_records() {
            return Err(Error::Invalid(
                "deltas are folded on a volume that makes none: open it with delta=off".into(),
            ));
        }
        let total = u64::from(self.space.counts().valid_inodes);
        let mut folded = Folded::default();
        for ino in self.nat.inodes(&self.io, self.geo.root_ino) {
            let pages = match self.fold_file(ino?) {
                // It was kept as a base, and is free since nothing is made from it any more.
                Err(Error::Posix(Posix::Stale)) => 0,
                pages => pages?,
            };
            folded.inodes += 1;
            folded.files += u64::from(pages > 0);
            folded.pages += pages;
            progress(folded.inodes, total);
        }
        Ok(folded)
    }

    /// Folds the deltas of one file; returns how many.
    fn fold_file(&self, ino: Ino) -> Result<u64> {
        let inode = self.inode(ino)?;
        if inode.kind() != FileKind::Regular {
            return Ok(0);
        }
        let pages = self.make_all_whole(&inode)?;
        if pages > 0 {
            self.write_back(&inode)?;
        }
        self.change_settled(&inode, |_| self.deltas().zone(&inode).remove_area())?;
        Ok(pages)
    }

    fn make_all_whole(&self, inode: &Arc<Inode>) -> Result<u64> {
        self.change_settled(inode, |state| {
            let pages = self.deltas().delta_pages(inode, 0..u64::MAX)?;
            self.deltas().compact().leave_compact(inode, state)?;
            for &page in &pages {
                self.deltas().make_whole(inode, state, page)?;
            }
            Ok(pages.len() as u64)
        })
    }
}
