//! What was written since the commit, taken up in the order of its sequence numbers.

use super::scan::Found;
use crate::WHOLE;
use crate::blocks::State;
use crate::error::{FtlError, Result};
use crate::map::Entry;
use crate::nand::Nand;
use crate::oob::{Kind, NOBODY};
use crate::store::Store;
use crate::trims;
use alloc::collections::{BTreeSet, BinaryHeap};
use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Reverse;

/// Pages that are still to be taken up.
///
/// 1. Of each block that was written since the commit, the next readable page is in the heap, and no other.
/// 2. `written` of such a block counts the pages before and with that one.
pub(super) struct Replay<'a, N> {
    store: &'a mut Store<N>,
    /// Sequence number and page.
    heap: BinaryHeap<Reverse<(u64, u32)>>,
}

impl<'a, N: Nand> Replay<'a, N> {
    pub(super) fn new(store: &'a mut Store<N>) -> Replay<'a, N> {
        Replay { store, heap: BinaryHeap::new() }
    }

    /// Takes up everything. Returns the logical pages that changed after this sequence number.
    pub(super) fn run(mut self, found: &Found, image_seq: u64) -> Result<BTreeSet<u32>> {
        for block in self.store.region.blocks..self.store.medium.g.blocks {
            self.begin(block, found.commit.seq)?;
        }
        for (seq, page, kind) in &found.after {
            if *kind == Kind::Trim {
                self.heap.push(Reverse((*seq, *page)));
            }
        }
        let mut newer = BTreeSet::new();
        while let Some(Reverse((seq, page))) = self.heap.pop() {
            let medium = &mut self.store.medium;
            medium.seq = medium.seq.max(seq);
            let block = medium.g.block_of(page);
            let changed = if block < self.store.region.blocks {
                self.take_trims(page)?
            } else {
                let next = page % medium.g.pages_per_block + 1;
                self.push_next(block, next)?;
                self.take_data(page)?
            };
            if seq > image_seq {
                newer.extend(changed);
            }
        }
        Ok(newer)
    }

    /// Finds where the pages of a block begin that were written since the commit, where there are any.
    fn begin(&mut self, block: u32, since: u64) -> Result<()> {
        if self.store.medium.nand.is_bad(block) {
            return Ok(());
        }
        let known = self.store.medium.blocks.get(block);
        let (state, written) = (known.state, u32::from(known.written));
        let begin = match (self.store.medium.first_seq(block)?, state) {
            (None, _) => {
                self.set_written(block, 0);
                return Ok(());
            }
            (Some(seq), _) if seq > since => 0,
            (_, State::Open) => written,
            _ => {
                self.set_written(block, written);
                return Ok(());
            }
        };
        if state != State::Retiring {
            // Out of every list: its wear changes below.
            self.store.medium.set_state(block, State::Victim);
        }
        self.set_written(block, begin);
        self.push_next(block, begin)
    }

    fn set_written(&mut self, block: u32, written: u32) {
        let b = self.store.medium.blocks.get_mut(block);
        (b.written, b.clean) = (written as u16, false);
    }

    /// Puts the next readable page of a block into the heap, and counts what is written.
    fn push_next(&mut self, block: u32, from: u32) -> Result<()> {
        for next in from..self.store.medium.g.pages_per_block {
            let page = self.store.medium.g.first_page(block) + next;
            if self.store.medium.nand.is_blank(page)? {
                break;
            }
            self.set_written(block, next + 1);
            let medium = &mut self.store.medium;
            if let Some(spare) = medium.spare_of(page)? {
                if spare.kind != Kind::Data {
                    return Err(FtlError::Corrupt("a page of the map among data", page));
                }
                let erases = medium.blocks.get(block).erases.max(spare.erases);
                medium.blocks.get_mut(block).erases = erases;
                medium.blocks.most_erases = medium.blocks.most_erases.max(erases);
                self.heap.push(Reverse((spare.seq, page)));
                break;
            }
        }
        Ok(())
    }

    fn take_trims(&mut self, page: u32) -> Result<Vec<u32>> {
        let Store { medium, map, region, config, .. } = &mut *self.store;
        let mut bytes = vec![0; medium.g.page_bytes as usize];
        region.read(medium, page, (Kind::Trim, 0), &mut bytes)?;
        let ranges = trims::read(&bytes, config.logical_pages);
        let pages: Vec<u32> = ranges.into_iter().flat_map(|(from, count)| from..from + count).collect();
        for lpn in &pages {
            map.set(medium, *lpn, None)?;
        }
        Ok(pages)
    }

    fn take_data(&mut self, page: u32) -> Result<Vec<u32>> {
        let Some(spare) = self.store.medium.spare_of(page)? else { return Ok(Vec::new()) };
        let mut changed = Vec::new();
        for (index, record) in spare.records.iter().enumerate() {
            let end = spare.offset(index) + usize::from(record.size);
            let over = end.saturating_sub(self.store.medium.g.page_bytes as usize);
            if record.lpn == NOBODY || record.lpn >= self.store.config.logical_pages {
                continue;
            }
            if over > 0 && !self.ends_in(page + 1, over)? {
                continue;
            }
            let entry = Entry {
                page,
                index: index as u8,
                size: record.size,
                ratio: record.ratio.min(WHOLE),
                across: over > 0,
                compressed: record.compressed,
            };
            let Store { medium, map, .. } = &mut *self.store;
            map.set(medium, record.lpn, Some(entry))?;
            changed.push(record.lpn);
        }
        Ok(changed)
    }

    /// Whether a page begins with so many bytes of the record before.
    fn ends_in(&mut self, page: u32, bytes: usize) -> Result<bool> {
        let medium = &mut self.store.medium;
        if page.is_multiple_of(medium.g.pages_per_block) || medium.nand.is_blank(page)? {
            return Ok(false);
        }
        Ok(medium.spare_of(page)?.is_some_and(|next| usize::from(next.tail) == bytes))
    }
}
