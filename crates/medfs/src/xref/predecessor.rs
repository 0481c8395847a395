//! Pages of a file that is written to replace another one, against the blocks of that one.
//!
//! Editors and Android's `AtomicFile` write a new file, make it durable and rename it over its predecessor,
//! of which most is in it again. The predecessor is its companion by name ([`super::companion`]), and where in it
//! a page's content is, is found by content. The predecessor's *blocks* are what counts: where it is itself made
//! from a file that is kept ([`super::retained`]), the new one is made from that too, unless much of the
//! predecessor was written as a whole. So no chains form.
//!
//! Locks: as in [`super::sqlite_wal`].

use super::Xref;
use super::retained::MOST_PAGES;
use super::sqlite_layout::PAGE;
use super::sqlite_wal::{ComposedBase, WalMemory};
use crate::content::record::OwnedRecord;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use medfs_format::delta::RawSlice;
use medfs_format::{BLOCK_SIZE, Block, Ino, is_block};
use std::sync::Arc;

/// Of the pages of a predecessor that is made from another file, one of so many written as a whole is too
/// much to go on.
const WHOLE_PART: u64 = 4;
/// Blocks around a page's own place in which its content is looked for.
const AROUND: u64 = 2;
/// Bytes of a page that are looked for, and where in it they are taken.
const NEEDLE: usize = 24;
const NEEDLES: [usize; 4] = [1500, 2500, 500, 3500];
/// Spots at which page and base are compared before a delta is made, and bytes of each; half of them must agree.
const SPOTS: usize = 16;
const SPOT: usize = 16;

/// From what a new file is made.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct PredecessorCache {
    /// The predecessor that was looked at, and the file whose blocks are bases, if any.
    found: Option<(Ino, Option<Ino>)>,
    /// How far behind its place in that file content was found last.
    shift: i64,
}

impl Xref {
    /// The record of a page of a new file against the file that it is to replace, where it is small enough to
    /// be kept. What it is made from are sources then.
    pub(crate) fn encode_replacement(
        &self,
        (inode, predecessor): (&Arc<Inode>, Option<&Arc<Inode>>),
        state: &InodeState,
        index: u32,
        page: &Block,
    ) -> Result<Option<(OwnedRecord, u64)>> {
        if !self.deltas.repeats
            || state.whole.contains(&u64::from(index))
            || u64::from(index) >= MOST_PAGES
            || self.refs.others_need_any(inode.ino)
        {
            return Ok(None);
        }
        let Some(base) = self.base_file(inode, predecessor.map(|file| &**file))? else { return Ok(None) };
        let own_place = i64::from(index) * PAGE as i64;
        let shift = inode.memory.of::<WalMemory>().lock().replaces.shift;
        let mut best = self.likely_base(inode, &base, own_place - shift, page)?;
        if best.is_none() {
            let found = self.look_around(&base, index.into(), page)?;
            if let Some(start) = found {
                inode.memory.of::<WalMemory>().lock().replaces.shift = own_place - start;
                best = self.likely_base(inode, &base, start, page)?;
            }
        }
        let Some(repeat) = best else { return Ok(None) };
        let record = self.deltas.encode(index, &repeat.base, page, &repeat.slices, self.deltas.record_max());
        let Some(record) = record else { return Ok(None) };
        Ok(self.claim(inode, state, &base, index, &repeat)?.map(|after| (record, after)))
    }

    /// The file whose blocks a new file may be made from, which is about to replace another one.
    fn base_file(&self, inode: &Inode, predecessor: Option<&Inode>) -> Result<Option<Arc<Inode>>> {
        let may_replace = self.has_companions(inode) && !self.class(inode).is_journal() && inode.nlink() == 1;
        // Also of a file without a predecessor this asks for the hidden directory, so that the next one finds it.
        if !may_replace || !self.can_retain()? {
            return Ok(None);
        }
        let Some(predecessor) = predecessor else { return Ok(None) };
        let known = inode.memory.of::<WalMemory>().lock().replaces.found;
        let base = match known.filter(|(ino, _)| *ino == predecessor.ino) {
            Some((_, base)) => base,
            None => {
                let base = self.base_of_predecessor(predecessor)?;
                inode.memory.of::<WalMemory>().lock().replaces.found = Some((predecessor.ino, base));
                base
            }
        };
        base.map(|ino| self.inode(ino)).transpose()
    }

    /// The predecessor itself, or what it is made from.
    fn base_of_predecessor(&self, predecessor: &Inode) -> Result<Option<Ino>> {
        if predecessor.pages() > MOST_PAGES {
            return Ok(None);
        }
        let origins = self.refs.origins(predecessor.ino);
        match origins[..] {
            [] if self.refs.depends_on_others(predecessor.ino) => Ok(None),
            [] => Ok(Some(predecessor.ino)),
            [origin] if self.retained.contains(origin) => {
                let mut whole = 0;
                for page in 0..predecessor.pages() {
                    whole +=
                        u64::from(self.find_slot(predecessor, page)?.is_some_and(|s| is_block(s.addr())));
                }
                Ok((whole * WHOLE_PART <= predecessor.pages()).then_some(origin))
            }
            _ => Ok(None),
        }
    }

