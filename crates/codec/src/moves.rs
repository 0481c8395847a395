//! `moves`: pieces of the base, wherever they lie in it, and new bytes.
//!
//! SQLite moves cells inside a page when a row grows, and a text file moves all that follows a longer word: there
//! XOR finds hardly a byte unchanged, yet nearly all of them are in the base. A delta is a list of steps that fill the
//! page from its first byte to its last:
//!
//! ```text
//! u8      kind << 6 | n   n below 48: n + 1 bytes; else 49 + (n - 48) * 256 + the next byte
//! u8      n from 48 on:   the rest of the length
//! u16     kind COPY:      where in the base the bytes are
//! bytes   kind ADD:       the bytes
//! ```
//!
//! `ADD` takes bytes from the delta, `KEEP` those of the base at the same place, `COPY` those of the base at another
//! one, `REP0` those of the base as far from their place as the last `COPY` took its own. What follows the last step is
//! the same.
//!
//! Moved pieces are found by a hash of the base's bytes at every eighth place, in the changed runs only. To index the
//! whole base takes longer than all else, and pieces mostly come from nearby: at first only what lies around a run
//! is indexed, the rest where nothing is found there.

use crate::copy::{WIDE, copy, copy_page, leave, restore};
use crate::diff::Diff;
use crate::index::{Index, KEY};
use crate::multiversion::multiversion;
use crate::{CodecError, CodecTag, DeltaCodec, PAGE_SIZE, Page};

const TAG: CodecTag = CodecTag::Moves;
const BEYOND: CodecError = CodecError::OutOfRange(TAG);

/// The kind of step that takes bytes from the delta.
pub const ADD: usize = 0;
/// The kind of step that takes those of the base at the same place.
pub const KEEP: usize = 1;
/// The kind of step that goes on with the last `COPY`.
pub const REP0: usize = 2;
/// The kind of step that takes those of the base at another place.
pub const COPY: usize = 3;
/// First value of the length field that says another byte follows.
pub const LONG: usize = 48;
/// Shortest length that has one.
const LONG_MIN: usize = LONG + 1;

/// Places without a find after which every second is tried, then every third, and so on.
const PATIENCE: usize = 64;
/// Most bytes by which a piece is made longer at its front.
const BACK: usize = 256;
/// Shortest piece worth an `REP0` step, and a `KEEP` step between new bytes.
const ON_MIN: usize = 4;
const SAME_MIN: usize = 3;

/// Bytes before and behind the start of a run that are looked at first.
const NEAR: usize = 256;
/// Bytes of a run without a find after which the whole base is looked at.
const PUZZLED: usize = 8;
/// Shortest run that is looked up: shorter ones take no more as they are.
const RUN_MIN: usize = 6;

/// The codec: scratch memory.
#[derive(Debug, Clone)]
pub struct Moves {
    index: Index,
    /// Bytes of the page that the last steps filled.
    done: usize,
    /// The base of a page that is patched in place.
    base: Page,
    /// The last steps.
    out: Out,
}

impl Default for Moves {
    fn default() -> Self {
        Moves { index: Index::default(), done: 0, base: [0; PAGE_SIZE], out: [0; _] }
    }
}

/// Room for a delta, and for what is written beyond the last step's end to write all steps alike.
type Out = [u8; PAGE_SIZE + 2 * WIDE];

multiversion! {
    /// [`Moves::encode_diff`].
    pub(crate) fn encode(moves: &mut Moves, diff: &Diff, base: &Page, page: &Page, room: usize) -> Option<usize>
        = Moves::encode_diff;
}

impl DeltaCodec for Moves {
    fn tag(&self) -> CodecTag {
        TAG
    }

    fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<usize> {
        let len = encode(self, &Diff::new(base, page), base, page, out.len())?;
        out[..len].copy_from_slice(self.made(len));
        Some(len)
    }

    fn decode(&mut self, base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
        decode(base, delta, page)
    }

    fn patch_copy(&mut self, base: &Page, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
        patch_copy(base, delta, page)
    }

    fn patch(&mut self, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
        patch(&mut self.base, page, delta)
    }
}

