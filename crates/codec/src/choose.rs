//! Which codec a page gets: the one that fits its budget at the least cost.
//!
//! Bytes cost more than time here: a few hundred nanoseconds more for a delta stand against the hundreds of
//! microseconds of the block that an overfull delta zone has to write. But time that saves no byte is wasted. So:
//!
//! 1. One look at both pages, then `xor-sparse`, which takes no more time than the look.
//!    Up to [`CHEAP`] bytes it is taken.
//! 2. Its runs say how many bytes `moves` could save at most: a run of up to [`SHORT`](sparse::SHORT) bytes
//!    is not smaller as a moved piece. Where that is something, `moves` is tried too and kept where it is
//!    smaller. Where it was tried in vain a few times on pages like this one, it is tried on every
//!    sixty-fourth only: numbers change in place, texts move.
//! 3. Within a budget of a delta in an inode `dense` is tried where neither fits, and where `moves` did not
//!    fit many times in a row, instead of that; zstd where `dense` misses the budget by an eighth at most.
//!    What a block is worth decides: some 90 us of a card where it is a request of its own, as the lab
//!    counts, so that 3 us for `dense` pay off where one try in thirty fits, and zstd's 10 where one in nine
//!    does. A byte of a delta is worth 22 ns at most: none of the two is tried to make smaller what fits.
//!    A larger budget is a part of a page that several deltas share: there `dense`, and zstd where that does
//!    not come to the size of a delta in an inode, are tried for all that takes more than some hundred bytes,
//!    unless a glance finds the bytes too various to shrink; where neither fits, zstd by how far `moves`
//!    came, and by the page's entropy.
//! 4. Where the budget is a page, the page itself; so what is made is never larger than that.
//!
//! LZ4 is read and not chosen (`cargo bench -p medfs-codec --bench table` has the figures). On pages without a base it
//! would save half to three quarters of zstd's ten microseconds and make a sixth to two thirds more bytes; where a
//! base helps, `moves` or zstd is smaller, or within 2%.

use crate::backoff::{Backoff, PageClass};
use crate::compress::{Lz4, Lzo, Zstd};
use crate::dense::{self, Dense};
use crate::dict::{Lz4Dict, ZstdPrefix};
use crate::diff::Diff;
use crate::moves::{self, Moves};
use crate::multiversion::multiversion;
use crate::sparse::{self, Sparse};
use crate::xor::{self, Xor};
use crate::{CodecError, CodecTag, DeltaCodec, PAGE_SIZE, Page, entropy};

/// Largest `xor-sparse` delta, in bytes, that is taken without a look at others: on SQLite's pages `moves` would make
/// the mean delta about one byte smaller and take three times as long.
pub const CHEAP: usize = 64;
/// Largest `xor-sparse` delta that is made before `moves` is tried.
const FIRST: usize = 256;

/// The result of encoding a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoded {
    /// The codec, to be stored with the delta.
    pub tag: CodecTag,
    /// Bytes of the delta, the tag not included.
    pub len: usize,
}

/// A delta in the memory of the [`Codecs`] that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delta<'a> {
    /// The codec, to be stored with it.
    pub tag: CodecTag,
    /// The stored form.
    pub bytes: &'a [u8],
}

/// Tries in vain after which a codec rests, and how many pages of the kind it lets pass then.
const PATIENCE: u8 = 4;
const REST: u8 = 64;
/// Deltas in an inode that `moves` did not make fit in a row, after which `dense` is tried without it: that
/// takes twice its time.
const MISSES: u8 = 16;
/// Glances in vain after which as many are spared: one costs less than it may save.
const GLANCES: u8 = 16;

