//! Node blocks in memory.
//!
//! Invariants: there is at most one [`NodePage`] for a nid; every change of a node goes through it, so a node that is
//! not cached equals its block on disk. A dirty page stays cached until it has been written. Only the holder of the
//! owning inode's lock changes a node's content; cleaning may mark any node for rewriting.
//! Locks: a shard's mutex is taken before a page's lock only to look pages up, never across I/O; the page lock is
//! held while its block is read. Two page locks are never waited for at once: read ahead only tries.
//! Kernel counterpart: the node mapping (`node.c`).

mod page;
mod rules;
mod write;

pub use page::{Changed, Dirty, NodeData, NodePage};
pub use rules::NodeRules;
pub use write::NodeMarks;

use crate::cache::{HashMap, in_drop_order};
use crate::changes::Changes;
use crate::error::Result;
use crate::io::Io;
use crate::nat::Nat;
use crate::ranks;
use crate::readahead::Readahead;
use medfs_format::node::{footer, footer_mut, validate_footer};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::{BLOCKS_PER_SEG, Block, BlockAddr, FormatError, Ino, NEW_ADDR, Nid, Structure, is_block};
use medfs_sync::{Mutex, Ranked, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const SHARDS: usize = 64;
/// Fewest pages the cache is made for.
const MIN_LIMIT: usize = 256;

/// One part of the cache.
struct Shard {
    pages: HashMap<Nid, Arc<NodePage>>,
    /// Size from which on an insertion looks for pages to drop: grows where nothing can be dropped, so that a
    /// shard full of dirty pages is not searched again and again.
    evict_at: usize,
}

/// Node blocks in memory; see the head of this file.
pub struct Nodes {
    shards: Vec<Mutex<Shard>>,
    /// Dirty pages by owner, so that an fsync finds its own.
    dirty: Mutex<BTreeMap<(Ino, Nid), Arc<NodePage>>>,
    cached: AtomicUsize,
    limit: usize,
    ahead: Readahead,
    /// Counts how often nodes got new places.
    placed: AtomicU64,
    /// What becomes dirty or clean, by inode, where somebody asks for it.
    pub changes: Changes,
    /// Rules that validate nodes as they are read.
    pub rules: NodeRules,
}

impl Nodes {
    pub(crate) fn new(rules: NodeRules, limit: usize) -> Nodes {
        Nodes {
            shards: (0..SHARDS)
                .map(|_| {
                    Mutex::new(Shard { pages: HashMap::default(), evict_at: limit.max(MIN_LIMIT) / SHARDS })
                })
                .collect(),
            dirty: Mutex::default().ranked(ranks::DIRTY_NODES),
            cached: AtomicUsize::new(0),
            limit: limit.max(MIN_LIMIT),
            ahead: Readahead::default(),
            placed: AtomicU64::new(0),
            changes: Changes::default(),
            rules,
        }
    }

    fn shard(&self, nid: Nid) -> &Mutex<Shard> {
        &self.shards[nid as usize % SHARDS]
    }

    /// The node, read from disk where it is not cached. Checks its footer and, for inodes, every trusted field.
    /// `Corrupt` where the nid is free.
    pub fn get(&self, io: &Io, nat: &Nat, nid: Nid) -> Result<Arc<NodePage>> {
        let cached = self.shard(nid).lock().pages.get(&nid).cloned();
        if let Some(page) = cached
            && page.data.read().is_some()
        {
            return Ok(page);
        }
        let entry = nat.peek(io, nid)?;
        if !is_block(entry.addr) {
            let what = if entry.addr == NEW_ADDR { "never written" } else { "free" };
            return Err(FormatError::corrupt(Structure::NatEntry, nid, "block_addr", what).into());
        }
        let page = self.page(nid, entry.ino);
        let mut data = page.data.write();
        if data.is_none() {
            // Asked again under the page's lock: no thread can have changed the node since, as it was not cached.
            let entry = nat.peek(io, nid)?;
            if !is_block(entry.addr) {
                return Err(FormatError::corrupt(Structure::NatEntry, nid, "block_addr", "free").into());
            }
            let placed = self.placed.load(Ordering::Acquire);
            let (block, behind) = self.read_ahead(io, entry.addr)?;
            self.validate(&block, nid, entry.ino)?;
            *data = Some(NodeData::read_from_disk(block));
            drop(data);
            self.adopt(io, nat, entry.addr + 1, behind, placed);
            return Ok(page);
        }
        drop(data);
        Ok(page)
    }

    /// Checks what a block from disk says: its footer and, for inodes, every trusted field.
    fn validate(&self, block: &Block, nid: Nid, ino: Ino) -> std::result::Result<(), FormatError> {
        validate_footer(block, nid, ino)?;
        if nid == ino { self.rules.validate(nid, block.view()) } else { Ok(()) }
    }

    /// Reads a node's block, and those behind it where nodes are being read in the order in which they lie.
    fn read_ahead(&self, io: &Io, addr: BlockAddr) -> Result<(Block, Vec<Block>)> {
        let geo = &self.rules.geo;
        let room = BLOCKS_PER_SEG - geo.offset_in_seg(addr);
        let mut blocks = vec![Block::ZERO; self.ahead.blocks(addr, room) as usize];
        if io.read_into(addr, &mut blocks.iter_mut().collect::<Vec<_>>()).is_err() {
            blocks.truncate(1); // a neighbour may be the one that cannot be read
            io.read_into(addr, &mut [&mut blocks[0]])?;
        }
        let behind = blocks.split_off(1);
        Ok((blocks.remove(0), behind))
    }

    /// Keeps those of the blocks read from `at` on that are nodes as they are now; `placed` was taken before the read.
    fn adopt(&self, io: &Io, nat: &Nat, at: BlockAddr, blocks: Vec<Block>, placed: u64) {
        for (addr, block) in (at..).zip(blocks) {
            let (nid, ino) = (footer(&block).nid.get(), footer(&block).ino.get());
            let lies_there = || nat.peek(io, nid).is_ok_and(|e| e.addr == addr && e.ino == ino);
            let known = self.shard(nid).lock().pages.contains_key(&nid);
            if known || !lies_there() || self.validate(&block, nid, ino).is_err() {
                continue;
            }
            let page = self.page(nid, ino);
            let Some(mut data) = page.data.try_write() else { continue };
            // A node that was written meanwhile may even have come back to this block, with other content.
            if data.is_none() && lies_there() && self.placed.load(Ordering::Acquire) == placed {
                *data = Some(NodeData::read_from_disk(block));
            }
        }
    }

    /// Notes that nodes are about to get new places.
    pub(crate) fn note_placed(&self) {
        self.placed.fetch_add(1, Ordering::AcqRel);
    }

    /// A new node with the given content, dirty.
    pub fn create(
        &self,
        nid: Nid,
        ino: Ino,
        node_offset: u32,
        cold: bool,
        mut block: Block,
    ) -> Arc<NodePage> {
        let f = footer_mut(&mut block);
        f.nid = nid.into();
        f.ino = ino.into();
        f.flag = 0.into();
        f.set_node_offset(node_offset);
        f.set_cold(cold);
        let page = self.page(nid, ino);
        *page.data.write() = Some(NodeData::new(block, Dirty::Full, Changed::More));
        self.list(&page);
        page
    }

    /// Notes what becomes dirty or clean from now on, and what is dirty now.
    pub fn begin_changes(&self) {
        let dirty = self.dirty.lock();
        self.changes.begin();
        dirty.values().for_each(|page| self.changes.nodes(page.ino, 1));
    }

    /// Puts a node among the dirty ones.
    fn list(&self, page: &Arc<NodePage>) {
        if self.dirty.lock().insert((page.ino, page.nid), page.clone()).is_none() {
            self.changes.nodes(page.ino, 1);
        }
    }

    fn page(&self, nid: Nid, ino: Ino) -> Arc<NodePage> {
        let mut shard = self.shard(nid).lock();
        if let Some(page) = shard.pages.get(&nid)
            && page.ino == ino
        {
            return page.clone();
        }
        if shard.pages.len() >= shard.evict_at {
            self.evict(&mut shard);
        }
        let page = Arc::new(NodePage { nid, ino, data: RwLock::new(None).ranked(ranks::NODE) });
        if shard.pages.insert(nid, page.clone()).is_none() {
            self.cached.fetch_add(1, Ordering::Relaxed);
        }
        page
    }

    /// Drops clean pages of a shard that are not held. Dirty pages are held by the dirty list.
    fn evict(&self, shard: &mut Shard) {
        let before = shard.pages.len();
        let unheld = shard.pages.iter().filter(|(_, page)| Arc::strong_count(page) == 1);
        for nid in in_drop_order(unheld.map(|(&nid, _)| nid)).iter().take(before / 4) {
            shard.pages.remove(nid);
        }
        let left = shard.pages.len();
        shard.evict_at = (self.limit / SHARDS).max(left + left / 8 + 1);
        self.cached.fetch_sub(before - left, Ordering::Relaxed);
    }

    /// Changes a node and marks it.
    pub fn update<R>(&self, page: &Arc<NodePage>, dirty: Dirty, f: impl FnOnce(&mut Block) -> R) -> R {
        self.change(page, dirty, |changed| *changed = Changed::More, f)
    }

    /// As [`Nodes::update`], where `f` changes nothing but addresses, of a direct node.
    pub fn update_addrs(&self, page: &Arc<NodePage>, addresses: &[u16], f: impl FnOnce(&mut Block)) {
        self.change(page, Dirty::Full, |changed| addresses.iter().for_each(|&a| changed.add(a)), f);
    }

    fn change<R>(
        &self,
        page: &Arc<NodePage>,
        dirty: Dirty,
        note: impl FnOnce(&mut Changed),
        f: impl FnOnce(&mut Block) -> R,
    ) -> R {
        let (result, newly) = page.write(|data| {
            let result = f(data.block_mut());
            note(&mut data.changed);
            let newly = data.dirty == Dirty::Clean && dirty > Dirty::Clean;
            data.dirty = data.dirty.max(dirty);
            (result, newly)
        });
        if newly {
            self.list(page);
        }
        result
    }

    /// Direct nodes of an inode that an fsync would have to write for changed addresses alone, with these.
    pub fn changed_addresses(&self, ino: Ino) -> Vec<(Arc<NodePage>, Vec<u16>)> {
        let dirty = self.dirty.lock();
        let direct = dirty
            .range((ino, 0)..=(ino, Nid::MAX))
            .filter(|(_, page)| node_kind(node_offset(page)) == NodeKind::Direct);
        let changed = direct.filter_map(|(_, page)| {
            page.read(|data| match &data.changed {
                Changed::Addresses(list) if data.dirty == Dirty::Full => Some((page.clone(), list.clone())),
                _ => None,
            })
        });
        changed.collect()
    }

    /// Notes that what changed of a node's addresses is in the inode's block that is about to be written.
    pub fn mark_noted(&self, page: &NodePage) {
        page.write(|data| {
            data.dirty = Dirty::Noted;
            data.changed = Changed::NOTHING;
        });
    }

    /// Notes that what changed of an inode is in a shared record node, unless it changed again since.
    pub fn mark_shared(&self, page: &Arc<NodePage>) {
        self.change(page, Dirty::Noted, |_| {}, |_| {});
    }

    /// Marks a node for rewriting without changing it.
    pub fn mark(&self, page: &Arc<NodePage>) {
        let newly = page.write(|data| {
            let newly = data.dirty == Dirty::Clean;
            data.dirty = Dirty::Full;
            data.changed = Changed::More;
            newly
        });
        if newly {
            self.list(page);
        }
    }

    /// Makes a node one that is taken by `take_dirty_of` with this mark; its content stays.
    pub fn make_due(&self, page: &Arc<NodePage>, least: Dirty) {
        if !self.is_dirty(page.ino, page.nid, least) {
            self.mark(page);
        }
    }

    /// Direct nodes of an inode that are due with at least this mark.
    pub fn due_direct(&self, ino: Ino, least: Dirty) -> Vec<Arc<NodePage>> {
        let dirty = self.dirty.lock();
        let due = dirty.range((ino, 0)..=(ino, Nid::MAX)).map(|(_, page)| page).filter(|page| {
            node_kind(node_offset(page)) == NodeKind::Direct && page.read(|d| d.due() >= least)
        });
        due.cloned().collect()
    }

    /// Direct nodes of an inode that wait for the next checkpoint, as what changed of them is noted elsewhere.
    pub fn noted_direct(&self, ino: Ino) -> usize {
        let dirty = self.dirty.lock();
        let of_file = dirty.range((ino, 0)..=(ino, Nid::MAX)).map(|(_, page)| page);
        let is_noted = |page: &&Arc<NodePage>| {
            node_kind(node_offset(page)) == NodeKind::Direct && page.read(|d| d.dirty == Dirty::Noted)
        };
        of_file.filter(is_noted).count()
    }

    /// Forgets a node that was freed.
    pub fn forget(&self, nid: Nid) {
        let removed = self.shard(nid).lock().pages.remove(&nid);
        if let Some(page) = removed {
            self.cached.fetch_sub(1, Ordering::Relaxed);
            if self.dirty.lock().remove(&(page.ino, nid)).is_some() {
                self.changes.nodes(page.ino, -1);
            }
        }
    }

    /// Takes the dirty pages of one inode (indirect nodes aside, which recovery makes anew) that are due with
    /// at least `least`, with the content to write; they count as clean from now on. The pages returned must
    /// be kept until the NAT knows their new place.
    pub fn take_dirty_of(&self, ino: Ino, least: Dirty) -> Vec<(Arc<NodePage>, Arc<Block>)> {
        let take = |page: &Arc<NodePage>| {
            let block = page.write(|data| (data.due() >= least).then(|| data.take()))?;
            Some((page.clone(), block))
        };
        let mut dirty = self.dirty.lock();
        let of_inode = dirty.range((ino, 0)..=(ino, Nid::MAX)).map(|(_, page)| page);
        let taken: Vec<_> = of_inode.filter(|page| recoverable(page)).filter_map(take).collect();
        for (page, _) in &taken {
            dirty.remove(&(page.ino, page.nid));
            self.changes.nodes(ino, -1);
        }
        taken
    }

    /// Takes every dirty page, in the order of inodes.
    pub fn take_all_dirty(&self) -> Vec<(Arc<NodePage>, Arc<Block>)> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        dirty
            .into_values()
            .map(|page| {
                self.changes.nodes(page.ino, -1);
                let block = page.write(NodeData::take);
                (page, block)
            })
            .collect()
    }

    /// Whether any node has at least this mark.
    pub fn any_dirty(&self) -> bool {
        self.dirty.lock().values().any(|p| p.read(|d| d.dirty >= Dirty::Tick))
    }

    /// Whether the commit interval has a node to make durable.
    pub fn any_to_commit(&self) -> bool {
        self.dirty.lock().values().any(|p| p.read(NodeData::is_to_commit))
    }

    /// Inodes of which the commit interval has a node to make durable, in their order.
    pub fn inodes_to_commit(&self) -> Vec<Ino> {
        let dirty = self.dirty.lock();
        let waiting = dirty.iter().filter(|(_, page)| page.read(NodeData::is_to_commit));
        let mut inodes: Vec<Ino> = waiting.map(|((ino, _), _)| *ino).collect();
        inodes.dedup();
        inodes
    }

    /// Whether one node of an inode is due with at least this mark.
    pub fn is_dirty(&self, ino: Ino, nid: Nid, least: Dirty) -> bool {
        self.dirty.lock().get(&(ino, nid)).is_some_and(|p| p.read(|d| d.due() >= least))
    }

    /// Highest mark with which one of an inode's nodes that an fsync writes is due.
    pub fn dirtiness_of(&self, ino: Ino) -> Dirty {
        let dirty = self.dirty.lock();
        let marks = dirty
            .range((ino, 0)..=(ino, Nid::MAX))
            .filter(|(_, p)| recoverable(p))
            .map(|(_, p)| p.read(NodeData::due));
        marks.max().unwrap_or(Dirty::Clean)
    }

    /// Inodes of which an fsync would write a node that is due with at least this mark, in their order.
    pub fn inodes_due(&self, least: Dirty) -> Vec<Ino> {
        let dirty = self.dirty.lock();
        let due = dirty.iter().filter(|(_, p)| recoverable(p) && p.read(|d| d.due() >= least));
        let mut inodes: Vec<Ino> = due.map(|((ino, _), _)| *ino).collect();
        inodes.dedup();
        inodes
    }

    /// Nodes that differ from their blocks.
    pub fn dirty_count(&self) -> usize {
        self.dirty.lock().len()
    }

    /// Nodes in memory.
    pub fn cached(&self) -> usize {
        self.cached.load(Ordering::Relaxed)
    }

    /// Nodes that are kept in memory when there is nothing to write.
    pub fn limit(&self) -> usize {
        self.limit
    }
}

/// Whether roll-forward uses the node: all but indirect nodes.
fn recoverable(page: &NodePage) -> bool {
    node_kind(node_offset(page)) != NodeKind::Indirect
}

/// Node offset of a page's node inside its file.
pub fn node_offset(page: &NodePage) -> u32 {
    page.read(|d| footer(&d.block).node_offset())
}
