//! The delta layer as content, and the storage of compressed files, see it.

use super::state::Deltas;
use crate::content::Content;
use crate::content::page_plan::{Decision, Pending, Placing};
use crate::content::record::OwnedRecord;
use crate::content::storage::{Change, PageStorage, Ready, Records, Updates, Write};
use crate::error::Result;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use medfs_format::{Block, BlockAddr, NULL_ADDR, is_block};
use std::ops::Range;
use std::sync::Arc;

impl PageStorage for Deltas {
    fn read(
        &self,
        content: &Content,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        content.read_plain(inode, state, offset, buf, self)
    }

    fn load(&self, content: &Content, inode: &Inode, _: &InodeState, index: u64) -> Result<Arc<Block>> {
        content.load_plain(inode, index, self)
    }

    fn kept(&self, content: &Content, inode: &Inode, pages: Range<u64>) -> Result<Vec<u64>> {
        self.over(content).delta_pages(inode, pages)
    }

    fn before(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        change: Change,
    ) -> Result<Ready> {
        let pages = self.over(content);
        let mut ready = Ready::default();
        match change {
            Change::Address(index) | Change::Page(index) => {
                ready.slots_moved = pages.make_address_room(inode, state, index)?;
            }
            Change::Growth(end) if end > pages.compact_start(inode) => {
                pages.compact().leave_compact(inode, state)?;
            }
            Change::Growth(_) => {}
            Change::Leave(range) => pages.free_own_users(inode, state, &range)?,
        }
        Ok(ready)
    }

    fn page_changes(
        &self,
        content: &Content,
        inode: &Inode,
        (index, slot): (u64, &Slot),
        old: BlockAddr,
        clean: Option<&Arc<Block>>,
    ) {
        let pages = self.over(content);
        if old == NULL_ADDR {
            pages.reserve_ahead(inode, slot, index);
        }
        if let Some(clean) = clean.filter(|_| is_block(old)) {
            pages.note_base(inode, index, old, clean);
        }
    }

    fn dropped(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: Range<u64>,
    ) -> Result<()> {
        self.over(content).drop_deltas(inode, state, pages)
    }

    fn place(&self, content: &Content, write: Write<'_>) -> Placing {
        self.over(content).place(write)
    }

    /// Bases of pages that are deltas, which stay, or of other files' pages, and compact pages.
    fn relocate(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        indices: &[u64],
    ) -> Result<Vec<u64>> {
        let pages = self.over(content);
        let mut others = Vec::with_capacity(indices.len());
        for &index in indices {
            let stays = pages.has_delta(inode, index)?
                || content.refs.is_source(inode.ino, index)
                || (!state.pages.is_dirty(index) && content.is_compact_page(inode, index));
            if !stays {
                others.push(index);
                continue;
            }
            let Some(slot) = content.find_slot(inode, index)? else { continue };
            if is_block(slot.addr()) {
                content.move_blocks(inode, state, [(index, slot)], |addr| content.base(addr))?;
            }
        }
        Ok(others)
    }

    fn own_page_written(&self, content: &Content, inode: &Inode, index: u64) {
        self.over(content).compact().compact_written(inode, index);
    }
}

impl Updates for Deltas {
    fn keeps(&self, content: &Content, inode: &Inode) -> bool {
        self.over(content).updates_in_clusters(inode)
    }

    fn records(&self, content: &Content, inode: &Inode, pages: Range<u64>) -> Result<Records> {
        self.over(content).delta_records(inode, pages)
    }

    fn make_page(
        &self,
        content: &Content,
        inode: &Inode,
        (index, record): (u64, Option<OwnedRecord>),
        addr: BlockAddr,
        block: &mut Block,
    ) -> Result<()> {
        self.over(content).make_page(inode, index, record, addr, block)
    }

    fn page_at(&self, content: &Content, inode: &Inode, index: u64, addr: BlockAddr) -> Result<Arc<Block>> {
        self.over(content).page_at(inode, index, addr)
    }

    fn page_over(
        &self,
        content: &Content,
        inode: &Inode,
        index: u64,
        base: Arc<Block>,
    ) -> Result<Arc<Block>> {
        self.over(content).page_over(inode, index, base)
    }

    fn keep_over(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        (index, page): (u64, &Arc<Block>),
        base: &Block,
    ) -> Result<Decision> {
        self.over(content).keep_over(inode, state, index, page, base)
    }

    fn settle(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pending: Vec<Pending>,
    ) -> Result<Vec<u64>> {
        self.over(content).settle_pending(inode, state, pending)
    }

