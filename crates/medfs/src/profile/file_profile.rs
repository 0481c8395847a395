//! What is known of one file, in 32 bytes: how it was written since its first write, what its name says,
//! what was judged of it, and how busy it is.
//!
//! Purpose: the record that Hcluster, the layer of deltas and the decision tree of reserved files (ARS) read.
//! Its features are those of [`medfs_format::ars`], as they are known at the moment. Counted is what reaches
//! the engine; time is that of the front end's last tick, about a second.
//! Invariants: counts stop at their largest value. What counts in windows of time is there while the file is
//! in use: a file that was left alone for long rests without it.
//! Locks: none of its own; see [`super::table`].

use super::file_class::FileClass;
use super::hotness::Point;
use super::judging::{Standing, is_judged_again_at, is_judged_at};
use medfs_format::BLOCK_SIZE;
use medfs_format::ars::{Class, FEATURES, Feature, Values};

const PAGE: u64 = BLOCK_SIZE as u64;

fn bounded(pages: u64) -> u32 {
    u32::try_from(pages).unwrap_or(u32::MAX)
}

/// A call that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrote {
    /// The first page that it changes.
    pub first: u64,
    /// Pages that it changes.
    pub pages: u64,
    /// Of them, pages that the file had.
    pub over: u64,
    /// Pages up to the file's end, once it is written.
    pub size: u64,
}

impl Wrote {
    /// So many bytes at least one, at `offset` of a file that has `size` bytes.
    pub fn new(offset: u64, len: usize, size: u64) -> Wrote {
        let end = offset.saturating_add(len as u64);
        let first = offset / PAGE;
        Wrote {
            first,
            pages: end.div_ceil(PAGE).max(first + 1) - first,
            over: if offset < size { end.min(size).div_ceil(PAGE) - first } else { 0 },
            size: end.max(size).div_ceil(PAGE),
        }
    }

    /// The same where so many of the pages were holes, or behind the end.
    pub(crate) fn with_filled(self, filled: u64) -> Wrote {
        Wrote { over: self.over.min(self.pages.saturating_sub(filled)), ..self }
    }

    /// Pages from the first on that are new to the file.
    pub fn of_pages(pages: u64) -> Wrote {
        Wrote { first: 0, pages, over: 0, size: pages }
    }
}

/// What an fsync wrote of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flushed {
    /// Pages that were dirty, one at least.
    pub(crate) pages: u32,
    /// Runs of neighbours among them.
    pub(crate) runs: u32,
    /// Pages that got their first block.
    pub(crate) new: u32,
    /// Pages that were to be overwritten where they are, and went elsewhere, as a seal or a record needs their blocks.
    pub(crate) barred: u32,
    /// Pages that needed no block, as they became deltas; none where that was not tried.
    pub(crate) deltas: Option<u32>,
}

/// What an fsync of a file writes on average: each weighs [`Synced::WEIGHT`] of those before.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Synced {
    /// Pages that are dirty.
    pub pages: f32,
    /// Runs of neighbours among them.
    pub runs: f32,
    /// Part of the pages that get their first block.
    pub new: f32,
    /// Part of the pages that were to be overwritten, and went elsewhere, as what is durable needs their blocks.
    pub barred: f32,
    /// Part of the pages that need no block, as they become deltas; none where that was never tried.
    pub fit: Option<f32>,
    /// Pages that are read right behind another one, from one fsync to the next.
    pub read_in_order: f32,
    /// fsyncs that were counted.
    pub count: u32,
}

impl Synced {
    const WEIGHT: f32 = 1.0 / 8.0;

    fn add(&mut self, one: Flushed, read_in_order: u32) {
        let weight = if self.count == 0 { 1.0 } else { Self::WEIGHT };
        let blend = |mean: &mut f32, value: f32| *mean += (value - *mean) * weight;
        blend(&mut self.pages, one.pages as f32);
        blend(&mut self.runs, one.runs as f32);
        blend(&mut self.new, one.new as f32 / one.pages as f32);
        blend(&mut self.barred, one.barred as f32 / one.pages as f32);
        blend(&mut self.read_in_order, read_in_order as f32);
        if let Some(deltas) = one.deltas {
            let part = deltas as f32 / one.pages as f32;
            let fit = self.fit.get_or_insert(part);
            *fit += (part - *fit) * Self::WEIGHT;
        }
        self.count = self.count.saturating_add(1);
    }
}

