//! LZO1X, the format of the kernel's `lzo`, written from the public description of its stream.
//!
//! A stream is a list of instructions. Each but a run of literals copies earlier output, and its last two bits, S, say
//! how many literals follow it at once:
//!
//! ```text
//! 1LLDDDSS H            5 + L bytes from D + 8 H + 1 back
//! 01LDDDSS H            3 + L bytes, likewise
//! 001LLLLL word         2 + L bytes (L = 0: 33 + more) from word / 4 + 1 back, S = word % 4
//! 0001HLLL word         2 + L bytes (L = 0: 9 + more) from 16384 (1 + H) + word / 4 back; from 16384: the end
//! 0000LLLL              where no literals came before: 3 + L literals (L = 0: 18 + more)
//! 0000DDSS H            where 1 to 3 came before: 2 bytes from D + 4 H + 1 back
//! 0000DDSS H            where more came before: 3 bytes from D + 4 H + 2049 back
//! ```
//!
//! "More" is any number of zero bytes, 255 each, and one other byte. A first byte above 17 is a run of that many
//! literals less 17.
//!
//! LZO-RLE is the same behind two bytes, 17 and a version that is not zero (and so at least five bytes long), with one
//! instruction more: `00011LLL word byte`, where `word / 4` is 16383, is a run of 4 + L + 8 byte zeros. It is read, not
//! written.

use crate::{CodecError, CodecTag};

const TAG: CodecTag = CodecTag::XorLzo;

/// Instructions: far, middle and near copies.
const FAR: usize = 16;
const MIDDLE: usize = 32;
/// Farthest bytes that a near, a middle and a far copy reach.
const NEAR_MAX: usize = 0x800;
const MIDDLE_MAX: usize = 0x4000;
const FAR_MAX: usize = 0xBFFF;
/// Longest near copy, longest middle and far ones without more bytes.
const NEAR_LEN_MAX: usize = 8;
const MIDDLE_LEN_MAX: usize = 33;
const FAR_LEN_MAX: usize = 9;
/// What a first byte above this says more is literals.
const FIRST: usize = 17;
/// Most literals a first byte can announce, and a run without more bytes.
const FIRST_MAX: usize = 255 - FIRST;
const RUN_MAX: usize = 18;
/// The instruction that ends a stream: a far copy of 3 bytes from 16384 back.
const END: [u8; 3] = [0x11, 0, 0];
/// The shortest stream that says its version, and the byte before it.
const VERSIONED_LEN_MIN: usize = 5;
const VERSION_FOLLOWS: u8 = 17;
/// In a stream with a version: shortest run of zeros, and the distance that says it is one.
const ZEROS_MIN: usize = 4;
const ZEROS_DISTANCE: usize = 0x3FFF;

/// Bytes that are looked up.
const KEY: usize = 4;
/// Log2 of the fewest and the most slots of the table.
const SLOTS_LOG: std::ops::RangeInclusive<u32> = 9..=14;
/// Log2 of the places without a find after which every second is tried, then every third, and so on.
const PATIENCE_LOG: usize = 5;

/// Compresses. Holds the table of places.
#[derive(Debug, Default)]
pub struct Encoder {
    table: Vec<u32>,
}

impl Encoder {
    /// Compresses `source` to the front of `out` and returns the size in bytes; `None` where `out` is too small or
    /// `source` too large (4 GiB).
    pub fn compress(&mut self, source: &[u8], out: &mut [u8]) -> Option<usize> {
        u32::try_from(source.len()).ok()?;
        let slots_log = self.clear(source.len());
        let mut stream = Stream { out, at: 0 };
        let (mut i, mut new, mut misses) = (0, 0, 0usize);
        while let Some(key) = key(source, i) {
            let slot = &mut self.table[(key.wrapping_mul(0x9E37_79B1) >> (u32::BITS - slots_log)) as usize];
            let found = std::mem::replace(slot, i as u32) as usize;
            if found >= i || i - found > FAR_MAX || self::key(source, found) != Some(key) {
                misses += 1;
                i += 1 + (misses >> PATIENCE_LOG);
                continue;
            }
            let len = KEY + common(&source[found + KEY..], &source[i + KEY..]);
            stream.literals(&source[new..i])?;
            stream.copy(i - found, len)?;
            i += len;
            (new, misses) = (i, 0);
        }
        stream.literals(&source[new..])?;
        stream.put(&END)?;
        Some(stream.at)
    }

    /// Empties the table, sized for a source of `len` bytes; returns the log2 of its slots.
    fn clear(&mut self, len: usize) -> u32 {
        let slots_log = (len / 2).max(1).ilog2().clamp(*SLOTS_LOG.start(), *SLOTS_LOG.end());
        self.table.clear();
        self.table.resize(1 << slots_log, 0);
        slots_log
    }
}

