//! Both copies of the superblock: which one counts, and how they become equal again.
//!
//! Invariant: at least one copy is whole at any moment. A copy is written only once the other is durable.

use crate::Store;
use crate::error::{Error, Result};
use crate::io::Io;
use medfs_device::{Cause, Temperature, WriteTag};
use medfs_format::superblock::{RawNvramInfo, RawSuperblock};
use medfs_format::{Block, FormatError, Geometry, weigh};
use zerocopy::IntoBytes;

/// Reads both superblock copies; returns the one that counts and the addresses of those that differ from it.
/// `Incompatible` where fsyncs may lie in an NVRAM.
pub fn read_superblock(io: &Io) -> Result<(RawSuperblock, Geometry, Vec<u32>)> {
    let read = read_superblock_with_nvram(io)?;
    read.0.check_no_nvram()?;
    Ok(read)
}

/// The same, for who looks into the NVRAM as well.
pub fn read_superblock_with_nvram(io: &Io) -> Result<(RawSuperblock, Geometry, Vec<u32>)> {
    if io.block_count() < 2 {
        return Err(Error::Incompatible("the image is too small to hold a superblock".into()));
    }
    let (mut first_error, mut unreadable) = (None, None);
    let mut copies = Vec::new();
    for addr in 0..2u32 {
        let block = match io.read(addr) {
            Ok(block) => block,
            Err(error) => {
                tracing::warn!(copy = addr + 1, %error, "one of the two copies of the superblock cannot be read");
                unreadable.get_or_insert(error);
                continue;
            }
        };
        let raw = RawSuperblock::in_block(&block).clone();
        let geometry = raw.validate();
        if let Err(e) = &geometry {
            tracing::warn!(
                copy = addr + 1,
                error = e.in_it(),
                "one of the two copies of the superblock is damaged"
            );
            first_error.get_or_insert(e.clone());
        }
        copies.push((addr, raw, geometry.ok()));
    }
    let valid: Vec<&RawSuperblock> =
        copies.iter().filter(|(_, _, geo)| geo.is_some()).map(|(_, raw, _)| raw).collect();
    let Some(sb) = weigh::in_force(&valid, &mut |addr| Ok::<_, Error>(io.read(addr).ok()))? else {
        if let Some(error) = unreadable {
            return Err(error);
        }
        return Err(match first_error {
            Some(FormatError::Corrupt { field: "magic", .. }) => Error::Incompatible(
                "no F2FS volume found: both superblock copies lack F2FS's magic number and medfs's".into(),
            ),
            Some(e) => e.into(),
            None => Error::Incompatible("no superblock".into()),
        });
    };
    let geo = sb.validate()?;
    let differs = |raw: &RawSuperblock| raw.as_bytes() != sb.as_bytes();
    let stale = copies.iter().filter(|(_, raw, _)| differs(raw)).map(|(addr, ..)| *addr).collect();
    Ok((sb, geo, stale))
}

/// Writes the copies of the superblock at these addresses, one after the other: each is durable before the next begins.
pub fn write_superblocks(io: &Io, sb: &RawSuperblock, copies: &[u32]) -> Result<()> {
    for &addr in copies {
        for block in superblock_copy(io, sb, addr) {
            io.write(addr, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold))?;
            io.flush()?;
        }
    }
    Ok(())
}

/// The blocks to write one after the other for a copy of the superblock, with what is before it, where that
/// can be read.
fn superblock_copy(io: &Io, sb: &RawSuperblock, addr: u32) -> Vec<Block> {
    let now = io.read(addr).unwrap_or_else(|_| Block::boxed());
    let steps = sb.steps_from(RawSuperblock::in_block(&now)).into_iter();
    let with = |step| {
        let mut block = (*now).clone();
        *RawSuperblock::in_block_mut(&mut block) = step;
        block
    };
    steps.map(with).collect()
}

impl Store {
    /// Makes both superblock copies equal, which also ends a switch between the kinds of volumes that was interrupted.
    /// A copy that cannot be written is left to `fsck`: the other one will do.
    pub fn restore_superblocks(&self, copies: &[u32]) -> Result<()> {
        for &addr in copies {
            tracing::warn!(
                copy = addr + 1,
                "a damaged or outdated copy of the superblock is written anew from the other one"
            );
            self.write_copy(&self.sb, addr)?;
        }
        Ok(())
    }

    /// Says on a volume of deltas that was made, or repaired, without it that nodes of the log may be sealed, and that
    /// zones may say which compact pages there are: from the next mount on. What was fsynced before must be in the last
    /// checkpoint.
    pub fn allow_seals(&self) -> Result<()> {
        if !self.is_delta_volume() || (self.sb.has_seals() && self.sb.has_ties()) {
            return Ok(());
        }
        let mut sb = self.sb.clone();
        sb.allow_seals_and_ties();
        (0..2).try_for_each(|addr| self.write_copy(&sb, addr))
    }

    /// Says in both copies which NVRAM may hold fsyncs of the volume, or that none does: the one durable
    /// before the other is written.
    pub fn set_nvram(&self, nvram: Option<RawNvramInfo>) -> Result<()> {
        let mut sb = self.sb.clone();
        sb.set_nvram(nvram);
        write_superblocks(&self.io, &sb, &[0, 1])
    }

    /// Writes a copy of the superblock if the device can.
    fn write_copy(&self, sb: &RawSuperblock, addr: u32) -> Result<()> {
        for block in superblock_copy(&self.io, sb, addr) {
            if let Err(error) = self.io.write_if_possible(addr, &block) {
                tracing::warn!(copy = addr + 1, %error, "one of the two copies of the superblock cannot be written");
            }
            self.io.flush()?;
        }
        Ok(())
    }
}
