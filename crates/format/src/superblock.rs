//! The superblock: two copies, in blocks 0 and 1, each 1024 bytes into its block.

use crate::flip::{Bit, Covered, Syndromes};
use crate::slots::Layouts;
use crate::{BLOCK_SIZE, Block, FormatError, Geometry, Structure, crc};
use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

pub use crate::limits::MAGIC;

/// Magic number of a volume that may hold deltas: what knows F2FS alone would return bases for pages, so it must not
/// take it for one of its own.
pub const DELTA_MAGIC: u32 = 0x4D65_4453;
/// Version of what a delta volume has beyond F2FS.
pub const DELTA_VERSION: u32 = 1;
/// Features that a volume must have to hold deltas.
pub const DELTA_FEATURES: Feature =
    Feature::EXTRA_ATTR.union(Feature::FLEXIBLE_INLINE_XATTR).union(Feature::INODE_CHECKSUM);
/// Bit of [`RawDeltaInfo::incompat`]: inodes may lack extra attributes, as an import that gives them to all
/// has not ended.
pub const DELTA_OLD_LAYOUTS: u32 = 1;
/// Bit of [`RawDeltaInfo::incompat`]: fsyncs may lie in an NVRAM beside the volume ([`crate::nvram`]).
pub const DELTA_NVRAM: u32 = 2;
/// Bit of [`RawDeltaInfo::incompat`]: nodes of the roll-forward log may be sealed ([`crate::seal`]).
pub const DELTA_SEALS: u32 = 4;
/// Bit of [`RawDeltaInfo::incompat`]: zones may say which compact pages their files have ([`crate::delta::Tie`]).
pub const DELTA_TIES: u32 = 8;
/// Features that decide how a volume is laid out when it is made, and those that medfs does not know.
const FROM_THE_BEGINNING: Feature = Feature::BLKZONED
    .union(Feature::RO)
    .union(Feature::DEVICE_ALIAS)
    .union(Feature::from_bits_retain(!((Feature::DEVICE_ALIAS.bits() << 1) - 1)));
/// Offset of the superblock inside its block.
pub const OFFSET_IN_BLOCK: usize = 1024;
/// Offset of the checksum inside the superblock, which is also the number of bytes it covers.
pub const CRC_OFFSET: usize = 3068;
/// Longest label, in UTF-16 units.
pub const MAX_LABEL: usize = 512;
/// Entries of the extension list.
pub const MAX_EXTENSIONS: usize = 64;
/// Bytes of one extension.
pub const EXTENSION_LEN: usize = 8;

bitflags! {
    /// Feature bits of the superblock.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Feature: u32 {
        /// Files may be encrypted.
        const ENCRYPT = 0x0001;
        /// Made for a zoned block device.
        const BLKZONED = 0x0002;
        /// Reserved for atomic writes.
        const ATOMIC_WRITE = 0x0004;
        /// Inodes may carry extra attributes.
        const EXTRA_ATTR = 0x0008;
        /// Inodes carry a project id.
        const PROJECT_QUOTA = 0x0010;
        /// Inodes carry a checksum.
        const INODE_CHECKSUM = 0x0020;
        /// The inline xattr area's size is per inode.
        const FLEXIBLE_INLINE_XATTR = 0x0040;
        /// Quota files are hidden inodes named in the superblock.
        const QUOTA = 0x0080;
        /// Inodes carry a creation time.
        const INODE_CRTIME = 0x0100;
        /// A lost+found directory exists.
        const LOST_FOUND = 0x0200;
        /// Files may be under fs-verity.
        const VERITY = 0x0400;
        /// The superblock carries a checksum.
        const SB_CHECKSUM = 0x0800;
        /// Directories may be case-insensitive.
        const CASEFOLD = 0x1000;
        /// Files may be compressed.
        const COMPRESSION = 0x2000;
        /// Read-only volume layout.
        const RO = 0x4000;
        /// Several volumes share one device as aliased files.
        const DEVICE_ALIAS = 0x8000;
        /// Unknown bits are kept, so that they can be named.
        const _ = !0;
    }
}

/// One device of a multi-device volume.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawDevice {
    /// Path, zero-terminated.
    pub path: [u8; 64],
    /// Segments on it.
    pub total_segments: U32,
}

