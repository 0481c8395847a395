//! Atomic writes: a draft of the file, kept aside until a commit makes it the file, or after a crash nothing.
//!
//! What an atomic write changes, size and content alike, goes into the draft of the file's versions
//! ([`crate::map::page_versions`]): the address map is not touched before the commit. Readers see the draft,
//! as they do in F2FS, where the file has one page cache for all.
//! Invariants: each page of a draft has a block of its own reserved, as the page it replaces stays valid until
//! the commit is durable; so want of room is an error of the write. No block of it is one of the volume's before the
//! commit, so that a crash leaves nothing of it. A commit that fails before the draft is
//! the file leaves it open. Locks: as in [`crate::content::file`].
//! Kernel counterpart: `f2fs_commit_atomic_write`.

use crate::content::Content;
use crate::content::away::AwayPages;
use crate::content::storage::Change;
use crate::error::{Error, Posix, Result};
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::{HeldNodes, Slot};
use crate::map::page_versions::{Draft, PageVersions};
use medfs_format::{BLOCK_SIZE, Block, NEW_ADDR, NULL_ADDR};
use std::ops::Deref;
use std::sync::Arc;

const PAGE: u64 = BLOCK_SIZE as u64;

/// A file that is, or may be, written atomically.
#[derive(Clone, Copy)]
pub(crate) struct AtomicWrite<'a> {
    content: &'a Content,
    inode: &'a Arc<Inode>,
}

impl Deref for AtomicWrite<'_> {
    type Target = Content;

    fn deref(&self) -> &Content {
        self.content
    }
}

impl Content {
    pub(crate) fn atomic_write<'a>(&'a self, inode: &'a Arc<Inode>) -> AtomicWrite<'a> {
        AtomicWrite { content: self, inode }
    }
}

