//! The file in which a repair keeps every block that it changes, as it was.
//!
//! ```text
//! 0        header        8192     records, 4128 bytes each        behind them, once the repair has ended: afters
//! 4096     header
//! ```
//!
//! A header is written to the two places by turns, so that one is whole whenever the power goes; the one with
//! the higher sequence number counts. It is written when its records are durable, and before a block on the
//! device is changed. So a file has at least as many records as its header says, and what is behind them
//! belongs to blocks that were not changed yet.
//!
//! A record at [`WITNESSES`] is of no block. It says what the repair is about to leave in those blocks that any use of
//! the volume changes: of a repair that was interrupted they hold what one of these records says, or what they held
//! before, unless the volume was used since.

use crate::{BLOCK_SIZE, Block, FormatError, Structure, crc};
use twox_hash::XxHash3_64;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// First bytes of a header.
pub const UNDO_MAGIC: [u8; 8] = *b"medfsUND";
/// First bytes of a record.
pub const UNDO_RECORD_MAGIC: u32 = 0x4352_4e55;
/// Version of the layout.
pub const UNDO_VERSION: u32 = 4;
/// In place of an address: the record's block holds afters, those of blocks that any use of the volume changes.
pub const WITNESSES: u64 = u64::MAX;
/// Offsets of the headers.
pub const HEADERS: [u64; 2] = [0, BLOCK_SIZE as u64];
/// Offset of the first record.
pub const FIRST_RECORD: u64 = 2 * BLOCK_SIZE as u64;
/// Bytes of a record with its block.
pub const RECORD_SIZE: u64 = (size_of::<RawUndoRecord>() + BLOCK_SIZE) as u64;

/// Header of an undo file (88 bytes).
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawUndoHeader {
    pub magic: [u8; 8],
    pub version: U32,
    /// 1: the repair has ended, and the afters are there.
    pub ended: U32,
    /// Higher in each header that is written.
    pub sequence: U64,
    /// Of the volume.
    pub uuid: [u8; 16],
    /// Size of the device in blocks.
    pub blocks: U64,
    /// Tells the records of this file from those of another.
    pub salt: U64,
    /// Records that are durable.
    pub records: U64,
    /// Afters behind them.
    pub afters: U64,
    /// CRC of all afters.
    pub afters_crc: U32,
    pub reserved: U32,
    pub crc: U64,
}

/// Start of a record (32 bytes); the block as it was follows.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawUndoRecord {
    pub magic: U32,
    /// CRC of salt, index, address and block.
    pub crc: U32,
    /// Its place among the records.
    pub index: U64,
    /// The block's address on the device, or [`WITNESSES`].
    pub addr: U64,
    pub reserved: U64,
}

/// What the repair left in a block (16 bytes): in that of each record, in their order, 0 for a record of no block, and
/// in those that any later use of the volume changes.
#[derive(Debug, Clone, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
#[allow(missing_docs)]
pub struct RawUndoAfter {
    pub addr: U64,
    /// CRC of the block.
    pub crc: U32,
    pub reserved: U32,
}

const _: () = assert!(
    size_of::<RawUndoHeader>() == 88 && size_of::<RawUndoRecord>() == 32 && size_of::<RawUndoAfter>() == 16
);

impl RawUndoHeader {
    /// The header of a file without records.
    pub fn new(uuid: [u8; 16], blocks: u64, salt: u64) -> RawUndoHeader {
        RawUndoHeader {
            magic: UNDO_MAGIC,
            version: UNDO_VERSION.into(),
            ended: 0.into(),
            sequence: 0.into(),
            uuid,
            blocks: blocks.into(),
            salt: salt.into(),
            records: 0.into(),
            afters: 0.into(),
            afters_crc: 0.into(),
            reserved: 0.into(),
            crc: 0.into(),
        }
    }

    /// Sets the checksum.
    pub fn seal(&mut self) {
        self.crc = u64::from(self.checksum()).into();
    }

    fn checksum(&self) -> u32 {
        crc::f2fs(&self.as_bytes()[..std::mem::offset_of!(RawUndoHeader, crc)])
    }

    /// Reads and checks a header.
    pub fn parse(bytes: &[u8]) -> Result<RawUndoHeader, FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::UndoFile, 0u32, field, value));
        let Ok((header, _)) = RawUndoHeader::read_from_prefix(bytes) else {
            return bad("length", bytes.len().to_string());
        };
        if header.magic != UNDO_MAGIC {
            return bad("magic", format!("{:02x?}", header.magic));
        }
        if header.version.get() != UNDO_VERSION {
            return bad("version", format!("{}; this medfs supports {UNDO_VERSION}", header.version));
        }
        if header.crc.get() != u64::from(header.checksum()) {
            return bad("crc", format!("{:#x}", header.crc));
        }
        let largest = u64::MAX / RECORD_SIZE / 4;
        // Each record of witnesses comes before a record of a block, or before one of these is written again.
        if header.blocks.get() > largest || header.records.get() > largest {
            return bad("records", header.records.to_string());
        }
        if header.afters.get() > header.records.get() + header.blocks.get() || header.ended.get() > 1 {
            return bad("afters", header.afters.to_string());
        }
        Ok(header)
    }

    /// Offset of a record in the file.
    pub fn place_of(index: u64) -> u64 {
        FIRST_RECORD + index * RECORD_SIZE
    }
}

