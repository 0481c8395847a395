//! Caches and tables that drop and list the same entries each time.
//!
//! Invariant: which entries a cache holds, and in which order a table lists them, depends on what was asked for in which
//! order, and on the capacity, alone: hashes have the same seed and a cache has as many parts on every machine. So a run on a
//! clock of its own reads and writes the same blocks each time, and its failures come again.
//! Locks: those of the library, leaves.

use foldhash::fast::FixedState;
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{OptionsBuilder, UnitWeighter};
use std::hash::Hash;

/// Parts of a cache, each with a lock of its own.
const PARTS: usize = 16;

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
}
