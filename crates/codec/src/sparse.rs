//! `xor-sparse`: the changed runs of a page at their places; all else is the base.
//!
//! A delta is a list of runs:
//!
//! ```text
//! u16     gap << 4 | n    gap: bytes of the base since the last run's end
//! u8      n is 15:        more length
//! u16     that is 255:    yet more length
//! bytes   the run         n + 1 of them; 16 + the byte; 271 + the last number
//! ```
//!
//! XOR serves to find the runs and is not stored: the new bytes are as long, and need no reading back. Two bytes a
//! run of up to 15, wherever it is, is what makes it smaller than general compression of an XOR page.

use crate::copy::{WIDE, copy_page};
use crate::diff::Diff;
use crate::multiversion::multiversion;
use crate::{CodecError, CodecTag, DeltaCodec, PAGE_SIZE, Page};

const TAG: CodecTag = CodecTag::XorSparse;
/// Length field that says another byte follows.
pub const LONG: usize = 15;
/// Value of that byte that says a number follows.
pub const LONGER: usize = 255;
/// The shortest runs that have these.
const LONG_MIN: usize = LONG + 1;
const LONGER_MIN: usize = LONG_MIN + LONGER;

/// The codec.
#[derive(Debug, Clone, Copy, Default)]
pub struct Sparse;

/// The result of encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// Bytes of the delta.
    pub len: usize,
    /// Bytes of runs above [`SHORT`] each.
    pub long: usize,
}

/// Bytes of a run that take no more as they are than as a piece of the base from another place.
pub const SHORT: usize = 8;

impl Sparse {
    /// [`DeltaCodec::encode`] after the first look.
    #[inline(always)]
    pub fn encode_diff(self, diff: &Diff, page: &Page, out: &mut [u8]) -> Option<Made> {
        let room = out.len().min(PAGE_SIZE);
        if diff.is_above(room) {
            return None;
        }
        let out = &mut out[..room];
        let (mut at, mut copied, mut long) = (0, 0, 0);
        for (start, end) in diff.runs() {
            at = put_run(out, at, start - copied, page, start..end)?;
            long += (end - start).saturating_sub(SHORT);
            copied = end;
        }
        Some(Made { len: at, long })
    }
}

impl DeltaCodec for Sparse {
    fn tag(&self) -> CodecTag {
        TAG
    }

    fn encode(&mut self, base: &Page, page: &Page, out: &mut [u8]) -> Option<usize> {
        self.encode_diff(&Diff::new(base, page), page, out).map(|made| made.len)
    }

    fn decode(&mut self, base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
        decode(base, delta, page)
    }

    fn patch_copy(&mut self, _: &Page, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
        patch(page, delta)
    }

    fn patch(&mut self, page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
        patch(page, delta)
    }
}

