//! Whether a codec was worth its time lately, for pages that are alike.
//!
//! Where a codec was tried in vain a few times on pages of a kind, it rests for some of them: numbers change in place,
//! texts move, pictures do not shrink. So does a glance that only finds what does not shrink.

/// Pages that are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PageClass(u8);

impl PageClass {
    /// Kinds there are.
    const COUNT: usize = 16;
    /// No page of which the codec could save anything.
    pub(crate) const NONE: PageClass = PageClass(0);
    /// Pages of which it could save more than is counted.
    pub(crate) const LARGE: PageClass = PageClass(Self::COUNT as u8 - 1);

    /// By the log2 of the bytes that can be saved at most.
    pub(crate) fn of(bytes: usize) -> Self {
        bytes.checked_ilog2().map_or(Self::NONE, |log| PageClass((log as u8 + 1).min(Self::LARGE.0 - 1)))
    }
}

/// What one codec saved lately, for each kind of page. After `PATIENCE` tries in vain it rests for `REST` pages of the
/// kind, and has `MORE` tries then.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Backoff<const PATIENCE: u8, const REST: u8, const MORE: u8> {
    /// Tries in vain; from `PATIENCE` on the pages that were let pass are counted too.
    misses: [u8; PageClass::COUNT],
}

impl<const PATIENCE: u8, const REST: u8, const MORE: u8> Backoff<PATIENCE, REST, MORE> {
    /// Whether pages of the kind are let pass.
    pub(crate) fn is_backing_off(&self, kind: PageClass) -> bool {
        kind == PageClass::NONE || self.misses[usize::from(kind.0)] >= PATIENCE
    }

    /// Whether a page of the kind is to be tried; counts it if not.
    pub(crate) fn should_try(&mut self, kind: PageClass) -> bool {
        if !self.is_backing_off(kind) {
            return true;
        }
        let misses = &mut self.misses[usize::from(kind.0)];
        *misses += 1;
        if *misses == PATIENCE + REST {
            *misses = PATIENCE - MORE;
        }
        false
    }

    /// Counts a try.
    pub(crate) fn learn(&mut self, kind: PageClass, saved: bool) {
        let misses = &mut self.misses[usize::from(kind.0)];
        *misses = if saved { 0 } else { (*misses + 1).min(PATIENCE) };
    }
}
