//! What the walk has reached: a bit for each block of the main area and for each node id, the kind of each
//! segment, and the owners that the SSA records.
//!
//! Memory: main area / 8 bytes + node ids / 8 + a byte for each segment.

use crate::cache::Cache;
use crate::finding::{Code, Findings};
use crate::image::Image;
use crate::quota::Usage;
use crate::slots::has_no_addresses;
use foldhash::{HashMap, HashMapExt};
use medfs_device::Cause;
use medfs_format::node::{self, RawDirectNode, RawInode};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::sit::{VALID_MAP_SIZE, flip_bit, set_bit, test_bit};
use medfs_format::summary::{RawSummary, RawSummaryBlock, SUM_TYPE_DATA, SUM_TYPE_NODE};
use medfs_format::{BLOCKS_PER_SEG, Block, BlockAddr, Geometry, Nid, SegNo};
use std::cmp::Ordering;
use std::io;

/// What is known of a segment's kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unknown,
    Data,
    Node,
}

impl Kind {
    fn of(node: bool) -> Kind {
        if node { Kind::Node } else { Kind::Data }
    }

    /// What the summary of such a segment says that it is.
    fn entry_type(self) -> u8 {
        if self == Kind::Node { SUM_TYPE_NODE } else { SUM_TYPE_DATA }
    }
}

/// Who holds a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) nid: Nid,
    pub(crate) ofs_in_node: u16,
    /// NAT version of `nid`.
    pub(crate) version: u8,
    pub(crate) is_node: bool,
    /// The summary of the block in hand names it: nobody has to ask again.
    pub(crate) is_known: bool,
    /// It is an inode that contradicts itself, which may name blocks of others.
    pub(crate) is_doubted: bool,
}

impl Owner {
    /// A node as the owner of its own block.
    pub(crate) fn node(nid: Nid, version: u8) -> Owner {
        Owner { nid, ofs_in_node: 0, version, is_node: true, is_known: false, is_doubted: false }
    }

    /// The address slot of a node.
    pub(crate) fn slot(nid: Nid, ofs_in_node: u16, version: u8) -> Owner {
        Owner { nid, ofs_in_node, version, is_node: false, is_known: false, is_doubted: false }
    }

    /// The slot so many places behind this one.
    pub(crate) fn behind(self, slots: usize) -> Owner {
        Owner { ofs_in_node: self.ofs_in_node + slots as u16, ..self }
    }

    /// The same, of a block whose summary is known to name it.
    pub(crate) fn known(self) -> Owner {
        Owner { is_known: true, ..self }
    }

    /// Whether a summary names it.
    fn is_of(&self, sum: &RawSummary) -> bool {
        sum.nid.get() == self.nid && (self.is_node || sum.ofs_in_node.get() == self.ofs_in_node)
    }

    /// Whether a summary names it, and its node's version.
    pub(crate) fn is_now_of(&self, sum: &RawSummary) -> bool {
        self.is_of(sum) && sum.version == self.version
    }
}

/// The record of what was reached.
pub(crate) struct Space {
    main: Vec<u8>,
    nids: Vec<u8>,
    kinds: Vec<Kind>,
    /// SSA blocks that a repair changes, kept until they are written.
    ssa: HashMap<SegNo, Box<Block>>,
    fix: bool,
    pub(crate) blocks: u64,
    pub(crate) nodes: u32,
    pub(crate) inodes: u32,
    pub(crate) usage: Usage,
}

/// Changed SSA blocks held before they are written out.
const MAX_SSA_HELD: usize = 256;

impl Space {
    pub(crate) fn new(image: &Image<'_>, fix: bool) -> Space {
        let g = &image.g;
        Space {
            main: vec![0; g.segment_count_main as usize * VALID_MAP_SIZE],
            nids: vec![0; (g.max_nid() as usize).div_ceil(8)],
            kinds: vec![Kind::Unknown; g.segment_count_main as usize],
            ssa: HashMap::new(),
            fix,
            blocks: 0,
            nodes: 0,
            inodes: 0,
            usage: Usage::of(image),
        }
    }

