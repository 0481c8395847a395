//! Pages that look like another block of their file: copies of a B-tree's nodes, records that moved on.
//!
//! Programs that never overwrite what is in use (LMDB, bbolt, sled) write each changed page to another place, where
//! the block of that place is no help. So it is remembered how blocks look that are written as a whole
//! ([`Sketch`]), and the latest blocks with most features in common with a page are bases that are tried.
//! What is remembered is a hint: whether a block is like a page shows in the size of the delta. The table is
//! one for the volume and has one size; what is new takes the place of what is old.
//!
//! Locks: called with the inode's lock held. The table has none; the reference index and a leaf are taken.

use super::Xref;
use crate::content::record::OwnedRecord;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use medfs_codec::Sketch;
use medfs_format::delta::RawSlice;
use medfs_format::{BLOCK_SIZE, Block, Ino};
use medfs_sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Blocks that are tried.
const MOST_TRIED: usize = 2;
/// Dirty pages of a file up to which all are looked at: whoever writes more in one go is likely copying.
const MOST_DIRTY: usize = 64;
/// What finding a block that is like a page pays for: so many pages in vain. Without credit one of so many is tried.
const SELDOM: u32 = 16;
/// Most credit that a file has.
const CREDIT: u32 = 64;
/// Where few pages are written in one go: pages of a file that are looked at, and none is like another, before
/// the file is looked at now and then.
const LOOKED_AT_IN_VAIN: u32 = 256;
/// Of so many pages of such a file ...
const NOW_AND_THEN: u32 = 512;
/// ... so many are looked at, one after the other: those that look like each other are written soon after each other.
const AT_A_TIME: u32 = 64;

/// How many more pages of a file may be tried in vain.
struct Credit {
    left: AtomicU32,
    passed_by: AtomicU32,
}

impl Credit {
    fn of(left: u32) -> Credit {
        Credit { left: AtomicU32::new(left), passed_by: AtomicU32::new(0) }
    }

    /// Whether a page is to be tried.
    fn begin(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0
            || self.passed_by.fetch_add(1, Ordering::Relaxed).is_multiple_of(SELDOM)
    }

    /// How that went.
    fn end(&self, found: bool) {
        let left = self.left.load(Ordering::Relaxed);
        let left = if found { (left + SELDOM).min(CREDIT) } else { left.saturating_sub(1) };
        self.left.store(left, Ordering::Relaxed);
    }
}

/// Whether looking at the pages of a file pays.
#[derive(Default)]
struct Looks {
    in_vain: AtomicU32,
}

impl Looks {
    /// Whether the next page is looked at, which is then one in vain until something was found.
    fn next(&self) -> bool {
        let before = self.in_vain.fetch_add(1, Ordering::Relaxed);
        before < LOOKED_AT_IN_VAIN || (before - LOOKED_AT_IN_VAIN) % NOW_AND_THEN >= NOW_AND_THEN - AT_A_TIME
    }

    fn found(&self) {
        self.in_vain.store(0, Ordering::Relaxed);
    }
}

/// What is remembered of a file: how trying went, and how the page looks that was looked at last.
struct Tried {
    looks: Looks,
    /// Where few pages are written in one go: blocks compared in vain.
    few: Credit,
    /// Where many are: pages looked at in vain.
    many: Credit,
    last: Mutex<Option<(u32, Sketch)>>,
}

impl Default for Tried {
    fn default() -> Tried {
        let (few, many) = (Credit::of(SELDOM), Credit::of(0));
        Tried { looks: Looks::default(), few, many, last: Mutex::default() }
    }
}

impl Xref {
    /// The record of a page against a block of its file that looks like it, where it is at most `most` bytes large.
    /// That block is needed from then on.
    pub(crate) fn encode_like(
        &self,
        inode: &Arc<Inode>,
        state: &InodeState,
        index: u32,
        page: &Block,
        most: usize,
    ) -> Result<Option<OwnedRecord>> {
        if !self.deltas.likeness
            || state.whole.contains(&u64::from(index))
            || self.refs.others_need_any(inode.ino)
            || self.is_compressed(inode)
        {
            return Ok(None);
        }
        let tried = inode.memory.of::<Tried>();
        let many = state.pages.dirty_len() > MOST_DIRTY;
        if !(if many { tried.many.begin() } else { tried.looks.next() }) {
            return Ok(None);
        }
        let sketch = Sketch::of(&page.0);
        *tried.last.lock() = Some((index, sketch));
        let likely: Vec<u32> = self.likeness.find(inode.ino, &sketch).filter(|&like| like != index).collect();
        let credit = if many { &tried.many } else { &tried.few };
        if !many && (likely.is_empty() || !credit.begin()) {
            return Ok(None);
        }
        let best = self.best_of(inode, state, (index, page), &likely, most)?;
        credit.end(best.is_some());
        let Some(record) = best else { return Ok(None) };
        tried.looks.found();
        let claimed =
            self.can_be_listed_for_own(inode.ino) && self.refs.claim(inode.ino, index, record.sources());
        Ok(claimed.then_some(record))
    }

