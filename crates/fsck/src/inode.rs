//! Judging one inode block on its own: what can be mended in place is mended, the rest is a reason to reject it.

use crate::SECTOR;
use crate::finding::Code;
use crate::image::Image;
use medfs_format::dentry::MAX_DEPTH;
use medfs_format::node::{
    Advise, DEF_ADDRS_PER_INODE, DEFAULT_INLINE_XATTR_ADDRS, EXTRA_ISIZE, FileFlags, FileKind, Inline,
    Layouts, MAX_INLINE_XATTR_ADDRS, NAME_LEN, RawInode,
};
use medfs_format::path::{Fanout, max_pages};
use medfs_format::superblock::Feature;
use medfs_format::{BLOCK_SIZE, Geometry, Ino, xattr};
use zerocopy::IntoBytes;

/// Bytes that a file can have.
pub(crate) const MAX_SIZE: u64 = max_pages(Fanout::plain(DEF_ADDRS_PER_INODE)) * BLOCK_SIZE as u64;

/// The user and the group to whom files belong whose owner the system cannot tell.
const NOBODY: u32 = 65534;
/// Zeros from the end of inline content to the end of its sector that tell that it ends there.
const MARGIN: usize = 16;

/// What was wrong with an inode.
type Found = Vec<(Code, String)>;

/// One thing that is judged and mended in an inode.
type Step = fn(&Rules, &mut RawInode, Ino, &mut Found);

/// What of a volume decides how its inodes are read.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) g: Geometry,
    pub(crate) features: Feature,
    pub(crate) layouts: Layouts,
    pub(crate) seed: Option<u32>,
}

impl Rules {
    pub(crate) fn of(image: &Image<'_>) -> Rules {
        Rules {
            g: image.g.clone(),
            features: image.features,
            layouts: image.layouts(),
            seed: image.inode_seed(),
        }
    }

    pub(crate) fn flexible(&self) -> bool {
        self.layouts.is_flexible()
    }

    pub(crate) fn has_compression(&self) -> bool {
        self.features.contains(Feature::COMPRESSION)
    }

    /// The marks of inodes that no inode of the volume can have.
    fn impossible_advise(&self) -> Advise {
        let mut none = Advise::empty();
        none.set(Advise::ENCRYPT | Advise::ENC_NAME, !self.features.contains(Feature::ENCRYPT));
        none.set(Advise::VERITY, !self.features.contains(Feature::VERITY));
        none
    }

    /// Takes a size that no file has for one with flipped bits, those of the highest values.
    fn vet_size(&self, inode: &mut RawInode, ino: Ino, found: &mut Found) {
        let (was, mut size) = (inode.i_size.get(), inode.i_size.get());
        while size > MAX_SIZE {
            size ^= 1 << size.ilog2();
        }
        if size != was {
            found.push((Code::InodeField, format!("inode {ino}: i_size {was} is more than a file can have")));
            inode.i_size = size.into();
        }
    }

