//! Ranges of bytes: which of a file are known, and which parts of a call.

use std::collections::BTreeMap;

/// Ranges that neither overlap nor touch, by their begins.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a range to those that are there.
    pub(super) fn cover(&mut self, mut begin: u64, mut end: u64) {
        if begin >= end {
            return;
        }
        while let Some((&from, &to)) = self.0.range(..=end).next_back().filter(|(_, to)| **to >= begin) {
            self.0.remove(&from);
            (begin, end) = (begin.min(from), end.max(to));
        }
        self.0.insert(begin, end);
    }

    /// The parts of a range that no other covers.
    pub(super) fn gaps(&self, begin: u64, end: u64) -> Vec<(u64, u64)> {
        let mut gaps = Vec::new();
        let mut at = begin;
        let first = self.0.range(..=begin).next_back().map_or(begin, |(&from, _)| from);
        for (&from, &to) in self.0.range(first..end) {
            if from > at {
                gaps.push((at, from));
            }
            at = at.max(to);
        }
        if at < end {
            gaps.push((at, end));
        }
        gaps
    }
}

/// Most bytes of one operation.
pub(super) const REQUEST: u64 = 1 << 20;

/// A call in operations of bounded size: offsets from its start, and bytes.
pub(super) fn requests(len: u64) -> impl Iterator<Item = (u64, u64)> {
    let count = len.div_ceil(REQUEST).max(1);
    (0..count).map(move |i| (i * REQUEST, (len - i * REQUEST).min(REQUEST)))
}

/// The first `most` bytes, or as many as there are.
pub(super) fn first(bytes: &[u8], most: u64) -> &[u8] {
    &bytes[..most.min(bytes.len() as u64) as usize]
}

/// The bytes from a place on; none where there are fewer.
pub(super) fn behind(bytes: &[u8], at: u64) -> &[u8] {
    usize::try_from(at).ok().and_then(|at| bytes.get(at..)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_sets_of_bytes(list in prop::collection::vec((0u64..60, 0u64..60), 0..20), ask in (0u64..60, 0u64..60)) {
            let mut ranges = Ranges::default();
            let mut set = [false; 60];
            for (a, b) in list {
                ranges.cover(a.min(b), a.max(b));
                set[a.min(b) as usize..a.max(b) as usize].fill(true);
            }
            let (begin, end) = (ask.0.min(ask.1), ask.0.max(ask.1));
            let mut free = [false; 60];
            for (a, b) in ranges.gaps(begin, end) {
                free[a as usize..b as usize].fill(true);
            }
            for at in 0..60 {
                prop_assert_eq!(free[at], !set[at] && (begin..end).contains(&(at as u64)));
            }
        }
    }
}