multiversion! {
    /// [`DeltaCodec::decode`].
    fn decode(base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> = apply_to_copy;
}

multiversion! {
    /// [`DeltaCodec::patch`].
    fn patch(page: &mut Page, delta: &[u8]) -> Result<(), CodecError> = apply_in_place;
}

#[inline(always)]
fn apply_to_copy(base: &Page, delta: &[u8], page: &mut Page) -> Result<(), CodecError> {
    copy_page(base, page);
    apply(page, delta, Some(base))
}

#[inline(always)]
fn apply_in_place(page: &mut Page, delta: &[u8]) -> Result<(), CodecError> {
    apply(page, delta, None)
}

/// Writes a run at `at` of `out` and returns where it ends. `None`: no room.
#[inline(always)]
fn put_run(out: &mut [u8], at: usize, gap: usize, page: &Page, run: std::ops::Range<usize>) -> Option<usize> {
    let len = run.len();
    if len < LONG_MIN
        && let Some(bytes) = page.get(run.start..run.start + WIDE)
        && let Some(room) = out.get_mut(at..at + 2 + WIDE)
    {
        room[..2].copy_from_slice(&((gap << 4 | (len - 1)) as u16).to_le_bytes());
        room[2..].copy_from_slice(bytes);
        return Some(at + 2 + len);
    }
    let head = put_head(out, at, gap, len)?;
    out.get_mut(head..head + len)?.copy_from_slice(&page[run]);
    Some(head + len)
}

/// Writes gap and length of a run and returns where its bytes begin.
fn put_head(out: &mut [u8], at: usize, gap: usize, len: usize) -> Option<usize> {
    let mut put = |at: usize, bytes: &[u8]| {
        out.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
        Some(at + bytes.len())
    };
    let at = put(at, &((gap << 4 | (len - 1).min(LONG)) as u16).to_le_bytes())?;
    match len {
        LONGER_MIN.. => {
            let at = put(at, &[LONGER as u8])?;
            put(at, &((len - LONGER_MIN) as u16).to_le_bytes())
        }
        LONG_MIN.. => put(at, &[(len - LONG_MIN) as u8]),
        _ => Some(at),
    }
}

/// Writes all runs over the base. What lies behind a short one is taken from `base` where that is at hand: to
/// read it from the page would wait for what was just written there.
#[inline(always)]
fn apply(page: &mut Page, delta: &[u8], base: Option<&Page>) -> Result<(), CodecError> {
    let (mut rest, mut at) = (delta, 0);
    while let Some((head, tail)) = rest.split_first_chunk::<2>() {
        let head = usize::from(u16::from_le_bytes(*head));
        at += head >> 4;
        let short = (head & LONG) + 1;
        rest = tail;
        if short < LONG_MIN
            && let Some(bytes) = wide_front(delta, rest)
            && let Some(run) = rest.get(short..)
            && let Some(room) = page.get_mut(at..).and_then(|page| page.first_chunk_mut())
        {
            let old = base.and_then(|base| base.get(at..)?.first_chunk()).copied().unwrap_or(*room);
            *room = blend(old, bytes, short);
            rest = run;
            at += short;
            continue;
        }
        let len = if short < LONG_MIN { short } else { LONG_MIN + more(TAG, &mut rest)? };
        let (run, tail) = rest.split_at_checked(len).ok_or(CodecError::Truncated(TAG))?;
        page.get_mut(at..at + len).ok_or(CodecError::OutOfRange(TAG))?.copy_from_slice(run);
        rest = tail;
        at += len;
    }
    if rest.is_empty() { Ok(()) } else { Err(CodecError::Truncated(TAG)) }
}

/// The first [`WIDE`] bytes of `rest`, the end of `delta`; where it is shorter, with any behind. `None` where
/// it is empty.
#[inline(always)]
fn wide_front(delta: &[u8], rest: &[u8]) -> Option<u128> {
    if let Some(bytes) = rest.first_chunk() {
        return Some(u128::from_le_bytes(*bytes));
    }
    let missing = WIDE - rest.len();
    u128::from_le_bytes(*delta.last_chunk()?).checked_shr(8 * missing as u32)
}

/// The first `len` of `bytes` (0 to [`WIDE`]) and what of `old` is behind them, without a branch on `len`.
#[inline(always)]
fn blend(old: [u8; WIDE], bytes: u128, len: usize) -> [u8; WIDE] {
    const KEEP: [u8; 2 * WIDE] = {
        let mut keep = [0; 2 * WIDE];
        keep.split_at_mut(WIDE).1.copy_from_slice(&[u8::MAX; WIDE]);
        keep
    };
    let Some(keep) = KEEP.get(WIDE - len..).and_then(|keep| keep.first_chunk()) else { return old };
    let keep = u128::from_le_bytes(*keep);
    (u128::from_le_bytes(old) & keep | bytes & !keep).to_le_bytes()
}

/// Reads what is added to a length that its field has no room for: a byte, or [`LONGER`] and two bytes to
/// which that is added.
#[inline(always)]
pub(crate) fn more(tag: CodecTag, rest: &mut &[u8]) -> Result<usize, CodecError> {
    let (byte, tail) = rest.split_first().ok_or(CodecError::Truncated(tag))?;
    *rest = tail;
    if usize::from(*byte) < LONGER {
        return Ok(usize::from(*byte));
    }
    let (more, tail) = rest.split_first_chunk::<2>().ok_or(CodecError::Truncated(tag))?;
    *rest = tail;
    Ok(LONGER + usize::from(u16::from_le_bytes(*more)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Page = [7; PAGE_SIZE];

    fn changed(runs: &[(usize, usize)]) -> Page {
        let mut page = BASE;
        runs.iter().for_each(|&(at, len)| page[at..at + len].fill(9));
        page
    }

    fn encoded(runs: &[(usize, usize)]) -> Vec<u8> {
        let mut out = [0; PAGE_SIZE];
        let len = Sparse.encode(&BASE, &changed(runs), &mut out).expect("fits");
        out[..len].to_vec()
    }

    #[test]
    fn the_bytes_are_those_of_the_disk() {
        assert_eq!(encoded(&[]), []);
        assert_eq!(encoded(&[(0, 1)]), [0x00, 0x00, 9]);
        assert_eq!(encoded(&[(0x123, 2), (0x223, 1)]), [0x31, 0x12, 9, 9, 0xE0, 0x0F, 9]);
        assert_eq!(encoded(&[(10, 2), (14, 1)]), [0xA4, 0x00, 9, 9, 7, 7, 9]);
        assert_eq!(encoded(&[(4095, 1)]), [0xF0, 0xFF, 9]);
        assert_eq!(encoded(&[(16, 15)])[..2], [0x0E, 0x01]);
        assert_eq!(encoded(&[(16, 16)])[..3], [0x0F, 0x01, 0]);
        assert_eq!(encoded(&[(16, 270)])[..3], [0x0F, 0x01, 254]);
        assert_eq!(encoded(&[(16, 271)])[..5], [0x0F, 0x01, 255, 0, 0]);
        assert_eq!(encoded(&[(0, 4000)])[..5], [0x0F, 0x00, 255, 0x91, 0x0E]);
    }

    #[test]
    fn runs_of_all_lengths_come_back() {
        for len in (1..40).chain([269, 270, 271, 272, 4000]) {
            for at in [0, 1, 50, PAGE_SIZE - len] {
                let mut page = [0; PAGE_SIZE];
                Sparse.decode(&BASE, &encoded(&[(at, len)]), &mut page).expect("decodes");
                assert!(page == changed(&[(at, len)]), "{len} at {at}");
            }
        }
    }

    #[test]
    fn wrong_bytes_name_what_is_wrong() {
        let decode = |delta: &[u8]| Sparse.decode(&BASE, delta, &mut [0; PAGE_SIZE]);
        for cut in [&[0x00][..], &[0x00, 0x00], &[0x0F, 0x00], &[0x0F, 0x00, 255, 1], &[0x0F, 0x00, 3, 1]] {
            assert_eq!(decode(cut), Err(CodecError::Truncated(TAG)), "{cut:?}");
        }
        assert_eq!(decode(&[0xF1, 0xFF, 1, 2]), Err(CodecError::OutOfRange(TAG)));
        assert_eq!(decode(&[0xF0, 0xFF, 1, 0x00, 0x00, 1]), Err(CodecError::OutOfRange(TAG)));
        let too_long = [&[0x0F, 0x00, 255, 0xFF, 0xFF][..], &[0; 70_000]].concat();
        assert_eq!(decode(&too_long), Err(CodecError::OutOfRange(TAG)));
    }

    #[test]
    fn a_delta_that_ends_behind_the_head_of_a_run_is_cut_short() {
        let mut delta = encoded(&[(0, 15)]);
        delta.extend([0, 0]);
        let cut_short = Err(CodecError::Truncated(TAG));
        assert_eq!(Sparse.decode(&BASE, &delta, &mut BASE.clone()), cut_short);
        assert_eq!(Sparse.patch(&mut BASE.clone(), &delta), cut_short);
    }
}
