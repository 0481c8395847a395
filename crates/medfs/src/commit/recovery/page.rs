//! Pages of recovered files that records in NVRAM hold: they become dirty pages, which the checkpoint of the
//! mount writes.
//!
//! Records are replayed in their order, as a page may start from what an older one made.
//!
//! Invariants:
//! 1. What a page starts from is pinned, and not overwritten in place, before anything is written: a second crash
//!    finds the same.
//! 2. Of pages that take more than half of the cache, memory keeps what they differ by from those blocks.

use super::chain::{Entry, PageChange, PageContent, Start};
use super::{Replay, Result};
use crate::content::away::{AHEAD, AwayPages};
use crate::error::Error;
use crate::map::away::{Away, Kept};
use crate::map::inode::Inode;
use crate::tree::name_journal::recorded_name;
use medfs_format::node::Inline;
use medfs_format::nvram::{MAX_PARTS, PartOf, RawPart};
use medfs_format::{
    BLOCK_SIZE, Block, BlockAddr, FormatError, Ino, NEW_ADDR, NULL_ADDR, Structure, is_block,
};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

/// Most bytes that are kept of a page of which memory has no room for more.
const MOST_KEPT: usize = BLOCK_SIZE / 4 * 3;

/// A page as the last record has it, or why it cannot be made.
type Version = Result<Made>;

/// A page that a record makes.
#[derive(Debug)]
struct Made {
    page: Kept,
    /// Parts of blocks that make what it starts from.
    start: Vec<RawPart>,
}

/// What records hold of files, as far as they count.
#[derive(Debug, Default)]
pub(super) struct Journaled {
    files: BTreeMap<Ino, BTreeMap<u32, Version>>,
    /// Blocks that deltas of records start from.
    bases: HashSet<BlockAddr>,
    /// Pages that memory has as a whole, in the order in which they came to be.
    whole: VecDeque<(Ino, u32)>,
    /// How many changes of pages were taken up.
    taken: usize,
}

impl Journaled {
    /// The roll-forward log made all of a file durable later.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.files.remove(&ino);
    }

    /// A page as older records have it.
    fn page(&self, ino: Ino, index: u32) -> Result<&Made> {
        let lost = |why: String| {
            let value = format!("page {index} of inode {ino}, {why}");
            Error::from(FormatError::corrupt(Structure::NvramRecord, 0u32, "parts", value))
        };
        match self.files.get(&ino).and_then(|pages| pages.get(&index)) {
            None => Err(lost("which no record has".into())),
            Some(version) => version.as_ref().map_err(|e| lost(format!("which is lost: {e}"))),
        }
    }
}

impl Start {
    /// The blocks among what it is made of.
    fn blocks(&self) -> Vec<BlockAddr> {
        match self {
            Start::Block(addr) => Some(*addr).into_iter().filter(|&addr| is_block(addr)).collect(),
            Start::Parts(parts) => {
                let block = |of| if let PartOf::Block(addr) = of { Some(addr) } else { None };
                parts.iter().filter_map(|part| block(part.of())).collect()
            }
        }
    }
}

