//! Where new blocks and node ids come from.
//!
//! New blocks come only from segments that are free in the last checkpoint, were not reached by the walk,
//! hold nothing of the fsync log, and nothing of nodes that the walk may still reach, whatever SIT says of
//! them: a crash before the new checkpoint loses nothing. Memory: an entry for each segment with nodes that
//! were not reached.

use crate::finding::Findings;
use crate::image::{Curseg, Image};
use crate::lost_log;
use crate::no_pack;
use crate::pack::empty_summary;
use crate::slots::has_no_addresses;
use foldhash::{HashSet, HashSetExt};
use medfs_format::node::{RawDirectNode, RawInode, footer};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::summary::LOG_COUNT;
use medfs_format::{BLOCKS_PER_SEG, BlockAddr, Nid, SegNo};
use std::io;

/// Where new blocks come from: a free segment for data and one for nodes.
#[derive(Default)]
pub(crate) struct Supply {
    pub(crate) data: Option<(SegNo, u32)>,
    pub(crate) node: Option<(SegNo, u32)>,
    /// Segments handed out or reserved.
    pub(crate) taken: HashSet<SegNo>,
    /// Node ids that must not be handed out.
    pub(crate) nids: HashSet<Nid>,
    /// Segments with blocks of nodes that the walk had not reached when the first new block was wanted.
    pub(crate) unreached: Option<HashSet<SegNo>>,
    /// No segment and no node id below these is free.
    pub(crate) next_segment: SegNo,
    pub(crate) next_nid: Nid,
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
    /// Finds what only the journals led to, and lets the logs begin in segments that hold nothing; that of warm nodes
    /// where the fsync log begins, if one is found. Whether all of them found a place.
    pub(crate) fn begin_logs(&mut self, findings: &mut Findings) -> io::Result<bool> {
        let log = lost_log::find(self)?;
        self.find_strays(findings)?;
        let mut used = match log {
            Some(start) => lost_log::segments(self, start)?,
            None => {
                no_pack::raise_version(self);
                HashSet::new()
            }
        };
        let mut nodes = self.doubtful();
        for index in 0..self.g.nat_blocks() {
            nodes.extend(self.nodes_in(index)?.iter().map(|(nid, entry)| (*nid, entry.block_addr.get())));
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
            return Ok(false);
        }
        log.map_or(Ok(()), |start| lost_log::begin_at(self, start))?;
        Ok(true)
    }

    /// Lets the next log begin at the start of a segment, of which all is known where it is empty.
    pub(crate) fn begin_log(&mut self, segno: SegNo, empty: bool) {
        let sum = empty_summary(self.cursegs.len() >= LOG_COUNT / 2);
        self.cursegs.push(Curseg { segno, blkoff: 0, alloc_type: 0, sum, known: empty });
    }
}
