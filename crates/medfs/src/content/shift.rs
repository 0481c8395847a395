//! Moving all pages of a file from some page on: collapsed and inserted ranges.
//!
//! The pages are written anew in their new order, in windows, while the file stays as it is. Then all
//! addresses change at once, in memory. Deltas and compressed clusters do not go along: the copies are whole
//! pages.
//! Invariants: nothing of the file changes before every copy is on the device, so an error leaves the file as
//! it was. No checkpoint lies between the copies and the addresses, so neither does power loss. What a crash
//! finds is the file before, or, after the next checkpoint or fsync of it, the file afterwards.
//! Memory: a window of pages, the direct nodes of the range, and the runs of the copies.
//! Locks: those of [`Content::change_alone`].
//! Kernel counterpart: `f2fs_do_collapse`, `f2fs_insert_range`, which exchange block addresses page by page.

use crate::content::Content;
use crate::content::block_writer::temperature;
use crate::content::file_range::FileRange;
use crate::content::placement::{Batch, Purpose};
use crate::content::storage::Change;
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use medfs_device::{Cause, WriteTag};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, NEW_ADDR, NULL_ADDR, Nid, is_block};
use medfs_store::NodePage;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const PAGE: u64 = BLOCK_SIZE as u64;
/// Pages copied together.
const WINDOW: u64 = 256;

/// A shift of all pages behind a place in a file.
#[derive(Debug, Clone)]
pub(crate) struct Shift {
    /// The pages that move, as far as the file has any.
    pub(crate) from: Range<u64>,
    /// Where the first of them goes.
    pub(crate) to: u64,
    /// The file's size afterwards.
    pub(crate) size: u64,
}

impl Shift {
    fn target(&self, page: u64) -> u64 {
        page - self.from.start + self.to
    }
    /// The first page that changes.
    fn first(&self) -> u64 {
        self.from.start.min(self.to)
    }
    /// Behind the last page that has or will have something.
    fn end(&self) -> u64 {
        self.from.end.max(self.target(self.from.end))
    }
}

/// Pages next to each other that have new blocks next to each other, or are reserved alone.
#[derive(Debug)]
struct Run {
    page: u64,
    addr: BlockAddr,
    len: u64,
}

impl Run {
    fn addr_of(&self, n: u64) -> BlockAddr {
        if is_block(self.addr) { self.addr + n as BlockAddr } else { self.addr }
    }
}

/// The new places of the pages.
#[derive(Debug, Default)]
struct Runs(Vec<Run>);

impl Runs {
    fn push(&mut self, page: u64, addr: BlockAddr) {
        match self.0.last_mut() {
            Some(run)
                if run.page + run.len == page
                    && is_block(run.addr) == is_block(addr)
                    && run.addr_of(run.len) == addr =>
            {
                run.len += 1
            }
            _ => self.0.push(Run { page, addr, len: 1 }),
        }
    }
}

/// A page that is no hole.
struct There {
    page: u64,
    /// It has content; otherwise it is reserved alone.
    copied: bool,
    /// The node with its address.
    node: Arc<NodePage>,
}

/// What a shift needs before it begins.
#[derive(Default)]
struct Needs {
    /// Pages that have content or are reserved.
    pages: u64,
    /// Those of them that are copied.
    copies: u64,
    /// Nodes with old or new addresses, which stay in memory.
    nodes: BTreeMap<Nid, Arc<NodePage>>,
}

impl Content {
    /// Moves pages. The places that they come to are overwritten. The inode has no inline content.
    pub(crate) fn shift_pages(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        shift: &Shift,
    ) -> Result<()> {
        FileRange { content: self, inode }.shift(state, shift)
    }
}

