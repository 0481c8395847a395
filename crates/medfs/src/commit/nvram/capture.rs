//! What a record takes of a file, as it is at one moment (Delta Journaling, Fig. 3 and section III.C).
//!
//! Invariant: what was taken is either in a record, or given back.
//! Locks: the inode's lock while its changes are taken, and again when they are recorded.

use super::admission::{Admission, Encoded};
use super::parts::{Parts, Whose};
use super::recorder::{Left, Recorder};
use crate::commit::change_set::{Naming, StagedFile};
use crate::commit::roll_forward_log::{Due, in_the_way, name_is_as_recorded, name_is_durable, take_due};
use crate::content::away::AwayPages;
use crate::content::page_plan::Placing;
use crate::content::placement::Purpose;
use crate::error::Error;
use crate::map::inode::InodeState;
use crate::map::journaled::Pages;
use crate::xref::sqlite_wal::note_recorded;
use medfs_codec::page_checksum;
use medfs_format::nvram::{Base, Body, Home, PartOf, RawPart, RecordBuilder};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, NEW_ADDR, NULL_ADDR, is_block};
use medfs_store::NodePage;
use std::collections::HashSet;
use std::sync::Arc;

/// Most pages of a file in a record: the others are written once, to the log.
const MOST_PAGES: usize = 256;
/// After so many pages in a row that no record is to hold no more of the file are looked at.
const MOST_IN_VAIN: usize = 32;
/// Deltas of at most as many bytes are not tried to be made smaller.
const GOOD_ENOUGH: usize = 256;

/// What a page or node differs by from a block.
struct Delta {
    checksum: u32,
    codec: u8,
    bytes: Vec<u8>,
}

impl Delta {
    fn of<'a>(&'a self, base: Base<'a>) -> Body<'a> {
        Body { base, checksum: self.checksum, codec: self.codec, delta: &self.bytes }
    }
}

/// What a page's delta starts from.
enum Start {
    /// The block that its address names: `NULL_ADDR` where it has none yet.
    Own(BlockAddr),
    /// Parts of blocks, and of pages as older records have them.
    Parts(Vec<RawPart>),
}

impl Start {
    /// Bytes of a record that it takes.
    fn size(&self) -> usize {
        match self {
            Start::Own(_) => 0,
            Start::Parts(parts) => size_of_val(&parts[..]),
        }
    }

    fn base(&self) -> Base<'_> {
        match self {
            Start::Own(addr) => Base::Block(*addr),
            Start::Parts(parts) => Base::Parts(parts),
        }
    }
}

/// A changed page, and how it differs from what is on the volume.
struct Page {
    index: u32,
    content: Arc<Block>,
    /// The block that its address names: `NULL_ADDR` where it has none yet.
    block: BlockAddr,
    start: Start,
    delta: Delta,
    /// No record held it before.
    new: bool,
}

/// A page that no record has as it is now.
struct Fresh {
    index: u64,
    content: Arc<Block>,
    /// As the last record has it, where one does.
    before: Option<Arc<Block>>,
    /// No record held it before.
    new: bool,
}

impl Fresh {
    /// A dirty page, unless the last record has it as it is.
    fn of((index, page): (u64, &Arc<Block>), held: &Pages) -> Option<Fresh> {
        let before = held.get(&index);
        let new = before.is_none();
        let before = before.cloned().flatten();
        let is_held = before.as_ref().is_some_and(|before| Arc::ptr_eq(before, page));
        (!is_held).then(|| Fresh { index, content: page.clone(), before, new })
    }
}

/// The smallest delta of a page among those that were looked at.
struct Smallest {
    /// Bytes that a smaller one takes at most.
    most: usize,
    found: Option<(Start, Encoded)>,
}

impl Smallest {
    /// Whether no other is looked for.
    fn is_small(&self) -> bool {
        self.most <= GOOD_ENOUGH
    }

