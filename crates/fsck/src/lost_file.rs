//! Files whose inode is lost, made anew of what is left of them ([`crate::remains`]).
//!
//! What only the inode had is lost: mode, owner, times, attributes, and the size, for which that up to the last
//! page stands. How many addresses it held an older copy of it says ([`crate::old_inode`]), or other files, or the
//! last of its own blocks. Which clusters were compressed their content says ([`crate::lost_clusters`]). A file
//! with compact pages gets an empty zone, so that they count.

use crate::finding::{Code, counted};
use crate::inode_layout::{KnownLayout, Layout};
use crate::judgement::Judgement;
use crate::lengths::are_hashed;
use crate::lost_clusters::{LostClusters, Stored};
use crate::maker::Maker;
use crate::names::is_encrypted;
use crate::remains::{Extent, Remains};
use foldhash::{HashMap, HashMapExt};
use medfs_format::dentry::{Area, AreaLayout, HIDDEN_LIST, is_blank};
use medfs_format::node::{
    DEF_ADDRS_PER_INODE, DEFAULT_INLINE_XATTR_ADDRS, EXTRA_ISIZE, FileFlags, FileKind, Inline,
    MAX_INLINE_XATTR_ADDRS, RawInode, footer,
};
use medfs_format::path::BELOW_INODE;
use medfs_format::superblock::Feature;
use medfs_format::xattr::{self, HEADER_SIZE, NameIndex, XattrEntry};
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Ino, NEW_ADDR, NULL_ADDR, delta, quota};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use zerocopy::IntoBytes;

