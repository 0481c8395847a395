//! Compressed files as content sees them.

use super::pages::Clusters;
use crate::content::Content;
use crate::content::page_plan::Placing;
use crate::content::storage::{Change, PageStorage, Ready, Write};
use crate::error::{Error, Result};
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use medfs_format::{Block, BlockAddr, is_block};
use std::ops::Range;
use std::sync::Arc;

impl PageStorage for Clusters {
    fn read(
        &self,
        content: &Content,
        inode: &Inode,
        state: &InodeState,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<()> {
        match content.compression(inode) {
            Some(compression) => self.over(content).read_clusters(inode, state, compression, offset, buf),
            None => self.updates.read(content, inode, state, offset, buf),
        }
    }

    fn load(&self, content: &Content, inode: &Inode, state: &InodeState, index: u64) -> Result<Arc<Block>> {
        match self.over(content).page_of_cluster(inode, state, index)? {
            Some(page) => Ok(page),
            None => self.updates.load(content, inode, state, index),
        }
    }

    fn kept(&self, content: &Content, inode: &Inode, pages: Range<u64>) -> Result<Vec<u64>> {
        self.updates.kept(content, inode, pages)
    }

    fn before(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        change: Change,
    ) -> Result<Ready> {
        let pages = self.over(content);
        if let Change::Leave(range) = &change {
            pages.open_clusters_around(inode, state, range.clone())?;
        }
        let mut ready = self.updates.before(content, inode, state, change.clone())?;
        match change {
            Change::Page(index) => ready.closed = pages.open_for_change(inode, state, index)?,
            Change::Growth(_) => pages.open_last_cluster(inode, state)?,
            Change::Address(_) | Change::Leave(_) => {}
        }
        Ok(ready)
    }

    fn page_changes(
        &self,
        content: &Content,
        inode: &Inode,
        page: (u64, &Slot),
        old: BlockAddr,
        clean: Option<&Arc<Block>>,
    ) {
        self.updates.page_changes(content, inode, page, old, clean);
    }

    fn dropped(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pages: Range<u64>,
    ) -> Result<()> {
        self.updates.dropped(content, inode, state, pages)
    }

    fn place(&self, content: &Content, write: Write<'_>) -> Placing {
        match content.compression(write.inode) {
            Some(compression) => self.over(content).place_clusters(compression, write),
            None => self.updates.place(content, write),
        }
    }

    /// Blocks of compressed clusters.
    fn relocate(
        &self,
        content: &Content,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        indices: &[u64],
    ) -> Result<Vec<u64>> {
        let (mut blocks, mut others) = (Vec::new(), Vec::with_capacity(indices.len()));
        for &index in indices {
            let Some(slot) = content.find_slot(inode, index)? else { continue };
            if content.end_of_cluster(inode, &slot, index).is_none() {
                others.push(index);
            } else if is_block(slot.addr()) {
                blocks.push((index, slot));
            }
        }
        let read = |addr| content.io.read(addr).map(|block| Arc::new(*block)).map_err(Error::from);
        content.move_blocks(inode, state, blocks, read)?;
        self.updates.relocate(content, inode, state, &others)
    }

    fn own_page_written(&self, content: &Content, inode: &Inode, index: u64) {
        self.updates.own_page_written(content, inode, index);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::ClusterBlocks;
    use crate::content::Storages;
    use crate::content::alone::{
        NoSources, content, follow_a_model, forget_clean, new_file, options, read, text, write, write_back,
    };
    use crate::content::placement::Purpose;
    use crate::content::plain::Plain;
    use crate::delta::Deltas;
    use crate::error::Posix;
    use crate::types::{FallocateMode, FileFlags, Seek};
    use medfs_format::BLOCK_SIZE;
    use medfs_format::compress::{Algorithm, Compression};
    use medfs_format::superblock::Feature;
    use rand::{RngCore, SeedableRng};
    use std::sync::atomic::Ordering::Relaxed;

    const BACKGROUND: Purpose = Purpose::Background;
    const CLUSTER: u64 = 4 * BLOCK_SIZE as u64;

    /// Clusters over plain blocks.
    fn clusters(opts: &str) -> (Content, Arc<Clusters>) {
        let mut made = None;
        let content = content(false, Feature::COMPRESSION, options(opts), |_| {
            let plain = Arc::new(Plain);
            let clusters = Arc::new(Clusters::new(Arc::new(ClusterBlocks::default()), plain.clone()));
            made = Some(clusters.clone());
            Storages { plain, clusters: Some(clusters) }
        });
        (content, made.expect("just made"))
    }

    fn by(algorithm: Algorithm) -> Option<Compression> {
        Some(Compression { algorithm, log_cluster_size: 2, level: 3, checksum: true })
    }

    /// A cluster that nothing compresses.
    fn noise() -> Vec<u8> {
        let mut noise = vec![0; CLUSTER as usize];
        rand_chacha::ChaCha8Rng::seed_from_u64(1).fill_bytes(&mut noise);
        noise
    }

    /// A file of so many clusters, all of them compressed.
    fn file_of(content: &Content, clusters: u64) -> (Arc<Inode>, Vec<u8>) {
        let file = new_file(content, b"f", by(Algorithm::Lz4));
        let data = text(5, (clusters * CLUSTER) as usize);
        write(content, &file, 0, &data);
        write_back(content, &file, BACKGROUND);
        (file, data)
    }

    #[test]
    fn a_compressed_file_is_what_was_done_to_it() {
        for algorithm in [Algorithm::Lzo, Algorithm::Lz4, Algorithm::Zstd] {
            for seed in 0..2 {
                let (content, own) = clusters("");
                let file = new_file(&content, b"f", by(algorithm));
                follow_a_model(&content, &file, seed, 100);
                assert!(own.blocks.counters.stats().clusters > 0);
                let counted = file.raw(|r| r.extra().unwrap().i_compr_blocks.get());
                own.over(&content).recount_saved(&file).unwrap();
                assert_eq!(file.raw(|r| r.extra().unwrap().i_compr_blocks.get()), counted);
            }
        }
    }

    /// Clusters whose pages may have deltas.
    fn clusters_with_deltas(opts: &str) -> (Content, Arc<Deltas>) {
        let mut made = None;
        let content = content(true, Feature::COMPRESSION, options(opts), |opts| {
            let blocks = Arc::new(ClusterBlocks::default());
            let deltas = Arc::new(Deltas::new(opts, Some(blocks.clone())));
            made = Some(deltas.clone());
            Storages { plain: deltas.clone(), clusters: Some(Arc::new(Clusters::new(blocks, deltas))) }
        });
        (content, made.expect("just made"))
    }

    #[test]
    fn a_compressed_file_with_deltas_is_what_was_done_to_it() {
        for opts in ["delta=inline", "delta=full,compact_files=all", "delta=off"] {
            for seed in 0..3 {
                let (content, _) = clusters_with_deltas(opts);
                follow_a_model(&content, &new_file(&content, b"f", by(Algorithm::Lz4)), seed, 100);
            }
        }
    }

    #[test]
    fn a_small_change_leaves_its_cluster_closed() {
        let (content, deltas) = clusters_with_deltas("delta=inline");
        let (file, mut data) = file_of(&content, 2);
        let first = || content.find_slot(&file, 0).unwrap().unwrap().addrs(4);
        let before = first();
        write(&content, &file, 5, b"changed");
        data[5..12].copy_from_slice(b"changed");
        write_back(&content, &file, Purpose::Fsync { datasync: false });
        assert!(first() == before && deltas.over(&content).has_delta(&file, 0).unwrap());
        forget_clean(&content, &file);
        assert!(read(&content, &file) == data);
        data[..CLUSTER as usize].copy_from_slice(&noise());
        write(&content, &file, 0, &noise());
        write_back(&content, &file, BACKGROUND);
        assert!(first() != before && !deltas.over(&content).has_delta(&file, 0).unwrap());
        forget_clean(&content, &file);
        assert!(read(&content, &file) == data);
    }

    #[test]
    fn a_whole_cluster_takes_fewer_blocks_and_is_opened_to_change() {
        let (content, own) = clusters("");
        let (file, data) = file_of(&content, 3);
        let stats = own.blocks.counters.stats();
        assert!(stats.clusters == 3 && stats.saved >= 3, "{stats:?}");
        forget_clean(&content, &file);
        assert!(read(&content, &file) == data);
        assert_eq!(content.seek(file.ino, 0, Seek::Data).unwrap(), 0);
        write(&content, &file, 5, b"changed");
        assert_eq!(file.lock.read().pages.dirty_len(), 4, "all pages of its cluster");
        write_back(&content, &file, BACKGROUND);
        forget_clean(&content, &file);
        assert_eq!(&read(&content, &file)[5..12], b"changed");
    }

    #[test]
    fn content_that_does_not_compress_is_kept_plain() {
        let (content, own) = clusters("");
        let file = new_file(&content, b"f", by(Algorithm::Lz4));
        write(&content, &file, 0, &noise());
        write_back(&content, &file, BACKGROUND);
        assert_eq!(own.blocks.counters.kept_plain.load(Relaxed), 1);
        assert!(read(&content, &file) == noise());
    }

    #[test]
    fn cleaning_moves_a_clusters_blocks_as_they_are() {
        let (content, own) = clusters("");
        let (file, data) = file_of(&content, 2);
        let made = own.blocks.counters.made.load(Relaxed);
        content.move_pages(&file, &[0, 1, 2, 3, 4], &NoSources).unwrap();
        forget_clean(&content, &file);
        assert!(read(&content, &file) == data);
        assert_eq!(own.blocks.counters.made.load(Relaxed), made, "nothing is compressed again");
    }

    #[test]
    fn saved_blocks_are_given_back_and_taken_again() {
        let (content, own) = clusters("");
        let (file, data) = file_of(&content, 2);
        let pages = own.over(&content);
        let (inode, compression) = pages.compressed_file(file.ino).unwrap();
        let (saved, free) = (pages.saved_blocks(file.ino).unwrap(), content.space.counts().free());
        assert_eq!(pages.release_saved(&inode, compression).unwrap(), saved);
        assert!(content.space.counts().free() > free && pages.saved_blocks_released(file.ino).unwrap());
        assert!(pages.release_saved(&inode, compression).is_err(), "it has none left");
        let refused = content.write_file(&file, 0, b"x", crate::content::file::WriteTimes::Now);
        assert!(matches!(refused, Err(Error::Posix(Posix::NotPermitted))));
        assert!(content.check_resize_of_released(&file, 5).is_err());
        assert!(read(&content, &file) == data);
        assert!(pages.reserve_saved(&inode, compression).unwrap() >= saved);
        assert_eq!(content.space.counts().free(), free);
        pages.release_saved(&inode, compression).unwrap();
        content.change_alone(&file, |state| content.resize(&file, state, 0)).unwrap();
        assert!(!pages.saved_blocks_released(file.ino).unwrap(), "an empty file can be written again");
    }

    #[test]
    fn a_file_changes_sides_only_while_it_is_empty() {
        let (content, own) = clusters("");
        let (file, _) = file_of(&content, 1);
        let pages = own.over(&content);
        let plain = |state: &mut InodeState| {
            pages.change_compression(&file, state, FileFlags::COMPR, FileFlags::empty())
        };
        assert!(content.change_alone(&file, plain).is_err());
        let (inode, old) = pages.compressed_file(file.ino).unwrap();
        assert!(pages.set_compress_option((&inode, old), Algorithm::Zstd as u8, 3).is_err());
        content.change_alone(&file, |state| content.resize(&file, state, 0)).unwrap();
        content.change_alone(&file, plain).unwrap();
        pages.set_compress_option((&inode, old), Algorithm::Zstd as u8, 3).unwrap();
        assert_eq!(pages.compress_option(file.ino).unwrap(), (Algorithm::Zstd as u8, 3));
        assert!(pages.set_compress_option((&inode, old), 77, 3).is_err());
        let both = FileFlags::COMPR | FileFlags::NOCOMP;
        let wrong = content
            .change_alone(&file, |state| pages.change_compression(&file, state, FileFlags::COMPR, both));
        assert!(wrong.is_err());
    }

    #[test]
    fn a_cluster_is_made_anew_where_that_is_asked_for() {
        let (content, own) = clusters("");
        let (file, data) = file_of(&content, 1);
        let (_, compression) = own.over(&content).compressed_file(file.ino).unwrap();
        for compress in [false, true] {
            file.lock.write().compress = Some(compress);
            let touch = |state: &mut InodeState| {
                own.over(&content).touch_cluster(&file, state, compression, 0, compress)
            };
            content.change_alone(&file, touch).unwrap();
            write_back(&content, &file, BACKGROUND);
            let saved = own.over(&content).saved_blocks(file.ino).unwrap();
            assert!((saved > 0) == compress && read(&content, &file) == data);
        }
    }

    #[test]
    fn a_range_that_ends_within_a_cluster_opens_it() {
        let (content, _) = clusters("");
        let (file, mut data) = file_of(&content, 3);
        let page = BLOCK_SIZE as u64;
        let punch = FallocateMode::PUNCH_HOLE | FallocateMode::KEEP_SIZE;
        content.allocate(&file, punch, 2 * page, 7 * page).unwrap();
        data[2 * BLOCK_SIZE..9 * BLOCK_SIZE].fill(0);
        write_back(&content, &file, BACKGROUND);
        forget_clean(&content, &file);
        assert!(read(&content, &file) == data);
    }

    #[test]
    fn a_damaged_cluster_is_an_error_and_changes_nothing() {
        let (content, _) = clusters("");
        let (file, _) = file_of(&content, 2);
        let block = content.find_slot(&file, 1).unwrap().unwrap().addr();
        let tag = medfs_device::WriteTag::new(medfs_device::Cause::Data, medfs_device::Temperature::Warm);
        content.io.write(block, &[&Block([0x5a; BLOCK_SIZE])], tag).unwrap();
        forget_clean(&content, &file);
        let mut buf = vec![0; BLOCK_SIZE];
        assert!(matches!(content.read(file.ino, 0, &mut buf), Err(Error::Corrupt(_))));
        assert_eq!(content.read(file.ino, CLUSTER, &mut buf).unwrap(), BLOCK_SIZE, "the other one is whole");
        let change = content.write_file(&file, 3, b"x", crate::content::file::WriteTimes::Now);
        assert!(change.is_err() && !file.lock.read().pages.any_dirty());
    }
}