/// What a file's profile says at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Known {
    values: Values,
    /// Percent of the writes that went elsewhere than on behind the one before; none of a file that rests.
    pub(crate) scattered: Option<u8>,
    /// What its fsyncs write, where that is counted; nothing of a file that rests.
    pub synced: Synced,
    /// What was judged of it.
    pub standing: Standing,
}

impl Known {
    /// Write requests so far.
    pub fn writes(&self) -> u32 {
        self.count(Feature::Writes)
    }

    /// A feature that is counted.
    pub(crate) fn count(&self, feature: Feature) -> u32 {
        self.values[feature as usize]
    }

    /// The features, of a file whose name says so much ([`Feature::Kind`]).
    pub(crate) fn features(&self, class: FileClass) -> Values {
        let mut values: [u32; FEATURES] = self.values;
        values[Feature::Kind as usize] = match class {
            FileClass::Other => 0,
            FileClass::Database => 1,
            FileClass::RollbackJournal => 2,
            FileClass::Wal => 3,
        };
        values
    }
}

/// Pages written, and those of them that the file had already. Both are halved where they would not fit: their
/// ratio is what is asked for.
#[derive(Debug, Clone, Copy, Default)]
struct Pages {
    written: u16,
    over: u16,
}

impl Pages {
    fn add(&mut self, wrote: &Wrote) {
        let written = wrote.pages.saturating_add(self.written.into());
        let over = wrote.over.saturating_add(self.over.into()).min(written);
        let halvings = (u64::BITS - written.leading_zeros()).saturating_sub(u16::BITS);
        *self = Pages { written: (written >> halvings) as u16, over: (over >> halvings) as u16 };
    }

    fn percent_over(self) -> u32 {
        u32::from(self.over) * 100 / u32::from(self.written).max(1)
    }
}

/// What the name says, where that was asked, and what was judged: in a byte.
#[derive(Debug, Clone, Copy, Default)]
struct Marks(u8);

impl Marks {
    const RESERVE: u8 = 1;
    const DOUBTED: u8 = 2;
    const WHOLE: u8 = 4;
    const WHOLE_DOUBTED: u8 = 8;
    const CLASS: u32 = 4;
    const CLASSES: [Option<FileClass>; 5] = [
        None,
        Some(FileClass::Database),
        Some(FileClass::RollbackJournal),
        Some(FileClass::Wal),
        Some(FileClass::Other),
    ];

    fn class(self) -> Option<FileClass> {
        Self::CLASSES[usize::from(self.0 >> Self::CLASS)]
    }

    fn standing(self) -> Standing {
        let class = if self.0 & Self::RESERVE != 0 { Class::Reserve } else { Class::Log };
        let has = |mark: u8| self.0 & mark != 0;
        Standing {
            class,
            whole: has(Self::WHOLE),
            doubted: has(Self::DOUBTED),
            whole_doubted: has(Self::WHOLE_DOUBTED),
        }
    }

    fn new(class: Option<FileClass>, standing: Standing) -> Marks {
        let class = Self::CLASSES.iter().position(|&one| one == class).unwrap_or_default() as u8;
        let mark = |is_so, mark| if is_so { mark } else { 0 };
        let place =
            mark(standing.class == Class::Reserve, Self::RESERVE) | mark(standing.doubted, Self::DOUBTED);
        let whole = mark(standing.whole, Self::WHOLE) | mark(standing.whole_doubted, Self::WHOLE_DOUBTED);
        Marks(class << Self::CLASS | place | whole)
    }
}

/// How busy a file is. Counts are of calls.
#[derive(Debug, Clone, Copy)]
struct Recent {
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
    /// The page behind the last one that was written.
    written_to: u32,
    /// Calls that write, and those of them that went elsewhere than on behind the one before: as of pages read.
    calls: u32,
    scattered: u32,
    /// What fsyncs write, and pages in order since the last one.
    synced: Synced,
    in_order_since: u32,
}

