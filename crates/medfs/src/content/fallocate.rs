//! Reserving, punching and zeroing ranges; holes and data. Collapsing and inserting is in [`crate::content::shift`].
//!
//! Locks: as in [`crate::content::file`].
//! Kernel counterpart: `f2fs_fallocate`, `f2fs_seek_block`.

use crate::content::Content;
use crate::content::file_range::FileRange;
use crate::content::placement::{Batch, Purpose};
use crate::content::shift::Shift;
use crate::content::storage::Change;
use crate::error::{Error, Posix, Result};
use crate::map::effects::Effect;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::{HeldNodes, Slot};
use crate::types::{FallocateMode, FileFlags, Seek};
use medfs_format::{BLOCK_SIZE, BlockAddr, Ino, NEW_ADDR, NULL_ADDR, is_block};
use std::ops::Range;
use std::sync::Arc;

const PAGE: u64 = BLOCK_SIZE as u64;
/// Nodes that are held whatever the cache holds: those of 16 GiB, in as many MiB.
const LEAST_HELD: usize = 4096;

/// Splits a byte range into whole pages and the parts before and after them.
fn split(start: u64, end: u64) -> (Range<u64>, Vec<(u64, Range<usize>)>) {
    let whole = start.div_ceil(PAGE)..end / PAGE;
    if whole.start > whole.end {
        return (0..0, vec![(start / PAGE, (start % PAGE) as usize..(end % PAGE) as usize)]);
    }
    let mut parts = Vec::new();
    if !start.is_multiple_of(PAGE) {
        parts.push((start / PAGE, (start % PAGE) as usize..BLOCK_SIZE));
    }
    if !end.is_multiple_of(PAGE) {
        parts.push((end / PAGE, 0..(end % PAGE) as usize));
    }
    (whole, parts)
}

