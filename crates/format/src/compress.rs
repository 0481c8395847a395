//! Clusters of compressed files: what an inode says of them, the header before the compressed bytes, and which
//! addresses a cluster may have.
//!
//! A compressed file is divided into clusters of 2^n pages, which never straddle a node. A compressed cluster
//! has [`COMPRESS_ADDR`] in its first slot, the blocks with the compressed bytes in the next ones, and in the
//! rest nothing or what is reserved, so that the cluster can be written as it is again.
//! Invariant: values read from disk are checked here, once, before anything is decoded by them.

use crate::file_kind::FileKind;
use crate::node::{FileFlags, Inline, RawInode};
use crate::{
    BLOCK_SIZE, BlockAddr, COMPRESS_ADDR, FormatError, Ino, NEW_ADDR, NULL_ADDR, Structure, crc, flip,
    is_block,
};
use std::ops::RangeInclusive;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Log2 of the pages a cluster may have.
pub const LOG_CLUSTER_SIZES: RangeInclusive<u8> = 2..=8;
/// Bytes of the header before the compressed bytes.
pub const CLUSTER_HEADER_SIZE: usize = size_of::<RawClusterHeader>();
/// In `i_compress_flag`: the header's checksum is meant.
pub const COMPRESS_CHECKSUM: u16 = 1;
/// In `i_compress_flag`: where the level starts.
const LEVEL_SHIFT: u32 = 8;
/// End of the fields inside the extra attributes.
const EXTRA_END: usize = size_of::<crate::node::RawExtraAttr>();

/// Header of a compressed cluster, at the start of its first block (24 bytes).
#[derive(Debug, Clone, Copy, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawClusterHeader {
    /// Compressed bytes behind the header.
    pub clen: U32,
    /// Checksum of the compressed bytes, where the inode says so, else 0.
    pub chksum: U32,
    /// Zero.
    pub reserved: [U32; 4],
}

const _: () = assert!(CLUSTER_HEADER_SIZE == 24);

/// The algorithm for a file's clusters: `i_compress_algorithm`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Algorithm {
    /// LZO1X.
    Lzo = 0,
    /// An LZ4 block.
    Lz4 = 1,
    /// A zstd frame.
    Zstd = 2,
    /// LZO1X with runs of zeros.
    LzoRle = 3,
}

impl Algorithm {
    /// All of them, in the order of their numbers.
    pub const ALL: [Algorithm; 4] = [Algorithm::Lzo, Algorithm::Lz4, Algorithm::Zstd, Algorithm::LzoRle];

    /// The one with this number.
    pub fn from_number(number: u8) -> Option<Algorithm> {
        Algorithm::ALL.get(usize::from(number)).copied()
    }

    /// The kernel's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Algorithm::Lzo => "lzo",
            Algorithm::Lz4 => "lz4",
            Algorithm::Zstd => "zstd",
            Algorithm::LzoRle => "lzo-rle",
        }
    }
}

/// The compression settings of an inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compression {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// Log2 of a cluster's pages, one of [`LOG_CLUSTER_SIZES`].
    pub log_cluster_size: u8,
    /// Whether compressed bytes have a checksum.
    pub checksum: bool,
    /// The algorithm's level; 0 is its default.
    pub level: u8,
}

impl Compression {
    /// Pages of a cluster.
    pub fn cluster_pages(self) -> usize {
        1 << self.log_cluster_size
    }

    /// Writes it into an inode; `false` where the inode has no room for it among its extra attributes, as other
    /// drivers, and programs that make volumes, leave some. What is there instead are addresses.
    #[must_use]
    pub fn store(self, inode: &mut RawInode) -> bool {
        let has_room = inode.extra_fits(EXTRA_END);
        let Some(extra) = inode.extra_mut().filter(|_| has_room) else { return false };
        extra.i_compress_algorithm = self.algorithm as u8;
        extra.i_log_cluster_size = self.log_cluster_size;
        let checksum = if self.checksum { COMPRESS_CHECKSUM } else { 0 };
        extra.i_compress_flag = U16::new(checksum | u16::from(self.level) << LEVEL_SHIFT);
        true
    }
}

