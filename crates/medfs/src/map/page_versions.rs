//! What a file is in memory beyond what is on the volume: its dirty pages, in versions.
//!
//! Purpose: one notion for all who need a file as it was at a moment while it goes on changing.
//!
//! | version | what it is | who makes it |
//! |---|---|---|
//! | open | what writes change and readers see | every write |
//! | closed | pages and attributes as they were at one moment | a writeback or fsync, as it places pages |
//! | draft | what an open atomic write will make of the file | START; COMMIT makes it the open one, ABORT drops it |
//!
//! Closing costs no copy: the version gets a number, and a page knows the version it was changed in. A page
//! that changes after a version was closed is copied then, once, for all closed versions that see it. So a
//! write waits for no flush. A copy goes when the last version that sees it is dropped. The address map has
//! no versions: a slot names the block of the version that was placed last.
//!
//! Invariants:
//! 1. Closed versions are in the order in which they were closed, and all are older than the open one.
//! 2. A page is copied for closed versions at most once per version that changed it, and no copy is kept
//!    that no closed version sees.
//! 3. A page that was not changed since a version was closed is the same page in both: it may be called
//!    clean when that version is written.
//! 4. The attributes of a closed version are those of the nodes that are taken with it.
//! 5. Every page of a draft has a reservation: in the file where it was a hole, and beside the file's own
//!    blocks otherwise. A draft shows no page of the file from its `kept` bytes on.
//! 6. A file that is [watched](PageVersions::watch) knows every page that became dirty, changed or is dirty no more
//!    since then.
//! 7. The cache counts all pages here as dirty, copies and drafts too ([`PageVersions::held`]). What of them is in
//!    memory `cache=` bounds ([`Held::in_memory`]): the others are [`away`](super::away).
//!
//! Locks: the inode's (6), shared to look and exclusive to change.

use super::away::{Aways, Kept};
use crate::types::Timestamp;
use medfs_format::node::RawInode;
use medfs_format::{BLOCK_SIZE, Block};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeBounds;
use std::sync::Arc;

const PAGE: u64 = BLOCK_SIZE as u64;

/// Number of a version of a file.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct VersionId(u64);

/// What an inode block says of a file, beside where its pages are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) size: u64,
    pub(crate) mode: u16,
    pub(crate) owner: (u32, u32),
    pub(crate) mtime: Timestamp,
    ctime: Timestamp,
}

impl Attributes {
    /// Those of an inode block.
    pub(crate) fn of(r: &RawInode) -> Attributes {
        Attributes {
            size: r.i_size.get(),
            mode: r.i_mode.get(),
            owner: (r.i_uid.get(), r.i_gid.get()),
            mtime: Timestamp { secs: r.i_mtime.get() as i64, nanos: r.i_mtime_nsec.get() },
            ctime: Timestamp { secs: r.i_ctime.get() as i64, nanos: r.i_ctime_nsec.get() },
        }
    }
}

/// A dirty page of the open version.
#[derive(Debug)]
pub(super) struct Page {
    pub(super) content: Kept,
    /// The version that changed it last.
    since: VersionId,
}

impl Page {
    fn here(&self) -> Option<&Arc<Block>> {
        match &self.content {
            Kept::Here(content) => Some(content),
            Kept::Away(_) => None,
        }
    }
}

/// A page as closed versions see it, of which the open one has another, or none.
#[derive(Debug)]
struct Copy {
    content: Arc<Block>,
    /// The last version that sees it.
    until: VersionId,
}

#[derive(Debug)]
struct Closed {
    id: VersionId,
    attributes: Attributes,
}

/// What an open atomic write will make of a file.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Pages that differ from the file's.
    pub(crate) pages: BTreeMap<u64, Arc<Block>>,
    /// Size the file will have.
    pub(crate) size: u64,
    /// Bytes of the file that are not cut off: from here on it shows its own pages and zeros.
    pub(crate) kept: u64,
}

impl Draft {
    /// One that is like a file of so many bytes.
    pub(crate) fn of(size: u64) -> Draft {
        Draft { size, kept: size, ..Draft::default() }
    }

    /// Blocks reserved beside those that the file has.
    pub(crate) fn reserved(&self) -> u64 {
        self.pages.len() as u64
    }