    /// What a page may be made from whose content begins at byte `start` of a file; `None` where it is not like that.
    fn likely_base(
        &self,
        inode: &Inode,
        base: &Arc<Inode>,
        start: i64,
        page: &Block,
    ) -> Result<Option<ComposedBase>> {
        let mut repeat = self.begin_base();
        for slice in slices_at(base.ino, start) {
            self.add_slice_of(inode, base, slice, &mut repeat)?;
        }
        Ok((!repeat.slices.is_empty() && alike(&repeat.base, page)).then_some(repeat))
    }

    /// Adds a slice of another file, where that is not about to change.
    fn add_slice_of(
        &self,
        inode: &Inode,
        base: &Inode,
        slice: RawSlice,
        repeat: &mut ComposedBase,
    ) -> Result<()> {
        let page = u64::from(slice.page.get());
        let usable = base.ino != inode.ino
            && base
                .lock
                .try_read()
                .is_some_and(|state| !state.dead && !state.pages.is_dirty(page) && page < base.pages());
        let addr = if usable { self.block_of(base, page)? } else { None };
        if let (Some((from, to)), Some(addr)) = (slice.ranges(), addr) {
            repeat.base.0[to].copy_from_slice(&self.base(addr)?.0[from]);
            repeat.slices.push(slice);
            repeat.addrs.push(addr);
        }
        Ok(())
    }

    /// Where in the blocks around its place a page's content begins.
    fn look_around(&self, base: &Inode, index: u64, page: &Block) -> Result<Option<i64>> {
        let first = index.saturating_sub(AROUND);
        let mut bytes = Vec::with_capacity((2 * AROUND as usize + 1) * BLOCK_SIZE);
        for page in first..(index + AROUND + 1).min(base.pages()) {
            match self.block_of(base, page)? {
                Some(addr) => bytes.extend_from_slice(&self.base(addr)?.0),
                None => bytes.extend_from_slice(&Block::ZERO.0),
            }
        }
        let found = NEEDLES.iter().find_map(|&at| {
            let needle = &page.0[at..at + NEEDLE];
            let varied = needle.iter().any(|b| *b != needle[0]);
            let position = varied.then(|| bytes.windows(NEEDLE).position(|window| window == needle))??;
            Some((first * PAGE) as i64 + position as i64 - at as i64)
        });
        Ok(found)
    }
}

/// The slices of a file's blocks that make a page whose content begins at byte `start` of the file.
fn slices_at(ino: Ino, start: i64) -> Vec<RawSlice> {
    let mut slices = Vec::with_capacity(2);
    let mut to = start.min(0).unsigned_abs();
    while to < PAGE {
        let at = start.wrapping_add_unsigned(to) as u64;
        let (page, from) = (at / PAGE, at % PAGE);
        let len = (PAGE - from).min(PAGE - to);
        if let Ok(page) = u32::try_from(page) {
            slices.push(RawSlice {
                ino: ino.into(),
                page: page.into(),
                from: (from as u16).into(),
                to: (to as u16).into(),
                len: (len as u16).into(),
            });
        }
        to += len;
    }
    slices
}

/// Whether a page is like a base at half of the spots at least.
fn alike(base: &Block, page: &Block) -> bool {
    let step = BLOCK_SIZE / SPOTS;
    let same = (0..SPOTS).filter(|n| base.0[n * step..n * step + SPOT] == page.0[n * step..n * step + SPOT]);
    same.count() * 2 >= SPOTS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(start: i64) -> Vec<(u32, u16, u16, u16)> {
        let slices = slices_at(5, start);
        slices.iter().map(|s| (s.page.get(), s.from.get(), s.to.get(), s.len.get())).collect()
    }

    #[test]
    fn a_page_lies_over_one_block_or_two() {
        assert_eq!(parts(8192), [(2, 0, 0, 4096)]);
        assert_eq!(parts(8190), [(1, 4094, 0, 2), (2, 0, 2, 4094)]);
        assert_eq!(parts(-10), [(0, 0, 10, 4086)]);
        assert_eq!(parts(-5000), []);
    }

    #[test]
    fn likeness_is_told_by_half_of_the_spots() {
        let (a, mut b) = (Block([7; BLOCK_SIZE]), Block([7; BLOCK_SIZE]));
        b.0[..BLOCK_SIZE / 2].fill(1);
        assert!(alike(&a, &b));
        b.0[BLOCK_SIZE / 2] = 1;
        assert!(!alike(&a, &b));
    }
}