impl RawInode {
    /// Whether the inode has fields for compression, and is marked as compressed (directories hand that down).
    fn is_marked_compressed(&self) -> bool {
        self.flags().contains(FileFlags::COMPR) && self.extra_fits(EXTRA_END)
    }

    /// The compression settings of the file; `None` where it is not compressed. Only on volumes with the feature
    /// `compression`.
    pub fn compression(&self) -> Option<Compression> {
        let extra = self.extra().filter(|_| self.is_marked_compressed())?;
        let regular = FileKind::from_mode(self.i_mode.get()) == Some(FileKind::Regular);
        if !regular || !LOG_CLUSTER_SIZES.contains(&extra.i_log_cluster_size) {
            return None;
        }
        let flag = extra.i_compress_flag.get();
        Some(Compression {
            algorithm: Algorithm::from_number(extra.i_compress_algorithm)?,
            log_cluster_size: extra.i_log_cluster_size,
            checksum: flag & COMPRESS_CHECKSUM != 0,
            level: (flag >> LEVEL_SHIFT) as u8,
        })
    }

    /// Checks what the inode says of its compression. For volumes with the feature `compression`.
    pub fn validate_compression(&self, ino: Ino) -> Result<(), FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::Inode, ino, field, value));
        let Some(extra) = self.extra().filter(|_| self.is_marked_compressed()) else { return Ok(()) };
        if Algorithm::from_number(extra.i_compress_algorithm).is_none() {
            return bad("i_compress_algorithm", extra.i_compress_algorithm.to_string());
        }
        if !LOG_CLUSTER_SIZES.contains(&extra.i_log_cluster_size) {
            return bad("i_log_cluster_size", extra.i_log_cluster_size.to_string());
        }
        if extra.i_compr_blocks.get() > self.i_blocks.get() {
            return bad("i_compr_blocks", format!("{} of {} blocks", extra.i_compr_blocks, self.i_blocks));
        }
        let regular = FileKind::from_mode(self.i_mode.get()) == Some(FileKind::Regular);
        if regular && self.inline().contains(Inline::DATA) {
            return bad("i_inline", "inline data in a compressed file".into());
        }
        Ok(())
    }

    /// Whether the blocks that compression saved were given back, so that first slots do not count as blocks.
    pub fn saved_blocks_released(&self) -> bool {
        self.inline().contains(Inline::COMPRESS_RELEASED)
    }
}

/// The meaning of a cluster's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cluster {
    /// Each page has its own address.
    Plain,
    /// The slots behind the first name so many blocks of compressed bytes, at least one.
    Compressed(usize),
}

impl Cluster {
    /// Of the addresses of one cluster; an error says what is wrong with them.
    pub fn of(addrs: &[BlockAddr]) -> Result<Cluster, &'static str> {
        let Some((&COMPRESS_ADDR, rest)) = addrs.split_first() else {
            let stray = addrs.contains(&COMPRESS_ADDR);
            return if stray { Err("a cluster's mark inside a cluster") } else { Ok(Cluster::Plain) };
        };
        let blocks = rest.iter().take_while(|&&a| is_block(a)).count();
        if blocks == 0 {
            return Err("a compressed cluster without blocks");
        }
        match rest[blocks..].iter().all(|&a| a == NULL_ADDR || a == NEW_ADDR) {
            true => Ok(Cluster::Compressed(blocks)),
            false => Err("a compressed cluster with gaps"),
        }
    }

    /// The part of `i_compr_blocks` for a cluster of so many pages: the slots that hold no compressed bytes.
    pub fn saved(self, pages: usize) -> u64 {
        match self {
            Cluster::Plain => 0,
            Cluster::Compressed(blocks) => (pages - blocks) as u64,
        }
    }
}

