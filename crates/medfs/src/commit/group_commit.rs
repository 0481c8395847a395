//! Shared record nodes: files that become durable together share a node block.
//!
//! An fsync comes down to one last node, most often the file's inode. Where those of several files wait at
//! the same moment, what changed of each inode since its block was written goes into one block of the chain
//! ([`medfs_format::shared`]), as far as it is little; roll-forward makes the inode blocks of it. A file that
//! waits alone writes its inode: that costs the same.
//!
//! Invariants:
//! - An entry's base is the block that the NAT names for the inode. It belongs to the last checkpoint or to
//!   the chain, before the entry, so it stays as long as the chain counts. It cannot change meanwhile, as
//!   only fsyncs of the file (`wb`) and checkpoints (`ops`) write its nodes.
//! - An inode in an entry stays dirty, as [`Dirty::Noted`](medfs_store::Dirty): the next checkpoint writes
//!   it, no fsync needs to.
//! - A shared node is valid nowhere: its block is given up as it is taken, and not used again before the next
//!   checkpoint.
//!
//! Locks: a thread that waits holds the `wb` of its files, and shares the operation lock; the thread that writes for it
//! takes neither of them. The queue is a leaf, and not held during I/O.

use crate::commit::flush::FlushPolicy;
use crate::delta::Deltas;
use crate::delta::addr_redo::Notes;
use crate::error::Result;
use crate::map::Map;
use crate::stats::Counters;
use medfs_codec::page_checksum;
use medfs_format::node::footer_mut;
use medfs_format::removed::{RemovedName, removed_names_node};
use medfs_format::seal::{Cover, SEAL_ROOM};
use medfs_format::shared::{self, ENTRY_SIZE, SHARED_ROOM, SharedEntry};
use medfs_format::summary::{Log, RawSummary};
use medfs_format::{Block, BlockAddr, Ino, is_block};
use medfs_store::NodeMarks;
use medfs_store::NodePage;
use medfs_store::Spare;
use medfs_sync::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of a shared record node that entries get: the rest is its seal's.
const ENTRIES_ROOM: usize = SHARED_ROOM - SEAL_ROOM;
/// Largest entry: two share a block at least.
const MOST_BYTES: usize = ENTRIES_ROOM / 2;

/// The last node of an fsync, which makes its file durable.
pub(crate) struct LastNode {
    pub(super) page: Arc<NodePage>,
    pub(super) block: Arc<Block>,
    /// What the inode says of nodes that are not written.
    pub(super) notes: Arc<Notes>,
    pub(super) dentry: bool,
    /// How what was written before becomes durable.
    pub(super) before: Before,
}

/// How what an fsync writes before its last node becomes durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    /// It is already, or in whichever order.
    Together,
    /// Before the node, or with it where the node's seal tells.
    Sealed,
    /// Before the node.
    Flushed,
}

impl LastNode {
    fn marks<'a>(&'a self, cover: Option<&'a Cover>) -> NodeMarks<'a> {
        NodeMarks { fsync: true, dentry: self.dentry, notes: &self.notes.notes, cover }
    }

    fn may_share(&self) -> bool {
        self.page.nid == self.page.ino && !self.dentry
    }
}

/// An inode block as an entry says it.
struct Entry {
    ino: Ino,
    base: BlockAddr,
    checksum: u32,
    codec: u8,
    delta: Vec<u8>,
}

impl Entry {
    fn size(&self) -> usize {
        ENTRY_SIZE + self.delta.len()
    }

    fn raw(&self) -> SharedEntry<'_> {
        let Entry { ino, base, checksum, codec, ref delta } = *self;
        SharedEntry { ino, base, checksum, codec, delta }
    }
}

struct Waiting {
    node: LastNode,
    /// Whether whoever wrote it succeeded.
    written: OnceLock<bool>,
}

#[derive(Default)]
struct Queue {
    writing: bool,
    waiting: Vec<Arc<Waiting>>,
}

/// The last nodes that wait to be written, and the blocks that they shared.
#[derive(Default)]
pub(crate) struct GroupCommit {
    /// Whether last nodes share a block, on a volume that may hold deltas.
    shares: bool,
    queue: Mutex<Queue>,
    changed: Condvar,
    nodes: AtomicU64,
    inodes: AtomicU64,
}

