//! Every block: its state, what is valid in it, how worn it is; which is collected next, and which are free.
//!
//! Full blocks are in doubly linked lists by their score, and in others by how many of their pages hold
//! anything valid, so that the choice of a victim by either and a change of both take constant time. Free
//! blocks are ordered by wear, for each unit.

use crate::WHOLE;
use crate::nand::Geometry;
use crate::policy::Policy;
use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

/// Lists by score, or by pages: a block as a full one is in the last.
const BUCKETS: usize = 257;
/// No block.
pub(crate) const NONE: u32 = u32::MAX;

/// What a block is used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// Part of the map's region.
    Map = 0,
    /// Never to be used again.
    Bad = 1,
    /// Holds nothing that is wanted.
    Free = 2,
    /// A log writes it.
    Open = 3,
    /// Written; may be collected.
    Full = 4,
    /// Being collected.
    Victim = 5,
    /// Collected; waits until what replaced its content is on flash.
    Drained = 6,
    /// A program failed: its content must go elsewhere.
    Retiring = 7,
}

impl State {
    pub(crate) fn from(byte: u8) -> Option<State> {
        const ALL: [State; 8] = [
            State::Map,
            State::Bad,
            State::Free,
            State::Open,
            State::Full,
            State::Victim,
            State::Drained,
            State::Retiring,
        ];
        ALL.get(usize::from(byte)).copied()
    }
}

/// The use of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockUse {
    /// The map.
    Map,
    /// Unusable.
    Bad,
    /// Nothing.
    Free,
    /// It is being written.
    Open,
    /// Data.
    Full,
}

/// A block, as it is seen from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockInfo {
    /// Its use.
    pub usage: BlockUse,
    /// Times it was erased.
    pub erases: u32,
    /// Bytes that collecting it would move.
    pub valid_bytes: u32,
    /// Pages written.
    pub written: u16,
    /// Mean predicted ratio of its valid uncompressed pages in units of 1 / [`WHOLE`](crate::WHOLE); 200
    /// where there are none.
    pub ratio: u8,
}

/// One block.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    /// When something in it was last replaced, on the clock of records.
    pub(crate) touched: u64,
    pub(crate) erases: u32,
    /// Sum of [`Policy::occupies`] over what is valid.
    pub(crate) occupied: u32,
    /// Sum of the predicted ratios of its valid uncompressed pages.
    pub(crate) ratios: u32,
    /// Valid uncompressed pages.
    pub(crate) plain: u16,
    /// Pages written.
    pub(crate) written: u16,
    /// Flash pages that hold anything valid.
    pub(crate) live: u16,
    pub(crate) state: State,
    /// The log that writes it, or wrote it last.
    pub(crate) log: u8,
    /// Erased, and nothing happened since.
    pub(crate) clean: bool,
}

/// Neighbours of a block in its list.
#[derive(Debug, Clone, Copy)]
struct Link {
    prev: u32,
    next: u32,
    bucket: u16,
}

/// Lists of blocks by a number below [`BUCKETS`]; a block is in one of them or in none.
struct Lists {
    heads: Vec<u32>,
    links: Vec<Link>,
    /// No list before this one has a block.
    lowest: usize,
}

impl Lists {
    fn new(blocks: u32) -> Lists {
        let link = Link { prev: NONE, next: NONE, bucket: 0 };
        Lists { heads: vec![NONE; BUCKETS], links: vec![link; blocks as usize], lowest: BUCKETS }
    }

    fn bucket(&self, block: u32) -> u16 {
        self.links[block as usize].bucket
    }

    fn link(&mut self, block: u32, bucket: u16) {
        let head = self.heads[usize::from(bucket)];
        if head != NONE {
            self.links[head as usize].prev = block;
        }
        self.links[block as usize] = Link { prev: NONE, next: head, bucket };
        self.heads[usize::from(bucket)] = block;
        self.lowest = self.lowest.min(usize::from(bucket));
    }

    fn unlink(&mut self, block: u32) {
        let Link { prev, next, bucket } = self.links[block as usize];
        match prev {
            NONE => self.heads[usize::from(bucket)] = next,
            _ => self.links[prev as usize].next = next,
        }
        if next != NONE {
            self.links[next as usize].prev = prev;
        }
    }

    /// A block of the first list that has one, and which list that is.
    fn first(&mut self) -> Option<(u32, u16)> {
        while self.lowest < BUCKETS {
            let head = self.heads[self.lowest];
            if head != NONE {
                return Some((head, self.lowest as u16));
            }
            self.lowest += 1;
        }
        None
    }
}

