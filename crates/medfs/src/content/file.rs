//! Regular files: reading, writing, size, inline content.
//!
//! Locks: one inode at a time, after the operation lock where something changes.
//! Kernel counterpart: `file.c`, `inline.c`.

use crate::content::Content;
use crate::content::page_io::{ChangedPage, copy_out};
use crate::content::storage::Change;
use crate::error::{Error, Posix, Result};
use crate::map::effects::Effect;
use crate::map::inode::{Inode, InodeState, set_atime};
use crate::options::Atime;
use crate::profile::Wrote;
use crate::types::{FileFlags, Timestamp};
use medfs_format::node::{Advise, FileKind, Inline, RawInode};
use medfs_format::path::max_pages;
use medfs_format::{BLOCK_SIZE, Block, Ino, NEW_ADDR, NULL_ADDR};
use medfs_store::Dirty;
use std::sync::Arc;

const PAGE: u64 = BLOCK_SIZE as u64;

/// Who keeps the times of a file that is written to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteTimes {
    /// They become the time of the write.
    Now,
    /// A page cache above, which sets them itself: what it writes back was modified earlier.
    Kept,
}

/// What a write did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) bytes: usize,
    /// All of it is in dirty pages now.
    pub(crate) dirtied: bool,
}

/// What decides how a file is read, as its inode has it at one moment.
struct Layout {
    kind: Option<FileKind>,
    size: u64,
    inline: bool,
    encrypted: bool,
    clusters: bool,
}

impl Layout {
    fn of(r: &RawInode) -> Layout {
        Layout {
            kind: FileKind::from_mode(r.i_mode.get()),
            size: r.i_size.get(),
            inline: r.inline().contains(Inline::DATA),
            encrypted: r.advise().contains(Advise::ENCRYPT),
            clusters: r.compression().is_some(),
        }
    }

    /// Content that is stored in a way this version cannot decode is an error, never raw bytes. `compression`: whether
    /// the volume has the feature.
    fn check(&self, compression: bool) -> Result<()> {
        if self.encrypted {
            let text = "it is encrypted, and medfs cannot decrypt: the kernel's f2fs reads it with its key";
            return Err(Error::Incompatible(text.into()));
        }
        if self.clusters && !compression {
            let text = "it is compressed, on a volume without the feature compression";
            return Err(Error::Incompatible(text.into()));
        }
        Ok(())
    }
}

/// Notes a write of a file, which is judged by it before any of its pages goes to the device.
fn note_write(content: &Content, inode: &Inode, wrote: Wrote) {
    if let Some(known) = content.profiles.note_write(inode.ino, &wrote) {
        content.placement.judge(inode, &known, &content.store);
    }
}

/// Pages that a range of bytes, which is not empty, lies in.
fn pages_touched(offset: u64, len: usize) -> u64 {
    (offset + len as u64 - 1) / PAGE - offset / PAGE + 1
}