/// Files that are asked for the layout of their inodes.
const ASKED: u32 = 1000;
/// Bytes around the zone in an inline area: the header of the area, of the zone's entry, and the end.
const AROUND_ZONE: usize = HEADER_SIZE + 4 + 4;

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
        match self.readable_inode(parent)? {
            // The key is among the lost attributes.
            Some((_, above)) if is_encrypted(above.view()) => return Ok(None),
            None if !name.is_empty() => return Ok(None),
            _ => {}
        }
        let Some(remains) = self.image.remains(ino)? else { return Ok(None) };
        let compact = match self.has_zones() {
            true => self.image.compact_records_of(ino, &remains)?,
            false => None,
        };
        let mut block = self.new_file(FileKind::Regular, parent, name)?;
        let inode: &mut RawInode = block.view_mut();
        let Some((cuts, keeps)) = self.fill_slots(&remains, compact.as_ref(), inode)? else {
            return Ok(None);
        };
        for &(offset, nid) in &remains.nodes {
            if let Some(at) = BELOW_INODE.iter().position(|below| *below == offset) {
                inode.i_nid[at] = nid.into();
            }
        }
        let slots = inode.slots(self.rules.flexible());
        let end = if compact.is_some() { delta::compact_start(slots.fanout()) } else { u64::MAX };
        let extent = self.image.extent(inode, &remains.nodes, end)?;
        inode.i_size = (extent.pages * BLOCK_SIZE as u64).into();
        inode.i_blocks = extent.count.into();
        if let Some(extra) = inode.extra_mut().filter(|_| slots.cluster > 1) {
            extra.i_compr_blocks = extent.saved.into();
        }
        let held: BTreeSet<u64> = (0..)
            .zip(&inode.i_addr[slots.extra..][..slots.addrs()])
            .filter(|(_, addr)| addr.get() != NULL_ADDR)
            .map(|(page, _)| page)
            .collect();
        self.image.sign(&mut block, ino, ino, 0);
        cuts.into_iter().for_each(|cut| self.cuts.add(ino, cut.start, cut.end - cut.start));
        self.tell_remains(ino, &remains, &extent, (slots.addrs(), &held), keeps, place);
        if self.has_zones() && !keeps {
            self.reverted.insert(ino, None);
        }
        self.anew.files.insert(ino);
        if !name.is_empty() {
            self.anew.places.insert(ino, (parent, name.to_vec()));
        }
        let new = if self.fix { self.replace_inode(ino, &mut block)? } else { None };
        if new.is_none() {
            self.write_inode(remains.addr, &mut block)?; // the volume is full, or it is a check
        }
        Ok(Some((new.unwrap_or(remains.addr), block)))
    }

    /// An inode of a file of which nothing is known but its name: owner and times are those of the directory.
    pub(crate) fn new_file(&mut self, kind: FileKind, parent: Ino, name: &[u8]) -> io::Result<Box<Block>> {
        let above = self.readable_inode(parent)?.map_or_else(Block::boxed, |(_, above)| above);
        let above: &RawInode = above.view();
        let perm = if kind == FileKind::Symlink { 0o777 } else { 0o600 };
        let mut block = Block::boxed();
        let inode: &mut RawInode = block.view_mut();
        inode.i_mode = (kind.mode_bits() | perm).into();
        (inode.i_links, inode.i_blocks) = (1.into(), 1.into());
        (inode.i_uid, inode.i_gid) = (above.i_uid, above.i_gid);
        (inode.i_atime, inode.i_ctime, inode.i_mtime) = (above.i_mtime, above.i_mtime, above.i_mtime);
        inode.i_pino = parent.into();
        inode.i_namelen = (name.len() as u32).into();
        inode.i_name[..name.len()].copy_from_slice(name);
        Ok(block)
    }

    /// The layout of an inode without its head: by its attributes, or as of most files.
    pub(crate) fn layout_of_inode(&mut self, block: &Block, ino: Ino) -> io::Result<Layout> {
        if let Some(known) = self.layout_of_left(block, ino) {
            return Ok(known);
        }
        if self.anew.layouts.is_none() {
            self.anew.layouts = Some(self.layouts_of_others()?);
        }
        let mut without = self.anew.layouts.iter().flatten().filter(|known| !known.has_nodes);
        Ok(without.next().map_or(self.possible_layouts()[0], |known| known.layout))
    }

    /// Whether something is left of a lost inode that no entry names, and it was a file of users: neither a directory
    /// nor a quota file.
    pub(crate) fn leaves_a_file(&mut self, ino: Ino) -> io::Result<bool> {
        if !self.is_lost(ino)? || !self.image.has_remains(ino)? || self.is_parent(ino)? {
            return Ok(false);
        }
        // A block of zeros, as which one is taken that cannot be read, says nothing.
        let mut blocks = self.image.lost_blocks()?.get(&ino).cloned().unwrap_or_default();
        blocks.sort_unstable();
        for (slot, addr) in blocks {
            let block = self.image.cache.get(addr)?;
            if is_blank(block) {
                continue;
            }
            let magic = u32::from_le_bytes(block.0[..4].try_into().expect("four bytes"));
            let area = Area::new(AreaLayout::BLOCK, &block.0[..]);
            let is_quota = slot == 0 && quota::MAGICS.contains(&magic);
            return Ok(!is_quota && !area.begins_with_dot(ino) && !are_hashed(&area));
        }
        Ok(true)
    }

    /// Whether it is the list of slices, which a repair makes anew as a whole ([`crate::own_list`]).
    pub(crate) fn is_own_list(&self, parent: Ino, name: &[u8]) -> bool {
        self.has_zones() && parent == self.image.g.root_ino && name == HIDDEN_LIST
    }

    /// Divides an inode, and fills its slots with the addresses that it had; pages of which nothing can be told, and
    /// whether it keeps inline attributes. `None` where it cannot be told how the file was stored.
    fn fill_slots(
        &mut self,
        remains: &Remains,
        compact: Option<&BTreeSet<u32>>,
        inode: &mut RawInode,
    ) -> io::Result<Option<(Vec<Range<u64>>, bool)>> {
        let flexible = self.rules.flexible();
        let mut addrs = vec![NULL_ADDR; DEF_ADDRS_PER_INODE];
        let in_inode = |(slot, _): &&(u16, BlockAddr)| usize::from(*slot) < DEF_ADDRS_PER_INODE;
        remains.blocks.iter().filter(in_inode).for_each(|&(slot, addr)| addrs[usize::from(slot)] = addr);
        let stored = match self.image.features.contains(Feature::COMPRESSION) {
            true => {
                let Judgement { image, compressors, .. } = &mut **self;
                LostClusters { image, compressors }.find(&mut addrs, remains)?
            }
            false => Stored::Plain,
        };
        let (compression, cuts) = match stored {
            Stored::Plain => (None, Vec::new()),
            Stored::Compressed(compression, cuts) => (Some(compression), cuts),
            Stored::Unknown => return Ok(None),
        };
        let cluster = compression.map_or(1, |compression| compression.cluster_pages());
        let name = &inode.i_name[..inode.i_namelen.get() as usize];
        let layout = self.layout_of(remains, name, cluster, compact.is_some())?;
        layout.set(inode);
        let left = remains.left.as_ref();
        let kept = left.and_then(|left| Some((left, layout.attributes_in(left, remains.ino, flexible)?)));
        if let Some((left, range)) = kept.clone() {
            inode.as_mut_bytes()[range.clone()].copy_from_slice(&left.0[range]);
            inode.i_inline |= Inline::XATTR.bits();
        }
        if compression.is_none() && self.anew.compresses {
            let Judgement { image, compressors, .. } = &mut **self;
            if !(LostClusters { image, compressors }).is_place_sure(remains, layout.area(flexible))? {
                return Ok(None);
            }
        }
        if let Some(compression) = compression {
            inode.i_flags = (inode.flags() | FileFlags::COMPR).bits().into();
            if !compression.store(inode) {
                return Ok(None);
            }
        }
        let slots = inode.slots(flexible);
        for (slot, addr) in addrs.into_iter().enumerate().take(slots.addrs()) {
            inode.i_addr[slots.extra + slot] = addr.into();
        }
        if let Some(pages) = compact.filter(|_| kept.is_some() || add_zone(inode, flexible)) {
            // A page that is made of zeros has no block, and its slot is reserved.
            for slot in pages.iter().map(|&page| page as usize).filter(|&page| page < slots.addrs()) {
                let addr = &mut inode.i_addr[slots.extra + slot];
                if addr.get() == NULL_ADDR && cluster == 1 {
                    *addr = NEW_ADDR.into();
                }
            }
        }
        Ok(Some((cuts, kept.is_some())))
    }

    fn tell_remains(
        &mut self,
        ino: Ino,
        remains: &Remains,
        extent: &Extent,
        (area, held): (usize, &BTreeSet<u64>),
        keeps: bool,
        place: &str,
    ) {
        let own = extent.pages.min(area as u64);
        let missing: Vec<u64> = match self.image.all_summaries {
            true => Vec::new(),
            false => (0..own).filter(|page| !held.contains(page)).collect(),
        };
        let mut text = format!(
            "{place}: inode {ino} is lost; a repair makes it again from {} and {}, with a size up to its last page, \
             {}; mode, owner, times{} are lost",
            counted(remains.nodes.len() as u64, "node"),
            counted(remains.blocks.len() as u64, "block"),
            extent.pages * BLOCK_SIZE as u64,
            if keeps { "" } else { " and attributes" },
        );
        if !missing.is_empty() {
            let bytes = missing.len() as u64 * BLOCK_SIZE as u64;
            text += &format!("; {} at its beginning may be missing", counted(bytes, "byte"));
        }
        if remains.lost_nodes > 0 {
            text += &format!("; what {} led to is missing", counted(remains.lost_nodes, "node"));
        }
        if self.has_zones() && !keeps {
            text += "; what deltas in the inode changed or added is lost";
        }
        self.findings.add(Code::FileRebuilt, text);
        self.losses.rebuilt += 1;
        self.losses.cut += u64::from(!missing.is_empty() || remains.lost_nodes > 0);
        missing.into_iter().for_each(|page| self.cuts.add(ino, page, 1));
    }

    /// The layout that an inode had, as far as can be told, of a file whose clusters have so many pages.
    fn layout_of(
        &mut self,
        remains: &Remains,
        name: &[u8],
        cluster: usize,
        zone: bool,
    ) -> io::Result<Layout> {
        let flexible = self.rules.flexible();
        let top = remains.blocks.last().map_or(0, |(slot, _)| usize::from(*slot) + 1);
        if self.anew.layouts.is_none() {
            self.anew.layouts = Some(self.layouts_of_others()?);
        }
        let has_nodes = !remains.nodes.is_empty();
        if let Some(known) = remains.left.as_ref().and_then(|left| self.layout_of_left(left, remains.ino)) {
            return Ok(known);
        }
        let old = if has_nodes { self.old_layout(remains.ino, name)? } else { None };
        let (alike, unlike): (Vec<_>, Vec<_>) =
            self.anew.layouts.iter().flatten().partition(|known| known.has_nodes == has_nodes);
        let fits = |layout: &&Layout| {
            let whole = layout.area(flexible) / cluster * cluster;
            whole >= top
                && (!zone || layout.inline_xattr_bytes(flexible) >= AROUND_ZONE + delta::ZONE_HEADER_SIZE)
        };
        // The last cluster of an inode that is full may have fewer blocks than pages.
        let is_full =
            |layout: &&Layout| has_nodes && layout.area(flexible) / cluster * cluster < top + cluster;
        let others = self.possible_layouts();
        if let Some(old) = old.filter(|old| fits(&old)) {
            return Ok(old);
        }
        let all = || {
            alike.iter().chain(&unlike).map(|known: &&KnownLayout| &known.layout).chain(&others).filter(fits)
        };
        Ok(all().find(is_full).or_else(|| all().next()).copied().unwrap_or(others[0]))
    }

    /// How inodes can be divided on the volume: with the widest area for addresses, and with inline attributes.
    fn possible_layouts(&self) -> [Layout; 2] {
        let has_extra = self.rules.features.contains(Feature::EXTRA_ATTR);
        let (extra, extra_isize) =
            if has_extra { (Inline::EXTRA_ATTR, EXTRA_ISIZE) } else { (Inline::empty(), 0) };
        let sizes = if self.rules.flexible() { [0, DEFAULT_INLINE_XATTR_ADDRS as u16] } else { [0, 0] };
        let inline = [extra, extra | Inline::XATTR];
        [0, 1].map(|i| Layout { inline: inline[i].bits(), extra_isize, inline_xattr: sizes[i] })
    }

    /// The layout of an inode without its head: attributes are whole at one place alone.
    fn layout_of_left(&self, left: &Block, ino: Ino) -> Option<Layout> {
        let flexible = self.rules.flexible();
        let [_, with] = self.possible_layouts();
        let most = if flexible { MAX_INLINE_XATTR_ADDRS as u16 } else { 0 };
        let mut fitting = (0..=most)
            .map(|inline_xattr| Layout { inline_xattr, ..with })
            .filter(|layout| layout.attributes_in(left, ino, flexible).is_some());
        fitting.next().filter(|_| fitting.next().is_none())
    }

    /// The layouts of the volume's files, those of most of them first.
    fn layouts_of_others(&mut self) -> io::Result<Vec<KnownLayout>> {
        let mut counts: HashMap<KnownLayout, u32> = HashMap::new();
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
                w.anew.compresses |= w.rules.has_compression() && inode.compression().is_some();
                let known = KnownLayout { layout: Layout::of(&inode), has_nodes: inode.has_nodes() };
                *counts.entry(known).or_default() += 1;
            }
            Ok(())
        })?;
        let mut layouts: Vec<_> = counts.into_iter().collect();
        layouts.sort_unstable_by_key(|(known, count)| (std::cmp::Reverse(*count), known.layout.inline_xattr));
        Ok(layouts.into_iter().map(|(known, _)| known).collect())
    }
}

/// Gives an inode an empty zone that says that there are compact pages; `false` where it has no room.
fn add_zone(inode: &mut RawInode, flexible: bool) -> bool {
    let range = inode.slots(flexible).inline_xattr_range();
    let Some(room) = range.len().checked_sub(AROUND_ZONE).filter(|&room| room >= delta::ZONE_HEADER_SIZE)
    else {
        return false;
    };
    let mut value = delta::empty_zone(room);
    delta::set_compact(&mut value, true, 0);
    inode.i_inline |= Inline::XATTR.bits();
    let entry = XattrEntry { index: NameIndex::Delta as u8, name: Vec::new(), value };
    xattr::write(&mut inode.as_mut_bytes()[range], &[entry])
}
