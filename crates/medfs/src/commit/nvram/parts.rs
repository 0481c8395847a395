//! What pages of a database's journal or log are nearly made of, for records in NVRAM: parts of the
//! database's blocks, and of frames that older records have.
//!
//! A slice ([`crate::xref::sqlite_wal`]) names a page of the database, which must then stay what it is for as
//! long as the log has it. A part names a block, and only until the next checkpoint, before which no block
//! gets other content: it matters neither whether the database's page is dirty nor what becomes of it.
//!
//! Invariant: a block is noted as one that a record starts from before it is looked at, while nobody writes
//! pages of its file. Locks: called with the inode's lock held; those of the database are tried and never
//! waited for.

use super::recorder::Recorder;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::xref::sqlite_layout::PageCopy;
use crate::xref::sqlite_wal::CopiedPages;
use medfs_format::delta::RawSlice;
use medfs_format::nvram::{MAX_PARTS, PartOf, RawPart};
use medfs_format::{Block, BlockAddr, NULL_ADDR, is_block};
use std::sync::Arc;

/// What a page is nearly made of.
pub(super) struct Parts {
    pub(super) parts: Vec<RawPart>,
    /// What they make: zeros where there is none.
    pub(super) made: Box<Block>,
    /// The device's write mark behind their blocks.
    pub(super) mark: u64,
}

impl Parts {
    fn add(&mut self, slice: &RawSlice, of: PartOf, content: &Block) {
        let Some((from, to)) = slice.ranges() else { return };
        self.made.0[to].copy_from_slice(&content.0[from]);
        self.parts.push(RawPart::new(of, slice.from.get(), slice.to.get(), slice.len.get()));
    }
}

/// A file whose page is to be made of parts.
pub(super) struct Whose<'a, R: Fn(u64) -> Option<Arc<Block>>> {
    pub(super) inode: &'a Arc<Inode>,
    pub(super) state: &'a InodeState,
    /// A page of it as records have it before the one that is made.
    pub(super) recorded: R,
}

impl Recorder<'_> {
    /// Parts that a page of a journal or log repeats; `None` of other files, and where there is none.
    pub(super) fn parts_repeated<R: Fn(u64) -> Option<Arc<Block>>>(
        &self,
        whose: &Whose<'_, R>,
        index: u32,
    ) -> Result<Option<Parts>> {
        let files = (whose.inode, self.tree.companion(whose.inode));
        let Some(repeated) = CopiedPages::of(self.tree, files, whose.state, index)? else {
            return Ok(None);
        };
        let mut found = Parts { parts: Vec::new(), made: Block::boxed(), mark: whose.state.data_mark };
        for &copy in &repeated.copies {
            if !self.add_frame(whose, &repeated, copy, index, &mut found)? {
                self.add_of_database(&repeated, copy, index, &mut found)?;
            }
        }
        let few = !found.parts.is_empty() && found.parts.len() <= MAX_PARTS;
        Ok(few.then_some(found))
    }

    /// Adds parts of the last frame of the same page; `false` where there is none, or not all of it is known.
    fn add_frame<R: Fn(u64) -> Option<Arc<Block>>>(
        &self,
        whose: &Whose<'_, R>,
        repeated: &CopiedPages,
        copy: PageCopy,
        index: u32,
        found: &mut Parts,
    ) -> Result<bool> {
        let Some(at) = repeated.last_frame(whose.inode, copy) else { return Ok(false) };
        let mut of_frame = Vec::new();
        for slice in repeated.slices(copy, index, (whose.inode.ino, at)) {
            let page = u64::from(slice.page.get());
            if let Some(content) = (whose.recorded)(page) {
                of_frame.push((slice, PartOf::Page(slice.page.get()), content));
            } else if let Some(addr) = self.clean_block(whose, page)? {
                self.tree.since.in_nvram.note([addr]);
                of_frame.push((slice, PartOf::Block(addr), self.tree.base(addr)?));
            } else {
                return Ok(false);
            }
        }
        of_frame.iter().for_each(|(slice, of, content)| found.add(slice, *of, content));
        Ok(!of_frame.is_empty())
    }

    /// The block of a page that is not dirty.
    fn clean_block<R: Fn(u64) -> Option<Arc<Block>>>(
        &self,
        whose: &Whose<'_, R>,
        page: u64,
    ) -> Result<Option<BlockAddr>> {
        match whose.state.pages.is_dirty(page) {
            true => Ok(None),
            false => self.block_of(whose.inode, page),
        }
    }

    fn add_of_database(
        &self,
        repeated: &CopiedPages,
        copy: PageCopy,
        index: u32,
        found: &mut Parts,
    ) -> Result<()> {
        let database = &repeated.database;
        let (Some(_wb), Some(guard)) = (database.wb.try_lock(), database.lock.try_read()) else {
            return Ok(());
        };
        if guard.dead {
            return Ok(());
        }
        found.mark = found.mark.max(guard.data_mark);
        for slice in repeated.slices_of_database(copy, index) {
            if let Some(addr) = self.block_of(database, slice.page.get().into())? {
                self.tree.since.in_nvram.note([addr]);
                found.add(&slice, PartOf::Block(addr), &*self.tree.base(addr)?);
            }
        }
        Ok(())
    }

    fn block_of(&self, inode: &Inode, page: u64) -> Result<Option<BlockAddr>> {
        let addr = self.tree.find_slot(inode, page)?.map_or(NULL_ADDR, |slot| slot.addr());
        Ok(Some(addr).filter(|&addr| is_block(addr) && self.tree.geo.in_main(addr)))
    }
}
