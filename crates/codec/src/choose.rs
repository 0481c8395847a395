//! Which codec a page gets: the one that fits its budget at the least cost.
//!
//! Bytes cost more than time here: a few hundred nanoseconds more for a delta stand against the hundreds of
//! microseconds of the block that an overfull delta zone has to write. But time that saves no byte is wasted. So:
//!
//! 1. One look at both pages, then `xor-sparse`, which takes no more time than the look.
//!    Up to [`CHEAP`] bytes it is taken.
//! 2. Its runs say how many bytes `moves` could save at most: a run of up to [`SHORT`](sparse::SHORT) bytes is not
//!    smaller as a moved piece. Where that is something, `moves` is tried too and kept where it is smaller. Where it was tried in vain a
//!    few times on pages like this one, it is tried on every sixty-fourth only: numbers change in place, texts move.
//! 3. Where neither fits but `moves` comes close, `zstd-prefix`: it alone also shortens the new bytes.
//! 4. Where the budget is a page, the page itself; so what is made is never larger than that.

use crate::compress::{Lz4, Lzo, Zstd};
use crate::dict::{Lz4Dict, ZstdPrefix};
use crate::diff::Diff;
use crate::moves::Moves;
use crate::sparse::{self, Sparse};
use crate::xor::{self, Xor};
use crate::{CodecError, CodecTag, DeltaCodec, PAGE_SIZE, Page};

/// Largest `xor-sparse` delta, in bytes, that is taken without a look at others: on SQLite's pages `moves` would make
/// the mean delta about one byte smaller and take three times as long.
pub const CHEAP: usize = 64;
/// Largest `xor-sparse` delta that is made before `moves` is tried.
const FIRST: usize = 256;

/// What was made of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// The codec, to be stored with the delta.
    pub tag: CodecTag,
    /// Bytes of the delta, the tag not included.
    pub len: usize,
}

/// Part of an `xor-sparse` delta that `moves` saves where it is worth its time: an eighth.
const SAVED: usize = 8;

/// Pages that are alike for `moves`: by the log2 of the bytes it can save at most.
#[derive(Debug, Clone, Copy)]
struct Kind(usize);

impl Kind {
    /// Kinds there are; where nothing can be saved is the first one, where `xor-sparse` is large the last.
    const COUNT: usize = FIRST.ilog2() as usize + 2;
    const LAST: Kind = Kind(Self::COUNT - 1);

    fn of(sparse: Option<sparse::Made>) -> Self {
        match sparse {
            None => Self::LAST,
            Some(made) if made.len <= CHEAP => Kind(0),
            Some(made) if made.len > FIRST => Self::LAST,
            Some(made) => Kind(made.long.checked_ilog2().map_or(0, |log| log as usize + 1)),
        }
    }
}

/// Whether `moves` was worth its time lately, for each kind of page.
#[derive(Debug, Clone, Copy, Default)]
struct Luck {
    /// Tries in vain; from [`PATIENCE`] on the pages that were let pass are counted too.
    vain: [u8; Kind::COUNT],
}

/// Tries in vain after which `moves` rests, and how many pages of the kind it lets pass then.
const PATIENCE: u8 = 4;
const REST: u8 = 64;

impl Luck {
    /// Whether pages of the kind are let pass.
    fn rests(&self, kind: Kind) -> bool {
        kind.0 == 0 || self.vain[kind.0] >= PATIENCE
    }

    /// Whether a page of the kind is to be tried; counts it if not.
    fn is_due(&mut self, kind: Kind) -> bool {
        if !self.rests(kind) {
            return true;
        }
        let vain = &mut self.vain[kind.0];
        *vain += 1;
        if *vain == PATIENCE + REST {
            *vain = PATIENCE - 1;
        }
        false
    }

    fn learn(&mut self, kind: Kind, saved: bool) {
        let vain = &mut self.vain[kind.0];
        *vain = if saved { 0 } else { (*vain + 1).min(PATIENCE) };
    }
}

/// All codecs, and the choice between them. 40 KiB with their scratch memory: one for each thread.
pub struct Codecs {
    luck: Luck,
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
            luck: Luck::default(),
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
    /// `None` where none fits; with a page's room one always does. Equal pages take no byte. Which codec it is also
    /// depends on the pages before.
    pub fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<Encoded> {
        let diff = Diff::new(base, page);
        let first = if self.luck.rests(Kind::LAST) { out.len() } else { out.len().min(FIRST) };
        let mut sparse = self.sparse.encode_diff(&diff, page, &mut out[..first]);
        let kind = Kind::of(sparse);
        let due = self.luck.is_due(kind);
        if sparse.is_none() && !due && first < out.len() {
            sparse = self.sparse.encode_diff(&diff, page, out);
        }
        if let (Some(made), false) = (sparse, due) {
            return Some(Encoded { tag: CodecTag::XorSparse, len: made.len });
        }
        // Room for what is smaller than `xor-sparse`; where that did not fit, for what zstd might make fit.
        let room = sparse.map_or((out.len() * 3 / 2).min(PAGE_SIZE), |made| made.len - 1);
        let moves = self.moves.encode_diff(&diff, base, page, &mut self.scratch[..room]);
        if sparse.is_none() && first < out.len() {
            let room = moves.map_or(out.len(), |len| out.len().min(len));
            sparse = self.sparse.encode_diff(&diff, page, &mut out[..room]);
        }
        self.luck.learn(
            kind,
            moves.is_some_and(|len| sparse.is_none_or(|made| len + made.len / SAVED <= made.len)),
        );
        self.smaller(sparse.map(|made| made.len), moves, base, page, out)
    }

    /// The smaller one of what is in `out` and of what is in the scratch memory.
    fn smaller(
        &mut self,
        sparse: Option<usize>,
        moves: Option<usize>,
        base: &Page,
        page: &Page,
        out: &mut [u8],
    ) -> Option<Encoded> {
        let encoded = match (moves, sparse) {
            (Some(len), _) if len <= out.len() && sparse.is_none_or(|sparse| len < sparse) => {
                out[..len].copy_from_slice(&self.scratch[..len]);
                Some(Encoded { tag: CodecTag::Moves, len })
            }
            (_, Some(len)) => Some(Encoded { tag: CodecTag::XorSparse, len }),
            (Some(_), None) => self.encode_with(CodecTag::ZstdPrefix, base, page, out),
            (None, None) => None,
        };
        encoded.or_else(|| self.encode_with(CodecTag::Raw, base, page, out))
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
