//! What nodes and inodes do not name any more, though it is in use and says whose it is: a sector of a node is zeros,
//! or older than the rest.
//!
//! The summary of a block names the slot that has it, the footer of a node its place in the file. Both are older than
//! the slot where a block or node was freed. So one counts as missing only where SIT calls it in use, no
//! node at all names it, and its file has more blocks by its own count than were found: a hole that was
//! made left neither. Where more speak for themselves than the file lacks, nobody knows which, and none comes back.

use crate::file::FileWalk;
use crate::finding::{Code, counted};
use crate::judgement::mend;
use crate::named::unnamed;
use crate::rebuild::DOUBLE_INDIRECT;
use crate::space::Owner;
use crate::unnamed::{Slots, above};
use crate::walk::Walker;
use medfs_device::Cause;
use medfs_format::compress::{Cluster, Compression};
use medfs_format::node::{RawDirectNode, RawIndirectNode, RawInode, footer};
use medfs_format::path::{BELOW_INODE, NodeKind, XATTR_NODE_OFFSET, first_page, node_kind};
use medfs_format::{BlockAddr, COMPRESS_ADDR, NEW_ADDR, NULL_ADDR, Nid, is_block};
use std::io;

impl Walker<'_, '_> {
    /// Brings back nodes and addresses that a file lacks, which `counts` so many blocks as its own.
    pub(crate) fn bring_missing(
        &mut self,
        f: &mut FileWalk,
        inode: &mut RawInode,
        counts: u64,
    ) -> io::Result<()> {
        if counts == f.blocks {
            self.forget_strange(f, counts);
            return Ok(());
        }
        // A file that has more than it counts has no count that anything could be told by.
        let most = if counts > f.blocks { counts } else { u64::MAX };
        let last_page = f.last_page;
        let nodes = unnamed(&mut self.image)?.nodes.get(&f.ino).cloned().unwrap_or_default();
        for (offset, nid) in nodes {
            if offset != XATTR_NODE_OFFSET && !self.space.nid_reached(nid) {
                self.bring_node(f, inode, (offset, nid), most)?;
            }
        }
        let lacking = self.lacking(f, inode)?;
        let count: u64 = lacking.iter().map(|(_, blocks)| blocks.len() as u64).sum();
        if count <= most.saturating_sub(f.blocks) {
            for (nid, blocks) in lacking {
                self.bring_blocks(f, inode, nid, &blocks)?;
            }
        }
        f.last_page = f.last_page.max(last_page);
        self.forget_strange(f, counts);
        Ok(())
    }

    /// Of a file that has all its blocks nothing is lost with addresses of what is another's: it had holes there.
    fn forget_strange(&mut self, f: &mut FileWalk, counts: u64) {
        if counts == f.blocks && f.strange > 0 {
            f.lost -= std::mem::take(&mut f.strange);
            self.cuts.forget_pages(f.ino);
        }
    }

    /// Names a node of a file again, with all that it leads to, where that is no more than the file lacks.
    fn bring_node(
        &mut self,
        f: &mut FileWalk,
        inode: &mut RawInode,
        (offset, nid): (u32, Nid),
        most: u64,
    ) -> io::Result<()> {
        let addr = self.image.nat(nid)?.block_addr.get();
        let block = self.image.cache.get(addr)?;
        let is_direct = node_kind(offset) == NodeKind::Direct;
        let names = match is_direct {
            true => block.view::<RawDirectNode>().addr.iter().filter(|addr| addr.get() != NULL_ADDR).count(),
            false => block.view::<RawIndirectNode>().nid.iter().filter(|nid| nid.get() != 0).count(),
        };
        if 1 + names as u64 > most.saturating_sub(f.blocks) {
            return Ok(());
        }
        let slots = inode.slots(self.rules.flexible());
        // The first direct node at its place or below says which pages it leads to.
        let direct = match (is_direct, offset == DOUBLE_INDIRECT) {
            (true, _) => offset,
            (false, true) => offset + 2,
            (false, false) => offset + 1,
        };
        let Some(page) = first_page(direct, slots.fanout()) else { return Ok(()) };
        let Some(place) = self.free_place(f, inode, offset)? else { return Ok(()) };
        let text = format!(
            "inode {}: node {nid} is in use and says that its place is at page {page}, where no node is named",
            f.ino
        );
        let stays = match (is_direct, offset == DOUBLE_INDIRECT) {
            (true, _) => self.direct(f, nid, offset, page)?,
            (false, true) => self.double_indirect(f, nid, offset, page)?,
            (false, false) => self.indirect(f, nid, offset, page)?,
        };
        if !stays {
            return Ok(());
        }
        self.findings.add(Code::AddressMissing, text);
        match place {
            (None, at) => inode.i_nid[at] = nid.into(),
            (Some(parent), at) => {
                let addr = self.image.nat(parent)?.block_addr.get();
                let mut block = self.image.cache.read(addr)?;
                block.view_mut::<RawIndirectNode>().nid[at] = nid.into();
                mend(self, addr, &block, Cause::Node)?;
            }
        }
        Ok(())
    }

