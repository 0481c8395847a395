//! Ranges of bytes, each with a mark.
//!
//! Invariant: no two overlap, and neighbours that touch differ in their marks.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges by where they begin: end and mark.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Ranges(BTreeMap<u64, (u64, char)>);

impl Ranges {
    /// All of them, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Range<u64>, char)> + '_ {
        self.0.iter().map(|(&start, &(end, mark))| (start..end, mark))
    }

    /// Where the last one ends.
    pub(crate) fn end(&self) -> u64 {
        self.0.last_key_value().map_or(0, |(_, (end, _))| *end)
    }

    /// Those that have a byte of a range.
    pub(crate) fn overlapping(&self, bytes: Range<u64>) -> impl Iterator<Item = (Range<u64>, char)> + '_ {
        let first = self.0.range(..=bytes.start).next_back().map_or(bytes.start, |(start, _)| *start);
        let all = self.0.range(first..bytes.end).map(|(start, (end, mark))| (*start..*end, *mark));
        all.filter(move |(range, _)| range.end > bytes.start)
    }

    /// Whether every byte of a range is in one.
    pub(crate) fn covers(&self, bytes: Range<u64>) -> bool {
        let mut at = bytes.start;
        for (range, _) in self.overlapping(bytes.clone()) {
            if range.start > at {
                return false;
            }
            at = range.end;
        }
        at >= bytes.end
    }

    /// Takes a range out.
    pub(crate) fn clear(&mut self, bytes: Range<u64>) {
        let old: Vec<_> = self.overlapping(bytes.clone()).collect();
        for (range, mark) in old {
            self.0.remove(&range.start);
            if range.start < bytes.start {
                self.0.insert(range.start, (bytes.start, mark));
            }
            if range.end > bytes.end {
                self.0.insert(bytes.end, (range.end, mark));
            }
        }
    }

    /// Marks a range.
    pub(crate) fn set(&mut self, bytes: Range<u64>, mark: char) {
        if bytes.is_empty() {
            return;
        }
        self.clear(bytes.clone());
        let Range { mut start, mut end } = bytes;
        if let Some((&before, &(until, other))) = self.0.range(..start).next_back()
            && (until, other) == (start, mark)
        {
            start = before;
        }
        if let Some(&(until, other)) = self.0.get(&end)
            && other == mark
        {
            self.0.remove(&end);
            end = until;
        }
        self.0.insert(start, (end, mark));
    }
}
