//! Pages that leave memory before they are on the volume, as a record in NVRAM has them, and that come back.
//!
//! A page leaves as what it differs by from its own block, which stays as it is until a checkpoint has written the
//! page. So a small cache holds as many small updates as the NVRAM does, and a page that is read costs its block and a
//! delta.
//!
//! Locks: the inode's, exclusive where pages leave or come back.

use crate::content::Content;
use crate::content::page_io::{read_bases, requests};
use crate::error::Result;
use crate::map::away::Away;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use medfs_codec::page_checksum;
use medfs_format::nvram::{PartOf, RawPart};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, FormatError, Ino, NEW_ADDR, Structure, is_block};
use std::collections::{BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::Arc;

/// Most bytes that are kept of a page: one of which more would have to be stays.
const MOST_KEPT: usize = BLOCK_SIZE / 4;
/// Most pages whose blocks are read together.
const AHEAD: usize = 256;

/// What becomes of pages that leave.
pub(crate) struct AwayPages<'a>(pub(crate) &'a Content);

impl Deref for AwayPages<'_> {
    type Target = Content;

    fn deref(&self) -> &Content {
        self.0
    }
}

impl AwayPages<'_> {
    /// A dirty page, which is in memory from now on.
    pub(crate) fn bring_back(
        &self,
        inode: &Inode,
        state: &mut InodeState,
        index: u64,
    ) -> Result<Option<Arc<Block>>> {
        let Some(away) = state.pages.away(index) else { return Ok(state.pages.get(index).cloned()) };
        let page = self.made_of(inode.ino, index, away)?;
        self.counted(inode.ino, state, |pages| pages.come_back(index, page.clone()));
        self.since.in_nvram.came_back(inode.ino, index, &page);
        Ok(Some(page))
    }

    /// Brings some dirty pages back, with few requests for what they start from. One that cannot be made stays away.
    pub(super) fn bring_all_back(&self, inode: &Inode, state: &mut InodeState, indices: &[u64]) {
        for some in indices.chunks(self.at_once()) {
            let kept = some.iter().filter_map(|&index| state.pages.away(index));
            self.read_ahead(kept.flat_map(Away::blocks));
            some.iter().for_each(|&index| drop(self.bring_back(inode, state, index)));
        }
        self.base_cache.forget_ahead();
    }

    /// Pages whose blocks are read together.
    pub(crate) fn at_once(&self) -> usize {
        AHEAD.min(self.base_cache.capacity())
    }

    /// Reads blocks that pages start from and that are wanted next, as many as there is room for, and keeps them until
    /// others are wanted. What cannot be read is met again.
    pub(crate) fn read_ahead(&self, blocks: impl Iterator<Item = BlockAddr>) {
        let wanted: BTreeSet<BlockAddr> = blocks.collect();
        let missing = wanted.into_iter().filter(|&addr| self.base_cache.get(addr).is_none());
        let missing = missing.take(self.base_cache.capacity());
        let missing: Vec<(BlockAddr, u64)> = missing.map(|addr| (addr, addr.into())).collect();
        let reading = self.base_cache.begin_reading(missing.iter().map(|&(addr, _)| addr));
        let mut ahead = HashMap::with_capacity(missing.len());
        for near in requests(&missing) {
            read_bases(self, near, |addr, base| drop(ahead.insert(addr as BlockAddr, base)));
        }
        reading.keep_ahead(ahead);
    }

    /// A dirty page, which stays where it is.
    pub(super) fn page_as_is(
        &self,
        inode: &Inode,
        state: &InodeState,
        index: u64,
    ) -> Result<Option<Arc<Block>>> {
        match state.pages.away(index) {
            Some(away) => self.made_of(inode.ino, index, away).map(Some),
            None => Ok(state.pages.get(index).cloned()),
        }
    }

    /// A page of a file that is away.
    pub(crate) fn made_of(&self, ino: Ino, index: u64, away: &Away) -> Result<Arc<Block>> {
        let mut page = self.start_of(&away.start)?;
        let made = self.codecs.with(|codecs| {
            codecs.rebuild(away.codec, &away.delta, away.checksum, &mut Arc::make_mut(&mut page).0)
        });
        made.map_err(|why| {
            let value = format!("page {index}, of which memory has a delta: {why}");
            FormatError::corrupt(Structure::NvramRecord, ino, "base", value)
        })?;
        Ok(page)
    }

    /// What parts of blocks make, and zeros between them.
    pub(crate) fn start_of(&self, parts: &[RawPart]) -> Result<Arc<Block>> {
        let mut start = Block::boxed();
        for part in parts {
            if let (PartOf::Block(addr), Some((from, to))) = (part.of(), part.ranges()) {
                start.0[to].copy_from_slice(&self.base(addr)?.0[from]);
            }
        }
        Ok(start.into())
    }

    /// A page as what it differs by from parts of blocks, where that takes at most so many bytes.
    pub(crate) fn keep(&self, parts: &[RawPart], page: &Block, most: usize) -> Result<Option<Away>> {
        let start = self.start_of(parts)?;
        let away = self.codecs.with(|codecs| {
            let delta = codecs.delta(&start.0, &page.0, most)?;
            Some(Away {
                start: parts.into(),
                codec: delta.tag as u8,
                checksum: page_checksum(&page.0),
                delta: delta.bytes.into(),
            })
        });
        Ok(away)
    }

    /// Lets pages of a file leave that records have as they are, in turn, until at most `most` pages are in memory.
    pub(crate) fn let_leave(&self, inode: &Inode, state: &mut InodeState, most: usize) -> Result<()> {
        if !state.pages.may_leave() {
            return Ok(());
        }
        let mut near: Option<Slot> = None;
        for (index, version) in self.since.in_nvram.versions_from(inode.ino, state.pages.next_to_leave()) {
            if self.pages.in_memory() <= most {
                break;
            }
            let same = state.pages.get(index).is_some_and(|page| Arc::ptr_eq(page, &version));
            if !same || state.whole.contains(&index) {
                continue;
            }
            let slot = self.find_slot_near(inode, near.as_ref(), index)?;
            let start = slot.as_ref().and_then(|slot| self.start_at(slot.addr()));
            near = slot;
            let Some(start) = start else { continue };
            let Some(away) = self.keep(&start, &version, MOST_KEPT)? else { continue };
            drop(version);
            self.counted(inode.ino, state, |pages| pages.leave(index, away));
            self.since.in_nvram.left(inode.ino, index);
        }
        Ok(())
    }

    /// What a page with this address starts from, where that stays as it is as long as the record counts.
    fn start_at(&self, addr: BlockAddr) -> Option<Vec<RawPart>> {
        match addr {
            NEW_ADDR => Some(Vec::new()),
            addr if is_block(addr) && self.since.in_nvram.needs(addr) => Some(vec![RawPart::whole(addr)]),
            _ => None,
        }
    }
}
