//! Makes what a repair needs: blocks, nodes and inodes, from the [`crate::supply`].

use crate::judgement::Judgement;
use crate::pack::empty_summary;
use crate::space::Owner;
use foldhash::{HashSet, HashSetExt};
use medfs_format::nat::{self, RawNatBlock, RawNatEntry};
use medfs_format::{BLOCKS_PER_SEG, Block, BlockAddr, Ino, NULL_ADDR, Nid, SegNo};
use std::io;
use std::ops::{Deref, DerefMut};

/// What makes new things on the volume under judgement.
pub(crate) struct Maker<'j, 'd>(&'j mut Judgement<'d>);

impl<'d> Judgement<'d> {
    pub(crate) fn maker(&mut self) -> Maker<'_, 'd> {
        Maker(self)
    }
}

impl<'d> Deref for Maker<'_, 'd> {
    type Target = Judgement<'d>;
    fn deref(&self) -> &Judgement<'d> {
        self.0
    }
}

impl DerefMut for Maker<'_, '_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        self.0
    }
}

impl Maker<'_, '_> {
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
        self.0.image.find_strays(&mut self.0.findings)?;
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
                    self.0.space.set_ssa(&mut self.0.image, segno, &empty)?;
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
        self.0.space.take_new(&mut self.0.image, addr, owner)?;
        self.space.blocks += 1;
        Ok(Some(addr))
    }

    /// A node id that is free on disk, in the walk and in the log, and which no node has that the NAT may
    /// have forgotten.
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
    pub(crate) fn new_node_block(&mut self, nid: Nid, ino: Ino) -> io::Result<Option<BlockAddr>> {
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
