//! The habits of a file: what is counted of it from its first write on, in 32 bytes, for the decision tree of
//! reserved files (ARS) and whoever else asks how a file is written.
//!
//! Purpose: the features of [`medfs_format::ars`], as they are known at the moment. Counted is what reaches
//! the engine; time is that of the front end's last tick, about a second.
//! Invariant: counts stop at their largest value.
//! Locks: none of its own; see [`crate::profile::hotness`].

use medfs_format::BLOCK_SIZE;
use medfs_format::ars::{Class, FEATURES, Feature, Values};

const PAGE: u64 = BLOCK_SIZE as u64;

/// Writes at which a file is judged by its habits for the first time; then at four times as many, and so on.
pub(crate) const FIRST_JUDGED: u32 = 16;

/// Whether a file is judged by its habits at its write of this number.
pub fn is_judged_at(writes: u32) -> bool {
    writes >= FIRST_JUDGED && writes.is_power_of_two() && writes.trailing_zeros().is_multiple_of(2)
}

/// A call that writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wrote {
    /// Pages that it changes.
    pub pages: u64,
    /// Of them, pages with bytes that the file had.
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
            pages: end.div_ceil(PAGE).max(first + 1) - first,
            over: if offset < size { end.min(size).div_ceil(PAGE) - first } else { 0 },
            size: end.max(size).div_ceil(PAGE),
        }
    }

    /// Pages that are new to the file, at its end or not.
    pub fn of_pages(pages: u64) -> Wrote {
        Wrote { pages, over: 0, size: pages }
    }
}

/// What was judged of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Where its pages belong.
    pub class: Class,
    /// The last judgement said otherwise: a second one in a row makes it so.
    pub doubted: bool,
}

impl Standing {
    /// As a judgement leaves it: a change takes two in agreement.
    pub fn judged(self, said: Class) -> Standing {
        let differs = said != self.class;
        Standing {
            class: if differs && self.doubted { said } else { self.class },
            doubted: differs && !self.doubted,
        }
    }
}

/// The counts.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Habits {
    first: u32,
    last: u32,
    writes: u32,
    pages: u32,
    over: u32,
    fsyncs: u32,
    size: u32,
    truncations: u16,
    standing: Standing,
}

const _: () = assert!(size_of::<Habits>() <= 32);

impl Habits {
    /// Notes a write; tells whether it is one at which the file is judged: the first one, then
    /// [`FIRST_JUDGED`], and each power of four behind.
    pub(super) fn note_write(&mut self, seconds: u32, wrote: &Wrote) -> bool {
        let add =
            |count: &mut u32, n: u64| *count = count.saturating_add(u32::try_from(n).unwrap_or(u32::MAX));
        if self.writes == 0 {
            self.first = seconds;
        }
        self.last = seconds;
        add(&mut self.writes, 1);
        add(&mut self.pages, wrote.pages);
        add(&mut self.over, wrote.over);
        self.size = self.size.max(u32::try_from(wrote.size).unwrap_or(u32::MAX));
        self.writes == 1 || is_judged_at(self.writes)
    }

    pub(super) fn note_fsync(&mut self) {
        self.fsyncs = self.fsyncs.saturating_add(1);
    }

    pub(super) fn note_truncation(&mut self) {
        self.truncations = self.truncations.saturating_add(1);
    }

    pub(super) fn is_written(&self) -> bool {
        self.writes > 0
    }

    pub(super) fn standing(&self) -> Standing {
        self.standing
    }

    pub(super) fn set_standing(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// The profile of a file that is read in order by so much, in percent.
    pub(super) fn profile(&self, reads_in_order: u32) -> FileProfile {
        let over = u64::from(self.over) * 100 / u64::from(self.pages).max(1);
        let mut values = Values::default();
        let mut set = |feature: Feature, value: u32| values[feature as usize] = value;
        set(Feature::Size, self.size);
        set(Feature::Interval, self.last.saturating_sub(self.first));
        set(Feature::Writes, self.writes);
        set(Feature::ReadsInOrder, reads_in_order);
        set(Feature::Fsyncs, self.fsyncs);
        set(Feature::Overwritten, over as u32);
        set(Feature::Truncations, self.truncations.into());
        FileProfile { values, standing: self.standing }
    }
}

/// What is known of a file at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileProfile {
    values: Values,
    /// What was judged of it.
    pub standing: Standing,
}

impl FileProfile {
    /// Write requests so far.
    pub fn writes(&self) -> u32 {
        self.values[Feature::Writes as usize]
    }

    /// The features, of a file whose name says so much ([`Feature::Kind`]).
    pub fn features(&self, kind: u32) -> Values {
        let mut values: [u32; FEATURES] = self.values;
        values[Feature::Kind as usize] = kind;
        values
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
    fn a_file_is_judged_at_its_first_write_at_16_and_at_each_fourfold() {
        let mut habits = Habits::default();
        let judged: Vec<u32> = (1..5000).filter(|_| habits.note_write(0, &Wrote::of_pages(1))).collect();
        assert_eq!(judged, [1, 16, 64, 256, 1024, 4096]);
    }

    #[test]
    fn a_change_takes_two_judgements_in_agreement() {
        use Class::{Log, Reserve};
        let classes = |said: &[Class]| -> Vec<Class> {
            let mut standing = Standing::default();
            said.iter()
                .map(|said| {
                    standing = standing.judged(*said);
                    standing.class
                })
                .collect()
        };
        assert_eq!(classes(&[Reserve, Reserve, Log, Reserve]), [Log, Reserve, Reserve, Reserve]);
        assert_eq!(classes(&[Reserve, Log, Reserve, Log]), [Log; 4]);
        assert_eq!(classes(&[Reserve, Reserve, Log, Log, Log]), [Log, Reserve, Reserve, Log, Log]);
    }

    #[test]
    fn features_are_what_was_counted() {
        let mut habits = Habits::default();
        habits.note_write(7, &Wrote::new(0, 8192, 0));
        habits.note_write(19, &Wrote::new(0, 4096, 8192));
        habits.note_fsync();
        habits.note_truncation();
        let values = habits.profile(40).features(3);
        assert_eq!(values, [2, 12, 2, 40, 1, 33, 1, 3]);
        let mut most = Habits { writes: u32::MAX, pages: u32::MAX, over: u32::MAX, ..habits };
        most.note_write(9, &Wrote { pages: u64::MAX, over: u64::MAX, size: u64::MAX });
        assert_eq!(most.profile(0).features(0)[..3], [u32::MAX, 2, u32::MAX]);
    }
}
