//! Which pages are made from the blocks of other files, so that such a block stays while anybody needs it.
//!
//! A *source* is a page of a file whose block is a slice of the base of some page of another file, its
//! *dependent*. Invariants: a source's block is neither overwritten nor freed while a dependent's record, in
//! memory or on the device, names it; cleaning may move it, as records name file and page. A record that is
//! gone from memory counts until the inode without it is durable: then [`BlockRefs::settle`] or a checkpoint
//! forgets it. While a new record of a page has no place, it is made from what both name. A dependent is never a
//! source. Locks: one mutex, a leaf.

use super::claims::Claims;
use medfs_format::Ino;
use medfs_sync::Mutex;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Most pages that are made whole in one hold of their file's lock because blocks go that they are made from.
pub(crate) const MOST_MADE_WHOLE: usize = 256;

/// Who needs a page's block.
#[derive(Debug, Default)]
struct Users {
    /// Pages, by inode and index, whose records name it.
    current: BTreeSet<(Ino, u32)>,
    /// Inodes that had such records and are not yet durable without them, with the number of these.
    gone: BTreeMap<Ino, usize>,
}

impl Users {
    /// Whether records of other files than this one name it.
    fn has_others(&self, ino: Ino) -> bool {
        self.current.iter().any(|&(user, _)| user != ino)
    }

    /// Whether those of other files on the device do.
    fn had_others(&self, ino: Ino) -> bool {
        self.gone.keys().any(|&user| user != ino)
    }
}

#[derive(Debug, Default)]
struct Inner {
    /// By source.
    users: HashMap<Ino, BTreeMap<u32, Users>>,
    /// Sources of each page that has a record with slices.
    current: HashMap<Ino, BTreeMap<u32, Vec<(Ino, u32)>>>,
    /// Sources of new records of pages, which have no place yet.
    claimed: Claims,
    /// Sources of records that are gone from memory, by inode.
    gone: HashMap<Ino, Vec<(Ino, u32)>>,
    /// Files of which no page may become a source now, and how many freezes of each are held.
    frozen: HashMap<Ino, usize>,
    /// By source: how many of its users, page by page, current or gone, are other files. No entry where there is none.
    foreign: HashMap<Ino, usize>,
    /// By user: how many sources in other files its pages have, current, claimed or gone. No entry where there is none.
    abroad: HashMap<Ino, usize>,
}

impl Inner {
    /// The users of a range of a file's pages.
    fn users_of(&self, ino: Ino, pages: Range<u64>) -> impl Iterator<Item = &Users> {
        let start = u32::try_from(pages.start).unwrap_or(u32::MAX);
        let from_start = self.users.get(&ino).into_iter().flat_map(move |p| p.range(start..));
        from_start.take_while(move |(page, _)| u64::from(**page) < pages.end).map(|(_, users)| users)
    }

    /// Takes away what a range of a file's pages is made from.
    fn take_current(&mut self, ino: Ino, pages: &Range<u64>) -> Vec<(u32, Vec<(Ino, u32)>)> {
        let Some(current) = self.current.get_mut(&ino) else { return Vec::new() };
        let start = u32::try_from(pages.start).unwrap_or(u32::MAX);
        let within = current.range(start..).map(|(&i, _)| i).take_while(|&i| u64::from(i) < pages.end);
        let within: Vec<u32> = within.collect();
        let taken = within.into_iter().filter_map(|index| Some((index, current.remove(&index)?))).collect();
        if current.is_empty() {
            self.current.remove(&ino);
        }
        taken
    }

    /// Notes that another file began to be a user of one of a source's pages.
    fn foreign_came(&mut self, source: Ino, user: Ino) {
        if source != user {
            *self.foreign.entry(source).or_default() += 1;
        }
    }

    /// Notes that it ceased to be one.
    fn foreign_went(&mut self, source: Ino, user: Ino) {
        if source == user {
            return;
        }
        let Some(count) = self.foreign.get_mut(&source) else { return };
        *count -= 1;
        if *count == 0 {
            self.foreign.remove(&source);
        }
    }

