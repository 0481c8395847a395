//! LZF, written anew: a code whose encoder is a table of the last place of each three bytes. A control byte below 32
//! says how many bytes follow as they are; others have a length and a distance of up to 8 KiB.

use std::cmp::min;

/// Bits of the table.
const BITS: u32 = 13;
/// Longest run of bytes as they are, farthest distance, longest repetition.
const LITERALS: usize = 32;
const FARTHEST: usize = 1 << 13;
const LONGEST: usize = 264;

/// The encoder; its table is kept from page to page.
pub(super) struct Lzf {
    /// Places, each with one added; 0 is none.
    last: Vec<u32>,
}

impl Default for Lzf {
    fn default() -> Lzf {
        Lzf { last: vec![0; 1 << BITS] }
    }
}

fn slot(three: &[u8]) -> usize {
    let value = u32::from(three[0]) << 16 | u32::from(three[1]) << 8 | u32::from(three[2]);
    (value.wrapping_mul(0x9e37_79b1) >> (32 - BITS)) as usize
}

fn put_literals(out: &mut Vec<u8>, bytes: &[u8]) {
    for some in bytes.chunks(LITERALS) {
        out.push(some.len() as u8 - 1);
        out.extend_from_slice(some);
    }
}

impl Lzf {
    /// Compresses `source` into `out`, which is emptied before.
    pub(super) fn compress(&mut self, source: &[u8], out: &mut Vec<u8>) {
        self.last.fill(0);
        out.clear();
        let (mut at, mut literals) = (0, 0);
        while at + 3 <= source.len() {
            let entry = &mut self.last[slot(&source[at..])];
            let found = std::mem::replace(entry, at as u32 + 1) as usize;
            let distance = (at + 1).wrapping_sub(found);
            if found == 0 || distance > FARTHEST || source[found - 1..found + 2] != source[at..at + 3] {
                at += 1;
                continue;
            }
            let most = min(LONGEST, source.len() - at);
            let same = |&n: &usize| source[found - 1 + n] == source[at + n];
            let len = 3 + (3..most).take_while(same).count();
            put_literals(out, &source[literals..at]);
            let (distance, short) = (distance - 1, len - 2);
            out.push((min(short, 7) << 5 | distance >> 8) as u8);
            if short >= 7 {
                out.push((short - 7) as u8);
            }
            out.push(distance as u8);
            // The places at its end are found again, those within it are not.
            for inner in (at + len).saturating_sub(2)..min(at + len, source.len().saturating_sub(2)) {
                self.last[slot(&source[inner..])] = inner as u32 + 1;
            }
            at += len;
            literals = at;
        }
        put_literals(out, &source[literals..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    fn expand(bytes: &[u8]) -> Vec<u8> {
        let (mut out, mut at) = (Vec::new(), 0);
        while let Some(&control) = bytes.get(at) {
            at += 1;
            if control < 32 {
                let len = usize::from(control) + 1;
                out.extend_from_slice(&bytes[at..at + len]);
                at += len;
                continue;
            }
            let mut len = usize::from(control >> 5) + 2;
            if len == 9 {
                len += usize::from(bytes[at]);
                at += 1;
            }
            let distance = (usize::from(control & 31) << 8 | usize::from(bytes[at])) + 1;
            at += 1;
            (0..len).for_each(|_| out.push(out[out.len() - distance]));
        }
        out
    }

    #[test]
    fn what_was_compressed_comes_back() {
        let (mut lzf, mut random, mut out) = (Lzf::default(), Random::new(1, "lzf"), Vec::new());
        for round in 0..2000 {
            let mut page = vec![0; random.below(4097) as usize];
            for _ in 0..random.below(20) {
                let at = random.below(page.len() as u64 + 1) as usize;
                let len = min(page.len() - at, random.below(400) as usize);
                match round % 3 {
                    0 => random.fill(&mut page[at..at + len]),
                    1 => page[at..at + len].fill(0xff),
                    _ => page[at..at + len].iter_mut().enumerate().for_each(|(n, b)| *b = (n % 7) as u8),
                }
            }
            lzf.compress(&page, &mut out);
            assert_eq!(expand(&out), page);
        }
    }

    #[test]
    fn the_stream_is_lzfs() {
        let (mut lzf, mut out) = (Lzf::default(), Vec::new());
        lzf.compress(b"abcabcabcabcX", &mut out);
        // Three as they are; nine from three places back, two bytes of which are in the second byte; one as it is.
        assert_eq!(out, [2, b'a', b'b', b'c', 7 << 5, 0, 2, 0, b'X']);
        lzf.compress(&[0; 4096], &mut out);
        assert_eq!(out.len(), 2 + 3 * 16, "a zero, and 4095 more by 264 at most");
    }
}