    /// Looks at what differs from a start, which is this block; `false` where it is not smaller.
    fn look(&mut self, on: &Recorder<'_>, start: Start, made: &Block, content: &Block) -> bool {
        let Some(most) = self.most.checked_sub(start.size()).filter(|_| !self.is_small()) else {
            return false;
        };
        let Some(encoded) = on.encoded(on.admission, made, content, most) else { return false };
        self.most = start.size() + encoded.bytes.len();
        self.found = Some((start, encoded));
        true
    }
}

/// See the module.
pub(super) struct Capture<'s> {
    file: &'s StagedFile<'s>,
    pages: Vec<Page>,
    /// Pages that get blocks.
    to_place: Vec<u64>,
    /// Pages that older records hold, and that are not dirty any more, or get blocks.
    revoked: Vec<u64>,
    due: Due,
    /// Whether the file is new, or has a new name: its inode says which.
    named: bool,
    /// The device's write mark behind what the file's nodes name.
    pub(super) mark: u64,
}

/// What a record came to hold of a file.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) pages: u64,
    pub(super) from_parts: u64,
    pub(super) nodes: u64,
    pub(super) revoked: u64,
    /// Pages that got blocks for it.
    pub(super) placed: u64,
}

/// Whether a record may say what changed of a file: one that roll-forward brings back, with its name where that is new.
pub(super) fn is_eligible(on: &Recorder<'_>, file: &StagedFile<'_>) -> bool {
    file.regular
        && file.refused.is_none()
        && matches!(file.purpose, Purpose::Fsync { .. })
        && !on.tree.is_compressed(file.inode)
        // Its blocks do not move, and those of a record's pages are not overwritten.
        && !file.inode.is_pinned()
        // Power loss takes a file without a name, and a checkpoint may have listed it: no record is to look for it.
        && file.inode.nlink() > 0
        && in_the_way(on.tree, file).is_none()
}

impl<'s> Capture<'s> {
    /// Takes what changed of a file since it was last durable, and gives the pages that the record is not to hold
    /// their blocks; `Left` where it cannot hold the file. What was taken is returned all the same.
    pub(super) fn take(on: &Recorder<'_>, file: &'s StagedFile<'s>) -> (Capture<'s>, Result<(), Left>) {
        let mut state = file.inode.lock.write();
        let named = file.naming == Naming::Record || on.tree.needs_dentry_mark(file.inode).unwrap_or(true);
        let mut capture = Capture {
            file,
            named,
            pages: Vec::new(),
            to_place: Vec::new(),
            revoked: Vec::new(),
            due: Due::default(),
            mark: state.data_mark,
        };
        let taken = capture.take_pages(on, &state);
        let placing = match &taken {
            Ok(()) if !capture.to_place.is_empty() => {
                Some(file.place_pages(on.tree, &mut state, &capture.to_place))
            }
            _ => None,
        };
        let placed = placing.as_ref().map_or(Ok(()), |placing| match placing.outcome {
            Ok(()) if placing.blocked.is_empty() => Ok(()),
            Err(Error::NoSpace) => Err(Left::NoRoom),
            _ => Err(Left::Kind),
        });
        if let Some(placing) = &placing {
            capture.revoke_placed(on, &state, placing);
        }
        let taken = taken.and(placed).and_then(|()| capture.take_nodes(on));
        drop(state);
        let Some(placing) = placing else { return (capture, taken) };
        let written = file.write_placed(on.tree, placing);
        capture.mark = capture.mark.max(written.mark);
        let taken = taken.and_then(|()| written.outcome.map_err(|_| Left::Unreadable));
        (capture, taken)
    }

    /// More pages may have got their blocks than were to, or their deltas places in the zone: no record is to say
    /// anything of them, this one neither. Its deltas of them stay in it, as others may start from them.
    fn revoke_placed(&mut self, on: &Recorder<'_>, state: &InodeState, placing: &Placing) {
        let placed: HashSet<u64> = placing.pages.iter().map(|page| page.index).collect();
        let gone = |index: &u64| placed.contains(index) || !state.pages.is_dirty(*index);
        let held =
            on.tree.since.in_nvram.of(self.file.inode.ino, |held| held.keys().copied().collect::<Vec<_>>());
        let captured = self.pages.iter().map(|page| u64::from(page.index));
        self.revoked.extend(captured.chain(held).filter(gone));
        self.revoked.sort_unstable();
        self.revoked.dedup();
    }

