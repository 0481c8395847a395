//! Pages of recovered files that records in NVRAM hold: they become dirty pages, which the checkpoint of the mount writes.
//!
//! Invariant: what a page starts from is pinned, and not overwritten in place, before anything is written: a second crash finds the same.

use super::chain::{Entry, PageChange, PageContent};
use super::{Replay, Result};
use crate::map::inode::Inode;
use medfs_format::node::Inline;
use medfs_format::{Block, BlockAddr, Ino, NEW_ADDR, NULL_ADDR, is_block};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What records hold of files, as far as they count.
#[derive(Debug, Default)]
pub(super) struct Journaled(BTreeMap<Ino, BTreeMap<u32, (BlockAddr, Entry)>>);

impl Journaled {
    /// Takes up what the next record says of a page.
    pub(super) fn apply(&mut self, change: &PageChange) {
        let pages = self.0.entry(change.ino).or_default();
        match &change.what {
            PageContent::Delta(base, entry) => drop(pages.insert(change.index, (*base, entry.clone()))),
            PageContent::Revoked(count) => {
                let behind = change.index.saturating_add((*count).into());
                pages.retain(|index, _| !(change.index..behind).contains(index));
            }
        }
    }

    /// The roll-forward log made all of a file durable later.
    pub(super) fn forget(&mut self, ino: Ino) {
        self.0.remove(&ino);
    }
}

impl Replay<'_> {
    /// Makes dirty what records hold of pages, of files that are still there.
    pub(super) fn journaled_pages(&mut self) -> Result<()> {
        for (ino, pages) in std::mem::take(&mut self.pages).0 {
            let Some(inode) = self.inodes.get(&ino).cloned() else { continue };
            if inode.lock.read().dead || inode.nlink() == 0 {
                continue;
            }
            let restored = pages
                .into_iter()
                .try_for_each(|(index, (base, entry))| self.journaled_page(&inode, index, base, &entry));
            self.pass_by(ino, restored)?;
        }
        Ok(())
    }

    fn journaled_page(&self, inode: &Arc<Inode>, index: u32, base: BlockAddr, entry: &Entry) -> Result<()> {
        let fs = self.fs;
        let of = || format!("page {index} of inode {}", inode.ino);
        let mut page = Arc::new(Block::ZERO);
        if is_block(base) {
            page = fs.io.read(base)?.into();
        }
        self.rebuild(entry, &mut page, of)?;
        let inline = inode.raw(|r| r.inline().contains(Inline::DATA));
        let mut state = inode.lock.write();
        let slot = if inline { None } else { fs.find_slot(inode, index.into())? };
        let addr = slot.map_or(NULL_ADDR, |slot| slot.addr());
        if addr != NEW_ADDR && !is_block(addr) {
            tracing::warn!(
                "{} is left as the file has it: a record in NVRAM holds it, and it has no block",
                of()
            );
            return Ok(());
        }
        if is_block(base) && !fs.read_only {
            fs.segs.lock().pin(&fs.io, base)?;
            fs.since.in_nvram.note([base]);
        }
        fs.pages.remove(inode.ino, index.into());
        fs.add_dirty_page(inode, &mut state, index.into(), page);
        state.with_checkpoint = true;
        Ok(())
    }
}