impl Recent {
    fn new(window: u32) -> Recent {
        Recent {
            window,
            reads: 0,
            writes: 0,
            mean_reads: 0.0,
            mean_writes: 0.0,
            first: true,
            read_to: 0,
            pages_read: 0,
            in_order: 0,
            written_to: 0,
            calls: 0,
            scattered: 0,
            synced: Synced::default(),
            in_order_since: 0,
        }
    }

    /// The same in a window: what was counted before has become part of the averages.
    fn in_window(mut self, window: u32) -> Recent {
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
        self.calls = self.calls.checked_shr(passed).unwrap_or(0);
        self.scattered = self.scattered.checked_shr(passed).unwrap_or(0);
        self
    }

    /// Notes that pages were read from `first` on. The one that was read last is not counted again.
    fn note_pages(&mut self, first: u64, pages: u64) {
        let (first, end) = (bounded(first), bounded(first.saturating_add(pages)));
        let again = u32::from(self.pages_read > 0 && first.saturating_add(1) == self.read_to);
        let goes_on = self.pages_read > 0 && first.saturating_add(again) == self.read_to;
        let pages = bounded(pages).saturating_sub(again);
        let in_order = if goes_on { pages } else { pages.saturating_sub(1) };
        self.read_to = end;
        self.pages_read = self.pages_read.saturating_add(pages);
        self.in_order = self.in_order.saturating_add(in_order);
        self.in_order_since = self.in_order_since.saturating_add(in_order);
    }

    /// Notes a call that writes. What goes on within the page that was written last goes on.
    fn note_written(&mut self, wrote: &Wrote) {
        let first = bounded(wrote.first);
        let goes_on = first == self.written_to || first.saturating_add(1) == self.written_to;
        let elsewhere = self.calls > 0 && !goes_on;
        self.written_to = bounded(wrote.first.saturating_add(wrote.pages));
        self.calls = self.calls.saturating_add(1);
        self.scattered = self.scattered.saturating_add(elsewhere.into());
    }

    /// The averages, or this window's counts where they are more already.
    fn busyness(&self) -> Busyness {
        Busyness {
            point: Point::of(
                self.mean_reads.max(self.reads as f32),
                self.mean_writes.max(self.writes as f32),
            ),
            new_and_unread: (self.first && self.reads == 0).then_some(self.writes),
        }
    }
}

/// How busy a file is, as Hcluster judges it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Busyness {
    /// How often it is read and written.
    pub(super) point: Point,
    /// Its writes, where it is seen in its first window and was not read.
    pub(super) new_and_unread: Option<u32>,
}

/// What is known of a file.
#[derive(Debug)]
pub(super) struct FileProfile {
    recent: Option<Box<Recent>>,
    /// Seconds of the first write and of the last.
    first: u32,
    last: u32,
    writes: u32,
    /// Pages that it had at its largest.
    size: u32,
    pages: Pages,
    fsyncs: u16,
    truncations: u8,
    marks: Marks,
}

const _: () = assert!(size_of::<FileProfile>() <= 32);

impl FileProfile {
    /// Of a file that is seen for the first time.
    pub(super) fn new(window: u32) -> FileProfile {
        FileProfile {
            recent: Some(Box::new(Recent::new(window))),
            first: 0,
            last: 0,
            writes: 0,
            size: 0,
            pages: Pages::default(),
            fsyncs: 0,
            truncations: 0,
            marks: Marks::default(),
        }
    }

    /// What counts in windows, in this one.
    fn in_use(&mut self, window: u32) -> &mut Recent {
        let recent = self.recent.get_or_insert_with(|| Box::new(Recent::new(window)));
        if recent.window < window {
            **recent = recent.in_window(window);
        }
        recent
    }

    /// Notes a call that reads.
    pub(super) fn note_read(&mut self, window: u32, first: u64, pages: u64) {
        let recent = self.in_use(window);
        recent.note_pages(first, pages);
        recent.reads = recent.reads.saturating_add(1);
    }

    /// Notes a call that writes; tells whether the file is judged at this one: the first one, then
    /// [`FIRST_JUDGED`](super::judging::FIRST_JUDGED), and each power of four behind, or of two while the last
    /// judgement waits for another one.
    pub(super) fn note_write(&mut self, window: u32, seconds: u32, wrote: &Wrote) -> bool {
        let recent = self.in_use(window);
        recent.writes = recent.writes.saturating_add(1);
        recent.note_written(wrote);
        if self.writes == 0 {
            self.first = seconds;
        }
        self.last = seconds;
        self.writes = self.writes.saturating_add(1);
        self.pages.add(wrote);
        self.size = self.size.max(bounded(wrote.size));
        let again = is_judged_again_at(self.writes) && self.standing().is_in_doubt();
        self.writes == 1 || is_judged_at(self.writes) || again
    }

