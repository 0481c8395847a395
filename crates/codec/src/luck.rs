//! Whether a codec was worth its time lately, for pages that are alike.
//!
//! Where a codec was tried in vain a few times on pages of a kind, it rests for some of them: numbers change in place,
//! texts move, pictures do not shrink. So does a glance that only finds what does not shrink.

/// Pages that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind(u8);

impl Kind {
    /// Kinds there are.
    const COUNT: usize = 16;
    /// No page of which the codec could save anything.
    pub(crate) const NONE: Kind = Kind(0);
    /// Pages of which it could save more than is counted.
    pub(crate) const LARGE: Kind = Kind(Self::COUNT as u8 - 1);

    /// By the log2 of the bytes that can be saved at most.
    pub(crate) fn of(bytes: usize) -> Self {
        bytes.checked_ilog2().map_or(Self::NONE, |log| Kind((log as u8 + 1).min(Self::LARGE.0 - 1)))
    }
}

/// What one codec saved lately, for each kind of page. After `PATIENCE` tries in vain it rests for `REST` pages of the
/// kind, and has `MORE` tries then.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Luck<const PATIENCE: u8, const REST: u8, const MORE: u8> {
    /// Tries in vain; from `PATIENCE` on the pages that were let pass are counted too.
    vain: [u8; Kind::COUNT],
}

impl<const PATIENCE: u8, const REST: u8, const MORE: u8> Luck<PATIENCE, REST, MORE> {
    /// Whether pages of the kind are let pass.
    pub(crate) fn rests(&self, kind: Kind) -> bool {
        kind == Kind::NONE || self.vain[usize::from(kind.0)] >= PATIENCE
    }

    /// Whether a page of the kind is to be tried; counts it if not.
    pub(crate) fn is_due(&mut self, kind: Kind) -> bool {
        if !self.rests(kind) {
            return true;
        }
        let vain = &mut self.vain[usize::from(kind.0)];
        *vain += 1;
        if *vain == PATIENCE + REST {
            *vain = PATIENCE - MORE;
        }
        false
    }

    /// Counts a try.
    pub(crate) fn learn(&mut self, kind: Kind, saved: bool) {
        let vain = &mut self.vain[usize::from(kind.0)];
        *vain = if saved { 0 } else { (*vain + 1).min(PATIENCE) };
    }
}