/// The files that one thread writes for; all of them learn how it went, even where it panics.
struct Round<'a> {
    group: &'a GroupCommit,
    files: Vec<Arc<Waiting>>,
    written: bool,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        self.group.queue.lock().writing = false;
        for file in &self.files {
            file.written.get_or_init(|| self.written);
        }
        self.group.changed.notify_all();
    }
}

impl GroupCommit {
    /// `shares`: whether files that become durable together share a block, on a volume that may hold deltas.
    pub(crate) fn new(shares: bool) -> GroupCommit {
        GroupCommit { shares, ..GroupCommit::default() }
    }

    fn shares(&self, map: &Map) -> bool {
        self.shares && map.is_delta_volume()
    }

    /// Makes the last nodes of files durable: one together with those of other threads that come while one is
    /// being written, several together.
    pub(crate) fn write(
        &self,
        map: &Map,
        deltas: &Deltas,
        flush: FlushPolicy,
        nodes: Vec<LastNode>,
    ) -> Result<()> {
        match <[LastNode; 1]>::try_from(nodes) {
            Ok([node]) if self.shares(map) && node.may_share() => {
                self.write_in_turn(map, deltas, flush, node)
            }
            Ok([node]) => self.write_together(map, deltas, flush, &[&node]),
            Err(nodes) => self.write_together(map, deltas, flush, &nodes.iter().collect::<Vec<_>>()),
        }
    }

    fn write_in_turn(&self, map: &Map, deltas: &Deltas, flush: FlushPolicy, node: LastNode) -> Result<()> {
        let mine = Arc::new(Waiting { node, written: OnceLock::new() });
        let mut queue = self.queue.lock();
        queue.waiting.push(mine.clone());
        while mine.written.get().is_none() && queue.writing {
            self.changed.wait(&mut queue);
        }
        match mine.written.get() {
            Some(true) => return Ok(()),
            Some(false) => {
                // It may have failed for another's sake.
                drop(queue);
                return self.write_together(map, deltas, flush, &[&mine.node]);
            }
            None => queue.writing = true,
        }
        let files = std::mem::take(&mut queue.waiting);
        drop(queue);
        let mut round = Round { group: self, files, written: false };
        let nodes: Vec<&LastNode> = round.files.iter().map(|w| &w.node).collect();
        let result = self.write_together(map, deltas, flush, &nodes);
        round.written = result.is_ok();
        match result {
            // As the others do it: it may have failed for one of them.
            Err(_) if nodes.len() > 1 => self.write_together(map, deltas, flush, &[&mine.node]),
            result => result,
        }
    }

    /// Writes the last nodes of files alone, in front of those of the fsync that flushes them.
    pub(crate) fn write_unflushed(
        &self,
        map: &Map,
        deltas: &Deltas,
        flush: FlushPolicy,
        nodes: &[LastNode],
    ) -> Result<()> {
        self.place_together(map, deltas, flush, &nodes.iter().collect::<Vec<_>>())
    }