impl AtomicWrite<'_> {
    /// Makes a file ready for an atomic write; `false` where one is open.
    pub(crate) fn get_ready(&self) -> Result<bool> {
        let _op = self.op()?;
        let mut state = self.inode.lock.write();
        self.inode.check_alive(&state)?;
        self.inode.check_regular()?;
        if self.inode.is_pinned() {
            return Err(Posix::InvalidArgument.into());
        }
        self.check_not_released(self.inode)?;
        if state.pages.draft().is_some() {
            return Ok(false);
        }
        self.convert_inline(self.inode, &mut state)?;
        self.before_growth(self.inode, &mut state, self.inode.size())?;
        Ok(true)
    }

    /// Begins an atomic write of a file whose pages are written back.
    pub(crate) fn begin(&self) -> Result<()> {
        let mut state = self.inode.lock.write();
        self.inode.check_alive(&state)?;
        if self.inode.is_pinned() {
            return Err(Posix::InvalidArgument.into());
        }
        self.check_not_released(self.inode)?;
        // Another thread may have begun meanwhile, and written.
        state.pages.begin_draft(self.inode.size());
        Ok(())
    }

    /// Makes the draft the file. Where one of its pages cannot be the file's, or what it cuts off cannot go, the
    /// file is as it was, and the draft stays. No other file needs what is cut off. The nodes that name the pages
    /// are to be held until these are placed: where one had to be read again then, and could not be, a part of
    /// the pages would become durable.
    pub(crate) fn apply(&self, state: &mut InodeState) -> Result<HeldNodes> {
        let held = self.look_ahead(state)?;
        let Some(draft) = self.counted(self.inode.ino, state, PageVersions::take_draft) else {
            return Ok(held);
        };
        let mut before = Vec::with_capacity(draft.pages.len());
        let (mut near, mut filled) = (None, Vec::new());
        for (&index, page) in &draft.pages {
            let old = AwayPages(self).bring_back(self.inode, state, index);
            let changed = old.and_then(|old| {
                let (slot, is_filled) = self.fill_hole(state, index, near.as_ref())?;
                filled.extend(is_filled.then_some(index));
                let change = |block: &mut Block| *block = (**page).clone();
                Ok((self.change_page(self.inode, state, index, Some(&slot), true, change)?.slot, old))
            });
            match changed {
                Ok((slot, old)) => {
                    near = Some(slot);
                    before.push((index, old));
                }
                Err(e) => {
                    self.take_back(state, draft, before, &filled);
                    return Err(e);
                }
            }
        }
        if let Err(e) = self.cut_as_in(&draft, state) {
            // What is cut off has no addresses any more, and none of this must become durable.
            self.io.stop_writing("what an atomic write cuts off could not be freed");
            return Err(e);
        }
        self.space.unstage(draft.reserved() - filled.len() as u64);
        self.touch_modified(self.inode);
        Ok(held)
    }

    /// Gives a page of the draft, where the file has a hole, the block that was reserved for it; the page's slot, and
    /// whether it did.
    fn fill_hole(&self, state: &mut InodeState, index: u64, near: Option<&Slot>) -> Result<(Slot, bool)> {
        let slot = self.make_slot_near(self.inode, near, index)?;
        if slot.addr() != NULL_ADDR {
            return Ok((slot, false));
        }
        let slot = self.slot_for_address(state, index)?;
        self.space.take_staged();
        self.set_addr(self.inode, &slot, NEW_ADDR);
        self.add_blocks(self.inode, 1);
        Ok((slot, true))
    }

    /// The slot of a page that is to get an address, with the nodes that lead there.
    fn slot_for_address(&self, state: &mut InodeState, index: u64) -> Result<Slot> {
        self.storage(self.inode).before(self.content, self.inode, state, Change::Address(index))?;
        self.make_slot(self.inode, index)
    }

    /// Opens the draft again after an error, with the pages that the file had `before`, and the holes that were filled.
    fn take_back(
        &self,
        state: &mut InodeState,
        draft: Draft,
        before: Vec<(u64, Option<Arc<Block>>)>,
        filled: &[u64],
    ) {
        for (index, old) in before {
            match old {
                Some(page) => self.add_dirty_page(self.inode, state, index, page),
                None => self.forget_pages(self.inode, state, index, index + 1),
            }
        }
        for &index in filled {
            // It is in memory, as it was just made.
            if let Ok(Some(slot)) = self.find_slot(self.inode, index)
                && slot.addr() == NEW_ADDR
            {
                self.set_addr(self.inode, &slot, NULL_ADDR);
                self.add_blocks(self.inode, -1);
                self.space.stage_again();
            }
        }
        self.counted(self.inode.ino, state, |pages| pages.put_draft(draft));
    }

    /// Meets damage and errors of reading while nothing of the file has changed: the nodes that lead to the pages
    /// of the draft, and to those that it cuts off, are read and held.
    fn look_ahead(&self, state: &mut InodeState) -> Result<HeldNodes> {
        let first = state.pages.draft().map_or(u64::MAX, Draft::first_cut);
        let mut held = match first < self.inode.pages() {
            true => self.before_leaving(self.inode, state, first..u64::MAX)?,
            false => HeldNodes::default(),
        };
        for &index in state.pages.draft().iter().flat_map(|draft| draft.pages.keys()) {
            self.check_addrs(self.inode, index..index + 1, &mut held, usize::MAX)?;
        }
        Ok(held)
    }

    /// Cuts off what a draft, whose pages are the file's by now, does not show, and gives the file its size.
    fn cut_as_in(&self, draft: &Draft, state: &mut InodeState) -> Result<()> {
        let (mut from, end) = (draft.first_cut(), self.inode.pages().min(draft.size.div_ceil(PAGE)));
        for &index in draft.pages.range(from..end.max(from)).map(|(index, _)| index) {
            if from < index {
                self.drop_page_run(self.inode, state, from..index)?;
            }
            from = index + 1;
        }
        if from < end {
            self.drop_page_run(self.inode, state, from..end)?;
        }
        match draft.size < self.inode.size() {
            true => self.content.resize(self.inode, state, draft.size)?,
            // What lay behind the end was zeroed before the draft began.
            false if draft.size > self.inode.size() => self.set_size(self.inode, draft.size),
            false => {}
        }
        Ok(())
    }

    /// Forgets an open atomic write.
    pub(crate) fn drop_draft(&self, state: &mut InodeState) {
        if let Some(draft) = self.counted(self.inode.ino, state, PageVersions::take_draft) {
            self.space.unstage(draft.reserved());
        }
    }

    /// Writes to the draft; the space of its pages is reserved now.
    pub(crate) fn write(&self, state: &mut InodeState, offset: u64, data: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let len = (BLOCK_SIZE - within).min(data.len() - done);
            self.change(state, index, len == BLOCK_SIZE, |page| {
                page.0[within..within + len].copy_from_slice(&data[done..done + len]);
            })?;
            done += len;
        }
        if let Some(draft) = state.pages.draft_mut() {
            draft.size = draft.size.max(offset + data.len() as u64);
        }
        Ok(())
    }

    /// Sets the size in the draft.
    pub(crate) fn resize(&self, state: &mut InodeState, size: u64) -> Result<()> {
        self.check_size(self.inode, size)?;
        let Some(draft) = state.pages.draft() else { return Ok(()) };
        if size < draft.size {
            let (first_gone, within) = (size.div_ceil(PAGE), (size % PAGE) as usize);
            if within > 0 && self.has(draft, size / PAGE)? {
                self.change(state, size / PAGE, false, |page| page.0[within..].fill(0))?;
            }
            let gone = self.counted(self.inode.ino, state, |pages| {
                pages.draft_mut().map(|draft| draft.cut(size, first_gone))
            });
            self.space.unstage(gone.unwrap_or(0));
        }
        if let Some(draft) = state.pages.draft_mut() {
            draft.size = size;
        }
        Ok(())
    }

    /// Whether a page of a draft is no hole.
    fn has(&self, draft: &Draft, index: u64) -> Result<bool> {
        if draft.pages.contains_key(&index) || index >= draft.first_cut() {
            return Ok(draft.pages.contains_key(&index));
        }
        Ok(self.find_slot(self.inode, index)?.is_some_and(|slot| slot.addr() != NULL_ADDR))
    }

    /// Changes a page of the draft; `replace` says that `f` overwrites all of it.
    fn change(
        &self,
        state: &mut InodeState,
        index: u64,
        replace: bool,
        f: impl FnOnce(&mut Block),
    ) -> Result<()> {
        if !state.pages.draft().is_some_and(|draft| draft.pages.contains_key(&index)) {
            let page = self.reserve(state, index, replace)?;
            self.counted(self.inode.ino, state, |pages| {
                pages.draft_mut().map(|draft| draft.pages.insert(index, page))
            });
        }
        if let Some(page) = state.pages.draft_mut().and_then(|draft| draft.pages.get_mut(&index)) {
            f(Arc::make_mut(page));
        }
        Ok(())
    }

    /// Reserves what a page needs that is new in the draft; returns what it holds.
    fn reserve(&self, state: &mut InodeState, index: u64, replace: bool) -> Result<Arc<Block>> {
        if self.pages.in_memory() > self.pages.capacity() {
            return Err(Error::NoSpace);
        }
        let shown = state.pages.draft().is_some_and(|draft| index < draft.first_cut());
        let page = match shown && !replace {
            true => self.read_page(self.inode, state, index)?,
            false => Arc::new(Block::ZERO),
        };
        self.slot_for_address(state, index)?; // the nodes need room too
        self.space.stage()?;
        Ok(page)
    }
}