    pub(crate) fn nid_reached(&self, nid: Nid) -> bool {
        (nid as usize) < self.nids.len() * 8 && test_bit(&self.nids, nid as usize)
    }

    pub(crate) fn reach_nid(&mut self, nid: Nid) {
        set_bit(&mut self.nids, nid as usize);
    }

    /// The blocks of a segment that were reached, as a SIT entry would say.
    pub(crate) fn segment(&self, segno: SegNo) -> [u8; VALID_MAP_SIZE] {
        let at = segno as usize * VALID_MAP_SIZE;
        self.main[at..at + VALID_MAP_SIZE].try_into().expect("sized")
    }

    pub(crate) fn kind(&self, segno: SegNo) -> Kind {
        self.kinds[segno as usize]
    }

    fn bit(g: &Geometry, addr: BlockAddr) -> usize {
        (addr - g.main_blkaddr) as usize
    }

    /// Takes a block of the main area for `owner`. `false`: it belongs to another one, or its segment is of the other
    /// kind; the finding says which.
    pub(crate) fn claim(
        &mut self,
        image: &mut Image<'_>,
        findings: &mut Findings,
        addr: BlockAddr,
        owner: Owner,
        place: &str,
    ) -> io::Result<bool> {
        let segno = image.g.segno(addr);
        let bit = Self::bit(&image.g, addr);
        if test_bit(&self.main, bit) {
            findings.add(Code::BlockTwice, format!("{place}: block {addr} belongs to another owner already"));
            return Ok(false);
        }
        let kind = Kind::of(owner.is_node);
        if self.kinds[segno as usize] == Kind::Unknown {
            self.kinds[segno as usize] = self.evidence(image, findings, segno, kind)?;
        }
        if self.kinds[segno as usize] != kind {
            let (what, where_) = if owner.is_node { ("a node", "data") } else { ("data", "node") };
            findings.add(
                Code::BlockKind,
                format!("{place}: block {addr} would be {what} in {where_} segment {segno}"),
            );
            return Ok(false);
        }
        if !owner.is_known && !self.check_owner(image, findings, addr, owner, place)? {
            return Ok(false);
        }
        set_bit(&mut self.main, bit);
        Ok(true)
    }

    /// Whether a block of the main area was claimed already.
    pub(crate) fn is_claimed(&self, g: &Geometry, addr: BlockAddr) -> bool {
        test_bit(&self.main, Self::bit(g, addr))
    }

    /// Whether a block of the main area is no data, was claimed already, or has another owner by its summary, which
    /// holds it.
    pub(crate) fn is_anothers(
        &self,
        image: &mut Image<'_>,
        addr: BlockAddr,
        owner: Owner,
    ) -> io::Result<bool> {
        let segno = image.g.segno(addr);
        let of_nodes = match image.curseg_of(segno) {
            Some(log) => log >= 3,
            None => {
                self.kind(segno) == Kind::Node || image.sit(segno)?.seg_type() >= 3 && !image.sit_lost(segno)
            }
        };
        if of_nodes || self.is_claimed(&image.g, addr) {
            return Ok(true);
        }
        let Some(sum) = recorded(image, addr, Kind::Data)? else { return Ok(false) };
        Ok(!owner.is_of(&sum) && holds(image, &sum, addr, owner.is_node)?)
    }

