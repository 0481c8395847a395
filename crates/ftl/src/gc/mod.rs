//! Collection: blocks are emptied, erased and used again; before a write where it must be, and while the
//! device is idle.
//!
//! A block is collected page by page, so that idle collection stops when a request comes. Emptied blocks are
//! *drained*: they are erased once everything that replaced their content is on flash.

mod moving;
#[cfg(test)]
mod tests;
mod victim;

pub(crate) use moving::Hands;

use crate::blocks::State;
use crate::error::{FtlError, Result};
use crate::nand::{Codec, Nand};
use crate::store::Store;
use crate::streams::reserve;
use alloc::vec::Vec;

/// Blocks collected for one write without a gain, before the choice is made by pages instead of by score.
const PATIENCE: u32 = 4;
/// Score in 256ths of a full block above which idle collection leaves a block alone.
const IDLE_SCORE_MAX: u16 = 240;

/// The block that is being collected, and how far.
///
/// 1. There is a victim exactly while the store counts what is programmed as collection's.
/// 2. No page of the victim before the next one to be looked at holds anything valid.
/// 3. A victim is drained, or retired where it failed, only once nothing in it is valid.
pub(crate) struct Collector {
    /// The block, and the next of its pages.
    victim: Option<(u32, u32)>,
    /// Blocks of data that were erased when wear was looked at last.
    levelled_at: u64,
    /// Memory for a logical page as it is stored; none where pages have no content.
    plain: Vec<u8>,
}

impl Collector {
    pub(crate) fn new(plain: Vec<u8>) -> Collector {
        Collector { victim: None, levelled_at: 0, plain }
    }

    /// Memory in use, in bytes.
    pub(crate) fn ram_bytes(&self) -> usize {
        self.plain.len()
    }

    /// Collects until a write has all the free blocks that it can need.
    pub(crate) fn make_room<N: Nand, C: Codec>(&mut self, hands: &mut Hands<'_, N, C>) -> Result<()> {
        let low = reserve(&hands.store.medium.g, &*hands.store.medium.policy);
        let is_enough =
            |store: &Store<N>| store.medium.blocks.free_count() > low && store.retiring.is_empty();
        if is_enough(hands.store) {
            return Ok(());
        }
        let limit = 4 * hands.store.medium.g.blocks;
        for tried in 0..limit {
            let by_pages = tried >= PATIENCE;
            let wanted = (low + 1).saturating_sub(hands.store.medium.blocks.free_count());
            hands.store.release_drained(by_pages, wanted)?;
            if is_enough(hands.store) {
                return Ok(());
            }
            if self.victim.is_none() && !self.choose(hands.store, by_pages) {
                break;
            }
            hands.store.medium.counters.collections_waited += 1;
            while self.victim.is_some() {
                self.step(hands, by_pages)?;
            }
        }
        hands.store.release_drained(true, u32::MAX)?;
        if hands.store.medium.blocks.free_count() > low / 2 { Ok(()) } else { Err(FtlError::WornOut) }
    }

    /// Collects while the controller's clock is before `until` and there is something to gain. Returns
    /// whether anything was done.
    pub(crate) fn idle<N: Nand, C: Codec>(
        &mut self,
        hands: &mut Hands<'_, N, C>,
        until: u64,
    ) -> Result<bool> {
        let medium = &hands.store.medium;
        let wanted = reserve(&medium.g, &*medium.policy) + hands.store.config.idle_blocks;
        let mut worked = false;
        while hands.store.medium.nand.now() < until && self.idle_step(hands, wanted)? {
            worked = true;
        }
        Ok(worked)
    }

    /// The least piece of idle work: an erase, a page moved, or a page of the map. `false`: there is nothing to do.
    fn idle_step<N: Nand, C: Codec>(&mut self, hands: &mut Hands<'_, N, C>, wanted: u32) -> Result<bool> {
        let store = &mut *hands.store;
        if self.victim.is_none() {
            if store.release_drained(false, 1)? {
                return Ok(true);
            }
            // What is drained will be free.
            let coming = store.free_or_drained();
            let gain = store.medium.blocks.cheapest().is_some_and(|(_, score)| score <= IDLE_SCORE_MAX);
            if store.retiring.is_empty() && (coming >= wanted as usize || !gain) {
                return store.idle_checkpoint();
            }
            store.mark_in_use()?;
            if !self.choose(store, false) {
                return Ok(false);
            }
            store.medium.counters.collections_idle += 1;
        }
        self.step(hands, false)?;
        Ok(true)
    }

    /// Moves one page of the victim that holds something valid, or ends with it.
    fn step<N: Nand, C: Codec>(&mut self, hands: &mut Hands<'_, N, C>, squeeze: bool) -> Result<()> {
        let Some((block, page)) = self.victim else { return Ok(()) };
        let Store { medium, map, .. } = &mut *hands.store;
        let begun = medium.nand.now();
        let first = medium.g.first_page(block);
        let end = first + u32::from(medium.blocks.get(block).written);
        // Where nothing is left the counts need not be looked at.
        let left = medium.blocks.get(block).live > 0;
        let next = if left { map.table.next_live(&mut medium.nand, first + page, end)? } else { None };
        if let Some(at) = next {
            hands.move_page(at, squeeze, &mut self.plain)?;
            let medium = &mut hands.store.medium;
            medium.counters.move_ns += medium.nand.now() - begun;
            self.victim = Some((block, at - first + 1));
            return Ok(());
        }
        self.end(hands.store, block)
    }

    /// Nothing of the victim is valid any more.
    fn end<N: Nand>(&mut self, store: &mut Store<N>, block: u32) -> Result<()> {
        self.take_up(store, None);
        if store.medium.blocks.get(block).occupied > 0 {
            let first = store.medium.g.first_page(block);
            return Err(FtlError::Corrupt("data in a collected block that no map entry names", first));
        }
        if store.medium.blocks.get(block).state == State::Retiring {
            store.write_trims()?;
            store.settle_all()?;
            store.medium.retire(block);
            return Ok(());
        }
        store.drain(block);
        Ok(())
    }
}
