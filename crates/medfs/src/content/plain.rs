//! Pages that are blocks, and nothing else: how a volume without deltas stores them.
//!
//! Locks: those of [`PageStorage`].

use crate::content::Content;
use crate::content::away::AwayPages;
use crate::content::page_plan::{Decision, Pending, Placed, Placing};
use crate::content::placement::Batch;
use crate::content::storage::{Change, PageStorage, Ready, Records, Updates, Write};
use crate::error::Result;
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use medfs_format::{Block, BlockAddr, is_block};
use std::ops::Range;
use std::sync::Arc;

/// Blocks without changes beside them.
pub(crate) struct Plain;

impl Plain {
    /// Gives each page a block. Damage that keeps one of them from it keeps no other.
    fn place_each(content: &Content, write: &mut Write<'_>, placed: &mut Vec<Placed>) -> Result<()> {
        let Write { inode, ref mut state, indices, purpose, .. } = *write;
        let batch = Batch::of(inode, purpose, state.pages.dirty_len());
        let mut damage = First::default();
        let mut near: Option<Slot> = None;
        for &index in indices {
            let page = match AwayPages(content).bring_back(inode, state, index) {
                Ok(Some(page)) => page,
                Ok(None) => continue,
                Err(e) => {
                    content.put_off(&mut damage, Err(e))?;
                    continue;
                }
            };
            let slot = content.make_slot_near(inode, near.as_ref(), index).and_then(|slot| {
                content.place_page(inode, &slot, &batch, false, Placed::new(index, page), placed)?;
                Ok(slot)
            });
            match slot {
                Ok(slot) => near = Some(slot),
                Err(e) => content.put_off(&mut damage, Err(e))?,
            }
        }
        damage.result()
    }
}

impl PageStorage for Plain {
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

    fn kept(&self, _: &Content, _: &Inode, _: Range<u64>) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }

    fn before(&self, _: &Content, _: &Arc<Inode>, _: &mut InodeState, _: Change) -> Result<Ready> {
        Ok(Ready::default())
    }

    fn page_changes(&self, _: &Content, _: &Inode, _: (u64, &Slot), _: BlockAddr, _: Option<&Arc<Block>>) {}

    fn dropped(&self, _: &Content, _: &Arc<Inode>, _: &mut InodeState, _: Range<u64>) -> Result<()> {
        Ok(())
    }

    fn place(&self, content: &Content, mut write: Write<'_>) -> Placing {
        let mut pages = Vec::with_capacity(write.indices.len());
        let outcome = Plain::place_each(content, &mut write, &mut pages);
        let placing = Placing::of(pages, outcome);
        debug_assert!(
            placing.leaves_out_none(write.state, write.indices),
            "a page is neither placed, nor kept, nor waits"
        );
        placing
    }

    fn relocate(&self, _: &Content, _: &Arc<Inode>, _: &mut InodeState, indices: &[u64]) -> Result<Vec<u64>> {
        Ok(indices.to_vec())
    }

    fn own_page_written(&self, _: &Content, _: &Inode, _: u64) {}
}

impl Updates for Plain {
    fn keeps(&self, _: &Content, _: &Inode) -> bool {
        false
    }

    fn records(&self, _: &Content, _: &Inode, _: Range<u64>) -> Result<Records> {
        Ok(Records::new())
    }

    fn make_page(
        &self,
        _: &Content,
        _: &Inode,
        _: (u64, Option<crate::content::record::OwnedRecord>),
        _: BlockAddr,
        _: &mut Block,
    ) -> Result<()> {
        Ok(())
    }

    fn page_at(&self, content: &Content, _: &Inode, _: u64, addr: BlockAddr) -> Result<Arc<Block>> {
        Ok(Arc::new(if is_block(addr) { *content.io.read(addr)? } else { Block::ZERO }))
    }

    fn page_over(&self, _: &Content, _: &Inode, _: u64, base: Arc<Block>) -> Result<Arc<Block>> {
        Ok(base)
    }

    fn keep_over(
        &self,
        _: &Content,
        _: &Arc<Inode>,
        _: &mut InodeState,
        _: (u64, &Arc<Block>),
        _: &Block,
    ) -> Result<Decision> {
        Ok(Decision::OutOfPlace)
    }

    fn settle(
        &self,
        _: &Content,
        _: &Arc<Inode>,
        _: &mut InodeState,
        pending: Vec<Pending>,
    ) -> Result<Vec<u64>> {
        Ok(pending.iter().map(Pending::index).collect())
    }