    pub(super) fn note_fsync(&mut self) {
        self.fsyncs = self.fsyncs.saturating_add(1);
    }

    /// Notes what an fsync wrote.
    pub(super) fn note_flushed(&mut self, window: u32, flushed: Flushed) {
        let recent = self.in_use(window);
        recent.synced.add(flushed, std::mem::take(&mut recent.in_order_since));
    }

    /// fsyncs that were counted while it was in use.
    pub(super) fn fsyncs_counted(&self) -> u32 {
        self.recent.as_ref().map_or(0, |recent| recent.synced.count)
    }

    pub(super) fn note_truncation(&mut self) {
        self.truncations = self.truncations.saturating_add(1);
    }

    /// Notes what the file's name says.
    pub(super) fn set_class(&mut self, class: FileClass) {
        self.marks = Marks::new(Some(class), self.marks.standing());
    }

    /// What its name says, where that is known.
    pub(super) fn class(&self) -> Option<FileClass> {
        self.marks.class()
    }

    pub(super) fn set_standing(&mut self, standing: Standing) {
        self.marks = Marks::new(self.marks.class(), standing);
    }

    pub(super) fn standing(&self) -> Standing {
        self.marks.standing()
    }

    pub(super) fn is_written(&self) -> bool {
        self.writes > 0
    }

    /// What is known of it in a window.
    pub(super) fn known(&self, window: u32) -> Known {
        let in_use = self.recent(window);
        let scattered = in_use
            .filter(|recent| recent.calls > 0)
            .map(|recent| (u64::from(recent.scattered) * 100 / u64::from(recent.calls)) as u8);
        let recent = in_use.unwrap_or(Recent::new(window));
        let in_order = u64::from(recent.in_order) * 100 / u64::from(recent.pages_read).max(1);
        let mut values = Values::default();
        let mut set = |feature: Feature, value: u32| values[feature as usize] = value;
        set(Feature::Size, self.size);
        set(Feature::Interval, self.last.saturating_sub(self.first));
        set(Feature::Writes, self.writes);
        set(Feature::ReadsInOrder, in_order as u32);
        set(Feature::Fsyncs, self.fsyncs.into());
        set(Feature::Overwritten, self.pages.percent_over());
        set(Feature::Truncations, self.truncations.into());
        Known { values, scattered, synced: recent.synced, standing: self.standing() }
    }

    fn recent(&self, window: u32) -> Option<Recent> {
        self.recent.as_ref().map(|recent| recent.in_window(window))
    }

    /// How busy it is; `None` of one that rests.
    pub(super) fn busyness(&self, window: u32) -> Option<Busyness> {
        self.recent(window).map(|recent| recent.busyness())
    }

    /// Whether most pages that are read of it follow the one before.
    pub(super) fn is_read_in_order(&self, window: u32) -> bool {
        self.recent(window).is_some_and(|recent| recent.in_order > recent.pages_read / 2)
    }

    /// Windows since it was read or written; `None` of one that rests.
    pub(super) fn idle_windows(&self, window: u32) -> Option<u32> {
        self.recent.as_ref().map(|recent| window.saturating_sub(recent.window))
    }

