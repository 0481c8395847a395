//! A volume's fixed structures, read once: superblock, the checkpoint in force, the current segments
//! with their summaries and journals, the orphans; and the NAT, SIT and SSA on demand.
//!
//! Nothing here judges more than it must to go on: where a copy is damaged the other one is taken, and the
//! damage is recorded as a finding.

use crate::cache::Cache;
use crate::strays::Strays;
use crate::unnamed::Unnamed;
use foldhash::HashMap;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::checkpoint::{self, BitmapPlaces, RawCheckpoint};
use medfs_format::nat::{self, RawNatBlock, RawNatEntry};
use medfs_format::node::{Layouts, RawDirectNode, RawIndirectNode, RawInode, footer_mut};
use medfs_format::path::NodePath;
use medfs_format::sit::{self, RawSitBlock, RawSitEntry, set_bit, test_bit};
use medfs_format::summary::{RawExtraInfo, RawSummaryBlock};
use medfs_format::superblock::{Feature, RawSuperblock};
use medfs_format::{Block, BlockAddr, Geometry, Ino, NULL_ADDR, Nid, SegNo, crc};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use zerocopy::FromZeros;

/// What is said of a block that the device does not give.
pub(crate) const CANNOT_BE_READ: &str = "cannot be read";

/// The segment a log writes to.
pub(crate) struct Curseg {
    pub(crate) segno: SegNo,
    /// Next block to write, inside the segment.
    pub(crate) blkoff: u32,
    /// 0: appends (LFS); 1: fills holes (SSR).
    pub(crate) alloc_type: u8,
    /// Owners of its blocks. Where not `known` they are rebuilt by whoever walks the nodes.
    pub(crate) sum: Box<RawSummaryBlock>,
    pub(crate) known: bool,
}

/// A volume's state at its last checkpoint.
pub(crate) struct Image<'d> {
    pub(crate) cache: Cache<'d>,
    pub(crate) sb: Box<Block>,
    /// Superblock copies that must be rewritten from `sb`.
    pub(crate) bad_copies: Vec<u32>,
    pub(crate) g: Geometry,
    pub(crate) features: Feature,
    /// Pack in force: 0 or 1.
    pub(crate) pack: usize,
    /// Its blocks in which a bit was flipped, as they must be.
    pub(crate) unflipped: Vec<(BlockAddr, Box<Block>)>,
    /// First block of the pack and its payload, as one run of bytes.
    pub(crate) cp: Vec<u8>,
    pub(crate) nat_journal: BTreeMap<Nid, RawNatEntry>,
    pub(crate) sit_journal: HashMap<SegNo, RawSitEntry>,
    /// Whether the journals are empty because they are lost, as far as can be said.
    pub(crate) journals_may_be_lost: bool,
    pub(crate) cursegs: Vec<Curseg>,
    pub(crate) orphans: Vec<Ino>,
    /// What the volume has been written in its life.
    pub(crate) written: RawExtraInfo,
    /// NAT entries that differ from the volume's, to be written by a repair.
    pub(crate) nat_changes: BTreeMap<Nid, RawNatEntry>,
    /// A bit for each NAT block without nodes that was asked for, not counting changes.
    pub(crate) blank_nat: Vec<u8>,
    /// Whether there was no checkpoint, so that the header is reckoned.
    pub(crate) reckoned: bool,
    /// The blocks of direct nodes that are lost, each with its slot, once they were wanted.
    pub(crate) lost_blocks: Option<HashMap<Nid, Vec<(u16, BlockAddr)>>>,
    /// Whether the summaries told of all blocks in use whose they are, once the lost ones were found.
    pub(crate) all_summaries: bool,
    /// The nodes of files whose inode is lost, once they were wanted.
    pub(crate) lost_files: Option<HashMap<Ino, Vec<Nid>>>,
    /// Inodes whose heads are zeros, and that are made anew of what is left of their files.
    pub(crate) blank: BTreeSet<Ino>,
    /// What is in use and named by nobody, once it was wanted.
    pub(crate) unnamed: Option<Unnamed>,
    /// The inodes that name a block which others name too as their first, once looked for.
    pub(crate) namers: Option<HashMap<BlockAddr, Vec<Ino>>>,
    /// Nodes that the NAT does not lead to.
    pub(crate) strays: Strays,
    /// The segments whose entries in the SIT are lost ([`crate::lost_sit`]). They are taken for zeros.
    pub(crate) lost_sit: BTreeSet<SegNo>,
}

