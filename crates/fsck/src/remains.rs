//! What is left of a file whose inode is lost: a node's footer says where it was in the file, and the summaries say
//! which blocks the inode itself named.
//!
//! Nodes that are lost with the inode have a place where it can be told: one that an indirect node names, an
//! indirect node above others of the file, a direct node for which one place is left.
//!
//! Memory: an entry for each node of a lost inode, of which one pass takes [`MAX_NODES`].

use crate::image::Image;
use foldhash::{HashMap, HashMapExt};
use medfs_format::node::{ADDRS_PER_BLOCK, NIDS_PER_BLOCK, RawDirectNode, RawIndirectNode, RawInode, footer};
use medfs_format::path::{BELOW_INODE, NodeKind, first_page, node_kind};
use medfs_format::{Block, BlockAddr, COMPRESS_ADDR, Ino, NEW_ADDR, NULL_ADDR, Nid, delta};
use std::collections::BTreeSet;
use std::io;

/// Nodes of lost inodes taken up in one pass.
const MAX_NODES: usize = 1 << 20;
/// Node ids of an indirect node.
const N: u32 = NIDS_PER_BLOCK as u32;

/// What is left of a file whose inode is lost.
pub(crate) struct Remains {
    pub(crate) ino: Ino,
    /// Where the inode was.
    pub(crate) addr: BlockAddr,
    /// What is left of it, where only its head is lost.
    pub(crate) left: Option<Box<Block>>,
    /// Its nodes but that of attributes, by their places in its tree; lost ones too, where these are known.
    pub(crate) nodes: Vec<(u32, Nid)>,
    /// How many of its nodes are lost, with their places.
    pub(crate) lost_nodes: u64,
    /// The blocks that the inode named, by their slots.
    pub(crate) blocks: Vec<(u16, BlockAddr)>,
}

/// What an inode and its nodes lead to.
#[derive(Default)]
pub(crate) struct Extent {
    /// The page behind the last one with content.
    pub(crate) pages: u64,
    /// Addresses that are no holes, and the nodes.
    pub(crate) count: u64,
    /// Slots of compressed clusters that name no block.
    pub(crate) saved: u64,
}

impl Extent {
    /// Adds addresses, the first of them that of `page`; content is before `end`.
    fn add(&mut self, page: u64, addrs: &[BlockAddr], cluster: usize, end: u64) {
        for (first, addrs) in (page..).step_by(cluster).zip(addrs.chunks(cluster)) {
            let is_compressed = addrs[0] == COMPRESS_ADDR;
            let is_block = |addr: BlockAddr| ![NULL_ADDR, NEW_ADDR, COMPRESS_ADDR].contains(&addr);
            self.count += addrs.iter().filter(|&&addr| addr != NULL_ADDR).count() as u64;
            if is_compressed {
                self.saved += addrs.iter().filter(|&&addr| !is_block(addr)).count() as u64;
            }
            let last = addrs.iter().rposition(|&addr| is_block(addr));
            let pages = if is_compressed { Some(cluster) } else { last.map(|last| last + 1) };
            if let Some(pages) = pages.filter(|_| first < end) {
                self.pages = self.pages.max(first + pages as u64);
            }
        }
    }
}

