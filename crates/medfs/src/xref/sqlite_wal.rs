//! Pages that repeat other files: SQLite's journals and logs hold pages of their database.
//!
//! What such a file's page is made of follows from the names in it alone ([`super::sqlite_layout`]); whether
//! they are right shows in the size of the delta.
//!
//! Invariants: a block is used as a base only while the file it belongs to is durable as it is in memory, so
//! that no crash shows that file without it; it is a source from then on.
//! Locks: called with the inode's lock held; those of the other file are tried and never waited for.

use super::Xref;
use super::predecessor::PredecessorCache;
use super::sqlite_layout::{Layout, PAGE, PageCopy};
use crate::content::record::{GOOD_ENOUGH, OwnedRecord};
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::profile::file_class::FileClass;
use crate::ranks;
use medfs_format::delta::{COMPACT_ROOM, MAX_SLICES, RawSlice};
use medfs_format::{Block, BlockAddr, Ino};
use medfs_store::Dirty;
use medfs_sync::{Mutex, MutexGuard, Ranked};
use std::collections::HashMap;
use std::sync::Arc;

/// Headers of a journal that are followed to find a record.
const MOST_HEADERS: usize = 64;

/// Frames that are remembered of a log.
const MOST_FRAMES: usize = 4096;
/// Largest record of a journal or log: three share a compact page.
const REPEAT_MAX: usize = COMPACT_ROOM / 3;

/// What a page is nearly made of.
pub(crate) struct ComposedBase {
    pub(crate) slices: Vec<RawSlice>,
    pub(crate) base: Box<Block>,
    /// The block of each slice.
    pub(crate) addrs: Vec<BlockAddr>,
    /// The device's write mark before the first of them was looked at.
    written_before: u64,
}

/// Where the pages of a repeat are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SourceKind {
    /// In the database.
    Database,
    /// In the log, where an earlier frame of the same page was written as a whole; otherwise in the database.
    Frames,
}

/// A journal or log, and where its pages may be found again.
struct Sources<'a> {
    inode: &'a Arc<Inode>,
    state: &'a InodeState,
    database: &'a Arc<Inode>,
    layout: Layout,
    look: SourceKind,
}

impl Sources<'_> {
    /// Where an earlier frame of the same page is, no part of which is about to change.
    fn frame_of(&self, copy: PageCopy) -> Option<u64> {
        let known = self.inode.memory.of::<WalMemory>().lock().frames.get(&copy.number).copied()?;
        known.into_iter().find(|&at| {
            let pages = at / PAGE..(at + self.layout.page).div_ceil(PAGE);
            at != copy.at && pages.into_iter().all(|page| !self.state.pages.is_dirty(page))
        })
    }
}

/// What is remembered of a journal or log.
#[derive(Debug, Default)]
pub(crate) struct WalState {
    /// What it is to replace.
    pub(crate) replaces: PredecessorCache,
    /// The layout behind its first header: SQLite ends a transaction by overwriting that with zeros.
    layout: Option<Layout>,
    /// Where the last two frames are that were written as a whole, by the page of the database. The end of
    /// the last one is often about to be overwritten, by the next frame's beginning.
    frames: Frames,
    /// The same of frames that records in NVRAM have.
    recorded: Frames,
}

type Frames = HashMap<u32, [u64; 2]>;

/// [`WalState`] as the inode of the journal or log remembers them.
pub(crate) struct WalMemory(Mutex<WalState>);

impl Default for WalMemory {
    fn default() -> WalMemory {
        WalMemory(Mutex::default().ranked(ranks::DELTAS))
    }
}

impl WalMemory {
    pub(crate) fn lock(&self) -> MutexGuard<'_, WalState> {
        self.0.lock()
    }
}

/// Pages of a database of which a page of its journal or log has parts.
pub(crate) struct CopiedPages {
    pub(crate) database: Arc<Inode>,
    layout: Layout,
    pub(crate) copies: Vec<PageCopy>,
}

