//! A copy of a damaged volume made readable, for whoever brings files off it: all is mended that leads to inodes, and
//! nothing gets a name. What a repair of the volume itself leaves behind counts too: a checkpoint that is not finished,
//! the fsync log behind a gap, and a volume whose beginning is lost.

use crate::check::{MAX_ROUNDS, RepairError, Report, check, pass, supported};
use crate::finding::{Altered, Code, Cut};
use crate::image::Stop;
use crate::in_force;
use crate::log_gap::{self, LogGaps};
use crate::mend::Mend;
use crate::options::Options;
use medfs_device::{BlockDevice, Cause, Temperature, WriteTag, read_block};
use medfs_format::Ino;
use std::collections::{BTreeSet, HashSet};
use std::io;

/// What a repair that gives no names came to.
#[derive(Debug, Clone, Default)]
pub struct Bared {
    /// What was wrong before.
    pub before: Report,
    /// What was cut off, in the order of the walk.
    pub cuts: Vec<Cut>,
    /// Inodes that the checkpoint counted, where there was one, and those that are left.
    pub inodes: Option<(u32, u32)>,
    /// Whether anything was changed.
    pub changed: bool,
    /// The volume is as of a checkpoint of which nothing but its last block is missing.
    pub unfinished: bool,
    /// The newest checkpoint is lost: the volume is as its newest nodes say.
    pub reckoned: bool,
    /// What the journals said of removed files is lost: one that no directory names may be one of them.
    pub journals_lost: bool,
    /// Files that no directory names, as they were fsynced behind the lost checkpoint: none of them was removed.
    pub fsynced: BTreeSet<Ino>,
    /// Blocks in the middle of the fsync log that could not be read: the log was led past them.
    pub log_gaps: Option<LogGaps>,
    /// Files that are not as they were.
    pub altered: Altered,
}

/// Makes whole what leads to the inodes of a volume, and gives none of them a name: for a copy of a volume
/// that files are read from, whether they have a name or not. What is left to be found there keeps no file
/// from being read.
pub fn repair_without_names(
    dev: &dyn BlockDevice,
    options: &Options,
    progress: &mut dyn FnMut(f64),
) -> Result<Bared, RepairError> {
    let mut options = Options { guess_layout: true, ..options.clone() };
    let mut before = check(dev, &options, progress)?;
    let mut bared = Bared { before: before.clone(), ..Bared::default() };
    if before.has(Code::CheckpointTorn) {
        match complete_newest(dev, &options, progress)? {
            Some(newer) => (bared.changed, bared.unfinished, before) = (true, true, newer),
            None => {
                options.past_unfinished = true;
                before = check(dev, &options, progress)?;
                bared.before = before.clone();
            }
        }
    }
    let options = &options;
    if before.is_final() {
        return Ok(bared);
    }
    supported(dev, options)?;
    if before.has(Code::LogNode) || before.has(Code::LogUnkept) {
        bared.log_gaps = log_gap::bridge(dev, before.has(Code::LogUnkept))?;
    }
    bared.altered.unkept.clone_from(&before.unkept);
    let mut found = before;
    let mut known: HashSet<Ino> = bared.before.lost.iter().map(|lost| lost.ino).collect();
    for _ in 1..=MAX_ROUNDS {
        let (met, ends) = pass(dev, options, Mend::AllButNames, progress)?;
        // What directories without a name have of names is met now.
        bared.before.lost.extend(met.lost.into_iter().filter(|lost| !known.contains(&lost.ino)));
        known.extend(bared.before.lost.iter().map(|lost| lost.ino));
        bared.before.targets_lost.extend(met.targets_lost);
        bared.cuts.extend(ends.cuts);
        bared.reckoned |= ends.reckoned;
        bared.journals_lost |= ends.journals_lost;
        bared.fsynced.extend(ends.fsynced);
        bared.altered.add(ends.altered);
        if let Some((before, left)) = ends.inodes {
            bared.inodes = Some((bared.inodes.map_or(before, |(before, _)| before), left));
        }
        bared.changed = true;
        let left = check(dev, options, progress)?;
        let same = (&left.findings, left.suppressed) == (&found.findings, found.suppressed);
        if same || left.is_final() {
            break;
        }
        found = left;
    }
    Ok(bared)
}

/// Completes a checkpoint that lacks its last block alone, where the volume is sound as of it; what a check then
/// finds. Whoever brings files off wants those that no other checkpoint names.
fn complete_newest(
    dev: &dyn BlockDevice,
    options: &Options,
    progress: &mut dyn FnMut(f64),
) -> io::Result<Option<Report>> {
    let (addr, block) = match in_force::missing_end(dev) {
        Ok(Some(end)) => end,
        Ok(None) | Err(Stop::Fatal) => return Ok(None),
        Err(Stop::Io(e)) => return Err(e),
    };
    let tag = WriteTag::new(Cause::Meta, Temperature::Hot);
    let Ok(was) = read_block(dev, addr.into()) else { return Ok(None) };
    dev.write(addr.into(), &[&block], tag)?;
    let found = check(dev, options, progress)?;
    if found.is_clean() {
        return Ok(Some(found));
    }
    dev.write(addr.into(), &[&was], tag)?;
    Ok(None)
}
