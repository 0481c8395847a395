//! Files of which a compact page cannot be read: which of their pages are still known, and how others become
//! known again.
//!
//! Only the compact page knows which pages it has records of, so every page that the zone does not speak of
//! is an error to its reader. A page that is written as a whole needs nothing of what it was: it goes to a
//! new block, and a record in the zone says that it has no delta, which masks whatever the compact page says
//! of it.
//! Locks: as in [`super`].

use super::zone::Zone;
use crate::content::record::OwnedRecord;
use crate::error::{Error, Result};
use std::ops::Range;

/// Most pages that are masked in one go: the zone has no room for many more.
const MOST_MASKED: u64 = 64;

impl Zone<'_> {
    /// Whether the zone speaks of every page of a range that the file has, so that compact pages say nothing
    /// that counts.
    pub(super) fn knows(&self, pages: &Range<u64>) -> Result<bool> {
        let pages = pages.start..pages.end.min(self.inode.pages());
        let len = pages.end.saturating_sub(pages.start);
        let known = self
            .with_records(|records| records.iter().filter(|r| pages.contains(&u64::from(r.index))).count())?;
        Ok(known as u64 == len)
    }

    /// Says of pages in the zone that they have no delta; `error`, which tells why nothing else does, where
    /// it has no room for that.
    pub(super) fn mask(&self, pages: &Range<u64>, error: Error) -> Result<()> {
        let few = pages.end.saturating_sub(pages.start) <= MOST_MASKED && u32::try_from(pages.end).is_ok();
        if !few {
            return Err(error);
        }
        let mut records = self.records()?;
        records.retain(|r| !pages.contains(&u64::from(r.index)));
        records.extend(pages.clone().map(|page| OwnedRecord::tombstone(page as u32)));
        if self.store(&records) { Ok(()) } else { Err(error) }
    }
}
