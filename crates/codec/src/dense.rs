//! `dense`: pieces of the base and of the page itself, and new bytes, in few bytes.
//!
//! What [`crate::moves`] has no room for often repeats itself: rows of a table are alike, and so are the
//! words of a text. Here pieces also come from what the page holds before them, they begin anywhere, and a
//! step has new bytes and a piece. On pages that a delta of an inode has room for it is smaller than zstd,
//! which codes bytes in fewer bits but needs tables of them first, in less than half of the time. A delta is
//! a list of steps that fill the page from its first byte to its last:
//!
//! ```text
//! u8      kind << 6 | new << 3 | n
//! more    new is 7: what is added to it
//! bytes   the new bytes
//! u16     kind COPY: source << 3 | high bits of n
//! more    n is 7, or 63 of kind COPY: what is added to it
//! ```
//!
//! "More" is a byte, or 255 and a u16 to which 255 is added. A piece has n + 3 bytes, of kind `COPY` n + 4. A
//! source is a place in the base, or 4096 and a place in the page. `KEEP` takes the bytes of the base at the
//! same place, `REP0` those as far back as the last piece but `KEEP` came from, `REP1` as far as the one
//! before that. A step that fills the page with new bytes has no piece. What follows the last step is the
//! same.
//!
//! The base is indexed at every fourth place, of the page what is looked up and what is found.

mod apply;

use crate::copy::{WIDE, copy_page};
use crate::diff::Diff;
use crate::multiversion::multiversion;
use crate::sparse::LONGER;
use crate::{CodecError, CodecTag, DeltaCodec, PAGE_SIZE, Page};
use apply::{apply, apply_in_place};

const TAG: CodecTag = CodecTag::Dense;
const BEYOND: CodecError = CodecError::OutOfRange(TAG);

/// The kind of step whose piece is the base's at the same place.
pub const KEEP: usize = 0;
/// The kind that comes from as far as the last.
pub const REP0: usize = 1;
/// The kind that comes from as far as the one before the last.
pub const REP1: usize = 2;
/// The kind that names its source.
pub const COPY: usize = 3;
/// Length field that says that more follows, and that of a far piece.
pub const LONG: usize = 7;
/// See [`LONG`].
pub const FAR_LONG: usize = 63;
/// Shortest piece, and shortest far one.
pub const PIECE_MIN: usize = 3;
/// See [`PIECE_MIN`].
pub const FAR_MIN: usize = 4;
/// How far back the last pieces came from before there are any: what repeats every byte, and every second.
const FIRST: [usize; 2] = [1, 2];

/// Log2 of the slots of a table.
const SLOTS_LOG: u32 = 11;
/// Distance of the places of the base that are indexed.
const STRIDE: usize = 4;
/// Bytes that are looked up.
const KEY: usize = 4;
/// Places without a find after which every second is tried, then every third, and so on.
const PATIENCE: usize = 64;
/// Most bytes by which a piece is made longer at its front.
const BACK: usize = 16;
/// A piece of so many bytes is taken without a look at others.
const GOOD: usize = 32;
/// Distance of the places of a piece that are indexed, of a short one and of one of more than [`GOOD`] bytes.
const STEP: usize = 2;
const LONG_STEP: usize = 8;

/// Where the page begins, and ends, behind the base.
const START: usize = PAGE_SIZE;
const END: usize = 2 * PAGE_SIZE;

type Table = [u16; 1 << SLOTS_LOG];
/// Base and page, and room to read a word at any place.
type Window = [u8; END + WIDE];
/// Room for a delta, and for what is written beyond the end of its last step.
type Out = [u8; PAGE_SIZE + 2 * WIDE];

/// The codec: scratch memory.
#[derive(Debug, Clone)]
pub struct Dense {
    window: Window,
    /// Where in the window the bytes of a slot are.
    places: Table,
    out: Out,
    /// The base of a page that is patched in place.
    base: Page,
}

impl Default for Dense {
    fn default() -> Self {
        Dense { window: [0; _], places: [0; _], out: [0; _], base: [0; PAGE_SIZE] }
    }
}

