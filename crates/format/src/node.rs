//! Node blocks: inodes, direct and indirect nodes.

use crate::compress::Compression;
use crate::flip::{Bit, Covered, Syndromes};
use crate::{BLOCK_SIZE, FormatError, Geometry, Ino, NULL_ADDR, Structure, crc};
use bitflags::bitflags;
use std::sync::OnceLock;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use crate::file_kind::FileKind;
pub use crate::footer::{RawNodeFooter, footer, footer_mut, validate_footer};
pub use crate::limits::{ADDRS_PER_BLOCK, DEF_ADDRS_PER_INODE, NAME_LEN, NIDS_PER_BLOCK};
pub use crate::slots::{ADDR_OFFSET, Layouts, Slots};

/// Address slots of the inline xattr area where its size is not per inode.
pub const DEFAULT_INLINE_XATTR_ADDRS: usize = 50;
/// Most address slots the inline xattr area may take: room for the extra attributes, the reserved slot and
/// a smallest inline directory (10 slots) must stay.
pub const MAX_INLINE_XATTR_ADDRS: usize = DEF_ADDRS_PER_INODE - EXTRA_ISIZE as usize / 4 - 1 - 10;
/// Bytes of the extra attributes this implementation writes (all that are defined).
pub const EXTRA_ISIZE: u16 = 36;
/// Written pages behind its end that a file does not have by chance.
pub const MANY_BEHIND_END: u64 = 16;
/// Offset of `i_inode_checksum` in the inode block.
const INODE_CHECKSUM_OFFSET: usize = ADDR_OFFSET + 8;

bitflags! {
    /// `i_inline`: what lies inside the inode block.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Inline: u8 {
        /// An inline xattr area exists.
        const XATTR = 0x01;
        /// File content is inline.
        const DATA = 0x02;
        /// Directory entries are inline.
        const DENTRY = 0x04;
        /// Inline data has been written.
        const DATA_EXIST = 0x08;
        /// `.` and `..` are implicit.
        const DOTS = 0x10;
        /// Extra attributes are present.
        const EXTRA_ATTR = 0x20;
        /// The file's blocks must not move.
        const PIN_FILE = 0x40;
        /// Saved blocks of a compressed file were released.
        const COMPRESS_RELEASED = 0x80;
    }
}

bitflags! {
    /// `i_advise`: hints about a file.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Advise: u8 {
        /// Cold data.
        const COLD = 0x01;
        /// `i_pino` may be wrong.
        const LOST_PINO = 0x02;
        /// Encrypted.
        const ENCRYPT = 0x04;
        /// Encrypted name.
        const ENC_NAME = 0x08;
        /// `i_size` was set by fallocate beyond the data.
        const KEEP_SIZE = 0x10;
        /// Hot data.
        const HOT = 0x20;
        /// Under fs-verity.
        const VERITY = 0x40;
        /// Truncation of preallocated blocks is pending.
        const TRUNC = 0x80;
    }
}

bitflags! {
    /// `i_flags`: the chattr flags F2FS stores.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct FileFlags: u32 {
        /// Compressed file.
        const COMPR = 0x0000_0004;
        /// Synchronous updates.
        const SYNC = 0x0000_0008;
        /// Immutable.
        const IMMUTABLE = 0x0000_0010;
        /// Append only.
        const APPEND = 0x0000_0020;
        /// Not dumped.
        const NODUMP = 0x0000_0040;
        /// No access times.
        const NOATIME = 0x0000_0080;
        /// Must not be compressed.
        const NOCOMP = 0x0000_0400;
        /// Hash-indexed directory (always reported for casefold only).
        const INDEX = 0x0000_1000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x0001_0000;
        /// New entries inherit the project id.
        const PROJINHERIT = 0x2000_0000;
        /// Case-insensitive directory.
        const CASEFOLD = 0x4000_0000;
        /// Unknown bits are kept.
        const _ = !0;
    }
}

/// The largest extent of a file as last known (12 bytes).
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtent {
    pub fofs: U32,
    pub blk: U32,
    pub len: U32,
}

/// Extra attributes, at the start of the address slots (36 bytes).
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawExtraAttr {
    pub i_extra_isize: U16,
    pub i_inline_xattr_size: U16,
    pub i_projid: U32,
    pub i_inode_checksum: U32,
    pub i_crtime: U64,
    pub i_crtime_nsec: U32,
    pub i_compr_blocks: U64,
    pub i_compress_algorithm: u8,
    pub i_log_cluster_size: u8,
    pub i_compress_flag: U16,
}

