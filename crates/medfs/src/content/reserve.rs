//! Reserved sections: a file's pages have homes of their own (ARS, section IV).
//!
//! Purpose: of a file that is written at random, in many small synced pieces, a log makes as many extents.
//! Here each window of a file, as many pages as a section has blocks, gets a section that no log enters, and
//! page `i` is at home at block `i` mod that number. So random first writes make one extent, and later writes
//! overwrite.
//! Invariants:
//! 1. Only a page's own block is overwritten, and only where nothing else needs it: no base of a delta, no
//!    block of an atomic write. A page that lies beside the one before or behind is overwritten where it is:
//!    leaving it would take a node, and might leave one piece more.
//! 2. A home that was freed since the checkpoint is not written before the next one. The page goes to another
//!    free block of the section, else to a log. Alone there, it comes home when it is written after that.
//! 3. A reserve is in memory alone. What is not written of it is free on the volume: in no user's count, and
//!    the logs' when they need it. What `fallocate` gave a pinned file is *kept*: all of it is counted, so a
//!    window is kept only as long as all of its blocks lie in its section. Should logs be short all the same,
//!    kept sections are given back one by one, before a write that was accepted fails.
//! 4. The segments know what is reserved; what is remembered here of a section that they gave back is dropped
//!    when it is met.
//!
//! Steps of utilisation, as in the paper: from [`NO_NEW_FILES`] percent on files get no first reserve, and
//! those that have one grow. From [`NO_RESERVES`] percent on what is not written is given back, and pages are
//! overwritten where they are. Locks: `files` is a leaf, held for a look or a change of it alone. Callers
//! hold the file's lock exclusively.

use crate::content::lies::{Lies, adopt, adopted, holds_only};
use crate::content::placement::{Batch, KernelPlacement, PageRef, Placement, Purpose, Target};
use crate::content::reserved_files::ReservedFiles;
use crate::content::update_costs::{Prices, Pricing};
use crate::map::inode::Inode;
use crate::map::node_tree::Slot;
use crate::profile::{FileSample, Known};
use medfs_format::ars::{Class, Tree};
use medfs_format::summary::Log;
use medfs_format::{BlockAddr, Ino};
use medfs_store::{Store, Withheld};
use medfs_sync::Mutex;
use std::collections::BTreeMap;
use std::ops::Range;

/// Percent of a volume in use from which on no file gets its first reserve (the kernel's `min_ipu_util`; ARS,
/// section IV-B).
const NO_NEW_FILES: u32 = 70;
/// Percent in use from which on nothing stays reserved.
const NO_RESERVES: u32 = 80;

/// What is remembered of a window that has, or had, a section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Home {
    /// The section is reserved for it.
    Reserved(u32),
    /// The same, and all of its blocks are counted as the file's: others do without.
    Kept(u32),
    /// It was given back to the logs; what was written there is overwritten.
    GivenBack,
}

impl Home {
    /// The section, where it is the window's.
    fn section(self) -> Option<u32> {
        match self {
            Home::Reserved(section) | Home::Kept(section) => Some(section),
            Home::GivenBack => None,
        }
    }
}

/// The windows of files that were reserved.
#[derive(Debug, Default)]
struct Windows {
    homes: BTreeMap<(Ino, u64), Home>,
    /// Of those, reserved ones that are not kept.
    reserved: usize,
}

impl Windows {
    fn set(&mut self, key: (Ino, u64), home: Home) {
        let old = self.homes.insert(key, home);
        self.reserved += usize::from(matches!(home, Home::Reserved(_)));
        self.reserved -= usize::from(matches!(old, Some(Home::Reserved(_))));
    }

    /// The windows of a file that are reserved.
    fn of(&self, ino: Ino) -> impl Iterator<Item = (u64, u32)> {
        let windows = self.homes.range((ino, 0)..=(ino, u64::MAX));
        windows.filter_map(|(&(_, window), home)| Some((window, home.section()?)))
    }

    /// Whether any window of a file is remembered.
    fn has(&self, ino: Ino) -> bool {
        self.homes.range((ino, 0)..=(ino, u64::MAX)).next().is_some()
    }

    /// The reserved window of a file that is nearest to one.
    fn nearest(&self, (ino, window): (Ino, u64)) -> Option<(u64, u32)> {
        let reserved =
            |(&(_, window), home): (&(Ino, u64), &Home)| home.section().map(|section| (window, section));
        let before = self.homes.range((ino, 0)..(ino, window)).rev().find_map(reserved);
        let behind = self.homes.range((ino, window)..=(ino, u64::MAX)).find_map(reserved);
        before.into_iter().chain(behind).min_by_key(|(other, _)| other.abs_diff(window))
    }
}