    /// Takes back marks of what the volume does not have, and a size that no file has.
    fn vet_values(&self, inode: &mut RawInode, ino: Ino, found: &mut Found) {
        let mut field = |text: String| found.push((Code::InodeField, format!("inode {ino}: {text}")));
        let marked = inode.advise() & self.impossible_advise();
        if !marked.is_empty() {
            field(format!("marked {marked:?} on a volume without that"));
            inode.i_advise &= !marked.bits();
        }
        let directory = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Directory);
        let casefold = self.features.contains(Feature::CASEFOLD) && directory;
        if inode.flags().contains(FileFlags::CASEFOLD) && !casefold {
            field("marked as a directory that ignores case".into());
            inode.i_flags = (inode.flags() - FileFlags::CASEFOLD).bits().into();
        }
        self.vet_size(inode, ino, found);
        for (name, id) in [("i_uid", &mut inode.i_uid), ("i_gid", &mut inode.i_gid)] {
            if id.get() == u32::MAX {
                let text = format!(
                    "inode {ino}: {name} {id} is none that a file can have; {NOBODY} is that of nobody"
                );
                found.push((Code::InodeField, text));
                *id = NOBODY.into();
            }
        }
    }

    /// Mends `inode` in memory and lists what was wrong. An error: it cannot be an inode, with the reason.
    pub(crate) fn vet(&self, inode: &mut RawInode, ino: Ino) -> Result<Found, String> {
        const STEPS: [Step; 9] = [
            Rules::vet_checksum,
            Rules::vet_extra,
            Rules::vet_inline,
            Rules::vet_name_and_depth,
            Rules::vet_nodes,
            Rules::vet_values,
            Rules::vet_inline_in_clusters,
            Rules::vet_blocks,
            Rules::vet_compression,
        ];
        let mut found = Vec::new();
        STEPS.iter().for_each(|step| step(self, inode, ino, &mut found));
        inode.validate(ino, &self.g, self.layouts, None).map_err(|e| e.to_string())?;
        Ok(found)
    }

    fn vet_checksum(&self, inode: &mut RawInode, ino: Ino, found: &mut Found) {
        let Some(seed) = self.seed.filter(|_| inode.extra_fits(12)) else { return };
        let stored = inode.extra().map_or(0, |e| e.i_inode_checksum.get());
        let computed = inode.checksum(seed);
        if stored != computed {
            found.push((
                Code::InodeChecksum,
                format!(
                    "inode {ino}: checksum {stored:#010x}, but computed {computed:#010x}, which no single bit explains; \
                     a repair keeps the inode as read and writes a new checksum"
                ),
            ));
        }
    }

    fn vet_extra(&self, inode: &mut RawInode, ino: Ino, found: &mut Found) {
        let mut field = |text: String| found.push((Code::InodeField, format!("inode {ino}: {text}")));
        if inode.inline().contains(Inline::EXTRA_ATTR) && !self.features.contains(Feature::EXTRA_ATTR) {
            field("extra attributes on a volume without them".into());
            clear(inode, Inline::EXTRA_ATTR);
        }
        let with_xattrs = inode.inline().contains(Inline::XATTR);
        let Some(extra) = inode.extra_mut() else { return };
        if !extra.has_possible_size() {
            field(format!("i_extra_isize {} is out of range", extra.i_extra_isize));
            extra.i_extra_isize = EXTRA_ISIZE.into();
        }
        let least = if with_xattrs { xattr::HEADER_SIZE / 4 } else { 0 };
        let size = usize::from(extra.i_inline_xattr_size.get());
        if self.flexible() && !(least..=MAX_INLINE_XATTR_ADDRS).contains(&size) {
            field(format!("i_inline_xattr_size {size} is out of range"));
            extra.i_inline_xattr_size = (DEFAULT_INLINE_XATTR_ADDRS as u16).into();
        }
    }

    fn vet_inline(&self, inode: &mut RawInode, ino: Ino, found: &mut Found) {
        let mut field = |text: String| found.push((Code::InodeField, format!("inode {ino}: {text}")));
        let kind = FileKind::from_mode(inode.i_mode.get());
        if inode.inline().contains(Inline::DATA)
            && !matches!(kind, Some(FileKind::Regular | FileKind::Symlink))
        {
            field("inline data on neither file nor symbolic link".into());
            clear(inode, Inline::DATA);
        }
        if inode.inline().contains(Inline::DENTRY) && kind != Some(FileKind::Directory) {
            field("inline dentries on an inode that is not a directory".into());
            clear(inode, Inline::DENTRY);
        }
        if inode.inline().contains(Inline::DATA) {
            let room = inode.slots(self.flexible()).inline_content_range().len() as u64;
            if inode.i_size.get() > room {
                field(format!("i_size {} with inline data of at most {room} bytes", inode.i_size));
                inode.i_size = inline_size(inode, self.flexible()).into();
            } else if self.seed.is_none() && kind == Some(FileKind::Regular) {
                vet_behind_content(inode, self.flexible(), &mut field);
            }
        }
    }

    fn vet_name_and_depth(&self, inode: &mut RawInode, ino: Ino, found: &mut Found) {
        let is_dir = FileKind::from_mode(inode.i_mode.get()) == Some(FileKind::Directory);
        if is_dir && u32::from(inode.i_dir_level) > MAX_DEPTH {
            let text = format!("inode {ino}: i_dir_level {} is out of range", inode.i_dir_level);
            found.push((Code::DirLevel, text));
            inode.i_dir_level = 0;
        }
        let mut field = |text: String| found.push((Code::InodeField, format!("inode {ino}: {text}")));
        let kind = FileKind::from_mode(inode.i_mode.get());
        if inode.i_namelen.get() as usize > NAME_LEN {
            field(format!("i_namelen {} is out of range", inode.i_namelen));
            let len = inode.i_name.iter().position(|&b| b == 0).unwrap_or(NAME_LEN);
            inode.i_namelen = (len as u32).into();
        }
        if kind == Some(FileKind::Directory) && inode.i_current_depth.get() > MAX_DEPTH {
            field(format!("i_current_depth {} is out of range", inode.i_current_depth));
            inode.i_current_depth = 1.into();
        }
        // The field's other name is i_gc_failures, of 16 bits, which only pinned files count, and some that were.
        let pinned = inode.inline().contains(Inline::PIN_FILE);
        if kind == Some(FileKind::Regular) && !pinned && inode.i_current_depth.get() > 0xffff {
            field(format!("i_gc_failures {} of a file that is not pinned", inode.i_current_depth));
            inode.i_current_depth = 0.into();
        }
    }

    fn vet_nodes(&self, inode: &mut RawInode, ino: Ino, found: &mut Found) {
        let no_node = |nid: u32| nid != 0 && (nid == ino || !self.g.is_nid(nid));
        if no_node(inode.i_xattr_nid.get()) {
            found.push((
                Code::NodeId,
                format!("inode {ino}: i_xattr_nid {} is not a node id", inode.i_xattr_nid),
            ));
            inode.i_xattr_nid = 0.into();
        }
        for (i, nid) in inode.i_nid.iter_mut().enumerate() {
            if no_node(nid.get()) {
                found.push((Code::NodeId, format!("inode {ino}: i_nid[{i}] {nid} is not a node id")));
                *nid = 0.into();
            }
        }
    }

    fn vet_inline_in_clusters(&self, inode: &mut RawInode, ino: Ino, found: &mut Found) {
        if self.has_compression() && inode.inline().contains(Inline::DATA) && inode.compression().is_some() {
            found.push((Code::InodeField, format!("inode {ino}: inline data in a compressed file")));
            inode.i_flags = (inode.flags() - FileFlags::COMPR).bits().into();
        }
    }

    /// The true number is counted later; here only what would make the inode unacceptable goes.
    fn vet_blocks(&self, inode: &mut RawInode, ino: Ino, found: &mut Found) {
        if inode.i_blocks.get() == 0 {
            found.push((Code::InodeBlocks, format!("inode {ino}: i_blocks is 0")));
            inode.i_blocks = 1.into();
        }
    }

    fn vet_compression(&self, inode: &mut RawInode, ino: Ino, found: &mut Found) {
        // The number of saved blocks is counted later.
        let saved = inode.extra_mut().map(|e| std::mem::take(&mut e.i_compr_blocks));
        if self.has_compression()
            && let Err(e) = inode.validate_compression(ino)
        {
            found.push((Code::InodeField, format!("{e}: the file is taken for one without compression")));
            inode.i_flags = (inode.flags() - FileFlags::COMPR).bits().into();
        }
        if let (Some(extra), Some(saved)) = (inode.extra_mut(), saved) {
            extra.i_compr_blocks = saved;
        }
    }
}

