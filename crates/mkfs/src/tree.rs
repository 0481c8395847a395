//! The first inodes: root directory, quota files, lost+found, with their data blocks and NAT entries.
//!
//! Node ids run from 3 on in that order; nodes fill the hot node log and data blocks the hot data log.

use crate::{Layout, MkfsOptions, Out, quota};
use medfs_device::Cause;
use medfs_format::dentry::{Area, AreaLayout};
use medfs_format::nat::{RawNatBlock, RawNatEntry};
use medfs_format::node::{FileFlags, FileKind, Inline, RawInode};
use medfs_format::summary::{Log, RawSummary};
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, Block, BlockAddr, Geometry, Ino, crc};
use std::mem::offset_of;
use zerocopy::little_endian::{U16, U32, U64};

/// Inode number reserved for the node mapping.
pub(crate) const NODE_INO: Ino = 1;
/// Inode number reserved for the meta mapping.
pub(crate) const META_INO: Ino = 2;
/// Inode number of the root directory.
pub(crate) const ROOT_INO: Ino = 3;
/// Checkpoint version in the footers: older than any checkpoint, so that recovery never takes the nodes for new.
const FOOTER_CP_VER: u64 = 1;
const LOST_FOUND: &[u8] = b"lost+found";

/// What the checkpoint has to know of the first files.
pub(crate) struct Tree {
    /// Node, data and NAT blocks.
    pub(crate) blocks: Vec<Out>,
    /// Nodes written to the hot node log, in order; all are inodes.
    pub(crate) inos: Vec<Ino>,
    /// Owners of the blocks written to the hot data log, in order.
    pub(crate) data: Vec<RawSummary>,
    /// First block of the hot node log.
    pub(crate) node_start: BlockAddr,
}

/// Inode numbers of the quota files for users, groups and projects.
pub(crate) fn quota_inos(features: Feature) -> [Option<Ino>; 3] {
    let quota = features.contains(Feature::QUOTA);
    let project = quota && features.contains(Feature::PROJECT_QUOTA);
    [quota.then_some(ROOT_INO + 1), quota.then_some(ROOT_INO + 2), project.then_some(ROOT_INO + 3)]
}

/// Bytes of extra attributes that the volume's features need.
fn extra_isize(features: Feature) -> u16 {
    use medfs_format::node::RawExtraAttr as Extra;
    let last = [
        (Feature::COMPRESSION, size_of::<Extra>()),
        (Feature::INODE_CRTIME, offset_of!(Extra, i_compr_blocks)),
        (Feature::INODE_CHECKSUM, offset_of!(Extra, i_crtime)),
        (Feature::PROJECT_QUOTA, offset_of!(Extra, i_inode_checksum)),
        (Feature::EXTRA_ATTR, offset_of!(Extra, i_projid)),
    ];
    last.iter().find(|(feature, _)| features.contains(*feature)).map_or(0, |(_, end)| *end as u16)
}

/// Builds the first files.
pub(crate) fn build(g: &Geometry, layout: &Layout, options: &MkfsOptions) -> Tree {
    let mut builder = Builder {
        options,
        node_start: g.seg_start(layout.cursegs[Log::HotNode as usize]),
        data_start: g.seg_start(layout.cursegs[Log::HotData as usize]),
        tree: Tree { blocks: Vec::new(), inos: Vec::new(), data: Vec::new(), node_start: 0 },
    };
    let quotas: Vec<(usize, Ino)> = quota_inos(options.features)
        .into_iter()
        .enumerate()
        .filter_map(|(kind, ino)| Some((kind, ino?)))
        .collect();
    let lost_found =
        options.features.contains(Feature::LOST_FOUND).then_some(ROOT_INO + 1 + quotas.len() as u32);

    builder.directory(ROOT_INO, ROOT_INO, 0o755, lost_found);
    let directories = 1 + u64::from(lost_found.is_some());
    for (kind, ino) in quotas {
        builder.quota_file(ino, quota::file(kind, directories, directories * BLOCK_SIZE as u64));
    }
    if let Some(ino) = lost_found {
        builder.directory(ino, ROOT_INO, 0o700, None);
    }
    builder.nat(g);
    Tree { node_start: builder.node_start, ..builder.tree }
}

struct Builder<'a> {
    options: &'a MkfsOptions,
    node_start: BlockAddr,
    data_start: BlockAddr,
    tree: Tree,
}