/// The policy: reserved files at home, others by the kernel's.
pub(crate) struct ReservePlacement {
    others: KernelPlacement,
    which: Box<dyn ReservedFiles>,
    /// Says what a reserve costs, where that is asked.
    pricing: Option<Pricing>,
    files: Mutex<Windows>,
}

impl ReservePlacement {
    /// Reserves for these files; the rest is the kernel's policy's.
    pub(crate) fn new(
        others: KernelPlacement,
        which: Box<dyn ReservedFiles>,
        pricing: Option<Pricing>,
    ) -> ReservePlacement {
        ReservePlacement { others, which, pricing, files: Mutex::default() }
    }

    fn is_reserved_kind(&self, batch: &Batch) -> bool {
        batch.is_plain_file && self.which.has(batch)
    }

    /// The home of a page, if its window has a section, or gets one now.
    fn home_of(&self, page: &PageRef, slot: &Slot, store: &Store) -> Option<At> {
        let index = page.index?;
        let blocks = u64::from(store.geo.blocks_per_section());
        let key = (page.batch.ino, index / blocks);
        let known = self.files.lock().homes.get(&key).copied();
        let section = match known {
            Some(Home::Reserved(section) | Home::Kept(section)) if is_reserved(store, section, key.0) => {
                section
            }
            Some(Home::Reserved(_) | Home::Kept(_)) => {
                self.files.lock().set(key, Home::GivenBack);
                return Some(At::Elsewhere);
            }
            Some(Home::GivenBack) if is_pressed(store, NO_NEW_FILES) => return Some(At::Elsewhere),
            _ if matches!(page.batch.purpose, Purpose::Move | Purpose::Restore) => return None,
            _ => self.reserve(key, page, slot, store)?,
        };
        let start = store.geo.seg_start(store.geo.segments_of(section).start);
        Some(At::Section { section, home: start + (index % blocks) as BlockAddr })
    }

    /// Gives a window a section: the one that its pages are at home in already, the one beside the file's
    /// others, or any.
    fn reserve(&self, key: (Ino, u64), page: &PageRef, slot: &Slot, store: &Store) -> Option<u32> {
        let nearest = self.files.lock().nearest(key);
        if is_pressed(store, if nearest.is_some() { NO_RESERVES } else { NO_NEW_FILES }) {
            return None;
        }
        let windows = page.batch.pages.div_ceil(store.geo.blocks_per_section().into());
        let section = adopted(key, slot, store).or_else(|| self.find(key, windows, store))?;
        self.files.lock().set(key, Home::Reserved(section));
        Some(section)
    }

    /// A free section for a window of a file that has so many: beside its others, or where there is room for
    /// all of them.
    fn find(&self, key: (Ino, u64), windows: u64, store: &Store) -> Option<u32> {
        let nearest = self.files.lock().nearest(key);
        let mut segs = store.segs.lock();
        let mut segs = segs.reserving(&store.io);
        let beside = nearest.and_then(|(window, section)| {
            let wanted = i64::from(section) + key.1 as i64 - window as i64;
            u32::try_from(wanted).ok().filter(|&section| segs.reserve(section, key.0))
        });
        beside.or_else(|| {
            // Room for the windows before and behind, where the file is as long as it is known to be.
            let windows = if nearest.is_none() { windows.max(key.1 + 1) } else { 1 };
            let windows = u32::try_from(windows).unwrap_or(u32::MAX);
            let at = if nearest.is_none() { key.1 as u32 } else { 0 };
            let whole = segs.find_run(windows).map(|first| first + at);
            let section = whole.or_else(|| segs.find_run(1));
            section.filter(|&section| segs.reserve(section, key.0))
        })
    }

    /// Gives back what is reserved for these windows of a file, and forgets them.
    fn forget_windows(&self, ino: Ino, windows: &[u64], store: &Store) {
        let mut given = Vec::new();
        {
            let mut files = self.files.lock();
            for window in windows {
                let Some(home) = files.homes.remove(&(ino, *window)) else { continue };
                files.reserved -= usize::from(matches!(home, Home::Reserved(_)));
                given.extend(home.section());
            }
        }
        let mut segs = store.segs.lock();
        for section in given {
            let segno = store.geo.segments_of(section).start;
            if segs.free.withheld(segno) == Some(Withheld::Reserved(ino)) {
                segs.reserving(&store.io).release(section);
            }
        }
    }
}

