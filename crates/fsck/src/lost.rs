//! New entries in directories, and lost+found: what nothing refers to gets a name again.
//!
//! New blocks come only from segments that are free in the last checkpoint, were not reached by the walk and hold
//! nothing of the fsync log, so that a crash before the new checkpoint loses nothing.

use crate::dir::right_place;
use crate::space::Owner;
use crate::walk::{Verdict, Via, Walker};
use foldhash::HashSet;
use medfs_device::Cause;
use medfs_format::dentry::{Area, AreaLayout, bucket_blocks, bucket_start, buckets, slots_for};
use medfs_format::hash::dentry_hash;
use medfs_format::nat::{self, RawNatBlock, RawNatEntry};
use medfs_format::node::{EXTRA_ISIZE, FileKind, Inline, RawInode, footer_mut};
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, BLOCKS_PER_SEG, Block, BlockAddr, Ino, NULL_ADDR, Nid, SegNo};
use std::io;
use zerocopy::IntoBytes;

const NAME: &[u8] = b"lost+found";
/// Unreached inodes considered in one pass; a further pass takes the next ones.
const MAX_RESCUED: usize = 1 << 20;

/// Where new blocks come from: a free segment for data and one for nodes.
#[derive(Default)]
pub(crate) struct Supply {
    data: Option<(SegNo, u32)>,
    node: Option<(SegNo, u32)>,
    /// Segments handed out or reserved.
    pub(crate) taken: HashSet<SegNo>,
    /// Node ids that must not be handed out.
    pub(crate) nids: HashSet<Nid>,
}

/// Room for an entry in a directory.
enum Spot {
    Inline { slot: usize },
    Page { page: u64, addr: BlockAddr, slot: usize },
    NewPage { page: u64 },
}

impl Walker<'_, '_> {
    /// A segment that was free at the last checkpoint and still is, taken.
    pub(crate) fn free_segment(&mut self) -> io::Result<Option<SegNo>> {
        let (g, main) = (self.image.g.clone(), self.image.g.segment_count_main);
        for segno in 0..main {
            // With sections of several segments, start only at a section that is free as a whole.
            let first = segno - segno % g.segs_per_sec;
            let section = first..(first + g.segs_per_sec).min(main);
            let mut free = segno == first;
            for s in section {
                free = free
                    && !self.supply.taken.contains(&s)
                    && self.image.curseg_of(s).is_none()
                    && self.space.segment(s).iter().all(|&b| b == 0)
                    && self.image.sit(s)?.valid_map.iter().all(|&b| b == 0);
            }
            if free {
                self.supply.taken.insert(segno);
                return Ok(Some(segno));
            }
        }
        Ok(None)
    }

