//! A delta with what it needs to become a page, copied out of where it is kept.

use medfs_format::Ino;
use medfs_format::delta::{NO_DELTA, RawSlice, Record};

/// Records up to this size, in bytes, are good enough not to look for a better base.
pub(crate) const GOOD_ENOUGH: usize = 256;

/// A record copied out of a zone or compact page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OwnedRecord {
    pub(crate) index: u32,
    pub(crate) codec: u8,
    pub(crate) checksum: u32,
    pub(crate) slices: Vec<RawSlice>,
    pub(crate) delta: Vec<u8>,
}

impl OwnedRecord {
    /// A record that says that a page is its block.
    pub(crate) fn tombstone(index: u32) -> OwnedRecord {
        OwnedRecord { index, codec: NO_DELTA, checksum: 0, slices: Vec::new(), delta: Vec::new() }
    }

    pub(crate) fn borrow(&self) -> Record<'_> {
        Record {
            index: self.index,
            codec: self.codec,
            checksum: self.checksum,
            slices: &self.slices,
            delta: &self.delta,
        }
    }

    /// Whether there is a delta, and not the word that there is none.
    pub(crate) fn is_delta(&self) -> bool {
        self.codec != NO_DELTA
    }

    /// Bytes it takes in a zone or compact page.
    pub(crate) fn size(&self) -> usize {
        self.borrow().size()
    }

    /// The pages of other files that its base is made of.
    pub(crate) fn sources(&self) -> Vec<(Ino, u32)> {
        let mut sources: Vec<_> = self.slices.iter().map(|s| (s.ino.get(), s.page.get())).collect();
        sources.dedup();
        sources
    }
}

impl From<&Record<'_>> for OwnedRecord {
    fn from(r: &Record<'_>) -> OwnedRecord {
        OwnedRecord {
            index: r.index,
            codec: r.codec,
            checksum: r.checksum,
            slices: r.slices.to_vec(),
            delta: r.delta.to_vec(),
        }
    }
}

/// The bytes that records take together.
pub(crate) fn total_size(records: &[OwnedRecord]) -> usize {
    records.iter().map(OwnedRecord::size).sum()
}
