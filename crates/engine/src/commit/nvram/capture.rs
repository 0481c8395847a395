//! What a record takes of a file, as it is at one moment (Delta Journaling, Fig. 3 and section III.C).
//!
//! Invariant: what was taken is either in a record, or given back.
//! Locks: the inode's lock while its changes are taken, and again when they are recorded.

use super::{Left, Recorder};
use crate::commit::change_set::{Naming, StagedFile};
use crate::commit::roll_forward_log::{Due, in_the_way, take_due};
use crate::content::placement::Purpose;
use crate::map::inode::InodeState;
use medfs_codec::page_checksum;
use medfs_format::nvram::{Body, Home, RecordBuilder};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, NEW_ADDR, NULL_ADDR, is_block};
use medfs_store::NodePage;
use std::sync::Arc;

/// Most pages of a file in a record: more are written once, to the log.
const MOST_PAGES: usize = 256;
/// Largest delta in bytes: what takes more of a block is written as one (Delta Journaling, section III.C).
const MOST_DELTA: usize = BLOCK_SIZE / 4;

/// What a page or node differs by from a block.
struct Delta {
    checksum: u32,
    codec: u8,
    bytes: Vec<u8>,
}

impl Delta {
    fn of(&self, base: BlockAddr) -> Body<'_> {
        Body { base, checksum: self.checksum, codec: self.codec, delta: &self.bytes }
    }
}

/// A changed page, and how it differs from the block that its address names: `NULL_ADDR` where it has none yet.
struct Page {
    index: u32,
    content: Arc<Block>,
    base: BlockAddr,
    delta: Delta,
    /// No record held it before.
    new: bool,
}

/// See the module.
pub(super) struct Capture<'s> {
    file: &'s StagedFile<'s>,
    pages: Vec<Page>,
    /// Pages that older records hold, and that are not dirty any more.
    revoked: Vec<u64>,
    due: Due,
    /// The device's write mark behind what the file's nodes name.
    pub(super) mark: u64,
}

/// What a record came to hold of a file.
#[derive(Debug, Default)]
pub(super) struct Recorded {
    pub(super) pages: u64,
    pub(super) new_pages: u64,
    pub(super) nodes: u64,
    pub(super) revoked: u64,
}

/// Whether a record may say what changed of a file: one that roll-forward knows, under the name it had.
pub(super) fn is_eligible(on: &Recorder<'_>, file: &StagedFile<'_>) -> bool {
    file.regular
        && file.refused.is_none()
        && file.naming == Naming::AsItWas
        && matches!(file.purpose, Purpose::Fsync { .. })
        && !on.fs.is_compressed(file.inode)
        && !on.fs.needs_dentry_mark(file.inode).unwrap_or(true)
        && in_the_way(on.fs, file).is_none()
}

impl<'s> Capture<'s> {
    /// Takes what changed of a file since it was last durable; `Err` where a record cannot hold it. What was taken is returned all the same.
    pub(super) fn take(on: &Recorder<'_>, file: &'s StagedFile<'s>) -> (Capture<'s>, Result<(), Left>) {
        let state = file.inode.lock.write();
        let mut capture = Capture {
            file,
            pages: Vec::new(),
            revoked: Vec::new(),
            due: Due::default(),
            mark: state.data_mark,
        };
        let taken = capture.take_pages(on, &state);
        if taken.is_ok() {
            let least = file.purpose.least_to_write();
            if on.fs.nodes.dirtiness_of(file.inode.ino) >= least {
                capture.due = take_due(on.fs, file.inode, least);
            }
        }
        (capture, taken)
    }

    fn take_pages(&mut self, on: &Recorder<'_>, state: &InodeState) -> Result<(), Left> {
        let inode = self.file.inode;
        if in_the_way(on.fs, self.file).is_some() {
            return Err(Left::Kind);
        }
        let fresh = on.fs.since.in_nvram.of(inode.ino, |held| {
            self.revoked = held.keys().filter(|index| !state.dirty.contains_key(index)).copied().collect();
            let is_held = |index: &u64, page: &Arc<Block>| {
                held.get(index).and_then(Option::as_ref).is_some_and(|held| Arc::ptr_eq(held, page))
            };
            let fresh = state.dirty.iter().filter(|(index, page)| !is_held(index, page));
            fresh.take(MOST_PAGES + 1).map(|(&i, page)| (i, page.clone(), !held.contains_key(&i))).collect()
        });
        self.take_fresh(on, fresh)
    }

