//! Atomic writes: pages kept aside until a commit makes all of them part of the file, or after a crash none.
//!
//! Invariants: each staged page has a block of its own reserved, as the page it replaces stays valid until
//! the commit is durable; so want of room is an error of the write. A commit that fails before its pages are
//! the file's leaves them staged. Locks: as in [`crate::content::file`].
//! Kernel counterpart: `f2fs_commit_atomic_write`.

use crate::content::Content;
use crate::content::storage::Change;
use crate::error::{Error, Result};
use crate::map::inode::{Inode, InodeState};
use crate::map::staged::Staged;
use medfs_format::{BLOCK_SIZE, Block, NEW_ADDR, NULL_ADDR};
use std::collections::BTreeSet;
use std::sync::Arc;

const PAGE: u64 = BLOCK_SIZE as u64;

impl Content {
    /// Makes a file ready for an atomic write; `false` where one is open.
    pub(crate) fn ready_for_atomic(&self, inode: &Arc<Inode>) -> Result<bool> {
        let _op = self.op()?;
        let mut state = inode.lock.write();
        inode.check_alive(&state)?;
        inode.check_regular()?;
        self.check_not_released(inode)?;
        if state.atomic.is_some() {
            return Ok(false);
        }
        self.convert_inline(inode, &mut state)?;
        self.before_growth(inode, &mut state, inode.size())?;
        Ok(true)
    }

    /// Begins an atomic write of a file whose pages are written back.
    pub(crate) fn begin_atomic(&self, inode: &Inode) -> Result<()> {
        let mut state = inode.lock.write();
        inode.check_alive(&state)?;
        self.check_not_released(inode)?;
        // Another thread may have begun meanwhile, and written.
        state.atomic.get_or_insert_with(|| Staged { size: inode.size(), ..Staged::default() });
        Ok(())
    }

    /// Makes staged pages dirty pages of the file. Where one cannot be, the file is as it was, and all stay staged.
    pub(crate) fn apply_staged(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        let Some(staged) = state.atomic.take() else { return Ok(()) };
        let mut before = Vec::with_capacity(staged.pages.len());
        let mut near = None;
        for (&index, page) in &staged.pages {
            let old = state.dirty.get(&index).cloned();
            match self.change_page(inode, state, index, near.as_ref(), true, |b| *b = (**page).clone()) {
                Ok(slot) => near = Some(slot),
                Err(e) => {
                    self.take_back(inode, state, before);
                    state.atomic = Some(staged);
                    return Err(e);
                }
            }
            before.push((index, old));
        }
        self.pages.sub_dirty(staged.pages.len());
        self.space.unstage(staged.reserved());
        if staged.size > inode.size() {
            self.set_size(inode, staged.size);
        }
        self.touch_modified(inode);
        Ok(())
    }

    fn take_back(&self, inode: &Arc<Inode>, state: &mut InodeState, before: Vec<(u64, Option<Arc<Block>>)>) {
        for (index, old) in before {
            match old {
                Some(page) => self.add_dirty_page(inode, state, index, page),
                None => self.forget_pages(inode, state, index, index + 1),
            }
        }
    }

    /// Gives back what an open atomic write reserved of holes.
    pub(crate) fn undo_staged(&self, inode: &Inode, state: &mut InodeState) -> Result<()> {
        let new = self.drop_staged(state);
        new.into_iter().try_for_each(|index| self.punch(inode, index, index + 1).map(drop))
    }

    /// Forgets an open atomic write; returns the pages that it made of holes.
    pub(crate) fn drop_staged(&self, state: &mut InodeState) -> BTreeSet<u64> {
        let Some(staged) = state.atomic.take() else { return BTreeSet::new() };
        self.pages.sub_dirty(staged.pages.len());
        self.space.unstage(staged.reserved());
        staged.new
    }

    /// Keeps written pages aside until the atomic write commits; their space is reserved now.
    pub(crate) fn stage_atomic(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        offset: u64,
        data: &[u8],
    ) -> Result<()> {
        let mut done = 0;
        while done < data.len() {
            let at = offset + done as u64;
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let len = (BLOCK_SIZE - within).min(data.len() - done);
            let staged = state.atomic.as_ref().and_then(|a| a.pages.get(&index).cloned());
            let mut page = match staged {
                Some(page) => page,
                None => self.stage_page(inode, state, index, len == BLOCK_SIZE)?,
            };
            Arc::make_mut(&mut page).0[within..within + len].copy_from_slice(&data[done..done + len]);
            state.atomic.as_mut().expect("the caller checked").pages.insert(index, page);
            done += len;
        }
        let staged = state.atomic.as_mut().expect("the caller checked");
        staged.size = staged.size.max(offset + data.len() as u64);
        Ok(())
    }

    /// Reserves what a page needs that was not staged yet; returns what it holds.
    fn stage_page(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        index: u64,
        replaced: bool,
    ) -> Result<Arc<Block>> {
        if self.pages.dirty() > self.pages.capacity() {
            return Err(Error::NoSpace);
        }
        let page = if replaced { Arc::new(Block::ZERO) } else { self.read_page(inode, state, index)? };
        self.storage(inode).before(self, inode, state, Change::Address(index))?;
        let slot = self.make_slot(inode, index)?;
        if slot.addr() != NULL_ADDR {
            self.space.stage()?;
        } else {
            self.space.reserve(1)?;
            self.set_addr(inode, &slot, NEW_ADDR);
            self.add_blocks(inode, 1);
            state.atomic.as_mut().expect("the caller checked").new.insert(index);
        }
        self.pages.add_dirty(1);
        Ok(page)
    }
}
