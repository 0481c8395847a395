//! Writing clusters: compressing those that are dirty as a whole, opening those that change by more than
//! deltas, moving their blocks.

use super::blocks::bad_cluster;
use super::pages::ClusterPages;
use crate::content::block_writer::temperature;
use crate::content::page_plan::{Decide, Decision, Pending, Placed, Placing};
use crate::content::placement::{Batch, Purpose};
use crate::content::storage::Write;
use crate::error::{Error, Result};
use crate::map::damage::First;
use crate::map::inode::{Inode, InodeState};
use crate::map::node_tree::Slot;
use crate::stats::Counters;
use medfs_format::compress::{CLUSTER_HEADER_SIZE, Compression, RawClusterHeader, blocks_of, most_content};
use medfs_format::node::RawInode;
use medfs_format::{
    BLOCK_SIZE, Block, COMPRESS_ADDR, FormatError, NEW_ADDR, NULL_ADDR, Structure, crc, is_block,
};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Pages that may have to be written because pages of closed clusters are dirty.
const MOST_OPENED: usize = 1024;

type DirtyPage = (u64, Arc<Block>);

/// The dirty pages of a cluster.
fn dirty_pages(state: &InodeState, compression: Compression, first: u64) -> Vec<DirtyPage> {
    let pages = first..first + compression.cluster_pages() as u64;
    state.pages.dirty_here(pages).map(|(index, page)| (index, page.clone())).collect()
}