    /// Takes pages as deltas of the blocks that their addresses name. Before the nodes: a page that a record cannot hold sends them to the log as
    /// they are.
    fn take_fresh(&mut self, on: &Recorder<'_>, fresh: Vec<(u64, Arc<Block>, bool)>) -> Result<(), Left> {
        let inode = self.file.inode;
        let compact = on.fs.compact_start(inode);
        let mut near = None;
        for (index, content, new) in fresh {
            let number = u32::try_from(index).ok().filter(|_| index < compact).ok_or(Left::Kind)?;
            if self.pages.len() == MOST_PAGES {
                return Err(Left::Large);
            }
            let slot = on.fs.find_slot_near(inode, near.as_ref(), index).map_err(|_| Left::Unreadable)?;
            let base = match slot.as_ref().map(|slot| slot.addr()) {
                Some(addr) if is_block(addr) => addr,
                Some(NEW_ADDR) => NULL_ADDR,
                _ => return Err(Left::Kind),
            };
            near = slot;
            let delta = match is_block(base) {
                true => on.delta(&*on.fs.base(base).map_err(|_| Left::Unreadable)?, &content)?,
                false => on.delta(&Block::ZERO, &content)?,
            };
            self.pages.push(Page { index: number, content, base, delta, new });
        }
        Ok(())
    }

    /// Adds to a record what was taken.
    pub(super) fn encode(&self, on: &Recorder<'_>, record: &mut RecordBuilder) -> Result<(), Left> {
        let ino = self.file.inode.ino;
        // The inode last, as in the chain: it says how far the others count.
        let (last, others): (Vec<_>, Vec<_>) = self.due.nodes.iter().partition(|(page, _)| page.nid == ino);
        for (page, block) in others.into_iter().chain(last) {
            self.encode_node(on, (page, block), record)?;
        }
        for run in self.revoked.chunk_by(|a, b| a + 1 == *b) {
            for some in run.chunks(usize::from(u16::MAX)) {
                // Pages of records have numbers of 32 bits.
                record.revoke(ino, some[0] as u32, some.len() as u16);
            }
        }
        for page in &self.pages {
            record.delta(ino, Home::Page(page.index), page.delta.of(page.base));
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
        let addr = on.fs.nat.peek(&on.fs.io, nid).map_err(|_| Left::Unreadable)?.addr;
        let (rules, notes) = (&on.fs.nodes.rules, &self.due.left_out.notes);
        let (from, delta) = if is_block(addr) {
            let base = on.node_base(addr).map_err(|_| Left::Unreadable)?;
            let image = rules.image_over(&base, block, notes).ok_or(Left::Unreadable)?;
            (addr, on.delta(&base, &image)?)
        } else {
            (NULL_ADDR, on.delta(&Block::ZERO, &rules.image_of_new(block, notes))?)
        };
        record.delta(ino, Home::Node(nid), delta.of(from));
        Ok(())
    }

    /// Blocks that the record's pages start from.
    pub(super) fn bases(&self) -> impl Iterator<Item = BlockAddr> + '_ {
        self.pages.iter().map(|page| page.base).filter(|&addr| is_block(addr))
    }

    /// Pages that no record held before.
    pub(super) fn new_pages(&self) -> usize {
        self.pages.iter().filter(|page| page.new).count()
    }

    /// It is in a record that is durable.
    pub(super) fn recorded(self, on: &Recorder<'_>) -> Recorded {
        let recorded = Recorded {
            pages: self.pages.len() as u64,
            new_pages: self.new_pages() as u64,
            nodes: self.due.nodes.len() as u64,
            revoked: self.revoked.len() as u64,
        };
        // The next checkpoint writes them, no fsync needs to.
        self.due.nodes.iter().for_each(|(page, _)| on.fs.nodes.mark_shared(page));
        on.fs.dependents.settle(&self.due.gone);
        let mut state = self.file.inode.lock.write();
        on.fs.since.in_nvram.of(self.file.inode.ino, |held| {
            self.revoked.iter().for_each(|index| drop(held.remove(index)));
            for Page { index, content, .. } in self.pages {
                let index = u64::from(index);
                let dirty = state.dirty.contains_key(&index);
                state.with_checkpoint |= dirty;
                held.insert(index, dirty.then_some(content));
            }
        });
        recorded
    }

    /// No record has it.
    pub(super) fn give_back(self, on: &Recorder<'_>) {
        let Due { nodes, left_out, gone } = self.due;
        nodes.iter().map(|(page, _)| page).chain(&left_out.nodes).for_each(|page| on.fs.nodes.mark(page));
        on.fs.dependents.give_back(gone);
    }
}

impl Recorder<'_> {
    /// What `content` differs by from a block; `Large` where that is no little.
    fn delta(&self, base: &Block, content: &Block) -> Result<Delta, Left> {
        let checksum = page_checksum(&content.0);
        self.fs.deltas.with_codecs(|codecs| {
            let delta = codecs.delta(&base.0, &content.0, MOST_DELTA).ok_or(Left::Large)?;
            Ok(Delta { checksum, codec: delta.tag as u8, bytes: delta.bytes.to_vec() })
        })
    }
}