    /// A new block; `None` where the volume is full.
    fn new_block(&mut self, node: bool, owner: Owner) -> io::Result<Option<BlockAddr>> {
        let cp = self.image.checkpoint();
        if self.space.blocks >= cp.user_block_count.get() {
            return Ok(None);
        }
        let current = if node { self.supply.node } else { self.supply.data };
        let (segno, offset) = match current {
            Some((segno, offset)) if offset < BLOCKS_PER_SEG => (segno, offset),
            _ => match self.free_segment()? {
                Some(segno) => {
                    let empty = crate::pack::empty_summary(node);
                    self.space.set_ssa(&mut self.image, segno, &empty)?;
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
        self.space.take_new(&mut self.image, addr, owner)?;
        self.space.blocks += 1;
        Ok(Some(addr))
    }

    /// A node id that is free on disk, in the walk and in the log.
    fn new_nid(&mut self) -> io::Result<Option<Nid>> {
        for index in 0..self.image.g.nat_blocks() {
            let (block, _) = self.image.nat_block(index)?;
            for (i, entry) in block.view::<RawNatBlock>().entries.iter().enumerate() {
                let nid = index * nat::ENTRIES_PER_BLOCK as u32 + i as u32;
                if nid > self.image.g.root_ino
                    && self.image.g.is_nid(nid)
                    && entry.block_addr.get() == NULL_ADDR
                    && !self.space.nid_reached(nid)
                    && self.supply.nids.insert(nid)
                {
                    return Ok(Some(nid));
                }
            }
        }
        Ok(None)
    }

    /// Gives every unreached inode that can be read a name in lost+found; parents before their children.
    pub(crate) fn rescue(&mut self) -> io::Result<()> {
        // Directories among the unreached reach their own children: those are left to them.
        let mut candidates: Vec<(Nid, FileKind)> = Vec::new();
        self.unreached(|w, nid| {
            if !w.orphans.contains(&nid)
                && candidates.len() < MAX_RESCUED
                && let Some(kind) = w.inode_kind(nid)?
            {
                candidates.push((nid, kind));
            }
            Ok(())
        })?;
        if candidates.is_empty() {
            return Ok(());
        }
        let unreached: HashSet<Nid> = candidates.iter().map(|c| c.0).collect();
        let is_dir: HashSet<Nid> =
            candidates.iter().filter(|c| c.1 == FileKind::Directory).map(|c| c.0).collect();
        let mut parent_of = foldhash::HashMap::default();
        for &nid in &unreached {
            let addr = self.image.nat(nid)?.block_addr.get();
            let pino = self.image.cache.get(addr)?.view::<RawInode>().i_pino.get();
            if pino != nid && is_dir.contains(&pino) {
                parent_of.insert(nid, pino);
            }
        }
        let Some(home) = self.lost_and_found()? else { return Ok(()) };
        // First those without an unreached parent, then whatever these did not reach (rings, false parents).
        let (tops, rest): (Vec<_>, Vec<_>) =
            candidates.into_iter().partition(|(nid, _)| !parent_of.contains_key(nid));
        let (dirs, files): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|(_, kind)| *kind == FileKind::Directory);
        for (nid, kind) in tops.into_iter().chain(dirs).chain(files) {
            if !self.space.nid_reached(nid) && nid != home {
                self.adopt(home, nid, kind)?;
            }
        }
        Ok(())
    }

    /// Names an unreached inode in `home`. Where there is no room it stays unreached, and is freed.
    fn adopt(&mut self, home: Ino, nid: Nid, kind: FileKind) -> io::Result<()> {
        let name = nid.to_string().into_bytes();
        let Some(spot) = self.room_in(home, &name)? else { return Ok(()) };
        if self.visit(nid, home, Via::Dentry, "lost+found")? == Verdict::Rejected {
            return Ok(());
        }
        self.put(home, spot, &name, nid, kind)?;
        let addr = self.image.nat(nid)?.block_addr.get();
        let mut block = self.image.cache.read(addr)?;
        let inode: &mut RawInode = block.view_mut();
        inode.i_pino = home.into();
        inode.i_namelen = (name.len() as u32).into();
        inode.i_name = [0; 255];
        inode.i_name[..name.len()].copy_from_slice(&name);
        self.write_inode(addr, &mut block)?;
        self.drain()
    }

    /// lost+found, made where it is missing; `None` where that is impossible.
    fn lost_and_found(&mut self) -> io::Result<Option<Ino>> {
        let root = self.image.g.root_ino;
        if let Some(ino) = self.find(root, NAME)? {
            let is_dir = self.inode_kind(ino)? == Some(FileKind::Directory);
            return Ok((is_dir && self.space.nid_reached(ino)).then_some(ino));
        }
        let Some(spot) = self.room_in(root, NAME)? else { return Ok(None) };
        let Some(ino) = self.new_nid()? else { return Ok(None) };
        let version = self.image.nat(ino)?.version;
        let owner = Owner::node(ino, version);
        let Some(addr) = self.new_block(true, owner)? else { return Ok(None) };
        let mut block = self.new_directory(ino, root)?;
        self.write_inode(addr, &mut block)?;
        self.space.reach_nid(ino);
        self.space.nodes += 1;
        self.space.inodes += 1;
        let entry = RawNatEntry { version, ino: ino.into(), block_addr: addr.into() };
        self.image.nat_changes.insert(ino, entry);
        self.put(root, spot, NAME, ino, FileKind::Directory)?;
        Ok(Some(ino))
    }

    /// An empty directory's inode, modelled on the root's.
    fn new_directory(&mut self, ino: Ino, parent: Ino) -> io::Result<Box<Block>> {
        let root_addr = self.image.nat(self.image.g.root_ino)?.block_addr.get();
        let root = self.image.cache.read(root_addr)?;
        let root: &RawInode = root.view();
        let mut block = Block::boxed();
        let inode: &mut RawInode = block.view_mut();
        inode.i_mode = 0o040700.into();
        inode.i_links = 2.into();
        inode.i_blocks = 1.into();
        (inode.i_atime, inode.i_ctime, inode.i_mtime) = (root.i_mtime, root.i_mtime, root.i_mtime);
        inode.i_current_depth = 1.into();
        inode.i_pino = parent.into();
        inode.i_namelen = (NAME.len() as u32).into();
        inode.i_name[..NAME.len()].copy_from_slice(NAME);
        inode.i_inline = Inline::DENTRY.bits();
        if self.rules.features.contains(Feature::EXTRA_ATTR) {
            inode.i_inline |= Inline::EXTRA_ATTR.bits();
            let flexible = self.rules.flexible();
            let extra = inode.extra_mut().expect("just set");
            extra.i_extra_isize = EXTRA_ISIZE.into();
            if flexible {
                extra.i_inline_xattr_size = (medfs_format::node::DEFAULT_INLINE_XATTR_ADDRS as u16).into();
            }
        }
        let range = inode.slots(self.rules.flexible()).inline_content_range();
        inode.i_size = (range.len() as u64).into();
        let bytes = &mut inode.as_mut_bytes()[range];
        Area::new(AreaLayout::inline(bytes.len()), bytes).insert_dots(ino, parent);
        let f = footer_mut(&mut block);
        f.nid = ino.into();
        f.ino = ino.into();
        f.cp_ver = self.image.checkpoint().checkpoint_ver;
        Ok(block)
    }

    fn inode_block(&mut self, ino: Ino) -> io::Result<(BlockAddr, Box<Block>)> {
        let addr = self.image.nat(ino)?.block_addr.get();
        Ok((addr, self.image.cache.read(addr)?))
    }

    /// The inode a name in a directory stands for (pages addressed from the inode only).
    fn find(&mut self, dir: Ino, name: &[u8]) -> io::Result<Option<Ino>> {
        let (_, block) = self.inode_block(dir)?;
        let inode: &RawInode = block.view();
        let slots = inode.slots(self.rules.flexible());
        if inode.inline().contains(Inline::DENTRY) {
            let bytes = &inode.as_bytes()[slots.inline_content_range()];
            let area = Area::new(AreaLayout::inline(bytes.len()), bytes);
            return Ok(area.find(name, dir.into()).ok().flatten().map(|e| e.ino));
        }
        for i in 0..slots.addrs() {
            let addr = inode.i_addr[slots.extra + i].get();
            if self.image.g.in_main(addr) && right_place(dentry_hash(name), i as u64, inode.i_dir_level) {
                let area = Area::new(AreaLayout::BLOCK, &self.image.cache.get(addr)?.0);
                if let Ok(Some(e)) = area.find(name, dir.into()) {
                    return Ok(Some(e.ino));
                }
            }
        }
        Ok(None)
    }

    /// Finds room for a name; an inline directory that is full becomes one with blocks.
    fn room_in(&mut self, dir: Ino, name: &[u8]) -> io::Result<Option<Spot>> {
        let (addr, mut block) = self.inode_block(dir)?;
        let count = slots_for(name.len());
        if block.view::<RawInode>().inline().contains(Inline::DENTRY) {
            let inode: &RawInode = block.view();
            let bytes = &inode.as_bytes()[inode.slots(self.rules.flexible()).inline_content_range()];
            if let Some(slot) = Area::new(AreaLayout::inline(bytes.len()), bytes).room(count) {
                return Ok(Some(Spot::Inline { slot }));
            }
            if !self.make_blocks(dir, addr, &mut block)? {
                return Ok(None);
            }
        }
        let inode: &RawInode = block.view();
        let slots = inode.slots(self.rules.flexible());
        let hash = dentry_hash(name);
        for level in 0..medfs_format::dentry::MAX_DEPTH {
            let bucket = u64::from(hash) % buckets(level, inode.i_dir_level);
            let start = bucket_start(level, inode.i_dir_level, bucket);
            for page in start..start + bucket_blocks(level) {
                if page >= slots.addrs() as u64 {
                    return Ok(None);
                }
                let addr = inode.i_addr[slots.extra + page as usize].get();
                if addr == NULL_ADDR {
                    return Ok(Some(Spot::NewPage { page }));
                }
                if self.image.g.in_main(addr) {
                    let area = Area::new(AreaLayout::BLOCK, &self.image.cache.get(addr)?.0);
                    if let Some(slot) = area.room(count) {
                        return Ok(Some(Spot::Page { page, addr, slot }));
                    }
                }
            }
        }
        Ok(None)
    }

    /// Moves inline entries, slot by slot, to the directory's first block.
    fn make_blocks(&mut self, dir: Ino, addr: BlockAddr, block: &mut Block) -> io::Result<bool> {
        let owner = Owner::slot(dir, 0, self.image.nat(dir)?.version);
        let Some(data_addr) = self.new_block(false, owner)? else { return Ok(false) };
        let inode: &mut RawInode = block.view_mut();
        let slots = inode.slots(self.rules.flexible());
        let range = slots.inline_content_range();
        let mut data = Block::boxed();
        {
            let bytes = &inode.as_bytes()[range];
            let old = Area::new(AreaLayout::inline(bytes.len()), bytes);
            let mut new = Area::new(AreaLayout::BLOCK, &mut data.0);
            for e in old.entries(0, dir.into()).map_while(Result::ok) {
                if let Some(kind) = e.kind {
                    new.insert_at(e.slot, e.name, e.ino, kind);
                }
            }
        }
        inode.i_inline &= !Inline::DENTRY.bits();
        let end = medfs_format::node::DEF_ADDRS_PER_INODE - slots.inline_xattr;
        inode.i_addr[slots.extra..end].fill(0.into());
        // Without its flag the area of a volume with fixed sizes would become addresses: keep it.
        if inode.slots(self.rules.flexible()).inline_xattr != slots.inline_xattr {
            inode.i_addr[end..].fill(0.into());
        }
        inode.i_addr[slots.extra] = data_addr.into();
        inode.i_size = (BLOCK_SIZE as u64).into();
        inode.i_blocks = (inode.i_blocks.get() + 1).into();
        inode.i_current_depth = inode.i_current_depth.get().max(1).into();
        self.write(data_addr, &data, Cause::Data)?;
        self.image.cache.dev.flush()?;
        self.write_inode(addr, block)?;
        Ok(true)
    }

    /// Writes an entry where [`Walker::room_in`] found room.
    fn put(&mut self, dir: Ino, spot: Spot, name: &[u8], target: Ino, kind: FileKind) -> io::Result<()> {
        let (addr, mut block) = self.inode_block(dir)?;
        let flexible = self.rules.flexible();
        let mut new_page = None;
        match spot {
            Spot::Inline { slot } => {
                let inode: &mut RawInode = block.view_mut();
                let range = inode.slots(flexible).inline_content_range();
                let bytes = &mut inode.as_mut_bytes()[range];
                Area::new(AreaLayout::inline(bytes.len()), bytes).insert_at(slot, name, target, kind);
            }
            Spot::Page { page, addr, slot } => {
                let mut data = self.image.cache.read(addr)?;
                Area::new(AreaLayout::BLOCK, &mut data.0).insert_at(slot, name, target, kind);
                self.write(addr, &data, Cause::Data)?;
                new_page = Some((page, None));
            }
            Spot::NewPage { page } => {
                let owner = Owner::slot(dir, page as u16, self.image.nat(dir)?.version);
                let Some(data_addr) = self.new_block(false, owner)? else { return Ok(()) };
                let mut data = Block::boxed();
                Area::new(AreaLayout::BLOCK, &mut data.0).insert_at(0, name, target, kind);
                self.write(data_addr, &data, Cause::Data)?;
                new_page = Some((page, Some(data_addr)));
            }
        }
        let inode: &mut RawInode = block.view_mut();
        if let Some((page, data_addr)) = new_page {
            let slots = inode.slots(flexible);
            if let Some(data_addr) = data_addr {
                inode.i_addr[slots.extra + page as usize] = data_addr.into();
                inode.i_blocks = (inode.i_blocks.get() + 1).into();
                inode.i_ext = Default::default();
            }
            let size = inode.i_size.get().max((page + 1) * BLOCK_SIZE as u64);
            inode.i_size = size.into();
            let depth = crate::dir::level_of(page, inode.i_dir_level) + 1;
            inode.i_current_depth = inode.i_current_depth.get().max(depth).into();
        }
        if kind == FileKind::Directory {
            inode.i_links = (inode.i_links.get() + 1).into();
        }
        self.write_inode(addr, &mut block)
    }
}
