//! New entries in directories, and new directories.
//!
//! What names a new block is written when the block is durable: an interrupted repair leaves no directory that names what is not
//! written yet.

use crate::dir::level_of;
use crate::finding::LostFile;
use crate::space::Owner;
use crate::walk::Walker;
use medfs_device::Cause;
use medfs_format::dentry::{Area, AreaLayout, MAX_DEPTH, bucket_blocks, bucket_start, buckets, slots_for};
use medfs_format::hash::dentry_hash;
use medfs_format::node::{
    self, Advise, EXTRA_ISIZE, FileFlags, FileKind, Inline, RawDirectNode, RawIndirectNode, RawInode,
    footer_mut,
};
use medfs_format::path::NodePath;
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Ino, NULL_ADDR, Nid};
use std::io;
use zerocopy::IntoBytes;

/// Hash levels above the deepest one in which room is looked for: those further up are full in a directory that has grown.
const LEVELS_BACK: u32 = 2;
/// Names without an inode that are kept; the rest is counted.
const MOST_NAMES: usize = 10_000;
/// Directories that a path goes down.
const MOST_LEVELS: usize = 2048;

/// Room for an entry in a directory.
pub(crate) enum Spot {
    Inline { slot: usize },
    Page { page: u64, addr: BlockAddr, slot: usize },
    NewPage { page: u64 },
}

/// Whether names of a directory are stored in a form whose hash cannot be computed here (encrypted, case-insensitive).
pub(crate) fn is_opaque(inode: &RawInode) -> bool {
    is_encrypted(inode) || inode.flags().contains(FileFlags::CASEFOLD)
}

/// Whether a directory takes no name that is made here. Where only case is ignored, numbers and lost+found have the hash that they always have.
pub(crate) fn is_encrypted(inode: &RawInode) -> bool {
    inode.advise().contains(Advise::ENCRYPT)
}

