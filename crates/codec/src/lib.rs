//! Deltas between two versions of a page, and compression of pages and clusters.
//!
//! A delta says how a page of 4096 bytes differs from another one, its base. [`Codecs`] makes the delta that
//! fits a budget at the least cost and reads every delta that was ever written; each kind of delta is a
//! [`DeltaCodec`] of its own, known on disk by its [`CodecTag`]. Nothing here knows files or devices.
//!
//! [`compress`] has the compressors themselves, for whole pages and clusters, and [`entropy`] foretells what they make
//! of a page.
//!
//! A delta decodes with a wrong base as well, into a wrong page: the caller stores with it the
//! [`page_checksum`] of the page that it rebuilds, and compares.
//!
//! Bytes of a delta may come from a damaged disk. Decoding them is bounded in time and memory, never panics,
//! and writes nothing but the page; what it writes there before an error means nothing.

mod backoff;
pub mod choose;
pub mod compress;
mod copy;
pub mod dense;
pub mod dict;
pub mod diff;
mod index;
pub mod lzo;
pub mod moves;
mod multiversion;
pub mod rebuild;
pub mod sketch;
pub mod sparse;
pub mod xor;

pub use choose::{Codecs, Delta, Encoded};
pub use medfs_entropy as entropy;
pub use rebuild::RebuildError;
pub use sketch::Sketch;

use thiserror::Error;

/// Bytes of a page.
pub const PAGE_SIZE: usize = 4096;

/// A page: the unit of deltas, one block of the file system.
pub type Page = [u8; PAGE_SIZE];

/// Which codec made a delta: the byte that is stored with it. Zero is none, so that zeroed bytes are no delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CodecTag {
    /// The page itself.
    Raw = 1,
    /// Changed runs at their places: [`sparse`].
    XorSparse = 2,
    /// Pieces of the base, moved, and new bytes: [`moves`].
    Moves = 3,
    /// XOR with the base, compressed by LZO (MedFS, section 4.1).
    XorLzo = 4,
    /// XOR with the base, compressed by LZ4.
    XorLz4 = 5,
    /// XOR with the base, compressed by zstd.
    XorZstd = 6,
    /// LZ4 with the base as dictionary.
    Lz4Dict = 7,
    /// zstd with the base as prefix.
    ZstdPrefix = 8,
    /// Pieces of base and page, and new bytes, in few bytes: [`dense`].
    Dense = 9,
}

impl CodecTag {
    /// All tags, in the order of their bytes.
    pub const ALL: [CodecTag; 9] = [
        CodecTag::Raw,
        CodecTag::XorSparse,
        CodecTag::Moves,
        CodecTag::XorLzo,
        CodecTag::XorLz4,
        CodecTag::XorZstd,
        CodecTag::Lz4Dict,
        CodecTag::ZstdPrefix,
        CodecTag::Dense,
    ];

    /// The codec's name, for messages and tables.
    pub fn name(self) -> &'static str {
        match self {
            CodecTag::Raw => "raw",
            CodecTag::XorSparse => "xor-sparse",
            CodecTag::Moves => "moves",
            CodecTag::XorLzo => "xor-lzo",
            CodecTag::XorLz4 => "xor-lz4",
            CodecTag::XorZstd => "xor-zstd",
            CodecTag::Lz4Dict => "lz4-dict",
            CodecTag::ZstdPrefix => "zstd-prefix",
            CodecTag::Dense => "dense",
        }
    }
}

impl TryFrom<u8> for CodecTag {
    type Error = CodecError;

    fn try_from(byte: u8) -> Result<Self, CodecError> {
        CodecTag::ALL.into_iter().find(|tag| *tag as u8 == byte).ok_or(CodecError::UnknownTag(byte))
    }
}

/// Why bytes are not a delta, or not compressed data.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum CodecError {
    /// No codec has this tag.
    #[error("unknown codec tag {0}")]
    UnknownTag(u8),
    /// They end in the middle of an instruction.
    #[error("{} data is truncated", .0.name())]
    Truncated(CodecTag),
    /// They write or read beyond the end of a page.
    #[error("{} data reaches beyond its page", .0.name())]
    OutOfRange(CodecTag),
    /// They are of the wrong size, or what a library refuses.
    #[error("{} data is damaged", .0.name())]
    Damaged(CodecTag),
}

/// Makes and reads one kind of delta. A codec owns its scratch memory: one for each thread.
pub trait DeltaCodec {
    /// The tag that is stored with its deltas.
    fn tag(&self) -> CodecTag;

    /// Writes what rebuilds `page` from `base` to the front of `out` and returns its size in bytes. `None` where that
    /// is more than `out` holds, or more than a page; `out` holds nothing of worth then.
    ///
    /// The result depends on the two pages and the size of `out` alone.
    fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<usize>;

    /// Rebuilds into `page` what `delta` was made of. `delta` is all of it, no byte more.
    ///
    /// # Errors
    /// The bytes are no delta of this codec. A wrong base is not noticed: compare the [`page_checksum`].
    fn decode(&mut self, base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError>;

    /// Turns `page`, a copy of `base`, into what `delta` was made of. What makes the copy, memory for a page
    /// that is shared say, writes the page; this writes what changed.
    ///
    /// # Errors
    /// As for [`DeltaCodec::decode`].
    fn patch_copy(&mut self, base: &Page, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
        self.decode(base, delta, page)
    }

    /// Turns the base that `page` holds, just read from a device say, into what `delta` was made of.
    ///
    /// # Errors
    /// As for [`DeltaCodec::decode`].
    fn patch(&mut self, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
        let base = *page;
        self.decode(&base, delta, page)
    }
}

/// The checksum that is stored with a delta: CRC-32 (zlib's) of the page it rebuilds.
pub fn page_checksum(page: &Page) -> u32 {
    crc32fast::hash(page)
}

/// For tests: bytes that do not repeat.
#[cfg(test)]
fn noise() -> Page {
    let mix = |x: u64| (x ^ x >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    std::array::from_fn(|i| (mix(mix((i as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15))) >> 40) as u8)
}
