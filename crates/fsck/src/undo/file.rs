//! An undo file as it is read: all of it is checked before a block of it counts.

use super::{AFTER_LEN, HEADER_LEN, RECORD_LEN, UNKNOWN, UndoError, held, identities};
use medfs_device::{BlockDevice, read_block};
use medfs_format::undo::{
    HEADERS, RECORD_SIZE, RawUndoAfter, RawUndoHeader, RawUndoRecord, UNDO_MAGIC, UNDO_VERSION, WITNESSES,
    block_checksum, witnesses_of,
};
use medfs_format::{Block, crc};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use zerocopy::{FromBytes, IntoBytes};

/// Offset of a header's checksum, which covers what is before it.
const CRC_OFFSET: usize = std::mem::offset_of!(RawUndoHeader, crc);

/// An undo file that is read.
pub(super) struct Undo {
    path: PathBuf,
    file: File,
    len: u64,
    pub(super) header: RawUndoHeader,
    /// Whether the other header is no sign of damage: it is whole.
    both: bool,
}

impl Undo {
    pub(super) fn open(path: &Path) -> Result<Undo, UndoError> {
        let file = File::open(path)?;
        let len = file.metadata()?.len();
        let mut headers = Vec::new();
        let (mut known, mut versions) = (false, Vec::new());
        for at in HEADERS {
            let mut bytes = [0; HEADER_LEN];
            if at + HEADER_LEN as u64 > len {
                continue;
            }
            file.read_exact_at(&mut bytes, at)?;
            let raw = RawUndoHeader::read_from_bytes(&bytes).expect("sized");
            known |= raw.magic == UNDO_MAGIC;
            let (version, sum) = (raw.version.get(), crc::f2fs(&bytes[..CRC_OFFSET]));
            if raw.magic == UNDO_MAGIC && version != UNDO_VERSION {
                // Another version may have its checksum elsewhere; both headers do not have the same flipped bit.
                if raw.crc.get() == u64::from(sum) || versions.contains(&version) {
                    return Err(UndoError::Version(path.to_owned(), version));
                }
                versions.push(version);
            }
            headers.extend(RawUndoHeader::parse(&bytes).ok());
        }
        if !known {
            return Err(UndoError::Foreign(path.to_owned()));
        }
        let both = headers.len() == 2;
        let Some(header) = headers.into_iter().max_by_key(|h| h.sequence.get()) else {
            return Err(UndoError::Damaged(path.to_owned(), "neither header is whole".into()));
        };
        Ok(Undo { path: path.to_owned(), file, len, header, both })
    }

    /// That of a repair of this volume which was interrupted, and its number of records; `kept` gets the block of each.
    pub(super) fn of_interrupted(
        path: &Path,
        dev: &dyn BlockDevice,
        kept: &mut dyn FnMut(u64),
    ) -> Result<(Undo, u64), UndoError> {
        let undo = Undo::open(path)?;
        undo.belongs_to(dev)?;
        if undo.header.ended.get() == 1 {
            return Err(UndoError::Ended(path.to_owned()));
        }
        let records = undo.check_records(kept)?;
        undo.check_unused(dev, records)?;
        Ok((undo, records))
    }

    fn damaged(&self, what: impl Into<String>) -> UndoError {
        UndoError::Damaged(self.path.clone(), what.into())
    }

    pub(super) fn belongs_to(&self, dev: &dyn BlockDevice) -> Result<(), UndoError> {
        let other = |what: String| Err(UndoError::Other(self.path.clone(), what));
        let (blocks, is) = (self.header.blocks.get(), dev.block_count());
        if blocks != is {
            return other(format!("of a device of {blocks} blocks, this one has {is}"));
        }
        let is = identities(dev)?;
        // A volume that had no superblock has one made since; one of which none is left may be any.
        if self.header.uuid != UNKNOWN && !is.is_empty() && !is.contains(&self.header.uuid) {
            return other("its UUID is another one".into());
        }
        Ok(())
    }

    /// A record, checked.
    pub(super) fn record(&self, index: u64) -> Result<(u64, Box<Block>), UndoError> {
        let at = RawUndoHeader::place_of(index);
        if at + RECORD_SIZE > self.len {
            return Err(self.damaged(format!("it ends before record {index}")));
        }
        let (mut head, mut block) = ([0; RECORD_LEN], Block::boxed());
        self.file.read_exact_at(&mut head, at)?;
        self.file.read_exact_at(&mut block.0, at + RECORD_LEN as u64)?;
        let (salt, blocks) = (self.header.salt.get(), self.header.blocks.get());
        match RawUndoRecord::parse(&head, salt, index, blocks, &block) {
            Ok(addr) => Ok((addr, block)),
            Err(e) => Err(self.damaged(e.to_string())),
        }
    }