    fn take_nodes(&mut self, on: &Recorder<'_>) -> Result<(), Left> {
        let (inode, least) = (self.file.inode, self.file.purpose.least_to_write());
        // Asked again: pages that were placed may have cut the tree of nodes.
        if !self.to_place.is_empty() && in_the_way(on.tree, self.file).is_some() {
            return Err(Left::Kind);
        }
        if on.tree.nodes.dirtiness_of(inode.ino) >= least {
            if self.file.naming == Naming::Record {
                name_is_as_recorded(on.tree, inode);
            }
            self.due = take_due(on.tree, inode, least);
        }
        let has_inode = self.due.nodes.iter().any(|(page, _)| page.nid == inode.ino);
        if self.named && !has_inode { Err(Left::Kind) } else { Ok(()) }
    }

    fn take_pages(&mut self, on: &Recorder<'_>, state: &InodeState) -> Result<(), Left> {
        let inode = self.file.inode;
        if in_the_way(on.tree, self.file).is_some() {
            return Err(Left::Kind);
        }
        let journal = &on.tree.since.in_nvram;
        let fresh = journal.of(inode.ino, |held| match state.pages.touched(journal.epoch()) {
            Some(touched) => {
                self.revoked = touched.iter().filter(|index| held.contains_key(index)).copied().collect();
                let dirty = |&index: &u64| Some((index, state.pages.get(index)?));
                touched.iter().filter_map(dirty).filter_map(|page| Fresh::of(page, held)).collect()
            }
            None => {
                self.revoked = held.keys().copied().collect();
                state.pages.dirty_here(..).filter_map(|page| Fresh::of(page, held)).collect()
            }
        });
        self.revoked.retain(|&index| !state.pages.is_dirty(index));
        self.take_fresh(on, state, fresh)
    }

    /// Takes pages as deltas, those that the record is to hold. Before the nodes: the others give these new addresses.
    fn take_fresh(&mut self, on: &Recorder<'_>, state: &InodeState, fresh: Vec<Fresh>) -> Result<(), Left> {
        let inode = self.file.inode;
        let compact = on.tree.compact_start(inode);
        let (mut near, mut bytes, mut in_vain) = (None, 0, 0);
        for Fresh { index, content, before, new } in fresh {
            if !self.to_place.is_empty() && !on.places {
                return Err(Left::Large);
            }
            let number = u32::try_from(index).ok().filter(|_| index < compact);
            let fits = self.pages.len() < MOST_PAGES && bytes <= on.most && in_vain < MOST_IN_VAIN;
            let Some(number) = number.filter(|_| fits && on.admission != Admission::Nodes) else {
                self.to_place.push(index);
                continue;
            };
            let slot = on.tree.find_slot_near(inode, near.as_ref(), index).map_err(|_| Left::Unreadable)?;
            let base = match slot.as_ref().map(|slot| slot.addr()) {
                Some(addr) if is_block(addr) => addr,
                Some(NEW_ADDR) => NULL_ADDR,
                _ => return Err(Left::Kind),
            };
            near = slot;
            match self.smallest(on, state, (number, base), &content, before)? {
                Some((start, delta)) => {
                    (bytes, in_vain) = (bytes + delta.bytes.len(), 0);
                    self.pages.push(Page { index: number, content, block: base, start, delta, new });
                }
                None => {
                    in_vain += 1;
                    self.to_place.push(index);
                }
            }
        }
        if self.to_place.is_empty() || on.places { Ok(()) } else { Err(Left::Large) }
    }

