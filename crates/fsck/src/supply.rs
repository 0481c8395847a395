//! Where new blocks and node ids come from.
//!
//! New blocks come only from segments that are free in the last checkpoint, were not reached by the walk, hold nothing of the fsync log,
//! and nothing of nodes that the walk may still reach, whatever SIT says of them: a crash before the new checkpoint loses nothing.
//! Memory: an entry for each segment with nodes that were not reached.

use crate::finding::{Code, Findings};
use crate::image::{Curseg, Image, Stop};
use crate::pack::empty_summary;
use crate::space::{Owner, has_no_addresses};
use crate::walk::Walker;
use foldhash::{HashSet, HashSetExt};
use medfs_format::nat::{self, RawNatBlock, RawNatEntry};
use medfs_format::node::{RawDirectNode, RawInode, footer};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::summary::LOG_COUNT;
use medfs_format::{BLOCKS_PER_SEG, Block, BlockAddr, Ino, NULL_ADDR, Nid, SegNo};
use std::io;

/// Where new blocks come from: a free segment for data and one for nodes.
#[derive(Default)]
pub(crate) struct Supply {
    data: Option<(SegNo, u32)>,
    node: Option<(SegNo, u32)>,
    /// Segments handed out or reserved.
    pub(crate) taken: HashSet<SegNo>,
    /// Node ids that must not be handed out.
    pub(crate) nids: HashSet<Nid>,
    /// Segments with blocks of nodes that the walk had not reached when the first new block was wanted.
    unreached: Option<HashSet<SegNo>>,
    /// No segment and no node id below these is free.
    next_segment: SegNo,
    next_nid: Nid,
}

impl Image<'_> {
    /// Adds the segments of a node and of the blocks that it names.
    pub(crate) fn segments_of(
        &mut self,
        nid: Nid,
        addr: BlockAddr,
        held: &mut HashSet<SegNo>,
    ) -> io::Result<()> {
        if !self.g.in_main(addr) {
            return Ok(());
        }
        held.insert(self.g.segno(addr));
        let block = self.cache.get(addr)?;
        let addrs: &[_] = match node_kind(footer(block).node_offset()) {
            _ if footer(block).nid.get() != nid => &[],
            NodeKind::Inode if has_no_addresses(block.view()) => &[],
            NodeKind::Inode => &block.view::<RawInode>().i_addr,
            NodeKind::Direct => &block.view::<RawDirectNode>().addr,
            NodeKind::Indirect | NodeKind::Xattr => &[],
        };
        let named = addrs.iter().map(|a| a.get()).filter(|&a| self.g.in_main(a));
        held.extend(named.map(|a| self.g.segno(a)));
        Ok(())
    }
}

impl Image<'_> {
    /// Finds what only the journals led to, and lets the logs begin in segments that hold nothing.
    pub(crate) fn begin_logs(&mut self, findings: &mut Findings) -> Result<(), Stop> {
        self.find_strays(findings)?;
        let mut used = HashSet::new();
        let mut nodes = self.doubtful();
        for index in 0..self.g.nat_blocks() {
            let (block, _) = self.nat_block(index)?;
            let first = index * nat::ENTRIES_PER_BLOCK as u32;
            let entries = (first..).zip(&block.view::<RawNatBlock>().entries);
            let live = entries.filter(|(_, entry)| entry.block_addr.get() != NULL_ADDR);
            nodes.extend(live.map(|(nid, entry)| (nid, entry.block_addr.get())));
        }
        for (nid, addr) in nodes {
            self.segments_of(nid, addr, &mut used)?;
        }
        for section in (0..self.g.segment_count_main).step_by(self.g.segs_per_sec as usize) {
            let end = (section + self.g.segs_per_sec).min(self.g.segment_count_main);
            let mut free = self.cursegs.len() < LOG_COUNT;
            for segno in section..end {
                free = free && !used.contains(&segno) && self.sit(segno)?.valid_map.iter().all(|&b| b == 0);
            }
            if free {
                self.begin_log(section, true);
            }
        }
        // On a full volume: in the holes of others of their kind.
        for segno in 0..self.g.segment_count_main {
            let entry = self.sit(segno)?;
            let log = self.cursegs.len();
            let fits =
                (log >= 3) == (entry.seg_type() >= 3) && u32::from(entry.valid_blocks()) < BLOCKS_PER_SEG;
            if log < LOG_COUNT && fits && self.curseg_of(segno).is_none() {
                self.begin_log(segno, false);
            }
        }
        if self.cursegs.len() < LOG_COUNT {
            let text = "neither checkpoint pack is usable, and there is no room for the logs of a new one";
            findings.add(Code::NoCheckpoint, text);
            return Err(Stop::Fatal);
        }
        Ok(())
    }

    fn begin_log(&mut self, segno: SegNo, empty: bool) {
        let sum = empty_summary(self.cursegs.len() >= LOG_COUNT / 2);
        self.cursegs.push(Curseg { segno, blkoff: 0, alloc_type: 0, sum, known: empty });
    }
}

