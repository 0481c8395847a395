//! The fsync log past blocks of it that cannot be read.
//!
//! Each node of the log names the next one, and a lost node takes that with it. The nodes behind it are known
//! by their footers: they carry the version of the checkpoint in force.
//!
//! A changed address in a node leads the log to a block that is none of it, or to one that it met before. Where one bit
//! explains that, the log goes on at the right one ([`LogReader::turned_next`]).
//!
//! Invariant: a walk takes up no node twice, and looks through the main area at most once for each gap.

use crate::checkpoint::ChainVersion;
use crate::flip::Bit;
use crate::footer::{self, footer, footer_mut};
use crate::node::{Layouts, RawInode};
use crate::removed::{is_removed_names, removed_names};
use crate::shared::{self, entries, is_shared};
use crate::{BLOCKS_PER_SEG, Block, BlockAddr, Geometry, Ino, Nid, SegNo};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// How many blocks behind the end of an empty log a mount looks at for nodes of it, and how many free segments.
pub const FEW: usize = 64;
/// The same where the log has nodes: all blocks of a segment.
pub const SEGMENT: usize = BLOCKS_PER_SEG as usize;

/// What has checksums among the nodes of a volume's log.
#[derive(Debug, Clone, Copy)]
pub struct Sealing {
    /// How inodes are divided.
    pub layouts: Layouts,
    /// Of the inodes' checksums, where they have any.
    pub seed: Option<u32>,
    /// The reserved inode of shared record nodes and nodes of removed names, where the volume has deltas.
    pub node_ino: Option<Ino>,
}

impl Sealing {
    /// The one bit that, turned back, makes a block of the log the node that it was. The checksum of a sealed node
    /// tells it from one that was stored in part, and from a block that was there before. Of one that has no checksum
    /// the version of its checkpoint tells a bit of that version.
    pub fn flipped_bit(self, block: &Block, version: ChainVersion) -> Option<Bit> {
        if self.is_whole(block) {
            return None;
        }
        // One bit leaves one of its two numbers as it was: most blocks need no look at their checksum.
        let f = footer(block);
        let (nid, ino) = (f.nid.get(), f.ino.get());
        let is_of_chain = self.node_ino.is_some_and(|own| [nid, ino].contains(&own));
        let of_chain = is_of_chain.then(|| shared::flipped_bit(block)).flatten();
        let seed = self.seed.filter(|_| (nid ^ ino).count_ones() <= 1);
        let of_inode = seed.and_then(|seed| block.view::<RawInode>().flipped_bit(seed));
        let sealed = [of_chain, of_inode].into_iter().flatten().find(|bit| {
            let mut mended = Box::new(block.clone());
            bit.flip(&mut mended);
            version.belongs(footer(&mended).cp_ver.get()) && self.is_whole(&mended)
        });
        sealed.or_else(|| {
            let bit = version.flipped_bit(f.cp_ver.get()).filter(|_| self.is_right(block).is_none())?;
            let byte = footer::CP_VER_AT + bit as usize / 8;
            Some(Bit { byte: byte as u16, bit: bit as u8 % 8 })
        })
    }

    /// Whether a block of the log is a node that was stored in part: its checksum is wrong.
    pub fn is_torn(self, block: &Block) -> bool {
        self.is_right(block) == Some(false)
    }

    /// Whether a block is a node with a checksum, which is right.
    pub fn is_whole(self, block: &Block) -> bool {
        self.is_right(block) == Some(true)
    }

    /// Whether the checksum of a node is right; `None` where it has none. Every inode of a volume with checksums has
    /// room for one: where it seems not to, its first sector is an old one.
    fn is_right(self, block: &Block) -> Option<bool> {
        let f = footer(block);
        if let Some(own) = self.node_ino.filter(|own| f.nid.get() == *own) {
            return Some(is_shared(block, own) || is_removed_names(block, own));
        }
        let seed = self.seed.filter(|_| f.nid == f.ino && f.node_offset() == 0)?;
        Some(block.view::<RawInode>().is_sealed(self.layouts, seed))
    }
}

/// What a walk comes to.
#[derive(Debug)]
pub enum Step<'a> {
    /// A node of the log.
    Node(BlockAddr, &'a Block),
    /// Blocks that cannot be read, and the node behind them.
    Gap(Range<BlockAddr>, BlockAddr),
}

