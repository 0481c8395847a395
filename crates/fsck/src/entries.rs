//! New entries in directories, and new directories.
//!
//! What names a new block is written when the block is durable: an interrupted repair leaves no directory
//! that names what is not written yet.

use crate::judgement::Judgement;
use crate::maker::Maker;
use crate::names::{bucket, hash_of, level_of};
use crate::space::Owner;
use medfs_device::Cause;
use medfs_format::dentry::{Area, AreaLayout, MAX_DEPTH, slots_for};
use medfs_format::node::{self, EXTRA_ISIZE, FileKind, Inline, RawDirectNode, RawIndirectNode, RawInode};
use medfs_format::path::NodePath;
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Ino, NULL_ADDR, Nid};
use std::io;
use zerocopy::IntoBytes;

/// Hash levels above the deepest one in which room is looked for: those further up are full in a directory
/// that has grown.
const LEVELS_BACK: u32 = 2;
/// Room for an entry in a directory.
pub(crate) enum Spot {
    Inline { slot: usize },
    Page { page: u64, addr: BlockAddr, slot: usize },
    NewPage { page: u64 },
}

impl Maker<'_, '_> {
    /// An empty directory in another one, modelled on the root, with a number of its own or the one given;
    /// `None` where there is no room.
    pub(crate) fn make_directory(
        &mut self,
        parent: Ino,
        name: &[u8],
        number: Option<Ino>,
    ) -> io::Result<Option<Ino>> {
        let Some(spot) = self.room_in(parent, name)? else { return Ok(None) };
        let number = if number.is_some() { number } else { self.new_nid()? };
        let Some(ino) = number else { return Ok(None) };
        let block = self.new_directory(ino, parent, name)?;
        let made = self.make_inode(ino, block)?;
        Ok((made && self.put(parent, spot, name, ino, FileKind::Directory)?).then_some(ino))
    }

    /// An empty directory's inode, with the root's time.
    pub(crate) fn new_directory(&mut self, ino: Ino, parent: Ino, name: &[u8]) -> io::Result<Box<Block>> {
        let root = self.image.g.root_ino;
        let root_addr = self.image.nat(root)?.block_addr.get();
        let root =
            if self.image.g.in_main(root_addr) { self.image.cache.read(root_addr)? } else { Block::boxed() };
        let root: &RawInode = root.view();
        let mut block = Block::boxed();
        let inode: &mut RawInode = block.view_mut();
        inode.i_mode = 0o040700.into();
        inode.i_links = 2.into();
        inode.i_blocks = 1.into();
        (inode.i_atime, inode.i_ctime, inode.i_mtime) = (root.i_mtime, root.i_mtime, root.i_mtime);
        inode.i_current_depth = 1.into();
        inode.i_pino = parent.into();
        inode.i_namelen = (name.len() as u32).into();
        inode.i_name[..name.len()].copy_from_slice(name);
        inode.i_inline = Inline::DENTRY.bits();
        if self.rules.features.contains(Feature::EXTRA_ATTR) {
            inode.i_inline |= Inline::EXTRA_ATTR.bits();
            let flexible = self.rules.flexible();
            let extra = inode.extra_mut().expect("just set");
            extra.i_extra_isize = EXTRA_ISIZE.into();
            if flexible {
                extra.i_inline_xattr_size = (node::DEFAULT_INLINE_XATTR_ADDRS as u16).into();
            }
        }
        let range = inode.slots(self.rules.flexible()).inline_content_range();
        inode.i_size = (range.len() as u64).into();
        let bytes = &mut inode.as_mut_bytes()[range];
        Area::new(AreaLayout::inline(bytes.len()), bytes).insert_dots(ino, parent);
        self.image.sign(&mut block, ino, ino, 0);
        Ok(block)
    }

