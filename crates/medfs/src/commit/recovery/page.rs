//! Pages of recovered files that records in NVRAM hold: they become dirty pages, which the checkpoint of the
//! mount writes.
//!
//! Records are taken up in their order. A page of one that starts from other pages of its file is made then, and those
//! before it, as each may change again. All others are made when every record was taken up, in the order of the blocks
//! that they start from: so those are read once, many in a request.
//!
//! Invariants:
//! 1. What a page starts from is pinned, and not overwritten in place, before anything is written: a second crash
//!    finds the same.
//! 2. Of pages that take more than half of the cache, memory keeps what they differ by from those blocks.

use super::chain::{Entry, PageChange, PageContent, Start};
use super::{Replay, Result};
use crate::content::away::AwayPages;
use crate::error::Error;
use crate::map::away::Kept;
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

/// A page as records have it.
#[derive(Debug, Default)]
struct Version {
    /// As those before `due` have it, or why it cannot be made. `None`: they do not matter.
    made: Option<Result<Made>>,
    /// Changes that it was not made with yet, by their place in the chain. Each starts from blocks, or from what the
    /// one before makes.
    due: Vec<usize>,
}

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
    /// Those before this one were looked at for what is to be read.
    read_to: usize,
}

impl Journaled {
    /// The roll-forward log made all of a file durable later.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.files.remove(&ino);
    }

    fn version(&mut self, ino: Ino, index: u32) -> &mut Version {
        self.files.entry(ino).or_default().entry(index).or_default()
    }

    /// A page as older records have it, which was made.
    fn page(&self, ino: Ino, index: u32) -> Result<&Made> {
        let version = self.files.get(&ino).and_then(|pages| pages.get(&index));
        match version.and_then(|version| version.made.as_ref()) {
            None => Err(lost(ino, index, "which no record has")),
            Some(made) => made.as_ref().map_err(|e| lost(ino, index, format!("which is lost: {e}"))),
        }
    }

    /// Changes that a page was not made with yet.
    fn due(&self, ino: Ino, index: u32) -> &[usize] {
        let version = self.files.get(&ino).and_then(|pages| pages.get(&index));
        version.map_or(&[], |version| &version.due)
    }
}

fn lost(ino: Ino, index: u32, why: impl std::fmt::Display) -> Error {
    let value = format!("page {index} of inode {ino}, {why}");
    FormatError::corrupt(Structure::NvramRecord, 0u32, "parts", value).into()
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

    /// The pages among it, each as often as it is named.
    fn pages(&self) -> impl Iterator<Item = u32> {
        let parts = if let Start::Parts(parts) = self { &parts[..] } else { &[] };
        parts.iter().filter_map(|part| if let PartOf::Page(index) = part.of() { Some(index) } else { None })
    }
}