/// All blocks.
///
/// 1. A block is in both lists of victims exactly while it is [`State::Full`], and in its unit's free ones
///    exactly while it is [`State::Free`].
/// 2. Its places in the lists are those of its score and of its pages at the last [`Blocks::rescore`], which
///    follows every change of either.
/// 3. `free_count` is the number of free blocks of all units; a free block's wear does not change.
pub(crate) struct Blocks {
    all: Vec<Block>,
    /// Full blocks by score.
    scores: Lists,
    /// Full blocks by pages that hold anything valid.
    lives: Lists,
    free: Vec<BTreeSet<(u32, u32)>>,
    free_count: u32,
    block_bytes: u32,
    pages_per_block: u32,
    pub(crate) most_erases: u32,
}

impl Blocks {
    pub(crate) fn new(g: &Geometry) -> Blocks {
        let block = Block {
            touched: 0,
            erases: 0,
            occupied: 0,
            ratios: 0,
            plain: 0,
            written: 0,
            live: 0,
            state: State::Map,
            log: 0,
            clean: false,
        };
        Blocks {
            all: vec![block; g.blocks as usize],
            scores: Lists::new(g.blocks),
            lives: Lists::new(g.blocks),
            free: vec![BTreeSet::new(); g.units.max(1) as usize],
            free_count: 0,
            block_bytes: g.block_bytes(),
            pages_per_block: g.pages_per_block,
            most_erases: 0,
        }
    }

    pub(crate) fn get(&self, block: u32) -> &Block {
        &self.all[block as usize]
    }

    pub(crate) fn get_mut(&mut self, block: u32) -> &mut Block {
        &mut self.all[block as usize]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Block)> {
        (0..).zip(&self.all)
    }

    /// Free blocks.
    pub(crate) fn free_count(&self) -> u32 {
        self.free_count
    }

    /// Changes what a block is used for.
    pub(crate) fn set_state(&mut self, block: u32, state: State, policy: &dyn Policy) {
        let before = self.get(block).state;
        if before == State::Full {
            self.scores.unlink(block);
            self.lives.unlink(block);
        }
        if before == State::Free {
            let key = (self.get(block).erases, block);
            let unit = self.unit(block);
            if self.free[unit].remove(&key) {
                self.free_count -= 1;
            }
        }
        self.get_mut(block).state = state;
        if state == State::Full {
            self.scores.link(block, self.score_bucket(block, policy));
            self.lives.link(block, self.live_bucket(block));
        }
        if state == State::Free {
            let key = (self.get(block).erases, block);
            let unit = self.unit(block);
            self.free[unit].insert(key);
            self.free_count += 1;
        }
    }

    /// A block was erased.
    pub(crate) fn erased(&mut self, block: u32) {
        debug_assert!(self.get(block).state != State::Free && self.get(block).state != State::Full);
        let b = self.get_mut(block);
        b.erases += 1;
        (b.written, b.live, b.occupied, b.ratios, b.plain, b.clean) = (0, 0, 0, 0, 0, true);
        self.most_erases = self.most_erases.max(self.get(block).erases);
    }

    /// Puts a block into the lists of its score and of its pages again, after what is valid in it changed.
    #[inline]
    pub(crate) fn rescore(&mut self, block: u32, policy: &dyn Policy) {
        if self.get(block).state != State::Full {
            return;
        }
        let (score, live) = (self.score_bucket(block, policy), self.live_bucket(block));
        if score != self.scores.bucket(block) {
            self.scores.unlink(block);
            self.scores.link(block, score);
        }
        if live != self.lives.bucket(block) {
            self.lives.unlink(block);
            self.lives.link(block, live);
        }
    }

    /// The block whose collection costs least, and its score in 256ths of a full one.
    pub(crate) fn cheapest(&mut self) -> Option<(u32, u16)> {
        self.scores.first()
    }

    /// The block with the fewest pages that hold anything valid, to a 256th of a block.
    pub(crate) fn emptiest(&mut self) -> Option<u32> {
        self.lives.first().map(|(block, _)| block)
    }

    /// All blocks, in order, as they are seen from outside.
    pub(crate) fn infos(&self) -> impl Iterator<Item = BlockInfo> {
        self.all.iter().map(|b| BlockInfo {
            usage: match b.state {
                State::Map => BlockUse::Map,
                State::Bad => BlockUse::Bad,
                State::Free => BlockUse::Free,
                State::Open => BlockUse::Open,
                State::Full | State::Victim | State::Drained | State::Retiring => BlockUse::Full,
            },
            erases: b.erases,
            valid_bytes: b.occupied,
            written: b.written,
            ratio: b.ratios.checked_div(u32::from(b.plain)).map_or(WHOLE, |r| r.min(u32::from(WHOLE)) as u8),
        })
    }

    /// Memory in use, in bytes.
    pub(crate) fn ram_bytes(&self) -> usize {
        let each = size_of::<Block>() + 2 * size_of::<Link>();
        let heads = (self.scores.heads.len() + self.lives.heads.len()) * size_of::<u32>();
        self.all.len() * each + heads + self.free_count as usize * size_of::<(u32, u32)>()
    }

