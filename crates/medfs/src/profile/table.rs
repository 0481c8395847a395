//! The table of files that are remembered, by number.
//!
//! Purpose: each event of a file is noted here once, and everyone who asks what is known of a file asks here.
//! Invariants:
//! 1. A shard holds a bounded number of files; finding, noting and letting one go takes bounded time,
//!    whatever the others do. `index` names the slot of each file, and nothing else.
//! 2. Nothing is allocated where an event of a file in use is noted.
//! 3. Files leave when they are freed, when they were not touched for [`FORGET_AFTER`] windows, and, where
//!    there is no room for another one, by a clock's hand that passes over those in use. A file that was
//!    written rests until then: all but how busy it was is still known.
//! 4. The same calls at the same times make the same groups.
//!
//! Locks: each shard's mutex, which is a leaf; no two are held at once.

use super::file_class::FileClass;
use super::file_profile::{FileProfile, Flushed, Known, Wrote};
use super::hotness::{Hcluster, Hotness, Point};
use super::judging::Standing;
use crate::stats::HotnessStats;
use medfs_format::Ino;
use medfs_format::node::RawInode;
use medfs_store::{Clock, HashMap};
use medfs_sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Files remembered on a volume: about 7 MiB.
pub(crate) const MOST_FILES: usize = 1 << 16;
/// Windows after which a file that was not touched leaves; by then its averages have halved as often.
const FORGET_AFTER: u32 = 10;
/// Files that the clock's hand looks at to find one to let go.
const HAND_STEPS: usize = 8;
/// Parts of the files that threads use independently.
const SHARDS: usize = 16;

/// What is known of a volume's files. Nothing of it is on disk: after a mount every file is new.
#[derive(Debug)]
pub struct Profiles {
    window: Duration,
    /// Number of the present window: the clock's time, in windows.
    now: AtomicU32,
    /// The clock's time in seconds.
    seconds: AtomicU32,
    shards: [Mutex<Shard>; SHARDS],
    hcluster: Hcluster,
}

impl Profiles {
    /// Remembers `most_files` files at most; `window` is at least a millisecond long, and the first one begins `now`.
    pub fn new(window: Duration, most_files: usize, now: Duration) -> Profiles {
        let per_shard = most_files.div_ceil(SHARDS);
        let profiles = Profiles {
            window: window.max(Duration::from_millis(1)),
            now: AtomicU32::new(0),
            seconds: AtomicU32::new(0),
            shards: std::array::from_fn(|_| Mutex::new(Shard::new(per_shard))),
            hcluster: Hcluster::default(),
        };
        profiles.tick(now);
        profiles
    }

    /// Notes a call that reads so many pages of a file, one at least, from page `first` on.
    pub fn note_read(&self, ino: Ino, first: u64, pages: u64) {
        self.shard(ino).lock().note_read(ino, self.window(), first, pages);
    }

    /// Notes a call that writes to a file; what is known of the file where it is to be judged now.
    pub fn note_write(&self, ino: Ino, wrote: &Wrote) -> Option<Known> {
        let seconds = self.seconds.load(Ordering::Relaxed);
        self.shard(ino).lock().note_write(ino, self.window(), seconds, wrote)
    }

    /// Notes an fsync of a file that was written or read.
    pub fn note_fsync(&self, ino: Ino) {
        self.shard(ino).lock().change(ino, FileProfile::note_fsync);
    }

    /// Notes what an fsync wrote of such a file.
    pub(crate) fn note_flushed(&self, ino: Ino, flushed: Flushed) {
        let window = self.window();
        self.shard(ino).lock().change(ino, |profile| profile.note_flushed(window, flushed));
    }

    /// Notes that such a file becomes shorter.
    pub fn note_truncation(&self, ino: Ino) {
        self.shard(ino).lock().change(ino, FileProfile::note_truncation);
    }