/// Part of a delta that another codec saves where it is worth its time: an eighth.
const SAVED: usize = 8;
/// Bytes that are worth the time of zstd in any case.
const SAVED_MIN: usize = 64;
/// Largest budget, in bytes, for which time counts more than a few bytes: that of deltas in an inode (MedFS, section
/// 6.3). A larger one is part of a page that several deltas share.
const INLINE: usize = 256;
/// Largest delta, in bytes, that is taken without a look at `dense` and general compression.
const PACKED: usize = 160;
/// Largest one, in bytes, of which `dense` may make one for an inode.
const DENSE_FROM: usize = 640;
/// Bytes of the page for every four of `dense` below which that gives a page up at half of its room. With
/// eight, one in thirty of the pages that fit is given up, and a block that is written for it takes as long
/// as thirty tries.
const HOPE: usize = 5;
/// Part of the budget by which `dense` may miss it where zstd is tried.
const NEAR: usize = 8;
/// Largest delta by `moves`, in bytes, that is made within larger budgets: zstd is faster then, and smaller.
const MOVES_MAX: usize = 1024;
/// What zstd makes of a delta by `moves`, in eighths, where it does well.
const PACKS: usize = 5;
/// What it makes of a page without a base, in eighths of what LZO makes of it, where it does well.
const PACKS_ALONE: usize = 4;
/// Ratio that LZO is expected to reach, from which on a page may be noise.
const NOISE: u32 = 900;

/// PageClass of a page for `moves`.
fn kind_for_moves(sparse: Option<sparse::Made>) -> PageClass {
    match sparse {
        None => PageClass::LARGE,
        Some(made) if made.len <= CHEAP => PageClass::NONE,
        Some(made) if made.len > FIRST => PageClass::LARGE,
        Some(made) => PageClass::of(made.long),
    }
}

/// Whether a page is no base.
fn is_zero(base: &Page) -> bool {
    base.as_chunks::<64>().0.iter().all(|chunk| chunk == &[0; 64])
}

/// All codecs, and the choice between them. 40 KiB with their scratch memory, and some 130 for zstd's
/// contexts, which are made when they are first needed and used again: one for each thread.
pub struct Codecs {
    moved: Backoff<PATIENCE, REST, 1>,
    moved_fits: Backoff<MISSES, REST, 4>,
    packed: Backoff<PATIENCE, REST, 1>,
    various: Backoff<GLANCES, GLANCES, GLANCES>,
    sparse: Sparse,
    moves: Moves,
    dense: Dense,
    xor_lzo: Xor<Lzo>,
    xor_lz4: Xor<Lz4>,
    xor_zstd: Xor<Zstd>,
    lz4_dict: Lz4Dict,
    zstd_prefix: ZstdPrefix,
    raw: Raw,
    diff: Diff,
    /// The last delta that was made here.
    out: Vec<u8>,
}

impl Default for Codecs {
    fn default() -> Self {
        Codecs {
            moved: Backoff::default(),
            moved_fits: Backoff::default(),
            packed: Backoff::default(),
            various: Backoff::default(),
            sparse: Sparse,
            moves: Moves::default(),
            dense: Dense::default(),
            xor_lzo: xor::lzo(),
            xor_lz4: xor::lz4(),
            xor_zstd: xor::zstd(),
            lz4_dict: Lz4Dict::default(),
            zstd_prefix: ZstdPrefix::default(),
            raw: Raw,
            diff: Diff::default(),
            out: Vec::new(),
        }
    }
}

multiversion! {
    /// [`Codecs::own`].
    fn own(codecs: &mut Codecs, base: &Page, page: &Page, out: &mut [u8]) -> Own = Codecs::own;
}

fn by_sparse(made: sparse::Made) -> Encoded {
    Encoded { tag: CodecTag::XorSparse, len: made.len }
}

/// The better one of `xor-sparse` and `moves`.
#[derive(Debug, Clone, Copy)]
struct Own {
    /// What is in the output; `None` where neither fits.
    made: Option<Encoded>,
    /// Bytes that `zstd-prefix` may take, judged by how far `moves` got; `None` where that was not tried.
    packed: Option<usize>,
    /// The page has no base, as far as that was asked.
    zero: bool,
}

impl Own {
    /// Where `moves` was not tried.
    fn sparse(made: Option<sparse::Made>, zero: bool) -> Own {
        Own { made: made.map(by_sparse), packed: None, zero }
    }
}

/// What became of `dense`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Denser {
    Made(Encoded),
    /// It was too large by little.
    Near,
    Far,
}

