//! Copies of pages and of pieces of them, by registers instead of by calls of the system's copy.

use crate::{PAGE_SIZE, Page};

/// Bytes that are copied at once where there is room, and where there are more.
pub(crate) const WIDE: usize = 16;
const HALF: usize = 32;
const LONG_COPY: usize = 64;

/// Copies a page by the widest registers that the caller is compiled for: wide ones take a fifth less time
/// than what the system has for any length, those of every `x86_64` half as much again.
#[inline(always)]
pub(crate) fn copy_page(from: &Page, to: &mut Page) {
    for (to, from) in to.as_chunks_mut::<128>().0.iter_mut().zip(from.as_chunks::<128>().0) {
        *to = *from;
    }
}

/// Copies `len` bytes from `source` of `from` to `at` of the page, and maybe more, which what is written next
/// overwrites or [`restore`] puts back. `None` where one of the two does not have them.
#[inline(always)]
pub(crate) fn copy(page: &mut Page, at: usize, from: &[u8], source: usize, len: usize) -> Option<()> {
    if len <= WIDE
        && let Some(from) = source.checked_add(WIDE).and_then(|end| from.get(source..end))
        && let Some(to) = page.get_mut(at..at + WIDE)
    {
        to.copy_from_slice(from);
        return Some(());
    }
    let from = from.get(source..source.checked_add(len)?)?;
    let to = page.get_mut(at..at + len)?;
    match len {
        LONG_COPY.. => copy_long(to, from, source < at),
        HALF.. => copy_ends::<HALF>(to, from),
        WIDE.. => copy_ends::<WIDE>(to, from),
        _ => to.copy_from_slice(from),
    }
    Some(())
}

/// Copies `N` to twice as many bytes.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    let one = |(to, from): (&mut [u8; N], &[u8; N])| *to = *from;
    to.first_chunk_mut().zip(from.first_chunk()).into_iter().for_each(one);
    to.last_chunk_mut().zip(from.last_chunk()).into_iter().for_each(one);
}

/// Copies [`LONG_COPY`] bytes or more, from the end where `down`. Pages lie at the same places of their
/// memory pages: a load waits for a store just before it to such a place in another page, and a piece that is
/// copied the wrong way does so all along, as it does with the system's copy. Steps are shorter than what is
/// copied, or the compiler calls that.
#[inline(always)]
fn copy_long(to: &mut [u8], from: &[u8], down: bool) {
    const STEP: usize = LONG_COPY - 8;
    let mut one = |start: usize| {
        let to = to.get_mut(start..).and_then(|to| to.first_chunk_mut::<LONG_COPY>());
        if let (Some(to), Some(from)) = (to, from.get(start..).and_then(|from| from.first_chunk())) {
            *to = *from;
        }
    };
    let last = from.len() - LONG_COPY;
    if down {
        let mut start = last;
        while start > 0 {
            one(start);
            start = start.saturating_sub(STEP);
        }
        one(0);
    } else {
        let mut start = 0;
        while start < last {
            one(start);
            start += STEP;
        }
        one(last);
    }
}

/// Puts back what [`copy`] may have overwritten from `at` on.
#[inline(always)]
pub(crate) fn restore(page: &mut Page, base: &Page, at: usize) {
    if let (Some(to), Some(from)) = (page.get_mut(at..at + WIDE), base.get(at..at + WIDE)) {
        to.copy_from_slice(from);
    } else if let (Some(to), Some(from)) = (page.get_mut(at..), base.get(at..)) {
        to.copy_from_slice(from);
    }
}

/// Makes the page from `at` on that of the base: copies it where the page is `FRESH`, and puts back what
/// [`copy`] may have overwritten where it was a copy of the base before. `None` where `at` is beyond the
/// page.
#[inline(always)]
pub(crate) fn leave<const FRESH: bool>(page: &mut Page, base: &Page, at: usize) -> Option<()> {
    if FRESH {
        return copy(page, at, base, at, PAGE_SIZE.checked_sub(at)?);
    }
    restore(page, base, at);
    Some(())
}