impl Walker<'_, '_> {
    /// An empty directory in another one, modelled on the root, with a number of its own or the one given; `None` where there is no
    /// room.
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
        let root_addr = self.image.nat(self.image.g.root_ino)?.block_addr.get();
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
        self.sign(&mut block, ino, ino, 0);
        Ok(block)
    }

    /// Fills the footer of a new node.
    pub(crate) fn sign(&self, block: &mut Block, nid: Nid, ino: Ino, offset: u32) {
        let footer = footer_mut(block);
        footer.nid = nid.into();
        footer.ino = ino.into();
        footer.set_node_offset(offset);
        footer.cp_ver = self.image.checkpoint().checkpoint_ver;
    }

    fn inode_block(&mut self, ino: Ino) -> io::Result<(BlockAddr, Box<Block>)> {
        let addr = self.image.nat(ino)?.block_addr.get();
        Ok((addr, self.image.cache.read(addr)?))
    }

    /// A directory's inode; `None` where its areas leave it, so that it can have no entries.
    fn directory_block(&mut self, dir: Ino) -> io::Result<Option<(BlockAddr, Box<Block>)>> {
        let (addr, block) = self.inode_block(dir)?;
        let sane = block.view::<RawInode>().possible_slots(self.rules.flexible()).is_some();
        Ok(sane.then_some((addr, block)))
    }

    /// The inode that a name in a directory stands for.
    pub(crate) fn find(&mut self, dir: Ino, name: &[u8]) -> io::Result<Option<Ino>> {
        let Some((_, block)) = self.directory_block(dir)? else { return Ok(None) };
        let inode: &RawInode = block.view();
        if inode.inline().contains(Inline::DENTRY) {
            let bytes = &inode.as_bytes()[inode.slots(self.rules.flexible()).inline_content_range()];
            let area = Area::new(AreaLayout::inline(bytes.len()), bytes);
            return Ok(area.find(name, dir.into()).ok().flatten().map(|e| e.ino));
        }
        for level in 0..inode.i_current_depth.get().clamp(1, MAX_DEPTH) {
            for page in bucket(inode, level, name) {
                let addr = self.image.address(inode, page)?;
                if self.image.g.in_main(addr) {
                    let area = Area::new(AreaLayout::BLOCK, &self.image.cache.get(addr)?.0);
                    if let Ok(Some(e)) = area.find(name, dir.into()) {
                        return Ok(Some(e.ino));
                    }
                }
            }
        }
        Ok(None)
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

    /// Gives a directory a block where it has a hole, with the nodes that lead there; `false` where the volume is full. The inode
    /// is the caller's to write.
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
                self.sign(&mut block, nid, dir, path.node_offset(level));
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

/// The pages of a level in which a name may be.
fn bucket(inode: &RawInode, level: u32, name: &[u8]) -> std::ops::Range<u64> {
    let index = u64::from(dentry_hash(name)) % buckets(level, inode.i_dir_level);
    let start = bucket_start(level, inode.i_dir_level, index);
    start..start + bucket_blocks(level)
}

/// Lets an entry stand for another inode.
pub(crate) fn lead_entry_to(
    w: &mut Walker<'_, '_>,
    dir: Ino,
    name: &[u8],
    ino: Ino,
    kind: FileKind,
) -> io::Result<()> {
    change_entry(w, dir, name, &|area, slot| area.set_target(slot, ino, kind))
}

/// Takes an entry away.
pub(crate) fn remove_entry(w: &mut Walker<'_, '_>, dir: Ino, name: &[u8]) -> io::Result<()> {
    change_entry(w, dir, name, &|area, slot| area.remove(slot, name.len()))
}

/// What is done to the entry in a slot.
type Change<'a> = &'a dyn Fn(&mut Area<&mut [u8]>, usize);

/// Changes the entry of a name in a directory, where there is one.
fn change_entry(w: &mut Walker<'_, '_>, dir: Ino, name: &[u8], change: Change<'_>) -> io::Result<()> {
    let Some((addr, mut block)) = w.directory_block(dir)? else { return Ok(()) };
    let inode: &mut RawInode = block.view_mut();
    if inode.inline().contains(Inline::DENTRY) {
        let range = inode.slots(w.rules.flexible()).inline_content_range();
        let bytes = &mut inode.as_mut_bytes()[range];
        if change_in_area(&mut Area::new(AreaLayout::inline(bytes.len()), bytes), dir, name, change) {
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
            if change_in_area(&mut Area::new(AreaLayout::BLOCK, &mut data.0), dir, name, change) {
                return w.write(addr, &data, Cause::Data);
            }
        }
    }
    Ok(())
}

/// Changes the entry of a name in an area; `false` where it is not there.
fn change_in_area(area: &mut Area<&mut [u8]>, dir: Ino, name: &[u8], change: Change<'_>) -> bool {
    let slot = area.find(name, dir.into()).ok().flatten().map(|entry| entry.slot);
    slot.map(|slot| change(area, slot)).is_some()
}

/// The name that an inode says it has.
pub(crate) fn own_name(inode: &RawInode) -> Option<&[u8]> {
    inode.i_name.get(..inode.i_namelen.get() as usize)
}

/// Notes an entry that goes, where no inode that can be read stands behind it.
pub(crate) fn note_lost(w: &mut Walker<'_, '_>, dir: Ino, name: &[u8], target: Ino) -> io::Result<()> {
    if w.image.g.is_nid(target) && (w.space.nid_reached(target) || w.claim_of(target)?.is_some()) {
        return Ok(());
    }
    w.losses.lost += 1;
    if w.lost.len() < MOST_NAMES {
        let path = path_below(w, dir, name)?;
        w.lost.push(LostFile { path, ino: target });
    }
    Ok(())
}

/// The path of a name in a directory, as the inodes on the way say it.
fn path_below(w: &mut Walker<'_, '_>, dir: Ino, name: &[u8]) -> io::Result<Vec<u8>> {
    let mut names = vec![name.to_vec()];
    let mut at = dir;
    while at != w.image.g.root_ino && names.len() < MOST_LEVELS {
        let Some((_, block)) = w.readable_inode(at)? else { break };
        let inode: &RawInode = block.view();
        names.push(own_name(inode).unwrap_or(b"?").to_vec());
        at = inode.i_pino.get();
    }
    Ok(names.iter().rev().flat_map(|name| [&b"/"[..], name].concat()).collect())
}