    /// Notes that these sources are a file's no more.
    fn left_abroad(&mut self, ino: Ino, left: &[(Ino, u32)]) {
        let left = left.iter().filter(|(source, _)| *source != ino).count();
        if let Some(count) = self.abroad.get_mut(&ino) {
            *count -= left;
            if *count == 0 {
                self.abroad.remove(&ino);
            }
        }
    }

    /// Withdraws what was claimed for a page, but for what its record names too.
    fn disclaim(&mut self, ino: Ino, index: u32) {
        let Some(claimed) = self.claimed.take(ino, index) else { return };
        let current = self.current.get(&ino).and_then(|pages| pages.get(&index)).cloned().unwrap_or_default();
        for &(source, page) in claimed.iter().filter(|source| !current.contains(source)) {
            let Some(pages) = self.users.get_mut(&source) else { continue };
            let Some(users) = pages.get_mut(&page) else { continue };
            let went = users.current.remove(&(ino, index));
            if users.gone.is_empty() && users.current.is_empty() {
                pages.remove(&page);
            }
            if pages.is_empty() {
                self.users.remove(&source);
            }
            if went {
                self.foreign_went(source, ino);
            }
        }
        self.left_abroad(ino, &claimed);
    }

    fn drop_pages(&mut self, ino: Ino, pages: Range<u64>) {
        for (index, sources) in self.take_current(ino, &pages) {
            for (source, page) in sources {
                let claimed = self.claimed.names(ino, index, (source, page));
                let Some(users) = self.users.get_mut(&source).and_then(|pages| pages.get_mut(&page)) else {
                    continue;
                };
                let went = !claimed && users.current.remove(&(ino, index));
                let count = users.gone.entry(ino).or_default();
                *count += 1;
                let came = *count == 1;
                self.gone.entry(ino).or_default().push((source, page));
                if came {
                    self.foreign_came(source, ino);
                }
                if went {
                    self.foreign_went(source, ino);
                }
            }
        }
    }
}

/// Sources of an inode's records that its next durable state no longer names.
#[derive(Debug, Default)]
pub(crate) struct ReleasedRefs {
    ino: Ino,
    sources: Vec<(Ino, u32)>,
}

impl ReleasedRefs {
    pub(crate) fn is_empty(&self) -> bool {
        self.sources.is_empty()
    }
}

/// A file is frozen: none of its pages becomes a source.
pub(crate) struct Freeze<'a> {
    refs: &'a BlockRefs,
    ino: Ino,
}

impl Drop for Freeze<'_> {
    fn drop(&mut self) {
        self.refs.thaw(self.ino);
    }
}

/// How an attempt at an operation ended that files made from others may be in the way of.
pub(crate) enum Attempt<R> {
    Done(R),
    /// Nothing changed: pages in this range of the file are sources of others.
    Shared(Ino, Range<u64>),
    /// Not all was done: these pages of the file are sources of others.
    Blocked(Ino, Vec<u64>),
    /// It is to be tried again.
    Again,
}

/// By whom a page's block is needed as a base, the strongest need first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Need {
    /// By other files.
    ByOthers,
    /// By other pages of its file, and perhaps by what of other files is on the device.
    ByItsFile,
    /// By what of other files is on the device, and in memory no more.
    ByOthersOnDevice,
    /// By what of these is on the device, and in memory no more: it goes when the file's inode is written.
    ByItsFileOnDevice,
    None,
}

/// A file that needs blocks of another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Referrer {
    pub(crate) ino: Ino,
    /// Pages whose records name those blocks; none where such records only have to go durably.
    pub(crate) pages: Vec<u64>,
}

#[derive(Debug, Default)]
pub(crate) struct BlockRefs {
    inner: Mutex<Inner>,
    /// Sources there are, to pass by the mutex where there are none.
    count: AtomicUsize,
}

impl BlockRefs {
    /// Notes what the record of a page of `ino` is made from, in place of what it was made from before.
    /// `false` (nothing noted) where one of the sources may not become one.
    pub(crate) fn add(&self, ino: Ino, index: u32, sources: Vec<(Ino, u32)>) -> bool {
        let claimed = self.claim(ino, index, sources);
        if claimed {
            self.keep(ino, index);
        }
        claimed
    }

