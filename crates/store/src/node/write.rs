//! Writing nodes: each gets its place in a log, its footer and checksum, and its NAT entry.
//!
//! Invariant: nodes are placed in the order in which they are given, so that roll-forward meets them in it.
//! Locks: `segs` and `nat`, one after the other, never across I/O.

use crate::Store;
use crate::error::Result;
use crate::node::NodePage;
use crate::segment::Spare;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::delta::RawNote;
use medfs_format::node::{RawInode, footer_mut};
use medfs_format::path::{NodeKind, node_kind};
use medfs_format::seal::Cover;
use medfs_format::summary::{Log, RawSummary};
use medfs_format::{Block, BlockAddr, Nid};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The marks of the moment in which a node block is written: in its footer, and notes.
#[derive(Debug, Clone, Copy, Default)]
pub struct NodeMarks<'a> {
    /// Whether roll-forward shall recover the inode up to here.
    pub fsync: bool,
    /// Whether it shall enter the name too.
    pub dentry: bool,
    /// Notes of an inode block about nodes that are not written with it.
    pub notes: &'a [RawNote],
    /// The blocks that the node is written with, where its seal is to say so.
    pub cover: Option<&'a Cover>,
}

impl Store {
    /// The log a node belongs to.
    fn node_log(block: &Block) -> Log {
        let f = medfs_format::node::footer(block);
        match node_kind(f.node_offset()) {
            NodeKind::Indirect => Log::ColdNode,
            _ if !f.is_cold() => Log::HotNode,
            _ => Log::WarmNode,
        }
    }

    /// Gives nodes their addresses and footers, in order, and writes them. The NAT is updated.
    /// The caller holds the `chain` lock or the operation lock exclusively. After an error those that had a
    /// place are written all the same, as the nodes before name their blocks; the caller marks all of them
    /// dirty again.
    pub fn write_in_order(&self, nodes: &[(Arc<NodePage>, Arc<Block>)], marks: NodeMarks<'_>) -> Result<()> {
        let mut placed = Vec::with_capacity(nodes.len());
        let outcome = self.place_nodes(nodes, marks, &mut placed);
        self.write_nodes(&placed)?;
        outcome
    }

    /// Gives nodes their addresses and footers, in order, and adds the sealed blocks to those that the caller
    /// writes, in this order and after an error too.
    pub fn place_nodes(
        &self,
        nodes: &[(Arc<NodePage>, Arc<Block>)],
        marks: NodeMarks<'_>,
        placed: &mut Vec<(BlockAddr, Box<Block>)>,
    ) -> Result<()> {
        let before = placed.len();
        self.nodes.note_placed();
        let outcome = nodes
            .iter()
            .try_for_each(|(page, content)| self.place_node(page, content.boxed_copy(), marks, placed));
        self.space.wrote((placed.len() - before) as u64);
        outcome
    }

    fn place_node(
        &self,
        page: &NodePage,
        mut block: Box<Block>,
        marks: NodeMarks<'_>,
        placed: &mut Vec<(BlockAddr, Box<Block>)>,
    ) -> Result<()> {
        if page.nid == page.ino {
            self.nodes.rules.write_notes(&mut block, marks.notes);
        }
        let now = self.elapsed();
        let log = Self::node_log(&block);
        let entry = self.nat.get(&self.io, page.nid)?;
        let owner = RawSummary { nid: page.nid.into(), version: entry.version, ofs_in_node: 0.into() };
        let mut segs = self.segs.lock();
        let addr = segs.replace(&self.io, log, owner, (now, Spare::Use), entry.addr)?;
        let next = segs.next_addr(log);
        drop(segs);
        match log {
            Log::WarmNode => {
                self.seal_in_chain(&mut block, marks.cover, |block| self.seal_node(block, next, marks));
            }
            _ => self.seal_node(&mut block, next, marks),
        }
        self.nat.set(page.nid, page.ino, addr, marks.fsync);
        placed.push((addr, block));
        Ok(())
    }

    /// Fills what a node's footer says of its place.
    pub fn fill_footer(&self, block: &mut Block, next: BlockAddr, marks: NodeMarks<'_>) {
        let f = footer_mut(block);
        f.cp_ver = self.cp_ver.load(Ordering::Acquire).into();
        f.next_blkaddr = next.into();
        f.set_fsync(marks.fsync);
        f.set_dentry(marks.dentry);
    }

    /// Fills what a node's footer says of its place and the inode's checksum.
    pub(crate) fn seal_node(&self, block: &mut Block, next: BlockAddr, marks: NodeMarks<'_>) {
        self.fill_footer(block, next, marks);
        let f = footer_mut(block);
        let is_inode = f.nid.get() == f.ino.get();
        if is_inode {
            block.view_mut::<RawInode>().seal(self.nodes.rules.seed);
        }
    }

    /// Seals a node that the chain goes on with, and gives it its checksum. The caller holds the `chain` lock
    /// or the operation lock exclusively.
    pub fn seal_in_chain(&self, block: &mut Block, cover: Option<&Cover>, checksum: impl FnOnce(&mut Block)) {
        match &self.seals {
            Some(seals) => {
                let claims = seals.seal(block, cover, self.io.durable_writes());
                checksum(block);
                seals.placed(block, claims);
            }
            None => checksum(block),
        }
    }

    /// Writes nodes that [`Store::place_nodes`] has placed.
    pub fn write_nodes(&self, placed: &[(BlockAddr, Box<Block>)]) -> Result<()> {
        let refs: Vec<(BlockAddr, &Block)> = placed.iter().map(|(a, b)| (*a, &**b)).collect();
        self.io.write_scattered(&refs, WriteTag::new(Cause::Node, Temperature::Warm))?;
        self.node_mark.fetch_max(self.io.write_mark(), Ordering::AcqRel);
        if let Some(seals) = &self.seals {
            seals.nodes_written(self.io.write_mark());
        }
        Ok(())
    }

    /// NAT version of a node, as summaries carry it.
    pub fn node_version(&self, nid: Nid) -> Result<u8> {
        Ok(self.nat.peek(&self.io, nid)?.version)
    }
}