/// A volume, as it is read along its fsync log.
pub struct LogReader<'a> {
    /// Where its areas are.
    pub geo: &'a Geometry,
    /// What tells the log's nodes from others.
    pub version: ChainVersion,
    /// Tells whether a segment is free.
    pub is_free: &'a mut dyn FnMut(SegNo) -> bool,
    /// Gives a block; `None` for one that cannot be read. Where an [`End`] is asked about, `None` also for one that is
    /// no whole node, that the log met, or that is in use.
    pub read: &'a mut dyn FnMut(BlockAddr) -> Option<Box<Block>>,
}

impl LogReader<'_> {
    /// Follows the log from a block on, also past blocks that cannot be read.
    pub fn walk(&mut self, start: BlockAddr, met: &mut dyn FnMut(Step<'_>)) {
        let (mut addr, mut seen) = (start, HashSet::new());
        while self.geo.in_main(addr) && seen.insert(addr) {
            let next = match (self.read)(addr) {
                Some(block) if self.version.belongs(footer(&block).cp_ver.get()) => {
                    met(Step::Node(addr, &block));
                    footer(&block).next_blkaddr.get()
                }
                Some(_) => return,
                None => {
                    let Some(next) = self.node_behind(addr) else { return };
                    let is_near = self.geo.segno(next) == self.geo.segno(addr) && next > addr;
                    met(Step::Gap(addr..if is_near { next } else { addr + 1 }, next));
                    next
                }
            };
            addr = next;
        }
    }

    /// The node of the log in a block, where it is one.
    fn node_at(&mut self, addr: BlockAddr) -> Option<Box<Block>> {
        (self.read)(addr).filter(|block| self.version.belongs(footer(block).cp_ver.get()))
    }

    /// The next node of the log behind a block that cannot be read: in its segment or, where the block is the
    /// last of it, in another one. `None`: the block is taken for the one that was being written when power was
    /// lost.
    pub fn node_behind(&mut self, addr: BlockAddr) -> Option<BlockAddr> {
        let mut rest = self.geo.rest_of_segment(addr);
        if !rest.is_empty() {
            return rest.find(|&behind| self.node_at(behind).is_some());
        }
        self.segment_behind(addr, usize::MAX)
    }

    /// Where the log goes on in another segment than that of a block: the start of one of so many free ones that hold
    /// fsynced nodes of it.
    fn segment_behind(&mut self, addr: BlockAddr, most: usize) -> Option<BlockAddr> {
        let (mut starts, mut named) = (Vec::new(), HashSet::new());
        // A log takes one behind its own first, as a rule.
        let first = if self.geo.in_main(addr) { self.geo.segno(addr) + 1 } else { 0 };
        let mut in_order = (first..self.geo.segment_count_main).chain(0..first);
        for _ in 0..most {
            let Some(segno) = in_order.find(|&segno| (self.is_free)(segno)) else { break };
            let start = self.geo.seg_start(segno);
            if self.node_at(start).is_none() {
                continue;
            }
            // Other logs go on in free segments too.
            let blocks = (start..start + BLOCKS_PER_SEG).filter_map(|addr| self.node_at(addr));
            let nodes: Vec<_> = blocks.map(|block| *footer(&block)).collect();
            if nodes.iter().any(|footer| footer.is_fsync()) {
                starts.push(start);
                named.extend(nodes.last().map(|last| last.next_blkaddr.get()));
            }
        }
        // Of several segments of the log the first is the one that no other leads to.
        starts.iter().copied().find(|start| !named.contains(start)).or(starts.first().copied())
    }

    /// The blocks in which the log may go on behind one that it does not have.
    fn range_behind(&mut self, addr: BlockAddr, most: usize) -> Range<BlockAddr> {
        let rest = self.geo.rest_of_segment(addr);
        if rest.is_empty() {
            let start = self.segment_behind(addr, most);
            return start.map_or(0..0, |start| start..start + BLOCKS_PER_SEG);
        }
        let most = BlockAddr::try_from(most).unwrap_or(BlockAddr::MAX);
        rest.start..rest.end.min(rest.start.saturating_add(most))
    }

    /// The blocks in which the log may go on: behind the one at which it ends, and behind its last node.
    fn ranges_behind(&mut self, end: End) -> [Range<BlockAddr>; 2] {
        let geo = self.geo;
        let behind_next = if end.is_possible(geo) { self.range_behind(end.next, end.most) } else { 0..0 };
        // From the last block of a segment the log goes to the start of another one.
        let is_start = end.is_possible(geo) && geo.offset_in_seg(end.next) == 0;
        let behind_last = match end.last {
            Some(last) if end.is_right || end.is_in_line() => last..last,
            Some(last) if geo.rest_of_segment(last).is_empty() && is_start => last..last,
            Some(last) => self.range_behind(last, end.most),
            None => 0..0,
        };
        [behind_next, behind_last]
    }

    /// Whether no log leads to its end, whatever a crash took: the last node named another block.
    fn leads_nowhere(&mut self, end: End) -> bool {
        let Some(last) = end.last.filter(|_| !end.is_right) else { return false };
        if !end.is_possible(self.geo) {
            return true;
        }
        let segno = self.geo.segno(end.next);
        if segno == self.geo.segno(last) {
            return end.next < last;
        }
        // A free segment is filled from its start, or from behind nodes that an earlier crash left there.
        let is_inside = self.geo.offset_in_seg(end.next) > 0;
        is_inside && (self.is_free)(segno) && self.node_at(end.next - 1).is_none()
    }

    /// A node and those to which it leads, as far as all of them are there.
    fn linked(&mut self, start: BlockAddr) -> Run {
        let (mut run, mut addr, mut seen) = (Run::default(), start, HashSet::new());
        while self.geo.in_main(addr) && seen.insert(addr) {
            let Some(block) = self.node_at(addr) else { break };
            run.add(addr, &block);
            addr = footer(&block).next_blkaddr.get();
        }
        run
    }

    /// The next node of a log whose last node names another block, as one bit of that address flipped. Either no log
    /// leads to that block, or the right one is behind the last node, and what it leads to was fsynced twice, as in
    /// [`LogReader::refsynced_behind`].
    pub fn turned_next(&mut self, end: End) -> Option<BlockAddr> {
        let last = end.last.filter(|_| !end.is_right && !end.is_in_line())?;
        let in_line = last + 1;
        let near = (0..BlockAddr::BITS).map(|bit| end.next ^ 1 << bit);
        let geo = self.geo;
        let nodes: Vec<BlockAddr> =
            near.filter(|&addr| geo.in_main(addr) && self.node_at(addr).is_some()).collect();
        let is_in_line = nodes.contains(&in_line);
        if !nodes.is_empty() && self.leads_nowhere(end) {
            let only = nodes.first().copied().filter(|_| nodes.len() == 1);
            return if is_in_line { Some(in_line) } else { only };
        }
        (is_in_line && self.linked(in_line).is_refsynced).then_some(in_line)
    }

    /// The nodes behind the block at which a log without seals ends, where they tell that the device lost or changed
    /// what it had reported as stored. A node among them was fsynced twice, and the first of these fsyncs had returned,
    /// with all that was fsynced before. Where no log leads to the block at which it ends, any node behind the last one
    /// tells. Empty where nothing tells, as behind an fsync during which power was lost.
    ///
    /// Two fsyncs of one file that run at once, or fsyncs without flushes (`nobarrier`), can leave the same.
    pub fn refsynced_behind(&mut self, end: End) -> Vec<BlockAddr> {
        let ranges = self.ranges_behind(end);
        let [behind_next, behind_last] =
            ranges.map(|mut range| range.find(|&addr| self.node_at(addr).is_some()));
        if let Some(start) = behind_next {
            let mut run = Run::default();
            self.walk(start, &mut |step| {
                if let Step::Node(addr, block) = step {
                    run.add(addr, block);
                }
            });
            if run.is_refsynced {
                return run.nodes;
            }
        }
        // An earlier crash may have left nodes there which the log passed by: they are none of it.
        let run = behind_last.map(|start| self.linked(start)).unwrap_or_default();
        if run.is_refsynced || !end.is_possible(self.geo) { run.nodes } else { Vec::new() }
    }

    /// All nodes behind the end of a log with seals, which tell what it lacks.
    pub fn nodes_behind(&mut self, end: End) -> Vec<BlockAddr> {
        let ranges = self.ranges_behind(end);
        ranges.into_iter().flatten().filter(|&addr| self.node_at(addr).is_some()).collect()
    }
}

