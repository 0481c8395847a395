//! Cross references: blocks of one file that pages of other files are made from.
//!
//! Purpose: who needs which blocks, kept across mounts, and what recognises such pages: logs and journals of
//! SQLite ([`sqlite_wal`]), files written to replace others ([`predecessor`]). It says what it wants;
//! [`crate::tree`] makes files and names. Invariants:
//! 1. A block that another file needs is neither freed nor overwritten before that file is durable without it.
//! 2. A file that needs blocks of others is listed by the next checkpoint, or needs none ([`ref_index`]).
//! 3. A replaced file is retained for the one file that takes its name ([`retained`]).
//!
//! Locks: an encoder holds the lock of its file, and tries those of others without waiting; [`RefIndex`]
//! (rank `reference index`), [`RetainedFiles`] and what is remembered of a log (rank `compact map`) are
//! leaves.

mod companion;
mod likeness;
mod likeness_index;
pub(crate) mod predecessor;
pub(crate) mod ref_index;
pub(crate) mod retained;
mod sources;
pub(crate) mod sqlite_layout;
pub(crate) mod sqlite_wal;

use crate::cluster::{ClusterPages, Clusters};
use crate::content::Content;
use crate::delta::{DeltaPages, Deltas};
use crate::error::Result;
use crate::map::inode::Inode;
use likeness_index::LikenessIndex;
use medfs_format::{BlockAddr, is_block};
use ref_index::RefIndex;
use retained::RetainedFiles;
use std::ops::Deref;
use std::sync::Arc;

/// Content of files with the ways to store it, and what files make of each other's blocks.
pub(crate) struct Xref {
    pub(crate) content: Content,
    pub(crate) deltas: Arc<Deltas>,
    pub(crate) clusters: Arc<Clusters>,
    pub(crate) index: RefIndex,
    pub(crate) retained: RetainedFiles,
    pub(crate) likeness: LikenessIndex,
}

impl Deref for Xref {
    type Target = Content;

    fn deref(&self) -> &Content {
        &self.content
    }
}

impl Xref {
    /// Over the content of files, stored in these ways. Nothing is known yet.
    pub(crate) fn over(content: Content, deltas: Arc<Deltas>, clusters: Arc<Clusters>) -> Xref {
        Xref {
            content,
            deltas,
            clusters,
            index: RefIndex::default(),
            retained: RetainedFiles::default(),
            likeness: LikenessIndex::default(),
        }
    }