impl Codecs {
    /// Writes a delta that rebuilds `page` from `base` to the front of `out`, whose length is the budget in bytes.
    /// `None` where none fits; with a page's room one always does. Equal pages take no byte. Which codec it is also
    /// depends on the pages before.
    ///
    /// With more than 256 bytes of budget it is the smallest delta that is to be had in some microseconds; with less,
    /// time counts too. A page that has no base has one of zeros.
    pub fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<Encoded> {
        let own = own(self, base, page, out);
        match own.made {
            Some(made) if made.len <= PACKED || out.len() <= INLINE => Some(made),
            None if out.len() <= INLINE && own.zero => None,
            None if out.len() <= INLINE => self.inline(base, page, out),
            _ => self.large(own, base, page, out),
        }
    }

    /// A delta for an inode that neither `xor-sparse` nor `moves` makes small enough.
    fn inline(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<Encoded> {
        match self.denser(base, page, out.len(), out) {
            Denser::Made(made) => Some(made),
            Denser::Near => self.zstd(base, page, out),
            Denser::Far => None,
        }
    }

    /// `dense` in at most `most` bytes.
    fn denser(&mut self, base: &Page, page: &Page, most: usize, out: &mut [u8]) -> Denser {
        let room = most + most / NEAR;
        match dense::encode(&mut self.dense, &self.diff, base, page, room, HOPE) {
            Some(len) if len <= most => {
                out[..len].copy_from_slice(self.dense.made(len));
                Denser::Made(Encoded { tag: CodecTag::Dense, len })
            }
            Some(_) => Denser::Near,
            None => Denser::Far,
        }
    }

    fn zstd(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<Encoded> {
        // A base of zeros is no help, and takes time.
        let before = if is_zero(base) { &[] } else { &base[..] };
        let len = self.zstd_prefix.encode_from(before, page, out)?;
        Some(Encoded { tag: CodecTag::ZstdPrefix, len })
    }

    /// [`Codecs::encode`] within `most` bytes, a page's at most, into memory that was used before: no caller
    /// has to clear some of its own for each page.
    pub fn delta(&mut self, base: &Page, page: &Page, most: usize) -> Option<Delta<'_>> {
        self.in_own_memory(most, |codecs, out| codecs.encode(base, page, out))
    }

    /// [`Codecs::encode_with`], likewise.
    pub fn delta_with(&mut self, tag: CodecTag, base: &Page, page: &Page, most: usize) -> Option<Delta<'_>> {
        self.in_own_memory(most, |codecs, out| codecs.encode_with(tag, base, page, out))
    }