    /// The smallest record of a page against these other pages of its file.
    fn best_of(
        &self,
        inode: &Inode,
        state: &InodeState,
        (index, page): (u32, &Block),
        likely: &[u32],
        most: usize,
    ) -> Result<Option<OwnedRecord>> {
        let mut best: Option<OwnedRecord> = None;
        for &like in likely.iter().take(MOST_TRIED) {
            let Some(base) = self.own_block(inode, state, (like, index))? else { continue };
            let most = best.as_ref().map_or(most, |best| best.size() - 1);
            best = self.deltas.encode(index, &base, page, &[whole_slice(inode.ino, like)], most).or(best);
        }
        Ok(best)
    }

    /// Remembers how a page looks that is written as a whole.
    pub(crate) fn note_likeness(&self, inode: &Inode, state: &InodeState, index: u64) {
        if !self.deltas.likeness || self.is_compressed(inode) {
            return;
        }
        let (Some(page), Ok(index)) = (state.pages.get(index), u32::try_from(index)) else { return };
        let tried = inode.memory.of::<Tried>();
        let last = tried.last.lock().take().filter(|&(of, _)| of == index);
        let sketch = match last {
            Some((_, sketch)) => sketch,
            None if state.pages.dirty_len() > MOST_DIRTY || !tried.looks.next() => return,
            None => Sketch::of(&page.0),
        };
        self.likeness.note(inode.ino, index, &sketch);
    }

    /// The block of another page of the same file, which stays as it is: pages are placed in order, so that one behind
    /// page `index` is not on its way yet, and finds that its block is needed.
    fn own_block(
        &self,
        inode: &Inode,
        state: &InodeState,
        (page, index): (u32, u32),
    ) -> Result<Option<Arc<Block>>> {
        let placed = page < index && state.pages.is_dirty(page.into());
        let page = u64::from(page);
        if placed || page >= inode.pages() || self.is_compact_page(inode, page) {
            return Ok(None);
        }
        let Some(addr) = self.block_of(inode, page)? else { return Ok(None) };
        if let Some(clean) = self.pages.get(inode.ino, page)
            && !state.pages.is_dirty(page)
            && !self.deltas().has_delta(inode, page)?
        {
            return Ok(Some(clean));
        }
        self.base(addr).map(Some)
    }
}

/// A page's block, as it is.
fn whole_slice(ino: Ino, page: u32) -> RawSlice {
    RawSlice {
        ino: ino.into(),
        page: page.into(),
        from: 0.into(),
        to: 0.into(),
        len: (BLOCK_SIZE as u16).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_in_which_nothing_is_found_is_tried_now_and_then() {
        let credit = Credit::of(SELDOM);
        let tries = |pages| (0..pages).filter(|_| credit.begin()).map(|_| credit.end(false)).count() as u32;
        assert_eq!(tries(SELDOM), SELDOM);
        assert_eq!(tries(160), 10);
        credit.end(true);
        assert_eq!(tries(SELDOM), SELDOM, "what is found pays for the next ones");
        (0..9).for_each(|_| credit.end(true));
        assert_eq!(tries(CREDIT + SELDOM), CREDIT + 1);
    }
    #[test]
    fn pages_of_a_file_in_which_nothing_is_alike_are_looked_at_in_runs_now_and_then() {
        let looks = Looks::default();
        let looked_at = |pages| (0..pages).filter(|_| looks.next()).count() as u32;
        assert_eq!(looked_at(LOOKED_AT_IN_VAIN), LOOKED_AT_IN_VAIN);
        assert_eq!(looked_at(NOW_AND_THEN - AT_A_TIME), 0);
        assert_eq!(looked_at(AT_A_TIME), AT_A_TIME, "one after the other");
        assert_eq!(looked_at(10 * NOW_AND_THEN), 10 * AT_A_TIME);
        looks.found();
        assert_eq!(looked_at(LOOKED_AT_IN_VAIN), LOOKED_AT_IN_VAIN);
    }
}