    /// Pages of files that may have deltas.
    pub(crate) fn deltas(&self) -> DeltaPages<'_> {
        self.deltas.over(&self.content)
    }

    /// The address of the block that a page of a file has, where it has one.
    fn block_of(&self, file: &Inode, page: u64) -> Result<Option<BlockAddr>> {
        let addr = self.find_slot(file, page)?.map(|slot| slot.addr());
        Ok(addr.filter(|&addr| is_block(addr) && self.geo.in_main(addr)))
    }

    /// Pages of compressed files.
    pub(crate) fn clusters(&self) -> ClusterPages<'_> {
        self.clusters.over(&self.content)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alone::{commit_on, device, new};
    use crate::commit::Commit;
    use crate::content::file::WriteTimes;
    use crate::content::storage::Sources;
    use medfs_format::Block;
    use medfs_format::node::FileKind;

    const PAGE: usize = 4096;

    fn noise(seed: u64) -> Vec<u8> {
        let mut x = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            (x >> 24) as u8
        };
        (0..PAGE).map(|_| next()).collect()
    }

    fn file(on: &Commit, name: &str, content: &[u8]) -> Arc<Inode> {
        let ino = on.create(on.geo.root_ino, name.as_bytes(), &new(FileKind::Regular)).expect(name).ino;
        on.write(ino, 0, content, WriteTimes::Now).unwrap();
        on.inode(ino).unwrap()
    }

    /// A volume with a durable database of 8 pages, whose cross references are kept.
    fn with_database() -> (Arc<Commit>, Arc<Inode>, Vec<u8>) {
        let on = commit_on(&device(), "").expect("the volume opens");
        assert!(!on.can_be_listed(9), "there is no list yet");
        let content: Vec<u8> = (0..8).flat_map(noise).collect();
        let database = file(&on, "a.db", &content);
        on.hidden().make().unwrap();
        on.write_back_all().unwrap();
        on.checkpoint_now().unwrap();
        assert!(on.can_be_listed(9));
        (on, database, content)
    }

    /// A write-ahead log with frames of these pages of the database.
    fn log(database: &[u8], pages: &[usize]) -> Vec<u8> {
        let mut log = vec![0; 32];
        log[..4].copy_from_slice(&0x377f_0682u32.to_be_bytes());
        log[8..12].copy_from_slice(&4096u32.to_be_bytes());
        for &page in pages {
            let mut frame = vec![0; 24];
            frame[..4].copy_from_slice(&(page as u32 + 1).to_be_bytes());
            let mut content = database[page * PAGE..(page + 1) * PAGE].to_vec();
            content[100..110].fill(page as u8);
            log.extend(frame);
            log.extend(content);
        }
        log
    }

    fn page_of(inode: &Inode, index: u64) -> Arc<Block> {
        inode.lock.read().pages.get(index).expect("it is dirty").clone()
    }

    #[test]
    fn a_page_of_a_log_is_made_of_its_database_whose_blocks_are_needed_then() {
        let (on, database, content) = with_database();
        let wal = file(&on, "a.db-wal", &log(&content, &[2, 5, 1]));
        let page = page_of(&wal, 1);
        let (record, after) = {
            let state = wal.lock.read();
            on.xref.record_of(&wal, &state, 1, &page, true).unwrap().expect("it is in the database")
        };
        on.refs.keep(wal.ino, 1);
        assert!(record.size() < 300 && on.io.is_durable(after));
        assert!(on.refs.others_need_any(database.ino) && on.refs.depends_on_others(wal.ino));
        // The next checkpoint lists the log.
        on.save_index();
        let list = on.inode(on.index.file().unwrap()).unwrap();
        let range = on.slots(&list).inline_content_range();
        let listed = list.node.read(|d| d.block.0[range.start..range.start + 4].to_vec());
        assert_eq!(listed, wal.ino.to_le_bytes());
        // A page whose block is about to change is no source.
        on.write(database.ino, PAGE as u64, b"changed", WriteTimes::Now).unwrap();
        let second = page_of(&wal, 2);
        let state = wal.lock.read();
        assert!(on.xref.record_of(&wal, &state, 2, &second, true).unwrap().is_none());
    }

    #[test]
    fn a_log_is_made_of_its_database_while_somebody_changes_the_directory() {
        let (on, _, content) = with_database();
        let wal = file(&on, "a.db-wal", &log(&content, &[2, 5, 1]));
        let page = page_of(&wal, 1);
        let root = on.inode(on.geo.root_ino).unwrap();
        let _changing = root.lock.write();
        let state = wal.lock.read();
        assert!(on.xref.record_of(&wal, &state, 1, &page, true).unwrap().is_some());
    }

    #[test]
    fn a_database_is_one_only_while_it_has_its_name() {
        let (on, _, content) = with_database();
        let record = |wal: &Arc<Inode>| {
            let page = page_of(wal, 1);
            on.xref.staging(wal);
            let state = wal.lock.read();
            on.xref.record_of(wal, &state, 1, &page, true).unwrap().is_some()
        };
        let (root, none) = (on.geo.root_ino, crate::RenameFlags::empty());
        let wal = file(&on, "b.db-wal", &log(&content, &[2, 5, 1]));
        assert!(!record(&wal), "there is no such database");
        on.rename(root, b"a.db", root, b"b.db", none).unwrap();
        on.write_back_all().unwrap();
        on.checkpoint_now().unwrap();
        let wal = file(&on, "b.db-wal2", &log(&content, &[2, 5, 1]));
        on.rename(root, b"b.db-wal2", root, b"b.db-wal", none).unwrap();
        assert!(record(&wal), "it is the log of that database by its new name");
        on.rename(root, b"b.db", root, b"c.db", none).unwrap();
        on.checkpoint_now().unwrap();
        assert!(!record(&wal), "the database has another name");
    }

    #[test]
    fn a_journal_is_recognised_and_another_file_is_not() {
        let (on, _, content) = with_database();
        let mut journal = vec![0; 512];
        journal[..8].copy_from_slice(&[0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7]);
        journal[20..24].copy_from_slice(&512u32.to_be_bytes());
        journal[24..28].copy_from_slice(&4096u32.to_be_bytes());
        for page in [0usize, 3, 6] {
            journal.extend((page as u32 + 1).to_be_bytes());
            journal.extend(&content[page * PAGE..(page + 1) * PAGE]);
            journal.extend([1, 2, 3, 4]);
        }
        let made = |name: &str| {
            let inode = file(&on, name, &journal);
            let page = page_of(&inode, 1);
            let state = inode.lock.read();
            on.xref.record_of(&inode, &state, 1, &page, true).unwrap().is_some()
        };
        assert!(made("a.db-journal"));
        assert!(!made("b.db-journal"), "it has no database");
        assert!(!made("a.txt"));
    }

    #[test]
    fn a_frame_that_was_written_as_a_whole_is_a_base_of_the_next_of_its_page() {
        let (on, database, content) = with_database();
        let wal = file(&on, "a.db-wal", &log(&content, &[2, 5]));
        for index in 0..3 {
            on.xref.placed_whole(&wal, &wal.lock.read(), index).unwrap();
        }
        on.write_back(&wal).unwrap();
        on.checkpoint_now().unwrap();
        // Page 2 again, as it is nowhere but in the log, behind the two frames.
        let mut again = noise(99);
        again[..4].fill(7);
        let mut frame = vec![0; 24];
        frame[..4].copy_from_slice(&3u32.to_be_bytes());
        frame.extend(&again);
        let end = (32 + 2 * (24 + PAGE)) as u64;
        on.write(wal.ino, end, &frame, WriteTimes::Now).unwrap();
        let page = page_of(&wal, 3);
        let state = wal.lock.read();
        let _ = on.xref.record_of(&wal, &state, 3, &page, true).unwrap();
        assert!(!on.refs.others_need_any(database.ino) || on.refs.depends_on_others(wal.ino));
    }

    #[test]
    fn a_new_file_is_made_from_the_one_that_it_will_replace() {
        let (on, _, _) = with_database();
        let mut content: Vec<u8> = (20..28).flat_map(noise).collect();
        let old = file(&on, "settings.xml", &content);
        assert!(!on.can_retain().unwrap(), "there is no directory yet");
        on.hidden().make().unwrap();
        on.write_back_all().unwrap();
        on.checkpoint_now().unwrap();
        assert!(on.can_retain().unwrap());
        // Something is inserted: what follows lies behind its old place.
        content.splice(300..300, [1; 40]);
        let new = file(&on, "settings.xml.new", &content);
        for index in [0u32, 2, 3] {
            let page = page_of(&new, index.into());
            let state = new.lock.read();
            let found = on.xref.record_of(&new, &state, index, &page, true).unwrap();
            let (record, _) = found.unwrap_or_else(|| panic!("page {index}"));
            assert!(record.size() < 400, "page {index}: {}", record.size());
            on.refs.keep(new.ino, index);
        }
        assert_eq!(on.refs.origins(new.ino), [old.ino]);
        assert!(on.may_retain(&old, &new).unwrap());
        let page = page_of(&new, 1);
        let state = new.lock.read();
        assert!(on.xref.record_of(&new, &state, 1, &page, false).unwrap().is_none(), "it has a block");
    }
}
