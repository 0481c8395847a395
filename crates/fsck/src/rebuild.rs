//! Nodes that cannot be read, made anew where they were from those who know what they held: the summaries say
//! which blocks a direct node named, the footers of the nodes below say where they were in an indirect one.
//!
//! Such a node is taken for lost only where the NAT leads to it, in a segment of nodes, and the block is no
//! other node. Of a compressed file nothing is made anew: no summary knows which clusters are compressed.
//!
//! Memory: an entry for each block of a direct node that is lost, of which one pass takes [`MAX_BLOCKS`].

use crate::image::Image;
use crate::named::{MAX_BLOCKS, find_unnamed};
use crate::slots::has_no_addresses;
use crate::space::is_of_slot;
use crate::unnamed::Unnamed;
use foldhash::{HashMap, HashMapExt};
use medfs_format::node::{ADDRS_PER_BLOCK, NIDS_PER_BLOCK, RawDirectNode, RawIndirectNode, RawInode, footer};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::sit::test_bit;
use medfs_format::summary::{RawSummaryBlock, SUM_TYPE_DATA};
use medfs_format::{BLOCKS_PER_SEG, Block, BlockAddr, Ino, NULL_ADDR, Nid, SegNo};
use std::io;

/// Place of the double indirect node in a file's tree.
pub(crate) const DOUBLE_INDIRECT: u32 = 5 + 2 * NIDS_PER_BLOCK as u32;

/// A node made anew.
pub(crate) struct Rebuilt {
    pub(crate) addr: BlockAddr,
    pub(crate) block: Box<Block>,
    /// Blocks or nodes that it names.
    pub(crate) known: usize,
    /// Nodes that it may have named: they are lost too.
    pub(crate) unplaced: u64,
}