impl Replay<'_> {
    /// Reads what the next pages of records start from, where they are not read yet.
    fn read_ahead(&self) {
        let next = self.chain.pages.get(self.pages.taken..).unwrap_or_default();
        let blocks = |change: &PageChange| match &change.what {
            PageContent::Delta(start, _) => start.blocks(),
            PageContent::Revoked(_) => Vec::new(),
        };
        AwayPages(self.tree).read_ahead(next.iter().take(AHEAD).flat_map(blocks));
    }

    /// Takes up what the next record says of a page.
    pub(super) fn take_page(&mut self, change: &PageChange) {
        if self.pages.taken.is_multiple_of(AHEAD) {
            self.read_ahead();
        }
        self.pages.taken += 1;
        match &change.what {
            PageContent::Delta(start, entry) => {
                let page = self.make_page(change, start, entry);
                let version = page.map(|page| self.made(change.ino, start, entry, page));
                self.pages.bases.extend(start.blocks());
                let is_whole = matches!(&version, Ok(Made { page: Kept::Here(_), .. }));
                self.pages.files.entry(change.ino).or_default().insert(change.index, version);
                if is_whole {
                    self.pages.whole.push_back((change.ino, change.index));
                    if self.pages.whole.len() > self.most_whole() {
                        self.let_first_leave();
                    }
                }
            }
            PageContent::Revoked(count) => {
                let behind = change.index.saturating_add((*count).into());
                let pages = self.pages.files.entry(change.ino).or_default();
                pages.retain(|index, _| !(change.index..behind).contains(index));
            }
        }
    }

    /// A page, as memory has room for it: where there is none, and it starts from blocks alone, as its record has it.
    fn made(&self, ino: Ino, start: &Start, entry: &Entry, page: Arc<Block>) -> Made {
        let parts = self.parts_of(ino, start);
        let of_blocks = match start {
            Start::Block(_) => true,
            Start::Parts(parts) => parts.iter().all(|part| matches!(part.of(), PartOf::Block(_))),
        };
        let page = match of_blocks && self.pages.whole.len() >= self.most_whole() {
            true => Kept::Away(Box::new(Away {
                start: parts.clone().into(),
                codec: entry.codec,
                checksum: entry.checksum,
                delta: self.records.bytes(entry.delta.clone()).into(),
            })),
            false => Kept::Here(page),
        };
        Made { page, start: parts }
    }

    /// Pages of records that memory keeps as a whole.
    fn most_whole(&self) -> usize {
        self.tree.pages.capacity() / 2
    }

    /// Of the pages that are in memory as a whole, lets go the one that was made first.
    fn let_first_leave(&mut self) {
        let Some((ino, index)) = self.pages.whole.pop_front() else { return };
        let version = self.pages.files.get_mut(&ino).and_then(|pages| pages.get_mut(&index));
        let Some(Ok(Made { page, start })) = version else { return };
        if let Kept::Here(whole) = page
            && let Ok(Some(away)) = AwayPages(self.tree).keep(start, whole, MOST_KEPT)
        {
            *page = Kept::Away(Box::new(away));
        }
    }

    /// Parts of blocks that make what a page starts from, as far as so many can.
    fn parts_of(&self, ino: Ino, start: &Start) -> Vec<RawPart> {
        let mut made: Vec<RawPart> = match start {
            Start::Block(addr) => is_block(*addr).then(|| RawPart::whole(*addr)).into_iter().collect(),
            Start::Parts(parts) => parts
                .iter()
                .flat_map(|part| match part.of() {
                    PartOf::Block(_) => vec![*part],
                    PartOf::Page(index) => {
                        self.pages.page(ino, index).map_or_else(|_| Vec::new(), |of| part.clipped(&of.start))
                    }
                })
                .collect(),
        };
        made.truncate(MAX_PARTS);
        made
    }

    fn make_page(&self, change: &PageChange, start: &Start, entry: &Entry) -> Result<Arc<Block>> {
        let of = || format!("page {} of {}", change.index, self.called(change.ino));
        let unreadable = |e| match e {
            Error::Io(e) => {
                let value = format!("{e} for {}", of());
                FormatError::corrupt(Structure::NvramRecord, entry.delta.start as u64, "base", value).into()
            }
            other => other,
        };
        let mut page = self.read_start(change.ino, start).map_err(unreadable)?;
        self.rebuild(entry, &mut page, of)?;
        Ok(page)
    }

    /// A file as messages name it.
    fn called(&self, ino: Ino) -> String {
        let name = self.inodes.get(&ino).map(|inode| recorded_name(inode).1).unwrap_or_default();
        match &name[..] {
            [] => format!("inode {ino}"),
            name => format!("inode {ino} ({})", name.escape_ascii()),
        }
    }

    /// What a page's delta starts from.
    fn read_start(&self, ino: Ino, start: &Start) -> Result<Arc<Block>> {
        let parts = match start {
            Start::Block(addr) if is_block(*addr) => return self.tree.base(*addr),
            Start::Block(_) => return Ok(Arc::new(Block::ZERO)),
            Start::Parts(parts) => parts,
        };
        let mut made = Block::boxed();
        for part in parts {
            let (from, to) = part.ranges().expect("checked when the record was read");
            match part.of() {
                PartOf::Block(addr) => made.0[to].copy_from_slice(&self.tree.base(addr)?.0[from]),
                PartOf::Page(index) => made.0[to].copy_from_slice(&self.older(ino, index)?.0[from]),
            }
        }
        Ok(made.into())
    }

    /// A page as older records have it, as a whole.
    fn older(&self, ino: Ino, index: u32) -> Result<Arc<Block>> {
        match &self.pages.page(ino, index)?.page {
            Kept::Here(page) => Ok(page.clone()),
            Kept::Away(away) => AwayPages(self.tree).made_of(ino, index.into(), away),
        }
    }

    /// Makes dirty what records hold of pages, of files that are still there.
    pub(super) fn journaled_pages(&mut self) -> Result<()> {
        let Journaled { files, bases, .. } = std::mem::take(&mut self.pages);
        if !self.tree.read_only && !bases.is_empty() {
            bases.iter().try_for_each(|&addr| self.tree.segs.lock().pin(&self.tree.io, addr))?;
            self.tree.since.in_nvram.note(bases);
        }
        for (ino, pages) in files {
            let Some(inode) = self.inodes.get(&ino).cloned() else { continue };
            if inode.lock.read().dead || inode.nlink() == 0 {
                continue;
            }
            for (index, page) in pages {
                let restored = page.and_then(|made| self.journaled_page(&inode, index, made.page));
                self.pass_by(ino, restored)?;
            }
        }
        Ok(())
    }

    fn journaled_page(&self, inode: &Arc<Inode>, index: u32, page: Kept) -> Result<()> {
        let tree = self.tree;
        let inline = inode.raw(|r| r.inline().contains(Inline::DATA));
        let mut state = inode.lock.write();
        let slot = if inline { None } else { tree.find_slot(inode, index.into())? };
        let addr = slot.map_or(NULL_ADDR, |slot| slot.addr());
        if addr != NEW_ADDR && !is_block(addr) {
            tracing::warn!(
                "page {index} of inode {} is left as the file has it: a record in NVRAM holds it, and it has no block",
                inode.ino
            );
            return Ok(());
        }
        tree.pages.remove(inode.ino, index.into());
        tree.add_dirty_page(inode, &mut state, index.into(), page);
        state.with_checkpoint = true;
        Ok(())
    }
}
