//! What is remembered of each file: how often it was read and written, in this window and on average before,
//! and whether what is read of it follows each other; and its habits since its first write.
//!
//! Invariants: a shard holds a bounded number of files; finding, noting and letting one go takes bounded time. `index`
//! names the slot of each file, and nothing else.
//! Files leave when they are freed, when they were not touched for [`FORGET_AFTER`] windows, and, where there
//! is no room for another one, by a clock's hand that passes over those in use. Of a file that was written
//! the habits stay until then: it rests.

use super::kmeans::{Centroids, Point};
use super::{FEW_WRITES, Hotness};
use crate::profile::habits::{FileProfile, Habits, Standing, Wrote};
use medfs_format::Ino;
use medfs_store::HashMap;

/// Windows after which a file that was not touched leaves; by then its averages have halved as often.
const FORGET_AFTER: u32 = 10;
/// In place of a window: the file rests. Of how busy it was nothing is known any more.
const RESTING: u32 = u32::MAX;
/// Files that the clock's hand looks at to find one to let go.
const HAND_STEPS: usize = 8;

/// A file. Counts are of calls.
#[derive(Debug, Clone, Copy)]
struct File {
    ino: Ino,
    /// The window that the counts are of.
    window: u32,
    reads: u32,
    writes: u32,
    /// Averages of the windows before, each weighing half of the next one; of no worth in the first window.
    mean_reads: f32,
    mean_writes: f32,
    /// Whether this is the first window in which the file is seen.
    first: bool,
    /// The page behind the last one that was read.
    read_to: u32,
    /// Pages read, and those of them that came right behind another one: in this window, and half of what was before.
    pages_read: u32,
    in_order: u32,
    habits: Habits,
}

impl File {
    fn new(ino: Ino, window: u32) -> File {
        File {
            ino,
            window,
            reads: 0,
            writes: 0,
            mean_reads: 0.0,
            mean_writes: 0.0,
            first: true,
            read_to: 0,
            pages_read: 0,
            in_order: 0,
            habits: Habits::default(),
        }
    }

    /// The same file, of which nothing is known but its habits.
    fn rested(self, window: u32) -> File {
        File { habits: self.habits, ..File::new(self.ino, window) }
    }

    /// The file as it is in a window: what it counted before has become part of the averages.
    fn in_window(mut self, window: u32) -> File {
        if self.window == RESTING {
            return self.rested(window);
        }
        let passed = window.saturating_sub(self.window);
        if passed == 0 {
            return self;
        }
        let untouched = 0.5f32.powi((passed - 1).min(126) as i32);
        let mean = |mean: f32, count: u32| {
            let now = if self.first { count as f32 } else { (mean + count as f32) / 2.0 };
            now * untouched
        };
        self.mean_reads = mean(self.mean_reads, self.reads);
        self.mean_writes = mean(self.mean_writes, self.writes);
        (self.window, self.reads, self.writes, self.first) = (window, 0, 0, false);
        self.pages_read = self.pages_read.checked_shr(passed).unwrap_or(0);
        self.in_order = self.in_order.checked_shr(passed).unwrap_or(0);
        self
    }

    /// Where the file stands: its averages, or this window's counts where they are more already.
    fn point(&self) -> Point {
        Point::of(self.mean_reads.max(self.reads as f32), self.mean_writes.max(self.writes as f32))
    }

    /// Notes that pages were read from `first` on. The one that was read last is not counted again.
    fn note_pages(&mut self, first: u64, pages: u64) {
        let bounded = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX);
        let (first, end) = (bounded(first), bounded(first.saturating_add(pages)));
        let again = u32::from(self.pages_read > 0 && first.saturating_add(1) == self.read_to);
        let goes_on = self.pages_read > 0 && first.saturating_add(again) == self.read_to;
        let pages = bounded(pages).saturating_sub(again);
        let in_order = if goes_on { pages } else { pages.saturating_sub(1) };
        self.read_to = end;
        self.pages_read = self.pages_read.saturating_add(pages);
        self.in_order = self.in_order.saturating_add(in_order);
    }

    fn profile(&self) -> FileProfile {
        let in_order = u64::from(self.in_order) * 100 / u64::from(self.pages_read).max(1);
        self.habits.profile(in_order as u32)
    }

    fn hotness(&self, centroids: &Centroids) -> Hotness {
        if self.first && self.reads == 0 && self.writes > FEW_WRITES {
            return Hotness::WriteHot;
        }
        centroids.nearest(self.point())
    }
}