    /// Cuts it off behind `size` bytes, its pages from `first_gone` on; the last page that stays ends there already.
    /// How many blocks were reserved for what is gone.
    pub(crate) fn cut(&mut self, size: u64, first_gone: u64) -> u64 {
        self.kept = self.kept.min(size);
        self.pages.split_off(&first_gone).len() as u64
    }

    /// The first page of the file that it does not show.
    pub(crate) fn first_cut(&self) -> u64 {
        self.kept.div_ceil(PAGE)
    }
}

/// What is kept of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Held {
    /// Pages of all versions, copies and the draft.
    pub(crate) pages: usize,
    /// Those of them that are away.
    pub(crate) away: usize,
    /// Pages whose memory all of it takes.
    pub(crate) in_memory: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PageVersions {
    pub(super) open: BTreeMap<u64, Page>,
    /// Those of the open version that are away.
    pub(super) aways: Aways,
    closed: VecDeque<Closed>,
    /// By page, and by the version that changed it.
    copies: BTreeMap<(u64, VersionId), Copy>,
    /// The open version.
    now: VersionId,
    draft: Option<Draft>,
    watched: Option<Watched>,
}

/// Pages that are not what they were when a record in NVRAM was made of their file.
#[derive(Debug)]
struct Watched {
    /// The checkpoints before it, as the caller counts them.
    epoch: u64,
    touched: BTreeSet<u64>,
}

/// Pages that are remembered of a watched file: with more, all of its dirty pages are looked at.
const MOST_TOUCHED: usize = 4096;

/// The open version: the file's dirty pages.
impl PageVersions {
    /// A dirty page that is in memory.
    pub(crate) fn get(&self, index: u64) -> Option<&Arc<Block>> {
        self.open.get(&index).and_then(Page::here)
    }

    pub(crate) fn is_dirty(&self, index: u64) -> bool {
        self.open.contains_key(&index)
    }

    pub(crate) fn any_dirty(&self) -> bool {
        !self.open.is_empty()
    }

    /// How many pages are dirty.
    pub(crate) fn dirty_len(&self) -> usize {
        self.open.len()
    }

    /// Which pages of a range are dirty, in order.
    pub(crate) fn dirty(&self, pages: impl RangeBounds<u64>) -> impl Iterator<Item = u64> {
        self.open.range(pages).map(|(&index, _)| index)
    }

    /// The dirty pages of a range that are in memory, in order.
    pub(crate) fn dirty_here(
        &self,
        pages: impl RangeBounds<u64>,
    ) -> impl Iterator<Item = (u64, &Arc<Block>)> {
        self.open.range(pages).filter_map(|(&index, page)| Some((index, page.here()?)))
    }

    /// A dirty page, to be changed, where it is in memory.
    pub(crate) fn change(&mut self, index: u64) -> Option<&mut Block> {
        self.keep_copy(index);
        self.touch(index);
        let page = self.open.get_mut(&index)?;
        let Kept::Here(content) = &mut page.content else { return None };
        page.since = self.now;
        Some(Arc::make_mut(content))
    }

    /// Makes a page dirty, or another one of a dirty page.
    pub(crate) fn insert(&mut self, index: u64, content: impl Into<Kept>) {
        self.keep_copy(index);
        self.touch(index);
        let content = content.into();
        if let Kept::Away(away) = &content {
            self.aways.add(away);
        }
        if let Some(Page { content: Kept::Away(away), .. }) =
            self.open.insert(index, Page { content, since: self.now })
        {
            self.aways.remove(&away);
        }
    }

    fn take_out(&mut self, index: u64) {
        if let Some(Page { content: Kept::Away(away), .. }) = self.open.remove(&index) {
            self.aways.remove(&away);
        }
    }

    /// Takes a page away that is cut off: closed versions keep it.
    pub(crate) fn cut(&mut self, index: u64) {
        self.keep_copy(index);
        self.touch(index);
        self.take_out(index);
    }

    /// A page is on the volume as the open version has it: every version that sees it finds it there.
    pub(crate) fn clean(&mut self, index: u64) {
        self.touch(index);
        self.take_out(index);
    }

    /// Keeps a page for the closed versions that see it, before it changes. None is looked for that was away as they
    /// were closed.
    fn keep_copy(&mut self, index: u64) {
        let (Some(page), Some(last)) = (self.open.get(&index), self.closed.back()) else { return };
        if let Some(content) = page.here().filter(|_| page.since <= last.id) {
            self.copies.insert((index, page.since), Copy { content: content.clone(), until: last.id });
        }
    }
}

