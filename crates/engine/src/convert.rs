//! From plain F2FS to a volume that may hold deltas, and back.
//!
//! The superblock's magic is what tells the two apart, so a switch is two writes, of one copy after the other, each
//! durable before the next. Copies that disagree mean a volume without deltas: an import has made none yet, an export has
//! folded all. Whoever opens such a volume to write makes both plain again. So a crash at any moment leaves the old or the
//! new kind, with everything in it.

use crate::clock::Clock;
use crate::delta::Folded;
use crate::delta::registry::{HIDDEN_DIR, HIDDEN_NAME};
use crate::error::{Error, Result};
use crate::io::Io;
use crate::mount::{read_superblock, write_superblocks};
use crate::options::{DeltaMode, MountOptions};
use crate::volume::Volume;
use medfs_device::BlockDevice;
use medfs_format::superblock::{DELTA_FEATURES, Feature, RawSuperblock};
use serde::Serialize;
use std::sync::Arc;

/// What a conversion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Converted {
    /// Whether the volume was of the other kind before.
    pub switched: bool,
    /// What was folded by an export.
    pub folded: Folded,
    /// Inodes that were restored from the log of fsynced files first.
    pub recovered_inodes: u64,
}

/// Makes a plain F2FS volume, which nobody has mounted, one that may hold deltas, after recovering it.
/// `Incompatible` where it lacks the features that deltas need; it is unchanged then.
pub fn import(dev: Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Converted> {
    let (sb, ..) = read_superblock(&Io::new(dev.clone()))?;
    check_importable(sb.features())?;
    let volume = open(&dev, clock)?;
    if !sb.is_delta_volume()
        && let Some(name) =
            [HIDDEN_NAME, HIDDEN_DIR].iter().find(|name| volume.lookup(volume.root(), name).is_ok())
    {
        let name = String::from_utf8_lossy(name);
        return Err(Error::Invalid(format!(
            "the root directory has an entry '{name}', a name that volumes with deltas need: rename it first"
        )));
    }
    convert(&dev, &volume, Folded::default(), !sb.is_delta_volume(), RawSuperblock::become_delta_volume)
}

/// Makes a volume with deltas, which nobody has mounted, a plain F2FS one: recovers it, writes every page that is a delta
/// as a whole, and takes the zones away. `progress` is told how many inodes of how many are done.
pub fn export(
    dev: Arc<dyn BlockDevice>,
    clock: Arc<dyn Clock>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Converted> {
    let (sb, ..) = read_superblock(&Io::new(dev.clone()))?;
    let volume = open(&dev, clock)?;
    let folded = if sb.is_delta_volume() { volume.fold_deltas(progress)? } else { Folded::default() };
    convert(&dev, &volume, folded, sb.is_delta_volume(), RawSuperblock::become_plain)
}

fn open(dev: &Arc<dyn BlockDevice>, clock: Arc<dyn Clock>) -> Result<Volume> {
    let options = MountOptions { delta: Some(DeltaMode::Off), ..MountOptions::default() };
    let volume = Volume::open(dev.clone(), options, clock)?;
    if volume.is_read_only() { Err(Error::ReadOnly) } else { Ok(volume) }
}

/// Ends the work on a volume and, where it is of the other kind, switches its superblocks.
fn convert(
    dev: &Arc<dyn BlockDevice>,
    volume: &Volume,
    folded: Folded,
    switched: bool,
    change: fn(&mut RawSuperblock),
) -> Result<Converted> {
    volume.close()?;
    if switched {
        let mut sb = volume.superblock().clone();
        change(&mut sb);
        write_superblocks(&Io::new(dev.clone()), &sb, &[0, 1])?;
    }
    Ok(Converted { switched, folded, recovered_inodes: volume.stats().recovered_inodes })
}

fn check_importable(features: Feature) -> Result<()> {
    let missing = DELTA_FEATURES - features;
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = missing.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    Err(Error::Incompatible(format!(
        "the volume lacks {}, which deltas need and an existing volume cannot be given: copy its files to one made by \
         'medfs mkfs', or by 'mkfs.f2fs -O extra_attr,flexible_inline_xattr,inode_checksum'",
        names.join(", ")
    )))
}