impl Content {
    /// Returns the pages, and changes nothing, where some that would go are sources of other files, or of too many
    /// pages.
    pub(crate) fn allocate(
        &self,
        inode: &Arc<Inode>,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<Option<Range<u64>>> {
        let range = FileRange { content: self, inode };
        self.change_alone(inode, |st| {
            inode.check_regular()?;
            // Of an append-only file room may be reserved, and nothing else.
            let only_adds = mode.difference(FallocateMode::KEEP_SIZE).is_empty();
            inode.check_flags(if only_adds {
                FileFlags::IMMUTABLE
            } else {
                FileFlags::IMMUTABLE | FileFlags::APPEND
            })?;
            if len == 0 {
                return Err(Posix::InvalidArgument.into());
            }
            let end = offset.checked_add(len).ok_or(Posix::FileTooLarge)?;
            self.check_not_released(inode)?;
            let keep = mode.contains(FallocateMode::KEEP_SIZE);
            if st.pages.draft().is_some() && !(only_adds && keep) {
                return Err(Posix::Busy.into());
            }
            if !only_adds && inode.is_pinned() {
                return Err(Posix::NotSupported.into());
            }
            let first = offset / PAGE;
            if !only_adds && self.refs.others_need(inode.ino, first..u64::MAX) {
                return Ok(Some(first..u64::MAX));
            }
            let moves = mode.intersects(FallocateMode::COLLAPSE_RANGE | FallocateMode::INSERT_RANGE);
            let leave = first..if moves { u64::MAX } else { end.div_ceil(PAGE) };
            if !only_adds && self.refs.many_own(inode.ino, &leave) {
                return Ok(Some(leave));
            }
            match mode.difference(FallocateMode::KEEP_SIZE) {
                m if m.is_empty() => range.preallocate(st, offset, end, keep)?,
                FallocateMode::PUNCH_HOLE if keep => range.punch_range(st, offset, end)?,
                FallocateMode::ZERO_RANGE => range.zero_range(st, offset, end, keep)?,
                FallocateMode::COLLAPSE_RANGE if !keep => range.collapse(st, offset, end)?,
                FallocateMode::INSERT_RANGE if !keep => range.insert(st, offset, end)?,
                _ => return Err(Posix::NotSupported.into()),
            }
            self.touch_modified(inode);
            self.effects.note(Effect::Fallocate { ino: inode.ino, mode, offset, len });
            Ok(None)
        })
    }

    pub(crate) fn drop_page_run(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: Range<u64>,
    ) -> Result<()> {
        let _held = self.before_leaving(inode, state, pages.clone())?;
        self.forget_pages(inode, state, pages.start, pages.end);
        self.storage(inode).dropped(self, inode, state, pages.clone())?;
        self.punch(inode, pages.start, pages.end)?;
        Ok(())
    }

    /// Meets damage and errors of reading before pages of a range go, while nothing has changed: a page whose
    /// address stays when what is kept of it is gone would be an older one. The storage lets the pages go, and each
    /// address and the nodes that lead there are read, and held while there are not too many.
    pub(crate) fn before_leaving(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: Range<u64>,
    ) -> Result<HeldNodes> {
        let mut held = HeldNodes::default();
        self.storage(inode).before(self, inode, state, Change::Leave(pages.clone()))?;
        let end = if self.has_compact(inode) { self.compact_start(inode) } else { u64::MAX };
        let most = self.nodes.limit().max(LEAST_HELD);
        self.check_addrs(inode, pages.start..pages.end.min(end), &mut held, most)?;
        Ok(held)
    }

    /// First page at or after `index` and before `end` that is not in a hole as large as a node.
    pub(crate) fn existing(&self, inode: &Inode, index: u64, end: u64) -> Result<Option<u64>> {
        if index >= end {
            return Ok(None);
        }
        let at = match self.find_slot(inode, index)? {
            Some(_) => index,
            None => self.next_existing(inode, index)?,
        };
        Ok((at < end).then_some(at))
    }

    /// The pages of a range that have blocks, and these. The caller holds the file's lock.
    pub(crate) fn blocks_of(&self, inode: &Inode, pages: Range<u64>) -> Result<Vec<(u64, BlockAddr)>> {
        let (mut found, mut near): (_, Option<Slot>) = (Vec::new(), None);
        let mut page = pages.start;
        while page < pages.end {
            near = self.find_slot_near(inode, near.as_ref(), page)?;
            let Some(slot) = &near else {
                page = self.next_existing(inode, page)?.max(page + 1);
                continue;
            };
            found.extend(is_block(slot.addr()).then(|| (page, slot.addr())));
            page += 1;
        }
        Ok(found)
    }

    pub(crate) fn seek(&self, ino: Ino, offset: u64, whence: Seek) -> Result<u64> {
        let inode = self.inode(ino)?;
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        let size = inode.size();
        if offset >= size {
            return Err(Posix::NoSuchAddress.into());
        }
        if inode.is_inline() || !matches!(inode.kind(), medfs_format::node::FileKind::Regular) {
            return Ok(if whence == Seek::Data { offset } else { size });
        }
        let last = size.div_ceil(PAGE);
        let mut index = offset / PAGE;
        let (storage, mut near) = (self.storage(&inode), None);
        while index < last {
            let slot = self.find_slot_near(&inode, near.as_ref(), index)?;
            let Some(slot) = slot else {
                if whence == Seek::Hole {
                    return Ok(offset.max(index * PAGE));
                }
                index = self.next_existing(&inode, index)?;
                near = None;
                continue;
            };
            let addr = slot.addr();
            if let Some(behind) = self.end_of_cluster(&inode, &slot, index) {
                if whence == Seek::Data {
                    return Ok(offset.max(index * PAGE));
                }
                near = Some(slot);
                index = behind;
                continue;
            }
            // As the kernel does: what is only reserved is neither where data starts nor a hole.
            let found = match whence {
                Seek::Data if addr == NEW_ADDR && !state.pages.is_dirty(index) => {
                    !storage.kept(self, &inode, index..index + 1)?.is_empty()
                }
                Seek::Data => is_block(addr) || addr == NEW_ADDR,
                Seek::Hole => addr == NULL_ADDR,
            };
            if found {
                return Ok(offset.max(index * PAGE));
            }
            near = Some(slot);
            index += 1;
        }
        match whence {
            Seek::Data => Err(Posix::NoSuchAddress.into()),
            Seek::Hole => Ok(size),
        }
    }
}

impl FileRange<'_> {
    /// Reserves every page of a range, and sections for it where the file gets any and had no page there.
    fn preallocate(&self, state: &mut InodeState, start: u64, end: u64, keep: bool) -> Result<()> {
        self.check_size(self.inode, end)?;
        self.convert_inline(self.inode, state)?;
        if !keep && end > self.inode.size() {
            self.before_growth(self.inode, state, end)?;
        }
        let pages = start / PAGE..end.div_ceil(PAGE);
        let pages = if self.inode.is_pinned() { self.keep_sections(pages)? } else { pages };
        self.check_room_for(pages.clone())?;
        let (mut new, count) = (Vec::new(), pages.end - pages.start);
        let asked = pages.clone();
        if let Err(e) = self.reserve_pages(state, pages, &mut new) {
            // Others were faster: what was taken is given back.
            self.placement.cut(self.inode.ino, asked, &self.store);
            new.into_iter().try_for_each(|index| self.punch(self.inode, index, index + 1).map(drop))?;
            return Err(e);
        }
        if !keep && end > self.inode.size() {
            self.set_size(self.inode, end);
        }
        if new.len() as u64 == count {
            let batch = Batch::of(self.inode, Purpose::Background, 0);
            self.placement.prepare(&batch, start / PAGE..end.div_ceil(PAGE), &self.store);
        }
        Ok(())
    }