/// The bytes that are looked up.
fn key(source: &[u8], at: usize) -> Option<u32> {
    source.get(at..)?.first_chunk::<KEY>().map(|bytes| u32::from_le_bytes(*bytes))
}

/// How many bytes at the front of both are equal; `b` is the shorter one.
fn common(a: &[u8], b: &[u8]) -> usize {
    let mut len = 0;
    for (a, b) in a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0) {
        let differing = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        if differing != 0 {
            return len + differing.trailing_zeros() as usize / 8;
        }
        len += 8;
    }
    len + a[len..].iter().zip(&b[len..]).take_while(|(a, b)| a == b).count()
}

/// Writes instructions.
struct Stream<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Stream<'_> {
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.out.get_mut(self.at..self.at + bytes.len())?.copy_from_slice(bytes);
        self.at += bytes.len();
        Some(())
    }

    /// Writes `code` with `len - 2` where `len` is at most `max`, else `code` with zero and what is above `max`.
    fn head(&mut self, code: usize, field: usize, len: usize, max: usize) -> Option<()> {
        if len <= max {
            return self.put(&[(code | field) as u8]);
        }
        self.put(&[code as u8])?;
        let mut more = len - max;
        while more > 255 {
            self.put(&[0])?;
            more -= 255;
        }
        self.put(&[more as u8])
    }

    /// A run of literals; where it can be, in the two bits of the last copy.
    fn literals(&mut self, run: &[u8]) -> Option<()> {
        match run.len() {
            0 => return Some(()),
            len @ 1..=FIRST_MAX if self.at == 0 => self.put(&[(FIRST + len) as u8])?,
            len @ 1..=3 => *self.out.get_mut(self.at.checked_sub(2)?)? |= len as u8,
            len => self.head(0, len.wrapping_sub(3), len, RUN_MAX)?,
        }
        self.put(run)
    }

    /// A copy of `len` bytes from `distance` back.
    fn copy(&mut self, distance: usize, len: usize) -> Option<()> {
        if len <= NEAR_LEN_MAX && distance <= NEAR_MAX {
            let back = distance - 1;
            return self.put(&[((len - 1) << 5 | (back & 7) << 2) as u8, (back >> 3) as u8]);
        }
        let back = if distance <= MIDDLE_MAX {
            self.head(MIDDLE, len - 2, len, MIDDLE_LEN_MAX)?;
            distance - 1
        } else {
            let back = distance - MIDDLE_MAX;
            self.head(FAR | back >> 11 & 8, len - 2, len, FAR_LEN_MAX)?;
            back & (MIDDLE_MAX - 1)
        };
        self.put(&((back << 2) as u16).to_le_bytes())
    }
}

/// Expands `source` to the front of `out` and returns the size in bytes.
///
/// # Errors
/// `source` is no LZO1X stream, holds more than `out` does, or goes on behind its end.
pub fn expand(source: &[u8], out: &mut [u8]) -> Result<usize, CodecError> {
    let mut reader = Reader { rest: source, out, at: 0, zero_runs: false };
    reader.version();
    // Literals that came before the next instruction; 4 is four or more.
    let mut before = 0;
    if let Some(first) = reader.rest.first().map(|b| usize::from(*b)).filter(|b| *b > FIRST) {
        reader.byte()?;
        reader.literals(first - FIRST)?;
        before = (first - FIRST).min(4);
    }
    loop {
        let head = reader.byte()?;
        let (distance, len, literals) = match (head, before) {
            (0..FAR, 0) => {
                let len = 3 + reader.more(head, 15)?;
                reader.literals(len)?;
                before = 4;
                continue;
            }
            (0..FAR, 1..=3) => ((reader.byte()? << 2) + (head >> 2) + 1, 2, head & 3),
            (0..FAR, _) => ((reader.byte()? << 2) + (head >> 2) + NEAR_MAX + 1, 3, head & 3),
            (FAR..MIDDLE, _) if reader.is_zero_run(head) => {
                before = reader.zeros(head)?;
                reader.literals(before)?;
                continue;
            }
            (FAR..MIDDLE, _) => {
                let len = 2 + reader.more(head & 7, 7)?;
                let word = reader.word()?;
                let distance = MIDDLE_MAX + ((head & 8) << 11) + (word >> 2);
                if distance == MIDDLE_MAX {
                    return reader.end(len);
                }
                (distance, len, word & 3)
            }
            (MIDDLE..64, _) => {
                let len = 2 + reader.more(head & 31, 31)?;
                let word = reader.word()?;
                ((word >> 2) + 1, len, word & 3)
            }
            _ => ((reader.byte()? << 3) + (head >> 2 & 7) + 1, (head >> 5) + 1, head & 3),
        };
        reader.copy(distance, len)?;
        reader.literals(literals)?;
        before = literals;
    }
}