    /// Finds room for a name; an inline directory that is full becomes one with blocks.
    pub(crate) fn room_in(&mut self, dir: Ino, name: &[u8]) -> io::Result<Option<Spot>> {
        let Some((addr, mut block)) = self.directory_block(dir)? else { return Ok(None) };
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
        let fanout = inode.slots(self.rules.flexible()).fanout();
        let depth = inode.i_current_depth.get().min(MAX_DEPTH);
        let back = depth.saturating_sub(LEVELS_BACK);
        for level in (back..depth).chain(0..back).chain(depth..MAX_DEPTH) {
            for page in bucket(inode, level, name).filter(|&page| NodePath::of(page, fanout).is_some()) {
                let addr = self.image.address(inode, page)?;
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
        let end = node::DEF_ADDRS_PER_INODE - slots.inline_xattr;
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
        self.image.cache.medium.flush()?;
        self.write_inode(addr, block)?;
        Ok(true)
    }

    /// Writes an entry where [`Walker::room_in`] found room; `false` where there is no block for it.
    pub(crate) fn put(
        &mut self,
        dir: Ino,
        spot: Spot,
        name: &[u8],
        target: Ino,
        kind: FileKind,
    ) -> io::Result<bool> {
        let (addr, mut block) = self.inode_block(dir)?;
        let before = block.view::<RawInode>().clone();
        let mut used = None;
        match spot {
            Spot::Inline { slot } => {
                let inode: &mut RawInode = block.view_mut();
                let range = inode.slots(self.rules.flexible()).inline_content_range();
                let bytes = &mut inode.as_mut_bytes()[range];
                Area::new(AreaLayout::inline(bytes.len()), bytes).insert_at(slot, name, target, kind);
            }
            Spot::Page { page, addr, slot } => {
                let mut data = self.image.cache.read(addr)?;
                Area::new(AreaLayout::BLOCK, &mut data.0).insert_at(slot, name, target, kind);
                self.write(addr, &data, Cause::Data)?;
                used = Some(page);
            }
            Spot::NewPage { page } => {
                let mut data = Block::boxed();
                Area::new(AreaLayout::BLOCK, &mut data.0).insert_at(0, name, target, kind);
                let inode: &mut RawInode = block.view_mut();
                if !self.add_page(dir, inode, page, &data)? {
                    // Nodes that lead there may be new.
                    self.write_inode(addr, &mut block)?;
                    return Ok(false);
                }
                used = Some(page);
            }
        }
        let inode: &mut RawInode = block.view_mut();
        if let Some(page) = used {
            inode.i_size = inode.i_size.get().max((page + 1) * BLOCK_SIZE as u64).into();
            let depth = level_of(page, inode.i_dir_level) + 1;
            inode.i_current_depth = inode.i_current_depth.get().max(depth).into();
        }
        if kind == FileKind::Directory {
            inode.i_links = (inode.i_links.get() + 1).into();
        }
        if inode.as_bytes() != before.as_bytes() {
            self.write_inode(addr, &mut block)?;
        }
        Ok(true)
    }

    /// Gives a directory a block where it has a hole, with the nodes that lead there; `false` where the
    /// volume is full. The inode is the caller's to write.
    fn add_page(&mut self, dir: Ino, inode: &mut RawInode, page: u64, data: &Block) -> io::Result<bool> {
        let slots = inode.slots(self.rules.flexible());
        let Some(path) = NodePath::of(page, slots.fanout()) else { return Ok(false) };
        // Nodes on the way: the last one of them that is there, and the slot in it that names the next.
        let mut parent: Option<(Nid, BlockAddr)> = None;
        for level in 1..=path.depth {
            let named = match parent {
                None => inode.i_nid[path.inode_nid()].get(),
                Some((_, at)) => {
                    self.image.cache.get(at)?.view::<RawIndirectNode>().nid[path.child_index(level - 1)].get()
                }
            };
            let next = if named != NULL_ADDR {
                (named, self.image.nat(named)?.block_addr.get())
            } else {
                let Some((nid, at)) = self.new_node(dir)? else { return Ok(false) };
                let mut block = Block::boxed();
                self.image.sign(&mut block, nid, dir, path.node_offset(level));
                self.write(at, &block, Cause::Node)?;
                self.image.cache.medium.flush()?;
                inode.i_blocks = (inode.i_blocks.get() + 1).into();
                match parent {
                    None => inode.i_nid[path.inode_nid()] = nid.into(),
                    Some((_, up)) => {
                        let mut block = self.image.cache.read(up)?;
                        block.view_mut::<RawIndirectNode>().nid[path.child_index(level - 1)] = nid.into();
                        self.write(up, &block, Cause::Node)?;
                    }
                }
                (nid, at)
            };
            parent = Some(next);
        }
        let holder = parent.map_or(dir, |(nid, _)| nid);
        let owner = Owner::slot(holder, path.slot() as u16, self.image.nat(holder)?.version);
        let Some(addr) = self.new_block(false, owner)? else { return Ok(false) };
        self.write(addr, data, Cause::Data)?;
        self.image.cache.medium.flush()?;
        match parent {
            None => inode.i_addr[slots.extra + path.slot()] = addr.into(),
            Some((_, at)) => {
                let mut block = self.image.cache.read(at)?;
                block.view_mut::<RawDirectNode>().addr[path.slot()] = addr.into();
                self.write(at, &block, Cause::Node)?;
            }
        }
        inode.i_blocks = (inode.i_blocks.get() + 1).into();
        inode.i_ext = Default::default();
        Ok(true)
    }
}

/// Lets an entry stand for another inode.
pub(crate) fn lead_entry_to(
    w: &mut Judgement<'_>,
    dir: Ino,
    name: &[u8],
    ino: Ino,
    kind: FileKind,
) -> io::Result<()> {
    change_entry(w, dir, name, &|area, slot| area.set_target(slot, ino, kind))
}

/// Takes an entry away.
pub(crate) fn remove_entry(w: &mut Judgement<'_>, dir: Ino, name: &[u8]) -> io::Result<()> {
    change_entry(w, dir, name, &|area, slot| area.remove(slot, name.len()))
}

/// What is done to the entry in a slot.
type Change<'a> = &'a dyn Fn(&mut Area<&mut [u8]>, usize);

/// Changes the entry of a name in a directory, where there is one.
fn change_entry(w: &mut Judgement<'_>, dir: Ino, name: &[u8], change: Change<'_>) -> io::Result<()> {
    let Some((addr, mut block)) = w.directory_block(dir)? else { return Ok(()) };
    let inode: &mut RawInode = block.view_mut();
    let hash = hash_of(inode, name);
    if inode.inline().contains(Inline::DENTRY) {
        let range = inode.slots(w.rules.flexible()).inline_content_range();
        let bytes = &mut inode.as_mut_bytes()[range];
        if change_in_area(&mut Area::new(AreaLayout::inline(bytes.len()), bytes), dir, (name, hash), change) {
            w.write_inode(addr, &mut block)?;
        }
        return Ok(());
    }
    for level in 0..inode.i_current_depth.get().clamp(1, MAX_DEPTH) {
        for page in bucket(inode, level, name) {
            let addr = w.image.address(inode, page)?;
            if !w.image.g.in_main(addr) {
                continue;
            }
            let mut data = w.image.cache.read(addr)?;
            if change_in_area(&mut Area::new(AreaLayout::BLOCK, &mut data.0), dir, (name, hash), change) {
                return w.write(addr, &data, Cause::Data);
            }
        }
    }
    Ok(())
}

/// Changes the entry of a name in an area; `false` where it is not there.
fn change_in_area(
    area: &mut Area<&mut [u8]>,
    dir: Ino,
    (name, hash): (&[u8], u32),
    change: Change<'_>,
) -> bool {
    let slot = area.find_hashed(name, hash, dir.into()).ok().flatten().map(|entry| entry.slot);
    slot.map(|slot| change(area, slot)).is_some()
}
