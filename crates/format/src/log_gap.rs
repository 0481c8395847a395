//! The fsync log past blocks of it that cannot be read.
//!
//! Each node of the log names the next one, and a lost node takes that with it. The nodes behind it are known
//! by their footers: they carry the version of the checkpoint in force.
//!
//! Invariant: a walk takes up no node twice, and looks through the main area at most once for each gap.

use crate::checkpoint::ChainVersion;
use crate::flip::Bit;
use crate::footer::{footer, footer_mut};
use crate::node::{Layouts, RawInode};
use crate::removed::{is_removed_names, removed_names};
use crate::shared::{self, entries, is_shared};
use crate::{BLOCKS_PER_SEG, Block, BlockAddr, Geometry, Ino, SegNo};
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

/// Blocks behind the end of a log without seals in which nodes of it are looked for.
const LOOKED_AT_BEHIND: usize = 64;

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
    /// The one bit that, turned back, makes a block of the log the sealed node that it was: its own checksum tells it
    /// from one that was stored in part, and from a block that was there before.
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
        [of_chain, of_inode].into_iter().flatten().find(|bit| {
            let mut mended = Box::new(block.clone());
            bit.flip(&mut mended);
            version.belongs(footer(&mended).cp_ver.get()) && self.is_whole(&mended)
        })
    }

    /// Whether a block of the log is a node that was stored in part: its checksum is wrong.
    pub fn is_torn(self, block: &Block) -> bool {
        self.is_right(block) == Some(false)
    }

    /// Whether a block is a node with a checksum, which is right.
    fn is_whole(self, block: &Block) -> bool {
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

/// Follows the log from a block on, also past blocks that cannot be read. `read` gives `None` for these.
pub fn walk(
    geo: &Geometry,
    start: BlockAddr,
    version: ChainVersion,
    is_free: &mut dyn FnMut(SegNo) -> bool,
    read: &mut dyn FnMut(BlockAddr) -> Option<Box<Block>>,
    met: &mut dyn FnMut(Step<'_>),
) {
    let (mut addr, mut seen) = (start, HashSet::new());
    while geo.in_main(addr) && seen.insert(addr) {
        let next = match read(addr) {
            Some(block) if version.belongs(footer(&block).cp_ver.get()) => {
                met(Step::Node(addr, &block));
                footer(&block).next_blkaddr.get()
            }
            Some(_) => return,
            None => {
                let Some(next) = node_behind(geo, addr, version, is_free, read) else { return };
                let is_near = geo.segno(next) == geo.segno(addr) && next > addr;
                met(Step::Gap(addr..if is_near { next } else { addr + 1 }, next));
                next
            }
        };
        addr = next;
    }
}

/// The next node of the log behind a block that cannot be read: in its segment or, where the block is the
/// last of it, in another one. `None`: the block is taken for the one that was being written when power was
/// lost. `read` gives `None` for a block that cannot be read.
pub fn node_behind(
    geo: &Geometry,
    addr: BlockAddr,
    version: ChainVersion,
    is_free: &mut dyn FnMut(SegNo) -> bool,
    read: &mut dyn FnMut(BlockAddr) -> Option<Box<Block>>,
) -> Option<BlockAddr> {
    let mut node = |addr| {
        let block = read(addr)?;
        version.belongs(footer(&block).cp_ver.get()).then(|| *footer(&block))
    };
    let mut rest = geo.rest_of_segment(addr);
    if !rest.is_empty() {
        return rest.find(|&behind| node(behind).is_some());
    }
    let (mut starts, mut named) = (Vec::new(), HashSet::new());
    for segno in (0..geo.segment_count_main).filter(|&segno| is_free(segno)) {
        let start = geo.seg_start(segno);
        if node(start).is_none() {
            continue;
        }
        // Other logs go on in free segments too.
        let nodes: Vec<_> = (start..start + BLOCKS_PER_SEG).filter_map(&mut node).collect();
        if nodes.iter().any(|footer| footer.is_fsync()) {
            starts.push(start);
            named.extend(nodes.last().map(|last| last.next_blkaddr.get()));
        }
    }
    // Of several segments of the log the first is the one that no other leads to.
    starts.iter().copied().find(|start| !named.contains(start)).or(starts.first().copied())
}

/// The nodes behind the block at which a log without seals ends, where they tell that the device lost or changed what
/// it had reported as stored. A node among them was fsynced twice, and the first of these fsyncs had returned, with all
/// that was fsynced before. Empty where nothing tells, as behind an fsync during which power was lost. `read` gives
/// `None` for a block that is no whole node.
///
/// Two fsyncs of one file that run at once, or fsyncs without flushes (`nobarrier`), can leave the same.
pub fn refsynced_behind(
    geo: &Geometry,
    end: BlockAddr,
    version: ChainVersion,
    is_free: &mut dyn FnMut(SegNo) -> bool,
    read: &mut dyn FnMut(BlockAddr) -> Option<Box<Block>>,
) -> Vec<BlockAddr> {
    let mut is_node =
        |&addr: &BlockAddr| read(addr).is_some_and(|block| version.belongs(footer(&block).cp_ver.get()));
    let rest = if geo.in_main(end) { geo.rest_of_segment(end) } else { 0..0 };
    let Some(start) = rest.take(LOOKED_AT_BEHIND).find(|addr| is_node(addr)) else { return Vec::new() };
    let (mut nodes, mut fsynced, mut is_twice) = (Vec::new(), HashSet::new(), false);
    walk(geo, start, version, is_free, read, &mut |step| {
        if let Step::Node(addr, block) = step {
            nodes.push(addr);
            let f = footer(block);
            is_twice |= f.is_fsync() && !fsynced.insert(f.nid.get());
        }
    });
    if is_twice { nodes } else { Vec::new() }
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
