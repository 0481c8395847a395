//! Files whose inode is lost, made anew of their nodes and blocks: a node's footer says where it was in the file,
//! and the summaries say which blocks the inode itself named.
//!
//! What only the inode had is lost: mode, owner, times, attributes, and the size, for which that up to the last
//! page stands. How many addresses it held is taken from other files, or from the last of its own blocks. Where
//! the volume has compression only a file without holes is made anew, as no mark of a cluster is in it.
//!
//! Memory: an entry for each node of a lost inode, of which one pass takes [`MAX_NODES`].

use crate::finding::{Code, counted};
use crate::image::Image;
use crate::inode_layout::Layout;
use crate::maker::Maker;
use crate::names::is_encrypted;
use foldhash::{HashMap, HashMapExt};
use medfs_format::dentry::HIDDEN_LIST;
use medfs_format::nat::{ENTRIES_PER_BLOCK, RawNatBlock};
use medfs_format::node::{
    ADDRS_PER_BLOCK, EXTRA_ISIZE, FileKind, Inline, NIDS_PER_BLOCK, RawDirectNode, RawInode, footer,
};
use medfs_format::path::{Fanout, NodeKind, first_page, node_kind};
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Ino, NEW_ADDR, NULL_ADDR, Nid, delta};
use std::io;

/// Nodes of lost inodes taken up in one pass.
const MAX_NODES: usize = 1 << 20;
/// Files that are asked for the layout of their inodes.
const ASKED: u32 = 1000;
/// Places in a file's tree of the nodes that its inode names.
const BELOW_INODE: [u32; 5] = [1, 2, 3, 4 + NIDS_PER_BLOCK as u32, 5 + 2 * NIDS_PER_BLOCK as u32];

/// What is left of a file whose inode is lost.
struct Remains {
    /// Where the inode was.
    addr: BlockAddr,
    /// Its nodes but that of attributes, by their places in its tree.
    nodes: Vec<(u32, Nid)>,
    /// How many of its nodes are lost.
    lost_nodes: u64,
    /// The blocks that the inode named, by their slots.
    blocks: Vec<(u16, BlockAddr)>,
}

/// What the nodes of a file lead to.
struct Extent {
    /// The page behind the last one with a block.
    pages: u64,
    /// Addresses that are no holes, and the nodes.
    count: u64,
    /// Whether no page before the last one is a hole.
    dense: bool,
}

impl Image<'_> {
    /// What is left of a file whose inode is lost; `None` where it is not lost, or nothing is left.
    fn remains(&mut self, ino: Ino) -> io::Result<Option<Remains>> {
        let entry = self.nat(ino)?;
        let addr = entry.block_addr.get();
        if entry.ino.get() != ino || !self.is_lost_node(ino, addr)? {
            return Ok(None);
        }
        if self.lost_files.is_none() {
            self.lost_files = Some(self.find_lost_files()?);
        }
        let nids = self.lost_files.as_mut().and_then(|lost| lost.remove(&ino)).unwrap_or_default();
        let blocks = self.blocks_of_summaries(ino)?;
        let mut remains = Remains { addr, nodes: Vec::new(), lost_nodes: 0, blocks };
        for nid in nids {
            let addr = self.nat(nid)?.block_addr.get();
            let f = *footer(self.cache.get(addr)?);
            let is_whole = (f.nid.get(), f.ino.get()) == (nid, ino);
            remains.lost_nodes += u64::from(!is_whole);
            if is_whole && node_kind(f.node_offset()) != NodeKind::Xattr {
                remains.nodes.push((f.node_offset(), nid));
            }
        }
        remains.nodes.sort_unstable();
        remains.nodes.dedup_by_key(|(offset, _)| *offset);
        Ok((!remains.blocks.is_empty() || !remains.nodes.is_empty()).then_some(remains))
    }

    /// The nodes of all files whose inode is lost.
    fn find_lost_files(&mut self) -> io::Result<HashMap<Ino, Vec<Nid>>> {
        let mut lost: HashMap<Ino, Vec<Nid>> = HashMap::new();
        let mut asked = (NULL_ADDR, false);
        let mut count = 0;
        for index in 0..self.g.nat_blocks() {
            let (block, _) = self.nat_block(index)?;
            let first = index * ENTRIES_PER_BLOCK as u32;
            for (nid, entry) in (first..).zip(&block.view::<RawNatBlock>().entries) {
                let ino = entry.ino.get();
                let is_node = self.g.is_nid(nid) && self.g.in_main(entry.block_addr.get());
                if !is_node || !self.g.is_nid(ino) || ino == nid || count == MAX_NODES {
                    continue;
                }
                if asked.0 != ino {
                    let addr = self.nat(ino)?.block_addr.get();
                    asked = (ino, self.is_lost_node(ino, addr)?);
                }
                if asked.1 {
                    lost.entry(ino).or_default().push(nid);
                    count += 1;
                }
            }
        }
        Ok(lost)
    }

    /// What direct nodes and blocks of a file lead to, before `end`.
    fn extent(&mut self, remains: &Remains, fanout: Fanout, end: u64) -> io::Result<Extent> {
        let mut extent = Extent { pages: 0, count: 1 + remains.nodes.len() as u64, dense: true };
        let mut add = |page: u64, addr: BlockAddr| {
            extent.count += 1;
            if addr != NEW_ADDR && page < end {
                extent.dense &= page == extent.pages;
                extent.pages = page + 1;
            }
        };
        remains.blocks.iter().for_each(|&(slot, addr)| add(slot.into(), addr));
        for &(offset, nid) in &remains.nodes {
            let Some(first) = first_page(offset, fanout) else { continue };
            let addr = self.nat(nid)?.block_addr.get();
            let node: &RawDirectNode = self.cache.get(addr)?.view();
            let addrs = (first..first + ADDRS_PER_BLOCK as u64).zip(node.addr.map(|addr| addr.get()));
            addrs.filter(|(_, addr)| *addr != NULL_ADDR).for_each(|(page, addr)| add(page, addr));
        }
        Ok(extent)
    }
}