impl CopiedPages {
    /// The pages of which page `index` of a journal or log has parts; `None` of other files, and of compressed
    /// ones. `database` is its companion.
    pub(crate) fn of(
        fs: &Xref,
        (inode, database): (&Arc<Inode>, Option<Arc<Inode>>),
        state: &InodeState,
        index: u32,
    ) -> Result<Option<CopiedPages>> {
        let name = fs.class(inode);
        if fs.is_compressed(inode) || !name.is_journal() {
            return Ok(None);
        }
        // It is remembered even where the database is not known yet: the header may be gone when that is.
        let layout = fs.layout(inode, state, name, index)?;
        let (Some(database), Some(layout)) = (database, layout) else { return Ok(None) };
        let copies = fs.copies(inode, state, name, layout, index)?;
        Ok(Some(CopiedPages { database, layout, copies }))
    }

    /// The slices of page `index` that a copy makes, whose like is at a place of a file.
    pub(crate) fn slices(&self, copy: PageCopy, index: u32, (source, at): (Ino, u64)) -> Vec<RawSlice> {
        self.layout.slices(copy, index, source, at)
    }

    /// The same in the database.
    pub(crate) fn slices_of_database(&self, copy: PageCopy, index: u32) -> Vec<RawSlice> {
        self.slices(copy, index, (self.database.ino, self.layout.in_database(copy)))
    }

    /// Where the last frame of the same page is that a record in NVRAM has.
    pub(crate) fn last_frame(&self, inode: &Inode, copy: PageCopy) -> Option<u64> {
        let known = inode.memory.of::<WalMemory>().lock().recorded.get(&copy.number).copied()?;
        known.into_iter().find(|&at| at != copy.at)
    }
}

impl Xref {
    /// The record of a page of a journal or log against what it repeats of its database, where it is small
    /// enough to be kept. What it is made from are sources then.
    pub(crate) fn encode_repeat(
        &self,
        (inode, database): (&Arc<Inode>, Option<&Arc<Inode>>),
        state: &InodeState,
        index: u32,
        page: &Block,
    ) -> Result<Option<(OwnedRecord, u64)>> {
        if !self.deltas.repeats
            || state.whole.contains(&u64::from(index))
            || self.refs.others_need_any(inode.ino)
        {
            return Ok(None);
        }
        let Some(repeated) = CopiedPages::of(self, (inode, database.cloned()), state, index)? else {
            return Ok(None);
        };
        let CopiedPages { database, layout, copies } = repeated;
        let mut best: Option<(OwnedRecord, ComposedBase)> = None;
        for look in [SourceKind::Database, SourceKind::Frames] {
            if best.as_ref().is_some_and(|(record, _)| record.size() <= GOOD_ENOUGH) {
                break;
            }
            let sources = Sources { inode, state, database: &database, layout, look };
            let Some(repeat) = self.repeat(&sources, &copies, index)? else { continue };
            let most = best.as_ref().map_or(self.repeat_max(), |(record, _)| record.size());
            if let Some(record) = self.deltas.encode(index, &repeat.base, page, &repeat.slices, most) {
                best = Some((record, repeat));
            }
        }
        let Some((record, repeat)) = best else { return Ok(None) };
        Ok(self.claim(inode, state, &database, index, &repeat)?.map(|after| (record, after)))
    }

    /// Bytes that a record of a journal or log may have: more than that of another file, as hardly anybody reads it.
    fn repeat_max(&self) -> usize {
        if self.deltas.has_compact() {
            self.deltas.record_max().max(REPEAT_MAX)
        } else {
            self.deltas.record_max()
        }
    }