    /// Notes that such a file gets another name.
    pub(crate) fn note_name(&self, ino: Ino, class: FileClass) {
        self.shard(ino).lock().change(ino, |profile| profile.set_class(class));
    }

    /// Keeps what was judged of such a file.
    pub fn judged(&self, ino: Ino, standing: Standing) {
        self.shard(ino).lock().change(ino, |profile| profile.set_standing(standing));
    }

    /// What the name says that an inode records. The caller keeps the inode from changing.
    pub(crate) fn class(&self, ino: Ino, r: &RawInode) -> FileClass {
        let mut shard = self.shard(ino).lock();
        let Some(profile) = shard.find_mut(ino) else { return FileClass::of(r) };
        profile.class().unwrap_or_else(|| {
            let class = FileClass::of(r);
            profile.set_class(class);
            class
        })
    }

    /// What is known of a file that was written.
    pub fn known(&self, ino: Ino) -> Option<Known> {
        let shard = self.shard(ino).lock();
        shard.find(ino).filter(|profile| profile.is_written()).map(|profile| profile.known(self.window()))
    }

    /// What was judged of a file.
    pub fn standing(&self, ino: Ino) -> Standing {
        self.shard(ino).lock().find(ino).map(FileProfile::standing).unwrap_or_default()
    }

    /// Whether the pages of a file's next fsync are to be written as a whole: not of one in `tried`.
    pub(crate) fn is_whole(&self, ino: Ino, tried: u32) -> bool {
        let shard = self.shard(ino).lock();
        let profile = shard.find(ino).filter(|profile| profile.standing().whole);
        profile.is_some_and(|profile| !profile.fsyncs_counted().is_multiple_of(tried))
    }

    /// How busy a file is.
    pub fn hotness(&self, ino: Ino) -> Hotness {
        let busyness = self.shard(ino).lock().find(ino).and_then(|profile| profile.busyness(self.window()));
        self.hcluster.judge(busyness)
    }

    /// Whether most pages that are read of a file follow the one that was read before, in the same call or
    /// the one before.
    pub fn is_read_in_order(&self, ino: Ino) -> bool {
        self.shard(ino).lock().find(ino).is_some_and(|profile| profile.is_read_in_order(self.window()))
    }

    /// Forgets a file that is gone: its number may become another's.
    pub fn forget(&self, ino: Ino) {
        self.shard(ino).lock().forget(ino);
    }

    /// Says how late it is (monotonic). Called several times in a window; later windows begin then.
    pub fn tick(&self, now: Duration) {
        let window = now.as_millis() / self.window.as_millis();
        self.now.fetch_max(window.try_into().unwrap_or(u32::MAX), Ordering::Relaxed);
        self.seconds.fetch_max(now.as_secs().try_into().unwrap_or(u32::MAX), Ordering::Relaxed);
    }

    /// Has Hcluster make its groups of the files as they are now; `false` where it did so in this window already.
    /// Takes time in proportion to the files, and holds each shard for its part of them.
    pub fn recluster(&self, clock: &dyn Clock) -> bool {
        self.tick(clock.monotonic());
        let window = self.window();
        self.hcluster.update(window, clock, |points| {
            self.shards.iter().for_each(|shard| shard.lock().end_window(window, points));
        })
    }

    /// What is known of all.
    pub fn stats(&self) -> HotnessStats {
        let mut stats =
            HotnessStats { window_millis: self.window.as_millis() as u64, ..self.hcluster.stats() };
        for shard in &self.shards {
            let shard = shard.lock();
            stats.files += shard.in_use() as u64;
            stats.reads += shard.totals.reads;
            stats.writes += shard.totals.writes;
            stats.pages_read += shard.totals.pages_read;
            stats.pages_written += shard.totals.pages_written;
        }
        stats
    }

    fn window(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }

    fn shard(&self, ino: Ino) -> &Mutex<Shard> {
        &self.shards[(ino.wrapping_mul(0x9E37_79B1) >> 28) as usize % SHARDS]
    }
}