    /// A small delta of a page: of what its file repeats, of itself as the last record has it, or of its own block,
    /// which may have to be read. What is small enough is not compared with the others. `None` where the record is not
    /// to hold the page.
    fn smallest(
        &mut self,
        on: &Recorder<'_>,
        state: &InodeState,
        (index, base): (u32, BlockAddr),
        content: &Block,
        before: Option<Arc<Block>>,
    ) -> Result<Option<(Start, Delta)>, Left> {
        let mut best = Smallest { most: on.most_of_a_page, found: None };
        let parts = self.parts_repeated(on, state, index).map_err(|_| Left::Unreadable)?;
        if let Some(parts) = parts
            && best.look(on, Start::Parts(parts.parts), &parts.made, content)
        {
            self.mark = self.mark.max(parts.mark);
        }
        if let Some(before) = before {
            let itself = vec![RawPart::new(PartOf::Page(index), 0, 0, BLOCK_SIZE as u16)];
            best.look(on, Start::Parts(itself), &before, content);
        }
        if !best.is_small() {
            let block = match is_block(base) {
                true => Some(on.tree.base(base).map_err(|_| Left::Unreadable)?),
                false => None,
            };
            best.look(on, Start::Own(base), block.as_deref().unwrap_or(&Block::ZERO), content);
        }
        let checksum = page_checksum(&content.0);
        let delta = |Encoded { codec, bytes }| Delta { checksum, codec: codec as u8, bytes };
        Ok(best.found.map(|(start, encoded)| (start, delta(encoded))))
    }

    fn parts_repeated(
        &self,
        on: &Recorder<'_>,
        state: &InodeState,
        index: u32,
    ) -> crate::error::Result<Option<Parts>> {
        let inode = self.file.inode;
        let taken = |page: u64| {
            let at = self.pages.binary_search_by_key(&page, |taken| taken.index.into()).ok()?;
            Some(self.pages[at].content.clone())
        };
        // What is not dirty any more this record revokes.
        let held = |page: u64| {
            let version = |held: &mut Pages| held.get(&page).cloned().flatten();
            match state.pages.away(page) {
                Some(away) => AwayPages(on.tree).made_of(inode.ino, page, away).ok(),
                None if state.pages.is_dirty(page) => on.tree.since.in_nvram.of(inode.ino, version),
                None => None,
            }
        };
        let recorded = |page: u64| taken(page).or_else(|| held(page));
        on.parts_repeated(&Whose { inode, state, recorded }, index)
    }

    /// Adds to a record what was taken.
    pub(super) fn encode(&self, on: &Recorder<'_>, record: &mut RecordBuilder) -> Result<(), Left> {
        let ino = self.file.inode.ino;
        // The inode last, as in the chain: it says how far the others count.
        let (last, others): (Vec<_>, Vec<_>) = self.due.nodes.iter().partition(|(page, _)| page.nid == ino);
        for (page, block) in others.into_iter().chain(last) {
            self.encode_node(on, (page, block), record)?;
        }
        for page in &self.pages {
            record.delta(ino, Home::Page(page.index), page.delta.of(page.start.base()));
        }
        // Pages may start from what older records made of these.
        for run in self.revoked.chunk_by(|a, b| a + 1 == *b) {
            for some in run.chunks(usize::from(u16::MAX)) {
                // Pages of records have numbers of 32 bits.
                record.revoke(ino, some[0] as u32, some.len() as u16);
            }
        }
        Ok(())
    }

    fn encode_node(
        &self,
        on: &Recorder<'_>,
        (page, block): (&Arc<NodePage>, &Arc<Block>),
        record: &mut RecordBuilder,
    ) -> Result<(), Left> {
        let (ino, nid) = (page.ino, page.nid);
        let addr = on.tree.nat.peek(&on.tree.io, nid).map_err(|_| Left::Unreadable)?.addr;
        let base = match is_block(addr) {
            true => Some(on.node_base(addr).map_err(|_| Left::Unreadable)?),
            false => None,
        };
        let (rules, notes) = (&on.tree.nodes.rules, &self.due.left_out.notes);
        let mut image = on.image.lock().take().unwrap_or_else(Block::boxed);
        image.0.copy_from_slice(&block.0);
        let is_of_node = rules.make_image(&mut image, base.as_deref(), notes);
        let delta = on.node_delta(base.as_deref().unwrap_or(&Block::ZERO), &image);
        *on.image.lock() = Some(image);
        if !is_of_node {
            return Err(Left::Unreadable);
        }
        let from = if base.is_some() { addr } else { NULL_ADDR };
        let home = if self.named && nid == ino { Home::Named } else { Home::Node(nid) };
        record.delta(ino, home, delta.ok_or(Left::Large)?.of(Base::Block(from)));
        Ok(())
    }