    fn leave(&self, content: &Content, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        self.over(content).leave_deltas(inode, state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::content::Storages;
    use crate::content::alone::{
        NoSources, content, follow_a_model, forget_clean, new_file, options, read, text, write, write_back,
    };
    use crate::content::placement::Purpose;
    use medfs_format::BLOCK_SIZE;
    use medfs_format::superblock::Feature;
    use std::sync::atomic::Ordering::Relaxed;

    const FSYNC: Purpose = Purpose::Fsync { datasync: false };

    /// Deltas over blocks, as these options make them.
    fn deltas(opts: &str) -> (Content, Arc<Deltas>) {
        let mut made = None;
        let content = content(true, Feature::empty(), options(opts), |opts| {
            let deltas = Arc::new(Deltas::new(opts, None));
            made = Some(deltas.clone());
            Storages { plain: deltas, clusters: None }
        });
        (content, made.expect("just made"))
    }

    /// A file of whole blocks, in none of which has anything changed.
    fn file_of(content: &Content, name: &[u8], pages: usize) -> Arc<Inode> {
        let file = new_file(content, name, None);
        for page in 0..pages {
            write(content, &file, (page * BLOCK_SIZE) as u64, &text(page as u8, BLOCK_SIZE));
        }
        write_back(content, &file, FSYNC);
        file
    }

    fn patch_each(content: &Content, file: &Arc<Inode>, pages: std::ops::Range<usize>, with: &[u8]) {
        pages.for_each(|page| write(content, file, (page * BLOCK_SIZE + 100) as u64, with));
        write_back(content, file, FSYNC);
    }

    #[test]
    fn a_file_is_what_was_done_to_it_however_its_deltas_are_kept() {
        for opts in [
            "delta=inline",
            "delta=compact,compact_files=all",
            "delta=full,compact_files=all",
            "delta=full,zero_base_deltas=off",
            "delta=off",
            "delta=off,compress=fpc,compact_files=all",
        ] {
            for seed in 0..3 {
                let (content, _) = deltas(opts);
                follow_a_model(&content, &new_file(&content, b"a.db", None), seed, 100);
            }
        }
    }

    #[test]
    fn a_page_whose_address_is_no_block_of_the_main_area_has_no_delta() {
        let (content, own) = deltas("delta=inline");
        let file = file_of(&content, b"a.db", 2);
        write(&content, &file, 100, b"changed");
        let slot = content.find_slot(&file, 0).unwrap().unwrap();
        content.set_addr(&file, &slot, 1);
        let written = content.write_batch(&file, 0, FSYNC, &NoSources).unwrap().unwrap();
        assert!(matches!(written.outcome, Err(crate::error::Error::Corrupt(_))));
        assert!(slot.addr() == 1 && file.lock.read().pages.is_dirty(0));
        assert!(own.over(&content).delta_pages(&file, 0..u64::MAX).unwrap().is_empty());
    }

    #[test]
    fn a_small_change_leaves_the_block_and_is_kept_in_the_inode() {
        let (content, own) = deltas("delta=inline");
        let file = file_of(&content, b"a.db", 4);
        let addr = |page| content.find_slot(&file, page).unwrap().unwrap().addr();
        let before = [addr(0), addr(1)];
        patch_each(&content, &file, 0..2, b"new");
        assert_eq!([addr(0), addr(1)], before);
        let pages = own.over(&content);
        assert!(pages.has_delta(&file, 0).unwrap() && !pages.has_delta(&file, 3).unwrap());
        assert_eq!(pages.delta_pages(&file, 0..9).unwrap(), [0, 1]);
        assert_eq!(pages.zone(&file).records().unwrap().len(), 2);
        assert!(pages.has_deltas(&file) && pages.zone_stats().deltas == 2);
        forget_clean(&content, &file);
        assert_eq!(&read(&content, &file)[100..103], b"new");
        assert_eq!(own.counters.made.load(Relaxed), 2);
    }

    #[test]
    fn what_does_not_fit_the_inode_shares_compact_pages() {
        let (content, own) = deltas("delta=full,compact_files=all");
        let file = file_of(&content, b"a.db", 60);
        for round in 0..4u8 {
            patch_each(&content, &file, 0..60, &text(40 + round, 120));
        }
        let pages = own.over(&content);
        assert!(own.counters.compact_pages.load(Relaxed) > 0 && content.has_compact(&file));
        assert_eq!(pages.delta_pages(&file, 0..60).unwrap().len(), 60);
        assert_eq!(pages.compact().all_records(&file).unwrap().len(), 60);
        let expected = read(&content, &file);
        pages.compact().forget_compact_map(&file);
        forget_clean(&content, &file);
        assert!(read(&content, &file) == expected);

        let start = content.compact_start(&file);
        let all: Vec<u64> = (0..60).chain(start..start + 8).collect();
        content.move_pages(&file, &all, &crate::content::alone::NoSources).unwrap();
        forget_clean(&content, &file);
        assert!(read(&content, &file) == expected, "bases and compact pages are moved as they are");

        content.change_alone(&file, |state| pages.compact().leave_compact(&file, state)).unwrap();
        write_back(&content, &file, Purpose::Restore);
        assert!(!content.has_compact(&file) && read(&content, &file) == expected);
    }

    #[test]
    fn a_page_is_made_whole_at_a_new_block() {
        let (content, own) = deltas("delta=inline");
        let file = file_of(&content, b"a.db", 2);
        patch_each(&content, &file, 0..1, b"new");
        let (pages, expected) = (own.over(&content), read(&content, &file));
        let addr = || content.find_slot(&file, 0).unwrap().unwrap().addr();
        let before = addr();
        let made = |state: &mut InodeState| pages.make_whole_or_give_up(&file, state, &[0]);
        content.change_alone(&file, made).unwrap();
        assert!(file.lock.read().whole.contains(&0) && !pages.has_delta(&file, 0).unwrap());
        write_back(&content, &file, Purpose::Restore);
        assert!(addr() != before && read(&content, &file) == expected);
        content.change_alone(&file, |_| pages.zone(&file).remove_area()).unwrap();
        assert!(!pages.has_deltas(&file));
    }

    #[test]
    fn a_page_whose_block_another_one_needs_is_not_overwritten() {
        let (content, _) = deltas("delta=off,ipu_policy=1");
        let file = file_of(&content, b"a.db", 2);
        let addr = || content.find_slot(&file, 0).unwrap().unwrap().addr();
        let before = addr();
        assert!(content.refs.add(file.ino + 1, 0, vec![(file.ino, 0)]));
        write(&content, &file, 0, b"x");
        let sources = crate::content::alone::NoSources;
        let batch = content.write_batch(&file, 0, FSYNC, &sources).unwrap().unwrap();
        assert_eq!((batch.blocked, addr()), (vec![0], before));
        content.refs.drop_pages(file.ino + 1, 0..1);
        content.refs.committed();
        write_back(&content, &file, FSYNC);
        assert_eq!(addr(), before, "nothing needs it any more");
    }

    #[test]
    fn changed_addresses_are_noted_in_the_inode() {
        let (content, own) = deltas("delta=inline");
        let file = file_of(&content, b"a.db", 1000);
        write(&content, &file, 990 * BLOCK_SIZE as u64, &text(99, BLOCK_SIZE));
        write_back(&content, &file, FSYNC);
        let _op = content.op().unwrap();
        let notes = own.over(&content).zone(&file).addr_redo(1);
        assert!(notes.nodes.len() <= 1 && notes.notes.len() >= notes.nodes.len());
    }

    #[test]
    fn pages_compressed_by_themselves_leave_their_blocks() {
        let (content, own) = deltas("delta=off,compress=fpc,compact_files=all");
        let file = new_file(&content, b"a.bin", None);
        write(&content, &file, 0, &[7; 40 * BLOCK_SIZE]);
        write_back(&content, &file, FSYNC);
        patch_each(&content, &file, 0..40, b"new");
        let stats = own.over(&content).fpc_stats();
        assert!(stats.made > 0 && stats.held > 0, "{stats:?}");
        forget_clean(&content, &file);
        assert_eq!(&read(&content, &file)[100..103], b"new");
    }

    #[test]
    fn an_empty_file_keeps_nothing_of_deltas() {
        let (content, own) = deltas("delta=full,compact_files=all");
        let file = file_of(&content, b"a.db", 40);
        patch_each(&content, &file, 0..40, &text(9, 100));
        content.change_alone(&file, |state| content.resize(&file, state, 0)).unwrap();
        content.change_alone(&file, |state| own.leave(&content, &file, state)).unwrap();
        let pages = own.over(&content);
        assert!(!pages.has_deltas(&file) && pages.zone(&file).records().unwrap().is_empty());
        let left = file.raw(|r| r.i_blocks.get());
        assert_eq!(left, 1, "the inode alone");
    }
}