    /// Forgets how busy it was.
    pub(super) fn rest(&mut self) {
        self.recent = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_told_from_overwrites() {
        let wrote = |offset, len, size| {
            let w = Wrote::new(offset, len, size);
            (w.pages, w.over, w.size)
        };
        assert_eq!(wrote(0, 4096, 0), (1, 0, 1));
        assert_eq!(wrote(0, 4096, 4096), (1, 1, 1));
        assert_eq!(wrote(100, 10, 50), (1, 0, 1), "an append within a page");
        assert_eq!(wrote(4090, 10, 4095), (2, 1, 2), "half over, half behind the end");
        assert_eq!(wrote(8192, 12288, 16384), (3, 2, 5));
        assert_eq!(wrote(u64::MAX - 1, 10, 0).1, 0);
    }

    #[test]
    fn what_fills_holes_overwrites_nothing() {
        let wrote = Wrote::new(0, 40_960, 36_864);
        assert_eq!((wrote.pages, wrote.over), (10, 9));
        let over = |filled| wrote.with_filled(filled).over;
        assert_eq!((over(0), over(1), over(4), over(10), over(u64::MAX)), (9, 9, 6, 0, 0));
    }

    #[test]
    fn a_file_is_judged_at_its_first_write_at_16_and_at_each_fourfold() {
        let mut profile = FileProfile::new(0);
        let judged: Vec<u32> = (1..5000).filter(|_| profile.note_write(0, 0, &Wrote::of_pages(1))).collect();
        assert_eq!(judged, [1, 16, 64, 256, 1024, 4096]);
    }

    #[test]
    fn a_judgement_that_differs_is_confirmed_or_dispelled_after_half_of_the_time() {
        let mut profile = FileProfile::new(0);
        let mut judged = Vec::new();
        for n in 1..5000 {
            if profile.note_write(0, 0, &Wrote::of_pages(1)) {
                judged.push(n);
                let class = if [16, 256, 512].contains(&n) { Class::Reserve } else { Class::Log };
                profile.set_standing(profile.standing().judged(class, false));
            }
        }
        assert_eq!(judged, [1, 16, 32, 64, 256, 512, 1024, 2048, 4096]);
    }

    #[test]
    fn a_change_takes_two_judgements_in_agreement() {
        use Class::{Log, Reserve};
        let classes = |said: &[Class]| -> Vec<Class> {
            let mut standing = Standing::default();
            said.iter()
                .map(|said| {
                    standing = standing.judged(*said, false);
                    standing.class
                })
                .collect()
        };
        assert_eq!(classes(&[Reserve, Reserve, Log, Reserve]), [Log, Reserve, Reserve, Reserve]);
        assert_eq!(classes(&[Reserve, Log, Reserve, Log]), [Log; 4]);
        assert_eq!(classes(&[Reserve, Reserve, Log, Log, Log]), [Log, Reserve, Reserve, Log, Log]);
        let whole = Standing::default().judged(Log, true);
        assert!(whole.whole_doubted && !whole.whole);
        assert_eq!(whole.judged(Log, true), Standing { whole: true, ..Standing::default() });
        // That deltas do not pay says nothing of the place.
        let placed = whole.judged(Reserve, true);
        assert_eq!((placed.class, placed.whole, placed.doubted), (Log, true, true));
    }

    #[test]
    fn what_fsyncs_write_is_an_average_that_forgets() {
        let mut profile = FileProfile::new(0);
        let flushed = |pages, runs, deltas| Flushed { pages, runs, new: 1, barred: 1, deltas };
        profile.note_write(0, 0, &Wrote { first: 0, pages: 1000, over: 0, size: 1000 });
        profile.note_flushed(0, flushed(1000, 1, None));
        let first = profile.known(0).synced;
        let part = 0.001;
        let expected =
            Synced { pages: 1000.0, runs: 1.0, new: part, barred: part, count: 1, ..Synced::default() };
        assert_eq!(first, expected);
        for n in 0..100 {
            profile.note_read(0, n, 5);
            profile.note_flushed(0, flushed(4, 2, (n % 2 == 0).then_some(1)));
        }
        let Synced { pages, runs, new, barred, fit, read_in_order, count } = profile.known(0).synced;
        let near = |found: f32, expected: f32| (found - expected).abs() < 0.01;
        assert!(near(pages, 4.0) && near(runs, 2.0), "{pages} {runs}");
        assert!(near(new, 0.25) && near(barred, 0.25), "{new} {barred}");
        assert!(fit == Some(0.25) && count == 101 && near(read_in_order, 4.0), "{fit:?} {read_in_order}");
        profile.rest();
        assert_eq!(profile.known(0).synced, Synced::default());
    }

    #[test]
    fn name_and_judgement_share_a_byte_and_do_not_disturb_each_other() {
        let classes = [FileClass::Database, FileClass::RollbackJournal, FileClass::Wal, FileClass::Other];
        let standings = [Class::Log, Class::Reserve].into_iter().flat_map(|class| {
            (0..8).map(move |n| Standing {
                class,
                whole: n & 1 != 0,
                doubted: n & 2 != 0,
                whole_doubted: n & 4 != 0,
            })
        });
        let mut profile = FileProfile::new(0);
        assert_eq!((profile.class(), profile.standing()), (None, Standing::default()));
        for standing in standings {
            profile.set_standing(standing);
            for class in classes {
                profile.set_class(class);
                assert_eq!((profile.class(), profile.standing()), (Some(class), standing));
            }
        }
    }

    #[test]
    fn features_are_what_was_counted() {
        let mut profile = FileProfile::new(0);
        profile.note_write(0, 7, &Wrote::new(0, 8192, 0));
        profile.note_write(0, 19, &Wrote::new(0, 4096, 8192));
        profile.note_fsync();
        profile.note_truncation();
        profile.note_read(0, 0, 2);
        assert_eq!(profile.known(0).features(FileClass::Wal), [2, 12, 2, 50, 1, 33, 1, 3]);
        profile.rest();
        assert_eq!(profile.known(9).features(FileClass::Other), [2, 12, 2, 0, 1, 33, 1, 0]);
    }

    #[test]
    fn counts_stop_at_their_largest_value() {
        let mut profile =
            FileProfile { writes: u32::MAX, fsyncs: u16::MAX, truncations: u8::MAX, ..FileProfile::new(0) };
        profile.note_write(0, 9, &Wrote { first: u64::MAX, pages: u64::MAX, over: u64::MAX, size: u64::MAX });
        profile.note_fsync();
        profile.note_truncation();
        let most = [u32::MAX, 9, u32::MAX, 0, u16::MAX.into(), 100, u8::MAX.into(), 0];
        assert_eq!(profile.known(0).features(FileClass::Other), most);
    }

    #[test]
    fn the_share_that_is_overwritten_stays_right_however_much_is_written() {
        let mut profile = FileProfile::new(0);
        for n in 0..400_000u64 {
            profile.note_write(
                0,
                0,
                &Wrote { first: 0, pages: 4, over: if n % 4 == 0 { 4 } else { 0 }, size: 1 },
            );
        }
        let over = profile.known(0).features(FileClass::Other)[Feature::Overwritten as usize];
        assert!((24..=25).contains(&over), "{over}");
    }

    #[test]
    fn what_is_read_in_order_is_told_from_what_is_not() {
        let read = |reads: &[(u64, u64)]| {
            let mut profile = FileProfile::new(3);
            reads.iter().for_each(|&(first, pages)| profile.note_read(3, first, pages));
            profile
        };
        let in_order = |reads: &[(u64, u64)]| read(reads).is_read_in_order(4);
        let page_by_page: Vec<(u64, u64)> = (0..40).map(|n| (n % 10, 1)).collect();
        assert!(in_order(&page_by_page));
        assert!(in_order(&[(0, 32), (32, 32), (0, 32)]));
        assert!(in_order(&[(90, 4), (10, 4), (50, 4)]), "neighbours are read together");
        let jumps: Vec<(u64, u64)> = (0..40).map(|n| (n * 7 % 40, 1)).collect();
        assert!(!in_order(&jumps) && !in_order(&[(3, 1); 40]) && !in_order(&[]));
        // A few bytes at a time, here and there.
        let bytes: Vec<(u64, u64)> = (0..40).map(|n| (n / 8 * 20, 1)).collect();
        assert!(!in_order(&bytes));
        let mut profile = read(&page_by_page);
        (0..100).for_each(|n| profile.note_read(4 + n / 20, u64::from(n) * 7 % 40, 1));
        assert!(!profile.is_read_in_order(9), "what was read long ago counts less");
        assert!(!profile.is_read_in_order(100));
    }

    #[test]
    fn averages_halve_with_each_window() {
        let mut profile = FileProfile::new(3);
        (0..100).for_each(|_| profile.note_read(3, 0, 1));
        let read = |window| profile.recent(window).expect("in use").mean_reads;
        assert_eq!(read(4), 100.0, "the first window is the average");
        assert_eq!(read(6), 25.0);
        assert_eq!(profile.idle_windows(6), Some(3));
    }
}