    /// Where a node of this place in the file is to be named: in a node above it, or in the inode; `None` where another
    /// one is named there, or the node above is not the file's.
    fn free_place(
        &mut self,
        f: &FileWalk,
        inode: &RawInode,
        offset: u32,
    ) -> io::Result<Option<(Option<Nid>, usize)>> {
        let Some((parent, at)) = above(offset) else {
            let at = BELOW_INODE.iter().position(|below| *below == offset);
            return Ok(at.filter(|&at| inode.i_nid[at].get() == 0).map(|at| (None, at)));
        };
        let parent = match above(parent) {
            None => BELOW_INODE.iter().position(|below| *below == parent).map(|at| inode.i_nid[at].get()),
            Some((_, at)) => {
                let double = inode.i_nid[BELOW_INODE.len() - 1].get();
                self.named_nid(f, double, at)?
            }
        };
        let Some(parent) = parent else { return Ok(None) };
        Ok((self.named_nid(f, parent, at)? == Some(0)).then_some((Some(parent), at)))
    }

    /// The node that an indirect one of the file names in a slot; `None` where it is none of the file's.
    fn named_nid(&mut self, f: &FileWalk, nid: Nid, at: usize) -> io::Result<Option<Nid>> {
        if !self.is_taken(f, nid)? {
            return Ok(None);
        }
        let addr = self.image.nat(nid)?.block_addr.get();
        let block = self.image.cache.get(addr)?;
        Ok(block.view::<RawIndirectNode>().nid.get(at).filter(|_| nid != f.ino).map(|nid| nid.get()))
    }

    /// Whether the walk has taken a node as one of the file's.
    fn is_taken(&mut self, f: &FileWalk, nid: Nid) -> io::Result<bool> {
        Ok(self.image.g.is_nid(nid) && self.space.nid_reached(nid) && self.image.nat(nid)?.ino.get() == f.ino)
    }

    /// The blocks that slots of the file's nodes lack, which name nothing.
    fn lacking(&mut self, f: &FileWalk, inode: &RawInode) -> io::Result<Vec<(Nid, Slots)>> {
        let holders = unnamed(&mut self.image)?.holders.get(&f.ino).cloned().unwrap_or_default();
        let mut lacking = Vec::new();
        for nid in holders {
            if !self.is_taken(f, nid)? {
                continue;
            }
            let slots = self.slots_of(f, inode, nid)?;
            let mut blocks = unnamed(&mut self.image)?.blocks.get(&nid).cloned().unwrap_or_default();
            blocks.retain(|(slot, addr)| {
                let is_free = slots.get(usize::from(*slot)) == Some(&NULL_ADDR);
                is_free && !self.space.is_claimed(&self.image.g, *addr)
            });
            if !blocks.is_empty() {
                lacking.push((nid, blocks));
            }
        }
        Ok(lacking)
    }

    /// The addresses that a node of a file holds, or its inode.
    fn slots_of(&mut self, f: &FileWalk, inode: &RawInode, nid: Nid) -> io::Result<Vec<BlockAddr>> {
        let slots = inode.slots(self.rules.flexible());
        if nid == f.ino {
            return Ok(inode.i_addr[slots.extra..][..slots.addrs()].iter().map(|a| a.get()).collect());
        }
        let addr = self.image.nat(nid)?.block_addr.get();
        let node: &RawDirectNode = self.image.cache.get(addr)?.view();
        Ok(node.addr[..slots.addrs_per_block()].iter().map(|a| a.get()).collect())
    }