/// Some of the files.
#[derive(Debug)]
pub(super) struct Shard {
    files: Vec<File>,
    index: HashMap<Ino, u32>,
    most: usize,
    hand: usize,
    /// Calls, and pages they touched, of all files ever.
    pub(super) totals: Totals,
}

/// What reached the engine. Calls, and the pages they touched.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Totals {
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) pages_read: u64,
    pub(super) pages_written: u64,
}

impl Shard {
    pub(super) fn new(most: usize) -> Shard {
        Shard {
            files: Vec::new(),
            index: HashMap::default(),
            most: most.max(1),
            hand: 0,
            totals: Totals::default(),
        }
    }

    /// Files of which it is known how busy they are.
    pub(super) fn len(&self) -> usize {
        self.files.iter().filter(|file| file.window != RESTING).count()
    }

    pub(super) fn note_read(&mut self, ino: Ino, window: u32, first: u64, pages: u64) {
        let file = self.file(ino, window);
        file.note_pages(first, pages);
        file.reads = file.reads.saturating_add(1);
        self.totals.reads += 1;
        self.totals.pages_read += pages;
    }

    /// Notes a write; what is known of the file where it is to be judged now.
    pub(super) fn note_write(
        &mut self,
        ino: Ino,
        window: u32,
        seconds: u32,
        wrote: &Wrote,
    ) -> Option<FileProfile> {
        let file = self.file(ino, window);
        file.writes = file.writes.saturating_add(1);
        let judged = file.habits.note_write(seconds, wrote).then(|| file.profile());
        self.totals.writes += 1;
        self.totals.pages_written += wrote.pages;
        judged
    }

    /// What is known of a file that was written.
    pub(super) fn profile(&self, ino: Ino, window: u32) -> Option<FileProfile> {
        let file = self.files[*self.index.get(&ino)? as usize].in_window(window);
        file.habits.is_written().then(|| file.profile())
    }

    pub(super) fn standing(&self, ino: Ino) -> Standing {
        self.index.get(&ino).map(|&at| self.files[at as usize].habits.standing()).unwrap_or_default()
    }

    /// Changes the habits of a file that is remembered.
    pub(super) fn change_habits(&mut self, ino: Ino, change: impl FnOnce(&mut Habits)) {
        if let Some(&at) = self.index.get(&ino) {
            change(&mut self.files[at as usize].habits);
        }
    }

    pub(super) fn hotness(&self, ino: Ino, window: u32, centroids: &Centroids) -> Hotness {
        match self.index.get(&ino) {
            Some(&at) => self.files[at as usize].in_window(window).hotness(centroids),
            None => Hotness::Cold,
        }
    }

    pub(super) fn is_read_in_order(&self, ino: Ino, window: u32) -> bool {
        let file = self.index.get(&ino).map(|&at| self.files[at as usize].in_window(window));
        file.is_some_and(|file| file.in_order > file.pages_read / 2)
    }

    pub(super) fn forget(&mut self, ino: Ino) {
        if let Some(at) = self.index.remove(&ino) {
            self.take(at as usize);
        }
    }

    /// Ends the window for all files: those not touched for long leave, the points of the others are added.
    pub(super) fn end_window(&mut self, window: u32, points: &mut Vec<Point>) {
        let mut at = 0;
        while let Some(file) = self.files.get_mut(at) {
            let ino = file.ino;
            if window.saturating_sub(file.window) < FORGET_AFTER {
                if file.window != RESTING {
                    points.push(file.in_window(window).point());
                }
                at += 1;
            } else if file.habits.is_written() {
                *file = file.rested(RESTING);
                at += 1;
            } else {
                self.forget(ino);
            }
        }
    }

    /// The file, in its present window.
    fn file(&mut self, ino: Ino, window: u32) -> &mut File {
        let at = match self.index.get(&ino) {
            Some(&at) => at as usize,
            None => self.add(File::new(ino, window)),
        };
        let file = &mut self.files[at];
        *file = file.in_window(window);
        file
    }