/// The compressed bytes behind the header in the blocks of a cluster, with their header.
///
/// # Errors
/// The header announces more than the blocks hold; the error is what it says.
pub fn cluster_content(blocks: &[u8]) -> Result<(&RawClusterHeader, &[u8]), u32> {
    let (header, rest) = RawClusterHeader::ref_from_prefix(blocks).map_err(|_| 0u32)?;
    let content = rest.get(..header.clen.get() as usize).ok_or(header.clen.get())?;
    Ok((header, content))
}

/// Turns back the one bit of a cluster's blocks that makes its checksum right: of the compressed bytes, of the checksum
/// itself or of the length; where that was, its byte and bit. `None`, and nothing is changed, where none does so, or
/// several do. Whoever asks expands the cluster then: of other damage one in some ten thousand looks like a bit.
pub fn turn_back(blocks: &mut [u8]) -> Option<(usize, u8)> {
    const CHKSUM: usize = 4;
    let mut found = Vec::new();
    if let Ok((header, content)) = cluster_content(blocks) {
        let wrong_by = header.chksum.get() ^ crc::f2fs(content);
        let bit = flip::find_in(content.len(), wrong_by);
        found.extend(bit.map(|(byte, bit)| (CLUSTER_HEADER_SIZE + byte, bit)));
        if wrong_by.is_power_of_two() {
            let bit = wrong_by.trailing_zeros() as usize;
            found.push((CHKSUM + bit / 8, (bit % 8) as u8));
        }
    }
    let is_full = |clen: u32| blocks_of(clen as usize) * BLOCK_SIZE == blocks.len();
    for bit in 0..u32::BITS as usize {
        let (header, _) = RawClusterHeader::ref_from_prefix(blocks).ok()?;
        let clen = header.clen.get() ^ 1 << bit;
        let content = blocks.get(CLUSTER_HEADER_SIZE..CLUSTER_HEADER_SIZE.saturating_add(clen as usize));
        if content.is_some_and(|content| is_full(clen) && crc::f2fs(content) == header.chksum.get()) {
            found.push((bit / 8, (bit % 8) as u8));
        }
    }
    let [(byte, bit)] = found[..] else { return None };
    blocks[byte] ^= 1 << bit;
    Some((byte, bit))
}

/// Blocks that so many compressed bytes take with their header.
pub fn blocks_of(clen: usize) -> usize {
    (clen + CLUSTER_HEADER_SIZE).div_ceil(BLOCK_SIZE)
}

