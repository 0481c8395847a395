//! Whether a file should have had sections of its own, once it is known how it ended.
//!
//! The paper labels by "fragmentation degree, I/O behaviors and file type" and gives no rule. Here: a file
//! that was written more than 100 times (its *written-many*) and ended in small pieces is to be reserved, and
//! one that did neither is not. Where the two disagree the type decides: databases and write-ahead logs are
//! to be reserved. A rollback journal is not, as it is cut off before its homes are free again.

use medfs_format::ars::{Class, Feature, Values};

/// Writes up to which a file is not written many times (ARS, section III).
pub const FEW_WRITES: u32 = 100;
/// Pages below which a piece is small: 64 KiB, below which the paper finds fragments serious (Fig. 2).
pub const SMALL_PIECE: u64 = 16;

/// Whether a file of so many pages in so many extents is in small pieces.
pub fn fragments(pages: u64, extents: u64) -> bool {
    extents > 1 && pages < extents.saturating_mul(SMALL_PIECE)
}

/// Labels a file, by its features at its end and whether it was ever in small pieces.
pub fn label(features: &Values, fragmented: bool) -> Class {
    let written_many = features[Feature::Writes as usize] > FEW_WRITES;
    let is_database_or_log = matches!(features[Feature::Kind as usize], 1 | 3);
    match (written_many, fragmented) {
        (true, true) => Class::Reserve,
        (false, false) => Class::Log,
        _ if is_database_or_log => Class::Reserve,
        _ => Class::Log,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn type_decides_only_where_writes_and_pieces_disagree() {
        let of = |writes: u32, kind: u32, fragmented: bool| {
            let mut features = Values::default();
            (features[Feature::Writes as usize], features[Feature::Kind as usize]) = (writes, kind);
            label(&features, fragmented)
        };
        assert_eq!(
            [of(101, 0, true), of(100, 0, true), of(101, 0, false)],
            [Class::Reserve, Class::Log, Class::Log]
        );
        assert_eq!(
            [of(100, 1, true), of(101, 3, false), of(100, 1, false)],
            [Class::Reserve, Class::Reserve, Class::Log]
        );
        assert_eq!([of(101, 2, true), of(101, 2, false)], [Class::Reserve, Class::Log]);
    }

    #[test]
    fn pieces_are_small_below_64_kib() {
        assert!(fragments(31, 2) && !fragments(32, 2) && !fragments(3, 1) && !fragments(0, 0));
    }
}