impl Builder<'_> {
    /// A directory of one dentry block; `lost_found` is an entry to put into it.
    fn directory(&mut self, ino: Ino, parent: Ino, perm: u16, lost_found: Option<Ino>) {
        let mut block = Block::boxed();
        let mut area = Area::new(AreaLayout::BLOCK, &mut block.0[..]);
        area.insert_dots(ino, parent);
        if let Some(child) = lost_found {
            area.insert(LOST_FOUND, child, FileKind::Directory);
        }
        let addr = self.data(ino, 0, block);
        let mut inode = self.inode(FileKind::Directory, perm);
        inode.i_links = U32::new(2 + u32::from(lost_found.is_some()));
        inode.i_size = U64::new(BLOCK_SIZE as u64);
        inode.i_current_depth = U32::new(1);
        if ino != ROOT_INO {
            inode.i_pino = U32::new(parent);
            inode.i_namelen = U32::new(LOST_FOUND.len() as u32);
            inode.i_name[..LOST_FOUND.len()].copy_from_slice(LOST_FOUND);
        }
        if self.options.features.contains(Feature::INODE_CRTIME)
            && let Some(extra) = inode.extra_mut()
        {
            extra.i_crtime = U64::new(self.options.timestamp as u64);
        }
        self.finish(ino, inode, &[addr]);
    }

    fn quota_file(&mut self, ino: Ino, content: [Box<Block>; quota::FILE_BLOCKS as usize]) {
        let mut addrs = Vec::new();
        for (index, block) in content.into_iter().enumerate() {
            addrs.push(self.data(ino, index as u16, block));
        }
        let mut inode = self.inode(FileKind::Regular, 0o600);
        (inode.i_uid, inode.i_gid) = (U32::new(0), U32::new(0));
        inode.i_links = U32::new(1);
        inode.i_size = U64::new(quota::FILE_SIZE);
        inode.i_flags = U32::new(FileFlags::IMMUTABLE.bits());
        self.finish(ino, inode, &addrs);
    }

    /// What all inodes share.
    fn inode(&self, kind: FileKind, perm: u16) -> Box<RawInode> {
        let mut block = Block::boxed();
        let inode: &mut RawInode = block.view_mut();
        inode.i_mode = U16::new(kind.mode_bits() | perm);
        (inode.i_uid, inode.i_gid) =
            (U32::new(self.options.root_owner.0), U32::new(self.options.root_owner.1));
        let now = U64::new(self.options.timestamp as u64);
        (inode.i_atime, inode.i_ctime, inode.i_mtime) = (now, now, now);
        if self.options.features.contains(Feature::EXTRA_ATTR) {
            inode.i_inline = Inline::EXTRA_ATTR.bits();
            if let Some(extra) = inode.extra_mut() {
                extra.i_extra_isize = U16::new(extra_isize(self.options.features));
            }
        }
        Box::new(inode.clone())
    }

    fn data(&mut self, ino: Ino, index: u16, block: Box<Block>) -> BlockAddr {
        let addr = self.data_start + self.tree.data.len() as u32;
        self.tree.data.push(RawSummary { nid: U32::new(ino), version: 0, ofs_in_node: U16::new(index) });
        self.tree.blocks.push(Out { addr, block, cause: Cause::Data });
        addr
    }

    fn finish(&mut self, ino: Ino, mut inode: Box<RawInode>, addrs: &[BlockAddr]) {
        let addr = self.node_start + self.tree.inos.len() as u32;
        inode.i_blocks = U64::new(1 + addrs.len() as u64);
        let extra = usize::from(extra_isize(self.options.features)) / 4;
        for (slot, &data) in inode.i_addr[extra..].iter_mut().zip(addrs) {
            *slot = U32::new(data);
        }
        (inode.footer.nid, inode.footer.ino) = (U32::new(ino), U32::new(ino));
        inode.footer.cp_ver = U64::new(FOOTER_CP_VER);
        inode.footer.next_blkaddr = U32::new(addr + 1);
        if self.options.features.contains(Feature::INODE_CHECKSUM) {
            inode.seal(crc::chain(!0, &self.options.uuid));
        }
        let mut block = Block::boxed();
        *block.view_mut() = *inode;
        self.tree.inos.push(ino);
        self.tree.blocks.push(Out { addr, block, cause: Cause::Node });
    }

    /// The first NAT block: the two reserved numbers and every inode.
    fn nat(&mut self, g: &Geometry) {
        let mut block = Block::boxed();
        let nat: &mut RawNatBlock = block.view_mut();
        for ino in [NODE_INO, META_INO] {
            nat.entries[ino as usize] = entry(ino, 1);
        }
        for (i, &ino) in self.tree.inos.iter().enumerate() {
            nat.entries[ino as usize] = entry(ino, self.node_start + i as u32);
        }
        self.tree.blocks.push(Out { addr: g.nat_block(0, false), block, cause: Cause::Meta });
    }
}

/// NAT entry of an inode.
pub(crate) fn entry(ino: Ino, addr: BlockAddr) -> RawNatEntry {
    RawNatEntry { version: 0, ino: U32::new(ino), block_addr: U32::new(addr) }
}