/// The superblock as it is on disk (3072 bytes).
#[derive(Debug, Clone, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawSuperblock {
    pub magic: U32,
    pub major_ver: U16,
    pub minor_ver: U16,
    pub log_sectorsize: U32,
    pub log_sectors_per_block: U32,
    pub log_blocksize: U32,
    pub log_blocks_per_seg: U32,
    pub segs_per_sec: U32,
    pub secs_per_zone: U32,
    pub checksum_offset: U32,
    pub block_count: U64,
    pub section_count: U32,
    pub segment_count: U32,
    pub segment_count_ckpt: U32,
    pub segment_count_sit: U32,
    pub segment_count_nat: U32,
    pub segment_count_ssa: U32,
    pub segment_count_main: U32,
    pub segment0_blkaddr: U32,
    pub cp_blkaddr: U32,
    pub sit_blkaddr: U32,
    pub nat_blkaddr: U32,
    pub ssa_blkaddr: U32,
    pub main_blkaddr: U32,
    pub root_ino: U32,
    pub node_ino: U32,
    pub meta_ino: U32,
    pub uuid: [u8; 16],
    pub volume_name: [U16; MAX_LABEL],
    pub extension_count: U32,
    pub extension_list: [[u8; EXTENSION_LEN]; MAX_EXTENSIONS],
    pub cp_payload: U32,
    pub version: [u8; 256],
    pub init_version: [u8; 256],
    pub feature: U32,
    pub encryption_level: u8,
    pub encrypt_pw_salt: [u8; 16],
    pub devs: [RawDevice; 8],
    pub qf_ino: [U32; 3],
    pub hot_ext_count: u8,
    pub s_encoding: U16,
    pub s_encoding_flags: U16,
    pub s_stop_reason: [u8; 32],
    pub s_errors: [u8; 16],
    pub delta: RawDeltaInfo,
    pub nvram: RawNvramInfo,
    pub reserved: [u8; 162],
    pub crc: U32,
}

/// What a delta volume says of itself in the superblock's reserved space (16 bytes); zeros on F2FS.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct RawDeltaInfo {
    /// [`DELTA_VERSION`].
    pub version: U32,
    /// Additions that may be ignored.
    pub compat: U32,
    /// Additions that must be known to write.
    pub ro_compat: U32,
    /// Additions that must be known to read.
    pub incompat: U32,
}

/// Which NVRAM holds fsyncs of a volume whose [`DELTA_NVRAM`] is set (80 bytes); zeros otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawNvramInfo {
    /// Generation of the journal.
    pub generation: U64,
    /// Version of the checkpoint that was in force when it was begun.
    pub checkpoint: U64,
    /// Its path when it was used, cut off or filled with zeros.
    pub path: [u8; 64],
}

impl RawNvramInfo {
    /// Of no journal.
    pub const NONE: RawNvramInfo =
        RawNvramInfo { generation: U64::ZERO, checkpoint: U64::ZERO, path: [0; 64] };

    /// A journal of this generation, begun under this checkpoint, that is at `path`.
    pub fn new(generation: u64, checkpoint: u64, path: &str) -> RawNvramInfo {
        let mut info =
            RawNvramInfo { generation: generation.into(), checkpoint: checkpoint.into(), path: [0; 64] };
        let len = path.len().min(info.path.len());
        info.path[..len].copy_from_slice(&path.as_bytes()[..len]);
        info
    }

    /// Its path when it was used.
    pub fn place(&self) -> String {
        let len = self.path.iter().position(|&byte| byte == 0).unwrap_or(self.path.len());
        String::from_utf8_lossy(&self.path[..len]).into_owned()
    }
}

const _: () = assert!(
    size_of::<RawNvramInfo>() == 80
        && size_of::<RawSuperblock>() == 3072
        && std::mem::offset_of!(RawSuperblock, crc) == CRC_OFFSET
        && std::mem::offset_of!(RawSuperblock, feature) == 2180
        && size_of::<RawSuperblock>() + OFFSET_IN_BLOCK == BLOCK_SIZE
);

impl RawSuperblock {
    /// The superblock inside its block.
    pub fn in_block(block: &Block) -> &RawSuperblock {
        RawSuperblock::ref_from_bytes(&block.0[OFFSET_IN_BLOCK..]).expect("size asserted")
    }