    /// The pages of the database of which page `index` has a part.
    fn copies(
        &self,
        inode: &Inode,
        state: &InodeState,
        name: FileClass,
        layout: Layout,
        index: u32,
    ) -> Result<Vec<PageCopy>> {
        let mut copies = Vec::new();
        for record in layout.records_over(u64::from(index) * PAGE) {
            let name_at = if name == FileClass::Wal { record } else { record + layout.before - 4 };
            if let Some(number) = self.number_at(inode, state, name_at)?.filter(|&n| n > 0) {
                copies.push(PageCopy { at: record + layout.before, number });
            }
        }
        Ok(copies)
    }

    /// What page `index` repeats; `None` where nothing was found, or nothing in frames.
    fn repeat(&self, sources: &Sources<'_>, copies: &[PageCopy], index: u32) -> Result<Option<ComposedBase>> {
        let Sources { inode, layout, look, .. } = *sources;
        let mut repeat = self.begin_base();
        let mut in_frames = false;
        for &copy in copies {
            let frame = match look {
                SourceKind::Database => None,
                SourceKind::Frames => sources.frame_of(copy),
            };
            in_frames |= frame.is_some();
            let (source, offset) = match frame {
                Some(at) => (inode, at),
                None => (sources.database, layout.in_database(copy)),
            };
            for slice in layout.slices(copy, index, source.ino, offset) {
                if repeat.slices.len() < MAX_SLICES && (source.ino, slice.page.get()) != (inode.ino, index) {
                    self.add_slice(sources, source, slice, &mut repeat)?;
                }
            }
        }
        let found = !repeat.slices.is_empty() && (in_frames || look == SourceKind::Database);
        Ok(found.then_some(repeat))
    }

    fn add_slice(
        &self,
        sources: &Sources<'_>,
        source: &Arc<Inode>,
        slice: RawSlice,
        repeat: &mut ComposedBase,
    ) -> Result<()> {
        let page = u64::from(slice.page.get());
        let usable = |state: &InodeState| !state.dead && !state.pages.is_dirty(page) && page < source.pages();
        let usable = if source.ino == sources.inode.ino {
            usable(sources.state)
        } else {
            source.lock.try_read().is_some_and(|state| usable(&state))
        };
        if !usable {
            return Ok(());
        }
        let (Some((from, to)), Some(addr)) = (slice.ranges(), self.block_of(source, page)?) else {
            return Ok(());
        };
        repeat.base.0[to].copy_from_slice(&self.base(addr)?.0[from]);
        repeat.slices.push(slice);
        repeat.addrs.push(addr);
        Ok(())
    }

    /// What a page may repeat, of which nothing was looked at yet.
    pub(crate) fn begin_base(&self) -> ComposedBase {
        ComposedBase {
            slices: Vec::new(),
            base: Block::boxed(),
            addrs: Vec::new(),
            written_before: self.io.write_mark(),
        }
    }

    /// Makes the blocks that a page repeats its sources; `None` where one of them is not there, is not what
    /// was read of it, or has an address that is not durable. The record must not be durable before what was
    /// written by the mark that is returned. Blocks of the file itself become durable before the inode that
    /// names them, and with it the record.
    pub(crate) fn claim(
        &self,
        inode: &Inode,
        state: &InodeState,
        database: &Arc<Inode>,
        index: u32,
        repeat: &ComposedBase,
    ) -> Result<Option<u64>> {
        if !self.can_be_listed(inode.ino) {
            return Ok(None);
        }
        let mut sources: Vec<_> = repeat.slices.iter().map(|s| (s.ino.get(), s.page.get())).collect();
        sources.dedup();
        let add = |after| self.refs.claim(inode.ino, index, sources.clone()).then_some(after);
        if sources.iter().all(|&(ino, _)| ino == inode.ino) {
            return Ok(add(0));
        }
        let (Some(_wb), Some(guard)) = (database.wb.try_lock(), database.lock.try_read()) else {
            return Ok(None);
        };
        let settled = !guard.dead
            && database.nlink() > 0
            && guard.data_mark <= repeat.written_before
            && self.nodes.dirtiness_of(database.ino) <= Dirty::Times
            && !self.refs.depends_on_others(database.ino);
        if !settled {
            return Ok(None);
        }
        for (slice, &addr) in repeat.slices.iter().zip(&repeat.addrs) {
            let (page, own) = (u64::from(slice.page.get()), slice.ino.get() == inode.ino);
            let (file, state): (&Inode, &InodeState) = if own { (inode, state) } else { (database, &guard) };
            let there = self.find_slot(file, page)?.is_some_and(|slot| slot.addr() == addr);
            if !there || state.pages.is_dirty(page) {
                return Ok(None);
            }
        }
        Ok(add(guard.data_mark))
    }