impl ClusterPages<'_> {
    /// Gives the dirty pages of a compressed file their blocks, as content does for others, or keeps them as
    /// deltas. Where one page of a cluster is among `indices`, all of its dirty pages go; so do those whose
    /// deltas gave way to others.
    pub(super) fn place_clusters(&self, compression: Compression, write: Write<'_>) -> Placing {
        let Write { inode, state, indices, purpose, sources } = write;
        let pages = compression.cluster_pages() as u64;
        let mut clusters: Vec<u64> = indices.iter().map(|index| index / pages * pages).collect();
        clusters.sort_unstable();
        clusters.dedup();
        let about = Decide::about(Batch::of(inode, purpose, state.pages.dirty_len()), true, sources);
        let mut placing = Placing::of(Vec::with_capacity(indices.len()), Ok(()));
        placing.outcome =
            self.place_all_clusters(inode, state, compression, &clusters, &about, &mut placing.pages);
        placing
    }

    /// Decides about all clusters, and then places those that are due, each once, and the file's compact pages.
    fn place_all_clusters(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        compression: Compression,
        clusters: &[u64],
        about: &Decide<'_>,
        placed: &mut Vec<Placed>,
    ) -> Result<()> {
        let (mut due, mut failed) = (BTreeSet::new(), First::default());
        failed.note(self.find_due(inode, state, compression, clusters, about, &mut due));
        for first in due {
            let done = self.place_cluster(inode, state, compression, first, &about.batch, placed);
            self.put_off(&mut failed, done)?;
        }
        if self.is_delta_volume() && self.has_compact(inode) {
            let compact = state.pages.dirty_here(self.compact_start(inode)..);
            let compact: Vec<DirtyPage> = compact.map(|(index, page)| (index, page.clone())).collect();
            let done = self.place_plain(inode, &about.batch, compact, placed);
            self.put_off(&mut failed, done)?;
        }
        failed.result()
    }

    /// Opens the clusters that are to be written: those of which what changed does not become deltas, and those of
    /// pages whose deltas gave way.
    fn find_due(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        compression: Compression,
        clusters: &[u64],
        about: &Decide<'_>,
        due: &mut BTreeSet<u64>,
    ) -> Result<()> {
        let (mut pending, mut tried) = (Vec::new(), BTreeSet::new());
        let mut damage = First::default();
        let mut open = |state: &mut InodeState, tried: &mut BTreeSet<u64>, first| {
            tried.insert(first);
            let opened = self.open_cluster(inode, state, first);
            if opened.is_ok() {
                due.insert(first);
            }
            self.put_off(&mut damage, opened)
        };
        for &first in clusters {
            let kept = match self.keep_closed(inode, state, compression, first, about, &mut pending) {
                // What is dirty of it may be all of it.
                Err(e) if self.is_damage(&e) => false,
                kept => kept?,
            };
            if !kept {
                open(state, &mut tried, first)?;
            }
        }
        self.settle_updates(inode, state, pending)?;
        let pages = compression.cluster_pages() as u64;
        loop {
            let mut whole = state.whole.iter().map(|index| index / pages * pages);
            let Some(first) = whole.find(|first| !tried.contains(first)) else { break };
            open(state, &mut tried, first)?;
        }
        damage.result()
    }

    /// Finds places for deltas that the zone had no room for; pages whose deltas find none are to be written.
    fn settle_updates(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        pending: Vec<Pending>,
    ) -> Result<()> {
        let updated: Vec<u64> = pending.iter().map(Pending::index).collect();
        let whole = self.updates.settle(self.content, inode, state, pending)?;
        state.whole.extend(whole);
        for index in updated {
            if !state.whole.contains(&index)
                && let Some(page) = state.pages.get(index).cloned()
            {
                self.page_is_clean(inode, state, index, page);
            }
        }
        Ok(())
    }

    /// Keeps what changed of a compressed cluster as deltas, some of which are `pending`; `false` where it
    /// has to be written.
    fn keep_closed(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        compression: Compression,
        first: u64,
        about: &Decide<'_>,
        pending: &mut Vec<Pending>,
    ) -> Result<bool> {
        if !about.deltas || !self.updates.keeps(self.content, inode) {
            return Ok(false);
        }
        let Some(cluster) = self.compressed_cluster(inode, compression, first, None)?.1 else {
            return Ok(false);
        };
        let dirty = dirty_pages(state, compression, first);
        let content = self.expand_cluster(inode, compression, &cluster)?;
        let (mut kept, mut without_place) = (Vec::new(), Vec::new());
        for (index, page) in dirty {
            let base = &content[(index - first) as usize];
            match self.updates.keep_over(self.content, inode, state, (index, &page), base)? {
                Decision::Stored => kept.push((index, page)),
                Decision::Overflow(delta) => without_place.push(delta),
                _ => return Ok(false),
            }
        }
        // One of them may have taken the room of another.
        let pages = first..first + content.len() as u64;
        if state.whole.range(pages).next().is_some() {
            return Ok(false);
        }
        for (index, page) in kept {
            self.page_is_clean(inode, state, index, page);
        }
        pending.append(&mut without_place);
        Ok(true)
    }

    /// Gives the dirty pages of an open cluster their blocks; where it is compressed all of its pages get new ones.
    fn place_cluster(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        compression: Compression,
        first: u64,
        batch: &Batch,
        placed: &mut Vec<Placed>,
    ) -> Result<()> {
        let pages = compression.cluster_pages() as u64;
        let dirty = dirty_pages(state, compression, first);
        state.whole.retain(|index| !(first..first + pages).contains(index));
        let whole = dirty.len() as u64 == pages && first + pages <= inode.pages();
        if whole && batch.purpose != Purpose::Move && self.compresses(state) {
            if let Some(content) = self.compress_pages(compression, &dirty) {
                return self.place_compressed(inode, &dirty, content, batch, placed);
            }
            Counters::add(&self.blocks.counters.kept_plain, 1);
        }
        self.place_plain(inode, batch, dirty, placed)
    }

    /// Called before a page is changed: opens its cluster, unless what changes may become a delta. Tells
    /// whether the page is in a compressed cluster still.
    pub(super) fn open_for_change(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        index: u64,
    ) -> Result<bool> {
        let Some(compression) = self.compression(inode) else { return Ok(false) };
        let pages = compression.cluster_pages();
        // All that is dirty may have to be opened in one go.
        if self.updates.keeps(self.content, inode) && state.pages.dirty_len() * pages < MOST_OPENED {
            let first = index / pages as u64 * pages as u64;
            return Ok(self.compressed_cluster(inode, compression, first, None)?.1.is_some());
        }
        self.open_cluster(inode, state, index)?;
        Ok(false)
    }

    /// Whether whole clusters of the file are compressed as they are written.
    fn compresses(&self, state: &InodeState) -> bool {
        state.compress.unwrap_or_else(|| self.opts.compress.writes_compressed())
    }

    fn place_plain(
        &self,
        inode: &Inode,
        batch: &Batch,
        dirty: Vec<DirtyPage>,
        placed: &mut Vec<Placed>,
    ) -> Result<()> {
        let mut near: Option<Slot> = None;
        for (index, page) in dirty {
            let slot = self.make_slot_near(inode, near.as_ref(), index)?;
            if matches!(slot.addr(), COMPRESS_ADDR | NULL_ADDR) {
                return Err(bad_cluster(inode, index, "i_addr", "dirty page without space"));
            }
            let compact = self.is_compact_page(inode, index);
            self.place_page(inode, &slot, batch, compact, Placed::new(index, page), placed)?;
            near = Some(slot);
        }
        Ok(())
    }

    /// The blocks of a compressed cluster; `None` where it saves none.
    fn compress_pages(&self, compression: Compression, dirty: &[DirtyPage]) -> Option<Vec<Arc<Block>>> {
        let pages: Vec<u8> = dirty.iter().flat_map(|(_, page)| page.0).collect();
        let mut out = vec![0; dirty.len() * BLOCK_SIZE];
        let room = most_content(dirty.len());
        let content = &mut out[CLUSTER_HEADER_SIZE..CLUSTER_HEADER_SIZE + room];
        let clen = self.blocks.compress(compression, &pages, content)?;
        // Compressors may leave anything behind what they made.
        content[clen..].fill(0);
        let chksum = if compression.checksum { crc::f2fs(&content[..clen]) } else { 0 };
        let header = RawClusterHeader {
            clen: (clen as u32).into(),
            chksum: chksum.into(),
            ..RawClusterHeader::default()
        };
        out[..CLUSTER_HEADER_SIZE].copy_from_slice(header.as_bytes());
        let blocks = out.as_chunks::<BLOCK_SIZE>().0[..blocks_of(clen)].iter();
        Some(blocks.map(|bytes| Arc::new(Block(*bytes))).collect())
    }

    /// Gives a compressed cluster its blocks. All pages of it are dirty, so every slot holds a block or a reservation.
    fn place_compressed(
        &self,
        inode: &Inode,
        dirty: &[DirtyPage],
        content: Vec<Arc<Block>>,
        batch: &Batch,
        placed: &mut Vec<Placed>,
    ) -> Result<()> {
        let first = self.make_slot(inode, dirty[0].0)?;
        let old = first.addrs(dirty.len());
        if old.len() != dirty.len() || old.iter().any(|&a| a == NULL_ADDR || a == COMPRESS_ADDR) {
            return Err(bad_cluster(inode, dirty[0].0, "i_addr", "dirty page without space"));
        }
        let slots: Vec<Slot> = dirty.iter().filter_map(|(index, _)| first.step_to(*index)).collect();
        let kind = batch.compressed();
        let new = self.block_writer().assign_beside(&slots[1..=content.len()], &kind)?;
        let now = self.elapsed();
        {
            let mut segs = self.segs.lock();
            for &addr in old.iter().filter(|&&a| is_block(a)) {
                segs.mark_invalid(&self.io, addr, now)?;
            }
        }
        let counters = &self.blocks.counters;
        Counters::add(&counters.made, 1);
        Counters::add(&counters.saved, (dirty.len() - content.len()) as u64);
        self.add_saved(inode, (dirty.len() - content.len()) as i64);
        let mut written = new.into_iter().zip(content);
        for (i, (slot, (index, page))) in slots.iter().zip(dirty).enumerate() {
            let block = if i == 0 { None } else { written.next() };
            let addr = match &block {
                Some((addr, _)) => *addr,
                None if i == 0 => COMPRESS_ADDR,
                None => NEW_ADDR,
            };
            self.set_addr(inode, slot, addr);
            placed.push(Placed {
                addr: block.as_ref().map_or(NULL_ADDR, |(addr, _)| *addr),
                content: block.map(|(_, content)| content),
                temperature: temperature(kind.log()),
                ..Placed::new(*index, page.clone())
            });
        }
        Ok(())
    }

    /// Opens the cluster of page `index` where it is compressed: afterwards its pages are dirty as they are
    /// now, without deltas, and have addresses of their own when they are written.
    pub(super) fn open_cluster(&self, inode: &Arc<Inode>, state: &mut InodeState, index: u64) -> Result<()> {
        let Some(compression) = self.compression(inode) else { return Ok(()) };
        let pages = compression.cluster_pages() as u64;
        let (_, cluster) = self.compressed_cluster(inode, compression, index / pages * pages, None)?;
        let Some(cluster) = cluster else { return Ok(()) };
        let on_their_way = state.pages.dirty(cluster.first..cluster.first + pages).count() as u64 == pages;
        let content: Vec<Arc<Block>> = if on_their_way {
            // Copies, so that what is being written is not taken for what is dirty now.
            let now = state.pages.dirty_here(cluster.first..cluster.first + pages);
            now.map(|(_, page)| Arc::new((**page).clone())).collect()
        } else {
            let mut content = self.pages_of_cluster(inode, compression, &cluster)?;
            for (index, page) in dirty_pages(state, compression, cluster.first) {
                content[(index - cluster.first) as usize] = page;
            }
            content
        };
        let released = inode.raw(RawInode::saved_blocks_released);
        let missing = cluster.addrs.iter().filter(|&&a| a == NULL_ADDR).count() + usize::from(released);
        self.space.reserve(missing as u64)?;
        self.add_blocks(inode, missing as i64);
        if !released {
            self.add_saved(inode, -(cluster.saved() as i64));
        }
        self.updates.dropped(self.content, inode, state, cluster.first..cluster.first + pages)?;
        state.with_checkpoint = true;
        let size = inode.size();
        for (index, mut page) in (cluster.first..).zip(content) {
            let slot = cluster.slot.step_to(index).ok_or_else(|| straddles(inode, index))?;
            self.pages.remove(inode.ino, index);
            let within = size.saturating_sub(index * BLOCK_SIZE as u64);
            if within == 0 {
                // What lies behind the end reads as zeros when the file grows.
                self.set_addr(inode, &slot, NULL_ADDR);
                self.space.release(1);
                self.add_blocks(inode, -1);
                self.forget_pages(inode, state, index, index + 1);
                continue;
            }
            if within < BLOCK_SIZE as u64 {
                Arc::make_mut(&mut page).0[within as usize..].fill(0);
            }
            self.set_addr(inode, &slot, NEW_ADDR);
            self.add_dirty_page(inode, state, index, page);
        }
        let now = self.elapsed();
        let mut segs = self.segs.lock();
        Ok(cluster.blocks().iter().try_for_each(|&addr| segs.mark_invalid(&self.io, addr, now))?)
    }

    /// Opens the cluster in which the file ends, before it grows: what is behind the end must read as zeros.
    pub(super) fn open_last_cluster(&self, inode: &Arc<Inode>, state: &mut InodeState) -> Result<()> {
        let Some(compression) = self.compression(inode) else { return Ok(()) };
        let size = inode.size();
        let cluster_bytes = (compression.cluster_pages() * BLOCK_SIZE) as u64;
        if size.is_multiple_of(cluster_bytes) {
            return Ok(());
        }
        self.open_cluster(inode, state, size / BLOCK_SIZE as u64)
    }

    /// Opens the clusters of which only a part lies in the range, before its pages go.
    pub(super) fn open_clusters_around(
        &self,
        inode: &Arc<Inode>,
        state: &mut InodeState,
        range: Range<u64>,
    ) -> Result<()> {
        let Some(compression) = self.compression(inode) else { return Ok(()) };
        let pages = compression.cluster_pages() as u64;
        for edge in [range.start, range.end] {
            if !range.is_empty() && edge != u64::MAX && !edge.is_multiple_of(pages) {
                self.open_cluster(inode, state, edge)?;
            }
        }
        Ok(())
    }
}

fn straddles(inode: &Inode, index: u64) -> Error {
    FormatError::corrupt(Structure::Cluster, inode.ino, "i_addr", format!("page {index} in another node"))
        .into()
}