    /// The superblock inside its block, to change.
    pub fn in_block_mut(block: &mut Block) -> &mut RawSuperblock {
        RawSuperblock::mut_from_bytes(&mut block.0[OFFSET_IN_BLOCK..]).expect("size asserted")
    }

    /// Feature bits, unknown ones included.
    pub fn features(&self) -> Feature {
        Feature::from_bits_retain(self.feature.get())
    }

    /// Recomputes the checksum where the volume has one.
    pub fn seal(&mut self) {
        if self.features().contains(Feature::SB_CHECKSUM) {
            self.checksum_offset = U32::new(CRC_OFFSET as u32);
            self.crc = U32::new(crc::f2fs(&self.as_bytes()[..CRC_OFFSET]));
        }
    }

    /// The bit of a superblock's block that makes its checksum right, where it says that it has one and one bit does.
    pub fn flipped_bit(block: &Block) -> Option<Bit> {
        let sb = RawSuperblock::in_block(block);
        if !sb.features().contains(Feature::SB_CHECKSUM) {
            return None;
        }
        let covered = [Covered::Bytes(OFFSET_IN_BLOCK..OFFSET_IN_BLOCK + CRC_OFFSET)];
        let computed = crc::f2fs(&sb.as_bytes()[..CRC_OFFSET]);
        Syndromes::new(&covered, OFFSET_IN_BLOCK + CRC_OFFSET).find(sb.crc.get(), computed)
    }

    /// Whether it says that it has a checksum, and has another one: no field of it is to be believed.
    pub fn has_wrong_checksum(&self) -> bool {
        let computed = || crc::f2fs(&self.as_bytes()[..CRC_OFFSET]);
        self.features().contains(Feature::SB_CHECKSUM) && self.crc.get() != computed()
    }

    /// The label, decoded from UTF-16.
    pub fn label(&self) -> String {
        let units: Vec<u16> = self.volume_name.iter().map(|u| u.get()).take_while(|&u| u != 0).collect();
        String::from_utf16_lossy(&units)
    }

    /// Sets the label; `false` where it is too long.
    pub fn set_label(&mut self, label: &str) -> bool {
        let units: Vec<u16> = label.encode_utf16().collect();
        if units.len() >= MAX_LABEL {
            return false;
        }
        self.volume_name = [U16::new(0); MAX_LABEL];
        for (slot, unit) in self.volume_name.iter_mut().zip(units) {
            *slot = U16::new(unit);
        }
        true
    }

    /// `Incompatible` where fsyncs may lie in an NVRAM.
    pub fn check_no_nvram(&self) -> Result<(), FormatError> {
        match self.nvram_in_use() {
            None => Ok(()),
            Some(nvram) => Err(FormatError::Incompatible(format!(
                "fsyncs of this volume may lie in the NVRAM {place} (journal {:016x}): mount it with nvram={place}, which brings them back, or \
                 with nvram=discard, which gives them up",
                nvram.generation.get(),
                place = nvram.place(),
            ))),
        }
    }

    /// Checks every field that is later trusted and derives the volume's geometry from them.
    pub fn validate(&self) -> Result<Geometry, FormatError> {
        let bad = |field, value: String| FormatError::corrupt(Structure::Superblock, 0u32, field, value);
        if !self.has_magic() {
            let expected = format!("neither F2FS's {MAGIC:#010x} nor medfs's {DELTA_MAGIC:#010x}");
            return Err(bad("magic", format!("{:#010x}, {expected}", self.magic)));
        }
        if self.features().contains(Feature::SB_CHECKSUM) {
            if self.checksum_offset.get() as usize != CRC_OFFSET {
                return Err(bad("checksum_offset", self.checksum_offset.to_string()));
            }
            let computed = crc::f2fs(&self.as_bytes()[..CRC_OFFSET]);
            if self.crc.get() != computed {
                return Err(bad("crc", format!("{:#010x}, computed {computed:#010x}", self.crc)));
            }
        }
        if self.log_blocksize.get() != 12 {
            return Err(FormatError::Incompatible(format!(
                "block size 2^{} bytes: only volumes with 4 KiB blocks are supported",
                self.log_blocksize
            )));
        }
        if !(9..=12).contains(&self.log_sectorsize.get())
            || self.log_sectorsize.get().saturating_add(self.log_sectors_per_block.get()) != 12
        {
            return Err(bad(
                "log_sectorsize",
                format!("{} + {}", self.log_sectorsize, self.log_sectors_per_block),
            ));
        }
        if self.log_blocks_per_seg.get() != crate::LOG_BLOCKS_PER_SEG {
            return Err(bad("log_blocks_per_seg", self.log_blocks_per_seg.to_string()));
        }
        let features = self.features();
        if features.contains(Feature::FLEXIBLE_INLINE_XATTR) && !features.contains(Feature::EXTRA_ATTR) {
            // Each inode would have to have what no inode may have.
            return Err(bad("feature", "flexible_inline_xattr without extra_attr".to_owned()));
        }
        self.check_deltas()?;
        Geometry::from_superblock(self)
    }

