//! Which codec a page gets: the one that fits its budget at the least cost.
//!
//! Bytes cost more than time here: a few hundred nanoseconds more for a delta stand against the hundreds of
//! microseconds of the block that an overfull delta zone has to write. So the order is:
//!
//! 1. One look at both pages, then `xor-sparse`, which takes no more time than the look. Up to [`CHEAP`] bytes
//!    nothing is smaller, for a moved piece takes four.
//! 2. Else `moves`, kept where it is smaller.
//! 3. Where neither fits but `moves` comes close, `zstd-prefix`: it alone also shortens the new bytes.
//! 4. Where the budget is a page, the page itself; so what is made is never larger than that.

use crate::compress::{Lz4, Lzo, Zstd};
use crate::dict::{Lz4Dict, ZstdPrefix};
use crate::diff::Diff;
use crate::moves::Moves;
use crate::sparse::Sparse;
use crate::xor::{self, Xor};
use crate::{CodecError, CodecTag, DeltaCodec, PAGE_SIZE, Page};

/// Largest `xor-sparse` delta, in bytes, that is taken without a look at others.
pub const CHEAP: usize = 16;

/// What was made of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// The codec, to be stored with the delta.
    pub tag: CodecTag,
    /// Bytes of the delta, the tag not included.
    pub len: usize,
}

/// All codecs, and the choice between them. About 20 KiB of scratch memory: one for each thread.
pub struct Codecs {
    sparse: Sparse,
    moves: Moves,
    xor_lzo: Xor<Lzo>,
    xor_lz4: Xor<Lz4>,
    xor_zstd: Xor<Zstd>,
    lz4_dict: Lz4Dict,
    zstd_prefix: ZstdPrefix,
    raw: Raw,
    scratch: Page,
}

impl Default for Codecs {
    fn default() -> Self {
        Codecs {
            sparse: Sparse::default(),
            moves: Moves::default(),
            xor_lzo: xor::lzo(),
            xor_lz4: xor::lz4(),
            xor_zstd: xor::zstd(),
            lz4_dict: Lz4Dict::default(),
            zstd_prefix: ZstdPrefix::default(),
            raw: Raw,
            scratch: [0; PAGE_SIZE],
        }
    }
}

impl Codecs {
    /// Writes a delta that rebuilds `page` from `base` to the front of `out`, whose length is the budget in bytes.
    /// `None` where none fits; with a page's room one always does. Equal pages take no byte.
    pub fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<Encoded> {
        let diff = Diff::new(base, page);
        let sparse = self.sparse.encode_diff(&diff, page, out);
        if let Some(len) = sparse.filter(|len| *len <= CHEAP) {
            return Some(Encoded { tag: CodecTag::XorSparse, len });
        }
        // Room for what is smaller than `xor-sparse`; where that did not fit, for what zstd might make fit.
        let room = sparse.map_or((out.len() * 3 / 2).min(PAGE_SIZE), |len| len - 1);
        match (self.moves.encode_diff(&diff, base, page, &mut self.scratch[..room]), sparse) {
            (Some(len), _) if len <= out.len() => {
                out[..len].copy_from_slice(&self.scratch[..len]);
                Some(Encoded { tag: CodecTag::Moves, len })
            }
            (_, Some(len)) => Some(Encoded { tag: CodecTag::XorSparse, len }),
            (Some(_), None) => self.encode_with(CodecTag::ZstdPrefix, base, page, out),
            (None, None) => None,
        }
        .or_else(|| self.encode_with(CodecTag::Raw, base, page, out))
    }

    /// A delta by one codec: [`DeltaCodec::encode`].
    pub fn encode_with(
        &mut self,
        tag: CodecTag,
        base: &Page,
        page: &Page,
        out: &mut [u8],
    ) -> Option<Encoded> {
        let len = self.codec(tag).encode(base, page, out)?;
        Some(Encoded { tag, len })
    }

    /// Rebuilds a page: [`DeltaCodec::decode`] of the codec that `tag` names.
    ///
    /// # Errors
    /// `delta` is none of that codec's. A wrong base is not noticed: compare the [`crate::page_checksum`].
    pub fn decode(
        &mut self,
        tag: CodecTag,
        base: &Page,
        delta: &[u8],
        page: &mut Page,
    ) -> Result<(), CodecError> {
        self.codec(tag).decode(base, delta, page)
    }

    /// Turns the base that `page` holds into another page: [`DeltaCodec::patch`] of the codec that `tag` names.
    ///
    /// # Errors
    /// As for [`Codecs::decode`].
    pub fn patch(&mut self, tag: CodecTag, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
        self.codec(tag).patch(page, delta)
    }

    /// The codec of a tag.
    pub fn codec(&mut self, tag: CodecTag) -> &mut dyn DeltaCodec {
        match tag {
            CodecTag::Raw => &mut self.raw,
            CodecTag::XorSparse => &mut self.sparse,
            CodecTag::Moves => &mut self.moves,
            CodecTag::XorLzo => &mut self.xor_lzo,
            CodecTag::XorLz4 => &mut self.xor_lz4,
            CodecTag::XorZstd => &mut self.xor_zstd,
            CodecTag::Lz4Dict => &mut self.lz4_dict,
            CodecTag::ZstdPrefix => &mut self.zstd_prefix,
        }
    }
}

/// The page itself, for what nothing makes smaller.
#[derive(Debug, Clone, Copy, Default)]
struct Raw;

impl DeltaCodec for Raw {
    fn tag(&self) -> CodecTag {
        CodecTag::Raw
    }

    fn encode(&mut self, _: &Page, page: &Page, out: &mut [u8]) -> Option<usize> {
        out.get_mut(..PAGE_SIZE)?.copy_from_slice(page);
        Some(PAGE_SIZE)
    }

    fn decode(&mut self, _: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
        *page = delta.try_into().map_err(|_| CodecError::Damaged(CodecTag::Raw))?;
        Ok(())
    }
}
