//! Samples: files as they were when they were judged, and what became of them (ARS, section IV-A), for who
//! trains a decision tree of them.
//!
//! Purpose: a tree is to say early what a file will become. What became of it is told by what was done to it,
//! and not by where its pages lie: a file that has sections does not fragment, so a tree would learn its own
//! answers.
//! Invariants: the newest [`MOST`] samples are kept, of at most 64 bytes each. The samples of one file share
//! what became of it, and end with it, as its number may become another's. Nothing is on disk.
//! Locks: none of its own.

use super::file_profile::Known;
use medfs_format::Ino;
use medfs_format::ars::{Feature, Values};
use std::collections::VecDeque;

/// Samples that are kept.
pub(crate) const MOST: usize = 4096;

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fate {
    /// Write requests.
    pub writes: u32,
    /// Pages that it had at its largest.
    pub pages: u32,
    /// Pieces in which a log would have left it: one more for each fsync of a write that went elsewhere than
    /// on behind the one before.
    pub pieces: u32,
}

impl Fate {
    /// Of a file of which so much is known, and so many percent of whose writes went elsewhere.
    fn of(known: &Known, scattered: u8) -> Fate {
        let count = |feature: Feature| known.count(feature);
        let pages = count(Feature::Size);
        let elsewhere = u64::from(count(Feature::Fsyncs)) * u64::from(scattered) / 100;
        let pieces = 1 + elsewhere.min(u64::from(pages.saturating_sub(1))) as u32;
        Fate { writes: count(Feature::Writes), pages, pieces }
    }
}

/// A file as it was when it was judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSample {
    /// A number that samples of the same file share.
    pub file: u32,
    /// Its features then.
    pub features: Values,
    /// What became of it.
    pub fate: Fate,
    /// Whether it was there when that was told: more may become of it.
    pub is_there: bool,
}

/// The same of a file that may be there still.
#[derive(Debug, Clone, Copy)]
struct Kept {
    sample: FileSample,
    /// Its number, while it is there.
    ino: Option<Ino>,
    scattered: u8,
}

const _: () = assert!(size_of::<Kept>() <= 64);

/// The samples of a volume.
#[derive(Debug, Default)]
pub(crate) struct Samples {
    kept: VecDeque<Kept>,
    /// Files of which there was a sample.
    files: u32,
}

impl Samples {
    /// Notes a file that is judged: its features, and what is known of it.
    pub(crate) fn judged(&mut self, ino: Ino, features: &Values, known: &Known) {
        let scattered = known.scattered.unwrap_or_default();
        let fate = Fate::of(known, scattered);
        let mut file = None;
        for kept in self.kept.iter_mut().filter(|kept| kept.ino == Some(ino)) {
            (kept.sample.fate, kept.scattered) = (fate, scattered);
            file = Some(kept.sample.file);
        }
        if file.is_none() {
            self.files = self.files.wrapping_add(1);
        }
        if self.kept.len() == MOST {
            self.kept.pop_front();
        }
        let file = file.unwrap_or(self.files);
        let sample = FileSample { file, features: *features, fate, is_there: true };
        self.kept.push_back(Kept { sample, ino: Some(ino), scattered });
    }

    /// A file is gone of which so much was known; without that, what was known last counts.
    pub(crate) fn ended(&mut self, ino: Ino, known: Option<&Known>) {
        for kept in self.kept.iter_mut().filter(|kept| kept.ino == Some(ino)) {
            if let Some(known) = known {
                kept.sample.fate = Fate::of(known, known.scattered.unwrap_or(kept.scattered));
            }
            (kept.ino, kept.sample.is_there) = (None, false);
        }
    }

    /// All of them, with what became by now of the files that are there; what was known last of those that
    /// `known` does not remember.
    pub(crate) fn all(&self, known: impl Fn(Ino) -> Option<Known>) -> Vec<FileSample> {
        let now = |kept: &Kept| match kept.ino.and_then(&known) {
            Some(known) => {
                let fate = Fate::of(&known, known.scattered.unwrap_or(kept.scattered));
                FileSample { fate, ..kept.sample }
            }
            None => kept.sample,
        };
        self.kept.iter().map(now).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{Profiles, Wrote};
    use std::time::Duration;

    const PAGE: u64 = 4096;

    /// Files that are written and fsynced, and the samples of them.
    struct Judged {
        profiles: Profiles,
        samples: Samples,
    }

    impl Judged {
        fn new() -> Judged {
            let profiles = Profiles::new(Duration::from_secs(60), 100, Duration::ZERO);
            Judged { profiles, samples: Samples::default() }
        }

        /// Writes these pages of a file, each fsynced.
        fn write(&mut self, ino: Ino, pages: impl Iterator<Item = u64>) {
            for page in pages {
                let judged = self.profiles.note_write(ino, &Wrote::new(page * PAGE, 4096, 1000 * PAGE));
                self.profiles.note_fsync(ino);
                if let Some(known) = judged.filter(|known| known.writes() > 1) {
                    self.samples.judged(ino, &Values::default(), &known);
                }
            }
        }

        fn all(&self) -> Vec<FileSample> {
            self.samples.all(|ino| self.profiles.known(ino))
        }
    }

    #[test]
    fn pieces_are_those_that_a_log_would_make() {
        let mut judged = Judged::new();
        judged.write(7, 0..100);
        judged.write(8, (0..100).map(|n| n * 37 % 100));
        // Each fourth write goes elsewhere.
        judged.write(9, (0..100).map(|n| n % 4 + n / 4 * 20));
        let of = |file: u32| judged.all().iter().find(|s| s.file == file).expect("it was judged").fate;
        assert_eq!(of(1), Fate { writes: 100, pages: 1000, pieces: 1 });
        assert!((96..=101).contains(&of(2).pieces), "{:?}", of(2));
        assert!((24..=27).contains(&of(3).pieces), "{:?}", of(3));
    }

    #[test]
    fn samples_of_a_file_share_what_became_of_it_and_end_with_it() {
        let mut judged = Judged::new();
        judged.write(7, 0..70);
        assert_eq!(judged.all().len(), 2, "at the 16th and the 64th write");
        assert!(judged.all().iter().all(|sample| (sample.file, sample.fate.writes) == (1, 70)));
        let known = judged.profiles.known(7).expect("it was written");
        judged.samples.ended(7, Some(&known));
        assert!(judged.all().iter().all(|sample| !sample.is_there));
        judged.profiles.forget(7);
        judged.write(7, (0..20).map(|n| n * 3));
        let became: Vec<(u32, u32)> = judged.all().iter().map(|s| (s.file, s.fate.writes)).collect();
        assert_eq!(became, [(1, 70), (1, 70), (2, 20)]);
        judged.profiles.forget(7);
        assert_eq!(judged.all()[2].fate.writes, 16, "what was known when it was judged");
        // Its number may be another file's next.
        judged.samples.ended(7, None);
        judged.write(7, 0..20);
        assert_eq!(judged.all().iter().map(|s| s.file).collect::<Vec<_>>(), [1, 1, 2, 3]);
    }

    #[test]
    fn the_newest_are_kept() {
        let mut judged = Judged::new();
        for ino in 0..MOST as u32 + 10 {
            judged.write(ino, 0..16);
            judged.profiles.forget(ino);
        }
        let all = judged.all();
        assert_eq!((all.len(), all[0].file, all[MOST - 1].file), (MOST, 11, MOST as u32 + 10));
    }
}