/// An inode block.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawInode {
    pub i_mode: U16,
    pub i_advise: u8,
    pub i_inline: u8,
    pub i_uid: U32,
    pub i_gid: U32,
    pub i_links: U32,
    pub i_size: U64,
    pub i_blocks: U64,
    pub i_atime: U64,
    pub i_ctime: U64,
    pub i_mtime: U64,
    pub i_atime_nsec: U32,
    pub i_ctime_nsec: U32,
    pub i_mtime_nsec: U32,
    pub i_generation: U32,
    /// Directory: depth of the hash levels. Regular file: failed cleaning attempts of a pinned file (low 16 bits).
    pub i_current_depth: U32,
    pub i_xattr_nid: U32,
    pub i_flags: U32,
    pub i_pino: U32,
    pub i_namelen: U32,
    pub i_name: [u8; NAME_LEN],
    pub i_dir_level: u8,
    pub i_ext: RawExtent,
    /// Extra attributes, data addresses, inline content, inline xattrs: see [`RawInode::slots`].
    pub i_addr: [U32; DEF_ADDRS_PER_INODE],
    pub i_nid: [U32; 5],
    pub footer: RawNodeFooter,
}

/// A direct node block.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawDirectNode {
    pub addr: [U32; ADDRS_PER_BLOCK],
    pub footer: RawNodeFooter,
}

/// An indirect node block.
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawIndirectNode {
    pub nid: [U32; NIDS_PER_BLOCK],
    pub footer: RawNodeFooter,
}

const _: () = assert!(
    size_of::<RawInode>() == BLOCK_SIZE
        && size_of::<RawDirectNode>() == BLOCK_SIZE
        && size_of::<RawIndirectNode>() == BLOCK_SIZE
        && size_of::<RawExtraAttr>() == EXTRA_ISIZE as usize
        && size_of::<RawExtent>() == 12
        && std::mem::offset_of!(RawInode, i_addr) == ADDR_OFFSET
        && std::mem::offset_of!(RawExtraAttr, i_inode_checksum) + ADDR_OFFSET == INODE_CHECKSUM_OFFSET
);

impl RawExtraAttr {
    /// Whether `i_extra_isize` can be: whole slots, from the field itself to all attributes that are known.
    pub fn has_possible_size(&self) -> bool {
        let size = self.i_extra_isize.get();
        size.is_multiple_of(4) && (4..=EXTRA_ISIZE).contains(&size)
    }
}

impl RawInode {
    /// Takes over what lies behind the name of an earlier block of the inode, where the names are as long: a
    /// [seal](crate::seal), which counts there alone.
    pub fn keep_seal_of(&mut self, earlier: &RawInode) {
        let len = self.i_namelen.get() as usize;
        if self.i_namelen == earlier.i_namelen && len <= NAME_LEN {
            self.i_name[len..].copy_from_slice(&earlier.i_name[len..]);
        }
    }

    /// The inline flags.
    pub fn inline(&self) -> Inline {
        Inline::from_bits_retain(self.i_inline)
    }

    /// The hints.
    pub fn advise(&self) -> Advise {
        Advise::from_bits_retain(self.i_advise)
    }

    /// The chattr flags.
    pub fn flags(&self) -> FileFlags {
        FileFlags::from_bits_retain(self.i_flags.get())
    }

    /// The extra attributes' bytes, seen as if all were present; `None` where the inode has none.
    /// Fields beyond `i_extra_isize` must not be used: see [`RawInode::extra_fits`].
    pub fn extra(&self) -> Option<&RawExtraAttr> {
        self.inline().contains(Inline::EXTRA_ATTR).then(|| {
            RawExtraAttr::ref_from_bytes(&self.i_addr.as_bytes()[..size_of::<RawExtraAttr>()]).expect("sized")
        })
    }

    /// The extra attributes to change.
    pub fn extra_mut(&mut self) -> Option<&mut RawExtraAttr> {
        self.inline().contains(Inline::EXTRA_ATTR).then(|| {
            RawExtraAttr::mut_from_bytes(&mut self.i_addr.as_mut_bytes()[..size_of::<RawExtraAttr>()])
                .expect("sized")
        })
    }

    /// Whether the extra attribute ending at byte `end` of [`RawExtraAttr`] is present.
    pub fn extra_fits(&self, end: usize) -> bool {
        self.extra().is_some_and(|e| usize::from(e.i_extra_isize.get()) >= end)
    }

