//! Dirty pages that left memory: a record in NVRAM has each of them, and all that is kept of it is how it differs from
//! blocks that stay as they are.
//!
//! Invariants:
//! 1. Records need the blocks that it starts from, until a checkpoint makes them void. That checkpoint writes the page.
//! 2. A page does not leave as long as there are closed versions of its file: it may be on its way to its block.
//! 3. It comes back before it changes, and before it is placed. Its version is the one that changed it.
//!
//! Locks: the inode's (6), shared to look and exclusive to change.

use super::page_versions::PageVersions;
use medfs_format::nvram::{PartOf, RawPart};
use medfs_format::{Block, BlockAddr};
use std::sync::Arc;

/// What memory has of a dirty page.
#[derive(Debug)]
pub(crate) enum Kept {
    Here(Arc<Block>),
    Away(Box<Away>),
}

impl From<Arc<Block>> for Kept {
    fn from(page: Arc<Block>) -> Kept {
        Kept::Here(page)
    }
}

/// What is kept of a page.
#[derive(Debug)]
pub(crate) struct Away {
    /// Parts of blocks that make what it starts from; the rest of that is zeros.
    pub(crate) start: Box<[RawPart]>,
    /// How it differs from that.
    pub(crate) codec: u8,
    pub(crate) checksum: u32,
    pub(crate) delta: Box<[u8]>,
}

impl Away {
    /// The blocks that it starts from.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = BlockAddr> {
        let block = |part: &RawPart| if let PartOf::Block(addr) = part.of() { Some(addr) } else { None };
        self.start.iter().filter_map(block)
    }

    /// Bytes of memory that it takes.
    fn size(&self) -> usize {
        size_of::<Away>() + size_of_val(&*self.start) + self.delta.len()
    }
}

/// The pages of a file that are away.
#[derive(Debug, Default)]
pub(super) struct Aways {
    pages: usize,
    bytes: usize,
    /// The page behind the one that left last.
    next: u64,
}

impl Aways {
    pub(super) fn add(&mut self, away: &Away) {
        self.pages += 1;
        self.bytes += away.size();
    }

    pub(super) fn remove(&mut self, away: &Away) {
        self.pages -= 1;
        self.bytes -= away.size();
    }

    pub(super) fn pages(&self) -> usize {
        self.pages
    }

    /// Bytes of memory that are kept of them.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl PageVersions {
    /// What is kept of a page that is away.
    pub(crate) fn away(&self, index: u64) -> Option<&Away> {
        if self.aways.pages == 0 {
            return None;
        }
        match &self.open.get(&index)?.content {
            Kept::Away(away) => Some(away),
            Kept::Here(_) => None,
        }
    }

    /// How many pages are away.
    pub(crate) fn away_len(&self) -> usize {
        self.aways.pages()
    }

    /// Which pages are away.
    pub(crate) fn away_pages(&self) -> impl Iterator<Item = u64> {
        self.open.iter().filter(|(_, page)| matches!(page.content, Kept::Away(_))).map(|(&index, _)| index)
    }

    /// Whether pages may leave.
    pub(crate) fn may_leave(&self) -> bool {
        self.is_open_alone() && self.draft().is_none()
    }

    /// The page behind the one that left last: pages leave in turn.
    pub(crate) fn next_to_leave(&self) -> u64 {
        self.aways.next
    }

    /// A dirty page leaves.
    pub(crate) fn leave(&mut self, index: u64, away: Away) {
        debug_assert!(self.may_leave());
        self.aways.next = index + 1;
        if let Some(page) = self.open.get_mut(&index) {
            self.aways.add(&away);
            if let Kept::Away(before) = std::mem::replace(&mut page.content, Kept::Away(Box::new(away))) {
                self.aways.remove(&before);
            }
        }
    }

    /// A page comes back.
    pub(crate) fn come_back(&mut self, index: u64, content: Arc<Block>) {
        if let Some(page) = self.open.get_mut(&index)
            && let Kept::Away(away) = std::mem::replace(&mut page.content, Kept::Here(content))
        {
            self.aways.remove(&away);
        }
    }
}