impl Replay<'_> {
    /// Takes up what the next record says of a page.
    pub(super) fn take_page(&mut self, change: &PageChange) {
        let (at, ino) = (self.pages.taken, change.ino);
        self.pages.taken += 1;
        match &change.what {
            PageContent::Delta(start, _) => {
                self.pages.bases.extend(start.blocks());
                let version = self.pages.version(ino, change.index);
                if start.pages().next().is_none() {
                    *version = Version { made: None, due: vec![at] };
                } else {
                    version.due.push(at);
                    self.make_if_of_others(at, change, start);
                }
            }
            PageContent::Revoked(count) => {
                let behind = change.index.saturating_add((*count).into());
                let pages = self.pages.files.entry(ino).or_default();
                pages.retain(|index, _| !(change.index..behind).contains(index));
            }
        }
    }

    /// Makes a page at once where it starts from others, and those before it.
    fn make_if_of_others(&mut self, at: usize, change: &PageChange, start: &Start) {
        let others: Vec<u32> = start.pages().filter(|&index| index != change.index).collect();
        if others.is_empty() {
            return;
        }
        if at >= self.pages.read_to {
            self.read_ahead(at);
        }
        others.iter().for_each(|&index| self.make_due(change.ino, index));
        self.make_due(change.ino, change.index);
    }

    /// Reads what is wanted to make the next pages that start from others, where it is not read yet.
    fn read_ahead(&mut self, at: usize) {
        let at_once = AwayPages(self.tree).at_once();
        let next = self.chain.pages.get(at..).unwrap_or_default().iter().take(at_once);
        let wanted = next.flat_map(|change| {
            let PageContent::Delta(start, _) = &change.what else { return Vec::new() };
            let below = start.pages().flat_map(|index| self.blocks_due(change.ino, index));
            let own =
                if start.pages().any(|index| index != change.index) { start.blocks() } else { Vec::new() };
            below.chain(own).collect()
        });
        AwayPages(self.tree).read_ahead(wanted);
        self.pages.read_to = at + at_once;
    }

    /// Blocks from which changes start that a page was not made with yet.
    fn blocks_due(&self, ino: Ino, index: u32) -> impl Iterator<Item = BlockAddr> {
        self.pages.due(ino, index).iter().flat_map(|&at| match &self.chain.pages[at].what {
            PageContent::Delta(start, _) => start.blocks(),
            PageContent::Revoked(_) => Vec::new(),
        })
    }

    /// Makes a page with all changes that were taken up.
    fn make_due(&mut self, ino: Ino, index: u32) {
        if self.pages.due(ino, index).is_empty() {
            return;
        }
        let Version { made, due } = std::mem::take(self.pages.version(ino, index));
        let made = self.make(ino, index, made, &due);
        let is_whole = matches!(&made, Ok(Made { page: Kept::Here(_), .. }));
        self.pages.version(ino, index).made = Some(made);
        if is_whole {
            self.pages.whole.push_back((ino, index));
            if self.pages.whole.len() > self.most_whole() {
                self.let_first_leave();
            }
        }
    }

    fn make(&self, ino: Ino, index: u32, older: Option<Result<Made>>, due: &[usize]) -> Result<Made> {
        let mut before = match older.transpose()? {
            Some(made) => Some((made.start, self.whole(ino, index, &made.page)?)),
            None => None,
        };
        for &at in due {
            let change = &self.chain.pages[at];
            if let PageContent::Delta(start, entry) = &change.what {
                let parts = self.parts_of(change, start, before.as_ref().map(|(parts, _)| &parts[..]));
                let page = before.map(|(_, page)| page);
                before = Some((parts, self.make_page(change, start, entry, page)?));
            }
        }
        let (start, page) = before.ok_or_else(|| lost(ino, index, "which no record has"))?;
        let is_to_leave = self.pages.whole.len() >= self.most_whole();
        let away = if is_to_leave { AwayPages(self.tree).keep(&start, &page, MOST_KEPT)? } else { None };
        let page = away.map_or(Kept::Here(page), |away| Kept::Away(Box::new(away)));
        Ok(Made { page, start })
    }

    /// Pages of records that memory keeps as a whole.
    fn most_whole(&self) -> usize {
        self.tree.pages.capacity() / 2
    }

    /// Of the pages that are in memory as a whole, lets go the one that was made first.
    fn let_first_leave(&mut self) {
        let Some((ino, index)) = self.pages.whole.pop_front() else { return };
        let version = self.pages.files.get_mut(&ino).and_then(|pages| pages.get_mut(&index));
        let Some(Some(Ok(Made { page, start }))) = version.map(|version| &mut version.made) else { return };
        if let Kept::Here(whole) = page
            && let Ok(Some(away)) = AwayPages(self.tree).keep(start, whole, MOST_KEPT)
        {
            *page = Kept::Away(Box::new(away));
        }
    }

    /// Parts of blocks that make what a page starts from, as far as so many can. `before`: those of the page itself.
    fn parts_of(&self, change: &PageChange, start: &Start, before: Option<&[RawPart]>) -> Vec<RawPart> {
        let of_page = |index: u32| match index == change.index {
            true => before.unwrap_or_default(),
            false => self.pages.page(change.ino, index).map_or(&[][..], |made| &made.start),
        };
        let mut made: Vec<RawPart> = match start {
            Start::Block(addr) => is_block(*addr).then(|| RawPart::whole(*addr)).into_iter().collect(),
            Start::Parts(parts) => parts
                .iter()
                .flat_map(|part| match part.of() {
                    PartOf::Block(_) => vec![*part],
                    PartOf::Page(index) => part.clipped(of_page(index)),
                })
                .collect(),
        };
        made.truncate(MAX_PARTS);
        made
    }

    /// A page as a change makes it. `before`: what it was then.
    fn make_page(
        &self,
        change: &PageChange,
        start: &Start,
        entry: &Entry,
        before: Option<Arc<Block>>,
    ) -> Result<Arc<Block>> {
        let of = || format!("page {} of {}", change.index, self.called(change.ino));
        let unreadable = |e| match e {
            Error::Io(e) => {
                let value = format!("{e} for {}", of());
                FormatError::corrupt(Structure::NvramRecord, entry.delta.start as u64, "base", value).into()
            }
            other => other,
        };
        let mut page = self.read_start(change, start, before).map_err(unreadable)?;
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

    /// What a page's delta starts from. `before`: what the page was then.
    fn read_start(
        &self,
        change: &PageChange,
        start: &Start,
        before: Option<Arc<Block>>,
    ) -> Result<Arc<Block>> {
        let (ino, itself) = (change.ino, change.index);
        let older = |index: u32| match index == itself {
            true => before.clone().ok_or_else(|| lost(ino, index, "which no record has")),
            false => self.pages.page(ino, index).and_then(|made| self.whole(ino, index, &made.page)),
        };
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
                PartOf::Page(index) => made.0[to].copy_from_slice(&older(index)?.0[from]),
            }
        }
        Ok(made.into())
    }

    /// A page as a whole.
    fn whole(&self, ino: Ino, index: u32, page: &Kept) -> Result<Arc<Block>> {
        match page {
            Kept::Here(page) => Ok(page.clone()),
            Kept::Away(away) => AwayPages(self.tree).made_of(ino, index.into(), away),
        }
    }

    /// Makes dirty what records hold of pages, of files that are still there.
    pub(super) fn journaled_pages(&mut self) -> Result<()> {
        let bases = std::mem::take(&mut self.pages.bases);
        if !self.tree.read_only && !bases.is_empty() {
            bases.iter().try_for_each(|&addr| self.tree.segs.lock().pin(&self.tree.io, addr))?;
            self.tree.since.in_nvram.note(bases);
        }
        let is_gone = |inode: &Arc<Inode>| inode.lock.read().dead || inode.nlink() == 0;
        self.pages.files.retain(|ino, _| self.inodes.get(ino).is_some_and(|inode| !is_gone(inode)));
        self.make_all();
        for (ino, pages) in std::mem::take(&mut self.pages.files) {
            let Some(inode) = self.inodes.get(&ino).cloned() else { continue };
            for (index, version) in pages {
                let Some(made) = version.made else { continue };
                let restored = made.and_then(|made| self.journaled_page(&inode, index, made.page));
                self.pass_by(ino, restored)?;
            }
        }
        Ok(())
    }

    /// Makes all pages, in the order of the blocks that they start from.
    fn make_all(&mut self) {
        let pages = self.pages.files.iter().flat_map(|(&ino, pages)| {
            pages.iter().filter(|(_, version)| !version.due.is_empty()).map(move |(&index, _)| (ino, index))
        });
        let first = |(ino, index)| (self.blocks_due(ino, index).next(), ino, index);
        let mut due: Vec<_> = pages.map(first).collect();
        due.sort_unstable();
        for some in due.chunks(AwayPages(self.tree).at_once()) {
            let wanted = some.iter().flat_map(|&(_, ino, index)| self.blocks_due(ino, index));
            AwayPages(self.tree).read_ahead(wanted);
            some.iter().for_each(|&(_, ino, index)| self.make_due(ino, index));
        }
        self.tree.base_cache.forget_ahead();
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
