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
//! 7. The cache counts all pages here as dirty, copies and drafts too ([`PageVersions::held`]): `cache=`
//!    bounds them.
//!
//! Locks: the inode's (6), shared to look and exclusive to change.

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
struct Page {
    content: Arc<Block>,
    /// The version that changed it last.
    since: VersionId,
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

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PageVersions {
    open: BTreeMap<u64, Page>,
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
    /// A dirty page.
    pub(crate) fn get(&self, index: u64) -> Option<&Arc<Block>> {
        self.open.get(&index).map(|page| &page.content)
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

    /// The dirty pages of a range, in order.
    pub(crate) fn dirty(&self, pages: impl RangeBounds<u64>) -> impl Iterator<Item = (u64, &Arc<Block>)> {
        self.open.range(pages).map(|(&index, page)| (index, &page.content))
    }

    /// A dirty page, to be changed.
    pub(crate) fn change(&mut self, index: u64) -> Option<&mut Block> {
        self.keep_copy(index);
        self.touch(index);
        let page = self.open.get_mut(&index)?;
        page.since = self.now;
        Some(Arc::make_mut(&mut page.content))
    }

    /// Makes a page dirty, or another one of a dirty page.
    pub(crate) fn insert(&mut self, index: u64, content: Arc<Block>) {
        self.keep_copy(index);
        self.touch(index);
        self.open.insert(index, Page { content, since: self.now });
    }

    /// Takes a page away that is cut off: closed versions keep it.
    pub(crate) fn cut(&mut self, index: u64) {
        self.keep_copy(index);
        self.touch(index);
        self.open.remove(&index);
    }

    /// A page is on the volume as the open version has it: every version that sees it finds it there.
    pub(crate) fn clean(&mut self, index: u64) {
        self.touch(index);
        self.open.remove(&index);
    }

    /// Keeps a page for the closed versions that see it, before it changes.
    fn keep_copy(&mut self, index: u64) {
        let (Some(page), Some(last)) = (self.open.get(&index), self.closed.back()) else { return };
        if page.since <= last.id {
            self.copies.insert((index, page.since), Copy { content: page.content.clone(), until: last.id });
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

    /// Pages that are kept, of all versions.
    pub(crate) fn held(&self) -> usize {
        self.open.len() + self.copies.len() + self.draft.as_ref().map_or(0, |draft| draft.pages.len())
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
mod tests {
    use super::*;
    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn attributes(size: u64) -> Attributes {
        let time = Timestamp { secs: 0, nanos: 0 };
        Attributes { size, mode: 0o100644, owner: (0, 0), mtime: time, ctime: time }
    }

    fn page(value: u8) -> Arc<Block> {
        let mut page = Block::ZERO;
        page.0[0] = value;
        Arc::new(page)
    }

    fn value(page: Option<&Arc<Block>>) -> Option<u8> {
        page.map(|page| page.0[0])
    }

    #[test]
    fn a_page_that_changes_is_copied_once_for_all_versions_that_see_it() {
        let mut pages = PageVersions::default();
        (0..3).for_each(|index| pages.insert(index, page(1)));
        let first = pages.close(attributes(1));
        let second = pages.close(attributes(2));
        assert_eq!(pages.held(), 3, "closing copies nothing");
        for value in 2..5 {
            pages.change(1).unwrap().0[0] = value;
        }
        assert_eq!(pages.held(), 4, "one copy");
        for version in [first, second] {
            assert_eq!(value(pages.page_in(version, 1)), Some(1));
            assert!(pages.is_as_in(version, 0) && !pages.is_as_in(version, 1));
        }
        assert_eq!(value(pages.get(1)), Some(4));
        pages.drop_version(first);
        assert_eq!((pages.held(), value(pages.page_in(second, 1))), (4, Some(1)));
        pages.drop_version(second);
        assert_eq!(pages.held(), 3, "no version sees the copy");
    }

    #[test]
    fn a_version_that_a_newer_one_replaces_takes_its_pages_along() {
        let mut pages = PageVersions::default();
        pages.insert(0, page(0));
        let versions: Vec<VersionId> = (0..50)
            .map(|n| {
                pages.change(0).unwrap().0[0] = n;
                pages.close(attributes(u64::from(n)))
            })
            .collect();
        pages.change(0).unwrap().0[0] = 99;
        assert_eq!(pages.held(), 51);
        let (last, others) = versions.split_last().unwrap();
        others.iter().for_each(|&version| pages.drop_version(version));
        assert_eq!((pages.held(), value(pages.page_in(*last, 0))), (2, Some(49)));
        assert_eq!(pages.attributes(*last).unwrap().size, 49);
        assert_eq!(pages.attributes(others[0]), None);
    }

    #[test]
    fn what_is_cut_off_stays_in_closed_versions() {
        let mut pages = PageVersions::default();
        pages.insert(5, page(1));
        let before = pages.close(attributes(6));
        pages.cut(5);
        let between = pages.close(attributes(0));
        pages.insert(5, page(2));
        assert_eq!(value(pages.page_in(before, 5)), Some(1));
        assert_eq!(value(pages.page_in(between, 5)), None);
        assert_eq!(value(pages.get(5)), Some(2));
        pages.drop_version(before);
        assert_eq!(pages.held(), 1);
    }

    /// Against copies of everything, made as each version is closed.
    #[test]
    fn versions_are_what_they_were_when_they_were_closed() {
        for seed in 0..40 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let mut pages = PageVersions::default();
            let mut open: BTreeMap<u64, u8> = BTreeMap::new();
            let mut closed: Vec<(VersionId, u64, BTreeMap<u64, u8>)> = Vec::new();
            for step in 0..300u64 {
                let (index, byte) = (rng.random_range(0..8), step as u8);
                match rng.random_range(0..8) {
                    0..=1 => {
                        pages.insert(index, page(byte));
                        open.insert(index, byte);
                    }
                    2..=3 => {
                        let changed = pages.change(index).map(|page| page.0[0] = byte).is_some();
                        assert_eq!(changed, open.contains_key(&index));
                        open.entry(index).and_modify(|value| *value = byte);
                    }
                    4 => {
                        pages.cut(index);
                        open.remove(&index);
                    }
                    5..=6 => closed.push((pages.close(attributes(step)), step, open.clone())),
                    _ if !closed.is_empty() => {
                        let (version, ..) = closed.remove(rng.random_range(0..closed.len()));
                        pages.drop_version(version);
                    }
                    _ => {}
                }
                for (version, size, was) in &closed {
                    let is: BTreeMap<u64, u8> = (0..8)
                        .filter_map(|index| Some((index, value(pages.page_in(*version, index))?)))
                        .collect();
                    assert_eq!((&is, pages.attributes(*version).unwrap().size), (was, *size), "seed {seed}");
                }
                assert_eq!(pages.dirty_len(), open.len());
            }
            closed.iter().for_each(|(version, ..)| pages.drop_version(*version));
            assert_eq!(pages.held(), open.len(), "no copy is left");
        }
    }
    #[test]
    fn a_watched_file_knows_each_page_that_is_not_what_it_was() {
        let mut rng = ChaCha8Rng::seed_from_u64(16);
        let mut pages = PageVersions::default();
        (0..40).for_each(|index| pages.insert(index, page(0)));
        for epoch in 1..200 {
            assert_eq!(pages.touched(epoch), None, "it is not watched since the last checkpoint");
            pages.watch(epoch, BTreeSet::new());
            let before: BTreeMap<u64, Arc<Block>> = pages.dirty(..).map(|(i, p)| (i, p.clone())).collect();
            for _ in 0..rng.random_range(0..20) {
                let index = rng.random_range(0..60);
                match rng.random_range(0..5) {
                    0 => pages.insert(index, page(1)),
                    1 => pages.cut(index),
                    2 => pages.clean(index),
                    _ => drop(pages.change(index).map(|page| page.0[1] = 1)),
                }
            }
            let touched = pages.touched(epoch).unwrap();
            let same = |index: u64| match (before.get(&index), pages.get(index)) {
                (Some(before), Some(now)) => Arc::ptr_eq(before, now),
                (before, now) => before.is_none() && now.is_none(),
            };
            assert!((0..60).all(|index| same(index) || touched.contains(&index)));
        }
        (0..=MOST_TOUCHED as u64).for_each(|index| pages.insert(index, page(1)));
        assert_eq!(pages.touched(199), None, "too many to remember");
    }
}