/// Reads instructions and carries them out.
struct Reader<'a> {
    rest: &'a [u8],
    out: &'a mut [u8],
    at: usize,
    /// Whether the stream is LZO-RLE.
    zero_runs: bool,
}

impl Reader<'_> {
    /// Steps over the version where there is one.
    fn version(&mut self) {
        if let [VERSION_FOLLOWS, version, rest @ ..] = self.rest
            && self.rest.len() >= VERSIONED_LEN_MIN
        {
            self.zero_runs = *version != 0;
            self.rest = rest;
        }
    }

    /// Whether the far copy that `head` begins is a run of zeros.
    fn is_zero_run(&self, head: usize) -> bool {
        let word = self.rest.first_chunk().map(|bytes| usize::from(u16::from_le_bytes(*bytes)));
        self.zero_runs && head & 8 != 0 && word.is_some_and(|word| word >> 2 == ZEROS_DISTANCE)
    }

    /// Writes a run of zeros; returns the literals behind it.
    fn zeros(&mut self, head: usize) -> Result<usize, CodecError> {
        let literals = self.word()? & 3;
        let len = ZEROS_MIN + (head & 7) + (self.byte()? << 3);
        self.room(len)?.fill(0);
        self.at += len;
        Ok(literals)
    }

    fn byte(&mut self) -> Result<usize, CodecError> {
        let (byte, rest) = self.rest.split_first().ok_or(CodecError::Truncated(TAG))?;
        self.rest = rest;
        Ok(usize::from(*byte))
    }

    fn word(&mut self) -> Result<usize, CodecError> {
        Ok(self.byte()? | self.byte()? << 8)
    }

    /// A length: `field`, or where that is zero, `max` and more bytes.
    fn more(&mut self, field: usize, max: usize) -> Result<usize, CodecError> {
        if field != 0 {
            return Ok(field);
        }
        let mut len = max;
        loop {
            match self.byte()? {
                0 => len += 255,
                last => return Ok(len + last),
            }
        }
    }

    fn literals(&mut self, len: usize) -> Result<(), CodecError> {
        let (run, rest) = self.rest.split_at_checked(len).ok_or(CodecError::Truncated(TAG))?;
        self.room(len)?.copy_from_slice(run);
        self.rest = rest;
        self.at += len;
        Ok(())
    }

    /// The next `len` bytes of the output.
    fn room(&mut self, len: usize) -> Result<&mut [u8], CodecError> {
        self.out.get_mut(self.at..self.at + len).ok_or(CodecError::OutOfRange(TAG))
    }

    /// Repeats `len` bytes from `distance` back; they may overlap what they make.
    fn copy(&mut self, distance: usize, len: usize) -> Result<(), CodecError> {
        self.room(len)?;
        let start = self.at.checked_sub(distance).filter(|start| *start < self.at);
        let start = start.ok_or(CodecError::OutOfRange(TAG))?;
        let end = self.at + len;
        while self.at < end {
            // All that lies there by now, a multiple of `distance`, repeats itself.
            let len = (self.at - start).min(end - self.at);
            self.out.copy_within(start..start + len, self.at);
            self.at += len;
        }
        Ok(())
    }

    fn end(self, len: usize) -> Result<usize, CodecError> {
        if len == 3 && self.rest.is_empty() { Ok(self.at) } else { Err(CodecError::Damaged(TAG)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expanded(source: &[u8]) -> Result<Vec<u8>, CodecError> {
        let mut out = [0; 100_000];
        let len = expand(source, &mut out)?;
        Ok(out[..len].to_vec())
    }

    /// A stream from first literals, instructions, and the end.
    fn stream(literals: &[u8], instructions: &[u8]) -> Vec<u8> {
        [&[(FIRST + literals.len()) as u8], literals, instructions, &END].concat()
    }

    #[test]
    fn every_instruction_does_what_the_format_says() {
        let same = |source: &[u8], expected: &[u8]| {
            assert_eq!(expanded(source).as_deref(), Ok(expected), "{source:?}")
        };
        same(&END, b"");
        same(&stream(b"abcd", &[]), b"abcd");
        // Near: 3, 4, 5 and 8 bytes; with literals behind.
        same(&stream(b"abcde", &[0b0100_1100, 0]), b"abcdebcd");
        same(&stream(b"abcde", &[0b0110_1100, 0]), b"abcdebcde");
        same(&stream(b"abcde", &[0b1000_0000, 0]), b"abcdeeeeee");
        same(&stream(b"abcde", &[0b1110_0111, 0, b'x', b'y', b'z']), b"abcdededededexyz");
        // Middle: short, and with more bytes.
        same(&stream(b"abcd", &[32 | 3, 3 << 2, 0]), b"abcdabcda");
        same(&stream(b"a", &[16 + 16, 0, 7, 0, 0]), &[&[b'a'; 1][..], &[b'a'; 33 + 255 + 7]].concat());
        // After 1 to 3 literals a small head is a copy of 2 bytes, after more a copy of 3 from far, after none a run.
        same(&stream(b"ab", &[0b0000_0100, 0]), b"abab");
        same(&stream(b"abc", &[32 | 2, 2 << 2, 0, 2, b'v', b'w', b'x', b'y', b'z']), b"abcabcavwxyz");
        // A run with more bytes.
        let run = [&[0, 0, 2][..], &[b'r'; 18 + 255 + 2], &END].concat();
        same(&run, &[b'r'; 18 + 255 + 2]);
    }

    #[test]
    fn far_copies_reach_as_far_as_they_should() {
        let start = [&[0][..], &[0; 78], &[(20_000 - 18 - 78 * 255) as u8]].concat();
        let data: Vec<u8> = (0..20_000u32).map(|i| ((i * i) >> 5) as u8).collect();
        let far = |head: u8, word: u16| [&start[..], &data, &[head], &word.to_le_bytes(), &END].concat();
        let copied = expanded(&far(16 | 5, 100 << 2)).expect("expands");
        assert_eq!(copied[20_000..], data[20_000 - 16_484..][..7]);
        assert_eq!(expanded(&far(16 | 8 | 5, 100 << 2)), Err(CodecError::OutOfRange(TAG)));
        let after_four = expanded(&[&start[..], &data, &[0b0000_0100, 3], &END].concat()).expect("expands");
        assert_eq!(after_four[20_000..], data[20_000 - (2049 + 1 + 12)..][..3]);
    }

    #[test]
    fn runs_of_zeros_are_read_where_the_stream_says_its_version() {
        let rle = |instructions: &[u8]| {
            expanded(
                &[&[17, 1, FIRST as u8 + 5, b'a', b'b', b'c', b'd', b'e'][..], instructions, &END].concat(),
            )
        };
        let zeros = |n: usize, tail: &[u8]| Ok([&b"abcde"[..], &vec![0; n], tail].concat());
        assert_eq!(rle(&[]).as_deref(), Ok(&b"abcde"[..]));
        assert_eq!(rle(&[0x18, 0xFC, 0xFF, 0]), zeros(4, b""));
        assert_eq!(rle(&[0x1B, 0xFE, 0xFF, 2, b'x', b'y']), zeros(4 + 3 + 16, b"xy"));
        assert_eq!(rle(&[0x1F, 0xFC, 0xFF, 255]), zeros(4 + 7 + 255 * 8, b""));
        // Without the version it is a copy from farther back than there is anything.
        assert_eq!(expanded(&stream(b"abcde", &[0x18, 0xFC, 0xFF, 0])), Err(CodecError::OutOfRange(TAG)));
        assert_eq!(expanded(&[17, 1, 22, 1, 2, 3, 4, 5, 0x18, 0xFC]), Err(CodecError::Truncated(TAG)));
        let room = expand(&[17, 1, 18, b'a', 0x18, 0xFC, 0xFF, 9, 0x11, 0, 0], &mut [0; 70]);
        assert_eq!(room, Err(CodecError::OutOfRange(TAG)));
    }

    #[test]
    fn wrong_streams_are_errors() {
        for source in [
            &[][..],
            &[22],
            &[22, 1, 2],
            &[0],
            &[0, 0, 0],
            &[18, 1, 0x40],
            &[18, 1, 32, 0],
            &[18, 1, 0x11, 0],
        ] {
            assert_eq!(expanded(source), Err(CodecError::Truncated(TAG)), "{source:?}");
        }
        assert_eq!(expanded(&stream(b"abcd", &[0b0101_0000, 0])), Err(CodecError::OutOfRange(TAG)));
        assert_eq!(expanded(&[&END[..], &[0]].concat()), Err(CodecError::Damaged(TAG)));
        assert_eq!(expanded(&[0x12, 1, 0x12, 0, 0]), Err(CodecError::Damaged(TAG)));
        assert_eq!(expand(&stream(b"abcd", &[]), &mut [0; 3]), Err(CodecError::OutOfRange(TAG)));
    }

    #[test]
    fn a_small_output_is_refused() {
        let source = [1, 2, 3, 4, 5, 6, 7, 8].repeat(100);
        let mut out = [0; 200];
        let len = Encoder::default().compress(&source, &mut out).expect("fits");
        for room in 0..len {
            assert_eq!(Encoder::default().compress(&source, &mut out[..room]), None);
        }
        assert_eq!(Encoder::default().compress(&source, &mut out[..len]), Some(len));
    }
}