    /// Checks all records, and tells the block of each; returns how many there are. Those behind the ones that
    /// the header tells of are of blocks that were not changed yet, and do no harm.
    pub(super) fn check_records(&self, kept: &mut dyn FnMut(u64)) -> Result<u64, UndoError> {
        let mut records = self.header.records.get();
        let mut tell = |addr| {
            if addr != WITNESSES {
                kept(addr)
            }
        };
        for index in 0..records {
            tell(self.record(index)?.0);
        }
        if self.header.ended.get() == 0 {
            while let Ok((addr, _)) = self.record(records) {
                tell(addr);
                records += 1;
            }
        }
        // A header of a repair that ended was the last one. Where another is broken off, what it told of was durable
        // before: all is whole, up to the end of the file.
        if !self.both && self.header.ended.get() == 0 && !self.ends_with_afters(records)? {
            return Err(self.damaged("one of its headers is not whole"));
        }
        Ok(records)
    }

    /// Whether there is nothing behind so many records but what the repair writes when it has ended.
    fn ends_with_afters(&self, records: u64) -> Result<bool, UndoError> {
        let start = RawUndoHeader::place_of(records);
        let rest = self.len.saturating_sub(start);
        let (count, part) = (rest / AFTER_LEN as u64, rest % AFTER_LEN as u64);
        if part != 0 || (count != 0 && count < records) || count > records + self.header.blocks.get() {
            return Ok(false);
        }
        for index in 0..count.min(records) {
            if self.after(start, index)?.addr.get() != self.record(index)?.0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn after(&self, start: u64, index: u64) -> Result<RawUndoAfter, UndoError> {
        let at = start + index * AFTER_LEN as u64;
        if at + AFTER_LEN as u64 > self.len {
            return Err(self.damaged(format!("it ends before after {index}")));
        }
        let mut bytes = [0; AFTER_LEN];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(RawUndoAfter::read_from_bytes(&bytes).expect("sized"))
    }

    /// That the volume was not used since the repair, as far as can be told.
    pub(super) fn check_unused(&self, dev: &dyn BlockDevice, records: u64) -> Result<(), UndoError> {
        if self.header.ended.get() == 1 { self.check_afters(dev) } else { self.check_witnesses(dev, records) }
    }

    /// Where the repair was interrupted: whether each block that any use of the volume changes is as it was before, or
    /// as the repair has left it at some time.
    fn check_witnesses(&self, dev: &dyn BlockDevice, records: u64) -> Result<(), UndoError> {
        let mut possible: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
        let mut before: BTreeMap<u64, u32> = BTreeMap::new();
        for index in 0..records {
            let (addr, block) = self.record(index)?;
            if addr != WITNESSES {
                before.insert(addr, block_checksum(&block));
                continue;
            }
            for after in witnesses_of(&block) {
                possible.entry(after.addr.get()).or_default().insert(after.crc.get());
            }
        }
        for (addr, mut possible) in possible {
            possible.extend(before.get(&addr));
            if addr >= dev.block_count() || !possible.contains(&block_checksum(&*held(dev, addr)?)) {
                return Err(UndoError::Changed(self.path.clone(), addr));
            }
        }
        Ok(())
    }

    /// Where the repair ended: whether each block is as it left it, or as it was before.
    fn check_afters(&self, dev: &dyn BlockDevice) -> Result<(), UndoError> {
        let (records, afters) = (self.header.records.get(), self.header.afters.get());
        let start = RawUndoHeader::place_of(records);
        let mut sum = crc::f2fs(&[]);
        for index in 0..afters {
            sum = crc::chain(sum, self.after(start, index)?.as_bytes());
        }
        if sum != self.header.afters_crc.get() || afters < records {
            return Err(self.damaged("the checksum of its end is wrong"));
        }
        let mut as_left = afters == 0;
        for index in 0..afters {
            let after = self.after(start, index)?;
            let addr = after.addr.get();
            if addr == WITNESSES {
                continue;
            }
            if addr >= dev.block_count() {
                return Err(self.damaged(format!("block {addr} is outside the device")));
            }
            let now = block_checksum(&*read_block(dev, addr)?);
            let before = index < records && now == block_checksum(&self.record(index)?.1);
            if now != after.crc.get() && !before {
                return Err(UndoError::Changed(self.path.clone(), addr));
            }
            as_left |= index < records && !before;
        }
        // Some are as the repair left them; a restore that was interrupted goes on.
        if as_left { Ok(()) } else { Err(UndoError::Restored(self.path.clone())) }
    }
}