    /// Division of the address slots. `flexible` says whether the volume has `flexible_inline_xattr`.
    /// Call only on a validated inode.
    pub fn slots(&self, flexible: bool) -> Slots {
        let extra = self.extra().map_or(0, |e| usize::from(e.i_extra_isize.get()) / 4);
        let inline_xattr = match self.extra() {
            Some(e) if flexible => usize::from(e.i_inline_xattr_size.get()),
            // Inline directories have the area even where the flag is not set.
            _ if self.inline().intersects(Inline::XATTR | Inline::DENTRY) => DEFAULT_INLINE_XATTR_ADDRS,
            _ => 0,
        };
        let cluster = self.compression().map_or(1, Compression::cluster_pages);
        Slots { extra, inline_xattr, cluster }
    }

    /// The division of the slots, where the sizes that decide it can be: [`RawInode::slots`] of what was not validated.
    pub fn possible_slots(&self, flexible: bool) -> Option<Slots> {
        let possible = self.extra().is_none_or(|extra| {
            let xattr = usize::from(extra.i_inline_xattr_size.get());
            extra.has_possible_size() && (!flexible || xattr <= MAX_INLINE_XATTR_ADDRS)
        });
        possible.then(|| self.slots(flexible))
    }

    /// Whether content fills the inode up to the area of attributes, into which it may go on: `sload.f2fs` leaves the
    /// end of a link's target there.
    pub fn content_meets_attributes(&self, slots: Slots) -> bool {
        let last = slots.inline_xattr_range().start - 1;
        self.inline().contains(Inline::DATA) && self.as_bytes()[last] != 0
    }

    /// Whether nodes of the file lie below its inode.
    pub fn has_nodes(&self) -> bool {
        self.i_nid.iter().any(|nid| nid.get() != NULL_ADDR)
    }

    /// Whether a file may have blocks behind its end: they are there on purpose, or go when it is next opened.
    pub fn may_reach_behind_end(&self) -> bool {
        self.advise().intersects(Advise::KEEP_SIZE | Advise::VERITY | Advise::TRUNC)
            || self.inline().contains(Inline::PIN_FILE)
            || self.i_links.get() == 0
    }

    /// Checksum of the inode block, as stored in `i_inode_checksum`.
    pub fn checksum(&self, seed: u32) -> u32 {
        let crc = crc::chain(seed, &self.footer.ino.get().to_le_bytes());
        let crc = crc::chain(crc, &self.i_generation.get().to_le_bytes());
        let bytes = self.as_bytes();
        let crc = crc::chain(crc, &bytes[..INODE_CHECKSUM_OFFSET]);
        let crc = crc::chain(crc, &[0; 4]);
        crc::chain(crc, &bytes[INODE_CHECKSUM_OFFSET + 4..])
    }

    /// Stores the checksum where the inode has room for one.
    pub fn seal(&mut self, seed: u32) {
        if self.extra_fits(12) {
            let crc = self.checksum(seed);
            if let Some(extra) = self.extra_mut() {
                extra.i_inode_checksum = U32::new(crc);
            }
        }
    }

    /// Whether the checksum is right, on a volume where all inodes have one but those that an import has not reached.
    pub fn is_sealed(&self, layouts: Layouts, seed: u32) -> bool {
        match self.extra() {
            Some(extra) if self.extra_fits(12) => extra.i_inode_checksum.get() == self.checksum(seed),
            _ => layouts == Layouts::Mixed,
        }
    }

    /// The bit of the inode's block that makes its checksum right, where one does. An inode that says it has
    /// no checksum has one all the same where that bit says so.
    pub fn flipped_bit(&self, seed: u32) -> Option<Bit> {
        static SYNDROMES: OnceLock<Syndromes> = OnceLock::new();
        let syndromes = SYNDROMES.get_or_init(|| {
            const INO: usize =
                BLOCK_SIZE - size_of::<RawNodeFooter>() + std::mem::offset_of!(RawNodeFooter, ino);
            const GENERATION: usize = std::mem::offset_of!(RawInode, i_generation);
            let covered = [
                Covered::Bytes(INO..INO + 4),
                Covered::Bytes(GENERATION..GENERATION + 4),
                Covered::Bytes(0..INODE_CHECKSUM_OFFSET),
                Covered::Zeros(4),
                Covered::Bytes(INODE_CHECKSUM_OFFSET + 4..BLOCK_SIZE),
            ];
            Syndromes::new(&covered, INODE_CHECKSUM_OFFSET)
        });
        let bytes = self.as_bytes();
        let stored = bytes[INODE_CHECKSUM_OFFSET..INODE_CHECKSUM_OFFSET + 4].try_into().expect("four bytes");
        let bit = syndromes.find(u32::from_le_bytes(stored), self.checksum(seed))?;
        let mut mended = self.clone();
        mended.as_mut_bytes()[usize::from(bit.byte)] ^= 1 << bit.bit;
        mended.extra_fits(12).then_some(bit)
    }