impl RawUndoRecord {
    /// The record of a block.
    pub fn of(salt: u64, index: u64, addr: u64, block: &Block) -> RawUndoRecord {
        RawUndoRecord {
            magic: UNDO_RECORD_MAGIC.into(),
            crc: record_checksum(salt, index, addr, block).into(),
            index: index.into(),
            addr: addr.into(),
            reserved: 0.into(),
        }
    }

    /// Reads and checks a record; returns the block's address.
    pub fn parse(
        bytes: &[u8],
        salt: u64,
        index: u64,
        blocks: u64,
        block: &Block,
    ) -> Result<u64, FormatError> {
        let bad = |field, value: String| Err(FormatError::corrupt(Structure::UndoFile, index, field, value));
        let Ok((record, _)) = RawUndoRecord::read_from_prefix(bytes) else {
            return bad("length", bytes.len().to_string());
        };
        let addr = record.addr.get();
        let is_possible = addr < blocks || addr == WITNESSES;
        if record.magic.get() != UNDO_RECORD_MAGIC || record.index.get() != index || !is_possible {
            return bad("record", format!("{:#x} of block {addr}", record.magic));
        }
        if record.crc.get() != record_checksum(salt, index, addr, block) {
            return bad("crc", format!("{:#x}", record.crc));
        }
        Ok(addr)
    }
}

/// The block of a record of witnesses: what they are about to hold.
pub fn witnesses_block(afters: &[RawUndoAfter]) -> Box<Block> {
    let mut block = Block::boxed();
    for (place, after) in block.0.chunks_exact_mut(size_of::<RawUndoAfter>()).zip(afters) {
        place.copy_from_slice(after.as_bytes());
    }
    block
}

/// The witnesses that such a block tells of.
pub fn witnesses_of(block: &Block) -> impl Iterator<Item = RawUndoAfter> + '_ {
    let afters = block.0.chunks_exact(size_of::<RawUndoAfter>());
    let afters = afters.map(|bytes| RawUndoAfter::read_from_bytes(bytes).expect("sized"));
    afters.take_while(|after| after.reserved.get() == WITNESS)
}

/// In `reserved` of an after in a record of witnesses.
const WITNESS: u32 = 1;

impl RawUndoAfter {
    /// What a witness is about to hold.
    pub fn of_witness(addr: u64, block: &Block) -> RawUndoAfter {
        RawUndoAfter { addr: addr.into(), crc: block_checksum(block).into(), reserved: WITNESS.into() }
    }
}

/// Checksum of a block's content, as the afters have it: the lower half of XXH3's 64 bits. The CRC of a block that has
/// its own CRC in it, as superblocks and the heads of checkpoint packs do, is the same whatever it holds.
pub fn block_checksum(block: &Block) -> u32 {
    XxHash3_64::oneshot(&block.0) as u32
}

fn record_checksum(salt: u64, index: u64, addr: u64, block: &Block) -> u32 {
    let numbers = [salt, index, addr].map(U64::new);
    crc::chain(crc::f2fs(numbers.as_bytes()), &block.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_says_what_is_wrong_with_it() {
        let mut header = RawUndoHeader::new([7; 16], 1000, 9);
        header.records = 12.into();
        header.seal();
        assert_eq!(RawUndoHeader::parse(header.as_bytes()).unwrap(), header);
        for byte in 0..88 {
            let mut bytes = header.as_bytes().to_vec();
            bytes[byte] ^= 0x10;
            assert!(RawUndoHeader::parse(&bytes).is_err(), "byte {byte}");
        }
        assert!(RawUndoHeader::parse(&header.as_bytes()[..80]).is_err());
    }

    #[test]
    fn blocks_that_end_with_their_checksum_have_checksums_that_differ() {
        // Whatever changes beside the checksum: something before it in the first half of the block, or in the second.
        for at in [0, 1100, 2040, 2048, 3000, 4084] {
            let of = |number: u64| {
                let mut block = Block::boxed();
                block.0[at..at + 8].copy_from_slice(&number.to_le_bytes());
                let checksum = crc::f2fs(&block.0[..BLOCK_SIZE - 4]);
                block.0[BLOCK_SIZE - 4..].copy_from_slice(&checksum.to_le_bytes());
                block_checksum(&block)
            };
            let mut all: Vec<u32> = (0..1000).map(of).collect();
            all.sort_unstable();
            all.dedup();
            assert_eq!(all.len(), 1000, "at {at}");
        }
    }

    #[test]
    fn a_record_is_of_its_file_its_place_and_its_block() {
        let mut block = Block::boxed();
        block.0[9] = 3;
        let record = RawUndoRecord::of(5, 2, 77, &block);
        assert_eq!(RawUndoRecord::parse(record.as_bytes(), 5, 2, 100, &block).unwrap(), 77);
        assert!(RawUndoRecord::parse(record.as_bytes(), 6, 2, 100, &block).is_err());
        assert!(RawUndoRecord::parse(record.as_bytes(), 5, 3, 100, &block).is_err());
        assert!(RawUndoRecord::parse(record.as_bytes(), 5, 2, 77, &block).is_err());
        assert!(RawUndoRecord::parse(record.as_bytes(), 5, 2, 100, &Block::ZERO).is_err());
    }
}