    /// Makes last nodes of different files durable, in as few blocks as they take.
    fn write_together(
        &self,
        map: &Map,
        deltas: &Deltas,
        flush: FlushPolicy,
        nodes: &[&LastNode],
    ) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        self.place_together(map, deltas, flush, nodes)?;
        flush.after_last_node(&map.io)
    }

    /// Makes last nodes of different files durable in one block, so that power loss leaves all or none. `false`, and
    /// nothing is written, where they do not fit.
    pub(crate) fn write_at_once(
        &self,
        map: &Map,
        deltas: &Deltas,
        flush: FlushPolicy,
        nodes: &[&LastNode],
    ) -> Result<bool> {
        if nodes.len() > 1 {
            let Some(entries) = self.entries(map, deltas, nodes)? else { return Ok(false) };
            let size: usize = entries.iter().map(|(_, entry)| entry.size()).sum();
            if entries.len() < nodes.len() || size > ENTRIES_ROOM {
                return Ok(false);
            }
        }
        self.write_together(map, deltas, flush, nodes)?;
        Ok(true)
    }

    /// The entries of those nodes that may share a block, with their places; `None` where none does.
    fn entries(
        &self,
        map: &Map,
        deltas: &Deltas,
        nodes: &[&LastNode],
    ) -> Result<Option<Vec<(usize, Entry)>>> {
        if nodes.len() < 2 || !self.shares(map) {
            return Ok(None);
        }
        let mut entries = Vec::new();
        for (at, node) in nodes.iter().enumerate().filter(|(_, n)| n.may_share()) {
            entries.extend(entry_of(map, deltas, node)?.map(|entry| (at, entry)));
        }
        Ok(Some(entries))
    }

    fn place_together(
        &self,
        map: &Map,
        deltas: &Deltas,
        flush: FlushPolicy,
        nodes: &[&LastNode],
    ) -> Result<()> {
        if nodes.is_empty() {
            return Ok(());
        }
        let cover = seal_or_flush(map, flush, nodes)?;
        let groups = self.entries(map, deltas, nodes)?.map(grouped).unwrap_or_default();
        let shared = |at: usize| groups.iter().flatten().any(|&(n, _)| n == at);
        let alone = nodes.iter().enumerate().filter(|&(at, _)| !shared(at)).map(|(_, node)| node);
        {
            let _chain = map.chain.lock();
            let mut placed = Vec::new();
            let mut outcome = Ok(());
            for group in &groups {
                let shared = || self.place_shared(map, group.iter().map(|(_, entry)| entry), cover.as_ref());
                outcome = outcome.and_then(|()| shared()).map(|block| placed.push(block));
            }
            for node in alone {
                let nodes = [(node.page.clone(), node.block.clone())];
                outcome = outcome
                    .and_then(|()| Ok(map.place_nodes(&nodes, node.marks(cover.as_ref()), &mut placed)?));
            }
            // After an error too: the chain names what was placed.
            map.write_nodes(&placed)?;
            map.space.wrote_in_chain(placed.len(), nodes.iter().filter(|n| n.dentry).count());
            outcome?;
        }
        for (at, _) in groups.iter().flatten() {
            map.nodes.mark_shared(&nodes[*at].page);
        }
        Ok(())
    }

    /// Makes durable that files lost names.
    pub(crate) fn write_removed(
        &self,
        map: &Map,
        flush: FlushPolicy,
        names: &[RemovedName<'_>],
    ) -> Result<()> {
        {
            let _chain = map.chain.lock();
            let placed = place_in_chain(map, Box::new(removed_names_node(names)), None)?;
            map.write_nodes(&[placed])?;
            map.space.wrote_in_chain(1, 0);
        }
        flush.after_last_node(&map.io)
    }

    /// Gives a shared node a block of the chain, whose lock is held.
    fn place_shared<'e>(
        &self,
        map: &Map,
        entries: impl Iterator<Item = &'e Entry>,
        cover: Option<&Cover>,
    ) -> Result<(BlockAddr, Box<Block>)> {
        let entries: Vec<SharedEntry<'_>> = entries.map(Entry::raw).collect();
        Counters::add(&self.nodes, 1);
        Counters::add(&self.inodes, entries.len() as u64);
        place_in_chain(map, Box::new(shared::shared_node(&entries)), cover)
    }

    /// Shared nodes written, and inodes in them.
    pub(crate) fn shared(&self) -> (u64, u64) {
        (self.nodes.load(Ordering::Relaxed), self.inodes.load(Ordering::Relaxed))
    }
}

/// What the last nodes of files are sealed with. Where some of them cannot be, and what was written before
/// must not become durable after them, that becomes durable now.
fn seal_or_flush(map: &Map, flush: FlushPolicy, nodes: &[&LastNode]) -> Result<Option<Cover>> {
    let any = nodes.iter().any(|node| node.before != Before::Together);
    if let Some(seals) = map.seals.as_ref().filter(|_| flush.seals()) {
        let cover = seals.cover(map.io.durable_writes());
        let takes = |node: &LastNode| match node.before {
            Before::Together => true,
            Before::Sealed => cover.as_ref().is_some_and(|cover| seals.fit(&node.block, cover)),
            Before::Flushed => false,
        };
        if nodes.iter().all(|node| takes(node)) {
            Counters::add(&map.counters.sealed, any.into());
            return Ok(cover);
        }
    }
    if any {
        Counters::add(&map.counters.flushed_first, 1);
        map.io.flush()?;
    }
    Ok(None)
}