    fn in_own_memory(
        &mut self,
        most: usize,
        encode: impl FnOnce(&mut Codecs, &mut [u8]) -> Option<Encoded>,
    ) -> Option<Delta<'_>> {
        let mut out = std::mem::take(&mut self.out);
        out.resize(PAGE_SIZE, 0);
        let encoded = encode(self, &mut out[..most.min(PAGE_SIZE)]);
        self.out = out;
        encoded.map(|Encoded { tag, len }| Delta { tag, bytes: &self.out[..len] })
    }

    /// The smaller one of `xor-sparse` and `moves`, in `out`.
    #[inline(always)]
    fn own(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Own {
        self.diff.look(base, page);
        let first =
            if self.moved.is_backing_off(PageClass::LARGE) { out.len() } else { out.len().min(FIRST) };
        let mut sparse = self.sparse.encode_diff(&self.diff, page, &mut out[..first]);
        let kind = kind_for_moves(sparse);
        if kind == PageClass::NONE {
            return Own::sparse(sparse, false);
        }
        let due = self.moved.should_try(kind);
        let zero = is_zero(base);
        if sparse.is_none() && first < out.len() && (zero || !due) {
            sparse = self.sparse.encode_diff(&self.diff, page, out);
        }
        if zero || (!due && sparse.is_some()) {
            return Own::sparse(sparse, zero);
        }
        let inline = out.len() <= INLINE;
        if inline && sparse.is_none() && !self.moved_fits.should_try(PageClass::LARGE) {
            // Nearly all that it makes fit `dense` makes fit too.
            return Own::sparse(None, false);
        }
        // Room for what is smaller than `xor-sparse`; where that did not fit, for what others might make fit.
        let random = sparse.is_none() && !inline && entropy::looks_random(page);
        let most = if random || out.len() <= MOVES_MAX { out.len() * 3 / 2 } else { MOVES_MAX };
        let room = sparse.map_or(most, |made| most.min(made.len - 1)).min(PAGE_SIZE);
        let moves = moves::encode(&mut self.moves, &self.diff, base, page, room);
        if sparse.is_none() && first < out.len() {
            let room = moves.map_or(out.len(), |len| out.len().min(len));
            sparse = self.sparse.encode_diff(&self.diff, page, &mut out[..room]);
        }
        if inline && sparse.is_none() {
            self.moved_fits.learn(PageClass::LARGE, moves.is_some_and(|len| len <= out.len()));
        }
        let saved = moves.is_some_and(|len| sparse.is_none_or(|made| len + made.len / SAVED <= made.len));
        self.moved.learn(kind, saved);
        let sparse = sparse.map(by_sparse);
        let made = match moves {
            Some(len) if len <= out.len() && sparse.is_none_or(|sparse| len < sparse.len) => {
                out[..len].copy_from_slice(self.moves.made(len));
                Some(Encoded { tag: CodecTag::Moves, len })
            }
            _ => sparse,
        };
        let moves = moves.unwrap_or_else(|| self.moves.expected(room));
        Own { made, packed: Some(if random { moves } else { moves * PACKS / 8 }), zero }
    }

    /// What `dense` or general compression makes of the page where it is likely to be smaller than what is in
    /// `out`, else that; where that fits nothing, any that does.
    fn large(&mut self, own: Own, base: &Page, page: &Page, out: &mut [u8]) -> Option<Encoded> {
        let kind = own.made.map_or(PageClass::LARGE, |made| PageClass::of(made.len));
        if !self.packs(own, kind, page, out) {
            return own.made.or_else(|| self.last(base, page, out));
        }
        if let Some(made) = own.made.filter(|made| made.len <= DENSE_FROM)
            && let Denser::Made(made) = self.denser(base, page, (made.len - 1).min(INLINE), out)
        {
            return Some(made);
        }
        let room = own.made.map_or(out.len(), |made| made.len - 1);
        let packed = self.zstd(base, page, &mut out[..room]);
        let saves = |packed: Encoded| {
            own.made.is_none_or(|made| packed.len + (made.len / SAVED).min(SAVED_MIN) <= made.len)
        };
        self.packed.learn(kind, packed.is_some_and(saves));
        packed.or(own.made).or_else(|| self.last(base, page, out))
    }

    /// Whether `zstd-prefix` is likely to be smaller than what was made, or to fit.
    fn packs(&mut self, own: Own, kind: PageClass, page: &Page, out: &[u8]) -> bool {
        match own.made {
            Some(made) => !self.is_various(kind, &out[..made.len]) && self.packed.should_try(kind),
            None if own.packed.is_some_and(|packed| packed <= out.len()) => true,
            None => match entropy::ratio(page) {
                NOISE.. => self.packed.should_try(kind),
                ratio => PAGE_SIZE * ratio as usize * PACKS_ALONE / 8 <= out.len() * entropy::WHOLE as usize,
            },
        }
    }

    /// Whether a delta is too various to shrink, at a glance or, where all of its kind were lately, without.
    fn is_various(&mut self, kind: PageClass, delta: &[u8]) -> bool {
        if !self.various.should_try(kind) {
            return true;
        }
        let various = entropy::looks_random(delta);
        self.various.learn(kind, !various);
        various
    }

    /// What fits where nothing did: `moves` of more than [`MOVES_MAX`] bytes, and the page itself.
    fn last(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<Encoded> {
        let moves = out.len() > MOVES_MAX && !entropy::looks_random(page) && !is_zero(base);
        let moves = moves.then(|| self.encode_with(CodecTag::Moves, base, page, out)).flatten();
        moves.or_else(|| self.encode_with(CodecTag::Raw, base, page, out))
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

    /// Turns `page`, a copy of `base`, into another page: [`DeltaCodec::patch_copy`] of the codec that `tag` names.
    ///
    /// # Errors
    /// As for [`Codecs::decode`].
    pub fn patch_copy(
        &mut self,
        tag: CodecTag,
        base: &Page,
        page: &mut Page,
        delta: &[u8],
    ) -> Result<(), CodecError> {
        self.codec(tag).patch_copy(base, page, delta)
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
            CodecTag::Dense => &mut self.dense,
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