multiversion! {
    /// [`Dense::encode_diff`].
    pub(crate) fn encode(
        dense: &mut Dense, diff: &Diff, base: &Page, page: &Page, room: usize, hope: usize
    ) -> Option<usize> = Dense::encode_diff;
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
    fn patch(base: &mut Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> = apply_in_place;
}

impl DeltaCodec for Dense {
    fn tag(&self) -> CodecTag {
        TAG
    }

    fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<usize> {
        let len = encode(self, &Diff::new(base, page), base, page, out.len(), 0)?;
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
        patch(&mut self.base, delta, page)
    }
}

/// A piece of the page that is in the base or before it in the page.
#[derive(Debug, Clone, Copy)]
struct Piece {
    kind: usize,
    /// Where in the window.
    at: usize,
    /// Where it comes from, in the window.
    source: usize,
    len: usize,
}

impl Piece {
    /// Bytes that it saves.
    #[inline(always)]
    fn gain(&self) -> usize {
        let (head, short) = if self.kind == COPY { (3, FAR_MIN + FAR_LONG) } else { (1, PIECE_MIN + LONG) };
        let head = head + usize::from(self.len >= short);
        self.len.saturating_sub(head)
    }
}

/// How far back the last two pieces came from.
type Distances = [usize; 2];

impl Dense {
    /// Makes a delta of at most `room` bytes after the first look, and returns its size: it is
    /// [`Dense::made`] then. Gives up where half of the room is taken and every four bytes of it make fewer
    /// than `hope` bytes of the page.
    #[inline(always)]
    pub(crate) fn encode_diff(
        &mut self,
        diff: &Diff,
        base: &Page,
        page: &Page,
        room: usize,
        hope: usize,
    ) -> Option<usize> {
        self.load(base, page);
        let mut steps = Steps { out: &mut self.out, room: room.min(PAGE_SIZE), at: 0 };
        let mut finder = Finder { window: &self.window, places: &mut self.places, diff, last: FIRST };
        let (mut at, mut new, mut misses) = (START, START, 0);
        loop {
            let end = at == END || (at == new && diff.next_changed(at - START) == PAGE_SIZE);
            let spent = steps.at + at - new;
            if end || spent > steps.room + BACK || (spent > steps.room / 2 && (at - START) * 4 < spent * hope)
            {
                break;
            }
            let Some(mut piece) = finder.best(at, new) else {
                finder.add(at);
                misses += 1;
                at = END.min(at + 1 + misses / PATIENCE);
                continue;
            };
            misses = 0;
            if piece.kind == KEEP && at + piece.len == END {
                // What follows the last step is the same.
                piece.len = PIECE_MIN;
            }
            steps.put(finder.window, new, &piece)?;
            finder.took(&piece, at);
            at = piece.at + piece.len;
            new = at;
        }
        if at == END && new < END {
            steps.rest(&self.window, new)?;
        } else if new < END && diff.next_changed(new - START) < PAGE_SIZE {
            return None;
        }
        Some(steps.at)
    }

    /// The delta of `len` bytes that was made last.
    pub(crate) fn made(&self, len: usize) -> &[u8] {
        &self.out[..len]
    }

    /// Takes in two other pages.
    #[inline(always)]
    fn load(&mut self, base: &Page, page: &Page) {
        let (first, second) = self.window.split_at_mut(PAGE_SIZE);
        first.first_chunk_mut().into_iter().for_each(|to| copy_page(base, to));
        second.first_chunk_mut().into_iter().for_each(|to| copy_page(page, to));
        self.places = [0; _];
        for (i, word) in base.as_chunks::<STRIDE>().0.iter().enumerate() {
            self.places[slot(u32::from_le_bytes(*word))] = (i * STRIDE) as u16;
        }
    }
}

/// Looks for pieces.
struct Finder<'a> {
    window: &'a Window,
    places: &'a mut Table,
    diff: &'a Diff,
    last: Distances,
}