    /// Remembers which frames a page of a log holds that is written as a whole.
    pub(crate) fn note_whole(&self, inode: &Inode, state: &InodeState, index: u64) -> Result<()> {
        note_frames(self, inode, state, index, |repeats| &mut repeats.frames)
    }

    /// How a journal or log is laid out where its page `index` is.
    fn layout(
        &self,
        inode: &Inode,
        state: &InodeState,
        name: FileClass,
        index: u32,
    ) -> Result<Option<Layout>> {
        if name == FileClass::Wal {
            return Ok(Layout::of_log(&self.read_page(inode, state, 0)?.0));
        }
        let at = u64::from(index) * PAGE;
        let mut start = 0;
        for _ in 0..MOST_HEADERS {
            let header = self.read_page(inode, state, start / PAGE)?;
            let within = (start % PAGE) as usize;
            let Some((layout, count)) = Layout::of_journal(&header.0[within..], start) else {
                return Ok(if start == 0 { inode.memory.of::<WalMemory>().lock().layout } else { None });
            };
            if start == 0 {
                inode.memory.of::<WalMemory>().lock().layout = Some(layout);
            }
            let Some(count) = count else { return Ok(Some(layout)) };
            let end = layout.first + count * layout.stride;
            if at < end {
                return Ok(Some(layout));
            }
            start = end.next_multiple_of(layout.first - start);
        }
        Ok(None)
    }

    /// The number at a place of the file, which may lie across two pages; `None` beyond the end.
    fn number_at(&self, inode: &Inode, state: &InodeState, at: u64) -> Result<Option<u32>> {
        if at + 4 > inode.size() {
            return Ok(None);
        }
        let mut bytes = [0; 4];
        for (i, byte) in bytes.iter_mut().enumerate() {
            let at = at + i as u64;
            *byte = self.read_page(inode, state, at / PAGE)?.0[(at % PAGE) as usize];
        }
        Ok(Some(u32::from_be_bytes(bytes)))
    }
}

/// Remembers which frames a page of a log holds that a record in NVRAM has.
pub(crate) fn note_recorded(fs: &Xref, inode: &Inode, state: &InodeState, index: u64) -> Result<()> {
    note_frames(fs, inode, state, index, |repeats| &mut repeats.recorded)
}

fn note_frames(
    fs: &Xref,
    inode: &Inode,
    state: &InodeState,
    index: u64,
    which: impl FnOnce(&mut WalState) -> &mut Frames,
) -> Result<()> {
    let wanted = fs.deltas.repeats && fs.deltas.has_compact();
    let (true, Ok(index)) = (wanted && fs.class(inode) == FileClass::Wal, u32::try_from(index)) else {
        return Ok(());
    };
    let Some(layout) = fs.layout(inode, state, FileClass::Wal, index)? else { return Ok(()) };
    let copies = fs.copies(inode, state, FileClass::Wal, layout, index)?;
    let memory = inode.memory.of::<WalMemory>();
    let mut memory = memory.lock();
    let frames = which(&mut memory);
    if frames.len() >= MOST_FRAMES {
        frames.clear();
    }
    for copy in copies {
        let known = frames.entry(copy.number).or_insert([copy.at; 2]);
        if known[0] != copy.at {
            *known = [copy.at, known[0]];
        }
    }
    Ok(())
}