    fn leave(&self, _: &Content, _: &Arc<Inode>, _: &mut InodeState) -> Result<()> {
        Ok(())
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
    use crate::content::writeback::Which;
    use crate::error::{Error, Posix};
    use crate::map::alone::in_op;
    use crate::map::page_versions::Attributes;
    use crate::types::{FallocateMode, Seek};
    use medfs_device::Cause;
    use medfs_format::BLOCK_SIZE;
    use medfs_format::superblock::Feature;
    use std::sync::atomic::Ordering;

    fn plain(opts: &str) -> Content {
        content(false, Feature::empty(), options(opts), |_| Storages {
            plain: Arc::new(Plain),
            clusters: None,
        })
    }

    #[test]
    fn a_file_is_what_was_done_to_it() {
        for seed in 0..6 {
            let content = plain("");
            follow_a_model(&content, &new_file(&content, b"f", None), seed, 120);
        }
    }

    #[test]
    fn a_file_with_sections_of_its_own_is_what_was_done_to_it() {
        let content = plain("placement=reserve,reserve_files=all");
        let file = new_file(&content, b"f", None);
        follow_a_model(&content, &file, 7, 120);
        let own = content.placement.reserved(file.ino);
        assert!(!own.is_empty(), "its first page got it a section");
        assert!(content.placement.give_back(&content.store));
        assert!(read(&content, &file).len() as u64 == file.size());
        content.placement.forget(&file, &content.store);
        assert_eq!(content.placement.reserved(file.ino), []);
    }

    #[test]
    fn a_page_is_written_over_its_own_block_where_the_policy_says_so() {
        for (policy, same) in [("ipu_policy=1", true), ("ipu_policy=0", false)] {
            let content = plain(policy);
            let file = new_file(&content, b"f", None);
            let addr = || content.find_slot(&file, 0).unwrap().unwrap().addr();
            write(&content, &file, 0, &text(1, BLOCK_SIZE));
            write_back(&content, &file, Purpose::Background);
            let before = addr();
            write(&content, &file, 9, b"x");
            write_back(&content, &file, Purpose::Background);
            assert_eq!(addr() == before, same, "{policy}");
        }
    }

    #[test]
    fn what_is_read_is_kept_in_memory_until_there_is_no_room() {
        let content = plain("");
        let file = new_file(&content, b"f", None);
        write(&content, &file, 0, &text(1, 3 * BLOCK_SIZE));
        write_back(&content, &file, Purpose::Background);
        forget_clean(&content, &file);
        let misses = || content.pages.misses.load(Ordering::Relaxed);
        read(&content, &file);
        let before = misses();
        read(&content, &file);
        assert_eq!(misses(), before);
    }

    #[test]
    fn an_atomic_write_is_seen_whole_or_not_at_all() {
        let content = plain("");
        let file = new_file(&content, b"f", None);
        write(&content, &file, 0, &text(1, 2 * BLOCK_SIZE));
        write_back(&content, &file, Purpose::Background);
        let (old, new) = (read(&content, &file), text(2, 3 * BLOCK_SIZE));
        for commit in [false, true] {
            assert!(content.atomic_write(&file).get_ready().unwrap());
            content.atomic_write(&file).begin().unwrap();
            assert!(!content.atomic_write(&file).get_ready().unwrap(), "it is open");
            let free = content.space.counts().free();
            let staged = content.write_file(&file, 0, &new, crate::content::file::WriteTimes::Now).unwrap();
            assert!(!staged.dirtied && content.space.counts().free() < free, "its blocks are reserved");
            assert_eq!(file.size(), old.len() as u64, "readers by the inode see the old size");
            content
                .change_alone(&file, |state| match commit {
                    true => content.atomic_write(&file).apply(state).map(drop),
                    false => {
                        content.atomic_write(&file).drop_draft(state);
                        Ok(())
                    }
                })
                .unwrap();
            assert!(read(&content, &file) == if commit { new.clone() } else { old.clone() });
        }
    }

    #[test]
    fn an_atomic_write_whose_cut_fails_stays_open_and_leaves_the_file() {
        let content = plain("");
        let file = new_file(&content, b"f", None);
        // The last pages are named by a node of their own.
        let old = text(1, 1000 * BLOCK_SIZE);
        write(&content, &file, 0, &old);
        write_back(&content, &file, Purpose::Background);
        let atomic = content.atomic_write(&file);
        assert!(atomic.get_ready().unwrap());
        atomic.begin().unwrap();
        let new = text(2, BLOCK_SIZE);
        write(&content, &file, 0, &new);
        content.change_alone(&file, |state| atomic.resize(state, 3 * BLOCK_SIZE as u64)).unwrap();
        let (slot, free) = (content.find_slot(&file, 990).unwrap().unwrap(), content.space.counts().free());
        let addr = slot.addr();
        in_op(&content).set_addr(&file, &slot, 1);
        let commit = || content.change_alone(&file, |state| atomic.apply(state).map(drop));
        assert!(matches!(commit(), Err(Error::Corrupt(_))));
        in_op(&content).set_addr(&file, &slot, addr);
        {
            let state = file.lock.read();
            let mut found = vec![0; old.len()];
            content.read_range(&file, &state, 0, &mut found).unwrap();
            assert!(found == old && !state.pages.any_dirty(), "the file is as it was");
        }
        assert_eq!(content.space.counts().free(), free, "what the draft reserved it still has");
        let mut draft = vec![0; old.len()];
        let shown = content.read(file.ino, 0, &mut draft).unwrap();
        draft.truncate(shown);
        assert!(shown == 3 * BLOCK_SIZE && draft[..BLOCK_SIZE] == new, "it is open");
        commit().unwrap();
        assert!(file.size() == 3 * BLOCK_SIZE as u64 && read(&content, &file) == draft);
        assert_eq!(content.find_slot(&file, 990).unwrap().map(|slot| slot.addr()), None);
    }

    #[test]
    fn a_page_whose_address_is_no_block_of_the_main_area_is_not_written() {
        for opts in ["ipu_policy=1", "ipu_policy=0"] {
            let content = plain(opts);
            let file = new_file(&content, b"f", None);
            write(&content, &file, 0, &text(1, 2 * BLOCK_SIZE));
            write_back(&content, &file, Purpose::Background);
            write(&content, &file, 0, &text(2, 2 * BLOCK_SIZE));
            let slot = content.find_slot(&file, 0).unwrap().unwrap();
            in_op(&content).set_addr(&file, &slot, 1);
            let before = content.io.read(1).unwrap();
            let written =
                content.write_batch(&file, 0, Purpose::Background, Which::All, &NoSources).unwrap().unwrap();
            assert!(matches!(written.outcome, Err(Error::Corrupt(_))), "{opts}");
            assert!(content.io.read(1).unwrap().0 == before.0 && slot.addr() == 1, "{opts}");
            let dirty: Vec<u64> = file.lock.read().pages.dirty(..).collect();
            assert_eq!(dirty, [0], "{opts}: the other page is written");
        }
    }

    #[test]
    fn a_write_during_a_writeback_waits_for_nothing_and_stays_dirty() {
        let content = plain("");
        let file = new_file(&content, b"f", None);
        write(&content, &file, 0, &text(1, 3 * BLOCK_SIZE));
        // As an fsync that has placed its pages and writes them now: their version is closed.
        let placing = {
            let _op = content.op().unwrap();
            let mut state = file.lock.write();
            content.place_pages(&file, &mut state, &[0, 1, 2], Purpose::Background, &NoSources)
        };
        let version = placing.version.expect("pages were placed");
        write(&content, &file, BLOCK_SIZE as u64, b"newer");
        write(&content, &file, 5 * BLOCK_SIZE as u64, b"longer");
        {
            let state = file.lock.read();
            let in_version = state.pages.page_in(version, 1).expect("it was dirty");
            assert_eq!(in_version.0, text(1, 3 * BLOCK_SIZE)[BLOCK_SIZE..2 * BLOCK_SIZE]);
            assert_eq!(state.pages.attributes(version).unwrap().size, 3 * BLOCK_SIZE as u64);
            assert_eq!(content.pages.dirty(), 5, "four dirty pages, and a copy that counts as one");
        }
        let (blocked, outcome) = content.write_placing(&file, placing, Cause::Data).expect("writes");
        assert!(blocked.is_empty() && outcome.is_ok());
        let dirty: Vec<u64> = file.lock.read().pages.dirty(..).collect();
        assert_eq!((dirty, content.pages.dirty()), (vec![1, 5], 2), "what changed meanwhile");
        let found = read(&content, &file);
        assert!(found[BLOCK_SIZE..].starts_with(b"newer") && found.ends_with(b"longer"));
    }

    #[test]
    fn a_page_that_was_placed_with_older_content_stays_dirty() {
        let content = plain("");
        let file = new_file(&content, b"f", None);
        write(&content, &file, 0, &text(1, 2 * BLOCK_SIZE));
        let mut placing = {
            let _op = content.op().unwrap();
            let mut state = file.lock.write();
            content.place_pages(&file, &mut state, &[0, 1], Purpose::Background, &NoSources)
        };
        // As where a page changes, in the same moment, after it was placed.
        placing.pages[0].page = std::sync::Arc::new(medfs_format::Block::ZERO);
        content.write_placing(&file, placing, Cause::Data).expect("writes").1.unwrap();
        let dirty: Vec<u64> = file.lock.read().pages.dirty(..).collect();
        assert_eq!((dirty, content.pages.dirty()), (vec![0], 1));
        assert!(read(&content, &file) == text(1, 2 * BLOCK_SIZE));
        write_back(&content, &file, Purpose::Background);
        forget_clean(&content, &file);
        assert!(read(&content, &file) == text(1, 2 * BLOCK_SIZE));
    }

    #[test]
    fn copies_for_closed_versions_count_against_the_cache() {
        let content = plain("");
        let file = new_file(&content, b"f", None);
        write(&content, &file, 0, &text(0, 4 * BLOCK_SIZE));
        let mut versions = Vec::new();
        for round in 1..=10u8 {
            versions.push(file.lock.write().pages.close(file.raw(Attributes::of)));
            write(&content, &file, 0, &text(round, 4 * BLOCK_SIZE));
            assert_eq!(content.pages.dirty(), 4 + 4 * usize::from(round));
        }
        let state = &mut *file.lock.write();
        for (round, &version) in versions.iter().enumerate() {
            let first = state.pages.page_in(version, 0).expect("its copy");
            assert_eq!(first.0, text(round as u8, BLOCK_SIZE)[..]);
            content.counted(file.ino, state, |pages| pages.drop_version(version));
            assert_eq!(content.pages.dirty(), 4 * (10 - round));
        }
    }

    #[test]
    fn holes_and_data_are_found() {
        let content = plain("");
        let file = new_file(&content, b"f", None);
        write(&content, &file, 5 * BLOCK_SIZE as u64, b"here");
        let page = BLOCK_SIZE as u64;
        assert_eq!(content.seek(file.ino, 0, Seek::Data).unwrap(), 5 * page);
        assert_eq!(content.seek(file.ino, 0, Seek::Hole).unwrap(), 0);
        assert_eq!(content.seek(file.ino, 5 * page, Seek::Hole).unwrap(), file.size());
        let behind = content.seek(file.ino, file.size(), Seek::Data);
        assert!(matches!(behind, Err(Error::Posix(Posix::NoSuchAddress))));
        content.allocate(&file, FallocateMode::KEEP_SIZE, 0, 3 * page).unwrap();
        assert_eq!(content.seek(file.ino, 0, Seek::Data).unwrap(), 5 * page, "what is reserved is no data");
    }

    #[test]
    fn what_does_not_fit_is_refused_and_changes_nothing() {
        let content = plain("");
        let file = new_file(&content, b"f", None);
        let free = content.space.counts().free();
        let most = free * BLOCK_SIZE as u64;
        let refused = content.allocate(&file, FallocateMode::empty(), 0, most);
        assert!(matches!(refused, Err(Error::NoSpace)));
        assert_eq!((content.space.counts().free(), file.size()), (free, 0));
        let sparse = content.allocate(&file, FallocateMode::COLLAPSE_RANGE, 1, 2);
        assert!(matches!(sparse, Err(Error::Posix(Posix::InvalidArgument))));
        let far = content.write_file(&file, u64::MAX - 1, b"abc", crate::content::file::WriteTimes::Kept);
        assert!(matches!(far, Err(Error::Posix(Posix::FileTooLarge))));
    }

    #[test]
    fn content_in_the_inode_moves_out_when_it_grows() {
        let content = plain("");
        let file = new_file(&content, b"f", None);
        {
            let _op = content.op().unwrap();
            content.edit(&file, medfs_store::Dirty::Full, |r| {
                r.i_inline |= medfs_format::node::Inline::DATA.bits();
            });
        }
        write(&content, &file, 0, b"small");
        assert!(file.is_inline() && read(&content, &file) == b"small");
        content.change_alone(&file, |state| content.resize(&file, state, 3)).unwrap();
        assert_eq!(read(&content, &file), b"sma");
        write(&content, &file, 0, &text(3, 5000));
        assert!(!file.is_inline() && read(&content, &file) == text(3, 5000));
    }

    #[test]
    fn a_checkpoint_takes_the_pages_it_would_lose() {
        let content = plain("");
        let file = new_file(&content, b"f", None);
        write(&content, &file, 0, &text(1, 3 * BLOCK_SIZE));
        let alone = content.ops.alone();
        let (blocked, outcome) = content.write_for_checkpoint(&file, &NoSources).unwrap();
        drop(alone);
        assert!(blocked.is_empty() && outcome.is_ok() && !file.lock.read().pages.any_dirty());
        assert!(read(&content, &file) == text(1, 3 * BLOCK_SIZE));
    }
}