impl Finder<'_> {
    /// The piece at `at`, or at the next place, that saves the most; it begins at `from` or later.
    #[inline(always)]
    fn best(&mut self, at: usize, from: usize) -> Option<Piece> {
        let piece = self.find(at, from)?;
        if piece.kind != COPY || piece.len >= GOOD || at + 1 == END {
            return Some(piece);
        }
        self.add(at);
        match self.find(at + 1, from) {
            Some(next) if next.gain() > piece.gain() + 1 => Some(next),
            _ => Some(piece),
        }
    }

    #[inline(always)]
    fn find(&self, at: usize, from: usize) -> Option<Piece> {
        let same = self.diff.next_changed(at - START) + START - at;
        let mut best = Piece { kind: KEEP, at, source: at - START, len: same };
        if same < PIECE_MIN {
            best.len = 0;
        } else if same >= GOOD {
            return Some(best);
        }
        let word = word(self.window, at);
        for (kind, distance) in [(REP0, self.last[0]), (REP1, self.last[1])] {
            let source = at - distance;
            if (self::word(self.window, source) ^ word) << 8 == 0 {
                let len = self.common(source, at);
                if len > best.len && len >= PIECE_MIN {
                    best = Piece { kind, at, source, len };
                }
            }
        }
        if best.len >= GOOD {
            return Some(best);
        }
        self.far(usize::from(self.places[slot(word)]), at, from, word, &mut best);
        (best.gain() > 0).then_some(best)
    }

    /// Takes the piece at `source` of the window where it saves more than `best`.
    #[inline(always)]
    fn far(&self, source: usize, at: usize, from: usize, word: u32, best: &mut Piece) {
        if self::word(self.window, source) != word {
            return;
        }
        let len = self.common(source, at);
        if len < KEY {
            return;
        }
        let first = if source < START { 0 } else { START };
        let back = common_before(self.window, source, at, (at - from).min(source - first).min(BACK));
        let piece = Piece { kind: COPY, at: at - back, source: source - back, len: len + back };
        if piece.gain() > best.gain() {
            *best = piece;
        }
    }

    /// How many bytes of the page from `at` on are those from `source` on.
    #[inline(always)]
    fn common(&self, source: usize, at: usize) -> usize {
        let most = if source < START { (START - source).min(END - at) } else { END - at };
        let mut len = 0;
        while len < most {
            let differing = long_word(self.window, source + len) ^ long_word(self.window, at + len);
            if differing != 0 {
                return most.min(len + differing.trailing_zeros() as usize / 8);
            }
            len += 8;
        }
        most
    }

    /// Indexes a place of the page.
    #[inline(always)]
    fn add(&mut self, at: usize) {
        self.places[slot(word(self.window, at))] = at as u16;
    }

    /// Remembers a piece that was found from `at` on, and indexes it.
    #[inline(always)]
    fn took(&mut self, piece: &Piece, at: usize) {
        let distance = piece.at - piece.source;
        match piece.kind {
            KEEP => return,
            COPY => self.last = [distance, self.last[0]],
            REP1 => self.last.swap(0, 1),
            _ => {}
        }
        let step = if piece.len > GOOD { LONG_STEP } else { STEP };
        let mut place = at + 1;
        while place < piece.at + piece.len {
            self.add(place);
            place += step;
        }
    }
}

/// How many bytes, of `most`, before `source` and before `at` are equal.
#[inline(always)]
fn common_before(window: &Window, source: usize, at: usize, most: usize) -> usize {
    let mut len = 0;
    while len < most && source >= len + 8 {
        let differing = long_word(window, source - len - 8) ^ long_word(window, at - len - 8);
        if differing != 0 {
            return most.min(len + differing.leading_zeros() as usize / 8);
        }
        len += 8;
    }
    let before = |end: usize| window[..end - len.min(most)].iter().rev().take(most.saturating_sub(len));
    len.min(most) + before(source).zip(before(at)).take_while(|(a, b)| a == b).count()
}

/// The bytes at a place of the window.
#[inline(always)]
fn word(window: &Window, at: usize) -> u32 {
    window.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u32::from_le_bytes(*word))
}