    /// A segment's kind: that of the log writing to it, or what SIT, SSA and the block found first agree on. Where
    /// they do not, the blocks themselves decide; either table may hold other bytes, and both may.
    fn evidence(
        &mut self,
        image: &mut Image<'_>,
        findings: &mut Findings,
        segno: SegNo,
        found: Kind,
    ) -> io::Result<Kind> {
        if let Some(log) = image.curseg_of(segno) {
            let kind = Kind::of(log >= 3);
            let sum = &mut image.cursegs[log].sum;
            let right = kind.entry_type();
            if sum.footer.entry_type != right {
                findings.add(Code::SsaType, format!("summary of current segment {segno}: wrong entry type"));
                sum.footer.entry_type = right;
            }
            return Ok(kind);
        }
        let entry = image.sit(segno)?;
        let sit = Kind::of(entry.seg_type() >= 3);
        let entry_type = self.ssa(image, segno)?.footer.entry_type;
        // A log's segment may be new to SIT and SSA, and without a checkpoint nobody says that it is one.
        let unknown = image.reckoned && entry.valid_map.iter().all(|&b| b == 0);
        let ssa = Kind::of(entry_type == SUM_TYPE_NODE);
        let ssa_lost = image.ssa_lost(segno)?;
        let agreed = (!image.sit_lost(segno) && !ssa_lost && sit == ssa).then_some(sit);
        let kind = if unknown || agreed == Some(found) {
            found
        } else {
            self.majority(image, segno)?.or(agreed).unwrap_or(found)
        };
        let right = kind.entry_type();
        if unknown || ssa_lost {
            self.change_ssa(image, segno, |sum| sum.footer.entry_type = right)?;
        } else if entry_type != right {
            findings.add(
                Code::SsaType,
                format!("summary of segment {segno}: entry type {entry_type}, but the segment's is {right}"),
            );
            self.change_ssa(image, segno, |sum| sum.footer.entry_type = right)?;
        }
        Ok(kind)
    }

    /// What more blocks of a segment are: nodes that the NAT leads to, or data that the nodes which SSA names hold.
    fn majority(&self, image: &mut Image<'_>, segno: SegNo) -> io::Result<Option<Kind>> {
        let summary = self.ssa(image, segno)?.clone();
        let start = image.g.seg_start(segno);
        let (mut nodes, mut data) = (0, 0);
        for (addr, sum) in (start..).zip(&summary.entries) {
            let nid = node::footer(image.cache.get(addr)?).nid.get();
            if image.g.is_nid(nid) && image.nat(nid)?.block_addr.get() == addr {
                nodes += 1;
            } else if holds(image, sum, addr, false)? {
                data += 1;
            }
        }
        Ok(match nodes.cmp(&data) {
            Ordering::Less => Some(Kind::Data),
            Ordering::Equal => None,
            Ordering::Greater => Some(Kind::Node),
        })
    }