impl Maker<'_, '_> {
    /// An inode for a file that an entry names and whose own is lost, with its block; `None` where it is not lost, or
    /// nothing of the file is left, or nobody could tell what that is.
    pub(crate) fn file_of_remains(
        &mut self,
        ino: Ino,
        parent: Ino,
        name: &[u8],
        place: &str,
    ) -> io::Result<Option<(BlockAddr, Box<Block>)>> {
        if self.logged.contains_key(&ino) || !self.is_lost(ino)? || self.is_own_list(parent, name) {
            return Ok(None);
        }
        let Some((_, above)) = self.readable_inode(parent)? else { return Ok(None) };
        let above: &RawInode = above.view();
        if is_encrypted(above) {
            return Ok(None); // the key is among the lost attributes
        }
        let Some(remains) = self.image.remains(ino)? else { return Ok(None) };
        let layout = self.layout_of(&remains)?;
        let flexible = self.rules.flexible();
        let mut block = Block::boxed();
        let inode: &mut RawInode = block.view_mut();
        layout.set(inode);
        let slots = inode.slots(flexible);
        let end = if self.has_zones() { delta::compact_start(slots.fanout()) } else { u64::MAX };
        let extent = self.image.extent(&remains, slots.fanout(), end)?;
        if self.image.features.contains(Feature::COMPRESSION) && !extent.dense {
            return Ok(None);
        }
        inode.i_mode = (FileKind::Regular.mode_bits() | 0o600).into();
        inode.i_links = 1.into();
        (inode.i_uid, inode.i_gid) = (above.i_uid, above.i_gid);
        (inode.i_atime, inode.i_ctime, inode.i_mtime) = (above.i_mtime, above.i_mtime, above.i_mtime);
        inode.i_size = (extent.pages * BLOCK_SIZE as u64).into();
        inode.i_blocks = extent.count.into();
        inode.i_pino = parent.into();
        inode.i_namelen = (name.len() as u32).into();
        inode.i_name[..name.len()].copy_from_slice(name);
        for &(slot, addr) in remains.blocks.iter().filter(|(slot, _)| usize::from(*slot) < slots.area()) {
            inode.i_addr[slots.extra + usize::from(slot)] = addr.into();
        }
        for &(offset, nid) in &remains.nodes {
            if let Some(at) = BELOW_INODE.iter().position(|below| *below == offset) {
                inode.i_nid[at] = nid.into();
            }
        }
        self.image.sign(&mut block, ino, ino, 0);
        self.tell_remains(ino, &remains, &extent, slots.area(), place);
        self.anew.files.insert(ino);
        let new = if self.fix { self.replace_inode(ino, &mut block)? } else { None };
        if new.is_none() {
            self.write_inode(remains.addr, &mut block)?; // the volume is full, or it is a check
        }
        Ok(Some((new.unwrap_or(remains.addr), block)))
    }