/// Where a log seems to end.
#[derive(Debug, Clone, Copy)]
pub struct End {
    /// Its last node; `None` where it has none.
    pub last: Option<BlockAddr>,
    /// What that names as the next node, or where the log begins: no whole node of it, or one that it met before.
    pub next: BlockAddr,
    /// This log never leads there: it met that block before, or the last checkpoint has it in use, or has its segment
    /// as that of another log.
    pub is_taken: bool,
    /// The checksum of the last node says that it names that block.
    pub is_right: bool,
    /// How many blocks are looked at behind it, and how many free segments.
    pub most: usize,
}

impl End {
    /// Whether a log may go on behind that block.
    fn is_possible(&self, geo: &Geometry) -> bool {
        !self.is_taken && geo.in_main(self.next)
    }

    /// Whether the last node names the block behind it, as a log does that fills a segment.
    fn is_in_line(&self) -> bool {
        self.last.is_none_or(|last| last + 1 == self.next)
    }
}

/// Nodes in a row.
#[derive(Debug, Default)]
struct Run {
    nodes: Vec<BlockAddr>,
    fsynced: HashSet<Nid>,
    /// One of them was fsynced twice.
    is_refsynced: bool,
}

impl Run {
    fn add(&mut self, addr: BlockAddr, block: &Block) {
        self.nodes.push(addr);
        let f = footer(block);
        self.is_refsynced |= f.is_fsync() && !self.fsynced.insert(f.nid.get());
    }
}