/// How many bytes of inline content there are up to the last that is not zero, and how many there is room for.
pub(crate) fn used_of(inode: &RawInode, flexible: bool) -> (u64, u64) {
    let content = &inode.as_bytes()[inode.slots(flexible).inline_content_range()];
    let used = content.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    (used as u64, content.len() as u64)
}

/// Of a file without a checksum: what lies behind the end of its inline content, where zeros lie behind what was
/// written whole. One bit flipped there, or whole sectors were lost; more is content, if one flipped bit of the size
/// explains it. Links are judged by their targets.
fn vet_behind_content(inode: &mut RawInode, flexible: bool, field: &mut dyn FnMut(String)) {
    let size = inode.i_size.get();
    let (used, room) = used_of(inode, flexible);
    if size >= used {
        return;
    }
    let range = inode.slots(flexible).inline_content_range();
    let start = range.start;
    let behind = &mut inode.as_mut_bytes()[range][size as usize..];
    if xattr::has_lone_bit(behind) {
        behind.fill(0);
        field(format!("i_size is {size}, and one bit is set behind the end of its inline content"));
        return;
    }
    // A sector behind the one with the end was lost, and junk or another inode's stands there.
    let to_sector = SECTOR - (start + size as usize) % SECTOR;
    if to_sector >= MARGIN && behind.iter().take(to_sector).all(|&byte| byte == 0) {
        behind.fill(0);
        field(format!(
            "i_size is {size}, and a sector behind the end of its inline content is not zeros: a repair clears that"
        ));
        return;
    }
    let larger = (0..u64::BITS).map(|bit| size | 1 << bit);
    if let Some(right) = larger.filter(|size| (used..=room).contains(size)).min() {
        field(format!("i_size {size}, but its inline content ends behind that: {right}"));
        inode.i_size = right.into();
    }
}

/// The size of inline content, where the inode says more than there is room for: the one that a single flipped bit
/// makes that, if it reaches behind what the content is; otherwise all that there is room for.
fn inline_size(inode: &RawInode, flexible: bool) -> u64 {
    let size = inode.i_size.get();
    let (used, room) = used_of(inode, flexible);
    let set = (0..u64::BITS).filter(|bit| size >> bit & 1 == 1);
    let mut right = set.map(|bit| size ^ 1 << bit).filter(|size| (used..=room).contains(size));
    match (right.next(), right.next()) {
        (Some(right), None) => right,
        _ => room,
    }
}

fn clear(inode: &mut RawInode, flag: Inline) {
    inode.i_inline &= !flag.bits();
}