    fn ssa<'a>(&'a self, image: &'a mut Image<'_>, segno: SegNo) -> io::Result<&'a RawSummaryBlock> {
        if let Some(block) = self.ssa.get(&segno) {
            return Ok(block.view());
        }
        let addr = image.g.ssa_block(segno);
        Ok(image.cache.get(addr)?.view())
    }

    fn change_ssa(
        &mut self,
        image: &mut Image<'_>,
        segno: SegNo,
        change: impl FnOnce(&mut RawSummaryBlock),
    ) -> io::Result<()> {
        if !self.fix {
            return Ok(());
        }
        if !self.ssa.contains_key(&segno) {
            if self.ssa.len() >= MAX_SSA_HELD {
                self.flush_ssa(&mut image.cache, &image.g)?;
            }
            let addr = image.g.ssa_block(segno);
            self.ssa.insert(segno, image.cache.read(addr)?);
        }
        change(self.ssa.get_mut(&segno).expect("just inserted").view_mut());
        Ok(())
    }

    /// Replaces a segment's whole summary (a log moves away from it, or to it).
    pub(crate) fn set_ssa(
        &mut self,
        image: &mut Image<'_>,
        segno: SegNo,
        sum: &RawSummaryBlock,
    ) -> io::Result<()> {
        self.change_ssa(image, segno, |s| *s = sum.clone())
    }

    /// Writes the changed SSA blocks.
    pub(crate) fn flush_ssa(&mut self, cache: &mut Cache<'_>, g: &Geometry) -> io::Result<()> {
        for (segno, block) in self.ssa.drain() {
            cache.write(g.ssa_block(segno), &block, Cause::Meta)?;
        }
        Ok(())
    }

    /// Writes the changed SSA blocks, and those that cannot be read of segments in which nothing is in use.
    pub(crate) fn renew_ssa(&mut self, cache: &mut Cache<'_>, g: &Geometry) -> io::Result<()> {
        self.flush_ssa(cache, g)?;
        let all = g.ssa_block(0)..g.ssa_block(g.segment_count_main);
        for addr in cache.medium.unreadable().into_iter().filter(|addr| all.contains(addr)) {
            cache.write(addr, &Block::ZERO, Cause::Meta)?;
        }
        Ok(())
    }

    /// Compares the summary's owner of a block with the one that was found; where they differ, the one that really
    /// holds the address wins.
    fn check_owner(
        &mut self,
        image: &mut Image<'_>,
        findings: &mut Findings,
        addr: BlockAddr,
        owner: Owner,
        place: &str,
    ) -> io::Result<bool> {
        let segno = image.g.segno(addr);
        let index = image.g.offset_in_seg(addr) as usize;
        let log = image.curseg_of(segno);
        if let Some(log) = log
            && !image.cursegs[log].known
        {
            set_owner(&mut image.cursegs[log].sum.entries[index], owner);
            return Ok(true);
        }
        let sum = match log {
            Some(log) => image.cursegs[log].sum.entries[index],
            None => self.ssa(image, segno)?.entries[index],
        };
        if log.is_none() && image.ssa_lost(segno)? {
            self.change_ssa(image, segno, |s| set_owner(&mut s.entries[index], owner))?;
            return Ok(true);
        }
        let same = owner.is_of(&sum);
        if same && (owner.is_node || sum.version == owner.version) {
            return Ok(true);
        }
        let nid = sum.nid.get();
        let is_of_lost = owner.is_doubted && image.g.is_nid(nid) && {
            let at = image.nat(nid)?.block_addr.get();
            image.is_lost_node(nid, at)?
        };
        if !same && (is_of_lost || holds(image, &sum, addr, owner.is_node)?) {
            findings.add(
                Code::BlockTwice,
                format!("{place}: block {addr} belongs to node {} (entry {})", sum.nid, sum.ofs_in_node),
            );
            return Ok(false);
        }
        findings.add(
            Code::SsaOwner,
            format!(
                "summary of block {addr} (segment {segno}) names node {} version {} entry {}, but its owner is node {} \
                 version {} entry {}",
                sum.nid, sum.version, sum.ofs_in_node, owner.nid, owner.version, owner.ofs_in_node
            ),
        );
        match log {
            Some(log) => set_owner(&mut image.cursegs[log].sum.entries[index], owner),
            None => self.change_ssa(image, segno, |s| set_owner(&mut s.entries[index], owner))?,
        }
        Ok(true)
    }

    /// Takes nothing for a new block yet: the walk will come to it.
    pub(crate) fn give_back(&mut self, g: &Geometry, addr: BlockAddr) {
        flip_bit(&mut self.main, Self::bit(g, addr));
        self.blocks -= 1;
    }

    /// Takes neither a node nor its block for reached any more.
    pub(crate) fn give_back_node(&mut self, g: &Geometry, nid: Nid, addr: BlockAddr) {
        flip_bit(&mut self.nids, nid as usize);
        self.nodes -= 1;
        self.give_back(g, addr);
    }

    /// Records a new block's owner without asking what the summary said before.
    pub(crate) fn take_new(
        &mut self,
        image: &mut Image<'_>,
        addr: BlockAddr,
        owner: Owner,
    ) -> io::Result<()> {
        let segno = image.g.segno(addr);
        let index = image.g.offset_in_seg(addr) as usize;
        set_bit(&mut self.main, Self::bit(&image.g, addr));
        self.kinds[segno as usize] = Kind::of(owner.is_node);
        self.change_ssa(image, segno, |s| set_owner(&mut s.entries[index], owner))
    }
}

