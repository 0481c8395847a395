//! Caches and tables that drop and list the same entries each time.
//!
//! Invariant: which entries a cache holds, and in which order a table lists them, depends on what was asked
//! for in which order, and on the capacity, alone: a key has the same hash and a cache has as many parts on
//! every machine, whatever the width of its words. So a run on a clock of its own reads and writes the same
//! blocks each time, and its failures come again. A table's own order does depend on the machine: who drops
//! entries of one takes them [`in_drop_order`].
//! Locks: those of the library, leaves.

use quick_cache::sync::DefaultLifecycle;
use quick_cache::{OptionsBuilder, UnitWeighter};
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Parts of a cache, each with a lock of its own.
const PARTS: usize = 16;

/// Where the hash of every key begins, and what its last words are multiplied with: digits of pi.
const START: u64 = 0x082e_fa98_ec4e_6c89;
const FACTOR: u64 = 0xc0ac_29b7_c97c_50dd;

/// The hash of foldhash 0.2 for numbers, in the arithmetic that it has on 64-bit machines: where words have
/// 32 bits it calculates another.
pub struct KeyHasher {
    sum: u64,
    words: u128,
    /// Bits of `words` that are in use.
    filled: u32,
}

impl Default for KeyHasher {
    #[inline]
    fn default() -> KeyHasher {
        KeyHasher { sum: START, words: 0, filled: 0 }
    }
}

/// The high and the low half of `x * y`, folded into one.
#[inline(always)]
fn folded(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    product as u64 ^ (product >> 64) as u64
}

impl KeyHasher {
    #[inline(always)]
    fn add(&mut self, number: impl Into<u128>, bits: u32) {
        if self.filled + bits > 128 {
            self.sum = self.folded_sum();
            (self.words, self.filled) = (number.into(), bits);
        } else {
            self.words |= number.into() << self.filled;
            self.filled += bits;
        }
    }

    #[inline(always)]
    fn folded_sum(&self) -> u64 {
        folded(self.words as u64 ^ self.sum, (self.words >> 64) as u64 ^ FACTOR)
    }
}

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u8(byte));
    }

    #[inline(always)]
    fn write_u8(&mut self, number: u8) {
        self.add(number, 8);
    }

    #[inline(always)]
    fn write_u16(&mut self, number: u16) {
        self.add(number, 16);
    }

    #[inline(always)]
    fn write_u32(&mut self, number: u32) {
        self.add(number, 32);
    }

    #[inline(always)]
    fn write_u64(&mut self, number: u64) {
        self.add(number, 64);
    }

    #[inline(always)]
    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }

    #[inline(always)]
    fn finish(&self) -> u64 {
        let hash = if self.filled > 0 { self.folded_sum() } else { self.sum };
        // A cache of the library rotates by half a word to find a key's part. These two make it 32 bits on
        // every machine.
        hash.rotate_left(usize::BITS / 2).rotate_right(32)
    }
}

type FixedState = BuildHasherDefault<KeyHasher>;

/// A table; see the head of this file.
pub type HashMap<K, V> = std::collections::HashMap<K, V, FixedState>;
/// A cache; see the head of this file.
pub type Cache<K, V> = quick_cache::sync::Cache<K, V, UnitWeighter, FixedState>;

/// A cache of so many entries.
pub fn cache<K: Eq + Hash, V: Clone>(capacity: usize) -> Cache<K, V> {
    let options = OptionsBuilder::new()
        .estimated_items_capacity(capacity)
        .weight_capacity(capacity as u64)
        .shards(PARTS)
        .build()
        .expect("both capacities are given");
    Cache::with_options(options, UnitWeighter, FixedState::default(), DefaultLifecycle::default())
}

/// The keys of a table that may be dropped, in an order that is the same on every machine and follows no number.
pub(crate) fn in_drop_order(keys: impl Iterator<Item = u32>) -> Vec<u32> {
    let mut order: Vec<(u64, u32)> = keys.map(|key| (folded(u64::from(key) ^ START, FACTOR), key)).collect();
    order.sort_unstable();
    order.into_iter().map(|(_, key)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of entries, some of which were asked for again.
    fn left() -> Vec<u32> {
        let cache = cache::<u32, ()>(200);
        for entry in 0..2000u32 {
            cache.insert(entry, ());
            cache.get(&(entry / 3));
        }
        (0..2000).filter(|entry| cache.peek(entry).is_some()).collect()
    }

    #[test]
    fn the_same_entries_are_left_each_time() {
        let first = left();
        assert!((100..=200).contains(&first.len()), "{}", first.len());
        assert!((0..5).all(|_| left() == first));
    }

    #[test]
    fn a_key_has_the_same_hash_and_part_on_every_machine() {
        let hash = |key: &dyn Fn(&mut KeyHasher)| {
            let mut hasher = KeyHasher::default();
            key(&mut hasher);
            hasher.folded_sum()
        };
        assert_eq!(hash(&|h| 4711u32.hash(h)), 0x7efb_ad74_9697_d244);
        assert_eq!(hash(&|h| (4711u32, 1u64 << 40).hash(h)), 0xa1e5_1641_5916_c04c);
        assert_eq!(hash(&|h| (1u64, 2u64, 3u8).hash(h)), 0xa7e3_688d_5aa7_5fa4);
        let cache = cache::<u32, ()>(2000);
        for key in 0..1000u32 {
            assert_eq!(cache.shard_index(&key) as u64, hash(&|h| key.hash(h)) >> 32 & 15, "{key}");
        }
    }

    #[test]
    fn the_same_entries_are_left_on_every_machine() {
        let sum = left().iter().fold(0u64, |sum, &entry| sum.wrapping_mul(31).wrapping_add(entry.into()));
        assert_eq!(sum, 0xe483_721c_f6eb_a94c);
        assert_eq!(in_drop_order(0..8), [7, 3, 4, 0, 5, 1, 6, 2]);
    }
}
