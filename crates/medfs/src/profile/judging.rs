//! When a file is judged, and what a judgement makes of where its pages belong.
//!
//! Invariant: a change takes two judgements in a row. The second one comes at twice as many writes.
//! Locks: none.

use medfs_format::ars::Class;

/// Writes at which a file is judged by its profile for the first time; then at four times as many, and so on.
pub(crate) const FIRST_JUDGED: u32 = 16;

/// Whether a file is judged by its profile at its write of this number, whatever was judged before.
pub fn is_judged_at(writes: u32) -> bool {
    writes >= FIRST_JUDGED && writes.is_power_of_two() && writes.trailing_zeros().is_multiple_of(2)
}

/// The same of one about which the last two judgements differ: it is judged again after half of the time.
pub(super) fn is_judged_again_at(writes: u32) -> bool {
    writes > FIRST_JUDGED && writes.is_power_of_two()
}

/// What was judged of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Standing {
    /// Where its pages belong.
    pub class: Class,
    /// Its pages are written as a whole, as deltas of them do not pay.
    pub whole: bool,
    /// The last judgement said that they belong elsewhere: a second one in a row makes it so.
    pub doubted: bool,
    /// The same of whether they are written as a whole.
    pub whole_doubted: bool,
}

impl Standing {
    /// As a judgement leaves it: a change of either takes two in a row.
    pub fn judged(self, class: Class, whole: bool) -> Standing {
        let (moves, turns) = (class != self.class, whole != self.whole);
        Standing {
            class: if moves && self.doubted { class } else { self.class },
            doubted: moves && !self.doubted,
            whole: self.whole != (turns && self.whole_doubted),
            whole_doubted: turns && !self.whole_doubted,
        }
    }

    /// Whether the last judgement waits for another one.
    pub(super) fn is_in_doubt(self) -> bool {
        self.doubted || self.whole_doubted
    }
}
