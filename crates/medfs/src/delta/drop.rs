//! Letting deltas go: where their pages go, are written as a whole, or have to be.
//!
//! Invariant: before the block of a page goes, those other pages of its file are whole that are made from it.
//! Locks: the inode's, exclusive, and the operation lock.

use super::layer::DeltaPages;
use super::zone::may_have_one;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use std::ops::Range;
use std::sync::Arc;

impl DeltaPages<'_> {
    /// Takes a page's delta away and makes the page dirty, to be written as a whole before its inode is
    /// without the delta.
    pub(crate) fn make_whole(&self, inode: &Arc<Inode>, state: &mut InodeState, index: u64) -> Result<()> {
        let Some(record) = self.delta_of(inode, index)? else {
            self.refs.drop_pages(inode.ino, index..index + 1);
            return Ok(());
        };
        self.load_whole(inode, state, &record)?;
        self.drop_deltas(inode, state, index..index + 1)
    }

    /// Makes pages whole whose sources are to go. A page that cannot be read is lost already: its record
    /// stays, and makes it an error.
    pub(crate) fn make_whole_or_give_up(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: &[u64],
    ) -> Result<()> {
        for &page in pages {
            match self.make_whole(inode, state, page) {
                Err(e) if self.is_damage(&e) => self.give_up(inode.ino, &[page], &e),
                made => made?,
            }
        }
        Ok(())
    }

    /// Forgets the deltas of pages: of those that go, get other blocks, or are their blocks.
    pub(crate) fn drop_deltas(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: Range<u64>,
    ) -> Result<()> {
        if !self.is_delta_volume() {
            return Ok(());
        }
        if self.has_compact(inode)
            && let Err(e) = self.compact().compact_pages_in(inode, &pages)
        {
            self.refs.drop_pages(inode.ino, pages.clone());
            return if self.is_damage(&e) { self.zone(inode).mask(&pages, e) } else { Err(e) };
        }
        self.zone(inode).remove(&pages)?;
        self.refs.drop_pages(inode.ino, pages.clone());
        if self.has_compact(inode) { self.compact().drop_compact(inode, state, &pages) } else { Ok(()) }
    }

    /// Before the blocks of a range of pages go: makes those other pages of the file whole that are made from them.
    pub(crate) fn free_own_users(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: &Range<u64>,
    ) -> Result<()> {
        for dependent in self.refs.own(inode.ino, pages.clone()) {
            if pages.contains(&dependent) {
                continue;
            }
            let record = self.delta_of(inode, dependent);
            let record = self.pass_by("a page is lost: its delta cannot be read", inode.ino, record)?;
            if let Some(record) = record.flatten() {
                let loaded = self.load_whole(inode, state, &record);
                self.pass_by(
                    "a page is lost: a block that it is rebuilt from cannot be read",
                    inode.ino,
                    loaded,
                )?;
                self.refs.drop_pages(inode.ino, dependent..dependent + 1);
            }
        }
        Ok(())
    }

    /// Takes away what an empty file keeps of deltas: blocks of compact pages, and an area larger than usual.
    /// The caller is one that may free nodes ([`Content::change_alone`]).
    pub(crate) fn leave_deltas(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        if !self.is_delta_volume() || !may_have_one(inode) {
            return Ok(());
        }
        self.drop_deltas(inode, state, 0..u64::MAX)?;
        self.compact().leave_compact(inode, state)?;
        self.zone(inode).remove_area()
    }
}