    /// Reserves the sections of a range of a pinned file, which get all of their pages, as in the kernel.
    fn keep_sections(&self, pages: Range<u64>) -> Result<Range<u64>> {
        let blocks = u64::from(self.geo.blocks_per_section());
        let windows = pages.start / blocks..pages.end.div_ceil(blocks);
        let pages = windows.start * blocks..windows.end * blocks;
        self.check_size(self.inode, pages.end * PAGE)?;
        self.check_room_for(pages.clone())?;
        let mut to_keep = Vec::new();
        for window in windows {
            let found = self.blocks_of(self.inode, window * blocks..(window + 1) * blocks)?;
            let mut sections = found.iter().map(|&(_, addr)| self.geo.segno(addr) / self.geo.segs_per_sec);
            let lies = sections.next();
            // A window that is written as a whole needs none, and one whose blocks lie apart gains none.
            if (found.len() as u64) < blocks && sections.all(|section| lies == Some(section)) {
                to_keep.push((window, lies));
            }
        }
        if self.placement.keep(self.inode.ino, &to_keep, &self.store) {
            Ok(pages)
        } else {
            Err(Error::NoSpace)
        }
    }

    /// `NoSpace` where there is no room for every page of a range.
    fn check_room_for(&self, pages: Range<u64>) -> Result<()> {
        let free = self.space.counts().free();
        if self.missing_blocks(self.inode, pages, free)? > free { Err(Error::NoSpace) } else { Ok(()) }
    }

    /// Reserves the pages of a range that are holes, which it lists.
    fn reserve_pages(&self, state: &mut InodeState, pages: Range<u64>, new: &mut Vec<u64>) -> Result<()> {
        let mut near = None;
        let storage = self.storage(self.inode);
        for index in pages {
            if storage.before(self.content, self.inode, state, Change::Address(index))?.slots_moved {
                near = None;
            }
            let slot = self.make_slot_near(self.inode, near.as_ref(), index)?;
            if slot.addr() == NULL_ADDR {
                self.space.reserve(1)?;
                self.pages.remove(self.inode.ino, index);
                self.set_addr(self.inode, &slot, NEW_ADDR);
                self.add_blocks(self.inode, 1);
                new.push(index);
            }
            near = Some(slot);
        }
        Ok(())
    }

    fn punch_range(&self, state: &mut InodeState, start: u64, end: u64) -> Result<()> {
        self.convert_inline(self.inode, state)?;
        let (whole, parts) = split(start, end);
        self.storage(self.inode).before(self.content, self.inode, state, Change::Leave(whole.clone()))?;
        for (index, part) in parts {
            self.zero_part(self.inode, state, index, part)?;
        }
        if !whole.is_empty() {
            self.drop_page_run(self.inode, state, whole)?;
        }
        Ok(())
    }

    fn zero_range(&self, state: &mut InodeState, start: u64, end: u64, keep: bool) -> Result<()> {
        self.check_size(self.inode, end)?;
        self.check_room_for(start / PAGE..end.div_ceil(PAGE))?;
        self.punch_range(state, start, end)?;
        let size = self.inode.size();
        self.preallocate(state, start, end, keep)?;
        debug_assert!(!keep || self.inode.size() == size);
        Ok(())
    }

    fn collapse(&self, state: &mut InodeState, start: u64, end: u64) -> Result<()> {
        let size = self.inode.size();
        if !start.is_multiple_of(PAGE) || !end.is_multiple_of(PAGE) || end >= size {
            return Err(Posix::InvalidArgument.into());
        }
        self.convert_inline(self.inode, state)?;
        let shift =
            Shift { from: end / PAGE..size.div_ceil(PAGE), to: start / PAGE, size: size - (end - start) };
        self.shift(state, &shift)
    }

    fn insert(&self, state: &mut InodeState, start: u64, end: u64) -> Result<()> {
        let size = self.inode.size();
        if !start.is_multiple_of(PAGE) || !end.is_multiple_of(PAGE) || start >= size {
            return Err(Posix::InvalidArgument.into());
        }
        let new_size = size.checked_add(end - start).ok_or(Posix::FileTooLarge)?;
        self.check_size(self.inode, new_size)?;
        self.convert_inline(self.inode, state)?;
        let shift = Shift { from: start / PAGE..size.div_ceil(PAGE), to: end / PAGE, size: new_size };
        self.shift(state, &shift)
    }
}
