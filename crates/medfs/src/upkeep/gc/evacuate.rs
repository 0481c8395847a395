//! Moving what is valid out of a section.

use crate::error::{Error, Posix, Result};
use crate::file_ops::FileOps;
use crate::map::inode::Inode;
use medfs_format::node::{FileKind, Inline};
use medfs_format::path::first_page;
use medfs_format::sit::test_bit;
use medfs_format::summary::{Log, RawSummary, SUM_TYPE_NODE};
use medfs_format::{BLOCKS_PER_SEG, BlockAddr, FormatError, Ino, Nid, SegNo, Structure, is_block};
use medfs_store::node_offset;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Pages moved with one taking of the file's locks.
const BATCH: usize = 256;

/// A valid block of the segment, and who owns it by the segment's summary.
type Owned = (BlockAddr, RawSummary);

/// How far a section was emptied, nodes counted that the next checkpoint will write elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Emptied {
    Wholly,
    /// Something could not be moved now.
    InPart,
    /// Something cannot be read, or is not what it should be.
    Damaged,
}

/// Moves what is valid in sections of a volume elsewhere.
pub(super) struct Evacuation<'a> {
    pub(super) fs: &'a FileOps,
}

impl Evacuation<'_> {
    /// Moves the valid blocks of a section away, until something of it is found damaged.
    pub(super) fn evacuate(&self, section: u32) -> Result<Emptied> {
        let per = self.fs.geo.segs_per_sec;
        let mut all = Emptied::Wholly;
        for segno in section * per..(section + 1) * per {
            all = all.max(self.evacuate_segment(segno)?);
            if all == Emptied::Damaged {
                break;
            }
        }
        Ok(all)
    }

    fn evacuate_segment(&self, segno: SegNo) -> Result<Emptied> {
        let (blocks, holds_nodes) = {
            let mut segs = self.fs.segs.lock();
            if segs.valid_blocks(&self.fs.io, segno) == 0 {
                return Ok(Emptied::Wholly);
            }
            if segs.is_curseg(segno) {
                return Ok(Emptied::InPart);
            }
            let summary = segs.summary(&self.fs.io, segno)?;
            let e = segs.entry(&self.fs.io, segno)?;
            let holds_nodes = e.seg_type >= Log::HotNode as u8;
            if holds_nodes != (summary.footer.entry_type == SUM_TYPE_NODE) {
                let found = format!("{}, but the SIT says type {}", summary.footer.entry_type, e.seg_type);
                return Err(FormatError::corrupt(Structure::Summary, segno, "entry_type", found).into());
            }
            let start = self.fs.geo.seg_start(segno);
            let blocks: Vec<Owned> = (0..BLOCKS_PER_SEG)
                .filter(|&o| test_bit(&e.cur, o as usize))
                .map(|o| (start + o, summary.entries[o as usize]))
                .collect();
            (blocks, holds_nodes)
        };
        if holds_nodes { self.evacuate_nodes(&blocks) } else { self.evacuate_pages(&blocks) }
    }

    /// Marks nodes, so that the next checkpoint writes them elsewhere.
    fn evacuate_nodes(&self, blocks: &[Owned]) -> Result<Emptied> {
        let mut by_owner: BTreeMap<Ino, Vec<(BlockAddr, Nid)>> = BTreeMap::new();
        let mut all = Emptied::Wholly;
        for &(addr, summary) in blocks {
            let nid = summary.nid.get();
            match self.fs.nat.peek(&self.fs.io, nid) {
                Ok(entry) if entry.addr == addr => by_owner.entry(entry.ino).or_default().push((addr, nid)),
                Ok(_) | Err(medfs_store::Error::Corrupt(_)) => all = all.max(self.is_gone(addr, nid)?),
                Err(e) => return Err(e.into()),
            }
        }
        for (ino, nodes) in by_owner {
            let Some(inode) = self.owner(ino)? else {
                all = Emptied::Damaged;
                continue;
            };
            // The inode's lock keeps its nodes from being freed between the look and the mark.
            let _op = self.fs.op()?;
            let state = inode.lock.read();
            if state.dead {
                continue;
            }
            for (addr, nid) in nodes {
                if self.fs.nat.peek(&self.fs.io, nid)?.addr != addr {
                    continue;
                }
                let page = self.fs.nodes.get(&self.fs.io, &self.fs.nat, nid);
                match self.fs.pass_by("a damaged node is not moved", ino, page)? {
                    Some(page) => self.fs.nodes.mark(&page),
                    None => all = Emptied::Damaged,
                }
            }
        }
        Ok(all)
    }

    /// Writes pages of files to the cold data log.
    fn evacuate_pages(&self, blocks: &[Owned]) -> Result<Emptied> {
        let mut by_node: BTreeMap<Nid, Vec<Owned>> = BTreeMap::new();
        for &(addr, summary) in blocks {
            by_node.entry(summary.nid.get()).or_default().push((addr, summary));
        }
        let mut by_owner: BTreeMap<Ino, Vec<(u64, BlockAddr)>> = BTreeMap::new();
        let mut all = Emptied::Wholly;
        for (nid, blocks) in by_node {
            match self.pages_of_node(nid, &blocks) {
                Ok((ino, pages)) => by_owner.entry(ino).or_default().extend(pages),
                Err(Error::Corrupt(_) | Error::Posix(Posix::Stale)) => {
                    for (addr, _) in blocks {
                        all = all.max(self.is_gone(addr, nid)?);
                    }
                }
                Err(e) => return Err(e),
            }
        }
        for (ino, pages) in by_owner {
            match self.owner(ino)? {
                Some(inode) => all = all.max(self.evacuate_file(&inode, &pages)?),
                None => all = Emptied::Damaged,
            }
        }
        Ok(all)
    }

    /// The file a node belongs to, and the pages that blocks would be by their summaries.
    fn pages_of_node(&self, nid: Nid, blocks: &[Owned]) -> Result<(Ino, Vec<(u64, BlockAddr)>)> {
        let node = self.fs.nodes.get(&self.fs.io, &self.fs.nat, nid)?;
        let inode = self.fs.inode(node.ino)?;
        let offset = node_offset(&node);
        let first = first_page(offset, self.fs.slots(&inode).fanout()).ok_or_else(|| {
            FormatError::corrupt(Structure::Summary, nid, "nid", "names a node without addresses")
        })?;
        let pages = blocks.iter().map(|(addr, s)| (first + u64::from(s.ofs_in_node.get()), *addr)).collect();
        Ok((node.ino, pages))
    }

    /// Moves the pages of a file that are still where the summaries say.
    fn evacuate_file(&self, inode: &Arc<Inode>, pages: &[(u64, BlockAddr)]) -> Result<Emptied> {
        let has_blocks = matches!(inode.kind(), FileKind::Regular | FileKind::Directory | FileKind::Symlink);
        let inline = inode.raw(|r| r.inline());
        if !has_blocks || inline.intersects(Inline::DATA | Inline::DENTRY) {
            let mut all = Emptied::Wholly;
            for &(_, addr) in pages {
                all = all.max(self.is_gone(addr, inode.ino)?);
            }
            return Ok(all);
        }
        if inline.contains(Inline::PIN_FILE) {
            return Ok(Emptied::InPart);
        }
        let mut all = Emptied::Wholly;
        let mut indices = Vec::with_capacity(pages.len());
        {
            let state = inode.lock.read();
            if state.dead {
                return Ok(Emptied::Wholly);
            }
            for &(index, addr) in pages {
                match self.fs.find_slot(inode, index)? {
                    Some(slot) if slot.addr() == addr => indices.push(index),
                    _ => all = all.max(self.is_gone(addr, inode.ino)?),
                }
            }
        }
        indices.sort_unstable();
        for batch in indices.chunks(BATCH) {
            let moved = self.fs.move_pages(inode, batch, &self.fs.xref);
            if self.fs.pass_by("pages of a damaged file are not moved", inode.ino, moved)?.is_none() {
                return Ok(Emptied::Damaged);
            }
        }
        Ok(all)
    }

    /// The inode, unless it cannot be read, which leaves its blocks where they are.
    fn owner(&self, ino: Ino) -> Result<Option<Arc<Inode>>> {
        match self.fs.inode(ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(Error::Posix(Posix::Stale)) => Ok(None),
            inode => self.fs.pass_by("blocks of a damaged file are not moved", ino, inode),
        }
    }

    /// Whether a block that its recorded owner does not name is no longer valid: it was freed while we looked.
    /// A valid block without an owner is damage, and stays where it is.
    fn is_gone(&self, addr: BlockAddr, nid: Nid) -> Result<Emptied> {
        let valid = is_block(addr) && self.fs.segs.lock().is_valid(&self.fs.io, addr)?;
        if valid {
            tracing::warn!(addr, nid, "the owner of a valid block does not refer to it; run 'medfs fsck'");
        }
        Ok(if valid { Emptied::Damaged } else { Emptied::Wholly })
    }
}