/// Where a page of a reserved file belongs.
enum At {
    /// At this block of its section.
    Section { section: u32, home: BlockAddr },
    /// Its section was given back: where it is.
    Elsewhere,
}

/// Whether so many percent of a volume are in use, or logs are so short of segments that they fill holes.
fn is_pressed(store: &Store, percent: u32) -> bool {
    store.space.utilization() >= percent || store.segs.lock().prefers_ssr()
}

fn is_reserved(store: &Store, section: u32, ino: Ino) -> bool {
    let segno = store.geo.segments_of(section).start;
    store.segs.lock().free.withheld(segno) == Some(Withheld::Reserved(ino))
}

impl Placement for ReservePlacement {
    fn target(&self, page: &PageRef, slot: &Slot, store: &Store) -> Target {
        if !self.is_reserved_kind(&page.batch) {
            return self.others.target(page, slot, store);
        }
        let own = page.own.filter(|_| !page.batch.purpose.leaves_old());
        let blocks = u64::from(store.geo.blocks_per_section());
        let lies = page.index.zip(own).map(|(index, own)| Lies::of(index, own, slot));
        let stays = lies.is_some_and(|lies| lies.in_piece && !lies.as_at_home(blocks, store));
        if own.is_some() && (page.batch.pinned || stays) {
            return Target::InPlace;
        }
        let (section, home) = match self.home_of(page, slot, store) {
            Some(At::Section { section, home }) => (section, home),
            Some(At::Elsewhere) if own.is_some() => return Target::InPlace,
            _ => return self.others.target(page, slot, store),
        };
        if own == Some(home) || lies.is_some_and(|lies| lies.in_piece) {
            return Target::InPlace;
        }
        let target = {
            let mut segs = store.segs.lock();
            let mut segs = segs.reserving(&store.io);
            match segs.is_writable(home) {
                Ok(true) => Target::At(home),
                Ok(false) if own.is_some() => Target::InPlace,
                Ok(false) => match segs.any_writable(section, home) {
                    Ok(Some(addr)) => Target::At(addr),
                    _ => Target::Append(page.log()),
                },
                Err(_) => Target::Append(page.log()),
            }
        };
        if let (Target::Append(_), Some(index)) = (target, page.index) {
            // Its block will lie elsewhere, so the section has more than the window is counted for.
            self.cut(page.batch.ino, index..index + 1, store);
        }
        target
    }

    fn overwrites(&self, batch: &Batch, store: &Store) -> bool {
        (self.is_reserved_kind(batch) && !batch.purpose.leaves_old()) || self.others.overwrites(batch, store)
    }

    fn log(&self, batch: &Batch) -> Option<Log> {
        if self.files.lock().has(batch.ino) { None } else { self.others.log(batch) }
    }

    fn relieve(&self, store: &Store) -> bool {
        if self.files.lock().reserved == 0 {
            return false;
        }
        is_pressed(store, NO_RESERVES) && self.give_back(store)
    }

    fn give_back(&self, store: &Store) -> bool {
        let mut given = Vec::new();
        {
            let mut files = self.files.lock();
            for home in files.homes.values_mut() {
                if let Home::Reserved(section) = *home {
                    *home = Home::GivenBack;
                    given.push(section);
                }
            }
            files.reserved = 0;
        }
        let mut segs = store.segs.lock();
        given.iter().for_each(|&section| segs.reserving(&store.io).release(section));
        !given.is_empty()
    }

    fn judge(&self, inode: &Inode, profile: &Known, store: &Store) {
        self.which.judge(inode, profile, self.prices(inode, profile, store).as_ref());
        let has_windows = self.files.lock().has(inode.ino);
        if has_windows && !self.which.has(&Batch::of(inode, Purpose::Background, 0)) {
            self.release(inode.ino, store);
        }
    }

    fn learn(&self, tree: Tree) {
        self.which.learn(tree);
    }

    fn samples(&self) -> Vec<FileSample> {
        self.which.samples()
    }

    fn kin(&self, inode: &Inode) -> Option<Class> {
        self.which.kin(inode)
    }

    fn counts(&self) -> bool {
        self.pricing.is_some()
    }