impl FileRange<'_> {
    /// Moves pages. The places that they come to are overwritten. The inode has no inline content.
    pub(super) fn shift(&self, state: &mut InodeState, shift: &Shift) -> Result<()> {
        let storage = self.storage(self.inode);
        storage.before(self.content, self.inode, state, Change::Leave(shift.first()..u64::MAX))?;
        if shift.size > self.inode.size() {
            storage.before(self.content, self.inode, state, Change::Address(shift.end() - 1))?;
        }
        let needs = self.needs_of_shift(state, shift)?;
        self.space.reserve(needs.pages)?;
        let mut runs = Runs::default();
        if let Err(e) = self.copy_pages(state, shift, &mut runs) {
            self.space.release(needs.pages);
            let (now, mut segs) = (self.elapsed(), self.segs.lock());
            for run in runs.0.iter().filter(|run| is_block(run.addr)) {
                (0..run.len).try_for_each(|n| segs.mark_invalid(&self.io, run.addr_of(n), now))?;
            }
            return Err(e);
        }
        self.space.wrote(needs.copies);
        state.data_mark = self.io.write_mark();
        let done = self.name_copies(state, shift, &runs);
        if done.is_err() {
            // Half of it must not become durable.
            self.io.stop_writing("the addresses of moved pages could not be changed");
        }
        done
    }

    /// Counts what moves, and makes and finds the nodes.
    fn needs_of_shift(&self, state: &InodeState, shift: &Shift) -> Result<Needs> {
        let mut needs = Needs::default();
        let (mut near, mut near_to): (Option<Slot>, Option<Slot>) = (None, None);
        self.for_windows(shift.from.clone(), |window| {
            for There { page, copied, node } in self.pages_that_are(state, window, &mut near)? {
                needs.nodes.entry(node.nid).or_insert(node);
                let to = self.make_slot_near(self.inode, near_to.as_ref(), shift.target(page))?;
                needs.nodes.entry(to.node.nid).or_insert_with(|| to.node.clone());
                near_to = Some(to);
                needs.pages += 1;
                needs.copies += u64::from(copied);
            }
            Ok(())
        })?;
        Ok(needs)
    }

    /// Calls `f` for windows of a range of pages, but not for those that lie in holes as large as a node.
    fn for_windows(&self, pages: Range<u64>, mut f: impl FnMut(Range<u64>) -> Result<()>) -> Result<()> {
        let mut index = pages.start;
        while let Some(at) = self.existing(self.inode, index, pages.end)? {
            index = pages.end.min(at + WINDOW);
            f(at..index)?;
        }
        Ok(())
    }

    /// The pages of a window that are no holes.
    fn pages_that_are(
        &self,
        state: &InodeState,
        window: Range<u64>,
        near: &mut Option<Slot>,
    ) -> Result<Vec<There>> {
        let kept = self.storage(self.inode).kept(self.content, self.inode, window.clone())?;
        let mut found = Vec::new();
        let mut cluster_ends = 0;
        for page in window {
            let Some(slot) = self.find_slot_near(self.inode, near.as_ref(), page)? else { continue };
            let addr = slot.addr();
            self.check_addr(self.inode, page, addr)?;
            cluster_ends = self.end_of_cluster(self.inode, &slot, page).unwrap_or(cluster_ends);
            let node = slot.node.clone();
            *near = Some(slot);
            let copied = is_block(addr)
                || page < cluster_ends
                || state.pages.is_dirty(page)
                || kept.binary_search(&page).is_ok();
            if copied || addr == NEW_ADDR {
                found.push(There { page, copied, node });
            }
        }
        Ok(found)
    }

    /// Writes the pages to new blocks, which belong to the slots that they will have.
    fn copy_pages(&self, state: &InodeState, shift: &Shift, runs: &mut Runs) -> Result<()> {
        let block = Batch::of(self.inode, Purpose::Background, WINDOW as usize).new_block();
        let tag = WriteTag::new(Cause::Data, temperature(block.log()));
        let size = self.inode.size();
        let mut near = None;
        let mut near_to: Option<Slot> = None;
        self.for_windows(shift.from.clone(), |window| {
            let first = window.start;
            let there = self.pages_that_are(state, window.clone(), &mut near)?;
            let mut content = vec![0; (window.end - first) as usize * BLOCK_SIZE];
            if there.iter().any(|there| there.copied) {
                self.read_range(self.inode, state, first * PAGE, &mut content)?;
                let end = size.saturating_sub(first * PAGE).min(content.len() as u64);
                content[end as usize..].fill(0);
            }
            let mut slots = Vec::new();
            for &There { page, copied, .. } in &there {
                let to = self.make_slot_near(self.inode, near_to.as_ref(), shift.target(page))?;
                near_to = Some(to.clone());
                slots.extend(copied.then_some(to));
            }
            let mut new = self.block_writer().assign_beside(&slots, &block)?.into_iter();
            let mut blocks: Vec<(BlockAddr, Block)> = Vec::with_capacity(slots.len());
            for &There { page, copied, .. } in &there {
                let addr = if copied { new.next().unwrap_or(NEW_ADDR) } else { NEW_ADDR };
                runs.push(shift.target(page), addr);
                if copied {
                    let at = (page - first) as usize * BLOCK_SIZE;
                    let mut block = Block::ZERO;
                    block.0.copy_from_slice(&content[at..at + BLOCK_SIZE]);
                    blocks.push((addr, block));
                }
            }
            let refs: Vec<(BlockAddr, &Block)> = blocks.iter().map(|(addr, block)| (*addr, block)).collect();
            Ok(self.io.write_scattered(&refs, tag)?)
        })
    }

    /// Gives the file its new addresses and frees what was there.
    fn name_copies(&self, state: &mut InodeState, shift: &Shift, runs: &Runs) -> Result<()> {
        self.drop_page_run(self.inode, state, shift.first()..shift.end())?;
        let mut near: Option<Slot> = None;
        for run in &runs.0 {
            for n in 0..run.len {
                let slot = self.make_slot_near(self.inode, near.as_ref(), run.page + n)?;
                debug_assert_eq!(slot.addr(), NULL_ADDR, "what was there is dropped");
                self.set_addr(self.inode, &slot, run.addr_of(n));
                near = Some(slot);
            }
            self.add_blocks(self.inode, run.len as i64);
        }
        if shift.size < self.inode.size() {
            // Pages reserved behind the end go, as with any truncation.
            let behind = shift.size.div_ceil(PAGE);
            self.storage(self.inode).dropped(self.content, self.inode, state, behind..u64::MAX)?;
            self.truncate_pages(self.inode, behind)?;
        }
        self.set_size(self.inode, shift.size);
        Ok(())
    }
}