    /// Name of the field that holds a byte of the inode block.
    pub fn field_at(byte: usize) -> &'static str {
        macro_rules! fields {
            ($($name:ident)*) => { [$((std::mem::offset_of!(RawInode, $name), stringify!($name))),*] };
        }
        let fields = fields!(i_mode i_advise i_inline i_uid i_gid i_links i_size i_blocks i_atime i_ctime i_mtime
            i_atime_nsec i_ctime_nsec i_mtime_nsec i_generation i_current_depth i_xattr_nid i_flags i_pino
            i_namelen i_name i_dir_level i_ext i_addr i_nid footer);
        fields.iter().rev().find(|(at, _)| *at <= byte).map_or("i_mode", |(_, name)| name)
    }

    /// Checks everything about the inode that later code trusts.
    /// `checksum_seed` is given where the volume has `inode_checksum`.
    pub fn validate(
        &self,
        ino: Ino,
        g: &Geometry,
        layouts: Layouts,
        checksum_seed: Option<u32>,
    ) -> Result<(), FormatError> {
        self.validate_extra(ino, layouts, checksum_seed)?;
        let kind = self.validate_content(ino, layouts.is_flexible())?;
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Inode, ino, field, value));
        if self.i_namelen.get() as usize > NAME_LEN {
            return bad("i_namelen", self.i_namelen.to_string());
        }
        if kind == FileKind::Directory && self.i_current_depth.get() > crate::dentry::MAX_DEPTH {
            return bad("i_current_depth", self.i_current_depth.to_string());
        }
        if self.i_xattr_nid.get() == ino || (self.i_xattr_nid.get() != 0 && !g.is_nid(self.i_xattr_nid.get()))
        {
            return bad("i_xattr_nid", self.i_xattr_nid.to_string());
        }
        for nid in self.i_nid {
            if nid.get() != 0 && !g.is_nid(nid.get()) {
                return bad("i_nid", nid.to_string());
            }
        }
        if self.i_blocks.get() == 0 {
            return bad("i_blocks", "0".into());
        }
        Ok(())
    }

    /// Checks the extra attributes, on which the places of everything behind them depend, and the checksum,
    /// which is one of them.
    fn validate_extra(
        &self,
        ino: Ino,
        layouts: Layouts,
        checksum_seed: Option<u32>,
    ) -> Result<(), FormatError> {
        let flexible = layouts.is_flexible();
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Inode, ino, field, value));
        match self.extra() {
            None if !layouts.has_old() => {
                return bad("i_inline", "no extra attributes, which flexible_inline_xattr needs".into());
            }
            None => {}
            Some(extra) => {
                if !extra.has_possible_size() {
                    return bad("i_extra_isize", extra.i_extra_isize.to_string());
                }
                let xattr = usize::from(extra.i_inline_xattr_size.get());
                let least =
                    if self.inline().contains(Inline::XATTR) { crate::xattr::HEADER_SIZE / 4 } else { 0 };
                if flexible && !(least..=MAX_INLINE_XATTR_ADDRS).contains(&xattr) {
                    return bad("i_inline_xattr_size", xattr.to_string());
                }
            }
        }
        if let Some(seed) = checksum_seed
            && self.extra_fits(12)
        {
            let stored = self.extra().map_or(0, |e| e.i_inode_checksum.get());
            let computed = self.checksum(seed);
            if stored != computed {
                return bad("i_inode_checksum", format!("{stored:#010x}, computed {computed:#010x}"));
            }
        }
        Ok(())
    }

    /// Checks what lies inside the inode against the kind of file, which it returns.
    fn validate_content(&self, ino: Ino, flexible: bool) -> Result<FileKind, FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Inode, ino, field, value));
        let Some(kind) = FileKind::from_mode(self.i_mode.get()) else {
            return bad("i_mode", format!("{:#o}", self.i_mode));
        };
        let inline = self.inline();
        if inline.contains(Inline::DATA) && !matches!(kind, FileKind::Regular | FileKind::Symlink) {
            return bad("i_inline", format!("inline data on {kind:?}"));
        }
        if inline.contains(Inline::DENTRY) && kind != FileKind::Directory {
            return bad("i_inline", format!("inline dentries on {kind:?}"));
        }
        if inline.contains(Inline::DATA) {
            let room = self.slots(flexible).inline_content_range().len() as u64;
            if self.i_size.get() > room {
                return bad("i_size", format!("{} with inline data of at most {room}", self.i_size));
            }
        }
        Ok(kind)
    }
}