    fn prices(&self, inode: &Inode, known: &Known, store: &Store) -> Option<Prices> {
        let pricing = self.pricing.as_ref().filter(|_| known.synced.count > 0)?;
        let fsync = Purpose::Fsync { datasync: false };
        let batch = Batch::of(inode, fsync, known.synced.pages.round() as usize);
        pricing.prices(known, self.others.overwrites(&batch, store))
    }

    fn is_whole(&self, batch: &Batch) -> bool {
        self.which.is_whole(batch)
    }

    fn reserved(&self, ino: Ino) -> Vec<(u64, u32)> {
        self.files.lock().of(ino).collect()
    }

    fn windows(&self) -> Vec<(Ino, u64)> {
        let files = self.files.lock();
        files.homes.iter().filter(|(_, home)| home.section().is_some()).map(|(&window, _)| window).collect()
    }

    fn reserves_for(&self, inode: &Inode) -> bool {
        self.is_reserved_kind(&Batch::of(inode, Purpose::Defragment, 0))
    }

    fn prepare(&self, batch: &Batch, pages: Range<u64>, store: &Store) {
        if !self.is_reserved_kind(batch) {
            return;
        }
        let blocks = u64::from(store.geo.blocks_per_section());
        let windows = pages.start / blocks..pages.end.div_ceil(blocks);
        for window in windows.clone() {
            let (is_known, is_first) = {
                let files = self.files.lock();
                (files.homes.contains_key(&(batch.ino, window)), files.nearest((batch.ino, window)).is_none())
            };
            if is_known {
                continue;
            }
            if is_pressed(store, if is_first { NO_NEW_FILES } else { NO_RESERVES }) {
                return;
            }
            let Some(section) = self.find((batch.ino, window), windows.end, store) else { return };
            self.files.lock().set((batch.ino, window), Home::Reserved(section));
        }
    }

    fn keep(&self, ino: Ino, windows: &[(u64, Option<u32>)], store: &Store) -> bool {
        let last = windows.last().map_or(0, |&(window, _)| window);
        let (mut chosen, mut new) = (Vec::new(), Vec::new());
        for &(window, lies) in windows {
            let known = self.files.lock().homes.get(&(ino, window)).and_then(|home| home.section());
            let known = known.filter(|&section| is_reserved(store, section, ino));
            let section = match (known, lies) {
                (Some(section), lies) if lies.is_none_or(|lies| lies == section) => section,
                (None, Some(lies)) if holds_only(store, lies, ino) && adopt(store, lies, ino) => {
                    new.push(window);
                    lies
                }
                (None, None) => {
                    let Some(section) = self.find((ino, window), last + 1, store) else {
                        self.forget_windows(ino, &new, store);
                        return false;
                    };
                    new.push(window);
                    section
                }
                // Its blocks are counted where they lie.
                _ => continue,
            };
            if new.last() == Some(&window) {
                // So that those behind it lie beside it.
                self.files.lock().set((ino, window), Home::Reserved(section));
            }
            chosen.push((window, section));
        }
        let mut files = self.files.lock();
        chosen.into_iter().for_each(|(window, section)| files.set((ino, window), Home::Kept(section)));
        true
    }

    fn give_back_kept(&self, store: &Store) -> bool {
        let section = {
            let mut files = self.files.lock();
            let kept = files.homes.values_mut().find_map(|home| match *home {
                Home::Kept(section) => Some((home, section)),
                _ => None,
            });
            let Some((home, section)) = kept else { return false };
            *home = Home::GivenBack;
            section
        };
        store.segs.lock().reserving(&store.io).release(section);
        true
    }

    fn cut(&self, ino: Ino, pages: Range<u64>, store: &Store) {
        let blocks = u64::from(store.geo.blocks_per_section());
        let windows = (ino, pages.start / blocks)..(ino, pages.end.div_ceil(blocks));
        let files = &mut *self.files.lock();
        for (_, home) in files.homes.range_mut(windows) {
            if let Home::Kept(section) = *home {
                *home = Home::Reserved(section);
                files.reserved += 1;
            }
        }
    }

    fn release(&self, ino: Ino, store: &Store) {
        let windows = (ino, 0)..=(ino, u64::MAX);
        let windows: Vec<u64> =
            self.files.lock().homes.range(windows).map(|((_, window), _)| *window).collect();
        self.forget_windows(ino, &windows, store);
    }

    fn forget(&self, inode: &Inode, store: &Store) {
        self.which.ended(inode);
        self.release(inode.ino, store);
    }
}