/// Some of the files.
#[derive(Debug)]
struct Shard {
    files: Vec<(Ino, FileProfile)>,
    index: HashMap<Ino, u32>,
    most: usize,
    hand: usize,
    totals: Totals,
}

/// Calls that reached the engine, and the pages they touched, of all files ever.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    reads: u64,
    writes: u64,
    pages_read: u64,
    pages_written: u64,
}

impl Shard {
    fn new(most: usize) -> Shard {
        Shard {
            files: Vec::new(),
            index: HashMap::default(),
            most: most.max(1),
            hand: 0,
            totals: Totals::default(),
        }
    }

    /// Files of which it is known how busy they are.
    fn in_use(&self) -> usize {
        self.files.iter().filter(|(_, profile)| profile.idle_windows(0).is_some()).count()
    }

    fn note_read(&mut self, ino: Ino, window: u32, first: u64, pages: u64) {
        self.find_or_add(ino, window).note_read(window, first, pages);
        self.totals.reads += 1;
        self.totals.pages_read += pages;
    }

    fn note_write(&mut self, ino: Ino, window: u32, seconds: u32, wrote: &Wrote) -> Option<Known> {
        self.totals.writes += 1;
        self.totals.pages_written += wrote.pages;
        let profile = self.find_or_add(ino, window);
        profile.note_write(window, seconds, wrote).then(|| profile.known(window))
    }

    fn find(&self, ino: Ino) -> Option<&FileProfile> {
        self.index.get(&ino).map(|&at| &self.files[at as usize].1)
    }

    fn find_mut(&mut self, ino: Ino) -> Option<&mut FileProfile> {
        self.index.get(&ino).map(|&at| &mut self.files[at as usize].1)
    }

    /// Changes what is known of a file that is remembered.
    fn change(&mut self, ino: Ino, change: impl FnOnce(&mut FileProfile)) {
        if let Some(profile) = self.find_mut(ino) {
            change(profile);
        }
    }

    fn forget(&mut self, ino: Ino) {
        if let Some(at) = self.index.remove(&ino) {
            self.take(at as usize);
        }
    }

    /// Ends the window for all files: those not touched for long leave, the points of the others are added.
    fn end_window(&mut self, window: u32, points: &mut Vec<Point>) {
        let mut at = 0;
        while let Some((ino, profile)) = self.files.get_mut(at) {
            if profile.idle_windows(window).is_none_or(|idle| idle < FORGET_AFTER) {
                points.extend(profile.busyness(window).map(|busyness| busyness.point));
                at += 1;
            } else if profile.is_written() {
                profile.rest();
                at += 1;
            } else {
                let ino = *ino;
                self.forget(ino);
            }
        }
    }

    fn find_or_add(&mut self, ino: Ino, window: u32) -> &mut FileProfile {
        let at = match self.index.get(&ino) {
            Some(&at) => at as usize,
            None => self.add(ino, window),
        };
        &mut self.files[at].1
    }

    fn add(&mut self, ino: Ino, window: u32) -> usize {
        if self.files.len() >= self.most {
            let least = self.least_used(window);
            self.forget(self.files[least].0);
        }
        let at = self.files.len();
        self.index.insert(ino, at as u32);
        self.files.push((ino, FileProfile::new(window)));
        at
    }

    /// The least used of the next files under the hand.
    fn least_used(&mut self, window: u32) -> usize {
        let steps = (0..HAND_STEPS).map(|step| (self.hand + step) % self.files.len());
        let use_of = |at: &usize| {
            let busyness = self.files[*at].1.busyness(window);
            busyness.map_or(0.0, |busyness| busyness.point.reads + busyness.point.writes)
        };
        let least = steps.min_by(|a, b| use_of(a).total_cmp(&use_of(b))).unwrap_or(0);
        self.hand = (self.hand + HAND_STEPS) % self.files.len();
        least
    }

