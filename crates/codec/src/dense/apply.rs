//! Taking the steps of a delta: the page is filled from its first byte to its last.

use super::{BEYOND, FAR_LONG, FAR_MIN, FIRST, KEEP, LONG, PIECE_MIN, REP0, REP1, TAG};
use crate::copy::{WIDE, copy, copy_page, leave, restore};
use crate::sparse::more;
use crate::{CodecError, PAGE_SIZE, Page};

#[inline(always)]
pub(super) fn apply_in_place(base: &mut Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
    copy_page(page, base);
    apply::<false>(base, delta, page)
}

/// Takes all steps. With `FRESH` they write every byte of the page, in its order; otherwise the page is a
/// copy of the base, so that what is the same needs nothing.
#[inline(always)]
pub(super) fn apply<const FRESH: bool>(base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
    let (mut rest, mut at, mut last) = (delta, 0usize, FIRST);
    while let Some((head, tail)) = rest.split_first() {
        rest = tail;
        if at == PAGE_SIZE {
            return Err(BEYOND);
        }
        let (kind, mut new) = (usize::from(head >> 6), usize::from(head >> 3) & LONG);
        let mut field = usize::from(*head) & LONG;
        if new == LONG {
            new += more(TAG, &mut rest)?;
        }
        if new > 0 {
            let behind = rest.get(new..).ok_or(CodecError::Truncated(TAG))?;
            copy(page, at, rest, 0, new).ok_or(BEYOND)?;
            rest = behind;
            at += new;
            if at == PAGE_SIZE && rest.is_empty() {
                return Ok(());
            }
        }
        let (mut least, mut long, mut distance) = (PIECE_MIN, LONG, PAGE_SIZE);
        match kind {
            KEEP => {}
            REP0 => distance = last[0],
            REP1 => {
                last.swap(0, 1);
                distance = last[0];
            }
            _ => {
                let (far, tail) = rest.split_first_chunk::<2>().ok_or(CodecError::Truncated(TAG))?;
                rest = tail;
                let far = usize::from(u16::from_le_bytes(*far));
                field |= (far & LONG) << 3;
                (least, long) = (FAR_MIN, FAR_LONG);
                distance = (PAGE_SIZE + at).checked_sub(far >> 3).filter(|back| *back > 0).ok_or(BEYOND)?;
                last = [distance, last[0]];
            }
        }
        if field == long {
            field += more(TAG, &mut rest)?;
        }
        let len = least + field;
        if kind == KEEP && !FRESH {
            restore(page, base, at);
        } else {
            piece(base, page, at, distance, len).ok_or(BEYOND)?;
        }
        at += len;
        if at > PAGE_SIZE {
            return Err(BEYOND);
        }
    }
    leave::<FRESH>(page, base, at).ok_or(BEYOND)
}

/// Copies `len` bytes to `at` of the page from `distance` before, in the window of base and page.
#[inline(always)]
fn piece(base: &Page, page: &mut Page, at: usize, distance: usize, len: usize) -> Option<()> {
    if distance > at {
        return copy(page, at, base, PAGE_SIZE + at - distance, len);
    }
    if distance >= WIDE
        && len <= WIDE
        && let Some(bytes) = page[at - distance..].first_chunk::<WIDE>().copied()
        && let Some(room) = page.get_mut(at..at + WIDE)
    {
        room.copy_from_slice(&bytes);
        return Some(());
    }
    repeat(page, at, distance, len)
}

/// Copies what is repeated: each copy has as many bytes to take from as there are since the first.
fn repeat(page: &mut Page, at: usize, distance: usize, len: usize) -> Option<()> {
    let end = at.checked_add(len).filter(|end| *end <= PAGE_SIZE)?;
    let (from, mut done) = (at - distance, at);
    while done < end {
        let len = (done - from).min(end - done);
        page.copy_within(from..from + len, done);
        done += len;
    }
    Some(())
}