    fn add(&mut self, file: File) -> usize {
        if self.files.len() >= self.most {
            let least = self.least_used(file.window);
            self.forget(self.files[least].ino);
        }
        let at = self.files.len();
        self.index.insert(file.ino, at as u32);
        self.files.push(file);
        at
    }

    /// The least used of the next files under the hand.
    fn least_used(&mut self, window: u32) -> usize {
        let steps = (0..HAND_STEPS).map(|step| (self.hand + step) % self.files.len());
        let use_of = |at: &usize| {
            let point = self.files[*at].in_window(window).point();
            point.reads + point.writes
        };
        let least = steps.min_by(|a, b| use_of(a).total_cmp(&use_of(b))).unwrap_or(0);
        self.hand = (self.hand + HAND_STEPS) % self.files.len();
        least
    }

    /// Fills a slot with the last one.
    fn take(&mut self, at: usize) {
        self.files.swap_remove(at);
        if let Some(moved) = self.files.get(at) {
            self.index.insert(moved.ino, at as u32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
                assert_eq!(shard.files[*at as usize].ino, *ino, "step {step}");
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
    fn what_is_read_in_order_is_told_from_what_is_not() {
        let in_order = |reads: &[(u64, u64)]| {
            let mut shard = Shard::new(4);
            reads.iter().for_each(|&(first, pages)| shard.note_read(7, 3, first, pages));
            shard.is_read_in_order(7, 4)
        };
        let page_by_page: Vec<(u64, u64)> = (0..40).map(|n| (n % 10, 1)).collect();
        assert!(in_order(&page_by_page));
        assert!(in_order(&[(0, 32), (32, 32), (0, 32)]));
        assert!(in_order(&[(90, 4), (10, 4), (50, 4)]), "neighbours are read together");
        let jumps: Vec<(u64, u64)> = (0..40).map(|n| (n * 7 % 40, 1)).collect();
        assert!(!in_order(&jumps) && !in_order(&[(3, 1); 40]) && !in_order(&[]));
        // A few bytes at a time, here and there.
        let bytes: Vec<(u64, u64)> = (0..40).map(|n| (n / 8 * 20, 1)).collect();
        assert!(!in_order(&bytes));
        let mut shard = Shard::new(4);
        page_by_page.iter().for_each(|&(first, pages)| shard.note_read(7, 3, first, pages));
        (0..100).for_each(|n| shard.note_read(7, 4 + n / 20, u64::from(n) * 7 % 40, 1));
        assert!(!shard.is_read_in_order(7, 9), "what was read long ago counts less");
        assert!(!shard.is_read_in_order(7, 100));
    }

    #[test]
    fn averages_halve_and_files_leave() {
        let mut shard = Shard::new(4);
        (0..100).for_each(|_| shard.note_read(7, 3, 0, 1));
        let read = |shard: &Shard, window| shard.files[0].in_window(window).mean_reads;
        assert_eq!(read(&shard, 4), 100.0, "the first window is the average");
        assert_eq!(read(&shard, 6), 25.0);
        let mut points = Vec::new();
        shard.end_window(12, &mut points);
        assert_eq!((shard.len(), points.len()), (1, 1));
        shard.end_window(13, &mut points);
        assert_eq!((shard.files.len(), points.len()), (0, 1));
    }

    #[test]
    fn of_a_file_that_was_written_the_habits_stay() {
        let mut shard = Shard::new(4);
        (0..15).for_each(|n| assert_eq!(shard.note_write(7, 3, n, &Wrote::of_pages(2)).is_some(), n == 0));
        let mut points = Vec::new();
        shard.end_window(13, &mut points);
        shard.end_window(90, &mut points);
        assert_eq!((shard.len(), shard.files.len(), points.len()), (0, 1, 0));
        let judged = shard.note_write(7, 91, 900, &Wrote::of_pages(2)).expect("the 16th write");
        assert_eq!(judged, shard.profile(7, 91).expect("it is remembered"));
        assert_eq!(judged.features(0)[..3], [2, 900, 16]);
        assert!(shard.files[0].first, "how busy it was is not known any more");
    }
}