/// What the summary of a segment of data, or of nodes, says of a block of the main area; `None` where that is lost, or
/// of the other kind.
pub(crate) fn recorded(image: &mut Image<'_>, addr: BlockAddr, kind: Kind) -> io::Result<Option<RawSummary>> {
    let (segno, at) = (image.g.segno(addr), image.g.offset_in_seg(addr) as usize);
    if let Some(log) = image.curseg_of(segno) {
        let curseg = &image.cursegs[log];
        return Ok((Kind::of(log >= 3) == kind && curseg.known).then(|| curseg.sum.entries[at]));
    }
    if image.ssa_lost(segno)? {
        return Ok(None);
    }
    let ssa = image.g.ssa_block(segno);
    let sum: &RawSummaryBlock = image.cache.get(ssa)?.view();
    Ok((sum.footer.entry_type == kind.entry_type()).then(|| sum.entries[at]))
}

/// Whether the summary of a block says that this slot of a node has it, whatever the node's version.
pub(crate) fn is_of_slot(image: &mut Image<'_>, addr: BlockAddr, nid: Nid, slot: usize) -> io::Result<bool> {
    let owner = Owner::slot(nid, slot as u16, 0);
    Ok(recorded(image, addr, Kind::Data)?.is_some_and(|sum| owner.is_of(&sum)))
}

/// Whether nothing says whose a block of the main area is, as the summary of its segment is lost.
pub(crate) fn is_owner_unknown(image: &mut Image<'_>, addr: BlockAddr) -> io::Result<bool> {
    let segno = image.g.segno(addr);
    match image.curseg_of(segno) {
        Some(log) => Ok(!image.cursegs[log].known),
        None => image.ssa_lost(segno),
    }
}

fn set_owner(entry: &mut RawSummary, owner: Owner) {
    entry.nid = owner.nid.into();
    entry.version = owner.version;
    entry.ofs_in_node = owner.ofs_in_node.into();
}

/// Whether at least as many blocks in use of a segment of data are where its summaries say as are not.
pub(crate) fn agrees_with_nodes(image: &mut Image<'_>, segno: SegNo) -> io::Result<bool> {
    let (mut held, mut others) = (0, 0);
    let start = image.g.seg_start(segno);
    for addr in start..start + BLOCKS_PER_SEG {
        if !image.is_valid(addr)? {
            continue;
        }
        let Some(sum) = recorded(image, addr, Kind::Data)? else { continue };
        *(if holds(image, &sum, addr, false)? { &mut held } else { &mut others }) += 1;
    }
    Ok(held >= others)
}

/// Whether the owner that a summary entry names really holds the block.
fn holds(image: &mut Image<'_>, sum: &RawSummary, addr: BlockAddr, is_node: bool) -> io::Result<bool> {
    let nid = sum.nid.get();
    if !image.g.is_nid(nid) {
        return Ok(false);
    }
    let entry = image.nat(nid)?;
    let node_addr = entry.block_addr.get();
    if !image.g.in_main(node_addr) {
        return Ok(false);
    }
    let layouts = image.layouts();
    let flexible = layouts.is_flexible();
    let g = image.g.clone();
    let block = image.cache.get(node_addr)?;
    let footer = node::footer(block);
    if footer.nid.get() != nid || footer.ino != entry.ino {
        return Ok(false);
    }
    if is_node {
        return Ok(node_addr == addr);
    }
    let slot = usize::from(sum.ofs_in_node.get());
    let held = match node_kind(footer.node_offset()) {
        NodeKind::Inode => {
            let inode: &RawInode = block.view();
            if inode.validate(nid, &g, layouts, None).is_err() || has_no_addresses(inode) {
                None
            } else {
                let slots = inode.slots(flexible);
                (slot < slots.addrs()).then(|| inode.i_addr[slots.extra + slot].get())
            }
        }
        NodeKind::Direct => block.view::<RawDirectNode>().addr.get(slot).map(|a| a.get()),
        NodeKind::Indirect | NodeKind::Xattr => None,
    };
    Ok(held == Some(addr))
}
