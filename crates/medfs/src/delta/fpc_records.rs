//! Records of pages that are compressed by themselves, and what became of them.

use crate::content::record::OwnedRecord;
use medfs_codec::CodecTag;
use medfs_format::compress::Algorithm;
use medfs_format::delta::COMPACT_ROOM;
use std::sync::atomic::AtomicU64;

/// Most compressed pages that share a block.
pub(super) const MOST_SHARING: usize = 5;
/// Largest record of a compressed page: two at least share a block.
pub(super) const RECORD_MAX: usize = COMPACT_ROOM / 2;
/// Slots of the inline area that files keep for marks about pages that are blocks again.
pub(super) const MARKS_SLOTS: usize = 128;

/// The codec whose delta against zeros is the compressed page.
pub(super) fn codec_of(algorithm: Algorithm) -> CodecTag {
    match algorithm {
        Algorithm::Lzo | Algorithm::LzoRle => CodecTag::XorLzo,
        Algorithm::Lz4 => CodecTag::XorLz4,
        Algorithm::Zstd => CodecTag::XorZstd,
    }
}

/// Whether a record may be that of a compressed page: it is where the page has no block.
pub(super) fn may_be_alone(record: &OwnedRecord) -> bool {
    let codecs = [CodecTag::XorLzo, CodecTag::XorLz4, CodecTag::XorZstd];
    record.slices.is_empty() && codecs.iter().any(|&tag| tag as u8 == record.codec)
}

/// What became of compressed pages since the volume was opened.
#[derive(Debug, Default)]
pub(crate) struct FpcCounters {
    pub(super) made: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) freed: AtomicU64,
    pub(super) too_large: AtomicU64,
}
