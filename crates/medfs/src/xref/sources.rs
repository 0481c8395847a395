//! What content asks of other files when it writes a page.

use crate::content::record::OwnedRecord;
use crate::content::storage::Sources;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::xref::Xref;
use medfs_format::Block;
use std::sync::Arc;

impl Sources for Xref {
    fn staging(&self, inode: &Inode) {
        self.find_companion(inode);
    }

    fn record_of(
        &self,
        inode: &Arc<Inode>,
        state: &InodeState,
        index: u32,
        page: &Block,
        new: bool,
    ) -> Result<Option<(OwnedRecord, u64)>> {
        const LOST: &str = "a page is not compared with a block that cannot be read";
        let companion = self.companion(inode);
        let repeat = self.encode_repeat((inode, companion.as_ref()), state, index, page);
        let repeat = self.pass_by(LOST, inode.ino, repeat)?.flatten();
        if repeat.is_some() || !new {
            return Ok(repeat);
        }
        let replacement = self.encode_replacement((inode, companion.as_ref()), state, index, page);
        Ok(self.pass_by(LOST, inode.ino, replacement)?.flatten())
    }

    fn record_like(
        &self,
        inode: &Arc<Inode>,
        state: &InodeState,
        index: u32,
        page: &Block,
        most: usize,
    ) -> Result<Option<OwnedRecord>> {
        const LOST: &str = "a page is not compared with a block that cannot be read";
        let like = self.encode_like(inode, state, index, page, most);
        Ok(self.pass_by(LOST, inode.ino, like)?.flatten())
    }

    fn placed_whole(&self, inode: &Inode, state: &InodeState, index: u64) -> Result<()> {
        self.note_likeness(inode, state, index);
        self.note_whole(inode, state, index)
    }
}