    /// Whether two agree in what matters: not in the error records and version strings, which the kernel may
    /// update in one copy at a time.
    pub fn agrees_with(&self, other: &RawSuperblock) -> bool {
        let strip = |sb: &RawSuperblock| RawSuperblock {
            version: [0; 256],
            init_version: [0; 256],
            s_stop_reason: [0; 32],
            s_errors: [0; 16],
            crc: 0.into(),
            ..sb.clone()
        };
        strip(self).as_bytes() == strip(other).as_bytes()
    }

    /// The copy that counts as far as copies alone tell ([`crate::weigh`] asks the volume too), of those that
    /// are valid: the first one, unless they disagree. Where one is plain and one of deltas, a switch between
    /// the two kinds was interrupted while there were none, and the plain copy counts. Where one alone says
    /// that fsyncs may lie in an NVRAM, they may. Where one has a feature more that a volume has from its
    /// beginning or not at all, it has a flipped bit.
    pub fn position_in_force(valid: &[&RawSuperblock]) -> Option<usize> {
        let kind = |copy: &RawSuperblock| (copy.is_delta_volume(), copy.nvram_in_use().is_none());
        if let [first, second] = valid
            && kind(first) == kind(second)
        {
            return Some(usize::from(first.has_one_more_than(second)));
        }
        // Of equal ones this is the first.
        (0..valid.len()).min_by_key(|&at| kind(valid[at]))
    }

    /// Whether it has one feature more, of those that nothing gives to a volume that is there.
    fn has_one_more_than(&self, other: &RawSuperblock) -> bool {
        let more = self.features().difference(other.features());
        let only = self.features().symmetric_difference(other.features()) == more;
        only && more.bits().count_ones() == 1 && FROM_THE_BEGINNING.contains(more)
    }

    /// Whether the volume may hold deltas.
    pub fn is_delta_volume(&self) -> bool {
        self.magic.get() == DELTA_MAGIC
    }

    /// Whether it is the superblock of a volume, F2FS's or medfs's, as far as its first field says.
    pub fn has_magic(&self) -> bool {
        self.magic.get() == MAGIC || self.is_delta_volume()
    }

    /// Makes a superblock that of a delta volume. Where it lacks features that deltas need, it gets them, and
    /// says that inodes may have the old layout: then all that have extra attributes must already be as these
    /// features have them.
    pub fn become_delta_volume(&mut self) {
        let missing = !self.features().contains(DELTA_FEATURES);
        self.magic = DELTA_MAGIC.into();
        self.feature = (self.features() | DELTA_FEATURES).bits().into();
        let incompat = DELTA_SEALS | DELTA_TIES | if missing { DELTA_OLD_LAYOUTS } else { 0 };
        self.delta = RawDeltaInfo {
            version: DELTA_VERSION.into(),
            incompat: incompat.into(),
            ..RawDeltaInfo::default()
        };
        self.seal();
    }

    /// The NVRAM that may hold fsyncs of the volume.
    pub fn nvram_in_use(&self) -> Option<RawNvramInfo> {
        let used = self.is_delta_volume() && self.delta.incompat.get() & DELTA_NVRAM != 0;
        used.then_some(self.nvram)
    }