/// Most compressed bytes of a cluster of so many pages: a block at least is saved.
pub fn most_content(pages: usize) -> usize {
    (pages - 1) * BLOCK_SIZE - CLUSTER_HEADER_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Block;

    #[test]
    fn addresses_of_clusters() {
        const C: BlockAddr = COMPRESS_ADDR;
        const N: BlockAddr = NEW_ADDR;
        for (addrs, expected) in [
            ([5, 6, 7, 8], Ok(Cluster::Plain)),
            ([0, N, 0, 8], Ok(Cluster::Plain)),
            ([C, 6, 7, N], Ok(Cluster::Compressed(2))),
            ([C, 6, 0, 0], Ok(Cluster::Compressed(1))),
            ([C, 6, 7, 8], Ok(Cluster::Compressed(3))),
            ([C, N, N, N], Err("a compressed cluster without blocks")),
            ([C, 6, N, 8], Err("a compressed cluster with gaps")),
            ([C, 6, C, N], Err("a compressed cluster with gaps")),
            ([5, C, 7, 8], Err("a cluster's mark inside a cluster")),
        ] {
            assert_eq!(Cluster::of(&addrs), expected, "{addrs:?}");
        }
        assert_eq!(Cluster::Compressed(1).saved(4), 3);
        assert_eq!(Cluster::Plain.saved(4), 0);
    }

    #[test]
    fn a_header_is_believed_as_far_as_its_blocks_go() {
        let mut blocks = vec![0; 2 * BLOCK_SIZE];
        blocks[..4].copy_from_slice(&(8192u32 - 24).to_le_bytes());
        assert_eq!(cluster_content(&blocks).unwrap().1.len(), 8168);
        blocks[..4].copy_from_slice(&(8192u32 - 23).to_le_bytes());
        assert_eq!(cluster_content(&blocks).unwrap_err(), 8169);
        assert_eq!((blocks_of(4072), blocks_of(4073)), (1, 2));
        assert_eq!(most_content(4), 3 * 4096 - 24);
    }

    #[test]
    fn any_bit_of_a_cluster_is_turned_back_and_two_are_not() {
        let mut blocks: Vec<u8> = (0..2 * BLOCK_SIZE).map(|i| (i * 31 + i / 7) as u8).collect();
        let clen = 6000;
        blocks[..4].copy_from_slice(&(clen as u32).to_le_bytes());
        let chksum = crc::f2fs(&blocks[CLUSTER_HEADER_SIZE..][..clen]);
        blocks[4..8].copy_from_slice(&chksum.to_le_bytes());
        let whole = blocks.clone();
        let end = CLUSTER_HEADER_SIZE + clen;
        for byte in (0..8).chain((CLUSTER_HEADER_SIZE..end).step_by(97)).chain(end - 5..end) {
            for bit in 0..8u8 {
                blocks[byte] ^= 1 << bit;
                assert_eq!(turn_back(&mut blocks), Some((byte, bit)));
                assert!(blocks == whole, "bit {bit} of byte {byte}");
            }
        }
        for byte in (CLUSTER_HEADER_SIZE..end - 1).step_by(31) {
            blocks[byte] ^= 0x10;
            blocks[byte + 1] ^= 0x02;
            let damaged = blocks.clone();
            assert!(turn_back(&mut blocks).is_none() && blocks == damaged, "byte {byte}");
            blocks.copy_from_slice(&whole);
        }
    }

    #[test]
    fn an_inode_keeps_its_compression() {
        let mut block = Block::ZERO;
        let inode: &mut RawInode = block.view_mut();
        inode.i_mode = 0o100644.into();
        inode.i_inline = Inline::EXTRA_ATTR.bits();
        inode.extra_mut().unwrap().i_extra_isize = 36.into();
        let wanted =
            Compression { algorithm: Algorithm::Zstd, log_cluster_size: 3, checksum: true, level: 7 };
        inode.extra_mut().unwrap().i_extra_isize = 24.into();
        let before = inode.as_bytes().to_vec();
        assert!(!wanted.store(inode) && inode.as_bytes() == before, "addresses begin behind 24 bytes");
        inode.extra_mut().unwrap().i_extra_isize = 36.into();
        assert!(wanted.store(inode));
        assert_eq!((inode.compression(), inode.slots(false).cluster), (None, 1));
        inode.i_flags = FileFlags::COMPR.bits().into();
        assert_eq!((inode.compression(), inode.slots(false).cluster), (Some(wanted), 8));
        assert_eq!(inode.slots(false).addrs(), 914 / 8 * 8);
        assert!(inode.validate_compression(5).is_ok());
        for (spoil, field) in [
            (|r: &mut RawInode| r.extra_mut().unwrap().i_log_cluster_size = 9, "i_log_cluster_size"),
            (|r: &mut RawInode| r.extra_mut().unwrap().i_compress_algorithm = 4, "i_compress_algorithm"),
            (|r: &mut RawInode| r.extra_mut().unwrap().i_compr_blocks = 9.into(), "i_compr_blocks"),
            (|r: &mut RawInode| r.i_inline |= Inline::DATA.bits(), "i_inline"),
        ] as [(fn(&mut RawInode), &str); 4]
        {
            let mut spoiled = inode.clone();
            spoil(&mut spoiled);
            let error = spoiled.validate_compression(5).unwrap_err();
            assert!(error.to_string().contains(field), "{error}");
        }
    }
}
