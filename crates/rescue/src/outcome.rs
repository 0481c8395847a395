//! What was brought, and what was not.

use medfs_format::Ino;
use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

/// Failures that are kept; the rest is counted.
pub const MOST_FAILURES: usize = 100_000;
/// Ranges of a file that are kept; of the rest only the bytes are.
pub const MOST_RANGES: usize = 1000;

/// What came of a walk.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Files brought that are no directories, with each of their names, damaged ones too.
    pub files: u64,
    /// Directories brought.
    pub directories: u64,
    /// Those of both of which something is told: they are not whole.
    pub flawed: u64,
    /// Bytes of content brought.
    pub bytes: u64,
    /// Files and directories brought that no directory names.
    pub unnamed: u64,
    /// Those of them that are where their inodes say that they were; the others are under their numbers.
    pub placed: u64,
    /// Where directories lead to less than they did: those that were not read whole or not at all, entries
    /// that lead to another file, and missing names. A salvage may find what is missing.
    pub torn: u64,
    /// Files whose inode cannot be read: a salvage may make them of what is left.
    pub unread: u64,
    /// Files and directories that no directory led to, and that were not brought.
    pub unmet: u64,
    /// Inodes that no directory led to and that cannot be read.
    pub unmet_unread: u64,
    /// Inodes that were not come to, as the walk ended before; `None` where that is not so, or not known.
    pub untried: Option<u64>,
    /// Files and directories of which neither a name nor an inode is left.
    pub gone: u64,
    /// What was not brought, or not whole.
    pub failures: Vec<Failure>,
    /// Failures beyond [`MOST_FAILURES`].
    pub more_failures: u64,
}

/// A file or directory that could not be brought, or not whole.
#[derive(Debug, Clone)]
pub struct Failure {
    /// Its path in the volume.
    pub path: Vec<u8>,
    /// Its number, where it is known.
    pub ino: Option<Ino>,
    /// Why.
    pub reason: String,
    /// Bytes of it that are missing: holes in the file that was brought.
    pub lost: Lost,
}

/// Ranges of a file that are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Lost {
    /// [`MOST_RANGES`] of them at most, in the order of the file, those that touch as one.
    pub ranges: Vec<Range<u64>>,
    /// Bytes in all of them.
    pub bytes: u64,
    /// What was brought may be wrong, too: it replaces no other copy.
    pub unsure: bool,
}

impl Lost {
    /// Why a copy of which nothing is missing stays beside an earlier one; from then on it is unsure.
    pub(crate) fn why_beside(&mut self) -> &'static str {
        match std::mem::replace(&mut self.unsure, true) {
            true => "what was brought may be wrong",
            false => "an earlier copy, of equal size and time, has other content",
        }
    }

    /// Adds a range that overlaps none of those that are there.
    pub fn add(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.bytes += range.end - range.start;
        let at = self.ranges.partition_point(|other| other.start < range.start);
        let before = at.checked_sub(1).filter(|&before| self.ranges[before].end == range.start);
        let is_before_next = self.ranges.get(at).is_some_and(|next| next.start == range.end);
        match (before, is_before_next) {
            (Some(before), true) => self.ranges[before].end = self.ranges.remove(at).end,
            (Some(before), false) => self.ranges[before].end = range.end,
            (None, true) => self.ranges[at].start = range.start,
            (None, false) if self.ranges.len() < MOST_RANGES => self.ranges.insert(at, range),
            (None, false) => {}
        }
    }

    /// Whether all ranges are kept.
    pub fn is_known(&self) -> bool {
        self.ranges.iter().map(|range| range.end - range.start).sum::<u64>() == self.bytes
    }
}

impl fmt::Display for Lost {
    /// `bytes 0-4095, 8192-12287`, the first few.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        f.write_str("bytes ")?;
        for (i, range) in self.ranges.iter().take(SHOWN).enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            write!(f, "{comma}{}-{}", range.start, range.end - 1)?;
        }
        match self.ranges.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            1 => f.write_str(" and 1 more range"),
            more => write!(f, " and {more} more ranges"),
        }
    }
}

impl Outcome {
    /// Notes a failure.
    pub fn fail(&mut self, failure: Failure) {
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(failure);
        } else {
            self.more_failures += 1;
        }
    }

    /// Whether nothing was brought, and nothing is known that could have been.
    pub fn is_empty(&self) -> bool {
        self.files + self.directories == 0 && self.is_whole()
    }

    /// Whether all was brought that the volume is known to have had.
    pub fn is_whole(&self) -> bool {
        self.failed() == 0 && self.unmet + self.unmet_unread + self.gone == 0
    }

    /// How many files and directories were not brought, or not whole, each of them once.
    pub fn failed(&self) -> u64 {
        let paths: HashSet<&[u8]> = self.failures.iter().map(|failure| &failure.path[..]).collect();
        paths.len() as u64 + self.more_failures
    }

    /// The same without what is told of the volume as a whole.
    pub fn failed_of_files(&self) -> u64 {
        let is_of_volume = |failure: &&Failure| failure.ino.is_none() && failure.path == b"/";
        let of_volume = self.failures.iter().filter(is_of_volume).count();
        let of_root = self.failures.iter().any(|failure| !is_of_volume(&failure) && failure.path == b"/");
        self.failed() - u64::from(of_volume > 0 && !of_root)
    }

    /// How many files and directories were brought whole.
    pub fn whole(&self) -> u64 {
        (self.files + self.directories).saturating_sub(self.flawed)
    }

    /// How often something was told.
    pub(crate) fn told(&self) -> u64 {
        self.failures.len() as u64 + self.more_failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_in_the_order_of_the_file() {
        let mut lost = Lost::default();
        [20..30, 0..5, 10..20, 40..50, 5..10].into_iter().for_each(|range| lost.add(range));
        assert_eq!((&lost.ranges[..], lost.bytes), (&[0..30, 40..50][..], 40));
        lost.add(30..40);
        assert_eq!((lost.to_string(), lost.is_known()), ("bytes 0-49".to_owned(), true));
    }

    #[test]
    fn ranges_that_touch_are_one_and_few_are_shown() {
        let mut lost = Lost::default();
        for start in [0, 4096, 12288] {
            lost.add(start..start + 4096);
        }
        assert_eq!(lost.to_string(), "bytes 0-8191, 12288-16383");
        (10..20).for_each(|i| lost.add(i * 10_000..i * 10_000 + 1));
        assert!(lost.to_string().ends_with("150000-150000 and 4 more ranges"), "{lost}");
        assert_eq!(lost.bytes, 3 * 4096 + 10);
    }
}
