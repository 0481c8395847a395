//! Directories: finding, adding, removing and listing names.
//!
//! Entries lie in the inode block while they fit (inline dentries), else in dentry blocks placed by a multi-level hash:
//! level `l` has `buckets(l)` buckets of a few blocks each, a name belongs into one bucket of each level and goes to
//! the first with room. `i_current_depth` is the number of levels in use.
//!
//! Invariants: a [`Place`] is valid until entries are added to or removed from its directory. A position in a
//! listing is `page * 214 + slot`, inline `slot`, which is the same once an inline directory has become
//! blocks; so a listing goes on rightly whatever was added or removed since. All loops are bounded by
//! `i_size` and the depth, both validated. Locks: the caller holds the directory's lock: shared to look,
//! exclusive (with the operation lock) to change. Listing takes it itself, page by page, and calls out
//! without it.
//! Kernel counterpart: `dir.c` and the directory half of `inline.c`.

mod erased;
mod listing;
mod tests;

use crate::content::Content;
use crate::error::{Error, Posix, Result};
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::types::DirEntry;
pub(crate) use erased::{erased, of_erased};
use listing::list;
use medfs_format::dentry::{
    Area, AreaLayout, DENTRIES_PER_BLOCK, Entry, MAX_DEPTH, bucket_blocks, bucket_start, buckets, slots_for,
};
use medfs_format::hash::dentry_hash;
use medfs_format::node::{FileFlags, FileKind, Inline, RawInode};
use medfs_format::{BLOCK_SIZE, Block, FormatError, Ino, NULL_ADDR, Structure, is_block};
use medfs_store::Dirty;
use std::ops::{Deref, Range};
use std::sync::Arc;

/// Position of the first entry that is in no page of its directory.
const DOTS_AT: u64 = 1 << 62;

/// Where an entry is, or could go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    /// Page of the directory; 0 in an inline directory.
    page: u64,
    /// First slot in the page or in the inline area.
    slot: usize,
}

/// An entry that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) ino: Ino,
    place: Place,
    name_len: usize,
}

impl Found {
    fn new(entry: &Entry<'_>, page: u64) -> Found {
        Found { ino: entry.ino, place: Place { page, slot: entry.slot }, name_len: entry.name.len() }
    }
}

/// What looking for a name gave: its entry, or else where the name can go.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Search {
    pub(crate) found: Option<Found>,
    /// First place with room among the levels in use.
    room: Option<Place>,
}

/// Entries of one page, and where to go on.
struct Batch {
    entries: Vec<DirEntry>,
    next: u64,
}

fn is_inline(dir: &Inode) -> bool {
    dir.raw(|r| r.inline().contains(Inline::DENTRY))
}

/// First page of the bucket of `hash` at a level, and the page after its last.
fn bucket(level: u32, dir_level: u8, hash: u32) -> Range<u64> {
    let start = bucket_start(level, dir_level, u64::from(hash) % buckets(level, dir_level));
    start..start + bucket_blocks(level)
}

/// A directory, over the content of files.
#[derive(Clone, Copy)]
pub(crate) struct Dir<'a> {
    content: &'a Content,
    dir: &'a Arc<Inode>,
}

impl Deref for Dir<'_> {
    type Target = Content;

    fn deref(&self) -> &Content {
        self.content
    }
}

/// The inode of a directory.
pub(crate) fn directory(content: &Content, ino: Ino) -> Result<Arc<Inode>> {
    let dir = content.inode(ino)?;
    if !dir.is_dir() {
        return Err(Posix::NotDirectory.into());
    }
    if dir.has_flags(FileFlags::CASEFOLD) {
        return Err(Error::Incompatible(format!(
            "directory {ino} is case-insensitive, which is not supported"
        )));
    }
    Ok(dir)
}

