//! Where the bytes of a base occur: a hash table of those at every eighth place, filled as far as it is needed.
//!
//! Entries of earlier bases stay: what is found is compared, and only where this base is indexed. So a result depends
//! on the base and the ranges asked for alone.

use crate::{PAGE_SIZE, Page};

/// Log2 of the table's slots.
const SLOTS_LOG: u32 = 10;
/// Distance of the places that are indexed.
const STRIDE: usize = 8;
/// Bytes that are looked up: the low ones of a word.
pub(crate) const KEY: usize = 6;
/// Places that are indexed together.
const CHUNK: usize = 256;

/// The table.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    places: [u16; 1 << SLOTS_LOG],
    /// Bit i: chunk i of the base is indexed.
    chunks: u32,
}

const _: () = assert!(PAGE_SIZE / CHUNK < u32::BITS as usize);

impl Default for Index {
    fn default() -> Self {
        Index { places: [0; 1 << SLOTS_LOG], chunks: 0 }
    }
}

impl Index {
    /// Forgets the base.
    pub(crate) fn clear(&mut self) {
        self.chunks = 0;
    }

    /// Indexes the chunks of `base` from byte `from` to byte `to`, or the base's end.
    #[inline(always)]
    pub(crate) fn cover(&mut self, base: &Page, from: usize, to: usize) {
        let last = to.min(PAGE_SIZE - 1) / CHUNK;
        let wanted = (2 << last) - (1 << (from / CHUNK));
        let mut missing = wanted & !self.chunks;
        self.chunks |= wanted;
        while missing != 0 {
            self.add(base, missing.trailing_zeros() as usize);
            missing &= missing - 1;
        }
    }

    #[inline(always)]
    fn add(&mut self, base: &Page, chunk: usize) {
        let Some(bytes) = base.as_chunks::<CHUNK>().0.get(chunk) else { return };
        for (i, word) in bytes.as_chunks::<STRIDE>().0.iter().enumerate() {
            self.places[slot(u64::from_le_bytes(*word))] = (chunk * CHUNK + i * STRIDE) as u16;
        }
    }

    /// Where in `base` the [`KEY`] bytes are that are at `at` of the page.
    #[inline(always)]
    pub(crate) fn find(&self, base: &Page, page: &Page, at: usize) -> Option<usize> {
        let word = word(page, at)?;
        let place = usize::from(self.places[slot(word)]) % PAGE_SIZE;
        let known = self.chunks >> (place / CHUNK) & 1 != 0;
        (known && key(self::word(base, place)?) == key(word)).then_some(place)
    }
}

/// The bytes at `at`.
#[inline(always)]
fn word(page: &Page, at: usize) -> Option<u64> {
    page.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// The bytes of a word that are looked up, at its upper end.
#[inline(always)]
fn key(word: u64) -> u64 {
    word << (u64::BITS as usize - 8 * KEY)
}

/// Slot of a word, by the bytes of it that are looked up.
#[inline(always)]
fn slot(word: u64) -> usize {
    (key(word).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - SLOTS_LOG)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of which no six occur twice.
    fn base() -> Page {
        std::array::from_fn(|i| if i % 4 < 2 { (i / 4) as u8 } else { (i / 1024 + i % 4 * 16) as u8 })
    }

    #[test]
    fn what_is_covered_is_found_and_nothing_else() {
        let (base, mut index) = (base(), Index::default());
        for (from, to) in [(300, 301), (0, 5), (4000, PAGE_SIZE), (1000, 9999), (0, PAGE_SIZE)] {
            index.clear();
            index.cover(&base, from, to);
            for at in (0..PAGE_SIZE).step_by(STRIDE) {
                let covered = (from / CHUNK..=to / CHUNK).contains(&(at / CHUNK));
                let found = index.find(&base, &base, at);
                assert!(found.is_none_or(|found| covered && found == at), "{at} in {from}..{to}");
            }
            let found = (0..PAGE_SIZE).filter(|at| index.find(&base, &base, *at).is_some()).count();
            let covered = (to / CHUNK).min(PAGE_SIZE / CHUNK - 1) + 1 - from / CHUNK;
            assert!(found * 2 > covered * CHUNK / STRIDE, "{found} of {covered} chunks");
        }
    }

    #[test]
    fn an_earlier_base_leaves_nothing_behind() {
        let (base, mut index) = (base(), Index::default());
        index.cover(&base, 0, PAGE_SIZE);
        index.clear();
        assert!((0..PAGE_SIZE).all(|at| index.find(&base, &base, at).is_none()));
        let other = [7; PAGE_SIZE];
        index.cover(&other, 0, PAGE_SIZE);
        assert!((0..PAGE_SIZE).all(|at| index.find(&other, &base, at).is_none()));
    }
}