multiversion! {
    /// [`DeltaCodec::decode`].
    fn decode(base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> = apply::<true>;
}

multiversion! {
    /// [`DeltaCodec::patch_copy`].
    fn patch_copy(base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> = apply::<false>;
}

multiversion! {
    /// [`DeltaCodec::patch`].
    fn patch(base: &mut Page, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> = apply_in_place;
}

#[inline(always)]
fn apply_in_place(base: &mut Page, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
    copy_page(page, base);
    apply::<false>(base, delta, page)
}

/// A piece of the page that is in the base.
#[derive(Debug, Clone, Copy)]
struct Piece {
    /// Where in the page.
    at: usize,
    /// Where in the base.
    source: usize,
    len: usize,
}

impl Moves {
    /// Makes a delta of at most `room` bytes after the first look, and returns its size: it is [`Moves::made`] then.
    #[inline(always)]
    pub(crate) fn encode_diff(
        &mut self,
        diff: &Diff,
        base: &Page,
        page: &Page,
        room: usize,
    ) -> Option<usize> {
        self.index.clear();
        let room = room.min(PAGE_SIZE);
        let mut steps = Steps { page, out: &mut self.out, room, at: 0, done: 0, shift: 0, misses: 0 };
        let mut new = diff.next_changed(0);
        while new < PAGE_SIZE {
            let fits = run(&mut self.index, diff, base, &mut steps, new);
            self.done = steps.done;
            fits?;
            new = diff.next_changed(steps.done);
        }
        Some(steps.at)
    }

    /// The delta of `len` bytes that was made last.
    pub(crate) fn made(&self, len: usize) -> &[u8] {
        &self.out[..len]
    }

    /// Bytes that the delta would have taken that did not fit `room`: as many for the rest as for what was done.
    pub(crate) fn expected(&self, room: usize) -> usize {
        room * PAGE_SIZE / self.done.max(1)
    }
}

/// Steps for what is changed from `new` on, up to the end of the next piece of the base or of the changed run.
#[inline(always)]
fn run(index: &mut Index, diff: &Diff, base: &Page, steps: &mut Steps, new: usize) -> Option<()> {
    if let Some(piece) = go_on(base, steps, new) {
        return steps.piece(new, piece);
    }
    let len = diff.run(new);
    if len < RUN_MIN {
        for at in new + 1..new + len {
            if let Some(piece) = go_on(base, steps, at) {
                return steps.piece(new, piece);
            }
        }
        return steps.new_bytes(new, new + len);
    }
    index.cover(base, new.saturating_sub(NEAR), new + NEAR);
    let mut at = new;
    loop {
        if let Some(source) = index.find(base, steps.page, at) {
            steps.misses = 0;
            return steps.piece(new, whole(base, steps.page, new, at, source));
        }
        // What is found from here on begins [`BACK`] bytes before at most.
        if at - new > steps.room - steps.at + BACK {
            steps.done = at;
            return None;
        }
        steps.misses += 1;
        at += 1 + steps.misses / PATIENCE;
        if diff.next_changed(at) >= at + SAME_MIN || at >= PAGE_SIZE {
            return steps.new_bytes(new, at.min(PAGE_SIZE));
        }
        if let Some(piece) = go_on(base, steps, at) {
            return steps.piece(new, piece);
        }
        if at >= new + PUZZLED {
            index.cover(base, 0, PAGE_SIZE);
        }
    }
}

/// All of the piece at `at` of the page and `source` of the base, which begins at `from` or later.
#[inline(always)]
fn whole(base: &Page, page: &Page, from: usize, at: usize, source: usize) -> Piece {
    let len = KEY + common(base, source + KEY, page, at + KEY);
    let before = if from < at { common_before(base, source, page, at).min(at - from) } else { 0 };
    Piece { at: at - before, source: source - before, len: len + before }
}

/// The piece of the base that is at `at` of the page and as far from its place as the last one.
#[inline(always)]
fn go_on(base: &Page, steps: &Steps, at: usize) -> Option<Piece> {
    let source = at.wrapping_add(steps.shift);
    if steps.shift == 0 || source >= PAGE_SIZE || base[source] != steps.page[at] {
        return None;
    }
    let len = common(base, source, steps.page, at);
    (len >= ON_MIN).then_some(Piece { at, source, len })
}

/// How many bytes before `source` of the base and before `at` of the page are equal, up to [`BACK`].
#[inline(always)]
fn common_before(base: &Page, source: usize, page: &Page, at: usize) -> usize {
    let mut len = 0;
    while let Some(a) = base[..source - len].last_chunk()
        && let Some(b) = page[..at - len].last_chunk()
    {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return len + differing.leading_zeros() as usize / 8;
        }
        len += 8;
        if len == BACK {
            return len;
        }
    }
    let (a, b) = (base[..source - len].iter().rev(), page[..at - len].iter().rev());
    len + a.zip(b).take_while(|(a, b)| a == b).count()
}

/// How many bytes from `source` of the base on and from `at` of the page on are equal.
#[inline(always)]
fn common(base: &Page, source: usize, page: &Page, at: usize) -> usize {
    let (Some(a), Some(b)) = (base.get(source..), page.get(at..)) else { return 0 };
    // Most are short.
    if let (Some(a), Some(b)) = (a.first_chunk(), b.first_chunk())
        && a != b
    {
        return common8(a, b);
    }
    let mut len =
        32 * a.as_chunks::<32>().0.iter().zip(b.as_chunks::<32>().0).take_while(|(a, b)| a == b).count();
    for (a, b) in a[len..].as_chunks().0.iter().zip(b[len..].as_chunks().0) {
        if a != b {
            return len + common8(a, b);
        }
        len += 8;
    }
    len + a[len..].iter().zip(&b[len..]).take_while(|(a, b)| a == b).count()
}

/// How many bytes at the front of two words are equal.
#[inline(always)]
fn common8(a: &[u8; 8], b: &[u8; 8]) -> usize {
    (u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b)).trailing_zeros() as usize / 8
}

/// Writes steps.
struct Steps<'a> {
    page: &'a Page,
    out: &'a mut Out,
    /// Bytes of `out` that may be used.
    room: usize,
    /// Bytes of `out` that are written.
    at: usize,
    /// Bytes of the page that the steps fill.
    done: usize,
    /// What the last `COPY` added to a place to find its source, modulo 2^64.
    shift: usize,
    /// Places in the page where nothing was found since the last find.
    misses: usize,
}