impl<'a> Dir<'a> {
    pub(crate) fn of(content: &'a Content, dir: &'a Arc<Inode>) -> Dir<'a> {
        Dir { content, dir }
    }

    /// Layout of a directory's inline area, and its bytes in the inode block.
    fn inline_area(self) -> (AreaLayout, Range<usize>) {
        let range = self.slots(self.dir).inline_content_range();
        (AreaLayout::inline(range.len()), range)
    }

    /// Looks a name up, and for room where it is not there.
    pub(crate) fn search(self, state: &InodeState, name: &[u8]) -> Result<Search> {
        let want = slots_for(name.len());
        if is_inline(self.dir) {
            let (layout, range) = self.inline_area();
            return self.dir.node.read(|d| {
                let area = Area::new(layout, &d.block.0[range]);
                let found = area.find(name, self.dir.ino.into())?.map(|e| Found::new(&e, 0));
                Ok(Search { found, room: area.room(want).map(|slot| Place { page: 0, slot }) })
            });
        }
        let (depth, dir_level) = self.dir.raw(|r| (r.i_current_depth.get().min(MAX_DEPTH), r.i_dir_level));
        let (hash, pages) = (dentry_hash(name), self.dir.pages());
        let mut room = None;
        for level in 0..depth {
            for page in bucket(level, dir_level, hash) {
                if page >= pages {
                    room = room.or(Some(Place { page, slot: 0 }));
                    continue;
                }
                let Some(block) = self.read_names(state, page)? else { continue };
                let area = Area::new(AreaLayout::BLOCK, &block.0[..]);
                if let Some(entry) = area.find(name, self.dir.ino.into())? {
                    return Ok(Search { found: Some(Found::new(&entry, page)), room: None });
                }
                room = room.or_else(|| area.room(want).map(|slot| Place { page, slot }));
            }
        }
        Ok(Search { found: None, room })
    }

    /// Looks a name up.
    pub(crate) fn find(self, state: &InodeState, name: &[u8]) -> Result<Option<Found>> {
        Ok(self.search(state, name)?.found)
    }

    /// The directory above, as the entry `..` says.
    pub(crate) fn parent(self, state: &InodeState) -> Result<Found> {
        let missing = || FormatError::corrupt(Structure::Dentry, self.dir.ino, "name", "no entry ..").into();
        self.find(state, b"..")?.ok_or_else(missing)
    }

    /// Adds a name that `search` has not found. Where that fails, the directory holds what it held.
    pub(crate) fn add(
        self,
        state: &mut InodeState,
        search: &Search,
        name: &[u8],
        ino: Ino,
        kind: FileKind,
    ) -> Result<()> {
        if !is_inline(self.dir) {
            return self.add_to_blocks(state, search.room, name, ino, kind);
        }
        if let Some(place) = search.room {
            let (layout, range) = self.inline_area();
            self.nodes.update(&self.dir.node, Dirty::Full, |b| {
                Area::new(layout, &mut b.0[range]).insert_at(place.slot, name, ino, kind);
            });
            return Ok(());
        }
        self.to_blocks(state)?;
        let room = self.search(state, name)?.room;
        self.add_to_blocks(state, room, name, ino, kind)
    }

    fn add_to_blocks(
        self,
        state: &mut InodeState,
        room: Option<Place>,
        name: &[u8],
        ino: Ino,
        kind: FileKind,
    ) -> Result<()> {
        let (mut depth, dir_level) = self.dir.raw(|r| (r.i_current_depth.get(), r.i_dir_level));
        let mut place = room;
        while place.is_none() {
            if depth >= MAX_DEPTH {
                return Err(Error::NoSpace);
            }
            for page in bucket(depth, dir_level, dentry_hash(name)) {
                let Some(block) = self.read_names(state, page)? else { continue };
                let slot = Area::new(AreaLayout::BLOCK, &block.0[..]).room(slots_for(name.len()));
                place = place.or(slot.map(|slot| Place { page, slot }));
            }
            depth += 1;
        }
        let place = place.expect("found above");
        let mut free = false;
        self.change_page(self.dir, state, place.page, None, false, |b| {
            let mut area = Area::new(AreaLayout::BLOCK, &mut b.0[..]);
            free = (0..slots_for(name.len())).all(|i| !area.in_use(place.slot + i));
            if free {
                area.insert_at(place.slot, name, ino, kind);
            }
        })?;
        if !free {
            let found = format!("entries in page {} beyond it", place.page);
            return Err(FormatError::corrupt(Structure::Inode, self.dir.ino, "i_size", found).into());
        }
        let size = (place.page + 1) * BLOCK_SIZE as u64;
        if self.dir.raw(|r| r.i_size.get() < size || r.i_current_depth.get() < depth) {
            self.edit(self.dir, Dirty::Full, |r| {
                r.i_size = r.i_size.get().max(size).into();
                r.i_current_depth = depth.into();
            });
        }
        Ok(())
    }

    /// Makes an inline directory one of dentry blocks; leaves it as it was where that fails.
    pub(crate) fn to_blocks(self, state: &mut InodeState) -> Result<()> {
        let (layout, range) = self.inline_area();
        let old: Arc<Block> = self.dir.node.read(|d| d.block.clone());
        let area = Area::new(layout, &old.0[range.clone()]);
        self.nodes.update(&self.dir.node, Dirty::Full, |b| {
            b.0[range.clone()].fill(0);
            let raw: &mut RawInode = b.view_mut();
            raw.i_inline &= !Inline::DENTRY.bits();
            raw.i_size = 0.into();
            raw.i_current_depth = 1.into();
        });
        let moved = self.move_inline_entries(state, &area);
        if moved.is_err() {
            self.forget_pages(self.dir, state, 0, u64::MAX);
            if let Err(error) = self.truncate_index(self.dir, 0) {
                tracing::error!(ino = self.dir.ino, %error, "blocks of a directory are lost until the volume is checked");
            }
            let (size, depth) = (old.view::<RawInode>().i_size, old.view::<RawInode>().i_current_depth);
            self.nodes.update(&self.dir.node, Dirty::Full, |b| {
                b.0[range.clone()].copy_from_slice(&old.0[range]);
                let raw: &mut RawInode = b.view_mut();
                raw.i_inline |= Inline::DENTRY.bits();
                raw.i_size = size;
                raw.i_current_depth = depth;
            });
        }
        moved
    }

    fn move_inline_entries(self, state: &mut InodeState, area: &Area<&[u8]>) -> Result<()> {
        let mut entries = Vec::new();
        for entry in area.entries(0, self.dir.ino.into()) {
            let entry = entry?;
            let kind = match entry.kind {
                Some(kind) => kind,
                None => self.inode(entry.ino)?.kind(),
            };
            entries.push((entry, kind));
        }
        if self.dir.raw(|r| r.i_dir_level) == 0 {
            // All of them belong into the first bucket, where they keep their slots.
            self.change_page(self.dir, state, 0, None, true, |b| {
                let mut block = Area::new(AreaLayout::BLOCK, &mut b.0[..]);
                for (e, kind) in &entries {
                    block.insert_at(e.slot, e.name, e.ino, *kind);
                }
            })?;
            self.set_size(self.dir, BLOCK_SIZE as u64);
            return Ok(());
        }
        for (e, kind) in &entries {
            let room = self.search(state, e.name)?.room;
            self.add_to_blocks(state, room, e.name, e.ino, *kind)?;
        }
        Ok(())
    }

    /// Removes an entry, and the page that it leaves empty.
    pub(crate) fn remove(self, state: &mut InodeState, found: &Found) -> Result<()> {
        let Place { page, slot } = found.place;
        if is_inline(self.dir) {
            let (layout, range) = self.inline_area();
            self.nodes.update(&self.dir.node, Dirty::Full, |b| {
                Area::new(layout, &mut b.0[range]).remove(slot, found.name_len);
            });
            return Ok(());
        }
        let mut empty = false;
        self.change_page(self.dir, state, page, None, false, |b| {
            let mut area = Area::new(AreaLayout::BLOCK, &mut b.0[..]);
            area.remove(slot, found.name_len);
            empty = area.is_empty(false);
        })?;
        if empty {
            self.punch(self.dir, page, page + 1)?;
            self.forget_pages(self.dir, state, page, page + 1);
        }
        Ok(())
    }

    /// Points an entry to another inode.
    pub(crate) fn set_target(
        self,
        state: &mut InodeState,
        found: &Found,
        ino: Ino,
        kind: FileKind,
    ) -> Result<()> {
        let Place { page, slot } = found.place;
        if is_inline(self.dir) {
            let (layout, range) = self.inline_area();
            self.nodes.update(&self.dir.node, Dirty::Full, |b| {
                Area::new(layout, &mut b.0[range]).set_target(slot, ino, kind);
            });
            return Ok(());
        }
        self.change_page(self.dir, state, page, None, false, |b| {
            Area::new(AreaLayout::BLOCK, &mut b.0[..]).set_target(slot, ino, kind);
        })?;
        Ok(())
    }

    /// Whether a directory holds nothing but `.` and `..`.
    pub(crate) fn is_empty(self, state: &InodeState) -> Result<bool> {
        if is_inline(self.dir) {
            let (layout, range) = self.inline_area();
            return Ok(self.dir.node.read(|d| Area::new(layout, &d.block.0[range]).is_empty(true)));
        }
        let mut from = 0;
        while let Some(page) = self.next_dentry_page(state, from)? {
            let block = self.read_page(self.dir, state, page)?;
            if let Some(error) = self.blank(state, page, &block)? {
                return Err(error);
            }
            if !Area::new(AreaLayout::BLOCK, &block.0[..]).is_empty(page == 0) {
                return Ok(false);
            }
            from = page + 1;
        }
        Ok(true)
    }

    /// Writes `.` and `..` into a new directory and sets its size.
    pub(crate) fn make_empty(self, state: &mut InodeState, parent: Ino) -> Result<()> {
        if is_inline(self.dir) {
            let (layout, range) = self.inline_area();
            let size = range.len() as u64;
            self.nodes.update(&self.dir.node, Dirty::Full, |b| {
                Area::new(layout, &mut b.0[range]).insert_dots(self.dir.ino, parent);
            });
            self.set_size(self.dir, size);
        } else {
            self.change_page(self.dir, state, 0, None, true, |b| {
                Area::new(AreaLayout::BLOCK, &mut b.0[..]).insert_dots(self.dir.ino, parent);
            })?;
            self.set_size(self.dir, BLOCK_SIZE as u64);
        }
        Ok(())
    }

    /// First page at or after `from` that is no hole.
    fn next_dentry_page(self, state: &InodeState, from: u64) -> Result<Option<u64>> {
        let pages = self.dir.pages();
        let (mut page, mut slot): (u64, Option<Slot>) = (from, None);
        while page < pages {
            if state.pages.is_dirty(page) {
                return Ok(Some(page));
            }
            slot = self.find_slot_near(self.dir, slot.as_ref(), page)?;
            page = match &slot {
                Some(slot) if slot.addr() != NULL_ADDR => return Ok(Some(page)),
                Some(_) => page + 1,
                None => self.next_existing(self.dir, page)?.max(page + 1),
            };
        }
        Ok(None)
    }

    /// Lists it from a position on, until `emit` returns `false`; see [`crate::Files::readdir`]. Its lock is not held.
    pub(crate) fn list(self, position: u64, emit: &mut dyn FnMut(DirEntry) -> bool) -> Result<()> {
        let mut position = position;
        while let Some(batch) = self.read_batch(position)? {
            if !batch.entries.into_iter().all(&mut *emit) {
                return Ok(());
            }
            position = batch.next;
        }
        self.missing_dots(position)?.into_iter().all(emit);
        Ok(())
    }

    /// The entries of the first page that has any at or after a position; `None` at the end.
    fn read_batch(self, position: u64) -> Result<Option<Batch>> {
        let state = self.dir.lock.read();
        self.dir.check_alive(&state)?;
        if self.dir.nlink() == 0 {
            return Ok(None);
        }
        if is_inline(self.dir) {
            let (layout, range) = self.inline_area();
            if position >= layout.slots as u64 {
                return Ok(None);
            }
            let listed = self
                .dir
                .node
                .read(|d| list(&Area::new(layout, &d.block.0[range]), position as usize, 0, self.dir.ino));
            return Ok(Some(Batch { entries: self.without_gap(listed), next: layout.slots as u64 }));
        }
        let from = position / DENTRIES_PER_BLOCK as u64;
        let Some(page) = self.next_dentry_page(&state, from)? else { return Ok(None) };
        let slot = if page == from { (position % DENTRIES_PER_BLOCK as u64) as usize } else { 0 };
        let start = page * DENTRIES_PER_BLOCK as u64;
        let entries = match self.read_names(&state, page)? {
            Some(block) => {
                let area = Area::new(AreaLayout::BLOCK, &block.0[..]);
                self.without_gap(list(&area, slot, start, self.dir.ino))
            }
            None => Vec::new(),
        };
        Ok(Some(Batch { entries, next: start + DENTRIES_PER_BLOCK as u64 }))
    }

    /// What was listed; an entry that was left out is logged and counted.
    fn without_gap(self, (entries, wrong): (Vec<DirEntry>, Option<FormatError>)) -> Vec<DirEntry> {
        if let Some(error) = wrong {
            self.note_damage(FEWER_NAMES, self.dir.ino, &error.into());
        }
        entries
    }

    /// A block of a directory that names are looked for in; `None` for one that was lost to zeros, which is
    /// logged and counted. It has no name, and gets none: it stays the sign by which a check finds the
    /// damage, and the directory is not taken for empty.
    fn read_names(self, state: &InodeState, page: u64) -> Result<Option<Arc<Block>>> {
        let block = self.read_page(self.dir, state, page)?;
        let Some(error) = self.blank(state, page, &block)? else { return Ok(Some(block)) };
        self.note_damage(FEWER_NAMES, self.dir.ino, &error);
        Ok(None)
    }

    /// What is wrong with a block of a directory that has lost its entries on the device.
    fn blank(self, state: &InodeState, page: u64, block: &Block) -> Result<Option<Error>> {
        if state.pages.is_dirty(page) {
            return Ok(None);
        }
        let Some(what) = erased(page, block) else { return Ok(None) };
        let slot = self.find_slot(self.dir, page)?;
        let addr = slot.map(|slot| slot.addr()).filter(|&addr| is_block(addr));
        Ok(addr.map(|addr| of_erased(addr, what)))
    }

    /// `.` and `..` of a directory whose inode says that a repair found no room for them, from a position on.
    fn missing_dots(self, position: u64) -> Result<Vec<DirEntry>> {
        let state = self.dir.lock.read();
        if self.dir.nlink() == 0 || !self.dir.raw(|r| r.inline().contains(Inline::DOTS)) {
            return Ok(Vec::new());
        }
        let parent = self.dir.raw(|r| r.i_pino.get());
        let parent = if self.dir.ino == self.geo.root_ino { self.dir.ino } else { parent };
        let mut dots = Vec::new();
        for (next, name, ino) in [(DOTS_AT + 1, &b"."[..], self.dir.ino), (DOTS_AT + 2, b"..", parent)] {
            if next > position && self.search(&state, name)?.found.is_none() {
                dots.push(DirEntry { ino, kind: Some(FileKind::Directory), name: name.to_vec(), next });
            }
        }
        Ok(dots)
    }
}

/// What is logged of a directory with damage.
const FEWER_NAMES: &str = "a directory shows fewer names than it had";