impl Image<'_> {
    /// What is left of a file whose inode is lost; `None` where it is not lost, or nothing is left.
    pub(crate) fn remains(&mut self, ino: Ino) -> io::Result<Option<Remains>> {
        if !self.has_remains(ino)? {
            return Ok(None);
        }
        let addr = self.nat(ino)?.block_addr.get();
        let nids = self.lost_files()?.remove(&ino).unwrap_or_default();
        let blocks = self.blocks_of_summaries(ino)?;
        let (mut nodes, mut lost) = (Vec::new(), Vec::new());
        for nid in nids {
            let addr = self.nat(nid)?.block_addr.get();
            let f = *footer(self.cache.get(addr)?);
            if (f.nid.get(), f.ino.get()) != (nid, ino) {
                lost.push(nid);
            } else if node_kind(f.node_offset()) != NodeKind::Xattr {
                nodes.push((f.node_offset(), nid));
            }
        }
        nodes.sort_unstable();
        nodes.dedup_by_key(|(offset, _)| *offset);
        let is_dense = !blocks.is_empty() && blocks.iter().zip(0..).all(|((slot, _), at)| *slot == at);
        let lost_nodes = self.place_lost(&mut nodes, lost, is_dense)?;
        let left = if self.blank.contains(&ino) { Some(self.cache.read(addr)?) } else { None };
        Ok((!blocks.is_empty() || !nodes.is_empty()).then_some(Remains {
            ino,
            addr,
            left,
            nodes,
            lost_nodes,
            blocks,
        }))
    }

    /// Whether an inode is lost, and nodes of it, or blocks that can be read, are not.
    pub(crate) fn has_remains(&mut self, ino: Ino) -> io::Result<bool> {
        let entry = self.nat(ino)?;
        Ok(entry.ino.get() == ino
            && self.is_lost_node(ino, entry.block_addr.get())?
            && (self.lost_files()?.contains_key(&ino) || has_readable_block(self, ino)?))
    }

    /// The nodes of files whose inode is lost, as far as they were not asked for.
    fn lost_files(&mut self) -> io::Result<&mut HashMap<Ino, Vec<Nid>>> {
        if self.lost_files.is_none() {
            self.lost_files = Some(self.find_lost_files()?);
        }
        Ok(self.lost_files.as_mut().expect("just found"))
    }

    /// Adds the lost nodes of a file whose place can be told; how many others there are.
    fn place_lost(
        &mut self,
        nodes: &mut Vec<(u32, Nid)>,
        mut lost: Vec<Nid>,
        is_dense: bool,
    ) -> io::Result<u64> {
        let mut placed = Vec::new();
        for &(offset, nid) in nodes.iter().filter(|(offset, _)| node_kind(*offset) == NodeKind::Indirect) {
            let addr = self.nat(nid)?.block_addr.get();
            let node: &RawIndirectNode = self.cache.get(addr)?.view();
            let apart = if offset == BELOW_INODE[4] { N + 1 } else { 1 };
            let below = node.nid.iter().zip(0..).filter(|(nid, _)| lost.contains(&nid.get()));
            placed.extend(below.map(|(nid, at)| (offset + 1 + at * apart, nid.get())));
        }
        lost.retain(|nid| placed.iter().all(|(_, known)| known != nid));
        let named = self.lost_blocks()?;
        let (mut direct, mut others): (Vec<Nid>, Vec<Nid>) =
            lost.into_iter().partition(|nid| named.contains_key(nid));
        let has = |place: u32| nodes.iter().any(|(offset, _)| *offset == place);
        for (place, last) in [(3, 3 + N), (4 + N, 4 + 2 * N), (5 + 2 * N, u32::MAX)] {
            let is_above = nodes.iter().any(|(offset, _)| (place + 1..=last).contains(offset));
            if is_above
                && !has(place)
                && let Some(nid) = others.pop()
            {
                placed.push((place, nid));
            }
        }
        if let ([nid], true) = (&direct[..], others.is_empty()) {
            let place = match (has(1), has(2)) {
                (false, true) => Some(1),
                (true, false) => Some(2),
                (false, false) if is_dense => Some(1),
                _ => None,
            };
            if let Some(place) = place {
                placed.push((place, *nid));
                direct.clear();
            }
        }
        nodes.append(&mut placed);
        nodes.sort_unstable();
        Ok((direct.len() + others.len()) as u64)
    }

    /// The nodes of all files whose inode is lost.
    fn find_lost_files(&mut self) -> io::Result<HashMap<Ino, Vec<Nid>>> {
        let mut lost: HashMap<Ino, Vec<Nid>> = HashMap::new();
        let mut asked = (NULL_ADDR, false);
        let mut count = 0;
        for index in 0..self.g.nat_blocks() {
            for (nid, entry) in self.nodes_in(index)? {
                let ino = entry.ino.get();
                let is_node = self.g.in_main(entry.block_addr.get());
                if !is_node || !self.g.is_nid(ino) || ino == nid || count == MAX_NODES {
                    continue;
                }
                if asked.0 != ino {
                    let addr = self.nat(ino)?.block_addr.get();
                    asked = (ino, self.is_lost_node(ino, addr)?);
                }
                if asked.1 {
                    lost.entry(ino).or_default().push(nid);
                    count += 1;
                }
            }
        }
        Ok(lost)
    }

    /// The addresses of a direct node, also of one that is lost.
    pub(crate) fn addrs_of(&mut self, nid: Nid) -> io::Result<Vec<BlockAddr>> {
        let addr = self.nat(nid)?.block_addr.get();
        let block = self.cache.get(addr)?;
        if footer(block).nid.get() == nid {
            return Ok(block.view::<RawDirectNode>().addr.iter().map(|addr| addr.get()).collect());
        }
        let mut addrs = vec![NULL_ADDR; ADDRS_PER_BLOCK];
        let known = self.lost_blocks()?.get(&nid);
        for (slot, addr) in
            known.into_iter().flatten().filter(|(slot, _)| usize::from(*slot) < ADDRS_PER_BLOCK)
        {
            addrs[usize::from(*slot)] = *addr;
        }
        Ok(addrs)
    }

    /// What an inode and its nodes lead to; content is before page `end`.
    pub(crate) fn extent(&mut self, inode: &RawInode, nodes: &[(u32, Nid)], end: u64) -> io::Result<Extent> {
        let slots = inode.slots(self.flexible());
        let mut extent = Extent { count: 1 + nodes.len() as u64, ..Extent::default() };
        let own: Vec<_> = inode.i_addr[slots.extra..][..slots.addrs()].iter().map(|a| a.get()).collect();
        extent.add(0, &own, slots.cluster, end);
        for &(offset, nid) in nodes {
            let Some(first) = first_page(offset, slots.fanout()) else { continue };
            let addrs = self.addrs_of(nid)?;
            extent.add(first, &addrs[..slots.addrs_per_block()], slots.cluster, end);
        }
        Ok(extent)
    }

    /// The pages of which a file has records in compact pages; `None` where it has no such page. Where there is nothing
    /// to be read of what may be one, it is taken for one: a file is more seldom as long.
    pub(crate) fn compact_records_of(
        &mut self,
        ino: Ino,
        remains: &Remains,
    ) -> io::Result<Option<BTreeSet<u32>>> {
        let (mut pages, mut is_lost, mut is_there) = (None, false, false);
        for &(_, nid) in remains.nodes.iter().filter(|(offset, _)| *offset > BELOW_INODE[4] + 1) {
            for addr in self.addrs_of(nid)?.into_iter().filter(|&addr| self.g.in_main(addr)) {
                let block = self.cache.get(addr)?;
                let is_blank = block.0.iter().all(|&byte| byte == 0);
                if let Ok((_, records)) = delta::compact_records(block, ino) {
                    let known = pages.get_or_insert_with(BTreeSet::new);
                    known.extend(records.iter().map(|record| record.index));
                }
                let is_unread = is_blank || self.cache.medium.is_unreadable(addr);
                (is_lost, is_there) = (is_lost | is_unread, is_there | !is_unread);
            }
        }
        Ok(pages.or((is_lost && !is_there).then(BTreeSet::new)))
    }
}

/// Whether one of the blocks that a lost inode named can be read.
fn has_readable_block(image: &mut Image<'_>, ino: Ino) -> io::Result<bool> {
    for (_, addr) in image.lost_blocks()?.get(&ino).cloned().unwrap_or_default() {
        image.cache.get(addr)?;
        if !image.cache.medium.is_unreadable(addr) {
            return Ok(true);
        }
    }
    Ok(false)
}
