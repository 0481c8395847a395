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

    fn is_made_from_blocks(&self, content: &Content, inode: &Inode) -> bool {
        let pages = self.over(content);
        content.is_delta_volume() && self.alone.is_none() && pages.makes_records(inode)
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
    use crate::content::storage::Sources;
    use crate::content::writeback::Which;
    use crate::map::alone::in_op;
    use crate::map::refs::MOST_MADE_WHOLE;
    use medfs_format::BLOCK_SIZE;
    use medfs_format::delta::RawSlice;
    use medfs_format::superblock::Feature;
    use medfs_sync::Mutex;
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
        in_op(&content).set_addr(&file, &slot, 1);
        let written = content.write_batch(&file, 0, FSYNC, Which::All, &NoSources).unwrap().unwrap();
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
        let batch = content.write_batch(&file, 0, FSYNC, Which::All, &sources).unwrap().unwrap();
        assert_eq!((batch.blocked, addr()), (vec![0], before));
        content.refs.drop_pages(file.ino + 1, 0..1);
        content.refs.committed();
        write_back(&content, &file, FSYNC);
        assert_eq!(addr(), before, "nothing needs it any more");
    }

    /// Pages of a file look like the block of another one of its pages.
    struct Alike<'a> {
        content: &'a Content,
        own: &'a Deltas,
        like: Mutex<u32>,
        asked: Mutex<Vec<u32>>,
    }

    impl<'a> Alike<'a> {
        fn to(content: &'a Content, own: &'a Deltas, like: u32) -> Alike<'a> {
            Alike { content, own, like: Mutex::new(like), asked: Mutex::default() }
        }
    }

    impl Sources for Alike<'_> {
        fn staging(&self, _: &Inode) {}

        fn record_of(
            &self,
            _: &Arc<Inode>,
            _: &InodeState,
            _: u32,
            _: &Block,
            _: bool,
        ) -> Result<Option<(OwnedRecord, u64)>> {
            Ok(None)
        }

        fn record_like(
            &self,
            inode: &Arc<Inode>,
            _: &InodeState,
            index: u32,
            page: &Block,
            most: usize,
        ) -> Result<Option<OwnedRecord>> {
            self.asked.lock().push(index);
            let like = *self.like.lock();
            let slot = self.content.find_slot(inode, like.into())?.expect("it has a block");
            let base = self.content.base(slot.addr())?;
            let record = self.own.encode(index, &base, page, &[whole(inode.ino, like)], most);
            Ok(record.filter(|r| like != index && self.content.refs.claim(inode.ino, index, r.sources())))
        }

        fn placed_whole(&self, _: &Inode, _: &InodeState, _: u64) -> Result<()> {
            Ok(())
        }
    }

    fn whole(ino: u32, page: u32) -> RawSlice {
        let len = BLOCK_SIZE as u16;
        RawSlice { ino: ino.into(), page: page.into(), from: 0.into(), to: 0.into(), len: len.into() }
    }

    /// Makes pages what another one is, with a little change.
    fn copy(content: &Content, file: &Arc<Inode>, from: usize, to: std::ops::Range<usize>, change: &[u8]) {
        let mut page = read(content, file)[from * BLOCK_SIZE..(from + 1) * BLOCK_SIZE].to_vec();
        page[100..100 + change.len()].copy_from_slice(change);
        to.for_each(|at| write(content, file, (at * BLOCK_SIZE) as u64, &page));
    }

    fn noisy_file(content: &Content, pages: usize) -> Arc<Inode> {
        let file = new_file(content, b"a.db", None);
        for page in 0..pages {
            let mut x = page as u32 + 1;
            let noise: Vec<u8> = std::iter::repeat_with(|| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (x >> 24) as u8
            })
            .take(BLOCK_SIZE)
            .collect();
            write(content, &file, (page * BLOCK_SIZE) as u64, &noise);
        }
        write_back(content, &file, FSYNC);
        file
    }

    #[test]
    fn a_record_that_finds_no_place_leaves_a_page_what_it_was_made_from() {
        let (content, own) = deltas("delta=compact,compact_files=all");
        let file = noisy_file(&content, 40);
        let alike = Alike::to(&content, &own, 7);
        copy(&content, &file, 7, 3..6, b"once");
        let batch = content.write_batch(&file, 0, FSYNC, Which::All, &alike).unwrap().unwrap();
        assert!(batch.blocked.is_empty() && content.refs.own(file.ino, 7..8) == [3, 4, 5]);
        // Another file needs its block, there is no room for a compact page, and it becomes another page.
        assert!(content.refs.add(file.ino + 1, 0, vec![(file.ino, 3)]));
        let free = content.space.counts().free();
        content.space.reserve(free).unwrap();
        *alike.like.lock() = 12;
        alike.asked.lock().clear();
        copy(&content, &file, 12, 3..4, b"again");
        let batch = content.write_batch(&file, 0, FSYNC, Which::All, &alike).unwrap().unwrap();
        assert_eq!(batch.blocked, [3]);
        assert_eq!(content.refs.own(file.ino, 7..8), [3, 4, 5], "its record names that block still");
        assert!(!content.refs.is_source(file.ino, 12));
        // Once: later some pages have blocks that are not written yet.
        assert_eq!(*alike.asked.lock(), [3]);
        content.space.release(free);
        content.refs.drop_pages(file.ino + 1, 0..1);
        content.refs.committed();
        let batch = content.write_batch(&file, 0, FSYNC, Which::All, &alike).unwrap().unwrap();
        assert!(batch.blocked.is_empty() && content.refs.own(file.ino, 7..8) == [4, 5]);
    }

    #[test]
    fn what_many_pages_are_made_from_is_overwritten_in_parts() {
        const MANY: usize = 2 * MOST_MADE_WHOLE + 50;
        let (content, own) = deltas("delta=compact,compact_files=all");
        let file = noisy_file(&content, 2);
        copy(&content, &file, 0, 2..2 + MANY, b"like it");
        let alike = Alike::to(&content, &own, 0);
        content.write_batch(&file, 0, FSYNC, Which::All, &alike).unwrap().unwrap().outcome.unwrap();
        let left = || content.refs.own(file.ino, 0..1).len();
        assert_eq!(left(), MANY);
        copy(&content, &file, 1, 0..1, b"another page");
        let expected = read(&content, &file);
        for part in [MANY - MOST_MADE_WHOLE, MANY - 2 * MOST_MADE_WHOLE] {
            let batch = content.write_batch(&file, 0, FSYNC, Which::All, &NoSources).unwrap().unwrap();
            batch.outcome.unwrap();
            assert_eq!((batch.blocked, left()), (vec![0], part));
            assert_eq!(file.lock.read().pages.dirty_len(), 1, "the parts are written");
        }
        let batch = content.write_batch(&file, 0, FSYNC, Which::All, &NoSources).unwrap().unwrap();
        assert!(batch.blocked.is_empty() && left() == 0 && !file.lock.read().pages.any_dirty());
        forget_clean(&content, &file);
        assert!(read(&content, &file) == expected);
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

    #[test]
    fn compact_pages_that_find_no_room_leave_what_others_say() {
        use super::super::compact_write::Yield;
        let (content, own) = deltas("delta=compact,compact_files=all,compact_pages=4");
        let file = noisy_file(&content, 60);
        let pages = own.over(&content);
        let zone = pages.zone(&file);
        let record = |page: u32, seed: u8| {
            let slot = content.find_slot(&file, page.into()).unwrap().unwrap();
            let base = content.base(slot.addr()).unwrap();
            let mut new = base.clone();
            let noise: Vec<u8> = (0..300u32)
                .map(|n| ((n + u32::from(seed) * 977).wrapping_mul(2_654_435_761) >> 11) as u8)
                .collect();
            Arc::make_mut(&mut new).0[100..400].copy_from_slice(&noise);
            own.encode(page, &base, &new, &[], 800).unwrap()
        };
        for page in 0..12usize {
            let noise: Vec<u8> = (0..300u32)
                .map(|n| ((n + page as u32 * 31).wrapping_mul(2_654_435_761) >> 11) as u8)
                .collect();
            write(&content, &file, (page * BLOCK_SIZE + 100) as u64, &noise);
        }
        write_back(&content, &file, FSYNC);
        assert!(pages.has_delta(&file, 0).unwrap());
        // Page 0 becomes whole: a tombstone in the zone.
        let whole: Vec<u8> =
            (0..BLOCK_SIZE as u32).map(|n| (n.wrapping_mul(0x9E37_79B9) >> 17) as u8).collect();
        write(&content, &file, 0, &whole);
        write_back(&content, &file, FSYNC);
        assert!(!pages.has_delta(&file, 0).unwrap());
        // As empty_zone_with does: the zone's words go into a compact page.
        content
            .change_alone(&file, |state| {
                let mut records = zone.records().unwrap();
                records.extend([40, 41, 42].map(|p| record(p, p as u8)));
                pages.compact().write_compact(&file, state, vec![records], Yield::Always).unwrap();
                zone.store(&[]);
                Ok(())
            })
            .unwrap();
        write_back(&content, &file, FSYNC);
        pages.compact().forget_compact_map(&file);
        assert!(!pages.has_delta(&file, 0).unwrap(), "the tombstone counts");
        // One free block is left; three compact pages are wanted, one takes the place of the one with the tombstone.
        let free = content.space.counts().free();
        content.space.reserve(free - 1).unwrap();
        content
            .change_alone(&file, |state| {
                let made = (0..3u32).map(|n| (0..5).map(|i| record(20 + n * 5 + i, 7)).collect()).collect();
                let written = pages.compact().write_compact(&file, state, made, Yield::IfItPays);
                assert!(matches!(written, Err(crate::error::Error::NoSpace)));
                Ok(())
            })
            .unwrap();
        content.space.release(free - 1);
        write_back(&content, &file, FSYNC);
        pages.compact().forget_compact_map(&file);
        forget_clean(&content, &file);
        assert!(read(&content, &file)[..BLOCK_SIZE] == whole[..]);
    }
}