    /// What comes into the slots of a node: blocks, and the marks of compressed clusters, which no summary knows.
    fn filling(
        &mut self,
        f: &mut FileWalk,
        blocks: &[(u16, BlockAddr)],
        addrs: &[BlockAddr],
    ) -> io::Result<Vec<(usize, BlockAddr)>> {
        let blocks = blocks.iter().map(|&(slot, addr)| (usize::from(slot), addr));
        let Some(compression) = f.compression else { return Ok(blocks.collect()) };
        let (pages, mut fill) = (compression.cluster_pages(), Vec::new());
        let blocks: Vec<_> = blocks.collect();
        for of_one in blocks.chunk_by(|a, b| a.0 / pages == b.0 / pages) {
            let first = of_one[0].0 / pages * pages;
            let mut cluster = addrs[first..first + pages].to_vec();
            of_one.iter().for_each(|&(slot, addr)| cluster[slot - first] = addr);
            if cluster[0] == NULL_ADDR {
                cluster[0] = COMPRESS_ADDR;
                let reserved = if f.released { NULL_ADDR } else { NEW_ADDR };
                cluster.iter_mut().filter(|addr| **addr == NULL_ADDR).for_each(|addr| *addr = reserved);
                match Cluster::of(&cluster) {
                    Ok(found) if self.expand(compression, &cluster, found)?.is_none() => {
                        f.saved += found.saved(pages);
                    }
                    _ => continue,
                }
            }
            let is_new = |(slot, addr): &(usize, BlockAddr)| addrs[*slot] != *addr;
            fill.extend((first..).zip(cluster).filter(is_new));
        }
        self.add_marks(f, compression, addrs, &mut fill)?;
        Ok(fill)
    }

    /// Adds what clusters lack of which all blocks are there: the sector ended behind their marks.
    fn add_marks(
        &mut self,
        f: &mut FileWalk,
        compression: Compression,
        addrs: &[BlockAddr],
        fill: &mut Vec<(usize, BlockAddr)>,
    ) -> io::Result<()> {
        let pages = compression.cluster_pages();
        for (at, cluster) in addrs.chunks_exact(pages).enumerate() {
            if cluster[0] != NULL_ADDR || !is_block(cluster[1]) {
                continue;
            }
            let marked = [&[COMPRESS_ADDR], &cluster[1..]].concat();
            let Ok(found) = Cluster::of(&marked) else { continue };
            if self.expand(compression, &marked, found)?.is_none() {
                f.saved += found.saved(pages);
                let reserved = (1..pages).filter(|&slot| !f.released && cluster[slot] == NULL_ADDR);
                fill.push((at * pages, COMPRESS_ADDR));
                fill.extend(reserved.map(|slot| (at * pages + slot, NEW_ADDR)));
            }
        }
        Ok(())
    }

    /// Fills the slots of a node, or of the inode, with their blocks.
    fn bring_blocks(
        &mut self,
        f: &mut FileWalk,
        inode: &mut RawInode,
        nid: Nid,
        blocks: &[(u16, BlockAddr)],
    ) -> io::Result<()> {
        let slots = inode.slots(self.rules.flexible());
        let entry = self.image.nat(nid)?;
        let addr = entry.block_addr.get();
        let mut block = self.image.cache.read(addr)?;
        let (place, first) = match nid == f.ino {
            true => (format!("inode {nid}"), Some(0)),
            false => (
                format!("inode {}, node {nid}", f.ino),
                first_page(footer(&block).node_offset(), slots.fanout()),
            ),
        };
        let Some(first) = first else { return Ok(()) };
        let mut addrs = self.slots_of(f, inode, nid)?;
        let owner = Owner::slot(nid, 0, entry.version);
        let mut brought = Vec::new();
        for (slot, found) in self.filling(f, blocks, &addrs)? {
            let page = first + slot as u64;
            if self.data(f, owner.behind(slot).known(), page, found, &place)? {
                addrs[slot] = found;
                brought.push(page);
            }
        }
        let Some(page) = brought.first() else { return Ok(()) };
        let text = format!(
            "{place}: {} from page {page} on name nothing, but their blocks are in use, and the summaries know them",
            counted(brought.len() as u64, "slot")
        );
        self.findings.add(Code::AddressMissing, text);
        if nid == f.ino {
            inode.i_addr[slots.extra..].iter_mut().zip(addrs).for_each(|(slot, addr)| *slot = addr.into());
            return Ok(());
        }
        let node: &mut RawDirectNode = block.view_mut();
        node.addr.iter_mut().zip(addrs).for_each(|(slot, addr)| *slot = addr.into());
        mend(self, addr, &block, Cause::Node)
    }
}