/// What changed since a record.
impl PageVersions {
    /// From now on pages are noted that become dirty, change or are dirty no more; `still` are some already.
    pub(crate) fn watch(&mut self, epoch: u64, still: BTreeSet<u64>) {
        self.watched = (still.len() <= MOST_TOUCHED).then_some(Watched { epoch, touched: still });
    }

    /// It is not known any more which pages a record has as they are.
    pub(crate) fn unwatch(&mut self) {
        self.watched = None;
    }

    /// The pages that were noted, if the file has been watched since after the last checkpoint.
    pub(crate) fn touched(&self, epoch: u64) -> Option<&BTreeSet<u64>> {
        self.watched.as_ref().filter(|watched| watched.epoch == epoch).map(|watched| &watched.touched)
    }

    fn touch(&mut self, index: u64) {
        let Some(watched) = &mut self.watched else { return };
        watched.touched.insert(index);
        if watched.touched.len() > MOST_TOUCHED {
            self.watched = None;
        }
    }
}

/// Closed versions.
impl PageVersions {
    /// Closes the open version; what changes from now on belongs to the next one.
    pub(crate) fn close(&mut self, attributes: Attributes) -> VersionId {
        let id = self.now;
        self.closed.push_back(Closed { id, attributes });
        self.now = VersionId(id.0 + 1);
        id
    }

    /// A page as a closed version has it; `None` where the volume has it, or nothing does.
    pub(crate) fn page_in(&self, version: VersionId, index: u64) -> Option<&Arc<Block>> {
        if self.is_as_in(version, index) {
            return self.get(index);
        }
        let (_, copy) = self.copies.range((index, VersionId(0))..=(index, version)).next_back()?;
        (version <= copy.until).then_some(&copy.content)
    }

    /// Whether a dirty page is what it was when a version was closed.
    pub(crate) fn is_as_in(&self, version: VersionId, index: u64) -> bool {
        self.open.get(&index).is_some_and(|page| page.since <= version)
    }

    /// The attributes of a closed version.
    pub(crate) fn attributes(&self, version: VersionId) -> Option<&Attributes> {
        self.closed.iter().find(|closed| closed.id == version).map(|closed| &closed.attributes)
    }

    /// Drops a closed version: it is on the volume, or a newer one is to be written in its place.
    pub(crate) fn drop_version(&mut self, version: VersionId) {
        self.closed.retain(|closed| closed.id != version);
        let closed = &self.closed;
        self.copies.retain(|&(_, since), copy| {
            closed.iter().any(|closed| since <= closed.id && closed.id <= copy.until)
        });
    }

    /// Whether no closed version is left.
    pub(super) fn is_open_alone(&self) -> bool {
        self.closed.is_empty()
    }

    /// What is kept, of all versions.
    pub(crate) fn held(&self) -> Held {
        let draft = self.draft.as_ref().map_or(0, |draft| draft.pages.len());
        let (pages, away) = (self.open.len() + self.copies.len() + draft, self.aways.pages());
        Held { pages, away, in_memory: pages - away + self.aways.bytes().div_ceil(BLOCK_SIZE) }
    }
}

/// The draft.
impl PageVersions {
    pub(crate) fn draft(&self) -> Option<&Draft> {
        self.draft.as_ref()
    }

    pub(crate) fn draft_mut(&mut self) -> Option<&mut Draft> {
        self.draft.as_mut()
    }

    /// Begins a draft of a file of so many bytes, where none is open.
    pub(crate) fn begin_draft(&mut self, size: u64) {
        self.draft.get_or_insert_with(|| Draft::of(size));
    }

    /// Takes the draft, to make it the file's or to drop it.
    pub(crate) fn take_draft(&mut self) -> Option<Draft> {
        self.draft.take()
    }

    /// Puts it back.
    pub(crate) fn put_draft(&mut self, draft: Draft) {
        self.draft = Some(draft);
    }

    /// The size that readers see of a file of `size` bytes.
    pub(crate) fn size_seen(&self, size: u64) -> u64 {
        self.draft.as_ref().map_or(size, |draft| draft.size)
    }
}

#[cfg(test)]
mod tests;