/// What an inode's block differs by from the one on the volume; `None` where there is none, or where it is not little.
fn entry_of(map: &Map, deltas: &Deltas, node: &LastNode) -> Result<Option<Entry>> {
    let ino = node.page.ino;
    let addr = map.nat.peek(&map.io, ino)?.addr;
    let rules = &map.nodes.rules;
    if rules.checksum_seed().is_none() || !is_block(addr) {
        return Ok(None);
    }
    // The node is written whole where the old one cannot be read: nobody's fsync needs that.
    let Ok(base) = map.io.read(addr) else { return Ok(None) };
    let Some(image) = rules.image_over(&base, &node.block, &node.notes.notes) else { return Ok(None) };
    let most = MOST_BYTES - ENTRY_SIZE;
    Ok(deltas.with_codecs(|codecs| {
        codecs.delta(&base.0, &image.0, most).map(|delta| Entry {
            ino,
            base: addr,
            checksum: page_checksum(&image.0),
            codec: delta.tag as u8,
            delta: delta.bytes.to_vec(),
        })
    }))
}

/// Gives a node that nothing names a block of the chain, whose lock is held.
fn place_in_chain(
    map: &Map,
    mut block: Box<Block>,
    cover: Option<&Cover>,
) -> Result<(BlockAddr, Box<Block>)> {
    let (ino, now) = (map.geo.node_ino, map.elapsed());
    let owner = RawSummary { nid: ino.into(), version: 0, ofs_in_node: 0.into() };
    let (addr, next) = {
        let mut segs = map.segs.lock();
        let addr = segs.allocate(&map.io, Log::WarmNode, owner, now, Spare::Use)?;
        segs.mark_invalid(&map.io, addr, now)?;
        (addr, segs.next_addr(Log::WarmNode))
    };
    let f = footer_mut(&mut block);
    (f.nid, f.ino) = (ino.into(), ino.into());
    map.fill_footer(&mut block, next, NodeMarks { fsync: true, ..NodeMarks::default() });
    map.seal_in_chain(&mut block, cover, shared::seal);
    map.space.wrote(1);
    Ok((addr, block))
}

/// Divides entries among blocks, small ones first; an entry that would have a block to itself is left out.
fn grouped<T>(mut entries: Vec<(T, Entry)>) -> Vec<Vec<(T, Entry)>> {
    entries.sort_by_key(|(_, entry)| entry.size());
    let mut groups: Vec<Vec<(T, Entry)>> = Vec::new();
    let mut room = 0;
    for entry in entries {
        let size = entry.1.size();
        match groups.last_mut().filter(|_| size <= room) {
            Some(group) => group.push(entry),
            None => {
                groups.push(vec![entry]);
                room = ENTRIES_ROOM;
            }
        }
        room -= size;
    }
    groups.retain(|group| group.len() > 1);
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(ino: Ino, size: usize) -> (Ino, Entry) {
        (ino, Entry { ino, base: 9, checksum: 0, codec: 1, delta: vec![0; size - ENTRY_SIZE] })
    }

    fn numbers(groups: &[Vec<(Ino, Entry)>]) -> Vec<Vec<Ino>> {
        groups.iter().map(|g| g.iter().map(|(ino, _)| *ino).collect()).collect()
    }

    #[test]
    fn small_entries_share_and_none_has_a_block_to_itself() {
        assert!(grouped(vec![entry(1, 40)]).is_empty());
        assert_eq!(numbers(&grouped(vec![entry(1, 60), entry(2, 40)])), [[2, 1]]);
        let large = MOST_BYTES;
        let groups = grouped(vec![entry(1, large), entry(2, large), entry(3, large)]);
        assert_eq!(numbers(&groups), [[1, 2]], "the third writes its inode");
        let groups = grouped((1..=9).map(|n| entry(n, ENTRIES_ROOM / 4)).collect());
        assert_eq!(numbers(&groups), [[1, 2, 3, 4], [5, 6, 7, 8]]);
    }
}
