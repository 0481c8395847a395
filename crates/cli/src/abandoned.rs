//! A mount whose daemon has ended: every call on it fails with "not connected", which names no way out.

use anyhow::{Result, bail};
use medfs_device::mounts::mounts;
use medfs_fuse::control;
use std::path::{Path, PathBuf};

/// Fails, and says what to do, where the daemon that serves a path has ended.
pub(crate) fn refuse(path: &Path) -> Result<()> {
    if !control::is_abandoned(path) {
        return Ok(());
    }
    bail!(
        "the daemon of the volume mounted on {0} has ended: unmount it with 'medfs umount {0}'. The system's log, or the file of \
         'medfs mount --log', may tell why",
        mount_point(path).display()
    )
}

/// The directory that a path's volume is mounted on.
fn mount_point(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let all = mounts(None).unwrap_or_default();
    let above = all.iter().filter(|mount| mount.is_medfs() && absolute.starts_with(&mount.on));
    above.max_by_key(|mount| mount.on.components().count()).map_or(path.to_owned(), |mount| mount.on.clone())
}