    /// Says which NVRAM may hold fsyncs of the volume, or that none does.
    pub fn set_nvram(&mut self, nvram: Option<RawNvramInfo>) {
        let others = self.delta.incompat.get() & !DELTA_NVRAM;
        self.delta.incompat = if nvram.is_some() { others | DELTA_NVRAM } else { others }.into();
        self.nvram = nvram.unwrap_or(RawNvramInfo::NONE);
        self.seal();
    }

    /// Whether inodes of the volume may lack extra attributes although its features demand them.
    pub fn has_old_layouts(&self) -> bool {
        self.is_delta_volume() && self.delta.incompat.get() & DELTA_OLD_LAYOUTS != 0
    }

    /// Whether nodes of the roll-forward log may be sealed.
    pub fn has_seals(&self) -> bool {
        self.is_delta_volume() && self.delta.incompat.get() & DELTA_SEALS != 0
    }

    /// Says that no seal counts. The caller has seen to it that all the log holds does.
    pub fn leave_seals(&mut self) {
        self.delta.incompat = (self.delta.incompat.get() & !DELTA_SEALS).into();
        self.seal();
    }

    /// Whether zones of the volume may say which compact pages their files have.
    pub fn has_ties(&self) -> bool {
        self.is_delta_volume() && self.delta.incompat.get() & DELTA_TIES != 0
    }

    /// Says of a delta volume that nodes may be sealed from now on, and zones tied. The log must be empty.
    pub fn allow_seals_and_ties(&mut self) {
        self.delta.incompat = (self.delta.incompat.get() | DELTA_SEALS | DELTA_TIES).into();
        self.seal();
    }

    /// Says that all inodes have extra attributes. The caller has seen to it.
    pub fn leave_old_layouts(&mut self) {
        self.delta.incompat = (self.delta.incompat.get() & !DELTA_OLD_LAYOUTS).into();
        self.seal();
    }

    /// What is written, each durable before the next, to turn a copy that reads `now` into this one. Where
    /// the features change, the sectors of a copy without checksum must not mix: the copy is useless in
    /// between, and says so in one sector.
    pub fn steps_from(&self, now: &RawSuperblock) -> Vec<RawSuperblock> {
        if now.feature == self.feature {
            return vec![self.clone()];
        }
        let useless = |copy: &RawSuperblock| {
            let mut copy = copy.clone();
            copy.magic = DELTA_MAGIC.into();
            copy.delta.version = 0.into();
            copy
        };
        vec![useless(now), useless(self), self.clone()]
    }

    /// The division of slots in the volume's inodes.
    pub fn layouts(&self) -> Layouts {
        match self.features().contains(Feature::FLEXIBLE_INLINE_XATTR) {
            true if self.has_old_layouts() => Layouts::Mixed,
            true => Layouts::Flexible,
            false => Layouts::Fixed,
        }
    }

    /// Makes a superblock one of plain F2FS. The caller has seen to it that no delta is left.
    pub fn become_plain(&mut self) {
        self.magic = MAGIC.into();
        self.delta = RawDeltaInfo::default();
        self.nvram = RawNvramInfo::NONE;
        self.seal();
    }

    /// Whether the volume holds something beyond F2FS that has to be known to write to it, and is not.
    pub fn has_unknown_ro_compat(&self) -> bool {
        self.is_delta_volume() && self.delta.ro_compat.get() != 0
    }

    /// Refuses delta volumes of later versions, and such as lack what deltas need.
    fn check_deltas(&self) -> Result<(), FormatError> {
        if !self.is_delta_volume() {
            return Ok(());
        }
        let info = &self.delta;
        if info.version.get() != DELTA_VERSION
            || info.incompat.get() & !(DELTA_OLD_LAYOUTS | DELTA_NVRAM | DELTA_SEALS | DELTA_TIES) != 0
        {
            return Err(FormatError::Incompatible(format!(
                "deltas of version {} with features {:#x}: this medfs supports version {DELTA_VERSION} only; use a newer medfs",
                info.version, info.incompat
            )));
        }
        let missing = DELTA_FEATURES - self.features();
        if !missing.is_empty() {
            return Err(FormatError::corrupt(
                Structure::Superblock,
                0u32,
                "feature",
                format!("a volume with deltas lacks {missing:?}"),
            ));
        }
        Ok(())
    }
}