/// Why a volume could not be loaded: the reason is among the findings, or the device failed.
pub(crate) enum Stop {
    Fatal,
    Io(io::Error),
}

impl From<io::Error> for Stop {
    fn from(e: io::Error) -> Stop {
        Stop::Io(e)
    }
}

impl Image<'_> {
    pub(crate) fn raw_sb(&self) -> &RawSuperblock {
        RawSuperblock::in_block(&self.sb)
    }

    pub(crate) fn checkpoint(&self) -> RawCheckpoint {
        zerocopy::FromBytes::read_from_bytes(&self.cp[..checkpoint::HEADER_SIZE]).expect("sized")
    }

    /// How inodes divide their slots.
    pub(crate) fn layouts(&self) -> Layouts {
        self.raw_sb().layouts()
    }

    /// Whether inodes carry the size of their inline xattr area.
    pub(crate) fn flexible(&self) -> bool {
        self.layouts().is_flexible()
    }

    /// Seed of the inode checksums, where the volume has them.
    pub(crate) fn inode_seed(&self) -> Option<u32> {
        self.features.contains(Feature::INODE_CHECKSUM).then(|| crc::chain(!0, &self.raw_sb().uuid))
    }

    /// Where the version bitmaps of NAT and SIT begin in the pack.
    pub(crate) fn places(&self) -> BitmapPlaces {
        BitmapPlaces::of(&self.checkpoint(), &self.g)
    }

    /// Whether the second copy of a NAT block is in force.
    pub(crate) fn nat_second(&self, block: u32) -> bool {
        test_bit(&self.cp[self.places().nat..], block as usize)
    }

    /// Whether the second copy of a SIT block is in force.
    pub(crate) fn sit_second(&self, block: u32) -> bool {
        test_bit(&self.cp[self.places().sit..], block as usize)
    }

    /// Puts the other copy of a block in force, by its bitmap's place (in memory: the next checkpoint carries it).
    pub(crate) fn flip(&mut self, bitmap: usize, block: u32) {
        self.cp[bitmap + block as usize / 8] ^= 0x80 >> (block % 8);
    }

    /// A node id's entry: changed by the repair, in the journal, or in the table.
    pub(crate) fn nat(&mut self, nid: Nid) -> io::Result<RawNatEntry> {
        if let Some(entry) = self.nat_changes.get(&nid).or_else(|| self.nat_journal.get(&nid)) {
            return Ok(*entry);
        }
        let index = nid / nat::ENTRIES_PER_BLOCK as u32;
        let addr = self.g.nat_block(index, self.nat_second(index));
        let block: &RawNatBlock = self.cache.get(addr)?.view();
        Ok(block.entries[nid as usize % nat::ENTRIES_PER_BLOCK])
    }

    /// A NAT block in force with journal and changes applied, and whether that differs from the disk or from
    /// what cannot be read.
    pub(crate) fn nat_block(&mut self, index: u32) -> io::Result<(Box<Block>, bool)> {
        let addr = self.g.nat_block(index, self.nat_second(index));
        let mut block = self.cache.medium.read(addr)?;
        let first = index * nat::ENTRIES_PER_BLOCK as u32;
        let mut changed = self.cache.medium.is_unreadable(addr);
        let here = first..first + nat::ENTRIES_PER_BLOCK as u32;
        let raw: &mut RawNatBlock = block.view_mut();
        for newer in [&self.nat_journal, &self.nat_changes] {
            for (nid, entry) in newer.range(here.clone()) {
                changed = true;
                raw.entries[(nid - first) as usize] = *entry;
            }
        }
        Ok((block, changed))
    }

    /// The nodes of a NAT block in force, with their entries.
    pub(crate) fn nodes_in(&mut self, index: u32) -> io::Result<Vec<(Nid, RawNatEntry)>> {
        if is_nat_blank(self, index) {
            return Ok(Vec::new());
        }
        let (block, changed) = self.nat_block(index)?;
        let first = index * nat::ENTRIES_PER_BLOCK as u32;
        let all = (first..).zip(block.view::<RawNatBlock>().entries);
        let nodes: Vec<_> =
            all.filter(|(nid, e)| e.block_addr.get() != NULL_ADDR && self.g.is_nid(*nid)).collect();
        if nodes.is_empty() && !changed {
            set_bit(&mut self.blank_nat, index as usize);
        }
        Ok(nodes)
    }

    /// A SIT block in force with the journal applied, and whether that differs from the disk, or the block is
    /// lost.
    pub(crate) fn sit_block(&mut self, index: u32) -> io::Result<(Box<Block>, bool)> {
        let addr = self.g.sit_block(index, self.sit_second(index));
        let mut block = self.cache.medium.read(addr)?;
        let raw: &mut RawSitBlock = block.view_mut();
        let first = index * sit::ENTRIES_PER_BLOCK as u32;
        let mut changed = self.cache.medium.is_unreadable(addr);
        for (segno, slot) in (first..).zip(raw.entries.iter_mut()) {
            let lost = self.lost_sit.contains(&segno).then(RawSitEntry::new_zeroed);
            if let Some(entry) = self.sit_journal.get(&segno).copied().or(lost) {
                changed = true;
                *slot = entry;
            }
        }
        Ok((block, changed))
    }

    /// A segment's SIT entry.
    pub(crate) fn sit(&mut self, segno: SegNo) -> io::Result<RawSitEntry> {
        if let Some(entry) = self.sit_journal.get(&segno) {
            return Ok(*entry);
        }
        if self.lost_sit.contains(&segno) {
            return Ok(RawSitEntry::new_zeroed());
        }
        let index = segno / sit::ENTRIES_PER_BLOCK as u32;
        let addr = self.g.sit_block(index, self.sit_second(index));
        let block: &RawSitBlock = self.cache.get(addr)?.view();
        Ok(block.entries[segno as usize % sit::ENTRIES_PER_BLOCK])
    }

    /// Address of a file's page, of an inode that was vetted; `NULL_ADDR` too where a node on the way is none.
    pub(crate) fn address(&mut self, inode: &RawInode, page: u64) -> io::Result<BlockAddr> {
        let slots = inode.slots(self.flexible());
        let Some(path) = NodePath::of(page, slots.fanout()) else { return Ok(NULL_ADDR) };
        if path.depth == 0 {
            return Ok(inode.i_addr[slots.extra + path.slot()].get());
        }
        let mut nid = inode.i_nid[path.inode_nid()].get();
        for level in 1..=path.depth {
            if !self.g.is_nid(nid) {
                return Ok(NULL_ADDR);
            }
            let addr = self.nat(nid)?.block_addr.get();
            if !self.g.in_main(addr) {
                return Ok(NULL_ADDR);
            }
            let block = self.cache.get(addr)?;
            if level == path.depth {
                return Ok(block.view::<RawDirectNode>().addr[path.slot()].get());
            }
            nid = block.view::<RawIndirectNode>().nid[path.child_index(level)].get();
        }
        Ok(NULL_ADDR)
    }

    /// Fills the footer of a new node.
    pub(crate) fn sign(&self, block: &mut Block, nid: Nid, ino: Ino, offset: u32) {
        let footer = footer_mut(block);
        footer.nid = nid.into();
        footer.ino = ino.into();
        footer.set_node_offset(offset);
        footer.cp_ver = self.checkpoint().checkpoint_ver;
    }

    /// Writes the blocks of the pack in force anew in which a bit was flipped.
    pub(crate) fn mend_pack(&self) -> io::Result<()> {
        let tag = WriteTag::new(Cause::Meta, Temperature::Hot);
        for (addr, block) in &self.unflipped {
            self.cache.medium.write(*addr, &[block], tag)?;
            self.cache.medium.flush()?;
        }
        Ok(())
    }

    /// The log whose current segment this is.
    pub(crate) fn curseg_of(&self, segno: SegNo) -> Option<usize> {
        self.cursegs.iter().position(|c| c.segno == segno)
    }
}

/// Whether a NAT block is known to have no nodes.
pub(crate) fn is_nat_blank(image: &Image<'_>, index: u32) -> bool {
    let first = index * nat::ENTRIES_PER_BLOCK as u32;
    let changes = image.nat_changes.range(first..first + nat::ENTRIES_PER_BLOCK as u32);
    test_bit(&image.blank_nat, index as usize) && changes.count() == 0
}