    /// The free block with the least wear (or the most), on this unit if it has one.
    pub(crate) fn pick_free(&self, unit: u32, most_worn: bool) -> Option<u32> {
        let of =
            |set: &BTreeSet<(u32, u32)>| if most_worn { set.last().copied() } else { set.first().copied() };
        let own = self.free.get(unit as usize).and_then(of);
        let other = || {
            let all = self.free.iter().filter_map(of);
            if most_worn { all.max() } else { all.min() }
        };
        own.or_else(other).map(|(_, block)| block)
    }

    /// The full block with the least wear.
    pub(crate) fn least_worn_full(&self) -> Option<(u32, u32)> {
        let full = self.iter().filter(|(_, b)| b.state == State::Full);
        full.map(|(block, b)| (b.erases, block)).min()
    }

    fn unit(&self, block: u32) -> usize {
        block as usize % self.free.len()
    }

    fn score_bucket(&self, block: u32, policy: &dyn Policy) -> u16 {
        let b = self.get(block);
        bucket(policy.score(b.occupied, u32::from(b.plain), b.ratios), self.block_bytes)
    }

    fn live_bucket(&self, block: u32) -> u16 {
        bucket(u32::from(self.get(block).live), self.pages_per_block)
    }
}

/// The list of a part of `whole`: the first of nothing, the last of all.
fn bucket(part: u32, whole: u32) -> u16 {
    let last = BUCKETS as u32 - 1;
    // Blocks have up to 256 MiB.
    let list = if part < 1 << 24 {
        (part * last).div_ceil(whole)
    } else {
        (u64::from(part) * u64::from(last)).div_ceil(u64::from(whole)) as u32
    };
    list.min(last) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Uncompressed;

    const G: Geometry =
        Geometry { page_bytes: 4096, spare_bytes: 128, pages_per_block: 4, blocks: 6, units: 2 };

    #[test]
    fn the_cheapest_block_is_found_after_every_change() {
        let mut blocks = Blocks::new(&G);
        for (block, pages) in [(0, 4), (1, 2), (2, 3), (3, 1)] {
            blocks.get_mut(block).occupied = pages * 4096;
            blocks.set_state(block, State::Full, &Uncompressed);
        }
        assert_eq!(blocks.cheapest().unwrap(), (3, 64));
        blocks.get_mut(0).occupied = 0;
        blocks.rescore(0, &Uncompressed);
        assert_eq!(blocks.cheapest().unwrap(), (0, 0));
        blocks.set_state(0, State::Victim, &Uncompressed);
        blocks.set_state(3, State::Victim, &Uncompressed);
        assert_eq!(blocks.cheapest().unwrap().0, 1);
        blocks.set_state(1, State::Victim, &Uncompressed);
        blocks.set_state(2, State::Victim, &Uncompressed);
        assert_eq!(blocks.cheapest(), None);
    }

    #[test]
    fn the_emptiest_block_is_found_after_every_change() {
        let mut blocks = Blocks::new(&G);
        for (block, live) in [(0, 4), (1, 2), (2, 3), (3, 2)] {
            blocks.get_mut(block).live = live;
            blocks.set_state(block, State::Full, &Uncompressed);
        }
        assert_eq!(blocks.emptiest(), Some(3));
        blocks.get_mut(3).live = 4;
        blocks.rescore(3, &Uncompressed);
        assert_eq!(blocks.emptiest(), Some(1));
        blocks.set_state(1, State::Victim, &Uncompressed);
        blocks.set_state(2, State::Bad, &Uncompressed);
        assert!(matches!(blocks.emptiest(), Some(0 | 3)));
        blocks.get_mut(0).live = 0;
        blocks.rescore(0, &Uncompressed);
        assert_eq!(blocks.emptiest(), Some(0));
        assert_eq!((bucket(0, 64), bucket(1, 64), bucket(64, 64), bucket(65, 64)), (0, 4, 256, 256));
        assert_eq!(
            (bucket(1, u32::MAX), bucket(u32::MAX, u32::MAX), bucket(1 << 27, 1 << 28)),
            (1, 256, 128)
        );
    }

    #[test]
    fn free_blocks_come_by_unit_and_wear() {
        let mut blocks = Blocks::new(&G);
        for (block, erases) in [(0, 5), (1, 1), (2, 3), (4, 9)] {
            blocks.get_mut(block).erases = erases;
            blocks.set_state(block, State::Free, &Uncompressed);
        }
        assert_eq!(blocks.free_count(), 4);
        assert_eq!((blocks.pick_free(0, false), blocks.pick_free(0, true)), (Some(2), Some(4)));
        assert_eq!(blocks.pick_free(1, true), Some(1));
        blocks.set_state(1, State::Open, &Uncompressed);
        assert_eq!(blocks.pick_free(1, false), Some(2), "another unit's, where there is none");
        assert_eq!(blocks.free_count(), 3);
    }
}
