//! Makes a damaged volume readable, without writing to it.
//!
//! The repair of medfs-fsck runs on an overlay ([`medfs_device::Overlay`]): it takes the other superblock,
//! the other checkpoint pack, finds nodes by their footers where the NAT has lost them, makes a lost root
//! anew, and turns flipped bits back. It gives no names: what nothing names is found by its number
//! ([`crate::Walk::unnamed`]). Then the engine opens the overlay to read.

use medfs::{Clock, Ino, MountOptions, Volume};
use medfs_device::{BlockDevice, Cause, Lengthened, Overlay, Temperature, WriteTag, read_block};
use medfs_format::superblock::RawSuperblock;
use medfs_fsck::{
    Altered, Bared, Code, Cut, LogGaps, Options, RepairError, Report, Severity, repair_without_names,
};
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::sync::Arc;
use thiserror::Error;

/// Why nothing can be salvaged.
#[derive(Debug, Error)]
pub enum SalvageError {
    /// What leads to everything else is lost.
    #[error("{0}")]
    Hopeless(String),
    /// The device, or the file of changes, failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The volume that was made readable does not open.
    #[error("the volume cannot be made readable: {0}")]
    Unreadable(medfs::Error),
}

/// A volume that was made readable.
pub struct Salvage {
    /// To read from.
    pub volume: Volume,
    /// What was wrong.
    pub found: Report,
    /// What no longer leads anywhere.
    pub cuts: Vec<Cut>,
    /// Why not all of the content is certain, where that is so of the whole volume.
    pub doubt: Option<String>,
    /// No checkpoint is left: a file may have its inode, and none of its content yet.
    pub reckoned: bool,
    /// Where a file that no directory names may have been removed: those that were not.
    pub journals_lost: Option<BTreeSet<Ino>>,
    /// What of the fsync log could not be read.
    pub log_gaps: Option<LogGaps>,
    /// Files that are not as they were.
    pub altered: Altered,
    /// How many files and directories are lost beside those that have left a name.
    pub gone: u64,
}

/// What is said of files that only such a checkpoint names.
const UNFINISHED: &str = "the last block of the newest checkpoint is missing, and all else of it is there: files are as of it. \
     Where power was lost before its end, what was written last may hold other bytes";

/// What is said of files that no checkpoint is left to tell of.
const RECKONED: &str = "the newest checkpoint is lost: files are as their newest nodes say, which may be older than \
     they were, and removed files may be among them";

/// What is said where the newest checkpoint is lost, and nothing can be made of the nodes behind it.
const OLDER: &str =
    "the newest checkpoint is lost: files are as of the one before, and newer ones are missing";

/// What is said where an image ends before the block at which the fsync log may go on.
const LOG_CUT: &str = "the image ends where the fsync log may go on: what was fsynced last may be missing";

/// Makes the volume on a device readable. `changes` is an empty file for what differs from the device;
/// `progress` is told the fraction done.
pub fn open(
    dev: Arc<dyn BlockDevice>,
    changes: File,
    clock: Arc<dyn Clock>,
    progress: &mut dyn FnMut(f64),
) -> Result<Salvage, SalvageError> {
    let here = dev.block_count();
    let whole = whole_length(dev);
    let blocks = whole.block_count();
    let over = Arc::new(Overlay::new(whole, changes));
    leave_nvram(&*over)?;
    let bared = match repair_without_names(&*over, &Options::default(), progress) {
        Ok(bared) => bared,
        Err(RepairError::Io(error)) => return Err(error.into()),
        // What cannot be repaired can be read all the same.
        Err(RepairError::Unsupported(_)) => Bared::default(),
    };
    let journals_lost = bared.journals_lost.then_some(bared.fsynced);
    let Bared { before: found, cuts, inodes, unfinished, reckoned, log_gaps, altered, .. } = bared;
    if let Some(fatal) = found.findings.iter().find(|f| f.severity == Severity::Fatal) {
        return Err(SalvageError::Hopeless(fatal.message.clone()));
    }
    let (counted, left) = inodes.unwrap_or_default();
    if found.has(Code::NoRoot) && left <= 1 {
        return Err(SalvageError::Hopeless(nothing_left(here, blocks)));
    }
    let names: BTreeSet<_> = found.lost.iter().map(|lost| lost.ino).collect();
    let gone = u64::from(counted.saturating_sub(left)).saturating_sub(names.len() as u64);
    let options = MountOptions { read_only: true, ..MountOptions::default() };
    let volume = Volume::open(over, options, clock).map_err(SalvageError::Unreadable)?;
    let is_log_cut = here < blocks && found.has(Code::LogEnd);
    let is_older = found.has(Code::CheckpointOlder);
    let doubt = unfinished
        .then_some(UNFINISHED)
        .or(reckoned.then_some(RECKONED))
        .or(is_older.then_some(OLDER))
        .or(is_log_cut.then_some(LOG_CUT));
    let doubt = doubt.map(str::to_owned);
    Ok(Salvage { volume, found, cuts, doubt, reckoned, journals_lost, log_gaps, altered, gone })
}

/// That no inode is left but the root's, which was made anew, on a device of `here` blocks for a volume of `blocks`.
fn nothing_left(here: u64, blocks: u64) -> String {
    let nothing = "the root directory is lost, and no other file or directory is found";
    match here < blocks {
        true => format!("{nothing}; {here} of the {blocks} blocks of the volume are present"),
        false => nothing.into(),
    }
}

/// Takes away that fsyncs may lie in an NVRAM: what the volume itself has is brought.
fn leave_nvram(over: &dyn BlockDevice) -> io::Result<()> {
    for addr in 0..over.block_count().min(2) {
        let Ok(mut block) = read_block(over, addr) else { continue };
        if RawSuperblock::in_block(&block).nvram_in_use().is_none() {
            continue;
        }
        RawSuperblock::in_block_mut(&mut block).set_nvram(None);
        over.write(addr, &[&block], WriteTag::new(Cause::Meta, Temperature::Cold))?;
    }
    Ok(())
}

/// A device at the length of its volume, as its superblocks say: an image may have been cut short.
pub fn whole_length<D: BlockDevice>(dev: D) -> Lengthened<D> {
    let sizes = (0..dev.block_count().min(2)).filter_map(|addr| {
        let block = read_block(&dev, addr).ok()?;
        Some(RawSuperblock::in_block(&block).validate().ok()?.end())
    });
    let blocks = sizes.max().unwrap_or(0);
    Lengthened::new(dev, blocks)
}
