//! Repairs of damaged metadata that lose power at each of their writes.
//!
//! - What is left of one, repaired again, passes the judge of [`Volume::strike`]. A file whose inode the first repair
//!   made up is told by its check alone, which precedes its first write.
//! - `--restore` with the undo file of one gives back every block that could be read, bit for bit: the file
//!   has no end, as the repair had none.
//!
//! Sectors that cannot be read stay so until they are written.

use super::told::Told;
use super::*;
use crate::power_cut::{GONE, PowerCut};
use medfs_fsck::undo::{UndoDevice, restore};
use std::path::Path;

impl Volume {
    /// Damages these blocks of a copy and repairs it, with the power lost at the first write, behind `step`
    /// of them and so on, until a repair ends; once more each time with an undo file in `folder`. Returns how
    /// many repairs were interrupted.
    pub fn interrupt(
        &self,
        hits: &[(Target, Damage)],
        rng: &mut Xoshiro256PlusPlus,
        step: u64,
        folder: &Path,
    ) -> Result<u64, Failure> {
        let bits = rng.clone();
        let damaged = || self.damaged(hits, &mut bits.clone());
        let mut first = Told::default();
        first.add(&check(&damaged(), &options(), &mut |_| {}).or_else(|e| fail("check", e))?);
        for count in 0.. {
            let writes = count * step;
            let told = |f: Failure| fail(f.class, format!("after {writes} writes: {f}"));
            let dev = Arc::new(damaged());
            let ended = is_repaired(&PowerCut::after(writes, &dev))?;
            self.end(hits, &dev, first.clone()).or_else(told)?;
            let (dev, file) = (damaged(), folder.join(format!("undo {writes}")));
            let before = dev.inner().snapshot();
            let undo =
                UndoDevice::create(&file, PowerCut::after(writes, &dev)).or_else(|e| fail("undo", e))?;
            let undone = is_repaired(&undo)?;
            drop(undo);
            is_taken_back(hits, &before, &dev, &file).or_else(told)?;
            if file.exists() {
                std::fs::remove_file(&file).or_else(|e| fail("undo", e))?;
            }
            if ended && undone {
                return Ok(count);
            }
        }
        unreachable!("a repair writes so many blocks")
    }
}

fn options() -> Options {
    Options { max_findings: 20, ..Options::default() }
}

/// Repairs a device; `false` where the power is lost.
fn is_repaired(dev: &dyn BlockDevice) -> Result<bool, Failure> {
    match repair(dev, &options(), &mut |_| {}) {
        Ok(_) => Ok(true),
        Err(RepairError::Io(e)) if e.raw_os_error() == Some(GONE) => Ok(false),
        Err(e) => fail("repair", e),
    }
}

/// Whether a device is as it was once its undo file is restored, but for sectors that could not be read.
fn is_taken_back(
    hits: &[(Target, Damage)],
    before: &MemDevice,
    dev: &FaultDevice<MemDevice>,
    file: &Path,
) -> Result<(), Failure> {
    // Without records there is no file: then the device was not changed, which is looked at below.
    if file.exists()
        && let Err(e) = restore(file, dev)
    {
        return fail("restore", e);
    }
    let unreadable =
        |addr: u64| hits.iter().any(|(t, damage)| t.block == addr && *damage == Damage::Unreadable);
    let block = |dev: &MemDevice, addr| read_block(dev, addr).expect("memory does not fail");
    let other = |addr: &u64| block(before, *addr).0 != block(dev.inner(), *addr).0 && !unreadable(*addr);
    match (0..before.block_count()).find(other) {
        Some(addr) => fail("restore", format!("block {addr} is another one")),
        None => Ok(()),
    }
}