impl Image<'_> {
    /// A node of a file that could not be read, made anew; `None` where nothing is known of it.
    pub(crate) fn rebuilt(
        &mut self,
        ino: Ino,
        nid: Nid,
        offset: u32,
        compressed: bool,
    ) -> io::Result<Option<Rebuilt>> {
        let entry = self.nat(nid)?;
        let addr = entry.block_addr.get();
        if entry.ino.get() != ino || !self.is_lost_node(nid, addr)? {
            return Ok(None);
        }
        let mut block = Block::boxed();
        let (known, unplaced) = match node_kind(offset) {
            NodeKind::Direct if !compressed => (self.direct_of_summaries(nid, block.view_mut())?, 0),
            NodeKind::Indirect => self.indirect_of_footers(ino, nid, offset, block.view_mut())?,
            _ => (0, 0),
        };
        Ok((known > 0).then_some(Rebuilt { addr, block, known, unplaced }))
    }

    /// Fills a direct node with the blocks that the summaries say are its own; how many.
    fn direct_of_summaries(&mut self, nid: Nid, node: &mut RawDirectNode) -> io::Result<usize> {
        let blocks = self.blocks_of_summaries(nid)?;
        for &(slot, addr) in &blocks {
            node.addr[usize::from(slot)] = addr.into();
        }
        Ok(blocks.len())
    }

    /// The blocks that a lost node or inode named, as the summaries say, in the order of their slots. A slot of which
    /// two blocks speak is none.
    pub(crate) fn blocks_of_summaries(&mut self, nid: Nid) -> io::Result<Vec<(u16, BlockAddr)>> {
        let mut blocks = self.lost_blocks()?.remove(&nid).unwrap_or_default();
        blocks.retain(|(slot, _)| usize::from(*slot) < ADDRS_PER_BLOCK);
        blocks.sort_unstable();
        let of_one = blocks.chunk_by(|a, b| a.0 == b.0).filter(|same| same.len() == 1);
        Ok(of_one.flatten().copied().collect())
    }

    /// The blocks of all nodes that are lost, as far as they were not asked for.
    pub(crate) fn lost_blocks(&mut self) -> io::Result<&mut HashMap<Nid, Vec<(u16, BlockAddr)>>> {
        if self.lost_blocks.is_none() {
            self.lost_blocks = Some(self.find_lost_blocks()?);
        }
        Ok(self.lost_blocks.as_mut().expect("just found"))
    }

    /// Fills an indirect node with the nodes of the file that say that they were below it; how many, and how many of
    /// the file's nodes are lost too, so that none says where it was.
    fn indirect_of_footers(
        &mut self,
        ino: Ino,
        nid: Nid,
        offset: u32,
        node: &mut RawIndirectNode,
    ) -> io::Result<(usize, u64)> {
        let apart = if offset == DOUBLE_INDIRECT { NIDS_PER_BLOCK as u32 + 1 } else { 1 };
        let (mut found, mut unplaced) = (0, 0);
        for index in 0..self.g.nat_blocks() {
            for (child, entry) in self.nodes_in(index)? {
                let addr = entry.block_addr.get();
                if entry.ino.get() != ino || [ino, nid].contains(&child) || !self.g.in_main(addr) {
                    continue;
                }
                if self.is_lost_node(child, addr)? {
                    unplaced += 1;
                    continue;
                }
                let at = *footer(self.cache.get(addr)?);
                let below = at.node_offset().checked_sub(offset + 1).filter(|b| b.is_multiple_of(apart));
                let slot = below.map(|below| (below / apart) as usize).filter(|&slot| slot < NIDS_PER_BLOCK);
                if let Some(slot) = slot.filter(|_| (at.nid.get(), at.ino.get()) == (child, ino)) {
                    node.nid[slot] = child.into();
                    found += 1;
                }
            }
        }
        Ok((found, unplaced))
    }

    /// Makes holes of the blocks that an inode of the fsync log did not have at the checkpoint.
    pub(crate) fn keep_own_blocks(&mut self, ino: Ino, inode: &mut RawInode) -> io::Result<()> {
        if has_no_addresses(inode) {
            return Ok(());
        }
        let slots = inode.slots(self.flexible());
        for slot in 0..slots.addrs() {
            let addr = inode.i_addr[slots.extra + slot].get();
            let own = self.g.in_main(addr) && self.is_valid(addr)? && is_of_slot(self, addr, ino, slot)?;
            if !own {
                inode.i_addr[slots.extra + slot] = NULL_ADDR.into();
            }
        }
        Ok(())
    }

    /// Whether the block of a node is one of a node segment, and holds neither it nor another node.
    pub(crate) fn is_lost_node(&mut self, nid: Nid, addr: BlockAddr) -> io::Result<bool> {
        if !self.g.in_main(addr) {
            return Ok(false);
        }
        let segno = self.g.segno(addr);
        let of_nodes = self.curseg_of(segno).map_or(self.sit(segno)?.seg_type() >= 3, |log| log >= 3);
        if !of_nodes || !self.is_valid(addr)? {
            return Ok(false);
        }
        let holds = footer(self.cache.get(addr)?).nid.get();
        if self.blank.contains(&nid) {
            return Ok(true);
        }
        Ok(holds != nid && (!self.g.is_nid(holds) || self.nat(holds)?.block_addr.get() != addr))
    }

    /// The blocks in use whose owners, by the summaries, are nodes that are lost.
    fn find_lost_blocks(&mut self) -> io::Result<HashMap<Nid, Vec<(u16, BlockAddr)>>> {
        let mut lost: HashMap<Nid, Vec<(u16, BlockAddr)>> = HashMap::new();
        let mut asked: HashMap<Nid, bool> = HashMap::new();
        // Not kept: nodes that are mended on the walk name more.
        let mut others = None;
        let mut count = 0;
        self.all_summaries = true;
        for segno in 0..self.g.segment_count_main {
            let entry = self.sit(segno)?;
            let is_known = !self.sit_lost(segno);
            let Some(sum) = self.data_summary(segno, entry.seg_type())? else {
                self.all_summaries &= is_known && (entry.seg_type() >= 3 || entry.valid_blocks() == 0);
                continue;
            };
            self.all_summaries &= is_known;
            asked.clear(); // its memory is that of one segment
            for at in 0..BLOCKS_PER_SEG as usize {
                let owner = sum.entries[at];
                let nid = owner.nid.get();
                if !test_bit(&entry.valid_map, at) {
                    continue;
                }
                if !self.g.is_nid(nid) || count == MAX_BLOCKS {
                    self.all_summaries = false;
                    continue;
                }
                let is_lost = match asked.get(&nid) {
                    Some(is_lost) => *is_lost,
                    None => {
                        let addr = self.nat(nid)?.block_addr.get();
                        let is_lost = addr != NULL_ADDR && self.is_lost_node(nid, addr)?;
                        asked.insert(nid, is_lost);
                        is_lost
                    }
                };
                let block = self.g.seg_start(segno) + at as u32;
                let is_now = is_lost && self.nat(nid)?.version == owner.version;
                if is_now && !is_anothers(self, &mut others, block)? {
                    lost.entry(nid).or_default().push((owner.ofs_in_node.get(), block));
                    count += 1;
                }
            }
        }
        Ok(lost)
    }

    /// The summary of a segment of data, where it can be read.
    pub(crate) fn data_summary(
        &mut self,
        segno: SegNo,
        seg_type: u8,
    ) -> io::Result<Option<Box<RawSummaryBlock>>> {
        if let Some(log) = self.curseg_of(segno) {
            let curseg = &self.cursegs[log];
            return Ok((log < 3 && curseg.known).then(|| curseg.sum.clone()));
        }
        if seg_type >= 3 || self.sit_lost(segno) {
            return Ok(None);
        }
        let addr = self.g.ssa_block(segno);
        let sum: &RawSummaryBlock = self.cache.get(addr)?.view();
        Ok((sum.footer.entry_type == SUM_TYPE_DATA).then(|| Box::new(sum.clone())))
    }
}

/// Whether a block is not the lost node's that its summary names ([`Unnamed::is_anothers`]).
fn is_anothers(image: &mut Image<'_>, found: &mut Option<Unnamed>, block: BlockAddr) -> io::Result<bool> {
    if found.is_none() {
        *found = Some(find_unnamed(image)?);
    }
    Ok(found.as_ref().is_some_and(|found| found.is_anothers(block)))
}
