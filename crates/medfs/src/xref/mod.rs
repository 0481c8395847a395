//! Cross references: blocks of one file that pages of other files are made from.
//!
//! Purpose: which blocks are needed by whom, kept across mounts; what recognises such pages (logs and journals of SQLite, files
//! written to replace others). How a file is made independent again is in [`crate::delta`].
//! Invariant: a block that another file needs is neither freed nor overwritten before that file is durable without it.
//! Locks: leaves; see `fs/mod.rs`.

pub(crate) mod predecessor;
pub(crate) mod ref_index;
pub(crate) mod retained;
pub(crate) mod sqlite_layout;
pub(crate) mod sqlite_wal;

use crate::content::record::OwnedRecord;
use crate::content::storage::Sources;
use crate::error::Result;
use crate::fs::Fs;
use crate::map::inode::{Inode, InodeState};
use medfs_format::Block;
use std::sync::Arc;

impl Sources for Fs {
    fn record_of(
        &self,
        inode: &Arc<Inode>,
        state: &InodeState,
        index: u32,
        page: &Block,
        new: bool,
    ) -> Result<Option<(OwnedRecord, u64)>> {
        const LOST: &str = "a page is not compared with a block that cannot be read";
        let repeat = self.encode_repeat(inode, state, index, page);
        let repeat = self.pass_by(LOST, inode.ino, repeat)?.flatten();
        if repeat.is_some() || !new {
            return Ok(repeat);
        }
        let replacement = self.encode_replacement(inode, state, index, page);
        Ok(self.pass_by(LOST, inode.ino, replacement)?.flatten())
    }

    fn placed_whole(&self, inode: &Inode, state: &InodeState, index: u64) -> Result<()> {
        self.note_whole(inode, state, index)
    }
}
