//! Opening a medium: the last commit, and whatever was written since.
//!
//! After a clean end the tables are all there is to read. Otherwise the first page of every block says
//! whether it was written since the commit; pages written since are taken in the order of their sequence
//! numbers. A page that cannot be read was being programmed when power was lost: nothing that was
//! acknowledged as durable depends on it. Blocks that were being written are not continued, and free ones are
//! erased before they are written, as an erase may have been cut short too.

mod image;
mod replay;
mod scan;
#[cfg(test)]
mod tests;

pub(crate) use image::Image;

use crate::blocks::State;
use crate::error::{FtlError, Result};
use crate::nand::Nand;
use crate::region::policy_number;
use crate::store::Store;
use crate::streams::{PACKED, PLAIN, Packing};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use replay::Replay;
use scan::Found;

/// An empty store that becomes that of its medium.
///
/// 1. The last commit that can be read counts, and of what was written since the page with the highest number.
/// 2. Counts are made anew from the map, unless the end was clean and under the same policy.
/// 3. Nothing is collected before the image of the write buffer is on flash again.
pub(crate) struct Recovery<'a, N> {
    store: &'a mut Store<N>,
}

impl<'a, N: Nand> Recovery<'a, N> {
    pub(crate) fn of(store: &'a mut Store<N>) -> Recovery<'a, N> {
        Recovery { store }
    }

    /// Makes the medium anew: everything on it is lost.
    pub(crate) fn format(self) -> Result<()> {
        let Store { medium, region, config, .. } = &mut *self.store;
        let mut good = 0;
        for block in 0..medium.g.blocks {
            if medium.nand.is_bad(block) {
                medium.set_state(block, State::Bad);
                continue;
            }
            if !medium.nand.is_blank(medium.g.first_page(block))? {
                medium.set_state(block, State::Free);
                if !medium.erase(block)? {
                    continue;
                }
            }
            // What reads as erased was never used, or the caller has erased it.
            medium.blocks.get_mut(block).clean = true;
            if block < region.blocks {
                medium.set_state(block, State::Map);
                region.add_free(block);
            } else {
                medium.set_state(block, State::Free);
                good += 1;
            }
        }
        if good < config.data_blocks_min(&medium.g, &*medium.policy) {
            return Err(FtlError::WornOut);
        }
        self.store.marked = true;
        self.store.checkpoint(false)
    }

    /// Opens the medium, after a clean end or power loss. `retained`: the image of the write buffer.
    pub(crate) fn open(mut self, retained: Option<&[u8]>) -> Result<()> {
        let Store { medium, map, region, config, .. } = &mut *self.store;
        let blocks = u64::from(medium.g.blocks);
        if u64::from(region.blocks) >= blocks {
            return Err(FtlError::Incompatible("blocks", blocks, u64::from(region.blocks)));
        }
        let found = Found::find(medium, region, config.logical_pages)?;
        medium.seq = found.seq();
        region.read_tables(medium, &mut map.table, &found.commit)?;
        self.check_states()?;
        self.resume_region(&found)?;
        if found.is_clean() {
            self.resume_logs();
            if found.commit.policy != policy_number(&self.store.medium) {
                self.rebuild()?;
            }
            return Ok(());
        }
        self.store.marked = true;
        let image = retained.and_then(|bytes| Image::read(bytes, self.store.medium.content));
        let image = image.filter(|image| image.seq >= found.commit.seq).unwrap_or_default();
        let newer =
            Replay::new(self.store).run(&found, if image.is_empty() { u64::MAX } else { image.seq })?;
        self.rebuild()?;
        self.restore(image, &newer)?;
        self.store.checkpoint(false)
    }

    /// After a clean end the region's log goes on where it was.
    fn resume_region(&mut self, found: &Found) -> Result<()> {
        let Store { medium, map, region, .. } = &mut *self.store;
        let (block, next) = found.last;
        if found.is_clean()
            && next < medium.g.pages_per_block
            && medium.nand.is_blank(medium.g.first_page(block) + next)?
        {
            region.resume(block, next);
        }
        region.keep(found.after.iter().map(|(_, page, _)| medium.g.block_of(*page)).collect());
        region.free_unneeded(medium, &mut map.table, &found.commit, found.commit_page);
        Ok(())
    }

    /// Puts the image of the write buffer back. Nothing is collected before it is on flash: a copy of an
    /// older version would be newer than the image, should power be lost again.
    fn restore(&mut self, image: Image, newer: &BTreeSet<u32>) -> Result<()> {
        let medium = &mut self.store.medium;
        let empty = medium.blocks.iter().filter(|(_, b)| b.state == State::Full && b.occupied == 0);
        let empty: Vec<u32> = empty.map(|(block, _)| block).collect();
        for block in empty {
            medium.set_state(block, State::Free);
        }
        let logical_pages = self.store.config.logical_pages;
        for whole in image.pages {
            let lpn = whole.page.lpn;
            if lpn < logical_pages && !newer.contains(&lpn) {
                let log = if whole.page.compressed { PACKED } else { PLAIN };
                let packing = Packing { log, page: whole.page, bytes: &whole.bytes, across: false };
                self.store.append(&packing, None)?;
            }
        }
        for (from, count) in image.trims {
            for lpn in from..from.saturating_add(count).min(logical_pages) {
                if !newer.contains(&lpn) {
                    self.store.trim(lpn, 1)?;
                }
            }
        }
        Ok(())
    }

    /// Brings the states of the tables together with what the medium says of its blocks.
    fn check_states(&mut self) -> Result<()> {
        let Store { medium, map, region, retiring, .. } = &mut *self.store;
        if !map.table.places_are_in(medium.g.first_page(region.blocks)) {
            return Err(FtlError::Corrupt(
                "a chunk of the map outside its region",
                medium.g.first_page(region.blocks),
            ));
        }
        for block in 0..medium.g.blocks {
            let state = match medium.blocks.get(block).state {
                _ if medium.nand.is_bad(block) => State::Bad,
                State::Victim | State::Drained => State::Full,
                State::Retiring => {
                    retiring.push(block);
                    State::Retiring
                }
                other if (other == State::Map) != (block < region.blocks) && other != State::Bad => {
                    return Err(FtlError::Corrupt("the state of a block", medium.g.first_page(block)));
                }
                other => other,
            };
            medium.set_state(block, state);
        }
        Ok(())
    }

    /// After a clean end: the logs go on in the blocks that they wrote.
    fn resume_logs(&mut self) {
        let Store { medium, streams, .. } = &mut *self.store;
        for block in 0..medium.g.blocks {
            let b = medium.blocks.get(block);
            if b.state != State::Open {
                continue;
            }
            let full = u32::from(b.written) == medium.g.pages_per_block;
            if full || !streams.resume(usize::from(b.log), block) {
                medium.set_state(block, State::Full);
            }
        }
    }

    /// Counts anew what is valid where, from the map, and makes every block that is not in use free.
    fn rebuild(&mut self) -> Result<()> {
        let Store { medium, map, streams, region, config, .. } = &mut *self.store;
        map.table.clear_counts();
        for block in region.blocks..medium.g.blocks {
            let b = medium.blocks.get_mut(block);
            (b.live, b.occupied, b.ratios, b.plain) = (0, 0, 0, 0);
            let state = match b.state {
                State::Bad | State::Retiring => continue,
                State::Open if streams.writes(block) => continue,
                _ if b.written == 0 => State::Free,
                _ => State::Full,
            };
            medium.set_state(block, state);
        }
        for lpn in 0..config.logical_pages {
            if map.table.empty_from(lpn).is_some() {
                continue;
            }
            if let Some(entry) = map.entry(medium, lpn)? {
                if medium.g.block_of(entry.page) < region.blocks {
                    return Err(FtlError::Corrupt("the map names its own region", entry.page));
                }
                map.hold(medium, &entry)?;
            }
        }
        Ok(())
    }
}