/// Eight bytes at a place of the window.
#[inline(always)]
fn long_word(window: &Window, at: usize) -> u64 {
    window.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// Slot of the bytes that are looked up.
#[inline(always)]
fn slot(word: u32) -> usize {
    (word.wrapping_mul(0x9E37_79B1) >> (u32::BITS - SLOTS_LOG)) as usize
}

/// Writes steps.
struct Steps<'a> {
    out: &'a mut Out,
    /// Bytes of `out` that may be used.
    room: usize,
    /// Bytes of `out` that are written.
    at: usize,
}

impl Steps<'_> {
    /// The new bytes from `new` on, and the piece behind them.
    #[inline(always)]
    fn put(&mut self, window: &Window, new: usize, piece: &Piece) -> Option<()> {
        let far = piece.kind == COPY;
        let (least, long) = if far { (FAR_MIN, FAR_LONG) } else { (PIECE_MIN, LONG) };
        let len = piece.len - least;
        let field = len.min(long);
        self.head(window, piece.kind, new, piece.at, field & LONG)?;
        if far {
            self.bytes(((piece.source << 3 | field >> 3) as u16).to_le_bytes())?;
        }
        if field == long {
            self.more(len - long)?;
        }
        (self.at <= self.room).then_some(())
    }

    /// The new bytes from `new` to the end of the page.
    fn rest(&mut self, window: &Window, new: usize) -> Option<()> {
        self.head(window, KEEP, new, END, 0)?;
        (self.at <= self.room).then_some(())
    }

    #[inline(always)]
    fn head(&mut self, window: &Window, kind: usize, new: usize, end: usize, field: usize) -> Option<()> {
        let len = end - new;
        self.bytes([(kind << 6 | len.min(LONG) << 3 | field) as u8])?;
        if len >= LONG {
            self.more(len - LONG)?;
        }
        if len <= WIDE {
            let bytes = window.get(new..)?.first_chunk::<WIDE>()?;
            self.out.get_mut(self.at..)?.first_chunk_mut().map(|out| *out = *bytes)?;
        } else {
            self.out.get_mut(self.at..self.at + len)?.copy_from_slice(&window[new..end]);
        }
        self.at += len;
        Some(())
    }

    #[inline(always)]
    fn more(&mut self, more: usize) -> Option<()> {
        if more < LONGER {
            return self.bytes([more as u8]);
        }
        self.bytes([LONGER as u8])?;
        self.bytes(((more - LONGER) as u16).to_le_bytes())
    }

    #[inline(always)]
    fn bytes<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        self.out.get_mut(self.at..)?.first_chunk_mut().map(|out| *out = bytes)?;
        self.at += N;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::noise as base;

    fn encoded(page: &Page) -> Vec<u8> {
        let (mut out, mut dense) = ([0; PAGE_SIZE], Dense::default());
        let len = dense.encode(&base(), page, &mut out).expect("fits");
        let (mut rebuilt, mut copied, mut patched) = ([0; PAGE_SIZE], base(), base());
        dense.decode(&base(), &out[..len], &mut rebuilt).expect("decodes");
        dense.patch_copy(&base(), &mut copied, &out[..len]).expect("decodes over a copy");
        dense.patch(&mut patched, &out[..len]).expect("decodes in place");
        assert!(rebuilt == *page && copied == *page && patched == *page);
        out[..len].to_vec()
    }

    fn head(kind: usize, new: usize, field: usize) -> u8 {
        (kind << 6 | new << 3 | field) as u8
    }

    #[test]
    fn the_bytes_are_those_of_the_disk() {
        assert_eq!(encoded(&base()), []);
        let mut page = base();
        page[40] ^= 1;
        assert_eq!(encoded(&page), [head(KEEP, 0, 7), 30, head(KEEP, 1, 0), page[40]]);
        let mut page = base();
        page[4090] ^= 1;
        page[4095] ^= 1;
        let tail = [head(KEEP, 1, 1), page[4090], head(KEEP, 1, 0), page[4095]];
        assert_eq!(encoded(&page), [&[head(KEEP, 0, 7), 255, 0xF1, 0x0E][..], &tail].concat());
    }

    #[test]
    fn pieces_of_base_and_page_are_found() {
        let mut page = base();
        page.copy_within(1000..1100, 2000);
        let source = (1000 << 3 | FAR_LONG >> 3) as u16;
        let far = [&[head(COPY, 0, 7)][..], &source.to_le_bytes(), &[33]].concat();
        assert_eq!(encoded(&page), [&[head(KEEP, 0, 7), 255, 0xC7, 0x06][..], &far].concat());
        // New bytes, and the same again: from the page, as the base does not have them.
        let mut page = base();
        let new: [u8; 40] = std::array::from_fn(|i| page[i] ^ page[i + 500]);
        page[..40].copy_from_slice(&new);
        page[40..80].copy_from_slice(&new);
        let source = (PAGE_SIZE << 3 | (40 - FAR_MIN) >> 3) as u16;
        let again = [&[head(COPY, 7, (40 - FAR_MIN) & 7), 33][..], &new, &source.to_le_bytes()].concat();
        assert_eq!(encoded(&page), again);
    }

    #[test]
    fn what_repeats_takes_one_step() {
        for every in 1..20 {
            let page: Page = std::array::from_fn(|i| (i % every) as u8 * 7 + 1);
            assert!(encoded(&page).len() <= every + 8, "{every}: {:?}", encoded(&page));
        }
    }

    #[test]
    fn pieces_of_all_lengths_come_back() {
        let base = base();
        for len in (3..40).chain([66, 67, 68, 321, 322, 323, 3000]) {
            for at in [0, 1, 500, PAGE_SIZE - len] {
                let mut page = base;
                page.copy_within(7..7 + len, at);
                encoded(&page);
                let mut page: Page =
                    std::array::from_fn(|i| base[i] ^ if i < 900 { base[i + 1000] } else { 0 });
                page.copy_within(0..len, at);
                encoded(&page);
            }
        }
    }

    #[test]
    fn wrong_bytes_name_what_is_wrong() {
        let decode = |delta: &[u8]| {
            let decoded = Dense::default().decode(&base(), delta, &mut [0; PAGE_SIZE]);
            assert_eq!(Dense::default().patch_copy(&base(), &mut base(), delta), decoded, "over a copy");
            assert_eq!(Dense::default().patch(&mut base(), delta), decoded, "in place");
            decoded
        };
        let cuts: [&[u8]; 7] = [
            &[head(KEEP, 1, 0)],
            &[head(KEEP, 7, 0)],
            &[head(KEEP, 7, 0), 255, 1],
            &[head(KEEP, 0, 7)],
            &[head(KEEP, 0, 7), 255],
            &[head(COPY, 0, 0), 1],
            &[head(COPY, 0, 7), 7, 0],
        ];
        for cut in cuts {
            assert_eq!(decode(cut), Err(CodecError::Truncated(TAG)), "{cut:?}");
        }
        let whole = [head(KEEP, 0, 7), 255, 0xF7, 0x0E];
        assert_eq!(decode(&whole), Ok(()), "{} bytes", PIECE_MIN + LONG + LONGER + 0x0EF7);
        let beyond: [&[u8]; 6] = [
            &[head(KEEP, 0, 7), 255, 0xF8, 0x0E],
            &[&whole[..], &[head(KEEP, 0, 0)]].concat(),
            &[&whole[..], &[head(KEEP, 1, 0), 5]].concat(),
            // What is not written yet, what reaches from the base into the page, and a page's end.
            &[head(COPY, 0, 0), 0x00, 0x80],
            &[head(COPY, 0, 0), 0xF0, 0x7F],
            &[head(KEEP, 0, 7), 255, 0xF6, 0x0E, head(REP0, 0, 0)],
        ];
        for delta in beyond {
            assert_eq!(decode(delta), Err(CodecError::OutOfRange(TAG)), "{delta:?}");
        }
    }
}