impl Steps<'_> {
    /// Bytes up to `new` are the same, up to the piece's start they are new.
    #[inline(always)]
    fn piece(&mut self, new: usize, piece: Piece) -> Option<()> {
        if new < piece.at {
            self.new_bytes(new, piece.at)?;
        } else {
            self.same(new)?;
        }
        let shift = piece.source.wrapping_sub(piece.at);
        if shift == self.shift {
            self.head(REP0, piece.len)?;
        } else {
            self.head(COPY, piece.len)?;
            self.put((piece.source as u16).to_le_bytes())?;
            self.shift = shift;
        }
        self.done = piece.at + piece.len;
        Some(())
    }

    /// Bytes up to `start` are the same, up to `end` they are new.
    #[inline(always)]
    fn new_bytes(&mut self, start: usize, end: usize) -> Option<()> {
        self.same(start)?;
        let len = end - start;
        self.head(ADD, len)?;
        self.done = end;
        if len <= WIDE
            && let Some(bytes) = self.page.get(start..).and_then(|page| page.first_chunk::<WIDE>())
        {
            self.out.get_mut(self.at..)?.first_chunk_mut().map(|out| *out = *bytes)?;
            self.at += len;
            return self.fits();
        }
        self.out[..self.room].get_mut(self.at..self.at + len)?.copy_from_slice(&self.page[start..end]);
        self.at += len;
        Some(())
    }

    #[inline(always)]
    fn same(&mut self, end: usize) -> Option<()> {
        if self.done < end {
            self.head(KEEP, end - self.done)?;
            self.done = end;
        }
        Some(())
    }

    #[inline(always)]
    fn head(&mut self, kind: usize, len: usize) -> Option<()> {
        if len < LONG_MIN {
            return self.put([(kind << 6 | (len - 1)) as u8]);
        }
        let more = len - LONG_MIN;
        self.put([(kind << 6 | (LONG + (more >> 8))) as u8, more as u8])
    }

    #[inline(always)]
    fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        self.out.get_mut(self.at..)?.first_chunk_mut().map(|out| *out = bytes)?;
        self.at += N;
        self.fits()
    }

    /// Whether what is written is no more than may be.
    #[inline(always)]
    fn fits(&self) -> Option<()> {
        (self.at <= self.room).then_some(())
    }
}