    /// Fills a slot with the last one.
    fn take(&mut self, at: usize) {
        self.files.swap_remove(at);
        if let Some((moved, _)) = self.files.get(at) {
            self.index.insert(*moved, at as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::FromZeros;

    #[test]
    fn slots_and_index_agree_whatever_leaves() {
        let mut shard = Shard::new(10);
        for step in 0..2000u32 {
            let ino = step.wrapping_mul(2_654_435_761) % 37;
            match step % 5 {
                0 => shard.forget(ino),
                1 => shard.note_read(ino, step / 100, 0, 1),
                4 if step.is_multiple_of(50) => shard.end_window(step / 100, &mut Vec::new()),
                _ => drop(shard.note_write(ino, step / 100, 0, &Wrote::of_pages(1))),
            }
            assert!(shard.files.len() <= 10);
            assert_eq!(shard.index.len(), shard.files.len());
            for (ino, at) in &shard.index {
                assert_eq!(shard.files[*at as usize].0, *ino, "step {step}");
            }
        }
    }

    #[test]
    fn a_crowd_of_newcomers_does_not_drive_out_files_in_use() {
        let mut shard = Shard::new(64);
        for round in 0..1000 {
            for busy in 0..8 {
                shard.note_write(busy, 0, 0, &Wrote::of_pages(1));
            }
            shard.note_read(1000 + round, 0, 0, 1);
        }
        let known = (0..8).filter(|ino| shard.index.contains_key(ino)).count();
        assert_eq!((known, shard.files.len()), (8, 64));
    }

    #[test]
    fn files_leave_that_are_not_touched() {
        let mut shard = Shard::new(4);
        shard.note_read(7, 3, 0, 1);
        let mut points = Vec::new();
        shard.end_window(12, &mut points);
        assert_eq!((shard.in_use(), points.len()), (1, 1));
        shard.end_window(13, &mut points);
        assert_eq!((shard.files.len(), points.len()), (0, 1));
    }

    #[test]
    fn a_file_that_was_written_rests() {
        let mut shard = Shard::new(4);
        (0..15).for_each(|n| assert_eq!(shard.note_write(7, 3, n, &Wrote::of_pages(2)).is_some(), n == 0));
        let mut points = Vec::new();
        shard.end_window(13, &mut points);
        shard.end_window(90, &mut points);
        assert_eq!((shard.in_use(), shard.files.len(), points.len()), (0, 1, 0));
        let judged = shard.note_write(7, 91, 900, &Wrote::of_pages(2)).expect("the 16th write");
        assert_eq!(judged, shard.find(7).expect("it is remembered").known(91));
        assert_eq!(judged.features(FileClass::Other)[..3], [2, 900, 16]);
        let busyness = shard.find(7).and_then(|profile| profile.busyness(91)).expect("in use");
        assert_eq!(busyness.new_and_unread, Some(1), "how busy it was is not known any more");
    }

    #[test]
    fn the_class_of_a_name_is_that_of_the_last_one() {
        let named = |name: &[u8]| {
            let mut r = RawInode::new_zeroed();
            r.i_namelen = (name.len() as u32).into();
            r.i_name[..name.len()].copy_from_slice(name);
            r
        };
        let profiles = Profiles::new(Duration::from_secs(1), 100, Duration::ZERO);
        let (database, log) = (named(b"a.db"), named(b"a.db-wal"));
        assert_eq!(profiles.class(7, &database), FileClass::Database, "of a file that is not remembered");
        profiles.note_name(7, FileClass::Wal);
        assert_eq!(profiles.stats().files, 0, "a name alone is no reason to remember a file");
        profiles.note_write(7, &Wrote::of_pages(1));
        assert_eq!(profiles.class(7, &database), FileClass::Database);
        profiles.note_name(7, FileClass::Wal);
        assert_eq!(profiles.class(7, &log), FileClass::Wal);
        profiles.forget(7);
        assert_eq!(profiles.class(7, &database), FileClass::Database);
    }
}