    /// Whether it is the list of slices, which a repair makes anew as a whole.
    fn is_own_list(&self, parent: Ino, name: &[u8]) -> bool {
        self.has_zones() && parent == self.image.g.root_ino && name == HIDDEN_LIST
    }

    fn tell_remains(&mut self, ino: Ino, remains: &Remains, extent: &Extent, area: usize, place: &str) {
        let own = extent.pages.min(area as u64);
        let missing =
            if self.image.all_summaries { 0 } else { own.saturating_sub(remains.blocks.len() as u64) };
        let mut text = format!(
            "{place}: inode {ino} is lost; a repair makes it again from {} and {}, with a size up to its last page, \
             {}; mode, owner, times and attributes are lost",
            counted(remains.nodes.len() as u64, "node"),
            counted(remains.blocks.len() as u64, "block"),
            extent.pages * BLOCK_SIZE as u64,
        );
        if missing > 0 {
            text += &format!(
                "; {} at its beginning may be missing",
                counted(missing * BLOCK_SIZE as u64, "byte")
            );
        }
        if remains.lost_nodes > 0 {
            text += &format!("; what {} led to is missing", counted(remains.lost_nodes, "node"));
        }
        if self.has_zones() {
            text += "; what deltas in the inode changed or added is lost";
        }
        self.findings.add(Code::FileRebuilt, text);
        self.losses.rebuilt += 1;
        self.losses.cut += u64::from(missing + remains.lost_nodes > 0);
        if missing > 0 {
            let held = |page: u64| remains.blocks.iter().any(|(slot, _)| u64::from(*slot) == page);
            (0..own).filter(|page| !held(*page)).for_each(|page| self.cuts.add(ino, page, 1));
        }
    }

    /// The layout that an inode had, as far as can be told.
    fn layout_of(&mut self, remains: &Remains) -> io::Result<Layout> {
        let flexible = self.rules.flexible();
        let top = remains.blocks.last().map_or(0, |(slot, _)| usize::from(*slot) + 1);
        if self.anew.layouts.is_none() {
            self.anew.layouts = Some(self.layouts_of_others()?);
        }
        let known = self.anew.layouts.as_deref().unwrap_or_default();
        let exact = known.iter().find(|layout| !remains.nodes.is_empty() && layout.area(flexible) == top);
        let fits = exact.or_else(|| known.iter().find(|layout| layout.area(flexible) >= top));
        let widest = || {
            let has_extra = self.rules.features.contains(Feature::EXTRA_ATTR);
            match has_extra {
                true => {
                    Layout { inline: Inline::EXTRA_ATTR.bits(), extra_isize: EXTRA_ISIZE, inline_xattr: 0 }
                }
                false => Layout { inline: 0, extra_isize: 0, inline_xattr: 0 },
            }
        };
        Ok(fits.copied().unwrap_or_else(widest))
    }

    /// The layouts of the volume's files, those of most of them first.
    fn layouts_of_others(&mut self) -> io::Result<Vec<Layout>> {
        let mut counts: HashMap<Layout, u32> = HashMap::new();
        let mut asked = 0;
        self.each_node(|w, nid| {
            let addr = w.image.nat(nid)?.block_addr.get();
            if asked == ASKED || !w.image.g.in_main(addr) {
                return Ok(());
            }
            let f = *footer(w.image.cache.get(addr)?);
            if (f.nid.get(), f.ino.get()) != (nid, nid) {
                return Ok(());
            }
            let mut inode = Box::new(w.image.cache.get(addr)?.view::<RawInode>().clone());
            let is_file = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Regular);
            if is_file && !w.rules.is_doubtful(&inode) && w.rules.vet(&mut inode, nid).is_ok() {
                asked += 1;
                *counts.entry(Layout::of(&inode)).or_default() += 1;
            }
            Ok(())
        })?;
        let mut layouts: Vec<_> = counts.into_iter().collect();
        layouts.sort_unstable_by_key(|(layout, count)| (std::cmp::Reverse(*count), layout.inline_xattr));
        Ok(layouts.into_iter().map(|(layout, _)| layout).collect())
    }
}