/// Takes all steps. With `FRESH` they write every byte of the page, in its order; otherwise the page is a
/// copy of the base, so that what is the same needs nothing.
#[inline(always)]
fn apply<const FRESH: bool>(base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
    let (mut rest, mut at, mut shift) = (delta, 0usize, 0usize);
    while let Some((head, tail)) = rest.split_first() {
        rest = tail;
        let (kind, field) = (usize::from(head >> 6), usize::from(head & 63));
        let len = if field < LONG {
            field + 1
        } else {
            let (more, tail) = rest.split_first().ok_or(CodecError::Truncated(TAG))?;
            rest = tail;
            LONG_MIN + (field - LONG) * 256 + usize::from(*more)
        };
        if kind == KEEP && !FRESH {
            restore(page, base, at);
        } else if kind == ADD {
            if rest.len() < len {
                return Err(CodecError::Truncated(TAG));
            }
            copy(page, at, rest, 0, len).ok_or(BEYOND)?;
            rest = &rest[len..];
        } else {
            if kind == COPY {
                let (source, tail) = rest.split_first_chunk::<2>().ok_or(CodecError::Truncated(TAG))?;
                rest = tail;
                shift = usize::from(u16::from_le_bytes(*source)).wrapping_sub(at);
            }
            let shift = if kind == KEEP { 0 } else { shift };
            copy(page, at, base, at.wrapping_add(shift), len).ok_or(BEYOND)?;
        }
        at += len;
        if at > PAGE_SIZE {
            return Err(BEYOND);
        }
    }
    leave::<FRESH>(page, base, at).ok_or(BEYOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise as base;

    fn encoded(page: &Page) -> Vec<u8> {
        let mut out = [0; PAGE_SIZE];
        let len = Moves::default().encode(&base(), page, &mut out).expect("fits");
        let mut rebuilt = [0; PAGE_SIZE];
        Moves::default().decode(&base(), &out[..len], &mut rebuilt).expect("decodes");
        assert!(rebuilt == *page);
        out[..len].to_vec()
    }

    #[test]
    fn the_bytes_are_those_of_the_disk() {
        assert_eq!(encoded(&base()), []);
        let mut page = base();
        page[40] ^= 1;
        assert_eq!(encoded(&page), [(KEEP << 6 | 39) as u8, 0, page[40]]);
        let mut page = base();
        page[49] ^= 1;
        assert_eq!(encoded(&page), [(KEEP << 6 | 48) as u8, 0, 0, page[49]]);
        let mut page = base();
        page.copy_within(1000..1600, 2000);
        assert_eq!(encoded(&page)[..2], [(KEEP << 6 | (48 + 7)) as u8, (2000 - 49 - 7 * 256) as u8]);
        assert_eq!(
            encoded(&page)[2..],
            [(COPY << 6 | (48 + 2)) as u8, (600 - 49 - 2 * 256) as u8, 0xE8, 0x03]
        );
    }

    #[test]
    fn a_change_in_a_moved_piece_goes_on_with_the_same_move() {
        let mut page = base();
        page.copy_within(1000..1600, 2000);
        page[2300] ^= 1;
        let steps = encoded(&page);
        assert_eq!(steps.len(), 2 + 4 + 2 + 2);
        assert_eq!(steps[8] >> 6, REP0 as u8);
    }

    #[test]
    fn a_longer_word_moves_what_follows_it() {
        let mut page = base();
        page.copy_within(100..PAGE_SIZE - 5, 105);
        page[100..105].copy_from_slice(b"added");
        assert!(encoded(&page).len() <= 2 + 6 + 4, "{:?}", encoded(&page));
    }

    #[test]
    fn wrong_bytes_name_what_is_wrong() {
        let decode = |delta: &[u8]| {
            let decoded = Moves::default().decode(&base(), delta, &mut [0; PAGE_SIZE]);
            assert_eq!(Moves::default().patch(&mut base(), delta), decoded, "in place");
            decoded
        };
        for cut in [&[0x00][..], &[0x30], &[0x3F, 0xFF], &[0xC0], &[0xC0, 1], &[0x05, 1, 2, 3, 4, 5]] {
            assert_eq!(decode(cut), Err(CodecError::Truncated(TAG)), "{cut:?}");
        }
        let beyond: [&[u8]; 6] = [
            &[0x7F, 0xCE, 0x01, 1, 2],
            &[0x7F, 0xFF],
            &[0xC1, 0xFF, 0x0F],
            &[0xC0, 0xFF, 0xFF],
            &[0x7F, 0xBF, 0x7F, 0],
            &[0xC1, 0xFE, 0x0F, 0x80],
        ];
        for delta in beyond {
            assert_eq!(decode(delta), Err(CodecError::OutOfRange(TAG)), "{delta:?}");
        }
    }
}