/// A block in place of one of the log that cannot be read: it is of no file, and leads to the next node.
pub fn stand_in(version: ChainVersion, next: BlockAddr) -> Box<Block> {
    let mut block = Block::boxed();
    let footer = footer_mut(&mut block);
    footer.set_node_offset(1);
    (footer.cp_ver, footer.next_blkaddr) = (version.in_footers().into(), next.into());
    block
}

/// Files of nodes of the log, each with the last name that these give it; the name is empty where they give none.
pub type Files = BTreeMap<Ino, Vec<u8>>;

/// Adds the files of which a node makes something durable. `node_ino` is the reserved inode of the nodes,
/// where the volume has deltas.
pub fn add_files(files: &mut Files, addr: BlockAddr, block: &Block, node_ino: Option<Ino>) {
    for (ino, name) in files_of(addr, block, node_ino) {
        let known = files.entry(ino).or_default();
        if !name.is_empty() {
            *known = name;
        }
    }
}

/// The files of which a node makes something durable, each with the name that it gives it; the name is empty
/// where it gives none.
fn files_of(addr: BlockAddr, block: &Block, node_ino: Option<Ino>) -> Vec<(Ino, Vec<u8>)> {
    let f = footer(block);
    match node_ino.filter(|&node_ino| f.nid.get() == node_ino) {
        Some(node_ino) if is_removed_names(block, node_ino) => {
            let names = removed_names(block, addr).unwrap_or_default();
            names.iter().map(|name| (name.ino, Vec::new())).collect()
        }
        Some(node_ino) if is_shared(block, node_ino) => {
            let entries = entries(block, addr).unwrap_or_default();
            entries.iter().map(|entry| (entry.ino, Vec::new())).collect()
        }
        Some(_) => Vec::new(),
        None if !f.is_fsync() => Vec::new(),
        None => {
            let inode: &RawInode = block.view();
            let is_inode = f.nid == f.ino && f.node_offset() == 0;
            let name = inode.i_name.get(..inode.i_namelen.get() as usize).filter(|_| is_inode);
            vec![(f.ino.get(), name.unwrap_or_default().to_vec())]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::RawCheckpoint;
    use zerocopy::FromZeros;

    type Nodes = BTreeMap<BlockAddr, Box<Block>>;

    /// Of four segments, from block 1024 on.
    fn geometry() -> Geometry {
        Geometry {
            block_count: 6 * 512,
            segs_per_sec: 1,
            secs_per_zone: 1,
            section_count: 4,
            segment0_blkaddr: 512,
            cp_blkaddr: 512,
            sit_blkaddr: 512,
            nat_blkaddr: 512,
            ssa_blkaddr: 512,
            main_blkaddr: 1024,
            segment_count_main: 4,
            segment_count_sit: 2,
            segment_count_nat: 2,
            segment_count_ssa: 1,
            cp_payload: 0,
            root_ino: 3,
            node_ino: 1,
            meta_ino: 2,
        }
    }

    fn version() -> ChainVersion {
        let mut header = RawCheckpoint::new_zeroed();
        header.checkpoint_ver = 5.into();
        ChainVersion::of(&header, 0)
    }

    /// Fsynced nodes in a row, by their numbers.
    fn nodes(start: BlockAddr, nids: &[Nid]) -> Nodes {
        let node = |(addr, &nid): (BlockAddr, &Nid)| {
            let mut block = Block::boxed();
            let f = footer_mut(&mut block);
            (f.nid, f.ino, f.cp_ver, f.next_blkaddr) = (nid.into(), nid.into(), 5.into(), (addr + 1).into());
            f.set_fsync(true);
            (addr, block)
        };
        (start..).zip(nids).map(node).collect()
    }

    fn end(last: BlockAddr, next: BlockAddr, is_taken: bool) -> End {
        End { last: Some(last), next, is_taken, is_right: false, most: SEGMENT }
    }

    /// Asks a volume that has these nodes and is free otherwise.
    fn ask<T>(nodes: &Nodes, asks: impl FnOnce(&mut LogReader<'_>) -> T) -> T {
        let mut read = |addr: BlockAddr| nodes.get(&addr).cloned();
        let geo = geometry();
        asks(&mut LogReader { geo: &geo, version: version(), is_free: &mut |_| true, read: &mut read })
    }

    fn turned(nodes: &Nodes, end: End) -> Option<BlockAddr> {
        ask(nodes, |log| log.turned_next(end))
    }

    fn refsynced(nodes: &Nodes, end: End) -> usize {
        ask(nodes, |log| log.refsynced_behind(end)).len()
    }

    #[test]
    fn one_bit_of_the_next_nodes_address_is_turned_back() {
        let once = nodes(1031, &[7, 8, 9]);
        for bit in [9, 20, 31] {
            assert_eq!(turned(&once, end(1030, 1031 ^ 1 << bit, false)), Some(1031), "bit {bit}");
        }
        assert_eq!(turned(&once, end(1030, 1030, true)), Some(1031), "a loop");
        let right = End { is_right: true, ..end(1030, 1031 ^ 1 << 9, false) };
        assert_eq!(turned(&once, right), None, "a checksum says so");
        // A log may go on further behind, past what an earlier crash left: a second fsync tells.
        let (left, at) = (nodes(1032, &[7]), end(1031, 1033, false));
        assert_eq!((turned(&left, at), refsynced(&left, at)), (None, 0));
        assert_eq!(turned(&nodes(1032, &[7, 8, 7]), end(1031, 1036, false)), Some(1032));
        assert_eq!(turned(&nodes(1032, &[7, 8, 9]), end(1031, 1036, false)), None);
    }

    #[test]
    fn a_lost_node_is_told_by_a_file_that_was_fsynced_twice_behind_it() {
        for (last, next, start) in [(1030, 1031, 1032), (1030, 1031, 1200), (1534, 1535, 1536)] {
            let (once, twice) = (nodes(start, &[7, 8, 9]), nodes(start, &[7, 8, 7]));
            assert_eq!(turned(&twice, end(last, next, false)), None, "{start}");
            let found = [&once, &twice].map(|nodes| refsynced(nodes, end(last, next, false)));
            assert_eq!(found, [0, 3], "{start}");
            let all = ask(&once, |log| log.nodes_behind(end(last, next, false)));
            assert_eq!(all, [start, start + 1, start + 2]);
        }
        // Where no log goes on, one node is enough.
        let one = nodes(1040, &[7]);
        assert_eq!([end(1030, 1030, true), end(1030, u32::MAX, false)].map(|at| refsynced(&one, at)), [1, 1]);
        let first = End { last: None, ..end(0, 1031, false) };
        assert_eq!(refsynced(&nodes(1032, &[7, 7]), first), 2);
    }
}
