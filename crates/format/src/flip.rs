//! The one bit whose flipping made a checksum wrong, where one bit explains it.
//!
//! The CRC is linear: a flipped bit changes it by a value, its syndrome, that depends on the bit's place
//! alone. So the syndromes of all bits of a block are a table, and what a checksum is wrong by is looked up
//! in it. Any other damage meets one of the 32,768 syndromes once in 131,072 times; who mends by this judges
//! the result as ever.

use crate::crc;
use crate::{BLOCK_SIZE, Block};
use std::fmt;
use std::ops::Range;

/// A bit of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bit {
    /// Byte of the block.
    pub byte: u16,
    /// Bit of the byte, 0 the least significant.
    pub bit: u8,
}

impl Bit {
    /// The bit the other way round.
    pub fn flip(self, block: &mut Block) {
        block.0[usize::from(self.byte)] ^= 1 << self.bit;
    }
}

impl fmt::Display for Bit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bit {} of byte {}", self.bit, self.byte)
    }
}

/// Where a flipped bit is among bytes whose CRC it made wrong by a value: its byte, and the bit of that; `None`
/// where no single bit does that. Costs eight comparisons a byte.
pub fn find_in(bytes: usize, wrong_by: u32) -> Option<(usize, u8)> {
    let table = table();
    let mut change: [u32; 8] = std::array::from_fn(|bit| table[1 << bit]);
    for byte in (0..bytes).rev() {
        if let Some(bit) = change.iter().position(|&change| change == wrong_by) {
            return Some((byte, bit as u8));
        }
        earlier(&mut change, &table);
    }
    None
}

/// What each byte changes a CRC by.
fn table() -> Vec<u32> {
    (0..=u8::MAX).map(|byte| crc::chain(0, &[byte])).collect()
}

/// Lets what bits change go through one more byte.
fn earlier(change: &mut [u32; 8], table: &[u32]) {
    change.iter_mut().for_each(|c| *c = *c >> 8 ^ table[(*c & 0xff) as usize]);
}

/// The bytes that a checksum covers, in this order.
#[derive(Debug, Clone)]
pub enum Covered {
    /// Bytes of the block; a byte may come more than once.
    Bytes(Range<usize>),
    /// So many zeros.
    Zeros(usize),
}

/// The change of a kind of checksum by one flipped bit, for each bit of a block.
#[derive(Debug)]
pub struct Syndromes {
    /// Sorted by syndrome.
    bits: Vec<(u32, Bit)>,
}

impl Syndromes {
    /// Of a checksum over `covered`, stored as four bytes at `stored`, which are not covered.
    pub fn new(covered: &[Covered], stored: usize) -> Syndromes {
        let table = table();
        let mut of = vec![0u32; BLOCK_SIZE * 8];
        // What a bit of the byte in hand has changed when all bytes behind it are through.
        let mut change: [u32; 8] = std::array::from_fn(|bit| table[1 << bit]);
        let earlier = |change: &mut [u32; 8]| earlier(change, &table);
        for part in covered.iter().rev() {
            match part {
                Covered::Zeros(count) => (0..*count).for_each(|_| earlier(&mut change)),
                Covered::Bytes(range) => {
                    for byte in range.clone().rev() {
                        (0..8).for_each(|bit| of[byte * 8 + bit] ^= change[bit]);
                        earlier(&mut change);
                    }
                }
            }
        }
        (0..32).for_each(|bit| of[stored * 8 + bit] ^= 1 << bit);
        let place = |at: usize| Bit { byte: (at / 8) as u16, bit: (at % 8) as u8 };
        let mut bits: Vec<_> =
            of.into_iter().enumerate().filter(|&(_, s)| s != 0).map(|(at, s)| (s, place(at))).collect();
        bits.sort_unstable();
        Syndromes { bits }
    }

    /// Of a checksum over a whole block, stored in it at `stored`, where it counts as zeros: [`crc::f2fs_without`].
    pub(crate) fn of_block(stored: Range<usize>) -> Syndromes {
        let covered = [
            Covered::Bytes(0..stored.start),
            Covered::Zeros(stored.len()),
            Covered::Bytes(stored.end..BLOCK_SIZE),
        ];
        Syndromes::new(&covered, stored.start)
    }

    /// The bit that makes the stored checksum the computed one, where there is one.
    pub fn find(&self, stored: u32, computed: u32) -> Option<Bit> {
        let wrong_by = stored ^ computed;
        let at = self.bits.partition_point(|&(syndrome, _)| syndrome < wrong_by);
        match self.bits.get(at..)? {
            [(first, _), (second, _), ..] if first == second && *first == wrong_by => None,
            [(syndrome, bit), ..] if *syndrome == wrong_by => Some(*bit),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern() -> Box<Block> {
        let mut block = Block::boxed();
        block.0.iter_mut().enumerate().for_each(|(i, b)| *b = (i * 31 + i / 7) as u8);
        block
    }

    #[test]
    fn every_single_flipped_bit_is_found_and_no_other_damage_is_mistaken_for_one() {
        let covered = [
            Covered::Bytes(4000..4004),
            Covered::Bytes(0..100),
            Covered::Zeros(4),
            Covered::Bytes(104..4096),
        ];
        let checksum = |b: &Block| {
            let crc = crc::chain(crc::chain(77, &b.0[4000..4004]), &b.0[..100]);
            crc::chain(crc::chain(crc, &[0; 4]), &b.0[104..])
        };
        let stored = |b: &Block| u32::from_le_bytes(b.0[100..104].try_into().unwrap());
        let mut whole = pattern();
        let right = checksum(&whole);
        whole.0[100..104].copy_from_slice(&right.to_le_bytes());
        let syndromes = Syndromes::new(&covered, 100);
        let mut block = whole.clone();
        for byte in (0..4096).step_by(13).chain(96..108).chain(3998..4006) {
            for bit in 0..8 {
                let flipped = Bit { byte, bit };
                flipped.flip(&mut block);
                assert_eq!(syndromes.find(stored(&block), checksum(&block)), Some(flipped));
                flipped.flip(&mut block);
            }
        }
        assert_eq!(syndromes.find(stored(&block), checksum(&block)), None, "nothing is wrong");
        let many = (0..2000).filter(|&i| {
            let mut block = whole.clone();
            block.0[i] ^= 0x11;
            block.0[i + 1000] ^= 0x80;
            syndromes.find(stored(&block), checksum(&block)).is_some()
        });
        assert_eq!(many.count(), 0);
    }
}