    /// Notes what a new record of a page is made from, beside what the page's record is made from, while a place is
    /// looked for. `false` (nothing noted) where one of the sources may not become one. [`BlockRefs::keep`] comes
    /// next, or [`BlockRefs::disclaim`].
    pub(crate) fn claim(&self, ino: Ino, index: u32, sources: Vec<(Ino, u32)>) -> bool {
        let inner = &mut *self.inner.lock();
        if sources.iter().any(|(source, _)| inner.frozen.contains_key(source)) {
            return false;
        }
        inner.disclaim(ino, index);
        for &(source, page) in &sources {
            let users = inner.users.entry(source).or_default().entry(page).or_default();
            if users.current.insert((ino, index)) {
                inner.foreign_came(source, ino);
            }
        }
        let abroad = sources.iter().filter(|(source, _)| *source != ino).count();
        if abroad > 0 {
            *inner.abroad.entry(ino).or_default() += abroad;
        }
        inner.claimed.note(ino, index, sources);
        self.count.store(inner.users.len(), Ordering::Release);
        true
    }

    /// The new record of a page has its place: what the page was made from before is gone from memory.
    pub(crate) fn keep(&self, ino: Ino, index: u32) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let inner = &mut *self.inner.lock();
        inner.drop_pages(ino, u64::from(index)..u64::from(index) + 1);
        if let Some(sources) = inner.claimed.take(ino, index) {
            inner.current.entry(ino).or_default().insert(index, sources);
        }
    }

    /// It has none: the page is what its record says, or becomes whole.
    pub(crate) fn disclaim(&self, ino: Ino, index: u32) {
        if self.count.load(Ordering::Acquire) > 0 {
            let inner = &mut *self.inner.lock();
            inner.disclaim(ino, index);
            self.count.store(inner.users.len(), Ordering::Release);
        }
    }

    /// None of the new records of a file's pages that have no place yet gets one; whether there were any.
    pub(crate) fn disclaim_all(&self, ino: Ino) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let pages = self.inner.lock().claimed.pages(ino);
        pages.iter().for_each(|&index| self.disclaim(ino, index));
        !pages.is_empty()
    }

    /// Lets no page of a file become a source as long as what is returned is held.
    pub(crate) fn freeze(&self, ino: Ino) -> Freeze<'_> {
        *self.inner.lock().frozen.entry(ino).or_default() += 1;
        Freeze { refs: self, ino }
    }

    fn thaw(&self, ino: Ino) {
        let mut inner = self.inner.lock();
        if let Some(count) = inner.frozen.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                inner.frozen.remove(&ino);
            }
        }
    }

    /// Notes that the records of a range of pages are gone from memory.
    pub(crate) fn drop_pages(&self, ino: Ino, pages: Range<u64>) {
        if self.count.load(Ordering::Acquire) > 0 {
            self.inner.lock().drop_pages(ino, pages);
        }
    }

    /// What becomes free when the inode as it is now in memory is durable.
    pub(crate) fn take_released(&self, ino: Ino) -> ReleasedRefs {
        let sources = match self.count.load(Ordering::Acquire) {
            0 => Vec::new(),
            _ => self.inner.lock().gone.remove(&ino).unwrap_or_default(),
        };
        ReleasedRefs { ino, sources }
    }

    /// The inode is durable as it was at [`BlockRefs::take_released`].
    pub(crate) fn settle(&self, gone: &ReleasedRefs) {
        if gone.sources.is_empty() {
            return;
        }
        let inner = &mut *self.inner.lock();
        inner.left_abroad(gone.ino, &gone.sources);
        for &(source, page) in &gone.sources {
            let Some(pages) = inner.users.get_mut(&source) else { continue };
            let mut went = false;
            if let Some(users) = pages.get_mut(&page) {
                if let Some(count) = users.gone.get_mut(&gone.ino) {
                    *count -= 1;
                    if *count == 0 {
                        users.gone.remove(&gone.ino);
                        went = true;
                    }
                }
                if users.gone.is_empty() && users.current.is_empty() {
                    pages.remove(&page);
                }
            }
            if pages.is_empty() {
                inner.users.remove(&source);
            }
            if went {
                inner.foreign_went(source, gone.ino);
            }
        }
        self.count.store(inner.users.len(), Ordering::Release);
    }

    /// It is not.
    pub(crate) fn give_back(&self, gone: ReleasedRefs) {
        if !gone.sources.is_empty() {
            self.inner.lock().gone.entry(gone.ino).or_default().extend(gone.sources);
        }
    }

    /// A checkpoint has made everything durable as it is in memory.
    pub(crate) fn committed(&self) {
        let all: Vec<ReleasedRefs> = {
            let gone = std::mem::take(&mut self.inner.lock().gone);
            gone.into_iter().map(|(ino, sources)| ReleasedRefs { ino, sources }).collect()
        };
        all.iter().for_each(|gone| self.settle(gone));
    }

    /// How a page's block is needed.
    pub(crate) fn need(&self, ino: Ino, page: u64) -> Need {
        if self.count.load(Ordering::Acquire) == 0 {
            return Need::None;
        }
        let Ok(page) = u32::try_from(page) else { return Need::None };
        let inner = self.inner.lock();
        let Some(users) = inner.users.get(&ino).and_then(|pages| pages.get(&page)) else { return Need::None };
        if users.has_others(ino) {
            Need::ByOthers
        } else if !users.current.is_empty() {
            Need::ByItsFile
        } else if users.had_others(ino) {
            Need::ByOthersOnDevice
        } else {
            Need::ByItsFileOnDevice
        }
    }

    /// Whether a page's block is needed at all.
    pub(crate) fn is_source(&self, ino: Ino, page: u64) -> bool {
        self.need(ino, page) != Need::None
    }

    /// Whether any page of a file has, or had on the device, a record made from another file.
    pub(crate) fn depends_on_others(&self, ino: Ino) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.inner.lock().abroad.contains_key(&ino)
    }

    /// Pages of a file that are made from others, as they are in memory.
    pub(crate) fn pages(&self, ino: Ino) -> Vec<u64> {
        let inner = self.inner.lock();
        inner.current.get(&ino).into_iter().flat_map(|pages| pages.keys()).map(|&page| page.into()).collect()
    }

    /// The other files from which a file's pages are made, as they are in memory.
    pub(crate) fn origins(&self, ino: Ino) -> Vec<Ino> {
        let inner = self.inner.lock();
        let sources = inner.current.get(&ino).into_iter().flat_map(|pages| pages.values().flatten());
        let others: BTreeSet<Ino> =
            sources.map(|&(source, _)| source).filter(|&other| other != ino).collect();
        others.into_iter().collect()
    }

    /// Whether other files need blocks of a file: in constant time, as every page of a log asks.
    pub(crate) fn others_need_any(&self, ino: Ino) -> bool {
        self.count.load(Ordering::Acquire) > 0 && self.inner.lock().foreign.contains_key(&ino)
    }

    /// Whether other files need blocks of a range of a file's pages.
    pub(crate) fn others_need(&self, ino: Ino, pages: Range<u64>) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let inner = self.inner.lock();
        inner.foreign.contains_key(&ino)
            && inner.users_of(ino, pages).any(|users| users.has_others(ino) || users.had_others(ino))
    }

    /// The same by what of other files is in memory: a checkpoint makes that durable together with the file.
    pub(crate) fn others_need_now(&self, ino: Ino, pages: Range<u64>) -> bool {
        self.count.load(Ordering::Acquire) > 0
            && self.inner.lock().users_of(ino, pages).any(|users| users.has_others(ino))
    }

    /// The other files that need blocks of a range of a file's pages.
    pub(crate) fn others(&self, ino: Ino, pages: Range<u64>) -> Vec<Referrer> {
        let mut found = self.of(ino, pages);
        found.retain(|dependent| dependent.ino != ino);
        found
    }

    /// The pages of the file itself that need blocks of a range of its pages.
    pub(crate) fn own(&self, ino: Ino, pages: Range<u64>) -> Vec<u64> {
        let found = self.of(ino, pages);
        found
            .into_iter()
            .find(|dependent| dependent.ino == ino)
            .map_or(Vec::new(), |dependent| dependent.pages)
    }

    /// Whether so many pages of the file itself, outside of a range of its pages, need blocks of that range that they
    /// are not made whole in one hold of its lock.
    pub(crate) fn many_own(&self, ino: Ino, pages: &Range<u64>) -> bool {
        self.own_outside(ino, pages).len() > MOST_MADE_WHOLE
    }

    /// The pages of the file itself, outside of a range of its pages, that need blocks of that range.
    pub(crate) fn own_outside(&self, ino: Ino, pages: &Range<u64>) -> Vec<u64> {
        let mut own = self.own(ino, pages.clone());
        own.retain(|page| !pages.contains(page));
        own
    }

    fn of(&self, ino: Ino, pages: Range<u64>) -> Vec<Referrer> {
        if self.count.load(Ordering::Acquire) == 0 {
            return Vec::new();
        }
        let inner = self.inner.lock();
        let mut found: BTreeMap<Ino, BTreeSet<u64>> = BTreeMap::new();
        for users in inner.users_of(ino, pages) {
            for &(dependent, index) in &users.current {
                found.entry(dependent).or_default().insert(index.into());
            }
            for &dependent in users.gone.keys() {
                found.entry(dependent).or_default();
            }
        }
        found.into_iter().map(|(ino, pages)| Referrer { ino, pages: pages.into_iter().collect() }).collect()
    }

    /// The files that have records made from others, or from other pages.
    pub(crate) fn all(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> = self.inner.lock().current.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Whether a file is one of these, or there are fewer than `most`, with those that may become one of them.
    pub(crate) fn has_room(&self, ino: Ino, most: usize) -> bool {
        let inner = self.inner.lock();
        let new = inner.claimed.files().filter(|of| *of != ino && !inner.current.contains_key(of)).count();
        inner.current.len() + new < most || inner.current.contains_key(&ino)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    const WAL: Ino = 20;
    const DB: Ino = 10;

    #[test]
    fn a_source_is_one_until_its_dependent_is_durable_without_it() {
        let d = BlockRefs::default();
        d.add(WAL, 3, vec![(DB, 7), (DB, 8)]);
        assert!(d.need(DB, 7) == Need::ByOthers && d.is_source(DB, 7) && d.depends_on_others(WAL));
        assert_eq!(d.of(DB, 0..8), [Referrer { ino: WAL, pages: vec![3] }]);
        assert_eq!(d.of(DB, 9..100), []);
        d.add(WAL, 3, vec![(DB, 8)]);
        assert_eq!((d.need(DB, 7), d.need(DB, 8)), (Need::ByOthersOnDevice, Need::ByOthers));
        assert_eq!(d.of(DB, 7..8), [Referrer { ino: WAL, pages: vec![] }]);
        let gone = d.take_released(WAL);
        d.drop_pages(WAL, 0..u64::MAX);
        d.settle(&gone);
        assert_eq!(
            (d.need(DB, 7), d.need(DB, 8)),
            (Need::None, Need::ByOthersOnDevice),
            "8 went after the snapshot"
        );
        let failed = d.take_released(WAL);
        d.give_back(failed);
        assert!(d.is_source(DB, 8));
        d.committed();
        assert!(!d.is_source(DB, 8) && !d.others_need(DB, 0..100) && !d.depends_on_others(WAL));
        assert!(d.all().is_empty());
    }

    /// A step of a random history.
    #[derive(Debug, Clone)]
    enum Step {
        Add(Ino, u32, Vec<(Ino, u32)>),
        Claim(Ino, u32, Vec<(Ino, u32)>),
        Keep(Ino, u32),
        Disclaim(Ino, u32),
        Drop(Ino, u64),
        Take(Ino),
        Settle,
        GiveBack,
        Commit,
    }

    fn step() -> impl Strategy<Value = Step> {
        let sources = vec((1..5u32, 0..4u32), 0..4);
        prop_oneof![
            3 => (1..5u32, 0..6u32, sources.clone()).prop_map(|(ino, index, from)| Step::Add(ino, index, from)),
            3 => (1..5u32, 0..6u32, sources).prop_map(|(ino, index, from)| Step::Claim(ino, index, from)),
            2 => (1..5u32, 0..6u32).prop_map(|(ino, index)| Step::Keep(ino, index)),
            2 => (1..5u32, 0..6u32).prop_map(|(ino, index)| Step::Disclaim(ino, index)),
            1 => (1..5u32, 0..6u64).prop_map(|(ino, index)| Step::Drop(ino, index)),
            1 => (1..5u32).prop_map(Step::Take),
            1 => Just(Step::Settle),
            1 => Just(Step::GiveBack),
            1 => Just(Step::Commit),
        ]
    }

    proptest! {
        /// The counts of other files, as users and as sources, against what a walk over all users finds, after every
        /// step.
        #[test]
        fn whether_files_need_each_other_is_known_without_looking_at_their_pages(steps in vec(step(), 1..60)) {
            let (d, mut taken) = (BlockRefs::default(), Vec::new());
            for step in steps {
                match step {
                    Step::Add(ino, index, sources) => drop(d.add(ino, index, sources)),
                    Step::Claim(ino, index, sources) => drop(d.claim(ino, index, sources)),
                    Step::Keep(ino, index) => d.keep(ino, index),
                    Step::Disclaim(ino, index) => d.disclaim(ino, index),
                    Step::Drop(ino, index) => d.drop_pages(ino, index..index + 2),
                    Step::Take(ino) => taken.push(d.take_released(ino)),
                    Step::Settle => taken.pop().iter().for_each(|gone| d.settle(gone)),
                    Step::GiveBack => taken.pop().into_iter().for_each(|gone| d.give_back(gone)),
                    Step::Commit => d.committed(),
                }
                for ino in 1..5 {
                    let all = !d.others(ino, 0..u64::MAX).is_empty();
                    prop_assert_eq!((d.others_need_any(ino), d.others_need(ino, 0..u64::MAX)), (all, all));
                    prop_assert_eq!(d.others_need(ino, 1..3), !d.others(ino, 1..3).is_empty());
                    let mut sources = (1..5).filter(|&source| source != ino);
                    let abroad = sources.any(|source| d.others(source, 0..u64::MAX).iter().any(|r| r.ino == ino));
                    prop_assert_eq!(d.depends_on_others(ino), abroad);
                }
            }
        }
    }

    #[test]
    fn a_page_is_made_from_what_two_records_name_until_the_new_one_has_a_place() {
        let d = BlockRefs::default();
        d.add(WAL, 3, vec![(DB, 7), (DB, 8)]);
        let needs = |d: &BlockRefs| [7, 8, 9].map(|page| d.need(DB, page));
        assert!(d.claim(WAL, 3, vec![(DB, 8), (DB, 9)]));
        assert_eq!(needs(&d), [Need::ByOthers; 3]);
        d.disclaim(WAL, 3);
        assert_eq!(needs(&d), [Need::ByOthers, Need::ByOthers, Need::None]);
        assert!(d.claim(WAL, 3, vec![(DB, 8), (DB, 9)]));
        d.keep(WAL, 3);
        assert_eq!(needs(&d), [Need::ByOthersOnDevice, Need::ByOthers, Need::ByOthers]);
        assert!(d.claim(WAL, 3, vec![(DB, 8)]));
        d.drop_pages(WAL, 3..4);
        assert_eq!(needs(&d), [Need::ByOthersOnDevice, Need::ByOthers, Need::ByOthersOnDevice]);
        assert!(d.disclaim_all(WAL) && !d.disclaim_all(WAL));
        d.committed();
        assert!(needs(&d) == [Need::None; 3] && !d.depends_on_others(WAL));
    }

    #[test]
    fn what_a_file_needs_of_itself_is_told_apart() {
        let d = BlockRefs::default();
        d.add(WAL, 9, vec![(WAL, 2), (DB, 1)]);
        assert_eq!(
            (d.need(WAL, 2), d.need(DB, 1), d.need(WAL, 9)),
            (Need::ByItsFile, Need::ByOthers, Need::None)
        );
        assert_eq!((d.own(WAL, 0..9), d.others_need(WAL, 0..9)), (vec![9], false));
        d.drop_pages(WAL, 9..10);
        assert_eq!((d.need(WAL, 2), d.need(DB, 1)), (Need::ByItsFileOnDevice, Need::ByOthersOnDevice));
        assert_eq!(d.own(WAL, 0..9), Vec::<u64>::new());
    }
}
