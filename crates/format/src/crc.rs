//! F2FS's CRC-32: the IEEE polynomial seeded with the magic, without the final inversion.

use crate::limits::MAGIC;
use std::ops::Range;

/// CRC of `bytes` seeded with `seed` (chaining: pass the previous result).
pub fn chain(seed: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(!seed);
    hasher.update(bytes);
    !hasher.finalize()
}

/// CRC of `bytes` seeded with F2FS's magic, as used by superblock, checkpoint and orphan blocks.
pub fn f2fs(bytes: &[u8]) -> u32 {
    chain(MAGIC, bytes)
}

/// The same with a range of the bytes taken for zeros, as where a checksum is part of what it covers.
pub fn f2fs_without(bytes: &[u8], range: Range<usize>) -> u32 {
    const ZEROS: [u8; 8] = [0; 8];
    let before = chain(MAGIC, &bytes[..range.start]);
    chain(chain(before, &ZEROS[..range.len()]), &bytes[range.end..])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bit-by-bit definition, to check the table-driven library against.
    fn reference(mut crc: u32, bytes: &[u8]) -> u32 {
        for &b in bytes {
            crc ^= u32::from(b);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
            }
        }
        crc
    }

    #[test]
    fn agrees_with_the_bitwise_definition() {
        let bytes: Vec<u8> = (0..1000u32).map(|i| (i * 7 + 3) as u8).collect();
        for len in [0, 1, 7, 192, 1000] {
            assert_eq!(f2fs(&bytes[..len]), reference(MAGIC, &bytes[..len]));
        }
    }

    #[test]
    fn chaining_equals_one_pass() {
        assert_eq!(chain(chain(5, b"abc"), b"def"), chain(5, b"abcdef"));
    }
}