impl Walker<'_, '_> {
    /// A segment that was free at the last checkpoint and still is, taken.
    pub(crate) fn free_segment(&mut self) -> io::Result<Option<SegNo>> {
        if self.supply.unreached.is_none() {
            self.supply.unreached = Some(self.segments_of_unreached()?);
        }
        let (per_section, main) = (self.image.g.segs_per_sec, self.image.g.segment_count_main);
        for segno in self.supply.next_segment..main {
            // With sections of several segments, start only at a section that is free as a whole.
            let first = segno - segno % per_section;
            let section = first..(first + per_section).min(main);
            let mut free = segno == first;
            for s in section {
                let unreached = self.supply.unreached.as_ref().is_some_and(|held| held.contains(&s));
                free = free
                    && !unreached
                    && !self.supply.taken.contains(&s)
                    && self.image.curseg_of(s).is_none()
                    && self.space.segment(s).iter().all(|&b| b == 0)
                    && self.image.sit(s)?.valid_map.iter().all(|&b| b == 0);
            }
            if free {
                self.supply.taken.insert(segno);
                self.supply.next_segment = segno + 1;
                return Ok(Some(segno));
            }
        }
        Ok(None)
    }

    /// The segments in which nodes lie that the walk has not reached, or blocks that these name.
    fn segments_of_unreached(&mut self) -> io::Result<HashSet<SegNo>> {
        self.image.find_strays(&mut self.findings)?;
        let mut held = HashSet::new();
        self.unreached(|w, nid| {
            let addr = w.image.nat(nid)?.block_addr.get();
            w.image.segments_of(nid, addr, &mut held)
        })?;
        for (nid, addr) in self.image.doubtful() {
            self.image.segments_of(nid, addr, &mut held)?;
        }
        Ok(held)
    }

    /// A new block; `None` where the volume is full.
    pub(crate) fn new_block(&mut self, node: bool, owner: Owner) -> io::Result<Option<BlockAddr>> {
        let cp = self.image.checkpoint();
        if self.space.blocks >= cp.user_block_count.get() {
            return Ok(None);
        }
        let current = if node { self.supply.node } else { self.supply.data };
        let (segno, offset) = match current {
            Some((segno, offset)) if offset < BLOCKS_PER_SEG => (segno, offset),
            _ => match self.free_segment()? {
                Some(segno) => {
                    let empty = empty_summary(node);
                    self.space.set_ssa(&mut self.image, segno, &empty)?;
                    (segno, 0)
                }
                None => return Ok(None),
            },
        };
        let next = Some((segno, offset + 1));
        if node {
            self.supply.node = next
        } else {
            self.supply.data = next
        }
        let addr = self.image.g.seg_start(segno) + offset;
        self.space.take_new(&mut self.image, addr, owner)?;
        self.space.blocks += 1;
        Ok(Some(addr))
    }

    /// A node id that is free on disk, in the walk and in the log, and which no node has that the NAT may have forgotten.
    pub(crate) fn new_nid(&mut self) -> io::Result<Option<Nid>> {
        let per_block = nat::ENTRIES_PER_BLOCK as u32;
        for index in self.supply.next_nid / per_block..self.image.g.nat_blocks() {
            let (block, _) = self.image.nat_block(index)?;
            for (i, entry) in block.view::<RawNatBlock>().entries.iter().enumerate() {
                let nid = index * per_block + i as u32;
                if nid > self.image.g.root_ino
                    && self.image.g.is_nid(nid)
                    && entry.block_addr.get() == NULL_ADDR
                    && !self.space.nid_reached(nid)
                    && !self.image.strays.seen.contains(&nid)
                    && self.supply.nids.insert(nid)
                {
                    self.supply.next_nid = nid;
                    return Ok(Some(nid));
                }
            }
        }
        Ok(None)
    }

    /// A new node of a file, taken with its id; `None` where the volume is full.
    pub(crate) fn new_node(&mut self, ino: Ino) -> io::Result<Option<(Nid, BlockAddr)>> {
        let Some(nid) = self.new_nid()? else { return Ok(None) };
        Ok(self.new_node_block(nid, ino)?.map(|addr| (nid, addr)))
    }

    /// A block for a node, taken with its id; `None` where the volume is full.
    fn new_node_block(&mut self, nid: Nid, ino: Ino) -> io::Result<Option<BlockAddr>> {
        let version = self.image.nat(nid)?.version;
        let Some(addr) = self.new_block(true, Owner::node(nid, version))? else { return Ok(None) };
        let entry = RawNatEntry { version, ino: ino.into(), block_addr: addr.into() };
        self.image.nat_changes.insert(nid, entry);
        self.space.reach_nid(nid);
        self.space.nodes += 1;
        Ok(Some(addr))
    }

    /// Gives a new inode its block; `false` where the volume is full.
    pub(crate) fn make_inode(&mut self, ino: Ino, mut block: Box<Block>) -> io::Result<bool> {
        let Some(addr) = self.new_node_block(ino, ino)? else { return Ok(false) };
        self.write_inode(addr, &mut block)?;
        self.image.cache.medium.flush()?;
        self.space.inodes += 1;
        Ok(true)
    }
}