    /// The blocks of the record's pages. All stay as they are, also where a page starts from others: a page
    /// that was overwritten in place would leave no node for the roll-forward log to write, and nothing to
    /// tell recovery that the record is older.
    pub(super) fn bases(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        self.pages.iter().map(|page| page.block).filter(|&addr| is_block(addr))
    }

    /// Pages that no record held before.
    pub(super) fn new_pages(&self) -> usize {
        self.pages.iter().filter(|page| page.new).count()
    }

    /// It is in a record that is durable.
    pub(super) fn recorded(self, on: &Recorder<'_>) -> Recorded {
        let recorded = Recorded {
            pages: self.pages.len() as u64,
            from_parts: self.pages.iter().filter(|page| matches!(page.start, Start::Parts(_))).count() as u64,
            nodes: self.due.nodes.len() as u64,
            revoked: self.revoked.len() as u64,
            placed: self.to_place.len() as u64,
        };
        // The next checkpoint writes them, no fsync needs to.
        self.due.nodes.iter().for_each(|(page, _)| on.tree.nodes.mark_shared(page));
        on.tree.refs.settle(&self.due.gone);
        let inode = self.file.inode;
        if self.named {
            if let Err(error) = on.tree.nat.note_fsynced(&on.tree.io, inode.ino) {
                tracing::debug!(%error, "an fsync of the directory will take a checkpoint");
            }
            on.tree.space.wrote_in_chain(0, 1);
            name_is_durable(on.tree, self.file);
        }
        let mut state = inode.lock.write();
        on.tree.since.in_nvram.of(inode.ino, |held| {
            for Page { index, content, .. } in &self.pages {
                let index = u64::from(*index);
                let dirty = state.pages.is_dirty(index);
                state.with_checkpoint |= dirty;
                held.insert(index, dirty.then(|| content.clone()));
            }
            self.revoked.iter().for_each(|index| drop(held.remove(index)));
            watch(&mut state, on.tree.since.in_nvram.epoch(), held);
        });
        for page in &self.pages {
            if let Err(error) = note_recorded(on.tree, inode, &state, page.index.into()) {
                tracing::debug!(%error, "frames of a log are not remembered");
            }
        }
        recorded
    }

    /// No record has it.
    pub(super) fn give_back(self, on: &Recorder<'_>) {
        self.file.inode.lock.write().pages.unwatch();
        let Due { nodes, left_out, gone } = self.due;
        nodes.iter().map(|(page, _)| page).chain(&left_out.nodes).for_each(|page| on.tree.nodes.mark(page));
        on.tree.refs.give_back(gone);
    }
}

/// From now on a file knows which of its pages records do not have as they are: at first those that changed while the
/// last one was made.
fn watch(state: &mut InodeState, epoch: u64, held: &Pages) {
    let differs = |index: &u64| match state.pages.get(*index) {
        Some(content) => !held.get(index).and_then(Option::as_ref).is_some_and(|h| Arc::ptr_eq(h, content)),
        None => state.pages.away(*index).is_none() && held.contains_key(index),
    };
    let still = match state.pages.touched(epoch) {
        Some(touched) => touched.iter().copied().filter(differs).collect(),
        None => state.pages.dirty(..).chain(held.keys().copied()).filter(differs).collect(),
    };
    state.pages.watch(epoch, still);
}

impl Recorder<'_> {
    /// What a node differs by from another.
    fn node_delta(&self, base: &Block, content: &Block) -> Option<Delta> {
        let Encoded { codec, bytes } = self.encoded(Admission::Size, base, content, BLOCK_SIZE)?;
        Some(Delta { checksum: page_checksum(&content.0), codec: codec as u8, bytes })
    }

    /// What a block differs by from another, in at most so many bytes, where it is admitted.
    fn encoded(&self, by: Admission, base: &Block, content: &Block, most: usize) -> Option<Encoded> {
        self.tree.deltas.with_codecs(|codecs| by.encode(codecs, base, content, most))
    }
}