impl Content {
    pub(crate) fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let inode = self.inode(ino)?;
        let state = inode.lock.read();
        inode.check_alive(&state)?;
        let layout = inode.raw(Layout::of);
        match layout.kind {
            Some(FileKind::Regular | FileKind::Symlink) => {}
            Some(FileKind::Directory) => return Err(Posix::IsDirectory.into()),
            _ => return Err(Posix::InvalidArgument.into()),
        }
        layout.check(self.has_compression())?;
        let size = state.pages.size_seen(layout.size);
        let len = size.saturating_sub(offset).min(buf.len() as u64) as usize;
        if len == 0 {
            return Ok(0);
        }
        let buf = &mut buf[..len];
        if layout.inline {
            self.read_inline(&inode, offset, buf);
        } else {
            self.read_seen(&inode, &state, offset, buf)?;
        }
        drop(state);
        self.profiles.note_read(ino, offset / PAGE, pages_touched(offset, len));
        self.note_access(&inode);
        Ok(len)
    }

    /// Reads what readers see: the file, and the draft of an atomic write over it.
    fn read_seen(&self, inode: &Inode, state: &InodeState, offset: u64, buf: &mut [u8]) -> Result<()> {
        let Some(draft) = state.pages.draft() else { return self.read_range(inode, state, offset, buf) };
        let kept = draft.kept.saturating_sub(offset).min(buf.len() as u64) as usize;
        let (shown, beyond) = buf.split_at_mut(kept);
        beyond.fill(0);
        if !shown.is_empty() {
            self.read_range(inode, state, offset, shown)?;
        }
        for (&index, page) in draft.pages.range(offset / PAGE..(offset + buf.len() as u64).div_ceil(PAGE)) {
            copy_out(buf, offset, index, page);
        }
        Ok(())
    }

    /// See [`Layout::check`].
    pub(crate) fn check_readable_content(&self, inode: &Inode) -> Result<()> {
        inode.raw(Layout::of).check(self.has_compression())
    }

    fn read_inline(&self, inode: &Inode, offset: u64, buf: &mut [u8]) {
        let range = self.slots(inode).inline_content_range();
        inode.node.read(|d| {
            let content = &d.block.0[range];
            let start = offset.min(content.len() as u64) as usize;
            let end = (start + buf.len()).min(content.len());
            buf[..end - start].copy_from_slice(&content[start..end]);
            buf[end - start..].fill(0);
        });
    }

    /// Keeps the access time by the mount's rule; it rides on the next write of the inode.
    fn note_access(&self, inode: &Inode) {
        if self.is_read_only() || self.opts.atime == Atime::Noatime {
            return;
        }
        let now = self.clock.now();
        let due = inode.raw(|r| {
            if r.flags().contains(FileFlags::NOATIME) {
                return false;
            }
            let time = |secs: u64, nanos: u32| Timestamp { secs: secs as i64, nanos };
            let atime = time(r.i_atime.get(), r.i_atime_nsec.get());
            let mtime = time(r.i_mtime.get(), r.i_mtime_nsec.get());
            let ctime = time(r.i_ctime.get(), r.i_ctime_nsec.get());
            let is_old = || atime <= mtime || atime <= ctime || now.secs - atime.secs >= 24 * 60 * 60;
            atime != now && (self.opts.atime == Atime::Strictatime || is_old())
        });
        if due && let Ok(_op) = self.op() {
            let _state = inode.lock.write();
            self.edit(inode, Dirty::Tick, |r| set_atime(r, now));
        }
    }

    /// Writes to a file; `times` tells who keeps mtime and ctime. No lock is held; room was made.
    pub(crate) fn write_file(
        &self,
        inode: &Arc<Inode>,
        offset: u64,
        data: &[u8],
        times: WriteTimes,
    ) -> Result<Written> {
        let _op = self.op()?;
        let mut state = inode.lock.write();
        inode.check_alive(&state)?;
        inode.check_regular()?;
        self.check_readable_content(inode)?;
        inode.check_flags(FileFlags::IMMUTABLE)?;
        if data.is_empty() {
            return Ok(Written { bytes: 0, dirtied: false });
        }
        let end = offset.checked_add(data.len() as u64).ok_or(Posix::FileTooLarge)?;
        self.check_size(inode, end)?;
        self.check_not_released(inode)?;
        let size = inode.size();
        if state.pages.draft().is_some() {
            self.atomic_write(inode).write(&mut state, offset, data)?;
            note_write(self, inode, Wrote::new(offset, data.len(), size));
            return Ok(Written { bytes: data.len(), dirtied: false });
        }
        let (bytes, filled) = self.write_locked(inode, &mut state, offset, data)?;
        note_write(self, inode, Wrote::new(offset, bytes, size).with_filled(filled));
        if times == WriteTimes::Now {
            self.touch_modified(inode);
        }
        let cached = times == WriteTimes::Kept;
        self.effects.note(Effect::Write { ino: inode.ino, offset, data: &data[..bytes], cached });
        Ok(Written { bytes, dirtied: bytes == data.len() })
    }

    /// Writes pages until done or out of space; `NoSpace` only where nothing was written. Returns how many bytes it
    /// wrote, and how many pages of them the file did not have.
    fn write_locked(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        offset: u64,
        data: &[u8],
    ) -> Result<(usize, u64)> {
        let end = offset + data.len() as u64;
        if inode.is_inline() {
            if end <= self.slots(inode).inline_content_range().len() as u64 {
                self.write_inline(inode, offset, data);
                return Ok((data.len(), 0));
            }
            self.convert_inline(inode, state)?;
        }
        let size = inode.size();
        if end > size {
            self.before_growth(inode, state, end)?;
        }
        let mut near = None;
        let (mut done, mut filled) = (0, 0);
        while done < data.len() {
            let at = offset + done as u64;
            let (index, within) = (at / PAGE, (at % PAGE) as usize);
            let len = (BLOCK_SIZE - within).min(data.len() - done);
            // What lies beyond the old end of the file need not be read.
            let replace =
                len == BLOCK_SIZE || (within == 0 && at + len as u64 >= size) || index * PAGE >= size;
            let chunk = &data[done..done + len];
            let changed = self.change_page(inode, state, index, near.as_ref(), replace, |b| {
                b.0[within..within + len].copy_from_slice(chunk);
            });
            match changed {
                Ok(ChangedPage { slot, fills }) => {
                    near = Some(slot);
                    filled += u64::from(fills);
                }
                Err(Error::NoSpace) if done > 0 => break,
                Err(e) => return Err(e),
            }
            done += len;
        }
        if offset + done as u64 > size {
            self.set_size(inode, offset + done as u64);
        }
        Ok((done, filled))
    }

    fn write_inline(&self, inode: &Inode, offset: u64, data: &[u8]) {
        let range = self.slots(inode).inline_content_range();
        let end = offset + data.len() as u64;
        self.nodes.update(&inode.node, Dirty::Full, |b| {
            let at = range.start + offset as usize;
            b.0[at..at + data.len()].copy_from_slice(data);
            let raw: &mut RawInode = b.view_mut();
            raw.i_inline |= Inline::DATA_EXIST.bits();
            if end > raw.i_size.get() {
                raw.i_size = end.into();
            }
        });
    }

    /// Moves inline content to page 0.
    pub(crate) fn convert_inline(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        if !inode.is_inline() {
            return Ok(());
        }
        let range = self.slots(inode).inline_content_range();
        let size = inode.size().min(range.len() as u64) as usize;
        let content = inode.node.read(|d| d.block.0[range.clone()][..size].to_vec());
        if size > 0 {
            self.space.reserve(1)?;
        }
        self.nodes.update(&inode.node, Dirty::Full, |b| {
            b.0[range.start - 4..range.end].fill(0);
            b.view_mut::<RawInode>().i_inline &= !(Inline::DATA | Inline::DATA_EXIST).bits();
        });
        if size > 0 {
            let slot = self.make_slot(inode, 0)?;
            self.set_addr(inode, &slot, NEW_ADDR);
            self.add_blocks(inode, 1);
            let mut page = Block::ZERO;
            page.0[..content.len()].copy_from_slice(&content);
            self.add_dirty_page(inode, state, 0, Arc::new(page));
            state.with_checkpoint = true;
        }
        Ok(())
    }

    /// Fails where a file cannot have `end` bytes.
    pub(crate) fn check_size(&self, inode: &Inode, end: u64) -> Result<()> {
        let fanout = self.slots(inode).fanout();
        // Deltas may come to take the place of all addresses in the inode.
        let zone = if self.is_delta_volume() { fanout.inode } else { 0 };
        let max = (max_pages(fanout) - zone).saturating_mul(PAGE);
        if end > max { Err(Posix::FileTooLarge.into()) } else { Ok(()) }
    }

    /// Sets a file's size. The inode's lock is held exclusively, and the operation lock.
    pub(crate) fn resize(&self, inode: &Arc<Inode>, state: &mut InodeState, size: u64) -> Result<()> {
        self.check_size(inode, size)?;
        let old = inode.size();
        if size < old {
            self.profiles.note_truncation(inode.ino);
        }
        if inode.is_inline() {
            let range = self.slots(inode).inline_content_range();
            if size > range.len() as u64 {
                self.convert_inline(inode, state)?;
            } else {
                if size < old {
                    self.nodes.update(&inode.node, Dirty::Full, |b| {
                        b.0[range.start + size as usize..range.start + old as usize].fill(0);
                    });
                }
                self.set_size(inode, size);
                return Ok(());
            }
        }
        if size < old {
            let first_gone = size.div_ceil(PAGE);
            let _held = self.before_leaving(inode, state, first_gone..u64::MAX)?;
            self.zero_tail(inode, state, size)?;
            let compact = if self.has_compact(inode) { self.compact_start(inode) } else { u64::MAX };
            self.forget_pages(inode, state, first_gone, compact);
            self.storage(inode).dropped(self, inode, state, first_gone..u64::MAX)?;
            if self.storage(inode).is_made_from_blocks(self, inode) {
                self.since.cut_off.keep(self, inode, first_gone)?;
            }
            self.truncate_pages(inode, first_gone)?;
            // Not before: what an error leaves there would come back when the file grows.
            self.set_size(inode, size);
            if size == 0 {
                self.forget_release(inode);
            }
        } else {
            self.before_growth(inode, state, size)?;
            // Blocks beyond the end (fallocate with KEEP_SIZE) read as zeros already.
            self.set_size(inode, size);
        }
        Ok(())
    }

    /// Zeroes the rest of the page in which a file of `size` bytes ends.
    fn zero_tail(&self, inode: &Arc<Inode>, state: &mut InodeState, size: u64) -> Result<()> {
        let within = (size % PAGE) as usize;
        if within == 0 {
            return Ok(());
        }
        self.zero_part(inode, state, size / PAGE, within..BLOCK_SIZE)?;
        // A checkpoint with the new size but the old page would show the old bytes when the file grows again.
        state.with_checkpoint |= state.pages.is_dirty(size / PAGE);
        Ok(())
    }

    /// Before a file grows to `new` bytes: what lies behind its end must read as zeros. Power loss may have
    /// left more in the block of its last page, where that was overwritten in place and the size that belongs
    /// to it was lost.
    pub(crate) fn before_growth(&self, inode: &Arc<Inode>, state: &mut InodeState, new: u64) -> Result<()> {
        self.storage(inode).before(self, inode, state, Change::Growth(new.div_ceil(PAGE)))?;
        let size = inode.size();
        let within = (size % PAGE) as usize;
        if within == 0 || inode.is_inline() {
            return Ok(());
        }
        let last = self.read_page(inode, state, size / PAGE);
        let last = self.pass_by("the end of a page that cannot be read is left as it is", inode.ino, last)?;
        match last {
            Some(page) if page.0[within..] != Block::ZERO.0[within..] => self.zero_tail(inode, state, size),
            _ => Ok(()),
        }
    }

    /// Zeroes part of a page, where the page has a block at all.
    pub(crate) fn zero_part(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        index: u64,
        part: std::ops::Range<usize>,
    ) -> Result<()> {
        match self.find_slot(inode, index)? {
            Some(slot) if slot.addr() != NULL_ADDR => {
                self.change_page(inode, state, index, Some(&slot), false, |b| b.0[part].fill(0))?;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
